//! What nodes show, beside one another.

use std::time::Duration;

use freshet::Failure;

use super::cluster::Cluster;

impl Cluster<'_> {
    /// Whether all nodes show the same records, by hash: what differs.
    pub(super) fn compare(&self, primary: usize, patience: Duration) -> Result<Option<String>, Failure> {
        let hash = |node: usize, at| self.client(node)?.hash(at, patience);
        let (at, ours, records) = hash(primary, None)?;
        for node in (0..self.names().len()).filter(|node| *node != primary) {
            let (found, theirs, count) = hash(node, Some(at))?;
            if (theirs, count) != (ours, records) {
                let (name, other) = (&self.names()[primary], &self.names()[node]);
                return Ok(Some(format!(
                    "states differ: {name} at {at} hashes to {ours:016x} over {records} records, {other} at {found} to \
                     {theirs:016x} over {count}"
                )));
            }
        }
        Ok(None)
    }
}
