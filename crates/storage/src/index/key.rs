//! Places in the order of an index, and key bytes as big-endian words.

use std::cmp::Ordering;

use freshet_base::Rid;

/// A place in the order of (key, rid) pairs: just before the first pair at or
/// above it. `rid` is one wider than a [`Rid`], so that "after every pair of
/// this key" is a place too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'k> {
    pub(super) key: &'k [u8],
    pub(super) rid: u64,
}

/// Above every record id.
pub(super) const AFTER_ALL_RIDS: u64 = Rid::MAX.0 + 1;

impl<'k> Place<'k> {
    /// Before every pair.
    pub(super) const FIRST: Self = Self { key: &[], rid: 0 };

    pub(super) fn of(key: &'k [u8], rid: Rid) -> Self {
        Self { key, rid: rid.0 }
    }

    pub(super) fn before_key(key: &'k [u8]) -> Self {
        Self { key, rid: 0 }
    }

    pub(super) fn after_key(key: &'k [u8]) -> Self {
        Self { key, rid: AFTER_ALL_RIDS }
    }

    pub(super) fn compare(&self, other: &Place<'_>) -> Ordering {
        self.key.cmp(other.key).then(self.rid.cmp(&other.rid))
    }
}

/// A place that owns its key: a separator on its way into a parent, a fence.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnedPlace {
    pub(super) key: Vec<u8>,
    pub(super) rid: u64,
}

impl OwnedPlace {
    pub(super) fn as_place(&self) -> Place<'_> {
        Place { key: &self.key, rid: self.rid }
    }

    /// The shortest place above `left` and not above `right`, which must be larger.
    pub(super) fn between(left: Place<'_>, right: Place<'_>) -> Self {
        debug_assert!(left.compare(&right).is_lt());
        let common = common_prefix(left.key, right.key);
        if common == right.key.len() {
            // Equal keys: only the record ids tell them apart.
            return Self { key: right.key.to_vec(), rid: right.rid };
        }
        Self { key: right.key[..=common].to_vec(), rid: 0 }
    }
}

/// How many bytes `a` and `b` begin with in common.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Four bytes of `bytes` from `at` on as a number that compares as they do; zeros where
/// there are none.
#[inline(always)]
pub(super) fn word_at(bytes: &[u8], at: usize) -> u32 {
    if let Some(four) = bytes.get(at..at + 4) {
        return u32::from_be_bytes(four.try_into().expect("four bytes"));
    }
    let left = bytes.len().saturating_sub(at);
    if left == 0 {
        return 0;
    }
    if let Some(last) = bytes.last_chunk::<4>() {
        // One to three bytes left: shift those before them out.
        return u32::from_be_bytes(*last) << (8 * (4 - left));
    }
    bytes[at..].iter().enumerate().fold(0, |word, (i, byte)| word | u32::from(*byte) << (24 - 8 * i))
}

/// As [`word_at`], of two bytes.
#[inline(always)]
pub(super) fn half_at(bytes: &[u8], at: usize) -> u32 {
    let byte = |at: usize| bytes.get(at).copied().map_or(0, u32::from);
    byte(at) << 8 | byte(at + 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_are_padded_with_zeros() {
        let bytes = [1, 2, 3, 4, 5, 6];
        assert_eq!(word_at(&bytes, 0), 0x0102_0304);
        assert_eq!(word_at(&bytes, 2), 0x0304_0506);
        assert_eq!(word_at(&bytes, 4), 0x0506_0000);
        assert_eq!(word_at(&bytes, 5), 0x0600_0000);
        assert_eq!(word_at(&bytes, 6), 0);
        assert_eq!(word_at(&bytes, 60), 0);
        assert_eq!(word_at(&bytes[..3], 1), 0x0203_0000);
        assert_eq!(half_at(&bytes, 5), 0x0600);
    }

    #[test]
    fn separators_are_short_and_between() {
        let between = |left: (&[u8], u64), right: (&[u8], u64)| {
            let place = OwnedPlace::between(Place { key: left.0, rid: left.1 }, Place { key: right.0, rid: right.1 });
            (place.key, place.rid)
        };
        assert_eq!(between((b"apple", 9), (b"banana", 3)), (b"b".to_vec(), 0));
        assert_eq!(between((b"ban", 9), (b"banana", 3)), (b"bana".to_vec(), 0));
        assert_eq!(between((b"", 9), (b"x", 3)), (b"x".to_vec(), 0));
        assert_eq!(between((b"same", 3), (b"same", 9)), (b"same".to_vec(), 9));
        assert_eq!(between((b"", 3), (b"", 9)), (Vec::new(), 9));
    }
}
