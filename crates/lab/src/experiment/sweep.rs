//! Runs the runs of an experiment.
//!
//! Machines and hours differ, so what is compared is run in turns: every round goes through all
//! runs, every other one backwards, and each run is a process of its own.

use serde_json::Value;

use super::{
    frame::{Experiment, Run, Scale},
    results::Results,
};
use freshet::Failure;

use crate::bench::child::child;

/// The run that finds out how fast one thread of this machine logs.
pub(crate) const CALIBRATION: &str = "tpcc --isolation si --domain file";

/// What comes behind `freshet-lab bench` for a run.
pub(crate) fn command(run: &Run, scale: &Scale) -> String {
    format!("{} {}", run.arguments, scale.time())
}

/// Runs everything; `round` sees the results after each round. Blocks for as long as that takes,
/// and tells on standard error how far it is.
///
/// # Errors
/// When a run fails: none is left out.
pub(crate) fn run(
    experiment: &Experiment,
    mut scale: Scale,
    round: &mut dyn FnMut(&Results) -> Result<(), Failure>,
) -> Result<Results, Failure> {
    if experiment.calibrate {
        eprintln!("{}: how fast does one thread log here?", experiment.name);
        let command = format!("{CALIBRATION}{} {}", scale.alone(), scale.time());
        scale.log_bytes_per_s = bench(&command)?["log_bytes_per_s"]
            .as_f64()
            .ok_or_else(|| Failure::new("the benchmark did not tell how fast it logs"))?;
    }
    let runs = (experiment.sweep)(&scale);
    let found = runs.iter().map(|_| Vec::new()).collect();
    let mut results = Results { x: experiment.x, columns: experiment.columns, scale, runs, found };
    for number in 1..=scale.rounds {
        let count = results.runs.len();
        for step in 0..count {
            let run = if number % 2 == 1 { step } else { count - 1 - step };
            let Run { series, x, .. } = &results.runs[run];
            let (name, label) = (experiment.name, experiment.x);
            eprintln!("{name}: round {number} of {}, {} of {count}: {series}, {label} {x}", scale.rounds, step + 1);
            let value = bench(&command(&results.runs[run], &scale))?;
            results.found[run].push(value);
        }
        round(&results)?;
    }
    Ok(results)
}

fn bench(arguments: &str) -> Result<Value, Failure> {
    child(&arguments.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}
