//! Command logging, a baseline for benchmarks and experiments: the log says what transactions were
//! told, and a standby executes them again (Query Fresh, sections 3.5 and 4.3, "Logical").
//!
//! That gives the same state where the transactions are equivalent to the order of their LSNs,
//! and each is a function of its inputs and of what it reads. So times and random numbers must be
//! inputs. Under isolation level serializable the first holds, and one thread may execute them in
//! the order of LSNs. Under snapshot isolation it does not hold in general (the paper says the
//! same): it does where all transactions of a partition come from one worker and keep to their
//! partition, which is how the benchmark runs TPC-C. Then, and only then, partitions may also be
//! executed side by side: each thread takes every n-th partition, so a partition's commands keep
//! their order.
//!
//! What was loaded before the first command is replayed record by record, as always. Versions get
//! the LSNs that they have on the primary, so readers need know nothing of all this. What was
//! executed cannot be taken back: a log that is cut ends it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use freshet_base::{Fid, Lsn, varint};
use freshet_log::{Block, Log, PlacedRecord, RecordHeader};
use freshet_replay::{Announce, Redo, ReplayError as RedoError};
use freshet_replication::standby::{ReplayError, ReplayTarget};
use freshet_storage::{Content, Guard};
use freshet_txn::{Core, ProcedureError, RETRIES, Transaction, Worker};

use super::{Ground, Replaying, inputs::reads};
use crate::{
    node::{LiveReplay, StartError},
    source::VersionSource,
};

/// Executes stored procedures again, for a standby with [`Apply::Command`](crate::Apply::Command).
pub trait CommandExecutor: Send + Sync {
    /// Does within `transaction` what procedure `procedure` does when it is told `inputs`; does not
    /// commit. Called by several threads for different partitions.
    ///
    /// # Errors
    /// Why it cannot be done. When that may pass it is tried again; else the standby stops.
    fn execute(&self, transaction: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError>;

    /// What [`CommandExecutor::execute`] would do, for people: a noun phrase. `transaction` only
    /// reads.
    fn describe(&self, _transaction: &Transaction<'_>, procedure: u32, _inputs: &[u8]) -> String {
        format!("procedure {procedure}")
    }
}

/// Makes executors: one for each standby that is composed. What an executor has found in tables and
/// definitions is of one [`Database`](crate::Database), and a node that follows another one again
/// has another.
pub type Executors = Arc<dyn Fn() -> Arc<dyn CommandExecutor> + Send + Sync>;

/// Those that `make` makes.
pub fn executors<E: CommandExecutor + 'static>(make: impl Fn() -> E + Send + Sync + 'static) -> Executors {
    Arc::new(move || Arc::new(make()))
}

/// Logs, in the place of what `transaction` writes, that stored procedure `procedure` had these
/// `inputs`, and that it keeps to `partition`. To be called before the commit. A transaction that
/// changes tables or carries messages is logged as always.
pub fn log_as(transaction: &Transaction<'_>, procedure: u32, partition: u64, inputs: &[u8]) {
    transaction.log_inputs([&procedure.to_le_bytes()[..], &partition.to_le_bytes(), inputs].concat());
}

/// Records, beside what `transaction` writes, that stored procedure `procedure`, which is not 0,
/// had these `inputs`. To be called before the commit, if [`Transaction::records_inputs`].
pub fn record_as(transaction: &Transaction<'_>, procedure: u32, inputs: &[u8]) {
    record_with(transaction, procedure, |body| body.extend_from_slice(inputs));
}

/// The same, where `write` appends the inputs.
#[inline]
pub fn record_with(transaction: &Transaction<'_>, procedure: u32, write: impl FnOnce(&mut Vec<u8>)) {
    transaction.record_inputs_with(|body| {
        varint::put(body, procedure.into());
        write(body);
    });
}

/// The same, and which records the transaction has read, for standbys with
/// [`Apply::Calvin`](crate::Apply::Calvin): those of [`Transaction::read_set`] whose tables
/// `counts` does not leave out.
pub fn record_with_reads(
    transaction: &Transaction<'_>,
    procedure: u32,
    counts: impl Fn(Fid) -> bool,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let mut read = transaction.read_set();
    read.retain(|(fid, _)| counts(*fid));
    transaction.record_inputs_with(|body| {
        reads::encode(&read, body);
        varint::put(body, procedure.into());
        write(body);
    });
}

/// The procedure, and its inputs, as [`record_as`] has written them into the body of
/// [`Inputs`](freshet_txn::Inputs). None when that is not its writing; any bytes are safe.
pub fn recorded_as(body: &[u8]) -> Option<(u32, &[u8])> {
    let (_, mut body) = reads::split(body)?;
    let procedure = u32::try_from(varint::take(&mut body)?).ok()?;
    Some((procedure, body))
}

/// The command of a transaction.
struct Command {
    lsn: Lsn,
    /// How many bytes its block takes.
    length: u64,
    procedure: u32,
    partition: u64,
    inputs: Vec<u8>,
}

impl Command {
    /// As [`log_as`] has written it.
    fn decode(block: &Block<'_>) -> Option<Self> {
        let (procedure, rest) = block.inputs()?.split_first_chunk()?;
        let (partition, inputs) = rest.split_first_chunk()?;
        Some(Self {
            lsn: block.lsn(),
            length: block.bytes().len() as u64,
            procedure: u32::from_le_bytes(*procedure),
            partition: u64::from_le_bytes(*partition),
            inputs: inputs.to_vec(),
        })
    }
}

/// What replay has come upon.
#[derive(Default)]
struct Found {
    /// Commands that were not taken yet.
    commands: Mutex<Vec<Command>>,
    /// The last record.
    last_record: AtomicU64,
}

impl Found {
    fn commands(&self) -> MutexGuard<'_, Vec<Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One replay thread's share: it announces records, and keeps commands.
struct Collect {
    announce: Announce,
    found: Arc<Found>,
}

impl Redo for Collect {
    fn record(&mut self, guard: &Guard<'_>, content: &Content, record: &PlacedRecord<'_>) -> Result<bool, RedoError> {
        // Relaxed: it is looked at when all threads are through.
        if self.found.last_record.load(Relaxed) < record.address.0 {
            self.found.last_record.fetch_max(record.address.0, Relaxed);
        }
        self.announce.record(guard, content, record)
    }

    fn inputs(&mut self, block: &Block<'_>) -> Result<(), RedoError> {
        let foreign = || RedoError::Inputs { at: block.lsn() };
        self.found.commands().push(Command::decode(block).ok_or_else(foreign)?);
        Ok(())
    }

    fn cut(&mut self, guard: &Guard<'_>, content: &Content, header: &RecordHeader, address: Lsn) {
        self.announce.cut(guard, content, header, address);
    }
}

/// Replay executes commands.
pub(super) struct Commands {
    threads: usize,
    /// Not needed by a node that never follows.
    executors: Option<Executors>,
    found: Arc<Found>,
    /// Comes when the node is composed; commands wait for it.
    core: Arc<OnceLock<Arc<Core>>>,
}

impl Commands {
    pub fn new(threads: usize, executors: Option<Executors>) -> Self {
        Self { threads: threads.max(1), executors, found: Arc::default(), core: Arc::default() }
    }
}

impl Replaying for Commands {
    /// What commands make has no place in the log.
    fn proves(&self) -> bool {
        false
    }

    fn redo(&self, _: &Ground) -> Box<dyn Redo> {
        Box::new(Collect { announce: Announce, found: Arc::clone(&self.found) })
    }

    fn target(&self, live: LiveReplay) -> Result<Arc<dyn ReplayTarget>, StartError> {
        let lacks = || StartError::Config("apply = \"command\": no executor of commands was given".into());
        Ok(Arc::new(Executing {
            live,
            threads: self.threads,
            executor: self.executors.as_ref().ok_or_else(lacks)?(),
            found: Arc::clone(&self.found),
            core: Arc::clone(&self.core),
            first: OnceLock::new(),
            workers: Mutex::default(),
        }))
    }

    fn composed(&self, core: &Arc<Core>, source: &VersionSource) {
        // Those who execute make versions beyond the read view; they are not taken back anyway.
        source.unlimited();
        let _ = self.core.set(Arc::clone(core));
    }
}

/// Replays, and then executes.
struct Executing {
    live: LiveReplay,
    threads: usize,
    executor: Arc<dyn CommandExecutor>,
    found: Arc<Found>,
    core: Arc<OnceLock<Arc<Core>>>,
    /// The first command there was.
    first: OnceLock<Lsn>,
    /// One for each thread, made when they are needed.
    workers: Mutex<Vec<Worker>>,
}

type Outcome = Result<(), ReplayError>;

impl ReplayTarget for Executing {
    fn replay(&self, from: Lsn, to: Lsn, partition_ends: &[Lsn]) -> Outcome {
        self.live.replay(from, to, partition_ends)?;
        let mut commands = std::mem::take(&mut *self.found.commands());
        commands.sort_unstable_by_key(|command| command.lsn);
        let Some(last) = commands.last() else { return self.check_order() };
        let at = last.lsn;
        let _ = self.first.set(commands[0].lsn);
        self.check_order()?;
        let mut shares: Vec<Vec<Command>> = (0..self.threads).map(|_| Vec::new()).collect();
        for command in commands {
            shares[(command.partition % self.threads as u64) as usize].push(command);
        }
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.len() < self.threads {
            workers.push(Worker::new(self.core.wait()).map_err(|cause| failed(at, &cause))?);
        }
        let run = |worker: &mut Worker, share: Vec<Command>| {
            let mut stint = self.live.replay.meter().begin();
            let outcome = share.iter().try_for_each(|command| self.execute(worker, command));
            stint.note();
            outcome
        };
        thread::scope(|scope| {
            let run = &run;
            let threads = workers.iter_mut().zip(shares).map(|(worker, share)| scope.spawn(move || run(worker, share)));
            let threads: Vec<_> = threads.collect();
            let ended = |_| Err(failed(at, &"a thread has panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).fold(Ok(()), Result::and)
        })
    }

    fn lacks_memory(&self) -> bool {
        self.live.lacks_memory()
    }

    fn persist(&self, from: Lsn, to: Lsn, ends: &[Lsn], log: &Arc<Log>) {
        self.live.persist(from, to, ends, log);
    }

    fn processor_time(&self) -> Duration {
        self.live.processor_time()
    }

    fn cut(&self, at: Lsn) -> Outcome {
        if at < self.live.end() {
            let why = "what was executed again cannot be taken back: start this standby with an empty directory";
            return Err(ReplayError { at, why: why.into() });
        }
        self.live.cut(at)
    }
}

fn failed(at: Lsn, cause: &dyn std::fmt::Display) -> ReplayError {
    ReplayError { at, why: format!("a command cannot be executed again: {cause}") }
}

impl Executing {
    /// Fails when there are records behind commands.
    fn check_order(&self) -> Outcome {
        let last = Lsn(self.found.last_record.load(Relaxed));
        if self.first.get().is_none_or(|first| last < *first) {
            return Ok(());
        }
        let why = "the log holds records behind commands, which cannot be executed again beside one another";
        Err(ReplayError { at: last, why: why.into() })
    }

    fn execute(&self, worker: &Worker, command: &Command) -> Outcome {
        let mut tries = 0;
        loop {
            let transaction = worker.begin_again(command.lsn);
            match self.executor.execute(&transaction, command.procedure, &command.inputs) {
                Ok(()) => {
                    transaction.commit_again(command.length);
                    return Ok(());
                }
                Err(cause) => {
                    transaction.roll_back();
                    tries += 1;
                    if !cause.is_retryable() || tries == RETRIES {
                        return Err(failed(command.lsn, &cause));
                    }
                    thread::yield_now();
                }
            }
        }
    }
}
