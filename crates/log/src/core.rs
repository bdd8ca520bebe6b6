//! What a primary's and a standby's log have in common: the ring, the store behind it, how far the bytes
//! are durable, and reading them back from wherever they are. It outlives a promotion, and so do its readers.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use freshet_base::{Stamp, Watermark};

use crate::{
    buffer::{Flusher, LogBuffer, RingRead},
    segments::{SegmentStore, StoreError},
};

/// At most this many bytes are ever written without being synced. So a valid block that lies at least as far behind a bad
/// one proves that the bad one was durable once (module `tail`).
pub(crate) const MAX_UNSYNCED: u64 = 8 << 20;

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
                "the log failed: its flushing thread ended by a bug (see its message on stderr); restart the node",
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
    /// It is not written (yet), or was cut off by a take-over.
    #[error("the log is filled up to {filled}; bytes up to {end} were asked for")]
    Beyond {
        /// The end of what was asked for.
        end: Stamp,
        /// Where the log ends.
        filled: Stamp,
    },
    /// This log keeps only what its buffer holds, and the buffer went on.
    #[error("the log at {at} is gone: without a persistence domain only the newest {capacity} bytes are kept")]
    Gone {
        /// What was asked for.
        at: Stamp,
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
    /// Processor time of the thread that flushes.
    pub thread_cpu: Duration,
}

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    batches: AtomicU64,
    syncs: AtomicU64,
    sync_nanos: AtomicU64,
    cpu_nanos: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) buffer: LogBuffer,
    pub(crate) store: Option<SegmentStore>,
    pub(crate) durable: Watermark,
    failure: OnceLock<LogFailure>,
    counters: Counters,
}

impl Core {
    pub(crate) fn new(capacity: usize, store: Option<SegmentStore>, start: Stamp) -> (Arc<Self>, Flusher) {
        let (buffer, flusher) = LogBuffer::new(capacity, start);
        let core = Self {
            buffer,
            store,
            durable: Watermark::new(start),
            failure: OnceLock::new(),
            counters: Counters::default(),
        };
        (Arc::new(core), flusher)
    }

    /// Makes `[from, to)` durable and says so. Nothing is said after an error.
    #[cfg(not(loom))]
    pub(crate) fn flush(&self, flusher: &mut Flusher, from: Stamp, to: Stamp) -> Result<(), LogFailure> {
        if let Some(store) = &self.store {
            let mut at = from;
            while at < to {
                let end = to.min(at.plus(MAX_UNSYNCED));
                store.append(at, &self.buffer.lend(flusher, at, end))?;
                let before = std::time::Instant::now();
                store.sync()?;
                // Relaxed, here and below: counters without data behind them.
                self.counters.sync_nanos.fetch_add(before.elapsed().as_nanos() as u64, Ordering::Relaxed);
                self.counters.syncs.fetch_add(1, Ordering::Relaxed);
                at = end;
            }
        }
        flusher.done(&self.buffer, to);
        self.durable.advance(to);
        if let Some(store) = &self.store {
            store.note_durable(to)?;
        }
        self.counters.bytes.fetch_add(to.since(from), Ordering::Relaxed);
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    #[cfg(loom)]
    pub(crate) fn flush(&self, flusher: &mut Flusher, _from: Stamp, to: Stamp) -> Result<(), LogFailure> {
        flusher.done(&self.buffer, to);
        self.durable.advance(to);
        Ok(())
    }

    /// Notes the processor time of the calling thread as the flushing thread's.
    pub(crate) fn note_thread_cpu(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        self.counters.cpu_nanos.store(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64, Ordering::Relaxed);
    }

    pub(crate) fn statistics(&self) -> LogStatistics {
        let counter = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStatistics {
            bytes: counter(&self.counters.bytes),
            batches: counter(&self.counters.batches),
            syncs: counter(&self.counters.syncs),
            sync_time: Duration::from_nanos(counter(&self.counters.sync_nanos)),
            thread_cpu: Duration::from_nanos(counter(&self.counters.cpu_nanos)),
        }
    }

    /// Stops the log for good: nothing becomes durable any more, and nobody waits any longer.
    pub(crate) fn fail(&self, failure: LogFailure) {
        // The first cause is the one to tell.
        let _ = self.failure.set(failure);
        self.durable.close();
        self.buffer.close();
    }

    #[inline]
    pub(crate) fn failure(&self) -> Option<&LogFailure> {
        self.failure.get()
    }

    /// Fills `into` with the log from `at` on: from the ring while it holds that, else from the store.
    pub(crate) fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), ReadError> {
        let end = Stamp(at.0.saturating_add(into.len() as u64));
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
            // What is durable is in the store; the rest (there is some when the range reaches beyond the last flush) is tried
            // again in the ring, which cannot lose it before it is durable. So each round gets on, unless a cut came between,
            // after which the next round finds the new end.
            let durable = self.durable.get();
            let stored = (durable.since(at) as usize).min(into.len());
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

/// Reads a log, live or restored, from any thread; cheap to clone. It goes on working when a standby is promoted.
#[derive(Clone, Debug)]
pub struct LogReader {
    pub(crate) core: Arc<Core>,
}

impl LogReader {
    /// Fills `into` with the log from `at` on: from the buffer while that holds it, else from the store (then it
    /// may block for the disk). Safe while the buffer is being overwritten.
    ///
    /// # Errors
    /// [`ReadError`]; `into` is undefined then.
    pub fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), ReadError> {
        self.core.read(at, into)
    }

    /// How far the log is known to be filled: where reading ends.
    pub fn filled(&self) -> Stamp {
        self.core.buffer.filled()
    }
}
