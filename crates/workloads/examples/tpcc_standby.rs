//! What a standby costs for each of TPC-C's transactions that write, thread by thread: one worker
//! runs the mix on a primary, and a standby in the same process follows it, in bytes or by
//! executing transactions again. The standby ends with the last transaction. While inputs are
//! recorded, it also prints what encoding them takes, as `freshet advise` measures it.
//!
//! `tpcc_standby [TRANSACTIONS [WAREHOUSES [inputs|bytes]]]`

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use freshet_base::cpu::thread_time;
use freshet_engine::{Encoding, Isolation, Mix, Node, NodeConfig, Safety, executors};
use freshet_workloads::{
    TableSet,
    command::Commands,
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

/// As the server has it.
#[global_allocator]
static ALLOCATOR: freshet_allocator::Counting = freshet_allocator::Counting;

const LOADED_AT: u64 = 1_700_000_000_000_000;
/// As far as the standby may be behind.
const BEHIND: u64 = 4 << 20;
/// What counts as a group commit where encoding is measured.
const BATCH: u64 = 64 << 10;

/// Processor time of this process's threads so far, by their names, in microseconds.
fn threads() -> BTreeMap<String, f64> {
    let mut times = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        // A thread may end in between.
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let name = read("comm").trim().trim_end_matches(|last: char| last.is_ascii_digit() || last == '-').to_owned();
        let nanoseconds = read("schedstat").split(' ').next().and_then(|first| first.parse::<f64>().ok());
        *times.entry(name).or_default() += nanoseconds.unwrap_or_default() / 1e3;
    }
    times
}

/// Prints what encoding these pieces of the log has taken: their median, and the quartiles.
fn print_encoding(pieces: &[Mix]) {
    let forms = || pieces.iter().filter_map(|piece| Some((piece, piece.form.filter(|form| form.transactions > 0)?)));
    let mut times: Vec<_> =
        forms().map(|(piece, form)| form.cpu.as_secs_f64() * 1e6 * 1024.0 / piece.log_bytes as f64).collect();
    times.sort_by(f64::total_cmp);
    let Some(last) = times.len().checked_sub(1) else { return };
    let (log, form) = forms().fold((0, 0), |(log, bytes), (piece, form)| (log + piece.log_bytes, bytes + form.bytes));
    let [first, middle, third] = [1, 2, 3].map(|quarter| times[last * quarter / 4]);
    println!(
        "{:>16} {middle:>8.2} us a KiB of log ({first:.2} to {third:.2}, {} pieces), to {:.1} % of it",
        "encode",
        times.len(),
        form as f64 * 100.0 / log as f64
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let transactions: u64 = arguments.next().map_or(Ok(60_000), |text| text.parse())?;
    let warehouses: u16 = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let encoding: Encoding = arguments.next().map_or(Ok(Encoding::Inputs), |text| text.parse())?;
    let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
    let config = |node: usize| NodeConfig {
        directory: directories[node].path().to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        safety: Safety::OneSafe,
        new_cluster: true,
        ..NodeConfig::default()
    };
    let primary = Node::start(NodeConfig { ..config(0) }, |_| {})?;
    let join = Some(primary.address().to_owned());
    let executors = executors(Commands::default);
    let standby = Node::start_executing(NodeConfig { join, encoding, ..config(1) }, Some(executors), |_| {})?;
    let database = primary.database();
    let tables = Tables::create(database)?;
    let population = Population { scale: Scale::new(warehouses), seed: 1, loaded_at: LOADED_AT };
    let shown = |at| standby.wait_visible(at, Some(Instant::now() + Duration::from_secs(600)));
    if let Some(ticket) = load(database, &tables, &population, 2, &|_| {})? {
        shown(ticket.until)?;
        database.wait(ticket)?;
    }
    let worker = database.worker()?;
    let constants = Constants::of_run(population.constants(), &mut Random::new(2));
    let mut terminal = Terminal::new(&population, constants, 3, 0, 1);
    let (before, begun, mut writes) = (threads(), Instant::now(), 0u64);
    let (mut forward, mut last, mut waited, mut pieces) = (Duration::ZERO, None, None, Vec::new());
    for number in 0..transactions {
        let request = Request { mark: None, input: terminal.next(LOADED_AT + number) };
        let from = thread_time();
        let (_, ticket) = run(&worker, &tables, Isolation::Snapshot, &request)?;
        let spent = thread_time().saturating_sub(from);
        let Some(lsn) = ticket.lsn else { continue };
        writes += 1;
        forward += spent;
        last = Some(ticket.until);
        let since = *waited.get_or_insert(lsn);
        if lsn.since(since) > BEHIND {
            shown(since)?;
            pieces.push(primary.mix(since, BATCH)?);
            waited = Some(lsn);
        }
    }
    shown(last.ok_or("nothing was written")?)?;
    let (after, seconds) = (threads(), begun.elapsed().as_secs_f64());
    println!("{writes} transactions that write in {seconds:.1} s, standby gets {encoding}");
    println!("{:>16} {:>8.2} us each", "forward", forward.as_secs_f64() * 1e6 / writes as f64);
    for (name, time) in &after {
        let each = (time - before.get(name).copied().unwrap_or_default()) / writes as f64;
        if each >= 0.05 {
            println!("{name:>16} {each:>8.2}");
        }
    }
    print_encoding(&pieces);
    drop(worker);
    let _ = (standby.stop(), primary.stop());
    Ok(())
}
