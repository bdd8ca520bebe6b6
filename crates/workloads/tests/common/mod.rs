//! What the tests share.
#![allow(dead_code, reason = "not every test uses everything")]

use freshet_engine::{Certifier, Database, ProcedureError, Transaction};
use freshet_workloads::{
    TableSet,
    procedure::read_only,
    tpcc::{
        consistency::{Verdict, check},
        load::load,
        population::{Population, Scale},
        tables::Tables,
    },
};

/// Some time in November 2023.
pub const NOW: u64 = 1_700_000_000_000_000;

/// The seed of a randomised test: fixed, unless FRESHET_SEED says another; printed, so that a
/// failure can be repeated.
pub fn seed() -> u64 {
    let seed = std::env::var("FRESHET_SEED").ok().map_or(4711, |text| text.parse().expect("FRESHET_SEED is a number"));
    println!("FRESHET_SEED={seed}");
    seed
}

/// A database in memory with a population of TPC-C.
pub fn loaded(scale: Scale, threads: usize) -> (Database, Tables, Population) {
    loaded_with(scale, threads, Certifier::Validation)
}

/// The same, with this certifier.
pub fn loaded_with(scale: Scale, threads: usize, certifier: Certifier) -> (Database, Tables, Population) {
    let database = Database::volatile_with(8, certifier);
    let tables = Tables::create(&database).unwrap();
    let population = Population { scale, seed: seed(), loaded_at: NOW };
    let _ = load(&database, &tables, &population, threads, &|_| {}).unwrap();
    (database, tables, population)
}

/// What a reader sees.
pub fn read<T>(database: &Database, procedure: impl FnMut(&Transaction<'_>) -> Result<T, ProcedureError>) -> T {
    let worker = database.worker().unwrap();
    let (value, ticket) = read_only(&worker, procedure).unwrap();
    database.wait(ticket).unwrap();
    value
}

/// The conditions that do not hold.
pub fn violated(verdicts: &[Verdict]) -> Vec<u8> {
    assert!(verdicts.iter().map(|verdict| verdict.condition).eq(1..=12));
    verdicts.iter().filter(|verdict| !verdict.ok).map(|verdict| verdict.condition).collect()
}

/// Checks all consistency conditions.
pub fn assert_consistent(database: &Database, tables: &Tables) {
    let verdicts = read(database, |txn| check(txn, tables));
    for verdict in &verdicts {
        assert!(verdict.ok, "{verdict}");
    }
    assert!(violated(&verdicts).is_empty());
}
