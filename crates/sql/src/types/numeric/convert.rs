//! Decimal numbers and other numbers, and their binary form on the wire.

use num_bigint::{BigInt, BigUint, Sign};

use super::{Decimal, MAX_SCALE, Numeric, NumericRef, POWERS, Special, scaled, series::power_of_ten, sort};
use crate::{
    SqlError, SqlState,
    types::{Precision, wire::Reader},
};

/// The signs of the wire's form.
const POSITIVE: u16 = 0;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const MINUS_INFINITY: u16 = 0xf000;

impl Numeric {
    /// The nearest floating-point number; an infinity when it is too large.
    pub fn to_f64(&self) -> f64 {
        if let Self::Small(number) = self {
            let coefficient = number.coefficient();
            // Both are exact, so the quotient is rounded once.
            if coefficient.unsigned_abs() <= 1 << 53 && number.scale() <= 22 {
                return coefficient as f64 / POWERS[number.scale() as usize] as f64;
            }
        }
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// The nearest floating-point number of single precision; an infinity when it is too large.
    pub fn to_f32(&self) -> f32 {
        self.to_string().parse().unwrap_or(f32::NAN)
    }

    /// A floating-point number in 15 digits.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    pub fn from_f64(number: f64) -> Result<Self, SqlError> {
        Self::from_scientific(number, &format!("{number:.14e}"))
    }

    /// A floating-point number of single precision in 6 digits.
    ///
    /// # Errors
    /// 22003 when it has too many digits.
    pub fn from_f32(number: f32) -> Result<Self, SqlError> {
        Self::from_scientific(number.into(), &format!("{number:.5e}"))
    }

    fn from_scientific(number: f64, text: &str) -> Result<Self, SqlError> {
        if number.is_nan() {
            return Ok(Self::nan());
        }
        if number.is_infinite() {
            return Ok(Self::special(if number > 0.0 { Special::Infinity } else { Special::MinusInfinity }));
        }
        // Zeros that were written only to fill the digits do not count.
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        Self::parse(&format!("{mantissa}e{exponent}"), None)
    }

    /// The nearest whole number, ties away from zero, if it fits.
    pub fn to_i64(&self) -> Option<i64> {
        // What is wide has more than 38 digits, but they may lie behind the point.
        i64::try_from(self.rescaled(0)?.small()?.coefficient()).ok()
    }

    /// Writes the wire's form; see [`NumericRef::write_binary`].
    pub fn write_binary(&self, out: &mut Vec<u8>) {
        self.as_ref().write_binary(out);
    }

    /// Reads the wire's form, rounded as a `numeric(p,s)` is if `to` says so.
    ///
    /// # Errors
    /// 22P03 when it is malformed, 22003 when it has too many digits.
    pub fn read_binary(reader: &mut Reader<'_>, to: Option<Precision>) -> Result<Self, SqlError> {
        let malformed = |what: &str| {
            SqlError::new(
                SqlState::INVALID_BINARY_REPRESENTATION,
                format!("invalid {what} in external \"numeric\" value"),
            )
        };
        let length = reader.u16()?;
        let weight = i64::from(reader.i16()?);
        let sign = reader.u16()?;
        let scale = reader.u16()?;
        let special = match sign {
            POSITIVE | NEGATIVE => None,
            NAN => Some(Special::NaN),
            INFINITY => Some(Special::Infinity),
            MINUS_INFINITY => Some(Special::MinusInfinity),
            _ => return Err(malformed("sign")),
        };
        if scale > MAX_SCALE as u16 {
            return Err(malformed("scale"));
        }
        let mut digits = Vec::with_capacity(usize::from(length) * 2);
        for _ in 0..length {
            let digit = reader.u16()?;
            if digit >= 10_000 {
                return Err(malformed("digit"));
            }
            digits.extend([(digit / 100) as u8, (digit % 100) as u8]);
        }
        let number = match special {
            Some(special) => Self::special(special),
            None => {
                let magnitude = BigUint::from_radix_be(&digits, 100).unwrap_or_default();
                let sign = if sign == NEGATIVE { Sign::Minus } else { Sign::Plus };
                let behind = (i64::from(length) - 1 - weight) * 4;
                // The scale says how many digits are shown; more are cut off.
                let coefficient = BigInt::from_biguint(sign, magnitude);
                let moved = i64::from(scale) - if length == 0 { 0 } else { behind };
                let coefficient = match u32::try_from(moved) {
                    Ok(moved) => coefficient * power_of_ten(moved),
                    Err(_) => coefficient / power_of_ten(moved.unsigned_abs() as u32),
                };
                Self::from_big(coefficient, scale.into())?
            }
        };
        to.map_or(Ok(number.clone()), |to| number.constrained(to))
    }
}

impl NumericRef<'_> {
    /// Writes the wire's form: how many digits to the base of 10,000, the first one's power, sign,
    /// scale, digits.
    pub fn write_binary(self, out: &mut Vec<u8>) {
        match self {
            Self::Small(number) => write_small(number, out),
            Self::Wide(bytes) => write_wide(bytes, out),
        }
    }
}

fn write_wide(bytes: &[u8], out: &mut Vec<u8>) {
    let (bytes, scale) = scaled(bytes);
    let mut put = |words: &[u16]| words.iter().for_each(|word| out.extend(word.to_be_bytes()));
    let (negative, exponent, pairs) = match sort::decoded(bytes) {
        Some(sort::Decoded::Special(special)) => {
            let sign = match special {
                Special::NaN => NAN,
                Special::Infinity => INFINITY,
                Special::MinusInfinity => MINUS_INFINITY,
            };
            return put(&[0, 0, sign, 0]);
        }
        Some(sort::Decoded::Number(negative, exponent, pairs)) => (negative, exponent, pairs),
        Some(sort::Decoded::Zero) | None => return put(&[0, 0, POSITIVE, scale as u16]),
    };
    // Two pairs are a digit; an odd exponent leaves the first digit half empty.
    let odd = exponent.rem_euclid(2) as usize;
    let count = (pairs.len() + odd).div_ceil(2);
    let weight = (exponent + odd as i32) / 2 - 1;
    let pair = |at: usize| at.checked_sub(odd).map_or(0, |at| u16::from(pairs.at(at)));
    put(&[count as u16, weight as i16 as u16, if negative { NEGATIVE } else { POSITIVE }, scale as u16]);
    for digit in 0..count {
        put(&[pair(2 * digit) * 100 + pair(2 * digit + 1)]);
    }
}

fn write_small(number: Decimal, out: &mut Vec<u8>) {
    let magnitude = number.coefficient().unsigned_abs();
    let scale = number.scale() as usize;
    let point = POWERS[scale].unsigned_abs();
    let (mut whole, mut fraction) = (magnitude / point, magnitude % point);
    let mut digits = [0u16; 24];
    let mut length = 0;
    // Before the point from the right, and turned round.
    while whole > 0 {
        digits[length] = (whole % 10_000) as u16;
        whole /= 10_000;
        length += 1;
    }
    digits[..length].reverse();
    let mut weight = length as i16 - 1;
    let mut places = scale;
    while places > 0 && fraction > 0 {
        let digit = if places >= 4 {
            let unit = POWERS[places - 4].unsigned_abs();
            let digit = fraction / unit;
            fraction %= unit;
            places -= 4;
            digit
        } else {
            let digit = fraction * POWERS[4 - places].unsigned_abs();
            fraction = 0;
            digit
        };
        if length == 0 && digit == 0 {
            weight -= 1;
        } else {
            digits[length] = digit as u16;
            length += 1;
        }
    }
    while length > 0 && digits[length - 1] == 0 {
        length -= 1;
    }
    if length == 0 {
        weight = 0;
    }
    out.extend((length as u16).to_be_bytes());
    out.extend(weight.to_be_bytes());
    out.extend(if number.coefficient() < 0 { NEGATIVE } else { POSITIVE }.to_be_bytes());
    out.extend((number.scale() as u16).to_be_bytes());
    for digit in &digits[..length] {
        out.extend(digit.to_be_bytes());
    }
}
