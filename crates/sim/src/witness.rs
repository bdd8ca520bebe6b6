//! The witness, if there is one: the last node. Drives [`freshet_cluster::witness`], and asks it
//! for a primary.

use freshet_base::{Lsn, Safety, Term};
use freshet_cluster::{
    Moment,
    commit_rule::Event,
    term::{Living, Refused},
    witness::{Ask, Granted, Witness},
};

use crate::{
    checks::Violation,
    net::{ConnectionId, Message},
    register::Asks,
    scenario::Broken,
    world::{CLUSTER, Own, World},
};

/// How often a primary asks, in microseconds.
const EVERY: u64 = 8000;

impl World {
    /// A witness starts: it follows nobody.
    pub(crate) fn witness_starts(&mut self, node: usize) {
        let restarts = self.scenario.broken == Broken::RestartedVoterGrants;
        let state = &mut self.nodes[node];
        let now = if restarts { Moment::default() } else { state.steady_clock(self.now) };
        state.witness = Some(Box::new(Witness::restarted(state.id, now)));
    }

    /// A primary asks its witness, now and again.
    pub(crate) fn ask_witness_again(&mut self, node: usize) -> Result<(), Violation> {
        if self.scenario.witness && self.nodes[node].leads() {
            self.ask_witness(node)?;
            self.later(node, EVERY, Own::AskWitness);
        }
        Ok(())
    }

    /// It does so on one connection, as long as that lasts.
    pub(crate) fn ask_witness(&mut self, node: usize) -> Result<(), Violation> {
        let (sent, lease, witness) = (self.clock(node), self.lease(), self.nodes.len() - 1);
        let state = &self.nodes[node];
        let Some(lead) = state.lead().filter(|_| self.scenario.witness) else { return Ok(()) };
        let (living, set) = (Living { term: lead.term, node: state.id }, state.disk.terms.set.clone());
        let asking = lead.witness;
        let name = self.nodes[witness].id;
        let removed = lead.rule.roster().is_some_and(|roster| roster.has_removed(name));
        if lead.stuck.is_stuck() || removed && lead.rule.witness_to_ask() != Some(name) {
            // Another node is to lead, or this one belongs to the cluster no more.
            let Some(id) = asking else { return Ok(()) };
            self.hang_up(id, node);
            return self.witness_is_lost(node, id);
        }
        let ask = Ask { cluster: CLUSTER, living, sent, lease, set };
        let message =
            if self.scenario.register { Message::Read { asks: Asks::Primary(ask) } } else { Message::Ask { ask } };
        if let Some(id) = asking {
            if self.net.connections[id].open {
                self.send(id, node, message);
                return Ok(());
            }
            self.witness_is_lost(node, id)?;
        }
        let id = self.connect(node, witness, message);
        if let Some(lead) = self.nodes[node].lead_mut() {
            lead.witness = Some(id);
        }
        Ok(())
    }

    /// The connection to the witness is over, if it is that one.
    pub(crate) fn witness_is_lost(&mut self, node: usize, id: ConnectionId) -> Result<(), Violation> {
        let standby = self.nodes[self.nodes.len() - 1].id;
        let lead = self.nodes[node].lead_mut();
        match lead.and_then(|lead| lead.witness.take_if(|asking| *asking == id)) {
            Some(_) => self.apply_to_rule(node, Event::Left { standby }),
            None => Ok(()),
        }
    }

    /// A primary asks the witness `node`.
    pub(crate) fn witness_asked(&mut self, node: usize, id: ConnectionId, mut ask: Ask) {
        let broken = self.scenario.broken;
        let state = &mut self.nodes[node];
        let now = state.steady_clock(self.now);
        let Some(witness) = &mut state.witness else { return };
        if broken == Broken::WitnessGrantsBoth {
            // As if it remembered no promise.
            state.disk.terms.fence = freshet_cluster::term::Fence::new(Term(0), None);
        }
        let named = ask.set.as_ref().map(freshet_cluster::in_sync::InSyncSet::name);
        if broken == Broken::WitnessNotesLate {
            ask.set = None;
        }
        let answer = match witness.asked(&mut state.disk.terms, &ask, now) {
            Ok(granted) if broken == Broken::WitnessNotesLate => {
                Message::Granted { granted: Granted { noted: named.or(granted.noted), ..granted } }
            }
            Ok(granted) => Message::Granted { granted },
            Err(Refused { highest, holder }) => Message::Refused { highest, holder },
        };
        self.send(id, node, answer);
    }

    /// The witness has answered the primary `node`.
    pub(crate) fn witness_answered(&mut self, node: usize, granted: Granted) -> Result<(), Violation> {
        let Granted { node: witness, incarnation, noted, sent: observed } = granted;
        if self.nodes[node].lead().is_none() {
            return Ok(());
        }
        if self.scenario.broken == Broken::WitnessCountsAsData {
            // As if it had the log, since it has noted what that records.
            let (standby, synchronous) = (witness, true);
            let persisted = Lsn(self.nodes[node].disk.synced);
            let known = self.nodes[node].lead().is_some_and(|it| it.rule.members().any(|(known, _)| known == witness));
            if !known {
                self.apply_to_rule(node, Event::Joined { standby, incarnation, persisted, synchronous })?;
            }
            return self.apply_to_rule(node, Event::Acked { standby, persisted, observed: Some(observed) });
        }
        self.apply_to_rule(node, Event::Witnessed { witness, incarnation, noted, observed })
    }

    /// Whether the witness votes, where the level of the primary `node` wants one.
    pub(crate) fn witness_votes(&self, node: usize) -> bool {
        let witness = self.nodes.len() - 1;
        let Some(rule) = self.nodes[node].lead().map(|lead| &lead.rule) else { return true };
        let Some(set) = rule.in_sync_set() else { return true };
        let data = set.members.iter().filter(|member| !member.witness).count();
        let wanted = match rule.wanted_level() {
            Safety::TwoSafe => true,
            Safety::Majority => data < 3,
            _ => false,
        };
        !self.scenario.witness
            || !wanted
            || self.is_removed(witness)
            || set.members.contains(&self.nodes[witness].holder())
    }
}
