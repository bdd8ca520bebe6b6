//! `freshet-lab bench replay`: how fast transactions that a primary has recorded are executed again
//! (Record-Replay, section 6.4).
//!
//! A primary runs TPC-C, and its log is kept. Then that is executed again, with nothing else to do,
//! in the same process: blocks are read, entered, executed, logged in memory and replayed, and each
//! is compared. What was loaded is replayed before, and not counted. At the end the state must be
//! the primary's.

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::{Isolation, Safety, cpu::process_time};
use freshet_engine::{
    Apply, CommandExecutor, Domain, Layout, StateHash, VerifyOptions, VerifyReport,
    scheme::inputs::{Room, Schedule},
    verify,
};
use freshet_workloads::{command::Commands, procedure::read_only};
use serde::Serialize;

use super::{driver::drive, options::TpccOptions, subject::Subject, tpcc};
use freshet::{Failure, units::bytes};

/// Options of `freshet-lab bench replay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayOptions {
    /// The number of threads that execute transactions again. With one they are executed one after
    /// another. [default: twice --threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    execute_threads: Option<u16>,
    /// How much log may be in execution, in bytes. [default: a node's]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    execute_bytes: Option<u64>,
    /// How many transactions may be in execution. [default: a node's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    execute_blocks: Option<u64>,
    /// How versions that are to be made are kept: in arrays, or in chains.
    #[arg(long, value_name = "HOW", value_enum, default_value = "arrays")]
    layout: Kept,
    /// What the primary runs. Its log is a file's; with --apply calvin reads are recorded, and
    /// locks decide when a transaction is executed again.
    #[command(flatten)]
    tpcc: TpccOptions,
}

/// How versions are kept that are to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kept {
    Arrays,
    Chains,
}

/// How long the list of look-ups is; the last place counts all above, too.
const PLACES: usize = 14;

/// What was recorded.
struct Trace {
    /// Its log begins here, behind what was loaded.
    loaded: u64,
    seconds: f64,
    state: StateHash,
}

/// What was found out. `--json` prints it as it is.
#[derive(Debug, Serialize)]
struct Found {
    /// How long the primary ran.
    trace_seconds: f64,
    /// How long it took to execute that again.
    seconds: f64,
    /// The second, of the first: beyond 1 a standby falls behind.
    share: f64,
    /// Transactions that gave their blocks again.
    executed: u64,
    /// The same for each second.
    tps: f64,
    /// Blocks that did not come out, and were looked up in the log.
    fetched: u64,
    log_bytes: u64,
    log_bytes_per_txn: f64,
    /// How often a transaction waited for what another wrote.
    waits_per_txn: f64,
    cpu_us_per_txn: Cpu,
    /// Look-ups of versions that are to be made, by the bit length of how many newer ones they
    /// passed.
    passed: [u64; PLACES],
    /// Whether the state at the end is the primary's.
    same: bool,
}

/// Microseconds of processor time.
#[derive(Debug, Serialize)]
struct Cpu {
    /// Of everything.
    process: f64,
    /// Of executing.
    execute: f64,
}

/// Records, executes again, and prints how long that took.
pub(crate) fn run(options: &ReplayOptions) -> Result<ExitCode, Failure> {
    let mut tpcc = options.tpcc.clone();
    let common = &mut tpcc.common;
    (common.domain, common.safety, common.record_inputs) = (Domain::File, Safety::OneSafe, true);
    if common.standbys > 0 || matches!(common.apply, Apply::Full | Apply::Command) {
        return Err(Failure::new("bench replay is for --apply fresh and --apply calvin, and without --standbys"));
    }
    if common.apply == Apply::Calvin && common.isolation != Isolation::Serializable {
        return Err(Failure::new("--apply calvin needs --isolation serializable"));
    }
    let subject = Subject::start(&tpcc.common)?;
    let trace = record(&subject, &tpcc)?;
    let files = subject.stop_and_keep()?;
    let directory = files.as_ref().ok_or_else(|| Failure::new("nothing was logged"))?.path().join("primary");

    let usual = Room::default();
    let how = VerifyOptions {
        threads: options.execute_threads.unwrap_or(2 * tpcc.common.threads).into(),
        replay_threads: tpcc.common.replay_threads.into(),
        schedule: if tpcc.common.apply == Apply::Calvin { Schedule::Locks } else { Schedule::Versions },
        layout: match options.layout {
            Kept::Arrays => Layout::Arrays,
            Kept::Chains => Layout::Chains,
        },
        room: Room {
            bytes: options.execute_bytes.unwrap_or(usual.bytes),
            blocks: options.execute_blocks.map_or(usual.blocks, |blocks| blocks as usize),
        },
        ..VerifyOptions::default()
    };
    let executor: Arc<dyn CommandExecutor> = Arc::new(Commands::default());
    let begun = Instant::now();
    // When what was loaded has been read, give or take a megabyte, and the processor time until
    // then.
    let mut loaded = (Duration::ZERO, process_time());
    let report = verify(&directory, &executor, &how, &mut |read, _| {
        if read <= trace.loaded {
            loaded = (begun.elapsed(), process_time());
        }
        true
    })?;
    let (before, cpu_before) = loaded;
    // One thread hashes at the end.
    let cpu = process_time().saturating_sub(cpu_before).saturating_sub(report.time - report.replay_time);
    let found = Found::new(&trace, &report, report.replay_time.saturating_sub(before), cpu);
    if tpcc.common.json {
        println!("{}", serde_json::to_string(&found)?);
    } else {
        found.print();
    }
    Ok(if found.same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Loads TPC-C, runs it, and returns what there is to execute again.
fn record(subject: &Subject, options: &TpccOptions) -> Result<Trace, Failure> {
    let common = &options.common;
    let (prepared, _) = tpcc::prepare(subject, options.warehouses, common)?;
    let (loaded, begun) = (subject.reserved().0, Instant::now());
    let make = |number: usize| prepared.terminal(number, options.mix, options.spread, common);
    drive(subject, common, make)?;
    let seconds = begun.elapsed().as_secs_f64();
    let (state, ticket) = read_only(&subject.database().worker()?, |txn| Ok(StateHash::of(txn)?))?;
    subject.database().wait(ticket)?;
    Ok(Trace { loaded, seconds, state })
}

impl Found {
    fn new(trace: &Trace, report: &VerifyReport, time: Duration, cpu: Duration) -> Self {
        let (seconds, executed) = (time.as_secs_f64(), report.executed);
        let each = |amount: f64| amount / executed.max(1) as f64;
        let log_bytes = report.end.0.saturating_sub(trace.loaded);
        Self {
            trace_seconds: trace.seconds,
            seconds,
            share: seconds / trace.seconds,
            executed,
            tps: executed as f64 / seconds.max(1e-9),
            fetched: report.mismatches + report.kept.get("old-snapshot").copied().unwrap_or(0),
            log_bytes,
            log_bytes_per_txn: each(log_bytes as f64),
            waits_per_txn: each(report.waits as f64),
            cpu_us_per_txn: Cpu {
                process: each(cpu.as_secs_f64() * 1e6),
                execute: each(report.execute_cpu.as_secs_f64() * 1e6),
            },
            passed: std::array::from_fn(|place| {
                let above = if place + 1 == PLACES { report.passed.len() } else { place + 1 };
                report.passed[place..above].iter().sum()
            }),
            same: (report.hash.hash, report.hash.records) == (trace.state.hash, trace.state.records),
        }
    }

    fn print(&self) {
        let Self { trace_seconds, seconds, share, executed, tps, fetched, log_bytes, .. } = self;
        let Cpu { process, execute } = self.cpu_us_per_txn;
        println!("trace       {trace_seconds:.2} s, {} of log", bytes(*log_bytes));
        println!("again       {seconds:.2} s, {:.1} % of that, {tps:.0} transactions/s", share * 100.0);
        println!("transactions {executed} gave their blocks, {fetched} did not; {:.3} waits each", self.waits_per_txn);
        println!("CPU         {process:.2} us a transaction, of that executing {execute:.2} us");
        println!("state       {}", if self.same { "that of the primary" } else { "ANOTHER than the primary's" });
    }
}
