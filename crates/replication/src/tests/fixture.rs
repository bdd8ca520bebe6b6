use std::{
    path::PathBuf,
    sync::LazyLock,
    time::{Duration, Instant},
};

use freshet_base::{
    ClusterId, NodeId, Safety, Stamp, Term,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    words,
};
use freshet_cluster::{
    commit_rule::RuleConfig,
    in_sync::{InSyncSet, Succession},
    term::{TermHistory, TermState},
};
use freshet_fabric::{
    FabricKind,
    memory::{Region, Registered, SharedMemory},
    tcp::Connection,
};
use freshet_log::BlockHeader;
use freshet_log::{Batch, Sink};
use freshet_membership::{Credentials, Enrolment, NewKey};

use crate::{
    endpoint::{CallError, Endpoint},
    log_access::{AcceptError, LogReadError, LogSource, OnMembers, StandbyStore, StoreError},
    primary::{Primary, PrimaryConfig, PrimaryFabric, Reigning},
    standby::{ReplayError, ReplayTarget, Standby, StandbyConfig, StandbyFabric, Starting},
    terms::{Terms, VolatileTerms},
    wire::{self, Hello, Reply},
};

pub const CLUSTER: ClusterId = ClusterId(0xC0FFEE);
/// Longer than anything takes; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Blocks of these lengths, from `at` on, and where they end.
pub fn blocks(at: Stamp, lengths: &[usize]) -> (Vec<u8>, Vec<Stamp>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for length in lengths {
        let stamp = at.plus(bytes.len() as u64);
        let start = bytes.len();
        bytes.resize(start + length, (stamp.0 / 8 % 251) as u8);
        bytes[start..start + 4].copy_from_slice(&(*length as u32).to_le_bytes());
        bytes[start + 8..start + 16].copy_from_slice(&stamp.0.to_le_bytes());
        (bytes[start + 30], bytes[start + 31]) = (1, freshet_log::block::FORMAT);
        ends.push(stamp.plus(*length as u64));
    }
    (bytes, ends)
}

/// Blocks until `done`, by asking again and again; panics when it takes too long.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "this never happened: {what}");
        std::thread::yield_now();
    }
}

/// A log in memory, for both sides.
#[derive(Default)]
pub struct MemoryLog {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// Where a primary writes; another one for each.
    ring: Option<Arc<SharedMemory>>,
    granted: u64,
    received: u64,
    persisted: u64,
    replayed: u64,
    capacity: u64,
    oldest: u64,
    /// Nothing beyond this is persisted.
    gate: Option<u64>,
    /// The receiving thread waits before it takes anything.
    held: bool,
    highest_claim: u64,
    saved: Vec<(u64, Vec<u8>)>,
    /// Replay persists, and these were the shares so far.
    shares: Option<Vec<(u64, u64)>>,
    on_members: Option<OnMembers>,
}

impl MemoryLog {
    pub fn with_capacity(capacity: u64) -> Arc<Self> {
        let log = Self::default();
        log.lock().capacity = capacity;
        Arc::new(log)
    }

    /// One that is persisted by those who replay.
    pub fn persisted_upon_replay(capacity: u64) -> Arc<Self> {
        let log = Self::with_capacity(capacity);
        log.lock().shares = Some(Vec::new());
        log
    }

    /// As if a block had arrived that records a set.
    pub fn record(&self, set: &InSyncSet) {
        // Not under the mutex: the standby asks its log.
        let note = self.lock().on_members.take().expect("a standby wants to hear");
        note(&wire::encode(set));
        self.lock().on_members = Some(note);
    }

    /// What was persisted, share by share.
    pub fn shares(&self) -> Vec<(u64, u64)> {
        self.lock().shares.clone().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn bytes(&self) -> Vec<u8> {
        let state = self.lock();
        state.bytes[..state.received as usize].to_vec()
    }

    /// Nothing beyond `gate` becomes persistent from now on.
    pub fn gate(&self, gate: Option<u64>) {
        let mut state = self.lock();
        state.gate = gate;
        state.persist();
        self.changed.notify_all();
    }

    /// Whether the receiving thread has to wait before it takes anything.
    pub fn hold(&self, held: bool) {
        self.lock().held = held;
        self.changed.notify_all();
    }

    pub fn drop_below(&self, oldest: u64) {
        self.lock().oldest = oldest;
    }

    pub fn saved(&self) -> Vec<(u64, Vec<u8>)> {
        self.lock().saved.clone()
    }

    /// As a primary's log.
    fn append(&self, bytes: &[u8]) {
        let mut state = self.lock();
        state.bytes.extend_from_slice(bytes);
        state.received = state.bytes.len() as u64;
        state.persisted = state.received;
    }
}

impl State {
    fn persist(&mut self) {
        if self.shares.is_some() {
            return;
        }
        self.persisted = self.persisted.max(self.received.min(self.gate.unwrap_or(u64::MAX)));
    }

    fn free(&self) -> u64 {
        self.persisted.min(self.replayed) + self.capacity
    }
}

impl LogSource for MemoryLog {
    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), LogReadError> {
        let state = self.lock();
        if at.0 < state.oldest {
            return Err(LogReadError::Gone { at, oldest: Stamp(state.oldest) });
        }
        let range = state.bytes.get(at.0 as usize..at.0 as usize + into.len());
        into.copy_from_slice(range.expect("only what was handed over is read"));
        Ok(())
    }
}

impl StandbyStore for MemoryLog {
    fn revoke(&self) -> Result<(), StoreError> {
        // Nothing from there is accepted any more.
        self.lock().ring = None;
        Ok(())
    }

    fn region(&self) -> Result<Region, StoreError> {
        let mut state = self.lock();
        let ring = Arc::new(SharedMemory::new(state.capacity as usize, false).unwrap());
        state.ring = Some(Arc::clone(&ring));
        Ok(ring)
    }

    fn grant(&self) -> Stamp {
        let mut state = self.lock();
        state.granted = state.granted.max(state.free());
        Stamp(state.free())
    }

    fn accept(&self, to: Stamp) -> Result<bool, AcceptError> {
        let mut state = self.lock();
        while state.held {
            state = self.changed.wait(state).unwrap();
        }
        assert!(to.0 <= state.granted, "the ring was overrun: {to} beyond {}", state.granted);
        let from = state.received;
        let mut bytes = vec![0; (to.0 - from) as usize];
        let ring = Arc::clone(state.ring.as_ref().expect("a primary has one"));
        let at = from % state.capacity;
        let (head, tail) = bytes.split_at_mut(((state.capacity - at) as usize).min((to.0 - from) as usize));
        words::load(ring.words(), at as usize, head);
        words::load(ring.words(), 0, tail);
        let mut checked = 0;
        while checked < bytes.len() {
            let damaged = || AcceptError::Damaged(format!("no block of this test at {}", from + checked as u64));
            let header = BlockHeader::peek(&bytes[checked..]).map_err(|_| damaged())?;
            let end = checked + header.length as usize;
            let (mut good, _) = blocks(Stamp(from + checked as u64), &[header.length as usize]);
            good[30] = bytes[checked + 30];
            if bytes.get(checked..end) != Some(&good[..]) {
                return Err(damaged());
            }
            checked = end;
        }
        state.bytes.truncate(from as usize);
        state.bytes.extend_from_slice(&bytes);
        state.received = to.0;
        state.persist();
        self.changed.notify_all();
        Ok(true)
    }

    fn received(&self) -> Stamp {
        Stamp(self.lock().received)
    }

    fn persisted(&self) -> Stamp {
        Stamp(self.lock().persisted)
    }

    fn capacity(&self) -> u64 {
        self.lock().capacity
    }

    fn free_until(&self) -> Stamp {
        Stamp(self.lock().free())
    }

    fn write(&self, at: Stamp, bytes: &[u8]) -> Result<(), StoreError> {
        let mut state = self.lock();
        let end = at.0 + bytes.len() as u64;
        assert!(end <= state.free(), "the ring was overrun: {end} beyond {}", state.free());
        if let Some(ring) = state.ring.clone() {
            for (offset, byte) in bytes.iter().enumerate() {
                words::store(ring.words(), ((at.0 + offset as u64) % state.capacity) as usize, &[*byte]);
            }
        }
        state.highest_claim = state.highest_claim.max(end);
        if state.bytes.len() < end as usize {
            state.bytes.resize(end as usize, 0);
        }
        state.bytes[at.0 as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn transaction_end(&self, at: Stamp) -> Stamp {
        let state = self.lock();
        let (mut here, mut whole) = (0, 0);
        while let Ok(header) = BlockHeader::peek(&state.bytes[here as usize..state.received as usize]) {
            here += u64::from(header.length);
            if here > at.0 {
                break;
            }
            if !header.continued {
                whole = here;
            }
        }
        Stamp(whole)
    }

    fn mark_received(&self, to: Stamp) {
        let mut state = self.lock();
        state.received = to.0;
        state.persist();
        self.changed.notify_all();
    }

    fn on_members(&self, note: OnMembers) {
        self.lock().on_members = Some(note);
    }

    fn mark_replayed(&self, to: Stamp) {
        self.lock().replayed = to.0;
    }

    fn persists_upon_replay(&self) -> bool {
        self.lock().shares.is_some()
    }

    fn persist_share(&self, from: Stamp, to: Stamp) {
        let mut state = self.lock();
        assert!(to.0 <= state.received, "only what was received is persisted");
        state.shares.as_mut().expect("replay persists").push((from.0, to.0));
    }

    fn note_persisted(&self, to: Stamp) -> Result<(), StoreError> {
        let mut state = self.lock();
        let reached = state.shares.iter().flatten().map(|share| share.1).max();
        assert!(reached >= Some(to.0), "{to} is said to be persistent, the shares end at {reached:?}");
        state.persisted = state.persisted.max(to.0);
        self.changed.notify_all();
        Ok(())
    }

    fn wait_persisted(&self, beyond: Stamp, patience: Duration) -> Result<Stamp, StoreError> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        while state.persisted <= beyond.0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
        Ok(Stamp(state.persisted))
    }

    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), LogReadError> {
        LogSource::read(self, at, into)
    }

    fn save_tail(&self, from: Stamp) -> Result<Option<PathBuf>, StoreError> {
        let mut state = self.lock();
        let tail = state.bytes[from.0 as usize..state.received as usize].to_vec();
        state.saved.push((from.0, tail));
        Ok(Some(PathBuf::from(format!("tail-{from}"))))
    }

    fn cut(&self, at: Stamp) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.received = state.received.min(at.0);
        state.persisted = state.persisted.min(at.0);
        state.replayed = state.replayed.min(at.0);
        let end = state.received as usize;
        state.bytes.truncate(end);
        Ok(())
    }
}

/// Checks that replay gets the log whole and in order, and can be held up.
#[derive(Default)]
pub struct Tape {
    state: Mutex<TapeState>,
    changed: Condvar,
}

#[derive(Default)]
struct TapeState {
    upto: u64,
    gate: Option<u64>,
    cuts: Vec<u64>,
    calls: Vec<(u64, Vec<u64>)>,
}

impl Tape {
    pub fn gate(&self, gate: Option<u64>) {
        self.state.lock().unwrap().gate = gate;
        self.changed.notify_all();
    }

    pub fn cuts(&self) -> Vec<u64> {
        self.state.lock().unwrap().cuts.clone()
    }

    pub fn replayed(&self) -> Stamp {
        Stamp(self.state.lock().unwrap().upto)
    }

    pub fn calls(&self) -> Vec<(u64, Vec<u64>)> {
        self.state.lock().unwrap().calls.clone()
    }
}

impl ReplayTarget for Tape {
    fn replay(&self, from: Stamp, to: Stamp, partition_ends: &[Stamp]) -> Result<(), ReplayError> {
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

    fn cut(&self, at: Stamp) -> Result<(), ReplayError> {
        let mut state = self.state.lock().unwrap();
        state.upto = state.upto.min(at.0);
        state.cuts.push(at.0);
        Ok(())
    }
}

pub struct PrimaryNode {
    pub endpoint: Endpoint,
    pub primary: Primary,
    pub log: Arc<MemoryLog>,
    pub terms: Terms,
}

pub fn rule(safety: Safety, standbys: u32) -> RuleConfig {
    // Whatever is not about time-outs must not depend on them.
    RuleConfig { standby_timeout: PATIENCE * 2, ..RuleConfig::new(safety, standbys) }
}

pub fn config(rule: RuleConfig) -> PrimaryConfig {
    // Standbys may ask for shared memory as well.
    let fabric = PrimaryFabric { kind: FabricKind::Shm, ..PrimaryFabric::default() };
    PrimaryConfig { partition: 512, largest_block: 1024, fabric, ..PrimaryConfig::new(rule) }
}

impl PrimaryNode {
    /// A primary in its first term.
    pub fn first(config: PrimaryConfig) -> Self {
        let endpoint = open(1);
        let terms = Terms::new(TermState::of(CLUSTER, TermHistory::first(Term(1), NodeId(1))), Arc::new(VolatileTerms));
        Self::reign(endpoint, NodeId(1), config, Arc::new(MemoryLog::default()), terms)
    }

    pub fn reign(endpoint: Endpoint, node: NodeId, config: PrimaryConfig, log: Arc<MemoryLog>, terms: Terms) -> Self {
        Self::succeed(endpoint, node, config, log, terms, Stamp::ZERO)
    }

    /// Of the log, what lies below `committed` is known to be committed.
    pub fn succeed(
        endpoint: Endpoint,
        node: NodeId,
        config: PrimaryConfig,
        log: Arc<MemoryLog>,
        terms: Terms,
        committed: Stamp,
    ) -> Self {
        Self::start(endpoint, node, config, log, terms, (committed, None))
    }

    /// The same, and its in-sync sets follow others.
    pub fn start(
        endpoint: Endpoint,
        node: NodeId,
        config: PrimaryConfig,
        log: Arc<MemoryLog>,
        terms: Terms,
        (committed, succession): (Stamp, Option<Succession>),
    ) -> Self {
        let who = Reigning {
            cluster: CLUSTER,
            node,
            credentials: credentials(node),
            address: endpoint.address().to_string(),
            term: terms.get().history.last_term(),
            start: Stamp(log.lock().received),
            committed,
            succession,
        };
        let primary = Primary::start(who, config, Arc::clone(&log) as Arc<dyn LogSource>, terms.clone()).unwrap();
        endpoint.set_service(Some(primary.service()));
        Self { endpoint, primary, log, terms }
    }

    pub fn address(&self) -> String {
        self.endpoint.address().to_string()
    }

    pub fn end(&self) -> Stamp {
        StandbyStore::received(&*self.log)
    }

    /// Appends blocks of these lengths as one batch, not yet durable here.
    pub fn ship(&self, lengths: &[usize]) -> Stamp {
        self.ship_blocks(lengths, None)
    }

    /// Appends a part of a long transaction as a batch, and makes it durable here.
    pub fn write_part(&self, lengths: &[usize], is_last: bool) -> Stamp {
        let to = self.ship_blocks(lengths, Some(is_last));
        self.primary.durable(to);
        to
    }

    fn ship_blocks(&self, lengths: &[usize], part: Option<bool>) -> Stamp {
        let from = self.end();
        let (mut bytes, ends) = blocks(from, lengths);
        let to = *ends.last().unwrap();
        if let Some(is_last) = part {
            let last = ends.len() - 1;
            let starts = std::iter::once(from).chain(ends.iter().copied());
            for (number, at) in starts.take(ends.len()).enumerate() {
                let continued = !(is_last && number == last);
                bytes[at.since(from) as usize + 30] |= if continued { 1 << 4 } else { 0 };
            }
        }
        self.log.append(&bytes);
        let partition_ends: Vec<_> = ends.iter().copied().filter(|end| end.0 % 3 == 0).collect();
        let transaction_ends = match part {
            None => ends.iter().copied().filter(|end| end.0 % 5 == 0 || *end == to).collect(),
            Some(true) => vec![to],
            Some(false) => Vec::new(),
        };
        self.primary.batch(&Batch { from, to, partition_ends: &partition_ends, transaction_ends: &transaction_ends });
        to
    }

    /// Appends a batch and makes it durable here.
    pub fn write(&self, lengths: &[usize]) -> Stamp {
        let to = self.ship(lengths);
        self.primary.durable(to);
        to
    }

    #[track_caller]
    pub fn commits(&self, to: Stamp) {
        self.primary
            .commit()
            .wait(to, Some(Instant::now() + PATIENCE))
            .unwrap_or_else(|error| panic!("{to} was never committed ({error}): {:#?}", self.primary.status()));
    }
}

/// A test that fails while replay is held up ends all the same.
pub struct Opener(Arc<Tape>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.gate(None);
    }
}

pub struct StandbyNode {
    pub _opener: Opener,
    pub endpoint: Endpoint,
    pub standby: Standby,
    pub log: Arc<MemoryLog>,
    pub tape: Arc<Tape>,
    pub terms: Terms,
}

pub const CAPACITY: u64 = 8192;

/// What every machine has.
pub const FABRICS: [FabricKind; 2] = [FabricKind::Tcp, FabricKind::Shm];

/// A standby that is reached by this fabric.
pub fn over(kind: FabricKind) -> StandbyConfig {
    StandbyConfig { fabric: StandbyFabric { kind, ..StandbyFabric::default() }, ..StandbyConfig::default() }
}

impl StandbyNode {
    pub fn empty(node: u64, leader: &str) -> Self {
        Self::with(node, Some(leader.to_owned()), StandbyConfig::default(), MemoryLog::with_capacity(CAPACITY))
    }

    pub fn with(node: u64, leader: Option<String>, config: StandbyConfig, log: Arc<MemoryLog>) -> Self {
        let terms = Terms::new(TermState::empty(), Arc::new(VolatileTerms));
        Self::resume(NodeId(node), leader, config, log, terms)
    }

    pub fn resume(
        node: NodeId,
        leader: Option<String>,
        config: StandbyConfig,
        log: Arc<MemoryLog>,
        terms: Terms,
    ) -> Self {
        Self::at(open(node.0), node, leader, config, log, terms)
    }

    pub fn at(
        endpoint: Endpoint,
        node: NodeId,
        leader: Option<String>,
        config: StandbyConfig,
        log: Arc<MemoryLog>,
        terms: Terms,
    ) -> Self {
        let config = StandbyConfig { back_off: (Duration::from_millis(1), Duration::from_millis(20)), ..config };
        let tape = Arc::new(Tape::default());
        let replayed = StandbyStore::received(&*log);
        tape.state.lock().unwrap().upto = replayed.0;
        let starting = Starting {
            node,
            credentials: credentials(node),
            address: endpoint.address().to_string(),
            leader,
            replayed,
            global: Stamp::ZERO,
            floor: Stamp::ZERO,
        };
        let store = Arc::clone(&log) as Arc<dyn StandbyStore>;
        let target = Arc::clone(&tape) as Arc<dyn ReplayTarget>;
        let standby = Standby::start(starting, config, store, target, terms.clone()).unwrap();
        endpoint.set_service(Some(standby.service()));
        Self { _opener: Opener(Arc::clone(&tape)), endpoint, standby, log, tape, terms }
    }

    pub fn address(&self) -> String {
        self.endpoint.address().to_string()
    }

    #[track_caller]
    pub fn joined(&self) {
        self.standby.wait_joined(Instant::now() + PATIENCE).unwrap();
    }

    #[track_caller]
    pub fn shows(&self, to: Stamp) {
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
    let newcomer = Enrolment { public_key: key.public(), node: Some(node), secret: None };
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
