//! Functions of text and of bytes.

use std::fmt::Write;

use super::{Function, mismatch, take};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Value, bytes, cast_out_of_range, text, without_blanks},
};

const T: Kind = Kind::Text;
const I: Kind = Kind::Int4;
const BYTES: Kind = Kind::Bytea;

/// The longest text or `bytea` that a function makes.
const MAX_LENGTH: usize = 0x3fff_ffff;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("||", &[T, T], T, concat_two),
    Function::new("||", &[T, Kind::AnyNonArray], T, concat_any).stable(),
    Function::new("||", &[Kind::AnyNonArray, T], T, concat_any).stable(),
    Function::new("||", &[BYTES, BYTES], BYTES, concat_bytes),
    Function::new("length", &[T], I, char_length),
    Function::new("length", &[Kind::Char], I, char_length),
    Function::new("length", &[BYTES], I, octet_length),
    Function::new("char_length", &[T], I, char_length),
    Function::new("char_length", &[Kind::Char], I, char_length),
    Function::new("character_length", &[T], I, char_length),
    Function::new("character_length", &[Kind::Char], I, char_length),
    Function::new("octet_length", &[T], I, octet_length),
    Function::new("octet_length", &[Kind::Char], I, octet_length),
    Function::new("octet_length", &[BYTES], I, octet_length),
    Function::new("bit_length", &[T], I, bit_length),
    Function::new("bit_length", &[BYTES], I, bit_length),
    Function::new("lower", &[T], T, |arguments, _| map(arguments, lower)),
    Function::new("upper", &[T], T, |arguments, _| map(arguments, upper)),
    Function::new("initcap", &[T], T, |arguments, _| map(arguments, initcap)),
    Function::new("reverse", &[T], T, |arguments, _| map(arguments, |text| text.chars().rev().collect())),
    Function::new("substr", &[T, I], T, substring),
    Function::new("substr", &[T, I, I], T, substring),
    Function::new("substring", &[T, I], T, substring),
    Function::new("substring", &[T, I, I], T, substring),
    Function::new("substr", &[BYTES, I], BYTES, substring_bytes),
    Function::new("substr", &[BYTES, I, I], BYTES, substring_bytes),
    Function::new("substring", &[BYTES, I], BYTES, substring_bytes),
    Function::new("substring", &[BYTES, I, I], BYTES, substring_bytes),
    Function::new("overlay", &[T, T, I], T, overlay),
    Function::new("overlay", &[T, T, I, I], T, overlay),
    Function::new("btrim", &[T], T, |arguments, _| trim(arguments, true, true)),
    Function::new("btrim", &[T, T], T, |arguments, _| trim(arguments, true, true)),
    Function::new("ltrim", &[T], T, |arguments, _| trim(arguments, true, false)),
    Function::new("ltrim", &[T, T], T, |arguments, _| trim(arguments, true, false)),
    Function::new("rtrim", &[T], T, |arguments, _| trim(arguments, false, true)),
    Function::new("rtrim", &[T, T], T, |arguments, _| trim(arguments, false, true)),
    Function::new("btrim", &[BYTES, BYTES], BYTES, |arguments, _| trim_bytes(arguments, true, true)),
    Function::new("ltrim", &[BYTES, BYTES], BYTES, |arguments, _| trim_bytes(arguments, true, false)),
    Function::new("rtrim", &[BYTES, BYTES], BYTES, |arguments, _| trim_bytes(arguments, false, true)),
    Function::new("lpad", &[T, I], T, |arguments, _| pad(arguments, true)),
    Function::new("lpad", &[T, I, T], T, |arguments, _| pad(arguments, true)),
    Function::new("rpad", &[T, I], T, |arguments, _| pad(arguments, false)),
    Function::new("rpad", &[T, I, T], T, |arguments, _| pad(arguments, false)),
    Function::new("left", &[T, I], T, left),
    Function::new("right", &[T, I], T, right),
    Function::new("replace", &[T, T, T], T, replace),
    Function::new("translate", &[T, T, T], T, translate),
    Function::new("position", &[T, T], I, position),
    Function::new("strpos", &[T, T], I, position),
    Function::new("position", &[BYTES, BYTES], I, position_bytes),
    Function::new("split_part", &[T, T, I], T, split_part),
    Function::new("repeat", &[T, I], T, repeat),
    Function::new("concat", &[Kind::Any], T, concat).variadic().lenient().stable(),
    Function::new("concat_ws", &[T, Kind::Any], T, concat_ws).variadic().lenient().stable(),
    Function::new("format", &[T], T, format).stable(),
    Function::new("format", &[T, Kind::Any], T, format).variadic().lenient().stable(),
    Function::new("ascii", &[T], I, ascii),
    Function::new("chr", &[I], T, chr),
    Function::new("md5", &[T], T, md5),
    Function::new("md5", &[BYTES], T, md5),
    Function::new("encode", &[BYTES, T], T, encode),
    Function::new("decode", &[T, T], BYTES, decode),
    Function::new("convert_from", &[BYTES, Kind::Name], T, convert_from),
    Function::new("convert_to", &[T, Kind::Name], BYTES, convert_to),
    Function::new("get_byte", &[BYTES, I], I, get_byte),
    Function::new("set_byte", &[BYTES, I, I], BYTES, set_byte),
    Function::new("to_hex", &[I], T, to_hex),
    Function::new("to_hex", &[Kind::Int8], T, to_hex),
    Function::new("quote_ident", &[T], T, |arguments, _| map(arguments, quote_identifier)),
    Function::new("quote_literal", &[T], T, |arguments, _| map(arguments, quote_literal)),
    Function::new("quote_nullable", &[T], T, quote_nullable).lenient(),
    Function::new("pg_size_pretty", &[Kind::Int8], T, size_pretty),
];

#[cold]
fn too_long() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

fn checked_length(length: usize) -> Result<usize, SqlError> {
    if length > MAX_LENGTH { Err(too_long()) } else { Ok(length) }
}

fn map(arguments: &[Value], function: fn(&str) -> String) -> Result<Value, SqlError> {
    take!(arguments: Text(text));
    Ok(Value::text(function(text)))
}

/// A character in the other case, if that is one character.
fn in_case<I: Iterator<Item = char>>(character: char, mut mapped: I) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => character,
    }
}

/// Text in lower case, character by character.
pub(super) fn lower(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().map(|character| in_case(character, character.to_lowercase())).collect()
}

/// Text in upper case, character by character.
pub(super) fn upper(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_uppercase();
    }
    text.chars().map(|character| in_case(character, character.to_uppercase())).collect()
}

/// Words with a capital first letter.
pub(super) fn initcap(text: &str) -> String {
    let mut within = false;
    text.chars()
        .map(|character| {
            let mapped = if within {
                in_case(character, character.to_lowercase())
            } else {
                in_case(character, character.to_uppercase())
            };
            within = character.is_alphanumeric();
            mapped
        })
        .collect()
}

fn concat_two(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(one), Text(two));
    checked_length(one.len() + two.len())?;
    Ok(Value::text([&**one, &**two].concat()))
}

fn concat_any(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let mut out = String::new();
    for value in arguments {
        push_text(value, context, &mut out);
    }
    checked_length(out.len())?;
    Ok(Value::text(out))
}

/// Writes a value as a cast to text does: booleans in full, `char(n)` without its blanks.
fn push_text(value: &Value, context: &EvalContext<'_>, out: &mut String) {
    match value {
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Char(text) => out.push_str(without_blanks(text)),
        _ => text::output(value.as_ref(), context, out),
    }
}

fn concat_bytes(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(one), Bytea(two));
    checked_length(one.len() + two.len())?;
    Ok(Value::bytea([&**one, &**two].concat()))
}

fn char_length(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let length = match arguments {
        [Value::Text(text)] => text.chars().count(),
        [Value::Char(text)] => without_blanks(text).chars().count(),
        _ => return Err(mismatch(arguments)),
    };
    Ok(Value::Int4(length as i32))
}

fn octets(arguments: &[Value]) -> Result<usize, SqlError> {
    match arguments {
        [Value::Text(text) | Value::Char(text)] => Ok(text.len()),
        [Value::Bytea(bytes)] => Ok(bytes.len()),
        _ => Err(mismatch(arguments)),
    }
}

fn octet_length(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(Value::Int4(octets(arguments)? as i32))
}

fn bit_length(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(Value::Int4((octets(arguments)? * 8) as i32))
}

/// The part of something with so many items that begins at an item, from 1, and is so long.
fn part(items: usize, from: i32, length: Option<i32>) -> Result<(usize, usize), SqlError> {
    let from = i64::from(from);
    let end = match length {
        Some(..0) => {
            return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
        }
        Some(length) => from + i64::from(length),
        None => i64::MAX,
    };
    let clamp = |position: i64| (position - 1).clamp(0, items as i64) as usize;
    let (start, end) = (clamp(from), clamp(end));
    Ok((start, end.max(start)))
}

/// Where a character begins, or the text's end.
fn offset(text: &str, character: usize) -> usize {
    if text.is_ascii() {
        return character.min(text.len());
    }
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

fn slice_characters(text: &str, from: i32, length: Option<i32>) -> Result<&str, SqlError> {
    // There are no more characters than bytes.
    let (start, end) = part(text.len(), from, length)?;
    Ok(&text[offset(text, start)..offset(text, end)])
}

fn substring(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [Value::Text(text), Value::Int4(from)] => slice_characters(text, *from, None),
        [Value::Text(text), Value::Int4(from), Value::Int4(length)] => slice_characters(text, *from, Some(*length)),
        _ => Err(mismatch(arguments)),
    }
    .map(Value::text)
}

fn substring_bytes(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (bytes, from, length) = match arguments {
        [Value::Bytea(bytes), Value::Int4(from)] => (bytes, *from, None),
        [Value::Bytea(bytes), Value::Int4(from), Value::Int4(length)] => (bytes, *from, Some(*length)),
        _ => return Err(mismatch(arguments)),
    };
    let (start, end) = part(bytes.len(), from, length)?;
    Ok(Value::bytea(&bytes[start..end]))
}

fn overlay(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (text, new, from, length) = match arguments {
        [Value::Text(text), Value::Text(new), Value::Int4(from)] => (text, new, *from, new.chars().count() as i32),
        [Value::Text(text), Value::Text(new), Value::Int4(from), Value::Int4(length)] => (text, new, *from, *length),
        _ => return Err(mismatch(arguments)),
    };
    if from <= 0 {
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let before = slice_characters(text, 1, Some(from - 1))?;
    let after = match from.checked_add(length) {
        Some(after) => slice_characters(text, after, None)?,
        None => return Err(cast_out_of_range(I)),
    };
    checked_length(before.len() + new.len() + after.len())?;
    Ok(Value::text([before, new, after].concat()))
}

fn trim(arguments: &[Value], front: bool, back: bool) -> Result<Value, SqlError> {
    let (text, characters) = match arguments {
        [Value::Text(text)] => (text, " "),
        [Value::Text(text), Value::Text(characters)] => (text, &**characters),
        _ => return Err(mismatch(arguments)),
    };
    let among = |character: char| characters.contains(character);
    let mut trimmed = &**text;
    if front {
        trimmed = trimmed.trim_start_matches(among);
    }
    if back {
        trimmed = trimmed.trim_end_matches(among);
    }
    Ok(if trimmed.len() == text.len() { Value::Text(text.clone()) } else { Value::text(trimmed) })
}

fn trim_bytes(arguments: &[Value], front: bool, back: bool) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Bytea(set));
    let mut trimmed = &**bytes;
    while let [first, rest @ ..] = trimmed
        && front
        && set.contains(first)
    {
        trimmed = rest;
    }
    while let [rest @ .., last] = trimmed
        && back
        && set.contains(last)
    {
        trimmed = rest;
    }
    Ok(Value::bytea(trimmed))
}

fn pad(arguments: &[Value], front: bool) -> Result<Value, SqlError> {
    let (text, length, fill) = match arguments {
        [Value::Text(text), Value::Int4(length)] => (text, *length, " "),
        [Value::Text(text), Value::Int4(length), Value::Text(fill)] => (text, *length, &**fill),
        _ => return Err(mismatch(arguments)),
    };
    let length = length.max(0) as usize;
    let have = text.chars().count();
    if length <= have || fill.is_empty() {
        return Ok(Value::text(&text[..offset(text, length.min(have))]));
    }
    // The filling may have up to four bytes per character.
    checked_length(text.len() + (length - have).saturating_mul(4))?;
    let filling = fill.chars().cycle().take(length - have);
    let mut out = String::with_capacity(text.len() + length - have);
    if front {
        out.extend(filling);
        out.push_str(text);
    } else {
        out.push_str(text);
        out.extend(filling);
    }
    Ok(Value::text(out))
}

fn left(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Int4(count));
    let end = match *count {
        0.. => *count as usize,
        _ => text.chars().count().saturating_sub(count.unsigned_abs() as usize),
    };
    Ok(Value::text(&text[..offset(text, end)]))
}

fn right(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Int4(count));
    let start = match *count {
        0.. => text.chars().count().saturating_sub(*count as usize),
        _ => count.unsigned_abs() as usize,
    };
    Ok(Value::text(&text[offset(text, start)..]))
}

fn replace(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(from), Text(to));
    if from.is_empty() || !text.contains(&**from) {
        return Ok(Value::Text(text.clone()));
    }
    let length = text.len() + text.matches(&**from).count() * to.len();
    checked_length(length)?;
    Ok(Value::text(text.replace(&**from, to)))
}

fn translate(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(from), Text(to));
    let to: Vec<char> = to.chars().collect();
    let translated: String = text
        .chars()
        .filter_map(|character| match from.chars().position(|known| known == character) {
            Some(at) => to.get(at).copied(),
            None => Some(character),
        })
        .collect();
    Ok(Value::text(translated))
}

fn position(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(wanted));
    Ok(Value::Int4(text.find(&**wanted).map_or(0, |at| text[..at].chars().count() as i32 + 1)))
}

fn position_bytes(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Bytea(wanted));
    if wanted.is_empty() {
        return Ok(Value::Int4(1));
    }
    let found = bytes.windows(wanted.len()).position(|window| window == &**wanted);
    Ok(Value::Int4(found.map_or(0, |at| at as i32 + 1)))
}

fn split_part(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(separator), Int4(number));
    if *number == 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let at = number.unsigned_abs() as usize - 1;
    let found = if separator.is_empty() {
        (at == 0).then_some(&**text)
    } else if *number > 0 {
        text.split(&**separator).nth(at)
    } else {
        // From the end, but cut from the front: separators may overlap.
        let parts: Vec<&str> = text.split(&**separator).collect();
        parts.len().checked_sub(at + 1).map(|at| parts[at])
    };
    Ok(Value::text(found.unwrap_or("")))
}

fn repeat(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Int4(count));
    let count = (*count).max(0) as usize;
    checked_length(text.len().saturating_mul(count))?;
    Ok(Value::text(text.repeat(count)))
}

fn concat(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let mut out = String::new();
    for value in arguments {
        text::output(value.as_ref(), context, &mut out);
        checked_length(out.len())?;
    }
    Ok(Value::text(out))
}

fn concat_ws(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let Some((Value::Text(separator), values)) = arguments.split_first() else { return Ok(Value::Null) };
    let mut out = String::new();
    for (at, value) in values.iter().filter(|value| !value.is_null()).enumerate() {
        if at > 0 {
            out.push_str(separator);
        }
        text::output(value.as_ref(), context, &mut out);
        checked_length(out.len())?;
    }
    Ok(Value::text(out))
}

/// `format('%s and %1$-10I', ...)`.
fn format(arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let error = |message: String| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    let Some((pattern, values)) = arguments.split_first() else { return Err(mismatch(arguments)) };
    let Value::Text(pattern) = pattern else { return Ok(Value::Null) };
    let mut out = String::new();
    let mut next = 0;
    let mut rest = &**pattern;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let digits = |rest: &mut &str| -> Option<usize> {
            let length = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = rest.split_at(length);
            *rest = after;
            number.parse().ok()
        };
        // A number is a position if a dollar sign follows, a width otherwise.
        let (mut at, mut width, mut to_left) = (None, 0, false);
        let mut ahead = rest;
        if let Some(number) = digits(&mut ahead)
            && let Some(after) = ahead.strip_prefix('$')
        {
            if number == 0 {
                return error("format specifies argument 0, but arguments are numbered from 1".to_owned());
            }
            at = Some(number - 1);
            rest = after;
        }
        while let Some(after) = rest.strip_prefix('-') {
            to_left = true;
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('*') {
            rest = after;
            let mut ahead = rest;
            let position = match digits(&mut ahead).zip(ahead.strip_prefix('$')) {
                Some((number, after)) => {
                    rest = after;
                    number.saturating_sub(1)
                }
                None => {
                    next += 1;
                    next - 1
                }
            };
            match values.get(position) {
                Some(Value::Null) => {}
                Some(value) => match value.as_i64() {
                    Some(given) => {
                        to_left |= given < 0;
                        width = given.unsigned_abs() as usize;
                    }
                    None => return Err(mismatch(arguments)),
                },
                None => return error("too few arguments for format()".to_owned()),
            }
        } else if let Some(number) = digits(&mut rest) {
            width = number;
        }
        let Some(conversion) = rest.chars().next() else {
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "unterminated format() type specifier")
                .with_hint("For a single \"%\" use \"%%\"."));
        };
        rest = &rest[conversion.len_utf8()..];
        if !matches!(conversion, 's' | 'I' | 'L') {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unrecognized format() type specifier \"{conversion}\""),
            )
            .with_hint("For a single \"%\" use \"%%\"."));
        }
        let at = at.unwrap_or(next);
        next = at + 1;
        let Some(value) = values.get(at) else { return error("too few arguments for format()".to_owned()) };
        let mut text = String::new();
        text::output(value.as_ref(), context, &mut text);
        let item = match (conversion, value) {
            ('I', Value::Null) => {
                return Err(SqlError::new(
                    SqlState::NULL_VALUE_NOT_ALLOWED,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            ('I', _) => quote_identifier(&text),
            ('L', Value::Null) => "NULL".to_owned(),
            ('L', _) => quote_literal(&text),
            _ => text,
        };
        checked_length(out.len() + item.len() + width)?;
        let missing = width.saturating_sub(item.chars().count());
        if !to_left {
            out.extend(std::iter::repeat_n(' ', missing));
        }
        out.push_str(&item);
        if to_left {
            out.extend(std::iter::repeat_n(' ', missing));
        }
    }
    out.push_str(rest);
    Ok(Value::text(out))
}

fn ascii(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text));
    Ok(Value::Int4(text.chars().next().map_or(0, |first| first as i32)))
}

fn chr(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Int4(code));
    let error = |message: String| Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    match *code {
        0 => error("null character not permitted".to_owned()),
        ..0 => Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "character number must be positive")),
        0x11_0000.. => error(format!("requested character too large for encoding: {code}")),
        code => match char::from_u32(code as u32) {
            Some(character) => Ok(Value::text(character.to_string())),
            None => error(format!("requested character not valid for encoding: {code}")),
        },
    }
}

fn md5(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    use md5::Digest;
    let hash = match arguments {
        [Value::Text(text)] => md5::Md5::digest(text.as_bytes()),
        [Value::Bytea(bytes)] => md5::Md5::digest(bytes),
        _ => return Err(mismatch(arguments)),
    };
    let mut out = String::with_capacity(32);
    for byte in hash {
        bytes::write_hex(byte, &mut out);
    }
    Ok(Value::text(out))
}

#[cold]
fn unknown_encoding(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized encoding: \"{name}\""))
}

fn encode(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Text(format));
    checked_length(bytes.len().saturating_mul(2))?;
    let mut out = String::new();
    match format.to_ascii_lowercase().as_str() {
        "hex" => bytes.iter().for_each(|byte| bytes::write_hex(*byte, &mut out)),
        "base64" => bytes::write_base64(bytes, &mut out),
        "escape" => bytes::write_escaped(bytes, &mut out),
        _ => return Err(unknown_encoding(format)),
    }
    Ok(Value::text(out))
}

fn decode(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(format));
    let decoded = match format.to_ascii_lowercase().as_str() {
        "hex" => bytes::parse_hex(text)?,
        "base64" => bytes::parse_base64(text)?,
        "escape" => bytes::parse_escaped(text).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea")
        })?,
        _ => return Err(unknown_encoding(format)),
    };
    Ok(Value::bytea(decoded))
}

fn is_utf8(name: &str) -> bool {
    ["utf8", "utf-8", "unicode", "utf_8"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn convert_from(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Text(encoding));
    if is_utf8(encoding) {
        return Ok(Value::text(text::decode(bytes)?));
    }
    if encoding.eq_ignore_ascii_case("latin1") || encoding.eq_ignore_ascii_case("iso_8859_1") {
        let decoded: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        return Ok(Value::text(text::checked(&decoded)?));
    }
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid source encoding name \"{encoding}\"")))
}

fn convert_to(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(encoding));
    if is_utf8(encoding) {
        return Ok(Value::bytea(text.as_bytes()));
    }
    if encoding.eq_ignore_ascii_case("latin1") || encoding.eq_ignore_ascii_case("iso_8859_1") {
        let encoded: Option<Vec<u8>> = text.chars().map(|character| u8::try_from(character).ok()).collect();
        return encoded.map(Value::from).ok_or_else(|| {
            SqlError::new(
                SqlState::UNTRANSLATABLE_CHARACTER,
                "a character in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\"",
            )
        });
    }
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid destination encoding name \"{encoding}\"")))
}

fn byte_index(length: usize, at: i32) -> Result<usize, SqlError> {
    usize::try_from(at).ok().filter(|at| *at < length).ok_or_else(|| {
        SqlError::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            format!("index {at} out of valid range, 0..{}", length as i64 - 1),
        )
    })
}

fn get_byte(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Int4(at));
    Ok(Value::Int4(bytes[byte_index(bytes.len(), *at)?].into()))
}

fn set_byte(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Int4(at), Int4(new));
    let at = byte_index(bytes.len(), *at)?;
    let mut changed = bytes.to_vec();
    changed[at] = *new as u8;
    Ok(Value::bytea(changed))
}

fn to_hex(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let mut out = String::new();
    let _ = match arguments {
        [Value::Int4(number)] => write!(out, "{number:x}"),
        [Value::Int8(number)] => write!(out, "{number:x}"),
        _ => return Err(mismatch(arguments)),
    };
    Ok(Value::text(out))
}

/// Words that are no names without quotes, in order.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

/// Text as an identifier: with quotes where it needs them.
pub fn quote_identifier(text: &str) -> String {
    let plain = text.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && RESERVED.binary_search(&text).is_err();
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

/// Text as a literal.
pub(crate) fn quote_literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    if text.contains('\\') {
        out.push('E');
    }
    out.push('\'');
    for character in text.chars() {
        if matches!(character, '\'' | '\\') {
            out.push(character);
        }
        out.push(character);
    }
    out.push('\'');
    out
}

fn quote_nullable(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [Value::Null] => Ok(Value::text("NULL")),
        _ => map(arguments, quote_literal),
    }
}

fn size_pretty(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Int8(size));
    // Each unit is used until there are 10,240 of it; halves are rounded away from zero.
    let mut size = i128::from(*size);
    let mut scaled = 1i128;
    let mut name = "bytes";
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        if size.abs() < 10 * 1024 * scaled {
            break;
        }
        scaled *= 1024;
        name = next;
    }
    if scaled > 1 {
        size = (size.abs() * 2 + scaled) / (2 * scaled) * size.signum();
    }
    Ok(Value::text(format!("{size} {name}")))
}
