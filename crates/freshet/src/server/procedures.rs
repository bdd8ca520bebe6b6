//! The door through which a program gives its nodes procedures: transactions that clients call by
//! name. A node that `freshet serve` runs has none.

use std::sync::Arc;

use freshet_base::Lsn;
use freshet_engine::{CommitError, CreateTableError, Database, Executors, ProcedureError, Ticket, Worker, WriteError};

use super::Host;
use crate::protocol::Call;

/// Procedures, and what they keep between calls.
pub trait Procedures: Send + Sync {
    /// Whether a procedure takes so long that others should not have to wait for it.
    fn is_long(&self, procedure: &str) -> bool;

    /// The answer to a call that needs neither a worker nor room in the log. Cheap.
    fn answer_at_once(&self, host: &Arc<dyn Host>, call: &Call) -> Option<Result<Vec<u8>, String>>;

    /// Runs a procedure. What it returns may be told once its ticket has resolved.
    ///
    /// # Errors
    /// See [`CallError`].
    fn run(&self, database: &Database, worker: &Worker, call: &Call) -> Result<(Vec<u8>, Ticket), CallError>;

    /// Execute again what they log as commands, if they do.
    fn executors(&self) -> Option<Executors> {
        None
    }

    /// Ends what they have begun, and blocks until it has ended.
    fn stop(&self) {}
}

/// What waits for nothing.
pub const AT_ONCE: Ticket = Ticket { lsn: None, until: Lsn::ZERO };

/// Why a call has no result.
pub enum CallError {
    /// The transaction was rolled back.
    RolledBack(String),
    /// The procedure did nothing, for this reason.
    Refused(String),
    /// What became of it is not known.
    Open(String),
}

impl From<ProcedureError> for CallError {
    fn from(error: ProcedureError) -> Self {
        match &error {
            ProcedureError::Commit(CommitError::Refused(_) | CommitError::NoRoom(_))
            | ProcedureError::Write(WriteError::ReadOnly(_)) => Self::Refused(error.to_string()),
            _ => Self::RolledBack(error.to_string()),
        }
    }
}

impl From<CreateTableError> for CallError {
    fn from(error: CreateTableError) -> Self {
        match error {
            CreateTableError::Open(open) => Self::Open(open.to_string()),
            CreateTableError::Procedure(cause) => cause.into(),
            other => Self::Refused(other.to_string()),
        }
    }
}
