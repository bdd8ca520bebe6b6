//! Read-only procedures.

use freshet_base::{Isolation, sync::Backoff};

use crate::engine::{ProcedureError, Ticket, Transaction, Worker};

/// How often a reading procedure is run before its caller hears that it could not read.
const TRIES: u32 = 1000;

/// Runs a procedure that only reads on a snapshot, on a primary or a standby. The ticket resolves
/// when what it read is committed. Runs it again, a bounded number of times, when a version that it
/// needs is in the making for too long.
///
/// # Errors
/// What the procedure returned.
#[inline]
pub fn read_only<T>(
    worker: &Worker,
    procedure: impl FnMut(&Transaction<'_>) -> Result<T, ProcedureError>,
) -> Result<(T, Ticket), ProcedureError> {
    reading(worker, Isolation::Snapshot, procedure)
}

/// The same at an isolation level ([`Worker::begin_reading`]): runs it again when it fails
/// certification, too.
///
/// # Errors
/// What the procedure returned.
#[inline]
pub fn reading<T>(
    worker: &Worker,
    isolation: Isolation,
    mut procedure: impl FnMut(&Transaction<'_>) -> Result<T, ProcedureError>,
) -> Result<(T, Ticket), ProcedureError> {
    let mut backoff = Backoff::new();
    for tries in 1.. {
        let txn = worker.begin_reading(isolation);
        let error = match procedure(&txn) {
            Ok(value) => match txn.commit() {
                Ok(ticket) => return Ok((value, ticket)),
                Err(error) => error.into(),
            },
            Err(error) => {
                txn.roll_back();
                error
            }
        };
        if !error.is_retryable() {
            return Err(error);
        }
        if tries == TRIES {
            return Err(ProcedureError::Exhausted { tries, last: Box::new(error) });
        }
        backoff.pause();
    }
    unreachable!("the loop returns")
}
