//! Text to statements.

use freshet_sql::{SqlError, memory::Reservation};
use sqlparser::{ast::Statement, parser::Parser, tokenizer::Token};

use super::constraints::SetConstraints;
use super::syntax::{self as session_syntax, Cursor, SessionStatement};
use crate::{
    bind::{not_supported, syntax_error},
    copy::syntax::Copy,
    ddl::Definition,
    syntax::{self, Remarks, Rules, at, wrong},
};

/// A statement, understood.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// As sqlparser has it: queries, changes of rows, prepared statements.
    Sql(Box<Statement>),
    /// One about the session: transactions, settings, cursors.
    Session(Box<SessionStatement>),
    /// One that defines.
    Define(Box<Definition>),
    /// COPY
    Copy(Box<Copy>),
    /// SET CONSTRAINTS
    Constraints(Box<SetConstraints>),
    /// What needs no doing here: rows are in memory, garbage is collected, there are no statistics
    /// to gather. Its tag.
    Maintenance(&'static str),
}

/// Statements that need no doing.
const MAINTENANCE: &[&str] = &["VACUUM", "ANALYZE", "CHECKPOINT", "REINDEX", "CLUSTER"];

fn word(token: &Token) -> Option<&str> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(&word.value),
        _ => None,
    }
}

/// The statements of a text.
///
/// # Errors
/// 42601, 54001.
pub fn parse(sql: &str) -> Result<Vec<Parsed>, SqlError> {
    syntax::read(sql, |parser| statements(parser, sql))
}

/// The same, of a client's text: what they take until they have been run is taken from `memory`.
/// `remarks` gets what the client is to be told.
///
/// # Errors
/// As for [`parse`], and 53200.
pub fn parse_within(
    sql: &str,
    memory: &Reservation,
    rules: Rules,
    remarks: &mut Remarks,
) -> Result<Vec<Parsed>, SqlError> {
    syntax::read_within(sql, |bytes| memory.take(bytes), rules, remarks, |parser| statements(parser, sql))
}

fn statements(parser: &mut Parser<'_>, sql: &str) -> Result<Vec<Parsed>, SqlError> {
    let failed = |error| wrong(error, sql);
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
        } else if let Some(set) = SetConstraints::parse(parser).map_err(failed)? {
            Parsed::Constraints(Box::new(set))
        } else if let Some(what) = session_syntax::unsupported(parser) {
            return Err(not_supported(what));
        } else if let Some(statement) = session_syntax::parse(parser).map_err(failed)? {
            Parsed::Session(Box::new(statement))
        } else if first.eq_ignore_ascii_case("copy") {
            Parsed::Copy(Box::new(Copy::parse(parser, sql)?))
        } else if let Some(definition) = Definition::parse(parser).map_err(failed)? {
            Parsed::Define(Box::new(definition))
        } else {
            let mut statement = parser.parse_statement().map_err(failed)?;
            syntax::balance(&mut statement);
            Parsed::sql(statement)
        });
        let next = parser.peek_token();
        if !matches!(next.token, Token::SemiColon | Token::EOF) {
            let error = syntax_error(format!("syntax error at or near \"{next}\""));
            return Err(at(error, sql, next.span.start.line, next.span.start.column));
        }
    }
}

impl Parsed {
    /// Whether its columns are those of something that the session has by a name, when it runs.
    pub fn has_others_columns(&self) -> bool {
        match self {
            Self::Sql(statement) => matches!(**statement, Statement::Execute { .. }),
            Self::Session(statement) => matches!(**statement, SessionStatement::Cursor(Cursor::Fetch(..))),
            _ => false,
        }
    }

    /// Whether it is PREPARE.
    pub fn prepares(&self) -> bool {
        matches!(self, Self::Sql(statement) if matches!(**statement, Statement::Prepare { .. }))
    }

    /// A statement as sqlparser has it.
    pub fn sql(statement: Statement) -> Self {
        Self::Sql(Box::new(statement))
    }

    /// Whether it reads nothing: such statements need no snapshot, and on a standby no view of any
    /// age.
    pub fn needs_no_snapshot(&self) -> bool {
        match self {
            Self::Sql(statement) => {
                matches!(**statement, Statement::Discard { .. } | Statement::Deallocate { .. })
            }
            Self::Session(statement) => statement.needs_no_snapshot(),
            Self::Maintenance(_) => true,
            Self::Define(_) | Self::Copy(_) | Self::Constraints(_) => false,
        }
    }

    /// Whether it begins or ends transactions or parts of them: such statements need no
    /// transaction.
    pub fn is_transaction_control(&self) -> bool {
        matches!(self, Self::Session(statement) if statement.is_control())
    }
}
