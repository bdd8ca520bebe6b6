//! Disks that are lost, bits that rot, and disks that are set back: the node begins again with an
//! empty disk, which the operator gives it, with a checkpoint of the primary's, or with an older
//! copy of its own disk.
//!
//! No more of this happens than the safety level allows: of each set that may be the newest, as
//! many members lose their disks as commits do without. A node with another disk has another
//! incarnation. One that is set back does not know it: so that happens only while enough others
//! hold what was promised.

use freshet_base::{Lsn, Safety};
use freshet_cluster::{
    in_sync::{Holder, InSyncSet, Possible},
    term::{Fence, TermState},
};

use crate::{
    checks::Violation,
    node::{Disk, Node},
    scenario::Broken,
    world::World,
};

impl World {
    /// Whether no commit counts on `node`, nor did on its present disk.
    fn is_spare(&self, node: usize) -> bool {
        let name = self.nodes[node].id;
        let counts = |other: &Node| {
            let mut sets = other.disk.log.blocks().iter().filter_map(|block| block.set.as_deref());
            other.disk.terms.may_wait_for(name)
                || other.disk.terms.fence.holder() == Some(name)
                || sets.any(|set| set.may_have(name))
        };
        let state = &self.nodes[node];
        let asked = self.is_asked_for_originals();
        state.mirror.is_none()
            && !asked
            && !state.synchronous
            && state.lead().is_none()
            && !self.nodes.iter().any(counts)
    }

    /// The newest set that any node but `without` knows of, whatever it may still lose; and those
    /// that were written beside it, before or after, by a primary that knew nothing of it. No
    /// candidate hears what one says that was removed.
    pub(crate) fn newest_sets(&self, without: Option<usize>) -> Vec<InSyncSet> {
        let nodes = || self.nodes.iter().enumerate().filter(|(node, _)| Some(*node) != without);
        let known_to = |(_, node): (usize, &Node)| {
            let mut sure = node.disk.log.blocks().iter().rev().filter(|block| block.end() <= node.disk.sure);
            let logged = sure.find_map(|block| block.set.as_deref());
            [node.disk.terms.set.as_ref(), logged].into_iter().flatten().cloned().collect::<Vec<_>>()
        };
        let newest = nodes().flat_map(known_to).max_by_key(InSyncSet::order);
        let belongs = |(_, node): &(usize, &Node)| newest.as_ref().is_none_or(|newest| !newest.is_without(node.id));
        let mut known: Vec<_> = nodes().filter(belongs).flat_map(known_to).collect();
        let newest = known.iter().max_by_key(|set| set.order()).map(|newest| (newest.term, newest.base()));
        known.retain(|set| newest.is_some_and(|(term, base)| set.order() >= base || set.term == term));
        known
    }

    /// Whether too many logs are lost of a set that may be in effect, as far as is known now, for a
    /// candidate to know the newest: a primary that stood still may name logs that are gone, and
    /// nodes on which no commit counts may have known more. An operator has to force a failover.
    pub(crate) fn is_unknowable(&self) -> bool {
        self.newest_sets(None).iter().any(|newest| {
            let (left, needed) = newest.answered_by(|_, member| !self.lost_disks.contains(member));
            left < needed
        })
    }

    /// Whether the level allows that `node` loses its disk now, and the others continue without an
    /// operator who forces anything.
    pub(crate) fn may_lose(&self, node: usize) -> bool {
        let holder = self.nodes[node].holder();
        let rosters: Vec<_> = self.nodes.iter().filter_map(|node| node.lead()?.rule.roster()).collect();
        // What one notes that is being removed counts for nothing.
        let removed = |member: &Holder| rosters.iter().any(|roster| roster.has_removed(member.node));
        let lasts = |newest: &InSyncSet| {
            newest.possible().all(|set| {
                let lasts =
                    |member: &&Holder| **member != holder && !self.lost_disks.contains(member) && !removed(member);
                let lost = set.members.iter().filter(|member| !lasts(member)).count();
                // A witness holds nothing of what was promised.
                lost <= set.floor as usize && set.members.iter().filter(lasts).any(|member| !member.witness)
            })
        };
        // What the others know has to do for them.
        let last = [None, Some(node)].map(|without| {
            let newest = self.newest_sets(without);
            !newest.is_empty() && newest.iter().all(lasts)
        });
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        // A mirror passes nothing on: what it alone has counts where it may lead itself.
        let newest = self.newest_sets(None).into_iter().max_by_key(InSyncSet::order);
        let is_of_use = |other: usize| {
            let is_member = |newest: &InSyncSet| newest.members.contains(&self.nodes[other].holder());
            self.nodes[other].mirror.is_none() || newest.as_ref().is_none_or(is_member)
        };
        let promised = self.checks.promised.end();
        // A primary may take in one that has lost its log and has not come back since.
        let leads = self.nodes.iter().filter_map(Node::lead);
        let mut joined = leads.flat_map(|lead| lead.rule.members().map(|(name, member)| member.holder(name)));
        self.scenario.strong()
            && !self.is_asked_for_originals()
            && !self.nodes.iter().any(Node::owes)
            && !joined.any(|joined| self.lost_disks.contains(&joined))
            && self.nodes[node].may_vote()
            && last == [true, true]
            && others.into_iter().any(|other| self.holds_promised(other, promised) && is_of_use(other))
    }

    /// The disk of `node` fails, at once or when it is next read.
    pub(crate) fn lose_disk(&mut self, node: usize) {
        let alone = self.scenario.safety == Safety::OneSafe && self.report.set_back > 0;
        self.nodes[node].disk.rotten = self.is_spare(node) && !alone || self.may_lose(node);
        if self.nodes[node].disk.rotten && self.dice.one_in(2) {
            self.crash(node);
        }
    }

    /// A node that has just described its log may be one that has lost it, and has another one.
    pub(crate) fn may_lose_disk_at_once(&mut self, node: usize) -> Result<(), Violation> {
        if self.calm
            || self.nodes[node].mirror.is_some()
            || self.nodes[node].is_witness
            || !self.dice.one_in(40)
            || !self.may_lose(node)
        {
            return Ok(());
        }
        self.crash(node);
        self.nodes[node].disk.rotten = true;
        self.start(node)
    }

    /// A node whose disk is of no use starts with another one: from a checkpoint of the primary's,
    /// if there is a primary that has one.
    pub(crate) fn replace_disk(&mut self, node: usize) {
        if !std::mem::take(&mut self.nodes[node].disk.rotten) {
            return;
        }
        let spare = self.is_spare(node);
        if !spare && !self.may_lose(node) {
            return;
        }
        self.another_disk(node);
    }

    pub(crate) fn another_disk(&mut self, node: usize) {
        let spare = self.is_spare(node);
        self.report.disks += 1;
        self.note(|| format!("node {node} begins with another disk"));
        let state = &self.nodes[node];
        self.lost_disks.insert(state.holder());
        let fresh = Node::new(node, state.synchronous, state.relay, state.follows, &state.recorder);
        let fence = if spare { state.disk.terms.fence } else { Fence::new(freshet_base::Term(0), None) };
        let kept = self.nodes[node].disk.terms.incarnation.filter(|_| self.scenario.broken == Broken::IncarnationKept);
        let incarnation = kept.or(Some(self.unique()));
        let mut disk = Disk { terms: TermState { fence, incarnation, ..TermState::empty() }, ..fresh.disk };
        let needed = self.nodes.iter().any(|other| other.disk.kept > 0);
        let is_mirror = self.nodes[node].mirror.is_some();
        let leads = |other: &usize| self.nodes[*other].leads() && (needed || self.dice.one_in(2));
        let primary = (0..self.nodes.len()).find(leads).filter(|_| !is_mirror && !self.nodes[node].is_witness);
        if let Some(primary) = primary {
            let theirs = &self.nodes[primary];
            let acknowledged = theirs.lead().map_or(0, |lead| lead.acknowledged);
            let committed = acknowledged.max(theirs.disk.based);
            let kept = theirs.disk.kept;
            let begins = kept + self.dice.below(committed - kept + 1);
            let log = &self.nodes[primary].disk.log;
            // It is written while others write, and installed when all of that is committed.
            let (start, end) = (log.transaction_end(begins), log.transaction_end(committed));
            // The log may be kept from within a transaction on.
            let start = if start < kept { theirs.disk.based } else { start };
            for block in log.between(0, start) {
                disk.log.push(block.clone());
            }
            (disk.kept, disk.based) = (start, end);
            (disk.synced, disk.sure, disk.floor) = (start, start, end);
            disk.terms.adopt(crate::world::CLUSTER, theirs.disk.terms.history.cut(Lsn(end)));
            disk.terms.committed = Lsn(acknowledged.min(end));
        }
        (self.nodes[node].disk, self.nodes[node].copy) = (disk, None);
        self.nodes[node].renew_mirror();
    }

    /// No primary has the log any more that `node` needs: the operator gives it another disk, when
    /// the one that leads has all that anybody was told of, and no node that can continue may have
    /// to ask it for a block. One that has none has nothing to give.
    pub(crate) fn replace_hopeless(&mut self, node: usize) {
        let is_empty = self.nodes[node].disk.log.end() == 0;
        if !is_empty && self.nodes.iter().any(|other| other.lacks_original() && !other.disk.hopeless) {
            return;
        }
        let leading: Vec<usize> = (0..self.nodes.len()).filter(|other| self.nodes[*other].leads()).collect();
        let state = &self.nodes[node];
        let (true, [primary]) = (state.disk.hopeless && state.lead().is_none(), &leading[..]) else { return };
        if !self.holds_promised(*primary, self.checks.promised.end()) {
            return;
        }
        self.crash(node);
        self.another_disk(node);
    }

    /// No node leads, because the newest log is that of one which has begun from a checkpoint: it
    /// lacks the end, so it cannot lead, and the beginning, so the others cannot fetch what they
    /// lack. Under 1-safe the operator gives it up, as `PromoteError::Unfetchable` says.
    pub(crate) fn give_up_newcomers(&mut self) {
        for node in 0..self.nodes.len() {
            let Disk { log, floor, .. } = &self.nodes[node].disk;
            if log.end() < *floor {
                self.crash(node);
                self.another_disk(node);
            }
        }
    }

    /// Somebody copies the disk of `node`.
    pub(crate) fn keep_copy(&mut self, node: usize) {
        let disk = &self.nodes[node].disk;
        let mut copy = Box::new(disk.clone());
        copy.cut(disk.synced);
        (copy.failing, copy.failed, copy.full, copy.rotten, copy.set_back) = (false, false, None, false, false);
        self.nodes[node].copy = Some(copy);
    }

    /// At its next start `node` finds an older copy of its disk.
    pub(crate) fn set_back(&mut self, node: usize) {
        // A witness must not forget either what it has promised or what it has noted.
        let is_mirror = self.nodes[node].mirror.is_some() || self.nodes[node].is_witness;
        // Under 1-safe anything may be lost; but logs do not mix. Where another node has begun with
        // another disk, an operator may have to force one.
        let may = self.scenario.strong() || self.scenario.safety == Safety::OneSafe && self.report.disks == 0;
        if !is_mirror && self.nodes[node].copy.is_some() && may {
            self.nodes[node].disk.set_back = true;
            self.crash(node);
        }
    }

    /// Whether those who are heard without `node` have what was promised, and nobody relies on it
    /// alone.
    fn may_be_set_back(&self, node: usize) -> bool {
        let newest = self.newest_sets(None).into_iter().max_by_key(InSyncSet::order);
        let (Some(newest), promised) = (newest, self.checks.promised.end()) else { return false };
        let name = self.nodes[node].id;
        let safe = |set: Possible<'_>| {
            let others = set.members.iter().filter(|member| member.node != name);
            let mirror_state = others.filter(|member| {
                let other = member.node.0 as usize;
                self.nodes[other].disk.terms.holder(member.node) == **member && self.holds_promised(other, promised)
            });
            // Of those who answer a candidate, this node and any others, one has all of it.
            mirror_state.count() + set.needed() > set.members.len()
        };
        let alone = newest.possible().any(Possible::may_go_on_alone);
        // What it has committed and not acknowledged, a primary may still acknowledge.
        let acknowledged = self.nodes[node].disk.log.end() <= promised;
        // It knew the same set, and cannot lead without the answer of another member.
        // Nor does it forget a promise.
        let terms = &self.nodes[node].disk.terms;
        let asks = self.nodes[node].copy.as_ref().is_some_and(|copy| {
            let asks = copy.terms.set.as_ref().is_some_and(|set| {
                let (answered, needed) = set.answered_by(|_, member| member.node == name);
                answered < needed && set.possible().eq(newest.possible())
            });
            // It learns of sets once more that were in effect between: by one of those it might
            // lead.
            let log = &self.nodes[node].disk.log;
            let mut again =
                log.between(copy.log.end().min(log.end()), u64::MAX).iter().filter_map(|it| it.set.as_ref());
            let same = again.all(|set| set.possible().eq(newest.possible()));
            asks && same && copy.terms.fence == terms.fence
        });
        !alone && !self.is_asked_for_originals() && acknowledged && asks && newest.possible().all(safe)
    }

    /// The node starts with an older copy of its disk.
    pub(crate) fn bring_copy(&mut self, node: usize) {
        // Where nothing is left of the cluster it is begun again by hand.
        let holds_some = |world: &Self| world.nodes[node].copy.as_ref().is_some_and(|copy| copy.log.end() > 0);
        let may = |world: &Self| match world.scenario.strong() {
            true => world.may_be_set_back(node),
            false => holds_some(world),
        };
        if !std::mem::take(&mut self.nodes[node].disk.set_back) || !may(self) {
            return;
        }
        if let Some(copy) = self.nodes[node].copy.clone() {
            self.note(|| format!("node {node} begins with an older copy of its disk"));
            self.report.set_back += 1;
            if !self.scenario.strong() {
                // It may begin a term again.
                let state = &self.nodes[node];
                self.lost_disks.insert(state.disk.terms.holder(state.id));
            }
            self.nodes[node].disk = *copy;
        }
    }
}
