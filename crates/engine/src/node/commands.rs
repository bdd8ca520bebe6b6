//! Command logging on a standby, a baseline for benchmarks: transactions are executed again (Query
//! Fresh, section 4.3, "Logical").
//!
//! What was loaded before the first command is replayed record by record, as always. One thread
//! executes all commands in the order of their stamps; of several, each takes every n-th partition,
//! so a partition's commands keep their order. Versions get the stamps that they have on the
//! primary, so readers need know nothing of all this. What was executed cannot be taken back: a log
//! that is cut ends it.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use freshet_base::{Stamp, cpu::Meter};
use freshet_replay::Command;
use freshet_replication::standby::ReplayError;
use freshet_txn::{Core, ProcedureError, RETRIES, Transaction, Worker};

/// Executes stored procedures again, for a standby with [`Apply::Command`](super::Apply::Command).
pub trait CommandExecutor: Send + Sync {
    /// Does within `transaction` what procedure `procedure` does when it is told `inputs`; does not
    /// commit. Called by several threads for different partitions.
    ///
    /// # Errors
    /// Why it cannot be done. When that may pass it is tried again; else the standby stops.
    fn execute(&self, transaction: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError>;
}

type Outcome = Result<(), ReplayError>;

struct Thread {
    jobs: Option<Sender<Vec<Command>>>,
    outcomes: Mutex<Receiver<Outcome>>,
    thread: Option<JoinHandle<()>>,
}

/// The threads that execute commands.
pub(super) struct Executors {
    threads: Vec<Thread>,
}

impl Executors {
    /// `core` comes when the node is composed; commands wait for it.
    pub fn start(
        count: usize,
        executor: &Arc<dyn CommandExecutor>,
        core: &Arc<OnceLock<Arc<Core>>>,
        meter: &Arc<Meter>,
    ) -> Result<Self, String> {
        let thread = |number: usize| {
            let (jobs, inbox) = channel();
            let (outbox, outcomes) = channel();
            let (executor, core, meter) = (Arc::clone(executor), Arc::clone(core), Arc::clone(meter));
            let thread = std::thread::Builder::new()
                .name(format!("execute-{number}"))
                .spawn(move || run(&*executor, &core, &meter, inbox, &outbox))
                .map_err(|cause| format!("cannot start a thread: {cause}"))?;
            Ok(Thread { jobs: Some(jobs), outcomes: Mutex::new(outcomes), thread: Some(thread) })
        };
        Ok(Self { threads: (0..count.max(1)).map(thread).collect::<Result<_, String>>()? })
    }

    /// Executes commands, which are in the order of their stamps; returns when all are done.
    pub fn execute(&self, commands: Vec<Command>) -> Outcome {
        let Some(at) = commands.first().map(|command| command.stamp) else { return Ok(()) };
        let mut shares: Vec<Vec<Command>> = self.threads.iter().map(|_| Vec::new()).collect();
        let count = shares.len() as u64;
        for command in commands {
            shares[(command.partition % count) as usize].push(command);
        }
        let ended = || ReplayError { at, why: "a thread that executes commands has ended".into() };
        for (thread, share) in self.threads.iter().zip(shares) {
            thread.jobs.as_ref().ok_or_else(ended)?.send(share).map_err(|_| ended())?;
        }
        let outcome = |thread: &Thread| {
            thread.outcomes.lock().unwrap_or_else(PoisonError::into_inner).recv().unwrap_or_else(|_| Err(ended()))
        };
        // All are waited for, whatever becomes of the first.
        let outcomes: Vec<Outcome> = self.threads.iter().map(outcome).collect();
        outcomes.into_iter().collect()
    }
}

impl Drop for Executors {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            thread.jobs = None;
            if let Some(thread) = thread.thread.take() {
                // A panic there was reported already.
                let _ = thread.join();
            }
        }
    }
}

fn run(
    executor: &dyn CommandExecutor,
    core: &OnceLock<Arc<Core>>,
    meter: &Meter,
    inbox: Receiver<Vec<Command>>,
    outbox: &Sender<Outcome>,
) {
    let mut worker: Option<Worker> = None;
    let mut stint = meter.begin();
    for commands in inbox {
        let outcome = commands.iter().try_for_each(|command| {
            if worker.is_none() {
                let made = Worker::new(core.wait());
                worker = Some(made.map_err(|cause| failed(command.stamp, &cause))?);
            }
            worker.as_ref().map_or(Ok(()), |worker| execute(executor, worker, command))
        });
        stint.note();
        if outbox.send(outcome).is_err() {
            break;
        }
    }
}

fn failed(at: Stamp, cause: &dyn std::fmt::Display) -> ReplayError {
    ReplayError { at, why: format!("a command cannot be executed again: {cause}") }
}

fn execute(executor: &dyn CommandExecutor, worker: &Worker, command: &Command) -> Outcome {
    let mut tries = 0;
    loop {
        let transaction = worker.begin_again(command.stamp);
        match executor.execute(&transaction, command.procedure, &command.inputs) {
            Ok(()) => {
                transaction.commit_again(command.length);
                return Ok(());
            }
            Err(cause) => {
                transaction.roll_back();
                tries += 1;
                if !cause.is_retryable() || tries == RETRIES {
                    return Err(failed(command.stamp, &cause));
                }
                std::thread::yield_now();
            }
        }
    }
}
