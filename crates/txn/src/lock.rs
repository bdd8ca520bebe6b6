//! Execute, locks: keeping others from writing a record, and waiting for those who do.

use std::{
    ops::ControlFlow,
    sync::atomic::{Ordering, fence},
};

use freshet_base::{Fid, Rid, panics, wait::Patience};
use freshet_storage::{Content, Lockable, Owner, Table, Visible};

use crate::{
    LockWaitError, NotRecorded, RowLock, Transaction, WriteError, row_locks::Taken, state::State, write::Writing,
};

impl Transaction<'_> {
    /// Whether another transaction holds the record that kept the last write of this one from being
    /// done ([`WriteError::Conflict`]): if not, it has changed it since the snapshot.
    pub fn is_held(&self) -> bool {
        self.worker.contested.get().is_some_and(|contested| !self.holders(contested).is_empty())
    }

    /// Who keeps this transaction from having a record: by an uncommitted version, or by a lock.
    fn holders(&self, (fid, rid, wanted): (Fid, Rid, Option<RowLock>)) -> Vec<Owner> {
        // No transaction holds anything in a table that is gone.
        let content = self.worker.core.catalog.get(self.guard(), fid).and_then(|table| table.content(self.guard()));
        let Some(content) = content else { return Vec::new() };
        let mut holders = match wanted {
            Some(wanted) => self.worker.core.row_locks.holders((fid, rid), self.worker.owner.get(), wanted),
            None => Vec::new(),
        };
        if let Some((owner, goes)) = content.holder(self.guard(), rid, &self.context()) {
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
    /// afterwards.
    ///
    /// # Errors
    /// See [`LockWaitError`]; after [`LockWaitError::Deadlock`] this transaction must be rolled
    /// back.
    pub fn wait_for_holder(&self, patience: Patience<'_>) -> Result<(), LockWaitError> {
        let core = &self.worker.core;
        let Some(contested) = self.worker.contested.take() else { return Ok(()) };
        let holders = || self.holders(contested);
        let me = (self.worker.participant.index(), self.worker.owner.get());
        core.waits.wait(&core.owners, me, holders, patience)
    }

    /// Remembers which record somebody else came first to, and the lock that is wanted on it; none
    /// where another record has its key.
    pub(crate) fn contested(&self, content: &Content, rid: Rid, wanted: Option<RowLock>) -> WriteError {
        self.keep_records(NotRecorded::Others);
        self.worker.contested.set(Some((content.fid(), rid, wanted)));
        WriteError::Conflict
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
        let error = match content.lockable(self.guard(), rid, lock == RowLock::KeyShare, &self.context()) {
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
                there.filter(has).map(|there| (rid, there.lsn))
            });
            if matches!(result, Ok(None)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let _ = found.tree().get_certified(self.guard(), key, |_| {}, visit);
        match result? {
            Some((rid, lsn)) => {
                self.saw(lsn);
                self.lock(table, rid, lock)?;
                Ok(Some(rid))
            }
            // That there is no such record is something that the transaction has read.
            None => Ok(self.get(table, index, key)?.map(|record| record.rid)),
        }
    }

    /// Enters a lock, without a look at the record.
    pub(crate) fn hold(
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
}
