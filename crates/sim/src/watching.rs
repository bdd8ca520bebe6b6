//! When nodes stand without being told to, and what a primary may answer without asking: drives
//! [`freshet_cluster::watch`] and [`freshet_cluster::lease`].

use freshet_base::Consent;
use freshet_cluster::{
    Moment,
    lease::Voter,
    promotion::{Standing, is_unattended},
    watch::{BEHIND_LOGS, Next, Watch, WatchConfig},
};

use crate::{
    checks::{Property, Violation},
    maintenance::Known,
    net::Along,
    node::WATCH,
    scenario::Broken,
    world::{Own, World},
};

impl World {
    /// A process begins to listen.
    pub(crate) fn begin_to_watch(&mut self, node: usize) {
        let now = self.clock(node);
        let state = &mut self.nodes[node];
        let steady = state.steady_clock(self.now);
        let behind = if state.mirror.is_some() { BEHIND_LOGS } else { 0 };
        state.watch = Watch::new(WatchConfig { priority: WATCH.priority - behind, ..WATCH }, now);
        state.voter = match self.scenario.broken {
            Broken::RestartedVoterGrants => Voter::restarted(Moment::default()),
            _ => Voter::restarted(steady),
        };
        state.looks = None;
        state.maintenance = Known::default();
        self.looks(node);
    }

    /// The primary has sent something, perhaps through a relay.
    pub(crate) fn primary_sent(&mut self, node: usize, along: Along) {
        let now = self.clock(node);
        let state = &mut self.nodes[node];
        state.watch.observe(now);
        state.voter.observe(along.sent);
        self.observe_maintenance(node, along.maintenance);
    }

    /// It looks soon.
    pub(crate) fn looks(&mut self, node: usize) {
        if self.scenario.automatic && !self.nodes[node].is_witness {
            self.looks_at(node, self.now.0 + 1);
        }
    }

    fn looks_at(&mut self, node: usize, at: u64) {
        let state = &mut self.nodes[node];
        if state.looks.is_none_or(|looks| looks > at) {
            state.looks = Some(at);
            self.later(node, at - self.now.0, Own::Look);
        }
    }

    /// It stands, if it takes its primary for lost.
    pub(crate) fn look(&mut self, node: usize) -> Result<(), Violation> {
        let now = self.clock(node);
        let state = &mut self.nodes[node];
        if state.looks.is_some_and(|looks| looks > self.now.0) {
            return Ok(());
        }
        state.looks = None;
        let follows = state.lead().is_none() && state.candidate.is_none() && !state.returns;
        if !self.scenario.automatic || !follows {
            return Ok(());
        }
        let held = self.maintained(node).map(|left| now.after(left));
        self.nodes[node].watch.hold(held.unwrap_or_default());
        let state = &mut self.nodes[node];
        match state.watch.next(now) {
            Next::Sleep(Moment(u64::MAX)) => Ok(()),
            Next::Sleep(until) => {
                let at = state.world_time(until.0).max(self.now.0 + 1);
                self.looks_at(node, at);
                Ok(())
            }
            Next::Stand => self.stands_by_itself(node),
        }
    }

    /// Whether an election is due that a former primary has to let pass.
    pub(crate) fn elects(&self, node: usize) -> bool {
        let (now, state) = (self.clock(node), &self.nodes[node]);
        let elects = self.scenario.automatic && !state.is_witness && state.watch.elects(now);
        elects && is_unattended(self.scenario.safety, state.disk.terms.set.as_ref()).is_ok()
    }

    fn stands_by_itself(&mut self, node: usize) -> Result<(), Violation> {
        self.check_maintenance(node)?;
        let state = &self.nodes[node];
        let is_ready =
            state.mirror.as_ref().is_none_or(|mirror| mirror.ready && !mirror.takes_over && !mirror.stands());
        if is_ready && !state.disk.terms.history.entries().is_empty() {
            self.report.stood += 1;
            self.stands(node, Consent::Nothing, Standing::Automatic)?;
        }
        // Something had to be waited for, or is in the way.
        let state = &self.nodes[node];
        let waits = state.mirror.as_ref().is_some_and(|mirror| mirror.stands());
        if state.up && state.candidate.is_none() && state.lead().is_none() && !waits {
            let (now, draw) = (self.clock(node), self.dice.below(1 << 20));
            self.nodes[node].watch.gave_up(now, draw);
            self.looks(node);
        }
        Ok(())
    }

    /// A primary that has a lease answers readers: it has what anybody was told of.
    pub(crate) fn check_reads(&mut self) -> Result<(), Violation> {
        if !self.scenario.strong() {
            return Ok(());
        }
        let end = self.checks.promised.end();
        for (node, state) in self.nodes.iter().enumerate() {
            let Some(lead) = state.lead().filter(|_| state.up && !state.memory.stopped) else { continue };
            let leased = lead.rule.lease_until() > state.clock(self.now) && lead.rule.admit().is_ok();
            if leased && !self.holds_promised(node, end) {
                return Property::Reads.violated(format!(
                    "node {node} answers readers in term {} with a log up to {}, and others were told of {end}",
                    lead.term,
                    state.disk.log.end()
                ));
            }
        }
        Ok(())
    }
}
