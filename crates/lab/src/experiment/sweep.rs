//! Runs the runs of experiments.
//!
//! Machines and hours differ, so what is compared is run in turns: every round goes through all
//! runs, every other one backwards, and each run is a process of its own.

use std::time::Instant;

use freshet::Failure;
use serde_json::Value;

use super::{
    frame::{Experiment, Run, Scale},
    results::Results,
};
use crate::bench::child::child;

/// The run that finds out how fast one thread of this machine logs.
pub(crate) const CALIBRATION: &str = "tpcc --isolation si --domain file";

/// What comes behind `freshet-lab bench` for a run.
pub(crate) fn command(run: &Run, scale: &Scale) -> String {
    format!("{} {}", run.arguments, scale.time())
}

/// How far the runs of all chosen experiments are. It tells that on standard error, with an
/// estimate of the rest: what is left takes as long for each run as what was run.
pub(crate) struct Course {
    /// Runs of all experiments in all rounds, and those that have ended.
    runs: usize,
    ended: usize,
    begun: Instant,
}

impl Course {
    /// Says how many runs there are, and how long they take at least.
    pub(crate) fn new(experiments: &[Experiment], scale: &Scale) -> Self {
        // How many there are does not depend on the calibration.
        let points: usize = experiments.iter().map(|experiment| (experiment.sweep)(scale).len()).sum();
        let runs = points * usize::from(scale.rounds);
        eprintln!(
            "{} experiment(s), {runs} runs of {} s and {} s before: {}, and the time to load",
            experiments.len(),
            scale.seconds,
            scale.warmup,
            span(runs as f64 * (scale.seconds + scale.warmup))
        );
        Self { runs, ended: 0, begun: Instant::now() }
    }

    /// Finds out how fast one thread logs.
    pub(crate) fn calibrate(&mut self, scale: &mut Scale) -> Result<(), Failure> {
        eprintln!("calibration: how fast does one thread log here?");
        let command = format!("{CALIBRATION}{} {}", scale.alone(), scale.time());
        scale.log_bytes_per_s = bench(&command)?["log_bytes_per_s"]
            .as_f64()
            .ok_or_else(|| Failure::new("the benchmark did not tell how fast it logs"))?;
        let each = self.begun.elapsed().as_secs_f64();
        eprintln!("{} if every run takes as long", span(each * self.runs as f64));
        self.begun = Instant::now();
        Ok(())
    }

    /// How long the rest takes, in words; empty before the first run has ended.
    fn rest(&self) -> String {
        if self.ended == 0 {
            return String::new();
        }
        let each = self.begun.elapsed().as_secs_f64() / self.ended as f64;
        format!(" ({} of {} ended, {} left)", self.ended, self.runs, span(each * (self.runs - self.ended) as f64))
    }
}

/// A time for people.
fn span(seconds: f64) -> String {
    let minutes = (seconds / 60.0).ceil() as u64;
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("about {minutes} min"),
        (hours, minutes) => format!("about {hours} h {minutes} min"),
    }
}

/// Runs everything; `round` sees the results after each round. Blocks for as long as that takes,
/// and tells on standard error how far it is.
///
/// # Errors
/// When a run fails: none is left out.
pub(crate) fn run(
    experiment: &Experiment,
    scale: Scale,
    course: &mut Course,
    round: &mut dyn FnMut(&Results) -> Result<(), Failure>,
) -> Result<Results, Failure> {
    let runs = (experiment.sweep)(&scale);
    let found = runs.iter().map(|_| Vec::new()).collect();
    let mut results = Results { x: experiment.x, columns: experiment.columns, scale, runs, found };
    for number in 1..=scale.rounds {
        let count = results.runs.len();
        for step in 0..count {
            let run = if number % 2 == 1 { step } else { count - 1 - step };
            let Run { series, x, .. } = &results.runs[run];
            let (name, label, rest) = (experiment.name, experiment.x, course.rest());
            eprintln!(
                "{name}: round {number} of {}, {} of {count}: {series}, {label} {x}{rest}",
                scale.rounds,
                step + 1
            );
            let value = bench(&command(&results.runs[run], &scale))?;
            results.found[run].push(value);
            course.ended += 1;
        }
        round(&results)?;
    }
    Ok(results)
}

fn bench(arguments: &str) -> Result<Value, Failure> {
    child(&arguments.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_shown_in_minutes() {
        let texts = [1.0, 60.0, 61.0, 3600.0, 5400.5].map(span);
        assert_eq!(texts, ["about 1 min", "about 1 min", "about 2 min", "about 1 h 0 min", "about 1 h 31 min"]);
    }
}
