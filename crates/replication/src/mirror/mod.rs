//! The mirror's side: memory that a primary keeps up to date by itself (Active-Memory, section 4).
//!
//! One thread, `mirror`, follows the primary. It offers the memory, adds regions when it is asked
//! to, notes in-sync sets, and answers keep-alives. Rows are written without it.
//!
//! The end of every connection revokes it. Then the memory is brought to the state after a batch
//! (section 5.2), before this node answers the node that raised its fence, or joins again. Where
//! a process of this machine still has the memory mapped, that is copied to other memory first.
//!
//! A mirror that takes over gets what another node has more of the log, and puts it into its memory
//! by itself ([`fetch`]).
//!
//! Memory does not outlive its process, unless it lies in files ([`kept`]); in persistent memory it
//! outlives the machine's, too. A mirror that begins with empty memory is another incarnation: what
//! it acknowledged in an earlier life is lost ([`MirrorState`]).
//!
//! A mirror cannot be cut below its mark. What it knows to be committed it gives up for no log that
//! has less: it does not follow, and says so on both sides, until an operator decides (see
//! [`MirrorState::committed`]). Where the log is gone from its end on, or it cannot be cut back to
//! where histories part, or its memory is damaged, it is filled again: from a checkpoint, if there
//! is one ([`Seed`]), and not before that comes.

mod begin_again;
mod fetch;
mod fuzzy_snapshot;
mod kept;
mod memory;
mod receive;
mod rehearse;
mod seed;
mod store;

use std::{
    io,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::Instant,
};

use freshet_base::{
    Lsn,
    sync::{Arc, Mutex, MutexGuard},
};
use freshet_cluster::{
    Moment,
    mirror::MirrorState,
    recording::Recorded,
    term::{TermHistory, TermState},
};
use freshet_fabric::{
    cpu::Meter,
    memory::{Medium, Method, Region},
};
pub use freshet_mirror::FetchedLog;

use self::memory::{Memory, RecoverError};
pub use self::{
    fuzzy_snapshot::{FuzzySnapshot, FuzzySnapshots},
    rehearse::Rehearsal,
    seed::{Beginning, Checkpoints, Seed},
};
use crate::{
    checkpoints::KnownLog,
    clock::Clock,
    endpoint::Service,
    follow::{self, FollowConfig, FollowService, FollowerId, JoinError, SessionError, Store as _, Watching},
    promotion::{PromoteError, PromoteOptions, Promoted, promotion},
    status::{Bootstrap, MirrorStatus, STALE},
    terms::Terms,
    whole_cluster::WholeCluster,
    wire::{Growing, Peer, Refusal},
};

/// A mirror's parameters.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// How it follows its primary.
    pub follow: FollowConfig,
    /// Bytes of the directory of what lies where.
    pub head: u64,
    /// Bytes of the undo ring.
    pub undo: u64,
    /// Bytes that are added at once, at least, if there is room.
    pub arena: u64,
    /// Bytes of all of it together, at most.
    pub most: u64,
    /// At most this number of bytes of log are kept that a failover has fetched, for others.
    pub fetched: u64,
    /// Where a memory goes that is damaged, if it does not lie in files: it is kept there until the
    /// mirror has everything again. Nowhere: it is not kept.
    pub aside: Option<PathBuf>,
    /// Where its files lie, if it is to outlive the process.
    pub directory: Option<PathBuf>,
    /// How what is stored in these becomes durable, if it is to outlive a loss of power.
    pub method: Option<Method>,
}

impl Default for MirrorConfig {
    fn default() -> Self {
        Self {
            follow: FollowConfig::default(),
            head: 8 << 20,
            undo: 64 << 20,
            arena: 64 << 20,
            most: u64::MAX,
            fetched: 1 << 20,
            aside: None,
            directory: None,
            method: None,
        }
    }
}

/// What a mirror keeps what it gets in: memory that its primary writes into.
pub(crate) struct MemoryStore {
    config: MirrorConfig,
    checkpoints: Arc<dyn Checkpoints>,
    memory: Mutex<Memory>,
    state: Mutex<State>,
    cpu: Meter,
}

pub(crate) type Shared = follow::Shared<MemoryStore>;

/// What a mirror knows of what it holds.
struct State {
    mirror_state: Recorded<MirrorState>,
    /// The last of the log that a candidate has got, for those who have less.
    fetched_log: FetchedLog,
    /// A checkpoint comes.
    bootstrap: Option<Bootstrap>,
    /// What the primary has announced last, and when that came.
    observed: Option<(Observed, Moment)>,
    /// Why there was no memory for the primary when it asked last.
    lacks: Option<String>,
    /// Why it does not follow, if the other log has less than is here.
    holds_more: Option<String>,
    /// An operator has said that what is here is not wanted any more.
    given_up: bool,
    /// Why what is here is not what was written: it has no vote, and begins again.
    condemned: Option<String>,
    /// When it was read last as a failover would, and how many records there were.
    rehearsed: Option<(Moment, u64)>,
    /// How many batches were undone when connections ended.
    undone: u64,
}

impl State {
    fn new(mirror_state: Recorded<MirrorState>) -> Self {
        Self {
            mirror_state,
            fetched_log: FetchedLog::default(),
            bootstrap: None,
            observed: None,
            lacks: None,
            holds_more: None,
            given_up: false,
            condemned: None,
            rehearsed: None,
            undone: 0,
        }
    }
}

/// What a primary announces of itself.
#[derive(Clone, Copy)]
struct Observed {
    /// How far its log reaches.
    end: Lsn,
    in_sync: bool,
}

/// A node whose memory is a mirror.
pub struct Mirror {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mirror({})", self.shared.node())
    }
}

impl Mirror {
    /// Starts to follow, with memory in which nothing is. What it begins from is read by means of
    /// `checkpoints`.
    ///
    /// # Errors
    /// What the system says when there is no memory, or no thread can be started.
    pub fn start(
        who: FollowerId,
        config: MirrorConfig,
        terms: Terms,
        checkpoints: Arc<dyn Checkpoints>,
    ) -> io::Result<Self> {
        let mut memory = Memory::new(&config, who.node, &terms)?;
        let found = found(&mut memory, &terms, MirrorState::new(who.node, config.follow.synchronous))?;
        let follow_config = config.follow.clone();
        let (memory, state) = (Mutex::new(memory), Mutex::new(found));
        let store = MemoryStore { config, checkpoints, memory, state, cpu: Meter::default() };
        let shared = Arc::new(Shared::new(who, follow_config, terms, Clock::start(), store));
        let follows = Arc::clone(&shared);
        let thread = thread::Builder::new().name("mirror".into()).spawn(move || follow::run(&follows))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Answers those who connect to this node's endpoint.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(FollowService(Arc::clone(&self.shared)))
    }

    /// Follows the node at `address` from now on, without a restart.
    pub fn follow(&self, address: &str) {
        self.shared.follow.lead(Some(address.to_owned()));
    }

    /// Blocks until it follows its primary for the first time.
    ///
    /// # Errors
    /// [`JoinError`] with what went wrong last when `deadline` passes, at once when it cannot
    /// continue.
    pub fn wait_joined(&self, deadline: Instant) -> Result<(), JoinError> {
        self.shared.follow.wait_joined(deadline)
    }

    /// When it takes its primary for lost.
    pub fn watching(&self) -> Arc<Watching> {
        Arc::clone(&self.shared.watching)
    }

    /// Everyone this node knows of.
    pub fn peers(&self) -> Vec<Peer> {
        self.shared.peers()
    }

    /// Turns this mirror into the primary of a new term; afterwards it rests for good, and its
    /// memory is the database, up to the start of the term ([`Mirror::memory`]). When it fails the
    /// mirror follows its primary again. Blocks until enough nodes have answered.
    ///
    /// # Errors
    /// [`PromoteError`] says what is missing.
    pub fn promote(&self, options: &PromoteOptions) -> Result<Promoted, PromoteError> {
        promotion(&self.shared, options)
    }

    /// The memory ([`freshet_mirror::Contents`]). While a primary writes there, it may read as
    /// damaged.
    pub fn memory(&self) -> Vec<Region> {
        self.shared.memory().regions()
    }

    /// What lies under its memory, and how that becomes durable, if it is to be.
    pub fn persistent_medium(&self) -> Option<(Medium, Method)> {
        let method = self.shared.store.config.method?;
        Some((self.shared.memory().medium()?.clone(), method))
    }

    /// The end of the log that a failover has fetched, if it begins its term at `start`: empty if
    /// there was nothing to fetch.
    pub fn fetched(&self, start: Lsn) -> FetchedLog {
        std::mem::take(&mut self.shared.state().fetched_log).up_to(start)
    }

    /// Takes fuzzy snapshots of its memory for other nodes.
    pub fn fuzzy_snapshots(&self) -> FuzzySnapshots {
        FuzzySnapshots(Arc::clone(&self.shared))
    }

    /// From now on its memory may have this many bytes; what it has, it keeps. A primary that waits
    /// for memory asks again.
    pub fn allow(&self, most: u64) {
        self.shared.memory().allow(most);
    }

    /// What it holds more than the node that it is to follow is not wanted any more: it begins
    /// again with what that has.
    ///
    /// # Errors
    /// When it holds no more.
    pub fn refill(&self) -> Result<(), String> {
        let mut state = self.shared.state();
        if state.holds_more.is_none() {
            return Err("this mirror gives nothing up: it does not hold more than the node that it follows".into());
        }
        state.given_up = true;
        Ok(())
    }

    /// As things stand, without asking anybody.
    pub fn status(&self) -> MirrorStatus {
        self.shared.status()
    }

    /// This node, for what concerns the whole cluster.
    pub fn whole_cluster(&self) -> Arc<dyn WholeCluster> {
        Arc::clone(&self.shared) as _
    }

    /// The part of its memory that has rows, when nobody needs that any more. To give it back to
    /// the system takes some tenths of a second for each GiB.
    pub fn take_rows(&self) -> Vec<Region> {
        self.shared.memory().take_arenas()
    }

    /// Lets the connection and the thread go.
    pub fn stop(&self) {
        self.shared.stop();
        let thread = self.thread.lock().expect("no code panics under this mutex").take();
        if let Some(thread) = thread {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a process of before has left in the memory, recovered.
fn found(memory: &mut Memory, terms: &Terms, nothing: MirrorState) -> io::Result<State> {
    let TermState { cluster, history, .. } = terms.get();
    if memory.has_begun() {
        match memory.recover() {
            Ok(Some(found)) if found.end < memory.reached() => {
                let (end, had) = (found.end.0, memory.reached().0);
                tracing::warn!(
                    end,
                    had,
                    "the memory that this mirror kept does not count, since it is older than what this node had: it \
                     begins again"
                );
            }
            Ok(Some(found)) => {
                let (end, under_way, undone) = (found.end.0, found.under_way, found.undone);
                tracing::info!(end, under_way, undone, "this mirror finds the memory that it had, and continues");
                let mirror_state = nothing.found(found.end, memory.floor()).owing(memory.owes());
                return Ok(State {
                    undone: found.undone as u64,
                    ..State::new(Recorded::new(mirror_state, terms.recorder()))
                });
            }
            Ok(None) => {}
            Err(RecoverError::Damaged(cause)) => {
                tracing::error!(%cause, "the memory that was left is damaged: this mirror begins again")
            }
            Err(RecoverError::System(cause)) => return Err(cause),
        }
        // It may be the last copy of something.
        let reached = memory.reached();
        memory.set_aside(history.clone(), reached)?;
        memory.forget()?;
    }
    if let Some(cluster) = cluster.filter(|_| history != TermHistory::default()) {
        // Nothing of it is in this memory.
        terms.adopt(cluster, TermHistory::default()).map_err(io::Error::other)?;
    }
    Ok(State::new(Recorded::new(nothing, terms.recorder())))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.store.state.lock().expect("no code panics under this mutex")
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.store.memory.lock().expect("no code panics under this mutex")
    }

    /// Memory for what the primary writes next: at least `bytes`, if there is as much.
    fn grow(&self, bytes: u64, growing: Growing) -> Option<Region> {
        let grown = self.memory().grow(bytes, growing);
        let lacks = match &grown {
            Ok(Some(_)) => None,
            Ok(None) => Some("what it may have is used up: set mirror.bytes to more".to_owned()),
            Err(cause) => Some(format!("the system has no memory for it: {cause}")),
        };
        let before = std::mem::replace(&mut self.state().lacks, lacks.clone());
        if let Some(cause) = lacks.filter(|lacks| before.as_ref() != Some(lacks)) {
            tracing::warn!(cause, "this mirror has no memory for its primary");
        }
        grown.ok().flatten()
    }

    /// See [`MirrorState::committed`]; `terms` is what this node remembers.
    fn committed(&self, terms: &TermState) -> Lsn {
        let mark = self.memory().mark();
        self.state().mirror_state.committed(mark, terms)
    }

    fn report_holds_more(&self, refusal: &Refusal) {
        // That is logged with the end of the attempt.
        self.state().holds_more = Some(refusal.to_string());
    }

    /// Whether what is here may be given up for what that log has up to there.
    fn may_be_given_up(&self, theirs: &TermHistory, end: Lsn) -> bool {
        let terms = self.terms.get();
        let committed = self.committed(&terms);
        self.state().mirror_state.may_be_given_up(committed, &terms.history, (theirs, end))
    }

    /// What the other node has said may concern what is here. None of it is given up for a log
    /// which has less, and the process continues, since nothing else may have it.
    fn explain(&self, error: SessionError) -> SessionError {
        match error.remote_refusal() {
            Some(&Refusal::LogGone { from, .. }) => {
                let committed = self.committed(&self.terms.get());
                if from < committed {
                    return MemoryStore::holds_more(self, from, committed);
                }
                self.state().mirror_state.goes_stale();
            }
            Some(refusal @ Refusal::MirrorHoldsMore { .. }) => self.report_holds_more(refusal),
            // It comes again when that is durable.
            Some(Refusal::NoteSet { set }) => {
                if let Err(cause) = self.terms.note_set((**set).clone()) {
                    return cause.into();
                }
            }
            Some(refusal @ (Refusal::SameTermTwice { .. } | Refusal::OtherCluster { .. } | Refusal::Myself { .. })) => {
                return SessionError::Refused(refusal.clone());
            }
            _ => {}
        }
        error
    }

    /// A checkpoint is in the memory.
    fn seeded(&self, beginning: Beginning) -> Result<(), SessionError> {
        let Beginning { cluster, known: KnownLog { history, committed }, start, end, .. } = beginning;
        let filled = self.memory().filled(cluster, (self.node(), history.last_term()), (start, end));
        filled.map_err(|cause| SessionError::Local(format!("a mirror's memory cannot be kept: {cause}")))?;
        self.terms.adopt(cluster, history)?;
        self.terms.note_committed(committed);
        self.state().mirror_state.seeded(start, end);
        tracing::info!(lsn = start.0, complete = end.0, "a checkpoint is in this mirror's memory");
        Ok(())
    }

    /// Whether a database can be made of the memory, or why not.
    fn is_database(&self) -> Result<(), String> {
        if self.state().mirror_state.is_state() && self.memory().has_begun() {
            return Ok(());
        }
        let why = "what has come of the database is no state of it yet: promote another node, or wait";
        Err(format!("this mirror is being filled, and {why}"))
    }

    fn status(&self) -> MirrorStatus {
        let now = self.clock.now();
        let (granted, most, mark, durable, undo, aside) = {
            let memory = self.memory();
            let durable = memory.medium() == Some(&Medium::Dax);
            (memory.bytes(), memory.most(), memory.mark(), durable, memory.undo_bytes(), memory.aside())
        };
        let (ahead, two_primaries) = {
            let known = self.known();
            (known.ahead.clone(), known.two_primaries.clone())
        };
        let state = self.state();
        let (observed, end) = (state.observed, state.mirror_state.end());
        // What came before the connection ended, or long ago, means nothing any more.
        let is_new = |at: Moment| self.follow.following().is_some() && now.since(at) < STALE;
        let known = observed.filter(|(_, at)| is_new(*at));
        MirrorStatus {
            node: self.node(),
            term: self.terms.fence().highest(),
            link: self.follow.status(),
            fabric: self.config.fabric.kind,
            one_sided: self.config.fabric.kind.is_one_sided(),
            in_sync: known.map(|(observed, _)| observed.in_sync),
            silence: observed.map(|(_, at)| now.since(at)),
            end,
            whole: state.mirror_state.has_vote() && end > Lsn::ZERO,
            bootstrap: state.bootstrap,
            floor: state.mirror_state.floor(),
            mark,
            lag_bytes: known.map(|(observed, _)| observed.end.since(end.min(observed.end))),
            granted_bytes: granted,
            most_bytes: most,
            kept: self.store.config.directory.is_some(),
            durable,
            undo_bytes: undo,
            lacks: state.lacks.clone(),
            holds_more: state.holds_more.clone(),
            ahead,
            two_primaries,
            condemned: state.condemned.clone(),
            rehearsed: state.rehearsed.map(|(at, _)| now.since(at)),
            rehearsed_records: state.rehearsed.map(|(_, records)| records),
            set_aside: aside,
            undone_batches: state.undone,
            cpu: self.store.cpu.total(),
        }
    }

    /// Brings the memory to the end of a batch. What is damaged gets no vote back by that, and is
    /// kept as it is.
    fn recovered(&self) -> Result<(), SessionError> {
        self.closed();
        if self.state().condemned.is_some() {
            return Ok(());
        }
        let found = self.memory().recover();
        if let Err(RecoverError::Damaged(damaged)) = &found {
            self.condemn(damaged.to_string());
            return Ok(());
        }
        if let Some(found) = found? {
            let mut state = self.state();
            state.mirror_state.recovered(found.end);
            state.undone += found.undone as u64;
            let (end, under_way, undone) = (found.end.0, found.under_way, found.undone);
            drop(state);
            tracing::info!(end, under_way, undone, "the mirror is recovered");
            let noted = self.memory().note_reached(found.end);
            noted.map_err(|cause| SessionError::Local(format!("a mirror's memory cannot be kept: {cause}")))?;
        }
        receive::drop_aside(self);
        Ok(())
    }
}
