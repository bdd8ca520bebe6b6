//! A worker's way into the log: reserve, then fill or skip. A transaction that is longer than the
//! ring takes at once is put there in parts: its bound moves on with each, so that the group commit
//! can write out what is there and make room for the rest.

use std::sync::Arc;

use freshet_base::{Lsn, sync::Ordering};

use super::{Division, workers::Workers};
use crate::{
    block::{
        BLOCK_ALIGN, BLOCK_HEADER, MARK_BLOCK, mark_block, members_block, note_length, skip_header, sums_block,
        time_block,
    },
    core::LogFailure,
};

/// Why a transaction did not get its place in the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReserveError {
    /// Its redo is longer than the log buffer can take at once.
    #[error(
        "the transaction is too large: its redo takes {length} bytes of log, one transaction may take {limit}; split it, or \
         configure a higher limit"
    )]
    TransactionTooLarge {
        /// Length of all its blocks in bytes.
        length: u64,
        /// The most that is taken.
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

/// One worker's access to the log. It owns a bound of its own, so it belongs to one thread at a
/// time.
#[derive(Debug)]
pub struct Writer {
    workers: Arc<Workers>,
    slot: usize,
    /// The stream that this writer's group belongs to.
    stream: u8,
    /// The ring had room up to here when this writer last looked.
    room: u64,
    /// The end of this writer's last reservation.
    last: u64,
    /// A reservation was given up because the log failed: the bound must stay, since the range is
    /// never filled.
    stuck: bool,
}

impl Writer {
    pub(super) fn new(workers: &Arc<Workers>) -> Result<Self, TooManyWriters> {
        let too_many = TooManyWriters { limit: workers.bounds.limit() };
        let slot = workers.bounds.claim().ok_or(too_many)?;
        if !workers.fences.join(slot) {
            workers.bounds.leave(slot);
            return Err(too_many);
        }
        let stream = workers.config.grouping.stream(slot, workers.core.streams());
        // A volatile log always has room.
        let room = if workers.volatile { u64::MAX } else { 0 };
        Ok(Self { workers: Arc::clone(workers), slot, stream, room, last: 0, stuck: false })
    }

    /// The stream that this writer's blocks belong to: what their headers must say.
    #[inline]
    pub fn stream(&self) -> u8 {
        self.stream
    }

    /// Takes the next `length` bytes of the virtual log: the transaction's LSN. Never waits:
    /// whether the ring has room there is a matter of filling it. In a volatile log that is all,
    /// and nothing is left to be filled.
    ///
    /// # Errors
    /// [`ReserveError`]; nothing is reserved then.
    ///
    /// # Panics
    /// When `length` is not the length of blocks.
    #[inline]
    pub fn reserve(&mut self, length: u64) -> Result<Reservation<'_>, ReserveError> {
        freshet_base::step!(Certify);
        assert!(length >= BLOCK_HEADER as u64 && length.is_multiple_of(BLOCK_ALIGN as u64), "no length of blocks");
        let workers = &*self.workers;
        let limit = workers.config.longest_transaction;
        if length > limit {
            return Err(ReserveError::TransactionTooLarge { length, limit });
        }
        workers.check_open()?;
        if workers.volatile {
            // Filled as soon as it is taken, so no bound is needed. AcqRel: what the worker did
            // before is visible to whoever finds the log durable up to here.
            let start = workers.reserved_mark().fetch_add(length, Ordering::AcqRel);
            let end = start + length;
            return Ok(Reservation { writer: self, start, at: end, end, in_parts: false });
        }
        let start = workers.bounds.take(self.slot, workers.reserved_mark(), length);
        assert!(start >= self.last, "the LSN {start} was given to this writer before: it is at {}", self.last);
        self.last = start + length;
        Ok(Reservation { writer: self, start, at: start, end: start + length, in_parts: false })
    }

    /// Notes in the log what time it is: `micros` microseconds since 1970. Waits as
    /// [`Reservation::fill`] does. Returns where the note ends.
    ///
    /// # Errors
    /// [`ReserveError`] as for every block.
    pub fn note_time(&mut self, micros: u64) -> Result<Lsn, ReserveError> {
        let term = self.workers.term;
        self.mark(MARK_BLOCK, |lsn| time_block(lsn, term, micros))
    }

    /// Records in the log which nodes hold everything that is committed, in the words of
    /// replication. Waits as [`Reservation::fill`] does. Returns where the block ends.
    ///
    /// # Errors
    /// [`ReserveError`] as for every block.
    pub fn note_members(&mut self, bytes: &[u8]) -> Result<Lsn, ReserveError> {
        let term = self.workers.term;
        self.mark(note_length(bytes), |lsn| members_block(lsn, term, bytes))
    }

    /// Notes a place at which all nodes take down what their state is. `place` hears of it between
    /// the reservation and everything else: who has reserved something later finds what was done
    /// before this was called. Waits as [`Reservation::fill`] does. Returns where the note ends.
    ///
    /// # Errors
    /// [`ReserveError`] as for every block.
    pub fn note_mark(&mut self, place: impl FnOnce(Lsn)) -> Result<Lsn, ReserveError> {
        let term = self.workers.term;
        self.mark(MARK_BLOCK, |lsn| {
            place(lsn);
            mark_block(lsn, term)
        })
    }

    /// Records in the log what the state was at an earlier mark. Waits as [`Reservation::fill`]
    /// does. Returns where the block ends.
    ///
    /// # Errors
    /// [`ReserveError`] as for every block.
    pub fn note_sums(&mut self, bytes: &[u8]) -> Result<Lsn, ReserveError> {
        let term = self.workers.term;
        self.mark(note_length(bytes), |lsn| sums_block(lsn, term, bytes))
    }

    /// Writes a block of `length` bytes that holds no records.
    pub(super) fn mark<B: AsRef<[u8]>>(
        &mut self,
        length: usize,
        block: impl FnOnce(Lsn) -> B,
    ) -> Result<Lsn, ReserveError> {
        let reservation = self.reserve(length as u64)?;
        let (lsn, end) = (reservation.lsn(), reservation.end());
        reservation.fill(block(lsn).as_ref())?;
        // Relaxed: a count.
        self.workers.noted.fetch_add(length as u64, Ordering::Relaxed);
        self.ring_for_marks();
        Ok(end)
    }

    /// Waits until the ring has a quarter of its room free: for a worker that is about to commit
    /// and holds nothing yet that others may wait for. Costs a comparison when there is room.
    ///
    /// # Errors
    /// [`ReserveError::Failed`] when the log failed.
    #[inline]
    pub fn throttle(&mut self) -> Result<(), ReserveError> {
        freshet_base::step!(Execute);
        let quarter = self.workers.core.buffer.capacity() / 4;
        if self.last + quarter <= self.room {
            return Ok(());
        }
        self.throttle_slowly(quarter)
    }

    #[cold]
    fn throttle_slowly(&mut self, quarter: u64) -> Result<(), ReserveError> {
        let workers = &*self.workers;
        let capacity = workers.core.buffer.capacity();
        // Relaxed: a hint, taken again by `reserve`.
        let reserved = workers.reserved_mark().load(Ordering::Relaxed);
        let target = (reserved + quarter).saturating_sub(capacity);
        if workers.core.buffer.released().0 < target {
            workers.log.want(Lsn(target));
            workers.core.buffer.wait_released(Lsn(target)).map_err(|_| workers.why_closed())?;
        }
        self.room = workers.core.buffer.released().0 + capacity;
        self.last = self.last.max(reserved);
        Ok(())
    }

    /// Makes sure that the ring has room for `[start, end)`, below which this writer has nothing
    /// under way.
    #[inline]
    fn ensure_room(&mut self, start: u64, end: u64) -> Result<(), ReserveError> {
        if end > self.room { self.wait_for_room(start, end) } else { Ok(()) }
    }

    #[cold]
    fn wait_for_room(&mut self, start: u64, end: u64) -> Result<(), ReserveError> {
        let workers = &*self.workers;
        let capacity = workers.core.buffer.capacity();
        self.room = workers.core.buffer.released().0 + capacity;
        if end > self.room {
            workers.bounds.sharpen(self.slot, start);
            workers.fences.settle(self.slot);
            let target = Lsn(end - capacity);
            workers.log.want(target);
            match workers.core.buffer.wait_released(target) {
                Ok(released) => self.room = released.0 + capacity,
                Err(_) => {
                    self.stuck = true;
                    return Err(workers.why_closed());
                }
            }
        }
        Ok(())
    }

    /// Marks belong to the first stream, whoever writes them, and its logger may be asleep.
    fn ring_for_marks(&self) {
        self.workers.log.bells[0].ring_if_asleep();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.stuck {
            self.workers.fences.leave(self.slot);
            self.workers.bounds.leave(self.slot);
        }
    }
}

/// A transaction's place in the log, which must be filled to the end: with its blocks at once, or,
/// when they are longer than the ring takes at once, part by part. When it is dropped or skipped
/// before the first part, it is filled with skip blocks.
#[derive(Debug)]
#[must_use = "dropping it writes skip blocks: the transaction is not in the log"]
pub struct Reservation<'w> {
    writer: &'w mut Writer,
    start: u64,
    /// Everything below is in the ring.
    at: u64,
    end: u64,
    /// The sinks know that the transaction may be there in part.
    in_parts: bool,
}

impl Reservation<'_> {
    /// The transaction's LSN: where its first block starts.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.start)
    }

    /// Where its last block ends; it is durable when the durable watermark is here.
    #[inline]
    pub fn end(&self) -> Lsn {
        Lsn(self.end)
    }

    /// Where the next part goes.
    #[inline]
    pub fn at(&self) -> Lsn {
        Lsn(self.at)
    }

    /// Copies the next finished blocks of the transaction, or all of them, to their place. Waits
    /// until the ring has room for them, which the group commit (or a sink that reads from the
    /// ring) makes; call [`Writer::throttle`] before reserving so that this is rare. Everybody who
    /// reserved later waits, when filling, until this one is through.
    ///
    /// # Errors
    /// When the log has failed: it takes nothing more, and what it has of the transaction counts
    /// for nothing.
    ///
    /// # Panics
    /// When there are more than were reserved, or more than half the ring.
    #[inline]
    pub fn put(&mut self, blocks: &[u8]) -> Result<(), ReserveError> {
        freshet_base::step!(Log, self.lsn(), self.end());
        debug_assert_eq!(blocks[8..16], self.at.to_le_bytes(), "the blocks were finished for this place");
        let (at, length) = (self.at, blocks.len() as u64);
        let end = at + length;
        assert!(self.start <= at && length > 0, "a part that is not of the reservation");
        assert!(end <= self.end && length <= self.writer.workers.longest, "no more than was reserved, and than fits");
        if end < self.end && !self.in_parts {
            self.begin_parts();
        }
        let writer = &mut *self.writer;
        writer.ensure_room(at, end)?;
        let (workers, slot) = (&*writer.workers, writer.slot);
        if workers.ends.note(at, end) {
            workers.force_fence_if_large(end, writer.stream);
        }
        workers.fences.around(slot, at, || workers.core.buffer.write(Lsn(at), blocks));
        self.at = end;
        if end < self.end {
            // What is in the ring may be written out, and make room for the rest.
            workers.bounds.sharpen(slot, end);
        } else {
            workers.bounds.clear(slot);
            if self.in_parts {
                workers.end_long();
            }
        }
        // The group commit of this writer's stream may sleep; where blocks go to other streams too,
        // those of all.
        match workers.config.division {
            Division::Transaction => workers.log.bells[usize::from(writer.stream)].ring_if_asleep(),
            Division::Page(_) => workers.log.bells.iter().for_each(|bell| bell.ring_if_asleep()),
        }
        Ok(())
    }

    /// As [`Reservation::put`], for all of the blocks.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// When the blocks have another length than was reserved.
    #[inline]
    pub fn fill(mut self, blocks: &[u8]) -> Result<(), ReserveError> {
        assert_eq!(blocks.len() as u64, self.end - self.at, "the blocks have the length that was reserved");
        self.put(blocks)
    }

    /// Before the bound moves into the range: who finds the log filled up to there finds the range
    /// too.
    #[cold]
    fn begin_parts(&mut self) {
        self.writer.workers.begin_long(self.start, self.end);
        self.in_parts = true;
    }

    /// Makes it skip blocks: the transaction failed its validation.
    pub fn skip(self) {
        drop(self);
    }

    fn skip_rest(&mut self) -> Result<(), ReserveError> {
        let (term, stream) = (self.writer.workers.term, self.writer.stream);
        let part = self.writer.workers.longest / 4 / BLOCK_ALIGN as u64 * BLOCK_ALIGN as u64;
        let mut block = Vec::new();
        while self.at < self.end {
            let left = self.end - self.at;
            // Never longer than the ring takes, and no rest that is shorter than a block.
            let length = if left > 4 * part { part } else { left };
            // With zeros behind the header, not what the ring has there from before: blocks of any
            // stream, which a restart that looks for a boundary would find.
            block.resize(length as usize, 0);
            block[..BLOCK_HEADER].copy_from_slice(&skip_header(Lsn(self.at), length, term, stream));
            self.put(&block)?;
        }
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.at == self.end {
            return;
        }
        if self.at == self.start {
            // A log that has failed needs no skip blocks.
            let _ = self.skip_rest();
        } else {
            // Nothing may follow the part that is there, which is no transaction: the log ends
            // before it.
            self.writer.stuck = true;
            self.writer.workers.log.fail(LogFailure::bug());
        }
    }
}
