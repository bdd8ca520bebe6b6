//! The indirection array: record id to an 8-byte word that says where the
//! newest version is (Query Fresh, section 3.3).
//!
//! # Access protocol
//!
//! Chunks are installed once by compare-exchange and never move or go away
//! before the array does, so a reference to a word stays good. A word is read
//! and changed by anybody, with the orderings that the caller names; the array itself gives
//! words no meaning beyond their tag.

#[cfg(not(loom))]
use std::alloc::{Layout, handle_alloc_error};
use std::{fmt, ptr};

use freshet_base::{
    Lsn, Rid,
    sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering},
};

use crate::{used, version::Version};

/// Words per chunk.
const CHUNK_BITS: u32 = if cfg!(loom) { 2 } else { 16 };
const CHUNK_WORDS: usize = 1 << CHUNK_BITS;
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

/// A growing array of words that never moves. Its size is bounded by
/// [`IndirectionArray::LIMIT`].
pub struct IndirectionArray {
    directory: *mut AtomicPtr<AtomicU64>,
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
        Self { directory: allocate(DIRECTORY), chunks: AtomicUsize::new(0) }
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
        // SAFETY: `place` bounds `chunk` by DIRECTORY; the directory lives as long as `self`.
        // Acquire: pairs with the release of the compare-exchange in `get_or_grow`, so zeroes are
        // seen.
        let chunk = unsafe { &*self.directory.add(chunk) }.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: an installed chunk is freed with `self` only; `place` bounds `word`.
        Some(unsafe { &*chunk.add(word) })
    }

    /// The word of `rid`; its chunk is made if need be.
    ///
    /// Returns `None` when `rid` is at or above [`IndirectionArray::LIMIT`].
    pub fn get_or_grow(&self, rid: Rid) -> Option<&AtomicU64> {
        if let Some(word) = self.get(rid) {
            return Some(word);
        }
        let (chunk, word) = Self::place(rid)?;
        let fresh: *mut AtomicU64 = allocate(CHUNK_WORDS);
        // Before the chunk exists, so that a thread that walks all chunks does not miss it.
        // Release: pairs with `chunks`.
        self.chunks.fetch_max(chunk + 1, Ordering::AcqRel);
        // SAFETY: as in `get`.
        let slot = unsafe { &*self.directory.add(chunk) };
        // AcqRel: publishes the zeroes of `fresh`, or takes over those of the winner.
        let chunk = match slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                used::taken(size_of::<[AtomicU64; CHUNK_WORDS]>());
                fresh
            }
            Err(winner) => {
                // SAFETY: `fresh` was allocated above and never shared.
                unsafe { release(fresh, CHUNK_WORDS) };
                winner
            }
        };
        // SAFETY: installed, so it lives as long as `self`.
        Some(unsafe { &*chunk.add(word) })
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

    /// Bytes of the chunks that exist.
    pub fn bytes(&self) -> u64 {
        let chunks = (0..self.chunks.load(Ordering::Acquire) as u64)
            .filter(|chunk| self.get(Rid(chunk << CHUNK_BITS)).is_some())
            .count();
        (chunks * size_of::<[AtomicU64; CHUNK_WORDS]>()) as u64
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
        for chunk in 0..self.chunks.load(Ordering::Acquire) {
            // SAFETY: in bounds; `&mut self` means nobody else is here.
            let chunk = unsafe { &*self.directory.add(chunk) }.load(Ordering::Relaxed);
            if !chunk.is_null() {
                used::given_back(size_of::<[AtomicU64; CHUNK_WORDS]>());
                // SAFETY: allocated by `get_or_grow`, once.
                unsafe { release(chunk, CHUNK_WORDS) };
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
