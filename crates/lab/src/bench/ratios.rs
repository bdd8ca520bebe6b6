//! `freshet-lab bench ratios`: the figures that Freshet promises, as ratios within one run.
//!
//! Machines and hours differ by tens of percent, so what is compared is run in turns, several
//! times, each time in a fresh process, and the medians are compared.

use std::process::ExitCode;

use clap::Args;

use super::child::{Results, child};
use freshet::Failure;

/// Options of `freshet-lab bench ratios`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RatiosOptions {
    /// How often each benchmark is run.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// How long each measures, in seconds.
    #[arg(long, value_name = "S", default_value_t = 5)]
    seconds: u16,
    /// Records of YCSB.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
}

/// What is run: a name, and the options behind `bench`.
const RUNS: [(&str, &str); 7] = [
    ("tpcc", "tpcc --isolation si --domain none --pin 0"),
    ("tpcc-serializable", "tpcc --isolation serializable --domain none --pin 0"),
    ("tpcc-log", "tpcc --isolation si --domain file"),
    ("tpcc-log-pinned", "tpcc --isolation si --domain file --pin 0"),
    ("tpcc-standby", "tpcc --isolation si --domain file --standbys 1 --safety very-safe --pin 0/1"),
    ("ycsb", "ycsb --mix 70/30 --domain none --pin 0"),
    ("ycsb-log", "ycsb --mix 70/30 --domain file"),
];

/// Runs everything in turns and prints a table in Markdown.
pub(crate) fn run(options: &RatiosOptions) -> Result<ExitCode, Failure> {
    let mut results: Vec<Results> = RUNS.iter().map(|_| Results(Vec::new())).collect();
    let mut restarts = Results(Vec::new());
    for round in 1..=options.rounds {
        for ((name, arguments), results) in RUNS.iter().zip(&mut results) {
            eprintln!("round {round} of {}: {name}", options.rounds);
            let mut arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
            arguments.extend(["--seconds".to_owned(), options.seconds.to_string()]);
            if arguments[0] == "ycsb" {
                arguments.extend(["--records".to_owned(), options.records.to_string()]);
            }
            results.0.push(child(&arguments)?);
        }
        eprintln!("round {round} of {}: restart", options.rounds);
        restarts.0.push(child(&["restart".to_owned()])?);
    }
    let of = |name: &str| {
        let position = RUNS.iter().position(|(run, _)| *run == name).expect("every name is one of the runs");
        &results[position]
    };
    let tps = |name: &str| of(name).median("/tps");
    let thousands = |number: f64| format!("{:.1} k/s", number / 1e3);
    let percent = |part: f64, whole: f64| format!("{:.1} %", (1.0 - part / whole) * 100.0);
    let standby = of("tpcc-standby");
    let (forward, replay) = (standby.median("/cpu_us_per_txn/forward"), standby.median("/cpu_us_per_txn/replay"));
    println!("| what | wanted | measured |\n|---|---|---|");
    for (what, wanted, measured) in [
        ("TPC-C, 1 thread, 1 warehouse, snapshot isolation, no log", "ERMIA's there", thousands(tps("tpcc"))),
        ("the same, serializable", "", thousands(tps("tpcc-serializable"))),
        ("YCSB 70/30, 1 thread, no log", "Silo's there", thousands(tps("ycsb"))),
        ("cost of logging, TPC-C", "at most 7 %", percent(tps("tpcc-log"), tps("tpcc"))),
        ("cost of logging, YCSB", "at most 20 %", percent(tps("ycsb-log"), tps("ycsb"))),
        (
            "cost of one synchronous standby on the other core (very-safe, log in files)",
            "at most 6 %",
            percent(tps("tpcc-standby"), tps("tpcc-log-pinned")),
        ),
        ("the same against the primary that has both cores", "", percent(tps("tpcc-standby"), tps("tpcc-log"))),
        ("replay CPU / forward CPU", "at most 0.25", format!("{:.2}", replay / forward)),
        ("freshness, mean", "at least 99 %", format!("{:.3} %", standby.median("/freshness/mean") * 100.0)),
        ("visible after acknowledged, p99", "low ms", format!("{:.2} ms", standby.median("/visibility_us/p99") / 1e3)),
        ("latency to durable with a standby, p50", "", format!("{:.2} ms", standby.median("/latency_us/p50") / 1e3)),
        ("restart, two threads", "at least 500 MB/s", format!("{:.0} MB/s", restarts.median("/bytes_per_s") / 1e6)),
        (
            "memory of a record beyond its row, YCSB",
            "below 64",
            format!("{:.1} bytes", of("ycsb").median("/load/overhead_bytes_per_record")),
        ),
    ] {
        println!("| {what} | {wanted} | {measured} |");
    }
    println!("\nMedians of {} runs in turns, {} s each:\n", options.rounds, options.seconds);
    for (name, arguments) in RUNS {
        println!("- {name}: `freshet-lab bench {arguments}`");
    }
    println!("- restart: `freshet-lab bench restart`");
    Ok(ExitCode::SUCCESS)
}
