//! Decimal numbers as bytes that sort as the numbers do, whatever their scale.
//!
//! A number is ±0.d₁d₂d₃… · 100ᵉ with digits to the base of 100, the first and the last of them not zero. Its bytes:
//! for zero `80`; for a positive number `C0`+e and each digit plus 1; for a negative number the complement of what
//! the positive one has, and `FF`. No byte is zero.

use crate::types::{Numeric, numeric::POWERS};

const ZERO: u8 = 0x80;
const POSITIVE: u8 = 0xC0;
/// The exponents that there are, of numbers with up to 38 digits before and behind the point.
const EXPONENTS: std::ops::RangeInclusive<i32> = -18..=19;
/// 38 digits lie in 20 pairs if they begin and end in the middle of one.
const MAX_PAIRS: usize = 20;

/// The bytes of one number.
#[derive(Clone, Copy)]
pub(super) struct SortBytes {
    bytes: [u8; MAX_PAIRS + 2],
    length: u8,
}

impl SortBytes {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub(super) fn of(number: Numeric) -> Self {
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

/// The number with these bytes and this scale; nothing when there is none.
pub(super) fn read(bytes: &[u8], scale: u8) -> Option<Numeric> {
    let (&head, pairs) = bytes.split_first()?;
    if head == ZERO {
        return Numeric::new(0, scale.into());
    }
    let negative = head < ZERO;
    let flip = if negative { 0xFF } else { 0 };
    let pairs = if negative { pairs.split_last()?.1 } else { pairs };
    let exponent = i32::from(head ^ flip) - i32::from(POSITIVE);
    if pairs.len() > MAX_PAIRS || !EXPONENTS.contains(&exponent) {
        return None;
    }
    // How many zeros follow the last pair, for the scale; one digit too many is a zero that completes that pair.
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
    Numeric::new(if negative { -magnitude } else { magnitude }, scale.into())
}
