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
//! | [`query_fresh`], [`silor`], [`distributed_logging`], [`record_replay`], [`active_memory`] | the experiments of these papers |

mod active_memory;
mod distributed_logging;
mod frame;
mod machine;
mod plot;
mod query_fresh;
mod raster;
mod record_replay;
mod report;
mod results;
mod silor;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;

use flate2::{Compression, GzBuilder};
use freshet::Failure;

use self::{
    frame::{Experiment, Scale},
    sweep::Course,
};

/// Options of `freshet-lab experiment`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExperimentOptions {
    /// list, all, papers such as query-fresh, or names of experiments such as query-fresh/table1.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// The directory for the results. With several: a directory for each below it. [default:
    /// experiments/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How often to measure each point; the medians count. [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: Option<u16>,
    /// How long to measure each point, in seconds. [default: 10, with --quick 2]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: Option<u16>,
    /// Only check that it works: few points, two seconds each.
    #[arg(long)]
    quick: bool,
}

/// All there are, in the order of `list`.
fn all() -> Vec<Experiment> {
    let papers =
        [query_fresh::all(), silor::all(), distributed_logging::all(), record_replay::all(), active_memory::all()];
    papers.into_iter().flatten().collect()
}

/// Those that `name` means: all, those of a paper, or one.
fn named(name: &str) -> Vec<Experiment> {
    let of_paper = |experiment: &Experiment| experiment.name.split_once('/').is_some_and(|(paper, _)| paper == name);
    all().into_iter().filter(|it| name == "all" || it.name == name || of_paper(it)).collect()
}

/// Those that any of `names` means, each once, in the order of `list`.
fn chosen(names: &[String]) -> Result<Vec<Experiment>, Failure> {
    for name in names {
        if named(name).is_empty() {
            let known: Vec<&str> = all().iter().map(|experiment| experiment.name).collect();
            let wrong = format!("there is no experiment {name:?}: there are list, all, {}", known.join(", "));
            return Err(Failure::new(wrong));
        }
    }
    let meant = |it: &Experiment| names.iter().any(|name| named(name).iter().any(|one| one.name == it.name));
    Ok(all().into_iter().filter(meant).collect())
}

/// Lists experiments, or runs one or several, on one calibration.
pub(crate) fn run(options: &ExperimentOptions) -> Result<ExitCode, Failure> {
    if options.names == ["list"] {
        for Experiment { name, paper, place, shows, .. } in &all() {
            println!("{name:<28} {}, {place}: {shows}", paper.title);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let experiments = chosen(&options.names)?;
    let mut scale = Scale::new(options.quick, options.rounds, options.seconds);
    let mut course = Course::new(&experiments, &scale);
    if experiments.iter().any(|experiment| experiment.calibrate) {
        course.calibrate(&mut scale)?;
    }
    let base = options.out.clone();
    for experiment in &experiments {
        let directory = match &base {
            Some(base) if options.names == [experiment.name] => base.clone(),
            base => base.as_deref().unwrap_or(Path::new("experiments")).join(experiment.name),
        };
        one(experiment, scale, &mut course, &directory)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Compresses a text. The same text gives the same bytes: no time and no name are in them.
///
/// # Errors
/// None that memory can have.
fn gzip(text: &str) -> io::Result<Vec<u8>> {
    let mut out = GzBuilder::new().write(Vec::new(), Compression::best());
    out.write_all(text.as_bytes())?;
    out.finish()
}

/// Runs one, and writes what it found.
fn one(experiment: &Experiment, scale: Scale, course: &mut Course, directory: &Path) -> Result<(), Failure> {
    let cannot = |cause: io::Error| Failure::new(format!("cannot write to {}: {cause}", directory.display()));
    fs::create_dir_all(directory).map_err(cannot)?;
    let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).map_err(cannot);
    let compressed = |name: &str, text: &str| write(name, &gzip(text).map_err(cannot)?);
    // After each round: what was measured is not lost when a later run fails.
    let mut save = |results: &_| compressed("data.csv.gz", &table::data(results));
    let results = sweep::run(experiment, scale, course, &mut save)?;
    write("summary.csv", table::summary(&results).as_bytes())?;
    for (name, text) in table::over_time(&results) {
        compressed(&format!("{name}.csv.gz"), &text)?;
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
