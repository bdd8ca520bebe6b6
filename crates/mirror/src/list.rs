//! What is to be written, and what it writes over.

use std::ops::Range;

use freshet_fabric::Place;

use crate::slot::HEADER;

/// Bytes that did not change are written too where that spares a packet, whose headers are as long.
pub(crate) const GAP: usize = 64;
/// This number of bytes is compared at once.
const BLOCK: usize = 64;

/// What is to be written, one after another, and what it writes over.
#[derive(Debug, Default)]
pub struct List {
    bytes: Vec<u8>,
    old: Vec<u8>,
    writes: Vec<Write>,
}

#[derive(Clone, Debug)]
struct Write {
    to: Place,
    /// Where its bytes are in the list's.
    bytes: Range<usize>,
    /// Where the old bytes are that may be wanted again: of none, or of the first ones.
    old: Range<usize>,
    /// Both are another list's.
    is_shared: bool,
}

impl List {
    /// The writes.
    pub fn writes(&self) -> impl Iterator<Item = (Place, &[u8])> + Clone {
        self.writes_with(self)
    }

    /// The same of a list that has got some of the writes of `shared`.
    pub(crate) fn writes_with<'l>(&'l self, shared: &'l Self) -> impl Iterator<Item = (Place, &'l [u8])> + Clone {
        self.writes.iter().map(move |write| {
            let list = if write.is_shared { shared } else { self };
            (write.to, &list.bytes[write.bytes.clone()])
        })
    }

    /// Where bytes are written over that may be wanted again, and what they are.
    pub(crate) fn destroyed<'l>(&'l self, shared: &'l Self) -> impl Iterator<Item = (Place, &'l [u8])> + Clone {
        let old = self.writes.iter().map(move |write| {
            let list = if write.is_shared { shared } else { self };
            (write.to, &list.old[write.old.clone()])
        });
        old.filter(|(_, old)| !old.is_empty())
    }

    /// How many writes there are.
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.old.clear();
        self.writes.clear();
    }

    /// Appends a write, and what its first bytes destroy: `old`.
    pub fn push(&mut self, to: Place, bytes: &[u8], old: &[u8]) {
        self.push_parts(to, [bytes, &[]], old);
    }

    /// The same, of bytes in two pieces.
    pub(crate) fn push_parts(&mut self, to: Place, bytes: [&[u8]; 2], old: &[u8]) {
        let begins = (self.bytes.len(), self.old.len());
        bytes.into_iter().for_each(|bytes| self.bytes.extend_from_slice(bytes));
        self.old.extend_from_slice(old);
        let (bytes, old) = (begins.0..self.bytes.len(), begins.1..self.old.len());
        self.writes.push(Write { to, bytes, old, is_shared: false });
    }

    /// Appends those writes of `shared`, whose places are counted from `slot` on. They remain
    /// there.
    pub(crate) fn push_shared(&mut self, slot: Place, shared: &Self, writes: Range<usize>) {
        self.writes.extend(shared.writes[writes].iter().map(|write| Write {
            to: Place { offset: slot.offset + write.to.offset, ..slot },
            is_shared: true,
            ..write.clone()
        }));
    }

    /// Appends what turns a slot at `to` into this header and row: the header, and the words that
    /// differ from `old`, which is as long.
    pub(crate) fn push_changes(&mut self, to: Place, header: &[u8; HEADER], row: &[u8], old: &[u8]) {
        let mut push = |range: Range<usize>| self.push_range(to, header, row, range.clone(), &old[range]);
        let (mut begin, mut end) = (0, HEADER);
        for from in (HEADER..old.len()).step_by(BLOCK) {
            let behind = old.len().min(from + BLOCK);
            if is_same(&row[from - HEADER..behind - HEADER], &old[from..behind]) {
                continue;
            }
            for at in (from..behind).step_by(8) {
                let behind = behind.min(at + 8);
                if row[at - HEADER..behind - HEADER] == old[at..behind] {
                    continue;
                }
                if at > end + GAP {
                    push(begin..end);
                    begin = at;
                }
                end = behind;
            }
        }
        push(begin..end);
    }

    /// Appends a part of what turns a slot at `to` into this header and row, and what it destroys.
    pub(crate) fn push_range(&mut self, to: Place, header: &[u8; HEADER], row: &[u8], range: Range<usize>, old: &[u8]) {
        let to = Place { offset: to.offset + range.start as u64, ..to };
        let first = &header[range.start.min(HEADER)..];
        let row = &row[range.start.max(HEADER) - HEADER..range.end - HEADER];
        self.push_parts(to, [first, row], old);
    }
}

/// Whether a block is the same, without a branch for each word.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let words = one.0.iter().zip(other.0);
    let differences = words.fold(0, |all, (one, other)| all | u64::from_ne_bytes(*one) ^ u64::from_ne_bytes(*other));
    differences == 0 && one.1 == other.1
}
