//! What lies on which node: the striped masters of section 4.1.

/// The nodes of a platform and what lies where. Each node has the first copy of one partition, and
/// the other copies of it lie on the nodes that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many nodes there are, and as many partitions.
    pub nodes: usize,
    /// How many copies of a partition there are: the replication factor.
    pub copies: usize,
    /// How many records a partition has.
    pub records: u32,
}

impl Shape {
    /// The node that has this copy of a partition.
    pub(crate) fn node_of(&self, partition: usize, copy: usize) -> usize {
        (partition + copy) % self.nodes
    }

    /// Which copy of a partition a node has; none unless it has one.
    pub(crate) fn copy_at(&self, partition: usize, node: usize) -> Option<usize> {
        let copy = (node + self.nodes - partition) % self.nodes;
        (copy < self.copies).then_some(copy)
    }

    /// The nodes that have copies of a partition, the first copy first.
    pub(crate) fn hosts(&self, partition: usize) -> impl Iterator<Item = usize> + use<> {
        let shape = *self;
        (0..shape.copies).map(move |copy| shape.node_of(partition, copy))
    }
}
