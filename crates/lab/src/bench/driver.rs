//! Threads that run transactions one after another, and what is measured of them.
//!
//! A thread never waits for a single commit. It keeps the tickets that have not resolved in a
//! queue, in the order of the log, and after each transaction looks at the `committed` watermark:
//! what that has passed is done, and its latency is the time since it began. Only when the queue is
//! as long as the window allows does the thread wait, for its oldest ticket.
//!
//! The clock is read once for each transaction: the end of one is the beginning of the next. Under
//! less than full load (`--load`) a thread rests between transactions.

use std::{
    collections::VecDeque,
    sync::{
        Barrier,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use freshet_base::{Lsn, cpu, wait::Patience};
use freshet_engine::{OutcomeOpen, ProcedureError, Ticket, Worker};
use freshet_txn::{CommitGate, Rollbacks};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::{
    crash,
    options::Common,
    subject::{Measured, Subject},
};
use freshet::Failure;

/// How a transaction went that did not fail.
pub(crate) enum Went {
    /// It took effect.
    Through(Ticket),
    /// It was rolled back as it wanted to be.
    Back(Ticket),
}

impl Went {
    /// What is open now of the transaction, which began at `begun`.
    fn open(self, begun: Instant) -> Open {
        let (ticket, counts) = match self {
            Self::Through(ticket) => (ticket, true),
            Self::Back(ticket) => (ticket, false),
        };
        Open { until: ticket.until, begun, counts }
    }
}

/// How a thread rests under less than full load.
struct Rest {
    /// How much longer than it works it rests.
    share: f64,
    /// What it has not rested yet.
    owed: Duration,
}

impl Rest {
    /// It has worked from `begun` to `now`. Blocks while it rests. Returns the time after that.
    fn after(&mut self, begun: Instant, now: Instant) -> Instant {
        self.owed += (now - begun).mul_f64(self.share);
        if self.owed < REST {
            return now;
        }
        std::thread::sleep(self.owed);
        let rested = Instant::now();
        self.owed = self.owed.saturating_sub(rested - now);
        rested
    }
}

/// Transactions and what became of them, of one thread or all.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Transactions that took effect.
    pub(crate) executed: u64,
    /// Those that were found to be committed; some were executed before the measurement.
    pub(crate) committed: u64,
    /// Those that were rolled back, by cause; most were run again.
    pub(crate) aborts: Aborts,
    /// From the beginning of a transaction to its durability, in nanoseconds.
    pub(crate) latency: Latencies,
    /// The sum of the latencies of committed transactions, in microseconds.
    waited: u64,
    /// Committed transactions per second: the sum of the threads' rates.
    pub(crate) per_second: f64,
    /// Processor time of the threads.
    pub(crate) cpu: Duration,
    /// How often a thread waited because its window was full.
    pub(crate) window_waits: u64,
    /// Half seconds of the measurement.
    pub(crate) halves: Vec<Half>,
}

/// Half a second of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    /// When it ended, in seconds from the beginning of the measurement.
    pub(crate) seconds: f64,
    /// Transactions in it, per second.
    pub(crate) per_second: f64,
    /// The mean of their latencies, in microseconds.
    pub(crate) latency_us: f64,
    /// Whether a checkpoint was being written at its end.
    pub(crate) checkpointing: bool,
}

/// How long the parts are whose throughput is looked at one by one.
const HALF: Duration = Duration::from_millis(500);

/// The shortest rest of a thread: shorter sleeps are not kept.
const REST: Duration = Duration::from_millis(1);

/// Transactions that were rolled back, by cause.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Aborts {
    /// Another transaction wrote the same record first.
    pub(crate) write_conflict: u64,
    /// Serializable: a record that was read had changed.
    pub(crate) read_changed: u64,
    /// Serializable: a range that was read had changed.
    pub(crate) phantom: u64,
    /// Serializable: the serial safety net had no place for it.
    pub(crate) exclusion: u64,
    /// A key was taken.
    pub(crate) unique: u64,
    /// The transaction itself wanted to: 1 % of TPC-C's new orders.
    pub(crate) user: u64,
    /// Anything else.
    pub(crate) other: u64,
}

impl Aborts {
    fn between(before: Rollbacks, after: Rollbacks) -> Self {
        Self {
            write_conflict: after.write_conflict - before.write_conflict,
            read_changed: after.read_changed - before.read_changed,
            phantom: after.phantom - before.phantom,
            exclusion: after.exclusion - before.exclusion,
            unique: after.unique - before.unique,
            user: after.user - before.user,
            other: after.other - before.other,
        }
    }

    fn add(&mut self, other: Self) {
        self.write_conflict += other.write_conflict;
        self.read_changed += other.read_changed;
        self.phantom += other.phantom;
        self.exclusion += other.exclusion;
        self.unique += other.unique;
        self.user += other.user;
        self.other += other.other;
    }
}

/// A histogram of nanoseconds, up to a minute, exact to 1/500.
#[derive(Debug)]
pub(crate) struct Latencies(pub(crate) Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order"))
    }
}

impl Latencies {
    /// Adds one; more than a minute counts as a minute.
    #[inline]
    pub(crate) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

const WARMUP: u8 = 0;
const MEASURE: u8 = 1;
/// What is executed is not measured any more.
const BEYOND: u8 = 2;
const STOP: u8 = 3;

/// A counter that shares its cache lines with nothing.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine {
    /// Transactions that were committed.
    committed: AtomicU64,
    /// The sum of their latencies, in microseconds.
    waited: AtomicU64,
}

/// What the threads share.
struct Shared<'a> {
    gate: &'a dyn CommitGate,
    /// Relaxed everywhere: a thread may hear of a new phase a little later.
    phase: AtomicU8,
    ready: Barrier,
    window: usize,
    /// How much longer than it works a thread rests.
    rest: f64,
    /// What each thread has committed so far; stored by it, read by who measures. Relaxed: a count
    /// without data behind it.
    done: Vec<OwnLine>,
}

/// Runs `make(number)`, one transaction a call, on every thread of the subject's primary; first for
/// the time of the warm-up, then for that of the measurement, which the subject measures.
pub(crate) fn drive<C>(
    subject: &Subject,
    common: &Common,
    make: impl Fn(usize) -> C + Sync,
) -> Result<(Tally, Measured), Failure>
where
    C: FnMut(&Worker, Instant) -> Result<Went, ProcedureError>,
{
    subject.wait_shown(common)?;
    let database = subject.database();
    let threads = usize::from(common.threads);
    let primary = database.core().snapshots.primary().ok_or_else(|| Failure::new("this node is not a primary"))?;
    let shared = Shared {
        gate: &*primary.gate,
        phase: AtomicU8::new(WARMUP),
        ready: Barrier::new(threads + 1),
        window: common.window as usize,
        rest: 100.0 / f64::from(common.load) - 1.0,
        done: (0..threads).map(|_| OwnLine::default()).collect(),
    };
    std::thread::scope(|scope| {
        let (shared, make) = (&shared, &make);
        let mut running = Vec::new();
        for number in 0..threads {
            let thread = std::thread::Builder::new().name(format!("worker {number}"));
            running.push(thread.spawn_scoped(scope, move || -> Result<Tally, Failure> {
                let worker = database.worker();
                shared.ready.wait();
                run(shared, number, &worker?, make(number))
            })?);
        }
        shared.ready.wait();
        let wait = |time: Duration| {
            let until = Instant::now() + time;
            while !running.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return true;
                }
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            false
        };
        wait(Duration::from_secs_f64(common.warmup));
        if common.crash {
            let failed = crash::at_a_checkpoint(subject, wait);
            shared.phase.store(STOP, Ordering::Relaxed);
            for thread in running {
                thread.join().map_err(|_| Failure::new("a worker thread panicked"))??;
            }
            return Err(failed);
        }
        let begun = subject.begin(common);
        shared.phase.store(MEASURE, Ordering::Relaxed);
        let halves = halves(shared, common, wait, || subject.checkpoints().0);
        // What is looked at later must not let the workers go on.
        let settle = subject.end(begun);
        let took_over = common.failover.then(|| {
            shared.phase.store(BEYOND, Ordering::Relaxed);
            subject.failover()
        });
        shared.phase.store(STOP, Ordering::Relaxed);
        let mut all = Tally { halves, ..Tally::default() };
        for thread in running {
            all.add(&thread.join().map_err(|_| Failure::new("a worker thread panicked"))??);
        }
        Ok((all, Measured { took_over: took_over.transpose()?, ..settle() }))
    })
}

/// Looks at each half second of the measurement, and returns at its end. `wait` waits, or returns
/// early when a thread has failed.
fn halves(
    shared: &Shared<'_>,
    common: &Common,
    wait: impl Fn(Duration) -> bool,
    checkpointing: impl Fn() -> bool,
) -> Vec<Half> {
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(common.seconds);
    let sum = |of: fn(&OwnLine) -> &AtomicU64| shared.done.iter().map(|it| of(it).load(Ordering::Relaxed)).sum::<u64>();
    let (mut halves, mut last) = (Vec::new(), None);
    let mut last_at = begun;
    while Instant::now() < end && wait(HALF.min(end - Instant::now())) {
        let (now, committed, waited) = (Instant::now(), sum(|it| &it.committed), sum(|it| &it.waited));
        let time = (now - last_at).as_secs_f64();
        // The first one and a shorter last one say nothing.
        if let Some((committed_before, waited_before)) = last.filter(|_| time >= HALF.as_secs_f64()) {
            let transactions = u64::saturating_sub(committed, committed_before) as f64;
            halves.push(Half {
                seconds: (now - begun).as_secs_f64(),
                per_second: transactions / time,
                latency_us: u64::saturating_sub(waited, waited_before) as f64 / transactions.max(1.0),
                checkpointing: checkpointing(),
            });
        }
        (last, last_at) = (Some((committed, waited)), now);
    }
    halves
}

/// One thread.
fn run(
    shared: &Shared<'_>,
    number: usize,
    worker: &Worker,
    mut transaction: impl FnMut(&Worker, Instant) -> Result<Went, ProcedureError>,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut open: VecDeque<Open> = VecDeque::with_capacity(shared.window.min(1 << 12));
    let mut phase = WARMUP;
    let mut measured_since = Instant::now();
    let mut cpu_before = cpu::thread_time();
    let mut rollbacks_before = worker.rollbacks();
    let mut now = Instant::now();
    let mut rest = Rest { share: shared.rest, owed: Duration::ZERO };
    loop {
        let latest = shared.phase.load(Ordering::Relaxed);
        if latest != phase {
            phase = latest;
            if latest >= BEYOND {
                break;
            }
            tally = Tally::default();
            cpu_before = cpu::thread_time();
            rollbacks_before = worker.rollbacks();
            now = Instant::now();
            measured_since = now;
        }
        let begun = now;
        let went = transaction(worker, begun)?;
        now = Instant::now();
        let this = went.open(begun);
        tally.executed += u64::from(this.counts);
        if this.until == Lsn::ZERO {
            tally.commit(&this, now);
        } else {
            open.push_back(this);
            resolve(shared.gate, &mut open, &mut tally, now);
            if open.len() >= shared.window {
                tally.window_waits += 1;
                if !wait(shared, open[0].until)? {
                    continue;
                }
                now = Instant::now();
                resolve(shared.gate, &mut open, &mut tally, now);
            }
        }
        now = rest.after(begun, now);
        shared.done[number].committed.store(tally.committed, Ordering::Relaxed);
        shared.done[number].waited.store(tally.waited, Ordering::Relaxed);
    }
    tally.per_second = tally.committed as f64 / (now - measured_since).as_secs_f64().max(1e-9);
    tally.cpu = cpu::thread_time() - cpu_before;
    tally.aborts = Aborts::between(rollbacks_before, worker.rollbacks());
    if phase == BEYOND {
        keep_the_load(shared, open, || transaction(worker, Instant::now()));
        return Ok(tally);
    }
    // Tickets of this thread resolve in the order of the log, except those of readers, which may
    // resolve earlier. They come too late to count, but not their latencies: without those the
    // longest would be missing.
    while let Some(late) = open.pop_front() {
        let deadline = Instant::now() + Duration::from_secs(60);
        shared.gate.wait(late.until, deadline.into()).map_err(failure)?;
        tally.latency.record(late.begun.elapsed());
    }
    Ok(tally)
}

/// Waits until a transaction is committed. False if another node is about to be the primary
/// instead, or is.
fn wait(shared: &Shared<'_>, until: Lsn) -> Result<bool, Failure> {
    match shared.gate.wait(until, Patience::endless()) {
        Ok(()) => Ok(true),
        Err(_) if shared.phase.load(Ordering::Relaxed) == BEYOND => Ok(false),
        Err(open) => Err(failure(open)),
    }
}

/// Executes what is not measured, with no more open transactions than before, until all ends. There
/// may be another primary by now: then this one fails.
fn keep_the_load(
    shared: &Shared<'_>,
    mut open: VecDeque<Open>,
    mut transaction: impl FnMut() -> Result<Went, ProcedureError>,
) {
    let stops = || shared.phase.load(Ordering::Relaxed) == STOP;
    while !stops() {
        let committed = shared.gate.committed();
        while open.pop_front_if(|first| first.until <= committed).is_some() {}
        if let Some(first) = open.front().filter(|_| open.len() >= shared.window) {
            let soon = Instant::now() + Duration::from_millis(10);
            match shared.gate.wait(first.until, soon.into()) {
                Ok(()) | Err(OutcomeOpen::Deadline) => continue,
                Err(_) => return,
            }
        }
        match transaction() {
            Ok(went) => open.push_back(went.open(Instant::now())),
            Err(_) => return,
        }
    }
}

fn failure(open: OutcomeOpen) -> Failure {
    Failure::new(format!("the benchmark ended early: {open}"))
}

/// A transaction that was executed.
struct Open {
    /// It is committed when the watermark is here.
    until: Lsn,
    begun: Instant,
    /// Whether it took effect.
    counts: bool,
}

impl Tally {
    /// Adds what another thread has done.
    fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.committed += other.committed;
        self.aborts.add(other.aborts);
        self.latency.0 += &other.latency.0;
        self.per_second += other.per_second;
        self.cpu += other.cpu;
        self.window_waits += other.window_waits;
    }

    /// A transaction was found to be committed.
    #[inline]
    fn commit(&mut self, open: &Open, now: Instant) {
        let latency = now.saturating_duration_since(open.begun);
        self.latency.record(latency);
        if open.counts {
            self.committed += 1;
            self.waited += latency.as_micros() as u64;
        }
    }
}

/// Notes what the watermark has passed.
#[inline]
fn resolve(gate: &dyn CommitGate, open: &mut VecDeque<Open>, tally: &mut Tally, now: Instant) {
    let committed = gate.committed();
    while let Some(first) = open.front() {
        if first.until > committed {
            break;
        }
        tally.commit(first, now);
        open.pop_front();
    }
}
