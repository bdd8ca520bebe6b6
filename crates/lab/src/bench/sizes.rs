//! `freshet-lab bench sizes`: how many bytes TPC-C's transactions are told, and how many they write
//! (Record-Replay, table 2).
//!
//! One worker runs many transactions of one kind after another, then those of the next. What the
//! log has of them is looked at block by block, and put into the form that goes to standbys that
//! ask for inputs.

use std::process::ExitCode;

use clap::Args;
use freshet_base::{Fid, Isolation, Lsn};
use freshet_engine::{Node, NodeConfig};
use freshet_log::{
    Block,
    block::{BLOCK_HEADER, RECORD_HEADER},
};
use freshet_replay::form::{CatalogKeys, Encoder};
use freshet_workloads::{
    TableSet,
    random::Random,
    tpcc::{
        self,
        input::{Input, Kind, Request, Terminal},
        load::load,
        population::{MOST_LINES, Population, Scale},
        tables::Tables,
        text::Constants,
    },
};
use serde::Serialize;

use super::{options, subject};
use freshet::{Failure, units::now_micros};

/// Options of `freshet-lab bench sizes`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SizesOptions {
    /// The number of transactions of each kind.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u16).range(1..=800))]
    transactions: u16,
    /// Not used: what is counted takes no time.
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = options::seconds, hide = true)]
    seconds: f64,
    /// Not used.
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = options::seconds, hide = true)]
    warmup: f64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Bytes of one transaction, in the mean.
#[derive(Debug, Default, Serialize)]
struct Sizes {
    /// How many were looked at.
    transactions: u64,
    /// Records that it writes.
    records: f64,
    /// What it is told, as it is recorded: its procedure, inputs and snapshot.
    inputs: f64,
    /// The rows that it writes.
    rows: f64,
    /// Its block in the log, without its inputs.
    block: f64,
    /// What goes to standbys that ask for inputs: these, and where it writes.
    form: f64,
}

/// What is measured of each kind.
#[derive(Debug, Serialize)]
struct All {
    /// With as many lines as an order can have.
    new_order: Sizes,
    delivery: Sizes,
    payment: Sizes,
    credit_check: Sizes,
}

/// Runs all kinds, and prints what they take.
pub(crate) fn run(options: &SizesOptions) -> Result<ExitCode, Failure> {
    let scratch = subject::scratch(None)?;
    let config = NodeConfig {
        directory: scratch.path().join("node"),
        listen: ([127, 0, 0, 1], 0).into(),
        record_inputs: true,
        workers: 4,
        new_cluster: true,
        ..NodeConfig::default()
    };
    let node = Node::start(config, |_| {})?;
    let tables = Tables::create(node.database())?;
    let population = Population { scale: Scale::new(1), seed: 42, loaded_at: now_micros() };
    if let Some(ticket) = load(node.database(), &tables, &population, 1, &|_| {})? {
        node.database().wait(ticket)?;
    }
    let constants = Constants::of_run(population.constants(), &mut Random::stream(42, u64::MAX));
    let mut terminal = Terminal::new(&population, constants, 42, 0, 1);
    let mut of = |kind| measure(&node, &tables, &mut terminal, kind, options.transactions);
    let all = All {
        new_order: of(Kind::NewOrder)?,
        delivery: of(Kind::Delivery)?,
        payment: of(Kind::Payment)?,
        credit_check: of(Kind::CreditCheck)?,
    };
    if options.json {
        println!("{}", serde_json::to_string(&all)?);
    } else {
        println!("bytes a transaction   told    rows    log  inputs form");
        let kinds = [&all.new_order, &all.delivery, &all.payment, &all.credit_check];
        for (name, sizes) in ["new-order", "delivery", "payment", "credit-check"].into_iter().zip(kinds) {
            let Sizes { inputs, rows, block, form, .. } = sizes;
            println!("{name:<20} {inputs:>6.1} {rows:>7.1} {block:>6.1} {form:>12.1}");
        }
    }
    node.stop().map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs transactions of one kind, and looks at their blocks.
fn measure(node: &Node, tables: &Tables, terminal: &mut Terminal, kind: Kind, count: u16) -> Result<Sizes, Failure> {
    let database = node.database();
    let log = node.log().ok_or_else(|| Failure::new("this node is not a primary"))?;
    let worker = database.worker()?;
    let (from, mut last) = (database.core().snapshots.current(), None);
    for _ in 0..count {
        let request = Request { mark: None, input: wanted(terminal, kind) };
        last = Some(tpcc::run(&worker, tables, Isolation::Serializable, &request)?.1);
    }
    if let Some(ticket) = last {
        database.wait(ticket)?;
    }
    let to = database.core().snapshots.current();
    let mut blocks = vec![0; to.since(from) as usize];
    log.read(from, &mut blocks)?;
    look(node, from, &blocks)
}

/// The next input of that kind; of a new order, one with the most lines.
fn wanted(terminal: &mut Terminal, kind: Kind) -> Input {
    loop {
        let input = terminal.next_of(kind, now_micros());
        match &input {
            Input::NewOrder(order) if order.lines.len() < MOST_LINES => {}
            _ => return input,
        }
    }
}

/// What these blocks of transactions hold.
fn look(node: &Node, from: Lsn, blocks: &[u8]) -> Result<Sizes, Failure> {
    /// About as much as a group commit takes.
    const BATCH: usize = 64 << 10;
    let core = node.database().core();
    let participant = core.participants.join()?;
    let guard = participant.pin_without_snapshot();
    let mut keys = CatalogKeys::new(&core.catalog, &guard);
    let (mut encoder, mut form, mut batched) = (Encoder::new(), Vec::new(), 0);
    let (mut sizes, mut at, mut rest) = (Sizes::default(), from, blocks);
    while rest.len() >= BLOCK_HEADER {
        let block = Block::parse(rest, at).map_err(|error| Failure::new(error.to_string()))?;
        if batched >= BATCH {
            encoder.batch();
            batched = 0;
        }
        batched += block.bytes().len();
        let before = form.len();
        encoder.block(&block, &mut keys, &mut form);
        if let Some(inputs) = block.inputs() {
            sizes.transactions += 1;
            let rows = block.records().filter(|record| record.header.fid != Fid::INPUTS);
            let (count, bytes) = rows.fold((0, 0), |(count, bytes), record| (count + 1, bytes + record.row.len()));
            sizes.records += f64::from(count);
            sizes.rows += bytes as f64;
            sizes.inputs += inputs.len() as f64;
            sizes.block += (block.bytes().len() - inputs.len() - RECORD_HEADER) as f64;
            sizes.form += (form.len() - before) as f64;
        }
        rest = &rest[block.bytes().len()..];
        at = block.end();
    }
    let count = sizes.transactions.max(1) as f64;
    for sum in [&mut sizes.records, &mut sizes.inputs, &mut sizes.rows, &mut sizes.block, &mut sizes.form] {
        *sum /= count;
    }
    Ok(sizes)
}
