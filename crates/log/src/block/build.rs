//! Building blocks, in memory that a worker uses again and again.

use freshet_base::{Fid, Lsn, NodeId, Rid, Term};

use super::{
    BLOCK_ALIGN, BLOCK_HEADER, BlockHeader, BlockKind, Changed, MAX_BLOCK, MAX_RECORDS, MAX_STREAMS, RECORD_HEADER,
    RecordHeader, RecordKind, seal,
};

/// A transaction writes more than the builder was to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transaction writes more than {limit} bytes of log at once")]
pub struct BlockFull {
    /// The builder's limit in bytes.
    pub limit: u64,
}

/// Builds the redo of one transaction at a time: `begin`, `push` for each record, `seal_records`,
/// and once the LSN is known `finish`. That is one block, or several, one behind the other: where
/// the log is divided by pages, one for each stream that it touches
/// ([`BlockBuilder::next_block_in`]), and one more whenever a block has as many records as it can.
/// The memory is kept from transaction to transaction.
#[derive(Debug)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
    blocks: Vec<Begun>,
    limit: usize,
}

impl Default for BlockBuilder {
    fn default() -> Self {
        Self::with_limit(MAX_BLOCK as u64)
    }
}

/// A block under construction.
#[derive(Clone, Copy, Debug)]
struct Begun {
    start: usize,
    end: usize,
    records: u16,
    records_crc: u32,
    stream: u8,
}

impl BlockBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty builder for transactions of at most `limit` bytes in all, headers included; more
    /// than [`MAX_BLOCK`] is not taken.
    pub fn with_limit(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(MAX_BLOCK).min(MAX_BLOCK);
        Self { bytes: Vec::new(), offsets: Vec::new(), blocks: Vec::new(), limit }
    }

    /// From the next transaction on, as for [`BlockBuilder::with_limit`].
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = usize::try_from(limit).unwrap_or(MAX_BLOCK).min(MAX_BLOCK);
    }

    /// Gives memory back that the last transaction took beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        if self.bytes.capacity() > bytes {
            self.bytes.clear();
            self.bytes.shrink_to(bytes);
        }
    }

    /// Forgets the last transaction and starts the next, in stream 0.
    pub fn begin(&mut self) {
        self.begin_in(0);
    }

    /// Forgets the last transaction and starts the next, in `stream`.
    ///
    /// # Panics
    /// When there can be no such stream.
    pub fn begin_in(&mut self, stream: u8) {
        self.bytes.clear();
        self.offsets.clear();
        self.blocks.clear();
        self.add_block(stream);
    }

    /// Ends the block and starts another of the same transaction, in `stream`.
    ///
    /// # Panics
    /// When there can be no such stream.
    pub fn next_block_in(&mut self, stream: u8) {
        self.end_block();
        self.add_block(stream);
    }

    fn add_block(&mut self, stream: u8) {
        assert!(usize::from(stream) < MAX_STREAMS, "streams are numbered below {MAX_STREAMS}");
        let start = self.bytes.len();
        self.bytes.resize(start + BLOCK_HEADER, 0);
        self.blocks.push(Begun { start, end: 0, records: 0, records_crc: 0, stream });
    }

    fn end_block(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK_ALIGN), 0);
        let block = self.blocks.last_mut().expect("begin comes first");
        block.end = self.bytes.len();
        block.records_crc = crc32c::crc32c(&self.bytes[block.start + BLOCK_HEADER..]);
    }

    /// Adds a record and returns its distance from the start of the transaction's first block: its
    /// address will be the LSN plus this. Call [`BlockBuilder::begin`] first.
    ///
    /// # Errors
    /// [`BlockFull`] when the transaction would be longer than the limit; the builder is as before
    /// then.
    ///
    /// # Panics
    /// When `rid` does not fit [`Rid::BITS`].
    pub fn push(
        &mut self,
        prev: Option<Lsn>,
        fid: Fid,
        rid: Rid,
        kind: RecordKind,
        row: &[u8],
    ) -> Result<u32, BlockFull> {
        self.push_over(prev, fid, rid, kind, row, None)
    }

    /// The same of a record whose row replaces `below`, which is at `prev`, if it is to be noted
    /// where the two differ. Only for an update.
    ///
    /// # Errors
    /// As for [`BlockBuilder::push`].
    ///
    /// # Panics
    /// As for [`BlockBuilder::push`].
    pub fn push_over(
        &mut self,
        prev: Option<Lsn>,
        fid: Fid,
        rid: Rid,
        kind: RecordKind,
        row: &[u8],
        below: Option<&[u8]>,
    ) -> Result<u32, BlockFull> {
        debug_assert!(below.is_none() || kind == RecordKind::Update, "nothing else replaces a row by a row");
        assert!(rid <= Rid::MAX, "record ids have {} bits", Rid::BITS);
        // With a header too many, and padding: who is that close to the limit may as well be beyond
        // it.
        if self.bytes.len() + BLOCK_HEADER + RECORD_HEADER + BLOCK_ALIGN + row.len() > self.limit {
            return Err(BlockFull { limit: self.limit as u64 });
        }
        let block = self.blocks.last().expect("begin comes first");
        if usize::from(block.records) == MAX_RECORDS {
            self.next_block_in(block.stream);
        }
        let at = self.bytes.len();
        let block = self.blocks.last_mut().expect("there was one");
        // All fit: bounded by the limit, which is below 2^32.
        let block_back = (at - block.start) as u32;
        let changed = below.and_then(|below| Changed::between(below, row));
        let header = RecordHeader { prev, rid, fid, kind, length: row.len() as u32, block_back, changed };
        block.records += 1;
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(row);
        self.offsets.push(at as u32);
        Ok(at as u32)
    }

    /// How many blocks the transaction has so far.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// How many records were pushed.
    pub fn record_count(&self) -> usize {
        self.offsets.len()
    }

    /// The distance of each record from the start of the first block, in the order of pushing.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Pads the last block, computes the records' part of the checksums and returns the length to
    /// reserve, in bytes.
    pub fn seal_records(&mut self) -> u64 {
        self.end_block();
        self.bytes.len() as u64
    }

    /// Completes what was sealed for the place it was given, and returns it. The records stay as
    /// they are, so it may be called again with another LSN.
    pub fn finish(&mut self, lsn: Lsn, term: Term, kind: BlockKind) -> &[u8] {
        self.finish_part(lsn, term, kind, true)
    }

    /// The same for a transaction that is built part by part: every part but the last says that
    /// another follows.
    pub fn finish_part(&mut self, lsn: Lsn, term: Term, kind: BlockKind, is_last: bool) -> &[u8] {
        let last = if is_last { self.blocks.len() - 1 } else { self.blocks.len() };
        for (number, block) in self.blocks.iter().enumerate() {
            debug_assert!(block.end > block.start, "seal_records comes before finish");
            let lsn = lsn.plus(block.start as u64);
            let header = BlockHeader {
                length: (block.end - block.start) as u32,
                crc: 0,
                lsn,
                serial_key: lsn.0,
                term,
                record_count: block.records,
                kind,
                stream: block.stream,
                continued: number < last,
            };
            let mut encoded = header.encode();
            let crc = seal(block.records_crc, &encoded);
            encoded[4..8].copy_from_slice(&crc.to_le_bytes());
            self.bytes[block.start..block.start + BLOCK_HEADER].copy_from_slice(&encoded);
        }
        &self.bytes
    }
}

/// The header that turns `length` reserved bytes at `lsn` into a skip block of `stream`. The rest
/// of the range keeps whatever it holds.
///
/// # Panics
/// When `length` is no length of a block.
pub fn skip_header(lsn: Lsn, length: u64, term: Term, stream: u8) -> [u8; BLOCK_HEADER] {
    assert!(length >= BLOCK_HEADER as u64 && length <= MAX_BLOCK as u64 && length.is_multiple_of(BLOCK_ALIGN as u64));
    let header = BlockHeader {
        length: length as u32,
        crc: 0,
        lsn,
        serial_key: lsn.0,
        term,
        record_count: 0,
        kind: BlockKind::Skip,
        stream,
        continued: false,
    };
    let mut encoded = header.encode();
    let crc = seal(0, &encoded);
    encoded[4..8].copy_from_slice(&crc.to_le_bytes());
    encoded
}

/// Length in bytes of a block that holds no records but says something of the log itself.
pub(crate) const MARK_BLOCK: usize = BLOCK_HEADER + 16;

fn short_block(lsn: Lsn, term: Term, kind: BlockKind, body: [u8; 16]) -> [u8; MARK_BLOCK] {
    let mut block = [0; MARK_BLOCK];
    block[BLOCK_HEADER..].copy_from_slice(&body);
    let header = BlockHeader {
        length: MARK_BLOCK as u32,
        crc: 0,
        lsn,
        serial_key: lsn.0,
        term,
        record_count: 0,
        kind,
        stream: 0,
        continued: false,
    };
    let mut encoded = header.encode();
    let crc = seal(crc32c::crc32c(&body), &encoded);
    encoded[4..8].copy_from_slice(&crc.to_le_bytes());
    block[..BLOCK_HEADER].copy_from_slice(&encoded);
    block
}

/// Records `bytes`, which say which nodes hold everything that is committed.
pub fn members_block(lsn: Lsn, term: Term, bytes: &[u8]) -> Vec<u8> {
    saying_block(lsn, term, BlockKind::Members, bytes)
}

/// Records `bytes`, which say what the state was at an earlier mark.
pub fn sums_block(lsn: Lsn, term: Term, bytes: &[u8]) -> Vec<u8> {
    saying_block(lsn, term, BlockKind::Sums, bytes)
}

fn saying_block(lsn: Lsn, term: Term, kind: BlockKind, bytes: &[u8]) -> Vec<u8> {
    let mut block = vec![0; note_length(bytes)];
    block[BLOCK_HEADER..BLOCK_HEADER + 4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    block[BLOCK_HEADER + 4..][..bytes.len()].copy_from_slice(bytes);
    let header = BlockHeader {
        length: block.len() as u32,
        crc: 0,
        lsn,
        serial_key: lsn.0,
        term,
        record_count: 0,
        kind,
        stream: 0,
        continued: false,
    };
    let mut encoded = header.encode();
    let crc = seal(crc32c::crc32c(&block[BLOCK_HEADER..]), &encoded);
    encoded[4..8].copy_from_slice(&crc.to_le_bytes());
    block[..BLOCK_HEADER].copy_from_slice(&encoded);
    block
}

/// How long a block is that notes `bytes` of the log itself.
pub(crate) fn note_length(bytes: &[u8]) -> usize {
    (BLOCK_HEADER + 4 + bytes.len()).next_multiple_of(BLOCK_ALIGN)
}

/// The first block of a term: says that `node` leads from `lsn` on.
pub fn term_block(lsn: Lsn, term: Term, node: NodeId) -> [u8; MARK_BLOCK] {
    let mut body = [0; 16];
    body[..4].copy_from_slice(&term.0.to_le_bytes());
    body[4..12].copy_from_slice(&node.0.to_le_bytes());
    short_block(lsn, term, BlockKind::Term, body)
}

/// Says what time it was when the log was this long: microseconds since 1970, by the primary's
/// clock.
pub fn time_block(lsn: Lsn, term: Term, micros: u64) -> [u8; MARK_BLOCK] {
    let mut body = [0; 16];
    body[..8].copy_from_slice(&micros.to_le_bytes());
    short_block(lsn, term, BlockKind::Time, body)
}

/// A place at which all nodes take down what their state is.
pub fn mark_block(lsn: Lsn, term: Term) -> [u8; MARK_BLOCK] {
    short_block(lsn, term, BlockKind::Mark, [0; 16])
}
