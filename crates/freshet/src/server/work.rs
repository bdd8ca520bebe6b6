//! The worker: a thread with its place in the engine that hashes all records of snapshots.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use freshet_base::Lsn;
use freshet_engine::{StateHash, Worker};
use freshet_workloads::procedure::read_only;

use super::{Shared, completion::Pending, connection::Reply};
use crate::protocol::Answer;

/// A worker that had nothing to do for so long frees what it has kept.
const IDLE: Duration = Duration::from_millis(200);

/// Hashes all records of a snapshot.
pub(super) struct Work {
    /// Not before everything below this is visible here.
    pub at: Option<Lsn>,
    pub deadline: Instant,
    pub reply: Reply,
}

/// Work that waits for the worker.
#[derive(Default)]
pub(super) struct Lane {
    waiting: Mutex<Waiting>,
    some: Condvar,
}

#[derive(Default)]
struct Waiting {
    work: VecDeque<Work>,
    stopped: bool,
}

/// What came of looking for work.
enum Found {
    Work(Work),
    Nothing,
    Stopped,
}

impl Lane {
    pub(super) fn push(&self, work: Work) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).work.push_back(work);
        self.some.notify_one();
    }

    pub(super) fn stop(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.some.notify_all();
    }

    /// The next piece of work; nothing when none has come within `patience`.
    fn next(&self, patience: Option<Duration>) -> Found {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if waiting.stopped {
                return Found::Stopped;
            }
            if let Some(work) = waiting.work.pop_front() {
                return Found::Work(work);
            }
            waiting = match patience {
                None => self.some.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let (waiting, late) =
                        self.some.wait_timeout(waiting, patience).unwrap_or_else(PoisonError::into_inner);
                    if late.timed_out() && waiting.work.is_empty() && !waiting.stopped {
                        return Found::Nothing;
                    }
                    waiting
                }
            };
        }
    }
}

/// The loop of the worker's thread.
pub(super) fn run(shared: &Shared) {
    let worker = match shared.host.database().worker() {
        Ok(worker) => worker,
        Err(cause) => panic!("a server is started with a place for its worker: {cause}"),
    };
    let mut tidy = true;
    loop {
        match shared.hashes.next((!tidy).then_some(IDLE)) {
            Found::Work(work) => {
                tidy = false;
                hash(shared, &worker, work);
            }
            Found::Nothing => {
                worker.collect_garbage();
                tidy = true;
            }
            Found::Stopped => return,
        }
    }
}

fn hash(shared: &Shared, worker: &Worker, Work { at, deadline, reply }: Work) {
    if let Some(hashed) = shared.host.rehearsed(at, deadline) {
        return reply.send(match hashed {
            Ok(StateHash { at, hash, records }) => Answer::Hash { at, hash, records },
            Err(reason) => Answer::Refused { reason },
        });
    }
    if let Some(at) = at
        && let Err(reason) = shared.host.wait_visible(at, deadline)
    {
        return reply.send(Answer::Refused { reason });
    }
    let hashed = read_only(worker, |transaction| Ok(StateHash::of(transaction)?));
    match hashed {
        Ok((StateHash { at, hash, records }, ticket)) => {
            let answer = Answer::Hash { at, hash, records };
            shared.commits.push(Pending { until: ticket.until, deadline, reply, answer });
        }
        Err(cause) => reply.send(Answer::Refused { reason: cause.to_string() }),
    }
}
