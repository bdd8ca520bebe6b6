//! `freshet-lab simulate`: seeds of the simulated cluster, as many as wanted, on all processors.

use std::{
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use clap::Args;
use freshet::{Failure, units::grouped};
use freshet_sim::{Report, Scenario, run as simulate, shapes};
use indicatif::{ProgressBar, ProgressStyle};

/// Options of `freshet-lab simulate`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimulateOptions {
    /// How many seeds to run for each shape of a cluster.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", env = "FRESHET_SEED", default_value_t = 1)]
    first: u64,
    /// Run only the shape with this number. [default: all; --list shows them]
    #[arg(long, value_name = "NUMBER")]
    shape: Option<usize>,
    /// Print all events; needs one seed and one shape.
    #[arg(long, requires = "shape")]
    trace: bool,
    /// Show the shapes.
    #[arg(long)]
    list: bool,
}

/// Runs seeds until something is violated, or all have been run.
pub(crate) fn run(options: &SimulateOptions) -> Result<ExitCode, Failure> {
    let shapes: Vec<(usize, Scenario)> = (0..).zip(shapes::all()).collect();
    if options.list {
        for (number, shape) in &shapes {
            println!("{number:>3}  {shape:?}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |(number, _): &(usize, Scenario)| options.shape.is_none_or(|only| only == *number);
    let shapes: Vec<(usize, Scenario)> = shapes.into_iter().filter(wanted).collect();
    if shapes.is_empty() {
        return Err(Failure::new("there is no such shape: --list shows them"));
    }
    let begun = Instant::now();
    let found = search(&shapes, options)?;
    if let Some((number, shape, seed, what)) = found {
        eprintln!("shape {number}, seed {seed}: {what}\n{shape:?}");
        eprintln!("again: freshet-lab simulate --shape {number} --first {seed} --seeds 1 --trace");
        return Ok(ExitCode::FAILURE);
    }
    let runs = shapes.len() as u64 * options.seeds;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{} runs of {} shape(s) in {seconds:.1} s: nothing is violated", grouped(runs), shapes.len());
    Ok(ExitCode::SUCCESS)
}

/// A run in which something was violated: the number of its shape, the shape, the seed, and what.
type Found = (usize, Scenario, u64, String);

/// Runs all seeds of all shapes on all processors; returns the first violation that is found.
fn search(shapes: &[(usize, Scenario)], options: &SimulateOptions) -> Result<Option<Found>, Failure> {
    let all = shapes.len() as u64 * options.seeds;
    let bar = if options.trace { ProgressBar::hidden() } else { ProgressBar::new(all) };
    bar.set_style(ProgressStyle::with_template("[{bar:40}] {human_pos} of {human_len} runs, {eta} left")?);
    // Relaxed: each run is taken once, and an end may be heard of a little later.
    let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let found: Mutex<Option<Found>> = Mutex::new(None);
    let work = || {
        while !over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= all {
                break;
            }
            // All shapes in turn, so that a search that is broken off has seen all of them.
            let (position, seed) = (number % shapes.len() as u64, options.first + number / shapes.len() as u64);
            let (shape_number, shape) = shapes[position as usize];
            let outcome = one(Scenario { trace: options.trace, ..shape }, seed);
            bar.inc(1);
            if let Err(what) = outcome {
                over.store(true, Ordering::Relaxed);
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.get_or_insert((shape_number, shape, seed, what));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// One run. A panic is a violation, too: state machines assert what must hold.
fn one(shape: Scenario, seed: u64) -> Result<Report, String> {
    match panic::catch_unwind(AssertUnwindSafe(|| simulate(shape, seed))) {
        Ok(outcome) => outcome.map_err(|violation| violation.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_sim::Broken;

    use super::*;

    fn options(seeds: u64) -> SimulateOptions {
        SimulateOptions { seeds, first: 1, shape: None, trace: false, list: false }
    }

    #[test]
    fn sound_shapes_are_run_and_a_broken_rule_is_found_with_its_seed() {
        let shapes: Vec<(usize, Scenario)> = (0..).zip(shapes::all()).collect();
        assert!(search(&shapes, &options(1)).unwrap().is_none());
        let (number, shape) = shapes[1];
        let broken = [(number, Scenario { broken: Broken::AckBeforePersist, ..shape })];
        let (_, shape, seed, what) = search(&broken, &options(1000)).unwrap().expect("it is noticed");
        assert_eq!(one(shape, seed).unwrap_err(), what, "the same again");
    }
}
