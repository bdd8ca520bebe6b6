//! Promotion: how a node becomes the primary of a new term (Query Fresh, section 3.4.4).
//!
//! 1. Rest: nothing more is received from the old primary.
//! 2. Sound out: what are the logs of the others like, and would a promotion succeed? No node
//!    promises anything yet, so a hopeless attempt disturbs no other node.
//! 3. Consult: every node that can be reached promises the new term, which fences the old primary
//!    there, and says again what it holds. The own fence rises first.
//! 4. Fetch: what a more advanced log holds. Then the others are asked again.
//! 5. Finish: everything received is persistent and replayed. Half a transaction at the end goes.
//! 6. Begin: the new term is written to the own history, durably.
//!
//! [`Promotion`] decides. Its driver rests, asks, fetches, finishes and begins as it is told; a
//! promotion and the restart of a former primary are drivers of the same rounds. One round is:
//! [`Promotion::raise`], [`Promotion::question`], [`Promotion::observe`] for each answer, and
//! [`Promotion::decide`].

mod candidacy;

use std::{collections::BTreeSet, time::Duration};

use freshet_base::{Lsn, NodeId, Safety, Term};
use serde::{Deserialize, Serialize};

pub use self::candidacy::{Candidacy, LogState, NeedsOperator, Plan, is_unattended};
use crate::{
    handshake::{Refusal, Welcome},
    in_sync::{InSyncSet, Succession},
    maintenance::Notice,
    term::{Fence, LastTerm, Living, TermState},
};

/// A promotion asks this many times, and then gives way to others that want to lead too.
const ROUNDS: u32 = 16;
/// A candidate tries again this many times to fetch the end of another log.
const FETCHES: u32 = 2;

/// The level under which commits were made that must not be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// What they promised.
    pub safety: Safety,
    /// How many standbys the cluster is meant to have; `None` where that is not known.
    pub standbys: Option<u32>,
}

impl Level {
    /// The operator's word counts first, then what a primary has announced since this node started,
    /// then this node's own configuration.
    pub fn known(
        ordered: (Option<u32>, Option<Safety>),
        announced: Option<(u32, Safety)>,
        configured: Option<(u32, Safety)>,
    ) -> Self {
        let known = announced.or(configured);
        let safety = ordered.1.or(known.map(|known| known.1)).unwrap_or(Safety::OneSafe);
        Self { safety, standbys: ordered.0.or(known.map(|known| known.0)) }
    }
}

/// What a promotion is to keep to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Rules {
    /// What was promised.
    pub level: Level,
    /// It continues although acknowledged commits may be lost.
    pub force: bool,
    /// A former primary comes back without an order to ([`Candidacy::comes_back`]).
    pub comes_back: Option<ComesBack>,
    /// A node that takes its primary for lost stands without an order to
    /// ([`Candidacy::automatic`], [`crate::watch`]).
    pub automatic: bool,
}

/// Whom a former primary waits for before it leads again, whatever the level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComesBack {
    /// Another node has to answer.
    pub asks: bool,
    /// All nodes that it knows have to answer: they have not had the time to yet.
    pub waits_for_all: bool,
}

/// What the other nodes are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The candidate's term.
    pub term: Term,
    /// Whether the answer is a promise to refuse every earlier term.
    pub binding: bool,
    /// Of a candidate that no operator has asked to lead: the latest term that it had heard of
    /// when it began. It gives way to that one and later ones if they live.
    pub gives_way: Option<Term>,
    /// Whether the candidate stands by itself: then it says, too, what it knows of maintenance
    /// ([`crate::maintenance`]).
    pub automatic: bool,
}

/// What one of them says. A node that says nothing is not heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Its log is like this.
    Log(LogState),
    /// To a former primary that comes back: another node leads.
    LedBy(Living),
    /// To a candidate that stands by itself: maintenance lasts.
    Maintenance(Notice),
    /// It has heard of a later term, or has promised this one to another.
    Higher {
        /// That term.
        highest: Term,
        /// To whom it was promised, where that is known.
        holder: Option<NodeId>,
    },
    /// It lives under no other term that it knows of, and knows of this in-sync set. What it holds
    /// must not be compared.
    NoVote(Witness),
}

/// What a node knows of sets whose log must not be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// Which logs its directory has had
    /// ([`Holder::incarnation`](crate::in_sync::Holder::incarnation), [`TermState::former`]), the
    /// one that it has now among them.
    pub incarnations: Vec<u64>,
    /// The newest set that it knows of.
    pub set: Option<InSyncSet>,
    /// [`LogState::lease`].
    pub lease: Duration,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Begin another round.
    Ask,
    /// Continue the own log from another node's, and make it persistent. Then begin another round;
    /// before that, say so if it failed ([`Promotion::fetch_failed`]).
    Fetch(Fetch),
    /// Finish, and lead from the end of the log on.
    Finish {
        /// In this term.
        term: Term,
        /// Not before this has passed: until then the primary of before may answer what it is asked
        /// ([`crate::lease`]).
        after: Duration,
    },
    /// There is no promotion.
    Stop(Stopped),
}

/// A log that reaches further than the candidate's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Whose it is.
    pub from: NodeId,
    /// Where the two part.
    pub cut_at: Lsn,
    /// Where it ends.
    pub upto: Lsn,
}

impl Fetch {
    /// Whether that node offers the log that it has described: it may have lost its disk since. To
    /// be asked before anything is cut for it.
    ///
    /// # Errors
    /// [`Refusal`], to be sent to it.
    pub fn check(&self, welcome: &Welcome) -> Result<(), Refusal> {
        if welcome.cut_at >= self.cut_at && welcome.end >= self.upto {
            return Ok(());
        }
        Err(Refusal::Violation(format!(
            "a log that was to continue this one from {} up to {} would do so from {} up to {}",
            self.cut_at, self.upto, welcome.cut_at, welcome.end
        )))
    }
}

/// Why there is no promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Too few nodes answered: what the others acknowledged might be lost.
    TooFew {
        /// How many answered, the candidate included.
        answered: u32,
        /// How many it takes.
        needed: u32,
    },
    /// Too few members of the newest known in-sync set answered: the primary may have recorded a
    /// later one.
    SetUncertain {
        /// The newest set that any node knows of that was heard.
        newest: Option<InSyncSet>,
        /// How many of its members answered, the candidate included if it is one.
        answered: u32,
        /// How many it takes.
        needed: u32,
    },
    /// The candidate comes back, and another leads, or has led, since: it follows that one.
    Superseded {
        /// The other's term.
        living: Living,
        /// Whether a node lives under it now. Otherwise it is only known to have continued without
        /// the candidate.
        lives: bool,
    },
    /// The candidate is an asynchronous standby, and the level rests on the synchronous nodes.
    Asynchronous,
    /// The level rests on recorded logs, and the newest record that is known does not name the
    /// candidate's: it is new, or it was emptied since.
    Newcomer {
        /// That record.
        newest: InSyncSet,
    },
    /// This node has more, and cannot pass it on to the candidate, since it is a mirror: it should
    /// take over itself.
    Better(NodeId),
    /// The log of this node is more advanced, or has another term of the same number, and has not
    /// what the candidate knows to be acknowledged to clients.
    HoldsMore {
        /// Whose log that is.
        than: NodeId,
        /// Where the two part.
        at: Lsn,
        /// Everything of the candidate's below was acknowledged.
        committed: Lsn,
    },
    /// A node began one term twice.
    SameTermTwice {
        /// The node whose log disagrees.
        with: NodeId,
        /// That term.
        term: Term,
    },
    /// Others want to lead too.
    Contested(Term),
    /// It stands by itself, and maintenance lasts.
    Maintenance,
}

/// A promotion that is under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Promotion {
    candidacy: Candidacy,
    rules: Rules,
    observed_before: Option<Term>,
    binding: bool,
    /// It has stood by itself, and has promised a term to another since.
    yields: bool,
    rounds: u32,
    failed_fetches: u32,
}

/// What a term begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inheritance {
    /// What its in-sync sets follow.
    pub succession: Succession,
    /// What of the log is known to be committed.
    pub committed: Lsn,
    /// The nodes that have answered.
    pub answered: BTreeSet<NodeId>,
}

impl Promotion {
    /// The node `me`, whose log is `mine`, wants to lead. `state` is what it remembers of terms.
    pub fn new(me: NodeId, mine: LogState, state: &TermState, rules: Rules) -> Self {
        let mut candidacy = Candidacy::new(me, mine, &state.fence).led(state.led);
        if let Some(ComesBack { asks, .. }) = rules.comes_back {
            candidacy = candidacy.comes_back(asks);
        }
        if rules.automatic {
            candidacy = candidacy.automatic();
        }
        let observed_before = (rules.automatic || rules.comes_back.is_some()).then(|| state.fence.highest());
        Self { candidacy, rules, observed_before, binding: false, yields: false, rounds: 0, failed_fetches: 0 }
    }

    /// The term it asks for.
    pub fn term(&self) -> Term {
        self.candidacy.term()
    }

    fn me(&self) -> NodeId {
        self.candidacy.me()
    }

    /// What it keeps to.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What the candidate's own `fence` is from now on: it rises if the next question asks for a
    /// promise. That has to be durable before any node is asked.
    ///
    /// # Errors
    /// When there is no larger term.
    pub fn raise(&mut self, mut fence: Fence) -> Result<Fence, LastTerm> {
        // Two that outbid each other would both be late.
        self.yields |= self.rules.automatic && fence.highest() >= self.term() && fence.holder() != Some(self.me());
        if self.binding && !self.yields {
            self.candidacy.raise(&mut fence)?;
        }
        Ok(fence)
    }

    /// Begins a round: what to ask every other node. The candidate's own log is `mine` now.
    pub fn question(&mut self, mine: LogState) -> Question {
        self.rounds += 1;
        self.candidacy.fetched(mine);
        let (term, binding) = (self.term(), self.binding && !self.yields);
        Question { term, binding, gives_way: self.observed_before, automatic: self.rules.automatic }
    }

    /// A node has answered the last question.
    pub fn observe(&mut self, node: NodeId, answer: Answer) {
        self.candidacy.observe(node, answer);
    }

    /// Whether the answers of this round would do, whatever the others say, though they may have
    /// more of the log: there is a promotion, or none, or everybody has to be asked again.
    pub fn has_enough(&self) -> bool {
        let plan = self.candidacy.plan(self.rules.level.safety, self.rules.force);
        matches!(
            plan,
            Plan::Fetch(_)
                | Plan::Lead { .. }
                | Plan::HigherTerm { .. }
                | Plan::Stop(Stopped::Superseded { .. } | Stopped::Maintenance)
        )
    }

    /// Ends a round: all others have answered, or are not waited for any more; `silent` nodes that
    /// are known have not.
    pub fn decide(&mut self, silent: u32) -> Step {
        assert!(self.rounds > 0, "a promotion decides before it has asked");
        match self.next(silent) {
            Step::Ask | Step::Fetch(_) if self.rounds >= ROUNDS => Step::Stop(Stopped::Contested(self.term())),
            step => step,
        }
    }

    fn next(&mut self, silent: u32) -> Step {
        let waits_for_all = self.rules.comes_back.is_some_and(|back| back.waits_for_all);
        if self.yields {
            return Step::Stop(Stopped::Contested(self.term()));
        }
        let stopped = match self.candidacy.plan(self.rules.level.safety, self.rules.force) {
            Plan::Fetch(_) | Plan::Lead { .. } if waits_for_all && silent > 0 => {
                let answered = self.candidacy.answered().count() as u32 + 1;
                Stopped::TooFew { answered, needed: answered + silent }
            }
            // Of those who stand at the same time, one continues.
            Plan::HigherTerm { .. } if self.binding && self.rules.automatic && self.candidacy.is_outbid() => {
                Stopped::Contested(self.term())
            }
            Plan::HigherTerm { at_least } => {
                self.candidacy.again(at_least);
                return Step::Ask;
            }
            // It would succeed: now the others are asked for their promise.
            Plan::Fetch(_) | Plan::Lead { .. } if !self.binding => {
                self.binding = true;
                self.candidacy.ask_for_promises();
                return Step::Ask;
            }
            Plan::Fetch(fetch) => {
                self.candidacy.check_fetch(&fetch);
                return Step::Fetch(fetch);
            }
            Plan::Lead { term } => {
                self.candidacy.check_lead(term);
                return Step::Finish { term, after: self.candidacy.lease_left() };
            }
            Plan::Stop(stopped) => stopped,
        };
        Step::Stop(stopped)
    }

    /// The other log could not be fetched. Its node may have been slow, or have gone: that shows
    /// when it is asked again. Says whether to do so.
    #[must_use]
    pub fn fetch_failed(&mut self) -> bool {
        self.failed_fetches += 1;
        self.failed_fetches <= FETCHES
    }

    /// What the term begins with that starts at `start`, the end of the log. With force, less of
    /// the log may be left than was committed.
    pub fn inheritance(&self, start: Lsn) -> Inheritance {
        Inheritance {
            succession: self.candidacy.succession(self.rules.force),
            committed: self.candidacy.known_committed().min(start),
            answered: self.candidacy.answered().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::ClusterId;

    use super::*;
    use crate::{
        in_sync::{Holder, tests::first_set},
        term::TermHistory,
    };

    fn log(end: u64) -> LogState {
        let history = TermHistory::first(Term(1), NodeId(1), 1);
        let terms = TermState { set: Some(set()), incarnation: Some(1), ..TermState::of(ClusterId(1), history) };
        LogState::of(terms, NodeId(1), Lsn(end), Lsn::ZERO)
    }

    /// Any two of three hold every commit.
    fn set() -> InSyncSet {
        let members = [1, 2, 3].map(|node| Holder::new(NodeId(node), 1)).into();
        InSyncSet { quorum: Some(2), floor: 1, ..first_set(NodeId(1), members) }
    }

    fn state() -> TermState {
        TermState { history: TermHistory::first(Term(1), NodeId(1), 1), ..TermState::empty() }
    }

    fn rules(safety: Safety) -> Rules {
        Rules { level: Level { safety, standbys: Some(2) }, force: false, comes_back: None, automatic: false }
    }

    #[test]
    fn it_sounds_out_consults_fetches_and_finishes() {
        let mut state = state();
        let mut it = Promotion::new(NodeId(2), log(50), &state, rules(Safety::Quorum(2)));
        state.fence = it.raise(state.fence).unwrap();
        assert_eq!(state.fence.highest(), Term(0), "a hopeless attempt disturbs no node");
        assert!(!it.question(log(50)).binding);
        it.observe(NodeId(3), Answer::Log(log(80)));
        assert_eq!(it.decide(0), Step::Ask);
        state.fence = it.raise(state.fence).unwrap();
        assert_eq!((state.fence.highest(), state.fence.holder()), (Term(2), Some(NodeId(2))));
        let question = it.question(log(50));
        assert_eq!(question, Question { term: Term(2), binding: true, gives_way: None, automatic: false });
        it.observe(NodeId(3), Answer::Log(log(80)));
        let fetch = Fetch { from: NodeId(3), cut_at: Lsn(50), upto: Lsn(80) };
        assert_eq!(it.decide(0), Step::Fetch(fetch));
        let welcome = |cut_at, end| Welcome {
            cluster: ClusterId(7),
            node: NodeId(3),
            above: Vec::new(),
            term: Term(2),
            history: TermHistory::first(Term(1), NodeId(1), 1),
            cut_at: Lsn(cut_at),
            end: Lsn(end),
            keep_alive_ms: 10,
            lease_ms: 0,
        };
        assert_eq!(fetch.check(&welcome(50, 90)), Ok(()));
        assert!(fetch.check(&welcome(0, 80)).is_err() && fetch.check(&welcome(50, 79)).is_err());
        assert!(it.fetch_failed() && it.fetch_failed() && !it.fetch_failed());
        it.question(log(80));
        assert_eq!(it.decide(0), Step::Finish { term: Term(2), after: Duration::ZERO });
        let inheritance = it.inheritance(Lsn(80));
        assert_eq!((inheritance.succession, inheritance.answered), (Succession::Of(set()), [NodeId(3)].into()));
    }

    /// Two that outbid each other would both be late.
    #[test]
    fn of_those_who_stand_at_the_same_time_one_continues() {
        let begun = || {
            let automatic = Rules { automatic: true, ..rules(Safety::Quorum(2)) };
            let mut it = Promotion::new(NodeId(2), log(50), &state(), automatic);
            let _ = it.raise(state().fence).unwrap();
            assert_eq!(it.question(log(50)).gives_way, Some(Term(0)));
            it.observe(NodeId(3), Answer::Log(log(50)));
            assert!(it.has_enough());
            assert_eq!(it.decide(0), Step::Ask);
            it
        };
        // It has promised another a term before it asks for one itself.
        let mut it = begun();
        let promised = Fence::new(Term(2), Some(NodeId(3)));
        assert_eq!(it.raise(promised), Ok(promised));
        assert!(!it.question(log(50)).binding);
        assert_eq!(it.decide(0), Step::Stop(Stopped::Contested(Term(2))));
        // Both have asked for the same term, or the other for a later one.
        for (highest, holder, continues) in [(2, 1, false), (2, 3, true), (3, 3, false)] {
            let mut it = begun();
            let _ = it.raise(state().fence).unwrap();
            assert!(it.question(log(50)).binding);
            it.observe(NodeId(3), Answer::Higher { highest: Term(highest), holder: Some(NodeId(holder)) });
            let step = it.decide(0);
            assert_eq!(step == Step::Ask, continues, "{highest}, {holder}: {step:?}");
        }
    }

    /// Not even if all others answer, and not either when it is heard of between the rounds.
    #[test]
    fn a_node_that_stands_by_itself_stops_while_maintenance_lasts() {
        let begun = |automatic| {
            let mut it = Promotion::new(NodeId(2), log(50), &state(), Rules { automatic, ..rules(Safety::Quorum(2)) });
            assert_eq!(it.question(log(50)).automatic, automatic);
            it.observe(NodeId(3), Answer::Log(log(50)));
            it
        };
        let maintenance = || Answer::Maintenance(Notice::default());
        for (automatic, stops) in [(true, true), (false, false)] {
            let mut it = begun(automatic);
            it.observe(NodeId(1), maintenance());
            assert!(it.has_enough());
            assert_eq!(it.decide(0) == Step::Stop(Stopped::Maintenance), stops, "an operator promotes it all the same");
            let mut it = begun(automatic);
            assert_eq!(it.decide(0), Step::Ask);
            let _ = it.raise(state().fence).unwrap();
            assert!(it.question(log(50)).binding);
            it.observe(NodeId(3), Answer::Log(log(50)));
            it.observe(NodeId(2), maintenance());
            assert_eq!(it.decide(0) == Step::Stop(Stopped::Maintenance), stops);
        }
    }

    #[test]
    fn a_promise_counts_only_if_it_was_asked_for() {
        let mut it = Promotion::new(NodeId(2), log(50), &state(), rules(Safety::Quorum(2)));
        it.question(log(50));
        it.observe(NodeId(3), Answer::Log(log(50)));
        assert_eq!(it.decide(0), Step::Ask);
        it.question(log(50));
        assert_eq!(it.decide(0), Step::Stop(Stopped::TooFew { answered: 1, needed: 2 }));
    }

    #[test]
    fn a_former_primary_waits_for_all_while_there_is_time() {
        let waits_for_all = |waits_for_all| Some(ComesBack { asks: false, waits_for_all });
        for (all, silent) in [(true, 1), (true, 0), (false, 1)] {
            let rules = Rules { comes_back: waits_for_all(all), ..rules(Safety::OneSafe) };
            let mut it = Promotion::new(NodeId(1), log(50), &state(), rules);
            it.question(log(50));
            let waits = Step::Stop(Stopped::TooFew { answered: 1, needed: 2 });
            assert_eq!(it.decide(silent), if all && silent > 0 { waits } else { Step::Ask });
        }
    }

    #[test]
    fn two_that_outbid_one_another_end() {
        let mut it = Promotion::new(NodeId(2), log(50), &state(), rules(Safety::OneSafe));
        let mut rounds = 0;
        loop {
            let term = it.question(log(50)).term;
            it.observe(NodeId(3), Answer::Higher { highest: term, holder: None });
            rounds += 1;
            match it.decide(0) {
                Step::Ask => {}
                step => break assert!(matches!(step, Step::Stop(Stopped::Contested(_))), "{step:?}"),
            }
        }
        assert_eq!(rounds, ROUNDS);
    }

    /// A candidate asks once more when it has heard of others, and when some may only be slow.
    #[test]
    fn a_candidate_may_ask_more_often_than_it_outbids_others() {
        let mut it = Promotion::new(NodeId(2), log(50), &state(), rules(Safety::Quorum(2)));
        for _ in 0..=2 * ROUNDS {
            it.question(log(50));
        }
        let too_few = Step::Stop(Stopped::TooFew { answered: 1, needed: 2 });
        assert_eq!(it.decide(0), too_few);
        it.question(log(50));
        assert_eq!(it.decide(0), too_few);
    }

    /// With force a node may begin below what it knew to be committed.
    #[test]
    fn no_more_is_committed_than_the_term_begins_with() {
        let mut it = Promotion::new(NodeId(2), log(100), &state(), rules(Safety::OneSafe));
        it.question(LogState { committed: Lsn(100), ..log(100) });
        assert_eq!(it.inheritance(Lsn(100)).committed, Lsn(100));
        assert_eq!(it.inheritance(Lsn(60)).committed, Lsn(60));
    }

    #[test]
    fn the_level_comes_from_the_nearest_source() {
        let (two, very) = ((1, Safety::TwoSafe), (2, Safety::VerySafe));
        let level = |announced, configured| Level::known((None, None), announced, configured);
        assert_eq!(level(Some(two), Some(very)), Level { safety: Safety::TwoSafe, standbys: Some(1) });
        assert_eq!(level(None, Some(very)), Level { safety: Safety::VerySafe, standbys: Some(2) });
        assert_eq!(level(None, None), Level { safety: Safety::OneSafe, standbys: None });
        let ordered = Level::known((None, Some(Safety::OneSafe)), Some(two), None);
        assert_eq!(ordered, Level { safety: Safety::OneSafe, standbys: Some(1) });
    }
}
