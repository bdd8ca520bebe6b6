//! Decimal numbers and other numbers, and their binary form on the wire.

use super::{Numeric, POWERS, overflow};
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
    /// The nearest floating-point number.
    pub fn to_f64(self) -> f64 {
        let coefficient = self.coefficient();
        // Both are exact, so the quotient is rounded once.
        if coefficient.unsigned_abs() <= 1 << 53 && self.scale <= 22 {
            return coefficient as f64 / POWERS[usize::from(self.scale)] as f64;
        }
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// The nearest floating-point number of single precision.
    pub fn to_f32(self) -> f32 {
        self.to_string().parse().unwrap_or(f32::NAN)
    }

    /// A floating-point number in 15 digits.
    ///
    /// # Errors
    /// 0A000 when it is not finite, 22003 when it has too many digits.
    pub fn from_f64(number: f64) -> Result<Self, SqlError> {
        Self::from_scientific(number.is_finite(), &format!("{number:.14e}"))
    }

    /// A floating-point number of single precision in 6 digits.
    ///
    /// # Errors
    /// 0A000 when it is not finite, 22003 when it has too many digits.
    pub fn from_f32(number: f32) -> Result<Self, SqlError> {
        Self::from_scientific(number.is_finite(), &format!("{number:.5e}"))
    }

    fn from_scientific(finite: bool, text: &str) -> Result<Self, SqlError> {
        if !finite {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "NaN and infinity are not supported in type numeric",
            ));
        }
        // Zeros that were written only to fill the digits do not count.
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        Self::parse(&format!("{mantissa}e{exponent}"), None)
    }

    /// The nearest whole number, ties away from zero, if it fits.
    pub fn to_i64(self) -> Option<i64> {
        i64::try_from(self.rescaled(0)?.coefficient()).ok()
    }

    /// Writes the wire's form: how many digits to the base of 10,000, the first one's power, sign, scale, digits.
    pub fn write_binary(self, out: &mut Vec<u8>) {
        let magnitude = self.coefficient().unsigned_abs();
        let scale = usize::from(self.scale);
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
        out.extend(if self.coefficient() < 0 { NEGATIVE } else { POSITIVE }.to_be_bytes());
        out.extend(u16::from(self.scale).to_be_bytes());
        for digit in &digits[..length] {
            out.extend(digit.to_be_bytes());
        }
    }

    /// Reads the wire's form, rounded as a `numeric(p,s)` is if `to` says so.
    ///
    /// # Errors
    /// 22P03 when it is malformed, 22003 when it has too many digits, 0A000 when it is NaN or infinite.
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
        match sign {
            POSITIVE | NEGATIVE => {}
            NAN | INFINITY | MINUS_INFINITY => {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "NaN and infinity are not supported in type numeric",
                ));
            }
            _ => return Err(malformed("sign")),
        }
        if scale > 0x3fff {
            return Err(malformed("scale"));
        }
        // As text, which has the rules for what is too long.
        let mut text = String::with_capacity(usize::from(length) * 4 + 16);
        if sign == NEGATIVE {
            text.push('-');
        }
        text.push('0');
        for _ in 0..length {
            let digit = reader.u16()?;
            if digit >= 10_000 {
                return Err(malformed("digit"));
            }
            text.push_str(&format!("{digit:04}"));
        }
        let behind = (i64::from(length) - 1 - weight) * 4;
        text.push_str(&format!("e{}", -behind));
        if length == 0 {
            text.clear();
            text.push('0');
        }
        let number = Self::parse(&text, to)?;
        if to.is_some() {
            return Ok(number);
        }
        // The scale says how many digits are shown; more are cut off.
        match u32::from(scale) {
            scale if scale <= number.scale() => number.trunc(scale as i32),
            scale => number.rescaled(scale.min(Self::MAX_DIGITS)).ok_or_else(overflow),
        }
    }
}
