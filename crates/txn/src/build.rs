//! Building an index of a filled table while others write.
//!
//! A transaction that commits after the index was added has entered what it wrote
//! ([`Transaction::change_indexes`]). What is left to enter is what a later snapshot sees: records
//! are taken in the order of the primary index, a batch at a time, each batch in a snapshot of its
//! own. A record that comes or gets another key in the meantime is entered by its writer; one that
//! goes is needed by nobody.

use std::ops::{Bound, ControlFlow};

use freshet_base::{Rid, panics};
use freshet_storage::{Index, KeyBuffer, Newest, ReadError, Table, index::InsertError};
use thiserror::Error;

use crate::{Transaction, WriteError, read::Direction};

/// Why an index cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// Two records have the same key, and the index is unique.
    #[error("two records have the same key in unique index {index:?}")]
    UniqueViolation {
        /// The name of the index.
        index: String,
        /// One of the records' rows.
        row: Vec<u8>,
    },
    /// A row is too short for the index, or its key is too long.
    #[error("a row of {length} bytes has no key in index {index:?}, or one that is too long")]
    Row {
        /// The name of the index.
        index: String,
        /// The row's length in bytes.
        length: usize,
    },
    /// The tables take as much memory as they may.
    #[error(transparent)]
    Memory(WriteError),
    /// A record could not be read, or the table is gone.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// How a batch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Records may be left: call again.
    More,
    /// That was the last one.
    Last,
    /// Another transaction may be about to make or to give up a key: look again, in another
    /// snapshot.
    Contested,
}

/// Why a record was not entered.
enum Refused {
    Contested,
    Taken,
    Read(ReadError),
}

impl Transaction<'_> {
    /// Enters up to `count` records, from the key `after` of the primary index on, into index
    /// number `index` of the table; `after` becomes the last key that is done.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build_index(
        &self,
        table: &Table,
        index: usize,
        after: &mut Option<Vec<u8>>,
        count: usize,
    ) -> Result<Batch, BuildError> {
        let _vital = panics::vital("the filling of an index");
        self.worker().check_memory(crate::memory::LOOK_AFTER, table.has_reserve()).map_err(BuildError::Memory)?;
        let dropped = || ReadError::Dropped(table.name().to_owned());
        let content = table.content(self.guard()).ok_or_else(dropped)?;
        let missing = || ReadError::NoIndex { table: table.name().to_owned(), index };
        let index = content.indexes(self.guard()).get(index).filter(|it| !it.is_dropped()).ok_or_else(missing)?;
        let from = after.clone();
        let range = (from.as_deref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let (mut done, mut outcome) = (0, Ok(Batch::Last));
        let mut buffer = KeyBuffer::new();
        self.scan(table, 0, range, Direction::Forward, |key, record| {
            match self.enter(content, index, record.rid, record.row, &mut buffer) {
                Ok(Batch::More) => {}
                stop => {
                    outcome = stop;
                    return ControlFlow::Break(());
                }
            }
            key.clone_into(after.get_or_insert_default());
            done += 1;
            if done < count {
                return ControlFlow::Continue(());
            }
            outcome = Ok(Batch::More);
            ControlFlow::Break(())
        })?;
        outcome
    }

    fn enter(
        &self,
        content: &freshet_storage::Content,
        index: &Index,
        rid: Rid,
        row: &[u8],
        buffer: &mut KeyBuffer,
    ) -> Result<Batch, BuildError> {
        let definition = index.definition();
        let name = || definition.name.clone();
        let no_key = || BuildError::Row { index: name(), length: row.len() };
        if row.len() >= definition.least_row() && !definition.has(row) {
            return Ok(Batch::More);
        }
        let key = index.key_of(row, buffer).filter(|_| index.accepts(row)).ok_or_else(no_key)?;
        if !definition.unique || definition.lacks_value(row) {
            index.tree().insert(self.guard(), key, rid).map_err(|_| no_key())?;
            return Ok(Batch::More);
        }
        let entered = index.tree().insert_admitted(self.guard(), key, rid, |other| {
            if other == rid {
                return Ok(());
            }
            let has_key = |row: &[u8]| definition.matches(row, key);
            match content.newest(self.guard(), other, &self.context(), has_key) {
                Ok(None) => Ok(()),
                Ok(Some(Newest::Committed(_))) => Err(Refused::Taken),
                Ok(Some(Newest::CommittedSince(_) | Newest::Contested)) | Err(ReadError::Stalled) => {
                    Err(Refused::Contested)
                }
                Err(cause) => Err(Refused::Read(cause)),
            }
        });
        match entered {
            Ok(_) => Ok(Batch::More),
            Err(InsertError::KeyTooLong(_)) => Err(no_key()),
            Err(InsertError::Refused(Refused::Contested)) => Ok(Batch::Contested),
            Err(InsertError::Refused(Refused::Taken)) => {
                Err(BuildError::UniqueViolation { index: name(), row: row.to_vec() })
            }
            Err(InsertError::Refused(Refused::Read(cause))) => Err(cause.into()),
        }
    }

    /// Whether this transaction has written to the table, and not taken it back.
    pub fn has_written(&self, table: &Table) -> bool {
        match &self.again {
            None => self.worker().state.borrow().writes.iter().any(|write| write.fid == table.fid()),
            Some(again) => again.has_written(table.fid()),
        }
    }

    /// Whether an index of the table is neither ready nor dropped.
    pub fn has_building(&self, table: &Table) -> bool {
        let content = table.content(self.guard());
        content.is_some_and(|content| content.indexes(self.guard()).iter().any(|(_, index)| index.is_building()))
    }

    /// About how many records a table has. Looks at a few leaves of its primary index only.
    pub fn approximate_rows(&self, table: &Table) -> u64 {
        let content = table.content(self.guard());
        content.map_or(0, |content| content.indexes(self.guard()).primary().tree().approximate_entries(self.guard()))
    }
}
