//! What replay does to a record: next to nothing (Query Fresh, section 3.4.1).

use freshet_base::{Fid, Rid, Stamp, sync::Ordering};

use super::{RID_RANGE, Table};
use crate::{array::Word, definition::KeyBuffer, reclaim::Guard};

impl Table {
    /// From now on readers look at what replay announces.
    pub fn consult_replay(&self) {
        self.consult_replay.store(true, Ordering::SeqCst);
    }

    /// Announces the record at `address` to readers: all that replay does to a record
    /// (Query Fresh, section 3.4.1). Idempotent and order-free: the larger address wins.
    /// Returns `false` when the record id is beyond the table's limit.
    pub fn replay_store(&self, rid: Rid, address: Stamp) -> bool {
        let Some(word) = self.replay.get_or_grow(rid) else { return false };
        // Release: pairs with the acquire loads of readers.
        word.fetch_max(address.0, Ordering::AcqRel);
        self.note_rid(rid);
        true
    }

    /// At restart, before there are readers: the record's newest version so far lies at `address`.
    /// The larger address wins. Returns `false` when the record id is beyond the table's limit.
    pub fn restore(&self, rid: Rid, address: Stamp) -> bool {
        let Some(word) = self.data.get_or_grow(rid) else { return false };
        // All words are addresses here, so the words' order is theirs.
        word.fetch_max(Word::address(address).0, Ordering::AcqRel);
        self.note_rid(rid);
        true
    }

    /// New records get ids above `rid`.
    fn note_rid(&self, rid: Rid) {
        if self.next_rid.load(Ordering::Relaxed) <= rid.0 {
            let range = if self.fid == Fid::CATALOG { 1 } else { RID_RANGE };
            let range = (rid.0 / range + 1) * range;
            self.next_rid.fetch_max(range, Ordering::Relaxed);
        }
    }

    /// The largest address that replay has announced for `rid`.
    pub fn replayed(&self, rid: Rid) -> Option<Stamp> {
        self.replay.get(rid).map(|word| word.load(Ordering::Acquire)).filter(|address| *address != 0).map(Stamp)
    }

    /// Takes an announcement back: the log was cut at or below `address`, and before it the
    /// record's newest version was at `prev`. Does nothing when something else is announced.
    pub fn replay_cut(&self, rid: Rid, address: Stamp, prev: Option<Stamp>) {
        if let Some(word) = self.replay.get(rid) {
            let prev = prev.map_or(0, |prev| prev.0);
            // A failure means that a larger address is there, whose own cut will lead here.
            let _ = word.compare_exchange(address.0, prev, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Forgets what was announced at or below `tombstone`.
    pub(super) fn replay_forget(&self, rid: Rid, tombstone: Stamp) {
        let Some(word) = self.replay.get(rid) else { return };
        let announced = word.load(Ordering::Acquire);
        if announced != 0 && announced <= tombstone.0 {
            // A failure means that replay has announced something newer: that stays.
            let _ = word.compare_exchange(announced, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// At restart: the largest address restored for `rid`.
    pub fn restored(&self, rid: Rid) -> Option<Stamp> {
        self.data.get(rid).and_then(|word| Word(word.load(Ordering::Acquire)).as_address())
    }

    /// At restart: takes the index entries away that the deleted `row` had, but for those that the
    /// record's newest row needs.
    pub fn forget_restored(&self, guard: &Guard<'_>, rid: Rid, row: &[u8], newest: Option<&[u8]>) {
        if row.len() < self.min_row {
            return;
        }
        let mut key = KeyBuffer::new();
        for (index, definition) in self.indexes.iter().zip(&self.definition.indexes) {
            if !newest.is_some_and(|newest| definition.same_key(newest, row)) {
                index.remove(guard, definition.key_of(row, &mut key), rid);
            }
        }
    }
}
