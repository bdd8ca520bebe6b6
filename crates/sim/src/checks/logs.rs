use super::{Property, Violation};
use crate::{log::Block, world::World};

impl World {
    /// Node `node` has put `block` into its log, which has this digest now.
    pub(crate) fn check_block(&mut self, node: usize, block: &Block, digest: u64) -> Result<(), Violation> {
        let name = (block.term, block.owner, block.start);
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

    /// Node `node` has entered the terms of its primary: the end of its log is of these.
    pub(crate) fn check_terms(&mut self, node: usize) -> Result<(), Violation> {
        let disk = &self.nodes[node].disk;
        let Some(last) = disk.log.blocks().last() else { return Ok(()) };
        let reigns = disk.terms.history.reigns();
        let of = reigns.iter().rev().find(|reign| reign.start.0 <= last.start);
        if of.is_none_or(|reign| (reign.term, reign.node) != (last.term, last.owner)) {
            return Property::Logs.violated(format!(
                "the log of node {node} ends with a block of node {}'s term {}, at {}, and its terms are {reigns:?}",
                last.owner.0, last.term, last.start
            ));
        }
        Ok(())
    }
}
