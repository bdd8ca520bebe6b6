//! Text to statements.

use freshet_sql::{SqlError, SqlState};
use sqlparser::{
    ast::Statement,
    dialect::PostgreSqlDialect,
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::{Token, TokenWithSpan, Tokenizer},
};

use crate::{
    bind::{not_supported, syntax_error},
    copy::syntax::Copy,
    ddl::Definition,
};

/// A statement, understood.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// As sqlparser has it: queries, changes of rows, transactions, settings.
    Sql(Box<Statement>),
    /// One that defines.
    Define(Box<Definition>),
    /// COPY
    Copy(Box<Copy>),
    /// What needs no doing here: rows are in memory, garbage is collected, there are no statistics to gather. Its tag.
    Maintenance(&'static str),
}

/// Statements that need no doing.
const MAINTENANCE: &[&str] = &["VACUUM", "ANALYZE", "CHECKPOINT", "REINDEX", "CLUSTER"];

/// What is wrong with a text, in PostgreSQL's words as far as the parser says enough; what it expected is the detail.
pub fn wrong(error: ParserError, sql: &str) -> SqlError {
    let what = match error {
        ParserError::TokenizerError(what) | ParserError::ParserError(what) => what,
        ParserError::RecursionLimitExceeded => {
            return SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "the statement is nested too deep");
        }
    };
    let (what, place) = match what.rsplit_once(" at Line: ") {
        Some((what, place)) => {
            let place = place.split_once(", Column: ");
            (what, place.and_then(|(line, column)| Some((line.parse().ok()?, column.trim().parse().ok()?))))
        }
        None => (what.as_str(), None),
    };
    let error = match what.split_once(", found: ") {
        Some((expected, "EOF")) => syntax_error("syntax error at end of input").with_detail(format!("{expected}.")),
        Some((expected, found)) => {
            syntax_error(format!("syntax error at or near \"{found}\"")).with_detail(format!("{expected}."))
        }
        None => syntax_error(format!("syntax error: {what}")),
    };
    match place.and_then(|(line, column)| position(sql, line, column)) {
        Some(position) => error.with_position(position),
        None => error,
    }
}

/// Which character of a text this is, from 1; lines and columns count from 1, too.
fn position(sql: &str, line: u64, column: u64) -> Option<u32> {
    let before = usize::try_from(line.checked_sub(1)?).ok()?;
    let lines: usize = sql.split_inclusive('\n').take(before).map(|line| line.chars().count()).sum();
    u32::try_from(lines as u64 + column).ok()
}

fn word(token: &Token) -> Option<&str> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(&word.value),
        _ => None,
    }
}

/// The tokens of a text. `TABLE name` at the beginning of a statement is spelt out as `SELECT * FROM name`: the parser takes it for no
/// statement.
fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>, ParserError> {
    let read = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location()?;
    let mut tokens = Vec::with_capacity(read.len());
    let mut first = true;
    for token in read {
        if first && word(&token.token).is_some_and(|word| word.eq_ignore_ascii_case("table")) {
            let spelt = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
            tokens.extend(spelt.into_iter().map(|spelt| TokenWithSpan::new(spelt, token.span)));
            first = false;
            continue;
        }
        if !matches!(token.token, Token::Whitespace(_)) {
            first = token.token == Token::SemiColon;
        }
        tokens.push(token);
    }
    Ok(tokens)
}

/// The statements of a text.
///
/// # Errors
/// 42601, 54001.
pub fn parse(sql: &str) -> Result<Vec<Parsed>, SqlError> {
    let dialect = PostgreSqlDialect {};
    let failed = |error| wrong(error, sql);
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens(sql).map_err(failed)?);
    let mut statements = Vec::new();
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        let next = parser.peek_token().token;
        if next == Token::EOF {
            return Ok(statements);
        }
        let first = word(&next).unwrap_or_default();
        let maintenance = MAINTENANCE.iter().find(|known| known.eq_ignore_ascii_case(first));
        statements.push(if let Some(tag) = maintenance {
            while !matches!(parser.peek_token().token, Token::SemiColon | Token::EOF) {
                parser.advance_token();
            }
            Parsed::Maintenance(tag)
        } else if parser.parse_keywords(&[Keyword::PREPARE, Keyword::TRANSACTION]) {
            return Err(not_supported("PREPARE TRANSACTION"));
        } else if first.eq_ignore_ascii_case("copy") {
            Parsed::Copy(Box::new(Copy::parse(&mut parser, sql)?))
        } else if let Some(definition) = Definition::parse(&mut parser).map_err(failed)? {
            Parsed::Define(Box::new(definition))
        } else {
            Parsed::Sql(Box::new(parser.parse_statement().map_err(failed)?))
        });
        let next = parser.peek_token();
        if !matches!(next.token, Token::SemiColon | Token::EOF) {
            let error = syntax_error(format!("syntax error at or near \"{next}\""));
            let start = next.span.start;
            return Err(match position(sql, start.line, start.column) {
                Some(position) => error.with_position(position),
                None => error,
            });
        }
    }
}

impl Parsed {
    /// A statement as sqlparser has it.
    pub fn sql(statement: Statement) -> Self {
        Self::Sql(Box::new(statement))
    }

    /// Whether it reads nothing: such statements need no snapshot, and on a standby no view of any age.
    pub fn needs_no_snapshot(&self) -> bool {
        match self {
            Self::Sql(statement) => matches!(
                **statement,
                Statement::Set(_)
                    | Statement::Reset(_)
                    | Statement::ShowVariable { .. }
                    | Statement::Discard { .. }
                    | Statement::Deallocate { .. }
                    | Statement::Close { .. }
            ),
            Self::Maintenance(_) => true,
            Self::Define(_) | Self::Copy(_) => false,
        }
    }

    /// Whether it begins or ends transactions or parts of them: such statements need no transaction.
    pub fn is_transaction_control(&self) -> bool {
        matches!(self, Self::Sql(statement) if matches!(
            **statement,
            Statement::StartTransaction { .. }
                | Statement::Commit { .. }
                | Statement::Rollback { .. }
                | Statement::Savepoint { .. }
                | Statement::ReleaseSavepoint { .. }
        ))
    }
}
