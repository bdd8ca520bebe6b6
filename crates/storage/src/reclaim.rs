//! Epoch-based reclamation and the announcement of snapshots.
//!
//! Every thread that touches shared memory of this crate owns a
//! [`Participant`], and pins it for the length of a transaction. A pin says two
//! things, in one cache line that only its owner writes:
//!
//! - *epoch*: memory that was unlinked at this epoch or later may still be in
//!   my hands. It is freed once every pinned epoch is larger.
//! - *snapshot*: I may still read what was visible at this LSN. A version
//!   goes when a newer one is visible to every announced snapshot.
//!
//! This is all that a read-only transaction writes to shared memory.
//!
//! # Access protocol
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `Slot::claimed` | a thread that joins (compare-exchange) and the owner when it leaves | all |
//! | `Slot::epoch`, `Slot::snapshot` | the owner only | threads that reclaim |
//! | `Participants::epoch` | `fetch_add` by the thread that seals a batch of garbage | all |
//! | `Participants::sealed` | under its mutex: the owner adds, the thread that frees takes | the same |
//!
//! Safety argument, epochs. A reader announces `e` and then executes fence R before it follows any
//! pointer; a reclaimer unlinks, executes fence U, and tags its batch with the global epoch `t` it
//! then reads. If R comes after U in the single order of SeqCst fences, the reader cannot find what
//! was unlinked. If R comes before U, the reader's announcement is visible to every scan that
//! follows U, with `e <= t` since the epoch was `t` only later: the batch waits for it. A reader
//! with `e > t` read an epoch that was stored after `t` was read, so its R comes after U. The batch
//! may be freed by another thread: one of its node that collects what its owner does not. It reads
//! the global epoch as `n`, then scans, and frees only batches with `t < n`. The `fetch_add` that
//! gave `t` comes before that reading in the single order of SeqCst operations, and so does U: the
//! scan follows U as above.
//!
//! Safety argument, snapshots. A reader announces an LSN `s0`, executes R, and
//! then reads the current view again as its snapshot `s1 >= s0`. A reclaimer
//! reads the view as `v`, executes a fence H, then scans. Either the scan sees `s0 <= s1`,
//! or R comes after H and thus `s1 >= v`. In both cases the horizon
//! `min(v, announced)` is at or below `s1`.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    marker::PhantomData,
    // Not the facade's: loom's cannot be a receiver, and the count is not part of what is modelled.
    sync::Arc,
};

use crossbeam_utils::CachePadded;
use freshet_base::{
    Lsn,
    sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, fence},
};

use crate::keep::{Keep, Kept};

/// Announced by a participant that is not pinned.
const IDLE: u64 = u64::MAX;

/// One batch of garbage is sealed when it has grown to this many pieces.
#[cfg(not(loom))]
const BATCH: usize = 64;
#[cfg(loom)]
const BATCH: usize = 1;
/// The same with this many bytes.
const BATCH_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct Slot {
    claimed: AtomicBool,
    epoch: AtomicU64,
    snapshot: AtomicU64,
}

/// All participants of one database.
#[derive(Debug)]
pub struct Participants {
    epoch: AtomicU64,
    slots: Box<[CachePadded<Slot>]>,
    /// For each place the garbage of its participant that waits for readers, oldest first, and what
    /// those who had the place before have left.
    sealed: Box<[CachePadded<Mutex<VecDeque<Batch>>>]>,
}

/// Every participant's place is taken: more threads than [`Participants::new`] was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyParticipants {
    /// How many there can be at once.
    pub limit: usize,
}

impl fmt::Display for TooManyParticipants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "all {} worker places of this database are taken: end a session, or raise the limit of workers",
            self.limit
        )
    }
}

impl std::error::Error for TooManyParticipants {}

impl Participants {
    /// Room for `limit` participants at once.
    pub fn new(limit: usize) -> Arc<Self> {
        let slot = || {
            CachePadded::new(Slot {
                claimed: AtomicBool::new(false),
                epoch: AtomicU64::new(IDLE),
                snapshot: AtomicU64::new(IDLE),
            })
        };
        Arc::new(Self {
            epoch: AtomicU64::new(1),
            slots: (0..limit).map(|_| slot()).collect(),
            sealed: (0..limit).map(|_| CachePadded::new(Mutex::new(VecDeque::new()))).collect(),
        })
    }

    /// How many participants there can be at once.
    pub fn limit(&self) -> usize {
        self.slots.len()
    }

    /// Takes a place.
    ///
    /// # Errors
    /// [`TooManyParticipants`] when none is free.
    pub fn join(self: &Arc<Self>) -> Result<Participant, TooManyParticipants> {
        for (index, slot) in self.slots.iter().enumerate() {
            // AcqRel: pairs with the release store of the participant that left this place.
            if slot.claimed.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok(Participant {
                    all: Arc::clone(self),
                    index,
                    open: RefCell::new(Vec::with_capacity(BATCH)),
                    open_bytes: Cell::new(0),
                    keep: Keep::default(),
                    pins: Cell::new(0),
                });
            }
        }
        Err(TooManyParticipants { limit: self.slots.len() })
    }

    /// The LSN below which no announced snapshot reads any more: where a
    /// newer version is older than this, what it replaced may go. `view` reads the LSN
    /// that a transaction starting now would get.
    pub fn horizon(&self, view: impl Fn() -> Lsn) -> Lsn {
        let now = view();
        // Fence H of the module's safety argument; orders `view` before the scan.
        fence(Ordering::SeqCst);
        self.slots.iter().map(|slot| slot.snapshot.load(Ordering::Relaxed)).fold(now, |low, s| low.min(Lsn(s)))
    }

    /// The smallest epoch that a pinned participant announced.
    fn oldest_epoch(&self) -> u64 {
        // Orders the unlinking (before fence U, in `seal`) before the scan.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release store in `unpin`, so that a reader's last
        // accesses happen before the memory is freed.
        self.slots.iter().map(|slot| slot.epoch.load(Ordering::Acquire)).min().unwrap_or(IDLE)
    }

    fn sealed(&self, place: usize) -> MutexGuard<'_, VecDeque<Batch>> {
        self.sealed[place].lock().expect("no code panics under this mutex")
    }

    /// Frees of the garbage of place `place` what was sealed before epoch `before`. What is freed
    /// is not held under the mutex.
    ///
    /// # Safety
    /// No pinned participant has an epoch below `before`, nor will one.
    unsafe fn free_sealed(&self, place: usize, before: u64) {
        loop {
            let batch = {
                let mut sealed = self.sealed(place);
                if sealed.front().is_none_or(|batch| batch.epoch >= before) {
                    return;
                }
                sealed.pop_front()
            };
            if let Some(batch) = batch {
                // SAFETY: as the caller promises; a batch is taken out once.
                unsafe { batch.free() };
            }
        }
    }

    /// Frees all sealed garbage that no reader can hold, whosever it is. Never blocks for readers.
    /// What a participant has not sealed yet, fewer pieces than a batch, is its own.
    pub fn collect(&self) {
        let now = self.epoch.load(Ordering::SeqCst);
        let before = self.oldest_epoch().min(now);
        for place in 0..self.slots.len() {
            // SAFETY: pinned epochs are at least `before`, and later pins cannot reach what was
            // sealed before it: the module's safety argument, for those who free what others have
            // sealed.
            unsafe { self.free_sealed(place, before) };
        }
    }

    /// What sealed garbage takes that readers may still hold, of all participants and of those who
    /// have left, in bytes.
    pub fn waiting_bytes(&self) -> usize {
        (0..self.slots.len()).map(|place| self.sealed(place).iter().map(|batch| batch.bytes).sum::<usize>()).sum()
    }

    /// What the participant at `place` holds, if it is pinned: the epoch in which it was pinned,
    /// and the snapshot that it has announced, if it has.
    pub fn held(&self, place: usize) -> Option<Held> {
        let slot = self.slots.get(place)?;
        let (epoch, snapshot) = (slot.epoch.load(Ordering::Relaxed), slot.snapshot.load(Ordering::Relaxed));
        (epoch != IDLE).then(|| Held { epoch, snapshot: Some(Lsn(snapshot)).filter(|_| snapshot != IDLE) })
    }

    /// The epoch in which a participant would be pinned now. It rises with what is retired.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Pieces of sealed garbage, of all participants and of those who have left.
    pub fn waiting(&self) -> usize {
        (0..self.slots.len())
            .map(|place| self.sealed(place).iter().map(|batch| batch.pieces.len()).sum::<usize>())
            .sum()
    }
}

/// What keeps versions, and memory that was retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// What was retired in this epoch or later.
    pub epoch: u64,
    /// What somebody needs who reads at this LSN or above.
    pub snapshot: Option<Lsn>,
}

/// How a piece of garbage is freed.
///
/// # Safety
/// Called once, with the pointer that was handed to [`Guard::retire`] with it.
pub type Free = unsafe fn(*mut u8);

struct Piece {
    pointer: *mut u8,
    free: Free,
}

/// Garbage with the epoch at which all of it was already unlinked.
struct Batch {
    epoch: u64,
    pieces: Vec<Piece>,
    /// How many bytes the pieces take.
    bytes: usize,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pieces of epoch {}", self.pieces.len(), self.epoch)
    }
}

// SAFETY: garbage is unlinked memory of this crate's own types (versions and index nodes, plain
// bytes); a thread that calls `Guard::retire` promises that it may be freed by any thread.
unsafe impl Send for Piece {}

impl Batch {
    /// # Safety
    /// No pinned participant has an epoch at or below `self.epoch`.
    unsafe fn free(self) {
        for piece in self.pieces {
            // SAFETY: a thread that retired the piece promised (see `Guard::retire`) that it may be
            // freed once; a batch is consumed here.
            unsafe { (piece.free)(piece.pointer) };
        }
    }
}

/// One thread's place among the [`Participants`].
pub struct Participant {
    all: Arc<Participants>,
    index: usize,
    /// Garbage that is not sealed yet: fewer pieces than a batch.
    open: RefCell<Vec<Piece>>,
    /// How many bytes these take.
    open_bytes: Cell<usize>,
    /// The rows that its guard keeps.
    keep: Keep,
    /// How often it was pinned.
    pins: Cell<u64>,
}

/// Names one pin among all of a process, for as long as its [`Participants`] exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    all: usize,
    index: usize,
    number: u64,
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Participant({})", self.index)
    }
}

impl Participant {
    /// Its place, below [`Participants::limit`], unique among those joined.
    pub fn index(&self) -> usize {
        self.index
    }

    /// All participants, this one included.
    pub fn all(&self) -> &Arc<Participants> {
        &self.all
    }

    /// Pins, announces a snapshot and returns it: what `view` gives after the announcement, or,
    /// where that lies below what it gave before, what was announced: below that, versions may go.
    ///
    /// # Panics
    /// When this participant is pinned already.
    pub fn pin(&self, view: impl Fn() -> Lsn) -> (Guard<'_>, Lsn) {
        let announced = view();
        let guard = self.announce(announced.0);
        (guard, view().max(announced))
    }

    /// Pins without a snapshot: protects memory, but keeps no version for its own sake.
    ///
    /// # Panics
    /// When this participant is pinned already.
    pub fn pin_without_snapshot(&self) -> Guard<'_> {
        self.announce(IDLE)
    }

    #[inline]
    fn announce(&self, snapshot: u64) -> Guard<'_> {
        let slot = &self.all.slots[self.index];
        assert_eq!(slot.epoch.load(Ordering::Relaxed), IDLE, "a participant is pinned once at a time");
        self.pins.set(self.pins.get() + 1);
        let epoch = self.all.epoch.load(Ordering::SeqCst);
        slot.snapshot.store(snapshot, Ordering::Relaxed);
        slot.epoch.store(epoch, Ordering::Relaxed);
        // Fence R of the module's safety argument: the announcement before everything that follows.
        fence(Ordering::SeqCst);
        Guard { participant: self, not_send: PhantomData }
    }

    fn unpin(&self) {
        let slot = &self.all.slots[self.index];
        // Release: pairs with the acquire load in `oldest_epoch`.
        slot.snapshot.store(IDLE, Ordering::Release);
        slot.epoch.store(IDLE, Ordering::Release);
    }

    /// Closes the open batch: from now on anybody can free it.
    fn seal(&self) {
        let mut open = self.open.borrow_mut();
        if !open.is_empty() {
            let pieces = std::mem::replace(&mut *open, Vec::with_capacity(BATCH));
            // Fence U: the unlinking of these pieces before the epoch's reading.
            fence(Ordering::SeqCst);
            let epoch = self.all.epoch.fetch_add(1, Ordering::SeqCst);
            self.all.sealed(self.index).push_back(Batch { epoch, pieces, bytes: self.open_bytes.take() });
        }
    }

    /// Closes the open batch and frees every sealed one of its own that no reader can hold.
    fn seal_and_free(&self) {
        self.seal();
        let oldest = self.all.oldest_epoch();
        // SAFETY: every pinned epoch is at least `oldest`, larger than that of the batches, which
        // this thread has sealed, or those have from whom it has the place; later pins cannot reach
        // them (module's safety argument).
        unsafe { self.all.free_sealed(self.index, oldest) };
    }

    /// Frees what can be freed now, of all participants and of those who left. Never blocks
    /// for readers; what they may hold stays.
    pub fn collect(&self) {
        self.seal();
        self.all.collect();
    }

    /// Pieces of garbage that wait for readers or for their batch to fill.
    pub fn waiting(&self) -> usize {
        self.open.borrow().len() + self.all.sealed(self.index).iter().map(|batch| batch.pieces.len()).sum::<usize>()
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        // What cannot be freed yet stays with the place.
        self.collect();
        // Release: pairs with the compare-exchange of the next owner.
        self.all.slots[self.index].claimed.store(false, Ordering::Release);
    }
}

impl Drop for Participants {
    fn drop(&mut self) {
        for place in 0..self.slots.len() {
            // SAFETY: a pinned participant keeps `self` alive, so none is pinned any more.
            unsafe { self.free_sealed(place, IDLE) };
        }
    }
}

/// Proof that its participant is pinned: shared memory that was reachable since may be read
/// for as long as this lives.
#[derive(Debug)]
pub struct Guard<'p> {
    participant: &'p Participant,
    not_send: PhantomData<*const ()>,
}

impl Guard<'_> {
    /// Announces a later snapshot in place of the one that was announced, and returns it: what
    /// `view` gives. What was read before stays readable.
    ///
    /// Safe by the module's argument: a thread that reclaims sees the old announcement, which is
    /// lower, or the new one.
    pub fn advance(&self, view: impl Fn() -> Lsn) -> Lsn {
        let snapshot = view();
        let slot = &self.participant.all.slots[self.participant.index];
        debug_assert!(slot.snapshot.load(Ordering::Relaxed) <= snapshot.0, "snapshots only advance");
        // Release: what was read under the old snapshot was read before.
        slot.snapshot.store(snapshot.0, Ordering::Release);
        snapshot
    }

    /// As [`Participants::horizon`], where transactions that start now see everything below `view`.
    pub fn horizon(&self, view: Lsn) -> Lsn {
        self.participant.all.horizon(|| view)
    }

    /// Hands over memory that no newcomer can reach any more, of about this many bytes, to be freed
    /// when nobody can hold it.
    ///
    /// # Safety
    /// `pointer` is unlinked from every shared structure, is retired once, and `free` may be called
    /// on it by any thread.
    pub unsafe fn retire(&self, pointer: *mut u8, bytes: usize, free: Free) {
        let full = {
            let mut open = self.participant.open.borrow_mut();
            open.push(Piece { pointer, free });
            let all = self.participant.open_bytes.get() + bytes;
            self.participant.open_bytes.set(all);
            open.len() >= BATCH || all >= BATCH_BYTES
        };
        if full {
            self.participant.seal_and_free();
        }
    }

    /// Copies a row, which stays readable for as long as this guard is there.
    pub fn keep(&self, row: &[u8]) -> Kept {
        self.participant.keep.put(row)
    }

    /// A row that this guard keeps.
    ///
    /// # Panics
    /// May panic when another guard has kept it; otherwise it gets some other bytes then.
    pub fn kept(&self, kept: Kept) -> &[u8] {
        // SAFETY: cleared when the guard is dropped, which is not borrowed any more then. Its
        // participant has no other guard.
        unsafe { self.participant.keep.get(kept) }
    }

    /// The pin, for comparing and for handing on.
    #[inline]
    pub fn pin(&self) -> Pin {
        let Participant { all, index, pins, .. } = self.participant;
        // A participant that leaves and one that takes its place pin different numbers only by
        // chance; but guards borrow their participant, so a thread that remembers a pin forgets it
        // before.
        Pin { all: Arc::as_ptr(all) as usize, index: *index, number: pins.get() }
    }

    /// The participant that has pinned.
    pub fn participant(&self) -> &Participant {
        self.participant
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: rows are lent for as long as a guard is borrowed, and this was the only one.
        unsafe { self.participant.keep.clear() };
        self.participant.unpin();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    unsafe fn count(pointer: *mut u8) {
        // SAFETY: the tests retire pointers to a counter that outlives them.
        unsafe { &*pointer.cast::<AtomicUsize>() }.fetch_add(1, SeqCst);
    }

    #[test]
    fn garbage_waits_for_older_pins_only() {
        let freed = AtomicUsize::new(0);
        let pointer = std::ptr::from_ref(&freed).cast_mut().cast();
        let all = Participants::new(3);
        let (reader, writer) = (all.join().unwrap(), all.join().unwrap());
        let pinned = reader.pin_without_snapshot();
        {
            let guard = writer.pin_without_snapshot();
            // SAFETY: a counter is never unlinked or freed; `count` only counts.
            unsafe { guard.retire(pointer, 0, count) };
        }
        writer.collect();
        assert_eq!(freed.load(SeqCst), 0, "the reader was pinned before");
        drop(pinned);
        let _later = reader.pin_without_snapshot();
        writer.collect();
        assert_eq!(freed.load(SeqCst), 1, "a later pin cannot reach it");
    }

    #[test]
    fn the_horizon_stays_at_the_oldest_snapshot() {
        let all = Participants::new(2);
        let reader = all.join().unwrap();
        let (pinned, snapshot) = reader.pin(|| Lsn(10));
        assert_eq!(snapshot, Lsn(10));
        assert_eq!(all.horizon(|| Lsn(99)), Lsn(10));
        drop(pinned);
        assert_eq!(all.horizon(|| Lsn(99)), Lsn(99));
    }

    #[test]
    fn places_are_limited_and_come_back() {
        let all = Participants::new(1);
        let first = all.join().unwrap();
        assert_eq!(all.join().unwrap_err(), TooManyParticipants { limit: 1 });
        drop(first);
        all.join().unwrap();
    }

    #[test]
    fn garbage_of_those_who_left_is_freed_by_others() {
        let freed = AtomicUsize::new(0);
        let pointer = std::ptr::from_ref(&freed).cast_mut().cast();
        let all = Participants::new(2);
        let (reader, writer) = (all.join().unwrap(), all.join().unwrap());
        let pinned = reader.pin_without_snapshot();
        // SAFETY: as above.
        unsafe { writer.pin_without_snapshot().retire(pointer, 0, count) };
        drop(writer);
        drop(pinned);
        assert_eq!(freed.load(SeqCst), 0);
        reader.collect();
        assert_eq!(freed.load(SeqCst), 1);
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::ptr;

    use freshet_base::sync::{AtomicPtr, thread};
    use loom::cell::UnsafeCell;

    use super::*;

    unsafe fn free_cell(pointer: *mut u8) {
        // SAFETY: retired once, made by Box::into_raw below. The write is what loom checks against
        // readers.
        let cell = unsafe { Box::from_raw(pointer.cast::<UnsafeCell<u64>>()) };
        cell.with_mut(|value| {
            // SAFETY: loom reports a race if anyone still reads.
            unsafe { *value = u64::MAX }
        });
    }

    /// A reader that found the pointer reads live memory, at every interleaving.
    #[test]
    fn nothing_is_freed_under_a_reader() {
        loom::model(|| {
            let all = Participants::new(2);
            let shared = Arc::new(AtomicPtr::new(Box::into_raw(Box::new(UnsafeCell::new(7u64)))));
            let reader = {
                let (all, shared) = (Arc::clone(&all), Arc::clone(&shared));
                thread::spawn(move || {
                    let participant = all.join().unwrap();
                    let guard = participant.pin_without_snapshot();
                    let pointer = shared.load(Ordering::Acquire);
                    if !pointer.is_null() {
                        // SAFETY: reached under a pin.
                        let value = unsafe { &*pointer }.with(|value| unsafe { *value });
                        assert_eq!(value, 7);
                    }
                    drop(guard);
                })
            };
            let participant = all.join().unwrap();
            {
                let guard = participant.pin_without_snapshot();
                let pointer = shared.swap(ptr::null_mut(), Ordering::AcqRel);
                // SAFETY: just unlinked, by the only thread that does.
                unsafe { guard.retire(pointer.cast(), 8, free_cell) };
            }
            participant.collect();
            reader.join().unwrap();
        });
    }

    /// What one participant has sealed and cannot free is freed by another, never under a reader.
    #[test]
    fn nothing_is_freed_under_a_reader_by_those_who_collect_for_others() {
        loom::model(|| {
            let all = Participants::new(3);
            let shared = Arc::new(AtomicPtr::new(Box::into_raw(Box::new(UnsafeCell::new(7u64)))));
            let reader = {
                let (all, shared) = (Arc::clone(&all), Arc::clone(&shared));
                thread::spawn(move || {
                    let participant = all.join().unwrap();
                    let guard = participant.pin_without_snapshot();
                    let pointer = shared.load(Ordering::Acquire);
                    if !pointer.is_null() {
                        // SAFETY: reached under a pin.
                        let value = unsafe { &*pointer }.with(|value| unsafe { *value });
                        assert_eq!(value, 7);
                    }
                    drop(guard);
                    // Not what leaving does: it would collect, too.
                    std::mem::forget(participant);
                })
            };
            let writer = {
                let (all, shared) = (Arc::clone(&all), Arc::clone(&shared));
                thread::spawn(move || {
                    let participant = all.join().unwrap();
                    let guard = participant.pin_without_snapshot();
                    let pointer = shared.swap(ptr::null_mut(), Ordering::AcqRel);
                    // SAFETY: just unlinked, by the only thread that does.
                    unsafe { guard.retire(pointer.cast(), 8, free_cell) };
                    drop(guard);
                    std::mem::forget(participant);
                })
            };
            all.collect();
            reader.join().unwrap();
            writer.join().unwrap();
            all.collect();
            assert_eq!(all.waiting(), 0, "nobody is pinned any more");
        });
    }
}
