//! `freshet-lab bench restart`: how fast a node comes back from its log.

use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::{Isolation, cpu::process_time};
use freshet_engine::{CheckpointKind, GroupCommit, Node, NodeConfig};
use freshet_workloads::{
    TableSet,
    random::Random,
    tpcc::{
        load::{expected_rows, load},
        population::{Population, Scale},
        tables::Tables,
    },
    ycsb::{
        self, Scratch,
        input::{Operation, Request},
        mix::Shape,
    },
};

use super::{
    crash::{self, Crashed},
    report::Loading,
    subject,
};
use freshet::{
    Failure,
    units::{bytes, now_micros},
};

/// Options of `freshet-lab bench restart`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RestartOptions {
    /// Warehouses of TPC-C: about 90 MB of log each.
    #[arg(long, value_name = "W", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    warehouses: u16,
    /// Records of YCSB instead of TPC-C: they are loaded, written to a checkpoint, and then changed
    /// until there is enough log.
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// With records: how much log there is behind the checkpoint, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    log_bytes: u64,
    /// Instead: YCSB 70/30 on the records, or TPC-C's full mix on the warehouses, runs while
    /// checkpoints are written, and its process ends without stopping anything when one is nearly
    /// complete: the most log that there can be to replay (SiloR, section 6.4).
    #[arg(long)]
    crash: bool,
    /// With crash: threads that run transactions.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=200))]
    threads: u16,
    /// With crash: how long they run at least, in seconds.
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = super::options::seconds)]
    seconds: f64,
    /// With crash: and that much longer.
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = super::options::seconds)]
    warmup: f64,
    /// Streams of the log.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    log_streams: u8,
    /// Forget what the system has read of the files before the restart: it must read from the
    /// device. Needs root.
    #[arg(long)]
    cold: bool,
    /// Threads that replay.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    replay_threads: u16,
    /// Where files are kept until the end. [default: a fresh directory on /dev/shm, or where
    /// temporary files go]
    #[arg(long, value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
    /// Print one JSON object instead of a line.
    #[arg(long)]
    json: bool,
}

/// Fills a log, and times a restart from it.
pub(crate) fn run(options: &RestartOptions) -> Result<ExitCode, Failure> {
    let scratch = subject::scratch(options.dir.as_deref())?;
    let mut config = NodeConfig {
        directory: scratch.path().join("node"),
        listen: ([127, 0, 0, 1], 0).into(),
        replay_threads: options.replay_threads.into(),
        new_cluster: true,
        ..NodeConfig::default()
    };
    config.log.streams = options.log_streams.into();
    config.checkpoint.interval_s = 0;
    config.checkpoint.cpu_percent = 100;
    config.checkpoint.files = options.replay_threads.into();
    let crashed = fill(options, scratch.path(), &mut config)?;
    if options.cold {
        rustix::fs::sync();
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
    }

    let (begun, worked) = (Instant::now(), process_time());
    let node = Node::start(config, |_| {})?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_seconds = (process_time() - worked).as_secs_f64();
    let (committed, current) = (crashed.map(|crashed| crashed.committed), node.database().core().snapshots.current());
    if let Some(committed) = committed.filter(|committed| current < *committed) {
        let wrong = format!("the log ends at {current}, and what is below {committed} was committed");
        return Err(Failure::new(wrong));
    }
    print_restart(options, node.restart_phases(), seconds, cpu_seconds, crashed);
    node.stop().map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the log that is restarted from, in the configured directory, or in another one that the
/// configuration gets.
fn fill(options: &RestartOptions, scratch: &Path, config: &mut NodeConfig) -> Result<Option<Crashed>, Failure> {
    if options.crash {
        let (directory, crashed) = crash::run(&workload(options), scratch)?;
        config.directory = directory;
        config.log.group_commit = GroupCommit::Epoch;
        return Ok(Some(crashed));
    }
    let node = Node::start(config.clone(), |_| {})?;
    match options.records {
        Some(records) => fill_ycsb(&node, records, options)?,
        None => fill_tpcc(&node, options)?,
    }
    node.stop().map_err(Failure::new)?;
    Ok(None)
}

/// Prints how the restart went: time and bytes of checkpoint and log, time and entries of indexes.
fn print_restart(
    options: &RestartOptions,
    phases: [(Duration, u64); 3],
    seconds: f64,
    cpu_seconds: f64,
    crashed: Option<Crashed>,
) {
    let read = phases[0].1 + phases[1].1;
    if options.json {
        let per_gb = |seconds: f64, bytes: u64| seconds / (bytes as f64 / 1e9).max(1e-9);
        let phase = |(time, amount): (Duration, u64)| {
            let seconds = time.as_secs_f64();
            serde_json::json!({"seconds": seconds, "amount": amount, "seconds_per_gb": per_gb(seconds, amount)})
        };
        println!(
            "{}",
            serde_json::json!({
                "seconds": seconds, "cpu_seconds": cpu_seconds, "bytes": read, "bytes_per_s": read as f64 / seconds,
                "seconds_per_gb": per_gb(seconds, read),
                "checkpoint": phase(phases[0]), "log": phase(phases[1]), "indexes": phase(phases[2]),
                "replay_threads": options.replay_threads, "log_streams": options.log_streams, "crashed": crashed,
            })
        );
    } else {
        let rate = |(time, amount): (Duration, u64)| (amount as f64 / time.as_secs_f64().max(1e-9)) as u64;
        for (name, phase) in [("checkpoint", phases[0]), ("log", phases[1])] {
            println!("{name:<11} {} in {:.2} s: {}/s", bytes(phase.1), phase.0.as_secs_f64(), bytes(rate(phase)));
        }
        let entries = freshet::units::grouped(phases[2].1);
        println!("indexes     {entries} entries in {:.2} s", phases[2].0.as_secs_f64());
        let rate = bytes((read as f64 / seconds) as u64);
        println!("all         {} in {seconds:.2} s: {rate}/s, {cpu_seconds:.2} s of processor time", bytes(read));
    }
}

/// The benchmark that ends by a crash, as arguments.
fn workload(options: &RestartOptions) -> String {
    let RestartOptions { threads, log_streams, seconds, warmup, .. } = options;
    let what = match options.records {
        Some(records) => format!("ycsb --mix 70/30 --records {records}"),
        None => format!("tpcc --warehouses {}", options.warehouses),
    };
    format!(
        "{what} --isolation serializable --threads {threads} --warmup {} --log-streams {log_streams} \
         --log-group-commit epoch --checkpoint-interval-s 1",
        seconds + warmup
    )
}

/// Fills a log with the load of TPC-C.
fn fill_tpcc(node: &Node, options: &RestartOptions) -> Result<(), Failure> {
    let population = Population { scale: Scale::new(options.warehouses), seed: 42, loaded_at: now_micros() };
    let tables = Tables::create(node.database())?;
    let loading = Loading::begin(expected_rows(&population), options.json);
    if let Some(ticket) = load(node.database(), &tables, &population, 1, &|rows| loading.progress(rows))? {
        node.database().wait(ticket)?;
    }
    Ok(())
}

/// Loads records, writes a checkpoint, and changes records at random until the log is long enough.
fn fill_ycsb(node: &Node, records: u64, options: &RestartOptions) -> Result<(), Failure> {
    let shape = Shape { fields: 1, field_bytes: 100 };
    let tables = ycsb::Tables::create(node.database())?;
    let population = ycsb::Population { records, shape, seed: 42 };
    let loading = Loading::begin(records, options.json);
    let progress = |rows| loading.progress(rows);
    if let Some(ticket) = ycsb::load(node.database(), &tables, &population, 2, &progress)? {
        node.database().wait(ticket)?;
    }
    drop(loading);
    let start = node.checkpoint(CheckpointKind::Fuzzy).map_err(Failure::new)?.start.unwrap_or_default();
    let current = || node.database().core().snapshots.current();
    std::thread::scope(|scope| -> Result<(), Failure> {
        let writers: Vec<_> = (0..2u64)
            .map(|number| {
                let (tables, database) = (&tables, node.database());
                scope.spawn(move || -> Result<(), Failure> {
                    let worker = database.worker()?;
                    let mut random = Random::stream(7, number);
                    let mut scratch = Scratch::new(shape);
                    let mut request = Request::default();
                    while database.core().snapshots.current().since(start) < options.log_bytes {
                        request.operations.clear();
                        for _ in 0..8 {
                            let (key, seed) = (random.below(records), random.bits());
                            request.operations.push(Operation::Overwrite { key, seed });
                        }
                        // Two writers get in each other's way at times; that is no reason to end.
                        let _ = ycsb::run(&worker, tables, Isolation::Snapshot, &request, &mut scratch);
                    }
                    Ok(())
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().map_err(|_| Failure::new("a writer panicked"))?)
    })?;
    let log = node.log().ok_or_else(|| Failure::new("this node is not a primary"))?;
    log.wait_durable(current(), None)?;
    Ok(())
}
