//! Relay: a standby that feeds standbys of its own, with the same code as a primary
//! ([`crate::feed`]). What it tells them to be globally persistent and what it acknowledges for
//! them is decided by [`freshet_cluster::relay::Relay`] (Query Fresh, section 4.4: a hierarchical
//! architecture).
//!
//! A [`Session`] is a sink of this node's log. It lasts as long as that log just continues: the
//! term, whom this node follows, and through whom, are the same, and nothing was cut. Then all feeds
//! end, and those below agree anew. While this node merely looks for its lost upstream, those who
//! are below stay, and nobody new is let in.

use std::{collections::BTreeMap, time::Duration};

use freshet_base::{
    NodeId, Safety, Stamp, Term,
    sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    Moment,
    commit_rule::{Event, Member},
    flow::FlowConfig,
    follower::{self, Decision},
    handshake::{Agreed, Host, Welcome, consider},
    relay::RelayAck,
    term::TermHistory,
};
use freshet_fabric::{Offer, tcp::Connection};
use freshet_log::{Batch, ReadError, Sink, SinkHandle};

use super::Shared;
use crate::{
    bell::Bell,
    endpoint::refuse,
    feed::{FeedConfig, Feeder, Feeds, Joining, join},
    primary::PrimaryFabric,
    status::RelayStatus,
    wire::{Continue, Hello, Peer, Peers, Refusal, Wait},
};

/// How a standby feeds standbys of its own.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// What it acknowledges to whom it follows.
    pub ack: RelayAck,
    /// How many standbys it is meant to have.
    pub standbys: u32,
    /// With [`RelayAck::Downstream`]: how long one of them may leave something unacknowledged
    /// before it is not waited for any more.
    pub standby_timeout: Duration,
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
    /// How the log is written into standbys' memory.
    pub fabric: PrimaryFabric,
}

impl RelayConfig {
    /// The customary parameters.
    pub fn new(ack: RelayAck, standbys: u32) -> Self {
        Self {
            ack,
            standbys,
            standby_timeout: Duration::from_secs(2),
            flow: FlowConfig::default(),
            patience: Duration::from_secs(5),
            partition: 64 << 10,
            largest_block: 32 << 20,
            boundaries: 1 << 14,
            fabric: PrimaryFabric::default(),
        }
    }
}

/// The relaying of one standby.
pub(super) struct RelayStage {
    config: RelayConfig,
    session: Mutex<Option<Arc<Session>>>,
}

impl RelayStage {
    pub fn new(config: RelayConfig) -> Self {
        Self { config, session: Mutex::new(None) }
    }

    pub fn config(&self) -> &RelayConfig {
        &self.config
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().expect("no code panics under this mutex")
    }

    /// What is being relayed at present.
    pub fn session(&self) -> Option<Arc<Session>> {
        self.lock().clone()
    }

    /// Ends all feeds, and waits until nobody reads the log for them any more.
    pub fn end(&self) {
        let session = self.lock().take();
        if let Some(session) = session {
            session.end();
        }
    }

    /// This node was welcomed, and its log is a prefix of the sender's now: what follows is passed
    /// on.
    pub fn begin(&self, shared: &Arc<Shared>, welcome: &Welcome) -> std::io::Result<()> {
        if shared.state().follower.continues(welcome) {
            return Ok(());
        }
        shared.end_relay();
        let down = {
            let mut state = shared.state();
            state.follower.pass_on(welcome, shared.clock.now());
            state.follower.downward().unwrap_or_default()
        };
        let received = shared.log.received().get();
        let mut above = welcome.above.clone();
        above.push(welcome.node);
        let config = &self.config;
        let feed = FeedConfig {
            flow: config.flow,
            patience: config.patience,
            partition: config.partition,
            boundaries: config.boundaries,
            fabric: config.fabric.clone(),
        };
        let peers = u64::from(shared.promised_safety().is_some());
        let session = Arc::new(Session {
            feeds: Feeds::new(feed, welcome.term, received, shared.clock, peers),
            above,
            history: welcome.history.clone(),
            newest: Mutex::new(None),
            down: AtomicU64::new(down.0),
            watch: Bell::default(),
            met: Mutex::default(),
            sink: Mutex::new(None),
            shared: Arc::clone(shared),
        });
        let sink = shared.log.attach(Arc::clone(&session) as _);
        assert_eq!(sink.from(), received, "what was received before is read back");
        *session.sink() = Some(sink);
        let watched = Arc::clone(&session);
        session.feeds.spawn("relay-watch".into(), move || watched.watch())?;
        *self.lock() = Some(session);
        Ok(())
    }
}

/// What the primary's log said last of itself.
struct Newest {
    end: Stamp,
    /// By the primary's clock, and by this node's.
    time: (Moment, Moment),
}

/// The feeding of those below, while the log just goes on.
pub(super) struct Session {
    shared: Arc<Shared>,
    feeds: Feeds,
    /// Through whom the log comes, from the primary on.
    above: Vec<NodeId>,
    history: TermHistory,
    newest: Mutex<Option<Newest>>,
    /// What those below are told to be globally persistent.
    down: AtomicU64,
    watch: Bell,
    /// Where those below are.
    met: Mutex<BTreeMap<NodeId, String>>,
    /// This session's place at the log, until it ends.
    sink: Mutex<Option<SinkHandle>>,
}

/// What is received is shipped while it is persisted here.
impl Sink for Session {
    fn batch(&self, batch: &Batch<'_>) {
        self.batch_ready(batch);
    }

    fn needed(&self) -> Stamp {
        self.feeds.needed()
    }
}

impl Session {
    fn sink(&self) -> MutexGuard<'_, Option<SinkHandle>> {
        self.sink.lock().expect("no code panics under this mutex")
    }

    fn end(&self) {
        drop(self.sink().take());
        self.hang_up();
        self.watch.ring();
        self.feeds.stop();
    }

    /// Nothing is sent to anybody below any more. Does not wait.
    pub fn hang_up(&self) {
        self.feeds.begin_to_stop();
        for shipper in self.feeds.all() {
            shipper.end();
        }
    }

    /// What the primary, or the relay above, said.
    pub fn heard(&self, end: Stamp, time: Moment) {
        let time = (time, self.feeds.clock.now());
        *self.newest.lock().expect("no code panics under this mutex") = Some(Newest { end, time });
    }

    /// Others than before are in the cluster.
    pub fn heard_peers(&self) {
        self.feeds.peers_version.fetch_add(1, Ordering::SeqCst);
    }

    /// Tells those below what the follower has decided.
    pub fn carry_out(&self, decision: Decision) {
        if decision.places {
            self.feeds.note_places(&self.members());
        }
        if let Some(down) = decision.down
            && self.down.fetch_max(down.0, Ordering::SeqCst) < down.0
        {
            self.global_advanced();
        }
    }

    fn members(&self) -> BTreeMap<NodeId, Member> {
        self.shared.state().follower.members().map(|(node, member)| (node, *member)).collect()
    }

    /// Lets time pass in the rule.
    fn watch(&self) {
        while !self.feeds.stopping() {
            let timeout = self.shared.relay_config().map_or(Duration::from_secs(1), |config| config.standby_timeout);
            // No deadline that arises meanwhile is sooner than one time-out from now.
            let until = self.feeds.clock.now().after(timeout);
            let deadline = self.shared.state().follower.next_deadline();
            self.watch.sleep(Some(self.feeds.clock.instant(deadline.map_or(until, |deadline| deadline.min(until)))));
            self.tell(Event::Tick);
        }
    }

    fn host(&self, needed_capacity: u64) -> Option<Host> {
        let end = self.feeds.boundaries().available();
        Some(Host {
            cluster: self.shared.terms.get().cluster?,
            node: self.shared.node,
            above: self.above.clone(),
            term: self.feeds.term,
            history: self.history.clone(),
            end,
            needed_capacity,
            keep_alive_ms: u32::try_from(self.feeds.config.flow.keep_alive.as_millis()).unwrap_or(u32::MAX),
        })
    }

    pub fn status(&self, ack: RelayAck) -> RelayStatus {
        let (upward, downward) = (self.shared.state().follower.to_acknowledge(), self.global());
        let met = self.met.lock().expect("no code panics under this mutex").clone();
        let peers: Vec<_> = met.into_iter().map(|(node, address)| Peer { node: Some(node), address }).collect();
        RelayStatus {
            ack,
            through: self.above.clone(),
            upward,
            downward,
            standbys: self.feeds.standbys(self.members(), &peers, downward),
            observers: self.feeds.observers(),
            ship_cpu: self.feeds.ship_cpu.total(),
            ack_cpu: self.feeds.ack_cpu.total(),
        }
    }
}

impl Feeder for Session {
    fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), ReadError> {
        self.shared.log.read(at, into)
    }

    fn global(&self) -> Stamp {
        Stamp(self.down.load(Ordering::SeqCst))
    }

    fn newest(&self) -> (Stamp, Moment) {
        let newest = self.newest.lock().expect("no code panics under this mutex");
        newest.as_ref().map_or((Stamp::ZERO, Moment::default()), |newest| {
            let (time, heard) = newest.time;
            (newest.end, time.after(self.feeds.clock.now().since(heard)))
        })
    }

    /// By the primary's clock, which is not known here to be comparable with anybody's below.
    fn handed_over(&self, _: Stamp) -> Option<Moment> {
        None
    }

    fn tell(&self, event: Event) {
        let decision = {
            let mut state = self.shared.state();
            // What is passed on now may be of another session.
            if self.feeds.stopping() {
                return;
            }
            self.shared.tell(&mut state, follower::Event::Below(event))
        };
        self.carry_out(decision);
        self.shared.acknowledge(false);
    }

    /// Whose term that is will be heard from itself.
    fn fenced(&self, _: Term) {}

    /// It knows where this node is.
    fn missed(&self) {}

    /// For `status`: who is below has no voice in a take-over, so nobody else need know.
    fn met(&self, node: NodeId, address: &str) {
        self.met.lock().expect("no code panics under this mutex").insert(node, address.to_owned());
    }

    fn peers_message(&self) -> Peers {
        let (standbys, safety) = self.shared.promised_safety().unwrap_or((0, Safety::OneSafe));
        let mut peers = self.shared.state().peers.clone();
        if peers.iter().all(|peer| peer.node != Some(self.shared.node)) {
            peers.push(Peer { node: Some(self.shared.node), address: self.shared.address.clone() });
        }
        Peers { peers, standbys, safety }
    }
}

/// Somebody who wants to follow this node.
pub(super) struct Asking {
    pub fence: Term,
    pub log: Continue,
    pub member: bool,
    pub synchronous: bool,
    pub offer: Offer,
    pub appliance: bool,
    pub bare: bool,
}

/// Feeds `hello`'s node from now on, or says why not.
pub(super) fn serve(shared: &Arc<Shared>, hello: &Hello, asking: Asking, connection: Connection) {
    match agree(shared, hello, &asking) {
        Err(refusal) => refuse(connection, refusal),
        Ok((session, agreed)) => {
            let joining = Joining {
                member: asking.member,
                // Who follows a relay is that relay's standby, as good as any.
                synchronous: true,
                appliance: asking.appliance,
                offer: asking.offer,
                bare: asking.bare,
                replayed: asking.log.may_send_until,
                agreed,
            };
            join(&session, hello, joining, connection);
        }
    }
}

fn agree(shared: &Arc<Shared>, hello: &Hello, asking: &Asking) -> Result<(Arc<Session>, Agreed), Refusal> {
    let elsewhere = || Refusal::NotPrimary { node: shared.node, leader: shared.primary_address() };
    let Some(stage) = &shared.relay else { return Err(elsewhere()) };
    let state = shared.terms.get();
    // Commits count on it, or may: it has to answer to the primary itself, until it is on record
    // that they do not.
    let counted = asking.member && asking.synchronous;
    if counted || state.set.is_some_and(|set| set.may_have(hello.node)) {
        return Err(elsewhere());
    }
    let lost = || Refusal::Later { node: shared.node, why: Wait::Lost };
    let session = stage.session().ok_or_else(lost)?;
    let follows = shared.follow.following().is_some() && shared.follow.following() == session.above.last().copied();
    if !follows || session.feeds.stopping() || state.fence.highest() > session.feeds.term {
        return Err(lost());
    }
    let host = session.host(2 * stage.config.largest_block).ok_or_else(lost)?;
    let agreed = consider(&host, hello.cluster, hello.node, asking.fence, &asking.log)?;
    Ok((session, agreed))
}
