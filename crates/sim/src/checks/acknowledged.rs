use freshet_base::Safety;
use freshet_cluster::promotion::{Candidacy, Fetch, LogState, Plan};

use super::{Property, Violation};
use crate::{scenario::Broken, world::World};

impl World {
    /// The clients of `node` are told that everything up to `upto` is committed.
    pub(crate) fn check_acknowledged(&mut self, node: usize, upto: u64) -> Result<(), Violation> {
        let digest = self.nodes[node].disk.log.digest(upto);
        let holds = |other: &crate::node::Node| {
            let held = self.holds(other.id.0 as usize, upto);
            held.is_some() && held == digest
        };
        if !holds(&self.nodes[node]) {
            return Property::Acknowledged
                .violated(format!("node {node} acknowledges {upto} before it is durable there"));
        }
        let lead = self.nodes[node].lead().expect("who acknowledges leads");
        let recorded = lead.rule.in_sync_set();
        let mut set = recorded.map(|set| set.members.clone()).unwrap_or_default();
        set.retain(|member| !member.witness && !self.nodes[member.node.0 as usize].is_witness);
        let quorum = recorded.and_then(|set| set.quorum);
        // One that has acknowledged, and has lost its disk since, is one of those that may.
        let lost = |other: &crate::node::Node| {
            set.iter().any(|member| member.node == other.id && self.lost_disks.contains(member))
        };
        let holds = |other: &crate::node::Node| holds(other) || lost(other);
        let synchronous = self.nodes.iter().filter(|other| other.synchronous);
        let missing: Vec<_> = synchronous.clone().filter(|other| !holds(other)).map(|other| other.id.0).collect();
        let members = || set.iter().map(|member| &self.nodes[member.node.0 as usize]).filter(|member| holds(member));
        // No asynchronous node is a member, but under 2-safe one that was promoted.
        let counted = members().filter(|member| member.synchronous || self.scenario.levels).count();
        let level = recorded.filter(|_| self.scenario.levels).map_or(self.scenario.safety, |set| set.level);
        let enough = match (level, quorum) {
            (Safety::OneSafe, _) => true,
            (Safety::Quorum(k), _) if self.scenario.levels => counted >= k as usize,
            (Safety::Quorum(k), _) => synchronous.filter(|other| holds(other)).count() >= k as usize,
            (Safety::TwoSafe, _) => members().count() == set.len(),
            (Safety::VerySafe, _) | (Safety::Majority, None) => counted == set.len(),
            (Safety::Majority, Some(quorum)) => quorum as usize > set.len() / 2 && counted >= quorum as usize,
        };
        // A failover that was forced may have cut off what an acknowledgement on its way tells of.
        if !enough && !self.scenario.force {
            return Property::Acknowledged.violated(format!(
                "node {node} acknowledges {upto} under {level}, but nodes {missing:?} do not hold it"
            ));
        }
        self.check_one_primary(node, upto)?;
        self.promise(node, upto, Property::Acknowledged)?;
        self.check_successor(node)?;
        if self.dice.one_in(4) { self.check_candidates() } else { Ok(()) }
    }

    /// Node `node` tells somebody of its log up to `upto`: whoever was told of more, or less, was
    /// told the same.
    pub(crate) fn promise(&mut self, node: usize, upto: u64, property: Property) -> Result<(), Violation> {
        if !self.scenario.strong() {
            return Ok(());
        }
        let (log, promised) = (&self.nodes[node].disk.log, &mut self.checks.promised);
        let common = promised.end().min(upto);
        if log.digest(common) != promised.digest(common) {
            return property.violated(format!("node {node} tells of its log up to {upto}, others were told otherwise"));
        }
        if upto > promised.end() {
            let node = &self.nodes[node];
            let term = node.lead().map_or(node.disk.terms.history.last_term(), |lead| lead.term);
            self.checks.promised_in.push((term, upto));
        }
        for block in log.between(promised.end(), upto) {
            self.checks.tables.apply(block, None);
            promised.push(block.clone());
        }
        Ok(())
    }

    /// Node `node` begins to lead. Of what was promised in a later term it need not know: whoever
    /// promised itself to that term will not follow.
    pub(crate) fn check_new_term(&mut self, node: usize) -> Result<(), Violation> {
        let lead = self.nodes[node].lead().expect("it has just begun");
        let term = lead.term;
        self.checks.leads.push((term, self.nodes[node].id));
        let before = self.checks.promised_in.iter().rfind(|(of, _)| *of <= term);
        let promised = before.map_or(0, |(_, upto)| *upto);
        if !self.scenario.strong() || self.holds_promised(node, promised) {
            return Ok(());
        }
        Property::Acknowledged.violated(format!(
            "node {node} begins to lead at {} in term {term}, and lacks something of what was promised up to {promised}",
            self.nodes[node].disk.log.end()
        ))
    }

    pub(crate) fn holds_promised(&self, node: usize, end: u64) -> bool {
        let held = self.holds(node, end);
        held.is_some() && held == self.checks.promised.digest(end)
    }

    /// Whoever might take over at this moment, whoever it might hear: it would have what was
    /// promised, or is refused.
    pub(crate) fn check_candidates(&mut self) -> Result<(), Violation> {
        if !self.scenario.strong() {
            return Ok(());
        }
        let nodes = self.nodes.len();
        let logs: Vec<_> = self.nodes.iter().map(|node| self.log_state_of(node)).collect();
        let stands = |node: &usize| {
            let disk = &self.nodes[*node].disk;
            let may = self.nodes[*node].mirror.as_ref().is_none_or(|it| it.is_database() && it.has_vote());
            may && !logs[*node].history.entries().is_empty() && disk.log.end() >= disk.floor
        };
        for candidate in (0..nodes).filter(stands) {
            for answering in (0..1_u32 << nodes).filter(|answering| answering >> candidate & 1 == 0) {
                let me = &self.nodes[candidate];
                let mut candidacy =
                    Candidacy::new(me.id, logs[candidate].clone(), &me.disk.terms.fence).led(me.disk.terms.led);
                for peer in (0..nodes).filter(|peer| answering >> peer & 1 == 1) {
                    candidacy.observe(self.nodes[peer].id, self.nodes[peer].answer_of(logs[peer].clone()));
                }
                self.report.judged += 1;
                let from = match candidacy.plan(self.scenario.safety, false) {
                    Plan::Lead { .. } => candidate,
                    Plan::Fetch(Fetch { from, .. }) => from.0 as usize,
                    _ => continue,
                };
                let end = self.checks.promised.end();
                if logs[from].end.0 < end || !self.holds_promised(from, end) {
                    let answering: Vec<_> = (0..nodes).filter(|peer| answering >> peer & 1 == 1).collect();
                    let property = match self.scenario.safety {
                        Safety::TwoSafe | Safety::Majority => Property::InSync,
                        _ => Property::Acknowledged,
                    };
                    return property.violated(format!(
                        "node {candidate}, answered by {answering:?}, might take over with the log of node {from}, \
                         which lacks something of what was promised up to {}; their logs are {logs:?}",
                        self.checks.promised.end(),
                    ));
                }
            }
        }
        Ok(())
    }

    /// What a node would say to a candidate.
    pub(crate) fn log_state_of(&self, node: &crate::node::Node) -> LogState {
        let mut log = self.revoked_state(node);
        let (steady, terms) = (node.steady_clock(self.now), &node.disk.terms);
        let of_witness = node.witness.as_ref().map(|witness| witness.testimony(terms, steady).lease);
        log.lease = of_witness.unwrap_or_else(|| node.voter.left(terms.lease, steady));
        if self.scenario.broken == Broken::AnyoneVotes {
            let sets = self.newest_sets(None);
            let named = sets.iter().flat_map(|set| &set.members).find(|member| member.node == node.id);
            log.incarnation = named.map_or(log.incarnation, |member| member.incarnation);
        }
        if let (Broken::SetTakenForNewest, Some(set)) = (self.scenario.broken, &mut log.set) {
            set.floor = u32::MAX;
        }
        if let (Broken::LevelForgotten, Some(set)) = (self.scenario.broken, &mut log.set) {
            (set.level, set.before) = (Safety::OneSafe, Vec::new());
        }
        log
    }
}
