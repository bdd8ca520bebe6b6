//! What texts ask for, as far as which node may do it depends on that: for sessions whose reads go
//! to standbys. A text that is not understood asks for the primary.
//!
//! There are no functions of users, so what a function does is known by its name. What a view hides
//! is not known here: a session that reads for another node refuses it then
//! ([`crate::session::State::must_not_read_for_others`]).

use std::ops::ControlFlow;

use freshet_postgres::route::{Asks, Stated};
use freshet_sql::functions::{self, Volatility};
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart, Query, Select, Statement,
    TableFactor, Visit, Visitor,
};

use crate::{
    bind::name_of,
    ddl::syntax::Definition,
    session::{
        parse::{Parsed, parse},
        syntax::{Channel, Control, Cursor, Modes, SessionStatement, Setting},
    },
};

/// Volatile functions that depend on no node and change nothing, and the one that says where it is.
const HARMLESS: &[&str] =
    &["random", "clock_timestamp", "timeofday", "gen_random_uuid", "pg_sleep", "pg_is_in_recovery"];
/// Functions that are not volatile, and that only the node that serves the session can answer.
const OF_PRIMARY: &[&str] = &["pg_backend_pid", "pg_postmaster_start_time", "pg_conf_load_time"];
/// Functions that need the session on the primary even in a READ ONLY transaction: what they do, or
/// tell of, is of that session, or of its node.
const OF_SESSION: &[&str] =
    &["pg_notify", "pg_listening_channels", "pg_export_snapshot", "freshet_last_commit", "freshet_transaction_token"];
/// How the names of further ones begin.
const OF_SESSION_TOO: &[&str] = &["pg_advisory_", "pg_try_advisory_"];
/// How the names of relations begin that show what is on a node.
const OF_NODE: &[&str] = &["pg_stat", "pg_locks", "pg_cursors", "pg_settings", "pg_sequence"];
/// Settings that tell of a node, or of what the session did on it.
const SETTINGS_OF_NODE: &[&str] = &["transaction_read_only", "in_hot_standby", "is_superuser"];
const LAST_COMMIT: &str = "freshet.last_commit";

/// What each statement of a text asks for; nothing for an empty text.
pub fn asks(sql: &str) -> Vec<Asks> {
    match parse(sql) {
        Ok(statements) => statements.iter().map(of).collect(),
        Err(_) => vec![Asks::Other],
    }
}

fn of(parsed: &Parsed) -> Asks {
    match parsed {
        Parsed::Sql(statement) => of_sql(statement),
        Parsed::Session(statement) => of_session(statement),
        Parsed::Define(definition) if matches!(**definition, Definition::Lock(_)) => Asks::Session,
        Parsed::Define(_) | Parsed::Copy(_) | Parsed::Constraints(_) | Parsed::Maintenance(_) => Asks::Other,
    }
}

fn of_sql(statement: &Statement) -> Asks {
    match statement {
        Statement::Query(_) => of_syntax(statement),
        Statement::Execute { name: Some(name), parameters, .. } => match of_syntax(parameters) {
            Asks::Rows => last(name).map_or(Asks::Other, Asks::Prepared),
            asks => asks,
        },
        Statement::Explain { statement, .. } => match of_syntax(&**statement) {
            Asks::Session => Asks::Session,
            _ => Asks::Other,
        },
        _ => Asks::Other,
    }
}

fn of_session(statement: &SessionStatement) -> Asks {
    match statement {
        SessionStatement::Control(control) => match control {
            Control::Begin(modes, _) => Asks::Begins(stated(*modes)),
            Control::Set(modes) => Asks::Modes(stated(*modes)),
            Control::Commit(false) | Control::Rollback(false) => Asks::Ends,
            // Who reads a snapshot finds it where it was exported.
            Control::Import(_) => Asks::Session,
            Control::Commit(true)
            | Control::Rollback(true)
            | Control::RollbackTo(_)
            | Control::Savepoint(_)
            | Control::Release(_) => Asks::Other,
        },
        SessionStatement::Cursor(Cursor::Declare(declare)) if declare.hold => Asks::Session,
        SessionStatement::Cursor(Cursor::Declare(declare)) => match of_syntax(&*declare.query) {
            Asks::Session => Asks::Session,
            _ => Asks::Other,
        },
        SessionStatement::Channel(Channel::Listen(_) | Channel::Unlisten(_) | Channel::Notify(..)) => Asks::Session,
        SessionStatement::Setting(Setting::Show(name)) if name.eq_ignore_ascii_case(LAST_COMMIT) => Asks::Session,
        SessionStatement::Cursor(_) | SessionStatement::Setting(_) => Asks::Other,
    }
}

fn stated(modes: Modes) -> Stated {
    Stated { read_only: modes.read_only, serializable: modes.isolation.map(|level| level == "serializable") }
}

/// What a query asks for, or expressions do: rows, unless something in them needs more.
fn of_syntax(syntax: &impl Visit) -> Asks {
    let mut look = Look(Asks::Rows);
    let _ = syntax.visit(&mut look);
    look.0
}

fn last(name: &ObjectName) -> Option<String> {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(last)) => Some(name_of(last)),
        _ => None,
    }
}

struct Look(Asks);

impl Look {
    fn needs(&mut self, asks: Asks) -> ControlFlow<()> {
        let is_all = asks == Asks::Session;
        if self.0 != Asks::Session {
            self.0 = asks;
        }
        if is_all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// What `current_setting` is asked for.
    fn shows(&mut self, arguments: &FunctionArguments) -> ControlFlow<()> {
        let FunctionArguments::List(list) = arguments else { return self.needs(Asks::Other) };
        let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(name)))) = list.args.first() else {
            return self.needs(Asks::Other);
        };
        match name.value.clone().into_string().map(|name| name.to_ascii_lowercase()).as_deref() {
            Some(LAST_COMMIT) => self.needs(Asks::Session),
            Some(name) if !SETTINGS_OF_NODE.contains(&name) => ControlFlow::Continue(()),
            _ => self.needs(Asks::Other),
        }
    }

    fn calls(&mut self, name: &ObjectName) -> ControlFlow<()> {
        let Some(name) = last(name) else { return self.needs(Asks::Other) };
        let name = name.as_str();
        if OF_SESSION.contains(&name) || OF_SESSION_TOO.iter().any(|known| name.starts_with(known)) {
            return self.needs(Asks::Session);
        }
        let is_volatile = functions::named(name).iter().any(|it| it.volatility == Volatility::Volatile);
        if OF_PRIMARY.contains(&name) || is_volatile && !HARMLESS.contains(&name) {
            return self.needs(Asks::Other);
        }
        ControlFlow::Continue(())
    }
}

impl Visitor for Look {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        // Within a query, that changes rows.
        if matches!(statement, Statement::Query(_)) { ControlFlow::Continue(()) } else { self.needs(Asks::Other) }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if query.locks.is_empty() { ControlFlow::Continue(()) } else { self.needs(Asks::Other) }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        if select.into.is_none() { ControlFlow::Continue(()) } else { self.needs(Asks::Other) }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let of_node = last(relation).is_some_and(|name| OF_NODE.iter().any(|known| name.starts_with(known)));
        if of_node { self.needs(Asks::Other) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => self.calls(name),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::Function(function) if last(&function.name).is_some_and(|name| name == "current_setting") => {
                self.shows(&function.args)
            }
            Expr::Function(function) => self.calls(&function.name),
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_asks_for_rows_or_for_more() {
        let rows = [
            "SELECT 1",
            "(SELECT a FROM t WHERE b = $1 ORDER BY 1) UNION TABLE u",
            "VALUES (1), (2)",
            "WITH q AS (SELECT count(*), upper(name) FROM t GROUP BY 2) SELECT * FROM q, generate_series(1, 3)",
            "SELECT now(), random(), pg_is_in_recovery(), current_user, current_setting('search_path')",
            "SELECT 'nextval(''s'')', \"nextval\" FROM t -- FOR UPDATE",
            "SELECT (SELECT max(a) FROM u) FROM t",
        ];
        let primary = [
            "INSERT INTO t VALUES (1)",
            "UPDATE t SET a = 1",
            "SELECT a FROM t FOR UPDATE",
            "SELECT a FROM (SELECT a FROM t FOR KEY SHARE) q",
            "SELECT a INTO u FROM t",
            "WITH d AS (DELETE FROM t RETURNING a) SELECT a FROM d",
            "SELECT set_config('a.b', 'c', false)",
            "SELECT pg_terminate_backend(1)",
            "SELECT nextval('s')",
            "SELECT currval('s') FROM t WHERE a IN (SELECT lastval())",
            "SELECT pg_relation_size('t')",
            "SELECT pg_backend_pid()",
            "SELECT pid FROM pg_stat_activity",
            "SELECT last_value FROM pg_sequences",
            "SELECT current_setting('transaction_read_only'), current_setting('a' || 'b')",
            "SELECT mode FROM pg_catalog.pg_locks",
            "SHOW search_path",
            "SET search_path = a",
            "COPY t TO STDOUT",
            "CREATE TABLE u (a integer)",
            "EXPLAIN SELECT 1",
            "COMMIT AND CHAIN",
            "SAVEPOINT s",
            "DECLARE c CURSOR FOR SELECT 1",
            "what is this",
        ];
        let session = [
            "SELECT a FROM t WHERE pg_try_advisory_xact_lock(a)",
            "SELECT * FROM pg_listening_channels()",
            "SELECT pg_catalog.pg_notify('a', 'b')",
            "SELECT pg_export_snapshot()",
            "LISTEN a",
            "LOCK TABLE t IN SHARE MODE",
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
            "SET TRANSACTION SNAPSHOT '1'",
            "EXPLAIN ANALYZE SELECT pg_advisory_lock(1)",
            "EXECUTE p (pg_notify('a', 'b'))",
            "SHOW freshet.last_commit",
            "SELECT current_setting('freshet.last_commit', true)",
        ];
        for (texts, expected) in [(&rows[..], Asks::Rows), (&primary, Asks::Other), (&session, Asks::Session)] {
            for sql in texts {
                assert_eq!(asks(sql), std::slice::from_ref(&expected), "{sql}");
            }
        }
    }

    #[test]
    fn transactions_state_whether_they_write() {
        let said = |read_only, serializable| Stated { read_only, serializable };
        for (sql, expected) in [
            ("BEGIN", Asks::Begins(said(None, None))),
            ("begin isolation level repeatable read, read only", Asks::Begins(said(Some(true), Some(false)))),
            ("START TRANSACTION READ WRITE", Asks::Begins(said(Some(false), None))),
            ("SET TRANSACTION READ ONLY", Asks::Modes(said(Some(true), None))),
            ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", Asks::Modes(said(None, Some(true)))),
            ("COMMIT", Asks::Ends),
            ("ROLLBACK", Asks::Ends),
            ("EXECUTE \"P\" (1, upper('a'))", Asks::Prepared("P".to_owned())),
        ] {
            assert_eq!(asks(sql), [expected], "{sql}");
        }
        assert_eq!(asks("BEGIN READ ONLY; SELECT 1; END").len(), 3);
        assert_eq!(asks(" ; -- nothing"), []);
    }
}
