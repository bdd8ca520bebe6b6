//! What replication asks of a log; the engine binds these to the log crate, tests to memory.

use std::{path::PathBuf, time::Duration};

use freshet_base::Stamp;
use freshet_fabric::memory::Region;

/// Why bytes of the log cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogReadError {
    /// They are no longer kept.
    #[error("the log from {at} on is no longer kept here, the oldest byte is at {oldest}")]
    Gone {
        /// What was asked for.
        at: Stamp,
        /// What there is.
        oldest: Stamp,
    },
    /// The device, or the log itself, failed.
    #[error("the log cannot be read at {at}: {why}")]
    Failed {
        /// What was asked for.
        at: Stamp,
        /// What the log says.
        why: String,
    },
}

/// A log that can be read while it grows.
pub trait LogSource: Send + Sync {
    /// Fills `into` with the log from `at` on, all of which was handed over before.
    ///
    /// # Errors
    /// [`LogReadError`] when that part is gone or cannot be read.
    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), LogReadError>;
}

/// Why a standby's log cannot go on. It stops the standby.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the standby's log failed: {why}")]
pub struct StoreError {
    /// What the log says: file, offset and remedy.
    pub why: String,
}

/// Why bytes in a standby's log buffer do not become part of its log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// They are not whole blocks that belong there. Nothing was taken; the sender may send them
    /// once more.
    #[error("what was received is damaged: {0}")]
    Damaged(String),
    /// The log takes nothing.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Is told of in-sync sets, as they were recorded.
pub type OnMembers = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A standby's log: a ring that is written by its primary, or by one receiving thread, and
/// persisted behind its back.
///
/// Only the receiving thread calls [`StandbyStore::region`], [`StandbyStore::revoke`],
/// [`StandbyStore::write`], [`StandbyStore::accept`] and [`StandbyStore::mark_received`], only the
/// replay coordinator [`StandbyStore::mark_replayed`]; [`StandbyStore::cut`] is called while both
/// rest.
pub trait StandbyStore: Send + Sync {
    /// The end of the log, persistent or not.
    fn received(&self) -> Stamp;

    /// The end of its persistent part.
    fn persisted(&self) -> Stamp;

    /// How many bytes the ring holds.
    fn capacity(&self) -> u64;

    /// Where the ring has room up to: min(persisted, replayed) + capacity.
    fn free_until(&self) -> Stamp;

    /// The ring's memory, for a primary that writes there itself: virtual byte `x` lies at `x`
    /// modulo its length.
    ///
    /// # Errors
    /// [`StoreError`] when there is no memory to give.
    fn region(&self) -> Result<Region, StoreError>;

    /// Takes the ring's memory back from those that [`StandbyStore::region`] gave it to: when this
    /// returns, nothing that they write can become part of this log. What was received stays, and
    /// nothing beyond it. Costs nothing when no other process could have mapped it.
    ///
    /// # Errors
    /// [`StoreError`] when the system refuses that; the log must not be used then for anything that
    /// they might write into.
    fn revoke(&self) -> Result<(), StoreError>;

    /// Lets the primary write up to the stamp that is returned; at most as
    /// [`StandbyStore::free_until`] says, and not so far that readers find nothing in the ring any
    /// more.
    fn grant(&self) -> Stamp;

    /// The primary has written everything below `to`: checks that whole blocks lie there, by their
    /// own checksums, and makes them part of the log; they may be persisted. Returns whether all of
    /// it are rows and marks, whose replay takes no longer than looking at them.
    ///
    /// # Errors
    /// [`AcceptError`]; nothing was taken.
    fn accept(&self, to: Stamp) -> Result<bool, AcceptError>;

    /// Puts `bytes` into the ring at `at`, at or above what was received. The caller has made sure
    /// that there is room.
    ///
    /// # Errors
    /// [`StoreError`] when the log has failed or was closed.
    fn write(&self, at: Stamp, bytes: &[u8]) -> Result<(), StoreError>;

    /// The last known end of a transaction at or below `at`, which is at or below what was
    /// received. What is received, persisted and replayed ends with a block; that may be within a
    /// transaction.
    fn transaction_end(&self, at: Stamp) -> Stamp;

    /// Calls `note` with what each block of members records that arrives from now on, before the
    /// block can be persisted. `note` may block.
    fn on_members(&self, note: OnMembers);

    /// Everything below `to` is complete: it may be persisted.
    fn mark_received(&self, to: Stamp);

    /// Everything below `to` was replayed: once persistent too, its room may be used again.
    fn mark_replayed(&self, to: Stamp);

    /// Whether what was received is persisted by those who replay, before they do
    /// (persist-upon-replay; Query Fresh, section 3.1). Else the store does it behind everybody's
    /// back.
    fn persists_upon_replay(&self) -> bool {
        false
    }

    /// Makes `[from, to)`, which was received, durable as one share of several; called by several
    /// threads at once. Nothing is said of it before [`StandbyStore::note_persisted`].
    fn persist_share(&self, from: Stamp, to: Stamp) {
        let _ = (from, to);
    }

    /// All shares of what lies below `to` are durable: it counts as persistent from now on.
    ///
    /// # Errors
    /// [`StoreError`] when the log has failed or was closed.
    fn note_persisted(&self, to: Stamp) -> Result<(), StoreError> {
        let _ = to;
        Ok(())
    }

    /// Blocks until more than `beyond` is persistent, at most for `patience`; returns what is.
    ///
    /// # Errors
    /// [`StoreError`] when nothing more will ever be persisted.
    fn wait_persisted(&self, beyond: Stamp, patience: Duration) -> Result<Stamp, StoreError>;

    /// Reads the log back, from the ring or from where it is persistent.
    ///
    /// # Errors
    /// [`LogReadError`] when that part is gone or cannot be read.
    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), LogReadError>;

    /// Saves the log from `from` to its end into a file that can be inspected, and returns its
    /// name; `None` when there is nothing to save or nowhere to save it.
    ///
    /// # Errors
    /// [`StoreError`] when that fails; nothing may then be cut.
    fn save_tail(&self, from: Stamp) -> Result<Option<PathBuf>, StoreError>;

    /// Removes everything at and above `at`, durably.
    ///
    /// # Errors
    /// [`StoreError`] when that fails.
    fn cut(&self, at: Stamp) -> Result<(), StoreError>;
}
