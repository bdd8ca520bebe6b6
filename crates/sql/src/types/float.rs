//! Floating-point numbers as text: as few digits as tell the number from its neighbours.

use std::fmt::Write;

use num_bigint::BigUint;

use super::text::is_space;
use crate::{SqlError, SqlState};

/// More digits tell nothing.
const MAX_DIGITS: usize = 17;

/// A floating-point type, for what both have in common.
trait Float: Copy {
    const NAME: &'static str;
    /// Numbers from ten to this power on are written with an exponent.
    const DIGITS: i32;
    /// Only this many digits can be equally near as others.
    const TIES: usize;
    fn parse(text: &str) -> Option<Self>;
    fn shortest(self) -> String;
    fn to_f64(self) -> f64;
    /// The points halfway to both neighbours, as odd numbers and the power of two that multiplies
    /// both.
    fn halfway(self) -> ([u64; 2], i32);
}

macro_rules! float {
    ($ty:ty, $name:literal, $digits:literal, $ties:literal, $mantissa:literal, $bias:literal) => {
        impl Float for $ty {
            const NAME: &'static str = $name;
            const DIGITS: i32 = $digits;
            const TIES: usize = $ties;

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn shortest(self) -> String {
                format!("{self:e}")
            }

            fn to_f64(self) -> f64 {
                self.into()
            }

            fn halfway(self) -> ([u64; 2], i32) {
                let bits = u64::from(self.to_bits());
                let fraction = bits & ((1 << $mantissa) - 1);
                let exponent = (bits >> $mantissa) as i32 & (2 * $bias + 1);
                let mantissa = if exponent == 0 { fraction } else { fraction | 1 << $mantissa };
                ([2 * mantissa - 1, 2 * mantissa + 1], exponent.max(1) - $bias - $mantissa - 1)
            }
        }
    };
}

float!(f64, "double precision", 15, 16, 52, 1023);
float!(f32, "real", 6, 7, 23, 127);

fn parse<F: Float>(text: &str) -> Result<F, SqlError> {
    let invalid = || {
        SqlError::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type {}: \"{text}\"", F::NAME),
        )
    };
    let trimmed = text.trim_matches(is_space);
    let body = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    // What Rust takes that PostgreSQL does not, and the other way round.
    let named = ["infinity", "inf", "nan"].iter().any(|name| body.eq_ignore_ascii_case(name));
    if !named && !body.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return Err(invalid());
    }
    let number = F::parse(if body.eq_ignore_ascii_case("nan") { body } else { trimmed }).ok_or_else(invalid)?;
    let value = number.to_f64();
    let nonzero =
        || body.bytes().take_while(|byte| !byte.eq_ignore_ascii_case(&b'e')).any(|byte| (b'1'..=b'9').contains(&byte));
    if !named && (value.is_infinite() || value == 0.0 && nonzero()) {
        return Err(SqlError::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("\"{trimmed}\" is out of range for type {}", F::NAME),
        ));
    }
    Ok(number)
}

fn write<F: Float>(number: F, out: &mut String) {
    let value = number.to_f64();
    if value.is_nan() {
        return out.push_str("NaN");
    }
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    let (mut digits, mut exponent) = split(&number.shortest());
    if digits.len() >= F::TIES {
        // Of two numbers that are equally near, the even one.
        let (even, other) = rounded(value, digits.len());
        if reads_back(number, &even, other) {
            (digits, exponent) = (even, other);
        }
    }
    if value != 0.0 && is_halfway(number, &digits, exponent) {
        // PostgreSQL wants digits that lie strictly nearer to this number than to the next.
        let mut length = digits.len() + 1;
        (digits, exponent) = rounded(value, length);
        while length < MAX_DIGITS && (is_halfway(number, &digits, exponent) || !reads_back(number, &digits, exponent)) {
            length += 1;
            (digits, exponent) = rounded(value, length);
        }
    }
    write_digits(value.is_sign_negative(), &digits, exponent, F::DIGITS, out);
}

/// Writes digits and an exponent, as C's `%g` does for a number of this precision.
fn write_digits(negative: bool, digits: &str, exponent: i32, precision: i32, out: &mut String) {
    if negative {
        out.push('-');
    }
    if exponent < -4 || exponent >= precision {
        let (first, rest) = digits.split_at(1);
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        let _ = write!(out, "e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs());
    } else if exponent < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', (-exponent - 1) as usize));
        out.push_str(digits);
    } else {
        let before = exponent as usize + 1;
        match digits.split_at_checked(before) {
            Some((whole, "")) => out.push_str(whole),
            Some((whole, fraction)) => {
                let _ = write!(out, "{whole}.{fraction}");
            }
            None => {
                out.push_str(digits);
                out.extend(std::iter::repeat_n('0', before - digits.len()));
            }
        }
    }
}

/// Whether a decimal number lies exactly halfway between this number and one of its neighbours.
fn is_halfway<F: Float>(number: F, digits: &str, exponent: i32) -> bool {
    // digits * 10^tens, against halfway * 2^twos; large numbers only can be whole multiples of each
    // other.
    let tens = exponent - (digits.len() as i32 - 1);
    let (points, twos) = number.halfway();
    if !(0..=30).contains(&tens) || twos < 0 {
        return false;
    }
    let Ok(decimal) = digits.parse::<u64>() else { return false };
    let decimal = BigUint::from(decimal) * BigUint::from(10u8).pow(tens as u32);
    points.into_iter().any(|point| BigUint::from(point) << twos == decimal)
}

/// The nearest decimal number with this many digits, without zeros at its end, and its exponent.
fn rounded(value: f64, digits: usize) -> (String, i32) {
    split(&format!("{:.*e}", digits - 1, value.abs()))
}

/// Digits and exponent of a number in scientific notation.
fn split(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let mantissa = mantissa.trim_start_matches('-').replace('.', "");
    let digits = mantissa.trim_end_matches('0');
    (if digits.is_empty() { "0" } else { digits }.to_owned(), exponent.parse().unwrap_or(0))
}

fn reads_back<F: Float>(number: F, digits: &str, exponent: i32) -> bool {
    let text = format!("{digits}e{}", exponent - (digits.len() as i32 - 1));
    F::parse(&text).is_some_and(|read| read.to_f64() == number.to_f64().abs())
}

/// Reads a `double precision`.
///
/// # Errors
/// 22P02 when it is none, 22003 when it is too large or too small.
pub fn parse_f64(text: &str) -> Result<f64, SqlError> {
    parse(text)
}

/// Reads a `real`.
///
/// # Errors
/// 22P02 when it is none, 22003 when it is too large or too small.
pub fn parse_f32(text: &str) -> Result<f32, SqlError> {
    parse(text)
}

/// Writes a `double precision`, by extra_float_digits.
pub fn write_f64(number: f64, extra: i8, out: &mut String) {
    if extra > 0 { write(number, out) } else { write_rounded(number, extra, out) }
}

/// Writes a `real`, by extra_float_digits.
pub fn write_f32(number: f32, extra: i8, out: &mut String) {
    if extra > 0 { write(number, out) } else { write_rounded(number, extra, out) }
}

/// Writes a number with as many digits as its type surely has, and `extra` more.
fn write_rounded<F: Float>(number: F, extra: i8, out: &mut String) {
    let value = number.to_f64();
    if !value.is_finite() {
        return write(number, out);
    }
    let precision = (F::DIGITS + i32::from(extra)).max(1);
    let (digits, exponent) = rounded(value, precision as usize);
    write_digits(value.is_sign_negative(), &digits, exponent, precision, out);
}
