//! What nodes show, beside one another.

#[cfg(debug_assertions)]
use std::sync::atomic::Ordering;
use std::{
    thread,
    time::{Duration, Instant},
};

use freshet::{Failure, interruption::Interruption};

use super::{QUIET, cluster::Cluster};
#[cfg(debug_assertions)]
use crate::processes::STATUS;
#[cfg(debug_assertions)]
use freshet_engine::{Break, StateAnswer, StateAsk};

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

    /// Damages something in a node's memory; what, if it was possible.
    #[cfg(debug_assertions)]
    pub(super) fn damage(&self, node: usize, what: Break, seed: u64) -> Result<Option<String>, Failure> {
        // Relaxed: as where it is read.
        self.damaged.store(true, Ordering::Relaxed);
        match self.client(node)?.state(StateAsk::Break { what, seed }, STATUS)? {
            StateAnswer::Broken(broken) => Ok(broken),
            other => Err(Failure::new(format!("unexpected answer: {other:?}"))),
        }
    }

    /// Has a node look through its memory; how much damage it has found since it started. It may
    /// have looked by itself before, and be about to begin again.
    #[cfg(debug_assertions)]
    pub(super) fn sweep(&self, node: usize, patience: Duration) -> Result<u64, Failure> {
        let deadline_ms = patience.as_millis() as u64;
        match self.client(node).and_then(|client| client.state(StateAsk::Sweep { deadline_ms }, patience)) {
            Ok(StateAnswer::Swept { damage, .. }) => Ok(damage),
            Ok(other) => Err(Failure::new(format!("unexpected answer: {other:?}"))),
            Err(_) if self.has_reported_doubt(node) => Ok(1),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Helps a standby in doubt to begin again, as an operator does where the node does not do so
    /// by itself; says whether it has, and what it had before is gone.
    #[cfg(debug_assertions)]
    pub(super) fn has_begun_again(&self, node: usize) -> bool {
        let Some(status) = self.status(node) else { return false };
        match status["role"].as_str() {
            // It keeps it until it is rehearsed.
            Some("mirror") => return status["whole"] == true,
            Some("standby") if status["doubt"].is_null() => return status["kept_aside"].is_null(),
            Some("standby") => {}
            _ => return false,
        }
        let leads_to = status["doubt_leads_to"].as_str();
        if leads_to.is_none_or(|leads_to| leads_to.starts_with("waits for an operator"))
            && let Ok(client) = self.client(node)
        {
            // It may be told to wait; it is said again.
            let _ = client.begin_again(false, STATUS);
        }
        false
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
