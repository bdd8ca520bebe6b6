//! What is said of the whole cluster, or to it: which nodes there are, and maintenance.

use std::{sync::Arc, time::Duration};

use freshet_base::NodeId;

use freshet_replication::{
    maintenance::{LONGEST, Ordered},
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

    /// Has this node start again, or the node `who`: its id, or the address where others reach it.
    /// Says which that is, when the order is taken. Blocks for a few seconds at most.
    ///
    /// # Errors
    /// Why no node has taken it.
    pub fn restart(&self, who: Option<&str>) -> Result<NodeId, String> {
        match who {
            Some(who) => self.whole_cluster()?.restart(who).map_err(|cause| cause.to_string()),
            None => {
                self.terms.maintained().order_restart();
                Ok(self.id)
            }
        }
    }

    /// Whether it is to start again, since an operator wants that.
    pub fn is_restart_ordered(&self) -> bool {
        self.terms.maintained().is_restart_ordered()
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
