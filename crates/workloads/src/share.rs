//! Loading by several threads that take shares of the rows in turn.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    batch::{Batch, LoadError},
    engine::{Database, Ticket},
};

/// Numbers that a loading thread takes at once.
const SHARE: u64 = 10_000;

/// Calls `add` with every number of `numbers`, from `threads` threads; each adds rows to a batch of
/// its own. Blocks until everything is in.
///
/// # Errors
/// See [`LoadError`].
///
/// # Panics
/// When `threads` is zero.
pub(crate) fn load_shares(
    database: &Database,
    numbers: std::ops::Range<u64>,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
    add: impl Fn(&mut Batch<'_, '_>, u64) -> Result<(), LoadError> + Sync,
) -> Result<Option<Ticket>, LoadError> {
    assert!(threads > 0, "somebody has to load");
    let next = AtomicU64::new(numbers.start);
    let shares = || -> Result<Option<Ticket>, LoadError> {
        let worker = database.worker()?;
        let mut batch = Batch::new(&worker, progress);
        loop {
            // Relaxed: the counter hands out numbers and orders nothing else.
            let start = next.fetch_add(SHARE, Ordering::Relaxed);
            if start >= numbers.end {
                return batch.finish();
            }
            for number in start..numbers.end.min(start + SHARE) {
                add(&mut batch, number)?;
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(shares)).collect();
        let mut result = shares();
        for other in others {
            let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // The latest ticket covers the others.
            result = match (result, other) {
                (Ok(one), Ok(two)) => {
                    let until = |ticket: &Ticket| ticket.until;
                    Ok(if one.as_ref().map(until) >= two.as_ref().map(until) { one } else { two })
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        result
    })
}
