//! One record: written or locked, waiting for its holder as the isolation level wants it.

use freshet_engine::{LockWaitError, Transaction, WriteError};
use freshet_sql::{SqlError, SqlState};

use super::Run;
use crate::{
    bind::select::WhenLocked,
    error::{lock_error, write_error},
};

/// How often a write is tried again when there is nobody to wait for.
pub(super) const TRIES: u32 = 64;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// It is done.
    Done(T),
    /// The record was changed meanwhile, and has to be looked at again.
    Changed,
    /// It is not there any more, or not where it was.
    Gone,
    /// It is held, and nobody waits for it.
    Held,
}

impl Run<'_, '_> {
    /// Writes a record. Blocks while another transaction holds it.
    ///
    /// READ COMMITTED takes a newer snapshot then, and the caller looks at the record again; the other levels fail if the holder has
    /// changed it (40001).
    ///
    /// # Errors
    /// 40001, 40P01, 55P03, 57014, and what the engine says.
    pub fn write<T>(
        &self,
        when: WhenLocked,
        mut attempt: impl FnMut(&Transaction<'_>) -> Result<T, WriteError>,
    ) -> Result<Written<T>, SqlError> {
        let mut tries = 0;
        loop {
            match attempt(self.transaction) {
                Ok(done) => return Ok(Written::Done(done)),
                Err(WriteError::Conflict) => {}
                Err(WriteError::NotFound) => return Ok(Written::Gone),
                Err(other) => return Err(write_error(other)),
            }
            match when {
                WhenLocked::Wait => self.wait_for_holder()?,
                WhenLocked::Skip => return Ok(Written::Held),
                WhenLocked::NoWait => {
                    let message = "could not obtain lock on row";
                    return Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message));
                }
            }
            if self.read_committed {
                self.transaction.refresh();
                return Ok(Written::Changed);
            }
            tries += 1;
            if tries > TRIES {
                return Err(write_error(WriteError::Conflict));
            }
        }
    }

    /// Blocks while another transaction holds the record that could not be written last.
    ///
    /// # Errors
    /// 40P01, 55P03, 57014.
    pub fn wait_for_holder(&self) -> Result<(), SqlError> {
        let interrupted = self.interrupted;
        let waited = self.transaction.wait_for_holder(self.lock_deadline(), &|| interrupted().is_err());
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
