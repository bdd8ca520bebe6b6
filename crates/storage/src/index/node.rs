//! Nodes: a leaf holds pairs, an inner node separators and children.

use std::ptr::NonNull;

use freshet_base::{
    Lsn,
    memory::{self, Owner},
    sync::{AtomicPtr, AtomicU64, Ordering},
};

use super::{latch::VersionLatch, page::Page};

/// Size of a leaf, in bytes.
pub(super) const LEAF_BYTES: usize = 2048;
/// Size of an inner node, in bytes.
pub(super) const INNER_BYTES: usize = 4096;
/// Children of an inner node.
pub(super) const FANOUT: usize = 160;

const LEAF_WORDS: usize = (LEAF_BYTES - size_of::<Header>() - size_of::<usize>() - size_of::<u64>()) / 4;
const INNER_WORDS: usize = (INNER_BYTES - size_of::<Header>() - FANOUT * size_of::<usize>()) / 4;

/// What every node begins with.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    pub(super) latch: VersionLatch,
    /// Distance from the leaves; never changes.
    pub(super) level: u32,
}

/// A leaf: pairs, and the way to the next leaf.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Leaf {
    pub(super) header: Header,
    pub(super) next: AtomicPtr<Header>,
    /// No entry that was removed from what the leaf covers belonged to a record whose deletion has
    /// a larger LSN. Read and written as the page is: relaxed, and ordered by the latch.
    removed: AtomicU64,
    pub(super) page: Page<LEAF_WORDS>,
}

/// An inner node: child `i` holds what is at or above separator `i - 1` and below separator `i`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Inner {
    pub(super) header: Header,
    pub(super) page: Page<INNER_WORDS>,
    children: [AtomicPtr<Header>; FANOUT],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Leaf>() == LEAF_BYTES && size_of::<Inner>() == INNER_BYTES);

/// A pointer to a node that this tree made, with the provenance of the whole node.
pub(super) type Pointer = *mut Header;

/// A node by its kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node<'g> {
    Leaf(&'g Leaf),
    Inner(&'g Inner),
}

impl<'g> Node<'g> {
    /// # Safety
    /// `pointer` came from [`Leaf::allocate`] or [`Inner::allocate`] and is not freed during `'g`.
    #[inline(always)]
    pub(super) unsafe fn at(pointer: Pointer) -> Self {
        // SAFETY: the caller's promise; both kinds begin with a header (repr(C)), whose `level`
        // says which it is, and everything else in them is atomic, so shared references are all
        // that anyone ever needs.
        unsafe { if (*pointer).level == 0 { Self::Leaf(&*pointer.cast()) } else { Self::Inner(&*pointer.cast()) } }
    }

    #[inline(always)]
    pub(super) fn header(self) -> &'g Header {
        match self {
            Self::Leaf(leaf) => &leaf.header,
            Self::Inner(inner) => &inner.header,
        }
    }
}

impl Leaf {
    /// Words of its page.
    pub(super) const WORDS: usize = LEAF_WORDS;

    /// An empty leaf that nobody else knows of.
    pub(super) fn allocate() -> NonNull<Leaf> {
        memory::taken(Owner::Indexes, size_of::<Self>());
        let leaf = Box::new(Self {
            header: Header { latch: VersionLatch::new(), level: 0 },
            next: AtomicPtr::new(std::ptr::null_mut()),
            removed: AtomicU64::new(0),
            page: Page::new(),
        });
        NonNull::from(Box::leak(leaf))
    }

    /// The largest LSN of a deletion whose entry is gone from here. Optimistic: means something
    /// once the latch's version was validated.
    #[inline(always)]
    pub(super) fn removed(&self) -> Lsn {
        Lsn(self.removed.load(Ordering::Relaxed))
    }

    /// An entry goes, or came here with what another leaf covered, of a record that was deleted at
    /// `lsn`. Under the latch, after it was said that the leaf changes.
    pub(super) fn note_removed(&self, lsn: Lsn) {
        if lsn > self.removed() {
            self.removed.store(lsn.0, Ordering::Relaxed);
        }
    }
}

impl Inner {
    /// Words of its page.
    pub(super) const WORDS: usize = INNER_WORDS;

    /// A node without children, `level` above the leaves, that nobody else knows of.
    pub(super) fn allocate(level: u32) -> NonNull<Inner> {
        debug_assert!(level > 0);
        memory::taken(Owner::Indexes, size_of::<Self>());
        let inner = Box::new(Self {
            header: Header { latch: VersionLatch::new(), level },
            page: Page::new(),
            children: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
        });
        NonNull::from(Box::leak(inner))
    }

    /// The child at `index`; null when none exists, which a validated reader never sees.
    /// Without the latch, validate before following it.
    #[inline(always)]
    pub(super) fn child(&self, index: usize) -> Pointer {
        match self.children.get(index) {
            // Acquire: pairs with the release stores below; what the pointer leads to is
            // initialised.
            Some(child) => child.load(Ordering::Acquire),
            None => std::ptr::null_mut(),
        }
    }

    pub(super) fn set_child(&self, index: usize, child: Pointer) {
        // Release: pairs with the load in `child`.
        self.children[index].store(child, Ordering::Release);
    }

    /// How many children there are; under the latch.
    pub(super) fn len(&self) -> usize {
        self.page.shape().count + 1
    }

    /// All children; under the latch.
    pub(super) fn children(&self) -> Vec<Pointer> {
        (0..self.len()).map(|index| self.child(index)).collect()
    }

    /// Makes room for a child at `index`, of `len` that there are; under the latch.
    pub(super) fn insert_child(&self, index: usize, len: usize, child: Pointer) {
        for i in (index..len).rev() {
            self.set_child(i + 1, self.child(i));
        }
        self.set_child(index, child);
    }

    /// Closes the gap of the child at `index`, of `len` that there are; under the latch.
    pub(super) fn remove_child(&self, index: usize, len: usize) {
        for i in index + 1..len {
            self.set_child(i - 1, self.child(i));
        }
        self.set_child(len - 1, std::ptr::null_mut());
    }
}

/// How many bytes a node takes.
///
/// # Safety
/// As for [`Node::at`].
pub(super) unsafe fn bytes(pointer: Pointer) -> usize {
    // SAFETY: the caller's promise.
    if unsafe { (*pointer).level } == 0 { size_of::<Leaf>() } else { size_of::<Inner>() }
}

/// Frees one node.
///
/// # Safety
/// `pointer` is a [`Pointer`] that is freed once and that nobody can follow any more.
pub(super) unsafe fn free(pointer: *mut u8) {
    let pointer: Pointer = pointer.cast();
    // SAFETY: the caller's promise.
    memory::given_back(Owner::Indexes, unsafe { bytes(pointer) });
    // SAFETY: the caller's promise; `level` says as what it was allocated.
    unsafe {
        if (*pointer).level == 0 {
            drop(Box::from_raw(pointer.cast::<Leaf>()));
        } else {
            drop(Box::from_raw(pointer.cast::<Inner>()));
        }
    }
}

/// Asks the processor for the beginning of a node, ahead of its use.
#[inline(always)]
pub(super) fn prefetch(pointer: Pointer, lines: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..lines {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is a hint: it never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.cast::<i8>().wrapping_add(line * 64)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (pointer, lines);
}
