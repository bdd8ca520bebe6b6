//! A session, as expressions and the system's relations see it.

use freshet_engine::Rid;
use freshet_sql::{SqlError, SqlState, Value, functions::SessionCalls};

use crate::{
    schema::{Oid, Table},
    statistics::{RelationCounts, relation::ByOid},
    system::activity::{CursorInfo, SettingInfo, StatementInfo},
};

/// What functions can ask the session.
pub trait SessionView: SessionCalls {
    /// The settings, as `pg_settings` shows them.
    fn settings(&self) -> Vec<SettingInfo> {
        Vec::new()
    }

    /// The next value of an identity column's sequence, which needs no privilege.
    ///
    /// # Errors
    /// When there is no such sequence, or it has no more; 25006.
    fn identity_value(&self, sequence: Oid) -> Result<Value, SqlError> {
        Err(SqlError::internal(format!("sequence {sequence} is taken from without a session")))
    }

    /// The record of a table that is in the row on which a cursor stands.
    ///
    /// # Errors
    /// 34000, 24000.
    fn current_of(&self, cursor: &str, _table: &Table) -> Result<Rid, SqlError> {
        Err(no_cursor(cursor))
    }

    /// The cursors, as `pg_cursors` shows them.
    fn cursors(&self) -> Vec<CursorInfo> {
        Vec::new()
    }

    /// Its prepared statements.
    fn statements(&self) -> Vec<StatementInfo> {
        Vec::new()
    }

    /// What its transaction has counted of tables and indexes.
    fn transaction_counts(&self) -> ByOid<RelationCounts> {
        ByOid::default()
    }
}

/// The error for a cursor that is not there.
#[cold]
pub(crate) fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}
