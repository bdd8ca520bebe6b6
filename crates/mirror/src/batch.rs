//! A batch of the log, as all mirrors of a feeder get it: of each record the newest change, with
//! the header that its slot gets (Active-Memory, listing 1: made once, issued to every replica).
//!
//! A batch is what is kept or undone as a whole. So a record that changes several times in it is
//! written once, as the batch leaves it.
//!
//! What differs in slots is found by the first mirror that the batch is laid out for
//! ([`crate::Build::put`]). Other mirrors that have the same rows need not be read for that.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use freshet_base::{Fid, Lsn, RecordKind, Rid};
use freshet_log::{
    Block, BlockError, BlockKind, RecordHeader,
    block::{BLOCK_HEADER, Changed, RECORD_HEADER},
};

use crate::{
    List,
    list::GAP,
    slot::{self, HEADER, Header},
    undo::Extent,
};

/// Bytes that a mirror cannot be brought up to date with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotABatch {
    /// They are no whole blocks.
    #[error("no whole block lies at {at} of the log: {source}; the log on this node is damaged")]
    Block {
        /// Where.
        at: Lsn,
        /// What is wrong.
        source: BlockError,
    },
    /// Transactions are logged by their inputs.
    #[error(
        "the transaction at {at} is logged by its inputs, and a mirror executes nothing: \
         log rows on the primary, or follow it with a standby"
    )]
    Inputs {
        /// Where the transaction is.
        at: Lsn,
    },
}

/// What becomes of a record, with its row's place in the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub id: (Fid, Rid),
    pub address: Lsn,
    row: Option<(u32, u32)>,
    /// Which row it replaces, if the log says how they differ.
    over: Option<Over>,
}

/// A row that is replaced, and is as long.
#[derive(Clone, Copy, Debug)]
struct Over {
    /// Where in the log it is.
    address: Lsn,
    /// Where the rows differ.
    changed: Changed,
}

impl Over {
    fn of(header: &RecordHeader) -> Option<Self> {
        Some(Self { address: header.prev?, changed: header.changed? })
    }

    /// What is replaced by two changes, one after the other.
    fn and(self, later: Self) -> Self {
        Self { changed: self.changed.and(later.changed), ..self }
    }
}

/// Which bytes of a slot change with a row of this length: those of the header first. What does not
/// change is among them where it lies between two that are close to one another.
pub fn changes_of_slot(changed: Changed, length: usize) -> impl Iterator<Item = Range<usize>> {
    let mut rest = changed.ranges(length).map(|range| HEADER + range.start..HEADER + range.end).peekable();
    let mut next = Some(0..HEADER);
    std::iter::from_fn(move || {
        let mut range = next.take()?;
        while let Some(close) = rest.next_if(|behind| behind.start <= range.end + GAP) {
            range.end = close.end;
        }
        next = rest.next();
        Some(range)
    })
}

impl Change {
    /// How long its row is, unless it was deleted.
    pub fn length(&self) -> Option<usize> {
        self.row.map(|(_, length)| length as usize)
    }

    /// Which bytes of its slot change, if the log says so.
    pub fn ranges(&self) -> Option<impl Iterator<Item = Range<usize>> + use<>> {
        Some(changes_of_slot(self.over?.changed, self.length()?))
    }

    /// Whether the slot with this header has the row that is replaced.
    pub fn is_over(&self, header: &Header) -> bool {
        header.row_length() == self.length() && self.over.is_some_and(|over| over.address == header.address)
    }
}

/// What differs in slots.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Which writes of the list each change has; none where that has to be seen in each mirror.
    pub of: Vec<Range<usize>>,
    /// Places are counted from the slot on.
    pub list: List,
}

/// A batch of the log.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    extent: Extent,
    /// The newest changes, by record.
    pub(crate) changes: Vec<Change>,
    /// The header of each, as it is if the row lies in the slot.
    pub(crate) headers: Vec<[u8; HEADER]>,
    /// In-sync sets in the batch, as places in `bytes`.
    members: Vec<Range<usize>>,
    /// Said by the first for whom it is laid out.
    pub(crate) differences: OnceLock<Arc<Differences>>,
}

impl Batch {
    /// Has nothing yet.
    pub fn new() -> Self {
        Self {
            bytes: Vec::new(),
            extent: Extent { from: Lsn::ZERO, to: Lsn::ZERO, continues: false },
            changes: Vec::new(),
            headers: Vec::new(),
            members: Vec::new(),
            differences: OnceLock::new(),
        }
    }

    /// Where the batch's bytes are to be put, this number of them.
    pub fn room(&mut self, length: usize) -> &mut [u8] {
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        &mut self.bytes[..length]
    }

    /// How many bytes of memory it has.
    pub fn held_bytes(&self) -> usize {
        let each = size_of::<Change>() + HEADER;
        self.bytes.capacity() + self.changes.capacity().max(self.headers.capacity()) * each
    }

    /// Takes what was put there for a batch that begins at `from`: its first `length` bytes, up to
    /// where the last transaction in them ends; all of them, if none does.
    ///
    /// # Errors
    /// [`NotABatch`].
    pub fn begin(&mut self, from: Lsn, length: usize) -> Result<Extent, NotABatch> {
        self.changes.clear();
        self.members.clear();
        self.differences = OnceLock::new();
        self.extent = Extent { from, to: from, continues: false };
        let (mut at, mut whole) = (0, None);
        while at < length {
            let here = from.plus(at as u64);
            let block = Block::parse(&self.bytes[at..length], here);
            let block = block.map_err(|source| NotABatch::Block { at: here, source })?;
            let header = block.header();
            if header.kind == BlockKind::Inputs {
                return Err(NotABatch::Inputs { at: here });
            }
            if let Some(set) = block.members() {
                // Behind the header and its length.
                let begin = at + BLOCK_HEADER + 4;
                self.members.push(begin..begin + set.len());
            }
            for record in block.records() {
                // They belong to no table.
                if matches!(record.header.fid, Fid::MESSAGES | Fid::INPUTS) {
                    continue;
                }
                let begin = record.address.since(from) as usize + RECORD_HEADER;
                // No part of the log that is sent at once has as many bytes as 32 bits count.
                let row = (begin as u32, record.row.len() as u32);
                self.changes.push(Change {
                    id: (record.header.fid, record.header.rid),
                    address: record.address,
                    row: (record.header.kind != RecordKind::Delete).then_some(row),
                    over: Over::of(&record.header),
                });
            }
            at += block.bytes().len();
            whole = if header.continued { whole } else { Some((at, self.changes.len(), self.members.len())) };
        }
        let (end, changes, members) = whole.unwrap_or((length, self.changes.len(), self.members.len()));
        self.changes.truncate(changes);
        self.members.truncate(members);
        (self.extent.to, self.extent.continues) = (from.plus(end as u64), whole.is_none());
        self.keep_newest();
        Ok(self.extent)
    }

    /// Of each record the newest change stays. Neighbours lie beside one another in a mirror, too.
    fn keep_newest(&mut self) {
        self.changes.sort_unstable_by_key(|change| (change.id, change.address));
        self.changes.dedup_by(|later, earlier| {
            let same = later.id == earlier.id;
            if same {
                let over = later.over.filter(|over| over.address == earlier.address);
                let over = earlier.over.zip(over).map(|(earlier, later)| earlier.and(later));
                *earlier = Change { over, ..*later };
            }
            same
        });
        let Self { bytes, changes, headers, .. } = self;
        headers.clear();
        headers.extend(changes.iter().map(|change| {
            let row = change.row.map(|row| row_in(bytes, row));
            slot::header_of(change.id, change.address, row)
        }));
    }

    /// Where it begins and ends.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The in-sync sets that the batch records, encoded.
    pub fn members(&self) -> impl Iterator<Item = &[u8]> {
        self.members.iter().map(|range| &self.bytes[range.clone()])
    }

    pub(crate) fn row(&self, change: &Change) -> Option<&[u8]> {
        change.row.map(|row| row_in(&self.bytes, row))
    }
}

fn row_in(bytes: &[u8], (begin, length): (u32, u32)) -> &[u8] {
    &bytes[begin as usize..][..length as usize]
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}
