//! Exact decimal numbers, with NaN and the infinities.
//!
//! A number has a scale: how many of its digits stand behind the point. Numbers that are equal may
//! print differently: 1.0 and 1.00. Up to [`Decimal::MAX_DIGITS`] digits, a number is a coefficient
//! of 128 bits; what is longer, up to 131,072 digits before the point and 16,383 behind it, is
//! bytes (see [`sort`]), and so is what is no finite number. Each has one form only: what can be
//! short is.

mod arithmetic;
mod convert;
mod series;
mod small;
mod sort;
mod text;

use std::{cmp::Ordering, fmt, hash, sync::Arc};

pub(crate) use arithmetic::division_by_zero;
use arithmetic::effort;
use num_bigint::{BigInt, Sign};
pub use small::Decimal;
pub(crate) use small::POWERS;
use small::divide_rounding;
pub(crate) use sort::NAN_BYTES;
pub use sort::SortBytes;
pub(crate) use sort::read as read_sorted;

use super::Precision;
use crate::{SqlError, SqlState};

/// A decimal number.
#[derive(Clone)]
pub enum Numeric {
    /// Of up to 38 digits.
    Small(Decimal),
    /// Any other: its sort bytes, and its scale in two bytes, big-endian.
    Wide(Arc<[u8]>),
}

/// A decimal number that lies somewhere else.
#[derive(Clone, Copy)]
pub enum NumericRef<'a> {
    /// Of up to 38 digits.
    Small(Decimal),
    /// Any other, as in a [`Numeric`].
    Wide(&'a [u8]),
}

/// What is no finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// NaN, which equals itself and sorts above all others.
    NaN,
    /// Larger than all numbers.
    Infinity,
    /// Less than all numbers.
    MinusInfinity,
}

/// A finite number of any size: coefficient and scale.
#[derive(Clone, Debug)]
pub(crate) struct Big {
    pub coefficient: BigInt,
    pub scale: u32,
}

/// Digits before the point, at most.
const MAX_WHOLE: u64 = 131_072;
/// Digits behind the point, at most.
pub(crate) const MAX_SCALE: u32 = 16_383;
/// As many digits behind the point as a function gives its result, at most.
const MAX_RESULT_SCALE: i64 = 1000;

fn overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

/// About how many decimal digits a number has: as many, or one more.
fn digits_of(number: &BigInt) -> u64 {
    (number.bits() as f64 * std::f64::consts::LOG10_2) as u64 + 1
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

impl Big {
    /// The same with this scale, rounded if need be.
    fn at_scale(self, scale: u32) -> Self {
        let coefficient = match scale.cmp(&self.scale) {
            Ordering::Equal => self.coefficient,
            Ordering::Less => divide_big(self.coefficient, &series::power_of_ten(self.scale - scale)),
            Ordering::Greater => self.coefficient * series::power_of_ten(scale - self.scale),
        };
        Self { coefficient, scale }
    }
}

impl Numeric {
    /// Zero, without a digit behind the point.
    pub const ZERO: Self = Self::make(0, 0);
    /// One, without a digit behind the point.
    pub const ONE: Self = Self::make(1, 0);
    /// How many digits numbers of the short form have at most.
    pub const MAX_DIGITS: u32 = Decimal::MAX_DIGITS;

    /// Both are known to be in range.
    pub(crate) const fn make(coefficient: i128, scale: u8) -> Self {
        Self::Small(Decimal::make(coefficient, scale))
    }

    /// `coefficient` / 10^`scale`, if that has up to 38 digits.
    #[inline]
    pub const fn new(coefficient: i128, scale: u32) -> Option<Self> {
        match Decimal::new(coefficient, scale) {
            Some(number) => Some(Self::Small(number)),
            None => None,
        }
    }

    /// The number that is none, or an infinity.
    pub fn special(special: Special) -> Self {
        let mut bytes = sort::of_special(special).to_vec();
        bytes.extend([0, 0]);
        Self::Wide(bytes.into())
    }

    /// The value NaN.
    pub fn nan() -> Self {
        Self::special(Special::NaN)
    }

    /// The same number, where it lies.
    #[inline]
    pub fn as_ref(&self) -> NumericRef<'_> {
        match self {
            Self::Small(number) => NumericRef::Small(*number),
            Self::Wide(bytes) => NumericRef::Wide(bytes),
        }
    }

    /// The number, if it has up to 38 digits.
    #[inline]
    pub fn small(&self) -> Option<Decimal> {
        match self {
            Self::Small(number) => Some(*number),
            Self::Wide(_) => None,
        }
    }

    /// The infinity or NaN that it is, if it is one.
    pub fn as_special(&self) -> Option<Special> {
        self.as_ref().as_special()
    }

    /// How many digits stand behind the point.
    #[inline]
    pub fn scale(&self) -> u32 {
        self.as_ref().scale()
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.sign() == Sign::NoSign && self.as_special().is_none()
    }

    /// Its sign; NaN has none.
    pub(crate) fn sign(&self) -> Sign {
        match self {
            Self::Small(number) => match number.coefficient() {
                0 => Sign::NoSign,
                ..0 => Sign::Minus,
                _ => Sign::Plus,
            },
            Self::Wide(bytes) => match sort::decoded(scaled(bytes).0) {
                Some(sort::Decoded::Special(Special::Infinity) | sort::Decoded::Number(false, ..)) => Sign::Plus,
                Some(sort::Decoded::Special(Special::MinusInfinity) | sort::Decoded::Number(true, ..)) => Sign::Minus,
                _ => Sign::NoSign,
            },
        }
    }

    /// Whether it is less than zero.
    pub fn is_negative(&self) -> bool {
        self.sign() == Sign::Minus
    }

    /// It as a finite number, or what it is instead.
    pub(crate) fn big(&self) -> Result<Big, Special> {
        match self {
            Self::Small(number) => Ok(Big { coefficient: number.big(), scale: number.scale() }),
            Self::Wide(bytes) => {
                let (bytes, scale) = scaled(bytes);
                sort::big(bytes, scale)
            }
        }
    }

    /// `coefficient` / 10^`scale`; more digits behind the point than there can be are rounded.
    ///
    /// # Errors
    /// 22003 when it has too many digits; those of [`work::done`](crate::work::done).
    pub(crate) fn from_big(coefficient: BigInt, scale: u32) -> Result<Self, SqlError> {
        if scale <= Decimal::MAX_DIGITS
            && let Ok(small) = i128::try_from(&coefficient)
            && let Some(number) = Self::new(small, scale)
        {
            return Ok(number);
        }
        // It was computed, and its digits are found.
        effort(&coefficient, &coefficient)?;
        let number = Big { coefficient, scale }.at_scale(scale.min(MAX_SCALE));
        if digits_of(&number.coefficient) > MAX_WHOLE + u64::from(number.scale)
            && *number.coefficient.magnitude() >= *series::power_of_ten(MAX_WHOLE as u32 + number.scale).magnitude()
        {
            return Err(overflow());
        }
        let mut bytes = sort::of_big(&number);
        bytes.extend((number.scale as u16).to_be_bytes());
        Ok(Self::Wide(bytes.into()))
    }

    /// The same value with `scale` digits behind the point, rounded to the nearest, ties away from
    /// zero. Nothing when it is no finite number, or that has too many digits.
    pub fn rescaled(&self, scale: u32) -> Option<Self> {
        if let Self::Small(number) = self
            && let Some(number) = number.rescaled(scale)
        {
            return Some(Self::Small(number));
        }
        let number = self.big().ok()?.at_scale(scale.min(MAX_SCALE));
        Self::from_big(number.coefficient, number.scale).ok()
    }

    /// The value as a `numeric(p,s)` holds it.
    ///
    /// # Errors
    /// 22003 when it has too many digits, or is infinite.
    pub fn constrained(&self, to: Precision) -> Result<Self, SqlError> {
        if let Self::Small(number) = self
            && let Ok(scale) = u32::try_from(to.scale)
            && scale <= Decimal::MAX_DIGITS
            && u32::from(to.digits) <= Decimal::MAX_DIGITS
            && let Some(number) = number.rescaled(scale)
            && number.coefficient().unsigned_abs() < POWERS[usize::from(to.digits)].unsigned_abs()
        {
            return Ok(Self::Small(number));
        }
        self.constrained_slowly(to)
    }

    fn constrained_slowly(&self, to: Precision) -> Result<Self, SqlError> {
        let Precision { digits, scale } = to;
        let error = |detail: String| {
            Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(detail))
        };
        let number = match self.big() {
            Ok(number) => number,
            Err(Special::NaN) => return Ok(self.clone()),
            Err(_) => {
                return error(format!("A field with precision {digits}, scale {scale} cannot hold an infinite value."));
            }
        };
        let whole = i64::from(digits) - i64::from(scale);
        let too_large = || {
            let bound = if whole == 0 { "1".to_owned() } else { format!("10^{whole}") };
            error(format!(
                "A field with precision {digits}, scale {scale} must round to an absolute value less than {bound}."
            ))
        };
        // What the type has at most, as a whole number of the last digit that it keeps.
        let limit = series::power_of_ten(digits.into());
        let rounded = match u32::try_from(scale) {
            Ok(scale) => number.at_scale(scale).coefficient,
            Err(_) => divide_big(number.coefficient, &series::power_of_ten(number.scale + scale.unsigned_abs() as u32)),
        };
        if rounded.magnitude() >= limit.magnitude() {
            return too_large();
        }
        match u32::try_from(scale) {
            Ok(scale) => Self::from_big(rounded, scale),
            Err(_) => Self::from_big(rounded * series::power_of_ten(scale.unsigned_abs().into()), 0),
        }
    }

    /// Without zeros at its end behind the point.
    pub fn trimmed(&self) -> Self {
        match self {
            Self::Small(number) => Self::Small(number.trimmed()),
            Self::Wide(_) => self.rescaled(self.min_scale()).unwrap_or_else(|| self.clone()),
        }
    }

    /// The digits behind the point that are needed to tell its value.
    pub fn min_scale(&self) -> u32 {
        match self {
            Self::Small(number) => number.trimmed().scale(),
            Self::Wide(bytes) => match sort::decoded(scaled(bytes).0) {
                Some(sort::Decoded::Number(_, exponent, pairs)) => {
                    let behind = 2 * (pairs.len() as i64 - i64::from(exponent));
                    let odd = i64::from(pairs.at(pairs.len() - 1).is_multiple_of(10));
                    u32::try_from(behind - odd).unwrap_or(0)
                }
                _ => 0,
            },
        }
    }

    /// How many bytes it has outside of itself.
    #[inline]
    pub fn extent(&self) -> usize {
        match self {
            Self::Small(_) => 0,
            Self::Wide(bytes) => bytes.len(),
        }
    }

    /// A number that was read from [`NumericRef::Wide`]'s bytes.
    ///
    /// What they say is not checked.
    pub fn from_wide(bytes: &[u8]) -> Self {
        Self::Wide(bytes.into())
    }
}

/// The sort bytes and the scale of a wide number.
#[inline]
fn scaled(bytes: &[u8]) -> (&[u8], u32) {
    match bytes.split_last_chunk::<2>() {
        Some((bytes, scale)) => (bytes, u16::from_be_bytes(*scale).into()),
        None => (bytes, 0),
    }
}

impl<'a> NumericRef<'a> {
    /// The same number, owned.
    #[inline]
    pub fn to_numeric(self) -> Numeric {
        match self {
            Self::Small(number) => Numeric::Small(number),
            Self::Wide(bytes) => Numeric::Wide(bytes.into()),
        }
    }

    /// How many digits stand behind the point.
    #[inline]
    pub fn scale(self) -> u32 {
        match self {
            Self::Small(number) => number.scale(),
            Self::Wide(bytes) => scaled(bytes).1,
        }
    }

    /// The infinity or NaN that it is, if it is one.
    pub fn as_special(self) -> Option<Special> {
        match self {
            Self::Small(_) => None,
            Self::Wide(bytes) => match sort::decoded(scaled(bytes).0) {
                Some(sort::Decoded::Special(special)) => Some(special),
                _ => None,
            },
        }
    }

    /// Appends bytes that sort as numbers do, none of them zero.
    pub fn write_sorted(self, out: &mut Vec<u8>) {
        match self {
            Self::Small(number) => out.extend_from_slice(SortBytes::of(number).as_slice()),
            Self::Wide(bytes) => out.extend_from_slice(scaled(bytes).0),
        }
    }

    #[cold]
    fn compare_sorted(self, other: NumericRef<'_>) -> Ordering {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        self.write_sorted(&mut one);
        other.write_sorted(&mut two);
        one.cmp(&two)
    }

    /// Compares as `<` and `=` do.
    #[inline]
    pub fn compare(self, other: NumericRef<'_>) -> Ordering {
        match (self, other) {
            (Self::Small(one), NumericRef::Small(two)) => one.compare(two),
            (Self::Wide(one), NumericRef::Wide(two)) => scaled(one).0.cmp(scaled(two).0),
            _ => self.compare_sorted(other),
        }
    }

    /// Hashes what equal numbers have in common.
    #[expect(clippy::should_implement_trait, reason = "by value, as all methods here")]
    pub fn hash<H: hash::Hasher>(self, state: &mut H) {
        let short = match self {
            Self::Small(number) => Some(number.trimmed()),
            Self::Wide(bytes) => {
                let number = Numeric::from_wide(bytes);
                let scale = u8::try_from(number.min_scale()).ok();
                scale.and_then(|scale| sort::read(scaled(bytes).0, scale))
            }
        };
        match (short, self) {
            (Some(number), _) => {
                state.write_i128(number.coefficient());
                state.write_u8(number.scale() as u8);
            }
            (None, Self::Wide(bytes)) => state.write(scaled(bytes).0),
            (None, Self::Small(_)) => {}
        }
    }
}

impl From<Decimal> for Numeric {
    fn from(number: Decimal) -> Self {
        Self::Small(number)
    }
}

macro_rules! from_integer {
    ($($integer:ty),+) => {$(
        impl From<$integer> for Numeric {
            fn from(number: $integer) -> Self {
                Self::make(number.into(), 0)
            }
        }
    )+};
}

from_integer!(i64, i32, i16);

impl From<i128> for Numeric {
    fn from(number: i128) -> Self {
        // 39 digits are few enough for any number.
        Self::new(number, 0).unwrap_or_else(|| Self::from_big(number.into(), 0).unwrap_or(Self::ZERO))
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
        self.as_ref().compare(other.as_ref())
    }
}

impl hash::Hash for Numeric {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
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

impl fmt::Debug for NumericRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_numeric(), f)
    }
}

#[cfg(test)]
mod tests;
