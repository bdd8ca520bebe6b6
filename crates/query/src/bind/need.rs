//! What a statement does with a table, and whether its role may do that.
//!
//! While a statement is bound, each table that it names has a [`Need`], which notes what the
//! statement reads, inserts and updates of it. Each source of rows points to its need
//! ([`ScopeSource::need`]), so a column that is resolved in a source counts as read. When all is
//! bound, the role's privileges are compared with the needs, as in PostgreSQL: a privilege on the
//! table is enough, and so is one on each of the columns. General queries do the same through the
//! door's `Readable`.
//!
//! [`ScopeSource::need`]: super::ScopeSource::need

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    sync::Arc,
};

use freshet_sql::SqlError;

use super::{Binder, Bound};
use crate::schema::{TableInfo, denied, privilege};

/// What a statement does with a table.
#[derive(Debug)]
pub struct Need {
    table: Arc<TableInfo>,
    /// Bits of [`privilege`] that it needs in any case. If no column is named below, a privilege
    /// that columns can have is needed on any one column.
    wanted: Cell<u16>,
    /// The columns that it reads, inserts and updates.
    columns: RefCell<[BTreeSet<u16>; 3]>,
}

/// The privileges that columns can have, in the order of [`Need::columns`].
const OF_COLUMNS: [u16; 3] = [privilege::SELECT, privilege::INSERT, privilege::UPDATE];

impl Need {
    /// The statement needs these privileges as well.
    pub fn want(&self, privileges: u16) {
        self.wanted.set(self.wanted.get() | privileges);
    }

    /// The statement reads this column.
    pub fn read(&self, column: u16) {
        self.columns.borrow_mut()[0].insert(column);
        self.want(privilege::SELECT);
    }

    /// It gives new rows a value in a column.
    pub fn insert(&self, column: u16) {
        self.columns.borrow_mut()[1].insert(column);
    }

    /// The statement changes this column.
    pub fn update(&self, column: u16) {
        self.columns.borrow_mut()[2].insert(column);
        self.want(privilege::UPDATE);
    }

    /// The columns to which it gives values.
    pub fn given(&self) -> Vec<u16> {
        let [_, inserted, updated] = &*self.columns.borrow();
        inserted.union(updated).copied().collect()
    }

    /// Fails unless the binder's role may do all this, if that is to be checked.
    ///
    /// # Errors
    /// 42501.
    pub(super) fn check(&self, binder: &Binder<'_>) -> Result<(), SqlError> {
        if !binder.checked {
            return Ok(());
        }
        let table = &self.table.table;
        let wanted = self.wanted.get();
        let missing = wanted & !binder.schema.privileges(binder.role, table.owner, &table.grants);
        let columns = self.columns.borrow();
        let on_columns = OF_COLUMNS.iter().zip(&*columns).filter(|(bit, _)| missing & **bit != 0);
        let mut by_columns = 0;
        for (bit, columns) in on_columns {
            let who = (binder.role, table.owner);
            if binder.schema.may_with_columns(who, &table.grants, *bit, columns.iter().copied()) {
                by_columns |= bit;
            }
        }
        if missing & !by_columns == 0 { Ok(()) } else { Err(denied("table", &table.name)) }
    }
}

impl Binder<'_> {
    /// Notes that the statement uses a table.
    pub(super) fn need(&self, table: &Arc<TableInfo>, wanted: u16) -> Rc<Need> {
        let need = Rc::new(Need { table: Arc::clone(table), wanted: Cell::new(wanted), columns: RefCell::default() });
        self.needs.borrow_mut().push(Rc::clone(&need));
        need
    }

    /// Binds a whole statement, whose role must be allowed to do all that it does.
    ///
    /// # Errors
    /// As `what`; 42501.
    pub(super) fn allowed<T>(&self, what: impl FnOnce() -> Bound<T>) -> Bound<T> {
        let bound = self.attempt(what)?;
        for need in self.needs.take() {
            need.check(self)?;
        }
        Ok(bound)
    }
}
