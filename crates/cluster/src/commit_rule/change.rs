//! When the in-sync set changes: who leaves it, and who comes.

use std::collections::{BTreeMap, BTreeSet};

use freshet_base::{Lsn, NodeId};

use super::{CommitRule, Member, Place};
use crate::{Moment, in_sync::Holder};

impl CommitRule {
    /// Where members that are on record have to leave, others have become level, or another level
    /// is wanted, there is another set to write.
    pub(super) fn change_set(&mut self, now: Moment) {
        if let Some(sets) = &mut self.sets {
            sets.note_committed(self.committed.max(self.start));
        }
        self.begin_level();
        if self.counted().is_some() {
            self.change_counted();
        } else {
            self.change_awaited(now);
        }
        self.place_by_kind(now);
    }

    /// The same where commits wait for all members.
    fn change_awaited(&mut self, now: Moment) {
        let silent = self.silent();
        let Some(sets) = &mut self.sets else { return };
        let (members, wants) = (&mut self.members, sets.wants_witness());
        let is_unfit = |node: NodeId| {
            // It may have come with another log while commits counted members.
            let unfit = |member: &Member| {
                let other_log = !sets.names(&member.holder(node));
                let leaves = member.stalls || !member.synchronous || member.place == Place::Leaving;
                leaves || other_log || member.witness && !wants
            };
            sets.roster().has_removed(node) || members.get(&node).is_none_or(unfit)
        };
        let mut unfit: Vec<_> = sets.members().map(|member| member.node).filter(|node| is_unfit(*node)).collect();
        // As long as the floor keeps some, those go first that are silent.
        unfit.sort_by_key(|node| !silent.contains(node));
        // Who is level comes in. Who leaves may come back before it is out, lest everybody wait for
        // another who is worse.
        let committed = self.committed;
        // One that was a member a moment ago helps a lost one out, even if it has to go afterwards.
        let helps = |(node, member): &(&NodeId, &Member)| {
            member.connected && member.holds(committed) && sets.has_had(&member.holder(**node))
        };
        let helpers = members.iter().filter(helps).map(|(node, member)| member.holder(*node));
        let helpers: Vec<_> = level_members(members, Place::Joining, committed).into_iter().chain(helpers).collect();
        for node in sets.remove(&unfit, &helpers, &silent) {
            if let Some(member) = members.get_mut(&node) {
                member.place = Place::Leaving;
                member.must_reach = self.durable;
            }
        }
        for member in sets.members() {
            match members.get_mut(&member.node) {
                Some(known) if known.place == Place::Behind => known.place = Place::Joining,
                _ => {}
            }
        }
        let [leaving, joining] = [Place::Leaving, Place::Joining].map(|place| level_members(members, place, committed));
        // Who may not leave, since no set without it may follow, has not left: it counts again as
        // soon as it has what it must.
        let is_back = |holder: &&Holder| sets.names(holder);
        let stayed =
            leaving.iter().filter(is_back).map(|holder| (holder.node, sets.in_effect().members.contains(holder)));
        for (node, counts) in stayed.collect::<Vec<_>>() {
            if let Some(member) = members.get_mut(&node) {
                member.move_to(if counts { Place::InSync } else { Place::Joining }, now);
            }
        }
        // A set with one that cannot note it would not take effect.
        let joining = if sets.is_newest_stuck(&silent) { Vec::new() } else { joining };
        for node in sets.add(&leaving, &joining) {
            if let Some(member) = members.get_mut(&node) {
                member.place = Place::Joining;
            }
        }
    }

    /// The same where commits count members: a member goes when its log is gone, or when it never
    /// took part; a standby that is level becomes one.
    fn change_counted(&mut self) {
        let Some(sets) = &mut self.sets else { return };
        let members = &self.members;
        let (effective, lost, wants) = (sets.in_effect().members.clone(), sets.lost_members(), sets.wants_witness());
        let goes = |member: &Holder| {
            let known = members.get(&member.node);
            let never_came = |known: &Member| known.stalls || !known.connected;
            lost.contains(&member.node)
                || sets.roster().has_removed(member.node)
                || known.is_none_or(|known| known.forgotten || !known.synchronous || known.witness && !wants)
                || !effective.contains(member) && known.is_some_and(never_came)
        };
        let going: Vec<_> = sets.members().filter(goes).map(|member| member.node).collect();
        let is_level = |member: &(&NodeId, &Member)| {
            let (node, member) = *member;
            let votes = !member.witness || wants;
            member.keeps_up() && member.synchronous && votes && !sets.names(&member.holder(*node))
        };
        let mut level: Vec<_> = members.iter().filter(is_level).map(|(node, it)| it.holder(*node)).collect();
        sets.remove(&going, &level, &BTreeSet::new());
        level.retain(|member| !sets.names(member));
        sets.add(&[], &level);
    }

    /// The newest set counts its members, and before it commits waited for all of them, or the
    /// other way round: then places mean something else.
    pub(super) fn place_by_kind(&mut self, now: Moment) {
        let Some(sets) = &self.sets else { return };
        for (node, member) in &mut self.members {
            match member.place {
                Place::Leaving if sets.counts() => {
                    member.must_reach = self.durable;
                    member.move_to(Place::Behind, now);
                }
                Place::InSync if !sets.counts() && !sets.binds(*node) => member.move_to(Place::Joining, now),
                _ => {}
            }
        }
    }
}

/// The synchronous standbys in this place that hold what members have to, where commits wait for
/// all members.
fn level_members(members: &BTreeMap<NodeId, Member>, place: Place, committed: Lsn) -> Vec<Holder> {
    let fit = |member: &Member| {
        let returns = member.place == Place::Leaving && !member.stalls && member.holds(member.must_reach);
        let joins = member.place == Place::Joining && member.holds(committed);
        member.connected && member.synchronous && member.place == place && (joins || returns)
    };
    members.iter().filter(|(_, member)| fit(member)).map(|(node, member)| member.holder(*node)).collect()
}
