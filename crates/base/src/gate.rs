//! What commits wait for.

use std::fmt;

use crate::{Lsn, Term, WaitError, wait::Patience};

/// The client stopped waiting, or was stopped: whether the transaction will survive is open. It is
/// neither "committed" nor "rolled back".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeOpen {
    /// The caller's patience ended before the commit was decided.
    Deadline,
    /// The safety level cannot be kept, and the node refuses rather than waits.
    Refused(String),
    /// Another primary leads.
    Fenced(Term),
    /// The log cannot be written.
    LogFailed(String),
    /// The node was stopped before the commit was decided.
    Stopped,
}

impl fmt::Display for OutcomeOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("stopped waiting for the commit"),
            Self::Refused(why) => write!(f, "the safety level cannot be kept: {why}"),
            Self::Fenced(term) => write!(f, "another node is the primary since term {term}"),
            Self::LogFailed(why) => write!(f, "the log cannot be written: {why}"),
            Self::Stopped => f.write_str("the node stopped"),
        }?;
        f.write_str("; the outcome of the transaction is open: look for its effects before you repeat it")
    }
}

impl std::error::Error for OutcomeOpen {}

/// Why a transaction that wants to write may not take its LSN. It is rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The safety level cannot be kept.
    Refused(String),
    /// Another primary leads.
    Deposed(String),
    /// This node hands its role to another, which will take the transaction when it is run again.
    HandsOver,
}

/// Where a primary's commits are let through.
pub trait CommitGate: Send + Sync {
    /// Below this, everything is persistent wherever the safety level demands it. Cheap; never goes
    /// back.
    fn committed(&self) -> Lsn;

    /// Whether a transaction that wants to write may take its LSN. Cheap while all is well.
    ///
    /// # Errors
    /// Why not; it is rolled back then.
    fn admit(&self) -> Result<(), NotAdmitted>;

    /// Blocks while transactions that would begin wait, since this node is about to hand its role
    /// to another. Cheap while it is not.
    ///
    /// # Errors
    /// [`WaitError::Closed`] when the role has gone; else the patience has ended.
    fn wait_to_begin(&self, _patience: Patience<'_>) -> Result<(), WaitError> {
        Ok(())
    }

    /// Blocks while as much of the log is uncommitted as the node allows, so that those who write
    /// go no faster than those who commit: standbys, or this node's disk. `false` when that lasts
    /// longer than `patience`. When the term ends, that is no reason to wait; [`CommitGate::admit`]
    /// says so. Cheap while there is room.
    fn wait_for_room(&self, _patience: Patience<'_>) -> bool {
        true
    }

    /// Blocks until everything below `until` is committed.
    ///
    /// # Errors
    /// [`OutcomeOpen`] when the wait ends without that.
    fn wait(&self, until: Lsn, patience: Patience<'_>) -> Result<(), OutcomeOpen>;

    /// What [`CommitGate::wait`] would say now; `None` while it would go on waiting. Cheap.
    fn outcome(&self, until: Lsn) -> Option<Result<(), OutcomeOpen>>;
}
