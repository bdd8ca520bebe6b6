//! Version arrays against chains (Record-Replay, section 6.4.2): YCSB's transactions are executed
//! again with both, in turns, from one log. Records are few, or some are written often. It prints
//! processor time for each transaction that writes, and how many newer versions look-ups have
//! passed by: on average, and in how many of a hundred look-ups 256 or more.
//!
//! `ycsb_again [TRANSACTIONS [RECORDS [THETA [MIX [ROUNDS]]]]]`. All of the log fits into the
//! window.

use std::{path::Path, sync::Arc, time::Duration};

use freshet_engine::{
    CommandExecutor, Domain, Isolation, Layout, Node, NodeConfig, VerifyOptions, scheme::inputs::Room, verify,
};
use freshet_workloads::{
    TableSet,
    command::Commands,
    ycsb::{
        Population, Scratch, Tables,
        input::{Client, NewKeys, Request, Workload},
        load,
        mix::Mix,
        run,
    },
};

/// As the server has it.
#[global_allocator]
static ALLOCATOR: freshet_allocator::Counting = freshet_allocator::Counting;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let transactions: u64 = arguments.next().map_or(Ok(65_536), |text| text.parse())?;
    let records: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let theta: f64 = arguments.next().map_or(Ok(0.99), |text| text.parse())?;
    let mix: Mix = arguments.next().map_or(Ok(Mix::F), |text| text.parse())?;
    let rounds: u32 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let writes = record(directory.path(), transactions, records, theta, mix)?;
    println!("{writes} transactions that write, of {records} records, theta {theta}, mix {mix}");
    for round in 0..rounds {
        for layout in [Layout::Arrays, Layout::Chains] {
            println!("{round} {}", measure(directory.path(), layout)?);
        }
    }
    Ok(())
}

/// Runs the mix until this many transactions have written; returns that.
fn record(
    directory: &Path,
    transactions: u64,
    records: u64,
    theta: f64,
    mix: Mix,
) -> Result<u64, Box<dyn std::error::Error>> {
    let config = NodeConfig {
        directory: directory.to_owned(),
        domain: Domain::File,
        listen: ([127, 0, 0, 1], 0).into(),
        record_inputs: true,
        new_cluster: true,
        ..NodeConfig::default()
    };
    let node = Node::start(config, |_| {})?;
    let tables = Tables::create(node.database())?;
    let shape = mix.usual_shape();
    let _ = load(node.database(), &tables, &Population { records, shape, seed: 1 }, 1, &|_| {})?;
    let worker = node.database().worker()?;
    let mut client =
        Client::new(Workload { mix, records, shape, theta, operations: 1 }, NewKeys::new(records, 0, 1), 2)?;
    let (mut request, mut scratch) = (Request::default(), Scratch::new(shape));
    let (mut writes, mut last) = (0, None);
    while writes < transactions {
        client.next(&mut request.operations);
        let (_, ticket) = run(&worker, &tables, Isolation::Snapshot, &request, &mut scratch)?;
        if ticket.lsn.is_some() {
            writes += 1;
            last = Some(ticket);
        }
    }
    if let Some(last) = last {
        node.database().wait(last)?;
    }
    drop(worker);
    node.stop()?;
    Ok(writes)
}

fn measure(directory: &Path, layout: Layout) -> Result<String, Box<dyn std::error::Error>> {
    let executor: Arc<dyn CommandExecutor> = Arc::new(Commands::default());
    let room = Room { bytes: 1 << 30, blocks: 1 << 20 };
    let options = VerifyOptions { threads: 1, layout, room, ..VerifyOptions::default() };
    let report = verify(directory, &executor, &options, &mut |_, _| true)?;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / report.executed as f64;
    let (mut all, mut many, mut sum) = (0, 0, 0.0);
    for (place, count) in report.passed.iter().enumerate() {
        all += count;
        many += if place > 8 { *count } else { 0 };
        // The middle of those with this bit length.
        sum += *count as f64 * if place == 0 { 0.0 } else { 1.5 * f64::powi(2.0, place as i32 - 1) };
    }
    let all = all.max(1) as f64;
    Ok(format!(
        "{layout:?}: execute {:.2} us each, enter {:.2}, complete {:.2}; passed {:.0}, 256 or more {:.0} %",
        each(report.execute_cpu),
        each(report.enter_cpu),
        each(report.replay_cpu),
        sum / all,
        many as f64 * 100.0 / all
    ))
}
