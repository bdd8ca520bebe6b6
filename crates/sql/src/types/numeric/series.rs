//! Roots, exponentials and logarithms, computed with whole numbers that stand for decimals of a
//! fixed number of places, and with the number of digits that PostgreSQL gives their results.

use num_bigint::BigInt;

use super::{
    MAX_RESULT_SCALE, MAX_WHOLE, Numeric, Special,
    arithmetic::{SIGNIFICANT_DIGITS, clamp_scale, division_by_zero, effort},
    digits_of, divide_big, overflow,
};
use crate::{SqlError, SqlState, portable};

/// Places beyond those of the result.
const GUARD: u32 = 16;
/// Powers are multiplied out as long as they have about this many digits, or as many more as a
/// whole number can have.
const EXACT_DIGITS: u64 = 4000;
/// e to the power of more than this is too large, and of less than its opposite, zero.
const MAX_EXPONENT: f64 = 6000.0;

pub(super) fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10u8).pow(exponent)
}

/// Moves the point: a number of `from` places as one of `to`.
fn place(number: BigInt, from: u32, to: u32) -> BigInt {
    if to >= from { number * power_of_ten(to - from) } else { divide_big(number, &power_of_ten(from - to)) }
}

/// ln((unit + z) / (unit - z)) for z / unit well below 1.
fn logarithm_series(z: &BigInt, unit: &BigInt) -> Result<BigInt, SqlError> {
    let zero = BigInt::ZERO;
    let square = z * z / unit;
    let (mut power, mut sum, mut divisor) = (z.clone(), BigInt::ZERO, 1u32);
    while power != zero {
        effort(&power, unit)?;
        sum += &power / divisor;
        power = power * &square / unit;
        divisor += 2;
    }
    Ok(sum * 2)
}

/// ln(10).
fn logarithm_of_ten(unit: &BigInt) -> Result<BigInt, SqlError> {
    // 10 = 2^3 * 5/4; ln(2) = ln((1 + 1/3) / (1 - 1/3)); ln(5/4) = ln((1 + 1/9) / (1 - 1/9))
    Ok(logarithm_series(&(unit / 3), unit)? * 3 + logarithm_series(&(unit / 9), unit)?)
}

/// ln(number) in `places` places, for a positive finite number.
fn logarithm(number: &Numeric, places: u32) -> Result<BigInt, SqlError> {
    const ROOTS: u32 = 6;
    let working = places + GUARD;
    let unit = power_of_ten(working);
    let exponent = number.exponent();
    // number = mantissa * 10^exponent with 1 <= mantissa < 10
    let digits = u32::try_from(exponent + i64::from(number.scale())).unwrap_or(0);
    let coefficient = number.big().map_or(BigInt::ZERO, |number| number.coefficient);
    let mut mantissa = coefficient * power_of_ten(working.saturating_sub(digits));
    if digits > working {
        mantissa /= power_of_ten(digits - working);
    }
    let mut doublings = 0;
    if mantissa != unit {
        while doublings < ROOTS && (&mantissa - &unit) * 32 > unit {
            effort(&mantissa, &unit)?;
            mantissa = (mantissa * &unit).sqrt();
            doublings += 1;
        }
    }
    let z = (&mantissa - &unit) * &unit / (&mantissa + &unit);
    let mut result = logarithm_series(&z, &unit)? << doublings;
    if exponent != 0 {
        result += logarithm_of_ten(&unit)? * exponent;
    }
    Ok(place(result, working, places))
}

/// e^(x / 10^places), rounded to `scale` places; x is not far from zero.
fn exponential(x: &BigInt, places: u32, scale: u32) -> Result<BigInt, SqlError> {
    const HALVINGS: u32 = 8;
    let whole = i64::try_from(x / power_of_ten(places)).map_err(|_| overflow())?;
    // As many digits as the result has before its point.
    let before = (whole.max(0) as f64 * std::f64::consts::LOG10_E) as u32 + 2;
    let working = scale + GUARD + 48 + before;
    let unit = power_of_ten(working);
    let x = place(x.clone(), places, working);
    let ten = logarithm_of_ten(&unit)?;
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
        effort(&term, &unit)?;
        sum += &term;
        term = term * &rest / &unit / divisor;
        divisor += 1;
    }
    for _ in 0..HALVINGS {
        effort(&sum, &sum)?;
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
fn logarithm_exponent(number: &Numeric) -> i64 {
    let near_one = (Numeric::make(9, 1)..=Numeric::make(11, 1)).contains(number);
    if near_one {
        return match number.sub(&Numeric::ONE) {
            Ok(rest) if !rest.is_zero() => {
                let leading = rest.leading();
                leading.weight * 4 + i64::from(leading.digit.max(1).ilog10())
            }
            _ => 0,
        };
    }
    let leading = number.leading();
    let digits = f64::from(leading.digit) * 10_000.0 + f64::from(leading.next);
    let logarithm = portable::ln(digits) + (leading.weight - 1) as f64 * 4.0 * std::f64::consts::LN_10;
    portable::log10(logarithm.abs()) as i64
}

fn logarithm_argument(number: &Numeric) -> Result<(), SqlError> {
    let message = match number.sign() {
        num_bigint::Sign::NoSign if number.as_special().is_none() => "cannot take logarithm of zero",
        num_bigint::Sign::Minus => "cannot take logarithm of a negative number",
        _ => return Ok(()),
    };
    Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM, message))
}

impl Numeric {
    /// The square root.
    ///
    /// # Errors
    /// 2201F when the number is negative.
    pub fn sqrt(&self) -> Result<Self, SqlError> {
        if self.is_negative() {
            return Err(SqlError::new(
                SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                "cannot take square root of a negative number",
            ));
        }
        let Ok(number) = self.big() else { return Ok(self.clone()) };
        let weight = self.leading().weight;
        let root_weight = if weight >= 0 { (weight + 1) * 4 / 2 - 1 } else { 1 - (1 - weight * 4) / 2 };
        let scale = clamp_scale((SIGNIFICANT_DIGITS - root_weight).max(number.scale.into()));
        // One digit more, which decides about rounding.
        let working = (2 * (scale + 1)).max(number.scale + number.scale % 2);
        let root = number.at_scale(working);
        let places = root.scale / 2;
        Self::from_big(place(root.coefficient.sqrt(), places, scale), scale)
    }

    /// e to this power.
    ///
    /// # Errors
    /// 22003 when the result has too many digits; those of [`work::done`](crate::work::done).
    pub fn exp(&self) -> Result<Self, SqlError> {
        let number = match self.big() {
            Ok(number) => number,
            Err(Special::MinusInfinity) => return Ok(Self::ZERO),
            Err(special) => return Ok(Self::special(special)),
        };
        let value = self.to_f64();
        if value.abs() >= MAX_EXPONENT {
            if value > 0.0 {
                return Err(overflow());
            }
            return Self::from_big(BigInt::ZERO, MAX_RESULT_SCALE as u32);
        }
        let exponent = (value * std::f64::consts::LOG10_E) as i64;
        let scale = clamp_scale((SIGNIFICANT_DIGITS - exponent).max(number.scale.into()));
        Self::from_big(exponential(&number.coefficient, number.scale, scale)?, scale)
    }

    /// The natural logarithm.
    ///
    /// # Errors
    /// 2201E when the number is not positive; those of [`work::done`](crate::work::done).
    pub fn ln(&self) -> Result<Self, SqlError> {
        logarithm_argument(self)?;
        if self.as_special().is_some() {
            return Ok(self.clone());
        }
        let scale = clamp_scale((SIGNIFICANT_DIGITS - logarithm_exponent(self)).max(self.scale().into()));
        let logarithm = logarithm(self, scale + GUARD)?;
        Self::from_big(place(logarithm, scale + GUARD, scale), scale)
    }

    /// The logarithm to a base.
    ///
    /// # Errors
    /// 2201E when one of them is not positive, 22012 when the base is 1; those of
    /// [`work::done`](crate::work::done).
    pub fn log(&self, base: &Self) -> Result<Self, SqlError> {
        if self.as_special() == Some(Special::NaN) || base.as_special() == Some(Special::NaN) {
            return Ok(Self::nan());
        }
        logarithm_argument(base)?;
        logarithm_argument(self)?;
        match (self.as_special(), base.as_special()) {
            (Some(_), Some(_)) => return Ok(Self::nan()),
            (None, Some(_)) => return Ok(Self::ZERO),
            (Some(_), None) => return Ok(self.clone()),
            (None, None) => {}
        }
        if *base == Self::ONE {
            return Err(division_by_zero());
        }
        let exponent = logarithm_exponent(self) - logarithm_exponent(base);
        let scale = (SIGNIFICANT_DIGITS - exponent).max(self.scale().max(base.scale()).into());
        let scale = clamp_scale(scale);
        // A base near 1 has a logarithm near 0.
        let near = u32::try_from(-logarithm_exponent(base)).unwrap_or(0);
        let places = scale + GUARD + 2 * Self::MAX_DIGITS + 2 * near;
        let (number, base) = (logarithm(self, places)?, logarithm(base, places)?);
        Self::from_big(divide_big(number * power_of_ten(scale), &base), scale)
    }

    /// This number to the power of another.
    ///
    /// # Errors
    /// 2201F when there is no such number, 22003 when it has too many digits; those of
    /// [`work::done`](crate::work::done).
    pub fn pow(&self, exponent: &Self) -> Result<Self, SqlError> {
        let undefined = |message| Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message));
        if self.as_special().is_some() || exponent.as_special().is_some() {
            return self.pow_special(exponent);
        }
        let trimmed = exponent.trimmed();
        let whole = trimmed.scale() == 0;
        if self.is_zero() && exponent.is_negative() {
            return undefined("zero raised to a negative power is undefined");
        }
        if self.is_negative() && !whole {
            return undefined("a negative number raised to a non-integer power yields a complex result");
        }
        if let Some(power) = trimmed.to_i64().filter(|_| whole).and_then(|power| i32::try_from(power).ok()) {
            return self.pow_whole(power);
        }
        if self.is_zero() {
            return Self::from_big(BigInt::ZERO, SIGNIFICANT_DIGITS as u32);
        }
        let odd = whole && trimmed.big().is_ok_and(|power| power.coefficient.bit(0));
        let negative = self.is_negative() && odd;
        let base = self.abs();
        // About what it comes to, to choose how many digits are needed.
        let power = exponent.to_f64();
        let approximate = logarithm(&base, 40 + self.scale().min(1000))?;
        let approximate = Self::from_big(approximate, 40 + self.scale().min(1000))?.to_f64() * power;
        if approximate.abs() > 3.01 * 2000.0 {
            if approximate > 0.0 {
                return Err(overflow());
            }
            return Self::from_big(BigInt::ZERO, MAX_RESULT_SCALE as u32);
        }
        let digits = (approximate * std::f64::consts::LOG10_E) as i64;
        let scale = clamp_scale((SIGNIFICANT_DIGITS - digits).max(self.scale().max(exponent.scale()).into()));
        let places = scale + 100 + digits.max(0) as u32 + exponent.exponent().max(0) as u32;
        let Ok(power) = exponent.big() else { return Ok(Self::nan()) };
        let logarithm = logarithm(&base, places)? * power.coefficient;
        let result = exponential(&logarithm, places + power.scale, scale)?;
        Self::from_big(if negative { -result } else { result }, scale)
    }

    /// A power in which one side is not finite.
    fn pow_special(&self, exponent: &Self) -> Result<Self, SqlError> {
        let undefined = |message| Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message));
        let is = |number: &Self, special| number.as_special() == Some(special);
        // One to any power is one, and anything to the power of zero.
        if is(self, Special::NaN) {
            return Ok(if exponent.is_zero() { Self::ONE } else { Self::nan() });
        }
        if is(exponent, Special::NaN) {
            return Ok(if *self == Self::ONE { Self::ONE } else { Self::nan() });
        }
        if self.is_zero() && exponent.is_negative() {
            return undefined("zero raised to a negative power is undefined");
        }
        let trimmed = exponent.trimmed();
        let whole = exponent.as_special().is_some() || trimmed.scale() == 0;
        if self.is_negative() && !whole {
            return undefined("a negative number raised to a non-integer power yields a complex result");
        }
        if *self == Self::ONE || exponent.is_zero() {
            return Ok(Self::ONE);
        }
        if exponent.as_special().is_some() {
            let size = self.abs().cmp(&Self::ONE);
            if size.is_eq() {
                return Ok(Self::ONE);
            }
            return Ok(if size.is_gt() != exponent.is_negative() {
                Self::special(Special::Infinity)
            } else {
                Self::ZERO
            });
        }
        if exponent.is_negative() {
            return Ok(Self::ZERO);
        }
        let odd = trimmed.big().is_ok_and(|power| power.coefficient.bit(0));
        Ok(Self::special(if self.is_negative() && odd { Special::MinusInfinity } else { Special::Infinity }))
    }

    fn pow_whole(&self, power: i32) -> Result<Self, SqlError> {
        let Ok(base) = self.big() else { return Ok(Self::nan()) };
        let scale = clamp_scale(SIGNIFICANT_DIGITS.max(base.scale.into()));
        let magnitude = power.unsigned_abs();
        if self.is_zero() {
            // Zero to a power is zero, and one to the power of none.
            let coefficient = if power == 0 { power_of_ten(scale) } else { BigInt::ZERO };
            return Self::from_big(coefficient, scale);
        }
        let leading = self.leading();
        let first = portable::log10(f64::from(leading.digit) * 10_000.0 + f64::from(leading.next));
        let estimate = f64::from(power) * (first + (leading.weight as f64 - 1.0) * 4.0);
        if estimate > MAX_WHOLE as f64 + 10.0 {
            return Err(overflow());
        }
        if estimate + 1.0 < -f64::from(scale) {
            return Self::from_big(BigInt::ZERO, scale);
        }
        let digits = digits_of(&base.coefficient) * u64::from(magnitude);
        if digits <= EXACT_DIGITS || power > 0 && base.scale == 0 && digits <= 2 * MAX_WHOLE {
            let exact = base.coefficient.pow(magnitude);
            effort(&exact, &exact)?;
            let places = base.scale * magnitude;
            if power >= 0 {
                return Self::from_big(place(exact, places, scale), scale);
            }
            return Self::from_big(divide_big(power_of_ten(places + scale), &exact), scale);
        }
        // By squares, of as many digits as count in the end.
        let working = scale + 40 + estimate.abs() as u32;
        let unit = power_of_ten(working);
        let mut square = place(base.coefficient, base.scale, working);
        if power < 0 {
            square = divide_big(&unit * &unit, &square);
        }
        let (mut rest, mut result) = (magnitude, unit.clone());
        while rest > 0 {
            effort(&square, &unit)?;
            if rest % 2 == 1 {
                result = divide_big(result * &square, &unit);
            }
            rest /= 2;
            if rest > 0 {
                square = divide_big(&square * &square, &unit);
            }
            if digits_of(&result) > MAX_WHOLE + u64::from(working) {
                return Err(overflow());
            }
        }
        Self::from_big(place(result, working, scale), scale)
    }
}
