//! A batch of the log becomes what has to be written into a mirror (Active-Memory, section 4.5.1
//! and listing 1): of each record the newest change, as ranges of its slot, and the undo entries
//! that go before.
//!
//! A batch is what is kept or undone as a whole. So a record that changes several times in it is
//! written once, as the batch leaves it.

use std::ops::Range;

use freshet_base::{Fid, RecordKind, Rid, Stamp, Term};
use freshet_fabric::Place;
use freshet_log::{
    Block, BlockError, BlockKind,
    block::{BLOCK_HEADER, RECORD_HEADER},
};

use crate::{Before, Layout, List, NotPut, Record, Ring, RingFull, undo::Extent};

/// Bytes that a mirror cannot be brought up to date with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotABatch {
    /// They are no whole blocks.
    #[error("no whole block lies at {at} of the log: {source}; the log on this node is damaged")]
    Block {
        /// Where.
        at: Stamp,
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
        at: Stamp,
    },
}

/// What becomes of a record, with its row's place in the batch.
#[derive(Clone, Copy, Debug)]
struct Change {
    id: (Fid, Rid),
    address: Stamp,
    row: Option<(usize, usize)>,
}

/// One batch after the other: read, laid out, entered into the undo ring. Each step can be tried
/// again where it has found no room.
#[derive(Debug)]
pub struct Build {
    bytes: Vec<u8>,
    extent: Extent,
    /// The newest changes, by record.
    changes: Vec<Change>,
    /// This number of them are laid out.
    done: usize,
    /// In-sync sets in the batch, as places in `bytes`.
    members: Vec<Range<usize>>,
    /// What was marked when the changes were laid out.
    after: Stamp,
    writes: List,
    undo: List,
}

impl Build {
    /// Has no batch yet.
    pub fn new() -> Self {
        let extent = Extent { from: Stamp::ZERO, to: Stamp::ZERO, continues: false };
        let (bytes, changes, members) = (Vec::new(), Vec::new(), Vec::new());
        let (after, writes, undo) = (Stamp::ZERO, List::default(), List::default());
        Self { bytes, extent, changes, done: 0, members, after, writes, undo }
    }

    /// Where the next batch's bytes are to be put, this number of them.
    pub fn room(&mut self, length: usize) -> &mut [u8] {
        self.bytes.resize(length, 0);
        &mut self.bytes
    }

    /// Takes what was put there for a batch that begins at `from`: its first `length` bytes, up to
    /// where the last transaction in them ends; all of them, if none does.
    ///
    /// # Errors
    /// [`NotABatch`].
    pub fn begin(&mut self, from: Stamp, length: usize) -> Result<Extent, NotABatch> {
        self.changes.clear();
        self.members.clear();
        self.writes.clear();
        self.undo.clear();
        self.done = 0;
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
                let row = (begin, begin + record.row.len());
                self.changes.push(Change {
                    id: (record.header.fid, record.header.rid),
                    address: record.address,
                    row: (record.header.kind != RecordKind::Delete).then_some(row),
                });
            }
            at += block.bytes().len();
            whole = if header.continued { whole } else { Some((at, self.changes.len(), self.members.len())) };
        }
        let (end, changes, members) = whole.unwrap_or((length, self.changes.len(), self.members.len()));
        self.changes.truncate(changes);
        self.members.truncate(members);
        (self.extent.to, self.extent.continues) = (from.plus(end as u64), whole.is_none());
        // Neighbours lie beside one another in the mirror, too.
        self.changes.sort_unstable_by_key(|change| (change.id, change.address));
        // The newest of each record stays.
        self.changes.dedup_by(|later, earlier| {
            let same = later.id == earlier.id;
            if same {
                *earlier = *later;
            }
            same
        });
        Ok(self.extent)
    }

    /// The in-sync sets that the batch records, encoded.
    pub fn members(&self) -> impl Iterator<Item = &[u8]> {
        self.members.iter().map(|range| &self.bytes[range.clone()])
    }

    /// Lays the changes out that are not yet.
    ///
    /// # Errors
    /// [`NotPut`]; can be called again after that.
    pub fn put<B: Before>(&mut self, layout: &mut Layout, before: &mut B) -> Result<(), NotPut<B::Error>> {
        while let Some(change) = self.changes.get(self.done) {
            let Change { id: (fid, rid), address, row } = *change;
            let row = row.map(|(begin, end)| &self.bytes[begin..end]);
            layout.put(&Record { fid, rid, address, row }, before, &mut self.writes)?;
            self.done += 1;
        }
        self.after = layout.marked();
        Ok(())
    }

    /// Each mirror of the layout gets the list when its own mark has arrived there, and not before.
    /// What was marked ([`Layout::committed`]) is not kept to be undone, and is written over.
    pub fn after(&self) -> Stamp {
        self.after
    }

    /// Enters what is written over into the undo ring, when all is laid out.
    ///
    /// # Errors
    /// [`RingFull`]; can be called again after that.
    pub fn enter(&mut self, ring: &mut Ring, term: Term) -> Result<(), RingFull> {
        self.undo.clear();
        ring.enter(self.extent, term, &self.writes, &mut self.undo)
    }

    /// The list: undo entries, then what is written in place (figure 6).
    pub fn list(&self) -> impl Iterator<Item = (Place, &[u8])> {
        self.undo.writes().chain(self.writes.writes())
    }
}

impl Default for Build {
    fn default() -> Self {
        Self::new()
    }
}
