use std::{
    fs, io,
    ops::Deref,
    path::PathBuf,
    sync::{LazyLock, mpsc},
    time::{Duration, Instant},
};

pub use freshet_base::CommitGate;
use freshet_base::{
    ClusterId, Fid, Lsn, NodeId, RecordKind, Rid, Safety, Term,
    sync::{Arc, Condvar, Mutex},
};
use freshet_cluster::{
    commit_rule::RuleConfig,
    in_sync::{InSyncSet, Succession},
    meeting::{Acknowledged, Claim},
    term::{TermEntry, TermHistory, TermState},
};
use freshet_fabric::{FabricConfig, FabricKind, tcp::Connection};
use freshet_log::{
    BlockBuilder, BlockKind, Log, LogConfig, Persistence, ReceiveConfig, Receiver, SegmentStore, StoreConfig, Writer,
    persist::{Method, PersistenceConfig},
};
use freshet_membership::{Credentials, Enrolment, NewKey, Part};
use tempfile::TempDir;

pub use super::configs::*;
use super::{gate, toy, toy::Toy};
use crate::{
    endpoint::{CallError, Endpoint},
    feed::{FeedConfig, FeedFabric},
    follow::{FollowConfig, FollowerId},
    forms::{Encoding, Regenerate},
    primary::{Primary, PrimaryConfig, PrimaryId},
    standby::{JournalPlace, ReplayError, ReplayTarget, Standby, StandbyConfig, Starting},
    terms::{Terms, VolatileTerms},
    wire::{self, Hello, Purpose, Reply},
};

pub const CLUSTER: ClusterId = ClusterId(0xC0FFEE);
/// Longer than anything takes; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Blocks of these lengths, at least 64 each, from `at` on, and where they end.
pub fn blocks(at: Lsn, lengths: &[usize]) -> (Vec<u8>, Vec<Lsn>) {
    part(at, lengths, true)
}

/// The same of a transaction that continues behind them, unless they are the last.
fn part(at: Lsn, lengths: &[usize], is_last: bool) -> (Vec<u8>, Vec<Lsn>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    let mut builder = BlockBuilder::new();
    for (number, length) in lengths.iter().enumerate() {
        let lsn = at.plus(bytes.len() as u64);
        builder.begin();
        let row = vec![(lsn.0 / 8 % 251) as u8; length - 64];
        // No block is shorter.
        builder.push(None, Fid(1), Rid(lsn.0 / 64), RecordKind::Insert, &row).unwrap();
        assert_eq!(builder.seal_records(), *length as u64);
        let ends_here = is_last && (number + 1 == lengths.len());
        bytes.extend_from_slice(builder.finish_part(lsn, Term(1), BlockKind::Redo, ends_here));
        ends.push(lsn.plus(*length as u64));
    }
    (bytes, ends)
}

/// Blocks until `done`, by asking again and again; panics when it takes too long.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "this never happened: {what}");
        // What is asked takes locks that those need who bring it about.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// `node` says that it leads.
pub fn announces(node: NodeId, term: Term, address: &str) -> Purpose {
    let term_entry = TermEntry { term, start: Lsn(0), node, nonce: 1 };
    Purpose::Announce { claim: Claim { term_entry, acknowledged: Acknowledged::Nothing }, address: address.to_owned() }
}

/// A log whose segments are in memory, and can be told to be slow.
pub struct TestLog {
    pub log: Arc<Log>,
    disk: Arc<gate::Gate>,
    /// While no standby has it.
    receiver: Mutex<Option<Receiver>>,
    /// Of a log in persistent memory, of tails, and of a journal.
    directory: TempDir,
    /// The newest file of that journal.
    newest: Arc<Mutex<Option<u64>>>,
}

fn log_config() -> LogConfig {
    LogConfig { capacity: 1 << 16, partition: 512, writers: 4, ..LogConfig::default() }
}

impl TestLog {
    fn new(open: impl FnOnce(SegmentStore, &TempDir) -> (Log, Option<Receiver>)) -> Arc<Self> {
        let (disk, directory) = (Arc::new(gate::Gate::default()), tempfile::tempdir().unwrap());
        let config = StoreConfig { cluster: CLUSTER, segment_size: 1 << 20 };
        let (log, receiver) = open(SegmentStore::open(Arc::clone(&disk) as _, config).unwrap(), &directory);
        Arc::new(Self { log: Arc::new(log), disk, receiver: Mutex::new(receiver), directory, newest: Arc::default() })
    }

    /// One that a primary fills in `term`.
    pub fn filled(term: Term) -> Arc<Self> {
        Self::new(|store, _| (Log::open(log_config(), store, Lsn(0), term).unwrap(), None))
    }

    /// The same, without a store.
    pub fn in_ring(capacity: usize) -> Arc<Self> {
        let config = LogConfig { capacity, ..log_config() };
        Self::new(|_, _| (Log::open(config, Persistence::None, Lsn(0), Term(1)).unwrap(), None))
    }

    /// A standby's.
    pub fn received(capacity: u64) -> Arc<Self> {
        Self::new(|store, _| Self::receive(capacity, false, store.into()))
    }

    /// The same, without a store.
    pub fn received_in_ring(capacity: u64) -> Arc<Self> {
        Self::new(|_, _| Self::receive(capacity, false, Persistence::None))
    }

    /// One that is persisted by those who replay.
    pub fn persisted_upon_replay(capacity: u64, method: Method) -> Arc<Self> {
        Self::new(|store, directory| {
            let (path, owner) = (directory.path().join("buffer"), NodeId(7));
            let memory =
                PersistenceConfig { path, owner, method, delay: Duration::ZERO, delay_per_kib: Duration::ZERO };
            Self::receive(capacity, true, Persistence::Pmem(store.into(), memory))
        })
    }

    fn receive(capacity: u64, upon_replay: bool, persistence: Persistence) -> (Log, Option<Receiver>) {
        let config =
            ReceiveConfig { capacity: capacity as usize, partition: 512, upon_replay, ..ReceiveConfig::default() };
        let (log, receiver) = Log::receive_with(&config, persistence, Lsn(0)).unwrap();
        (log, Some(receiver))
    }

    /// Where the journal is.
    pub fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    /// While a standby's log rests: puts blocks at its end.
    pub fn append(&self, blocks: &[u8]) {
        self.receiver.lock().unwrap().as_mut().unwrap().append(blocks).unwrap();
    }

    /// Has a primary fill it in `term`.
    pub fn promote(&self, term: Term) {
        let receiver = self.receiver.lock().unwrap().take().unwrap();
        self.log.promote(receiver, log_config(), term).unwrap();
    }

    /// Where it ends.
    pub fn end(&self) -> Lsn {
        self.log.filled()
    }

    pub fn persisted(&self) -> Lsn {
        self.log.durable()
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.end().0 as usize];
        self.log.read(Lsn(0), &mut bytes).unwrap();
        bytes
    }

    /// Whether nothing becomes persistent from now on.
    pub fn stall(&self, stalls: bool) {
        self.disk.set(if stalls { gate::State::Held } else { gate::State::Open });
    }

    /// The tails that were saved: where each begins, and its file's bytes.
    pub fn saved(&self) -> Vec<(u64, Vec<u8>)> {
        let files = fs::read_dir(self.directory.path()).unwrap().map(|file| file.unwrap());
        let saved = files.filter_map(|file| {
            let name = file.file_name().into_string().unwrap();
            let start = name.strip_prefix("tail-")?.split('-').next().unwrap().parse().unwrap();
            Some((start, fs::read(file.path()).unwrap()))
        });
        saved.collect()
    }
}

impl Drop for TestLog {
    fn drop(&mut self) {
        self.stall(false);
    }
}

/// Checks that replay gets the log whole and in order, and can be held up.
#[derive(Default)]
pub struct Tape {
    state: Mutex<TapeState>,
    changed: Condvar,
    /// Whether blocks are regenerated for it, and by what.
    regenerates: bool,
    pub toy: Arc<Toy>,
}

#[derive(Default)]
struct TapeState {
    upto: u64,
    gate: Option<u64>,
    cuts: Vec<u64>,
    calls: Vec<(u64, Vec<u64>)>,
    /// What replay has persisted, share by share.
    shares: Vec<(u64, u64)>,
}

impl Tape {
    pub fn gate(&self, gate: Option<u64>) {
        self.state.lock().unwrap().gate = gate;
        self.changed.notify_all();
    }

    pub fn cuts(&self) -> Vec<u64> {
        self.state.lock().unwrap().cuts.clone()
    }

    pub fn replayed(&self) -> Lsn {
        Lsn(self.state.lock().unwrap().upto)
    }

    pub fn calls(&self) -> Vec<(u64, Vec<u64>)> {
        self.state.lock().unwrap().calls.clone()
    }

    pub fn shares(&self) -> Vec<(u64, u64)> {
        self.state.lock().unwrap().shares.clone()
    }
}

impl ReplayTarget for Tape {
    fn replay(&self, from: Lsn, to: Lsn, partition_ends: &[Lsn]) -> Result<(), ReplayError> {
        let mut state = self.state.lock().unwrap();
        while state.gate.is_some_and(|gate| to.0 > gate) {
            state = self.changed.wait(state).unwrap();
        }
        assert_eq!(from.0, state.upto, "replay has no gaps");
        assert_eq!(partition_ends.last(), Some(&to));
        assert!(partition_ends.is_sorted());
        state.upto = to.0;
        state.calls.push((from.0, partition_ends.iter().map(|end| end.0).collect()));
        Ok(())
    }

    fn persist(&self, from: Lsn, to: Lsn, _: &[Lsn], log: &Arc<Log>) {
        log.persist_share(from, to);
        self.state.lock().unwrap().shares.push((from.0, to.0));
    }

    fn regenerates(&self) -> Option<Arc<dyn Regenerate>> {
        self.regenerates.then(|| Arc::new(toy::Shared(Arc::clone(&self.toy))) as _)
    }

    fn cut(&self, at: Lsn) -> Result<(), ReplayError> {
        let mut state = self.state.lock().unwrap();
        state.upto = state.upto.min(at.0);
        state.cuts.push(at.0);
        Ok(())
    }
}

pub struct PrimaryNode {
    pub endpoint: Endpoint,
    pub primary: Primary,
    pub log: Arc<TestLog>,
    pub terms: Terms,
    writer: Mutex<Writer>,
}

pub fn rule(safety: Safety, standbys: u32) -> RuleConfig {
    // Whatever is not about time-outs must not depend on them.
    RuleConfig { standby_timeout: PATIENCE * 2, ..RuleConfig::new(safety, standbys) }
}

pub fn config(rule: RuleConfig) -> PrimaryConfig {
    PrimaryConfig { feed: small_feed(), ..PrimaryConfig::new(rule) }
}

pub fn small_feed() -> FeedConfig {
    // Standbys may ask for shared memory as well.
    small_feed_over(FabricKind::Shm)
}

/// The same for a standby that asks for this fabric.
pub fn small_feed_over(kind: FabricKind) -> FeedConfig {
    let fabric = FeedFabric { kind, config: side(0), ..FeedFabric::default() };
    FeedConfig { partition: 512, largest_block: 1024, fabric, ..FeedConfig::default() }
}

impl PrimaryNode {
    /// A primary in its first term.
    pub fn first(config: PrimaryConfig) -> Self {
        Self::first_on(TestLog::filled(Term(1)), config)
    }

    pub fn first_on(log: Arc<TestLog>, config: PrimaryConfig) -> Self {
        let endpoint = open(1);
        let terms =
            Terms::new(TermState::of(CLUSTER, TermHistory::first(Term(1), NodeId(1), 1)), Arc::new(VolatileTerms));
        Self::lead(endpoint, NodeId(1), config, log, terms)
    }

    pub fn lead(endpoint: Endpoint, node: NodeId, config: PrimaryConfig, log: Arc<TestLog>, terms: Terms) -> Self {
        Self::succeed(endpoint, node, config, log, terms, Lsn::ZERO)
    }

    /// Of the log, what lies below `committed` is known to be committed.
    pub fn succeed(
        endpoint: Endpoint,
        node: NodeId,
        config: PrimaryConfig,
        log: Arc<TestLog>,
        terms: Terms,
        committed: Lsn,
    ) -> Self {
        Self::start(endpoint, node, config, log, terms, (committed, None))
    }

    /// The same, and its in-sync sets follow others.
    pub fn start(
        endpoint: Endpoint,
        node: NodeId,
        config: PrimaryConfig,
        log: Arc<TestLog>,
        terms: Terms,
        (committed, succession): (Lsn, Option<Succession>),
    ) -> Self {
        let who = PrimaryId {
            cluster: CLUSTER,
            node,
            holder: terms.get().holder(node),
            answered: Default::default(),
            credentials: credentials(node),
            address: endpoint.address().to_string(),
            term: terms.get().history.last_term(),
            start: log.end(),
            committed,
            succession,
        };
        let primary = Primary::start(who, config, Arc::clone(&log.log), terms.clone()).unwrap();
        endpoint.set_service(Some(primary.service()));
        let writer = Mutex::new(log.log.writer().unwrap());
        Self { endpoint, primary, log, terms, writer }
    }

    pub fn address(&self) -> String {
        self.endpoint.address().to_string()
    }

    /// Appends blocks of these lengths, which are shipped.
    pub fn ship(&self, lengths: &[usize]) -> Lsn {
        let mut writer = self.writer.lock().unwrap();
        let reservation = writer.reserve(lengths.iter().sum::<usize>() as u64).unwrap();
        let end = reservation.end();
        let (bytes, _) = blocks(reservation.lsn(), lengths);
        reservation.fill(&bytes).unwrap();
        self.log.log.force_fence(end);
        end
    }

    /// Appends blocks and waits until they are durable here.
    pub fn write(&self, lengths: &[usize]) -> Lsn {
        let to = self.ship(lengths);
        self.log.log.wait_durable(to, None).unwrap();
        to
    }

    /// Begins a transaction with these parts.
    pub fn long(&self, parts: Vec<Vec<usize>>) -> Long {
        let ((next, more), (reports, durable)) = (mpsc::channel(), mpsc::channel());
        let log = Arc::clone(&self.log.log);
        let (begins, begun) = mpsc::channel();
        std::thread::spawn(move || {
            let mut writer = log.writer().unwrap();
            let length = parts.iter().flatten().sum::<usize>();
            let mut reservation = writer.reserve(length as u64).unwrap();
            begins.send((reservation.lsn(), reservation.end())).unwrap();
            for (number, lengths) in parts.iter().enumerate() {
                // Without a word it is left half-done.
                let Ok(()) = more.recv() else { return };
                let (bytes, ends) = part(reservation.at(), lengths, number + 1 == parts.len());
                reservation.put(&bytes).unwrap();
                let to = *ends.last().unwrap();
                log.wait_durable(to, None).unwrap();
                if to < reservation.end() {
                    reports.send(to).unwrap();
                }
            }
            // When the last part is reported, there is room for another writer.
            let end = reservation.end();
            drop(reservation);
            drop(writer);
            reports.send(end).unwrap();
        });
        let (start, end) = begun.recv().unwrap();
        Long { next, durable, start, end }
    }

    /// Records a set, as if the rule had asked for it.
    pub fn record(&self, set: &InSyncSet) {
        let end = self.writer.lock().unwrap().note_members(&wire::encode(set)).unwrap();
        self.log.log.wait_durable(end, None).unwrap();
    }

    #[track_caller]
    pub fn commits(&self, to: Lsn) {
        self.primary
            .commit()
            .wait(to, (Instant::now() + PATIENCE).into())
            .unwrap_or_else(|error| panic!("{to} was never committed ({error}): {:#?}", self.primary.status()));
    }
}

/// A long transaction on its way.
pub struct Long {
    next: mpsc::Sender<()>,
    durable: mpsc::Receiver<Lsn>,
    pub start: Lsn,
    pub end: Lsn,
}

impl Long {
    /// Appends the next part, and makes it durable here.
    pub fn put(&self) -> Lsn {
        self.next.send(()).unwrap();
        self.durable.recv().unwrap()
    }
}

/// A test that fails while replay or the disk is held up ends all the same.
pub struct Opener(Arc<Tape>, Arc<TestLog>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.gate(None);
        self.0.toy.gate(None);
        self.1.stall(false);
    }
}

/// A standby that gives its log back when it ends.
pub struct Following(Option<Standby>, Arc<TestLog>);

impl Deref for Following {
    type Target = Standby;

    fn deref(&self) -> &Standby {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        *self.1.receiver.lock().unwrap() = self.0.take().map(Standby::into_receiver);
    }
}

pub struct StandbyNode {
    pub _opener: Opener,
    pub endpoint: Endpoint,
    pub standby: Following,
    pub log: Arc<TestLog>,
    pub tape: Arc<Tape>,
    pub terms: Terms,
}

pub const CAPACITY: u64 = 8192;

/// What every machine has.
pub const FABRICS: [FabricKind; 2] = [FabricKind::Tcp, FabricKind::Shm];

/// What this machine has: `verbs` too where an RDMA device is named for each side ("rxe1,rxe2").
pub fn fabrics() -> Vec<FabricKind> {
    let verbs = std::env::var_os("FRESHET_VERBS_DEVICES").map(|_| FabricKind::Verbs);
    FABRICS.into_iter().chain(verbs).collect()
}

/// How the side that writes (0), or the other (1), uses its fabric.
pub fn side(side: usize) -> FabricConfig {
    let devices = std::env::var("FRESHET_VERBS_DEVICES").unwrap_or_default();
    let device = devices.split(',').nth(side).map(|name| (name.to_owned(), 1, 1));
    FabricConfig { device, ..FabricConfig::default() }
}

/// A standby that is to start: with an empty log, and nobody to follow.
pub struct NewStandby {
    node: NodeId,
    upstream: Option<String>,
    config: StandbyConfig,
    log: Option<Arc<TestLog>>,
    terms: Terms,
    endpoint: Option<Endpoint>,
}

impl NewStandby {
    pub fn new(node: u64) -> Self {
        Self {
            node: NodeId(node),
            upstream: None,
            config: StandbyConfig::default(),
            log: None,
            terms: Terms::new(TermState::empty(), Arc::new(VolatileTerms)),
            endpoint: None,
        }
    }

    pub fn following(self, upstream: impl Into<String>) -> Self {
        self.upstream(Some(upstream.into()))
    }

    pub fn upstream(self, upstream: Option<String>) -> Self {
        Self { upstream, ..self }
    }

    pub fn config(self, config: StandbyConfig) -> Self {
        Self { config, ..self }
    }

    pub fn log(self, log: Arc<TestLog>) -> Self {
        Self { log: Some(log), ..self }
    }

    pub fn terms(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    pub fn endpoint(self, endpoint: Endpoint) -> Self {
        Self { endpoint: Some(endpoint), ..self }
    }

    pub fn start(self) -> StandbyNode {
        self.try_start().unwrap()
    }

    pub fn try_start(self) -> io::Result<StandbyNode> {
        let Self { node, upstream, config, log, terms, endpoint } = self;
        let (endpoint, log) =
            (endpoint.unwrap_or_else(|| open(node.0)), log.unwrap_or_else(|| TestLog::received(CAPACITY)));
        let back_off = (Duration::from_millis(1), Duration::from_millis(20));
        let (directory, newest) = (log.journal(), Arc::clone(&log.newest) as _);
        let saved_tails = Some(log.directory.path().to_owned());
        let regenerates = config.encoding != Encoding::Bytes || directory.exists();
        let journal = Some(JournalPlace { directory, newest });
        let follow = FollowConfig { back_off, ..config.follow };
        let config = StandbyConfig { follow, saved_tails, journal, ..config };
        let tape = Arc::new(Tape { regenerates, ..Tape::default() });
        let replayed = log.end();
        tape.state.lock().unwrap().upto = replayed.0;
        let address = endpoint.address().to_string();
        let who = FollowerId { node, credentials: credentials(node), address, upstream };
        let starting = Starting { replayed, global: Lsn::ZERO, floor: Lsn::ZERO };
        let target = Arc::clone(&tape) as Arc<dyn ReplayTarget>;
        let receiver = log.receiver.lock().unwrap().take().expect("no other standby has it");
        let standby = Standby::start(who, starting, config, (Arc::clone(&log.log), receiver), target, terms.clone())?;
        endpoint.set_service(Some(standby.service()));
        let standby = Following(Some(standby), Arc::clone(&log));
        Ok(StandbyNode { _opener: Opener(Arc::clone(&tape), Arc::clone(&log)), endpoint, standby, log, tape, terms })
    }
}

impl StandbyNode {
    pub fn empty(node: u64, upstream: &str) -> Self {
        NewStandby::new(node).following(upstream).start()
    }

    pub fn address(&self) -> String {
        self.endpoint.address().to_string()
    }

    #[track_caller]
    pub fn joined(&self) {
        self.standby.wait_joined(Instant::now() + PATIENCE).unwrap();
    }

    #[track_caller]
    pub fn shows(&self, to: Lsn) {
        self.standby
            .visible()
            .wait(to, Some(Instant::now() + PATIENCE))
            .unwrap_or_else(|error| panic!("{to} never became visible ({error}): {:#?}", self.standby.status()));
    }
}

/// The certificate of a node of [`CLUSTER`].
pub fn credentials(node: NodeId) -> Credentials {
    static FOUNDER: LazyLock<Credentials> = LazyLock::new(|| Credentials::found(CLUSTER, NodeId(0)).unwrap());
    let key = NewKey::generate().unwrap();
    let newcomer = Enrolment { public_key: key.public(), node: Some(node), part: Part::Node, secret: None };
    Credentials::enrolled(FOUNDER.enrol(&newcomer, true).unwrap(), &key).unwrap()
}

/// Where a node of [`CLUSTER`] listens.
pub fn open(node: u64) -> Endpoint {
    Endpoint::open(NodeId(node), credentials(NodeId(node)), "127.0.0.1:0").unwrap()
}

/// As the node that introduces itself.
pub fn call(address: &str, hello: &Hello, term: Term, patience: Duration) -> Result<(Reply, Connection), CallError> {
    crate::endpoint::call(&credentials(hello.node), address, hello, term, patience)
}

/// A connection with TLS to `node`, on which nothing was sent yet.
pub fn connected(node: u64, address: &str) -> Connection {
    crate::endpoint::connect(&credentials(NodeId(node)), address, PATIENCE).unwrap()
}
