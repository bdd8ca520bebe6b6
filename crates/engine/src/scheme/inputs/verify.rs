//! Verification: a recorded log is executed again, and must give itself.
//!
//! The log of a directory is read from its beginning, or from a checkpoint on. What the inputs form
//! would leave out of a block is left out, the transaction is executed again, and the block that
//! comes out goes into a log in memory, is replayed from there, and is seen by the transactions
//! after it. At the end the whole log has been made again, but for what keeps its bytes, and the
//! state's hash is that of a node that replays the log record by record.

use std::{
    collections::BTreeMap,
    fmt, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use freshet_base::{Certifier, ClusterId, Lsn, Watermark, cpu};
use freshet_cluster::inputs::Reach;
use freshet_log::{AcceptError, Block, Log, LogOpenError, LogStore, ReceiveConfig, Receiver, StoreConfig};
use freshet_recovery::{Manifest, RecordedError, RecordedLog, Restart, RestoreError};
use freshet_replay::{Announce, Deleted, Records, Redo, Replay, form};
use freshet_storage::{Catalog, Participants, ReadError};
use freshet_txn::{Core, Snapshots, Worker, WorkerError};
use thiserror::Error;

use super::{
    entrance::{Entrance, Kept},
    mismatch::{Mismatch, MismatchFile},
    pending::{Closed, Pending},
    pool::{Means, Mismatches, Originals, Pool, Wanted},
    room::{Room, Schedule},
    tables::Rest,
    versions::{Layout, Passed},
    window::{Perturb, Window},
};
use crate::{
    StateHash,
    node::{GarbageCollector, GarbageCollectorThread},
    scheme::{Ground, Replaying, command::CommandExecutor, full::Full},
    source::VersionSource,
};

/// About how many bytes of log are replayed at once.
const AT_ONCE: u64 = 1 << 20;
/// The size of the parts that replay threads divide among themselves.
const PART: u64 = 64 << 10;
/// The size of the segments in which the log is made again in memory.
const SEGMENT: u64 = 16 << 20;
/// Places for threads beside those that execute.
const OTHERS: usize = 24;

/// How to verify.
#[derive(Clone)]
pub struct VerifyOptions {
    /// How many threads execute transactions.
    pub threads: usize,
    /// How many threads replay what has come out.
    pub replay_threads: usize,
    /// The directories of the log's streams, if they are not below the node's directory.
    pub streams: Vec<PathBuf>,
    /// The directories of the checkpoints' rows, one for each device; none for that of the node.
    pub devices: Vec<PathBuf>,
    /// When transactions are executed.
    pub schedule: Schedule,
    /// How much may be in execution.
    pub room: Room,
    /// For how many bytes of log below that old versions are kept.
    pub slack: u64,
    /// Whether serializable transactions are executed a second time, at their own LSNs. One that
    /// was certified rightly gives the same there (Record-Replay, section 4.4: in serial order).
    pub serially: bool,
    /// Where mismatches are kept, if there are some.
    pub mismatches: Option<PathBuf>,
    /// How versions are kept that are to come, for comparison.
    pub layout: Layout,
    /// For tests.
    pub perturb: Option<Perturb>,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            // Those that wait for versions leave their processor to others.
            threads: 2 * processors,
            replay_threads: 1,
            streams: Vec::new(),
            devices: Vec::new(),
            schedule: Schedule::default(),
            room: Room::default(),
            slack: form::REACH,
            serially: false,
            mismatches: None,
            layout: Layout::default(),
            perturb: None,
        }
    }
}

impl fmt::Debug for VerifyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyOptions({} threads, {:?}, slack {})", self.threads, self.room, self.slack)
    }
}

/// What a verification has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Where it began: at the log's beginning, or with a checkpoint.
    pub from: Lsn,
    /// Where the log ends.
    pub end: Lsn,
    /// How many blocks there are.
    pub blocks: u64,
    /// How many transactions gave the same again.
    pub executed: u64,
    /// How many bytes of log those are.
    pub executed_bytes: u64,
    /// How many blocks kept their bytes, by reason.
    pub kept: BTreeMap<&'static str, u64>,
    /// How many transactions could not be executed again, or gave something else.
    pub mismatches: u64,
    /// How many gave the same, and are not what they would be at their own LSNs, although they
    /// were certified to be.
    pub out_of_order: u64,
    /// How often a transaction waited for what another one wrote.
    pub waits: u64,
    /// How many versions that were to come look-ups have passed by.
    pub passed: Passed,
    /// The state at the end.
    pub hash: StateHash,
    /// How long it took.
    pub time: Duration,
    /// How long until all was replayed; after that the state is hashed.
    pub replay_time: Duration,
    /// Processor time of the threads that execute.
    pub execute_cpu: Duration,
    /// Processor time of reading the log, and of entering blocks into the window.
    pub enter_cpu: Duration,
    /// Processor time of logging and replaying what came out.
    pub replay_cpu: Duration,
    /// Why not all mismatches are in their file, if that is so.
    pub incomplete: Option<String>,
}

/// Why a log was not verified to its end.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The log cannot be read.
    #[error(transparent)]
    Recorded(#[from] RecordedError),
    /// No checkpoint can be used.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// There is nothing to verify.
    #[error("{} holds no log", .0.display())]
    NoLog(PathBuf),
    /// The log does not begin where a checkpoint, or the database, does.
    #[error("the log in {} begins at {begin}, and there is no checkpoint there to begin from", directory.display())]
    NoBase {
        /// Which directory.
        directory: PathBuf,
        /// Where its log begins.
        begin: Lsn,
    },
    /// The log in memory.
    #[error(transparent)]
    Open(#[from] LogOpenError),
    /// The log in memory did not take what came out.
    #[error("what came out cannot be logged: {0}")]
    Accept(#[from] AcceptError),
    /// It could not continue.
    #[error("{0}")]
    Stopped(String),
    /// Blocks have the right checksums and other bytes.
    #[error("the log from {from} to {to} came out with the same checksums and other bytes")]
    Differs {
        /// From where.
        from: Lsn,
        /// To where.
        to: Lsn,
    },
    /// The state at the end cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No place for the thread that reads it.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    System(#[from] io::Error),
    /// The caller wanted no more.
    #[error("interrupted")]
    Cancelled,
}

/// What a verification begins with.
struct Base {
    catalog: Arc<Catalog>,
    deleted: Vec<Deleted>,
    /// Where the log is read from.
    from: Lsn,
    /// Below this there is a checkpoint, and readers see nothing.
    floor: Lsn,
}

impl Base {
    fn find(
        directory: &Path,
        log: &RecordedLog,
        options: &VerifyOptions,
        participants: &Arc<Participants>,
    ) -> Result<Self, VerifyError> {
        if log.is_whole()? {
            let (catalog, deleted) = (Arc::new(Catalog::new()), Vec::new());
            return Ok(Self { catalog, deleted, from: Lsn::ZERO, floor: Lsn::ZERO });
        }
        let none = || VerifyError::NoBase { directory: directory.to_owned(), begin: log.begin() };
        let installed = Manifest::installed(directory).map_err(RestoreError::from)?;
        let start = *installed.first().filter(|start| **start >= log.begin()).ok_or_else(none)?;
        let own = [directory.join("checkpoints")];
        // The checkpoint alone: the log since then is what is verified.
        let restart = Restart {
            store: &in_memory(log.cluster()),
            end: start,
            directory: Some(directory),
            devices: if options.devices.is_empty() { &own[..] } else { &options.devices[..] },
            threads: options.threads.max(1),
            participants,
            target: &Announce,
            checkpoint_alone: true,
        };
        let restored = restart.run(&|_| {})?;
        let floor = restored.checkpoint.as_ref().map(Manifest::end).filter(|end| *end <= log.end()).ok_or_else(none)?;
        Ok(Self { catalog: restored.catalog, deleted: restored.deleted, from: start, floor })
    }
}

fn in_memory(cluster: ClusterId) -> LogStore {
    LogStore::in_memory(StoreConfig { cluster, segment_size: SEGMENT })
}

/// The bytes of blocks that did not come out are in the log that is being verified.
struct FromLog(Arc<RecordedLog>);

impl Originals for FromLog {
    fn ask(&self, wanted: Wanted) {
        let mut bytes = vec![0; wanted.header().length as usize];
        let read = self.0.read(wanted.at(), &mut bytes);
        wanted.deliver(read.map(|()| bytes).map_err(|cause| cause.to_string()));
    }
}

/// Without a file, mismatches are counted alone.
struct Uncounted;

impl Mismatches for Uncounted {
    fn note(&self, _: Mismatch) -> Result<(), String> {
        Ok(())
    }
}

/// Executes the transactions of the log in `directory` again, by means of `executor`, and compares.
/// Changes nothing there, unless the log has several streams: then it must be no other's, and its
/// end is settled as at a restart. Holds log and database in memory. `progress` hears of bytes of
/// log that were read, and of all, and says whether to continue.
///
/// Mismatches are no error: they are counted, kept in a file, and the original bytes take the place
/// of what came out.
///
/// # Errors
/// See [`VerifyError`].
pub fn verify(
    directory: &Path,
    executor: &Arc<dyn CommandExecutor>,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<VerifyReport, VerifyError> {
    let begun = Instant::now();
    let recorded = RecordedLog::look(directory, &options.streams)?;
    let recorded = Arc::new(recorded.ok_or_else(|| VerifyError::NoLog(directory.to_owned()))?);
    let participants = Participants::new(options.threads + options.replay_threads + OTHERS);
    let base = Base::find(directory, &recorded, options, &participants)?;
    let (from, reach) = (base.from, Reach { floor: base.floor, slack: options.slack });
    let (made, receiver) = Made::new(base, &recorded, options, &participants)?;
    let Made { window, core, replay, .. } = &made;
    let file = options.mismatches.clone().map(|path| Arc::new(MismatchFile::new(path)));
    let mismatches: Arc<dyn Mismatches> = file.clone().map_or_else(|| Arc::new(Uncounted) as _, |file| file as _);
    let originals = Arc::new(FromLog(Arc::clone(&recorded)));
    let means = Means { core, executor, ground: &made.ground, serially: options.serially };
    let mut pool = Pool::start(options.threads, window, &means, originals, mismatches)?;
    let mut completing = Completing { made: &made, receiver, reach, recorded: &recorded };
    let participant = participants.join().map_err(|full| too_many(full.limit))?;
    let mut feeding = Feeding {
        recorded: &recorded,
        from,
        floor: reach.floor,
        entrance: Entrance::new(window, &core.catalog, participant, reach),
        blocks: 0,
        recorded_bytes: 0,
        kept: BTreeMap::new(),
    };
    let [enter_cpu, complete_cpu] = feed_and_complete(&mut feeding, &mut completing, &participants, progress)?;
    pool.join();
    if let Some(why) = window.failure() {
        return Err(VerifyError::Stopped(why));
    }
    let replay_time = begun.elapsed();
    let worker = Worker::new(core)?;
    let hash = StateHash::of(&worker.begin_read_only())?;
    let counts = pool.counts();
    let Feeding { blocks, mut kept, recorded_bytes, .. } = feeding;
    for (why, count) in [("old-snapshot", &counts.old), ("no-memory", &counts.memory)] {
        let count = count.load(Relaxed);
        if count > 0 {
            kept.insert(why, count);
        }
    }
    Ok(VerifyReport {
        from,
        end: recorded.end(),
        blocks,
        executed: counts.executed.load(Relaxed),
        executed_bytes: recorded_bytes,
        kept,
        mismatches: counts.mismatches.load(Relaxed),
        out_of_order: counts.out_of_order.load(Relaxed),
        waits: window.parked(),
        passed: window.passed(),
        hash,
        time: begun.elapsed(),
        replay_time,
        execute_cpu: counts.cpu.total(),
        enter_cpu,
        // The thread that completes is the first of those that replay.
        replay_cpu: complete_cpu.max(replay.statistics().cpu),
        incomplete: file.and_then(|file| file.failed()),
    })
}

/// What is made of the log: a database, with a log in memory.
struct Made {
    /// It goes before the log.
    _garbage_collector: GarbageCollectorThread,
    window: Arc<Window>,
    ground: Ground,
    core: Arc<Core>,
    log: Log,
    replay: Arc<Replay>,
    visible: Arc<Watermark>,
}

impl Made {
    fn new(
        base: Base,
        recorded: &RecordedLog,
        options: &VerifyOptions,
        participants: &Arc<Participants>,
    ) -> Result<(Self, Receiver), VerifyError> {
        let Base { catalog, deleted, from, floor } = base;
        let room = usize::try_from(recorded.longest(from)? + AT_ONCE).unwrap_or(usize::MAX / 4);
        let ring = ReceiveConfig { capacity: (2 * room).next_power_of_two(), ..ReceiveConfig::default() };
        let (log, receiver) = Log::receive_with(&ring, in_memory(recorded.cluster()), from)?;
        let (visible, source) = (Arc::new(Watermark::new(from)), Arc::new(VersionSource::default()));
        source.open(log.reader());
        source.limit_to(Arc::clone(&visible));
        let window = Window::scheduled(from, options.room, options.layout, options.schedule, options.perturb.clone());
        let (theirs, records) = (Arc::clone(participants), Records(log.reader()));
        let ground = Ground { participants: theirs, source: Arc::clone(&source), records, floor };
        let redo = || Box::new(Rest { full: Full.redo(&ground), window: Arc::clone(&window) }) as Box<dyn Redo>;
        let (threads, reader) = (options.replay_threads, log.reader());
        let replay = Arc::new(Replay::new(threads, &catalog, participants, &reader, floor, &redo));
        let snapshots = Snapshots::standby(Arc::clone(&visible));
        // Nothing is certified again.
        let certifier = Certifier::default();
        let (messages, memory) = Default::default();
        let (theirs, tables) = (Arc::clone(participants), Arc::clone(&catalog));
        let core = Core::new(theirs, tables, snapshots, source, messages, memory, certifier);
        let garbage_collector = Arc::new(GarbageCollector::new(deleted, Some(Arc::clone(&window))));
        let garbage_collector =
            GarbageCollectorThread::start(garbage_collector, &core, Some(&replay)).map_err(VerifyError::Stopped)?;
        Ok((Self { window, ground, core, log, replay, visible, _garbage_collector: garbage_collector }, receiver))
    }
}

/// Reads the log in this thread, and completes what comes out in another. Returns the processor
/// time of both.
fn feed_and_complete(
    feeding: &mut Feeding<'_>,
    completing: &mut Completing<'_>,
    participants: &Arc<Participants>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<[Duration; 2], VerifyError> {
    let window = Arc::clone(&completing.made.window);
    thread::scope(|scope| {
        let ours = Arc::clone(&window);
        let completer = thread::Builder::new().name("complete".into()).spawn_scoped(scope, move || {
            let before = cpu::thread_time();
            let outcome = completing.run(participants);
            if let Err(cause) = &outcome {
                ours.close(Some(cause.to_string()));
            }
            outcome.map(|()| cpu::thread_time().saturating_sub(before))
        })?;
        let before = cpu::thread_time();
        let fed = feeding.run(progress);
        match &fed {
            Ok(()) => window.finish(),
            Err(cause) => window.close(Some(cause.to_string())),
        }
        let enter_cpu = cpu::thread_time().saturating_sub(before);
        let panicked = |_| Err(VerifyError::Stopped("the thread that logs what came out has panicked".into()));
        let completed = completer.join().unwrap_or_else(panicked);
        fed?;
        Ok([enter_cpu, completed?])
    })
}

fn too_many(limit: usize) -> VerifyError {
    WorkerError::TooMany { limit }.into()
}

/// Reads the log and enters its blocks.
struct Feeding<'v> {
    recorded: &'v RecordedLog,
    from: Lsn,
    /// Nothing is executed below.
    floor: Lsn,
    entrance: Entrance,
    blocks: u64,
    recorded_bytes: u64,
    kept: BTreeMap<&'static str, u64>,
}

impl Feeding<'_> {
    fn run(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), VerifyError> {
        let (recorded, from, end) = (self.recorded, self.from, self.recorded.end());
        // In the middle of a transaction of several blocks one that is executed cannot stand.
        let mut continues = false;
        let (mut reported, mut cancelled, mut closed) = (from, false, false);
        recorded.walk(from, end, |block| {
            self.blocks += 1;
            closed = self.enter(block, std::mem::replace(&mut continues, block.header().continued)).is_err();
            if block.end().since(reported) >= AT_ONCE {
                reported = block.end();
                cancelled = !progress(reported.since(from), end.since(from));
            }
            if closed || cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        // When it is closed, another thread knows why.
        if cancelled && !closed { Err(VerifyError::Cancelled) } else { Ok(()) }
    }

    fn enter(&mut self, block: &Block<'_>, continues: bool) -> Result<(), Closed> {
        let is_below = block.lsn() < self.floor;
        let why = Kept::of(block).or(continues.then_some(Kept::NoInputs));
        let why = why.or(is_below.then_some(Kept::BeforeCheckpoint));
        match why {
            Some(why) => {
                *self.kept.entry(why.name()).or_default() += 1;
                self.entrance.bytes(block, block.bytes().into())
            }
            None => {
                self.recorded_bytes += block.bytes().len() as u64;
                self.entrance.stripped(block)
            }
        }
    }
}

/// Logs and replays what has come out.
struct Completing<'v> {
    made: &'v Made,
    receiver: Receiver,
    reach: Reach,
    recorded: &'v RecordedLog,
}

impl Completing<'_> {
    fn run(&mut self, participants: &Arc<Participants>) -> Result<(), VerifyError> {
        // Two take turns in keeping old versions, so that memory is given back in between.
        let join = || participants.join().map_err(|full| too_many(full.limit));
        let places = [join()?, join()?];
        let mut turn = 0;
        let (made, reach) = (self.made, self.reach);
        let mut pinned = places[turn].pin(|| reach.floor).0;
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        let mut replay = |blocks: &[Arc<Pending>]| {
            let whole = blocks.iter().rfind(|block| !block.header().continued).map(|block| block.end());
            self.replay(blocks, &mut bytes, &mut ends).map(|()| whole)
        };
        while let Some(replayed) = made.window.hand_over(AT_ONCE, &mut replay) {
            let Some(whole) = replayed? else { continue };
            made.visible.advance(whole);
            let oldest = reach.oldest(made.window.leave(whole));
            turn = 1 - turn;
            // The new pin is there before the old one goes.
            pinned = places[turn].pin(|| oldest).0;
        }
        drop(pinned);
        Ok(())
    }

    fn replay(&mut self, blocks: &[Arc<Pending>], bytes: &mut Vec<u8>, ends: &mut Vec<Lsn>) -> Result<(), VerifyError> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(()) };
        let (from, to) = (first.lsn(), last.end());
        bytes.clear();
        ends.clear();
        let mut cut = from;
        for block in blocks {
            bytes.extend_from_slice(block.image().expect("blocks at the front have their bytes"));
            if block.end().since(cut) >= PART {
                cut = block.end();
                ends.push(cut);
            }
        }
        let mut original = vec![0; bytes.len()];
        self.recorded.read(from, &mut original)?;
        if original != *bytes {
            return Err(VerifyError::Differs { from, to });
        }
        self.receiver.wait_room(to).map_err(AcceptError::from)?;
        self.receiver.append(bytes)?;
        let replayed = self.made.replay.replay(from, to, ends);
        replayed.map_err(|cause| VerifyError::Stopped(cause.to_string()))?;
        // There are no listeners.
        drop(self.made.replay.take_messages());
        self.made.log.note_replayed(to);
        self.made.window.replayed(to);
        Ok(())
    }
}
