//! The standby's side: receive, persist, ack, replay, visible.
//!
//! Threads: `receive` follows the primary, takes what that has written into the log buffer, and reconnects for ever; `ack` waits for the
//! log's flusher and tells the primary; `replay` hands batches to the [`ReplayTarget`]. The flusher itself belongs to the log.

mod ack;
mod follow;
mod lag;
mod passage;
mod persist;
mod receive;
mod relay;
mod replay;
mod service;
mod visible;

use std::{
    io,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{
    NodeId, Stamp, Term, Watermark,
    sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    in_sync::InSyncSet,
    term::{Living, LogState},
};
use freshet_fabric::{FabricConfig, FabricKind, cpu::Meter, limit::TokenBucket};
use freshet_membership::Credentials;
use serde::{Deserialize, Serialize};

use self::{
    ack::AckStage, follow::Follow, lag::LagMeter, passage::PassageMeter, relay::RelayStage, replay::ReplayStage,
    visible::VisibleStage,
};
pub use self::{
    follow::JoinError,
    receive::SessionError,
    relay::RelayConfig,
    replay::{PersistShare, ReplayError, ReplayTarget},
};
use crate::{
    clock::Clock,
    endpoint::Service,
    log_access::StandbyStore,
    status::OwnStatus,
    terms::Terms,
    wire::{Continue, Hello, Peer, Peers, Purpose},
};

/// When a standby replays what it receives, and when it acknowledges it (Query Fresh, sections 3.2 and 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayMode {
    /// It acknowledges what is persistent; replay follows by itself (replay pipelining, Query Fresh section 3.2).
    #[default]
    Pipelined,
    /// It acknowledges what is replayed too, so replay is on the commit path and a take-over finds
    /// nothing left to replay. Readers here see a commit only when the primary has told of it, later
    /// than its client.
    Synchronous,
    /// It acknowledges what is persistent, and replays nothing while it follows (Query Fresh, section 4.6, "NoReplay"): its readers
    /// go on seeing what they saw when it started. Room in the log buffer is given back when it is persistent. A take-over replays
    /// everything first, from the log's files where it is not in the buffer any more, and so does a restart.
    None,
}

impl std::str::FromStr for ReplayMode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pipelined" => Ok(Self::Pipelined),
            "synchronous" => Ok(Self::Synchronous),
            "none" => Ok(Self::None),
            _ => Err(format!("unknown replay policy {text:?}: use none, synchronous or pipelined")),
        }
    }
}

impl std::fmt::Display for ReplayMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pipelined => "pipelined",
            Self::Synchronous => "synchronous",
            Self::None => "none",
        })
    }
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
    /// The primary reads back what it has written, which is then persistent (Query Fresh, section 2.3, the "appliance" method). Only the
    /// operator can know that: the log buffer is in persistent memory, and what the network writes goes around the processor's caches.
    pub appliance: bool,
}

/// A standby's parameters.
#[derive(Clone, Debug)]
pub struct StandbyConfig {
    /// When batches are replayed and acknowledged.
    pub replay: ReplayMode,
    /// No more bytes than this are handed to the replay target at once.
    pub replay_piece: u64,
    /// How long the primary may be silent, or take nothing in, before the connection is given up.
    pub patience: Duration,
    /// The first pause before connecting again, and the longest.
    pub back_off: (Duration, Duration),
    /// Other nodes that may exist, beside those that the primary tells of.
    pub peers: Vec<String>,
    /// How the primary reaches this node's memory.
    pub fabric: StandbyFabric,
    /// Whether commits may count on this node. An observer's acknowledgements free its primary's log, and no more.
    pub member: bool,
    /// Whether commits may wait for this node, if they may count on it.
    pub synchronous: bool,
    /// How it feeds standbys of its own, if it is a relay.
    pub relay: Option<RelayConfig>,
}

impl Default for StandbyConfig {
    fn default() -> Self {
        Self {
            replay: ReplayMode::Pipelined,
            replay_piece: 4 << 20,
            patience: Duration::from_secs(5),
            back_off: (Duration::from_millis(20), Duration::from_secs(2)),
            peers: Vec::new(),
            fabric: StandbyFabric::default(),
            member: true,
            synchronous: true,
            relay: None,
        }
    }
}

impl StandbyConfig {
    /// With the appliance method the primary acknowledges by itself, when its bytes have arrived:
    /// nothing else can be promised then.
    ///
    /// # Errors
    /// What is promised that cannot be.
    pub fn check(&self) -> Result<(), &'static str> {
        let downstream =
            self.relay.as_ref().is_some_and(|relay| relay.ack == freshet_cluster::relay::RelayAck::Downstream);
        match (self.fabric.appliance, self.replay) {
            (true, ReplayMode::Synchronous) => {
                Err("with the appliance method the primary acknowledges what has arrived, whether this node has \
                                                    replayed it or not: synchronous replay needs the general-purpose method")
            }
            (true, _) if downstream => Err(
                "with the appliance method the primary acknowledges what has arrived here, whether those below hold \
                                            it or not: acknowledgements from downstream need the general-purpose method",
            ),
            _ => Ok(()),
        }
    }
}

pub(crate) struct Shared {
    pub node: NodeId,
    /// The certificate that this node shows to others.
    pub credentials: Credentials,
    /// Where other nodes reach this one.
    pub address: String,
    pub config: StandbyConfig,
    pub store: Arc<dyn StandbyStore>,
    pub terms: Terms,
    pub clock: Clock,
    follow: Follow,
    acks: AckStage,
    replay: ReplayStage,
    relay: Option<RelayStage>,
    visible: VisibleStage,
    lag: Mutex<LagMeter>,
    passage: Mutex<PassageMeter>,
    peers: Mutex<Vec<Peer>>,
    promise: Mutex<Option<(u32, freshet_base::Safety)>>,
    /// Who has said last that it reigns, or is about to; where it is, and when that was.
    heard_of: Mutex<Option<(Living, String, Instant)>>,
    saved_tails: Mutex<Vec<PathBuf>>,
    receive_cpu: Meter,
    ack_cpu: Meter,
    replay_cpu: Meter,
    stopping: AtomicBool,
    /// Held while a thread raises the fence.
    hearing: Mutex<()>,
    /// An in-sync set was received and could not be noted.
    unnoted: AtomicBool,
}

/// A node that follows a primary, or waits to be told to.
pub struct Standby {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Standby {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Standby({})", self.shared.node)
    }
}

/// What a standby starts from.
#[derive(Clone, Debug)]
pub struct Starting {
    /// This node.
    pub node: NodeId,
    /// The certificate that it shows to others.
    pub credentials: Credentials,
    /// Where other nodes reach it.
    pub address: String,
    /// Whom to follow; `None` to wait until it is told.
    pub leader: Option<String>,
    /// The restart has replayed the log up to here.
    pub replayed: Stamp,
    /// Known to be persistent wherever the safety level demands, at most what is persistent here: readers see that much at once.
    pub global: Stamp,
    /// Readers see nothing below this: where a fuzzy checkpoint ends, with which this node began.
    pub floor: Stamp,
}

impl Standby {
    /// Starts to follow. `store` holds the log as it was recovered, `terms` what it says of itself.
    ///
    /// # Errors
    /// What the system says when a thread cannot be started. [`io::ErrorKind::InvalidInput`] when
    /// the primary would acknowledge by itself what this node is to acknowledge later
    /// ([`StandbyConfig::check`]).
    pub fn start(
        starting: Starting,
        config: StandbyConfig,
        store: Arc<dyn StandbyStore>,
        target: Arc<dyn ReplayTarget>,
        terms: Terms,
    ) -> io::Result<Self> {
        config.check().map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let peers = config.peers.iter().map(|address| Peer { node: None, address: address.clone() }).collect();
        store.mark_replayed(starting.replayed);
        let replay_until = match config.replay {
            ReplayMode::Pipelined | ReplayMode::Synchronous => Stamp::MAX,
            // Below the floor there is nothing that readers could see.
            ReplayMode::None => starting.floor,
        };
        let share: PersistShare = {
            let store = Arc::clone(&store);
            Arc::new(move |from, to| store.persist_share(from, to))
        };
        let shared = Arc::new(Shared {
            node: starting.node,
            credentials: starting.credentials,
            address: starting.address,
            follow: Follow::new(starting.leader),
            acks: AckStage::default(),
            replay: ReplayStage::new(target, share, starting.replayed, store.received(), replay_until),
            relay: config.relay.clone().map(RelayStage::new),
            visible: VisibleStage::new(starting.replayed, starting.global.min(store.persisted()), starting.floor),
            lag: Mutex::new(LagMeter::default()),
            passage: Mutex::default(),
            peers: Mutex::new(peers),
            promise: Mutex::new(None),
            heard_of: Mutex::new(None),
            saved_tails: Mutex::default(),
            receive_cpu: Meter::default(),
            ack_cpu: Meter::default(),
            replay_cpu: Meter::default(),
            stopping: AtomicBool::new(false),
            hearing: Mutex::default(),
            unnoted: AtomicBool::new(false),
            clock: Clock::start(),
            config,
            store,
            terms,
        });
        shared.keep_no_room();
        let (terms, noting) = (shared.terms.clone(), Arc::downgrade(&shared));
        shared.store.on_members(Box::new(move |bytes| {
            let noted = note_set(&terms, bytes);
            if let Some(shared) = noting.upgrade() {
                shared.noted(noted);
            }
        }));
        let standby = Self { shared, threads: Mutex::default() };
        standby.spawn("receive", follow::run)?;
        standby.spawn("ack", persist::run)?;
        standby.spawn("replay", replay::run)?;
        Ok(standby)
    }

    fn spawn(&self, name: &str, run: fn(&Arc<Shared>)) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.into()).spawn(move || run(&shared))?;
        self.threads.lock().expect("no code panics under this mutex").push(thread);
        Ok(())
    }

    /// Up to here readers see everything, and beyond it nothing.
    pub fn visible(&self) -> &Arc<Watermark> {
        self.shared.visible.watermark()
    }

    /// Answers those who connect to this node's endpoint.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(service::StandbyService(Arc::clone(&self.shared)))
    }

    /// Follows the node at `address` from now on, without a restart.
    pub fn follow(&self, address: &str) {
        self.shared.follow.lead(Some(address.to_owned()));
    }

    /// Asks the nodes that it knows, one after the other, for a node to follow. Without effect
    /// while it has one.
    pub fn look_around(&self) {
        let follow = self.shared.follow();
        let order = follow.order();
        let peer = self.peers().into_iter().map(|peer| peer.address).find(|address| *address != self.shared.address);
        if let Some(address) = peer.filter(|_| follow.leader().is_none()) {
            follow.look_elsewhere(order, &address);
        }
    }

    /// Blocks until the standby follows its primary for the first time.
    ///
    /// # Errors
    /// [`JoinError`] with what went wrong last when `deadline` passes, at once when the standby cannot go on.
    pub fn wait_joined(&self, deadline: Instant) -> Result<(), JoinError> {
        self.shared.follow.wait_joined(deadline)
    }

    /// Everyone this standby knows of.
    pub fn peers(&self) -> Vec<Peer> {
        self.shared.peers().clone()
    }

    /// As things stand, without asking anybody.
    pub fn status(&self) -> OwnStatus {
        self.shared.status()
    }

    /// Says below which stamp those who follow this node need nothing of its log any more; cheap, and does not keep the standby.
    pub fn needed(&self) -> impl Fn() -> Stamp + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().and_then(|shared| shared.relaying()).map_or(Stamp::MAX, |session| session.needed())
    }

    /// Lets the connection and all threads go. What was received stays, and may be promoted or followed from later.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.follow.stop();
        self.shared.replay.stop();
        let threads = std::mem::take(&mut *self.threads.lock().expect("no code panics under this mutex"));
        for thread in threads {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An in-sync set has arrived: it is noted before the log behind it is acknowledged.
fn note_set(terms: &Terms, bytes: &[u8]) -> Result<InSyncSet, String> {
    let set: InSyncSet = crate::wire::decode("in-sync set", bytes).map_err(|error| error.to_string())?;
    terms.note_set(set.clone()).map_err(|error| error.to_string())?;
    Ok(set)
}

impl Shared {
    /// How this node introduces itself.
    pub(crate) fn hello(&self, purpose: Purpose) -> Hello {
        Hello { cluster: self.terms.get().cluster, node: self.node, address: self.address.clone(), purpose }
    }

    /// An in-sync set has arrived.
    fn noted(&self, set: Result<InSyncSet, String>) {
        match set {
            Ok(set) if set.may_have(self.node) => self.follow.counted(),
            Ok(_) => {}
            Err(why) => {
                // What is behind the record must not be acknowledged.
                self.unnoted.store(true, Ordering::SeqCst);
                self.follow.fail(why);
            }
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.peers.lock().expect("no code panics under this mutex")
    }

    fn lag(&self) -> MutexGuard<'_, LagMeter> {
        self.lag.lock().expect("no code panics under this mutex")
    }

    /// What is being passed on, if this node is a relay and was welcomed somewhere.
    fn relaying(&self) -> Option<Arc<relay::Session>> {
        self.relay.as_ref()?.session()
    }

    fn relay_config(&self) -> Option<&RelayConfig> {
        self.relay.as_ref().map(RelayStage::config)
    }

    /// Nothing is passed on any more, before the log changes otherwise than by going on.
    pub(crate) fn end_relay(&self) {
        if let Some(relay) = &self.relay {
            relay.end();
        }
    }

    /// Where the primary is that this node follows, as far as it knows.
    fn primary_address(&self) -> Option<String> {
        match self.follow.primary() {
            (Some(primary), _) => {
                let peers = self.peers();
                peers.iter().find(|peer| peer.node == Some(primary)).map(|peer| peer.address.clone())
            }
            (None, address) => address,
        }
    }

    pub(crate) fn follow(&self) -> &Follow {
        &self.follow
    }

    pub(crate) fn replay(&self) -> &ReplayStage {
        &self.replay
    }

    /// What the primary said of the cluster: its number of standbys and its safety level.
    pub(crate) fn promised_safety(&self) -> Option<(u32, freshet_base::Safety)> {
        *self.promise.lock().expect("no code panics under this mutex")
    }

    /// `node` reigns in `term`, or is about to, as it says itself.
    fn heard_of(&self, term: Term, node: NodeId, address: &str) {
        let heard = (Living { term, node }, address.to_owned(), Instant::now());
        *self.heard_of.lock().expect("no code panics under this mutex") = Some(heard);
    }

    /// The reign under which this node lives, and where its primary is, as far as that is known:
    /// its log flows here, or it was heard of no longer ago than a primary may be silent.
    pub(crate) fn living(&self) -> Option<(Living, Option<String>)> {
        let fence = self.terms.get().fence;
        let reign = Living { term: fence.highest(), node: fence.holder()? };
        if self.follow.session() == Some(reign.term) {
            return Some((reign, self.primary_address()));
        }
        let heard = self.heard_of.lock().expect("no code panics under this mutex");
        let (_, address, _) =
            heard.as_ref().filter(|(heard, _, at)| *heard == reign && at.elapsed() < self.config.patience)?;
        Some((reign, Some(address.clone())))
    }

    fn heard_peers(&self, message: Peers) {
        *self.promise.lock().expect("no code panics under this mutex") = Some((message.standbys, message.safety));
        let mut peers = self.peers();
        let old = std::mem::replace(&mut *peers, message.peers);
        for peer in old {
            if peer.node.is_none() && peers.iter().all(|known| known.address != peer.address) {
                peers.push(peer);
            }
        }
        self.terms.remember(&peers, &self.address);
        drop(peers);
        if let Some(session) = self.relaying() {
            session.heard_peers();
        }
    }

    /// How this log would go on.
    pub(crate) fn continuation(&self) -> Continue {
        let received = self.store.received();
        Continue {
            history: self.terms.get().history,
            received,
            persisted: self.store.persisted().min(received),
            capacity: self.store.capacity(),
            may_send_until: self.store.free_until(),
        }
    }

    /// With the appliance method, the primary takes what it has read back for persistent, without
    /// asking: blocks until all that was received is persistent. To be called when no primary can
    /// write here any more.
    ///
    /// # Errors
    /// Why it is not by `deadline`.
    pub(crate) fn settle(&self, deadline: Instant) -> Result<(), String> {
        if !self.config.fabric.appliance {
            return Ok(());
        }
        let received = self.store.received();
        let mut persisted = self.store.persisted();
        while persisted < received {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!(
                    "the log is persistent here up to {persisted}, and was received up to {received}: ask again"
                ));
            }
            persisted = self.store.wait_persisted(persisted, left).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// What this log is like, for a candidate. To be read after the fence has risen, and no primary
    /// of before can write here any more: nothing persisted later is acknowledged to an earlier
    /// term.
    pub(crate) fn log_state(&self) -> LogState {
        LogState {
            history: self.terms.get().history,
            end: self.store.persisted(),
            set: self.terms.get().set,
            synchronous: self.is_counted(),
            committed: self.told_global(),
        }
    }

    /// Whether commits may count on this node.
    fn is_counted(&self) -> bool {
        self.config.member && self.config.synchronous
    }

    /// Below this, what this node holds is no state of the database.
    pub(crate) fn floor(&self) -> Stamp {
        self.visible.floor()
    }

    /// What this node was told to be persistent wherever the safety level demands; always between transactions.
    pub(crate) fn told_global(&self) -> Stamp {
        self.visible.global()
    }

    /// The log was cut where `replayed` ends.
    pub(crate) fn forget_replayed(&self, replayed: Stamp) {
        self.visible.set_replayed(replayed);
    }

    fn passage(&self) -> MutexGuard<'_, PassageMeter> {
        self.passage.lock().expect("no code panics under this mutex")
    }

    /// Without replay, what is persistent gives its room back. A cut of the log takes this back.
    fn keep_no_room(&self) {
        if self.config.replay == ReplayMode::None {
            self.store.mark_replayed(Stamp::MAX);
        }
    }

    /// Recomputes what readers may see, after one of its three bounds has moved.
    fn show(&self) {
        self.visible.update(self.store.persisted(), |at| self.store.transaction_end(at));
        if self.config.fabric.kind == FabricKind::Shm {
            self.passage().visible(self.visible.watermark().get(), self.clock.now());
        }
    }

    /// What commits may count on here: persistent, replayed if that is synchronous, and persistent below if this relay acknowledges for
    /// its standbys too.
    fn to_acknowledge(&self) -> Stamp {
        let mut persisted = self.store.persisted();
        if let Some(session) = self.relaying() {
            persisted = persisted.min(session.persisted(persisted));
        }
        if self.config.replay == ReplayMode::Synchronous {
            persisted = persisted.min(self.visible.replayed());
        }
        persisted
    }

    /// Acknowledges if there is something new, and the connection still counts.
    fn acknowledge(&self, anyway: bool) {
        if self.unnoted.load(Ordering::SeqCst) {
            return;
        }
        let replayed = self.visible.replayed();
        let ack = crate::wire::Ack {
            persisted: self.to_acknowledge(),
            may_send_until: if self.acks.is_one_sided() { self.store.grant() } else { self.store.free_until() },
            replayed,
            visible: self.visible.watermark().get(),
        };
        // Order matters: the fence is looked at after `persisted` was read (see `log_state`).
        let now = self.clock.now();
        self.acks.offer(ack, now, self.store.capacity() / 4, anyway, |term| self.terms.admits(term));
    }

    fn status(&self) -> OwnStatus {
        let now = self.clock.now();
        let (received, persisted) = (self.store.received(), self.store.persisted());
        let (replayed, visible) = (self.visible.replayed(), self.visible.watermark().get());
        let lag = self.lag();
        OwnStatus {
            node: self.node,
            replay: self.config.replay,
            term: self.terms.get().fence.highest(),
            link: self.follow.status(),
            in_sync: lag.in_sync(),
            silence: lag.silence(now),
            received,
            persisted,
            replayed,
            global: self.visible.global(),
            visible,
            receive_lag: lag.at(received, now),
            persist_lag: lag.at(persisted, now),
            replay_lag: lag.at(replayed, now),
            visible_lag: lag.at(visible, now),
            passage: self.passage().reading(),
            receive_cpu: self.receive_cpu.total(),
            ack_cpu: self.ack_cpu.total(),
            replay_cpu: self.replay_cpu.total(),
            saved_tails: self.saved_tails.lock().expect("no code panics under this mutex").clone(),
            relay: self.relaying().zip(self.relay_config()).map(|(session, config)| session.status(config.ack)),
        }
    }
}

/// Continues a resting standby's log from the node at `from`, up to `upto`, for a take-over.
pub(crate) fn fetch(
    shared: &Arc<Shared>,
    from: &str,
    purpose: crate::wire::Purpose,
    term: freshet_base::Term,
    upto: Stamp,
) -> Result<(), SessionError> {
    let outcome = receive::fetch(shared, from, purpose, term, upto);
    shared.acks.disconnect(outcome.as_ref().err().and_then(SessionError::refusal));
    outcome
}
