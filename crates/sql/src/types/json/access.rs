//! Members and elements, found in the text.

use std::{borrow::Cow, ops::Range, sync::Arc};

use super::{
    scan::{Scanner, Token},
    tree::unescape,
};
use crate::{SqlError, work};

/// One step into a value.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The member of an object.
    Key(&'a str),
    /// The element of an array, from 0, or from -1 backward.
    Index(i64),
}

/// Skips the value that begins with `token`; its text ends where the scanner then stands.
fn skip(scanner: &mut Scanner<'_>, token: Token) -> Result<(), SqlError> {
    let mut depth = 0usize;
    let mut token = token;
    loop {
        match token {
            Token::ObjectStart | Token::ArrayStart => depth += 1,
            Token::ObjectEnd | Token::ArrayEnd => depth = depth.saturating_sub(1),
            Token::End => return Err(scanner.unexpected(token, "JSON value")),
            _ => {}
        }
        work::done(1 + (scanner.end - scanner.start) / 16)?;
        if depth == 0 {
            return Ok(());
        }
        token = scanner.next()?;
    }
}

/// Key and value of a member of an object; the value as its text.
pub type Member<'a> = (Cow<'a, str>, &'a str);

/// The members of an object, as text of key and value; nothing for what is no object.
///
/// # Errors
/// When the text is not JSON.
pub fn members(text: &str) -> Result<Option<Vec<Member<'_>>>, SqlError> {
    let mut all = Vec::new();
    let object = each_member(text, |key, value| {
        all.push((key, value));
        false
    })?;
    Ok(object.then_some(all))
}

/// Calls for each member until told to stop. Says whether there is an object.
fn each_member<'a>(text: &'a str, mut found: impl FnMut(Cow<'a, str>, &'a str) -> bool) -> Result<bool, SqlError> {
    let mut scanner = Scanner::new(text);
    if scanner.next()? != Token::ObjectStart {
        return Ok(false);
    }
    let mut token = scanner.next()?;
    while token == Token::String {
        let key = unescape(scanner.lexeme())?;
        scanner.next()?;
        let first = scanner.next()?;
        let start = scanner.start;
        skip(&mut scanner, first)?;
        if found(key, &text[start..scanner.end]) {
            break;
        }
        if scanner.next()? != Token::Comma {
            break;
        }
        token = scanner.next()?;
    }
    Ok(true)
}

/// The elements of an array, as text; nothing for what is no array.
///
/// # Errors
/// When the text is not JSON.
pub fn elements(text: &str) -> Result<Option<Vec<&str>>, SqlError> {
    let mut all = Vec::new();
    let array = each_element(text, |element| {
        all.push(element);
        false
    })?;
    Ok(array.then_some(all))
}

fn each_element<'a>(text: &'a str, mut found: impl FnMut(&'a str) -> bool) -> Result<bool, SqlError> {
    let mut scanner = Scanner::new(text);
    if scanner.next()? != Token::ArrayStart {
        return Ok(false);
    }
    let mut token = scanner.next()?;
    while token != Token::ArrayEnd {
        let start = scanner.start;
        skip(&mut scanner, token)?;
        if found(&text[start..scanner.end]) || scanner.next()? != Token::Comma {
            break;
        }
        token = scanner.next()?;
    }
    Ok(true)
}

/// The elements of an array or the members of an object, found one after the other.
#[derive(Debug)]
pub struct Walk {
    text: Arc<str>,
    /// Behind what was found last, and its comma.
    at: usize,
    object: bool,
    ended: bool,
}

/// Where a key lies, and where a value.
type Places = (Range<usize>, Range<usize>);

impl Walk {
    /// Through an array or an object; nothing for what is neither.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn through(text: Arc<str>) -> Result<Option<Self>, SqlError> {
        let mut scanner = Scanner::new(&text);
        let (at, object) = match scanner.next()? {
            Token::ArrayStart => (scanner.end, false),
            Token::ObjectStart => (scanner.end, true),
            _ => return Ok(None),
        };
        Ok(Some(Self { text, at, object, ended: false }))
    }

    /// Whether it goes through an object.
    pub fn is_of_object(&self) -> bool {
        self.object
    }

    /// Where the next one lies: the token of its key, which an element has not, and its value.
    fn step(&mut self) -> Result<Option<Places>, SqlError> {
        let mut scanner = Scanner::new(&self.text);
        scanner.end = self.at;
        let mut token = scanner.next()?;
        if matches!(token, Token::ArrayEnd | Token::ObjectEnd) {
            return Ok(None);
        }
        let mut key = 0..0;
        if self.object {
            key = scanner.start..scanner.end;
            scanner.next()?;
            token = scanner.next()?;
        }
        let start = scanner.start;
        skip(&mut scanner, token)?;
        let value = start..scanner.end;
        self.ended = scanner.next()? != Token::Comma;
        self.at = scanner.end;
        Ok(Some((key, value)))
    }

    /// The next one: its key, which is empty for an element, and the text of its value.
    ///
    /// # Errors
    /// When the text is not JSON; 57014, 57P01.
    #[expect(clippy::should_implement_trait, reason = "what is found is borrowed")]
    pub fn next(&mut self) -> Result<Option<Member<'_>>, SqlError> {
        if self.ended {
            return Ok(None);
        }
        let Some((key, value)) = self.step()? else {
            self.ended = true;
            return Ok(None);
        };
        Ok(Some((unescape(&self.text[key])?, &self.text[value])))
    }
}

/// What one step leads to. Of members with equal keys, that is the last.
///
/// # Errors
/// When the text is not JSON.
pub fn get<'a>(text: &'a str, step: Step<'_>) -> Result<Option<&'a str>, SqlError> {
    let mut result = None;
    match step {
        Step::Key(key) => {
            each_member(text, |known, value| {
                if known == key {
                    result = Some(value);
                }
                false
            })?;
        }
        Step::Index(index) => {
            let mut at = match index {
                0.. => index,
                _ => match elements(text)? {
                    Some(all) => index.saturating_add(all.len() as i64),
                    None => return Ok(None),
                },
            };
            if at >= 0 {
                each_element(text, |element| {
                    at -= 1;
                    if at < 0 {
                        result = Some(element);
                    }
                    at < 0
                })?;
            }
        }
    }
    Ok(result)
}

/// What a path of keys leads to; a number among them is an element's where an array is.
///
/// # Errors
/// When the text is not JSON.
pub fn path(text: &str, steps: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Option<&str>, SqlError> {
    let mut at = text.trim_matches([' ', '\t', '\r', '\n']);
    for step in steps {
        let step = step.as_ref();
        let found = if at.starts_with('[') {
            match step.parse() {
                Ok(index) => get(at, Step::Index(index))?,
                Err(_) => None,
            }
        } else {
            get(at, Step::Key(step))?
        };
        match found {
            Some(found) => at = found,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// A value as text: strings without quotes and escapes, nothing for null, all else as it stands.
///
/// # Errors
/// When the text is not JSON, or contains U+0000.
pub fn scalar_text(text: &str) -> Result<Option<Cow<'_, str>>, SqlError> {
    let mut scanner = Scanner::new(text);
    Ok(match scanner.next()? {
        Token::Null => None,
        Token::String => Some(unescape(scanner.lexeme())?),
        _ => Some(Cow::Borrowed(text)),
    })
}

/// What kind of value it is, as `jsonb_typeof` says it.
///
/// # Errors
/// When the text is not JSON.
pub fn type_name(text: &str) -> Result<&'static str, SqlError> {
    let mut scanner = Scanner::new(text);
    let token = scanner.next()?;
    Ok(match token {
        Token::ObjectStart => "object",
        Token::ArrayStart => "array",
        Token::String => "string",
        Token::Number => "number",
        Token::True | Token::False => "boolean",
        Token::Null => "null",
        _ => return Err(scanner.unexpected(token, "JSON value")),
    })
}
