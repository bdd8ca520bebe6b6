//! A worker: one thread's place in the engine, and what it keeps between transactions.

use std::{
    cell::{Cell, RefCell},
    fmt,
    sync::Arc,
};

use freshet_base::{Fid, Isolation, Lsn, Rid, panics};
use freshet_log::{BlockBuilder, Writer};
use freshet_storage::{Guard, LeafSet, Owner, Participant};
use serde::Serialize;
use thiserror::Error;

use crate::{
    CommitError, NotRecorded, ProcedureError, RowLock, Transaction, WriteError, again::Buffer, core::Core,
    memory::LOOK_AFTER, rids::Rids, state::State,
};

/// How many transactions a worker ends between two looks at what the others still read.
const HORIZON_EVERY: u32 = 16;
/// How many records' garbage a worker frees at most when it ends a transaction; more when the
/// transaction has made more.
const FREE_AT_ONCE: usize = 512;

/// Why there is no worker.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkerError {
    /// As many workers are at work as there are places.
    #[error("all {limit} worker places are taken: end a session, or raise `workers`")]
    TooMany {
        /// How many places there are (`workers`).
        limit: usize,
    },
}

/// Rolled-back transactions of one worker, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rollbacks {
    /// Another transaction wrote the same record first.
    pub write_conflict: u64,
    /// Certification: a record read was changed.
    pub read_changed: u64,
    /// Certification: a range read was changed.
    pub phantom: u64,
    /// Certification by the serial safety net: it had no place in the serial order.
    pub exclusion: u64,
    /// A key that must be unique was not.
    pub unique: u64,
    /// The procedure itself chose to.
    pub user: u64,
    /// For any other cause.
    pub other: u64,
}

/// One thread's way into the engine. One transaction at a time.
pub struct Worker {
    pub(crate) core: Arc<Core>,
    pub(crate) participant: Participant,
    pub(crate) inner: RefCell<Inner>,
    pub(crate) state: RefCell<State>,
    /// Serializable only: the leaves that held what the running transaction has read.
    pub(crate) leaves: LeafSet,
    /// An LSN at or below which every snapshot reads, as of a few transactions ago.
    pub(crate) horizon: Cell<Lsn>,
    until_horizon: Cell<u32>,
    /// How many bytes it may add until it looks at the limit of memory.
    until_measured: Cell<usize>,
    /// What is written to tables of the catalog gives memory back in the end.
    frees: Cell<bool>,
    /// The running transaction's name, once it has written.
    pub(crate) owner: Cell<Option<Owner>>,
    /// The record that the running transaction could not write or lock since somebody else came
    /// first, and the lock that it wants; none where it waits for what is done to the record's key.
    pub(crate) contested: Cell<Option<(Fid, Rid, Option<RowLock>)>>,
    /// Whether the record that has the key of the last unique violation has come since the
    /// snapshot.
    pub(crate) violated_since: Cell<bool>,
    /// How many changes of tables were seen when the running transaction first wrote.
    pub(crate) changes: Cell<u64>,
    /// The largest LSN that the running transaction has seen.
    pub(crate) seen: Cell<Lsn>,
    /// Why the running transaction cannot be executed again, if it cannot.
    pub(crate) not_recorded: Cell<Option<NotRecorded>>,
    /// For transactions that are executed again.
    pub(crate) again: Cell<Buffer>,
    rollbacks: Cell<Rollbacks>,
}

/// What only the end of a transaction touches.
pub(crate) struct Inner {
    /// Made when this node first lets this worker write.
    pub(crate) writer: Option<Writer>,
    pub(crate) builder: BlockBuilder,
    pub(crate) rids: Rids,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Worker({})", self.participant.index())
    }
}

impl Worker {
    /// Takes a place among the node's workers.
    ///
    /// # Errors
    /// When none is free.
    pub fn new(core: &Arc<Core>) -> Result<Self, WorkerError> {
        let participant = core.participants.join().map_err(|full| WorkerError::TooMany { limit: full.limit })?;
        Ok(Self {
            core: Arc::clone(core),
            participant,
            inner: RefCell::new(Inner { writer: None, builder: BlockBuilder::new(), rids: Rids::default() }),
            state: RefCell::new(State::default()),
            leaves: LeafSet::new(&core.catalog),
            horizon: Cell::new(Lsn::ZERO),
            until_horizon: Cell::new(0),
            until_measured: Cell::new(0),
            frees: Cell::new(false),
            owner: Cell::new(None),
            contested: Cell::new(None),
            violated_since: Cell::new(false),
            changes: Cell::new(0),
            seen: Cell::new(Lsn::ZERO),
            not_recorded: Cell::new(None),
            again: Cell::default(),
            rollbacks: Cell::new(Rollbacks::default()),
        })
    }

    /// Begins a transaction. On a standby it can only read.
    ///
    /// # Panics
    /// When this worker has one already.
    pub fn begin(&self, isolation: Isolation) -> Transaction<'_> {
        Transaction::begin(self, isolation, false)
    }

    /// Begins a transaction that only reads: its snapshot is a state between two commits. So it is
    /// serializable without certification, unless the node certifies by the serial safety net
    /// ([`Worker::begin_reading`]).
    ///
    /// # Panics
    /// When this worker has one already.
    pub fn begin_read_only(&self) -> Transaction<'_> {
        self.begin_reading(Isolation::Snapshot)
    }

    /// The same; one that is serializable is so under the serial safety net, too: its commit may
    /// fail then. On a standby nothing is certified.
    ///
    /// # Panics
    /// When this worker has one already.
    pub fn begin_reading(&self, isolation: Isolation) -> Transaction<'_> {
        Transaction::begin(self, isolation, true)
    }

    /// Begins a transaction with the snapshot `lsn`, which another transaction of this node holds
    /// ([`Transaction::hold_snapshot`]) and does not end before this returns: otherwise what the
    /// snapshot sees may be gone.
    ///
    /// # Panics
    /// When this worker has one already.
    pub fn begin_at(&self, isolation: Isolation, read_only: bool, lsn: Lsn) -> Transaction<'_> {
        Transaction::begin_at(self, isolation, read_only, lsn)
    }

    /// Pins this worker's place without a snapshot, for those who put something into tables: memory
    /// that they come across stays.
    ///
    /// # Panics
    /// When this worker has a transaction.
    pub fn pin(&self) -> Guard<'_> {
        self.participant.pin_without_snapshot()
    }

    /// Its number among the node's workers. No two that are there at a time have the same.
    pub fn place(&self) -> usize {
        self.participant.index()
    }

    /// What all workers share.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// How often this worker's procedures were rolled back, by cause.
    pub fn rollbacks(&self) -> Rollbacks {
        self.rollbacks.get()
    }

    pub(crate) fn count_rollback(&self, error: &ProcedureError) {
        let mut counts = self.rollbacks.get();
        let count = match error {
            ProcedureError::Write(WriteError::Conflict) => &mut counts.write_conflict,
            ProcedureError::Write(WriteError::UniqueViolation { .. }) => &mut counts.unique,
            ProcedureError::Commit(CommitError::ReadChanged) => &mut counts.read_changed,
            ProcedureError::Commit(CommitError::Phantom) => &mut counts.phantom,
            ProcedureError::Commit(CommitError::Exclusion) => &mut counts.exclusion,
            ProcedureError::Aborted(_) => &mut counts.user,
            _ => &mut counts.other,
        };
        *count += 1;
        self.rollbacks.set(counts);
    }

    /// Whether what this worker writes to tables of the catalog from now on gives memory back in
    /// the end: then it is not refused for want of memory.
    pub fn set_frees(&self, frees: bool) {
        self.frees.set(frees);
    }

    /// See [`Worker::set_frees`].
    pub fn frees(&self) -> bool {
        self.frees.get()
    }

    /// Whether this many bytes more may be added, to a table of the catalog or another one.
    ///
    /// # Errors
    /// [`WriteError::MemoryFull`].
    #[inline]
    pub(crate) fn check_memory(&self, bytes: usize, catalog: bool) -> Result<(), WriteError> {
        let memory = &self.core.memory;
        if catalog && self.frees.get() {
            return Ok(());
        }
        match self.until_measured.get().checked_sub(bytes) {
            Some(left) if !memory.is_full() => self.until_measured.set(left),
            _ => {
                self.until_measured.set(LOOK_AFTER);
                if memory.refuses(catalog) {
                    self.core.wake_collector();
                    let (limit, usage) = (memory.limit().unwrap_or(u64::MAX), Box::new(memory.used()));
                    return Err(WriteError::MemoryFull { limit, usage });
                }
            }
        }
        Ok(())
    }

    /// Looks now and then at what the others still read. Reads shared memory only.
    #[inline]
    pub(crate) fn refresh_horizon(&self) -> bool {
        let left = self.until_horizon.get();
        if left > 0 {
            self.until_horizon.set(left - 1);
            return false;
        }
        self.until_horizon.set(HORIZON_EVERY);
        self.horizon.set(self.core.oldest_needed());
        true
    }

    /// Frees some of what no transaction reads any more, at the end of a transaction that has made
    /// garbage for `made` records: at least as much as that, if there is that much. Returns whether
    /// there may be more.
    #[inline]
    pub(crate) fn tidy(&self, inner: &mut Inner, transaction: &Transaction<'_>, made: usize) -> bool {
        let core = &*self.core;
        let most = FREE_AT_ONCE.max(made);
        let mut queue = core.garbage.of(self.place());
        if self.refresh_horizon() || made > FREE_AT_ONCE {
            core.garbage.share(most, core, transaction.guard(), self.horizon.get(), &mut inner.rids);
            inner.rids.share(core, transaction.guard(), false);
            core.clear_dropped(transaction.guard());
        }
        let freed = queue.free(most, core, transaction.guard(), self.horizon.get(), &mut inner.rids);
        core.garbage.note(&mut queue);
        freed == most
    }

    /// Frees all that no transaction can see any more, of this worker's garbage and of what others
    /// have left. For idle moments.
    ///
    /// # Panics
    /// When this worker has a transaction.
    pub fn collect_garbage(&self) {
        let _vital = panics::vital("the collection of garbage");
        loop {
            self.until_horizon.set(0);
            let transaction = self.begin_read_only();
            let mut inner = self.inner.borrow_mut();
            let more = self.tidy(&mut inner, &transaction, 0);
            if !more {
                let (core, horizon) = (&*self.core, self.horizon.get());
                core.garbage.drain(core, transaction.guard(), horizon, &mut inner.rids);
            }
            drop(inner);
            transaction.roll_back();
            if !more {
                break;
            }
        }
        self.participant.collect();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.inner.try_borrow().is_ok() && !std::thread::panicking() {
            self.collect_garbage();
        }
        if let Ok(mut inner) = self.inner.try_borrow_mut() {
            self.core.garbage.leave(self.place());
            if !std::thread::panicking() {
                inner.rids.share(&self.core, &self.participant.pin_without_snapshot(), true);
            }
        }
    }
}
