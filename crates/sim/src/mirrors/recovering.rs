//! Mirrors whose primary was given up (Active-Memory, section 5.2).

use std::collections::{BTreeMap, BTreeSet};

use freshet_base::Lsn;
use freshet_cluster::mirror::{Keep, Recovering, Rule, Step};
use freshet_mirror::{Damaged, MARK, Plan, footprint, plan};

use super::{What, World, id_of, memory::moved, working::Then};
use crate::{
    checks::{Property, Violation},
    scenario::Broken,
};

/// The mirrors of a primary that was given up come to an end.
pub(crate) struct Round {
    /// Those that have not, and those that have.
    under_way: BTreeSet<usize>,
    done: BTreeMap<usize, Lsn>,
    /// One of them has died since.
    died: bool,
}

impl World {
    /// The primary is given up, whether it lives or not: its mirrors recover, and the one that is
    /// ahead succeeds it.
    pub(super) fn start_round(&mut self) {
        if self.manager.round.is_some() || self.manager.taking.is_some() {
            return;
        }
        let under_way: BTreeSet<usize> = self.intact().filter(|node| self.nodes[*node].up).collect();
        if under_way.is_empty() {
            return;
        }
        self.manager.primary = None;
        for node in &under_way {
            let others = under_way.iter().filter(|other| *other != node).map(|other| id_of(*other));
            self.nodes[*node].recovering = Some(Recovering::new(self.rule, others));
            self.recover_soon(*node);
        }
        self.note(|| format!("nodes {under_way:?} recover"));
        self.manager.round = Some(Round { under_way, done: BTreeMap::new(), died: false });
    }

    pub(super) fn recover_soon(&mut self, node: usize) {
        let pause = self.dice.between(10, 1500);
        self.later(pause, node, |node, life| What::Recover { node, life });
    }

    /// A mirror of a round has died: the others do not wait for it.
    pub(super) fn participant_dies(&mut self, node: usize) {
        let Some(round) = &mut self.manager.round else { return };
        if !round.under_way.remove(&node) && round.done.remove(&node).is_none() {
            return;
        }
        round.died = true;
        let others: Vec<usize> = round.under_way.iter().copied().collect();
        if others.is_empty() && round.done.is_empty() {
            // The next one begins when one of them is back.
            self.manager.round = None;
            return;
        }
        for other in others {
            if let Some(recovering) = &mut self.nodes[other].recovering {
                recovering.gone(id_of(node));
            }
            self.recover_soon(other);
        }
        // It may have been the last that was waited for.
        self.after(1, What::Succession);
    }

    /// No primary writes into the memory of `node` any more.
    pub(super) fn revoke(&mut self, node: usize) {
        for id in 0..self.links.len() {
            if self.links[id].to != node || self.links[id].revoked {
                continue;
            }
            self.links[id].revoked = true;
            if !self.links[id].open {
                continue;
            }
            if self.cards && self.scenario.broken != Broken::MirrorNotMoved {
                // The card has heard of it.
                self.close(id);
                let pause = self.dice.between(50, 10_000);
                self.after(pause, What::Lost(id));
            } else {
                // It is being written in this moment.
                self.links[id].posted.tear(&mut self.dice);
            }
        }
        let state = &mut self.nodes[node];
        state.link = None;
        state.session += 1;
        if self.scenario.broken != Broken::MirrorNotMoved {
            state.memory = moved(&state.memory);
        }
    }

    /// The next step of a mirror's recovery.
    pub(super) fn recover(&mut self, node: usize) -> Result<(), Violation> {
        if self.nodes[node].work.is_some() {
            return Ok(());
        }
        let Some(recovering) = &mut self.nodes[node].recovering else { return Ok(()) };
        match recovering.next() {
            Step::Revoke => {
                recovering.revoked();
                self.revoke(node);
            }
            Step::Look => {
                let found = footprint(&self.nodes[node].memory).map_err(damaged)?;
                let recovering = self.nodes[node].recovering.as_mut().expect("it was there");
                recovering.looked(found.clone());
                for to in 0..self.nodes.len() {
                    if to != node && self.nodes[to].recovering.is_some() {
                        let (pause, life) = (self.dice.between(10, 2000), self.nodes[to].life);
                        self.after(pause, What::Footprint { node: to, life, from: node, footprint: found.clone() });
                    }
                }
            }
            // It continues when something is heard.
            Step::Exchange => return Ok(()),
            Step::Recover(keep) => return self.undo(node, keep),
            Step::Done(end) => {
                self.nodes[node].recovering = None;
                self.is_recovered(node, end)?;
                if self.rule == Rule::Whole && !self.mirror_state(node).is_whole() {
                    return Property::Mirrors.violated(format!("node {node} is a member, and has no vote"));
                }
                if end < self.acknowledged {
                    return Property::Acknowledged.violated(format!(
                        "node {node} is a member and holds what is below {end}, and {} was acknowledged",
                        self.acknowledged
                    ));
                }
                if let Some(round) = &mut self.manager.round
                    && round.under_way.remove(&node)
                {
                    round.done.insert(node, end);
                }
                return self.succession();
            }
        }
        self.recover_soon(node);
        Ok(())
    }

    pub(super) fn planned(&mut self, node: usize, keep: Keep) -> Result<Plan, Damaged> {
        let planned = plan(&self.nodes[node].memory, keep)?;
        self.report.undone += planned.found().undone as u64;
        self.report.kept += (planned.found().under_way - planned.found().undone) as u64;
        Ok(planned)
    }

    /// Begins to write what a recovery writes.
    fn undo(&mut self, node: usize, keep: Keep) -> Result<(), Violation> {
        let planned = self.planned(node, keep).map_err(damaged)?;
        self.note(|| format!("node {node} recovers: {:?}", planned.found()));
        let broken = self.scenario.broken == Broken::MarkNotTakenBack;
        let writes = planned.writes().filter(|(to, _)| !broken || (to.region, to.offset) != (0, MARK));
        let writes: Vec<_> = writes.map(|(to, bytes)| (to, bytes.to_vec())).collect();
        self.write(node, &writes, Then::Undone(planned.found().end));
        Ok(())
    }

    /// When all have come to an end, the one that is ahead leads.
    pub(super) fn succession(&mut self) -> Result<(), Violation> {
        let Some(round) = self.manager.round.take_if(|round| round.under_way.is_empty()) else { return Ok(()) };
        let ends: BTreeSet<Lsn> = round.done.values().copied().collect();
        let Some(end) = ends.last().copied() else { return Ok(()) };
        if self.rule == Rule::Marked && ends.len() > 1 && !round.died {
            return Property::Mirrors.violated(format!("mirrors do not agree: {:?}", round.done));
        }
        let level: Vec<usize> = round.done.iter().filter(|(_, at)| **at == end).map(|(node, _)| *node).collect();
        let node = level[self.dice.below(level.len() as u64) as usize];
        self.succeed(node, end, level.into_iter().filter(|other| *other != node).collect())
    }
}

pub(super) fn damaged(why: Damaged) -> Violation {
    Violation { property: Property::Mirrors, what: why.to_string() }
}
