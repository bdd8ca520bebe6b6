//! LIKE.

use std::borrow::Cow;

use memchr::{memchr3, memmem};

use super::{Function, string::lower, take};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Value},
    work,
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
    Function::new("~~", &[Kind::Bytea, Kind::Bytea], B, like_bytes),
    Function::new("!~~", &[Kind::Bytea, Kind::Bytea], B, |arguments, context| negate(like_bytes(arguments, context))),
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
        like(lower(text)?.as_bytes(), lower(pattern)?.as_bytes(), true)?
    } else {
        like(text.as_bytes(), pattern.as_bytes(), true)?
    };
    Ok(Value::Bool(matched))
}

fn like_bytes(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Bytea(bytes), Bytea(pattern));
    like(bytes, pattern, false).map(Value::Bool)
}

/// A piece of a pattern between two `%`.
struct Piece<'p> {
    parts: Vec<Part<'p>>,
    /// Whether it ends with an escape character that escapes nothing.
    dangling: bool,
    utf8: bool,
}

enum Part<'p> {
    Literal(Cow<'p, [u8]>),
    /// This number of characters, whatever they are: `_`.
    Any(usize),
}

#[cold]
fn dangling_escape() -> SqlError {
    SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character")
}

impl<'p> Piece<'p> {
    /// Reads one. Returns what follows it, from its `%` on.
    fn read(pattern: &'p [u8], utf8: bool) -> (Self, &'p [u8]) {
        let mut piece = Self { parts: Vec::new(), dangling: false, utf8 };
        let mut rest = pattern;
        loop {
            let plain = memchr3(b'%', b'_', b'\\', rest).unwrap_or(rest.len());
            let (literal, behind) = rest.split_at(plain);
            piece.literal(literal);
            rest = match behind {
                [] | [b'%', ..] => return (piece, behind),
                [b'_', behind @ ..] => {
                    match piece.parts.last_mut() {
                        Some(Part::Any(count)) => *count += 1,
                        _ => piece.parts.push(Part::Any(1)),
                    }
                    behind
                }
                [_] => {
                    piece.dangling = true;
                    return (piece, &[]);
                }
                [_, behind @ ..] => {
                    // The first byte of what is escaped; others of its character follow.
                    piece.literal(&behind[..1]);
                    &behind[1..]
                }
            };
        }
    }

    fn literal(&mut self, bytes: &'p [u8]) {
        match self.parts.last_mut() {
            _ if bytes.is_empty() => {}
            Some(Part::Literal(before)) => before.to_mut().extend_from_slice(bytes),
            _ => self.parts.push(Part::Literal(Cow::Borrowed(bytes))),
        }
    }

    /// Where the character ends that begins at `from`, if one does.
    fn next(&self, text: &[u8], from: usize) -> Option<usize> {
        let width = match text.get(from)? {
            0xc0..=0xdf if self.utf8 => 2,
            0xe0..=0xef if self.utf8 => 3,
            0xf0.. if self.utf8 => 4,
            _ => 1,
        };
        Some((from + width).min(text.len()))
    }

    /// Where it ends in a text, if it is there from `from` on.
    fn end_at(&self, text: &[u8], from: usize) -> Result<Option<usize>, SqlError> {
        let mut at = from;
        for part in &self.parts {
            match part {
                Part::Literal(literal) => {
                    work::done(1 + literal.len() / 64)?;
                    if !text[at..].starts_with(literal) {
                        return Ok(None);
                    }
                    at += literal.len();
                }
                Part::Any(count) => {
                    for _ in 0..*count {
                        work::done(1)?;
                        match self.next(text, at) {
                            Some(next) => at = next,
                            None => return Ok(None),
                        }
                    }
                }
            }
        }
        Ok(Some(at))
    }

    /// Where it ends in a text for the first time, if it is somewhere in it.
    fn first_end(&self, text: &[u8]) -> Result<Option<usize>, SqlError> {
        match &self.parts[..] {
            [] => Ok(Some(0)),
            [Part::Literal(literal)] => {
                let found = memmem::find(text, literal);
                work::done(1 + found.unwrap_or(text.len()) / 64)?;
                Ok(found.map(|at| at + literal.len()))
            }
            [Part::Literal(literal), ..] => {
                let finder = memmem::Finder::new(literal);
                let mut from = 0;
                while let Some(at) = finder.find(&text[from..]) {
                    if let Some(end) = self.end_at(text, from + at)? {
                        return Ok(Some(end));
                    }
                    from += at + 1;
                }
                Ok(None)
            }
            [Part::Any(_), ..] => {
                let mut from = Some(0);
                while let Some(at) = from {
                    if let Some(end) = self.end_at(text, at)? {
                        return Ok(Some(end));
                    }
                    from = self.next(text, at);
                }
                Ok(None)
            }
        }
    }

    /// Whether a text ends with it.
    fn ends(&self, text: &[u8]) -> bool {
        let mut text = text;
        for part in self.parts.iter().rev() {
            match part {
                Part::Literal(literal) => match text.strip_suffix(&**literal) {
                    Some(before) => text = before,
                    None => return false,
                },
                Part::Any(count) => {
                    for _ in 0..*count {
                        let Some(last) = text.len().checked_sub(1) else { return false };
                        let begins = |at: &usize| !self.utf8 || text[*at] & 0xc0 != 0x80;
                        text = &text[..(0..=last).rev().find(begins).unwrap_or(0)];
                    }
                }
            }
        }
        true
    }
}

/// Whether text is like a pattern. Takes about as many steps as both are long, unless there are
/// many `_` between two `%`.
fn like(text: &[u8], pattern: &[u8], utf8: bool) -> Result<bool, SqlError> {
    let (first, mut pattern) = Piece::read(pattern, utf8);
    let Some(end) = first.end_at(text, 0)? else { return Ok(false) };
    let mut text = &text[end..];
    if first.dangling {
        return if text.is_empty() { Ok(false) } else { Err(dangling_escape()) };
    }
    if pattern.is_empty() {
        return Ok(text.is_empty());
    }
    while let [b'%', rest @ ..] = pattern {
        let (piece, behind) = Piece::read(rest, utf8);
        pattern = behind;
        if behind.is_empty() && !piece.dangling {
            return Ok(piece.ends(text));
        }
        // The first place is as good as any: what follows may begin anywhere behind it.
        let Some(end) = piece.first_end(text)? else { return Ok(false) };
        text = &text[end..];
        if piece.dangling {
            return if text.is_empty() { Ok(false) } else { Err(dangling_escape()) };
        }
    }
    Ok(true)
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
        work::done(1)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, as simply as it can be said.
    fn simple(text: &[char], pattern: &[char]) -> Result<bool, ()> {
        match pattern {
            [] => Ok(text.is_empty()),
            ['%', rest @ ..] => {
                for at in 0..=text.len() {
                    if simple(&text[at..], rest)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ if text.is_empty() => Ok(false),
            ['\\'] => Err(()),
            ['_', rest @ ..] => simple(&text[1..], rest),
            ['\\', wanted, rest @ ..] | [wanted, rest @ ..] => {
                if text[0] == *wanted {
                    simple(&text[1..], rest)
                } else {
                    Ok(false)
                }
            }
        }
    }

    #[test]
    fn texts_are_like_patterns_as_defined() {
        let mut seed = getrandom::u64().unwrap();
        println!("seed {seed}");
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        let mut matched = 0;
        for _ in 0..200_000 {
            let text: Vec<char> = (0..next(8)).map(|_| ['a', 'b', 'ä', '%', '_', '\\'][next(6)]).collect();
            let pattern: Vec<char> = (0..next(8)).map(|_| ['a', 'b', 'ä', '%', '%', '_', '_', '\\'][next(8)]).collect();
            let expected = simple(&text, &pattern);
            let (text, pattern) = (String::from_iter(text), String::from_iter(pattern));
            let found = like(text.as_bytes(), pattern.as_bytes(), true);
            assert_eq!(found.map_err(|_| ()), expected, "{text:?} LIKE {pattern:?}");
            matched += usize::from(expected == Ok(true));
        }
        assert!(matched > 10_000, "{matched}");
    }
}
