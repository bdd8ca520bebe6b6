//! Execute, writes: uncommitted versions at chain heads, and how they are taken back.
//!
//! A write puts an uncommitted version on top if the head is committed and visible: the first
//! writer wins, the second gets a conflict at once.

use freshet_base::{Fid, RecordKind, Rid, panics};
use freshet_storage::{
    Catalog, Change, Content, IndexList, InstallError, Newest, Owner, ReadError, Reclaimed, Table, Visible,
};

use crate::{
    NotRecorded, RowLock, Transaction, WriteError,
    state::{Before, Replaced, State, Write},
    transaction::WAS_STANDBY,
};

/// About how many bytes a version takes besides its row.
const ROW: usize = 64;

/// A table that is written to, by whom.
#[derive(Clone, Copy)]
pub(crate) struct Writing<'t> {
    pub(crate) content: &'t Content,
    /// What it is entered into.
    pub(crate) indexes: &'t IndexList,
    pub(crate) owner: Owner,
}

impl Transaction<'_> {
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
        if let Some(row) = row
            && self.again.is_none()
        {
            self.worker.check_memory(ROW + row.len(), table.has_reserve())?;
        }
        if table.fid() == Fid::CATALOG {
            self.worker.state.borrow_mut().changes = true;
        }
        let indexes = content.indexes(self.guard());
        if let Some(row) = row
            && !(indexes.accept(row) && (table.fid() != Fid::CATALOG || Catalog::describes_table(row)))
        {
            return Err(WriteError::Row { table: table.name().to_owned(), length: row.len() });
        }
        Ok(Writing { content, indexes, owner })
    }

    /// The row of a record that is to be written, and whether it is this transaction's own already.
    pub(crate) fn present(&self, content: &Content, rid: Rid) -> Result<(&[u8], bool), WriteError> {
        match self.look(content, rid)? {
            Some(Visible { row: Some(row), lsn }) => Ok((row, lsn.is_none())),
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
                    content.newest(self.guard(), rid, &self.context(), |_| true)?,
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
        content.replace(self.guard(), installed, owner, to);
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
            content.replace(self.guard(), &mut own.installed, owner, change);
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
        let installed = match content.install(self.guard(), rid, owner, change, &self.context()) {
            Err(InstallError::Conflict) => return Err(self.contested(content, rid, Some(lock))),
            Err(InstallError::Gone) => {
                self.keep_records(NotRecorded::Others);
                return Err(WriteError::NotFound);
            }
            installed => installed?,
        };
        let fid = content.fid();
        if self.worker.core.row_locks.excludes((fid, rid), owner, lock) {
            content.roll_back(self.guard(), installed);
            return Err(self.contested(content, rid, Some(lock)));
        }
        let indexes = indexes.len();
        state.push(Write { fid, installed, indexes, inserted: false, entered: None, origin: None });
        Ok(())
    }

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
        let Some(content) = self.worker.core.content(self.guard(), write.fid) else {
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
            content.roll_back(self.guard(), write.installed);
            rids.put(write.fid, Reclaimed { rid, tombstone });
        } else {
            content.roll_back(self.guard(), write.installed);
        }
    }
}
