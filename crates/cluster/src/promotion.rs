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

use freshet_base::{Consent, Lsn, NodeId, Safety, Term};
use serde::{Deserialize, Serialize};

pub use self::candidacy::{
    Candidacy, LogState, NeedsOperator, Plan, has_successors, is_to_be_unattended, is_unattended,
};
use crate::{
    handshake::{Refusal, Welcome},
    in_sync::{InSyncSet, Succession},
    maintenance::Notice,
    switch_over::HandOver,
    term::{Fence, LastTerm, Living, TermState},
};

/// A promotion asks this many times, and then gives way to others that want to lead too.
const ROUNDS: u32 = 16;
/// A candidate tries again this many times to fetch the end of another log.
const FETCHES: u32 = 2;
/// A node that stands by itself waits for so long for the others, once enough have answered: one of
/// them may have more of the log.
const GRACE: Duration = Duration::from_millis(30);
/// And so long one that an operator has ordered to lead, or that comes back.
const LONG_GRACE: Duration = Duration::from_millis(300);

/// The level under which commits were made that must not be lost, as far as it is on no record that
/// a candidate hears of: what a primary has announced since this node started, then this node's own
/// configuration.
pub fn known_level(announced: Option<Safety>, configured: Option<Safety>) -> Safety {
    announced.or(configured).unwrap_or(Safety::OneSafe)
}

/// What a promotion is to keep to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Rules {
    /// What commits promised that must not be lost, where no record says it ([`known_level`]).
    pub safety: Safety,
    /// What an operator has agreed to.
    pub consent: Consent,
    /// Why it stands.
    pub standing: Standing,
}

/// Why a node stands, and so what it gives way to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// An operator has ordered it.
    #[default]
    Ordered,
    /// It is a former primary, and comes back without an order ([`Candidacy::comes_back`]).
    ComesBack(ComesBack),
    /// It takes its primary for lost ([`Candidacy::automatic`], [`crate::watch`]).
    Automatic,
    /// The primary hands it the role ([`crate::switch_over`]). Without that primary's promise it
    /// asks no other node for one.
    Handed(HandOver),
}

impl Standing {
    /// Whom a former primary waits for, if it is one that comes back.
    pub fn comes_back(self) -> Option<ComesBack> {
        if let Self::ComesBack(back) = self { Some(back) } else { None }
    }

    /// Whether no operator has had a part in it, so that it gives way to others.
    pub fn is_unordered(self) -> bool {
        matches!(self, Self::ComesBack(_) | Self::Automatic)
    }

    fn hand_over(self) -> Option<HandOver> {
        if let Self::Handed(hand_over) = self { Some(hand_over) } else { None }
    }
}

/// Whom a former primary waits for before it leads again, whatever the level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComesBack {
    /// Another node has to answer.
    pub asks: bool,
    /// All nodes that it knows have to answer: they have not had the time to yet. Unless it has
    /// promised a later term to one of them, and any of them can be lost.
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
    /// Of a candidate to which a primary hands its role: the number of that offer.
    pub handed: Option<u64>,
    /// Only this node is asked.
    pub only: Option<NodeId>,
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
    /// To a former primary that comes back: an election is due without it
    /// ([`crate::handshake::check_elects`]).
    Elects,
    /// It has heard of a later term, or has promised this one to another.
    Higher {
        /// That term.
        highest: Term,
        /// To whom it was promised, where that is known.
        holder: Option<NodeId>,
    },
    /// It lives under no other term that it knows of, and knows of this in-sync set. What it holds
    /// must not be compared.
    NoVote(Testimony),
}

/// What a node knows of sets whose log must not be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Testimony {
    /// Which logs its directory has had
    /// ([`Holder::incarnation`](crate::in_sync::Holder::incarnation), [`TermState::former`]), the
    /// one that it has now among them.
    pub incarnations: Vec<u64>,
    /// The newest set that it knows of.
    pub set: Option<InSyncSet>,
    /// [`LogState::lease`].
    pub lease: Duration,
    /// To whom that was granted, where it knows that.
    pub granted: Option<Living>,
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
    /// The term would begin with a log that lacks what clients of this node were told of, in no
    /// earlier term: two have led beside each other.
    LeavesOut {
        /// Who has it.
        node: NodeId,
        /// Where the two part.
        at: Lsn,
        /// Everything of that node's below was acknowledged.
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
    /// The primary does not hand its role over, or has taken its offer back. No other node was
    /// asked for a promise.
    NotHanded(NodeId),
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
    /// The primary that hands it the role has given its promise.
    is_handed: bool,
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
        candidacy = match rules.standing {
            Standing::ComesBack(ComesBack { asks, .. }) => candidacy.comes_back(asks),
            Standing::Automatic => candidacy.automatic(),
            Standing::Ordered | Standing::Handed(_) => candidacy,
        };
        if rules.consent == Consent::PrimaryIsGone {
            candidacy = candidacy.without_primary();
        }
        let observed_before = rules.standing.is_unordered().then(|| state.fence.highest());
        let (binding, yields, is_handed) = (false, false, false);
        Self { candidacy, rules, observed_before, binding, yields, is_handed, rounds: 0, failed_fetches: 0 }
    }

    /// The term it asks for.
    pub fn term(&self) -> Term {
        self.candidacy.term()
    }

    fn me(&self) -> NodeId {
        self.candidacy.me()
    }

    /// The primary that an operator says is gone: the one whose in-sync set this node knew when it
    /// was ordered.
    pub fn gone(&self) -> Option<NodeId> {
        self.candidacy.gone
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
        let gives_way = self.rules.standing != Standing::Ordered;
        self.yields |= gives_way && fence.highest() >= self.term() && fence.holder() != Some(self.me());
        // A primary that takes its offer back must not find a node that knows of a later term.
        if self.binding && !self.yields && self.giver().is_none() {
            self.candidacy.raise(&mut fence)?;
        }
        Ok(fence)
    }

    /// Begins a round: what to ask every other node. The candidate's own log is `mine` now.
    pub fn question(&mut self, mine: LogState) -> Question {
        self.rounds += 1;
        self.candidacy.fetched(mine);
        let binding = self.binding && !self.yields;
        let handed = self.rules.standing.hand_over().map(|it| it.number);
        // Others are not asked before it has promised the term.
        let only = self.giver().filter(|_| binding);
        let automatic = self.rules.standing == Standing::Automatic;
        Question { term: self.term(), binding, gives_way: self.observed_before, handed, only, automatic }
    }

    /// The primary that hands the candidate its role, and has not promised the term yet: it can
    /// still refuse.
    fn giver(&self) -> Option<NodeId> {
        self.rules.standing.hand_over().filter(|_| !self.is_handed).map(|it| it.by)
    }

    /// A node has answered the last question.
    pub fn observe(&mut self, node: NodeId, answer: Answer) {
        self.candidacy.observe(node, answer);
    }

    /// Whether the answers of this round would do, whatever the others say, though they may have
    /// more of the log: there is a promotion, which needs no force, or none, or everybody has to be
    /// asked again.
    pub fn has_enough(&self) -> bool {
        matches!(
            self.candidacy.plan(self.rules.safety, false),
            Plan::Fetch(_)
                | Plan::Lead { .. }
                | Plan::HigherTerm { .. }
                | Plan::Stop(Stopped::Superseded { .. } | Stopped::Maintenance)
        )
    }

    /// How long to wait for the other nodes, once [enough](Self::has_enough) have answered; None:
    /// until all have, or are too late. Who takes a lost primary's place is better served by
    /// another attempt.
    pub fn grace(&self) -> Option<Duration> {
        match self.rules.standing {
            Standing::Automatic | Standing::Handed(_) => Some(GRACE),
            Standing::Ordered | Standing::ComesBack(_) => self.does_without_silent().then_some(LONG_GRACE),
        }
    }

    fn does_without_silent(&self) -> bool {
        self.candidacy.does_without_silent(self.rules.safety)
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
        let standing = self.rules.standing;
        let waits_for_all = standing.comes_back().is_some_and(|back| back.waits_for_all) && !self.does_without_silent();
        if self.yields {
            return Step::Stop(Stopped::Contested(self.term()));
        }
        if let Some(by) = self.giver().filter(|_| self.binding) {
            self.is_handed = self.candidacy.has_log_of(by);
            return if self.is_handed { Step::Ask } else { Step::Stop(Stopped::NotHanded(by)) };
        }
        let is_outbid = standing == Standing::Automatic && self.candidacy.is_outbid();
        let lets_elect = !self.binding && self.candidacy.lets_elect();
        let stopped = match self.candidacy.plan(self.rules.safety, self.rules.consent.is_forced()) {
            Plan::Fetch(_) | Plan::Lead { .. } if waits_for_all && silent > 0 => {
                let answered = self.candidacy.answered().count() as u32 + 1;
                Stopped::TooFew { answered, needed: answered + silent }
            }
            // Of those who stand at the same time, one continues.
            Plan::HigherTerm { .. } if self.binding && is_outbid => Stopped::Contested(self.term()),
            // It was handed this term. Another node has a later one by now, and may lead in it.
            Plan::HigherTerm { .. } if self.is_handed => Stopped::Contested(self.term()),
            Plan::HigherTerm { at_least } => {
                self.candidacy.again(at_least);
                return Step::Ask;
            }
            Plan::Fetch(_) | Plan::Lead { .. } if lets_elect => Stopped::Contested(self.term()),
            Plan::Stop(Stopped::TooFew { .. } | Stopped::SetUncertain { .. }) if lets_elect => {
                Stopped::Contested(self.term())
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
            succession: self.candidacy.succession(self.rules.consent.is_forced()),
            committed: self.candidacy.known_committed().min(start),
            answered: self.candidacy.answered().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
