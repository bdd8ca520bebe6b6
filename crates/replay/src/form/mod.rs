//! The inputs form of blocks: what a standby needs that executes transactions again.
//!
//! A block whose last record holds its transaction's inputs ([`Block::inputs`]) can leave out what
//! executing it again regenerates: rows, the addresses of the versions that it replaces, lengths
//! that are known, its own LSN. What is left says what is written where, under which keys the
//! insertions enter the indexes, the inputs, and the block's checksum, which proves what was
//! regenerated. Every other block goes as its bytes.
//!
//! An insertion that uses the id of a deleted record again replaces the deletion. Where that lies,
//! the form does say: a node that has come from a checkpoint need not know.
//!
//! Forms come in batches, one for each batch of the log ([`Encoder::batch`], [`Decoder::new`]). A
//! batch can be read by itself. Within it both sides keep a [`model`] of what has come, so that
//! what is like before costs little. All numbers are varints ([`varint`]), but for single bytes.
//!
//! | of each block | |
//! |---|---|
//! | tag | 0: the block's bytes follow; 1: a skip block; 2: the shape is spelled; 3: flags follow, then another tag (2 or more); from 4 on: the shape with this number less 4 |
//! | of a skip block | its length, in eights; stream (byte); term |
//! | flags, byte | 1: the lengths of all records are there; 2: the indexes of all insertions; 4: stream (byte) and term follow, which else are those of the last block |
//! | a spelled shape | number of runs; of each run: twice the symbol's number, plus 1 if it is longer than 1; then its length less 2. A symbol is a table and what is done to it. Its number when it is new is how many there were: table, deed (byte: 0: an insertion; 1: an update; 2: a deletion; 3: an insertion that uses an id again) and length of the row follow |
//! | lengths | of each record, of those only whose symbol has had several if no flag is set: difference from the last one of the symbol, as [`varint::zigzag`] writes it |
//! | record ids | symbol by symbol: difference from the last one of the symbol plus one, as zigzag. Behind a zero, unless it is the symbol's last record: how many more zeros follow, which are left out |
//! | deletions | of each insertion that uses an id again: difference of the address of the deletion that it replaces from the last one of the symbol, as zigzag |
//! | indexes, if flagged | of each insertion: how many keys it has, and their indexes' numbers; else they are those of the symbol's last insertion |
//! | keys | of each insertion, as [`keys`] says |
//! | inputs | number of snapshots, and how far the first is below the LSN, and the others above the one before; or 0, where the record has another form. Then the length of the rest, and the rest |
//! | checksum, 4 bytes | as in the block's header |
//!
//! The length of the block, the number of its records and their places follow from these.
//!
//! What it costs (`workloads/tests/forms.rs` measures it): TPC-C takes 6.2 % of the log that holds
//! values, and 5.3 % with LZ4 over batches of 64 KiB; with terminals that are at home nowhere, the
//! same. A New-Order of 10 lines takes about 1,600 bytes of that log, and 120 here: half of these
//! are its inputs, a quarter the ids of its stocks. The deletions that insertions replace are 2 %
//! of the form.

mod decode;
mod encode;
mod keys;
mod model;
#[cfg(test)]
mod tests;

use freshet_base::{Fid, Lsn, RecordKind, Rid};
use freshet_log::{
    BlockError, BlockHeader,
    block::{BLOCK_ALIGN, BLOCK_HEADER, RECORD_HEADER},
};
use freshet_storage::{Catalog, Guard, KeyBuffer};

pub use self::{
    decode::Decoder,
    encode::{Encoded, Encoder, oldest_snapshot, plain},
};
#[cfg(doc)]
use freshet_base::varint;
#[cfg(doc)]
use freshet_log::Block;

/// Tags of blocks: see the table at the head.
const BYTES: u64 = 0;
const SKIP: u64 = 1;
const SPELLED: u64 = 2;
const FLAGGED: u64 = 3;
const FIRST_SHAPE: u64 = 4;

/// Flags of blocks: see the table at the head.
const LENGTHS: u8 = 1;
const INDEXES: u8 = 2;
const TERM: u8 = 4;

/// A transaction that has read at a snapshot this many bytes of log below its LSN, or more, goes
/// as its bytes: a node that executes it again need not keep older versions. What it keeps, its
/// transactions step over: records that were deleted and versions of those that are written often.
pub const REACH: u64 = 1 << 20;

/// A block with more bytes of keys goes as its bytes: what the keys of a form may take in memory.
const MOST_KEYS: usize = 16 << 20;

/// What a transaction writes: where, and how long; not the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The table that it writes to.
    pub fid: Fid,
    /// The record that it writes.
    pub rid: Rid,
    /// What is done to it.
    pub kind: RecordKind,
    /// The length of the row in bytes.
    pub length: u32,
    /// The deletion that it replaces, if it is an insertion that uses an id again.
    pub deletion: Option<Lsn>,
}

/// A key that an insertion enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'f> {
    /// The insertion, as its number in [`Inputs::written`].
    pub record: usize,
    /// The number of the table's index.
    pub index: usize,
    /// The key's bytes, as the index has them.
    pub key: &'f [u8],
}

/// Keys of insertions, in the order of these.
#[derive(Clone, Debug, Default)]
struct Keys {
    bytes: Vec<u8>,
    /// Record, index, and where in `bytes` the key ends.
    places: Vec<(u32, u16, u32)>,
}

impl Keys {
    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    fn push(&mut self, record: usize, index: u16, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        // Fits: bounded by `MOST_KEYS`.
        self.places.push((record as u32, index, self.bytes.len() as u32));
    }

    /// What they take in memory.
    fn size(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<(u32, u16, u32)>()
    }

    /// Those of `record`, which begin at `at`, or would; moves that behind them.
    fn indexes_of(&self, record: usize, at: &mut usize) -> &[(u32, u16, u32)] {
        let rest = &self.places[*at..];
        let own = rest.iter().take_while(|key| key.0 as usize == record).count();
        *at += own;
        &rest[..own]
    }

    fn get(&self, number: usize) -> Option<Key<'_>> {
        let (record, index, end) = *self.places.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.places[before].2);
        Some(Key { record: record as usize, index: index.into(), key: &self.bytes[start as usize..end as usize] })
    }

    fn iter(&self) -> impl Iterator<Item = Key<'_>> {
        (0..self.places.len()).filter_map(|number| self.get(number))
    }
}

/// What a block is in its inputs form.
#[derive(Clone, Debug)]
pub enum Form<'f> {
    /// Its bytes, of the length that its header says. Nothing else of them was checked.
    Bytes(&'f [u8]),
    /// A skip block: its header. Its body is of no interest, and counts as zeros.
    Skip(BlockHeader, [u8; BLOCK_HEADER]),
    /// A transaction that is to be executed again.
    Inputs(Inputs<'f>),
}

/// A block whose transaction is to be executed again.
#[derive(Clone, Debug)]
pub struct Inputs<'f> {
    /// The header of the block, checksum included.
    pub header: BlockHeader,
    /// What it writes, in the order of its records; without the record that holds the inputs.
    pub written: &'f [Written],
    keys: &'f Keys,
    /// The row of the record that holds the inputs.
    pub inputs: &'f [u8],
}

impl<'f> Inputs<'f> {
    /// The keys under which its insertions enter the indexes, in the order of the records.
    pub fn keys(&self) -> impl Iterator<Item = Key<'f>> + use<'f> {
        self.keys.iter()
    }
}

/// Why bytes are not the inputs form of a part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// They end before the form does.
    #[error("the inputs form ends in the midst of a block")]
    Truncated,
    /// A number or a flag that no encoder writes there.
    #[error("the inputs form is invalid: {0}")]
    Invalid(&'static str),
    /// Bytes that should be a block.
    #[error("the inputs form holds something that is no block: {0}")]
    Block(BlockError),
}

/// Tells the keys of rows.
pub trait KeysOf {
    /// Calls `each` with the number of every index that table `fid` had at `at`, where `row` was
    /// written, and that has a key of it, and with that key. False when these indexes are not
    /// known.
    fn keys_of(&mut self, at: Lsn, fid: Fid, row: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> bool;
}

/// Those of the catalog's tables.
pub struct CatalogKeys<'g, 'p> {
    catalog: &'g Catalog,
    guard: &'g Guard<'p>,
    key: KeyBuffer,
}

impl<'g, 'p> CatalogKeys<'g, 'p> {
    /// Of what is written below what the catalog holds now: a node that executes it again has the
    /// tables and indexes of that time, whatever has come or gone since. Where a table or an index
    /// was dropped behind it, and is forgotten, nothing is known.
    pub fn new(catalog: &'g Catalog, guard: &'g Guard<'p>) -> Self {
        Self { catalog, guard, key: KeyBuffer::new() }
    }
}

impl std::fmt::Debug for CatalogKeys<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CatalogKeys")
    }
}

impl KeysOf for CatalogKeys<'_, '_> {
    fn keys_of(&mut self, at: Lsn, fid: Fid, row: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> bool {
        let Some(content) = self.catalog.get(self.guard, fid).and_then(|table| table.content(self.guard)) else {
            return false;
        };
        let indexes = content.indexes(self.guard);
        if !indexes.has_all_of(at) {
            return false;
        }
        for (number, index) in indexes.iter().filter(|(_, index)| index.is_kept_at(at)) {
            if let Some(key) = index.key_of(row, &mut self.key) {
                each(number as u16, key);
            }
        }
        true
    }
}

/// The length of a block with these records and this record of inputs, in bytes.
fn block_length(written: &[Written], inputs: usize) -> u64 {
    let rows = written.iter().map(|record| RECORD_HEADER as u64 + u64::from(record.length));
    let length = BLOCK_HEADER as u64 + rows.sum::<u64>() + (RECORD_HEADER + inputs) as u64;
    length.next_multiple_of(BLOCK_ALIGN as u64)
}
