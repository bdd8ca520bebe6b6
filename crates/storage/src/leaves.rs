//! Leaves that a transaction has read, remembered until it certifies.

use std::{
    cell::{Cell, RefCell},
    ops::ControlFlow,
    sync::Arc,
};

use freshet_base::{Fid, Lsn, Rid};

use crate::{
    catalog::Catalog,
    index::{BTree, Direction, LeafVersion, Range, ScanBuffer},
    reclaim::{Guard, Pin},
};

/// Reads indexes of one catalog and remembers the [`LeafVersion`]s that held what was read. It does
/// not borrow the guard, so that it can live beside it; it checks instead that it is used under one
/// pin at a time.
#[derive(Debug)]
pub struct LeafSet {
    /// Where the indexes are found.
    catalog: Arc<Catalog>,
    pin: Cell<Option<Pin>>,
    leaves: RefCell<Vec<LeafVersion<'static>>>,
    /// The largest deletion that one of the leaves may be short of.
    removed: Cell<Lsn>,
}

impl LeafSet {
    /// An empty set.
    pub fn new(catalog: &Arc<Catalog>) -> Self {
        Self {
            catalog: Arc::clone(catalog),
            pin: Cell::new(None),
            leaves: RefCell::new(Vec::new()),
            removed: Cell::new(Lsn::ZERO),
        }
    }

    fn index<'g>(&self, guard: &'g Guard<'_>, fid: Fid, index: usize) -> Option<&'g BTree> {
        Some(self.catalog.get(guard, fid)?.content(guard)?.indexes(guard).get(index)?.tree())
    }

    fn push(&self, guard: &Guard<'_>, leaf: LeafVersion<'_>) {
        let pin = guard.pin();
        let first = self.pin.get().unwrap_or(pin);
        assert_eq!(first, pin, "leaves of one pin");
        self.pin.set(Some(pin));
        self.removed.set(self.removed.get().max(leaf.removed()));
        // SAFETY: only the lifetime changes. A leaf lives, once it or its index was unlinked, as
        // long as any pin under which it was reachable (this function is called with leaves from
        // `index` only); `unchanged` looks at it under this pin only.
        let leaf = unsafe { std::mem::transmute::<LeafVersion<'_>, LeafVersion<'static>>(leaf) };
        self.leaves.borrow_mut().push(leaf);
    }

    /// As [`BTree::get`], remembering the leaves. Finds nothing where there is no such index.
    ///
    /// # Panics
    /// When the set holds leaves of another pin.
    pub fn get(
        &self,
        guard: &Guard<'_>,
        fid: Fid,
        index: usize,
        key: &[u8],
        visit: impl FnMut(Rid) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(tree) = self.index(guard, fid, index) else { return ControlFlow::Continue(()) };
        tree.get_certified(guard, key, |leaf| self.push(guard, leaf), visit)
    }

    /// As [`BTree::scan`], remembering the leaves. Finds nothing where there is no such index.
    ///
    /// # Panics
    /// When the set holds leaves of another pin.
    #[expect(clippy::too_many_arguments, reason = "a scan, and what notes its leaves")]
    pub fn scan(
        &self,
        guard: &Guard<'_>,
        fid: Fid,
        index: usize,
        range: Range<'_>,
        direction: Direction,
        buffer: &mut ScanBuffer,
        visit: impl FnMut(&[u8], Rid) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(tree) = self.index(guard, fid, index) else { return ControlFlow::Continue(()) };
        tree.scan(guard, range, direction, buffer, |leaf| self.push(guard, leaf), visit)
    }

    /// Whether nothing has come into leaf number `leaf`, or gone from it, since it was read.
    ///
    /// # Panics
    /// When the set holds leaves of another pin, or not as many.
    #[inline]
    pub fn unchanged(&self, guard: &Guard<'_>, leaf: usize) -> bool {
        assert_eq!(self.pin.get(), Some(guard.pin()), "leaves are looked at under the pin that they were read under");
        self.leaves.borrow()[leaf].unchanged()
    }

    /// The largest [`LeafVersion::removed`] of the leaves that were read since this was asked last.
    pub fn take_removed(&self) -> Lsn {
        self.removed.replace(Lsn::ZERO)
    }

    /// How many leaves the set has.
    pub fn len(&self) -> usize {
        self.leaves.borrow().len()
    }

    /// Whether the set has no leaf.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all but the first `length`.
    pub fn truncate(&self, length: usize) {
        self.leaves.borrow_mut().truncate(length);
    }

    /// Forgets all: before the pin ends.
    pub fn clear(&self) {
        self.leaves.borrow_mut().clear();
        self.pin.set(None);
    }
}
