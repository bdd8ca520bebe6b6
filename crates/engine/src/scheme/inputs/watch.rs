//! The thread `watch` of a standby that executes transactions again: once in a while it takes down
//! what was done since, and where the node is to find out by itself in which form it asks for the
//! log, it does what [`Choice`] says. While too much has to be fetched ([`Storm`]) it asks for
//! bytes, whatever was chosen.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use freshet_base::{
    Lsn,
    cpu::{Ticks, ticks},
};
use freshet_replication::forms::{Arrivals, Encoding as Form};
use serde::Serialize;

use super::{
    choice::{Choice, Figures, Observation},
    storm::{Storm, StormStatus, Turn},
};
use crate::node::Encoding;

/// It looks this often.
const EVERY: Duration = Duration::from_secs(1);
/// How long what another build records comes as bytes, before it is seen whether that has changed.
const OTHER_BUILD: Duration = Duration::from_secs(600);
/// What is left of what had arrived before the start is logged this often.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// How a standby with `encoding = "auto"` has chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// In which form it asks for the log.
    pub form: Form,
    /// For how long it has done so.
    pub lasts: Duration,
    /// Why, with the figures of then.
    pub why: String,
    /// The figures of the last second.
    pub figures: Figures,
}

/// What has been done since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub arrivals: Arrivals,
    /// Transactions whose inputs have come, those of them whose blocks had to be fetched, and
    /// blocks that came as bytes.
    pub with_inputs: u64,
    pub fetched: u64,
    /// Transactions that another build of the program has recorded.
    pub other_build: u64,
    pub as_bytes: u64,
    pub executed: u64,
    pub execute_cpu: Duration,
    /// Bytes that have become part of the log, and bytes and blocks that have not yet.
    pub completed: u64,
    pub pending: Pending,
}

/// What has arrived and is not part of the log yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pending {
    pub bytes: u64,
    pub transactions: u64,
    /// Where it begins.
    pub from: Lsn,
}

/// What the thread looks at.
pub(super) trait Watched {
    /// What has been done so far.
    fn totals(&self) -> Totals;

    /// An interval has passed, in which this many bytes have become part of the log, and at its end
    /// others were pending.
    fn observe(&self, interval: Duration, completed: u64, pending: u64);

    /// How long executing this many transactions takes, as far as that is known.
    fn left(&self, transactions: u64) -> Option<Duration>;

    /// Asks for the log in this form from now on.
    fn ask_for(&self, form: Form);

    /// Looks after what has to be looked after once in a while.
    fn tend(&self);
}

/// What the thread has taken down.
pub(super) struct Watch {
    state: Mutex<State>,
    turn: Condvar,
}

struct State {
    /// As the node is configured.
    encoding: Encoding,
    choice: Option<Choice>,
    storm: Storm,
    before: Option<Moment>,
    /// How many transactions another build has recorded, and when inputs are asked for again.
    other_build: (u64, Option<Instant>),
    /// What had arrived before the start ends here, as long as not all of it is part of the log.
    left: Option<Left>,
    stopped: bool,
}

/// What had been done at a time.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    totals: Totals,
    ticks: Option<Ticks>,
}

#[derive(Clone, Copy)]
struct Left {
    end: Lsn,
    begun: Instant,
    reported: Instant,
}

impl Moment {
    /// What has happened since `before`.
    fn since(&self, before: &Self) -> Observation {
        let (now, then) = (&self.totals, &before.totals);
        let idle = self.ticks.zip(before.ticks).and_then(|(now, then)| now.idle_since(&then));
        Observation {
            interval: self.at - before.at,
            made: now.arrivals.end.0.saturating_sub(then.arrivals.end.0),
            arrived: now.arrivals.log_bytes.saturating_sub(then.arrivals.log_bytes),
            carried: now.arrivals.carried_bytes.saturating_sub(then.arrivals.carried_bytes),
            link_busy: now.arrivals.busy.saturating_sub(then.arrivals.busy),
            held_here: now.arrivals.held_bytes.saturating_sub(then.arrivals.held_bytes),
            with_inputs: now.with_inputs.saturating_sub(then.with_inputs),
            as_bytes: now.as_bytes.saturating_sub(then.as_bytes),
            executed: now.executed.saturating_sub(then.executed),
            execute_cpu: now.execute_cpu.saturating_sub(then.execute_cpu),
            idle,
            processors: std::thread::available_parallelism().map_or(1, |all| all.get() as u32),
        }
    }
}

impl Watch {
    /// Of a node with this encoding.
    pub fn new(encoding: Encoding) -> Self {
        let (choice, storm) = ((encoding == Encoding::Auto).then(Choice::default), Storm::default());
        let (before, other_build) = Default::default();
        let state = State { encoding, choice, storm, before, other_build, left: None, stopped: false };
        Self { state: Mutex::new(state), turn: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node finds out by itself from now on which form it asks for, `asks_for` at present, or
    /// does so no longer. What had to be fetched before does not count any more.
    pub fn set(&self, encoding: Encoding, asks_for: Form) {
        let mut state = self.state();
        (state.encoding, state.storm) = (encoding, Storm::default());
        state.other_build.1 = None;
        state.choice = match state.choice.take() {
            _ if encoding != Encoding::Auto => None,
            Some(choice) => Some(choice),
            None => Some(Choice::beginning_with(asks_for)),
        };
    }

    /// What it has chosen, if it does so by itself.
    pub fn chosen(&self) -> Option<Chosen> {
        let state = self.state();
        let choice = state.choice.as_ref()?;
        let (why, figures) = (choice.why().to_owned(), choice.figures().clone());
        Some(Chosen { form: choice.encoding(), lasts: choice.age(), why, figures })
    }

    /// The storm that lasts, if there is one.
    pub fn storm(&self) -> Option<StormStatus> {
        self.state().storm.status()
    }

    /// What is pending now had arrived before the start: it is told how that proceeds.
    pub fn begin(&self, pending: Pending) {
        if pending.bytes > 0 {
            let (bytes, transactions) = (pending.bytes, pending.transactions);
            tracing::info!(bytes, transactions, "transactions that arrived before the start are executed");
            let now = Instant::now();
            let end = pending.from.plus(bytes);
            self.state().left = Some(Left { end, begun: now, reported: now });
        }
    }

    /// The thread, until [`Watch::stop`].
    pub fn run(&self, of: &dyn Watched) {
        while self.wait() {
            let now = Moment { at: Instant::now(), totals: of.totals(), ticks: ticks() };
            let mut state = self.state();
            let asks = state.observe(&now, of);
            drop(state);
            if let Some(form) = asks {
                of.ask_for(form);
            }
            of.tend();
        }
    }

    fn wait(&self) -> bool {
        let (until, mut state) = (Instant::now() + EVERY, self.state());
        while !state.stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.turn.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// The thread ends.
    pub fn stop(&self) {
        self.state().stopped = true;
        self.turn.notify_all();
    }
}

impl State {
    fn observe(&mut self, now: &Moment, of: &dyn Watched) -> Option<Form> {
        let Totals { completed, pending, .. } = now.totals;
        let before = self.before.replace(*now);
        if let Some(left) = self.left {
            self.report_left(left, now.at, pending, of);
        }
        if let Some(form) = self.observe_builds(now) {
            return Some(form);
        }
        let before = before?;
        let interval = now.at - before.at;
        of.observe(interval, completed.saturating_sub(before.totals.completed), pending.bytes);
        let seen = now.since(&before);
        let fetched = now.totals.fetched.saturating_sub(before.totals.fetched);
        let asked = self.encoding != Encoding::Bytes;
        match asked.then(|| self.storm.observe(interval, seen.with_inputs, fetched)).flatten() {
            Some(turn) => self.turn(turn),
            None if self.storm.status().is_some() => None,
            None => {
                let choice = self.choice.as_mut()?;
                let form = choice.observe(&seen)?;
                tracing::info!(encoding = %form, cause = choice.why(), "this standby asks for the log in another form");
                Some(form)
            }
        }
    }

    /// A storm begins or ends.
    fn turn(&mut self, turn: Turn) -> Option<Form> {
        let auto = self.encoding == Encoding::Auto;
        let form = match &turn {
            Turn::Begins(_) => Form::Bytes,
            Turn::Ends => self.encoding.first(),
        };
        // Inputs are tried again when the link is full.
        self.choice = auto.then(|| Choice::beginning_with(Form::Bytes));
        match turn {
            Turn::Begins(cause) => {
                let left = self.storm.status().map(|storm| storm.left.as_secs());
                tracing::warn!(cause, seconds = left, "this standby asks for bytes for a while, not for inputs");
            }
            Turn::Ends => tracing::info!(encoding = %form, "this standby asks for the log as it did before"),
        }
        Some(form)
    }

    /// Which form is to be asked for, since another build has recorded what came, or did long ago.
    fn observe_builds(&mut self, now: &Moment) -> Option<Form> {
        let total = now.totals.other_build;
        let (before, again) = (std::mem::replace(&mut self.other_build.0, total), self.other_build.1);
        if total > before {
            self.other_build.1 = Some(now.at + OTHER_BUILD);
            if let Some(choice) = &mut self.choice {
                choice.take_bytes("its primary is another build of Freshet, or has other tables of time zones");
            }
            if again.is_none() {
                tracing::warn!(
                    "this standby asks for the log as bytes: its primary is another build of Freshet, or has other \
                     tables of time zones; run the same build on both"
                );
            }
            return Some(Form::Bytes);
        }
        if again.is_some_and(|again| now.at >= again) {
            self.other_build.1 = None;
            // The choice has its own time for that.
            return self.choice.is_none().then_some(Form::Inputs);
        }
        None
    }

    /// Logs how far what had arrived before the start is part of the log.
    fn report_left(&mut self, left: Left, now: Instant, pending: Pending, of: &dyn Watched) {
        if pending.from >= left.end {
            self.left = None;
            let seconds = (now - left.begun).as_secs_f64();
            return tracing::info!(
                seconds,
                "transactions that arrived before the start are executed and part of the log"
            );
        }
        if now - left.reported >= REPORT_EVERY {
            self.left = Some(Left { reported: now, ..left });
            let bytes = left.end.since(pending.from);
            let seconds_left = of.left(pending.transactions).map(|left| left.as_secs_f64());
            tracing::info!(bytes, seconds_left, "transactions that arrived before the start are being executed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for when this many transactions of another build have come by then.
    fn asks_for(watch: &Watch, at: Instant, other_build: u64) -> Option<Form> {
        let totals = Totals { other_build, ..Totals::default() };
        watch.state().observe(&Moment { at, totals, ticks: None }, &Nothing)
    }

    /// A node that does nothing.
    struct Nothing;

    impl Watched for Nothing {
        fn totals(&self) -> Totals {
            Totals::default()
        }

        fn observe(&self, _: Duration, _: u64, _: u64) {}

        fn left(&self, _: u64) -> Option<Duration> {
            None
        }

        fn ask_for(&self, _: Form) {}

        fn tend(&self) {}
    }

    #[test]
    fn what_another_build_records_is_asked_for_as_bytes() {
        let watch = Watch::new(Encoding::Inputs);
        let begun = Instant::now();
        assert_eq!(asks_for(&watch, begun, 0), None);
        assert_eq!(asks_for(&watch, begun + EVERY, 3), Some(Form::Bytes));
        assert_eq!(asks_for(&watch, begun + EVERY * 2, 3), None);
        // The last ones of what was on its way.
        assert_eq!(asks_for(&watch, begun + EVERY * 3, 5), Some(Form::Bytes));
        assert_eq!(asks_for(&watch, begun + OTHER_BUILD, 5), None);
        assert_eq!(asks_for(&watch, begun + EVERY * 3 + OTHER_BUILD, 5), Some(Form::Inputs));
        assert_eq!(asks_for(&watch, begun + EVERY * 4 + OTHER_BUILD, 5), None);
        assert_eq!(asks_for(&watch, begun + EVERY * 5 + OTHER_BUILD, 6), Some(Form::Bytes));
        // The operator says so again.
        watch.set(Encoding::Inputs, Form::Inputs);
        assert_eq!(asks_for(&watch, begun + OTHER_BUILD * 3, 6), None);
    }

    #[test]
    fn a_node_that_chooses_has_a_reason_to_take_bytes() {
        let watch = Watch::new(Encoding::Auto);
        watch.state().choice = Some(Choice::beginning_with(Form::Inputs));
        assert_eq!(asks_for(&watch, Instant::now(), 1), Some(Form::Bytes));
        let chosen = watch.chosen().unwrap();
        assert!(chosen.form == Form::Bytes && chosen.why.contains("another build"), "{chosen:?}");
    }
}
