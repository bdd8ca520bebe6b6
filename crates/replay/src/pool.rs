//! Replay by several threads: each takes every n-th partition (Query Fresh, section 3.4.2).

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use freshet_base::{Lsn, Stage, cpu::Meter};
use freshet_log::LogReader;
use freshet_storage::{Catalog, Participant, Participants};

use crate::{
    Redo, ReplayError,
    apply::{Applier, Deleted, Found},
    fill::{Records, fill_all},
    proof::{Difference, Proof, Proven},
};

/// Makes a part of the log durable; for any thread.
pub type PersistShare = Arc<dyn Fn(Lsn, Lsn) + Send + Sync>;

/// A range with its partitions, which the threads divide among themselves.
#[derive(Clone)]
struct Job {
    cuts: Arc<[Lsn]>,
    /// The parts are made durable, not replayed.
    persist: Option<PersistShare>,
}

impl Job {
    /// `[from, to)`, cut at those of `ends` that lie in between.
    fn new(from: Lsn, to: Lsn, ends: &[Lsn], persist: Option<PersistShare>) -> Self {
        let inside = ends.iter().copied().filter(|end| *end > from && *end < to);
        let cuts: Arc<[Lsn]> = std::iter::once(from).chain(inside).chain(std::iter::once(to)).collect();
        assert!(cuts.is_sorted_by(|a, b| a < b), "the parts of a range overlap: {cuts:?}");
        Self { cuts, persist }
    }
}

type Outcome = Result<Found, ReplayError>;

struct Helper {
    jobs: Option<Sender<Job>>,
    outcomes: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
}

/// What replay has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayStatistics {
    /// How many records were replayed, or passed over.
    pub records: u64,
    /// Bytes of log scanned.
    pub bytes: u64,
    /// Processor time of all replay threads.
    pub cpu: Duration,
    /// How much of that is not the calling thread's.
    pub helping: Duration,
}

/// The replay threads of a node. The thread that calls [`Replay::replay`] is one of them.
pub struct Replay {
    lead: Mutex<Lead>,
    threads: usize,
    records: AtomicU64,
    bytes: AtomicU64,
    /// Processor time of the threads that call.
    leading: Meter,
    /// And of those that help.
    helping: Arc<Meter>,
    deleted: Mutex<Vec<Deleted>>,
    /// What transactions carry, and where, that was not taken yet.
    messages: Mutex<Vec<(Lsn, Box<[u8]>)>>,
    /// Taken under `lead`, where both are.
    proof: Mutex<Proof>,
    differs: OnceLock<Difference>,
    prompt: bool,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) log: LogReader,
}

pub(crate) struct Lead {
    participant: Participant,
    applier: Applier,
    helpers: Vec<Helper>,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replay({} threads)", self.threads)
    }
}

impl Lead {
    pub(crate) fn parts(&mut self) -> (&Participant, &mut dyn Redo) {
        (&self.participant, &mut *self.applier.redo)
    }
}

/// Replays (or makes durable) every `step`-th part of the job, from the `first` on.
fn share(
    applier: &mut Applier,
    participant: &Participant,
    job: &Job,
    first: usize,
    step: usize,
    cpu: &Meter,
) -> Outcome {
    freshet_base::step!(Replay, job.cuts[0], job.cuts[0]);
    let mut stint = cpu.begin();
    let mut found = Found::of(job.cuts[0]);
    let mut parts = job.cuts.windows(2).skip(first).step_by(step);
    if let Some(persist) = &job.persist {
        parts.for_each(|part| persist(part[0], part[1]));
    } else {
        // Pinned for a few parts at a time, so that nodes of the indexes can go in between.
        while applier.parts(&participant.pin_without_snapshot(), &mut parts, &mut found)? {}
    }
    stint.note();
    Ok(found)
}

impl Replay {
    /// Replay by `threads` threads in all (at least one). Below `checkpoint_end`, where the
    /// checkpoint ends with which this node began, changes enter the indexes as insertions do: the
    /// checkpoint has left out what was changed while it was written. `redo` says for each thread
    /// what it does to records.
    ///
    /// # Panics
    /// When there are not enough participants' places, or a thread cannot be made: a node sets
    /// both up when it starts.
    pub fn new(
        threads: usize,
        catalog: &Arc<Catalog>,
        participants: &Arc<Participants>,
        log: &LogReader,
        checkpoint_end: Lsn,
        redo: &dyn Fn() -> Box<dyn Redo>,
    ) -> Self {
        let threads = threads.max(1);
        let applier = || Applier::new(Arc::clone(catalog), log.clone(), checkpoint_end, redo());
        let helping = Arc::new(Meter::default());
        let helpers = (1..threads)
            .map(|number| {
                let (jobs, inbox) = channel::<Job>();
                let (outbox, outcomes) = channel();
                let participant = participants.join().expect("a place for every replay thread");
                let (mut applier, cpu) = (applier(), Arc::clone(&helping));
                let thread = std::thread::Builder::new()
                    .name(Stage::Replay.thread(number))
                    .spawn(move || {
                        for job in inbox {
                            let outcome = share(&mut applier, &participant, &job, number, threads, &cpu);
                            drop(job);
                            if outbox.send(outcome).is_err() {
                                break;
                            }
                        }
                    })
                    .expect("a thread for replay");
                Helper { jobs: Some(jobs), outcomes, thread: Some(thread) }
            })
            .collect();
        let participant = participants.join().expect("a place for every replay thread");
        let applier = applier();
        Self {
            prompt: applier.redo.only_announces(),
            lead: Mutex::new(Lead { participant, applier, helpers }),
            threads,
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            leading: Meter::default(),
            helping,
            deleted: Mutex::new(Vec::new()),
            messages: Mutex::default(),
            proof: Mutex::new(Proof::new(checkpoint_end)),
            differs: OnceLock::new(),
            catalog: Arc::clone(catalog),
            log: log.clone(),
        }
    }

    /// Whether replaying a short range takes no longer than looking at it.
    pub fn is_prompt(&self) -> bool {
        self.prompt
    }

    /// How many threads replay.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Replays `[from, to)`, cut into parts at `ends`, which are block boundaries in ascending
    /// order; those outside the range are passed over. When this returns, all of the range is
    /// replayed.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn replay(&self, from: Lsn, to: Lsn, ends: &[Lsn]) -> Result<(), ReplayError> {
        freshet_base::step!(Replay, from, to);
        if from >= to {
            return Ok(());
        }
        // What is below a mark first, and all of that: it is the state there that is compared.
        let mut at = from;
        let marks = self.proof().marks_in(from, to);
        for end in marks.into_iter().chain([to]) {
            assert!(at <= end && end <= to, "the mark {end} is not between {at} and {to}");
            if at < end {
                let mut lead = self.lead();
                let mut found = self.divide(&mut lead, &Job::new(at, end, ends, None))?;
                let Lead { participant, applier, .. } = &mut *lead;
                let guard = participant.pin_without_snapshot();
                applier.finish(&guard, &mut found)?;
                drop(guard);
                if self.catalog.take_unfilled() {
                    fill_all(&self.catalog, participant, &Records(self.log.clone()))?;
                }
                let differs = self.proof().replayed(&participant.pin_without_snapshot(), end, &found, &self.catalog);
                if let Some(differs) = differs {
                    self.differs.get_or_init(|| differs);
                }
                self.records.fetch_add(found.records, Relaxed);
                self.bytes.fetch_add(found.bytes, Relaxed);
                if !found.messages.is_empty() {
                    self.messages.lock().unwrap_or_else(PoisonError::into_inner).append(&mut found.messages);
                }
                if !found.deleted.is_empty() {
                    self.deleted.lock().unwrap_or_else(PoisonError::into_inner).append(&mut found.deleted);
                }
            }
            at = end;
            if end < to {
                self.proof().take_down(end, &self.catalog);
            }
        }
        self.sweep(to);
        Ok(())
    }

    /// Continues with the beginning of the state's sums, now that all below `to` is replayed.
    fn sweep(&self, to: Lsn) {
        if self.proof().is_sweeping() {
            let lead = self.lead();
            self.proof().sweep(&lead.participant, to);
        }
    }

    /// A mark has arrived at `at`, which is not replayed yet.
    pub fn expect_mark(&self, at: Lsn) {
        self.proof().expect(at);
    }

    /// What has come of comparing this node's state with the primary's.
    pub fn proven(&self) -> Proven {
        self.proof().proven()
    }

    /// How the state differs from the primary's, if it does. Cheap.
    pub fn difference(&self) -> Option<&Difference> {
        self.differs.get()
    }

    pub(crate) fn proof(&self) -> MutexGuard<'_, Proof> {
        self.proof.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `[from, to)` durable by the threads that replay, each the parts that it would replay
    /// of the same range, by `share`. When this returns, all shares are done.
    pub fn persist(&self, from: Lsn, to: Lsn, ends: &[Lsn], share: &PersistShare) {
        if from < to {
            let done = self.divide(&mut self.lead(), &Job::new(from, to, ends, Some(Arc::clone(share))));
            debug_assert!(done.is_ok(), "nothing is replayed");
        }
    }

    /// Has all threads do their parts of a job.
    fn divide(&self, lead: &mut Lead, job: &Job) -> Outcome {
        freshet_base::step!(Replay);
        let Lead { participant, applier, helpers } = lead;
        // A short range is not worth waking anybody for.
        let helping = if job.cuts.len() > 2 { helpers.as_slice() } else { &[] };
        assert_eq!(helpers.len() + 1, self.threads, "a replay thread is missing");
        for helper in helping {
            helper.jobs.as_ref().expect("open until dropped").send(job.clone()).expect("helpers live as long as this");
        }
        let bytes = job.cuts[job.cuts.len() - 1].since(job.cuts[0]);
        let mut outcome = share(applier, participant, job, 0, helping.len() + 1, &self.leading);
        for helper in helping {
            let theirs = helper.outcomes.recv().expect("helpers live as long as this");
            match (&mut outcome, theirs) {
                (Ok(found), Ok(theirs)) => found.merge(theirs),
                (Ok(_), Err(error)) => outcome = Err(error),
                (Err(_), _) => {}
            }
        }
        let done = outcome.as_ref().map_or(bytes, |found| found.bytes);
        assert!(done == bytes || job.persist.is_some(), "{done} bytes of {bytes} were replayed");
        outcome
    }

    /// What transactions carry that were replayed since the last call, each with its address, in no
    /// order.
    pub fn take_messages(&self) -> Vec<(Lsn, Box<[u8]>)> {
        std::mem::take(&mut self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The processor time of the helper threads, which they note themselves.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.helping
    }

    pub(crate) fn lead(&self) -> MutexGuard<'_, Lead> {
        self.lead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that live replay has seen deleted since the last call: their remains go
    /// when every snapshot sees the deletion.
    pub fn take_deleted(&self) -> Vec<Deleted> {
        std::mem::take(&mut self.deleted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Totals since the start.
    pub fn statistics(&self) -> ReplayStatistics {
        let helping = self.helping.total();
        ReplayStatistics {
            records: self.records.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            cpu: self.leading.total() + helping,
            helping,
        }
    }

    /// Deletions that were not taken yet and lie at or above `at`, where the log is cut, never
    /// happened.
    pub(crate) fn drop_deleted(&self, at: Lsn) {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner).retain(|deleted| deleted.tombstone < at);
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let lead = self.lead.get_mut().unwrap_or_else(PoisonError::into_inner);
        for helper in &mut lead.helpers {
            helper.jobs = None;
            if let Some(thread) = helper.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use freshet_log::{Log, Persistence};

    use super::*;
    use crate::Announce;

    /// Each thread persists what it would replay, and all is done when the call returns.
    #[test]
    fn the_work_of_persisting_is_divided_as_replay_is() {
        let participants = Participants::new(8);
        let (log, _receiver) = Log::receive(4096, Persistence::None, Lsn::ZERO).unwrap();
        let (catalog, log) = (Arc::new(Catalog::new()), log.reader());
        let replay = Replay::new(3, &catalog, &participants, &log, Lsn::ZERO, &|| Box::new(Announce));
        let shares = Arc::new(Mutex::new(Vec::new()));
        let share: PersistShare = {
            let shares = Arc::clone(&shares);
            Arc::new(move |from, to| shares.lock().unwrap().push((from.0, to.0, std::thread::current().id())))
        };
        let ends: Vec<Lsn> = (1..=9).map(|part| Lsn(part * 100)).collect();
        replay.persist(Lsn(0), Lsn(900), &ends, &share);
        let mut found = std::mem::take(&mut *shares.lock().unwrap());
        found.sort_unstable_by_key(|(from, ..)| *from);
        let ranges: Vec<_> = found.iter().map(|(from, to, _)| (*from, *to)).collect();
        assert_eq!(ranges, (0..9).map(|part| (part * 100, part * 100 + 100)).collect::<Vec<_>>());
        for number in 0..3 {
            let own: HashSet<_> = found.iter().skip(number).step_by(3).map(|(.., thread)| *thread).collect();
            assert_eq!(own.len(), 1, "every third part is one thread's");
        }
        assert_eq!(found.iter().map(|(.., thread)| *thread).collect::<HashSet<_>>().len(), 3);
        // What is short is not worth waking anybody for; nothing is nothing.
        replay.persist(Lsn(900), Lsn(950), &[Lsn(950)], &share);
        replay.persist(Lsn(950), Lsn(950), &[], &share);
        assert_eq!(shares.lock().unwrap().as_slice(), [(900, 950, std::thread::current().id())]);
    }
}
