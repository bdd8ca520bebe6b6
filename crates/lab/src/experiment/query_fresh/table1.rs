//! Table 1: what one standby that only receives and persists costs, by network.

use super::{
    super::{
        frame::{Beside, Experiment, OF_TPCC, Run, Scale},
        plot::{Curve, Panel, Point},
        report::{short, than},
        results::Results,
    },
    *,
};

/// Threads; standalone, over RDMA and over TCP/IP in thousands per second; log of the standalone
/// server in MB/s.
const TABLE: [(f64, f64, f64, f64, f64); 5] = [
    (1.0, 53.82, 51.65, 50.66, 108.21),
    (2.0, 99.11, 93.86, 92.84, 198.83),
    (4.0, 191.95, 180.99, 176.80, 383.23),
    (8.0, 346.34, 326.17, 294.54, 694.83),
    (16.0, 624.74, 586.80, 336.20, 1456.62),
];

const SHM: &str = "Shared memory as 56 Gb/s";
const TCP: &str = "TCP as 10 Gb/s";
const OPEN: &str = "TCP without a limit";

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "query-fresh/table1",
        paper: PAPER,
        place: "table 1, section 4.4",
        shows: "throughput and log rate alone, and with one standby that does not replay, by network",
        x: "threads",
        columns: OF_TPCC,
        calibrate: true,
        sweep,
        scaled: |scale| {
            format!(
                "One thread: {} More threads than one have all processors, which the standby shares. {}",
                places(scale),
                networks(scale)
            )
        },
        panels,
        beside,
        differs,
    }
}

fn sweep(scale: &Scale) -> Vec<Run> {
    let mut runs = Vec::new();
    let tpcc = tpcc(scale);
    for threads in scale.threads() {
        let workload = format!("{tpcc} --threads {threads} --warehouses {threads}");
        let (alone, apart) = if threads == 1 { (scale.alone(), scale.apart()) } else { ("", String::new()) };
        let standby = format!("--standbys 1 --safety very-safe --replay none{apart}");
        let x = threads as f64;
        runs.push(run(STANDALONE, x, format!("{workload}{alone}")));
        let (fast, slow) = (network(scale, 56.0), network(scale, 10.0));
        let survives = "--standby-domain pmem --standby-persist-method eadr";
        runs.push(run(SHM, x, format!("{workload} {standby} --fabric shm {survives} {fast}")));
        runs.push(run(TCP, x, format!("{workload} {standby} --fabric tcp {survives} {slow}")));
        runs.push(run(OPEN, x, format!("{workload} {standby} --fabric tcp {survives}")));
    }
    runs
}

fn share(results: &Results, series: &str, threads: f64) -> f64 {
    results.at(series, threads, "tps") / results.at(STANDALONE, threads, "tps")
}

fn panels(results: &Results) -> Vec<Panel> {
    let ticks: Vec<(f64, String)> =
        TABLE.iter().map(|row| row.0).map(|threads| (threads.log2(), threads.to_string())).collect();
    let stated = |number: fn(&(f64, f64, f64, f64, f64)) -> f64| -> Vec<(f64, f64)> {
        TABLE.iter().map(|row| (row.0.log2(), number(row))).collect()
    };
    let mut shares = Vec::new();
    for series in [SHM, TCP, OPEN] {
        let points = results.xs(series).into_iter().map(|x| (x, share(results, series, x) * 100.0));
        let points = points.map(|(x, y)| Point { x: x.log2(), y, low: y, high: y });
        shares.push(Curve::measured(series, results.number(series), points.collect()));
    }
    shares.push(Curve::stated("Paper: RDMA, 56 Gb/s (table 1)", 1, &stated(|row| row.2 / row.1 * 100.0)));
    shares.push(Curve::stated("Paper: TCP/IP, 10 Gb/s (table 1)", 2, &stated(|row| row.3 / row.1 * 100.0)));
    let here = results.curves("tps", 1e-3).into_iter().map(|curve| curve.at(f64::log2)).collect();
    let logs = vec![
        results.curve(STANDALONE, "log_bytes_per_s", 1e-6).at(f64::log2),
        Curve::stated("Paper: standalone (table 1)", 6, &stated(|row| row.4)),
    ];
    let panel = |title: &str, y: &str, ticks: &[(f64, String)], curves| Panel {
        ticks: ticks.to_vec(),
        ..Panel::over_numbers(title, "threads", y, curves)
    };
    let measured: Vec<(f64, String)> =
        results.xs(STANDALONE).into_iter().map(|threads| (threads.log2(), threads.to_string())).collect();
    vec![
        panel("With one standby, of standalone", "% of standalone throughput", &ticks, shares),
        panel("Primary, here", "k transactions/s", &measured, here),
        panel("Log of the standalone server", "MB/s", &ticks, logs),
    ]
}

fn beside(results: &Results) -> Vec<Beside> {
    let mut all = Vec::new();
    for threads in results.xs(STANDALONE) {
        let Some((_, alone, rdma, tcp, log)) = TABLE.iter().find(|row| (row.0 - threads).abs() < 1e-9).copied() else {
            continue;
        };
        let mut add = |what: &str, stated: String, here: String| {
            let what = format!("{what}, {threads} thread(s)");
            all.push(Beside { what, stated, source: "table 1", here });
        };
        add("standalone", format!("{alone} kTPS"), thousands(results.at(STANDALONE, threads, "tps")));
        let bytes = results.at(STANDALONE, threads, "log_bytes_per_s");
        add("its log", format!("{log} MB/s"), format!("{} MB/s", short(bytes / 1e6)));
        add("fast network, of standalone", percent(rdma / alone), percent(share(results, SHM, threads)));
        add("slow network, of standalone", percent(tcp / alone), percent(share(results, TCP, threads)));
        add("TCP without a limit, of standalone", "-".to_owned(), percent(share(results, OPEN, threads)));
    }
    all.push(Beside {
        what: "slow network at the log rate that it cannot carry (16 threads)".to_owned(),
        stated: percent(336.20 / 624.74),
        source: "table 1",
        here: {
            let most = last(results, TCP);
            format!("{} with {most} thread(s)", percent(share(results, TCP, most)))
        },
    });
    all
}

fn differs(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    let (log, tps) = (results.at(STANDALONE, 1.0, "log_bytes_per_s"), results.at(STANDALONE, 1.0, "tps"));
    out.push(format!(
        "One thread does {} and logs {} MB/s, {} bytes a transaction, against 53.82 k/s, 108.21 MB/s and {:.0} bytes \
         in the paper.",
        thousands(tps),
        short(log / 1e6),
        short(results.at(STANDALONE, 1.0, "log_bytes_per_txn")),
        108.21e6 / 53.82e3
    ));
    for (series, network, stated) in [(SHM, "fast", 51.65 / 53.82), (TCP, "slow", 50.66 / 53.82)] {
        let here = share(results, series, 1.0);
        out.push(format!(
            "One standby over the {network} network leaves {} of standalone, {} in the paper ({}).",
            percent(here),
            than(here, stated, 0.02),
            percent(stated)
        ));
    }
    let (limited, open) = (share(results, TCP, 1.0), share(results, OPEN, 1.0));
    if open - limited > 0.05 {
        out.push(format!(
            "The limit is what costs: without it TCP leaves {}. It carries {} of what one thread logs alone; \
             the paper's 10 Gb/s carry the log of one thread eleven times and that of 16 threads 0.86 times, \
             which is the ratio kept here.",
            percent(open),
            percent(10e9 / 8.0 / PAPER_LOG_RATE)
        ));
    } else {
        out.push(format!("Without the limit TCP leaves {}, so the limit costs little here.", percent(open)));
    }
    let most = last(results, STANDALONE);
    if most > 1.5 {
        let (here, there) = (results.at(STANDALONE, most, "tps") / tps, 99.11 / 53.82);
        out.push(format!(
            "{most} threads do {here:.2} times as much as one alone (the paper's two: {there:.2} times); with a \
             standby they share their processors with it and with the threads that ship, and {} is left over the fast \
             network.",
            percent(share(results, SHM, most))
        ));
    }
    out.push(noise(results));
    out
}
