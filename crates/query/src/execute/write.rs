//! One record: written or locked, waiting for its holder as the isolation level wants it.

use freshet_engine::{LockWaitError, Record, Rid, Transaction, WriteError};
use freshet_sql::{
    SqlError, SqlState,
    locking::{RowMark, WhenLocked},
};

use super::Run;
use crate::{
    error::{lock_error, read_error, write_error},
    inputs::captured::Captured,
    schema::TableInfo,
    wait::waiting,
};

/// How often a write is tried again when there is nobody to wait for.
pub(super) const TRIES: u32 = 64;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// The row is written.
    Done(T),
    /// READ COMMITTED only: the record is not held any more, was changed since the snapshot, and
    /// has to be looked at again.
    Changed,
    /// It is not there any more.
    Gone,
    /// It is held, and nobody waits for it.
    Held,
}

impl<'a> Run<'a, '_> {
    /// Writes a record. Blocks while another transaction holds it, if `when` says so.
    ///
    /// At READ COMMITTED the caller then looks at the record again, with a newer snapshot; the
    /// other levels fail if the holder has changed it (40001).
    ///
    /// # Errors
    /// 40001, 40P01, 55P03, 57014, and what the engine says.
    pub fn write<T>(
        &self,
        when: WhenLocked,
        mut attempt: impl FnMut(&Transaction<'_>) -> Result<T, WriteError>,
    ) -> Result<Written<T>, SqlError> {
        let mut tries = 0;
        let kept = self.transaction.why_kept();
        loop {
            match attempt(self.transaction) {
                Ok(done) => {
                    if tries > 0 {
                        // Who held it has changed nothing: this is what the snapshot shows.
                        self.transaction.forgive_others(kept);
                    }
                    return Ok(Written::Done(done));
                }
                Err(WriteError::Conflict) => {}
                Err(WriteError::NotFound) => return Ok(Written::Gone),
                Err(other) => return Err(write_error(other)),
            }
            match when {
                WhenLocked::Wait => self.wait_for_holder()?,
                WhenLocked::Skip | WhenLocked::NoWait if self.transaction.is_held() => return Ok(Written::Held),
                WhenLocked::Skip | WhenLocked::NoWait => {}
            }
            if self.read_committed {
                return Ok(Written::Changed);
            }
            tries += 1;
            if tries > TRIES {
                return Err(write_error(WriteError::Conflict));
            }
        }
    }

    /// Locks a record, as [`Run::write`] writes one.
    ///
    /// # Errors
    /// The same; 55P03 when it is held, and that is an error.
    pub fn lock_row(&self, info: &TableInfo, rid: Rid, mark: RowMark) -> Result<Written<()>, SqlError> {
        if self.is_again() {
            return Ok(Written::Done(()));
        }
        let locked = self.write(mark.when, |transaction| transaction.lock(&info.rows, rid, mark.lock))?;
        if locked == Written::Held && mark.when == WhenLocked::NoWait {
            let message = format!("could not obtain lock on row in relation \"{}\"", info.table.name);
            return Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message));
        }
        Ok(locked)
    }

    /// Does `one` with a record that the statement has found; at READ COMMITTED, as long as that
    /// says that it has changed, with what has become of it since, wherever it has moved, if it
    /// still `fits`: what PostgreSQL's EvalPlanQual does. Where the statement is executed again,
    /// what was looked at again is looked at then at once.
    ///
    /// # Errors
    /// What goes wrong in reading, in `fits`, in `one`; 57014.
    pub fn write_found<'t, T: PartialEq>(
        &self,
        info: &TableInfo,
        found: Record<'t>,
        mut fits: impl FnMut(Record<'t>) -> Result<bool, SqlError>,
        mut one: impl FnMut(Record<'t>) -> Result<Written<T>, SqlError>,
    ) -> Result<Written<T>, SqlError>
    where
        'a: 't,
    {
        let (transaction, captured) = (self.transaction, self.environment.captured);
        let (kept, before) = (transaction.why_kept(), captured.map(|it| (it.mark(), transaction.noted_snapshots())));
        let is_noted = captured.is_some_and(Captured::next_row);
        let mut written = if is_noted { Written::Changed } else { one(found)? };
        if written != Written::Changed {
            return Ok(written);
        }
        let (mut rid, mut is_shown) = (found.rid, true);
        while written == Written::Changed {
            (self.interrupted)()?;
            if let (Some(captured), Some((mark, noted))) = (captured, before) {
                // The last look alone counts.
                captured.back_to(mark);
                transaction.forget_snapshots(noted..transaction.noted_snapshots());
            }
            written = transaction.at_present(|| {
                let record = transaction.follow(&info.rows, rid).map_err(read_error)?;
                is_shown = true;
                match record {
                    Some(record) if fits(record)? => {
                        rid = record.rid;
                        let written = one(record)?;
                        // Where a row of others has moved, the log does not say.
                        is_shown = matches!(written, Written::Done(_)) && rid == found.rid;
                        Ok(written)
                    }
                    _ => Ok(Written::Gone),
                }
            })?;
        }
        if let Some(captured) = captured.filter(|_| is_shown) {
            captured.note_look();
            transaction.forgive_others(kept);
        }
        Ok(written)
    }

    /// Blocks while another transaction holds the record that could not be written last.
    ///
    /// # Errors
    /// 40P01, 55P03, 57014.
    pub fn wait_for_holder(&self) -> Result<(), SqlError> {
        let interrupted = self.interrupted;
        let deadline = self.lock_deadline();
        let waited = waiting(interrupted, |patience| self.transaction.wait_for_holder(patience.until(deadline)));
        match waited {
            Ok(()) => Ok(()),
            Err(LockWaitError::Cancelled) => {
                interrupted()?;
                Err(lock_error(LockWaitError::Cancelled))
            }
            Err(other) => Err(lock_error(other)),
        }
    }
}
