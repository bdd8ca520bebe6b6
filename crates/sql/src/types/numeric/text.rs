//! Decimal numbers as text.

use std::fmt::Write;

use super::{LIMIT, Numeric, POWERS, overflow};
use crate::{SqlError, SqlState, types::Precision};

fn invalid(text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("invalid input syntax for type numeric: \"{text}\""))
}

impl Numeric {
    /// Reads a number, rounded as a `numeric(p,s)` is if `to` says so.
    ///
    /// # Errors
    /// 22P02 when it is none, 22003 when it has too many digits, 0A000 when it is NaN or infinite.
    pub fn parse(text: &str, to: Option<Precision>) -> Result<Self, SqlError> {
        let trimmed = text.trim_matches(super::super::text::is_space);
        let (negative, body) = match trimmed.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            body => (false, body),
        };
        let Some(scanned) = scan(body) else {
            return Err(not_finite(body).unwrap_or_else(|| invalid(text)));
        };
        let Scanned { mut coefficient, mut scale, mut dropped, mut lost, rest } = scanned;
        match rest {
            [] => {}
            [b'e' | b'E', exponent @ ..] => scale -= parse_exponent(exponent).ok_or_else(|| invalid(text))?,
            _ => return Err(invalid(text)),
        }
        if scale < 0 {
            let power = usize::try_from(-scale).ok().and_then(|power| POWERS.get(power));
            coefficient = match power.and_then(|power| coefficient.checked_mul(*power)) {
                Some(coefficient) if coefficient <= LIMIT => coefficient,
                _ if coefficient == 0 => 0,
                _ => return Err(overflow()),
            };
            scale = 0;
        }
        if scale > i64::from(Self::MAX_DIGITS) {
            let excess = usize::try_from(scale).unwrap_or(usize::MAX) - Self::MAX_DIGITS as usize;
            let by = POWERS.get(excess).copied().unwrap_or(i128::MAX);
            lost |= coefficient % by != 0;
            dropped = coefficient / (by / 10) % 10;
            coefficient /= by;
            scale = Self::MAX_DIGITS.into();
        }
        if to.is_some_and(|to| i64::from(to.scale) >= scale) && dropped >= 5 {
            // No digit is left that would tell how to round.
            coefficient += 1;
        }
        let number = Self::new(if negative { -coefficient } else { coefficient }, scale as u32).ok_or_else(overflow)?;
        match to {
            Some(precision) => number.constrained(precision),
            None if lost => Err(overflow().with_detail(format!("A number has at most {} digits.", Self::MAX_DIGITS))),
            None => Ok(number),
        }
    }

    /// Writes it as PostgreSQL prints it.
    pub fn write(self, out: &mut String) {
        let coefficient = self.coefficient();
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
        let scale = self.scale() as usize;
        if scale > 0 {
            let digits = out.len() - start;
            if digits <= scale {
                const ZEROS: &str = "0000000000000000000000000000000000000000";
                out.insert_str(start, &ZEROS[..scale + 1 - digits]);
            }
            out.insert(out.len() - scale, '.');
        }
    }
}

fn not_finite(body: &[u8]) -> Option<SqlError> {
    let is = |name: &str| body.eq_ignore_ascii_case(name.as_bytes());
    (is("nan") || is("inf") || is("infinity"))
        .then(|| SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "NaN and infinity are not supported in type numeric"))
}

struct Scanned<'a> {
    coefficient: i128,
    /// May go beyond what a number may have, either way.
    scale: i64,
    /// The first digit that was cut off.
    dropped: i128,
    /// Whether digits other than 0 were cut off.
    lost: bool,
    rest: &'a [u8],
}

/// Takes digits and a point off the front, if there is a digit. Digits that do not fit are cut off; those before the
/// point leave a negative scale.
fn scan(body: &[u8]) -> Option<Scanned<'_>> {
    let mut scanned = Scanned { coefficient: 0, scale: 0, dropped: 0, lost: false, rest: body };
    let (mut point, mut any, mut full) = (false, false, false);
    while let [first, rest @ ..] = scanned.rest {
        match first {
            b'0'..=b'9' => {
                any = true;
                let digit = i128::from(first - b'0');
                if !full && scanned.coefficient <= (LIMIT - 9) / 10 {
                    scanned.coefficient = scanned.coefficient * 10 + digit;
                    scanned.scale += i64::from(point);
                } else {
                    if !full {
                        scanned.dropped = digit;
                    }
                    full = true;
                    scanned.lost |= digit != 0;
                    scanned.scale -= i64::from(!point);
                }
            }
            b'.' if !point => point = true,
            _ => break,
        }
        scanned.rest = rest;
    }
    any.then_some(scanned)
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
        exponent = (exponent * 10 + i64::from(digit - b'0')).min(1_000_000_000);
    }
    Some(if negative { -exponent } else { exponent })
}
