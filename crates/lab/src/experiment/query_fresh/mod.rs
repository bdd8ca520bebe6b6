//! Query Fresh: Log Shipping on Steroids, section 4, at the scale of this machine.
//!
//! The paper has eight machines of 16 cores; here primary and standbys share one. One worker is the
//! primary's, on a processor of its own, and up to three standbys share the others. The paper's 16
//! threads of a backup become four threads: one replays where it has four that do, and three
//! readers have 75 % of it. Its networks are slowed down as much as this log is slower.

mod bootstrap;
mod end_to_end;
mod freshness;
mod indirection;
mod latency;
mod persistence;
mod policy;
mod replay_threads;
mod table1;

use super::{
    frame::{Experiment, Paper, Run, Scale},
    plot::Panel,
    report::{list, noise, percent, short, thousands},
    results::Results,
};

const PAPER: Paper = Paper {
    title: "Query Fresh",
    reference: "Tianzheng Wang, Ryan Johnson, Ippokratis Pandis: Query Fresh: Log Shipping on Steroids, PVLDB \
                11(4), 2017",
    machine: "8 nodes with 16 cores, 10 Gb/s Ethernet and 56 Gb/s InfiniBand",
};

/// What the 16 threads of the paper's standalone server log, in bytes per second (table 1).
const PAPER_LOG_RATE: f64 = 1456.62e6;

/// All of its experiments.
pub(super) fn all() -> Vec<Experiment> {
    vec![
        table1::experiment(),
        end_to_end::experiment(),
        freshness::experiment(),
        policy::experiment(),
        replay_threads::experiment(),
        indirection::experiment(),
        latency::experiment(),
        persistence::experiment(),
        bootstrap::experiment(),
    ]
}

/// One worker's TPC-C with a log, as all experiments run it: snapshot isolation, as many warehouses
/// as threads, files in memory (section 4.3).
fn tpcc(scale: &Scale) -> String {
    format!("tpcc --isolation si --domain file {}", ring(scale))
}
/// A standby of Query Fresh's: one-sided writes into memory that survives, acknowledged as they
/// arrive (the ideal variant of section 4.2), pipelined replay into replay arrays. All standbys
/// have a commit before it is acknowledged.
const FRESH: &str = "--safety very-safe --fabric shm --standby-domain pmem --standby-persist-method eadr \
                     --replay pipelined --apply fresh";
/// A standby's threads, where the paper has 16.
const STANDBY_THREADS: u16 = 4;

/// How a standby's threads are divided, in words.
const THREADS: &str = "A standby has one thread that replays and three that read, with Stock-Level and \
                       Order-Status in turn, for the paper's 4 and 12.";

const GOAL: &str = "Freshet's goal";

/// A network of this many Gb/s there, as the option that limits what the primary sends here.
fn network(scale: &Scale, gbit: f64) -> String {
    format!("--bandwidth-gbit {:.4}", gbit * scale.log_bytes_per_s / PAPER_LOG_RATE)
}

/// The log's buffer, as options: as many milliseconds of log as the paper's 16 MB, but at least
/// twice the largest group commit. No more than that may wait to be committed.
fn ring(scale: &Scale) -> String {
    let bytes = ring_bytes(scale);
    format!("--log-buffer-bytes {bytes} --log-uncommitted-bytes {bytes}")
}

fn ring_bytes(scale: &Scale) -> u64 {
    let bytes = (16 << 20) as f64 * scale.log_bytes_per_s / PAPER_LOG_RATE;
    (bytes as u64).next_power_of_two().max(1 << 20)
}

/// How networks and buffers are scaled, in words.
fn networks(scale: &Scale) -> String {
    let here = |gbit: f64| short(gbit * scale.log_bytes_per_s / PAPER_LOG_RATE);
    format!(
        "Networks are slowed down as much as this log is slower than the paper's 1457 MB/s, so that \
         they carry as many times the log as there: 10 Gb/s becomes {} Gb/s, 56 Gb/s becomes {} Gb/s, \
         for all standbys together. Batches that such a network takes in 200 us are written by the \
         thread of group commit itself, others by the threads that ship (`prompt_batches`). The log's \
         buffer holds {} KiB, or {:.0} ms of log, for the paper's 16 MB and 11 ms.",
        here(10.0),
        here(56.0),
        ring_bytes(scale) >> 10,
        ring_bytes(scale) as f64 / scale.log_bytes_per_s * 1e3
    )
}

/// Where processes run, in words.
fn places(scale: &Scale) -> String {
    match scale.processors {
        0 | 1 => "Primary and standbys share one processor.".to_owned(),
        2 => "The primary has processor 0 for itself, all standbys share processor 1.".to_owned(),
        many => format!("The primary has processor 0 for itself, all standbys share processors 1 to {}.", many - 1),
    }
}

fn run(series: impl Into<String>, x: f64, arguments: String) -> Run {
    Run { series: series.into(), x, arguments }
}

/// One worker without standbys, at 0 standbys.
fn standalone(scale: &Scale) -> Run {
    run(STANDALONE, 0.0, format!("{}{}", tpcc(scale), scale.alone()))
}

const STANDALONE: &str = "Standalone";

/// `--standbys` and where.
fn standbys(scale: &Scale, count: u32) -> String {
    format!("--standbys {count}{}", scale.apart())
}

/// Options of a run of TPC-C with this many standbys behind a network that was `gbit` in the paper.
fn replicated(scale: &Scale, count: u32, gbit: f64, options: &str) -> String {
    format!("{} {} {options} {}", tpcc(scale), standbys(scale, count), network(scale, gbit))
}

/// Threads of a standby: how many replay; the others read.
fn divided(replaying: u16) -> String {
    let readers = STANDBY_THREADS.saturating_sub(replaying);
    format!("--replay-threads {replaying} --standby-readers {readers}")
}

/// Share of the standalone throughput.
fn kept(results: &Results, series: &str, x: f64) -> f64 {
    results.at(series, x, "tps") / results.at(STANDALONE, 0.0, "tps")
}

/// Where a series ends.
fn last(results: &Results, series: &str) -> f64 {
    results.xs(series).into_iter().max_by(f64::total_cmp).unwrap_or(f64::NAN)
}

/// Names of series that begin with one of these words, in the order of the sweep.
fn beginning<'r>(results: &'r Results, word: &str) -> Vec<&'r str> {
    results.series().into_iter().filter(|series| series.starts_with(word)).collect()
}

/// Throughput of the primary over the number of standbys.
fn primary(results: &Results) -> Panel {
    Panel::over_numbers("Primary", "standbys", "k transactions/s", results.curves("tps", 1e-3))
}

/// Read-only transactions on all standbys over their number.
fn readers(results: &Results) -> Panel {
    let curves = results.curves("standby_tps", 1e-3);
    Panel::over_numbers("All standbys together, read-only", "standbys", "k transactions/s", curves)
}

/// Why the primary does less at one point than at another: its worker waits, which is
/// back-pressure, or a transaction takes more of its processor time, which is not.
fn held_back(results: &Results, (series, x): (&str, f64), (than, there): (&str, f64)) -> String {
    let ratio = |column: &str| results.at(series, x, column) / results.at(than, there, column);
    let (busy, cost) = (results.at(series, x, "worker_busy"), ratio("forward_cpu_us_per_txn"));
    let why = if ratio("worker_busy") <= 1.0 / cost {
        "back-pressure, as in the paper"
    } else {
        "not the paper's back-pressure but costlier transactions"
    };
    format!(
        "{why}; the worker waits {} of the time and needs {cost:.2} times the processor time for a transaction",
        percent((1.0 - busy).max(0.0))
    )
}

/// How much of the standbys' processors replay takes at one point: its time for a transaction, for
/// each standby and transaction.
fn replay_share(results: &Results, series: &str, x: f64) -> f64 {
    let processors = results.scale.processors.saturating_sub(1).max(1) as f64;
    results.at(series, x, "tps") * results.at(series, x, "replay_cpu_us_per_txn") * x / 1e6 / processors
}

/// The sentence on what replay costs the standbys' processors, where the most standbys run.
fn replay_sentence(results: &Results, series: &str) -> String {
    let x = last(results, series);
    let share = replay_share(results, series, x);
    if !share.is_finite() {
        return String::new();
    }
    let verdict = if share > 0.8 { ", which is nearly all there is" } else { "" };
    format!(
        "With {x} standby(s) replay of {series} takes {} of the processors that standbys have{verdict}.",
        percent(share)
    )
}
