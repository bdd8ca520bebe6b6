//! Who else gets the log, batch by batch: the log itself never learns of replicas.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use freshet_base::Stamp;

use super::Shared;

/// A part of the log that is filled: what one group commit makes durable, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Where it begins; the end of the batch before.
    pub from: Stamp,
    /// Where it ends; a block boundary.
    pub to: Stamp,
    /// The partition ends in it, ascending; each is a block boundary.
    pub partition_ends: &'a [Stamp],
    /// Those ends, its own included, at which no transaction goes on, ascending. None when all of it belongs to one long transaction.
    pub transaction_ends: &'a [Stamp],
}

/// Takes part in every group commit, before the local flush begins.
pub trait Sink: Send + Sync {
    /// A batch is filled, and its local flush begins soon. Called by the group commit, in stamp order and without
    /// gaps: notes the range, wakes its own thread and returns. It never blocks, and
    /// neither attaches, releases nor detaches from in here (the list of sinks is locked).
    fn batch(&self, batch: &Batch<'_>);

    /// The log is durable here up to `to`, the end of a block. Called by the group commit after each flush, under the same rules as [`Sink::batch`].
    fn durable(&self, to: Stamp) {
        let _ = to;
    }
}

pub(super) struct Seat {
    pub(super) sink: Arc<dyn Sink>,
    /// Everything below was read from the ring as far as this sink is concerned.
    pub(super) hold: AtomicU64,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seat(hold {:?})", self.hold)
    }
}

/// All sinks, how far batches were handed to them, and which long transactions are on their way.
#[derive(Debug)]
pub(super) struct Sinks {
    pub(super) seats: Vec<Arc<Seat>>,
    pub(super) handed: Stamp,
    /// Transactions that are put into the ring in parts, ascending: where each starts and ends. They stay until nobody can have a stamp
    /// within them in hands any more.
    long: VecDeque<(u64, u64)>,
}

impl Sinks {
    pub(super) fn new(start: Stamp) -> Self {
        Self { seats: Vec::new(), handed: start, long: VecDeque::new() }
    }

    /// `[start, end)` was reserved for one long transaction.
    pub(super) fn begin_long(&mut self, start: u64, end: u64) {
        let place = self.long.partition_point(|before| before.0 < start);
        self.long.insert(place, (start, end));
    }

    /// The last end of a transaction at or below `at`, up to which the log was found to be filled.
    pub(super) fn transaction_end(&self, at: Stamp) -> Stamp {
        let within = self.long.iter().find(|(start, end)| *start < at.0 && at.0 < *end);
        within.map_or(at, |(start, _)| Stamp(*start))
    }

    /// Everything below `to` was handed to sinks and written out by all flushers.
    pub(super) fn forget_long(&mut self, to: Stamp) {
        let to = to.min(self.handed);
        while self.long.front().is_some_and(|(_, end)| *end <= to.0) {
            self.long.pop_front();
        }
    }
}

/// A sink's place at the log; dropping it detaches the sink.
#[derive(Debug)]
pub struct SinkHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) seat: Arc<Seat>,
    pub(super) from: Stamp,
}

impl SinkHandle {
    /// Where the sink's first batch begins; what lies below was handed out before it came.
    pub fn from(&self) -> Stamp {
        self.from
    }

    /// Says that this sink needs nothing below `to` from the log's buffer any more. Without a store behind the log the
    /// buffer keeps what a sink has not released, and workers wait for it; with one, reading falls back to the store.
    pub fn release(&self, to: Stamp) {
        // AcqRel: the sink's reads come before the room they give up (acquire in `release_room`).
        self.seat.hold.fetch_max(to.0, Ordering::AcqRel);
        self.shared.release_room();
    }
}

impl Drop for SinkHandle {
    fn drop(&mut self) {
        let mut sinks = self.shared.sinks();
        sinks.seats.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
        if sinks.seats.is_empty() {
            // Relaxed, and under the lock, as everywhere.
            self.shared.handed.store(u64::MAX, Ordering::Relaxed);
        }
        drop(sinks);
        self.shared.release_room();
    }
}
