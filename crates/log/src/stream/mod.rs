//! The log of a node: who fills it, what makes it durable, who else gets it.
//!
//! There is one order of LSNs and one ring, addressed by them, and there are N streams; each has
//! a thread that persists its blocks (SiloR, section 3.3). With N = 1 this is Query Fresh's log.
//!
//! | | |
//! |---|---|
//! | filled by | [`workers`], who reserve and copy their blocks; or a [`receiver`], who gets them from the node that has workers. Promotion puts workers in the receiver's place |
//! | made durable by | the store's files; or persistent memory, which the ring is in, while the store gets it later ([`pmem`]); or nothing |
//! | when | [`group_commit`] says when a batch is due, and what is told as durable |
//! | by whom | the threads `persist-N`, all of them in the one loop of [`persist`] |
//! | told to | [sinks](Sink), and those who wait for the watermark |
//!
//! Watermarks, each at or below the one before: `reserved` (LSNs handed out), `filled` (no gap
//! below), `durable` (persistent here), `stored` (persistent in the store).
//!
//! # Access protocol
//!
//! A stream's flusher, and how far its blocks are `done`, belong to the holder of its mutex: its
//! thread, for one flush at a time, and a cut, which takes all of them, so it never meets a flush.
//! What a thread flushes is looked up when it has the mutex: after a cut it is less. What there is
//! to do (the ring's end or `filled`, `wanted`, `wanted_stored`, `closing`) is stored before the
//! look at the bell; the thread looks at it after it has announced its sleep (module `doorbell`).

pub(crate) mod bounds;
mod config;
pub(crate) mod dirty;
pub(crate) mod doorbell;
mod ends;
mod epoch;
mod group_commit;
mod passive;
pub(crate) mod persist;
mod pmem;
mod receiver;
mod sink;
mod workers;
mod writer;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use crossbeam_utils::CachePadded;
use freshet_base::{Lsn, Regularly, Stage, Term, WaitError, Watermark, wait::Patience};

use crate::{
    buffer::{Flusher, RingMemory},
    core::{Core, LogFailure, LogReader, LogStatistics, ReadError},
    hang,
    persist::{Medium, Method},
    store::LogStore,
};
use doorbell::Doorbell;
use group_commit::{AtOnce, Destaging, GroupCommit};
use persist::Fill;
pub(crate) use pmem::Pmem;
use receiver::Received;
use sink::{Seat, Sinks};
use workers::Workers;

pub use self::{
    config::{
        Division, DurableError, ForceFence, GroupCommitKind, Grouping, LogConfig, LogOpenError, Persistence,
        ReceiveConfig,
    },
    receiver::{AcceptError, Accepted, ReceiveError, Receiver, Writable},
    sink::{Batch, Noting, Sink, SinkHandle},
    writer::{Reservation, ReserveError, TooManyWriters, Writer},
};

/// What stays for a log's life, by whom it is filled.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Arc<Core>,
    /// Nothing more is filled.
    closing: AtomicBool,
    /// Of each stream: how far it is in the store, and who writes it there.
    streams: Box<[CachePadded<Stream>]>,
    /// Of each thread: one for each stream, and perhaps one for persistent memory.
    bells: Box<[CachePadded<Doorbell>]>,
    /// Somebody waits until the log is durable up to here.
    wanted: AtomicU64,
    /// How far blocks have arrived, where a receiver fills the log; the end of one.
    received: Watermark,
    /// Everything below is durable in the store.
    stored: Watermark,
    /// Somebody waits until the store has everything below.
    wanted_stored: AtomicU64,
    sinks: Mutex<Sinks>,
    /// What the sinks have heard of; all there will ever be as long as no sink is attached.
    handed: AtomicU64,
    /// How many want to know where rows differ from those that they replace.
    noting: AtomicUsize,
}

#[derive(Debug)]
struct Stream {
    flusher: Mutex<Flusher>,
    done: AtomicU64,
}

impl Stream {
    fn flusher(&self) -> MutexGuard<'_, Flusher> {
        self.flusher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn new(core: Arc<Core>, flushers: Vec<Flusher>, start: Lsn) -> Self {
        let stream = |flusher| Stream { flusher: Mutex::new(flusher), done: AtomicU64::new(start.0) };
        Self {
            closing: AtomicBool::new(false),
            bells: (0..=flushers.len()).map(|_| CachePadded::new(Doorbell::new())).collect(),
            streams: flushers.into_iter().map(stream).map(CachePadded::new).collect(),
            wanted: AtomicU64::new(0),
            received: Watermark::new(start),
            stored: Watermark::new(start),
            wanted_stored: AtomicU64::new(0),
            sinks: Mutex::new(Sinks::new(start)),
            handed: AtomicU64::new(u64::MAX),
            noting: AtomicUsize::new(0),
            core,
        }
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        // Each change under this lock is one step, so it is whole even after a panic of a sink.
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for `target` to be made durable without waiting for a full batch.
    fn want(&self, target: Lsn) {
        // Most find that somebody else asked for more already. SeqCst: Dekker with the bell.
        if self.wanted.load(Ordering::SeqCst) < target.0 {
            self.wanted.fetch_max(target.0, Ordering::SeqCst);
        }
        self.ring();
    }

    /// Wakes every thread that persists.
    fn ring(&self) {
        for bell in &self.bells {
            bell.ring();
        }
    }

    /// What was handed to sinks at `at` and above is taken back.
    fn cut_sinks(&self, at: Lsn) {
        let mut sinks = self.sinks();
        if at < sinks.handed {
            sinks.handed = at;
            self.handed.fetch_min(if sinks.seats.is_empty() { u64::MAX } else { at.0 }, Ordering::Relaxed);
            for seat in &sinks.seats {
                seat.hold.fetch_min(at.0, Ordering::AcqRel);
                seat.sink.cut(at);
            }
        }
    }

    /// How many bytes below `to` the sinks have not heard of; none where there are no sinks.
    fn unknown_to_sinks(&self, to: u64) -> u64 {
        // Relaxed: a hint; who misses a change hands out a little more at once.
        to.saturating_sub(self.handed.load(Ordering::Relaxed))
    }

    /// Gives room back: what the streams' flushers, those who replay, and persistent memory are
    /// done with, and, where they can read from nowhere else, what no sink needs.
    fn release_room(&self) {
        let mut limit = self.core.pmem.free_until().0;
        if self.core.store.is_none() {
            let sinks = self.sinks();
            // Acquire: pairs with the sinks' `release`; their reads come before the room is given
            // up.
            limit = sinks.seats.iter().map(|seat| seat.hold.load(Ordering::Acquire)).fold(limit, u64::min);
        }
        self.core.buffer.release(Lsn(limit));
    }

    /// The log failed; nobody waits any longer.
    fn fail(&self, failure: LogFailure) {
        self.core.fail(failure);
        self.received.close();
        self.stored.close();
        self.ring();
    }
}

/// What is at work: ends with the log, or with a promotion.
#[derive(Debug, Default)]
struct Running {
    threads: Vec<JoinHandle<()>>,
    fill: Option<Arc<dyn Fill>>,
    /// Looks whether the media answer.
    watch: Option<Regularly>,
}

/// A node's log; see the module.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    /// Who fills it: always one of the two; after a promotion, the workers.
    workers: OnceLock<Arc<Workers>>,
    received: Option<Arc<Received>>,
    running: Mutex<Running>,
}

impl Log {
    /// Starts a log that workers fill at `start`, where the store (if there is one) ends, in the
    /// lead `term`, with as many streams as the store has. What an earlier buffer in persistent
    /// memory held must have been [recovered](crate::persist::recover_buffer).
    ///
    /// # Errors
    /// [`LogOpenError`] for an impossible configuration, a store that cannot go on, a buffer that
    /// cannot be made, or no thread.
    pub fn open(
        config: LogConfig,
        persistence: impl Into<Persistence>,
        start: Lsn,
        term: Term,
    ) -> Result<Self, LogOpenError> {
        config.check()?;
        let (core, flushers) = Core::open(persistence.into(), config.capacity, None, start, start)?;
        let log = Self::on(Arc::new(Shared::new(core, flushers, start)), None);
        log.begin(config, start, term)?;
        Ok(log)
    }

    /// A log that takes LSNs for at most `writers` at once, and keeps nothing: no block is built
    /// or copied. It counts as durable as far as LSNs were taken.
    pub fn volatile(writers: usize, start: Lsn, term: Term) -> Self {
        let (core, flushers) = Core::of_memory(4096, start);
        let log = Self::on(Arc::new(Shared::new(core, flushers, start)), None);
        let workers = Workers::volatile(Arc::clone(&log.shared), writers, start, term);
        let _ = log.workers.set(Arc::new(workers));
        log
    }

    /// Starts a log that receives its blocks at `start`, where the store ends, with a ring of
    /// `capacity` bytes (a power of two, at least 4096). A node without a disk has a store in
    /// memory ([`LogStore::in_memory`]): the log is the database.
    ///
    /// # Errors
    /// As for [`Log::open`].
    pub fn receive(
        capacity: usize,
        persistence: impl Into<Persistence>,
        start: Lsn,
    ) -> Result<(Self, Receiver), LogOpenError> {
        Self::receive_with(&ReceiveConfig { capacity, ..ReceiveConfig::default() }, persistence, start)
    }

    /// The same with all that can be configured.
    ///
    /// # Errors
    /// As for [`Log::open`].
    pub fn receive_with(
        config: &ReceiveConfig,
        persistence: impl Into<Persistence>,
        start: Lsn,
    ) -> Result<(Self, Receiver), LogOpenError> {
        Self::receive_within(config, persistence.into(), start, start)
    }

    /// The same where `start` may be within a transaction, and `whole` is where that begins.
    pub(crate) fn receive_within(
        config: &ReceiveConfig,
        persistence: Persistence,
        start: Lsn,
        whole: Lsn,
    ) -> Result<(Self, Receiver), LogOpenError> {
        config.check()?;
        let (core, flushers) = Core::open(persistence, config.capacity, Some(config.huge_pages), start, whole)?;
        if let Some(store) = &core.store {
            // What is received here was committed or will be cut: no epoch of an earlier term says
            // anything about it.
            store.stream(0).end_epochs()?;
        }
        core.buffer.replay_from(start);
        let in_pmem = core.pmem.is_there();
        let shared = Shared::new(core, flushers, start);
        let kind: Arc<dyn GroupCommit> =
            if in_pmem { Arc::new(Destaging::received(config.capacity as u64)) } else { Arc::new(AtOnce) };
        let shared = Arc::new(shared);
        let received = Received::new(config, Arc::clone(&shared), kind, whole);
        let log = Self::on(shared, Some(Arc::clone(&received)));
        let at_once = log.shared.core.pmem.is_at_once();
        log.start_threads(Arc::clone(&received) as _, in_pmem && !received.upon_replay && !at_once)?;
        Ok((log, Receiver::new(received)))
    }

    fn on(shared: Arc<Shared>, received: Option<Arc<Received>>) -> Self {
        Self { shared, workers: OnceLock::new(), received, running: Mutex::default() }
    }

    /// Has workers fill the log from `start` on, where it ends.
    fn begin(&self, config: LogConfig, start: Lsn, term: Term) -> Result<(), LogOpenError> {
        let workers = Arc::new(Workers::new(Arc::clone(&self.shared), config, start, term)?);
        assert!(self.workers.set(Arc::clone(&workers)).is_ok(), "a log is promoted once");
        self.start_threads(Arc::clone(&workers) as _, false)?;
        if let Some(epochs) = workers.epochs() {
            let (shared, epochs) = (Arc::clone(&self.shared), Arc::clone(epochs));
            self.spawn("log-epoch".to_owned(), move || epoch::run(&shared, &epochs))?;
        }
        Ok(())
    }

    /// Starts the threads that persist what `fill` fills; with `lines`, one that does so in
    /// persistent memory.
    fn start_threads(&self, fill: Arc<dyn Fill>, lines: bool) -> Result<(), LogOpenError> {
        // First: to end its threads needs it.
        self.running().fill = Some(Arc::clone(&fill));
        self.running().watch = self.shared.core.store.as_ref().and_then(hang::watch);
        let streams = self.shared.streams.len();
        for number in 0..streams + usize::from(lines) {
            let (shared, fill) = (Arc::clone(&self.shared), Arc::clone(&fill));
            self.spawn(Stage::Persist.thread(number), move || persist::run(&shared, &*fill, number))?;
        }
        Ok(())
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), LogOpenError> {
        let spawned = thread::Builder::new().name(name).spawn(run).map_err(LogOpenError::Thread)?;
        self.running().threads.push(spawned);
        Ok(())
    }

    /// Those who fill it.
    #[inline]
    fn workers(&self) -> &Arc<Workers> {
        self.workers.get().expect("this log has workers")
    }

    /// The one who receives it.
    fn received_by(&self) -> &Arc<Received> {
        self.received.as_ref().expect("this log was opened to receive")
    }

    // --- what both have --------------------------------------------------------------------

    /// Attaches a sink: it gets every batch from [`SinkHandle::from`] on.
    ///
    /// # Panics
    /// When the log is volatile: it has no batches.
    pub fn attach(&self, sink: Arc<dyn Sink>) -> SinkHandle {
        assert!(!self.is_volatile(), "a volatile log has no batches");
        let mut sinks = self.shared.sinks();
        let from = sinks.handed;
        let seat = Arc::new(Seat { sink, hold: AtomicU64::new(from.0) });
        sinks.seats.push(Arc::clone(&seat));
        self.shared.handed.store(from.0, Ordering::Relaxed);
        drop(sinks);
        SinkHandle { shared: Arc::clone(&self.shared), seat, from }
    }

    /// As long as the value lives, updates note where their rows differ from those that they
    /// replace ([`RecordHeader::changed`](crate::block::RecordHeader::changed)), which costs those
    /// who make blocks a comparison. A hint: some have it later, and some not at all.
    pub fn note_changes(&self) -> Noting {
        Noting::new(Arc::clone(&self.shared))
    }

    /// Whether updates are to note that.
    #[inline]
    pub fn notes_changes(&self) -> bool {
        // Relaxed: as in `Noting`.
        self.shared.noting.load(Ordering::Relaxed) > 0
    }

    /// Below this, no sink needs the log any more.
    pub fn needed_by_sinks(&self) -> Lsn {
        self.shared.sinks().seats.iter().map(|seat| seat.sink.needed()).min().unwrap_or(Lsn::MAX)
    }

    /// Whether LSNs are all that this log makes: nothing is copied, nothing is kept.
    pub fn is_volatile(&self) -> bool {
        self.workers.get().is_some_and(|workers| workers.volatile)
    }

    /// How far the log is filled without a gap, computed now.
    pub fn filled(&self) -> Lsn {
        self.workers.get().map_or_else(|| self.shared.core.buffer.filled(), |workers| workers.filled())
    }

    /// How far the log is durable here, block by block: it may be within a long transaction. A
    /// volatile log counts as durable as far as it is filled.
    pub fn durable(&self) -> Lsn {
        if self.is_volatile() {
            self.shared.core.durable.advance(self.filled());
        }
        self.shared.core.durable.get()
    }

    /// The durable watermark itself. That of a volatile log moves only when [`Log::durable`] or
    /// [`Log::wait_durable`] is called.
    pub fn durable_mark(&self) -> &Watermark {
        &self.shared.core.durable
    }

    /// Blocks until the store has everything below `to`, durably, all of which was persisted
    /// before. Where the store is what persists the log, it has.
    ///
    /// # Errors
    /// [`WaitError::Closed`] when the log failed or was closed.
    pub fn wait_stored(&self, to: Lsn) -> Result<(), WaitError> {
        if self.shared.stored.get() < to {
            self.shared.wanted_stored.fetch_max(to.0, Ordering::SeqCst);
            self.shared.ring();
        }
        self.shared.stored.wait(to, None).map(|_| ())
    }

    /// Whether the log takes nothing more, since it failed. Cheap.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.shared.core.failure().is_some()
    }

    /// Why the log takes nothing more, if it failed.
    pub fn failure(&self) -> Option<LogFailure> {
        self.shared.core.failure().cloned()
    }

    /// Fills `into` with the log from `at` on, from the ring or the store.
    ///
    /// # Errors
    /// [`ReadError`]; `into` is undefined then.
    pub fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), ReadError> {
        if at.0.saturating_add(into.len() as u64) > self.shared.core.buffer.filled().0 {
            self.filled();
        }
        self.shared.core.read(at, into)
    }

    /// A handle that reads this log from any thread, also after a promotion.
    pub fn reader(&self) -> LogReader {
        LogReader { core: Arc::clone(&self.shared.core) }
    }

    /// The store behind it.
    ///
    /// # Panics
    /// When the log has no store.
    pub fn store(&self) -> &LogStore {
        self.shared.core.store.as_ref().expect("this log has a store")
    }

    /// Whether there is one. Without, sinks hold what they have yet to read
    /// ([`SinkHandle::release`]).
    pub fn has_store(&self) -> bool {
        self.shared.core.store.is_some()
    }

    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.shared.streams.len()
    }

    /// What the log did so far.
    pub fn statistics(&self) -> LogStatistics {
        self.shared.core.statistics()
    }

    /// What lies under a ring in persistent memory, and how it becomes durable; none for one in
    /// plain memory.
    pub fn persistent_medium(&self) -> Option<(Medium, Method)> {
        self.shared.core.pmem.medium()
    }

    /// Takes nothing more, persists what was reserved or received, and ends the threads. Blocks
    /// until every reservation under way is filled or dropped. Room on the medium is not waited for
    /// any more.
    ///
    /// # Errors
    /// [`LogFailure`] when the log failed, now or before.
    pub fn close(&self) -> Result<(), LogFailure> {
        self.stop();
        self.durable();
        if !self.has_failed() {
            self.shared.core.close();
        }
        self.shared.received.close();
        self.shared.stored.close();
        self.failure().map_or(Ok(()), Err)
    }

    /// Everything filled becomes durable, and nothing is at work any more.
    fn stop(&self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.ring();
        let store = self.shared.core.store.as_ref();
        if let Some(store) = store {
            store.set_patient(false);
        }
        let Running { threads, fill, watch } = std::mem::take(&mut *self.running());
        if let Some(fill) = &fill {
            fill.kind().stop();
        }
        for thread in threads {
            if thread.join().is_err() {
                self.shared.fail(LogFailure::bug());
            }
        }
        drop(watch);
        if let Some(fill) = fill
            && !self.has_failed()
        {
            let ended = fill.kind().close().and_then(|end| {
                self.shared.core.durable.advance(end);
                store.map_or(Ok(()), |store| {
                    store.sync_watermark(self.shared.core.runs.rest()).map_err(LogFailure::from)
                })
            });
            if let Err(failure) = ended {
                self.shared.fail(failure);
            }
        }
        if let Some(store) = store {
            store.finish();
        }
    }

    // --- filled by a receiver ------------------------------------------------------------------

    /// How far blocks have arrived; the end of one.
    pub fn received(&self) -> &Watermark {
        &self.shared.received
    }

    /// The last known end of a transaction at or below `at`, which is at or above all that was
    /// asked for before. Block by block, the log may have been received, persisted or replayed up
    /// to a place within a transaction; what is shown, and what a new term begins with, ends here.
    pub fn transaction_end(&self, at: Lsn) -> Lsn {
        let mut ends = self.received_by().ends();
        let end = ends.below(at);
        ends.forget(end);
        end
    }

    /// Blocks until what was received is persistent up to `to`; false when the patience ends first.
    ///
    /// # Errors
    /// [`ReceiveError`] when it never will be.
    pub fn wait_persisted<'a>(&self, to: Lsn, patience: impl Into<Patience<'a>>) -> Result<bool, ReceiveError> {
        match self.durable_mark().wait(to, patience) {
            Ok(_) => Ok(true),
            Err(WaitError::Deadline | WaitError::Interrupted) => Ok(false),
            Err(WaitError::Closed) => Err(self.failure().map_or(ReceiveError::Closed, ReceiveError::Failed)),
        }
    }

    /// Whether those who replay persist too, by [`Log::persist_share`] and [`Log::note_persisted`],
    /// before they replay.
    pub fn persists_upon_replay(&self) -> bool {
        self.received_by().upon_replay
    }

    /// Makes `[from, to)` durable in a ring in persistent memory, which was received and not
    /// replayed yet: the share of the calling thread, which is one of several (persist-upon-replay;
    /// Query Fresh, section 3.1). Nothing is said of it before [`Log::note_persisted`].
    pub fn persist_share(&self, from: Lsn, to: Lsn) {
        let to = to.min(self.received().get());
        if from < to {
            self.shared.core.pmem.persist_received(from, to);
        }
    }

    /// Says that all shares of what lies below `to` are durable. Where the store is what persists
    /// the log, that is for the store to say.
    ///
    /// # Errors
    /// [`LogFailure`] when the log has failed: nothing counts as durable any more.
    pub fn note_persisted(&self, to: Lsn) -> Result<(), LogFailure> {
        if self.shared.core.pmem.is_there() { self.received_by().note_persisted(to) } else { Ok(()) }
    }

    /// Says that replay is done with everything below `to`.
    pub fn note_replayed(&self, to: Lsn) {
        self.shared.core.buffer.note_replayed(to);
        self.shared.release_room();
    }

    /// The ring's size in bytes.
    pub fn capacity(&self) -> u64 {
        self.shared.core.buffer.capacity()
    }

    /// Others may write up to here: the ring's size beyond what is both replayed and in the store.
    pub fn free_until(&self) -> Lsn {
        self.shared.core.buffer.released().plus(self.capacity())
    }

    /// Lets somebody else write into the ring, and says up to where: as [`Log::free_until`], but at
    /// most half the ring beyond what was received, so that readers find the newest half there.
    /// What was granted once stays so until the memory is [renewed](Receiver::renew);
    /// [`Receiver::accept`] takes what was written. A block is never longer than half its primary's
    /// ring, so whatever may come next fits.
    pub fn grant(&self) -> Lsn {
        let buffer = &self.shared.core.buffer;
        let to = self.free_until().min(self.received().get().plus(buffer.capacity() / 2));
        // Before the writer is told: protocol "Remote writers" of the ring.
        buffer.claim(to);
        std::sync::atomic::fence(Ordering::SeqCst);
        to
    }

    /// The ring's memory, for those who write there from outside.
    pub fn shared_memory(&self) -> RingMemory {
        self.shared.core.buffer.shared_memory().expect("a ring that receives can be mapped")
    }

    /// Has workers fill the log in the term `term`, in the place of `receiver`, from where it was
    /// received up to; everything received is durable then. Readers and sinks continue.
    /// `config.capacity` is ignored: the ring stays, but others that have mapped it lose it
    /// ([`Receiver::renew`]).
    ///
    /// # Errors
    /// [`LogOpenError`]; the log is closed then.
    pub fn promote(&self, mut receiver: Receiver, config: LogConfig, term: Term) -> Result<(), LogOpenError> {
        assert!(receiver.is_of(self.received_by()), "the receiver of this log");
        let core = &self.shared.core;
        let config = LogConfig { capacity: core.buffer.capacity() as usize, ..config };
        config.check()?;
        self.stop();
        if let Some(failure) = self.failure() {
            return Err(failure.into());
        }
        let end = self.received().get();
        assert_eq!(core.durable.get(), end, "everything received was persisted");
        assert_eq!(self.received_by().ends().last(), end, "half a transaction was cut off");
        assert_eq!(self.shared.stored.get(), end, "everything received is in the store");
        // Before the first block: the former primary may still have the ring mapped, and continue.
        receiver.renew().map_err(LogOpenError::Memory)?;
        // What came and never counted must not continue what is written now.
        core.pmem.take_back(end, core.buffer.claimed());
        core.buffer.restart(end);
        core.buffer.replay_from(Lsn::MAX);
        self.shared.release_room();
        self.shared.closing.store(false, Ordering::SeqCst);
        if let Some(store) = &core.store {
            store.set_patient(true);
        }
        self.begin(config, end, term)
    }

    /// Ends the log as a crash would: nothing is persisted, or put into the store, any more. For
    /// tests of what is left.
    #[doc(hidden)]
    pub fn crash_for_test(&self) {
        self.shared.fail(LogFailure::bug());
        let _ = self.close();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A caller that wants to know about a failure has called `close`.
        let _ = self.close();
    }
}
