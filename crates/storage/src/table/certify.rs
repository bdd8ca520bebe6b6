//! What certification asks of a record.

use freshet_base::{
    Lsn, Rid,
    sync::{Backoff, Ordering},
};

use super::{Content, PATIENCE, ReadContext, ReadError, read::State};
use crate::{
    array::Word,
    owner::{Owner, Phase},
    reclaim::Guard,
    version::Version,
};

/// What stands in the way of a unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newest {
    /// A record that the snapshot sees, of this LSN, or our own, which has none yet.
    Committed(Option<Lsn>),
    /// A record that has come since the snapshot, at this LSN.
    CommittedSince(Lsn),
    /// A record that another transaction is about to make, change or delete, or has deleted since
    /// the snapshot: there the first to come wins.
    Contested,
}

/// What the versions of a record say to who wants to lock it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockable {
    /// Nothing stands in the way.
    Free,
    /// Another transaction is about to change it, or has done so since the snapshot.
    Taken,
    /// The record does not exist, or is deleted.
    Gone,
}

impl Content {
    /// Who else has an uncommitted version on top of this record, and is not done; and whether that
    /// version says that the record goes.
    pub fn holder(&self, _guard: &Guard<'_>, rid: Rid, context: &ReadContext<'_>) -> Option<(Owner, bool)> {
        // Acquire: pairs with the release of the thread that put the version there.
        let word = Word(self.data.get(rid)?.load(Ordering::Acquire));
        // SAFETY: found under the guard. Acquire: pairs with `Installed::commit`.
        let (bits, goes) = unsafe {
            let head = word.as_pointer()?;
            ((*head).lsn.load(Ordering::Acquire), Version::is_tombstone(head))
        };
        let owner = Owner::from_lsn_bits(bits).filter(|owner| context.me != Some(*owner))?;
        matches!(context.owners.phase(owner), Phase::Active | Phase::Committing(_)).then_some((owner, goes))
    }

    /// Whether a transaction that sees a record, and has not written it, may keep others from
    /// changing it: from changing its keys, with `key_only`, from changing anything without.
    /// Waits, bounded, for a version that is about to be taken back.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn lockable(
        &self,
        guard: &Guard<'_>,
        rid: Rid,
        key_only: bool,
        context: &ReadContext<'_>,
    ) -> Result<Lockable, ReadError> {
        let mut backoff = Backoff::new();
        'from_the_head: loop {
            let Some(head) = self.head(guard, rid, context)? else { return Ok(Lockable::Gone) };
            let mut current: *const Version = head.as_ptr();
            loop {
                // SAFETY: reached under `guard`.
                let (state, goes) =
                    unsafe { (Self::state(current, context.me, context.owners), Version::is_tombstone(current)) };
                match state {
                    State::Committed(lsn) if lsn < context.snapshot => {
                        return Ok(if goes { Lockable::Gone } else { Lockable::Free });
                    }
                    State::Mine => return Ok(if goes { Lockable::Gone } else { Lockable::Free }),
                    // A record that has a row keeps its keys.
                    State::Committed(_) | State::Later | State::Committing(_) if key_only && !goes => {}
                    State::Committed(_) | State::Later | State::Committing(_) => return Ok(Lockable::Taken),
                    State::Aborted => {
                        // Its owner is about to take it away, or has replaced it.
                        if backoff.rounds() > PATIENCE {
                            return Err(ReadError::Stalled);
                        }
                        backoff.pause();
                        continue 'from_the_head;
                    }
                }
                // SAFETY: as above. Acquire: as in `walk`.
                match Word(unsafe { &*current }.next.load(Ordering::Acquire)).as_pointer() {
                    Some(older) => current = older,
                    // What lies below is in the log only, so it was there before the snapshot.
                    None => return Ok(Lockable::Free),
                }
            }
        }
    }

    /// Whether a version by somebody else that is visible at `lsn` was not visible in the
    /// context's snapshot, and `counts`: the check of certification, for each record that a
    /// serializable transaction has read. Such versions are shown to `counts` by their LSNs, the
    /// newest first, until one does. Waits, bounded, for transactions that commit below `lsn`.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn changed_before(
        &self,
        _guard: &Guard<'_>,
        rid: Rid,
        lsn: Lsn,
        context: &ReadContext<'_>,
        mut counts: impl FnMut(Lsn) -> bool,
    ) -> Result<bool, ReadError> {
        let word = self.data.get(rid).map_or(Word::EMPTY, |word| Word(word.load(Ordering::Acquire)));
        // In the log only: nobody has written to it since it was last in memory, so nobody since
        // the snapshot.
        let Some(mut current) = word.as_pointer() else { return Ok(false) };
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: reached under `_guard`.
            match unsafe { Self::state(current, context.me, context.owners) } {
                // We could only write over what our snapshot sees.
                State::Mine => return Ok(false),
                State::Committed(theirs) if theirs < context.snapshot => return Ok(false),
                State::Committed(theirs) if theirs < lsn => {
                    if counts(theirs) {
                        return Ok(true);
                    }
                }
                State::Committed(_) | State::Later | State::Aborted => {}
                State::Committing(Some(theirs)) if theirs > lsn => {}
                State::Committing(_) => {
                    if backoff.rounds() > PATIENCE {
                        return Err(ReadError::Stalled);
                    }
                    backoff.pause();
                    continue;
                }
            }
            // SAFETY: as above. Acquire: as in `walk`.
            match Word(unsafe { &*current }.next.load(Ordering::Acquire)).as_pointer() {
                Some(older) => current = older,
                None => return Ok(false),
            }
        }
    }

    /// Whether a record may stand in the way of a unique key: `None` when it is gone for the
    /// context's snapshot and for everybody since, or does not satisfy `has_key`. Never blocks, but
    /// for the disk.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn newest<'g>(
        &self,
        guard: &'g Guard<'_>,
        rid: Rid,
        context: &ReadContext<'_>,
        mut has_key: impl FnMut(&'g [u8]) -> bool,
    ) -> Result<Option<Newest>, ReadError> {
        let mut backoff = Backoff::new();
        'from_the_head: loop {
            let Some(head) = self.head(guard, rid, context)? else { return Ok(None) };
            let mut current: *const Version = head.as_ptr();
            // Whether something above may be, or was since the snapshot, on its way to another key
            // or to the end.
            let mut going = false;
            loop {
                // SAFETY: reached under `guard`.
                let (state, row) = unsafe { (Self::state(current, context.me, context.owners), Version::row(current)) };
                let has = row.is_some_and(&mut has_key);
                match state {
                    State::Mine => return Ok(has.then_some(Newest::Committed(None))),
                    State::Committed(_) if has && going => return Ok(Some(Newest::Contested)),
                    State::Committed(lsn) if has && lsn < context.snapshot => {
                        return Ok(Some(Newest::Committed(Some(lsn))));
                    }
                    State::Committed(lsn) if has => return Ok(Some(Newest::CommittedSince(lsn))),
                    State::Committed(lsn) if lsn < context.snapshot => return Ok(None),
                    State::Later | State::Committing(_) if has => return Ok(Some(Newest::Contested)),
                    State::Committed(_) | State::Later | State::Committing(_) => going = true,
                    State::Aborted => {
                        // Taken back: then what lies below counts. Or replaced: then its
                        // replacement does, which is on top.
                        let word = self.data.get(rid).map_or(Word::EMPTY, |word| Word(word.load(Ordering::Acquire)));
                        if word != Word::pointer(head.as_ptr()) {
                            if backoff.rounds() > PATIENCE {
                                return Err(ReadError::Stalled);
                            }
                            backoff.pause();
                            continue 'from_the_head;
                        }
                    }
                }
                // SAFETY: as above. Acquire: as in `walk`.
                match Word(unsafe { &*current }.next.load(Ordering::Acquire)).as_pointer() {
                    Some(older) => current = older,
                    None => return Ok(None),
                }
            }
        }
    }
}
