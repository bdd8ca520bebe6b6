//! The ordered index: a B+-tree with optimistic lock coupling (Leis, Haubenschild, Neumann:
//! "Optimistic Lock Coupling", 2019) from byte strings to record ids.
//!
//! It holds (key, rid) pairs, each at most once, in the order of the keys' bytes (a key
//! before those that it is a prefix of) and of record ids within a key.
//!
//! A pair is a hint: every reader that comes through an index checks that the row still has the
//! key. So a pair may be left over from an aborted insertion, from a record whose id was used
//! again, or from a log that was cut, and replay may enter it twice. A unique index is an ordinary
//! index; the inserter looks, under the leaf's latch, at the records behind the pairs with the same
//! key.
//!
//! | file | what |
//! |---|---|
//! | `key` | places in the order |
//! | `latch` | the latch of a node, which is its version |
//! | `page`, `contents` | sorted pairs within a node, and taken out of it |
//! | `node` | leaves and inner nodes |
//! | `descend` | from the root to a leaf |
//! | `read`, `scan` | exact keys, ranges both ways |
//! | `write` | insert and remove |
//! | `restructure` | split and merge |
//! | `bulk` | building a tree from sorted pairs |
//! | `statistics` | sizes |
//!
//! # Access protocol
//!
//! | field | written by | read by |
//! |---|---|---|
//! | a node's page, children, `next` | the holder of the node's latch | anyone, optimistically: validate before use |
//! | `BTree::root` | the holder of `BTree::latch` | anyone, optimistically |
//! | `Header::level` | the thread that allocates the node | anyone |
//!
//! Waiting for latches goes downwards and to the right only: a thread that waits for one holds
//! latches of nodes above it or left of it on its level. A reader holds none, and none is held
//! while a visitor runs.
//!
//! What stays true, and who keeps it:
//!
//! 1. The place where a leaf begins never changes; the place where it ends changes only under its
//!    latch, with its version (`restructure`: a split moves pairs to a new right neighbour, a merge
//!    moves the right neighbour's to the left one, which makes the right one obsolete).
//! 2. So does its `next`. Leaves whose versions are unchanged and that were found to follow one
//!    another still do, and between the first and the last of them nothing was inserted: phantom
//!    protection.
//! 3. A node is retired after it was unlinked from its parent and its left neighbour, and freed
//!    when every guard that was there before is gone.

mod bulk;
mod contents;
mod descend;
mod key;
mod latch;
mod node;
mod page;
mod read;
mod restructure;
mod scan;
mod statistics;
mod write;

use std::marker::PhantomData;

pub use bulk::{BulkLoadError, BulkPart};
use freshet_base::{
    Lsn,
    sync::{AtomicPtr, Ordering},
};
use latch::VersionLatch;
use node::{Leaf, Node, Pointer};
pub use scan::{Direction, Range, ScanBuffer};
pub use statistics::Statistics;
pub use write::InsertError;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 512;

/// A key is longer than [`MAX_KEY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an index key of {length} bytes is longer than the {MAX_KEY} that an index can hold: index fewer or shorter columns"
)]
pub struct KeyTooLong {
    /// How long the key is.
    pub length: usize,
}

/// An ordered index. All methods may be called by any number of threads at once; readers never
/// block writers and take no latches.
#[derive(Debug)]
pub struct BTree {
    /// Guards `root`.
    latch: VersionLatch,
    root: AtomicPtr<node::Header>,
    /// The tree owns its nodes.
    nodes: PhantomData<Box<Leaf>>,
}

/// A leaf as it was when it was read: evidence for certification.
///
/// While [`LeafVersion::unchanged`] says yes for every leaf that a read reported, repeating that
/// read finds the same pairs.
#[derive(Clone, Copy, Debug)]
pub struct LeafVersion<'g> {
    latch: &'g VersionLatch,
    version: u64,
    removed: Lsn,
}

impl LeafVersion<'_> {
    /// A reader that finds nothing in the leaf, or less than there once was, depends on no deletion
    /// with a larger LSN: the pairs here of records that were deleted later are still there, and
    /// lead to their tombstones.
    #[inline]
    pub fn removed(&self) -> Lsn {
        self.removed
    }

    /// Whether nothing was inserted into the leaf, removed from it or moved to or from it since it
    /// was read, and nobody is about to. A "no" may be a false alarm: repeat the read to be sure.
    ///
    /// Insertions that happen before this call (in the sense of the memory model: the caller has
    /// seen the LSN of the transaction that made them, say) are always noticed.
    #[inline]
    pub fn unchanged(&self) -> bool {
        self.latch.is(self.version)
    }
}

impl BTree {
    /// An empty index.
    pub fn new() -> Self {
        Self { latch: VersionLatch::new(), root: AtomicPtr::new(Leaf::allocate().as_ptr().cast()), nodes: PhantomData }
    }

    #[inline(always)]
    fn root(&self) -> Pointer {
        // Acquire: pairs with the release store in `set_root`; the root is initialised.
        self.root.load(Ordering::Acquire)
    }

    /// Replaces the root, under the tree's latch.
    fn set_root(&self, root: Pointer) {
        // Release: pairs with the load in `root`.
        self.root.store(root, Ordering::Release);
    }
}

impl Default for BTree {
    fn default() -> Self {
        Self::new()
    }
}

/// Frees a node and everything below it.
///
/// # Safety
/// Nobody else knows of any of these nodes.
unsafe fn free_all(pointer: Pointer) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Node::Inner(inner) = Node::at(pointer) {
            for child in inner.children() {
                free_all(child);
            }
        }
        node::free(pointer.cast());
    }
}

impl Drop for BTree {
    fn drop(&mut self) {
        // SAFETY: exclusive access; whatever was unlinked before is not reachable from the root,
        // and guards (which borrow the tree in every method that hands out references) are of no
        // concern to linked nodes any more.
        unsafe { free_all(self.root()) };
    }
}
