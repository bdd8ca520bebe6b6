//! From a configuration to a running node.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant},
};

use freshet_base::{ClusterId, NodeId, Stamp, Term};
use freshet_cluster::{commit_rule::AbsurdRule, term::TermHistory};
use freshet_fabric::tcp::ListenError;
use freshet_log::{
    Control, ControlError, Log, LogDirectory, LogOpenError, LogStore, StandbyLog, StoreConfig, StoreError,
    block::MAX_STREAMS,
    persist::{BufferError, recover_buffer},
};
use freshet_recovery::{Manifest, Phase, Restart, RestoreError};
use freshet_replay::{Deleted, LogBytes, Replay, Target};
use freshet_replication::{
    checkpoints::FetchError,
    endpoint::{CallError, Endpoint, call},
    standby::{ReplayMode, Standby, StandbyConfig, Starting},
    terms::{BeginError, TermState, Terms, VolatileTerms},
    wire::{Hello, Purpose, Reply},
};
use freshet_storage::{Catalog, Participants};
use freshet_txn::{Core, Snapshots};
use thiserror::Error;

use super::{
    Composition, Node, Shipping,
    adapters::{ControlTerms, LiveReplay, ReceivedLog, term_state},
    checkpoint::{self, Checkpointing},
    config::{Domain, NodeConfig},
    janitor::Janitor,
    join::{CheckpointDoor, fetch_checkpoint},
    reign::{Reign, Throne},
    standby::{Following, JanitorThread},
};
use crate::{Database, source::LogSource};

/// How long the primary may take to say which cluster it is of.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// What lies on disk, or nothing.
struct Ground {
    directory: Option<Arc<LogDirectory>>,
    store: Option<LogStore>,
    id: NodeId,
    cluster: ClusterId,
    terms: Terms,
}

impl Node {
    /// Starts a node: restart from its log if there is one, then as a primary, or with `join` as a standby. `progress` hears how
    /// far that is. Returns when a primary can take transactions; a standby follows as soon as it reaches its primary.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: NodeConfig, mut progress: impl FnMut(Phase) + Send) -> Result<Arc<Self>, StartError> {
        config.log_config().check()?;
        config.persistence().map_err(StartError::Config)?;
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
            Some(store) => {
                let tail = freshet_recovery::settle_tail(store)?;
                (ground.recover_buffer(&config, store, tail.end)?, tail.cut)
            }
            None => (Stamp::ZERO, None),
        };
        let participants = Participants::new(config.participants());
        let standby = config.join.is_some();
        let end = ground.begin_from_checkpoint(&config, end)?.unwrap_or(end);
        let mut restored = None;
        if let Some(store) = &ground.store {
            let restart = Restart {
                store,
                end,
                directory: ground.directory.as_ref().map(|directory| directory.path()),
                devices: &config.checkpoint_devices(),
                threads: config.replay_threads,
                participants: &participants,
                target: if standby { Target::Announce } else { Target::Restore },
            };
            restored = Some(restart.run(&tell)?);
        }
        let source = Arc::new(LogSource::default());
        let endpoint = Endpoint::open(ground.id, &config.listen)?;
        let address = config.advertise.clone().unwrap_or_else(|| endpoint.address().to_string());
        let restart = restored.as_ref().map(|restored| restored.phases).unwrap_or_default();
        let (catalog, deleted, checkpoint) = match restored {
            Some(restored) => (restored.catalog, restored.deleted, restored.checkpoint),
            None => (Arc::new(Catalog::new()), Vec::new(), None),
        };
        let parts = Parts { config, ground, catalog, participants, source, endpoint, address, end, torn, checkpoint };
        let mut node = if standby { parts.follow(deleted)? } else { parts.reign()? };
        node.restart = restart;
        tell(Phase::Ready);
        Ok(Arc::new(node))
    }
}

fn random() -> Result<u128, StartError> {
    let mut bytes = [0; 16];
    let failed = |cause: std::io::Error| StartError::System(format!("cannot read /dev/urandom: {cause}"));
    let mut urandom = std::fs::File::open("/dev/urandom").map_err(failed)?;
    std::io::Read::read_exact(&mut urandom, &mut bytes).map_err(failed)?;
    Ok(u128::from_le_bytes(bytes))
}

impl Ground {
    fn find(config: &NodeConfig) -> Result<Self, StartError> {
        let path = match (&config.directory, config.domain) {
            (Some(path), Domain::File | Domain::Pmem) => path,
            (None, domain @ (Domain::File | Domain::Pmem)) => {
                return Err(StartError::Config(format!("domain {domain} needs a directory")));
            }
            (_, Domain::None) => return Self::in_memory(config),
        };
        match LogDirectory::open(path) {
            Ok(directory) => Self::existing(directory, config),
            Err(ControlError::NoLog(_)) => {
                let (id, cluster) = Self::names(config)?;
                let heard = (Term(0), None);
                let control = Control {
                    cluster,
                    node: id,
                    segment_size: config.log.segment_bytes,
                    streams: config.log.stream_count(),
                    terms: Vec::new(),
                    heard,
                };
                Self::existing(LogDirectory::create(path, control)?, config)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn existing(directory: LogDirectory, config: &NodeConfig) -> Result<Self, StartError> {
        let control = directory.control();
        let state = term_state(&control).map_err(StartError::Config)?;
        let highest = state.fence.highest();
        if config.join.is_none() && highest > control.term() && state.fence.holder() != Some(control.node) {
            return Err(StartError::Superseded { term: highest });
        }
        let store = directory.open_store(&config.log.dir)?;
        let directory = Arc::new(directory);
        let terms = Terms::new(state, Arc::new(ControlTerms(Arc::clone(&directory))));
        let (id, cluster) = (control.node, control.cluster);
        Ok(Self { directory: Some(directory), store: Some(store), id, cluster, terms })
    }

    fn in_memory(config: &NodeConfig) -> Result<Self, StartError> {
        let (id, cluster) = Self::names(config)?;
        let store_config = StoreConfig { cluster, segment_size: config.log.segment_bytes };
        // A standby's log is its database; a primary's is only on its way.
        let store = config.join.as_ref().map(|_| LogStore::in_memory(store_config));
        let state = TermState { cluster: Some(cluster), ..TermState::empty() };
        let terms = Terms::new(state, Arc::new(VolatileTerms));
        Ok(Self { directory: None, store, id, cluster, terms })
    }

    /// What a buffer in persistent memory holds beyond the segments is put there, whatever the domain is now. Returns where
    /// the log ends then.
    fn recover_buffer(&self, config: &NodeConfig, store: &LogStore, end: Stamp) -> Result<Stamp, StartError> {
        let (Some(file), Some(_)) = (config.buffer_file(), &self.directory) else { return Ok(end) };
        let end = recover_buffer(&file, store, end)?;
        if (config.domain != Domain::Pmem || config.join.is_some()) && file.exists() {
            // It would be taken for the log's end once more.
            let removed = std::fs::remove_file(&file);
            removed.map_err(|cause| StartError::System(format!("cannot remove {}: {cause}", file.display())))?;
        }
        Ok(end)
    }

    /// Of a node that joins without any log (it ends at `end`): fetches its primary's checkpoint, if there is one and it
    /// was not fetched before. Returns where the log will begin.
    fn begin_from_checkpoint(&self, config: &NodeConfig, end: Stamp) -> Result<Option<Stamp>, StartError> {
        let (Some(primary), Some(directory), Some(store)) = (&config.join, &self.directory, &self.store) else {
            return Ok(None);
        };
        // Of several streams some may have been made, and no more, before a crash.
        if store.extent().is_some() && (store.streams() == 1 || end > Stamp::ZERO) {
            return Ok(None);
        }
        let path = directory.path();
        let installed = Manifest::installed(path).map_err(RestoreError::from)?;
        if let Some(start) = installed.first() {
            return Ok(Some(*start));
        }
        let adopt = |history| self.terms.adopt(self.cluster, history).map_err(|cause| cause.to_string());
        let devices = config.checkpoint_devices();
        Ok(fetch_checkpoint(primary, self.id, self.cluster, (path, &devices), adopt)?)
    }

    /// A new node's own name, and that of its cluster: a new one, or its primary's.
    fn names(config: &NodeConfig) -> Result<(NodeId, ClusterId), StartError> {
        let id = NodeId(random()? as u64);
        let Some(primary) = &config.join else { return Ok((id, ClusterId(random()?))) };
        let hello = Hello { cluster: None, node: id, address: config.listen.clone(), purpose: Purpose::Identify };
        match call(primary, &hello, Term(0), PATIENCE)? {
            (Reply::Cluster(cluster), _) => Ok((id, cluster)),
            _ => Err(CallError::Unexpected { address: primary.clone() }.into()),
        }
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
        ground.terms.begin(term, ground.id, end, end)?;
        let log = match (config.persistence().map_err(StartError::Config)?, ground.store.clone()) {
            (Some(persistence), Some(store)) => {
                Log::open_persistent(config.log_config(), &persistence, store, end, term)?
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
        };
        let reign = Reign::begin(&throne, log, term, end).map_err(StartError::System)?;
        let shipping = Arc::new(Mutex::new(Some(Arc::clone(&reign.shipping))));
        let composition = Composition::Primary(reign);
        let replay = None;
        Whole { config, ground, core, source, endpoint, address, torn, replay, composition, checkpoint, shipping }
            .node()
    }

    fn follow(self, deleted: Vec<Deleted>) -> Result<Node, StartError> {
        let Self { config, ground, catalog, participants, source, endpoint, address, end, torn, checkpoint } = self;
        let store = ground.store.clone().expect("a standby has a store");
        // Reigns that the log never reached are none of its history.
        let state = ground.terms.get();
        if state.history != TermHistory::default() {
            let adopted = ground.terms.adopt(ground.cluster, state.history.cut(end));
            adopted.map_err(|cause| StartError::System(cause.to_string()))?;
        }
        let (log, receiver) = StandbyLog::open(config.log.buffer_bytes, store, end)?;
        source.open(log.reader());
        let bytes: Arc<dyn LogBytes> = Arc::clone(&source) as _;
        // Without the log up to there, the checkpoint is no state of the database.
        let floor = checkpoint.as_ref().map_or(Stamp::ZERO, Manifest::end);
        let replay = Arc::new(Replay::new(config.replay_threads, &catalog, &participants, &bytes, floor));
        let janitor = Arc::new(Janitor::new(deleted));
        let target =
            LiveReplay { replay: Arc::clone(&replay), janitor: Arc::clone(&janitor), end: AtomicU64::new(end.0) };
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
            replay: if config.synchronous_replay { ReplayMode::Synchronous } else { ReplayMode::Pipelined },
            peers: config.peers.clone(),
            ..StandbyConfig::default()
        };
        let standby =
            Standby::start(starting, standby_config, Arc::clone(&log) as _, Arc::new(target), ground.terms.clone())
                .map_err(|cause| StartError::System(format!("cannot start the standby's threads: {cause}")))?;
        let visible = Arc::clone(standby.visible());
        source.limit_to(Arc::clone(&visible));
        let core = Core::new(participants, catalog, Snapshots::standby(visible), Arc::clone(&source) as _);
        core.catalog.consult_replay();
        let janitor = JanitorThread::start(janitor, &core, &replay).map_err(StartError::System)?;
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
        let (self_cluster, terms) = (ground.cluster, ground.terms.clone());
        if let (Some(directory), Some(store)) = (&ground.directory, &ground.store) {
            let ground = checkpoint::Ground {
                settings: config.checkpoint.clone(),
                directory: directory.path().to_owned(),
                devices: config.checkpoint_devices(),
                cluster: ground.cluster,
                core: Arc::clone(&core),
                store: store.clone(),
                unneeded: Box::new(unneeded(Arc::clone(&shipping))),
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
            checkpointing,
            shipping,
            restart: Default::default(),
            started: Instant::now(),
        })
    }
}

/// How far a primary's connected standbys have got the log; nobody else needs any.
fn unneeded(shipping: Shipping) -> impl Fn() -> Stamp {
    move || {
        let shipping = shipping.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let standbys = shipping.map(|shipping| shipping.status().standbys).unwrap_or_default();
        let connected = standbys.iter().filter(|standby| standby.connected);
        connected.map(|standby| standby.acked.min(standby.shipped)).min().unwrap_or(Stamp::MAX)
    }
}
