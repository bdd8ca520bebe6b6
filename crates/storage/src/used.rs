//! How much memory the tables take: versions, the nodes of indexes, the parts of arrays that are
//! written to, and what is noted of versions that are to go.
//!
//! The count is the process's, and exact: whatever is made is counted where it is made, and taken
//! off where it is freed, whichever thread does that. Each thread counts in a cache line that it
//! shares with few others, and only who wants to know adds them up.

use std::{
    cell::Cell,
    // Not the facade's: no other memory is read on the strength of these.
    sync::atomic::{AtomicI64, AtomicUsize, Ordering},
};

use crossbeam_utils::CachePadded;

const STRIPES: usize = 64;

static COUNTS: [CachePadded<AtomicI64>; STRIPES] = [const { CachePadded::new(AtomicI64::new(0)) }; STRIPES];
/// What of that is announced. Seldom changed, and by parts of arrays.
static ANNOUNCED: AtomicI64 = AtomicI64::new(0);
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The stripe of this thread; none as yet.
    static MINE: Cell<usize> = const { Cell::new(STRIPES) };
}

/// What an allocator takes for this many bytes, about: its sizes lie an eighth apart.
#[inline]
fn taken_for(bytes: usize) -> i64 {
    let step = (bytes.next_power_of_two() / 8).max(16);
    // Without a division: it is a power of two.
    ((bytes + step - 1) & !(step - 1)) as i64
}

#[inline]
fn add(bytes: i64) {
    let mine = MINE.with(|mine| {
        if mine.get() == STRIPES {
            mine.set(THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        mine.get()
    });
    COUNTS[mine].fetch_add(bytes, Ordering::Relaxed);
}

/// Something of this many bytes was made.
#[inline]
pub fn taken(bytes: usize) {
    add(taken_for(bytes));
}

/// Something of this many bytes is freed.
#[inline]
pub fn given_back(bytes: usize) {
    add(-taken_for(bytes));
}

/// As many bytes more, or less, of what is counted hold addresses that replay has announced.
pub(crate) fn announced_by(bytes: i64) {
    ANNOUNCED.fetch_add(bytes, Ordering::Relaxed);
}

/// How many of the bytes that tables take hold addresses that replay has announced: what a standby
/// needs and its primary does not.
pub fn announced() -> u64 {
    ANNOUNCED.load(Ordering::Relaxed).max(0) as u64
}

/// How many bytes the tables of this process take.
pub fn used() -> u64 {
    let sum: i64 = COUNTS.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    // What one thread frees that another one has made may be seen before that.
    sum.max(0) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_an_allocator() {
        assert_eq!(
            [0, 1, 16, 17, 100, 128, 129, 1000, 1025].map(taken_for),
            [0, 16, 16, 32, 112, 128, 160, 1024, 1280]
        );
        assert_eq!(taken_for(96 << 20), 96 << 20);
    }
}
