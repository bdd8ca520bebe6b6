//! Follow: what every node does that follows another, whatever it keeps what it gets in: a log
//! ([`crate::standby`]), or a mirror's memory ([`crate::mirror`]). That is its [`Store`].
//!
//! ```text
//!   next ─▶ prepare ─▶ connect ─▶ offer ─▶ introduce ─▶ enter ─▶ feed ─▶ revoke ─▶ take back
//! ```
//!
//! One thread does so again and again ([`run`]), until the node is to do something else. Others
//! answer those who connect ([`FollowService`]).

mod introduce;
mod service;
mod session;
mod upstream;
mod watch;

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use freshet_base::{
    Lsn, NodeId, Safety, Term,
    sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    entering::Held,
    handshake::Welcome,
    promising::Promised,
    promotion::{Fetch, LogState, is_unattended, known_level},
    switch_over::HandOver,
    term::{Living, TermState},
    upstream::UpstreamConfig,
    view::ClusterView,
    watch::WatchConfig,
};
use freshet_fabric::{FabricConfig, FabricKind, limit::TokenBucket, tcp::Connection};
use freshet_membership::Credentials;

pub(crate) use self::{
    introduce::{Enter, Parts, connect, enter, fenced, introduce, joining, offer, promise, violation},
    service::FollowService,
    session::{check_batch, next_fetched, next_frame},
    upstream::{Follow, run},
};
pub use self::{session::SessionError, upstream::JoinError, watch::Watching};
use crate::{
    clock::Clock,
    maintenance::{self, Notice, Ordered},
    members::{self, MemberStatus, Members},
    originals::AskedBlock,
    promotion::{PromoteError, PromoteOptions},
    status::{AheadStatus, MOST_AHEAD, ObserverStatus, StandbyStatus, TwoPrimaries},
    terms::Terms,
    whole_cluster::WholeCluster,
    wire::{Continue, Hello, Join, Peer, Peers, Purpose, Refusal},
};

/// Who follows.
#[derive(Clone, Debug)]
pub struct FollowerId {
    /// This node.
    pub node: NodeId,
    /// The certificate that it shows to others.
    pub credentials: Credentials,
    /// Where other nodes reach it.
    pub address: String,
    /// Whom to follow; `None` to wait until it is told.
    pub upstream: Option<String>,
}

/// How a primary reaches its standby's memory, which is for the standby to say.
#[derive(Clone, Debug, Default)]
pub struct StandbyFabric {
    /// By which fabric.
    pub kind: FabricKind,
    /// How that is used.
    pub config: FabricConfig,
    /// What this node's sending keeps to.
    pub limit: Option<Arc<TokenBucket>>,
    /// The primary reads back what it has written, which is then persistent (Query Fresh, section
    /// 2.3, the "appliance" method). Only the operator can know that: the log buffer is in
    /// persistent memory, and what the network writes goes around the processor's caches.
    pub appliance: bool,
}

/// How a node follows another.
#[derive(Clone, Debug)]
pub struct FollowConfig {
    /// How long the primary may be silent, or take nothing in, before the connection is given up.
    pub patience: Duration,
    /// The first pause before connecting again, and the longest.
    pub back_off: (Duration, Duration),
    /// Other nodes that may exist, beside those that the primary tells of.
    pub peers: Vec<String>,
    /// How the primary reaches this node's memory.
    pub fabric: StandbyFabric,
    /// Whether commits may count on this node. An observer's acknowledgements free its primary's
    /// log, and no more.
    pub member: bool,
    /// Whether commits may wait for this node, if they may count on it.
    pub synchronous: bool,
    /// When it takes its primary for lost, and stands.
    pub watch: WatchConfig,
}

impl Default for FollowConfig {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            back_off: (Duration::from_millis(20), Duration::from_secs(2)),
            peers: Vec::new(),
            fabric: StandbyFabric::default(),
            member: true,
            synchronous: true,
            watch: WatchConfig::default(),
        }
    }
}

/// What a node that follows keeps what it gets in, and what it does with that in a way of its own.
pub(crate) trait Store: Send + Sync + Sized + 'static {
    /// Does what has to be done before the node at `upstream` can feed this one.
    fn prepare(shared: &Arc<Shared<Self>>, upstream: &str, order: u64) -> Result<(), SessionError> {
        let _ = (shared, upstream, order);
        Ok(())
    }

    /// Offers this node's memory to the node at `upstream`, which writes there until something ends
    /// it.
    fn feed(shared: &Arc<Shared<Self>>, upstream: &str, connection: Connection) -> Result<Infallible, SessionError>;

    /// What this node has that is to continue.
    fn held(shared: &Shared<Self>, terms: &TermState) -> Held;

    /// What it says to a sender that lacks what was acknowledged to clients up to `committed`, and
    /// whose log parts from its own at `at`.
    fn holds_more(shared: &Shared<Self>, at: Lsn, committed: Lsn) -> SessionError;

    /// When this returns, nothing lands in this node's memory any more. The connection has been
    /// revoked, but the other side may have mapped the memory.
    fn take_back(shared: &Shared<Self>) -> Result<(), SessionError>;

    /// The connection to whom this node follows is over, for good.
    fn disconnected(_: &Shared<Self>) {}

    /// What it passes on ends.
    fn end_feeds(_: &Shared<Self>) {}

    /// The primary that this node has followed is of the past.
    fn superseded(_: &Shared<Self>) {}

    /// Others than before are in the cluster.
    fn peers_changed(_: &Shared<Self>) {}

    /// What counts as persistent here to a primary, is so; to be called when no primary can write
    /// here any more.
    fn settles(_: &Shared<Self>, deadline: Instant) -> Result<(), String> {
        let _ = deadline;
        Ok(())
    }

    /// What this node holds, for a candidate.
    fn log_state(shared: &Shared<Self>) -> LogState;

    /// Why what it holds must not be compared with what others hold, if so.
    fn has_no_vote(shared: &Shared<Self>) -> Option<&'static str>;

    /// It is to take over, and rests: no former primary can write here any more. What one has read
    /// back counts, so it is part of what this node holds before others are compared with it.
    fn rested(shared: &Shared<Self>, options: &PromoteOptions) -> Result<(), String>;

    /// It rests, and gets the log of the node at `from`.
    fn fetch(shared: &Arc<Shared<Self>>, from: &str, term: Term, wanted: &Fetch) -> Result<(), SessionError>;

    /// It rests: blocks until everything received is persistent and replayed, and returns its end.
    fn finish(shared: &Shared<Self>, patience: Duration) -> Result<Lsn, PromoteError>;

    /// It rests. A transaction that the old primary has not sent whole never was. Returns where the
    /// rest ends then: between transactions.
    fn cut_half(shared: &Shared<Self>, end: Lsn) -> Result<Lsn, PromoteError>;

    /// This node, as far as it knows itself, for those who ask which nodes there are.
    fn member(shared: &Shared<Self>) -> MemberStatus;

    /// Those that it feeds, if it is a relay.
    fn fed(_: &Shared<Self>) -> (Vec<StandbyStatus>, Vec<ObserverStatus>) {
        Default::default()
    }

    /// The node that says `hello` wants to be fed by this one.
    fn join(shared: &Arc<Shared<Self>>, hello: &Hello, join: Join, connection: Connection);

    /// The bytes of a block that could not be regenerated elsewhere, or why there are none.
    fn original(shared: &Shared<Self>, block: AskedBlock) -> Result<Vec<u8>, Refusal>;

    /// A candidate, to which this node has promised `term`, gets its log.
    fn serve_log(shared: &Shared<Self>, hello: &Hello, promised: Promised, log: &Continue, connection: Connection);
}

/// A node that follows another: what its threads share.
pub(crate) struct Shared<S> {
    pub who: FollowerId,
    pub config: FollowConfig,
    pub terms: Terms,
    pub clock: Clock,
    pub follow: Follow,
    known: Mutex<Known>,
    pub watching: Arc<Watching>,
    /// Held while a thread raises the fence.
    observing: Mutex<()>,
    stopping: AtomicBool,
    pub store: S,
}

/// What a node that follows knows of its cluster, as others have said.
pub(crate) struct Known {
    view: ClusterView,
    pub peers: Vec<Peer>,
    /// Those that hold more than the cluster's log has, as was announced last.
    pub ahead: Vec<AheadStatus>,
    /// Other primaries that its primary has met, as was announced last.
    pub two_primaries: Vec<TwoPrimaries>,
    /// Where the node is that has announced last that it leads, or is about to.
    announced_address: String,
}

impl<S: Store> WholeCluster for Shared<S> {
    fn members(&self) -> Members {
        members::of_cluster(self)
    }

    fn order_maintenance(&self, length: Duration) -> Ordered {
        let ordered = self.terms.maintained().order(length, &self.caller(), &self.peers());
        self.watching.look();
        ordered
    }

    fn caller(&self) -> maintenance::Caller<'_> {
        let (credentials, hello) = (&self.who.credentials, self.hello(Purpose::Identify));
        maintenance::Caller { credentials, hello, term: self.terms.fence().highest() }
    }
}

impl<S: Store> Shared<S> {
    /// It follows nobody before [`run`] is called.
    pub fn new(who: FollowerId, config: FollowConfig, terms: Terms, clock: Clock, store: S) -> Self {
        let known = Known {
            view: ClusterView::new(config.patience),
            peers: config.peers.iter().cloned().map(Peer::at).collect(),
            ahead: Vec::new(),
            two_primaries: Vec::new(),
            announced_address: String::new(),
        };
        let upstream = UpstreamConfig {
            address: who.address.clone(),
            member: config.member,
            counted: config.member && config.synchronous,
            back_off: config.back_off,
        };
        Self {
            follow: Follow::new(upstream, who.upstream.clone(), terms.recorder()),
            known: Mutex::new(known),
            watching: Arc::new(Watching::new(config.watch, clock, Arc::clone(terms.maintained()))),
            observing: Mutex::default(),
            stopping: AtomicBool::new(false),
            who,
            config,
            terms,
            clock,
            store,
        }
    }

    pub fn node(&self) -> NodeId {
        self.who.node
    }

    /// Where other nodes reach it.
    pub fn address(&self) -> &str {
        &self.who.address
    }

    /// No other mutex is taken under this one.
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no code panics under this mutex")
    }

    /// Everyone whom it knows of.
    pub fn peers(&self) -> Vec<Peer> {
        self.known().peers.clone()
    }

    /// Whether commits may wait for it.
    pub fn is_counted(&self) -> bool {
        self.config.member && self.config.synchronous
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// To those who have to ask another node.
    pub fn not_primary(&self) -> Refusal {
        Refusal::NotPrimary { node: self.node(), primary: self.followed_address() }
    }

    /// The thread that follows ends, and so does its connection.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.watching.stop();
        self.follow.stop();
    }

    /// The log flows, as it was welcomed.
    pub fn linked(&self, welcome: &Welcome) {
        self.known().view.linked(welcome.term, !welcome.above.is_empty());
        self.watching.linked();
    }

    /// The connection to whom it follows is over.
    pub fn closed(&self) {
        self.known().view.closed();
        self.watching.closed();
    }

    /// Whether an election is due without the primary that this node has lost: it is about to
    /// stand, and may lead if others let it, as far as it knows.
    pub fn elects(&self) -> bool {
        let level = known_level(self.level(), None);
        self.watching.elects() && is_unattended(level, self.terms.get().set.as_ref()).is_ok()
    }

    /// What the primary said of the cluster: its number of standbys and its safety level.
    pub fn level(&self) -> Option<Safety> {
        self.known().view.level()
    }

    /// Where the primary is that this node follows, as far as it knows.
    pub fn primary_address(&self) -> Option<String> {
        match self.follow.primary() {
            (Some(primary), _) => self.address_of(primary),
            (None, address) => address,
        }
    }

    /// The same for others: whom this node only tries to reach need not be one. Nodes without a
    /// primary would send others round in a circle.
    pub fn followed_address(&self) -> Option<String> {
        self.primary_address().filter(|_| self.follow.following().is_some())
    }

    fn address_of(&self, node: NodeId) -> Option<String> {
        self.known().peers.iter().find(|peer| peer.node == Some(node)).map(|peer| peer.address.clone())
    }

    /// The term under which this node lives, and where its primary is, as far as that is known.
    pub fn living(&self) -> Option<(Living, Option<String>)> {
        let fence = self.terms.fence();
        let known = self.known();
        let (living, hearsay) = known.view.living(&fence, self.clock.now())?;
        if !hearsay && self.watching.suspects() {
            return None;
        }
        let address = hearsay.then(|| known.announced_address.clone());
        drop(known);
        Some((living, address.or_else(|| self.primary_address())))
    }

    /// The primary hands this node its role.
    ///
    /// # Errors
    /// [`Refusal`] unless this node follows that primary.
    pub fn is_handed(&self, hand_over: HandOver) -> Result<(), Refusal> {
        let by = Living { term: hand_over.term, node: hand_over.by };
        if self.living().is_none_or(|(living, _)| living != by) {
            return Err(self.not_primary());
        }
        tracing::info!(by = %by.node, term = by.term.0, "the primary hands this node its role");
        self.watching.hand_over(hand_over);
        Ok(())
    }

    /// A node has announced that it leads, or is about to, and where it is.
    pub fn observe_primary(&self, living: Living, address: &str) {
        let mut known = self.known();
        known.view.observe_primary(living, self.clock.now());
        // A primary of before has said so.
        known.ahead.retain(|one| one.node != living.node);
        address.clone_into(&mut known.announced_address);
    }

    /// A node has announced that it does not lead: what it said before no longer counts. Who asks
    /// where a primary lives would be led to one that has yielded.
    pub fn observe_not_leading(&self, node: NodeId) {
        self.known().view.observe_not_leading(node);
    }

    /// Another node has said this of maintenance.
    pub fn observe_maintenance(&self, notice: Notice) {
        if self.terms.maintained().observe(notice) {
            self.watching.look();
        }
    }

    /// The primary has announced who is in the cluster, and what it promises.
    pub fn observe_peers(&self, message: Peers) {
        let peers = {
            let mut known = self.known();
            known.view.observe_level(message.safety);
            (known.ahead, known.two_primaries) = (message.ahead, message.two_primaries);
            known.ahead.truncate(MOST_AHEAD);
            known.two_primaries.truncate(MOST_AHEAD);
            let old = std::mem::replace(&mut known.peers, message.peers);
            for peer in old {
                if peer.node.is_none() && known.peers.iter().all(|other| other.address != peer.address) {
                    known.peers.push(peer);
                }
            }
            known.peers.clone()
        };
        self.terms.remember(&peers, self.address());
        S::peers_changed(self);
    }

    /// What this node holds, and what is left of its leases, for a candidate. To be read after the
    /// fence has risen.
    pub fn log_state(&self) -> LogState {
        let log = S::log_state(self);
        LogState { lease: self.watching.lease_left(self.terms.get().lease), ..log }
    }

    /// How this node introduces itself.
    pub fn hello(&self, purpose: Purpose) -> Hello {
        let (cluster, address) = (self.terms.get().cluster, self.address().to_owned());
        Hello { cluster, node: self.node(), address, purpose }
    }

    /// Follows the node at `upstream` until something ends it, and takes the memory back, whatever
    /// that was.
    fn join(self: &Arc<Self>, upstream: &str, order: u64) -> SessionError {
        let live = || {
            S::prepare(self, upstream, order)?;
            let connection = connect(self, upstream, order)?;
            if !self.follow.offer(order) {
                return Err(SessionError::Interrupted);
            }
            let outcome = S::feed(self, upstream, connection);
            S::take_back(self)?;
            self.follow.revoked();
            outcome
        };
        match live() {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }
}
