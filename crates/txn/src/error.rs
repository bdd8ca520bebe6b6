//! What can go wrong, by operation.

use std::borrow::Cow;

use freshet_base::memory::Usage;
use freshet_storage::{InstallError, ReadError};
use thiserror::Error;

use crate::Mismatch;

/// Why a write was not done. The transaction may go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// Another transaction changed the record since our snapshot, or is about to: roll back and try
    /// again.
    #[error("another transaction changed the same record first: roll back and try again")]
    Conflict,
    /// A record with this key is there.
    #[error("a record with the same key exists in unique index {index:?}")]
    UniqueViolation {
        /// The name of the index.
        index: String,
    },
    /// There is no such record in our snapshot.
    #[error("there is no such record")]
    NotFound,
    /// The row is too short for the table's keys, or too long.
    #[error("a row of {length} bytes does not fit table {table:?}")]
    Row {
        /// The name of the table.
        table: String,
        /// The row's length in bytes.
        length: usize,
    },
    /// The transaction is read-only, or the node is a standby.
    #[error("cannot write: {0}")]
    ReadOnly(&'static str),
    /// The table has no more record ids.
    #[error("table {0:?} has no more record ids")]
    TableFull(String),
    /// The transaction would be longer than a transaction may be.
    #[error(
        "the transaction writes more than the {limit} bytes of log that one may: split it, or configure a higher limit"
    )]
    TooLarge {
        /// What `log.transaction-bytes` allows, in bytes.
        limit: u64,
    },
    /// The node takes nearly as much memory as it may.
    #[error(
        "out of memory: of the {limit} bytes that this node may take (its setting memory-bytes) less than a twentieth \
         is left; bytes taken: {usage}"
    )]
    MemoryFull {
        /// What `memory-bytes` allows, in bytes.
        limit: u64,
        /// What takes how much.
        usage: Box<Usage>,
    },
    /// The table cannot have such indexes.
    #[error("{0}")]
    Definition(String),
    /// The transaction is executed again, and does something else than the first time.
    #[error("executed again, the transaction does something else: {0}")]
    Mismatch(#[from] Mismatch),
    /// The record could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<InstallError> for WriteError {
    fn from(error: InstallError) -> Self {
        match error {
            InstallError::Conflict => Self::Conflict,
            InstallError::Gone => Self::NotFound,
            InstallError::Read(cause) => Self::Read(cause),
        }
    }
}

/// Why a transaction was rolled back instead of committed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommitError {
    /// Serializable only: a record that it read was changed before its LSN.
    #[error("a record that this transaction has read was changed: try again")]
    ReadChanged,
    /// Serializable only: a record has come into or gone from a range that it read.
    #[error("the records in a range that this transaction has read were changed: try again")]
    Phantom,
    /// Serializable only, under the serial safety net: it must come before a transaction that has
    /// changed what it read, and after that one, or a later one, too.
    #[error("no serial order has room for this transaction among those that have committed: try again")]
    Exclusion,
    /// What it read could not be looked at again.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A table that it has written to was dropped before its LSN.
    #[error("table {0:?} was dropped, so what was written to it cannot be committed")]
    Dropped(String),
    /// A table that it has written to got an index before its LSN, and it began before that.
    #[error("table {0:?} got an index during this transaction: try again")]
    Altered(String),
    /// It is longer than a transaction may be, or one of its rows is longer than the log's buffer
    /// allows.
    #[error("{0}")]
    TooLarge(String),
    /// The safety level cannot be kept at the moment.
    #[error("refused, and rolled back: {0}")]
    Refused(String),
    /// Another node is the primary.
    #[error("refused, and rolled back: {0}")]
    Deposed(String),
    /// The primary hands its role to another node.
    #[error("rolled back: this node hands the role of the primary to another: try again there")]
    HandsOver,
    /// The log waits for room.
    #[error("{0}; the transaction was rolled back: make room, and try again")]
    NoRoom(String),
    /// The log takes no more blocks.
    #[error("the log cannot be written, so the transaction was rolled back: {0}")]
    Log(String),
}

/// Why a one-shot procedure did not commit. Its transaction was rolled back.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProcedureError {
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The commit failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The procedure itself chose to roll back.
    #[error("rolled back by the procedure: {0}")]
    Aborted(Cow<'static, str>),
    /// It needs more memory than it may have now.
    #[error("{0}")]
    Memory(String),
    /// Of a recorded transaction that is to be executed again: other code has executed it.
    #[error("another build of Freshet, or one with other tables of time zones, has recorded it")]
    OtherBuild,
    /// It lost every one of its tries to other transactions.
    #[error("gave up after {tries} tries; the last one failed: {last}")]
    Exhausted {
        /// How often the procedure ran before it was given up.
        tries: u32,
        /// How the last try ended.
        last: Box<ProcedureError>,
    },
}

impl ProcedureError {
    /// Whether the same procedure may succeed when it is run again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Read(cause) => *cause == ReadError::Stalled,
            Self::Write(cause) => matches!(cause, WriteError::Conflict | WriteError::Read(ReadError::Stalled)),
            Self::Commit(cause) => {
                matches!(
                    cause,
                    CommitError::ReadChanged
                        | CommitError::Phantom
                        | CommitError::Exclusion
                        | CommitError::Altered(_)
                        | CommitError::Read(ReadError::Stalled)
                )
            }
            Self::Aborted(_) | Self::Memory(_) | Self::OtherBuild | Self::Exhausted { .. } => false,
        }
    }
}
