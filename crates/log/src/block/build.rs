//! Building blocks, in memory that a worker uses again and again.

use freshet_base::{Fid, NodeId, Rid, Stamp, Term};

use super::{
    BLOCK_ALIGN, BLOCK_HEADER, BlockHeader, BlockKind, MAX_BLOCK, MAX_RECORDS, RECORD_HEADER, RecordHeader, RecordKind,
    seal,
};

/// A transaction writes more than one block can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the transaction writes more than one log block can hold (at most {MAX_RECORDS} records and {MAX_BLOCK} bytes): \
     split it into smaller transactions"
)]
pub struct BlockFull;

/// Builds one block at a time: `begin`, `push` for each record, `seal_records`, and once the stamp is
/// known `finish`. The memory is kept from block to block.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
    records_crc: u32,
}

impl BlockBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the last block and starts the next.
    pub fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.resize(BLOCK_HEADER, 0);
        self.offsets.clear();
    }

    /// Adds a record and returns its distance from the start of the block: its address will be the block's
    /// stamp plus this. Call [`BlockBuilder::begin`] first.
    ///
    /// # Errors
    /// [`BlockFull`] when the block cannot hold it; the builder is as before then.
    ///
    /// # Panics
    /// When `rid` does not fit [`Rid::BITS`].
    pub fn push(
        &mut self,
        prev: Option<Stamp>,
        fid: Fid,
        rid: Rid,
        kind: RecordKind,
        row: &[u8],
    ) -> Result<u32, BlockFull> {
        assert!(rid <= Rid::MAX, "record ids have {} bits", Rid::BITS);
        let at = self.bytes.len();
        if self.offsets.len() == MAX_RECORDS || row.len() > MAX_BLOCK || at + RECORD_HEADER + row.len() > MAX_BLOCK {
            return Err(BlockFull);
        }
        // Both fit: bounded by MAX_BLOCK, which is below 2^32.
        let header = RecordHeader { prev, rid, fid, kind, length: row.len() as u32, block_back: at as u32 };
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(row);
        self.offsets.push(at as u32);
        Ok(at as u32)
    }

    /// How many records were pushed.
    pub fn record_count(&self) -> usize {
        self.offsets.len()
    }

    /// The distance of each record from the start of the block, in the order of pushing.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Pads the block, computes the records' part of the checksum and returns the length to reserve, in bytes.
    pub fn seal_records(&mut self) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK_ALIGN), 0);
        self.records_crc = crc32c::crc32c(&self.bytes[BLOCK_HEADER..]);
        self.bytes.len() as u64
    }

    /// Completes the sealed block for the place it was given, and returns it. The records stay as they are,
    /// so it may be called again with another stamp.
    pub fn finish(&mut self, stamp: Stamp, term: Term, kind: BlockKind) -> &[u8] {
        debug_assert!(self.bytes.len().is_multiple_of(BLOCK_ALIGN), "seal_records comes before finish");
        let header = BlockHeader {
            length: self.bytes.len() as u32,
            crc: 0,
            stamp,
            serial_key: stamp.0,
            term,
            record_count: self.offsets.len() as u16,
            kind,
        };
        let mut encoded = header.encode();
        let crc = seal(self.records_crc, &encoded);
        encoded[4..8].copy_from_slice(&crc.to_le_bytes());
        self.bytes[..BLOCK_HEADER].copy_from_slice(&encoded);
        &self.bytes
    }
}

/// The header that turns `length` reserved bytes at `stamp` into a skip block. The rest of the range keeps
/// whatever it holds.
///
/// # Panics
/// When `length` is no length of a block.
pub fn skip_header(stamp: Stamp, length: u64, term: Term) -> [u8; BLOCK_HEADER] {
    assert!(length >= BLOCK_HEADER as u64 && length <= MAX_BLOCK as u64 && length.is_multiple_of(BLOCK_ALIGN as u64));
    let header = BlockHeader {
        length: length as u32,
        crc: 0,
        stamp,
        serial_key: stamp.0,
        term,
        record_count: 0,
        kind: BlockKind::Skip,
    };
    let mut encoded = header.encode();
    let crc = seal(0, &encoded);
    encoded[4..8].copy_from_slice(&crc.to_le_bytes());
    encoded
}

/// Length of a term block in bytes.
pub(crate) const TERM_BLOCK: usize = BLOCK_HEADER + 16;

/// The first block of a term: says that `node` reigns from `stamp` on.
pub fn term_block(stamp: Stamp, term: Term, node: NodeId) -> [u8; TERM_BLOCK] {
    let mut block = [0; TERM_BLOCK];
    block[BLOCK_HEADER..BLOCK_HEADER + 4].copy_from_slice(&term.0.to_le_bytes());
    block[BLOCK_HEADER + 4..BLOCK_HEADER + 12].copy_from_slice(&node.0.to_le_bytes());
    let header = BlockHeader {
        length: TERM_BLOCK as u32,
        crc: 0,
        stamp,
        serial_key: stamp.0,
        term,
        record_count: 0,
        kind: BlockKind::Term,
    };
    let mut encoded = header.encode();
    let crc = seal(crc32c::crc32c(&block[BLOCK_HEADER..]), &encoded);
    encoded[4..8].copy_from_slice(&crc.to_le_bytes());
    block[..BLOCK_HEADER].copy_from_slice(&encoded);
    block
}
