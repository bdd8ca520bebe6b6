//! The composition of a mirror: memory that the primary writes (Active-Memory, section 4), and a
//! thread that keeps the connection. No log, no replay, no readers.
//!
//! What a mirror has promised, and its terms, lies in its directory. The memory outlives the
//! process only in files (`mirror.keep-dir`), and the machine's next start only where these are in
//! persistent memory, in domain `pmem`: else a mirror that starts is empty, whatever it was
//! before. It begins from a checkpoint of the node that it follows, if there is one (`seed.rs`).
//!
//! A mirror that takes over makes versions of its rows, and indexes, as a restart does of a
//! checkpoint (`restoring.rs`). Its log begins where its memory ends, or with what it has fetched
//! when it took over. There is nothing below, so a commit would be lost with the process: the node
//! leads when what was in the mirror is in a checkpoint, which is written in the same pass. If
//! that fails it tries again; until then it is read as a standby is.

use std::{
    path::Path,
    sync::{Arc, PoisonError},
    thread,
    time::{Duration, Instant},
};

use freshet_base::{Lsn, Regularly, Watermark};
use freshet_log::{Log, LogStore, ReceiveConfig};
use freshet_mirror::Contents;
use freshet_recovery::{CheckpointError, Manifest, Phase, RestoreError};
use freshet_replication::{
    mirror::{FetchedLog, Mirror, MirrorConfig},
    promotion::Promoted,
};
use freshet_storage::{Catalog, Participants};
use freshet_txn::{Core, Snapshots};

use super::{
    CheckpointKind, Composition, Node,
    checkpoint::Checkpointing,
    config::NodeConfig,
    fuzzy_snapshot::MirrorDoor,
    garbage_collector::GarbageCollectorThread,
    ground::Ground,
    join::TAKING_OVER,
    lead::Lead,
    rehearsal,
    restoring::{Restored, Writing, restore},
    seed::SeedsMirrors,
    start::{Parts, StartError, begin_checkpoints},
};
use crate::{Database, StateHash, source::VersionSource};

/// A mirror's parts.
pub(super) struct Mirrored {
    pub mirror: Mirror,
    rehearsing: Option<Regularly>,
    /// What its log is to lie on when it takes over.
    ground: Ground,
    /// What its readers see: nothing before it takes over.
    visible: Arc<Watermark>,
}

/// How often a node tries to write its first checkpoint.
const TRY_EVERY: Duration = Duration::from_secs(5);

/// How often a rehearsal looks whether the memory is there, and whole, and a node whether it stops.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Whether a node that is configured so is a mirror: one that has a database of its own, because it
/// was another kind of node before, is not. If it ended while it took over, nothing of its log
/// counts: that goes.
pub(super) fn is_one(config: &NodeConfig, ground: &Ground) -> Result<bool, StartError> {
    let (true, Some(store), Some(directory)) = (config.mirror.is_wanted(), &ground.store, &ground.directory) else {
        return Ok(false);
    };
    let path = directory.path();
    let has_checkpoint = !Manifest::installed(path).map_err(RestoreError::from)?.is_empty();
    if TAKING_OVER.read(path)?.is_some() {
        if !has_checkpoint {
            tracing::warn!("this mirror ended while it took over: its log and its checkpoint, which are not whole, go");
            directory.clear_log(store)?;
            Manifest::remove_others(path, &config.checkpoint_devices(), &[]).map_err(RestoreError::from)?;
        }
        TAKING_OVER.remove(path)?;
    }
    let is_empty = !has_checkpoint && store.extent().is_none();
    if !is_empty {
        tracing::warn!(
            directory = %config.directory.display(),
            "this node has a log, or a checkpoint, and so it is no mirror before its directory is empty"
        );
    }
    Ok(is_empty)
}

impl Parts {
    /// Is a mirror of the node at `upstream`, or waits for a node that makes itself known.
    pub fn mirror(self, upstream: Option<String>) -> Result<Node, StartError> {
        let system = |cause: &dyn std::fmt::Display| StartError::System(cause.to_string());
        let Self { config, ground, .. } = &self;
        let who = ground.follower(self.address.clone(), upstream);
        let settings = MirrorConfig {
            follow: ground.follows(config)?,
            fetched: config.log.buffer_bytes as u64 / 2,
            aside: ground.directory.as_ref().map(|directory| directory.path().join("mirror-aside")),
            ..config.mirror.config(&config.log, ground.id, config.persistence(ground.id)?.map(|log| log.method))
        };
        let checkpoints = Arc::new(SeedsMirrors { cluster: ground.cluster });
        let mirror = Mirror::start(who, settings, ground.terms.clone(), checkpoints).map_err(|cause| system(&cause))?;
        self.endpoint.set_service(Some(mirror.service()));
        let door = MirrorDoor { fuzzy_snapshots: mirror.fuzzy_snapshots(), cluster: ground.cluster };
        self.endpoint.set_checkpoints(Some(Arc::new(door)));
        let visible = Arc::new(Watermark::new(Lsn::ZERO));
        let every = Duration::from_secs(config.mirror.rehearse_s);
        let rehearsing = rehearsal::start(mirror.fuzzy_snapshots(), every).map_err(|cause| system(&cause))?;
        let mirrored = Mirrored { mirror, rehearsing, ground: ground.clone(), visible: Arc::clone(&visible) };
        let core = self.core(visible, Arc::default());
        self.node(core, None, Composition::Mirror(mirrored))
    }
}

impl Mirrored {
    /// Makes the memory a database, opens a log behind it, and leads.
    pub fn into_lead(self, node: &Node, promoted: &Promoted) -> Result<Lead, String> {
        let Self { mirror, rehearsing, ground, visible } = self;
        drop(rehearsing);
        let (core, threads) = (node.database.core(), node.config.replay_threads);
        let memory = Contents::open(mirror.memory(), promoted.start).map_err(|cause| cause.to_string())?;
        let path = ground.directory.as_ref().map(|directory| directory.path());
        path.map_or(Ok(()), |path| TAKING_OVER.write(path, promoted.start))?;
        let writing = path.map(|_| Writing {
            cluster: ground.cluster,
            start: promoted.start,
            devices: node.config.checkpoint_devices(),
            files: node.config.checkpoint.files,
            sync_bytes: node.config.checkpoint.sync_bytes,
        });
        let report = |phase| *node.phase.lock().unwrap_or_else(PoisonError::into_inner) = Some(phase);
        let restored = restore(core, &memory, threads, writing.as_ref(), &report)?;
        let Restored { records, entries, rows, indexes, checkpoint } = restored;
        let (rows_ms, indexes_ms) = (rows.as_millis() as u64, indexes.as_millis() as u64);
        tracing::info!(records, rows_ms, entries, indexes_ms, "what was in a mirror is in tables and indexes");
        let bytes = memory.bytes();
        *node.restart.lock().unwrap_or_else(PoisonError::into_inner) =
            [(rows, bytes), Default::default(), (indexes, entries)];
        drop(memory);
        let FetchedLog { from, blocks } = mirror.fetched(promoted.start);
        mirror.stop();
        node.endpoint.set_checkpoints(None);
        // The rows are copied. Nobody waits until the system has the memory back.
        let rows = mirror.take_rows();
        let freed = thread::Builder::new().name("mirror-free".into()).spawn(move || drop(rows));
        freed.map_err(|cause| format!("cannot start a thread: {cause}"))?;
        drop(mirror);
        let receiving = ReceiveConfig { upon_replay: false, ..node.config.receive_config() };
        let open = |persistence| Log::receive_with(&receiving, persistence, from);
        let (log, mut receiver) = ground.open_log(&node.config, open).map_err(|cause| cause.to_string())?;
        if from < promoted.start {
            receiver.append(&blocks).map_err(|cause| cause.to_string())?;
            log.wait_persisted(promoted.start, None).map_err(|cause| cause.to_string())?;
        }
        log.promote(receiver, node.config.log_config(), promoted.term).map_err(|cause| cause.to_string())?;
        let log = Arc::new(log);
        node.source.open(log.reader());
        visible.advance(promoted.start);
        let incarnation = ground.store.as_ref().and_then(LogStore::incarnation);
        let newest = path.zip(writing).zip(checkpoint);
        let newest = newest.and_then(|((path, writing), written)| install(path, incarnation, &writing, written));
        let parts = (core, &log, None, &node.proof);
        let begun = begin_checkpoints(&node.config, &ground, &node.endpoint, parts, newest.as_ref());
        if let Some(checkpointing) = begun.map_err(|cause| cause.to_string())? {
            let checkpointing = node.checkpointing.get_or_init(|| checkpointing);
            if newest.is_none() {
                report(Phase::FirstCheckpoint);
                insist(checkpointing)?;
            }
        }
        path.map_or(Ok(()), |path| TAKING_OVER.remove(path)).map_err(|cause| cause.to_string())?;
        let garbage_collector = GarbageCollectorThread::start(Arc::default(), core, None)?;
        Lead::begin(&node.promoted(promoted), log, promoted.term, promoted.start, garbage_collector)
    }
}

/// The checkpoint that was written in passing counts from now on. None if that fails.
fn install(
    directory: &Path,
    incarnation: Option<u64>,
    writing: &Writing,
    written: Result<Manifest, CheckpointError>,
) -> Option<Manifest> {
    let installed = written.and_then(|manifest| manifest.install(directory, incarnation).map(|()| manifest));
    if let Err(cause) = &installed {
        tracing::warn!(%cause, "a mirror that takes over has no checkpoint yet");
        if let Err(cause) = Manifest::remove_others(directory, &writing.devices, &[]) {
            tracing::warn!(%cause, "what was written of a checkpoint stays");
        }
    }
    installed.ok()
}

/// Writes a checkpoint. The memory is all that there is: it is kept until there is room for one.
/// Writers wait for it.
fn insist(checkpointing: &Checkpointing) -> Result<(), String> {
    checkpointing.hurry(true);
    let mut warned = String::new();
    while let Err(cause) = checkpointing.now(CheckpointKind::Fuzzy) {
        if checkpointing.stops() {
            return Err(cause);
        }
        if warned != cause {
            tracing::warn!(cause, "a mirror that takes over cannot write its checkpoint, and tries again");
            warned = cause;
        }
        let again = Instant::now() + TRY_EVERY;
        while Instant::now() < again && !checkpointing.stops() {
            thread::sleep(LOOK_EVERY);
        }
    }
    checkpointing.hurry(false);
    Ok(())
}

impl Node {
    /// Of a mirror, which serves no readers: where the nodes listen that do, as far as it knows.
    /// None for other nodes. Never blocks.
    pub fn served_elsewhere(&self) -> Option<Vec<String>> {
        let composition = self.composition.try_lock().ok()?;
        let others =
            composition.mirror()?.mirror.peers().into_iter().filter(|peer| peer.serves && peer.node != Some(self.id));
        Some(others.map(|peer| peer.address).filter(|address| *address != self.address).collect())
    }

    /// Of a mirror: the hash of the database that a failover would make of its memory, when all
    /// below `at` is there; without `at`, of what is. The primary may still write. Needs the
    /// memory that the database takes on a standby. None for other nodes. Blocks.
    pub fn rehearsed(&self, at: Option<Lsn>, deadline: Instant) -> Option<Result<StateHash, String>> {
        loop {
            let (end, memory) = {
                let composition = self.composition();
                let mirrored = composition.mirror()?;
                // In this order: what is below the end lies in the regions of now.
                (mirrored.mirror.status().end, mirrored.mirror.memory())
            };
            let wanted = at.unwrap_or(end);
            let hashed = match end >= wanted {
                // What is newer is refused, and what is just being written looks damaged.
                true => Contents::open(memory, wanted)
                    .map_err(|cause| cause.to_string())
                    .and_then(|memory| self.hash_of(&memory, wanted)),
                false => Err(format!("this mirror has everything up to {end}")),
            };
            if hashed.is_ok() || Instant::now() >= deadline {
                return Some(hashed);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The hash of what a mirror's memory holds, which is the state at an LSN.
    fn hash_of(&self, memory: &Contents, at: Lsn) -> Result<StateHash, String> {
        let (participants, visible) = (Participants::new(self.config.participants()), Arc::new(Watermark::new(at)));
        let source = Arc::new(VersionSource::default());
        let (catalog, snapshots) = (Arc::new(Catalog::new()), Snapshots::standby(visible));
        let core =
            Core::new(participants, catalog, snapshots, source, Arc::default(), Arc::default(), self.config.certifier);
        restore(&core, memory, self.config.replay_threads, None, &|_| {})?;
        let worker = Database::of(&core).worker().map_err(|cause| cause.to_string())?;
        StateHash::of(&worker.begin_read_only()).map_err(|cause| cause.to_string())
    }
}
