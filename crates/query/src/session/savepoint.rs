//! Savepoints.

use freshet_postgres::Out;
use freshet_sql::{SqlError, SqlState};

use super::Session;

/// About how many bytes a savepoint takes besides its name.
const SAVEPOINT: usize = 256;

impl Session<'_> {
    /// SAVEPOINT.
    ///
    /// # Errors
    /// 25P01 outside of a transaction, 53200.
    pub(super) fn savepoint(&mut self, name: String) -> Result<(), SqlError> {
        self.need_block("SAVEPOINT")?;
        self.block_for_statement()?;
        let kept = self.state.memory.reserve();
        kept.take(SAVEPOINT + name.len())?;
        let block = self.block.as_mut().expect("there is one");
        let savepoint = block.transaction.as_ref().expect("a statement's transaction").savepoint();
        let (locks, advisory, wanted) = (self.locks.mark(), self.state.advisory.mark(), self.state.channels.mark());
        let marks = (locks, advisory, block.deferred.mark(), wanted, block.read_only);
        block.savepoints.push((name, savepoint, marks, kept));
        self.state.settings.savepoint();
        Ok(())
    }

    /// RELEASE SAVEPOINT.
    ///
    /// # Errors
    /// 3B001 when no savepoint has that name, 25P01, 25P02.
    pub(super) fn release(&mut self, name: &str) -> Result<(), SqlError> {
        self.need_block("RELEASE SAVEPOINT")?;
        self.block_for_statement()?;
        let block = self.block.as_mut().expect("there is one");
        let place = block.savepoints.iter().rposition(|(known, ..)| known == name).ok_or_else(|| no_savepoint(name))?;
        // That ends with the savepoint in any case, as in PostgreSQL.
        block.read_only = block.savepoints[place].2.4;
        block.savepoints.truncate(place);
        self.state.settings.release(place);
        self.savepoints_left(place, false);
        Ok(())
    }

    /// ROLLBACK TO SAVEPOINT.
    ///
    /// # Errors
    /// 3B001 when no savepoint has that name, 25P01.
    pub(super) fn roll_back_to(&mut self, name: &str, out: &mut Out) -> Result<(), SqlError> {
        self.need_block("ROLLBACK TO SAVEPOINT")?;
        let block = self.block.as_mut().expect("there is one");
        let place = block.savepoints.iter().rposition(|(known, ..)| known == name).ok_or_else(|| no_savepoint(name))?;
        block.savepoints.truncate(place + 1);
        let transaction = block.transaction.as_ref().expect("a transaction with savepoints is kept");
        transaction.roll_back_to(&block.savepoints[place].1);
        block.failed = false;
        self.tally.forgive();
        let (locks, advisory, deferred, wanted, read_only) = &block.savepoints[place].2;
        let (locks, advisory, wanted) = (*locks, *advisory, *wanted);
        block.read_only = *read_only;
        block.deferred.back_to(deferred);
        self.locks.release_since(locks);
        self.state.advisory.release_since(advisory);
        self.state.channels.back_to(wanted);
        self.savepoints_left(place, true);
        self.refresh_schema()?;
        self.state.roll_back_to(place + 1);
        out.speak(self.state.settings.ready.encoding);
        Ok(())
    }
}

fn no_savepoint(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_SAVEPOINT_SPECIFICATION, format!("savepoint \"{name}\" does not exist"))
}
