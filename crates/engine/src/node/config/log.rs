//! The table `[log]`, without the keys about messages, which are the server's.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use freshet_base::NodeId;
use freshet_log::{
    Division, ForceFence, GroupCommitKind, Grouping, LogConfig,
    block::MAX_STREAMS,
    persist::{Method, PersistenceConfig, time_around_cache},
};
use serde::{Deserialize, Serialize};

use super::{
    SettingError,
    headings::{COMMON, LABORATORY},
};

/// When blocks become durable, and when that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum GroupCommit {
    /// By size or time, overlapped with shipping.
    #[default]
    Pipelined,
    /// By epochs: fewer and larger writes, and a longer wait.
    Epoch,
    /// In domain `pmem`, workers leave the fence to their next commit.
    Passive,
}

/// How stragglers of passive group commit are force-fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ForceFenceBy {
    /// By `membarrier(2)`, all at once.
    #[default]
    Membarrier,
    /// By a signal to the thread.
    Signal,
}

/// How blocks are divided among the log's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum DivideBy {
    /// A transaction's block goes to its worker's stream.
    #[default]
    Transaction,
    /// Each record goes to the stream of its page.
    Page,
}

/// Sizes and times of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Log")]
pub struct LogSettings {
    /// Size of the log's buffer, a power of two from 65536 on. A row may take half of it. A
    /// standby's must take half of its primary's and a partition.
    ///
    /// Raise it when workers wait for a device that stalls, or for very long rows.
    #[arg(id = "log-buffer-bytes", long, value_name = "BYTES")]
    pub buffer_bytes: usize,
    /// How much log may be uncommitted when a transaction commits, from 65536 on. Beyond that the
    /// transaction waits until standbys, or this node's disk, have caught up; if it is cancelled
    /// in the meantime, it is rolled back.
    ///
    /// Raise it for slow links to standbys; lower it to keep writers close to what is committed.
    #[arg(id = "log-uncommitted-bytes", long, value_name = "BYTES", help_heading = LABORATORY)]
    pub uncommitted_bytes: u64,
    /// How much log one transaction may write, 65536 to 274877906944: its rows, and 32 bytes for
    /// each. One longer than an eighth of the buffer is put there part by part, while other commits
    /// wait. Until it commits it is kept in memory.
    ///
    /// Raise it for loads in one transaction; lower it to keep loads from holding up others.
    #[arg(id = "log-transaction-bytes", long, value_name = "BYTES", hide = true)]
    pub transaction_bytes: u64,
    /// Size of a log file, a multiple of 4096. It is fixed when the log is made, and ignored later.
    ///
    /// Lower it on small disks: log is removed by whole files.
    #[arg(id = "log-segment-bytes", long, value_name = "BYTES", help_heading = LABORATORY)]
    pub segment_bytes: u64,
    /// A group commit of this size begins at once.
    ///
    /// Lower it for latency under load; raise it for fewer writes.
    #[arg(id = "log-batch-bytes", long, value_name = "BYTES", help_heading = LABORATORY)]
    pub batch_bytes: u64,
    /// A group commit begins at the latest after this many microseconds, up to 10000000. In domain
    /// `pmem`: how often the log is looked at, at least 20.
    ///
    /// Raise it for throughput on few processors; lower it for latency.
    #[arg(id = "log-interval-us", long, value_name = "US", help_heading = LABORATORY)]
    pub interval_us: u64,
    /// How much of the log a replay thread takes at a time, a power of two from 1024 on.
    ///
    /// Hardly ever.
    #[arg(id = "log-partition-bytes", long, value_name = "BYTES", help_heading = LABORATORY)]
    pub partition_bytes: u64,
    /// How many streams a new log gets, 1 to 8. It is fixed when the log is made, and ignored
    /// later.
    ///
    /// Rather set `log.dir`.
    #[arg(id = "log-streams", long, value_name = "N", help_heading = LABORATORY)]
    pub streams: usize,
    /// A directory for each stream, always in the same order: new or empty at first. There are as
    /// many streams as directories. None: below `directory`.
    ///
    /// Set it when one device cannot write the log as fast as it grows.
    #[arg(id = "log-dir", long, value_name = "DIR", value_delimiter = ',', help_heading = COMMON)]
    pub dir: Vec<PathBuf>,
    /// How many successive workers belong to one stream, up to 256. 0: workers are dealt out to
    /// streams one by one.
    ///
    /// Use the number of a socket's processors where each stream has a device near one socket.
    #[arg(id = "log-group-size", long, value_name = "N", help_heading = LABORATORY)]
    pub group_size: usize,
    /// What decides to which stream a change goes: its worker, or its record id.
    ///
    /// For comparisons: on the machine measured neither is faster.
    #[arg(id = "log-divide-by", long, value_name = "WHAT", help_heading = LABORATORY)]
    pub divide_by: DivideBy,
    /// With `divide-by = "page"`: how many records of a table make a page.
    ///
    /// Lower it when few records are hot, to spread them.
    #[arg(id = "log-page-records", long, value_name = "N", help_heading = LABORATORY)]
    pub page_records: u64,
    /// On a standby: it asks for huge pages for its buffer in plain memory. It gets those that were
    /// set aside (`vm.nr_hugepages`) if there are enough, otherwise those that the kernel makes by
    /// itself (`shmem_enabled`).
    ///
    /// Set it with large buffers.
    #[arg(id = "log-huge-pages", long, help_heading = LABORATORY)]
    pub huge_pages: bool,
    /// When blocks count as durable. With `passive`, stragglers are force-fenced
    /// (`log.force-fence`); in other domains than `pmem` it is the same as `pipelined`.
    ///
    /// `pipelined` is seldom behind: docs/benchmarks.md.
    #[arg(id = "log-group-commit", long, value_name = "KIND", help_heading = LABORATORY)]
    pub group_commit: GroupCommit,
    /// With `group-commit = "epoch"`: the length of an epoch in milliseconds, 1 to 60000.
    ///
    /// Lower it for latency.
    #[arg(id = "log-epoch-ms", long, value_name = "MS", help_heading = LABORATORY)]
    pub epoch_ms: u64,

    /// The file that the buffer is, new or empty at first; for persistent memory, on a DAX file
    /// system. None: `buffer` in `directory`.
    ///
    /// Set it to a place on DAX; never while the file holds something
    /// (docs/operations.md#persistent-memory).
    #[arg(id = "log-buffer-file", long, value_name = "FILE", help_heading = LABORATORY)]
    pub buffer_file: Option<PathBuf>,
    /// How stores become durable: `non-temporal`, `clwb`, `clflushopt`, `clflush` or `eadr`. `auto`
    /// takes the first of these that the processor has, except `eadr`. With `non-temporal`, a
    /// standby flushes what it receives by the next of them, since it is about to replay it.
    ///
    /// Use `eadr` if caches survive a loss of power, which only you can know.
    #[arg(id = "log-persist-method", long, value_name = "METHOD", help_heading = LABORATORY)]
    pub persist_method: String,
    /// An artificial delay in nanoseconds for each insertion, and on a standby for each thread's
    /// share of a batch, that emulates slower memory; up to 1000000.
    ///
    /// For experiments.
    #[arg(id = "log-persist-delay-ns", long, value_name = "NS", help_heading = LABORATORY)]
    pub persist_delay_ns: u64,
    /// The same for each KiB that is made durable, in proportion to the bytes: nanoseconds up to
    /// 1000000. `calibrated`: the time that this machine takes to write a KiB around its caches,
    /// measured at the start.
    ///
    /// For experiments.
    #[arg(id = "log-persist-delay-per-kib", long, value_name = "NS", help_heading = LABORATORY)]
    pub persist_delay_per_kib: String,
    /// On a standby: its replay threads make durable what was received, each its share, before they
    /// replay it. Otherwise, and with `replay = "none"`, one thread does so by itself. With `eadr`
    /// and no delay it is durable when it is received.
    ///
    /// Use `false` where processors are many and received batches small, or to compare.
    #[arg(id = "log-persist-upon-replay", long, help_heading = LABORATORY)]
    pub persist_upon_replay: bool,
    /// With `group-commit = "passive"`: how lagging workers are made to fence.
    ///
    /// Use `signal` where the kernel has no `membarrier(2)`.
    #[arg(id = "log-force-fence", long, value_name = "HOW", help_heading = LABORATORY)]
    pub force_fence: ForceFenceBy,
}

impl Default for LogSettings {
    fn default() -> Self {
        let log = LogConfig::default();
        Self {
            buffer_bytes: log.capacity,
            uncommitted_bytes: 64 << 20,
            transaction_bytes: log.longest_transaction,
            segment_bytes: 64 << 20,
            batch_bytes: log.batch_bytes,
            interval_us: log.interval.as_micros() as u64,
            partition_bytes: log.partition,
            streams: 1,
            dir: Vec::new(),
            group_size: 0,
            divide_by: DivideBy::Transaction,
            page_records: 1024,
            huge_pages: false,
            group_commit: GroupCommit::Pipelined,
            epoch_ms: 40,
            buffer_file: None,
            persist_method: "auto".to_owned(),
            persist_delay_ns: 0,
            persist_delay_per_kib: "0".to_owned(),
            persist_upon_replay: true,
            force_fence: ForceFenceBy::Membarrier,
        }
    }
}

impl LogSettings {
    /// How many streams a new log gets.
    pub(crate) fn stream_count(&self) -> usize {
        if self.dir.is_empty() { self.streams } else { self.dir.len() }
    }

    pub(super) fn check(&self) -> Result<(), SettingError> {
        let buffer = self.buffer_bytes as u64;
        SettingError::within("log.buffer-bytes", buffer, 1 << 16..=1 << 36)?;
        SettingError::within("log.partition-bytes", self.partition_bytes, 1 << 10..=buffer)?;
        for (key, bytes) in [("log.buffer-bytes", buffer), ("log.partition-bytes", self.partition_bytes)] {
            if !bytes.is_power_of_two() {
                let remedy = format!("use a power of two, like {}", bytes.next_power_of_two());
                return Err(SettingError::new(key, bytes, remedy));
            }
        }
        SettingError::within("log.uncommitted-bytes", self.uncommitted_bytes, 1 << 16..=1 << 40)?;
        SettingError::within("log.transaction-bytes", self.transaction_bytes, 1 << 16..=1 << 38)?;
        SettingError::within("log.segment-bytes", self.segment_bytes, 4096..=1 << 36)?;
        SettingError::within("log.batch-bytes", self.batch_bytes, 1..=1 << 36)?;
        SettingError::within("log.interval-us", self.interval_us, 0..=10_000_000)?;
        SettingError::within("log.streams", self.streams, 1..=MAX_STREAMS as u64)?;
        SettingError::within("log.dir", self.dir.len(), 0..=MAX_STREAMS as u64)?;
        SettingError::within("log.group-size", self.group_size, 0..=256)?;
        SettingError::within("log.page-records", self.page_records, 1..=1 << 30)?;
        SettingError::within("log.epoch-ms", self.epoch_ms, 1..=60_000)?;
        SettingError::within("log.persist-delay-ns", self.persist_delay_ns, 0..=1_000_000)?;
        if !self.segment_bytes.is_multiple_of(4096) {
            return Err(SettingError::new("log.segment-bytes", self.segment_bytes, "use a multiple of 4096"));
        }
        self.method()?;
        self.delay_per_kib().map(drop)
    }

    pub(super) fn config(&self) -> LogConfig {
        LogConfig {
            capacity: self.buffer_bytes,
            longest_transaction: self.transaction_bytes,
            batch_bytes: self.batch_bytes,
            interval: Duration::from_micros(self.interval_us),
            partition: self.partition_bytes,
            group_commit: match self.group_commit {
                GroupCommit::Pipelined => GroupCommitKind::Pipelined,
                GroupCommit::Epoch => GroupCommitKind::Epoch(Duration::from_millis(self.epoch_ms)),
                GroupCommit::Passive => GroupCommitKind::Passive(match self.force_fence {
                    ForceFenceBy::Membarrier => ForceFence::Membarrier,
                    ForceFenceBy::Signal => ForceFence::Signal,
                }),
            },
            grouping: match self.group_size {
                0 => Grouping::RoundRobin,
                size => Grouping::Blocks(size),
            },
            division: match self.divide_by {
                DivideBy::Transaction => Division::Transaction,
                DivideBy::Page => Division::Page(self.page_records),
            },
            ..LogConfig::default()
        }
    }

    /// None for the best that the processor has.
    fn method(&self) -> Result<Option<Method>, SettingError> {
        match self.persist_method.as_str() {
            "auto" => Ok(None),
            name => {
                let method = name.parse().map_err(|why: String| SettingError::new("log.persist-method", name, why))?;
                Ok(Some(method))
            }
        }
    }

    /// None for what it takes to write around the caches.
    fn delay_per_kib(&self) -> Result<Option<Duration>, SettingError> {
        match self.persist_delay_per_kib.as_str() {
            "calibrated" => Ok(None),
            number => match number.parse() {
                Ok(nanos @ 0..=1_000_000) => Ok(Some(Duration::from_nanos(nanos))),
                _ => {
                    let remedy = "use nanoseconds from 0 to 1000000, or calibrated";
                    Err(SettingError::new("log.persist-delay-per-kib", number, remedy))
                }
            },
        }
    }

    /// The log buffer of `owner` in the persistent memory at `path`.
    pub(super) fn persistence(&self, path: PathBuf, owner: NodeId) -> Result<PersistenceConfig, SettingError> {
        let unknown = || SettingError::new("domain", "pmem", "no way is known to flush this processor's caches");
        let method = self.method()?.or_else(Method::best).ok_or_else(unknown)?;
        let delay_per_kib = self.delay_per_kib()?.unwrap_or_else(time_around_cache);
        Ok(PersistenceConfig { path, owner, method, delay: Duration::from_nanos(self.persist_delay_ns), delay_per_kib })
    }
}
