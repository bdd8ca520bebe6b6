//! How long the inputs form of a log is, compared with the log that holds values alone.

mod common;

use std::sync::Arc;

use common::{NOW, seed};
use freshet_base::Fid;
use freshet_engine::{Domain, Isolation, Lsn, Node, NodeConfig, ProcedureError, Safety};
use freshet_log::{
    Block,
    block::{BLOCK_ALIGN, BLOCK_HEADER, RECORD_HEADER},
};
use freshet_replay::form::{CatalogKeys, Encoded, Encoder};
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

const SCALE: Scale = Scale { warehouses: 4, items: 100_000, customers: 300, undelivered: 90 };

/// Runs `count` transactions in each of two threads on a node that records inputs, and gives the
/// node and where its log begins and ends that they have made.
fn recorded(
    directory: &std::path::Path,
    terminals: impl Fn(Terminal, u64) -> Terminal + Sync,
) -> (Arc<Node>, Lsn, Lsn) {
    let config = NodeConfig {
        directory: directory.to_owned(),
        domain: Domain::File,
        listen: ([127, 0, 0, 1], 0).into(),
        safety: Safety::OneSafe,
        record_inputs: true,
        new_cluster: true,
        ..NodeConfig::default()
    };
    let node = Node::start(config, |_| {}).unwrap();
    let tables = Tables::create(node.database()).unwrap();
    let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
    let loaded = load(node.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
    node.database().wait(loaded).unwrap();
    let constants = Constants::of_run(population.constants(), &mut Random::new(population.seed));
    let drive = |number: u64| {
        let terminal = Terminal::new(&population, constants, population.seed, number, (number % 4) as u16 + 1);
        let mut terminal = terminals(terminal, number);
        let worker = node.database().worker().unwrap();
        let mut last = None;
        for sequence in 0..2_000 {
            // About 20,000 transactions in a second.
            let request = Request { mark: None, input: terminal.next(NOW + sequence * 100) };
            let ticket = loop {
                match run(&worker, &tables, Isolation::Snapshot, &request) {
                    Ok((_, ticket)) => break ticket,
                    Err(ProcedureError::Exhausted { .. }) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            };
            // One that has only read waits for something within another's block.
            last = ticket.lsn.map(|_| ticket.until).or(last);
        }
        last.unwrap()
    };
    let drive = &drive;
    let to = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|number| scope.spawn(move || drive(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    (node, loaded.until, to)
}

/// Bytes of a log.
#[derive(Debug, Default)]
struct Bytes {
    /// As it would be without inputs.
    values: usize,
    /// In the inputs form, in batches of 64 KiB of the log.
    form: usize,
    /// The same, compressed.
    packed: usize,
    blocks: usize,
    inputs: usize,
}

impl Bytes {
    fn percent(&self, of: usize) -> f64 {
        of as f64 * 100.0 / self.values as f64
    }
}

/// How long a block would be without its inputs.
fn without_inputs(block: &Block<'_>) -> usize {
    let last = block.records().last().filter(|last| last.header.fid == Fid::INPUTS);
    let Some(last) = last else { return block.bytes().len() };
    let records: usize = block.records().map(|record| RECORD_HEADER + record.row.len()).sum();
    (BLOCK_HEADER + records - RECORD_HEADER - last.row.len()).next_multiple_of(BLOCK_ALIGN)
}

fn measure(node: &Node, from: Lsn, to: Lsn) -> Bytes {
    let core = node.database().core();
    let log = &core.snapshots.primary().expect("it is the primary").log;
    log.wait_durable(to, None).unwrap();
    let participant = core.participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let mut keys = CatalogKeys::new(&core.catalog, &guard);
    let (mut encoder, mut bytes, mut form) = (Encoder::new(), Bytes::default(), Vec::new());
    let (mut buffer, mut row, mut batch) = (Vec::new(), Vec::new(), 0);
    let end = |form: &mut Vec<u8>, bytes: &mut Bytes| {
        bytes.form += form.len();
        bytes.packed += lz4_flex::block::compress(form).len().min(form.len());
        form.clear();
    };
    for block in log.reader().blocks(from, to, &mut buffer).unwrap() {
        let block = block.unwrap();
        let block = block.whole(&mut row).unwrap();
        bytes.values += without_inputs(&block);
        bytes.blocks += 1;
        bytes.inputs += usize::from(encoder.block(&block, &mut keys, &mut form) == Encoded::Inputs);
        batch += block.bytes().len();
        if batch >= 64 << 10 {
            end(&mut form, &mut bytes);
            encoder.batch();
            batch = 0;
        }
    }
    end(&mut form, &mut bytes);
    bytes
}

#[test]
fn the_inputs_form_of_tpcc_is_short() {
    let directory = tempfile::tempdir().unwrap();
    let (node, from, to) = recorded(directory.path(), |terminal, _| terminal);
    let bytes = measure(&node, from, to);
    let (form, packed) = (bytes.percent(bytes.form), bytes.percent(bytes.packed));
    println!("TPC-C: {form:.1} % of the values, {packed:.1} % compressed: {bytes:?}");
    assert!(bytes.inputs * 10 > bytes.blocks * 9, "{bytes:?}");
    assert!(form < 15.0 && packed < 10.0, "{form} %, {packed} %: {bytes:?}");
    node.stop().unwrap();
}

#[test]
fn the_inputs_form_of_spread_tpcc_is_short() {
    let directory = tempfile::tempdir().unwrap();
    let (node, from, to) = recorded(directory.path(), |terminal, _| terminal.spread());
    let bytes = measure(&node, from, to);
    let (form, packed) = (bytes.percent(bytes.form), bytes.percent(bytes.packed));
    println!("TPC-C, spread: {form:.1} % of the values, {packed:.1} % compressed: {bytes:?}");
    assert!(form < 12.0 && packed < 10.0, "{form} %, {packed} %: {bytes:?}");
    node.stop().unwrap();
}
