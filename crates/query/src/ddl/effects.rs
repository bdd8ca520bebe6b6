//! What is done when a transaction with definitions ends.

use std::sync::{Arc, Mutex, PoisonError};

use freshet_engine::Worker;
use freshet_sql::SqlError;

use crate::{
    error::index_error,
    locks::LockManager,
    schema::{Catalog, Entry, Oid, Schema, TableInfo},
    sequence::Sequences,
};

/// What transactions that are under way have made outside of themselves.
#[derive(Debug, Default)]
pub struct Making(Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    rows: Vec<String>,
    indexes: Vec<(String, u16)>,
    states: Vec<u64>,
}

/// What a transaction has touched that is no part of it.
#[derive(Debug, Default)]
pub struct Effects {
    making: Option<Arc<Making>>,
    /// Tables of the engine that were made or replaced.
    rows: Vec<String>,
    /// Indexes of the engine, by their tables' names and their numbers, that were made, or are
    /// needed no more.
    indexes: Vec<(String, u16)>,
    /// Numbers of sequences' states that were made or replaced.
    states: Vec<u64>,
    /// Tables whose definitions were changed, of the session's database.
    changed: Vec<Oid>,
    /// The session's database, and the version of its catalog that the last statement made.
    database: Oid,
    version: u64,
    /// Databases that were made or dropped, and the tables in those that were dropped.
    databases: Vec<(Oid, Vec<Oid>)>,
}

impl Making {
    fn with<T>(&self, what: impl FnOnce(&mut Made) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Effects {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.indexes.is_empty()
            && self.states.is_empty()
            && self.changed.is_empty()
            && self.databases.is_empty()
    }

    /// Notes a table of the engine that is about to be made, or is needed no more if the
    /// transaction commits.
    pub(super) fn touch_rows(&mut self, catalog: &Catalog, name: &str) {
        let making = self.making.get_or_insert_with(|| Arc::clone(catalog.making()));
        making.with(|made| made.rows.push(name.to_owned()));
        self.rows.push(name.to_owned());
    }

    /// Notes an index of the engine that was made, or is needed no more if the transaction commits.
    pub(super) fn touch_index(&mut self, catalog: &Catalog, rows: &str, number: u16) {
        let making = self.making.get_or_insert_with(|| Arc::clone(catalog.making()));
        let index = (rows.to_owned(), number);
        making.with(|made| made.indexes.push(index.clone()));
        self.indexes.push(index);
    }

    /// Notes where a sequence stands that is new, or needed no more if the transaction commits.
    pub(super) fn touch_state(&mut self, catalog: &Catalog, state: u64) {
        let making = self.making.get_or_insert_with(|| Arc::clone(catalog.making()));
        making.with(|made| made.states.push(state));
        self.states.push(state);
    }

    /// Notes a table whose definition changes.
    pub(super) fn change(&mut self, table: Oid) {
        if !self.changed.contains(&table) {
            self.changed.push(table);
        }
    }

    /// Notes in which database the transaction changes something.
    pub(super) fn begin(&mut self, database: Oid) {
        self.database = database;
    }

    /// Notes which version of its database's catalog the transaction has made.
    pub(super) fn reach(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// Notes a database that was made, or that is dropped with these tables.
    pub(super) fn touch_database(&mut self, database: Oid, tables: Vec<Oid>) {
        self.databases.push((database, tables));
    }

    /// Does what is to be done now that the transaction has ended, whatever its end, and forgets
    /// it. To be called before the session releases its locks, with its worker, which has no
    /// transaction. Blocks while rows are discarded.
    ///
    /// # Errors
    /// When the catalog cannot be read, or what is needed no more cannot be discarded. That is then
    /// done by the next [`sweep`].
    pub fn settle(
        &mut self,
        worker: &Worker,
        catalog: &Catalog,
        sequences: &Sequences,
        locks: &LockManager,
    ) -> Result<(), SqlError> {
        if self.is_empty() {
            return Ok(());
        }
        let effects = std::mem::take(self);
        let committed = effects.committed(worker, catalog);
        let own = committed.as_ref().ok().and_then(|all| all.iter().find(|it| it.database == effects.database));
        locks.note_change(effects.database, &effects.changed, own.map_or(effects.version, |it| it.version.number));
        if let Ok(all) = &committed {
            for (database, tables) in &effects.databases {
                if all.iter().all(|it| it.database != *database) {
                    // Nobody plans to write to them any more.
                    locks.note_change(*database, tables, u64::MAX);
                    catalog.forget(*database);
                }
            }
        }
        // From here on the committed catalog says what is needed.
        let result = committed.and_then(|committed| effects.discard(&committed, worker, catalog, sequences));
        effects.forget();
        result
    }

    /// What was committed of the databases that it is about, as far as they are still there.
    fn committed(&self, worker: &Worker, catalog: &Catalog) -> Result<Vec<Arc<Schema>>, SqlError> {
        let transaction = worker.begin_read_only();
        let all = self.databases.iter().map(|(database, _)| *database).chain([self.database]);
        all.filter_map(|database| catalog.find(&transaction, database).transpose()).collect()
    }

    fn discard(
        &self,
        committed: &[Arc<Schema>],
        worker: &Worker,
        catalog: &Catalog,
        sequences: &Sequences,
    ) -> Result<(), SqlError> {
        let named: Vec<&str> = engine_tables(committed).collect();
        // The locks that are still held keep others from giving these names to other tables.
        let known = |name: &str| catalog.database().table(name);
        for table in self.rows.iter().filter(|name| !named.contains(&name.as_str())).filter_map(|name| known(name)) {
            catalog.discard(worker, &table)?;
        }
        for (rows, number) in &self.indexes {
            // Those of tables that nobody names went with them.
            if let Some(table) = known(rows)
                && named.contains(&rows.as_str())
                && !names_index(committed, rows, *number)
            {
                catalog.discard_index(&table, *number)?;
            }
        }
        let kept: Vec<u64> = states(committed).collect();
        let gone: Vec<u64> = self.states.iter().copied().filter(|state| !kept.contains(state)).collect();
        sequences.forget(&gone)
    }

    fn forget(&self) {
        let Some(making) = &self.making else { return };
        making.with(|made| {
            // Another transaction may have touched the same.
            for name in &self.rows {
                if let Some(at) = made.rows.iter().position(|known| known == name) {
                    made.rows.swap_remove(at);
                }
            }
            for index in &self.indexes {
                if let Some(at) = made.indexes.iter().position(|known| known == index) {
                    made.indexes.swap_remove(at);
                }
            }
            for state in &self.states {
                if let Some(at) = made.states.iter().position(|known| known == state) {
                    made.states.swap_remove(at);
                }
            }
        });
    }
}

impl Drop for Effects {
    fn drop(&mut self) {
        self.forget();
    }
}

fn entries(all: &[Arc<Schema>]) -> impl Iterator<Item = &Entry> {
    all.iter().flat_map(|schema| schema.entries())
}

fn engine_tables(all: &[Arc<Schema>]) -> impl Iterator<Item = &str> {
    entries(all).filter_map(|entry| match entry {
        Entry::Table(info) => Some(info.table.rows.as_str()),
        _ => None,
    })
}

fn names_index(all: &[Arc<Schema>], rows: &str, number: u16) -> bool {
    entries(all).any(|entry| match entry {
        Entry::Table(info) => info.table.rows == rows && info.table.indexes.iter().any(|index| index.number == number),
        _ => false,
    })
}

fn states(all: &[Arc<Schema>]) -> impl Iterator<Item = u64> {
    entries(all).filter_map(|entry| match entry {
        Entry::Sequence(sequence) => Some(sequence.state),
        _ => None,
    })
}

/// Discards what a crash, or a primary that is no more, has left: tables and indexes of the engine
/// and states of sequences that no committed catalog names, nor any transaction that is under way.
/// For when a node becomes primary; harmless at any other time.
///
/// # Errors
/// When the catalog cannot be read, something cannot be discarded, or all workers are taken.
pub fn sweep(catalog: &Catalog, sequences: &Sequences) -> Result<(), SqlError> {
    let unfinished = catalog.database().drop_unfinished_indexes();
    unfinished.map_err(|cause| index_error("cannot drop an index", cause))?;
    // In this order: what is made later is not looked at, and what is under way is either still
    // noted then, or has committed and is named by what is read last. Names are given again, to
    // tables that are made later: so those that were seen are dropped, and not what has their name
    // by then.
    let (tables, numbers) = (catalog.made_tables(), sequences.numbers()?);
    let before = catalog.all(&catalog.worker()?.begin_read_only())?;
    let indexes: Vec<(&Arc<TableInfo>, u16)> = entries(&before)
        .filter_map(|entry| match entry {
            Entry::Table(info) => Some(info),
            _ => None,
        })
        .flat_map(|info| catalog.made_indexes(&info.rows).into_iter().map(move |number| (info, number)))
        .collect();
    let made = |made: &mut Made| (made.rows.clone(), made.indexes.clone(), made.states.clone());
    let (making_rows, making_indexes, making_states) = catalog.making().with(made);
    let worker = catalog.worker()?;
    let committed = catalog.all(&worker.begin_read_only())?;
    let named: Vec<&str> = engine_tables(&committed).collect();
    for table in &tables {
        if !named.contains(&table.name()) && !making_rows.iter().any(|making| making == table.name()) {
            catalog.discard(&worker, table)?;
        }
    }
    for (info, number) in indexes {
        let index = (info.table.rows.clone(), number);
        if named.contains(&index.0.as_str())
            && !making_indexes.contains(&index)
            && !names_index(&committed, &index.0, number)
        {
            catalog.discard_index(&info.rows, number)?;
        }
    }
    let kept: Vec<u64> = states(&committed).chain(making_states).collect();
    let gone: Vec<u64> = numbers.into_iter().filter(|state| !kept.contains(state)).collect();
    sequences.forget(&gone)
}
