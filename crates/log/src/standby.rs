//! A standby's log: bytes arrive in the ring, are persisted from there, and are read from there by replay.
//!
//! There are no workers. One [`Receiver`] puts the primary's bytes where they belong; one thread makes them
//! durable; the caller says how far it has replayed. `received >= persisted`, and what is both persisted and replayed
//! gives its room back (ready to receive, Query Fresh section 3.2).
//!
//! # Access protocol
//!
//! Only the holder of the [`Receiver`] writes to the ring above `received`, or cuts. The flusher is
//! behind a mutex that its thread takes for one flush at a time; a cut takes it too, so it never meets a flush. `arrived`
//! is stored before the look at the bell, by the receiver; the flushing thread looks at it after it announced its sleep.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    thread::{self, JoinHandle},
};

use freshet_base::{Stamp, Term, Watermark};

#[cfg(not(loom))]
use crate::buffer::RingMemory;
use crate::{
    block::{BLOCK_HEADER, BlockError, BlockHeader, check_seal, peek_at},
    buffer::{Flusher, Memory, RawPiece},
    core::{Core, FlushWatcher, LogFailure, LogReader, LogStatistics, ReadError},
    store::LogStore,
    stream::{Log, LogConfig, LogOpenError, doorbell::Doorbell},
    transaction_ends::{SPACING, TransactionEnds},
};

/// Why bytes from the primary were not taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReceiveError {
    /// They do not follow what was received.
    #[error("bytes for {at} arrived, but the log was received up to {received}: join the primary again")]
    Gap {
        /// Where the bytes belong.
        at: Stamp,
        /// How far the log was received.
        received: Stamp,
    },
    /// There is no room for them yet; the sender did not keep to the flow control.
    #[error("bytes up to {end} arrived, but there is room up to {free} only: the primary ignores the flow control")]
    NoRoom {
        /// The end of the bytes.
        end: Stamp,
        /// Where the room ends.
        free: Stamp,
    },
    /// The log failed or was closed.
    #[error("the standby's log is closed")]
    Closed,
    /// The log failed.
    #[error(transparent)]
    Failed(#[from] LogFailure),
}

/// Why bytes that somebody else has put into the ring were not taken for blocks.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AcceptError {
    /// There is no whole block where one should be. Nothing was taken.
    #[error("no block was received at {at}: {cause}")]
    Block {
        /// Where it should begin.
        at: Stamp,
        /// What is wrong with it.
        cause: BlockError,
    },
    /// Nobody was allowed to write so far.
    #[error("the log is said to be received up to {to}, but was granted up to {granted} only")]
    NotGranted {
        /// The end of the bytes.
        to: Stamp,
        /// What was granted.
        granted: Stamp,
    },
    /// The log takes nothing.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
}

/// Checksums are computed in pieces of this size, which stay in the cache: the ring belongs to others too and is no plain memory.
const SCRATCH: usize = 64 << 10;

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
}

impl Shared {
    fn flusher(&self, stream: usize) -> MutexGuard<'_, Option<Flusher>> {
        self.flushers[stream].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> MutexGuard<'_, TransactionEnds> {
        // Whole after a panic, too: it is changed in one step at the end.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back the room of what is persisted and replayed.
    fn release_room(&self) {
        // Acquire: pairs with the release half in `note_replayed`; the replay's reads come before the room is given up.
        self.core.buffer.release(Stamp(self.replayed.load(Ordering::Acquire)));
    }

    fn ring(&self) {
        for bell in &self.bells {
            bell.ring();
        }
    }

    /// Makes a stream's share of what has arrived durable; returns whether something had.
    fn persist_share(&self, flusher: &mut Flusher) -> Result<bool, LogFailure> {
        let done = &self.done[flusher.stream()];
        let (from, to) = (Stamp(done.load(Ordering::SeqCst)), Stamp(self.arrived.load(Ordering::SeqCst)));
        if from >= to {
            return Ok(false);
        }
        // Entered before `arrived` moved there.
        let whole = self.ends().below(to);
        self.core.flush(flusher, from, to, whole, &self)?;
        done.store(to.0, Ordering::SeqCst);
        Ok(true)
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
        self.release_room();
    }

    fn durable(&self, to: Stamp) -> Result<(), LogFailure> {
        self.core.durable.advance(to);
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

/// The one who puts the primary's bytes into a standby's log.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    scratch: Vec<u8>,
}

impl StandbyLog {
    /// Starts a standby's log at `start`, where `store` ends, with a ring of `capacity` bytes (a power of two, at least 4096).
    /// A standby without a disk has a store in memory ([`LogStore::in_memory`]): the log is the database.
    ///
    /// # Errors
    /// [`LogOpenError`] for an impossible capacity, a store that cannot go on, or no thread.
    pub fn open(capacity: usize, store: impl Into<LogStore>, start: Stamp) -> Result<(Self, Receiver), LogOpenError> {
        Self::open_within(capacity, store.into(), start, start)
    }

    /// The same where `start` may be within a transaction, and `whole` is where that begins.
    pub(crate) fn open_within(
        capacity: usize,
        store: LogStore,
        start: Stamp,
        whole: Stamp,
    ) -> Result<(Self, Receiver), LogOpenError> {
        LogConfig { capacity, partition: 4096, ..LogConfig::default() }.check()?;
        store.resume(start)?;
        // What is received here was committed or will be cut: no epoch of an earlier reign says anything about it.
        store.stream(0).end_epochs()?;
        #[cfg(not(loom))]
        let memory = Memory::shared(capacity, false).map_err(LogOpenError::Memory)?;
        #[cfg(loom)]
        let memory = Memory::new(capacity);
        let (core, flushers) = Core::with_memory(memory, Some(store), start, whole);
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
        });
        let log = Self { shared: Arc::clone(&shared), threads: Mutex::default() };
        for stream in 0..shared.flushers.len() {
            let flushing = Arc::clone(&shared);
            let named = thread::Builder::new().name(format!("log-persist-{stream}"));
            let spawned = named.spawn(move || persist(&flushing, stream)).map_err(LogOpenError::Thread)?;
            log.threads.lock().unwrap_or_else(PoisonError::into_inner).push(spawned);
        }
        Ok((log, Receiver { shared, scratch: Vec::new() }))
    }

    /// How far the primary's bytes have arrived; a block boundary.
    pub fn received(&self) -> &Watermark {
        &self.shared.received
    }

    /// The last known end of a transaction at or below `at`, which is at or above all that was asked for before. Block by block, the log
    /// may have been received, persisted or replayed up to a place within a transaction; what is shown, and what a new term begins with, ends here.
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

    /// Says that replay is done with everything below `to`.
    pub fn note_replayed(&self, to: Stamp) {
        // AcqRel: pairs with the acquire in `release_room`.
        self.shared.replayed.fetch_max(to.0, Ordering::AcqRel);
        self.shared.release_room();
    }

    /// The primary may send up to here: `min(persisted, replayed)` plus the ring's size.
    pub fn free_until(&self) -> Stamp {
        self.shared.core.buffer.released().plus(self.shared.core.buffer.capacity())
    }

    /// Lets somebody else write into the ring, and says up to where: as [`StandbyLog::free_until`], but at most half the ring beyond what was
    /// received, so that readers find the newest half there. What was granted once stays so until the memory is
    /// [renewed](Receiver::renew); [`Receiver::accept`] takes what was written. A block is never longer than half its primary's ring, so
    /// whatever may come next fits.
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
        self.failure().map_or(Ok(()), Err)
    }

    fn stop(&self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.ring();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                self.shared.core.fail(LogFailure::bug());
            }
        }
        self.store().finish();
    }

    /// Turns this log into a primary's, in the reign `term`, at the place where it was received up to; everything
    /// received is durable then. Readers go on. `config.capacity` is ignored: the ring stays.
    ///
    /// # Errors
    /// [`LogOpenError`]; the log is closed then.
    pub fn promote(&self, receiver: Receiver, config: LogConfig, term: Term) -> Result<Log, LogOpenError> {
        assert!(Arc::ptr_eq(&self.shared, &receiver.shared), "the receiver of this log");
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
        // Nobody holds room back any more but the flushers.
        self.shared.core.buffer.restart(end);
        self.shared.core.buffer.release(Stamp::MAX);
        Log::on(Arc::clone(&self.shared.core), flushers, config, end, term)
    }
}

impl Drop for StandbyLog {
    fn drop(&mut self) {
        // A promoted log goes on without this handle; else whoever wanted to know of a failure has called `close`.
        self.stop();
    }
}

impl Receiver {
    /// How far the log was received.
    pub fn received(&self) -> Stamp {
        self.shared.received.get()
    }

    /// Blocks until the ring has room up to `end`.
    ///
    /// # Errors
    /// [`ReceiveError`] when the log was closed or failed meanwhile.
    pub fn wait_room(&self, end: Stamp) -> Result<(), ReceiveError> {
        self.shared.check_open()?;
        let target = Stamp(end.0.saturating_sub(self.shared.core.buffer.capacity()));
        match self.shared.core.buffer.wait_released(target) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.shared.check_open().err().unwrap_or(ReceiveError::Closed)),
        }
    }

    /// The place for `length` bytes at `at`, at or above what was received. They count once [`Receiver::received_to`] is called.
    ///
    /// # Errors
    /// [`ReceiveError::Gap`] below what was received, [`ReceiveError::NoRoom`] beyond the room.
    pub fn writable(&mut self, at: Stamp, length: u64) -> Result<Writable<'_>, ReceiveError> {
        self.shared.check_open()?;
        let received = self.received();
        let buffer = &self.shared.core.buffer;
        let free = buffer.released().plus(buffer.capacity());
        if at < received {
            return Err(ReceiveError::Gap { at, received });
        }
        let end = Stamp(at.0.saturating_add(length));
        if end > free {
            return Err(ReceiveError::NoRoom { end, free });
        }
        buffer.claim(end);
        Ok(Writable { core: &self.shared.core, at, length })
    }

    /// Puts whole blocks at the end, all at once.
    ///
    /// # Errors
    /// As [`Receiver::writable`].
    pub fn append(&mut self, blocks: &[u8]) -> Result<(), ReceiveError> {
        let at = self.received();
        self.writable(at, blocks.len() as u64)?.copy_from(blocks);
        self.received_to(at.plus(blocks.len() as u64));
        Ok(())
    }

    /// Says that everything below `to` was written; `to` is a block boundary.
    ///
    /// # Panics
    /// When it was never claimed by [`Receiver::writable`].
    pub fn received_to(&mut self, to: Stamp) {
        let shared = &self.shared;
        assert!(to <= shared.core.buffer.claimed(), "received bytes have a place");
        self.note_ends(to);
        shared.core.buffer.fill_to(to);
        shared.arrived.fetch_max(to.0, Ordering::SeqCst);
        shared.received.advance(to);
        shared.ring();
    }

    /// The same for bytes that somebody else has put into the ring where [`StandbyLog::grant`] allowed it, and who is through with everything below
    /// `to`: checks first that whole blocks of this log lie there, each by its own checksum. Costs as much as reading the bytes once.
    ///
    /// # Errors
    /// [`AcceptError`]; nothing of it counts as received then.
    pub fn accept(&mut self, to: Stamp) -> Result<(), AcceptError> {
        let shared = Arc::clone(&self.shared);
        shared.check_open()?;
        let buffer = &shared.core.buffer;
        let (received, granted) = (self.received(), buffer.claimed().min(buffer.released().plus(buffer.capacity())));
        if to < received {
            return Err(ReceiveError::Gap { at: to, received }.into());
        }
        if to > granted {
            return Err(AcceptError::NotGranted { to, granted });
        }
        let mut at = received;
        while at < to {
            at = self.check_block(at, to).map_err(|cause| AcceptError::Block { at, cause })?;
        }
        self.received_to(to);
        Ok(())
    }

    /// Checks the block at `at`, which ends at or below `to`; returns where.
    fn check_block(&mut self, at: Stamp, to: Stamp) -> Result<Stamp, BlockError> {
        let buffer = &self.shared.core.buffer;
        let have = to.since(at);
        if have < BLOCK_HEADER as u64 {
            return Err(BlockError::Truncated { need: BLOCK_HEADER as u64, have });
        }
        // Looked at once: what was checked is what is used.
        let head = buffer.own_header(at);
        let header = peek_at(&head, at)?;
        let need = u64::from(header.length);
        if need > have {
            return Err(BlockError::Truncated { need, have });
        }
        self.scratch.resize(SCRATCH, 0);
        let (mut crc, mut here) = (0, at.plus(BLOCK_HEADER as u64));
        while here < header.end() {
            let piece = &mut self.scratch[..SCRATCH.min(header.end().since(here) as usize)];
            buffer.own_bytes(here, piece);
            crc = crc32c::crc32c_append(crc, piece);
            here = here.plus(piece.len() as u64);
        }
        check_seal(&header, &head, crc)?;
        Ok(header.end())
    }

    /// Takes the ring's memory away from whoever else has mapped it, such as a primary that is none any more: it moves to another file, with
    /// what was received and nothing beyond that, while readers go on. Whatever is granted from now on is granted to those who map the new file
    /// ([`StandbyLog::shared_memory`]). Costs a copy of the ring.
    ///
    /// # Errors
    /// What the system says; then the memory is where it was.
    #[cfg(not(loom))]
    pub fn renew(&mut self) -> io::Result<()> {
        self.shared.core.buffer.renew(self.received())
    }

    /// Notes where transactions end in what has just been received.
    fn note_ends(&self, to: Stamp) {
        let shared = &self.shared;
        let mut at = self.received();
        let (mut last, mut passed) = (None, at.0 / SPACING);
        let mut ends = shared.ends();
        while at < to && to.since(at) >= BLOCK_HEADER as u64 {
            let header = BlockHeader::peek(&shared.core.buffer.own_header(at));
            // What is no block ends no transaction; replay will say so.
            let Some(header) = header.ok().filter(|header| header.stamp == at && header.end() <= to) else { break };
            at = header.end();
            if !header.continued {
                last = Some(at);
                if at.0 / SPACING > passed {
                    passed = at.0 / SPACING;
                    ends.enter(at);
                }
            }
        }
        if let Some(last) = last {
            ends.enter(last);
        }
    }

    /// The last end of a transaction at or below `at`, of those that are not remembered too.
    fn last_end(&self, at: Stamp) -> Result<Stamp, LogFailure> {
        let mut whole = self.shared.ends().below(at);
        let mut here = whole;
        while here < at {
            let mut header = [0; BLOCK_HEADER];
            self.shared.core.read(here, &mut header).map_err(|error| match error {
                ReadError::Store(error) => LogFailure::from(error),
                _ => LogFailure::bug(),
            })?;
            let Some(header) = BlockHeader::peek(&header).ok().filter(|header| header.end() <= at) else { break };
            here = header.end();
            if !header.continued {
                whole = here;
            }
        }
        Ok(whole)
    }

    /// Takes back everything at or above `at`, in the ring and, durably, in the store: a node enters a term only after that.
    /// Blocks while a flush is under way.
    ///
    /// # Errors
    /// [`LogFailure`]; opening the store again and cutting once more completes the cut.
    pub fn cut(&mut self, at: Stamp) -> Result<(), LogFailure> {
        let shared = &self.shared;
        let mut guards: Vec<_> = (0..shared.flushers.len()).map(|stream| shared.flusher(stream)).collect();
        let mut flushers: Vec<&mut Flusher> =
            guards.iter_mut().map(|guard| guard.as_mut().expect("it stays while there is a receiver")).collect();
        if at >= shared.received.get() {
            return Ok(());
        }
        let whole = self.last_end(at)?;
        if flushers.len() > 1 {
            // What was dealt out to streams and stays must be in them before their places above `at` are looked for.
            for flusher in &mut flushers {
                shared.persist_share(flusher)?;
            }
        }
        for done in &shared.done {
            done.fetch_min(at.0, Ordering::SeqCst);
        }
        shared.arrived.fetch_min(at.0, Ordering::SeqCst);
        shared.received.cut(at);
        shared.replayed.fetch_min(at.0, Ordering::AcqRel);
        {
            let mut ends = shared.ends();
            ends.cut(at);
            ends.enter(whole);
        }
        Ok(shared.core.cut(&mut flushers, at, whole)?)
    }
}

/// A range of the ring that is waiting for the primary's bytes.
#[derive(Debug)]
pub struct Writable<'r> {
    core: &'r Core,
    at: Stamp,
    length: u64,
}

impl Writable<'_> {
    /// Bytes that are still missing.
    pub fn missing(&self) -> u64 {
        self.length
    }

    /// One read from a socket or file straight into the ring, without a copy. Returns how many bytes
    /// came; zero when the other side has closed.
    ///
    /// # Errors
    /// What the operating system says, [`io::ErrorKind::WouldBlock`] included.
    pub fn read_from(&mut self, source: BorrowedFd<'_>) -> io::Result<usize> {
        let got = self.core.buffer.receive(self.at, self.length, source)?;
        self.at = self.at.plus(got as u64);
        self.length -= got as u64;
        Ok(got)
    }

    /// Copies bytes that are in memory already; takes as many as are missing and returns how many.
    pub fn copy_from(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.length as usize);
        self.core.buffer.write(self.at, &bytes[..taken]);
        self.at = self.at.plus(taken as u64);
        self.length -= taken as u64;
        taken
    }

    /// The memory itself, for a one-sided writer (a network card, another process). Whoever lets somebody write there
    /// does so only until the receiver is told or used again.
    pub fn raw(&mut self) -> [RawPiece; 2] {
        self.core.buffer.raw(self.at, self.length)
    }
}

/// Marks the log as failed when its thread ends by a panic, so that nobody waits for ever.
struct EndsLog<'a>(&'a Shared);

impl Drop for EndsLog<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.core.fail(LogFailure::bug());
            self.0.received.close();
        }
    }
}

/// A persisting thread's whole life.
fn persist(shared: &Arc<Shared>, stream: usize) {
    let _guard = EndsLog(shared);
    let sync_watermark = || match &shared.core.store {
        Some(store) => store.sync_watermark(),
        None => Ok(()),
    };
    let result = loop {
        match flush_once(shared, stream) {
            Ok(true) => {}
            Ok(false) if shared.closing.load(Ordering::SeqCst) => break sync_watermark().map_err(LogFailure::from),
            Ok(false) => {
                let done = shared.done[stream].load(Ordering::SeqCst);
                shared.bells[stream]
                    .sleep(|| shared.arrived.load(Ordering::SeqCst) > done || shared.closing.load(Ordering::SeqCst));
            }
            Err(failure) => break Err(failure),
        }
    };
    if let Err(failure) = result {
        shared.core.fail(failure);
        shared.received.close();
    }
}

/// Flushes what has arrived of one stream; returns whether there was something.
fn flush_once(shared: &Shared, stream: usize) -> Result<bool, LogFailure> {
    let mut guard = shared.flusher(stream);
    let Some(flusher) = guard.as_mut() else { return Ok(false) };
    let flushed = shared.persist_share(flusher)?;
    drop(guard);
    if flushed {
        shared.core.note_thread_cpu();
    }
    Ok(flushed)
}
