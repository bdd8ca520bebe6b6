//! Indexes that are added to filled tables, and dropped, while others read and write.
//!
//! | step | log | who writes | who reads |
//! |---|---|---|---|
//! | added | the catalog says "building" | enters what he writes; who began before fails and tries again | nobody |
//! | built | | | nobody |
//! | ready | the catalog says "ready" | | who begins from now on |
//! | dropped | the catalog says "dropped" | leaves it | who began before |
//!
//! An index that does not become ready, because its keys are not unique, say, is dropped. So is one
//! that was being built when its primary ended, by the next primary.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::{
    Fid, Isolation,
    wait::{self, Patience},
};
use freshet_storage::{Catalog, IndexDefinition, IndexState, ReadError, Table};
use freshet_txn::{Batch, BuildError, OutcomeOpen, ProcedureError, Ticket, Worker, WorkerError, WriteError};
use thiserror::Error;

use crate::Database;

/// Records that are entered in one snapshot.
const BATCH: usize = 512;
/// How long the building of an index rests when another transaction holds a key.
const PAUSE: Duration = Duration::from_millis(1);

/// Why a table got no index, or kept one.
#[derive(Debug, Error)]
pub enum IndexError {
    /// The table's records cannot be entered.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Another index of the table is being built.
    #[error("another index of table {0:?} is being built")]
    Busy(String),
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
    /// The table has no such index, or it is the primary one.
    #[error("table {table:?} has no index number {index} that could be dropped")]
    NoIndex {
        /// Which table.
        table: String,
        /// The index's number.
        index: usize,
    },
    /// A transaction that changes the catalog failed; with [`ReadError::Dropped`], because the
    /// table was dropped.
    #[error(transparent)]
    Procedure(#[from] ProcedureError),
    /// No worker is free.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// It is done, but whether that will last is not known.
    #[error(transparent)]
    Open(#[from] OutcomeOpen),
}

/// While a table's index is being built.
struct Building<'c>(&'c Arc<Catalog>, Fid);

impl<'c> Building<'c> {
    fn begin(catalog: &'c Arc<Catalog>, table: &Table) -> Result<Self, IndexError> {
        if !catalog.begin_build(table.fid()) {
            return Err(IndexError::Busy(table.name().to_owned()));
        }
        Ok(Self(catalog, table.fid()))
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.0.end_build(self.1);
    }
}

/// An index that was begun. Dropped without [`IndexBuild::finish`], it leaves no index.
pub struct IndexBuild<'d> {
    database: &'d Database,
    table: &'d Table,
    number: usize,
    worker: Worker,
    /// After the drop of what is left.
    #[expect(dead_code, reason = "it ends with this")]
    building: Building<'d>,
    done: bool,
}

impl fmt::Debug for IndexBuild<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexBuild({:?}, number {})", self.table, self.number)
    }
}

impl IndexBuild<'_> {
    /// The number that the index has.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Enters all records, and waits until it is committed that the index is ready. Returns its
    /// number. `cancelled` is asked between batches of records.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn finish(mut self, cancelled: &dyn Fn() -> bool) -> Result<usize, IndexError> {
        let mut after = None;
        loop {
            if cancelled() {
                return Err(IndexError::Cancelled);
            }
            let transaction = self.worker.begin_read_only();
            let batch = transaction.build_index(self.table, self.number, &mut after, BATCH);
            drop(transaction);
            match batch {
                Ok(Batch::More) => {}
                Ok(Batch::Last) => break,
                Ok(Batch::Contested) | Err(BuildError::Read(ReadError::Stalled)) => {
                    wait::sleep(Patience::endless().until(Instant::now() + PAUSE).unless(cancelled));
                }
                Err(cause) => return Err(cause.into()),
            }
        }
        let ticket = Database::set_state(&self.worker, self.table, self.number, IndexState::Ready)?;
        // Whether that lasts may not be known, but it is not to be taken back from here.
        self.done = true;
        self.database.wait_until(ticket, Patience::endless().unless(cancelled))?;
        Ok(self.number)
    }
}

impl Drop for IndexBuild<'_> {
    fn drop(&mut self) {
        if !self.done
            && !std::thread::panicking()
            && Database::set_state(&self.worker, self.table, self.number, IndexState::Dropped).is_ok()
        {
            // What becomes of that matters to nobody: the next primary drops it too.
            self.worker.collect_garbage();
        }
    }
}

impl Database {
    /// Begins to add an index to a table, whatever it holds: from here on writers enter what they
    /// write; [`IndexBuild::finish`] enters the rest. Others read and write the table all the time.
    /// Those whose transactions have written to it before, and commit later, have to try again
    /// ([`CommitError::Altered`](freshet_txn::CommitError::Altered)); from then on a unique index
    /// keeps them from writing a key twice. Transactions that begin after the end can read it.
    ///
    /// Waits until that is committed; `cancelled` is asked now and then. When this or the rest
    /// fails, there is no index left, but for [`IndexError::Open`].
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn begin_index<'d>(
        &'d self,
        table: &'d Table,
        definition: &IndexDefinition,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<IndexBuild<'d>, IndexError> {
        let worker = self.worker()?;
        let building = Building::begin(&self.core.catalog, table)?;
        Self::drop_unfinished(&worker, table)?;
        let new = IndexDefinition { state: IndexState::Building, ..definition.clone() };
        let (number, ticket) = worker.execute(Isolation::Snapshot, |transaction| {
            Ok(transaction.change_indexes(table, |indexes| {
                indexes.push(new.clone());
                Ok(indexes.len() - 1)
            })?)
        })?;
        let build = IndexBuild { database: self, table, number, worker, building, done: false };
        match self.wait_until(ticket, Patience::endless().unless(cancelled)) {
            Err(OutcomeOpen::Deadline) => Err(IndexError::Cancelled),
            outcome => outcome.map(|()| build).map_err(IndexError::from),
        }
    }

    fn set_state(worker: &Worker, table: &Table, number: usize, state: IndexState) -> Result<Ticket, ProcedureError> {
        let change = |indexes: &mut Vec<IndexDefinition>| {
            let index = indexes.get_mut(number).filter(|index| index.state != IndexState::Dropped);
            let missing = || WriteError::from(ReadError::NoIndex { table: table.name().to_owned(), index: number });
            index.ok_or_else(missing)?.state = state;
            Ok(())
        };
        let (_, ticket) =
            worker.execute(Isolation::Snapshot, |transaction| Ok(transaction.change_indexes(table, change)?))?;
        Ok(ticket)
    }

    /// Drops an index, but not the primary one, and does not wait until that is committed: who
    /// cleans up must not hang while commits wait for standbys. Transactions that began before
    /// still read it; its memory is given back when the last of them ends, here and on standbys.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn drop_index(&self, table: &Table, number: usize) -> Result<Ticket, IndexError> {
        let missing = || IndexError::NoIndex { table: table.name().to_owned(), index: number };
        if number == 0 {
            return Err(missing());
        }
        let worker = self.worker()?;
        Self::set_state(&worker, table, number, IndexState::Dropped).map_err(|cause| match cause {
            ProcedureError::Write(WriteError::Read(ReadError::NoIndex { .. })) => missing(),
            other => other.into(),
        })
    }

    /// Drops the indexes whose building has ended with the primary that began it. Does not wait
    /// until that is committed. Every node does this when it becomes primary.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn drop_unfinished_indexes(&self) -> Result<(), IndexError> {
        let worker = self.worker()?;
        for table in self.core.catalog.all() {
            if table.dropped_at().is_none()
                && worker.begin_read_only().has_building(&table)
                && let Ok(_building) = Building::begin(&self.core.catalog, &table)
            {
                Self::drop_unfinished(&worker, &table)?;
            }
        }
        Ok(())
    }

    /// The same for one table that has no index under construction.
    fn drop_unfinished(worker: &Worker, table: &Table) -> Result<(), IndexError> {
        // A wait for what comes after it is a wait for this too.
        let ((), _ticket) = worker.execute(Isolation::Snapshot, |transaction| {
            if !transaction.has_building(table) {
                return Ok(());
            }
            Ok(transaction.change_indexes(table, |indexes| {
                let building = indexes.iter_mut().filter(|index| index.state == IndexState::Building);
                building.for_each(|index| index.state = IndexState::Dropped);
                Ok(())
            })?)
        })?;
        Ok(())
    }

    /// About how many records a table has; nothing when all workers are taken. Looks at a few
    /// leaves of its primary index only.
    pub fn approximate_rows(&self, table: &Table) -> Option<u64> {
        Some(self.worker().ok()?.begin_read_only().approximate_rows(table))
    }
}
