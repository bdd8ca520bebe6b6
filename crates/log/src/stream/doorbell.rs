//! How the group commit sleeps, and who wakes it.
//!
//! # Access protocol
//!
//! `state` says how deep the one sleeper sleeps. It announces its sleep, then looks once more for
//! work, then waits. A thread that makes work (a larger `reserved`, a larger `wanted`) does so
//! first and then looks at `state`. All four accesses are SeqCst, so one of the two sees the other
//! (Dekker), and a worker that finds the sleeper awake pays one load of a line that rarely changes.
//! Where what makes the work is stored with less than SeqCst, a SeqCst fence stands between that
//! and the look at `state`, as one stands between the sleeper's two accesses (a watermark that
//! advances has it).

use std::time::Duration;

use freshet_base::sync::{AtomicU32, Condvar, Mutex, Ordering};

/// Looks for work itself.
const AWAKE: u32 = 0;
/// Will look by itself soon; only those who wait for an answer wake it.
const NAPPING: u32 = 1;
/// Sleeps until somebody has something for it.
const ASLEEP: u32 = 2;

/// The bell of one sleeper.
#[derive(Debug)]
pub(crate) struct Doorbell {
    state: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Doorbell {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(AWAKE), lock: Mutex::new(()), changed: Condvar::new() }
    }

    /// Wakes the sleeper if it sleeps for lack of work: for the thread that made some.
    #[inline]
    pub(crate) fn ring_if_asleep(&self) {
        Self::in_single_order();
        if self.state.load(Ordering::SeqCst) == ASLEEP {
            self.wake();
        }
    }

    /// Wakes the sleeper, also from a nap: for the thread that waits for an answer.
    #[inline]
    pub(crate) fn ring(&self) {
        Self::in_single_order();
        if self.state.load(Ordering::SeqCst) != AWAKE {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let guard = self.lock.lock().expect("no code panics under this mutex");
        self.state.store(AWAKE, Ordering::SeqCst);
        drop(guard);
        self.changed.notify_one();
    }

    /// Sleeps until somebody rings, unless `work` already says that there is something to do.
    pub(crate) fn sleep(&self, work: impl Fn() -> bool) {
        self.rest(ASLEEP, None, work);
    }

    /// Sleeps for at most `length`, until somebody rings, unless `urgent` says that there is
    /// something to do. With `light`, also a thread that makes work ends the nap, most likely.
    pub(crate) fn nap(&self, length: Duration, light: bool, urgent: impl Fn() -> bool) {
        self.rest(if light { ASLEEP } else { NAPPING }, Some(length), urgent);
    }

    /// loom takes SeqCst loads and stores for acquire and release, and knows the single order of
    /// fences only: in models this stands between the two accesses of each side that are SeqCst
    /// themselves.
    #[inline]
    fn in_single_order() {
        #[cfg(loom)]
        freshet_base::sync::fence(Ordering::SeqCst);
    }

    fn rest(&self, depth: u32, length: Option<Duration>, work: impl Fn() -> bool) {
        self.state.store(depth, Ordering::SeqCst);
        freshet_base::sync::fence(Ordering::SeqCst);
        if !work() {
            let mut guard = self.lock.lock().expect("no code panics under this mutex");
            while self.state.load(Ordering::SeqCst) == depth {
                match length {
                    None => guard = self.changed.wait(guard).expect("no code panics under this mutex"),
                    Some(length) => {
                        // One wait: an early end costs one more look, nothing else.
                        guard = self.changed.wait_timeout(guard, length).expect("no code panics under this mutex").0;
                        break;
                    }
                }
            }
            drop(guard);
        }
        self.state.store(AWAKE, Ordering::SeqCst);
    }
}
