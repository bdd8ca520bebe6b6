//! What executing TPC-C again costs against executing it: one worker runs the mix on a node that
//! records inputs, then its log is verified, by one thread and by more. It prints processor time
//! for each transaction that writes, and sizes.
//!
//! `tpcc_again [TRANSACTIONS [WAREHOUSES [THREADS...]]]`; FRESHET_LAYOUT=chains keeps versions that
//! are to come in chains.

use std::{sync::Arc, time::Duration};

use freshet_base::cpu;
use freshet_engine::{CommandExecutor, Domain, Isolation, Layout, Lsn, Node, NodeConfig, VerifyOptions, verify};
use freshet_workloads::{
    TableSet,
    random::Random,
    tpcc::{
        command::Commands,
        input::{Request, Terminal},
        load::load,
        population::{Population, Scale},
        run,
        tables::Tables,
        text::Constants,
    },
};

/// As the server has it.
#[global_allocator]
static ALLOCATOR: freshet_allocator::Counting = freshet_allocator::Counting;

const LOADED_AT: u64 = 1_700_000_000_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let transactions: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let warehouses: u16 = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let mut threads = arguments.map(|text| text.parse()).collect::<Result<Vec<usize>, _>>()?;
    if threads.is_empty() {
        threads = vec![1, 2, 4];
    }
    let directory = std::env::temp_dir().join(format!("tpcc-again-{}", std::process::id()));
    let outcome = measure(&directory, transactions, warehouses, &threads);
    std::fs::remove_dir_all(&directory)?;
    outcome
}

fn measure(
    directory: &std::path::Path,
    transactions: u64,
    warehouses: u16,
    threads: &[usize],
) -> Result<(), Box<dyn std::error::Error>> {
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
    let population = Population { scale: Scale::new(warehouses), seed: 1, loaded_at: LOADED_AT };
    let loaded = load(node.database(), &tables, &population, 2, &|_| {})?.map_or(Lsn::ZERO, |ticket| ticket.until);
    let worker = node.database().worker()?;
    let constants = Constants::of_run(population.constants(), &mut Random::new(2));
    let mut terminal = Terminal::new(&population, constants, 3, 0, 1);
    let (mut writes, mut last) = (0u64, None);
    let mut forward = Duration::ZERO;
    for number in 0..transactions {
        let request = Request { mark: None, input: terminal.next(LOADED_AT + number) };
        let before = cpu::thread_time();
        let (_, ticket) = run(&worker, &tables, Isolation::Snapshot, &request)?;
        let spent = cpu::thread_time().saturating_sub(before);
        if ticket.lsn.is_some() {
            writes += 1;
            forward += spent;
            last = Some(ticket);
        }
    }
    let last = last.ok_or("nothing was written")?;
    node.database().wait(last)?;
    drop(worker);
    node.stop()?;
    drop(node);
    let each = |time: Duration, count: u64| time.as_secs_f64() * 1e6 / count as f64;
    println!(
        "forward: {writes} transactions that write, {:.2} us each, {} bytes of log each",
        each(forward, writes),
        last.until.since(loaded) / writes
    );
    let chains = std::env::var("FRESHET_LAYOUT").is_ok_and(|layout| layout == "chains");
    let layout = if chains { Layout::Chains } else { Layout::Arrays };
    for threads in threads {
        let executor: Arc<dyn CommandExecutor> = Arc::new(Commands::default());
        let options = VerifyOptions { threads: *threads, layout, ..VerifyOptions::default() };
        let report = verify(directory, &executor, &options, &mut |_, _| true)?;
        println!(
            "{threads} threads: {} executed, {} mismatches, kept {:?}; execute {:.2} us each, enter {:.2}, \
             complete {:.2}; {} waits; {:.1} s in all",
            report.executed,
            report.mismatches,
            report.kept,
            each(report.execute_cpu, report.executed),
            each(report.enter_cpu, report.executed),
            each(report.replay_cpu, report.executed),
            report.waits,
            report.time.as_secs_f64()
        );
    }
    Ok(())
}
