//! Records of the in-sync set: who holds everything that was committed, and who can know that.
//!
//! Under 2-safe a commit waits for the in-sync set, which changes: a standby that stalls is put out, and commits go on without it.
//! A take-over by that standby would lose them. So every change is written down, where a candidate will look, before a
//! commit relies on it.
//!
//! A set names the primary and the standbys whose acknowledgement a commit waits for. It is *written* when the primary has put it into the
//! log as a block of its own, with which it travels to everybody. It is *in effect* when
//!
//! - the block is persistent on the primary, and
//! - every other member of the new set has acknowledged the log up to the block's end, and with it the block. A member
//!   notes the set durably before it acknowledges.
//!
//! Whoever is put out need not hold it; that is the point. From when a set is written until a later one is in effect, a commit waits for all of its
//! members; so whichever set a candidate finds to be the newest, all its members hold everything that is committed.
//!
//! # What a candidate can know
//!
//! Each set is a subset or a superset of the one that was written before it, also across take-overs, and has at least `floor` members beside the primary (unless
//! it never had as many). So two consecutive sets have min(|M|, `floor` + 1) members in common. A candidate that hears more members of M than are
//! not among these hears somebody who has the next set, if there is one in effect. Hence the rule:
//!
//! > A set M is known to be the newest when nobody who is heard knows a later one, and at least
//! > max(1, |M| - `floor`) of its members are heard, the candidate included if it is one.
//!
//! With floor 0 the primary goes on alone when all standbys are gone (2-safe by its definition: Query Fresh, section 2.1). Then *every* member must be heard, the old
//! primary included: a standby that lost contact cannot tell a primary that died from one that has put it out and goes on. It
//! must not take over unless an operator, who can tell, forces it. With floor 1 and one standby, the primary waits for it rather than go on alone, and the standby
//! needs nobody. With floor 1 and two standbys, either of them may fail, and the other two go on.
//!
//! One shorter way exists: with floor 0 the primary of a set is a member of every later one, until somebody else reigns, who
//! would have had to hear it and raise its fence. So a primary that restarts, and whose fence is still its own, knows.
//!
//! A take-over that is known to be right can also not be met by its old primary: of the members that were heard, which have raised their fences, at least one would
//! be missing in any set with which the old primary could go on.

use std::collections::BTreeSet;

use freshet_base::{NodeId, Term};
use serde::{Deserialize, Serialize};

/// An in-sync set, as it is written into the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InSyncSet {
    /// The reign that wrote it.
    pub term: Term,
    /// Counts the sets of the cluster.
    pub number: u64,
    /// The primary, and every standby without whose acknowledgement nothing commits.
    pub members: BTreeSet<NodeId>,
    /// No later set has fewer standbys than this, unless this one has.
    pub floor: u32,
}

impl InSyncSet {
    /// The first set of a cluster, or after a take-over that was forced: `primary` alone. `known` is the newest set that it knows.
    pub fn alone(term: Term, primary: NodeId, floor: u32, known: Option<&Self>) -> Self {
        let number = known.map_or(1, |known| known.number + 1);
        Self { term, number, members: BTreeSet::from([primary]), floor }
    }

    /// The first set of a reign that continues from this set: everybody in it, and the new primary.
    pub fn continued(&self, term: Term, primary: NodeId, floor: u32) -> Self {
        let mut members = self.members.clone();
        members.insert(primary);
        Self { term, number: self.number + 1, members, floor }
    }

    /// Later sets compare greater.
    pub fn order(&self) -> (Term, u64) {
        (self.term, self.number)
    }

    /// How many members a candidate must hear to know that this set is the newest.
    pub fn needed(&self) -> usize {
        self.members.len().saturating_sub(self.floor as usize).max(1)
    }

    /// The later of two that are known.
    pub fn newer(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other.order() > one.order() { other } else { one }),
            (one, other) => one.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[u64], floor: u32) -> InSyncSet {
        InSyncSet { term: Term(1), number: 1, members: members.iter().map(|node| NodeId(*node)).collect(), floor }
    }

    /// Exhaustively, for chains of up to three changes among four nodes: whoever hears enough members of a set hears of the next.
    #[test]
    fn enough_members_of_a_set_have_met_its_successor() {
        let subset = |mask: u64| (0..4).filter(|node| mask >> node & 1 == 1).collect::<Vec<_>>();
        for floor in 0..3_u32 {
            for (m, next) in (1..16_u64).flat_map(|m| (1..16_u64).map(move |next| (m, next))) {
                let (chained, least) = (m & next == m || m & next == next, (floor + 1).min(m.count_ones()));
                if !chained || next.count_ones() < least {
                    continue;
                }
                let newest = set(&subset(m), floor);
                for heard in 1..16_u64 {
                    let enough = (heard & m).count_ones() as usize >= newest.needed();
                    assert!(!enough || heard & next != 0, "{newest:?}, then {next:b}, heard {heard:b}");
                }
            }
        }
    }

    #[test]
    fn numbers_go_on_and_later_terms_come_later() {
        let first = InSyncSet::alone(Term(1), NodeId(1), 0, None);
        let second = first.continued(Term(2), NodeId(2), 0);
        assert_eq!((second.number, second.members.len()), (2, 2));
        let forced = InSyncSet::alone(Term(3), NodeId(2), 1, Some(&second));
        assert_eq!((forced.number, forced.members.len(), forced.needed()), (3, 1, 1));
        assert_eq!(InSyncSet::newer(Some(first), Some(forced.clone())), Some(forced));
    }
}
