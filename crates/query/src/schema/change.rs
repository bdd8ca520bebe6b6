//! A change of the catalog, within a transaction.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use freshet_engine::{Direction, Rid, Transaction, WriteError};
use freshet_sql::SqlError;
use serde::Serialize;

use super::{
    COMMON, Catalog, Database, Object, Oid, Schema,
    store::{Place, VersionRow},
};
use crate::error::{read_error, write_error};

/// How many object ids a database takes at a time, and how many it has at least when a change
/// begins.
const RANGE: Oid = 1024;
const RESERVE: Oid = 256;

/// Why the catalog cannot be changed now.
#[derive(Debug)]
pub enum ChangeError {
    /// Another transaction changes it, or has changed it since the snapshot.
    Held,
    /// Anything else.
    Other(SqlError),
}

impl From<SqlError> for ChangeError {
    fn from(error: SqlError) -> Self {
        Self::Other(error)
    }
}

impl ChangeError {
    /// The error for a statement that does not wait.
    fn into_error(self) -> SqlError {
        match self {
            Self::Held => write_error(WriteError::Conflict),
            Self::Other(error) => error,
        }
    }
}

impl From<WriteError> for ChangeError {
    fn from(cause: WriteError) -> Self {
        match cause {
            WriteError::Conflict => Self::Held,
            other => Self::Other(write_error(other)),
        }
    }
}

/// A change of the catalog, within a transaction. What was written is part of that.
#[derive(Debug)]
pub struct Change<'t, 'w> {
    catalog: &'t Catalog,
    transaction: &'t Transaction<'w>,
    table: &'t Arc<freshet_engine::Table>,
    /// What there is in the database, with the change as far as it has come.
    pub schema: Schema,
    version: VersionRow,
    /// Whether what databases share may be changed.
    shared: bool,
}

fn missing() -> SqlError {
    SqlError::internal("there is no catalog")
}

impl Catalog {
    /// Begins to change a database's catalog in a transaction, or, where it is said, also what
    /// databases share. Others who want to wait for this one.
    ///
    /// # Errors
    /// [`ChangeError::Held`] when another transaction changes it, or has since the snapshot.
    pub fn change<'t, 'w>(
        &'t self,
        transaction: &'t Transaction<'w>,
        database: Oid,
        shared: bool,
    ) -> Result<Change<'t, 'w>, ChangeError> {
        let table = self.table().ok_or_else(missing)?;
        let schema = self.read(transaction, database)?;
        let version = self.version(transaction, database)?.ok_or_else(missing)?;
        if version.version != schema.version {
            return Err(SqlError::internal("the catalog is not what its version says").into());
        }
        let mut change = Change { catalog: self, transaction, table, schema: (*schema).clone(), version, shared };
        if shared {
            // Always in this order, so that no two of these wait for one another.
            change.advance(COMMON)?;
            for oid in change.schema.databases().into_iter().map(|it| it.oid).collect::<Vec<_>>() {
                if oid != database {
                    change.advance(oid)?;
                }
            }
        }
        change.version.advance()?;
        change.note_version()?;
        change.reserve()?;
        Ok(change)
    }
}

impl Change<'_, '_> {
    fn find(&self, place: Place) -> Result<Option<Rid>, SqlError> {
        let found = self.transaction.get(self.table, 0, &place.key()).map_err(read_error)?;
        Ok(found.map(|record| record.rid))
    }

    /// Writes a row, in the place of the one that is there.
    fn write(&self, place: Place, value: &impl Serialize) -> Result<(), ChangeError> {
        let row = place.row(value)?;
        match self.find(place)? {
            Some(rid) => self.transaction.update(self.table, rid, &row).map(drop)?,
            None => self.transaction.insert(self.table, &row).map(drop)?,
        }
        Ok(())
    }

    fn note_version(&self) -> Result<(), ChangeError> {
        self.write(Place::version(self.schema.database), &self.version)
    }

    /// Another database has another version, too.
    fn advance(&self, database: Oid) -> Result<(), ChangeError> {
        let mut version = self.catalog.version(self.transaction, database)?.ok_or_else(missing)?;
        version.advance()?;
        self.write(Place::version(database), &version)
    }

    /// Takes object ids for the database, if it has few. It loses what it has left.
    fn reserve(&mut self) -> Result<(), ChangeError> {
        if self.version.last_oid - self.version.next_oid >= RESERVE {
            return Ok(());
        }
        let first = self.catalog.take_ids(RANGE)?;
        (self.version.next_oid, self.version.last_oid) = (first, first + RANGE);
        self.note_version()
    }

    /// An id that no other object has, in any database.
    ///
    /// # Errors
    /// When it cannot be noted.
    pub fn take_oid(&mut self) -> Result<Oid, SqlError> {
        if self.version.next_oid == self.version.last_oid {
            self.reserve().map_err(ChangeError::into_error)?;
        }
        let oid = self.version.next_oid;
        self.version.next_oid += 1;
        self.note_version().map_err(ChangeError::into_error)?;
        Ok(oid)
    }

    /// The database that an object belongs to.
    fn place(&self, object: &Object) -> Result<Place, SqlError> {
        match (object.is_shared(), self.shared) {
            (true, false) => Err(SqlError::internal("a change of what databases share was not begun as one")),
            (true, true) => Ok(Place::object(COMMON, object.oid())),
            (false, _) => Ok(Place::object(self.schema.database, object.oid())),
        }
    }

    /// Adds an object, or puts it in the place of the one with its id.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&mut self, object: Object) -> Result<(), SqlError> {
        let (oid, place) = (object.oid(), self.place(&object)?);
        self.write(place, &object).map_err(ChangeError::into_error)?;
        self.schema.leave(oid);
        self.schema.enter(self.catalog.entry(self.transaction, object)?);
        Ok(())
    }

    /// Removes what is said of an object, index or constraint, and of its columns.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn remove_comments(&mut self, object: Oid) -> Result<(), SqlError> {
        let comments: Vec<Oid> = self.schema.comments_on(object).map(|comment| comment.oid).collect();
        comments.into_iter().try_for_each(|comment| self.remove(comment))
    }

    /// Removes an object.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remove(&mut self, oid: Oid) -> Result<(), SqlError> {
        for database in [self.schema.database, COMMON] {
            if let Some(rid) = self.find(Place::object(database, oid))? {
                self.transaction.delete(self.table, rid).map_err(write_error)?;
                self.schema.leave(oid);
                break;
            }
        }
        Ok(())
    }

    /// What another database has, as the transaction sees it.
    ///
    /// # Errors
    /// When none exists, or it cannot be read.
    pub fn other(&self, database: Oid) -> Result<Arc<Schema>, SqlError> {
        self.catalog.read(self.transaction, database)
    }

    /// Makes a database with these objects in it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn make_database(&mut self, database: Database, objects: &[Object]) -> Result<(), SqlError> {
        let oid = database.oid;
        self.write(Place::version(oid), &VersionRow::first()?).map_err(ChangeError::into_error)?;
        for object in objects {
            self.write(Place::object(oid, object.oid()), object).map_err(ChangeError::into_error)?;
        }
        self.put(Object::Database(database))
    }

    /// Removes another database, and all that is in it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remove_database(&mut self, database: Oid) -> Result<(), SqlError> {
        let (from, to) = (Place::object(database, 0).key(), Place::object(database, Oid::MAX).key());
        let range = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        let mut found = Vec::new();
        let visit = |_: &[u8], record: freshet_engine::Record<'_>| {
            found.push(record.rid);
            ControlFlow::Continue(())
        };
        self.transaction.scan(self.table, 0, range, Direction::Forward, visit).map_err(read_error)?;
        found.extend(self.find(Place::version(database))?);
        for rid in found {
            self.transaction.delete(self.table, rid).map_err(write_error)?;
        }
        self.remove_comments(database)?;
        self.remove(database)
    }

    /// The end of the change: what there is for the transaction from now on.
    pub fn finish(mut self) -> Arc<Schema> {
        self.schema.version = self.version.version;
        let schema = Arc::new(self.schema);
        self.catalog.remember(&schema);
        schema
    }
}
