//! Terms: whose word counts, where logs part, and who may take over.
//!
//! A term is the reign of one primary. (term, stamp) identifies a block, which rests on three rules:
//!
//! 1. Whoever begins to reign does so in a term that is new to everyone it has heard, also the node that
//!    reigned last and only restarted: what it lost in the crash may live on in a standby, and must not share a
//!    name with what it writes now.
//! 2. A node enters a term only after it has cut its log where its copy and the primary's part ([`TermHistory::agreement`]).
//! 3. Whoever has heard of a term accepts nothing of an earlier one ([`Fence`]). The fence is persistent, and an answer to a
//!    candidate raises it first, so that a quorum which has been consulted is lost to the old primary.

use std::collections::BTreeMap;

use freshet_base::{NodeId, Safety, Stamp, Term};
use serde::{Deserialize, Serialize};

/// The beginning of one reign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reign {
    /// Its term.
    pub term: Term,
    /// Its first block.
    pub start: Stamp,
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
    /// Both have a reign of the same term with different beginnings: two nodes reigned in one term,
    /// and nothing that either says can be trusted by the other.
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
    pub fn first(term: Term) -> Self {
        Self(vec![Reign { term, start: Stamp::ZERO }])
    }

    /// The reigns, oldest first.
    pub fn reigns(&self) -> &[Reign] {
        &self.0
    }

    /// The latest term; zero for an empty log, which has none.
    pub fn last_term(&self) -> Term {
        self.0.last().map_or(Term(0), |reign| reign.term)
    }

    /// The term in which the block at `stamp` was written, if the log reached that far.
    pub fn term_of(&self, stamp: Stamp) -> Option<Term> {
        let after = self.0.partition_point(|reign| reign.start <= stamp);
        after.checked_sub(1).map(|index| self.0[index].term)
    }

    /// A new reign begins at `start`, the end of the log.
    ///
    /// # Errors
    /// [`BadHistory`] when the term or the start does not ascend.
    pub fn begin(&mut self, term: Term, start: Stamp) -> Result<(), BadHistory> {
        let second = Reign { term, start };
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
            let Some(place) = there.0.iter().position(|reign| reign.term == mine.term) else { continue };
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

impl Fence {
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

    /// `node` speaks as the primary, or as a candidate, of `term`.
    pub fn hear(&mut self, term: Term, node: NodeId) -> Verdict {
        if term > self.highest {
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

/// What a node says of its log when a candidate consults it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogState {
    /// Its terms.
    pub history: TermHistory,
    /// Where its persistent part ends.
    pub end: Stamp,
    /// Whether it was in sync, as far as its primary told it (a primary counts itself).
    pub in_sync: bool,
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
    /// Enough answered, but none of them was in sync when last told.
    NoneInSync,
    /// Get the log of this node from `cut_at` on, up to its end, after cutting the candidate's own there.
    Fetch {
        /// From whom.
        from: NodeId,
        /// Where the two logs part.
        cut_at: Stamp,
        /// Where that node's log ends.
        upto: Stamp,
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

/// A take-over in preparation: collects what the peers say.
///
/// Under quorum(k) of n nodes, whatever was committed is on k of them; n - k + 1 nodes therefore include one that has it, and the
/// most advanced of those has all of it. Under very safe every standby has it. Under 2-safe every standby in the in-sync set has it, so
/// one of those that are heard must have been told that it is. Under 1-safe any standby will do; the
/// most advanced of those that can be reached loses least.
#[derive(Clone, Debug)]
pub struct Candidacy {
    term: Term,
    me: NodeId,
    mine: LogState,
    heard: BTreeMap<NodeId, LogState>,
    higher: Option<Term>,
}

impl Candidacy {
    /// A candidate that asks for a term above everything it has heard of.
    pub fn new(me: NodeId, mine: LogState, fence: &Fence) -> Self {
        let term = Term(fence.highest().max(mine.history.last_term()).0 + 1);
        Self { term, me, mine, heard: BTreeMap::new(), higher: None }
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

    /// Begins again with the same term: whoever was only sounded out is now asked for a promise.
    pub fn in_earnest(&mut self) {
        self.heard.clear();
        self.higher = None;
    }

    /// Begins again with a larger term: every promise has to be asked for again.
    pub fn again(&mut self, at_least: Term) {
        self.term = Term(at_least.0.max(self.term.0 + 1));
        self.in_earnest();
    }

    /// The candidate's own log has changed: it has fetched.
    pub fn fetched(&mut self, mine: LogState) {
        self.mine = mine;
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
        if let Some(higher) = self.higher.filter(|higher| *higher >= self.term) {
            return Plan::HigherTerm { at_least: Term(higher.0 + 1) };
        }
        let heard = u32::try_from(self.heard.len() + 1).unwrap_or(u32::MAX);
        let needed = Self::needed(safety, nodes);
        if heard < needed && !force {
            return Plan::TooFew { heard, needed };
        }
        let any_in_sync = self.mine.in_sync || self.heard.values().any(|log| log.in_sync);
        if safety == Safety::TwoSafe && !any_in_sync && !force {
            return Plan::NoneInSync;
        }
        let best = self.heard.iter().max_by_key(|(_, log)| log.rank());
        match best {
            Some((peer, log)) if log.rank() > self.mine.rank() => {
                match self.mine.history.agreement(self.mine.end, &log.history, log.end) {
                    Agreement::Upto(cut_at) => Plan::Fetch { from: *peer, cut_at, upto: log.end },
                    Agreement::SameTermTwice { term, .. } => Plan::SameTermTwice { with: *peer, term },
                }
            }
            _ => Plan::Reign { term: self.term },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(reigns: &[(u32, u64)]) -> TermHistory {
        let reigns: Vec<_> = reigns.iter().map(|(t, s)| Reign { term: Term(*t), start: Stamp(*s) }).collect();
        reigns.try_into().unwrap()
    }

    fn log(reigns: &[(u32, u64)], end: u64, in_sync: bool) -> LogState {
        LogState { history: history(reigns), end: Stamp(end), in_sync }
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
        assert_eq!(h.term_of(Stamp(79)), Some(Term(2)));
        assert_eq!(TermHistory::default().term_of(Stamp(0)), None);
    }

    #[test]
    fn histories_that_do_not_ascend_are_refused() {
        let bad: Result<TermHistory, _> =
            vec![Reign { term: Term(2), start: Stamp(0) }, Reign { term: Term(2), start: Stamp(9) }].try_into();
        assert!(bad.unwrap_err().to_string().contains("must ascend"));
        assert!(history(&[(3, 10)]).begin(Term(3), Stamp(20)).is_err());
        assert!(history(&[(3, 10)]).begin(Term(4), Stamp(9)).is_err());
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
    }

    #[test]
    fn a_quorum_take_over_needs_enough_voices() {
        let fence = Fence::new(Term(1), None);
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, true), &fence);
        assert_eq!(candidate.term(), Term(2));
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), Plan::TooFew { heard: 1, needed: 2 });
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, true), Plan::Reign { term: Term(2) });
        candidate.promised(NodeId(2), log(&[(1, 0)], 80, true));
        let fetch = Plan::Fetch { from: NodeId(2), cut_at: Stamp(50), upto: Stamp(80) };
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), fetch);
        candidate.fetched(log(&[(1, 0)], 80, true));
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), Plan::Reign { term: Term(2) });
    }

    #[test]
    fn a_later_term_outranks_a_longer_log() {
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 500, true), &Fence::new(Term(4), None));
        candidate.promised(NodeId(2), log(&[(1, 0), (3, 60)], 70, true));
        candidate.promised(NodeId(3), log(&[(1, 0)], 900, true));
        let fetch = Plan::Fetch { from: NodeId(2), cut_at: Stamp(60), upto: Stamp(70) };
        assert_eq!(candidate.plan(Safety::OneSafe, 3, false), fetch);
    }

    #[test]
    fn a_refusal_asks_for_a_larger_term_and_new_promises() {
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, true), &Fence::new(Term(1), None));
        candidate.promised(NodeId(2), log(&[(1, 0)], 50, true));
        candidate.refused(Term(7));
        assert_eq!(candidate.plan(Safety::OneSafe, 3, true), Plan::HigherTerm { at_least: Term(8) });
        candidate.again(Term(8));
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, false), Plan::TooFew { heard: 1, needed: 2 });
        assert_eq!(candidate.plan(Safety::Quorum(2), 3, true), Plan::Reign { term: Term(8) });
    }

    #[test]
    fn under_two_safe_a_standby_that_was_put_out_may_not_reign() {
        let mut candidate = Candidacy::new(NodeId(1), log(&[(1, 0)], 50, false), &Fence::new(Term(1), None));
        assert_eq!(candidate.plan(Safety::TwoSafe, 2, false), Plan::NoneInSync);
        candidate.promised(NodeId(2), log(&[(1, 0)], 90, true));
        assert!(matches!(candidate.plan(Safety::TwoSafe, 2, false), Plan::Fetch { .. }));
    }
}
