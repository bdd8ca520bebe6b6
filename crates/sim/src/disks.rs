//! Disks that are lost, and bits that rot: the node begins again with an empty disk, which the
//! operator gives it, or with a checkpoint of the primary's.
//!
//! Only nodes on which no commit may count lose their disks. Another one would begin again under
//! another name, and for the safety levels it is one of the failures that they allow or do not.

use freshet_base::Stamp;
use freshet_cluster::term::TermState;

use crate::{
    node::{Disk, Node},
    world::World,
};

impl World {
    /// Whether no commit counts on `node`, nor did on its present disk.
    fn is_spare(&self, node: usize) -> bool {
        let name = self.nodes[node].id;
        let counts = |other: &Node| {
            let mut sets = other.disk.log.blocks().iter().filter_map(|block| block.set.as_deref());
            other.disk.terms.may_wait_for(name)
                || other.disk.terms.fence.holder() == Some(name)
                || sets.any(|set| set.may_have(name))
        };
        let state = &self.nodes[node];
        !state.synchronous && state.reign().is_none() && !self.nodes.iter().any(counts)
    }

    /// The disk of `node` fails, at once or when it is next read.
    pub(crate) fn lose_disk(&mut self, node: usize) {
        self.nodes[node].disk.rotten = self.is_spare(node);
        if self.nodes[node].disk.rotten && self.dice.one_in(2) {
            self.crash(node);
        }
    }

    /// A node whose disk is of no use starts with another one: from a checkpoint of the primary's,
    /// if there is a primary that has one.
    pub(crate) fn replace_disk(&mut self, node: usize) {
        if !std::mem::take(&mut self.nodes[node].disk.rotten) || !self.is_spare(node) {
            return;
        }
        self.report.disks += 1;
        self.note(|| format!("node {node} begins with another disk"));
        let state = &self.nodes[node];
        let fresh = Node::new(node, state.synchronous, state.upstream, state.follows);
        let fence = state.disk.terms.fence;
        let mut disk = Disk { terms: TermState { fence, ..TermState::empty() }, ..fresh.disk };
        let primary = (0..self.nodes.len()).find(|other| self.nodes[*other].reigns() && self.dice.one_in(2));
        if let Some(primary) = primary {
            let theirs = &self.nodes[primary];
            let committed = theirs.reign().map_or(0, |reign| reign.acknowledged);
            let begins = self.dice.below(committed + 1);
            let log = &self.nodes[primary].disk.log;
            // It is written while others write, and installed when all of that is committed.
            let (start, end) = (log.transaction_end(begins), log.transaction_end(committed));
            for block in log.between(0, start) {
                disk.log.push(block.clone());
            }
            (disk.synced, disk.sure, disk.floor) = (start, start, end);
            disk.terms.adopt(crate::world::CLUSTER, theirs.disk.terms.history.cut(Stamp(end)));
        }
        self.nodes[node].disk = disk;
    }
}
