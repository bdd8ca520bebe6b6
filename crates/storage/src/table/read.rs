//! Reading: from a record id to the version that a snapshot sees.

use std::ptr::NonNull;

use freshet_base::{
    Lsn, Rid,
    sync::{Backoff, Ordering},
};

use super::{Content, LoadError, PATIENCE, ReadError, RecordSource};
use crate::{
    array::Word,
    owner::{ABORTED, Owner, Owners, Phase},
    reclaim::Guard,
    version::Version,
};

/// How often a reader follows replay's word again after it led to bytes that are not the record.
const MISMATCHES: u32 = if cfg!(loom) { 2 } else { 1000 };

/// What a reader needs to know besides the record.
#[derive(Clone, Copy)]
pub struct ReadContext<'c> {
    /// Versions below this LSN are visible.
    pub snapshot: Lsn,
    /// The reader's own transaction, if it has written.
    pub me: Option<Owner>,
    /// What has become of everybody's.
    pub owners: &'c Owners,
    /// Where versions come from that are not in memory.
    pub source: &'c dyn RecordSource,
    /// An LSN at or below every announced snapshot (see [`crate::Participants::horizon`]).
    pub horizon: Lsn,
}

/// The version that a snapshot sees.
#[derive(Clone, Copy, Debug)]
pub struct Visible<'g> {
    /// Its LSN; `None` for the reader's own.
    pub lsn: Option<Lsn>,
    /// Its row; `None` when it says that the record is deleted.
    pub row: Option<&'g [u8]>,
}

/// A version seen from one reader.
pub(super) enum State {
    Committed(Lsn),
    Mine,
    /// Not committed, and when it commits its LSN will be above every LSN taken so far.
    Later,
    /// Taking or validating this LSN.
    Committing(Option<Lsn>),
    Aborted,
}

impl Content {
    /// What the context's snapshot sees of a record; `None` when it never existed for it.
    ///
    /// Waits, bounded, for a transaction that is committing below the snapshot. Blocks on the
    /// disk when a version has to be loaded from the log.
    ///
    /// # Errors
    /// See [`ReadError`].
    #[inline]
    pub fn read<'g>(
        &self,
        guard: &'g Guard<'_>,
        rid: Rid,
        context: &ReadContext<'_>,
    ) -> Result<Option<Visible<'g>>, ReadError> {
        let Some(head) = self.head(guard, rid, context)? else { return Ok(None) };
        Version::prefetch_row(head.as_ptr());
        let Some((version, lsn)) = self.walk(head, rid, context)? else { return Ok(None) };
        // SAFETY: reached under `guard`, which outlives 'g.
        Ok(Some(Visible { lsn, row: unsafe { Version::row(version) } }))
    }

    /// Which record has the row of this one, for the context's snapshot, since a transaction has
    /// changed a key: another one, or with `own` the context's itself. Only while a snapshot that
    /// saw the record is announced: later its id may be another's.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn moved_to(
        &self,
        guard: &Guard<'_>,
        rid: Rid,
        context: &ReadContext<'_>,
        own: bool,
    ) -> Result<Option<Rid>, ReadError> {
        let Some(head) = self.head(guard, rid, context)? else { return Ok(None) };
        let found = self.walk(head, rid, context)?.filter(|(_, lsn)| own || lsn.is_some());
        let Some((version, _)) = found else { return Ok(None) };
        // SAFETY: reached under `guard`.
        Ok(unsafe { Version::moved_to(version) })
    }

    /// The head of the chain in memory, after loading what replay has announced.
    #[inline]
    pub(super) fn head(
        &self,
        guard: &Guard<'_>,
        rid: Rid,
        context: &ReadContext<'_>,
    ) -> Result<Option<NonNull<Version>>, ReadError> {
        let mut backoff = Backoff::new();
        loop {
            // Acquire: pairs with the release of the thread that installed what the word points to.
            let word = self.data.get(rid).map_or(Word::EMPTY, |word| Word(word.load(Ordering::Acquire)));
            let result = if !self.replay.is_empty() && self.is_behind(word, rid, context) {
                self.catch_up(guard, word, rid, context)
            } else {
                Ok(false)
            };
            match (result, word.as_address()) {
                (Ok(false), None) => return Ok(word.as_pointer().and_then(NonNull::new)),
                (Ok(false), Some(address)) => {
                    let place = self.data.get(rid).expect("it holds an address");
                    self.load_into(place, word, address, rid, context)?;
                }
                (Ok(true), _) => {}
                // The log may just have been cut where we looked; replay's word is put right then.
                (Err(LoadError::Mismatch { .. }), _) if backoff.rounds() < MISMATCHES => backoff.pause(),
                (Err(cause), _) => return Err(cause.into()),
            }
        }
    }

    /// Whether replay has announced something that this reader may have to see.
    fn is_behind(&self, word: Word, rid: Rid, context: &ReadContext<'_>) -> bool {
        let word_of_replay = self.announced(rid);
        let announced = word_of_replay.address();
        if announced == 0 {
            return false;
        }
        match (word.as_pointer(), word.as_address().or(word.as_gone())) {
            (Some(head), _) => {
                // SAFETY: found under the caller's guard. Acquire: pairs with `Installed::commit`.
                let bits = unsafe { &*head }.lsn.load(Ordering::Acquire);
                // An owner's version was put on top of everything that was announced; and below an
                // invisible head the chain is whole (section 3.4.3).
                Owner::from_lsn_bits(bits).is_none() && bits != ABORTED && bits < announced && bits < context.snapshot.0
            }
            (None, Some(address)) => address.0 < announced,
            // Of what is being loaded, a reader from before must not ask the log record by record.
            (None, None) => !word_of_replay.is_first() || announced < context.snapshot.0,
        }
    }

    /// From `head` to the version that the snapshot sees, and its LSN; none of the reader's own.
    #[inline]
    pub(super) fn walk(
        &self,
        head: NonNull<Version>,
        rid: Rid,
        context: &ReadContext<'_>,
    ) -> Result<Option<(*const Version, Option<Lsn>)>, ReadError> {
        let mut current: *const Version = head.as_ptr();
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: `current` was reached under the guard of our caller.
            let visible = match unsafe { Self::state(current, context.me, context.owners) } {
                State::Committed(lsn) if lsn < context.snapshot => Some(Some(lsn)),
                State::Mine => Some(None),
                State::Committed(_) | State::Later | State::Aborted => None,
                State::Committing(Some(lsn)) if lsn >= context.snapshot => None,
                State::Committing(_) => {
                    // Its outcome decides what we see (design: bounded wait).
                    if backoff.rounds() > PATIENCE {
                        return Err(ReadError::Stalled);
                    }
                    backoff.pause();
                    continue;
                }
            };
            if let Some(lsn) = visible {
                return Ok(Some((current, lsn)));
            }
            // SAFETY: as above. Acquire: pairs with the thread that linked the older version.
            let next = unsafe { &(*current).next };
            let word = Word(next.load(Ordering::Acquire));
            if let Some(older) = word.as_pointer() {
                current = older;
                continue;
            }
            let missing = word.as_gone().filter(|tombstone| *tombstone >= context.snapshot);
            let Some(address) = word.as_address().or(missing) else { return Ok(None) };
            self.load_into(next, word, address, rid, context)?;
        }
    }

    /// # Safety
    /// `version` was reached under a guard that is still held.
    #[inline]
    pub(super) unsafe fn state(version: *const Version, me: Option<Owner>, owners: &Owners) -> State {
        loop {
            // SAFETY: by this function's contract. Acquire: pairs with the release in
            // `Installed::commit`.
            let bits = unsafe { &*version }.lsn.load(Ordering::Acquire);
            let Some(owner) = Owner::from_lsn_bits(bits) else {
                return if bits == ABORTED { State::Aborted } else { State::Committed(Lsn(bits)) };
            };
            if me == Some(owner) {
                return State::Mine;
            }
            return match owners.phase(owner) {
                Phase::Active => State::Later,
                Phase::Committing(lsn) => State::Committing(lsn),
                Phase::Committed(lsn) => State::Committed(lsn),
                Phase::Aborted => State::Aborted,
                // It is over, and before it was, each of its versions got its final LSN, or was
                // given up, or replaced: once more suffices.
                Phase::Over => continue,
            };
        }
    }
}
