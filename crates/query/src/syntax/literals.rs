//! String literals that the parser's own reading does not get right: `E'…'`, `U&'…'` and `U&"…"`,
//! those that go on in another line, and, with `standard_conforming_strings = off`, ordinary ones
//! with backslashes.
//!
//! They are read here, and the text is given to the parser with other characters in their place, as
//! many as there were: so all tokens stand where they did, and the literals get their values when
//! the tokens have been read.

use std::collections::VecDeque;

use freshet_sql::{SqlError, SqlState, work};
use sqlparser::{
    ast::{DataType, Expr, TypedString},
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::{Token, TokenWithSpan},
};

use crate::bind::syntax_error;

/// What a session's settings say of string literals.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// standard_conforming_strings: whether a backslash is an ordinary character of `'…'`.
    pub standard: bool,
    /// escape_string_warning: whether such a backslash is worth a warning, where it is none.
    pub warns: bool,
    /// backslash_quote: whether `\'` may stand for a quote.
    pub quotes: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { standard: true, warns: true, quotes: true }
    }
}

/// A text without those literals.
#[derive(Debug)]
pub struct Masked {
    /// The text with the literals masked.
    pub text: String,
    /// Their values, in their order.
    values: VecDeque<String>,
}

/// Stands in a masked text for the characters of a literal. No text has it.
const MASK: char = '\0';

impl Masked {
    /// Gives a token its value.
    pub fn unmask(&mut self, token: &mut TokenWithSpan) {
        let value = match &mut token.token {
            Token::SingleQuotedString(value) | Token::NationalStringLiteral(value) => value,
            Token::Word(word) if word.quote_style.is_some() => &mut word.value,
            _ => return,
        };
        if value.contains(MASK) {
            *value = self.values.pop_front().unwrap_or_default();
        }
    }
}

/// Masks the literals of a text; nothing when it has none. `warnings` gets what is to be said of
/// them.
///
/// # Errors
/// 42601, 22025, 22021, 22P06, 0A000 when one cannot be read.
pub fn masked(sql: &str, rules: Rules, warnings: &mut Vec<SqlError>) -> Result<Option<Masked>, SqlError> {
    if !sql.contains(['\'', '&']) {
        return Ok(None);
    }
    let mut reader = Reader { sql, at: 0, rules, warnings, masked: None, taken: 0 };
    reader.read()?;
    let taken = reader.taken;
    Ok(reader.masked.map(|mut masked| {
        masked.text.push_str(&sql[taken..]);
        masked
    }))
}

/// How a literal begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// `'`
    Plain,
    /// `E'`
    Escaped,
    /// `N'`
    National,
    /// `B'`, `X'`
    Bits,
    /// `U&'`
    Unicode,
    /// `U&"`
    UnicodeName,
}

struct Reader<'s> {
    sql: &'s str,
    at: usize,
    rules: Rules,
    warnings: &'s mut Vec<SqlError>,
    masked: Option<Masked>,
    /// As much of the text is in `masked`.
    taken: usize,
}

fn is_name_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

impl<'s> Reader<'s> {
    fn rest(&self) -> &'s [u8] {
        &self.sql.as_bytes()[self.at..]
    }

    /// An error or a warning, at a place in the text.
    fn place(&self, error: SqlError, at: usize) -> SqlError {
        let characters = self.sql.as_bytes()[..at].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        match u32::try_from(characters + 1) {
            Ok(position) => error.with_position(position),
            Err(_) => error,
        }
    }

    /// An error about some of the text.
    fn near(&self, what: &str, from: usize, to: usize) -> SqlError {
        self.place(syntax_error(format!("{what} at or near \"{}\"", &self.sql[from..to])), from)
    }

    /// Goes behind the next of these.
    fn skip_behind(&mut self, end: &str) {
        self.at = self.sql[self.at..].find(end).map_or(self.sql.len(), |found| self.at + found + end.len());
    }

    fn read(&mut self) -> Result<(), SqlError> {
        loop {
            work::done(1)?;
            match *self.rest() {
                [] => return Ok(()),
                [b'-', b'-', ..] => self.skip_behind("\n"),
                [b'/', b'*', ..] => self.skip_comment(),
                [b'"', ..] => {
                    self.at += 1;
                    self.skip_behind("\"");
                }
                [b'$', next, ..] if next == b'$' || next.is_ascii_alphabetic() || next == b'_' || next >= 0x80 => {
                    self.skip_dollars();
                }
                [b'\'', ..] => self.literal(Form::Plain, 1)?,
                [b'e' | b'E', b'\'', ..] => self.literal(Form::Escaped, 2)?,
                [b'n' | b'N', b'\'', ..] => self.literal(Form::National, 2)?,
                [b'b' | b'B' | b'x' | b'X', b'\'', ..] => self.literal(Form::Bits, 2)?,
                [b'u' | b'U', b'&', b'\'', ..] => self.literal(Form::Unicode, 3)?,
                [b'u' | b'U', b'&', b'"', ..] => self.literal(Form::UnicodeName, 3)?,
                [byte, ..] if is_name_part(byte) => {
                    self.at += self.rest().iter().take_while(|byte| is_name_part(**byte)).count();
                }
                _ => self.at += 1,
            }
        }
    }

    /// Comments can be within one another.
    fn skip_comment(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.rest() {
                [] => return,
                [b'/', b'*', ..] => {
                    depth += 1;
                    self.at += 2;
                }
                [b'*', b'/', ..] => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// `$tag$ … $tag$`, or only a sign.
    fn skip_dollars(&mut self) {
        let name = self.rest()[1..].iter().take_while(|byte| is_name_part(**byte) && **byte != b'$').count();
        let tag = self.at..self.at + name + 2;
        self.at += 1;
        if self.sql.as_bytes().get(tag.end - 1) == Some(&b'$') {
            self.at = tag.end;
            self.skip_behind(&self.sql[tag]);
        }
    }

    /// Where a literal is continued: behind the quote that follows blanks, a newline among them,
    /// and comments.
    fn continued(&self) -> Option<usize> {
        let bytes = self.sql.as_bytes();
        let mut at = self.at;
        let mut newline = false;
        loop {
            match *bytes.get(at)? {
                b'\'' if newline => return Some(at + 1),
                byte if is_blank(byte) => {
                    newline |= matches!(byte, b'\n' | b'\r');
                    at += 1;
                }
                b'-' if bytes.get(at + 1) == Some(&b'-') => at += bytes[at..].iter().position(|byte| *byte == b'\n')?,
                _ => return None,
            }
        }
    }

    /// Reads a literal whose first quote is the last of this many bytes.
    fn literal(&mut self, form: Form, prefix: usize) -> Result<(), SqlError> {
        let ordinary = match form {
            Form::Plain | Form::National => self.rules.standard,
            form => form == Form::Bits,
        };
        if ordinary && self.passed(prefix)? { Ok(()) } else { self.literal_in_parts(form, prefix) }
    }

    /// Goes behind a literal in which nothing stands for anything else, which the parser reads as
    /// PostgreSQL does; says whether it is one.
    fn passed(&mut self, prefix: usize) -> Result<bool, SqlError> {
        let (begun, quote) = (self.at, b'\'');
        self.at += prefix;
        loop {
            let mut length = 0;
            for piece in work::byte_pieces(self.rest()) {
                let piece = piece?;
                let found = piece.iter().position(|byte| *byte == quote);
                length += found.unwrap_or(piece.len());
                if found.is_some() {
                    break;
                }
            }
            self.at += length;
            match *self.rest() {
                [_, next, ..] if next == quote => self.at += 2,
                [_, ..] => {
                    self.at += 1;
                    let ends = self.continued().is_none();
                    if !ends {
                        self.at = begun;
                    }
                    return Ok(ends);
                }
                [] => {
                    self.at = begun;
                    return Ok(false);
                }
            }
        }
    }

    fn literal_in_parts(&mut self, form: Form, prefix: usize) -> Result<(), SqlError> {
        let start = self.at;
        self.at += prefix;
        let quote = if form == Form::UnicodeName { b'"' } else { b'\'' };
        let escapes = form == Form::Escaped || !self.rules.standard && matches!(form, Form::Plain | Form::National);
        let unicode = matches!(form, Form::Unicode | Form::UnicodeName);
        // What the parser reads as PostgreSQL does is left to it.
        let mut plain = matches!(form, Form::Plain | Form::National | Form::Bits);
        let mut warns = escapes && form != Form::Escaped && self.rules.warns;
        let mut value = Vec::new();
        if form == Form::Unicode && !self.rules.standard {
            let message = "unsafe use of string constant with Unicode escapes";
            let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(
                "String constants with Unicode escapes cannot be used when standard_conforming_strings is off.",
            );
            return Err(self.place(error, start));
        }
        loop {
            work::done(1)?;
            match *self.rest() {
                [] => {
                    let what = if quote == b'"' { "identifier" } else { "string" };
                    return Err(self.near(&format!("unterminated quoted {what}"), start, self.sql.len()));
                }
                [byte, next, ..] if byte == quote && next == quote => {
                    value.push(byte);
                    self.at += 2;
                }
                [byte, ..] if byte == quote => {
                    self.at += 1;
                    match self.continued().filter(|_| quote == b'\'') {
                        Some(at) => {
                            plain &= form == Form::Bits;
                            self.at = at;
                        }
                        None => break,
                    }
                }
                [b'\\', ..] if escapes => {
                    plain = false;
                    self.warn(start, &mut warns);
                    self.escape(start, &mut value)?;
                }
                [byte, ..] => {
                    value.push(byte);
                    self.at += 1;
                }
            }
        }
        if plain {
            return Ok(());
        }
        let mut text = String::from_utf8(value).map_err(|error| {
            let bad = &error.as_bytes()[error.utf8_error().valid_up_to()..];
            not_utf8(&bad[..error.utf8_error().error_len().unwrap_or(bad.len()).max(1)])
        })?;
        if text.contains('\0') {
            return Err(not_utf8(&[0]));
        }
        let end = self.at;
        if unicode {
            let escape = self.uescape()?;
            text = self.unicode(&text, escape, start + prefix)?;
        }
        self.mask(start, end, form, quote);
        if let Some(masked) = &mut self.masked {
            masked.values.push_back(text);
        }
        Ok(())
    }

    /// Puts the text up to here into the masked one, with a literal masked, and blanks for what
    /// follows it.
    fn mask(&mut self, start: usize, end: usize, form: Form, quote: u8) {
        let masked = self.masked.get_or_insert_with(|| Masked { text: String::new(), values: VecDeque::new() });
        masked.text.push_str(&self.sql[self.taken..start]);
        let mut from = start;
        if form == Form::National {
            masked.text.push('N');
            from += 1;
        }
        let fill = |text: &mut String, part: &str, with| {
            text.extend(part.chars().map(|character| if character == '\n' { '\n' } else { with }));
        };
        masked.text.push(char::from(quote));
        fill(&mut masked.text, &self.sql[from + 1..end - 1], MASK);
        masked.text.push(char::from(quote));
        fill(&mut masked.text, &self.sql[end..self.at], ' ');
        self.taken = self.at;
    }

    /// Warns of the first backslash of a literal.
    fn warn(&mut self, start: usize, warns: &mut bool) {
        /// More warnings are of no use to anybody.
        const MOST: usize = 100;
        if !std::mem::take(warns) || self.warnings.len() >= MOST {
            return;
        }
        let (what, hint) = match self.rest().get(1) {
            Some(b'\'') => ("\\'", "Use '' to write quotes in strings, or use the escape string syntax (E'...')."),
            Some(b'\\') => ("\\\\", "Use the escape string syntax for backslashes, e.g., E'\\\\'."),
            _ => ("escape", "Use the escape string syntax for escapes, e.g., E'\\r\\n'."),
        };
        let message = format!("nonstandard use of {what} in a string literal");
        let warning = SqlError::new(SqlState::NONSTANDARD_USE_OF_ESCAPE_CHARACTER, message).with_hint(hint);
        let warning = self.place(warning, start);
        self.warnings.push(warning);
    }

    /// The digits of a base at a place, at most this many.
    fn digits(&self, from: usize, base: u32, most: usize) -> &'s str {
        let rest = &self.sql.as_bytes()[from.min(self.sql.len())..];
        let count = rest.iter().take(most).take_while(|byte| char::from(**byte).is_digit(base)).count();
        &self.sql[from..from + count]
    }

    /// Reads what a backslash begins.
    fn escape(&mut self, start: usize, value: &mut Vec<u8>) -> Result<(), SqlError> {
        let from = self.at;
        let Some(&byte) = self.rest().get(1) else {
            return Err(self.near("unterminated quoted string", start, self.sql.len()));
        };
        self.at += 2;
        let one = match byte {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\'' if !self.rules.quotes => {
                let error = SqlError::new(
                    SqlState::NONSTANDARD_USE_OF_ESCAPE_CHARACTER,
                    "unsafe use of \\' in a string literal",
                );
                let hint = "Use '' to write quotes in strings. \\' is insecure in client-only encodings.";
                return Err(self.place(error.with_hint(hint), start));
            }
            b'0'..=b'7' => {
                let digits = self.digits(from + 1, 8, 3);
                self.at = from + 1 + digits.len();
                u16::from_str_radix(digits, 8).unwrap_or_default().to_le_bytes()[0]
            }
            b'x' if !self.digits(from + 2, 16, 2).is_empty() => {
                let digits = self.digits(from + 2, 16, 2);
                self.at = from + 2 + digits.len();
                u8::from_str_radix(digits, 16).unwrap_or_default()
            }
            b'u' | b'U' => {
                let mut first = self.sixteen(from)?;
                if is_first_surrogate(first) {
                    let second = match self.rest() {
                        [b'\\', b'u' | b'U', ..] => self.sixteen(self.at)?,
                        _ => 0,
                    };
                    if !is_second_surrogate(second) {
                        return Err(self.bad_pair());
                    }
                    first = joined(first, second);
                } else if is_second_surrogate(first) {
                    return Err(self.bad_pair());
                }
                let character = char::from_u32(first).filter(|character| *character != '\0');
                let Some(character) = character else {
                    return Err(self.near("invalid Unicode escape value", from, self.at));
                };
                value.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            // Of a longer character the rest follows.
            other => other,
        };
        value.push(one);
        Ok(())
    }

    fn bad_pair(&self) -> SqlError {
        let next = self.sql[self.at..].chars().next().map_or(0, char::len_utf8);
        self.near("invalid Unicode surrogate pair", self.at, self.at + next)
    }

    /// The number of `\uXXXX` or `\UXXXXXXXX`, which begins at this place.
    fn sixteen(&mut self, from: usize) -> Result<u32, SqlError> {
        let wanted = if self.sql.as_bytes()[from + 1] == b'u' { 4 } else { 8 };
        let digits = self.digits(from + 2, 16, wanted);
        if digits.len() < wanted {
            let error = SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid Unicode escape");
            let hint = "Unicode escapes must be \\uXXXX or \\UXXXXXXXX.";
            return Err(self.place(error.with_hint(hint), from));
        }
        self.at = from + 2 + wanted;
        Ok(u32::from_str_radix(digits, 16).unwrap_or_default())
    }

    /// The sign that UESCAPE names, if that follows.
    fn uescape(&mut self) -> Result<char, SqlError> {
        let blanks = |bytes: &[u8]| bytes.iter().take_while(|byte| is_blank(**byte)).count();
        let mut at = self.at + blanks(self.rest());
        let follows = self.sql.as_bytes()[at..].get(..7).is_some_and(|word| word.eq_ignore_ascii_case(b"uescape"));
        if !follows {
            return Ok('\\');
        }
        at += 7;
        at += blanks(&self.sql.as_bytes()[at..]);
        let mut characters = self.sql[at..].chars();
        if characters.next() != Some('\'') {
            let message = "UESCAPE must be followed by a simple string literal";
            return Err(self.place(syntax_error(message), at));
        }
        let (Some(sign), Some('\'')) = (characters.next(), characters.next()) else {
            return Err(self.place(syntax_error("invalid Unicode escape character"), at));
        };
        if sign.is_ascii_hexdigit() || matches!(sign, '+' | '\'' | '"') || sign.is_ascii_whitespace() {
            return Err(self.place(syntax_error("invalid Unicode escape character"), at));
        }
        self.at = at + 2 + sign.len_utf8();
        Ok(sign)
    }

    /// What `U&` makes of a text, which begins at this place.
    fn unicode(&self, text: &str, sign: char, start: usize) -> Result<String, SqlError> {
        let mut value = String::with_capacity(text.len());
        let mut pending = None;
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let at = start + (text.len() - rest.len());
            let refused = |what: &'static str| Err(self.place(syntax_error(what), at.min(self.sql.len())));
            rest = &rest[character.len_utf8()..];
            if character != sign || rest.starts_with(sign) {
                if pending.is_some() {
                    return refused("invalid Unicode surrogate pair");
                }
                if character == sign {
                    rest = &rest[sign.len_utf8()..];
                }
                value.push(character);
                continue;
            }
            let (digits, more) = match rest.strip_prefix('+') {
                Some(more) => (more.get(..6), more.get(6..)),
                None => (rest.get(..4), rest.get(4..)),
            };
            let (Some(digits), Some(more)) =
                (digits.filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit())), more)
            else {
                let error = syntax_error("invalid Unicode escape");
                let hint = "Unicode escapes must be \\XXXX or \\+XXXXXX.";
                return Err(self.place(error.with_hint(hint), at.min(self.sql.len())));
            };
            rest = more;
            let mut number = u32::from_str_radix(digits, 16).unwrap_or_default();
            match pending.take() {
                Some(first) if is_second_surrogate(number) => number = joined(first, number),
                None if is_first_surrogate(number) => {
                    pending = Some(number);
                    continue;
                }
                None if !is_second_surrogate(number) => {}
                _ => return refused("invalid Unicode surrogate pair"),
            }
            match char::from_u32(number) {
                Some(character) if character != '\0' => value.push(character),
                _ => return refused("invalid Unicode escape value"),
            }
        }
        match pending {
            Some(_) => Err(self.place(syntax_error("invalid Unicode surrogate pair"), self.at)),
            None => Ok(value),
        }
    }
}

/// Fails where a literal stands behind another, or behind a number: for the parser it would be a
/// name.
///
/// # Errors
/// 42601
pub fn check_neighbours(tokens: &[TokenWithSpan], sql: &str) -> Result<(), SqlError> {
    let is_text = |token: &Token| matches!(token, Token::SingleQuotedString(_) | Token::DollarQuotedString(_));
    let mut before = &Token::EOF;
    for token in tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))) {
        if is_text(&token.token) && (is_text(before) || matches!(before, Token::Number(..))) {
            let error = syntax_error(format!("syntax error at or near \"{}\"", token.token));
            return Err(super::at(error, sql, token.span.start.line, token.span.start.column));
        }
        before = &token.token;
    }
    Ok(())
}

/// `inet '10.0.0.1'`, `pg_catalog.oid '1'`: a literal of a type that the parser does not know, if
/// that comes next.
pub(super) fn typed(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let is_literal = |token: &Token| matches!(token, Token::SingleQuotedString(_) | Token::DollarQuotedString(_));
    let Token::Word(first) = &parser.peek_token_ref().token else { return None };
    let mut names = 1;
    while parser.peek_nth_token_ref(2 * names - 1).token == Token::Period {
        if !matches!(parser.peek_nth_token_ref(2 * names).token, Token::Word(_)) || names == MOST_NAMES {
            return None;
        }
        names += 1;
    }
    // The names of types among the parser's words. All others begin something else.
    let begins = first.quote_style.is_some()
        || names > 1
        || matches!(first.keyword, Keyword::NoKeyword | Keyword::NAME | Keyword::UNKNOWN | Keyword::XML);
    if !begins || !is_literal(&parser.peek_nth_token_ref(2 * names - 1).token) {
        return None;
    }
    Some(parser.parse_object_name(false).and_then(|name| {
        let data_type = DataType::Custom(name, Vec::new());
        Ok(Expr::TypedString(TypedString { data_type, value: parser.parse_value()?, uses_odbc_syntax: false }))
    }))
}

/// A name has at most this many parts.
const MOST_NAMES: usize = 3;

fn is_first_surrogate(number: u32) -> bool {
    (0xd800..0xdc00).contains(&number)
}

fn is_second_surrogate(number: u32) -> bool {
    (0xdc00..0xe000).contains(&number)
}

/// The character that two surrogates stand for.
fn joined(first: u32, second: u32) -> u32 {
    0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff)
}

fn not_utf8(bytes: &[u8]) -> SqlError {
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("0x{byte:02x}")).collect();
    let message = format!("invalid byte sequence for encoding \"UTF8\": {}", bytes.join(" "));
    SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::Remarks;

    /// All texts of four of these parts are read, or refused.
    #[test]
    fn no_text_does_harm() {
        let parts = [
            "'",
            "''",
            "\\",
            "\\'",
            "e'",
            "U&'",
            "u&\"",
            "\"",
            "n'",
            "\\u",
            "\\ud83d",
            "\\U0001f600",
            "\n",
            "--",
            "/*",
            "*/",
            "$$",
            "$é$",
            "$",
            "é",
            "\\x8",
            "\\00",
            "\\é",
            " uescape '!'",
            " uescape 'é",
            "!00",
            "+",
            "0041",
            "a",
        ];
        for rules in [Rules::default(), Rules { standard: false, warns: true, quotes: false }] {
            for number in 0..parts.len().pow(4) {
                let part = |power: u32| parts[number / parts.len().pow(power) % parts.len()];
                let sql = [part(0), part(1), part(2), part(3)].concat();
                let mut warnings = Vec::new();
                let Ok(Some(masked)) = masked(&sql, rules, &mut warnings) else { continue };
                let lines = |text: &str| text.split('\n').map(|line| line.chars().count()).collect::<Vec<_>>();
                assert_eq!(lines(&sql), lines(&masked.text), "{sql:?} becomes {:?}", masked.text);
                assert!(warnings.len() <= masked.values.len());
            }
        }
    }

    #[test]
    fn places_are_those_of_the_text() {
        let mut remarks = Remarks::default();
        let sql = "e'\\t\né' , x";
        let read = crate::syntax::read_within(
            sql,
            |_| Ok(()),
            Rules::default(),
            &mut remarks,
            |parser| {
                let value = parser.next_token();
                (0..2).for_each(|_| parser.advance_token());
                Ok((value, parser.get_current_token().span.start))
            },
        );
        let (value, place) = read.unwrap();
        assert_eq!(value.token, Token::SingleQuotedString("\t\né".to_owned()));
        assert_eq!((place.line, place.column), (2, 6));
    }
}
