//! Who looks after the cluster while it runs, and puts things right.

use freshet_base::{Consent, Safety, Term};
use freshet_cluster::{
    in_sync::{Holder, InSyncSet},
    promotion::is_to_be_unattended,
    term::Fence,
};

use crate::{
    checks::Violation,
    dice::Dice,
    levels,
    node::Node,
    removing,
    scenario::{Broken, Scenario},
    switching, upgrading,
    world::{What, World},
};

/// The dice of those who change something now and then: the primary, the members, the level, the
/// program.
pub(crate) fn operators(scenario: &Scenario, seed: u64) -> [Option<Dice>; 4] {
    let [removes, levels] = [removing::dice, levels::dice].map(|dice| dice(scenario, seed));
    [switching::dice(seed), removes, levels, upgrading::dice(scenario, seed)]
}

impl World {
    /// A node leads as soon as a whole lease is over, unless another one is ordered to.
    fn awaits_a_register(&self) -> bool {
        let waits = |node: &Node| node.candidate.as_ref().is_some_and(|candidate| candidate.leads_at.is_some());
        self.calm && self.scenario.register && self.nodes.iter().any(waits)
    }

    /// Looks after the cluster: lets a node take over, and starts former primaries again, as they
    /// were.
    pub(crate) fn operator(&mut self) -> Result<(), Violation> {
        let pause = self.dice.between(3000, 20_000);
        self.after(pause, What::Operator);
        let count = self.nodes.len();
        (0..count).for_each(|node| self.replace_hopeless(node));
        let runs = |node: &Node| !node.memory.stopped;
        let leading: Vec<usize> =
            (0..count).filter(|node| self.nodes[*node].leads() && runs(&self.nodes[*node])).collect();
        for node in 0..count {
            // As they do by themselves.
            let fenced = self.nodes[node].lead().and_then(|lead| lead.rule.fenced()).is_some();
            if fenced && self.nodes[node].up && self.dice.one_in(3) {
                self.crash(node);
            }
        }
        if leading.len() > 1 && self.calm && self.scenario.force && self.dice.one_in(4) {
            self.choose_one_of(&leading);
            return Ok(());
        }
        if let ([primary], true) = (&*leading, self.calm)
            && self.contested(*primary)
            && self.dice.one_in(4)
        {
            // Others have promised themselves to another node in the same term: a later one
            // resolves it.
            self.crash(*primary);
            return Ok(());
        }
        self.may_order_switch_over(&leading);
        self.may_change_members(&leading)?;
        if let Some((node, consent)) = self.better_than_the_only(&leading) {
            return self.promote(node, consent);
        }
        self.idle = if leading.is_empty() && !self.awaits_a_register() { self.idle + 1 } else { 0 };
        let coup = !self.calm && self.dice.one_in(if self.scenario.automatic { 100 } else { 25 });
        // In the end they find by themselves which node leads. The operator is needed where a
        // failover was forced; where the node that would come back by itself has another disk; and
        // where a mirror has more than that node: it cannot pass that on, and has to be promoted.
        let replaced = self.report.disks > 0 || self.report.set_back > 0;
        let lost = (replaced || self.scenario.mirrors > 0) && self.idle > 20;
        let waits = if self.scenario.automatic { 20 } else { 2 };
        let helps = self.idle > waits && (!self.calm || self.scenario.force || lost);
        if helps && self.calm && self.idle > 100 && self.scenario.safety == Safety::OneSafe {
            self.give_up_newcomers();
        }
        if helps || coup {
            let candidates = self.candidates();
            if !candidates.is_empty() {
                let node = candidates[self.dice.below(candidates.len() as u64) as usize];
                let consent = self.consent(node, leading.is_empty());
                return self.promote(node, consent);
            }
        }
        Ok(())
    }

    /// Nodes that were forced may have committed in the same term. The operator chooses one of
    /// them.
    fn choose_one_of(&mut self, leading: &[usize]) {
        let (last, rest) = leading.split_last().expect("there are several");
        self.crash(*last);
        for node in rest {
            self.nodes[*node].ordered = Some(*last);
            self.crash(*node);
            self.demote(*node);
        }
    }

    /// What the operator agrees to when `node` is to lead. A primary that is down, and that
    /// committed nothing without that node, has gone in sync: sometimes it is gone for good.
    fn consent(&mut self, node: usize, none_leads: bool) -> Consent {
        if self.scenario.force {
            let forces = self.nodes[node].synchronous && self.dice.one_in(2);
            return if forces { Consent::Loss } else { Consent::Nothing };
        }
        if self.scenario.safety == Safety::OneSafe && self.calm && self.idle > 50 && self.dice.one_in(2) {
            // Several may have led alone, and each keeps what it has.
            return Consent::Loss;
        }
        let state = &self.nodes[node];
        let Some(set) = state.disk.terms.set.as_ref().filter(|set| set.may_go_on_alone()) else {
            return Consent::Nothing;
        };
        let (primary, holder) = (set.primary.0 as usize, state.disk.terms.holder(state.id));
        let gone = none_leads && primary != node && self.went_in_sync(primary, &holder);
        if !gone || !self.dice.one_in(2) || self.scenario.broken != Broken::Nothing {
            return Consent::Nothing;
        }
        self.report.gone += 1;
        self.another_disk(primary);
        Consent::PrimaryIsGone
    }

    /// Whether `primary` is down, and each set that it knew, on the disk that it has, has it and
    /// `holder` among those that hold every commit.
    fn went_in_sync(&self, primary: usize, holder: &Holder) -> bool {
        let state = &self.nodes[primary];
        let own = state.disk.terms.holder(state.id);
        let logged = state.disk.log.blocks().iter().rev().find_map(|block| block.set.as_deref());
        let mut known = [state.disk.terms.set.as_ref(), logged].into_iter().flatten().peekable();
        let has = |set: &InSyncSet, holder| set.possible().all(|possible| possible.members.contains(holder));
        let is_known = known.peek().is_some();
        let down = !state.up && state.mirror.is_none();
        down && is_known && known.all(|set| set.may_go_on_alone() && has(set, &own) && has(set, holder))
    }

    /// A node that has to take over from the only primary: one that refuses to follow it, since it
    /// has less; any, by force, if nothing can be committed in its term, as its status says.
    fn better_than_the_only(&mut self, leading: &[usize]) -> Option<(usize, Consent)> {
        let holds_more = self.holds_more.take();
        let ([primary], true) = (leading, self.calm) else { return None };
        let orphaned = self.nodes[*primary].lead().is_some_and(|lead| lead.rule.is_orphaned());
        let candidates = self.candidates();
        let better = match holds_more.filter(|node| candidates.contains(node)) {
            Some(node) => Some((node, Consent::Nothing)),
            None if self.scenario.force && orphaned => candidates.first().map(|node| (*node, Consent::Loss)),
            None => None,
        };
        better.filter(|_| self.dice.one_in(4))
    }

    /// Who can be asked to take over.
    fn candidates(&self) -> Vec<usize> {
        let can = |node: &&usize| {
            let state = &self.nodes[**node];
            let is_ready = state.mirror.as_ref().is_none_or(|mirror| mirror.ready && !mirror.takes_over);
            let rests = state.lead().is_none() && state.candidate.is_none() && is_ready;
            // Who belongs to no cluster yet cannot be asked to take over.
            state.up && rests && !state.memory.stopped && !state.disk.terms.history.entries().is_empty()
        };
        (0..self.nodes.len()).filter(|node| can(&node)).collect()
    }

    /// A mirror is promoted while the primary lives, as soon as one can be.
    pub(crate) fn coup(&mut self) -> Result<(), Violation> {
        let can = |node: &Node| node.up && node.mirror.as_ref().is_some_and(|it| it.ready && it.is_database());
        match (0..self.nodes.len()).find(|node| can(&self.nodes[*node])) {
            Some(node) => self.promote(node, Consent::Nothing),
            None => {
                self.after(100, What::Coup);
                Ok(())
            }
        }
    }

    /// Whether the nodes do without an operator while this primary leads, and all are there.
    pub(crate) fn is_unattended(&self, primary: usize) -> bool {
        let set = self.nodes[primary].disk.terms.set.as_ref();
        self.scenario.automatic && is_to_be_unattended(self.scenario.safety, set)
    }

    /// Whether a node takes the primary's term for another node's, and only an operator does
    /// something about that.
    fn contested(&self, primary: usize) -> bool {
        let term = self.nodes[primary].lead().map(|lead| lead.term);
        let another = |node: &Node| node.disk.terms.fence.holder().is_some_and(|holder| holder.0 as usize != primary);
        let is_contested = self.nodes.iter().any(|node| Some(node.disk.terms.fence.highest()) == term && another(node));
        is_contested && !self.is_unattended(primary)
    }

    /// The operator makes a primary of the past a standby: it forgets that the last term was its
    /// own.
    fn demote(&mut self, node: usize) {
        let fence = self.nodes[node].disk.terms.fence.highest();
        self.nodes[node].disk.terms.fence = Fence::new(Term(fence.0), None);
        let primary = self.nodes[node].ordered.map(|primary| self.nodes[primary].id);
        if let Some(primary) = primary {
            // Known to everybody who has to know: the one that goes on leads in a later term.
            self.nodes[node].disk.terms.fence = Fence::new(fence, Some(primary));
        }
    }
}
