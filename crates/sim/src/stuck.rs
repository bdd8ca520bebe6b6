//! Primaries whose disks are slow or full, or whose logs have failed: drives
//! [`freshet_cluster::stuck`].

use std::time::Duration;

use freshet_base::{Lsn, Safety};
use freshet_cluster::{
    handshake::Refusal,
    stuck::{Seen, StuckConfig},
};

use crate::{
    checks::Violation,
    faults::Crash,
    scenario::Scenario,
    world::{Own, World},
};

/// As much shorter than in a node as other times are.
pub(crate) const STUCK: StuckConfig = StuckConfig {
    patience: Duration::from_millis(20),
    window: Duration::from_millis(50),
    cycle: Duration::from_millis(200),
};
/// How often a primary looks whose disk is bad, in microseconds.
const LOOK: u64 = 3000;

impl World {
    /// The disk of `node` is full for a while.
    pub(crate) fn fill_disk(&mut self, node: usize) {
        let now = self.now.0;
        self.nodes[node].disk.full.get_or_insert(now);
        self.later(node, 1, Own::LookWhetherStuck);
    }

    /// A sync of `node` has failed, so that its log takes nothing more before it is started again:
    /// that of a standby at once, that of a primary by another that leads, or a person.
    pub(crate) fn log_fails(&mut self, node: usize) {
        self.nodes[node].disk.dropped = true;
        self.report.failed_syncs += 1;
        if !self.scenario.automatic || self.nodes[node].lead().is_none() {
            return self.crash_of(node, Crash::Process);
        }
        self.nodes[node].disk.failed = true;
        let until = self.dice.between(1000, 200_000);
        self.later(node, until, Own::EndsWithoutLog);
        self.later(node, 1, Own::LookWhetherStuck);
    }

    /// The log of `node` works again, if it had failed, in another process. Where two others are
    /// enough, it stays as it is after all faults: they have to do without it.
    pub(crate) fn replace_failed(&mut self, node: usize) {
        if self.nodes[node].disk.failed && !(self.calm && self.do_without(node)) {
            self.crash_of(node, Crash::Process);
        }
    }

    /// Whether the two others are a cluster.
    fn do_without(&self, node: usize) -> bool {
        let Scenario { mirrors, witness, register, removes, levels, maintenance, .. } = self.scenario;
        let plain = mirrors == 0 && !(witness || register || removes || levels || maintenance);
        // None of them has lost what it was named for.
        let all_are_named = self.nodes[node].disk.terms.set.as_ref().is_some_and(|set| {
            self.nodes.len() == 3 && self.nodes.iter().all(|node| set.members.contains(&node.holder()))
        });
        plain && self.scenario.safety == Safety::Quorum(2) && self.scenario.synchronous == 2 && all_are_named
    }

    /// Whether it is not to be reckoned with any more.
    pub(crate) fn is_gone(&self, node: usize) -> bool {
        self.is_removed(node) || self.calm && self.nodes[node].disk.failed
    }

    /// It looks as long as there is a reason to.
    pub(crate) fn look_whether_stuck(&mut self, node: usize) -> Result<(), Violation> {
        let (now, world) = (self.clock(node), self.now.0);
        let state = &mut self.nodes[node];
        let lacking = state.disk.full.map(|since| Duration::from_micros(world - since));
        let (failed, durable) = (state.disk.failed, Lsn(state.disk.synced));
        let seen = Seen { failed, lacking, filled: Lsn(state.disk.log.end()), durable };
        let bad = failed || lacking.is_some() || state.disk.slowness > 1;
        let Some(lead) = state.lead_mut().filter(|lead| lead.rule.fenced().is_none()) else { return Ok(()) };
        let changes = lead.stuck.look(&seen, now);
        let stuck = lead.stuck.is_stuck();
        if changes && stuck {
            self.note(|| format!("node {node} is stuck"));
            self.report.stuck += 1;
            let fed = self.nodes[node].host.as_ref().map(|host| host.feeds().map(|(id, _)| id).collect::<Vec<_>>());
            fed.into_iter().flatten().for_each(|id| self.lose(id));
        } else if changes {
            self.announce(node);
        }
        if bad || stuck {
            self.later(node, LOOK, Own::LookWhetherStuck);
        }
        Ok(())
    }

    /// Why a primary that is stuck feeds no node.
    pub(crate) fn refuses_stuck(&self, node: usize) -> Option<Refusal> {
        let state = &self.nodes[node];
        state.lead().filter(|lead| lead.stuck.is_stuck())?;
        Some(Refusal::NotPrimary { node: state.id, primary: None })
    }
}
