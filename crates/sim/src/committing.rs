//! Drives [`freshet_cluster::commit_rule::CommitRule`]: what it decides is acknowledged, or
//! recorded.

use freshet_base::Lsn;
use freshet_cluster::{commit_rule::Event, follower};

use crate::{
    checks::Violation,
    node::Role,
    sabotage::Effect,
    scenario::Broken,
    world::{World, Writes},
};

impl World {
    /// Feeds the commit rule of a primary, or of a relay, and carries out what it decides.
    pub(crate) fn apply_to_rule(&mut self, node: usize, event: Event) -> Result<(), Violation> {
        let now = self.clock(node);
        let state = &mut self.nodes[node];
        let Role::Primary(lead) = &mut state.role else {
            self.apply_to_follower(node, follower::Event::Below(event))?;
            self.acknowledge(node, false);
            return Ok(());
        };
        let decision = lead.rule.apply(event, now);
        if lead.rule.set_took_effect() {
            state.disk.terms.led = Some(lead.term);
        }
        let (before, fenced) = (lead.acknowledged, lead.rule.fenced().is_some());
        let whole = state.disk.log.transaction_end(decision.committed.0);
        if decision.write {
            lead.rule.announced(Lsn(whole));
        }
        for effect in self.ruled(&decision) {
            match effect {
                Effect::Commit if whole > before => self.announce_committed(node, before, whole)?,
                Effect::Record if !fenced => self.write_set(node)?,
                _ => {}
            }
        }
        if fenced {
            self.end_feeds(node);
        }
        self.watch(node);
        Ok(())
    }

    /// Clients hear that the log of `node` is committed up to `whole`, and those that it feeds.
    fn announce_committed(&mut self, node: usize, before: u64, whole: u64) -> Result<(), Violation> {
        self.check_acknowledged(node, whole)?;
        let state = &mut self.nodes[node];
        self.report.acknowledged +=
            state.disk.log.between(before, whole).iter().filter(|block| block.last).count() as u64;
        if let Some(lead) = state.lead_mut() {
            lead.acknowledged = lead.acknowledged.max(whole);
        }
        self.committed(node, whole)
    }

    fn write_set(&mut self, node: usize) -> Result<(), Violation> {
        let lead = self.nodes[node].lead().expect("only a primary's rule asks");
        let Some(mut set) = lead.rule.to_write().cloned() else { return Ok(()) };
        let (term, number) = (lead.term, set.number);
        if self.scenario.broken == Broken::SetNotRecorded && number > 3 {
            let end = lead.rule.durable().min(Lsn(self.nodes[node].disk.synced));
            let end = end.min(lead.rule.committed());
            return self.apply_to_rule(node, Event::Written { number, end });
        }
        if self.scenario.broken == Broken::SetNotJoint {
            // What comes of it has to show.
            let floor = self.scenario.floor;
            set.before.iter_mut().for_each(|earlier| earlier.floor = floor);
            set.floor = floor;
        } else {
            self.check_set(node, &set)?;
        }
        self.report.sets += 1;
        // Before it can be shipped.
        self.nodes[node].disk.terms.note_set(set.clone());
        let block = self.block(node, term, Writes::Set(set));
        let end = Lsn(block.end());
        if let Some(host) = &mut self.nodes[node].host {
            host.set_recorded(end);
        }
        let digest = self.nodes[node].disk.log.push(block.clone());
        self.check_block(node, &block, digest)?;
        self.apply_to_rule(node, Event::Written { number, end })?;
        self.ask_witness(node)?;
        self.flush(node)
    }
}
