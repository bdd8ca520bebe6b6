//! Blocks that a standby could not regenerate: their bytes are asked for until they come.
//!
//! A few threads ask, and end when nothing is wanted. They take the block with the lowest stamp
//! first, since all others wait for it. One that no node has given waits for its next turn, a
//! little longer each time, and blocks no other one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::Builder,
    time::{Duration, Instant},
};

use freshet_base::Stamp;
use freshet_replication::forms::Complete;

use super::pool::{Originals, Wanted};

/// The most threads that ask.
const THREADS: usize = 4;
/// The first pause before a block is asked for again, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Blocks that are asked for. Cloned, it is the same.
#[derive(Clone)]
pub(super) struct FromOthers(Arc<Shared>);

struct Shared {
    complete: Arc<dyn Complete>,
    state: Mutex<State>,
    /// There is a block to be asked for, or none is wanted any more.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<Stamp, Waiting>,
    threads: usize,
    stopped: bool,
}

struct Waiting {
    wanted: Wanted,
    since: Instant,
    turn: Instant,
    pause: Duration,
}

impl FromOthers {
    /// Asks by means of `complete`.
    pub fn new(complete: &Arc<dyn Complete>) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Shared { complete: Arc::clone(complete), state, changed }))
    }

    /// Nothing is asked for any more. Waits for none that is being asked.
    pub fn stop(&self) {
        let mut state = self.0.state();
        state.stopped = true;
        state.waiting.clear();
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Originals for FromOthers {
    fn ask(&self, wanted: Wanted) {
        let mut state = self.0.state();
        if state.stopped {
            return;
        }
        let now = Instant::now();
        state.waiting.insert(wanted.at(), Waiting { wanted, since: now, turn: now, pause: PAUSE.0 });
        let starts = state.threads < THREADS.min(state.waiting.len());
        state.threads += usize::from(starts);
        drop(state);
        self.0.changed.notify_one();
        if starts {
            let shared = Arc::clone(&self.0);
            let started = Builder::new().name("original".into()).spawn(move || shared.run());
            if let Err(cause) = started {
                self.0.state().threads -= 1;
                self.0.fail(&format!("cannot start a thread: {cause}"));
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node that gets no threads cannot continue.
    fn fail(&self, why: &str) {
        let waiting = std::mem::take(&mut self.state().waiting);
        waiting.into_values().for_each(|waiting| waiting.wanted.deliver(Err(why.into())));
    }

    fn run(&self) {
        while let Some(Waiting { wanted, since, pause, .. }) = self.next() {
            let is_over = wanted.patience().is_some_and(|patience| since.elapsed() >= patience);
            match self.complete.original(wanted.header()) {
                Ok(bytes) => wanted.deliver(Ok(bytes)),
                Err(missing) if missing.nowhere || is_over => wanted.deliver(Err(missing.to_string())),
                Err(_) => {
                    let mut state = self.state();
                    // Behind a cut, another block may be wanted there by now.
                    if !state.stopped && wanted.is_wanted() {
                        let (turn, next) = (Instant::now() + pause, (pause * 2).min(PAUSE.1));
                        state.waiting.insert(wanted.at(), Waiting { wanted, since, turn, pause: next });
                    }
                }
            }
        }
    }

    /// The next block whose turn it is. Blocks until there is one; none when none is wanted any
    /// more: then the thread that asks does not count any more.
    fn next(&self) -> Option<Waiting> {
        let mut state = self.state();
        loop {
            state.waiting.retain(|_, waiting| waiting.wanted.is_wanted());
            let Some(soonest) = state.waiting.values().map(|waiting| waiting.turn).min() else {
                state.threads -= 1;
                return None;
            };
            let now = Instant::now();
            let due = state.waiting.iter().find(|(_, waiting)| waiting.turn <= now).map(|(at, _)| *at);
            if let Some(due) = due {
                return state.waiting.remove(&due);
            }
            let wait = self.changed.wait_timeout(state, soonest.saturating_duration_since(now));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
