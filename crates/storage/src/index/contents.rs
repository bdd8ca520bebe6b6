//! The pairs of a page, taken out of it: what splitting, merging and bulk
//! loading work on.

use std::ops::Range;

use super::{
    key::{Place, common_prefix},
    page::{HEADER, PAIR, prefix_words, rest_words},
};

#[derive(Clone, Copy, Debug)]
struct Pair {
    start: usize,
    length: usize,
    rid: u64,
}

/// Sorted pairs with whole keys, private to one thread.
#[derive(Debug, Default)]
pub(super) struct Contents {
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
}

impl Contents {
    pub(super) fn with_capacity(pairs: usize, bytes_each: usize) -> Self {
        Self { bytes: Vec::with_capacity(pairs * bytes_each), pairs: Vec::with_capacity(pairs) }
    }

    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.pairs.clear();
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        let pair = self.pairs[index];
        &self.bytes[pair.start..pair.start + pair.length]
    }

    pub(super) fn rid(&self, index: usize) -> u64 {
        self.pairs[index].rid
    }

    pub(super) fn place(&self, index: usize) -> Place<'_> {
        Place { key: self.key(index), rid: self.rid(index) }
    }

    /// Appends a pair whose key `write` appends to the bytes it is given.
    pub(super) fn push_with(&mut self, rid: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.pairs.push(Pair { start, length: self.bytes.len() - start, rid });
    }

    pub(super) fn push(&mut self, place: Place<'_>) {
        self.push_with(place.rid, |bytes| bytes.extend_from_slice(place.key));
    }

    pub(super) fn insert(&mut self, index: usize, key: &[u8], rid: u64) {
        self.push(Place { key, rid });
        self.pairs[index..].rotate_right(1);
    }

    pub(super) fn append(&mut self, other: &Contents) {
        for index in 0..other.len() {
            self.push(other.place(index));
        }
    }

    /// Bytes that all keys of the range begin with: as they are sorted, what the first and the last have in common.
    pub(super) fn prefix(&self, range: Range<usize>) -> usize {
        if range.is_empty() { 0 } else { common_prefix(self.key(range.start), self.key(range.end - 1)) }
    }

    /// Words that a pair takes in a page with a prefix of `prefix` bytes.
    pub(super) fn pair_words(&self, index: usize, prefix: usize) -> usize {
        PAIR + rest_words(self.pairs[index].length - prefix)
    }

    /// Words that a page needs for the range.
    pub(super) fn words(&self, range: Range<usize>) -> usize {
        let prefix = self.prefix(range.clone());
        HEADER + prefix_words(prefix) + range.map(|index| self.pair_words(index, prefix)).sum::<usize>()
    }
}
