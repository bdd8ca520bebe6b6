//! The primary's log: workers copy blocks into its buffer in parallel, a group commit makes them durable.
//!
//! There is one order of stamps and one buffer, addressed by them, and there are N streams: workers belong to groups, each group to a
//! stream, and each stream has a group commit of its own (SiloR, section 3.3). With N = 1 this is Query Fresh's log.
//!
//! Watermarks, each at or below the one before: `reserved` (stamps handed out), `filled` (no gap below),
//! `durable` (persistent here). See [`bounds`] for how the gap is found and [`group_commit`] for the rest.

pub(crate) mod bounds;
#[cfg_attr(loom, allow(dead_code, reason = "its user is not built for models"))]
pub(crate) mod dirty;
pub(crate) mod doorbell;
mod ends;
mod epoch;
mod group_commit;
#[cfg(not(loom))]
mod passive;
mod sink;
mod writer;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64 as StdAtomicU64},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{
    Fid, NodeId, Rid, Stamp, Term, WaitError, Watermark,
    sync::{AtomicU64, Ordering},
};

use crate::{
    block::{MARK_BLOCK, MAX_BLOCK, term_block},
    buffer::Flusher,
    core::{Core, FlushWatcher, LogFailure, LogReader, LogStatistics, ReadError},
    segments::{Lack, StoreError},
    store::LogStore,
};
use bounds::Bounds;
use crossbeam_utils::CachePadded;
use doorbell::Doorbell;
use ends::PartitionEnds;
use epoch::Epochs;
#[cfg(not(loom))]
use passive::Passive;
pub use sink::{Batch, Sink, SinkHandle};
use sink::{Seat, Sinks};
pub use writer::{Reservation, ReserveError, TooManyWriters, Writer};

/// No transaction is ever longer than this many bytes of log.
const LONGEST_TRANSACTION: u64 = 256 << 30;
/// The parts of a transaction that does not fit the ring at once are not longer than this, unless one record is.
const PART: u64 = 1 << 20;

/// How a log is set up. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Size of the ring; a power of two, at least 4096.
    pub capacity: usize,
    /// A batch of this size is flushed at once.
    pub batch_bytes: u64,
    /// A block is flushed when it is this old, if nothing else makes it due.
    pub interval: Duration,
    /// Size of a partition, the unit of work of a replay thread; a power of two, at most the ring's.
    pub partition: u64,
    /// How many writers there can be at once.
    pub writers: usize,
    /// When blocks become durable, and when that is told.
    pub group_commit: GroupCommitKind,
    /// How writers are grouped to streams.
    pub grouping: Grouping,
    /// How blocks are divided among streams.
    pub division: Division,
    /// The longest transaction, in bytes of log. One that is longer than an eighth of the ring is put into it part by part.
    pub longest_transaction: u64,
}

/// How blocks are divided among streams (distributed logging, section 3).
///
/// | | by transaction | by page |
/// |---|---|---|
/// | blocks of a transaction | one, in its worker's stream | one in each stream whose pages it changes |
/// | at commit | all streams durable up to its stamp: it may depend on any | the same |
/// | at redo | records of one page lie in any stream; the larger address wins, so streams are still replayed in parallel | records of one page lie in one stream |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// A transaction's block goes to its worker's stream.
    Transaction,
    /// Each record goes to the stream of its page: this many successive record ids of a table, at least 1.
    Page(u64),
}

/// When blocks become durable, and when that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommitKind {
    /// By size or time, overlapped with shipping (Query Fresh, section 3.1): the watermark moves with every flush.
    Pipelined,
    /// By epochs of this length (SiloR, section 3.5): results are released when all of an epoch is durable and that
    /// is on record, which takes a second sync.
    Epoch(Duration),
    /// For a buffer in persistent memory: workers leave the fence to their next commit, and stragglers are nudged
    /// (distributed logging, section 4.1). Elsewhere the same as pipelined.
    Passive(Nudge),
}

/// How a straggler of passive group commit is nudged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nudge {
    /// By a signal to its thread.
    Signal,
    /// By `membarrier(2)`, for all threads at once.
    Membarrier,
}

/// Which stream a writer belongs to. Writers are numbered by the places that they take, the lowest free one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Writer `w` of `n` streams belongs to stream `w mod n`.
    RoundRobin,
    /// The first so many writers belong to stream 0, the next to stream 1, and so on, round and round: for
    /// workers that are pinned to sockets in this order. At least 1.
    Blocks(usize),
}

impl Grouping {
    fn stream(self, writer: usize, streams: usize) -> u8 {
        let group = match self {
            Self::RoundRobin => writer,
            Self::Blocks(size) => writer / size.max(1),
        };
        (group % streams) as u8
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            capacity: 64 << 20,
            batch_bytes: 1 << 20,
            interval: Duration::from_millis(1),
            partition: 64 << 10,
            writers: 256,
            group_commit: GroupCommitKind::Pipelined,
            grouping: Grouping::RoundRobin,
            division: Division::Transaction,
            longest_transaction: 1 << 30,
        }
    }
}

impl LogConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// [`LogOpenError::Config`] says which value is wrong and what it may be.
    pub fn check(&self) -> Result<(), LogOpenError> {
        let wrong = |what: &'static str| Err(LogOpenError::Config(what));
        if !self.capacity.is_power_of_two() || self.capacity < 4096 {
            return wrong("the log buffer's capacity must be a power of two and at least 4096 bytes");
        }
        if !self.partition.is_power_of_two() || self.partition < 64 || self.partition > self.capacity as u64 {
            return wrong("the partition size must be a power of two between 64 bytes and the log buffer's capacity");
        }
        if self.writers == 0 {
            return wrong("the log needs a place for at least one writer");
        }
        if self.batch_bytes == 0 {
            return wrong("the batch size must be at least one byte");
        }
        if self.group_commit == GroupCommitKind::Epoch(Duration::ZERO) {
            return wrong("an epoch must last longer than nothing");
        }
        if self.division == Division::Page(0) {
            return wrong("a page must have at least one record");
        }
        if !(4096..=LONGEST_TRANSACTION).contains(&self.longest_transaction) {
            return wrong("the longest transaction must have between 4096 bytes and 256 GiB of log");
        }
        Ok(())
    }
}

/// Why a log could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LogOpenError {
    /// A configured value makes no sense.
    #[error("{0}")]
    Config(&'static str),
    /// The store cannot go on there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system gave no thread.
    #[error("cannot start the log's thread: {0}; check the limits on processes")]
    Thread(#[source] std::io::Error),
    /// Stragglers could not be nudged.
    #[error(
        "passive group commit cannot nudge stragglers: {0}; configure the other way of nudging, or another group commit"
    )]
    Nudge(#[source] std::io::Error),
    /// The operating system gave no memory for the ring.
    #[error("cannot get memory for the log's ring: {0}; make it smaller, or check the limits on memory")]
    Memory(#[source] std::io::Error),
    /// The buffer in persistent memory.
    #[cfg(not(loom))]
    #[error(transparent)]
    Buffer(#[from] crate::persist::BufferError),
    /// The standby's log cannot become a primary's.
    #[error(transparent)]
    Failed(#[from] LogFailure),
}

/// Why a wait for durability ended without it. The outcome is open, unless the log failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DurableError {
    /// The deadline passed; it may still become durable.
    #[error("the deadline passed before the log was durable up to there; the outcome is open")]
    Deadline,
    /// The log was closed below that place.
    #[error("the node stopped before the log was durable up to there; the outcome is open")]
    Stopped,
    /// The log failed; it will not become durable here, though a part may be on the medium.
    #[error("{0}; the outcome is open")]
    Failed(LogFailure),
}

#[derive(Debug)]
pub(crate) struct Shared {
    core: Arc<Core>,
    config: LogConfig,
    term: Term,
    /// The longest block that can be reserved: half the ring.
    longest: u64,
    /// Only stamps are taken: nothing is copied, and nobody flushes.
    volatile: bool,
    /// No more reservations.
    closing: AtomicBool,
    bounds: Bounds,
    ends: PartitionEnds,
    /// One for each stream.
    bells: Box<[CachePadded<Doorbell>]>,
    /// In the group commit kind `epoch`.
    epochs: Option<Epochs>,
    /// In the group commit kind `passive`, with a buffer in persistent memory.
    #[cfg(not(loom))]
    passive: Option<Passive>,
    /// Somebody waits until the log is durable up to here.
    wanted: AtomicU64,
    /// How many long transactions are being put into the ring, part by part.
    long: AtomicU64,
    sinks: Mutex<Sinks>,
    /// What the sinks have heard of; all there will ever be as long as there is none.
    handed: AtomicU64,
}

impl Shared {
    fn new(core: Arc<Core>, config: LogConfig, start: Stamp, term: Term, volatile: bool) -> Self {
        let capacity = core.buffer.capacity();
        Self {
            config,
            term,
            longest: (capacity / 2).min(MAX_BLOCK as u64),
            volatile,
            closing: AtomicBool::new(false),
            bounds: Bounds::new(config.writers),
            ends: PartitionEnds::new(config.partition, capacity),
            bells: (0..core.streams()).map(|_| CachePadded::new(Doorbell::new())).collect(),
            epochs: None,
            #[cfg(not(loom))]
            passive: None,
            wanted: AtomicU64::new(0),
            long: AtomicU64::new(0),
            sinks: Mutex::new(Sinks::new(start)),
            handed: AtomicU64::new(u64::MAX),
            core,
        }
    }

    #[inline]
    fn reserved(&self) -> &AtomicU64 {
        self.core.buffer.frontier()
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    #[inline]
    fn check_open(&self) -> Result<(), ReserveError> {
        // Relaxed: a closing log flushes what was reserved before the flag was seen.
        if self.core.failure().is_some() || self.closing.load(Ordering::Relaxed) {
            return Err(self.why_closed());
        }
        Ok(())
    }

    #[cold]
    fn why_closed(&self) -> ReserveError {
        self.core.failure().map_or(ReserveError::Closed, |failure| ReserveError::Failed(failure.clone()))
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        // Each change under this lock is one step, so it is whole even after a panic of a sink.
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes how far the log is filled and says so.
    fn refresh_filled(&self) -> Stamp {
        self.core.buffer.fill_to(Stamp(self.bounds.filled(self.reserved())));
        self.core.buffer.filled()
    }

    /// Up to where the log is filled, or will be at any moment.
    fn soon_filled(&self) -> u64 {
        match self.long.load(Ordering::SeqCst) {
            0 => self.reserved().load(Ordering::SeqCst),
            // What a long transaction has reserved may take its time.
            _ => self.bounds.filled(self.reserved()),
        }
    }

    fn somebody_waits(&self, done: Stamp) -> bool {
        self.wanted.load(Ordering::SeqCst) > done.0
    }

    /// Whether the group commit should not wait for more: somebody waits for an answer, or an epoch has ended.
    fn is_awaited(&self, done: Stamp) -> bool {
        match &self.epochs {
            Some(epochs) => epochs.ended() > done,
            None => self.somebody_waits(done),
        }
    }

    /// With a buffer in persistent memory: looks how far the log is durable, and says so. Nobody has to be waited for but
    /// stragglers, which are nudged if somebody waits for more than is durable.
    #[cfg(not(loom))]
    fn advance_persistent(&self, nudge: bool) -> Result<(), LogFailure> {
        let filled = self.refresh_filled();
        let reached = || self.passive.as_ref().map_or(filled, |passive| passive.oldest(filled));
        let mut durable = reached();
        if nudge && durable < filled {
            if let Some(passive) = &self.passive {
                passive.nudge();
            }
            durable = reached();
        }
        if durable > self.core.durable.get() {
            group_commit::hand_out(self, &mut Vec::new());
            group_commit::Watcher(self).durable(durable)?;
        }
        Ok(())
    }

    /// Asks the group commit to make `target` durable without waiting for a full batch.
    fn want(&self, target: Stamp) {
        // Most nudges find that somebody else asked for more already. SeqCst: Dekker with the bell.
        if self.wanted.load(Ordering::SeqCst) < target.0 {
            self.wanted.fetch_max(target.0, Ordering::SeqCst);
        }
        self.ring();
    }

    /// Wakes every group commit.
    fn ring(&self) {
        for bell in &self.bells {
            bell.ring();
        }
    }

    /// A partition is full, or will be at any moment: the group commit may have something to flush, or to hand out.
    fn nudge_if_large(&self, reserved: u64, stream: u8) {
        let is_due = reserved.saturating_sub(self.core.durable.get().0) >= self.config.batch_bytes;
        if is_due || self.unknown_to_sinks(reserved) >= self.early() {
            self.bells[usize::from(stream)].ring();
        }
    }

    /// How many bytes below `to` the sinks have not heard of; none where there are no sinks.
    fn unknown_to_sinks(&self, to: u64) -> u64 {
        // Relaxed: a hint; who misses a change hands out a little more at once.
        to.saturating_sub(self.handed.load(Ordering::Relaxed))
    }

    /// So much is handed out before a batch is due: a quarter of it, and not less than a partition, so that waking up for it costs little.
    fn early(&self) -> u64 {
        self.config.partition.max(self.config.batch_bytes / 4)
    }

    /// Whether there is something to hand out before a batch is due.
    fn is_early(&self) -> bool {
        self.unknown_to_sinks(self.bounds.filled(self.reserved())) >= self.early()
    }

    /// After the last flush: makes the watermark durable and ends every wait. A worker that was between looking whether the log is
    /// open and reserving may have come after that flush: what it reserved stays open.
    fn end(&self) {
        if let Some(epochs) = &self.epochs {
            match epochs.close() {
                Ok(end) => drop(self.core.durable.advance(end)),
                Err(failure) => return self.core.fail(failure),
            }
        }
        match self.core.store.as_ref().map_or(Ok(()), LogStore::sync_watermark) {
            Ok(()) => {
                self.core.durable.close();
                self.core.buffer.close();
            }
            Err(error) => self.core.fail(error.into()),
        }
    }

    /// Gives room back to workers: what is flushed, and what no sink needs, where sinks can read from nowhere else.
    fn release_room(&self) {
        #[cfg(not(loom))]
        if let Some(persistent) = self.core.buffer.persistent() {
            return self.core.buffer.release(persistent.destaged());
        }
        let limit = if self.core.store.is_some() {
            u64::MAX
        } else {
            // Acquire: pairs with the sinks' `release`.
            let sinks = self.sinks();
            sinks.seats.iter().map(|seat| seat.hold.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
        };
        self.core.buffer.release(Stamp(limit));
    }
}

/// The primary's log.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    start: Stamp,
}

impl Log {
    /// Starts a log at `start`, where `store` (if there is one) ends, in the reign `term`, with as many
    /// streams as the store has. Without a store the ring is all that is kept, as far as sinks hold it.
    ///
    /// # Errors
    /// [`LogOpenError`] for an impossible configuration, a store that cannot go on, or no thread.
    pub fn open(config: LogConfig, store: Option<LogStore>, start: Stamp, term: Term) -> Result<Self, LogOpenError> {
        config.check()?;
        if let Some(store) = &store {
            store.resume(start)?;
        }
        let (core, flushers) = Core::new(config.capacity, store, start, start);
        Self::on(core, flushers, config, start, term)
    }

    /// A log that takes stamps for at most `writers` at once, and keeps nothing: no block is built or
    /// copied. It counts as durable as far as stamps were taken.
    pub fn volatile(writers: usize, start: Stamp, term: Term) -> Self {
        let config = LogConfig {
            writers,
            capacity: 4096,
            partition: 4096,
            longest_transaction: u64::MAX,
            ..LogConfig::default()
        };
        let (core, _) = Core::new(config.capacity, None, start, start);
        Self { shared: Arc::new(Shared::new(core, config, start, term, true)), threads: Mutex::default(), start }
    }

    /// As [`Log::open`], with the buffer in persistent memory: a block is durable as soon as it is there, and the store gets it
    /// later. What an earlier buffer held must have been [recovered](crate::persist::recover_buffer).
    ///
    /// # Errors
    /// [`LogOpenError`] also for a buffer that cannot be made.
    #[cfg(not(loom))]
    pub fn open_persistent(
        config: LogConfig,
        persistence: &crate::persist::PersistenceConfig,
        store: LogStore,
        start: Stamp,
        term: Term,
    ) -> Result<Self, LogOpenError> {
        config.check()?;
        store.resume(start)?;
        let cluster = store.config().cluster;
        let buffer = crate::persist::buffer::PersistentBuffer::create(persistence, cluster, config.capacity, start)?;
        let memory = crate::buffer::Memory::persistent(buffer);
        let (core, flushers) = Core::with_memory(memory, Some(store), start, start);
        Self::on(core, flushers, config, start, term)
    }

    /// What lies under a buffer in persistent memory; none for one in plain memory.
    #[cfg(not(loom))]
    pub fn persistent_medium(&self) -> Option<(crate::persist::Medium, crate::persist::Method)> {
        self.shared.core.buffer.persistent().map(|buffer| (buffer.medium().clone(), buffer.method()))
    }

    /// How often stragglers of passive group commit were nudged.
    #[cfg(not(loom))]
    pub fn nudges(&self) -> u64 {
        self.shared.passive.as_ref().map_or(0, Passive::nudges)
    }

    /// Starts a log on a ring and store that exist and end at `start`.
    pub(crate) fn on(
        core: Arc<Core>,
        flushers: Vec<Flusher>,
        config: LogConfig,
        start: Stamp,
        term: Term,
    ) -> Result<Self, LogOpenError> {
        let mut shared = Shared::new(core, config, start, term, false);
        #[cfg(not(loom))]
        if let GroupCommitKind::Passive(nudge) = config.group_commit
            && shared.core.buffer.persistent().is_some()
        {
            shared.passive = Some(Passive::new(nudge, config.writers).map_err(LogOpenError::Nudge)?);
        }
        if let Some(store) = &shared.core.store {
            // It may have been a standby's, which has ended.
            store.set_patient(true);
        }
        shared.epochs = Epochs::begin(&config, shared.core.store.as_ref(), start)?;
        let shared = Arc::new(shared);
        let log = Self { shared: Arc::clone(&shared), threads: Mutex::default(), start };
        for flusher in flushers {
            let flushing = Arc::clone(&shared);
            let name = format!("log-persist-{}", flusher.stream());
            log.spawn(name, move || group_commit::run(&flushing, flusher, start))?;
        }
        if shared.epochs.is_some() {
            log.spawn("log-epoch".to_owned(), move || epoch::run(&shared))?;
        }
        Ok(log)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), LogOpenError> {
        let spawned = thread::Builder::new().name(name).spawn(run).map_err(LogOpenError::Thread)?;
        self.threads().push(spawned);
        Ok(())
    }

    /// A place for one worker.
    ///
    /// # Errors
    /// [`TooManyWriters`] when [`LogConfig::writers`] are in use.
    pub fn writer(&self) -> Result<Writer, TooManyWriters> {
        let slot = self.shared.bounds.claim().ok_or(TooManyWriters { limit: self.shared.bounds.limit() })?;
        #[cfg(not(loom))]
        if let Some(passive) = &self.shared.passive
            && !passive.join(slot)
        {
            self.shared.bounds.leave(slot);
            return Err(TooManyWriters { limit: self.shared.bounds.limit() });
        }
        let stream = self.shared.config.grouping.stream(slot, self.shared.bells.len());
        // A volatile log always has room.
        let room = if self.shared.volatile { u64::MAX } else { 0 };
        Ok(Writer { shared: Arc::clone(&self.shared), slot, stream, room, last: 0, stuck: false })
    }

    /// Attaches a sink: it gets every batch from [`SinkHandle::from`] on.
    ///
    /// # Panics
    /// When the log is volatile: it has no batches.
    pub fn attach(&self, sink: Arc<dyn Sink>) -> SinkHandle {
        assert!(!self.shared.volatile, "a volatile log has no batches");
        let mut sinks = self.shared.sinks();
        let from = sinks.handed;
        let seat = Arc::new(Seat { sink, hold: StdAtomicU64::new(from.0) });
        sinks.seats.push(Arc::clone(&seat));
        self.shared.handed.store(from.0, Ordering::Relaxed);
        drop(sinks);
        SinkHandle { shared: Arc::clone(&self.shared), seat, from }
    }

    /// Whether stamps are all that this log makes: nothing is copied, nothing is kept.
    pub fn is_volatile(&self) -> bool {
        self.shared.volatile
    }

    /// The reign in which this log is written.
    pub fn term(&self) -> Term {
        self.shared.term
    }

    /// How the log was set up.
    pub fn config(&self) -> &LogConfig {
        &self.shared.config
    }

    /// Where this log began; what lies below was there before.
    pub fn start(&self) -> Stamp {
        self.start
    }

    /// The stamps handed out so far end here.
    pub fn reserved(&self) -> Stamp {
        Stamp(self.shared.reserved().load(Ordering::SeqCst))
    }

    /// How far the log is filled without a gap, computed now.
    pub fn filled(&self) -> Stamp {
        self.shared.refresh_filled()
    }

    /// A transaction of at most this many bytes is put into the ring at once, a longer one in parts.
    pub fn longest_at_once(&self) -> u64 {
        (self.shared.longest / 4).max(1024)
    }

    /// About how long the parts of a long transaction are.
    pub fn part(&self) -> u64 {
        self.longest_at_once().min(PART)
    }

    /// The longest block, and so about the longest row.
    pub fn longest_block(&self) -> u64 {
        self.shared.longest
    }

    /// How far the log is durable here, block by block: it may be within a long transaction. A volatile log counts as durable as far as it is filled.
    pub fn durable(&self) -> Stamp {
        if self.shared.volatile {
            let filled = self.shared.refresh_filled();
            self.shared.core.durable.advance(filled);
        }
        self.shared.core.durable.get()
    }

    /// The durable watermark itself. That of a volatile log moves only when [`Log::durable`] or
    /// [`Log::wait_durable`] is called.
    pub fn durable_mark(&self) -> &Watermark {
        &self.shared.core.durable
    }

    /// Asks the group commit not to wait for more once everything below `target` is filled: for whoever is about to wait for it.
    pub fn nudge(&self, target: Stamp) {
        if self.shared.volatile || self.shared.core.durable.get() >= target {
            return;
        }
        #[cfg(not(loom))]
        if self.shared.core.buffer.persistent().is_some() {
            // Nobody has to be woken for that.
            if let Err(failure) = self.shared.advance_persistent(true) {
                self.shared.core.fail(failure);
            }
            if self.shared.core.durable.get() >= target {
                return;
            }
        }
        self.shared.want(target);
    }

    /// Blocks until the log is durable up to `target`, and returns how far it then is.
    ///
    /// # Errors
    /// [`DurableError`]; in every case the outcome is open.
    pub fn wait_durable(&self, target: Stamp, deadline: Option<Instant>) -> Result<Stamp, DurableError> {
        if self.shared.volatile {
            let durable = self.durable();
            if durable >= target {
                return Ok(durable);
            }
        }
        self.nudge(target);
        self.shared.core.durable.wait(target, deadline).map_err(|error| match error {
            WaitError::Deadline => DurableError::Deadline,
            WaitError::Closed => match self.failure() {
                Some(failure) => DurableError::Failed(failure),
                None => DurableError::Stopped,
            },
        })
    }

    /// Why the log takes nothing more, if it failed.
    pub fn failure(&self) -> Option<LogFailure> {
        self.shared.core.failure().cloned()
    }

    /// What the log waits for, if a segment cannot be made for want of room.
    pub fn lack(&self) -> Option<Lack> {
        self.shared.core.store.as_ref()?.lack()
    }

    /// Whether there is enough room on the medium for what is to come. Cheap.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.shared.core.store.as_ref().is_none_or(LogStore::has_room)
    }

    /// Whether nothing becomes durable at the moment, or ever again: the log waits for room, or has
    /// failed. Cheap.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.shared.core.failure().is_some() || self.shared.core.store.as_ref().is_some_and(LogStore::is_stalled)
    }

    /// Fills `into` with the log from `at` on, from the ring or the store.
    ///
    /// # Errors
    /// [`ReadError`]; `into` is undefined then.
    pub fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), ReadError> {
        if at.0.saturating_add(into.len() as u64) > self.shared.core.buffer.filled().0 {
            self.shared.refresh_filled();
        }
        self.shared.core.read(at, into)
    }

    /// A handle that reads this log from any thread.
    pub fn reader(&self) -> LogReader {
        LogReader { core: Arc::clone(&self.shared.core) }
    }

    /// The stream of a record's page, where blocks are divided by pages; none where they are not, or there is one stream only.
    #[inline]
    pub fn stream_of(&self, fid: Fid, rid: Rid) -> Option<u8> {
        match self.shared.config.division {
            Division::Page(records) if self.shared.bells.len() > 1 => {
                Some(((rid.0 / records + u64::from(fid.0)) % self.shared.bells.len() as u64) as u8)
            }
            _ => None,
        }
    }

    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.shared.bells.len()
    }

    /// What the log did so far.
    pub fn statistics(&self) -> LogStatistics {
        self.shared.core.statistics()
    }

    /// Writes the first block of a term: `node` reigns from here on. Returns where it ends.
    ///
    /// # Errors
    /// [`ReserveError`] as for every block.
    ///
    /// # Panics
    /// When every writer's place is taken: the term begins before there are workers.
    pub fn begin_term(&self, node: NodeId) -> Result<Stamp, ReserveError> {
        let mut writer = self.writer().expect("a term begins before there are workers");
        writer.mark(MARK_BLOCK, |stamp| term_block(stamp, self.shared.term, node))
    }

    /// Takes no more reservations, flushes what was reserved, makes the watermark durable and ends
    /// the group commit. Blocks until every reservation under way is filled or dropped. Room on the
    /// medium is not waited for any more.
    ///
    /// # Errors
    /// [`LogFailure`] when the log failed, now or before.
    pub fn close(&self) -> Result<(), LogFailure> {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.ring();
        if let Some(store) = &self.shared.core.store {
            store.set_patient(false);
        }
        if let Some(epochs) = &self.shared.epochs {
            epochs.stop();
        }
        let threads = std::mem::take(&mut *self.threads());
        let ends = !threads.is_empty();
        for thread in threads {
            if thread.join().is_err() {
                self.shared.core.fail(LogFailure::bug());
            }
        }
        if self.shared.volatile {
            self.durable();
            self.shared.core.durable.close();
        } else if ends && self.failure().is_none() {
            self.shared.end();
        }
        if let Some(store) = &self.shared.core.store {
            store.finish();
        }
        self.failure().map_or(Ok(()), Err)
    }
}

impl Log {
    /// Ends the log as a crash would: nothing is flushed any more. For tests of what is left.
    #[doc(hidden)]
    pub fn crash_for_test(&self) {
        self.shared.core.fail(LogFailure::bug());
        self.shared.ring();
        let _ = self.close();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Whoever wanted to know about a failure has called `close`.
        let _ = self.close();
    }
}
