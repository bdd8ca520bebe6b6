//! A small file of a few words that is replaced as a whole, without a rename.
//!
//! Two slots, 512 bytes apart, are written alternately; the one with the larger sequence number
//! whose checksum holds is the newest. So a write that a crash tears leaves the words before it.
//!
//! | slot | |
//! |---|---|
//! | 0..8 | sequence number |
//! | 8..  | the words, 8 bytes each |
//! | then | CRC-32C of all bytes before |

use std::{io, sync::Arc};

use crate::medium::MediumFile;

const SLOT: u64 = 512;
/// Size of the file in bytes.
pub(super) const SLOTS_FILE: u64 = 2 * SLOT;

fn encode<const WORDS: usize>(sequence: u64, words: &[u64; WORDS]) -> Vec<u8> {
    let mut bytes: Vec<u8> = std::iter::once(&sequence).chain(words).flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

fn decode<const WORDS: usize>(bytes: &[u8]) -> Option<(u64, [u64; WORDS])> {
    let (covered, crc) = bytes.split_last_chunk::<4>()?;
    let (words, _) = covered.as_chunks::<8>();
    let word = |index: usize| words.get(index).map(|word| u64::from_le_bytes(*word));
    let mut found = [0; WORDS];
    for (index, place) in found.iter_mut().enumerate() {
        *place = word(index + 1)?;
    }
    (u32::from_le_bytes(*crc) == crc32c::crc32c(covered)).then_some((word(0)?, found))
}

/// The open file and what its newest slot says.
#[derive(Debug)]
pub(super) struct Slots<const WORDS: usize> {
    file: Arc<dyn MediumFile>,
    sequence: u64,
    words: [u64; WORDS],
}

impl<const WORDS: usize> Slots<WORDS> {
    /// What a new file begins with. Both slots hold from the start, so that one is left whatever
    /// becomes of a write to the other.
    pub(super) fn first(words: &[u64; WORDS]) -> Vec<u8> {
        let mut bytes = encode(0, words);
        bytes.resize(SLOT as usize, 0);
        bytes.extend(encode(1, words));
        bytes
    }

    /// Reads the newest slot; none when neither holds.
    pub(super) fn open(file: Arc<dyn MediumFile>) -> io::Result<Option<Self>> {
        let mut newest: Option<(u64, [u64; WORDS])> = None;
        for slot in 0..2 {
            let mut bytes = vec![0; 8 + 8 * WORDS + 4];
            file.read(slot * SLOT, &mut bytes)?;
            if let Some(found) = decode(&bytes)
                && newest.is_none_or(|best| found.0 > best.0)
            {
                newest = Some(found);
            }
        }
        Ok(newest.map(|(sequence, words)| Self { file, sequence, words }))
    }

    /// The same with more words, which are zero.
    pub(super) fn widened<const MORE: usize>(self) -> Slots<MORE> {
        let words = std::array::from_fn(|index| self.words.get(index).copied().unwrap_or(0));
        Slots { file: self.file, sequence: self.sequence, words }
    }

    pub(super) fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    /// Writes the other slot.
    pub(super) fn write(&mut self, words: [u64; WORDS]) -> io::Result<()> {
        let sequence = self.sequence + 1;
        self.file.write((sequence % 2) * SLOT, &encode(sequence, &words))?;
        (self.sequence, self.words) = (sequence, words);
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
