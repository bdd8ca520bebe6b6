//! Nodes of two releases in one cluster, and an operator who exchanges their programs, and raises
//! the format level when all of them are of the later one ([`freshet_base::versions`]).
//!
//! Programs go to and fro until the level was ordered: from then on production refuses a node of
//! the earlier release before it says anything, so there is nothing of it to simulate.

use freshet_base::{Safety, Term, versions::Level};
use freshet_cluster::{commit_rule::Event, in_sync::Noted};

use crate::{
    checks::{Property, Violation},
    dice::{Dice, mix},
    scenario::{Broken, Scenario},
    world::World,
};

/// Names the dice of upgrades.
const UPGRADES: u64 = 13;
/// What the later of the two releases knows.
const LATER: Level = Level(Level::NEWEST.0 + 1);

/// The dice of the operator who upgrades; none in two thirds of all runs, and under 1-safe.
pub(crate) fn dice(scenario: &Scenario, seed: u64) -> Option<Dice> {
    let mut dice = Dice(mix(seed ^ mix(UPGRADES)));
    (scenario.levels && scenario.safety != Safety::OneSafe && dice.one_in(3)).then_some(dice)
}

/// How far an upgrade is.
#[derive(Default)]
pub(crate) struct Upgrade {
    /// Whether the level was ordered to rise, whatever became of that.
    ordered: bool,
    /// The highest that has taken effect, and the term in which it did.
    in_effect: (Term, Level),
}

impl World {
    /// In some runs the operator exchanges the program of a node now and then, and finishes the
    /// upgrade when all nodes have the later one.
    pub(crate) fn may_upgrade(&mut self, leading: &[usize]) -> Result<(), Violation> {
        self.check_format()?;
        let count = self.nodes.len();
        let ([primary], false, Some(dice)) = (leading, self.calm, &mut self.operators[3]) else { return Ok(()) };
        let (primary, node, rolls, back) =
            (*primary, dice.below(count as u64) as usize, dice.one_in(2), dice.one_in(4));
        if rolls && !self.checks.upgrade.ordered {
            self.nodes[node].knows = if back { Level::NEWEST } else { LATER };
        }
        let all_know = || self.nodes.iter().all(|node| node.knows >= LATER);
        if all_know() || self.scenario.broken == Broken::RaisedTooEarly {
            let now = self.clock(primary);
            let Some(lead) = self.nodes[primary].lead_mut() else { return Ok(()) };
            let _ = lead.rule.note(&Noted::Format(LATER), now);
            self.checks.upgrade.ordered = true;
            self.report.raised += 1;
            self.note(|| format!("the format level is to be {LATER}"));
            self.apply_to_rule(primary, Event::Tick)?;
        }
        Ok(())
    }

    /// No node has noted a level that its release does not know, and none that took effect sinks,
    /// but under 1-safe.
    fn check_format(&mut self) -> Result<(), Violation> {
        for (number, node) in self.nodes.iter().enumerate() {
            let noted = node.disk.terms.set.as_ref().map(|set| set.roster.format);
            if let Some(level) = noted.filter(|level| *level > node.knows) {
                let knows = node.knows;
                return Property::Format
                    .violated(format!("node {number}, which knows level {knows}, has noted level {level}"));
            }
            let Some(lead) = node.lead() else { continue };
            let Some((level, _)) = lead.rule.format() else { continue };
            // A failover may lose it then, as it may lose any commit.
            if lead.rule.level() == Safety::OneSafe {
                self.checks.upgrade.in_effect = Default::default();
                continue;
            }
            let (since, before) = self.checks.upgrade.in_effect;
            // One of an earlier term may not know yet that it is over.
            if level < before && lead.term > since && !self.scenario.force {
                return Property::Format.violated(format!(
                    "level {before} took effect in term {since}, and node {number} leads in term {} under {level}",
                    lead.term
                ));
            }
            if level > before {
                self.checks.upgrade.in_effect = (lead.term, level);
            }
        }
        Ok(())
    }
}
