//! From a configuration to a running node.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant},
};

use freshet_base::{Stamp, Term};
use freshet_cluster::{
    commit_rule::AbsurdRule,
    term::{Candidacy, LogState, Plan, TermHistory},
};
use freshet_fabric::tcp::ListenError;
use freshet_log::{
    ControlError, Log, LogOpenError, StandbyLog, StandbyRing, StoreError, block::MAX_STREAMS, persist::BufferError,
};
use freshet_recovery::{Manifest, Phase, Restart, RestoreError};
use freshet_replay::{Deleted, LogBytes, Replay, Target};
use freshet_replication::{
    checkpoints::FetchError,
    endpoint::{CallError, Endpoint},
    standby::{Standby, StandbyConfig, Starting},
    takeover::{PromoteError as TakeOverError, PromoteOptions},
    terms::BeginError,
};
use freshet_storage::{Catalog, Participants};
use freshet_txn::{Core, Snapshots};
use thiserror::Error;

use super::{
    Composition, Node, PromoteError, ReplayMode, Shipping,
    adapters::{LiveReplay, ReceivedLog},
    checkpoint::{self, Checkpointing},
    commands::{CommandExecutor, Executors},
    config::{Apply, NodeConfig},
    ground::{BufferInUse, Ground},
    janitor::{Janitor, JanitorThread},
    join::CheckpointDoor,
    reign::{Reign, Throne},
    standby::Following,
};
use crate::{Database, source::LogSource};

/// How long the primary may take to say which cluster it is of.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A primary that restarts asks the others this often.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How far the start of a node has come.
pub type StartPhase = Phase;

/// Why a node did not start. Nothing was lost by it.
#[derive(Debug, Error)]
pub enum StartError {
    /// Something in the configuration makes no sense.
    #[error("configuration: {0}")]
    Config(String),
    /// The safety level can never be reached.
    #[error("configuration: {0}")]
    Safety(#[from] AbsurdRule),
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
    #[error("cannot fetch a checkpoint to begin with: {0}")]
    Fetch(#[from] FetchError),
    /// The primary to join cannot be asked which cluster it is of.
    #[error("cannot join: {0}")]
    Join(#[from] CallError),
    /// The new term cannot begin.
    #[error("cannot reign: {0}")]
    Begin(#[from] BeginError),
    /// Others may have gone on without this node.
    #[error(
        "this node was the primary, and others may have gone on without it: {0}. Start the others with `join` and the address of this node, or name them in \
         its `peers`; if another node reigns, start this one with `join` and that node's address; `force-reign` reigns all the same, and may \
         lose acknowledged commits"
    )]
    Unheard(Box<super::PromoteError>),
    /// Another node reigns.
    #[error(
        "another node reigns since term {term}, and this one was primary before: start it with `join` and that node's \
         address, so that it becomes a standby"
    )]
    Superseded {
        /// The other's term.
        term: Term,
    },
    /// The operating system gave no thread, or the like.
    #[error("{0}")]
    System(String),
}

impl Node {
    /// Starts a node: restart from its log if there is one, then as a primary, or with `join` as a standby. `progress` hears how
    /// far that is. Returns when a primary can take transactions; a standby follows as soon as it reaches its primary.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: NodeConfig, progress: impl FnMut(Phase) + Send) -> Result<Arc<Self>, StartError> {
        Self::start_executing(config, None, progress)
    }

    /// As [`Node::start`]; a standby with [`Apply::Command`] executes transactions again by means of `executor`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_executing(
        config: NodeConfig,
        executor: Option<Arc<dyn CommandExecutor>>,
        mut progress: impl FnMut(Phase) + Send,
    ) -> Result<Arc<Self>, StartError> {
        config.log_config().check()?;
        config.persistence().map_err(StartError::Config)?;
        config.fabric.primary().and_then(|_| config.fabric.standby(config.domain)).map_err(StartError::Config)?;
        let streams = config.log.stream_count();
        if streams == 0 || streams > MAX_STREAMS {
            return Err(StartError::Config(format!("a log has 1 to {MAX_STREAMS} streams, not {streams}")));
        }
        config.rule()?;
        let ground = Ground::find(&config)?;
        let progress = Mutex::new(&mut progress);
        let tell = |phase| (progress.lock().unwrap_or_else(PoisonError::into_inner))(phase);
        tell(Phase::Tail);
        let (end, torn) = match &ground.store {
            Some(store) => ground.settle(&config, store)?,
            None => (Stamp::ZERO, None),
        };
        let participants = Participants::new(config.participants());
        let (standby, asks) = (config.join.is_some(), has_to_ask(&config, &ground, end));
        let end = ground.begin_from_checkpoint(&config, end)?;
        let mut restored = None;
        if let Some(store) = &ground.store {
            let restart = Restart {
                store,
                end,
                directory: ground.directory.as_ref().map(|directory| directory.path()),
                devices: &config.checkpoint_devices(),
                threads: config.replay_threads,
                participants: &participants,
                target: if standby || asks { Target::Announce } else { Target::Restore },
            };
            restored = Some(restart.run(&tell)?);
        }
        let source = Arc::new(LogSource::default());
        let endpoint = Endpoint::open(ground.id, &config.listen)?;
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
        let parts = Parts { config, ground, catalog, participants, source, endpoint, address, end, torn, checkpoint };
        let mut node = match (standby, asks) {
            (true, _) => parts.follow(deleted, executor)?,
            (false, true) => parts.come_back(deleted, &tell)?,
            (false, false) => parts.reign()?,
        };
        (node.restart, node.passed_over) = (restart, passed_over);
        tell(Phase::Ready);
        Ok(Arc::new(node))
    }
}

/// What both compositions are made of.
struct Parts {
    config: NodeConfig,
    ground: Ground,
    catalog: Arc<Catalog>,
    participants: Arc<Participants>,
    source: Arc<LogSource>,
    endpoint: Endpoint,
    address: String,
    end: Stamp,
    torn: Option<freshet_log::Torn>,
    checkpoint: Option<Manifest>,
}

impl Parts {
    fn reign(self) -> Result<Node, StartError> {
        let Self { config, ground, catalog, participants, source, endpoint, address, end, torn, checkpoint } = self;
        let state = ground.terms.get();
        let term = Term(state.fence.highest().max(state.history.last_term()).0 + 1);
        let succession = alone(&ground, end).succession(config.force_reign);
        ground.terms.begin(term, ground.id, end, end)?;
        let log = match (config.persistence().map_err(StartError::Config)?, ground.store.clone()) {
            (Some(persistence), Some(store)) => {
                let log = Log::open_persistent(config.log_config(), &persistence, store, end, term)?;
                if let Some(directory) = &ground.directory {
                    BufferInUse::write(directory.path(), &persistence.path)?;
                }
                log
            }
            (_, store) => Log::open(config.log_config(), store, end, term)?,
        };
        source.open(log.reader());
        let visible = Arc::new(freshet_base::Watermark::new(end));
        let core = Core::new(participants, catalog, Snapshots::standby(visible), Arc::clone(&source) as _);
        let throne = Throne {
            config: &config,
            node: ground.id,
            cluster: ground.cluster,
            address: &address,
            terms: &ground.terms,
            endpoint: &endpoint,
            core: &core,
            source: &source,
            peers: config.peers.clone(),
            // How far the others are is not noted anywhere.
            committed: Stamp::ZERO,
            succession,
        };
        let janitor = JanitorThread::start(Arc::default(), &core, None).map_err(StartError::System)?;
        let reign = Reign::begin(&throne, log, term, end, janitor).map_err(StartError::System)?;
        let shipping = Arc::new(Mutex::new(Some(Arc::clone(&reign.shipping))));
        let composition = Composition::Primary(reign);
        let replay = None;
        Whole { config, ground, core, source, endpoint, address, torn, replay, composition, checkpoint, shipping }
            .node()
    }

    /// Reigns as soon as enough others are heard: until then it is a standby that follows nobody.
    fn come_back(mut self, deleted: Vec<Deleted>, tell: &impl Fn(Phase)) -> Result<Node, StartError> {
        // What a standby's configuration may say beside is not meant for this.
        self.config =
            NodeConfig { apply: Apply::Fresh, replay: ReplayMode::Pipelined, asynchronous: false, ..self.config };
        let deadline = Instant::now() + Duration::from_secs(self.config.restart_timeout_s);
        let mut options = PromoteOptions {
            safety: Some(self.config.safety),
            standbys: Some(self.config.standbys),
            restart: true,
            ..PromoteOptions::default()
        };
        let node = self.follow(deleted, None)?;
        let Some(threshold) = node.stand_on_threshold() else {
            return Err(StartError::System("a node that has just started does not follow".into()));
        };
        loop {
            options.known = threshold.knocked();
            let why = match node.take_over(&options) {
                Ok(_) => return Ok(node),
                Err(why) => why,
            };
            let again = match &why {
                PromoteError::TakeOver(cause) => match &**cause {
                    TakeOverError::TooFew { heard, needed, .. } | TakeOverError::SetUncertain { heard, needed, .. } => {
                        tell(Phase::Peers { heard: *heard, needed: *needed });
                        true
                    }
                    TakeOverError::Contested(_) | TakeOverError::Fetch { .. } => true,
                    _ => false,
                },
                PromoteError::NotStandby | PromoteError::Reign(_) => false,
            };
            let fence = node.terms.get().fence;
            let superseded =
                threshold.reigns().filter(|(term, other)| (fence.highest(), fence.holder()) == (*term, Some(*other)));
            if superseded.is_some() || !again || Instant::now() >= deadline {
                // That it has failed is said already.
                let _ = node.stop();
                return Err(match superseded {
                    Some((term, _)) => StartError::Superseded { term },
                    None => StartError::Unheard(Box::new(why)),
                });
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    fn follow(self, deleted: Vec<Deleted>, executor: Option<Arc<dyn CommandExecutor>>) -> Result<Node, StartError> {
        let Self { config, ground, catalog, participants, source, endpoint, address, end, torn, checkpoint } = self;
        let store = ground.store.clone().expect("a standby has a store");
        // Reigns that the log never reached are none of its history.
        let state = ground.terms.get();
        if state.history != TermHistory::default() {
            let adopted = ground.terms.adopt(ground.cluster, state.history.cut(end));
            adopted.map_err(|cause| StartError::System(cause.to_string()))?;
        }
        let ring = config.standby_ring().map_err(StartError::Config)?;
        let (log, receiver) = StandbyLog::open_on(&ring, config.log.buffer_bytes, store, end)?;
        if let (StandbyRing::Persistent { persistence, .. }, Some(directory)) = (&ring, &ground.directory) {
            // Before anything is received.
            BufferInUse::write(directory.path(), &persistence.path)?;
        }
        source.open(log.reader());
        let bytes: Arc<dyn LogBytes> = Arc::clone(&source) as _;
        // Without the log up to there, the checkpoint is no state of the database.
        let floor = checkpoint.as_ref().map_or(Stamp::ZERO, Manifest::end);
        let apply = match config.apply {
            Apply::Fresh => freshet_replay::Apply::Fresh,
            Apply::Full => freshet_replay::Apply::Full,
            Apply::Command => freshet_replay::Apply::Command,
        };
        let replay = Arc::new(Replay::new(config.replay_threads, &catalog, &participants, &bytes, floor, apply));
        let janitor = Arc::new(Janitor::new(deleted));
        let late_core = Arc::new(OnceLock::new());
        let executors = match (config.apply, executor) {
            (Apply::Command, Some(executor)) => {
                let started = Executors::start(config.replay_threads, &executor, &late_core, replay.meter());
                Some(started.map_err(StartError::System)?)
            }
            (Apply::Command, None) => {
                return Err(StartError::Config("apply = \"command\": there is nobody to execute commands".into()));
            }
            _ => None,
        };
        let executes = executors.is_some();
        let target = LiveReplay {
            replay: Arc::clone(&replay),
            janitor: Arc::clone(&janitor),
            end: AtomicU64::new(end.0),
            executors,
        };
        let directory = ground.directory.as_ref().map(|directory| directory.path().to_owned());
        let log = Arc::new(ReceivedLog::new(log, receiver, directory, config.log.buffer_bytes, floor));
        let starting = Starting {
            node: ground.id,
            address: address.clone(),
            leader: config.join.clone(),
            replayed: end,
            // Not known before the primary has said it: then readers see what is here.
            global: Stamp::ZERO,
            floor,
        };
        let standby_config = StandbyConfig {
            replay: config.replay,
            peers: config.peers.clone(),
            fabric: config.fabric.standby(config.domain).map_err(StartError::Config)?,
            synchronous: !config.asynchronous,
            relay: config.relay().map_err(StartError::Config)?,
            ..StandbyConfig::default()
        };
        let standby =
            Standby::start(starting, standby_config, Arc::clone(&log) as _, Arc::new(target), ground.terms.clone())
                .map_err(|cause| StartError::System(format!("cannot start the standby's threads: {cause}")))?;
        let visible = Arc::clone(standby.visible());
        source.limit_to(Arc::clone(&visible));
        replay.set_view(&visible);
        if executes {
            // Whoever executes makes versions beyond the read view; they are not taken back anyway.
            source.unlimited();
        }
        let core = Core::new(participants, catalog, Snapshots::standby(visible), Arc::clone(&source) as _);
        let _ = late_core.set(Arc::clone(&core));
        let participant = core.participants.join().map_err(|cause| StartError::System(cause.to_string()))?;
        core.catalog.consult_replay(&participant.pin_without_snapshot());
        drop(participant);
        let janitor = JanitorThread::start(janitor, &core, Some(&replay)).map_err(StartError::System)?;
        endpoint.set_service(Some(standby.service()));
        let composition = Composition::Standby(Following { standby, log, janitor });
        let replay = Some(replay);
        let shipping = Arc::default();
        Whole { config, ground, core, source, endpoint, address, torn, replay, composition, checkpoint, shipping }
            .node()
    }
}

/// What a node of either kind is in the end.
struct Whole {
    config: NodeConfig,
    ground: Ground,
    core: Arc<Core>,
    source: Arc<LogSource>,
    endpoint: Endpoint,
    address: String,
    torn: Option<freshet_log::Torn>,
    replay: Option<Arc<Replay>>,
    composition: Composition,
    checkpoint: Option<Manifest>,
    shipping: Shipping,
}

impl Whole {
    fn node(self) -> Result<Node, StartError> {
        let Self { config, ground, core, source, endpoint, address, torn, replay, composition, checkpoint, shipping } =
            self;
        let mut checkpointing = None;
        let relayed: Option<Relayed> = match &composition {
            Composition::Standby(following) => Some(Box::new(following.standby.needed())),
            _ => None,
        };
        let (self_cluster, terms) = (ground.cluster, ground.terms.clone());
        if let (Some(directory), Some(store)) = (&ground.directory, &ground.store) {
            let ground = checkpoint::Ground {
                settings: config.checkpoint.clone(),
                directory: directory.path().to_owned(),
                devices: config.checkpoint_devices(),
                cluster: ground.cluster,
                core: Arc::clone(&core),
                store: store.clone(),
                unneeded: Box::new(unneeded(Arc::clone(&shipping), relayed)),
            };
            let started = Checkpointing::start(ground, checkpoint.as_ref()).map_err(StartError::System)?;
            let door =
                CheckpointDoor { checkpointing: Arc::clone(&started), cluster: self_cluster, terms: terms.clone() };
            endpoint.set_checkpoints(Some(Arc::new(door)));
            checkpointing = Some(started);
        }
        Ok(Node {
            id: ground.id,
            cluster: ground.cluster,
            terms: ground.terms,
            _directory: ground.directory,
            config,
            address,
            database: Database { core },
            source,
            replay,
            endpoint,
            composition: Mutex::new(composition),
            torn,
            passed_over: None,
            checkpointing,
            shipping,
            restart: Default::default(),
            started: Instant::now(),
        })
    }
}

/// How far those who follow a relay have got the log.
type Relayed = Box<dyn Fn() -> Stamp + Send + Sync>;

/// How far the connected standbys and observers of a primary, or a relay, have got the log; nobody else needs any.
fn unneeded(shipping: Shipping, relayed: Option<Relayed>) -> impl Fn() -> Stamp {
    move || {
        let shipping = shipping.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(status) = shipping.map(|shipping| shipping.status()) else {
            return relayed.as_ref().map_or(Stamp::MAX, |needed| needed());
        };
        let standbys = status.standbys.iter().filter(|standby| standby.connected);
        let standbys = standbys.map(|standby| standby.acked.min(standby.shipped));
        let observers = status.observers.iter().map(|observer| observer.acked.min(observer.shipped));
        standbys.chain(observers).min().unwrap_or(Stamp::MAX)
    }
}

/// A primary that starts, before it has asked anybody.
fn alone(ground: &Ground, end: Stamp) -> Candidacy {
    let state = ground.terms.get();
    let log = LogState { history: state.history, end, set: state.set, synchronous: true };
    Candidacy::new(ground.id, log, &state.fence).reigned(state.reigned)
}

/// Whether others may have gone on without this node, which comes back as a primary. They cannot have before it has ever reigned or
/// followed: then it is new, or restored from a backup, with which a cluster begins.
fn has_to_ask(config: &NodeConfig, ground: &Ground, end: Stamp) -> bool {
    config.join.is_none()
        && !config.force_reign
        && ground.store.is_some()
        && ground.terms.get().fence.holder().is_some()
        && !matches!(alone(ground, end).plan(config.safety, config.standbys + 1, false), Plan::Reign { .. })
}
