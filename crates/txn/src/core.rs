//! What all workers of one node share.

use std::sync::Arc;

use freshet_base::{Fid, sync::Mutex};
use freshet_storage::{Catalog, Content, Guard, Owners, Participants, RecordSource};

use crate::{Snapshots, garbage::Garbage, waits::Waits};

/// The shared state of a node's transactions. Engine composes it; workers live on it.
pub struct Core {
    /// Who may hold what.
    pub participants: Arc<Participants>,
    /// Who owns uncommitted versions.
    pub owners: Owners,
    /// The tables.
    pub catalog: Arc<Catalog>,
    /// Where snapshots come from.
    pub snapshots: Snapshots,
    /// Where versions come from that are not in memory.
    pub source: Arc<dyn RecordSource>,
    /// Who waits for whose records.
    pub(crate) waits: Waits,
    /// Garbage that workers left behind when they ended.
    pub(crate) left: Mutex<Vec<Garbage>>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("catalog", &self.catalog).field("snapshots", &self.snapshots).finish()
    }
}

impl Core {
    /// What is in a table, unless it was dropped and given up.
    #[inline]
    pub(crate) fn content<'g>(&self, guard: &'g Guard<'_>, fid: Fid) -> Option<&'g Content> {
        self.catalog.get(guard, fid)?.content(guard)
    }

    /// Composes the parts.
    pub fn new(
        participants: Arc<Participants>,
        catalog: Arc<Catalog>,
        snapshots: Snapshots,
        source: Arc<dyn RecordSource>,
    ) -> Arc<Self> {
        let owners = Owners::new(participants.limit());
        let waits = Waits::new(participants.limit());
        Arc::new(Self { participants, owners, catalog, snapshots, source, waits, left: Mutex::new(Vec::new()) })
    }

    /// For whose transaction the one of worker `place` waits, if it waits for a record: the other worker's place. What it says may be
    /// over by the time that it is looked at.
    pub fn waits_for(&self, place: usize) -> Option<usize> {
        self.waits.waits_for(&self.owners, place)
    }
}
