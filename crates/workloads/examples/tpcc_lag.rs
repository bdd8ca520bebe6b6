//! What a slow standby costs its primary: TPC-C's mix on a primary whose standby gets no more than
//! a given number of gigabits per second, and the processor time of the one thread that executes,
//! per transaction, second by second, beside how much of the log is uncommitted.
//!
//! `tpcc_lag [SECONDS [GIGABITS [UNCOMMITTED_BYTES]]]`; 0 gigabits: no limit. The nodes'
//! directories are in $TMPDIR.

use std::time::{Duration, Instant};

use freshet_base::cpu::thread_time;
use freshet_engine::{Isolation, Node, NodeConfig, Safety};
use freshet_workloads::{
    TableSet,
    random::Random,
    tpcc::{
        input::{Request, Terminal},
        load::load,
        population::{Population, Scale},
        run,
        tables::Tables,
        text::Constants,
    },
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let bandwidth: f64 = arguments.next().map_or(Ok(0.0), |text| text.parse())?;
    let uncommitted: Option<u64> = arguments.next().map(|text| text.parse()).transpose()?;

    let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
    let config = |node: usize| {
        let directory = directories[node].path().to_owned();
        NodeConfig {
            directory,
            listen: ([127, 0, 0, 1], 0).into(),
            safety: Safety::Quorum(2),
            new_cluster: true,
            ..NodeConfig::default()
        }
    };
    let mut primary = NodeConfig { ..config(0) };
    primary.fabric.bandwidth_gbit = bandwidth;
    primary.log.uncommitted_bytes = uncommitted.unwrap_or(primary.log.uncommitted_bytes);
    let primary = Node::start(primary, |_| {})?;
    let standby = Node::start(NodeConfig { join: Some(primary.address().to_owned()), ..config(1) }, |_| {})?;
    let database = primary.database();
    let tables = Tables::create(database)?;
    let population = Population { scale: Scale::small(1), seed: 1, loaded_at: 1_700_000_000_000_000 };
    if let Some(ticket) = load(database, &tables, &population, 1, &|_| {})? {
        database.wait(ticket)?;
    }

    let worker = database.worker()?;
    let constants = Constants::of_run(population.constants(), &mut Random::new(2));
    let mut terminal = Terminal::new(&population, constants, 3, 0, 1);
    let started = Instant::now();
    let (mut second, mut transactions, mut total) = (0, 0u64, 0u64);
    let (mut cpu, begun) = (thread_time(), thread_time());
    while second < seconds {
        let time = population.loaded_at + started.elapsed().as_micros() as u64;
        let request = Request { mark: None, input: terminal.next(time) };
        let _ = std::hint::black_box(run(&worker, &tables, Isolation::Snapshot, &request)?);
        transactions += 1;
        if started.elapsed() >= Duration::from_secs(second + 1) {
            let now = thread_time();
            let core = database.core();
            let gate = &core.snapshots.primary().ok_or("the term has ended")?.gate;
            let lag = core.snapshots.current().0.saturating_sub(gate.committed().0);
            let each = (now - cpu).as_secs_f64() * 1e6 / transactions as f64;
            println!(
                "{:>4} s {transactions:>8} transactions {each:>8.2} us each {:>8.1} MB uncommitted",
                second + 1,
                lag as f64 / 1e6
            );
            (second, cpu, total, transactions) = (second + 1, now, total + transactions, 0);
        }
    }
    println!("all {total} transactions {:.2} us each", (thread_time() - begun).as_secs_f64() * 1e6 / total as f64);
    drop(worker);
    let _ = (standby.stop(), primary.stop());
    Ok(())
}
