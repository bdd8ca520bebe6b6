//! The operator changes what a commit promises, while it commits
//! ([`freshet_cluster::commit_rule::CommitRule::change_level`]).

use freshet_base::Safety;
use freshet_cluster::commit_rule::Event;

use crate::{
    checks::Violation,
    dice::{Dice, mix},
    scenario::Scenario,
    world::World,
};

/// Names the dice of levels.
const LEVELS: u64 = 12;

/// The dice of the operator who changes the level; none in two thirds of all runs.
pub(crate) fn dice(scenario: &Scenario, seed: u64) -> Option<Dice> {
    let mut dice = Dice(mix(seed ^ mix(LEVELS)));
    (scenario.levels && scenario.strong() && dice.one_in(3)).then_some(dice)
}

impl World {
    /// In some runs the operator changes the level now and then, whatever state the cluster is in.
    pub(crate) fn may_change_level(&mut self, leading: &[usize]) -> Result<(), Violation> {
        let ([primary], false, Some(dice)) = (leading, self.calm, &mut self.operators[2]) else { return Ok(()) };
        if !dice.one_in(6) {
            return Ok(());
        }
        let levels = [Safety::TwoSafe, Safety::Majority, Safety::VerySafe, Safety::Quorum(2)];
        let level = levels[dice.below(levels.len() as u64) as usize];
        let (primary, now) = (*primary, self.clock(*primary));
        let Some(lead) = self.nodes[primary].lead_mut() else { return Ok(()) };
        if lead.rule.change_level(level, now).is_ok() {
            self.report.levels += 1;
            self.note(|| format!("the level is to be {level}"));
            self.apply_to_rule(primary, Event::Tick)?;
        }
        Ok(())
    }
}
