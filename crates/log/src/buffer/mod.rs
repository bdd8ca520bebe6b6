//! The log buffer: a ring that holds the newest part of the virtual log.
//!
//! Virtual byte `x` lives at `x mod capacity`. Workers copy their blocks into
//! it (on a standby, the receiver what the primary sent), the group commit
//! writes them out from it, and a thread that wants recent bytes copies them out
//! while the ring is being reused (Query Fresh, section 3.4.3: readers must
//! check that the range they copied was still valid).
//!
//! # Access protocol
//!
//! | field | moved by | means |
//! |---|---|---|
//! | `reserved` | `fetch_add` of workers (primary), `fetch_max` of the receiver (standby) | everything below was given to a writer |
//! | `filled` | the group commit, or the receiver | everything below was written and may be read |
//! | `released` | [`LogBuffer::release`] | everything below may be overwritten by the next lap |
//! | `generation` | [`LogBuffer::cut`] | even: no cut under way; changes when what is above an LSN was taken back |
//!
//! `released <= filled <= reserved`; a cut takes `released` and `filled` back, `reserved` stays.
//!
//! Writing. The range `[at, end)` is written once, by whom it was handed to, after it
//! saw `end <= released + capacity`, and before `filled` covers it.
//!
//! Lending. [`LogBuffer::lend`] gives slices of a range to a flusher; there is one for each stream.
//! Nobody writes there in the meantime: below `filled` nothing is written again before `released`
//! passes it, and `released` is clamped to what every flusher said it is done with
//! ([`Flusher::done`], which needs the flusher mutably, as the loan does).
//!
//! Replaying. What was received is read in place by those who replay it ([`LogBuffer::kept`]):
//! `released` is clamped to `replayed`, too, which only they move, when they are done.
//!
//! Reading. Copy, fence A (acquire), then check that the range was not overwritten: the writer of
//! the next lap at `x + capacity` moved `reserved` beyond `x + capacity` and saw `released > x`
//! before its fence W (release) and its stores. If the reader's copy saw one of those stores, W
//! synchronises with A, and both values are visible to the check. So the copy is good when
//! `released <= x` or `reserved <= x + capacity`.
//!
//! Remote writers. A standby's ring may be written by another process or a network card
//! ([`crate::Log::grant`]). Such a writer knows no fences of ours, so `reserved` moves up to
//! where it may write *before* it is told so; whatever it stores comes after that message, in the
//! order of the machine too: a store that a reader's copy saw was made after `reserved` had
//! moved. It is the receiver who then says that a range is filled, when the writer has said that it
//! is through. What is granted lies at most half the ring beyond what is filled, so that readers
//! find the other half there.

mod checksum;
mod memory;
mod shared;
#[cfg(loom)]
mod unmapped;

use crossbeam_utils::CachePadded;
use freshet_base::{
    Lsn, WaitError, Watermark,
    sync::{AtomicU64, Ordering, fence},
};

use crate::block::BLOCK_HEADER;
pub(crate) use memory::Memory;
pub use shared::RingMemory;

/// How a copy out of the ring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RingRead {
    /// The bytes were copied and were valid.
    Copied,
    /// The ring has been reused, at least in part, or a cut came between: ask the store.
    Overwritten,
    /// The range is not filled (yet, or no longer after a cut).
    Beyond,
}

/// The ring; see the module.
#[derive(Debug)]
pub struct LogBuffer {
    memory: Memory,
    mask: u64,
    reserved: CachePadded<AtomicU64>,
    filled: CachePadded<AtomicU64>,
    generation: AtomicU64,
    /// Below this the ring holds nothing, whatever `reserved` says.
    floor: AtomicU64,
    /// Where each flusher is: `released` never passes any of them.
    flushed: Box<[CachePadded<AtomicU64>]>,
    /// Everything above waits for replay; no limit where nobody replays.
    replayed: AtomicU64,
    released: Watermark,
}

/// Blocks of one stream that lie one behind the other in the virtual log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) from: Lsn,
    pub(crate) to: Lsn,
}

/// One who writes the ring's bytes out: those of its stream.
#[derive(Debug)]
pub(crate) struct Flusher {
    stream: usize,
    /// Memory that is used from flush to flush.
    runs: Vec<Run>,
    gathered: Vec<u8>,
}

impl LogBuffer {
    /// A ring of `capacity` bytes (a power of two) whose first byte will be `start`, and its one
    /// flusher.
    #[cfg(test)]
    pub(crate) fn new(capacity: usize, start: Lsn) -> (Self, Flusher) {
        let (ring, flushers) = Self::on(Memory::new(capacity), start, 1);
        (ring, flushers.into_iter().next().expect("one was made"))
    }

    /// A ring on `memory`, whose size is a power of two, that begins at `start`, and its flushers.
    pub(crate) fn on(memory: Memory, start: Lsn, flushers: usize) -> (Self, Vec<Flusher>) {
        let capacity = memory.len();
        assert!(capacity.is_power_of_two() && capacity >= 8, "the configuration was checked before");
        let ring = Self {
            memory,
            mask: capacity as u64 - 1,
            reserved: CachePadded::new(AtomicU64::new(start.0)),
            filled: CachePadded::new(AtomicU64::new(start.0)),
            generation: AtomicU64::new(0),
            // Nothing below was ever in this ring.
            floor: AtomicU64::new(start.0),
            flushed: (0..flushers).map(|_| CachePadded::new(AtomicU64::new(start.0))).collect(),
            replayed: AtomicU64::new(Lsn::MAX.0),
            released: Watermark::new(start),
        };
        (ring, (0..flushers).map(|stream| Flusher { stream, runs: Vec::new(), gathered: Vec::new() }).collect())
    }

    /// Its size in bytes.
    pub fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Everything below was handed out for writing.
    #[inline]
    pub(crate) fn reserved(&self) -> &AtomicU64 {
        &self.reserved
    }

    /// Hands everything below `to` out for writing: the receiver's way.
    pub(crate) fn claim(&self, to: Lsn) {
        // AcqRel: like the workers' `fetch_add`; fence W follows before anything is written.
        self.reserved.fetch_max(to.0, Ordering::AcqRel);
    }

    /// Everything below was handed out for writing.
    pub(crate) fn claimed(&self) -> Lsn {
        Lsn(self.reserved.load(Ordering::Acquire))
    }

    /// Sets `reserved` back to `at`, where workers go on: some of what was claimed above never
    /// came. What that may have overwritten counts as overwritten for good. Nobody writes
    /// in the meantime.
    pub(crate) fn restart(&self, at: Lsn) {
        let reached = self.reserved.load(Ordering::Acquire);
        self.floor.fetch_max(reached.saturating_sub(self.capacity()), Ordering::AcqRel);
        // Release: pairs with the acquire in `read`.
        self.reserved.store(at.0, Ordering::Release);
    }

    /// Everything below is written and may be read. Acquire: pairs with the release in
    /// [`LogBuffer::fill_to`].
    pub fn filled(&self) -> Lsn {
        Lsn(self.filled.load(Ordering::Acquire))
    }

    /// Everything below may be overwritten.
    #[inline]
    pub fn released(&self) -> Lsn {
        self.released.get()
    }

    /// Blocks until everything below `to` may be overwritten, or the ring was closed.
    pub(crate) fn wait_released(&self, to: Lsn) -> Result<Lsn, WaitError> {
        self.released.wait(to, None)
    }

    /// Ends every wait for room, for good.
    pub(crate) fn close(&self) {
        self.released.close();
    }

    /// Says that everything below `to` is written; the caller has synchronised with the writers.
    pub(crate) fn fill_to(&self, to: Lsn) {
        // Release: pairs with the acquire in `filled`.
        self.filled.fetch_max(to.0, Ordering::Release);
    }

    /// Lets the next lap overwrite everything below `to`, and below what every flusher, and those
    /// who replay, are done with.
    pub(crate) fn release(&self, to: Lsn) {
        // Acquire: pairs with the releases in `Flusher::done` and `note_replayed`, so their reads
        // come before the overwriting.
        let replayed = self.replayed.load(Ordering::Acquire);
        let flushed = self.flushed.iter().map(|flushed| flushed.load(Ordering::Acquire));
        self.released.advance(Lsn(flushed.fold(to.0.min(replayed), u64::min)));
    }

    /// Replay begins at `at`; at the largest LSN, nowhere. Nothing is
    /// released in the meantime.
    pub(crate) fn replay_from(&self, at: Lsn) {
        self.replayed.store(at.0, Ordering::SeqCst);
    }

    /// Those who replay are done with everything below `to`.
    pub(crate) fn note_replayed(&self, to: Lsn) {
        // Release half: pairs with the acquire in `release`.
        self.replayed.fetch_max(to.0, Ordering::AcqRel);
    }

    /// Whether `[from, to)` is filled, and stays so until replay is done with it: for those who
    /// replay, who alone move that.
    pub(crate) fn kept(&self, from: Lsn, to: Lsn) -> bool {
        self.replayed.load(Ordering::Acquire) <= from.0 && to <= self.filled()
    }

    #[inline]
    fn place(&self, at: Lsn) -> usize {
        (at.0 & self.mask) as usize
    }

    /// The one or two pieces (offset and length) in which `[at, at + length)` lies.
    #[inline]
    fn pieces(&self, at: Lsn, length: u64) -> [(usize, usize); 2] {
        debug_assert!(length <= self.capacity());
        let place = self.place(at);
        let first = (length as usize).min(self.memory.len() - place);
        [(place, first), (0, length as usize - first)]
    }

    /// Fence W of the module's protocol: the room that was seen and `reserved`, before the
    /// stores. On the machines of today it is a promise to the compiler only.
    #[inline]
    fn before_writing(&self, end: u64) {
        assert!(end <= self.released().0 + self.capacity(), "written without room: a bug in the log");
        fence(Ordering::Release);
    }

    /// Copies `bytes` to `at`. The range was handed to the caller, has room, and is not filled.
    #[inline]
    pub(crate) fn write(&self, at: Lsn, bytes: &[u8]) {
        if let Some(persistent) = self.memory.as_persistent() {
            self.before_writing(at.0 + bytes.len() as u64);
            let [(place, first), (rest, _)] = self.pieces(at, bytes.len() as u64);
            let (head, tail) = bytes.split_at(first);
            persistent.insert(place, head);
            if !tail.is_empty() {
                persistent.insert(rest, tail);
            }
            return;
        }
        self.put(at, bytes);
    }

    /// The same through the cache: on a standby, where replay reads soon what was written, and
    /// others make it durable then.
    #[inline]
    pub(crate) fn put(&self, at: Lsn, bytes: &[u8]) {
        self.before_writing(at.0 + bytes.len() as u64);
        let [(place, first), (rest, _)] = self.pieces(at, bytes.len() as u64);
        let (head, tail) = bytes.split_at(first);
        self.memory.store(place, head);
        if !tail.is_empty() {
            self.memory.store(rest, tail);
        }
    }

    /// Copies `[at, at + into.len())` out, if it was all filled and none of it overwritten
    /// in the meantime.
    pub fn read(&self, at: Lsn, into: &mut [u8]) -> RingRead {
        let length = into.len() as u64;
        let Some(end) = at.0.checked_add(length) else { return RingRead::Beyond };
        let generation = self.generation();
        if end > self.filled().0 {
            return RingRead::Beyond;
        }
        if generation % 2 == 1 || length > self.capacity() {
            return RingRead::Overwritten;
        }
        let [(place, first), (rest, _)] = self.pieces(at, length);
        let (head, tail) = into.split_at_mut(first);
        self.memory.load(place, head);
        if !tail.is_empty() {
            self.memory.load(rest, tail);
        }
        // Fence A of the module's protocol: the copy before the checks.
        fence(Ordering::Acquire);
        // Relaxed: ordered by fence A.
        let same = self.generation.load(Ordering::Relaxed) == generation;
        // Acquire: pairs with the release in `restart`; `reserved` that was set back comes with its
        // floor.
        let reserved = self.reserved.load(Ordering::Acquire);
        let floor = self.floor.load(Ordering::Relaxed);
        let kept = at.0 >= floor && reserved <= at.0.saturating_add(self.capacity());
        if same && (self.released.get() <= at || kept) { RingRead::Copied } else { RingRead::Overwritten }
    }

    /// A block's header at `at`, for the thread that has just put it there and is the only one who
    /// writes.
    pub(crate) fn own_header(&self, at: Lsn) -> [u8; BLOCK_HEADER] {
        let mut header = [0; BLOCK_HEADER];
        self.own_bytes(at, &mut header);
        header
    }

    /// What lies at `at`, filled or not, for the thread that decides whether it is.
    pub(crate) fn own_bytes(&self, at: Lsn, into: &mut [u8]) {
        let [(place, first), (rest, _)] = self.pieces(at, into.len() as u64);
        let (head, tail) = into.split_at_mut(first);
        self.memory.load(place, head);
        if !tail.is_empty() {
            self.memory.load(rest, tail);
        }
    }

    /// The checksum of what lies at `at`, as [`LogBuffer::own_bytes`] finds it; both are multiples
    /// of eight.
    pub(crate) fn own_checksum(&self, at: Lsn, length: u64) -> u32 {
        self.pieces(at, length).iter().fold(0, |crc, (place, length)| self.memory.checksum(crc, *place, *length))
    }

    /// The memory as others can map it, if they can.
    pub(crate) fn shared_memory(&self) -> Option<RingMemory> {
        self.memory.as_shared()
    }

    /// Takes the memory away from others, if any may have mapped it: it moves, and what lies at and
    /// above `at` is zero then. No thread of this process writes in the meantime.
    pub(crate) fn renew(&self, at: Lsn) -> std::io::Result<()> {
        let Some(memory) = self.shared_memory().filter(RingMemory::is_lent) else { return Ok(()) };
        // What is not released yet stays, however far `reserved` was before a cut.
        let kept = at.since(self.released().min(at)).min(self.capacity());
        let (first, beyond) =
            (self.place(at) as u64, self.claimed().since(at.min(self.claimed())).min(self.capacity() - kept));
        memory.renew(&|word| (word as u64 * 8).wrapping_sub(first) & self.mask >= beyond)
    }

    /// How often the end was taken back, twice over; odd while that is under way. Acquire: pairs
    /// with the release half of the increments in [`LogBuffer::cut`].
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Lends the filled range `[from, to)` to the flusher, as one piece or two.
    pub(crate) fn lend<'a>(&'a self, flusher: &'a mut Flusher, from: Lsn, to: Lsn) -> [&'a [u8]; 2] {
        assert!(from <= to && to <= self.filled(), "only what is filled is written out");
        // Relaxed: only this flusher and a cut (which excludes all flushers) store it.
        assert!(
            from.0 >= self.flushed[flusher.stream].load(Ordering::Relaxed),
            "what the flusher was done with may be overwritten"
        );
        let pieces = self.pieces(from, to.since(from));
        pieces.map(|(place, length)| {
            // SAFETY: the range is filled, so its stores happened before (acquire in `filled`), and
            // its writers are done with it (protocol "Writing"). The next lap writes there only
            // after `released` passed `from`, which is clamped to this flusher's `flushed`; that
            // moves only in `Flusher::done` and `cut`, which need the flusher mutably, and that is
            // borrowed for as long as the slices live.
            unsafe { self.memory.slice(place, length) }
        })
    }

    /// Takes back everything at or above `at`: readers of it find [`RingRead::Beyond`] from now on,
    /// also those who are copying. `reserved` stays where it was, since what it once overwrote
    /// does not come back.
    ///
    /// # Panics
    /// When not all flushers are given: none may be at work.
    pub(crate) fn cut(&self, flushers: &mut [&mut Flusher], at: Lsn) {
        assert_eq!(flushers.len(), self.flushed.len(), "a cut needs all flushers");
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.filled.fetch_min(at.0, Ordering::AcqRel);
        for flushed in &self.flushed {
            flushed.fetch_min(at.0, Ordering::AcqRel);
        }
        if self.replayed.load(Ordering::Acquire) != Lsn::MAX.0 {
            self.replayed.fetch_min(at.0, Ordering::AcqRel);
        }
        // What comes in place of the cut bytes is not written out yet, so it may not be
        // overwritten.
        self.released.cut(at);
        // Release half: pairs with the acquire in `read`; a thread that sees this generation sees
        // `filled` cut.
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl Flusher {
    /// Says that everything below `to` was written out and will not be lent again.
    pub(crate) fn done(&mut self, ring: &LogBuffer, to: Lsn) {
        // Release: pairs with the acquire in `LogBuffer::release`.
        ring.flushed[self.stream].fetch_max(to.0, Ordering::Release);
    }

    /// The number of its stream.
    pub(crate) fn stream(&self) -> usize {
        self.stream
    }

    /// Memory for gathering blocks; to be given back.
    pub(crate) fn take_scratch(&mut self) -> (Vec<Run>, Vec<u8>) {
        (std::mem::take(&mut self.runs), std::mem::take(&mut self.gathered))
    }

    /// Gives the memory back.
    pub(crate) fn give_scratch(&mut self, mut runs: Vec<Run>, gathered: Vec<u8>) {
        runs.clear();
        (self.runs, self.gathered) = (runs, gathered);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn put(ring: &LogBuffer, at: u64, bytes: &[u8]) {
        ring.reserved.fetch_max(at + bytes.len() as u64, Ordering::SeqCst);
        ring.write(Lsn(at), bytes);
        ring.fill_to(Lsn(at + bytes.len() as u64));
    }

    #[test]
    fn the_ring_wraps_and_forgets() {
        let (ring, mut flusher) = LogBuffer::new(32, Lsn(0));
        put(&ring, 0, &[1; 24]);
        let mut out = [0; 24];
        assert_eq!(ring.read(Lsn(0), &mut out), RingRead::Copied);
        assert_eq!(out, [1; 24]);
        assert_eq!(ring.read(Lsn(8), &mut out), RingRead::Beyond);
        assert_eq!(ring.read(Lsn(u64::MAX), &mut out), RingRead::Beyond);
        assert_eq!(ring.lend(&mut flusher, Lsn(0), Lsn(24)), [&[1u8; 24][..], &[]]);
        flusher.done(&ring, Lsn(24));
        ring.release(Lsn(24));
        assert_eq!(ring.read(Lsn(0), &mut out), RingRead::Copied, "released, yet not overwritten");
        put(&ring, 24, &[2; 24]);
        assert_eq!(ring.read(Lsn(0), &mut out), RingRead::Overwritten);
        assert_eq!(ring.read(Lsn(16), &mut out[..8]), RingRead::Copied);
        assert_eq!(ring.read(Lsn(24), &mut out), RingRead::Copied);
        assert_eq!(out, [2; 24]);
        assert_eq!(ring.lend(&mut flusher, Lsn(24), Lsn(48)), [&[2u8; 8][..], &[2; 16]]);
    }

    #[test]
    fn nothing_is_released_that_the_flusher_may_still_hold() {
        let (ring, mut flusher) = LogBuffer::new(32, Lsn(0));
        put(&ring, 0, &[1; 24]);
        ring.release(Lsn(24));
        assert_eq!(ring.released(), Lsn(0));
        flusher.done(&ring, Lsn(16));
        ring.release(Lsn(24));
        assert_eq!(ring.released(), Lsn(16));
    }

    #[test]
    fn a_ring_that_starts_in_the_middle_holds_nothing_from_before() {
        let (ring, _flusher) = LogBuffer::new(32, Lsn(64));
        assert_eq!(ring.read(Lsn(48), &mut [0; 16]), RingRead::Overwritten);
    }

    #[test]
    fn a_cut_takes_bytes_back() {
        let (ring, mut flusher) = LogBuffer::new(64, Lsn(0));
        put(&ring, 0, &[1; 24]);
        ring.cut(&mut [&mut flusher], Lsn(8));
        let mut out = [0; 8];
        assert_eq!(ring.read(Lsn(8), &mut out), RingRead::Beyond);
        assert_eq!(ring.read(Lsn(0), &mut out), RingRead::Copied);
        put(&ring, 8, &[3; 8]);
        assert_eq!(ring.read(Lsn(8), &mut out), RingRead::Copied);
        assert_eq!(out, [3; 8]);
    }

    #[test]
    #[should_panic(expected = "without room")]
    fn nobody_writes_without_room() {
        let (ring, _flusher) = LogBuffer::new(32, Lsn(0));
        put(&ring, 0, &[1; 40]);
    }
}
