//! Looking at records in order to find damage: what the node's sweep does in the background.
//!
//! Nothing is changed here, and no version is made. What is looked at may change in the meantime,
//! so what is found counts only when it is found again later.

use freshet_base::{Lsn, RecordKind, Rid, sync::Ordering};

use super::{Content, LoadError, ReadContext, ReadError, RecordSource, Visible};
use crate::{
    array::{IndirectionArray, Word},
    owner::{ABORTED, Owner},
    reclaim::Guard,
    version::Version,
};

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A version's bytes are not those that it was made with.
    #[error(
        "the row that it has since {} is not the one that was put there",
        lsn.map_or_else(|| "not yet".to_owned(), |at| at.to_string())
    )]
    Row {
        /// The version's LSN; none of one that is not committed.
        lsn: Option<Lsn>,
    },
    /// The version below another one is not older.
    #[error("its version of {lsn} lies above one of {below}")]
    Order {
        /// The LSN of the upper version.
        lsn: Lsn,
        /// The LSN of the lower version, which is not smaller.
        below: Lsn,
    },
    /// Its word in the data array leads to a place in the log where it is not.
    #[error("its word leads to {address} in the log, where no version of it lies")]
    Word {
        /// The place in the log to which the word leads.
        address: Lsn,
    },
    /// Its word in the replay array does.
    #[error("its replay word leads to {address} in the log, where no version of it lies")]
    Replay {
        /// The place in the log to which the word leads.
        address: Lsn,
    },
    /// Its word in the replay array says that its version there is the first, and that replaced
    /// another one.
    #[error("its replay word calls the version at {address} its first, and there was one before")]
    First {
        /// The LSN of that version.
        address: Lsn,
    },
    /// The log could not be read.
    #[error("the log, to which its word leads, cannot be read at {address}: {cause}")]
    Unreadable {
        /// The place in the log that was to be read.
        address: Lsn,
        /// What the log says of it.
        cause: String,
    },
}

/// What a snapshot sees of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Examined<'r> {
    /// Nothing, or that it is deleted.
    Nothing,
    /// This row, which is the newest that is known.
    Row(&'r [u8]),
    /// There is something newer than the snapshot.
    Later,
}

/// What is in memory of a record.
#[derive(Default)]
struct InMemory<'g> {
    /// The LSN of its newest committed version, or what the word says.
    newest: Option<Lsn>,
    /// Of the newest that the snapshot sees: its LSN, and its row unless it is a deletion.
    seen: Option<(Lsn, Option<&'g [u8]>)>,
    /// Whether a committed version is newer than the snapshot.
    later: bool,
    /// Whether a version has the LSN that was asked for.
    has: bool,
    /// What lies in the log, or is gone, below all versions.
    below: Word,
    /// Whether any version is in memory.
    versions: bool,
}

impl Default for Word {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Content {
    /// One past the largest record id that was ever given to a record.
    pub fn rid_limit(&self) -> Rid {
        Rid(self.next_rid.load(Ordering::Relaxed))
    }

    /// The first record id at or above `rid` that may have a record.
    pub fn next_place(&self, rid: Rid) -> Option<Rid> {
        let mut rid = rid;
        while rid < self.rid_limit() {
            if self.data.get(rid).is_some() || self.replay.get(rid).is_some() {
                return Some(rid);
            }
            rid = IndirectionArray::next_chunk(rid);
        }
        None
    }

    /// Whether there is nothing at all of a record. While its index entries are entered, there is
    /// something.
    pub fn has_nothing(&self, _guard: &Guard<'_>, rid: Rid) -> bool {
        // Acquire: who finds an entry finds the word that was there before it.
        self.data.get(rid).is_none_or(|word| Word(word.load(Ordering::Acquire)).is_empty())
            && self.replayed(rid).is_none()
    }

    /// Whether index entries may be left that lead to nothing: after a restart, a cut of the log,
    /// and where an index was filled on a standby.
    pub fn may_have_leftovers(&self) -> bool {
        self.leftovers.load(Ordering::Relaxed)
    }

    /// From now on [`Content::may_have_leftovers`] is true.
    #[inline]
    pub(super) fn note_leftovers(&self) {
        if !self.leftovers.load(Ordering::Relaxed) {
            self.leftovers.store(true, Ordering::Relaxed);
        }
    }

    /// Looks at all that is known of a record: the bytes of its versions, their order, and whether
    /// its words lead to versions of this record. Returns what `snapshot` sees, whose row may be
    /// read into `row`. Never waits for a transaction, so of one that is committing it sees what
    /// was before. Blocks on the disk when a word leads to the log.
    ///
    /// # Errors
    /// What is wrong, if it is found again in a while.
    pub fn examine<'r>(
        &self,
        guard: &'r Guard<'_>,
        rid: Rid,
        snapshot: Lsn,
        source: &dyn RecordSource,
        row: &'r mut Vec<u8>,
    ) -> Result<Examined<'r>, Damage> {
        // The word before the announcement: readers put what was announced on top.
        let word = self.data.get(rid).map_or(Word::EMPTY, |place| Word(place.load(Ordering::Acquire)));
        let word_of_replay = self.announced(rid);
        let announced = Some(Lsn(word_of_replay.address())).filter(|at| *at != Lsn::ZERO);
        let memory = Self::examine_chain(guard, word, snapshot, announced)?;
        row.clear();
        let mut load = |address| source.load(address, self.fid, rid, row);
        let unreadable = |address, cause| Damage::Unreadable { address, cause };
        let mut from_log = None;
        if let Some(address) = memory.below.as_address().filter(|_| !memory.versions) {
            let loaded = load(address).map_err(|cause| match cause {
                LoadError::Mismatch { address } => Damage::Word { address },
                LoadError::Log(cause) => unreadable(address, cause),
            })?;
            from_log = Some((address, loaded.kind));
        }
        // What is announced is mostly in memory too, and then it needs no other witness.
        if let Some(address) = announced.filter(|at| !memory.has && memory.below.as_address() != Some(*at)) {
            let is_ahead = memory.newest.is_none_or(|newest| newest < address);
            if is_ahead {
                row.clear();
            }
            let mut unneeded = Vec::new();
            let into = if is_ahead { &mut *row } else { &mut unneeded };
            match source.load(address, self.fid, rid, into) {
                Ok(loaded) if word_of_replay.is_first() && loaded.prev.is_some() => {
                    return Err(Damage::First { address });
                }
                Ok(loaded) if is_ahead => from_log = Some((address, loaded.kind)),
                Ok(_) => {}
                Err(LoadError::Mismatch { address }) => return Err(Damage::Replay { address }),
                // Of what is in memory since, the log need not be there any more.
                Err(LoadError::Log(_)) if !is_ahead => {}
                Err(LoadError::Log(cause)) => return Err(unreadable(address, cause)),
            }
        }
        Ok(match (from_log, memory.seen) {
            (Some((address, _)), _) if address >= snapshot => Examined::Later,
            (Some((_, RecordKind::Delete)), _) => Examined::Nothing,
            (Some(_), _) => Examined::Row(row),
            _ if memory.later => Examined::Later,
            (None, Some((_, Some(row)))) => Examined::Row(row),
            (None, _) => Examined::Nothing,
        })
    }

    /// As [`Content::read`], and whether what is seen is as it was made.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_whole<'g>(
        &self,
        guard: &'g Guard<'_>,
        rid: Rid,
        context: &ReadContext<'_>,
    ) -> Result<Option<(Visible<'g>, bool)>, ReadError> {
        let Some(head) = self.head(guard, rid, context)? else { return Ok(None) };
        let Some((version, lsn)) = self.walk(head, rid, context)? else { return Ok(None) };
        // SAFETY: reached under `guard`, which outlives 'g.
        Ok(Some(unsafe { (Visible { lsn, row: Version::row(version) }, Version::is_whole(version)) }))
    }

    fn examine_chain<'g>(
        _guard: &'g Guard<'_>,
        word: Word,
        snapshot: Lsn,
        announced: Option<Lsn>,
    ) -> Result<InMemory<'g>, Damage> {
        let mut found = InMemory { below: word, ..InMemory::default() };
        let mut above: Option<Lsn> = None;
        while let Some(version) = found.below.as_pointer() {
            found.versions = true;
            // SAFETY: reached under the guard, which outlives 'g. Acquire: pairs with
            // `Installed::commit`, and with the thread that linked the older version.
            let (bits, next, row, whole) = unsafe {
                let row = Version::row(version);
                let bits = (*version).lsn.load(Ordering::Acquire);
                (bits, (*version).next.load(Ordering::Acquire), row, Version::is_whole(version))
            };
            let is_final = Owner::from_lsn_bits(bits).is_none() && bits != ABORTED;
            let lsn = is_final.then_some(Lsn(bits));
            if !whole {
                return Err(Damage::Row { lsn });
            }
            if let Some(lsn) = lsn {
                if let Some(newer) = above.filter(|newer| *newer <= lsn) {
                    return Err(Damage::Order { lsn: newer, below: lsn });
                }
                above = Some(lsn);
                found.newest = found.newest.or(Some(lsn));
                found.has |= announced == Some(lsn);
                if lsn >= snapshot {
                    found.later = true;
                } else if found.seen.is_none() {
                    found.seen = Some((lsn, row));
                }
            }
            found.below = Word(next);
        }
        let below = found.below.as_address().or(found.below.as_gone());
        if let (Some(newer), Some(below)) = (above, below)
            && newer <= below
        {
            return Err(Damage::Order { lsn: newer, below });
        }
        found.newest = found.newest.or(below);
        Ok(found)
    }
}

/// Damage on purpose, for tests and the torture: not in builds for use.
#[cfg(debug_assertions)]
impl Content {
    /// Flips a bit in the newest row that is in memory of a record. Returns whether there was one.
    #[doc(hidden)]
    pub fn break_row(&self, _guard: &Guard<'_>, rid: Rid) -> bool {
        let word = self.data.get(rid).map_or(Word::EMPTY, |place| Word(place.load(Ordering::Acquire)));
        let mut version = word.as_pointer();
        while let Some(here) = version {
            // SAFETY: reached under the guard. Who reads the row at this moment gets one of two
            // bytes: that is the damage.
            if unsafe { Version::break_row(here) } {
                return true;
            }
            // SAFETY: as above.
            version = Word(unsafe { &*here }.next.load(Ordering::Acquire)).as_pointer();
        }
        false
    }

    /// Forgets what is in memory of a record, and nowhere else: replay does not know it. Returns
    /// whether there was anything. Not where its entries would be taken for ones left over.
    #[doc(hidden)]
    pub fn break_record(&self, guard: &Guard<'_>, rid: Rid) -> bool {
        let replayed = self.replay.get(rid).is_some_and(|word| word.load(Ordering::Acquire) != 0);
        let Some(place) = self.data.get(rid).filter(|_| !replayed && !self.may_have_leftovers()) else {
            return false;
        };
        let word = Word(place.swap(0, Ordering::AcqRel));
        if let Some(version) = word.as_pointer() {
            // SAFETY: unlinked by the exchange.
            unsafe { guard.retire(version.cast(), Version::chain_bytes(version), Version::free_chain) };
        }
        !word.is_empty()
    }

    /// Has the replay word of a record lead to another place. Returns whether there was one.
    #[doc(hidden)]
    pub fn break_replay(&self, rid: Rid) -> bool {
        let Some(word) = self.replay.get(rid).filter(|word| word.load(Ordering::Acquire) != 0) else { return false };
        word.fetch_add(16, Ordering::AcqRel);
        true
    }
}
