//! What a node that follows knows of its cluster: the level that was announced, who leads as far as
//! that is known, and the term under which it lives. Standbys and mirrors know it in the same way.

use std::time::Duration;

use freshet_base::{NodeId, Safety, Term};

use crate::{
    Moment,
    term::{Fence, Living},
};

/// See the module.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// How long a node that leads may be silent.
    patience: Duration,
    level: Option<Safety>,
    /// The term of the connection by which the log flows, if it does, and whether that comes from a
    /// relay: then the relay is heard, and the primary may be silent.
    term: Option<(Term, bool)>,
    /// Who announced last that it leads, or is about to, and when that was.
    observed: Option<(Living, Moment)>,
}

impl ClusterView {
    /// Nothing is known yet. A node that leads is silent no longer than `patience`.
    pub fn new(patience: Duration) -> Self {
        Self { patience, level: None, term: None, observed: None }
    }

    /// The log flows, in this term, from the primary or from a relay.
    pub fn linked(&mut self, term: Term, relayed: bool) {
        self.term = Some((term, relayed));
    }

    /// The connection is over. What was announced of its term was heard before.
    pub fn closed(&mut self) {
        let term = self.term.take().map(|(term, _)| term);
        self.observed.take_if(|(living, _)| Some(living.term) == term);
    }

    /// The primary announces its safety level.
    pub fn observe_level(&mut self, safety: Safety) {
        self.level = Some(safety);
    }

    /// The level that the primary has announced since this node started.
    pub fn level(&self) -> Option<Safety> {
        self.level
    }

    /// A node leads, or is about to, as it announces itself.
    pub fn observe_primary(&mut self, living: Living, now: Moment) {
        self.observed = Some((living, now));
    }

    /// A node announces itself that it does not lead.
    pub fn observe_not_leading(&mut self, node: NodeId) {
        self.observed.take_if(|(living, _)| living.node == node);
    }

    /// The term under which this node lives, as far as that is known, and whether that is known
    /// only by hearsay: its primary sends the log here, or it was observed no longer ago than a
    /// primary may be silent, and the log does not come from a relay.
    pub fn living(&self, fence: &Fence, now: Moment) -> Option<(Living, bool)> {
        let living = Living { term: fence.highest(), node: fence.holder()? };
        if self.term == Some((living.term, false)) {
            return Some((living, false));
        }
        // Below a relay, where the primary announces itself now and then, others notice sooner that
        // it is silent.
        if self.term == Some((living.term, true)) {
            return None;
        }
        let recent = |(observed, at): &(Living, Moment)| *observed == living && now.since(*at) < self.patience;
        self.observed.as_ref().is_some_and(recent).then_some((living, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_lives_while_its_log_flows_or_it_was_observed() {
        let now = Moment(0);
        let mut it = ClusterView::new(Duration::from_secs(1));
        let fence = Fence::new(Term(1), Some(NodeId(1)));
        let living = Living { term: Term(1), node: NodeId(1) };
        it.linked(Term(1), true);
        assert_eq!(it.living(&fence, now), None, "a relay says nothing of its primary");
        it.observe_primary(living, now);
        assert_eq!(it.living(&fence, now), None, "it may have been silent since");
        it.linked(Term(1), false);
        assert_eq!(it.living(&fence, now), Some((living, false)));
        let later = Fence::new(Term(2), Some(NodeId(3)));
        assert_eq!(it.living(&later, now), None, "a log of the past is no sign of life");
        it.closed();
        assert_eq!(it.living(&fence, now), None);
        it.observe_primary(living, now);
        assert_eq!(it.living(&fence, Moment(999_999)), Some((living, true)));
        assert_eq!(it.living(&fence, Moment(1_000_000)), None);
        it.observe_primary(living, now);
        it.observe_not_leading(NodeId(1));
        assert_eq!(it.living(&fence, now), None);
    }
}
