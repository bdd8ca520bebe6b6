//! Functions of text and of bytes.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
};

use memchr::memmem;

use super::{Function, mismatch, take};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Value, cast_out_of_range, text, without_blanks},
    work,
};

const T: Kind = Kind::Text;
const I: Kind = Kind::Int4;
const BYTES: Kind = Kind::Bytea;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("||", &[T, T], T, concat_two),
    Function::new("||", &[T, Kind::AnyNonArray], T, concat_any).stable(),
    Function::new("||", &[Kind::AnyNonArray, T], T, concat_any).stable(),
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
    Function::new("reverse", &[T], T, |arguments, _| map(arguments, reverse)),
    Function::new("substr", &[T, I], T, substring),
    Function::new("substr", &[T, I, I], T, substring),
    Function::new("substring", &[T, I], T, substring),
    Function::new("substring", &[T, I, I], T, substring),
    Function::new("overlay", &[T, T, I], T, overlay),
    Function::new("overlay", &[T, T, I, I], T, overlay),
    Function::new("btrim", &[T], T, |arguments, _| trim(arguments, true, true)),
    Function::new("btrim", &[T, T], T, |arguments, _| trim(arguments, true, true)),
    Function::new("ltrim", &[T], T, |arguments, _| trim(arguments, true, false)),
    Function::new("ltrim", &[T, T], T, |arguments, _| trim(arguments, true, false)),
    Function::new("rtrim", &[T], T, |arguments, _| trim(arguments, false, true)),
    Function::new("rtrim", &[T, T], T, |arguments, _| trim(arguments, false, true)),
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
    Function::new("split_part", &[T, T, I], T, split_part),
    Function::new("repeat", &[T, I], T, repeat),
    Function::new("concat", &[Kind::Any], T, concat).variadic().lenient().stable(),
    Function::new("concat_ws", &[T, Kind::Any], T, concat_ws).variadic().lenient().stable(),
    Function::new("ascii", &[T], I, ascii),
    Function::new("chr", &[I], T, chr),
    Function::new("unistr", &[T], T, unistr),
    Function::new("to_hex", &[I], T, to_hex),
    Function::new("to_hex", &[Kind::Int8], T, to_hex),
];

#[cold]
pub(super) fn too_long() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

pub(crate) fn checked_length(length: usize) -> Result<usize, SqlError> {
    if length > super::MAX_EXTENT { Err(too_long()) } else { Ok(length) }
}

fn map(arguments: &[Value], function: fn(&str) -> Result<String, SqlError>) -> Result<Value, SqlError> {
    take!(arguments: Text(text));
    function(text).map(Value::text)
}

/// A text rewritten, piece by piece.
fn rewritten(text: &str, mut write: impl FnMut(&str, &mut String)) -> Result<String, SqlError> {
    let mut out = String::with_capacity(text.len());
    for piece in work::pieces(text) {
        write(piece?, &mut out);
        checked_length(out.len())?;
    }
    Ok(out)
}

/// A character in the other case, if that is one character.
fn in_case<I: Iterator<Item = char>>(character: char, mut mapped: I) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        // Its dot becomes that of the small letter.
        (Some('i'), Some('\u{307}')) => 'i',
        _ => character,
    }
}

/// Text in lower case, character by character.
pub(super) fn lower(text: &str) -> Result<String, SqlError> {
    rewritten(text, |piece, out| {
        if piece.is_ascii() {
            return out.push_str(&piece.to_ascii_lowercase());
        }
        out.extend(piece.chars().map(|character| in_case(character, character.to_lowercase())));
    })
}

/// Text in upper case, character by character.
pub(super) fn upper(text: &str) -> Result<String, SqlError> {
    rewritten(text, |piece, out| {
        if piece.is_ascii() {
            return out.push_str(&piece.to_ascii_uppercase());
        }
        out.extend(piece.chars().map(|character| in_case(character, character.to_uppercase())));
    })
}

/// Words with a capital first letter.
pub(super) fn initcap(text: &str) -> Result<String, SqlError> {
    let mut within = false;
    rewritten(text, |piece, out| {
        out.extend(piece.chars().map(|character| {
            let mapped = if within {
                in_case(character, character.to_lowercase())
            } else {
                in_case(character, character.to_uppercase())
            };
            within = character.is_alphanumeric();
            mapped
        }));
    })
}

fn reverse(text: &str) -> Result<String, SqlError> {
    let mut out = String::with_capacity(text.len());
    for piece in work::pieces(text).rev() {
        out.extend(piece?.chars().rev());
    }
    Ok(out)
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
pub(super) fn push_text(value: &Value, context: &EvalContext<'_>, out: &mut String) {
    match value {
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Char(text) => out.push_str(without_blanks(text)),
        _ => text::output(value.as_ref(), context, out),
    }
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

/// The part of something with this many items that begins at an item, from 1, and is so long.
pub(super) fn part(items: usize, from: i32, length: Option<i32>) -> Result<(usize, usize), SqlError> {
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
fn offset(text: &str, character: usize) -> Result<usize, SqlError> {
    if text.is_ascii() {
        return Ok(character.min(text.len()));
    }
    let (mut at, mut left) = (0, character);
    for piece in work::pieces(text) {
        let piece = piece?;
        let characters = piece.chars().count();
        if characters > left {
            return Ok(at + piece.char_indices().nth(left).map_or(piece.len(), |(at, _)| at));
        }
        at += piece.len();
        left -= characters;
    }
    Ok(text.len())
}

fn slice_characters(text: &str, from: i32, length: Option<i32>) -> Result<&str, SqlError> {
    // There are no more characters than bytes.
    let (start, end) = part(text.len(), from, length)?;
    Ok(&text[offset(text, start)?..offset(text, end)?])
}

fn substring(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    match arguments {
        [Value::Text(text), Value::Int4(from)] => slice_characters(text, *from, None),
        [Value::Text(text), Value::Int4(from), Value::Int4(length)] => slice_characters(text, *from, Some(*length)),
        _ => Err(mismatch(arguments)),
    }
    .map(Value::text)
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
    let mut among = HashSet::new();
    for piece in work::pieces(characters) {
        among.extend(piece?.chars());
    }
    let among = |character: char| among.contains(&character);
    let mut trimmed = &**text;
    if front {
        let mut skipped = 0;
        for piece in work::pieces(trimmed) {
            let piece = piece?;
            let rest = piece.trim_start_matches(among);
            skipped += piece.len() - rest.len();
            if !rest.is_empty() {
                break;
            }
        }
        trimmed = &trimmed[skipped..];
    }
    if back {
        let mut kept = trimmed.len();
        for piece in work::pieces(trimmed).rev() {
            let piece = piece?;
            let rest = piece.trim_end_matches(among);
            kept -= piece.len() - rest.len();
            if !rest.is_empty() {
                break;
            }
        }
        trimmed = &trimmed[..kept];
    }
    Ok(if trimmed.len() == text.len() { Value::Text(text.clone()) } else { Value::text(trimmed) })
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
        return Ok(Value::text(&text[..offset(text, length.min(have))?]));
    }
    // The filling may have up to four bytes per character.
    checked_length(text.len() + (length - have).saturating_mul(4))?;
    let least = text.len() + length - have;
    work::room_for(2 * least)?;
    let mut out = String::with_capacity(least);
    if !front {
        out.push_str(text);
    }
    let (mut left, whole) = (length - have, fill.chars().count());
    while left >= whole {
        work::done(1 + fill.len() / 64)?;
        out.push_str(fill);
        left -= whole;
    }
    out.push_str(&fill[..offset(fill, left)?]);
    if front {
        out.push_str(text);
    }
    Ok(Value::text(out))
}

fn left(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Int4(count));
    let end = match *count {
        0.. => *count as usize,
        _ => text.chars().count().saturating_sub(count.unsigned_abs() as usize),
    };
    Ok(Value::text(&text[..offset(text, end)?]))
}

fn right(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Int4(count));
    let start = match *count {
        0.. => text.chars().count().saturating_sub(*count as usize),
        _ => count.unsigned_abs() as usize,
    };
    Ok(Value::text(&text[offset(text, start)?..]))
}

/// Where the next ones begin of what is looked for, which is not empty.
pub(super) fn places<'t>(text: &'t str, wanted: &'t str) -> impl Iterator<Item = Result<usize, SqlError>> {
    let mut last = 0;
    memmem::find_iter(text.as_bytes(), wanted.as_bytes()).map(move |at| {
        work::done(1 + (at - last) / 64)?;
        last = at;
        Ok(at)
    })
}

fn replace(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(from), Text(to));
    if from.is_empty() {
        return Ok(Value::Text(text.clone()));
    }
    let mut out = String::new();
    let mut behind = 0;
    for at in places(text, from) {
        let at = at?;
        checked_length(out.len() + at - behind + to.len())?;
        out.push_str(&text[behind..at]);
        out.push_str(to);
        behind = at + from.len();
    }
    if behind == 0 {
        return Ok(Value::Text(text.clone()));
    }
    checked_length(out.len() + text.len() - behind)?;
    out.push_str(&text[behind..]);
    Ok(Value::text(out))
}

fn translate(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(from), Text(to));
    let mut into = HashMap::new();
    let mut to = to.chars();
    for piece in work::pieces(from) {
        for known in piece?.chars() {
            // The first of several counts.
            let becomes = to.next();
            into.entry(known).or_insert(becomes);
        }
    }
    let becomes = |character: char| into.get(&character).copied().unwrap_or(Some(character));
    rewritten(text, |piece, out| out.extend(piece.chars().filter_map(becomes))).map(Value::text)
}

fn position(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(wanted));
    let found = memmem::find(text.as_bytes(), wanted.as_bytes());
    Ok(Value::Int4(found.map_or(0, |at| text[..at].chars().count() as i32 + 1)))
}

fn split_part(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(separator), Int4(number));
    if *number == 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let mut at = number.unsigned_abs() as usize - 1;
    if separator.is_empty() {
        return Ok(Value::text(if at == 0 { text } else { "" }));
    }
    if *number < 0 {
        // From the end, but cut from the front: separators may overlap.
        let mut separators = 0;
        for place in places(text, separator) {
            place?;
            separators += 1;
        }
        let Some(from_front) = usize::checked_sub(separators, at) else { return Ok(Value::text("")) };
        at = from_front;
    }
    let mut from = 0;
    for place in places(text, separator) {
        let place = place?;
        if at == 0 {
            return Ok(Value::text(&text[from..place]));
        }
        at -= 1;
        from = place + separator.len();
    }
    Ok(Value::text(if at == 0 { &text[from..] } else { "" }))
}

fn repeat(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Int4(count));
    let count = (*count).max(0) as usize;
    let length = text.len().saturating_mul(count);
    checked_length(length)?;
    // The text, and the value that it becomes.
    work::room_for(2 * length)?;
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

fn to_hex(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let mut out = String::new();
    let _ = match arguments {
        [Value::Int4(number)] => write!(out, "{number:x}"),
        [Value::Int8(number)] => write!(out, "{number:x}"),
        _ => return Err(mismatch(arguments)),
    };
    Ok(Value::text(out))
}

/// Text with `\XXXX`, `\+XXXXXX`, `\uXXXX` and `\UXXXXXXXX` replaced by the characters of these
/// codes.
fn unistr(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text));
    let syntax = |message: &'static str| SqlError::new(SqlState::SYNTAX_ERROR, message);
    let mut out = String::with_capacity(text.len());
    let mut high: Option<u32> = None;
    let mut rest = &**text;
    while let Some(character) = rest.chars().next() {
        work::done(1)?;
        let escape = match rest.as_bytes() {
            [b'\\', b'\\', ..] => None,
            [b'\\', b'u', ..] => Some((2, 4)),
            [b'\\', b'U', ..] => Some((2, 8)),
            [b'\\', b'+', ..] => Some((2, 6)),
            [b'\\', ..] => Some((1, 4)),
            _ => None,
        };
        let Some((start, digits)) = escape else {
            if high.is_some() {
                return Err(syntax("invalid Unicode surrogate pair"));
            }
            out.push(character);
            rest = rest.strip_prefix("\\\\").unwrap_or(&rest[character.len_utf8()..]);
            continue;
        };
        let code = rest
            .get(start..start + digits)
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| {
                syntax("invalid Unicode escape")
                    .with_hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.")
            })?;
        rest = &rest[start + digits..];
        let code = match (high.take(), code) {
            (None, 0xd800..0xdc00) => {
                high = Some(code);
                continue;
            }
            (Some(high), 0xdc00..0xe000) => 0x10000 + ((high - 0xd800) << 10 | (code - 0xdc00)),
            (Some(_), _) | (None, 0xdc00..0xe000) => return Err(syntax("invalid Unicode surrogate pair")),
            (None, code) => code,
        };
        match char::from_u32(code) {
            Some('\0') | None => {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("invalid Unicode code point: {code:04X}"),
                ));
            }
            Some(character) => out.push(character),
        }
    }
    if high.is_some() {
        return Err(syntax("invalid Unicode surrogate pair"));
    }
    Ok(Value::text(out))
}
