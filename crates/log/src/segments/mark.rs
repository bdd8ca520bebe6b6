//! The file that says how far the log is durable.
//!
//! Two slots, 512 bytes apart, are written alternately without a sync of their own; the one
//! with the larger sequence number whose checksum holds is the newest. So it never claims more than is true, and
//! after a loss of power it may claim less: it is synced whenever a segment is full and at a clean close.
//!
//! | slot | |
//! |---|---|
//! | 0..8   | sequence number |
//! | 8..16  | stamp: everything below is durable |
//! | 16..20 | CRC-32C of bytes 0..16 |

use std::{io, sync::Arc};

use freshet_base::Stamp;

use crate::medium::MediumFile;

const SLOT: u64 = 512;
const USED: usize = 20;
/// Size of the file in bytes.
pub(super) const MARK_FILE: u64 = 2 * SLOT;

fn encode(sequence: u64, stamp: Stamp) -> [u8; USED] {
    let mut bytes = [0; USED];
    bytes[0..8].copy_from_slice(&sequence.to_le_bytes());
    bytes[8..16].copy_from_slice(&stamp.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; USED]) -> Option<(u64, Stamp)> {
    let word = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
    let crc = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
    (crc == crc32c::crc32c(&bytes[..16])).then(|| (word(0), Stamp(word(8))))
}

/// The open file and what its newest slot says.
#[derive(Debug)]
pub(super) struct Mark {
    file: Arc<dyn MediumFile>,
    sequence: u64,
    stamp: Stamp,
}

impl Mark {
    /// What a new file begins with. Both slots hold from the start, so that one is left whatever becomes of
    /// a write to the other.
    pub(super) fn first(stamp: Stamp) -> Vec<u8> {
        let mut bytes = encode(0, stamp).to_vec();
        bytes.resize(SLOT as usize, 0);
        bytes.extend(encode(1, stamp));
        bytes
    }

    /// Reads the newest slot; none when neither holds.
    pub(super) fn open(file: Arc<dyn MediumFile>) -> io::Result<Option<Self>> {
        let mut newest: Option<(u64, Stamp)> = None;
        for slot in 0..2 {
            let mut bytes = [0; USED];
            file.read(slot * SLOT, &mut bytes)?;
            if let Some(found) = decode(&bytes)
                && newest.is_none_or(|best| found.0 > best.0)
            {
                newest = Some(found);
            }
        }
        Ok(newest.map(|(sequence, stamp)| Self { file, sequence, stamp }))
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Writes the other slot.
    pub(super) fn write(&mut self, stamp: Stamp) -> io::Result<()> {
        let sequence = self.sequence + 1;
        self.file.write((sequence % 2) * SLOT, &encode(sequence, stamp))?;
        (self.sequence, self.stamp) = (sequence, stamp);
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
