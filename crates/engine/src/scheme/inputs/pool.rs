//! The threads that execute transactions again (Record-Replay, section 4.5.2).
//!
//! Each takes the next block, in the order of LSNs, executes its transaction at the snapshots
//! that it had, and compares the block that comes out with the header that the block has: the
//! checksum says whether the rows are the same. Then it puts their versions into the tables. A
//! thread that needs a version which is not there yet sleeps, and leaves its processor to another:
//! there are more threads than processors.
//!
//! A transaction that gives something else, or nothing, is no reason to stop: the block's original
//! bytes are asked for ([`Originals`]), and those who wait for its versions wait a little longer.
//! What became of it is told to [`Mismatches`].

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use freshet_base::{Lsn, cpu::Meter, panics};
use freshet_log::{Block, BlockBuilder, BlockHeader};
use freshet_txn::{Core, Inputs, Past, ProcedureError, Worker, WorkerError};

use super::{
    failure::{Failure, Why},
    mismatch::Mismatch,
    pending::{Pending, Task},
    reader::Reader,
    tables::Maker,
    window::Window,
};
use crate::scheme::{
    Ground, Replaying,
    command::{CommandExecutor, recorded_as},
    full::Full,
};

/// A thread looks at the processor's clock each time that it has executed this many transactions.
const NOTE: u32 = 32;

/// Where the bytes of blocks are that could not be regenerated.
pub(crate) trait Originals: Send + Sync {
    /// Asks for the bytes of a block. They are [delivered](Wanted::deliver) now or later, by any
    /// thread. Does not block for long.
    fn ask(&self, wanted: Wanted);
}

/// A block that could not be regenerated, and whose bytes are wanted.
pub(crate) struct Wanted {
    block: Arc<Pending>,
    failure: Failure,
    window: Arc<Window>,
    mismatches: Arc<dyn Mismatches>,
    maker: Fetched,
    counts: Arc<Counts>,
}

/// Makes the versions of blocks whose bytes have come.
type Fetched = Arc<Mutex<Box<dyn Execute>>>;

impl Wanted {
    /// Where it begins.
    pub fn at(&self) -> Lsn {
        self.block.lsn()
    }

    /// What it has to begin with.
    pub fn header(&self) -> &BlockHeader {
        self.block.header()
    }

    /// Whether it still matters.
    pub fn is_wanted(&self) -> bool {
        !self.block.is_cut() && !self.window.is_closed() && !self.block.is_claimed()
    }

    /// Whether it will not come out here, now or later.
    pub fn is_lacking(&self) -> bool {
        !matches!(self.failure.why, Why::Slow | Why::Memory(_))
    }

    /// No node has given it, for a while: it is executed once more, if it is not being executed.
    pub fn retry(self) {
        if matches!(self.failure.why, Why::Memory(_)) {
            self.window.retry(self.block);
        }
    }

    /// How long nodes are asked for it that may have it later; none: as long as it is wanted.
    pub fn patience(&self) -> Option<Duration> {
        self.mismatches.patience().filter(|_| self.failure.why.is_mismatch())
    }

    /// Here are its bytes, or why they cannot be had, which ends everything.
    pub fn deliver(self, bytes: Result<Vec<u8>, String>) {
        if !self.is_wanted() {
            return;
        }
        let (at, expected) = (self.at(), self.block.header());
        let original = bytes.and_then(|bytes| match Block::parse(&bytes, at) {
            Ok(found) if found.header() == expected && bytes.len() == expected.length as usize => Ok(bytes),
            _ => Err("what came is another block".into()),
        });
        if let Some(why) = original.as_ref().ok().and_then(|bytes| self.block.lacks(bytes)) {
            return self.window.close(Some(why.to_string()));
        }
        if self.failure.why.is_mismatch() {
            let known = original.as_deref().unwrap_or_default();
            if let Err(why) = self.mismatches.note(Mismatch::of(&self.block, &self.failure, known)) {
                return self.window.close(Some(why));
            }
        }
        match original {
            Ok(_) if !self.block.claim() => {}
            Ok(original) => {
                if self.failure.why == Why::Slow {
                    // Relaxed: a statistic.
                    self.counts.slow.fetch_add(1, Relaxed);
                }
                let mut maker = self.maker.lock().unwrap_or_else(PoisonError::into_inner);
                let image = self.block.put(original.into());
                if let Err(why) = self.window.make(&self.block, || maker.make(&self.block, image)) {
                    self.window.close(Some(why));
                }
            }
            Err(_) if !self.is_lacking() => {}
            Err(why) => self.window.close(Some(format!(
                "the transaction at {at} cannot be executed again, since {}, and its block cannot be had: {why}",
                self.failure.why.for_status()
            ))),
        }
    }
}

/// Hears of transactions that could not be executed again, or gave something else.
pub(crate) trait Mismatches: Send + Sync {
    /// This is what was to come out, unless it could not be had, and what did.
    ///
    /// # Errors
    /// Why nothing is executed any more.
    fn note(&self, mismatch: Mismatch) -> Result<(), String>;

    /// How long it pays to wait for what was to come out, where that ends.
    fn patience(&self) -> Option<Duration> {
        None
    }
}

/// Executes the transactions of blocks again. One thread's.
pub(super) trait Execute: Send {
    /// The bytes of a block.
    fn execute(&mut self, block: &Pending, task: &Task, past: Arc<dyn Past>) -> Result<Arc<[u8]>, Failure>;

    /// How the transaction of a block, which came out as `image`, differs from itself at its own
    /// LSN, if it was certified not to, and that is to be checked.
    fn check_order(&mut self, block: &Pending, task: &Task, past: Arc<dyn Past>, image: &[u8]) -> Option<Failure>;

    /// The transaction's command, for people.
    fn describe(&mut self, _block: &Pending, _task: &Task, _past: Arc<dyn Past>) -> String {
        String::new()
    }

    /// Puts the versions of a block, which has these bytes, into the tables.
    ///
    /// # Errors
    /// Why nothing is executed any more.
    fn make(&mut self, block: &Pending, image: &[u8]) -> Result<(), String>;
}

/// What executing procedures takes.
pub(super) struct Means<'m> {
    pub core: &'m Arc<Core>,
    pub executor: &'m Arc<dyn CommandExecutor>,
    /// Where versions are made.
    pub ground: &'m Ground,
    /// Whether serializable transactions are checked at their own LSNs, too.
    pub serially: bool,
}

/// Executes procedures again, as transactions of a node. One thread's.
pub(super) struct Executes {
    core: Arc<Core>,
    executor: Arc<dyn CommandExecutor>,
    /// Made by the thread that uses it.
    worker: Option<Worker>,
    builder: BlockBuilder,
}

/// The procedure of a task, and its inputs.
fn command_of(task: &Task) -> Option<(u32, &[u8])> {
    Inputs::decode(&task.inputs).and_then(|inputs| recorded_as(inputs.body))
}

impl Executes {
    pub fn new(core: &Arc<Core>, executor: &Arc<dyn CommandExecutor>) -> Self {
        let (core, executor) = (Arc::clone(core), Arc::clone(executor));
        Self { core, executor, worker: None, builder: BlockBuilder::new() }
    }

    fn worker(&mut self) -> Result<Worker, WorkerError> {
        self.worker.take().map_or_else(|| Worker::new(&self.core), Ok)
    }

    /// Executes a transaction that reads at `snapshots`.
    pub fn execute_at(
        &mut self,
        block: &Pending,
        task: &Task,
        snapshots: &[Lsn],
        past: Arc<dyn Past>,
    ) -> Result<Arc<[u8]>, Failure> {
        let (procedure, inputs) = command_of(task).ok_or(Why::Undecodable)?;
        let worker = self.worker().map_err(|cause| Why::Failed(cause.to_string()))?;
        let BlockHeader { lsn, term, stream, .. } = *block.header();
        let entries = task.entries.get().map_or(&[][..], Vec::as_slice);
        let transaction = worker.again(lsn, snapshots, entries, past);
        let executed = panics::contained("executing a transaction again", || {
            self.executor.execute(&transaction, procedure, inputs)
        });
        let outcome: Result<Arc<[u8]>, Failure> = match executed {
            Ok(Ok(())) => {
                let image = transaction.regenerate(&mut self.builder, term, stream, &task.inputs);
                image.map_err(|mismatch| Why::Writes(mismatch.to_string()).into())
            }
            Ok(Err(cause)) => {
                drop(transaction);
                Err(match cause {
                    ProcedureError::Memory(cause) => Why::Memory(cause).into(),
                    ProcedureError::OtherBuild => Why::OtherBuild.into(),
                    cause => Why::Failed(cause.to_string()).into(),
                })
            }
            Err(panics::Caught(cause)) => {
                drop(transaction);
                // What it left behind in its worker is not to be relied on.
                return Err(Why::Panicked(cause).into());
            }
        };
        self.worker = Some(worker);
        outcome
    }

    /// Executes a transaction as if all of it happened at its own LSN.
    pub fn in_order(&mut self, block: &Pending, task: &Task, past: Arc<dyn Past>) -> Result<Arc<[u8]>, Failure> {
        self.execute_at(block, task, &vec![block.lsn(); task.snapshots.len()], past)
    }

    /// The transaction's command, for people.
    pub fn describe(&mut self, block: &Pending, task: &Task, past: Arc<dyn Past>) -> String {
        let Some((procedure, inputs)) = command_of(task) else { return String::new() };
        let Ok(worker) = self.worker() else { return format!("procedure {procedure}") };
        let entries = task.entries.get().map_or(&[][..], Vec::as_slice);
        let transaction = worker.again(block.lsn(), &task.snapshots, entries, past);
        let described =
            panics::contained("describing a transaction", || self.executor.describe(&transaction, procedure, inputs));
        drop(transaction);
        match described {
            Ok(described) => {
                self.worker = Some(worker);
                described
            }
            // As after an execution that panicked.
            Err(_) => format!("procedure {procedure}"),
        }
    }
}

/// Whether the transaction of a block was certified to be the same at its own LSN, and has read
/// elsewhere.
pub(super) fn is_in_order(block: &Pending, task: &Task) -> bool {
    Inputs::decode(&task.inputs).is_some_and(|inputs| inputs.serial)
        && task.snapshots.iter().any(|snapshot| *snapshot != block.lsn())
}

/// Why a transaction is not the same at its own LSN, where this has come of it.
pub(super) fn out_of_order(there: Result<Arc<[u8]>, Failure>) -> Failure {
    match there {
        Ok(image) => Failure { image: Some(image.to_vec()), ..Why::Order.into() },
        Err(failure) => Failure { why: Why::Order, ..failure },
    }
}

/// Executes blocks of the window.
struct Procedures {
    executes: Executes,
    /// Whether serializable transactions are executed at their own LSNs, too.
    serially: bool,
    maker: Maker,
}

impl Procedures {
    fn new(means: &Means<'_>) -> Self {
        let maker = Maker::new(&means.core.catalog, Full.redo(means.ground));
        Self { executes: Executes::new(means.core, means.executor), serially: means.serially, maker }
    }
}

impl Execute for Procedures {
    fn execute(&mut self, block: &Pending, task: &Task, past: Arc<dyn Past>) -> Result<Arc<[u8]>, Failure> {
        self.executes.execute_at(block, task, &task.snapshots, past)
    }

    fn check_order(&mut self, block: &Pending, task: &Task, past: Arc<dyn Past>, image: &[u8]) -> Option<Failure> {
        if !self.serially || !is_in_order(block, task) {
            return None;
        }
        match self.executes.in_order(block, task, past) {
            Ok(there) if *there == *image => None,
            Err(Failure { why: Why::Memory(_), .. }) => None,
            there => Some(out_of_order(there)),
        }
    }

    fn describe(&mut self, block: &Pending, task: &Task, past: Arc<dyn Past>) -> String {
        self.executes.describe(block, task, past)
    }

    fn make(&mut self, block: &Pending, image: &[u8]) -> Result<(), String> {
        let worker = self.executes.worker().map_err(|cause| cause.to_string())?;
        let made = self.maker.make(&worker.pin(), block, image);
        self.executes.worker = Some(worker);
        made.map_err(|cause| cause.to_string())
    }
}

/// What the threads share.
struct Shared {
    window: Arc<Window>,
    originals: Arc<dyn Originals>,
    mismatches: Arc<dyn Mismatches>,
    maker: Fetched,
    counts: Arc<Counts>,
}

/// What a pool has done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Blocks that came out as they were.
    pub executed: AtomicU64,
    /// Those whose snapshots were too old.
    pub old: AtomicU64,
    /// Those that took so long that their bytes came first.
    pub slow: AtomicU64,
    /// Those for which there was not enough memory.
    pub memory: AtomicU64,
    /// Those that another build of the program has recorded.
    pub other_build: AtomicU64,
    /// Those that did not come out, or came out otherwise.
    pub mismatches: AtomicU64,
    /// Those that came out, and are not what they would be at their own LSNs.
    pub out_of_order: AtomicU64,
    /// Processor time of all threads, as of a few transactions ago.
    pub cpu: Meter,
}

impl Counts {
    /// How many blocks of transactions that came with their inputs were fetched.
    pub fn fetched(&self) -> u64 {
        // Relaxed: statistics.
        [&self.old, &self.slow, &self.memory, &self.mismatches].map(|count| count.load(Relaxed)).iter().sum()
    }
}

/// The threads. Dropping it closes the window and ends them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `threads` threads, at least one, which execute what is in the window, and put what
    /// comes of it into the tables.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        threads: usize,
        window: &Arc<Window>,
        means: &Means<'_>,
        originals: Arc<dyn Originals>,
        mismatches: Arc<dyn Mismatches>,
    ) -> io::Result<Self> {
        let make = || Box::new(Procedures::new(means)) as Box<dyn Execute>;
        Self::start_with(threads, window, &make, originals, mismatches)
    }

    pub(super) fn start_with(
        threads: usize,
        window: &Arc<Window>,
        make: &dyn Fn() -> Box<dyn Execute>,
        originals: Arc<dyn Originals>,
        mismatches: Arc<dyn Mismatches>,
    ) -> io::Result<Self> {
        let (window, maker, counts) = (Arc::clone(window), Arc::new(Mutex::new(make())), Arc::default());
        let shared = Arc::new(Shared { window, originals, mismatches, maker, counts });
        let mut pool = Self { shared, threads: Vec::new() };
        pool.shared.window.expect(threads.max(1));
        for number in 0..threads.max(1) {
            let (shared, mut execute) = (Arc::clone(&pool.shared), make());
            let thread = Builder::new().name(format!("execute-{number}"));
            pool.threads.push(thread.spawn(move || shared.run(&mut *execute))?);
        }
        Ok(pool)
    }

    /// What it has done so far.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.shared.counts
    }

    /// Asks for the bytes of the block that all others wait for, if it has been executed for so
    /// long. What comes first counts.
    pub fn fetch_overdue(&self, limit: Duration) {
        if let Some(block) = self.shared.window.overdue(limit) {
            self.shared.want(block, Why::Slow.into());
        }
    }

    /// Waits until the threads have ended, as they do when the window is closed, or finished and
    /// executed.
    pub fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic has closed the window.
            let _ = thread.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.window.close(None);
        self.join();
    }
}

/// Closes the window when a thread panics, so that no other waits for what it would have made.
struct Closing<'w>(&'w Window);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.close(Some("a thread that executes transactions again has panicked".into()));
        }
    }
}

impl Shared {
    fn run(&self, execute: &mut dyn Execute) {
        let mut stint = self.counts.cpu.begin();
        let mut turn = 0;
        let _closing = Closing(&self.window);
        while let Some(block) = self.window.next() {
            turn = (turn + 1) % NOTE;
            if turn == 0 {
                stint.note();
            }
            let done = self.deal_with(execute, &block);
            self.window.executed(&block);
            if let Err(why) = done {
                return self.window.close(Some(why));
            }
        }
    }

    /// Executes a block that has no bytes, and puts its versions into the tables; or asks for its
    /// bytes.
    ///
    /// # Errors
    /// Why nothing is executed any more.
    fn deal_with(&self, execute: &mut dyn Execute, block: &Arc<Pending>) -> Result<(), String> {
        let image = match block.image() {
            Some(image) => image,
            None => match self.execute(execute, block) {
                // The log was cut below it, or its bytes have come: no thread waits for what comes
                // of it any more, so what failed does not matter.
                _ if block.is_cut() || block.is_claimed() => return Ok(()),
                Err(_) if self.window.is_closed() => return Ok(()),
                Err(failure) => {
                    self.fetch(Arc::clone(block), failure);
                    return Ok(());
                }
                Ok(_) if !block.claim() => return Ok(()),
                Ok(image) => {
                    // Relaxed: statistics.
                    self.counts.executed.fetch_add(1, Relaxed);
                    block.put(image)
                }
            },
        };
        self.window.make(block, || execute.make(block, image))
    }

    /// The bytes of a block, if executing its transaction gives them.
    fn execute(&self, execute: &mut dyn Execute, block: &Arc<Pending>) -> Result<Arc<[u8]>, Failure> {
        let task = block.task().expect("a block without bytes has a task");
        if let Some(why) = &task.hopeless {
            return Err(why.clone().into());
        }
        let past: Arc<dyn Past> = Arc::new(Reader { window: Arc::clone(&self.window), block: Arc::clone(block) });
        let image = execute.execute(block, task, Arc::clone(&past)).and_then(|image| {
            // The checksum in it was computed from the rows that came out.
            match BlockHeader::peek(&image) {
                Ok(header) if header == *block.header() => Ok(image),
                _ => Err(Failure { image: Some(image.to_vec()), ..Why::Checksum.into() }),
            }
        });
        let image = image.map_err(|failure| match failure.why.is_mismatch() && !past.is_over() {
            true => Failure { command: execute.describe(block, task, Arc::clone(&past)), ..failure },
            false => failure,
        })?;
        let failure = execute.check_order(block, task, Arc::clone(&past), &image).filter(|_| !past.is_over());
        if let Some(failure) = failure {
            // Relaxed: statistics.
            self.counts.out_of_order.fetch_add(1, Relaxed);
            let command = execute.describe(block, task, past);
            if let Err(why) = self.mismatches.note(Mismatch::of(block, &Failure { command, ..failure }, &image)) {
                self.window.close(Some(why));
            }
        }
        Ok(image)
    }

    /// Has the original bytes of a block come.
    fn fetch(&self, block: Arc<Pending>, failure: Failure) {
        let count = match failure.why {
            Why::OldSnapshot => &self.counts.old,
            Why::Memory(_) => &self.counts.memory,
            Why::OtherBuild => &self.counts.other_build,
            _ => &self.counts.mismatches,
        };
        // Relaxed: statistics.
        count.fetch_add(1, Relaxed);
        self.want(block, failure);
    }

    fn want(&self, block: Arc<Pending>, failure: Failure) {
        let (window, mismatches, maker, counts) =
            (Arc::clone(&self.window), Arc::clone(&self.mismatches), Arc::clone(&self.maker), Arc::clone(&self.counts));
        self.originals.ask(Wanted { block, failure, window, mismatches, maker, counts });
    }
}
