//! An LSN that only grows, which threads may wait for.
//!
//! Access protocol: any thread may call any method. `value` grows by `fetch_max`. A waiter
//! registers in `waiters` and then looks at `value` again; a thread that advances looks at
//! `waiters` after it has changed `value`. A SeqCst fence stands between the two steps on both
//! sides, so one of the two sees the other (Dekker), and the mutex is only touched when somebody
//! waits.

use std::time::Instant;

use crate::{
    Lsn, Stage,
    sync::{AtomicU64, Condvar, Mutex, Ordering, fence},
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

/// Why a wait for a watermark ended without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The deadline passed first.
    #[error("the deadline passed")]
    Deadline,
    /// The watermark will not move again: [`Watermark::close`] was called.
    #[error("the node stopped")]
    Closed,
}

/// A monotone LSN. Reading it never blocks; advancing it blocks only to wake
/// waiters.
#[derive(Debug)]
pub struct Watermark {
    value: AtomicU64,
    waiters: AtomicU64,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Watermark {
    /// A watermark that starts at `at`.
    pub fn new(at: Lsn) -> Self {
        Self {
            value: AtomicU64::new(at.0),
            waiters: AtomicU64::new(0),
            closed: Mutex::new(false),
            changed: Condvar::new(),
        }
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
        // Partner of the fence in `wait_unless`: the value before the waiters here, the waiters
        // before the value there.
        fence(Ordering::SeqCst);
        if moved && self.waiters.load(Ordering::SeqCst) != 0 {
            drop(self.closed.lock().expect("no code panics under this mutex"));
            self.changed.notify_all();
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
        *self.closed.lock().expect("no code panics under this mutex") = true;
        self.changed.notify_all();
    }

    /// Blocks until the watermark is at `target` or above, and returns where it then stands.
    ///
    /// # Errors
    /// [`WaitError::Deadline`] when `deadline` passes first (never without one),
    /// [`WaitError::Closed`] when the watermark was closed below `target`.
    pub fn wait(&self, target: Lsn, deadline: Option<Instant>) -> Result<Lsn, WaitError> {
        self.wait_unless(target, deadline, || false)
    }

    /// Makes everyone who waits in [`Watermark::wait_unless`] look at its condition again.
    pub fn wake(&self) {
        drop(self.closed.lock().expect("no code panics under this mutex"));
        self.changed.notify_all();
    }

    /// Like [`Watermark::wait`], but also ends when `give_up` says so: it is asked before every
    /// sleep, and [`Watermark::wake`] ends a sleep. It must neither block nor use this watermark's
    /// waits.
    ///
    /// # Errors
    /// As [`Watermark::wait`]; [`WaitError::Closed`] also when `give_up` said so.
    pub fn wait_unless(
        &self,
        target: Lsn,
        deadline: Option<Instant>,
        give_up: impl Fn() -> bool,
    ) -> Result<Lsn, WaitError> {
        let now = self.get();
        if now >= target {
            return Ok(now);
        }
        let mut closed = self.closed.lock().expect("no code panics under this mutex");
        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let result = loop {
            let now = Lsn(self.value.load(Ordering::SeqCst));
            if now >= target {
                break Ok(now);
            }
            if *closed || give_up() {
                break Err(WaitError::Closed);
            }
            closed = match self.sleep(closed, deadline) {
                Ok(guard) => guard,
                Err(guard) => {
                    closed = guard;
                    let now = self.get();
                    break if now >= target { Ok(now) } else { Err(WaitError::Deadline) };
                }
            };
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        drop(closed);
        result
    }

    #[cfg(not(loom))]
    fn sleep<'a>(
        &self,
        guard: crate::sync::MutexGuard<'a, bool>,
        deadline: Option<Instant>,
    ) -> Result<crate::sync::MutexGuard<'a, bool>, crate::sync::MutexGuard<'a, bool>> {
        match deadline {
            None => Ok(self.changed.wait(guard).expect("no code panics under this mutex")),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(guard);
                }
                Ok(self.changed.wait_timeout(guard, left).expect("no code panics under this mutex").0)
            }
        }
    }

    /// loom has no clock: under it no wait has a deadline.
    #[cfg(loom)]
    fn sleep<'a>(
        &self,
        guard: crate::sync::MutexGuard<'a, bool>,
        _deadline: Option<Instant>,
    ) -> Result<crate::sync::MutexGuard<'a, bool>, crate::sync::MutexGuard<'a, bool>> {
        Ok(self.changed.wait(guard).expect("no code panics under this mutex"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn a_wait_ends_with_its_deadline_or_with_the_end() {
        let mark = Watermark::new(Lsn(0));
        assert_eq!(mark.wait(Lsn(1), Some(Instant::now() + Duration::from_millis(1))), Err(WaitError::Deadline));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| mark.wait(Lsn(1), None));
            mark.close();
            assert_eq!(waiter.join().unwrap(), Err(WaitError::Closed));
        });
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
