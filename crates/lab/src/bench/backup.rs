//! `freshet-lab bench backup`: what checkpoints, backups and joining cost a primary at work, and
//! how long they take.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::Isolation;
use freshet_engine::{
    CheckpointKind, Node, NodeConfig,
    node::archive::{self, ArchiveConfig, Moment, RestoreConfig},
};
use freshet_workloads::{
    TableSet,
    random::Random,
    ycsb::{
        self, Scratch,
        input::{Operation, Request},
        mix::Shape,
    },
};

use super::{report::Loading, subject};
use freshet::{Failure, units};

/// Options of `freshet-lab bench backup`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BackupOptions {
    /// Records of YCSB, 100 bytes each.
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    records: u64,
    /// How much of a processor the checkpointer may take, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 25)]
    checkpoint_cpu_percent: u32,
    /// Where everything is kept until the end. [default: a fresh directory on /dev/shm, or where
    /// temporary files go]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const SHAPE: Shape = Shape { fields: 1, field_bytes: 100 };

/// Fills a node, and does one thing after the other while one thread overwrites records.
pub(crate) fn run(options: &BackupOptions) -> Result<ExitCode, Failure> {
    let scratch = subject::scratch(options.dir.as_deref())?;
    let mut config = NodeConfig {
        directory: scratch.path().join("primary"),
        listen: ([127, 0, 0, 1], 0).into(),
        new_cluster: true,
        ..NodeConfig::default()
    };
    config.checkpoint.interval_s = 0;
    config.checkpoint.cpu_percent = options.checkpoint_cpu_percent;
    let node = Node::start(config.clone(), |_| {})?;
    let tables = ycsb::Tables::create(node.database())?;
    let population = ycsb::Population { records: options.records, shape: SHAPE, seed: 42 };
    let loading = Loading::begin(options.records, false);
    if let Some(ticket) = ycsb::load(node.database(), &tables, &population, 2, &|rows| loading.progress(rows))? {
        node.database().wait(ticket)?;
    }
    drop(loading);
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcome = std::thread::scope(|scope| {
        let writer = scope.spawn(|| overwrite(&node, &tables, options.records, &stop, &count));
        let outcome = measure(&node, &config, scratch.path(), &count);
        stop.store(true, Ordering::SeqCst);
        writer.join().map_err(|_| Failure::new("the writer panicked"))??;
        outcome
    });
    outcome?;
    node.stop().map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

fn overwrite(
    node: &Node,
    tables: &ycsb::Tables,
    records: u64,
    stop: &AtomicBool,
    count: &AtomicU64,
) -> Result<(), Failure> {
    let worker = node.database().worker()?;
    let mut random = Random::stream(7, 0);
    let mut scratch = Scratch::new(SHAPE);
    let mut request = Request::default();
    while !stop.load(Ordering::SeqCst) {
        request.operations.clear();
        request.operations.push(Operation::Overwrite { key: random.below(records), seed: random.bits() });
        let _ = ycsb::run(&worker, tables, Isolation::Snapshot, &request, &mut scratch)?;
        // Relaxed: a counter without data behind it.
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn measure(node: &Node, config: &NodeConfig, scratch: &Path, count: &AtomicU64) -> Result<(), Failure> {
    println!("{:<26} {:>9} {:>12} {:>12} {:>22}", "", "seconds", "bytes", "bytes/s", "overwrites/s");
    let timed = |name: &str, action: &mut dyn FnMut() -> Result<u64, Failure>| -> Result<(), Failure> {
        let (begun, before) = (Instant::now(), count.load(Ordering::Relaxed));
        let amount = action()?;
        let seconds = begun.elapsed().as_secs_f64();
        let rate = (count.load(Ordering::Relaxed) - before) as f64 / seconds;
        println!(
            "{name:<26} {seconds:>9.2} {:>12} {:>12} {:>22}",
            units::bytes(amount),
            units::bytes((amount as f64 / seconds) as u64),
            units::grouped(rate as u64)
        );
        Ok(())
    };
    let quiet = &mut || {
        std::thread::sleep(Duration::from_secs(3));
        Ok(0)
    };
    timed("nothing else", quiet)?;
    timed("fuzzy checkpoint", &mut || Ok(node.checkpoint(CheckpointKind::Fuzzy).map_err(Failure::new)?.bytes))?;
    timed("consistent checkpoint", &mut || {
        Ok(node.checkpoint(CheckpointKind::Consistent).map_err(Failure::new)?.bytes)
    })?;
    let backup = ArchiveConfig {
        token_file: None,
        directory: scratch.join("backup"),
        node: node.address().to_owned(),
        peers: Vec::new(),
        buffer_bytes: config.log.buffer_bytes,
    };
    timed("backup", &mut || Ok(archive::backup(&backup)?.bytes))?;
    let joining =
        NodeConfig { directory: scratch.join("standby"), join: Some(node.address().to_owned()), ..config.clone() };
    let mut standby = None;
    timed("a standby joins", &mut || {
        let joined = Node::start(joining.clone(), |_| {})?;
        let phases = joined.restart_phases();
        // In step once it shows what was there when it had restarted.
        let now = node.database().core().snapshots.current();
        joined.wait_visible(now, Some(Instant::now() + Duration::from_secs(600)))?;
        standby = Some(joined);
        Ok(phases[0].1 + phases[1].1)
    })?;
    timed("with the standby", quiet)?;
    if let Some(standby) = standby {
        standby.stop().map_err(Failure::new)?;
    }
    timed("nothing else", quiet)?;
    let restore = RestoreConfig {
        backup: backup.directory.clone(),
        archive: None,
        streams: Vec::new(),
        directory: scratch.join("restored"),
        moment: Moment::End,
    };
    timed("restore of the backup", &mut || {
        let restored = archive::restore(&restore)?;
        Ok(restored.rows * u64::from(SHAPE.field_bytes as u32) + restored.log_bytes)
    })
}
