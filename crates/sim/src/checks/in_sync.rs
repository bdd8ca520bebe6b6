use freshet_cluster::in_sync::InSyncSet;

use super::{Property, Violation};
use crate::world::World;

impl World {
    /// The primary `node` writes `set` into its log: it follows the set before it, as module
    /// `in_sync` demands.
    pub(crate) fn check_set(&mut self, node: usize, set: &InSyncSet) -> Result<(), Violation> {
        let before = self.nodes[node].disk.log.blocks().iter().rev().find_map(|block| block.set.clone());
        let Some(before) = before.filter(|before| self.scenario.strong() && before.term == set.term) else {
            return Ok(());
        };
        if !before.may_be_followed_by(&set.members) || set.order() <= before.order() {
            return Property::InSync.violated(format!("node {node} writes {set:?} after {before:?}"));
        }
        Ok(())
    }
}
