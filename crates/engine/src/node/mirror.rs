//! The composition of a mirror: memory that the primary writes (Active-Memory, section 4), and a
//! thread that keeps the connection. No log, no replay, no readers.
//!
//! What a mirror has promised, and its terms, lies in its directory. The memory outlives the
//! process only in files (`mirror.keep-dir`), and the machine's next start only where these are in
//! persistent memory, in domain `pmem`: else a mirror that starts is empty, whatever it was
//! before. It begins from a checkpoint of the node that it follows, if there is one (`seed.rs`).
//!
//! A mirror that takes over makes versions of its rows, and indexes, by several threads, as a
//! restart does of a checkpoint. Its log begins where its memory ends, or with what it has fetched
//! when it took over. There is nothing below, so a commit would be lost with the process: the node
//! reigns when what was in the mirror is in a checkpoint. Until then it is read as a standby is.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use freshet_base::{Fid, Stamp, Watermark};
use freshet_log::{Log, ReceiveConfig};
use freshet_mirror::Mirror as Memory;
use freshet_recovery::{Manifest, RestoreError};
use freshet_replay::{Collector, Restoration, Restore};
use freshet_replication::{
    mirror::{FetchedLog, Mirror, MirrorConfig, Mirroring},
    takeover::Promoted,
};
use freshet_storage::{Catalog, Participants};
use freshet_txn::{Core, Snapshots};

use super::{
    CheckpointKind, Composition, Node,
    config::NodeConfig,
    ground::Ground,
    janitor::JanitorThread,
    join::TAKING_OVER,
    picture::MirrorDoor,
    reign::Reign,
    seed::SeedsMirrors,
    start::{Parts, StartError, begin_checkpoints, open_log},
};
use crate::{Database, StateHash, source::VersionSource};

/// A mirror's parts.
pub(super) struct Mirrored {
    pub mirror: Mirror,
    /// What its log is to lie on when it takes over.
    ground: Ground,
    /// What its readers see: nothing before it takes over.
    visible: Arc<Watermark>,
}

/// How often a node tries to write its first checkpoint.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// How often a rehearsal looks whether the memory is there, and whole.
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
            tracing::warn!("this mirror ended while it took over: it begins again");
            store.clear()?;
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
        let who = Mirroring {
            node: ground.id,
            credentials: ground.credentials.clone(),
            address: self.address.clone(),
            upstream,
        };
        let settings = MirrorConfig {
            peers: ground.known(config),
            fabric: config.fabric.standby()?,
            synchronous: !config.asynchronous,
            fetched: config.log.buffer_bytes as u64 / 2,
            ..config.mirror.config(ground.id, config.persistence(ground.id)?.map(|log| log.method))
        };
        let checkpoints = Arc::new(SeedsMirrors { cluster: ground.cluster });
        let mirror = Mirror::start(who, settings, ground.terms.clone(), checkpoints).map_err(|cause| system(&cause))?;
        self.endpoint.set_service(Some(mirror.service()));
        let door = MirrorDoor { pictures: mirror.pictures(), cluster: ground.cluster };
        self.endpoint.set_checkpoints(Some(Arc::new(door)));
        let visible = Arc::new(Watermark::new(Stamp::ZERO));
        let mirrored = Mirrored { mirror, ground: ground.clone(), visible: Arc::clone(&visible) };
        let core = self.core(visible, Arc::default());
        self.node(core, None, Composition::Mirror(mirrored))
    }
}

impl Mirrored {
    /// Makes the memory a database, opens a log behind it, and reigns.
    pub fn into_reign(self, node: &Node, promoted: &Promoted) -> Result<Reign, String> {
        let Self { mirror, ground, visible } = self;
        let (core, threads) = (node.database.core(), node.config.replay_threads);
        let memory = Memory::open(mirror.memory(), promoted.start).map_err(|cause| cause.to_string())?;
        let Restored { records, entries, rows, indexes } = restore(core, &memory, threads)?;
        let (rows_ms, indexes_ms) = (rows.as_millis() as u64, indexes.as_millis() as u64);
        tracing::info!(records, rows_ms, entries, indexes_ms, "what was in a mirror is in tables and indexes");
        let bytes = memory.bytes();
        *node.restart.lock().unwrap_or_else(PoisonError::into_inner) =
            [(rows, bytes), Default::default(), (indexes, entries)];
        drop(memory);
        let FetchedLog { from, blocks } = mirror.fetched(promoted.start);
        mirror.stop();
        node.endpoint.set_checkpoints(None);
        // The rows are copied.
        drop(mirror);
        let path = ground.directory.as_ref().map(|directory| directory.path());
        path.map_or(Ok(()), |path| TAKING_OVER.write(path, promoted.start))?;
        let receiving = ReceiveConfig { upon_replay: false, ..node.config.receive_config() };
        let open = |persistence| Log::receive_with(&receiving, persistence, from);
        let (log, mut receiver) = open_log(&node.config, &ground, open).map_err(|cause| cause.to_string())?;
        if from < promoted.start {
            receiver.append(&blocks).map_err(|cause| cause.to_string())?;
            log.wait_persisted(promoted.start, None).map_err(|cause| cause.to_string())?;
        }
        log.promote(receiver, node.config.log_config(), promoted.term).map_err(|cause| cause.to_string())?;
        let log = Arc::new(log);
        node.source.open(log.reader());
        visible.advance(promoted.start);
        let begun = begin_checkpoints(&node.config, &ground, &node.endpoint, (core, &log), None);
        if let Some(checkpointing) = begun.map_err(|cause| cause.to_string())? {
            let first = node.checkpointing.get_or_init(|| checkpointing);
            // The memory is all that there is: it is kept until there is room for a checkpoint.
            // Writers wait for it.
            first.hurry(true);
            while let Err(cause) = first.now(CheckpointKind::Fuzzy) {
                if first.stops() {
                    return Err(cause);
                }
                tracing::warn!(cause, "a mirror that takes over cannot write its checkpoint, and tries again");
                thread::sleep(TRY_EVERY);
            }
            first.hurry(false);
        }
        path.map_or(Ok(()), |path| TAKING_OVER.remove(path)).map_err(|cause| cause.to_string())?;
        let janitor = JanitorThread::start(Arc::default(), core, None)?;
        Reign::begin(&node.promoted(promoted), log, promoted.term, promoted.start, janitor)
    }
}

/// What was in a mirror's memory.
#[derive(Default)]
struct Restored {
    records: u64,
    /// Of indexes.
    entries: u64,
    /// How long it took to put the records into the tables, and to build the indexes.
    rows: Duration,
    indexes: Duration,
}

/// Puts all records of a mirror's memory into the tables, and builds their indexes, by this number
/// of threads. The tables come first.
fn restore(core: &Core, memory: &Memory, threads: usize) -> Result<Restored, String> {
    let (catalog, mut restored) = (&core.catalog, Restored::default());
    let mut restoration = Some(Restoration::new(catalog, &Restore));
    // A second time, if tables have indexes that were added later.
    while let Some(pass) = restoration {
        let begun = Instant::now();
        let mut collectors: Vec<_> = (0..threads.max(1)).map(|_| Collector::default()).collect();
        let chunks = |wanted: &dyn Fn(Fid) -> bool| -> Vec<usize> {
            (0..memory.chunk_count()).filter(|chunk| memory.table(*chunk).is_some_and(wanted)).collect()
        };
        let dropped = Mutex::default();
        let each = |collectors: &mut [Collector], chunks: &[usize]| {
            divide(collectors, chunks, |collector, chunk| visit(core, memory, &pass, collector, chunk, &dropped))
        };
        each(&mut collectors[..1], &chunks(&|fid| fid == Fid::CATALOG))?;
        each(&mut collectors, &chunks(&|fid| fid != Fid::CATALOG))?;
        restored.records += collectors.iter().map(|collector| collector.records).sum::<u64>();
        restored.rows += begun.elapsed();
        let (begun, entries) = (Instant::now(), AtomicU64::new(0));
        pass.finish(collectors, threads, &core.participants, &|done, of| {
            tracing::debug!(done, of, "a mirror that takes over builds its indexes");
            // Relaxed: looked at when all threads have ended.
            entries.store(of, Ordering::Relaxed);
        });
        restored.entries += entries.into_inner();
        restored.indexes += begun.elapsed();
        restoration = Restoration::again(catalog, &Restore);
    }
    Ok(restored)
}

/// Restores the records of one chunk. Tables that were dropped may have left some.
fn visit(
    core: &Core,
    memory: &Memory,
    restoration: &Restoration<'_>,
    collector: &mut Collector,
    chunk: usize,
    dropped: &Mutex<HashSet<Fid>>,
) -> Result<(), String> {
    let fid = memory.table(chunk);
    let dropped = || dropped.lock().unwrap_or_else(PoisonError::into_inner);
    if fid.is_some_and(|fid| dropped().contains(&fid)) {
        return Ok(());
    }
    let participant = core.participants.join().map_err(|cause| cause.to_string())?;
    let guard = participant.pin_without_snapshot();
    let mut outcome = Ok(());
    let visited = memory.visit(chunk, |fid, rid, address, row| {
        if fid == Fid::CATALOG && row.is_none() {
            dropped().extend(Catalog::fid_of(rid));
        }
        if outcome.is_ok() {
            outcome = restoration.row(&guard, collector, fid, rid, address, row).map_err(|cause| cause.to_string());
        }
    });
    visited.map_err(|cause| cause.to_string()).and(outcome)
}

/// One thread for each collector takes chunks until none is left, or one fails.
fn divide(
    collectors: &mut [Collector],
    chunks: &[usize],
    work: impl Fn(&mut Collector, usize) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = collectors
            .iter_mut()
            .map(|collector| {
                scope.spawn(|| {
                    // Relaxed: a counter without data behind it.
                    while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        work(collector, *chunk)?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}

impl Node {
    /// Of a mirror, which serves no readers: where the nodes listen that do, as far as it knows.
    /// None for other nodes. Never blocks.
    pub fn served_elsewhere(&self) -> Option<Vec<String>> {
        let composition = self.composition.try_lock().ok()?;
        let Composition::Mirror(mirrored) = &*composition else { return None };
        let others = mirrored.mirror.peers().into_iter().filter(|peer| peer.serves && peer.node != Some(self.id));
        Some(others.map(|peer| peer.address).filter(|address| *address != self.address).collect())
    }

    /// Of a mirror: the hash of the database that a take-over would make of its memory, when all
    /// below `at` is there; without `at`, of what is. The primary may still write. Needs the
    /// memory that the database takes on a standby. None for other nodes. Blocks.
    pub fn rehearsed(&self, at: Option<Stamp>, deadline: Instant) -> Option<Result<StateHash, String>> {
        loop {
            let (end, memory) = {
                let Composition::Mirror(mirrored) = &*self.composition() else { return None };
                // In this order: what is below the end lies in the regions of now.
                (mirrored.mirror.status().end, mirrored.mirror.memory())
            };
            let wanted = at.unwrap_or(end);
            let hashed = match end >= wanted {
                // What is newer is refused, and what is just being written looks damaged.
                true => Memory::open(memory, wanted)
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

    /// The hash of what a mirror's memory holds, which is the state at a stamp.
    fn hash_of(&self, memory: &Memory, at: Stamp) -> Result<StateHash, String> {
        let (participants, visible) = (Participants::new(self.config.participants()), Arc::new(Watermark::new(at)));
        let source = Arc::new(VersionSource::default());
        let (catalog, snapshots) = (Arc::new(Catalog::new()), Snapshots::standby(visible));
        let core = Core::new(participants, catalog, snapshots, source, Arc::default(), self.config.certifier);
        restore(&core, memory, self.config.replay_threads)?;
        let worker = Database::of(&core).worker().map_err(|cause| cause.to_string())?;
        StateHash::of(&worker.begin_read_only()).map_err(|cause| cause.to_string())
    }
}
