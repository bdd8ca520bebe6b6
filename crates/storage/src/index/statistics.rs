//! How big an index is.

use super::{
    BTree,
    node::{INNER_BYTES, LEAF_BYTES, Node, Pointer},
};
use crate::reclaim::Guard;

/// Sizes of an index. While others write, they are approximate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pairs.
    pub entries: u64,
    /// Leaves.
    pub leaves: u64,
    /// Inner nodes.
    pub inners: u64,
    /// Memory of all nodes, in bytes, without what the allocator adds.
    pub bytes: u64,
    /// Levels, that of the leaves included.
    pub height: u32,
}

impl BTree {
    /// Counts everything; takes time in proportion to the number of leaves, and no latches.
    pub fn statistics(&self, guard: &Guard<'_>) -> Statistics {
        let mut statistics = Statistics::default();
        loop {
            let Some(version) = self.latch.read() else { unreachable!("a tree is never obsolete") };
            let root = self.root();
            if self.latch.is(version) {
                // SAFETY: validated, under a pin.
                statistics.height = unsafe { Node::at(root) }.header().level + 1;
                count(guard, root, &mut statistics);
                break;
            }
        }
        statistics.bytes = statistics.leaves * LEAF_BYTES as u64 + statistics.inners * INNER_BYTES as u64;
        statistics
    }
}

/// Adds what is below `pointer`, which was read from a node that was validated since.
#[expect(clippy::only_used_in_recursion, reason = "it proves the pin")]
fn count(guard: &Guard<'_>, pointer: Pointer, statistics: &mut Statistics) {
    // SAFETY: linked after the pin.
    let node = unsafe { Node::at(pointer) };
    let Some(version) = node.header().latch.read() else { return };
    match node {
        Node::Leaf(leaf) => {
            statistics.leaves += 1;
            statistics.entries += leaf.page.shape().count as u64;
        }
        Node::Inner(inner) => {
            let children = inner.children();
            if inner.header.latch.is(version) {
                statistics.inners += 1;
                for child in children {
                    count(guard, child, statistics);
                }
            } else if inner.header.latch.read().is_some() {
                count(guard, pointer, statistics);
            }
        }
    }
}
