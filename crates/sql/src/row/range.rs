//! Ranges of keys: what a condition on a column leaves of an index.

use std::ops::Bound;

use super::key::{KeyColumn, PRESENT, Position};
use crate::{SqlError, ValueRef};

/// A range of keys, its lower end included and its upper end not. Can be used again without
/// allocating.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    from: Vec<u8>,
    to: Vec<u8>,
    /// Whether there is no upper end.
    open: bool,
}

/// Makes of a key the smallest one that is above all that begin with it. Says whether there is one.
pub(super) fn prefix_end(key: &mut Vec<u8>) -> bool {
    while let Some(last) = key.pop() {
        if last < 0xFF {
            key.push(last + 1);
            return true;
        }
    }
    false
}

impl KeyRange {
    /// No key at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// The ends of the range, as the engine's scans take them.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(&self.from), if self.open { Bound::Unbounded } else { Bound::Excluded(&self.to) })
    }

    /// Whether no key can be in it.
    pub fn is_empty(&self) -> bool {
        !self.open && self.from >= self.to
    }

    /// The same keys as in all of these, in order, each in one range only.
    pub fn disjoint(mut ranges: Vec<Self>) -> Vec<Self> {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by(|one, other| one.from.cmp(&other.from));
        let mut disjoint: Vec<Self> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match disjoint.last_mut() {
                Some(last) if last.open || range.from <= last.to => {
                    last.open |= range.open;
                    if range.to > last.to {
                        last.to = range.to;
                    }
                }
                _ => disjoint.push(range),
            }
        }
        disjoint
    }

    /// Whether the key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.from <= *key && (self.open || *key < *self.to)
    }

    /// Makes it the range of all keys that begin with `prefix`: with these values of an index's
    /// first columns. All keys when the prefix is empty.
    pub fn set_prefix(&mut self, prefix: &[u8]) {
        self.start(prefix);
        self.open = !prefix_end(&mut self.to);
    }

    /// Makes it the range of all keys that begin with `prefix` and in whose next column there is a
    /// value, not null, between these. Comparisons with null are never true: such a range is empty,
    /// as one without bounds is "is not null". Bounds may be values that the column cannot hold;
    /// see [`KeyColumn::append_key`].
    ///
    /// # Errors
    /// 42804 when a bound is of any other type than the column.
    pub fn set_between(
        &mut self,
        prefix: &[u8],
        column: &KeyColumn,
        lower: Bound<ValueRef<'_>>,
        upper: Bound<ValueRef<'_>>,
    ) -> Result<(), SqlError> {
        self.start(prefix);
        let (smaller, larger) =
            if column.descending { (&mut self.to, &mut self.from) } else { (&mut self.from, &mut self.to) };
        let some = end(column, lower, false, smaller)? && end(column, upper, true, larger)?;
        if !some {
            self.clear();
        }
        Ok(())
    }

    fn start(&mut self, prefix: &[u8]) {
        self.clear();
        self.from.extend_from_slice(prefix);
        self.to.extend_from_slice(prefix);
    }

    fn clear(&mut self) {
        self.from.clear();
        self.to.clear();
        self.open = false;
    }
}

/// Appends to a key where values begin or end that are above or below a bound. Says whether there
/// may be any.
fn end(column: &KeyColumn, bound: Bound<ValueRef<'_>>, is_upper: bool, key: &mut Vec<u8>) -> Result<bool, SqlError> {
    let value = match bound {
        Bound::Unbounded => None,
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
    };
    // Whether keys with the bound's own value lie below the end; in the order of values, not of
    // keys.
    let (value, above_it) = match value.map(|value| column.position(value)).transpose()? {
        Some(Position::At(ValueRef::Null)) => return Ok(false),
        Some(Position::At(value)) => (Some(value), matches!(bound, Bound::Included(_)) == is_upper),
        Some(Position::Above(value)) => (Some(value), true),
        Some(Position::BelowAll) if is_upper => return Ok(false),
        Some(Position::AboveAll) if !is_upper => return Ok(false),
        Some(Position::BelowAll | Position::AboveAll) | None => (None, is_upper),
    };
    // The end lies before or behind all keys that begin like this.
    match value {
        Some(value) => {
            column.append_key(value, key)?;
        }
        None => {
            let from = key.len();
            key.push(PRESENT);
            column.direct(&mut key[from..]);
        }
    }
    if above_it != column.descending {
        prefix_end(key);
    }
    Ok(true)
}
