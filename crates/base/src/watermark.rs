//! An LSN that only grows, which threads may wait for.
//!
//! Access protocol: any thread may call any method. `value` grows by `fetch_max`; the thread that
//! has moved it wakes those of `waiters` that it covers. Module `wait` says why none is missed.

use crate::{
    Lsn, Stage,
    sync::{AtomicBool, AtomicU64, Ordering},
    wait::{Patience, WaitError, WaitList},
};

/// The law of the watermarks: `marks`, each with its stage, ascend. On a primary
/// `committed <= durable <= filled <= reserved` and `acked <= shipped <= filled`, on a standby
/// `visible <= replayed <= received` and `durable <= received`. Asserted at the ends of batches,
/// in every build: a node that breaks it must stop.
///
/// # Panics
/// When two of them do not ascend; the message names them.
#[track_caller]
pub fn check(marks: &[(Stage, Lsn)]) {
    for pair in marks.windows(2) {
        let [(low, at), (high, upto)] = [pair[0], pair[1]];
        let (low, high) = (low.watermark(), high.watermark());
        assert!(at <= upto, "the law of the watermarks is broken: {low} {at} is above {high} {upto}");
    }
}

/// A monotone LSN. Reading it never blocks; advancing it blocks only to wake
/// waiters.
#[derive(Debug)]
pub struct Watermark {
    value: AtomicU64,
    closed: AtomicBool,
    waiters: WaitList,
}

impl Watermark {
    /// A watermark that starts at `at`.
    pub fn new(at: Lsn) -> Self {
        Self { value: AtomicU64::new(at.0), closed: AtomicBool::new(false), waiters: WaitList::default() }
    }

    /// Where it stands. Acquire: pairs with the release half of [`Watermark::advance`],
    /// so everything that the advancing thread did before is visible.
    pub fn get(&self) -> Lsn {
        Lsn(self.value.load(Ordering::Acquire))
    }

    /// Moves it up to `to` and wakes those who waited for that; a smaller `to`
    /// changes nothing. Returns whether it moved.
    pub fn advance(&self, to: Lsn) -> bool {
        let moved = self.value.fetch_max(to.0, Ordering::SeqCst) < to.0;
        if moved {
            self.waiters.wake_covered(to.0);
        }
        moved
    }

    /// Moves it down to `to`: a failover takes back what lies above. A larger `to` changes
    /// nothing. The caller keeps everyone from advancing it in the meantime.
    pub fn cut(&self, to: Lsn) {
        self.value.fetch_min(to.0, Ordering::SeqCst);
    }

    /// Ends every present and future wait that is not satisfied already.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.waiters.wake_all();
    }

    /// Has all who wait here look at their interrupts again.
    pub fn wake(&self) {
        self.waiters.wake_all();
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn waiters(&self) -> &WaitList {
        &self.waiters
    }

    /// Blocks until the watermark is at `target` or above, and returns where it then stands.
    ///
    /// # Errors
    /// [`WaitError::Closed`] when the watermark was closed below `target`, and what ended the
    /// patience.
    pub fn wait<'a>(&self, target: Lsn, patience: impl Into<Patience<'a>>) -> Result<Lsn, WaitError> {
        let now = self.get();
        if now >= target {
            return Ok(now);
        }
        let look = || match Lsn(self.value.load(Ordering::SeqCst)) {
            now if now >= target => Some(Ok(now)),
            _ => self.closed.load(Ordering::SeqCst).then_some(Err(WaitError::Closed)),
        };
        self.waiters.wait_registered(target.0, patience.into(), look)?
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "visible 9 is above replayed 8")]
    fn the_law_names_what_breaks_it() {
        check(&[(Stage::Persist, Lsn(7)), (Stage::Receive, Lsn(7))]);
        check(&[(Stage::Visible, Lsn(9)), (Stage::Replay, Lsn(8)), (Stage::Receive, Lsn(9))]);
    }

    #[test]
    fn it_never_moves_back() {
        let mark = Watermark::new(Lsn(5));
        assert!(!mark.advance(Lsn(4)));
        assert_eq!(mark.get(), Lsn(5));
        assert!(mark.advance(Lsn(9)));
        assert_eq!(mark.wait(Lsn(7), None), Ok(Lsn(9)));
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::{sync::Arc, thread};

    use super::*;

    /// No wake-up is lost between a waiter and the thread that advances.
    #[test]
    fn a_waiter_is_always_woken() {
        loom::model(|| {
            let mark = Arc::new(Watermark::new(Lsn(0)));
            let waiter = {
                let mark = Arc::clone(&mark);
                thread::spawn(move || mark.wait(Lsn(1), None))
            };
            mark.advance(Lsn(1));
            assert_eq!(waiter.join().unwrap(), Ok(Lsn(1)));
        });
    }
}
