//! The catalog's own table, and the versions of the catalog that sessions share.
//!
//! | row | key | holds |
//! |---|---|---|
//! | a version | 0, a database, 0 | which version of this database this is, the object ids that it may take |
//! | an object | 1, its database, its id | the object |
//! | free ids | 2, 0, 0 | from where on object ids are free |
//!
//! What databases share, roles and the list of databases, is in the place of database 0, which has
//! a version, too. Who changes what is in a database writes that database's version, and who
//! changes what they share writes the versions of all of them: so changes of a database come one
//! after another, those of two databases do not meet, and a transaction finds out by one read
//! whether what it knows of its database is what its snapshot has. A version has a random part, so
//! that what was rolled back is never taken for what came in its place. Object ids of users'
//! objects are unique in all databases: a database takes them from a range of its own.

use std::{
    collections::{HashMap, VecDeque},
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use freshet_engine::{
    Database, Direction, IndexDefinition, IndexError, KeyPart, Table, TableDefinition, Transaction, Worker,
};
use freshet_sql::{SqlError, SqlState};
use serde::{Deserialize, Serialize};

use super::{
    COMMON, Comment, Common, DATABASE_OWNER, Database as DatabaseObject, Entry, FIRST_DATABASE, FIRST_ROLE,
    FIRST_USER_OID, Grant, Namespace, Object, Oid, POSTGRES, PUBLIC, Role, Schema, TEMPLATE0, TEMPLATE1, TableInfo,
    extension, privilege,
};
use crate::{
    ddl::effects::Making,
    error::{commit_error, index_error, procedure_error, read_error, write_error},
};

/// The engine's table.
const TABLE: &str = "sql.catalog";
const VERSION: u8 = 0;
const OBJECT: u8 = 1;
const IDS: u8 = 2;
/// How many versions of each database are kept for sessions with older snapshots.
const KEPT: usize = 8;
/// How many databases have versions kept. The others are read again.
const KEPT_DATABASES: usize = 64;

/// Which version of a database's catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaVersion {
    /// One more with each change.
    pub number: u64,
    nonce: u64,
}

/// A row of a version.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct VersionRow {
    pub(super) version: SchemaVersion,
    /// The next object id to take, and where the range of those ends that the database may take.
    pub(super) next_oid: Oid,
    pub(super) last_oid: Oid,
    format: u16,
}

impl VersionRow {
    /// That of a new database.
    pub(super) fn first() -> Result<Self, SqlError> {
        Ok(Self { version: SchemaVersion { number: 1, nonce: nonce()? }, next_oid: 0, last_oid: 0, format: FORMAT })
    }

    /// Another version, the next one.
    pub(super) fn advance(&mut self) -> Result<(), SqlError> {
        self.version = SchemaVersion { number: self.version.number + 1, nonce: nonce()? };
        Ok(())
    }
}

/// How objects are written: another number whenever that changes.
const FORMAT: u16 = 6;

/// The catalog of a node's databases, on any node.
#[derive(Debug)]
pub struct Catalog {
    database: Database,
    table: OnceLock<Arc<Table>>,
    /// Of each database; the newest last.
    known: Mutex<HashMap<Oid, VecDeque<Arc<Schema>>>>,
    making: Arc<Making>,
    /// With which the newest version is looked at.
    looks: Mutex<Option<Worker>>,
}

fn definition() -> TableDefinition {
    let key = [KeyPart::unsigned(0, 1), KeyPart::unsigned(1, 4), KeyPart::unsigned(5, 4)];
    TableDefinition::new(TABLE, vec![IndexDefinition::new("sql.catalog_key", true, &key)])
}

/// Where a row is: its kind, its database and its object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(u8, Oid, Oid);

impl Place {
    /// The version of a database.
    pub(super) fn version(database: Oid) -> Self {
        Self(VERSION, database, 0)
    }

    /// An object.
    pub(super) fn object(database: Oid, oid: Oid) -> Self {
        Self(OBJECT, database, oid)
    }

    /// From where on object ids are free.
    pub(super) const FREE_IDS: Self = Self(IDS, COMMON, 0);

    pub(super) fn key(self) -> [u8; 9] {
        let mut key = [self.0; 9];
        key[1..5].copy_from_slice(&self.1.to_be_bytes());
        key[5..].copy_from_slice(&self.2.to_be_bytes());
        key
    }

    pub(super) fn row(self, value: &impl Serialize) -> Result<Vec<u8>, SqlError> {
        let mut row = vec![self.0];
        row.extend(self.1.to_le_bytes());
        row.extend(self.2.to_le_bytes());
        let encoded = postcard::to_extend(value, row);
        encoded.map_err(|cause| SqlError::internal(format!("a catalog row cannot be encoded: {cause}")))
    }
}

pub(super) fn value<'r, T: Deserialize<'r>>(row: &'r [u8]) -> Result<T, SqlError> {
    let damaged =
        |what: String| SqlError::new(SqlState::DATA_CORRUPTED, format!("a row of the catalog is damaged: {what}"));
    let payload = row.get(9..).ok_or_else(|| damaged(format!("it has {} bytes", row.len())))?;
    postcard::from_bytes(payload).map_err(|cause| damaged(cause.to_string()))
}

impl Catalog {
    /// The catalog of a node's databases, which are one for the engine.
    pub fn new(database: Database) -> Self {
        Self {
            database,
            table: OnceLock::new(),
            known: Mutex::default(),
            making: Arc::default(),
            looks: Mutex::default(),
        }
    }

    /// The engine's database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    pub(super) fn table(&self) -> Option<&Arc<Table>> {
        if let Some(table) = self.table.get() {
            return Some(table);
        }
        let table = self.database.table(TABLE)?;
        table.give_reserve();
        Some(self.table.get_or_init(|| table))
    }

    /// The table, as the transaction sees it.
    fn seen_by(&self, transaction: &Transaction<'_>) -> Option<&Arc<Table>> {
        if let Some(table) = self.table.get() {
            return Some(table);
        }
        let table = transaction.table(TABLE)?;
        table.give_reserve();
        Some(self.table.get_or_init(|| table))
    }

    /// Makes the catalog, on a primary that has none yet. Does not wait until that is durable:
    /// nobody hears of it before a commit of his own, which comes later.
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
        if self.version(&transaction, COMMON)?.is_some() {
            return Ok(());
        }
        let write = |place: Place, row: Vec<u8>| -> Result<(), SqlError> {
            transaction.insert(table, &row).map(drop).map_err(|cause| {
                tracing::debug!(?place, "the first rows of the catalog cannot be written");
                write_error(cause)
            })
        };
        let put = |database: Oid, object: &Object| {
            let place = Place::object(database, object.oid());
            write(place, place.row(object)?)
        };
        write(Place::FREE_IDS, Place::FREE_IDS.row(&FIRST_USER_OID)?)?;
        put(COMMON, &Object::Common(Common { secret: secret()?, settings: Vec::new() }))?;
        for role in first_roles(first_role) {
            put(COMMON, &Object::Role(role))?;
        }
        write(Place::version(COMMON), Place::version(COMMON).row(&VersionRow::first()?)?)?;
        for database in first_databases(first_role) {
            let place = Place::version(database.oid);
            write(place, place.row(&VersionRow::first()?)?)?;
            put(database.oid, &Object::Namespace(public()))?;
            put(database.oid, &Object::Comment(public_comment()))?;
            extension::first().try_for_each(|object| put(database.oid, &object))?;
            put(COMMON, &Object::Database(database))?;
        }
        transaction.commit().map(drop).map_err(commit_error)
    }

    /// Whether `schema` is what the transaction's snapshot has.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn is_current(&self, transaction: &Transaction<'_>, schema: &Schema) -> Result<bool, SqlError> {
        let version = self.version(transaction, schema.database)?;
        Ok(version.map(|it| it.version).unwrap_or_default() == schema.version)
    }

    pub(super) fn version(&self, transaction: &Transaction<'_>, database: Oid) -> Result<Option<VersionRow>, SqlError> {
        let Some(table) = self.seen_by(transaction) else { return Ok(None) };
        let found = transaction.get(table, 0, &Place::version(database).key()).map_err(read_error)?;
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

    /// What databases share, as the transaction's snapshot has it; nothing where there is no
    /// catalog yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn shared(&self, transaction: &Transaction<'_>) -> Result<Arc<Schema>, SqlError> {
        match self.find(transaction, COMMON)? {
            Some(schema) => Ok(schema),
            None => Ok(Arc::default()),
        }
    }

    /// What the transaction's snapshot has of a database.
    ///
    /// # Errors
    /// 57P04 when there is no such database any more, or when it cannot be read.
    pub fn read(&self, transaction: &Transaction<'_>, database: Oid) -> Result<Arc<Schema>, SqlError> {
        self.find(transaction, database)?.ok_or_else(|| {
            let message = "terminating connection due to conflict with recovery";
            let error = SqlError::new(SqlState::DATABASE_DROPPED, message);
            error.with_detail("User was connected to a database that must be dropped.")
        })
    }

    /// The same, or nothing.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn find(&self, transaction: &Transaction<'_>, database: Oid) -> Result<Option<Arc<Schema>>, SqlError> {
        let Some(version) = self.version(transaction, database)? else { return Ok(None) };
        if let Some(kept) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&database)
            && let Some(schema) = kept.iter().rev().find(|it| it.version == version.version)
        {
            return Ok(Some(Arc::clone(schema)));
        }
        let mut schema = Schema { version: version.version, ..Schema::empty(database) };
        self.objects(transaction, COMMON, &mut schema)?;
        if database != COMMON {
            self.objects(transaction, database, &mut schema)?;
        }
        let schema = Arc::new(schema);
        self.remember(&schema);
        Ok(Some(schema))
    }

    /// Enters what the catalog has in the place of a database.
    fn objects(&self, transaction: &Transaction<'_>, database: Oid, schema: &mut Schema) -> Result<(), SqlError> {
        let Some(table) = self.seen_by(transaction) else { return Ok(()) };
        let (mut objects, mut failure) = (Vec::new(), None);
        let (from, to) = (Place::object(database, 0).key(), Place::object(database, Oid::MAX).key());
        let range = (Bound::Included(&from[..]), Bound::Included(&to[..]));
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
        Ok(())
    }

    pub(super) fn entry(&self, transaction: &Transaction<'_>, object: Object) -> Result<Entry, SqlError> {
        Ok(match object {
            Object::Namespace(it) => Entry::Namespace(Arc::new(it)),
            Object::Role(it) => Entry::Role(Arc::new(it)),
            Object::View(it) => Entry::View(Arc::new(it)),
            Object::Sequence(it) => Entry::Sequence(Arc::new(it)),
            Object::Comment(it) => Entry::Comment(Arc::new(it)),
            Object::Database(it) => Entry::Database(Arc::new(it)),
            Object::Common(it) => Entry::Common(Arc::new(it)),
            Object::Extension(it) => Entry::Extension(Arc::new(it)),
            Object::Table(table) => {
                let missing =
                    || SqlError::internal(format!("the engine has no table {:?} for {:?}", table.rows, table.name));
                // As the transaction sees it; one that it has just had made is newer than its
                // snapshot.
                let seen = transaction.table(&table.rows).or_else(|| self.database.table(&table.rows));
                let rows = seen.ok_or_else(missing)?;
                Entry::Table(Arc::new(TableInfo::new(table, rows)?))
            }
        })
    }

    /// Takes this many object ids that no object has, and returns the first. That is no part of any
    /// transaction: databases would wait for one another. The ids of one that is rolled back are
    /// lost.
    ///
    /// # Errors
    /// When none are left, or that cannot be written.
    pub(super) fn take_ids(&self, count: Oid) -> Result<Oid, SqlError> {
        let table = self.table().ok_or_else(|| SqlError::internal("there is no catalog"))?;
        let taken = self.worker()?.execute(freshet_engine::Isolation::Snapshot, |transaction| {
            let (rid, first) = match transaction.get(table, 0, &Place::FREE_IDS.key())? {
                Some(record) => (record.rid, value::<Oid>(record.row)),
                None => return Ok(Err(SqlError::internal("the catalog does not say which ids are free"))),
            };
            let next = first.and_then(|first| {
                let next = first.checked_add(count).ok_or_else(|| SqlError::internal("no object id is left"))?;
                Ok((first, Place::FREE_IDS.row(&next)?))
            });
            match next {
                Ok((first, row)) => transaction.update(table, rid, &row).map(|_| Ok(first)).map_err(Into::into),
                Err(error) => Ok(Err(error)),
            }
        });
        match taken {
            Ok((first, _ticket)) => first,
            Err(cause) => Err(procedure_error("cannot take ids for objects", cause)),
        }
    }

    /// Keeps a version for those who will ask for it.
    pub(super) fn remember(&self, schema: &Arc<Schema>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT_DATABASES && !known.contains_key(&schema.database) {
            // Sessions have what they use.
            known.clear();
        }
        let kept = known.entry(schema.database).or_default();
        kept.push_back(Arc::clone(schema));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }

    /// Forgets the versions of a database that was dropped.
    pub(crate) fn forget(&self, database: Oid) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&database);
    }

    /// The engine's tables that were made for users' tables.
    pub fn made_tables(&self) -> Vec<Arc<Table>> {
        let core = self.database.core();
        let is_made =
            |rest: &str| rest.strip_prefix("sql.").is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit()));
        core.catalog.tables_at(core.snapshots.current()).into_iter().filter(|table| is_made(table.name())).collect()
    }

    /// Drops a table of the engine that is not needed any more, by a worker without a transaction:
    /// this one, not another that has its name since. Transactions that began before may read it
    /// until they end. Does not wait until that is committed: what is left of it after a crash, the
    /// next sweep finds.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn discard(&self, worker: &Worker, table: &Table) -> Result<(), SqlError> {
        if table.dropped_at().is_some() {
            return Ok(());
        }
        let dropped =
            worker.execute(freshet_engine::Isolation::Snapshot, |transaction| Ok(transaction.drop_table(table)?));
        match dropped {
            Ok(((), _ticket)) => Ok(()),
            // Somebody else was faster.
            Err(_) if table.dropped_at().is_some() => Ok(()),
            Err(cause) => Err(procedure_error("cannot drop a table", cause)),
        }
    }

    /// Drops an index of a table of the engine that nobody needs any more. Does not wait until that
    /// is committed.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn discard_index(&self, table: &Table, number: u16) -> Result<(), SqlError> {
        match self.database.drop_index(table, usize::from(number)) {
            // Somebody else was faster, or the table is gone.
            Ok(_) | Err(IndexError::NoIndex { .. }) => Ok(()),
            Err(_) if table.dropped_at().is_some() => Ok(()),
            Err(cause) => Err(index_error("cannot drop an index", cause)),
        }
    }

    /// The numbers of the indexes that the engine keeps for a table.
    pub fn made_indexes(&self, table: &Table) -> Vec<u16> {
        let Ok(participant) = self.database.core().participants.join() else { return Vec::new() };
        let guard = participant.pin_without_snapshot();
        let kept = table.content(&guard).into_iter().flat_map(|content| content.indexes(&guard).kept());
        kept.filter(|(_, index)| !index.is_building()).map(|(number, _)| number as u16).collect()
    }

    /// All databases, as the transaction's snapshot has them.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn all(&self, transaction: &Transaction<'_>) -> Result<Vec<Arc<Schema>>, SqlError> {
        let shared = self.shared(transaction)?;
        let found = shared.databases().into_iter().map(|database| self.find(transaction, database.oid).transpose());
        found.flatten().collect()
    }

    /// What has been committed in a database.
    ///
    /// # Errors
    /// When it cannot be read, or all workers are taken.
    pub fn committed(&self, database: Oid) -> Result<Arc<Schema>, SqlError> {
        self.read(&self.worker()?.begin_read_only(), database)
    }

    /// The newest version that is committed, for those whose own snapshot may be older; nothing
    /// where the database was dropped.
    ///
    /// # Errors
    /// When it cannot be read; 53300 when no worker is free.
    pub fn newest(&self, database: Oid) -> Result<Option<Arc<Schema>>, SqlError> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = match &mut *looks {
            Some(worker) => worker,
            none => none.insert(self.worker()?),
        };
        self.find(&worker.begin_read_only(), database)
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

/// The schema `public` of a new database.
pub(crate) fn public() -> Namespace {
    let usage = Grant { role: 0, column: None, privileges: privilege::USAGE, grantable: 0, grantor: DATABASE_OWNER };
    Namespace { oid: PUBLIC, name: "public".to_owned(), owner: DATABASE_OWNER, grants: vec![usage] }
}

/// The id of what is said of it.
const COMMENT_ON_PUBLIC: Oid = 13_561;

/// What is said of it.
fn public_comment() -> Comment {
    let (column, constraint, shared) = (None, false, false);
    let text = "standard public schema".to_owned();
    Comment { oid: COMMENT_ON_PUBLIC, object: PUBLIC, column, constraint, shared, text }
}

fn first_roles(first_role: &str) -> [Role; 2] {
    let first = Role {
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
    let owner = Role {
        oid: DATABASE_OWNER,
        name: "pg_database_owner".to_owned(),
        superuser: false,
        login: false,
        create_role: false,
        create_database: false,
        ..first.clone()
    };
    [first, owner]
}

/// The databases that are there from the beginning: PostgreSQL's, and one that is named as the
/// first role, since clients ask for that one when they name none.
fn first_databases(first_role: &str) -> Vec<DatabaseObject> {
    let mut all = vec![
        DatabaseObject { is_template: true, ..DatabaseObject::new(TEMPLATE1, "template1", FIRST_ROLE) },
        DatabaseObject {
            is_template: true,
            allow_connections: false,
            ..DatabaseObject::new(TEMPLATE0, "template0", FIRST_ROLE)
        },
        DatabaseObject::new(POSTGRES, "postgres", FIRST_ROLE),
    ];
    if all.iter().all(|known| known.name != first_role) {
        all.push(DatabaseObject::new(FIRST_DATABASE, first_role, FIRST_ROLE));
    }
    // What PostgreSQL says of them: only their owner makes temporary tables in templates.
    for template in all.iter_mut().filter(|it| it.is_template) {
        let connect = Grant { privileges: privilege::CONNECT, ..DatabaseObject::public(FIRST_ROLE) };
        let own = Grant { role: FIRST_ROLE, privileges: privilege::ALL_DATABASE, ..connect.clone() };
        template.grants = vec![connect, own];
    }
    all
}
