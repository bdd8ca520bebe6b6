//! `freshet-lab bench platform`: Active-Memory against log shipping, H-Store and Calvin, on one
//! storage and one fabric (crate `freshet-platform`).

use std::{process::ExitCode, time::Duration};

use clap::Args;
use freshet_platform::{Config, Found, Role, Scheme, Shape, Spread, Time, Workload};
use serde_json::{Value, json};

use super::options::seconds;
use freshet::Failure;

/// Options of `freshet-lab bench platform`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlatformOptions {
    /// How partitions are replicated.
    #[arg(long, value_name = "SCHEME", value_enum, default_value = "active-memory")]
    scheme: Which,
    /// The number of nodes, and of partitions.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=16))]
    nodes: u16,
    /// The number of copies of each partition: the replication factor, at most --nodes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    copies: u16,
    /// The number of records of each partition.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(20..1 << 28))]
    records: u32,
    /// The share of transactions over several partitions, in percent: two of their ten records lie
    /// elsewhere.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    multi: u8,
    /// The share of transactions that write, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    writers: u8,
    /// How many of the ten records that such a transaction reads it also writes.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=10))]
    writes: u8,
    /// Choose records from the whole cluster, with this Zipfian skew: 0 is uniform, below 1.
    #[arg(long, value_name = "T")]
    theta: Option<f64>,
    /// How many transactions the clients of each node have open. [default: 5; Calvin: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=60))]
    open: Option<u8>,
    /// The limit on what each node sends, in gigabits per second. 0: no limit.
    #[arg(long, value_name = "GBIT", default_value_t = 0.0)]
    bandwidth_gbit: f64,
    /// The number of threads that drive nodes. [default: as many as there are processors]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Divide processor time among roles, which costs some of it.
    #[arg(long)]
    roles: bool,
    /// At the end, lose the first node with all that it has under way (active-memory).
    #[arg(long)]
    lose: bool,
    /// At the end, execute all transactions again, one after another, and compare. Copies are
    /// always compared with one another.
    #[arg(long)]
    check: bool,
    /// How long to measure, in seconds.
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// How long to run before measuring, in seconds.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    warmup: f64,
    /// The seed of all random numbers.
    #[arg(long, value_name = "SEED", env = "FRESHET_SEED", default_value_t = 42)]
    seed: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// The schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// Undo entries, rows and commit marks are written into others' memory.
    ActiveMemory,
    /// Backups replay records of the log.
    LogShipping,
    /// Partitions and their backups run the same transactions one after another.
    #[value(name = "h-store")]
    HStore,
    /// All copies run the same transactions with locks granted in one order.
    Calvin,
}

impl PlatformOptions {
    fn config(&self) -> Config {
        let (scheme, open) = match self.scheme {
            Which::ActiveMemory => (Scheme::ActiveMemory, 5),
            Which::LogShipping => (Scheme::LogShipping, 5),
            Which::HStore => (Scheme::HStore, 5),
            Which::Calvin => (Scheme::Calvin, 50),
        };
        Config {
            scheme,
            shape: Shape { nodes: self.nodes.into(), copies: self.copies.into(), records: self.records },
            workload: Workload {
                multi: self.multi,
                writers: self.writers,
                writes: self.writes,
                spread: self.theta.map_or(Spread::Home, Spread::Cluster),
            },
            open: self.open.map_or(open, usize::from),
            gigabits: (self.bandwidth_gbit != 0.0).then_some(self.bandwidth_gbit),
            roles: self.roles,
            check: self.check,
            seed: self.seed,
        }
    }
}

/// Runs a cluster, and prints what it found.
pub(crate) fn run(options: &PlatformOptions) -> Result<ExitCode, Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let time = Time {
        warmup: Duration::from_secs_f64(options.warmup),
        measure: Duration::from_secs_f64(options.seconds),
        threads: options.threads.map_or(processors, usize::from),
        lose: options.lose,
    };
    let found = freshet_platform::run(&options.config(), &time).map_err(|cause| Failure::new(cause.to_string()))?;
    let json = as_json(&found, options.roles);
    if options.json {
        println!("{json}");
    } else {
        print(&json);
    }
    Ok(if found.wrong.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was found, as `--json` prints it.
fn as_json(found: &Found, roles: bool) -> Value {
    let each = |amount: f64| amount / found.executed.max(1) as f64;
    let cpu = each(found.cpu.as_secs_f64() * 1e6);
    let mut times = serde_json::Map::new();
    times.insert("all".to_owned(), json!(cpu));
    for (role, time) in Role::ALL.iter().zip(found.roles).filter(|_| roles) {
        times.insert(role.name().to_owned(), json!(each(time.as_secs_f64() * 1e6)));
    }
    let latency = |share: f64| {
        let at = (found.latencies.len() as f64 * share) as usize;
        found.latencies.get(at).map(|nanoseconds| *nanoseconds as f64 / 1e3)
    };
    let mean = found.latencies.iter().sum::<u64>() as f64 / found.latencies.len().max(1) as f64 / 1e3;
    json!({
        "tps": found.executed as f64 / found.seconds.max(1e-9),
        "executed": found.executed,
        "aborts_per_txn": each(found.aborted as f64),
        "cpu_us_per_txn": times,
        "wire_bytes_per_txn": each(found.wire_bytes as f64),
        "wire_writes_per_txn": each(found.wire_writes as f64),
        "latency_us": {"mean": mean, "p50": latency(0.5), "p99": latency(0.99)},
        "recovery": found.recovery.map(|recovery| json!({
            "us": recovery.time.as_secs_f64() * 1e6,
            "undone": recovery.undone,
        })),
        "wrong": found.wrong,
    })
}

fn print(json: &Value) {
    let number = |pointer: &str| json.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    println!("transactions {:.0}/s, {:.3} times begun again", number("/tps"), number("/aborts_per_txn"));
    println!("latency      {:.1} us (p50), {:.1} us (p99)", number("/latency_us/p50"), number("/latency_us/p99"));
    println!(
        "network      {:.0} bytes in {:.1} writes a transaction",
        number("/wire_bytes_per_txn"),
        number("/wire_writes_per_txn")
    );
    let times: Vec<String> = json["cpu_us_per_txn"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(role, time)| format!("{role} {:.2}", time.as_f64().unwrap_or(0.0)))
        .collect();
    println!("CPU          us a transaction: {}", times.join(", "));
    if let Some(recovery) = json["recovery"].as_object() {
        println!("recovery     {} us, {} parts of transactions undone", recovery["us"], recovery["undone"]);
    }
    println!("copies       {}", json["wrong"].as_str().unwrap_or("alike"));
}
