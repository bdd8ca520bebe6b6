//! Reclamation: versions that nobody can see any more, and records that are gone.

use freshet_base::{RecordKind, Rid, Stamp, sync::Ordering};

use super::{LoadError, ReadContext, Table};
use crate::{array::Word, definition::KeyBuffer, reclaim::Guard, version::Version};

/// A record id whose record is gone for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// The id, free for another record.
    pub rid: Rid,
    /// Where the tombstone lies in the log: what the next record's insertion replaces.
    pub tombstone: Option<Stamp>,
}

impl Table {
    /// Drops the versions of a record that nobody can see any more: those below the first one
    /// older than `horizon`. When that is a tombstone and the newest, the record itself goes, its index entries with it,
    /// and its id is free.
    pub fn trim(&self, guard: &Guard<'_>, rid: Rid, horizon: Stamp) -> Option<Reclaimed> {
        let place = self.data.get(rid)?;
        let head = Word(place.load(Ordering::Acquire)).as_pointer()?;
        let mut current = head;
        let stamp = loop {
            // SAFETY: here and below, versions are reached under `guard`.
            let bits = unsafe { &*current }.stamp.load(Ordering::Acquire);
            if bits < horizon.0 {
                break Stamp(bits);
            }
            // SAFETY: as above.
            current = Word(unsafe { &*current }.next.load(Ordering::Acquire)).as_pointer()?;
        };
        // SAFETY: as above. AcqRel: whoever gets the chain sees it whole and is the only one to do so.
        let chain = Word(unsafe { &*current }.next.swap(0, Ordering::AcqRel));
        let chain = chain.as_pointer()?;
        let mut reclaimed = None;
        // SAFETY: as above.
        if current == head && unsafe { Version::is_tombstone(current) } {
            // SAFETY: as above; below a tombstone lies the row that it deleted.
            if let Some(row) = unsafe { Version::row(chain) } {
                self.forget(guard, rid, row, stamp, |_, _| false);
            }
            // What replay announced for this record, on a primary that was a standby, is older than the tombstone.
            self.replay_forget(rid, stamp);
            // Nobody installs over a committed tombstone, and only we got its chain.
            let result = place.compare_exchange(Word::pointer(head).0, 0, Ordering::AcqRel, Ordering::Relaxed);
            assert!(result.is_ok(), "a tombstone that all can see stays on top of {rid:?} of {self:?}");
            // SAFETY: unlinked just now; its chain goes separately.
            unsafe { guard.retire(head.cast(), Version::free) };
            reclaimed = Some(Reclaimed { rid, tombstone: Some(stamp) });
        }
        // SAFETY: unlinked by the swap.
        unsafe { guard.retire(chain.cast(), Version::free_chain) };
        reclaimed
    }

    /// Takes away the index entries that `row` of the dead record has, unless the id has been given to
    /// a record for which `keep(index, key)` says that it needs the same entry. On a standby,
    /// replay may give the id to another record at any moment: it announces that before it enters the indexes,
    /// and the announcement is looked at under the latch of the entry's leaf.
    fn forget(
        &self,
        guard: &Guard<'_>,
        rid: Rid,
        row: &[u8],
        tombstone: Stamp,
        mut keep: impl FnMut(usize, &[u8]) -> bool,
    ) {
        let mut key = KeyBuffer::new();
        for (number, (index, definition)) in self.indexes.iter().zip(&self.definition.indexes).enumerate() {
            let key = definition.key_of(row, &mut key);
            if !keep(number, key) {
                let announced = self.replayed(rid).filter(|address| *address > tombstone);
                index.remove_if(guard, key, rid, || {
                    self.replayed(rid).filter(|address| *address > tombstone) == announced
                });
            }
        }
    }

    /// On a standby: takes away what is left of a record whose deletion at `tombstone` every
    /// snapshot sees: versions in memory and index entries. Blocks on the disk when the
    /// deleted row is no longer in the log's buffer.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn reclaim_replayed(
        &self,
        guard: &Guard<'_>,
        rid: Rid,
        tombstone: Stamp,
        context: &ReadContext<'_>,
    ) -> Result<(), LoadError> {
        debug_assert!(tombstone < context.horizon);
        let mut row = Vec::new();
        let dead = context.source.load(tombstone, self.fid, rid, &mut row)?;
        if dead.kind != RecordKind::Delete || row.len() < self.min_row {
            return Err(LoadError::Mismatch { address: tombstone });
        }
        // The rows of whoever has the id now: an entry that one of them needs stays.
        let mut later = Vec::new();
        let mut next = self.replayed(rid);
        while let Some(address) = next.filter(|address| *address > tombstone) {
            let mut row = Vec::new();
            let loaded = context.source.load(address, self.fid, rid, &mut row)?;
            if loaded.kind != RecordKind::Delete && row.len() >= self.min_row {
                later.push(row);
            }
            next = loaded.prev.filter(|prev| *prev < address);
        }
        self.forget(guard, rid, &row, tombstone, |index, key| {
            later.iter().any(|row| self.definition.indexes[index].matches(row, key))
        });
        // What is in memory is the tombstone and older.
        let Some(place) = self.data.get(rid) else { return Ok(()) };
        let word = Word(place.load(Ordering::Acquire));
        let Some(head) = word.as_pointer() else { return Ok(()) };
        // SAFETY: reached under `guard`. Acquire: pairs with the release of its publication.
        let bits = unsafe { &*head }.stamp.load(Ordering::Acquire);
        if bits <= tombstone.0
            && place.compare_exchange(word.0, Word::EMPTY.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            // SAFETY: unlinked by the exchange above.
            unsafe { guard.retire(head.cast(), Version::free_chain) };
        }
        Ok(())
    }
}
