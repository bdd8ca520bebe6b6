//! One version of a record: its LSN, the next older one, its row.
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
//! - its row and shape never change, nor does what a tombstone says of where the row has gone;
//! - `lsn` is written by its owner only: from owner to final LSN, or to aborted;
//! - `next` is written by its maker before publication, by the thread that loads the version that a
//!   log address in it stands for (compare-exchange), and by the thread that trims the chain (swap
//!   to empty);
//! - it is freed through [`Guard::retire`](crate::Guard::retire) by the thread that unlinked it.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    hash::{BuildHasher as _, Hasher as _},
    ptr::NonNull,
    slice,
};

use foldhash::fast::FixedState;
use freshet_base::{
    Rid,
    memory::{self, Owner},
    sync::{AtomicU64, Ordering},
};

use crate::array::Word;

#[cfg(all(test, not(loom)))]
thread_local! {
    /// Versions that this thread has made and not freed: tests run in one thread each.
    pub(crate) static LIVE: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// Whether a version says that the record is deleted, its length, and a checksum of these and the
/// row, as they were when the version was made: memory may rot.
///
/// | bits | are |
/// |---|---|
/// | 31 | whether it is a tombstone |
/// | 16..31 | the length of the row, or [`Shape::LONG`] |
/// | 0..16 | the checksum, in 16 bits: four more bytes would move many rows to a larger size class |
///
/// Of a longer row the length and a checksum of 32 bits lie before the row.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Shape(u32);

impl Shape {
    const TOMBSTONE: u32 = 1 << 31;
    /// In the place of the length.
    const LONG: u32 = 0x7FFF;

    fn new(flag: u32, bytes: &[u8]) -> Self {
        match bytes.len() as u32 {
            length @ 0..Self::LONG => Self(flag | length << 16).with_check(bytes),
            _ => Self(flag | Self::LONG << 16),
        }
    }

    fn is_tombstone(self) -> bool {
        self.0 & Self::TOMBSTONE != 0
    }

    /// The length of the row, unless it is long.
    fn length(self) -> Option<usize> {
        let length = (self.0 & !Self::TOMBSTONE) >> 16;
        (length != Self::LONG).then_some(length as usize)
    }

    fn with_check(self, bytes: &[u8]) -> Self {
        let without = self.0 & 0xFFFF_0000;
        Self(without | checksum(bytes, without) >> 16)
    }
}

/// A checksum of a row and of what is said beside it. It is compared with nothing but what this
/// process has made, so it may change with the library.
fn checksum(row: &[u8], beside: u32) -> u32 {
    let mut hasher = FixedState::with_seed(beside.into()).build_hasher();
    hasher.write(row);
    (hasher.finish() >> 32) as u32
}

/// The head of a version; its row follows at [`Version::ROW`].
#[repr(C)]
pub(crate) struct Version {
    /// A final LSN, an owner, or aborted (see `owner`).
    pub(crate) lsn: AtomicU64,
    /// A [`Word`]: the next older version.
    pub(crate) next: AtomicU64,
    shape: Shape,
}

/// What lies at [`Version::ROW`], before a long row.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct LongShape {
    length: u32,
    check: u32,
}

impl LongShape {
    fn new(bytes: &[u8]) -> Self {
        let length = bytes.len() as u32;
        Self { length, check: checksum(bytes, length) }
    }
}

impl Version {
    /// Where the row begins: right behind `shape`, inside the structure's tail padding.
    const ROW: usize = std::mem::offset_of!(Version, shape) + size_of::<Shape>();
    /// Where a long row begins.
    const LONG_ROW: usize = Self::ROW + size_of::<LongShape>();
    /// The longest row, in bytes.
    pub(crate) const MAX_ROW: usize = (u32::MAX / 4) as usize;

    fn layout(length: usize) -> Layout {
        let row = if length < Shape::LONG as usize { Self::ROW } else { Self::LONG_ROW };
        let size = (row + length).max(size_of::<Self>());
        Layout::from_size_align(size, align_of::<Self>()).expect("rows are shorter than MAX_ROW")
    }

    /// A new version that nobody else knows. A tombstone has no row.
    ///
    /// # Panics
    /// When the row is longer than [`Version::MAX_ROW`]; tables check that.
    pub(crate) fn create(lsn: u64, next: Word, row: Option<&[u8]>) -> NonNull<Self> {
        let flag = if row.is_none() { Shape::TOMBSTONE } else { 0 };
        Self::allocate(lsn, next, flag, row.unwrap_or_default())
    }

    /// A new tombstone that no other thread knows, of a record whose row another record has from
    /// now on.
    pub(crate) fn create_moved(lsn: u64, next: Word, to: Rid) -> NonNull<Self> {
        Self::allocate(lsn, next, Shape::TOMBSTONE, &to.0.to_ne_bytes())
    }

    fn allocate(lsn: u64, next: Word, flag: u32, bytes: &[u8]) -> NonNull<Self> {
        assert!(bytes.len() <= Self::MAX_ROW);
        let layout = Self::layout(bytes.len());
        // SAFETY: the layout's size is at least that of `Version`.
        let Some(version) = NonNull::new(unsafe { alloc(layout) }.cast::<Self>()) else { handle_alloc_error(layout) };
        memory::taken(Owner::Rows, layout.size());
        #[cfg(all(test, not(loom)))]
        LIVE.with(|live| live.set(live.get() + 1));
        let (lsn, next, shape) = (AtomicU64::new(lsn), AtomicU64::new(next.0), Shape::new(flag, bytes));
        // SAFETY: freshly allocated for exactly this, aligned, and owned by this function. What is
        // at `ROW` is aligned for words of four bytes.
        unsafe {
            version.write(Self { lsn, next, shape });
            let mut row = version.cast::<u8>().as_ptr().add(Self::ROW);
            if shape.length().is_none() {
                row.cast::<LongShape>().write(LongShape::new(bytes));
                row = row.add(size_of::<LongShape>());
            }
            row.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        version
    }

    /// The row, or `None` for a tombstone.
    ///
    /// # Safety
    /// `version` came from [`Version::create`] and is not freed during `'g`.
    #[inline]
    pub(crate) unsafe fn row<'g>(version: *const Self) -> Option<&'g [u8]> {
        // SAFETY: by this function's contract.
        unsafe { (!(*version).shape.is_tombstone()).then(|| Self::bytes(version)) }
    }

    /// The row, or what a tombstone says.
    ///
    /// # Safety
    /// As for [`Version::row`].
    #[inline]
    unsafe fn bytes<'g>(version: *const Self) -> &'g [u8] {
        // SAFETY: alive, by this function's contract. Reading through the raw pointer keeps the
        // provenance of the whole allocation, which a reference to the head would not have.
        unsafe {
            let at = version.cast::<u8>();
            match (*version).shape.length() {
                Some(length) => slice::from_raw_parts(at.add(Self::ROW), length),
                None => slice::from_raw_parts(at.add(Self::LONG_ROW), Self::long_shape(version).length as usize),
            }
        }
    }

    /// # Safety
    /// As for [`Version::row`]; the row is long.
    unsafe fn long_shape(version: *const Self) -> LongShape {
        // SAFETY: alive, and there, by this function's contract; aligned, as `ROW` is.
        unsafe { version.cast::<u8>().add(Self::ROW).cast::<LongShape>().read() }
    }

    /// Whether its row and shape are as they were made. Of damage in a row of less than 32 KiB, one
    /// case in 65,536 is not seen.
    ///
    /// # Safety
    /// As for [`Version::row`].
    pub(crate) unsafe fn is_whole(version: *const Self) -> bool {
        // SAFETY: alive, by this function's contract; these bytes were written when it was made.
        unsafe {
            let (shape, bytes) = ((*version).shape, Self::bytes(version));
            match shape.length() {
                Some(_) => shape.with_check(bytes) == shape,
                None => shape == Shape(Shape::LONG << 16) && LongShape::new(bytes) == Self::long_shape(version),
            }
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
            let middle = row.as_ptr().offset_from_unsigned(version.cast()) + row.len() / 2;
            let byte = version.cast::<u8>().add(middle);
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
        unsafe { (*version).shape.is_tombstone() }
    }

    /// Which record has the row that this version, a tombstone, has taken from its own.
    ///
    /// # Safety
    /// As for [`Version::row`].
    pub(crate) unsafe fn moved_to(version: *const Self) -> Option<Rid> {
        // SAFETY: by this function's contract.
        let bytes = unsafe { (*version).shape.is_tombstone().then(|| Self::bytes(version)) }?;
        bytes.try_into().ok().map(|to| Rid(u64::from_ne_bytes(to)))
    }

    /// How many bytes one version takes.
    ///
    /// # Safety
    /// As for [`Version::row`].
    pub(crate) unsafe fn bytes_of(version: *const Self) -> usize {
        // SAFETY: by this function's contract.
        Self::layout(unsafe { Self::bytes(version) }.len()).size()
    }

    /// How many bytes a version and all older ones take that hang from it in memory.
    ///
    /// # Safety
    /// As for [`Version::row`], for each of them.
    pub(crate) unsafe fn chain_bytes(version: *const Self) -> usize {
        let (mut bytes, mut word) = (0, Word::pointer(version));
        while let Some(version) = word.as_pointer() {
            // SAFETY: by this function's contract. Acquire: pairs with the thread that linked the
            // older version.
            unsafe {
                bytes += Self::bytes_of(version);
                word = Word((*version).next.load(Ordering::Acquire));
            }
        }
        bytes
    }

    /// Frees one version.
    ///
    /// # Safety
    /// It came from [`Version::create`] or [`Version::create_moved`]; no thread can reach it any
    /// more.
    pub(crate) unsafe fn free(version: *mut u8) {
        let version = version.cast::<Self>();
        // SAFETY: alive until here, by this function's contract.
        let length = unsafe { Self::bytes(version) }.len();
        #[cfg(all(test, not(loom)))]
        LIVE.with(|live| live.set(live.get() - 1));
        let layout = Self::layout(length);
        memory::given_back(Owner::Rows, layout.size());
        // SAFETY: allocated with the same length.
        unsafe { dealloc(version.cast(), layout) };
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

const _: () =
    assert!(align_of::<Version>() == 8 && Version::ROW == 20 && Version::ROW.is_multiple_of(align_of::<LongShape>()));

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_any_length_is_whole_until_a_bit_changes() {
        for length in [0, 1, 7, 108, 0x7FFE, 0x7FFF, 0x8000, 100_000] {
            let row: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let version = Version::create(1, Word(0), Some(&row)).as_ptr();
            // SAFETY: only this test knows the version, and frees it at the end.
            unsafe {
                assert_eq!(Version::row(version), Some(&row[..]));
                assert!(Version::is_whole(version) && !Version::is_tombstone(version), "{length}");
                assert_eq!(Version::break_row(version), length > 0);
                assert_eq!(Version::is_whole(version), length == 0, "{length}");
                Version::free(version.cast());
            }
        }
    }

    #[test]
    fn a_tombstone_has_no_row_and_may_name_another_record() {
        for to in [None, Some(Rid(77))] {
            let version = match to {
                None => Version::create(1, Word(0), None),
                Some(to) => Version::create_moved(1, Word(0), to),
            };
            let version = version.as_ptr();
            // SAFETY: only this test knows the version, and frees it at the end.
            unsafe {
                assert!(Version::is_tombstone(version) && Version::is_whole(version));
                assert_eq!((Version::row(version), Version::moved_to(version)), (None, to));
                Version::free(version.cast());
            }
        }
    }
}
