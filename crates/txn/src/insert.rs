//! Execute, insertions: a new record, and its entries in all indexes.

use std::ops::ControlFlow;

use freshet_base::{Fid, Rid, panics};
use freshet_storage::{
    Catalog, Content, Index, IndexDefinition, IndexList, KeyBuffer, Newest, ReadError, Table, Visible,
    index::InsertError,
};

use crate::{NotRecorded, Transaction, WriteError, state::Write, write::Writing};

/// The indexes that an insertion is entered into, with their numbers, in the order of that: the
/// `arbiters` first.
pub(crate) fn in_order<'i>(indexes: &'i IndexList, arbiters: &'i [usize]) -> impl Iterator<Item = (usize, &'i Index)> {
    let first = arbiters.iter().filter_map(|number| Some((*number, indexes.get(*number)?)));
    let first = first.filter(|(_, index)| !index.is_dropped());
    first.chain(indexes.kept().filter(|(number, _)| !arbiters.contains(number)))
}

impl Transaction<'_> {
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
    pub(crate) fn insert_instead(
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
                tree.insert_admitted(self.guard(), key, place.rid, |other| {
                    // After a restart an entry may be left of a record that had this id before, and
                    // the same key.
                    let ours = other == place.rid || Some(other) == instead;
                    if ours { Ok(()) } else { self.admit(content, definition, key, other) }
                })
            } else {
                tree.insert(self.guard(), key, place.rid).map_err(InsertError::KeyTooLong)
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
                    content.roll_back(self.guard(), installed);
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
    pub(crate) fn admit(
        &self,
        content: &Content,
        definition: &IndexDefinition,
        key: &[u8],
        other: Rid,
    ) -> Result<(), WriteError> {
        let newest = content.newest(self.guard(), other, &self.context(), |row| definition.matches(row, key))?;
        let violation = || {
            self.worker.violated_since.set(matches!(newest, Some(Newest::CommittedSince(_))));
            WriteError::UniqueViolation { index: definition.name.clone() }
        };
        match newest {
            None => Ok(()),
            Some(Newest::Committed(lsn)) => {
                // That the record is there is something that the transaction has read.
                self.saw(lsn);
                if self.is_certified() {
                    self.worker.state.borrow_mut().reads.push((content.fid(), other));
                }
                Err(violation())
            }
            // A serializable transaction must not know of it.
            Some(Newest::CommittedSince(_)) if self.is_certified() => Err(self.contested(content, other, None)),
            Some(Newest::CommittedSince(lsn)) => {
                self.keep_records(NotRecorded::Others);
                self.saw(Some(lsn));
                Err(violation())
            }
            Some(Newest::Contested) => Err(self.contested(content, other, None)),
        }
    }

    /// Serializable only: remembers that `row`'s keys in the indexes whose numbers are `entered`
    /// were free, as far as they are unique, of a row that has been entered there and no longer is.
    pub(crate) fn note_free_keys(
        &self,
        content: &Content,
        row: &[u8],
        entered: impl Fn(usize) -> bool,
    ) -> Result<(), ReadError> {
        if self.is_certified() {
            let mut buffer = KeyBuffer::new();
            let indexes = content.indexes(self.guard()).kept();
            // No transaction reads one that is not ready.
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
    pub(crate) fn leave_indexes(&self, content: &Content, rid: Rid, row: &[u8], entered: impl Fn(usize) -> bool) {
        let mut key = KeyBuffer::new();
        for (_, index) in content.indexes(self.guard()).iter().filter(|(number, _)| entered(*number)) {
            if let Some(key) = index.key_of(row, &mut key) {
                index.tree().remove(self.guard(), key, rid);
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
        let Some(Visible { row: Some(row), .. }) = content.read(self.guard(), rid, &self.context())? else {
            return Ok(());
        };
        let mut buffer = KeyBuffer::new();
        let Some(key) = found.key_of(row, &mut buffer).filter(|_| !definition.lacks_value(row)) else { return Ok(()) };
        let mut others = Vec::new();
        let _ = found.tree().get_certified(
            self.guard(),
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
}
