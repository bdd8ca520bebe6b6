//! What is said of the whole cluster, or to it: which nodes there are, and maintenance.

use std::{sync::Arc, time::Duration};

use freshet_base::NodeId;

use freshet_replication::{
    maintenance::{LONGEST, Order, Ordered},
    members::Members,
    whole_cluster::WholeCluster,
};

use super::{Composition, Node};

const UNDER_WAY: &str = "a failover is under way on this node: ask again, or ask another node";
const NEITHER: &str = "this node neither leads nor follows: ask another node";

impl Node {
    /// Which nodes there are, as the primary knows it, or this node itself if that does not answer.
    /// Blocks for a few seconds at most.
    ///
    /// # Errors
    /// When this node neither leads nor follows.
    pub fn members(&self) -> Result<Members, String> {
        Ok(self.whole_cluster()?.members())
    }

    /// Orders maintenance for the whole cluster: no node takes over by itself for this long. For no
    /// time at all, it ends. Blocks for a few seconds at most.
    ///
    /// # Errors
    /// When this node neither leads nor follows, and when that is too long.
    pub fn order_maintenance(&self, length: Duration) -> Result<Ordered, String> {
        if length > LONGEST {
            return Err(format!("maintenance lasts for {} hours at most", LONGEST.as_secs() / 3600));
        }
        Ok(self.whole_cluster()?.order_maintenance(length))
    }

    /// Orders this node, or the node `who` (its id, or the address where others reach it), to start
    /// again or to stop. Says which that is, when the order is taken. Blocks for a few seconds at
    /// most.
    ///
    /// # Errors
    /// Why no node has taken it.
    pub fn order(&self, who: Option<&str>, order: Order) -> Result<NodeId, String> {
        match who {
            Some(who) => self.whole_cluster()?.order(who, order).map_err(|cause| cause.to_string()),
            None => {
                self.terms.maintained().give(order);
                Ok(self.id)
            }
        }
    }

    /// What an operator wants of its process.
    pub fn ordered(&self) -> Option<Order> {
        self.terms.maintained().given()
    }

    fn whole_cluster(&self) -> Result<Arc<dyn WholeCluster>, String> {
        match &*self.unless_taking_over().ok_or(UNDER_WAY)? {
            Composition::Primary(lead) => Ok(lead.shipping.whole_cluster()),
            Composition::Standby(following) => Ok(following.standby.whole_cluster()),
            Composition::Mirror(mirrored) => Ok(mirrored.mirror.whole_cluster()),
            Composition::Failed | Composition::Stopped => Err(NEITHER.to_owned()),
        }
    }
}
