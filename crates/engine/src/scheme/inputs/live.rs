//! A standby that gets inputs: forms enter the window, and complete blocks go into its log.
//!
//! | thread | does |
//! |---|---|
//! | `initialize` | enters the blocks that have arrived into the window |
//! | `execute-N` | see [`Pool`] |
//! | `complete` | takes complete blocks from the window's front, and appends them to the log |
//! | `watch` | takes down once a second how fast that is, and chooses the form of the log ([`Watch`]) |
//! | `leave` | takes blocks out of the window that readers see, and keeps old versions for those in it |
//!
//! Batches are decoded by the thread that receives them, and wait here until the node is composed.
//! How many there are is bounded by the room in the log's buffer that the standby grants.
//!
//! # Cuts
//!
//! The log is cut only above what readers see. What is complete below the cut stays in the window.
//! `initialize` rests until that is done; the batch that it was entering waits again, and blocks
//! that it has entered are passed over then. No thread executes a block above the cut any more when
//! versions that were made above are taken out of the tables. So no transaction reads what is being
//! taken back, but one that is given up, and none of the old log reads the new one. Versions that
//! are no part of the log when all this ends are taken back, too.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc::{SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{Lsn, Watermark, cpu::Meter};
use freshet_cluster::inputs::Reach;
use freshet_replay::form;
use freshet_replication::forms::{Complete, Regenerate};
use freshet_storage::Participant;
use freshet_txn::Core;
use serde::Serialize;

use super::{
    batch::Batch,
    entrance::Entrance,
    originals::FromOthers,
    pending::Pending,
    pool::{Means, Mismatches, Pool},
    room::{Room, Schedule},
    storm::StormStatus,
    tables::Undo,
    versions::Layout,
    watch::{Chosen, Pending as PendingWork, Totals, Watch, Watched},
    window::Window,
};
use crate::{
    node::Encoding,
    scheme::{Ground, command::CommandExecutor},
};

/// About how many bytes of log are appended at once.
const AT_ONCE: u64 = 256 << 10;
/// This many bytes of log may arrive ahead of what is executed as long as nothing was.
const FIRST_AHEAD: u64 = 16 << 10;
/// The block that all others wait for is asked of other nodes, too, when executing it takes this
/// many times as long as what is pending may take, and at least so long.
const OVERDUE: (u32, Duration) = (2, Duration::from_secs(1));
/// A thread looks this often whether it is still needed.
const LOOK: Duration = Duration::from_millis(50);

/// What has become of the transactions that a standby had to execute again, since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AgainStatus {
    /// Those that gave their blocks.
    pub executed: u64,
    /// Those that had read too long before, whose blocks were fetched.
    pub old_snapshots: u64,
    /// Those that took so long that their blocks were fetched.
    pub slow: u64,
    /// Those for which there was not enough memory, whose blocks were fetched.
    pub lacked_memory: u64,
    /// Those that gave something else, or nothing, whose blocks were fetched.
    pub mismatches: u64,
    /// Those that another build of the program has recorded, so that their bytes were fetched: the
    /// standby asks for bytes then.
    pub other_build: u64,
    /// How often one waited for what another wrote.
    pub waits: u64,
    /// Blocks of records that came with their bytes.
    pub came_as_bytes: u64,
    /// Processor time of entering blocks.
    pub enter_cpu: Duration,
    /// Processor time of executing transactions.
    pub execute_cpu: Duration,
    /// Processor time of handing over what came out, and of forgetting what readers see.
    pub complete_cpu: Duration,
    /// What has arrived and is not part of the log yet: a restart or a failover executes that
    /// first.
    pub pending_bytes: u64,
    /// The same, in transactions.
    pub pending_transactions: u64,
    /// How long that would take now, by what executing others took; nothing before any was.
    pub restart: Option<Duration>,
    /// Too many blocks had to be fetched, and the node asks for bytes for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storm: Option<StormStatus>,
    /// Which form it asks for and why, if it finds out by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Chosen>,
}

/// What the threads beside those that execute have done.
#[derive(Default)]
struct Work {
    came_as_bytes: AtomicU64,
    /// Bytes that have become part of the log.
    completed: AtomicU64,
    enter_cpu: Meter,
    complete_cpu: Meter,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Batch>,
    /// What has arrived ends here.
    end: Lsn,
    /// Tables were changed last below this, as far as that has arrived; what was cut counts, too.
    defined: Lsn,
    /// A batch is being entered.
    entering: bool,
    cutting: bool,
    /// The window was cut here since the last batch was taken.
    cut: Option<Lsn>,
    threads: Vec<JoinHandle<()>>,
    pool: Option<Pool>,
    originals: Option<FromOthers>,
    /// There from when something is executed.
    undo: Option<Undo>,
}

impl State {
    fn take_back(&self, block: &Pending) {
        if let Some(undo) = &self.undo {
            undo.take_back(block);
        }
    }
}

/// How a standby executes again.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub schedule: Schedule,
    /// In which form it asks for the log.
    pub encoding: Encoding,
    /// No more is to arrive than is executed in this time.
    pub backlog: Option<Duration>,
}

/// What it is given when replication begins.
struct Begun {
    visible: Arc<Watermark>,
    complete: Arc<dyn Complete>,
}

struct Shared {
    window: Arc<Window>,
    schedule: Schedule,
    backlog: Option<Duration>,
    ground: Ground,
    executor: Arc<dyn CommandExecutor>,
    mismatches: Arc<dyn Mismatches>,
    work: Work,
    reach: Reach,
    begun: OnceLock<Begun>,
    state: Mutex<State>,
    changed: Condvar,
    stopped: AtomicBool,
    watch: Watch,
}

/// Regenerates what a standby gets.
#[derive(Clone)]
pub(crate) struct Live(Arc<Shared>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// The next batch to be entered; none when none is any more.
    fn next(&self, entrance: &mut Entrance) -> Option<Batch> {
        let mut state = self.state();
        loop {
            state.entering = false;
            self.changed.notify_all();
            if self.stopped() || self.window.is_closed() {
                return None;
            }
            if !state.cutting
                && let Some(batch) = state.waiting.pop_front()
            {
                state.entering = true;
                entrance.came(self.window.cuts());
                if let Some(at) = state.cut.take() {
                    entrance.cut(at);
                }
                return Some(batch);
            }
            state = self.wait(state);
        }
    }

    /// The thread that enters blocks.
    fn initialize(&self, mut entrance: Entrance) {
        let mut stint = self.work.enter_cpu.begin();
        while let Some(batch) = self.next(&mut entrance) {
            if batch.enter(&mut entrance, self.window.end()).is_err() {
                // The window is closed, or a cut is coming: what was not entered waits for it.
                self.state().waiting.push_front(batch);
            }
            // Relaxed: a statistic.
            self.work.came_as_bytes.store(entrance.came_as_bytes(), Relaxed);
            stint.note();
        }
    }

    /// The thread that appends to the log.
    fn complete(&self, begun: &Begun) {
        let mut bytes = Vec::new();
        let mut stint = self.work.complete_cpu.begin();
        let mut append = |blocks: &[Arc<Pending>]| {
            bytes.clear();
            for block in blocks {
                bytes.extend_from_slice(block.image().expect("blocks at the front have their bytes"));
            }
            // Relaxed: statistics, here and below.
            self.work.completed.fetch_add(bytes.len() as u64, Relaxed);
            begun.complete.append(&bytes)
        };
        while let Some(appended) = self.window.hand_over(AT_ONCE, &mut append) {
            if let Err(why) = appended {
                self.window.close(Some(why));
            }
            stint.note();
        }
        if let Some(why) = self.window.failure().filter(|_| !self.stopped()) {
            begun.complete.failed(why);
        }
    }

    /// What has arrived and is not part of the log yet.
    fn pending(&self) -> PendingWork {
        let (from, blocks) = self.window.pending();
        let state = self.state();
        let waiting: u64 = state.waiting.iter().map(Batch::blocks).sum();
        let bytes = Lsn(state.end.0.max(from.0)).since(from);
        PendingWork { bytes, transactions: blocks + waiting, from }
    }

    fn totals(&self, begun: &Begun) -> Totals {
        let counts = self.state().pool.as_ref().map(|pool| Arc::clone(pool.counts())).unwrap_or_default();
        // Relaxed: statistics.
        let executed = counts.executed.load(Relaxed);
        Totals {
            arrivals: begun.complete.arrivals(),
            with_inputs: executed + counts.fetched(),
            fetched: counts.fetched(),
            other_build: counts.other_build.load(Relaxed),
            as_bytes: self.work.came_as_bytes.load(Relaxed),
            executed,
            execute_cpu: counts.cpu.total(),
            completed: self.work.completed.load(Relaxed),
            pending: self.pending(),
        }
    }

    /// The thread that watches.
    fn look_after(&self, begun: &Begun) {
        self.watch.run(&Looking { shared: self, begun });
    }

    /// The thread that takes blocks out of the window which readers see. Says when it keeps old
    /// versions.
    fn leave(&self, begun: &Begun, places: &[Participant; 2], keeps: &SyncSender<()>) {
        let mut turn = 0;
        let mut pinned = places[turn].pin(|| self.reach.oldest(self.window.begin())).0;
        let _ = keeps.send(());
        let mut seen = Lsn::ZERO;
        let mut stint = self.work.complete_cpu.begin();
        while !self.stopped() {
            let reached = begun.visible.wait(seen.plus(1), Some(Instant::now() + LOOK));
            seen = reached.unwrap_or_else(|_| begun.visible.get());
            let begin = self.window.leave(seen);
            // Two take turns in keeping old versions, so that memory is given back in between. The
            // new pin is there before the old one goes.
            turn = 1 - turn;
            pinned = places[turn].pin(|| self.reach.oldest(begin)).0;
            stint.note();
        }
        drop(pinned);
    }
}

/// What the thread that watches looks at.
struct Looking<'s> {
    shared: &'s Shared,
    begun: &'s Begun,
}

impl Watched for Looking<'_> {
    fn totals(&self) -> Totals {
        self.shared.totals(self.begun)
    }

    fn observe(&self, interval: Duration, completed: u64, pending: u64) {
        self.shared.window.observe(interval, completed, pending);
    }

    fn left(&self, transactions: u64) -> Option<Duration> {
        self.shared.window.left(transactions)
    }

    fn ask_for(&self, form: freshet_replication::forms::Encoding) {
        self.begun.complete.ask_for(form);
    }

    fn tend(&self) {
        let (times, least) = OVERDUE;
        let limit = self.shared.backlog.unwrap_or_default().saturating_mul(times).max(least);
        if let Some(pool) = &self.shared.state().pool {
            pool.fetch_overdue(limit);
        }
    }
}

impl Live {
    /// What enters at `at`, the end of the log, and whose transactions `executor` executes on this
    /// ground, if they read nothing below `floor`.
    pub fn new(
        (at, floor): (Lsn, Lsn),
        how: How,
        ground: &Ground,
        executor: Arc<dyn CommandExecutor>,
        mismatches: Arc<dyn Mismatches>,
    ) -> Self {
        Self(Arc::new(Shared {
            window: Window::scheduled(at, Room::default(), Layout::default(), how.schedule, None),
            schedule: how.schedule,
            backlog: how.backlog,
            ground: ground.clone(),
            executor,
            mismatches,
            work: Work::default(),
            reach: Reach { floor, slack: form::REACH },
            begun: OnceLock::new(),
            state: Mutex::new(State { end: at, ..State::default() }),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            watch: Watch::new(how.encoding),
        }))
    }

    /// The window, for those who clear away what was deleted.
    pub fn window(&self) -> &Arc<Window> {
        &self.0.window
    }

    /// What has become of the transactions.
    pub fn status(&self) -> AgainStatus {
        let pending = self.0.pending();
        let state = self.0.state();
        let Some(counts) = state.pool.as_ref().map(Pool::counts) else { return AgainStatus::default() };
        // Relaxed: statistics.
        AgainStatus {
            executed: counts.executed.load(Relaxed),
            old_snapshots: counts.old.load(Relaxed),
            slow: counts.slow.load(Relaxed),
            lacked_memory: counts.memory.load(Relaxed),
            mismatches: counts.mismatches.load(Relaxed),
            other_build: counts.other_build.load(Relaxed),
            waits: self.0.window.parked(),
            came_as_bytes: self.0.work.came_as_bytes.load(Relaxed),
            enter_cpu: self.0.work.enter_cpu.total(),
            execute_cpu: counts.cpu.total(),
            complete_cpu: self.0.work.complete_cpu.total(),
            pending_bytes: pending.bytes,
            pending_transactions: pending.transactions,
            restart: self.0.window.left(pending.transactions),
            storm: self.0.watch.storm(),
            chosen: self.0.watch.chosen(),
        }
    }

    /// The processor time of all this.
    pub fn processor_time(&self) -> Duration {
        let executing = self.0.state().pool.as_ref().map(|pool| pool.counts().cpu.total());
        self.0.work.enter_cpu.total() + executing.unwrap_or_default() + self.0.work.complete_cpu.total()
    }

    /// In which form the log is asked for from now on.
    pub fn set_encoding(&self, encoding: Encoding) {
        let Some(begun) = self.0.begun.get() else { return };
        if encoding != Encoding::Auto {
            begun.complete.ask_for(encoding.first());
        }
        self.0.watch.set(encoding, begun.complete.asks_for());
    }

    /// The node is composed, after replication has begun: everything begins. What the system does
    /// not give ends the standby.
    pub fn compose(&self, core: &Arc<Core>) {
        let Some(begun) = self.0.begun.get() else { return };
        if let Err(why) = self.start(core, begun) {
            begun.complete.failed(why);
        }
    }

    fn start(&self, core: &Arc<Core>, begun: &Begun) -> Result<(), String> {
        let shared = &self.0;
        let join = || core.participants.join().map_err(|cause| cause.to_string());
        let failed = |cause: std::io::Error| format!("cannot start a thread: {cause}");
        let entrance = Entrance::new(&shared.window, &core.catalog, join()?, shared.reach);
        let places = [join()?, join()?];
        let undo = Undo::new(&core.catalog, join()?);
        let mut state = shared.state();
        state.undo = Some(undo);
        let mut spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            state.threads.push(Builder::new().name(name.into()).spawn(run).map_err(failed)?);
            Ok::<_, String>(())
        };
        let (ours, completes, leaves) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
        let (keeps, kept) = sync_channel(1);
        spawn("leave", Box::new(move || leaves.leave(leaves.begun.get().expect("it has begun"), &places, &keeps)))?;
        // Old versions are kept before a transaction may read them, and before the node's garbage
        // collector begins to clear away what no snapshot needs.
        kept.recv().map_err(|_| "the thread that keeps old versions has ended")?;
        spawn("initialize", Box::new(move || ours.initialize(entrance)))?;
        spawn("complete", Box::new(move || completes.complete(completes.begun.get().expect("it has begun"))))?;
        let watches = Arc::clone(shared);
        spawn("watch", Box::new(move || watches.look_after(watches.begun.get().expect("it has begun"))))?;
        let originals = FromOthers::new(&begun.complete);
        let (executor, mismatches) = (&shared.executor, Arc::clone(&shared.mismatches));
        let means = Means { core, executor, ground: &shared.ground, serially: false };
        let pool =
            Pool::start(shared.schedule.threads(), &shared.window, &means, Arc::new(originals.clone()), mismatches);
        (state.pool, state.originals) = (Some(pool.map_err(failed)?), Some(originals));
        drop(state);
        shared.watch.begin(shared.pending());
        Ok(())
    }
}

impl Regenerate for Live {
    fn begin(&self, at: Lsn, visible: &Arc<Watermark>, complete: Arc<dyn Complete>) {
        debug_assert_eq!(self.0.window.end(), at, "the window begins where the log ends");
        let _ = self.0.begun.set(Begun { visible: Arc::clone(visible), complete });
    }

    fn enter(&self, from: Lsn, to: Lsn, form: &[u8], members: &mut dyn FnMut(&[u8])) -> Result<Lsn, String> {
        let shared = &self.0;
        let (known, defined) = {
            let state = shared.state();
            (state.end, state.defined)
        };
        let batch = Batch::decode((from, to), form, known, (defined, &shared.reach), members)?;
        let oldest = batch.demand.oldest();
        let mut state = shared.state();
        state.defined = batch.demand.defined();
        if to > state.end {
            state.end = to;
            state.waiting.push_back(batch);
            shared.changed.notify_all();
        }
        Ok(oldest)
    }

    fn plain(&self, blocks: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
        form::plain(blocks, into).map_err(|error| error.to_string())
    }

    fn ahead(&self) -> u64 {
        self.0.backlog.map_or(u64::MAX, |time| self.0.window.within(time).unwrap_or(FIRST_AHEAD))
    }

    fn cut(&self, at: Lsn) {
        let shared = &self.0;
        let mut state = shared.state();
        if at >= state.end {
            return;
        }
        state.cutting = true;
        shared.window.interrupt();
        while state.entering {
            state = shared.wait(state);
        }
        state.waiting.retain_mut(|batch| {
            batch.to = batch.to.min(at);
            batch.from < batch.to
        });
        state.end = at;
        shared.window.cut(at, |block| state.take_back(block));
        state.cut = Some(state.cut.map_or(at, |before| before.min(at)));
        state.cutting = false;
        shared.changed.notify_all();
    }

    fn stop(&self) {
        let shared = &self.0;
        shared.stopped.store(true, SeqCst);
        shared.watch.stop();
        shared.window.close(None);
        let (threads, pool, originals) = {
            let mut state = shared.state();
            shared.changed.notify_all();
            (std::mem::take(&mut state.threads), state.pool.take(), state.originals.take())
        };
        originals.inspect(FromOthers::stop);
        drop(pool);
        for thread in threads {
            // A panic there was reported already.
            let _ = thread.join();
        }
        // Nothing is executed any more, so nothing is read here. What was executed and is not part
        // of the log is not part of the database. What is part of it may not be replayed yet: then
        // replay does that. A node that leads from now on must not take these records for such as
        // are about to come: its garbage collector would never clear them away.
        let mut state = shared.state();
        shared.window.clear(|block| state.take_back(block));
        state.undo = None;
    }
}
