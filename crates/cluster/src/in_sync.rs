//! Records of the in-sync set: who holds everything that was committed, and who can know that.
//!
//! Under 2-safe a commit waits for the in-sync set, which changes: a standby that stalls is put
//! out, and commits go on without it. A take-over by that standby would lose them. So every change
//! is written down, where a candidate will look, before a commit relies on it.
//!
//! A set names the primary and the standbys whose acknowledgement a commit waits for. It is
//! *written* when the primary has put it into the log as a block of its own, with which it travels
//! to everybody. It is *in effect* when
//!
//! - the block is persistent on the primary, and
//! - every other member of the new set has acknowledged the log up to the block's end, and with it
//!   the block. A member notes the set durably before it acknowledges.
//!
//! A standby that is put out need not hold it; that is the point. From when a set is written until
//! a later one is in effect, a commit waits for all of its members; so whichever set a candidate
//! finds to be the newest, all its members hold everything that is committed.
//!
//! # What a candidate can know
//!
//! Between the two nobody but the primary can tell whether the new set is in effect, or still the
//! one before. So each record names the sets, [`InSyncSet::before`], that may have been in effect
//! (one of them) when it was written; and when a set has taken effect the primary writes another
//! record that says so, with the same members and nothing before.
//!
//! A set is only written if it has at least min(|M|, `floor` + 1) members in common with every set
//! M that may be in effect then, with the `floor` that M's own record names; across take-overs,
//! too. So another floor counts only when all members have noted it. A candidate that hears more
//! members of each such M than are not among these hears somebody who has the next set, if there is
//! one in effect. Hence the rule:
//!
//! > A record is known to be the newest when nobody who is heard knows a later one, and of each set M that it names at least
//! > max(1, |M| - `floor`) members are heard, the candidate included if it is one.
//!
//! With floor 0 the primary continues alone when all standbys are gone (2-safe by its definition:
//! Query Fresh, section 2.1). Then *every* member must be heard, the old primary included: a
//! standby that lost contact cannot tell a primary that died from one that has put it out and
//! continues. It must not take over unless an operator, who can tell, forces it. With floor 1 and
//! one standby, the primary waits for it rather than go on alone, and the standby needs nobody.
//! With floor 1 and two standbys, either of them may fail, and the other two go on.
//!
//! One shorter way exists: with floor 0, once a set of its reign is in effect, the primary is a
//! member of every later one, until somebody else reigns, who would have had to hear it and raise
//! its fence. So a primary that restarts, whose fence is still its own, and which has noted that a
//! set of its last reign took effect, knows.
//!
//! A take-over that is known to be right can also not be met by its old primary: of the members
//! that were heard, which have raised their fences, at least one would be missing in any set with
//! which the old primary could go on.

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
    /// Sets, one of them possibly in effect as long as this one is not.
    pub before: Vec<BTreeSet<NodeId>>,
}

impl InSyncSet {
    /// Later sets compare greater.
    pub fn order(&self) -> (Term, u64) {
        (self.term, self.number)
    }

    /// All sets that may be in effect, this one first.
    pub fn possible(&self) -> impl Iterator<Item = &BTreeSet<NodeId>> {
        [&self.members].into_iter().chain(&self.before)
    }

    /// Whether commits may wait for `node`, by any of the sets that may be in effect.
    pub fn may_have(&self, node: NodeId) -> bool {
        self.possible().any(|members| members.contains(&node))
    }

    /// Of the possible set that lacks most members: how many were heard, and how many it
    /// takes to know that this record is the newest.
    pub fn heard(&self, heard: impl Fn(NodeId) -> bool) -> (usize, usize) {
        let of = |set: &BTreeSet<NodeId>| {
            let needed = set.len().saturating_sub(self.floor as usize).max(1);
            (set.iter().filter(|node| heard(**node)).count(), needed)
        };
        let lacks = |(heard, needed): &(usize, usize)| needed.saturating_sub(*heard);
        self.possible().map(of).max_by_key(lacks).expect("there is at least one")
    }

    /// Whether a set of these members may take effect when this one was written and nothing later
    /// is in effect.
    pub fn may_be_followed_by(&self, next: &BTreeSet<NodeId>) -> bool {
        self.possible().all(|set| self.meets(set, next))
    }

    /// Whether `next` has enough members of `set`, which is this one or one before: those who know
    /// of this record, and of no later one, cannot take over without one of these.
    pub(crate) fn meets(&self, set: &BTreeSet<NodeId>, next: &BTreeSet<NodeId>) -> bool {
        set.intersection(next).count() >= set.len().min(self.floor as usize + 1)
    }

    /// Of `sets` those with other members than `members`, each once.
    pub(crate) fn others(
        sets: impl IntoIterator<Item = BTreeSet<NodeId>>,
        members: &BTreeSet<NodeId>,
    ) -> Vec<BTreeSet<NodeId>> {
        let others: BTreeSet<_> = sets.into_iter().filter(|set| set != members).collect();
        others.into_iter().collect()
    }

    /// The later of two that are known.
    pub fn newer(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other.order() > one.order() { other } else { one }),
            (one, other) => one.or(other),
        }
    }
}

/// What the sets of a new reign follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Succession {
    /// This set, which is known to be the newest.
    Of(InSyncSet),
    /// No set: the cluster is new, or a take-over was forced. The first set gets this number.
    New(u64),
}

impl Succession {
    /// The first set of a reign: everybody of the set before, and the new primary.
    pub fn first(&self, term: Term, primary: NodeId, floor: u32) -> InSyncSet {
        let (number, mut members, possible) = match self {
            Self::Of(set) => (set.number + 1, set.members.clone(), set.possible().cloned().collect()),
            Self::New(number) => (*number, BTreeSet::new(), Vec::new()),
        };
        members.insert(primary);
        InSyncSet { term, number, before: InSyncSet::others(possible, &members), members, floor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[u64], floor: u32) -> InSyncSet {
        let members = members.iter().map(|node| NodeId(*node)).collect();
        InSyncSet { term: Term(1), number: 1, members, floor, before: Vec::new() }
    }

    /// Exhaustively, among four nodes: a candidate that hears enough members of a set hears of the
    /// next.
    #[test]
    fn enough_members_of_a_set_have_met_its_successor() {
        let subset = |mask: u64| (0..4).filter(|node| mask >> node & 1 == 1).collect::<Vec<_>>();
        for floor in 0..3_u32 {
            for (m, next) in (1..16_u64).flat_map(|m| (1..16_u64).map(move |next| (m, next))) {
                let newest = set(&subset(m), floor);
                if !newest.may_be_followed_by(&set(&subset(next), floor).members) {
                    continue;
                }
                for heard in 1..16_u64 {
                    let (voices, needed) = newest.heard(|node| heard >> node.0 & 1 == 1);
                    assert!(voices < needed || heard & next != 0, "{newest:?}, then {next:b}, heard {heard:b}");
                }
            }
        }
    }

    #[test]
    fn numbers_go_on_and_later_terms_come_later() {
        let first = Succession::New(1).first(Term(1), NodeId(1), 0);
        let second = Succession::Of(first.clone()).first(Term(2), NodeId(2), 0);
        assert_eq!((second.number, second.members.len(), &*second.before), (2, 2, &[first.members.clone()][..]));
        let forced = Succession::New(3).first(Term(3), NodeId(2), 1);
        assert_eq!((forced.number, forced.members.len(), forced.before.len()), (3, 1, 0));
        assert_eq!(InSyncSet::newer(Some(first), Some(forced.clone())), Some(forced));
    }
}
