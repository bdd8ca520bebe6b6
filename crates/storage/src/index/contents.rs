//! The pairs of a page, taken out of it: what splitting, merging and bulk
//! loading work on.

use std::ops::Range;

use super::{
    key::{Place, common_prefix},
    page::{HEAD_BYTES, HEADER, PAIR, prefix_words, rest_words},
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

    /// Bytes that all keys of the range begin with: as they are sorted, what the first and the last
    /// have in common.
    pub(super) fn common(&self, range: Range<usize>) -> usize {
        if range.is_empty() { 0 } else { common_prefix(self.key(range.start), self.key(range.end - 1)) }
    }

    /// How many of those bytes a page of the range should keep apart, and the words that the page
    /// then takes: no more than with any other number of them.
    ///
    /// Beyond the point where the rests of all keys fit in their heads, a longer prefix saves
    /// nothing. Up to there, one that is longer by four bytes takes one more word and saves at
    /// least that in the rest of the longest key; so the best number is among the last four.
    pub(super) fn layout(&self, range: Range<usize>) -> (usize, usize) {
        let longest = self.pairs[range.clone()].iter().map(|pair| pair.length).max().unwrap_or(0);
        let most = self.common(range.clone()).min(longest.saturating_sub(HEAD_BYTES));
        // The longest of equally good ones tells more keys apart by their heads.
        let candidates = (most.saturating_sub(3)..=most).rev();
        candidates
            .map(|prefix| (prefix, self.words_with(range.clone(), prefix)))
            .min_by_key(|(_, words)| *words)
            .expect("the range of candidates is not empty")
    }

    /// Words that a pair takes in a page with a prefix of `prefix` bytes.
    pub(super) fn pair_words(&self, index: usize, prefix: usize) -> usize {
        PAIR + rest_words(self.pairs[index].length - prefix)
    }

    fn words_with(&self, range: Range<usize>, prefix: usize) -> usize {
        HEADER + prefix_words(prefix) + range.map(|index| self.pair_words(index, prefix)).sum::<usize>()
    }

    /// Words that a page needs for the range.
    pub(super) fn words(&self, range: Range<usize>) -> usize {
        self.layout(range).1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What fits in a page with some prefix fits in the page that is made of it, or of a part of
    /// it.
    #[test]
    fn a_layout_is_the_smallest() {
        for common in 0..30 {
            for lengths in [[0, 0, 0], [0, 1, 3], [1, 4, 5], [2, 6, 6], [7, 7, 7], [3, 9, 20], [11, 12, 13]] {
                let mut contents = Contents::default();
                for (i, length) in lengths.into_iter().enumerate() {
                    let mut key = vec![7; common];
                    key.extend(std::iter::repeat_n(i as u8, length));
                    contents.push(Place { key: &key, rid: i as u64 });
                }
                let (prefix, words) = contents.layout(0..3);
                assert!(prefix <= contents.common(0..3));
                for other in 0..=contents.common(0..3) {
                    assert!(
                        words <= contents.words_with(0..3, other),
                        "{common} {lengths:?}: {prefix} against {other}"
                    );
                }
            }
        }
    }
}
