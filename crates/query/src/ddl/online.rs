//! An index that comes while others write.
//!
//! The engine adds it to the table that has the rows, outside of the session's transaction; it
//! counts when the catalog's entry names it. Writers are waited for only until the engine enters
//! what they write. The catalog itself stays locked, so no other definition meddles with the table.

use std::sync::Arc;

use freshet_engine::{BuildError, IndexError, Isolation, WriteError};
use freshet_sql::SqlError;

use super::{
    rewrite::not_copied,
    work::{Halt, Step, Work},
};
use crate::{
    error::{index_error, memory_full},
    locks::LockMode,
    schema::{Table, TableInfo, relation},
};

impl Work<'_, '_, '_> {
    /// Adds the last index of `table`, which is what becomes of the table `info`. Returns `false`
    /// where that is not possible: when the transaction has written to the table itself, or has to
    /// keep its snapshot, or when there are rows that have no key.
    pub(super) fn add_online(&mut self, info: &Arc<TableInfo>, table: &mut Table) -> Step<bool> {
        let transaction = self.ddl.transaction;
        if transaction.isolation() == Isolation::Serializable || transaction.has_written(&info.rows) {
            return Ok(false);
        }
        let (Some(mark), Some(index)) = (self.ddl.mark, table.indexes.last_mut()) else { return Ok(false) };
        let mut definition = relation::engine_index(&info.table, &info.layout, index)?;
        if info.rows.index_number(&definition.name).is_some() {
            // Of one that was renamed, or is gone.
            definition.name = format!("{} {}", index.name, index.oid);
        }
        if !self.ddl.locks.try_lock(table.oid, LockMode::Share) {
            return Err(Halt::Blocked(table.oid, LockMode::Share));
        }
        let database = self.ddl.catalog.database().clone();
        let interrupted = self.ddl.interrupted;
        let build = match database.begin_index(&info.rows, &definition, &|| interrupted().is_err()) {
            Ok(build) => build,
            Err(cause) => {
                interrupted()?;
                return Err(self.schema().concerning(table, failed(cause, info, table)).into());
            }
        };
        let number = build.number();
        let Some(index) = table.indexes.last_mut() else { return Ok(false) };
        index.number = u16::try_from(number).map_err(|_| SqlError::internal("an index beyond all numbers"))?;
        // From here on the engine keeps it, whichever session writes.
        self.ddl.locks.release_since(mark);
        self.ddl.effects.touch_index(self.ddl.catalog, &table.rows, index.number);
        match build.finish(&|| interrupted().is_err()) {
            Ok(_) => {}
            // Rows from before a column was added are too short for it; a copy will have the
            // column.
            Err(IndexError::Build(BuildError::Row { .. })) => {
                self.ddl.mark = None;
                return Ok(false);
            }
            Err(cause) => {
                interrupted()?;
                return Err(self.schema().concerning(table, failed(cause, info, table)).into());
            }
        }
        // What is ready is newer than the snapshot.
        self.see_everything();
        self.put_table(table.clone())?;
        Ok(true)
    }
}

fn failed(cause: IndexError, info: &TableInfo, table: &Table) -> SqlError {
    let Some(name) = table.indexes.last().map(|index| index.name.clone()) else {
        return SqlError::internal("an index without a name");
    };
    let described = |cause, row: &[u8]| match TableInfo::new(table.clone(), Arc::clone(&info.rows)) {
        Ok(new) => not_copied(cause, &new, row),
        Err(error) => error,
    };
    match cause {
        IndexError::Build(BuildError::UniqueViolation { row, .. }) => {
            described(WriteError::UniqueViolation { index: name }, &row)
        }
        IndexError::Build(BuildError::Memory(cause)) => memory_full(&cause),
        other => index_error(&format!("could not create index \"{name}\""), other),
    }
}
