//! Sums, products and quotients, with the number of digits that PostgreSQL gives their results.

use num_bigint::BigInt;

use super::{Numeric, POWERS, divide_big, divide_rounding, overflow, series::power_of_ten};
use crate::{SqlError, SqlState};

/// A quotient has at least so many digits that count.
pub(super) const SIGNIFICANT_DIGITS: i64 = 16;
/// PostgreSQL computes with digits to the base of 10,000, and its choice of scales shows it.
const BASE_DIGITS: i64 = 4;

/// The error for a division by zero.
#[cold]
pub(crate) fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// How many digits behind the point a result gets that may have `scale` of them, be it negative or large.
pub(super) fn clamp_scale(scale: i64) -> u32 {
    // More than fit are computed, so that the rounding to what fits is the only one.
    scale.clamp(0, 2 * i64::from(Numeric::MAX_DIGITS)) as u32
}

#[expect(clippy::should_implement_trait, reason = "operators cannot fail, and SQL's arithmetic does")]
impl Numeric {
    /// The sum.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    #[inline]
    pub fn add(self, other: Self) -> Result<Self, SqlError> {
        if let Some((one, two, scale)) = self.aligned(other)
            && let Some(sum) = one.checked_add(two).and_then(|sum| Self::new(sum, scale.into()))
        {
            return Ok(sum);
        }
        let (one, two, scale) = self.aligned_big(other);
        Self::from_big(one + two, scale)
    }

    /// The difference.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    #[inline]
    pub fn sub(self, other: Self) -> Result<Self, SqlError> {
        self.add(other.neg())
    }

    /// The product.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    #[inline]
    pub fn mul(self, other: Self) -> Result<Self, SqlError> {
        let scale = self.scale() + other.scale();
        if let Some(product) =
            self.coefficient().checked_mul(other.coefficient()).and_then(|product| Self::new(product, scale))
        {
            return Ok(product);
        }
        Self::from_big(self.big() * other.big(), scale)
    }

    /// The quotient.
    ///
    /// # Errors
    /// 22012 when the divisor is zero, 22003 when the quotient has too many digits.
    pub fn div(self, other: Self) -> Result<Self, SqlError> {
        if other.is_zero() {
            return Err(division_by_zero());
        }
        let (one, two) = (self.leading(), other.leading());
        let weight = one.weight - two.weight - i64::from(one.digit <= two.digit);
        let scale = (SIGNIFICANT_DIGITS - weight * BASE_DIGITS).max(self.scale().max(other.scale()).into());
        let scale = clamp_scale(scale);
        // The dividend's digits are moved so that the quotient of the coefficients has the scale.
        let shift = scale + other.scale() - self.scale();
        if let Some(dividend) = POWERS.get(shift as usize).and_then(|power| self.coefficient().checked_mul(*power))
            && let Some(quotient) = Self::new(divide_rounding(dividend, other.coefficient()), scale)
        {
            return Ok(quotient);
        }
        Self::from_big(divide_big(self.big() * power_of_ten(shift), &other.big()), scale)
    }

    /// The quotient cut off at the point.
    ///
    /// # Errors
    /// 22012 when the divisor is zero, 22003 when the quotient has too many digits.
    pub fn div_trunc(self, other: Self) -> Result<Self, SqlError> {
        if other.is_zero() {
            return Err(division_by_zero());
        }
        let (one, two, _) = self.aligned_big(other);
        Self::from_big(one / two, 0)
    }

    /// What a division leaves, with the dividend's sign.
    ///
    /// # Errors
    /// 22012 when the divisor is zero.
    pub fn rem(self, other: Self) -> Result<Self, SqlError> {
        if other.is_zero() {
            return Err(division_by_zero());
        }
        if let Some((one, two, scale)) = self.aligned(other) {
            return Self::new(one % two, scale.into()).ok_or_else(overflow);
        }
        let (one, two, scale) = self.aligned_big(other);
        Self::from_big(one % two, scale)
    }

    /// The greatest common divisor: the largest number of which both are whole multiples.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    pub fn gcd(self, other: Self) -> Result<Self, SqlError> {
        let (one, two, scale) = self.aligned_big(other);
        Self::from_big(greatest_divisor(one, two), scale)
    }

    /// The least common multiple: the smallest number above zero that is a whole multiple of both.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    pub fn lcm(self, other: Self) -> Result<Self, SqlError> {
        let (one, two, scale) = self.aligned_big(other);
        if one == BigInt::ZERO || two == BigInt::ZERO {
            return Self::from_big(BigInt::ZERO, scale);
        }
        let divisor = greatest_divisor(one.clone(), two.clone());
        let product: BigInt = one / divisor * two;
        Self::from_big(product.magnitude().clone().into(), scale)
    }

    /// The same with the other sign.
    #[inline]
    #[must_use]
    pub fn neg(self) -> Self {
        Self::make(-self.coefficient(), self.scale)
    }

    /// Without its sign.
    #[must_use]
    pub fn abs(self) -> Self {
        Self::make(self.coefficient().abs(), self.scale)
    }

    /// -1, 0 or 1.
    #[must_use]
    pub fn signum(self) -> Self {
        Self::make(self.coefficient().signum(), 0)
    }

    /// Rounded to the nearest with so many digits behind the point; before the point when negative. Ties go away
    /// from zero.
    ///
    /// # Errors
    /// 22003 when the result has too many digits.
    pub fn round(self, digits: i32) -> Result<Self, SqlError> {
        self.cut(digits, divide_rounding)
    }

    /// Cut off behind so many digits behind the point; before the point when negative.
    ///
    /// # Errors
    /// 22003 when the result has too many digits.
    pub fn trunc(self, digits: i32) -> Result<Self, SqlError> {
        self.cut(digits, |number, by| number / by)
    }

    /// The largest whole number that is not larger.
    ///
    /// # Errors
    /// 22003 when the result has too many digits.
    pub fn floor(self) -> Result<Self, SqlError> {
        self.cut(0, i128::div_euclid)
    }

    /// The smallest whole number that is not smaller.
    ///
    /// # Errors
    /// 22003 when the result has too many digits.
    pub fn ceil(self) -> Result<Self, SqlError> {
        Ok(self.neg().floor()?.neg())
    }

    fn cut(self, digits: i32, divide: fn(i128, i128) -> i128) -> Result<Self, SqlError> {
        if digits >= i32::from(self.scale) {
            // As many zeros as there is room for.
            let digits = digits.min(Self::MAX_DIGITS as i32) as u32;
            return Ok((self.scale()..=digits).rev().find_map(|scale| self.rescaled(scale)).unwrap_or(self));
        }
        let dropped = (i64::from(self.scale) - i64::from(digits)) as usize;
        let cut = POWERS.get(dropped).map_or(0, |by| divide(self.coefficient(), *by));
        match u8::try_from(digits) {
            Ok(scale) => Ok(Self::make(cut, scale)),
            Err(_) => POWERS
                .get(digits.unsigned_abs() as usize)
                .and_then(|power| cut.checked_mul(*power))
                .or((cut == 0).then_some(0))
                .and_then(|coefficient| Self::new(coefficient, 0))
                .ok_or_else(overflow),
        }
    }

    /// Both coefficients at the same scale.
    fn aligned_big(self, other: Self) -> (BigInt, BigInt, u32) {
        let scale = self.scale().max(other.scale());
        let at = |number: Self| number.big() * power_of_ten(scale - number.scale());
        (at(self), at(other), scale)
    }

    /// The decimal exponent of its first digit that is not zero.
    pub(super) fn exponent(self) -> i64 {
        match self.coefficient().unsigned_abs() {
            0 => 0,
            magnitude => i64::from(magnitude.ilog10()) - i64::from(self.scale),
        }
    }

    /// Its first digit to the base of 10,000.
    pub(super) fn leading(self) -> Leading {
        let magnitude = self.coefficient().unsigned_abs();
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

/// The first digits of a number to the base of 10,000.
pub(super) struct Leading {
    pub digit: u32,
    pub next: u32,
    /// The power of 10,000 that the first digit counts.
    pub weight: i64,
}

fn greatest_divisor(mut one: BigInt, mut two: BigInt) -> BigInt {
    while two != BigInt::ZERO {
        let rest = &one % &two;
        one = two;
        two = rest;
    }
    one.magnitude().clone().into()
}
