//! Whose log a term begins with.

use freshet_base::{Lsn, NodeId};

use super::{Candidacy, LogState};
use crate::{
    in_sync::{Holder, InSyncSet, last_in_effect},
    promotion::{Fetch, Plan, Stopped},
    term::Agreement,
};

impl Candidacy {
    /// Whose log the term begins with: the most advanced one of the members that were heard.
    pub(super) fn follow_best(&self, newest: Option<InSyncSet>, force: bool) -> Plan {
        // The logs of others may have been written by a primary that restarted and committed
        // nothing, or hold less than was committed.
        let counts = |node: NodeId, log: &LogState| {
            let holder = Holder::new(node, log.incarnation);
            // What was committed before the newest set may be with members of earlier ones alone.
            let has_all = |set: &InSyncSet| matches!(self.agreement(log), Agreement::Upto(at) if at >= set.since);
            let before = |set: &&InSyncSet| set.possible_members().any(|member| *member == holder) && !has_all(set);
            let named = |set: &&InSyncSet| set.members.contains(&holder) || before(set);
            newest.as_ref().filter(|_| !force).is_none_or(|set| named(&set))
        };
        let mine = counts(self.me, &self.mine);
        let others = self.logs.iter().filter(|(peer, log)| counts(**peer, log) && !self.has_enough(log));
        // Who forces it wants what the candidate holds.
        let others = others.filter(|(_, log)| !force || self.keeps(log));
        // Blocks of terms later than the newest record do not count: they commit nothing before
        // their set is recorded. Of two terms of one number, one commits.
        let upto = newest.as_ref().filter(|_| !force);
        let rank = |peer: NodeId, log: &LogState| {
            let rivals = self.is_rivalled(log) || self.is_superseded_by(peer, log, newest.as_ref());
            (rivals, log.rank_by(upto), log.log)
        };
        let best = others.max_by_key(|(peer, log)| rank(**peer, log));
        match best {
            // Of the members only such were heard that have lost what they held.
            None if !mine => {
                let (answered, needed) = (self.votes(), self.votes() + 1);
                Plan::Stop(Stopped::SetUncertain { newest, answered, needed })
            }
            Some((peer, log)) if rank(*peer, log) > (false, self.mine.rank_by(upto), true) || !mine => {
                // Under 1-safe no record says what was committed, and a node may have led alone.
                let alone = newest.is_none() && self.comes_back.is_none();
                let committed = if alone { self.kept_beside(log) } else { self.committed() };
                match (self.agreement(log), self.holds_more(*peer, log, committed)) {
                    (Agreement::Upto(at), _) if (at, at) == (log.end, self.mine.end) => Plan::Lead { term: self.term },
                    (Agreement::Upto(_), Some(holds_more)) => Plan::Stop(holds_more),
                    (Agreement::Upto(cut_at), None) if log.log => {
                        Plan::Fetch(Fetch { from: *peer, cut_at, upto: log.end })
                    }
                    (Agreement::Upto(_), None) if let Some(fetch) = self.passes_on(log) => Plan::Fetch(fetch),
                    (Agreement::Upto(_), None) if force => Plan::Lead { term: self.term },
                    (Agreement::Upto(_), None) => Plan::Stop(Stopped::Better(*peer)),
                    // A former primary may itself be the one that was set back.
                    (_, Some(holds_more)) if self.comes_back.is_none() => Plan::Stop(holds_more),
                    (Agreement::SameTermTwice { term, .. }, _) => {
                        Plan::Stop(Stopped::SameTermTwice { with: *peer, term })
                    }
                }
            }
            _ => Plan::Lead { term: self.term },
        }
    }

    /// What to fetch from a node with the log that made what `mirror` has. Commits need not count
    /// on that node.
    fn passes_on(&self, mirror: &LogState) -> Option<Fetch> {
        let (term, _) = mirror.rank();
        let is_the_same = |log: &LogState| {
            let common = mirror.history.agreement(mirror.end, &log.history, log.end);
            log.log && matches!(common, Agreement::Upto(at) if at >= mirror.end) && log.rank().0 == term
        };
        let (from, log) = self.logs.iter().find(|(_, log)| is_the_same(log))?;
        match self.agreement(log) {
            Agreement::Upto(cut_at) if cut_at >= self.committed() => Some(Fetch { from: *from, cut_at, upto: log.end }),
            _ => None,
        }
    }

    /// Whether that node, and so the candidate, has a term that was begun twice, and clients were
    /// told of commits in that node's: which log is right no number says. (A former primary that
    /// comes back has been taken for right by its own clients.)
    pub(super) fn is_rivalled(&self, log: &LogState) -> bool {
        let twice = matches!(self.agreement(log), Agreement::SameTermTwice { upto, .. } if upto < log.committed);
        twice && self.comes_back.is_none()
    }

    /// Whether the candidate has blocks of a term that never committed anything, and `peer` commits
    /// of an earlier one in their place: `newest`, a record of the later term, names that node's
    /// log, which does not have it. A node that had promised itself to the later term lost its log,
    /// and the earlier term has gone on without that node.
    fn is_superseded_by(&self, peer: NodeId, log: &LogState, newest: Option<&InSyncSet>) -> bool {
        let Some(newest) = newest.filter(|set| set.quorum.is_none()) else { return false };
        let lacks = log.history.cut(log.end).last_term() <= newest.term && !log.has_some_of(newest);
        let named = newest.members.contains(&Holder::new(peer, log.incarnation));
        let parted =
            matches!(self.agreement(log), Agreement::Upto(at) if at < log.committed.min(log.end).min(self.mine.end));
        lacks && named && parted
    }

    /// What follows if the candidate would give up for this log what is `committed`.
    pub(super) fn holds_more(&self, than: NodeId, log: &LogState, committed: Lsn) -> Option<Stopped> {
        let (Agreement::Upto(at) | Agreement::SameTermTwice { upto: at, .. }) = self.agreement(log);
        (at < committed).then_some(Stopped::HoldsMore { than, at, committed })
    }

    /// What follows if the log with which the term would begin lacks what another node that was
    /// heard knows to be committed. An earlier term than that log's has ended, by a decision of
    /// that time; of one that is not earlier, a node may be the living primary.
    pub(super) fn leaves_out(&self, plan: &Plan) -> Option<Stopped> {
        let base = match plan {
            Plan::Lead { .. } => &self.mine,
            Plan::Fetch(fetch) => self.logs.get(&fetch.from)?,
            Plan::HigherTerm { .. } | Plan::Stop(_) => return None,
        };
        let lost = |log: &LogState| {
            let (Agreement::Upto(at) | Agreement::SameTermTwice { upto: at, .. }) =
                base.history.agreement(base.end, &log.history, log.end);
            let committed = log.committed.min(log.end);
            (at < committed && log.rank().0 >= base.rank().0).then_some((at, committed))
        };
        let left_out = self.logs.iter().filter_map(|(node, log)| lost(log).map(|lost| (*node, lost)));
        let (node, (at, committed)) = left_out.max_by_key(|(node, _)| self.logs[node].rank())?;
        Some(Stopped::LeavesOut { node, at, committed })
    }

    /// Whether the candidate gives up nothing that it knows to be committed if it follows this log.
    fn keeps(&self, log: &LogState) -> bool {
        matches!(self.agreement(log), Agreement::Upto(at) if at >= self.kept_beside(log))
    }

    /// Up to where the candidate gives nothing up for `log` unless a person says so: what it knows
    /// to be committed; or all that it has, if its last term took effect and `log` has nothing of
    /// that term. The same holds for a node that follows
    /// ([`crate::entering::Entering::to_follow`]).
    fn kept_beside(&self, log: &LogState) -> Lsn {
        let LogState { history, end, set, .. } = &self.mine;
        match last_in_effect(history, (self.me, *end), self.led, set.as_ref()) {
            Some(last) if !log.has_some(|entry| entry.is(&last)) => *end,
            _ => self.committed(),
        }
    }

    /// Whether the candidate can do without what a node has more that has no log: the candidate
    /// wrote it, and nothing of it was committed, as far as that node knows. (What is committed is
    /// durable where it was written, unless that disk was set back.)
    fn has_enough(&self, log: &LogState) -> bool {
        let mine = self.mine.written_in();
        let wrote = mine.is_some_and(|mine| mine.node == self.me) && mine == log.written_in();
        !log.log && wrote && log.committed <= self.mine.end
    }
}
