use super::{Property, Violation};
use crate::world::World;

impl World {
    /// The readers of standby `node` see everything up to `upto`: each record as it is there, by
    /// each index. Then older versions may be given up.
    pub(crate) fn check_content(&mut self, node: usize, upto: u64) -> Result<(), Violation> {
        if !self.has_content(node) || !self.nodes[node].content.composed {
            return Ok(());
        }
        let content = &self.nodes[node].content;
        if self.scenario.strong() && upto <= self.checks.promised.end() {
            if let Some((key, own, other)) = content.tables.differs(&self.checks.tables, upto) {
                return Property::Content.violated(format!(
                    "standby {node} shows {upto}, and has {own:?} of record {key} instead of {other:?}"
                ));
            }
            if let Some((index, key)) = content.tables.missing_entry(upto) {
                return Property::Content
                    .violated(format!("standby {node} shows {upto}, and index {index} lacks record {key}"));
            }
        }
        self.reclaim(node, upto);
        Ok(())
    }
}
