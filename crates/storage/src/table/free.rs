//! Record ids that no record has.
//!
//! | the id | its word | who gives it to a record |
//! |---|---|---|
//! | never had a record | empty | who takes a range of new ids |
//! | its record is gone, and a worker has the id, or the list has | empty | that worker; who takes it off the list |
//! | its record is gone, and nobody has the id: since a restart, or since this node was a standby | says so, and where the tombstone lies | who clears the word |
//!
//! The insertion that uses an id again names the tombstone as what it replaces, so that on standbys
//! old readers find the old record. Where the tombstone is not known, the id is never used again.

use freshet_base::{
    Fid, Lsn, Rid,
    sync::{AtomicU64, Mutex, Ordering},
};

use super::{Content, RID_RANGE};
use crate::array::Word;

/// How many ranges of ids are looked through for one request before new ids are taken.
const RANGES: u64 = 8;

/// A record id whose record is gone for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// The id, free for another record.
    pub rid: Rid,
    /// Where the tombstone lies in the log: what the next record's insertion replaces.
    pub tombstone: Option<Lsn>,
}

/// What a table knows of its free ids.
#[derive(Debug)]
pub(super) struct FreeIds {
    list: Mutex<Vec<Reclaimed>>,
    /// No word below says that its record is gone; above every id when none does at all.
    search: AtomicU64,
}

impl Default for FreeIds {
    fn default() -> Self {
        Self { list: Mutex::new(Vec::new()), search: AtomicU64::new(u64::MAX) }
    }
}

impl FreeIds {
    /// The word of `rid` says that its record is gone.
    pub(super) fn noted(&self, rid: Rid) {
        // Relaxed: a hint that is mostly low enough.
        if rid.0 < self.search.load(Ordering::Relaxed) {
            // Release: a thread that searches from there finds the word so.
            self.search.fetch_min(rid.0, Ordering::AcqRel);
        }
    }
}

impl Content {
    /// Takes a range of record ids for one worker's inserts: the first, and one past the last.
    /// Those of the catalog become file ids, which are scarce: they go one by one.
    pub fn take_rids(&self) -> (Rid, Rid) {
        // Relaxed: the range is the taker's alone; nothing else is published by it.
        let range = if self.fid == Fid::CATALOG { 1 } else { RID_RANGE };
        let first = self.next_rid.fetch_add(range, Ordering::Relaxed);
        (Rid(first), Rid(first + range))
    }

    /// Takes record ids whose records are gone, if there are any that are found soon: up to `most`,
    /// or those of one range.
    pub fn take_reclaimed(&self, most: usize, into: &mut Vec<Reclaimed>) {
        {
            let Ok(mut list) = self.free.list.lock() else { return };
            let keep = list.len().saturating_sub(most);
            into.extend(list.drain(keep..));
        }
        if self.fid == Fid::CATALOG {
            // What was the id of a table is not used again.
            return;
        }
        let end = self.next_rid.load(Ordering::Relaxed);
        for _ in 0..RANGES {
            // Acquire: pairs with the release in `noted`.
            let from = self.free.search.load(Ordering::Acquire);
            if !into.is_empty() || from >= end {
                return;
            }
            let to = from - from % RID_RANGE + RID_RANGE;
            let next = if to >= end { u64::MAX } else { to };
            // Who moves it on has the range for itself. What is noted there from now on moves it
            // back.
            if self.free.search.compare_exchange(from, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // The last in comes out first: ascending ids.
                into.extend((from..to).rev().filter_map(|rid| self.claim(Rid(rid))));
            }
        }
    }

    /// Takes an id whose word says that its record is gone.
    fn claim(&self, rid: Rid) -> Option<Reclaimed> {
        let place = self.data.get(rid)?;
        let word = Word(place.load(Ordering::Acquire));
        let tombstone = word.as_gone()?;
        // On a node that was a standby: a record came after the tombstone, and nobody has read it
        // yet.
        if self.replayed(rid).is_some_and(|announced| announced > tombstone) {
            return None;
        }
        // Before the word is empty: readers would make a version of what is announced.
        self.replay_forget(rid, tombstone);
        // AcqRel: who finds the word empty finds nothing announced. Failure: somebody else has
        // claimed it.
        place.compare_exchange(word.0, 0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(Reclaimed { rid, tombstone: Some(tombstone) })
    }

    /// Gives record ids back for others to take.
    pub fn give_back(&self, rids: impl IntoIterator<Item = Reclaimed>) {
        if let Ok(mut list) = self.free.list.lock() {
            list.extend(rids);
        }
    }

    /// Calls `each` with the ids that nobody has, and whose records were deleted before `below`:
    /// what a checkpoint has to say for them to be used again after a restart. Those that workers
    /// keep for themselves are not among them.
    pub fn gone_before(&self, below: Lsn, mut each: impl FnMut(Rid, Lsn)) {
        let listed = self.free.list.lock().map(|list| list.clone()).unwrap_or_default();
        for Reclaimed { rid, tombstone } in listed {
            if let Some(tombstone) = tombstone.filter(|tombstone| *tombstone < below) {
                each(rid, tombstone);
            }
        }
        self.data.for_each(|rid, word| {
            let gone = Word(word.load(Ordering::Acquire)).as_gone();
            if let Some(tombstone) = gone.filter(|tombstone| *tombstone < below) {
                each(rid, tombstone);
            }
        });
    }
}
