//! Answers that have to wait until a watermark has come far enough.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    mem,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use freshet_base::Lsn;
use freshet_engine::Ticket;

use super::{
    Shared,
    connection::{Connection, Reply},
};
use crate::protocol::Answer;

/// How late a deadline, or an answer that overtakes others, may be noticed.
const ROUND: Duration = Duration::from_millis(20);

/// An answer that waits.
pub(super) struct Pending {
    /// For everything below this.
    pub(super) until: Lsn,
    /// But no longer than this.
    pub(super) deadline: Instant,
    /// The client that waits, and the number of its request.
    pub(super) reply: Reply,
    /// What he hears if all goes well.
    pub(super) answer: Answer,
}

/// In the order of what they wait for.
struct InOrder(Pending);

impl PartialEq for InOrder {
    fn eq(&self, other: &Self) -> bool {
        self.0.until == other.0.until
    }
}
impl Eq for InOrder {}
impl PartialOrd for InOrder {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for InOrder {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.until.cmp(&other.0.until)
    }
}

/// Where workers leave what has to wait.
#[derive(Default)]
pub(super) struct Completions {
    arrived: Mutex<Arrived>,
    some: Condvar,
}

#[derive(Default)]
struct Arrived {
    pending: Vec<Pending>,
    stopped: bool,
}

impl Completions {
    pub(super) fn push(&self, pending: Pending) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).pending.push(pending);
        self.some.notify_one();
    }

    pub(super) fn stop(&self) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.some.notify_one();
    }

    /// Moves what has arrived into `open`; waits for something when that is empty. `false` when the
    /// server stops.
    fn take(&self, open: &mut BinaryHeap<Reverse<InOrder>>) -> bool {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        while open.is_empty() && arrived.pending.is_empty() && !arrived.stopped {
            arrived = self.some.wait(arrived).unwrap_or_else(PoisonError::into_inner);
        }
        let pending = mem::take(&mut arrived.pending);
        let stopped = arrived.stopped;
        drop(arrived);
        open.extend(pending.into_iter().map(|pending| Reverse(InOrder(pending))));
        !stopped
    }
}

/// Appends answers and sends those of one connection together.
#[derive(Default)]
struct Outgoing(HashMap<*const Connection, Arc<Connection>>);

impl Outgoing {
    fn append(&mut self, reply: Reply, answer: Answer) {
        let connection = reply.append(answer);
        self.0.entry(Arc::as_ptr(&connection)).or_insert(connection);
    }

    fn flush(&mut self) {
        for (_, connection) in self.0.drain() {
            connection.flush();
        }
    }
}

/// What becomes of the answers: `outcome` says what is decided, `wait` blocks until more may be.
fn answer(
    completions: &Completions,
    outcome: impl Fn(Lsn) -> Option<Result<(), Answer>>,
    wait: impl Fn(Lsn, Instant),
    late: impl Fn() -> Answer,
    stopped: impl Fn() -> Answer,
) {
    let mut open = BinaryHeap::new();
    let mut outgoing = Outgoing::default();
    while completions.take(&mut open) {
        while let Some(Reverse(InOrder(first))) = open.peek() {
            let Some(outcome) = outcome(first.until) else { break };
            let Some(Reverse(InOrder(first))) = open.pop() else { break };
            outgoing.append(first.reply, outcome.map_or_else(|other| other, |()| first.answer));
        }
        let now = Instant::now();
        let mut next_deadline = now + ROUND;
        if open.iter().any(|Reverse(InOrder(pending))| pending.deadline <= now) {
            let (gone, left): (Vec<_>, Vec<_>) =
                open.drain().partition(|Reverse(InOrder(pending))| pending.deadline <= now);
            open.extend(left);
            for Reverse(InOrder(pending)) in gone {
                outgoing.append(pending.reply, late());
            }
        }
        outgoing.flush();
        if let Some(Reverse(InOrder(first))) = open.peek() {
            next_deadline = next_deadline.min(first.deadline);
            wait(first.until, next_deadline);
        }
    }
    for Reverse(InOrder(pending)) in open {
        outgoing.append(pending.reply, stopped());
    }
    outgoing.flush();
}

fn open_outcome(reason: impl ToString) -> Answer {
    Answer::OutcomeOpen { reason: reason.to_string() }
}

/// Answers clients whose transactions have become committed, or whose outcome stays open.
pub(super) fn answer_commits(shared: &Shared) {
    use freshet_engine::OutcomeOpen;
    let database = shared.host.database();
    let ticket = |until| Ticket { lsn: None, until };
    // A log that cannot be written any more lets nobody through who is not through already.
    let failed = || {
        let failure = database.core().snapshots.primary()?.log.failure()?;
        Some(Err(open_outcome(OutcomeOpen::LogFailed(failure.to_string()))))
    };
    answer(
        &shared.commits,
        |until| match database.outcome(ticket(until)) {
            Some(outcome) => Some(outcome.map_err(open_outcome)),
            None => failed(),
        },
        // How it ended is asked for again at once.
        |until, deadline| drop(database.wait_until(ticket(until), Some(deadline))),
        || open_outcome(OutcomeOpen::Deadline),
        || open_outcome(OutcomeOpen::Stopped),
    );
}

/// Answers clients who wait for a read view.
pub(super) fn answer_views(shared: &Shared) {
    let host = &*shared.host;
    answer(
        &shared.views,
        |until| (host.watermarks().visible >= until).then_some(Ok(())),
        |until, deadline| drop(host.wait_visible(until, deadline)),
        || Answer::Refused { reason: "the deadline passed before this was visible".to_owned() },
        || Answer::Refused { reason: "the node stopped".to_owned() },
    );
}
