//! A transaction: its snapshot, from its beginning to its end.
//!
//! What it executes is in `read.rs`, `insert.rs`, `write.rs` and `lock.rs`, its commit in
//! `commit.rs`. A read-only transaction needs no certification where the serial order is that of
//! LSNs, since its snapshot lies between two commits.

use std::{cell::Cell, fmt, sync::Arc};

use freshet_base::{Isolation, Lsn, panics};
use freshet_storage::{Content, Guard, Index, Owner, ReadContext, ReadError, Table};

use crate::{again::Again, snapshots::Primary, worker::Worker};

/// Why transactions cannot write.
const READ_ONLY: &str = "the transaction is read-only";
pub(crate) const WAS_STANDBY: &str = "this node was a standby when the transaction began; write on the primary";

/// A transaction. Dropped without [`Transaction::commit`], it is rolled back.
///
/// Methods take `&self`, so that rows that were read stay usable while writing. Nothing
/// here blocks on other transactions for longer than one of them needs to finish its commit.
pub struct Transaction<'w> {
    pub(crate) worker: &'w Worker,
    guard: Guard<'w>,
    snapshot: Cell<Lsn>,
    /// Whether the snapshot that is announced stays so, whichever the transaction takes.
    held: Cell<bool>,
    isolation: Isolation,
    /// Whether it notes what it reads, to be certified at the end.
    certified: bool,
    /// Where it commits. A transaction that began on a standby has no such place.
    pub(crate) primary: Option<&'w Primary>,
    /// Why it cannot write, if it cannot.
    pub(crate) read_only: Option<&'static str>,
    /// Whether what it is told is recorded.
    pub(crate) records: bool,
    /// What it has if it is executed again.
    pub(crate) again: Option<Box<Again>>,
    pub(crate) finished: Cell<bool>,
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction(snapshot {}, {})", self.snapshot.get(), self.isolation)
    }
}

impl<'w> Transaction<'w> {
    #[inline]
    pub(crate) fn begin(worker: &'w Worker, isolation: Isolation, read_only: bool) -> Self {
        let snapshots = &worker.core.snapshots;
        // Before the snapshot is taken: one of a standby ends where replay was, and certification
        // knows nothing of what replay has announced since, so such a transaction stays a reader
        // when the node becomes primary.
        let primary = snapshots.primary();
        Self::begin_with(worker, isolation, primary, Self::why_not(primary, read_only), || snapshots.readable())
    }

    /// A transaction with the snapshot of another one that holds it for now
    /// ([`Transaction::hold_snapshot`]).
    pub(crate) fn begin_at(worker: &'w Worker, isolation: Isolation, read_only: bool, lsn: Lsn) -> Self {
        let primary = worker.core.snapshots.primary().filter(|primary| lsn >= primary.log.start());
        Self::begin_with(worker, isolation, primary, Self::why_not(primary, read_only), || lsn)
    }

    #[inline]
    fn why_not(primary: Option<&Primary>, read_only: bool) -> Option<&'static str> {
        if read_only { Some(READ_ONLY) } else { primary.is_none().then_some(WAS_STANDBY) }
    }

    #[inline]
    fn begin_with(
        worker: &'w Worker,
        isolation: Isolation,
        primary: Option<&'w Primary>,
        read_only: Option<&'static str>,
        view: impl Fn() -> Lsn,
    ) -> Self {
        let (guard, snapshot) = worker.participant.pin(view);
        worker.core.catalog.wait_for_changes();
        worker.owner.set(None);
        worker.seen.set(Lsn::ZERO);
        let records = read_only.is_none() && primary.is_some() && worker.core.records_inputs();
        let certified = isolation == Isolation::Serializable
            && (read_only.is_none() || (primary.is_some() && !worker.core.certification.is_by_lsns()));
        if records {
            worker.not_recorded.set(None);
            worker.note_snapshot(snapshot);
        }
        let (snapshot, finished) = (Cell::new(snapshot), Cell::new(false));
        let held = Cell::new(false);
        let again = None;
        Self { worker, guard, snapshot, held, isolation, certified, primary, read_only, records, again, finished }
    }

    pub(crate) fn begin_again(worker: &'w Worker, lsn: Lsn) -> Self {
        // Who executes again is not certified again.
        Self::begin_with(worker, Isolation::Snapshot, None, None, || lsn)
    }

    pub(crate) fn again(worker: &'w Worker, snapshot: Lsn, again: Again) -> Self {
        let mut transaction = Self::begin_again(worker, snapshot);
        transaction.again = Some(Box::new(again));
        transaction
    }

    /// Everything below this LSN is visible to the transaction, and nothing else but its own
    /// writes.
    pub fn snapshot(&self) -> Lsn {
        self.snapshot.get()
    }

    /// Whether it has changed anything by now.
    pub fn has_changes(&self) -> bool {
        self.writes() > 0
    }

    /// How many records it has written by now; for one that is executed again, how often.
    pub(crate) fn writes(&self) -> usize {
        match &self.again {
            None => self.worker.state.borrow().writes.len(),
            Some(again) => again.writes(),
        }
    }

    /// Its isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Takes a newer snapshot: what has committed since is visible from now on, as READ COMMITTED
    /// wants it for each statement. Records that were found before must not be looked at any more:
    /// their ids may be others'. What was read before stays as it was read. Not for serializable
    /// transactions, which are certified against one snapshot.
    ///
    /// # Panics
    /// When the transaction is certified.
    pub fn refresh(&self) {
        assert!(!self.is_certified(), "a serializable transaction has one snapshot");
        let snapshots = &self.worker.core.snapshots;
        let before = self.snapshot.get();
        if let Some(again) = &self.again {
            // What it has announced is the first one's.
            self.snapshot.set(again.next_snapshot(before));
            return;
        }
        if self.held.get() {
            // What lies above what is announced can be read, too.
            self.snapshot.set(snapshots.readable().max(before));
        } else {
            self.snapshot.set(self.guard.advance(|| snapshots.readable().max(before)));
        }
        self.worker.core.catalog.wait_for_changes();
        if self.records {
            self.worker.note_snapshot(self.snapshot.get());
        }
    }

    /// From now on until this transaction ends, what its present snapshot sees can be read by other
    /// transactions, too: see [`Worker::begin_at`]. Returns that snapshot.
    pub fn hold_snapshot(&self) -> Lsn {
        self.held.set(true);
        self.snapshot.get()
    }

    /// Does something with a snapshot of this moment: as READ COMMITTED wants it for a row that has
    /// been changed while a statement waited for it. The transaction's own snapshot stays announced
    /// and is in force again afterwards, so that whatever it has found can be looked at, and
    /// followed ([`Transaction::follow`]). That moment's snapshot is noted as any other; executed
    /// again, the transaction takes it for as long. Not for serializable transactions, which are
    /// certified against one snapshot.
    ///
    /// # Panics
    /// When the transaction is certified.
    pub fn at_present<T>(&self, act: impl FnOnce() -> T) -> T {
        assert!(!self.is_certified(), "a serializable transaction has one snapshot");
        let present = match &self.again {
            Some(again) => again.next_snapshot(self.snapshot.get()),
            None => self.worker.core.snapshots.current(),
        };
        self.worker.core.catalog.wait_for_changes();
        if self.records {
            self.worker.note_snapshot(present);
        }
        let before = self.snapshot.replace(present);
        let done = act();
        self.snapshot.set(before);
        done
    }

    /// The worker that runs it.
    pub fn worker(&self) -> &'w Worker {
        self.worker
    }

    #[inline]
    pub(crate) fn guard(&self) -> &Guard<'w> {
        &self.guard
    }

    #[inline]
    pub(crate) fn context(&self) -> ReadContext<'_> {
        ReadContext {
            snapshot: self.snapshot.get(),
            me: self.worker.owner.get(),
            owners: &self.worker.core.owners,
            source: &*self.worker.core.source,
            horizon: self.worker.horizon.get(),
        }
    }

    #[inline]
    pub(crate) fn is_certified(&self) -> bool {
        self.certified
    }

    /// Whether it is certified to be what it would be at its own LSN.
    pub(crate) fn is_certified_by_lsn(&self) -> bool {
        self.certified && self.worker.core.certification.is_by_lsns()
    }

    /// What is in a table, if the snapshot sees that there is one.
    #[inline]
    pub(crate) fn content(&self, table: &Table) -> Result<&Content, ReadError> {
        let content = table.content(&self.guard).filter(|_| table.exists_at(self.snapshot.get()));
        content.ok_or_else(|| ReadError::Dropped(table.name().to_owned()))
    }

    /// The index of this number that the snapshot finds everything in.
    #[inline]
    pub(crate) fn index<'t>(&'t self, content: &'t Content, number: usize) -> Result<&'t Index, ReadError> {
        let index = content.indexes(&self.guard).get(number).filter(|index| index.exists_at(self.snapshot.get()));
        index.ok_or_else(|| ReadError::NoIndex { table: content.name().to_owned(), index: number })
    }

    /// The table of this name that the transaction's snapshot sees.
    pub fn table(&self, name: &str) -> Option<Arc<Table>> {
        self.worker.core.catalog.by_name(name, self.snapshot.get())
    }

    /// The transaction's name, which it has from its first write on.
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        self.worker.owner.get().unwrap_or_else(|| {
            let core = &self.worker.core;
            // What has been changed by now is seen below; what is changed later, when this
            // transaction commits.
            self.worker.changes.set(core.catalog.changes_ended());
            let owner = core.owners.begin(self.worker.participant.index());
            self.worker.owner.set(Some(owner));
            let limit = self.primary.map_or(u64::MAX, |primary| primary.log.config().longest_transaction);
            self.worker.state.borrow_mut().limit = limit;
            owner
        })
    }

    /// Undoes everything. The same as dropping it.
    pub fn roll_back(self) {}
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let _vital = panics::vital("the end of a transaction");
        if !self.finished.get() {
            self.undo_all(&mut self.worker.inner.borrow_mut().rids);
        }
        // Now that others see what has become of it.
        self.release_locks(0);
        self.worker.state.borrow_mut().reset();
        if let Some(again) = self.again.take() {
            self.worker.again.set(again.into_buffer());
        }
        if let Some(owner) = self.worker.owner.get() {
            self.worker.core.waits.wake(owner.index());
        }
        self.worker.contested.set(None);
        self.worker.leaves.clear();
        self.worker.refresh_horizon();
        self.worker.owner.set(None);
    }
}
