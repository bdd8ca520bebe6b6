//! The canonical form of a text, written while it is read: nothing is kept of it but the keys of
//! the objects that are open.

use std::{borrow::Cow, ops::Range};

use super::{
    MAX_DEPTH,
    scan::{Scanner, Token, too_deep},
    tree::{compare_keys, number, unescape, write_string},
};
use crate::{
    SqlError,
    functions::checked_length,
    work::{self, Kept},
};

/// The canonical form of JSON.
///
/// # Errors
/// 22P02 when it is not JSON, 22P05 when it contains U+0000, 22003 when a number is too large,
/// 54000 when it becomes too long; 53200, 57014, 57P01.
pub fn canonical(text: &str) -> Result<String, SqlError> {
    let mut writer = Writer { scanner: Scanner::new(text), out: String::new(), members: 0, kept: work::kept() };
    let first = writer.scanner.next()?;
    writer.value(first, 0)?;
    match writer.scanner.next()? {
        Token::End => Ok(writer.out),
        token => Err(writer.scanner.unexpected(token, "end of input")),
    }
}

struct Writer<'a> {
    scanner: Scanner<'a>,
    out: String,
    /// How many members of objects are remembered.
    members: usize,
    kept: Kept,
}

/// A key, and where its member lies in what was written.
type Member<'a> = (Cow<'a, str>, Range<usize>);

impl<'a> Writer<'a> {
    fn value(&mut self, token: Token, depth: usize) -> Result<(), SqlError> {
        let lexeme = self.scanner.lexeme();
        match token {
            Token::Null | Token::True | Token::False => self.out.push_str(lexeme),
            Token::Number => self.out.push_str(&number(lexeme)?),
            Token::String => write_string(&unescape(lexeme)?, &mut self.out),
            Token::ObjectStart | Token::ArrayStart if depth >= MAX_DEPTH => return Err(too_deep()),
            Token::ArrayStart => self.array(depth)?,
            Token::ObjectStart => self.object(depth)?,
            _ => return Err(self.scanner.unexpected(token, "JSON value")),
        }
        self.written(lexeme.len())
    }

    /// Counts what was read, and what is kept.
    fn written(&mut self, read: usize) -> Result<(), SqlError> {
        work::done(1 + read / 16)?;
        checked_length(self.out.len())?;
        self.kept.grown_to(self.out.capacity() + self.members * 2 * size_of::<Member<'_>>())
    }

    fn array(&mut self, depth: usize) -> Result<(), SqlError> {
        self.out.push('[');
        let mut token = self.scanner.next()?;
        if token == Token::ArrayEnd {
            self.out.push(']');
            return Ok(());
        }
        loop {
            self.value(token, depth + 1)?;
            match self.scanner.next()? {
                Token::Comma => token = self.scanner.next()?,
                Token::ArrayEnd => break,
                token => return Err(self.scanner.unexpected(token, "\",\" or \"]\"")),
            }
            self.out.push_str(", ");
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), SqlError> {
        self.out.push('{');
        let start = self.out.len();
        let mut members: Vec<Member<'a>> = Vec::new();
        let mut token = self.scanner.next()?;
        if token == Token::ObjectEnd {
            self.out.push('}');
            return Ok(());
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
            let from = self.out.len();
            write_string(&key, &mut self.out);
            self.out.push_str(": ");
            token = self.scanner.next()?;
            self.value(token, depth + 1)?;
            members.push((key, from..self.out.len()));
            self.members += 1;
            match self.scanner.next()? {
                Token::Comma => token = self.scanner.next()?,
                Token::ObjectEnd => break,
                token => return Err(self.scanner.unexpected(token, "\",\" or \"}\"")),
            }
            self.out.push_str(", ");
        }
        self.members -= members.len();
        let in_order = |pair: &[Member<'_>]| compare_keys(&pair[0].0, &pair[1].0).is_lt();
        if !members.windows(2).all(in_order) {
            self.put_in_order(start, members)?;
        }
        self.out.push('}');
        Ok(())
    }

    /// Puts the members that were written from `start` on in order. The last of those with equal
    /// keys stays.
    fn put_in_order(&mut self, start: usize, mut members: Vec<Member<'a>>) -> Result<(), SqlError> {
        work::bulk(self.out.len() - start)?;
        let _moved = work::keep(self.out.len() - start)?;
        let written = self.out.split_off(start);
        // The sort is stable: equal keys stay in their order.
        members.sort_by(|(one, _), (two, _)| compare_keys(one, two));
        for (at, (key, place)) in members.iter().enumerate() {
            if members.get(at + 1).is_some_and(|(next, _)| next == key) {
                continue;
            }
            if self.out.len() > start {
                self.out.push_str(", ");
            }
            self.out.push_str(&written[place.start - start..place.end - start]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SqlState, memory::Pool, types::json::Json};

    #[test]
    fn it_is_what_the_tree_would_be() {
        for text in [
            "1",
            " [ ] ",
            "{}",
            "[1 , [2.50e1, -0, \"a\\u0041\\n\"],{}]",
            r#"{"b":1,"a":2}"#,
            r#"{"a":1,"b":{"zz":1,"y":[{"q":1,"q":2}],"zz":3},"a":null}"#,
            r#"{"aa":1,"b":2,"":3,"aa":{"x":1,"x":2}}"#,
        ] {
            assert_eq!(canonical(text).unwrap(), Json::parse(text).unwrap().canonical(), "{text}");
        }
        for text in [
            "",
            "[1,]",
            "{1:2}",
            "{\"a\" 1}",
            "[1 2]",
            "{\"a\":1,}",
            "[]]",
            "{\"a\":1 \"b\"}",
            "\"\\u0000\"",
            "1e999999",
        ] {
            assert_eq!(canonical(text).unwrap_err(), Json::parse(text).unwrap_err(), "{text}");
        }
    }

    #[test]
    fn it_takes_no_more_than_it_writes_and_can_be_ended() {
        let text = format!("[{}1]", "1,".repeat(200_000));
        let memory = Pool::of(4 << 20);
        let within = |memory: &_, check: &dyn Fn() -> Result<(), SqlError>| {
            work::within(check, memory, || canonical(&text).map(drop))
        };
        within(&memory, &|| Ok(())).unwrap();
        assert_eq!(memory.used(), 0);
        assert_eq!(within(&Pool::of(300_000), &|| Ok(())).unwrap_err().state, SqlState::OUT_OF_MEMORY);
        let ended = || Err(SqlError::new(SqlState::QUERY_CANCELED, "canceled"));
        assert_eq!(within(&memory, &ended).unwrap_err().state, SqlState::QUERY_CANCELED);
        // A tree of the same takes as much as it takes, which is counted.
        let tree = work::within(&|| Ok(()), &memory, || Json::parse(&text).map(drop));
        assert_eq!(tree.unwrap_err().state, SqlState::OUT_OF_MEMORY);
        let endless = || Json::parse(&text).map(drop);
        assert_eq!(work::within(&ended, &Pool::of(1 << 30), endless).unwrap_err().state, SqlState::QUERY_CANCELED);
    }
}
