//! The group commit: for each stream one thread that makes batches of its blocks durable.
//!
//! For each batch `[done, filled)`:
//! 1. the sinks are told, so that shipping overlaps the local flush (Query Fresh, section 3.1), and of a long batch also its being filled: they
//!    are told of each quarter,
//! 2. the store writes the stream's share of it,
//! 3. the room goes back to the workers,
//! 4. the store syncs,
//! 5. the durable watermark, the minimum over all streams, moves, which resolves commit tickets. In the kind `epoch` it moves
//!    from the end of one epoch to the end of another (module `epoch`).
//!
//! A batch is due when it is large enough, when its oldest block is old enough, or when somebody waits for it; in the kind
//! `epoch`, when it is large enough or an epoch has ended.
//! The thread sleeps in two depths. While blocks come in, it wakes itself by time and costs workers
//! nothing. After an interval without any it sleeps until the next block's worker wakes it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use freshet_base::{Stamp, check};

use super::Shared;
use crate::{
    buffer::Flusher,
    core::{FlushWatcher, LogFailure},
};

/// Marks the log as failed when its thread ends by a panic, so that nobody waits for ever.
struct EndsLog<'a>(&'a Shared);

impl Drop for EndsLog<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.core.fail(LogFailure::bug());
        }
    }
}

/// The thread's whole life.
pub(super) fn run(shared: &Arc<Shared>, mut flusher: Flusher, start: Stamp) {
    let _guard = EndsLog(shared);
    let stream = flusher.stream();
    let mut commit = GroupCommit { shared, stream, done: start, oldest: None, ends: Vec::new() };
    if let Err(failure) = commit.go(&mut flusher) {
        shared.core.fail(failure);
        shared.ring();
    }
}

/// How a batch gets on.
pub(super) struct Watcher<'a>(pub(super) &'a Shared);

impl FlushWatcher for Watcher<'_> {
    fn written(&self) {
        self.0.release_room();
    }

    fn durable(&self, to: Stamp) -> Result<(), LogFailure> {
        let to = match &self.0.epochs {
            Some(epochs) => epochs.persist(to)?,
            None => to,
        };
        if self.0.core.durable.get() < to {
            self.0.core.durable.advance(to);
            for seat in &self.0.sinks().seats {
                seat.sink.durable(to);
            }
        }
        Ok(())
    }
}

struct GroupCommit<'a> {
    shared: &'a Shared,
    stream: usize,
    /// Everything below is flushed.
    done: Stamp,
    /// No block that is filled and not flushed is older than this; none while the log is idle.
    oldest: Option<Instant>,
    ends: Vec<Stamp>,
}

impl GroupCommit<'_> {
    fn go(&mut self, flusher: &mut Flusher) -> Result<(), LogFailure> {
        #[cfg(not(loom))]
        if self.shared.core.buffer.persistent().is_some() {
            return self.go_persistent(flusher);
        }
        loop {
            if self.shared.core.failure().is_some() {
                // Another stream's: what was reserved may never be filled now.
                return Ok(());
            }
            let filled = self.shared.refresh_filled().max(self.done);
            if filled > self.done {
                let now = Instant::now();
                if self.is_due(filled, now) {
                    self.flush(flusher, filled)?;
                    // Whatever is filled by now came after `now`.
                    self.oldest = Some(now);
                } else {
                    self.hand_out_early(filled);
                    self.wait_until_due();
                }
            } else if self.reserved() > self.done {
                // Somebody is between reserving and filling, which is short; its filling wakes us, or time does.
                let (shared, done) = (self.shared, self.done);
                shared.bells[self.stream]
                    .nap(shared.config.interval, true, || shared.bounds.filled(shared.reserved()) > done.0);
            } else if self.shared.is_closing() {
                return Ok(());
            } else {
                self.wait_for_blocks();
            }
        }
    }

    fn reserved(&self) -> Stamp {
        Stamp(self.shared.reserved().load(Ordering::SeqCst))
    }

    /// How large a batch is flushed at once. Workers that wait for room in a buffer that is small must not wait for more:
    /// none takes more than half of it, so half of it is filled when one has to wait.
    fn enough(&self) -> u64 {
        self.shared.config.batch_bytes.min(self.shared.core.buffer.capacity() / 2)
    }

    fn is_due(&mut self, filled: Stamp, now: Instant) -> bool {
        let config = &self.shared.config;
        let oldest = *self.oldest.get_or_insert(now);
        if let Some(epochs) = &self.shared.epochs {
            return filled.since(self.done) >= self.enough()
                || (epochs.ended() > self.done && filled >= epochs.ended())
                || self.shared.is_closing();
        }
        filled.since(self.done) >= self.enough()
            || self.shared.somebody_waits(self.done)
            || self.shared.is_closing()
            || now.duration_since(oldest) >= config.interval
    }

    fn wait_until_due(&self) {
        let (shared, done, enough) = (self.shared, self.done, self.enough());
        let age = self.oldest.map_or_else(Default::default, |oldest| oldest.elapsed());
        // The end of an epoch rings.
        let left = match &shared.epochs {
            Some(epochs) => epochs.length(),
            None => shared.config.interval.saturating_sub(age),
        };
        if left.is_zero() {
            return;
        }
        shared.bells[self.stream].nap(left, false, || {
            shared.is_awaited(done)
                || shared.is_closing()
                || shared.soon_filled().saturating_sub(done.0) >= enough
                || shared.is_early()
        });
    }

    /// Of a long batch that is still being filled, the sinks get what there is: what takes long on the way is then behind it
    /// before the batch is due. The worker whose block reaches across a partition's end wakes this thread, and may not have filled it yet.
    fn hand_out_early(&mut self, filled: Stamp) {
        if self.shared.unknown_to_sinks(filled.0) >= self.shared.early() / 2 {
            hand_out(self.shared, &mut self.ends);
        }
    }

    /// Everything reserved is flushed. First a nap: a busy log has more within the interval, and its workers should not
    /// have to wake anybody. Then sleep.
    fn wait_for_blocks(&mut self) {
        let (shared, done) = (self.shared, self.done);
        shared.core.note_thread_cpu();
        match self.oldest {
            Some(oldest) if oldest.elapsed() < shared.config.interval => {
                let left = shared.config.interval.saturating_sub(oldest.elapsed());
                shared.bells[self.stream].nap(left, false, || shared.is_awaited(done) || shared.is_closing());
            }
            _ => {
                self.oldest = None;
                shared.bells[self.stream]
                    .sleep(|| shared.reserved().load(Ordering::SeqCst) > done.0 || shared.is_closing());
            }
        }
    }

    fn flush(&mut self, flusher: &mut Flusher, filled: Stamp) -> Result<(), LogFailure> {
        let shared = self.shared;
        check(&[("durable", self.done), ("filled", filled), ("reserved", self.reserved())]);
        hand_out(shared, &mut self.ends);
        let whole = shared.sinks().transaction_end(filled);
        shared.core.flush(flusher, self.done, filled, whole, &Watcher(shared))?;
        shared.core.note_thread_cpu();
        self.done = filled;
        Ok(())
    }
}

/// Tells the sinks what is filled, whatever stream it belongs to; whoever comes first does so for all.
pub(super) fn hand_out(shared: &Shared, ends: &mut Vec<Stamp>) {
    let mut sinks = shared.sinks();
    let filled = shared.core.buffer.filled();
    let handed = sinks.handed;
    if filled <= handed {
        return;
    }
    shared.ends.collect(handed, filled, ends);
    if !sinks.seats.is_empty() {
        let mut transactions: Vec<Stamp> =
            ends.iter().copied().filter(|end| sinks.transaction_end(*end) == *end).collect();
        let last = sinks.transaction_end(filled);
        if last > handed && transactions.last() != Some(&last) {
            transactions.push(last);
        }
        let batch = super::Batch { from: handed, to: filled, partition_ends: ends, transaction_ends: &transactions };
        for seat in &sinks.seats {
            seat.sink.batch(&batch);
        }
    }
    sinks.handed = filled;
    if !sinks.seats.is_empty() {
        shared.handed.store(filled.0, Ordering::Relaxed);
    }
    sinks.forget_long(shared.core.buffer.released());
}

/// With a buffer in persistent memory: the log is durable already, and segments get it when there is enough of it
/// (de-staging; distributed logging, section 3).
#[cfg(not(loom))]
struct Destaging<'a>(&'a Shared);

#[cfg(not(loom))]
impl FlushWatcher for Destaging<'_> {
    // The ring is still the log.
    fn written(&self) {}

    fn durable(&self, to: Stamp) -> Result<(), LogFailure> {
        if let Some(persistent) = self.0.core.buffer.persistent() {
            persistent.note_destaged(to);
        }
        self.0.release_room();
        Ok(())
    }
}

#[cfg(not(loom))]
impl GroupCommit<'_> {
    /// The thread's life with a buffer in persistent memory.
    fn go_persistent(&mut self, flusher: &mut Flusher) -> Result<(), LogFailure> {
        let shared = self.shared;
        // Not so late that workers wait for room.
        let enough = shared.config.batch_bytes.max(1 << 20).min(shared.core.buffer.capacity() / 4);
        let mut seen = self.done;
        loop {
            if shared.core.failure().is_some() {
                return Ok(());
            }
            shared.advance_persistent(true)?;
            let (durable, reserved) = (shared.core.durable.get(), self.reserved());
            let closing = shared.is_closing();
            if durable > self.done && (durable.since(self.done) >= enough || closing) {
                let whole = shared.sinks().transaction_end(durable);
                shared.core.flush(flusher, self.done, durable, whole, &Destaging(shared))?;
                shared.core.note_thread_cpu();
                self.done = durable;
                continue;
            }
            if closing && reserved <= self.done {
                return Ok(());
            }
            let bell = &shared.bells[self.stream];
            if durable > seen || durable < reserved {
                // More is on its way, or somebody is between reserving and filling; who waits for an answer looks too.
                seen = durable;
                bell.nap(shared.config.interval.max(Duration::from_micros(20)), false, || shared.is_closing());
            } else {
                // Nothing comes; what is not in the segments yet is in the buffer.
                bell.sleep(|| self.reserved() > reserved || shared.is_closing());
            }
        }
    }
}
