//! Who is changing tables.

use std::sync::{PoisonError, atomic::Ordering};

use freshet_base::Fid;

use super::Catalog;

impl Catalog {
    /// A transaction that changes tables is about to take its LSN. A thread that takes a later
    /// one finds that it has, by [`Catalog::changes_begun`].
    pub fn begin_change(&self) {
        // SeqCst: before the `fetch_add` on the log that follows, which later ones read from.
        self.changes[0].fetch_add(1, Ordering::SeqCst);
    }

    /// It is through: its tables are marked, or it has failed.
    pub fn end_change(&self) {
        // Release: after the marks.
        self.changes[1].fetch_add(1, Ordering::Release);
    }

    /// How often [`Catalog::begin_change`] was called.
    #[inline]
    pub fn changes_begun(&self) -> u64 {
        self.changes[0].load(Ordering::SeqCst)
    }

    /// How often [`Catalog::end_change`] was called: this many changes can be seen on their tables.
    #[inline]
    pub fn changes_ended(&self) -> u64 {
        // Acquire: pairs with the release in `end_change`.
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
