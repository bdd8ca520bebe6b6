//! Entering the records that were there before an index was added: on standbys and after restarts,
//! where nobody writes.

use freshet_base::{Lsn, RecordKind, Rid, sync::Ordering};

use super::{Content, Index, LoadError, RecordSource};
use crate::{array::Word, definition::KeyBuffer, reclaim::Guard, version::Version};

/// How often a record is looked at again because the log has lost it to a checkpoint, which has
/// left its version in memory.
const TRIES: u32 = 8;

impl Content {
    /// Enters what the record `rid` is for all snapshots above `since`: the rows of its versions
    /// from there on, or of the last one before if there are none, since changes from there on
    /// leave the key as it is. All that has been replayed counts, also what nobody may see yet. May
    /// block on the disk.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn fill(
        &self,
        guard: &Guard<'_>,
        index: &Index,
        rid: Rid,
        since: Lsn,
        source: &dyn RecordSource,
        key: &mut KeyBuffer,
    ) -> Result<(), LoadError> {
        // What is entered here may just be taken away as the remains of a dead record.
        self.note_leftovers();
        let mut tries = 1;
        loop {
            let entered = self.each_row_since(guard, rid, since, source, |row| {
                if let Some(key) = index.key_of(row, key) {
                    index.tree().insert(guard, key, rid).expect("keys were measured");
                }
            });
            match entered {
                Err(_) if tries < TRIES => tries += 1,
                entered => return entered,
            }
        }
    }

    fn each_row_since(
        &self,
        _guard: &Guard<'_>,
        rid: Rid,
        since: Lsn,
        source: &dyn RecordSource,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), LoadError> {
        // The word before the announcement: readers put what was announced on top.
        let mut word = self.data.get(rid).map_or(Word::EMPTY, |place| Word(place.load(Ordering::Acquire)));
        let mut announced = self.replayed(rid);
        let (mut row, mut entered) = (Vec::new(), false);
        loop {
            let base = match (word.as_pointer(), word.as_address().or(word.as_gone())) {
                // SAFETY: found under the guard. Acquire: pairs with the release of its
                // publication; nobody writes here, so LSNs are final.
                (Some(version), _) => Some(Lsn(unsafe { &*version }.lsn.load(Ordering::Acquire))),
                (None, address) => address,
            };
            // What is announced, as far as it is newer than what is in memory.
            let from_log = announced.take().filter(|address| base.is_none_or(|base| *address > base));
            if entered && from_log.or(base).is_some_and(|address| address < since) {
                return Ok(());
            }
            if let Some(address) = from_log.or(word.as_address()) {
                row.clear();
                let loaded = source.load(address, self.fid, rid, &mut row)?;
                // A deletion has the row that it deletes; below `since`, that is of no interest.
                if loaded.kind != RecordKind::Delete || address >= since {
                    each(&row);
                    entered = true;
                }
                if address < since {
                    return Ok(());
                }
                let below = loaded.prev.filter(|prev| *prev < address);
                match from_log {
                    Some(_) => announced = below,
                    None => word = below.map_or(Word::EMPTY, Word::address),
                }
                if below.is_none() {
                    return Ok(());
                }
            } else if let Some(version) = word.as_pointer() {
                // SAFETY: found under the guard.
                if let Some(row) = unsafe { Version::row(version) } {
                    each(row);
                    entered = true;
                }
                if base.is_some_and(|base| base < since) {
                    return Ok(());
                }
                // SAFETY: as above. Acquire: pairs with the thread that linked the version below.
                word = Word(unsafe { &*version }.next.load(Ordering::Acquire));
            } else {
                return Ok(());
            }
        }
    }
}
