//! Sums, products and quotients, with the number of digits that PostgreSQL gives their results.

use num_bigint::{BigInt, Sign};

use super::{
    Big, Decimal, MAX_RESULT_SCALE, Numeric, POWERS, Special, divide_big, divide_rounding, series::power_of_ten, sort,
};
use crate::{SqlError, SqlState, work};

/// A quotient has at least this many digits that count.
pub(super) const SIGNIFICANT_DIGITS: i64 = 16;
/// PostgreSQL computes with digits to the base of 10,000, and its choice of scales shows it.
const BASE_DIGITS: i64 = 4;

/// The error for a division by zero.
#[cold]
pub(crate) fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// How many digits behind the point a result gets that may have `scale` of them, be it negative or
/// large.
pub(super) fn clamp_scale(scale: i64) -> u32 {
    scale.clamp(0, MAX_RESULT_SCALE) as u32
}

/// Two numbers, if both are finite; or one of them and its sign, and the other's sign.
type Both = Result<(Big, Big), (Option<Special>, Option<Special>)>;

fn both(one: &Numeric, two: &Numeric) -> Both {
    match (one.big(), two.big()) {
        (Ok(one), Ok(two)) => Ok((one, two)),
        (one, two) => Err((one.err(), two.err())),
    }
}

/// Both coefficients at the same scale.
fn aligned(one: Big, two: Big) -> (BigInt, BigInt, u32) {
    let scale = one.scale.max(two.scale);
    (one.at_scale(scale).coefficient, two.at_scale(scale).coefficient, scale)
}

const fn infinity(negative: bool) -> Special {
    if negative { Special::MinusInfinity } else { Special::Infinity }
}

impl Special {
    /// The same with the other sign.
    pub(super) const fn neg(self) -> Self {
        match self {
            Self::NaN => Self::NaN,
            Self::Infinity => Self::MinusInfinity,
            Self::MinusInfinity => Self::Infinity,
        }
    }
}

impl Numeric {
    /// The sum.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    #[inline]
    pub fn add(&self, other: &Self) -> Result<Self, SqlError> {
        if let (Self::Small(one), Self::Small(two)) = (self, other)
            && let Some(sum) = one.checked_add(*two)
        {
            return Ok(Self::Small(sum));
        }
        self.add_slowly(other)
    }

    #[cold]
    fn add_slowly(&self, other: &Self) -> Result<Self, SqlError> {
        match both(self, other) {
            Ok((one, two)) => {
                let (one, two, scale) = aligned(one, two);
                Self::from_big(one + two, scale)
            }
            Err((Some(one), Some(two))) if one != two => Ok(Self::nan()),
            Err((Some(special), _) | (_, Some(special))) => Ok(Self::special(special)),
            Err((None, None)) => Ok(Self::nan()),
        }
    }

    /// The difference.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    #[inline]
    pub fn sub(&self, other: &Self) -> Result<Self, SqlError> {
        if let (Self::Small(one), Self::Small(two)) = (self, other)
            && let Some(sum) = one.checked_add(two.neg())
        {
            return Ok(Self::Small(sum));
        }
        self.add_slowly(&other.neg())
    }

    /// The product.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    #[inline]
    pub fn mul(&self, other: &Self) -> Result<Self, SqlError> {
        if let (Self::Small(one), Self::Small(two)) = (self, other)
            && let Some(product) = one.coefficient().checked_mul(two.coefficient())
            && let Some(product) = Decimal::new(product, one.scale() + two.scale())
        {
            return Ok(Self::Small(product));
        }
        match both(self, other) {
            Ok((one, two)) => Self::from_big(one.coefficient * two.coefficient, one.scale + two.scale),
            Err((Some(Special::NaN), _) | (_, Some(Special::NaN))) => Ok(Self::nan()),
            Err(_) if self.is_zero() || other.is_zero() => Ok(Self::nan()),
            Err(_) => Ok(Self::special(infinity(self.is_negative() != other.is_negative()))),
        }
    }

    /// A quotient in which one side is not finite.
    fn div_special(&self, other: &Self) -> Result<Self, SqlError> {
        match (self.as_special(), other.as_special()) {
            (Some(Special::NaN), _) | (_, Some(Special::NaN)) | (Some(_), Some(_)) => Ok(Self::nan()),
            (Some(_), None) if other.is_zero() => Err(division_by_zero()),
            (Some(_), None) => Ok(Self::special(infinity(self.is_negative() != other.is_negative()))),
            // By something infinite.
            (None, _) => Ok(Self::ZERO),
        }
    }

    /// The quotient.
    ///
    /// # Errors
    /// 22012 when the divisor is zero, 22003 when the quotient has too many digits.
    pub fn div(&self, other: &Self) -> Result<Self, SqlError> {
        if self.as_special().is_some() || other.as_special().is_some() {
            return self.div_special(other);
        }
        if other.is_zero() {
            return Err(division_by_zero());
        }
        let (one, two) = (self.leading(), other.leading());
        let weight = one.weight - two.weight - i64::from(one.digit <= two.digit);
        let scale = (SIGNIFICANT_DIGITS - weight * BASE_DIGITS).max(self.scale().max(other.scale()).into());
        let scale = clamp_scale(scale);
        // The dividend's digits are moved so that the quotient of the coefficients has the scale.
        let shift = i64::from(scale) + i64::from(other.scale()) - i64::from(self.scale());
        if let (Self::Small(dividend), Self::Small(divisor)) = (self, other)
            && let Some(power) = usize::try_from(shift).ok().and_then(|shift| POWERS.get(shift))
            && let Some(dividend) = dividend.coefficient().checked_mul(*power)
            && let Some(quotient) = Self::new(divide_rounding(dividend, divisor.coefficient()), scale)
        {
            return Ok(quotient);
        }
        let Ok((one, two)) = both(self, other) else { return self.div_special(other) };
        let quotient = match u32::try_from(shift) {
            Ok(shift) => divide_big(one.coefficient * power_of_ten(shift), &two.coefficient),
            Err(_) => divide_big(one.coefficient, &(two.coefficient * power_of_ten(shift.unsigned_abs() as u32))),
        };
        Self::from_big(quotient, scale)
    }

    /// The quotient cut off at the point.
    ///
    /// # Errors
    /// 22012 when the divisor is zero, 22003 when the quotient has too many digits.
    pub fn div_trunc(&self, other: &Self) -> Result<Self, SqlError> {
        let Ok((one, two)) = both(self, other) else { return self.div_special(other) };
        if other.is_zero() {
            return Err(division_by_zero());
        }
        let (one, two, _) = aligned(one, two);
        Self::from_big(one / two, 0)
    }

    /// What a division leaves, with the dividend's sign.
    ///
    /// # Errors
    /// 22012 when the divisor is zero.
    pub fn rem(&self, other: &Self) -> Result<Self, SqlError> {
        if let (Self::Small(one), Self::Small(two)) = (self, other)
            && two.coefficient() != 0
            && let Some((one, two, scale)) = one.aligned(*two)
            && let Some(rest) = Self::new(one % two, scale.into())
        {
            return Ok(rest);
        }
        match both(self, other) {
            Ok(_) if other.is_zero() => Err(division_by_zero()),
            Ok((one, two)) => {
                let (one, two, scale) = aligned(one, two);
                Self::from_big(one % two, scale)
            }
            Err((Some(Special::NaN), _) | (_, Some(Special::NaN))) => Ok(Self::nan()),
            Err((Some(_), None)) if other.is_zero() => Err(division_by_zero()),
            Err((Some(_), _)) => Ok(Self::nan()),
            Err((None, _)) => Ok(self.clone()),
        }
    }

    /// The greatest common divisor: the largest number that divides both.
    ///
    /// # Errors
    /// 22003 when it has too many digits; those of [`work::done`].
    pub fn gcd(&self, other: &Self) -> Result<Self, SqlError> {
        let Ok((one, two)) = both(self, other) else { return Ok(Self::nan()) };
        let (one, two, scale) = aligned(one, two);
        Self::from_big(greatest_divisor(one, two)?, scale)
    }

    /// The least common multiple: the smallest number above zero that is a whole multiple of both.
    ///
    /// # Errors
    /// As for [`Numeric::gcd`].
    pub fn lcm(&self, other: &Self) -> Result<Self, SqlError> {
        let Ok((one, two)) = both(self, other) else { return Ok(Self::nan()) };
        let (one, two, scale) = aligned(one, two);
        if one == BigInt::ZERO || two == BigInt::ZERO {
            return Self::from_big(BigInt::ZERO, scale);
        }
        let divisor = greatest_divisor(one.clone(), two.clone())?;
        let product: BigInt = one / divisor * two;
        Self::from_big(product.magnitude().clone().into(), scale)
    }

    /// The same with the other sign.
    #[must_use]
    pub fn neg(&self) -> Self {
        match self {
            Self::Small(number) => Self::Small(number.neg()),
            Self::Wide(_) => match self.big() {
                Ok(number) => Self::from_big(-number.coefficient, number.scale).unwrap_or_else(|_| self.clone()),
                Err(special) => Self::special(special.neg()),
            },
        }
    }

    /// The number without its sign.
    #[must_use]
    pub fn abs(&self) -> Self {
        if self.is_negative() { self.neg() } else { self.clone() }
    }

    /// -1, 0 or 1; NaN of NaN.
    #[must_use]
    pub fn signum(&self) -> Self {
        match (self.sign(), self.as_special()) {
            (_, Some(Special::NaN)) => Self::nan(),
            (Sign::Minus, _) => Self::make(-1, 0),
            (Sign::NoSign, _) => Self::ZERO,
            (Sign::Plus, _) => Self::ONE,
        }
    }

    /// Rounded to the nearest with this many digits behind the point; before the point when
    /// negative. Ties go away from zero.
    ///
    /// # Errors
    /// 22003 when the result has too many digits.
    pub fn round(&self, digits: i32) -> Result<Self, SqlError> {
        self.cut(digits, divide_rounding, divide_big)
    }

    /// Cut off behind this many digits behind the point; before the point when negative.
    ///
    /// # Errors
    /// 22003 when the result has too many digits.
    pub fn trunc(&self, digits: i32) -> Result<Self, SqlError> {
        self.cut(digits, |number, by| number / by, |number, by| number / by)
    }

    /// The largest whole number that is not larger.
    ///
    /// # Errors
    /// 22003 when the result has too many digits.
    pub fn floor(&self) -> Result<Self, SqlError> {
        self.cut(0, i128::div_euclid, |number, by| {
            let floor = &number / by;
            if number.sign() == Sign::Minus && &floor * by != number { floor - 1 } else { floor }
        })
    }

    /// The smallest whole number that is not smaller.
    ///
    /// # Errors
    /// 22003 when the result has too many digits.
    pub fn ceil(&self) -> Result<Self, SqlError> {
        Ok(self.neg().floor()?.neg())
    }

    fn cut(
        &self,
        digits: i32,
        divide: fn(i128, i128) -> i128,
        divide_long: fn(BigInt, &BigInt) -> BigInt,
    ) -> Result<Self, SqlError> {
        // PostgreSQL takes no more.
        let digits = digits.clamp(-2000, 2000);
        if let Self::Small(number) = self
            && let Some(cut) = number.cut(digits, divide)
        {
            return Ok(Self::Small(cut));
        }
        let Ok(number) = self.big() else { return Ok(self.clone()) };
        let dropped = i64::from(number.scale) - i64::from(digits);
        let Ok(dropped) = u32::try_from(dropped) else {
            let number = number.at_scale(digits.unsigned_abs());
            return Self::from_big(number.coefficient, number.scale);
        };
        let cut = divide_long(number.coefficient, &power_of_ten(dropped));
        match u32::try_from(digits) {
            Ok(scale) => Self::from_big(cut, scale),
            Err(_) => Self::from_big(cut * power_of_ten(digits.unsigned_abs()), 0),
        }
    }

    /// The decimal exponent of its first digit that is not zero.
    pub(crate) fn exponent(&self) -> i64 {
        match self {
            Self::Small(number) => match number.coefficient().unsigned_abs() {
                0 => 0,
                magnitude => i64::from(magnitude.ilog10()) - i64::from(number.scale()),
            },
            Self::Wide(bytes) => match sort::decoded(super::scaled(bytes).0) {
                Some(sort::Decoded::Number(_, exponent, pairs)) => {
                    2 * i64::from(exponent) - if pairs.at(0) >= 10 { 1 } else { 2 }
                }
                _ => 0,
            },
        }
    }

    /// Its first digit to the base of 10,000.
    pub(super) fn leading(&self) -> Leading {
        let magnitude = match self {
            Self::Small(number) => number.coefficient().unsigned_abs(),
            Self::Wide(bytes) => match sort::decoded(super::scaled(bytes).0) {
                // More digits than are looked at.
                Some(sort::Decoded::Number(_, _, pairs)) => {
                    (0..8).fold(0, |sum, place| sum * 100 + u128::from(pairs.at(place)))
                }
                _ => 0,
            },
        };
        if magnitude == 0 {
            return Leading { digit: 0, next: 0, weight: 0 };
        }
        let exponent = self.exponent();
        let (weight, places) = (exponent.div_euclid(BASE_DIGITS), exponent.rem_euclid(BASE_DIGITS));
        // The first digit and the four decimal ones that follow it.
        let wanted = places + 1 + BASE_DIGITS;
        let have = i64::from(magnitude.ilog10()) + 1;
        let both = if have >= wanted {
            magnitude / POWERS[(have - wanted) as usize].unsigned_abs()
        } else {
            magnitude * POWERS[(wanted - have) as usize].unsigned_abs()
        };
        Leading { digit: (both / 10_000) as u32, next: (both % 10_000) as u32, weight }
    }
}

/// Counts a computation with two numbers, each of whose parts may be multiplied with each.
pub(super) fn effort(one: &BigInt, two: &BigInt) -> Result<(), SqlError> {
    let parts = |number: &BigInt| number.bits() as usize / 64 + 1;
    work::done(parts(one).saturating_mul(parts(two)) / 16)
}

/// The first digits of a number to the base of 10,000.
pub(super) struct Leading {
    pub digit: u32,
    pub next: u32,
    /// The power of 10,000 that the first digit counts.
    pub weight: i64,
}

fn greatest_divisor(mut one: BigInt, mut two: BigInt) -> Result<BigInt, SqlError> {
    while two != BigInt::ZERO {
        effort(&one, &two)?;
        let rest = &one % &two;
        one = two;
        two = rest;
    }
    Ok(one.magnitude().clone().into())
}
