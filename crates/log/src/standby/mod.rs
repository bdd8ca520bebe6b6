//! A standby's log: bytes arrive in the ring, are persisted from there, and are read from there by replay.
//!
//! There are no workers. One [`Receiver`] puts the primary's bytes where they belong, or lets somebody else do that;
//! the caller says how far it has replayed. `received >= persisted`, and what is both in the store and replayed gives
//! its room back (ready to receive, Query Fresh section 3.2).
//!
//! | ring | persisted is what | by whom |
//! |---|---|---|
//! | [plain](StandbyRing::Plain) | is durable in the store | a thread for each stream of it |
//! | [persistent](StandbyRing::Persistent) | is flushed and fenced in the ring; the store gets it later, by those threads (de-staging) | all replay threads, each its share ([`StandbyLog::persist_share`]; persist-upon-replay, section 3.1), or one thread |
//!
//! # Access protocol
//!
//! Only the holder of the [`Receiver`] writes to the ring above `received`, or cuts, or moves it. The flusher is behind
//! a mutex that its thread takes for one flush at a time; a cut takes it too, so it never meets a flush. What there is
//! to do (`arrived`, `persisted`, `wanted`) is stored before the look at the bell; the thread looks at it after it
//! announced its sleep. `persisting` is held by whoever moves `persisted`, and by a cut: nothing is persisted any more
//! that was cut meanwhile.

mod receiver;
mod threads;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    thread::{self, JoinHandle},
};

use freshet_base::{Stamp, Term, WaitError, Watermark};

pub use self::receiver::{AcceptError, Accepted, ReceiveError, Receiver, Writable};
#[cfg(not(loom))]
use crate::{
    buffer::RingMemory,
    persist::{Medium, Method, PersistenceConfig, buffer::PersistentBuffer},
};
use crate::{
    buffer::{Flusher, Memory},
    core::{Core, FlushWatcher, LogFailure, LogReader, LogStatistics},
    segments::Lack,
    store::LogStore,
    stream::{Log, LogConfig, LogOpenError, doorbell::Doorbell},
    transaction_ends::TransactionEnds,
};

/// Where a standby's ring is, and so what persists what it receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StandbyRing {
    /// In plain memory: the store persists the log ("No-NVRAM", Query Fresh, section 4.10).
    Plain {
        /// Whether huge pages are asked for.
        huge_pages: bool,
    },
    /// In persistent memory, which persists the log; the store gets it in the background.
    #[cfg(not(loom))]
    Persistent {
        /// Where, and how it becomes durable.
        persistence: PersistenceConfig,
        /// Whether those who replay persist, each its share; else a thread of the log does it alone.
        upon_replay: bool,
    },
}

#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    received: Watermark,
    /// As `received`; for the bell's protocol.
    arrived: AtomicU64,
    replayed: AtomicU64,
    /// Where transactions end, as far as they were received.
    ends: Mutex<TransactionEnds>,
    closing: AtomicBool,
    bells: Box<[Doorbell]>,
    /// One for each stream.
    flushers: Box<[Mutex<Option<Flusher>>]>,
    /// How far each of them is; changed by whoever has it.
    done: Box<[AtomicU64]>,
    /// With a ring in persistent memory.
    nvm: Option<Nvm>,
    /// Told of blocks that record members.
    on_members: Mutex<Option<OnMembers>>,
}

/// Whoever wants to know what blocks of members record.
struct OnMembers(Hear);

/// Is told of in-sync sets, as they were recorded.
type Hear = Box<dyn Fn(&[u8]) + Send + Sync>;

impl std::fmt::Debug for OnMembers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnMembers")
    }
}

/// What there is more where the ring is in persistent memory.
#[derive(Debug)]
struct Nvm {
    /// As `core.durable`; for the bells' protocol.
    persisted: AtomicU64,
    persisting: Mutex<()>,
    upon_replay: bool,
    /// Of the thread that persists, if those who replay do not.
    bell: Doorbell,
    /// Everything below is durable in the store.
    stored: Watermark,
    /// Somebody waits until the store has everything below.
    wanted: AtomicU64,
    /// So much is put into the store at once, if nobody waits for it.
    enough: u64,
}

impl Shared {
    fn flusher(&self, stream: usize) -> MutexGuard<'_, Option<Flusher>> {
        self.flushers[stream].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> MutexGuard<'_, TransactionEnds> {
        // Whole after a panic, too: it is changed in one step at the end.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back the room of what is in the store and replayed.
    fn release_room(&self) {
        // Acquire: pairs with the release half in `note_replayed`; the replay's reads come before the room is given up.
        let replayed = Stamp(self.replayed.load(Ordering::Acquire));
        #[cfg(not(loom))]
        if let Some(persistent) = self.core.buffer.persistent() {
            return self.core.buffer.release(replayed.min(persistent.destaged()));
        }
        self.core.buffer.release(replayed);
    }

    fn ring(&self) {
        for bell in self.bells.iter().chain(self.nvm.as_ref().map(|nvm| &nvm.bell)) {
            bell.ring();
        }
    }

    /// Up to where a stream's share may be put into the store: what has arrived, or what is durable in the ring.
    fn flushable(&self) -> Stamp {
        Stamp(self.nvm.as_ref().map_or(&self.arrived, |nvm| &nvm.persisted).load(Ordering::SeqCst))
    }

    /// Puts a stream's share of everything below `to` into the store; returns whether there was something.
    fn flush_share(&self, flusher: &mut Flusher, to: Stamp) -> Result<bool, LogFailure> {
        let done = &self.done[flusher.stream()];
        let from = Stamp(done.load(Ordering::SeqCst));
        if from >= to {
            return Ok(false);
        }
        // Entered before `arrived` moved there.
        let whole = self.ends().below(to);
        self.core.flush(flusher, from, to, whole, &self)?;
        done.store(to.0, Ordering::SeqCst);
        Ok(true)
    }

    /// Everything below `to` is durable in the ring, as far as it has arrived.
    fn note_persisted(&self, to: Stamp) -> Result<(), LogFailure> {
        let Some(nvm) = &self.nvm else { return Ok(()) };
        let guard = nvm.persisting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = self.core.failure() {
            return Err(failure.clone());
        }
        let to = to.min(Stamp(self.arrived.load(Ordering::SeqCst)));
        nvm.persisted.fetch_max(to.0, Ordering::SeqCst);
        self.core.durable.advance(to);
        drop(guard);
        for (stream, bell) in self.bells.iter().enumerate() {
            if self.is_due(stream) {
                bell.ring();
            }
        }
        Ok(())
    }

    /// Makes durable in the ring what has arrived; returns whether there was something.
    #[cfg(not(loom))]
    fn persist_arrived(&self) -> Result<bool, LogFailure> {
        let Some(nvm) = &self.nvm else { return Ok(false) };
        let (from, to) = {
            // Held while it works: a cut waits.
            let _guard = nvm.persisting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(failure) = self.core.failure() {
                return Err(failure.clone());
            }
            let (from, to) = (self.core.durable.get(), Stamp(self.arrived.load(Ordering::SeqCst)));
            if from < to {
                self.core.persist_received(from, to);
            }
            (from, to)
        };
        // After a cut in between it is less.
        if from < to { self.note_persisted(to).map(|()| true) } else { Ok(false) }
    }

    /// Whether a stream's thread has something to put into the store now.
    fn is_due(&self, stream: usize) -> bool {
        let (done, to) = (self.done[stream].load(Ordering::SeqCst), self.flushable().0);
        to > done
            && self.nvm.as_ref().is_none_or(|nvm| {
                to - done >= nvm.enough
                    || nvm.wanted.load(Ordering::SeqCst) > done
                    || self.closing.load(Ordering::SeqCst)
            })
    }

    /// The log failed; nobody waits any longer.
    fn fail(&self, failure: LogFailure) {
        self.core.fail(failure);
        self.received.close();
        if let Some(nvm) = &self.nvm {
            nvm.stored.close();
        }
    }

    fn check_open(&self) -> Result<(), ReceiveError> {
        if let Some(failure) = self.core.failure() {
            return Err(failure.clone().into());
        }
        if self.closing.load(Ordering::SeqCst) { Err(ReceiveError::Closed) } else { Ok(()) }
    }
}

impl FlushWatcher for &Shared {
    fn written(&self) {
        if self.nvm.is_none() {
            self.release_room();
        }
        // Else the ring is still the log.
    }

    fn durable(&self, to: Stamp) -> Result<(), LogFailure> {
        self.core.durable.advance(to);
        #[cfg(not(loom))]
        if let (Some(nvm), Some(persistent)) = (&self.nvm, self.core.buffer.persistent()) {
            // Durably, before the room is given back: a restart looks in the ring for what the segments do not have.
            persistent.note_destaged(to);
            nvm.persisted.fetch_max(to.0, Ordering::SeqCst);
            nvm.stored.advance(to);
            self.release_room();
        }
        Ok(())
    }
}

/// A standby's log.
#[derive(Debug)]
pub struct StandbyLog {
    shared: Arc<Shared>,
    /// One for each stream.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl StandbyLog {
    /// Starts a standby's log at `start`, where `store` ends, with a ring of `capacity` bytes (a power of two, at least
    /// 4096). A standby without a disk has a store in memory ([`LogStore::in_memory`]): the log is the database.
    ///
    /// # Errors
    /// [`LogOpenError`] for an impossible capacity, a store that cannot go on, or no thread.
    pub fn open(capacity: usize, store: impl Into<LogStore>, start: Stamp) -> Result<(Self, Receiver), LogOpenError> {
        Self::start(&StandbyRing::Plain { huge_pages: false }, capacity, store.into(), start, start)
    }

    /// The same with a ring of the given kind. What an earlier one in persistent memory held must have been
    /// [recovered](crate::persist::recover_buffer).
    ///
    /// # Errors
    /// As for [`StandbyLog::open`], and when the ring cannot be made.
    pub fn open_on(
        ring: &StandbyRing,
        capacity: usize,
        store: impl Into<LogStore>,
        start: Stamp,
    ) -> Result<(Self, Receiver), LogOpenError> {
        Self::start(ring, capacity, store.into(), start, start)
    }

    /// In plain memory, where `start` may be within a transaction, and `whole` is where that begins.
    #[cfg(not(loom))]
    pub(crate) fn open_within(
        capacity: usize,
        store: LogStore,
        start: Stamp,
        whole: Stamp,
    ) -> Result<(Self, Receiver), LogOpenError> {
        Self::start(&StandbyRing::Plain { huge_pages: false }, capacity, store, start, whole)
    }

    fn start(
        ring: &StandbyRing,
        capacity: usize,
        store: LogStore,
        start: Stamp,
        whole: Stamp,
    ) -> Result<(Self, Receiver), LogOpenError> {
        LogConfig { capacity, partition: 4096, ..LogConfig::default() }.check()?;
        store.set_patient(true);
        store.resume(start)?;
        // What is received here was committed or will be cut: no epoch of an earlier reign says anything about it.
        store.stream(0).end_epochs()?;
        let (memory, upon_replay) = match ring {
            #[cfg(not(loom))]
            StandbyRing::Plain { huge_pages } => {
                (Memory::shared(capacity, *huge_pages).map_err(LogOpenError::Memory)?, None)
            }
            #[cfg(loom)]
            StandbyRing::Plain { .. } => (Memory::new(capacity), None),
            #[cfg(not(loom))]
            StandbyRing::Persistent { persistence, upon_replay } => {
                let buffer = PersistentBuffer::create(persistence, store.config().cluster, capacity, start)?;
                (Memory::persistent(buffer), Some(*upon_replay))
            }
        };
        let (core, flushers) = Core::with_memory(memory, Some(store), start, whole);
        let nvm = upon_replay.map(|upon_replay| Nvm {
            persisted: AtomicU64::new(start.0),
            persisting: Mutex::default(),
            upon_replay,
            bell: Doorbell::new(),
            stored: Watermark::new(start),
            wanted: AtomicU64::new(0),
            // Not so late that the sender waits for room.
            enough: (1 << 20).min(capacity as u64 / 4),
        });
        let shared = Arc::new(Shared {
            core,
            received: Watermark::new(start),
            arrived: AtomicU64::new(start.0),
            replayed: AtomicU64::new(start.0),
            ends: Mutex::new(TransactionEnds::new(whole)),
            closing: AtomicBool::new(false),
            bells: (0..flushers.len()).map(|_| Doorbell::new()).collect(),
            done: flushers.iter().map(|_| AtomicU64::new(start.0)).collect(),
            flushers: flushers.into_iter().map(|flusher| Mutex::new(Some(flusher))).collect(),
            nvm,
            on_members: Mutex::default(),
        });
        let log = Self { shared: Arc::clone(&shared), threads: Mutex::default() };
        for stream in 0..shared.flushers.len() {
            let flushing = Arc::clone(&shared);
            log.spawn(format!("log-persist-{stream}"), move || threads::flush(&flushing, stream))?;
        }
        #[cfg(not(loom))]
        if shared.nvm.as_ref().is_some_and(|nvm| !nvm.upon_replay) {
            let persisting = Arc::clone(&shared);
            log.spawn("log-persist".to_owned(), move || threads::persist(&persisting))?;
        }
        Ok((log, Receiver::new(shared)))
    }

    fn spawn(&self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), LogOpenError> {
        let spawned = thread::Builder::new().name(name).spawn(run).map_err(LogOpenError::Thread)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(spawned);
        Ok(())
    }

    /// Calls `note` with what each block of members records that arrives from now on, before that block can be persisted. `note` may block.
    pub fn on_members(&self, note: impl Fn(&[u8]) + Send + Sync + 'static) {
        *self.shared.on_members.lock().unwrap_or_else(PoisonError::into_inner) = Some(OnMembers(Box::new(note)));
    }

    /// How far the primary's bytes have arrived; a block boundary.
    pub fn received(&self) -> &Watermark {
        &self.shared.received
    }

    /// The last known end of a transaction at or below `at`, which is at or above all that was asked for before. Block
    /// by block, the log may have been received, persisted or replayed up to a place within a transaction; what is
    /// shown, and what a new term begins with, ends here.
    pub fn transaction_end(&self, at: Stamp) -> Stamp {
        let mut ends = self.shared.ends();
        let end = ends.below(at);
        ends.forget(end);
        end
    }

    /// How far they are durable here; the end of a block.
    pub fn persisted(&self) -> &Watermark {
        &self.shared.core.durable
    }

    /// Whether those who replay persist too, by [`StandbyLog::persist_share`] and [`StandbyLog::note_persisted`],
    /// before they replay.
    pub fn persists_upon_replay(&self) -> bool {
        self.shared.nvm.as_ref().is_some_and(|nvm| nvm.upon_replay)
    }

    /// Makes `[from, to)` durable in a ring in persistent memory, which was received and not replayed yet: the share of
    /// the calling thread, which is one of several (persist-upon-replay; Query Fresh, section 3.1). Nothing is said of
    /// it before [`StandbyLog::note_persisted`].
    #[cfg(not(loom))]
    pub fn persist_share(&self, from: Stamp, to: Stamp) {
        let to = to.min(self.shared.received.get());
        if from < to && self.shared.nvm.is_some() {
            self.shared.core.persist_received(from, to);
        }
    }

    /// Says that all shares of what lies below `to` are durable.
    ///
    /// # Errors
    /// [`LogFailure`] when the log has failed: nothing counts as durable any more.
    pub fn note_persisted(&self, to: Stamp) -> Result<(), LogFailure> {
        self.shared.note_persisted(to)
    }

    /// Blocks until the store has everything below `to`, durably, all of which was persisted before. With a ring in
    /// plain memory it has.
    ///
    /// # Errors
    /// [`WaitError::Closed`] when the log failed or was closed.
    pub fn wait_stored(&self, to: Stamp) -> Result<(), WaitError> {
        let stored = match &self.shared.nvm {
            None => &self.shared.core.durable,
            Some(nvm) => {
                nvm.wanted.fetch_max(to.0, Ordering::SeqCst);
                self.shared.ring();
                &nvm.stored
            }
        };
        stored.wait(to, None).map(|_| ())
    }

    /// What lies under a ring in persistent memory, and how it becomes durable; none for one in plain memory.
    #[cfg(not(loom))]
    pub fn persistent_medium(&self) -> Option<(Medium, Method)> {
        self.shared.core.buffer.persistent().map(|buffer| (buffer.medium().clone(), buffer.method()))
    }

    /// Says that replay is done with everything below `to`.
    pub fn note_replayed(&self, to: Stamp) {
        // AcqRel: pairs with the acquire in `release_room`.
        self.shared.replayed.fetch_max(to.0, Ordering::AcqRel);
        self.shared.release_room();
    }

    /// The primary may send up to here: the ring's size beyond what is both replayed and in the store.
    pub fn free_until(&self) -> Stamp {
        self.shared.core.buffer.released().plus(self.shared.core.buffer.capacity())
    }

    /// Lets somebody else write into the ring, and says up to where: as [`StandbyLog::free_until`], but at most half
    /// the ring beyond what was received, so that readers find the newest half there. What was granted once stays so
    /// until the memory is [renewed](Receiver::renew); [`Receiver::accept`] takes what was written. A block is never
    /// longer than half its primary's ring, so whatever may come next fits.
    pub fn grant(&self) -> Stamp {
        let buffer = &self.shared.core.buffer;
        let to = self.free_until().min(self.shared.received.get().plus(buffer.capacity() / 2));
        // Before the writer is told: protocol "Remote writers" of the ring.
        buffer.claim(to);
        fence(Ordering::SeqCst);
        to
    }

    /// The ring's memory, for those who write there from outside.
    #[cfg(not(loom))]
    pub fn shared_memory(&self) -> RingMemory {
        self.shared.core.buffer.shared_memory().expect("a standby's ring can be mapped")
    }

    /// A handle that reads this log from any thread, also after a promotion.
    pub fn reader(&self) -> LogReader {
        LogReader { core: Arc::clone(&self.shared.core) }
    }

    /// The store behind it.
    pub fn store(&self) -> &LogStore {
        self.shared.core.store.as_ref().expect("a standby's log has a store")
    }

    /// What it waits for, if a segment cannot be made for want of room.
    pub fn lack(&self) -> Option<Lack> {
        self.store().lack()
    }

    /// Why it takes nothing more, if it failed.
    pub fn failure(&self) -> Option<LogFailure> {
        self.shared.core.failure().cloned()
    }

    /// What it did so far.
    pub fn statistics(&self) -> LogStatistics {
        self.shared.core.statistics()
    }

    /// Makes everything received durable and ends the thread; nothing is received any more.
    ///
    /// # Errors
    /// [`LogFailure`] when the log failed, now or before.
    pub fn close(&self) -> Result<(), LogFailure> {
        self.stop();
        if self.shared.flusher(0).is_none() {
            // Promoted: the ring and the store are the primary's now.
            return Ok(());
        }
        self.shared.received.close();
        self.shared.core.durable.close();
        self.shared.core.buffer.close();
        if let Some(nvm) = &self.shared.nvm {
            nvm.stored.close();
        }
        self.failure().map_or(Ok(()), Err)
    }

    fn stop(&self) {
        // A failure is told by whoever asks for it.
        #[cfg(not(loom))]
        let _ = self.shared.persist_arrived();
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.ring();
        self.store().set_patient(false);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                self.shared.fail(LogFailure::bug());
            }
        }
        self.store().finish();
    }

    /// Turns this log into a primary's, in the reign `term`, at the place where it was received up
    /// to; everything received is durable then. Readers continue. `config.capacity` is ignored: the
    /// ring stays, but others that have mapped it lose it ([`Receiver::renew`]).
    ///
    /// # Errors
    /// [`LogOpenError`]; the log is closed then.
    pub fn promote(
        &self,
        #[cfg_attr(loom, expect(unused_mut))] mut receiver: Receiver,
        config: LogConfig,
        term: Term,
    ) -> Result<Log, LogOpenError> {
        assert!(receiver.is_of(&self.shared), "the receiver of this log");
        let config = LogConfig { capacity: self.shared.core.buffer.capacity() as usize, ..config };
        config.check()?;
        self.stop();
        if let Some(failure) = self.failure() {
            return Err(failure.into());
        }
        let flusher =
            |stream| self.shared.flusher(stream).take().expect("only a promotion takes it, with the receiver");
        let flushers = (0..self.shared.flushers.len()).map(flusher).collect();
        let end = self.shared.received.get();
        assert_eq!(self.shared.core.durable.get(), end, "everything received was flushed");
        assert_eq!(self.shared.ends().last(), end, "half a transaction was cut off");
        // Before the first block: the former primary may still have the ring mapped, and continue.
        #[cfg(not(loom))]
        receiver.renew().map_err(LogOpenError::Memory)?;
        #[cfg(not(loom))]
        if let Some(persistent) = self.shared.core.buffer.persistent() {
            assert_eq!(persistent.destaged(), end, "everything received is in the store");
            // What came and never counted must not continue what is written now.
            persistent.take_back(end, self.shared.core.buffer.claimed());
        }
        // Nobody holds room back any more but the flushers.
        self.shared.core.buffer.restart(end);
        self.shared.core.buffer.release(Stamp::MAX);
        Log::on(Arc::clone(&self.shared.core), flushers, config, end, term)
    }
}

impl StandbyLog {
    /// Ends the log as a crash would: nothing is persisted or put into the store any more. For tests of what is left.
    #[doc(hidden)]
    pub fn crash_for_test(&self) {
        self.shared.fail(LogFailure::bug());
        self.stop();
    }
}

impl Drop for StandbyLog {
    fn drop(&mut self) {
        // A promoted log goes on without this handle; else whoever wanted to know of a failure has called `close`.
        self.stop();
    }
}
