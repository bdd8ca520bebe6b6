//! What is measured: a primary within this process, its standbys and its mirrors in processes of
//! their own.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::{Consent, Lsn, Safety, cpu};
use freshet_engine::{Database, Domain, FabricEncryption, Node, NodeConfig, Recorded, ReplayMode, node::RoleStatus};
use freshet_workloads::{
    procedure::read_only,
    tpcc::{consistency, tables::Tables},
};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    options::Common,
    probe::{Look, Probe, Sighted},
    report::{Passage, Spread},
    work::{Sent, Work},
};
use crate::{
    node::{self, Ask},
    readers::{ReaderTotals, StartReaders},
};
use freshet::{Failure, children::NodeProcess, client::Client};

/// How long a standby may take to start, to catch up, or to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many bytes a mirror may have at most, and how many its undo ring has at least.
const MIRROR_BYTES: u64 = 1 << 40;
const MIRROR_UNDO: u64 = 64 << 20;

/// How long a failover may take.
const FAILOVER: Duration = Duration::from_secs(600);

/// How long mirrors are watched while nothing runs.
const IDLE: Duration = Duration::from_secs(2);

/// The primary within this process, and those that follow it.
pub(crate) struct Subject {
    // Dropped in this order: connections, standbys and mirrors, the primary, files.
    standbys: Vec<Standby>,
    mirrors: Vec<Standby>,
    primary: Primary,
    scratch: Option<TempDir>,
}

enum Primary {
    /// Without a log.
    Volatile(Database),
    /// With one.
    Logged(Arc<Node>),
}

/// What a node is that follows the primary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It replays the log.
    Standby,
    /// Its memory is written by the primary.
    Mirror,
}

/// A standby or a mirror in a process of its own.
pub(crate) struct Standby {
    client: Arc<Client>,
    process: NodeProcess,
}

/// Where things stood when the measurement began.
pub(crate) struct Begun {
    at: Instant,
    reserved: Lsn,
    log: LogWork,
    recorded: Recorded,
    /// Processor time of this process, which is the primary's.
    cpu: Duration,
    /// What standbys were sent, and mirrors.
    sent: [Sent; 2],
    work: Vec<Work>,
    mirrors: Vec<Work>,
    readers: Option<ReaderTotals>,
    probes: Vec<Probe>,
}

/// What the threads of the primary's log have done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogWork {
    /// Processor time: flushing, shipping and hearing acknowledgements.
    pub(crate) cpu: Duration,
    /// Of that, shipping and hearing acknowledgements.
    pub(crate) ship_cpu: Duration,
    /// Batches that were sent as they came.
    pub(crate) batches: u64,
    /// Those of them that the thread of group commit wrote.
    pub(crate) prompt: u64,
}

impl LogWork {
    fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            ship_cpu: self.ship_cpu.saturating_sub(before.ship_cpu),
            batches: self.batches - before.batches,
            prompt: self.prompt - before.prompt,
        }
    }
}

/// What was observed while the measurement lasted.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// How long it lasted.
    pub(crate) time: Duration,
    /// Whether there is a log.
    pub(crate) logged: bool,
    /// Bytes that went to the log.
    pub(crate) log_bytes: u64,
    /// What the primary's log did.
    pub(crate) log: LogWork,
    /// Transactions whose inputs were recorded, and others.
    pub(crate) recorded: Recorded,
    /// Processor time of the primary's process, and of all other nodes together.
    pub(crate) primary_cpu: Duration,
    pub(crate) others_cpu: Duration,
    /// What standbys were sent, and mirrors.
    pub(crate) sent: [Sent; 2],
    /// What each mirror did.
    pub(crate) mirrors: Vec<Work>,
    /// Which share of one processor the busiest mirror took afterwards, without load.
    pub(crate) idle_mirror: f64,
    /// What the standby did whose replay used the most processor time.
    pub(crate) work: Option<Work>,
    /// Standby read view / primary read view; of the worst standby.
    pub(crate) freshness: Option<Spread>,
    /// Bytes of log between the two read views; of the same standby.
    pub(crate) behind_bytes: Option<Spread>,
    /// The looks at that standby, in order.
    pub(crate) looks: Vec<Look>,
    /// From acknowledged to visible, in microseconds; of the worst standby.
    pub(crate) visibility_us: Option<Spread>,
    /// From the group commit's hand-over to visible, of the newest batches; of the standby with the
    /// largest median, where standbys have the primary's clock.
    pub(crate) passage: Option<Passage>,
    /// What the readers on the standbys did, if there are any.
    pub(crate) readers: Option<ReaderTotals>,
    /// How long it took a standby to take over, if one did.
    pub(crate) took_over: Option<Duration>,
}

impl Subject {
    pub(crate) fn start(common: &Common) -> Result<Self, Failure> {
        if let Some(pin) = &common.pin {
            pin.primary.pin()?;
        }
        let workers = usize::from(common.threads) * 2 + 4;
        if common.followers() == 0 && common.domain == Domain::None {
            let primary = Primary::Volatile(Database::volatile_with(workers, common.certifier));
            return Ok(Self { standbys: Vec::new(), mirrors: Vec::new(), primary, scratch: None });
        }
        let scratch = scratch(common.dir.as_deref())?;
        let directory = |name: &str| scratch.path().join(name);
        let mut config = NodeConfig {
            directory: directory("primary"),
            domain: common.domain,
            listen: ([127, 0, 0, 1], 0).into(),
            safety: common.safety,
            failover: freshet_engine::Failover::Manual,
            // Loading is no reason to give a standby up.
            standby_timeout_ms: 30_000,
            workers,
            new_cluster: true,
            ..NodeConfig::default()
        };
        config.record_inputs = common.record_inputs;
        config.certifier = common.certifier;
        config.log.batch_bytes = common.batch_bytes;
        config.log.interval_us = common.interval_us;
        if let Some(bytes) = common.log_buffer_bytes {
            config.log.buffer_bytes = bytes as usize;
        }
        if let Some(bytes) = common.log_uncommitted_bytes {
            config.log.uncommitted_bytes = bytes;
        }
        config.log.streams = common.log_streams.into();
        config.log.group_commit = common.log_group_commit;
        config.log.epoch_ms = common.log_epoch_ms;
        config.log.force_fence = common.log_force_fence;
        config.log.persist_method = common.log_persist_method.clone();
        config.log.persist_delay_ns = common.log_persist_delay_ns;
        config.log.divide_by = common.log_divide_by;
        config.checkpoint.interval_s = common.checkpoint_interval_s;
        config.checkpoint.sync_bytes = common.checkpoint_sync_bytes;
        config.checkpoint.cpu_percent = common.checkpoint_cpu_percent;
        config.fabric.kind = common.fabric;
        config.fabric.encryption = common.fabric_encryption;
        config.fabric.spin_us = common.spin_us;
        config.fabric.bandwidth_gbit = common.bandwidth_gbit;
        config.fabric.compress = common.compress;
        let node = Node::start(config, |_| {})?;
        let (standbys, mirrors) = (Vec::new(), Vec::new());
        let mut subject = Self { standbys, mirrors, primary: Primary::Logged(node), scratch: Some(scratch) };
        if !common.join_loaded {
            subject.start_standbys(common)?;
        } else if matches!(common.safety, Safety::VerySafe | Safety::Quorum(2..)) {
            return Err(Failure::new("nothing can be loaded before standbys join at this safety level: use 2-safe"));
        }
        Ok(subject)
    }

    /// Starts the standbys and mirrors and blocks until all are in sync.
    pub(crate) fn start_standbys(&mut self, common: &Common) -> Result<(), Failure> {
        for number in 1..=common.standbys {
            self.standbys.push(self.join(common, &format!("standby-{number}"))?);
        }
        for number in 1..=common.mirrors {
            let directory = self.directory_of(&format!("mirror-{number}"));
            self.mirrors.push(Standby::start(common, Kind::Mirror, self.node()?.address(), directory)?);
        }
        self.wait_for_standbys()
    }

    fn directory_of(&self, name: &str) -> PathBuf {
        self.scratch.as_ref().map(|scratch| scratch.path().join(name)).unwrap_or_default()
    }

    pub(crate) fn database(&self) -> &Database {
        match &self.primary {
            Primary::Volatile(database) => database,
            Primary::Logged(node) => node.database(),
        }
    }

    /// The primary, if it has a log.
    pub(crate) fn node(&self) -> Result<&Arc<Node>, Failure> {
        match &self.primary {
            Primary::Volatile(_) => Err(Failure::new("a database without a log is not a node")),
            Primary::Logged(node) => Ok(node),
        }
    }

    /// Starts one more standby and blocks until it serves.
    pub(crate) fn join(&self, common: &Common, name: &str) -> Result<Standby, Failure> {
        Standby::start(common, Kind::Standby, self.node()?.address(), self.directory_of(name))
    }

    /// Whether a checkpoint is being written, and how many were.
    pub(crate) fn checkpoints(&self) -> (bool, u64) {
        let Primary::Logged(node) = &self.primary else { return (false, 0) };
        node.checkpoint_status().map_or((false, 0), |status| (status.under_way.is_some(), status.installed))
    }

    /// Where the next transaction's LSN will be.
    pub(crate) fn reserved(&self) -> Lsn {
        self.database().core().snapshots.current()
    }

    /// Blocks until every standby and every mirror is in sync.
    fn wait_for_standbys(&self) -> Result<(), Failure> {
        let Primary::Logged(node) = &self.primary else { return Ok(()) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let in_sync = match node.status().role {
                RoleStatus::Primary { shipping, .. } => {
                    shipping.standbys.iter().filter(|standby| standby.in_sync).count()
                }
                _ => 0,
            };
            if in_sync == self.standbys.len() + self.mirrors.len() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let all = self.standbys.iter().chain(&self.mirrors);
                let messages: Vec<String> = all.map(|node| node.process.messages()).collect();
                return Err(Failure::new(format!("the other nodes do not come into sync: {}", messages.join("; "))));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the primary's log has done so far.
    fn log_work(&self) -> LogWork {
        let Primary::Logged(node) = &self.primary else { return LogWork::default() };
        match node.status().role {
            RoleStatus::Primary { log_cpu, shipping, .. } => {
                let ship_cpu = shipping.ship_cpu + shipping.ack_cpu;
                let (batches, prompt) = (shipping.live_batches, shipping.prompt_batches);
                // What the group commit's thread ships is in both.
                let cpu = (log_cpu + ship_cpu).saturating_sub(shipping.prompt_cpu);
                LogWork { cpu, ship_cpu, batches, prompt }
            }
            _ => LogWork::default(),
        }
    }

    /// What standbys and mirrors were sent so far.
    fn sent(&self) -> [Sent; 2] {
        let Primary::Logged(node) = &self.primary else { return Default::default() };
        let role = node.status().role;
        [false, true].map(|mirrors| Sent::of(&role, mirrors))
    }

    /// Blocks until every standby shows what was loaded: what it replays later is not counted as
    /// work of the measurement. Standbys that do not replay show nothing and are not waited for.
    pub(super) fn wait_shown(&self, common: &Common) -> Result<(), Failure> {
        let loaded = self.reserved();
        match common.replay {
            ReplayMode::None => Ok(()),
            _ => self.standbys.iter().try_for_each(|standby| standby.wait_visible(loaded)),
        }
    }

    /// Starts `--standby-readers` on every standby, once everything below `loaded` is visible
    /// there.
    pub(crate) fn start_readers(&self, common: &Common, loaded: Lsn) -> Result<(), Failure> {
        if common.standby_readers == 0 {
            return Ok(());
        }
        if self.standbys.is_empty() {
            return Err(Failure::new("--standby-readers needs --standbys"));
        }
        for (number, standby) in (0..).zip(&self.standbys) {
            standby.wait_visible(loaded)?;
            let order = StartReaders { threads: common.standby_readers, seed: common.seed + number };
            standby.ask(Ask::StartReaders(order))?;
        }
        Ok(())
    }

    /// What the readers on all standbys have done so far.
    fn readers(&self) -> Option<ReaderTotals> {
        let mut all: Option<ReaderTotals> = None;
        for standby in &self.standbys {
            if let Some(totals) = standby.readers().filter(|totals| totals.threads > 0) {
                all.get_or_insert_default().add(&totals);
            }
        }
        all
    }

    /// The measurement begins. What standbys show is looked at where they replay.
    pub(crate) fn begin(&self, common: &Common) -> Begun {
        let mut probes = Vec::new();
        if let Primary::Logged(node) = &self.primary
            && common.replay != ReplayMode::None
            && !common.no_probes
        {
            probes.extend(self.standbys.iter().map(|standby| Probe::start(node, &standby.client)));
        }
        Begun {
            work: self.standbys.iter().map(Standby::work).collect(),
            mirrors: self.mirrors.iter().map(Standby::work).collect(),
            cpu: cpu::process_time(),
            sent: self.sent(),
            log: self.log_work(),
            readers: self.readers(),
            reserved: self.reserved(),
            recorded: self.database().core().recorded(),
            at: Instant::now(),
            probes,
        }
    }

    /// The measurement ends. What comes back waits for the standbys, which may lag, and says what
    /// was measured.
    pub(crate) fn end(&self, begun: Begun) -> impl FnOnce() -> Measured {
        begun.probes.iter().for_each(Probe::halt);
        let (time, reserved) = (begun.at.elapsed(), self.reserved());
        let recorded = self.database().core().recorded().since(&begun.recorded);
        let primary_cpu = cpu::process_time().saturating_sub(begun.cpu);
        let log = self.log_work().since(begun.log);
        let [standbys, mirrors] = self.sent();
        let sent = [standbys.since(begun.sent[0]), mirrors.since(begun.sent[1])];
        let mirrors = works_since(&self.mirrors, &begun.mirrors);
        let works = works_since(&self.standbys, &begun.work);
        let others_cpu = works.iter().chain(&mirrors).map(|work| work.process).sum();
        let work = works.into_iter().max_by_key(|work| work.replay);
        let readers = self.readers().zip(begun.readers).map(|(after, before)| after.since(&before));
        let passage = self
            .standbys
            .iter()
            .filter_map(|standby| Passage::of(&standby.status()["passage"]))
            .max_by(|one, other| one.p50.total_cmp(&other.p50));
        let logged = matches!(self.primary, Primary::Logged(_));
        let log_bytes = reserved.since(begun.reserved);
        move || {
            let mut worst: Option<(Spread, Spread)> = None;
            let mut worst_looks = Vec::new();
            let mut visibility: Option<Spread> = None;
            for Sighted { looks, freshness, behind_bytes, visibility_us } in begun.probes.into_iter().map(Probe::end) {
                if worst.as_ref().is_none_or(|(worst, _)| freshness.mean() < worst.mean()) {
                    worst = Some((freshness, behind_bytes));
                    worst_looks = looks;
                }
                if visibility.as_ref().is_none_or(|worst| visibility_us.percentile(99.0) > worst.percentile(99.0)) {
                    visibility = Some(visibility_us);
                }
            }
            let (freshness, behind_bytes) = worst.unzip();
            Measured {
                time,
                logged,
                log_bytes,
                log,
                recorded,
                primary_cpu,
                others_cpu,
                sent,
                idle_mirror: self.idle_mirror(),
                mirrors,
                work,
                freshness,
                behind_bytes,
                looks: worst_looks,
                visibility_us: visibility,
                passage,
                readers,
                took_over: None,
            }
        }
    }

    /// Which share of one processor the busiest mirror takes while nothing runs. Blocks for two
    /// seconds if there are mirrors.
    fn idle_mirror(&self) -> f64 {
        if self.mirrors.is_empty() {
            return 0.0;
        }
        let (begun, before) = (Instant::now(), self.mirrors.iter().map(Standby::work).collect::<Vec<_>>());
        std::thread::sleep(IDLE);
        let (time, works) = (begun.elapsed(), works_since(&self.mirrors, &before));
        let busiest = works.iter().map(|work| work.process).max().unwrap_or_default();
        busiest.as_secs_f64() / time.as_secs_f64()
    }

    /// The first mirror's status; null without one.
    pub(crate) fn first_mirror(&self) -> Value {
        self.mirrors.first().map(Standby::status).unwrap_or_default()
    }

    /// The first standby takes over, or the first mirror, without asking the primary: how long that
    /// takes it. Blocks until then.
    pub(crate) fn failover(&self) -> Result<Duration, Failure> {
        let standby = self.standbys.iter().chain(&self.mirrors).next();
        let standby = standby.ok_or_else(|| Failure::new("there is no node to take over"))?;
        let begun = Instant::now();
        standby.client.promote(Consent::Loss, FAILOVER)?;
        Ok(begun.elapsed())
    }

    /// Checks TPC-C's consistency conditions on all nodes, and that all hash to the same. Returns
    /// what is wrong.
    pub(crate) fn check_tpcc(&self, tables: &Tables) -> Result<Vec<String>, Failure> {
        let worker = self.database().worker()?;
        let (verdicts, ticket) = read_only(&worker, |txn| consistency::check(txn, tables))?;
        self.database().wait(ticket)?;
        let mut wrong: Vec<String> =
            verdicts.iter().filter(|verdict| !verdict.ok).map(|verdict| format!("primary: {verdict}")).collect();
        let (state, _) = read_only(&worker, |txn| Ok(freshet_engine::StateHash::of(txn)?))?;
        for (number, standby) in (1..).zip(&self.standbys) {
            let (at, hash, records) = standby.client.hash(Some(state.at), PATIENCE)?;
            // What says something of the log itself may lie between the two.
            if at < state.at || (hash, records) != (state.hash, state.records) {
                wrong.push(format!("standby {number}: hash {hash:016x} over {records} at {at}, primary: {state}"));
            }
            if let node::Answer::Checked(verdicts) = standby.ask(Ask::Check)? {
                wrong.extend(verdicts.iter().filter(|it| !it.ok).map(|it| format!("standby {number}: {it}")));
            }
        }
        Ok(wrong)
    }

    /// Ends everything.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        self.stop_and_keep().map(drop)
    }

    /// The same, but for the files, if there are some.
    pub(crate) fn stop_and_keep(self) -> Result<Option<TempDir>, Failure> {
        drop((self.standbys, self.mirrors));
        if let Primary::Logged(node) = self.primary {
            node.stop().map_err(Failure::new)?;
        }
        Ok(self.scratch)
    }
}

impl Kind {
    /// What only such a node is told.
    fn flags(self, common: &Common, directory: &Path) -> Vec<(&'static str, String)> {
        match self {
            Self::Standby => vec![
                (
                    "--domain",
                    match common.standby_domain {
                        Some(Domain::None) => "none",
                        Some(Domain::Pmem) => "pmem",
                        None if common.domain == Domain::None => "none",
                        Some(Domain::File) | None => "file",
                    }
                    .to_owned(),
                ),
                ("--log-persist-method", common.standby_persist_method.clone()),
                ("--log-persist-delay-per-kib", common.standby_persist_delay_per_kib.clone()),
                ("--log-persist-upon-replay", common.standby_persist_upon_replay.to_string()),
                ("--replay", common.replay.to_string()),
                ("--apply", common.apply.to_string()),
                ("--encoding", common.encoding.to_string()),
            ],
            Self::Mirror => {
                let undo = common.log_buffer_bytes.unwrap_or(0).max(MIRROR_UNDO);
                let mut flags =
                    vec![("--mirror-bytes", MIRROR_BYTES.to_string()), ("--mirror-undo-bytes", undo.to_string())];
                if common.standby_domain == Some(Domain::Pmem) {
                    let memory = directory.join("memory").display().to_string();
                    flags.extend([
                        ("--domain", "pmem".to_owned()),
                        ("--log-persist-method", common.standby_persist_method.clone()),
                        ("--mirror-keep-dir", memory),
                    ]);
                }
                flags
            }
        }
    }
}

/// What the nodes have done since `before`.
fn works_since(nodes: &[Standby], before: &[Work]) -> Vec<Work> {
    nodes.iter().zip(before).map(|(node, before)| node.work().since(before)).collect()
}

impl Standby {
    fn start(common: &Common, kind: Kind, primary: &str, directory: PathBuf) -> Result<Self, Failure> {
        let any = "127.0.0.1:0";
        let mut flags: Vec<std::ffi::OsString> = Vec::new();
        let mut flag = |name: &str, value: &std::ffi::OsStr| flags.extend([name.into(), value.to_owned()]);
        for (name, value) in [
            ("--address", any),
            ("--listen", any),
            ("--sql-listen", "off"),
            ("--join", primary),
            ("--readers", &common.standby_readers.to_string()),
            ("--replay-threads", &common.replay_threads.to_string()),
            ("--fabric-kind", &common.fabric.to_string()),
            (
                "--fabric-encryption",
                match common.fabric_encryption {
                    FabricEncryption::Tls => "tls",
                    FabricEncryption::None => "none",
                },
            ),
            ("--fabric-spin-us", &common.spin_us.to_string()),
            ("--log-batch-bytes", &common.batch_bytes.to_string()),
            ("--log-interval-us", &common.interval_us.to_string()),
        ] {
            flag(name, value.as_ref());
        }
        flag("--directory", directory.as_os_str());
        for (name, value) in kind.flags(common, &directory) {
            flag(name, value.as_ref());
        }
        for (name, bytes) in
            [("--log-buffer-bytes", common.log_buffer_bytes), ("--log-uncommitted-bytes", common.log_uncommitted_bytes)]
        {
            if let Some(bytes) = bytes {
                flag(name, bytes.to_string().as_ref());
            }
        }
        if let Some(cpus) = common.pin.as_ref().and_then(|pin| pin.standbys.as_ref()) {
            flag("--pin", cpus.to_string().as_ref());
        }
        let process = NodeProcess::start(&std::env::current_exe()?, flags, PATIENCE)?;
        let client = Arc::new(Client::connect(&process.ready().address, PATIENCE)?);
        Ok(Self { client, process })
    }

    /// Blocks until everything below `lsn` is visible.
    pub(crate) fn wait_visible(&self, lsn: Lsn) -> Result<(), Failure> {
        Ok(self.client.wait_visible(lsn, PATIENCE).map(drop)?)
    }

    /// Asks what only nodes of the laboratory do.
    fn ask(&self, ask: Ask) -> Result<node::Answer, Failure> {
        node::ask(&self.process.ready().address, ask, PATIENCE)
    }

    /// Its status; null when it does not answer.
    pub(crate) fn status(&self) -> Value {
        let json = self.client.status(PATIENCE).unwrap_or_default();
        serde_json::from_str(&json).unwrap_or(Value::Null)
    }

    /// What its readers have done so far, if it answers.
    fn readers(&self) -> Option<ReaderTotals> {
        let Ok(node::Answer::ReaderTotals(totals)) = self.ask(Ask::ReaderTotals) else { return None };
        Some(totals)
    }

    /// What it has done so far.
    fn work(&self) -> Work {
        Work::of(&self.status())
    }
}

/// A directory for the logs that is removed in the end.
pub(crate) fn scratch(directory: Option<&Path>) -> Result<TempDir, Failure> {
    let shared_memory = PathBuf::from("/dev/shm");
    let base = match directory {
        Some(directory) => directory.to_owned(),
        None if shared_memory.is_dir() => shared_memory,
        None => std::env::temp_dir(),
    };
    tempfile::Builder::new().prefix("freshet-bench-").tempdir_in(&base).map_err(|cause| {
        Failure::new(format!("cannot make a directory for logs in {}: {cause}; choose another --dir", base.display()))
    })
}
