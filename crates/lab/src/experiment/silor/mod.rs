//! SiloR, section 6: what logging by epochs and checkpoints cost a database in memory, over time,
//! and how long it takes to recover.
//!
//! The paper's machine has 32 cores (28 run transactions) and four disks. Here one
//! processor is left to loggers and checkpointers, and there is one disk. Its runs of ten minutes
//! become runs of seconds, with a smaller database, so that several checkpoints fall into each.

mod recovery;
mod syncs;
mod systems;
mod workers;

use serde_json::Value;

use super::{
    frame::{Beside, Column, Experiment, Paper, Run, Scale, column},
    plot::{Curve, Panel},
    report::{list, noise, percent, than, thousands},
    results::Results,
};

const PAPER: Paper = Paper {
    title: "SiloR",
    reference: "Wenting Zheng, Stephen Tu, Eddie Kohler, Barbara Liskov: Fast Databases with Fast Durability \
                and Recovery \
                Through Multicore Parallelism, OSDI 2014",
    machine: "32 cores, three flash drives and a RAID-5 array, 28 workers; MemSilo on YCSB 32",
};

/// Silo without a log, with one, and with checkpoints too.
const MEMORY: &str = "MemSilo";
const LOG: &str = "LogSilo";
const ALL: &str = "SiloR";

/// The log and checkpoints are on a disk, if this machine has one there.
const DISK: &str = "--domain file --log-group-commit epoch --dir /var/tmp";
/// The next checkpoint begins when the last one has ended, or a second after it has begun.
const CHECKPOINTS: &str = "--checkpoint-interval-s 1";
/// Epochs, log and checkpoints, in words.
const DURABILITY: &str = "Epochs are 40 ms long, as there. Log and checkpoints are in files below /var/tmp. A \
                          checkpoint begins as soon as the one before has ended, at the earliest a second after \
                          that has begun";

const COLUMNS: &[Column] = &[
    column("tps", "/tps"),
    column("executed", "/executed"),
    column("log_bytes_per_s", "/log_bytes_per_s"),
    column("latency_mean_us", "/latency_us/mean"),
    column("latency_p50_us", "/latency_us/p50"),
    column("latency_p99_us", "/latency_us/p99"),
    column("latency_max_us", "/latency_us/max"),
    column("forward_cpu_us_per_txn", "/cpu_us_per_txn/forward"),
    column("log_cpu_us_per_txn", "/cpu_us_per_txn/log"),
    column("worker_busy", "/worker_busy"),
    column("slowest_half_second", "/halves/slowest"),
    column("halves_with_checkpoint", "/halves/with_checkpoint"),
];

/// All of its experiments.
pub(super) fn all() -> Vec<Experiment> {
    vec![
        systems::figure_1(),
        workers::figure_2(),
        workers::figure_3(),
        syncs::figure_4(),
        systems::figure_5(),
        systems::figure_6(),
        systems::figure_7(),
        recovery::experiment(),
    ]
}

/// What all figures over time have in common.
fn over_time() -> Experiment {
    Experiment {
        name: "",
        paper: PAPER,
        place: "",
        shows: "",
        x: "workers",
        columns: COLUMNS,
        calibrate: false,
        sweep: |_| Vec::new(),
        scaled: |scale| {
            format!(
                "{} worker(s) run transactions, and loggers and checkpointers have what is left of the {} \
                 processor(s), where a series does not say otherwise. {DURABILITY}; it takes at most a quarter of a \
                 processor.",
                workers(scale),
                scale.processors
            )
        },
        panels: |results| panels(results, &results.series(), ""),
        beside: |_| Vec::new(),
        differs: |_| Vec::new(),
    }
}

/// Threads that run transactions: one processor is left to the others.
fn workers(scale: &Scale) -> usize {
    scale.processors.saturating_sub(1).max(1)
}

fn one(series: &str, threads: usize, workload: &str, options: &str) -> Run {
    Run { series: series.to_owned(), x: threads as f64, arguments: format!("{workload} --threads {threads} {options}") }
}

/// YCSB as the paper has it.
fn ycsb(scale: &Scale) -> String {
    let records = if scale.quick { 50_000 } else { 1_000_000 };
    format!("ycsb --mix 70/30 --isolation serializable --records {records}")
}

/// TPC-C, with a warehouse for each worker.
fn tpcc(scale: &Scale) -> String {
    format!("tpcc --isolation serializable --warehouses {}", workers(scale))
}

/// Half seconds of the round in the middle.
fn halves<'r>(results: &'r Results, series: &str) -> &'r [Value] {
    let x = results.xs(series).first().copied().unwrap_or(f64::NAN);
    let middle = results.middle(series, x, "tps").and_then(|value| value["half_seconds"].as_array());
    middle.map_or(&[], Vec::as_slice)
}

/// Throughput, and latency where there is a log, over time. Grey are the checkpoints of the last of
/// the series.
fn panels(results: &Results, series: &[&str], of: &str) -> Vec<Panel> {
    let curves = |series: &mut dyn Iterator<Item = &&str>, what: &str| -> Vec<Curve> {
        let curve = |series: &&str| {
            let points = halves(results, series).iter();
            let points = points.filter_map(|half| Some((half["seconds"].as_f64()?, half[what].as_f64()? * 1e-3)));
            Curve::fine(series, results.number(series), points)
        };
        series.map(curve).collect()
    };
    let shaded: Vec<(f64, f64)> = series.last().map_or(Vec::new(), |series| {
        let pairs = halves(results, series).windows(2).filter(|pair| pair[1]["checkpointing"] == 1);
        pairs.filter_map(|pair| Some((pair[0]["seconds"].as_f64()?, pair[1]["seconds"].as_f64()?))).collect()
    });
    let over_time = |title: &str, y: &str, curves| Panel {
        ticks: Vec::new(),
        shaded: Vec::clone(&shaded),
        ..Panel::over_numbers(&format!("{title}{of}; grey while a checkpoint is written"), "seconds", y, curves)
    };
    let mut panels = vec![over_time("Throughput", "k transactions/s", curves(&mut series.iter(), "tps"))];
    let mut logged = series.iter().filter(|series| !series.starts_with(MEMORY)).peekable();
    if logged.peek().is_some() {
        panels.push(over_time("Latency to durability", "ms", curves(&mut logged, "latency_us")));
    }
    panels
}

/// A number of a series, which has one point.
fn of(results: &Results, series: &str, what: &str) -> f64 {
    results.xs(series).first().map_or(f64::NAN, |x| results.at(series, *x, what))
}

/// Milliseconds of a mean latency.
fn wait(results: &Results, series: &str) -> f64 {
    of(results, series, "latency_mean_us") / 1e3
}
