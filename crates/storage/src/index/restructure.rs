//! Splitting full nodes and merging sparse ones.
//!
//! Both latch the parent (or the tree, for the root) and then nodes of the level below from left to
//! right. A split moves pairs to a new right neighbour; a merge moves those of the right one of two
//! children of the same parent to the left one and unlinks the right one. So the place where a node
//! begins stays what it was when the node was made.

use freshet_base::sync::{Backoff, Ordering};

use super::{
    BTree,
    contents::Contents,
    key::{OwnedPlace, Place},
    latch::Latched,
    node::{self, FANOUT, Header, Inner, Leaf, Node, Pointer},
    page::{Page, Room},
};
use crate::reclaim::Guard;

/// Insertions in a row, each right behind the one before, that make a run.
const RUN: u32 = 2;

/// Where to cut a page, and where the pair that did not fit will go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// The first pair of the right page; the count, to leave it empty.
    at: usize,
    /// On which side of the cut the new pair belongs, when it belongs exactly there.
    pending_goes_right: bool,
}

/// Pages are cut in the middle, except where keys arrive in ascending order: there, what is left of
/// the arriving keys stays together, because nothing more will arrive in it.
fn choose_cut(contents: &Contents, pending: usize, run: u32) -> Cut {
    let count = contents.len();
    if run >= RUN && pending > 0 {
        // With little behind the run, that little moves on with it; with more, the left page
        // is filled up first.
        let behind = count - pending;
        return Cut { at: pending, pending_goes_right: behind * 10 < count };
    }
    let (prefix, all) = contents.layout(0..count);
    let half = all / 2;
    let mut words = 0;
    let mut at = 0;
    while at + 1 < count && words < half {
        words += contents.pair_words(at, prefix);
        at += 1;
    }
    Cut { at: at.max(1), pending_goes_right: true }
}

impl Leaf {
    /// Whether merging it with a neighbour is worth a try now. Under the latch.
    pub(super) fn is_sparse(&self) -> bool {
        let count = self.page.shape().count;
        // Not after each removal: neighbours may be full.
        count == 0 || count.is_multiple_of(8) && self.page.live_words() <= self.page.size() / 4
    }
}

impl<const N: usize> Page<N> {
    /// The size of its page, in words.
    pub(super) const fn size(&self) -> usize {
        N
    }
}

/// A latched parent with the child in question; `parent` is `None` for the root.
struct Above<'g> {
    parent: Option<(&'g Inner, usize)>,
    latched: Latched<'g>,
}

impl BTree {
    /// Splits the leaf to which `place` belongs, unless it has room by now. The caller tries its
    /// insertion again.
    #[cold]
    pub(super) fn make_room(&self, guard: &Guard<'_>, place: Place<'_>) {
        // `None` means that somebody was faster or that the parent was split first: the caller
        // comes again if need be.
        let _ = self.split_leaf(guard, place);
    }

    /// Latches what is above the node of `level` to which `place` belongs; `None` when the tree is
    /// not that high.
    fn latch_above<'g>(&'g self, guard: &'g Guard<'_>, place: Place<'_>, level: u32) -> Option<(Above<'g>, Pointer)> {
        let mut backoff = Backoff::new();
        loop {
            let location = self.locate(guard, place, level)?;
            let latched = match location.parent {
                Some((inner, version, _)) => inner.header.latch.upgrade(version),
                None => self.latch.upgrade(location.root_version),
            };
            if let Some(latched) = latched {
                let parent = location.parent.map(|(inner, _, index)| (inner, index));
                return Some((Above { parent, latched }, location.node));
            }
            backoff.pause();
        }
    }

    fn split_leaf(&self, guard: &Guard<'_>, place: Place<'_>) -> Option<()> {
        let (above, pointer) = self.latch_above(guard, place, 0)?;
        // SAFETY: a child of a latched node (or the root of the latched tree) is linked.
        let Node::Leaf(leaf) = (unsafe { Node::at(pointer) }) else { return None };
        let mut latched = lock_linked(&leaf.header);
        if leaf.page.room(place.key) != Room::None {
            return None;
        }
        let contents = leaf.page.contents();
        let pending = leaf.page.find(place).index;
        let run = leaf.page.run_at(pending);
        let cut = choose_cut(&contents, pending, run);
        let mut lower = contents.place(cut.at - 1);
        let mut upper = if cut.at < contents.len() { contents.place(cut.at) } else { place };
        if pending == cut.at {
            if cut.pending_goes_right { upper = place } else { lower = place }
        }
        let separator = OwnedPlace::between(lower, upper);
        if !has_room_for(&above, &separator) {
            drop(latched);
            drop(above);
            return self.split_inner(guard, place, 1, separator.as_place());
        }
        latched.change();
        let right = Leaf::allocate();
        // SAFETY: just allocated, and linked only below.
        let new = unsafe { right.as_ref() };
        new.page.rewrite(&contents, cut.at..contents.len());
        new.note_removed(leaf.removed());
        // Relaxed: published by the release store of `leaf.next` and of the parent's child.
        new.next.store(leaf.next.load(Ordering::Relaxed), Ordering::Relaxed);
        leaf.page.rewrite(&contents, 0..cut.at);
        if pending == cut.at && run >= RUN {
            if cut.pending_goes_right { new.page.expect_at(0, run) } else { leaf.page.expect_at(cut.at, run) }
        }
        // Release: pairs with the acquire loads of those who walk along the leaves.
        leaf.next.store(right.as_ptr().cast(), Ordering::Release);
        self.attach(above, pointer, right.as_ptr().cast(), &separator, 1);
        Some(())
    }

    /// Splits the inner node of `level` to which `place` belongs, unless it has room for `pending`
    /// by now.
    fn split_inner(&self, guard: &Guard<'_>, place: Place<'_>, level: u32, pending: Place<'_>) -> Option<()> {
        let (above, pointer) = self.latch_above(guard, place, level)?;
        // SAFETY: as in `split_leaf`.
        let Node::Inner(inner) = (unsafe { Node::at(pointer) }) else { return None };
        let mut latched = lock_linked(&inner.header);
        if inner.has_room(pending) {
            return None;
        }
        let contents = inner.page.contents();
        let count = contents.len();
        let at = inner.page.find(pending).index;
        let run = inner.page.run_at(at);
        // The separator at `middle` moves up; it has neighbours, or in a run at least left ones.
        let middle = if run >= RUN { at.clamp(1, count - 1) } else { count / 2 };
        let separator = OwnedPlace { key: contents.key(middle).to_vec(), rid: contents.rid(middle) };
        if !has_room_for(&above, &separator) {
            drop(latched);
            drop(above);
            return self.split_inner(guard, place, level + 1, separator.as_place());
        }
        latched.change();
        let right = Inner::allocate(level);
        // SAFETY: just allocated, and linked only below.
        let new = unsafe { right.as_ref() };
        new.page.rewrite(&contents, middle + 1..count);
        for (index, child) in (middle + 1..=count).enumerate() {
            new.set_child(index, inner.child(child));
        }
        inner.page.rewrite(&contents, 0..middle);
        for index in middle + 1..=count {
            inner.set_child(index, std::ptr::null_mut());
        }
        if run >= RUN {
            if at > middle { new.page.expect_at(at - middle - 1, run) } else { inner.page.expect_at(at, run) }
        }
        self.attach(above, pointer, right.as_ptr().cast(), &separator, level + 1);
        Some(())
    }

    /// Hangs `right` behind its left neighbour.
    fn attach(&self, mut above: Above<'_>, left: Pointer, right: Pointer, separator: &OwnedPlace, level: u32) {
        above.latched.change();
        match above.parent {
            Some((parent, index)) => {
                let len = parent.len();
                let room = parent.page.room(&separator.key);
                parent.page.insert(index, &separator.key, separator.rid, room);
                parent.insert_child(index + 1, len, right);
            }
            None => {
                let root = Inner::allocate(level);
                // SAFETY: just allocated, and published only by `set_root`.
                let new = unsafe { root.as_ref() };
                let mut contents = Contents::default();
                contents.push(separator.as_place());
                new.page.rewrite(&contents, 0..1);
                new.set_child(0, left);
                new.set_child(1, right);
                self.set_root(root.as_ptr().cast());
            }
        }
    }

    /// Merges the node of `level` to which `place` belongs with a neighbour, if that gives one that
    /// is not too full; then looks at the level above.
    #[cold]
    pub(super) fn shrink(&self, guard: &Guard<'_>, place: Place<'_>, mut level: u32) {
        while self.shrink_level(guard, place, level).unwrap_or(false) {
            level += 1;
        }
    }

    /// Whether the level above has become sparse by it; `None` when the tree is not that high.
    fn shrink_level(&self, guard: &Guard<'_>, place: Place<'_>, level: u32) -> Option<bool> {
        let (mut above, pointer) = self.latch_above(guard, place, level)?;
        let Some((parent, index)) = above.parent else {
            self.lower_root(guard, above.latched, pointer);
            return Some(false);
        };
        let len = parent.len();
        for left in [index.wrapping_sub(1), index] {
            if left == usize::MAX || left + 1 >= len {
                continue;
            }
            let right = parent.child(left + 1);
            // SAFETY: children of a latched node are linked.
            let merged = match unsafe { (Node::at(parent.child(left)), Node::at(right)) } {
                (Node::Leaf(left), Node::Leaf(right)) => merge_leaves(left, right),
                (Node::Inner(node), Node::Inner(right)) => {
                    let (key, rid) = parent.page.pair(left);
                    merge_inners(node, right, Place::of(&key, rid))
                }
                _ => unreachable!("neighbours have the same level"),
            };
            if merged {
                above.latched.change();
                parent.page.remove(left);
                parent.remove_child(left + 1, len);
                let sparse = parent.len() <= FANOUT / 4;
                drop(above);
                // SAFETY: unlinked from its parent, and if it is a leaf from its left neighbour,
                // just now and by us only.
                unsafe { guard.retire(right.cast(), node::bytes(right), node::free) };
                return Some(sparse);
            }
        }
        Some(false)
    }

    /// Makes the only child of the root the root, for as long as it has only one.
    fn lower_root(&self, guard: &Guard<'_>, mut tree: Latched<'_>, mut pointer: Pointer) {
        loop {
            // SAFETY: the root of a latched tree is linked.
            let Node::Inner(root) = (unsafe { Node::at(pointer) }) else { return };
            let mut latched = lock_linked(&root.header);
            if root.len() > 1 {
                return;
            }
            let child = root.child(0);
            tree.change();
            latched.retire();
            self.set_root(child);
            drop(latched);
            // SAFETY: unlinked just now and by us only; who comes across it finds it obsolete.
            unsafe { guard.retire(pointer.cast(), node::bytes(pointer), node::free) };
            pointer = child;
        }
    }
}

/// Whether the node above can take one more child.
fn has_room_for(above: &Above<'_>, separator: &OwnedPlace) -> bool {
    above.parent.is_none_or(|(parent, _)| parent.has_room(separator.as_place()))
}

impl Inner {
    /// Whether it can take one more child, beginning at `separator`. Under the latch.
    fn has_room(&self, separator: Place<'_>) -> bool {
        self.len() < FANOUT && self.page.room(separator.key) != Room::None
    }
}

/// Latches a node whose parent is latched.
fn lock_linked(header: &Header) -> Latched<'_> {
    header.latch.lock().unwrap_or_else(|| unreachable!("only who holds the parent makes a node obsolete"))
}

/// Moves what is in `right` to `left`, if they fit in one leaf with something to spare.
fn merge_leaves(left: &Leaf, right: &Leaf) -> bool {
    let [mut left_latched, mut right_latched] = [lock_linked(&left.header), lock_linked(&right.header)];
    let mut contents = left.page.contents();
    let counts = (contents.len(), right.page.shape().count);
    contents.append(&right.page.contents());
    let all = 0..contents.len();
    let limit = if counts.0 == 0 || counts.1 == 0 { left.page.size() } else { left.page.size() / 4 * 3 };
    if contents.words(all.clone()) > limit {
        return false;
    }
    left_latched.change();
    right_latched.retire();
    left.note_removed(right.removed());
    if counts.1 > 0 {
        left.page.rewrite(&contents, all);
        let (last, run) = right.page.run();
        left.page.expect_at(counts.0 + last as usize + 1, run);
    }
    // Release: as in `split_leaf`.
    left.next.store(right.next.load(Ordering::Relaxed), Ordering::Release);
    true
}

/// As [`merge_leaves`], of inner nodes with the separator between them.
fn merge_inners(left: &Inner, right: &Inner, separator: Place<'_>) -> bool {
    let [mut left_latched, mut right_latched] = [lock_linked(&left.header), lock_linked(&right.header)];
    let lens = (left.len(), right.len());
    let mut contents = left.page.contents();
    contents.push(separator);
    contents.append(&right.page.contents());
    let all = 0..contents.len();
    let (children, words) = if lens.0 == 1 || lens.1 == 1 {
        (FANOUT, left.page.size())
    } else {
        (FANOUT / 4 * 3, left.page.size() / 4 * 3)
    };
    if lens.0 + lens.1 > children || contents.words(all.clone()) > words {
        return false;
    }
    left_latched.change();
    right_latched.retire();
    left.page.rewrite(&contents, all);
    for index in 0..lens.1 {
        left.set_child(lens.0 + index, right.child(index));
    }
    true
}
