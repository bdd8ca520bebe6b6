//! Decimal numbers as bytes that sort as the numbers do, whatever their scale.
//!
//! A number is ±0.d₁d₂d₃… · 100ᵉ with digits to the base of 100, the first and the last of them not
//! zero. Its bytes: for zero `80`; for a positive number its exponent and each digit plus 1; for a
//! negative number the complement of what the positive one has, and `FF`. The exponent is `C0`+e
//! where that is between -18 and 19, as it is for all numbers of up to 38 digits; `A0` or `E0` and
//! three more bytes, 7 bits and 1 in each, where it is less or more. Infinity is `F0`, and NaN,
//! which is larger than all, `F8`. No byte is zero.

use num_bigint::{BigInt, BigUint, Sign};

use super::{
    Big, Special,
    small::{Decimal, POWERS},
};

const ZERO: u8 = 0x80;
const POSITIVE: u8 = 0xC0;
const SMALL_EXPONENT: u8 = 0xA0;
const LARGE_EXPONENT: u8 = 0xE0;
const INFINITY: u8 = 0xF0;
const MINUS_INFINITY: u8 = !INFINITY;
const NAN: u8 = 0xF8;
/// NaN as a wide number has it, with a scale.
pub(crate) const NAN_BYTES: &[u8] = &[NAN, 0, 0];
/// The exponents that there are, of numbers with up to 38 digits before and behind the point.
const EXPONENTS: std::ops::RangeInclusive<i32> = -18..=19;
/// What is added to exponents that are written in three bytes.
const SHIFT: i32 = 1 << 20;
/// 38 digits lie in 20 pairs if they begin and end in the middle of one.
const MAX_PAIRS: usize = 20;

/// The bytes of a number of up to 38 digits.
#[derive(Clone, Copy)]
pub struct SortBytes {
    bytes: [u8; MAX_PAIRS + 2],
    length: u8,
}

impl SortBytes {
    /// Those bytes that the number has.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Those of a number.
    pub fn of(number: Decimal) -> Self {
        let mut result = Self { bytes: [0; MAX_PAIRS + 2], length: 1 };
        let coefficient = number.coefficient();
        if coefficient == 0 {
            result.bytes[0] = ZERO;
            return result;
        }
        // Pairs from the right, the point between two of them.
        let mut pairs = [0u8; MAX_PAIRS];
        let mut count = 0;
        let mut rest = coefficient.unsigned_abs();
        if number.scale() % 2 == 1 {
            pairs[0] = (rest % 10) as u8 * 10;
            rest /= 10;
            count = 1;
        }
        while rest > u128::from(u64::MAX) {
            pairs[count] = (rest % 100) as u8;
            rest /= 100;
            count += 1;
        }
        // Numbers of the usual size are divided by the hardware.
        let mut rest = rest as u64;
        while rest > 0 {
            pairs[count] = (rest % 100) as u8;
            rest /= 100;
            count += 1;
        }
        let exponent = count as i32 - number.scale().div_ceil(2) as i32;
        let trailing = pairs[..count].iter().take_while(|pair| **pair == 0).count();
        result.bytes[0] = (i32::from(POSITIVE) + exponent) as u8;
        for pair in pairs[trailing..count].iter().rev() {
            result.bytes[usize::from(result.length)] = pair + 1;
            result.length += 1;
        }
        if coefficient < 0 {
            for byte in &mut result.bytes[..usize::from(result.length)] {
                *byte = !*byte;
            }
            result.bytes[usize::from(result.length)] = 0xFF;
            result.length += 1;
        }
        result
    }
}

/// The number with these bytes and this scale, of up to 38 digits; nothing when none exists.
pub fn read(bytes: &[u8], scale: u8) -> Option<Decimal> {
    let (&head, pairs) = bytes.split_first()?;
    if head == ZERO {
        return Decimal::new(0, scale.into());
    }
    let negative = head < ZERO;
    let flip = if negative { 0xFF } else { 0 };
    let pairs = if negative { pairs.split_last()?.1 } else { pairs };
    let exponent = i32::from(head ^ flip) - i32::from(POSITIVE);
    if pairs.len() > MAX_PAIRS || !EXPONENTS.contains(&exponent) {
        return None;
    }
    // How many zeros follow the last pair, for the scale; one digit too many is a zero that
    // completes that pair.
    let zeros = i32::from(scale) - 2 * (pairs.len() as i32 - exponent);
    let digit = |byte: u8| (byte ^ flip).checked_sub(1).filter(|digit| *digit < 100);
    let (&last, pairs) = pairs.split_last()?;
    let last = digit(last)?;
    // Nine pairs fit into a word.
    let (first, more) = pairs.split_at(pairs.len().min(9));
    let mut small = 0u64;
    for byte in first {
        small = small * 100 + u64::from(digit(*byte)?);
    }
    let mut magnitude = i128::from(small);
    for byte in more {
        magnitude = magnitude.checked_mul(100)?.checked_add(digit(*byte)?.into())?;
    }
    let magnitude = match zeros {
        -1 if last % 10 == 0 => magnitude.checked_mul(10)?.checked_add((last / 10).into())?,
        0.. => magnitude.checked_mul(100)?.checked_add(last.into())?.checked_mul(*POWERS.get(zeros as usize)?)?,
        _ => return None,
    };
    Decimal::new(if negative { -magnitude } else { magnitude }, scale.into())
}

/// The bytes of any number.
pub(super) fn of_big(number: &Big) -> Vec<u8> {
    if number.coefficient.sign() == Sign::NoSign {
        return vec![ZERO];
    }
    let negative = number.coefficient.sign() == Sign::Minus;
    let odd = number.scale % 2 == 1;
    let magnitude = number.coefficient.magnitude();
    let mut pairs = if odd { (magnitude * 10u8).to_radix_be(100) } else { magnitude.to_radix_be(100) };
    let exponent = pairs.len() as i32 - number.scale.div_ceil(2) as i32;
    pairs.truncate(pairs.iter().rposition(|pair| *pair != 0).map_or(0, |last| last + 1));
    let mut bytes = Vec::with_capacity(pairs.len() + 7);
    if EXPONENTS.contains(&exponent) {
        bytes.push((i32::from(POSITIVE) + exponent) as u8);
    } else {
        let shifted = exponent + SHIFT;
        bytes.push(if exponent < 0 { SMALL_EXPONENT } else { LARGE_EXPONENT });
        bytes.extend([14, 7, 0].map(|by| (shifted >> by & 0x7f) as u8 + 1));
    }
    bytes.extend(pairs.iter().map(|pair| pair + 1));
    if negative {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        bytes.push(0xFF);
    }
    bytes
}

/// The bytes of what is no finite number.
pub(super) const fn of_special(special: Special) -> &'static [u8] {
    match special {
        Special::NaN => &[NAN],
        Special::Infinity => &[INFINITY],
        Special::MinusInfinity => &[MINUS_INFINITY, 0xFF],
    }
}

/// A number, as its sort bytes have it.
pub(super) enum Decoded<'a> {
    Special(Special),
    Zero,
    /// Whether it is negative, its exponent to the base of 100, and its digits as they are written.
    Number(bool, i32, Pairs<'a>),
}

/// Digits to the base of 100.
#[derive(Clone, Copy)]
pub(super) struct Pairs<'a> {
    bytes: &'a [u8],
    flip: u8,
}

impl Pairs<'_> {
    pub fn len(self) -> usize {
        self.bytes.len()
    }

    /// The digit at this place; those behind the last are zero.
    pub fn at(self, place: usize) -> u8 {
        self.bytes.get(place).map_or(0, |byte| (byte ^ self.flip).wrapping_sub(1) % 100)
    }

    pub fn magnitude(self) -> BigUint {
        let digits: Vec<u8> = (0..self.len()).map(|place| self.at(place)).collect();
        BigUint::from_radix_be(&digits, 100).unwrap_or_default()
    }
}

/// Reads bytes; nothing when they are damaged.
pub(super) fn decoded(bytes: &[u8]) -> Option<Decoded<'_>> {
    let (&head, rest) = bytes.split_first()?;
    match head {
        ZERO => return Some(Decoded::Zero),
        NAN => return Some(Decoded::Special(Special::NaN)),
        INFINITY => return Some(Decoded::Special(Special::Infinity)),
        MINUS_INFINITY => return Some(Decoded::Special(Special::MinusInfinity)),
        _ => {}
    }
    let negative = head < ZERO;
    let flip = if negative { 0xFF } else { 0 };
    let rest = if negative { rest.split_last()?.1 } else { rest };
    let (exponent, pairs) = match head ^ flip {
        SMALL_EXPONENT | LARGE_EXPONENT => {
            let (three, pairs) = rest.split_first_chunk::<3>()?;
            let shifted = three.iter().fold(0, |sum, byte| sum << 7 | i32::from((byte ^ flip).wrapping_sub(1) & 0x7f));
            (shifted - SHIFT, pairs)
        }
        head => (i32::from(head) - i32::from(POSITIVE), rest),
    };
    if pairs.is_empty() {
        return None;
    }
    Some(Decoded::Number(negative, exponent, Pairs { bytes: pairs, flip }))
}

/// The number that the bytes say, at this scale.
pub(super) fn big(bytes: &[u8], scale: u32) -> Result<Big, Special> {
    let finite = |coefficient| Ok(Big { coefficient, scale });
    match decoded(bytes) {
        Some(Decoded::Special(special)) => Err(special),
        Some(Decoded::Zero) | None => finite(BigInt::ZERO),
        Some(Decoded::Number(negative, exponent, pairs)) => {
            let behind = 2 * (pairs.len() as i64 - i64::from(exponent));
            let zeros = i64::from(scale) - behind;
            let magnitude = pairs.magnitude();
            let magnitude = match u32::try_from(zeros) {
                Ok(zeros) => magnitude * BigUint::from(10u8).pow(zeros),
                // A zero that completes the last pair.
                Err(_) => magnitude / 10u8,
            };
            finite(BigInt::from_biguint(if negative { Sign::Minus } else { Sign::Plus }, magnitude))
        }
    }
}
