//! `freshet-lab`: measures Freshet, and attacks it.
//!
//! | module | is |
//! |---|---|
//! | [`bench`] | measures the engine within this process, standbys beside it |
//! | [`experiment`] | what papers measured, measured here: sweeps of benchmarks, plots, reports |
//! | [`losses`] | clusters of real processes whose nodes lose what they had |
//! | [`node`] | its nodes, and what benchmarks ask of them |
//! | [`processes`] | nodes that are processes of their own |
//! | [`readers`] | transactions that read, within its nodes |
//! | [`simulate`] | simulated clusters, many seeds |
//! | [`torture`] | clusters of real processes under load whose nodes are killed, stopped and promoted |
#![forbid(unsafe_code)]

mod bench;
mod experiment;
mod losses;
mod node;
mod pin;
mod processes;
mod readers;
mod simulate;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use freshet::{
    Failure,
    messages::{self, Format},
    witness::{self, WitnessOptions},
};

use self::{
    experiment::ExperimentOptions, losses::LossesOptions, node::BenchmarkNode, simulate::SimulateOptions,
    torture::TortureOptions,
};

#[global_allocator]
static ALLOCATOR: freshet_allocator::Counting = freshet_allocator::Counting;

/// Measures and attacks Freshet, a main-memory transactional database.
#[derive(Debug, Parser)]
#[command(name = "freshet-lab", version, max_term_width = 110)]
struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the engine: TPC-C, YCSB, TATP, TPC-B, and restarts.
    ///
    /// The primary runs in this process, each standby in a process of its own.
    #[command(subcommand)]
    Bench(Box<bench::Bench>),
    /// Repeat the measurements of papers at this machine's scale: figures beside the papers' own,
    /// and what differs.
    ///
    /// `freshet-lab experiment list` shows all experiments. Each is a sweep of `freshet-lab bench`
    /// that writes a directory with its data (CSV), a plot (SVG and PNG) and a report.
    Experiment(ExperimentOptions),
    /// Attack clusters of real processes under SQL load: kill, stop, continue, restart and promote
    /// their nodes, by seed.
    ///
    /// Checks the history: nothing acknowledged is lost, and much more (docs/testing.md).
    Torture(Box<TortureOptions>),
    /// Set back, empty and replace the directories of real nodes, start and promote them in all
    /// orders, and see whether an acknowledged commit is lost.
    Losses(Box<LossesOptions>),
    /// Simulate clusters with seeded clocks, network, disks and faults, and check their properties.
    ///
    /// The same seed gives the same run on every machine.
    Simulate(SimulateOptions),
    /// Run a witness, as `freshet witness` does.
    #[command(hide = true)]
    Witness(Box<WitnessOptions>),
    /// Run a node of a benchmark: as `freshet serve` does, with the keys of docs/laboratory.md.
    #[command(hide = true, alias = "serve")]
    Node(Box<BenchmarkNode>),
}

impl Command {
    fn run(self) -> Result<ExitCode, Failure> {
        // Reports of experiments are to be shown; everything else is private data.
        if !matches!(self, Self::Experiment(_)) {
            freshet_base::private::umask();
        }
        if matches!(self, Self::Bench(_) | Self::Torture(_) | Self::Losses(_)) {
            // Nodes are stopped and killed on purpose here: their messages are not wanted.
            let levels = "error,log=warn,engine=warn".parse().map_err(|cause: String| Failure::new(cause))?;
            messages::begin(Format::Text, &levels)?;
        }
        match self {
            Self::Bench(options) => bench::run(*options),
            Self::Experiment(options) => experiment::run(&options),
            Self::Torture(options) => torture::run(&options),
            Self::Losses(options) => losses::run(&options),
            Self::Simulate(options) => simulate::run(&options),
            Self::Node(options) => node::run(&options),
            Self::Witness(options) => witness::run(&options),
        }
    }
}

fn main() -> ExitCode {
    freshet_allocator::set_up();
    freshet::end(Lab::parse().command.run())
}
