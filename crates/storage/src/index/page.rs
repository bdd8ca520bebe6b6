//! A slotted page of sorted (key, rid) pairs in 32-bit atomic words.
//!
//! # Layout, in words
//!
//! | from | what |
//! |---|---|
//! | 0 | count, capacity (16 bits each) |
//! | 1 | lowest word of the heap, dead words of the heap |
//! | 2 | length of the prefix, in bytes |
//! | 3 | index of the last insertion, length of the run that it continues |
//! | 4 | the prefix: bytes that all keys of the page begin with |
//! | `heads` | one word per pair, `capacity` of them: four bytes of the key after the prefix, zeros where there are none |
//! | `pairs` | two words per pair: locator and high 16 bits of the rid; low 32 bits of the rid |
//! | end | the heap, growing down: what the head does not hold of the longer keys |
//!
//! Bytes are kept in words as big-endian numbers, so that comparing words compares bytes. A
//! *suffix* is a key without the page's prefix. The locator of a suffix of up to four bytes is its
//! length; otherwise it is the word of the heap where its rest is: first bytes 4 and 5 of the
//! suffix and its length, 16 bits each, then four bytes a word.
//!
//! # Access protocol
//!
//! All words are read and written as whole 32-bit atomics and never in another size, so racing
//! accesses are defined. They are all relaxed: order comes from the [latch](super::latch) of the
//! node. Who holds the latch may call everything; who does not may call the methods marked
//! *optimistic* and must validate before believing the result. Those methods take any garbage for
//! their input: indexes are clamped or checked, nothing panics.

use std::{cmp::Ordering, hint::select_unpredictable};

use freshet_base::{
    Rid,
    sync::{AtomicU32, Ordering::Relaxed},
};

use super::{
    MAX_KEY,
    contents::Contents,
    key::{Place, common_prefix, half_at, word_at},
};

/// Words before the prefix.
pub(super) const HEADER: usize = 4;
/// Words that a pair takes besides its rest in the heap.
pub(super) const PAIR: usize = 3;
/// Locators up to this are lengths of suffixes without a rest.
pub(super) const HEAD_BYTES: usize = 4;
/// `last` of a page that nothing was inserted into: its successor is index 0.
const BEFORE_FIRST: u32 = 0xffff;
/// Pages with fewer pairs than this are used to the last word.
const FEW: usize = 8;

/// Words of the heap that a suffix of `length` bytes takes.
pub(super) const fn rest_words(length: usize) -> usize {
    match length {
        0..=4 => 0,
        5 | 6 => 1,
        _ => 1 + (length - 6).div_ceil(4),
    }
}

/// Words that a prefix of `length` bytes takes.
pub(super) const fn prefix_words(length: usize) -> usize {
    length.div_ceil(4)
}

/// Where things are in a page, as its header said when it was read; clamped, so that every
/// head and pair below `count` is inside the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Pairs in the page.
    pub(super) count: usize,
    capacity: usize,
    /// Bytes of the prefix.
    pub(super) prefix: usize,
    heads: usize,
}

impl Shape {
    fn pairs(&self) -> usize {
        self.heads + self.capacity
    }

    fn heap_floor(&self) -> usize {
        self.heads + PAIR * self.capacity
    }
}

/// Where a place is in a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Of the first pair at or above the place; the count when none exists.
    pub(super) index: usize,
    /// Whether that pair has the place's key.
    pub(super) same_key: bool,
    /// What the page looked like.
    pub(super) shape: Shape,
}

/// How a pair can be put into a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// At once.
    Ready,
    /// After it has been written again: another prefix, no dead words, other proportions.
    AfterRewrite,
    /// Not before the page is split.
    None,
}

/// Moves all words but the last `BY` up by this many places. Under the latch.
fn shift_up<const BY: usize>(words: &[AtomicU32]) {
    for i in (BY..words.len()).rev() {
        words[i].store(words[i - BY].load(Relaxed), Relaxed);
    }
}

/// Moves all words but the first `BY` down by this many places. Under the latch.
fn shift_down<const BY: usize>(words: &[AtomicU32]) {
    for i in BY..words.len() {
        words[i - BY].store(words[i].load(Relaxed), Relaxed);
    }
}

/// The page; `N` is its size in words.
#[derive(Debug)]
pub(super) struct Page<const N: usize> {
    words: [AtomicU32; N],
}

impl<const N: usize> Page<N> {
    pub(super) fn new() -> Self {
        const { assert!(N < 1 << 16 && N >= HEADER + 2 * (PAIR + rest_words(MAX_KEY))) };
        let page = Self { words: std::array::from_fn(|_| AtomicU32::new(0)) };
        page.set(1, 0, N);
        page.set_run(BEFORE_FIRST, 0);
        page
    }

    /// A word of the page; zero beyond its end. Read without the latch: to be validated.
    #[inline(always)]
    fn word(&self, index: usize) -> u32 {
        match self.words.get(index) {
            Some(word) => word.load(Relaxed),
            None => 0,
        }
    }

    /// The two 16-bit halves of a word. Read without the latch: to be validated.
    #[inline(always)]
    fn halves(&self, index: usize) -> (usize, usize) {
        let word = self.word(index);
        ((word & 0xffff) as usize, (word >> 16) as usize)
    }

    fn set(&self, index: usize, low: usize, high: usize) {
        debug_assert!(low <= 0xffff && high <= 0xffff);
        // Layout: `low` is in the low half. Word 1 keeps (dead, lowest).
        self.words[index].store(low as u32 | (high as u32) << 16, Relaxed);
    }

    /// Where the parts of the page lie. Read without the latch: to be validated.
    #[inline(always)]
    pub(super) fn shape(&self) -> Shape {
        let (count, capacity) = self.halves(0);
        let prefix = (self.word(2) as usize).min(MAX_KEY);
        let heads = HEADER + prefix_words(prefix);
        let capacity = capacity.min((N - heads) / PAIR);
        Shape { count: count.min(capacity), capacity, prefix, heads }
    }

    /// The first bytes of a pair's key, behind the prefix. Read without the latch: to be validated.
    #[inline(always)]
    pub(super) fn head(&self, shape: &Shape, index: usize) -> u32 {
        self.word(shape.heads + index)
    }

    /// The record id of a pair. Optimistic.
    #[inline(always)]
    pub(super) fn rid(&self, shape: &Shape, index: usize) -> u64 {
        let at = shape.pairs() + 2 * index;
        u64::from(self.word(at) & 0xffff) << 32 | u64::from(self.word(at + 1))
    }

    #[inline(always)]
    fn locator(&self, shape: &Shape, index: usize) -> usize {
        (self.word(shape.pairs() + 2 * index) >> 16) as usize
    }

    /// Length of a pair's suffix. Optimistic.
    #[inline(always)]
    fn suffix_length(&self, shape: &Shape, index: usize) -> usize {
        let locator = self.locator(shape, index);
        if locator <= HEAD_BYTES { locator } else { ((self.word(locator) & 0xffff) as usize).min(MAX_KEY) }
    }

    /// Finds where a pair is or belongs. Reads without the latch: to be validated.
    #[inline(always)]
    pub(super) fn find(&self, place: Place<'_>) -> Found {
        let shape = self.shape();
        let found = |index, same_key| Found { index, same_key, shape };
        match self.compare_prefix(&shape, place.key) {
            Ordering::Less => return found(shape.count, false),
            Ordering::Greater => return found(0, false),
            Ordering::Equal => {}
        }
        let head = word_at(place.key, shape.prefix);
        let index = self.lower_head(&shape, head);
        if index == shape.count || self.head(&shape, index) != head {
            return found(index, false);
        }
        if index + 1 < shape.count && self.head(&shape, index + 1) == head {
            return self.find_among_equal_heads(shape, index, head, place);
        }
        match self.compare_suffix(&shape, index, place.key) {
            Ordering::Less => found(index + 1, false),
            Ordering::Greater => found(index, false),
            Ordering::Equal if self.rid(&shape, index) < place.rid => found(index + 1, false),
            Ordering::Equal => found(index, true),
        }
    }

    /// The first pair whose head is not below `head`.
    #[inline(always)]
    fn lower_head(&self, shape: &Shape, head: u32) -> usize {
        let Some(heads) = self.words.get(shape.heads..shape.heads + shape.count) else { return 0 };
        let mut base = 0;
        let mut size = heads.len();
        if size == 0 {
            return 0;
        }
        while size > 1 {
            let half = size / 2;
            // SAFETY: `base + size <= heads.len()` holds at the start and is kept by both outcomes,
            // and `half < size`.
            let probe = unsafe { heads.get_unchecked(base + half - 1) }.load(Relaxed);
            // The outcome is a coin toss: bad for branch prediction.
            base = select_unpredictable(probe < head, base + half, base);
            size -= half;
        }
        // SAFETY: `base + 1 <= heads.len()`, as above.
        base + usize::from(unsafe { heads.get_unchecked(base) }.load(Relaxed) < head)
    }

    /// Several keys agree in their first bytes after the prefix: compare the rest.
    fn find_among_equal_heads(&self, shape: Shape, from: usize, head: u32, place: Place<'_>) -> Found {
        let (mut low, mut high) = (from + 1, shape.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.head(&shape, middle) == head { low = middle + 1 } else { high = middle }
        }
        let end = low;
        (low, high) = (from, end);
        let mut same_key = false;
        while low < high {
            let middle = low.midpoint(high);
            let order = self.compare_suffix(&shape, middle, place.key);
            if order.then_with(|| self.rid(&shape, middle).cmp(&place.rid)).is_lt() {
                low = middle + 1;
            } else {
                // The last time that `high` moves, it moves to the result.
                same_key = order.is_eq();
                high = middle;
            }
        }
        Found { index: low, same_key, shape }
    }

    /// The page's prefix against the same bytes of `key`. Optimistic.
    #[inline(always)]
    fn compare_prefix(&self, shape: &Shape, key: &[u8]) -> Ordering {
        let mut at = 0;
        while at < shape.prefix {
            let mine = self.word(HEADER + at / 4);
            let mut theirs = word_at(key, at);
            let bytes = shape.prefix - at;
            if bytes < 4 {
                theirs &= u32::MAX << (8 * (4 - bytes));
            }
            if mine != theirs {
                return mine.cmp(&theirs);
            }
            at += 4;
        }
        if key.len() < shape.prefix { Ordering::Greater } else { Ordering::Equal }
    }

    /// A pair's key against `key`, given that prefix and head are equal. Optimistic.
    #[inline(always)]
    pub(super) fn compare_suffix(&self, shape: &Shape, index: usize, key: &[u8]) -> Ordering {
        let length = key.len() - shape.prefix;
        let locator = self.locator(shape, index);
        if locator <= HEAD_BYTES {
            // Equal when padded with zeros: the shorter one is a prefix of the other.
            return locator.cmp(&length);
        }
        if length <= HEAD_BYTES {
            return Ordering::Greater;
        }
        self.compare_rest(locator, key, shape.prefix)
    }

    #[inline]
    fn compare_rest(&self, locator: usize, key: &[u8], prefix: usize) -> Ordering {
        let first = self.word(locator);
        let (mine, theirs) = (first >> 16, half_at(key, prefix + HEAD_BYTES));
        if mine != theirs {
            return mine.cmp(&theirs);
        }
        let my_length = (first & 0xffff) as usize;
        let length = key.len() - prefix;
        for i in 1..rest_words(my_length.min(length)) {
            let (mine, theirs) = (self.word(locator + i), word_at(key, prefix + 2 + 4 * i));
            if mine != theirs {
                return mine.cmp(&theirs);
            }
        }
        my_length.cmp(&length)
    }

    /// Whether the pair at `index`, not below where the search for this key ended (`found`), has
    /// it. Optimistic.
    #[inline(always)]
    pub(super) fn has_key(&self, found: &Found, index: usize, key: &[u8]) -> bool {
        let shape = &found.shape;
        // With the same key somewhere, the page's prefix is the key's.
        found.same_key
            && index < shape.count
            && self.head(shape, index) == word_at(key, shape.prefix)
            && self.compare_suffix(shape, index, key).is_eq()
    }

    /// Appends the prefix to `out`. Optimistic.
    pub(super) fn copy_prefix(&self, shape: &Shape, out: &mut Vec<u8>) {
        let from = out.len();
        for i in 0..prefix_words(shape.prefix) {
            out.extend_from_slice(&self.word(HEADER + i).to_be_bytes());
        }
        out.truncate(from + shape.prefix);
    }

    /// Writes the suffix of a pair to the beginning of `out`, with up to three bytes of padding
    /// behind it, and returns its length. Optimistic. `out` has room for [`MAX_KEY`] and 8 bytes
    /// more.
    #[inline(always)]
    pub(super) fn write_suffix(&self, shape: &Shape, index: usize, out: &mut [u8]) -> usize {
        out[..4].copy_from_slice(&self.head(shape, index).to_be_bytes());
        let locator = self.locator(shape, index);
        if locator <= HEAD_BYTES {
            return locator;
        }
        let first = self.word(locator);
        out[4..6].copy_from_slice(&((first >> 16) as u16).to_be_bytes());
        let length = ((first & 0xffff) as usize).min(MAX_KEY);
        for (i, four) in (1..rest_words(length)).zip(out[6..].chunks_exact_mut(4)) {
            four.copy_from_slice(&self.word(locator + i).to_be_bytes());
        }
        length
    }

    /// Appends the suffix of a pair to `out`. Optimistic.
    pub(super) fn copy_suffix(&self, shape: &Shape, index: usize, out: &mut Vec<u8>) {
        let mut suffix = [0; MAX_KEY + 8];
        let length = self.write_suffix(shape, index, &mut suffix);
        out.extend_from_slice(&suffix[..length]);
    }

    /// Words in use, dead ones not counted. Optimistic.
    pub(super) fn live_words(&self) -> usize {
        let shape = self.shape();
        let (dead, lowest) = self.halves(1);
        shape.heads + PAIR * shape.count + N.saturating_sub(lowest).saturating_sub(dead)
    }

    /// The index of the last insertion and the number of insertions before it that each came right
    /// behind the one before.
    pub(super) fn run(&self) -> (u32, u32) {
        let word = self.word(3);
        (word & 0xffff, word >> 16)
    }

    fn set_run(&self, last: u32, run: u32) {
        self.words[3].store(last & 0xffff | run.min(0xffff) << 16, Relaxed);
    }

    /// Tells a rewritten page that an insertion at `index` would continue a run.
    pub(super) fn expect_at(&self, index: usize, run: u32) {
        self.set_run((index as u32).wrapping_sub(1), run);
    }

    /// Whether an insertion at `index` would continue a run, and how long that is by now.
    pub(super) fn run_at(&self, index: usize) -> u32 {
        let (last, run) = self.run();
        if (last + 1) & 0xffff == index as u32 { run + 1 } else { 0 }
    }

    /// How a pair with this key can be put in.
    pub(super) fn room(&self, key: &[u8]) -> Room {
        let shape = self.shape();
        let (_, lowest) = self.halves(1);
        let same_prefix = self.compare_prefix(&shape, key).is_eq();
        if same_prefix
            && shape.count < shape.capacity
            && lowest >= shape.heap_floor() + rest_words(key.len() - shape.prefix)
        {
            return Room::Ready;
        }
        let prefix = if shape.count == 0 {
            key.len()
        } else if same_prefix {
            shape.prefix
        } else {
            let mut mine = Vec::new();
            self.copy_prefix(&shape, &mut mine);
            common_prefix(&mine, key)
        };
        let longer = shape.prefix.saturating_sub(prefix);
        let rests: usize = (0..shape.count).map(|i| rest_words(self.suffix_length(&shape, i) + longer)).sum();
        let needed = HEADER + prefix_words(prefix) + PAIR * (shape.count + 1) + rests + rest_words(key.len() - prefix);
        // Without some slack, pages of unequal keys would be rewritten for each of the last few
        // pairs.
        let slack = if shape.count < FEW { 0 } else { N / 32 };
        if needed + slack <= N { Room::AfterRewrite } else { Room::None }
    }

    /// Puts a pair in at `index`, where [`Page::find`] said it belongs; `room` is what
    /// [`Page::room`] said.
    pub(super) fn insert(&self, index: usize, key: &[u8], rid: u64, room: Room) {
        let run = self.run_at(index);
        match room {
            Room::Ready => self.insert_ready(index, key, rid),
            Room::AfterRewrite => {
                let mut contents = self.contents();
                contents.insert(index, key, rid);
                self.rewrite(&contents, 0..contents.len());
            }
            Room::None => unreachable!("the caller splits first"),
        }
        self.set_run(index as u32, run);
    }

    fn insert_ready(&self, index: usize, key: &[u8], rid: u64) {
        let shape = self.shape();
        let (pairs, count) = (shape.pairs(), shape.count);
        shift_up::<1>(&self.words[shape.heads + index..=shape.heads + count]);
        shift_up::<2>(&self.words[pairs + 2 * index..pairs + 2 * count + 2]);
        self.write_pair(&shape, index, &key[shape.prefix..], rid);
        self.set(0, count + 1, shape.capacity);
    }

    fn store(&self, index: usize, word: u32) {
        self.words[index].store(word, Relaxed);
    }

    fn write_pair(&self, shape: &Shape, index: usize, suffix: &[u8], rid: u64) {
        let (dead, lowest) = self.halves(1);
        let rest = rest_words(suffix.len());
        let locator = if rest == 0 {
            suffix.len()
        } else {
            let at = lowest - rest;
            self.store(at, half_at(suffix, HEAD_BYTES) << 16 | suffix.len() as u32);
            for i in 1..rest {
                self.store(at + i, word_at(suffix, 2 + 4 * i));
            }
            self.set(1, dead, at);
            at
        };
        self.store(shape.heads + index, word_at(suffix, 0));
        let pair = shape.pairs() + 2 * index;
        self.store(pair, (locator as u32) << 16 | (rid >> 32) as u32);
        self.store(pair + 1, rid as u32);
    }

    /// Takes the pair at `index` out.
    pub(super) fn remove(&self, index: usize) {
        let shape = self.shape();
        let (pairs, count) = (shape.pairs(), shape.count);
        let (dead, lowest) = self.halves(1);
        self.set(1, dead + rest_words(self.suffix_length(&shape, index)), lowest);
        shift_down::<1>(&self.words[shape.heads + index..shape.heads + count]);
        shift_down::<2>(&self.words[pairs + 2 * index..pairs + 2 * count]);
        self.set(0, count - 1, shape.capacity);
        let (last, run) = self.run();
        if last != BEFORE_FIRST && index as u32 <= last {
            self.set_run(last.wrapping_sub(1), run);
        }
    }

    /// All pairs, with their whole keys.
    pub(super) fn contents(&self) -> Contents {
        let shape = self.shape();
        let mut prefix = Vec::with_capacity(shape.prefix + 4);
        self.copy_prefix(&shape, &mut prefix);
        let mut contents = Contents::with_capacity(shape.count + 1, shape.prefix + 16);
        for index in 0..shape.count {
            let rid = self.rid(&shape, index);
            contents.push_with(rid, |bytes| {
                bytes.extend_from_slice(&prefix);
                self.copy_suffix(&shape, index, bytes);
            });
        }
        contents
    }

    /// Replaces everything by a range of `contents`, which must fit. The run is forgotten.
    pub(super) fn rewrite(&self, contents: &Contents, range: std::ops::Range<usize>) {
        let (prefix, used) = contents.layout(range.clone());
        assert!(used <= N, "{used} words do not fit in {N}: pages are rewritten only with what fits");
        let count = range.len();
        // As many slots as will be needed if further pairs are as long as these.
        let fixed = HEADER + prefix_words(prefix);
        let capacity = (count * (N - fixed)).checked_div(used - fixed).unwrap_or(0).max(count);
        let capacity = capacity.min((N - fixed - (used - fixed - PAIR * count)) / PAIR);
        self.set(0, count, capacity);
        self.set(1, 0, N);
        self.words[2].store(prefix as u32, Relaxed);
        let shape = Shape { count, capacity, prefix, heads: fixed };
        if count > 0 {
            let bytes = &contents.key(range.start)[..prefix];
            for i in 0..prefix_words(prefix) {
                self.store(HEADER + i, word_at(bytes, 4 * i));
            }
        }
        for (index, from) in range.enumerate() {
            self.write_pair(&shape, index, &contents.key(from)[prefix..], contents.rid(from));
        }
        self.set_run(BEFORE_FIRST - 1, 0);
    }

    /// The key and record id of a pair.
    pub(super) fn pair(&self, index: usize) -> (Vec<u8>, Rid) {
        let shape = self.shape();
        let mut key = Vec::new();
        self.copy_prefix(&shape, &mut key);
        self.copy_suffix(&shape, index, &mut key);
        (key, Rid(self.rid(&shape, index)))
    }
}
