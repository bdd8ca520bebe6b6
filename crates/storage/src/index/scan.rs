//! Ranges, in both directions.
//!
//! Pairs are copied out of a leaf a few at a time, validated, and only then handed to the visitor.
//! As long as the leaf's version holds, the scan continues where it was; when it does not, it
//! descends again to the place right behind the last pair delivered. So there are no misses, no
//! duplicates and no disorder, whatever happens in the meantime: each pair that is in the range
//! during the whole scan is delivered once.

use std::ops::{Bound, ControlFlow};

use freshet_base::{Rid, sync::Ordering};

use super::{
    BTree, LeafVersion, MAX_KEY,
    descend::Spot,
    key::{OwnedPlace, Place},
    node::{Leaf, Node, prefetch},
};
use crate::reclaim::Guard;

/// Pairs that are copied at first, in case the visitor wants only a few.
const FIRST_CHUNK: usize = 8;
/// Pairs that are copied at once in the long run.
const LARGEST_CHUNK: usize = 64;
/// Bytes behind a key that copying it may touch.
const SLACK: usize = 32;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the low end, ascending.
    Forward,
    /// From the high end, descending.
    Backward,
}

/// A range of keys. One that is inverted is empty.
pub type Range<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Memory of a scan, to be used again by the next one.
#[derive(Debug, Default)]
pub struct ScanBuffer {
    /// Whole keys, with gaps.
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
    prefix: Vec<u8>,
    /// Where to go on when the leaf has changed.
    resume: OwnedPlace,
    /// Where the leaf begins, for going backward.
    fence: OwnedPlace,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    start: u32,
    length: u32,
    rid: u64,
}

impl ScanBuffer {
    /// An empty buffer; it grows to what the scans need.
    pub fn new() -> Self {
        Self::default()
    }

    /// Copies pairs `from..to` of a leaf; garbage unless validated afterwards.
    #[inline]
    fn copy(&mut self, leaf: &Leaf, from: usize, to: usize) {
        let page = &leaf.page;
        let shape = page.shape();
        self.pairs.clear();
        self.prefix.clear();
        page.copy_prefix(&shape, &mut self.prefix);
        let prefix = shape.prefix;
        self.prefix.resize(prefix.next_multiple_of(16), 0);
        let mut at = 0;
        for index in from..to {
            if self.bytes.len() < at + 2 * (MAX_KEY + SLACK) {
                self.bytes.resize(2 * at + 4 * (MAX_KEY + SLACK), 0);
            }
            let out = &mut self.bytes[at..at + 2 * (MAX_KEY + SLACK)];
            for (to, from) in out.chunks_exact_mut(16).zip(self.prefix.chunks_exact(16)) {
                to.copy_from_slice(from);
            }
            let length = prefix + page.write_suffix(&shape, index, &mut out[prefix..]);
            self.pairs.push(Pair { start: at as u32, length: length as u32, rid: page.rid(&shape, index) });
            at += length;
        }
    }

    #[inline(always)]
    fn key(&self, pair: Pair) -> &[u8] {
        &self.bytes[pair.start as usize..(pair.start + pair.length) as usize]
    }

    /// Remembers that a scan has to go on from `pair` or, when `after`, right behind it.
    fn resume_at(&mut self, pair: Pair, after: bool) {
        let (start, length) = (pair.start as usize, pair.length as usize);
        self.resume.key.clear();
        self.resume.key.extend_from_slice(&self.bytes[start..start + length]);
        self.resume.rid = pair.rid + u64::from(after);
    }
}

impl BTree {
    /// Calls `visit` for every pair whose key is in the range, in the order of the direction (keys,
    /// and record ids within a key), until it breaks. Calls `on_leaf` for every leaf that was read:
    /// while they all are [unchanged](LeafVersion::unchanged), the range (as far as it was visited)
    /// has no other pairs.
    ///
    /// Takes no latch; what is inserted or removed in the meantime may or may not be seen,
    /// everything else is seen exactly once. `visit` may do anything, also with this index.
    pub fn scan<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        range: Range<'_>,
        direction: Direction,
        buffer: &mut ScanBuffer,
        mut on_leaf: impl FnMut(LeafVersion<'g>),
        mut visit: impl FnMut(&[u8], Rid) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let low = match range.0 {
            Bound::Unbounded => Place::FIRST,
            Bound::Included(key) => Place::before_key(key),
            Bound::Excluded(key) => Place::after_key(key),
        };
        let high = match range.1 {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(Place::after_key(key)),
            Bound::Excluded(key) => Some(Place::before_key(key)),
        };
        if high.is_some_and(|high| low.compare(&high).is_ge()) {
            return ControlFlow::Continue(());
        }
        match direction {
            Direction::Forward => self.scan_forward(guard, low, high, buffer, &mut on_leaf, &mut visit),
            Direction::Backward => self.scan_backward(guard, low, high, buffer, &mut on_leaf, &mut visit),
        }
    }

    /// Visits pairs in ascending order, from the first one above (`key`, `rid`) on or from the
    /// beginning, until `visit` breaks. As [`BTree::scan`], whatever happens in the meantime;
    /// unlike that, it can go on between two pairs of one key.
    pub fn pairs_after(
        &self,
        guard: &Guard<'_>,
        after: Option<(&[u8], Rid)>,
        buffer: &mut ScanBuffer,
        mut visit: impl FnMut(&[u8], Rid) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let low = after.map_or(Place::FIRST, |(key, rid)| Place { key, rid: rid.0 + 1 });
        self.scan_forward(guard, low, None, buffer, &mut |_| {}, &mut visit)
    }

    fn scan_forward<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        low: Place<'_>,
        high: Option<Place<'_>>,
        buffer: &mut ScanBuffer,
        on_leaf: &mut impl FnMut(LeafVersion<'g>),
        visit: &mut impl FnMut(&[u8], Rid) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut chunk = FIRST_CHUNK;
        let mut resumed = false;
        loop {
            let place = if resumed { buffer.resume.as_place() } else { low };
            let spot = self.descend(guard, place);
            let from = spot.leaf.page.find(place).index;
            if self.walk_right(spot, from, high, &mut chunk, &mut resumed, buffer, on_leaf, visit)? {
                return ControlFlow::Continue(());
            }
        }
    }

    /// Continues from pair `index` of the leaf until the range ends (`true`) or a leaf changes
    /// underneath.
    #[expect(clippy::too_many_arguments, reason = "the state of one scan")]
    #[inline]
    fn walk_right<'g>(
        &'g self,
        mut spot: Spot<'g>,
        mut index: usize,
        high: Option<Place<'_>>,
        chunk: &mut usize,
        resumed: &mut bool,
        buffer: &mut ScanBuffer,
        on_leaf: &mut impl FnMut(LeafVersion<'g>),
        visit: &mut impl FnMut(&[u8], Rid) -> ControlFlow<()>,
    ) -> ControlFlow<(), bool> {
        loop {
            let Spot { leaf, version, .. } = spot;
            let count = leaf.page.shape().count;
            let end = high.map_or(count, |high| leaf.page.find(high).index);
            // Acquire: pairs with the release store of the thread that linked the next leaf.
            let next = leaf.next.load(Ordering::Acquire);
            prefetch(next, 4);
            let mut reported = false;
            loop {
                let to = end.min(index + *chunk);
                buffer.copy(leaf, index, to);
                let removed = leaf.removed();
                if !leaf.header.latch.is(version) {
                    return ControlFlow::Continue(false);
                }
                if !reported {
                    reported = true;
                    on_leaf(LeafVersion { latch: &leaf.header.latch, version, removed });
                }
                for pair in &buffer.pairs {
                    visit(buffer.key(*pair), Rid(pair.rid))?;
                }
                if let Some(last) = buffer.pairs.last().copied() {
                    buffer.resume_at(last, true);
                    *resumed = true;
                }
                index = to;
                if index >= end {
                    break;
                }
                *chunk = LARGEST_CHUNK.min(*chunk * 2);
            }
            if end < count || next.is_null() {
                return ControlFlow::Continue(true);
            }
            // SAFETY: it was the next of a leaf that was validated since, so it was linked after
            // the pin.
            let Node::Leaf(next) = (unsafe { Node::at(next) }) else { unreachable!("leaves are followed by leaves") };
            let Some(next_version) = next.header.latch.read() else { return ControlFlow::Continue(false) };
            // This leaf may have been split since: then what is between the two was copied with it,
            // or is new, and its version tells. The next one still begins where this one ended.
            spot = Spot { leaf: next, version: next_version, spills: false };
            index = 0;
        }
    }

    fn scan_backward<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        low: Place<'_>,
        high: Option<Place<'_>>,
        buffer: &mut ScanBuffer,
        on_leaf: &mut impl FnMut(LeafVersion<'g>),
        visit: &mut impl FnMut(&[u8], Rid) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut chunk = FIRST_CHUNK;
        let mut resumed = false;
        let mut fence = std::mem::take(&mut buffer.fence);
        let result = 'leaves: loop {
            let upper = if resumed { Some(buffer.resume.as_place()) } else { high };
            let (Spot { leaf, version, .. }, fenced) = self.descend_below(guard, upper, &mut fence);
            let from = leaf.page.find(low).index;
            let mut end = upper.map_or(leaf.page.shape().count, |upper| leaf.page.find(upper).index);
            let mut reported = false;
            loop {
                let start = from.max(end.saturating_sub(chunk));
                buffer.copy(leaf, start, end);
                let removed = leaf.removed();
                if !leaf.header.latch.is(version) {
                    continue 'leaves;
                }
                if !reported {
                    reported = true;
                    on_leaf(LeafVersion { latch: &leaf.header.latch, version, removed });
                }
                for pair in buffer.pairs.iter().rev() {
                    if visit(buffer.key(*pair), Rid(pair.rid)).is_break() {
                        break 'leaves ControlFlow::Break(());
                    }
                }
                if let Some(first) = buffer.pairs.first().copied() {
                    buffer.resume_at(first, false);
                    resumed = true;
                }
                end = start;
                if end <= from {
                    break;
                }
                chunk = LARGEST_CHUNK.min(chunk * 2);
            }
            if !fenced || fence.as_place().compare(&low).is_le() {
                break ControlFlow::Continue(());
            }
            // All that is at or above the leaf's beginning has been delivered.
            std::mem::swap(&mut buffer.resume, &mut fence);
            resumed = true;
        };
        buffer.fence = fence;
        result
    }
}
