//! Reading blocks that may be anything: nothing here panics, whatever the bytes.

use freshet_base::{Fid, Lsn, NodeId, RecordKind, Rid, Term, versions::OtherVersion};

use super::{
    BLOCK_ALIGN, BLOCK_HEADER, BlockHeader, BlockKind, CONTINUED, Changed, MAX_BLOCK, NO_ADDRESS, READS, RECORD_HEADER,
    RecordHeader, STREAM_SHIFT, record_kind, seal,
};

/// Why bytes are not a block of this log at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Nothing was ever written here.
    #[error("zeros where a block should start")]
    Empty,
    /// The bytes end before the block does.
    #[error("the block needs {need} bytes, but only {have} are left")]
    Truncated {
        /// Length of the block, or of a header when that is not known.
        need: u64,
        /// Bytes that are there.
        have: u64,
    },
    /// No block has this length.
    #[error("no block has this length")]
    Length(u32),
    /// Written by another version of Freshet.
    #[error("it is no block, or has {0}")]
    Format(OtherVersion),
    /// No kind has this code.
    #[error("no block is of this kind")]
    Kind(u8),
    /// A block, but of another place: left over from an earlier use of the memory or file.
    #[error("the block is one of another place than {at}")]
    Lsn {
        /// The LSN in the header.
        found: Lsn,
        /// Where it was found.
        at: Lsn,
    },
    /// The bytes are not those that were written.
    #[error("the checksum does not match")]
    Checksum {
        /// CRC-32C of the bytes.
        computed: u32,
        /// CRC-32C in the header.
        stored: u32,
    },
    /// The checksum holds, yet a record's header contradicts the block.
    #[error("the record at offset {0} of the block is invalid")]
    Record(u32),
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}

pub(super) fn peek(bytes: &[u8]) -> Result<BlockHeader, BlockError> {
    let have = bytes.len();
    let Some(bytes) = bytes.first_chunk::<BLOCK_HEADER>() else {
        return Err(BlockError::Truncated { need: BLOCK_HEADER as u64, have: have as u64 });
    };
    if bytes == &[0; BLOCK_HEADER] {
        return Err(BlockError::Empty);
    }
    READS.check(bytes[31].into()).map_err(BlockError::Format)?;
    let length = u32_at(bytes, 0);
    if (length as usize) < BLOCK_HEADER || length as usize > MAX_BLOCK || !(length as usize).is_multiple_of(BLOCK_ALIGN)
    {
        return Err(BlockError::Length(length));
    }
    let kind = BlockKind::from_code(bytes[30] & (CONTINUED - 1)).ok_or(BlockError::Kind(bytes[30]))?;
    Ok(BlockHeader {
        length,
        crc: u32_at(bytes, 4),
        lsn: Lsn(u64_at(bytes, 8)),
        serial_key: u64_at(bytes, 16),
        term: Term(u32_at(bytes, 24)),
        record_count: u16::from_le_bytes([bytes[28], bytes[29]]),
        kind,
        stream: bytes[30] >> STREAM_SHIFT,
        continued: bytes[30] & CONTINUED != 0,
    })
}

/// The header of the block at `at`.
pub(crate) fn peek_at(bytes: &[u8], at: Lsn) -> Result<BlockHeader, BlockError> {
    let header = peek(bytes)?;
    if header.lsn != at {
        return Err(BlockError::Lsn { found: header.lsn, at });
    }
    if at.0.checked_add(u64::from(header.length)).is_none() {
        return Err(BlockError::Length(header.length));
    }
    Ok(header)
}

/// Whether a block has the checksum that its header says, if its body has the checksum `body`.
pub(crate) fn check_seal(header: &BlockHeader, head: &[u8; BLOCK_HEADER], body: u32) -> Result<(), BlockError> {
    let computed = seal(if header.kind == BlockKind::Skip { 0 } else { body }, head);
    if computed == header.crc { Ok(()) } else { Err(BlockError::Checksum { computed, stored: header.crc }) }
}

/// Decodes the record header at the beginning of `bytes`; `at` is for the message only.
pub(super) fn record_header(bytes: &[u8], at: u32) -> Result<RecordHeader, BlockError> {
    let Some(bytes) = bytes.first_chunk::<RECORD_HEADER>() else { return Err(BlockError::Record(at)) };
    let (prev, word) = (u64_at(bytes, 0), u64_at(bytes, 8));
    let kind = record_kind((word >> Rid::BITS) as u8).ok_or(BlockError::Record(at))?;
    if word >> (Rid::BITS + 8) != 0 {
        return Err(BlockError::Record(at));
    }
    let length = u32_at(bytes, 20);
    let changed = Changed::decode(u32_at(bytes, 28), length, at)?;
    if changed.is_some() && kind != RecordKind::Update {
        return Err(BlockError::Record(at));
    }
    Ok(RecordHeader {
        prev: (prev != NO_ADDRESS).then_some(Lsn(prev)),
        rid: Rid(word & Rid::MAX.0),
        fid: Fid(u32_at(bytes, 16)),
        kind,
        length,
        block_back: u32_at(bytes, 24),
        changed,
    })
}

/// A block whose length, place, version, checksum and records were all checked.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    header: BlockHeader,
    bytes: &'a [u8],
}

impl<'a> Block<'a> {
    /// Checks the block that starts at the beginning of `bytes`, `at` in the virtual log; `bytes`
    /// may go on behind it.
    ///
    /// # Errors
    /// [`BlockError`] names the first thing that does not hold. Any input is safe.
    pub fn parse(bytes: &'a [u8], at: Lsn) -> Result<Self, BlockError> {
        let header = peek_at(bytes, at)?;
        let have = bytes.len() as u64;
        let truncated = BlockError::Truncated { need: u64::from(header.length), have };
        let bytes = bytes.get(..header.length as usize).ok_or(truncated)?;
        let (head, body) = bytes.split_first_chunk::<BLOCK_HEADER>().ok_or(truncated)?;
        check_seal(&header, head, crc32c::crc32c(body))?;
        let block = Self { header, bytes };
        block.check_records()?;
        Ok(block)
    }

    fn check_records(&self) -> Result<(), BlockError> {
        if !self.header.kind.has_records() {
            return if self.header.record_count == 0 { Ok(()) } else { Err(BlockError::Record(0)) };
        }
        let mut at = BLOCK_HEADER;
        for _ in 0..self.header.record_count {
            let here = at as u32;
            let rest = self.bytes.get(at..).ok_or(BlockError::Record(here))?;
            let record = record_header(rest, here)?;
            if record.block_back != here || RECORD_HEADER as u64 + u64::from(record.length) > rest.len() as u64 {
                return Err(BlockError::Record(here));
            }
            at += RECORD_HEADER + record.length as usize;
        }
        // Less than one alignment of padding, all zero, is left.
        let padding = self.bytes.get(at..).ok_or(BlockError::Record(at as u32))?;
        if padding.len() >= BLOCK_ALIGN || padding.iter().any(|byte| *byte != 0) {
            return Err(BlockError::Record(at as u32));
        }
        Ok(())
    }

    /// Its header.
    pub fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// Where it starts in the virtual log.
    pub fn lsn(&self) -> Lsn {
        self.header.lsn
    }

    /// Where the next block starts.
    pub fn end(&self) -> Lsn {
        self.header.end()
    }

    /// All its bytes, header included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its records in the order of writing; none unless the kind has records.
    pub fn records(&self) -> Records<'a> {
        let count = if self.header.kind.has_records() { self.header.record_count } else { 0 };
        Records { lsn: self.header.lsn, bytes: self.bytes, at: BLOCK_HEADER, left: count }
    }

    /// What the transaction was told to do, if its last record says so. Goes through all records.
    pub fn inputs(&self) -> Option<&'a [u8]> {
        self.records().last().filter(|record| record.header.fid == Fid::INPUTS).map(|record| record.row)
    }

    /// For a term block: the term that begins and the node that leads in it.
    pub fn begins_term(&self) -> Option<(Term, NodeId)> {
        (self.header.kind == BlockKind::Term && self.bytes.len() >= BLOCK_HEADER + 12)
            .then(|| (Term(u32_at(self.bytes, BLOCK_HEADER)), NodeId(u64_at(self.bytes, BLOCK_HEADER + 4))))
    }

    /// For a block of members: what it records.
    pub fn members(&self) -> Option<&'a [u8]> {
        self.noted(BlockKind::Members)
    }

    /// For a block of sums: what it records.
    pub fn sums(&self) -> Option<&'a [u8]> {
        self.noted(BlockKind::Sums)
    }

    fn noted(&self, kind: BlockKind) -> Option<&'a [u8]> {
        let body = self.bytes.get(BLOCK_HEADER..).filter(|_| self.header.kind == kind)?;
        let (length, rest) = body.split_first_chunk::<4>()?;
        rest.get(..u32::from_le_bytes(*length) as usize)
    }

    /// For a time block: what time it was, in microseconds since 1970, by the primary's clock.
    pub fn time(&self) -> Option<u64> {
        (self.header.kind == BlockKind::Time && self.bytes.len() >= BLOCK_HEADER + 8)
            .then(|| u64_at(self.bytes, BLOCK_HEADER))
    }
}

/// One record of a checked block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Where its header is in the virtual log: the version's LSN.
    pub address: Lsn,
    /// Its header.
    pub header: RecordHeader,
    /// Its row.
    pub row: &'a [u8],
}

/// Iterates over the records of a block.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    lsn: Lsn,
    bytes: &'a [u8],
    at: usize,
    left: u16,
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordRef<'a>;

    fn next(&mut self) -> Option<RecordRef<'a>> {
        self.left = self.left.checked_sub(1)?;
        // `Block::parse` went the same way, so neither `?` is ever taken.
        let rest = self.bytes.get(self.at..)?;
        let header = record_header(rest, self.at as u32).ok()?;
        let row = rest.get(RECORD_HEADER..RECORD_HEADER + header.length as usize)?;
        let address = self.lsn.plus(self.at as u64);
        self.at += RECORD_HEADER + header.length as usize;
        Some(RecordRef { address, header, row })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for Records<'_> {}
