//! What becomes of the transactions of a coordinator that is gone (Active-Memory, sections 5.2 and
//! 5.3). The nodes that are left are told so by a cluster manager, here the caller, which also
//! carries their footprints from one to another.
//!
//! Each ends the connection (step 1), looks what the coordinator has left in its undo rings (steps
//! 2 to 4), and undoes what is not kept (step 6). Then the next copy of each partition counts that
//! the node had the first copy of.
//!
//! A transaction concerns some of the coordinator's rings, so these have their own parts of one
//! sequence of transactions. The coordinator marks one when it has completed everywhere, and all
//! before it. So one is kept if it is ready wherever it has left something, and so are all before
//! it: that is one number for all rings ([`decide`]).

use freshet_base::Lsn;
use freshet_mirror::{Footprint, Keep, Status, footprint, recover};

use crate::{Failed, node::Node};

/// Up to which of a coordinator's transactions all are kept, by what its rings have on the nodes
/// that are there. The others are undone everywhere.
fn decide<'f>(all: impl IntoIterator<Item = &'f Footprint>) -> Lsn {
    let (mut ready, mut doubtful) = (Lsn(0), Lsn::MAX);
    for footprint in all {
        // What is marked anywhere has completed everywhere, with all before it.
        ready = ready.max(footprint.ready());
        let first = footprint.batches.iter().find(|(_, status)| *status != Status::CommitReady);
        doubtful = first.map_or(doubtful, |(number, _)| doubtful.min(*number));
    }
    ready.min(Lsn(doubtful.0.saturating_sub(1)))
}

/// Where the last of those transactions ends in a ring, if more follow there.
fn kept_of(footprint: &Footprint, decided: Lsn) -> Lsn {
    let ends = footprint.batches.iter().map(|(end, _)| *end);
    let begins = [footprint.begin].into_iter().chain(ends.clone());
    begins.zip(ends).find(|(_, end)| *end > decided).map_or(decided, |(begin, _)| begin)
}

impl Node {
    /// Step 1: a node is gone; nothing of it lands here any more, and nothing goes there.
    pub fn exclude(&mut self, dead: usize) -> Result<(), Failed> {
        let Self { core, scheme } = self;
        if let Some(mut link) = core.links[dead].take() {
            link.revoke();
        }
        core.is_alive[dead] = false;
        scheme.exclude(core, dead)
    }

    /// Steps 2 to 4: what it has left, for each partition that this node has.
    pub fn footprints(&self, dead: usize) -> Result<Vec<Footprint>, Failed> {
        let memory = |partition| self.core.logs[dead].mirror(partition, self.core.store.memory());
        self.partitions().map(|partition| Ok(footprint(&memory(partition))?)).collect()
    }

    /// Step 6: undoes what is not kept. Returns how many parts of transactions that were.
    pub fn undo(&mut self, dead: usize, decided: Lsn) -> Result<usize, Failed> {
        let mut undone = 0;
        for partition in self.partitions() {
            let memory = self.core.logs[dead].mirror(partition, self.core.store.memory());
            let kept = kept_of(&footprint(&memory)?, decided);
            undone += recover(&memory, Keep::Marked(kept))?.undone;
        }
        self.scheme.forget(dead);
        Ok(undone)
    }

    /// The partitions that this node has copies of.
    pub fn partitions(&self) -> impl Iterator<Item = usize> + use<> {
        let (shape, me) = (self.core.shape, self.core.me);
        (0..shape.nodes).filter(move |partition| shape.copy_at(*partition, me).is_some())
    }
}

/// What a recovery has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    /// Transactions of the coordinator up to this number are kept.
    pub kept: Lsn,
    /// Parts of transactions that were undone, on all nodes together.
    pub undone: usize,
}

/// Steps 5 and 6 on all nodes that are left. They have ended the connection with the one that is
/// gone, and what they coordinated themselves.
pub(crate) fn decide_and_undo(nodes: &mut [Node], dead: usize) -> Result<Decided, Failed> {
    let footprints = nodes.iter().map(|node| node.footprints(dead)).collect::<Result<Vec<_>, _>>()?;
    let kept = decide(footprints.iter().flatten());
    let undone = nodes.iter_mut().map(|node| node.undo(dead, kept)).sum::<Result<usize, _>>()?;
    Ok(Decided { kept, undone })
}

#[cfg(test)]
mod tests {
    use freshet_mirror::Status::{CommitReady, Corrupt, Logged};

    use super::*;

    fn ring(begin: u64, parts: &[(u64, Status)]) -> Footprint {
        Footprint { begin: Lsn(begin), batches: parts.iter().map(|(end, status)| (Lsn(*end), *status)).collect() }
    }

    /// What is kept of all, and of each ring.
    fn kept(rings: &[Footprint]) -> (u64, Vec<u64>) {
        let decided = decide(rings);
        (decided.0, rings.iter().map(|ring| kept_of(ring, decided).0).collect())
    }

    #[test]
    fn what_is_ready_everywhere_is_kept_wherever_it_is() {
        let rings = [ring(0, &[(3, CommitReady), (7, CommitReady)]), ring(2, &[(5, CommitReady)]), ring(6, &[])];
        assert_eq!(kept(&rings), (7, vec![7, 7, 7]));
        assert_eq!(kept(&[ring(0, &[])]), (0, vec![0]));
        assert_eq!(kept(&[]), (0, vec![]));
    }

    /// The ninth transaction is not ready on one ring: it is undone, and so are those after it,
    /// also where they are ready.
    #[test]
    fn what_is_not_ready_somewhere_is_undone_with_all_that_follow() {
        for doubt in [Logged, Corrupt] {
            let rings = [
                ring(0, &[(3, CommitReady), (7, CommitReady), (12, CommitReady)]),
                ring(2, &[(5, CommitReady), (9, doubt), (10, Logged)]),
                ring(4, &[(11, CommitReady)]),
                ring(8, &[]),
            ];
            assert_eq!(kept(&rings), (8, vec![7, 5, 4, 8]));
        }
    }
}
