//! Relay: a standby that feeds standbys of its own, with the same code as a primary
//! ([`crate::feed`]). What it tells them to be globally persistent and what it acknowledges for
//! them is decided by [`freshet_cluster::relay::Relay`] (Query Fresh, section 4.4: a hierarchical
//! architecture).
//!
//! A [`Session`] is a sink of this node's log. It lasts as long as that log just continues: the
//! term, whom this node follows, and through whom, are the same, and nothing was cut. Then all
//! feeds end, and those below agree anew. While this node merely looks for its lost upstream, those
//! who are below stay, and nobody new is let in.

use std::{collections::BTreeMap, time::Duration};

use freshet_base::{
    NodeId, Safety, Stamp, Term,
    sync::{Arc, Mutex, MutexGuard},
};
use freshet_cluster::{
    Moment,
    commit_rule::{Event, Member},
    flow::FlowConfig,
    follower::{self, Decision},
    handshake::{Agreed, Sender, Welcome},
    relay::RelayAck,
};
use freshet_fabric::tcp::Connection;
use freshet_log::{Batch, ReadError, Sink, SinkHandle};

use super::Shared;
use crate::{
    bell::Bell,
    endpoint::refuse,
    feed::{FeedConfig, Feeder, Feeds, join},
    forms::Forms,
    primary::PrimaryFabric,
    status::RelayStatus,
    wire::{Hello, Join, Peer, Peers, Refusal, Wait},
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
    /// Encodes the log for standbys that ask for another form; none to send bytes to all.
    pub forms: Option<Arc<dyn Forms>>,
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
            forms: None,
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
        let (config, received) = (&self.config, shared.log.received().get());
        let sender = Sender {
            cluster: welcome.cluster,
            node: shared.node,
            above: welcome.path(),
            term: welcome.term,
            history: welcome.history.clone(),
            end: received,
            needed_capacity: 2 * config.largest_block,
            keep_alive_ms: u32::try_from(config.flow.keep_alive.as_millis()).unwrap_or(u32::MAX),
        };
        let feed = FeedConfig {
            flow: config.flow,
            patience: config.patience,
            partition: config.partition,
            boundaries: config.boundaries,
            fabric: config.fabric.clone(),
            forms: config.forms.clone(),
        };
        let session = Arc::new(Session {
            feeds: Feeds::new(feed, sender, shared.clock),
            above: welcome.path(),
            watch: Bell::default(),
            sink: Mutex::new(None),
            shared: Arc::clone(shared),
        });
        session.committed(down);
        if shared.promised_safety().is_some() {
            session.heard_peers();
        }
        let sink = shared.log.attach(Arc::clone(&session) as _);
        assert_eq!(sink.from(), received, "what was received before is read back");
        *session.sink() = Some(sink);
        let watched = Arc::clone(&session);
        session.feeds.spawn("relay-watch".into(), move || watched.watch())?;
        *self.lock() = Some(session);
        Ok(())
    }
}

/// The feeding of those below, while the log just goes on.
pub(super) struct Session {
    shared: Arc<Shared>,
    feeds: Feeds,
    /// Through whom the log comes, from the primary on.
    above: Vec<NodeId>,
    watch: Bell,
    /// This session's place at the log, until it ends.
    sink: Mutex<Option<SinkHandle>>,
}

/// What is received is shipped while it is persisted here.
impl Sink for Session {
    fn batch(&self, batch: &Batch<'_>) {
        self.batch_ready(batch);
    }

    fn needed(&self) -> Stamp {
        self.feeds.state().host.needed()
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
        self.feeds.close();
        self.feeds.end();
    }

    /// What the primary, or the relay above, said.
    pub fn heard(&self, end: Stamp, time: Moment) {
        self.feeds.state().host.heard(end, time, self.feeds.clock.now());
    }

    /// Others than before are in the cluster.
    pub fn heard_peers(&self) {
        self.feeds.peers_changed();
    }

    /// Tells those below what the follower has decided.
    pub fn carry_out(&self, decision: Decision) {
        if decision.places {
            self.feeds.note_places(&self.members());
        }
        if let Some(down) = decision.down {
            self.committed(down);
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

    pub fn status(&self, ack: RelayAck) -> RelayStatus {
        let (upward, downward) = {
            let state = self.shared.state();
            (state.follower.to_acknowledge(), state.follower.downward().unwrap_or_default())
        };
        RelayStatus {
            ack,
            through: self.above.clone(),
            upward,
            downward,
            standbys: self.feeds.standbys(self.members(), downward),
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

    /// Who is below has no voice in a take-over, so nobody else need know.
    fn met(&self, _: NodeId, _: &str) {}

    fn peers_message(&self) -> Peers {
        let (standbys, safety) = self.shared.promised_safety().unwrap_or((0, Safety::OneSafe));
        let mut peers = self.shared.state().peers.clone();
        if peers.iter().all(|peer| peer.node != Some(self.shared.node)) {
            peers.push(Peer { node: Some(self.shared.node), address: self.shared.address.clone() });
        }
        Peers { peers, standbys, safety }
    }
}

/// Feeds `hello`'s node from now on, or says why not.
pub(super) fn serve(shared: &Arc<Shared>, hello: &Hello, joins: Join, connection: Connection) {
    match agree(shared, hello, &joins) {
        Err(refusal) => refuse(connection, refusal),
        // Who follows a relay is that relay's standby, as good as any.
        Ok((session, agreed)) => join(&session, hello, &Join { synchronous: true, ..joins }, agreed, connection),
    }
}

fn agree(shared: &Arc<Shared>, hello: &Hello, joins: &Join) -> Result<(Arc<Session>, Agreed), Refusal> {
    let elsewhere = || Refusal::NotPrimary { node: shared.node, primary: shared.primary_address() };
    let lost = || Refusal::Later { node: shared.node, why: Wait::Lost };
    let Some(stage) = &shared.relay else { return Err(elsewhere()) };
    let (asking, state) = (joins.asking(hello), shared.terms.get());
    let Some(session) = stage.session() else {
        return Err(if asking.is_counted(&state) { elsewhere() } else { lost() });
    };
    let agreed = session.feeds.state().host.agree(&asking, &state);
    let agreed = agreed.map_err(|refusal| match refusal {
        Refusal::NotPrimary { .. } => elsewhere(),
        refusal => refusal,
    })?;
    let follows = shared.follow.following().is_some() && shared.follow.following() == session.above.last().copied();
    if follows { Ok((session, agreed)) } else { Err(lost()) }
}
