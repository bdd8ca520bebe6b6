//! Snapshots that transactions have exported: `pg_export_snapshot()`, and SET TRANSACTION SNAPSHOT.
//!
//! A snapshot is an LSN. The transaction that has exported it keeps what it sees readable
//! ([`Transaction::hold_snapshot`](freshet_engine::Transaction::hold_snapshot)); its name is known
//! until that transaction ends, and a name is taken back before. A session imports one while names
//! cannot be taken back, so that nothing is reclaimed between.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use freshet_engine::Lsn;
use freshet_sql::{SqlError, memory::Reservation};

/// A snapshot, and by what kind of transaction it was exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The snapshot's LSN.
    pub lsn: Lsn,
    /// Whether its transaction is serializable.
    pub serializable: bool,
    /// Whether that must not write.
    pub read_only: bool,
}

/// The snapshots that are exported now, by their names.
#[derive(Debug, Default)]
pub struct ExportedSnapshots(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// How many were exported since the server was started.
    count: u32,
    by_name: HashMap<String, Exported>,
}

impl ExportedSnapshots {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with an exported snapshot, which stays exported as long as that takes;
    /// nothing when no snapshot has this name.
    pub fn import<T>(&self, name: &str, with: impl FnOnce(Exported) -> T) -> Option<T> {
        let known = self.known();
        let exported = *known.by_name.get(name)?;
        let done = with(exported);
        drop(known);
        Some(done)
    }
}

/// About how many bytes a name takes.
const NAME: usize = 256;

/// What a transaction has exported. Dropped before the transaction ends.
#[derive(Debug)]
pub struct Exports {
    all: Arc<ExportedSnapshots>,
    /// The worker of the transaction, and the number of its first export: its names begin so.
    first: (usize, u32),
    /// How many there are, and the LSN of the last.
    made: Cell<(u32, Lsn)>,
    /// The memory of the list, counted for as long as it lives.
    kept: Reservation,
}

impl Exports {
    /// Of a transaction of the worker at `place`; `kept` is where they take memory from.
    pub fn new(all: &Arc<ExportedSnapshots>, place: usize, kept: Reservation) -> Self {
        let mut known = all.known();
        known.count = known.count.wrapping_add(1);
        let first = (place, known.count);
        drop(known);
        Self { all: Arc::clone(all), first, made: Cell::new((0, Lsn::ZERO)), kept }
    }

    fn name(&self, number: u32) -> String {
        let (place, first) = self.first;
        format!("{place:08X}-{first:08X}-{number}")
    }

    /// Exports a snapshot, which the transaction holds, and returns its name.
    ///
    /// # Errors
    /// 53200.
    pub fn export(&self, snapshot: Exported) -> Result<String, SqlError> {
        let (mut made, last) = self.made.get();
        if made == 0 || last != snapshot.lsn {
            self.kept.take(NAME)?;
            made += 1;
            self.all.known().by_name.insert(self.name(made), snapshot);
            self.made.set((made, snapshot.lsn));
        }
        Ok(self.name(made))
    }
}

impl Drop for Exports {
    fn drop(&mut self) {
        let (made, _) = self.made.get();
        let mut known = self.all.known();
        for number in 1..=made {
            known.by_name.remove(&self.name(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_sql::memory::Pool;

    use super::*;

    #[test]
    fn a_name_is_known_until_its_transaction_ends() {
        let all = Arc::new(ExportedSnapshots::default());
        let snapshot = |lsn| Exported { lsn: Lsn(lsn), serializable: false, read_only: true };
        let pool = Pool::new("test", 1000, "");
        let (one, two) = (Exports::new(&all, 3, pool.reserve()), Exports::new(&all, 3, pool.reserve()));
        let names = [(&one, 1), (&one, 2), (&two, 3)].map(|(of, lsn)| of.export(snapshot(lsn)).unwrap());
        assert_eq!(names[0], "00000003-00000001-1");
        for (name, lsn) in names.iter().zip(1..) {
            assert_eq!(all.import(name, |found| found.lsn), Some(Lsn(lsn)));
        }
        drop(one);
        assert_eq!(all.import(&names[0], |found| found), None);
        assert_eq!(all.import(&names[1], |found| found), None);
        assert_eq!(all.import(&names[2], |found| found.lsn), Some(Lsn(3)));
        // What is the same has one name, and names take memory.
        assert_eq!(two.export(snapshot(3)).unwrap(), names[2]);
        assert!((4..).find_map(|lsn| two.export(snapshot(lsn)).err()).is_some());
        drop(two);
        assert!(all.known().by_name.is_empty());
    }
}
