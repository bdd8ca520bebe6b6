//! Decimal numbers as text.

use std::fmt::Write;

use num_bigint::{BigInt, BigUint, Sign};

use super::{
    Decimal, MAX_SCALE, MAX_WHOLE, Numeric, NumericRef, POWERS, Special, overflow, scaled, series::power_of_ten,
    small::LIMIT, sort,
};
use crate::{SqlError, SqlState, types::Precision};

fn invalid(text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("invalid input syntax for type numeric: \"{text}\""))
}

impl Numeric {
    /// Reads a number, rounded as a `numeric(p,s)` is if `to` says so.
    ///
    /// # Errors
    /// 22P02 when it is none, 22003 when it has too many digits.
    pub fn parse(text: &str, to: Option<Precision>) -> Result<Self, SqlError> {
        let trimmed = text.trim_matches(super::super::text::is_space);
        let (negative, body) = match trimmed.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            body => (false, body),
        };
        let Some(scanned) = scan(body) else {
            let special = special(negative, body).ok_or_else(|| invalid(text))?;
            let number = Self::special(special);
            return to.map_or(Ok(number.clone()), |to| number.constrained(to));
        };
        let Scanned { coefficient, mut scale, full, rest } = scanned;
        match rest {
            [] => {}
            [b'e' | b'E', exponent @ ..] => {
                let exponent = parse_exponent(exponent).ok_or_else(|| invalid(text))?;
                if exponent.abs() >= i64::from(i32::MAX / 2) {
                    return Err(overflow());
                }
                scale -= exponent;
            }
            _ => return Err(invalid(text)),
        }
        if full || scale > i64::from(Decimal::MAX_DIGITS) {
            return parse_long(negative, &body[..body.len() - rest.len()], scale, to);
        }
        let small = match usize::try_from(-scale) {
            Ok(power) if coefficient != 0 => POWERS.get(power).and_then(|power| coefficient.checked_mul(*power)),
            _ => Some(coefficient),
        };
        let small = small.and_then(|coefficient| {
            let coefficient = if negative { -coefficient } else { coefficient };
            Self::new(coefficient, u32::try_from(scale).unwrap_or(0))
        });
        match (small, to) {
            (Some(number), None) => Ok(number),
            (Some(number), Some(to)) => number.constrained(to),
            (None, to) => parse_long(negative, &body[..body.len() - rest.len()], scale, to),
        }
    }

    /// Writes it as PostgreSQL prints it.
    pub fn write(&self, out: &mut String) {
        self.as_ref().write(out);
    }
}

impl NumericRef<'_> {
    /// Writes it as PostgreSQL prints it.
    pub fn write(self, out: &mut String) {
        match self {
            Self::Small(number) => write_small(number, out),
            Self::Wide(bytes) => write_wide(bytes, out),
        }
    }
}

fn write_small(number: Decimal, out: &mut String) {
    let coefficient = number.coefficient();
    if coefficient < 0 {
        out.push('-');
    }
    let magnitude = coefficient.unsigned_abs();
    let start = out.len();
    // Most numbers are short, and long ones are slow to print.
    let _ = match u64::try_from(magnitude) {
        Ok(short) => write!(out, "{short}"),
        Err(_) => write!(out, "{magnitude}"),
    };
    let scale = number.scale() as usize;
    if scale > 0 {
        let digits = out.len() - start;
        if digits <= scale {
            const ZEROS: &str = "0000000000000000000000000000000000000000";
            out.insert_str(start, &ZEROS[..scale + 1 - digits]);
        }
        out.insert(out.len() - scale, '.');
    }
}

fn write_wide(bytes: &[u8], out: &mut String) {
    let (bytes, scale) = scaled(bytes);
    let mut behind = scale as usize;
    let (negative, exponent, pairs) = match sort::decoded(bytes) {
        Some(sort::Decoded::Special(special)) => {
            return out.push_str(match special {
                Special::NaN => "NaN",
                Special::Infinity => "Infinity",
                Special::MinusInfinity => "-Infinity",
            });
        }
        Some(sort::Decoded::Number(negative, exponent, pairs)) => (negative, exponent, pairs),
        Some(sort::Decoded::Zero) | None => {
            out.push('0');
            if behind > 0 {
                out.push('.');
                out.extend(std::iter::repeat_n('0', behind));
            }
            return;
        }
    };
    if negative {
        out.push('-');
    }
    let start = out.len();
    for place in 0..usize::try_from(exponent).unwrap_or(0) {
        let pair = pairs.at(place);
        if pair >= 10 || out.len() > start {
            out.push(char::from(b'0' + pair / 10));
        }
        out.push(char::from(b'0' + pair % 10));
    }
    if out.len() == start {
        out.push('0');
    }
    if behind == 0 {
        return;
    }
    out.push('.');
    let mut place = i64::from(exponent);
    while behind > 0 {
        let pair = usize::try_from(place).map_or(0, |place| pairs.at(place));
        out.push(char::from(b'0' + pair / 10));
        if behind > 1 {
            out.push(char::from(b'0' + pair % 10));
        }
        behind = behind.saturating_sub(2);
        place += 1;
    }
    // Pairs before the first are zero.
}

fn special(negative: bool, body: &[u8]) -> Option<Special> {
    let is = |name: &str| body.eq_ignore_ascii_case(name.as_bytes());
    match negative {
        _ if is("nan") => (!negative).then_some(Special::NaN),
        false if is("inf") || is("infinity") => Some(Special::Infinity),
        true if is("inf") || is("infinity") => Some(Special::MinusInfinity),
        _ => None,
    }
}

struct Scanned<'a> {
    coefficient: i128,
    /// May go beyond what a number may have, either way.
    scale: i64,
    /// Whether not all digits are in the coefficient.
    full: bool,
    rest: &'a [u8],
}

/// Takes digits and a point off the front, if there is a digit.
fn scan(body: &[u8]) -> Option<Scanned<'_>> {
    let mut scanned = Scanned { coefficient: 0, scale: 0, full: false, rest: body };
    let (mut point, mut any) = (false, false);
    while let [first, rest @ ..] = scanned.rest {
        match first {
            b'0'..=b'9' => {
                any = true;
                let digit = i128::from(first - b'0');
                scanned.scale += i64::from(point);
                if !scanned.full && scanned.coefficient <= (LIMIT - 9) / 10 {
                    scanned.coefficient = scanned.coefficient * 10 + digit;
                } else {
                    scanned.full = true;
                }
            }
            b'.' if !point => point = true,
            _ => break,
        }
        scanned.rest = rest;
    }
    any.then_some(scanned)
}

/// Reads digits and perhaps a point as a number of this scale.
fn parse_long(negative: bool, digits: &[u8], scale: i64, to: Option<Precision>) -> Result<Numeric, SqlError> {
    let digits: Vec<u8> = digits.iter().filter(|digit| digit.is_ascii_digit()).map(|digit| digit - b'0').collect();
    let first = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len());
    let digits = &digits[first..];
    let sign = if negative { Sign::Minus } else { Sign::Plus };
    let number = |digits: &[u8]| BigInt::from_biguint(sign, BigUint::from_radix_be(digits, 10).unwrap_or_default());
    let count = digits.len() as i64;
    if count > 0 && count - scale > MAX_WHOLE as i64 {
        return Err(overflow());
    }
    let most = i64::from(MAX_SCALE);
    if scale > most {
        return Err(overflow());
    }
    let Some(to) = to else {
        let coefficient = number(digits);
        return match u32::try_from(scale) {
            Ok(scale) => Numeric::from_big(coefficient, scale),
            Err(_) if count == 0 => Ok(Numeric::ZERO),
            Err(_) => Numeric::from_big(coefficient * power_of_ten(scale.unsigned_abs() as u32), 0),
        };
    };
    // Digits far behind those that the type keeps change nothing but which way a tie goes.
    let kept = i64::from(to.scale.max(0)) + 2;
    let (coefficient, scale) = match usize::try_from(scale - kept) {
        Ok(dropped) => {
            let (head, tail) = digits.split_at(digits.len().saturating_sub(dropped));
            let lost = tail.iter().any(|digit| *digit != 0);
            // A last digit that is neither 0 nor 5, if something was lost.
            let mut head = head.to_vec();
            match head.last_mut() {
                Some(last) if lost && matches!(last, 0 | 5) => *last += 1,
                _ => {}
            }
            (number(&head), kept)
        }
        Err(_) => (number(digits), scale),
    };
    let number = match u32::try_from(scale) {
        Ok(scale) => Numeric::from_big(coefficient, scale)?,
        Err(_) if count == 0 => Numeric::ZERO,
        Err(_) => Numeric::from_big(coefficient * power_of_ten(scale.unsigned_abs() as u32), 0)?,
    };
    number.constrained(to)
}

/// An exponent, no further from zero than matters.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut exponent = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        exponent = (exponent * 10 + i64::from(digit - b'0')).min(10_000_000_000);
    }
    Some(if negative { -exponent } else { exponent })
}
