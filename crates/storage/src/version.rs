//! One version of a record: its stamp, the next older one, its row.
//!
//! A change of a key is a deletion and an insertion, and the tombstone names the record that has
//! the row now. So a statement at READ COMMITTED that has waited for the old record follows the
//! row, over several moves if need be. Only memory knows that, and only as long as a snapshot that
//! saw the record is announced. Standbys and restarts do not need it, since no transaction waits
//! there.
//!
//! # Access protocol
//!
//! A version is written by the thread that makes it, then published by a release store
//! into an indirection word or into a newer version's `next`. From then on
//!
//! - its row, length, tombstone flag and checksum never change, nor does what a tombstone says of
//!   where the row has gone;
//! - `stamp` is written by its owner only: from owner to final stamp, or to aborted;
//! - `next` is written by its maker before publication, by the thread that loads the version that a
//!   log address in it stands for (compare-exchange), and by the thread that trims the chain (swap
//!   to empty);
//! - it is freed through [`Guard::retire`](crate::Guard::retire) by the thread that unlinked it.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    ptr::NonNull,
    slice,
};

use freshet_base::{
    Rid,
    sync::{AtomicU64, Ordering},
};

use crate::array::Word;

#[cfg(all(test, not(loom)))]
thread_local! {
    /// Versions that this thread has made and not freed: tests run in one thread each.
    pub(crate) static LIVE: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// Set in `length` of a version that says that the record is deleted.
const TOMBSTONE: u32 = 1 << 31;

/// The head of a version; its row follows at [`Version::ROW`].
#[repr(C)]
pub(crate) struct Version {
    /// A final stamp, an owner, or aborted (see `owner`).
    pub(crate) stamp: AtomicU64,
    /// A [`Word`]: the next older version.
    pub(crate) next: AtomicU64,
    length: u32,
    /// A checksum of `length` and the row, as they were when the version was made: memory may rot.
    check: u32,
}

impl Version {
    /// Where the row begins.
    const ROW: usize = size_of::<Self>();
    /// The longest row, in bytes.
    pub(crate) const MAX_ROW: usize = (TOMBSTONE - 1) as usize / 2;

    fn layout(length: usize) -> Layout {
        let size = Self::ROW + length;
        Layout::from_size_align(size, align_of::<Self>()).expect("rows are shorter than MAX_ROW")
    }

    /// A new version that nobody else knows. A tombstone has no row.
    ///
    /// # Panics
    /// When the row is longer than [`Version::MAX_ROW`]; tables check that.
    pub(crate) fn create(stamp: u64, next: Word, row: Option<&[u8]>) -> NonNull<Self> {
        let flag = if row.is_none() { TOMBSTONE } else { 0 };
        Self::allocate(stamp, next, flag, row.unwrap_or_default())
    }

    /// A new tombstone that no other thread knows, of a record whose row another record has from
    /// now on.
    pub(crate) fn create_moved(stamp: u64, next: Word, to: Rid) -> NonNull<Self> {
        Self::allocate(stamp, next, TOMBSTONE, &to.0.to_ne_bytes())
    }

    fn allocate(stamp: u64, next: Word, flag: u32, bytes: &[u8]) -> NonNull<Self> {
        assert!(bytes.len() <= Self::MAX_ROW);
        let layout = Self::layout(bytes.len());
        // SAFETY: the layout's size is at least that of `Version`.
        let Some(version) = NonNull::new(unsafe { alloc(layout) }.cast::<Self>()) else { handle_alloc_error(layout) };
        #[cfg(all(test, not(loom)))]
        LIVE.with(|live| live.set(live.get() + 1));
        let length = bytes.len() as u32 | flag;
        let (stamp, next) = (AtomicU64::new(stamp), AtomicU64::new(next.0));
        // SAFETY: freshly allocated for exactly this, aligned, and owned by this function.
        unsafe {
            version.write(Self { stamp, next, length, check: checksum(length, bytes) });
            version.cast::<u8>().as_ptr().add(Self::ROW).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        version
    }

    /// The row, or `None` for a tombstone.
    ///
    /// # Safety
    /// `version` came from [`Version::create`] and is not freed during `'g`.
    #[inline]
    pub(crate) unsafe fn row<'g>(version: *const Self) -> Option<&'g [u8]> {
        // SAFETY: alive, by this function's contract. Reading through the raw pointer keeps the
        // provenance of the whole allocation, which a reference to the head would not have.
        unsafe {
            let length = (*version).length;
            if length & TOMBSTONE != 0 {
                return None;
            }
            Some(slice::from_raw_parts(version.cast::<u8>().add(Self::ROW), length as usize))
        }
    }

    /// Whether its row and length are as they were made.
    ///
    /// # Safety
    /// As for [`Version::row`].
    pub(crate) unsafe fn is_whole(version: *const Self) -> bool {
        // SAFETY: alive, by this function's contract; these bytes were written when it was made.
        unsafe {
            let length = (*version).length;
            let bytes = slice::from_raw_parts(version.cast::<u8>().add(Self::ROW), (length & !TOMBSTONE) as usize);
            checksum(length, bytes) == (*version).check
        }
    }

    /// Flips a bit in the middle of the row; `false` when it has no bytes.
    ///
    /// # Safety
    /// As for [`Version::row`]; those who read the row at that time are to read damage.
    #[cfg(debug_assertions)]
    pub(crate) unsafe fn break_row(version: *mut Self) -> bool {
        // SAFETY: alive, by this function's contract, and the byte is part of the allocation.
        unsafe {
            let Some(row) = Self::row(version).filter(|row| !row.is_empty()) else { return false };
            let byte = version.cast::<u8>().add(Self::ROW + row.len() / 2);
            byte.write_volatile(byte.read_volatile() ^ 4);
        }
        true
    }

    /// Asks the processor for the second cache line of a version, where most of a short row is,
    /// while the first one is on its way. Any pointer will do.
    #[inline]
    pub(crate) fn prefetch_row(version: *const Self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint; it never faults, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(version.cast::<i8>().wrapping_add(64));
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = version;
    }

    /// # Safety
    /// As for [`Version::row`].
    pub(crate) unsafe fn is_tombstone(version: *const Self) -> bool {
        // SAFETY: alive, by this function's contract.
        unsafe { (*version).length & TOMBSTONE != 0 }
    }

    /// Which record has the row that this version, a tombstone, has taken from its own.
    ///
    /// # Safety
    /// As for [`Version::row`].
    pub(crate) unsafe fn moved_to(version: *const Self) -> Option<Rid> {
        // SAFETY: alive, by this function's contract; of a tombstone of this length the bytes are
        // there.
        unsafe {
            if (*version).length != TOMBSTONE | size_of::<u64>() as u32 {
                return None;
            }
            let bytes = version.cast::<u8>().add(Self::ROW).cast::<[u8; size_of::<u64>()]>();
            Some(Rid(u64::from_ne_bytes(bytes.read())))
        }
    }

    /// Frees one version.
    ///
    /// # Safety
    /// It came from [`Version::create`] or [`Version::create_moved`]; no thread can reach it any
    /// more.
    pub(crate) unsafe fn free(version: *mut u8) {
        let version = version.cast::<Self>();
        // SAFETY: alive until here, by this function's contract.
        let length = unsafe { (*version).length } & !TOMBSTONE;
        #[cfg(all(test, not(loom)))]
        LIVE.with(|live| live.set(live.get() - 1));
        // SAFETY: allocated with the same length.
        unsafe { dealloc(version.cast(), Self::layout(length as usize)) };
    }

    /// Frees a version and all older ones that hang from it in memory.
    ///
    /// # Safety
    /// As for [`Version::free`], for each of them.
    pub(crate) unsafe fn free_chain(version: *mut u8) {
        let mut word = Word::pointer(version.cast());
        while let Some(version) = word.as_pointer() {
            // SAFETY: by this function's contract. Relaxed: nobody else is here any more; the
            // epoch's acquire ordered their accesses before.
            word = Word(unsafe { &*version }.next.load(Ordering::Relaxed));
            // SAFETY: as above; its `next` was read before.
            unsafe { Self::free(version.cast()) };
        }
    }
}

/// Of a version's length, with its flag, and its bytes.
#[inline]
fn checksum(length: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(length, bytes)
}

const _: () = assert!(align_of::<Version>() == 8 && Version::ROW == 24);
