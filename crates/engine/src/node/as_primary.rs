//! What only a primary does, and why another node does not.

use std::sync::Arc;

use freshet_replication::primary::Primary as Shipping;

use super::Node;

/// Why what only a primary does was not done.
#[derive(Debug, thiserror::Error)]
pub enum OfPrimary<E: std::error::Error + 'static> {
    /// This node is none; where the primary is, as far as it knows.
    #[error("this node is not the primary{}: ask that one", at(.0))]
    NotPrimary(Option<String>),
    /// See there.
    #[error(transparent)]
    Failed(#[from] E),
}

fn at(address: &Option<String>) -> String {
    address.as_ref().map_or_else(String::new, |at| format!(" (which is at {at})"))
}

impl Node {
    /// What feeds the standbys of this primary.
    ///
    /// # Errors
    /// When it is none: where the primary is, as far as is known.
    pub(super) fn shipping(&self) -> Result<Arc<Shipping>, Option<String>> {
        let shipping = self.composition().lead().map(|lead| Arc::clone(&lead.shipping));
        shipping.ok_or_else(|| self.follows().map(|(_, address)| address))
    }
}
