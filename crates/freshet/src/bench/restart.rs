//! `freshet bench restart`: how fast a node comes back from its log.

use std::{process::ExitCode, time::Instant};

use clap::Args;
use freshet_engine::{Node, NodeConfig};
use freshet_workloads::tpcc::{
    load::{expected_rows, load},
    population::{Population, Scale},
    tables::Tables,
};

use super::{report::Loading, subject};
use crate::{
    Failure,
    units::{bytes, now_micros},
};

/// Options of `freshet bench restart`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RestartOptions {
    /// Warehouses of TPC-C: about 90 MB of log each.
    #[arg(long, value_name = "W", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    warehouses: u16,
    /// Threads that replay.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    replay_threads: u16,
    /// Where the log is kept meanwhile. [default: a fresh directory on /dev/shm, or where temporary files go]
    #[arg(long, value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
    /// Print one JSON object instead of a line.
    #[arg(long)]
    json: bool,
}

/// Fills a log, and times a restart from it.
pub(crate) fn run(options: &RestartOptions) -> Result<ExitCode, Failure> {
    let scratch = subject::scratch(options.dir.as_deref())?;
    let config = NodeConfig {
        directory: Some(scratch.path().join("node")),
        listen: "127.0.0.1:0".to_owned(),
        replay_threads: options.replay_threads.into(),
        ..NodeConfig::default()
    };
    let node = Node::start(config.clone(), |_| {})?;
    let population = Population { scale: Scale::new(options.warehouses), seed: 42, loaded_at: now_micros() };
    let tables = Tables::create(node.database())?;
    let loading = Loading::begin(expected_rows(&population), options.json);
    if let Some(ticket) = load(node.database(), &tables, &population, 1, &|rows| loading.progress(rows))? {
        node.database().wait(ticket)?;
    }
    drop((loading, tables));
    node.stop().map_err(Failure::new)?;
    drop(node);

    let begun = Instant::now();
    let node = Node::start(config, |_| {})?;
    let seconds = begun.elapsed().as_secs_f64();
    let log_bytes = node.status().read_view.0;
    let per_second = log_bytes as f64 / seconds;
    if options.json {
        println!(
            "{}",
            serde_json::json!({"log_bytes": log_bytes, "seconds": seconds, "bytes_per_s": per_second, "replay_threads": options.replay_threads})
        );
    } else {
        println!("{} of log replayed in {seconds:.2} s: {}/s", bytes(log_bytes), bytes(per_second as u64));
    }
    node.stop().map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
