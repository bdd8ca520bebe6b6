//! Blocks for those who replay them, where they lie: in the ring, or in bytes that were read.
//!
//! What lies in the ring was verified when it was accepted, and is kept until it is replayed
//! ([`crate::LogReader::blocks`]): it is not verified again, and not copied. The node that was
//! allowed to write into the ring could still do so; so what lies there is loaded, and never a
//! reference. A header is loaded once, bounds are checked before it means anything, and rows are
//! loaded only for those who look at them. Bytes that were read, from a device perhaps, are
//! verified here.

use freshet_base::Lsn;

use super::{BLOCK_HEADER, Block, BlockError, BlockHeader, RECORD_HEADER, RecordHeader, parse};
use crate::buffer::LogBuffer;

/// Where blocks lie.
#[derive(Clone, Copy, Debug)]
enum Place<'l> {
    Ring(&'l LogBuffer),
    /// The first byte is this one of the virtual log.
    Bytes(&'l [u8], Lsn),
}

impl<'l> Place<'l> {
    /// Whoever asks has checked that they are there.
    #[inline]
    fn load(self, at: Lsn, into: &mut [u8]) {
        match self {
            Self::Ring(ring) => ring.own_bytes(at, into),
            Self::Bytes(bytes, from) => into.copy_from_slice(&bytes[at.since(from) as usize..][..into.len()]),
        }
    }

    #[inline]
    fn bytes<'b>(self, at: Lsn, length: usize, into: &'b mut Vec<u8>) -> &'b [u8]
    where
        'l: 'b,
    {
        match self {
            Self::Ring(ring) => {
                into.resize(length, 0);
                ring.own_bytes(at, into);
                into
            }
            Self::Bytes(bytes, from) => &bytes[at.since(from) as usize..][..length],
        }
    }
}

/// The blocks of a range, one after the other; after the first that is none, nothing.
#[derive(Clone, Debug)]
pub struct Blocks<'l> {
    place: Place<'l>,
    at: Lsn,
    to: Lsn,
}

impl<'l> Blocks<'l> {
    /// Those in `[from, to)` of the ring, which were verified and stay there.
    pub(crate) fn in_ring(ring: &'l LogBuffer, from: Lsn, to: Lsn) -> Self {
        Self { place: Place::Ring(ring), at: from, to }
    }

    /// Whether they lie in the ring.
    pub fn are_in_ring(&self) -> bool {
        matches!(self.place, Place::Ring(_))
    }

    /// Those in `bytes`, which begin at `from`; each is verified when it comes.
    pub fn in_bytes(bytes: &'l [u8], from: Lsn) -> Self {
        Self { place: Place::Bytes(bytes, from), at: from, to: from.plus(bytes.len() as u64) }
    }

    fn look(&self) -> Result<BlockHeader, BlockError> {
        if let Place::Bytes(bytes, from) = self.place {
            return Block::parse(&bytes[self.at.since(from) as usize..], self.at).map(|block| *block.header());
        }
        let have = self.to.since(self.at);
        let mut head = [0; BLOCK_HEADER];
        let need = BLOCK_HEADER as u64;
        if have < need {
            return Err(BlockError::Truncated { need, have });
        }
        self.place.load(self.at, &mut head);
        let header = parse::peek_at(&head, self.at)?;
        let need = u64::from(header.length);
        if have < need { Err(BlockError::Truncated { need, have }) } else { Ok(header) }
    }
}

impl<'l> Iterator for Blocks<'l> {
    /// What is wrong, and where.
    type Item = Result<PlacedBlock<'l>, (Lsn, BlockError)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.to {
            return None;
        }
        let at = self.at;
        let looked = self.look();
        self.at = looked.as_ref().map_or(self.to, |header| header.end());
        Some(looked.map(|header| PlacedBlock { place: self.place, header }).map_err(|why| (at, why)))
    }
}

/// A block where it lies.
#[derive(Clone, Copy, Debug)]
pub struct PlacedBlock<'l> {
    place: Place<'l>,
    header: BlockHeader,
}

impl<'l> PlacedBlock<'l> {
    /// Its header.
    pub fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// The whole block, in `into` if need be.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn whole<'b>(&self, into: &'b mut Vec<u8>) -> Result<Block<'b>, (Lsn, BlockError)>
    where
        'l: 'b,
    {
        let at = self.header.lsn;
        Block::parse(self.place.bytes(at, self.header.length as usize, into), at).map_err(|why| (at, why))
    }

    /// Its records in the order of writing; none unless the kind has records.
    pub fn records(&self) -> PlacedRecords<'l> {
        let count = if self.header.kind.has_records() { self.header.record_count } else { 0 };
        PlacedRecords { place: self.place, block: self.header, at: BLOCK_HEADER as u64, left: count }
    }
}

/// Iterates over the records of a block; after the first that is none, nothing.
#[derive(Clone, Debug)]
pub struct PlacedRecords<'l> {
    place: Place<'l>,
    block: BlockHeader,
    at: u64,
    left: u16,
}

impl<'l> PlacedRecords<'l> {
    #[inline]
    fn look(&self, address: Lsn) -> Result<RecordHeader, BlockError> {
        let wrong = BlockError::Record(self.at as u32);
        let rest = (u64::from(self.block.length) - self.at).checked_sub(RECORD_HEADER as u64).ok_or(wrong)?;
        let mut head = [0; RECORD_HEADER];
        self.place.load(address, &mut head);
        let header = parse::record_header(&head, self.at as u32)?;
        let fits = u64::from(header.block_back) == self.at && u64::from(header.length) <= rest;
        if fits { Ok(header) } else { Err(wrong) }
    }
}

impl<'l> Iterator for PlacedRecords<'l> {
    /// What is wrong, and where.
    type Item = Result<PlacedRecord<'l>, (Lsn, BlockError)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let address = self.block.lsn.plus(self.at);
        let looked = self.look(address);
        match &looked {
            Ok(header) => self.at += RECORD_HEADER as u64 + u64::from(header.length),
            Err(_) => self.left = 0,
        }
        Some(looked.map(|header| PlacedRecord { place: self.place, address, header }).map_err(|why| (address, why)))
    }
}

/// A record where it lies.
#[derive(Clone, Copy, Debug)]
pub struct PlacedRecord<'l> {
    place: Place<'l>,
    /// Where its header is in the virtual log: the version's LSN.
    pub address: Lsn,
    /// Its header.
    pub header: RecordHeader,
}

impl<'l> PlacedRecord<'l> {
    /// A record that was kept with its row.
    pub fn of(address: Lsn, header: RecordHeader, row: &'l [u8]) -> Self {
        Self { place: Place::Bytes(row, address.plus(RECORD_HEADER as u64)), address, header }
    }

    /// Its row, in `into` if need be.
    #[inline]
    pub fn row<'b>(&self, into: &'b mut Vec<u8>) -> &'b [u8]
    where
        'l: 'b,
    {
        self.place.bytes(self.address.plus(RECORD_HEADER as u64), self.header.length as usize, into)
    }
}
