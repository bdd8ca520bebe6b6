//! `freshet-lab bench copies`: what three copies of a database cost, by how the second and the
//! third are kept: by two standbys that make versions of everything (log shipping, the rival of the
//! Active-Memory paper), by two with replay arrays, or as two mirrors.
//!
//! The workload is the paper's (section 6.1.2): rows of ten columns of 100 bytes, transactions that
//! read ten of them and change a column of each. All keep their copies in memory. Each kind is run
//! in a fresh process, in turns with the others, and compared with them round by round; first with
//! all that the primary's thread can do, then with less, for the latency.

use std::process::ExitCode;

use clap::Args;
use freshet_engine::{Domain, FabricKind};
use serde_json::Value;

use super::child::{Results, child};
use freshet::Failure;

/// Options of `freshet-lab bench copies`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CopiesOptions {
    /// How often each kind is run.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// How long each run measures, in seconds.
    #[arg(long, value_name = "S", default_value_t = 3)]
    seconds: u16,
    /// The number of records.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    records: u64,
    /// The fabric: tcp, shm or verbs.
    #[arg(long, value_name = "FABRIC", default_value_t = FabricKind::Shm)]
    fabric: FabricKind,
    /// Where the logs of the primary and of standbys persist; with none, all stay in memory, as
    /// mirrors do.
    #[arg(long, value_name = "DOMAIN", value_enum, default_value = "none")]
    domain: Domain,
    /// The load while latency is measured: the share of the time in which the thread that runs
    /// transactions works, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    load: u8,
}

/// How the second and the third copy are kept: a name, and the options of `bench`.
const KINDS: [(&str, &str); 3] = [
    ("two standbys, `--apply full`", "--standbys 2 --apply full"),
    ("two standbys, replay arrays", "--standbys 2"),
    ("two mirrors", "--mirrors 2"),
];

/// Where results lie in what a run prints.
const ALL: &str = "/cpu_us_per_txn/all_nodes";
const PRIMARY: &str = "/cpu_us_per_txn/primary";
const SHIP: &str = "/cpu_us_per_txn/ship";
const P50: &str = "/latency_us/p50";
const P99: &str = "/latency_us/p99";

/// Bytes that each copy was sent, for each transaction.
fn sent(result: &Value) -> Option<f64> {
    let sent = result.pointer("/mirror/bytes_per_txn").or_else(|| result.pointer("/standby/wire_bytes_per_txn"));
    sent.and_then(Value::as_f64)
}

/// Of a number that lies there.
fn at(pointer: &'static str) -> impl Fn(&Value) -> Option<f64> {
    move |result| result.pointer(pointer)?.as_f64()
}

/// What is run of one kind, with this load.
fn arguments(options: &CopiesOptions, kind: &str, load: u8) -> Vec<String> {
    let CopiesOptions { seconds, records, fabric, domain, .. } = options;
    let domain = format!("{domain:?}").to_lowercase();
    let run = format!(
        "ycsb --mix RMW --operations 10 --records {records} --isolation serializable --safety very-safe \
         --fabric {fabric} --domain {domain} --interval-us 1000 --no-probes --warmup 1 --seconds {seconds} \
         --load {load} {kind}"
    );
    run.split(' ').map(str::to_owned).collect()
}

/// Runs everything in turns and prints tables in Markdown.
pub(crate) fn run(options: &CopiesOptions) -> Result<ExitCode, Failure> {
    let (mut loaded, mut lighter) = (KINDS.map(|_| Results(Vec::new())), KINDS.map(|_| Results(Vec::new())));
    for round in 1..=options.rounds {
        for (number, (name, kind)) in KINDS.iter().enumerate() {
            eprintln!("round {round} of {}: {name}", options.rounds);
            loaded[number].0.push(child(&arguments(options, kind, 100))?);
            lighter[number].0.push(child(&arguments(options, kind, options.load))?);
        }
    }
    println!("Medians of {} runs in turns, {} s each:\n", options.rounds, options.seconds);
    println!("| three copies | transactions/s | CPU, µs a transaction: all nodes | primary | of that shipping |");
    println!("|---|---|---|---|---|");
    for ((name, _), results) in KINDS.iter().zip(&loaded) {
        let [tps, all, primary, ship] = ["/tps", ALL, PRIMARY, SHIP].map(|pointer| results.median(pointer));
        println!("| {name} | {:.1} k/s | {all:.1} | {primary:.1} | {ship:.2} |", tps / 1e3);
    }
    println!(
        "\n| three copies | bytes to each copy | latency p50 / p99 | the same with a load of {} % |",
        options.load
    );
    println!("|---|---|---|---|");
    for (number, (name, _)) in KINDS.iter().enumerate() {
        let latency = |results: &Results| format!("{:.0} / {:.0} µs", results.median(P50), results.median(P99));
        let bytes = loaded[number].median_of(&sent);
        println!("| {name} | {bytes:.0} | {} | {} |", latency(&loaded[number]), latency(&lighter[number]));
    }
    print_goals(&loaded, &lighter);
    println!("\n`freshet-lab bench` with:\n");
    for (name, kind) in KINDS {
        println!("- {name}: `{}`", arguments(options, kind, 100).join(" "));
    }
    Ok(ExitCode::SUCCESS)
}

/// What mirrors are to reach, and what they do.
fn print_goals(loaded: &[Results; 3], lighter: &[Results; 3]) {
    let [full, arrays, mirrors] = loaded;
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    println!("\n| mirrors | wanted | measured |\n|---|---|---|");
    for (what, wanted, measured) in [
        ("CPU of all nodes, of `--apply full`", "at most 60 %", percent(mirrors.ratio(full, &at(ALL)))),
        ("the same, of replay arrays", "at most 90 %", percent(mirrors.ratio(arrays, &at(ALL)))),
        (
            "all of the primary, of that with log standbys",
            "at most 130 %",
            percent(mirrors.ratio(arrays, &at(PRIMARY))),
        ),
        ("shipping alone, of that to log standbys", "at most 130 %", percent(mirrors.ratio(arrays, &at(SHIP)))),
        ("bytes to each copy, of log shipping's", "at most 200 %", percent(mirrors.ratio(arrays, &sent))),
        ("latency p50, of log shipping's, with full load", "at most 100 %", percent(mirrors.ratio(arrays, &at(P50)))),
        ("the same with less load", "at most 100 %", percent(lighter[2].ratio(&lighter[1], &at(P50)))),
        ("a mirror's own processor, loaded", "below 0.5 %", percent(mirrors.median("/mirror/core_share"))),
        ("the same without load", "below 0.5 %", percent(mirrors.median("/mirror/idle_core_share"))),
    ] {
        println!("| {what} | {wanted} | {measured} |");
    }
}
