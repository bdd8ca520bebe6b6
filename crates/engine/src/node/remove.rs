//! Remove: this primary takes a node out of its cluster ([`freshet_replication::primary`]).

use freshet_base::NodeId;
use freshet_replication::primary::{RemoveError as Failed, RotateError as NotRotated};

use super::{Node, as_primary::OfPrimary};

/// Why a node was not removed.
pub type RemoveError = OfPrimary<Failed>;

/// Why the authority was not replaced.
pub type RotateError = OfPrimary<NotRotated>;

impl Node {
    /// Gives the cluster of this primary another authority, and returns its generation. Blocks
    /// until that is on record, ten seconds at most.
    ///
    /// # Errors
    /// [`RotateError`]
    pub fn rotate(&self) -> Result<u64, RotateError> {
        Ok(self.shipping().map_err(RotateError::NotPrimary)?.rotate()?)
    }

    /// Takes the node `who`, its id or the address where others reach it, out of the cluster of
    /// this primary: no commit counts on it, and it may not come back with what it has. `gone`: it
    /// does not run, and never will again. Blocks until that is on record, ten seconds at most.
    ///
    /// # Errors
    /// [`RemoveError`]; unless it says otherwise nothing has changed.
    pub fn remove(&self, who: &str, gone: bool) -> Result<NodeId, RemoveError> {
        Ok(self.shipping().map_err(RemoveError::NotPrimary)?.remove(who, gone)?)
    }
}
