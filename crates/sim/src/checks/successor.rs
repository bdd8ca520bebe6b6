use freshet_cluster::{
    commit_rule::Standing,
    in_sync::Holder,
    promotion::{Candidacy, Plan},
};

use super::{Property, Violation};
use crate::{scenario::Broken, world::World};

impl World {
    /// A primary whose in-sync set is on record, and can do without a member, may be lost when all
    /// others answer: one of them can take over. `freshet members` ends with 0 on that condition.
    pub(crate) fn check_successor(&self, node: usize) -> Result<(), Violation> {
        let Some(lead) = self.nodes[node].lead().filter(|lead| lead.rule.standing() == Standing::Safe) else {
            return Ok(());
        };
        let on_record = lead.rule.set_pending().is_none() || self.scenario.broken == Broken::PendingUnseen;
        let Some(set) = lead.rule.in_sync_set().filter(|set| on_record && set.floor > 0) else { return Ok(()) };
        let of = |member: &Holder| member.node.0 as usize;
        // Others have lost their log since, or their word counts no more.
        let is_lost = |member: &Holder| {
            self.lost_disks.contains(member) || self.nodes[of(member)].holder() != *member || self.is_gone(of(member))
        };
        if set.members.iter().any(is_lost) {
            return Ok(());
        }
        let others: Vec<_> = set.members.iter().map(of).filter(|member| *member != node).collect();
        let database = |member: &&usize| {
            let mirror = &self.nodes[**member].mirror;
            !self.nodes[**member].is_witness && mirror.as_ref().is_none_or(|it| it.is_database() && it.has_vote())
        };
        let candidates: Vec<_> = others.iter().filter(database).copied().collect();
        let mut why = Vec::new();
        for &candidate in &candidates {
            let me = &self.nodes[candidate];
            let mut candidacy =
                Candidacy::new(me.id, self.log_state_of(me), &me.disk.terms.fence).led(me.disk.terms.led);
            for &peer in others.iter().filter(|peer| **peer != candidate) {
                let peer = &self.nodes[peer];
                candidacy.observe(peer.id, peer.answer_of(self.log_state_of(peer)));
            }
            match candidacy.plan(self.scenario.safety, false) {
                Plan::Lead { .. } | Plan::Fetch(_) => return Ok(()),
                other => why.push(format!("{candidate}: {other:?}")),
            }
        }
        if candidates.is_empty() {
            return Ok(());
        }
        Property::Successor.violated(format!(
            "node {node} leads in term {} with {set:?} on record, and no other could: {}",
            lead.term,
            why.join("; ")
        ))
    }
}
