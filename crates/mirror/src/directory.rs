//! The directory, and what lies before it: see the head of the crate.

use std::ops::{Range, RangeInclusive};

use freshet_base::{ClusterId, Fid, Lsn, NodeId, Rid, Term};
use freshet_fabric::Place;

use crate::{half, word};

/// Where in region 0 the mark is: everything below this LSN is committed.
pub const MARK: u64 = 1024;
/// Where in region 0 it says which further regions belong to the undo ring, a word for each.
pub(crate) const MORE_UNDO: u64 = 2048;
/// The undo ring has no more regions than this.
pub const MOST_UNDO: usize = 128;
/// Where in region 0 the directory begins.
pub const DIRECTORY: u64 = 4096;
/// The first region of the undo ring.
pub const UNDO: usize = 1;
/// The first arena.
pub const ARENAS: usize = 2;
/// Bytes of an entry, and of a superblock.
pub(crate) const ENTRY: usize = 64;
/// Where the copies of the superblock are.
pub(crate) const COPIES: [u64; 2] = [0, 512];

const MAGIC: &[u8; 8] = b"FRESHMIR";
/// What is written.
const FORMAT: u32 = 4;
/// In 3 the undo ring has one region.
const READS: RangeInclusive<u32> = 3..=FORMAT;
const TABLE: u32 = 1;
const OVERFLOW: u32 = 2;
const FREE: u32 = 3;

fn seal(bytes: &mut [u8; ENTRY], number: u32) {
    let crc = crc32c::crc32c_append(number, &bytes[..ENTRY - 4]);
    bytes[ENTRY - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8; ENTRY], number: u32) -> bool {
    half(bytes, ENTRY - 4) == crc32c::crc32c_append(number, &bytes[..ENTRY - 4])
}

/// Whose memory this is a mirror of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Counts superblocks: of two copies, the larger number is the newer.
    pub sequence: u64,
    /// The cluster.
    pub cluster: ClusterId,
    /// The node that writes here.
    pub feeder: NodeId,
    /// Its term.
    pub term: Term,
    /// Where the present feed began: everything below was here, and is never undone.
    pub base: Lsn,
}

impl Superblock {
    /// It in bytes, and where the next copy belongs in region 0.
    pub fn encode(&self) -> (u64, [u8; ENTRY]) {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.term.0.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.cluster.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.feeder.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.base.0.to_le_bytes());
        seal(&mut bytes, 0);
        (COPIES[(self.sequence % 2) as usize], bytes)
    }

    /// What the bytes say, if they are a superblock.
    pub(crate) fn decode(bytes: &[u8; ENTRY]) -> Option<Self> {
        if bytes[..8] != *MAGIC || !READS.contains(&half(bytes, 8)) || !is_sealed(bytes, 0) {
            return None;
        }
        Some(Self {
            sequence: word(bytes, 40),
            cluster: ClusterId(u128::from(word(bytes, 16)) | u128::from(word(bytes, 24)) << 64),
            feeder: NodeId(word(bytes, 32)),
            term: Term(half(bytes, 12)),
            base: Lsn(word(bytes, 48)),
        })
    }
}

/// What a chunk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The records of this table from this id on.
    Table(Fid, Rid),
    /// Rows that are too long for their slots.
    Overflow,
    /// Nothing: what lies there means nothing.
    Free,
}

/// Slots of one size, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub used_for: Use,
    pub place: Place,
    /// How many bytes it has. Behind the slots there may be some more.
    pub bytes: u64,
    /// Bytes of a slot.
    pub slot: u64,
    /// How many there are.
    pub slots: u32,
}

impl Chunk {
    /// Where the directory has the chunk of this number.
    pub fn entry(number: u32) -> Place {
        Place { region: 0, offset: DIRECTORY + u64::from(number) * ENTRY as u64 }
    }

    pub fn encode(&self, number: u32) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let (kind, fid, first) = match self.used_for {
            Use::Table(fid, first) => (TABLE, fid.0, first.0),
            Use::Overflow => (OVERFLOW, 0, 0),
            Use::Free => (FREE, 0, 0),
        };
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&fid.to_le_bytes());
        bytes[8..16].copy_from_slice(&first.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.place.region as u32).to_le_bytes());
        bytes[20..24].copy_from_slice(&self.slots.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.place.offset.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.slot.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.bytes.to_le_bytes());
        seal(&mut bytes, number);
        bytes
    }

    /// What an entry says, if it is one; whether that is possible is another question.
    pub fn decode(number: u32, bytes: &[u8; ENTRY]) -> Option<Self> {
        let used_for = match half(bytes, 0) {
            TABLE => Use::Table(Fid(half(bytes, 4)), Rid(word(bytes, 8))),
            OVERFLOW => Use::Overflow,
            FREE => Use::Free,
            _ => return None,
        };
        let place = Place { region: half(bytes, 16) as usize, offset: word(bytes, 24) };
        let (slot, bytes_of_all) = (word(bytes, 32), word(bytes, 40));
        let chunk = Self { used_for, place, bytes: bytes_of_all, slot, slots: half(bytes, 20) };
        is_sealed(bytes, number).then_some(chunk)
    }

    /// Where it ends in its region.
    pub fn end(&self) -> u64 {
        self.place.offset + self.bytes
    }

    /// The records whose slots it has.
    pub fn rids(&self) -> Range<u64> {
        match self.used_for {
            Use::Table(_, first) => first.0..first.0 + u64::from(self.slots),
            Use::Overflow | Use::Free => 0..0,
        }
    }

    /// Where its slot of this number is; it has that many.
    pub fn slot_at(&self, number: u32) -> Place {
        Place { offset: self.place.offset + u64::from(number) * self.slot, ..self.place }
    }
}
