//! Scalable Logging through Emerging Non-Volatile Memory, section 5: throughput by threads with one
//! log and with several, and where the time is.
//!
//! The paper's server has 24 cores and 48 hardware threads; here threads go as far as there are
//! processors, and a [`model`] says what the counter that all streams share would do beyond. Its
//! machine emulates persistent memory with DRAM, and so does this: a mapped file in memory.
//! Freshet's streams divide bytes and syncs, not the order: every block has its place from one
//! counter.

mod breakdown;
mod model;
mod scalability;

use super::{
    frame::{Column, Experiment, Paper, Run, Scale, column},
    plot::Panel,
    report::{list, noise, percent, than, thousands},
    results::Results,
};

const PAPER: Paper = Paper {
    title: "Distributed logging",
    reference: "Tianzheng Wang, Ryan Johnson: Scalable Logging through Emerging Non-Volatile Memory, PVLDB 7(10), 2014",
    machine: "four sockets with six cores each, 48 hardware threads, Shore-MT, 20 logs",
};

const COLUMNS: &[Column] = &[
    column("tps", "/tps"),
    column("latency_p50_us", "/latency_us/p50"),
    column("latency_p99_us", "/latency_us/p99"),
    column("log_bytes_per_txn", "/log_bytes_per_txn"),
    column("forward_cpu_us_per_txn", "/cpu_us_per_txn/forward"),
    column("log_cpu_us_per_txn", "/cpu_us_per_txn/log"),
    column("worker_busy", "/worker_busy"),
];

/// All of its experiments.
pub(super) fn all() -> Vec<Experiment> {
    vec![
        breakdown::figure_1(),
        scalability::figure_4(),
        breakdown::figure_5(),
        scalability::figure_6(),
        breakdown::figure_7(),
        scalability::figure_8(),
    ]
}

/// What all of them have in common.
fn by_threads() -> Experiment {
    Experiment {
        name: "",
        paper: PAPER,
        place: "",
        shows: "",
        x: "threads",
        columns: COLUMNS,
        calibrate: false,
        sweep: |_| Vec::new(),
        scaled,
        panels: |_| Vec::new(),
        beside: |_| Vec::new(),
        differs: |_| Vec::new(),
    }
}

fn scaled(scale: &Scale) -> String {
    format!(
        "Threads share the {} processor(s) with the log's own. Central is one stream in a file in memory, \
         with pipelined group commit, for Aether; Shore-MT without its lock inheritance (Baseline) has no \
         counterpart. TX and PG are {} streams in persistent memory, divided by transaction or page, for the \
         paper's 20: D takes the caches for durable, V stores around them and commits by passive group \
         commit, and 1.2 us is waited for at each insertion where the series says so. There is one socket, so \
         no stream is farther than another. Snapshot isolation.",
        scale.processors,
        streams(scale)
    )
}

/// One of the systems that are compared: its name and its options.
#[derive(Clone, Copy)]
struct System {
    name: &'static str,
    options: &'static str,
    distributed: bool,
}

const fn distributed(name: &'static str, options: &'static str) -> System {
    System { name, options, distributed: true }
}

const NONE: System = System { name: "no log", options: "--domain none", distributed: false };
const CENTRAL: System = System { name: "Central", options: "--domain file", distributed: false };
const TX_D: System = distributed("TX-D", "--log-persist-method eadr");
const TX_D_DELAY: System = distributed("TX-D (1.2 us)", "--log-persist-method eadr --log-persist-delay-ns 1200");
const PG_D: System = distributed("PG-D", "--log-persist-method eadr --log-divide-by page");
const PG_D_DELAY: System =
    distributed("PG-D (1.2 us)", "--log-persist-method eadr --log-divide-by page --log-persist-delay-ns 1200");
const TX_V: System = distributed("TX-V", "--log-group-commit passive");
const TX_V_DELAY: System = distributed("TX-V (1.2 us)", "--log-group-commit passive --log-persist-delay-ns 1200");
const PG_V: System = distributed("PG-V", "--log-group-commit passive --log-divide-by page");

/// A workload: its name, and its options at full scale and where it only has to work.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    options: &'static str,
    quick: &'static str,
}

const UPDATE_LOCATION: Workload = Workload {
    name: "Update Location",
    options: "tatp --mix update-location",
    quick: "tatp --mix update-location --subscribers 2000",
};
const TATP: Workload =
    Workload { name: "TATP", options: "tatp --mix full", quick: "tatp --mix full --subscribers 2000" };
const TPC_B: Workload = Workload {
    name: "TPC-B",
    options: "tpcb --branches 8 --accounts 20000",
    quick: "tpcb --branches 8 --accounts 500",
};
const PAYMENT: Workload = Workload {
    name: "Payment",
    options: "tpcc --mix payment --warehouses 2",
    quick: "tpcc --mix payment --warehouses 1",
};
const TPC_C: Workload =
    Workload { name: "TPC-C", options: "tpcc --mix full --warehouses 2", quick: "tpcc --mix full --warehouses 1" };

/// Streams of distributed logs: one for each processor, and two at least.
fn streams(scale: &Scale) -> usize {
    scale.processors.clamp(2, 8)
}

/// The series of a system under a workload.
fn series(workload: Workload, system: System) -> String {
    format!("{}, {}", workload.name, system.name)
}

/// Every system under every workload with every number of threads.
fn sweep(scale: &Scale, workloads: &[Workload], systems: &[System]) -> Vec<Run> {
    let mut runs = Vec::new();
    for workload in workloads {
        for threads in scale.threads() {
            for system in systems {
                let what = if scale.quick { workload.quick } else { workload.options };
                let log = match system.distributed {
                    true => {
                        format!("--domain pmem --interval-us 100 --log-streams {} {}", streams(scale), system.options)
                    }
                    false => system.options.to_owned(),
                };
                runs.push(Run {
                    series: series(*workload, *system),
                    x: threads as f64,
                    arguments: format!("{what} --isolation si --threads {threads} {log}"),
                });
            }
        }
    }
    runs
}

/// The most threads of a series.
fn most(results: &Results, series: &str) -> f64 {
    results.xs(series).into_iter().max_by(f64::total_cmp).unwrap_or(f64::NAN)
}

/// Ticks of an axis of threads whose places are logarithms.
fn ticks(panel: Panel) -> Panel {
    let mut threads: Vec<f64> = panel.curves.iter().flat_map(|curve| &curve.points).map(|point| point.x).collect();
    threads.retain(|x| x.is_finite());
    threads.sort_by(f64::total_cmp);
    threads.dedup();
    let ticks = threads.iter().map(|x| (x.log2(), x.to_string())).collect();
    let curves = panel.curves.into_iter().map(|curve| curve.at(f64::log2)).collect();
    Panel { ticks, curves, ..panel }
}
