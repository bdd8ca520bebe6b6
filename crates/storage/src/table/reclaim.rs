//! Reclamation: versions that no snapshot can see any more, and records that are gone.
//!
//! A version goes when a newer one is older than every announced snapshot and durable on this node,
//! since transactions that begin while the log is stalled read what is durable. Reclamation does
//! not wait for standbys, so a slow one makes no chain or scan longer.

use freshet_base::{Fid, Lsn, RecordKind, Rid, sync::Ordering};

use super::{Content, LoadError, ReadContext, Reclaimed};
use crate::{array::Word, definition::KeyBuffer, reclaim::Guard, version::Version};

/// How often the remains of a deleted record are looked through again because replay gives its id
/// to others in the meantime. Beyond that some index entries stay, as hints that lead nowhere.
const ROUNDS: u32 = 8;

/// What trimming has cut off a chain.
struct Cut {
    /// The version that stays, the last of its chain.
    last: *mut Version,
    /// The LSN of the deletion.
    lsn: Lsn,
    /// What was below it: now nobody's but the cutter's.
    chain: *mut Version,
}

impl Content {
    /// Cuts off what is below the first version older than `horizon`, from `head` on.
    fn cut(_guard: &Guard<'_>, head: *mut Version, horizon: Lsn) -> Option<Cut> {
        let mut last = head;
        let lsn = loop {
            // SAFETY: here and below, versions are reached under the guard. Acquire: pairs with
            // `Installed::commit`.
            let bits = unsafe { &*last }.lsn.load(Ordering::Acquire);
            if bits < horizon.0 {
                break Lsn(bits);
            }
            // SAFETY: as above. Acquire: pairs with the thread that linked the older version.
            last = Word(unsafe { &*last }.next.load(Ordering::Acquire)).as_pointer()?;
        };
        // SAFETY: as above. AcqRel: a thread that gets the chain sees it whole and is the only one
        // to do so.
        let chain = Word(unsafe { &*last }.next.swap(0, Ordering::AcqRel)).as_pointer()?;
        Some(Cut { last, lsn, chain })
    }

    /// Drops the versions of a record that nobody can see any more: those below the first one
    /// older than `horizon`. Touches no index.
    pub(super) fn trim_versions(&self, guard: &Guard<'_>, rid: Rid, horizon: Lsn) {
        // Acquire: pairs with the release of the thread that installed the head.
        let head = self.data.get(rid).and_then(|place| Word(place.load(Ordering::Acquire)).as_pointer());
        if let Some(Cut { chain, .. }) = head.and_then(|head| Self::cut(guard, head, horizon)) {
            // SAFETY: unlinked by the cut, which gives a chain to one only.
            unsafe { guard.retire(chain.cast(), Version::chain_bytes(chain), Version::free_chain) };
        }
    }

    /// On the primary: as [`Content::trim_versions`] says, and when what stays is a tombstone and
    /// the newest version, the record itself goes, its index entries with it, and its id is free.
    ///
    /// Neither waits until the newer version, or the deletion, is committed. No snapshot of this
    /// node reads what is below it, and this node never goes back: a log that is cut below an
    /// uncommitted commit is that of another node, or of this one after a restart, and both rebuild
    /// what there was from checkpoint and log. A checkpoint that has missed the old version counts
    /// only when the log up to its end is committed, and with that the newer one. What remains is
    /// the reader who finds nothing: his answer must wait until the deletion is committed, and the
    /// tombstone, which would tell him, is gone. So the leaf in which he looks tells
    /// ([`LeafVersion::removed`](crate::index::LeafVersion::removed)). Records are read by id only
    /// where an index has led to it under the same snapshot, and that snapshot keeps what it has
    /// found.
    pub fn trim(&self, guard: &Guard<'_>, rid: Rid, horizon: Lsn) -> Option<Reclaimed> {
        let place = self.data.get(rid)?;
        // Acquire: pairs with the release of the thread that installed the head.
        let head = Word(place.load(Ordering::Acquire)).as_pointer()?;
        let Cut { last, lsn, chain } = Self::cut(guard, head, horizon)?;
        let mut reclaimed = None;
        // File ids are never used again, and the next one is found by looking which were: a
        // tombstone of the catalog leaves a trace.
        let (after, is_file) = match self.fid {
            Fid::CATALOG => (Word::gone(lsn).0, true),
            _ => (0, false),
        };
        // SAFETY: reached under `guard`.
        if last == head && unsafe { Version::is_tombstone(last) } {
            // SAFETY: as above; below a tombstone lies the row that it deleted.
            if let Some(row) = unsafe { Version::row(chain) } {
                let announced = self.replayed(rid);
                self.forget(guard, rid, row, lsn, || self.replayed(rid) == announced, |_, _| false);
            }
            // What replay announced for this record, on a primary that was a standby, is older than
            // the tombstone.
            self.replay_forget(rid, lsn);
            // Nobody installs over a committed tombstone, and only we got its chain. AcqRel: a
            // thread that finds the id free finds its index entries gone. Failure: asserted.
            let result = place.compare_exchange(Word::pointer(head).0, after, Ordering::AcqRel, Ordering::Relaxed);
            assert!(result.is_ok(), "a tombstone that all can see stays on top of {rid:?} of {self:?}");
            // SAFETY: unlinked just now; its chain goes separately.
            unsafe { guard.retire(head.cast(), Version::bytes_of(head), Version::free) };
            reclaimed = (!is_file).then_some(Reclaimed { rid, tombstone: Some(lsn) });
        }
        // SAFETY: unlinked by the cut.
        unsafe { guard.retire(chain.cast(), Version::chain_bytes(chain), Version::free_chain) };
        reclaimed
    }

    /// Takes away the index entries that `row` of the dead record has, which was deleted at
    /// `deleted`, unless the id has been given to a record for which `keep(index, key)` says that
    /// it needs the same entry. On a standby, replay may give the id to another record at any
    /// moment: it announces that before it enters the indexes, and whether what `keep` knows of is
    /// `still` the newest is looked at under the latch of the entry's leaf; when it is not, the
    /// entry stays.
    fn forget(
        &self,
        guard: &Guard<'_>,
        rid: Rid,
        row: &[u8],
        deleted: Lsn,
        still: impl Fn() -> bool,
        mut keep: impl FnMut(usize, &[u8]) -> bool,
    ) {
        let mut key = KeyBuffer::new();
        for (number, index) in self.indexes(guard).iter() {
            let Some(key) = index.key_of(row, &mut key) else { continue };
            if !keep(number, key) {
                index.tree().remove_if(guard, key, rid, deleted, &still);
            }
        }
    }

    /// On a standby: takes away what is left of a record whose deletion at `tombstone` every
    /// snapshot sees: versions in memory and index entries; the word says then that it is gone.
    /// Blocks on the disk when the deleted row is no longer in the log's buffer.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn reclaim_replayed(
        &self,
        guard: &Guard<'_>,
        rid: Rid,
        tombstone: Lsn,
        context: &ReadContext<'_>,
    ) -> Result<(), LoadError> {
        debug_assert!(tombstone < context.horizon);
        // Entries stay behind where the log cannot be read, or ids are used again all the time.
        self.note_leftovers();
        let mut row = Vec::new();
        let dead = context.source.load(tombstone, self.fid, rid, &mut row)?;
        if dead.kind != RecordKind::Delete {
            return Err(LoadError::Mismatch { address: tombstone });
        }
        for _ in 0..ROUNDS {
            let announced = self.newest_known(guard, rid);
            let later = self.rows_since(rid, announced, tombstone, context)?;
            let still = || self.newest_known(guard, rid) == announced;
            // Readers here see what is committed, deletions as well.
            self.forget(guard, rid, &row, Lsn::ZERO, still, |index, key| {
                later
                    .iter()
                    .any(|row| self.indexes(guard).get(index).is_some_and(|index| index.definition().matches(row, key)))
            });
            if still() {
                break;
            }
        }
        self.mark_gone(guard, rid, tombstone);
        Ok(())
    }

    /// Says in the word that the record is gone since `tombstone`, unless the id has another record
    /// since.
    fn mark_gone(&self, guard: &Guard<'_>, rid: Rid, tombstone: Lsn) {
        // What is in memory is the tombstone and older, or nothing yet.
        let Some(place) = self.data.get_or_grow(rid) else { return };
        // Acquire: pairs with the release of the thread that installed the head.
        let mut word = Word(place.load(Ordering::Acquire));
        loop {
            let head = word.as_pointer();
            let is_older = match head {
                // SAFETY: reached under `guard`. Acquire: pairs with the release of its
                // publication.
                Some(head) => unsafe { &*head }.lsn.load(Ordering::Acquire) <= tombstone.0,
                // A worker that has the id already has forgotten what was announced, and emptied
                // the word after that.
                None => {
                    word.as_address().or(word.as_gone()).is_none_or(|there| there < tombstone)
                        && self.replayed(rid).is_some_and(|announced| announced >= tombstone)
                }
            };
            if !is_older {
                return;
            }
            // AcqRel: the thread that gets the chain sees it whole. Failure, acquire as above: a
            // reader has just put on top what it has read in the log, which may be this very
            // tombstone; nothing else would come back for the id.
            let gone = Word::gone(tombstone).0;
            match place.compare_exchange(word.0, gone, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.free.noted(rid);
                    if let Some(head) = head {
                        // SAFETY: unlinked by the exchange above.
                        unsafe { guard.retire(head.cast(), Version::chain_bytes(head), Version::free_chain) };
                    }
                    return;
                }
                Err(now) => word = Word(now),
            }
        }
    }

    /// The rows of the records that have had the id since `tombstone`, up to what is `announced`:
    /// the index entries that one of them needs must stay.
    fn rows_since(
        &self,
        rid: Rid,
        announced: Option<Lsn>,
        tombstone: Lsn,
        context: &ReadContext<'_>,
    ) -> Result<Vec<Vec<u8>>, LoadError> {
        let mut rows = Vec::new();
        let mut next = announced;
        while let Some(address) = next.filter(|address| *address > tombstone) {
            let mut row = Vec::new();
            let loaded = context.source.load(address, self.fid, rid, &mut row)?;
            // An update, too: the columns of an index that was added since may have changed in it.
            if loaded.kind != RecordKind::Delete {
                rows.push(row);
            }
            next = loaded.prev.filter(|prev| *prev < address);
        }
        Ok(rows)
    }
}
