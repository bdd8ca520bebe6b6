//! Active-Memory, section 6, at the scale of this machine: all four schemes on one storage, one
//! workload and one fabric (`freshet-lab bench platform`).
//!
//! The paper has eight machines, each with ten processors and a network card. Here all nodes share
//! the processors of one machine, so throughput is told as it was measured, and beside it by
//! [`model`]: what as many machines would do.

mod breakdown;
mod model;
mod network;
mod scale;
mod share;

use super::{
    frame::{Column, Experiment, Paper, Run, Scale, column},
    plot::{Curve, Panel},
    report::{noise, percent, than, thousands},
    results::Results,
};

const PAPER: Paper = Paper {
    title: "Active-Memory",
    reference: "Erfan Zamanian, Xiangyao Yu, Michael Stonebraker, Tim Kraska: Rethinking Database High Availability \
                with RDMA Networks, PVLDB 12(11), 2019",
    machine: "eight machines, of each one socket with 10 cores used, InfiniBand EDR 4X",
};

/// All of its experiments.
pub(super) fn all() -> Vec<Experiment> {
    vec![
        scale::figure_8(),
        breakdown::figure_9(),
        breakdown::table_2(),
        share::figure_10(),
        network::figure_11(),
        network::table_3(),
        scale::figure_12(),
        share::figure_13(),
        share::figure_14(),
    ]
}

/// What `freshet-lab bench platform` tells.
const COLUMNS: &[Column] = &[
    column("tps", "/tps"),
    column("executed", "/executed"),
    column("aborts_per_txn", "/aborts_per_txn"),
    column("latency_p50_us", "/latency_us/p50"),
    column("latency_p99_us", "/latency_us/p99"),
    column("cpu_us_per_txn", "/cpu_us_per_txn/all"),
    column("wire_bytes_per_txn", "/wire_bytes_per_txn"),
    column("wire_writes_per_txn", "/wire_writes_per_txn"),
];

const MEMORY: &str = "Active-Memory";
const SHIPPING: &str = "Log shipping";
const HSTORE: &str = "H-Store";
const CALVIN: &str = "Calvin";

/// The schemes, and how `bench platform` calls them.
const SCHEMES: [(&str, &str); 4] =
    [(MEMORY, "active-memory"), (SHIPPING, "log-shipping"), (HSTORE, "h-store"), (CALVIN, "calvin")];

/// Nodes where the paper has five machines.
const NODES: f64 = 5.0;

/// What all experiments have in common.
fn base() -> Experiment {
    Experiment {
        name: "",
        paper: PAPER,
        place: "",
        shows: "",
        x: "",
        columns: COLUMNS,
        calibrate: false,
        sweep: |_| Vec::new(),
        scaled: |scale| {
            format!(
                "Nodes of one process, driven by {} threads over shared memory, for the paper's machines; {} records \
                 for each node, for its 5 million. A node has five transactions open, Calvin's 50, in epochs of half \
                 of those or a millisecond. All schemes have the same storage, workload and links. Copies were \
                 compared after each run, and were alike.",
                scale.processors,
                records(scale)
            )
        },
        panels: |_| Vec::new(),
        beside: |_| Vec::new(),
        differs: |_| Vec::new(),
    }
}

fn records(scale: &Scale) -> u32 {
    if scale.quick { 2_000 } else { 50_000 }
}

/// Runs of some schemes at some places.
fn runs(scale: &Scale, schemes: &[(&str, &str)], xs: &[f64], options: impl Fn(f64) -> String) -> Vec<Run> {
    let run = |(series, scheme): &(&str, &str), x: f64| Run {
        series: (*series).to_owned(),
        x,
        arguments: format!("platform --scheme {scheme} --records {} {}", records(scale), options(x)),
    };
    schemes.iter().flat_map(|scheme| xs.iter().map(move |x| (scheme, *x))).map(|(scheme, x)| run(scheme, x)).collect()
}

/// The first and the last of some places if it is to be quick.
fn some(scale: &Scale, xs: &[f64]) -> Vec<f64> {
    if scale.quick { vec![xs[0], xs[xs.len() - 1]] } else { xs.to_vec() }
}

/// Throughput as it was measured.
fn measured(results: &Results, x: &str) -> Panel {
    let title = "On the processors of one machine";
    Panel::over_numbers(title, x, "k transactions/s", results.curves("tps", 1e-3))
}

/// How one scheme stands to another one, by throughput.
fn ratio(results: &Results, (of, to): (&str, &str), x: f64) -> f64 {
    results.at(of, x, "tps") / results.at(to, x, "tps")
}

/// The scheme that does most at a place, and how much, but for one.
fn best_but(results: &Results, but: &str, x: f64) -> (&'static str, f64) {
    let others = SCHEMES.iter().filter(|(name, _)| *name != but);
    let rates = others.map(|(name, _)| (*name, results.at(name, x, "tps"))).filter(|(_, rate)| rate.is_finite());
    rates.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((SHIPPING, f64::NAN))
}

/// Where the experiment ends.
fn last(results: &Results) -> f64 {
    results.runs.iter().map(|run| run.x).max_by(f64::total_cmp).unwrap_or(f64::NAN)
}

/// Where it begins.
fn first(results: &Results) -> f64 {
    results.runs.iter().map(|run| run.x).min_by(f64::total_cmp).unwrap_or(f64::NAN)
}

/// A number of times, for people.
fn times(number: f64) -> String {
    if number.is_finite() { format!("{number:.2} times") } else { "not measured".to_owned() }
}
