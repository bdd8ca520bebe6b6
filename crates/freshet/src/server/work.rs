//! Workers: threads that run procedures, each with its place in the engine.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use freshet_base::Lsn;
use freshet_engine::{StateHash, Worker};
use freshet_workloads::procedure::read_only;

use super::{Shared, completion::Pending, connection::Reply, procedures::CallError};
use crate::protocol::{Answer, Call};

/// A worker that had nothing to do for so long frees what it has kept.
const IDLE: Duration = Duration::from_millis(200);

/// What a worker is to do.
pub(super) enum Work {
    /// Runs a procedure as a transaction.
    Call { call: Call, deadline: Instant, reply: Reply },
    /// Hashes all records of a snapshot.
    Hash { at: Option<Lsn>, deadline: Instant, reply: Reply },
}

/// Work that waits for a worker.
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

/// The loop of a worker's thread.
pub(super) fn run(shared: &Shared, lane: &Lane) {
    let worker = match shared.host.database().worker() {
        Ok(worker) => worker,
        Err(cause) => panic!("a server is started with enough places for its workers: {cause}"),
    };
    let mut tidy = true;
    loop {
        match lane.next((!tidy).then_some(IDLE)) {
            Found::Work(work) => {
                tidy = false;
                one(shared, &worker, work);
            }
            Found::Nothing => {
                worker.collect_garbage();
                tidy = true;
            }
            Found::Stopped => return,
        }
    }
}

fn one(shared: &Shared, worker: &Worker, work: Work) {
    match work {
        Work::Call { call, deadline, reply } => {
            if Instant::now() >= deadline {
                let reason = "the deadline passed before the procedure was begun".to_owned();
                return reply.send(Answer::Refused { reason });
            }
            if !shared.host.database().wait_for_room(Some(deadline)) {
                let reason = "the deadline passed before enough was committed for the procedure to begin".to_owned();
                return reply.send(Answer::Refused { reason });
            }
            let Some(procedures) = &shared.procedures else { return };
            match procedures.run(shared.host.database(), worker, &call) {
                Ok((result, ticket)) => {
                    let answer = Answer::Committed { lsn: ticket.lsn, until: ticket.until, result };
                    match shared.host.database().outcome(ticket) {
                        Some(Ok(())) => reply.send(answer),
                        _ => shared.commits.push(Pending { until: ticket.until, deadline, reply, answer }),
                    }
                }
                Err(CallError::RolledBack(reason)) => reply.send(Answer::RolledBack { reason }),
                Err(CallError::Refused(reason)) => reply.send(Answer::Refused { reason }),
                Err(CallError::Open(reason)) => reply.send(Answer::OutcomeOpen { reason }),
            }
        }
        Work::Hash { at, deadline, reply } => {
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
    }
}
