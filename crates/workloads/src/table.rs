//! Tables whose rows have a [`Layout`].

use std::{
    fmt,
    marker::PhantomData,
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use freshet_base::Rid;

use crate::{
    engine::{
        CreateTableError, Database, Direction, Fid, IndexDefinition, KeyPart, ProcedureError, Record, Table,
        TableDefinition, Transaction,
    },
    row::{Column, Layout, Row, Sorts, View, WrongWidth},
};

/// A table that a workload needs is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no table {0:?}: load the workload first")]
pub struct NoTable(pub &'static str);

/// A handle on a table whose rows have layout `L`. Cheap to clone.
pub struct Typed<L> {
    table: Arc<Table>,
    layout: PhantomData<fn() -> L>,
}

impl<L> Clone for Typed<L> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table), layout: PhantomData }
    }
}

impl<L: Layout> fmt::Debug for Typed<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Typed").field(&L::NAME).finish()
    }
}

/// A record that a transaction sees, until the transaction ends.
pub struct Found<'t, L: Layout> {
    /// Which record of its table.
    pub rid: Rid,
    /// Its row.
    pub row: View<'t, L>,
}

impl<L: Layout> Clone for Found<'_, L> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Layout> Copy for Found<'_, L> {}

/// The ends of a scan.
pub type Range<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Everything.
pub const ALL: Range<'static> = (Bound::Unbounded, Bound::Unbounded);

impl From<WrongWidth> for ProcedureError {
    fn from(error: WrongWidth) -> Self {
        Self::Aborted(error.to_string().into())
    }
}

/// The end of a transaction that is to work on what does not exist.
#[cold]
pub(crate) fn missing<T>(what: &'static str) -> Result<T, ProcedureError> {
    Err(ProcedureError::Aborted(what.into()))
}

impl<L: Layout> Typed<L> {
    /// The table of this layout's name.
    ///
    /// # Errors
    /// [`NoTable`] when none exists.
    pub fn open(database: &dyn FindTable) -> Result<Self, NoTable> {
        let table = database.find_table(L::NAME).ok_or(NoTable(L::NAME))?;
        Ok(Self { table, layout: PhantomData })
    }

    /// The table's id.
    pub(crate) fn fid(&self) -> Fid {
        self.table.fid()
    }

    /// The record whose primary key is `key`.
    #[inline]
    pub fn find<'t>(&self, txn: &'t Transaction<'_>, key: &[u8]) -> Result<Option<Found<'t, L>>, ProcedureError> {
        match txn.get(&self.table, 0, key)? {
            Some(record) => Ok(Some(Self::found(record)?)),
            None => Ok(None),
        }
    }

    /// The record whose primary key is `key`; rolls the transaction back, saying `absent`, where
    /// none exists.
    #[inline]
    pub fn need<'t>(
        &self,
        txn: &'t Transaction<'_>,
        key: &[u8],
        absent: &'static str,
    ) -> Result<Found<'t, L>, ProcedureError> {
        match self.find(txn, key)? {
            Some(found) => Ok(found),
            None => missing(absent),
        }
    }

    #[inline]
    fn found(record: Record<'_>) -> Result<Found<'_, L>, WrongWidth> {
        Ok(Found { rid: record.rid, row: View::of(record.row)? })
    }

    /// Adds a record.
    #[inline]
    pub fn insert(&self, txn: &Transaction<'_>, row: &Row<L>) -> Result<Rid, ProcedureError> {
        Ok(txn.insert(&self.table, row.bytes())?)
    }

    /// Replaces a record's row.
    #[inline]
    pub fn update(&self, txn: &Transaction<'_>, rid: Rid, row: &Row<L>) -> Result<(), ProcedureError> {
        txn.update(&self.table, rid, row.bytes())?;
        Ok(())
    }

    /// Deletes a record.
    #[inline]
    pub fn delete(&self, txn: &Transaction<'_>, rid: Rid) -> Result<(), ProcedureError> {
        Ok(txn.delete(&self.table, rid)?)
    }

    /// Visits records in the order of their keys in index number `index`, until `visit` breaks.
    #[inline]
    pub fn scan<'t>(
        &self,
        txn: &'t Transaction<'_>,
        index: usize,
        range: Range<'_>,
        direction: Direction,
        mut visit: impl FnMut(Found<'t, L>) -> ControlFlow<()>,
    ) -> Result<(), ProcedureError> {
        let mut wrong = None;
        txn.scan(&self.table, index, range, direction, |_, record| match Self::found(record) {
            Ok(found) => visit(found),
            Err(error) => {
                wrong = Some(error);
                ControlFlow::Break(())
            }
        })?;
        match wrong {
            None => Ok(()),
            Some(error) => Err(error.into()),
        }
    }

    /// Visits all records in the order of their primary keys.
    pub fn scan_all<'t>(
        &self,
        txn: &'t Transaction<'_>,
        mut visit: impl FnMut(Found<'t, L>),
    ) -> Result<(), ProcedureError> {
        self.scan(txn, 0, ALL, Direction::Forward, |found| {
            visit(found);
            ControlFlow::Continue(())
        })
    }
}

/// The part of a key that adjacent columns from `first` to `last` make.
pub(crate) fn part<L: Layout, V: Sorts, W: Sorts>(first: Column<L, V>, last: Column<L, W>) -> KeyPart {
    let narrow = |position: usize| u16::try_from(position).expect("rows are narrower than 64 KiB");
    KeyPart::bytes(narrow(first.offset()), narrow(last.end() - first.offset()))
}

/// The definition of the table of layout `L`: its primary key, and indexes that need not be unique.
pub(crate) fn definition<L: Layout>(primary: KeyPart, others: &[(&str, &[KeyPart])]) -> TableDefinition {
    let name = |suffix: &str| format!("{}_{suffix}", L::NAME);
    let mut indexes = vec![IndexDefinition::new(&name("key"), true, &[primary])];
    indexes.extend(others.iter().map(|(suffix, parts)| IndexDefinition::new(&name(suffix), false, parts)));
    TableDefinition::new(L::NAME, indexes)
}

/// Where tables are found: as they are now, or as a transaction sees them.
pub trait FindTable {
    /// The table of this name.
    fn find_table(&self, name: &str) -> Option<Arc<Table>>;
}

impl FindTable for Database {
    fn find_table(&self, name: &str) -> Option<Arc<Table>> {
        self.table(name)
    }
}

impl FindTable for Transaction<'_> {
    fn find_table(&self, name: &str) -> Option<Arc<Table>> {
        self.table(name)
    }
}

/// The tables of a workload: handles on them, cheap to clone.
pub trait TableSet: Sized {
    /// The definitions of all tables.
    fn definitions() -> Vec<TableDefinition>;

    /// Finds the tables.
    ///
    /// # Errors
    /// [`NoTable`] names the first that is missing.
    fn open(database: &dyn FindTable) -> Result<Self, NoTable>;

    /// Makes those tables that are not there yet, and finds all. Blocks until they are committed.
    ///
    /// # Errors
    /// See [`CreateTableError`].
    fn create(database: &Database) -> Result<Self, CreateTableError> {
        for definition in Self::definitions() {
            if database.table(&definition.name).is_none() {
                database.create_table(&definition)?;
            }
        }
        Ok(Self::open(database).expect("all tables have just been made"))
    }
}
