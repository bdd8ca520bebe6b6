//! Wakes threads that sleep until something has happened: one ([`Bell`]), or all ([`Changes`]).

use std::time::Instant;

use freshet_base::sync::{AtomicUsize, Condvar, Mutex, Ordering};

/// Remembers a ring until the sleeper has heard it. Ringing takes an uncontended lock, and a system
/// call only when somebody sleeps.
#[derive(Debug, Default)]
pub struct Bell {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    asleep: bool,
}

impl Bell {
    /// Wakes the sleeper, or spares it its next sleep.
    pub fn ring(&self) {
        let mut state = self.state.lock().expect("no code panics under this mutex");
        state.rung = true;
        if state.asleep {
            self.rung.notify_one();
        }
    }

    /// Sleeps until the bell was rung since the last sleep, or `until` has come.
    pub fn sleep(&self, until: Option<Instant>) {
        let mut state = self.state.lock().expect("no code panics under this mutex");
        state.asleep = true;
        while !state.rung {
            state = match until {
                None => self.rung.wait(state).expect("no code panics under this mutex"),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.rung.wait_timeout(state, left).expect("no code panics under this mutex").0
                }
            };
        }
        state.asleep = false;
        state.rung = false;
    }
}

/// Counts changes, for threads that look at what has changed. To note one costs a load while no
/// thread waits.
#[derive(Debug, Default)]
pub struct Changes {
    waiting: AtomicUsize,
    count: Mutex<u64>,
    changed: Condvar,
}

impl Changes {
    /// Something has changed. To be called behind the change.
    pub fn note(&self) {
        // Partner of the addition in `wait`: a waiter that is not seen here looks after the change.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            *self.count.lock().expect("no code panics under this mutex") += 1;
            self.changed.notify_all();
        }
    }

    /// Blocks until `holds`, which is asked again after each change, or until `deadline` has come;
    /// says whether it does.
    pub fn wait(&self, deadline: Instant, holds: impl Fn() -> bool) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let held = self.wait_for_change(deadline, holds);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        held
    }

    fn wait_for_change(&self, deadline: Instant, holds: impl Fn() -> bool) -> bool {
        let mut seen = *self.count.lock().expect("no code panics under this mutex");
        loop {
            if holds() {
                return true;
            }
            let mut count = self.count.lock().expect("no code panics under this mutex");
            while *count == seen {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                count = self.changed.wait_timeout(count, left).expect("no code panics under this mutex").0;
            }
            seen = *count;
        }
    }
}
