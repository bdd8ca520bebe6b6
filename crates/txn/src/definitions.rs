//! Changing what the catalog says of a table: its end, and its indexes.

use std::fmt;

use freshet_base::{Fid, Rid, panics};
use freshet_storage::{Catalog, Change, IndexDefinition, IndexState, ReadError, Table, TableDefinition};

use crate::{Transaction, WriteError, write::Writing};

impl Transaction<'_> {
    /// Tables are made by insertions into the catalog's table; nobody changes its records by
    /// himself.
    pub(crate) fn refuse_catalog(table: &Table) -> Result<(), WriteError> {
        match table.fid() {
            Fid::CATALOG => {
                Err(WriteError::ReadOnly("the catalog's records change only as tables are made, changed and dropped"))
            }
            _ => Ok(()),
        }
    }

    /// Drops a table: who begins later does not see it, and who commits later has not written to
    /// it. Transactions that began before may read it until they end; when they have written to it,
    /// and commit later, that fails ([`crate::CommitError::Dropped`]).
    ///
    /// # Errors
    /// [`WriteError::ReadOnly`] for the catalog's own table; [`WriteError::Conflict`] when another
    /// transaction is about to drop it, or has since the snapshot; [`ReadError::Dropped`] when the
    /// snapshot sees no such table.
    pub fn drop_table(&self, table: &Table) -> Result<(), WriteError> {
        let _vital = panics::vital("a transaction's writes");
        let (catalog, rid, _, own) = self.catalog_row(table)?;
        self.write(catalog, rid, Change::Gone, own)
    }

    /// What the catalog says of a table that is going to be changed.
    fn catalog_row(&self, table: &Table) -> Result<(Writing<'_>, Rid, &[u8], bool), WriteError> {
        Self::refuse_catalog(table)?;
        self.may_write(table, None)?;
        let catalog = self.may_write(self.worker.core.catalog.table(), None)?;
        let rid = Catalog::rid_of(table.fid()).expect("the catalog's own was refused");
        match self.present(catalog.content, rid) {
            Err(WriteError::NotFound) => Err(ReadError::Dropped(table.name().to_owned()).into()),
            present => present.map(|(row, own)| (catalog, rid, row, own)),
        }
    }

    /// Changes what the catalog says of a table's indexes: `change` may add some at the end, and
    /// say how far others have come. Who commits later and has written to the table has entered
    /// that into indexes that were added; if it began before, its commit fails
    /// ([`crate::CommitError::Altered`]), and it should be tried again. This is the logged part of
    /// adding and dropping an index; it does not fill one.
    ///
    /// # Errors
    /// [`WriteError::ReadOnly`] for the catalog's own table; [`WriteError::Conflict`] when another
    /// transaction is about to change the table, or has since the snapshot; [`ReadError::Dropped`]
    /// when the snapshot sees no such table; [`WriteError::Definition`] when the changed definition
    /// is none; what `change` says.
    pub fn change_indexes<T>(
        &self,
        table: &Table,
        change: impl FnOnce(&mut Vec<IndexDefinition>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let _vital = panics::vital("a transaction's writes");
        let (catalog, rid, row, own) = self.catalog_row(table)?;
        let wrong = |cause: &dyn fmt::Display| WriteError::Definition(cause.to_string());
        let before = Catalog::definition_in(row).map_err(|cause| wrong(&cause))?;
        let mut indexes = before.indexes.clone();
        let changed = change(&mut indexes)?;
        let kept =
            indexes.len() >= before.indexes.len() && before.indexes.iter().zip(&indexes).all(|(a, b)| a.is_same(b));
        if !kept {
            return Err(wrong(&"indexes stay where they are, as they are"));
        }
        let mut names: Vec<&str> =
            indexes.iter().filter(|it| it.state != IndexState::Dropped).map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(&format!("table {:?} has an index {:?} already", table.name(), twice[0])));
        }
        let row = Catalog::row_of(&TableDefinition { indexes, ..before }).map_err(|cause| wrong(&cause))?;
        self.write(catalog, rid, Change::Row(&row), own)?;
        Ok(changed)
    }
}
