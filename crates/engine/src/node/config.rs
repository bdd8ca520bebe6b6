//! How a node is set up. Every key has a default; unknown keys are errors.

use std::{path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use freshet_base::{NodeId, Safety};
use freshet_cluster::{
    commit_rule::{AbsurdRule, RuleConfig, WhenMissing},
    relay::RelayAck,
};
use freshet_fabric::{FabricConfig, FabricKind, limit::TokenBucket};
use freshet_log::{
    Division, GroupCommitKind, Grouping, LogConfig, Nudge, ReceiveConfig,
    persist::{Method, PersistenceConfig, time_around_cache},
};
use freshet_replication::{
    primary::PrimaryFabric,
    standby::{RelayConfig, ReplayMode, StandbyFabric},
};
use serde::{Deserialize, Serialize};

use super::membership::MembershipSettings;

/// Where the log becomes persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// In files, with `fdatasync`.
    #[default]
    File,
    /// In memory that persists: a primary's log buffer is a mapped file, on a DAX file system for the real thing. Segments get the log
    /// later. A standby persists in files.
    Pmem,
    /// Nowhere: for measuring, or for memory that survives by other means. A primary keeps its log only
    /// as long as standbys need it; a standby keeps all of it in memory.
    None,
}

impl std::str::FromStr for Domain {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "file" => Ok(Self::File),
            "pmem" => Ok(Self::Pmem),
            "none" => Ok(Self::None),
            _ => Err(format!("unknown persistence domain {text:?}: use file, pmem or none")),
        }
    }
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Pmem => "pmem",
            Self::None => "none",
        })
    }
}

/// What a primary does when it lacks the standbys without which nothing commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLoss {
    /// Commits wait until enough standbys are back.
    #[default]
    Block,
    /// After a deadline, commits are refused until enough standbys are back.
    Refuse,
}

/// When blocks become durable, and when that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupCommit {
    /// By size or time, overlapped with shipping.
    #[default]
    Pipelined,
    /// By epochs; results are released by epoch.
    Epoch,
    /// In domain `pmem`: workers leave the fence to their next commit, stragglers are nudged. Elsewhere as pipelined.
    Passive,
}

/// How stragglers of passive group commit are nudged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NudgeBy {
    /// By `membarrier(2)`, all at once.
    #[default]
    Membarrier,
    /// By a signal to the thread.
    Signal,
}

/// How blocks are divided among the log's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DivideBy {
    /// A transaction's block goes to its worker's stream.
    #[default]
    Transaction,
    /// Each record goes to the stream of its page.
    Page,
}

/// What a standby's replay does to records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Apply {
    /// It announces their addresses in the replay arrays; versions are made by who reads them (Query Fresh, section 3.4).
    #[default]
    Fresh,
    /// It makes their versions and puts them into the data arrays (Query Fresh, section 4.7, "FullReplay"): a baseline, for comparisons.
    Full,
    /// It executes again what transactions were told to do (Query Fresh, section 4.3, "Logical"): for benchmarks, which log that. One
    /// thread does so in the order of stamps; several (`replay-threads`) take a partition each.
    Command,
}

impl std::str::FromStr for Apply {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fresh" => Ok(Self::Fresh),
            "full" => Ok(Self::Full),
            "command" => Ok(Self::Command),
            _ => Err(format!("unknown way to apply the log {text:?}: use fresh, full or command")),
        }
    }
}

impl std::fmt::Display for Apply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fresh => "fresh",
            Self::Full => "full",
            Self::Command => "command",
        })
    }
}

/// Sizes and times of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct LogSettings {
    /// Size of the log buffer in bytes, a power of two. A row may take half of it at most.
    pub buffer_bytes: usize,
    /// How many bytes of log one transaction may write, from 4096 on. A transaction that does not fit the buffer is put there part by part, and
    /// others that commit wait meanwhile.
    pub transaction_bytes: u64,
    /// How many bytes of log may be uncommitted when a transaction commits: beyond that it waits
    /// until standbys, or this node's disk, have caught up.
    pub uncommitted_bytes: u64,
    /// Size of a log segment in bytes, a multiple of 4096; fixed when the directory is made.
    pub segment_bytes: u64,
    /// A group commit of this size is flushed at once.
    pub batch_bytes: u64,
    /// A block waits for its group commit this long at most, in microseconds.
    pub interval_us: u64,
    /// Size of the log's partitions for parallel replay, in bytes, a power of two.
    pub partition_bytes: u64,
    /// How many streams a new log gets, 1 to 8, unless `dir` says so.
    pub streams: usize,
    /// A directory for each stream: one per device. None: below `directory`.
    pub dir: Vec<PathBuf>,
    /// How many workers in a row belong to one stream; 0: worker `w` belongs to stream `w mod n`.
    pub group_size: usize,
    /// When blocks become durable, and when that is told.
    pub group_commit: GroupCommit,
    /// With `group-commit = "epoch"`: how long an epoch lasts, in milliseconds.
    pub epoch_ms: u64,
    /// With `group-commit = "passive"`: how stragglers are nudged.
    pub nudge: NudgeBy,
    /// In domain `pmem`: the file that the buffer is, on a DAX file system. None: `buffer` in `directory`.
    pub buffer_file: Option<PathBuf>,
    /// In domain `pmem`: how stores become durable: non-temporal, clwb, clflushopt, clflush or eadr; auto takes the best that
    /// the processor has.
    pub persist_method: String,
    /// In domain `pmem`: waited for at each insertion, and on a standby by each thread that persists, in nanoseconds,
    /// to stand for slower memory.
    pub persist_delay_ns: u64,
    /// The same for each KiB that is made durable, in proportion to the bytes: nanoseconds, or `calibrated` for what it
    /// takes here to write so much around the caches.
    pub persist_delay_per_kib: String,
    /// In domain `pmem`, on a standby: whether its replay threads persist what it receives, each its share; else one
    /// thread does.
    pub persist_upon_replay: bool,
    /// Whether a standby asks for huge pages for its buffer, where that is in plain memory.
    pub huge_pages: bool,
    /// How blocks are divided among streams.
    pub divide_by: DivideBy,
    /// With `divide-by = "page"`: how many records of a table make a page.
    pub page_records: u64,
}

impl Default for LogSettings {
    fn default() -> Self {
        let log = LogConfig::default();
        Self {
            buffer_bytes: log.capacity,
            transaction_bytes: log.longest_transaction,
            uncommitted_bytes: 64 << 20,
            segment_bytes: 64 << 20,
            batch_bytes: log.batch_bytes,
            interval_us: log.interval.as_micros() as u64,
            partition_bytes: log.partition,
            streams: 1,
            dir: Vec::new(),
            group_size: 0,
            group_commit: GroupCommit::Pipelined,
            epoch_ms: 40,
            nudge: NudgeBy::Membarrier,
            buffer_file: None,
            persist_method: "auto".into(),
            persist_delay_ns: 0,
            persist_delay_per_kib: "0".into(),
            persist_upon_replay: true,
            huge_pages: false,
            divide_by: DivideBy::Transaction,
            page_records: 1024,
        }
    }
}

impl LogSettings {
    /// How many streams a new log gets.
    pub(crate) fn stream_count(&self) -> usize {
        if self.dir.is_empty() { self.streams } else { self.dir.len() }
    }
}

/// How nodes write into one another's memory. A standby says by which fabric its primary does; what else is said here, each node says for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct FabricSettings {
    /// On a standby: the fabric by which the log comes. On a primary: the fabric that standbys may
    /// ask for besides TCP.
    pub kind: FabricKind,
    /// Whoever waits for the other side looks for its word this many microseconds before going to sleep (shm, verbs): only worth
    /// anything where a processor is idle.
    pub spin_us: u64,
    /// Mailboxes are in huge pages, where the system has some to spare (shm, verbs).
    pub huge_pages: bool,
    /// What this node sends to all others together keeps to this many gigabits (10^9 bits) per second; 0: no limit.
    pub bandwidth_gbit: f64,
    /// On a primary: batches are compressed with LZ4.
    pub compress: bool,
    /// On a standby: what its primary has written and read back is persistent, and needs no acknowledgement (the "appliance" method of Query
    /// Fresh, section 2.3). Needs domain pmem, and a network whose writes go around the processor's caches, or caches that survive.
    pub appliance: bool,
    /// The RDMA device, "NAME:PORT:GID-INDEX"; empty: the first that is up (verbs).
    pub device: String,
    /// Whether TLS also encrypts what goes over TCP after two nodes have authenticated.
    pub encryption: FabricEncryption,
}

/// Whether what two nodes write into each other's memory over TCP is encrypted. Other fabrics do
/// not use TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FabricEncryption {
    /// By TLS.
    #[default]
    Tls,
    /// Not encrypted, if both nodes say so. They still authenticate, but an attacker who controls
    /// the network between them can read and change what they send.
    None,
}

impl FromStr for FabricEncryption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tls" => Ok(Self::Tls),
            "none" => Ok(Self::None),
            _ => Err(format!("unknown encryption {text:?}: use tls or none")),
        }
    }
}

impl Default for FabricSettings {
    fn default() -> Self {
        Self {
            kind: FabricKind::Tcp,
            spin_us: 0,
            huge_pages: false,
            bandwidth_gbit: 0.0,
            compress: false,
            appliance: false,
            device: String::new(),
            encryption: FabricEncryption::default(),
        }
    }
}

impl FabricSettings {
    fn config(&self) -> Result<FabricConfig, String> {
        let device = match &*self.device {
            "" => None,
            text => {
                let parts: Vec<&str> = text.split(':').collect();
                let [name, port, gid] = parts[..] else {
                    return Err(format!("fabric.device {text:?}: use NAME:PORT:GID-INDEX"));
                };
                let number =
                    |part: &str| part.parse().map_err(|_| format!("fabric.device: {part:?} is no small number"));
                Some((name.to_owned(), number(port)?, number(gid)?))
            }
        };
        let spin = Duration::from_micros(self.spin_us);
        let bare = self.encryption == FabricEncryption::None;
        Ok(FabricConfig { spin, huge_pages: self.huge_pages, device, bare, ..FabricConfig::default() })
    }

    fn limit(&self) -> Result<Option<Arc<TokenBucket>>, String> {
        if !self.bandwidth_gbit.is_finite() || self.bandwidth_gbit < 0.0 {
            return Err("fabric.bandwidth-gbit is a number from 0 on".into());
        }
        Ok((self.bandwidth_gbit > 0.0).then(|| Arc::new(TokenBucket::gigabits(self.bandwidth_gbit))))
    }

    pub(crate) fn primary(&self) -> Result<PrimaryFabric, String> {
        Ok(PrimaryFabric { kind: self.kind, config: self.config()?, limit: self.limit()?, compress: self.compress })
    }

    pub(crate) fn standby(&self, domain: Domain) -> Result<StandbyFabric, String> {
        if self.appliance && domain != Domain::Pmem {
            return Err("fabric.appliance needs domain pmem: elsewhere what has arrived is not persistent".into());
        }
        Ok(StandbyFabric { kind: self.kind, config: self.config()?, limit: self.limit()?, appliance: self.appliance })
    }
}

/// When and how checkpoints are written. Only a node with a directory writes any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct CheckpointSettings {
    /// Where their rows go: a directory for each device. None: `checkpoints` below the node's directory.
    pub dir: Vec<PathBuf>,
    /// In how many files each table is written on each device: what a restart can read side by side.
    pub files: u32,
    /// A checkpoint begins this many seconds after the last one ended, once the log has grown by a quarter of what
    /// that had written; 0: only when asked for.
    pub interval_s: u64,
    /// ... or when the log has grown by this many bytes.
    pub log_bytes: u64,
    /// What is written is synced every so many bytes; 0: once at the end.
    pub sync_bytes: u64,
    /// How much of a processor each checkpointer may take, in percent.
    pub cpu_percent: u32,
    /// Segments below a checkpoint are kept while they are not more than this many bytes: for standbys that were away.
    pub keep_log_bytes: u64,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self {
            dir: Vec::new(),
            files: 2,
            interval_s: 10,
            log_bytes: 1 << 30,
            sync_bytes: 32 << 20,
            cpu_percent: 25,
            keep_log_bytes: 256 << 20,
        }
    }
}

/// How a node is set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NodeConfig {
    /// The directory of the log; needed in domain `file`.
    pub directory: Option<PathBuf>,
    /// Where the log becomes persistent.
    pub domain: Domain,
    /// Where this node listens for other nodes: "host:port"; port 0 lets the system choose.
    pub listen: String,
    /// The primary to follow, "host:port": with it this node is a standby.
    pub join: Option<String>,
    /// Where other nodes reach this one, if not where it listens.
    pub advertise: Option<String>,
    /// Other nodes that may exist, beside those that the primary knows.
    pub peers: Vec<String>,
    /// What a commit waits for.
    pub safety: Safety,
    /// How many standbys the cluster is meant to have: what very-safe and quorum count on.
    pub standbys: u32,
    /// What happens to commits without enough standbys.
    pub on_loss: OnLoss,
    /// With `on-loss = "refuse"`: how long commits wait before they are refused, in milliseconds.
    pub refuse_after_ms: u64,
    /// With `safety = "2-safe"`: commits wait rather than go on with fewer standbys in sync than this; a take-over then needs so many nodes less. 0: the
    /// primary goes on alone.
    pub least_in_sync: u32,
    /// Of a standby: no commit ever waits for it, and it counts in no quorum.
    pub asynchronous: bool,
    /// How long a primary that restarts waits until so many others answer that it knows that nobody has gone on without it, in seconds.
    pub restart_timeout_s: u64,
    /// A primary that restarts reigns without asking anybody, although commits that were acknowledged may be lost. Not to be left in a
    /// configuration.
    pub force_reign: bool,
    /// Of a standby: how many asynchronous standbys it is meant to feed. 0: it is no relay, and feeds none.
    pub relay_standbys: u32,
    /// Of a relay: whether it acknowledges what it holds itself, or what its standbys hold too.
    pub relay_ack: RelayAck,
    /// How long a standby may leave something unacknowledged before it leaves the in-sync set, in milliseconds.
    pub standby_timeout_ms: u64,
    /// How many threads replay, at restart and on a standby.
    pub replay_threads: usize,
    /// When a standby replays what it receives, and when it acknowledges it.
    pub replay: ReplayMode,
    /// What a standby's replay does to records.
    pub apply: Apply,
    /// How many workers (sessions) there can be at once.
    pub workers: usize,
    /// Sizes and times of the log.
    pub log: LogSettings,
    /// When and how checkpoints are written.
    pub checkpoint: CheckpointSettings,
    /// How nodes write into one another's memory.
    pub fabric: FabricSettings,
    /// How this node is a member of its cluster.
    pub membership: MembershipSettings,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            directory: None,
            domain: Domain::File,
            listen: "127.0.0.1:7401".into(),
            join: None,
            advertise: None,
            peers: Vec::new(),
            safety: Safety::TwoSafe,
            standbys: 0,
            on_loss: OnLoss::Block,
            refuse_after_ms: 5000,
            least_in_sync: 0,
            asynchronous: false,
            restart_timeout_s: 600,
            force_reign: false,
            relay_standbys: 0,
            relay_ack: RelayAck::Own,
            standby_timeout_ms: 2000,
            replay_threads: 1,
            replay: ReplayMode::Pipelined,
            apply: Apply::Fresh,
            workers: 128,
            log: LogSettings::default(),
            checkpoint: CheckpointSettings::default(),
            fabric: FabricSettings::default(),
            membership: MembershipSettings::default(),
        }
    }
}

impl NodeConfig {
    pub(crate) fn log_config(&self) -> LogConfig {
        LogConfig {
            capacity: self.log.buffer_bytes,
            longest_transaction: self.log.transaction_bytes,
            batch_bytes: self.log.batch_bytes,
            interval: Duration::from_micros(self.log.interval_us),
            partition: self.log.partition_bytes,
            writers: self.workers + 8,
            group_commit: match self.log.group_commit {
                GroupCommit::Pipelined => GroupCommitKind::Pipelined,
                GroupCommit::Epoch => GroupCommitKind::Epoch(Duration::from_millis(self.log.epoch_ms)),
                GroupCommit::Passive => GroupCommitKind::Passive(match self.log.nudge {
                    NudgeBy::Membarrier => Nudge::Membarrier,
                    NudgeBy::Signal => Nudge::Signal,
                }),
            },
            grouping: match self.log.group_size {
                0 => Grouping::RoundRobin,
                size => Grouping::Blocks(size),
            },
            division: match self.log.divide_by {
                DivideBy::Transaction => Division::Transaction,
                DivideBy::Page => Division::Page(self.log.page_records),
            },
        }
    }

    pub(crate) fn rule(&self) -> Result<RuleConfig, AbsurdRule> {
        let rule = RuleConfig {
            standby_timeout: Duration::from_millis(self.standby_timeout_ms),
            when_missing: match self.on_loss {
                OnLoss::Block => WhenMissing::Block,
                OnLoss::Refuse => WhenMissing::RefuseAfter(Duration::from_millis(self.refuse_after_ms)),
            },
            floor: self.least_in_sync,
            ..RuleConfig::new(self.safety, self.standbys)
        };
        rule.check()?;
        Ok(rule)
    }

    /// How a standby feeds standbys of its own, if it is a relay.
    pub(crate) fn relay(&self) -> Result<Option<RelayConfig>, String> {
        if self.relay_standbys == 0 {
            return Ok(None);
        }
        Ok(Some(RelayConfig {
            standby_timeout: Duration::from_millis(self.standby_timeout_ms),
            partition: self.log.partition_bytes,
            // The primary's is at most as large as what this node's own buffer takes.
            largest_block: self.log.buffer_bytes as u64 / 2,
            fabric: self.fabric.primary()?,
            ..RelayConfig::new(self.relay_ack, self.relay_standbys)
        }))
    }

    /// The file of a log buffer in persistent memory.
    pub(crate) fn buffer_file(&self) -> Option<PathBuf> {
        let default = || self.directory.as_ref().map(|directory| directory.join("buffer"));
        self.log.buffer_file.clone().or_else(default)
    }

    /// The log buffer of `owner` in persistent memory, in domain `pmem`.
    pub(crate) fn persistence(&self, owner: NodeId) -> Result<Option<PersistenceConfig>, String> {
        if self.domain != Domain::Pmem {
            return Ok(None);
        }
        let method = match self.log.persist_method.as_str() {
            "auto" => Method::best().ok_or("domain pmem: no way is known to flush this processor's caches")?,
            name => name.parse()?,
        };
        let path = self.buffer_file().ok_or("domain pmem needs a directory")?;
        let delay_per_kib = match self.log.persist_delay_per_kib.as_str() {
            "calibrated" => time_around_cache(),
            number => {
                let nanos =
                    number.parse().map_err(|_| format!("{number:?} is no number of nanoseconds; or `calibrated`"));
                Duration::from_nanos(nanos?)
            }
        };
        let delay = Duration::from_nanos(self.log.persist_delay_ns);
        Ok(Some(PersistenceConfig { path, owner, method, delay, delay_per_kib }))
    }

    /// The log of a node that receives it.
    pub(crate) fn receive_config(&self) -> ReceiveConfig {
        ReceiveConfig {
            capacity: self.log.buffer_bytes,
            huge_pages: self.log.huge_pages,
            partition: self.log.partition_bytes,
            // Who does not replay has nobody to do it then.
            upon_replay: self.log.persist_upon_replay && self.replay != ReplayMode::None,
        }
    }

    /// Where checkpoints' rows go.
    pub(crate) fn checkpoint_devices(&self) -> Vec<PathBuf> {
        match (&self.directory, &*self.checkpoint.dir) {
            (Some(directory), []) => vec![directory.join("checkpoints")],
            (_, devices) => devices.to_vec(),
        }
    }

    /// Those of them that are not below the node's directory by default.
    pub(crate) fn named_checkpoint_devices(&self) -> Vec<PathBuf> {
        let default = Self { checkpoint: CheckpointSettings::default(), ..self.clone() }.checkpoint_devices();
        self.checkpoint.dir.iter().filter(|device| !default.contains(device)).cloned().collect()
    }

    /// Places for workers, replay threads and the engine's own.
    pub(crate) fn participants(&self) -> usize {
        self.workers + 3 * self.replay_threads.max(1) + self.checkpoint.dir.len().max(1) + 5
    }
}
