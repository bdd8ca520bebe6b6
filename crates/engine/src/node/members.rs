//! What is said of the whole cluster, or to it: which nodes there are, and maintenance.

use std::time::Duration;

use freshet_replication::{
    maintenance::{LONGEST, Ordered},
    members::Members,
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
        type Asks = Box<dyn FnOnce() -> Members + Send>;
        let asks: Asks = match &*self.unless_taking_over().ok_or(UNDER_WAY)? {
            Composition::Primary(lead) => Box::new(lead.shipping.members()),
            Composition::Standby(following) => Box::new(following.standby.members()),
            Composition::Mirror(mirrored) => Box::new(mirrored.mirror.members()),
            Composition::Failed | Composition::Stopped => return Err(NEITHER.to_owned()),
        };
        Ok(asks())
    }

    /// Orders maintenance for the whole cluster: no node takes over by itself for this long. For no
    /// time at all, it ends. Blocks for a few seconds at most.
    ///
    /// # Errors
    /// When this node neither leads nor follows, and when that is too long.
    pub fn order_maintenance(&self, length: Duration) -> Result<Ordered, String> {
        type Orders = Box<dyn FnOnce(Duration) -> Ordered + Send>;
        if length > LONGEST {
            return Err(format!("maintenance lasts for {} hours at most", LONGEST.as_secs() / 3600));
        }
        let orders: Orders = match &*self.unless_taking_over().ok_or(UNDER_WAY)? {
            Composition::Primary(lead) => Box::new(lead.shipping.order_maintenance()),
            Composition::Standby(following) => Box::new(following.standby.order_maintenance()),
            Composition::Mirror(mirrored) => Box::new(mirrored.mirror.order_maintenance()),
            Composition::Failed | Composition::Stopped => return Err(NEITHER.to_owned()),
        };
        Ok(orders(length))
    }
}
