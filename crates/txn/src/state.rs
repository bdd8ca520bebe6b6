//! What a running transaction remembers.

use std::collections::HashMap;

use freshet_base::{Fid, Rid};
use freshet_log::block::RECORD_HEADER;
use freshet_storage::{Change, Installed, index::ScanBuffer};

use crate::{RowLock, WriteError, certify::ScannedRange, record::Recording};

/// How many of a transaction's last writes are looked through for a record that it writes again.
const RECENT: usize = 32;

/// An uncommitted version of this transaction.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) fid: Fid,
    pub(crate) installed: Installed,
    /// How many indexes, by number, it was entered into.
    pub(crate) indexes: usize,
    /// Inserted by this transaction, so that nobody else has ever seen the record.
    pub(crate) inserted: bool,
    /// The row of a record that was inserted and deleted again, while its index entries stay: there
    /// is a savepoint to go back to.
    pub(crate) entered: Option<Vec<u8>>,
    /// Of a record inserted since a key has changed: the record that others know, whose tombstone
    /// says that the row is here.
    pub(crate) origin: Option<Rid>,
}

impl Write {
    /// About how many bytes of log it takes.
    fn logged(&self) -> u64 {
        (RECORD_HEADER + self.installed.row().len()) as u64
    }
}

/// What an own uncommitted version was before it was replaced.
pub(crate) struct Replaced {
    pub(crate) write: usize,
    pub(crate) before: Before,
}

/// What it said of its record.
pub(crate) enum Before {
    Row(Vec<u8>),
    Gone,
    Moved(Rid),
}

impl Before {
    pub(crate) fn of(installed: &Installed) -> Self {
        match installed.change() {
            Change::Row(row) => Self::Row(row.to_vec()),
            Change::Gone => Self::Gone,
            Change::Moved(to) => Self::Moved(to),
        }
    }

    pub(crate) fn change(&self) -> Change<'_> {
        match self {
            Self::Row(row) => Change::Row(row),
            Self::Gone => Change::Gone,
            Self::Moved(to) => Change::Moved(*to),
        }
    }
}

/// What a running transaction remembers. Kept by the worker, so that its memory is used again.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) writes: Vec<Write>,
    /// Serializable only: records read, seen or not.
    pub(crate) reads: Vec<(Fid, Rid)>,
    /// Serializable only: ranges read, and the leaves that held them.
    pub(crate) ranges: Vec<ScannedRange>,
    /// The locks that it holds on records which it may not have written, in the order in which they
    /// were taken.
    pub(crate) locks: Vec<(Fid, Rid, RowLock)>,
    /// What was replaced since the first savepoint.
    pub(crate) replaced: Vec<Replaced>,
    /// How many savepoints there are.
    pub(crate) savepoints: usize,
    pub(crate) buffers: Vec<ScanBuffer>,
    /// What it carries to those who listen.
    pub(crate) messages: Vec<Box<[u8]>>,
    /// Whether it makes, changes or drops tables.
    pub(crate) changes: bool,
    /// What is logged in the place of its writes, if not they are.
    pub(crate) inputs: Option<Vec<u8>>,
    /// What is recorded beside its writes.
    pub(crate) recording: Recording,
    /// How many bytes of log the writes may take, and locks as if they were written.
    pub(crate) limit: u64,
    /// About how many they do; commit measures it again.
    logged: u64,
    /// Where in `writes` records are, of a transaction that has many: a hint.
    places: HashMap<(Fid, Rid), usize>,
}

impl State {
    /// Whether the transaction may write a row of `length` bytes more.
    pub(crate) fn check_room(&self, length: usize) -> Result<(), WriteError> {
        let Self { limit, logged, .. } = *self;
        if logged + (RECORD_HEADER + length) as u64 > limit { Err(WriteError::TooLarge { limit }) } else { Ok(()) }
    }

    pub(crate) fn push(&mut self, write: Write) {
        self.logged += write.logged();
        self.writes.push(write);
    }

    /// Adds a message, which is sent if the transaction commits.
    pub(crate) fn push_message(&mut self, message: Box<[u8]>) {
        self.logged += (RECORD_HEADER + message.len()) as u64;
        self.messages.push(message);
    }

    /// Whether nothing of it goes to the log.
    pub(crate) fn logs_nothing(&self) -> bool {
        self.writes.is_empty() && self.messages.is_empty()
    }

    /// Notes a lock, which is held until the transaction ends.
    pub(crate) fn push_lock(&mut self, fid: Fid, rid: Rid, lock: RowLock) {
        self.logged += RECORD_HEADER as u64;
        self.locks.push((fid, rid, lock));
    }

    /// The last lock, to be released.
    pub(crate) fn pop_lock(&mut self) -> Option<(Fid, Rid, RowLock)> {
        let lock = self.locks.pop()?;
        self.logged = self.logged.saturating_sub(RECORD_HEADER as u64);
        Some(lock)
    }

    /// The last write, to be taken back.
    pub(crate) fn pop(&mut self) -> Option<Write> {
        let write = self.writes.pop()?;
        self.logged = self.logged.saturating_sub(write.logged());
        Some(write)
    }

    /// The row of write `place` is going to be one of `length` bytes, if there is room for that.
    pub(crate) fn will_replace(&mut self, place: usize, length: usize) -> Result<(), WriteError> {
        let before = self.logged;
        self.logged = before.saturating_sub(self.writes[place].logged());
        let room = self.check_room(length);
        self.logged = room.as_ref().map_or(before, |()| self.logged + (RECORD_HEADER + length) as u64);
        room
    }

    /// Which write is that of this record.
    pub(crate) fn place_of(&mut self, fid: Fid, rid: Rid) -> Option<usize> {
        let is_it = |write: &Write| write.installed.rid() == rid && write.fid == fid;
        // A transaction rarely writes a record twice, and if so, soon after.
        let older = self.writes.len().saturating_sub(RECENT);
        if let Some(place) = self.writes[older..].iter().rposition(is_it) {
            return Some(older + place);
        }
        let known = self.places.get(&(fid, rid)).copied();
        if let Some(place) = known.filter(|place| self.writes.get(*place).is_some_and(is_it)) {
            return Some(place);
        }
        // More were written since, or some were taken back.
        self.places.clear();
        let entries = self.writes.iter().enumerate();
        self.places.extend(entries.map(|(place, write)| ((write.fid, write.installed.rid()), place)));
        self.places.get(&(fid, rid)).copied()
    }

    /// Forgets everything, for the worker's next transaction.
    pub(crate) fn reset(&mut self) {
        self.reads.clear();
        self.ranges.clear();
        self.replaced.clear();
        self.messages.clear();
        self.savepoints = 0;
        self.changes = false;
        self.inputs = None;
        self.recording.reset();
        self.logged = 0;
        // Not for those that are small: this costs more than it looks.
        if !self.places.is_empty() {
            self.places = HashMap::new();
        }
    }
}
