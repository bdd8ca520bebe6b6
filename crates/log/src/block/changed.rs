//! Where the row of an update differs from the one that it replaces.
//!
//! Those who have the older row need nothing else of the newer one: a primary that keeps another
//! node's memory up to date reads and writes no more of it than this (Active-Memory, section 4).

use std::{num::NonZeroU32, ops::Range};

use super::BlockError;

/// A row has at most this many parts.
const PARTS: usize = u32::BITS as usize;
/// Parts are whole words of this many bytes.
const WORD: usize = 8;

/// How long each part of a row is, in bytes; the last one may be shorter.
fn part(length: usize) -> usize {
    length.div_ceil(PARTS).next_multiple_of(WORD).max(WORD)
}

/// In which parts of a row the two may differ: a bit for each. Their lengths are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed(NonZeroU32);

impl Changed {
    /// How `row` differs from the row `below`. None where their lengths differ.
    pub fn between(below: &[u8], row: &[u8]) -> Option<Self> {
        if below.len() != row.len() || row.is_empty() {
            return None;
        }
        let part = part(row.len());
        let parts = below.chunks(part).zip(row.chunks(part)).enumerate();
        let bits = parts.fold(0, |bits, (number, (below, row))| bits | u32::from(below != row) << number);
        // That nothing differs has to be said, too.
        Some(Self(NonZeroU32::new(bits).unwrap_or(NonZeroU32::MIN)))
    }

    /// Where a row differs in one or the other; both are of rows of one length.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Which bytes of the row, of this length, ascending and apart from one another.
    pub fn ranges(self, length: usize) -> impl Iterator<Item = Range<usize>> {
        let (part, mut bits, mut at) = (part(length), u64::from(self.0.get()), 0);
        std::iter::from_fn(move || {
            (bits != 0).then(|| {
                let begin = at + bits.trailing_zeros() as usize;
                let end = begin + (bits >> (begin - at)).trailing_ones() as usize;
                (bits, at) = (bits >> (end - at), end);
                begin * part..length.min(end * part)
            })
        })
    }

    /// How a record header says it; zero says nothing.
    pub(super) fn encode(this: Option<Self>) -> u32 {
        this.map_or(0, |Self(bits)| bits.get())
    }

    /// What a record header says of a row of this length; `at` is for the message only.
    pub(super) fn decode(bits: u32, length: u32, at: u32) -> Result<Option<Self>, BlockError> {
        let Some(set) = NonZeroU32::new(bits) else { return Ok(None) };
        let parts = (length as usize).div_ceil(part(length as usize));
        let is_within = u64::from(bits) >> parts == 0;
        if is_within { Ok(Some(Self(set))) } else { Err(BlockError::Record(at)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_is_the_same() {
        for length in [1usize, 7, 8, 9, 63, 64, 65, 100, 256, 257, 1008, 1013, 70_000] {
            let below = vec![1; length];
            let same = Changed::between(&below, &below).unwrap();
            assert!(same.ranges(length).eq(std::iter::once(0..length.min(part(length)))));
            let step = length / 40 + 1;
            for first in (0..length).step_by(step) {
                for last in (first..length).step_by(step + 2) {
                    let mut row = below.clone();
                    (row[first], row[last]) = (2, 2);
                    let changed = Changed::between(&below, &row).unwrap();
                    let ranges: Vec<_> = changed.ranges(length).collect();
                    assert!(ranges.iter().all(|range| range.start < range.end && range.end <= length));
                    assert!(ranges.is_sorted_by(|one, other| one.end < other.start), "{ranges:?}");
                    let differs = |at: &usize| ranges.iter().any(|range| range.contains(at));
                    assert!([first, last].iter().all(differs), "{first} and {last} of {length}: {ranges:?}");
                    let all: usize = ranges.iter().map(Range::len).sum();
                    assert!(all <= 2 * part(length) && ranges.iter().all(|range| range.start.is_multiple_of(8)));
                    assert_eq!(Changed::decode(Changed::encode(Some(changed)), length as u32, 0), Ok(Some(changed)));
                }
            }
            let all = Changed::between(&below, &vec![2; length]).unwrap();
            assert!(all.and(same).ranges(length).eq(std::iter::once(0..length)));
        }
        assert_eq!(Changed::between(&[1; 8], &[1; 9]), None);
        assert_eq!(Changed::between(&[], &[]), None);
        assert_eq!(Changed::decode(0, 0, 0), Ok(None));
        for (bits, length) in [(1, 0), (2, 8), (1 << 31, 31 * 8), (4, 16)] {
            assert_eq!(Changed::decode(bits, length, 7), Err(BlockError::Record(7)), "{bits:x} of {length}");
        }
        assert!(Changed::decode(u32::MAX, 32 * 8, 0).is_ok());
    }
}
