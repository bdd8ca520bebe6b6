//! Persisting: for each stream one thread that makes its blocks durable, on every node.
//!
//! For each batch `[done, to)`:
//! 1. the sinks are told, so that shipping overlaps the local flush (Query Fresh, section 3.1), and
//!    of a long batch also its being filled: they are told of each quarter,
//! 2. the store writes the stream's share of it,
//! 3. the room goes back to those who fill,
//! 4. the store syncs,
//! 5. the durable watermark, the minimum over all streams, moves, which resolves commit tickets.
//!
//! Where the ring is in persistent memory, what is filled there is durable, and told, before that:
//! `to` is how far, and the store gets it when there is enough of it (de-staging; distributed
//! logging, section 3; Query Fresh, section 3.2).
//!
//! When a batch is due, and what is told of it, is for the kind of group commit to say
//! ([`GroupCommit`]). The thread sleeps in two depths. While blocks come in, it wakes itself by
//! time and costs those who fill nothing. After an interval without any it sleeps until the next
//! block wakes it.

use std::{
    fmt,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use freshet_base::{Lsn, Stage, check, cpu::Stint};

use super::{
    Batch, Shared,
    group_commit::{Found, GroupCommit},
};
use crate::{
    buffer::{Flusher, Run},
    core::LogFailure,
    segments::Note,
    store::LogStore,
};

/// At most this many bytes of a stream are ever written without being synced. So a valid block that
/// lies at least as far behind a bad one proves that the bad one was durable once (module `tail`).
pub(crate) const MAX_UNSYNCED: u64 = 8 << 20;

/// A stream's blocks are gathered from the ring and written in pieces of this size (SiloR, section
/// 3.4).
const WRITE: usize = 512 << 10;

/// Who fills a log, as far as those who persist it care.
pub(crate) trait Fill: Send + Sync + fmt::Debug {
    /// When batches are due, and what is told of them.
    fn kind(&self) -> &dyn GroupCommit;

    /// Blocks lie up to here, or will.
    fn reserved(&self) -> Lsn;

    /// How far the log is filled without a gap, computed now.
    fn filled(&self) -> Lsn;

    /// How far it is filled, or will be at any moment.
    fn soon_filled(&self) -> Lsn;

    /// Where the ring is in persistent memory: makes durable there what is filled, as far as it is
    /// not somebody else's work unless it is `mine`, and tells it.
    ///
    /// # Errors
    /// [`LogFailure`]; nothing can be said then.
    fn persist(&self, mine: bool) -> Result<(), LogFailure>;

    /// The last end of a transaction at or below `at`, up to which the log was found to be filled.
    fn transaction_end(&self, at: Lsn) -> Lsn;

    /// Collects the partition ends in `(from, to]`, ascending.
    fn partition_ends(&self, from: Lsn, to: Lsn, into: &mut Vec<Lsn>);

    /// Everything below `to` was handed to sinks and written out by all streams.
    fn handed_out(&self, to: Lsn);
}

/// Marks the log as failed when its thread ends by a panic, so that nobody waits for ever.
pub(super) struct EndsLog<'a>(pub(super) &'a Shared);

impl Drop for EndsLog<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(LogFailure::bug());
        }
    }
}

/// The whole life of a thread. One whose number is no stream's puts nothing into the store: it
/// makes durable in persistent memory what was received.
pub(super) fn run(log: &Shared, fill: &dyn Fill, number: usize) {
    let _guard = EndsLog(log);
    let (kind, oldest, ends, stint) = (fill.kind(), None, Vec::new(), log.core.begin_to_persist());
    let mut persist = Persist { log, fill, kind, number, seen: Lsn::ZERO, oldest, ends, stint };
    if let Err(failure) = persist.go() {
        log.fail(failure);
    }
}

struct Persist<'a> {
    log: &'a Shared,
    fill: &'a dyn Fill,
    kind: &'a dyn GroupCommit,
    number: usize,
    /// Where the last look found the end.
    seen: Lsn,
    /// No block that waits for its batch is older than this; none while the log is idle.
    oldest: Option<Instant>,
    ends: Vec<Lsn>,
    stint: Stint<'a>,
}

impl Persist<'_> {
    fn go(&mut self) -> Result<(), LogFailure> {
        loop {
            if self.log.core.failure().is_some() {
                // Another thread's: what was reserved may never be filled now.
                return Ok(());
            }
            // Before it looks: what is filled until then is persisted.
            let closing = self.log.is_closing();
            let reserved = self.fill.reserved();
            let now = Instant::now();
            if self.log.core.pmem.is_there() {
                self.fill.persist(closing || self.is_for_lines())?;
            } else {
                self.fill.filled();
            }
            let found = self.look(self.log.core.flushable(), reserved, now);
            if found.to > found.done && (closing || self.kind.left(&found) == Some(Duration::ZERO)) {
                self.log.hand_out(self.fill, &mut self.ends);
                freshet_base::step!(Persist, found.done, found.to);
                let mut flusher = self.log.streams[self.number].flusher();
                // Looked up here: no cut comes any more.
                self.log.flush(self.fill, &mut flusher, self.log.core.flushable())?;
                drop(flusher);
                self.stint.note();
                // What is filled by now came after `now`.
                self.oldest = Some(now);
            } else if closing && reserved <= found.done {
                return Ok(());
            } else {
                self.rest(&found);
            }
            self.seen = found.to;
        }
    }

    /// Whether no stream is this thread's.
    fn is_for_lines(&self) -> bool {
        self.number == self.log.streams.len()
    }

    /// What there is, when everything below `to` may be put into the store.
    fn look(&mut self, to: Lsn, reserved: Lsn, now: Instant) -> Found {
        let mut found = self.log.found(self.number, to, reserved);
        found.seen = self.seen;
        if found.to > found.done {
            found.age = now.duration_since(*self.oldest.get_or_insert(now));
        }
        found
    }

    /// Until there is something to do, or time to look again.
    fn rest(&mut self, found: &Found) {
        let (log, fill, kind, number) = (self.log, self.fill, self.kind, self.number);
        let bell = &log.bells[number];
        let is_due = |to: Lsn| kind.left(&log.found(number, to, to)) == Some(Duration::ZERO);
        if let Some(left) = kind.left(found) {
            // A batch waits for company.
            self.hand_out_early(found.to);
            let early = kind.early();
            bell.nap(left, false, || {
                log.is_closing() || is_due(fill.soon_filled()) || log.unknown_to_sinks(fill.filled().0) >= early
            });
        } else if found.reserved > found.to && !kind.interval().is_zero() {
            // Somebody is between reserving and filling, which is short; its filling wakes us, or
            // time does.
            bell.nap(kind.interval(), true, || fill.filled() > found.done);
        } else if let Some(age) = self.oldest.map(|oldest| oldest.elapsed()).filter(|age| *age < kind.interval()) {
            // Everything reserved is flushed. A busy log has more within the interval, and those
            // who fill it should not have to wake anybody.
            self.stint.note();
            bell.nap(kind.interval() - age, false, || log.is_closing() || is_due(fill.soon_filled()));
        } else {
            self.stint.note();
            self.oldest = None;
            let lines = self.is_for_lines();
            bell.sleep(|| {
                log.is_closing()
                    || fill.reserved() > found.reserved
                    || is_due(log.core.flushable())
                    || lines && log.core.flushable() < log.core.buffer.filled()
            });
        }
    }

    /// Of a long batch that is still being filled, the sinks get what there is: what takes long on
    /// the way is then behind it before the batch is due. The worker whose block reaches across a
    /// partition's end wakes this thread, and may not have filled it yet.
    fn hand_out_early(&mut self, filled: Lsn) {
        if self.log.unknown_to_sinks(filled.0) >= self.kind.early() / 2 {
            self.log.hand_out(self.fill, &mut self.ends);
        }
    }
}

/// What one flush has put into the store.
struct Flushed {
    bytes: u64,
    /// The blocks of all streams are durable there below this, the end of one.
    durable: Lsn,
    /// What a restart is to find.
    note: Option<Note>,
}

impl Shared {
    /// Tells the sinks what is filled, whatever stream it belongs to; the first to come does so for
    /// all.
    pub(super) fn hand_out(&self, fill: &dyn Fill, ends: &mut Vec<Lsn>) {
        let mut sinks = self.sinks();
        let filled = self.core.buffer.filled();
        let handed = sinks.handed;
        if filled <= handed {
            return;
        }
        freshet_base::step!(Ship, handed, filled);
        if !sinks.seats.is_empty() {
            fill.partition_ends(handed, filled, ends);
            let mut transactions: Vec<Lsn> =
                ends.iter().copied().filter(|end| fill.transaction_end(*end) == *end).collect();
            let last = fill.transaction_end(filled);
            if last > handed && transactions.last() != Some(&last) {
                transactions.push(last);
            }
            let last = transactions.last().copied().unwrap_or(handed);
            assert!(last <= filled && transactions.is_sorted(), "transactions end beyond {filled}: {transactions:?}");
            assert!(ends.is_sorted() && ends.iter().all(|end| handed < *end && *end <= filled), "ends of no batch");
            let batch = Batch { from: handed, to: filled, partition_ends: ends, transaction_ends: &transactions };
            for seat in &sinks.seats {
                seat.sink.batch(&batch);
            }
            self.handed.store(filled.0, Ordering::Relaxed);
        }
        sinks.handed = filled;
        drop(sinks);
        fill.handed_out(filled.min(self.core.buffer.released()));
    }

    /// Puts a stream's share of everything below `to` into the store, and tells what is durable
    /// then; without a store it is so at once. After an error nothing can be said.
    pub(super) fn flush(&self, fill: &dyn Fill, flusher: &mut Flusher, to: Lsn) -> Result<(), LogFailure> {
        let stream = flusher.stream();
        let done = &self.streams[stream].done;
        let from = Lsn(done.load(Ordering::SeqCst));
        if from >= to {
            return Ok(());
        }
        freshet_base::step!(Persist, from, to);
        let (filled, reserved) = (self.core.buffer.filled(), fill.reserved());
        check(&[(Stage::Persist, to), (Stage::Log, filled), (Stage::Certify, reserved)]);
        let Flushed { bytes, durable, note } = match &self.core.store {
            None => {
                flusher.done(&self.core.buffer, to);
                Flushed { bytes: to.since(from), durable: to, note: None }
            }
            Some(store) if store.alone().is_some() => self.flush_alone(fill, store, flusher, (from, to))?,
            Some(store) => self.flush_share(store, flusher, to)?,
        };
        // Durably, before the room is given back: a restart looks in persistent memory for what the
        // store does not have.
        self.core.pmem.stored(durable);
        self.release_room();
        self.announce(fill.kind(), durable)?;
        self.stored.advance(durable);
        if let (Some(store), Some(note)) = (&self.core.store, note) {
            store.stream(stream).note(note)?;
        }
        self.core.count_batch(bytes);
        let before = done.swap(to.0, Ordering::SeqCst);
        assert_eq!(before, from.0, "two threads write stream {stream}");
        Ok(())
    }

    /// The only stream's share is everything, and lies in one piece.
    fn flush_alone(
        &self,
        fill: &dyn Fill,
        store: &LogStore,
        flusher: &mut Flusher,
        (from, to): (Lsn, Lsn),
    ) -> Result<Flushed, LogFailure> {
        freshet_base::step!(Persist, from, to);
        let segments = store.stream(0);
        let mut at = from;
        while at < to {
            let end = to.min(at.plus(MAX_UNSYNCED));
            segments.append(at, &self.core.buffer.lend(flusher, at, end))?;
            flusher.done(&self.core.buffer, end);
            self.core.written.fetch_max(end.0, Ordering::Release);
            self.release_room();
            self.sync(store, 0)?;
            at = end;
        }
        // A piece may end within a block; where a restart begins to look for the log's end is
        // between transactions.
        let whole = fill.transaction_end(to);
        assert!(whole <= to, "a transaction that ends at {to} ends at {whole}");
        let note = (whole > segments.noted().bound).then(|| Note::alone(whole));
        Ok(Flushed { bytes: to.since(from), durable: to, note })
    }

    /// One stream of several: its blocks are gathered.
    fn flush_share(&self, store: &LogStore, flusher: &mut Flusher, to: Lsn) -> Result<Flushed, LogFailure> {
        let (core, stream) = (&self.core, flusher.stream());
        let segments = store.stream(stream);
        let (mut runs, mut gathered) = flusher.take_scratch();
        core.runs.take(&core.buffer, store, flusher, to, &mut runs);
        let (mut unsynced, mut bytes) = (0, 0);
        let mut write = |gathered: &mut Vec<u8>, unsynced: &mut u64| -> Result<(), LogFailure> {
            segments.append(segments.end(), &[gathered])?;
            *unsynced += gathered.len() as u64;
            bytes += gathered.len() as u64;
            gathered.clear();
            Ok(())
        };
        for Run { from, to } in &runs {
            let mut at = *from;
            while at < *to {
                let end = to.0.min(at.0 + (WRITE - gathered.len()) as u64);
                for piece in core.buffer.lend(flusher, at, Lsn(end)) {
                    gathered.extend_from_slice(piece);
                }
                at = Lsn(end);
                if gathered.len() == WRITE {
                    write(&mut gathered, &mut unsynced)?;
                    if unsynced >= MAX_UNSYNCED {
                        self.sync(store, stream)?;
                        unsynced = 0;
                    }
                }
            }
        }
        if !gathered.is_empty() {
            write(&mut gathered, &mut unsynced)?;
        }
        flusher.done(&core.buffer, to);
        let all_written = core.runs.written(stream);
        store.written_to(all_written);
        core.written.fetch_max(all_written.0, Ordering::Release);
        self.release_room();
        if unsynced > 0 {
            self.sync(store, stream)?;
        }
        let (durable, note) = core.runs.durable(stream, segments.end(), bytes > 0);
        flusher.give_scratch(runs, gathered);
        Ok(Flushed { bytes, durable, note })
    }

    fn sync(&self, store: &LogStore, stream: usize) -> Result<(), LogFailure> {
        let before = Instant::now();
        store.stream(stream).sync()?;
        self.core.count_sync(before.elapsed());
        Ok(())
    }

    /// Everything below `to` is durable in all streams: tells it, as far as the kind of group
    /// commit does.
    pub(super) fn announce(&self, kind: &dyn GroupCommit, to: Lsn) -> Result<(), LogFailure> {
        freshet_base::step!(Persist, to, to);
        let to = kind.announce(to)?;
        check(&[(Stage::Persist, to), (Stage::Log, self.core.buffer.filled())]);
        if self.core.durable.get() < to {
            self.core.durable.advance(to);
            for seat in &self.sinks().seats {
                seat.sink.durable(to);
            }
        }
        Ok(())
    }

    /// What a thread finds at its stream, when everything below `to` may be put into the store.
    pub(super) fn found(&self, number: usize, to: Lsn, reserved: Lsn) -> Found {
        let done = self.streams.get(number).map_or(to, |stream| Lsn(stream.done.load(Ordering::SeqCst)));
        Found {
            done,
            to,
            seen: to,
            reserved,
            age: Duration::ZERO,
            is_awaited: self.wanted.load(Ordering::SeqCst) > done.0,
            store_is_awaited: self.wanted_stored.load(Ordering::SeqCst) > done.0,
        }
    }
}
