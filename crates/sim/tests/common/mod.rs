//! Seeds: how many, from where, and what to say of one that fails.

use std::{
    num::NonZero,
    panic::{catch_unwind, resume_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use freshet_sim::{Broken, Property, Report, Scenario, Violation, run, trace};

/// This number of events are printed of a seed that fails, all with `FRESHET_SIM_TRACE`.
const LAST: usize = 100;

/// The seed to begin with, and whether it is the only one (`FRESHET_SEED`).
#[allow(dead_code, reason = "not every test wants it")]
pub fn seed() -> (u64, bool) {
    match std::env::var("FRESHET_SEED") {
        Ok(text) => (text.parse().expect("FRESHET_SEED is a number"), true),
        Err(_) => (20_171, false),
    }
}

/// How many times as many seeds as usual (`FRESHET_SIM_FACTOR`).
fn factor() -> u64 {
    std::env::var("FRESHET_SIM_FACTOR").map_or(1, |text| text.parse().expect("FRESHET_SIM_FACTOR is a number"))
}

/// Runs a scenario with many seeds, on all processors; nothing may be violated. `test` is what to
/// run again, as "file name".
#[allow(dead_code, reason = "not every test wants it")]
pub fn sweep(test: &str, scenario: Scenario, seeds: u64) -> Report {
    let (first, only) = seed();
    let seeds = if only { 1 } else { seeds * factor() };
    let (next, total) = (AtomicU64::new(first), Mutex::new(Report::default()));
    let some = || {
        let mut own = Report::default();
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= first + seeds {
                break add(&mut total.lock().unwrap(), &own);
            }
            add(&mut own, &one(test, scenario, seed));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(seeds as usize);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(some)).collect();
        some();
        others.into_iter().for_each(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
    total.into_inner().unwrap()
}

fn one(test: &str, scenario: Scenario, seed: u64) -> Report {
    // State machines assert what must hold.
    let outcome = catch_unwind(|| run(scenario, seed)).map_err(|_| format!("seed {seed} has panicked"));
    match outcome.and_then(|outcome| outcome.map_err(|violation| violation.to_string())) {
        Ok(report) => report,
        Err(violation) => {
            let trace = catch_unwind(|| trace(scenario, seed)).unwrap_or_default();
            let last = if std::env::var_os("FRESHET_SIM_TRACE").is_some() { trace.len() } else { LAST };
            trace.iter().skip(trace.len().saturating_sub(last)).for_each(|event| println!("{event}"));
            panic!(
                "{scenario:?}\n{violation}\nagain: FRESHET_SEED={seed} cargo test -p freshet-sim \
                 --test {test} -- --nocapture"
            )
        }
    }
}

/// Adds what has happened in another run.
#[allow(dead_code, reason = "not every test wants it")]
pub fn add(total: &mut Report, report: &Report) {
    total.acknowledged += report.acknowledged;
    total.leads += report.leads;
    total.failovers += report.failovers;
    total.stood += report.stood;
    total.switch_overs += report.switch_overs;
    total.handed_over += report.handed_over;
    total.removed += report.removed;
    total.levels += report.levels;
    total.raised += report.raised;
    total.maintenance += report.maintenance;
    total.refused += report.refused;
    total.cuts += report.cuts;
    total.sets += report.sets;
    total.old += report.old;
    total.judged += report.judged;
    total.failed_syncs += report.failed_syncs;
    total.stuck += report.stuck;
    total.disks += report.disks;
    total.gone += report.gone;
    total.set_back += report.set_back;
    total.kept += report.kept;
    total.undone += report.undone;
    total.seeded += report.seeded;
    total.larger += report.larger;
    total.fetched += report.fetched;
    total.taken += report.taken;
    total.fuzzy_snapshots += report.fuzzy_snapshots;
    total.by_mirrors += report.by_mirrors;
    total.executed += report.executed;
    total.journaled += report.journaled;
    total.originals += report.originals;
    total.checkpoints += report.checkpoints;
    total.definitions += report.definitions;
    total.died += report.died;
}

/// A rule that is got wrong has to be noticed within this number of seeds, as a violation of one of
/// these properties.
#[allow(dead_code, reason = "not every test wants it")]
pub fn caught(broken: Broken, scenario: Scenario, properties: &[Property], seeds: u64) -> Violation {
    let scenario = Scenario { broken, ..scenario };
    let (first, _) = seed();
    for seed in first..first + seeds {
        if let Err(violation) = run(scenario, seed) {
            assert!(
                properties.contains(&violation.property),
                "{broken:?} shows as something else, seed {seed}: {violation}"
            );
            println!("seed {seed}");
            return violation;
        }
    }
    panic!("{broken:?} was not noticed within {seeds} seeds, from {first} on: {scenario:?}");
}
