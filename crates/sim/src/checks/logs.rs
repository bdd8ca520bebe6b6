use freshet_cluster::term::TermEntry;

use super::{Property, Violation};
use crate::{log::Block, world::World};

impl World {
    /// Node `node` has put `block` into its log, which has this digest now.
    pub(crate) fn check_block(&mut self, node: usize, block: &Block, digest: u64) -> Result<(), Violation> {
        let entries = self.nodes[node].disk.terms.history.entries();
        let of = entries.iter().find(|lead| (lead.term, lead.node) == (block.term, block.owner));
        let name = (block.term, block.owner, of.map_or(0, |lead| lead.nonce), block.start);
        let known = *self.checks.names.entry(name).or_insert(digest);
        if known != digest {
            return Property::Logs.violated(format!(
                "node {node} has another block at {} of node {}'s term {}, or before it, than others",
                block.start, block.owner, block.term
            ));
        }
        Ok(())
    }

    /// Every block that was replaced, and every block behind it, has to be what it is elsewhere.
    pub(crate) fn check_log(&mut self, node: usize, from: u64) -> Result<(), Violation> {
        let log = &self.nodes[node].disk.log;
        let blocks = log.blocks()[log.count(from)..].to_vec();
        for block in blocks {
            let digest = self.nodes[node].disk.log.digest(block.end()).expect("it is in the log");
            self.check_block(node, &block, digest)?;
        }
        Ok(())
    }

    /// Nodes `one` and `other` find that they have one term twice. One that has lost its disk may
    /// have begun a term again, which others refuse: then it is for the operator to choose, and the
    /// run ends.
    pub(crate) fn check_begun_twice(&mut self, one: usize, other: usize) -> Result<(), Violation> {
        let [here, there] = [one, other].map(|node| self.nodes[node].disk.terms.history.entries());
        let lost = |lead: &TermEntry| self.lost_disks.iter().any(|lost| lost.node == lead.node);
        self.undecided = here.iter().any(|mine| lost(mine) && there.iter().any(|other| mine.is_begun_twice(other)));
        if self.undecided {
            return Ok(());
        }
        Property::Logs.violated(format!("nodes {one} and {other} have one term twice"))
    }

    /// Node `node` has entered the terms of its primary: the end of its log is of these.
    pub(crate) fn check_terms(&mut self, node: usize) -> Result<(), Violation> {
        let disk = &self.nodes[node].disk;
        let Some(last) = disk.log.blocks().last() else { return Ok(()) };
        let entries = disk.terms.history.entries();
        let of = entries.iter().rev().find(|lead| lead.start.0 <= last.start);
        if of.is_none_or(|lead| (lead.term, lead.node) != (last.term, last.owner)) {
            return Property::Logs.violated(format!(
                "the log of node {node} ends with a block of node {}'s term {}, at {}, and its terms are {entries:?}",
                last.owner.0, last.term, last.start
            ));
        }
        Ok(())
    }
}
