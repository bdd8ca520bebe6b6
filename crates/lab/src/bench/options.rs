//! What is measured, and how.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use freshet_base::{Certifier, Isolation, Safety};
use freshet_engine::{
    Apply, DivideBy, Domain, Encoding, FabricEncryption, FabricKind, ForceFenceBy, GroupCommit, ReplayMode,
};
use freshet_workloads::{command::ReadSet, ycsb::mix::Mix};

use super::{
    backup::BackupOptions, copies::CopiesOptions, failover::FailoverOptions, join::JoinOptions,
    platform::PlatformOptions, ratios::RatiosOptions, replay::ReplayOptions, restart::RestartOptions,
    sizes::SizesOptions,
};
use crate::pin::Pin;
use freshet::Failure;

/// Which workload.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The full mix of TPC-C, one terminal a thread, without think times.
    Tpcc(TpccOptions),
    /// YCSB: the core workloads A to F, SiloR's mix of 70 % reads and 30 % blind writes, or
    /// Active-Memory's of reads that are followed by an update.
    Ycsb(YcsbOptions),
    /// TATP: seven short transactions on a register of subscribers, or Update Location alone.
    Tatp(TatpOptions),
    /// TPC-B: Account Update on branches, tellers, accounts and a history.
    Tpcb(TpcbOptions),
    /// How fast transactions of TPC-C that were recorded are executed again.
    Replay(ReplayOptions),
    /// How many bytes TPC-C's transactions are told, and write.
    Sizes(SizesOptions),
    /// How fast a node restarts from its log.
    Restart(RestartOptions),
    /// What checkpoints, backups and joining cost a primary under load, and how long they take.
    Backup(BackupOptions),
    /// How long a standby takes to join a primary under TPC-C, and what that costs the primary.
    Join(JoinOptions),
    /// All figures that Freshet promises, as ratios within one run: a table for docs/benchmarks.md.
    Ratios(RatiosOptions),
    /// What three copies cost: two standbys that make versions, two with replay arrays, two
    /// mirrors.
    Copies(CopiesOptions),
    /// How long a mirror takes to become the primary.
    Failover(FailoverOptions),
    /// The platform of the Active-Memory paper: its scheme, log shipping, H-Store and Calvin on one
    /// storage, all nodes in this process.
    Platform(PlatformOptions),
}

/// Options of both.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// The number of threads that run transactions.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub(crate) threads: u16,
    /// How long to measure, in seconds.
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How long to run before measuring, in seconds.
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) warmup: f64,
    /// The isolation level: si or serializable.
    #[arg(long, value_name = "LEVEL", default_value_t = Isolation::Serializable)]
    pub(crate) isolation: Isolation,
    /// What decides whether a serializable transaction commits: validation or ssn.
    #[arg(long, value_name = "CERTIFIER", default_value_t = Certifier::Validation)]
    pub(crate) certifier: Certifier,
    /// Where the log persists. With none and without other nodes the database has no log.
    #[arg(long, value_name = "DOMAIN", value_enum, default_value = "none")]
    pub(crate) domain: Domain,
    /// The directory for logs. The benchmark removes what it has made there. [default: a new
    /// directory on /dev/shm, or in the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The safety level: 1-safe, 2-safe, very-safe or quorum:K.
    #[arg(long, value_name = "LEVEL", default_value_t = Safety::TwoSafe)]
    pub(crate) safety: Safety,
    /// The number of standbys, each in a process of its own.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16))]
    pub(crate) standbys: u32,
    /// The number of mirrors beside them, each in a process of its own, whose memory the primary
    /// writes.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16))]
    pub(crate) mirrors: u32,
    /// The number of threads that replay the log on each standby.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) replay_threads: u16,
    /// When standbys replay: pipelined, synchronous (they acknowledge only what they have replayed)
    /// or none.
    #[arg(long, value_name = "POLICY", default_value_t = ReplayMode::Pipelined)]
    pub(crate) replay: ReplayMode,
    /// How standbys replay: fresh (replay arrays), full (make all versions), command (the log holds
    /// commands, which are executed again; TPC-C only, without remote transactions), or calvin
    /// (inputs are executed again, with locks that are granted in the order of the log; TPC-C and
    /// YCSB, serializable).
    #[arg(long, value_name = "HOW", default_value_t = Apply::Fresh)]
    pub(crate) apply: Apply,
    /// With --apply calvin: which reads are recorded for it: all, or written (those in tables that
    /// transactions write).
    #[arg(long, value_name = "READS", value_enum, default_value = "written")]
    pub(crate) read_set: Reads,
    /// In which form standbys get the log: bytes, or inputs (they execute transactions again).
    #[arg(long, value_name = "FORM", default_value_t = Encoding::Bytes)]
    pub(crate) encoding: Encoding,
    /// When the measurement ends, under load, the first standby takes over, or the first mirror if
    /// there are no standbys; how long that takes is told. It fetches what the primary has beyond
    /// it, which 1-safe does not bound.
    #[arg(long)]
    pub(crate) failover: bool,
    /// Run TPC-C without remote transactions, for comparisons with --apply command.
    #[arg(long)]
    pub(crate) home_only: bool,
    /// Where standbys' logs persist, and with pmem mirrors' memory. [default: file; with --domain
    /// none: none]
    #[arg(long, value_name = "DOMAIN", value_enum)]
    pub(crate) standby_domain: Option<Domain>,
    /// With --standby-domain pmem: how stores become durable there: auto, clwb, clflushopt,
    /// clflush, eadr.
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    pub(crate) standby_persist_method: String,
    /// With --standby-domain pmem: an artificial delay there for each KiB, in nanoseconds, or
    /// calibrated.
    #[arg(long, value_name = "NS", default_value = "0")]
    pub(crate) standby_persist_delay_per_kib: String,
    /// With --standby-domain pmem: whether the threads that replay there also persist; otherwise
    /// one thread does by itself.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) standby_persist_upon_replay: bool,
    /// Standbys join after loading, and start from a checkpoint, so that standbys which do not
    /// replay have data too.
    #[arg(long)]
    pub(crate) join_loaded: bool,
    /// Threads on each standby that constantly run TPC-C's read-only transactions, Stock-Level and
    /// Order-Status in turn.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub(crate) standby_readers: u16,
    /// Do not look at how fresh standbys are, which takes some of their processor time.
    #[arg(long)]
    pub(crate) no_probes: bool,
    /// With --json: also print how fresh the stalest standby was, every 20 ms.
    #[arg(long)]
    pub(crate) freshness_series: bool,
    /// The fabric to the standbys: tcp, shm or verbs.
    #[arg(long, value_name = "FABRIC", default_value_t = FabricKind::Tcp)]
    pub(crate) fabric: FabricKind,
    /// The encryption of TCP connections: tls or none.
    #[arg(long, value_name = "HOW", default_value = "tls")]
    pub(crate) fabric_encryption: FabricEncryption,
    /// How long to busy-poll before sleeping when waiting for the other node, in microseconds (shm,
    /// verbs).
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub(crate) spin_us: u64,
    /// The limit on what the primary sends to all standbys together, in gigabits per second. 0: no
    /// limit.
    #[arg(long, value_name = "GBIT", default_value_t = 0.0)]
    pub(crate) bandwidth_gbit: f64,
    /// Compress batches with LZ4.
    #[arg(long)]
    pub(crate) compress: bool,
    /// The processors of the primary and, after a slash, of the other nodes, as in 0/1. [default:
    /// all processors for both]
    #[arg(long, value_name = "PRIMARY-CPUS[/STANDBY-CPUS]")]
    pub(crate) pin: Option<Pin>,
    /// A group commit begins when this many bytes are waiting.
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 10)]
    pub(crate) batch_bytes: u64,
    /// A group commit begins after this many microseconds at the latest.
    #[arg(long, value_name = "US", default_value_t = 2_000)]
    pub(crate) interval_us: u64,
    /// The size of the log buffer on all nodes, in bytes: a power of two. [default: a node's
    /// default]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1 << 16..=1 << 36))]
    pub(crate) log_buffer_bytes: Option<u64>,
    /// Workers wait while more log than this is uncommitted, in bytes. [default: a node's default]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1 << 16..=1 << 40))]
    pub(crate) log_uncommitted_bytes: Option<u64>,
    /// The number of streams of the log.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) log_streams: u8,
    /// The kind of group commit: pipelined, epoch or passive.
    #[arg(long, value_name = "KIND", value_enum, default_value = "pipelined")]
    pub(crate) log_group_commit: GroupCommit,
    /// With --log-group-commit epoch: the length of an epoch, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 40)]
    pub(crate) log_epoch_ms: u64,
    /// With --log-group-commit passive: how idle workers are force-fenced.
    #[arg(long, value_name = "HOW", value_enum, default_value = "membarrier")]
    pub(crate) log_force_fence: ForceFenceBy,
    /// With --domain pmem: how stores become durable.
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    pub(crate) log_persist_method: String,
    /// With --domain pmem: an artificial delay for each insertion, to emulate slower memory, in
    /// nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pub(crate) log_persist_delay_ns: u64,
    /// How changes are divided among streams: by transaction or by page.
    #[arg(long, value_name = "WHAT", value_enum, default_value = "transaction")]
    pub(crate) log_divide_by: DivideBy,
    /// Record in the log, beside what transactions did, what they were told. Needs a log.
    #[arg(long)]
    pub(crate) record_inputs: bool,
    /// The time between checkpoints, in seconds. 0: no checkpoints.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) checkpoint_interval_s: u64,
    /// A checkpoint syncs its files after this many bytes. 0: once, at the end.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20)]
    pub(crate) checkpoint_sync_bytes: u64,
    /// The share of a processor that a checkpointer may use, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 25)]
    pub(crate) checkpoint_cpu_percent: u32,
    /// Crash: end the process without stopping the node, after the warm-up and shortly before a
    /// checkpoint is complete. For bench restart --crash.
    #[arg(long, hide = true)]
    pub(crate) crash: bool,
    /// How many uncommitted transactions a thread may have before it waits.
    #[arg(long, value_name = "N", default_value_t = 1 << 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) window: u32,
    /// The load of the primary: the share of the time in which its threads work, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) load: u8,
    /// The seed of all random numbers.
    #[arg(long, value_name = "SEED", env = "FRESHET_SEED", default_value_t = 42)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which reads of transactions are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reads {
    /// All.
    All,
    /// Those in tables that transactions write.
    Written,
}

impl From<Reads> for ReadSet {
    fn from(reads: Reads) -> Self {
        match reads {
            Reads::All => Self::All,
            Reads::Written => Self::Written,
        }
    }
}

impl Common {
    /// What cannot be together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let calvin = self.apply == Apply::Calvin;
        if calvin && (self.isolation != Isolation::Serializable || self.encoding != Encoding::Inputs) {
            return Err(Failure::new("--apply calvin needs --encoding inputs --isolation serializable"));
        }
        if self.failover && self.followers() == 0 {
            return Err(Failure::new("--failover needs --standbys or --mirrors"));
        }
        Ok(())
    }

    /// How many nodes follow the primary.
    pub(crate) fn followers(&self) -> u32 {
        self.standbys + self.mirrors
    }

    /// Whether terminals of TPC-C keep to their warehouses: without that, commands of one warehouse
    /// depend on those of others.
    pub(crate) fn stays_at_home(&self) -> bool {
        self.home_only || self.apply == Apply::Command
    }
}

/// Options of `freshet-lab bench tpcc`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TpccOptions {
    /// The number of warehouses; they are the home warehouses of the threads in turn.
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) warehouses: u16,
    /// Which transactions to run: full, plus (TPC-C+: Credit-Checks, too) or payment.
    #[arg(long, value_name = "MIX", value_enum, default_value = "full")]
    pub(crate) mix: TpccMix,
    /// Each transaction of a terminal belongs to another warehouse, drawn at random.
    #[arg(long, conflicts_with = "home_only")]
    pub(crate) spread: bool,
    /// Check the consistency conditions 1 to 12 afterwards, on all nodes.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of `freshet-lab bench tatp`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TatpOptions {
    /// The number of subscribers.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) subscribers: u32,
    /// The mix: full or update-location.
    #[arg(long, value_name = "MIX", default_value_t = freshet_workloads::tatp::Mix::Full)]
    pub(crate) mix: freshet_workloads::tatp::Mix,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of `freshet-lab bench tpcb`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TpcbOptions {
    /// The number of branches.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) branches: u32,
    /// The number of accounts of each branch.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    pub(crate) accounts: u64,
    /// Check the consistency conditions afterwards.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Which of TPC-C's transactions are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TpccMix {
    /// All, as in the specification.
    Full,
    /// All, and Credit-Check: TPC-C+.
    Plus,
    /// Payment only.
    Payment,
}

/// Options of `freshet-lab bench ycsb`.
#[derive(Clone, Debug, Args)]
pub(crate) struct YcsbOptions {
    /// The number of records.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    pub(crate) records: u64,
    /// The workload: A, B, C, D, E, F, RMW or 70/30.
    #[arg(long, value_name = "MIX", default_value_t = Mix::SeventyThirty)]
    pub(crate) mix: Mix,
    /// The Zipfian skew: 0 is uniform, 0.99 is YCSB's usual skew.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub(crate) theta: f64,
    /// The number of operations in a transaction.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) operations: u16,
    /// The number of fields in a record. [default: 1 for 70/30, otherwise 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) fields: Option<u16>,
    /// The length of a field, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) field_bytes: u16,
    /// How many of the threads run long transactions instead, which read many records and then
    /// write one. A long transaction that fails is not run again, but counted.
    #[arg(long, value_name = "T", default_value_t = 0)]
    pub(crate) long_threads: u16,
    /// How many records a long transaction reads.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) long_reads: u16,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.0..=86_400.0).contains(seconds))
        .ok_or_else(|| "a number of seconds from 0 to 86400 is needed".to_owned())
}
