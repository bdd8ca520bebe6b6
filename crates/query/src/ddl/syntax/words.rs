//! Reading words, and which definition it is that they begin.

use sqlparser::{
    ast::{ArrayElemTypeDef, DataType, Expr},
    parser::{Parser, ParserError},
    tokenizer::{Token, TokenWithSpan},
};

use super::{Definition, Lock, Name, RoleName};
use crate::{bind::name_of, locks::LockMode, syntax::PostgreSql};

pub(crate) type Read<T> = Result<T, ParserError>;

/// A parser that goes by words: keywords mean nothing by themselves.
pub(crate) struct Words<'p, 'd> {
    pub(crate) parser: &'p mut Parser<'d>,
    /// Something in the statement that is not offered.
    pub(crate) unsupported: Option<&'static str>,
}

fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(known) if known.quote_style.is_none() && known.value.eq_ignore_ascii_case(word))
}

/// The words that definitions begin with.
const FIRST: &[&str] = &[
    "create", "alter", "drop", "truncate", "grant", "revoke", "reassign", "lock", "comment", "reindex", "cluster",
    "security",
];

/// Whether a definition comes next, or something that should be one.
pub fn starts_definition(parser: &Parser<'_>) -> bool {
    FIRST.iter().any(|word| is_word(parser.peek_token_ref(), word))
}

impl Words<'_, '_> {
    /// Whether these words come next.
    pub(crate) fn sees(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(at, word)| is_word(self.parser.peek_nth_token_ref(at), word))
    }

    /// Reads these words, if they come next.
    pub(crate) fn takes(&mut self, words: &[&str]) -> bool {
        let sees = self.sees(words);
        if sees {
            words.iter().for_each(|_| self.parser.advance_token());
        }
        sees
    }

    /// Reads one of these words, if one comes next, and says which.
    pub(crate) fn takes_any(&mut self, words: &[&'static str]) -> Option<&'static str> {
        words.iter().find(|word| self.takes(&[word])).copied()
    }

    /// Reads these words.
    pub(crate) fn expect(&mut self, words: &[&str]) -> Read<()> {
        if self.takes(words) { Ok(()) } else { self.fail(&words.join(" ").to_uppercase()) }
    }

    /// What comes next is wrong.
    pub(crate) fn fail<T>(&self, expected: &str) -> Read<T> {
        self.parser.expected_ref(expected, self.parser.peek_token_ref())
    }

    pub(crate) fn sees_token(&self, token: &Token) -> bool {
        self.parser.peek_token_ref().token == *token
    }

    pub(crate) fn token(&mut self, token: &Token) -> bool {
        self.parser.consume_token(token)
    }

    pub(crate) fn expect_token(&mut self, token: &Token) -> Read<()> {
        self.parser.expect_token(token).map(drop)
    }

    /// Whether the statement ends here.
    pub(crate) fn ends(&self) -> bool {
        matches!(self.parser.peek_token_ref().token, Token::EOF | Token::SemiColon)
    }

    pub(crate) fn ident(&mut self) -> Read<String> {
        if matches!(self.parser.peek_token_ref().token, Token::SingleQuotedString(_)) {
            return self.fail("identifier");
        }
        Ok(name_of(&self.parser.parse_identifier()?))
    }

    /// A type; `ARRAY` after it is the standard's way to say that it is one of arrays.
    pub(super) fn data_type(&mut self) -> Read<DataType> {
        let ty = self.parser.parse_data_type()?;
        if matches!(ty, DataType::Array(_)) || !self.takes(&["array"]) {
            return Ok(ty);
        }
        let length = if self.token(&Token::LBracket) {
            let length = self.parser.parse_literal_uint()?;
            self.expect_token(&Token::RBracket)?;
            Some(length)
        } else {
            None
        };
        Ok(DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(ty), length)))
    }

    /// A name, and the schema and the database that may stand before it.
    pub(crate) fn name(&mut self) -> Read<Name> {
        let mut parts = vec![self.ident()?];
        while self.token(&Token::Period) {
            parts.push(self.ident()?);
        }
        if parts.len() > 3 {
            let joined = parts.join(".");
            return Err(ParserError::ParserError(format!("improper qualified name (too many dotted names): {joined}")));
        }
        let name = parts.pop().unwrap_or_default();
        let schema = parts.pop();
        Ok(Name { database: parts.pop(), schema, name })
    }

    pub(crate) fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let mut all = vec![one(self)?];
        while self.token(&Token::Comma) {
            all.push(one(self)?);
        }
        Ok(all)
    }

    /// A list in parentheses.
    pub(crate) fn listed<T>(&mut self, one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        self.expect_token(&Token::LParen)?;
        let all = self.list(one)?;
        self.expect_token(&Token::RParen)?;
        Ok(all)
    }

    pub(crate) fn names(&mut self) -> Read<Vec<Name>> {
        self.list(Self::name)
    }

    pub(crate) fn idents(&mut self) -> Read<Vec<String>> {
        self.list(Self::ident)
    }

    pub(crate) fn role(&mut self) -> Read<RoleName> {
        if let Token::Word(word) = &self.parser.peek_token_ref().token
            && word.quote_style.is_none()
        {
            let known = match word.value.to_ascii_lowercase().as_str() {
                "current_user" | "current_role" => Some(RoleName::Current),
                "session_user" => Some(RoleName::Session),
                "public" => Some(RoleName::Public),
                _ => None,
            };
            if let Some(known) = known {
                self.parser.advance_token();
                return Ok(known);
            }
        }
        self.ident().map(RoleName::Named)
    }

    pub(crate) fn if_not_exists(&mut self) -> bool {
        self.takes(&["if", "not", "exists"])
    }

    pub(crate) fn if_exists(&mut self) -> bool {
        self.takes(&["if", "exists"])
    }

    /// CASCADE or RESTRICT, or nothing of the kind.
    pub(crate) fn cascade(&mut self) -> bool {
        self.takes_any(&["cascade", "restrict"]) == Some("cascade")
    }

    pub(crate) fn integer(&mut self) -> Read<i64> {
        let negative = self.token(&Token::Minus);
        if !negative {
            self.token(&Token::Plus);
        }
        match &self.parser.peek_token_ref().token {
            Token::Number(digits, _) => {
                let signed = if negative { format!("-{digits}") } else { digits.clone() };
                let Ok(number) = signed.parse() else { return self.fail("a number of 64 bits") };
                self.parser.advance_token();
                Ok(number)
            }
            _ => self.fail("a number"),
        }
    }

    /// `name`, `name = value`; the name may have two parts.
    pub(crate) fn storage_option(&mut self) -> Read<super::StorageOption> {
        let mut name = self.ident()?;
        if self.token(&Token::Period) {
            name = format!("{name}.{}", self.ident()?);
        }
        if !self.token(&Token::Eq) {
            return Ok((name, None));
        }
        let sign = if self.token(&Token::Minus) { "-" } else { "" };
        let value = match self.parser.next_token().token {
            Token::Word(word) => word.value,
            Token::Number(digits, _) => format!("{sign}{digits}"),
            Token::SingleQuotedString(text) => text,
            _ => return self.fail("the value of an option"),
        };
        Ok((name, Some(value)))
    }

    /// Passes over what stands in parentheses.
    pub(crate) fn parentheses(&mut self) -> Read<()> {
        self.expect_token(&Token::LParen)?;
        let mut depth = 1;
        while depth > 0 {
            match self.parser.next_token().token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                Token::EOF => return self.fail(")"),
                _ => {}
            }
        }
        Ok(())
    }

    /// The expression of a DEFAULT: it ends where another clause of the column begins.
    pub(crate) fn default(&mut self) -> Read<Expr> {
        const ENDS: &[&str] = &[
            "not",
            "null",
            "constraint",
            "primary",
            "unique",
            "check",
            "references",
            "generated",
            "collate",
            "default",
            "deferrable",
            "initially",
            "storage",
            "compression",
        ];
        let mut tokens = Vec::new();
        let mut depth = 0;
        loop {
            let next = self.parser.peek_token_ref();
            match &next.token {
                Token::EOF | Token::SemiColon => break,
                Token::Comma | Token::RParen if depth == 0 => break,
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => depth -= 1,
                _ if depth == 0 && !tokens.is_empty() && ENDS.iter().any(|word| is_word(next, word)) => break,
                _ => {}
            }
            tokens.push(self.parser.next_token());
        }
        if tokens.is_empty() {
            return self.fail("an expression");
        }
        let mut part = Parser::new(&PostgreSql).with_tokens_with_locations(tokens);
        let expression = crate::syntax::parse_expression(&mut part)?;
        match part.peek_token_ref().token {
            Token::EOF => Ok(expression),
            _ => part.expected_ref("the end of an expression", part.peek_token_ref()),
        }
    }

    /// Passes over the rest of the statement.
    pub(super) fn rest(&mut self) {
        while !self.ends() {
            self.parser.advance_token();
        }
    }

    fn not_offered(&mut self, words: usize) -> Definition {
        let mut unsupported = Vec::new();
        for at in 0..words {
            if let Token::Word(word) = &self.parser.peek_nth_token_ref(at).token {
                unsupported.push(word.value.to_uppercase());
            }
        }
        self.rest();
        Definition::Unsupported(unsupported.join(" "))
    }

    fn lock(&mut self) -> Read<Definition> {
        self.takes(&["table"]);
        let tables = self.list(|it| {
            it.takes(&["only"]);
            let name = it.name()?;
            it.token(&Token::Mul);
            Ok(name)
        })?;
        let mut mode = LockMode::AccessExclusive;
        if self.takes(&["in"]) {
            let named = LockMode::ALL.iter().find(|mode| {
                let words = mode.name().to_ascii_lowercase();
                let mut words: Vec<&str> = words.split(' ').collect();
                words.push("mode");
                self.takes(&words)
            });
            mode = match named {
                Some(mode) => *mode,
                None => return self.fail("a lock mode"),
            };
        }
        let no_wait = self.takes(&["nowait"]);
        Ok(Definition::Lock(Lock { tables, mode, no_wait }))
    }

    fn create(&mut self) -> Read<Definition> {
        // What is said before the kind of thing.
        let mut at = 1;
        let mut table_like = true;
        loop {
            let next = self.parser.peek_nth_token_ref(at);
            let passed = ["or", "replace", "global", "local", "temp", "temporary", "unlogged", "unique", "recursive"];
            if !passed.iter().any(|word| is_word(next, word)) {
                break;
            }
            if is_word(next, "or") {
                table_like = false;
            }
            at += 1;
        }
        let Token::Word(kind) = &self.parser.peek_nth_token_ref(at).token else {
            return self.fail("a kind of object after CREATE");
        };
        match kind.value.to_ascii_lowercase().as_str() {
            "table" if table_like => self.create_table(),
            "index" if table_like => self.create_index(),
            "sequence" if table_like => self.create_sequence(),
            "view" => self.create_view(),
            "schema" if at == 1 => self.create_schema(),
            "database" if at == 1 => self.create_database(),
            "extension" if at == 1 => self.create_extension(),
            "role" | "user" | "group" if at == 1 && !is_word(self.parser.peek_nth_token_ref(2), "mapping") => {
                self.create_role()
            }
            _ => Ok(self.not_offered(at + 1)),
        }
    }

    fn alter(&mut self) -> Read<Definition> {
        let Token::Word(kind) = &self.parser.peek_nth_token_ref(1).token else {
            return self.fail("a kind of object after ALTER");
        };
        match kind.value.to_ascii_lowercase().as_str() {
            "table" | "index" | "view" => self.alter_table(),
            "sequence" => self.alter_sequence(),
            "schema" => self.alter_schema(),
            "role" | "user" | "group" => self.alter_role(),
            "database" => self.alter_database(),
            "extension" => self.alter_extension(),
            _ => Ok(self.not_offered(2)),
        }
    }
}

/// Reads what ON CONFLICT says of an index: what it is on, and which rows it has.
///
/// # Errors
/// When it makes no sense.
pub fn conflict_target(sql: &str) -> Result<(Vec<super::IndexElement>, Option<Expr>), freshet_sql::SqlError> {
    crate::syntax::read(sql, |parser| {
        let mut words = Words { parser, unsupported: None };
        let mut read = || {
            let elements = words.listed(Words::index_element)?;
            let predicate =
                if words.takes(&["where"]) { Some(crate::syntax::parse_expression(words.parser)?) } else { None };
            if words.ends() { Ok((elements, predicate)) } else { words.fail("DO") }
        };
        // Where it stands in the statement is not known any more.
        read().map_err(|error| {
            let wrong = crate::syntax::wrong(error, sql);
            freshet_sql::SqlError::new(wrong.state, wrong.message.clone())
        })
    })
}

pub(crate) fn definition(parser: &mut Parser<'_>) -> Read<Option<Definition>> {
    if !starts_definition(parser) {
        return Ok(None);
    }
    let mut words = Words { parser, unsupported: None };
    let definition = match words.parser.peek_token_ref().token.to_string().to_ascii_lowercase().as_str() {
        "create" => words.create()?,
        "alter" => words.alter()?,
        "drop" => words.drop()?,
        "truncate" => words.truncate()?,
        "grant" => words.grant(true)?,
        "revoke" => words.grant(false)?,
        "lock" => {
            words.parser.advance_token();
            words.lock()?
        }
        "reassign" => {
            words.expect(&["reassign", "owned", "by"])?;
            let from = words.list(Words::role)?;
            words.expect(&["to"])?;
            Definition::ReassignOwned { from, to: words.role()? }
        }
        "comment" => words.comment()?,
        _ => words.not_offered(1),
    };
    if !words.ends() {
        return words.fail("end of statement");
    }
    Ok(Some(match words.unsupported {
        Some(what) => Definition::Unsupported(what.to_owned()),
        None => definition,
    }))
}
