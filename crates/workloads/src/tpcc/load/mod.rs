//! The initial population (clause 4.3.3).
//!
//! It follows from the [`Population`] alone: every table of every warehouse has
//! its own stream of random numbers, so it does not matter how many workers
//! load in which order. The row of `tpcc_population` comes last; without it, the
//! load was interrupted.

mod people;
mod things;

use std::sync::atomic::{AtomicU32, Ordering};

use super::{population::Population, rows::PopulationRow, tables::Tables};
pub use crate::batch::LoadError;
use crate::{
    batch::Batch,
    engine::{Database, Ticket, Worker},
    procedure::read_only,
    random::Random,
    row::Row,
};

/// Whose stream of random numbers it is.
#[derive(Clone, Copy)]
enum Part {
    Items,
    Warehouse,
    Stock,
    Customers,
    Orders,
}

struct Loader<'a> {
    tables: &'a Tables,
    population: Population,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Loader<'_> {
    /// The stream of one part of a warehouse; `position` tells its districts apart.
    fn random(&self, part: Part, warehouse: u16, position: u8) -> Random {
        Random::stream(self.population.seed, (part as u64) << 32 | u64::from(warehouse) << 8 | u64::from(position))
    }

    fn warehouse(&self, worker: &Worker, warehouse: u16) -> Result<(), LoadError> {
        let mut batch = Batch::new(worker, self.progress);
        self.warehouse_and_districts(&mut batch, warehouse)?;
        self.stock(&mut batch, warehouse)?;
        self.customers(&mut batch, warehouse)?;
        self.orders(&mut batch, warehouse)?;
        batch.finish()?;
        Ok(())
    }

    /// Says that the population is complete.
    fn finish(&self, worker: &Worker) -> Result<Option<Ticket>, LoadError> {
        let Population { scale, seed, loaded_at } = self.population;
        let row = Row::new()
            .with(PopulationRow::ID, PopulationRow::ONLY)
            .with(PopulationRow::WAREHOUSES, scale.warehouses)
            .with(PopulationRow::ITEMS, scale.items)
            .with(PopulationRow::CUSTOMERS, scale.customers)
            .with(PopulationRow::UNDELIVERED, scale.undelivered)
            .with(PopulationRow::SEED, seed)
            .with(PopulationRow::LOADED_AT, loaded_at);
        let mut batch = Batch::new(worker, self.progress);
        batch.insert(&self.tables.population, &row)?;
        batch.finish()
    }
}

/// Rows that [`load`] will report to its `progress`, order lines counted by their mean number.
pub fn expected_rows(population: &Population) -> u64 {
    let scale = population.scale;
    1 + u64::from(scale.items) + u64::from(scale.warehouses) * scale.rows_per_warehouse()
}

/// Loads the population into empty tables with `threads` workers; each takes one warehouse after
/// the other. `progress` hears from all of them how many rows have come since it was last called.
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
    assert!(threads > 0, "somebody has to load");
    population.scale.check()?;
    let loader = Loader { tables, population: *population, progress };
    let first = database.worker()?;
    check_empty(&first, tables)?;
    loader.items(&first)?;
    drop(first);

    let next = AtomicU32::new(1);
    let load_warehouses = || -> Result<(), LoadError> {
        let worker = database.worker()?;
        loop {
            // Relaxed: the counter hands out numbers and orders nothing else.
            match u16::try_from(next.fetch_add(1, Ordering::Relaxed)) {
                Ok(number) if number <= population.scale.warehouses => loader.warehouse(&worker, number)?,
                _ => return Ok(()),
            }
        }
    };
    std::thread::scope(|scope| -> Result<(), LoadError> {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(load_warehouses)).collect();
        let mut result = load_warehouses();
        for other in others {
            let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(other);
        }
        result
    })?;
    loader.finish(&database.worker()?)
}

fn check_empty(worker: &Worker, tables: &Tables) -> Result<(), LoadError> {
    let (found, _) = read_only(worker, |txn| {
        let mut found = false;
        tables.item.scan(txn, 0, crate::table::ALL, crate::engine::Direction::Forward, |_| {
            found = true;
            std::ops::ControlFlow::Break(())
        })?;
        Ok(found || tables.population.find(txn, &[PopulationRow::ONLY])?.is_some())
    })?;
    if found { Err(LoadError::NotEmpty) } else { Ok(()) }
}
