//! Records of the in-sync set: who holds what was committed, and who can know that.
//!
//! What a commit promises is a promise about a set of logs. The set changes: a standby stalls,
//! loses its disk, or comes new. So every change is written down, where a candidate will look,
//! before a commit relies on it. An answer to a candidate counts only if it comes from a log that
//! the newest record names.
//!
//! A set names *holders*: a node, and the incarnation of its log ([`Holder`]). A directory gets an
//! incarnation when a log begins in it, and loses it with that log. So a node whose directory was
//! emptied is not the holder that it was, whatever its name and address, and a newcomer is none.
//!
//! A set is *written* when the primary has put it into the log as a block of its own, with which it
//! travels to everybody. Of a set in which every member holds every commit (2-safe), it is *in
//! effect* when
//!
//! - the block is persistent on the primary, and
//! - every other member of the new set has acknowledged the log up to the block's end, and with it
//!   the block. A member notes the set durably before it acknowledges.
//!
//! A standby that is put out need not hold it; that is the point. From when a set is written until
//! a later one is in effect, a commit waits for all of its members; so whichever set a candidate
//! finds to be the newest, all its members hold everything that is committed.
//!
//! Under quorum:K and very safe, any K members hold every commit ([`InSyncSet::quorum`]; very safe
//! is a quorum of the primary and all its standbys, and 1-safe a quorum of one). Members stay while
//! they are away. Such a set is in effect when its block is persistent on the primary, on every
//! member that is new, and on as many members of each set before it, and of the set itself, as a
//! candidate may miss of that set, and one more. Until it is in effect, a commit waits for K
//! members of each of the sets that may be. The `floor` of such a set is K - 1, and the rest of
//! this page holds for both kinds.
//!
//! A member whose log is known to be *gone* answers no candidate any more: its node came with
//! another incarnation, or another node came to its address. It may have promised itself to a
//! candidate before. So the next set needs as many of the others as it would without that, or all
//! of the others. If there are no others, no set may follow: one of those that are gone may have
//! come back before, led again, and committed with other nodes. (A primary that has none of that
//! set's logs itself has heard all members: where the floor is 0, any node may take over then.)
//!
//! A set names its level, too. An operator changes that while the primary commits: the same members
//! are recorded under the new level, and the rule above holds as for any other change. Until the
//! new set is in effect a commit satisfies both levels. A candidate under 1-safe asks no other
//! node; so a set that raises the level from there is in effect when all members have noted it.
//!
//! All that a candidate has heard may be gone by then. So, with a floor, the candidate must be a
//! member itself, and is one of the others, unless its own log is gone, too; of a set that may be
//! in effect before the newest, it suffices that all members have answered. What it wrote may still
//! be with nodes that it fed. If too few members of the sets before have anything of its term, then
//! its record never took effect, and gives way to one that was written beside it
//! ([`crate::promotion::Candidacy::newest_set`]).
//!
//! Two nodes that do not hear one another may begin terms of one number, and one of them commits
//! when the other has lost its log. So a record says whose term wrote it. By a record of the one,
//! nothing counts that was written in the other. A record also says which set its term
//! follows ([`InSyncSet::base`]): what is older than that is behind it, whatever its number, if
//! anything of these two terms ever took effect.
//!
//! # What a candidate can know
//!
//! Between the two nobody but the primary can tell whether the new set is in effect, or still the
//! one before. So each record names the sets, [`InSyncSet::before`], that may have been in effect
//! (one of them) when it was written; and when a set has taken effect the primary writes another
//! record that says so, with the same members and nothing before.
//!
//! A set is only written if it has at least min(|M|, `floor` + 1) members in common with every set
//! M that may be in effect then, with the `floor` that M's own record names; across failovers,
//! too. So another floor counts only when all members have noted it. A candidate that hears more
//! members of each such M than are not among these hears somebody who has the next set, if there is
//! one in effect. A set that has all members with data of M needs none of its witnesses: where
//! there is a floor, a candidate is one of those, or all members of M have answered. So a primary
//! that is alone with a witness lets that go when it is lost, too. Hence the rule:
//!
//! > A record is known to be the newest when nobody who is heard knows a later one, and of each
//! > set M that it names at least max(1, |M| - `floor` of M) members are heard, the candidate
//! > included if it is one.
//!
//! With floor 0 the primary continues alone when all standbys are gone (2-safe by its definition:
//! Query Fresh, section 2.1). Then *every* member must be heard, the old primary included: a
//! standby that lost contact cannot tell a primary that died from one that has put it out and
//! continues. It must not take over unless an operator, who can tell, forces it. With floor 1 and
//! one standby, the primary waits for it rather than go on alone, and the standby needs nobody.
//! With floor 1 and two standbys, either of them may fail, and the other two go on.
//!
//! With floor 0 there is a shorter way. A primary that is a member of every set that may be in
//! effect is a member of every later set, too, until another node takes over. That node would have
//! had to hear the primary, and to raise its fence. The primary is a member of all those sets once
//! a set of its own term is in effect, or if its own record of that term names no set without it.
//! So a primary knows when it restarts, if its fence is still its own and it has noted either.
//!
//! A failover that is known to be right can also not be met by its old primary: of the members
//! that were heard, which have raised their fences, at least one would be missing in any set with
//! which the old primary could go on.

mod roster;

use std::collections::BTreeSet;

use freshet_base::{Lsn, NodeId, Safety, Term, versions::Level};
use serde::{Deserialize, Serialize};

pub use self::roster::{Fingerprint, KEYS, Known, Noted, REMOVED, Roster};
use crate::term::{TermEntry, TermHistory};

/// The log of a node, as long as the node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// Whose log.
    pub node: NodeId,
    /// Which of the logs that this node has had: a random number that the node's directory keeps
    /// with the log. Zero: no log was begun there.
    pub incarnation: u64,
    /// It is a witness: it notes sets, and holds nothing of what is committed.
    pub witness: bool,
}

impl Holder {
    /// The log of `node` that has this incarnation.
    pub fn new(node: NodeId, incarnation: u64) -> Self {
        Self { node, incarnation, witness: false }
    }

    /// What the witness `node` has noted, in the file that has this incarnation.
    pub fn of_witness(node: NodeId, incarnation: u64) -> Self {
        Self { node, incarnation, witness: true }
    }

    pub(crate) fn has_data(&self) -> bool {
        !self.witness
    }
}

/// An in-sync set, as it is written into the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InSyncSet {
    /// The term that wrote it.
    pub term: Term,
    /// Whose term that was: two nodes may have begun terms of one number.
    pub primary: NodeId,
    /// Counts the sets of the cluster.
    pub number: u64,
    /// The number of the first set of its term.
    pub first: u64,
    /// The term of the set which that one follows; zero if it follows none.
    pub after: Term,
    /// The primary, and the standbys on which commits count.
    pub members: BTreeSet<Holder>,
    /// What commits promise by this set, and by those that follow until an operator changes it.
    pub level: Safety,
    /// What sets before this one have committed without its members ends here at the latest. A
    /// transaction ends here, so a log that was cut where it is whole has it.
    pub since: Lsn,
    /// How many members hold every commit; none: all of them do.
    pub quorum: Option<u32>,
    /// Each set that may follow has this number of its members, and one more, or all of them that
    /// still answer; so a candidate may miss this number.
    pub floor: u32,
    /// Sets, one of them possibly in effect as long as this one is not.
    pub before: Vec<Earlier>,
    /// Who belongs to the cluster.
    pub roster: Box<Roster>,
}

/// A set that was recorded earlier, and how it counts its members.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Earlier {
    /// [`InSyncSet::members`].
    pub members: BTreeSet<Holder>,
    /// [`InSyncSet::quorum`].
    pub quorum: Option<u32>,
    /// [`InSyncSet::floor`].
    pub floor: u32,
}

/// A set that may be in effect, and how it counts its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Possible<'a> {
    /// [`InSyncSet::members`].
    pub members: &'a BTreeSet<Holder>,
    /// [`InSyncSet::quorum`].
    pub quorum: Option<u32>,
    /// [`InSyncSet::floor`].
    pub floor: u32,
}

impl Earlier {
    fn as_possible(&self) -> Possible<'_> {
        Possible { members: &self.members, quorum: self.quorum, floor: self.floor }
    }
}

impl Possible<'_> {
    fn to_earlier(self) -> Earlier {
        Earlier { members: self.members.clone(), quorum: self.quorum, floor: self.floor }
    }

    /// How many members have to be heard to know that the record of it is the newest.
    pub fn needed(self) -> usize {
        self.members.len().saturating_sub(self.floor as usize).max(1)
    }

    /// Whether its primary may put out every other member, and commit alone.
    pub fn may_go_on_alone(self) -> bool {
        self.quorum.is_none() && self.floor == 0
    }

    /// Whether of all others `holder` alone could succeed `primary`, or those who do have to hear
    /// all others.
    pub(crate) fn has_no_rival(self, holder: &Holder, primary: NodeId) -> bool {
        let mut others = self.members.iter().filter(|member| member.has_data() && member.node != primary);
        self.may_go_on_alone() || self.quorum.is_none() && others.all(|member| member == holder)
    }

    /// Whether `next` has enough of these members: those who know of this set, and of no later one,
    /// cannot take over without one of these.
    pub(crate) fn meets(self, next: &BTreeSet<Holder>, gone: &BTreeSet<Holder>) -> bool {
        let left = self.members.iter().filter(|member| !gone.contains(member));
        let enough = left.clone().count().min(self.floor as usize + 1);
        // A candidate has data, and is a member or has the answers of all.
        let mut data = self.members.iter().filter(|member| member.has_data()).peekable();
        let has_all = data.peek().is_some() && data.all(|member| next.contains(member) && !gone.contains(member));
        has_all || left.filter(|member| next.contains(member)).count() >= enough
    }
}

/// What commits count on: how a set is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counting {
    /// [`InSyncSet::quorum`].
    pub quorum: Option<u32>,
    /// [`InSyncSet::floor`].
    pub floor: u32,
}

/// The term that wrote a set, whose term that was, and the set's number.
pub type SetName = (Term, NodeId, u64);

impl InSyncSet {
    /// Of the sets of one log later ones compare greater.
    pub fn order(&self) -> (Term, u64) {
        (self.term, self.number)
    }

    /// The set that the first one of its term follows; everything later is after or beside it.
    pub fn base(&self) -> (Term, u64) {
        (self.after, self.first.saturating_sub(1))
    }

    /// Tells it from every other set.
    pub fn name(&self) -> SetName {
        (self.term, self.primary, self.number)
    }

    /// Whether the term that wrote it is this one.
    pub fn is_of(&self, term_entry: &TermEntry) -> bool {
        (self.term, self.primary) == (term_entry.term, term_entry.node)
    }

    /// Whether it says that a set of its term took effect: it follows others of that term, and
    /// names none that may be in effect before it.
    pub fn is_settled(&self) -> bool {
        self.number > self.first && self.before.is_empty()
    }

    /// Whether a node that knows of the set `known` has to note this one, which is in the log that
    /// the node has now: what it knows of the same term of another primary is void there.
    pub fn is_news(&self, known: SetName) -> bool {
        let (term, primary, number) = known;
        self.term > term || self.term == term && (self.primary != primary || self.number > number)
    }

    /// The set itself.
    pub fn own(&self) -> Possible<'_> {
        Possible { members: &self.members, quorum: self.quorum, floor: self.floor }
    }

    /// The level to which a failover keeps that finds this record: 1-safe only where no other level
    /// may be in effect still.
    pub fn kept_level(&self) -> Safety {
        let others = || self.before.iter().any(|earlier| earlier.quorum != Some(1));
        if self.level == Safety::OneSafe && others() { Safety::TwoSafe } else { self.level }
    }

    /// Whether all logs are gone on which its commits count, so that no set may follow. Under
    /// 1-safe they count on none: who takes over asks no other node.
    pub(crate) fn is_lost(&self, gone: &BTreeSet<Holder>) -> bool {
        let counts_on_none = self.quorum == Some(1) && self.level.counts_on_nobody();
        !counts_on_none && self.members.is_subset(gone)
    }

    /// Whether the primary may commit alone, by each set that may be in effect.
    pub fn may_go_on_alone(&self) -> bool {
        self.possible().all(Possible::may_go_on_alone)
    }

    /// All sets that may be in effect, this one first.
    pub fn possible(&self) -> impl Iterator<Item = Possible<'_>> {
        [self.own()].into_iter().chain(self.before.iter().map(Earlier::as_possible))
    }

    /// The log with which its primary began the term, which is a member of every set of it.
    pub(crate) fn writer(&self) -> Option<&Holder> {
        self.members.iter().find(|member| member.node == self.primary)
    }

    /// Whether nothing is committed by it that is not in this log.
    pub(crate) fn needs(&self, holder: Option<&Holder>) -> bool {
        let all = |set: &Possible<'_>| set.quorum.is_none_or(|quorum| quorum as usize >= set.members.len());
        holder.is_some_and(|holder| self.possible().any(|set| all(&set) && set.members.contains(holder)))
    }

    /// The members of all sets that may be in effect, some of them more than once.
    pub fn possible_members(&self) -> impl Iterator<Item = &Holder> {
        self.members.iter().chain(self.before.iter().flat_map(|earlier| &earlier.members))
    }

    /// Whether commits may count on `node`, by any of the sets that may be in effect.
    pub fn may_have(&self, node: NodeId) -> bool {
        self.possible_members().any(|member| member.node == node)
    }

    /// Whether an operator has removed `node`, and no set that may be in effect has it: until then
    /// it may be needed.
    pub fn is_without(&self, node: NodeId) -> bool {
        self.roster.removed.contains(&node) && !self.may_have(node)
    }

    /// The nodes of its members.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.node)
    }

    /// Of the possible set that lacks most members: how many answered, and how many it takes to
    /// know that this record is the newest, and that the answers include every commit.
    pub fn answered_by(&self, answered: impl Fn(&Possible<'_>, &Holder) -> bool) -> (usize, usize) {
        let of = |set: Possible<'_>| (set.members.iter().filter(|member| answered(&set, member)).count(), set.needed());
        let lacks = |(answered, needed): &(usize, usize)| needed.saturating_sub(*answered);
        self.possible().map(of).max_by_key(lacks).expect("there is at least one")
    }

    /// Up to where this set lets commits come, with what each member holds.
    pub fn commits(&self, acked: impl Fn(&Holder) -> Lsn) -> Lsn {
        let mut acked: Vec<Lsn> = self.members.iter().filter(|member| member.has_data()).map(acked).collect();
        acked.sort_unstable_by(|a, b| b.cmp(a));
        let needed = self.quorum.map_or(acked.len(), |quorum| quorum as usize);
        needed.checked_sub(1).and_then(|last| acked.get(last)).copied().unwrap_or(Lsn::ZERO)
    }

    /// Whether a set of these members may take effect when this one was written and nothing later
    /// is in effect, while the logs that are `gone` answer nobody.
    pub fn may_be_followed_by(&self, next: &BTreeSet<Holder>, gone: &BTreeSet<Holder>) -> bool {
        self.possible().all(|set| set.meets(next, gone))
    }

    /// Of `sets` those that are not this one, each once.
    pub(crate) fn others<'s>(sets: impl IntoIterator<Item = Possible<'s>>, this: &Possible<'_>) -> Vec<Earlier> {
        let others: BTreeSet<_> = sets.into_iter().filter(|set| set != this).map(Possible::to_earlier).collect();
        others.into_iter().collect()
    }

    /// What a node knows that knew of `known`, and notes `noted`.
    pub fn newer(known: Option<Self>, noted: Self) -> Self {
        match known {
            Some(known) if !noted.is_news(known.name()) => known,
            _ => noted,
        }
    }
}

/// The last term of a log of `node` with this history, which ends at `end`, if an in-sync set of
/// that term is known to have taken effect: `led` is the latest of the node's own terms in which
/// one did, and `set` the newest set that the node has noted.
pub(crate) fn last_in_effect(
    history: &TermHistory,
    (node, end): (NodeId, Lsn),
    led: Option<Term>,
    set: Option<&InSyncSet>,
) -> Option<TermEntry> {
    let last = history.cut(end).entries().last().copied()?;
    let led = last.node == node && led == Some(last.term);
    let noted = set.is_some_and(|set| set.is_of(&last) && set.is_settled());
    (led || noted).then_some(last)
}

impl TermHistory {
    /// Up to where a log is not given up for one with this history: what is known to be
    /// `acknowledged`; or all of it, to its `end`, if its last term took effect
    /// ([`last_in_effect`]) and is none of these.
    pub(crate) fn keeps(&self, last_in_effect: Option<TermEntry>, acknowledged: Lsn, end: Lsn) -> Lsn {
        match last_in_effect {
            Some(last) if !self.has(&last) => acknowledged.max(end),
            _ => acknowledged,
        }
    }

    /// Whether this term is one of them.
    pub fn has(&self, term_entry: &TermEntry) -> bool {
        self.entries().iter().any(|known| known.is(term_entry))
    }
}

/// What the sets of a new term follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Succession {
    /// This set, which is known to be the newest.
    Of(InSyncSet),
    /// No set: the cluster is new, or a failover was forced.
    New {
        /// The first set gets this number.
        number: u64,
        /// Who belonged to the cluster before.
        roster: Box<Roster>,
    },
}

impl Succession {
    /// A cluster that begins.
    pub fn begin() -> Self {
        Self::New { number: 1, roster: Box::new(Roster { format: Level::NEWEST, ..Roster::default() }) }
    }

    /// The level of the cluster; `begins` where none is on record.
    pub fn level(&self, begins: Safety) -> Safety {
        match self {
            Self::Of(set) => set.level,
            Self::New { .. } => begins,
        }
    }

    /// The level to which all that was committed before has kept; `begins` where none is on record.
    pub fn kept_level(&self, begins: Safety) -> Safety {
        match self {
            Self::Of(set) => set.kept_level(),
            Self::New { .. } => begins,
        }
    }

    /// The first set of a term, which begins at `start`: everybody of the set before, and the new
    /// primary. What its commits promise `level` says, and how it counts its members `counting`.
    pub fn first(
        &self,
        (term, start): (Term, Lsn),
        primary: Holder,
        level: Safety,
        counting: impl Fn(&BTreeSet<Holder>) -> Counting,
    ) -> InSyncSet {
        let (after, number, mut members, mut roster) = match self {
            Self::Of(set) => (set.term, set.number + 1, set.members.clone(), set.roster.clone()),
            Self::New { number, roster } => (Term(0), *number, BTreeSet::new(), roster.clone()),
        };
        // Of this node there is this log, and no other.
        members.retain(|member| member.node != primary.node);
        members.insert(primary);
        roster.voters.insert(primary.node);
        // The primary of before was removing this node, which has its log all the same: that never
        // took effect, or another would lead.
        roster.leaving.remove(&primary.node);
        let Counting { quorum, floor } = counting(&members);
        let (primary, first, before) = (primary.node, number, Vec::new());
        let since = start;
        let mut set =
            InSyncSet { term, primary, number, first, after, members, level, since, quorum, floor, before, roster };
        if let Self::Of(earlier) = self {
            if earlier.own() == set.own() {
                set.since = earlier.since;
            }
            set.before = InSyncSet::others(earlier.possible(), &set.own());
        }
        set
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The first set, which `primary` has written in term 1: all of these hold every commit.
    pub(crate) fn first_set(primary: NodeId, members: BTreeSet<Holder>) -> InSyncSet {
        let (quorum, floor, before, after) = (None, 0, Vec::new(), Term(0));
        let roster =
            Box::new(Roster { voters: members.iter().map(|member| member.node).collect(), ..Roster::default() });
        let (level, since) = (Safety::TwoSafe, Lsn::ZERO);
        let (term, number, first) = (Term(1), 1, 1);
        InSyncSet { term, primary, number, first, after, members, level, since, quorum, floor, before, roster }
    }

    /// A set that may have been in effect before: `quorum` members hold every commit, or all do.
    pub(crate) fn earlier(members: BTreeSet<Holder>, quorum: Option<u32>) -> Earlier {
        Earlier { members, quorum, floor: quorum.map_or(0, |quorum| quorum - 1) }
    }

    /// Exhaustively, among four nodes, some of them witnesses: a candidate that hears enough
    /// members of a set hears of the next.
    #[test]
    fn enough_members_of_a_set_have_met_its_successor() {
        let set_of = |mask: u64, witnesses: u64, floor: u32| {
            let member = |node: u64| Holder { witness: witnesses >> node & 1 == 1, ..Holder::new(NodeId(node), 1) };
            InSyncSet {
                floor,
                ..first_set(NodeId(1), (0..4).filter(|node| mask >> node & 1 == 1).map(member).collect())
            }
        };
        let masks =
            || (1..16_u64).flat_map(|m| (1..16_u64).flat_map(move |next| (0..16_u64).map(move |it| (m, next, it))));
        for (floor, (m, next, witnesses)) in (0..3_u32).flat_map(|floor| masks().map(move |all| (floor, all))) {
            let newest = set_of(m, witnesses, floor);
            for gone in 0..16_u64 {
                let logs = |mask| set_of(mask, witnesses, floor).members;
                if !newest.may_be_followed_by(&logs(next), &logs(gone)) {
                    continue;
                }
                // With a floor the candidate is a member that has data, or all members answer.
                let stands = |answered: u64| floor == 0 || answered & m & !witnesses != 0 || answered & m == m;
                for answered in (1..16_u64).filter(|answered| answered & gone == 0 && stands(*answered)) {
                    let (answers, needed) = newest.answered_by(|_, log| answered >> log.node.0 & 1 == 1);
                    assert!(
                        answers < needed || answered & next != 0,
                        "{newest:?}, then {next:b}, answered {answered:b}"
                    );
                }
            }
        }
    }

    #[test]
    fn numbers_go_on_and_later_terms_come_later() {
        let [all, floored] = [0, 1].map(|floor| move |_: &_| Counting { quorum: None, floor });
        let first = Succession::begin().first((Term(1), Lsn::ZERO), Holder::new(NodeId(1), 5), Safety::TwoSafe, all);
        let second =
            Succession::Of(first.clone()).first((Term(2), Lsn::ZERO), Holder::new(NodeId(2), 6), Safety::TwoSafe, all);
        assert_eq!((second.number, second.members.len(), &*second.before), (2, 2, &[first.own().to_earlier()][..]));
        let forced = Succession::New { number: 3, roster: first.roster.clone() }.first(
            (Term(3), Lsn::ZERO),
            Holder::new(NodeId(2), 6),
            Safety::TwoSafe,
            floored,
        );
        assert_eq!((forced.number, forced.members.len(), forced.before.len()), (3, 1, 0));
        assert_eq!(InSyncSet::newer(Some(first.clone()), forced.clone()), forced);
        assert_eq!(InSyncSet::newer(Some(forced.clone()), first.clone()), forced);
        let (rival, known) = (InSyncSet { primary: NodeId(7), number: 1, ..forced.clone() }, Some(forced));
        assert_eq!(InSyncSet::newer(known, rival.clone()), rival, "the same term of another primary is over");
        let emptied =
            Succession::Of(first).first((Term(4), Lsn::ZERO), Holder::new(NodeId(1), 7), Safety::TwoSafe, all);
        assert_eq!(emptied.nodes().collect::<Vec<_>>(), [NodeId(1)], "a node has one log");
    }

    /// The primary of before had begun to remove it.
    #[test]
    fn a_new_primary_does_not_remove_itself() {
        let [one, two] = [1, 2].map(|node| Holder::new(NodeId(node), 1));
        let mut before = first_set(NodeId(1), [one].into());
        before.roster.leave(NodeId(2), true);
        before.roster.leave(NodeId(3), true);
        let begun = Succession::Of(before)
            .first((Term(2), Lsn::ZERO), two, Safety::TwoSafe, |_| Counting { quorum: None, floor: 0 });
        assert!(begun.roster.voters.contains(&NodeId(2)) && !begun.roster.has_removed(NodeId(2)));
        assert!(begun.roster.has_removed(NodeId(3)), "that one leaves");
    }

    #[test]
    fn an_authority_counts_until_a_node_is_removed() {
        let mut roster = Roster { voters: [1, 2, 3].map(NodeId).into(), ..Roster::default() };
        roster.note(&Noted::Made(0, [7; 32]));
        roster.leave(NodeId(2), false);
        assert_eq!((roster.known.generation, roster.known.authority), (0, Some([7; 32])));
        roster.leave(NodeId(3), true);
        assert_eq!((roster.known.generation, roster.known.authority), (1, None));
        // Once more is no other removal.
        roster.leave(NodeId(3), true);
        roster.note(&Noted::Made(1, [8; 32]));
        assert_eq!((roster.known.generation, roster.known.authority), (1, Some([8; 32])));
        roster.note(&Noted::Retired);
        assert_eq!((roster.known.generation, roster.known.authority), (2, None));
    }

    #[test]
    fn the_keys_of_those_who_belong_to_a_cluster_are_kept() {
        let keys = |nodes: std::ops::Range<u64>| Noted::Keys(nodes.map(|node| (NodeId(node), [1; 32])).collect());
        let mut roster = Roster { voters: [1, 2].map(NodeId).into(), witness: Some(NodeId(3)), ..Roster::default() };
        roster.note(&keys(1..4));
        roster.note(&keys(1000..1100));
        let removed: Vec<_> = (1000..1100).map(NodeId).collect();
        removed.iter().for_each(|node| roster.leave(*node, true));
        roster.left(&removed.iter().copied().collect());
        assert_eq!(roster.known.keys.len(), 103, "who was removed hears why");
        roster.note(&keys(2000..2000 + KEYS as u64));
        assert_eq!(roster.known.keys.len(), KEYS);
        assert!([1, 2, 3].iter().all(|node| roster.known.keys.contains_key(&NodeId(*node))));
        assert!(removed.iter().all(|node| !roster.known.keys.contains_key(node)));
        for node in 5000..5000 + REMOVED as u64 {
            roster.leave(NodeId(node), true);
            roster.note(&keys(node..node + 1));
            roster.left(&[NodeId(node)].into());
        }
        assert_eq!((roster.removed.len(), roster.known.keys.len()), (REMOVED, KEYS));
    }
}
