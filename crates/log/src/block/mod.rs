//! Blocks and records: what the log is made of, byte for byte.
//!
//! All numbers are little endian. A block is the redo of one transaction and starts at a multiple
//! of eight; its length is one too. A transaction may have several, one behind the other in the
//! virtual log; every one but the last says that another follows. So it is where the log is divided
//! among streams by pages and a transaction changes pages of several, and when it has more records
//! than fit a block, or is longer than the log's ring takes at once.
//!
//! | block header, 32 bytes | |
//! |---|---|
//! | 0..4   | length of the whole block, a multiple of 8 |
//! | 4..8   | CRC-32C over the records area (bytes 32..length), then header bytes 0..4, then 8..32 |
//! | 8..16  | LSN: where the block starts in the virtual log |
//! | 16..24 | serial key; equal to the LSN today |
//! | 24..28 | term |
//! | 28..30 | number of records |
//! | 30     | bits 0..4 kind: 1 redo, 2 skip, 3 term, 4 schema, 5 time, 6 inputs, 7 members, 8 mark, 9 sums; bit 4: another block of the same transaction follows; bits 5..8: stream |
//! | 31     | format version |
//!
//! | record header, 32 bytes, followed by the row | |
//! |---|---|
//! | 0..8   | address of the version that this one replaces; all ones for none |
//! | 8..16  | RID in the low 48 bits, record kind in bits 48..56: 1 insert, 2 update, 3 delete |
//! | 16..20 | FID |
//! | 20..24 | length of the row |
//! | 24..28 | distance from the start of the block to this header |
//! | 28..32 | of an update, in which of at most 32 parts its row differs from the one that it replaces, which is as long: a bit for each; zero where that is not noted |
//!
//! Records follow one another without padding; zeros fill the block up to a multiple of eight.
//! Behind all others there may be a record of [`Fid::INPUTS`], which says what the transaction was
//! told to do: who replays the others needs it not. The records' part of the checksum does not
//! depend on the LSN, so a worker computes it before it takes the LSN. The body of a skip block
//! is zeros, or in older logs whatever was there: its checksum covers the header alone.

mod build;
mod changed;
mod parse;
mod placed;

pub use freshet_base::RecordKind;
use freshet_base::{Fid, Lsn, Rid, Term, versions::Versions};

pub use build::{BlockBuilder, BlockFull, mark_block, members_block, skip_header, sums_block, term_block, time_block};
pub(crate) use build::{MARK_BLOCK, note_length};
pub use changed::Changed;
pub use parse::{Block, BlockError, RecordRef, Records};
pub(crate) use parse::{check_seal, peek_at};
pub use placed::{Blocks, PlacedBlock, PlacedRecord, PlacedRecords};

/// The block format that is written. Every node that makes a block again has to give it the same
/// bytes, so it may depend on the block alone.
pub const FORMAT: u8 = 1;
/// Those that are read.
pub const READS: Versions = Versions::only(FORMAT as u32);
/// Length of a block header in bytes; no block is shorter.
pub const BLOCK_HEADER: usize = 32;
/// Length of a record header in bytes.
pub const RECORD_HEADER: usize = 32;
/// Blocks start and end at multiples of this many bytes.
pub const BLOCK_ALIGN: usize = 8;
/// How many records one block can hold.
pub const MAX_RECORDS: usize = u16::MAX as usize;
/// No block is longer than this many bytes.
pub const MAX_BLOCK: usize = 1 << 30;
/// How many streams one log can have: what three bits can tell apart.
pub const MAX_STREAMS: usize = 8;
/// In the header's byte 30: another block of the same transaction follows.
pub(crate) const CONTINUED: u8 = 1 << 4;
/// In the header's byte 30: where the stream's number begins.
pub(crate) const STREAM_SHIFT: u32 = 5;
/// What a record header holds as `prev` when it replaces nothing.
const NO_ADDRESS: u64 = u64::MAX;

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The redo records of one transaction.
    Redo,
    /// A reserved range whose transaction failed its validation: no records, and any body.
    Skip,
    /// The first block of a term; says which node leads.
    Term,
    /// Redo that holds catalog records.
    Schema,
    /// Says what time it is: no records. Point-in-time restores look for these.
    Time,
    /// What a transaction was told to do, without what it did: its inputs are the row of a record
    /// of [`Fid::INPUTS`]. Only a node that executes it again can replay it.
    Inputs,
    /// Says which nodes hold everything that is committed, in the words of replication: no records.
    Members,
    /// A place in the log at which all nodes take down what their state is: no records. Replay ends
    /// a job there.
    Mark,
    /// Says what the state was at an earlier mark, in the words of storage: no records.
    Sums,
}

impl BlockKind {
    const fn code(self) -> u8 {
        match self {
            Self::Redo => 1,
            Self::Skip => 2,
            Self::Term => 3,
            Self::Schema => 4,
            Self::Time => 5,
            Self::Inputs => 6,
            Self::Members => 7,
            Self::Mark => 8,
            Self::Sums => 9,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Redo,
            2 => Self::Skip,
            3 => Self::Term,
            4 => Self::Schema,
            5 => Self::Time,
            6 => Self::Inputs,
            7 => Self::Members,
            8 => Self::Mark,
            9 => Self::Sums,
            _ => return None,
        })
    }

    /// Whether blocks of this kind hold records.
    pub const fn has_records(self) -> bool {
        matches!(self, Self::Redo | Self::Schema | Self::Inputs)
    }
}

/// How the log writes a kind of record.
const fn record_code(kind: RecordKind) -> u8 {
    match kind {
        RecordKind::Insert => 1,
        RecordKind::Update => 2,
        RecordKind::Delete => 3,
    }
}

const fn record_kind(code: u8) -> Option<RecordKind> {
    Some(match code {
        1 => RecordKind::Insert,
        2 => RecordKind::Update,
        3 => RecordKind::Delete,
        _ => return None,
    })
}

/// A block's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Length of the whole block in bytes.
    pub length: u32,
    /// CRC-32C as stored.
    pub crc: u32,
    /// Where the block starts in the virtual log.
    pub lsn: Lsn,
    /// Place in the serial order; equal to the LSN today.
    pub serial_key: u64,
    /// The term in which it was written.
    pub term: Term,
    /// How many records it holds.
    pub record_count: u16,
    /// What it is for.
    pub kind: BlockKind,
    /// The stream that it belongs to, below [`MAX_STREAMS`].
    pub stream: u8,
    /// Whether the next block of the virtual log belongs to the same transaction.
    pub continued: bool,
}

impl BlockHeader {
    /// Decodes the header at the beginning of `bytes` and checks its form, but neither the LSN
    /// nor the checksum: enough to hop from block to block.
    ///
    /// # Errors
    /// [`BlockError`] when `bytes` is shorter than a header, or the header is not one.
    pub fn peek(bytes: &[u8]) -> Result<Self, BlockError> {
        parse::peek(bytes)
    }

    /// The end of a block that starts at `self.lsn`.
    pub const fn end(&self) -> Lsn {
        Lsn(self.lsn.0.saturating_add(self.length as u64))
    }

    fn encode(&self) -> [u8; BLOCK_HEADER] {
        let mut bytes = [0; BLOCK_HEADER];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.serial_key.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.term.0.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.record_count.to_le_bytes());
        debug_assert!(usize::from(self.stream) < MAX_STREAMS);
        bytes[30] = self.kind.code() | if self.continued { CONTINUED } else { 0 } | self.stream << STREAM_SHIFT;
        bytes[31] = FORMAT;
        bytes
    }
}

/// A record's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Address of the version that this one replaces.
    pub prev: Option<Lsn>,
    /// Which record of the table.
    pub rid: Rid,
    /// Which table.
    pub fid: Fid,
    /// What it does.
    pub kind: RecordKind,
    /// Length of the row in bytes.
    pub length: u32,
    /// Distance in bytes from the start of the block to this header.
    pub block_back: u32,
    /// Where the row differs from the one that it replaces, if that was noted.
    pub changed: Option<Changed>,
}

impl RecordHeader {
    /// Whether the record had no version before this one, not even a tombstone.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.kind == RecordKind::Insert && self.prev.is_none()
    }

    /// Decodes the header of a record that was found by its address, where the block around it was
    /// checked before (by replay or when it was written).
    ///
    /// # Errors
    /// [`BlockError::Record`] when `bytes` does not begin with a record header.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlockError> {
        parse::record_header(bytes, 0)
    }

    fn encode(&self) -> [u8; RECORD_HEADER] {
        let mut bytes = [0; RECORD_HEADER];
        bytes[0..8].copy_from_slice(&self.prev.map_or(NO_ADDRESS, |at| at.0).to_le_bytes());
        let word = (self.rid.0 & Rid::MAX.0) | (u64::from(record_code(self.kind)) << Rid::BITS);
        bytes[8..16].copy_from_slice(&word.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.fid.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.block_back.to_le_bytes());
        bytes[28..32].copy_from_slice(&Changed::encode(self.changed).to_le_bytes());
        bytes
    }
}

/// The checksum of a block whose records area has the checksum `records`.
fn seal(records: u32, header: &[u8; BLOCK_HEADER]) -> u32 {
    let mut covered = [0; 28];
    covered[..4].copy_from_slice(&header[..4]);
    covered[4..].copy_from_slice(&header[8..]);
    crc32c::crc32c_append(records, &covered)
}
