use super::{Property, Violation};
use crate::world::World;

impl World {
    /// The readers of standby `node` see everything up to `upto` from now on.
    pub(crate) fn check_view(&mut self, node: usize, upto: u64) -> Result<(), Violation> {
        let standby = &self.nodes[node];
        if upto > standby.disk.synced || upto > standby.follower.replayed().0 {
            return Property::Views.violated(format!(
                "standby {node} shows {upto}, and holds {}, replayed {}",
                standby.disk.synced,
                standby.follower.replayed()
            ));
        }
        if standby.disk.log.transaction_end(upto) != upto {
            return Property::Views.violated(format!("standby {node} shows a part of a transaction, up to {upto}"));
        }
        if self.scenario.strong() && upto > self.checks.promised.end() {
            self.promise(node, upto, Property::Views)?;
            // What nobody acknowledged, no failover may lose from here on.
            let seen = |violation: Violation| Violation {
                property: Property::Views,
                what: format!("standby {node} shows {upto}; {}", violation.what),
            };
            self.check_candidates().map_err(seen)?;
        } else {
            self.promise(node, upto, Property::Views)?;
        }
        self.check_content(node, upto)
    }

    /// Standby `node` has to cut its log at `cut_at`, below what its readers have seen.
    pub(crate) fn check_seen(&mut self, node: usize, cut_at: u64) -> Result<(), Violation> {
        if !self.scenario.strong() {
            return Ok(());
        }
        let visible = self.nodes[node].visible;
        Property::Views.violated(format!("standby {node} has shown {visible} and has to cut its log at {cut_at}"))
    }
}
