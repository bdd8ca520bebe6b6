//! The operator takes nodes out of the cluster for good ([`freshet_cluster::commit_rule::Leaves`]).
//! They go on as they are: they answer candidates, stand, and want to come back.

use freshet_cluster::commit_rule::{Event, Leaves};

use crate::{
    checks::Violation,
    dice::{Dice, mix},
    scenario::{Broken, Scenario},
    world::World,
};

/// Names the dice of removals.
const REMOVALS: u64 = 10;

/// The dice of the operator who removes nodes; none in half of all runs, and where the level does
/// not follow the number of nodes.
pub(crate) fn dice(scenario: &Scenario, seed: u64) -> Option<Dice> {
    let mut dice = Dice(mix(seed ^ mix(REMOVALS)));
    (scenario.removes && dice.one_in(2)).then_some(dice)
}

impl World {
    /// Whether `node` is out of the cluster, as the only primary knows.
    pub(crate) fn is_removed(&self, node: usize) -> bool {
        let name = self.nodes[node].id;
        self.nodes.iter().filter_map(|other| other.lead()).any(|lead| lead.rule.has_removed(name))
    }

    /// In some runs the operator changes the level, removes a node, or upgrades one, now and then.
    pub(crate) fn may_change_members(&mut self, leading: &[usize]) -> Result<(), Violation> {
        self.may_upgrade(leading)?;
        self.may_remove(leading)?;
        self.may_change_level(leading)
    }

    fn may_remove(&mut self, leading: &[usize]) -> Result<(), Violation> {
        let count = self.nodes.len() as u64;
        let ([primary], false, Some(dice)) = (leading, self.calm, &mut self.operators[1]) else { return Ok(()) };
        let (primary, node) = (*primary, dice.below(count) as usize);
        // Those below a relay stay with it.
        let relays = self.scenario.cascaded > 0 && node == 1;
        if !dice.one_in(8) || node == primary || relays || !self.nodes[node].may_vote() {
            return Ok(());
        }
        // Who says so of one that runs is wrong.
        let how = if self.scenario.broken == Broken::RemovedLives { Leaves::RemovedGone } else { Leaves::Removed };
        let (name, now) = (self.nodes[node].id, self.clock(primary));
        let Some(lead) = self.nodes[primary].lead_mut() else { return Ok(()) };
        if lead.rule.leave(name, how, now).is_ok() {
            self.report.removed += 1;
            self.note(|| format!("node {node} is removed"));
            self.apply_to_rule(primary, Event::Tick)?;
        }
        Ok(())
    }
}
