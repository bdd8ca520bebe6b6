//! Which nodes there are in the cluster, and how they are.

use freshet_replication::members::Members;

use super::{Composition, Node};

impl Node {
    /// Which nodes there are, as the primary knows it, or this node itself if that does not answer.
    /// Blocks for a few seconds at most.
    ///
    /// # Errors
    /// When this node neither leads nor follows.
    pub fn members(&self) -> Result<Members, &'static str> {
        type Asks = Box<dyn FnOnce() -> Members + Send>;
        let under_way = "a failover is under way on this node: ask again, or ask another node";
        let asks: Asks = match &*self.unless_taking_over().ok_or(under_way)? {
            Composition::Primary(lead) => Box::new(lead.shipping.members()),
            Composition::Standby(following) => Box::new(following.standby.members()),
            Composition::Mirror(mirrored) => Box::new(mirrored.mirror.members()),
            Composition::Failed | Composition::Stopped => {
                return Err("this node neither leads nor follows: ask another node");
            }
        };
        Ok(asks())
    }
}
