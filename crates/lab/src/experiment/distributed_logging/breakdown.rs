//! Figures 1, 5 and 7: where the time of a transaction is.
//!
//! The paper takes stacks. Here the accounts of processor time are compared: with a log and without
//! one, with as many threads and with one.

use super::{
    super::{
        frame::Beside,
        plot::{Curve, Point},
    },
    *,
};

const WRITES: [Workload; 3] = [UPDATE_LOCATION, TPC_B, PAYMENT];

pub(super) fn figure_1() -> Experiment {
    Experiment {
        name: "distributed-logging/figure1",
        place: "figure 1, section 1",
        shows: "where the time of Update Location is, with one log",
        sweep: |scale| sweep(scale, &[UPDATE_LOCATION], &[NONE, CENTRAL]),
        panels: |results| panels(results, &[UPDATE_LOCATION], CENTRAL),
        beside: |results| {
            let stated = "a major overhead as load increases, up to 48 threads";
            vec![contended(results, UPDATE_LOCATION, CENTRAL, stated)]
        },
        differs: |results| differs(results, &[UPDATE_LOCATION], CENTRAL),
        ..frame()
    }
}

pub(super) fn figure_5() -> Experiment {
    Experiment {
        name: "distributed-logging/figure5",
        place: "figure 5, section 5.2",
        shows: "where the time of transactions that write is, with several logs",
        sweep: |scale| sweep(scale, &WRITES, &[NONE, TX_D]),
        panels: |results| panels(results, &WRITES, TX_D),
        beside: |results| {
            let stated = "low; other contention grows for TPC-B and TPC-C";
            WRITES.map(|workload| contended(results, workload, TX_D, stated)).to_vec()
        },
        differs: |results| differs(results, &WRITES, TX_D),
        ..frame()
    }
}

pub(super) fn figure_7() -> Experiment {
    Experiment {
        name: "distributed-logging/figure7",
        place: "figure 7, section 5.2",
        shows: "where the time of TPC-C's full mix is, with several logs and passive group commit",
        sweep: |scale| sweep(scale, &[TPC_C], &[NONE, TX_V]),
        panels: |results| panels(results, &[TPC_C], TX_V),
        beside: |results| vec![contended(results, TPC_C, TX_V, "low, and it hardly changes")],
        differs: |results| differs(results, &[TPC_C], TX_V),
        ..frame()
    }
}

fn frame() -> Experiment {
    Experiment {
        scaled: |scale| {
            format!(
                "{} The parts are differences of processor time, not stacks: executing is that without a log and with \
                 one thread; its contention is what it takes more with more threads; logging is what a log adds with \
                 one thread; contention for it is what it adds beyond with more. Time that a thread waits is not in \
                 it.",
                super::scaled(scale)
            )
        },
        ..by_threads()
    }
}

/// The parts of a transaction's processor time, and their names.
const PARTS: [&str; 5] = ["executing", "its contention", "logging", "contention for the log", "the log's threads"];
/// Contention for the log among them.
const CONTENTION: usize = 3;

/// The parts at one point, in microseconds.
fn parts(results: &Results, workload: Workload, system: System, threads: f64) -> [f64; 5] {
    let at = |system, threads, column: &str| results.at(&series(workload, system), threads, column);
    let worker = |system, threads| at(system, threads, "forward_cpu_us_per_txn");
    let log = |threads| worker(system, threads) - worker(NONE, threads);
    [
        worker(NONE, 1.0),
        worker(NONE, threads) - worker(NONE, 1.0),
        log(1.0),
        log(threads) - log(1.0),
        at(system, threads, "log_cpu_us_per_txn"),
    ]
}

/// The same as shares of all.
fn shares(results: &Results, workload: Workload, system: System, threads: f64) -> [f64; 5] {
    let parts = parts(results, workload, system, threads);
    let all: f64 = parts.iter().sum();
    parts.map(|part| part / all)
}

fn panels(results: &Results, workloads: &[Workload], system: System) -> Vec<Panel> {
    let of_workload = |workload: &Workload| {
        let xs = results.xs(&series(*workload, system));
        let curve = |(color, name): (usize, &&str)| {
            let point = |x: &f64| {
                let y = shares(results, *workload, system, *x)[color] * 100.0;
                Point { x: *x, y, low: y, high: y }
            };
            Curve::measured(name, color, xs.iter().map(point).filter(|point| point.y.is_finite()).collect())
        };
        let curves = PARTS.iter().enumerate().map(curve).collect();
        let title = series(*workload, system);
        ticks(Panel::over_numbers(&title, "threads", "% of the processor time of a transaction", curves))
    };
    workloads.iter().map(of_workload).collect()
}

fn contended(results: &Results, workload: Workload, system: System, stated: &str) -> Beside {
    let threads = most(results, &series(workload, system));
    Beside {
        what: format!("{}, {}, contention for the log with {threads} thread(s)", workload.name, system.name),
        stated: stated.to_owned(),
        source: "figures 1, 5 and 7",
        here: percent(shares(results, workload, system, threads)[CONTENTION]),
    }
}

fn differs(results: &Results, workloads: &[Workload], system: System) -> Vec<String> {
    let mut out = Vec::new();
    for workload in workloads {
        let threads = most(results, &series(*workload, system));
        let all: f64 = parts(results, *workload, system, threads).iter().sum();
        let shares = shares(results, *workload, system, threads);
        let figures: Vec<String> =
            PARTS.iter().zip(shares).map(|(name, share)| format!("{name} {}", percent(share))).collect();
        out.push(format!(
            "{} with {threads} thread(s) and {} takes {all:.2} us of processor time: {}.",
            workload.name,
            system.name,
            list(&figures)
        ));
    }
    out.push(noise(results));
    out
}
