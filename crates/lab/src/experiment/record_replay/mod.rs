//! Scalable Replay-Based Replication For Fast Databases, section 6, at the scale of this machine.
//!
//! The paper has two machines of 32 cores, with 10 or 1 Gb/s between them; here primary and standby
//! share one. Its rivals are here, too: log shipping is Freshet's standby that gets bytes, Calvin's
//! deterministic locking is `--apply calvin`, and serial replay is one thread that executes, or
//! `--apply command`, where terminals keep to their warehouses.

mod failover;
mod freshness;
mod lists;
mod network;
mod primary;
mod replay;
mod sizes;

use super::{
    frame::{Column, Experiment, Paper, Run, Scale, column},
    plot::{Curve, Point},
    report::{noise, percent, short, than},
    results::Results,
};

const PAPER: Paper = Paper {
    title: "Record-Replay",
    reference: "Dai Qin, Angela Demke Brown, Ashvin Goel: Scalable Replay-Based Replication For Fast Databases, \
                PVLDB 10(13), 2017",
    machine: "two machines with 32 cores, 10 Gb/s Ethernet",
};

/// All of its experiments.
pub(super) fn all() -> Vec<Experiment> {
    vec![
        sizes::experiment(),
        network::experiment(),
        primary::figure_3(),
        primary::figure_4(),
        replay::figure_5(),
        lists::figure_6(),
        replay::window(),
        lists::lists(),
        freshness::experiment(),
        failover::experiment(),
    ]
}

/// What a benchmark with a standby tells.
const OF_STANDBY: &[Column] = &[
    column("tps", "/tps"),
    column("executed", "/executed"),
    column("log_bytes_per_s", "/log_bytes_per_s"),
    column("log_bytes_per_txn", "/log_bytes_per_txn"),
    column("latency_p50_us", "/latency_us/p50"),
    column("forward_cpu_us_per_txn", "/cpu_us_per_txn/forward"),
    column("log_cpu_us_per_txn", "/cpu_us_per_txn/log"),
    column("worker_busy", "/worker_busy"),
    column("freshness_mean", "/freshness/mean"),
    column("freshness_p1", "/freshness/p1"),
    column("behind_p50_bytes", "/freshness/behind_bytes_p50"),
    column("wire_bytes_per_txn", "/standby/wire_bytes_per_txn"),
    column("wire_share", "/standby/wire_share"),
    column("kept_up", "/standby/kept_up"),
    column("standby_cpu_us_per_txn", "/standby/cpu_us_per_txn/process"),
    column("receive_cpu_us_per_txn", "/standby/cpu_us_per_txn/receive"),
    column("enter_cpu_us_per_txn", "/standby/cpu_us_per_txn/enter"),
    column("execute_cpu_us_per_txn", "/standby/cpu_us_per_txn/execute"),
    column("complete_cpu_us_per_txn", "/standby/cpu_us_per_txn/complete"),
    column("replay_cpu_us_per_txn", "/standby/cpu_us_per_txn/replay"),
    column("again_share", "/standby/again/executed"),
    column("fetched_share", "/standby/again/fetched"),
    column("waits_per_txn", "/standby/again/waits_per_txn"),
    column("failover_ms", "/failover_ms"),
];

/// The paper's workloads (section 6.1), as options.
const WORKLOADS: [(&str, &str); 4] = [
    ("TPC-C", ""),
    ("TPC-C+", " --mix plus"),
    ("TPC-C Spread", " --spread"),
    ("TPC-C+ Spread", " --mix plus --spread"),
];

const ALONE: &str = "alone";
const SHIPPING: &str = "Log shipping";
const AGAIN: &str = "Record-Replay";
const CALVIN: &str = "Calvin";
const AGAIN_PACKED: &str = "Record-Replay, LZ4";
const COMMANDS: &str = "Command logging";

/// How a standby is asked to replay.
const BYTES: &str = "--encoding bytes";
const INPUTS: &str = "--encoding inputs";
const LOCKS: &str = "--encoding inputs --apply calvin";

const GOAL: &str = "Freshet's goal";

/// What 16 cores of the paper's machine log of TPC-C, in bytes per second (table 3: 35.739 GB in 60
/// s).
const PAPER_LOG_RATE: f64 = 35.739e9 / 60.0;

fn series(workload: &str, system: &str) -> String {
    format!("{workload}, {system}")
}

fn run(series: impl Into<String>, x: f64, arguments: String) -> Run {
    Run { series: series.into(), x, arguments }
}

/// More than one, so that spread transactions have something to be spread over.
fn warehouses(scale: &Scale, threads: usize) -> usize {
    if scale.quick { 1 } else { threads.max(4) }
}

/// A workload on this many threads of a primary with a log, serializable as the paper's.
fn tpcc(scale: &Scale, options: &str, threads: usize) -> String {
    let warehouses = warehouses(scale, threads);
    format!("tpcc --isolation serializable --domain file --warehouses {warehouses} --threads {threads}{options}")
}

/// Numbers of a primary's threads that leave a processor to the standby, where there is one.
fn threads_beside(scale: &Scale) -> Vec<usize> {
    let most = scale.processors.saturating_sub(1).max(1);
    scale.threads().into_iter().filter(|threads| *threads <= most).collect()
}

/// The first processors for this many threads of a primary, the others for the standby.
fn apart(scale: &Scale, threads: usize) -> String {
    let range = |first: usize, last: usize| if first == last { first.to_string() } else { format!("{first}-{last}") };
    match scale.processors {
        processors if processors > threads => {
            format!(" --pin {}/{}", range(0, threads - 1), range(threads, processors - 1))
        }
        _ => String::new(),
    }
}

/// Where processes run, in words.
fn places(scale: &Scale) -> String {
    match scale.processors {
        0 | 1 => "Primary and standby share one processor.".to_owned(),
        _ => "The threads of the primary have a processor each, and the standby has the others.".to_owned(),
    }
}

/// How the workloads are made smaller, in words.
fn smaller(scale: &Scale) -> String {
    format!(
        "{} warehouse(s), where the paper has one for each core; as there, a thread keeps to its warehouse, but for \
         remote transactions, or with Spread each transaction belongs to another.",
        warehouses(scale, 1)
    )
}

/// A curve of what was made of medians; what was not measured is left out.
fn exactly(label: &str, color: usize, points: Vec<(f64, f64)>) -> Curve {
    let points = points.into_iter().filter(|(_, y)| y.is_finite());
    Curve::measured(label, color, points.map(|(x, y)| Point { x, y, low: y, high: y }).collect())
}

/// How one series stands to another at a point.
fn ratio(results: &Results, column: &str, (of, to): (&str, &str), x: f64) -> f64 {
    results.at(of, x, column) / results.at(to, x, column)
}

/// Where a series was measured last.
fn last(results: &Results, series: &str) -> f64 {
    results.xs(series).into_iter().max_by(f64::total_cmp).unwrap_or(f64::NAN)
}

/// `what` when there is a number, so that nothing is written of what was not measured.
fn if_measured(number: f64, what: impl FnOnce() -> String) -> Option<String> {
    number.is_finite().then(what)
}
