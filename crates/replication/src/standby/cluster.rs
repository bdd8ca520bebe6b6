//! What a standby says of the whole cluster, or to it.

use std::time::Duration;

use freshet_base::sync::Arc;

use super::Standby;
use crate::{
    maintenance::Ordered,
    members::{self, Members},
};

impl Standby {
    /// Which nodes there are, and how they are: to be asked when nothing is locked, since other
    /// nodes are asked. That takes a time that is bounded.
    pub fn members(&self) -> impl FnOnce() -> Members + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || members::of_cluster(&shared)
    }

    /// As [`Primary::order_maintenance`](crate::primary::Primary::order_maintenance).
    pub fn order_maintenance(&self) -> impl FnOnce(Duration) -> Ordered + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move |length| shared.order_maintenance(length)
    }
}
