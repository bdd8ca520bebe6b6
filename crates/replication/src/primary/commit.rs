//! Commit: binds the commit rule to those who wait for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use freshet_base::{
    CommitGate, Lsn, NodeId, OutcomeOpen, Stage, WaitError, Watermark, check,
    sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering},
    wait::Patience,
};
use freshet_cluster::{
    Moment,
    commit_rule::{CommitRule, Event, Member, Refusal, Standing},
    in_sync::InSyncSet,
    meeting::Acknowledged,
    recording::{Recorded, Recorder},
};
use freshet_log::{Log, TransactionEnds};

use super::{PrimaryConfig, PrimaryId};
use crate::{bell::Bell, clock::Clock};

/// A primary whose threads all slept for this long did not stand still: they may have been late.
const LATE: Duration = Duration::from_millis(100);

/// When nothing was done for so long, the whole node stood still: the watch wakes twice as often.
fn stood_still(standby_timeout: Duration) -> Duration {
    standby_timeout.max(LATE)
}

/// What an event led to.
pub(crate) struct Outcome {
    /// `committed` has moved.
    pub advanced: bool,
    /// The standing or a member's place has.
    pub changed: bool,
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
    /// Whether [`CommitRule::set_took_effect`] has said yes.
    effective: AtomicBool,
    watch: Bell,
    /// The watch sleeps until this moment.
    watched: AtomicU64,
}

#[derive(Debug)]
struct State {
    rule: Recorded<CommitRule>,
    /// Where transactions end. The rule knows blocks only.
    ends: TransactionEnds,
    /// When an event was applied to the rule last.
    applied: Moment,
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
        let known = if config.counts_on_nobody() { start } else { who.committed.min(start) };
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
            effective: AtomicBool::new(false),
            watch: Bell::default(),
            watched: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the rule panics only on a bug of its own")
    }

    pub(crate) fn apply(&self, event: Event) -> Outcome {
        freshet_base::step!(Commit);
        let (decision, whole, refusal, deadline, effective) = {
            let State { rule, ends, applied } = &mut *self.state();
            let now = self.clock.now();
            if now.since(*applied) >= stood_still(rule.config().standby_timeout) {
                let _ = rule.apply(Event::StoodStill, now);
            }
            *applied = now;
            let decision = rule.apply(event, now);
            // Below where the term began no ends are known; nothing there is committed before
            // something of the term is.
            let whole = ends.below(decision.committed);
            ends.forget(whole);
            (decision, whole, rule.admit().err(), rule.next_deadline(), rule.set_took_effect())
        };
        if effective && !self.effective.swap(true, Ordering::Relaxed) {
            // That is noted, for a restart.
            self.watch.ring();
        }
        let was_refusing = self.refusing.swap(refusal.is_some(), Ordering::SeqCst);
        check(&[(Stage::Commit, whole), (Stage::Commit, decision.committed), (Stage::Certify, self.log.reserved())]);
        self.reached.advance(decision.committed);
        let advanced = self.committed.advance(whole);
        if refusal.is_some() && !was_refusing {
            // Those who wait look at `refusing` again.
            self.committed.wake();
        }
        if decision.write {
            self.watch.ring();
        }
        if let Some(deadline) = deadline
            && deadline.0 < self.watched.load(Ordering::SeqCst)
        {
            self.watch.ring();
        }
        Outcome { advanced, changed: decision.changed }
    }

    /// A standby is gone for good: its acknowledgements count no more.
    pub(crate) fn forget(&self, standby: NodeId) {
        let _ = self.state().rule.forget(standby, self.clock.now());
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

    /// The in-sync set that has to be recorded.
    pub(crate) fn set_to_write(&self) -> Option<InSyncSet> {
        self.state().rule.to_write().cloned()
    }

    pub(crate) fn set_took_effect(&self) -> bool {
        self.state().rule.set_took_effect()
    }

    /// Transactions end there, in what is about to be flushed.
    pub(crate) fn enter_ends(&self, transaction_ends: &[Lsn]) {
        freshet_base::step!(Ship);
        assert!(transaction_ends.is_sorted(), "transactions end out of their order: {transaction_ends:?}");
        let ends = &mut self.state().ends;
        transaction_ends.iter().for_each(|end| ends.enter(*end));
    }

    /// Who holds what was committed in this term.
    pub(crate) fn acknowledged(&self) -> Acknowledged {
        self.state().rule.acknowledged()
    }

    /// Nothing is committed any more, and nobody waits any longer.
    pub fn end(&self) {
        self.reached.close();
        self.committed.close();
        self.watch.ring();
    }

    pub(crate) fn places(&self) -> BTreeMap<NodeId, Member> {
        self.state().rule.members().map(|(node, member)| (node, *member)).collect()
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
        let members = rule.members().map(|(node, member)| (node, *member)).collect();
        (rule.standing(), rule.durable(), members)
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

    fn log_failed(&self) -> Option<OutcomeOpen> {
        self.log.failure().map(|failure| OutcomeOpen::LogFailed(failure.to_string()))
    }
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

    fn admit(&self) -> Result<(), String> {
        self.refusal().map_or(Ok(()), |refusal| Err(refusal.to_string()))
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
        let ended = || self.refusing.load(Ordering::SeqCst) || patience.is_interrupted();
        loop {
            let Err(cause) = self.committed.wait(until, patience.unless(&ended)) else { return Ok(()) };
            return Err(match (self.refusal(), cause) {
                (_, WaitError::Deadline) => OutcomeOpen::Deadline,
                (Some(refusal), _) => refused(refusal),
                (None, WaitError::Interrupted) if patience.is_interrupted() => OutcomeOpen::Deadline,
                // It refused for a moment.
                (None, WaitError::Interrupted) => continue,
                (None, WaitError::Closed) => self.log_failed().unwrap_or(OutcomeOpen::Stopped),
            });
        }
    }

    fn outcome(&self, until: Lsn) -> Option<Result<(), OutcomeOpen>> {
        if self.committed() >= until {
            return Some(Ok(()));
        }
        self.refusal().map(refused).or_else(|| self.log_failed()).map(Err)
    }
}
