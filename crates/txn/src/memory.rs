//! How much memory the tables may take: above that, nobody adds anything. Reads, deletions, commits
//! and replication go on.
//!
//! | from | happens |
//! |---|---|
//! | the limit | who adds a row, or makes a row another one, is refused |
//! | a sixteenth above | the same, for the tables of the catalog: definitions and roles can change in between |
//! | an eighth above, or what replay has announced if that is more | a standby replays no more; it still receives |
//!
//! A standby needs more than its primary, for the addresses that replay announces. So with the same
//! limit it comes to its end later than the primary does to its own: also where there are many
//! tables of few rows, for whose addresses a standby needs more than an eighth.
//!
//! Workers look now and then, whenever they have added a certain number of bytes, and always while
//! the limit is reached.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use freshet_storage::used::{announced, used};

/// After how many bytes a worker looks again.
pub(crate) const LOOK_AFTER: usize = 64 << 10;

/// The memory of a node's tables.
#[derive(Debug)]
pub struct Memory {
    /// In bytes; [`u64::MAX`] where nothing is limited.
    limit: AtomicU64,
    full: AtomicBool,
    exhausted: AtomicBool,
}

impl Default for Memory {
    fn default() -> Self {
        Self { limit: AtomicU64::new(u64::MAX), full: AtomicBool::new(false), exhausted: AtomicBool::new(false) }
    }
}

impl Memory {
    /// From now on tables may take this many bytes; 0: as many as there are.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(if bytes == 0 { u64::MAX } else { bytes }, Ordering::Relaxed);
        self.measure();
    }

    /// How many bytes tables may take, if there is a limit.
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// How many bytes the tables of this process take.
    pub fn used(&self) -> u64 {
        used()
    }

    /// How many bytes tables take, if that is more than three quarters of their limit; and the
    /// limit.
    pub fn short(&self) -> Option<(u64, u64)> {
        let used = used();
        self.limit().filter(|limit| used > limit / 4 * 3).map(|limit| (used, limit))
    }

    /// Whether the limit was reached when somebody looked last. Cheap.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        // Relaxed, as everywhere here: no other memory is read on the strength of it.
        self.full.load(Ordering::Relaxed)
    }

    /// Looks whether the limit is reached; for the tables of the catalog, whether a sixteenth more
    /// is.
    pub(crate) fn refuses(&self, catalog: bool) -> bool {
        let (full, used) = (self.measure(), used());
        let limit = self.limit.load(Ordering::Relaxed);
        full && !(catalog && used < limit.saturating_add(limit / 16))
    }

    /// Looks whether the limit is reached.
    pub fn measure(&self) -> bool {
        let full = used() >= self.limit.load(Ordering::Relaxed);
        if full != self.is_full() {
            self.full.store(full, Ordering::Relaxed);
        }
        full
    }

    /// Whether [`Memory::is_exhausted`] has said so last. Cheap.
    pub fn was_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Whether more is used than a standby is to replay into: an eighth more than the limit, or as
    /// much more as replay has announced. From then on that counts until it is a sixteenth of the
    /// limit less.
    pub fn is_exhausted(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let before = self.exhausted.load(Ordering::Relaxed);
        let more = (limit / 8).max(announced()) - if before { limit / 16 } else { 0 };
        let now = used() >= limit.saturating_add(more);
        if now != before {
            self.exhausted.store(now, Ordering::Relaxed);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests of this process use memory, too: no more than a few megabytes, and no less than
    /// none.
    #[test]
    fn the_catalog_has_a_reserve() {
        let memory = Memory::default();
        assert!(!memory.measure() && !memory.refuses(false) && memory.limit().is_none());
        freshet_storage::used::taken(1 << 30);
        memory.set_limit((1 << 30) - (1 << 25));
        assert!(memory.is_full() && memory.refuses(false) && !memory.refuses(true) && !memory.is_exhausted());
        memory.set_limit(1 << 29);
        assert!(memory.refuses(true) && memory.is_exhausted());
        memory.set_limit(1 << 40);
        assert!(!memory.is_full() && !memory.refuses(false) && memory.limit() == Some(1 << 40));
        freshet_storage::used::given_back(1 << 30);
    }
}
