use std::collections::{BTreeSet, VecDeque};

use freshet_base::{Lsn, NodeId, Safety, Term};
use serde::{Deserialize, Serialize};

use super::{Leaves, RuleConfig};
use crate::{
    Moment,
    in_sync::{Counting, Holder, InSyncSet, Noted, Possible, Roster, SetName, Succession},
};

/// The in-sync sets of a term that matter: the one in effect, and those after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sets {
    me: Holder,
    /// How a set counts its members, by their number.
    config: RuleConfig,
    /// Consecutive; only the last may not be in the log yet. The first is in effect.
    chain: VecDeque<Link>,
    /// Logs that answer no candidate any more.
    gone: BTreeSet<Holder>,
    /// Who belongs to the cluster. The next set records it.
    roster: Box<Roster>,
    /// Whether a set of this term is in effect.
    begun: bool,
    /// What was committed by the sets up to the newest.
    committed: Lsn,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Link {
    set: InSyncSet,
    /// Where its block ends, when it is in the log of this term.
    end: Option<Lsn>,
}

impl Sets {
    /// Of a term of `me` that begins at `start`.
    pub fn new(me: Holder, (term, start): (Term, Lsn), config: RuleConfig, succession: Succession) -> Self {
        let config = RuleConfig { safety: succession.level(config.safety), ..config };
        let first = succession.first((term, start), me, config.safety, |members| config.counting(members));
        let before = match succession {
            Succession::Of(set) => {
                let of = |Possible { members, quorum, floor }| InSyncSet {
                    members: members.clone(),
                    quorum,
                    floor,
                    ..set.clone()
                };
                set.possible().map(of).collect()
            }
            Succession::New { .. } => Vec::new(),
        };
        let chain: VecDeque<_> = before.into_iter().chain([first]).map(|set| Link { set, end: None }).collect();
        // This node's own earlier logs.
        let earlier = |member: &&Holder| member.node == me.node && **member != me;
        let gone = chain.iter().flat_map(|link| &link.set.members).filter(earlier).copied().collect();
        let roster = chain.back().map(|link| link.set.roster.clone()).unwrap_or_default();
        Self { me, config, chain, gone, roster, begun: false, committed: start }
    }

    /// The primary.
    pub fn me(&self) -> Holder {
        self.me
    }

    /// The members of the newest set, beside the primary.
    pub fn members(&self) -> impl Iterator<Item = Holder> + '_ {
        self.newest().set.members.iter().copied().filter(|member| *member != self.me)
    }

    fn newest(&self) -> &Link {
        self.chain.back().expect("the chain is never empty")
    }

    pub fn to_write(&self) -> Option<&InSyncSet> {
        let newest = self.newest();
        newest.end.is_none().then_some(&newest.set)
    }

    pub fn in_effect(&self) -> &InSyncSet {
        &self.chain[0].set
    }

    /// Whether the first set is in effect.
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// Whether any K members hold every commit, not all of them.
    pub fn counts(&self) -> bool {
        self.newest().set.quorum.is_some()
    }

    /// What is committed, by all sets that there are, ends here.
    pub fn note_committed(&mut self, committed: Lsn) {
        self.committed = committed;
    }

    /// Of what is committed, clients are told up to `whole` at the most.
    pub fn announced(&mut self, whole: Lsn) {
        let committed = self.committed;
        if let Some(Link { set, end: None }) = self.chain.back_mut()
            && set.since == committed
        {
            set.since = whole.min(committed);
        }
    }

    /// What commits are to promise: the newest set, or the next one, is of this level.
    pub fn level(&self) -> Safety {
        self.config.safety
    }

    /// The next set is of this level.
    pub fn set_level(&mut self, level: Safety) {
        self.config.safety = level;
    }

    /// Whether a witness may be of use at the level that is wanted.
    pub fn takes_witness(&self) -> bool {
        self.config.takes_witness()
    }

    /// Whether another level is wanted than that of the newest set, and no other change is on its
    /// way.
    pub fn changes_level(&self) -> bool {
        self.newest().set.level != self.config.safety && self.begun && self.to_write().is_none()
    }

    /// Whether a set that may be in effect counts in another way than the level that is wanted
    /// does.
    pub fn is_level_pending(&self) -> bool {
        let counts = |link: &Link| (link.set.quorum, link.set.floor);
        let others = || self.chain.iter().any(|link| counts(link) != counts(self.newest()));
        self.newest().set.level != self.config.safety || self.in_effect().level != self.config.safety || {
            !self.begun && others()
        }
    }

    /// Whether the set in effect is not the newest, or a candidate that knows it may need members
    /// of one before: the primary cannot be lost yet as its members let it be.
    pub fn is_changing(&self) -> bool {
        !self.begun || self.chain.len() > 1 || !self.in_effect().before.is_empty()
    }

    /// Which nodes have yet to note the newest set that is in the log, of those whose word may be
    /// needed until that is in effect; `acked` as for [`Sets::take_effect`].
    pub fn unnoted(&self, acked: impl Fn(&Holder) -> Lsn) -> BTreeSet<NodeId> {
        let members = self.chain.iter().flat_map(|link| &link.set.members);
        let asked = members.filter(|member| **member != self.me && !self.gone.contains(member));
        asked.filter(|member| acked(member) < self.recorded()).map(|member| member.node).collect()
    }

    /// Begins a set of the level that is wanted. Where a commit is to wait for all of its members,
    /// those who are silent are left out if they may be.
    pub fn change_level(&mut self, silent: &BTreeSet<NodeId>) {
        let mut members = self.newest().set.members.clone();
        if self.config.counting(&members).quorum.is_none() {
            for mute in self.members().filter(|member| self.is_mute(member, silent)) {
                let without: BTreeSet<_> = members.iter().filter(|member| **member != mute).copied().collect();
                if self.may_follow(&without) {
                    members = without;
                }
            }
        }
        self.push(members);
    }

    /// How many nodes with data a commit would need under `level`, of the members of the newest
    /// set; none: those that keep up.
    pub fn needed_under(&self, level: Safety) -> Option<u32> {
        RuleConfig { safety: level, ..self.config }.counting(&self.newest().set.members).quorum
    }

    /// How many members a commit waits for beside the primary; `None`: all of them.
    pub fn needed(&self) -> Option<u32> {
        self.newest().set.quorum.map(|quorum| quorum.saturating_sub(1))
    }

    /// How many members no set may do without.
    pub fn floor(&self) -> u32 {
        self.newest().set.floor
    }

    /// Who belongs to the cluster.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Whether a commit has to wait for this node, or counts on it.
    pub fn binds(&self, node: NodeId) -> bool {
        self.chain.iter().any(|link| link.set.nodes().any(|member| member == node))
    }

    /// Whether a candidate that knows one of these sets may have to hear this node.
    pub fn mentions(&self, node: NodeId) -> bool {
        self.chain.iter().any(|link| link.set.may_have(node))
    }

    /// Whether this log is a member of the newest set.
    pub fn names(&self, member: &Holder) -> bool {
        self.newest().set.members.contains(member)
    }

    /// Whether this log is a member of a set that may be in effect, and not of the newest.
    pub fn has_had(&self, member: &Holder) -> bool {
        !self.names(member) && self.chain.iter().any(|link| link.set.members.contains(member))
    }

    /// Up to where all sets that may be in effect let commits come.
    pub fn commits(&self, acked: impl Fn(&Holder) -> Lsn) -> Lsn {
        self.chain.iter().map(|link| link.set.commits(&acked)).min().unwrap_or_default()
    }

    /// How many witnesses vote in the newest set.
    pub fn witnesses(&self) -> u32 {
        self.newest().set.members.iter().filter(|member| member.witness).count() as u32
    }

    /// Whether a witness is to vote beside the members with data of the newest set.
    pub fn wants_witness(&self) -> bool {
        let data = self.newest().set.members.iter().filter(|member| member.has_data());
        self.config.wants_witness(u32::try_from(data.count()).unwrap_or(u32::MAX))
    }

    /// A witness that leaves, and may still answer a candidate: a set that may be in effect has it.
    pub fn leaving_witness(&self) -> Option<NodeId> {
        let members = self.chain.iter().flat_map(|link| &link.set.members);
        let leaves = |member: &&Holder| member.witness && self.roster.has_removed(member.node);
        members.filter(leaves).find(|member| !self.gone.contains(member)).map(|member| member.node)
    }

    /// A witness has come, and is the cluster's from now on. The next set records it.
    pub fn note_witness(&mut self, node: NodeId) {
        self.roster.witness = Some(node);
    }

    /// The next set records this.
    pub fn note(&mut self, noted: &Noted) {
        self.roster.note(noted);
    }

    /// Where the block of this set ends, if it is in the log of this term.
    pub fn end_of(&self, name: SetName) -> Option<Lsn> {
        self.chain.iter().find(|link| link.set.name() == name).and_then(|link| link.end)
    }

    /// Where the newest set ends that is in the log of this term; zero if none is.
    pub fn recorded(&self) -> Lsn {
        self.chain.iter().filter_map(|link| link.end).max().unwrap_or_default()
    }

    /// Until when a candidate finds a member that has granted this primary a lease, or the primary
    /// itself, whichever set that may be in effect it knows: it may miss as many as the set's
    /// floor, and is a member itself. No set is empty. Where no other member has data, none can be
    /// a candidate.
    pub fn lease_until(&self, granted: impl Fn(&Holder) -> Moment) -> Moment {
        let of = |set: &InSyncSet| {
            if set.members.iter().all(|member| member.witness || *member == self.me) {
                return Moment(u64::MAX);
            }
            let until = |member: &Holder| if *member == self.me { Moment(u64::MAX) } else { granted(member) };
            let mut granted: Vec<_> = set.members.iter().map(until).collect();
            granted.sort_unstable_by(|a, b| b.cmp(a));
            granted[(set.floor as usize).min(granted.len() - 1)]
        };
        self.chain.iter().map(|link| of(&link.set)).min().unwrap_or_default()
    }

    /// Whether enough members of each set that may be in effect keep up for commits to come.
    pub fn have_quorums(&self, keeps_up: impl Fn(&Holder) -> bool) -> bool {
        self.chain.iter().all(|Link { set, .. }| {
            let data = || set.members.iter().filter(|member| member.has_data());
            let needed = set.quorum.map_or(data().count(), |quorum| quorum as usize);
            data().filter(|member| **member == self.me || keeps_up(member)).count() >= needed
        })
    }

    pub fn written(&mut self, number: u64, end: Lsn) {
        if let Some(link) = self.chain.iter_mut().find(|link| link.set.number == number) {
            link.end.get_or_insert(end);
        }
    }

    /// Other logs of `node` than `present` exist no more; if it is `None`, no log of `node` does.
    pub fn lost(&mut self, node: NodeId, present: Option<Holder>) {
        // A set that may have been in effect before counts them, too.
        let members = self.chain.iter().flat_map(|link| link.set.possible_members());
        let others = members.filter(|member| member.node == node && Some(**member) != present);
        let others: Vec<_> = others.copied().collect();
        self.gone.extend(others);
    }

    /// Whether the next set may be without this node, which may still answer a candidate, while the
    /// `silent` note nothing.
    pub fn may_do_without(&self, node: NodeId, silent: &BTreeSet<NodeId>) -> bool {
        let members = &self.newest().set.members;
        let without: BTreeSet<_> = members.iter().filter(|it| it.node != node).copied().collect();
        let live: BTreeSet<_> = without.iter().filter(|it| !self.is_mute(it, silent)).copied().collect();
        // Too few might be left that keep up, under the level that is wanted, or one that has to
        // note the set and is away.
        let suffices = match self.config.counting(&without).quorum {
            Some(quorum) => live.iter().filter(|member| member.has_data()).count() >= quorum as usize,
            None => live == without || self.may_follow(&live),
        };
        suffices && (without == self.newest().set.members || self.may_follow(&without))
    }

    /// `node` does not belong to the cluster any more.
    pub fn leave(&mut self, node: NodeId, how: Leaves) {
        if how != Leaves::Removed {
            self.lost(node, None);
        }
        self.roster.leave(node, how != Leaves::Replaced);
    }

    /// Whether a set that was not in effect is so now; `acked` says what each log holds, the
    /// primary's too.
    /// Of a node that `forgets` only what it holds as a member counts.
    pub fn take_effect(&mut self, acked: impl Fn(&Holder) -> Lsn, forgets: impl Fn(NodeId) -> bool) -> bool {
        let held = |at: usize| {
            let Link { set, end: Some(end) } = &self.chain[at] else { return false };
            let holds = |member: &Holder| acked(member) >= *end;
            if set.quorum.is_none() {
                return holds(&self.me) && set.members.iter().all(holds);
            }
            let before = || self.chain.iter().take(at).map(|link| &link.set);
            // A log that is gone answers no candidate, whatever it has held.
            let answers = |member: &&Holder| !self.gone.contains(member);
            let is_new =
                |member: &&Holder| answers(member) && before().any(|earlier| !earlier.members.contains(member));
            let is_met = |earlier: &InSyncSet| {
                // One that is not in the new set says so to candidates, too, unless it is about to
                // forget.
                let knows = |member: &Holder| set.members.contains(member) || !forgets(member.node);
                let holders = earlier.members.iter().filter(|member| knows(member) && holds(member));
                let holders: BTreeSet<_> = holders.copied().collect();
                // Who knows of 1-safe alone would not ask.
                let asks = earlier.level != Safety::OneSafe || set.level == Safety::OneSafe;
                let all_know = || earlier.members.iter().filter(answers).all(|member| holders.contains(member));
                let met = earlier.own().meets(&holders, &self.gone) && !earlier.is_lost(&self.gone);
                met && (asks || all_know())
            };
            // Of the set itself, too, a candidate hears one that has what was committed before it.
            let holders: BTreeSet<_> = set.members.iter().filter(|member| holds(member)).copied().collect();
            let is_known = set.own().meets(&holders, &self.gone);
            holds(&self.me) && is_known && set.members.iter().filter(is_new).all(holds) && before().all(is_met)
        };
        match (0..self.chain.len()).rev().find(|at| held(*at)) {
            None => false,
            Some(0) if self.begun => false,
            Some(newest) => {
                self.chain.drain(..newest);
                // A log that no set names may come back: its directory was put back as it was once.
                let chain = &self.chain;
                self.gone.retain(|log| chain.iter().any(|link| link.set.possible_members().any(|it| it == log)));
                self.begun = true;
                self.roster.left(&self.chain[0].set.roster.leaving);
                true
            }
        }
    }

    /// Begins a set without those members who are unfit, as far as the floor and the sets before
    /// allow, in the order in which they are given; says who goes. Where a member whose log is gone
    /// can go only if others come, those who are `level` come.
    pub fn remove(&mut self, unfit: &[NodeId], level: &[Holder], silent: &BTreeSet<NodeId>) -> Vec<NodeId> {
        if self.to_write().is_some() {
            return Vec::new();
        }
        let mut next = self.newest().set.members.clone();
        let mut left = Vec::new();
        for &node in unfit {
            let without: BTreeSet<_> = next.iter().filter(|member| member.node != node).copied().collect();
            let comes =
                |member: &&Holder| !self.gone.contains(member) && without.iter().all(|other| other.node != member.node);
            let with: BTreeSet<_> = without.iter().chain(level.iter().filter(comes)).copied().collect();
            let is_gone = next.iter().any(|member| member.node == node && self.gone.contains(member));
            let choices = [Some(without), Some(with).filter(|_| is_gone)];
            let stays = |member: &Holder| member.node == node && next.contains(member);
            let follows = |members: &BTreeSet<Holder>| !members.iter().any(stays) && self.may_follow(members);
            if let Some(members) = choices.into_iter().flatten().find(follows)
                && members != next
            {
                left.push(node);
                next = members;
            }
        }
        // All members have to note it before it takes effect: as long as one cannot, another might
        // come back first that could.
        let all = self.config.counting(&next).quorum.is_none();
        if all && self.is_stuck(&next, silent) {
            return Vec::new();
        }
        if !left.is_empty() {
            self.push(next);
        }
        left
    }

    /// Whether a member can note no set: its log is gone, or its node silent.
    fn is_mute(&self, member: &Holder, silent: &BTreeSet<NodeId>) -> bool {
        silent.contains(&member.node) || self.gone.contains(member)
    }

    /// Whether one of these cannot note the set that they are.
    fn is_stuck(&self, members: &BTreeSet<Holder>, silent: &BTreeSet<NodeId>) -> bool {
        members.iter().any(|member| self.is_mute(member, silent))
    }

    /// The same of the newest set.
    pub fn is_newest_stuck(&self, silent: &BTreeSet<NodeId>) -> bool {
        self.is_stuck(&self.newest().set.members, silent)
    }

    /// Whether a set of these members may be the next.
    fn may_follow(&self, next: &BTreeSet<Holder>) -> bool {
        // No other node knows yet with which floor a term begins.
        let met = self.chain.iter().all(|link| link.set.own().meets(next, &self.gone));
        met && !self.is_orphaned() && self.newest().set.may_be_followed_by(next, &self.gone)
    }

    /// Whether all members of a set are gone that may be in effect: no other set may follow it.
    pub fn is_orphaned(&self) -> bool {
        self.chain.iter().any(|link| link.set.is_lost(&self.gone))
    }

    /// Logs that answer no candidate any more.
    pub fn gone(&self) -> &BTreeSet<Holder> {
        &self.gone
    }

    /// Members of the newest set that answer no candidate any more.
    pub fn lost_members(&self) -> Vec<NodeId> {
        self.members().filter(|member| self.gone.contains(member)).map(|member| member.node).collect()
    }

    /// Begins a set with those who return from leaving, as long as that is not in effect, and with
    /// those who join, unless another change is on its way. Says who comes. Without any, says on
    /// record that the last change is over, and who belongs to the cluster.
    pub fn add(&mut self, returning: &[Holder], joining: &[Holder]) -> Vec<NodeId> {
        if self.to_write().is_some() || !self.begun && returning.is_empty() {
            return Vec::new();
        }
        // Before the first set of a term is in effect, the chain has one set only where that
        // follows none. It holds this node alone then, so that no member can return.
        let settled = self.chain.len() == 1;
        let newest = &self.newest().set;
        let come = returning.iter().chain(joining.iter().filter(|_| settled));
        // One that is gone waits until no set names it.
        let is_new = |member: &Holder| newest.nodes().all(|node| node != member.node) && !self.gone.contains(member);
        let come: Vec<Holder> = come.copied().filter(is_new).collect();
        let is_news = !newest.before.is_empty() || newest.roster != self.roster;
        if !come.is_empty() || settled && is_news {
            let next = newest.members.iter().chain(&come).copied().collect();
            self.push(next);
        }
        come.into_iter().map(|member| member.node).collect()
    }

    fn push(&mut self, members: BTreeSet<Holder>) {
        let Counting { quorum, floor } = self.config.counting(&members);
        let roster = &self.roster;
        let stays =
            |member: &&Holder| member.has_data() && !self.gone.contains(member) && !roster.has_removed(member.node);
        let here: Vec<_> = members.iter().filter(stays).collect();
        self.roster.voters.extend(here.into_iter().map(|member| member.node));
        let (last, roster, before) = (&self.newest().set, self.roster.clone(), Vec::new());
        let level = self.config.safety;
        let mut set =
            InSyncSet { number: last.number + 1, members, level, quorum, floor, before, roster, ..last.clone() };
        if last.own() != set.own() {
            set.since = self.committed;
        }
        set.before = InSyncSet::others(self.chain.iter().map(|link| link.set.own()), &set.own());
        self.chain.push_back(Link { set, end: None });
    }

    /// # Panics
    /// When the sets break one of their laws.
    pub fn check(&self) {
        let newest = self.newest();
        assert!(newest.set.members.contains(&self.me), "the newest set lacks its primary");
        let mut earlier = newest.set.possible().skip(1);
        assert!(earlier.all(|set| set != newest.set.own()), "a set comes before itself");
        for (earlier, later) in self.chain.iter().zip(self.chain.iter().skip(1)) {
            assert!(earlier.set.order() <= later.set.order(), "sets are out of their order");
            assert!(later.set.number - earlier.set.number <= 1, "a set between two is missing");
            let follows = !self.begun || earlier.end.is_some();
            assert!(follows, "a set is to be written, and one before it is not");
            let ascend = earlier.end.is_none() || later.end.is_none() || earlier.end <= later.end;
            assert!(ascend, "a set is recorded before the one that it follows");
        }
    }
}
