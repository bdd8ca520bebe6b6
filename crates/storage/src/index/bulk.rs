//! Building an index from pairs that are sorted already, bottom up.
//!
//! The pairs may come in several stretches, one behind the other in the order of the index: a
//! [`BulkPart`] for each, made by any thread. A part is the leaves of its stretch; the levels
//! above, a hundredth of the work, are built over all of them at the end.

use std::mem;

use freshet_base::{Rid, sync::Ordering};

use super::{
    BTree, KeyTooLong, MAX_KEY,
    contents::Contents,
    free_all,
    key::{OwnedPlace, Place, common_prefix},
    node::{self, FANOUT, Inner, Leaf, Node, Pointer},
    page::{HEADER, PAIR, prefix_words, rest_words},
};
use crate::reclaim::Guard;

/// Why an index was not loaded; it is what it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BulkLoadError {
    /// There are pairs in it.
    #[error("the index is not empty: load into a new one, or insert pair by pair")]
    NotEmpty,
    /// A pair is not above the one before.
    #[error("pair {position} is not above the one before it: sort by key and record id, without duplicates")]
    OutOfOrder {
        /// The place of the pair among those that were loaded, from 0.
        position: u64,
    },
    /// A key cannot be indexed.
    #[error(transparent)]
    KeyTooLong(#[from] KeyTooLong),
}

/// Pairs (or separators) that wait for their node.
struct Waiting {
    contents: Contents,
    /// Words that they take at most: with all that they have in common as prefix.
    words: usize,
    prefix: usize,
}

impl Waiting {
    fn new() -> Self {
        Self { contents: Contents::default(), words: HEADER, prefix: 0 }
    }

    fn len(&self) -> usize {
        self.contents.len()
    }

    /// Words with one more pair.
    fn words_with(&self, key: &[u8]) -> usize {
        if self.len() == 0 {
            return HEADER + prefix_words(key.len()) + PAIR;
        }
        let prefix = common_prefix(self.contents.key(0), key);
        let rest = PAIR + rest_words(key.len() - prefix);
        if prefix == self.prefix {
            return self.words + rest;
        }
        let waiting: usize = (0..self.len()).map(|i| self.contents.pair_words(i, prefix)).sum();
        HEADER + prefix_words(prefix) + waiting + rest
    }

    fn push(&mut self, place: Place<'_>, words: usize) {
        self.contents.push(place);
        self.prefix = self.contents.common(0..self.len());
        self.words = words;
    }

    fn clear(&mut self) {
        self.contents.clear();
        self.words = HEADER;
        self.prefix = 0;
    }
}

/// The leaves of a stretch of an index that is to be loaded ([`BTree::bulk_load`]).
#[derive(Debug, Default)]
pub struct BulkPart {
    leaves: Vec<Pointer>,
    /// Between each leaf and the next.
    separators: Vec<OwnedPlace>,
    first: OwnedPlace,
    last: OwnedPlace,
    pairs: u64,
}

// SAFETY: nobody else knows of the leaves before the part is loaded, and any thread may free them.
unsafe impl Send for BulkPart {}

impl Drop for BulkPart {
    fn drop(&mut self) {
        for leaf in self.leaves.drain(..) {
            // SAFETY: made here, never published: loading takes them out.
            unsafe { free_all(leaf) };
        }
    }
}

impl BulkPart {
    /// Makes the leaves for pairs in ascending order, each `fill_percent` full (50 to 100; 90
    /// leaves some room for what comes later).
    ///
    /// # Errors
    /// [`BulkLoadError::OutOfOrder`] and [`BulkLoadError::KeyTooLong`].
    ///
    /// # Panics
    /// When a record id is above [`Rid::MAX`].
    pub fn new<K: AsRef<[u8]>>(
        sorted: impl IntoIterator<Item = (K, Rid)>,
        fill_percent: u8,
    ) -> Result<Self, BulkLoadError> {
        let mut part = Self::default();
        let mut waiting = Waiting::new();
        let full = Leaf::WORDS * fill(fill_percent) / 100;
        for (key, rid) in sorted {
            let key = key.as_ref();
            if key.len() > MAX_KEY {
                return Err(KeyTooLong { length: key.len() }.into());
            }
            assert!(rid <= Rid::MAX, "record id {} has more than {} bits", rid.0, Rid::BITS);
            let place = Place::of(key, rid);
            let mut words = waiting.words_with(key);
            match waiting.len() {
                0 => part.first = OwnedPlace { key: key.to_vec(), rid: rid.0 },
                count => {
                    let last = waiting.contents.place(count - 1);
                    if last.compare(&place).is_ge() {
                        return Err(BulkLoadError::OutOfOrder { position: part.pairs });
                    }
                    if count > 1 && words > full || words > Leaf::WORDS {
                        part.separators.push(OwnedPlace::between(last, place));
                        part.finish_leaf(&mut waiting);
                        words = waiting.words_with(key);
                    }
                }
            }
            waiting.push(place, words);
            part.pairs += 1;
        }
        if let Some(last) = waiting.len().checked_sub(1) {
            let last = waiting.contents.place(last);
            part.last = OwnedPlace { key: last.key.to_vec(), rid: last.rid };
            part.finish_leaf(&mut waiting);
        }
        Ok(part)
    }

    /// How many pairs are in it.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Makes a leaf of what waits.
    fn finish_leaf(&mut self, waiting: &mut Waiting) {
        let leaf = Leaf::allocate();
        // SAFETY: just allocated, private until the root is set.
        unsafe { leaf.as_ref() }.page.rewrite(&waiting.contents, 0..waiting.len());
        let leaf: Pointer = leaf.as_ptr().cast();
        if let Some(before) = self.leaves.last() {
            link(*before, leaf);
        }
        self.leaves.push(leaf);
        waiting.clear();
    }
}

fn fill(percent: u8) -> usize {
    usize::from(percent.clamp(50, 100))
}

/// Makes `next` the leaf behind `leaf`; both are private.
fn link(leaf: Pointer, next: Pointer) {
    // SAFETY: allocated in this module, and not freed: the part that has it in its list frees it.
    let Node::Leaf(leaf) = (unsafe { Node::at(leaf) }) else { unreachable!("it is a leaf") };
    // Relaxed: published with the root.
    leaf.next.store(next, Ordering::Relaxed);
}

/// A level above the leaves under construction: separators that wait for their node, and the
/// children left of the first and right of each.
struct Level {
    waiting: Waiting,
    children: Vec<Pointer>,
}

/// The levels above the leaves. Frees all nodes when it is dropped unfinished.
struct Upper {
    fill_percent: usize,
    /// The lowest first. Nodes that no inner node leads to yet are `children` of some level; all
    /// others hang below them.
    levels: Vec<Level>,
}

impl Upper {
    /// Adds a finished node below level `number`; what comes after it begins at `separator`.
    fn add_child(&mut self, number: usize, child: Pointer, separator: &OwnedPlace) {
        if self.levels.len() == number {
            self.levels.push(Level { waiting: Waiting::new(), children: Vec::new() });
        }
        let level = &mut self.levels[number];
        level.children.push(child);
        let words = level.waiting.words_with(&separator.key);
        let full =
            level.children.len() * 100 >= FANOUT * self.fill_percent || words > Inner::WORDS * self.fill_percent / 100;
        if full && level.waiting.len() > 0 {
            // Its last child's right end is the node's.
            let inner = self.finish_inner(number);
            self.add_child(number + 1, inner, separator);
        } else {
            level.waiting.push(separator.as_place(), words);
        }
    }

    /// Makes an inner node of the children and separators that wait; there is one child more than
    /// separators.
    fn finish_inner(&mut self, number: usize) -> Pointer {
        let inner = Inner::allocate(number as u32 + 1);
        // SAFETY: just allocated, private until the root is set.
        let new = unsafe { inner.as_ref() };
        let level = &mut self.levels[number];
        debug_assert_eq!(level.children.len(), level.waiting.len() + 1);
        new.page.rewrite(&level.waiting.contents, 0..level.waiting.len());
        for (index, child) in level.children.drain(..).enumerate() {
            new.set_child(index, child);
        }
        level.waiting.clear();
        inner.as_ptr().cast()
    }

    /// The root, over the last leaf and everything before it.
    fn finish(&mut self, last: Pointer) -> Pointer {
        let mut pointer = last;
        for number in 0..self.levels.len() {
            self.levels[number].children.push(pointer);
            pointer = self.finish_inner(number);
        }
        pointer
    }
}

impl Drop for Upper {
    fn drop(&mut self) {
        for child in self.levels.iter().flat_map(|level| &level.children) {
            // SAFETY: made in this module, never published: `finish` leaves no children behind.
            unsafe { free_all(*child) };
        }
    }
}

/// Links the leaves of parts (none is empty, and each is above the one before), and builds
/// the levels above them.
fn assemble(parts: Vec<BulkPart>, fill_percent: u8) -> Unpublished {
    let mut upper = Upper { fill_percent: fill(fill_percent), levels: Vec::new() };
    // The last leaf so far, and the last pair in it.
    let mut before: Option<(Pointer, OwnedPlace)> = None;
    for mut part in parts {
        let mut leaves = mem::take(&mut part.leaves).into_iter();
        let mut leaf = leaves.next().expect("no part is empty");
        if let Some((last_leaf, last)) = before {
            link(last_leaf, leaf);
            upper.add_child(0, last_leaf, &OwnedPlace::between(last.as_place(), part.first.as_place()));
        }
        for (next, separator) in leaves.zip(&part.separators) {
            upper.add_child(0, mem::replace(&mut leaf, next), separator);
        }
        before = Some((leaf, mem::take(&mut part.last)));
    }
    Unpublished(match before {
        Some((last_leaf, _)) => upper.finish(last_leaf),
        None => Leaf::allocate().as_ptr().cast(),
    })
}

/// A tree that nobody else knows of.
struct Unpublished(Pointer);

impl Unpublished {
    fn publish(self) -> Pointer {
        let root = self.0;
        mem::forget(self);
        root
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        // SAFETY: made in this module, and not published.
        unsafe { free_all(self.0) };
    }
}

impl BTree {
    /// Fills an empty index with pairs in ascending order, also from part to part, leaving each
    /// node `fill_percent` full (50 to 100; 90 leaves some room for what comes later), and returns
    /// how many there were. Nobody sees any of them before the end, and then all.
    ///
    /// # Errors
    /// [`BulkLoadError`]; the index is then what it was. It counts as not empty also when somebody
    /// inserts while it is loaded. When a part is not above the one before, the position is that of
    /// its first pair.
    ///
    /// # Panics
    /// When a record id is above [`Rid::MAX`].
    pub fn bulk_load(
        &self,
        guard: &Guard<'_>,
        mut parts: Vec<BulkPart>,
        fill_percent: u8,
    ) -> Result<u64, BulkLoadError> {
        parts.retain(|part| part.pairs > 0);
        let mut position = 0;
        for pair in parts.windows(2) {
            position += pair[0].pairs;
            if pair[0].last.as_place().compare(&pair[1].first.as_place()).is_ge() {
                return Err(BulkLoadError::OutOfOrder { position });
            }
        }
        let pairs = parts.iter().map(|part| part.pairs).sum();
        let new = assemble(parts, fill_percent);
        let Some(mut tree) = self.latch.lock() else { unreachable!("a tree is never obsolete") };
        let old = self.root();
        // SAFETY: the root of a latched tree is linked.
        let Node::Leaf(leaf) = (unsafe { Node::at(old) }) else { return Err(BulkLoadError::NotEmpty) };
        let Some(mut latched) = leaf.header.latch.lock() else { unreachable!("a linked node is not obsolete") };
        if leaf.page.shape().count > 0 {
            return Err(BulkLoadError::NotEmpty);
        }
        tree.change();
        latched.retire();
        self.set_root(new.publish());
        drop((latched, tree));
        // SAFETY: unlinked just now and by us only.
        unsafe { guard.retire(old.cast(), node::bytes(old), node::free) };
        Ok(pairs)
    }
}
