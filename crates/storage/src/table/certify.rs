//! What certification asks of a record.

use freshet_base::{
    Rid, Stamp,
    sync::{Backoff, Ordering},
};

use super::{PATIENCE, ReadContext, ReadError, Table, read::State};
use crate::{array::Word, reclaim::Guard, version::Version};

/// What stands in the way of a unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newest {
    /// A record that is there, or is our own.
    Committed,
    /// A record that another transaction is about to make, change or delete.
    Uncommitted,
}

impl Table {
    /// Whether a version by somebody else that is visible at `stamp` was not visible in the context's snapshot:
    /// the check of certification, for each record that a serializable transaction has read.
    /// Waits, bounded, for transactions that commit below `stamp`.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn changed_before(
        &self,
        _guard: &Guard<'_>,
        rid: Rid,
        stamp: Stamp,
        context: &ReadContext<'_>,
    ) -> Result<bool, ReadError> {
        let word = self.data.get(rid).map_or(Word::EMPTY, |word| Word(word.load(Ordering::Acquire)));
        // In the log only: nobody has written to it since it was last in memory, so nobody since the snapshot.
        let Some(mut current) = word.as_pointer() else { return Ok(false) };
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: reached under `_guard`.
            match unsafe { Self::state(current, context.me, context.owners) } {
                // We could only write over what our snapshot sees.
                State::Mine => return Ok(false),
                State::Committed(theirs) if theirs < context.snapshot => return Ok(false),
                State::Committed(theirs) if theirs < stamp => return Ok(true),
                State::Committed(_) | State::Later | State::Aborted => {}
                State::Committing(Some(theirs)) if theirs > stamp => {}
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

    /// Whether a record may stand in the way of a unique key: `None` when it is gone or its
    /// newest version, committed or not, does not satisfy `has_key`; otherwise whether that version is committed.
    /// Never blocks, but for the disk.
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
        let Some(head) = self.head(guard, rid, context)? else { return Ok(None) };
        let mut current: *const Version = head.as_ptr();
        let mut uncommitted_above = false;
        loop {
            // SAFETY: reached under `guard`.
            let (state, row) = unsafe { (Self::state(current, context.me, context.owners), Version::row(current)) };
            let has = row.is_some_and(&mut has_key);
            match state {
                State::Mine => return Ok(has.then_some(Newest::Committed)),
                State::Committed(_) if uncommitted_above => return Ok(has.then_some(Newest::Uncommitted)),
                State::Committed(_) => return Ok(has.then_some(Newest::Committed)),
                State::Aborted => {}
                State::Later | State::Committing(_) if has => return Ok(Some(Newest::Uncommitted)),
                // It is being deleted or given another key, but may also be left as it was.
                State::Later | State::Committing(_) => uncommitted_above = true,
            }
            // SAFETY: as above. Acquire: as in `walk`.
            match Word(unsafe { &*current }.next.load(Ordering::Acquire)).as_pointer() {
                Some(older) => current = older,
                None => return Ok(None),
            }
        }
    }
}
