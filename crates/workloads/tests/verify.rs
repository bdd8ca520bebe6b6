//! Recorded logs of the workloads are executed again, by one thread and by several, and give
//! themselves.

mod common;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use common::{NOW, read, seed};
use freshet_engine::{
    CommandExecutor, Domain, Isolation, Node, NodeConfig, ProcedureError, StateHash, VerifyOptions,
    scheme::inputs::Perturb, verify,
};
use freshet_workloads::{
    TableSet,
    random::Random,
    tatp, tpcb,
    tpcc::{
        command::Commands,
        input::{Mix, Terminal},
        load::load,
        population::{Population, Scale},
        run,
        tables::Tables,
        text::Constants,
    },
};

const SCALE: Scale = Scale { warehouses: 2, items: 400, customers: 60, undelivered: 18 };

fn config(directory: &Path) -> NodeConfig {
    NodeConfig {
        directory: directory.to_owned(),
        domain: Domain::File,
        listen: ([127, 0, 0, 1], 0).into(),
        record_inputs: true,
        new_cluster: true,
        failover: freshet_engine::Failover::Manual,
        ..NodeConfig::default()
    }
}

fn hash(node: &Node) -> (u64, u64) {
    let hash = read(node.database(), |txn| Ok(StateHash::of(txn)?));
    (hash.hash, hash.records)
}

/// Three threads run `count` transactions each, wherever they like.
fn drive(node: &Node, tables: &Tables, population: &Population, isolation: Isolation, count: u64) {
    let constants = Constants::of_run(population.constants(), &mut Random::new(population.seed));
    let drive = |number: u64| {
        let terminal = Terminal::new(population, constants, population.seed, number, (number % 2) as u16 + 1);
        let terminal = terminal.with_mix(Mix::Plus);
        let mut terminal = if number == 2 { terminal.spread() } else { terminal };
        let worker = node.database().worker().unwrap();
        let mut last = None;
        for sequence in 0..count {
            let request = freshet_workloads::tpcc::input::Request { mark: None, input: terminal.next(NOW + sequence) };
            last = Some(loop {
                match run(&worker, tables, isolation, &request) {
                    Ok((_, ticket)) => break ticket,
                    Err(ProcedureError::Exhausted { .. }) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            });
        }
        node.database().wait(last.unwrap()).unwrap();
    };
    let drive = &drive;
    std::thread::scope(|scope| (0..3).for_each(|number| drop(scope.spawn(move || drive(number)))));
}

#[test]
fn the_log_of_tpcc_gives_itself() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(config(directory.path()), |_| {}).unwrap();
    let tables = Tables::create(node.database()).unwrap();
    let population = Population { scale: SCALE, seed, loaded_at: NOW };
    let loaded = load(node.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
    node.database().wait(loaded).unwrap();
    drive(&node, &tables, &population, Isolation::Serializable, 400);
    drive(&node, &tables, &population, Isolation::Snapshot, 400);
    let state = hash(&node);
    node.stop().unwrap();
    drop(node);
    // 92 of 100 write, and one of 100 new orders is rolled back.
    verify_by_threads(directory.path(), seed, state, 2100);
    // And it is what a node has that replays the log record by record.
    let node = Node::start(config(directory.path()), |_| {}).unwrap();
    assert_eq!(hash(&node), state);
    node.stop().unwrap();
}

/// By 1 to 8 threads, some of them delayed where they meet; at least `least` transactions are
/// executed again.
fn verify_by_threads(directory: &Path, seed: u64, state: (u64, u64), least: u64) {
    for threads in 1..=8 {
        // It keeps the tables of the database that it is first used for.
        let executor: Arc<dyn CommandExecutor> = Arc::new(Commands::default());
        let count = AtomicU64::new(0);
        let perturb = Arc::new(move || {
            let number = count.fetch_add(1, Ordering::Relaxed) ^ seed;
            if number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 == 0 {
                std::thread::yield_now();
            }
        });
        let file = directory.join("mismatches");
        let options = VerifyOptions {
            threads,
            perturb: (threads % 2 == 0).then_some(perturb as Perturb),
            mismatches: Some(file.clone()),
            ..VerifyOptions::default()
        };
        let report = verify(directory, &executor, &options, &mut |_, _| true).unwrap();
        assert_eq!((report.hash.hash, report.hash.records), state, "{threads} threads");
        assert_eq!((report.mismatches, file.exists()), (0, false), "{threads} threads: {report:?}");
        assert!(report.executed > least, "{report:?}");
    }
}

/// In TATP keys come and go, and ids of deleted records are used again under the same keys.
#[test]
fn a_log_of_several_workloads_gives_itself() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(config(directory.path()), |_| {}).unwrap();
    let database = node.database();
    let tatp = tatp::Tables::create(database).unwrap();
    let _ = tatp::load(database, &tatp, 60, seed, 1, &|_| {}).unwrap();
    let tpcb = tpcb::Tables::create(database).unwrap();
    let scale = tpcb::Scale { branches: 2, accounts: 50 };
    let _ = tpcb::load(database, &tpcb, scale, 1, &|_| {}).unwrap();
    let drive = |number: u64| {
        let worker = database.worker().unwrap();
        let mut client = tatp::Client::new(60, tatp::Mix::Full, seed, number);
        let mut terminal = tpcb::Terminal::new(scale, seed, number as u32);
        let mut last = None;
        let isolation = if number == 0 { Isolation::Serializable } else { Isolation::Snapshot };
        for _ in 0..2000 {
            let (_, ticket) = tatp::run(&worker, &tatp, isolation, &client.next_input()).unwrap();
            last = ticket.lsn.map(|_| ticket).or(last);
            if client.next_input().subscriber.is_multiple_of(2) {
                let (_, ticket) = tpcb::run(&worker, &tpcb, isolation, &terminal.next_input()).unwrap();
                last = Some(ticket);
            }
        }
        database.wait(last.unwrap()).unwrap();
    };
    let drive = &drive;
    std::thread::scope(|scope| (0..3).for_each(|number| drop(scope.spawn(move || drive(number)))));
    let state = hash(&node);
    node.stop().unwrap();
    drop(node);
    verify_by_threads(directory.path(), seed, state, 3000);
}
