//! Feed: what a primary does for its standbys, and a relay for those below it: lets them join,
//! ships the log to them, and hears what they hold.
//!
//! [`Host`] decides; here are the connections and the threads, one `ship` and one `ack` per
//! standby. Who feeds is a [`Feeder`]: it has the log, and hears what becomes of its standbys;
//! [`Feeds`] is what all of them need.

mod ack;
mod batches;
mod config;
mod join;
mod mirror;
mod round_trips;
mod ship;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    thread::{self, JoinHandle},
    time::Duration,
};

use freshet_base::{
    Lsn, NodeId, Term,
    sync::{Arc, AtomicU64, AtomicUsize, Mutex, MutexGuard},
    wait::WaitList,
};
use freshet_cluster::{
    Moment,
    commit_rule::{Event, Member, Place},
    handshake::Sender,
    host::{FeedId, Host, ReplicaState},
    recording::{Recorded, Recorder},
    wanted::Shows,
};
use freshet_fabric::cpu::Meter;
use freshet_log::{Noting, ReadError};

use self::batches::Batches;
pub use self::config::{FeedConfig, FeedFabric};
pub(crate) use self::{
    join::{check_kept, join, note_refused, report_refused},
    ship::{PACKED_FORM, PLAIN_FORM, Shipper, batch_ready, committed},
};
use crate::{
    clock::Clock,
    maintenance::Maintained,
    status::{AheadStatus, MOST_AHEAD},
    terms::Terms,
    wire::Peers,
};

/// Whoever has the log and ships it on.
pub(crate) trait Feeder: Send + Sync + Sized + 'static {
    /// Its standbys.
    fn feeds(&self) -> &Feeds;

    /// Fills `into` with the log from `at` on.
    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), ReadError>;

    /// Has the log say of updates where rows differ, as long as the value lives. None where the log
    /// is as another node has made it.
    fn note_changes(&self) -> Option<Noting>;

    /// A member joined, acknowledged, or left.
    fn apply(&self, event: Event);

    /// A standby knows of this later term.
    fn fenced(&self, by: Term);

    /// A member is gone.
    fn missed(&self);

    /// Of a primary with leases: since when another node can lead, if one can.
    fn lease_over(&self) -> Option<Moment> {
        None
    }

    /// A node can be reached there.
    fn met(&self, node: NodeId, address: &str, serves: bool);

    /// What goes to everyone who is fed.
    fn peers_message(&self) -> Peers;

    /// Another such message is to be sent.
    fn news(&self);

    /// A member comes from `address`: sees to it that it can be counted.
    fn make_place(&self, address: &str, replica: &ReplicaState);
}

/// The standbys of one feeder, during one term.
pub(crate) struct Feeds {
    pub config: FeedConfig,
    pub term: Term,
    pub clock: Clock,
    /// Since when it feeds.
    began: Moment,
    /// Where it is recorded what happens to mirrors.
    pub recorder: Recorder,
    /// They say who belongs to the cluster.
    terms: Terms,
    /// What the node knows of maintenance.
    pub maintained: Arc<Maintained>,
    state: Mutex<State>,
    /// Held while a connection comes or goes, so that the rule hears of it in the same order as
    /// the host.
    comings: Mutex<()>,
    /// Counts connections.
    ids: AtomicUsize,
    /// Standbys have acknowledged more, have come, or are lost.
    pub changes: WaitList,
    /// How many commits wait until standbys show them.
    pub visible_wanted: AtomicUsize,
    /// Of ship threads, and of those that have written batches in their place.
    pub ship_cpu: Meter,
    pub prompt_cpu: Meter,
    pub ack_cpu: Meter,
    /// Of shipping, what compression took; and how many bytes it saved.
    pub pack_cpu: Meter,
    pub packed: AtomicU64,
    /// What mirrors get.
    batches: Arc<Batches>,
    /// Batches sent as they came, and how many of them by the group commit's own thread.
    pub live: AtomicU64,
    pub prompt: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// How often two processes with one id are reported.
const TWINS: Duration = Duration::from_secs(60);

/// What all threads that feed share. No log and no connection is waited for under its mutex.
pub(crate) struct State {
    pub host: Recorded<Host>,
    shippers: BTreeMap<FeedId, Arc<Shipper>>,
    /// Where those were reached who came, also if another node is there by now.
    addresses: BTreeMap<NodeId, String>,
    /// Why their last connections ended, and when.
    losses: BTreeMap<NodeId, (String, Moment)>,
    /// What they have said of themselves when they came last.
    introduced: BTreeMap<NodeId, Introduced>,
    /// When it was last reported that two processes may show the same id.
    twins: BTreeMap<NodeId, Moment>,
    /// Those that are not fed, since they hold more than this log has.
    ahead: BTreeMap<NodeId, AheadStatus>,
    /// Where the log begins that nodes need on which no commit counts, whose connections have
    /// ended, and when that was: they come again, since they are being filled.
    held: BTreeMap<NodeId, (Lsn, Moment)>,
}

/// What a node says of itself when it comes.
#[derive(Clone, Debug)]
struct Introduced {
    version: String,
    protocol: Option<u16>,
    relay: bool,
    at: Moment,
}

/// The log is held for so long for a node that is being filled, when its connection has ended.
const HOLD: Duration = Duration::from_secs(600);
/// It is held for this number of nodes at most.
const MOST_HELD: usize = 16;
/// Why the connection of a node ends that does not belong to the cluster any more.
pub(crate) const REMOVED: &str = "an operator has removed it from the cluster";

impl State {
    /// A newer connection has taken the place of one of this node, which has come from another
    /// address than before, if any is given. Two processes with copies of one directory replace
    /// each other many times a second.
    fn replaced(&mut self, node: NodeId, moved: Option<&str>, now: Moment) {
        let Some(address) = moved else {
            self.losses.insert(node, ("a newer connection of the same node took its place".into(), now));
            return;
        };
        let why = format!(
            "a process at {address} with the same id took its place: if both are there, one runs with a copy of the \
             other's directory; stop it, and start it with an empty one"
        );
        if self.twins.get(&node).is_none_or(|last| now.since(*last) >= TWINS) {
            tracing::warn!(%node, "{why}");
            self.twins.insert(node, now);
        }
        self.losses.insert(node, (why, now));
    }

    /// Everyone who is connected.
    fn all(&self) -> Vec<Arc<Shipper>> {
        self.shippers.values().cloned().collect()
    }

    /// Up to where readers of a node see its state; none if that is a mirror, which shows nothing.
    fn visible(&self, node: NodeId) -> Option<Lsn> {
        let Some((id, feed)) = self.host.feed_of(node) else { return Some(Lsn::ZERO) };
        let is_mirror = self.shippers.get(&id).is_some_and(|shipper| shipper.mirror.is_some());
        (!is_mirror).then_some(feed.visible)
    }

    /// The connection to a node ends: holds the log that it needs, if it is being filled.
    fn hold(&mut self, shipper: &Shipper, now: Moment) {
        let feed = self.host.feed_of(shipper.node).filter(|(id, feed)| *id == shipper.id && !feed.member);
        let Some((_, feed)) = feed else { return };
        let from = feed.acked().min(feed.shipped());
        if from > Lsn::ZERO && (self.held.len() < MOST_HELD || self.held.contains_key(&shipper.node)) {
            self.held.insert(shipper.node, (from, now));
        }
    }

    /// A node is refused, since it holds more than this log has. Says whether that is new.
    fn holds_more(&mut self, ahead: AheadStatus) -> bool {
        let has_room = self.ahead.len() < MOST_AHEAD || self.ahead.contains_key(&ahead.node);
        let is_new = self.ahead.get(&ahead.node) != Some(&ahead);
        if has_room {
            self.ahead.insert(ahead.node, ahead);
        }
        is_new
    }

    /// A node is fed, and so holds no more than this log has; nor does one that is not there any
    /// more, since this one has its address. Says whether there was one.
    fn holds_no_more(&mut self, node: NodeId, address: &str) -> bool {
        let before = self.ahead.len();
        self.ahead.retain(|other, ahead| *other != node && (address.is_empty() || ahead.address != address));
        self.ahead.len() < before
    }
}

impl Feeds {
    /// Nobody yet, of the log that ends where `sender` says.
    pub fn new(config: FeedConfig, sender: Sender, clock: Clock, terms: &Terms) -> Self {
        let config = config.of_link();
        Self {
            term: sender.term,
            state: Mutex::new(State {
                host: Recorded::new(Host::new(sender, config.flow, config.boundaries), terms.recorder()),
                shippers: BTreeMap::new(),
                addresses: BTreeMap::new(),
                losses: BTreeMap::new(),
                introduced: BTreeMap::new(),
                twins: BTreeMap::new(),
                ahead: BTreeMap::new(),
                held: BTreeMap::new(),
            }),
            config,
            clock,
            began: clock.now(),
            recorder: terms.recorder().clone(),
            terms: terms.clone(),
            maintained: Arc::clone(terms.maintained()),
            comings: Mutex::default(),
            ids: AtomicUsize::new(0),
            changes: WaitList::default(),
            visible_wanted: AtomicUsize::new(0),
            ship_cpu: Meter::default(),
            prompt_cpu: Meter::default(),
            ack_cpu: Meter::default(),
            pack_cpu: Meter::default(),
            packed: AtomicU64::new(0),
            batches: Arc::default(),
            live: AtomicU64::new(0),
            prompt: AtomicU64::new(0),
            threads: Mutex::default(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the host panics only on a bug of its own")
    }

    pub fn stopping(&self) -> bool {
        self.state().host.is_closed()
    }

    /// For how long it has fed.
    pub fn lasts(&self) -> Duration {
        self.clock.now().since(self.began)
    }

    /// Where a node was reached when it came last.
    pub fn address_of(&self, node: NodeId) -> Option<String> {
        self.state().addresses.get(&node).cloned()
    }

    /// Notes which members are in sync, for them to be told.
    pub fn note_places(&self, places: &BTreeMap<NodeId, Member>) {
        let in_sync = places.iter().filter(|(_, member)| member.place == Place::InSync);
        let in_sync: Vec<_> = in_sync.map(|(node, _)| *node).collect();
        self.state().host.placed(&in_sync);
        self.changes.wake_all();
    }

    /// Others than before are in the cluster. Whoever takes over must know of everybody, and no
    /// batch may come for long.
    pub fn peers_changed(&self) {
        let shippers = {
            let mut state = self.state();
            state.host.peers_changed();
            state.all()
        };
        shippers.iter().for_each(|shipper| shipper.bell.ring());
    }

    /// Starts a thread that [`Feeds::stop`] waits for.
    pub fn spawn(&self, name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name).spawn(run)?;
        let mut threads = self.threads.lock().expect("no code panics under this mutex");
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// From now on nobody is let in.
    pub fn close(&self) {
        self.state().host.close();
    }

    /// Ends all connections.
    pub fn end(&self) {
        let shippers = self.state().all();
        shippers.iter().for_each(|shipper| shipper.end());
        self.changes.wake_all();
    }

    /// Ends the connections of this node; `why` is kept for `status`.
    pub fn end_feeds_of(&self, node: NodeId, why: &str) {
        let shippers = self.state().all();
        for shipper in shippers.iter().filter(|shipper| shipper.node == node) {
            let _ = shipper.reason.set(why.to_owned());
            shipper.end();
        }
    }

    /// Ends the connections of all that an operator has removed, as far as this node knows.
    pub fn end_feeds_of_removed(&self) {
        let mut fed: BTreeSet<_> = self.state().shippers.values().map(|shipper| shipper.node).collect();
        fed.retain(|node| self.terms.check_belongs(*node).is_err());
        fed.into_iter().for_each(|node| self.end_feeds_of(node, REMOVED));
    }

    /// Ends all connections, and waits for all threads.
    pub fn stop(&self) {
        self.close();
        self.end();
        let threads = std::mem::take(&mut *self.threads.lock().expect("no code panics under this mutex"));
        for thread in threads {
            // A panic there was reported already. The last owner may be one of these threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }

    /// Whether a standby is fed that has said nothing of its state since it joined.
    pub fn awaits_proof(&self) -> bool {
        let silent = |shipper: &Arc<Shipper>| shipper.equal_at().is_none() && !shipper.in_doubt();
        self.state().shippers.values().any(|shipper| shipper.mirror.is_none() && silent(shipper))
    }

    /// How many bytes of batches are kept for mirrors.
    pub fn batch_bytes(&self) -> u64 {
        self.batches.bytes()
    }

    /// Below this, no node needs anything of the log that is fed, or was a while ago.
    pub fn needed(&self) -> Lsn {
        let (mut state, now) = (self.state(), self.clock.now());
        state.held.retain(|_, (_, since)| now.since(*since) < HOLD);
        state.held.values().map(|(from, _)| *from).fold(state.host.needed(), Lsn::min)
    }

    /// Those that are not fed, since they hold more than this log has, and that still belong to the
    /// cluster.
    pub fn ahead(&self) -> Vec<AheadStatus> {
        let ahead: Vec<_> = self.state().ahead.values().cloned().collect();
        ahead.into_iter().filter(|one| self.terms.check_belongs(one.node).is_ok()).collect()
    }

    /// The members, and what their readers see.
    pub fn shows(&self, members: BTreeMap<NodeId, Member>) -> Vec<Shows> {
        let state = self.state();
        members.into_iter().map(|(node, member)| (member, state.visible(node))).collect()
    }
}
