//! LIKE.

use super::{Function, string::lower, take};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Value},
};

const T: Kind = Kind::Text;
const B: Kind = Kind::Bool;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("~~", &[T, T], B, |arguments, _| like_operator(arguments, false)),
    Function::new("!~~", &[T, T], B, |arguments, _| negate(like_operator(arguments, false))),
    Function::new("~~*", &[T, T], B, |arguments, _| like_operator(arguments, true)),
    Function::new("!~~*", &[T, T], B, |arguments, _| negate(like_operator(arguments, true))),
    Function::new("~~", &[Kind::Char, T], B, |arguments, _| like_operator(arguments, false)),
    Function::new("!~~", &[Kind::Char, T], B, |arguments, _| negate(like_operator(arguments, false))),
    Function::new("~~*", &[Kind::Char, T], B, |arguments, _| like_operator(arguments, true)),
    Function::new("!~~*", &[Kind::Char, T], B, |arguments, _| negate(like_operator(arguments, true))),
    Function::new("~~", &[Kind::Bytea, Kind::Bytea], B, |arguments, _| like_bytes(arguments)),
    Function::new("!~~", &[Kind::Bytea, Kind::Bytea], B, |arguments, _| negate(like_bytes(arguments))),
    Function::new("like_escape", &[T, T], T, like_escape),
    Function::new("starts_with", &[T, T], B, starts_with),
    Function::new("^@", &[T, T], B, starts_with),
];

pub(super) fn negate(result: Result<Value, SqlError>) -> Result<Value, SqlError> {
    match result? {
        Value::Bool(truth) => Ok(Value::Bool(!truth)),
        other => Ok(other),
    }
}

/// The characters of a string argument; those of `char(n)` with their blanks.
pub(super) fn characters(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) | Value::Char(text) => Some(text),
        _ => None,
    }
}

pub(super) fn two_strings(arguments: &[Value]) -> Result<(&str, &str), SqlError> {
    match arguments {
        [one, two] => characters(one).zip(characters(two)),
        _ => None,
    }
    .ok_or_else(|| super::mismatch(arguments))
}

fn like_operator(arguments: &[Value], any_case: bool) -> Result<Value, SqlError> {
    let (text, pattern) = two_strings(arguments)?;
    let matched = if any_case {
        like(lower(text).as_bytes(), lower(pattern).as_bytes(), true)?
    } else {
        like(text.as_bytes(), pattern.as_bytes(), true)?
    };
    Ok(Value::Bool(matched))
}

fn like_bytes(arguments: &[Value]) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Bytea(pattern));
    like(bytes, pattern, false).map(Value::Bool)
}

/// How many bytes the character has that begins here.
fn width(text: &[u8], utf8: bool) -> usize {
    match text.first() {
        Some(0xc0..=0xdf) if utf8 => 2,
        Some(0xe0..=0xef) if utf8 => 3,
        Some(0xf0..) if utf8 => 4,
        _ => 1,
    }
    .min(text.len())
}

/// Whether text is like a pattern.
fn like(text: &[u8], pattern: &[u8], utf8: bool) -> Result<bool, SqlError> {
    let (mut text, mut pattern) = (text, pattern);
    // Where to go on when what follows the last % does not match: one character further in the text.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let matched = match (pattern, text) {
            ([b'%', rest @ ..], _) => {
                if rest.is_empty() {
                    return Ok(true);
                }
                pattern = rest;
                retry = Some((text, rest));
                true
            }
            ([b'_', rest @ ..], [_, ..]) => {
                text = &text[width(text, utf8)..];
                pattern = rest;
                true
            }
            ([b'\\'], [_, ..]) => {
                return Err(SqlError::new(
                    SqlState::INVALID_ESCAPE_SEQUENCE,
                    "LIKE pattern must not end with escape character",
                ));
            }
            ([b'\\', wanted, rest @ ..] | [wanted, rest @ ..], [found, after @ ..]) if wanted == found => {
                text = after;
                pattern = rest;
                true
            }
            ([], []) => return Ok(true),
            _ => false,
        };
        if matched {
            continue;
        }
        match retry {
            Some((from, rest)) if !from.is_empty() => {
                let from = &from[width(from, utf8)..];
                retry = Some((from, rest));
                text = from;
                pattern = rest;
            }
            _ => return Ok(false),
        }
    }
}

/// What everything that is like a pattern begins with, and whether nothing but that is.
pub fn like_prefix(pattern: &str) -> (String, bool) {
    let mut prefix = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '%' | '_' => return (prefix, false),
            '\\' => match characters.next() {
                Some(escaped) => prefix.push(escaped),
                None => return (prefix, false),
            },
            _ => prefix.push(character),
        }
    }
    (prefix, true)
}

/// A pattern with another escape character than the backslash, written with the backslash.
fn like_escape(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(pattern), Text(escape));
    let mut characters = escape.chars();
    let escape = characters.next();
    if characters.next().is_some() {
        return Err(SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    }
    let mut out = String::with_capacity(pattern.len());
    let mut escaped = false;
    for character in pattern.chars() {
        if Some(character) == escape && !escaped {
            out.push('\\');
            escaped = true;
        } else {
            if character == '\\' && !escaped {
                out.push('\\');
            }
            out.push(character);
            escaped = false;
        }
    }
    Ok(Value::text(out))
}

fn starts_with(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(prefix));
    Ok(Value::Bool(text.starts_with(&**prefix)))
}
