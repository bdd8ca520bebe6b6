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
}
