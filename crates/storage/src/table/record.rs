//! What storage knows of log records, and what can go wrong with them.

use std::fmt;

use freshet_base::{Fid, Lsn, RecordKind, Rid};

/// What a record in the log says besides its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Whether it inserts, updates or deletes its record.
    pub kind: RecordKind,
    /// Where the version lies that it replaced.
    pub prev: Option<Lsn>,
}

/// Why a record could not be loaded from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The bytes at this address are not this record: the log was cut there, or is damaged.
    Mismatch {
        /// Where it should have been.
        address: Lsn,
    },
    /// The log could not be read.
    Log(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { address } => {
                write!(f, "the log at {address} does not hold the record it should: run `freshet inspect log`")
            }
            Self::Log(cause) => write!(f, "the log could not be read: {cause}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Where versions come from that are not in memory: the log.
pub trait RecordSource: Send + Sync {
    /// Reads the record at `address`, which must be of this table and record, appending its row to
    /// `row`. May block on the disk.
    ///
    /// # Errors
    /// When it is not there.
    fn load(&self, address: Lsn, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Loaded, LoadError>;

    /// Versions at or above this LSN must not be made from the log: a failover could still
    /// cut them off.
    fn limit(&self) -> Lsn;
}

/// Why a read gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// A transaction that commits below our snapshot did not finish in time: try again.
    Stalled,
    /// A version had to come from the log, and could not.
    Load(LoadError),
    /// The table of this name was dropped.
    Dropped(String),
    /// The table has no such index, or not for this snapshot: it was not ready, or was dropped.
    NoIndex {
        /// The table's name.
        table: String,
        /// The number of the index that was asked for.
        index: usize,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled => f.write_str("a transaction that was about to commit did not finish in time: try again"),
            Self::Load(cause) => cause.fmt(f),
            Self::Dropped(table) => write!(f, "table {table:?} was dropped"),
            Self::NoIndex { table, index } => {
                write!(f, "table {table:?} has no index number {index} for a transaction that began when this one did")
            }
        }
    }
}

impl std::error::Error for ReadError {}

impl From<LoadError> for ReadError {
    fn from(cause: LoadError) -> Self {
        Self::Load(cause)
    }
}

/// Why a version was not put on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallError {
    /// Another transaction changed the record since our snapshot, or is about to: the first wins.
    Conflict,
    /// There is no such record in our snapshot.
    Gone,
    /// The record could not be read.
    Read(ReadError),
}

impl From<ReadError> for InstallError {
    fn from(cause: ReadError) -> Self {
        Self::Read(cause)
    }
}
