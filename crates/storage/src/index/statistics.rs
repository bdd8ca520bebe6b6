//! How big an index is.

use super::{
    BTree,
    node::{INNER_BYTES, LEAF_BYTES, Node, Pointer},
};
use crate::reclaim::Guard;

/// Sizes of an index. While others write, they are approximate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// How many pairs of a key and a record id it holds.
    pub entries: u64,
    /// How many leaves it has.
    pub leaves: u64,
    /// How many inner nodes it has.
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

/// Paths that are looked at for an estimate.
const PATHS: u64 = 64;

impl BTree {
    /// About how many pairs there are. Looks at a few leaves only: from the root downwards, one of
    /// the children at a time, and the numbers of children on the way multiplied tell how many
    /// leaves like this one there are.
    pub fn approximate_entries(&self, guard: &Guard<'_>) -> u64 {
        let (mut sum, mut paths, mut random) = (0.0, 0, 0x9E37_79B9_7F4A_7C15_u64);
        for _ in 0..4 * PATHS {
            if let Some(estimate) = path(guard, self.root(), &mut random) {
                (sum, paths) = (sum + estimate, paths + 1);
                if paths == PATHS {
                    break;
                }
            }
        }
        // Others change the tree as fast as we look at it.
        if paths == 0 { self.statistics(guard).entries } else { (sum / paths as f64).round() as u64 }
    }
}

/// One path downwards; none when a node on it has changed.
fn path(_guard: &Guard<'_>, mut pointer: Pointer, random: &mut u64) -> Option<f64> {
    let mut weight = 1.0;
    loop {
        // SAFETY: linked after the pin, as in `count`.
        let node = unsafe { Node::at(pointer) };
        let version = node.header().latch.read()?;
        match node {
            Node::Leaf(leaf) => return Some(weight * leaf.page.shape().count as f64),
            Node::Inner(inner) => {
                let children: Vec<Pointer> = inner.children().into_iter().collect();
                if !inner.header.latch.is(version) {
                    return None;
                }
                // Xorshift: any numbers will do, if they are not the same ones on each level.
                *random ^= *random << 13;
                *random ^= *random >> 7;
                *random ^= *random << 17;
                weight *= children.len() as f64;
                pointer = children[(*random % children.len() as u64) as usize];
            }
        }
    }
}

/// Adds what is below `pointer`, which was read from a node since validated.
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
