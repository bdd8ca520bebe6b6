//! JSON taken apart, and its canonical form.

use std::{
    borrow::Cow,
    cmp::Ordering,
    fmt::Write,
    ops::{Deref, DerefMut},
};

use super::{
    MAX_DEPTH,
    scan::{Scanner, Token, invalid, too_deep},
};
use crate::{
    SqlError, SqlState,
    work::{self, Kept},
};

/// A JSON value, with all that is in it.
#[derive(Clone, Debug)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, written out: digits, and perhaps a sign and a point.
    Number(Cow<'a, str>),
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Self>),
    /// An object's members in canonical order.
    Object(Vec<(Cow<'a, str>, Self)>),
}

/// JSON that was read, and the memory that it takes.
#[derive(Debug)]
pub struct Parsed<'a> {
    json: Json<'a>,
    kept: Kept,
}

impl<'a> Parsed<'a> {
    /// What was read, apart from what it takes: that is given back when the other is dropped.
    pub fn into_parts(self) -> (Json<'a>, Kept) {
        (self.json, self.kept)
    }
}

impl<'a> Deref for Parsed<'a> {
    type Target = Json<'a>;

    fn deref(&self) -> &Json<'a> {
        &self.json
    }
}

impl DerefMut for Parsed<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.json
    }
}

/// Makes a tree of the scanner's tokens.
struct Reader<'a> {
    scanner: Scanner<'a>,
    /// What it takes, if that is counted.
    kept: Option<Kept>,
    bytes: usize,
}

impl<'a> Reader<'a> {
    fn whole(&mut self) -> Result<Json<'a>, SqlError> {
        let first = self.scanner.next()?;
        let json = self.value(first, 0)?;
        match self.scanner.next()? {
            Token::End => Ok(json),
            token => Err(self.scanner.unexpected(token, "end of input")),
        }
    }

    fn value(&mut self, token: Token, depth: usize) -> Result<Json<'a>, SqlError> {
        let lexeme = self.scanner.lexeme();
        let json = match token {
            Token::Null => Json::Null,
            Token::True => Json::Bool(true),
            Token::False => Json::Bool(false),
            Token::Number => Json::Number(number(lexeme)?),
            Token::String => Json::String(unescape(lexeme)?),
            Token::ObjectStart | Token::ArrayStart if depth >= MAX_DEPTH => return Err(too_deep()),
            Token::ArrayStart => self.array(depth)?,
            Token::ObjectStart => self.object(depth)?,
            _ => return Err(self.scanner.unexpected(token, "JSON value")),
        };
        if let Some(kept) = &self.kept {
            // In a list that grows; members have their keys beside them.
            self.bytes += 3 * size_of::<Json<'_>>();
            if let Json::Number(Cow::Owned(text)) | Json::String(Cow::Owned(text)) = &json {
                self.bytes += text.len();
            }
            kept.grown_to(self.bytes)?;
            work::done(1 + lexeme.len() / 16)?;
        }
        Ok(json)
    }

    fn array(&mut self, depth: usize) -> Result<Json<'a>, SqlError> {
        let mut elements = Vec::new();
        let mut token = self.scanner.next()?;
        if token == Token::ArrayEnd {
            return Ok(Json::Array(elements));
        }
        loop {
            elements.push(self.value(token, depth + 1)?);
            match self.scanner.next()? {
                Token::Comma => token = self.scanner.next()?,
                Token::ArrayEnd => return Ok(Json::Array(elements)),
                token => return Err(self.scanner.unexpected(token, "\",\" or \"]\"")),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, SqlError> {
        let mut members = Vec::new();
        let mut token = self.scanner.next()?;
        if token == Token::ObjectEnd {
            return Ok(Json::Object(members));
        }
        loop {
            if token != Token::String {
                let expected = if members.is_empty() { "string or \"}\"" } else { "string" };
                return Err(self.scanner.unexpected(token, expected));
            }
            let key = unescape(self.scanner.lexeme())?;
            match self.scanner.next()? {
                Token::Colon => {}
                token => return Err(self.scanner.unexpected(token, "\":\"")),
            }
            token = self.scanner.next()?;
            members.push((key, self.value(token, depth + 1)?));
            match self.scanner.next()? {
                Token::Comma => token = self.scanner.next()?,
                Token::ObjectEnd => return Ok(Json::members(members)),
                token => return Err(self.scanner.unexpected(token, "\",\" or \"}\"")),
            }
        }
    }
}

/// As many digits before the point as PostgreSQL's numbers have.
const MAX_DIGITS: i64 = 131_072;
/// As many digits behind the point as PostgreSQL's numbers have.
const MAX_SCALE: i64 = 16_383;

/// The order of keys: short ones first.
pub(super) fn compare_keys(one: &str, two: &str) -> Ordering {
    one.len().cmp(&two.len()).then_with(|| one.as_bytes().cmp(two.as_bytes()))
}

impl<'a> Json<'a> {
    /// Reads text, as a part of the statement: what the tree takes is taken from its memory.
    ///
    /// # Errors
    /// 22P02 when it is not JSON, 22P05 when it contains U+0000, 22003 when a number is too large;
    /// 53200, 57014, 57P01.
    pub fn parse(text: &'a str) -> Result<Parsed<'a>, SqlError> {
        let mut reader = Reader { scanner: Scanner::new(text), kept: Some(work::kept()), bytes: 0 };
        let json = reader.whole()?;
        Ok(Parsed { json, kept: reader.kept.unwrap_or_default() })
    }

    /// Reads the text of a value, to compare it: that cannot fail, so nothing is counted.
    ///
    /// # Errors
    /// Those of the text.
    pub fn of_value(text: &'a str) -> Result<Self, SqlError> {
        Reader { scanner: Scanner::new(text), kept: None, bytes: 0 }.whole()
    }

    /// An object of these members. The last of those with equal keys stays.
    pub fn members(mut members: Vec<(Cow<'a, str>, Self)>) -> Self {
        // The sort is stable: equal keys stay in their order.
        members.sort_by(|(one, _), (two, _)| compare_keys(one, two));
        let mut kept: Vec<(Cow<'a, str>, Self)> = Vec::with_capacity(members.len());
        for member in members {
            match kept.last_mut() {
                Some(last) if last.0 == member.0 => *last = member,
                _ => kept.push(member),
            }
        }
        Self::Object(kept)
    }

    /// The member of an object.
    pub fn member(&self, key: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        let at = members.binary_search_by(|(known, _)| compare_keys(known, key)).ok()?;
        Some(&members[at].1)
    }

    /// Writes the canonical form.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(number) => out.push_str(number),
            Self::String(string) => write_string(string, out),
            Self::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    element.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    write_string(key, out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// The canonical form.
    pub fn canonical(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    const fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::String(_) => 1,
            Self::Number(_) => 2,
            Self::Bool(_) => 3,
            Self::Array(_) => 4,
            Self::Object(_) => 5,
        }
    }

    /// The order of `jsonb`: null, strings, numbers, booleans, arrays, objects; arrays and objects
    /// by their number of elements first. An empty array on its own comes before everything, as
    /// PostgreSQL has it.
    pub fn compare(&self, other: &Self) -> Ordering {
        let empty = |json: &Self| matches!(json, Self::Array(elements) if elements.is_empty());
        match (empty(self), empty(other)) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.compare_within(other),
        }
    }

    fn compare_within(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::String(one), Self::String(two)) => one.as_bytes().cmp(two.as_bytes()),
            (Self::Number(one), Self::Number(two)) => compare_numbers(one, two),
            (Self::Bool(one), Self::Bool(two)) => one.cmp(two),
            (Self::Array(one), Self::Array(two)) => one.len().cmp(&two.len()).then_with(|| {
                one.iter()
                    .zip(two)
                    .map(|(one, two)| one.compare_within(two))
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            }),
            (Self::Object(one), Self::Object(two)) => one.len().cmp(&two.len()).then_with(|| {
                one.iter()
                    .zip(two)
                    .map(|((key, value), (other_key, other))| {
                        compare_keys(key, other_key).then_with(|| value.compare_within(other))
                    })
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            }),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// Whether it contains another: its members and elements, at their level.
    ///
    /// # Errors
    /// Those of [`work::done`]: each element may have to be compared with each.
    pub fn contains(&self, other: &Self) -> Result<bool, SqlError> {
        match (self, other) {
            (Self::Object(_), Self::Object(members)) => {
                for (key, value) in members {
                    let Some(own) = self.member(key) else { return Ok(false) };
                    if !own.contains_within(value)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Array(own), Self::Array(elements)) => {
                for element in elements {
                    if !Self::one_contains(own, element)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            // An array contains a scalar that is an element, at the top level only.
            (Self::Array(own), scalar) if scalar.rank() < 4 => Self::one_contains(own, scalar),
            _ => self.contains_within(other),
        }
    }

    fn one_contains(own: &[Self], wanted: &Self) -> Result<bool, SqlError> {
        for own in own {
            if own.contains_within(wanted)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn contains_within(&self, other: &Self) -> Result<bool, SqlError> {
        match (self, other) {
            (Self::Object(_), Self::Object(_)) | (Self::Array(_), Self::Array(_)) => self.contains(other),
            _ => {
                work::done(match other {
                    Self::String(text) | Self::Number(text) => 1 + text.len() / 64,
                    _ => 1,
                })?;
                Ok(self.compare_within(other).is_eq() && self.rank() == other.rank())
            }
        }
    }
}

/// Compares numbers that are written out.
fn compare_numbers(one: &str, two: &str) -> Ordering {
    let parts = |number: &str| -> (bool, String, String) {
        let (negative, digits) = number.strip_prefix('-').map_or((false, number), |digits| (true, digits));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        (negative, whole.trim_start_matches('0').to_owned(), fraction.trim_end_matches('0').to_owned())
    };
    let ((negative, whole, fraction), (other_negative, other_whole, other_fraction)) = (parts(one), parts(two));
    let magnitude = whole
        .len()
        .cmp(&other_whole.len())
        .then_with(|| whole.cmp(&other_whole))
        .then_with(|| fraction.cmp(&other_fraction));
    match (negative, other_negative) {
        (false, false) => magnitude,
        (true, true) => magnitude.reverse(),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}

/// Writes a number out, without an exponent.
pub(super) fn number(text: &str) -> Result<Cow<'_, str>, SqlError> {
    if !text.starts_with("-0") && !text.contains(['e', 'E']) {
        return Ok(Cow::Borrowed(text));
    }
    let overflow = || SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format");
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let exponent: i64 = exponent.parse().map_err(|_| overflow())?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: String = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0');
    // Where the point stands, counted from the first digit that is not zero.
    let point = whole.len() as i64 - (digits.len() - significant.len()) as i64 + exponent;
    let scale = (fraction.len() as i64).checked_sub(exponent).ok_or_else(overflow)?.max(0);
    if scale > MAX_SCALE || !significant.is_empty() && point > MAX_DIGITS {
        return Err(overflow());
    }
    let mut out = String::new();
    if significant.is_empty() {
        out.push('0');
    } else {
        if negative {
            out.push('-');
        }
        let before = point.clamp(0, significant.len() as i64) as usize;
        out.push_str(&significant[..before]);
        out.extend(std::iter::repeat_n('0', (point - before as i64).max(0) as usize));
        if point <= 0 {
            out.push('0');
        }
    }
    if scale > 0 {
        let before = point.clamp(0, significant.len() as i64) as usize;
        let zeros = if significant.is_empty() { scale } else { (-point).clamp(0, scale) };
        let _ = write!(out, ".{}{}", "0".repeat(zeros as usize), &significant[before..]);
    }
    Ok(Cow::Owned(out))
}

/// The characters of a string token.
pub(super) fn unescape(lexeme: &str) -> Result<Cow<'_, str>, SqlError> {
    let body = lexeme.strip_prefix('"').and_then(|body| body.strip_suffix('"')).unwrap_or(lexeme);
    if !body.contains('\\') {
        return Ok(Cow::Borrowed(body));
    }
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    let code = |rest: &str| rest.get(2..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let low_surrogate = || invalid("Unicode low surrogate must follow a high surrogate.".to_owned());
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (character, length) = match rest.as_bytes().get(1) {
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'n') => ('\n', 2),
            Some(b'r') => ('\r', 2),
            Some(b't') => ('\t', 2),
            Some(b'u') => match code(rest) {
                None | Some(0) => {
                    return Err(SqlError::new(
                        SqlState::UNTRANSLATABLE_CHARACTER,
                        "unsupported Unicode escape sequence",
                    )
                    .with_detail("\\u0000 cannot be converted to text."));
                }
                Some(high @ 0xd800..0xdc00) => {
                    let low = rest.get(6..).filter(|rest| rest.starts_with("\\u")).and_then(code);
                    match low {
                        Some(low @ 0xdc00..0xe000) => {
                            let point = 0x10000 + ((high - 0xd800) << 10 | (low - 0xdc00));
                            (char::from_u32(point).ok_or_else(low_surrogate)?, 12)
                        }
                        Some(0xd800..0xdc00) => {
                            return Err(invalid("Unicode high surrogate must not follow a high surrogate.".to_owned()));
                        }
                        _ => return Err(low_surrogate()),
                    }
                }
                Some(code) => (char::from_u32(code).ok_or_else(low_surrogate)?, 6),
            },
            Some(&byte) => (char::from(byte), 2),
            None => break,
        };
        out.push(character);
        rest = &rest[length..];
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// Writes a string with quotes and escapes.
pub fn write_string(string: &str, out: &mut String) {
    out.push('"');
    let mut plain = 0;
    for (at, byte) in string.bytes().enumerate() {
        let escaped = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x8 => "\\b",
            0xc => "\\f",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&string[plain..at]);
        if escaped.is_empty() {
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(escaped);
        }
        plain = at + 1;
    }
    out.push_str(&string[plain..]);
    out.push('"');
}
