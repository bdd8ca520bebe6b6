//! Which LSN a transaction that begins now reads at.

use std::sync::{Arc, OnceLock};

use freshet_base::{Lsn, Term, WaitError, Watermark, wait::Patience};
use freshet_log::Log;

use crate::CommitGate;

/// A node's term: where its transactions get their LSNs.
pub struct Primary {
    /// The stream of this term.
    pub log: Arc<Log>,
    /// Its number.
    pub term: Term,
    /// Where its commits are let through.
    pub gate: Arc<dyn CommitGate>,
}

impl std::fmt::Debug for Primary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Primary(term {}, committed {})", self.term, self.gate.committed())
    }
}

/// Where snapshots come from: the end of the log on a primary, the read view on a standby.
#[derive(Debug)]
pub struct Snapshots {
    visible: Arc<Watermark>,
    primary: OnceLock<Primary>,
}

impl Snapshots {
    /// Snapshots of a standby whose read view is `visible`.
    pub fn standby(visible: Arc<Watermark>) -> Self {
        Self { visible, primary: OnceLock::new() }
    }

    /// From now on this node is the primary: transactions may write, and read at the end of
    /// `primary`'s log. Snapshots taken before stay what they are (Query Fresh, section 3.4.4).
    ///
    /// # Panics
    /// When it is one already, or the log begins below what was visible.
    pub fn lead(&self, primary: Primary) {
        assert!(primary.log.reserved() >= self.visible.get(), "a term begins above all that was visible before");
        assert!(self.primary.set(primary).is_ok(), "a node becomes primary once");
        // Who waits for the read view waits for the log from now on.
        self.visible.wake();
    }

    /// The term, if this node is the primary.
    #[inline]
    pub fn primary(&self) -> Option<&Primary> {
        self.primary.get()
    }

    /// The LSN at which a transaction that begins now reads: it sees what is below. Never goes
    /// back.
    #[inline]
    pub fn current(&self) -> Lsn {
        match self.primary.get() {
            Some(primary) => primary.log.reserved(),
            None => self.visible.get(),
        }
    }

    /// The LSN at which a transaction that begins now, or takes another snapshot, reads:
    /// [`Snapshots::current`], unless nothing becomes durable at the moment, or ever again, because
    /// the log waits for room or has failed. Then it is [`Snapshots::oldest_readable`], so that
    /// readers are answered as soon as standbys have that too. That may lie below what an earlier
    /// snapshot saw.
    #[inline]
    pub fn readable(&self) -> Lsn {
        match self.primary.get() {
            Some(primary) if primary.log.is_stalled() => self.oldest_readable(),
            _ => self.current(),
        }
    }

    /// The oldest LSN at which a transaction may begin that has not begun yet, whatever happens
    /// to the log: what it has made durable here. Never goes back. What such a transaction would
    /// see must not be reclaimed.
    pub fn oldest_readable(&self) -> Lsn {
        match self.primary.get() {
            // The term's beginning: of what was inherited only the newest versions may be in
            // memory.
            Some(primary) => primary.log.durable().max(primary.log.start()),
            None => self.current(),
        }
    }

    /// Everything below is committed, and transactions that begin here see it.
    pub fn committed(&self) -> Lsn {
        match self.primary.get() {
            Some(primary) => primary.gate.committed().min(primary.log.reserved()),
            None => self.visible.get(),
        }
    }

    /// See [`CommitGate::wait_for_room`]; transactions of a standby need no room.
    pub fn wait_for_room(&self, patience: Patience<'_>) -> bool {
        self.primary.get().is_none_or(|primary| primary.gate.wait_for_room(patience))
    }

    /// See [`CommitGate::wait_to_begin`]; transactions of a standby begin at any time.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait_to_begin(&self, patience: Patience<'_>) -> Result<(), WaitError> {
        self.primary.get().map_or(Ok(()), |primary| primary.gate.wait_to_begin(patience))
    }

    /// The standby's read view: what is replayed here and persistent globally.
    pub fn visible(&self) -> &Arc<Watermark> {
        &self.visible
    }
}
