//! Terms: whose word counts, where logs part, and who may take over.
//!
//! A term is the reign of one primary. (term, stamp) identifies a block within a history, which rests on three rules:
//!
//! 1. Whoever begins to reign does so in a term that is new to everyone it has heard, also the node that
//!    reigned last and only restarted: what it lost in the crash may live on in a standby, and must not share a
//!    name with what it writes now. Two nodes that do not hear one another may choose the same term. At most one of them can commit
//!    anything, and a term together with the node that reigns in it is unique: so a [`Reign`] names its node, and a block's name is
//!    its stamp, its term, and whose that was in the history of its log.
//! 2. A node enters a term only after it has cut its log where its copy and the primary's part ([`TermHistory::agreement`]).
//! 3. Whoever has heard of a term accepts nothing of an earlier one ([`Fence`]). The fence is persistent, and an answer to a
//!    candidate raises it first, so that a quorum which has been consulted is lost to the old primary.

use std::collections::BTreeMap;

use freshet_base::{NodeId, Safety, Stamp, Term};
use serde::{Deserialize, Serialize};

use crate::in_sync::{InSyncSet, Succession};

/// The beginning of one reign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reign {
    /// Its term.
    pub term: Term,
    /// Its first block.
    pub start: Stamp,
    /// Who reigns.
    pub node: NodeId,
}

/// Which part of a log was written in which term: ascending in both.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Reign>", into = "Vec<Reign>")]
pub struct TermHistory(Vec<Reign>);

/// A term history that no log can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a history of terms must ascend, but term {} at {} follows term {} at {}", .second.term, .second.start, .first.term, .first.start)]
pub struct BadHistory {
    first: Reign,
    second: Reign,
}

impl TryFrom<Vec<Reign>> for TermHistory {
    type Error = BadHistory;
    fn try_from(reigns: Vec<Reign>) -> Result<Self, BadHistory> {
        for pair in reigns.windows(2) {
            if pair[0].term >= pair[1].term || pair[0].start > pair[1].start {
                return Err(BadHistory { first: pair[0], second: pair[1] });
            }
        }
        Ok(Self(reigns))
    }
}

impl From<TermHistory> for Vec<Reign> {
    fn from(history: TermHistory) -> Self {
        history.0
    }
}

/// How far two logs are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Up to here, and no further unless both end here.
    Upto(Stamp),
    /// Both have a reign of the same node in the same term with different beginnings:
    /// nothing that either says can be trusted by the other.
    SameTermTwice {
        /// That term.
        term: Term,
        /// Where it begins here.
        here: Stamp,
        /// Where it begins there.
        there: Stamp,
    },
}

impl TermHistory {
    /// The history of a log that has only known one term, from its first byte.
    pub fn first(term: Term, node: NodeId) -> Self {
        Self(vec![Reign { term, start: Stamp::ZERO, node }])
    }

    /// The reigns, oldest first.
    pub fn reigns(&self) -> &[Reign] {
        &self.0
    }

    /// The latest term; zero for an empty log, which has none.
    pub fn last_term(&self) -> Term {
        self.0.last().map_or(Term(0), |reign| reign.term)
    }

    /// `node` begins to reign at `start`, the end of the log.
    ///
    /// # Errors
    /// [`BadHistory`] when the term or the start does not ascend.
    pub fn begin(&mut self, term: Term, start: Stamp, node: NodeId) -> Result<(), BadHistory> {
        let second = Reign { term, start, node };
        match self.0.last() {
            Some(first) if first.term >= term || first.start > start => Err(BadHistory { first: *first, second }),
            _ => {
                self.0.push(second);
                Ok(())
            }
        }
    }

    /// The history of the same log cut at `end`: reigns that began there or later are gone.
    pub fn cut(&self, end: Stamp) -> Self {
        Self(self.0.iter().copied().filter(|reign| reign.start < end).collect())
    }

    fn end_of(&self, index: usize, log_end: Stamp) -> Stamp {
        self.0.get(index + 1).map_or(log_end, |next| next.start)
    }

    /// Up to where this log, which ends at `end`, and the other are the same: a log is what its terms made
    /// it, so they agree to the end of the last term that both have, or where the first of them ends within it.
    /// A standby that is catching up knows of reigns that its log has not reached yet; they play no part.
    pub fn agreement(&self, end: Stamp, other: &Self, other_end: Stamp) -> Agreement {
        let (here, there) = (self.cut(end), other.cut(other_end));
        let mut upto = Stamp::ZERO;
        for (index, mine) in here.0.iter().enumerate() {
            let same = |reign: &Reign| (reign.term, reign.node) == (mine.term, mine.node);
            let Some(place) = there.0.iter().position(same) else { continue };
            let theirs = there.0[place];
            if mine.start != theirs.start {
                return Agreement::SameTermTwice { term: mine.term, here: mine.start, there: theirs.start };
            }
            upto = here.end_of(index, end).min(there.end_of(place, other_end));
        }
        Agreement::Upto(upto)
    }
}

/// Guards a node against primaries of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    highest: Term,
    /// Whom that term was promised to, where that is known.
    holder: Option<NodeId>,
}

/// What a [`Fence`] says to a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The term in force, and its holder.
    Current,
    /// A later term: the fence has risen, and must be persistent before anything is answered.
    Raised,
    /// A term of the past, or one that belongs to another node.
    Refused {
        /// The term in force.
        highest: Term,
        /// Its holder, where known.
        holder: Option<NodeId>,
    },
}

/// At most this number of terms, and so of take-overs, can pass while a node hears nothing of its
/// cluster. Claims about a later term are not believed. (One message must not use up the terms of a
/// cluster.)
pub const LEAP: u32 = 1 << 16;

/// All terms are used up: no further one can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("term {0} was promised to another node, and no later one can be: see \"A wrong term\" in docs/operations.md")]
pub struct LastTerm(pub Term);

impl Fence {
    /// Whether an honest node can have reached `term`, as far as this one knows. A node that has
    /// heard of no term believes any.
    pub fn believes(&self, term: Term) -> bool {
        self.highest == Term(0) || term.0 <= self.highest.0.saturating_add(LEAP)
    }

    /// A node that has heard of nothing later than `highest`.
    pub fn new(highest: Term, holder: Option<NodeId>) -> Self {
        Self { highest, holder }
    }

    /// The latest term heard of.
    pub fn highest(&self) -> Term {
        self.highest
    }

    /// Whose term that is, where known.
    pub fn holder(&self) -> Option<NodeId> {
        self.holder
    }

    /// `node` speaks as the primary, or as a candidate, of `term`. One that cannot be
    /// [believed](Fence::believes) is refused, although it is later than the one in force.
    pub fn hear(&mut self, term: Term, node: NodeId) -> Verdict {
        if term > self.highest && self.believes(term) {
            *self = Self { highest: term, holder: Some(node) };
            return Verdict::Raised;
        }
        if term == self.highest && self.holder.is_none() {
            self.holder = Some(node);
            return Verdict::Raised;
        }
        if term == self.highest && self.holder == Some(node) {
            return Verdict::Current;
        }
        Verdict::Refused { highest: self.highest, holder: self.holder }
    }

    /// Whether a frame of `term` may still be taken in.
    pub fn admits(&self, term: Term) -> bool {
        term >= self.highest
    }
}

/// A reign that a node lives under: the primary itself, a node that follows it, or one that has
/// heard from it a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Living {
    /// Its term.
    pub term: Term,
    /// Who reigns.
    pub node: NodeId,
}

impl Living {
    /// Whether `asker`, a former primary that has heard of no later term than `heard`, has to give
    /// way to this reign, and follow it. A reign of an earlier term is over, even if some node does
    /// not know that yet.
    pub fn outranks(&self, asker: NodeId, heard: Term) -> bool {
        self.node != asker && self.term >= heard
    }
}

/// Whether the node `me` may come back as a primary without having been told to: it has promised
/// itself to no other node since it reigned or asked for a reign, or the last reign that its
/// history knows of was its own. One of the nodes that have heard of the latest term is such a
/// node, so if all of them start again, one of them reigns. It has to ask first
/// ([`Candidacy::comes_back`]).
pub fn may_come_back(me: NodeId, history: &TermHistory, fence: &Fence) -> bool {
    let reigned_last = history.reigns().last().is_some_and(|last| last.node == me);
    fence.holder() == Some(me) || fence.holder().is_some() && reigned_last
}

/// What a node says of its log when a candidate consults it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogState {
    /// Its terms.
    pub history: TermHistory,
    /// Where its persistent part ends.
    pub end: Stamp,
    /// The newest in-sync set that it knows of.
    pub set: Option<InSyncSet>,
    /// Whether commits may count on it: an asynchronous standby has no voice.
    pub synchronous: bool,
    /// What of it the node knows to be committed: as the primary, or because a primary has said so.
    pub committed: Stamp,
}

impl LogState {
    /// The later term wins, then the longer log. What counts is the term of the last block that is
    /// there, not a later reign that the node has only heard of.
    fn rank(&self) -> (Term, Stamp) {
        (self.history.cut(self.end).last_term(), self.end)
    }
}

/// What a candidate has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Plan {
    /// Somebody knows a later term: consult everyone again with at least this one.
    HigherTerm {
        /// The smallest term that can succeed.
        at_least: Term,
    },
    /// Too few nodes answered: what the others acknowledged might be lost.
    TooFew {
        /// How many answered, the candidate included.
        heard: u32,
        /// How many it takes.
        needed: u32,
    },
    /// The candidate is an asynchronous standby, and the level rests on a fixed number of synchronous nodes, of which it is none.
    Asynchronous,
    /// Under 2-safe: too few members of the newest known in-sync set answered, so there may be a later one.
    SetUncertain {
        /// The newest set that anybody who was heard knows of, if there is one.
        newest: Option<InSyncSet>,
        /// How many of its members answered, the candidate included.
        heard: u32,
        /// How many it takes.
        needed: u32,
    },
    /// Get the log of this node from `cut_at` on, up to its end, after cutting the candidate's own there.
    Fetch {
        /// From whom.
        from: NodeId,
        /// Where the two logs part.
        cut_at: Stamp,
        /// Where that node's log ends.
        upto: Stamp,
    },
    /// The candidate was a primary before, and another reigns, or has reigned, since: it follows
    /// that one.
    Follow {
        /// The other's reign.
        reign: Living,
        /// Whether a node lives under it now. Otherwise it is only known to have continued without
        /// the candidate.
        lives: bool,
    },
    /// Two nodes reigned in the same term: an operator must choose.
    SameTermTwice {
        /// The node whose log disagrees.
        with: NodeId,
        /// That term.
        term: Term,
    },
    /// The candidate's own log is the most advanced: reign from its end on.
    Reign {
        /// In this term.
        term: Term,
    },
}

/// A take-over in preparation, or a restart: collects what the peers say.
///
/// Under quorum(k) of n nodes, whatever was committed is on k of them; n - k + 1 nodes therefore include one that has it, and the
/// most advanced of those has all of it. Under very safe every standby has it. Under 2-safe every member of the in-sync set has it, so
/// the newest set must be known ([`crate::in_sync`]), and the most advanced of its members is followed. Under 1-safe any standby will do; the
/// most advanced of those that can be reached loses least. Asynchronous standbys, and those that follow a standby, are heard, but
/// count for nothing; one of them may be the candidate under 1-safe and 2-safe. Very safe and quorum rest on a number of synchronous nodes, which would
/// change if it became the primary.
///
/// A primary that restarts is a candidate like any other, but for one thing: while it was away,
/// another may have begun to reign. It gives way to that one ([`Candidacy::comes_back`]), while a
/// candidate that was told to take over does not.
#[derive(Clone, Debug)]
pub struct Candidacy {
    term: Term,
    me: NodeId,
    mine: LogState,
    heard: BTreeMap<NodeId, LogState>,
    higher: Option<Term>,
    /// The candidate's own fence when it began, or when it was last raised for this candidacy.
    fence: Fence,
    /// The candidate reigned last, as far as anybody has told it.
    undisturbed: bool,
    /// In that reign an in-sync set took effect.
    effective: bool,
    /// The candidate was a primary before, and was not told to take over.
    comes_back: Option<ComesBack>,
    /// The latest living reign to which it has to give way.
    living: Option<Living>,
}

/// What holds for a candidate that was a primary before.
#[derive(Clone, Copy, Debug)]
struct ComesBack {
    /// At least one other node has to answer, whatever the level.
    asks: bool,
    /// Another node was promised a later term: it has to answer, where no number of others would
    /// do.
    promised: Option<NodeId>,
}

impl Candidacy {
    /// A candidate that asks for a term above everything it has heard of.
    pub fn new(me: NodeId, mine: LogState, fence: &Fence) -> Self {
        let term = fence.highest().max(mine.history.last_term()).next();
        let last = mine.history.reigns().last();
        let undisturbed = last.is_some_and(|last| {
            (last.node, last.term) == (me, fence.highest()) && fence.holder().is_none_or(|holder| holder == me)
        });
        Self {
            term,
            me,
            mine,
            heard: BTreeMap::new(),
            higher: None,
            fence: *fence,
            undisturbed,
            effective: false,
            comes_back: None,
            living: None,
        }
    }

    /// The candidate was a primary before, and was not told to take over: it gives way to a living
    /// reign, and to one that has continued without it. With `asks` it does not reign before
    /// another node has answered. To be said before any node is heard.
    #[must_use]
    pub fn comes_back(mut self, asks: bool) -> Self {
        self.comes_back = Some(ComesBack { asks, promised: self.fence.holder().filter(|holder| *holder != self.me) });
        self
    }

    /// A node lives under `reign`, which [outranks](Living::outranks) this candidate.
    pub fn told(&mut self, reign: Living) {
        if self.living.is_none_or(|known| known.term < reign.term) {
            self.living = Some(reign);
        }
    }

    /// The latest reign of the candidate itself in which an in-sync set took effect was in `term`
    /// ([`crate::commit_rule::CommitRule::set_took_effect`]). To be said before anybody is heard.
    #[must_use]
    pub fn reigned(mut self, term: Option<Term>) -> Self {
        self.effective = term == Some(self.mine.history.last_term());
        self
    }

    /// The term it asks for.
    pub fn term(&self) -> Term {
        self.term
    }

    /// `peer` raised its fence to the candidate's term and described its log.
    pub fn promised(&mut self, peer: NodeId, log: LogState) {
        if peer != self.me {
            self.heard.insert(peer, log);
        }
    }

    /// A peer refused: it has heard of `highest`.
    pub fn refused(&mut self, highest: Term) {
        self.higher = self.higher.max(Some(highest));
    }

    /// Raises the candidate's own `fence` to its term, before it asks others for a promise; the fence must be persistent before anybody is asked. Begins
    /// again with a larger term if this one was promised to another meanwhile. What was promised since the candidacy began is not forgotten
    /// either: the other may reign by now, and the candidate no longer knows that nobody has since it did.
    ///
    /// # Errors
    /// When there is no larger term.
    pub fn raise(&mut self, fence: &mut Fence) -> Result<(), LastTerm> {
        self.undisturbed &= *fence == self.fence;
        if let Verdict::Refused { highest, .. } = fence.hear(self.term, self.me) {
            self.again(highest.next());
            // Above everything that was heard, it is refused only when there is no later term.
            if let Verdict::Refused { highest, .. } = fence.hear(self.term, self.me) {
                return Err(LastTerm(highest));
            }
        }
        self.fence = *fence;
        Ok(())
    }

    /// Begins again with the same term: whoever was only sounded out is now asked for a promise.
    pub fn in_earnest(&mut self) {
        self.heard.clear();
        self.higher = None;
    }

    /// Begins again with a larger term: every promise has to be asked for again.
    pub fn again(&mut self, at_least: Term) {
        self.term = at_least.max(self.term.next());
        self.in_earnest();
    }

    /// The candidate's own log has changed: it has fetched.
    pub fn fetched(&mut self, mine: LogState) {
        self.mine = mine;
    }

    /// A reign of another node that has gone on where the candidate's own log knows nothing of it:
    /// the latest that anybody who was heard has written something in, if his log is more advanced.
    /// Who takes over need not mind. Who only comes back may find that one reigning, unless it was
    /// heard itself and does not say so.
    fn superseded(&self) -> Option<Reign> {
        let known = self.mine.history.cut(self.mine.end);
        let ahead = self.heard.values().filter(|log| log.rank() > self.mine.rank());
        let last = ahead.filter_map(|log| log.history.cut(log.end).0.last().copied());
        let unknown = |reign: &Reign| {
            reign.node != self.me && !known.0.iter().any(|mine| (mine.term, mine.node) == (reign.term, reign.node))
        };
        last.filter(unknown).max_by_key(|reign| reign.term)
    }

    /// How many nodes must answer under `safety` in a cluster of `nodes`, the candidate included.
    pub fn needed(safety: Safety, nodes: u32) -> u32 {
        match safety {
            Safety::OneSafe | Safety::TwoSafe | Safety::VerySafe => 1,
            Safety::Quorum(k) => nodes.saturating_sub(k).saturating_add(1).max(1),
        }
    }

    /// What to do, given the level under which the old primary committed in a cluster of `nodes`. `force` goes on
    /// although acknowledged commits may be lost.
    pub fn plan(&self, safety: Safety, nodes: u32, force: bool) -> Plan {
        if let (Some(_), Some(reign)) = (self.comes_back, self.living) {
            return Plan::Follow { reign, lives: true };
        }
        if let Some(higher) = self.higher.filter(|higher| *higher >= self.term) {
            return Plan::HigherTerm { at_least: higher.next() };
        }
        // Whoever has blocks of a term has heard of it, and so has who fetches them.
        let written = self.heard.values().map(|log| log.rank().0).max().unwrap_or_default();
        if written >= self.term {
            return Plan::HigherTerm { at_least: written.next() };
        }
        if let Some(comes_back) = self.comes_back {
            let gone_on = self.superseded().map(|reign| Living { term: reign.term, node: reign.node });
            if let Some(reign) = gone_on.filter(|reign| !self.heard.contains_key(&reign.node)) {
                return Plan::Follow { reign, lives: false };
            }
            let unheard = comes_back.promised.filter(|node| !self.heard.contains_key(node));
            let alone = matches!(safety, Safety::OneSafe | Safety::VerySafe);
            if alone && unheard.is_some() || comes_back.asks && self.heard.is_empty() {
                let heard = self.voices();
                return Plan::TooFew { heard, needed: heard + 1 };
            }
        }
        let newest = self.newest_set();
        if !force {
            let (heard, needed) = match safety {
                Safety::TwoSafe => self.members_heard(newest.as_ref()),
                _ => (self.voices(), Self::needed(safety, nodes)),
            };
            match safety {
                Safety::OneSafe => {}
                Safety::VerySafe | Safety::Quorum(_) if !self.mine.synchronous => return Plan::Asynchronous,
                Safety::TwoSafe if heard < needed => return Plan::SetUncertain { newest, heard, needed },
                _ if heard < needed => return Plan::TooFew { heard, needed },
                _ => {}
            }
        }
        // Under 2-safe the logs of others may have been written by a primary that restarted in vain.
        let counts = |node: NodeId| {
            let members = newest.as_ref().map(|set| &set.members).filter(|_| safety == Safety::TwoSafe && !force);
            members.is_none_or(|members| members.contains(&node))
        };
        let best = self.heard.iter().filter(|(peer, _)| counts(**peer)).max_by_key(|(_, log)| log.rank());
        match best {
            Some((peer, log)) if log.rank() > self.mine.rank() || !counts(self.me) => {
                match self.mine.history.agreement(self.mine.end, &log.history, log.end) {
                    Agreement::Upto(at) if (at, at) == (log.end, self.mine.end) => Plan::Reign { term: self.term },
                    Agreement::Upto(cut_at) => Plan::Fetch { from: *peer, cut_at, upto: log.end },
                    Agreement::SameTermTwice { term, .. } => Plan::SameTermTwice { with: *peer, term },
                }
            }
            _ => Plan::Reign { term: self.term },
        }
    }

    /// The newest in-sync set that anybody who was heard knows of.
    pub fn newest_set(&self) -> Option<InSyncSet> {
        self.heard.values().fold(self.mine.set.clone(), |known, log| InSyncSet::newer(known, log.set.clone()))
    }

    /// What of the candidate's log is known to be committed, by what it knows itself and by what
    /// the others have said of the part that its log shares with theirs.
    pub fn known_committed(&self) -> Stamp {
        let shared = |log: &LogState| match self.mine.history.agreement(self.mine.end, &log.history, log.end) {
            Agreement::Upto(upto) => log.committed.min(upto),
            Agreement::SameTermTwice { .. } => Stamp::ZERO,
        };
        self.heard.values().map(shared).fold(self.mine.committed.min(self.mine.end), Stamp::max)
    }

    /// What the in-sync sets of the reign that [`Plan::Reign`] allows follow.
    pub fn succession(&self, force: bool) -> Succession {
        match self.newest_set() {
            Some(newest) if !force => Succession::Of(newest),
            newest => Succession::New(newest.map_or(1, |newest| newest.number + 1)),
        }
    }

    /// How many synchronous nodes were heard.
    fn voices(&self) -> u32 {
        let logs = self.heard.values().chain([&self.mine]);
        u32::try_from(logs.filter(|log| log.synchronous).count()).unwrap_or(u32::MAX)
    }

    /// How many members of the set were heard, and how many it takes to know that it is the newest.
    fn members_heard(&self, newest: Option<&InSyncSet>) -> (u32, u32) {
        let Some(newest) = newest else {
            // No set was ever written, or nobody who knows one answers. Only who reigned last can tell.
            return (u32::from(self.undisturbed), 1);
        };
        let own = self.mine.set.as_ref() == Some(newest);
        if newest.floor == 0 && self.undisturbed && self.effective && own && newest.members.contains(&self.me) {
            return (1, 1);
        }
        let (heard, needed) = newest.heard(|node| node == self.me || self.heard.contains_key(&node));
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (count(heard), count(needed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(reigns: &[(u32, u64)]) -> TermHistory {
        let reign = |(term, start): &(u32, u64)| Reign { term: Term(*term), start: Stamp(*start), node: NodeId(9) };
        let reigns: Vec<_> = reigns.iter().map(reign).collect();
        reigns.try_into().unwrap()
    }

    fn log(reigns: &[(u32, u64)], end: u64, set: Option<InSyncSet>) -> LogState {
        LogState { history: history(reigns), end: Stamp(end), set, synchronous: true, committed: Stamp::ZERO }
    }

    fn set(number: u64, members: &[u64], floor: u32) -> Option<InSyncSet> {
        let members = members.iter().map(|node| NodeId(*node)).collect();
        Some(InSyncSet { term: Term(1), number, members, floor, before: Vec::new() })
    }

    #[test]
    fn logs_agree_to_the_end_of_their_last_common_term() {
        let upto = |a: &[(u32, u64)], a_end, b: &[(u32, u64)], b_end| {
            let (a, b) = (history(a), history(b));
            let there = a.agreement(Stamp(a_end), &b, Stamp(b_end));
            assert_eq!(there, b.agreement(Stamp(b_end), &a, Stamp(a_end)), "agreement is mutual");
            there
        };
        let one = &[(1, 0)][..];
        assert_eq!(upto(one, 100, one, 100), Agreement::Upto(Stamp(100)));
        assert_eq!(upto(one, 100, one, 70), Agreement::Upto(Stamp(70)));
        assert_eq!(upto(one, 100, &[(1, 0), (2, 60)], 500), Agreement::Upto(Stamp(60)));
        assert_eq!(upto(one, 40, &[(1, 0), (2, 60)], 500), Agreement::Upto(Stamp(40)));
        assert_eq!(upto(&[(1, 0), (2, 50)], 90, &[(1, 0), (3, 60)], 500), Agreement::Upto(Stamp(50)));
        assert_eq!(upto(&[(1, 0), (2, 50), (4, 70)], 90, &[(1, 0), (2, 50), (3, 60)], 99), Agreement::Upto(Stamp(60)));
        assert_eq!(upto(&[], 0, &[(1, 0), (2, 60)], 500), Agreement::Upto(Stamp(0)));
        assert_eq!(
            history(&[(1, 0), (2, 50)]).agreement(Stamp(90), &history(&[(1, 0), (2, 60)]), Stamp(99)),
            Agreement::SameTermTwice { term: Term(2), here: Stamp(50), there: Stamp(60) }
        );
    }

    #[test]
    fn a_cut_log_forgets_the_reigns_that_are_gone() {
        let h = history(&[(1, 0), (2, 50), (5, 80)]);
        assert_eq!(h.cut(Stamp(80)), history(&[(1, 0), (2, 50)]));
        assert_eq!(h.cut(Stamp(0)), TermHistory::default());
    }

    #[test]
    fn histories_that_do_not_ascend_are_refused() {
        let bad: Result<TermHistory, _> =
            [0, 9].map(|start| Reign { term: Term(2), start: Stamp(start), node: NodeId(1) }).to_vec().try_into();
        assert!(bad.unwrap_err().to_string().contains("must ascend"));
        assert!(history(&[(3, 10)]).begin(Term(3), Stamp(20), NodeId(1)).is_err());
        assert!(history(&[(3, 10)]).begin(Term(4), Stamp(9), NodeId(1)).is_err());
    }

    #[test]
    fn a_fence_only_rises_and_one_term_has_one_holder() {
        let (a, b) = (NodeId(1), NodeId(2));
        let mut fence = Fence::new(Term(3), None);
        assert_eq!(fence.hear(Term(3), a), Verdict::Raised);
        assert_eq!(fence.hear(Term(3), a), Verdict::Current);
        assert_eq!(fence.hear(Term(3), b), Verdict::Refused { highest: Term(3), holder: Some(a) });
        assert_eq!(fence.hear(Term(4), b), Verdict::Raised);
        assert!(!fence.admits(Term(3)));
        assert_eq!(fence.hear(Term(3), a), Verdict::Refused { highest: Term(4), holder: Some(b) });
        // No honest node can have reached this term; and there is no term after the last one.
        let refused = Verdict::Refused { highest: Term(4), holder: Some(b) };
        assert_eq!(fence.hear(Term(u32::MAX), a), refused);
        assert_eq!(fence.hear(Term(4 + LEAP + 1), a), refused);
        assert_eq!(fence.hear(Term(4 + LEAP), a), Verdict::Raised);
        let mut fence = Fence::new(Term(0), None);
        assert_eq!(fence.hear(Term(u32::MAX), b), Verdict::Raised);
        let (history, committed) = (TermHistory::default(), Stamp(0));
        let log = LogState { history, end: Stamp(0), set: None, synchronous: true, committed };
        assert_eq!(Candidacy::new(a, log, &fence).raise(&mut fence), Err(LastTerm(Term(u32::MAX))));
    }

    #[test]
    fn a_quorum_take_over_needs_enough_voices() {
        let fence = Fence::new(Term(1), None);
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, None), &fence);
        assert_eq!(candidate.term(), Term(2));
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), Plan::TooFew { heard: 1, needed: 2 });
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, true), Plan::Reign { term: Term(2) });
        candidate.promised(NodeId(2), log(&[(1, 0)], 80, None));
        let fetch = Plan::Fetch { from: NodeId(2), cut_at: Stamp(50), upto: Stamp(80) };
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), fetch);
        candidate.fetched(log(&[(1, 0)], 80, None));
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), Plan::Reign { term: Term(2) });
    }

    #[test]
    fn a_promise_that_was_given_while_others_were_sounded_out_counts() {
        let reign = Reign { term: Term(1), start: Stamp::ZERO, node: NodeId(1) };
        let history: TermHistory = vec![reign].try_into().unwrap();
        let mine =
            LogState { history, end: Stamp(50), set: set(2, &[1, 2], 0), synchronous: true, committed: Stamp::ZERO };
        let mut fence = Fence::new(Term(1), Some(NodeId(1)));
        let mut candidate = Candidacy::new(NodeId(1), mine, &fence).reigned(Some(Term(1)));
        assert_eq!(candidate.plan(Safety::TwoSafe, 2, false), Plan::Reign { term: Term(2) });
        let mut undisturbed = (candidate.clone(), fence);
        undisturbed.0.raise(&mut undisturbed.1).unwrap();
        undisturbed.0.raise(&mut undisturbed.1).unwrap();
        assert_eq!(undisturbed.0.plan(Safety::TwoSafe, 2, false), Plan::Reign { term: Term(2) });

        // The other member asks first, and may reign by now.
        assert_eq!(fence.hear(Term(2), NodeId(2)), Verdict::Raised);
        candidate.raise(&mut fence).unwrap();
        assert_eq!((candidate.term(), fence), (Term(3), Fence::new(Term(3), Some(NodeId(1)))));
        let plan = candidate.plan(Safety::TwoSafe, 2, false);
        assert!(matches!(plan, Plan::SetUncertain { heard: 1, needed: 2, .. }), "{plan:?}");
    }

    #[test]
    fn a_restart_notices_that_another_has_gone_on() {
        let of = |reigns: &[(u32, u64, u64)], end| {
            let reign = |(term, start, node): &(u32, u64, u64)| Reign {
                term: Term(*term),
                start: Stamp(*start),
                node: NodeId(*node),
            };
            let reigns: Vec<_> = reigns.iter().map(reign).collect();
            LogState {
                history: reigns.try_into().unwrap(),
                end: Stamp(end),
                set: None,
                synchronous: true,
                committed: Stamp::ZERO,
            }
        };
        let mut candidate = Candidacy::new(NodeId(1), of(&[(1, 0, 1)], 50), &Fence::new(Term(1), Some(NodeId(1))));
        // More of its own reign, or a reign that nothing was written in, is nobody else's.
        candidate.promised(NodeId(2), of(&[(1, 0, 1)], 80));
        candidate.promised(NodeId(3), of(&[(1, 0, 1), (2, 40, 3)], 40));
        assert_eq!(candidate.superseded(), None);
        candidate.promised(NodeId(3), of(&[(1, 0, 1), (2, 40, 3)], 48));
        assert_eq!(candidate.superseded().map(|reign| (reign.term, reign.node)), Some((Term(2), NodeId(3))));
    }

    #[test]
    fn what_others_were_told_to_be_committed_counts_as_far_as_logs_are_one() {
        let fence = Fence::new(Term(1), None);
        let told = |log: LogState, committed| LogState { committed: Stamp(committed), ..log };
        let mut candidate = Candidacy::new(NodeId(1), told(log(&[(1, 0)], 50, None), 10), &fence);
        assert_eq!(candidate.known_committed(), Stamp(10));
        candidate.promised(NodeId(2), told(log(&[(1, 0)], 40, None), 30));
        assert_eq!(candidate.known_committed(), Stamp(30));
        // Of what parts from the own log at 20 nothing beyond counts.
        candidate.promised(NodeId(3), told(log(&[(1, 0), (2, 20)], 45, None), 45));
        assert_eq!(candidate.known_committed(), Stamp(30));
        candidate.promised(NodeId(3), told(log(&[(1, 0), (2, 45)], 60, None), 60));
        assert_eq!(candidate.known_committed(), Stamp(45));
    }

    #[test]
    fn a_living_reign_outranks_who_comes_back_and_nobody_who_was_told_to_take_over() {
        let fence = Fence::new(Term(1), Some(NodeId(1)));
        let told_to = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, None), &fence);
        let mut back = told_to.clone().comes_back(false);
        let reign = Living { term: Term(2), node: NodeId(2) };
        assert!(reign.outranks(NodeId(1), Term(1)) && reign.outranks(NodeId(1), Term(2)));
        assert!(!reign.outranks(NodeId(2), Term(1)) && !reign.outranks(NodeId(1), Term(3)));
        assert_eq!(back.plan(Safety::OneSafe, 3, false), Plan::Reign { term: Term(2) });
        back.told(reign);
        assert_eq!(back.plan(Safety::OneSafe, 3, false), Plan::Follow { reign, lives: true });
        // One that has gone on and is not heard itself; one that is heard, and does not reign.
        let gone_on = log(&[(1, 0), (2, 40)], 60, None);
        let reign = Living { term: Term(2), node: NodeId(9) };
        let mut back = told_to.comes_back(false);
        back.again(Term(3));
        back.promised(NodeId(3), gone_on);
        assert_eq!(back.plan(Safety::OneSafe, 3, false), Plan::Follow { reign, lives: false });
        back.promised(NodeId(9), log(&[(1, 0)], 40, None));
        assert!(matches!(back.plan(Safety::OneSafe, 3, false), Plan::Fetch { .. }));
    }

    #[test]
    fn who_comes_back_asks() {
        // Promised to another: that one has to answer where no number of others would do.
        let fence = Fence::new(Term(2), Some(NodeId(2)));
        let mut back = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, None), &fence).comes_back(false);
        assert_eq!(back.plan(Safety::VerySafe, 2, false), Plan::TooFew { heard: 1, needed: 2 });
        back.promised(NodeId(3), log(&[(1, 0)], 50, None));
        assert_eq!(back.plan(Safety::VerySafe, 2, false), Plan::TooFew { heard: 2, needed: 3 });
        back.promised(NodeId(2), log(&[(1, 0)], 50, None));
        assert_eq!(back.plan(Safety::VerySafe, 2, false), Plan::Reign { term: Term(3) });
        // At least one other node, if it was told to join.
        let fence = Fence::new(Term(1), Some(NodeId(1)));
        let mut back = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, None), &fence).comes_back(true);
        assert_eq!(back.plan(Safety::OneSafe, 2, false), Plan::TooFew { heard: 1, needed: 2 });
        back.promised(NodeId(2), log(&[(1, 0)], 50, None));
        assert_eq!(back.plan(Safety::OneSafe, 2, false), Plan::Reign { term: Term(2) });
        // Who may: whose reign was the last, or who was promised one.
        let history = |node| TermHistory::first(Term(1), NodeId(node));
        assert!(may_come_back(NodeId(1), &history(1), &Fence::new(Term(2), Some(NodeId(2)))));
        assert!(may_come_back(NodeId(1), &history(2), &Fence::new(Term(2), Some(NodeId(1)))));
        assert!(!may_come_back(NodeId(1), &history(2), &Fence::new(Term(2), Some(NodeId(2)))));
        assert!(!may_come_back(NodeId(1), &history(1), &Fence::new(Term(1), None)));
    }

    #[test]
    fn a_later_term_outranks_a_longer_log() {
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 500, None), &Fence::new(Term(4), None));
        candidate.promised(NodeId(2), log(&[(1, 0), (3, 60)], 70, None));
        candidate.promised(NodeId(3), log(&[(1, 0)], 900, None));
        let fetch = Plan::Fetch { from: NodeId(2), cut_at: Stamp(60), upto: Stamp(70) };
        assert_eq!(candidate.plan(Safety::OneSafe, 3, false), fetch);
    }

    #[test]
    fn a_refusal_asks_for_a_larger_term_and_new_promises() {
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, None), &Fence::new(Term(1), None));
        candidate.promised(NodeId(2), log(&[(1, 0)], 50, None));
        candidate.refused(Term(7));
        assert_eq!(candidate.plan(Safety::OneSafe, 3, true), Plan::HigherTerm { at_least: Term(8) });
        candidate.again(Term(8));
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), Plan::TooFew { heard: 1, needed: 2 });
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, true), Plan::Reign { term: Term(8) });
    }

    #[test]
    fn two_nodes_in_one_term_have_nothing_of_it_in_common() {
        let of = |node| {
            let mut history = TermHistory::first(Term(1), NodeId(1));
            history.begin(Term(2), Stamp(50), NodeId(node)).unwrap();
            history
        };
        assert_eq!(of(1).agreement(Stamp(90), &of(2), Stamp(80)), Agreement::Upto(Stamp(50)));
        assert_eq!(of(2).agreement(Stamp(90), &of(2), Stamp(80)), Agreement::Upto(Stamp(80)));
    }

    #[test]
    fn asynchronous_standbys_have_no_voice() {
        let fence = Fence::new(Term(1), None);
        let silent = |end| LogState { synchronous: false, ..log(&[(1, 0)], end, None) };
        let candidate = Candidacy::new(NodeId(1), silent(50), &fence);
        assert_eq!(candidate.plan(Safety::VerySafe, 3, false), Plan::Asynchronous);
        assert_eq!(candidate.plan(Safety::OneSafe, 3, false), Plan::Reign { term: Term(2) });
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, None), &fence);
        candidate.promised(NodeId(2), silent(90));
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), Plan::TooFew { heard: 1, needed: 2 });
        candidate.promised(NodeId(3), log(&[(1, 0)], 70, None));
        // Heard they are, and the longest log loses least.
        let fetch = Plan::Fetch { from: NodeId(2), cut_at: Stamp(50), upto: Stamp(90) };
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), fetch);
    }

    #[test]
    fn under_two_safe_a_standby_that_was_put_out_may_not_reign() {
        let fence = Fence::new(Term(1), Some(NodeId(9)));
        let plan = |mine: Option<InSyncSet>, others: &[(u64, u64, Option<InSyncSet>)]| {
            let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, mine), &fence);
            for (node, end, set) in others {
                candidate.promised(NodeId(*node), log(&[(1, 0)], *end, set.clone()));
            }
            candidate.plan(Safety::TwoSafe, 3, false)
        };
        let uncertain = |plan| match plan {
            Plan::SetUncertain { heard, needed, .. } => (heard, needed),
            other => panic!("{other:?}"),
        };
        let all = set(4, &[9, 1, 2], 0);
        // Alone it cannot know, nor with the other standby: the primary may have gone on alone.
        assert_eq!(uncertain(plan(all.clone(), &[])), (1, 3));
        assert_eq!(uncertain(plan(all.clone(), &[(2, 60, all.clone())])), (2, 3));
        // Somebody knows that it was put out.
        assert_eq!(uncertain(plan(all.clone(), &[(2, 60, set(5, &[9, 2], 0))])), (1, 2));
        // With everybody of the newest set it may reign: after it has fetched what they hold.
        let known = plan(all.clone(), &[(2, 60, set(5, &[9, 2], 0)), (9, 70, set(5, &[9, 2], 0))]);
        assert_eq!(known, Plan::Fetch { from: NodeId(9), cut_at: Stamp(50), upto: Stamp(70) });
        // With a floor the primary cannot have gone on alone.
        let floored = set(4, &[9, 1, 2], 1);
        assert_eq!(uncertain(plan(floored.clone(), &[])), (1, 2));
        assert_eq!(plan(floored.clone(), &[(2, 40, floored)]), Plan::Reign { term: Term(2) });
        assert_eq!(plan(set(4, &[9, 1], 1), &[]), Plan::Reign { term: Term(2) });
    }

    #[test]
    fn under_two_safe_logs_of_non_members_do_not_count() {
        // 2 restarted in vain, in a term that is later than that of the newest set.
        let newest = set(5, &[9, 1], 1);
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, newest), &Fence::new(Term(1), None));
        let vain = || log(&[(1, 0), (4, 30)], 40, set(3, &[9, 1, 2], 1));
        candidate.promised(NodeId(2), vain());
        assert_eq!(candidate.plan(Safety::TwoSafe, 3, false), Plan::HigherTerm { at_least: Term(5) });
        candidate.again(Term(5));
        candidate.promised(NodeId(2), vain());
        assert_eq!(candidate.plan(Safety::TwoSafe, 3, false), Plan::Reign { term: Term(5) });
        let first = candidate.succession(false).first(candidate.term(), NodeId(1), 1);
        assert_eq!((first.number, first.term, first.members.len()), (6, Term(5), 2));
        // As the candidate it has to give up its own tail.
        let mut other = Candidacy::new(
            NodeId(2),
            log(&[(1, 0), (4, 30)], 40, set(3, &[9, 1, 2], 1)),
            &Fence::new(Term(4), Some(NodeId(2))),
        );
        other.promised(NodeId(1), log(&[(1, 0)], 50, set(5, &[9, 1], 1)));
        let fetch = Plan::Fetch { from: NodeId(1), cut_at: Stamp(30), upto: Stamp(50) };
        assert_eq!(other.plan(Safety::TwoSafe, 3, false), fetch);
    }

    #[test]
    fn a_primary_that_restarts_knows_unless_somebody_told_it_otherwise() {
        let mine = || LogState { history: TermHistory::first(Term(1), NodeId(1)), ..log(&[], 50, set(4, &[1, 2], 0)) };
        let plan = |mine, fence| {
            Candidacy::new(NodeId(1), mine, &fence).reigned(Some(Term(1))).plan(Safety::TwoSafe, 2, false)
        };
        assert_eq!(plan(mine(), Fence::new(Term(1), Some(NodeId(1)))), Plan::Reign { term: Term(2) });
        let uncertain = |plan| matches!(plan, Plan::SetUncertain { heard: 1, .. });
        assert!(uncertain(plan(mine(), Fence::new(Term(2), Some(NodeId(2))))));
        // With a floor the others may have gone on without it.
        let floored = LogState { set: set(4, &[1, 2, 3], 1), ..mine() };
        assert!(uncertain(plan(floored, Fence::new(Term(1), Some(NodeId(1))))));
        // Its reign may have begun in vain: then another may reign without having heard of it.
        let vain = Candidacy::new(NodeId(1), mine(), &Fence::new(Term(1), Some(NodeId(1))));
        assert!(uncertain(vain.plan(Safety::TwoSafe, 2, false)));
    }
}
