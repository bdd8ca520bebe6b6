//! Exact decimal numbers of up to 38 digits.
//!
//! A number is a coefficient of 128 bits and a scale: how many of its digits stand behind the point. Numbers that are
//! equal may print differently: 1.0 and 1.00. What needs more than [`Numeric::MAX_DIGITS`] digits is an error
//! (22003) in input and where it stands before the point; a result's digits behind the point are rounded to what
//! fits. There is no NaN and no infinity.

mod arithmetic;
mod convert;
mod series;
mod text;

use std::{cmp::Ordering, fmt, hash};

pub(crate) use arithmetic::division_by_zero;
use num_bigint::BigInt;

use super::Precision;
use crate::{SqlError, SqlState};

/// A decimal number.
#[derive(Clone, Copy)]
pub struct Numeric {
    /// Bytes, so that a value of any type fits in three words.
    coefficient: [u8; 16],
    scale: u8,
}

/// 10 to the power of the index.
pub(crate) const POWERS: [i128; 39] = {
    let mut powers = [1; 39];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// The largest coefficient.
const LIMIT: i128 = POWERS[38] - 1;

/// Divides and rounds to the nearest, ties away from zero.
fn divide_rounding(number: i128, by: i128) -> i128 {
    let (quotient, rest) = (number / by, number % by);
    // |rest| < |by| <= 10^38: doubling does not overflow u128.
    if rest.unsigned_abs() * 2 >= by.unsigned_abs() {
        quotient + if (number < 0) == (by < 0) { 1 } else { -1 }
    } else {
        quotient
    }
}

fn overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

impl Numeric {
    /// How many digits a number has at most.
    pub const MAX_DIGITS: u32 = 38;
    /// Zero, without a digit behind the point.
    pub const ZERO: Self = Self::make(0, 0);
    /// One, without a digit behind the point.
    pub const ONE: Self = Self::make(1, 0);

    /// Both are known to be in range.
    pub(crate) const fn make(coefficient: i128, scale: u8) -> Self {
        Self { coefficient: coefficient.to_ne_bytes(), scale }
    }

    /// `coefficient` / 10^`scale`, if that is a number here.
    pub const fn new(coefficient: i128, scale: u32) -> Option<Self> {
        if coefficient > LIMIT || coefficient < -LIMIT || scale > Self::MAX_DIGITS {
            return None;
        }
        Some(Self::make(coefficient, scale as u8))
    }

    /// All digits, as a whole number.
    #[inline]
    pub const fn coefficient(self) -> i128 {
        i128::from_ne_bytes(self.coefficient)
    }

    /// How many digits stand behind the point.
    #[inline]
    pub const fn scale(self) -> u32 {
        self.scale as u32
    }

    /// Whether it is zero.
    pub const fn is_zero(self) -> bool {
        self.coefficient() == 0
    }

    /// The same value with `scale` digits behind the point, rounded to the nearest, ties away from zero. Nothing
    /// when that has too many digits.
    pub fn rescaled(self, scale: u32) -> Option<Self> {
        let coefficient = self.coefficient();
        match scale.cmp(&self.scale()) {
            Ordering::Equal => Some(self),
            Ordering::Less => {
                let by = POWERS[(self.scale() - scale) as usize];
                Some(Self::make(divide_rounding(coefficient, by), scale as u8))
            }
            Ordering::Greater => {
                let by = *POWERS.get((scale - self.scale()) as usize)?;
                Self::new(coefficient.checked_mul(by)?, scale)
            }
        }
    }

    /// The value as a `numeric(p,s)` holds it.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    pub fn constrained(self, to: Precision) -> Result<Self, SqlError> {
        let limit = POWERS[usize::from(to.digits.min(38))];
        match self.rescaled(to.scale.into()) {
            Some(number) if number.coefficient().abs() < limit => Ok(number),
            _ => {
                let Precision { digits, scale } = to;
                let whole = i32::from(digits) - i32::from(scale);
                let bound = if whole == 0 { "1".to_owned() } else { format!("10^{whole}") };
                Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(format!(
                    "A field with precision {digits}, scale {scale} must round to an absolute value less than {bound}."
                )))
            }
        }
    }

    /// Without zeros at its end behind the point.
    pub fn trimmed(self) -> Self {
        let (mut coefficient, mut scale) = (self.coefficient(), self.scale);
        if coefficient == 0 {
            return Self::ZERO;
        }
        while scale > 0 {
            // Numbers of the usual size are divided by the hardware.
            match i64::try_from(coefficient) {
                Ok(small) if small % 10 == 0 => coefficient = (small / 10).into(),
                Err(_) if coefficient % 10 == 0 => coefficient /= 10,
                _ => break,
            }
            scale -= 1;
        }
        Self::make(coefficient, scale)
    }

    /// Coefficients that stand for the two values at the same scale, or nothing when these are too large.
    fn aligned(self, other: Self) -> Option<(i128, i128, u8)> {
        let (one, two) = (self.coefficient(), other.coefficient());
        match self.scale.cmp(&other.scale) {
            Ordering::Equal => Some((one, two, self.scale)),
            Ordering::Less => Some((one.checked_mul(POWERS[usize::from(other.scale - self.scale)])?, two, other.scale)),
            Ordering::Greater => {
                Some((one, two.checked_mul(POWERS[usize::from(self.scale - other.scale)])?, self.scale))
            }
        }
    }

    fn big(self) -> BigInt {
        BigInt::from(self.coefficient())
    }

    /// The nearest number to `coefficient` / 10^`scale` that is not longer than numbers may be.
    fn from_big(coefficient: BigInt, scale: u32) -> Result<Self, SqlError> {
        // One more may be needed when rounding makes 100 of 99.6.
        let mut excess = scale.saturating_sub(Self::MAX_DIGITS);
        for _ in 0..3 {
            let Some(scale) = scale.checked_sub(excess) else { break };
            let rounded = divide_big(coefficient.clone(), &series::power_of_ten(excess));
            if let Some(number) = i128::try_from(&rounded).ok().and_then(|rounded| Self::new(rounded, scale)) {
                return Ok(number);
            }
            let digits = rounded.magnitude().to_string().len() as u32;
            excess += digits.saturating_sub(Self::MAX_DIGITS).max(1);
        }
        Err(overflow())
    }
}

/// Divides and rounds to the nearest, ties away from zero.
fn divide_big(number: BigInt, by: &BigInt) -> BigInt {
    let (quotient, rest) = (&number / by, &number % by);
    if rest.magnitude() * 2u8 >= *by.magnitude() {
        if number.sign() == by.sign() { quotient + 1 } else { quotient - 1 }
    } else {
        quotient
    }
}

impl From<i64> for Numeric {
    fn from(number: i64) -> Self {
        Self::make(number.into(), 0)
    }
}

impl From<i32> for Numeric {
    fn from(number: i32) -> Self {
        Self::make(number.into(), 0)
    }
}

impl From<i16> for Numeric {
    fn from(number: i16) -> Self {
        Self::make(number.into(), 0)
    }
}

impl PartialEq for Numeric {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeric {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match self.aligned(*other) {
            Some((one, two, _)) => one.cmp(&two),
            // What overflows when it gets the other's scale is further from zero than anything of that scale.
            None if self.scale < other.scale => self.coefficient().cmp(&0),
            None => 0.cmp(&other.coefficient()),
        }
    }
}

impl hash::Hash for Numeric {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        let trimmed = self.trimmed();
        state.write_i128(trimmed.coefficient());
        state.write_u8(trimmed.scale);
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}

impl fmt::Debug for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
