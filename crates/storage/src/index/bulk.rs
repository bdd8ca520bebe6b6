//! Building an index from pairs that are sorted already, bottom up.

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
        /// Its number, from 0.
        position: u64,
    },
    /// A key cannot be indexed.
    #[error(transparent)]
    KeyTooLong(#[from] KeyTooLong),
}

/// One level under construction: pairs (or separators) that wait for their node, and the nodes that are finished.
struct Level {
    waiting: Contents,
    /// Words that the waiting ones take at most: with all that they have in common as prefix.
    words: usize,
    prefix: usize,
    /// The children left of the first waiting separator and right of each; unused for leaves.
    children: Vec<Pointer>,
}

impl Level {
    fn new() -> Self {
        Self { waiting: Contents::default(), words: HEADER, prefix: 0, children: Vec::new() }
    }

    /// Words with one more pair.
    fn words_with(&self, key: &[u8]) -> usize {
        if self.waiting.len() == 0 {
            return HEADER + prefix_words(key.len()) + PAIR;
        }
        let prefix = common_prefix(self.waiting.key(0), key);
        let rest = PAIR + rest_words(key.len() - prefix);
        if prefix == self.prefix {
            return self.words + rest;
        }
        let waiting: usize = (0..self.waiting.len()).map(|i| self.waiting.pair_words(i, prefix)).sum();
        HEADER + prefix_words(prefix) + waiting + rest
    }

    fn push(&mut self, place: Place<'_>, words: usize) {
        self.waiting.push(place);
        self.prefix = self.waiting.common(0..self.waiting.len());
        self.words = words;
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.words = HEADER;
        self.prefix = 0;
    }
}

/// The tree under construction. Frees its nodes when it is dropped unfinished.
struct Builder {
    fill_percent: usize,
    levels: Vec<Level>,
    last_leaf: Option<Pointer>,
    /// Finished nodes that no inner node leads to yet are `children` of some level; all others hang below them.
    position: u64,
}

impl Builder {
    fn add(&mut self, key: &[u8], rid: Rid) -> Result<(), BulkLoadError> {
        if key.len() > MAX_KEY {
            return Err(KeyTooLong { length: key.len() }.into());
        }
        assert!(rid <= Rid::MAX, "record id {} has more than {} bits", rid.0, Rid::BITS);
        let place = Place::of(key, rid);
        let leaves = &self.levels[0];
        let count = leaves.waiting.len();
        if count > 0 {
            let last = leaves.waiting.place(count - 1);
            if last.compare(&place).is_ge() {
                return Err(BulkLoadError::OutOfOrder { position: self.position });
            }
            let words = leaves.words_with(key);
            let size = Leaf::WORDS;
            if count > 1 && words > size * self.fill_percent / 100 || words > size {
                let separator = OwnedPlace::between(last, place);
                let leaf = self.finish_leaf();
                self.add_child(1, leaf, &separator);
            }
        }
        let words = self.levels[0].words_with(key);
        self.levels[0].push(place, words);
        self.position += 1;
        Ok(())
    }

    /// Makes a leaf of what waits.
    fn finish_leaf(&mut self) -> Pointer {
        let leaf = Leaf::allocate();
        let pointer: Pointer = leaf.as_ptr().cast();
        let waiting = &self.levels[0].waiting;
        // SAFETY: just allocated, private until the root is set.
        unsafe { leaf.as_ref() }.page.rewrite(waiting, 0..waiting.len());
        if let Some(last) = self.last_leaf.replace(pointer) {
            // SAFETY: allocated here before, private.
            let Node::Leaf(last) = (unsafe { Node::at(last) }) else { unreachable!("it is a leaf") };
            // Relaxed: published with the root.
            last.next.store(pointer, Ordering::Relaxed);
        }
        self.levels[0].clear();
        pointer
    }

    /// Adds a finished node of the level below `level`; what comes after it begins at `separator`.
    fn add_child(&mut self, level: usize, child: Pointer, separator: &OwnedPlace) {
        if self.levels.len() == level {
            self.levels.push(Level::new());
        }
        self.levels[level].children.push(child);
        let words = self.levels[level].words_with(&separator.key);
        let full = self.levels[level].children.len() * 100 >= FANOUT * self.fill_percent
            || words > Inner::WORDS * self.fill_percent / 100;
        if full && self.levels[level].waiting.len() > 0 {
            // Its last child's right end is the node's.
            let inner = self.finish_inner(level);
            self.add_child(level + 1, inner, separator);
        } else {
            self.levels[level].push(separator.as_place(), words);
        }
    }

    /// Makes an inner node of the children and separators that wait; there is one child more than separators.
    fn finish_inner(&mut self, level: usize) -> Pointer {
        let inner = Inner::allocate(level as u32);
        // SAFETY: just allocated, private until the root is set.
        let new = unsafe { inner.as_ref() };
        let this = &mut self.levels[level];
        debug_assert_eq!(this.children.len(), this.waiting.len() + 1);
        new.page.rewrite(&this.waiting, 0..this.waiting.len());
        for (index, child) in this.children.drain(..).enumerate() {
            new.set_child(index, child);
        }
        this.clear();
        inner.as_ptr().cast()
    }

    /// The root.
    fn finish(&mut self) -> Pointer {
        let mut pointer = self.finish_leaf();
        for level in 1..self.levels.len() {
            self.levels[level].children.push(pointer);
            pointer = self.finish_inner(level);
        }
        pointer
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        for child in self.levels.iter().flat_map(|level| &level.children) {
            // SAFETY: made here, never published: `finish` leaves no children behind.
            unsafe { free_all(*child) };
        }
    }
}

impl BTree {
    /// Fills an empty index with pairs in ascending order, leaving each node `fill_percent` full (50 to 100; 90 leaves
    /// some room for what comes later), and returns how many there were. Nobody sees any of them
    /// before the end, and then all.
    ///
    /// # Errors
    /// [`BulkLoadError`]; the index is then what it was. It counts as not empty also when somebody
    /// inserts meanwhile.
    ///
    /// # Panics
    /// When a record id is above [`Rid::MAX`].
    pub fn bulk_load<K: AsRef<[u8]>>(
        &self,
        guard: &Guard<'_>,
        sorted: impl IntoIterator<Item = (K, Rid)>,
        fill_percent: u8,
    ) -> Result<u64, BulkLoadError> {
        let mut builder = Builder {
            fill_percent: usize::from(fill_percent.clamp(50, 100)),
            levels: vec![Level::new()],
            last_leaf: None,
            position: 0,
        };
        for (key, rid) in sorted {
            builder.add(key.as_ref(), rid)?;
        }
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
        self.set_root(builder.finish());
        drop((latched, tree));
        // SAFETY: unlinked just now and by us only.
        unsafe { guard.retire(old.cast(), node::free) };
        Ok(builder.position)
    }
}
