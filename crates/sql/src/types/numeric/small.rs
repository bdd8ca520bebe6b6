//! Numbers of up to 38 digits: a coefficient of 128 bits and a scale.

use std::cmp::Ordering;

use num_bigint::BigInt;

/// A decimal number of up to [`Decimal::MAX_DIGITS`] digits.
#[derive(Clone, Copy)]
pub struct Decimal {
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
pub(super) const LIMIT: i128 = POWERS[38] - 1;

/// Divides and rounds to the nearest, ties away from zero.
pub(super) fn divide_rounding(number: i128, by: i128) -> i128 {
    let (quotient, rest) = (number / by, number % by);
    // |rest| < |by| <= 10^38: doubling does not overflow u128.
    if rest.unsigned_abs() * 2 >= by.unsigned_abs() {
        quotient + if (number < 0) == (by < 0) { 1 } else { -1 }
    } else {
        quotient
    }
}

impl Decimal {
    /// How many digits a number has at most, and how many of them behind the point.
    pub const MAX_DIGITS: u32 = 38;
    /// Zero, without a digit behind the point.
    pub const ZERO: Self = Self::make(0, 0);

    /// Both are known to be in range.
    pub(crate) const fn make(coefficient: i128, scale: u8) -> Self {
        Self { coefficient: coefficient.to_ne_bytes(), scale }
    }

    /// `coefficient` / 10^`scale`, if that has so few digits.
    #[inline]
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

    /// The same value with `scale` digits behind the point, rounded to the nearest, ties away from
    /// zero. Nothing when that has too many digits.
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

    /// Coefficients that stand for the two values at the same scale, or nothing when these are too
    /// large.
    #[inline]
    pub(super) fn aligned(self, other: Self) -> Option<(i128, i128, u8)> {
        let (one, two) = (self.coefficient(), other.coefficient());
        match self.scale.cmp(&other.scale) {
            Ordering::Equal => Some((one, two, self.scale)),
            Ordering::Less => Some((one.checked_mul(POWERS[usize::from(other.scale - self.scale)])?, two, other.scale)),
            Ordering::Greater => {
                Some((one, two.checked_mul(POWERS[usize::from(self.scale - other.scale)])?, self.scale))
            }
        }
    }

    /// The sum, if it has so few digits.
    #[inline]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let (one, two, scale) = self.aligned(other)?;
        Self::new(one.checked_add(two)?, scale.into())
    }

    /// The same with the other sign.
    #[inline]
    pub(super) fn neg(self) -> Self {
        Self::make(-self.coefficient(), self.scale)
    }

    #[inline]
    pub(super) fn compare(self, other: Self) -> Ordering {
        match self.aligned(other) {
            Some((one, two, _)) => one.cmp(&two),
            // What overflows when it gets the other's scale is further from zero than anything of
            // that scale.
            None if self.scale < other.scale => self.coefficient().cmp(&0),
            None => 0.cmp(&other.coefficient()),
        }
    }

    /// Rounds or cuts off, as `divide` does; nothing when the result has too many digits.
    pub(super) fn cut(self, digits: i32, divide: fn(i128, i128) -> i128) -> Option<Self> {
        if digits >= i32::from(self.scale) {
            return self.rescaled(digits as u32);
        }
        let dropped = (i64::from(self.scale) - i64::from(digits)) as usize;
        let cut = POWERS.get(dropped).map_or(0, |by| divide(self.coefficient(), *by));
        match u8::try_from(digits) {
            Ok(scale) => Some(Self::make(cut, scale)),
            Err(_) => match POWERS.get(digits.unsigned_abs() as usize) {
                Some(power) => Self::new(cut.checked_mul(*power)?, 0),
                None => (cut == 0).then_some(Self::ZERO),
            },
        }
    }

    pub(super) fn big(self) -> BigInt {
        BigInt::from(self.coefficient())
    }
}
