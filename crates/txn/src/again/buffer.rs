//! What a transaction that is executed again has written by now: at the place of each of its
//! entries, if it has come to that.

use std::{collections::HashMap, hash::BuildHasherDefault};

use freshet_base::{Fid, IdHasher, Lsn, RecordKind, Rid};
use freshet_storage::Kept;

use super::{Entry, Mismatch};

/// Among how many entries a record is looked for one by one.
const FEW: usize = 32;

/// What has been written of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    /// Not written yet.
    Not,
    /// The record has this row.
    Row(Kept),
    /// It is deleted, and had this row before the transaction.
    Gone(Kept),
    /// The same, and its row, changed, is this other record's.
    Moved(Rid, Kept),
}

impl Done {
    fn is(&self) -> bool {
        !matches!(self, Self::Not)
    }
}

/// What has been written. Kept by the worker, so that its memory is used again.
#[derive(Default)]
pub(crate) struct Buffer {
    entries: Vec<Entry>,
    /// What has been written of each.
    done: Vec<Done>,
    /// Of few entries, what [`name`] says of their records.
    names: Vec<u64>,
    /// Of many entries, where a record's is.
    places: HashMap<(Fid, Rid), usize, BuildHasherDefault<IdHasher>>,
    /// Of each table that was inserted into, where to look for the next insertion.
    insertions: Vec<(Fid, usize)>,
    snapshots: Vec<Lsn>,
    /// How many of these have been taken.
    taken: usize,
    /// How often a row was written.
    writes: usize,
    /// The first thing in which the transaction differs from what was recorded.
    differs: Option<Mismatch>,
}

/// Tells records apart, but for few.
fn name(fid: Fid, rid: Rid) -> u64 {
    rid.0 ^ u64::from(fid.0) << Rid::BITS
}

impl Buffer {
    /// Forgets the last transaction and begins the next.
    pub(super) fn begin(&mut self, snapshots: &[Lsn], entries: &[Entry]) {
        self.entries.clear();
        self.entries.extend_from_slice(entries);
        self.done.clear();
        self.done.resize(entries.len(), Done::Not);
        self.names.clear();
        self.places.clear();
        if entries.len() <= FEW {
            self.names.extend(entries.iter().map(|entry| name(entry.fid, entry.rid)));
        } else {
            self.places.extend(entries.iter().enumerate().map(|(place, entry)| ((entry.fid, entry.rid), place)));
        }
        self.insertions.clear();
        self.snapshots.clear();
        self.snapshots.extend_from_slice(snapshots);
        (self.taken, self.writes, self.differs) = (0, 0, None);
    }

    /// Where the entry of a record is.
    pub(super) fn place(&self, fid: Fid, rid: Rid) -> Option<usize> {
        if self.entries.len() > FEW {
            return self.places.get(&(fid, rid)).copied();
        }
        let name = name(fid, rid);
        let is_it = |place: &usize| self.entries[*place].rid == rid && self.entries[*place].fid == fid;
        let mut from = 0;
        loop {
            let place = from + self.names[from..].iter().position(|there| *there == name)?;
            if is_it(&place) {
                return Some(place);
            }
            from = place + 1;
        }
    }

    pub(super) fn entry(&self, place: usize) -> Entry {
        self.entries[place]
    }

    /// Where the next insertion into a table is. They come in the order of their entries.
    pub(super) fn next_insertion(&mut self, fid: Fid) -> Option<usize> {
        let known = self.insertions.iter().position(|(table, _)| *table == fid);
        let known = known.unwrap_or_else(|| {
            self.insertions.push((fid, 0));
            self.insertions.len() - 1
        });
        let from = &mut self.insertions[known].1;
        let is_next = |entry: &Entry| entry.fid == fid && entry.kind == RecordKind::Insert;
        let place = *from + self.entries[*from..].iter().position(is_next)?;
        *from = place + 1;
        Some(place)
    }

    /// Whether a record is one that is inserted, and was not yet.
    pub(super) fn is_to_come(&self, fid: Fid, rid: Rid) -> bool {
        let is_it = |place: usize| self.entries[place].kind == RecordKind::Insert && !self.done[place].is();
        self.place(fid, rid).is_some_and(is_it)
    }

    /// What has been written of a record.
    pub(super) fn done(&self, fid: Fid, rid: Rid) -> Done {
        self.place(fid, rid).map_or(Done::Not, |place| self.done[place])
    }

    /// Something is written of an entry.
    pub(super) fn put(&mut self, place: usize, done: Done) {
        self.done[place] = done;
        self.writes += 1;
    }

    /// Whether something has been written of an entry.
    pub(super) fn is_done(&self, place: usize) -> bool {
        self.done[place].is()
    }

    pub(super) fn writes(&self) -> usize {
        self.writes
    }

    pub(super) fn has_written(&self, fid: Fid) -> bool {
        self.entries.iter().zip(&self.done).any(|(entry, done)| entry.fid == fid && done.is())
    }

    /// The next snapshot; none when all are taken, which is a mismatch.
    pub(super) fn next_snapshot(&mut self) -> Option<Lsn> {
        let next = self.snapshots.get(self.taken).copied();
        self.taken += 1;
        if next.is_none() {
            self.differs(Mismatch::Snapshot(self.snapshots.len()));
        }
        next
    }

    /// The transaction is not what it was.
    pub(super) fn differs(&mut self, how: Mismatch) {
        self.differs.get_or_insert(how);
    }

    /// All entries, and what has been written of them, unless the transaction is known not to be
    /// what it was.
    pub(super) fn outcome(&self) -> Result<impl Iterator<Item = (&Entry, &Done)>, Mismatch> {
        match &self.differs {
            Some(how) => Err(how.clone()),
            None => Ok(self.entries.iter().zip(&self.done)),
        }
    }
}
