//! `freshet-lab experiment`: what papers have measured, measured here.
//!
//! An [`Experiment`] is data and a little code: a sweep of named runs of `freshet-lab bench`, how
//! their results become curves, what the paper states, and sentences about what differs, made from
//! what was measured. Everything else is the frame's:
//!
//! | module | does |
//! |---|---|
//! | [`frame`] | what an experiment is, and the scale of this machine |
//! | [`results`] | what was measured, and its medians |
//! | [`sweep`] | runs everything in turns |
//! | [`table`] | CSV |
//! | [`plot`], [`raster`] | SVG and PNG |
//! | [`report`] | the report, in Markdown |
//! | [`machine`] | where it was measured |
//! | [`query_fresh`], [`silor`] | the experiments of these papers |

mod frame;
mod machine;
mod plot;
mod query_fresh;
mod raster;
mod report;
mod results;
mod silor;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;

use self::frame::{Experiment, Scale};
use freshet::Failure;

/// Options of `freshet-lab experiment`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExperimentOptions {
    /// list, all, or the name of an experiment such as query-fresh/table1.
    #[arg(value_name = "NAME")]
    name: String,
    /// The directory for the results. With all: a directory for each experiment below it. [default:
    /// experiments/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How often to measure each point; the medians count. [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: Option<u16>,
    /// How long to measure each point, in seconds. [default: 10, with --quick 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: Option<u16>,
    /// Only check that it works: few points, a second each.
    #[arg(long)]
    quick: bool,
}

/// All there are, in the order of `list`.
fn all() -> Vec<Experiment> {
    query_fresh::all().into_iter().chain(silor::all()).collect()
}

/// Lists experiments, or runs one or all.
pub(crate) fn run(options: &ExperimentOptions) -> Result<ExitCode, Failure> {
    let experiments = all();
    match options.name.as_str() {
        "list" => {
            for Experiment { name, paper, place, shows, .. } in &experiments {
                println!("{name:<26} {}, {place}: {shows}", paper.title);
            }
        }
        "all" => {
            let base = options.out.clone().unwrap_or_else(|| PathBuf::from("experiments"));
            for experiment in &experiments {
                one(experiment, options, &base.join(experiment.name))?;
            }
        }
        name => {
            let Some(experiment) = experiments.iter().find(|experiment| experiment.name == name) else {
                let names: Vec<&str> = experiments.iter().map(|experiment| experiment.name).collect();
                return Err(Failure::new(format!(
                    "there is no experiment {name:?}: there are list, all, {}",
                    names.join(", ")
                )));
            };
            let directory = options.out.clone().unwrap_or_else(|| Path::new("experiments").join(name));
            one(experiment, options, &directory)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs one, and writes what it found.
fn one(experiment: &Experiment, options: &ExperimentOptions, directory: &Path) -> Result<(), Failure> {
    let cannot = |cause: std::io::Error| Failure::new(format!("cannot write to {}: {cause}", directory.display()));
    fs::create_dir_all(directory).map_err(cannot)?;
    let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).map_err(cannot);
    let scale = Scale::new(options.quick, options.rounds, options.seconds);
    // After each round: what was measured is not lost when a later run fails.
    let results = sweep::run(experiment, scale, &mut |results| write("data.csv", table::data(results).as_bytes()))?;
    write("summary.csv", table::summary(&results).as_bytes())?;
    if let Some(series) = table::series(&results) {
        write("series.csv", series.as_bytes())?;
    }
    if let Some(halves) = table::half_seconds(&results) {
        write("half_seconds.csv", halves.as_bytes())?;
    }
    let panels = (experiment.panels)(&results);
    let title = format!("{}: {}", experiment.name, experiment.shows);
    write("plot.svg", plot::svg(&title, &panels)?.as_bytes())?;
    write("plot.png", &plot::png(&title, &panels)?)?;
    let report = report::markdown(experiment, &results);
    write("report.md", report.as_bytes())?;
    println!("{}: {}\n", experiment.name, directory.join("report.md").display());
    println!("{}\n", report::paragraph(experiment, &results));
    Ok(())
}
