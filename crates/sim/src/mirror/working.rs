//! What a node writes into its own memory, a few writes at a time: its process may end in between.

use freshet_base::{Lsn, Term};
use freshet_cluster::{entering::Entered, handshake::Welcome, mirror::MirrorState, recording::Recorded};
use freshet_fabric::Place;
use freshet_mirror::{Keep, Recovered, plan};

use super::{memory::damaged, posted::Posted};
use crate::{
    checks::Violation,
    entering::Enters,
    log::Block,
    net::ConnectionId,
    world::{Own, World},
};

/// Writes under way, and what follows.
pub(super) struct Work {
    pub posted: Posted,
    then: Then,
}

/// What follows.
pub(super) enum Then {
    /// A process that has just begun has recovered the memory up to there.
    Found(Lsn),
    /// The memory is recovered up to there.
    Recovered(Lsn),
    /// It was cut, and ends there.
    Cut(Box<Enters>, Lsn),
    /// And what was undone is not found again.
    Settled(Box<Enters>, Lsn),
    /// A feed can begin.
    FeedBegun(ConnectionId, Box<Welcome>, Entered),
    /// A record of a checkpoint is there.
    Filled,
    /// All are, and a superblock says so.
    Seeded,
    /// A log of this term can be taken in, from here on.
    TakingBegun(Term, Lsn, Vec<Block>),
    /// The undo ring is empty once more.
    Cleared,
    /// A batch is there.
    Taken,
    /// What was taken in is recovered up to there.
    Fetched(Lsn),
}

impl World {
    /// Writes all this, and then the next.
    pub(super) fn write(
        &mut self,
        node: usize,
        list: impl IntoIterator<Item = (Place, impl Into<Vec<u8>>)>,
        then: Then,
    ) {
        let mut posted = Posted::new(self.mirror(node).memory.clone());
        posted.post(list.into_iter(), Vec::new());
        let mirror = self.mirror(node);
        mirror.session += 1;
        mirror.work = Some(Work { posted, then });
        self.work_soon(node);
    }

    /// Writes what brings the memory to the end of a batch, and then what follows from there.
    pub(super) fn mend(
        &mut self,
        node: usize,
        keep: Keep,
        then: impl FnOnce(Lsn) -> Then,
    ) -> Result<Recovered, Violation> {
        let planned = plan(&self.mirror(node).memory, keep).map_err(damaged)?;
        let found = planned.found();
        self.write(node, planned.writes(), then(found.end));
        Ok(found)
    }

    fn work_soon(&mut self, node: usize) {
        let pause = self.dice.between(1, 40);
        self.later(node, pause, Own::Work);
    }

    /// Some of it lands.
    pub(crate) fn work(&mut self, node: usize) -> Result<(), Violation> {
        for _ in 0..self.dice.between(1, 12) {
            let Some(work) = self.nodes[node].mirror.as_mut().and_then(|mirror| mirror.work.as_mut()) else {
                return Ok(());
            };
            if work.posted.land().is_none() {
                break;
            }
            // Then nothing is left of it.
            self.landed(node);
        }
        let Some(mirror) = self.nodes[node].mirror.as_mut() else { return Ok(()) };
        match mirror.work.take_if(|work| work.posted.is_empty()) {
            Some(work) => self.worked(node, work.then),
            None if mirror.work.is_some() => {
                self.work_soon(node);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn worked(&mut self, node: usize, then: Then) -> Result<(), Violation> {
        match then {
            Then::Found(end) => self.found(node, end),
            Then::Recovered(end) => self.recovered(node, end),
            Then::Cut(enters, end) => self.settle_cut(node, enters, end),
            Then::Settled(enters, end) => self.memory_was_cut(node, enters, end),
            Then::FeedBegun(id, welcome, entered) => self.feed_begun(node, id, &welcome, entered),
            Then::Filled => self.fill(node),
            Then::Seeded => self.seeded(node),
            Then::TakingBegun(term, at, blocks) => self.taking_begun(node, term, at, blocks),
            Then::Cleared => self.cleared(node),
            Then::Taken => self.taken(node),
            Then::Fetched(end) => self.mirror_fetched(node, end),
        }
    }

    /// What an earlier process has left ends there.
    fn found(&mut self, node: usize, end: Lsn) -> Result<(), Violation> {
        self.is_recovered_to(node, end)?;
        let recorder = self.nodes[node].recorder.clone();
        let mirror = self.mirror(node);
        let noted = mirror.noted.expect("it has a memory that counts");
        // What the process that ended knew is forgotten already.
        let state = MirrorState::clone(&mirror.state).found(end, noted).owing(mirror.owes);
        mirror.state = Recorded::new(state, &recorder);
        self.mirror_next(node)
    }

    fn recovered(&mut self, node: usize, end: Lsn) -> Result<(), Violation> {
        self.is_recovered_to(node, end)?;
        self.mirror(node).state.recovered(end);
        self.mirror_next(node)
    }
}
