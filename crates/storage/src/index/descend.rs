//! The way from the root to a leaf, with optimistic lock coupling.
//!
//! A pointer is followed only after the node that it was read from has been
//! validated, and the reading of the child's version is covered by one more
//! validation of the parent: when the child's version was read, the child was still
//! where the parent said.

use freshet_base::sync::Backoff;

use super::{
    BTree,
    key::{OwnedPlace, Place},
    latch::VersionLatch,
    node::{Inner, Leaf, Node, Pointer, prefetch},
};
use crate::reclaim::Guard;

/// Cache lines of a node that are asked for as soon as it is known.
const PREFETCHED_LINES: usize = 10;

/// A leaf at a version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<'g> {
    pub(super) leaf: &'g Leaf,
    pub(super) version: u64,
    /// Whether the first place right of the leaf has the key that was searched: only then may pairs
    /// of that key go on in the next leaf.
    pub(super) spills: bool,
}

/// Where a node hangs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location<'g> {
    pub(super) node: Pointer,
    /// The parent, its version, and which child the node is; `None` for the root.
    pub(super) parent: Option<(&'g Inner, u64, usize)>,
    /// Version of the tree's own latch; matters for the root.
    pub(super) root_version: u64,
}

impl BTree {
    /// The leaf to which `place` belongs.
    #[inline(always)]
    pub(super) fn descend<'g>(&'g self, guard: &'g Guard<'_>, place: Place<'_>) -> Spot<'g> {
        match self.try_descend(guard, place) {
            Some(spot) => spot,
            None => self.descend_again(guard, place),
        }
    }

    #[cold]
    fn descend_again<'g>(&'g self, guard: &'g Guard<'_>, place: Place<'_>) -> Spot<'g> {
        let mut backoff = Backoff::new();
        loop {
            backoff.pause();
            if let Some(spot) = self.try_descend(guard, place) {
                return spot;
            }
        }
    }

    #[inline(always)]
    fn try_descend<'g>(&'g self, _guard: &'g Guard<'_>, place: Place<'_>) -> Option<Spot<'g>> {
        // Children right of a separator hold what is at or above it: search the first separator
        // above the place.
        let above = Place { key: place.key, rid: place.rid + 1 };
        let (mut parent, mut parent_version, mut pointer) = self.begin()?;
        let mut spills = false;
        loop {
            // SAFETY: read from a node (or the tree) that was validated since: linked after the
            // pin, so not freed before the guard goes, nor before the tree does.
            let node: Node<'g> = unsafe { Node::at(pointer) };
            let version = node.header().latch.read()?;
            if !parent.is(parent_version) {
                return None;
            }
            let inner = match node {
                Node::Leaf(leaf) => return Some(Spot { leaf, version, spills }),
                Node::Inner(inner) => inner,
            };
            let found = inner.page.find(above);
            pointer = inner.child(found.index);
            prefetch(pointer, PREFETCHED_LINES);
            if found.index < found.shape.count {
                spills = found.same_key;
            }
            if !inner.header.latch.is(version) {
                return None;
            }
            (parent, parent_version) = (&inner.header.latch, version);
        }
    }

    /// The root, validated.
    #[inline(always)]
    fn begin(&self) -> Option<(&VersionLatch, u64, Pointer)> {
        let version = self.latch.read()?;
        let root = self.root();
        self.latch.is(version).then_some((&self.latch, version, root))
    }

    /// The leaf that holds what is just below `place` (of the whole tree, when `None`). `fence`
    /// becomes the place where that leaf begins. Returns also whether it begins anywhere: the first
    /// one does not.
    pub(super) fn descend_below<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        place: Option<Place<'_>>,
        fence: &mut OwnedPlace,
    ) -> (Spot<'g>, bool) {
        let mut backoff = Backoff::new();
        loop {
            if let Some(result) = self.try_descend_below(guard, place, fence) {
                return result;
            }
            backoff.pause();
        }
    }

    fn try_descend_below<'g>(
        &'g self,
        _guard: &'g Guard<'_>,
        place: Option<Place<'_>>,
        fence: &mut OwnedPlace,
    ) -> Option<(Spot<'g>, bool)> {
        let (mut parent, mut parent_version, mut pointer) = self.begin()?;
        let mut fenced = false;
        loop {
            // SAFETY: as in `try_descend`.
            let node: Node<'g> = unsafe { Node::at(pointer) };
            let version = node.header().latch.read()?;
            if !parent.is(parent_version) {
                return None;
            }
            let inner = match node {
                Node::Leaf(leaf) => return Some((Spot { leaf, version, spills: false }, fenced)),
                Node::Inner(inner) => inner,
            };
            let shape = inner.page.shape();
            let index = place.map_or(shape.count, |place| inner.page.find(place).index);
            pointer = inner.child(index);
            prefetch(pointer, PREFETCHED_LINES);
            if index > 0 {
                fenced = true;
                fence.key.clear();
                inner.page.copy_prefix(&shape, &mut fence.key);
                inner.page.copy_suffix(&shape, index - 1, &mut fence.key);
                fence.rid = inner.page.rid(&shape, index - 1);
            }
            if !inner.header.latch.is(version) {
                return None;
            }
            (parent, parent_version) = (&inner.header.latch, version);
        }
    }

    /// Where the node of `level` hangs to which `place` belongs; `None` when the tree is not that
    /// high. Never looks at that node's latch.
    pub(super) fn locate<'g>(&'g self, guard: &'g Guard<'_>, place: Place<'_>, level: u32) -> Option<Location<'g>> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(result) = self.locate_with(guard, place, level, VersionLatch::read) {
                return result;
            }
            backoff.pause();
        }
    }

    /// As [`BTree::locate`], for those who hold latches: gives up where it would have to wait.
    pub(super) fn locate_without_waiting<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        place: Place<'_>,
        level: u32,
    ) -> Option<Location<'g>> {
        self.locate_with(guard, place, level, VersionLatch::peek).flatten()
    }

    /// The outer `None` asks for another try.
    fn locate_with<'g>(
        &'g self,
        _guard: &'g Guard<'_>,
        place: Place<'_>,
        level: u32,
        read: impl Fn(&VersionLatch) -> Option<u64>,
    ) -> Option<Option<Location<'g>>> {
        let above = Place { key: place.key, rid: place.rid + 1 };
        let root_version = read(&self.latch)?;
        let mut pointer = self.root();
        if !self.latch.is(root_version) {
            return None;
        }
        let (mut latch, mut latch_version) = (&self.latch, root_version);
        let mut parent = None;
        loop {
            // SAFETY: as in `try_descend`.
            let node: Node<'g> = unsafe { Node::at(pointer) };
            let header = node.header();
            if header.level == level {
                return Some(Some(Location { node: pointer, parent, root_version }));
            }
            let Node::Inner(inner) = node else { return Some(None) };
            if header.level < level {
                return Some(None);
            }
            let version = read(&header.latch)?;
            if !latch.is(latch_version) {
                return None;
            }
            let found = inner.page.find(above);
            pointer = inner.child(found.index);
            if !header.latch.is(version) {
                return None;
            }
            parent = Some((inner, version, found.index));
            (latch, latch_version) = (&header.latch, version);
        }
    }
}
