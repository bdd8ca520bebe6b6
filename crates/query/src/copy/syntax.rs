//! The statement itself. sqlparser takes only a part of what PostgreSQL has, and wants the data
//! behind it.

use freshet_postgres::Encoding;
use freshet_sql::{SqlError, SqlState};
use sqlparser::{
    ast::{Ident, ObjectName, Query},
    keywords::Keyword,
    parser::Parser,
    tokenizer::Token,
};

use super::{Format, Header, Kind};
use crate::{
    bind::{name_of, syntax_error},
    syntax::wrong,
};

/// A COPY statement.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The table or the query, on this side of the copy.
    pub source: Source,
    /// Whether to the client.
    pub to: bool,
    /// The format, and what WITH says of it.
    pub options: Options,
}

/// What rows are copied to, or from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A table's columns; all of them if none is named.
    Table(ObjectName, Vec<Ident>),
    /// What a query finds.
    Query(Box<Query>),
}

impl Copy {
    /// Parses a COPY, up to the statement's end.
    ///
    /// # Errors
    /// 42601, 0A000.
    pub fn parse(parser: &mut Parser<'_>, sql: &str) -> Result<Self, SqlError> {
        let failed = |error| wrong(error, sql);
        parser.expect_keyword(Keyword::COPY).map_err(failed)?;
        let mut options = Options::default();
        if parser.parse_keyword(Keyword::BINARY) {
            options.0.push(("format".to_owned(), Argument::Word("binary".to_owned())));
        }
        let source = if parser.consume_token(&Token::LParen) {
            let query = crate::syntax::parse_query(parser).map_err(failed)?;
            parser.expect_token(&Token::RParen).map_err(failed)?;
            Source::Query(query)
        } else {
            let name = parser.parse_object_name(false).map_err(failed)?;
            let columns = parser
                .parse_parenthesized_column_list(sqlparser::parser::IsOptional::Optional, false)
                .map_err(failed)?;
            Source::Table(name, columns)
        };
        let to = match parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::TO]) {
            Some(Keyword::FROM) => false,
            Some(_) => true,
            None => return Err(syntax_error("COPY needs FROM or TO")),
        };
        if matches!(source, Source::Query(_)) && !to {
            return Err(syntax_error("COPY of a query can only be TO"));
        }
        if parser.parse_one_of_keywords(&[Keyword::STDIN, Keyword::STDOUT]).is_none() {
            let is_file = match parser.peek_token().token {
                Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) => true,
                Token::Word(word) => word.value.eq_ignore_ascii_case("program"),
                _ => false,
            };
            if !is_file {
                let found = parser.peek_token().token;
                return Err(syntax_error(format!("syntax error at or near \"{found}\"")));
            }
            let message = "COPY to or from a file of the server is not supported";
            let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
            return Err(error.with_hint("Use STDIN or STDOUT; psql's \\copy does."));
        }
        let is_delimiters =
            |token: &Token| matches!(token, Token::Word(word) if word.value.eq_ignore_ascii_case("delimiters"));
        if matches!(source, Source::Table(..)) {
            let using = parser.parse_keyword(Keyword::USING);
            if is_delimiters(&parser.peek_token().token) {
                parser.next_token();
                options.string("delimiter", parser, sql)?;
            } else if using {
                return Err(syntax_error("COPY ... USING needs DELIMITERS"));
            }
        }
        let _ = parser.parse_keyword(Keyword::WITH);
        if parser.consume_token(&Token::LParen) {
            loop {
                options.one(parser, sql)?;
                if !parser.consume_token(&Token::Comma) {
                    break;
                }
            }
            parser.expect_token(&Token::RParen).map_err(failed)?;
        } else {
            let ends = |token: &Token| match token {
                Token::EOF | Token::SemiColon => true,
                Token::Word(word) => word.keyword == Keyword::WHERE,
                _ => false,
            };
            while !ends(&parser.peek_token().token) {
                options.old(parser, sql)?;
            }
        }
        if parser.parse_keyword(Keyword::WHERE) {
            if to {
                return Err(syntax_error("WHERE clause not allowed with COPY TO"));
            }
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "COPY FROM ... WHERE is not supported"));
        }
        Ok(Self { source, to, options })
    }
}

/// What is said of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Argument {
    Nothing,
    /// A word or a text.
    Word(String),
    Number(String),
    Star,
    List(Vec<String>),
}

/// The options, as they were said. Whether they make sense is found out when the statement runs, as
/// in PostgreSQL: after its table was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(String, Argument)>);

fn word(parser: &mut Parser<'_>) -> Result<String, SqlError> {
    match parser.next_token().token {
        Token::Word(word) if word.quote_style.is_some() => Ok(word.value),
        Token::Word(word) => Ok(word.value.to_ascii_lowercase()),
        Token::EOF => Err(syntax_error("syntax error at end of input")),
        other => Err(syntax_error(format!("syntax error at or near \"{other}\""))),
    }
}

/// A word, or a text.
fn word_or_text(parser: &mut Parser<'_>, sql: &str) -> Result<String, SqlError> {
    match parser.peek_token().token {
        Token::Word(_) => word(parser),
        _ => crate::syntax::text(parser).map_err(|error| wrong(error, sql)),
    }
}

impl Options {
    fn push(&mut self, name: &str, argument: Argument) {
        self.0.push((name.to_owned(), argument));
    }

    fn string(&mut self, name: &str, parser: &mut Parser<'_>, sql: &str) -> Result<(), SqlError> {
        let text = crate::syntax::text(parser).map_err(|error| wrong(error, sql))?;
        self.push(name, Argument::Word(text));
        Ok(())
    }

    /// An option within parentheses.
    fn one(&mut self, parser: &mut Parser<'_>, sql: &str) -> Result<(), SqlError> {
        let name = word(parser)?;
        let argument = match parser.peek_token().token {
            Token::Comma | Token::RParen => Argument::Nothing,
            Token::Mul => {
                parser.next_token();
                Argument::Star
            }
            Token::LParen => {
                parser.next_token();
                let mut list = Vec::new();
                loop {
                    list.push(word_or_text(parser, sql)?);
                    if !parser.consume_token(&Token::Comma) {
                        break;
                    }
                }
                parser.expect_token(&Token::RParen).map_err(|error| wrong(error, sql))?;
                Argument::List(list)
            }
            Token::Plus | Token::Minus | Token::Number(..) => {
                let minus = parser.consume_token(&Token::Minus);
                let _ = !minus && parser.consume_token(&Token::Plus);
                match parser.next_token().token {
                    Token::Number(digits, _) if minus => Argument::Number(format!("-{digits}")),
                    Token::Number(digits, _) => Argument::Number(digits),
                    other => return Err(syntax_error(format!("syntax error at or near \"{other}\""))),
                }
            }
            Token::Word(word) if word.keyword == Keyword::AS && word.quote_style.is_none() => {
                return Err(syntax_error(format!("syntax error at or near \"{}\"", word.value)));
            }
            _ => Argument::Word(word_or_text(parser, sql)?),
        };
        self.push(&name, argument);
        Ok(())
    }

    /// An option in the manner of old.
    fn old(&mut self, parser: &mut Parser<'_>, sql: &str) -> Result<(), SqlError> {
        let failed = |error| wrong(error, sql);
        let name = word(parser)?;
        match name.as_str() {
            "binary" | "csv" => self.push("format", Argument::Word(name)),
            "freeze" | "header" => self.push(&name, Argument::Word("true".to_owned())),
            "delimiter" | "null" | "quote" | "escape" => {
                let _ = parser.parse_keyword(Keyword::AS);
                self.string(&name, parser, sql)?;
            }
            "encoding" => self.string(&name, parser, sql)?,
            "force" => {
                let name = match parser.parse_one_of_keywords(&[Keyword::NOT, Keyword::NULL]) {
                    Some(Keyword::NOT) => {
                        parser.expect_keyword(Keyword::NULL).map_err(failed)?;
                        "force_not_null"
                    }
                    Some(_) => "force_null",
                    None => match word(parser)?.as_str() {
                        "quote" => "force_quote",
                        other => return Err(syntax_error(format!("syntax error at or near \"{other}\""))),
                    },
                };
                let argument = match name == "force_quote" && parser.consume_token(&Token::Mul) {
                    true => Argument::Star,
                    false => {
                        let names = parser.parse_comma_separated(Parser::parse_identifier).map_err(failed)?;
                        Argument::List(names.iter().map(name_of).collect())
                    }
                };
                self.push(name, argument);
            }
            other => return Err(syntax_error(format!("syntax error at or near \"{other}\""))),
        }
        Ok(())
    }

    /// What they mean.
    ///
    /// # Errors
    /// What PostgreSQL says of them: 42601, 22023, 0A000.
    pub fn format(&self, to: bool) -> Result<Format, SqlError> {
        let mut options = Given::default();
        for (at, (name, argument)) in self.0.iter().enumerate() {
            if self.0[..at].iter().any(|(known, _)| known == name) {
                return Err(syntax_error("conflicting or redundant options"));
            }
            options.take(name, argument, to)?;
        }
        options.format(to)
    }
}

fn text_of(name: &str, argument: &Argument) -> Result<String, SqlError> {
    match argument {
        Argument::Nothing => Err(syntax_error(format!("{name} requires a parameter"))),
        Argument::Word(text) | Argument::Number(text) => Ok(text.clone()),
        Argument::Star => Ok("*".to_owned()),
        Argument::List(names) => Ok(names.join(".")),
    }
}

fn truth_of(argument: &Argument) -> Option<bool> {
    match argument {
        Argument::Nothing => Some(true),
        Argument::Number(digits) => match digits.as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        },
        Argument::Word(word) => match word.to_lowercase().as_str() {
            "true" | "on" => Some(true),
            "false" | "off" => Some(false),
            _ => None,
        },
        Argument::Star | Argument::List(_) => None,
    }
}

/// The options by their names.
#[derive(Debug, Default)]
struct Given {
    kind: Option<Kind>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Header,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Vec<String>,
    force_not_null: Vec<String>,
    force_null: Vec<String>,
    encoding: Option<Encoding>,
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message.into())
}

fn unsupported(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message.into())
}

impl Given {
    fn take(&mut self, name: &str, argument: &Argument, to: bool) -> Result<(), SqlError> {
        let list = || match argument {
            Argument::List(names) => Ok(names.clone()),
            _ => Err(invalid(format!("argument to option \"{name}\" must be a list of column names"))),
        };
        match name {
            "format" => {
                self.kind = Some(match text_of(name, argument)?.as_str() {
                    "text" => Kind::Text,
                    "csv" => Kind::Csv,
                    "binary" => Kind::Binary,
                    other => return Err(invalid(format!("COPY format \"{other}\" not recognized"))),
                });
            }
            "freeze" => {
                truth_of(argument).ok_or_else(|| syntax_error(format!("{name} requires a Boolean value")))?;
            }
            "delimiter" => self.delimiter = Some(text_of(name, argument)?),
            "null" => self.null = Some(text_of(name, argument)?),
            "header" => {
                self.header = match truth_of(argument) {
                    Some(true) => Header::Line,
                    Some(false) => Header::None,
                    None if matches!(argument, Argument::Word(word) if word.eq_ignore_ascii_case("match")) => {
                        if to {
                            return Err(unsupported("cannot use \"match\" with HEADER in COPY TO"));
                        }
                        Header::Match
                    }
                    None => return Err(syntax_error(format!("{name} requires a Boolean value or \"match\""))),
                };
            }
            "quote" => self.quote = Some(text_of(name, argument)?),
            "escape" => self.escape = Some(text_of(name, argument)?),
            "force_quote" if *argument == Argument::Star => self.force_quote = vec!["*".to_owned()],
            "force_quote" => self.force_quote = list()?,
            "force_not_null" => self.force_not_null = list()?,
            "force_null" => self.force_null = list()?,
            "convert_selectively" => drop(list()?),
            "encoding" => {
                let encoding = Encoding::named(&text_of(name, argument)?);
                let wrong = || invalid(format!("argument to option \"{name}\" must be a valid encoding name"));
                let encoding = encoding.ok_or_else(wrong)?;
                if !encoding.is_spoken() {
                    return Err(unsupported(format!("COPY in the encoding {} is not supported", encoding.name())));
                }
                self.encoding = Some(encoding);
            }
            other => return Err(syntax_error(format!("option \"{other}\" not recognized"))),
        }
        Ok(())
    }

    fn format(self, to: bool) -> Result<Format, SqlError> {
        let kind = self.kind.unwrap_or(Kind::Text);
        let is_csv = kind == Kind::Csv;
        if kind == Kind::Binary {
            for (is_given, what) in [(self.delimiter.is_some(), "DELIMITER"), (self.null.is_some(), "NULL")] {
                if is_given {
                    return Err(syntax_error(format!("cannot specify {what} in BINARY mode")));
                }
            }
        }
        let byte = |text: &str, what: &str| match text.as_bytes() {
            [byte] => Ok(*byte),
            _ => Err(unsupported(format!("COPY {what} must be a single one-byte character"))),
        };
        let default = Format::of(kind);
        let delimiter = match &self.delimiter {
            Some(text) => byte(text, "delimiter")?,
            None => default.delimiter,
        };
        let null = self.null.unwrap_or(default.null);
        if matches!(delimiter, b'\n' | b'\r') {
            return Err(invalid("COPY delimiter cannot be newline or carriage return"));
        }
        if null.contains(['\n', '\r']) {
            return Err(invalid("COPY null representation cannot use newline or carriage return"));
        }
        if !is_csv
            && (matches!(delimiter, b'\\' | b'.') || delimiter.is_ascii_lowercase() || delimiter.is_ascii_digit())
        {
            return Err(invalid(format!("COPY delimiter cannot be \"{}\"", char::from(delimiter))));
        }
        if kind == Kind::Binary && self.header != Header::None {
            return Err(unsupported("cannot specify HEADER in BINARY mode"));
        }
        if !is_csv && self.quote.is_some() {
            return Err(unsupported("COPY quote available only in CSV mode"));
        }
        let quote = self.quote.as_deref().map_or(Ok(default.quote), |text| byte(text, "quote"))?;
        if is_csv && delimiter == quote {
            return Err(invalid("COPY delimiter and quote must be different"));
        }
        if !is_csv && self.escape.is_some() {
            return Err(unsupported("COPY escape available only in CSV mode"));
        }
        let escape = self.escape.as_deref().map_or(Ok(quote), |text| byte(text, "escape"))?;
        for (list, what, when) in [
            (&self.force_quote, "quote", true),
            (&self.force_not_null, "not null", false),
            (&self.force_null, "null", false),
        ] {
            if list.is_empty() {
                continue;
            }
            if !is_csv {
                return Err(unsupported(format!("COPY force {what} available only in CSV mode")));
            }
            if when != to {
                let direction = if when { "TO" } else { "FROM" };
                return Err(unsupported(format!("COPY force {what} only available using COPY {direction}")));
            }
        }
        if kind != Kind::Binary && null.bytes().any(|byte| byte == delimiter) {
            return Err(unsupported("COPY delimiter must not appear in the NULL specification"));
        }
        if is_csv && null.bytes().any(|byte| byte == quote) {
            return Err(unsupported("CSV quote character must not appear in the NULL specification"));
        }
        Ok(Format {
            kind,
            delimiter,
            null,
            header: self.header,
            quote,
            escape,
            force_quote: self.force_quote,
            force_not_null: self.force_not_null,
            force_null: self.force_null,
            encoding: self.encoding,
        })
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn parse(sql: &str) -> Result<(Copy, Format), SqlError> {
        let copy = Copy::parse(&mut Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap(), sql)?;
        let format = copy.options.format(copy.to)?;
        Ok((copy, format))
    }

    #[test]
    fn what_clients_send_is_understood() {
        let (copy, format) = parse("copy pgbench_accounts from stdin with (freeze on)").unwrap();
        assert!(!copy.to && format == Format::of(Kind::Text));
        let (copy, format) =
            parse("COPY t (a, \"B\") TO STDOUT WITH (FORMAT csv, HEADER, DELIMITER ';', FORCE_QUOTE *);").unwrap();
        assert!(copy.to && format.header == Header::Line && format.delimiter == b';' && format.force_quote == ["*"]);
        let (copy, format) = parse("copy (select 1) to stdout (format binary)").unwrap();
        assert!(matches!(copy.source, Source::Query(_)) && format.kind == Kind::Binary);
        let (_, format) = parse("copy t from stdin csv header null as 'x' force not null a, \"B\"").unwrap();
        assert!(format.null == "x" && format.force_not_null == ["a", "B"]);
        assert_eq!(parse("copy binary t to stdout").unwrap().1.kind, Kind::Binary);
        assert_eq!(parse("copy t from stdin using delimiters '|' with null 'z'").unwrap().1.delimiter, b'|');
        for bad in [
            "copy t",
            "copy t from 'file'",
            "copy t from stdin (format xml)",
            "copy (select 1) from stdin",
            "copy t from stdin (delimiter 'ab')",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
