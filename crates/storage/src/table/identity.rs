//! What a table's records add to the identity of the state: read from its arrays, no
//! matter who has filled them.
//!
//! While a standby replays, one thread goes through its arrays between two jobs, range after range
//! of record ids, and says how far it is. Replay counts what it changes below that; what lies above
//! is counted when the sweep comes there. So no job waits for more than a range.

use freshet_base::{Lsn, Rid, sync::Ordering};

use super::Content;
use crate::{
    array::{IndirectionArray, Word},
    identity::identity,
    owner::{ABORTED, Owner},
    reclaim::Guard,
    version::Version,
};

impl Content {
    /// Whether replay counts what it does to this record.
    #[inline]
    pub(super) fn is_counted(&self, rid: Rid) -> bool {
        // Relaxed: changed between two jobs, whose beginning and end order that.
        rid.0 < self.counted.load(Ordering::Relaxed)
    }

    /// Replay counts from now on what it does to records with smaller ids. Not while it replays.
    pub fn count_below(&self, rid: Rid) {
        self.counted.store(rid.0, Ordering::Relaxed);
    }

    /// No record has this id or a larger one: the end of a sweep.
    pub fn records_end(&self) -> Rid {
        self.data.end().max(self.replay.end())
    }

    /// What the records with ids in `[from, to)` add to the identity of the state at `at`: of each
    /// its newest version below, if that is a row. Everything below `at` is there, each version
    /// with its final LSN, and none that a snapshot at `at` needs is taken away. What replay has
    /// announced lies below.
    pub fn identity_sum(&self, guard: &Guard<'_>, from: Rid, to: Rid, at: Lsn) -> u64 {
        let mut sum = 0_u64;
        let mut rid = from;
        while rid < to.min(self.records_end()) {
            let end = IndirectionArray::chunk_end(rid).min(to);
            if self.data.get(rid).is_some() || self.replay.get(rid).is_some() {
                for rid in (rid.0..end.0).map(Rid) {
                    sum = sum.wrapping_add(self.identity_of(guard, rid, at));
                }
            }
            rid = end;
        }
        sum
    }

    /// What one record adds to the identity of the state at `at`; zero when it is not there. As
    /// [`Content::identity_sum`].
    pub fn identity_of(&self, guard: &Guard<'_>, rid: Rid, at: Lsn) -> u64 {
        let announced = self.announced(rid);
        match Self::newest_below(guard, self.word(rid), at) {
            Some((made, is_gone)) if made.0 >= announced.address() => {
                if is_gone {
                    0
                } else {
                    identity(self.fid, rid, made)
                }
            }
            _ if announced.address() == 0 || announced.is_gone() => 0,
            _ => identity(self.fid, rid, Lsn(announced.address())),
        }
    }

    /// The record's newest version below `at` of those in memory, and whether that is a deletion.
    pub(super) fn newest_in_memory(&self, guard: &Guard<'_>, rid: Rid, at: Lsn) -> Option<(Lsn, bool)> {
        Self::newest_below(guard, self.word(rid), at)
    }

    /// Whether the version at `address` is in memory, or can be loaded by who reads.
    pub fn has_version(&self, guard: &Guard<'_>, rid: Rid, address: Lsn) -> bool {
        Self::newest_below(guard, self.word(rid), address.plus(1)).is_some_and(|(made, _)| made == address)
    }

    fn word(&self, rid: Rid) -> Word {
        // Acquire: pairs with the release of the thread that installed what the word points to.
        Word(self.data.get(rid).map_or(0, |word| word.load(Ordering::Acquire)))
    }

    /// The newest committed version below `at` in the chain that begins with `word`, and whether it
    /// is a deletion.
    fn newest_below(_guard: &Guard<'_>, mut word: Word, at: Lsn) -> Option<(Lsn, bool)> {
        loop {
            // A deletion that is not in memory has another word.
            let there = (word.as_address().map(|address| (address, false))).or(word.as_gone().map(|gone| (gone, true)));
            if let Some(there) = there {
                return Some(there).filter(|(address, _)| *address < at);
            }
            let version = word.as_pointer()?;
            // SAFETY: reached under the guard. Acquire: pairs with `Installed::commit`.
            let bits = unsafe { &*version }.lsn.load(Ordering::Acquire);
            if bits < at.0 && bits != ABORTED && Owner::from_lsn_bits(bits).is_none() {
                // SAFETY: as above.
                return Some((Lsn(bits), unsafe { Version::is_tombstone(version) }));
            }
            // SAFETY: as above. Acquire: pairs with the thread that linked the older version.
            word = Word(unsafe { &*version }.next.load(Ordering::Acquire));
        }
    }
}
