//! Whether copies are what they should be: alike, and what a serial execution gives.

use std::fmt;

use crate::{
    node::{Done, Node},
    shape::Shape,
    store::{Store, mark, mix},
};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A node has another state of a partition than the model, or than another node.
    Copy { partition: usize, node: usize },
    /// A transaction has read something that it cannot have read.
    Read { id: u64 },
    /// A client was told of a transaction that is not kept.
    Lost { id: u64 },
    /// There is no memory for the model.
    Memory,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy { partition, node } => write!(f, "node {node} has another state of partition {partition}"),
            Self::Read { id } => write!(f, "transaction {id:x} has read what was never there at once"),
            Self::Lost { id } => write!(f, "transaction {id:x} is lost, and its client was told"),
            Self::Memory => f.write_str("there is no memory for another copy of all partitions"),
        }
    }
}

/// Whether all nodes that are there have the same of each partition.
pub(crate) fn compare(nodes: &[Node]) -> Result<(), Wrong> {
    for partition in 0..nodes.first().map_or(0, |node| node.core.shape.nodes) {
        let mut hosts = nodes.iter().filter(|node| node.core.shape.copy_at(partition, node.core.me).is_some());
        let first = hosts.next().map(|node| node.core.store.hash(partition));
        let other = hosts.find(|node| Some(node.core.store.hash(partition)) != first);
        if let Some(node) = other {
            return Err(Wrong::Copy { partition, node: node.core.me });
        }
    }
    Ok(())
}

/// What has happened: by node, and up to which number its transactions are kept if it is gone.
pub(crate) type NodeHistory<'h> = (&'h [Done], Option<u64>);

/// Executes again, one after another, what the nodes remember, and compares what was read and what
/// is there.
pub(crate) fn verify(nodes: &[Node], histories: &[NodeHistory<'_>]) -> Result<(), Wrong> {
    let Some(shape) = nodes.first().map(|node| node.core.shape) else { return Ok(()) };
    let mut all: Vec<&Done> = Vec::new();
    for (done, kept) in histories {
        for it in *done {
            let is_kept = kept.is_none_or(|kept| it.number.is_some_and(|number| number <= kept));
            let reads_only = it.input.is_read_only();
            if is_kept {
                all.push(it);
            } else if it.is_acknowledged && !reads_only {
                return Err(Wrong::Lost { id: it.input.id });
            }
        }
    }
    all.sort_by_key(|done| done.sequence);
    // A node has a copy of each partition if there are as many copies as nodes.
    let whole = Shape { copies: shape.nodes, ..shape };
    let model = Model(Store::new(whole, 0).map_err(|_| Wrong::Memory)?);
    for done in all {
        if model.execute(done) != done.digest {
            return Err(Wrong::Read { id: done.input.id });
        }
    }
    for node in nodes {
        let wrong = node.partitions().find(|partition| node.core.store.hash(*partition) != model.0.hash(*partition));
        if let Some(partition) = wrong {
            return Err(Wrong::Copy { partition, node: node.core.me });
        }
    }
    Ok(())
}

/// All partitions on one node.
struct Model(Store);

impl Model {
    fn execute(&self, done: &Done) -> u64 {
        done.input.operations.iter().fold(0u64, |digest, operation| {
            let partition = operation.partition.into();
            let Some(slot) = self.0.find(partition, operation.key) else { return mix(digest) };
            let read = mark(self.0.read(partition, slot), operation.key);
            if operation.is_write {
                let mut value = self.0.column(partition, slot, operation.column);
                crate::store::modify(&mut value, done.input.seed, operation.key);
                self.0.set_column(partition, slot, operation.column, &value);
            }
            digest.wrapping_add(read)
        })
    }
}
