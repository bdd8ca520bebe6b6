//! The standby's side: receive, persist, ack, replay, visible.
//!
//! Threads: `receive` follows the primary, takes what that has written into the log buffer, and
//! reconnects for ever; `ack` waits until the log is persistent and tells the primary; `replay`
//! hands batches to the [`ReplayTarget`]. Persisting is the log's own work (`persist-N`). What
//! to do is decided by [`Follower`]: the threads tell it what has happened, and carry out what it
//! says.

mod ack;
mod config;
mod forms;
mod lag;
mod original;
mod passage;
mod receive;
mod relay;
mod replay;
mod sets;
mod store;

use std::{
    io,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{
    Lsn, Stage, Watermark,
    sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard},
};
pub use freshet_cluster::follower::ReplayMode;
use freshet_cluster::{
    follower::{Decision, Follower, Seen},
    recording::Recorded,
    term::TermState,
};
use freshet_fabric::cpu::Meter;
use freshet_log::{KEEP_ASIDE, Log, OutOfSpace, ReceiveError, Receiver};

#[cfg(test)]
pub(crate) use self::original::originals;
use self::{
    ack::AckStage,
    forms::{Backlog, FormsStage},
    lag::LagMeter,
    original::Originals,
    passage::PassageMeter,
    relay::RelayStage,
};
pub use self::{
    config::{JournalPlace, StandbyConfig},
    forms::ArrivedLog,
    relay::RelayConfig,
    replay::{ReplayError, ReplayTarget},
};
use crate::{
    clock::Clock,
    endpoint::Service,
    follow::{self, FollowService, FollowerId, JoinError, SessionError, Watching},
    forms::{Arrivals, Encoding, Missing},
    link::LinkMeter,
    load::Done,
    promotion::{PromoteError, PromoteOptions, Promoted, promotion},
    status::{AheadStatus, Load, MOST_AHEAD, OwnStatus},
    terms::Terms,
    whole_cluster::WholeCluster,
    wire::{Continue, Peer, Refusal},
};

/// What a standby keeps what it gets in: a log, which it replays.
pub(crate) struct LogStore {
    config: StandbyConfig,
    pub log: Arc<Log>,
    /// Fills the log; none once that is another's work. Used by the receiving thread, and by a
    /// failover while that rests.
    pub receiver: Mutex<Option<Receiver>>,
    acks: AckStage,
    target: Arc<dyn ReplayTarget>,
    relay: Option<RelayStage>,
    /// If this node can take in another form of the log.
    forms: Option<FormsStage>,
    /// It asks for that.
    asks: AtomicBool,
    /// Up to here readers see everything; moves with the follower's, under the same mutex.
    visible: Arc<Watermark>,
    state: Mutex<State>,
    /// There is a piece to replay, or one is replayed and a thread waits for that.
    changed: Condvar,
    receive_cpu: Meter,
    ack_cpu: Meter,
    replay_cpu: Meter,
    journal_cpu: Meter,
    /// How busy this node was when the thread that acknowledges looked last.
    load: Mutex<Option<Load>>,
}

pub(crate) type Shared = follow::Shared<LogStore>;

/// What the threads of a standby share. No log, table or connection is waited for under its mutex.
pub(crate) struct State {
    pub follower: Recorded<Follower>,
    lag: LagMeter,
    link: LinkMeter,
    arrivals: Arrivals,
    backlog: Backlog,
    passage: PassageMeter,
    saved_tails: Vec<PathBuf>,
    /// Why nothing is replayed any more.
    failure: Option<ReplayError>,
    /// This number of threads wait until nothing is being replayed.
    waiting: u32,
    pub originals: Originals,
}

impl State {
    fn new(follower: Recorded<Follower>) -> Self {
        Self {
            follower,
            lag: LagMeter::default(),
            link: LinkMeter::default(),
            arrivals: Arrivals::default(),
            backlog: Backlog::default(),
            passage: PassageMeter::default(),
            saved_tails: Vec::new(),
            failure: None,
            waiting: 0,
            originals: Originals::default(),
        }
    }
}

/// A node that follows a primary, or waits to be told to.
pub struct Standby {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Standby {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Standby({})", self.shared.node())
    }
}

/// What a standby starts from.
#[derive(Clone, Copy, Debug)]
pub struct Starting {
    /// The restart has replayed the log up to here.
    pub replayed: Lsn,
    /// Known to be persistent wherever the safety level demands, at most what is persistent here:
    /// readers see that much at once.
    pub global: Lsn,
    /// Readers see nothing below this: where a fuzzy checkpoint ends, with which this node began.
    pub floor: Lsn,
}

impl Standby {
    /// This node, for what concerns the whole cluster.
    pub fn whole_cluster(&self) -> Arc<dyn WholeCluster> {
        Arc::clone(&self.shared) as _
    }

    /// Starts to follow. `log` is the log as it was recovered, which `receiver` fills; `terms` is
    /// what it says of itself.
    ///
    /// # Errors
    /// What the system says when a thread cannot be started. [`io::ErrorKind::InvalidInput`] when
    /// the primary would acknowledge by itself what this node is to acknowledge later
    /// ([`StandbyConfig::check`]).
    pub fn start(
        who: FollowerId,
        starting: Starting,
        config: StandbyConfig,
        (log, receiver): (Arc<Log>, Receiver),
        target: Arc<dyn ReplayTarget>,
        terms: Terms,
    ) -> io::Result<Self> {
        config.check().map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        log.note_replayed(config.replay.releases(starting.replayed));
        let follower = config.follower(who.node, &starting, &log);
        let regenerate = target.regenerates().filter(|_| config.may_regenerate());
        let opened = FormsStage::open(regenerate, config.journal.as_ref(), log.received().get(), starting.floor);
        let (forms, found) = opened.map_err(io::Error::other)?;
        let follow_config = config.follow.clone();
        let store = LogStore {
            acks: AckStage::default(),
            target,
            relay: config.relay.clone().map(RelayStage::new),
            forms,
            asks: AtomicBool::new(config.encoding != Encoding::Bytes),
            visible: Arc::new(Watermark::new(follower.visible())),
            state: Mutex::new(State::new(Recorded::new(follower, terms.recorder()))),
            changed: Condvar::new(),
            receive_cpu: Meter::default(),
            ack_cpu: Meter::default(),
            replay_cpu: Meter::default(),
            journal_cpu: Meter::default(),
            load: Mutex::default(),
            config,
            log,
            receiver: Mutex::new(Some(receiver)),
        };
        let shared = Arc::new(Shared::new(who, follow_config, terms, Clock::start(), store));
        let (terms, noting) = (shared.terms.clone(), Arc::downgrade(&shared));
        shared.store.log.on_members(move |bytes| {
            let stops = || noting.upgrade().is_none_or(|shared| shared.stopping());
            let noted = sets::note_set(&terms, bytes, &stops);
            if let Some(shared) = noting.upgrade() {
                shared.noted(noted);
            }
        });
        let standby = Self { shared, threads: Mutex::default() };
        standby.shared.begin_forms(&found).map_err(io::Error::other)?;
        standby.spawn(Stage::Receive.name(), follow::run)?;
        standby.spawn(Stage::Ack.name(), ack::run)?;
        if standby.shared.has_journal() {
            standby.spawn("journal", forms::run)?;
        }
        standby.spawn(Stage::Replay.name(), replay::run).map(|()| standby)
    }

    fn spawn(&self, name: &str, run: fn(&Arc<Shared>)) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.into()).spawn(move || run(&shared))?;
        self.threads.lock().expect("no code panics under this mutex").push(thread);
        Ok(())
    }

    /// Up to here readers see everything, and beyond it nothing.
    pub fn visible(&self) -> &Arc<Watermark> {
        &self.shared.store.visible
    }

    /// What it has acknowledged and not regenerated yet, for those who write its checkpoints.
    pub fn arrived(&self) -> ArrivedLog {
        ArrivedLog(Arc::downgrade(&self.shared))
    }

    /// Answers those who connect to this node's endpoint.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(FollowService(Arc::clone(&self.shared)))
    }

    /// Follows the node at `address` from now on, without a restart.
    pub fn follow(&self, address: &str) {
        self.shared.follow.lead(Some(address.to_owned()));
    }

    /// Asks the node that it follows for the log in this form from now on, without joining again.
    /// What comes in the meantime may have either. Says whether it can: other than bytes only what
    /// can be regenerated here is asked for.
    pub fn ask_for(&self, encoding: Encoding) -> bool {
        self.shared.ask_for(encoding)
    }

    /// Asks the nodes that it knows, one after the other, for a node to follow. Without effect
    /// while it has one.
    pub fn look_around(&self) {
        let follow = &self.shared.follow;
        let order = follow.order();
        let peer = self.peers().into_iter().map(|peer| peer.address).find(|address| address != self.shared.address());
        if let Some(address) = peer.filter(|_| follow.upstream().is_none()) {
            follow.look_elsewhere(order, &address);
        }
    }

    /// Blocks until the standby follows its primary for the first time.
    ///
    /// # Errors
    /// [`JoinError`] with what went wrong last when `deadline` passes, at once when the standby
    /// cannot go on.
    pub fn wait_joined(&self, deadline: Instant) -> Result<(), JoinError> {
        self.shared.follow.wait_joined(deadline)
    }

    /// When it takes its primary for lost.
    pub fn watching(&self) -> Arc<Watching> {
        Arc::clone(&self.shared.watching)
    }

    /// Since when it is trying to follow another node, if it has not succeeded yet. An attempt ends
    /// after a few times its patience.
    pub fn tries_since(&self) -> Option<Instant> {
        self.shared.follow.tries_since()
    }

    /// What the journal of what has arrived waits for, if it lacks room.
    pub fn out_of_space(&self) -> Option<OutOfSpace> {
        self.shared.journal_out_of_space()
    }

    /// Everyone this standby knows of.
    pub fn peers(&self) -> Vec<Peer> {
        self.shared.peers()
    }

    /// Where the primary is that this standby follows; none while it follows nobody.
    pub fn followed_address(&self) -> Option<String> {
        self.shared.followed_address()
    }

    /// As things stand, without asking anybody.
    pub fn status(&self) -> OwnStatus {
        self.shared.status()
    }

    /// How far replay has been told of what has arrived; [`OwnStatus::received`] may be ahead.
    #[cfg(test)]
    pub(crate) fn accepted(&self) -> Lsn {
        self.shared.state().follower.received()
    }

    /// Turns this standby into the primary of a new term; afterwards it rests for good and is to be
    /// stopped. When it fails the standby follows its primary again, which may have been fenced by
    /// then. Blocks until the log is persistent and replayed.
    ///
    /// # Errors
    /// [`PromoteError`] says what is missing.
    pub fn promote(&self, options: &PromoteOptions) -> Result<Promoted, PromoteError> {
        promotion(&self.shared, options)
    }

    /// Lets the connection and all threads go. What was received stays, and may be promoted or
    /// followed from later.
    pub fn stop(&self) {
        self.shared.stop();
        drop(self.shared.state());
        self.shared.store.changed.notify_all();
        self.shared.store.log.durable_mark().wake();
        if let Some(forms) = &self.shared.store.forms {
            forms.stop();
        }
        let threads = std::mem::take(&mut *self.threads.lock().expect("no code panics under this mutex"));
        for thread in threads {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }

    /// Stops, and gives the log back to be filled by workers, or cut.
    pub fn into_receiver(self) -> Receiver {
        self.stop();
        self.shared.receiver().take().expect("it is given back once")
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.store.state.lock().expect("no code panics under this mutex but for a bug of its own")
    }

    fn receiver(&self) -> MutexGuard<'_, Option<Receiver>> {
        self.store.receiver.lock().expect("no code panics under this mutex but for a bug of the log")
    }

    /// Has the log's receiver do something.
    fn receive<T, E: From<ReceiveError>>(&self, act: impl FnOnce(&mut Receiver) -> Result<T, E>) -> Result<T, E> {
        self.receiver().as_mut().map_or(Err(ReceiveError::Closed.into()), act)
    }

    /// Waits until a piece is replayed.
    fn wait<'s>(&self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.waiting += 1;
        state = self.store.changed.wait(state).expect("no code panics under this mutex but for a bug of its own");
        state.waiting -= 1;
        state
    }

    /// Of a relay: tells those below.
    fn carry_out(&self, decision: Decision) {
        if (decision.places || decision.down.is_some() || decision.release.is_some())
            && let Some(session) = self.relaying()
        {
            session.carry_out(decision);
        }
    }

    /// The connection to whom this node follows is over; if `why` is known, that node is told.
    fn disconnect(&self, why: Option<&Refusal>) {
        self.closed();
        self.state().follower.closed();
        self.store.acks.disconnect(why);
    }

    /// Notes for a restart what was acknowledged to clients, as far as it is persistent here.
    fn note_committed(&self) {
        let (global, persisted) = {
            let state = self.state();
            (state.follower.global(), state.follower.persisted())
        };
        // Readers see that much when the node begins again.
        self.terms.note_committed(self.store.log.transaction_end(global.min(persisted)));
    }

    /// How busy this node was, if that is known.
    fn load(&self) -> Option<Load> {
        *self.store.load.lock().expect("no code panics under this mutex")
    }

    /// What this node has done so far for what it follows.
    fn done(&self) -> Done {
        let own = [&self.store.receive_cpu, &self.store.ack_cpu, &self.store.replay_cpu, &self.store.journal_cpu]
            .map(|meter| meter.total());
        let following =
            own.iter().sum::<Duration>() + self.store.log.statistics().thread_cpu + self.store.target.processor_time();
        Done { link_busy: self.state().link.busy(), following }
    }

    /// What is being passed on, if this node is a relay and was welcomed somewhere.
    fn relaying(&self) -> Option<Arc<relay::Session>> {
        self.store.relay.as_ref()?.session()
    }

    fn relay_config(&self) -> Option<&RelayConfig> {
        self.store.relay.as_ref().map(RelayStage::config)
    }

    /// Nothing is passed on any more, before the log changes otherwise than by going on.
    pub(crate) fn end_relay(&self) {
        if let Some(relay) = &self.store.relay {
            self.state().follower.passes_nothing();
            relay.end();
        }
    }

    /// Others that hold more than the cluster's log has, as this node has heard or, as a relay, has
    /// found out.
    fn ahead(&self) -> Vec<AheadStatus> {
        let below = self.relaying().map(|session| session.ahead()).unwrap_or_default();
        let mut ahead = self.known().ahead.clone();
        ahead.retain(|one| one.node != self.node() && below.iter().all(|other| other.node != one.node));
        ahead.extend(below);
        ahead.truncate(MOST_AHEAD);
        ahead
    }

    /// What it can acknowledge, and up to where it knows that clients were told of commits.
    fn holds(&self, terms: &TermState) -> (Lsn, Lsn) {
        let follower = &self.state().follower;
        (follower.to_join(), follower.acknowledged(terms))
    }

    /// How this log would go on.
    pub(crate) fn continuation(&self) -> Continue {
        let received = self.store.log.received().get().max(self.state().follower.received());
        Continue {
            history: self.terms.get().history,
            received,
            persisted: self.held().min(received),
            capacity: self.store.log.capacity(),
            may_send_until: self.store.log.free_until(),
        }
    }

    /// Cuts the log at `at`: saves what lies beyond, if that is to be kept, and has tables, log and
    /// follower forget it. Waits for what is being replayed.
    ///
    /// # Errors
    /// [`SessionError::NotSaved`] when nothing has changed; [`SessionError::Local`] when this node
    /// cannot continue.
    pub(crate) fn cut(&self, at: Lsn, save: bool) -> Result<(), SessionError> {
        let seen = |Seen { visible }| {
            SessionError::Local(format!(
                "the primary's log parts from this one at {at}, but readers here have seen up to {visible}: \
                 acknowledged commits were lost at a failover; start this standby with an empty directory"
            ))
        };
        let failed = |error: ReceiveError| SessionError::Local(error.to_string());
        let floor = {
            let state = self.state();
            state.follower.may_cut(at).map_err(seen)?;
            state.follower.floor()
        };
        if at < floor.min(self.store.log.received().get()) {
            return Err(SessionError::Local(of_another_log(at, floor)));
        }
        let directory = self.store.config.saved_tails.as_ref().filter(|_| save);
        let saved = directory.map(|directory| self.store.log.save_tail(directory, at)).transpose();
        let saved = saved.map_err(|cause| SessionError::NotSaved(cause.to_string()))?;
        {
            let mut state = self.state();
            state.saved_tails.extend(saved.flatten());
            state.follower.hold(at).map_err(seen)?;
            while state.follower.is_replaying() {
                state = self.wait(state);
            }
            if let Some(failure) = &state.failure {
                return Err(SessionError::Local(failure.to_string()));
            }
        }
        // What has arrived is taken back before the log is: nothing of it is completed any more.
        let forgotten = self.store.forms.as_ref().map_or(Ok(()), |forms| forms.cut(at));
        if let Err(why) = forgotten {
            self.state().follower.not_cut();
            return Err(SessionError::Local(why));
        }
        // Replay first: it reads the log, and must not meet the cut.
        let outcome = match self.store.target.cut(at) {
            Ok(()) => self.receive(|receiver| Ok(receiver.cut(at)?)).map_err(failed),
            Err(failure) => {
                let why = failure.to_string();
                self.replay_failed(&mut self.state(), failure);
                Err(SessionError::Local(why))
            }
        };
        match &outcome {
            Ok(()) => {
                let mut state = self.state();
                state.follower.cut(at);
                state.originals.cut(at);
            }
            Err(_) => self.state().follower.not_cut(),
        }
        self.store.changed.notify_all();
        // The cut has taken it back.
        self.store.log.note_replayed(self.store.config.replay.releases(Lsn::ZERO));
        outcome
    }

    fn status(&self) -> OwnStatus {
        let now = self.clock.now();
        let (received, persisted) = (self.store.log.received().get(), self.held());
        let relay = self.relaying().zip(self.relay_config()).map(|(session, config)| session.status(config.ack));
        let (ahead, two_primaries) = (self.ahead(), self.known().two_primaries.clone());
        let state = self.state();
        let (follower, lag) = (&state.follower, &state.lag);
        let (replayed, visible) = (follower.replayed(), follower.visible());
        // What was heard before the connection ended says nothing of now.
        let follows = self.follow.following().is_some();
        let behind = |lsn| lag.at(lsn, now).filter(|_| follows);
        OwnStatus {
            node: self.node(),
            replay: self.store.config.replay,
            encoding: self.encoding(),
            term: self.terms.fence().highest(),
            link: self.follow.status(),
            in_sync: lag.in_sync(now).filter(|_| follows),
            silence: lag.silence(now),
            age: lag.age(visible, now),
            commits_nothing: lag.commits_nothing(now).filter(|_| follows),
            received,
            arrived: follower.received(),
            persisted,
            replayed,
            global: follower.global(),
            visible,
            receive_lag: behind(received),
            persist_lag: behind(persisted),
            replay_lag: behind(replayed),
            visible_lag: behind(visible),
            passage: state.passage.reading(),
            receive_cpu: self.store.receive_cpu.total(),
            ack_cpu: self.store.ack_cpu.total(),
            replay_cpu: self.store.replay_cpu.total(),
            saved_tails: state.saved_tails.clone(),
            lacks: follower.lacks_memory().then(|| NO_MEMORY.to_owned()),
            missing: state.originals.missing().map(Missing::to_string),
            holds_more: self.follow.holds_more(),
            ahead,
            two_primaries,
            relay,
        }
    }
}

/// Of a standby that replays nothing for want of memory.
const NO_MEMORY: &str = "no memory left for tables: it receives and keeps the log, replays nothing and acknowledges \
                         nothing; raise memory-bytes, or give it more memory";

/// What the node's checkpoint, up to `floor`, holds is no part of the log, which is another one
/// from `at` on.
fn of_another_log(at: Lsn, floor: Lsn) -> String {
    format!(
        "the cluster's log is another from {at} on, and this node's checkpoint holds what was before up to {floor}: \
         {KEEP_ASIDE}; if what this node holds is to count instead, stop the primary, start this node again, and have \
         it lead (freshet promote --force)"
    )
}
