//! What sessions ask of a primary's standbys beside the level of its node.

use freshet_base::{
    Lsn, WaitError,
    sync::{Arc, Ordering},
    wait::Patience,
};
use freshet_cluster::wanted::Wanted;

use super::Shared;

/// Waits for the standbys of a primary.
pub struct StandbyWaits(pub(super) Arc<Shared>);

impl StandbyWaits {
    /// Blocks until everything below `until` is where `wanted` says.
    ///
    /// # Errors
    /// [`WaitError::Closed`] when the term has ended before, and what ended the patience.
    pub fn wait(&self, wanted: Wanted, until: Lsn, patience: Patience<'_>) -> Result<(), WaitError> {
        let Shared { feeds, commit, .. } = &*self.0;
        feeds.changes.until(patience, || {
            if wanted.holds(until, commit.expected(), &feeds.shows(commit.places())) {
                return Some(Ok(()));
            }
            (self.0.is_fenced() || self.0.stopping()).then_some(Err(WaitError::Closed))
        })?
    }
}

/// A commit waits until standbys show it ([`super::Primary::want_visible`]).
pub struct VisibleWanted(pub(super) Arc<Shared>);

impl Drop for VisibleWanted {
    fn drop(&mut self) {
        self.0.feeds.visible_wanted.fetch_sub(1, Ordering::SeqCst);
    }
}
