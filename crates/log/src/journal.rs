//! What has arrived and is no block yet: batches in another form than that of the log, which become
//! blocks when they are regenerated. A standby keeps them here, durably, so that it may acknowledge
//! them before that.
//!
//! A journal is a sequence of files beside the log's segments, the last one is written. Each is
//! preallocated and zero behind what was written. A batch is written behind the one before, and
//! durable after the next [`Journal::sync`]. A file goes when the log itself has durably what its
//! batches are ([`Journal::trim`]).
//!
//! | file header, 48 bytes | |
//! |---|---|
//! | 0..8   | `FRJOUR02` |
//! | 8..16  | the file's number, which is in its name too |
//! | 16..24 | its length in bytes |
//! | 24..32 | where the file before it ended, durably, when this one was begun; 0 if not known |
//! | 32..40 | number of the first file that was kept then |
//! | 40..44 | the half of the log's incarnation (module `parts`); 0 if not known |
//! | 44..48 | CRC-32C over the bytes before |
//!
//! | entry, 48 bytes and its body, padded with zeros to a multiple of 8 | |
//! |---|---|
//! | 0..4   | length of the body |
//! | 4..8   | CRC-32C over the body |
//! | 8..16  | LSN of the batch's first block |
//! | 16..24 | where the batch ends |
//! | 24..32 | number of the file |
//! | 32..40 | up to here the file was durable when this was written |
//! | 40..44 | how many files before this one are kept |
//! | 44..48 | CRC-32C over the bytes of this header before |
//!
//! An entry that ends where it begins takes back whatever stands before it, in any file, from that
//! LSN on: the log was cut there. One at the largest LSN takes nothing back and is a note:
//! after each sync one is written behind the last entry, itself not synced, and the next entry is
//! written over it; one that stays says that files in front are about to go.
//!
//! So whatever comes later says how far the journal was durable before, as the notes of the log do
//! (module `tail`). For the first place `x` of a file where no whole entry is:
//!
//! | there is | it is |
//! |---|---|
//! | the header of an entry behind `x` that says that the file was durable beyond `x` | damage |
//! | a next file that says the same | damage |
//! | neither of these | a torn tail, or the end |
//!
//! A file that is missing, is shorter than it was made or has another header is damage, too. The
//! number of the newest file is noted outside of the journal ([`NewestFile`]; a node has it in its
//! control file) when it is begun, durably, and before anything in it counts. Damage stops the
//! node: nothing is skipped, changed or removed. What cannot be told is damage to what was synced
//! last, if the note behind it is gone at the same time: a loss of power may take that, a crash of
//! the process does not.
//!
//! What is found by [`Journal::open`] is written again and synced before it is returned: it may
//! never have been durable.

mod header;

use std::{
    collections::VecDeque,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
};

use freshet_base::Lsn;

use self::header::{file_header, header};
pub use crate::segments::Room;
use crate::{
    control::LogDirectory,
    medium::{Medium, MediumFile},
    segments::{Need, StoreError},
};

const FILE_HEADER: usize = 48;
const ENTRY_HEADER: usize = 48;
/// Room for notes behind the last batch of a file, in bytes.
const NOTES: u64 = 16 * ENTRY_HEADER as u64;
/// Where a note stands: it takes nothing back.
const NOTE: Lsn = Lsn::MAX;
/// A file has this many bytes, or as many as its first batch needs.
const FILE: u64 = 16 << 20;
const PREFIX: &str = "journal-";

/// What is known of a journal outside of it.
pub trait NewestFile: Send + Sync + fmt::Debug {
    /// The number of the newest file, if there is a journal.
    fn newest_file(&self) -> Option<u64>;

    /// Notes another, durably.
    ///
    /// # Errors
    /// [`StoreError`]; a restart may find either.
    fn note_newest_file(&self, number: Option<u64>) -> Result<(), StoreError>;

    /// Half of the incarnation of the log whose journal this is; 0 if not known.
    fn life(&self) -> u32 {
        0
    }
}

impl NewestFile for LogDirectory {
    fn newest_file(&self) -> Option<u64> {
        self.control().journal
    }

    fn note_newest_file(&self, number: Option<u64>) -> Result<(), StoreError> {
        if self.newest_file() != number {
            self.update(|control| control.journal = number)?;
        }
        Ok(())
    }

    fn life(&self) -> u32 {
        self.control().incarnation.map_or(0, |incarnation| incarnation as u32)
    }
}

/// In memory only.
impl NewestFile for Mutex<Option<u64>> {
    fn newest_file(&self) -> Option<u64> {
        *self.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_newest_file(&self, number: Option<u64>) -> Result<(), StoreError> {
        *self.lock().unwrap_or_else(PoisonError::into_inner) = number;
        Ok(())
    }
}

/// A batch that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The LSN of its first block.
    pub from: Lsn,
    /// Where it ends for this log. What lies beyond in `bytes` was cut away.
    pub to: Lsn,
    /// The batch.
    pub bytes: Vec<u8>,
}

/// A file, and where the last of its batches ends.
struct Kept {
    number: u64,
    end: Lsn,
}

/// The file that is written.
struct Open {
    file: Arc<dyn MediumFile>,
    number: u64,
    at: u64,
    size: u64,
    /// Durable up to here.
    durable: u64,
    /// Everything is, and it is noted.
    synced: bool,
}

/// What the files hold that are there.
#[derive(Default)]
struct Contents {
    /// Their numbers, ascending.
    numbers: Vec<u64>,
    found: Vec<Found>,
}

/// What a file states beside its batches.
struct Summary {
    /// How far the file before it was durable.
    before: u64,
    /// The first file that is kept.
    first: u64,
    /// Where its last whole entry ends.
    end: u64,
}

/// A journal. Errors end it, except that there is no room: nothing is written after a write or a
/// sync that has failed.
pub struct Journal {
    medium: Arc<dyn Medium>,
    newest: Arc<dyn NewestFile>,
    kept: VecDeque<Kept>,
    open: Option<Open>,
    next: u64,
    /// The first file that is there.
    first: u64,
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
    /// [`StoreError`]; [`StoreError::Journal`] when something is not there that was durable, or is
    /// not what was written. What a crash leaves is no error.
    pub fn open(
        medium: Arc<dyn Medium>,
        newest: Arc<dyn NewestFile>,
        end: Lsn,
    ) -> Result<(Self, Vec<Found>), StoreError> {
        Self::open_with((medium, newest), end, FILE)
    }

    /// The same, with files of `size` bytes.
    ///
    /// # Errors
    /// As there.
    pub fn open_with(
        (medium, newest): (Arc<dyn Medium>, Arc<dyn NewestFile>),
        end: Lsn,
        size: u64,
    ) -> Result<(Self, Vec<Found>), StoreError> {
        let Contents { numbers, found } = contents(&*medium, &*newest, end)?;
        let next = numbers.last().map_or(0, |last| last + 1);
        let first = numbers.first().copied().unwrap_or(next);
        let (kept, open, failed) = (VecDeque::new(), None, false);
        let mut journal = Self { medium, newest, kept, open, next, first, size, failed };
        for batch in &found {
            journal.append(batch.from, batch.to, &batch.bytes)?;
        }
        journal.sync()?;
        match journal.kept.front().map(|kept| kept.number) {
            Some(first) if first != journal.first => _ = journal.note_first(first)?,
            Some(_) => {}
            // Without it whatever is left of the files counts for nothing.
            None => journal.newest.note_newest_file(None)?,
        }
        for number in numbers {
            journal.remove(number)?;
        }
        journal.first = journal.kept.front().map_or(next, |kept| kept.number);
        Ok((journal, found))
    }

    /// Whether the journal holds what continues a log that ends at `end`. Changes nothing. Blocks
    /// for reading.
    ///
    /// # Errors
    /// As for [`Journal::open`].
    pub fn continues(medium: &dyn Medium, newest: &dyn NewestFile, end: Lsn) -> Result<bool, StoreError> {
        Ok(!contents(medium, newest, end)?.found.is_empty())
    }

    fn error(&self, doing: &'static str, number: u64, offset: u64, source: io::Error) -> StoreError {
        StoreError::io(doing, self.medium.path(&name_of(number)), offset, self.size, source)
    }

    /// Writes a batch behind the others; `from` is the LSN of its first block, `to` where it
    /// ends. Durable after the next [`Journal::sync`].
    ///
    /// # Errors
    /// [`StoreError`], after which the journal is of no more use.
    ///
    /// # Panics
    /// When the batch is empty, or longer than four gigabytes.
    pub fn append(&mut self, from: Lsn, to: Lsn, bytes: &[u8]) -> Result<(), StoreError> {
        assert!(from < to, "a batch has blocks");
        self.put(from, to, bytes)
    }

    fn put(&mut self, from: Lsn, to: Lsn, body: &[u8]) -> Result<(), StoreError> {
        let length = (ENTRY_HEADER + body.len()).next_multiple_of(8) as u64;
        if self.open.as_ref().is_none_or(|open| open.at + length + NOTES > open.size) {
            self.another(length)?;
        }
        self.write(from, to, body, length)?;
        let last = self.kept.back_mut().expect("an open file is kept");
        last.end = last.end.max(to);
        Ok(())
    }

    /// Writes an entry to the open file, and continues `behind` bytes later.
    fn write(&mut self, from: Lsn, to: Lsn, body: &[u8], behind: u64) -> Result<(), StoreError> {
        let Some(open) = &self.open else { return Err(self.has_failed()) };
        let (number, at) = (open.number, open.at);
        let mut bytes = vec![0; ENTRY_HEADER];
        bytes[..4].copy_from_slice(&u32::try_from(body.len()).expect("a batch is shorter").to_le_bytes());
        bytes[4..8].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        for (place, word) in [(8, from.0), (16, to.0), (24, number), (32, open.durable)] {
            bytes[place..place + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[40..44].copy_from_slice(&((number - self.first) as u32).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let written = open.file.write(at, &bytes).map_err(|source| self.error("write", number, at, source));
        self.check(written)?;
        if let Some(open) = &mut self.open {
            open.at += behind;
            open.synced &= behind == 0;
        }
        Ok(())
    }

    /// Begins a file that has room for an entry of `length` bytes.
    fn another(&mut self, length: u64) -> Result<(), StoreError> {
        self.sync()?;
        if self.failed {
            return Err(self.has_failed());
        }
        let (number, size) = (self.next, self.size.max(FILE_HEADER as u64 + length + NOTES));
        let first = self.first;
        let before = self.open.as_ref().map_or(0, |open| open.at);
        let header = file_header(number, size, before, first, self.newest.life());
        let created = self.medium.create(&name_of(number), size, &header);
        let created = created.map_err(|source| self.error("create", number, 0, source));
        let file = self.check(created)?;
        let noted = self.newest.note_newest_file(Some(number));
        self.check(noted)?;
        self.next += 1;
        self.kept.push_back(Kept { number, end: Lsn::ZERO });
        let at = FILE_HEADER as u64;
        self.open = Some(Open { file, number, at, size, durable: at, synced: true });
        Ok(())
    }

    fn has_failed(&self) -> StoreError {
        let source = io::Error::other("an earlier write or sync has failed");
        self.error("continue", self.next, 0, source)
    }

    /// What lacks room may be tried again.
    fn check<T>(&mut self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if outcome.as_ref().is_err_and(|error| !error.lacks_room()) {
            self.failed = true;
            self.open = None;
        }
        outcome
    }

    /// Makes durable what was written, and notes that. Blocks until it is.
    ///
    /// # Errors
    /// [`StoreError`], after which the journal is of no more use.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        let Some(open) = self.open.as_ref().filter(|open| !open.synced) else { return Ok(()) };
        let (number, at) = (open.number, open.at);
        let file = self.medium.path(&name_of(number));
        // That there is no room is a failure here: a sync is never tried again.
        let synced = open.file.sync().map_err(|source| StoreError::Io { doing: "sync", file, offset: at, source });
        self.check(synced)?;
        if let Some(open) = &mut self.open {
            open.durable = at;
        }
        self.write(NOTE, NOTE, &[], 0)?;
        if let Some(open) = &mut self.open {
            open.synced = true;
        }
        Ok(())
    }

    /// Tries `attempt` until there is room for it. What the log has durably goes before each
    /// attempt: `below` says up to where that is.
    ///
    /// # Errors
    /// Those of the last attempt.
    pub fn in_room<T>(
        &mut self,
        room: &Room,
        below: impl Fn() -> Lsn,
        mut attempt: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let directory = self.medium.path("");
        let try_once = || {
            self.trim(below())?;
            attempt(self)
        };
        room.wait(Need::Now, || directory.clone(), || true, try_once)
    }

    /// The log is cut at `at`: what was written from there on is taken back, durably.
    ///
    /// # Errors
    /// [`StoreError`], after which the journal is of no more use.
    pub fn cut(&mut self, at: Lsn) -> Result<(), StoreError> {
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
    pub fn trim(&mut self, below: Lsn) -> Result<(), StoreError> {
        let all_but_last = self.kept.len().saturating_sub(1);
        let gone = self.kept.iter().take(all_but_last).take_while(|kept| kept.end <= below).count();
        if gone == 0 || !self.note_first(self.kept[gone].number)? {
            return Ok(());
        }
        for _ in 0..gone {
            let number = self.kept[0].number;
            self.remove(number)?;
            self.kept.pop_front();
        }
        Ok(())
    }

    /// Notes, durably, that what is before file `first` goes; false when this must wait for the
    /// next file.
    fn note_first(&mut self, first: u64) -> Result<bool, StoreError> {
        let length = ENTRY_HEADER as u64;
        // The note of the next sync stands behind this one.
        if self.open.as_ref().is_none_or(|open| open.at + 2 * length > open.size) {
            return Ok(false);
        }
        self.first = first;
        self.write(NOTE, NOTE, &[], length)?;
        self.sync()?;
        Ok(true)
    }

    fn remove(&self, number: u64) -> Result<(), StoreError> {
        let removed = self.medium.remove(&name_of(number));
        removed.map_err(|source| self.error("remove", number, 0, source))
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

fn word(header: &[u8; 48], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| header[at + i]))
}

fn half(header: &[u8; 48], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| header[at + i]))
}

/// The header of an entry of file `number` at `at`.
fn entry_header(bytes: &[u8], at: usize, number: u64) -> Option<&[u8; ENTRY_HEADER]> {
    let header = bytes.get(at..)?.first_chunk::<ENTRY_HEADER>()?;
    let holds = word(header, 24) == number
        && word(header, 32) <= at as u64
        && u64::from(half(header, 40)) <= number
        && word(header, 8) <= word(header, 16)
        && crc32c::crc32c(&header[..44]) == half(header, 44);
    holds.then_some(header)
}

fn damage(medium: &dyn Medium, number: u64, offset: u64, what: String) -> StoreError {
    StoreError::Journal { file: medium.path(&name_of(number)), offset, what }
}

/// What the files hold of a journal whose log ends at `end`: the batches that continue that.
fn contents(medium: &dyn Medium, newest: &dyn NewestFile, end: Lsn) -> Result<Contents, StoreError> {
    let names = match medium.list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(|source| StoreError::io("list", medium.path(""), 0, 0, source))?,
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    let mut found = Vec::new();
    // Files of a journal that has ended are on their way to be removed.
    if let Some(number) = newest.newest_file() {
        check_files(medium, &numbers, (number, newest.life()), &mut found)?;
    } else {
        for number in &numbers {
            header(medium, *number, newest.life())?;
        }
    }
    let mut at = end;
    found.retain(|batch: &Found| {
        let follows = batch.from <= at && batch.to > at;
        at = if follows { batch.to } else { at };
        follows
    });
    Ok(Contents { numbers, found })
}

/// Reads all files, of this life; the newest one that was begun is `newest`.
fn check_files(
    medium: &dyn Medium,
    numbers: &[u64],
    (newest, life): (u64, u32),
    found: &mut Vec<Found>,
) -> Result<(), StoreError> {
    let gone = |number, why: &str| Err(damage(medium, number, 0, format!("this file is missing: {why}")));
    if let Some(pair) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        return gone(pair[0] + 1, "there are files before and behind it");
    }
    if numbers.last().is_none_or(|last| *last < newest) {
        return gone(newest, "the node's control file names it");
    }
    let mut first = 0;
    let mut before: Option<(u64, u64)> = None;
    for number in numbers {
        let summary = read(medium, *number, life, found)?;
        if let Some((number, end)) = before.filter(|(_, end)| *end < summary.before) {
            let what =
                format!("there is no whole entry; the next file says that it was durable up to {}", summary.before);
            return Err(damage(medium, number, end, what));
        }
        first = first.max(summary.first);
        before = Some((*number, summary.end));
    }
    if numbers[0] > first {
        return gone(first, "later ones say that it is kept");
    }
    Ok(())
}

/// Adds what the file holds.
fn read(medium: &dyn Medium, number: u64, life: u32, found: &mut Vec<Found>) -> Result<Summary, StoreError> {
    let bytes = header(medium, number, life)?;
    let header: &[u8; FILE_HEADER] = bytes.first_chunk().expect("it was looked at");
    let (before, mut first) = (word(header, 24), word(header, 32));
    let mut at = FILE_HEADER;
    while let Some((header, body)) = entry(&bytes, at, number) {
        let (from, to) = (Lsn(word(header, 8)), Lsn(word(header, 16)));
        first = first.max(number - u64::from(half(header, 40)));
        if from == to {
            found.retain_mut(|batch| {
                batch.to = batch.to.min(from);
                batch.from < batch.to
            });
        } else {
            found.push(Found { from, to, bytes: body.to_vec() });
        }
        at += (ENTRY_HEADER + body.len()).next_multiple_of(8);
    }
    let note_at = |place: usize| Some((place, word(entry_header(&bytes, place, number)?, 32)));
    if let Some((place, durable)) =
        (at..bytes.len()).step_by(8).filter_map(note_at).find(|(_, durable)| *durable > at as u64)
    {
        let what = format!(
            "there is no whole entry; what was written at {place} says that the file was durable up to {durable}"
        );
        return Err(damage(medium, number, at as u64, what));
    }
    Ok(Summary { before, first, end: at as u64 })
}

/// The whole entry at `at` of file `number`: its header and its body.
fn entry(bytes: &[u8], at: usize, number: u64) -> Option<(&[u8; ENTRY_HEADER], &[u8])> {
    let header = entry_header(bytes, at, number)?;
    let body = bytes.get(at + ENTRY_HEADER..)?.get(..half(header, 0) as usize)?;
    (crc32c::crc32c(body) == half(header, 4)).then_some((header, body))
}
