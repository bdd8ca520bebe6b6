//! Who else gets the log, batch by batch: the log itself never learns of replicas.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use freshet_base::Lsn;

use super::Shared;

/// A part of the log that is filled: what one group commit makes durable, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Where it begins; the end of the batch before.
    pub from: Lsn,
    /// Where it ends; a block boundary.
    pub to: Lsn,
    /// The partition ends in it, ascending; each is a block boundary.
    pub partition_ends: &'a [Lsn],
    /// Those ends, its own included, at which no transaction goes on, ascending; of what was
    /// received, those that are remembered. None when all of it belongs to one long transaction.
    pub transaction_ends: &'a [Lsn],
}

/// Hears what a log gets, written or received: of each batch before the local flush begins, and of
/// its being durable.
pub trait Sink: Send + Sync {
    /// A batch is filled, and its local flush begins soon. Called in LSN order and without gaps:
    /// notes the range, wakes its own thread and returns. It never blocks, and neither attaches,
    /// releases nor detaches from in here (the list of sinks is locked).
    fn batch(&self, batch: &Batch<'_>);

    /// The log is durable here up to `to`, the end of a block. Called after each flush, under the
    /// same rules as [`Sink::batch`].
    fn durable(&self, to: Lsn) {
        let _ = to;
    }

    /// Below this, the sink needs nothing of the log any more, be it in the ring or in the store;
    /// [`SinkHandle::release`] is for a ring without one. Cheap. Called under the same rules as
    /// [`Sink::batch`].
    fn needed(&self) -> Lsn {
        Lsn::MAX
    }

    /// What was received at `at` and above is taken back, and other batches may follow from there.
    /// Called under the same rules as [`Sink::batch`].
    fn cut(&self, at: Lsn) {
        let _ = at;
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

/// All sinks, and how far batches were handed to them.
#[derive(Debug)]
pub(super) struct Sinks {
    pub(super) seats: Vec<Arc<Seat>>,
    pub(super) handed: Lsn,
}

impl Sinks {
    pub(super) fn new(start: Lsn) -> Self {
        Self { seats: Vec::new(), handed: start }
    }
}

/// A sink's place at the log; dropping it detaches the sink.
#[derive(Debug)]
pub struct SinkHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) seat: Arc<Seat>,
    pub(super) from: Lsn,
}

impl SinkHandle {
    /// Where the sink's first batch begins; what lies below was handed out before it came.
    pub fn from(&self) -> Lsn {
        self.from
    }

    /// Says that this sink needs nothing below `to` from the log's buffer any more. Without a store
    /// behind the log the buffer keeps what a sink has not released, and workers wait for it; with
    /// one, reading falls back to the store.
    pub fn release(&self, to: Lsn) {
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

/// While it lives, the log notes where rows differ from those that they replace
/// ([`Log::note_changes`](super::Log::note_changes)).
#[derive(Debug)]
pub struct Noting {
    shared: Arc<Shared>,
}

impl Noting {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        // Relaxed, here and below: a count without data behind it.
        shared.noting.fetch_add(1, Ordering::Relaxed);
        Self { shared }
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.shared.noting.fetch_sub(1, Ordering::Relaxed);
    }
}
