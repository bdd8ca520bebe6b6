//! Who is changing tables.

use std::sync::{PoisonError, RwLockReadGuard, atomic::Ordering};

use freshet_base::Fid;

use super::Catalog;

/// While a transaction that makes, changes or drops tables commits: from before it takes its LSN
/// until its tables are marked, or it has failed.
#[must_use]
pub struct Changing<'c> {
    catalog: &'c Catalog,
    _turn: RwLockReadGuard<'c, ()>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // Release: after the marks.
        self.catalog.changes[1].fetch_add(1, Ordering::Release);
    }
}

impl Catalog {
    /// A transaction that changes tables is about to take its LSN. A thread that takes a later
    /// one finds that it has, by [`Catalog::changes_begun`]; one that has a snapshot above it waits
    /// for the end of what this returns ([`Catalog::wait_for_changes`]).
    pub fn begin_change(&self) -> Changing<'_> {
        let turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        // SeqCst: before the `fetch_add` on the log that follows, which later ones read from.
        self.changes[0].fetch_add(1, Ordering::SeqCst);
        Changing { catalog: self, _turn: turn }
    }

    /// Blocks until the tables are marked of all changes that have taken an LSN by now. To be
    /// called with a new snapshot, before it looks for tables: otherwise a change below it would
    /// come in the middle of what it reads.
    #[inline]
    pub fn wait_for_changes(&self) {
        // In this order: as many had ended as begin later, so none was under way in between.
        let ended = self.changes_ended();
        if self.changes_begun() != ended {
            drop(self.turn.write().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// How often [`Catalog::begin_change`] was called.
    #[inline]
    pub fn changes_begun(&self) -> u64 {
        self.changes[0].load(Ordering::SeqCst)
    }

    /// How many changes have ended: this many can be seen on their tables.
    #[inline]
    pub fn changes_ended(&self) -> u64 {
        // Acquire: pairs with the release in [`Changing`].
        self.changes[1].load(Ordering::Acquire)
    }

    /// This node begins to build an index of the table, as the primary. Returns `false` when it is
    /// at one already.
    pub fn begin_build(&self, fid: Fid) -> bool {
        self.builds.lock().unwrap_or_else(PoisonError::into_inner).insert(fid)
    }

    /// It is through with that, whatever came of it.
    pub fn end_build(&self, fid: Fid) {
        self.builds.lock().unwrap_or_else(PoisonError::into_inner).remove(&fid);
    }
}
