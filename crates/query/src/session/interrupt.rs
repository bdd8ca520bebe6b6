//! How a running statement learns that it is to end.

use std::{
    sync::atomic::{AtomicU8, Ordering},
    time::Instant,
};

use freshet_postgres::{Interrupt, Why};
use freshet_sql::{SqlError, SqlState};

const NOTHING: u8 = 0;
const CANCELED: u8 = 1;
const ENDING: u8 = 2;

/// Set by other threads, looked at by the session's own.
#[derive(Debug, Default)]
pub struct Flag(AtomicU8);

impl Interrupt for Flag {
    fn interrupt(&self, why: Why) {
        let state = match why {
            Why::Canceled => CANCELED,
            Why::Ending => ENDING,
        };
        self.0.fetch_max(state, Ordering::SeqCst);
    }

    fn clear(&self) {
        self.0.store(NOTHING, Ordering::SeqCst);
    }
}

impl Flag {
    /// Fails when the statement is to end: it was asked for, or `deadline` has passed.
    ///
    /// # Errors
    /// 57014, 57P01.
    pub fn check(&self, deadline: Option<Instant>) -> Result<(), SqlError> {
        match self.0.load(Ordering::SeqCst) {
            NOTHING => {}
            CANCELED => {
                return Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"));
            }
            _ => {
                let message = "terminating connection due to administrator command";
                return Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, message));
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout"));
        }
        Ok(())
    }
}
