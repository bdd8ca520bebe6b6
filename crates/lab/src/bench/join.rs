//! `freshet-lab bench join`: how long a standby takes to join a primary at work, and what that
//! costs the primary (Query Fresh, section 4.8).
//!
//! TPC-C is loaded, a checkpoint written, TPC-C runs for a while, so that there is log since the
//! checkpoint; then a standby is started, in a process of its own, while TPC-C continues.

use std::{
    collections::VecDeque,
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use clap::Args;
use freshet_engine::{CheckpointKind, Domain, ProcedureError, Worker};
use serde::Serialize;
use serde_json::Value;

use super::{
    driver::Went,
    options::{Common, TpccMix},
    subject::Subject,
    tpcc,
};
use freshet::{Failure, units};

/// Options of `freshet-lab bench join`.
#[derive(Clone, Debug, Args)]
pub(crate) struct JoinOptions {
    /// Warehouses; threads have their home warehouses in turn.
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    warehouses: u16,
    /// `--seconds` is how long is run before the standby joins, and again after it has.
    #[command(flatten)]
    common: Common,
}

/// What was found out. `--json` prints it as it is.
#[derive(Debug, Serialize)]
struct Joined {
    /// The checkpoint that the standby begins with.
    checkpoint: Phase,
    /// The log since then that it reads before it serves.
    log: Phase,
    /// Making its indexes; counted are entries.
    indexes: Phase,
    /// From the start of its process until it serves, in seconds.
    serving_seconds: f64,
    /// Until it also shows everything that had been committed when it began to serve.
    joined_seconds: f64,
    /// Transactions per second before, while it joins, and afterwards, with the standby in step.
    tps: Throughput,
    /// The throughput while it joins / the throughput before.
    kept: f64,
}

/// How long a phase took, and how much there was to do.
#[derive(Debug, Serialize)]
pub(super) struct Phase {
    pub(super) seconds: f64,
    pub(super) amount: u64,
    pub(super) per_second: f64,
}

#[derive(Debug, Serialize)]
struct Throughput {
    before: f64,
    joining: f64,
    after: f64,
}

impl Phase {
    /// A phase in a node's status: seconds and nanoseconds, and the amount.
    pub(super) fn of(status: &Value, name: &str) -> Result<Self, Failure> {
        let phase = &status["start"][name];
        let number = |pointer: &str| phase.pointer(pointer).and_then(Value::as_u64);
        let read = || {
            let time = Duration::new(number("/0/secs")?, u32::try_from(number("/0/nanos")?).ok()?);
            Some((time.as_secs_f64(), number("/1")?))
        };
        let (seconds, amount) =
            read().ok_or_else(|| Failure::new(format!("the node's status does not tell its phase {name:?}")))?;
        Ok(Self { seconds, amount, per_second: amount as f64 / seconds.max(1e-9) })
    }
}

/// Loads, runs TPC-C, and has a standby join.
pub(crate) fn run(options: &JoinOptions) -> Result<ExitCode, Failure> {
    let common = &options.common;
    if common.standbys != 0 {
        return Err(Failure::new("the standby that joins is the only one: leave --standbys away"));
    }
    if common.domain == Domain::None {
        return Err(Failure::new("a standby can join only where the log is kept: use --domain file"));
    }
    let subject = Subject::start(common)?;
    let (prepared, _) = tpcc::prepare(&subject, options.warehouses, common)?;
    subject.node()?.checkpoint(CheckpointKind::Fuzzy).map_err(Failure::new)?;

    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let joined = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for number in 0..usize::from(common.threads) {
            let (subject, stop, count) = (&subject, &stop, &count);
            let terminal = prepared.terminal(number, TpccMix::Full, false, common);
            running.push(scope.spawn(move || work(subject, common, terminal, stop, count)));
        }
        let joined = measure(&subject, common, &count);
        stop.store(true, Ordering::Relaxed);
        for thread in running {
            thread.join().map_err(|_| Failure::new("a worker thread panicked"))??;
        }
        joined
    })?;
    subject.stop()?;
    if common.json {
        println!("{}", serde_json::to_string(&joined)?);
    } else {
        print(&joined);
    }
    Ok(ExitCode::SUCCESS)
}

/// One thread of the load.
fn work(
    subject: &Subject,
    common: &Common,
    mut transaction: impl FnMut(&Worker, Instant) -> Result<Went, ProcedureError>,
    stop: &AtomicBool,
    count: &AtomicU64,
) -> Result<(), Failure> {
    let database = subject.database();
    let worker = database.worker()?;
    let mut open = VecDeque::new();
    // Relaxed, here and where it is read: a count without data behind it.
    while !stop.load(Ordering::Relaxed) {
        let (Went::Through(ticket) | Went::Back(ticket)) = transaction(&worker, Instant::now())?;
        count.fetch_add(1, Ordering::Relaxed);
        open.push_back(ticket);
        if open.len() >= common.window as usize
            && let Some(oldest) = open.pop_front()
        {
            database.wait(oldest)?;
        }
    }
    for ticket in open {
        database.wait(ticket)?;
    }
    Ok(())
}

fn measure(subject: &Subject, common: &Common, count: &AtomicU64) -> Result<Joined, Failure> {
    let timed = |action: &mut dyn FnMut() -> Result<(), Failure>| -> Result<(f64, f64), Failure> {
        let (begun, before) = (Instant::now(), count.load(Ordering::Relaxed));
        action()?;
        let seconds = begun.elapsed().as_secs_f64();
        Ok((seconds, (count.load(Ordering::Relaxed) - before) as f64 / seconds))
    };
    let pause = |seconds: f64| {
        std::thread::sleep(Duration::from_secs_f64(seconds));
        Ok(())
    };
    timed(&mut || pause(common.warmup))?;
    let (_, before) = timed(&mut || pause(common.seconds))?;
    let mut serving_seconds = 0.0;
    let mut standby = None;
    let (joined_seconds, joining) = timed(&mut || {
        let begun = Instant::now();
        let joined = subject.join(common, "joining")?;
        serving_seconds = begun.elapsed().as_secs_f64();
        joined.wait_visible(subject.reserved())?;
        standby = Some(joined);
        Ok(())
    })?;
    let (_, after) = timed(&mut || pause(common.seconds))?;
    let status = standby.as_ref().map(super::subject::Standby::status).unwrap_or_default();
    Ok(Joined {
        checkpoint: Phase::of(&status, "checkpoint")?,
        log: Phase::of(&status, "log")?,
        indexes: Phase::of(&status, "indexes")?,
        serving_seconds,
        joined_seconds,
        tps: Throughput { before, joining, after },
        kept: joining / before.max(1e-9),
    })
}

fn print(joined: &Joined) {
    let line = |name: &str, value: String| println!("{name:<22} {value}");
    for (name, Phase { seconds, amount, per_second }) in [("checkpoint", &joined.checkpoint), ("log", &joined.log)] {
        let (amount, rate) = (units::bytes(*amount), units::bytes(*per_second as u64));
        line(name, format!("{amount} in {seconds:.2} s, {rate}/s"));
    }
    let Phase { seconds, amount, .. } = &joined.indexes;
    line("indexes", format!("{} entries in {seconds:.2} s", units::grouped(*amount)));
    line("serves after", format!("{:.2} s", joined.serving_seconds));
    line("in step after", format!("{:.2} s", joined.joined_seconds));
    let Throughput { before, joining, after } = &joined.tps;
    for (name, tps) in [("transactions/s before", before), ("while it joins", joining), ("afterwards", after)] {
        line(name, format!("{}, {:.0} %", units::grouped(tps.round() as u64), tps / before.max(1e-9) * 100.0));
    }
}
