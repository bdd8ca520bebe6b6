//! The indirection array: record id to an 8-byte word that says where the
//! newest version is (Query Fresh, section 3.3).
//!
//! # Access protocol
//!
//! Chunks are installed once by compare-exchange and never move or go away
//! before the array does, so a reference to a word stays good. A word is read
//! and changed by anybody, with the orderings that the caller names; the array itself gives
//! words no meaning beyond their tag.
//!
//! # What it takes
//!
//! A chunk is mapped whole, and takes memory where it is written to: most tables have few records,
//! and ids go up from the chunk's start. So a chunk has parts: the first is a page, and each other
//! one is as long as all before it. A part is counted ([`crate::used`]) when a thread asks for a
//! word there to write to it. The lowest bits of the chunk's pointer in the directory say which
//! parts are counted.

#[cfg(not(loom))]
use std::alloc::{Layout, handle_alloc_error};
use std::{fmt, ptr};

use freshet_base::{
    Lsn, Rid,
    memory::{self, Owner},
    sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering},
};

use crate::version::Version;

/// Words per chunk.
const CHUNK_BITS: u32 = if cfg!(loom) { 2 } else { 16 };
const CHUNK_WORDS: usize = 1 << CHUNK_BITS;
/// Words of a chunk's first part: a page.
const PART_BITS: u32 = if cfg!(loom) { 0 } else { 9 };
/// The bits of a chunk's pointer that say which parts are counted: chunks are aligned to pages.
const PARTS: usize = (1 << (CHUNK_BITS - PART_BITS + 1)) - 1;
/// Chunks per array: 2^36 records a table.
const DIRECTORY_BITS: u32 = if cfg!(loom) { 1 } else { 20 };
const DIRECTORY: usize = 1 << DIRECTORY_BITS;

/// What an indirection word says: nothing, a version in memory, a place in the log, or that the
/// record is gone.
///
/// The lowest bit tells a log address from a pointer (Query Fresh, section 3.3); versions are
/// aligned to 8 bytes, so their pointers have it clear, and the one above, too, which is set in the
/// word of a record that is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(pub(crate) u64);

impl Word {
    /// A word that leads to nothing: the record was never written here.
    pub const EMPTY: Self = Self(0);

    pub(crate) fn pointer(version: *const Version) -> Self {
        Self(version.expose_provenance() as u64)
    }

    /// The record lies at `address` in the log and is loaded when somebody reads it.
    ///
    /// # Panics
    /// When the address needs all 64 bits: no log is that long.
    pub fn address(address: Lsn) -> Self {
        assert!(address.0 < 1 << 63, "a log address fits 63 bits");
        Self(address.0 << 1 | 1)
    }

    /// The record was deleted at `tombstone`, and there is nothing in memory of what it was before.
    ///
    /// # Panics
    /// When the address needs more than 62 bits: no log is that long.
    pub fn gone(tombstone: Lsn) -> Self {
        assert!(tombstone.0 < 1 << 62, "a log address fits 62 bits");
        Self(tombstone.0 << 2 | 2)
    }

    /// Whether the word is [`Word::EMPTY`].
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The log address, if it is one.
    pub fn as_address(self) -> Option<Lsn> {
        (self.0 & 1 == 1).then_some(Lsn(self.0 >> 1))
    }

    /// Where the tombstone lies, if the record is gone.
    pub fn as_gone(self) -> Option<Lsn> {
        (self.0 & 3 == 2).then_some(Lsn(self.0 >> 2))
    }

    pub(crate) fn as_pointer(self) -> Option<*mut Version> {
        (self.0 & 3 == 0 && self.0 != 0).then(|| ptr::with_exposed_provenance_mut(self.0 as usize))
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.as_address(), self.as_gone()) {
            (Some(address), _) => write!(f, "Word({address:?})"),
            (None, Some(tombstone)) => write!(f, "Word(gone at {tombstone:?})"),
            (None, None) => write!(f, "Word({:#x})", self.0),
        }
    }
}

/// An array of `count` atomics that are zero, or null.
///
/// It is mapped, not allocated: most of it is never touched, and an allocator that has used the
/// same memory before would have to write zeroes to all of it.
#[cfg(not(loom))]
fn allocate<T>(count: usize) -> *mut T {
    let layout = Layout::array::<T>(count).expect("constant");
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses; zero bytes are a zero or null
    // atomic.
    let memory = unsafe { libc::mmap(ptr::null_mut(), layout.size(), access, kind, -1, 0) };
    if memory == libc::MAP_FAILED {
        handle_alloc_error(layout);
    }
    memory.cast()
}

/// # Safety
/// `memory` came from [`allocate`] with this `count`, and nobody uses it any more.
#[cfg(not(loom))]
unsafe fn release<T>(memory: *mut T, count: usize) {
    // SAFETY: by this function's contract: a whole mapping that nobody uses.
    let unmapped = unsafe { libc::munmap(memory.cast(), size_of::<T>() * count) };
    debug_assert_eq!(unmapped, 0, "it was mapped");
}

#[cfg(loom)]
fn allocate<T: Default>(count: usize) -> *mut T {
    Box::into_raw((0..count).map(|_| T::default()).collect::<Box<[T]>>()).cast()
}

#[cfg(loom)]
unsafe fn release<T>(memory: *mut T, count: usize) {
    // SAFETY: made by `allocate` from a box of this length.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(memory, count)) });
}

/// A chunk as its place in the directory names it: where it is, and which of its parts are counted.
#[derive(Clone, Copy)]
struct Chunk(*mut AtomicU64);

impl Chunk {
    /// None where no chunk is.
    #[inline]
    fn words(self) -> Option<*mut AtomicU64> {
        (!self.0.is_null()).then(|| self.0.map_addr(|address| address & !PARTS))
    }

    /// The part that a word lies in, as its bit.
    #[inline]
    fn part(word: usize) -> usize {
        1 << (usize::BITS - (word >> PART_BITS).leading_zeros())
    }

    #[inline]
    fn counts(self, part: usize) -> bool {
        self.0.addr() & part != 0
    }

    fn counting(self, part: usize) -> Self {
        Self(self.0.map_addr(|address| address | part))
    }

    /// The bytes of a part. All sizes are powers of two.
    fn bytes_of(part: usize) -> usize {
        (size_of::<AtomicU64>() << PART_BITS) * if part == 1 { 1 } else { part / 2 }
    }

    /// The bytes of each part that is counted.
    fn counted(self) -> impl Iterator<Item = usize> {
        let parts = (0..PARTS.count_ones()).map(|bit| 1 << bit);
        parts.filter(move |part| self.counts(*part)).map(Self::bytes_of)
    }
}

/// A growing array of words that never moves. Its size is bounded by
/// [`IndirectionArray::LIMIT`].
pub struct IndirectionArray {
    directory: *mut AtomicPtr<AtomicU64>,
    /// Whether it holds what replay has announced, which is counted for itself too.
    announces: bool,
    /// One past the last chunk that exists; only ever larger than needed for an instant.
    chunks: AtomicUsize,
}

// SAFETY: the directory and its chunks are arrays of atomics, owned by this value and freed with
// it.
unsafe impl Send for IndirectionArray {}
// SAFETY: as above; shared access is through atomics only.
unsafe impl Sync for IndirectionArray {}

impl IndirectionArray {
    /// The first record id that has no place.
    pub const LIMIT: Rid = Rid(1 << (CHUNK_BITS + DIRECTORY_BITS));

    /// An array of empty words. Takes memory as it is written to.
    pub fn new() -> Self {
        Self::made(false)
    }

    /// One of what replay announces ([`memory::announced`]).
    pub(crate) fn of_announcements() -> Self {
        Self::made(true)
    }

    fn made(announces: bool) -> Self {
        Self { directory: allocate(DIRECTORY), announces, chunks: AtomicUsize::new(0) }
    }

    /// Whether it has no word yet. A thread that knows of a word by synchronization with its writer
    /// is told that it has one.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: see above; nothing is read on the strength of it.
        self.chunks.load(Ordering::Relaxed) == 0
    }

    /// The word of `rid`, if its chunk exists.
    #[inline]
    pub fn get(&self, rid: Rid) -> Option<&AtomicU64> {
        let (chunk, word) = Self::place(rid)?;
        // SAFETY: an installed chunk is freed with `self` only; `place` bounds `word`.
        self.chunk(chunk).words().map(|words| unsafe { &*words.add(word) })
    }

    /// The word of `rid`, to be written to; its chunk is made if need be.
    ///
    /// Returns `None` when `rid` is at or above [`IndirectionArray::LIMIT`].
    #[inline]
    pub fn get_or_grow(&self, rid: Rid) -> Option<&AtomicU64> {
        let (chunk, word) = Self::place(rid)?;
        let there = self.chunk(chunk);
        let words = match there.words() {
            Some(words) if there.counts(Chunk::part(word)) => words,
            _ => self.grow(chunk, Chunk::part(word)),
        };
        // SAFETY: as in `get`.
        Some(unsafe { &*words.add(word) })
    }

    /// A place of the directory.
    #[inline]
    fn slot(&self, chunk: usize) -> &AtomicPtr<AtomicU64> {
        debug_assert!(chunk < DIRECTORY);
        // SAFETY: all callers bound `chunk` by DIRECTORY; the directory lives as long as `self`.
        unsafe { &*self.directory.add(chunk) }
    }

    /// What is there of a chunk.
    #[inline]
    fn chunk(&self, chunk: usize) -> Chunk {
        // Acquire: pairs with the release of the compare-exchange in `grow`, so zeroes are seen.
        Chunk(self.slot(chunk).load(Ordering::Acquire))
    }

    /// Makes the chunk, if it is not there, and counts the part, if it is not.
    #[cold]
    fn grow(&self, chunk: usize, part: usize) -> *mut AtomicU64 {
        let mut there = self.chunk(chunk);
        loop {
            if let Some(words) = there.words().filter(|_| there.counts(part)) {
                return words;
            }
            let fresh: Option<*mut AtomicU64> = there.words().is_none().then(|| allocate(CHUNK_WORDS));
            if fresh.is_some() {
                // Before the chunk exists, so that a thread that walks all chunks does not miss it.
                // Release: pairs with `chunks`.
                self.chunks.fetch_max(chunk + 1, Ordering::AcqRel);
            }
            let more = fresh.map_or(there, Chunk).counting(part);
            // AcqRel: publishes the zeroes of `fresh`, or passes on those of who made the chunk.
            match self.slot(chunk).compare_exchange(there.0, more.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    memory::taken(Owner::Addresses, Chunk::bytes_of(part));
                    if self.announces {
                        memory::announced_by(Chunk::bytes_of(part) as i64);
                    }
                    there = more;
                }
                Err(winner) => {
                    if let Some(fresh) = fresh {
                        // SAFETY: `fresh` was allocated above and never shared.
                        unsafe { release(fresh, CHUNK_WORDS) };
                    }
                    there = Chunk(winner);
                }
            }
        }
    }

    /// The first record id of the chunk behind that of `rid`.
    pub(crate) fn next_chunk(rid: Rid) -> Rid {
        Rid(((rid.0 >> CHUNK_BITS) + 1) << CHUNK_BITS)
    }

    #[inline]
    fn place(rid: Rid) -> Option<(usize, usize)> {
        (rid < Self::LIMIT).then_some(((rid.0 >> CHUNK_BITS) as usize, (rid.0 as usize) & (CHUNK_WORDS - 1)))
    }

    /// No word at or beyond this has a place yet.
    pub fn end(&self) -> Rid {
        Rid((self.chunks.load(Ordering::Acquire) as u64) << CHUNK_BITS)
    }

    /// Where the chunk of `rid` ends.
    pub(crate) fn chunk_end(rid: Rid) -> Rid {
        Rid(((rid.0 >> CHUNK_BITS) + 1) << CHUNK_BITS)
    }

    /// Calls `visit` with every word of every chunk that exists, in order of record ids.
    pub fn for_each(&self, mut visit: impl FnMut(Rid, &AtomicU64)) {
        for chunk in 0..self.chunks.load(Ordering::Acquire) as u64 {
            let first = Rid(chunk << CHUNK_BITS);
            if self.get(first).is_none() {
                continue;
            }
            for word in 0..CHUNK_WORDS as u64 {
                let rid = Rid(first.0 + word);
                visit(rid, self.get(rid).expect("the chunk exists"));
            }
        }
    }

    /// Bytes of the chunks that exist, as they are counted.
    pub fn bytes(&self) -> u64 {
        let chunks = 0..self.chunks.load(Ordering::Acquire);
        chunks.flat_map(|chunk| self.chunk(chunk).counted()).sum::<usize>() as u64
    }
}

impl Default for IndirectionArray {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for IndirectionArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndirectionArray({} bytes)", self.bytes())
    }
}

impl Drop for IndirectionArray {
    fn drop(&mut self) {
        if self.announces {
            memory::announced_by(-(self.bytes() as i64));
        }
        for chunk in 0..self.chunks.load(Ordering::Acquire) {
            // `&mut self` means that no other thread is here.
            let chunk = self.chunk(chunk);
            if let Some(words) = chunk.words() {
                chunk.counted().for_each(|bytes| memory::given_back(Owner::Addresses, bytes));
                // SAFETY: allocated by `grow`, once.
                unsafe { release(words, CHUNK_WORDS) };
            }
        }
        // SAFETY: allocated by `new`.
        unsafe { release(self.directory, DIRECTORY) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_stay_where_they_are_while_the_array_grows() {
        let array = IndirectionArray::new();
        assert!(array.get(Rid(5)).is_none());
        let five: *const AtomicU64 = array.get_or_grow(Rid(5)).unwrap();
        array.get_or_grow(Rid(5)).unwrap().store(7, Ordering::Relaxed);
        array.get_or_grow(Rid(1 << 20)).unwrap().store(9, Ordering::Relaxed);
        assert_eq!(five, ptr::from_ref(array.get(Rid(5)).unwrap()));
        assert_eq!(array.get(Rid(5)).unwrap().load(Ordering::Relaxed), 7);
        let mut seen = Vec::new();
        array.for_each(|rid, word| {
            if word.load(Ordering::Relaxed) != 0 {
                seen.push(rid);
            }
        });
        assert_eq!(seen, [Rid(5), Rid(1 << 20)]);
        assert!(array.get_or_grow(IndirectionArray::LIMIT).is_none());
        assert!(array.get(Rid::MAX).is_none());
    }

    #[test]
    fn what_is_written_to_is_counted() {
        let page = 8 << PART_BITS;
        let array = IndirectionArray::new();
        assert!(array.get(Rid(0)).is_none() && array.bytes() == 0);
        let grown: Vec<u64> = [0, 511, 512, 20, 1023, 2000, 65_535, 32_768, 65_536]
            .into_iter()
            .map(|rid| {
                array.get_or_grow(Rid(rid)).unwrap();
                array.bytes() / page
            })
            .collect();
        assert_eq!(grown, [1, 1, 2, 2, 2, 4, 68, 68, 69]);
        // Who reads takes nothing.
        assert!(array.get(Rid(9_000)).is_some() && array.bytes() == 69 * page);
        assert!((0..=u64::from(u16::MAX)).all(|rid| array.get_or_grow(Rid(rid)).is_some()));
        assert_eq!(array.bytes(), (8 << CHUNK_BITS) + page);
    }

    #[test]
    fn a_word_distinguishes_addresses_from_pointers() {
        assert_eq!(Word::address(Lsn(0)).as_address(), Some(Lsn(0)));
        assert!(!Word::address(Lsn(0)).is_empty());
        assert_eq!(Word::EMPTY.as_address(), None);
        assert_eq!(Word::EMPTY.as_pointer(), None);
        let gone = Word::gone(Lsn(0));
        assert_eq!((gone.as_gone(), gone.as_address(), gone.as_pointer()), (Some(Lsn(0)), None, None));
        assert_eq!(Word::gone(Lsn((1 << 62) - 1)).as_gone(), Some(Lsn((1 << 62) - 1)));
        assert!(!gone.is_empty() && Word::EMPTY.as_gone().is_none() && Word::address(Lsn(7)).as_gone().is_none());
    }

    #[test]
    fn racing_threads_agree_on_a_chunk() {
        let array = IndirectionArray::new();
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let array = &array;
                scope.spawn(move || {
                    for rid in 0..200_000u64 {
                        array.get_or_grow(Rid(rid * 3)).unwrap().fetch_add(thread + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        for rid in 0..200_000u64 {
            assert_eq!(array.get(Rid(rid * 3)).unwrap().load(Ordering::Relaxed), 3);
        }
    }
}
