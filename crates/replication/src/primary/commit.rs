//! Commit: what the log and the standbys say, the rule that decides what is committed upon that,
//! and those who wait for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use freshet_base::{
    CommitGate, Lsn, NodeId, NotAdmitted, OutcomeOpen, Safety, Stage, Term, WaitError, Watermark, check,
    sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering},
    wait::Patience,
};
use freshet_cluster::{
    Moment,
    commit_rule::{CannotChange, CannotLeave, CommitRule, Event, Leaves, Member, Refusal, Standing},
    host::ReplicaState,
    in_sync::{Fingerprint, InSyncSet, Noted},
    meeting::Acknowledged,
    recording::{Recorded, Recorder},
};
use freshet_log::{Batch, Log, Noting, ReadError, Sink, TransactionEnds};

use super::{PrimaryConfig, PrimaryId, Shared, accept};
use crate::{
    bell::Bell,
    clock::Clock,
    feed::{self, Feeder, Feeds},
    wire::{Peer, Peers},
};

/// A primary whose threads all slept for this long did not stand still: they may have been late.
const LATE: Duration = Duration::from_millis(100);

/// Why a primary without a lease confirms nothing.
const LEASE_OVER: &str =
    "the lease of this primary is over: it hears too few of the other nodes, which may choose another primary";

/// When nothing was done for so long, the whole node stood still: the watch wakes twice as often.
fn stood_still(standby_timeout: Duration) -> Duration {
    standby_timeout.max(LATE)
}

/// The commit rule, shared: what commits wait for. When the log fails, no commit holds any more.
///
/// Waiting reads one watermark; the rule's mutex is taken a few times per batch, never per
/// transaction.
#[derive(Debug)]
pub struct CommitStage {
    log: Arc<Log>,
    /// No more bytes of the log are to be uncommitted when a transaction begins to commit.
    uncommitted: u64,
    state: Mutex<State>,
    clock: Clock,
    /// What the rule says.
    reached: Arc<Watermark>,
    /// The last end of a transaction at or below that.
    committed: Arc<Watermark>,
    /// Whether [`CommitRule::admit`] says no.
    refusing: AtomicBool,
    /// [`CommitRule::lease_until`].
    lease: AtomicU64,
    /// What a switch-over holds back.
    holding: Holding,
    /// Whether [`CommitRule::set_took_effect`] has said yes.
    effective: AtomicBool,
    watch: Bell,
    /// The watch sleeps until this moment.
    watched: AtomicU64,
}

/// What a switch-over holds back ([`freshet_cluster::switch_over`]).
#[derive(Debug)]
struct Holding {
    /// How many times transactions that would begin were held.
    holds: AtomicU64,
    /// How many of these times are over. Closed when the term is.
    over: Watermark,
    /// No transaction takes an LSN.
    closed: AtomicBool,
}

#[derive(Debug)]
struct State {
    rule: Recorded<CommitRule>,
    /// Where transactions end. The rule knows blocks only.
    ends: TransactionEnds,
    /// When an event was applied to the rule last.
    applied: Moment,
}

impl State {
    /// Returns up to where clients are told that everything is committed, at the most, and tells
    /// the rule, if that has a set to be written.
    fn announce(&mut self) -> Lsn {
        // Below where the term began no ends are known; nothing there is committed before
        // something of the term is.
        let whole = self.ends.below(self.rule.committed());
        if self.rule.to_write().is_some() {
            self.rule.announced(whole);
        }
        whole
    }
}

impl CommitStage {
    pub(crate) fn new(
        config: &PrimaryConfig,
        who: &PrimaryId,
        clock: Clock,
        log: Arc<Log>,
        recorder: &Recorder,
    ) -> Self {
        let &PrimaryConfig { rule: config, uncommitted, .. } = config;
        let (start, now) = (who.start, clock.now());
        // Of the inherited log, the end may be on this node alone. Where commits count on nobody
        // else that is enough.
        let level = who.succession.as_ref().map_or(config.safety, |before| before.kept_level(config.safety));
        let known = if level.counts_on_nobody() { start } else { who.committed.min(start) };
        let mut rule = CommitRule::new(config, start, now).known_committed(known);
        if let Some(succession) = &who.succession {
            rule = rule.recorded(who.holder, who.term, succession.clone(), &who.answered, now);
        }
        assert!(known <= start && rule.committed() <= known, "more is committed than the term begins with");
        let rule = Recorded::new(rule, recorder);
        Self {
            log,
            uncommitted,
            state: Mutex::new(State { rule, ends: TransactionEnds::new(start), applied: now }),
            clock,
            reached: Arc::new(Watermark::new(known)),
            committed: Arc::new(Watermark::new(known)),
            refusing: AtomicBool::new(false),
            lease: AtomicU64::new(0),
            holding: Holding {
                holds: AtomicU64::new(0),
                over: Watermark::new(Lsn::ZERO),
                closed: AtomicBool::new(false),
            },
            effective: AtomicBool::new(false),
            watch: Bell::default(),
            watched: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the rule panics only on a bug of its own")
    }

    /// What the rule knows.
    pub(super) fn rule<T>(&self, of: impl FnOnce(&CommitRule) -> T) -> T {
        of(&self.state().rule)
    }

    /// A standby leaves the cluster for good.
    ///
    /// # Errors
    /// As for [`CommitRule::leave`].
    pub(crate) fn leave(&self, standby: NodeId, how: Leaves) -> Result<(), CannotLeave> {
        let mut state = self.state();
        let left = state.rule.leave(standby, how, self.clock.now()).map(drop);
        state.announce();
        left
    }

    /// An operator wants another level.
    ///
    /// # Errors
    /// As for [`CommitRule::change_level`].
    pub(crate) fn change_level(&self, level: Safety) -> Result<(), CannotChange> {
        let mut state = self.state();
        let changed = state.rule.change_level(level, self.clock.now()).map(drop);
        state.announce();
        changed
    }

    /// [`CommitRule::level`].
    pub fn level(&self) -> Safety {
        self.state().rule.level()
    }

    /// [`CommitRule::level_pending`].
    pub(crate) fn level_pending(&self) -> Option<BTreeSet<NodeId>> {
        self.state().rule.level_pending()
    }

    /// [`CommitRule::set_pending`].
    pub(crate) fn set_pending(&self) -> Option<BTreeSet<NodeId>> {
        self.state().rule.set_pending()
    }

    /// [`CommitRule::wanted_level`].
    pub(crate) fn wanted_level(&self) -> Safety {
        self.state().rule.wanted_level()
    }

    /// Whether a witness may be of use at the level that is wanted.
    pub(crate) fn takes_witness(&self) -> bool {
        self.state().rule.takes_witness()
    }

    /// [`CommitRule::note`].
    pub(crate) fn note(&self, noted: &Noted) {
        let mut state = self.state();
        let _ = state.rule.note(noted, self.clock.now());
        state.announce();
    }

    /// [`CommitRule::authority`].
    pub(crate) fn authority(&self) -> Option<(u64, Option<Fingerprint>)> {
        self.state().rule.authority()
    }

    /// Of these keys, those that are not on record, nor on their way; and the nodes that are known
    /// by another one.
    pub(crate) fn unknown_keys(
        &self,
        keys: BTreeMap<NodeId, Fingerprint>,
    ) -> (BTreeMap<NodeId, Fingerprint>, Vec<NodeId>) {
        let state = self.state();
        let Some(roster) = state.rule.roster() else { return Default::default() };
        let is_new = |(node, key): &(NodeId, Fingerprint)| {
            roster.known.keys.get(node) != Some(key) && !roster.has_removed(*node)
        };
        let news: BTreeMap<_, _> = keys.into_iter().filter(is_new).collect();
        let changed = news.keys().filter(|node| roster.known.keys.contains_key(node)).copied().collect();
        (news, changed)
    }

    /// [`CommitRule::has_removed`].
    pub(crate) fn has_removed(&self, node: NodeId) -> bool {
        self.state().rule.has_removed(node)
    }

    /// The nodes whose keys are on record.
    pub(crate) fn known_nodes(&self) -> Vec<NodeId> {
        self.state().rule.roster().map(|roster| roster.known.keys.keys().copied().collect()).unwrap_or_default()
    }

    /// The nodes that belong to the cluster, as far as that is on record.
    pub(crate) fn voters(&self) -> Vec<NodeId> {
        self.state().rule.roster().map(|roster| roster.voters.iter().copied().collect()).unwrap_or_default()
    }

    /// For the watch thread: sleeps until time alone can change something, or that may have become
    /// sooner.
    pub(crate) fn sleep_until_deadline(&self) {
        let (deadline, timeout) = {
            let rule = &self.state().rule;
            (rule.next_deadline(), rule.config().standby_timeout)
        };
        // Deadlines come and go with every batch. This thread wakes twice per time-out, so it need
        // not be told of deadlines that begin later than its own sleep.
        let until = deadline.unwrap_or(Moment(u64::MAX)).min(self.clock.now().after(stood_still(timeout) / 2));
        self.watched.store(until.0, Ordering::SeqCst);
        // An event between the reading and the store rang nobody.
        let sooner = self.state().rule.next_deadline().is_some_and(|deadline| deadline < until);
        if !sooner {
            self.watch.sleep(Some(self.clock.instant(until)));
        }
    }

    /// Wakes the watch thread.
    pub(crate) fn look(&self) {
        self.watch.ring();
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Transactions that would begin wait from now on.
    pub(crate) fn hold(&self) {
        self.holding.holds.fetch_add(1, Ordering::SeqCst);
    }

    /// No transaction takes an LSN from now on, but for those that are about to.
    pub(crate) fn close(&self) {
        // SeqCst: pairs with the load in `admit`, behind the transaction's "committing".
        self.holding.closed.store(true, Ordering::SeqCst);
    }

    /// What was held and closed continues.
    pub(crate) fn release(&self) {
        self.holding.closed.store(false, Ordering::SeqCst);
        self.holding.over.advance(Lsn(self.holding.holds.load(Ordering::SeqCst)));
    }

    /// The term is over: what is held has nothing to wait for.
    pub(crate) fn let_go(&self) {
        self.holding.over.close();
    }

    /// The in-sync set that has to be recorded.
    pub(crate) fn set_to_write(&self) -> Option<InSyncSet> {
        self.state().rule.to_write().cloned()
    }

    pub(crate) fn set_took_effect(&self) -> bool {
        self.state().rule.set_took_effect()
    }

    /// Who holds what was committed in this term.
    pub(crate) fn acknowledged(&self) -> Acknowledged {
        self.state().rule.acknowledged()
    }

    /// Nothing is committed any more, and nobody waits any longer.
    pub fn end(&self) {
        self.let_go();
        self.reached.close();
        self.committed.close();
        self.watch.ring();
    }

    /// The standbys that have joined during this term. The witness is none.
    pub(crate) fn places(&self) -> BTreeMap<NodeId, Member> {
        standbys(&self.state().rule)
    }

    /// How many standbys belong to the cluster.
    pub(crate) fn expected(&self) -> u32 {
        self.state().rule.expected()
    }

    /// How many standbys have to keep up, without which nothing commits.
    pub(crate) fn least(&self) -> u32 {
        self.state().rule.least()
    }

    /// The standbys that hold at this moment what commits wait for.
    pub(crate) fn keep_up(&self) -> BTreeSet<NodeId> {
        self.state().rule.keep_up().collect()
    }

    /// Whether a commit, or a candidate, may still have to rely on the log of this standby.
    pub(crate) fn relies_on(&self, standby: NodeId) -> bool {
        self.state().rule.relies_on(standby)
    }

    pub(crate) fn reading(&self) -> (Standing, Lsn, BTreeMap<NodeId, Member>) {
        let rule = &self.state().rule;
        (rule.standing(), rule.durable(), standbys(rule))
    }

    /// Up to here the log is persistent wherever the safety level demands it, block by block: it
    /// may stand within a transaction that is on its way. [`CommitGate::committed`] follows.
    pub fn reached(&self) -> &Arc<Watermark> {
        &self.reached
    }

    /// How the promise of the safety level stands.
    pub fn standing(&self) -> Standing {
        self.state().rule.standing()
    }

    /// Why commits are refused, if they are, or if this node is not the primary any more. One
    /// atomic load while all is well.
    pub fn refusal(&self) -> Option<Refusal> {
        if self.refusing.load(Ordering::SeqCst) { self.state().rule.admit().err() } else { None }
    }

    /// Whether no other node can lead at this moment. To be asked when an answer is ready, and not
    /// before: this thread may have stood still since.
    fn is_leased(&self) -> bool {
        self.lease_over().is_none()
    }

    /// Since when another node can lead, if one can.
    pub(crate) fn lease_over(&self) -> Option<Moment> {
        let until = self.lease.load(Ordering::SeqCst);
        (until != u64::MAX && self.clock.now() >= Moment(until)).then_some(Moment(until))
    }

    /// How the promise stands that the rule has as `standing`: without a lease it is not kept,
    /// since nothing is confirmed.
    pub(crate) fn leased(&self, standing: Standing) -> Standing {
        match (standing, self.lease_over()) {
            (Standing::Safe | Standing::Degraded { .. }, Some(since)) => {
                Standing::LeaseOver { since, why: LEASE_OVER.into() }
            }
            (standing, _) => standing,
        }
    }

    fn log_failed(&self) -> Option<OutcomeOpen> {
        self.log.failure().map(|failure| OutcomeOpen::LogFailed(failure.to_string()))
    }
}

fn standbys(rule: &CommitRule) -> BTreeMap<NodeId, Member> {
    rule.members().filter(|(_, member)| !member.witness).map(|(node, member)| (node, *member)).collect()
}

fn refused(refusal: Refusal) -> OutcomeOpen {
    match refusal {
        Refusal::Fenced { by } => OutcomeOpen::Fenced(by),
        other => OutcomeOpen::Refused(other.to_string()),
    }
}

impl CommitGate for CommitStage {
    /// Also the globally persistent LSN. It always stands between transactions.
    fn committed(&self) -> Lsn {
        self.committed.get()
    }

    fn admit(&self) -> Result<(), NotAdmitted> {
        if let Some(refusal) = self.refusal() {
            let why = refusal.to_string();
            let deposed = matches!(refusal, Refusal::Fenced { .. });
            return Err(if deposed { NotAdmitted::Deposed(why) } else { NotAdmitted::Refused(why) });
        }
        if self.holding.closed.load(Ordering::SeqCst) { Err(NotAdmitted::HandsOver) } else { Ok(()) }
    }

    fn wait_to_begin(&self, patience: Patience<'_>) -> Result<(), WaitError> {
        // Acquire would do: who begins before it sees the hold counts as open.
        let holds = Lsn(self.holding.holds.load(Ordering::SeqCst));
        if self.holding.over.get() >= holds { Ok(()) } else { self.holding.over.wait(holds, patience).map(drop) }
    }

    fn wait_for_room(&self, patience: Patience<'_>) -> bool {
        let until = Lsn(self.log.reserved().0.saturating_sub(self.uncommitted));
        if self.committed() >= until {
            return true;
        }
        // Some more than one transaction needs: a session that waits again for every transaction
        // pays for each wake-up.
        let until = until.plus(self.uncommitted / 64);
        self.log.force_fence(until);
        self.wait(until, patience) != Err(OutcomeOpen::Deadline)
    }

    fn wait(&self, until: Lsn, patience: Patience<'_>) -> Result<(), OutcomeOpen> {
        freshet_base::step!(Commit, until, until);
        let refuses = || self.refusing.load(Ordering::SeqCst) || patience.is_interrupted();
        loop {
            let waited = match self.committed.wait(until, patience.unless(&refuses)) {
                Ok(_) if self.is_leased() => return Ok(()),
                // What is committed waits for another answer of those who might let another lead.
                Ok(_) => self.committed.wait(Lsn::MAX, patience.unless(&|| refuses() || self.is_leased())),
                waited => waited,
            };
            let Err(cause) = waited else { continue };
            return Err(match (self.refusal(), cause) {
                (_, WaitError::Deadline) => OutcomeOpen::Deadline,
                (Some(refusal), _) => refused(refusal),
                (None, WaitError::Interrupted) if patience.is_interrupted() => OutcomeOpen::Deadline,
                // It refused for a moment, or has a lease again.
                (None, WaitError::Interrupted) => continue,
                (None, WaitError::Closed) => self.log_failed().unwrap_or(OutcomeOpen::Stopped),
            });
        }
    }

    fn outcome(&self, until: Lsn) -> Option<Result<(), OutcomeOpen>> {
        if self.committed() >= until && self.is_leased() {
            return Some(Ok(()));
        }
        self.refusal().map(refused).or_else(|| self.log_failed()).map(Err)
    }
}

/// What the log persists is shipped while it does: a small batch is copied here, where that is all
/// that shipping takes. Where the log is persistent, the commit rule is applied.
impl Sink for Shared {
    fn batch(&self, batch: &Batch<'_>) {
        freshet_base::step!(Ship, batch.from, batch.to);
        let ends = batch.transaction_ends;
        assert!(ends.is_sorted(), "transactions end out of their order: {ends:?}");
        {
            let known = &mut self.commit.state().ends;
            ends.iter().for_each(|end| known.enter(*end));
        }
        feed::batch_ready(self, batch);
    }

    fn durable(&self, to: Lsn) {
        freshet_base::step!(Commit, to, to);
        self.apply(Event::Durable(to));
    }

    fn needed(&self) -> Lsn {
        self.feeds.needed()
    }
}

/// What its standbys get, and what comes of what they say.
impl Feeder for Shared {
    fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), ReadError> {
        self.log.read(at, into)
    }

    fn note_changes(&self) -> Option<Noting> {
        Some(self.log.note_changes())
    }

    /// Feeds the commit rule, moves the watermarks as it decides, and tells standbys.
    fn apply(&self, event: Event) {
        freshet_base::step!(Commit);
        let commit = &*self.commit;
        let (decision, whole, refusal, deadline, effective, lapsed) = {
            let state = &mut *commit.state();
            let State { rule, applied, .. } = state;
            let now = commit.clock.now();
            if now.since(*applied) >= stood_still(rule.config().standby_timeout) {
                let _ = rule.apply(Event::StoodStill, now);
            }
            *applied = now;
            let decision = rule.apply(event, now);
            let whole = state.announce();
            let State { rule, ends, .. } = state;
            ends.forget(whole);
            let before = Moment(commit.lease.swap(rule.lease_until().0, Ordering::SeqCst));
            (decision, whole, rule.admit().err(), rule.next_deadline(), rule.set_took_effect(), before <= now)
        };
        if effective && !commit.effective.swap(true, Ordering::Relaxed) {
            // That is noted, for a restart.
            commit.watch.ring();
        }
        let was_refusing = commit.refusing.swap(refusal.is_some(), Ordering::SeqCst);
        check(&[(Stage::Commit, whole), (Stage::Commit, decision.committed), (Stage::Certify, commit.log.reserved())]);
        commit.reached.advance(decision.committed);
        let advanced = commit.committed.advance(whole);
        if refusal.is_some() && !was_refusing || lapsed {
            // Those who wait look at `refusing` and at the lease again.
            commit.committed.wake();
        }
        if decision.write {
            commit.watch.ring();
        }
        if let Some(deadline) = deadline
            && deadline.0 < commit.watched.load(Ordering::SeqCst)
        {
            commit.watch.ring();
        }
        if advanced {
            feed::committed(self, commit.committed());
        }
        if decision.changed {
            self.feeds.note_places(&commit.places());
            self.report_changes();
        }
    }

    fn lease_over(&self) -> Option<Moment> {
        self.commit.lease_over()
    }

    fn fenced(&self, by: Term) {
        self.fence(by);
    }

    fn missed(&self) {
        self.announce.ring();
    }

    fn news(&self) {
        self.feeds.peers_changed();
    }

    fn make_place(&self, address: &str, replica: &ReplicaState) {
        accept::make_place(self, address, replica);
    }

    fn met(&self, node: NodeId, address: &str, serves: bool) {
        if address.is_empty() {
            return;
        }
        let mut peers = self.peers.lock().expect("no code panics under this mutex");
        let peer = Peer { node: Some(node), address: address.to_owned(), serves };
        if !peers.contains(&peer) {
            peers.retain(|known| known.node != Some(node) && known.address != address);
            peers.push(peer);
            drop(peers);
            self.remember_peers();
            self.feeds.peers_changed();
        }
    }

    fn peers_message(&self) -> Peers {
        Peers {
            peers: self.known(),
            safety: self.commit.level(),
            ahead: self.feeds.ahead(),
            two_primaries: self.meetings().clone(),
        }
    }
}
