//! The ring, the store behind it, how far the bytes are durable, and reading them back from
//! wherever they are. It outlives a promotion, and so do its readers.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use freshet_base::{
    Lsn, Watermark,
    cpu::{Meter, Stint},
};

use crate::{
    block::Blocks,
    buffer::{Flusher, LogBuffer, Memory, RingRead},
    persist::buffer::PersistentBuffer,
    runs::Runs,
    scan::find_block_by,
    segments::StoreError,
    store::LogStore,
    stream::{LogOpenError, Persistence, Pmem},
};

/// Why a log stopped taking transactions for good.
#[derive(Clone, Debug)]
pub struct LogFailure(Arc<Cause>);

#[derive(Debug)]
enum Cause {
    Store(StoreError),
    Bug,
}

impl LogFailure {
    pub(crate) fn bug() -> Self {
        Self(Arc::new(Cause::Bug))
    }
}

impl From<StoreError> for LogFailure {
    fn from(error: StoreError) -> Self {
        Self(Arc::new(Cause::Store(error)))
    }
}

impl fmt::Display for LogFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Cause::Store(error) => write!(f, "the log failed: {error}"),
            Cause::Bug => f.write_str(
                "the log failed: its persisting thread ended by a bug (see its message on stderr); restart the node",
            ),
        }
    }
}

impl std::error::Error for LogFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Cause::Store(error) => Some(error),
            Cause::Bug => None,
        }
    }
}

/// Why a part of the log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not written (yet), or was cut off by a failover.
    #[error("the log is filled up to {filled}; bytes up to {end} were asked for")]
    Beyond {
        /// The end of what was asked for.
        end: Lsn,
        /// Where the log ends.
        filled: Lsn,
    },
    /// This log keeps only what its buffer holds, and the buffer went on.
    #[error("the log at {at} is gone: without a persistence domain only the newest {capacity} bytes are kept")]
    Gone {
        /// What was asked for.
        at: Lsn,
        /// Size of the buffer in bytes.
        capacity: u64,
    },
    /// The store could not give it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the log did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Bytes made durable (or only passed on, without a domain).
    pub bytes: u64,
    /// Group commits.
    pub batches: u64,
    /// Syncs of the store.
    pub syncs: u64,
    /// Time spent in syncs.
    pub sync_time: Duration,
    /// Processor time of the threads that flush.
    pub thread_cpu: Duration,
}

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    batches: AtomicU64,
    syncs: AtomicU64,
    sync_nanos: AtomicU64,
    cpu: Meter,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) buffer: LogBuffer,
    pub(crate) store: Option<LogStore>,
    pub(crate) pmem: Pmem,
    pub(crate) durable: Watermark,
    /// Everything below can be read from the store, durable or not. Release where it moves: pairs
    /// with the acquire in `read`.
    pub(crate) written: AtomicU64,
    pub(crate) runs: Runs,
    failure: OnceLock<LogFailure>,
    counters: Counters,
}

impl Core {
    /// A log with a ring of `capacity` bytes, of one flusher for each stream, that goes on at
    /// `start`; `whole` is the last end of a transaction at or below that. With `lent`, others can
    /// map the ring, which is in huge pages if that says so.
    pub(crate) fn open(
        persistence: Persistence,
        capacity: usize,
        lent: Option<bool>,
        start: Lsn,
        whole: Lsn,
    ) -> Result<(Arc<Self>, Vec<Flusher>), LogOpenError> {
        let (store, buffer) = match persistence {
            Persistence::None => (None, None),
            Persistence::File(store) => (Some(store), None),
            Persistence::Pmem(store, config) => (Some(store), Some(config)),
        };
        if let Some(store) = &store {
            store.set_patient(true);
            store.resume(start)?;
        }
        let create = |config| {
            let cluster = store.as_ref().expect("it comes with one").config().cluster;
            PersistentBuffer::create(&config, cluster, capacity, start)
        };
        let pmem = Pmem(buffer.map(create).transpose()?);
        let memory = match (&pmem.0, lent) {
            (Some(buffer), _) => Memory::persistent(Arc::clone(buffer)),
            (None, Some(huge_pages)) => Memory::shared(capacity, huge_pages).map_err(LogOpenError::Memory)?,
            (None, None) => Memory::new(capacity),
        };
        Ok(Self::on(memory, pmem, store, start, whole))
    }

    /// A ring of `capacity` bytes, and nothing else.
    pub(crate) fn of_memory(capacity: usize, start: Lsn) -> (Arc<Self>, Vec<Flusher>) {
        Self::on(Memory::new(capacity), Pmem(None), None, start, start)
    }

    fn on(memory: Memory, pmem: Pmem, store: Option<LogStore>, start: Lsn, whole: Lsn) -> (Arc<Self>, Vec<Flusher>) {
        let streams = store.as_ref().map_or(1, LogStore::streams);
        let (buffer, flushers) = LogBuffer::on(memory, start, streams);
        let core = Self {
            buffer,
            runs: Runs::new(store.as_ref(), start, whole),
            store,
            pmem,
            durable: Watermark::new(start),
            written: AtomicU64::new(start.0),
            failure: OnceLock::new(),
            counters: Counters::default(),
        };
        (Arc::new(core), flushers)
    }

    /// Up to where blocks may be put into the store: what is filled, or, in persistent memory, what
    /// of that is durable.
    pub(crate) fn flushable(&self) -> Lsn {
        if self.pmem.is_there() { self.durable.get() } else { self.buffer.filled() }
    }

    /// How many streams there are.
    pub(crate) fn streams(&self) -> usize {
        self.store.as_ref().map_or(1, LogStore::streams)
    }

    /// Takes back everything at or above `at`, in the ring and, durably, in the store. All flushers
    /// are given: none is at work. `whole` is the last end of a transaction at or below `at`.
    pub(crate) fn cut(&self, flushers: &mut [&mut Flusher], at: Lsn, whole: Lsn) -> Result<(), StoreError> {
        self.buffer.cut(flushers, at);
        self.durable.cut(at);
        self.pmem.take_back(at, self.buffer.claimed());
        let Some(store) = &self.store else { return Ok(()) };
        if at.0 < self.written.load(Ordering::Acquire) {
            self.written.fetch_min(at.0, Ordering::AcqRel);
            store.cut(at)?;
        }
        self.runs.cut(store, at, whole);
        Ok(())
    }

    /// A batch of `bytes` of a stream was persisted.
    pub(crate) fn count_batch(&self, bytes: u64) {
        // Relaxed: counters without data behind them, as below.
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// A sync took so long.
    pub(crate) fn count_sync(&self, took: Duration) {
        self.counters.sync_nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// The calling thread begins to persist.
    pub(crate) fn begin_to_persist(&self) -> Stint<'_> {
        self.counters.cpu.begin()
    }

    pub(crate) fn statistics(&self) -> LogStatistics {
        let counter = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStatistics {
            bytes: counter(&self.counters.bytes),
            batches: counter(&self.counters.batches),
            syncs: counter(&self.counters.syncs),
            sync_time: Duration::from_nanos(counter(&self.counters.sync_nanos)),
            thread_cpu: self.counters.cpu.total(),
        }
    }

    /// Stops the log for good: nothing becomes durable any more, and nobody waits any longer.
    pub(crate) fn fail(&self, failure: LogFailure) {
        // The first cause is the one to tell.
        if let Ok(()) = self.failure.set(failure)
            && let Some(cause) = self.failure.get()
        {
            tracing::error!(%cause, "the log has failed: nothing commits any more before the node is started again");
        }
        self.close();
    }

    /// The log has ended: nobody waits any longer.
    pub(crate) fn close(&self) {
        self.durable.close();
        self.buffer.close();
    }

    #[inline]
    pub(crate) fn failure(&self) -> Option<&LogFailure> {
        self.failure.get()
    }

    /// Fills `into` with the log from `at` on: from the ring while it holds that, else from the
    /// store.
    pub(crate) fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), ReadError> {
        let end = Lsn(at.0.saturating_add(into.len() as u64));
        let (mut at, mut into) = (at, into);
        loop {
            let generation = self.buffer.generation();
            match self.buffer.read(at, into) {
                RingRead::Copied => return Ok(()),
                RingRead::Beyond => return Err(ReadError::Beyond { end, filled: self.buffer.filled() }),
                RingRead::Overwritten => {}
            }
            let Some(store) = &self.store else {
                return Err(ReadError::Gone { at, capacity: self.buffer.capacity() });
            };
            // What is written can be read from the store; the rest (there is some when the range
            // reaches beyond the last flush) is tried again in the ring, which cannot lose it
            // before it is written. So each round gets on, unless a cut came between, after which
            // the next round finds the new end. Acquire: pairs with the releases in `flush`.
            let written = Lsn(self.written.load(Ordering::Acquire));
            let stored = (written.since(at) as usize).min(into.len());
            store.read(at, &mut into[..stored])?;
            if generation % 2 == 1 || self.buffer.generation() != generation {
                freshet_base::sync::thread::yield_now();
                continue;
            }
            if stored == into.len() {
                return Ok(());
            }
            at = at.plus(stored as u64);
            into = &mut into[stored..];
        }
    }
}

/// Reads a log, live or restored, from any thread; cheap to clone. It goes on working when a
/// standby is promoted.
#[derive(Clone, Debug)]
pub struct LogReader {
    pub(crate) core: Arc<Core>,
}

impl LogReader {
    /// Fills `into` with the log from `at` on: from the buffer while that holds it, else from the
    /// store (then it may block for the disk). Safe while the buffer is being overwritten.
    ///
    /// # Errors
    /// [`ReadError`]; `into` is undefined then.
    pub fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), ReadError> {
        self.core.read(at, into)
    }

    /// The blocks of `[from, to)`, for those who replay them, until they have said that they are
    /// done ([`crate::Log::note_replayed`]): where they lie in the ring, if all of it was received
    /// and waits for replay, so that it stays there; else read into `buffer`, and verified as they
    /// come.
    ///
    /// # Errors
    /// As for [`LogReader::read`].
    pub fn blocks<'l>(&'l self, from: Lsn, to: Lsn, buffer: &'l mut Vec<u8>) -> Result<Blocks<'l>, ReadError> {
        let ring = &self.core.buffer;
        if ring.kept(from, to) {
            return Ok(Blocks::in_ring(ring, from, to));
        }
        buffer.resize(usize::try_from(to.since(from)).expect("a part is smaller than the address space"), 0);
        self.read(from, buffer)?;
        Ok(Blocks::in_bytes(buffer, from))
    }

    /// Where the first whole block in a part of the log starts that ends at `end`. May block for
    /// the disk.
    ///
    /// # Errors
    /// As for [`LogReader::read`].
    pub fn find_block(&self, part: Range<Lsn>, end: Lsn) -> Result<Option<Lsn>, ReadError> {
        find_block_by(&|at, into| self.read(at, into), true, part, end)
    }

    /// How far the log is known to be filled: where reading ends.
    pub fn filled(&self) -> Lsn {
        self.core.buffer.filled()
    }
}
