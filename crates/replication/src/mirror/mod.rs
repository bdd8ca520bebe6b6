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
mod service;

use std::{
    convert::Infallible,
    io,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{
    Lsn, NodeId, Safety, Term,
    sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    Moment,
    entering::Held,
    mirror::MirrorState,
    promotion::{Fetch, LogState},
    term::{Living, TermHistory, TermState},
};
use freshet_fabric::{
    cpu::Meter,
    memory::{Medium, Method, Region},
    tcp::Connection,
};
use freshet_membership::Credentials;
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
    promotion::{Candidate, PromoteError, PromoteOptions},
    standby::{Follow, Follows, JoinError, SessionError, StandbyFabric, keep_following},
    status::{AheadStatus, Bootstrap, MOST_AHEAD, MirrorStatus, STALE, TwoPrimaries},
    terms::Terms,
    wire::{Growing, Peer, Peers, Refusal},
};

/// A mirror's parameters.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// How long the primary may be silent, or take nothing in, before the connection is given up.
    pub patience: Duration,
    /// The first pause before connecting again, and the longest.
    pub back_off: (Duration, Duration),
    /// Other nodes that may exist, beside those that the primary tells of.
    pub peers: Vec<String>,
    /// How the primary reaches this node's memory.
    pub fabric: StandbyFabric,
    /// Whether commits may wait for this node.
    pub synchronous: bool,
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
            patience: Duration::from_secs(5),
            back_off: (Duration::from_millis(20), Duration::from_secs(2)),
            peers: Vec::new(),
            fabric: StandbyFabric::default(),
            synchronous: true,
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

/// Who is a mirror.
#[derive(Clone, Debug)]
pub struct Mirroring {
    /// This node.
    pub node: NodeId,
    /// The certificate that it shows to others.
    pub credentials: Credentials,
    /// Where other nodes reach it.
    pub address: String,
    /// Whom to follow; `None` to wait until it is told.
    pub upstream: Option<String>,
}

pub(crate) struct Shared {
    who: Mirroring,
    config: MirrorConfig,
    terms: Terms,
    checkpoints: Arc<dyn Checkpoints>,
    clock: Clock,
    follow: Follow,
    memory: Mutex<Memory>,
    state: Mutex<State>,
    cpu: Meter,
    /// Held while a thread raises the fence.
    observing: Mutex<()>,
    stopping: AtomicBool,
}

/// What is known here of the primary and of the others.
struct State {
    mirror_state: MirrorState,
    /// The last of the log that a candidate has got, for those who have less.
    fetched_log: FetchedLog,
    /// A checkpoint comes.
    bootstrap: Option<Bootstrap>,
    /// What the primary has announced last, and when that came.
    observed: Option<(Observed, Moment)>,
    /// Where the node is that has announced last that it leads, or is about to.
    announced_address: String,
    peers: Vec<Peer>,
    /// Those that hold more than the cluster's log has, as was announced last.
    ahead: Vec<AheadStatus>,
    /// Other primaries that its primary has met, as was announced last.
    two_primaries: Vec<TwoPrimaries>,
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
    fn new(mirror_state: MirrorState) -> Self {
        Self {
            mirror_state,
            fetched_log: FetchedLog::default(),
            bootstrap: None,
            observed: None,
            announced_address: String::new(),
            peers: Vec::new(),
            ahead: Vec::new(),
            two_primaries: Vec::new(),
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
        write!(f, "Mirror({})", self.shared.who.node)
    }
}

impl Mirror {
    /// Starts to follow, with memory in which nothing is. What it begins from is read by means of
    /// `checkpoints`.
    ///
    /// # Errors
    /// What the system says when there is no memory, or no thread can be started.
    pub fn start(
        who: Mirroring,
        config: MirrorConfig,
        terms: Terms,
        checkpoints: Arc<dyn Checkpoints>,
    ) -> io::Result<Self> {
        let peers =
            config.peers.iter().map(|address| Peer { node: None, address: address.clone(), serves: true }).collect();
        let mut memory = Memory::new(&config, who.node, &terms)?;
        let found = found(&mut memory, &terms, MirrorState::new(who.node, config.synchronous, config.patience))?;
        let shared = Arc::new(Shared {
            follow: Follow::new(who.upstream.clone()),
            memory: Mutex::new(memory),
            state: Mutex::new(State { peers, ..found }),
            clock: Clock::start(),
            cpu: Meter::default(),
            observing: Mutex::default(),
            stopping: AtomicBool::new(false),
            who,
            config,
            terms,
            checkpoints,
        });
        let follows = Arc::clone(&shared);
        let thread = thread::Builder::new().name("mirror".into()).spawn(move || keep_following(&follows))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Answers those who connect to this node's endpoint.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(service::MirrorService(Arc::clone(&self.shared)))
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

    /// Everyone this node knows of.
    pub fn peers(&self) -> Vec<Peer> {
        self.shared.known()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The memory ([`freshet_mirror::Contents`]). While a primary writes there, it may read as
    /// damaged.
    pub fn memory(&self) -> Vec<Region> {
        self.shared.memory().regions()
    }

    /// What lies under its memory, and how that becomes durable, if it is to be.
    pub fn persistent_medium(&self) -> Option<(Medium, Method)> {
        let method = self.shared.config.method?;
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

    /// The part of its memory that has rows, when nobody needs that any more. To give it back to
    /// the system takes some tenths of a second for each GiB.
    pub fn take_rows(&self) -> Vec<Region> {
        self.shared.memory().take_arenas()
    }

    /// Lets the connection and the thread go.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.follow.stop();
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
                let mirror_state = nothing.found(found.end, memory.floor());
                return Ok(State { undone: found.undone as u64, ..State::new(mirror_state) });
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
    Ok(State::new(nothing))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this mutex")
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no code panics under this mutex")
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
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
                    return self.holds_more(from, committed);
                }
                self.state().mirror_state.goes_stale();
            }
            Some(refusal @ Refusal::MirrorHoldsMore { .. }) => self.report_holds_more(refusal),
            // It comes again when that is durable.
            Some(Refusal::NoteSet { set }) => {
                if let Err(cause) = self.terms.note_set((**set).clone()) {
                    return SessionError::Local(cause.to_string());
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
        let filled = self.memory().filled(cluster, (self.who.node, history.last_term()), (start, end));
        filled.map_err(|cause| SessionError::Local(format!("a mirror's memory cannot be kept: {cause}")))?;
        self.terms.adopt(cluster, history).map_err(|error| SessionError::Local(error.to_string()))?;
        self.terms.note_committed(committed);
        self.state().mirror_state.seeded(start, end);
        tracing::info!(lsn = start.0, complete = end.0, "a checkpoint is in this mirror's memory");
        Ok(())
    }

    fn observe_peers(&self, message: Peers) {
        let peers = {
            let mut state = self.state();
            state.mirror_state.view_mut().observe_level(message.standbys, message.safety);
            (state.ahead, state.two_primaries) = (message.ahead, message.two_primaries);
            state.ahead.truncate(MOST_AHEAD);
            state.two_primaries.truncate(MOST_AHEAD);
            let old = std::mem::replace(&mut state.peers, message.peers);
            for peer in old {
                if peer.node.is_none() && state.peers.iter().all(|known| known.address != peer.address) {
                    state.peers.push(peer);
                }
            }
            state.peers.clone()
        };
        self.terms.remember(&peers, &self.who.address);
    }

    /// The term under which this node lives, and where its primary is, as far as that is known.
    fn living(&self) -> Option<(Living, Option<String>)> {
        let fence = self.terms.get().fence;
        let state = self.state();
        let (living, hearsay) = state.mirror_state.view().living(&fence, self.clock.now())?;
        let address = if hearsay { Some(state.announced_address.clone()) } else { self.follow.upstream() };
        Some((living, address))
    }

    /// What this memory holds, for a candidate. To be read after the fence has risen.
    fn log_state(&self) -> LogState {
        let terms = self.terms.get();
        let (committed, end) = (self.committed(&terms), self.state().mirror_state.reaches());
        let synchronous = self.config.synchronous;
        LogState { synchronous, log: false, ..LogState::of(terms, self.who.node, end, committed) }
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
        let state = self.state();
        let (observed, end) = (state.observed, state.mirror_state.end());
        // What came before the connection ended, or long ago, means nothing any more.
        let is_new = |at: Moment| self.follow.following().is_some() && now.since(at) < STALE;
        let known = observed.filter(|(_, at)| is_new(*at));
        MirrorStatus {
            node: self.who.node,
            term: self.terms.get().fence.highest(),
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
            kept: self.config.directory.is_some(),
            durable,
            undo_bytes: undo,
            lacks: state.lacks.clone(),
            holds_more: state.holds_more.clone(),
            ahead: state.ahead.clone(),
            two_primaries: state.two_primaries.clone(),
            condemned: state.condemned.clone(),
            rehearsed: state.rehearsed.map(|(at, _)| now.since(at)),
            rehearsed_records: state.rehearsed.map(|(_, records)| records),
            set_aside: aside,
            undone_batches: state.undone,
            cpu: self.cpu.total(),
        }
    }
}

impl Candidate for Shared {
    fn living(&self) -> Option<(Living, Option<String>)> {
        self.living()
    }

    fn log_state(&self) -> LogState {
        self.log_state()
    }

    fn has_no_vote(&self) -> Option<&'static str> {
        if self.state().condemned.is_some() {
            return Some("what this mirror holds is damaged, and it begins again from another node");
        }
        (!self.state().mirror_state.has_vote())
            .then_some("this mirror is being filled from a checkpoint, and does not hold all of that yet")
    }

    fn promised_safety(&self) -> Option<(u32, Safety)> {
        self.state().mirror_state.view().level()
    }

    fn rested(&self, options: &PromoteOptions) -> Result<(), String> {
        if let Some(why) = self.follow.failure() {
            return Err(why);
        }
        self.is_database()?;
        self.has_no_vote().filter(|_| !options.force).map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn fetch(self: &Arc<Self>, from: &str, term: Term, wanted: &Fetch) -> Result<(), SessionError> {
        fetch::fetch(self, from, term, wanted)
    }

    /// What is here was brought to the end of a batch when the connection ended.
    fn finish(&self, _: Duration) -> Result<Lsn, PromoteError> {
        self.is_database().map(|()| self.state().mirror_state.end()).map_err(PromoteError::Local)
    }

    /// It ends between transactions.
    fn cut_half(&self, end: Lsn) -> Result<Lsn, PromoteError> {
        Ok(end)
    }
}

impl Follows for Shared {
    fn node(&self) -> NodeId {
        self.who.node
    }

    fn address(&self) -> &str {
        &self.who.address
    }

    fn credentials(&self) -> &Credentials {
        &self.who.credentials
    }

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn follow(&self) -> &Follow {
        &self.follow
    }

    fn patience(&self) -> Duration {
        self.config.patience
    }

    fn back_off(&self) -> (Duration, Duration) {
        self.config.back_off
    }

    fn is_member(&self) -> bool {
        true
    }

    fn is_counted(&self) -> bool {
        self.config.synchronous
    }

    fn known(&self) -> Vec<Peer> {
        self.state().peers.clone()
    }

    fn observe_primary(&self, living: Living, address: &str) {
        let mut state = self.state();
        state.mirror_state.view_mut().observe_primary(living, self.clock.now());
        address.clone_into(&mut state.announced_address);
        // A primary of before has said so.
        state.ahead.retain(|one| one.node != living.node);
    }

    fn observe_not_leading(&self, node: NodeId) {
        self.state().mirror_state.view_mut().observe_not_leading(node);
    }

    fn prepare(self: &Arc<Self>, upstream: &str, order: u64) -> Result<(), SessionError> {
        if std::mem::take(&mut self.state().given_up) {
            let end = self.committed(&self.terms.get()).0;
            tracing::warn!(end, "this mirror gives up what it holds, as it was told: it begins again");
            self.forget()?;
        }
        seed::seed(self, upstream, order)?;
        // There is no checkpoint: the log has everything.
        if self.state().condemned.is_some() {
            self.set_aside()?;
            self.forget()?;
        }
        Ok(())
    }

    fn offered(self: &Arc<Self>, upstream: &str, connection: Connection) -> Result<Infallible, SessionError> {
        {
            let mut state = self.state();
            state.mirror_state.fetched(Lsn::ZERO);
            state.fetched_log = FetchedLog::default();
        }
        receive::offered(self, upstream, connection).map_err(|error| self.explain(error))
    }

    fn held(&self, state: &TermState) -> Held {
        let mark = self.memory().mark();
        self.state().mirror_state.held(mark, state)
    }

    /// The log of the node that this one is to follow has of what is committed here, up to
    /// `committed`, only what is below `at`.
    fn holds_more(&self, at: Lsn, committed: Lsn) -> SessionError {
        let term = self.terms.get().history.cut(committed).last_term();
        let refusal = Refusal::MirrorHoldsMore { node: self.who.node, term, end: committed, here: at };
        self.report_holds_more(&refusal);
        SessionError::Refused(refusal)
    }

    /// What the primary has left there is brought to the end of a batch (Active-Memory, section
    /// 5.2), before this node answers for it, or offers it again.
    fn take_back(&self) -> Result<(), SessionError> {
        self.recovered()
    }

    fn observing(&self) -> &Mutex<()> {
        &self.observing
    }
}

impl Shared {
    /// Brings the memory to the end of a batch. What is damaged gets no vote back by that, and is
    /// kept as it is.
    fn recovered(&self) -> Result<(), SessionError> {
        self.state().mirror_state.closed();
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
