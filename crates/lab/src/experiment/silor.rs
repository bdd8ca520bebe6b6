//! SiloR, section 6: what logging by epochs and checkpoints cost a database in memory, over time.
//!
//! The paper's machine has 32 cores (28 run transactions) and four disks. Here one
//! processor is left to loggers and checkpointers, and there is one disk. Its runs of ten minutes
//! become runs of seconds, with a smaller database, so that several checkpoints fall into each.

use serde_json::Value;

use super::{
    frame::{Beside, Column, Experiment, Paper, Run, Scale, column},
    plot::{Curve, Panel},
    report::{list, noise, percent, thousands},
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
    column("slowest_half_second", "/halves/slowest"),
    column("halves_with_checkpoint", "/halves/with_checkpoint"),
];

/// All of its experiments.
pub(super) fn all() -> Vec<Experiment> {
    vec![
        Experiment {
            name: "silor/figure1",
            place: "figures 1 to 3, section 6.2",
            shows: "YCSB 70/30 over time, with checkpoints",
            sweep: |scale| three(scale, "ycsb --mix 70/30 --isolation serializable"),
            beside: |results| beside(results, &YCSB),
            differs: |results| differs(results, &YCSB),
            ..frame()
        },
        Experiment {
            name: "silor/figure4",
            place: "figure 4, section 6.2",
            shows: "YCSB 70/30 over time, by how often a checkpoint is synced",
            sweep: |scale| {
                let workload = "ycsb --mix 70/30 --isolation serializable";
                [(ONCE, 0), (OFTEN, 32 << 20)]
                    .map(|(series, bytes)| one(scale, series, workload, &synced_each(bytes)))
                    .to_vec()
            },
            beside: beside_syncs,
            differs: differs_syncs,
            ..frame()
        },
        Experiment {
            name: "silor/figure5",
            place: "figures 5 and 7, section 6.3",
            shows: "TPC-C over time, with checkpoints",
            sweep: |scale| three(scale, &format!("tpcc --isolation serializable --warehouses {}", workers(scale))),
            beside: |results| beside(results, &TPCC),
            differs: |results| differs(results, &TPCC),
            ..frame()
        },
    ]
}

/// What all of them have in common.
fn frame() -> Experiment {
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
                 processor(s). Epochs are 40 ms \
                 long, as there. Log and checkpoints are in files below /var/tmp. A checkpoint begins as soon \
                 as the one before has ended, \
                 at the earliest a second after that has begun; it takes at most a quarter of a processor.",
                workers(scale),
                scale.processors
            )
        },
        panels,
        beside: |_| Vec::new(),
        differs: |_| Vec::new(),
    }
}

/// Threads that run transactions: one processor is left to the others.
fn workers(scale: &Scale) -> usize {
    if scale.quick { 1 } else { scale.processors.saturating_sub(1).max(1) }
}

fn one(scale: &Scale, series: &str, workload: &str, options: &str) -> Run {
    let threads = workers(scale);
    Run { series: series.to_owned(), x: threads as f64, arguments: format!("{workload} --threads {threads} {options}") }
}

fn three(scale: &Scale, workload: &str) -> Vec<Run> {
    vec![
        one(scale, MEMORY, workload, "--domain none"),
        one(scale, LOG, workload, DISK),
        one(scale, ALL, workload, &format!("{DISK} {CHECKPOINTS}")),
    ]
}

const ONCE: &str = "One sync at the end";
const OFTEN: &str = "SiloR (a sync each 32 MB)";

fn synced_each(bytes: u64) -> String {
    format!("{DISK} {CHECKPOINTS} --checkpoint-sync-bytes {bytes}")
}

/// Half seconds of the round in the middle.
fn halves<'r>(results: &'r Results, series: &str) -> &'r [Value] {
    let x = results.xs(series).first().copied().unwrap_or(f64::NAN);
    let middle = results.middle(series, x, "tps").and_then(|value| value["half_seconds"].as_array());
    middle.map_or(&[], Vec::as_slice)
}

fn panels(results: &Results) -> Vec<Panel> {
    let curves = |what: &str, factor: f64, wanted: &[&str]| -> Vec<Curve> {
        let wanted = results.series().into_iter().filter(|series| wanted.is_empty() || wanted.contains(series));
        let curve = |series: &str| {
            let points = halves(results, series).iter();
            let points = points.filter_map(|half| Some((half["seconds"].as_f64()?, half[what].as_f64()? * factor)));
            Curve::fine(series, results.number(series), points)
        };
        wanted.map(curve).collect()
    };
    // The checkpoints of the last series: the only one, or the one with what the paper advises.
    let shaded = results.series().last().map_or(Vec::new(), |series| {
        let pairs = halves(results, series).windows(2).filter(|pair| pair[1]["checkpointing"] == 1);
        pairs.filter_map(|pair| Some((pair[0]["seconds"].as_f64()?, pair[1]["seconds"].as_f64()?))).collect()
    });
    let over_time = |title: &str, y: &str, curves| Panel {
        ticks: Vec::new(),
        shaded: Vec::clone(&shaded),
        ..Panel::over_numbers(title, "seconds", y, curves)
    };
    vec![
        over_time("Throughput; grey while a checkpoint is written", "k transactions/s", curves("tps", 1e-3, &[])),
        over_time("Latency to durability", "ms", curves("latency_us", 1e-3, &[LOG, ALL, ONCE, OFTEN])),
    ]
}

/// What the paper states of one workload.
struct Stated {
    /// Transactions per second of MemSilo, LogSilo and SiloR.
    rates: [f64; 3],
    /// The mean latency of SiloR, in milliseconds.
    latency: f64,
    source: &'static str,
}

const YCSB: Stated = Stated { rates: [10.83e6, 9.01e6, 8.76e6], latency: 90.0, source: "figure 1" };
const TPCC: Stated = Stated { rates: [592e3, 575e3, 548e3], latency: 110.0, source: "figure 5" };

/// A number of a series, which has one point.
fn of(results: &Results, series: &str, what: &str) -> f64 {
    results.xs(series).first().map_or(f64::NAN, |x| results.at(series, *x, what))
}

/// Of the throughput of MemSilo.
fn kept(results: &Results, series: &str) -> f64 {
    of(results, series, "tps") / of(results, MEMORY, "tps")
}

fn beside(results: &Results, stated: &Stated) -> Vec<Beside> {
    let [memory, log, all] = stated.rates;
    let row = |what: &str, stated_there: String, here: String| Beside {
        what: what.to_owned(),
        stated: stated_there,
        source: stated.source,
        here,
    };
    vec![
        row("MemSilo", thousands(memory), thousands(of(results, MEMORY, "tps"))),
        row("LogSilo, of MemSilo", percent(log / memory), percent(kept(results, LOG))),
        row("SiloR, of MemSilo", percent(all / memory), percent(kept(results, ALL))),
        row(
            "SiloR, mean latency",
            format!("{} ms", stated.latency),
            format!("{:.1} ms", of(results, ALL, "latency_mean_us") / 1e3),
        ),
    ]
}

fn differs(results: &Results, stated: &Stated) -> Vec<String> {
    let [memory, log, all] = stated.rates;
    let mut out = Vec::new();
    for (series, there) in [(LOG, log / memory), (ALL, all / memory)] {
        let here = kept(results, series);
        let than = if here < there - 0.02 {
            "less than"
        } else if here > there + 0.02 {
            "more than"
        } else {
            "about as much as"
        };
        out.push(format!(
            "{series} keeps {} of the throughput of MemSilo, {than} in the paper ({}).",
            percent(here),
            percent(there)
        ));
    }
    let slowest = of(results, ALL, "slowest_half_second");
    out.push(format!(
        "A checkpoint was being written in {:.0} half seconds of SiloR's run; its slowest half second has {} of \
         the mean.",
        of(results, ALL, "halves_with_checkpoint"),
        percent(slowest)
    ));
    let waits: Vec<String> = [LOG, ALL]
        .map(|series| format!("{:.1} ms for {series}", of(results, series, "latency_mean_us") / 1e3))
        .to_vec();
    out.push(format!("A commit waits in the mean {}; an epoch alone makes it 20 ms.", list(&waits)));
    out.push(noise(results));
    out
}

fn beside_syncs(results: &Results) -> Vec<Beside> {
    let row = |series: &str, stated: &str| Beside {
        what: format!("{series}: slowest half second, of the mean; longest latency"),
        stated: stated.to_owned(),
        source: "figure 4",
        here: format!(
            "{}; {:.0} ms",
            percent(of(results, series, "slowest_half_second")),
            of(results, series, "latency_max_us") / 1e3
        ),
    };
    vec![row(ONCE, "extremely bursty; latency of up to 2 s"), row(OFTEN, "almost entirely without bursts")]
}

fn differs_syncs(results: &Results) -> Vec<String> {
    let slowest = |series: &str| of(results, series, "slowest_half_second");
    let longest = |series: &str| of(results, series, "latency_max_us") / 1e3;
    let mut out = vec![format!(
        "The slowest half second has {} of the mean throughput with one sync at the end and {} with a sync each \
         32 MB; the longest commits \
         take {:.0} and {:.0} ms.",
        percent(slowest(ONCE)),
        percent(slowest(OFTEN)),
        longest(ONCE),
        longest(OFTEN)
    )];
    out.push(if slowest(OFTEN) > slowest(ONCE) && longest(OFTEN) < longest(ONCE) {
        "As in the paper, regular syncs make it steadier.".to_owned()
    } else {
        "Unlike in the paper, regular syncs do not make both steadier: there is less to write here than there."
            .to_owned()
    });
    out.push(noise(results));
    out
}
