//! Loading: rows on their way into the database, many in one transaction.

use freshet_base::Isolation;

use crate::{
    engine::{ProcedureError, Ticket, Transaction, Worker, WorkerError},
    row::{Layout, Row},
    table::Typed,
    tpcc::population::WrongScale,
};

/// Why loading ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Such a database cannot be.
    #[error(transparent)]
    Scale(#[from] WrongScale),
    /// The tables hold something.
    #[error(
        "the tables are not empty: load into a fresh database, or run with what was loaded (an interrupted load cannot be continued)"
    )]
    NotEmpty,
    /// No worker.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A transaction failed.
    #[error("loading failed: {0}")]
    Procedure(#[from] ProcedureError),
}

/// Rows in one transaction at most: its block stays well below a megabyte.
const ROWS: u64 = 512;

/// Collects rows into transactions.
pub(crate) struct Batch<'w, 'p> {
    worker: &'w Worker,
    progress: &'p (dyn Fn(u64) + Sync),
    txn: Option<Transaction<'w>>,
    rows: u64,
    last: Option<Ticket>,
}

impl<'w, 'p> Batch<'w, 'p> {
    /// An empty batch. `progress` hears how many rows a transaction has brought in.
    pub(crate) fn new(worker: &'w Worker, progress: &'p (dyn Fn(u64) + Sync)) -> Self {
        Self { worker, progress, txn: None, rows: 0, last: None }
    }

    /// Adds a row; now and then it commits those that there are. Blocks while the log's buffer is
    /// full.
    pub(crate) fn insert<L: Layout>(&mut self, table: &Typed<L>, row: &Row<L>) -> Result<(), LoadError> {
        self.insert_with(|txn| table.insert(txn, row).map(drop))
    }

    /// The same for what is no [`Row`].
    pub(crate) fn insert_with(
        &mut self,
        insert: impl FnOnce(&Transaction<'w>) -> Result<(), ProcedureError>,
    ) -> Result<(), LoadError> {
        let txn = self.txn.get_or_insert_with(|| self.worker.begin(Isolation::Snapshot));
        insert(txn)?;
        self.rows += 1;
        if self.rows == ROWS {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), LoadError> {
        if let Some(txn) = self.txn.take() {
            self.last = Some(txn.commit().map_err(ProcedureError::from)?);
            (self.progress)(std::mem::take(&mut self.rows));
        }
        Ok(())
    }

    /// Commits the rest. The ticket, if there was anything, covers all rows of the batch.
    pub(crate) fn finish(mut self) -> Result<Option<Ticket>, LoadError> {
        self.commit()?;
        Ok(self.last)
    }
}
