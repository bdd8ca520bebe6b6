//! Slots, byte for byte: see the head of the crate.

use freshet_base::{Fid, Lsn, Rid};
use freshet_fabric::Place;

use crate::{half, word};

/// Bytes of a slot before its row.
pub(crate) const HEADER: usize = 16;
/// Bytes that say where a row lies.
pub(crate) const REFERENCE: usize = 16;
/// No slot of a table has fewer bytes, nor more.
pub(crate) const LEAST: usize = HEADER + REFERENCE;
pub(crate) const MOST: usize = 4096;

const DELETED: u32 = 1 << 31;
const ELSEWHERE: u32 = 1 << 30;
/// No row is longer.
pub(crate) const LONGEST: usize = (ELSEWHERE - 1) as usize;

/// What a slot begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub address: Lsn,
    flags: u32,
    crc: u32,
}

/// Where a row lies that is too long for its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub place: Place,
    pub crc: u32,
}

fn crc_of(id: (Fid, Rid), header: &[u8], content: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&id.0.0.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &id.1.0.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &header[..12]), content)
}

fn header(id: (Fid, Rid), address: Lsn, flags: u32, content: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&address.0.to_le_bytes());
    header[8..12].copy_from_slice(&flags.to_le_bytes());
    let crc = crc_of(id, &header, content);
    header[12..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The header of a record whose row lies in its slot, or which was deleted.
pub(crate) fn header_of(id: (Fid, Rid), address: Lsn, row: Option<&[u8]>) -> [u8; HEADER] {
    match row {
        Some(row) => header(id, address, row.len() as u32, row),
        None => header(id, address, DELETED, &[]),
    }
}

/// The header of a record whose row lies elsewhere, and what says where.
pub(crate) fn elsewhere(id: (Fid, Rid), address: Lsn, row: &[u8], place: Place) -> ([u8; HEADER], [u8; REFERENCE]) {
    let mut content = [0; REFERENCE];
    content[..4].copy_from_slice(&(place.region as u32).to_le_bytes());
    content[4..8].copy_from_slice(&crc32c::crc32c(row).to_le_bytes());
    content[8..].copy_from_slice(&place.offset.to_le_bytes());
    (header(id, address, row.len() as u32 | ELSEWHERE, &content), content)
}

impl Header {
    /// The header of a slot; none of one that was never used.
    pub fn of(bytes: &[u8; HEADER]) -> Option<Self> {
        let header = Self { address: Lsn(word(bytes, 0)), flags: half(bytes, 8), crc: half(bytes, 12) };
        (header != Self { address: Lsn(0), flags: 0, crc: 0 }).then_some(header)
    }

    /// How long its record's row is.
    pub fn length(&self) -> usize {
        (self.flags as usize) & LONGEST
    }

    /// How long its record's row is, if that lies in the slot.
    pub fn row_length(&self) -> Option<usize> {
        (self.flags & (DELETED | ELSEWHERE) == 0).then(|| self.length())
    }

    /// Whether its record was deleted.
    pub fn is_deleted(&self) -> bool {
        self.flags == DELETED
    }

    /// How many bytes of the slot follow that mean something; none when there cannot be any such
    /// header.
    pub fn content(&self) -> Option<usize> {
        match self.flags & (DELETED | ELSEWHERE) {
            0 => Some(self.length()),
            ELSEWHERE => Some(REFERENCE),
            _ => self.is_deleted().then_some(0),
        }
    }

    /// Whether it is the header of this record with this content.
    pub fn holds(&self, id: (Fid, Rid), content: &[u8]) -> bool {
        let mut header = [0; 12];
        header[..8].copy_from_slice(&self.address.0.to_le_bytes());
        header[8..].copy_from_slice(&self.flags.to_le_bytes());
        self.crc == crc_of(id, &header, content)
    }

    /// Where its row lies, if that is elsewhere; `content` is as long as it says.
    pub fn reference(&self, content: &[u8]) -> Option<Reference> {
        (self.flags & ELSEWHERE != 0).then(|| Reference {
            place: Place { region: half(content, 0) as usize, offset: word(content, 8) },
            crc: half(content, 4),
        })
    }
}
