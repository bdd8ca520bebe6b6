//! Writing checkpoints while the node works (SiloR, section 4).
//!
//! One thread, the manager, decides when; it starts one checkpointer for each device. For each
//! table the checkpointers take batches of the primary index in key order from one shared place,
//! read the newest committed versions, and write them to the files of their own device, block by
//! block. They hold a snapshot only for a batch at a time, so versions are reclaimed in the
//! meantime, and they work no more than a share of the time.
//!
//! | step | what |
//! |---|---|
//! | start | `start` is the end of the log: what is changed from here on need not be in the checkpoint |
//! | walk | rows and deletions, but for those with an LSN at or above `start`; words that are log addresses become versions; then the ids of records that are gone |
//! | end | `end` is the end of the log: nothing that was seen is younger |
//! | wait | until everything below `end` is committed: no failover can cut the log below it any more; on a standby, until what it has acknowledged, and would have to execute on older versions after a restart, is part of its log |
//! | install | the manifest makes it count |
//! | clean up | older checkpoints go, and log segments below `start` that no standby needs |
//!
//! A consistent checkpoint, for a backup, is read at one snapshot, which is its start and its end:
//! versions younger than that stay in memory until the walk is over. It needs no log at all.

use std::{
    fs::File,
    ops::{Bound, ControlFlow},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use freshet_base::{ClusterId, Lsn, Rid, StateProof, lock, wait::Patience};
use freshet_log::Log;
use freshet_recovery::{
    CheckpointError, Manifest,
    checkpoint::{CheckpointFile, CheckpointTable, TableWriter, folder},
};
use freshet_replication::{checkpoints::OpenCheckpoint, standby::ArrivedLog};
use freshet_storage::{
    Participant, ReadContext, ReadError, Table,
    index::{Direction, ScanBuffer},
};
use freshet_txn::{Core, OutcomeOpen};
use serde::Serialize;
use thiserror::Error;

use super::{config::CheckpointSettings, garbage_collector::clear_dropped, pace::Pace};

/// Entries of an index that a checkpointer takes at once.
const BATCH: usize = 1024;
/// How often the manager looks whether one is due.
const LOOK: Duration = Duration::from_millis(100);
/// Who has fetched a checkpoint has this long to come back as a standby before the log that it
/// needs may go.
const HOLD: Duration = Duration::from_secs(600);
/// The log must have grown by this many bytes, whatever else says that a checkpoint is due.
const LEAST_LOG: u64 = 16 << 20;

/// What a checkpoint is a fuzzy snapshot of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    /// Of each record as it was when it was looked at: a state of the database together with the
    /// log since then.
    Fuzzy,
    /// Of the database at one moment.
    Consistent,
}

/// Why there is no new checkpoint. The node continues, and so does the one before.
#[derive(Debug, Error)]
pub enum CheckpointFailure {
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] CheckpointError),
    /// A record could not be read.
    #[error("table {table}: a record cannot be read: {cause}")]
    Read {
        /// Which table.
        table: String,
        /// Why not.
        cause: ReadError,
    },
    /// A row is not the one that was put there. The checkpoint before, and the log, have it.
    #[error("table {table}: the row of record {} is damaged in memory: start the node again", rid.0)]
    Damaged {
        /// Which table.
        table: String,
        /// Which record.
        rid: Rid,
    },
    /// Something speaks against the state: the checkpoint before is worth more than a new one.
    #[error("the state of this node is in doubt: {0}")]
    Doubt(Arc<str>),
    /// What it saw may not survive.
    #[error("cannot tell whether its contents are committed: {0}")]
    Open(#[from] OutcomeOpen),
    /// What this node has acknowledged cannot be executed yet, and could not be after a restart
    /// from the checkpoint.
    #[error("what has arrived is not part of the log yet: {0}")]
    Arrived(String),
    /// The node has no directory or no memory, or stops.
    #[error("{0}")]
    Impossible(&'static str),
}

/// The last checkpoint, and the one under way.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckpointStatus {
    /// How many were installed since the node started.
    pub installed: u64,
    /// Where the newest begins, also if it was there before the node started.
    pub start: Option<Lsn>,
    /// Where it ends.
    pub end: Option<Lsn>,
    /// Its bytes.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
    /// How long it took, if it was written since the start.
    pub took: Option<Duration>,
    /// When it was installed, in milliseconds since 1970.
    pub time: Option<u64>,
    /// Whether one is being written, and how many bytes it has so far.
    pub under_way: Option<u64>,
    /// Why the last attempt failed, if it did.
    pub failure: Option<String>,
}

/// What the manager needs of its node.
pub(super) struct Ground {
    pub settings: Mutex<CheckpointSettings>,
    /// Where manifests go.
    pub directory: PathBuf,
    pub devices: Vec<PathBuf>,
    pub cluster: ClusterId,
    pub core: Arc<Core>,
    pub log: Arc<Log>,
    /// Of a standby.
    pub arrived: Option<ArrivedLog>,
    pub proof: Arc<StateProof>,
}

#[derive(Default)]
struct Orders {
    /// How many checkpoints were asked for.
    asked: u64,
    /// Whether the next one must be consistent.
    consistent: bool,
    /// How many attempts have ended, and how the last one did.
    ended: u64,
    outcome: Option<Result<Manifest, String>>,
}

/// Writes checkpoints, when due and when asked.
pub(super) struct Checkpointing {
    ground: Ground,
    status: Mutex<CheckpointStatus>,
    written: AtomicU64,
    /// Checkpoints take what processors there are.
    hurries: AtomicBool,
    stopping: AtomicBool,
    orders: Mutex<Orders>,
    changed: Condvar,
    /// Where checkpoints begin that others are fetching, or have fetched since then: they will want
    /// the log from there.
    held: Mutex<Vec<(Lsn, Option<Instant>)>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A checkpoint is being sent, and is kept as long, and for a while longer.
struct Sending {
    checkpointing: Arc<Checkpointing>,
    start: Lsn,
}

impl Sending {
    fn new(checkpointing: &Arc<Checkpointing>, start: Lsn) -> Self {
        lock(&checkpointing.held).push((start, None));
        Self { checkpointing: Arc::clone(checkpointing), start }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut held = lock(&self.checkpointing.held);
        if let Some((_, since)) = held.iter_mut().find(|(start, since)| *start == self.start && since.is_none()) {
            *since = Some(Instant::now());
        }
    }
}

impl Checkpointing {
    /// Starts the manager. `newest` is the checkpoint that the node came back from.
    pub fn start(ground: Ground, newest: Option<&Manifest>) -> Result<Arc<Self>, String> {
        let mut participants = Vec::new();
        // One for each device, and one that holds a consistent checkpoint's snapshot.
        for _ in 0..=ground.devices.len() {
            participants.push(ground.core.participants.join().map_err(|cause| cause.to_string())?);
        }
        let this = Arc::new(Self {
            ground,
            status: Mutex::default(),
            written: AtomicU64::new(0),
            hurries: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            orders: Mutex::default(),
            changed: Condvar::new(),
            held: Mutex::default(),
            thread: Mutex::default(),
        });
        if let Some(newest) = newest {
            this.note(newest, None);
        }
        let manager = Arc::clone(&this);
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(move || manager.run(participants));
        *lock(&this.thread) = Some(thread.map_err(|cause| format!("cannot start a thread: {cause}"))?);
        Ok(this)
    }

    /// As things stand.
    pub fn status(&self) -> CheckpointStatus {
        let mut status = lock(&self.status).clone();
        if let Some(bytes) = &mut status.under_way {
            *bytes = self.written.load(Ordering::Relaxed);
        }
        status
    }

    /// Changes when and how checkpoints are written from now on; the directories stay.
    pub fn set(&self, settings: CheckpointSettings) {
        let mut ours = lock(&self.ground.settings);
        *ours = CheckpointSettings { dir: std::mem::take(&mut ours.dir), ..settings };
        drop(ours);
        self.changed.notify_all();
    }

    fn settings(&self) -> CheckpointSettings {
        lock(&self.ground.settings).clone()
    }

    /// Writes a checkpoint now and waits for it. A consistent one stays for a while, so that it can
    /// be [opened](Self::open).
    ///
    /// # Errors
    /// Why none exists.
    pub fn now(&self, kind: CheckpointKind) -> Result<Manifest, String> {
        let mut orders = lock(&self.orders);
        orders.asked += 1;
        orders.consistent |= kind == CheckpointKind::Consistent;
        // One that is under way began before it was asked for: the next one counts.
        let busy = lock(&self.status).under_way.is_some();
        let enough = orders.ended + if busy { 2 } else { 1 };
        self.changed.notify_all();
        while orders.ended < enough {
            if self.stopping.load(Ordering::SeqCst) {
                return Err("the node stops".into());
            }
            orders = self.changed.wait_timeout(orders, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        orders.outcome.clone().unwrap_or_else(|| Err("no checkpoint was written".into()))
    }

    /// Has a checkpoint written soon, where this node writes them by itself. Says whether it does.
    pub fn ask(&self) -> bool {
        if self.settings().interval_s == 0 {
            return false;
        }
        lock(&self.orders).asked += 1;
        self.changed.notify_all();
        true
    }

    /// From now on checkpoints take what processors there are, because others wait for them, or
    /// again no more than their share.
    pub fn hurry(&self, hurries: bool) {
        // Relaxed: it may be seen a little later.
        self.hurries.store(hurries, Ordering::Relaxed);
    }

    fn hurries(&self) -> bool {
        // Relaxed: see there.
        self.hurries.load(Ordering::Relaxed) || self.stops()
    }

    /// Rests as long as the work since the last rest asks for, unless others wait.
    fn rest(&self, pace: &mut Pace) {
        if let Some(pause) = pace.due().filter(|_| !self.hurries()) {
            std::thread::sleep(pause);
            pace.rested();
        }
    }

    /// Where the log begins that a restart would need; none before there is a log.
    pub fn log_needed(&self) -> Option<Lsn> {
        let begin = self.ground.log.store().extent()?.0;
        Some(lock(&self.status).start.unwrap_or(begin))
    }

    /// Gives up the checkpoint that is under way, if there is one.
    pub fn give_up(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Whether no checkpoint will be written any more.
    pub fn stops(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Ends the manager. The log must be closed, if a checkpoint may be waiting for it.
    pub fn stop(&self) {
        self.give_up();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }

    /// Opens the newest checkpoint for another node, and keeps the log that goes with it for a
    /// while.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn open_newest(self: &Arc<Self>) -> Result<Option<OpenCheckpoint>, String> {
        let start = lock(&self.status).start;
        start.map(|start| self.open(start)).transpose()
    }

    /// Opens the checkpoint that begins at `start`, as [`Checkpointing::open_newest`] does.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn open(self: &Arc<Self>, start: Lsn) -> Result<OpenCheckpoint, String> {
        let ground = &self.ground;
        if let Some(doubt) = ground.proof.withdrawn() {
            return Err(CheckpointFailure::Doubt(doubt).to_string());
        }
        // Before the files are opened: from now on the log stays.
        let sending = Sending::new(self, start);
        let manifest = Manifest::read(&Manifest::path(&ground.directory, start)).map_err(|cause| cause.to_string())?;
        let open = |file: &CheckpointFile| {
            let device = ground.devices.get(file.device as usize).ok_or("a device is missing")?;
            let path = folder(device, start).join(&file.name);
            let file = File::open(&path).map_err(|cause| format!("cannot open {}: {cause}", path.display()))?;
            Ok(Box::new(file) as _)
        };
        let files = manifest.tables.iter().flat_map(|table| &table.files).map(open).collect::<Result<_, String>>()?;
        Ok(OpenCheckpoint { end: manifest.end(), manifest: manifest.encode(), files, hold: Box::new(sending) })
    }

    fn note(&self, manifest: &Manifest, took: Option<Duration>) {
        let mut status = lock(&self.status);
        status.installed += u64::from(took.is_some());
        status.start = Some(manifest.start());
        status.end = Some(manifest.end());
        (status.bytes, status.rows) = (manifest.bytes(), manifest.rows());
        status.time = Some(manifest.time);
        status.took = took.or(status.took);
        status.failure = None;
    }

    /// The manager's whole life.
    fn run(&self, mut participants: Vec<Participant>) {
        let mut last = Instant::now();
        let mut served = 0;
        loop {
            let kind = {
                let mut orders = lock(&self.orders);
                while orders.asked == served && !self.is_due(last) && !self.stopping.load(Ordering::SeqCst) {
                    // Workers do so too, but not when they have nothing else to do.
                    clear_dropped(&self.ground.core, &participants[0]);
                    orders = self.changed.wait_timeout(orders, LOOK).unwrap_or_else(PoisonError::into_inner).0;
                }
                served = orders.asked;
                if self.stopping.load(Ordering::SeqCst) {
                    return;
                }
                lock(&self.status).under_way = Some(0);
                match std::mem::take(&mut orders.consistent) {
                    true => CheckpointKind::Consistent,
                    false => CheckpointKind::Fuzzy,
                }
            };
            let begun = Instant::now();
            let consistent = kind == CheckpointKind::Consistent;
            tracing::info!(consistent, "a checkpoint begins");
            let outcome = self.write(&mut participants, kind);
            let outcome = match outcome {
                Ok(manifest) => {
                    self.note(&manifest, Some(begun.elapsed()));
                    tracing::info!(
                        start = manifest.start().0,
                        end = manifest.end().0,
                        rows = manifest.rows(),
                        bytes = manifest.bytes(),
                        seconds = begun.elapsed().as_secs_f64(),
                        consistent,
                        "a checkpoint is installed"
                    );
                    if kind == CheckpointKind::Consistent {
                        // The caller is about to open it.
                        lock(&self.held).push((manifest.start(), Some(Instant::now())));
                    }
                    if let Err(cause) = self.clean_up(&manifest) {
                        self.failed(&format!("what the new checkpoint makes superfluous cannot be removed: {cause}"));
                    }
                    Ok(manifest)
                }
                Err(cause) => {
                    // What was half-written is of no use; what cannot be removed now is removed
                    // after the next.
                    let keep: Vec<Lsn> = lock(&self.status).start.into_iter().chain(self.held()).collect();
                    let _ = Manifest::remove_others(&self.ground.directory, &self.ground.devices, &keep);
                    if !self.stopping.load(Ordering::SeqCst) {
                        self.failed(&cause.to_string());
                    }
                    Err(cause.to_string())
                }
            };
            last = Instant::now();
            lock(&self.status).under_way = None;
            let mut orders = lock(&self.orders);
            orders.ended += 1;
            orders.outcome = Some(outcome);
            self.changed.notify_all();
        }
    }

    /// Told once, not every ten seconds.
    fn failed(&self, why: &str) {
        let mut status = lock(&self.status);
        if status.failure.as_deref() != Some(why) {
            tracing::warn!(cause = why, "no new checkpoint: the node continues, and tries again later");
            status.failure = Some(why.to_owned());
        }
    }

    fn is_due(&self, last: Instant) -> bool {
        let settings = self.settings();
        if settings.interval_s == 0 {
            return false;
        }
        let status = lock(&self.status);
        let grown = self.ground.core.snapshots.current().since(status.start.unwrap_or_default());
        let waited = last.elapsed() >= Duration::from_secs(settings.interval_s);
        // After a failure not at once again, however much the log grows.
        let patient = status.failure.is_none() || waited;
        grown >= LEAST_LOG && patient && (grown >= settings.log_bytes || waited && grown >= status.bytes / 4)
    }

    fn write(&self, participants: &mut [Participant], kind: CheckpointKind) -> Result<Manifest, CheckpointFailure> {
        let ground = &self.ground;
        ground.proof.withdrawn().map_or(Ok(()), |doubt| Err(CheckpointFailure::Doubt(doubt)))?;
        let (keeper, participants) = participants.split_first_mut().expect("there is one for the snapshot");
        let (guard, start) = keeper.pin(|| ground.core.snapshots.current());
        let mut kept = Some(guard);
        self.written.store(0, Ordering::Relaxed);
        let mut tables = Vec::new();
        for table in ground.core.catalog.tables_at(start) {
            // The catalog, which is first, always as it was at the start: there is a description of
            // every table that has records in the checkpoint or in the log since then.
            let snapshot = kept.as_ref().map(|_| start);
            let walk = Walk::new(&table, start, snapshot);
            let parts: Vec<_> = std::thread::scope(|scope| {
                let walk = &walk;
                let threads: Vec<_> = participants
                    .iter_mut()
                    .enumerate()
                    .map(|(device, participant)| scope.spawn(move || self.checkpointer(walk, device, participant)))
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("a panic there was reported already")).collect()
            });
            let mut entry = CheckpointTable { fid: table.fid().0, rows: 0, files: Vec::new() };
            for part in parts {
                let (rows, files) = part?;
                entry.rows += rows;
                entry.files.extend(files);
            }
            tables.push(entry);
            if kind == CheckpointKind::Fuzzy {
                // Without a snapshot of their own, those who walk hold back the reclaiming of
                // versions for a batch at a time only.
                kept = None;
            }
        }
        let end = if kept.is_some() { start } else { ground.core.snapshots.current() };
        drop(kept);
        if let Some(primary) = ground.core.snapshots.primary() {
            primary.log.force_fence(end);
            primary.gate.wait(end, Patience::endless())?;
        } else if let Some(arrived) = &ground.arrived {
            arrived.raise_floor(end, &|| self.stops()).map_err(CheckpointFailure::Arrived)?;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
        let manifest = Manifest::new(ground.cluster, start, end, time, ground.devices.len() as u32, tables);
        // Found while it was written.
        ground.proof.withdrawn().map_or(Ok(()), |doubt| Err(CheckpointFailure::Doubt(doubt)))?;
        manifest.install(&ground.directory, ground.log.store().incarnation())?;
        Ok(manifest)
    }

    /// Whether the walk is to go further.
    fn may_continue(&self) -> Result<(), CheckpointFailure> {
        let core = &self.ground.core;
        if self.stopping.load(Ordering::SeqCst) {
            return Err(CheckpointFailure::Impossible("the node stops"));
        }
        // Rows that lie in the log would come into memory.
        if core.snapshots.primary().is_none() && core.memory.is_exhausted() {
            return Err(CheckpointFailure::Impossible("there is no memory left for tables"));
        }
        Ok(())
    }

    /// One device's share of a table.
    fn checkpointer(
        &self,
        walk: &Walk<'_>,
        device: usize,
        participant: &Participant,
    ) -> Result<(u64, Vec<CheckpointFile>), CheckpointFailure> {
        let ground = &self.ground;
        let core = &ground.core;
        let place = (device as u32, ground.devices[device].as_path());
        let CheckpointSettings { files, sync_bytes: sync, cpu_percent, .. } = self.settings();
        let mut writer = TableWriter::create(place, ground.cluster, walk.start, walk.table.fid(), 0..files, sync)?;
        let mut pace = Pace::new(cpu_percent);
        let mut batch = Entries::default();
        while walk.next(participant, &mut batch) {
            self.may_continue()?;
            let mut full = false;
            {
                let (guard, snapshot) = participant.pin(|| walk.snapshot.unwrap_or_else(|| core.snapshots.current()));
                let context =
                    ReadContext { snapshot, me: None, owners: &core.owners, source: &*core.source, horizon: Lsn::ZERO };
                // Of a table that was dropped since the start, whatever there is will do: the log
                // says what has become of it.
                let content = walk.table.content(&guard);
                for (content, (key, rid)) in
                    content.into_iter().flat_map(|content| batch.iter().map(move |it| (content, it)))
                {
                    let seen = content.read_whole(&guard, rid, &context);
                    let seen =
                        seen.map_err(|cause| CheckpointFailure::Read { table: walk.table.name().to_owned(), cause })?;
                    let Some((seen, whole)) = seen else { continue };
                    let Some((lsn, row)) = seen.lsn.map(|lsn| (lsn, seen.row)) else { continue };
                    if lsn >= walk.start {
                        continue;
                    }
                    if !whole {
                        let damaged = CheckpointFailure::Damaged { table: walk.table.name().to_owned(), rid };
                        ground.proof.doubt(&damaged);
                        return Err(damaged);
                    }
                    match row {
                        // Entries are hints: the record must have the key, else another entry leads
                        // to it.
                        Some(row) if content.indexes(&guard).primary().definition().matches(row, key) => {
                            full |= writer.push(rid, lsn, Some(row));
                        }
                        Some(_) => {}
                        // A reader still holds it back. The log with the tombstone may be removed,
                        // so the checkpoint says that the id is free; several entries may say so.
                        None => full |= writer.push(rid, lsn, None),
                    }
                }
            }
            participant.collect();
            if full {
                self.written.fetch_add(writer.write_block()?, Ordering::Relaxed);
            }
            self.rest(&mut pace);
        }
        if device == 0 {
            self.write_gone(walk, participant, &mut writer, &mut pace)?;
        }
        Ok(writer.finish()?)
    }

    /// Records that were gone at the start: their ids are to be used again after a restart, too.
    fn write_gone(
        &self,
        walk: &Walk<'_>,
        participant: &Participant,
        writer: &mut TableWriter,
        pace: &mut Pace,
    ) -> Result<(), CheckpointFailure> {
        for (rid, tombstone) in gone(walk, participant) {
            if writer.push(rid, tombstone, None) {
                self.written.fetch_add(writer.write_block()?, Ordering::Relaxed);
                self.rest(pace);
            }
        }
        Ok(())
    }

    /// Where checkpoints begin that somebody was given lately.
    fn held(&self) -> Vec<Lsn> {
        let mut held = lock(&self.held);
        held.retain(|(_, since)| since.is_none_or(|since| since.elapsed() < HOLD));
        held.iter().map(|(start, _)| *start).collect()
    }

    fn clean_up(&self, manifest: &Manifest) -> Result<(), String> {
        let ground = &self.ground;
        let keep: Vec<Lsn> = std::iter::once(manifest.start()).chain(self.held()).collect();
        Manifest::remove_others(&ground.directory, &ground.devices, &keep).map_err(|cause| cause.to_string())?;
        let begin = ground.log.store().extent().map_or(Lsn::ZERO, |(begin, _)| begin);
        // Standbys that are connected get all that they need; for others some of the log is kept.
        let kept = Lsn(manifest.end().0.saturating_sub(self.settings().keep_log_bytes));
        let held = self.held().into_iter().min().unwrap_or(Lsn::MAX);
        let unneeded = manifest.start().min(ground.log.needed_by_sinks()).min(kept.max(begin)).min(held);
        ground.log.store().remove_below(unneeded).map_err(|cause| cause.to_string())?;
        Ok(())
    }
}

/// Ids of records that were gone at the start.
fn gone(walk: &Walk<'_>, participant: &Participant) -> Vec<(Rid, Lsn)> {
    let guard = participant.pin_without_snapshot();
    let mut gone = Vec::new();
    if let Some(content) = walk.table.content(&guard) {
        content.gone_before(walk.start, |rid, tombstone| gone.push((rid, tombstone)));
    }
    gone
}

/// Entries of an index, taken out of it.
#[derive(Default)]
struct Entries {
    keys: Vec<u8>,
    /// Where each key ends in `keys`, and its record.
    entries: Vec<(usize, Rid)>,
}

impl Entries {
    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }

    fn push(&mut self, key: &[u8], rid: Rid) {
        self.keys.extend_from_slice(key);
        self.entries.push((self.keys.len(), rid));
    }

    fn last_key(&self) -> Option<&[u8]> {
        let (end, _) = self.entries.last()?;
        let begin = self.entries.len().checked_sub(2).map_or(0, |before| self.entries[before].0);
        Some(&self.keys[begin..*end])
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Rid)> {
        let mut begin = 0;
        self.entries.iter().map(move |(end, rid)| (&self.keys[std::mem::replace(&mut begin, *end)..*end], *rid))
    }
}

/// A table being walked over in the order of its primary index, by several checkpointers.
struct Walk<'t> {
    table: &'t Table,
    start: Lsn,
    /// Of a consistent checkpoint.
    snapshot: Option<Lsn>,
    place: Mutex<Place>,
}

#[derive(Default)]
struct Place {
    key: Vec<u8>,
    begun: bool,
    over: bool,
    buffer: ScanBuffer,
}

impl<'t> Walk<'t> {
    fn new(table: &'t Table, start: Lsn, snapshot: Option<Lsn>) -> Self {
        Self { table, start, snapshot, place: Mutex::default() }
    }

    /// Takes the next entries; returns whether there were any.
    fn next(&self, participant: &Participant, into: &mut Entries) -> bool {
        let mut place = lock(&self.place);
        into.clear();
        if place.over {
            return false;
        }
        let Place { key, begun, buffer, .. } = &mut *place;
        let guard = participant.pin_without_snapshot();
        let low = if *begun { Bound::Excluded(key.as_slice()) } else { Bound::Unbounded };
        let Some(content) = self.table.content(&guard) else { return false };
        let scanned = content.indexes(&guard).primary().tree().scan(
            &guard,
            (low, Bound::Unbounded),
            Direction::Forward,
            buffer,
            |_| {},
            |key, rid| {
                // Not between two entries of one key.
                if into.entries.len() >= BATCH && into.last_key() != Some(key) {
                    return ControlFlow::Break(());
                }
                into.push(key, rid);
                ControlFlow::Continue(())
            },
        );
        place.over = scanned.is_continue();
        place.begun = true;
        place.key.clear();
        place.key.extend_from_slice(into.last_key().unwrap_or_default());
        !into.entries.is_empty()
    }
}
