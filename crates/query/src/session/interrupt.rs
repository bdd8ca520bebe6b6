//! How a running statement learns that it is to end.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use freshet_base::{
    lock,
    wait::{self, Waiter},
};
use freshet_postgres::{Interrupt, Why};
use freshet_sql::{SqlError, SqlState};

use crate::old_snapshots::{self, OldSnapshots};

const NOTHING: u8 = 0;
const CANCELED: u8 = 1;
const ENDING: u8 = 2;

/// Why the statement that runs is to end: set by other threads, looked at by the session's own.
#[derive(Debug)]
pub struct Flag {
    asked: AtomicU8,
    /// The session's thread, to be woken when it waits.
    waiter: Waiter,
    /// When the statement has run long enough.
    deadline: Mutex<Option<Instant>>,
    /// What may not be held too long, and by which worker it would be.
    old: OnceLock<(Arc<OldSnapshots>, usize)>,
}

impl Interrupt for Flag {
    fn interrupt(&self, why: Why) {
        let state = match why {
            Why::Canceled => CANCELED,
            Why::Ending => ENDING,
        };
        self.asked.fetch_max(state, Ordering::SeqCst);
        self.waiter.wake();
    }

    fn ends(&self) -> bool {
        self.check().is_err()
    }

    fn clear(&self) {
        self.asked.store(NOTHING, Ordering::SeqCst);
    }
}

impl Flag {
    /// That of a session in the calling thread. Nothing is to end yet.
    pub fn of_this_thread() -> Self {
        let (asked, waiter) = (AtomicU8::new(NOTHING), Waiter::current());
        Self { asked, waiter, deadline: Mutex::default(), old: OnceLock::new() }
    }

    /// From now on it says so, too, when what the worker at `place` holds is condemned.
    pub fn heed(&self, old: &Arc<OldSnapshots>, place: usize) {
        // A session heeds one.
        let _ = self.old.set((Arc::clone(old), place));
    }

    /// The time of a statement begins, unless it has begun.
    pub fn arm(&self, limit: Option<Duration>) {
        let mut deadline = lock(&self.deadline);
        if deadline.is_none() {
            *deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        }
        wait::set_alarm(*deadline);
    }

    /// The statement is done.
    pub fn disarm(&self) {
        *lock(&self.deadline) = None;
        wait::set_alarm(None);
    }

    /// When the statement has run long enough.
    pub fn deadline(&self) -> Option<Instant> {
        *lock(&self.deadline)
    }

    /// Fails when the statement is to end: it was asked for, its time has passed, or its snapshot
    /// is too old.
    ///
    /// # Errors
    /// 57014, 57P01, 72000.
    pub fn check(&self) -> Result<(), SqlError> {
        match self.asked.load(Ordering::SeqCst) {
            NOTHING => {}
            CANCELED => {
                return Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"));
            }
            _ => {
                let message = "terminating connection due to administrator command";
                return Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, message));
            }
        }
        if self.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout"));
        }
        if let Some((old, place)) = self.old.get()
            && old.condemns(*place)
        {
            return Err(old_snapshots::too_old());
        }
        Ok(())
    }
}
