//! A hash of the whole state at one LSN, the same on every node (invariant 8).

use std::{
    fmt,
    ops::{Bound, ControlFlow},
};

use freshet_base::Lsn;
use freshet_storage::ReadError;
use freshet_txn::{Direction, Transaction};
use xxhash_rust::xxh3::Xxh3;

/// The hash over (table, key, row) of all records that a snapshot sees, and how many there are.
/// Where records lie and how they came there makes no difference to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateHash {
    /// The snapshot.
    pub at: Lsn,
    /// The sum of the records' hashes.
    pub hash: u64,
    /// How many records there are.
    pub records: u64,
}

impl fmt::Display for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} over {} records at {}", self.hash, self.records, self.at)
    }
}

impl StateHash {
    /// Hashes what the transaction sees. Reads every record.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub fn of(transaction: &Transaction<'_>) -> Result<Self, ReadError> {
        let mut state = Self { at: transaction.snapshot(), hash: 0, records: 0 };
        let everything = (Bound::Unbounded, Bound::Unbounded);
        for table in transaction.worker().core().catalog.tables_at(state.at) {
            transaction.scan(&table, 0, everything, Direction::Forward, |key, record| {
                let mut hasher = Xxh3::new();
                hasher.update(&table.fid().0.to_le_bytes());
                hasher.update(&(key.len() as u64).to_le_bytes());
                hasher.update(key);
                hasher.update(record.row);
                state.hash = state.hash.wrapping_add(hasher.digest());
                state.records += 1;
                ControlFlow::Continue(())
            })?;
        }
        Ok(state)
    }
}
