//! Slots, byte for byte: see the head of the crate.

use freshet_base::{Fid, Rid, Stamp};
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
    pub address: Stamp,
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

fn put(id: (Fid, Rid), address: Stamp, flags: u32, content: &[u8], into: &mut Vec<u8>) {
    let begin = into.len();
    into.extend_from_slice(&address.0.to_le_bytes());
    into.extend_from_slice(&flags.to_le_bytes());
    let crc = crc_of(id, &into[begin..], content);
    into.extend_from_slice(&crc.to_le_bytes());
    into.extend_from_slice(content);
}

/// Appends the slot of a record whose row lies in it.
pub(crate) fn put_row(id: (Fid, Rid), address: Stamp, row: &[u8], into: &mut Vec<u8>) {
    put(id, address, row.len() as u32, row, into);
}

/// Appends the slot of a record whose row, of `length` bytes, lies elsewhere.
pub(crate) fn put_reference(id: (Fid, Rid), address: Stamp, length: usize, to: Reference, into: &mut Vec<u8>) {
    let mut content = [0; REFERENCE];
    content[..4].copy_from_slice(&(to.place.region as u32).to_le_bytes());
    content[4..8].copy_from_slice(&to.crc.to_le_bytes());
    content[8..].copy_from_slice(&to.place.offset.to_le_bytes());
    put(id, address, length as u32 | ELSEWHERE, &content, into);
}

/// Appends the slot of a record that was deleted: its header.
pub(crate) fn put_deletion(id: (Fid, Rid), address: Stamp, into: &mut Vec<u8>) {
    put(id, address, DELETED, &[], into);
}

impl Header {
    /// The header of a slot; none of one that was never used.
    pub fn of(bytes: &[u8; HEADER]) -> Option<Self> {
        let header = Self { address: Stamp(word(bytes, 0)), flags: half(bytes, 8), crc: half(bytes, 12) };
        (header != Self { address: Stamp(0), flags: 0, crc: 0 }).then_some(header)
    }

    /// How long its record's row is.
    pub fn length(&self) -> usize {
        (self.flags as usize) & LONGEST
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
