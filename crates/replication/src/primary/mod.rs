//! The primary's side: ship, ack, commit.
//!
//! Threads: one `ship` and one `ack` per standby, one `watch` that lets time pass in the commit rule, one
//! `announce` that makes a new reign known to nodes which are not connected. All of them sleep unless there is something to do.

mod accept;
mod ack;
mod announce;
mod commit;
mod ship;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    thread::{self, JoinHandle},
    time::Duration,
};

use freshet_base::{
    ClusterId, NodeId, Stamp, Term,
    sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    Moment,
    commit_rule::{Event, Place, RuleConfig},
    flow::{Boundaries, FlowConfig},
    in_sync::Succession,
    term::TermHistory,
};
use freshet_fabric::{FabricConfig, cpu::Meter, limit::TokenBucket};

pub use self::commit::{CommitError, CommitStage};
use self::ship::Shipper;
use crate::{
    bell::Bell,
    clock::Clock,
    endpoint::Service,
    handshake::Host,
    log_access::LogSource,
    status::{ObserverStatus, PrimaryStatus, StandbyStatus},
    terms::Terms,
    wire::{self, Peer, Peers},
};

/// The parameters of a reign.
#[derive(Clone, Debug)]
pub struct PrimaryConfig {
    /// What a commit waits for.
    pub rule: RuleConfig,
    /// Sizes and times of shipping.
    pub flow: FlowConfig,
    /// How long a standby may be silent, or take nothing in, before its connection is given up.
    pub patience: Duration,
    /// The size of the log's partitions for parallel replay, in bytes.
    pub partition: u64,
    /// The largest block of the log, in bytes.
    pub largest_block: u64,
    /// How many ends of blocks are remembered for live shipping.
    pub boundaries: usize,
    /// Other nodes that may exist, beside those that connect.
    pub peers: Vec<String>,
    /// How the log is written into standbys' memory.
    pub fabric: PrimaryFabric,
}

/// How a primary writes into its standbys' memory. By which fabric, each standby says.
#[derive(Clone, Debug, Default)]
pub struct PrimaryFabric {
    /// How fabrics are used.
    pub config: FabricConfig,
    /// What goes to all standbys together keeps to this.
    pub limit: Option<Arc<TokenBucket>>,
    /// Batches are compressed (LZ4). They go through the standby's mailbox then, and its receiving thread puts them into place.
    pub compress: bool,
}

impl PrimaryConfig {
    /// The customary parameters.
    pub fn new(rule: RuleConfig) -> Self {
        Self {
            rule,
            flow: FlowConfig::default(),
            patience: Duration::from_secs(5),
            partition: 64 << 10,
            largest_block: 32 << 20,
            boundaries: 1 << 14,
            peers: Vec::new(),
            fabric: PrimaryFabric::default(),
        }
    }
}

/// So many batches of the group commit are remembered with their times.
const HANDED_OVER: usize = 1024;

/// Who reigns.
#[derive(Clone, Debug)]
pub struct Reigning {
    /// The cluster.
    pub cluster: ClusterId,
    /// This node.
    pub node: NodeId,
    /// Where other nodes reach it.
    pub address: String,
    /// Its term.
    pub term: Term,
    /// The end of the log when the reign began, or when the process started.
    pub start: Stamp,
    /// What the in-sync sets of this reign follow; `None` when they are not recorded. Under 2-safe nothing commits then before
    /// [`Primary::record_sets`] says how to.
    pub succession: Option<Succession>,
}

/// Puts an in-sync set, encoded, into the log, and says where its block ends.
type RecordSet = Box<dyn FnMut(&[u8]) -> Result<Stamp, String> + Send>;

/// Gives room in the log buffer back.
type Release = Box<dyn Fn(Stamp) + Send + Sync>;

pub(crate) struct Shared {
    config: PrimaryConfig,
    who: Reigning,
    history: TermHistory,
    terms: Terms,
    clock: Clock,
    source: Arc<dyn LogSource>,
    boundaries: Mutex<Boundaries>,
    /// The newest batches: where each ends, and when it was handed over.
    handed_over: Mutex<VecDeque<(Stamp, Moment)>>,
    commit: CommitStage,
    shippers: Mutex<BTreeMap<NodeId, Arc<Shipper>>>,
    /// Held while a connection comes or goes, so that the commit rule hears of it in the same order as `shippers`: a node that has
    /// come back must not be taken for gone because its old connection ends late.
    comings: Mutex<()>,
    losses: Mutex<BTreeMap<NodeId, String>>,
    peers: Mutex<Vec<Peer>>,
    peers_version: AtomicU64,
    announce: Bell,
    release: Mutex<Option<Release>>,
    record: Mutex<Option<RecordSet>>,
    stopping: AtomicBool,
    ship_cpu: Meter,
    ack_cpu: Meter,
    /// Of that, what compression took; and how many bytes it saved.
    pack_cpu: Meter,
    packed: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A reigning primary.
pub struct Primary {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Primary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Primary({} in term {})", self.shared.who.node, self.shared.who.term)
    }
}

impl Primary {
    /// Begins to reign: `terms` has entered the term already. Everything below `who.start` counts as committed and is readable from `source`.
    ///
    /// The group commit then calls [`Primary::batch_ready`] before, and [`Primary::durable_advanced`] after each flush, and the
    /// endpoint's service is set to [`Primary::service`].
    ///
    /// # Errors
    /// What the system says when a thread cannot be started.
    pub fn start(who: Reigning, config: PrimaryConfig, source: Arc<dyn LogSource>, terms: Terms) -> io::Result<Self> {
        let clock = Clock::start();
        let commit = CommitStage::new(config.rule, &who, clock);
        let mut peers: Vec<Peer> =
            config.peers.iter().map(|address| Peer { node: None, address: address.clone() }).collect();
        peers.retain(|peer| peer.address != who.address);
        peers.push(Peer { node: Some(who.node), address: who.address.clone() });
        let shared = Arc::new(Shared {
            boundaries: Mutex::new(Boundaries::new(who.start, config.boundaries)),
            handed_over: Mutex::default(),
            history: terms.get().history,
            config,
            who,
            terms,
            clock,
            source,
            commit,
            shippers: Mutex::default(),
            comings: Mutex::default(),
            losses: Mutex::default(),
            peers: Mutex::new(peers),
            peers_version: AtomicU64::new(1),
            announce: Bell::default(),
            release: Mutex::new(None),
            record: Mutex::new(None),
            stopping: AtomicBool::new(false),
            ship_cpu: Meter::default(),
            ack_cpu: Meter::default(),
            pack_cpu: Meter::default(),
            packed: AtomicU64::new(0),
            threads: Mutex::default(),
        });
        let primary = Self { shared };
        primary.shared.spawn("watch".into(), |shared| shared.watch())?;
        primary.shared.spawn("announce".into(), |shared| announce::run(&shared))?;
        Ok(primary)
    }

    /// A batch `[from, to)` is in the log buffer and about to be flushed; ships it meanwhile. Neither blocks nor copies the batch.
    /// `partition_ends` are ends of blocks in it, `transaction_ends` those at which no transaction goes on: at one of these
    /// `committed` will stand.
    ///
    /// # Panics
    /// When the batch does not follow the last one.
    pub fn batch_ready(&self, from: Stamp, to: Stamp, partition_ends: &[Stamp], transaction_ends: &[Stamp]) {
        self.shared.commit.enter_ends(transaction_ends);
        self.shared.boundaries().push(from, to, partition_ends);
        {
            let mut handed_over = self.shared.handed_over.lock().expect("no code panics under this mutex");
            if handed_over.len() == HANDED_OVER {
                handed_over.pop_front();
            }
            handed_over.push_back((to, self.shared.clock.now()));
        }
        let shippers: Vec<_> = self.shared.shippers().values().cloned().collect();
        for shipper in shippers {
            ship::batch_ready(&self.shared, &shipper, to.since(from));
        }
        self.shared.release_buffer(to);
    }

    /// The primary's own log is persistent up to `to`: applies the commit rule.
    pub fn durable_advanced(&self, to: Stamp) {
        self.shared.apply(Event::Durable(to));
    }

    /// `release(to)` is called whenever no standby that a commit waits for needs anything below `to` from the log buffer any more. For a log
    /// without a store, whose buffer then holds workers back rather than lose what a standby in good standing has yet to be sent.
    /// `release` must not call back into this primary.
    pub fn on_release(&self, release: impl Fn(Stamp) + Send + Sync + 'static) {
        *self.shared.release.lock().expect("no code panics under this mutex") = Some(Box::new(release));
    }

    /// From now on changes of the in-sync set are recorded by `record`, which puts a block with these bytes into the log and says where it ends. It is
    /// called by a thread of this primary's own, and may block.
    pub fn record_sets(&self, record: impl FnMut(&[u8]) -> Result<Stamp, String> + Send + 'static) {
        *self.shared.record.lock().expect("no code panics under this mutex") = Some(Box::new(record));
        self.shared.commit.look();
    }

    /// The commit rule in force: who waits for a commit asks here.
    pub fn commit(&self) -> &CommitStage {
        &self.shared.commit
    }

    /// Answers those who connect to this node's endpoint.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(accept::PrimaryService(Arc::clone(&self.shared)))
    }

    /// Ends this reign because another has begun: nothing is acknowledged any more.
    pub fn fence(&self, by: Term) {
        self.shared.fence(by);
    }

    /// Everyone whom this primary knows, itself included.
    pub fn peers(&self) -> Vec<Peer> {
        self.shared.peers.lock().expect("no code panics under this mutex").clone()
    }

    /// As things stand.
    pub fn status(&self) -> PrimaryStatus {
        self.shared.status()
    }

    /// Lets all connections and threads go. The commit rule remains and says no more.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn boundaries(&self) -> MutexGuard<'_, Boundaries> {
        self.boundaries.lock().expect("no code panics under this mutex except for a batch out of order")
    }

    fn shippers(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Shipper>>> {
        self.shippers.lock().expect("no code panics under this mutex")
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn spawn(self: &Arc<Self>, name: String, run: impl FnOnce(Arc<Self>) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(name).spawn(move || run(shared))?;
        let mut threads = self.threads.lock().expect("no code panics under this mutex");
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// What this primary says of itself to those who want its log.
    fn host(&self) -> Host {
        Host {
            cluster: self.who.cluster,
            node: self.who.node,
            term: self.who.term,
            history: self.history.clone(),
            end: self.boundaries().available(),
            // A standby gives away half its buffer at once (`StandbyStore::grant`).
            needed_capacity: 2 * self.config.largest_block,
            keep_alive_ms: u32::try_from(self.config.flow.keep_alive.as_millis()).unwrap_or(u32::MAX),
        }
    }

    /// When the batch was handed over in which the log goes on at `from`, if it is one of the newest.
    fn handed_over(&self, from: Stamp) -> Option<Moment> {
        let batches = self.handed_over.lock().expect("no code panics under this mutex");
        let first = batches.partition_point(|batch| batch.0 <= from);
        // Of the oldest it is not known where it began.
        batches.get(first).filter(|_| first > 0 || from == self.who.start).map(|batch| batch.1)
    }

    /// Feeds the commit rule and carries out what it decides.
    fn apply(&self, event: Event) {
        let outcome = self.commit.apply(event);
        if outcome.advanced {
            let shippers: Vec<_> = self.shippers().values().cloned().collect();
            for shipper in shippers {
                ship::committed_advanced(self, &shipper);
            }
        }
        if outcome.changed {
            let places = self.commit.places();
            for (node, shipper) in self.shippers().iter() {
                let in_sync = places.get(node).is_some_and(|member| member.place == Place::InSync);
                shipper.in_sync.store(in_sync, Ordering::SeqCst);
            }
            let available = self.boundaries().available();
            self.release_buffer(available);
        }
    }

    fn fence(&self, by: Term) {
        if by <= self.who.term {
            return;
        }
        self.apply(Event::Fenced { by });
        for shipper in self.shippers().values() {
            shipper.end();
        }
    }

    /// Says what of the buffer nobody needs; `available` is the end of what was handed over.
    fn release_buffer(&self, available: Stamp) {
        let release = self.release.lock().expect("no code panics under this mutex");
        if let Some(release) = release.as_ref() {
            let shippers = self.shippers();
            let counted = shippers.values().filter(|shipper| shipper.in_sync.load(Ordering::SeqCst));
            release(counted.map(|shipper| shipper.flow().shipped()).fold(available, Stamp::min));
        }
    }

    /// Lets time pass in the commit rule.
    fn watch(&self) {
        while !self.stopping() {
            self.commit.sleep_until_deadline();
            self.apply(Event::Tick);
            if let Err(why) = self.record_set() {
                // The log, or the control file, takes nothing more; commits wait for a record that will not come.
                eprintln!("the in-sync set of term {} cannot be recorded: {why}", self.who.term);
                return;
            }
        }
    }

    /// Records the in-sync set that the rule asks for: first in the own terms, then in the log.
    fn record_set(&self) -> Result<(), String> {
        while let Some(set) = self.commit.set_to_write() {
            let mut record = self.record.lock().expect("no code panics under this mutex");
            let Some(record) = record.as_mut().filter(|_| !self.stopping()) else { break };
            let bytes = wire::encode(&set);
            let number = set.number;
            self.terms.note_set(set).map_err(|error| error.to_string())?;
            let end = record(&bytes)?;
            self.apply(Event::Written { number, end });
        }
        if self.commit.set_took_effect() {
            self.terms.note_reigned(self.who.term).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// A connection ended; `why` is kept for `status`.
    fn lost(&self, shipper: &Arc<Shipper>, why: String) {
        // Before the other thread is ended: its end has no reason of its own.
        if let Some(why) = shipper.first_reason(why) {
            self.losses.lock().expect("no code panics under this mutex").insert(shipper.node, why);
        }
        shipper.end();
        let _order = self.comings.lock().expect("no code panics under this mutex");
        let is_last = {
            let mut shippers = self.shippers();
            // A newer connection may have taken its place.
            let is_last = shippers.get(&shipper.node).is_some_and(|current| Arc::ptr_eq(current, shipper));
            if is_last {
                shippers.remove(&shipper.node);
            }
            is_last
        };
        if is_last && shipper.member {
            self.apply(Event::Left { standby: shipper.node });
            self.announce.ring();
        }
    }

    /// A connection was made; it takes the place of an earlier one of the same node. The commit rule is told with `joined` that a member has come.
    fn came(&self, shipper: &Arc<Shipper>, joined: Event) {
        let _order = self.comings.lock().expect("no code panics under this mutex");
        let before = self.shippers().insert(shipper.node, Arc::clone(shipper));
        if let Some(before) = before {
            // The old one is dead, whether it knows or not.
            before.end();
            if before.member {
                self.apply(Event::Left { standby: shipper.node });
            }
        }
        if shipper.member {
            self.apply(joined);
        }
    }

    fn met(&self, node: NodeId, address: &str) {
        if address.is_empty() {
            return;
        }
        let mut peers = self.peers.lock().expect("no code panics under this mutex");
        let peer = Peer { node: Some(node), address: address.to_owned() };
        if !peers.contains(&peer) {
            peers.retain(|known| known.node != Some(node) && known.address != address);
            peers.push(peer);
            self.peers_version.fetch_add(1, Ordering::SeqCst);
            drop(peers);
            // Whoever takes over must know of everybody, and no batch may come for long.
            self.shippers().values().for_each(|shipper| shipper.bell.ring());
        }
    }

    fn peers_message(&self) -> Peers {
        Peers {
            peers: self.peers.lock().expect("no code panics under this mutex").clone(),
            standbys: self.config.rule.standbys,
            safety: self.config.rule.safety,
        }
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.commit.stop();
        self.announce.ring();
        let shippers: Vec<_> = self.shippers().values().cloned().collect();
        for shipper in shippers {
            shipper.end();
        }
        let threads = std::mem::take(&mut *self.threads.lock().expect("no code panics under this mutex"));
        for thread in threads {
            // A panic there was reported already. The last owner may be one of these threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }

    fn status(&self) -> PrimaryStatus {
        let (standing, durable, members) = self.commit.reading();
        let committed = self.commit.committed().get();
        let shippers = self.shippers().clone();
        let losses = self.losses.lock().expect("no code panics under this mutex").clone();
        let peers = self.peers.lock().expect("no code panics under this mutex").clone();
        let boundaries = self.boundaries();
        let available = boundaries.available();
        let observers = shippers.values().filter(|shipper| !shipper.member).map(|shipper| {
            let (shipped, acked) = {
                let flow = shipper.flow();
                (flow.shipped(), flow.persisted())
            };
            let (node, sent_bytes) = (shipper.node, shipper.sent_bytes());
            ObserverStatus { node, shipped, acked, ack_lag_bytes: available.since(acked.min(available)), sent_bytes }
        });
        let observers = observers.collect();
        let standbys = members.into_iter().map(|(node, member)| {
            let shipper = shippers.get(&node);
            let flow = shipper.map(|shipper| shipper.flow().clone());
            let shipped = flow.as_ref().map_or(member.acked, |flow| flow.shipped());
            let visible = shipper.map_or(Stamp::ZERO, |shipper| Stamp(shipper.visible.load(Ordering::Relaxed)));
            StandbyStatus {
                node,
                address: peers.iter().find(|p| p.node == Some(node)).map_or(String::new(), |p| p.address.clone()),
                connected: member.connected,
                place: member.place,
                in_sync: member.place == Place::InSync && member.connected,
                mode: flow.as_ref().map(|flow| flow.mode(&boundaries)),
                shipped,
                acked: member.acked,
                replayed: shipper.map_or(Stamp::ZERO, |shipper| Stamp(shipper.replayed.load(Ordering::Relaxed))),
                visible,
                ship_lag_bytes: available.since(shipped),
                ack_lag_bytes: available.since(member.acked),
                visible_lag_bytes: committed.since(visible),
                sent_bytes: shipper.map_or(0, |shipper| shipper.sent_bytes()),
                last_loss: losses.get(&node).cloned(),
            }
        });
        PrimaryStatus {
            node: self.who.node,
            term: self.who.term,
            safety: self.config.rule.safety,
            standing,
            available,
            durable,
            committed,
            standbys: standbys.collect(),
            observers,
            ship_cpu: self.ship_cpu.total(),
            ack_cpu: self.ack_cpu.total(),
            pack_cpu: self.pack_cpu.total(),
            packed_bytes: self.packed.load(Ordering::Relaxed),
        }
    }
}
