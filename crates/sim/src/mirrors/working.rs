//! What a node writes into its own memory, a few writes at a time: its process may end in between.

use freshet_base::Lsn;
use freshet_cluster::handshake::Welcome;
use freshet_fabric::Place;

use super::{What, World, posted::Posted};
use crate::checks::Violation;

/// Writes under way, and what follows.
pub(crate) struct Work {
    pub posted: Posted,
    then: Then,
}

/// What follows.
pub(crate) enum Then {
    /// In a round, the memory is recovered up to there.
    Undone(Lsn),
    /// The same before a node joins.
    Recovered(Lsn),
    /// It was cut, and ends there.
    Cut(Box<Welcome>, Lsn),
    /// A feed can begin.
    FeedBegun(Box<Welcome>),
    /// A record of a checkpoint is there.
    Filled,
    /// All are, and a superblock says so.
    Seeded,
    /// The log can be taken in, from here on.
    Begun(Lsn),
    /// The undo ring is empty once more.
    Cleared,
    /// A batch is there.
    Taken,
    /// What was taken in is recovered up to there.
    Fetched(Lsn),
}

impl World {
    /// Writes all this, and then the next.
    pub(super) fn write(&mut self, node: usize, list: &[(Place, Vec<u8>)], then: Then) {
        let mut posted = Posted::new(self.nodes[node].memory.clone());
        posted.post(list.iter().map(|(to, bytes)| (*to, &bytes[..])));
        let state = &mut self.nodes[node];
        state.session += 1;
        state.work = Some(Work { posted, then });
        self.work_soon(node);
    }

    fn work_soon(&mut self, node: usize) {
        let pause = self.dice.between(1, 40);
        self.later(pause, node, |node, life| What::Work { node, life });
    }

    /// Some of it lands.
    pub(super) fn work(&mut self, node: usize) -> Result<(), Violation> {
        for _ in 0..self.dice.between(1, 12) {
            let Some(work) = &mut self.nodes[node].work else { return Ok(()) };
            if work.posted.land().is_none() {
                break;
            }
            // Then nothing is left of it.
            self.landed(node)?;
        }
        match self.nodes[node].work.take_if(|work| work.posted.is_empty()) {
            Some(work) => self.worked(node, work.then),
            None => {
                self.work_soon(node);
                Ok(())
            }
        }
    }

    fn worked(&mut self, node: usize, then: Then) -> Result<(), Violation> {
        match then {
            Then::Undone(end) => {
                self.nodes[node].recovering.as_mut().expect("it recovers").recovered(end);
                self.recover_soon(node);
                Ok(())
            }
            Then::Recovered(end) => self.prepare(node, end),
            Then::Cut(welcome, end) => self.was_cut(node, *welcome, end),
            Then::FeedBegun(welcome) => self.offer(node, &welcome),
            Then::Filled => self.fill(node),
            Then::Seeded => self.seeded(node),
            Then::Begun(at) => self.begin_taking(node, at),
            Then::Cleared => self.cleared(node),
            Then::Taken => self.taken(node),
            Then::Fetched(end) => self.fetched(node, end),
        }
    }
}
