//! A worker's way into the log: reserve, then fill or skip.

use std::{mem, sync::Arc};

use freshet_base::{Stamp, sync::Ordering};

use super::Shared;
use crate::{
    block::{BLOCK_ALIGN, BLOCK_HEADER, MARK_BLOCK, skip_header, time_block},
    core::LogFailure,
};

/// Why a transaction did not get its place in the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReserveError {
    /// Its redo is longer than the log buffer can take at once.
    #[error(
        "the transaction is too large: its redo takes {length} bytes, one transaction may take {limit}; split it, or \
         configure a larger log buffer"
    )]
    TransactionTooLarge {
        /// Length of its block in bytes.
        length: u64,
        /// The longest block that is taken.
        limit: u64,
    },
    /// The log failed earlier; nothing becomes durable any more.
    #[error(transparent)]
    Failed(#[from] LogFailure),
    /// The log was closed.
    #[error("the log is closed: the node is stopping")]
    Closed,
}

/// Every writer's place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {limit} writer places of the log are taken: end a session, or raise the limit of workers")]
pub struct TooManyWriters {
    /// How many there can be at once.
    pub limit: usize,
}

/// One worker's access to the log. It owns a bound of its own, so it belongs to one thread at a time.
#[derive(Debug)]
pub struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) slot: usize,
    /// The stream that this writer's group belongs to.
    pub(super) stream: u8,
    /// The ring had room up to here when this writer last looked.
    pub(super) room: u64,
    /// The end of this writer's last reservation.
    pub(super) last: u64,
    /// A reservation was given up because the log failed: the bound must stay, since the range is never filled.
    pub(super) stuck: bool,
}

impl Writer {
    /// The stream that this writer's blocks belong to: what their headers must say.
    #[inline]
    pub fn stream(&self) -> u8 {
        self.stream
    }

    /// Takes the next `length` bytes of the virtual log: the transaction's stamp. Waits when the ring is full, until the group
    /// commit (or a sink that reads from the ring) has made room; call [`Writer::throttle`] before so that
    /// this is rare.
    ///
    /// # Errors
    /// [`ReserveError`]; nothing is reserved then, unless the log failed.
    ///
    /// # Panics
    /// When `length` is not the length of a block.
    #[inline]
    pub fn reserve(&mut self, length: u64) -> Result<Reservation<'_>, ReserveError> {
        assert!(length >= BLOCK_HEADER as u64 && length.is_multiple_of(BLOCK_ALIGN as u64), "no length of a block");
        let shared = &*self.shared;
        if length > shared.longest {
            return Err(ReserveError::TransactionTooLarge { length, limit: shared.longest });
        }
        shared.check_open()?;
        let start = shared.bounds.take(self.slot, shared.reserved(), length);
        let end = start + length;
        self.last = end;
        if !shared.is_volatile() {
            if end > self.room {
                self.wait_for_room(start, end)?;
            }
            if self.shared.ends.note(start, end) {
                self.shared.nudge_if_large(end, self.stream);
            }
        }
        Ok(Reservation { writer: self, stamp: Stamp(start), length })
    }

    /// Takes the next `length` bytes of a volatile log, into which nothing is ever copied.
    ///
    /// # Errors
    /// As [`Writer::reserve`].
    ///
    /// # Panics
    /// When the log is not volatile.
    #[inline]
    pub fn reserve_volatile(&mut self, length: u64) -> Result<Stamp, ReserveError> {
        let shared = &*self.shared;
        assert!(shared.is_volatile(), "only a volatile log has nothing to fill");
        shared.check_open()?;
        // Filled as soon as it is taken, so no bound is needed. AcqRel: what the worker did before is
        // visible to whoever finds the log durable up to here.
        Ok(Stamp(shared.reserved().fetch_add(length, Ordering::AcqRel)))
    }

    /// Notes in the log what time it is: `micros` microseconds since 1970. Waits as [`Writer::reserve`] does. Returns where the note ends.
    ///
    /// # Errors
    /// [`ReserveError`] as for every block.
    pub fn note_time(&mut self, micros: u64) -> Result<Stamp, ReserveError> {
        let term = self.shared.term;
        self.mark(|stamp| time_block(stamp, term, micros))
    }

    /// Writes a block that holds no records.
    pub(super) fn mark(&mut self, block: impl FnOnce(Stamp) -> [u8; MARK_BLOCK]) -> Result<Stamp, ReserveError> {
        let reservation = self.reserve(MARK_BLOCK as u64)?;
        let (stamp, end) = (reservation.stamp(), reservation.end());
        reservation.fill(&block(stamp));
        Ok(end)
    }

    /// Waits until the ring has a quarter of its room free: for a worker that is about to commit and holds nothing yet that
    /// others may wait for. Costs a comparison when there is room.
    ///
    /// # Errors
    /// [`ReserveError::Failed`] when the log failed.
    #[inline]
    pub fn throttle(&mut self) -> Result<(), ReserveError> {
        let quarter = self.shared.core.buffer.capacity() / 4;
        if self.last + quarter <= self.room || self.shared.is_volatile() {
            return Ok(());
        }
        self.throttle_slowly(quarter)
    }

    #[cold]
    fn throttle_slowly(&mut self, quarter: u64) -> Result<(), ReserveError> {
        let shared = &*self.shared;
        let capacity = shared.core.buffer.capacity();
        // Relaxed: a hint, taken again by `reserve`.
        let reserved = shared.reserved().load(Ordering::Relaxed);
        let target = (reserved + quarter).saturating_sub(capacity);
        if shared.core.buffer.released().0 < target {
            shared.want(Stamp(target));
            shared.core.buffer.wait_released(Stamp(target)).map_err(|_| shared.why_closed())?;
        }
        self.room = shared.core.buffer.released().0 + capacity;
        self.last = self.last.max(reserved);
        Ok(())
    }

    #[cold]
    fn wait_for_room(&mut self, start: u64, end: u64) -> Result<(), ReserveError> {
        let shared = &*self.shared;
        let capacity = shared.core.buffer.capacity();
        self.room = shared.core.buffer.released().0 + capacity;
        if end > self.room {
            shared.bounds.sharpen(self.slot, start);
            let target = Stamp(end - capacity);
            shared.want(target);
            match shared.core.buffer.wait_released(target) {
                Ok(released) => self.room = released.0 + capacity,
                Err(_) => {
                    self.stuck = true;
                    return Err(shared.why_closed());
                }
            }
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.stuck {
            #[cfg(not(loom))]
            if let Some(passive) = &self.shared.passive {
                passive.leave(self.slot);
            }
            self.shared.bounds.leave(self.slot);
        }
    }
}

/// A place in the log that must be filled: with the transaction's block, or, when it is dropped or skipped, with a skip block.
#[derive(Debug)]
#[must_use = "dropping it writes a skip block: the transaction is not in the log"]
pub struct Reservation<'w> {
    writer: &'w mut Writer,
    stamp: Stamp,
    length: u64,
}

impl Reservation<'_> {
    /// The transaction's stamp: where its block starts.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Where its block ends; it is durable when the durable watermark is here.
    #[inline]
    pub fn end(&self) -> Stamp {
        self.stamp.plus(self.length)
    }

    /// Copies the finished block to its place.
    ///
    /// # Panics
    /// When the block has another length than was reserved.
    #[inline]
    pub fn fill(self, block: &[u8]) {
        assert_eq!(block.len() as u64, self.length, "the block has the length that was reserved");
        debug_assert_eq!(block[8..16], self.stamp.0.to_le_bytes(), "the block was finished for this stamp");
        self.put(block);
        mem::forget(self);
    }

    /// Makes it a skip block: the transaction failed its validation.
    pub fn skip(self) {
        drop(self);
    }

    #[inline]
    fn put(&self, bytes: &[u8]) {
        let shared = &*self.writer.shared;
        if !shared.is_volatile() {
            #[cfg(not(loom))]
            if shared.core.buffer.persistent().is_some() {
                self.put_persistently(bytes);
                shared.bounds.clear(self.writer.slot);
                return shared.bells[usize::from(self.writer.stream)].ring_if_asleep();
            }
            shared.core.buffer.write(self.stamp, bytes);
        }
        shared.bounds.clear(self.writer.slot);
        shared.bells[usize::from(self.writer.stream)].ring_if_asleep();
    }
}

impl Reservation<'_> {
    /// Into persistent memory: durable when this returns, or, with passive group commit, when the next block's turn comes or
    /// somebody asks.
    #[cfg(not(loom))]
    #[inline]
    fn put_persistently(&self, bytes: &[u8]) {
        let shared = &*self.writer.shared;
        match &shared.passive {
            Some(passive) => {
                passive.settle(self.writer.slot);
                shared.core.buffer.write(self.stamp, bytes);
                passive.leave_open(self.writer.slot, self.stamp.0);
            }
            None => {
                shared.core.buffer.write(self.stamp, bytes);
                crate::persist::fence();
            }
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.put(&skip_header(self.stamp, self.length, self.writer.shared.term, self.writer.stream));
    }
}
