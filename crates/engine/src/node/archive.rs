//! Backups and archives: a consistent checkpoint of a running cluster, and its log since then.
//!
//! Both are a directory like a node's, with one stream: what [`backup`] and [`Archive`] write is
//! what [`restore`] reads, and what a node can be started on to join the cluster.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use freshet_base::{ClusterId, Lsn, NodeId, Term};
use freshet_cluster::term::{Fence, TermState};
use freshet_log::{LogDirectory, LogStore};
use freshet_membership::Part;
pub use freshet_recovery::point_in_time::{Moment, PointInTimeError, RestoredTo};
use freshet_recovery::{Manifest, RestoreError, point_in_time::PointInTime};
use freshet_replication::{checkpoints::KnownLog, renewal::Renewal, status::OwnStatus, terms::TermStore};

use super::{
    adapters::{ControlTerms, term_state},
    checkpoint::CheckpointKind,
    config::{LogSettings, NodeConfig},
    ground::{Ground, random},
    join::fetch_checkpoint,
    membership::MembershipSettings,
    observer::Observer,
    start::StartError,
};

/// What a backup or archive is made of.
#[derive(Clone, Debug)]
pub struct ArchiveConfig {
    /// Where it is kept.
    pub directory: PathBuf,
    /// Of whose database: where other nodes reach a node, for an archive the primary.
    pub node: String,
    /// A file with a token of that node, if it is on another machine or another user's.
    pub token_file: Option<PathBuf>,
    /// For an archive: other nodes; one of them may be primary later.
    pub peers: Vec<String>,
    /// For an archive: size of the buffer that the log goes through, in bytes, a power of two; no
    /// smaller than the primary's.
    pub buffer_bytes: usize,
}

impl ArchiveConfig {
    fn node_config(&self) -> NodeConfig {
        NodeConfig {
            directory: self.directory.clone(),
            join: Some(self.node.clone()),
            peers: self.peers.clone(),
            member: MembershipSettings { token_file: self.token_file.clone(), ..MembershipSettings::default() },
            log: LogSettings { buffer_bytes: self.buffer_bytes, ..LogSettings::default() },
            ..NodeConfig::default()
        }
    }
}

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// The moment that it shows.
    pub at: Lsn,
    /// How many rows there are.
    pub rows: u64,
    /// How many bytes they take in its files.
    pub bytes: u64,
}

/// Has a node write a consistent checkpoint and fetches it. A directory may hold several backups of
/// one cluster, and the log between them. Blocks until all is durable.
///
/// # Errors
/// [`StartError`]; what has come does not count then.
pub fn backup(config: &ArchiveConfig) -> Result<BackedUp, StartError> {
    let settings = config.node_config();
    let ground = Ground::find(&settings, Part::Archive)?;
    backup_onto(&ground, &settings, config)
}

fn backup_onto(ground: &Ground, settings: &NodeConfig, config: &ArchiveConfig) -> Result<BackedUp, StartError> {
    let begun = |_: &Manifest, known: KnownLog| {
        // An archive's own history continues from an earlier backup.
        let unused = ground.store.as_ref().is_none_or(|store| store.extent().is_none());
        let adopted = if unused { ground.terms.adopt(ground.cluster, known.history) } else { Ok(()) };
        adopted.map_err(|cause| cause.to_string())
    };
    let (devices, kind) = (settings.checkpoint_devices(), CheckpointKind::Consistent);
    let fetched = fetch_checkpoint(&config.node, &ground.credentials, ground.cluster, kind, &devices, begun)?;
    let manifest = fetched.ok_or_else(|| StartError::System(format!("{} keeps nothing on disk", config.node)))?;
    let incarnation = ground.store.as_ref().and_then(LogStore::incarnation);
    manifest.install(&config.directory, incarnation).map_err(RestoreError::from)?;
    Ok(BackedUp { at: manifest.start(), rows: manifest.rows(), bytes: manifest.bytes() })
}

/// Keeps the log of a cluster from a backup on, for restores to any later moment. Commits do not
/// wait for it.
pub struct Archive {
    observer: Observer,
    _renewal: Renewal,
    /// Keeps other processes out.
    _ground: Ground,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Archive")
    }
}

impl Archive {
    /// Continues with the archive in a directory, or begins one with a backup.
    ///
    /// # Errors
    /// [`StartError`]. That the primary cannot be reached is none, but for the first backup: it is
    /// tried again and again.
    pub fn start(config: &ArchiveConfig) -> Result<Self, StartError> {
        let settings = config.node_config();
        let ground = Ground::find(&settings, Part::Archive)?;
        let store = ground.store.clone().expect("a node with a directory has a store");
        let from = match store.extent() {
            Some(_) => freshet_recovery::settle_tail(&store)?.end,
            None => match newest(&config.directory)? {
                Some(start) => start,
                None => backup_onto(&ground, &settings, config)?.at,
            },
        };
        let observer = Observer::start(&ground, &settings, &config.node, from)?;
        let renewal = ground.renewal(&settings)?;
        Ok(Self { observer, _renewal: renewal, _ground: ground })
    }

    /// As things stand.
    pub fn status(&self) -> OwnStatus {
        self.observer.status()
    }

    /// Blocks until the log is archived up to `to`.
    ///
    /// # Errors
    /// Why it never will be.
    pub fn wait(&self, to: Lsn) -> Result<(), String> {
        self.observer.wait_persisted(to, &|_| {})
    }

    /// Ends it; returns up to where the log is archived.
    ///
    /// # Errors
    /// What went wrong with the log, now or before.
    pub fn stop(self) -> Result<Lsn, String> {
        self.observer.stop()
    }
}

/// What to restore, and where.
#[derive(Clone, Debug)]
pub struct RestoreConfig {
    /// A backup or archive, or the directory of a node that is not running.
    pub backup: PathBuf,
    /// An archive with the log since then, if it is another directory.
    pub archive: Option<PathBuf>,
    /// The directories of the log's streams, if they are not below it.
    pub streams: Vec<PathBuf>,
    /// Where the new node will be.
    pub directory: PathBuf,
    /// To which moment.
    pub moment: Moment,
}

/// Restores to a directory that a node can be started on, the first of a new cluster. Blocks until
/// all is durable.
///
/// # Errors
/// See [`RestoreFailure`]; the sources stay as they were.
pub fn restore(config: &RestoreConfig) -> Result<RestoredTo, RestoreFailure> {
    let what = PointInTime {
        backup: config.backup.clone(),
        archive: config.archive.clone(),
        streams: config.streams.clone(),
        directory: config.directory.clone(),
        moment: config.moment,
        names: (ClusterId(random()?), NodeId(random()? as u64)),
    };
    Ok(what.restore()?)
}

/// The terms that a node has gone back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetTerms {
    /// The latest term that it had observed.
    pub before: Term,
    /// The last term in which it has any log.
    pub after: Term,
}

/// Has a node that is not running forget every term that is later than the last in its log: the way
/// back after a member has claimed a term that no node has reached. Do this on all nodes of a
/// cluster, while none of them runs: a node that keeps its promises refuses the others, and a
/// single node that forgets them may follow a primary that was succeeded. Changes nothing else.
///
/// # Errors
/// When the directory is not a node's, a node runs on it, or it cannot be written.
pub fn reset_terms(directory: &Path) -> Result<ResetTerms, StartError> {
    let directory = Arc::new(LogDirectory::open(directory)?);
    let state = term_state(&directory.control(), directory.path()).map_err(StartError::Config)?;
    let before = state.fence.highest();
    // A witness has no log, but has noted who wrote its newest set.
    let noted = state.set.as_ref().map(|set| (set.term, set.primary)).filter(|_| directory.control().witness);
    let last = state.history.entries().last().map(|last| (last.term, last.node)).max(noted);
    let after = last.map_or(Term(0), |(term, _)| term);
    let fence = Fence::new(after, last.map(|(_, node)| node));
    let saved = ControlTerms(directory).save(&TermState { fence, ..state });
    saved.map_err(|cause| StartError::System(cause.to_string()))?;
    Ok(ResetTerms { before, after })
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFailure {
    /// The sources, or the new directory.
    #[error(transparent)]
    PointInTime(#[from] PointInTimeError),
    /// The operating system.
    #[error(transparent)]
    System(#[from] StartError),
}

fn newest(directory: &Path) -> Result<Option<Lsn>, StartError> {
    Ok(Manifest::installed(directory).map_err(RestoreError::from)?.first().copied())
}
