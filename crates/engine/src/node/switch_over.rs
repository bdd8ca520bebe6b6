//! Switch-over: this primary hands its role to a standby ([`freshet_replication::primary`]).

use std::sync::Arc;

use freshet_replication::primary::{Primary as Shipping, SwitchOverError as Failed, SwitchedOver, UnderWay};

use super::Node;

/// Why the role has not moved.
#[derive(Debug, thiserror::Error)]
pub enum SwitchOverError {
    /// Only a primary has a role to hand over.
    #[error("this node is not the primary{}: ask that one", at(.0))]
    NotPrimary(Option<String>),
    /// See there.
    #[error(transparent)]
    Failed(#[from] Failed),
}

pub(super) fn at(address: &Option<String>) -> String {
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

    /// Hands the role of this primary to the standby `to`, named by its id or by the address where
    /// other nodes reach it; to the one that is nearest where that is `None`. Nothing is lost and
    /// no outcome is open. Blocks until that node leads, or the role stays here: ten seconds for it
    /// to come near, half a second in which transactions wait that would begin.
    ///
    /// # Errors
    /// [`SwitchOverError`]; unless it says otherwise this node continues as before.
    pub fn switch_over(&self, to: Option<&str>) -> Result<SwitchedOver, SwitchOverError> {
        let shipping = self.shipping().map_err(SwitchOverError::NotPrimary)?;
        let core = self.database.core();
        let transactions = || {
            let (open, committing) = core.under_way();
            UnderWay { open, committing }
        };
        Ok(shipping.switch_over(to, &transactions)?)
    }
}
