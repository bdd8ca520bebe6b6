//! Execute: reads of a snapshot, and writes as uncommitted versions at chain heads.
//!
//! A read walks a chain to the first version below the snapshot. A write puts an uncommitted
//! version on top if the head is committed and visible: the first writer wins, the second gets a
//! conflict at once. A read-only transaction needs no certification, since its snapshot lies
//! between two commits.

use std::{
    cell::Cell,
    fmt,
    ops::{Bound, ControlFlow},
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    time::Instant,
};

use freshet_base::{Fid, Isolation, RecordKind, Rid, Stamp, panics};
pub use freshet_storage::index::Direction;
use freshet_storage::{
    Catalog, Change, Content, Guard, Index, IndexDefinition, IndexList, InstallError, KeyBuffer, Lockable, Newest,
    Owner, ReadContext, ReadError, Reclaimed, Table, Visible,
    index::{InsertError, LeafVersion},
};

use crate::{
    LockWaitError, NotRecorded, RowLock, WriteError,
    again::Again,
    certify::ScannedRange,
    row_locks::Taken,
    snapshots::Primary,
    state::{Before, Replaced, State, Write},
    worker::Worker,
};

/// A record as a transaction sees it. Its row stays readable until the transaction ends, whatever
/// happens to the record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'t> {
    /// Which record.
    pub rid: Rid,
    /// Its row.
    pub row: &'t [u8],
}

/// A table that is written to, by whom.
#[derive(Clone, Copy)]
pub(crate) struct Writing<'t> {
    pub(crate) content: &'t Content,
    /// What it is entered into.
    pub(crate) indexes: &'t IndexList,
    owner: Owner,
}

/// The indexes that an insertion is entered into, with their numbers, in the order of that: the
/// `arbiters` first.
pub(crate) fn in_order<'i>(indexes: &'i IndexList, arbiters: &'i [usize]) -> impl Iterator<Item = (usize, &'i Index)> {
    let first = arbiters.iter().filter_map(|number| Some((*number, indexes.get(*number)?)));
    let first = first.filter(|(_, index)| !index.is_dropped());
    first.chain(indexes.kept().filter(|(number, _)| !arbiters.contains(number)))
}

/// Why transactions cannot write.
const READ_ONLY: &str = "the transaction is read-only";
const WAS_STANDBY: &str = "this node was a standby when the transaction began; write on the primary";

/// A transaction. Dropped without [`Transaction::commit`], it is rolled back.
///
/// Methods take `&self`, so that rows that were read stay usable while writing. Nothing
/// here blocks on other transactions for longer than one of them needs to finish its commit.
pub struct Transaction<'w> {
    pub(crate) worker: &'w Worker,
    guard: Guard<'w>,
    snapshot: Cell<Stamp>,
    /// Whether the snapshot that is announced stays so, whichever the transaction takes.
    held: Cell<bool>,
    pub(crate) isolation: Isolation,
    /// Where it commits. A transaction that began on a standby has no such place.
    pub(crate) primary: Option<&'w Primary>,
    /// Why it cannot write, if it cannot.
    read_only: Option<&'static str>,
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
    pub(crate) fn begin_at(worker: &'w Worker, isolation: Isolation, read_only: bool, stamp: Stamp) -> Self {
        let primary = worker.core.snapshots.primary().filter(|primary| stamp >= primary.log.start());
        Self::begin_with(worker, isolation, primary, Self::why_not(primary, read_only), || stamp)
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
        view: impl Fn() -> Stamp,
    ) -> Self {
        let (guard, snapshot) = worker.participant.pin(view);
        worker.owner.set(None);
        worker.seen.set(Stamp::ZERO);
        let records = read_only.is_none() && primary.is_some() && worker.core.records_inputs();
        if records {
            worker.not_recorded.set(None);
            worker.note_snapshot(snapshot);
        }
        let (snapshot, finished) = (Cell::new(snapshot), Cell::new(false));
        let held = Cell::new(false);
        Self { worker, guard, snapshot, held, isolation, primary, read_only, records, again: None, finished }
    }

    pub(crate) fn begin_again(worker: &'w Worker, stamp: Stamp) -> Self {
        // Who executes again is not certified again.
        Self::begin_with(worker, Isolation::Snapshot, None, None, || stamp)
    }

    pub(crate) fn again(worker: &'w Worker, snapshot: Stamp, again: Again) -> Self {
        let mut transaction = Self::begin_again(worker, snapshot);
        transaction.again = Some(Box::new(again));
        transaction
    }

    /// Everything below this stamp is visible to the transaction, and nothing else but its own
    /// writes.
    pub fn snapshot(&self) -> Stamp {
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
    /// When the transaction is serializable and may write.
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
        if self.records {
            self.worker.note_snapshot(self.snapshot.get());
        }
    }

    /// From now on until this transaction ends, what its present snapshot sees can be read by other
    /// transactions, too: see [`Worker::begin_at`]. Returns that snapshot.
    pub fn hold_snapshot(&self) -> Stamp {
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
    /// When the transaction is serializable and may write.
    pub fn at_present<T>(&self, act: impl FnOnce() -> T) -> T {
        assert!(!self.is_certified(), "a serializable transaction has one snapshot");
        let present = match &self.again {
            Some(again) => again.next_snapshot(self.snapshot.get()),
            None => self.worker.core.snapshots.current(),
        };
        if self.records {
            self.worker.note_snapshot(present);
        }
        let before = self.snapshot.replace(present);
        let done = act();
        self.snapshot.set(before);
        done
    }

    /// The row that a record had when this transaction found it, as the snapshot sees it: in the
    /// same record, or in another one, since a transaction has changed one of its keys; nothing if
    /// it was deleted. With [`Transaction::at_present`].
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn follow(&self, table: &Table, rid: Rid) -> Result<Option<Record<'_>>, ReadError> {
        self.followed(table, rid, false)
    }

    /// The same, also where this transaction has moved the row itself. The record was found since
    /// the snapshot that is announced, or is locked by this transaction
    /// ([`Transaction::hold_snapshot`]).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn follow_anywhere(&self, table: &Table, rid: Rid) -> Result<Option<Record<'_>>, ReadError> {
        self.followed(table, rid, true)
    }

    fn followed(&self, table: &Table, mut rid: Rid, own: bool) -> Result<Option<Record<'_>>, ReadError> {
        let content = self.content(table)?;
        loop {
            if let Some(record) = self.read_in(content, rid)? {
                return Ok(Some(record));
            }
            let moved = match &self.again {
                None => content.moved_to(&self.guard, rid, &self.context(), own)?,
                Some(again) => self.moved_again(again, content, rid).filter(|_| own),
            };
            match moved {
                Some(to) => rid = to,
                None => return Ok(None),
            }
        }
    }

    /// Whether another transaction holds the record that kept the last write of this one from being
    /// done ([`WriteError::Conflict`]): if not, it has changed it since the snapshot.
    pub fn is_held(&self) -> bool {
        self.worker.contested.get().is_some_and(|contested| !self.holders(contested).is_empty())
    }

    /// Who keeps this transaction from having a record: by an uncommitted version, or by a lock.
    fn holders(&self, (fid, rid, wanted): (Fid, Rid, Option<RowLock>)) -> Vec<Owner> {
        // No transaction holds anything in a table that is gone.
        let content = self.worker.core.catalog.get(&self.guard, fid).and_then(|table| table.content(&self.guard));
        let Some(content) = content else { return Vec::new() };
        let mut holders = match wanted {
            Some(wanted) => self.worker.core.row_locks.holders((fid, rid), self.worker.owner.get(), wanted),
            None => Vec::new(),
        };
        if let Some((owner, goes)) = content.holder(&self.guard, rid, &self.context()) {
            let held = if goes { RowLock::Update } else { RowLock::NoKeyUpdate };
            if wanted.is_none_or(|wanted| wanted.conflicts_with(held)) && !holders.contains(&owner) {
                holders.push(owner);
            }
        }
        holders
    }

    /// Whether the record that has the key of the last [`WriteError::UniqueViolation`] has come
    /// since the snapshot.
    pub fn violated_since(&self) -> bool {
        self.worker.violated_since.get()
    }

    /// Blocks while other transactions hold the record that kept the last write of this one from
    /// being done ([`WriteError::Conflict`]). What became of the record must be looked at
    /// afterwards. `cancelled` is asked every few milliseconds.
    ///
    /// # Errors
    /// See [`LockWaitError`]; after [`LockWaitError::Deadlock`] this transaction must be rolled
    /// back.
    pub fn wait_for_holder(
        &self,
        deadline: Option<Instant>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), LockWaitError> {
        let core = &self.worker.core;
        let Some(contested) = self.worker.contested.take() else { return Ok(()) };
        let holders = || self.holders(contested);
        let me = (self.worker.participant.index(), self.worker.owner.get());
        core.waits.wait(&core.owners, me, holders, deadline, cancelled)
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
    fn is_certified(&self) -> bool {
        self.isolation == Isolation::Serializable && self.read_only.is_none()
    }

    /// What is in a table, if the snapshot sees that there is one.
    #[inline]
    fn content(&self, table: &Table) -> Result<&Content, ReadError> {
        let content = table.content(&self.guard).filter(|_| table.exists_at(self.snapshot.get()));
        content.ok_or_else(|| ReadError::Dropped(table.name().to_owned()))
    }

    /// The index of this number that the snapshot finds everything in.
    #[inline]
    fn index<'t>(&'t self, content: &'t Content, number: usize) -> Result<&'t Index, ReadError> {
        let index = content.indexes(&self.guard).get(number).filter(|index| index.exists_at(self.snapshot.get()));
        index.ok_or_else(|| ReadError::NoIndex { table: content.name().to_owned(), index: number })
    }

    /// The table of this name that the transaction's snapshot sees.
    pub fn table(&self, name: &str) -> Option<Arc<Table>> {
        self.worker.core.catalog.by_name(name, self.snapshot.get())
    }

    // --- reads -------------------------------------------------------------------------------

    /// The record of this id, if the transaction sees one.
    ///
    /// # Errors
    /// See [`ReadError`].
    #[inline]
    pub fn read(&self, table: &Table, rid: Rid) -> Result<Option<Record<'_>>, ReadError> {
        self.read_in(self.content(table)?, rid)
    }

    /// What the transaction sees of a record: all reads end here.
    #[inline]
    pub(crate) fn look(&self, content: &Content, rid: Rid) -> Result<Option<Visible<'_>>, ReadError> {
        match &self.again {
            None => content.read(&self.guard, rid, &self.context()),
            Some(again) => self.look_again(again, content, rid),
        }
    }

    #[inline]
    fn read_in(&self, content: &Content, rid: Rid) -> Result<Option<Record<'_>>, ReadError> {
        let visible = self.look(content, rid)?;
        if self.is_certified() {
            self.worker.state.borrow_mut().reads.push((content.fid(), rid));
        }
        let Some(visible) = visible else { return Ok(None) };
        self.saw(visible.stamp);
        Ok(visible.row.map(|row| Record { rid, row }))
    }

    /// A version of this stamp was found, and the answer tells of it; its own versions have none.
    #[inline]
    fn saw(&self, stamp: Option<Stamp>) {
        if let Some(stamp) = stamp
            && stamp > self.worker.seen.get()
        {
            self.worker.seen.set(stamp);
        }
    }

    /// What was read may lack records that were deleted up to `removed`.
    #[inline]
    fn miss(&self, removed: Stamp) {
        self.saw(Some(removed));
    }

    /// The record with exactly this key in the table's index number `index`; the first one,
    /// by record id, if the index is not unique.
    ///
    /// # Errors
    /// See [`ReadError`].
    ///
    #[inline]
    pub fn get(&self, table: &Table, index: usize, key: &[u8]) -> Result<Option<Record<'_>>, ReadError> {
        self.get_in(self.content(table)?, index, key)
    }

    fn get_in(&self, content: &Content, index: usize, key: &[u8]) -> Result<Option<Record<'_>>, ReadError> {
        let found = self.index(content, index)?;
        let definition = found.definition();
        let mut result = Ok(None);
        let mut removed = Stamp::ZERO;
        let visit = |rid| {
            // An index entry is a hint: the row says whether it has the key.
            result =
                self.read_in(content, rid).map(|record| record.filter(|record| definition.matches(record.row, key)));
            if matches!(result, Ok(None)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if self.is_certified() {
            let leaves = &self.worker.leaves;
            let first = leaves.len();
            let _ = leaves.get(&self.guard, content.fid(), index, key, visit);
            removed = leaves.take_removed();
            if matches!(result, Ok(Some(_))) && definition.unique {
                // A transaction that puts another record under this key must delete this one, which
                // we have read.
                leaves.truncate(first);
            } else {
                let range = ScannedRange::key(content.fid(), index, key, first, leaves);
                self.worker.state.borrow_mut().ranges.push(range);
            }
        } else {
            let note = |leaf: LeafVersion<'_>| removed = removed.max(leaf.removed());
            let _ = found.tree().get_certified(&self.guard, key, note, visit);
        }
        // Who has found the only one there can be depends on no deletion.
        if !(definition.unique && matches!(result, Ok(Some(_)))) {
            self.miss(removed);
        }
        result
    }

    /// Visits the records whose keys in index number `index` lie in `range`, in the order of
    /// `direction`, until `visit` breaks off.
    ///
    /// # Errors
    /// See [`ReadError`].
    ///
    pub fn scan<'t>(
        &'t self,
        table: &Table,
        index: usize,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        mut visit: impl FnMut(&[u8], Record<'t>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let content = self.content(table)?;
        let scanned = self.index(content, index)?;
        let definition = scanned.definition();
        let certified = self.is_certified();
        let mut buffer = self.worker.state.borrow_mut().buffers.pop().unwrap_or_default();
        let mut result = Ok(());
        let mut last = None;
        let visit = |key: &[u8], rid| {
            let flow = match self.read_in(content, rid) {
                Ok(Some(record)) if definition.matches(record.row, key) => visit(key, record),
                Ok(_) => ControlFlow::Continue(()),
                Err(cause) => {
                    result = Err(cause);
                    ControlFlow::Break(())
                }
            };
            if certified && flow.is_break() {
                last = Some(key.to_vec());
            }
            flow
        };
        if certified {
            let leaves = &self.worker.leaves;
            let first = leaves.len();
            let _ = leaves.scan(&self.guard, table.fid(), index, range, direction, &mut buffer, visit);
            self.miss(leaves.take_removed());
            let range = ScannedRange::scan(table.fid(), index, range, direction, last, first, leaves);
            self.worker.state.borrow_mut().ranges.push(range);
        } else {
            let miss = |leaf: LeafVersion<'_>| self.miss(leaf.removed());
            let _ = scanned.tree().scan(&self.guard, range, direction, &mut buffer, miss, visit);
        }
        self.worker.state.borrow_mut().buffers.push(buffer);
        result
    }

    // --- writes ------------------------------------------------------------------------------

    /// The transaction's name, which it has from its first write on.
    #[inline]
    fn owner(&self) -> Owner {
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

    /// Fails unless the transaction can carry messages.
    pub(crate) fn may_carry(&self) -> Result<(), WriteError> {
        if self.primary.is_none() {
            return Err(WriteError::ReadOnly(WAS_STANDBY));
        }
        let _ = self.owner();
        Ok(())
    }

    /// What is in a table that is going to be written to, and by what name.
    pub(crate) fn may_write(&self, table: &Table, row: Option<&[u8]>) -> Result<Writing<'_>, WriteError> {
        if let Some(why) = self.read_only {
            return Err(WriteError::ReadOnly(why));
        }
        let owner = self.owner();
        let content = self.content(table)?;
        if table.dropped_at().is_some() {
            // Although the snapshot does not see that: nothing that is written would ever be seen.
            return Err(ReadError::Dropped(table.name().to_owned()).into());
        }
        let indexes = content.indexes(&self.guard);
        if let Some(row) = row
            && !(indexes.accept(row) && (table.fid() != Fid::CATALOG || Catalog::describes_table(row)))
        {
            return Err(WriteError::Row { table: table.name().to_owned(), length: row.len() });
        }
        Ok(Writing { content, indexes, owner })
    }

    /// Adds a record and enters it into all indexes.
    ///
    /// # Errors
    /// [`WriteError::UniqueViolation`] when a unique key is taken, [`WriteError::Conflict`]
    /// when it may be about to be, or was given up since the snapshot; nothing has changed then.
    pub fn insert(&self, table: &Table, row: &[u8]) -> Result<Rid, WriteError> {
        let _vital = panics::vital("a transaction's writes");
        self.insert_instead(self.may_write(table, Some(row))?, row, None, &[])
    }

    /// The same. Where several keys are taken, the violation is of an index among `arbiters`, which
    /// are numbers of indexes, if it is of one of them at all.
    ///
    /// # Errors
    /// As for [`Transaction::insert`].
    pub fn insert_arbitrated(&self, table: &Table, row: &[u8], arbiters: &[usize]) -> Result<Rid, WriteError> {
        let _vital = panics::vital("a transaction's writes");
        self.insert_instead(self.may_write(table, Some(row))?, row, None, arbiters)
    }

    /// Inserts a record whose keys may be those of the record `instead`, which the caller is going
    /// to delete.
    fn insert_instead(
        &self,
        writing: Writing<'_>,
        row: &[u8],
        instead: Option<Rid>,
        arbiters: &[usize],
    ) -> Result<Rid, WriteError> {
        if let Some(again) = &self.again {
            return self.insert_again(again, writing, row, instead, arbiters);
        }
        let Writing { content, indexes, owner } = writing;
        self.worker.state.borrow().check_room(row.len())?;
        let mut inner = self.worker.inner.borrow_mut();
        let place = inner.rids.take(content);
        let fid = content.fid();
        let full = || WriteError::TableFull(content.name().to_owned());
        if fid == Fid::CATALOG && Catalog::fid_of(place.rid).is_none() {
            return Err(full());
        }
        let installed = content.insert(place, owner, row).map_err(|_| full())?;
        let mut key = KeyBuffer::new();
        let is_first = |number: usize| arbiters.contains(&number);
        for (number, index) in in_order(indexes, arbiters) {
            let (tree, definition) = (index.tree(), index.definition());
            // Rows are checked before, but for indexes that have been dropped since.
            let Some(key) = index.key_of(row, &mut key) else { continue };
            // Where a value is missing, no two keys are the same.
            let entered = if definition.unique && !definition.lacks_value(row) {
                // Under the leaf's latch, so of two inserters of one key the second sees the first.
                tree.insert_admitted(&self.guard, key, place.rid, |other| {
                    // After a restart an entry may be left of a record that had this id before, and
                    // the same key.
                    let ours = other == place.rid || Some(other) == instead;
                    if ours { Ok(()) } else { self.admit(content, definition, key, other) }
                })
            } else {
                tree.insert(&self.guard, key, place.rid).map_err(InsertError::KeyTooLong)
            };
            match entered {
                Ok(_) => {}
                Err(InsertError::KeyTooLong(_)) => unreachable!("definitions bound the length of keys"),
                Err(InsertError::Refused(error)) => {
                    let entered = |other: usize| match (is_first(other), is_first(number)) {
                        (true, true) => arbiters.iter().take_while(|first| **first != number).any(|it| *it == other),
                        (false, false) => other < number,
                        (other_is_first, _) => other_is_first,
                    };
                    self.leave_indexes(content, place.rid, row, entered);
                    content.roll_back(&self.guard, installed);
                    inner.rids.put(fid, place);
                    if let WriteError::UniqueViolation { .. } = error {
                        self.note_free_keys(content, row, entered)?;
                    }
                    return Err(error);
                }
            }
        }
        let indexes = indexes.len();
        let write = Write { fid, installed, indexes, inserted: true, entered: None, origin: None };
        self.worker.state.borrow_mut().push(write);
        Ok(place.rid)
    }

    /// Whether the record `other`, found under a unique key, leaves that key to us.
    fn admit(&self, content: &Content, definition: &IndexDefinition, key: &[u8], other: Rid) -> Result<(), WriteError> {
        let newest = content.newest(&self.guard, other, &self.context(), |row| definition.matches(row, key))?;
        let violation = || {
            self.worker.violated_since.set(matches!(newest, Some(Newest::CommittedSince(_))));
            WriteError::UniqueViolation { index: definition.name.clone() }
        };
        match newest {
            None => Ok(()),
            Some(Newest::Committed(stamp)) => {
                // That the record is there is something that the transaction has read.
                self.saw(stamp);
                if self.is_certified() {
                    self.worker.state.borrow_mut().reads.push((content.fid(), other));
                }
                Err(violation())
            }
            // A serializable transaction must not know of it.
            Some(Newest::CommittedSince(_)) if self.is_certified() => Err(self.contested(content, other, None)),
            Some(Newest::CommittedSince(stamp)) => {
                self.keep_records(NotRecorded::Others);
                self.saw(Some(stamp));
                Err(violation())
            }
            Some(Newest::Contested) => Err(self.contested(content, other, None)),
        }
    }

    /// Remembers which record somebody else came first to, and the lock that is wanted on it; none
    /// where another record has its key.
    fn contested(&self, content: &Content, rid: Rid, wanted: Option<RowLock>) -> WriteError {
        self.keep_records(NotRecorded::Others);
        self.worker.contested.set(Some((content.fid(), rid, wanted)));
        WriteError::Conflict
    }

    /// Serializable only: remembers that `row`'s keys in the indexes whose numbers are `entered`
    /// were free, as far as they are unique, of a row that has been entered there and no longer is.
    fn note_free_keys(&self, content: &Content, row: &[u8], entered: impl Fn(usize) -> bool) -> Result<(), ReadError> {
        if self.is_certified() {
            let mut buffer = KeyBuffer::new();
            let indexes = content.indexes(&self.guard).kept();
            // In one that is not ready, nobody reads.
            let read = |number: &usize| entered(*number) && self.index(content, *number).is_ok();
            for (number, index) in indexes.filter(|(number, _)| read(number)) {
                let definition = index.definition();
                if definition.unique
                    && !definition.lacks_value(row)
                    && let Some(key) = index.key_of(row, &mut buffer)
                {
                    self.get_in(content, number, key)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the entries that `row` has in the indexes whose numbers are `entered` away.
    fn leave_indexes(&self, content: &Content, rid: Rid, row: &[u8], entered: impl Fn(usize) -> bool) {
        let mut key = KeyBuffer::new();
        for (_, index) in content.indexes(&self.guard).iter().filter(|(number, _)| entered(*number)) {
            if let Some(key) = index.key_of(row, &mut key) {
                index.tree().remove(&self.guard, key, rid);
            }
        }
    }

    /// Fails if another record than `rid` has its key in index number `index`, which need not be a
    /// unique one. Nothing is wrong where the transaction sees no such record, or a value of the
    /// key is missing. Of two transactions that write the same key and then ask, at least one
    /// learns of the other.
    ///
    /// # Errors
    /// [`WriteError::UniqueViolation`]; [`WriteError::Conflict`] when such a record may be about to
    /// come or go.
    pub fn check_key(&self, table: &Table, index: usize, rid: Rid) -> Result<(), WriteError> {
        if self.again.is_some() {
            // It has learnt of none.
            return Ok(());
        }
        let content = self.content(table)?;
        let found = self.index(content, index)?;
        let definition = found.definition();
        let Some(Visible { row: Some(row), .. }) = content.read(&self.guard, rid, &self.context())? else {
            return Ok(());
        };
        let mut buffer = KeyBuffer::new();
        let Some(key) = found.key_of(row, &mut buffer).filter(|_| !definition.lacks_value(row)) else { return Ok(()) };
        let mut others = Vec::new();
        let _ = found.tree().get_certified(
            &self.guard,
            key,
            |_| {},
            |other| {
                if other != rid {
                    others.push(other);
                }
                ControlFlow::Continue(())
            },
        );
        others.into_iter().try_for_each(|other| self.admit(content, definition, key, other))
    }

    /// Whether this transaction has deleted a record, or moved its row to another one.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn has_deleted(&self, table: &Table, rid: Rid) -> Result<bool, ReadError> {
        let visible = self.look(self.content(table)?, rid)?;
        Ok(matches!(visible, Some(Visible { stamp: None, row: None })))
    }

    /// The row of a record that is to be written, and whether it is this transaction's own already.
    pub(crate) fn present(&self, content: &Content, rid: Rid) -> Result<(&[u8], bool), WriteError> {
        match self.look(content, rid)? {
            Some(Visible { row: Some(row), stamp }) => Ok((row, stamp.is_none())),
            _ => {
                // That there is no such record is something that the transaction has read.
                self.read_in(content, rid)?;
                Err(WriteError::NotFound)
            }
        }
    }

    /// Gives a record a new row. When that changes one of its keys, the record is deleted and
    /// inserted again; the id that it has from then on is returned.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] when another transaction changed it since the snapshot, or is about
    /// to; [`WriteError::NotFound`] when the transaction sees no such record;
    /// [`WriteError::UniqueViolation`]. Nothing has changed then.
    pub fn update(&self, table: &Table, rid: Rid, row: &[u8]) -> Result<Rid, WriteError> {
        let _vital = panics::vital("a transaction's writes");
        Self::refuse_catalog(table)?;
        let writing @ Writing { content, indexes, .. } = self.may_write(table, Some(row))?;
        let (old, own) = self.present(content, rid)?;
        if indexes.kept().all(|(_, index)| index.definition().same_key(old, row)) {
            self.write(writing, rid, Change::Row(row), own)?;
            return Ok(rid);
        }
        if let Some(again) = &self.again {
            let new = self.insert_again(again, writing, row, Some(rid), &[])?;
            self.write_again(again, content, rid, Change::Moved(new))?;
            return Ok(new);
        }
        // The insertion first: it may fail, and to take back a deletion, others would have to have
        // left the old keys alone.
        let new = match self.insert_instead(writing, row, Some(rid), &[]) {
            // Who is too late hears that, and not that what came instead of the record has its
            // unique keys.
            Err(WriteError::UniqueViolation { .. })
                if !matches!(
                    content.newest(&self.guard, rid, &self.context(), |_| true)?,
                    Some(Newest::Committed(_))
                ) =>
            {
                return Err(self.contested(content, rid, Some(RowLock::Update)));
            }
            inserted => inserted?,
        };
        let (inserted, before) = self.own_insertion(content, rid, own);
        // A record that others do not know leaves no tombstone: the one that they know leads on.
        let gone = if inserted { Change::Gone } else { Change::Moved(new) };
        let origin = if inserted { before } else { Some(rid) };
        let number = self.worker.state.borrow().writes.len() - 1;
        if let Err(error) = self.write(writing, rid, gone, own) {
            let inserted = self.worker.state.borrow_mut().pop().expect("just inserted");
            self.undo_write(inserted, &mut self.worker.inner.borrow_mut().rids);
            return Err(error);
        }
        self.worker.state.borrow_mut().writes[number].origin = origin;
        if inserted && let Some(origin) = origin {
            self.redirect(writing, origin, Change::Moved(new));
        }
        Ok(new)
    }

    /// Whether this transaction has inserted a record that it is going to delete, and which
    /// record's row that is.
    fn own_insertion(&self, content: &Content, rid: Rid, own: bool) -> (bool, Option<Rid>) {
        if !own {
            return (false, None);
        }
        let mut state = self.worker.state.borrow_mut();
        let number = state.place_of(content.fid(), rid).expect("what carries its name is in its write set");
        let Write { inserted, origin, .. } = state.writes[number];
        (inserted, origin)
    }

    /// Changes where this transaction's tombstone of `origin` leads.
    fn redirect(&self, Writing { content, owner, .. }: Writing<'_>, origin: Rid, to: Change<'_>) {
        let mut state = self.worker.state.borrow_mut();
        let number = state.place_of(content.fid(), origin).expect("the transaction has deleted it");
        let State { writes, replaced, savepoints, .. } = &mut *state;
        let Write { installed, .. } = &mut writes[number];
        if *savepoints > 0 {
            replaced.push(Replaced { write: number, before: Before::of(installed) });
        }
        content.replace(&self.guard, installed, owner, to);
    }

    /// Deletes a record.
    ///
    /// # Errors
    /// As for [`Transaction::update`].
    pub fn delete(&self, table: &Table, rid: Rid) -> Result<(), WriteError> {
        let _vital = panics::vital("a transaction's writes");
        Self::refuse_catalog(table)?;
        let writing = self.may_write(table, None)?;
        let (_, own) = self.present(writing.content, rid)?;
        if let Some(again) = &self.again {
            return self.write_again(again, writing.content, rid, Change::Gone);
        }
        let (_, origin) = self.own_insertion(writing.content, rid, own);
        self.write(writing, rid, Change::Gone, own)?;
        if let Some(origin) = origin {
            self.redirect(writing, origin, Change::Gone);
        }
        Ok(())
    }

    /// Puts a version on top of a record that the transaction sees, or replaces its `own` one.
    pub(crate) fn write(
        &self,
        Writing { content, indexes, owner }: Writing<'_>,
        rid: Rid,
        change: Change<'_>,
        own: bool,
    ) -> Result<(), WriteError> {
        if let Some(again) = &self.again {
            return self.write_again(again, content, rid, change);
        }
        let row = match change {
            Change::Row(row) => Some(row),
            Change::Gone | Change::Moved(_) => None,
        };
        let mut state = self.worker.state.borrow_mut();
        if own {
            let number = state.place_of(content.fid(), rid).expect("what carries its name is in its write set");
            if row.is_none() && !state.writes[number].inserted {
                // Others may share the key of a record that this transaction has changed.
                let _ = self.hold(&mut state, content, rid, owner, RowLock::Update)?;
            }
            state.will_replace(number, row.map_or(0, <[u8]>::len))?;
            let State { writes, replaced, savepoints, .. } = &mut *state;
            let own = &mut writes[number];
            if *savepoints > 0 {
                replaced.push(Replaced { write: number, before: Before::of(&own.installed) });
            }
            let mut vanished = None;
            if own.inserted && row.is_none() && *savepoints > 0 {
                // Its keys must still be free if it comes back.
                own.entered = Some(own.installed.row().to_vec());
            } else if own.inserted && row.is_none() {
                // Nobody else ever sees this record.
                self.leave_indexes(content, rid, own.installed.row(), |_| true);
                vanished = self.is_certified().then(|| own.installed.row().to_vec());
            }
            content.replace(&self.guard, &mut own.installed, owner, change);
            drop(state);
            // Its keys are open to others again, but that they were free is something that the
            // transaction has read.
            if let Some(row) = vanished {
                self.note_free_keys(content, &row, |_| true)?;
            }
            return Ok(());
        }
        state.check_room(row.map_or(0, <[u8]>::len))?;
        let lock = if row.is_some() { RowLock::NoKeyUpdate } else { RowLock::Update };
        let installed = match content.install(&self.guard, rid, owner, change, &self.context()) {
            Err(InstallError::Conflict) => return Err(self.contested(content, rid, Some(lock))),
            Err(InstallError::Gone) => {
                self.keep_records(NotRecorded::Others);
                return Err(WriteError::NotFound);
            }
            installed => installed?,
        };
        let fid = content.fid();
        if self.worker.core.row_locks.excludes((fid, rid), owner, lock) {
            content.roll_back(&self.guard, installed);
            return Err(self.contested(content, rid, Some(lock)));
        }
        let indexes = indexes.len();
        state.push(Write { fid, installed, indexes, inserted: false, entered: None, origin: None });
        Ok(())
    }

    /// Keeps others from writing a record, as far as `lock` says, until this transaction ends,
    /// without changing it: SELECT … FOR UPDATE and its like.
    ///
    /// # Errors
    /// As for [`Transaction::update`].
    pub fn lock(&self, table: &Table, rid: Rid, lock: RowLock) -> Result<(), WriteError> {
        let _vital = panics::vital("a transaction's writes");
        Self::refuse_catalog(table)?;
        let Writing { content, owner, .. } = self.may_write(table, None)?;
        let (_, own) = self.present(content, rid)?;
        if self.again.is_some() {
            // It has had it.
            return Ok(());
        }
        let mut state = self.worker.state.borrow_mut();
        if own {
            let number = state.place_of(content.fid(), rid).expect("what carries its name is in its write set");
            return match state.writes[number].inserted || lock <= RowLock::NoKeyUpdate {
                true => Ok(()),
                // Others may share the key of a record that this transaction has changed.
                false => self.hold(&mut state, content, rid, owner, lock).map(drop),
            };
        }
        let taken = self.hold(&mut state, content, rid, owner, lock)?;
        // The lock was entered before (the protocol of `row_locks`).
        fence(Ordering::SeqCst);
        let error = match content.lockable(&self.guard, rid, lock == RowLock::KeyShare, &self.context()) {
            Ok(Lockable::Free) => return Ok(()),
            Ok(Lockable::Taken) => self.contested(content, rid, Some(lock)),
            Ok(Lockable::Gone) => {
                self.keep_records(NotRecorded::Others);
                WriteError::NotFound
            }
            Err(cause) => cause.into(),
        };
        if taken == Taken::Now {
            state.pop_lock();
            self.worker.core.row_locks.release((content.fid(), rid), owner, lock);
        }
        Err(error)
    }

    /// Finds the record with this key in a unique index, and locks it, so that a serializable
    /// transaction need not be certified for having found it. Returns none when the transaction
    /// sees no such record.
    ///
    /// # Errors
    /// As for [`Transaction::lock`].
    pub fn lock_key(&self, table: &Table, index: usize, key: &[u8], lock: RowLock) -> Result<Option<Rid>, WriteError> {
        let content = self.content(table)?;
        let found = self.index(content, index)?;
        let definition = found.definition();
        let mut result = Ok(None);
        let visit = |rid| {
            result = self.look(content, rid).map(|there| {
                let has = |there: &Visible<'_>| there.row.is_some_and(|row| definition.matches(row, key));
                there.filter(has).map(|there| (rid, there.stamp))
            });
            if matches!(result, Ok(None)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let _ = found.tree().get_certified(&self.guard, key, |_| {}, visit);
        match result? {
            Some((rid, stamp)) => {
                self.saw(stamp);
                self.lock(table, rid, lock)?;
                Ok(Some(rid))
            }
            // That there is no such record is something that the transaction has read.
            None => Ok(self.get(table, index, key)?.map(|record| record.rid)),
        }
    }

    /// Enters a lock, without a look at the record.
    fn hold(
        &self,
        state: &mut State,
        content: &Content,
        rid: Rid,
        owner: Owner,
        lock: RowLock,
    ) -> Result<Taken, WriteError> {
        state.check_room(0)?;
        let taken = self.worker.core.row_locks.take((content.fid(), rid), owner, lock);
        match taken {
            Taken::Now => state.push_lock(content.fid(), rid, lock),
            Taken::Before => {}
            Taken::Not => return Err(self.contested(content, rid, Some(lock))),
        }
        Ok(taken)
    }

    /// Releases the locks that were taken when it had `left`.
    pub(crate) fn release_locks(&self, left: usize) {
        let mut state = self.worker.state.borrow_mut();
        if state.locks.len() > left {
            let owner = self.worker.owner.get().expect("it has locks");
            while state.locks.len() > left
                && let Some((fid, rid, lock)) = state.pop_lock()
            {
                self.worker.core.row_locks.release((fid, rid), owner, lock);
            }
        }
    }

    // --- the end -----------------------------------------------------------------------------

    /// Undoes everything. The same as dropping it.
    pub fn roll_back(self) {}

    /// Takes all uncommitted versions back, newest first.
    pub(crate) fn undo_all(&self, rids: &mut crate::rids::Rids) {
        if let Some(owner) = self.worker.owner.get() {
            self.worker.core.owners.decided(owner, false);
        }
        let mut state = self.worker.state.borrow_mut();
        while let Some(write) = state.writes.pop() {
            self.undo_write(write, rids);
        }
    }

    /// Takes one version back; of an inserted record nothing stays.
    pub(crate) fn undo_write(&self, write: Write, rids: &mut crate::rids::Rids) {
        let Some(content) = self.worker.core.content(&self.guard, write.fid) else {
            // The table is gone, and what is left of the version goes with it.
            return;
        };
        let (rid, tombstone) = (write.installed.rid(), write.installed.prev());
        if write.inserted {
            let row = match write.installed.kind() {
                RecordKind::Delete => write.entered.as_deref(),
                _ => Some(write.installed.row()),
            };
            if let Some(row) = row {
                self.leave_indexes(content, rid, row, |_| true);
            }
            content.roll_back(&self.guard, write.installed);
            rids.put(write.fid, Reclaimed { rid, tombstone });
        } else {
            content.roll_back(&self.guard, write.installed);
        }
    }
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
