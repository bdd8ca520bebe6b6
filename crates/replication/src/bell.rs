//! Wakes the one thread that sleeps until something has happened.

use std::time::Instant;

use freshet_base::sync::{Condvar, Mutex};

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
