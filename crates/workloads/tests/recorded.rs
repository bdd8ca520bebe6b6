//! What procedures record: all that they were told, so that who executes it again, on another
//! database, gets the same state.

mod common;

use std::{collections::BTreeMap, sync::Arc};

use common::{NOW, assert_consistent, read, seed};
use freshet_engine::{
    CommandExecutor, Database, Inputs, Isolation, Lsn, Node, NodeConfig, NotRecorded, ProcedureError, Safety,
    StateHash, Ticket, Worker, recorded_as,
};
use freshet_workloads::{
    TableSet,
    command::Commands,
    journal::Mark,
    random::Random,
    tatp, tpcb,
    tpcc::{
        self,
        input::{Mix, Request, Terminal},
        population::{Population, Scale},
        text::Constants,
    },
    ycsb::{
        self,
        input::{Client, NewKeys, Workload},
    },
};

fn start(directory: &std::path::Path) -> Arc<Node> {
    let config = NodeConfig {
        directory: directory.to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        safety: Safety::OneSafe,
        record_inputs: true,
        new_cluster: true,
        ..NodeConfig::default()
    };
    Node::start(config, |_| {}).unwrap()
}

/// A transaction's inputs, as its block holds them.
struct Recorded {
    procedure: u32,
    inputs: Vec<u8>,
    /// The bytes of the block, and those of the inputs' row.
    sizes: (usize, usize),
    snapshot: Lsn,
    lsn: Lsn,
}

/// The inputs in the log from `from` on, and how many blocks with records have none.
fn recorded(database: &Database, from: Lsn) -> (Vec<Recorded>, usize) {
    let log = &database.core().snapshots.primary().expect("it is the primary").log;
    let to = log.reserved();
    log.wait_durable(to, None).unwrap();
    let (mut buffer, mut whole) = (Vec::new(), Vec::new());
    let (mut all, mut none) = (Vec::new(), 0);
    for block in log.reader().blocks(from, to, &mut buffer).unwrap() {
        let block = block.unwrap();
        let block = block.whole(&mut whole).unwrap();
        match block.inputs() {
            Some(row) => {
                let Inputs { snapshots, body, .. } = Inputs::decode(row).unwrap();
                let (procedure, inputs) = recorded_as(body).unwrap();
                let sizes = (block.bytes().len(), row.len());
                let [snapshot] = snapshots[..] else { panic!("one snapshot: {snapshots:?}") };
                let inputs = inputs.to_vec();
                all.push(Recorded { procedure, inputs, sizes, snapshot, lsn: block.lsn() });
            }
            None => none += usize::from(block.records().len() > 0),
        }
    }
    (all, none)
}

fn hash(database: &Database) -> (u64, u64) {
    let hash = read(database, |txn| Ok(StateHash::of(txn)?));
    (hash.hash, hash.records)
}

/// Loads a workload with `load`, runs it with `drive`, and executes what was recorded again on
/// another database that is loaded in the same way. One client: so what a transaction has read is
/// what all those before it have left.
fn again(name: &str, load: impl Fn(&Database), drive: impl FnOnce(&Worker) -> Option<Ticket>) -> (Database, Arc<Node>) {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path());
    load(node.database());
    let from = node.database().core().snapshots.current();
    let kept = node.database().core().recorded().kept;
    let worker = node.database().worker().unwrap();
    let last = drive(&worker);
    drop(worker);
    if let Some(ticket) = last {
        node.database().wait(ticket).unwrap();
    }
    let (all, none) = recorded(node.database(), from);
    assert_eq!(none, 0, "{name}: every procedure that writes records its inputs");
    assert_eq!(node.database().core().recorded().kept, kept, "{name}");
    let mut sizes: BTreeMap<u32, (usize, usize, usize)> = BTreeMap::new();
    let other = Database::volatile(4);
    load(&other);
    let (commands, worker) = (Commands::default(), other.worker().unwrap());
    for Recorded { procedure, inputs, sizes: (block, row), snapshot, lsn } in all {
        assert!(snapshot <= lsn && snapshot >= from);
        let (count, blocks, rows) = sizes.entry(procedure).or_default();
        (*count, *blocks, *rows) = (*count + 1, *blocks + block, *rows + row);
        let _ = worker.execute(Isolation::Snapshot, |txn| commands.execute(txn, procedure, &inputs)).unwrap();
    }
    for (procedure, (count, blocks, rows)) in sizes {
        println!(
            "{name}, procedure {procedure}: {count} blocks of {} bytes, {} of them inputs",
            blocks / count,
            rows / count
        );
    }
    let state = hash(node.database());
    assert_eq!(hash(&other), state, "{name}");
    // The log with the inputs says the same as ever.
    node.stop().unwrap();
    drop(node);
    let node = start(directory.path());
    assert_eq!(hash(node.database()), state, "{name}: after a restart");
    drop(worker);
    (other, node)
}

#[test]
fn tpcc_executed_again_gives_the_same_state() {
    const SCALE: Scale = Scale { warehouses: 2, items: 20_000, customers: 60, undelivered: 18 };
    let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
    let load = |database: &Database| {
        let tables = tpcc::tables::Tables::create(database).unwrap();
        let _ = tpcc::load::load(database, &tables, &population, 1, &|_| {}).unwrap();
    };
    let (database, node) = again("TPC-C+", load, |worker| {
        let constants = Constants::of_run(population.constants(), &mut Random::new(population.seed));
        let terminal = Terminal::new(&population, constants, population.seed, 1, 2);
        let mut terminal = terminal.with_mix(Mix::Plus).spread();
        let tables = tpcc::tables::Tables::open(&worker.begin_read_only()).unwrap();
        let mut last = None;
        for sequence in 0..2000 {
            let mark = (sequence % 10 == 0).then_some(Mark { client: 1, sequence });
            let request = Request { mark, input: terminal.next(NOW + sequence) };
            let (_, ticket) = tpcc::run(worker, &tables, Isolation::Serializable, &request).unwrap();
            last = Some(ticket);
        }
        last
    });
    assert_consistent(&database, &tpcc::tables::Tables::open(&database).unwrap());
    node.stop().unwrap();
}

#[test]
fn ycsb_tpcb_and_tatp_executed_again_give_the_same_state() {
    let seed = seed();
    let population = ycsb::Population { records: 500, shape: ycsb::mix::Shape { fields: 3, field_bytes: 10 }, seed };
    let load = |database: &Database| {
        let tables = ycsb::Tables::create(database).unwrap();
        let _ = ycsb::load(database, &tables, &population, 1, &|_| {}).unwrap();
    };
    for mix in ycsb::mix::Mix::ALL {
        let (_, node) = again(&format!("YCSB {mix}"), load, |worker| {
            let tables = ycsb::Tables::open(&worker.begin_read_only()).unwrap();
            let (records, shape) = (population.records, population.shape);
            let workload = Workload { mix, records, shape, theta: 0.5, operations: 3 };
            let mut client = Client::new(workload, NewKeys::new(records, 0, 1), seed).unwrap();
            let mut scratch = ycsb::Scratch::new(shape);
            let mut last = None;
            for sequence in 0..200 {
                let mut request = ycsb::input::Request { mark: None, ..Default::default() };
                client.next(&mut request.operations);
                request.mark = (sequence % 2 == 0).then_some(Mark { client: 1, sequence });
                last = Some(ycsb::run(worker, &tables, Isolation::Snapshot, &request, &mut scratch).unwrap().1);
            }
            last
        });
        node.stop().unwrap();
    }
    let scale = tpcb::Scale { branches: 3, accounts: 300 };
    let load = |database: &Database| {
        let tables = tpcb::Tables::create(database).unwrap();
        let _ = tpcb::load(database, &tables, scale, 1, &|_| {}).unwrap();
    };
    let (database, node) = again("TPC-B", load, |worker| {
        let tables = tpcb::Tables::open(&worker.begin_read_only()).unwrap();
        let mut terminal = tpcb::Terminal::new(scale, seed, 1);
        (0..500).map(|_| tpcb::run(worker, &tables, Isolation::Snapshot, &terminal.next_input()).unwrap().1).last()
    });
    let tables = tpcb::Tables::open(&database).unwrap();
    assert_eq!(read(&database, |txn| tpcb::check(txn, &tables)), (Vec::new(), 500));
    node.stop().unwrap();
    let load = |database: &Database| {
        let tables = tatp::Tables::create(database).unwrap();
        let _ = tatp::load(database, &tables, 300, seed, 1, &|_| {}).unwrap();
    };
    let (_, node) = again("TATP", load, |worker| {
        let tables = tatp::Tables::open(&worker.begin_read_only()).unwrap();
        let mut client = tatp::Client::new(300, tatp::Mix::Full, seed, 1);
        (0..3000).map(|_| tatp::run(worker, &tables, Isolation::Snapshot, &client.next_input()).unwrap().1).last()
    });
    node.stop().unwrap();
}

#[test]
fn inputs_of_no_procedure_are_refused() {
    let database = Database::volatile(2);
    let worker = database.worker().unwrap();
    let commands = Commands::default();
    let refused = |procedure: u32, inputs: &[u8]| {
        let error = worker.execute(Isolation::Snapshot, |txn| commands.execute(txn, procedure, inputs)).unwrap_err();
        let ProcedureError::Aborted(why) = error else { panic!("{error}") };
        why
    };
    assert_eq!(refused(99, b""), "a command names no procedure");
    assert!(refused(1, b"").contains("load the workload first"));
    let _ = tpcb::Tables::create(&database).unwrap();
    assert_eq!(refused(17, b"\xff"), "the inputs of a command are not those of its procedure");
    assert!(!database.core().recorded().kept.contains_key(&NotRecorded::NoInputs));
}
