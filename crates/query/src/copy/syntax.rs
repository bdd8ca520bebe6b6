//! The statement itself. sqlparser takes only a part of what PostgreSQL has, and wants the data behind it.

use freshet_sql::{SqlError, SqlState};
use sqlparser::{
    ast::{Ident, ObjectName, Query},
    keywords::Keyword,
    parser::Parser,
    tokenizer::Token,
};

use super::{Format, Kind};
use crate::{
    bind::{name_of, syntax_error},
    syntax::wrong,
};

/// A COPY.
#[derive(Clone, Debug)]
pub struct Copy {
    /// What is copied.
    pub source: Source,
    /// Whether to the client.
    pub to: bool,
    /// As what.
    pub format: Format,
}

/// What is copied.
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
            let message = "COPY to or from a file of the server is not supported";
            let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
            return Err(error.with_hint("Use STDIN or STDOUT; psql's \\copy does."));
        }
        let mut options = Options::default();
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
            while !matches!(parser.peek_token().token, Token::EOF | Token::SemiColon) {
                options.old(parser, sql)?;
            }
        }
        Ok(Self { source, to, format: options.format()? })
    }
}

#[derive(Default)]
struct Options {
    kind: Option<Kind>,
    delimiter: Option<String>,
    null: Option<String>,
    header: bool,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Vec<String>,
    force_not_null: Vec<String>,
    force_null: Vec<String>,
}

fn word(parser: &mut Parser<'_>) -> Result<String, SqlError> {
    match parser.next_token().token {
        Token::Word(word) => Ok(word.value.to_lowercase()),
        other => Err(syntax_error(format!("syntax error at or near \"{other}\""))),
    }
}

fn string(parser: &mut Parser<'_>, sql: &str) -> Result<String, SqlError> {
    let _ = parser.parse_keyword(Keyword::AS);
    crate::syntax::text(parser).map_err(|error| wrong(error, sql))
}

fn truth(parser: &mut Parser<'_>) -> Result<bool, SqlError> {
    let text = match parser.peek_token().token {
        Token::Word(word) => word.value,
        Token::Number(digits, _) => digits,
        Token::SingleQuotedString(text) => text,
        _ => return Ok(true),
    };
    let truth =
        crate::session::settings::truth(&text).ok_or_else(|| syntax_error(format!("{text} is neither on nor off")))?;
    parser.next_token();
    Ok(truth)
}

fn columns(parser: &mut Parser<'_>, sql: &str) -> Result<Vec<String>, SqlError> {
    if parser.consume_token(&Token::Mul) {
        return Ok(vec!["*".to_owned()]);
    }
    let list = parser.parse_parenthesized_column_list(sqlparser::parser::IsOptional::Mandatory, false);
    Ok(list.map_err(|error| wrong(error, sql))?.iter().map(name_of).collect())
}

impl Options {
    /// An option within parentheses.
    fn one(&mut self, parser: &mut Parser<'_>, sql: &str) -> Result<(), SqlError> {
        let name = word(parser)?;
        match name.as_str() {
            "format" => {
                let format = match parser.next_token().token {
                    Token::Word(word) => word.value.to_lowercase(),
                    Token::SingleQuotedString(text) => text.to_lowercase(),
                    other => return Err(syntax_error(format!("syntax error at or near \"{other}\""))),
                };
                self.kind = Some(match format.as_str() {
                    "text" => Kind::Text,
                    "csv" => Kind::Csv,
                    "binary" => Kind::Binary,
                    other => {
                        let message = format!("COPY format \"{other}\" not recognized");
                        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
                    }
                });
            }
            "freeze" => drop(truth(parser)?),
            "delimiter" => self.delimiter = Some(string(parser, sql)?),
            "null" => self.null = Some(string(parser, sql)?),
            "header" => self.header = truth(parser)?,
            "quote" => self.quote = Some(string(parser, sql)?),
            "escape" => self.escape = Some(string(parser, sql)?),
            "force_quote" => self.force_quote = columns(parser, sql)?,
            "force_not_null" => self.force_not_null = columns(parser, sql)?,
            "force_null" => self.force_null = columns(parser, sql)?,
            "encoding" => {
                let encoding = string(parser, sql)?;
                if !matches!(encoding.to_lowercase().as_str(), "utf8" | "utf-8" | "unicode") {
                    let message = format!("argument to option \"encoding\" must be UTF8, not \"{encoding}\"");
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
            }
            other => return Err(syntax_error(format!("option \"{other}\" not recognized"))),
        }
        Ok(())
    }

    /// An option in the manner of old.
    fn old(&mut self, parser: &mut Parser<'_>, sql: &str) -> Result<(), SqlError> {
        let name = word(parser)?;
        match name.as_str() {
            "binary" => self.kind = Some(Kind::Binary),
            "csv" => self.kind = Some(Kind::Csv),
            "freeze" => {}
            "header" => self.header = true,
            "delimiter" | "delimiters" => self.delimiter = Some(string(parser, sql)?),
            "null" => self.null = Some(string(parser, sql)?),
            "quote" => self.quote = Some(string(parser, sql)?),
            "escape" => self.escape = Some(string(parser, sql)?),
            other => return Err(syntax_error(format!("syntax error at or near \"{other}\""))),
        }
        Ok(())
    }

    fn format(self) -> Result<Format, SqlError> {
        let one = |text: Option<String>, default: u8, what: &str| match text.as_deref().map(str::as_bytes) {
            None => Ok(default),
            Some([byte]) if !matches!(byte, b'\n' | b'\r') => Ok(*byte),
            Some(_) => {
                let message = format!("COPY {what} must be a single one-byte character");
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
        };
        let kind = self.kind.unwrap_or(Kind::Text);
        let default = Format::of(kind);
        if kind != Kind::Csv && (self.quote.is_some() || self.escape.is_some()) {
            let message = "COPY quote and escape available only in CSV mode";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let quote = one(self.quote, default.quote, "quote")?;
        Ok(Format {
            delimiter: one(self.delimiter, default.delimiter, "delimiter")?,
            null: self.null.unwrap_or(default.null),
            header: self.header,
            quote,
            escape: one(self.escape, quote, "escape")?,
            force_quote: self.force_quote,
            force_not_null: self.force_not_null,
            force_null: self.force_null,
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn parse(sql: &str) -> Result<Copy, SqlError> {
        Copy::parse(&mut Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap(), sql)
    }

    #[test]
    fn what_clients_send_is_understood() {
        let copy = parse("copy pgbench_accounts from stdin with (freeze on)").unwrap();
        assert!(!copy.to && copy.format == Format::of(Kind::Text));
        let copy =
            parse("COPY t (a, \"B\") TO STDOUT WITH (FORMAT csv, HEADER, DELIMITER ';', FORCE_QUOTE *);").unwrap();
        assert!(copy.to && copy.format.header && copy.format.delimiter == b';' && copy.format.force_quote == ["*"]);
        let copy = parse("copy (select 1) to stdout (format binary)").unwrap();
        assert!(matches!(copy.source, Source::Query(_)) && copy.format.kind == Kind::Binary);
        assert_eq!(parse("copy t from stdin csv header null as 'x'").unwrap().format.null, "x");
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
