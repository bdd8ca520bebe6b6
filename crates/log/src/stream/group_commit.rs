//! The pipelined group commit: one thread that makes batches of blocks durable.
//!
//! For each batch `[done, filled)`:
//! 1. the sinks are told, so that shipping overlaps the local flush (Query Fresh, section 3.1),
//! 2. the store writes and syncs it,
//! 3. the durable watermark moves, which resolves commit tickets,
//! 4. the room goes back to the workers.
//!
//! A batch is due when it is large enough, when its oldest block is old enough, or when somebody waits for it.
//! The thread sleeps in two depths. While blocks come in, it wakes itself by time and costs workers
//! nothing. After an interval without any it sleeps until the next block's worker wakes it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use freshet_base::Stamp;

use super::Shared;
use crate::{buffer::Flusher, core::LogFailure};

/// Marks the log as failed when its thread ends by a panic, so that nobody waits for ever.
struct EndsLog<'a>(&'a Shared);

impl Drop for EndsLog<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.core.fail(LogFailure::bug());
        }
    }
}

/// The thread's whole life; gives the flusher back.
pub(super) fn run(shared: &Arc<Shared>, mut flusher: Flusher, start: Stamp) -> Flusher {
    let _guard = EndsLog(shared);
    let result = GroupCommit { shared, done: start, oldest: None, ends: Vec::new() }.go(&mut flusher);
    match result.and_then(|()| Ok(shared.core.store.as_ref().map_or(Ok(()), |store| store.sync_watermark())?)) {
        Ok(()) => {
            shared.core.durable.close();
            shared.core.buffer.close();
        }
        Err(failure) => shared.core.fail(failure),
    }
    flusher
}

struct GroupCommit<'a> {
    shared: &'a Shared,
    /// Everything below is flushed.
    done: Stamp,
    /// No block that is filled and not flushed is older than this; none while the log is idle.
    oldest: Option<Instant>,
    ends: Vec<Stamp>,
}

impl GroupCommit<'_> {
    fn go(&mut self, flusher: &mut Flusher) -> Result<(), LogFailure> {
        loop {
            let filled = self.shared.refresh_filled().max(self.done);
            if filled > self.done {
                let now = Instant::now();
                if self.is_due(filled, now) {
                    self.flush(flusher, filled)?;
                    // Whatever is filled by now came after `now`.
                    self.oldest = Some(now);
                } else {
                    self.wait_until_due();
                }
            } else if self.reserved() > self.done {
                // Somebody is between reserving and filling, which is short; its filling wakes us, or time does.
                let (shared, done) = (self.shared, self.done);
                shared.bell.nap(shared.config.interval, true, || shared.bounds.filled(shared.reserved()) > done.0);
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

    fn is_due(&mut self, filled: Stamp, now: Instant) -> bool {
        let config = &self.shared.config;
        let oldest = *self.oldest.get_or_insert(now);
        filled.since(self.done) >= config.batch_bytes
            || self.shared.somebody_waits(self.done)
            || self.shared.is_closing()
            || now.duration_since(oldest) >= config.interval
    }

    fn wait_until_due(&self) {
        let age = self.oldest.map_or_else(Default::default, |oldest| oldest.elapsed());
        let left = self.shared.config.interval.saturating_sub(age);
        if left.is_zero() {
            return;
        }
        let (shared, done) = (self.shared, self.done);
        shared.bell.nap(left, false, || {
            shared.somebody_waits(done)
                || shared.is_closing()
                || shared.reserved().load(Ordering::SeqCst) - done.0 >= shared.config.batch_bytes
        });
    }

    /// Everything reserved is flushed. First a nap: a busy log has more within the interval, and its workers should not
    /// have to wake anybody. Then sleep.
    fn wait_for_blocks(&mut self) {
        let (shared, done) = (self.shared, self.done);
        shared.core.note_thread_cpu();
        match self.oldest {
            Some(oldest) if oldest.elapsed() < shared.config.interval => {
                let left = shared.config.interval.saturating_sub(oldest.elapsed());
                shared.bell.nap(left, false, || shared.somebody_waits(done) || shared.is_closing());
            }
            _ => {
                self.oldest = None;
                shared.bell.sleep(|| shared.reserved().load(Ordering::SeqCst) > done.0 || shared.is_closing());
            }
        }
    }

    fn flush(&mut self, flusher: &mut Flusher, filled: Stamp) -> Result<(), LogFailure> {
        let shared = self.shared;
        assert!(self.done <= filled && filled <= self.reserved(), "durable <= filled <= reserved");
        shared.ends.collect(self.done, filled, &mut self.ends);
        {
            let mut sinks = shared.sinks();
            let batch = super::Batch { from: self.done, to: filled, partition_ends: &self.ends };
            for seat in &sinks.seats {
                seat.sink.batch(&batch);
            }
            sinks.handed = filled;
        }
        shared.core.flush(flusher, self.done, filled)?;
        for seat in &shared.sinks().seats {
            seat.sink.durable(filled);
        }
        shared.release_room();
        shared.core.note_thread_cpu();
        self.done = filled;
        Ok(())
    }
}
