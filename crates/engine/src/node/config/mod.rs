//! How a node is set up: one struct per subject. Every key has a default.
//!
//! A key is a field. Its doc comment is all the documentation that the key has: the first paragraph
//! says what it means, the second when to change it. `freshet serve --help` shows it, and a test
//! of the binary compares docs/configuration.md with it. A key of a table has the table's name and
//! a dash in front of its id, which is its flag. The heading of a field says who sets it:
//! [`headings`].

mod checkpoint;
mod fabric;
mod log;
mod mirror;
mod proof;
mod sweep;
mod witness;
mod words;

/// Headings of keys that decide where a key is known and shown.
pub mod headings {
    /// The most common keys.
    pub const COMMON: &str = "Common";
    /// What counts for one start: options of the command line, and no keys.
    pub const ONE_START: &str = "For one start";
    /// What only tests, benchmarks and experiments set: `freshet-lab node` knows these keys,
    /// `freshet serve` does not.
    pub const LABORATORY: &str = "Laboratory";
}

use std::{fmt, net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use clap::Args;
use freshet_base::{Certifier, NodeId, Safety};
use freshet_cluster::{
    commit_rule::{RuleConfig, WhenMissing},
    flow::FlowConfig,
    relay::RelayAck,
    watch::{BEHIND_LOGS, FIRST, WatchConfig},
};
use freshet_log::{LogConfig, ReceiveConfig, persist::PersistenceConfig};
use freshet_replication::{
    feed::FeedConfig,
    standby::{RelayConfig, ReplayMode},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::headings::{COMMON, LABORATORY, ONE_START};
pub use self::{
    checkpoint::CheckpointSettings,
    fabric::{FabricEncryption, FabricSettings},
    log::{DivideBy, ForceFenceBy, GroupCommit, LogSettings},
    mirror::MirrorSettings,
    proof::ProofSettings,
    sweep::SweepSettings,
    witness::WitnessSettings,
    words::{Apply, Domain, Encoding, Failover, OnDoubt, OnMismatch},
};
use super::membership::MembershipSettings;

/// Feeds that encode have places, as many as a cluster is likely to have. One more sends bytes.
const FEEDS: usize = 65;

/// How long a node that feeds others is silent at most: a lease takes a few of these.
const KEEP_ALIVE: Duration = Duration::from_millis(100);

/// A value that no node can run with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{key} = {value}: {remedy}")]
pub struct SettingError {
    /// The key, as a file writes it: `log.buffer-bytes`.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What to do instead.
    pub remedy: String,
}

impl SettingError {
    /// `key` cannot be `value`.
    pub fn new(key: &'static str, value: impl fmt::Display, remedy: impl Into<String>) -> Self {
        Self { key, value: value.to_string(), remedy: remedy.into() }
    }

    /// Whether `value` is in `range`.
    ///
    /// # Errors
    /// When it is not.
    pub fn within(key: &'static str, value: impl TryInto<u64>, range: RangeInclusive<u64>) -> Result<(), Self> {
        let value = value.try_into().unwrap_or(u64::MAX);
        if range.contains(&value) {
            return Ok(());
        }
        Err(Self::new(key, value, format!("use a number from {} to {}", range.start(), range.end())))
    }
}

/// Where a node listens for others, as it is written.
fn listen(text: &str) -> Result<SocketAddr, String> {
    freshet_base::listen::address(text, Some(7401))
}

fn listens<'de, D: serde::Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    listen(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// How a node is set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
pub struct NodeConfig {
    /// Where other nodes connect: an address or name of this machine, or `*` for all of its
    /// addresses, and a port, 7401 if none is given; port 0 takes a free one.
    ///
    /// Change it when nodes are on other machines.
    #[serde(deserialize_with = "listens")]
    #[arg(long, value_name = "ADDRESS", help_heading = COMMON, value_parser = listen)]
    pub listen: SocketAddr,
    /// The `listen` address of the primary. It makes this node a standby, unless the node was
    /// promoted since and no other has become the primary. A primary that was succeeded follows its
    /// successor without this.
    ///
    /// Set it on every standby.
    #[arg(long, value_name = "HOST:PORT", help_heading = COMMON)]
    pub join: Option<String>,
    /// The `listen` address of the node from which this one fetches the checkpoint that it begins
    /// with, when its directory is empty, if not from the one that it joins. A mirror gives its
    /// memory.
    ///
    /// Give it to spare the primary, or where no other node has a checkpoint.
    #[serde(skip)]
    #[arg(long, value_name = "HOST:PORT", help_heading = ONE_START)]
    pub bootstrap_from: Option<String>,
    /// How other nodes reach this one, if not at `listen`.
    ///
    /// Set it behind address translation, or when `listen` is a wildcard.
    #[arg(long, value_name = "HOST:PORT", help_heading = COMMON)]
    pub advertise: Option<String>,
    /// The `listen` addresses of other nodes that failovers and restarts ask, besides those that
    /// the primary knows.
    ///
    /// Name all other nodes: then a failover also finds those that had not joined, and a primary
    /// that restarts finds those that do not `join` it.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', help_heading = COMMON)]
    pub peers: Vec<String>,

    /// Where a commit must be persistent before its client hears of it, in a cluster that begins;
    /// later `freshet level` changes that for all nodes, and the record of it counts. `majority`:
    /// on more than half of the nodes that belong to the cluster, this one included, where there
    /// are three or more; two are as under `2-safe`. `1-safe`: here. `2-safe`: here and on all
    /// standbys in sync; without any the primary continues alone. `very-safe`: on all standbys.
    /// `quorum:K`: on K nodes, this one included. See docs/operations.md#safety-levels.
    ///
    /// Choose it by what may be lost.
    #[arg(long, value_name = "LEVEL", help_heading = COMMON)]
    pub safety: Safety,
    /// How many milliseconds commits wait when the safety level cannot be kept. Then they are
    /// refused, until it can be kept again. At most 3600000; 0: they wait until it can be kept
    /// again.
    ///
    /// Set it where clients should get an error rather than wait.
    #[arg(long, value_name = "MS", help_heading = "Safety")]
    pub refuse_after_ms: u64,
    /// With `2-safe`: commits wait when fewer standbys than this are in sync, instead of continuing
    /// without them; failovers then need that many fewer nodes. At most 64.
    ///
    /// With 1, a standby can take over without its primary and without `--force`.
    #[arg(long, value_name = "N", help_heading = "Safety")]
    pub least_in_sync: u32,
    /// On a standby: no commit waits for it, and it counts in no quorum and in no in-sync set.
    ///
    /// Set it for reports, or for a distant copy.
    #[arg(long, help_heading = "Safety")]
    pub asynchronous: bool,
    /// How many seconds a primary that restarts waits until enough other nodes answer to know that
    /// none has taken over, 0 to 604800. See docs/operations.md#restart-of-a-whole-cluster.
    ///
    /// Choose it by the time that your nodes take to start.
    #[arg(long, value_name = "S", help_heading = LABORATORY)]
    pub restart_timeout_s: u64,
    /// A primary that restarts asks no other node, although acknowledged commits may be lost.
    ///
    /// Give it once. It counts until another node becomes the primary.
    #[serde(skip)]
    #[arg(long, help_heading = ONE_START)]
    pub force_primary: bool,
    /// This node, if it has no log yet, begins a new cluster. It has no effect on a node with a
    /// log.
    ///
    /// Give it once, to the first node of a new cluster.
    #[serde(skip)]
    #[arg(long, help_heading = ONE_START)]
    pub new_cluster: bool,
    /// On a standby: it is a relay, meant to feed this many asynchronous standbys of its own. 0: it
    /// sends those that join it to the primary.
    ///
    /// Spares the primary's network where there are many standbys: docs/operations.md#cascades.
    #[arg(long, value_name = "N", help_heading = "Safety")]
    pub relay_standbys: u32,
    /// On a relay: `own` acknowledges what the relay holds itself, `downstream` what its standbys
    /// hold too, except for those that stall longer than `standby-timeout-ms`.
    ///
    /// Use `downstream` where commits should wait for the relay's standbys.
    #[arg(long, value_name = "WHAT", help_heading = "Safety", hide = true)]
    pub relay_ack: RelayAck,
    /// After this many milliseconds without an acknowledgement a standby counts as lost, and leaves
    /// the in-sync set; 10 to 3600000.
    ///
    /// Raise it for slow networks; lower it to continue sooner under `2-safe`.
    #[arg(long, value_name = "MS", help_heading = "Safety")]
    pub standby_timeout_ms: u64,

    /// Who makes a standby the primary when the primary is lost. `automatic`: the nodes, where more
    /// than half of the in-sync set hear the primary no more, the level loses nothing by it, and is
    /// not `1-safe`: where three or more vote, that is. A primary then also answers readers only
    /// while no other node can lead. `last`: likewise, and this node stands after others that
    /// could. `never`: other nodes only. `manual`: an operator, with `freshet promote`. See
    /// docs/operations.md#failover-without-an-operator.
    ///
    /// Use `last` or `never` on nodes that are to be the primary only if need be, or not at all,
    /// and `manual`, on all nodes, where something else decides.
    #[arg(long, value_name = "WHO", help_heading = "Safety")]
    pub failover: Failover,
    /// Unless `failover` is `manual`: for how many milliseconds a standby's answer lets the primary
    /// answer readers and acknowledge commits, 50 to 60000. A successor waits until that is over.
    ///
    /// Raise it where standbys answer late, for a failover that takes as much longer.
    #[arg(long, value_name = "MS", help_heading = LABORATORY)]
    pub lease_ms: u64,

    /// Where the node is kept: its control file, the manifests of checkpoints, and everything that
    /// has no other place. It is made if it does not exist. A node with domain `none` has no
    /// directory.
    ///
    /// Choose a place that lasts.
    #[arg(long, value_name = "DIR", help_heading = COMMON)]
    pub directory: PathBuf,
    /// How much memory the node may take: rows, old versions of these, indexes, log buffers, what
    /// sessions keep and statements need. From 95 % on, statements that add rows, change them or
    /// build indexes get 53200; reads, deletions, commits and replication continue. A standby
    /// replays until an eighth above that, and then only receives. 0: three quarters of the
    /// machine's memory, or of what the control group and the process may have. See
    /// docs/operations.md#memory.
    ///
    /// Set it where other programs, or other nodes, share the machine; the same on all nodes.
    #[arg(long, value_name = "BYTES", help_heading = COMMON)]
    pub memory_bytes: u64,
    /// Threads that replay the log on a standby, and that read checkpoint and log at a restart; 1
    /// to 64.
    ///
    /// Use the number of processors for a fast restart.
    #[arg(long, value_name = "N", help_heading = COMMON)]
    pub replay_threads: usize,
    /// When a standby replays. `pipelined`: by itself; it acknowledges what is persistent there.
    /// `synchronous`: before it acknowledges. `none`: only when it takes over or restarts.
    ///
    /// Use `synchronous` when a failover must find nothing left to replay, `none` where nothing is
    /// read and a failover may take long. A commit is visible no sooner with `synchronous`: see
    /// docs/sql.md#commits-and-standbys.
    #[arg(long, value_name = "POLICY", help_heading = "Resources")]
    pub replay: ReplayMode,
    /// What a standby's replay does to records. `full` and `command` take several times the
    /// processor time, `full` also more memory; `command` executes what `freshet-lab bench tpcc
    /// --apply command` logs, and `calvin`, with `encoding` `inputs`, what `--apply calvin`
    /// records.
    ///
    /// Only for comparisons.
    #[arg(long, value_name = "HOW", help_heading = LABORATORY)]
    pub apply: Apply,
    /// In which form a standby asks for the log. What is acknowledged and not executed yet is kept
    /// in a journal in `directory`. Other than `bytes` not with `replay` `none`, nor with
    /// `fabric.appliance`.
    ///
    /// Use `inputs` where the network is narrower than the log, `auto` where that changes: see
    /// docs/operations.md#a-standby-that-executes-again.
    #[arg(long, value_name = "FORM", help_heading = "Resources")]
    pub encoding: Encoding,
    /// On a standby that executes transactions again: no more of them arrive than it executes in
    /// about this many milliseconds; then its primary waits. So a failover executes no longer than
    /// that, and readers are no further behind. 0: as much arrives as half its log's buffer holds;
    /// at most 3600000.
    ///
    /// Raise it where the primary's bursts matter more than how long a failover takes.
    #[arg(long, value_name = "MS", help_heading = LABORATORY)]
    pub backlog_ms: u64,
    /// What a standby does when a transaction that it executes again gives something else than its
    /// block's checksum demands. The block and what came out are noted in the file `mismatches` of
    /// `directory`, which `freshet inspect mismatches` shows.
    ///
    /// Use `stop` where a difference must be looked into before the node continues.
    #[arg(long, value_name = "WHAT", help_heading = LABORATORY)]
    pub on_mismatch: OnMismatch,
    /// What a node does when something speaks against what it has in memory, as the sweep or a mark
    /// finds out. See docs/operations.md#proof-of-the-state.
    ///
    /// Use `report` where stale or wrong answers are better than none.
    #[arg(long, value_name = "WHAT", help_heading = LABORATORY)]
    pub on_doubt: OnDoubt,
    /// On a standby, while the primary records inputs: in how many percent of the log, 0 to 100,
    /// transactions that were certified serializable by validation are executed once more, at their
    /// own places in the log. What does not give the same there was certified wrongly: it is told,
    /// counted, and noted in the file `out-of-order` of `directory`, which `freshet inspect
    /// mismatches` shows.
    ///
    /// Raise it to find faults of the certifier sooner, for the processor time of executing these
    /// transactions.
    #[arg(long, value_name = "PERCENT", help_heading = LABORATORY)]
    pub verify_sample: u32,
    /// What decides whether a serializable transaction commits. `validation`: nothing that it has
    /// read may have been changed since. `ssn`, the serial safety net: it may come before those
    /// that have changed it, unless it must come after one of them, too. Then reads that are not
    /// serializable, and all reads on standbys, see snapshots that may fit no serial order. See
    /// docs/sql.md#the-certifier.
    ///
    /// Use `ssn`, on all nodes, where long transactions that read much and write little fail again
    /// and again.
    #[arg(long, value_name = "CERTIFIER", help_heading = "Resources", hide = true)]
    pub certifier: Certifier,
    /// How many workers (sessions) there can be at once: for the server to say.
    #[serde(skip)]
    #[arg(skip)]
    pub workers: usize,

    /// Where the log becomes persistent. With `none`, a primary keeps it as long as standbys need
    /// it, and a standby keeps all of it. See docs/operations.md#persistent-memory.
    ///
    /// Use `pmem` on a machine with persistent memory, `none` only for measuring.
    #[arg(long, value_name = "DOMAIN", help_heading = "Resources")]
    pub domain: Domain,
    /// A file in which the node records what it decides, and upon what, for `freshet inspect
    /// events`, which replays that: the last 32 MiB at least, and no rows. See
    /// docs/operations.md#when-a-cluster-does-what-it-should-not.
    ///
    /// Set it to find out why a cluster does what it should not.
    #[arg(long, value_name = "FILE", help_heading = "Resources")]
    pub record_events: Option<PathBuf>,
    /// A primary records in the log, beside what transactions did, what they were told to do, where
    /// they can be executed again. `freshet status` says how many.
    ///
    /// Only for measuring: whether a primary's transactions can be executed again, and how long
    /// their inputs are.
    #[arg(long, hide = true, help_heading = "Resources")]
    pub record_inputs: bool,
    /// The log's sizes and times.
    #[command(flatten)]
    pub log: LogSettings,
    /// When and how checkpoints are written.
    #[command(flatten)]
    pub checkpoint: CheckpointSettings,
    /// How what is in memory is looked through.
    #[command(flatten)]
    pub sweep: SweepSettings,
    /// How nodes write into one another's memory.
    #[command(flatten)]
    pub fabric: FabricSettings,
    /// Whether it is a mirror.
    #[command(flatten)]
    pub mirror: MirrorSettings,
    /// How nodes compare their states.
    #[command(flatten)]
    pub state_proof: ProofSettings,
    /// What stands in the place of a witness.
    #[command(flatten)]
    pub witness: WitnessSettings,
    /// How this node is a member of its cluster.
    #[command(flatten)]
    pub member: MembershipSettings,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7401)),
            join: None,
            bootstrap_from: None,
            advertise: None,
            peers: Vec::new(),
            safety: Safety::Majority,
            refuse_after_ms: 0,
            least_in_sync: 0,
            asynchronous: false,
            restart_timeout_s: 600,
            force_primary: false,
            new_cluster: false,
            relay_standbys: 0,
            relay_ack: RelayAck::Own,
            standby_timeout_ms: 2_000,
            failover: Failover::Automatic,
            lease_ms: 350,
            directory: PathBuf::from("freshet-data"),
            memory_bytes: 0,
            replay_threads: 2,
            replay: ReplayMode::Pipelined,
            apply: Apply::Fresh,
            encoding: Encoding::Bytes,
            backlog_ms: 200,
            on_mismatch: OnMismatch::Fetch,
            on_doubt: OnDoubt::Withdraw,
            verify_sample: 1,
            certifier: Certifier::Validation,
            workers: 128,
            domain: Domain::File,
            record_events: None,
            record_inputs: false,
            log: LogSettings::default(),
            checkpoint: CheckpointSettings::default(),
            sweep: SweepSettings::default(),
            fabric: FabricSettings::default(),
            mirror: MirrorSettings::default(),
            state_proof: ProofSettings::default(),
            witness: WitnessSettings::default(),
            member: MembershipSettings::default(),
        }
    }
}

impl NodeConfig {
    /// Whether a node can run with it. Looks at nothing but the values.
    ///
    /// # Errors
    /// The first key with a value that cannot be used.
    pub fn check(&self) -> Result<(), SettingError> {
        SettingError::within("least-in-sync", self.least_in_sync, 0..=64)?;
        SettingError::within("standby-timeout-ms", self.standby_timeout_ms, 10..=3_600_000)?;
        SettingError::within("lease-ms", self.lease_ms, 50..=60_000)?;
        SettingError::within("restart-timeout-s", self.restart_timeout_s, 0..=7 * 86_400)?;
        SettingError::within("refuse-after-ms", self.refuse_after_ms, 0..=3_600_000)?;
        SettingError::within("backlog-ms", self.backlog_ms, 0..=3_600_000)?;
        SettingError::within("verify-sample", self.verify_sample, 0..=100)?;
        if self.memory_bytes != 0 {
            SettingError::within("memory-bytes", self.memory_bytes, 1 << 20..=1 << 50)?;
        }
        SettingError::within("replay-threads", self.replay_threads, 1..=64)?;
        self.log.check()?;
        self.checkpoint.check()?;
        self.sweep.check()?;
        self.fabric.check()?;
        self.mirror.check(self)?;
        self.state_proof.check()?;
        self.witness.check()?;
        self.check_reached()?;
        if self.apply == Apply::Calvin && self.encoding == Encoding::Bytes {
            return Err(SettingError::new("apply", self.apply, "set encoding to inputs: it executes these"));
        }
        let refuse_appliance = |remedy: &str| Err(SettingError::new("fabric.appliance", true, remedy));
        match self {
            _ if !self.fabric.appliance => Ok(()),
            _ if self.domain != Domain::Pmem => {
                refuse_appliance("set domain to pmem: elsewhere what has arrived is not persistent")
            }
            // The primary acknowledges by itself then, and knows of nothing but that its bytes have
            // arrived.
            _ if self.replay == ReplayMode::Synchronous => {
                refuse_appliance("leave it out, or set replay to pipelined: the primary does not wait for replay then")
            }
            _ if self.relay_standbys > 0 && self.relay_ack == RelayAck::Downstream => refuse_appliance(
                "leave it out, or set relay-ack to own: the primary does not wait for those below then",
            ),
            _ => Ok(()),
        }
    }

    /// Whether other nodes may reach this one where it tells them to.
    pub(crate) fn check_reached(&self) -> Result<(), SettingError> {
        if self.advertise.is_none() && self.listen.ip().is_unspecified() {
            let remedy = "no node reaches another one there: say with advertise (--advertise) where they do";
            return Err(SettingError::new("listen", self.listen, remedy));
        }
        Ok(())
    }

    pub(crate) fn log_config(&self) -> LogConfig {
        LogConfig { writers: self.workers + 9, ..self.log.config() }
    }

    pub(crate) fn rule(&self) -> RuleConfig {
        RuleConfig {
            standby_timeout: Duration::from_millis(self.standby_timeout_ms),
            when_missing: match self.refuse_after_ms {
                0 => WhenMissing::Block,
                ms => WhenMissing::RefuseAfter(Duration::from_millis(ms)),
            },
            floor: self.least_in_sync,
            lease: (self.failover != Failover::Manual).then(|| Duration::from_millis(self.lease_ms)),
            ..RuleConfig::new(self.safety, 0)
        }
    }

    /// When this node takes its primary for lost, and stands.
    pub(crate) fn watch(&self) -> WatchConfig {
        let priority = match self.failover {
            // What a mirror leads with, it cannot pass on to a node with a log that is behind.
            Failover::Automatic if self.mirror.is_wanted() => FIRST - BEHIND_LOGS,
            Failover::Automatic => FIRST,
            Failover::Last => 1,
            Failover::Never | Failover::Manual => 0,
        };
        WatchConfig { priority, ..WatchConfig::default() }
    }

    /// How long executing what has arrived may take.
    pub(crate) fn backlog(&self) -> Option<Duration> {
        (self.backlog_ms > 0).then(|| Duration::from_millis(self.backlog_ms))
    }

    /// How a standby feeds standbys of its own, if it is a relay.
    pub(crate) fn relay(&self) -> Result<Option<RelayConfig>, SettingError> {
        if self.relay_standbys == 0 {
            return Ok(None);
        }
        Ok(Some(RelayConfig {
            standby_timeout: Duration::from_millis(self.standby_timeout_ms),
            feed: self.feed()?,
            ..RelayConfig::new(self.relay_ack, self.relay_standbys)
        }))
    }

    /// How this node feeds its standbys. The largest block of a primary is at most as large as what
    /// a relay's own buffer takes.
    pub(crate) fn feed(&self) -> Result<FeedConfig, SettingError> {
        Ok(FeedConfig {
            partition: self.log.partition_bytes,
            largest_block: self.log.buffer_bytes as u64 / 2,
            fabric: self.fabric.primary()?,
            flow: FlowConfig { keep_alive: KEEP_ALIVE, ..FlowConfig::default() },
            ..FeedConfig::default()
        })
    }

    /// The file of a log buffer in persistent memory.
    pub(crate) fn buffer_file(&self) -> PathBuf {
        self.log.buffer_file.clone().unwrap_or_else(|| self.directory.join("buffer"))
    }

    /// The log buffer of `owner` in persistent memory, in domain `pmem`.
    pub(crate) fn persistence(&self, owner: NodeId) -> Result<Option<PersistenceConfig>, SettingError> {
        match self.domain {
            Domain::Pmem => self.log.persistence(self.buffer_file(), owner).map(Some),
            Domain::File | Domain::None => Ok(None),
        }
    }

    /// The log of a node that receives it.
    pub(crate) fn receive_config(&self) -> ReceiveConfig {
        ReceiveConfig {
            capacity: self.log.buffer_bytes,
            huge_pages: self.log.huge_pages,
            partition: self.log.partition_bytes,
            // A standby that does not replay has no threads that could do it.
            upon_replay: self.log.persist_upon_replay && self.replay != ReplayMode::None,
        }
    }

    /// Where checkpoints' rows go, on a node with a directory.
    pub(crate) fn checkpoint_devices(&self) -> Vec<PathBuf> {
        match &*self.checkpoint.dir {
            [] => vec![self.directory.join("checkpoints")],
            devices => devices.to_vec(),
        }
    }

    /// Those of them that are not below the node's directory by default.
    pub(crate) fn named_checkpoint_devices(&self) -> Vec<PathBuf> {
        let default = self.directory.join("checkpoints");
        self.checkpoint.dir.iter().filter(|device| **device != default).cloned().collect()
    }

    /// Where a standby that asks for inputs keeps them until they are in the log.
    pub fn journal(&self) -> PathBuf {
        self.directory.join("arrived")
    }

    /// Places for workers, replay threads, feeds that encode, and the engine's own; one
    /// sweeps for marks.
    pub(crate) fn participants(&self) -> usize {
        // Each thread that executes transactions again has a worker; others enter, keep,
        // fetch, cut, and take a sample. Three look through the state.
        let again = crate::scheme::inputs::Schedule::Locks.threads() + 6;
        self.workers + 3 * self.replay_threads.max(1) + self.checkpoint.dir.len().max(1) + FEEDS + again + 12
    }
}
