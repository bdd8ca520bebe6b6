//! The database of one node.

use std::{sync::Arc, time::Instant};

use freshet_base::{Certifier, Isolation, Lsn, Term, WaitError, Watermark, wait::Patience};
use freshet_log::{Log, block::BLOCK_HEADER};
use freshet_storage::{Catalog, CatalogError, Participants, ReadError, Table, TableDefinition};
use freshet_txn::{
    Core, Messages, OpenGate, OutcomeOpen, Primary, ProcedureError, Snapshots, Ticket, Worker, WorkerError,
};
use thiserror::Error;

use crate::source::VersionSource;

/// Why a table was not made.
#[derive(Debug, Error)]
pub enum CreateTableError {
    /// The definition is none, or there are too many tables, or one of that name.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The transaction that makes it failed.
    #[error(transparent)]
    Procedure(#[from] ProcedureError),
    /// No worker is free to make it.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// It is made, but whether that will last is not known.
    #[error(transparent)]
    Open(#[from] OutcomeOpen),
}

/// Why a table was not dropped.
#[derive(Debug, Error)]
pub enum DropTableError {
    /// The transaction that drops it failed; with [`ReadError::Dropped`], because it was dropped
    /// before.
    #[error(transparent)]
    Procedure(#[from] ProcedureError),
    /// No worker is free to drop it.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// It is dropped, but whether that will last is not known.
    #[error(transparent)]
    Open(#[from] OutcomeOpen),
}

/// A node's database. Cheap to clone; all clones are the same database.
#[derive(Clone, Debug)]
pub struct Database {
    pub(crate) core: Arc<Core>,
}

impl Database {
    /// A database without a log, for `workers` threads at once: LSNs are taken, nothing is kept.
    pub fn volatile(workers: usize) -> Self {
        Self::volatile_with(workers, Certifier::default())
    }

    /// The same, with this certifier.
    pub fn volatile_with(workers: usize, certifier: Certifier) -> Self {
        let visible = Arc::new(Watermark::new(Lsn::ZERO));
        // No transaction has LSN zero: elsewhere a term block is there.
        let log = Log::volatile(workers, Lsn(BLOCK_HEADER as u64), Term(1));
        let core = Core::new(
            Participants::new(workers),
            Arc::new(Catalog::new()),
            Snapshots::standby(visible),
            Arc::new(VersionSource::default()),
            Arc::default(),
            Arc::default(),
            certifier,
        );
        core.snapshots.lead(Primary { log: Arc::new(log), term: Term(1), gate: Arc::new(OpenGate) });
        Self { core }
    }

    /// The database whose transactions run on this core.
    pub fn of(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core) }
    }

    /// A worker: what a thread needs to run transactions.
    ///
    /// # Errors
    /// When all places are taken.
    pub fn worker(&self) -> Result<Worker, WorkerError> {
        Worker::new(&self.core)
    }

    /// The table that has this name now. Transactions that began before may see another one by that
    /// name, or none ([`Transaction::table`](freshet_txn::Transaction::table)).
    pub fn table(&self, name: &str) -> Option<Arc<Table>> {
        self.core.catalog.by_name(name, self.core.snapshots.current())
    }

    /// Makes a table, in a transaction of its own, and waits until it is committed.
    ///
    /// # Errors
    /// See [`CreateTableError`].
    pub fn create_table(&self, definition: &TableDefinition) -> Result<Arc<Table>, CreateTableError> {
        let (table, ticket) = self.define_table(definition)?;
        self.wait(ticket)?;
        Ok(table)
    }

    /// Makes a table, in a transaction of its own, and does not wait until that is durable: a
    /// transaction that depends on the table commits later, and waits for both.
    ///
    /// # Errors
    /// See [`CreateTableError`].
    pub fn define_table(&self, definition: &TableDefinition) -> Result<(Arc<Table>, Ticket), CreateTableError> {
        self.define_table_for(definition, false)
    }

    /// The same; with `frees`, the table takes the place of another one, which is emptied so, and
    /// is made although memory is used up ([`Worker::set_frees`]).
    ///
    /// # Errors
    /// See [`CreateTableError`].
    pub fn define_table_for(
        &self,
        definition: &TableDefinition,
        frees: bool,
    ) -> Result<(Arc<Table>, Ticket), CreateTableError> {
        let row = Catalog::row_of(definition)?;
        if self.table(&definition.name).is_some() {
            return Err(CatalogError::Exists(definition.name.clone()).into());
        }
        let worker = self.worker()?;
        worker.set_frees(frees);
        let catalog = self.core.catalog.table();
        let (rid, ticket) =
            worker.execute(Isolation::Snapshot, |transaction| Ok(transaction.insert(catalog, &row)?))?;
        let fid = Catalog::fid_of(rid).expect("it was inserted");
        let dropped = || ProcedureError::from(ReadError::Dropped(definition.name.clone()));
        // Somebody may have been quick to drop it.
        Ok((self.core.catalog.table_of(fid).ok_or_else(dropped)?, ticket))
    }

    /// Drops a table, in a transaction of its own, and waits until that is committed. Its name can
    /// be used again at once; its memory is given back when no transaction, and no standby's
    /// reader, can see it any more. Its holders find it dropped.
    ///
    /// Transactions that began before go on reading it. When they have written to it and commit
    /// after the drop, that fails with [`CommitError::Dropped`](freshet_txn::CommitError::Dropped).
    ///
    /// # Errors
    /// See [`DropTableError`].
    pub fn drop_table(&self, table: &Table) -> Result<(), DropTableError> {
        let worker = self.worker()?;
        let ((), ticket) = worker.execute(Isolation::Snapshot, |transaction| Ok(transaction.drop_table(table)?))?;
        self.wait(ticket)?;
        // If nobody reads it, its memory goes now.
        worker.collect_garbage();
        Ok(())
    }

    /// Blocks until a commit holds, without a deadline. Asks the group commit not to wait for
    /// company.
    ///
    /// # Errors
    /// [`OutcomeOpen`] when that cannot be known.
    pub fn wait(&self, ticket: Ticket) -> Result<(), OutcomeOpen> {
        self.wait_until(ticket, None)
    }

    /// Blocks until a commit holds, or the patience is at its end.
    ///
    /// # Errors
    /// [`OutcomeOpen`] when that cannot be known; [`OutcomeOpen::Deadline`] at the end of the
    /// patience, also when the caller was interrupted.
    pub fn wait_until<'a>(&self, ticket: Ticket, patience: impl Into<Patience<'a>>) -> Result<(), OutcomeOpen> {
        freshet_base::step!(Commit, ticket.until, ticket.until);
        let Some(primary) = self.core.snapshots.primary() else { return Ok(()) };
        if ticket.until > Lsn::ZERO {
            primary.log.force_fence(ticket.until);
        }
        match primary.gate.wait(ticket.until, patience.into()) {
            // It was committed before another node came to lead, which has it.
            Err(OutcomeOpen::Fenced(_)) if ticket.lsn.is_some() && primary.gate.committed() >= ticket.until => Ok(()),
            waited => waited,
        }
    }

    /// Blocks while transactions that would begin wait, since this node is about to hand its role
    /// to another ([`Node::switch_over`](crate::Node::switch_over)). Cheap while it is not.
    ///
    /// # Errors
    /// [`WaitError::Closed`] when the role has gone; else the patience has ended.
    pub fn wait_to_begin<'a>(&self, patience: impl Into<Patience<'a>>) -> Result<(), WaitError> {
        self.core.snapshots.wait_to_begin(patience.into())
    }

    /// Blocks while as much of the log is uncommitted as the node allows, or until the patience is
    /// at its end; `false` when it still is. A caller that is going to commit waits here, where it
    /// can be interrupted.
    pub fn wait_for_room<'a>(&self, patience: impl Into<Patience<'a>>) -> bool {
        self.core.snapshots.wait_for_room(patience.into())
    }

    /// What a wait for the ticket would say now; `None` while it would go on.
    pub fn outcome(&self, ticket: Ticket) -> Option<Result<(), OutcomeOpen>> {
        self.core.snapshots.primary().map_or(Some(Ok(())), |primary| primary.gate.outcome(ticket.until))
    }

    /// Everything below is committed, and transactions that begin here see it: on a standby its
    /// read view.
    pub fn committed(&self) -> Lsn {
        self.core.snapshots.committed()
    }

    /// Blocks until everything below `until`, which is no end of the log that is to come but one
    /// that is there, is [committed](Database::committed), or `deadline` passes. Returns at once
    /// when that cannot be known.
    pub fn wait_committed(&self, until: Lsn, deadline: Instant) {
        let snapshots = &self.core.snapshots;
        let _ = match snapshots.primary() {
            None => snapshots.visible().wait(until, Some(deadline)).is_ok(),
            Some(_) => self.wait_until(Ticket { lsn: None, until }, Some(deadline)).is_ok(),
        };
    }

    /// What transactions carry, here and, where this node is a standby, on its primary.
    pub fn messages(&self) -> &Arc<Messages> {
        &self.core.messages
    }

    /// What workers share.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }
}
