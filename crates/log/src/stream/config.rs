//! How a log is set up, and why it cannot be.

use std::time::Duration;

use crate::{
    core::LogFailure,
    persist::{BufferError, PersistenceConfig},
    segments::{SegmentStore, StoreError},
    store::LogStore,
};

/// No transaction is ever longer than this many bytes of log.
const LONGEST_TRANSACTION: u64 = 256 << 30;

/// How a log is set up. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Size of the ring; a power of two, at least 4096.
    pub capacity: usize,
    /// A batch of this size is flushed at once.
    pub batch_bytes: u64,
    /// A block is flushed when it is this old, if nothing else makes it due.
    pub interval: Duration,
    /// Size of a partition, the unit of work of a replay thread; a power of two, at most the
    /// ring's.
    pub partition: u64,
    /// How many writers there can be at once.
    pub writers: usize,
    /// When blocks become durable, and when that is told.
    pub group_commit: GroupCommitKind,
    /// How writers are grouped to streams.
    pub grouping: Grouping,
    /// How blocks are divided among streams.
    pub division: Division,
    /// The longest transaction, in bytes of log. One that is longer than an eighth of the ring is
    /// put into it part by part.
    pub longest_transaction: u64,
}

/// What makes a log durable.
#[derive(Debug)]
pub enum Persistence {
    /// Nothing: the ring is all there is, and keeps what sinks hold.
    None,
    /// The store, as soon as it has synced it ("No-NVRAM", Query Fresh, section 4.10).
    File(LogStore),
    /// The ring, which is in persistent memory; the store gets it later.
    Pmem(LogStore, PersistenceConfig),
}

impl From<LogStore> for Persistence {
    fn from(store: LogStore) -> Self {
        Self::File(store)
    }
}

impl From<SegmentStore> for Persistence {
    fn from(store: SegmentStore) -> Self {
        Self::File(store.into())
    }
}

impl From<Option<LogStore>> for Persistence {
    fn from(store: Option<LogStore>) -> Self {
        store.map_or(Self::None, Self::File)
    }
}

/// How a log is set up that receives its blocks. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveConfig {
    /// Size of the ring; a power of two, at least 4096.
    pub capacity: usize,
    /// Whether huge pages are asked for, for a ring in plain memory.
    pub huge_pages: bool,
    /// Size of the partitions whose ends sinks are told; a power of two, at most the ring's.
    pub partition: u64,
    /// For a ring in persistent memory: whether those who replay persist, each its share; else a
    /// thread of the log does it alone.
    pub upon_replay: bool,
}

impl Default for ReceiveConfig {
    fn default() -> Self {
        Self { capacity: 64 << 20, huge_pages: false, partition: 4096, upon_replay: false }
    }
}

impl ReceiveConfig {
    pub(super) fn check(&self) -> Result<(), LogOpenError> {
        LogConfig { capacity: self.capacity, partition: self.partition, ..LogConfig::default() }.check()
    }
}

/// How blocks are divided among streams (distributed logging, section 3).
///
/// | | by transaction | by page |
/// |---|---|---|
/// | blocks of a transaction | one, in its worker's stream | one in each stream whose pages it changes |
/// | at commit | all streams durable up to its LSN: it may depend on any | the same |
/// | at redo | records of one page lie in any stream; the larger address wins, so streams are still replayed in parallel | records of one page lie in one stream |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// A transaction's block goes to its worker's stream.
    Transaction,
    /// Each record goes to the stream of its page: this many successive record ids of a table, at
    /// least 1.
    Page(u64),
}

/// When blocks become durable, and when that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommitKind {
    /// By size or time, overlapped with shipping (Query Fresh, section 3.1): the watermark moves
    /// with every flush.
    Pipelined,
    /// By epochs of this length (SiloR, section 3.5): results are released when all of an epoch is
    /// durable and that is on record, which takes a second sync.
    Epoch(Duration),
    /// For a buffer in persistent memory: workers leave the fence to their next commit, and
    /// stragglers are force-fenced (distributed logging, section 4.1). Elsewhere the same as
    /// pipelined.
    Passive(ForceFence),
}

/// How a straggler of passive group commit is force-fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForceFence {
    /// By a signal to its thread.
    Signal,
    /// By `membarrier(2)`, for all threads at once.
    Membarrier,
}

/// Which stream a writer belongs to. Writers are numbered by the places that they take, the lowest
/// free one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Writer `w` of `n` streams belongs to stream `w mod n`.
    RoundRobin,
    /// As many writers as this belong to stream 0, the next to stream 1, and so on, round and
    /// round: for workers that are pinned to sockets in this order. At least 1.
    Blocks(usize),
}

impl Grouping {
    pub(super) fn stream(self, writer: usize, streams: usize) -> u8 {
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
    /// Stragglers could not be force-fenced.
    #[error(
        "passive group commit cannot force-fence stragglers: {0}; configure the other way, or another group commit"
    )]
    ForceFence(#[source] std::io::Error),
    /// The operating system gave no memory for the ring.
    #[error("cannot get memory for the log's ring: {0}; make it smaller, or check the limits on memory")]
    Memory(#[source] std::io::Error),
    /// The buffer in persistent memory.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A log that has failed cannot be filled by workers.
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
