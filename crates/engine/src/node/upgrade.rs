//! How an operator finishes an upgrade of this node's cluster ([`freshet_replication::primary`]).

use freshet_base::versions::Level;
use freshet_replication::primary::FinishUpgradeError as Failed;

use super::{Node, as_primary::OfPrimary};

/// Why an upgrade was not finished.
pub type FinishUpgradeError = OfPrimary<Failed>;

impl Node {
    /// The format level of this primary's cluster becomes that of this release; says which one it
    /// was before, and is. Blocks until that is on record, some fifteen seconds at most.
    ///
    /// # Errors
    /// [`FinishUpgradeError`], which names the nodes that cannot follow; then nothing has changed.
    pub fn finish_upgrade(&self) -> Result<(Level, Level), FinishUpgradeError> {
        let before = self.shipping().map_err(FinishUpgradeError::NotPrimary)?.finish_upgrade()?;
        Ok((before, before.max(Level::NEWEST)))
    }
}
