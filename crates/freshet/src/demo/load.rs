//! Sessions that transfer on the primary, and remember every acknowledgement.
//!
//! Each transfer bears a mark (client, number) that it writes into the history. What has become of
//! a transfer is one of four: acknowledged, rolled back, refused, or open, when the connection was
//! lost or the node said so. Open ones are looked for after the failover, as a careful client does.

use std::{
    mem,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_workloads::random::Random;
use hdrhistogram::Histogram;

use super::{
    bank::{Bank, Mark},
    cluster::USER,
};
use crate::{Failure, interruption::Interruption, sql_client::Session};

/// How long a client waits for a transfer.
const DEADLINE: Duration = Duration::from_secs(20);

/// What the clients have seen since the last look.
pub(crate) struct Interval {
    pub(crate) transactions: u64,
    pub(crate) latency: Histogram<u64>,
}

impl Default for Interval {
    fn default() -> Self {
        let latency = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order");
        Self { transactions: 0, latency }
    }
}

/// What became of all transactions.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// Transfers that were acknowledged.
    pub(crate) acknowledged: Vec<Mark>,
    /// Those whose outcome was open, and that were looked for and found later.
    pub(crate) found: Vec<Mark>,
    /// Those whose outcome was open, and that were not found later: they were never acknowledged.
    pub(crate) gone: Vec<Mark>,
    /// Transactions that were refused.
    pub(crate) refused: u64,
    /// Transactions that were rolled back by the database.
    pub(crate) rolled_back: u64,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Where the primary's sessions are; counted, so that a change is noticed.
    socket: PathBuf,
    lead: u64,
    stopping: bool,
    interval: Interval,
    transactions: u64,
    /// When the first transaction was acknowledged by the present primary.
    first: Option<Instant>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions that transfer, until they are ended.
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<Outcomes, Failure>>>,
}

impl Load {
    /// Starts this many sessions with the primary.
    pub(crate) fn start(bank: Bank, seed: u64, sessions: u16, socket: &Path) -> Result<Self, Failure> {
        let state = State { socket: socket.to_owned(), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut load = Self { shared, threads: Vec::new() };
        for number in 0..sessions {
            let client = Client {
                shared: Arc::clone(&load.shared),
                bank,
                random: Random::stream(seed, number.into()),
                mark: Mark { client: number, number: 0 },
                result: Outcomes::default(),
            };
            load.threads.push(thread::Builder::new().name("session".to_owned()).spawn(move || {
                let shared = Arc::clone(&client.shared);
                let result = client.run();
                if result.is_err() {
                    // The others stop, and a thread that asks hears why.
                    shared.lock().stopping = true;
                    shared.changed.notify_all();
                }
                result
            })?);
        }
        Ok(load)
    }

    /// How many transactions were acknowledged so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.shared.lock().transactions
    }

    /// What was seen since this was last called.
    pub(crate) fn interval(&self) -> Interval {
        mem::take(&mut self.shared.lock().interval)
    }

    /// The primary is there from now on.
    pub(crate) fn go_on_at(&self, socket: &Path) {
        let mut state = self.shared.lock();
        state.socket = socket.to_owned();
        state.lead += 1;
        state.first = None;
        self.shared.changed.notify_all();
    }

    /// When the present primary acknowledged something for the first time. Waits for that.
    pub(crate) fn first_acknowledged_since(
        &self,
        interruption: &Interruption,
        patience: Duration,
    ) -> Result<Instant, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            interruption.check()?;
            let state = self.shared.lock();
            if let Some(first) = state.first {
                return Ok(first);
            }
            if state.stopping || Instant::now() > deadline {
                return Err(Failure::new("the new primary acknowledges nothing"));
            }
            drop(state);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets what is under way come to its end, and says what became of everything.
    pub(crate) fn stop(mut self) -> Result<Outcomes, Failure> {
        self.end();
        let mut all = Outcomes::default();
        for thread in self.threads.drain(..) {
            let result = thread.join().map_err(|_| Failure::new("a thread of a session panicked"))??;
            all.acknowledged.extend(result.acknowledged);
            all.found.extend(result.found);
            all.gone.extend(result.gone);
            all.refused += result.refused;
            all.rolled_back += result.rolled_back;
        }
        Ok(all)
    }

    fn end(&self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

/// One session, and what has become of its transfers.
struct Client {
    shared: Arc<Shared>,
    bank: Bank,
    random: Random,
    /// Of its latest transfer.
    mark: Mark,
    result: Outcomes,
}

impl Client {
    fn run(mut self) -> Result<Outcomes, Failure> {
        let mut is_open = false;
        loop {
            let (socket, lead, stopping) = {
                let state = self.shared.lock();
                (state.socket.clone(), state.lead, state.stopping)
            };
            if stopping && !is_open {
                return Ok(self.result);
            }
            match Session::open(&socket, USER, DEADLINE) {
                Ok(mut session) => {
                    is_open = is_open && !self.resolve(&mut session);
                    if !is_open {
                        is_open = self.converse(&mut session, lead);
                    }
                }
                Err(cause) if stopping => return Err(cause.into()),
                Err(_) => {}
            }
            // Until somebody else is the primary there is nothing to hope for; but it may only have
            // been the connection.
            let state = self.shared.lock();
            if state.lead == lead && !state.stopping {
                drop(self.shared.changed.wait_timeout(state, Duration::from_millis(50)));
            }
        }
    }

    /// Looks for the transfer that was open when the last connection ended. `false` when this one
    /// is lost again.
    fn resolve(&mut self, session: &mut Session) -> bool {
        let Mark { client, number } = self.mark;
        let line = session.run(&format!("SELECT delta FROM history WHERE client = {client} AND number = {number}"));
        let Ok(line) = line else { return false };
        let list = if line.rows.is_empty() { &mut self.result.gone } else { &mut self.result.found };
        list.push(self.mark);
        true
    }

    /// One transfer after the other until the connection is lost, the term ends, or the load does.
    /// Whether the last one is open.
    fn converse(&mut self, session: &mut Session, lead: u64) -> bool {
        loop {
            let state = self.shared.lock();
            if state.stopping || state.lead != lead {
                return false;
            }
            drop(state);
            self.mark.number += 1;
            let sent = Instant::now();
            match session.run(&self.bank.transfer(self.mark, &mut self.random)) {
                Ok(_) => self.note(sent, lead),
                Err(failure) if failure.is_open() => return true,
                Err(failure) => {
                    if failure.is_conflict() {
                        self.result.rolled_back += 1;
                    } else {
                        self.result.refused += 1;
                        thread::sleep(Duration::from_millis(5));
                    }
                    // The transaction waits for its end.
                    if session.run("ROLLBACK").is_err() {
                        return false;
                    }
                }
            }
        }
    }

    /// Remembers that the latest transfer was acknowledged.
    fn note(&mut self, sent: Instant, lead: u64) {
        let now = Instant::now();
        self.result.acknowledged.push(self.mark);
        let mut state = self.shared.lock();
        state.transactions += 1;
        state.interval.transactions += 1;
        let micros = u64::try_from((now - sent).as_micros()).unwrap_or(u64::MAX);
        state.interval.latency.saturating_record(micros.max(1));
        if state.lead == lead {
            state.first.get_or_insert(now);
        }
    }
}
