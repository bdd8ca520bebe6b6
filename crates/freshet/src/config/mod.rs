//! The configuration of a node: defaults, a file, the environment, and flags, each of which beats the one before.
//!
//! [`Settings`] has a value for every key, [`Flags`] those that were given on the command line or in the
//! environment. A key is spelled the same everywhere: `replay-threads` in the file, `--replay-threads` as a flag,
//! `FRESHET_REPLAY_THREADS` in the environment.

mod flags;
#[cfg(test)]
mod tests;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ValueEnum;
use freshet_base::Safety;
use freshet_engine::{
    Apply, CheckpointSettings, FabricSettings, MembershipSettings, NodeConfig, PersistMethod as Method, RelayAck,
    ReplayMode,
};
use freshet_query::session::settings::Bounds;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use self::flags::Flags;
use crate::{
    messages::{Format, Levels},
    pin::Cpus,
};

/// How many streams a log can have.
const MAX_STREAMS: u64 = 8;

/// Where the bytes of the log persist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// In preallocated files, flushed before a commit counts.
    #[default]
    File,
    /// In memory that persists, or stands for it; files get the log later.
    Pmem,
    /// Nowhere: the log is in memory only, for measuring.
    None,
}

/// What a primary does when its safety level cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnLoss {
    /// Commits wait until it can be kept again.
    #[default]
    Block,
    /// Commits are refused with an error of their own after `refuse-after-ms`.
    Refuse,
}

/// When blocks become durable, and when that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum GroupCommit {
    /// By size or time.
    #[default]
    Pipelined,
    /// By epochs: fewer, larger writes, and a longer wait.
    Epoch,
    /// With domain pmem: workers leave the fence to their next commit, stragglers are nudged.
    Passive,
}

/// How stragglers of passive group commit are nudged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum NudgeBy {
    /// By membarrier(2), all at once.
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

/// All that a node can be told. Unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Settings {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    /// Where the log is kept.
    pub(crate) directory: PathBuf,
    /// Where the bytes of the log persist.
    pub(crate) domain: Domain,
    /// Where other nodes connect.
    pub(crate) listen: SocketAddr,
    /// The primary's `listen` address: this node is its standby.
    pub(crate) join: Option<String>,
    /// How other nodes reach this node's `listen` address, when not by that.
    pub(crate) advertise: Option<String>,
    /// The other nodes' `listen` addresses, for take-overs.
    pub(crate) peers: Vec<String>,
    /// Where a commit must be persistent before the client hears of it.
    pub(crate) safety: Safety,
    /// How many standbys belong to the cluster.
    pub(crate) standbys: u32,
    /// What happens when the safety level cannot be kept.
    pub(crate) on_loss: OnLoss,
    /// After this long without an acknowledgement a standby is taken for lost.
    pub(crate) standby_timeout_ms: u64,
    /// Under 2-safe: commits wait rather than go on with fewer standbys in sync.
    pub(crate) least_in_sync: u32,
    /// Of a standby: no commit waits for it.
    pub(crate) asynchronous: bool,
    /// How long a primary that restarts waits for others to answer.
    pub(crate) restart_timeout_s: u64,
    /// A primary that restarts reigns without asking anybody.
    pub(crate) force_reign: bool,
    /// Of a standby: how many asynchronous standbys it is meant to feed.
    pub(crate) relay_standbys: u32,
    /// Of such a relay: what it acknowledges.
    pub(crate) relay_ack: RelayAck,
    /// With `on-loss = "refuse"`: after this long commits are refused.
    pub(crate) refuse_after_ms: u64,
    /// Threads that replay the log, on a standby and at restart.
    pub(crate) replay_threads: usize,
    /// When a standby replays, and when it acknowledges.
    pub(crate) replay: ReplayMode,
    /// What a standby's replay does to records.
    pub(crate) apply: Apply,
    /// Whether every client that reaches the control port may ask for the status.
    pub(crate) open_status: bool,
    /// The processors that this node may use.
    pub(crate) pin: Option<Cpus>,
    /// The log's sizes and times.
    pub(crate) log: LogSettings,
    /// When and how checkpoints are written.
    pub(crate) checkpoint: CheckpointSettings,
    /// How nodes write into one another's memory.
    pub(crate) fabric: FabricSettings,
    /// How this node is a member of its cluster.
    pub(crate) member: MembershipSettings,
    /// The PostgreSQL protocol.
    pub(crate) sql: SqlSettings,
}

/// Where PostgreSQL's clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum SqlListen {
    /// Nowhere.
    Off,
    /// At an address.
    At(SocketAddr),
}

impl std::str::FromStr for SqlListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            address => address
                .parse()
                .map(Self::At)
                .map_err(|_| format!("{address:?} is neither an address with a port nor \"off\"")),
        }
    }
}

impl TryFrom<String> for SqlListen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SqlListen> for String {
    fn from(listen: SqlListen) -> Self {
        match listen {
            SqlListen::Off => "off".to_owned(),
            SqlListen::At(address) => address.to_string(),
        }
    }
}

/// How PostgreSQL's clients are served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct SqlSettings {
    /// Where they connect.
    pub(crate) listen: SqlListen,
    /// The directory of their Unix socket; none for the default directory of this user.
    pub(crate) socket_directory: Option<PathBuf>,
    /// How many of them at once.
    pub(crate) connections: usize,
    /// The access file.
    pub(crate) access: Option<PathBuf>,
    /// The superuser that a new database has.
    pub(crate) user: String,
    /// The certificates for TLS, in PEM.
    pub(crate) tls_certificates: Option<PathBuf>,
    /// The key that belongs to them.
    pub(crate) tls_key: Option<PathBuf>,
    /// The authorities for clients' certificates, in PEM.
    pub(crate) tls_ca: Option<PathBuf>,
    /// How many bytes all sessions may keep together; 0 for a quarter of the machine's memory.
    pub(crate) memory_bytes: u64,
    /// How many one session may keep.
    pub(crate) session_memory_bytes: u64,
    /// How many a statement or a cursor may keep.
    pub(crate) statement_memory_bytes: u64,
    /// How long a statement may run, unless its session wants something else; 0 for any time.
    pub(crate) statement_timeout_ms: u64,
    /// How long a session may idle in a transaction, likewise.
    pub(crate) idle_in_transaction_timeout_ms: u64,
    /// How long it may idle outside of one, likewise.
    pub(crate) idle_session_timeout_ms: u64,
}

impl SqlSettings {
    /// The directory for the Unix socket, which exists; none for no socket.
    ///
    /// # Errors
    /// When it does not exist, or when the default directory cannot be used.
    pub(crate) fn socket_directory(&self) -> io::Result<Option<PathBuf>> {
        match &self.socket_directory {
            Some(off) if off.as_os_str() == "off" => Ok(None),
            Some(directory) if directory.is_dir() => Ok(Some(directory.clone())),
            Some(directory) => {
                let why = format!(
                    "{} is no directory: make it, or choose another --sql-socket-directory",
                    directory.display()
                );
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
            None => freshet_base::run_directory().map(Some),
        }
    }

    /// What sessions begin with, and may not exceed, where the machine has `available` bytes of
    /// memory.
    pub(crate) fn bounds(&self, available: u64) -> Bounds {
        let memory = match self.memory_bytes {
            0 if available == 0 => Bounds::default().memory,
            0 => (available / 4) as usize,
            bytes => bytes as usize,
        };
        let session_memory = memory.min(self.session_memory_bytes as usize);
        Bounds {
            memory,
            session_memory,
            statement_memory: session_memory.min(self.statement_memory_bytes as usize),
            statement_timeout: Duration::from_millis(self.statement_timeout_ms),
            idle_in_transaction_timeout: Duration::from_millis(self.idle_in_transaction_timeout_ms),
            idle_session_timeout: Duration::from_millis(self.idle_session_timeout_ms),
        }
    }
}

impl Default for SqlSettings {
    fn default() -> Self {
        Self {
            listen: SqlListen::At(SocketAddr::from((Ipv4Addr::LOCALHOST, 5432))),
            socket_directory: None,
            connections: 100,
            access: None,
            user: "freshet".to_owned(),
            tls_certificates: None,
            tls_key: None,
            tls_ca: None,
            memory_bytes: 0,
            session_memory_bytes: 1 << 30,
            statement_memory_bytes: 256 << 20,
            statement_timeout_ms: 0,
            idle_in_transaction_timeout_ms: 0,
            idle_session_timeout_ms: 0,
        }
    }
}

/// The log's sizes and times; and what the node says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct LogSettings {
    /// The buffer that workers copy their blocks into.
    pub(crate) buffer_bytes: u64,
    /// The longest transaction.
    pub(crate) transaction_bytes: u64,
    pub(crate) uncommitted_bytes: u64,
    /// One file.
    pub(crate) segment_bytes: u64,
    /// A group commit begins when this much has come together ...
    pub(crate) batch_bytes: u64,
    /// ... or after this long.
    pub(crate) interval_us: u64,
    /// What one replay thread takes at a time.
    pub(crate) partition_bytes: u64,
    /// How many streams a new log gets.
    pub(crate) streams: usize,
    /// A directory for each stream.
    pub(crate) dir: Vec<PathBuf>,
    /// How many workers in a row belong to one stream; 0 deals them out one by one.
    pub(crate) group_size: usize,
    /// When blocks become durable.
    pub(crate) group_commit: GroupCommit,
    /// The length of an epoch.
    pub(crate) epoch_ms: u64,
    /// How stragglers are nudged.
    pub(crate) nudge: NudgeBy,
    /// The file of a buffer in persistent memory.
    pub(crate) buffer_file: Option<PathBuf>,
    /// How stores to it become durable.
    pub(crate) persist_method: String,
    /// A wait for each insertion there.
    pub(crate) persist_delay_ns: u64,
    /// A wait for each KiB, in nanoseconds, or `calibrated`.
    pub(crate) persist_delay_per_kib: String,
    /// Whether a standby's replay threads persist.
    pub(crate) persist_upon_replay: bool,
    /// Whether a standby's buffer is to be in huge pages.
    pub(crate) huge_pages: bool,
    /// How blocks are divided among streams.
    pub(crate) divide_by: DivideBy,
    /// How many records make a page.
    pub(crate) page_records: u64,
    /// The format of messages.
    pub(crate) format: Format,
    /// Which messages are written.
    pub(crate) level: Levels,
}

impl Default for Settings {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            address: loopback(7400),
            directory: PathBuf::from("freshet-data"),
            domain: Domain::File,
            listen: loopback(7401),
            join: None,
            advertise: None,
            peers: Vec::new(),
            safety: Safety::TwoSafe,
            standbys: 0,
            on_loss: OnLoss::Block,
            standby_timeout_ms: 2_000,
            least_in_sync: 0,
            asynchronous: false,
            restart_timeout_s: 600,
            force_reign: false,
            relay_standbys: 0,
            relay_ack: RelayAck::Own,
            refuse_after_ms: 5_000,
            replay_threads: 2,
            replay: ReplayMode::Pipelined,
            apply: Apply::Fresh,
            open_status: false,
            pin: None,
            log: LogSettings::default(),
            checkpoint: CheckpointSettings::default(),
            fabric: FabricSettings::default(),
            member: MembershipSettings::default(),
            sql: SqlSettings::default(),
        }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            buffer_bytes: 64 << 20,
            transaction_bytes: 1 << 30,
            uncommitted_bytes: 64 << 20,
            segment_bytes: 64 << 20,
            batch_bytes: 1 << 20,
            interval_us: 1_000,
            partition_bytes: 64 << 10,
            streams: 1,
            dir: Vec::new(),
            group_size: 0,
            group_commit: GroupCommit::Pipelined,
            epoch_ms: 40,
            nudge: NudgeBy::Membarrier,
            buffer_file: None,
            persist_method: "auto".to_owned(),
            persist_delay_ns: 0,
            persist_delay_per_kib: "0".to_owned(),
            persist_upon_replay: true,
            huge_pages: false,
            divide_by: DivideBy::Transaction,
            page_records: 1024,
            format: Format::Text,
            level: Levels::default(),
        }
    }
}

/// Why there is no configuration to start with.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {cause}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// The file is not TOML, or has an unknown key, or a value that does not fit.
    #[error("configuration file {path}: {cause}(`freshet serve --help` lists all keys)")]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with line and column.
        cause: toml::de::Error,
    },
    /// The environment names a key that does not exist.
    #[error("environment variable {0} is not known: `freshet serve --help` lists all")]
    Environment(String),
    /// A value that no node can run with.
    #[error("{key} = {value}: {remedy}")]
    Value {
        /// Which key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        remedy: String,
    },
}

impl Settings {
    /// Puts the configuration together.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub(crate) fn gather(flags: &Flags) -> Result<Self, ConfigError> {
        flags::check_environment(std::env::vars_os())?;
        let mut settings = match &flags.config {
            Some(path) => Self::read(path)?,
            None => Self::default(),
        };
        flags.apply(&mut settings);
        settings.check()?;
        Ok(settings)
    }

    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            fs::read_to_string(path).map_err(|cause| ConfigError::Unreadable { path: path.to_path_buf(), cause })?;
        toml::from_str(&text).map_err(|cause| ConfigError::File { path: path.to_path_buf(), cause })
    }

    /// Whether a node can run with it.
    ///
    /// # Errors
    /// [`ConfigError::Value`] names the first key that is wrong.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let within = |key, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            let remedy = format!("use a number from {low} to {high}");
            Err(ConfigError::Value { key, value: value.to_string(), remedy })
        };
        within("sql.connections", self.sql.connections as u64, 1, 10_000)?;
        if self.sql.memory_bytes != 0 {
            within("sql.memory-bytes", self.sql.memory_bytes, 1 << 20, 1 << 50)?;
        }
        within("sql.session-memory-bytes", self.sql.session_memory_bytes, 1 << 20, 1 << 50)?;
        within("sql.statement-memory-bytes", self.sql.statement_memory_bytes, 1 << 20, 1 << 50)?;
        // What sessions can set at most.
        let longest = i32::MAX as u64;
        within("sql.statement-timeout-ms", self.sql.statement_timeout_ms, 0, longest)?;
        within("sql.idle-in-transaction-timeout-ms", self.sql.idle_in_transaction_timeout_ms, 0, longest)?;
        within("sql.idle-session-timeout-ms", self.sql.idle_session_timeout_ms, 0, longest)?;
        if self.sql.tls_certificates.is_some() != self.sql.tls_key.is_some() {
            let remedy = "certificates and their key belong together: give both, or none".to_owned();
            let value = format!("{:?}", self.sql.tls_key);
            return Err(ConfigError::Value { key: "sql.tls-key", value, remedy });
        }
        if self.sql.tls_ca.is_some() && self.sql.tls_key.is_none() {
            let remedy =
                "clients show certificates through TLS only: give sql.tls-certificates and sql.tls-key".to_owned();
            let value = format!("{:?}", self.sql.tls_ca);
            return Err(ConfigError::Value { key: "sql.tls-ca", value, remedy });
        }
        within("replay-threads", self.replay_threads as u64, 1, 64)?;
        within("standbys", u64::from(self.standbys), 0, 64)?;
        within("least-in-sync", u64::from(self.least_in_sync), 0, u64::from(self.standbys))?;
        within("standby-timeout-ms", self.standby_timeout_ms, 10, 3_600_000)?;
        within("restart-timeout-s", self.restart_timeout_s, 0, 7 * 86_400)?;
        within("refuse-after-ms", self.refuse_after_ms, 1, 3_600_000)?;
        let log = &self.log;
        within("log.buffer-bytes", log.buffer_bytes, 1 << 16, 1 << 36)?;
        within("log.transaction-bytes", log.transaction_bytes, 1 << 16, 1 << 38)?;
        within("log.uncommitted-bytes", log.uncommitted_bytes, 1 << 16, 1 << 40)?;
        within("log.segment-bytes", log.segment_bytes, 1 << 16, 1 << 36)?;
        within("log.batch-bytes", log.batch_bytes, 1, log.buffer_bytes)?;
        within("log.interval-us", log.interval_us, 0, 10_000_000)?;
        let checkpoint = &self.checkpoint;
        within("checkpoint.dir", checkpoint.dir.len() as u64, 0, 16)?;
        within("checkpoint.files", u64::from(checkpoint.files), 1, 64)?;
        within("checkpoint.interval-s", checkpoint.interval_s, 0, 31_536_000)?;
        within("checkpoint.cpu-percent", u64::from(checkpoint.cpu_percent), 1, 100)?;
        within("log.streams", log.streams as u64, 1, MAX_STREAMS)?;
        within("log.dir", log.dir.len() as u64, 0, MAX_STREAMS)?;
        within("log.group-size", log.group_size as u64, 0, 256)?;
        within("log.epoch-ms", log.epoch_ms, 1, 60_000)?;
        within("log.persist-delay-ns", log.persist_delay_ns, 0, 1_000_000)?;
        let per_kib = &log.persist_delay_per_kib;
        if per_kib != "calibrated" && !per_kib.parse().is_ok_and(|nanos: u64| nanos <= 1_000_000) {
            let remedy = "use nanoseconds from 0 to 1000000, or calibrated".to_owned();
            return Err(ConfigError::Value { key: "log.persist-delay-per-kib", value: per_kib.clone(), remedy });
        }
        if log.persist_method != "auto"
            && let Err(remedy) = log.persist_method.parse::<Method>()
        {
            return Err(ConfigError::Value { key: "log.persist-method", value: log.persist_method.clone(), remedy });
        }
        within("fabric.spin-us", self.fabric.spin_us, 0, 10_000)?;
        let bandwidth = self.fabric.bandwidth_gbit;
        if !(0.0..=100_000.0).contains(&bandwidth) {
            let remedy = "use a number from 0 (no limit) to 100000".to_owned();
            return Err(ConfigError::Value { key: "fabric.bandwidth-gbit", value: bandwidth.to_string(), remedy });
        }
        if self.fabric.appliance && self.domain != Domain::Pmem {
            let remedy = "set domain to pmem: elsewhere what has arrived is not persistent".to_owned();
            return Err(ConfigError::Value { key: "fabric.appliance", value: "true".to_owned(), remedy });
        }
        // The primary acknowledges by itself then, and knows of nothing but that its bytes have
        // arrived.
        if self.fabric.appliance && self.replay == ReplayMode::Synchronous {
            let remedy =
                "leave it out, or set replay to pipelined: the primary does not wait for replay then".to_owned();
            return Err(ConfigError::Value { key: "fabric.appliance", value: "true".to_owned(), remedy });
        }
        if self.fabric.appliance && self.relay_standbys > 0 && self.relay_ack == RelayAck::Downstream {
            let remedy =
                "leave it out, or set relay-ack to own: the primary does not wait for those below then".to_owned();
            return Err(ConfigError::Value { key: "fabric.appliance", value: "true".to_owned(), remedy });
        }
        within("log.page-records", log.page_records, 1, 1 << 30)?;
        within("log.partition-bytes", log.partition_bytes, 1 << 10, log.buffer_bytes)?;
        for (key, bytes) in [("log.buffer-bytes", log.buffer_bytes), ("log.partition-bytes", log.partition_bytes)] {
            if !bytes.is_power_of_two() {
                let remedy = format!("use a power of two, like {}", bytes.next_power_of_two());
                return Err(ConfigError::Value { key, value: bytes.to_string(), remedy });
            }
        }
        if !log.segment_bytes.is_multiple_of(4096) {
            let (key, value) = ("log.segment-bytes", log.segment_bytes.to_string());
            return Err(ConfigError::Value { key, value, remedy: "use a multiple of 4096".to_owned() });
        }
        if let Safety::Quorum(k) = self.safety
            && k > self.standbys + 1
        {
            let remedy =
                format!("a quorum of {k} nodes needs at least {} standbys: set standbys, or a smaller quorum", k - 1);
            return Err(ConfigError::Value { key: "safety", value: self.safety.to_string(), remedy });
        }
        if self.address == self.listen && self.address.port() != 0 {
            let remedy = "clients and nodes need different ports: change address or listen".to_owned();
            return Err(ConfigError::Value { key: "address", value: self.address.to_string(), remedy });
        }
        Ok(())
    }
}

impl Settings {
    /// The directories in which the node keeps data.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let own = (self.domain != Domain::None).then(|| self.directory.clone());
        own.into_iter().chain(self.log.dir.iter().cloned()).chain(self.checkpoint.dir.iter().cloned()).collect()
    }

    /// The same for the engine, which needs places for `workers` workers.
    pub(crate) fn node(&self, workers: usize) -> NodeConfig {
        NodeConfig {
            directory: (self.domain != Domain::None).then(|| self.directory.clone()),
            domain: self.domain.into(),
            listen: self.listen.to_string(),
            join: self.join.clone(),
            advertise: self.advertise.clone(),
            peers: self.peers.clone(),
            safety: self.safety,
            standbys: self.standbys,
            on_loss: match self.on_loss {
                OnLoss::Block => freshet_engine::OnLoss::Block,
                OnLoss::Refuse => freshet_engine::OnLoss::Refuse,
            },
            refuse_after_ms: self.refuse_after_ms,
            standby_timeout_ms: self.standby_timeout_ms,
            least_in_sync: self.least_in_sync,
            asynchronous: self.asynchronous,
            restart_timeout_s: self.restart_timeout_s,
            force_reign: self.force_reign,
            relay_standbys: self.relay_standbys,
            relay_ack: self.relay_ack,
            replay_threads: self.replay_threads,
            replay: self.replay,
            apply: self.apply,
            workers,
            checkpoint: self.checkpoint.clone(),
            fabric: self.fabric.clone(),
            membership: self.member.clone(),
            log: freshet_engine::LogSettings {
                buffer_bytes: usize::try_from(self.log.buffer_bytes).unwrap_or(usize::MAX),
                transaction_bytes: self.log.transaction_bytes,
                uncommitted_bytes: self.log.uncommitted_bytes,
                segment_bytes: self.log.segment_bytes,
                batch_bytes: self.log.batch_bytes,
                interval_us: self.log.interval_us,
                partition_bytes: self.log.partition_bytes,
                streams: self.log.streams,
                dir: self.log.dir.clone(),
                group_size: self.log.group_size,
                group_commit: self.log.group_commit.into(),
                epoch_ms: self.log.epoch_ms,
                nudge: self.log.nudge.into(),
                buffer_file: self.log.buffer_file.clone(),
                persist_method: self.log.persist_method.clone(),
                persist_delay_ns: self.log.persist_delay_ns,
                persist_delay_per_kib: self.log.persist_delay_per_kib.clone(),
                persist_upon_replay: self.log.persist_upon_replay,
                huge_pages: self.log.huge_pages,
                divide_by: self.log.divide_by.into(),
                page_records: self.log.page_records,
            },
        }
    }
}

impl From<Domain> for freshet_engine::Domain {
    fn from(domain: Domain) -> Self {
        match domain {
            Domain::File => Self::File,
            Domain::Pmem => Self::Pmem,
            Domain::None => Self::None,
        }
    }
}

impl From<GroupCommit> for freshet_engine::GroupCommit {
    fn from(kind: GroupCommit) -> Self {
        match kind {
            GroupCommit::Pipelined => Self::Pipelined,
            GroupCommit::Epoch => Self::Epoch,
            GroupCommit::Passive => Self::Passive,
        }
    }
}

impl From<DivideBy> for freshet_engine::DivideBy {
    fn from(what: DivideBy) -> Self {
        match what {
            DivideBy::Transaction => Self::Transaction,
            DivideBy::Page => Self::Page,
        }
    }
}

impl From<NudgeBy> for freshet_engine::NudgeBy {
    fn from(by: NudgeBy) -> Self {
        match by {
            NudgeBy::Membarrier => Self::Membarrier,
            NudgeBy::Signal => Self::Signal,
        }
    }
}
