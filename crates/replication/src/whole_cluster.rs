//! What any node says of its whole cluster, or does for it, whatever its role.

use std::time::Duration;

use crate::{maintenance::Ordered, members::Members};

/// A node that leads or follows. It asks others, for a time that is bounded: nothing is to be
/// locked in the meantime.
pub trait WholeCluster: Send + Sync {
    /// Which nodes there are, and how they are.
    fn members(&self) -> Members;

    /// Orders maintenance, for no time at all to end it: all other nodes hear of it.
    fn order_maintenance(&self, length: Duration) -> Ordered;
}
