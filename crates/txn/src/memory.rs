//! How much memory a node may take, and what is refused before it takes that. Reads, deletions,
//! commits and replication continue.
//!
//! | from | happens |
//! |---|---|
//! | 95 % of the limit | who adds a row, or makes a row another one, is refused |
//! | the limit | the same, for the tables of the catalog: definitions and roles can change in between; statements and sessions get no more |
//! | an eighth above 95 %, or what replay has announced if that is more | a standby replays no more; it still receives |
//!
//! A sixteenth of the limit is there for statements and sessions, whatever the tables take: who
//! adds a row cannot have that. On the other hand replay counts no more than that of what
//! statements have taken: readers do not stop it.
//!
//! A standby needs more than its primary, for the addresses that replay announces. So with the same
//! limit it comes to its end later than the primary does to its own: also where there are many
//! tables of few rows, for whose addresses a standby needs more than an eighth.
//!
//! Workers look now and then, whenever they have added a certain number of bytes, and always while
//! the limit is reached.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use freshet_base::memory::{Owner, Usage, announced, usage};

/// After how many bytes a worker looks again.
pub(crate) const LOOK_AFTER: usize = 64 << 10;

/// Statements and sessions have this part of the limit for themselves.
const RESERVE: u64 = 16;

/// The memory of a node.
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

/// From where on nothing is added, with this limit.
fn most(limit: u64) -> u64 {
    limit / 20 * 19
}

/// All that counts for who adds something.
fn counted(usage: &Usage, limit: u64) -> u64 {
    usage.without_statements().saturating_add(usage.of(Owner::Statements).max(limit / RESERVE))
}

impl Memory {
    /// From now on the node may take this many bytes; 0: as many as there are.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(if bytes == 0 { u64::MAX } else { bytes }, Ordering::Relaxed);
        self.measure();
    }

    /// How many bytes the node may take, if there is a limit.
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// How many bytes this process takes.
    pub fn used(&self) -> Usage {
        usage()
    }

    /// How many bytes are taken, but for statements, if that is more than three quarters of the
    /// limit; and the limit.
    pub fn short(&self) -> Option<(u64, u64)> {
        let used = usage().without_statements();
        self.limit().filter(|limit| used > limit / 4 * 3).map(|limit| (used, limit))
    }

    /// Whether 95 % of the limit were reached when a worker looked last. Cheap.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        // Relaxed, as everywhere here: no other memory is read on the strength of it.
        self.full.load(Ordering::Relaxed)
    }

    /// Looks whether 95 % of the limit are reached; for the tables of the catalog, whether the
    /// limit is.
    pub(crate) fn refuses(&self, catalog: bool) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        self.measure() && !(catalog && counted(&usage(), limit) < limit)
    }

    /// Looks whether 95 % of the limit are reached.
    pub fn measure(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let full = counted(&usage(), limit) >= most(limit);
        if full != self.is_full() {
            self.full.store(full, Ordering::Relaxed);
        }
        full
    }

    /// Whether statements and sessions may take this many bytes more: of their own part, or of what
    /// is left below the limit.
    pub fn admits(&self, bytes: u64) -> bool {
        let (limit, usage) = (self.limit.load(Ordering::Relaxed), usage());
        let within = |used: u64, limit: u64| used.checked_add(bytes).is_some_and(|sum| sum <= limit);
        within(usage.of(Owner::Statements), limit / RESERVE) || within(usage.total(), limit)
    }

    /// Whether [`Memory::is_exhausted`] has said so last. Cheap.
    pub fn was_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Whether more is used than a standby is to replay into: an eighth more than 95 % of the
    /// limit, or as much more as replay has announced. From then on that counts until it is a
    /// sixteenth of the limit less.
    pub fn is_exhausted(&self) -> bool {
        let (limit, usage) = (self.limit.load(Ordering::Relaxed), usage());
        let used = usage.without_statements().saturating_add(usage.of(Owner::Statements).min(limit / RESERVE));
        let before = self.exhausted.load(Ordering::Relaxed);
        let more = (limit / 8).max(announced()) - if before { limit / 16 } else { 0 };
        let now = used >= most(limit).saturating_add(more);
        if now != before {
            self.exhausted.store(now, Ordering::Relaxed);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::memory::count;

    use super::*;

    const GIB: u64 = 1 << 30;

    /// Other tests of this process use memory, too: no more than a few megabytes, and no less than
    /// none.
    #[test]
    fn the_catalog_and_statements_have_a_reserve() {
        let memory = Memory::default();
        assert!(!memory.measure() && !memory.refuses(false) && memory.limit().is_none() && memory.admits(GIB));
        count(Owner::Rows, GIB as i64);
        // With what is reserved for statements, that is 97 % of it.
        memory.set_limit(GIB / 100 * 110);
        assert!(memory.is_full() && memory.refuses(false) && !memory.refuses(true) && !memory.is_exhausted());
        assert!(memory.admits(GIB / 100 * 8) && !memory.admits(GIB / 100 * 11));
        memory.set_limit(GIB / 100 * 95);
        assert!(memory.refuses(true) && !memory.is_exhausted());
        assert!(memory.admits(GIB / 100 * 5) && !memory.admits(GIB / 100 * 6), "they have their own part");
        memory.set_limit(GIB / 2);
        assert!(memory.is_exhausted());
        // What statements have taken does not stop replay, but who adds rows.
        memory.set_limit(2 * GIB);
        count(Owner::Statements, GIB as i64);
        assert!(memory.measure() && !memory.is_exhausted() && !memory.admits(GIB / 4));
        count(Owner::Statements, -(GIB as i64));
        memory.set_limit(GIB << 10);
        assert!(!memory.is_full() && !memory.refuses(false) && memory.limit() == Some(GIB << 10));
        count(Owner::Rows, -(GIB as i64));
    }
}
