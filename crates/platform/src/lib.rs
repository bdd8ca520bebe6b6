//! The platform of the Active-Memory paper (section 6.1.3): four schemes of replication on one
//! storage, one workload and one fabric.
//!
//! Partitions are striped over nodes: each node has the first copy of one and further copies of
//! others ([`Shape`]). Transactions read rows and change columns of them, in one partition or in
//! several ([`Workload`]). Nodes are driven by threads of this process, and have no memory in
//! common but what they offer one another over shared memory of `freshet-fabric`, as if they were
//! processes.
//!
//! | module | is |
//! |---|---|
//! | `store`, `shape`, `input` | rows and indexes, which node has what, what clients ask for |
//! | `link` | lists of one-sided writes and messages between two nodes |
//! | `node`, `clock` | a node: it never waits; where its processor time is |
//! | `locking` | two-phase locking with NO_WAIT and two-phase commit, for the next two |
//! | `active_memory` | the coordinator writes undo entries, rows and commit marks into others' memory |
//! | `shipping` | log shipping: backups replay records of the log |
//! | `hstore` | H-Store: partitions run one transaction after another, and so do their backups |
//! | `calvin` | Calvin: sequencers, and locks granted in one order everywhere |
//! | `recover` | what becomes of a coordinator's transactions when it is gone |
//! | `model` | compares copies with each other, and with a serial execution |
//! | `run` | a cluster for a time, and what it has measured |
//!
//! It is for measuring: nothing here is on a disk, and only Active-Memory survives the loss of a
//! node.
#![forbid(unsafe_code)]

mod active_memory;
mod calvin;
mod clock;
mod hstore;
mod input;
mod link;
mod locking;
mod model;
mod node;
mod recover;
mod run;
mod shape;
mod shipping;
mod store;
#[cfg(test)]
mod tests;
mod wire;

use std::io;

use freshet_fabric::{OpenError, ReceiveError, SendError};
use freshet_mirror::{Damaged, RingFull};
use freshet_workloads::zipf::WrongTheta;

pub use self::{
    clock::Role,
    input::{OPERATIONS, Spread, Workload},
    run::{Config, Found, Recovery, Scheme, Time, run},
    shape::Shape,
};

/// The platform cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// It cannot be made like this.
    #[error("{0}")]
    Config(String),
    /// The skew is not possible.
    #[error(transparent)]
    Theta(#[from] WrongTheta),
    /// The system refuses memory or threads.
    #[error("the system refuses what nodes need: {0}")]
    System(#[from] io::Error),
    /// Two nodes cannot meet.
    #[error("two nodes cannot be connected: {0}")]
    Connect(String),
    /// Two nodes cannot map each other's memory.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A node cannot reach another one.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A node has lost another one.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// A message means nothing.
    #[error("node {from} has sent a message that means nothing")]
    Malformed {
        /// Who has sent it.
        from: usize,
    },
    /// A copy is not what it should be.
    #[error("node {node} has read something else than the node whose transactions it executes again")]
    Diverged {
        /// Which node.
        node: usize,
    },
    /// There are more transactions than undo entries.
    #[error(transparent)]
    Ring(#[from] RingFull),
    /// What a coordinator has left is not what it should be.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// It takes too long until nothing is under way.
    #[error("nodes do not come to rest")]
    Restless,
    /// A thread has panicked.
    #[error("a thread of the platform has panicked")]
    Panicked,
}
