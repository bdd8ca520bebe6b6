//! `bytea` as text.

use std::fmt::Write;

use super::text::is_space;
use crate::{SqlError, SqlState, work};

/// The value of a hexadecimal digit.
pub(crate) const fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Writes a byte as two hexadecimal digits.
pub(crate) fn write_hex(byte: u8, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Reads hexadecimal digits in pairs, with white space between pairs.
///
/// # Errors
/// 22023 when there are others, or a digit is left over.
pub(crate) fn parse_hex(text: &str) -> Result<Vec<u8>, SqlError> {
    let error = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let digit = |character: char| {
        u8::try_from(character)
            .ok()
            .and_then(hex_digit)
            .ok_or_else(|| error(format!("invalid hexadecimal digit: \"{character}\"")))
    };
    let mut out = Vec::with_capacity(text.len() / 2);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        work::done(1)?;
        if matches!(character, ' ' | '\n' | '\t' | '\r') {
            continue;
        }
        let high = digit(character)?;
        let low =
            characters.next().ok_or_else(|| error("invalid hexadecimal data: odd number of digits".to_owned()))?;
        out.push(high << 4 | digit(low)?);
    }
    Ok(out)
}

/// Reads a `bytea`: `\x` and hexadecimal digits, or characters with backslashes before octal
/// digits.
///
/// # Errors
/// 22P02 or 22023 when it is neither.
pub fn parse(text: &str) -> Result<Vec<u8>, SqlError> {
    if let Some(digits) = text.strip_prefix("\\x") {
        return parse_hex(digits);
    }
    parse_escaped(text)
}

/// Reads characters with backslashes before octal digits.
///
/// # Errors
/// 22P02 when a backslash stands before anything else.
pub(crate) fn parse_escaped(text: &str) -> Result<Vec<u8>, SqlError> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        work::done(1)?;
        rest = match rest {
            [] => return Ok(out),
            [b'\\', b'\\', after @ ..] => {
                out.push(b'\\');
                after
            }
            [b'\\', one @ b'0'..=b'3', two @ b'0'..=b'7', three @ b'0'..=b'7', after @ ..] => {
                out.push((one - b'0') << 6 | (two - b'0') << 3 | (three - b'0'));
                after
            }
            [b'\\', ..] => {
                let message = "invalid input syntax for type bytea";
                return Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message));
            }
            [byte, after @ ..] => {
                out.push(*byte);
                after
            }
        };
    }
}

/// Writes `\x` and hexadecimal digits.
pub fn write(bytes: &[u8], out: &mut String) {
    out.reserve(2 + bytes.len() * 2);
    out.push_str("\\x");
    for byte in bytes {
        write_hex(*byte, out);
    }
}

/// Writes characters, with backslashes before octal digits where a byte is none.
pub(crate) fn write_escaped(bytes: &[u8], out: &mut String) {
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0 | 0x80.. => {
                let _ = write!(out, "\\{byte:03o}");
            }
            _ => out.push(char::from(byte)),
        }
    }
}

/// Writes characters, with backslashes before octal digits where a byte is none that can be
/// printed.
pub(crate) fn write_octal(bytes: &[u8], out: &mut String) {
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes base 64, in lines of 76 characters.
///
/// # Errors
/// 57014, 57P01.
pub(crate) fn write_base64(bytes: &[u8], out: &mut String) -> Result<(), SqlError> {
    let mut line = 0;
    for chunk in bytes.chunks(3) {
        work::done(1)?;
        if line == 76 {
            out.push('\n');
            line = 0;
        }
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for index in 0..4 {
            if index <= chunk.len() {
                out.push(char::from(BASE64[(bits >> (18 - 6 * index) & 63) as usize]));
            } else {
                out.push('=');
            }
        }
        line += 4;
    }
    Ok(())
}

/// Reads base 64; white space does not count.
///
/// # Errors
/// 22023 when it is none.
pub(crate) fn parse_base64(text: &str) -> Result<Vec<u8>, SqlError> {
    let error = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count, mut padding) = (0u32, 0, 0);
    for character in text.chars().filter(|character| !is_space(*character)) {
        work::done(1)?;
        let value = match character {
            '=' => {
                if count < 2 || padding > 1 {
                    return Err(error("unexpected \"=\" while decoding base64 sequence".to_owned()));
                }
                padding += 1;
                0
            }
            _ => {
                let value =
                    u8::try_from(character).ok().and_then(|byte| BASE64.iter().position(|known| *known == byte));
                match value {
                    Some(value) if padding == 0 => value as u32,
                    _ => {
                        return Err(error(format!(
                            "invalid symbol \"{character}\" found while decoding base64 sequence"
                        )));
                    }
                }
            }
        };
        bits = bits << 6 | value;
        count += 1;
        if count == 4 {
            let bytes = bits.to_be_bytes();
            out.extend_from_slice(&bytes[1..4 - padding]);
            (bits, count) = (0, 0);
        }
    }
    if count != 0 {
        return Err(error("invalid base64 end sequence".to_owned())
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}
