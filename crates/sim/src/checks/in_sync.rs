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
        let gone = self.nodes[node].lead().map(|lead| lead.rule.gone()).unwrap_or_default();
        // Who comes beside all others takes nothing away; nor does a record that says no more than
        // that the one before is in effect.
        let stay = set.members.is_superset(&before.members);
        // A log may have been lost since the set before was written; and once that is in effect,
        // none of those before it is.
        let rule = self.nodes[node].lead().map(|lead| &lead.rule);
        let is_in_effect = rule.and_then(|rule| rule.in_sync_set()).is_some_and(|it| it.order() == before.order());
        let alone = InSyncSet { before: Vec::new(), ..(*before).clone() };
        let follows = [&gone, &Default::default()].into_iter().any(|gone| {
            before.may_be_followed_by(&set.members, gone)
                || is_in_effect && alone.may_be_followed_by(&set.members, gone)
        });
        if !stay && !follows || set.order() <= before.order() {
            return Property::InSync.violated(format!("node {node} writes {set:?} after {before:?}"));
        }
        Ok(())
    }
}
