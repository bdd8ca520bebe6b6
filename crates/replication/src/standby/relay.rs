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
    Lsn, NodeId, Safety, Term,
    sync::{Arc, Mutex, MutexGuard},
};
use freshet_cluster::{
    commit_rule::{Event, Member},
    follower::{self, Decision},
    handshake::{Agreed, Sender, Welcome},
    host::{ReplicaState, Word},
    relay::RelayAck,
};
use freshet_fabric::tcp::Connection;
use freshet_log::{Batch, Noting, ReadError, Sink, SinkHandle};

use super::Shared;
use crate::{
    bell::Bell,
    endpoint::refuse,
    feed::{self, FeedConfig, Feeder, Feeds, join, note_refused},
    status::{AheadStatus, RelayStatus},
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
    /// How they are fed.
    pub feed: FeedConfig,
}

impl RelayConfig {
    /// The customary parameters.
    pub fn new(ack: RelayAck, standbys: u32) -> Self {
        Self { ack, standbys, standby_timeout: Duration::from_secs(2), feed: FeedConfig::default() }
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
        let (feed, received) = (&self.config.feed, shared.store.log.received().get());
        let sender = Sender {
            cluster: welcome.cluster,
            node: shared.node(),
            above: welcome.path(),
            term: welcome.term,
            history: welcome.history.clone(),
            end: received,
            needed_capacity: feed.needed_capacity(),
            keep_alive_ms: feed.keep_alive_ms(),
            // No commit counts on those below.
            lease_ms: 0,
        };
        let session = Arc::new(Session {
            feeds: Feeds::new(feed.clone(), sender, shared.clock, &shared.terms),
            above: welcome.path(),
            watch: Bell::default(),
            sink: Mutex::new(None),
            shared: Arc::clone(shared),
        });
        feed::committed(&*session, down);
        if shared.level().is_some() {
            session.observe_peers();
        }
        let sink = shared.store.log.attach(Arc::clone(&session) as _);
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
        feed::batch_ready(self, batch);
    }

    fn needed(&self) -> Lsn {
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
        self.feeds.close();
        self.feeds.end();
    }

    /// What the primary, or the relay above, said.
    pub fn observe(&self, word: Word) {
        self.feeds.state().host.observe(word, self.feeds.clock.now());
    }

    /// Others than before are in the cluster.
    pub fn observe_peers(&self) {
        self.feeds.peers_changed();
    }

    /// Those that an operator has removed get nothing more.
    pub fn end_feeds_of_removed(&self) {
        self.feeds.end_feeds_of_removed();
    }

    /// Tells those below what the follower has decided.
    pub fn carry_out(&self, decision: Decision) {
        if decision.places {
            self.feeds.note_places(&self.members());
        }
        if let Some(down) = decision.down {
            feed::committed(self, down);
        }
        // Without a store a standby that lacks more than the buffer keeps cannot be fed any more,
        // as with a primary.
        if let Some(to) = decision.release.filter(|_| !self.shared.store.log.has_store())
            && let Some(sink) = self.sink().as_ref()
        {
            sink.release(to);
        }
    }

    fn members(&self) -> BTreeMap<NodeId, Member> {
        self.shared.state().follower.members().map(|(node, member)| (node, *member)).collect()
    }

    /// Those that wanted to follow this node, and hold more than its log has.
    pub fn ahead(&self) -> Vec<AheadStatus> {
        self.feeds.ahead()
    }

    /// Lets time pass in the rule.
    fn watch(&self) {
        while !self.feeds.stopping() {
            let timeout = self.shared.relay_config().map_or(Duration::from_secs(1), |config| config.standby_timeout);
            // No deadline that arises meanwhile is sooner than one time-out from now.
            let until = self.feeds.clock.now().after(timeout);
            let deadline = self.shared.state().follower.next_deadline();
            self.watch.sleep(Some(self.feeds.clock.instant(deadline.map_or(until, |deadline| deadline.min(until)))));
            self.apply(Event::Tick);
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
            ship_cpu: self.feeds.ship_cpu.total() + self.feeds.prompt_cpu.total(),
            ack_cpu: self.feeds.ack_cpu.total(),
        }
    }
}

impl Feeder for Session {
    fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), ReadError> {
        self.shared.store.log.read(at, into)
    }

    /// The log is as its primary has made it.
    fn note_changes(&self) -> Option<Noting> {
        None
    }

    /// Commits wait for none of those below.
    fn make_place(&self, _: &str, _: &ReplicaState) {}

    fn apply(&self, event: Event) {
        let decision = {
            let mut state = self.shared.state();
            // What is passed on now may be of another session.
            if self.feeds.stopping() {
                return;
            }
            self.shared.apply(&mut state, follower::Event::Below(event))
        };
        self.carry_out(decision);
        self.shared.acknowledge(false);
    }

    /// Whose term that is will be heard from itself.
    fn fenced(&self, _: Term) {}

    /// It knows where this node is.
    fn missed(&self) {}

    /// What the primary has said of itself goes along, and has to be known.
    fn news(&self) {
        if self.shared.level().is_some() {
            self.feeds.peers_changed();
        }
    }

    /// Who is below has no vote in a failover, so nobody else need know.
    fn met(&self, _: NodeId, _: &str, _: bool) {}

    fn peers_message(&self) -> Peers {
        let safety = self.shared.level().unwrap_or(Safety::OneSafe);
        let ahead = self.shared.ahead();
        let (mut peers, two_primaries) = {
            let known = self.shared.known();
            (known.peers.clone(), known.two_primaries.clone())
        };
        if peers.iter().all(|peer| peer.node != Some(self.shared.node())) {
            peers.push(Peer {
                node: Some(self.shared.node()),
                address: self.shared.address().to_owned(),
                serves: true,
            });
        }
        Peers { peers, safety, ahead, two_primaries }
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
    let lost = || Refusal::Later { node: shared.node(), why: Wait::Lost };
    let Some(stage) = &shared.store.relay else { return Err(shared.not_primary()) };
    let (asking, state) = (joins.asking(hello), shared.terms.get());
    let Some(session) = stage.session() else {
        return Err(if asking.is_counted(&state) { shared.not_primary() } else { lost() });
    };
    let agreed = session.feeds.state().host.agree(&asking, &state);
    let agreed = agreed.map_err(|refusal| match refusal {
        Refusal::NotPrimary { .. } => shared.not_primary(),
        refusal => {
            let concerns_all = matches!(
                refusal,
                Refusal::SameTermTwice { .. } | Refusal::HoldsMore { .. } | Refusal::MirrorHoldsMore { .. }
            );
            if concerns_all {
                note_refused(&*session, hello, joins, &refusal);
            }
            refusal
        }
    })?;
    let follows = shared.follow.following().is_some() && shared.follow.following() == session.above.last().copied();
    if follows { Ok((session, agreed)) } else { Err(lost()) }
}
