//! The tokens of JSON, and the check whether text is JSON.

use super::MAX_DEPTH;
use crate::{SqlError, SqlState, work};

/// A token; strings and numbers are taken from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    ObjectStart,
    ObjectEnd,
    ArrayStart,
    ArrayEnd,
    Comma,
    Colon,
    String,
    Number,
    True,
    False,
    Null,
    End,
}

/// Reads tokens off a text.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    /// Where the last token begins and ends.
    pub start: usize,
    pub end: usize,
}

#[cold]
pub(super) fn invalid(detail: String) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json").with_detail(detail)
}

#[cold]
pub(super) fn too_deep() -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .with_detail(format!("JSON may be nested {MAX_DEPTH} deep."))
}

impl<'a> Scanner<'a> {
    pub const fn new(text: &'a str) -> Self {
        Self { text, start: 0, end: 0 }
    }

    /// The last token's text.
    pub fn lexeme(&self) -> &'a str {
        self.text.get(self.start..self.end).unwrap_or("")
    }

    /// The next token.
    pub fn next(&mut self) -> Result<Token, SqlError> {
        let bytes = self.text.as_bytes();
        let mut at = self.end;
        while bytes.get(at).is_some_and(|byte| b" \t\r\n".contains(byte)) {
            at += 1;
        }
        self.start = at;
        self.end = at + 1;
        let Some(&first) = bytes.get(at) else {
            self.end = at;
            return Ok(Token::End);
        };
        Ok(match first {
            b'{' => Token::ObjectStart,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayStart,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => {
                self.string()?;
                Token::String
            }
            b'-' | b'0'..=b'9' => {
                self.number()?;
                Token::Number
            }
            _ => {
                let of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
                while of_word(&first) && bytes.get(self.end).is_some_and(of_word) {
                    self.end += 1;
                }
                match self.lexeme() {
                    "true" => Token::True,
                    "false" => Token::False,
                    "null" => Token::Null,
                    word => return Err(invalid(format!("Token \"{word}\" is invalid."))),
                }
            }
        })
    }

    fn string(&mut self) -> Result<(), SqlError> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.end) {
                None => {
                    self.end = bytes.len();
                    return Err(invalid(format!("Token \"{}\" is invalid.", self.lexeme())));
                }
                Some(b'"') => {
                    self.end += 1;
                    return Ok(());
                }
                Some(&byte @ ..0x20) => {
                    return Err(invalid(format!("Character with value 0x{byte:02x} must be escaped.")));
                }
                Some(b'\\') => match bytes.get(self.end + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.end += 2,
                    Some(b'u') => {
                        let digits = bytes.get(self.end + 2..self.end + 6);
                        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                            return Err(invalid("\"\\u\" must be followed by four hexadecimal digits.".to_owned()));
                        }
                        self.end += 6;
                    }
                    None => {
                        self.end = bytes.len();
                        return Err(invalid(format!("Token \"{}\" is invalid.", self.lexeme())));
                    }
                    Some(_) => {
                        let wrong = self.text[self.end + 1..].chars().next().unwrap_or(' ');
                        return Err(invalid(format!("Escape sequence \"\\{wrong}\" is invalid.")));
                    }
                },
                Some(_) => self.end += 1,
            }
        }
    }

    fn number(&mut self) -> Result<(), SqlError> {
        let bytes = self.text.as_bytes();
        let mut at = self.start;
        let digits = |at: &mut usize| {
            let from = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            *at > from
        };
        if bytes[at] == b'-' {
            at += 1;
        }
        let mut good = match bytes.get(at) {
            Some(b'0') => {
                at += 1;
                true
            }
            _ => digits(&mut at),
        };
        if good && bytes.get(at) == Some(&b'.') {
            at += 1;
            good = digits(&mut at);
        }
        if good && matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1;
            if matches!(bytes.get(at), Some(b'+' | b'-')) {
                at += 1;
            }
            good = digits(&mut at);
        }
        self.end = at;
        let trailing = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
        if !good || bytes.get(at).is_some_and(trailing) {
            while bytes.get(self.end).is_some_and(trailing) {
                self.end += 1;
            }
            return Err(invalid(format!("Token \"{}\" is invalid.", self.lexeme())));
        }
        Ok(())
    }

    /// The error for a token where something else is expected.
    #[cold]
    pub fn unexpected(&self, token: Token, expected: &str) -> SqlError {
        match token {
            Token::End => invalid("The input string ended unexpectedly.".to_owned()),
            _ => invalid(format!("Expected {expected}, but found \"{}\".", self.lexeme())),
        }
    }
}

/// What may come next.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    CommaOrEnd,
    Nothing,
}

/// Checks that text is JSON.
///
/// # Errors
/// 22P02 when it is not.
pub fn check(text: &str) -> Result<(), SqlError> {
    let mut scanner = Scanner::new(text);
    // What is open: objects are true.
    let mut open: Vec<bool> = Vec::new();
    let mut expected = Expected::Value;
    loop {
        let token = scanner.next()?;
        work::done(1 + (scanner.end - scanner.start) / 16)?;
        let after_value = if open.is_empty() { Expected::Nothing } else { Expected::CommaOrEnd };
        expected = match (expected, token) {
            (Expected::Nothing, Token::End) => return Ok(()),
            (Expected::Nothing, _) => return Err(scanner.unexpected(token, "end of input")),
            (Expected::KeyOrEnd, Token::ObjectEnd) | (Expected::ValueOrEnd, Token::ArrayEnd) => {
                open.pop();
                if open.is_empty() { Expected::Nothing } else { Expected::CommaOrEnd }
            }
            (Expected::Key | Expected::KeyOrEnd, Token::String) => {
                let colon = scanner.next()?;
                if colon != Token::Colon {
                    return Err(scanner.unexpected(colon, "\":\""));
                }
                Expected::Value
            }
            (Expected::Key, _) => return Err(scanner.unexpected(token, "string")),
            (Expected::KeyOrEnd, _) => return Err(scanner.unexpected(token, "string or \"}\"")),
            (Expected::CommaOrEnd, _) => {
                let object = open.last() == Some(&true);
                match token {
                    Token::Comma => {
                        if object {
                            Expected::Key
                        } else {
                            Expected::Value
                        }
                    }
                    Token::ObjectEnd if object => {
                        open.pop();
                        if open.is_empty() { Expected::Nothing } else { Expected::CommaOrEnd }
                    }
                    Token::ArrayEnd if !object => {
                        open.pop();
                        if open.is_empty() { Expected::Nothing } else { Expected::CommaOrEnd }
                    }
                    _ => {
                        return Err(scanner.unexpected(token, if object { "\",\" or \"}\"" } else { "\",\" or \"]\"" }));
                    }
                }
            }
            (_, Token::ObjectStart | Token::ArrayStart) => {
                if open.len() >= MAX_DEPTH {
                    return Err(too_deep());
                }
                open.push(token == Token::ObjectStart);
                if token == Token::ObjectStart { Expected::KeyOrEnd } else { Expected::ValueOrEnd }
            }
            (_, Token::String | Token::Number | Token::True | Token::False | Token::Null) => after_value,
            (Expected::Value | Expected::ValueOrEnd, _) => return Err(scanner.unexpected(token, "JSON value")),
        };
    }
}
