//! What has arrived and is no block yet: batches in another form than that of the log, which become
//! blocks when they are regenerated. A standby keeps them here, durably, so that it may acknowledge
//! them before that.
//!
//! A journal is a sequence of files beside the log's segments, the last one is written. Each is
//! preallocated and zero behind what was written. A batch is written behind the one before, and
//! durable after the next [`Journal::sync`]. A file goes when the log itself has durably what its
//! batches are ([`Journal::trim`]).
//!
//! | file header, 16 bytes | |
//! |---|---|
//! | 0..8  | `FRJOUR01` |
//! | 8..16 | the file's number, which is in its name too |
//!
//! | entry, 32 bytes and its body, padded with zeros to a multiple of 8 | |
//! |---|---|
//! | 0..4   | length of the body |
//! | 4..8   | CRC-32C over the other bytes of this header, then the body |
//! | 8..16  | stamp of the batch's first block |
//! | 16..24 | where the batch ends |
//! | 24..32 | number of the file |
//!
//! An entry that ends where it begins takes back whatever stands before it, in any file, from that
//! stamp on: the log was cut there. The first entry of a file that does not hold ends it: a crash
//! came between its writing and its sync. The entries behind it, if there are some, are in later
//! files; they do not follow what is left, and count for nothing, as they were never said to be
//! durable.
//!
//! What is found by [`Journal::open`] is written again and synced before it is returned: it may
//! never have been durable.

use std::{collections::VecDeque, fmt, io, sync::Arc};

use freshet_base::Stamp;

use crate::{
    medium::{Medium, MediumFile},
    segments::StoreError,
};

const MAGIC: &[u8; 8] = b"FRJOUR01";
const FILE_HEADER: usize = 16;
const ENTRY_HEADER: usize = 32;
/// A file has this many bytes, or as many as its first batch needs.
const FILE: u64 = 16 << 20;
const PREFIX: &str = "journal-";

/// A batch that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The stamp of its first block.
    pub from: Stamp,
    /// Where it ends for this log. What lies beyond in `bytes` was cut away.
    pub to: Stamp,
    /// The batch.
    pub bytes: Vec<u8>,
}

/// A file, and where the last of its batches ends.
struct Kept {
    name: String,
    end: Stamp,
}

/// The file that is written.
struct Open {
    file: Arc<dyn MediumFile>,
    number: u64,
    at: u64,
    size: u64,
    synced: bool,
}

/// A journal. Errors end it: nothing is written after a write or a sync that has failed.
pub struct Journal {
    medium: Arc<dyn Medium>,
    kept: VecDeque<Kept>,
    open: Option<Open>,
    next: u64,
    /// How many bytes a file has, if not more are needed.
    size: u64,
    failed: bool,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Journal({} files)", self.kept.len())
    }
}

impl Journal {
    /// Opens the journal of a log that ends at `end`. Returns the batches that continue that log,
    /// without gaps; they are durable. Others are forgotten. Blocks for reading and writing.
    ///
    /// # Errors
    /// [`StoreError`]. What is damaged is no error: it is what a crash leaves.
    pub fn open(medium: Arc<dyn Medium>, end: Stamp) -> Result<(Self, Vec<Found>), StoreError> {
        Self::open_with(medium, end, FILE)
    }

    /// The same, with files of `size` bytes.
    ///
    /// # Errors
    /// As there.
    pub fn open_with(medium: Arc<dyn Medium>, end: Stamp, size: u64) -> Result<(Self, Vec<Found>), StoreError> {
        let mut journal = Self::closed(medium, size);
        let (numbers, found) = journal.find(end)?;
        journal.next = numbers.last().map_or(0, |last| last + 1);
        for batch in &found {
            journal.append(batch.from, batch.to, &batch.bytes)?;
        }
        journal.sync()?;
        for number in numbers {
            let name = name_of(number);
            journal.medium.remove(&name).map_err(|source| journal.error("remove", &name, 0, source))?;
        }
        Ok((journal, found))
    }

    /// Whether the journal holds what continues a log that ends at `end`. Changes nothing. Blocks
    /// for reading.
    ///
    /// # Errors
    /// As for [`Journal::open`].
    pub fn continues(medium: Arc<dyn Medium>, end: Stamp) -> Result<bool, StoreError> {
        Ok(!Self::closed(medium, FILE).find(end)?.1.is_empty())
    }

    fn closed(medium: Arc<dyn Medium>, size: u64) -> Self {
        Self { medium, kept: VecDeque::new(), open: None, next: 0, size, failed: false }
    }

    /// The numbers of the files that are there, ascending, and the batches that continue a log that
    /// ends at `end`.
    fn find(&self, end: Stamp) -> Result<(Vec<u64>, Vec<Found>), StoreError> {
        let names = self.medium.list().map_err(|source| self.error("list", "", 0, source))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        let mut found = Vec::new();
        for number in &numbers {
            self.read(*number, &mut found)?;
        }
        let mut at = end;
        found.retain(|batch| {
            let follows = batch.from <= at && batch.to > at;
            at = if follows { batch.to } else { at };
            follows
        });
        Ok((numbers, found))
    }

    fn error(&self, doing: &'static str, name: &str, offset: u64, source: io::Error) -> StoreError {
        StoreError::Io { doing, file: self.medium.path(name), offset, source }
    }

    /// Adds what the file holds.
    fn read(&self, number: u64, found: &mut Vec<Found>) -> Result<(), StoreError> {
        let name = name_of(number);
        let failed = |source| self.error("read", &name, 0, source);
        let file = self.medium.open(&name).map_err(failed)?;
        let mut bytes = vec![0; file.size().map_err(failed)? as usize];
        file.read(0, &mut bytes).map_err(failed)?;
        let mut rest = match bytes.split_first_chunk::<FILE_HEADER>() {
            Some((header, rest)) if *header == file_header(number) => rest,
            _ => return Ok(()),
        };
        while let Some((from, to, body, behind)) = entry(rest, number) {
            if from == to {
                found.retain_mut(|batch| {
                    batch.to = batch.to.min(from);
                    batch.from < batch.to
                });
            } else {
                found.push(Found { from, to, bytes: body.to_vec() });
            }
            rest = behind;
        }
        Ok(())
    }

    /// Writes a batch behind the others; `from` is the stamp of its first block, `to` where it
    /// ends. Durable after the next [`Journal::sync`].
    ///
    /// # Errors
    /// [`StoreError`], after which the journal is of no more use.
    ///
    /// # Panics
    /// When the batch is empty, or longer than four gigabytes.
    pub fn append(&mut self, from: Stamp, to: Stamp, bytes: &[u8]) -> Result<(), StoreError> {
        assert!(from < to, "a batch has blocks");
        self.put(from, to, bytes)
    }

    fn put(&mut self, from: Stamp, to: Stamp, body: &[u8]) -> Result<(), StoreError> {
        let length = (ENTRY_HEADER + body.len()).next_multiple_of(8);
        if self.open.as_ref().is_none_or(|open| open.at + length as u64 > open.size) {
            self.another(length as u64)?;
        }
        let mut open = self.open.take().expect("there is one");
        let mut bytes = vec![0; ENTRY_HEADER];
        bytes[..4].copy_from_slice(&u32::try_from(body.len()).expect("a batch is shorter").to_le_bytes());
        bytes[8..16].copy_from_slice(&from.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&to.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&open.number.to_le_bytes());
        bytes.extend_from_slice(body);
        let crc = checksum(&bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes.resize(length, 0);
        let written = open.file.write(open.at, &bytes);
        self.check("write", open.number, open.at, written)?;
        open.at += length as u64;
        open.synced = false;
        self.open = Some(open);
        let last = self.kept.back_mut().expect("an open file is kept");
        last.end = last.end.max(to);
        Ok(())
    }

    /// Begins a file that has room for an entry of `length` bytes.
    fn another(&mut self, length: u64) -> Result<(), StoreError> {
        self.sync()?;
        self.open = None;
        if self.failed {
            let source = io::Error::other("an earlier write or sync has failed");
            return Err(self.error("continue", &name_of(self.next), 0, source));
        }
        let (number, size) = (self.next, self.size.max(FILE_HEADER as u64 + length));
        let name = name_of(number);
        let created = self.medium.create(&name, size, &file_header(number));
        let file = self.check("create", number, 0, created)?;
        self.next += 1;
        self.kept.push_back(Kept { name, end: Stamp::ZERO });
        self.open = Some(Open { file, number, at: FILE_HEADER as u64, size, synced: true });
        Ok(())
    }

    fn check<T>(&mut self, doing: &'static str, number: u64, at: u64, outcome: io::Result<T>) -> Result<T, StoreError> {
        outcome.map_err(|source| {
            self.failed = true;
            self.open = None;
            self.error(doing, &name_of(number), at, source)
        })
    }

    /// Makes durable what was written. Blocks until it is.
    ///
    /// # Errors
    /// [`StoreError`], after which the journal is of no more use.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        if let Some(mut open) = self.open.take().filter(|open| !open.synced) {
            let synced = open.file.sync();
            self.check("sync", open.number, open.at, synced)?;
            open.synced = true;
            self.open = Some(open);
        }
        Ok(())
    }

    /// The log is cut at `at`: what was written from there on is taken back, durably.
    ///
    /// # Errors
    /// [`StoreError`], after which the journal is of no more use.
    pub fn cut(&mut self, at: Stamp) -> Result<(), StoreError> {
        if self.kept.iter().all(|kept| kept.end <= at) {
            return self.sync();
        }
        self.put(at, at, &[])?;
        self.sync()
    }

    /// The log has everything below `below`, durably: files with nothing else go. Those of later
    /// batches stay, and with them what took earlier ones back.
    ///
    /// # Errors
    /// [`StoreError`]; the journal may be used all the same.
    pub fn trim(&mut self, below: Stamp) -> Result<(), StoreError> {
        while self.kept.len() > 1 && self.kept[0].end <= below {
            let kept = self.kept.pop_front().expect("there are two");
            self.medium.remove(&kept.name).map_err(|source| self.error("remove", &kept.name, 0, source))?;
        }
        Ok(())
    }

    /// How many files it has.
    pub fn files(&self) -> usize {
        self.kept.len()
    }
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

fn file_header(number: u64) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..].copy_from_slice(&number.to_le_bytes());
    header
}

/// Of an entry without padding.
fn checksum(entry: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&entry[..4]), &entry[8..])
}

/// The first entry of `bytes`, which are of file `number`: its stamps, its body, and what follows.
fn entry(bytes: &[u8], number: u64) -> Option<(Stamp, Stamp, &[u8], &[u8])> {
    let header = bytes.first_chunk::<ENTRY_HEADER>()?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    let length = ENTRY_HEADER.checked_add(half(0) as usize)?;
    let whole = bytes.get(..length)?;
    let (from, to) = (Stamp(word(8)), Stamp(word(16)));
    if word(24) != number || from > to || checksum(whole) != half(4) {
        return None;
    }
    let behind = bytes.get(length.next_multiple_of(8)..).unwrap_or_default();
    Some((from, to, &whole[ENTRY_HEADER..], behind))
}
