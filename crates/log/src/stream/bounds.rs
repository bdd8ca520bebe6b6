//! Reserving the virtual log, and knowing how far it is filled.
//!
//! # Access protocol
//!
//! `reserved` of the ring is moved by `fetch_add` only. Each writer owns one slot and is
//! the only one who stores its `bound`; the group commit reads all of them.
//!
//! A bound is a promise: "nothing of mine below this is still to come". A writer
//! 1. loads `reserved` as `b` and stores it as its bound,
//! 2. takes its range with `fetch_add`, which returns `s >= b` (coherence: the load came first),
//! 3. copies its block to `[s, s + length)`,
//! 4. stores [`NOTHING`] as its bound.
//!
//! A thread that wants to know how far the log is filled reads `reserved` first, as `r`, and then
//! all bounds; the answer is the minimum. It never covers a range that is not filled: take a range
//! at `s`. If `r <= s`, neither does the answer. If `r > s`, the load of `r` read from the writer's
//! `fetch_add` or a later one (a release sequence: there are only read-modify-writes), so step 1
//! happened before the scan, which thus finds `b <= s` or something the writer stored later, which
//! is after step 4. Since every store of a bound is a release and the scan acquires, the bytes are
//! visible too.
//!
//! A writer whose range is longer than the ring takes at once fills it part by part, and stores the
//! end of what is filled as its bound after each part: the same promise for the rest of the range.
//!
//! All of `r` and `b` were values of `reserved`, or ends of such parts, so the answer is always a
//! boundary between blocks. Between transactions it is but for those parts.

use crossbeam_utils::CachePadded;
use freshet_base::sync::{AtomicBool, AtomicU64, Ordering};

/// The bound of a writer that has nothing under way.
pub(crate) const NOTHING: u64 = u64::MAX;

#[derive(Debug)]
struct Slot {
    claimed: AtomicBool,
    bound: AtomicU64,
}

/// The bounds of all writers.
#[derive(Debug)]
pub(crate) struct Bounds {
    slots: Box<[CachePadded<Slot>]>,
}

impl Bounds {
    /// Room for `writers` at once.
    pub(crate) fn new(writers: usize) -> Self {
        let slot = || CachePadded::new(Slot { claimed: AtomicBool::new(false), bound: AtomicU64::new(NOTHING) });
        Self { slots: (0..writers).map(|_| slot()).collect() }
    }

    /// How many writers there can be at once.
    pub(crate) fn limit(&self) -> usize {
        self.slots.len()
    }

    /// Takes a slot, if one is free.
    pub(crate) fn claim(&self) -> Option<usize> {
        // AcqRel: pairs with the release store of the thread that had the slot before.
        self.slots
            .iter()
            .position(|slot| slot.claimed.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// Gives a slot back.
    pub(crate) fn leave(&self, slot: usize) {
        self.slots[slot].bound.store(NOTHING, Ordering::Release);
        // Release: pairs with the compare-exchange of the next owner.
        self.slots[slot].claimed.store(false, Ordering::Release);
    }

    /// Steps 1 and 2: takes `length` bytes and returns where they start.
    #[inline]
    pub(crate) fn take(&self, slot: usize, reserved: &AtomicU64, length: u64) -> u64 {
        freshet_base::step!(Certify);
        // Relaxed: only this writer stores it.
        let idle = self.slots[slot].bound.load(Ordering::Relaxed) == NOTHING;
        assert!(idle, "a writer reserves twice before it has filled what it had");
        // Relaxed: a stale value is a smaller and thus still true promise.
        #[cfg(not(loom))]
        let bound = reserved.load(Ordering::Relaxed);
        // loom remembers only the last access to an atomic when it looks for orders to try: after a
        // plain load by this thread it would never try to have the `fetch_add` below come before an
        // earlier load by another.
        #[cfg(loom)]
        let bound = reserved.fetch_add(0, Ordering::Relaxed);
        // Release: a thread that reads this bound sees what this writer filled before (acquire in
        // `filled`).
        self.slots[slot].bound.store(bound, Ordering::Release);
        // SeqCst: its release half publishes the bound (acquire of `reserved` in `filled`), and it
        // is this thread's half of the group commit's Dekker protocol (module `doorbell`):
        // `reserved` before the look at the bell.
        reserved.fetch_add(length, Ordering::SeqCst)
    }

    /// Sharpens the promise of step 1 to what step 2 returned, for a writer that will wait for
    /// room: with the older one it might wait for bytes that its own promise keeps from being
    /// flushed. Or to the end of what it has filled of its range.
    pub(crate) fn sharpen(&self, slot: usize, start: u64) {
        // Release: as in `take`.
        self.slots[slot].bound.store(start, Ordering::Release);
    }

    /// Step 4: everything taken is filled.
    #[inline]
    pub(crate) fn clear(&self, slot: usize) {
        // Release: the bytes, for the acquire in `filled`.
        self.slots[slot].bound.store(NOTHING, Ordering::Release);
    }

    /// How far the log is filled without a gap. May lie below an earlier answer, which then still
    /// holds.
    pub(crate) fn filled(&self, reserved: &AtomicU64) -> u64 {
        freshet_base::step!(Log);
        // SeqCst: acquires the bounds that were stored before the `fetch_add`s it reads from
        // (release half there), and is the group commit's half of the Dekker protocol in module
        // `doorbell`.
        let end = reserved.load(Ordering::SeqCst);
        // Acquire: pairs with the release stores of the writers.
        self.slots.iter().map(|slot| slot.bound.load(Ordering::Acquire)).fold(end, u64::min)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn filled_stops_at_the_oldest_open_reservation() {
        let (bounds, reserved) = (Bounds::new(2), AtomicU64::new(0));
        let (a, b) = (bounds.claim().unwrap(), bounds.claim().unwrap());
        assert_eq!(bounds.claim(), None);
        assert_eq!(bounds.take(a, &reserved, 40), 0);
        assert_eq!(bounds.take(b, &reserved, 40), 40);
        bounds.clear(b);
        assert_eq!(bounds.filled(&reserved), 0);
        bounds.clear(a);
        assert_eq!(bounds.filled(&reserved), 80);
        bounds.leave(a);
        assert_eq!(bounds.claim(), Some(a));
    }
}
