//! What is measured, and how.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use freshet_base::{Isolation, Safety};
use freshet_engine::{Apply, DivideBy, Domain, FabricEncryption, FabricKind, GroupCommit, NudgeBy, ReplayMode};
use freshet_workloads::ycsb::mix::Mix;

use super::{backup::BackupOptions, join::JoinOptions, ratios::RatiosOptions, restart::RestartOptions};
use crate::pin::Pin;

/// Which workload.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The full mix of TPC-C, one terminal a thread, without think times.
    Tpcc(TpccOptions),
    /// YCSB: the core workloads A to F, or SiloR's mix of 70 % reads and 30 % blind writes.
    Ycsb(YcsbOptions),
    /// TATP: seven short transactions on a register of subscribers, or Update Location alone.
    Tatp(TatpOptions),
    /// TPC-B: Account Update on branches, tellers, accounts and a history.
    Tpcb(TpcbOptions),
    /// How fast a node comes back from its log.
    Restart(RestartOptions),
    /// What checkpoints, backups and joining cost a primary at work, and how long they take.
    Backup(BackupOptions),
    /// How long a standby takes to join a primary under TPC-C, and what that costs it.
    Join(JoinOptions),
    /// All figures that Freshet promises, as ratios within one run: a table for docs/benchmarks.md.
    Ratios(RatiosOptions),
}

/// Options of both.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Threads that run transactions.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub(crate) threads: u16,
    /// How long is measured, in seconds.
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How long is run before that, in seconds.
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) warmup: f64,
    /// si or serializable.
    #[arg(long, value_name = "LEVEL", default_value_t = Isolation::Serializable)]
    pub(crate) isolation: Isolation,
    /// Where the log persists. With none and no standbys there is no log at all.
    #[arg(long, value_name = "DOMAIN", value_enum, default_value = "none")]
    pub(crate) domain: Domain,
    /// Where logs are kept; removed afterwards is only what the benchmark made. [default: a fresh
    /// directory on /dev/shm, or where temporary files go]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// 1-safe, 2-safe, very-safe or quorum:K.
    #[arg(long, value_name = "LEVEL", default_value_t = Safety::TwoSafe)]
    pub(crate) safety: Safety,
    /// Standbys, each a process of its own.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16))]
    pub(crate) standbys: u32,
    /// Threads that replay the log on each standby.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) replay_threads: u16,
    /// When standbys replay: pipelined, synchronous (they acknowledge only what they have replayed)
    /// or none.
    #[arg(long, value_name = "POLICY", default_value_t = ReplayMode::Pipelined)]
    pub(crate) replay: ReplayMode,
    /// What standbys' replay does: fresh (replay arrays), full (it makes all versions), or command
    /// (the log says what transactions were told, and they are executed again; TPC-C only, without
    /// remote transactions).
    #[arg(long, value_name = "HOW", default_value_t = Apply::Fresh)]
    pub(crate) apply: Apply,
    /// TPC-C without remote transactions, as with --apply command: for comparisons with that.
    #[arg(long)]
    pub(crate) home_only: bool,
    /// Where standbys' logs persist. [default: file, with --domain none nowhere]
    #[arg(long, value_name = "DOMAIN", value_enum)]
    pub(crate) standby_domain: Option<Domain>,
    /// With standby-domain pmem: how stores become durable there: auto, clwb, clflushopt, clflush,
    /// eadr.
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    pub(crate) standby_persist_method: String,
    /// Standbys join when everything is loaded, and begin with a checkpoint of it: so those have
    /// data, too, that do not replay.
    #[arg(long)]
    pub(crate) join_loaded: bool,
    /// Threads on each standby that run TPC-C's read-only transactions all the time, Stock-Level
    /// and Order-Status in turn.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub(crate) standby_readers: u16,
    /// With --json: how fresh the stalest standby was, each 20 ms.
    #[arg(long)]
    pub(crate) freshness_series: bool,
    /// By which fabric the log comes to standbys: tcp, shm or verbs.
    #[arg(long, value_name = "FABRIC", default_value_t = FabricKind::Tcp)]
    pub(crate) fabric: FabricKind,
    /// Whether what goes over TCP is sealed by TLS: tls or none.
    #[arg(long, value_name = "HOW", default_value = "tls")]
    pub(crate) fabric_encryption: FabricEncryption,
    /// A thread that waits for the other side looks for its word this many microseconds before it
    /// sleeps (shm, verbs).
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub(crate) spin_us: u64,
    /// What the primary sends to all standbys together keeps to this many gigabits per second; 0:
    /// no limit.
    #[arg(long, value_name = "GBIT", default_value_t = 0.0)]
    pub(crate) bandwidth_gbit: f64,
    /// Batches are compressed with LZ4.
    #[arg(long)]
    pub(crate) compress: bool,
    /// The processors of the primary and, behind a slash, of the standbys: 0/1. [default: all for
    /// all]
    #[arg(long, value_name = "PRIMARY-CPUS[/STANDBY-CPUS]")]
    pub(crate) pin: Option<Pin>,
    /// A group commit begins when this many bytes have come together.
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 10)]
    pub(crate) batch_bytes: u64,
    /// A group commit begins at the latest after this many microseconds.
    #[arg(long, value_name = "US", default_value_t = 2_000)]
    pub(crate) interval_us: u64,
    /// The log's buffer on all nodes, in bytes, a power of two. [default: as of a node]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1 << 16..=1 << 36))]
    pub(crate) log_buffer_bytes: Option<u64>,
    /// Workers wait while more log than this is not committed. [default: as of a node]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1 << 16..=1 << 40))]
    pub(crate) log_uncommitted_bytes: Option<u64>,
    /// Streams of the log.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) log_streams: u8,
    /// pipelined, epoch or passive.
    #[arg(long, value_name = "KIND", value_enum, default_value = "pipelined")]
    pub(crate) log_group_commit: GroupCommit,
    /// With log-group-commit epoch: the length of an epoch in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 40)]
    pub(crate) log_epoch_ms: u64,
    /// With log-group-commit passive: how workers that do not come back are nudged.
    #[arg(long, value_name = "HOW", value_enum, default_value = "membarrier")]
    pub(crate) log_nudge: NudgeBy,
    /// With domain pmem: how stores become durable.
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    pub(crate) log_persist_method: String,
    /// With domain pmem: waited for at each insertion, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pub(crate) log_persist_delay_ns: u64,
    /// What decides to which stream a change goes: its transaction or its page.
    #[arg(long, value_name = "WHAT", value_enum, default_value = "transaction")]
    pub(crate) log_divide_by: DivideBy,
    /// Seconds from one checkpoint to the next; 0: none.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) checkpoint_interval_s: u64,
    /// What a checkpoint writes is synced whenever it is this many bytes; 0: once at the end.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20)]
    pub(crate) checkpoint_sync_bytes: u64,
    /// How much of a processor a checkpointer may take, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 25)]
    pub(crate) checkpoint_cpu_percent: u32,
    /// Let the process end without stopping anything, after the warm-up and shortly before a
    /// checkpoint is complete: for bench restart --crash.
    #[arg(long, hide = true)]
    pub(crate) crash: bool,
    /// Transactions that a thread may have under way to durability; at the limit it waits.
    #[arg(long, value_name = "N", default_value_t = 1 << 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) window: u32,
    /// The seed of all random numbers.
    #[arg(long, value_name = "SEED", env = "FRESHET_SEED", default_value_t = 42)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Common {
    /// Whether terminals of TPC-C keep to their warehouses: without that, commands of one warehouse
    /// depend on those of others.
    pub(crate) fn stays_at_home(&self) -> bool {
        self.home_only || self.apply == Apply::Command
    }
}

/// Options of `freshet-lab bench tpcc`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TpccOptions {
    /// Warehouses; threads have their home warehouses in turn.
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) warehouses: u16,
    /// Which transactions come: full or payment.
    #[arg(long, value_name = "MIX", value_enum, default_value = "full")]
    pub(crate) mix: TpccMix,
    /// Check the consistency conditions 1 to 12 afterwards, on all nodes.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of `freshet-lab bench tatp`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TatpOptions {
    /// Subscribers.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) subscribers: u32,
    /// full or update-location.
    #[arg(long, value_name = "MIX", default_value_t = freshet_workloads::tatp::Mix::Full)]
    pub(crate) mix: freshet_workloads::tatp::Mix,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of `freshet-lab bench tpcb`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TpcbOptions {
    /// Branches.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) branches: u32,
    /// Accounts of a branch.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    pub(crate) accounts: u64,
    /// Check the consistency conditions afterwards.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Which of TPC-C's transactions come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TpccMix {
    /// All, as in the specification.
    Full,
    /// Payment only.
    Payment,
}

/// Options of `freshet-lab bench ycsb`.
#[derive(Clone, Debug, Args)]
pub(crate) struct YcsbOptions {
    /// Records.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    pub(crate) records: u64,
    /// A, B, C, D, E, F or 70/30.
    #[arg(long, value_name = "MIX", default_value_t = Mix::SeventyThirty)]
    pub(crate) mix: Mix,
    /// Zipfian skew: 0 is uniform, 0.99 is YCSB's usual one.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub(crate) theta: f64,
    /// Operations in one transaction.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) operations: u16,
    /// Fields of a record. [default: 1 for 70/30, otherwise 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) fields: Option<u16>,
    /// Bytes of a field.
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) field_bytes: u16,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.0..=86_400.0).contains(seconds))
        .ok_or_else(|| "a number of seconds from 0 to 86400 is needed".to_owned())
}
