//! Flags of `freshet serve`, and the environment variables of the same names.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::{Args, CommandFactory};
use freshet_base::Safety;
use freshet_engine::{Apply, FabricEncryption, FabricKind, RelayAck, ReplayMode};

use super::{ConfigError, DivideBy, Domain, GroupCommit, NudgeBy, OnLoss, Settings, SqlListen};
use crate::{
    messages::{Format, Levels},
    pin::Cpus,
};

/// Environment variables that are ours and no configuration keys.
const OTHERS: [&str; 5] =
    ["FRESHET_CREDENTIALS", "FRESHET_SEED", "FRESHET_ROUNDS", "FRESHET_STRESS_SECONDS", "FRESHET_SKIPS"];

/// What the command line and the environment say. What they leave open comes from the file, or is the default.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Flags {
    /// TOML file with the same keys as the flags, without the dashes in front; those that begin with log-,
    /// checkpoint-, fabric-, member- or sql- are in the tables of these names. The environment
    /// beats the file, and flags beat both. Unknown keys are errors.
    #[arg(long, value_name = "FILE", env = "FRESHET_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Where clients connect: address and port; port 0 takes a free one. [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDRESS", env = "FRESHET_ADDRESS", help_heading = "Addresses")]
    pub(crate) address: Option<SocketAddr>,
    /// Where other nodes connect: address and port; port 0 takes a free one. [default: 127.0.0.1:7401]
    #[arg(long, value_name = "ADDRESS", env = "FRESHET_LISTEN", help_heading = "Addresses")]
    pub(crate) listen: Option<SocketAddr>,
    /// Makes this node a standby: the `listen` address of the primary, host:port. A node that was
    /// promoted since comes back as the primary all the same, and one that was succeeded follows
    /// without this. [default: none, a primary]
    #[arg(long, value_name = "ADDRESS", env = "FRESHET_JOIN", help_heading = "Addresses")]
    pub(crate) join: Option<String>,
    /// How other nodes reach this one, host:port, when that is not the `listen` address. [default: as listen]
    #[arg(long, value_name = "ADDRESS", env = "FRESHET_ADVERTISE", help_heading = "Addresses")]
    pub(crate) advertise: Option<String>,
    /// The `listen` addresses of the other nodes, with commas between them: a take-over asks them. [default: none]
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', env = "FRESHET_PEERS", help_heading = "Addresses")]
    pub(crate) peers: Option<Vec<String>>,

    /// Whether every client that reaches `address` over TCP may ask for the status. [default:
    /// false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", env = "FRESHET_OPEN_STATUS", help_heading = "Addresses")]
    pub(crate) open_status: Option<bool>,

    /// Where the log is kept; it is made when it is not there. [default: freshet-data]
    #[arg(long, value_name = "DIR", env = "FRESHET_DIRECTORY", help_heading = "Log")]
    pub(crate) directory: Option<PathBuf>,
    /// Where the bytes of the log persist. [default: file]
    #[arg(long, value_name = "DOMAIN", env = "FRESHET_DOMAIN", help_heading = "Log")]
    pub(crate) domain: Option<Domain>,
    /// The buffer that workers copy their blocks into, in bytes, a power of two. [default: 67108864]
    #[arg(long, value_name = "BYTES", env = "FRESHET_LOG_BUFFER_BYTES", help_heading = "Log")]
    pub(crate) log_buffer_bytes: Option<u64>,
    /// How many bytes of log one transaction may write. [default: 1073741824]
    #[arg(long, value_name = "BYTES", env = "FRESHET_LOG_TRANSACTION_BYTES", help_heading = "Log")]
    pub(crate) log_transaction_bytes: Option<u64>,
    /// How many bytes of log may be uncommitted when a transaction commits; beyond that it waits.
    /// [default: 67108864]
    #[arg(long, value_name = "BYTES", env = "FRESHET_LOG_UNCOMMITTED_BYTES", help_heading = "Log")]
    pub(crate) log_uncommitted_bytes: Option<u64>,
    /// The size of a log file, in bytes, a multiple of 4096; fixed when the log is made. [default: 67108864]
    #[arg(long, value_name = "BYTES", env = "FRESHET_LOG_SEGMENT_BYTES", help_heading = "Log")]
    pub(crate) log_segment_bytes: Option<u64>,
    /// A group commit begins when this many bytes have come together. [default: 1048576]
    #[arg(long, value_name = "BYTES", env = "FRESHET_LOG_BATCH_BYTES", help_heading = "Log")]
    pub(crate) log_batch_bytes: Option<u64>,
    /// A group commit begins at the latest after this many microseconds. [default: 1000]
    #[arg(long, value_name = "US", env = "FRESHET_LOG_INTERVAL_US", help_heading = "Log")]
    pub(crate) log_interval_us: Option<u64>,
    /// How many bytes of the log a replay thread takes at a time, a power of two. [default: 65536]
    #[arg(long, value_name = "BYTES", env = "FRESHET_LOG_PARTITION_BYTES", help_heading = "Log")]
    pub(crate) log_partition_bytes: Option<u64>,
    /// How many streams a new log gets, each with files and a group commit of its own; fixed when the log is made. [default: 1]
    #[arg(long, value_name = "N", env = "FRESHET_LOG_STREAMS", help_heading = "Log")]
    pub(crate) log_streams: Option<usize>,
    /// A directory for a stream of the log; repeat it for every device, always in the same order. [default: none]
    #[arg(long, value_name = "DIR", value_delimiter = ',', env = "FRESHET_LOG_DIR", help_heading = "Log")]
    pub(crate) log_dir: Option<Vec<PathBuf>>,
    /// How many workers in a row write to one stream; 0 deals workers out to streams one by one. [default: 0]
    #[arg(long, value_name = "N", env = "FRESHET_LOG_GROUP_SIZE", help_heading = "Log")]
    pub(crate) log_group_size: Option<usize>,
    /// When blocks become durable: pipelined (by size or time), epoch, or passive (with domain pmem). [default: pipelined]
    #[arg(long, value_name = "KIND", env = "FRESHET_LOG_GROUP_COMMIT", help_heading = "Log")]
    pub(crate) log_group_commit: Option<GroupCommit>,
    /// With log-group-commit epoch: the length of an epoch in milliseconds. [default: 40]
    #[arg(long, value_name = "MS", env = "FRESHET_LOG_EPOCH_MS", help_heading = "Log")]
    pub(crate) log_epoch_ms: Option<u64>,
    /// With log-group-commit passive: how workers that do not come back are nudged, membarrier or signal. [default: membarrier]
    #[arg(long, value_name = "HOW", env = "FRESHET_LOG_NUDGE", help_heading = "Log")]
    pub(crate) log_nudge: Option<NudgeBy>,
    /// With domain pmem: the file that the log buffer is, on a DAX file system for the real thing. [default: buffer in directory]
    #[arg(long, value_name = "FILE", env = "FRESHET_LOG_BUFFER_FILE", help_heading = "Log")]
    pub(crate) log_buffer_file: Option<PathBuf>,
    /// With domain pmem: how stores become durable: non-temporal, clwb, clflushopt, clflush, eadr, or auto. [default: auto]
    #[arg(long, value_name = "METHOD", env = "FRESHET_LOG_PERSIST_METHOD", help_heading = "Log")]
    pub(crate) log_persist_method: Option<String>,
    /// With domain pmem: waited for at each insertion, in nanoseconds, to stand for slower memory. [default: 0]
    #[arg(long, value_name = "NS", env = "FRESHET_LOG_PERSIST_DELAY_NS", help_heading = "Log")]
    pub(crate) log_persist_delay_ns: Option<u64>,
    /// The same for each KiB that is made durable, in proportion: nanoseconds, or calibrated. [default: 0]
    #[arg(long, value_name = "NS", env = "FRESHET_LOG_PERSIST_DELAY_PER_KIB", help_heading = "Log")]
    pub(crate) log_persist_delay_per_kib: Option<String>,
    /// With domain pmem, on a standby: whether its replay threads persist what it receives, each its share. [default:
    /// true]
    #[arg(long, value_name = "BOOL", env = "FRESHET_LOG_PERSIST_UPON_REPLAY", help_heading = "Log")]
    pub(crate) log_persist_upon_replay: Option<bool>,
    /// Whether a standby's log buffer in plain memory is to be in huge pages. [default: false]
    #[arg(long, value_name = "BOOL", env = "FRESHET_LOG_HUGE_PAGES", help_heading = "Log")]
    pub(crate) log_huge_pages: Option<bool>,
    /// What decides to which stream a change goes: its transaction or its page. [default: transaction]
    #[arg(long, value_name = "WHAT", env = "FRESHET_LOG_DIVIDE_BY", help_heading = "Log")]
    pub(crate) log_divide_by: Option<DivideBy>,
    /// With log-divide-by page: how many records of a table make a page. [default: 1024]
    #[arg(long, value_name = "N", env = "FRESHET_LOG_PAGE_RECORDS", help_heading = "Log")]
    pub(crate) log_page_records: Option<u64>,

    /// On a standby: by which fabric its primary writes into its memory: tcp, shm (both nodes on one machine) or verbs
    /// (RDMA). [default: tcp]
    #[arg(long, value_name = "FABRIC", env = "FRESHET_FABRIC_KIND", help_heading = "Fabric")]
    pub(crate) fabric_kind: Option<FabricKind>,
    /// Whoever waits for the other side looks for its word this many microseconds before going to sleep (shm, verbs):
    /// only worth anything where a processor is idle. [default: 0]
    #[arg(long, value_name = "US", env = "FRESHET_FABRIC_SPIN_US", help_heading = "Fabric")]
    pub(crate) fabric_spin_us: Option<u64>,
    /// Mailboxes are in huge pages, where the system has some to spare (shm, verbs). [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", env = "FRESHET_FABRIC_HUGE_PAGES", help_heading = "Fabric")]
    pub(crate) fabric_huge_pages: Option<bool>,
    /// What this node sends to all others together keeps to this many gigabits per second; 0: no limit. [default: 0.0]
    #[arg(long, value_name = "GBIT", env = "FRESHET_FABRIC_BANDWIDTH_GBIT", help_heading = "Fabric")]
    pub(crate) fabric_bandwidth_gbit: Option<f64>,
    /// On a primary: batches are compressed with LZ4. [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", env = "FRESHET_FABRIC_COMPRESS", help_heading = "Fabric")]
    pub(crate) fabric_compress: Option<bool>,
    /// On a standby with domain pmem: what its primary has written and read back is persistent and needs no
    /// acknowledgement, because of how its hardware is set up. [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", env = "FRESHET_FABRIC_APPLIANCE", help_heading = "Fabric")]
    pub(crate) fabric_appliance: Option<bool>,
    /// The RDMA device, NAME:PORT:GID-INDEX; empty for the first that is up (verbs). [default: ]
    #[arg(long, value_name = "DEVICE", env = "FRESHET_FABRIC_DEVICE", help_heading = "Fabric")]
    pub(crate) fabric_device: Option<String>,

    /// Whether TLS also encrypts what nodes send over TCP after they have authenticated: tls, or
    /// none if both nodes say so. [default: tls]
    #[arg(long, value_name = "HOW", env = "FRESHET_FABRIC_ENCRYPTION", help_heading = "Fabric")]
    pub(crate) fabric_encryption: Option<FabricEncryption>,

    /// A file with the token that `freshet token` has printed on a member: it lets a new node on
    /// another machine in. [default: none]
    #[arg(long, value_name = "FILE", env = "FRESHET_MEMBER_TOKEN_FILE", help_heading = "Membership")]
    pub(crate) member_token_file: Option<PathBuf>,
    /// This node's certificate, in PEM, if the operator provides it. [default: made by Freshet]
    #[arg(long, value_name = "FILE", env = "FRESHET_MEMBER_CERTIFICATE", help_heading = "Membership")]
    pub(crate) member_certificate: Option<PathBuf>,
    /// The key that belongs to it, in PEM. [default: made by Freshet]
    #[arg(long, value_name = "FILE", env = "FRESHET_MEMBER_KEY", help_heading = "Membership")]
    pub(crate) member_key: Option<PathBuf>,
    /// The certificate of the authority that has signed all members' certificates. [default: made
    /// by Freshet]
    #[arg(long, value_name = "FILE", env = "FRESHET_MEMBER_AUTHORITY", help_heading = "Membership")]
    pub(crate) member_authority: Option<PathBuf>,

    /// A directory for the rows of checkpoints; repeat it for every device. [default: none]
    #[arg(
        long,
        value_name = "DIR",
        value_delimiter = ',',
        env = "FRESHET_CHECKPOINT_DIR",
        help_heading = "Checkpoints"
    )]
    pub(crate) checkpoint_dir: Option<Vec<PathBuf>>,
    /// Files for each table on each device: what a restart can read side by side. [default: 2]
    #[arg(long, value_name = "N", env = "FRESHET_CHECKPOINT_FILES", help_heading = "Checkpoints")]
    pub(crate) checkpoint_files: Option<u32>,
    /// A checkpoint begins this many seconds after the last one, once the log has grown by a quarter of what that had
    /// written; 0: only when asked for. [default: 10]
    #[arg(long, value_name = "S", env = "FRESHET_CHECKPOINT_INTERVAL_S", help_heading = "Checkpoints")]
    pub(crate) checkpoint_interval_s: Option<u64>,
    /// ... or when the log has grown by this many bytes. [default: 1073741824]
    #[arg(long, value_name = "BYTES", env = "FRESHET_CHECKPOINT_LOG_BYTES", help_heading = "Checkpoints")]
    pub(crate) checkpoint_log_bytes: Option<u64>,
    /// What is written is synced every so many bytes; 0: once at the end. [default: 33554432]
    #[arg(long, value_name = "BYTES", env = "FRESHET_CHECKPOINT_SYNC_BYTES", help_heading = "Checkpoints")]
    pub(crate) checkpoint_sync_bytes: Option<u64>,
    /// How much of a processor each checkpointer may take, in percent. [default: 25]
    #[arg(long, value_name = "PERCENT", env = "FRESHET_CHECKPOINT_CPU_PERCENT", help_heading = "Checkpoints")]
    pub(crate) checkpoint_cpu_percent: Option<u32>,
    /// Log below a checkpoint is kept while it is not more than this many bytes: for standbys that were away. [default: 268435456]
    #[arg(long, value_name = "BYTES", env = "FRESHET_CHECKPOINT_KEEP_LOG_BYTES", help_heading = "Checkpoints")]
    pub(crate) checkpoint_keep_log_bytes: Option<u64>,

    /// Where a commit must be persistent before its client hears of it: 1-safe (here), 2-safe (here and on all
    /// standbys in sync; goes on degraded without any), very-safe (on every standby), quorum:K (on K nodes, this
    /// one included). [default: 2-safe]
    #[arg(long, value_name = "LEVEL", env = "FRESHET_SAFETY", help_heading = "Safety")]
    pub(crate) safety: Option<Safety>,
    /// How many standbys the cluster has: very-safe and quorum:K count on them. [default: 0]
    #[arg(long, value_name = "N", env = "FRESHET_STANDBYS", help_heading = "Safety")]
    pub(crate) standbys: Option<u32>,
    /// What happens to commits when the safety level cannot be kept: they wait, or are refused. [default: block]
    #[arg(long, value_name = "POLICY", env = "FRESHET_ON_LOSS", help_heading = "Safety")]
    pub(crate) on_loss: Option<OnLoss>,
    /// A standby that has not acknowledged anything for this many milliseconds is taken for lost. [default: 2000]
    #[arg(long, value_name = "MS", env = "FRESHET_STANDBY_TIMEOUT_MS", help_heading = "Safety")]
    pub(crate) standby_timeout_ms: Option<u64>,
    /// With safety 2-safe: commits wait rather than go on with fewer standbys in sync than this; take-overs then need as many nodes less. [default: 0]
    #[arg(long, value_name = "N", env = "FRESHET_LEAST_IN_SYNC", help_heading = "Safety")]
    pub(crate) least_in_sync: Option<u32>,
    /// On a standby: no commit ever waits for it, and it counts in no quorum. [default: false]
    #[arg(long, value_name = "BOOL", env = "FRESHET_ASYNCHRONOUS", help_heading = "Safety", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) asynchronous: Option<bool>,
    /// How long a primary that restarts waits for others to answer, who may have gone on without it, in seconds. [default: 600]
    #[arg(long, value_name = "SECONDS", env = "FRESHET_RESTART_TIMEOUT_S", help_heading = "Safety")]
    pub(crate) restart_timeout_s: Option<u64>,
    /// A primary that restarts reigns without asking anybody, although acknowledged commits may be lost. [default: false]
    #[arg(long, value_name = "BOOL", env = "FRESHET_FORCE_REIGN", help_heading = "Safety", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) force_reign: Option<bool>,
    /// On a standby: it is a relay, and feeds so many asynchronous standbys, or others, that join it in place of the primary. [default: 0]
    #[arg(long, value_name = "N", env = "FRESHET_RELAY_STANDBYS", help_heading = "Safety")]
    pub(crate) relay_standbys: Option<u32>,
    /// On a relay: it acknowledges what it holds itself (own), or what its standbys in sync hold too (downstream). [default: own]
    #[arg(long, value_name = "WHAT", env = "FRESHET_RELAY_ACK", help_heading = "Safety")]
    pub(crate) relay_ack: Option<RelayAck>,
    /// With on-loss refuse: commits are refused when the level was not kept for this many milliseconds.
    /// [default: 5000]
    #[arg(long, value_name = "MS", env = "FRESHET_REFUSE_AFTER_MS", help_heading = "Safety")]
    pub(crate) refuse_after_ms: Option<u64>,

    /// Threads that replay the log, on a standby and at restart. [default: 2]
    #[arg(long, value_name = "N", env = "FRESHET_REPLAY_THREADS", help_heading = "Resources")]
    pub(crate) replay_threads: Option<usize>,
    /// When a standby replays: pipelined (by itself; it acknowledges what is persistent), synchronous (it acknowledges only
    /// what it has also replayed), none (only at a take-over or a restart). [default: pipelined]
    #[arg(long, value_name = "POLICY", env = "FRESHET_REPLAY", help_heading = "Resources")]
    pub(crate) replay: Option<ReplayMode>,
    /// What a standby's replay does: fresh (addresses into replay arrays, versions are made by who reads them),
    /// full (it makes all versions; for comparisons) or command (it executes again what a benchmark has logged). [default: fresh]
    #[arg(long, value_name = "HOW", env = "FRESHET_APPLY", help_heading = "Resources")]
    pub(crate) apply: Option<Apply>,
    /// Where PostgreSQL's clients connect: address and port, port 0 for a free one; off for nowhere. [default: 127.0.0.1:5432]
    #[arg(long, value_name = "ADDRESS", env = "FRESHET_SQL_LISTEN", help_heading = "SQL")]
    pub(crate) sql_listen: Option<SqlListen>,
    /// The directory of their Unix socket, .s.PGSQL.<port of sql-listen>; off for no socket.
    /// [default: freshet in $XDG_RUNTIME_DIR, or /tmp/freshet-<uid>]
    #[arg(long, value_name = "DIR", env = "FRESHET_SQL_SOCKET_DIRECTORY", help_heading = "SQL")]
    pub(crate) sql_socket_directory: Option<PathBuf>,
    /// How many of them at once. [default: 100]
    #[arg(long, value_name = "N", env = "FRESHET_SQL_CONNECTIONS", help_heading = "SQL")]
    pub(crate) sql_connections: Option<usize>,
    /// Which clients get in, and how they authenticate: a file with the lines of PostgreSQL's
    /// pg_hba.conf (docs/operations.md). Without one, the user who runs the server, and root, need
    /// no password at the Unix socket; all others, and all over TCP, need the role's password.
    /// [default: none]
    #[arg(long, value_name = "FILE", env = "FRESHET_SQL_ACCESS", help_heading = "SQL")]
    pub(crate) sql_access: Option<PathBuf>,
    /// The superuser that a new database has, without a password. [default: freshet]
    #[arg(long, value_name = "NAME", env = "FRESHET_SQL_USER", help_heading = "SQL")]
    pub(crate) sql_user: Option<String>,
    /// The certificates with which TLS is offered, in PEM, the server's own first. [default: none, no TLS]
    #[arg(long, value_name = "FILE", env = "FRESHET_SQL_TLS_CERTIFICATES", help_heading = "SQL")]
    pub(crate) sql_tls_certificates: Option<PathBuf>,
    /// The key that belongs to them, in PEM. [default: none]
    #[arg(long, value_name = "FILE", env = "FRESHET_SQL_TLS_KEY", help_heading = "SQL")]
    pub(crate) sql_tls_key: Option<PathBuf>,
    /// The authorities that must have signed clients' certificates, in PEM. Clients without a
    /// certificate are refused only if the access file says so. [default: none]
    #[arg(long, value_name = "FILE", env = "FRESHET_SQL_TLS_CA", help_heading = "SQL")]
    pub(crate) sql_tls_ca: Option<PathBuf>,
    /// How many bytes all sessions may keep together, for sorts, groups, cursors and the like; 0
    /// for a quarter of the machine's memory. [default: 0]
    #[arg(long, value_name = "BYTES", env = "FRESHET_SQL_MEMORY_BYTES", help_heading = "SQL")]
    pub(crate) sql_memory_bytes: Option<u64>,
    /// How many one session may keep, its settings, cursors and prepared statements included.
    /// [default: 1073741824]
    #[arg(long, value_name = "BYTES", env = "FRESHET_SQL_SESSION_MEMORY_BYTES", help_heading = "SQL")]
    pub(crate) sql_session_memory_bytes: Option<u64>,
    /// How many a statement or a cursor may keep: freshet.query_memory, which no role can set
    /// higher. [default: 268435456]
    #[arg(long, value_name = "BYTES", env = "FRESHET_SQL_STATEMENT_MEMORY_BYTES", help_heading = "SQL")]
    pub(crate) sql_statement_memory_bytes: Option<u64>,
    /// What statement_timeout is in sessions that do not set it; 0 for none. [default: 0]
    #[arg(long, value_name = "MS", env = "FRESHET_SQL_STATEMENT_TIMEOUT_MS", help_heading = "SQL")]
    pub(crate) sql_statement_timeout_ms: Option<u64>,
    /// What idle_in_transaction_session_timeout is in sessions that do not set it; 0 for none.
    /// [default: 0]
    #[arg(long, value_name = "MS", env = "FRESHET_SQL_IDLE_IN_TRANSACTION_TIMEOUT_MS", help_heading = "SQL")]
    pub(crate) sql_idle_in_transaction_timeout_ms: Option<u64>,
    /// What idle_session_timeout is in sessions that do not set it; 0 for none. [default: 0]
    #[arg(long, value_name = "MS", env = "FRESHET_SQL_IDLE_SESSION_TIMEOUT_MS", help_heading = "SQL")]
    pub(crate) sql_idle_session_timeout_ms: Option<u64>,
    /// The format of messages on standard error: text or json. [default: text]
    #[arg(long, value_name = "FORMAT", env = "FRESHET_LOG_FORMAT", help_heading = "Messages")]
    pub(crate) log_format: Option<Format>,
    /// Which messages are written: error, warn, info, debug or trace, and levels for parts of the
    /// program, like info,replication=debug. [default: info]
    #[arg(long, value_name = "LEVELS", env = "FRESHET_LOG_LEVEL", help_heading = "Messages")]
    pub(crate) log_level: Option<Levels>,
    /// The processors that this node may use, like 0 or 0,2-3. [default: all]
    #[arg(long, value_name = "CPUS", env = "FRESHET_PIN", help_heading = "Resources")]
    pub(crate) pin: Option<Cpus>,
}

/// Moves what was said from flags to settings.
macro_rules! overlay {
    ($($flag:expr => $setting:expr),* $(,)?) => {
        $(if let Some(value) = &$flag { $setting = value.clone().into(); })*
    };
}

impl Flags {
    /// Puts what was said in the place of what `settings` says.
    pub(crate) fn apply(&self, settings: &mut Settings) {
        let log = &mut settings.log;
        let checkpoint = &mut settings.checkpoint;
        let fabric = &mut settings.fabric;
        let sql = &mut settings.sql;
        let member = &mut settings.member;
        overlay! {
            self.address => settings.address,
            self.listen => settings.listen,
            self.join => settings.join,
            self.advertise => settings.advertise,
            self.peers => settings.peers,
            self.directory => settings.directory,
            self.domain => settings.domain,
            self.safety => settings.safety,
            self.standbys => settings.standbys,
            self.on_loss => settings.on_loss,
            self.standby_timeout_ms => settings.standby_timeout_ms,
            self.least_in_sync => settings.least_in_sync,
            self.asynchronous => settings.asynchronous,
            self.restart_timeout_s => settings.restart_timeout_s,
            self.force_reign => settings.force_reign,
            self.relay_standbys => settings.relay_standbys,
            self.relay_ack => settings.relay_ack,
            self.refuse_after_ms => settings.refuse_after_ms,
            self.open_status => settings.open_status,
            self.replay_threads => settings.replay_threads,
            self.replay => settings.replay,
            self.apply => settings.apply,
            self.pin => settings.pin,
            self.log_buffer_bytes => log.buffer_bytes,
            self.log_transaction_bytes => log.transaction_bytes,
            self.log_uncommitted_bytes => log.uncommitted_bytes,
            self.log_segment_bytes => log.segment_bytes,
            self.log_batch_bytes => log.batch_bytes,
            self.log_interval_us => log.interval_us,
            self.log_partition_bytes => log.partition_bytes,
            self.log_streams => log.streams,
            self.log_dir => log.dir,
            self.log_group_size => log.group_size,
            self.log_group_commit => log.group_commit,
            self.log_epoch_ms => log.epoch_ms,
            self.log_nudge => log.nudge,
            self.log_buffer_file => log.buffer_file,
            self.log_persist_method => log.persist_method,
            self.log_persist_delay_ns => log.persist_delay_ns,
            self.log_persist_delay_per_kib => log.persist_delay_per_kib,
            self.log_persist_upon_replay => log.persist_upon_replay,
            self.log_huge_pages => log.huge_pages,
            self.log_divide_by => log.divide_by,
            self.log_page_records => log.page_records,
            self.log_format => log.format,
            self.log_level => log.level,
            self.fabric_kind => fabric.kind,
            self.fabric_spin_us => fabric.spin_us,
            self.fabric_huge_pages => fabric.huge_pages,
            self.fabric_bandwidth_gbit => fabric.bandwidth_gbit,
            self.fabric_compress => fabric.compress,
            self.fabric_appliance => fabric.appliance,
            self.fabric_device => fabric.device,
            self.fabric_encryption => fabric.encryption,
            self.member_token_file => member.token_file,
            self.member_certificate => member.certificate,
            self.member_key => member.key,
            self.member_authority => member.authority,
            self.sql_listen => sql.listen,
            self.sql_socket_directory => sql.socket_directory,
            self.sql_connections => sql.connections,
            self.sql_access => sql.access,
            self.sql_user => sql.user,
            self.sql_tls_certificates => sql.tls_certificates,
            self.sql_tls_key => sql.tls_key,
            self.sql_tls_ca => sql.tls_ca,
            self.sql_memory_bytes => sql.memory_bytes,
            self.sql_session_memory_bytes => sql.session_memory_bytes,
            self.sql_statement_memory_bytes => sql.statement_memory_bytes,
            self.sql_statement_timeout_ms => sql.statement_timeout_ms,
            self.sql_idle_in_transaction_timeout_ms => sql.idle_in_transaction_timeout_ms,
            self.sql_idle_session_timeout_ms => sql.idle_session_timeout_ms,
            self.checkpoint_dir => checkpoint.dir,
            self.checkpoint_files => checkpoint.files,
            self.checkpoint_interval_s => checkpoint.interval_s,
            self.checkpoint_log_bytes => checkpoint.log_bytes,
            self.checkpoint_sync_bytes => checkpoint.sync_bytes,
            self.checkpoint_cpu_percent => checkpoint.cpu_percent,
            self.checkpoint_keep_log_bytes => checkpoint.keep_log_bytes,
        }
    }
}

/// Refuses variables that look like ours and are none.
///
/// # Errors
/// [`ConfigError::Environment`] names the first.
pub(crate) fn check_environment(vars: impl Iterator<Item = (OsString, OsString)>) -> Result<(), ConfigError> {
    let command = crate::cli::Cli::command();
    let serve = command.find_subcommand("serve").expect("there is a command serve");
    let known = |name: &str| {
        OTHERS.contains(&name) || serve.get_arguments().any(|arg| arg.get_env().is_some_and(|env| env == name))
    };
    for (name, _) in vars {
        let name = name.to_string_lossy();
        if name.starts_with("FRESHET_") && !known(&name) {
            return Err(ConfigError::Environment(name.into_owned()));
        }
    }
    Ok(())
}
