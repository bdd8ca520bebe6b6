//! Faults that last: a cable that flaps, and a link to one other node that is cut.

use std::time::{Duration, Instant};

use freshet_workloads::random::Random;

use super::{
    Stage,
    acks::{Acks, Found},
};
use crate::{
    Failure,
    throwaway::net::{Way, turn},
};

/// How long a link to one other node is cut.
const CUT: Duration = Duration::from_secs(5);

impl Stage<'_> {
    /// The cable of `node`, the primary, is cut in some way, and whole again, until the time is
    /// over. On the way the node that leads then is killed.
    pub(super) fn flap(&mut self, node: usize, acks: &mut Acks<'_>, random: &mut Random) -> Result<Found, Failure> {
        let begun = Instant::now();
        let lasts = Duration::from_secs(self.options.flap);
        let dies = begun + lasts.mul_f64(0.25 + random.below(500) as f64 / 1e3);
        let mut flapped = Flapped::new(begun, node);
        let mut is_whole = true;
        while begun.elapsed() < lasts {
            is_whole = !is_whole;
            if is_whole {
                self.nodes.heal()?;
            } else {
                let way = [Way::Both, Way::Out, Way::In][random.below(3) as usize];
                self.nodes.cut(node, None, way)?;
            }
            let until = Instant::now() + turn(random);
            if flapped.found.death.is_none() && dies <= until {
                self.interruption.sleep_until(dies)?;
                self.death(node, &mut flapped, acks)?;
                is_whole = true;
            } else {
                self.interruption.sleep_until(until)?;
            }
        }
        flapped.note(acks);
        Ok(flapped.found)
    }

    /// The primary dies while the cable of `node` flaps, and is started again after the next row.
    /// Until then the cable is as it is: but whole where the others may be too few without that
    /// node, and, before that, until all are in sync, where a primary leaves out who is not.
    fn death(&mut self, node: usize, flapped: &mut Flapped, acks: &mut Acks<'_>) -> Result<(), Failure> {
        if self.rehearsal.leaves_out() {
            self.nodes.heal()?;
            self.wait_until_whole()?;
        }
        flapped.note(acks);
        let dies = flapped.leads;
        if dies != node {
            self.nodes.heal()?;
        }
        self.nodes.kill(dies);
        let dead = Instant::now();
        let first = acks.first(dead, dies, None);
        flapped.found.death = Some(Found::after(dead, first).took);
        (flapped.since, flapped.leads) = first.map_or_else(|| (Instant::now(), dies), |ack| (ack.at, ack.node));
        self.nodes.heal()?;
        self.nodes.start_dead()
    }

    /// The link between the primary and one other node, or the witness, is cut for a while.
    pub(super) fn cut_peer(
        &mut self,
        primary: usize,
        acks: &mut Acks<'_>,
        random: &mut Random,
    ) -> Result<Found, Failure> {
        let all = self.nodes.size() + usize::from(self.rehearsal.witness);
        let peers: Vec<usize> = (0..all).filter(|node| *node != primary).collect();
        let peer = peers[random.below(peers.len() as u64) as usize];
        self.print(&format!("{} is cut from {}", self.nodes.name(primary), self.nodes.name(peer)));
        let begun = Instant::now();
        self.nodes.cut(primary, Some(peer), Way::Both)?;
        self.interruption.sleep_until(begun + CUT)?;
        let span = acks.span(begun, primary);
        // The role may move, though it need not.
        Ok(Found { took: span.took(), moves: Some(span.moves), death: None })
    }
}

/// What has come of a cable that flaps.
struct Flapped {
    found: Found,
    /// Since when it is not looked at yet, and which node led then.
    since: Instant,
    leads: usize,
}

impl Flapped {
    fn new(begun: Instant, leads: usize) -> Self {
        Self { found: Found { took: Some(Duration::ZERO), moves: Some(0), death: None }, since: begun, leads }
    }

    /// Looks at all that has come by now. Up to a death the role may move once, and once after it.
    fn note(&mut self, acks: &mut Acks<'_>) {
        let span = acks.span(self.since, self.leads);
        let Found { took, moves, .. } = &mut self.found;
        *took = took.zip(span.took()).map(|(earlier, later)| earlier.max(later));
        *moves = moves.map(|moves| moves + span.moves);
        (self.since, self.leads) = (Instant::now(), span.leads);
    }
}
