//! Plain memory that many threads copy into and out of.
//!
//! # Access protocol
//!
//! The memory is words of eight bytes, and every copy moves whole words
//! (`freshet_base::words`), so that it may race with another: an optimistic reader checks
//! afterwards, by the protocol of its caller.
//! What a word-wise copy costs over `memcpy` is a few nanoseconds per block.
//!
//! One door leads around the atomics, for the kernel's sake: [`Memory::slice`] lends the bytes for
//! writing them to a file, under the promise that nobody writes there in the meantime.

use std::{io, sync::Arc};

use freshet_base::{
    memory::{Held, Owner},
    sync::{AtomicU64, Ordering},
    words,
};
use freshet_memory::{Registered, SharedMemory};

use super::{
    checksum,
    shared::{PersistentBuffer, RingMemory},
};

/// Bytes in a word.
const WORD: usize = 8;

/// A fixed piece of memory, zero at first unless it is mapped.
pub(crate) struct Memory {
    backing: Backing,
    /// What is of the heap. Memory that others can map counts itself.
    _held: Option<Held>,
}

enum Backing {
    Heap(Box<[AtomicU64]>),
    Shared(Arc<SharedMemory>),
    Persistent(Arc<PersistentBuffer>),
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.len())
    }
}

impl Memory {
    /// `bytes` of zeros, a multiple of eight. Pages are not touched before they are used.
    #[cfg(not(loom))]
    pub(crate) fn new(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(WORD));
        // `vec!` asks the allocator for zeroed memory, which for this size is untouched fresh
        // pages.
        let words: Box<[u64]> = vec![0u64; bytes / WORD].into_boxed_slice();
        // SAFETY: AtomicU64 has the size, alignment (on every 64-bit target) and bit validity of
        // u64 (standard library's promise), and the box is owned, so nothing else points there.
        let words = unsafe { Box::from_raw(Box::into_raw(words) as *mut [AtomicU64]) };
        Self { backing: Backing::Heap(words), _held: Some(Held::allocated(Owner::Buffers, bytes)) }
    }

    /// `bytes` of zeros that others can map, a multiple of 4096.
    pub(crate) fn shared(bytes: usize, huge_pages: bool) -> io::Result<Self> {
        let memory = SharedMemory::new(bytes, huge_pages)?;
        Ok(Self { backing: Backing::Shared(Arc::new(memory)), _held: None })
    }

    /// The ring of a buffer in persistent memory.
    pub(crate) fn persistent(buffer: Arc<PersistentBuffer>) -> Self {
        Self { backing: Backing::Persistent(buffer), _held: None }
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        match &self.backing {
            Backing::Heap(words) => words,
            Backing::Shared(memory) => memory.words(),
            Backing::Persistent(buffer) => buffer.words(),
        }
    }

    /// The memory as others can map it, if they can.
    pub(crate) fn as_shared(&self) -> Option<RingMemory> {
        match &self.backing {
            Backing::Heap(_) => None,
            Backing::Shared(memory) => Some(RingMemory::shared(memory)),
            Backing::Persistent(buffer) => Some(RingMemory::persistent(buffer)),
        }
    }

    /// The persistent memory, if it is.
    #[inline]
    pub(crate) fn as_persistent(&self) -> Option<&PersistentBuffer> {
        match &self.backing {
            Backing::Heap(_) | Backing::Shared(_) => None,
            Backing::Persistent(buffer) => Some(buffer),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new(bytes: usize) -> Self {
        Self { backing: Backing::Heap((0..bytes / WORD).map(|_| AtomicU64::new(0)).collect()), _held: None }
    }

    /// Its size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.words().len() * WORD
    }

    /// Copies `from` to byte `at`. Several threads may store at once as long as their words differ.
    /// Published by the thread that owns the range (a bound cleared, a watermark advanced), and
    /// checked by optimistic readers through the fences of the ring.
    #[inline]
    pub(crate) fn store(&self, at: usize, from: &[u8]) {
        words::store(self.words(), at, from);
    }

    /// Copies the bytes from `at` on to `into`. The caller synchronised (its range is known to be
    /// filled), or checks afterwards.
    #[inline]
    pub(crate) fn load(&self, at: usize, into: &mut [u8]) {
        words::load(self.words(), at, into);
    }

    /// Sets `length` bytes from `at` on to zero; both are multiples of eight.
    pub(crate) fn clear(&self, at: usize, length: usize) {
        for word in &self.words()[at / WORD..(at + length) / WORD] {
            // Relaxed: as in `store`.
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The checksum of what has the checksum `crc` and, behind it, the bytes from `at` on; both are
    /// multiples of eight. The words are loaded as by [`Memory::load`], and copied nowhere.
    pub(crate) fn checksum(&self, crc: u32, at: usize, length: usize) -> u32 {
        checksum::append(crc, &self.words()[at / WORD..(at + length) / WORD])
    }

    /// The bytes from `at` on, in place.
    ///
    /// # Safety
    /// Until the slice is dropped nobody stores to the range, and every store that was made there
    /// happened before this call.
    pub(crate) unsafe fn slice(&self, at: usize, length: usize) -> &[u8] {
        assert!(at + length <= self.len());
        let first = self.words().as_ptr().cast::<u8>().wrapping_add(at);
        // SAFETY: inside the allocation (asserted), initialised (zeros at first), and not written
        // during the borrow, which is the caller's promise. Concurrent atomic loads of the same
        // words only read.
        unsafe { std::slice::from_raw_parts(first, length) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn any_alignment_and_length_comes_back() {
        let memory = Memory::new(64);
        for at in 0..24 {
            for length in 0..40 {
                memory.clear(0, 64);
                let bytes: Vec<u8> = (0..length).map(|i| (i + 1) as u8).collect();
                memory.store(at, &bytes);
                let mut all = [0; 64];
                memory.load(0, &mut all);
                assert_eq!(&all[at..at + length], &bytes[..], "at {at}");
                assert!(all[..at].iter().chain(&all[at + length..]).all(|b| *b == 0), "neighbours stay, at {at}");
                let mut back = vec![0; length];
                memory.load(at, &mut back);
                assert_eq!(back, bytes);
            }
        }
    }
}
