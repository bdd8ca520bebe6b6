//! Feed: what a primary does for its standbys, and a relay for those below it: lets them join,
//! ships the log to them, and hears what they hold.
//!
//! Threads: one `ship` and one `ack` per standby. Who feeds is a [`Feeder`]: it has the log, says
//! what is globally persistent, and hears what becomes of its standbys; [`Feeds`] is what all of
//! them need.

mod ack;
mod join;
mod ship;

use std::{
    collections::BTreeMap,
    io,
    thread::{self, JoinHandle},
    time::Duration,
};

use freshet_base::{
    NodeId, Stamp, Term,
    sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    Moment,
    commit_rule::{Event, Member, Place},
    flow::{Boundaries, FlowConfig},
};
use freshet_fabric::cpu::Meter;
use freshet_log::{Batch, ReadError};

pub(crate) use self::{
    join::{Joining, join, tell_refused},
    ship::Shipper,
};
use crate::{
    clock::Clock,
    primary::PrimaryFabric,
    status::{ObserverStatus, StandbyStatus},
    wire::{Peer, Peers, Refusal},
};

/// How standbys are fed.
#[derive(Clone, Debug)]
pub(crate) struct FeedConfig {
    pub flow: FlowConfig,
    /// How long a standby may be silent, or take nothing in, before its connection is given up.
    pub patience: Duration,
    /// The size of the log's partitions for parallel replay, in bytes.
    pub partition: u64,
    /// How many ends of blocks are remembered for live shipping.
    pub boundaries: usize,
    /// How the log is written into standbys' memory.
    pub fabric: PrimaryFabric,
}

/// Whoever has the log and ships it on.
pub(crate) trait Feeder: Send + Sync + Sized + 'static {
    /// Its standbys.
    fn feeds(&self) -> &Feeds;

    /// Fills `into` with the log from `at` on.
    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), ReadError>;

    /// The globally persistent stamp that standbys are told.
    fn global(&self) -> Stamp;

    /// How far the primary's log reaches, and when, by the primary's clock, that was so.
    fn newest(&self) -> (Stamp, Moment);

    /// When the batch was handed over in which the log goes on at `from`, if that is known.
    fn handed_over(&self, from: Stamp) -> Option<Moment>;

    /// The end of the newest block in the log that standbys have to take note of before they
    /// acknowledge it; the largest stamp while that is not known. Before a standby has said that it
    /// holds that block, nothing that was only read back counts.
    fn noted_by_standbys(&self) -> Stamp {
        Stamp::ZERO
    }

    /// A member joined, acknowledged, or left.
    fn tell(&self, event: Event);

    /// A standby knows of this later term.
    fn fenced(&self, by: Term);

    /// A member is gone.
    fn missed(&self);

    /// A node can be reached there.
    fn met(&self, node: NodeId, address: &str);

    /// Everyone in the cluster.
    fn peers_message(&self) -> Peers;

    /// A connection ended; `why` is kept for `status`.
    fn lost(&self, shipper: &Arc<Shipper>, why: String) {
        let feeds = self.feeds();
        // Before the other thread is ended: its end has no reason of its own.
        if let Some(why) = shipper.first_reason(why) {
            if !feeds.stopping() {
                let (standby, member) = (shipper.node, shipper.member);
                tracing::warn!(%standby, member, term = feeds.term.0, cause = why, "the connection to a standby is lost");
            }
            feeds.losses.lock().expect("no code panics under this mutex").insert(shipper.node, why);
        }
        shipper.end();
        let _order = feeds.comings.lock().expect("no code panics under this mutex");
        let is_last = {
            let mut shippers = feeds.shippers();
            // A newer connection may have taken its place.
            let is_last = shippers.get(&shipper.node).is_some_and(|current| Arc::ptr_eq(current, shipper));
            if is_last {
                shippers.remove(&shipper.node);
            }
            is_last
        };
        if is_last && shipper.member {
            self.tell(Event::Left { standby: shipper.node });
            self.missed();
        }
    }

    /// A member, of which `joined` tells, comes from `address`: sees to it that it can be counted.
    ///
    /// # Errors
    /// A [`Refusal`] when it cannot.
    fn make_place(&self, address: &str, joined: &Event) -> Result<(), Refusal> {
        let _ = (address, joined);
        Ok(())
    }

    /// A connection was made; it takes the place of an earlier one of the same node. The rule is
    /// told with `joined` that a member has come.
    ///
    /// # Errors
    /// As for [`Feeder::make_place`]; then nothing has changed.
    fn came(&self, shipper: &Arc<Shipper>, address: &str, joined: Event) -> Result<(), Refusal> {
        let feeds = self.feeds();
        let _order = feeds.comings.lock().expect("no code panics under this mutex");
        if shipper.member {
            self.make_place(address, &joined)?;
        }
        let before = feeds.shippers().insert(shipper.node, Arc::clone(shipper));
        if let Some(before) = before {
            // The old one is dead, whether it knows or not.
            before.end();
            if before.member {
                self.tell(Event::Left { standby: shipper.node });
            }
        }
        if shipper.member {
            self.tell(joined);
        }
        Ok(())
    }

    /// A batch can be read; ships it. Neither blocks nor copies the batch.
    ///
    /// # Panics
    /// When the batch does not follow the last one.
    fn batch_ready(&self, batch: &Batch<'_>) {
        self.feeds().boundaries().push(batch.from, batch.to, batch.partition_ends);
        for shipper in self.feeds().all() {
            ship::batch_ready(self, &shipper, batch.to.since(batch.from));
        }
    }

    /// The globally persistent stamp has moved.
    fn global_advanced(&self) {
        for shipper in self.feeds().all() {
            ship::global_advanced(self, &shipper);
        }
    }
}

/// The standbys of one feeder, during one term.
pub(crate) struct Feeds {
    pub config: FeedConfig,
    pub term: Term,
    pub clock: Clock,
    boundaries: Mutex<Boundaries>,
    shippers: Mutex<BTreeMap<NodeId, Arc<Shipper>>>,
    /// Held while a connection comes or goes, so that the rule hears of it in the same order as
    /// `shippers`: a node that has come back must not be taken for gone because its old connection
    /// ends late.
    comings: Mutex<()>,
    losses: Mutex<BTreeMap<NodeId, String>>,
    pub peers_version: AtomicU64,
    /// How many commits wait until standbys show them.
    pub visible_wanted: AtomicUsize,
    stopping: AtomicBool,
    pub ship_cpu: Meter,
    pub ack_cpu: Meter,
    /// Of that, what compression took; and how many bytes it saved.
    pub pack_cpu: Meter,
    pub packed: AtomicU64,
    /// Batches sent as they came, and how many of them by the group commit's own thread.
    pub live: AtomicU64,
    pub prompt: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Feeds {
    /// Nobody yet, of a log that ends at `start`.
    pub fn new(config: FeedConfig, term: Term, start: Stamp, clock: Clock, peers_version: u64) -> Self {
        Self {
            boundaries: Mutex::new(Boundaries::new(start, config.boundaries)),
            config,
            term,
            clock,
            shippers: Mutex::default(),
            comings: Mutex::default(),
            losses: Mutex::default(),
            peers_version: AtomicU64::new(peers_version),
            visible_wanted: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            ship_cpu: Meter::default(),
            ack_cpu: Meter::default(),
            pack_cpu: Meter::default(),
            packed: AtomicU64::new(0),
            live: AtomicU64::new(0),
            prompt: AtomicU64::new(0),
            threads: Mutex::default(),
        }
    }

    pub fn boundaries(&self) -> MutexGuard<'_, Boundaries> {
        self.boundaries.lock().expect("no code panics under this mutex except for a batch out of order")
    }

    pub fn shippers(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Shipper>>> {
        self.shippers.lock().expect("no code panics under this mutex")
    }

    /// Everyone who is connected.
    pub fn all(&self) -> Vec<Arc<Shipper>> {
        self.shippers().values().cloned().collect()
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Notes which members are in sync, for them to be told.
    pub fn note_places(&self, places: &BTreeMap<NodeId, Member>) {
        for (node, shipper) in self.shippers().iter() {
            let in_sync = places.get(node).is_some_and(|member| member.place == Place::InSync);
            shipper.in_sync.store(in_sync, Ordering::SeqCst);
        }
    }

    /// Starts a thread that [`Feeds::stop`] waits for.
    pub fn spawn(&self, name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name).spawn(run)?;
        let mut threads = self.threads.lock().expect("no code panics under this mutex");
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// From now on nobody is let in for long.
    pub fn begin_to_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Ends all connections.
    pub fn end(&self) {
        self.all().iter().for_each(|shipper| shipper.end());
    }

    /// Ends all connections, and waits for all threads.
    pub fn stop(&self) {
        self.begin_to_stop();
        self.end();
        let threads = std::mem::take(&mut *self.threads.lock().expect("no code panics under this mutex"));
        for thread in threads {
            // A panic there was reported already. The last owner may be one of these threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }

    /// No one of those who are fed needs the log below this any more.
    pub fn needed(&self) -> Stamp {
        let needed = self.all().into_iter().map(|shipper| {
            let flow = shipper.flow();
            flow.persisted().min(flow.shipped())
        });
        needed.min().unwrap_or(Stamp::MAX)
    }

    /// Those who are fed and counted on by nobody.
    pub fn observers(&self) -> Vec<ObserverStatus> {
        let available = self.boundaries().available();
        let observers = self.all().into_iter().filter(|shipper| !shipper.member).map(|shipper| {
            let (shipped, acked) = {
                let flow = shipper.flow();
                (flow.shipped(), flow.persisted())
            };
            let (node, sent_bytes) = (shipper.node, shipper.sent_bytes());
            ObserverStatus { node, shipped, acked, ack_lag_bytes: available.since(acked.min(available)), sent_bytes }
        });
        observers.collect()
    }

    /// The members, as the rule and their connections see them; `global` is what they may show.
    pub fn standbys(&self, members: BTreeMap<NodeId, Member>, peers: &[Peer], global: Stamp) -> Vec<StandbyStatus> {
        let shippers = self.shippers().clone();
        let losses = self.losses.lock().expect("no code panics under this mutex").clone();
        let boundaries = self.boundaries();
        let available = boundaries.available();
        let standbys = members.into_iter().map(|(node, member)| {
            let shipper = shippers.get(&node);
            let flow = shipper.map(|shipper| shipper.flow().clone());
            let shipped = flow.as_ref().map_or(member.acked, |flow| flow.shipped());
            let visible = shipper.map_or(Stamp::ZERO, |shipper| Stamp(shipper.visible.load(Ordering::Relaxed)));
            StandbyStatus {
                node,
                address: peers.iter().find(|p| p.node == Some(node)).map_or(String::new(), |p| p.address.clone()),
                connected: member.connected,
                synchronous: member.synchronous,
                place: member.place,
                in_sync: member.place == Place::InSync && member.connected,
                mode: flow.as_ref().map(|flow| flow.mode(&boundaries)),
                shipped,
                acked: member.acked,
                replayed: shipper.map_or(Stamp::ZERO, |shipper| Stamp(shipper.replayed.load(Ordering::Relaxed))),
                visible,
                ship_lag_bytes: available.since(shipped),
                ack_lag_bytes: available.since(member.acked),
                visible_lag_bytes: global.since(visible),
                sent_bytes: shipper.map_or(0, |shipper| shipper.sent_bytes()),
                last_loss: losses.get(&node).cloned(),
            }
        });
        standbys.collect()
    }
}
