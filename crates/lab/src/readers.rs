//! TPC-C's two read-only transactions, one after the other all the time, on threads within a
//! benchmark's node. So benchmarks put a standby to use (Query Fresh, section 4.3), and no network
//! between is measured.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet::units::now_micros;
use freshet_base::{Isolation, cpu};
use freshet_engine::{Database, Worker};
use freshet_workloads::{
    TableSet,
    procedure::read_only,
    random::Random,
    tpcc::{
        self,
        input::{Kind, Request, Terminal},
        tables::Tables,
        text::Constants,
    },
};
use serde::{Deserialize, Serialize};

/// Which readers are to run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct StartReaders {
    /// On how many threads; 0 ends those that run.
    pub(crate) threads: u16,
    /// The seed of what they ask for.
    pub(crate) seed: u64,
}

/// What readers have done since the node started.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReaderTotals {
    /// Threads that run.
    pub(crate) threads: u64,
    /// Transactions that read.
    pub(crate) transactions: u64,
    /// Those that could not.
    pub(crate) failed: u64,
    /// Processor time of these threads.
    pub(crate) cpu: Duration,
    /// Processor time of the whole process.
    pub(crate) process_cpu: Duration,
}

impl ReaderTotals {
    /// Adds those of another node.
    pub(crate) fn add(&mut self, other: &Self) {
        self.threads += other.threads;
        self.transactions += other.transactions;
        self.failed += other.failed;
        self.cpu += other.cpu;
        self.process_cpu += other.process_cpu;
    }

    /// What was done since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            threads: self.threads,
            transactions: self.transactions.saturating_sub(before.transactions),
            failed: self.failed.saturating_sub(before.failed),
            cpu: self.cpu.saturating_sub(before.cpu),
            process_cpu: self.process_cpu.saturating_sub(before.process_cpu),
        }
    }
}

/// The most threads that may be asked for.
const MOST: u16 = 64;
/// Transactions between two looks at the processor's clock, and the time after which one is due
/// earlier: on a busy machine, some may be as long as what is measured.
const NOTE: u64 = 16;
const DUE: Duration = Duration::from_millis(20);

/// The readers of a node.
#[derive(Default)]
pub(crate) struct Readers {
    running: Mutex<Vec<JoinHandle<()>>>,
    counts: Arc<Counts>,
}

/// Relaxed everywhere: counts without data behind them, and an end that may be heard of a little
/// later.
#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    transactions: AtomicU64,
    failed: AtomicU64,
    cpu: cpu::Meter,
}

impl Readers {
    /// What they have done since the node started.
    pub(crate) fn totals(&self) -> ReaderTotals {
        ReaderTotals {
            threads: self.running.lock().unwrap_or_else(PoisonError::into_inner).len() as u64,
            transactions: self.counts.transactions.load(Ordering::Relaxed),
            failed: self.counts.failed.load(Ordering::Relaxed),
            cpu: self.counts.cpu.total(),
            process_cpu: cpu::process_time(),
        }
    }

    /// Ends all readers, and waits for that.
    pub(crate) fn stop(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.counts.stop.store(true, Ordering::Relaxed);
        for thread in running.drain(..) {
            let _ = thread.join();
        }
        self.counts.stop.store(false, Ordering::Relaxed);
    }

    /// Ends those that run, and starts others.
    pub(crate) fn start(&self, database: &Database, order: StartReaders) -> Result<(), String> {
        if order.threads > MOST {
            return Err(format!("{} readers are asked for, at most {MOST} may be", order.threads));
        }
        self.stop();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut begun = Ok(());
        for number in 0..order.threads {
            let (sender, receiver) = mpsc::sync_channel(1);
            let (database, counts) = (database.clone(), Arc::clone(&self.counts));
            let spawned = thread::Builder::new()
                .name(format!("reader {number}"))
                .spawn(move || read(&database, &counts, order.seed, number, &sender));
            begun = match spawned {
                Ok(thread) => {
                    running.push(thread);
                    receiver.recv().unwrap_or_else(|_| Err("a reader has ended".to_owned()))
                }
                Err(cause) => Err(format!("cannot start a reader: {cause}")),
            };
            if begun.is_err() {
                break;
            }
        }
        drop(running);
        if begun.is_err() {
            self.stop();
        }
        begun
    }
}

/// One reader: says whether it could begin, and reads until it is stopped.
fn read(database: &Database, counts: &Counts, seed: u64, number: u16, begun: &mpsc::SyncSender<Result<(), String>>) {
    let (worker, tables, mut terminal) = match prepare(database, seed, number) {
        Ok(prepared) => prepared,
        Err(why) => return drop(begun.send(Err(why))),
    };
    let _ = begun.send(Ok(()));
    let (mut stint, mut noted) = (counts.cpu.begin(), Instant::now());
    for (done, kind) in (1u64..).zip([Kind::StockLevel, Kind::OrderStatus].into_iter().cycle()) {
        if counts.stop.load(Ordering::Relaxed) {
            break;
        }
        let request = Request { mark: None, input: terminal.next_of(kind, now_micros()) };
        // What a standby shows is committed; on a primary the answer would have to wait, but nobody
        // hears it.
        let count = match tpcc::run(&worker, &tables, Isolation::Snapshot, &request) {
            Ok(_) => &counts.transactions,
            Err(_) => &counts.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if done.is_multiple_of(NOTE) || noted.elapsed() > DUE {
            stint.note();
            noted = Instant::now();
        }
    }
}

fn prepare(database: &Database, seed: u64, number: u16) -> Result<(Worker, Tables, Terminal), String> {
    let worker = database.worker().map_err(|cause| format!("there is no place for a reader: {cause}"))?;
    let tables = Tables::open(database).map_err(|absent| absent.to_string())?;
    let (population, _) = read_only(&worker, |txn| tables.population(txn)).map_err(|cause| cause.to_string())?;
    let constants = Constants::of_run(population.constants(), &mut Random::stream(seed, u64::MAX));
    let home = number % population.scale.warehouses + 1;
    // Far from the numbers of terminals that write.
    let terminal = Terminal::new(&population, constants, seed, 2_000_000 + u64::from(number), home);
    Ok((worker, tables, terminal))
}
