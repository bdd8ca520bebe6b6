//! Blocks that a standby could not regenerate: their bytes are asked for until they come.
//!
//! A thread asks, for many at once, and ends when nothing is wanted. It takes the blocks with the
//! lowest LSNs first, since all others wait for these. One that no node has given waits for its
//! next turn, a little longer each time, and blocks no other one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::Builder,
    time::{Duration, Instant},
};

use freshet_base::Lsn;
use freshet_replication::forms::{Complete, Wanted as Asked};

use super::pool::{Originals, Wanted};

/// No more blocks are asked for at once, nor blocks of more bytes, unless one alone has more.
const AT_ONCE: (usize, u64) = (256, 4 << 20);
/// The first pause before a block is asked for again, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// One that can be executed here after all is, once it would wait for so long.
const RETRY: Duration = Duration::from_millis(500);

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
    waiting: BTreeMap<Lsn, Waiting>,
    /// The thread is there.
    asks: bool,
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
        let starts = !std::mem::replace(&mut state.asks, true);
        drop(state);
        self.0.changed.notify_one();
        if starts {
            let shared = Arc::clone(&self.0);
            let started = Builder::new().name("original".into()).spawn(move || shared.run());
            if let Err(cause) = started {
                self.0.state().asks = false;
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
        while let Some(due) = self.next() {
            let asked: Vec<Asked> = due
                .iter()
                .map(|Waiting { wanted, .. }| Asked { header: *wanted.header(), lacking: wanted.is_lacking() })
                .collect();
            let outcomes = self.complete.originals(&asked);
            for (Waiting { wanted, since, pause, .. }, outcome) in due.into_iter().zip(outcomes) {
                let is_over = wanted.patience().is_some_and(|patience| since.elapsed() >= patience);
                match outcome {
                    Ok(bytes) => wanted.deliver(Ok(bytes)),
                    Err(missing) if wanted.is_lacking() && (missing.nowhere || is_over) => {
                        wanted.deliver(Err(missing.to_string()));
                    }
                    Err(_) if !wanted.is_lacking() && pause >= RETRY => wanted.retry(),
                    Err(_) => self.wait_on(wanted, since, pause),
                }
            }
        }
    }

    /// A block is asked for again after a pause.
    fn wait_on(&self, wanted: Wanted, since: Instant, pause: Duration) {
        let mut state = self.state();
        // Behind a cut, another block may be wanted there by now.
        if !state.stopped && wanted.is_wanted() {
            let (turn, next) = (Instant::now() + pause, (pause * 2).min(PAUSE.1));
            state.waiting.entry(wanted.at()).or_insert(Waiting { wanted, since, turn, pause: next });
        }
    }

    /// The next blocks whose turn it is. Blocks until there is one; none when none is wanted any
    /// more: then there is no thread that asks.
    fn next(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state();
        loop {
            state.waiting.retain(|_, waiting| waiting.wanted.is_wanted());
            let Some(soonest) = state.waiting.values().map(|waiting| waiting.turn).min() else {
                state.asks = false;
                return None;
            };
            let (now, mut bytes) = (Instant::now(), 0);
            let due = state.waiting.iter().filter(|(_, waiting)| waiting.turn <= now).take(AT_ONCE.0);
            let due = due.take_while(|(_, waiting)| {
                let fits = bytes == 0 || bytes + u64::from(waiting.wanted.header().length) <= AT_ONCE.1;
                bytes += u64::from(waiting.wanted.header().length);
                fits
            });
            let due: Vec<Lsn> = due.map(|(at, _)| *at).collect();
            if !due.is_empty() {
                return Some(due.iter().filter_map(|at| state.waiting.remove(at)).collect());
            }
            let wait = self.changed.wait_timeout(state, soonest.saturating_duration_since(now));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
