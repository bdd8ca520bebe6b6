//! The kinds of group commit: when a batch is due, and what is told as durable.
//!
//! | kind | a batch is due | told |
//! |---|---|---|
//! | [`Pipelined`] | when it is large enough, when its oldest block is old enough, or when somebody waits for it | what is durable |
//! | [`Epochs`] | when it is large enough, or an epoch has ended | what is durable, from the end of an epoch to the end of another |
//! | passive | as pipelined; in persistent memory, blocks are fenced later (module `passive`) | what is durable |
//! | [`Destaging`]: any of them in persistent memory | when it is large enough, or somebody waits for the store: it is durable already | as theirs |
//! | [`AtOnce`]: what is received | as soon as it is there | what is durable |

use std::{fmt, sync::Arc, time::Duration};

use freshet_base::Lsn;

use super::{LogConfig, epoch::Epochs};
use crate::core::LogFailure;

/// What a thread finds that persists a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The stream's blocks below are in the store.
    pub done: Lsn,
    /// Those below may be put there.
    pub to: Lsn,
    /// Where that was when it looked before.
    pub seen: Lsn,
    /// Blocks lie up to here, or will.
    pub reserved: Lsn,
    /// How old the oldest of them is, at most.
    pub age: Duration,
    /// Somebody waits until the log is durable beyond `done`.
    pub is_awaited: bool,
    /// Somebody waits until the store is.
    pub store_is_awaited: bool,
}

/// A kind of group commit.
pub(crate) trait GroupCommit: Send + Sync + fmt::Debug {
    /// How long the batch may wait for company yet: nothing when it is due. None when time has
    /// nothing to do with it.
    fn left(&self, found: &Found) -> Option<Duration>;

    /// All streams are durable up to `durable`: what is told.
    ///
    /// # Errors
    /// [`LogFailure`] when that cannot be put on record.
    fn announce(&self, durable: Lsn) -> Result<Lsn, LogFailure> {
        Ok(durable)
    }

    /// While blocks come in, a thread looks this often; never, if it is woken for each.
    fn interval(&self) -> Duration {
        Duration::ZERO
    }

    /// What is handed to sinks at least, before a batch is due.
    fn early(&self) -> u64 {
        u64::MAX
    }

    /// The log is being closed.
    fn stop(&self) {}

    /// Nothing is persisted any more: what is told in the end.
    ///
    /// # Errors
    /// As for [`GroupCommit::announce`].
    fn close(&self) -> Result<Lsn, LogFailure> {
        Ok(Lsn::ZERO)
    }
}

/// How large a batch is flushed at once. Workers that wait for room in a buffer that is small must
/// not wait for more: none takes more than half of it, so half of it is filled when one has to
/// wait.
pub(super) fn enough(config: &LogConfig) -> u64 {
    config.batch_bytes.min(config.capacity as u64 / 2)
}

/// So much is handed out before a batch is due: a quarter of it, and not less than a partition, so
/// that waking up for it costs little.
pub(super) fn early(config: &LogConfig) -> u64 {
    config.partition.max(config.batch_bytes / 4)
}

/// By size or time, overlapped with shipping (Query Fresh, section 3.1).
#[derive(Debug)]
pub(crate) struct Pipelined(pub(super) LogConfig);

impl GroupCommit for Pipelined {
    fn left(&self, found: &Found) -> Option<Duration> {
        if found.to <= found.done {
            return None;
        }
        let due = found.is_awaited || found.to.since(found.done) >= enough(&self.0);
        Some(if due { Duration::ZERO } else { self.0.interval.saturating_sub(found.age) })
    }

    fn interval(&self) -> Duration {
        self.0.interval
    }

    fn early(&self) -> u64 {
        early(&self.0)
    }
}

/// What is received was a batch at its primary, and is one here.
#[derive(Debug)]
pub(crate) struct AtOnce;

impl GroupCommit for AtOnce {
    fn left(&self, found: &Found) -> Option<Duration> {
        (found.to > found.done).then_some(Duration::ZERO)
    }
}

/// The ring is in persistent memory, and the store gets it later.
#[derive(Debug)]
pub(crate) struct Destaging {
    /// Not so late that those who fill wait for room.
    enough: u64,
    /// Workers wake nobody when they have fenced: it is looked for.
    interval: Duration,
    early: u64,
    epochs: Option<Arc<Epochs>>,
}

/// The least that is put into the store at once, where the ring is large.
const ENOUGH: u64 = 1 << 20;

impl Destaging {
    /// Of what workers fill.
    pub(super) fn filled(config: &LogConfig, epochs: Option<Arc<Epochs>>) -> Self {
        Self {
            enough: config.batch_bytes.max(ENOUGH).min(config.capacity as u64 / 4),
            interval: config.interval.max(Duration::from_micros(20)),
            early: early(config),
            epochs,
        }
    }

    /// Of what is received.
    pub(super) fn received(capacity: u64) -> Self {
        Self { enough: ENOUGH.min(capacity / 4), interval: Duration::ZERO, early: u64::MAX, epochs: None }
    }
}

impl GroupCommit for Destaging {
    fn left(&self, found: &Found) -> Option<Duration> {
        let waiting = found.to.since(found.done.min(found.to));
        if waiting > 0 && (found.store_is_awaited || waiting >= self.enough) {
            return Some(Duration::ZERO);
        }
        // More is on its way, or somebody is between reserving and filling.
        let moves = found.to > found.seen || found.to < found.reserved;
        (moves && !self.interval.is_zero()).then_some(self.interval)
    }

    fn announce(&self, durable: Lsn) -> Result<Lsn, LogFailure> {
        self.epochs.as_ref().map_or(Ok(durable), |epochs| epochs.announce(durable))
    }

    fn early(&self) -> u64 {
        self.early
    }

    fn stop(&self) {
        if let Some(epochs) = &self.epochs {
            epochs.stop();
        }
    }

    fn close(&self) -> Result<Lsn, LogFailure> {
        self.epochs.as_ref().map_or(Ok(Lsn::ZERO), |epochs| epochs.close())
    }
}
