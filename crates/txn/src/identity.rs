//! How commits change the identity of the state ([`freshet_storage::identity`]), and what that was
//! at a mark.
//!
//! Each worker counts what its own commits change, in a slot of its own: the version that each
//! replaces, as it was found in the record's chain, no longer counts, and its own does. Both belong
//! to the commit's LSN: between the two, nothing else changes the record. So the state at a mark
//! differs from the state at the one before by what the commits between both have counted.
//!
//! # Before a mark, or behind it
//!
//! Workers commit while a mark is put into the log. Who makes the mark
//!
//! 1. says in `mark` that one is coming,
//! 2. reserves its place, and says there where that is,
//! 3. waits until the log is filled up to it, and takes what the slots have below.
//!
//! A worker reserves its own place, and then looks at `mark`. If its place is behind the mark, its
//! `fetch_add` on the log's end came after that of step 2, which was after step 1: it finds the
//! mark, or that one is coming. In the latter case it puts down its place beside what it counts,
//! and who finds the mark next decides; so no worker waits. If its place is before the mark, it
//! counts before its block fills that, so before step 3 is over. There is one mark at a time: the
//! next is begun when the slots are taken.

use std::sync::{Mutex, MutexGuard, PoisonError};

use freshet_base::{
    Lsn,
    sync::{AtomicU64, Ordering},
};
use freshet_storage::identity::Sums;

/// Stands for the place of a mark that is not in the log yet.
const COMING: u64 = u64::MAX;

/// What one worker has counted.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The last mark that it has found.
    mark: u64,
    /// What it has counted below that, until it is taken.
    below: Sums,
    /// What it has counted behind that.
    behind: Sums,
    /// What it counted while a mark was coming, and where.
    open: Vec<(Lsn, Sums)>,
}

impl Slot {
    /// Where a commit at `lsn` counts, which has found this mark.
    #[inline]
    fn at(&mut self, mark: u64, lsn: Lsn) -> &mut Sums {
        if mark == self.mark { &mut self.behind } else { self.beside(mark, lsn) }
    }

    #[cold]
    fn beside(&mut self, mark: u64, lsn: Lsn) -> &mut Sums {
        if mark == COMING {
            self.open.push((lsn, Sums::default()));
            return &mut self.open.last_mut().expect("it was pushed").1;
        }
        self.find(mark);
        if lsn.0 < mark { &mut self.below } else { &mut self.behind }
    }

    /// All that was counted without a look at this mark lies below it, but for what was put down.
    fn find(&mut self, mark: u64) {
        if self.mark == mark {
            return;
        }
        self.mark = mark;
        self.below.merge(&self.behind);
        self.behind.clear();
        for (lsn, sums) in self.open.drain(..) {
            let side = if lsn.0 < mark { &mut self.below } else { &mut self.behind };
            side.merge(&sums);
        }
    }
}

/// One worker's slot, with cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(Mutex<Slot>);

/// What the commits of a term have counted.
#[derive(Debug)]
pub(crate) struct Identities {
    places: Box<[Place]>,
    /// Where the last mark is; zero before the first.
    mark: AtomicU64,
}

/// The changes of one commit to the sums, until its LSN is known.
pub(crate) struct Counted<'i> {
    slot: MutexGuard<'i, Slot>,
    mark: u64,
    lsn: Lsn,
}

impl Counted<'_> {
    /// Where its changes are added.
    #[inline]
    pub fn sums(&mut self) -> &mut Sums {
        self.slot.at(self.mark, self.lsn)
    }
}

impl Identities {
    pub(crate) fn new(places: usize) -> Self {
        Self { places: (0..places).map(|_| Place::default()).collect(), mark: AtomicU64::new(0) }
    }

    fn slot(&self, place: usize) -> MutexGuard<'_, Slot> {
        // Whole after a panic, too: the process ends then.
        self.places[place].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the worker at `place`, which has reserved `lsn` and not filled it yet. To be asked for
    /// once for each commit.
    #[inline]
    pub(crate) fn count(&self, place: usize, lsn: Lsn) -> Counted<'_> {
        let slot = self.slot(place);
        // Acquire: pairs with the stores of who makes the mark. That what it finds is new enough
        // follows from the log's end (module's protocol).
        Counted { slot, mark: self.mark.load(Ordering::Acquire), lsn }
    }

    /// A mark is coming: to be said before its place is reserved.
    pub(crate) fn coming(&self) {
        // SeqCst: before the `fetch_add` that reserves the place.
        self.mark.store(COMING, Ordering::SeqCst);
    }

    /// The mark that was coming is at `mark`.
    pub(crate) fn came(&self, mark: Lsn) {
        self.mark.store(mark.0, Ordering::SeqCst);
    }

    /// Takes what all workers have counted since the mark before, up to `mark`, the last one, when
    /// the log is filled up to that.
    pub(crate) fn take(&self, mark: Lsn) -> Sums {
        let mut sums = Sums::default();
        for place in 0..self.places.len() {
            let mut slot = self.slot(place);
            slot.find(mark.0);
            sums.merge(&slot.below);
            slot.below.clear();
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64 as Plain, Ordering::SeqCst};

    use freshet_base::Fid;

    use super::*;

    /// Workers take places from a counter, as from the log's end, and count one for each; at every
    /// mark, what was counted below is what lies below.
    #[test]
    fn what_is_counted_below_a_mark_is_what_lies_below() {
        const WORKERS: usize = 3;
        let identities = Identities::new(WORKERS);
        let (end, stopping) = (Plain::new(1), AtomicBool::new(false));
        let under_way: Vec<Plain> = (0..WORKERS).map(|_| Plain::new(u64::MAX)).collect();
        std::thread::scope(|scope| {
            for place in 0..WORKERS {
                let (identities, end, stopping, under_way) = (&identities, &end, &stopping, &under_way);
                scope.spawn(move || {
                    while !stopping.load(SeqCst) {
                        under_way[place].store(end.load(SeqCst), SeqCst);
                        let lsn = Lsn(end.fetch_add(1, SeqCst));
                        identities.count(place, lsn).sums().add(Fid(1), 1);
                        under_way[place].store(u64::MAX, SeqCst);
                    }
                });
            }
            let (mut counted, mut marks) = (0, 0);
            for _ in 0..300 {
                identities.coming();
                if marks % 3 == 0 {
                    std::thread::yield_now();
                }
                let mark = Lsn(end.fetch_add(1, SeqCst));
                identities.came(mark);
                while under_way.iter().any(|bound| bound.load(SeqCst) <= mark.0) {
                    std::thread::yield_now();
                }
                counted += identities.take(mark).iter().map(|(_, count)| count).sum::<u64>();
                // All places below but zero and those of the marks before.
                assert_eq!(counted, mark.0 - 1 - marks);
                marks += 1;
            }
            stopping.store(true, SeqCst);
        });
    }
}
