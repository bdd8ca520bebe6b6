//! One-shot procedures: all inputs known, run to completion, tried again when they lose a race.

use std::time::{Duration, Instant};

use freshet_base::{
    Isolation,
    sync::Backoff,
    wait::{self, Patience},
};

use crate::{ProcedureError, Ticket, Transaction, Worker};

/// How often a procedure is run before its caller hears that it keeps losing.
pub const RETRIES: u32 = 1000;
/// How many tries follow one another without sleeping in between.
const QUICK: u32 = 32;
/// The first pause after these; the longest is 20 times as long. The race is over by then, or was
/// lost again: there is nothing to be woken for.
const PAUSE: Duration = Duration::from_micros(50);

impl Worker {
    /// Runs a procedure as one transaction and commits it. When it loses a race against another
    /// transaction it is rolled back and run again, up to [`RETRIES`] times. Does not wait for the
    /// commit to be persistent: the ticket tells. But it begins only when no more of the log is
    /// uncommitted than the node allows
    /// ([`CommitGate::wait_for_room`](crate::CommitGate::wait_for_room)), and blocks until then.
    ///
    /// # Errors
    /// What the procedure returned, or why its commit failed; it has left no trace then.
    pub fn execute<T>(
        &self,
        isolation: Isolation,
        mut procedure: impl FnMut(&Transaction<'_>) -> Result<T, ProcedureError>,
    ) -> Result<(T, Ticket), ProcedureError> {
        let mut backoff = Backoff::new();
        self.core().snapshots.wait_for_room(Patience::endless());
        // Where the role has gone, the commit says so.
        let _ = self.core().snapshots.wait_to_begin(Patience::endless());
        for tries in 1.. {
            let transaction = self.begin(isolation);
            let error = match procedure(&transaction) {
                Ok(value) => match transaction.commit() {
                    Ok(ticket) => return Ok((value, ticket)),
                    Err(cause) => ProcedureError::Commit(cause),
                },
                Err(cause) => {
                    transaction.roll_back();
                    cause
                }
            };
            self.count_rollback(&error);
            if !error.is_retryable() {
                return Err(error);
            }
            if tries == RETRIES {
                return Err(ProcedureError::Exhausted { tries, last: Box::new(error) });
            }
            // The thread that holds the record may have lost the processor: after some quick tries,
            // let it have this one.
            match tries {
                ..QUICK => backoff.pause(),
                _ => drop(wait::sleep((Instant::now() + PAUSE * (tries - QUICK + 1).min(20)).into())),
            }
        }
        unreachable!("the loop returns")
    }
}
