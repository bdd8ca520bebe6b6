//! A candidate that no operator has asked to stand ([`crate::watch`]), and what it waits for.

use std::time::Duration;

use freshet_base::{NodeId, Safety};

use super::{Candidacy, ComesBack, Stopped, Testimony, count};
use crate::in_sync::{InSyncSet, Possible};

/// Why no node takes a lost primary's place by itself, however it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeedsOperator {
    /// Nothing says which standby has what was acknowledged.
    #[error("under 1-safe a standby cannot know whether it has all that was acknowledged")]
    OneSafe,
    /// No set was recorded yet, or this node knows of none.
    #[error("no in-sync set is known here yet")]
    Unknown,
    /// Nothing is left without the primary.
    #[error(
        "commits count on one node, and no other has all that it acknowledges: two more are needed, or one and a \
         witness"
    )]
    Alone,
    /// What is left without the primary is no majority.
    #[error(
        "commits count on two nodes, and neither can tell a lost node from a lost connection: a third one is needed, \
         or a witness"
    )]
    OfTwo,
    /// Enough nodes belong to the cluster, and too few of them are in sync.
    #[error(
        "of {belong} nodes that count only {in_sync} are in sync, and no other may take the place of one that is lost: \
         start those again that are away"
    )]
    Away {
        /// Nodes with data, and a witness.
        belong: usize,
        /// Of these.
        in_sync: usize,
    },
    /// The primary may have gone on without those who would vote.
    #[error(
        "the primary may go on without its standbys, so that they cannot know whether they have all that was \
         acknowledged: set least-in-sync, or the level quorum:K"
    )]
    MayGoOnAlone,
}

/// Whether any node of this set, the newest that is known, can be lost as a primary, and the others
/// find a successor without an operator. `safety` is the level where no set is known.
///
/// # Errors
/// [`NeedsOperator`] otherwise.
pub fn is_unattended(safety: Safety, newest: Option<&InSyncSet>) -> Result<(), NeedsOperator> {
    if newest.map_or(safety, InSyncSet::kept_level) == Safety::OneSafe {
        return Err(NeedsOperator::OneSafe);
    }
    let set = newest.ok_or(NeedsOperator::Unknown)?;
    let belong = set.roster.voters.len() + usize::from(set.roster.witness.is_some());
    match set.members.len() {
        in_sync @ (1 | 2) if belong > 2 => return Err(NeedsOperator::Away { belong, in_sync }),
        0 | 1 => return Err(NeedsOperator::Alone),
        2 => return Err(NeedsOperator::OfTwo),
        _ => {}
    }
    if set.floor == 0 { Err(NeedsOperator::MayGoOnAlone) } else { Ok(()) }
}

/// The same, were all nodes in sync that belong to the cluster: one that cannot follow the primary
/// of a contested term ([`crate::contest`]) is not.
pub fn is_to_be_unattended(safety: Safety, newest: Option<&InSyncSet>) -> bool {
    matches!(is_unattended(safety, newest), Ok(()) | Err(NeedsOperator::Away { .. }))
}

/// Whether the nodes that are in sync with a primary of this set, `in_sync` in number, can choose
/// its successor at this moment.
///
/// # Errors
/// [`NeedsOperator::Away`] otherwise.
pub fn has_successors(set: &InSyncSet, in_sync: u32) -> Result<(), NeedsOperator> {
    let (belong, in_sync) = (set.members.len(), in_sync as usize);
    if in_sync > belong / 2 { Ok(()) } else { Err(NeedsOperator::Away { belong, in_sync: in_sync + 1 }) }
}

impl Candidacy {
    /// No operator has asked the candidate to stand: it gives way to a living primary, and leads
    /// only if more than half of each set that may be in effect have answered. To be said before
    /// any node is heard.
    #[must_use]
    pub fn automatic(mut self) -> Self {
        (self.automatic, self.comes_back) = (true, Some(ComesBack { asks: true, promised: None }));
        self
    }

    /// Of a node that comes back: whether others may choose a successor by themselves at this
    /// moment, as far as it knows, and some of them answer. Then it has them promise before it
    /// begins a term, though its level needs no answer: else two nodes may begin one at once.
    pub fn may_be_succeeded(&self, safety: Safety) -> bool {
        self.answered().next().is_some() && self.any_can_be_lost(safety)
    }

    /// Whether nodes that are silent are no loss once enough have answered: any can be lost, as far
    /// as the candidate knows. What others hold of a former primary's own last term outranks its
    /// disk, unless that has a later promise to another node.
    pub(crate) fn does_without_silent(&self, safety: Safety) -> bool {
        let waits = self.comes_back.is_some_and(|back| back.promised.is_none());
        !waits && self.any_can_be_lost(safety)
    }

    fn any_can_be_lost(&self, safety: Safety) -> bool {
        is_unattended(safety, self.newest_set().as_ref()).is_ok()
    }

    /// How many synchronous nodes were heard.
    pub(super) fn votes(&self) -> u32 {
        let logs = self.logs.values().chain([&self.mine]);
        count(logs.filter(|log| log.synchronous).count())
    }

    /// What is missing for a promotion that no operator has asked for. Others may hear a primary
    /// that the candidate does not. Under 1-safe there is no such promotion.
    pub(super) fn lacks_majority(&self, newest: Option<&InSyncSet>) -> Option<Stopped> {
        let Some(newest) = newest else {
            let answered = self.votes();
            return Some(Stopped::TooFew { answered, needed: answered + 1 });
        };
        let lacks = |set: Possible<'_>| {
            let (members, all) = (set.members, set.quorum.is_none());
            let answered = members.iter().filter(|holder| self.has_answered(holder, all)).count();
            let needed = members.len() / 2 + 1;
            (answered < needed).then(|| Stopped::TooFew { answered: count(answered), needed: count(needed) })
        };
        newest.possible().find_map(lacks)
    }

    /// How long the leases last that those have granted who have answered, and the candidate. If
    /// the primary of before has answered, its term is over there, and so are its leases. Those
    /// whose logs are not compared may have followed a later one than all others.
    pub fn lease_left(&self) -> Duration {
        let is_over = |node: NodeId| node == self.me || self.answered().any(|answered| answered == node);
        let lasts = |known: &&Testimony| !known.granted.is_some_and(|living| is_over(living.node));
        let of_testimonies = self.met.values().filter(lasts).map(|known| known.lease).max().unwrap_or_default();
        let histories = self.logs.values().map(|log| &log.history).chain([&self.mine.history]);
        let before = histories.filter_map(|history| history.entries().last()).max_by_key(|entry| entry.term);
        if before.is_some_and(|before| is_over(before.node)) {
            return of_testimonies;
        }
        self.logs.values().map(|log| log.lease).fold(self.mine.lease.max(of_testimonies), Duration::max)
    }

    /// Of a node that comes back: whether others are about to choose a successor.
    pub(crate) fn lets_elect(&self) -> bool {
        self.comes_back.is_some() && self.lets_elect
    }

    /// Whether another candidate comes before this one: it has a later term, or the same and a
    /// smaller id.
    pub(crate) fn is_outbid(&self) -> bool {
        self.outbid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_sync::{Holder, tests::first_set};

    #[test]
    fn two_of_three_have_to_be_in_sync_with_a_primary() {
        let logs = |nodes: &[u64]| nodes.iter().map(|node| Holder::new(NodeId(*node), 1)).collect();
        let three = InSyncSet { floor: 1, ..first_set(NodeId(1), logs(&[1, 2, 3])) };
        assert_eq!(has_successors(&three, 2), Ok(()));
        let away = NeedsOperator::Away { belong: 3, in_sync: 2 };
        assert_eq!(has_successors(&three, 1), Err(away));
        let two = InSyncSet { members: logs(&[1, 2]), ..three.clone() };
        assert_eq!(is_unattended(Safety::Majority, Some(&two)), Err(away));
        // The third may be away since it has promised the term to another node.
        let only_two = first_set(NodeId(1), logs(&[1, 2]));
        let sets = [&three, &two, &only_two].map(|set| is_to_be_unattended(Safety::Majority, Some(set)));
        assert_eq!(sets, [true, true, false]);
    }
}
