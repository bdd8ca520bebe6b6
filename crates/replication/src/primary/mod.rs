//! The primary's side: commit, and who is fed ([`crate::feed`]: ship, ack).
//!
//! Threads: one `ship` and one `ack` per standby, one `watch` that lets time pass in the commit
//! rule, one `announce` that makes a new term known to nodes which are not connected, one `witness`
//! that asks the cluster's witness, one `authority` that sees to who signs certificates. All of
//! them sleep unless there is something to do.

mod accept;
mod announce;
mod authority;
mod commit;
mod level;
mod meet;
mod on_record;
mod remove;
mod report;
mod stuck;
mod switch_over;
mod table;
mod upgrade;
mod waits;
mod witness;

use std::{
    collections::BTreeSet,
    io,
    time::{Duration, Instant},
};

use freshet_base::{
    ClusterId, CommitGate, Lsn, NodeId, StateProof, Term,
    sync::{Arc, Mutex, MutexGuard, Ordering},
};
use freshet_cluster::{
    begin_again::{self, Cluster, Seen, Verdict},
    commit_rule::{self, Event, RuleConfig, Standing},
    contest::{self, Contest, ContestConfig},
    handshake::Sender,
    in_sync::{Holder, Succession},
    stuck::{Stuck, StuckConfig},
    switch_over::SwitchOver,
    term::{Living, TermEntry},
};
use freshet_log::{Log, SinkHandle};
use freshet_membership::Credentials;

pub use self::{
    authority::RotateError,
    commit::CommitStage,
    level::ChangeLevelError,
    remove::RemoveError,
    switch_over::{SwitchOverError, SwitchedOver, UnderWay, Unfit},
    upgrade::FinishUpgradeError,
    waits::{StandbyWaits, VisibleWanted},
};
use crate::{
    bell::Bell,
    clock::Clock,
    endpoint::Service,
    feed::{self, FeedConfig, Feeder, Feeds},
    members::reach::Reach,
    status::{PrimaryStatus, StandbyStatus, TwoPrimaries},
    terms::Terms,
    whole_cluster::WholeCluster,
    wire::{Hello, Peer, Purpose},
};

/// The parameters of a term.
#[derive(Clone, Debug)]
pub struct PrimaryConfig {
    /// What a commit waits for.
    pub rule: RuleConfig,
    /// No more bytes of the log than this are to be uncommitted when a transaction begins to
    /// commit.
    pub uncommitted: u64,
    /// Other nodes that may exist, beside those that connect.
    pub peers: Vec<String>,
    /// How standbys are fed.
    pub feed: FeedConfig,
    /// What speaks against the state of this node: no standby begins again from one in doubt.
    pub proof: Arc<StateProof>,
}

impl PrimaryConfig {
    /// The customary parameters.
    pub fn new(rule: RuleConfig) -> Self {
        let (peers, feed, proof) = (Vec::new(), FeedConfig::default(), Arc::default());
        Self { rule, uncommitted: u64::MAX, peers, feed, proof }
    }
}

/// Who leads.
#[derive(Clone, Debug)]
pub struct PrimaryId {
    /// The cluster.
    pub cluster: ClusterId,
    /// This node.
    pub node: NodeId,
    /// Its log, as a member of in-sync sets.
    pub holder: Holder,
    /// The nodes that have answered it when it took over, or came back.
    pub answered: BTreeSet<NodeId>,
    /// The certificate that it shows to others.
    pub credentials: Credentials,
    /// Where other nodes reach it.
    pub address: String,
    /// Its term.
    pub term: Term,
    /// The end of the log when the term began, or when the process started.
    pub start: Lsn,
    /// What of the log below `start` is known to be persistent wherever the safety level demands
    /// it, between transactions: after a failover what the standby was told, at a restart zero, or
    /// what was noted. The rest is committed when something of this term is. Where commits count
    /// on no standby, all of it is, and this says nothing.
    pub committed: Lsn,
    /// What the in-sync sets of this term follow; `None` when they are not recorded. Under 2-safe
    /// nothing commits then before [`Primary::record_sets`] says how to.
    pub succession: Option<Succession>,
}

/// Puts an in-sync set, encoded, into the log, and says where its block ends.
type RecordSet = Box<dyn FnMut(&[u8]) -> Result<Lsn, String> + Send>;

/// Why an in-sync set could not be recorded.
#[derive(PartialEq, Eq)]
enum NotRecorded {
    /// The node's own terms cannot be written.
    Terms(String),
    /// The log accepts nothing more.
    Log(String),
}

pub(crate) struct Shared {
    config: PrimaryConfig,
    who: PrimaryId,
    terms: Terms,
    log: Arc<Log>,
    feeds: Feeds,
    commit: Arc<CommitStage>,
    peers: Mutex<Vec<Peer>>,
    announce: Bell,
    /// Wakes the thread that sees to the cluster's authority.
    authority: Bell,
    witness: witness::Asking,
    record: Mutex<Option<RecordSet>>,
    contest: Mutex<Contest>,
    /// What was last reported about the safety level and the standbys.
    reported: Mutex<report::Reported>,
    successor: Mutex<Successor>,
    /// This term.
    term_entry: TermEntry,
    /// Other primaries that this one has met.
    meetings: Mutex<Vec<TwoPrimaries>>,
    /// How far its log has become durable.
    stuck: Mutex<Stuck>,
    /// The switch-over that is under way.
    switching: Mutex<Option<SwitchOver>>,
    reach: Reach,
}

/// What this primary has observed of the node whose later term has ended its own.
#[derive(Default)]
struct Successor {
    /// When it last asked something on its way to the term.
    last_seen: Option<Instant>,
    /// How many are fetching the end of this log.
    fetching: u32,
    /// It leads.
    leads: bool,
    /// Where the log of this term, which is over, ends for those who take over.
    end: Option<Lsn>,
    /// Whom this primary has handed its role, in which term, and where that node is.
    handed: Option<(Living, String)>,
}

/// Who takes over and has not been heard for so long has given up, or knows all that it needs from
/// here.
const TAKES_OVER_FOR: Duration = Duration::from_secs(3);

/// A leading primary.
pub struct Primary {
    shared: Arc<Shared>,
    /// Its place at the log, until it stops.
    sink: Mutex<Option<Arc<SinkHandle>>>,
}

impl std::fmt::Debug for Primary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Primary({} in term {})", self.shared.who.node, self.shared.who.term)
    }
}

impl Successor {
    /// Whether it may still be on its way.
    fn is_on_its_way(&self) -> bool {
        self.last_seen.is_some_and(|seen| seen.elapsed() < TAKES_OVER_FOR)
    }
}

impl Primary {
    /// Begins to lead: `terms` has entered the term already. `log` ends at `who.start`, and is
    /// shipped from now on; what of it is committed, `who.committed` says.
    ///
    /// The endpoint's service is then set to [`Primary::service`].
    ///
    /// # Errors
    /// What the system says when a thread cannot be started.
    pub fn start(who: PrimaryId, config: PrimaryConfig, log: Arc<Log>, terms: Terms) -> io::Result<Self> {
        let clock = Clock::start();
        let commit = CommitStage::new(&config, &who, clock, Arc::clone(&log), terms.recorder());
        let mut peers: Vec<Peer> = config.peers.iter().cloned().map(Peer::at).collect();
        peers.retain(|peer| peer.address != who.address);
        peers.push(Peer { node: Some(who.node), address: who.address.clone(), serves: true });
        let history = terms.get().history;
        let (term, start, node) = (who.term, who.start, who.node);
        let entered =
            history.entries().iter().find(|term_entry| (term_entry.term, term_entry.node) == (term, node)).copied();
        let term_entry = entered.unwrap_or(TermEntry { term, start, node, nonce: 0 });
        let sender = Sender {
            cluster: who.cluster,
            node: who.node,
            term: who.term,
            above: Vec::new(),
            history,
            end: who.start,
            needed_capacity: config.feed.needed_capacity(),
            keep_alive_ms: config.feed.keep_alive_ms(),
            lease_ms: config.rule.lease.map_or(0, |lease| lease.as_millis() as u32),
        };
        let stuck = Mutex::new(Stuck::new(StuckConfig::default(), log.durable(), commit.now()));
        let shared = Arc::new(Shared {
            feeds: Feeds::new(config.feed.clone(), sender, clock, &terms),
            config,
            who,
            terms,
            log,
            commit: Arc::new(commit),
            peers: Mutex::new(peers),
            announce: Bell::default(),
            authority: Bell::default(),
            witness: Default::default(),
            record: Mutex::new(None),
            contest: Mutex::new(Contest::new(ContestConfig::default())),
            reported: Mutex::default(),
            successor: Mutex::default(),
            meetings: Mutex::default(),
            stuck,
            switching: Mutex::default(),
            reach: Reach::default(),
            term_entry,
        });
        shared.terms.lead(shared.who.term, &shared);
        let sink = Arc::new(shared.log.attach(Arc::clone(&shared) as _));
        let primary = Self { shared, sink: Mutex::new(Some(Arc::clone(&sink))) };
        primary.shared.feeds.peers_changed();
        feed::committed(&*primary.shared, primary.shared.commit.committed());
        primary.shared.remember_peers();
        if !primary.shared.log.has_store() {
            primary.shared.spawn("log-hold".into(), move |shared| shared.hold(&sink))?;
        }
        primary.shared.spawn("watch".into(), |shared| shared.watch())?;
        primary.shared.spawn("announce".into(), |shared| announce::run(&shared))?;
        primary.shared.spawn("witness".into(), |shared| witness::run(&shared))?;
        primary.shared.spawn("authority".into(), |shared| authority::run(&shared))?;
        Ok(primary)
    }

    /// From now on changes of the in-sync set are recorded by `record`, which puts a block with
    /// these bytes into the log and says where it ends. It is called by a thread of this primary's
    /// own, and may block.
    pub fn record_sets(&self, record: impl FnMut(&[u8]) -> Result<Lsn, String> + Send + 'static) {
        *self.shared.record.lock().expect("no code panics under this mutex") = Some(Box::new(record));
        self.shared.commit.look();
    }

    /// What commits wait for.
    pub fn commit(&self) -> &Arc<CommitStage> {
        &self.shared.commit
    }

    /// Answers those who connect to this node's endpoint.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(accept::PrimaryService(Arc::clone(&self.shared)))
    }

    /// Whether this term has ended because another has begun, or stood down for one.
    pub fn is_fenced(&self) -> bool {
        self.shared.is_fenced()
    }

    /// Whether a node cannot follow this one, since it has promised the term to another: it says so
    /// again and again. Cheap.
    pub fn is_contested(&self) -> bool {
        !self.shared.is_fenced() && self.shared.contest().is_contested(self.shared.feeds.clock.now())
    }

    /// What to do about that. To be asked where no person sees to it.
    pub fn leaves_contested_term(&self) -> contest::Next {
        let blocked = matches!(self.shared.commit.standing(), Standing::Blocked { .. });
        self.shared.contest().next(blocked, self.shared.feeds.clock.now())
    }

    /// No node has taken the role that was offered for that.
    pub fn role_not_taken(&self) {
        self.shared.contest().not_taken();
    }

    /// Whether this node is to follow another: the term has ended, and the node that takes over
    /// needs nothing more from this primary. That is so when the successor has made itself known,
    /// or has been silent for a while; until then it may have to fetch the end of this log.
    pub fn is_succeeded(&self) -> bool {
        self.shared.is_fenced() && !self.shared.stands_still() && {
            let successor = self.shared.successor();
            successor.leads || (successor.fetching == 0 && !successor.is_on_its_way())
        }
    }

    /// Ends this term because another has begun: nothing is acknowledged any more.
    pub fn fence(&self, by: Term) {
        self.shared.fence(by);
    }

    /// Notes for a restart what was acknowledged to clients, where that was more than a promise of
    /// this node alone. Cheap enough for every
    /// [`NOTE_COMMITTED_EVERY`](crate::terms::NOTE_COMMITTED_EVERY).
    pub fn note_committed(&self) {
        self.shared.note_committed();
    }

    /// Whether a standby is connected whose state was not found to be this node's since it joined.
    pub fn awaits_proof(&self) -> bool {
        self.shared.feeds.awaits_proof()
    }

    /// Everyone whom this primary knows, itself included.
    pub fn peers(&self) -> Vec<Peer> {
        self.shared.known()
    }

    /// While this is kept, standbys say at once what has become visible there. It has to be asked
    /// for before the commit that is waited for.
    pub fn want_visible(&self) -> VisibleWanted {
        self.shared.feeds.visible_wanted.fetch_add(1, Ordering::SeqCst);
        VisibleWanted(Arc::clone(&self.shared))
    }

    /// For waits for its standbys, beside what the node's level waits for.
    pub fn waits(&self) -> StandbyWaits {
        StandbyWaits(Arc::clone(&self.shared))
    }

    /// As things stand.
    pub fn status(&self) -> PrimaryStatus {
        self.shared.status()
    }

    /// This node, for what concerns the whole cluster.
    pub fn whole_cluster(&self) -> Arc<dyn WholeCluster> {
        Arc::clone(&self.shared) as _
    }

    /// Lets all connections and threads go. The commit rule remains and says no more.
    pub fn stop(&self) {
        self.shared.stop();
        drop(self.sink.lock().expect("no code panics under this mutex").take());
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// How this node introduces itself to others.
    fn hello(&self, purpose: Purpose) -> Hello {
        let PrimaryId { cluster, node, ref address, .. } = self.who;
        Hello { cluster: Some(cluster), node, address: address.clone(), purpose }
    }

    fn stopping(&self) -> bool {
        self.feeds.stopping()
    }

    fn spawn(self: &Arc<Self>, name: String, run: impl FnOnce(Arc<Self>) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(self);
        self.feeds.spawn(name, move || run(shared))
    }

    /// The hold thread, where the log has no store: workers may not overwrite what standbys have
    /// yet to be sent. What is committed has been sent to everyone that the safety level waits for.
    fn hold(&self, sink: &SinkHandle) {
        let mut at = Lsn::ZERO;
        // Block by block, or a transaction that is longer than the buffer would never get there.
        while let Ok(to) = self.commit.reached().wait(at.plus(1), None) {
            sink.release(to);
            at = to;
        }
    }

    /// Where `node` was reached last, before this start too.
    fn address_of(&self, node: NodeId) -> Option<String> {
        self.feeds.address_of(node).or_else(|| self.terms.recall(node))
    }

    /// For a restart, which has to find the others.
    fn remember_peers(&self) {
        let peers = self.known();
        self.terms.remember(&peers, &self.who.address);
    }

    /// Everyone whom it knows of, itself included.
    fn known(&self) -> Vec<Peer> {
        self.peers.lock().expect("no code panics under this mutex").clone()
    }

    fn note_committed(&self) {
        if !self.commit.level().counts_on_nobody() {
            self.terms.note_committed(self.commit.committed());
        }
    }

    fn is_fenced(&self) -> bool {
        matches!(self.commit.refusal(), Some(commit_rule::Refusal::Fenced { .. }))
    }

    fn fence(&self, by: Term) {
        if by <= self.who.term || !self.terms.believes(by) {
            return;
        }
        // Before anybody can find that the term is over.
        self.successor().last_seen = Some(Instant::now());
        self.apply(Event::Fenced { by });
        self.commit.let_go();
        // All that this term will ever acknowledge. Whom this node follows next must have it.
        self.note_committed();
        self.feeds.end();
    }

    fn successor(&self) -> MutexGuard<'_, Successor> {
        self.successor.lock().expect("no code panics under this mutex")
    }

    fn contest(&self) -> MutexGuard<'_, Contest> {
        self.contest.lock().expect("the machine panics only on a bug of its own")
    }

    /// The node at `address` has promised this term to another.
    fn contested(&self, address: &str) {
        let term = self.who.term;
        if self.contest().refused(self.feeds.clock.now()) {
            tracing::warn!(
                term = term.0,
                address,
                "the term of this primary is contested: a node that has promised it to another follows only in a \
                 later term"
            );
        }
        let was_fenced = self.is_fenced();
        self.apply(Event::Contested { term, rival: None });
        if !was_fenced && self.is_fenced() {
            tracing::warn!(term = term.0, "this primary resigns, having committed nothing in its term");
            self.feeds.end();
        }
    }

    /// Lets time pass in the commit rule.
    fn watch(&self) {
        let mut reported = None;
        while !self.stopping() {
            self.commit.sleep_until_deadline();
            self.look_whether_stuck();
            self.apply(Event::Tick);
            // Commits wait for a record. The next round tries again, as when a disk has room again.
            let failed = self.record_set().err();
            if failed != reported {
                self.report_not_recorded(failed.as_ref());
                reported = failed;
            }
        }
    }

    fn report_not_recorded(&self, why: Option<&NotRecorded>) {
        let term = self.who.term.0;
        match why {
            Some(NotRecorded::Terms(cause)) => {
                tracing::error!(term, cause, "the in-sync set cannot be recorded: commits wait; it is tried again");
            }
            // The log has failed, and has said so, or was closed.
            Some(NotRecorded::Log(cause)) => tracing::debug!(term, cause, "the log takes no in-sync set any more"),
            None => tracing::info!(term, "the in-sync set can be recorded again"),
        }
    }

    /// Whether a standby whose state is in doubt since the mark `since` may begin again. If so, it
    /// is first let go by commits and in-sync sets: what it holds counts nowhere when it goes.
    fn may_begin_again(&self, standby: NodeId, since: Lsn) -> Verdict {
        if self.is_fenced() {
            return Verdict::Wait("the term of this primary is over".into());
        }
        let members = self.commit.places();
        let keep_up = self.commit.keep_up();
        let seen = |status: StandbyStatus| Seen {
            node: status.node,
            connected: status.connected,
            in_doubt: status.in_doubt,
            mirror: status.mirror,
            equal_at: status.equal_at,
            keeps_up: keep_up.contains(&status.node),
        };
        let cluster = Cluster {
            primary_in_doubt: self.config.proof.reason().is_some(),
            safety: self.commit.level(),
            least: self.commit.least(),
            standbys: self.feeds.standbys(members, self.commit.committed()).into_iter().map(seen).collect(),
        };
        let verdict = begin_again::decide(&cluster, standby, since);
        let excused = verdict == Verdict::Begin;
        self.apply(Event::Excused { standby, excused });
        match self.commit.relies_on(standby) {
            false if excused => {
                tracing::warn!(%standby, term = self.who.term.0, "a standby whose state is in doubt may begin again");
                verdict
            }
            true if excused => {
                Verdict::Wait("commits still count on it, until another in-sync set is in effect".into())
            }
            _ => verdict,
        }
    }

    fn stop(&self) {
        self.feeds.close();
        self.commit.end();
        self.announce.ring();
        self.witness.ring();
        self.authority.ring();
        self.feeds.stop();
        self.note_committed();
    }

    fn status(&self) -> PrimaryStatus {
        let (standing, durable, members) = self.commit.reading();
        let committed = self.commit.committed();
        let feeds = &self.feeds;
        let available = feeds.state().host.filled_to();
        let standing = match standing {
            fenced @ Standing::Fenced { .. } => fenced,
            others => match self.log.stall() {
                Some(why) => Standing::Stalled { why },
                None => self.commit.leased(others),
            },
        };
        PrimaryStatus {
            node: self.who.node,
            term: self.who.term,
            safety: self.commit.level(),
            wanted: self.commit.wanted_level(),
            level_pending: self.commit.level_pending(),
            set_pending: self.commit.set_pending(),
            standing,
            available,
            durable,
            committed,
            standbys: feeds.standbys(members, committed),
            observers: feeds.observers(),
            witness: self.witness_status(),
            ship_cpu: feeds.ship_cpu.total() + feeds.prompt_cpu.total(),
            prompt_cpu: feeds.prompt_cpu.total(),
            ack_cpu: feeds.ack_cpu.total(),
            pack_cpu: feeds.pack_cpu.total(),
            packed_bytes: feeds.packed.load(Ordering::Relaxed),
            live_batches: feeds.live.load(Ordering::Relaxed),
            prompt_batches: feeds.prompt.load(Ordering::Relaxed),
            mirror_batch_bytes: feeds.batch_bytes(),
            ahead: feeds.ahead(),
            two_primaries: self.meetings().clone(),
        }
    }
}
