//! The table, and its initial records.

use std::{ops::ControlFlow, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{input::fill, mix::Shape};
use crate::{
    batch::{Batch, LoadError},
    engine::{
        Database, Direction, IndexDefinition, KeyPart, ProcedureError, Table, TableDefinition, Ticket, Transaction,
    },
    journal::{self, JournalRow},
    procedure::read_only,
    random::mix,
    row::{Row, layout},
    share::load_shares,
    table::{self, FindTable, NoTable, TableSet, Typed},
};

/// The table's name, as in YCSB.
const NAME: &str = "usertable";

layout! {
    /// What was loaded: one row, written last, so that its presence says that the load is complete.
    PopulationRow = "ycsb_population" {
        /// Always 1: the primary key.
        ID: u8,
        /// How many records.
        RECORDS: u64,
        /// Fields of a record.
        FIELDS: u16,
        /// Bytes of a field.
        FIELD_BYTES: u16,
        /// The seed of the values.
        SEED: u64,
    }
}

/// The initial records, with the keys 0 to `records - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Population {
    /// How many.
    pub records: u64,
    /// What they look like.
    pub shape: Shape,
    /// The seed of their values.
    pub seed: u64,
}

/// Handles on the tables. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tables {
    pub(super) records: Arc<Table>,
    population: Typed<PopulationRow>,
    /// The journal.
    pub journal: Typed<JournalRow>,
}

impl TableSet for Tables {
    fn definitions() -> Vec<TableDefinition> {
        let key = IndexDefinition::new("usertable_key", true, &[KeyPart::bytes(0, Shape::KEY as u16)]);
        vec![
            TableDefinition::new(NAME, vec![key]),
            table::definition::<PopulationRow>(table::part(PopulationRow::ID, PopulationRow::ID), &[]),
            journal::definition(),
        ]
    }

    fn open(database: &dyn FindTable) -> Result<Self, NoTable> {
        Ok(Self {
            records: database.find_table(NAME).ok_or(NoTable(NAME))?,
            population: Typed::open(database)?,
            journal: Typed::open(database)?,
        })
    }
}

impl Tables {
    /// What was loaded.
    ///
    /// # Errors
    /// [`ProcedureError::Aborted`] when loading has not come to its end.
    pub fn population(&self, txn: &Transaction<'_>) -> Result<Population, ProcedureError> {
        let absent = "the load of YCSB is not complete: load it into a fresh database";
        let row = self.population.need(txn, &[1], absent)?.row;
        Ok(Population {
            records: row.get(PopulationRow::RECORDS),
            shape: Shape { fields: row.get(PopulationRow::FIELDS), field_bytes: row.get(PopulationRow::FIELD_BYTES) },
            seed: row.get(PopulationRow::SEED),
        })
    }

    /// The largest key there is: where a run that inserts continues.
    ///
    /// # Errors
    /// That of the scan.
    pub fn largest_key(&self, txn: &Transaction<'_>) -> Result<Option<u64>, ProcedureError> {
        let mut largest = None;
        txn.scan(&self.records, 0, table::ALL, Direction::Backward, |key, _| {
            largest = key.try_into().ok().map(u64::from_be_bytes);
            ControlFlow::Break(())
        })?;
        Ok(largest)
    }
}

/// Writes a whole row.
#[inline]
pub(super) fn fill_row(row: &mut [u8], key: u64, seed: u64) {
    let (start, values) = row.split_at_mut(Shape::KEY);
    start.copy_from_slice(&key.to_be_bytes());
    fill(values, seed);
}

/// Loads the records into an empty table with `threads` workers. `progress` hears from all of them
/// how many rows have come since it was last called.
///
/// Blocks until everything is in; the ticket tells when it is committed.
///
/// # Errors
/// See [`LoadError`]. What was loaded stays then, incomplete.
///
/// # Panics
/// When `threads` is zero.
pub fn load(
    database: &Database,
    tables: &Tables,
    population: &Population,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Option<Ticket>, LoadError> {
    let worker = database.worker()?;
    if read_only(&worker, |txn| tables.largest_key(txn))?.0.is_some() {
        return Err(LoadError::NotEmpty);
    }
    drop(worker);
    load_shares(database, 0..population.records, threads, progress, |batch, key| {
        let mut row = vec![0; population.shape.row_bytes()];
        fill_row(&mut row, key, mix(population.seed ^ key));
        batch.insert_with(|txn| Ok(txn.insert(&tables.records, &row).map(drop)?))
    })?;
    let row = Row::new()
        .with(PopulationRow::ID, 1)
        .with(PopulationRow::RECORDS, population.records)
        .with(PopulationRow::FIELDS, population.shape.fields)
        .with(PopulationRow::FIELD_BYTES, population.shape.field_bytes)
        .with(PopulationRow::SEED, population.seed);
    let worker = database.worker()?;
    let mut batch = Batch::new(&worker, progress);
    batch.insert(&tables.population, &row)?;
    batch.finish()
}
