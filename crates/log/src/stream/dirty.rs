//! Whether a worker's last block may not be durable yet (module `passive` has the protocol).

use freshet_base::sync::{AtomicU64, Ordering};

/// Zero when clean, else the LSN of the unfenced block plus one.
#[derive(Debug)]
pub(crate) struct Dirty(AtomicU64);

impl Dirty {
    /// A clean one.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// By its owner: fences if there is something to fence.
    #[inline]
    pub(crate) fn settle(&self, fence: impl FnOnce()) {
        // Relaxed: the owner's own store, or zero by a forced fence.
        if self.0.load(Ordering::Relaxed) != 0 {
            fence();
            self.fenced();
        }
    }

    /// The owner has fenced, or has stood still while somebody did in its place.
    #[inline]
    pub(crate) fn fenced(&self) {
        // After the fence.
        self.set(0);
    }

    /// By its owner: the block at `lsn` is copied, but not fenced. Comes before the bound is
    /// cleared.
    #[inline]
    pub(crate) fn leave_open(&self, lsn: u64) {
        self.set(lsn + 1);
    }

    /// Release: pairs with the acquire in `seen`, which comes after the bound's.
    #[inline]
    fn set(&self, state: u64) {
        #[cfg(not(loom))]
        self.0.store(state, Ordering::Release);
        // loom does not know that a store comes behind an exchange that has replaced what the
        // storing thread had stored before: it would let others read the exchange's value after
        // this one.
        #[cfg(loom)]
        let _ = self.0.swap(state, Ordering::Release);
    }

    /// What it says. Comes after the look at the bounds.
    #[inline]
    pub(crate) fn seen(&self) -> u64 {
        // Acquire: pairs with the owner's release stores.
        self.0.load(Ordering::Acquire)
    }

    /// What was seen before a barrier is durable after it. A newer block is another value, and
    /// stays.
    pub(crate) fn clean(&self, seen: u64) {
        // AcqRel: after the barrier. A failure means that the owner has fenced, and may have
        // written again.
        let _ = self.0.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// By a handler that has fenced: what was seen is durable if it was this thread's, which is
    /// asked after the look. A writer that has moved to another thread in the meantime says so
    /// before it leaves another block open.
    pub(crate) fn clean_own(&self, is_owner: impl FnOnce() -> bool) {
        let seen = self.seen();
        if seen != 0 && is_owner() {
            self.clean(seen);
        }
    }
}
