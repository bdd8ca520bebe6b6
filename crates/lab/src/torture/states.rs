//! What nodes show, beside one another.

use std::{
    thread,
    time::{Duration, Instant},
};

use freshet::{Failure, interruption::Interruption};

use super::{QUIET, cluster::Cluster};

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

    /// Blocks until all nodes are in sync, for [`QUIET`] at most. Returns which one leads, or why
    /// they are not.
    pub(super) fn wait_until_whole(&self, interruption: &Interruption) -> Result<Result<usize, String>, Failure> {
        let deadline = Instant::now() + QUIET;
        loop {
            interruption.check()?;
            let whole = self.is_whole();
            if whole.is_ok() || Instant::now() > deadline {
                let said = |why| {
                    format!("not all nodes are in sync within {} s: {why}:\n{}", QUIET.as_secs(), self.statuses())
                };
                return Ok(whole.map_err(said));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
