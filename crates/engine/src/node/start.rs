//! From a configuration to a running node.
//!
//! Any node may be started again as it was started first ([`Course`]). The node that was the
//! primary last, or was promised a term, may come back: among nodes that are all up there is always
//! one such node. It asks the others first. A node that lives in another primary's term refuses and
//! names that primary; then this node follows it. A node that knows no other to follow tries the
//! nodes that it knows in turn, and a primary announces itself to all nodes that are not connected.
//!
//! A primary that restarts is a candidate like any other. Where the safety level does not let it
//! begin a term without enough answers (quorum; 2-safe where others may have continued), or where
//! those who answer could choose a successor by themselves while it reads its log, it starts as a
//! standby without a primary and takes over when enough others promise. It never deposes a primary
//! that has continued without it. Quorum and very safe count nodes, so a primary lets no
//! more synchronous standbys in than are configured.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use freshet_base::{Lsn, NodeId, StateProof, Term, Watermark};
use freshet_cluster::{
    promotion::{Candidacy, ComesBack, LogState, Plan, Standing},
    term::{Living, TermHistory, may_come_back},
};
use freshet_fabric::tcp::{ListenError, Listener};
use freshet_log::{ControlError, Log, LogOpenError, StoreError, persist::BufferError};
pub use freshet_recovery::PhaseStatus;
use freshet_recovery::{Manifest, Phase, Restart, RestoreError, Restored};
use freshet_replay::{Announce, Deleted, Replay, Restore};
use freshet_replication::{
    checkpoints::FetchError,
    endpoint::{CallError, Endpoint, call},
    promotion::{PromoteError as PromotionError, PromoteOptions},
    restart::{Others, Threshold, ask_others},
    standby::ArrivedLog,
    terms::BeginError,
    wire::{Hello, Peer, Purpose, Refusal},
};
use freshet_storage::{Catalog, Participants};
use freshet_txn::{Core, Memory, Messages, Snapshots};
use thiserror::Error;

use super::{
    Composition, Encoding, Node, PromoteError, ReplayMode, Role, belongs,
    checkpoint::{self, Checkpointing},
    config::{Apply, NodeConfig, OnDoubt, SettingError},
    garbage_collector::GarbageCollectorThread,
    ground::Ground,
    join::CheckpointDoor,
    lead::{Lead, ThisNode},
    mirror,
    standby::Following,
    sweep::{self, Sweep},
};
use crate::{
    Database,
    compare::StateViews,
    scheme::{OnStandby, Scheme, command::Executors},
    source::VersionSource,
};

/// How long the primary may take to say which cluster it is of.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A primary that restarts asks the others this often.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(200);

/// And this often once it serves as a standby that follows no other node; later if it is just
/// trying to follow one.
const RETURN_EVERY: Duration = Duration::from_secs(2);

/// How far the start of a node has come.
pub type StartPhase = Phase;

/// Why a node did not start. Nothing was lost by it.
#[derive(Debug, Error)]
pub enum StartError {
    /// Something in the configuration makes no sense.
    #[error("configuration: {0}")]
    Config(String),
    /// A value that no node can run with.
    #[error("configuration: {0}")]
    Setting(#[from] SettingError),
    /// The directory or its control file.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The log's segments.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log could not be replayed.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The log could not be opened.
    #[error(transparent)]
    Log(#[from] LogOpenError),
    /// The address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The log buffer in persistent memory.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The primary's checkpoint cannot be fetched.
    #[error("cannot fetch a checkpoint: {0}")]
    Fetch(#[from] FetchError),
    /// The primary to join cannot be asked which cluster it is of.
    #[error("cannot join: {0}")]
    Join(#[from] CallError),
    /// The new term cannot begin.
    #[error("cannot become the primary: {0}")]
    Begin(#[from] BeginError),
    /// Others may have gone on without this node.
    #[error(
        "this node was the primary, and others may have continued without it: {0}. Start the others; \
         if they do not know each other, name them in `peers`; `--force-primary` makes it the primary all the same, and may lose acknowledged commits"
    )]
    Unanswered(Box<super::PromoteError>),
    /// It belongs to its cluster no more.
    #[error("{0}")]
    Removed(Refusal),
    /// The same node is running elsewhere.
    #[error(
        "node {node} is the primary already, at {address}, and so this one was started from a copy of its directory: \
         keep that aside, and let this node join with a new one (--join)"
    )]
    Twin {
        /// Both.
        node: NodeId,
        /// Where the other one is.
        address: String,
    },
    /// It has no log, and nobody has told it to begin a cluster.
    #[error(
        "this node has no log, and does not begin a new cluster by itself, since {why}: if it is to be the first of \
         a new cluster, start it once with --new-cluster; let it join a node of another one (--join HOST:PORT); if it \
         had a log, see first what the other nodes hold (freshet status ADDRESS), and promote one of them"
    )]
    NotFounded {
        /// What speaks for another cluster.
        why: String,
    },
    /// The node has a log and no certificate.
    #[error(
        "this node's certificate is missing from {}: restore it, or let a member certify the node again with --join \
         (from another machine with a token for this node's id), or, to begin a new authority for all nodes of the \
         cluster, start the first one with --force-primary", .0.join("membership").display()
    )]
    NoCertificate(PathBuf),
    /// The node cannot show that it is a member.
    #[error(transparent)]
    Credentials(#[from] freshet_membership::CredentialsError),
    /// The operating system gave no thread, or the like.
    #[error("{0}")]
    System(String),
}

impl Node {
    /// Starts a node: restart from its log if there is one, then as a primary, or with `join` as a
    /// standby. `progress` hears how far that is. Returns when a primary can take transactions; a
    /// standby follows as soon as it reaches its primary.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: NodeConfig, progress: impl FnMut(Phase) + Send) -> Result<Arc<Self>, StartError> {
        Self::start_executing(config, None, progress)
    }

    /// As [`Node::start`]; a standby that executes transactions again does so by means of one of
    /// `executors`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_executing(
        config: NodeConfig,
        executors: Option<Executors>,
        mut progress: impl FnMut(Phase) + Send,
    ) -> Result<Arc<Self>, StartError> {
        config.check()?;
        // Nothing is made for a node that cannot listen. It does so when it has something to say:
        // who comes before is to be refused, and not to wait.
        drop(Listener::bind(&config.listen.to_string())?);
        let ground = Ground::find(&config, freshet_membership::Part::Node)?;
        let progress = Mutex::new(&mut progress);
        let report = |phase| (progress.lock().unwrap_or_else(PoisonError::into_inner))(phase);
        report(Phase::Tail);
        let (end, torn) = match &ground.store {
            Some(store) => ground.settle(&config, store)?,
            None => (Lsn::ZERO, None),
        };
        let participants = Participants::new(config.participants());
        let (course, end) = Course::taken(&config, &ground, end, &report)?;
        let restored = restore(&config, &ground, &course, end, &participants, &report)?;
        let source = Arc::new(VersionSource::default());
        let endpoint = Endpoint::open(ground.id, ground.credentials.clone(), &config.listen.to_string())?;
        let address = config.advertise.clone().unwrap_or_else(|| endpoint.address().to_string());
        let restart = restored.as_ref().map(|restored| restored.phases).unwrap_or_default();
        let mut passed_over = None;
        let (catalog, deleted, checkpoint) = match restored {
            Some(restored) => {
                passed_over = restored.passed_over;
                (restored.catalog, restored.deleted, restored.checkpoint)
            }
            None => (Arc::new(Catalog::new()), Vec::new(), None),
        };
        let scheme = Scheme::of(&config, executors, ground.directory.as_deref(), end)?;
        let proof = Arc::new(StateProof::new(config.on_doubt == OnDoubt::Withdraw));
        let memory = Arc::new(Memory::default());
        memory.set_limit(config.memory_bytes);
        let parts = Parts {
            config,
            ground,
            catalog,
            participants,
            source,
            scheme,
            endpoint,
            address,
            end,
            torn,
            checkpoint,
            proof,
            memory,
        };
        let (mut node, returning) = match course {
            Course::Follow(upstream) => {
                let node = parts.follow(upstream, deleted)?;
                node.look_around();
                (node, None)
            }
            Course::Mirror(upstream) => (parts.mirror(upstream)?, None),
            Course::ComeBack => parts.come_back(deleted, &report)?,
            Course::Lead(answered) => (parts.lead(answered)?, None),
        };
        (node.restart, node.passed_over) = (Mutex::new(restart), passed_over);
        report(Phase::Ready);
        let node = Arc::new(node);
        returning.map_or(Ok(()), |returning| returning.begin(&node))?;
        node.stand_by_itself()?;
        Ok(node)
    }
}

/// Brings back what checkpoint and log have, if this node has a log, as its course needs it.
fn restore(
    config: &NodeConfig,
    ground: &Ground,
    course: &Course,
    end: Lsn,
    participants: &Arc<Participants>,
    report: &(dyn Fn(Phase) + Sync),
) -> Result<Option<Restored>, RestoreError> {
    let Some(store) = &ground.store else { return Ok(None) };
    let restart = Restart {
        store,
        end,
        directory: ground.directory.as_ref().map(|directory| directory.path()),
        devices: &config.checkpoint_devices(),
        threads: config.replay_threads,
        participants,
        target: if matches!(course, Course::Lead(_)) { &Restore } else { &Announce },
        checkpoint_alone: false,
    };
    restart.run(report).map(Some)
}

/// What both compositions are made of.
pub(crate) struct Parts {
    pub config: NodeConfig,
    pub ground: Ground,
    pub catalog: Arc<Catalog>,
    pub participants: Arc<Participants>,
    pub source: Arc<VersionSource>,
    scheme: Scheme,
    pub(super) endpoint: Endpoint,
    pub address: String,
    /// Where the log ends.
    pub end: Lsn,
    torn: Option<freshet_log::Torn>,
    pub checkpoint: Option<Manifest>,
    pub proof: Arc<StateProof>,
    /// How much of it tables may take.
    pub memory: Arc<Memory>,
}

impl Parts {
    fn lead(self, answered: BTreeSet<NodeId>) -> Result<Node, StartError> {
        let Self { config, ground, catalog, participants, source, end, .. } = &self;
        let state = ground.terms.get();
        let term = state.fence.highest().max(state.history.last_term()).next();
        let succession = alone(ground, *end).succession(config.force_primary);
        ground.terms.begin(term, ground.id, *end, &succession)?;
        let open = |persistence| Log::open(config.log_config(), persistence, *end, term);
        let log = Arc::new(ground.open_log(config, open)?);
        source.open(log.reader());
        let participant = participants.join().map_err(|cause| StartError::System(cause.to_string()))?;
        // Nothing cuts the log any more: what it says was dropped, nobody will see.
        catalog.clear_dropped(&participant.pin_without_snapshot(), Lsn::MAX);
        drop(participant);
        let core = self.core(Arc::new(Watermark::new(*end)), Arc::default());
        let this = ThisNode {
            config,
            node: ground.id,
            credentials: &ground.credentials,
            cluster: ground.cluster,
            address: &self.address,
            terms: &ground.terms,
            endpoint: &self.endpoint,
            core: &core,
            source,
            proof: &self.proof,
            peers: ground.known(config),
            // How far the others are is not noted anywhere.
            committed: Lsn::ZERO,
            succession,
            answered,
        };
        let garbage_collector =
            GarbageCollectorThread::start(Arc::default(), &core, None).map_err(StartError::System)?;
        let lead = Lead::begin(&this, log, term, *end, garbage_collector).map_err(StartError::System)?;
        self.node(core, None, Composition::Primary(lead))
    }

    /// Where the checkpoint ends with which the node begins. Its log reaches at least to there, and
    /// is replayed: without that the checkpoint is no state of the database. No cut comes below.
    pub(crate) fn floor(&self) -> Lsn {
        self.checkpoint.as_ref().map_or(Lsn::ZERO, Manifest::end)
    }

    /// With the read view `visible`.
    pub(super) fn core(&self, visible: Arc<Watermark>, messages: Arc<Messages>) -> Arc<Core> {
        let (participants, catalog) = (Arc::clone(&self.participants), Arc::clone(&self.catalog));
        let snapshots = Snapshots::standby(visible);
        let (source, certifier) = (Arc::clone(&self.source), self.config.certifier);
        let memory = Arc::clone(&self.memory);
        let core = Core::new(participants, catalog, snapshots, source as _, messages, memory, certifier);
        core.set_records_inputs(self.config.record_inputs);
        core
    }

    /// Leads as soon as enough others answered and none of them lives under another term; until
    /// then it is a standby that follows no other node. If one of them does, or has continued
    /// without this node, it becomes a standby. The second value returned says how it continues as
    /// long as it follows no other node.
    fn come_back(
        mut self,
        deleted: Vec<Deleted>,
        report: &impl Fn(Phase),
    ) -> Result<(Node, Option<Returning>), StartError> {
        let join = self.config.join.clone();
        if join.is_none() {
            // What a standby's configuration may say beside is not meant for this.
            self.config = NodeConfig {
                apply: Apply::Fresh,
                encoding: Encoding::Bytes,
                replay: ReplayMode::Pipelined,
                asynchronous: false,
                ..self.config
            };
            self.scheme = Scheme::of(&self.config, None, None, self.end)?;
        }
        let deadline = Instant::now() + Duration::from_secs(self.config.restart_timeout_s);
        let known: Vec<_> = self.ground.known(&self.config).into_iter().map(Peer::at).collect();
        let options = PromoteOptions {
            configured: Some(self.config.safety),
            standing: Standing::ComesBack(ComesBack::default()),
            ..PromoteOptions::default()
        };
        let waits_for_all_until = Instant::now() + Duration::from_millis(self.config.standby_timeout_ms);
        let node = self.follow(None, deleted)?;
        let Some(threshold) = node.stand_on_threshold() else {
            return Err(StartError::System("a node that has just started does not follow".into()));
        };
        let mut returning = Returning { options, known, join, threshold, waits_for_all_until };
        report(Phase::Peers { answered: 1, needed: 0 });
        loop {
            let why = match returning.attempt(&node) {
                Ok(()) => return Ok((node, None)),
                Err(why) => why,
            };
            let again = match &why {
                PromoteError::Promotion(cause) => match &**cause {
                    PromotionError::TooFew { answered, needed, .. }
                    | PromotionError::SetUncertain { answered, needed, .. } => {
                        report(Phase::Peers { answered: *answered, needed: *needed });
                        if let Err(foreign) = returning.check_join(&node) {
                            // What stops it is reported already.
                            let _ = node.stop();
                            return Err(foreign);
                        }
                        true
                    }
                    PromotionError::Superseded { .. } => return Ok((node, Some(returning))),
                    cause => may_pass(cause),
                },
                PromoteError::NotStandby | PromoteError::Lead { .. } => false,
            };
            if !again || Instant::now() >= deadline {
                // That it has failed is said already.
                let _ = node.stop();
                return Err(StartError::Unanswered(Box::new(why)));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Follows `upstream`, or waits for a node that makes itself known.
    fn follow(self, upstream: Option<String>, deleted: Vec<Deleted>) -> Result<Node, StartError> {
        // Leads that neither log nor checkpoint reached are none of its history.
        let (terms, cluster) = (&self.ground.terms, self.ground.cluster);
        let state = terms.get();
        if state.history != TermHistory::default() {
            let adopted = terms.adopt(cluster, state.history.cut(self.end.max(self.floor())));
            adopted.map_err(|cause| StartError::System(cause.to_string()))?;
        }
        let OnStandby { standby, log, replay, garbage_collector, messages } =
            self.scheme.on_standby(&self, upstream, deleted)?;
        let core = self.core(Arc::clone(standby.visible()), messages);
        self.scheme.replaying.composed(&core, &self.source);
        let garbage_collector =
            GarbageCollectorThread::start(garbage_collector, &core, Some(&replay)).map_err(StartError::System)?;
        let sampler = self.scheme.samples.start(&core, &log, standby.visible(), self.floor());
        let sampler = sampler.map_err(StartError::System)?;
        self.endpoint.set_service(Some(standby.service()));
        let composition = Composition::Standby(Following { standby, log, garbage_collector, sampler });
        self.node(core, Some(replay), composition)
    }

    /// What a node of either kind is in the end.
    pub(super) fn node(
        self,
        core: Arc<Core>,
        replay: Option<Arc<Replay>>,
        composition: Composition,
    ) -> Result<Node, StartError> {
        let Self { config, ground, source, scheme, endpoint, address, torn, checkpoint, proof, .. } = self;
        let mut checkpointing = None;
        if let Some(log) = composition.log() {
            let arrived = composition.standby().map(|following| following.standby.arrived());
            let parts = (&core, log, arrived, &proof);
            checkpointing = begin_checkpoints(&config, &ground, &endpoint, parts, checkpoint.as_ref())?;
        }
        let sweep = sweep::Ground {
            settings: config.sweep.clone(),
            core: Arc::clone(&core),
            source: Arc::clone(&source),
            checkpointing: checkpointing.clone(),
            proof: Arc::clone(&proof),
            executes_again: scheme.replaying.again().is_some(),
        };
        Ok(Node {
            renewal: ground.renewal(&config)?,
            id: ground.id,
            credentials: ground.credentials,
            cluster: ground.cluster,
            terms: ground.terms,
            _directory: ground.directory,
            config,
            address,
            database: Database { core },
            source,
            scheme,
            replay,
            endpoint,
            proof,
            composition: Mutex::new(composition),
            torn,
            passed_over: None,
            checkpointing: checkpointing.map(OnceLock::from).unwrap_or_default(),
            sweep: Sweep::start(sweep).map_err(StartError::System)?,
            views: StateViews::default(),
            returning: Mutex::new(None),
            restart: Default::default(),
            phase: Mutex::new(None),
            counted: Default::default(),
            taking_over: Default::default(),
        })
    }
}

/// Of a node with a directory: begins to write checkpoints, and to give them to those who ask.
/// `newest` is the one that it came back from; of a standby, `arrived` is what is no part of its
/// log yet.
pub(super) fn begin_checkpoints(
    config: &NodeConfig,
    ground: &Ground,
    endpoint: &Endpoint,
    (core, log, arrived, proof): (&Arc<Core>, &Arc<Log>, Option<ArrivedLog>, &Arc<StateProof>),
    newest: Option<&Manifest>,
) -> Result<Option<Arc<Checkpointing>>, StartError> {
    let Some(directory) = &ground.directory else { return Ok(None) };
    let (cluster, terms) = (ground.cluster, ground.terms.clone());
    let ground = checkpoint::Ground {
        settings: Mutex::new(config.checkpoint.clone()),
        directory: directory.path().to_owned(),
        devices: config.checkpoint_devices(),
        cluster,
        core: Arc::clone(core),
        log: Arc::clone(log),
        arrived,
        proof: Arc::clone(proof),
    };
    let checkpointing = Checkpointing::start(ground, newest).map_err(StartError::System)?;
    let door = CheckpointDoor { checkpointing: Arc::clone(&checkpointing), cluster, terms };
    endpoint.set_checkpoints(Some(Arc::new(door)));
    Ok(Some(checkpointing))
}

/// Whether a node that comes back should try again without an operator, although its failover has
/// failed for this cause. Another node may have become the primary by then.
fn may_pass(cause: &PromotionError) -> bool {
    use PromotionError::{Begin, Better, Contested, Fetch, HoldsMore, Newcomer};
    matches!(cause, Contested(_) | Fetch { .. } | Better { .. } | HoldsMore { .. } | Newcomer { .. } | Begin(_))
}

/// How a node that was the primary asks whether it is to be that again.
struct Returning {
    options: PromoteOptions,
    /// Where others may be.
    known: Vec<Peer>,
    join: Option<String>,
    threshold: Arc<Threshold>,
    /// Until then all nodes that it knows have to answer.
    waits_for_all_until: Instant,
}

impl Returning {
    /// Leads, or follows the node that does, if another node says that one does.
    fn attempt(&mut self, node: &Node) -> Result<(), PromoteError> {
        self.options.known = self.known.iter().cloned().chain(self.threshold.knocked()).collect();
        // A node with `join` does not take itself for the primary before another node has announced
        // which one is.
        let waits_for_all = Instant::now() < self.waits_for_all_until;
        self.options.standing = Standing::ComesBack(ComesBack { asks: self.join.is_some(), waits_for_all });
        let outcome = node.promotion(&self.options).map(drop);
        if let Err(PromoteError::Promotion(cause)) = &outcome
            && let PromotionError::Superseded { primary, .. } = &**cause
        {
            match primary.as_ref().or(self.join.as_ref()) {
                Some(primary) => node.follow(primary),
                None => node.look_around(),
            }
        }
        outcome
    }

    /// Whether this node belongs to its cluster, and who is to be joined is of it, as far as others
    /// can be reached.
    fn check_join(&self, node: &Node) -> Result<(), StartError> {
        belongs::check(&node.terms, node.id)?;
        let Some(join) = &self.join else { return Ok(()) };
        let purpose = Purpose::Identify;
        let hello = Hello { cluster: Some(node.cluster), node: node.id, address: String::new(), purpose };
        match call(&node.credentials, join, &hello, Term(0), belongs::PATIENCE) {
            Err(foreign @ CallError::Refused { refusal: Refusal::OtherCluster { .. }, .. }) => Err(foreign.into()),
            // Another process may have the address of a member that is down: that is no answer.
            Err(stranger @ CallError::Foreign { .. }) => {
                tracing::warn!(cause = stranger.to_string(), "the node to join shows no certificate of this cluster");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Continues in a thread of its own as long as the node follows no other: the one that has
    /// continued without it may be down, or may come back as a standby, as this one has.
    fn begin(mut self, node: &Arc<Node>) -> Result<(), StartError> {
        let weak = Arc::downgrade(node);
        let run = move || {
            let mut due = Instant::now() + RETURN_EVERY;
            loop {
                std::thread::park_timeout(ASK_EVERY);
                let Some(node) = weak.upgrade() else { return };
                if node.role() != Role::Standby || node.has_joined() {
                    return;
                }
                // It would interrupt an attempt to follow, which ends by itself.
                if Instant::now() < due || node.tries_since().is_some_and(|since| since < due) {
                    continue;
                }
                if self.attempt(&node).is_ok() {
                    return;
                }
                due = Instant::now() + RETURN_EVERY;
            }
        };
        let spawned = std::thread::Builder::new().name("return".into()).spawn(run);
        let thread = spawned.map_err(|cause| StartError::System(format!("cannot start a thread: {cause}")))?;
        *node.returning.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }
}

/// A primary that starts, before it has asked anybody.
fn alone(ground: &Ground, end: Lsn) -> Candidacy {
    let state = ground.terms.get();
    let log = LogState::of(state.clone(), ground.id, end, state.committed);
    Candidacy::new(ground.id, log, &state.fence).led(state.led)
}

/// As what a node starts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Course {
    /// As the primary: it was ordered to, or a cluster begins with it, or it need not ask others,
    /// and these have answered.
    Lead(BTreeSet<NodeId>),
    /// It was the primary, and asks whether it is to be that again.
    ComeBack,
    /// As a standby of the node there; if that is not known, of the first that makes itself known,
    /// or that one of the others names.
    Follow(Option<String>),
    /// As a mirror of it.
    Mirror(Option<String>),
}

impl Course {
    /// The same, and where the log ends then: one that follows without a log fetches a checkpoint,
    /// unless it is a mirror. That has nothing, whatever it was promised before, and does not come
    /// back as a primary.
    fn taken(
        config: &NodeConfig,
        ground: &Ground,
        end: Lsn,
        report: &impl Fn(Phase),
    ) -> Result<(Self, Lsn), StartError> {
        belongs::ask(config, ground)?;
        if mirror::is_one(config, ground)? {
            return Ok((Self::Mirror(config.join.clone()), Lsn::ZERO));
        }
        Ok((Self::of(config, ground, end)?, ground.bootstrap_from_checkpoint(config, end, report)?))
    }

    /// What follows from the configuration and from what the node remembers. `join` decides only
    /// where that says nothing else: a node that was promoted comes back as the primary, and one
    /// that was succeeded follows, however they were started at first.
    fn of(config: &NodeConfig, ground: &Ground, end: Lsn) -> Result<Self, StartError> {
        let state = ground.terms.get();
        let configured = || config.join.clone();
        if ground.store.is_none() || config.join.is_none() && config.force_primary {
            return Ok(Self::Lead(BTreeSet::new()));
        }
        if state.fence.holder().is_none() {
            return Self::of_new(config, ground);
        }
        let ask = |patience| ask_others(ground.id, &ground.credentials, &ground.terms, &ground.known(config), patience);
        if config.join.is_some() && config.asynchronous || !may_come_back(ground.id, &state.history, &state.fence) {
            return Ok(Self::Follow(configured().or_else(|| ask(belongs::PATIENCE).leads?.1)));
        }
        // What others hold of this node's own term outranks its disk, which may have been set
        // back: so all are asked, and waited for as long as commits would wait for them.
        let deadline = Instant::now() + Duration::from_millis(config.standby_timeout_ms);
        loop {
            let plan = |candidacy: &Candidacy| candidacy.plan(config.safety, false);
            let mut candidacy = alone(ground, end).comes_back(config.join.is_some());
            if !matches!(plan(&candidacy), Plan::Lead { .. }) {
                return Ok(Self::ComeBack);
            }
            let Others { leads, itself, answers, silent } = ask(PATIENCE);
            belongs::check(&ground.terms, ground.id)?;
            if let Some((Living { node, .. }, address)) = leads {
                return match itself {
                    _ if node == ground.id => Err(StartError::Twin { node, address: address.unwrap_or_default() }),
                    true => Ok(Self::Follow(address)),
                    false => Ok(Self::ComeBack),
                };
            }
            answers.into_iter().for_each(|(node, answer)| candidacy.observe(node, answer));
            match plan(&candidacy) {
                Plan::Lead { .. } if candidacy.may_be_succeeded(config.safety) => return Ok(Self::ComeBack),
                Plan::Lead { .. } if silent == 0 || Instant::now() >= deadline => {
                    return Ok(Self::Lead(candidacy.answered().collect()));
                }
                Plan::Lead { .. } => std::thread::sleep(ASK_EVERY),
                _ => return Ok(Self::ComeBack),
            }
        }
    }

    /// A node that has no log of any term, or was restored from a backup, with which a cluster
    /// begins. It cannot know whether its directory is new or was emptied, so it founds a cluster
    /// only when it is told to. Without a directory, it must not have peers.
    fn of_new(config: &NodeConfig, ground: &Ground) -> Result<Self, StartError> {
        let founds = || Ok(Self::Lead(BTreeSet::new()));
        if config.join.is_some() {
            return Ok(Self::Follow(config.join.clone()));
        }
        if ground.is_restored() || config.new_cluster {
            return founds();
        }
        let why = match &ground.directory {
            Some(_) if ground.joins() => format!("it was made to join cluster {}", ground.cluster),
            _ if !config.peers.is_empty() => "`peers` names other nodes".into(),
            Some(_) => "its directory may have been emptied".into(),
            None => return founds(),
        };
        Err(StartError::NotFounded { why })
    }
}
