//! What goes wrong in the engine, as clients know it.

use freshet_base::panics::Caught;
use freshet_engine::{CommitError, IndexError, LockWaitError, OutcomeOpen, ProcedureError, ReadError, WriteError};
use freshet_sql::{SqlError, SqlState};

/// A panic that ends a statement.
#[cold]
pub fn unforeseen(Caught(text): Caught) -> SqlError {
    SqlError::internal(format!("the statement has failed in a way that was not foreseen: {text}"))
}

/// A read that failed.
#[cold]
pub fn read_error(cause: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, cause.to_string())
}

/// A write that failed, where the statement has nothing better to say.
#[cold]
pub fn write_error(cause: WriteError) -> SqlError {
    let state = match &cause {
        WriteError::Conflict | WriteError::NotFound => {
            return SqlError::new(
                SqlState::SERIALIZATION_FAILURE,
                "could not serialize access due to concurrent update",
            );
        }
        // It was changed since the snapshot.
        WriteError::Read(ReadError::Dropped(_) | ReadError::NoIndex { .. }) => SqlState::SERIALIZATION_FAILURE,
        WriteError::UniqueViolation { .. } => SqlState::UNIQUE_VIOLATION,
        WriteError::Row { .. } | WriteError::TableFull(_) | WriteError::TooLarge { .. } => {
            SqlState::PROGRAM_LIMIT_EXCEEDED
        }
        WriteError::MemoryFull { .. } => return memory_full(&cause),
        WriteError::ReadOnly(_) => SqlState::READ_ONLY_SQL_TRANSACTION,
        WriteError::Definition(_) => SqlState::INVALID_TABLE_DEFINITION,
        WriteError::Read(_) => SqlState::IO_ERROR,
        WriteError::Mismatch(_) => SqlState::INTERNAL_ERROR,
    };
    SqlError::new(state, cause.to_string())
}

/// The tables take as much memory as they may.
#[cold]
pub fn memory_full(cause: &WriteError) -> SqlError {
    let hint = "Delete rows and drop what is not needed, end transactions that have been open for long, or raise \
                memory-bytes and have the server read its configuration again.";
    SqlError::new(SqlState::OUT_OF_MEMORY, cause.to_string()).with_hint(hint)
}

/// A commit that failed.
#[cold]
pub fn commit_error(cause: CommitError) -> SqlError {
    let (state, message) = match &cause {
        CommitError::ReadChanged | CommitError::Phantom | CommitError::Exclusion => (
            SqlState::SERIALIZATION_FAILURE,
            "could not serialize access due to read/write dependencies among transactions".to_owned(),
        ),
        CommitError::Dropped(_) | CommitError::Altered(_) => (
            SqlState::SERIALIZATION_FAILURE,
            "could not serialize access due to a concurrent change of a table's definition".to_owned(),
        ),
        CommitError::HandsOver => (
            SqlState::SERIALIZATION_FAILURE,
            "could not commit: this node hands the role of the primary to another".to_owned(),
        ),
        CommitError::Read(_) => (SqlState::IO_ERROR, cause.to_string()),
        CommitError::TooLarge(_) => (SqlState::PROGRAM_LIMIT_EXCEEDED, cause.to_string()),
        CommitError::Refused(_) => (SqlState::CANNOT_CONNECT_NOW, cause.to_string()),
        // A session that waited for another one may get as far as this before it hears of its own
        // end.
        CommitError::Deposed(_) => return succeeded(),
        CommitError::NoRoom(_) => (SqlState::DISK_FULL, cause.to_string()),
        CommitError::Log(_) => (SqlState::IO_ERROR, cause.to_string()),
    };
    let error = SqlError::new(state, message);
    if state == SqlState::SERIALIZATION_FAILURE {
        return error.with_hint("The transaction might succeed if retried.");
    }
    error
}

/// What ends the sessions of a node that is the primary no more, whatever they wait for.
#[cold]
pub fn succeeded() -> SqlError {
    SqlError::new(SqlState::ADMIN_SHUTDOWN, "terminating connection: another node has become the primary")
}

/// A transaction of the server's own that failed; `what` it was to do is said of what a client's
/// own statement would not meet.
#[cold]
pub fn procedure_error(what: &str, cause: ProcedureError) -> SqlError {
    match cause {
        ProcedureError::Commit(cause) => commit_error(cause),
        ProcedureError::Write(cause) => write_error(cause),
        ProcedureError::Exhausted { last, .. } => procedure_error(what, *last),
        other => SqlError::new(SqlState::SYSTEM_ERROR, format!("{what}: {other}")),
    }
}

/// It is open whether a transaction of the server's own is committed, and the client's needs it.
/// That one is not open: it has not committed, and is rolled back with this error.
#[cold]
pub fn open_error(what: &str, cause: &OutcomeOpen) -> SqlError {
    let (state, why) = match cause {
        OutcomeOpen::Fenced(_) => return succeeded(),
        OutcomeOpen::Stopped => (SqlState::ADMIN_SHUTDOWN, "the node stops"),
        OutcomeOpen::Deadline => (SqlState::QUERY_CANCELED, "canceled"),
        OutcomeOpen::Refused(why) => (SqlState::CANNOT_CONNECT_NOW, why.as_str()),
        OutcomeOpen::LogFailed(why) => (SqlState::IO_ERROR, why.as_str()),
    };
    SqlError::new(state, format!("{what}: {why}; the transaction was rolled back"))
}

/// An index of the engine that did not come, or go.
#[cold]
pub fn index_error(what: &str, cause: IndexError) -> SqlError {
    match cause {
        IndexError::Procedure(cause) => procedure_error(what, cause),
        IndexError::Open(cause) => open_error(what, &cause),
        other => SqlError::new(SqlState::SYSTEM_ERROR, format!("{what}: {other}")),
    }
}

/// A wait for another transaction that came to nothing.
#[cold]
pub fn lock_error(cause: LockWaitError) -> SqlError {
    match cause {
        LockWaitError::Deadlock => SqlError::new(SqlState::DEADLOCK_DETECTED, "deadlock detected"),
        LockWaitError::Deadline => {
            SqlError::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
        }
        other => SqlError::new(SqlState::QUERY_CANCELED, other.to_string()),
    }
}
