//! What any node says of its whole cluster, or does for it, whatever its role.

use std::time::Duration;

use freshet_base::NodeId;

use crate::{
    endpoint::{CallError, call},
    maintenance::{Caller, Order, Ordered},
    members::{Members, is_named},
    wire::{Hello, Reply},
};

/// A node has this long to take an order.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why a node was not ordered to start again, or to stop.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// No node of the cluster has this name.
    #[error("no node of the cluster that can be reached has the id or address {0}: see `freshet members`")]
    Unknown(String),
    /// It does not take the order.
    #[error("the node did not take the order: {0}")]
    Call(#[from] CallError),
}

/// A node that leads or follows. It asks others, for a time that is bounded: nothing is to be
/// locked in the meantime.
pub trait WholeCluster: Send + Sync {
    /// Which nodes there are, and how they are.
    fn members(&self) -> Members;

    /// Orders maintenance, for no time at all to end it: all other nodes hear of it.
    fn order_maintenance(&self, length: Duration) -> Ordered;

    /// As whom this node asks others.
    fn caller(&self) -> Caller<'_>;

    /// Orders the node `who` to do this: its id, or the address where others reach it. Says which
    /// that is.
    ///
    /// # Errors
    /// [`OrderError`]
    fn order(&self, who: &str, order: Order) -> Result<NodeId, OrderError> {
        let nodes = self.members().nodes;
        let node = nodes.iter().find(|it| !it.address.is_empty() && is_named(who, it.node, &it.address));
        let node = node.ok_or_else(|| OrderError::Unknown(who.chars().take(256).collect()))?;
        let Caller { credentials, hello, term } = self.caller();
        let hello = Hello { purpose: order.purpose(), ..hello };
        match call(credentials, &node.address, &hello, term, PATIENCE)? {
            (Reply::Noted, _) => Ok(node.node),
            _ => Err(CallError::Unexpected { address: node.address.clone() }.into()),
        }
    }
}
