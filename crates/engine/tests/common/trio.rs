//! Clusters of three under quorum(2), without more of their own.

use std::sync::Arc;

use freshet_engine::{Node, NodeConfig, Safety, node::Failover};
use tempfile::TempDir;

use super::{config, filled, start};

/// A node of such a cluster.
pub fn of_three(directory: &TempDir, failover: Failover) -> NodeConfig {
    NodeConfig { safety: Safety::Quorum(2), failover, ..config(Some(directory.path())) }
}

/// One that joins the node at this address.
pub fn joining(primary: &str, directory: &TempDir, failover: Failover) -> Arc<Node> {
    start(NodeConfig { join: Some(primary.to_owned()), ..of_three(directory, failover) })
}

/// All three; the first one leads, and has committed something that all show.
pub fn trio(directories: &[TempDir], failover: [Failover; 3]) -> [Arc<Node>; 3] {
    let primary = start(of_three(&directories[0], failover[0]));
    let standbys = [1, 2].map(|n| joining(primary.address(), &directories[n], failover[n]));
    filled(primary, standbys)
}
