//! What sessions ask of a primary's standbys beside the level of its node.

use std::time::Instant;

use freshet_base::{
    Lsn,
    sync::{Arc, Ordering},
};
use freshet_cluster::wanted::Wanted;

use super::Shared;

/// Waits for the standbys of a primary.
pub struct StandbyWaits(pub(super) Arc<Shared>);

impl StandbyWaits {
    /// Blocks until everything below `until` is where `wanted` says, or until `deadline` has come;
    /// says whether it is.
    pub fn wait(&self, wanted: Wanted, until: Lsn, deadline: Instant) -> bool {
        let Shared { feeds, commit, config, .. } = &*self.0;
        let holds = || wanted.holds(until, config.rule.standbys, &feeds.shows(commit.places()));
        feeds.changes.wait(deadline, holds)
    }
}

/// A commit waits until standbys show it ([`super::Primary::want_visible`]).
pub struct VisibleWanted(pub(super) Arc<Shared>);

impl Drop for VisibleWanted {
    fn drop(&mut self) {
        self.0.feeds.visible_wanted.fetch_sub(1, Ordering::SeqCst);
    }
}
