use super::{Property, Violation};
use crate::world::World;

impl World {
    /// What two primaries have acknowledged, now or ever, is the same as far as both have.
    pub(crate) fn check_one_primary(&mut self, node: usize, upto: u64) -> Result<(), Violation> {
        if !self.scenario.strong() {
            return Ok(());
        }
        let log = &self.nodes[node].disk.log;
        for (other, theirs) in self.nodes.iter().enumerate().filter(|(other, _)| *other != node) {
            let Some(lead) = theirs.lead() else { continue };
            let common = upto.min(lead.acknowledged);
            if theirs.disk.log.digest(common) != log.digest(common) {
                return Property::OnePrimary.violated(format!(
                    "node {node} acknowledges {upto}, and node {other} has acknowledged another log up to {}",
                    lead.acknowledged
                ));
            }
        }
        Ok(())
    }
}
