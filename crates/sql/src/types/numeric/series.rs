//! Roots, exponentials and logarithms, computed with whole numbers that stand for decimals of a fixed number of
//! places, and with the number of digits that PostgreSQL gives their results.

use num_bigint::BigInt;

use super::{
    Numeric,
    arithmetic::{SIGNIFICANT_DIGITS, clamp_scale, division_by_zero},
    divide_big, overflow,
};
use crate::{SqlError, SqlState};

/// Places beyond those of the result.
const GUARD: u32 = 16;
/// Powers are multiplied out as long as they have about this many digits.
const EXACT_DIGITS: u64 = 4000;

pub(super) fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10u8).pow(exponent)
}

/// Moves the point: a number of `from` places as one of `to`.
fn place(number: BigInt, from: u32, to: u32) -> BigInt {
    if to >= from { number * power_of_ten(to - from) } else { divide_big(number, &power_of_ten(from - to)) }
}

/// ln((unit + z) / (unit - z)) for z / unit well below 1.
fn logarithm_series(z: &BigInt, unit: &BigInt) -> BigInt {
    let zero = BigInt::ZERO;
    let square = z * z / unit;
    let (mut power, mut sum, mut divisor) = (z.clone(), BigInt::ZERO, 1u32);
    while power != zero {
        sum += &power / divisor;
        power = power * &square / unit;
        divisor += 2;
    }
    sum * 2
}

/// ln(10).
fn logarithm_of_ten(unit: &BigInt) -> BigInt {
    // 10 = 2^3 * 5/4; ln(2) = ln((1 + 1/3) / (1 - 1/3)); ln(5/4) = ln((1 + 1/9) / (1 - 1/9))
    logarithm_series(&(unit / 3), unit) * 3 + logarithm_series(&(unit / 9), unit)
}

/// ln(number) in `places` places, for a positive number.
fn logarithm(number: Numeric, places: u32) -> BigInt {
    const ROOTS: u32 = 6;
    let working = places + GUARD;
    let unit = power_of_ten(working);
    let exponent = number.exponent();
    // number = mantissa * 10^exponent with 1 <= mantissa < 10
    let digits = (exponent + i64::from(number.scale)) as u32;
    let mut mantissa = number.big() * power_of_ten(working.saturating_sub(digits));
    if digits > working {
        mantissa /= power_of_ten(digits - working);
    }
    let mut doublings = 0;
    if mantissa != unit {
        while doublings < ROOTS && (&mantissa - &unit) * 32 > unit {
            mantissa = (mantissa * &unit).sqrt();
            doublings += 1;
        }
    }
    let z = (&mantissa - &unit) * &unit / (&mantissa + &unit);
    let mut result = logarithm_series(&z, &unit) << doublings;
    if exponent != 0 {
        result += logarithm_of_ten(&unit) * exponent;
    }
    place(result, working, places)
}

/// e^(x / 10^places), rounded to `scale` places.
fn exponential(x: &BigInt, places: u32, scale: u32) -> Result<BigInt, SqlError> {
    const HALVINGS: u32 = 8;
    // Far beyond what fits, or too small to be anything but zero.
    let whole = i64::try_from(x / power_of_ten(places)).map_err(|_| overflow());
    let whole = match whole {
        Ok(whole) if whole < 100 => whole,
        _ if x.sign() == num_bigint::Sign::Minus => return Ok(BigInt::ZERO),
        _ => return Err(overflow()),
    };
    if whole < -400 {
        return Ok(BigInt::ZERO);
    }
    let working = scale + GUARD + 48;
    let unit = power_of_ten(working);
    let x = place(x.clone(), places, working);
    let ten = logarithm_of_ten(&unit);
    // e^x = e^rest * 10^exponent with 0 <= rest < ln(10)
    let mut exponent = &x / &ten;
    let mut rest = &x % &ten;
    if rest.sign() == num_bigint::Sign::Minus {
        exponent -= 1;
        rest += &ten;
    }
    rest >>= HALVINGS;
    let (mut term, mut sum, mut divisor) = (unit.clone(), BigInt::ZERO, 1u32);
    while term != BigInt::ZERO {
        sum += &term;
        term = term * &rest / &unit / divisor;
        divisor += 1;
    }
    for _ in 0..HALVINGS {
        sum = &sum * &sum / &unit;
    }
    let exponent = i64::try_from(exponent).map_err(|_| overflow())?;
    let from = i64::from(working) - exponent;
    Ok(match u32::try_from(from) {
        Ok(from) => place(sum, from, scale),
        Err(_) => place(sum * power_of_ten(from.unsigned_abs() as u32), 0, scale),
    })
}

/// The decimal exponent of ln(number), about.
fn logarithm_exponent(number: Numeric) -> i64 {
    let near_one = (Numeric::make(9, 1)..=Numeric::make(11, 1)).contains(&number);
    if near_one {
        return match number.sub(Numeric::ONE) {
            Ok(rest) if !rest.is_zero() => {
                let leading = rest.leading();
                leading.weight * 4 + i64::from(leading.digit.max(1).ilog10())
            }
            _ => 0,
        };
    }
    let leading = number.leading();
    let digits = f64::from(leading.digit) * 10_000.0 + f64::from(leading.next);
    let logarithm = digits.ln() + (leading.weight - 1) as f64 * 4.0 * std::f64::consts::LN_10;
    logarithm.abs().log10() as i64
}

fn logarithm_argument(number: Numeric) -> Result<(), SqlError> {
    let message = match number.coefficient() {
        0 => "cannot take logarithm of zero",
        ..0 => "cannot take logarithm of a negative number",
        _ => return Ok(()),
    };
    Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM, message))
}

impl Numeric {
    /// The square root.
    ///
    /// # Errors
    /// 2201F when the number is negative.
    pub fn sqrt(self) -> Result<Self, SqlError> {
        if self.coefficient() < 0 {
            return Err(SqlError::new(
                SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                "cannot take square root of a negative number",
            ));
        }
        let weight = self.leading().weight;
        let root_weight = if weight >= 0 { (weight + 1) * 4 / 2 - 1 } else { 1 - (1 - weight * 4) / 2 };
        let scale = clamp_scale((SIGNIFICANT_DIGITS - root_weight).max(self.scale.into()));
        // One digit more, which decides about rounding.
        let root = (self.big() * power_of_ten(2 * (scale + 1) - self.scale())).sqrt();
        Self::from_big(place(root, scale + 1, scale), scale)
    }

    /// e to this power.
    ///
    /// # Errors
    /// 22003 when the result has too many digits.
    pub fn exp(self) -> Result<Self, SqlError> {
        let exponent = self.to_f64() * std::f64::consts::LOG10_E;
        if exponent > 60.0 {
            return Err(overflow());
        }
        // What is that small is zero in any case.
        let exponent = exponent.max(-1000.0) as i64;
        let scale = clamp_scale((SIGNIFICANT_DIGITS - exponent).max(self.scale.into()));
        Self::from_big(exponential(&self.big(), self.scale(), scale)?, scale)
    }

    /// The natural logarithm.
    ///
    /// # Errors
    /// 2201E when the number is not positive.
    pub fn ln(self) -> Result<Self, SqlError> {
        logarithm_argument(self)?;
        let scale = clamp_scale((SIGNIFICANT_DIGITS - logarithm_exponent(self)).max(self.scale.into()));
        Self::from_big(place(logarithm(self, scale + GUARD), scale + GUARD, scale), scale)
    }

    /// The logarithm to a base.
    ///
    /// # Errors
    /// 2201E when one of them is not positive, 22012 when the base is 1.
    pub fn log(self, base: Self) -> Result<Self, SqlError> {
        logarithm_argument(base)?;
        logarithm_argument(self)?;
        if base == Self::ONE {
            return Err(division_by_zero());
        }
        let exponent = logarithm_exponent(self) - logarithm_exponent(base);
        let scale = (SIGNIFICANT_DIGITS - exponent).max(self.scale().max(base.scale()).into());
        let scale = clamp_scale(scale);
        // A base near 1 has a logarithm near 0.
        let places = scale + GUARD + 2 * Self::MAX_DIGITS;
        let (number, base) = (logarithm(self, places), logarithm(base, places));
        Self::from_big(divide_big(number * power_of_ten(scale), &base), scale)
    }

    /// This number to the power of another.
    ///
    /// # Errors
    /// 2201F when there is no such number, 22003 when it has too many digits.
    pub fn pow(self, exponent: Self) -> Result<Self, SqlError> {
        let undefined = |message| Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message));
        let whole = exponent.trimmed().scale == 0;
        if self.is_zero() && exponent.coefficient() < 0 {
            return undefined("zero raised to a negative power is undefined");
        }
        if self.coefficient() < 0 && !whole {
            return undefined("a negative number raised to a non-integer power yields a complex result");
        }
        let scale_of = |estimate: f64| {
            let scale = SIGNIFICANT_DIGITS - (estimate as i64).clamp(-100, 100);
            clamp_scale(scale.max(self.scale().max(exponent.scale()).into()))
        };
        if whole && let Ok(power) = i32::try_from(exponent.trimmed().coefficient()) {
            return self.pow_whole(power);
        }
        if self.is_zero() {
            return Self::from_big(BigInt::ZERO, SIGNIFICANT_DIGITS as u32);
        }
        let negative = self.coefficient() < 0 && exponent.trimmed().coefficient() % 2 != 0;
        let base = self.abs();
        let places = 100 + exponent.exponent().max(0) as u32;
        let logarithm = logarithm(base, places) * exponent.big();
        let estimate = Self::from_big(place(logarithm.clone(), places + exponent.scale(), 16), 16).map(Self::to_f64);
        let estimate = match estimate {
            Ok(estimate) => estimate * std::f64::consts::LOG10_E,
            Err(_) if logarithm.sign() == num_bigint::Sign::Minus => f64::MIN,
            Err(error) => return Err(error),
        };
        let scale = scale_of(estimate);
        let result = exponential(&logarithm, places + exponent.scale(), scale)?;
        Self::from_big(if negative { -result } else { result }, scale)
    }

    fn pow_whole(self, power: i32) -> Result<Self, SqlError> {
        let scale = clamp_scale(SIGNIFICANT_DIGITS.max(self.scale.into()));
        let magnitude = power.unsigned_abs();
        let digits = u64::from(self.coefficient().unsigned_abs().max(1).ilog10() + 1) * u64::from(magnitude);
        if self.is_zero() || digits <= EXACT_DIGITS {
            // Zero to a power is zero at any power, and one at none.
            let exact = self.big().pow(if self.is_zero() { magnitude.min(1) } else { magnitude });
            let places = self.scale() * if self.is_zero() { magnitude.min(1) } else { magnitude };
            if power >= 0 {
                return Self::from_big(place(exact, places, scale), scale);
            }
            return Self::from_big(divide_big(power_of_ten(places + scale), &exact), scale);
        }
        let places = 120;
        let logarithm = logarithm(self.abs(), places) * power;
        let result = exponential(&logarithm, places, scale)?;
        Self::from_big(if self.coefficient() < 0 && power % 2 != 0 { -result } else { result }, scale)
    }
}
