//! Clients that run TPC-C on the primary, and remember every acknowledgement.
//!
//! Each transaction bears a mark (client, number) that it writes into the journal. What has become
//! of a transaction is one of four: acknowledged, rolled back, refused, or open, when the
//! connection was lost or the node said so. Open ones are looked for after the failover, as a
//! careful client does.

use std::{
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_workloads::{
    journal::Mark,
    random::Random,
    tpcc::{
        input::{Request, Terminal},
        outcome::Outcome,
        population::Population,
        text::Constants,
    },
};
use hdrhistogram::Histogram;

use crate::{
    Failure,
    client::{Arrived, Client},
    interruption::Interruption,
    protocol::Answer,
    units::now_micros,
};

/// How many connections the terminals share.
const CONNECTIONS: usize = 2;
/// How long a client waits for a transaction.
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
    /// Transactions that were acknowledged, those that only read included.
    pub(crate) transactions: u64,
    /// Marks of those that wrote.
    pub(crate) acknowledged: Vec<Mark>,
    /// Marks whose outcome was open, and that were looked for and found later.
    pub(crate) found: Vec<Mark>,
    /// Marks whose outcome was open, and that were not found later: they were never acknowledged.
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
    /// Where the primary is; counted, so that a change is noticed.
    address: String,
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

/// The clients that run TPC-C, until they are ended.
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<Outcomes, Failure>>>,
}

impl Load {
    /// Starts this many terminals on the primary at `address`.
    pub(crate) fn start(population: &Population, seed: u64, terminals: u16, address: &str) -> Result<Self, Failure> {
        let state = State { address: address.to_owned(), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let constants = Constants::of_run(population.constants(), &mut Random::stream(seed, u64::MAX));
        let mut load = Self { shared, threads: Vec::new() };
        for connection in 0..CONNECTIONS {
            let numbers = (0..u64::from(terminals)).filter(|number| *number as usize % CONNECTIONS == connection);
            let terminals: Vec<Seat> = numbers
                .map(|number| {
                    let home = (number % u64::from(population.scale.warehouses)) as u16 + 1;
                    Seat {
                        client: number,
                        sequence: 0,
                        terminal: Terminal::new(population, constants, seed, number, home),
                    }
                })
                .collect();
            if terminals.is_empty() {
                continue;
            }
            let shared = Arc::clone(&load.shared);
            load.threads.push(thread::Builder::new().name("terminals".to_owned()).spawn(move || {
                let result = Connection { shared: &shared, seats: terminals, result: Outcomes::default() }.run();
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
    pub(crate) fn go_on_at(&self, address: &str) {
        let mut state = self.shared.lock();
        address.clone_into(&mut state.address);
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
        let mut all = Outcomes { transactions: self.acknowledged(), ..Outcomes::default() };
        for thread in self.threads.drain(..) {
            let result = thread.join().map_err(|_| Failure::new("a thread of terminals panicked"))??;
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

/// A terminal and the number of its latest transaction.
struct Seat {
    client: u64,
    sequence: u64,
    terminal: Terminal,
}

/// What became of a transaction.
struct Ended {
    seat: usize,
    mark: Mark,
    sent: Instant,
    writes: bool,
    /// `None` when the connection was lost.
    arrived: Option<Arrived>,
}

/// Reports what became of a transaction, also when its connection was lost.
struct Witness {
    sender: mpsc::Sender<Ended>,
    ended: Option<Ended>,
}

impl Witness {
    fn report(mut self, arrived: Arrived) {
        if let Some(ended) = &mut self.ended {
            ended.arrived = Some(arrived);
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.take() {
            let _ = self.sender.send(ended);
        }
    }
}

/// Some terminals that share a connection.
struct Connection<'a> {
    shared: &'a Shared,
    seats: Vec<Seat>,
    result: Outcomes,
}

impl Connection<'_> {
    fn run(mut self) -> Result<Outcomes, Failure> {
        let mut open = Vec::new();
        loop {
            let (address, lead, stopping) = {
                let state = self.shared.lock();
                (state.address.clone(), state.lead, state.stopping)
            };
            if stopping && open.is_empty() {
                return Ok(self.result);
            }
            match Client::connect(&address, Duration::from_secs(2)) {
                Ok(client) => {
                    self.resolve(&client, &mut open)?;
                    self.converse(&client, lead, &mut open);
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

    /// Looks for what was open when the last connection ended.
    fn resolve(&mut self, client: &Client, open: &mut Vec<Mark>) -> Result<(), Failure> {
        if open.is_empty() {
            return Ok(());
        }
        let Ok(missing) = client.call::<Vec<Mark>>("journal/missing", open, DEADLINE) else {
            // The connection is lost again; next time.
            return Ok(());
        };
        for mark in open.drain(..) {
            let list = if missing.result.contains(&mark) { &mut self.result.gone } else { &mut self.result.found };
            list.push(mark);
        }
        Ok(())
    }

    /// Keeps one transaction of every terminal under way until the connection is lost, the term
    /// ends, or the load does.
    fn converse(&mut self, client: &Client, lead: u64, open: &mut Vec<Mark>) {
        let (sender, receiver) = mpsc::channel();
        let mut under_way = 0;
        for seat in 0..self.seats.len() {
            self.send(client, seat, &sender);
            under_way += 1;
        }
        while under_way > 0 {
            let Ok(ended) = receiver.recv() else { return };
            under_way -= 1;
            let lost = ended.arrived.is_none();
            let seat = ended.seat;
            let refused = self.note(ended, lead, open);
            let over = {
                let state = self.shared.lock();
                state.stopping || state.lead != lead
            };
            if lost || over || under_way == 0 && refused {
                continue;
            }
            if refused {
                thread::sleep(Duration::from_millis(5));
            }
            self.send(client, seat, &sender);
            under_way += 1;
        }
    }

    fn send(&mut self, client: &Client, number: usize, sender: &mpsc::Sender<Ended>) {
        let seat = &mut self.seats[number];
        seat.sequence += 1;
        let mark = Mark { client: seat.client, sequence: seat.sequence };
        let request = Request { mark: Some(mark), input: seat.terminal.next(now_micros()) };
        let writes = !request.input.kind().is_read_only();
        let ended = Ended { seat: number, mark, sent: Instant::now(), writes, arrived: None };
        let witness = Witness { sender: sender.clone(), ended: Some(ended) };
        // When it cannot be sent the witness reports that the connection is lost.
        let _ = client.send(Client::call_request("tpcc/run", &request, DEADLINE), |arrived| witness.report(arrived));
    }

    /// Remembers what became of a transaction; whether it was refused.
    fn note(&mut self, ended: Ended, lead: u64, open: &mut Vec<Mark>) -> bool {
        let Ended { mark, sent, writes, arrived, .. } = ended;
        match arrived.map(|arrived| (arrived.at, arrived.answer)) {
            Some((at, Answer::Committed { result, .. })) => {
                let wrote = writes && !matches!(postcard::from_bytes(&result), Ok(Outcome::RolledBack(_)));
                if wrote {
                    self.result.acknowledged.push(mark);
                }
                let mut state = self.shared.lock();
                state.transactions += 1;
                state.interval.transactions += 1;
                let micros = u64::try_from((at - sent).as_micros()).unwrap_or(u64::MAX);
                state.interval.latency.saturating_record(micros.max(1));
                if state.lead == lead && wrote {
                    state.first.get_or_insert(at);
                }
                false
            }
            Some((_, Answer::RolledBack { .. })) => {
                self.result.rolled_back += 1;
                false
            }
            Some((_, Answer::Refused { .. })) => {
                self.result.refused += 1;
                true
            }
            _ => {
                if writes {
                    open.push(mark);
                }
                false
            }
        }
    }
}
