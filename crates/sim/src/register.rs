//! The register in the witness's place, if there is one: the last node keeps it, and those who ask
//! take its steps ([`freshet_cluster::register`]). A step may be lost before or after it is
//! written, or arrive once more later. Candidates do not knock here: what they would learn makes
//! failovers rarer, and no safer.

use freshet_base::ClusterId;
use freshet_cluster::{
    handshake::Refusal,
    maintenance::Notice,
    promotion::{Answer, Question, Testimony},
    register::Register,
    term::Refused,
    witness::{Ask, Consult, Granted, NoTestimony},
};

use crate::{
    checks::Violation,
    net::{ConnectionId, Message},
    scenario::Broken,
    world::World,
};

/// What is asked of a register.
#[derive(Clone, Debug)]
pub(crate) enum Asks {
    Primary(Ask),
    /// With what the candidate knows of maintenance, if it stands by itself.
    Candidate(Question, Option<Notice>),
}

/// What counts when the step is written.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    Granted(Granted),
    Testimony(Testimony),
}

/// What a register has beside what is its node's disk.
#[derive(Debug)]
pub(crate) struct Kept {
    revision: u64,
    value: Register,
}

impl Default for Kept {
    fn default() -> Self {
        Self { revision: 1, value: Register::made(ClusterId(0), 0, 0) }
    }
}

impl World {
    /// Whether this node is the register, which answers nothing else.
    pub(crate) fn is_register(&self, node: usize) -> bool {
        self.scenario.register && node + 1 == self.nodes.len()
    }

    pub(crate) fn register_read(&mut self, node: usize, id: ConnectionId, asks: Asks) {
        let state = self.nodes[node].disk.terms.clone();
        let (revision, value) = (self.register.revision, Register { state, ..self.register.value.clone() });
        self.send(id, node, Message::Value { asks, revision, value: Box::new(value) });
    }

    pub(crate) fn register_written(
        &mut self,
        node: usize,
        id: ConnectionId,
        asks: Asks,
        revision: u64,
        (value, then): (Register, Then),
    ) {
        let is_last = revision == self.register.revision || self.scenario.broken == Broken::RegisterNotCompared;
        if is_last {
            self.nodes[node].disk.terms = value.state.clone();
            let kept = &mut self.register;
            (kept.revision, kept.value) = (kept.revision + 1, value);
        }
        if self.dice.one_in(40) {
            // What has become of it, the asker does not learn.
            return self.lose(id);
        }
        self.send(id, node, Message::Swapped { asks, then: is_last.then_some(then) });
    }

    /// The value has come to `node`, which has asked for it.
    pub(crate) fn takes_step(
        &mut self,
        node: usize,
        id: ConnectionId,
        asks: Asks,
        revision: u64,
        value: &Register,
    ) -> Result<(), Violation> {
        let (me, name) = (self.nodes[self.nodes.len() - 1].id, self.nodes[node].id);
        let now = self.nodes[node].steady_clock(self.now);
        let (stands, question) = match &asks {
            Asks::Primary(_) => (None, None),
            Asks::Candidate(question, stands) => (*stands, Some(*question)),
        };
        match value.check_asker(me, name, stands) {
            Err(Refusal::Maintenance { notice, .. }) => return self.answered(node, id, Answer::Maintenance(notice)),
            Err(_) => {
                self.hang_up(id, node);
                self.silent(node, id)?;
                return self.witness_is_lost(node, id);
            }
            Ok(()) => {}
        }
        let step = match (&asks, question) {
            (Asks::Primary(ask), _) => {
                self.observe_maintenance(node, value.maintenance);
                let step = value.asked(me, ask, ("", self.maintenance(node)), now);
                step.map(|(next, granted)| (next, Then::Granted(granted))).map_err(NoTestimony::Refused)
            }
            (_, Some(Question { term, binding, gives_way, .. })) => {
                let asks = Consult { node: name, term, binding, gives_way };
                value.consulted(me, &asks, false, now).map(|(next, testimony)| (next, Then::Testimony(testimony)))
            }
            (Asks::Candidate(..), None) => unreachable!("a candidate has a question"),
        };
        let (next, then) = match step {
            Ok(step) => step,
            Err(NoTestimony::Refused(Refused { highest, holder })) => return self.refused(node, id, highest, holder),
            Err(NoTestimony::Led(living)) => return self.answered(node, id, Answer::LedBy(living)),
        };
        let Some(value) = value.change(next) else { return self.step_taken(node, id, asks, Some(then)) };
        if self.scenario.broken == Broken::RegisterNotAwaited {
            self.step_taken(node, id, asks.clone(), Some(then.clone()))?;
        }
        self.send(id, node, Message::Swap { asks, revision, step: Box::new((value, then)) });
        Ok(())
    }

    /// A step is taken, or has to be taken again, since another node has written.
    pub(crate) fn step_taken(
        &mut self,
        node: usize,
        id: ConnectionId,
        asks: Asks,
        then: Option<Then>,
    ) -> Result<(), Violation> {
        match then {
            None => self.send(id, node, Message::Read { asks }),
            Some(Then::Granted(granted)) => self.witness_answered(node, granted)?,
            Some(Then::Testimony(mut testimony)) => {
                if self.scenario.broken == Broken::RegisterGrantsNothing {
                    testimony.lease = std::time::Duration::ZERO;
                }
                self.answered(node, id, Answer::NoVote(testimony))?;
            }
        }
        Ok(())
    }
}
