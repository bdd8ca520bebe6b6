//! The level of this node's cluster, and how an operator changes it
//! ([`freshet_replication::primary`]).

use freshet_base::Safety;
use freshet_replication::primary::ChangeLevelError as Failed;

use super::{Node, as_primary::OfPrimary};

/// Why the level was not changed.
pub type ChangeLevelError = OfPrimary<Failed>;

impl Node {
    /// From its record on, commits of this primary and of those that succeed it keep to `level`.
    /// Says which level there was before. Blocks until that is on record, ten seconds at most.
    ///
    /// # Errors
    /// [`ChangeLevelError`]; if it is refused nothing has changed.
    pub fn change_level(&self, level: Safety) -> Result<Safety, ChangeLevelError> {
        Ok(self.shipping().map_err(ChangeLevelError::NotPrimary)?.change_level(level)?)
    }

    /// What commits promise, as far as this node knows: as the primary has it on record, or as this
    /// node is configured where no record is known.
    pub fn level(&self) -> Safety {
        match self.shipping() {
            Ok(shipping) => shipping.level(),
            Err(_) => self.terms.get().set.map_or(self.config.safety, |set| set.level),
        }
    }
}
