//! `freshet verify`: a recorded log is executed again, and must give itself.

pub mod state;

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
};

use freshet_engine::{
    CommandExecutor, Executors, ProcedureError, Transaction, VerifyOptions as Options, VerifyReport, executors, verify,
};
use freshet_query::inputs::{MemoryPool, PROCEDURE, StatementExecutor};
use freshet_workloads::command::Commands;
use serde_json::{Value, json};

use crate::{Failure, cli::VerifyOptions, units};

/// Executes whatever nodes of this program record: statements of SQL, and procedures of workloads.
/// For one database.
#[derive(Default)]
struct Executor {
    statements: StatementExecutor,
    workloads: Commands,
}

impl CommandExecutor for Executor {
    fn execute(&self, transaction: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        match procedure {
            PROCEDURE => self.statements.execute(transaction, procedure, inputs),
            _ => self.workloads.execute(transaction, procedure, inputs),
        }
    }

    fn describe(&self, transaction: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> String {
        match procedure {
            PROCEDURE => self.statements.describe(transaction, procedure, inputs),
            _ => self.workloads.describe(transaction, procedure, inputs),
        }
    }
}

/// Execute again whatever nodes of this program record, in the memory of the server's sessions.
pub(crate) fn again(server: &Arc<MemoryPool>, statement: usize) -> Executors {
    let server = Arc::clone(server);
    executors(move || Executor {
        statements: StatementExecutor::within(&server, statement),
        workloads: Commands::default(),
    })
}

/// Verifies, and says what has come of it.
pub(crate) fn run(options: &VerifyOptions) -> Result<ExitCode, Failure> {
    let Some(directory) = &options.directory else { return state::run(options) };
    let mut how = Options {
        streams: options.log_dir.clone(),
        devices: options.devices.clone(),
        serially: options.serially,
        mismatches: Some(options.mismatches.clone()),
        ..Options::default()
    };
    if let Some(threads) = options.threads {
        how.threads = threads.into();
    }
    let shows = io::stderr().is_terminal();
    let mut progress = |done: u64, of: u64| {
        if shows {
            let _ = write!(io::stderr(), "\r{} of {} ", units::bytes(done), units::bytes(of));
        }
        true
    };
    // A newer program may look at what an older one has recorded.
    let executor = Executor { statements: StatementExecutor::of_any_build(), ..Executor::default() };
    let executor: Arc<dyn CommandExecutor> = Arc::new(executor);
    let report = verify(directory, &executor, &how, &mut progress)?;
    if shows {
        let _ = writeln!(io::stderr());
    }
    let mut out = io::stdout().lock();
    if options.prints.json {
        drop(out);
        options.prints.show(&to_json(&report, options), String::new);
        return Ok(if report.mismatches + report.out_of_order == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    show(&report, &mut out)?;
    match report.mismatches + report.out_of_order {
        0 => Ok(ExitCode::SUCCESS),
        _ => {
            writeln!(out, "see them with: freshet inspect mismatches {}", options.mismatches.display())?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// For programs.
fn to_json(report: &VerifyReport, options: &VerifyOptions) -> Value {
    let VerifyReport { from, end, blocks, executed, mismatches, hash, .. } = report;
    let kept: BTreeMap<_, _> = report.kept.iter().map(|(why, count)| (why.to_string(), count)).collect();
    json!({
        "from": from, "end": end, "blocks": blocks, "executed": executed, "executed_bytes": report.executed_bytes,
        "kept": kept, "mismatches": mismatches, "out_of_order": report.out_of_order, "state": hash.to_string(),
        "waits": report.waits, "incomplete": report.incomplete.as_ref().map(ToString::to_string),
        "seconds": report.time.as_secs_f64(), "mismatches_file": options.mismatches,
    })
}

fn show(report: &VerifyReport, out: &mut impl Write) -> io::Result<()> {
    let VerifyReport { from, end, blocks, executed, mismatches, hash, .. } = report;
    writeln!(out, "{} blocks from {from} to {end}, in {:.1} s", units::grouped(*blocks), report.time.as_secs_f64())?;
    let bytes = units::bytes(report.executed_bytes);
    writeln!(out, "{} transactions executed again gave the same ({bytes} of log)", units::grouped(*executed))?;
    for (why, count) in &report.kept {
        writeln!(out, "{} blocks kept their bytes: {why}", units::grouped(*count))?;
    }
    let each = |time: std::time::Duration| match executed {
        0 => String::new(),
        count => format!(", {} each", units::micros(time.as_secs_f64() * 1e6 / *count as f64)),
    };
    let times = [report.execute_cpu, report.enter_cpu, report.replay_cpu].map(|time| time.as_secs_f64());
    writeln!(out, "executing took {:.2} s of processor time{}", times[0], each(report.execute_cpu))?;
    writeln!(out, "reading the log took {:.2} s, making it again and replaying {:.2} s", times[1], times[2])?;
    writeln!(out, "{} waits for what another transaction wrote", units::grouped(report.waits))?;
    writeln!(out, "state {hash}")?;
    if report.out_of_order > 0 {
        let count = units::grouped(report.out_of_order);
        writeln!(out, "{count} TRANSACTIONS THAT ARE NOT SERIALIZABLE, and were certified to be")?;
    }
    match mismatches {
        0 => writeln!(out, "no mismatch")?,
        count => writeln!(out, "{} MISMATCHES", units::grouped(*count))?,
    }
    match &report.incomplete {
        Some(why) => writeln!(out, "{why}"),
        None => Ok(()),
    }
}
