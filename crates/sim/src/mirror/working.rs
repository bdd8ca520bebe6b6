//! What a node writes into its own memory, a few writes at a time: its process may end in between.

use freshet_base::Lsn;
use freshet_cluster::{entering::Entering, handshake::Welcome, mirror::MirrorState, recording::Recorded};
use freshet_fabric::Place;

use super::posted::Posted;
use crate::{
    checks::Violation,
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
    /// It was cut for that sender, and ends there.
    Cut(ConnectionId, Box<(Welcome, Entering)>, Lsn),
    /// And what was undone is not found again.
    Settled(ConnectionId, Box<(Welcome, Entering)>, Lsn),
    /// A feed can begin.
    FeedBegun(ConnectionId, Box<(Welcome, Entering)>),
    /// A record of a checkpoint is there.
    Filled,
    /// All are, and a superblock says so.
    Seeded,
    /// It was cut for the log that is fetched, and ends there.
    FetchCut(Lsn),
    /// And what was undone is not found again.
    FetchSettled(Lsn),
    /// The log can be taken in, from here on.
    TakingBegun(Lsn),
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
        let mut posted = Posted::new(self.mirror(node).memory.clone());
        posted.post(list.iter().map(|(to, bytes)| (*to, &bytes[..])), Vec::new());
        let mirror = self.mirror(node);
        mirror.session += 1;
        mirror.work = Some(Work { posted, then });
        self.work_soon(node);
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
            Then::Cut(id, parts, end) => self.settle_cut(node, end, Then::Settled(id, parts, end)),
            Then::Settled(id, parts, end) => self.mirror_was_cut(node, id, *parts, end),
            Then::FeedBegun(id, parts) => self.feed_begun(node, id, *parts),
            Then::Filled => self.fill(node),
            Then::Seeded => self.seeded(node),
            Then::FetchCut(end) => self.settle_cut(node, end, Then::FetchSettled(end)),
            Then::FetchSettled(end) => self.cut_to_fetch(node, end),
            Then::TakingBegun(at) => self.taking_begun(node, at),
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
        let state = MirrorState::clone(&mirror.state).found(end, noted);
        mirror.state = Recorded::new(state, &recorder);
        self.mirror_next(node)
    }

    fn recovered(&mut self, node: usize, end: Lsn) -> Result<(), Violation> {
        self.is_recovered_to(node, end)?;
        self.mirror(node).state.recovered(end);
        self.mirror_next(node)
    }
}
