//! The catalog's own table, and the versions of the catalog that sessions share.
//!
//! | row | key | holds |
//! |---|---|---|
//! | the version | 0, 0 | which version this is, the next object id |
//! | an object | 1, its id | the object |
//!
//! Whoever changes the catalog writes the version's row, too: so changes come one after another, and a transaction finds out by one read whether
//! what it knows is what its snapshot has. A version has a random part, so that what was rolled back is never taken
//! for what came in its place.

use std::{
    collections::VecDeque,
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use freshet_engine::{
    Database, Direction, IndexDefinition, IndexError, KeyPart, TableDefinition, Transaction, Worker, WriteError,
};
use freshet_sql::{SqlError, SqlState};
use serde::{Deserialize, Serialize};

use super::{
    Database as DatabaseObject, Entry, FIRST_ROLE, FIRST_USER_OID, Grant, Namespace, Object, Oid, PUBLIC, Role, Schema,
    TableInfo, privilege,
};
use crate::{
    ddl::effects::Making,
    error::{read_error, write_error},
};

/// The engine's table.
const TABLE: &str = "sql.catalog";
const VERSION: u8 = 0;
const OBJECT: u8 = 1;
/// How many versions are kept for sessions with older snapshots.
const KEPT: usize = 8;

/// Which version of the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaVersion {
    /// One more with each change.
    pub number: u64,
    nonce: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct VersionRow {
    version: SchemaVersion,
    next_oid: Oid,
    format: u16,
}

/// How objects are written: another number whenever that changes.
const FORMAT: u16 = 3;

/// The catalog of a database, on any node.
#[derive(Debug)]
pub struct Catalog {
    database: Database,
    table: OnceLock<Arc<freshet_engine::Table>>,
    /// The newest last.
    known: Mutex<VecDeque<Arc<Schema>>>,
    making: Arc<Making>,
}

fn definition() -> TableDefinition {
    let key = [KeyPart::unsigned(0, 1), KeyPart::unsigned(1, 4)];
    TableDefinition::new(TABLE, vec![IndexDefinition::new("sql.catalog_key", true, &key)])
}

fn key(kind: u8, oid: Oid) -> [u8; 5] {
    let [a, b, c, d] = oid.to_be_bytes();
    [kind, a, b, c, d]
}

fn row(kind: u8, oid: Oid, value: &impl Serialize) -> Result<Vec<u8>, SqlError> {
    let mut row = vec![kind];
    row.extend(oid.to_le_bytes());
    let encoded = postcard::to_extend(value, row);
    encoded.map_err(|cause| SqlError::internal(format!("a catalog row cannot be encoded: {cause}")))
}

fn value<'r, T: Deserialize<'r>>(row: &'r [u8]) -> Result<T, SqlError> {
    let damaged =
        |what: String| SqlError::new(SqlState::DATA_CORRUPTED, format!("a row of the catalog is damaged: {what}"));
    let payload = row.get(5..).ok_or_else(|| damaged(format!("it has {} bytes", row.len())))?;
    postcard::from_bytes(payload).map_err(|cause| damaged(cause.to_string()))
}

impl Catalog {
    /// The catalog of a database.
    pub fn new(database: Database) -> Self {
        Self { database, table: OnceLock::new(), known: Mutex::default(), making: Arc::default() }
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    fn table(&self) -> Option<&Arc<freshet_engine::Table>> {
        if let Some(table) = self.table.get() {
            return Some(table);
        }
        let table = self.database.table(TABLE)?;
        Some(self.table.get_or_init(|| table))
    }

    /// Makes the catalog, on a primary that has none yet. Does not wait until that is durable: nobody hears of it before a commit of his own,
    /// which comes later.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn make(&self, first_role: &str) -> Result<(), SqlError> {
        if self.table().is_none() {
            let made = self.database.define_table(&definition());
            made.map(drop)
                .map_err(|cause| SqlError::new(SqlState::SYSTEM_ERROR, format!("cannot make the catalog: {cause}")))?;
        }
        let table = self.table().ok_or_else(|| SqlError::internal("the catalog was made and is not there"))?;
        let worker =
            self.database.worker().map_err(|cause| SqlError::new(SqlState::TOO_MANY_CONNECTIONS, cause.to_string()))?;
        let transaction = worker.begin(freshet_engine::Isolation::Serializable);
        if self.version(&transaction)?.is_some() {
            return Ok(());
        }
        let version = VersionRow {
            version: SchemaVersion { number: 1, nonce: nonce()? },
            next_oid: FIRST_USER_OID,
            format: FORMAT,
        };
        transaction.insert(table, &row(VERSION, 0, &version)?).map_err(write_error)?;
        let role = Role {
            oid: FIRST_ROLE,
            name: first_role.to_owned(),
            superuser: true,
            login: true,
            create_role: true,
            create_database: true,
            verifier: None,
            inherit: true,
            member_of: Vec::new(),
            connection_limit: None,
            valid_until: None,
        };
        let database = DatabaseObject { secret: secret()?, settings: Vec::new() };
        let usage = Grant { role: 0, column: None, privileges: privilege::USAGE, grantable: 0, grantor: FIRST_ROLE };
        let public = Namespace { oid: PUBLIC, name: "public".to_owned(), owner: FIRST_ROLE, grants: vec![usage] };
        for object in [Object::Role(role), Object::Namespace(public), Object::Database(database)] {
            transaction.insert(table, &row(OBJECT, object.oid(), &object)?).map_err(write_error)?;
        }
        let failed =
            |cause: String| SqlError::new(SqlState::SYSTEM_ERROR, format!("cannot write the catalog: {cause}"));
        transaction.commit().map(drop).map_err(|cause| failed(cause.to_string()))
    }

    /// Whether `schema` is what the transaction's snapshot has.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn is_current(&self, transaction: &Transaction<'_>, schema: &Schema) -> Result<bool, SqlError> {
        Ok(self.version(transaction)?.map(|it| it.version).unwrap_or_default() == schema.version)
    }

    fn version(&self, transaction: &Transaction<'_>) -> Result<Option<VersionRow>, SqlError> {
        let Some(table) = self.table() else { return Ok(None) };
        let found = transaction.get(table, 0, &key(VERSION, 0)).map_err(read_error)?;
        let read = |row: &[u8]| {
            let version = value(row).ok().filter(|version: &VersionRow| version.format == FORMAT);
            version.ok_or_else(|| {
                let message = "the catalog was written by a version of Freshet that keeps it otherwise";
                let hint = "Serve the data directory with that version, and copy the data from there.";
                SqlError::new(SqlState::DATA_CORRUPTED, message).with_hint(hint)
            })
        };
        found.map(|record| read(record.row)).transpose()
    }

    /// What the transaction's snapshot has.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, transaction: &Transaction<'_>) -> Result<Arc<Schema>, SqlError> {
        let Some(version) = self.version(transaction)? else { return Ok(Arc::default()) };
        let known = |it: &VecDeque<Arc<Schema>>| it.iter().rev().find(|it| it.version == version.version).cloned();
        if let Some(schema) = known(&self.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(schema);
        }
        let Some(table) = self.table() else { return Ok(Arc::default()) };
        let mut schema = Schema { version: version.version, ..Schema::default() };
        let (mut objects, mut failure) = (Vec::new(), None);
        let (from, to) = (key(OBJECT, 0), key(OBJECT + 1, 0));
        let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let visit = |_: &[u8], record: freshet_engine::Record<'_>| match value::<Object>(record.row) {
            Ok(object) => {
                objects.push(object);
                ControlFlow::Continue(())
            }
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        };
        transaction.scan(table, 0, range, Direction::Forward, visit).map_err(read_error)?;
        if let Some(error) = failure {
            return Err(error);
        }
        for object in objects {
            schema.enter(self.entry(transaction, object)?);
        }
        let schema = Arc::new(schema);
        self.remember(&schema);
        Ok(schema)
    }

    fn entry(&self, transaction: &Transaction<'_>, object: Object) -> Result<Entry, SqlError> {
        Ok(match object {
            Object::Namespace(it) => Entry::Namespace(Arc::new(it)),
            Object::Role(it) => Entry::Role(Arc::new(it)),
            Object::View(it) => Entry::View(Arc::new(it)),
            Object::Sequence(it) => Entry::Sequence(Arc::new(it)),
            Object::Comment(it) => Entry::Comment(Arc::new(it)),
            Object::Database(it) => Entry::Database(Arc::new(it)),
            Object::Table(table) => {
                let missing =
                    || SqlError::internal(format!("the engine has no table {:?} for {:?}", table.rows, table.name));
                // As the transaction sees it; one that it has just had made is newer than its snapshot.
                let seen = transaction.table(&table.rows).or_else(|| self.database.table(&table.rows));
                let rows = seen.ok_or_else(missing)?;
                Entry::Table(Arc::new(TableInfo::new(table, rows)?))
            }
        })
    }

    /// Begins to change the catalog in a transaction. Others who want to wait for this one.
    ///
    /// # Errors
    /// [`ChangeError::Held`] when somebody else is at it, or was since the snapshot.
    pub fn change<'t, 'w>(&'t self, transaction: &'t Transaction<'w>) -> Result<Change<'t, 'w>, ChangeError> {
        let missing = || SqlError::internal("there is no catalog");
        let table = self.table().ok_or_else(missing)?;
        let schema = self.read(transaction)?;
        let found = transaction.get(table, 0, &key(VERSION, 0)).map_err(read_error)?.ok_or_else(missing)?;
        let mut version: VersionRow = value(found.row)?;
        if version.version != schema.version {
            return Err(SqlError::internal("the catalog is not what its version says").into());
        }
        version.version.number += 1;
        version.version.nonce = nonce()?;
        let change = Change { catalog: self, transaction, table, schema: (*schema).clone(), version };
        match change.note_version() {
            Ok(()) => Ok(change),
            Err(WriteError::Conflict) => Err(ChangeError::Held),
            Err(other) => Err(write_error(other).into()),
        }
    }

    /// Keeps a version for those who will ask for it.
    fn remember(&self, schema: &Arc<Schema>) {
        let mut kept = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(Arc::clone(schema));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }

    /// The names of the engine's tables that were made for users' tables.
    pub fn made_tables(&self) -> Vec<String> {
        let core = self.database.core();
        let tables = core.catalog.tables_at(core.snapshots.current());
        let names = tables.iter().map(|table| table.name().to_owned());
        names
            .filter(|name| {
                name.strip_prefix("sql.").is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit()))
            })
            .collect()
    }

    /// Drops a table of the engine that nobody needs any more, by a worker without a transaction. Who began before may read it until
    /// he ends. Does not wait until that is committed: what is left of it after a crash, the next sweep finds.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn discard(&self, worker: &Worker, name: &str) -> Result<(), SqlError> {
        let Some(table) = self.database.table(name) else { return Ok(()) };
        let dropped =
            worker.execute(freshet_engine::Isolation::Snapshot, |transaction| Ok(transaction.drop_table(&table)?));
        match dropped {
            Ok(((), _ticket)) => Ok(()),
            // Somebody else was faster.
            Err(_) if table.dropped_at().is_some() => Ok(()),
            Err(cause) => Err(SqlError::new(SqlState::SYSTEM_ERROR, cause.to_string())),
        }
    }

    /// Drops an index of a table of the engine that nobody needs any more. Does not wait until that is committed.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn discard_index(&self, name: &str, number: u16) -> Result<(), SqlError> {
        let Some(table) = self.database.table(name) else { return Ok(()) };
        match self.database.begin_drop_index(&table, usize::from(number)) {
            // Somebody else was faster, or the table is gone.
            Ok(_) | Err(IndexError::NoIndex { .. }) => Ok(()),
            Err(_) if table.dropped_at().is_some() => Ok(()),
            Err(cause) => Err(SqlError::new(SqlState::SYSTEM_ERROR, cause.to_string())),
        }
    }

    /// The numbers of the indexes that the engine keeps for a table.
    pub fn made_indexes(&self, table: &freshet_engine::Table) -> Vec<u16> {
        let Ok(participant) = self.database.core().participants.join() else { return Vec::new() };
        let guard = participant.pin_without_snapshot();
        let kept = table.content(&guard).into_iter().flat_map(|content| content.indexes(&guard).kept());
        kept.filter(|(_, index)| !index.is_building()).map(|(number, _)| number as u16).collect()
    }

    /// What has been committed.
    ///
    /// # Errors
    /// When it cannot be read, or all workers are taken.
    pub fn committed(&self) -> Result<Arc<Schema>, SqlError> {
        self.read(&self.worker()?.begin_read_only())
    }

    /// A worker of one's own.
    ///
    /// # Errors
    /// 53300 when all are taken.
    pub fn worker(&self) -> Result<Worker, SqlError> {
        let worker = self.database.worker();
        worker.map_err(|cause| SqlError::new(SqlState::TOO_MANY_CONNECTIONS, cause.to_string()))
    }

    /// What transactions that are under way have made outside of themselves.
    pub(crate) fn making(&self) -> &Arc<Making> {
        &self.making
    }
}

/// Why the catalog cannot be changed now.
#[derive(Debug)]
pub enum ChangeError {
    /// Somebody else is at it, or was since the snapshot.
    Held,
    /// Anything else.
    Other(SqlError),
}

impl From<SqlError> for ChangeError {
    fn from(error: SqlError) -> Self {
        Self::Other(error)
    }
}

fn no_random(cause: getrandom::Error) -> SqlError {
    SqlError::new(SqlState::SYSTEM_ERROR, format!("no random number: {cause}"))
}

fn nonce() -> Result<u64, SqlError> {
    getrandom::u64().map_err(no_random)
}

fn secret() -> Result<[u8; 32], SqlError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(no_random)?;
    Ok(secret)
}

/// A change of the catalog, within a transaction. What was written is part of that.
#[derive(Debug)]
pub struct Change<'t, 'w> {
    catalog: &'t Catalog,
    transaction: &'t Transaction<'w>,
    table: &'t Arc<freshet_engine::Table>,
    /// What there is, with the change as far as it has come.
    pub schema: Schema,
    version: VersionRow,
}

impl Change<'_, '_> {
    fn note_version(&self) -> Result<(), WriteError> {
        let found = self.transaction.get(self.table, 0, &key(VERSION, 0))?.ok_or(WriteError::NotFound)?;
        let row = row(VERSION, 0, &self.version).map_err(|_| WriteError::NotFound)?;
        self.transaction.update(self.table, found.rid, &row).map(drop)
    }

    /// An id that no other object has.
    ///
    /// # Errors
    /// When it cannot be noted.
    pub fn take_oid(&mut self) -> Result<Oid, SqlError> {
        let oid = self.version.next_oid;
        self.version.next_oid = oid.checked_add(1).ok_or_else(|| SqlError::internal("no object id is left"))?;
        self.note_version().map_err(write_error)?;
        Ok(oid)
    }

    /// Adds an object, or puts it in the place of the one with its id.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&mut self, object: Object) -> Result<(), SqlError> {
        let oid = object.oid();
        let row = row(OBJECT, oid, &object)?;
        let found =
            self.transaction.get(self.table, 0, &key(OBJECT, oid)).map_err(read_error)?.map(|record| record.rid);
        match found {
            Some(rid) => self.transaction.update(self.table, rid, &row).map(drop),
            None => self.transaction.insert(self.table, &row).map(drop),
        }
        .map_err(write_error)?;
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
        let found = self.transaction.get(self.table, 0, &key(OBJECT, oid)).map_err(read_error)?;
        let Some(rid) = found.map(|record| record.rid) else { return Ok(()) };
        self.transaction.delete(self.table, rid).map_err(write_error)?;
        self.schema.leave(oid);
        Ok(())
    }

    /// The end of the change: what there is for the transaction from now on.
    pub fn finish(mut self) -> Arc<Schema> {
        self.schema.version = self.version.version;
        let schema = Arc::new(self.schema);
        self.catalog.remember(&schema);
        schema
    }
}
