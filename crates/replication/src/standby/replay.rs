//! Replay: hands what was received to the replay target, batch after batch, while the next ones flow in.

use std::collections::VecDeque;

use freshet_base::{
    Stamp,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

use super::Shared;

/// Why a batch could not be replayed. It stops the standby.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replay failed at {at}: {why}")]
pub struct ReplayError {
    /// Where in the log.
    pub at: Stamp,
    /// What is wrong, and what to do.
    pub why: String,
}

/// Makes a part of what was received durable ([`crate::log_access::StandbyStore::persist_share`]); for any thread.
pub type PersistShare = Arc<dyn Fn(Stamp, Stamp) + Send + Sync>;

/// What replays the log into tables.
pub trait ReplayTarget: Send + Sync {
    /// Replays all blocks in `[from, to)`; both are ends of blocks. `partition_ends` are ends of blocks in between, ascending, at which the work
    /// can be divided; the last is `to`. There may be as few as that one. Called by one thread, in order, without gaps except after a cut.
    ///
    /// # Errors
    /// [`ReplayError`], after which nothing is replayed any more.
    fn replay(&self, from: Stamp, to: Stamp, partition_ends: &[Stamp]) -> Result<(), ReplayError>;

    /// Makes `[from, to)` durable, by `share`, which does so for a part; the parts are those that [`ReplayTarget::replay`], which is called next with the
    /// same bounds, divides among the same threads (persist-upon-replay; Query Fresh, section 3.1). When it returns, all is durable.
    /// Only called where the log leaves that to replay.
    ///
    /// # Errors
    /// [`ReplayError`], after which nothing is replayed any more.
    fn persist(
        &self,
        from: Stamp,
        to: Stamp,
        partition_ends: &[Stamp],
        share: &PersistShare,
    ) -> Result<(), ReplayError> {
        let _ = partition_ends;
        share(from, to);
        Ok(())
    }

    /// Forgets everything that was replayed from blocks at and above `at`: the log was cut there. No reader has seen it.
    /// Called while nothing is being replayed.
    ///
    /// # Errors
    /// [`ReplayError`], after which nothing is replayed any more.
    fn cut(&self, at: Stamp) -> Result<(), ReplayError>;
}

/// Ends of blocks that wait for replay; when there are more, every second one is forgotten, which makes pieces longer.
const WAITING: usize = 1 << 16;
/// Where replay waits to be asked for, ends of blocks closer together than this are of no use.
const APART: u64 = 1 << 20;

pub(crate) struct ReplayStage {
    target: Arc<dyn ReplayTarget>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    /// Replayed, or being replayed, up to here.
    taken: Stamp,
    /// Ends of blocks beyond, ascending.
    ends: VecDeque<Stamp>,
    /// Nothing that begins here or beyond is replayed before somebody asks for it.
    until: Stamp,
    running: bool,
    held: bool,
    stopped: bool,
    failure: Option<ReplayError>,
}

impl Queue {
    /// One more end of a block. The last one gives way if it is not `apart` from the one before.
    fn push(&mut self, end: Stamp, apart: u64) {
        let before = self.ends.len().checked_sub(2).map_or(self.taken, |place| self.ends[place]);
        if let Some(last) = self.ends.back_mut().filter(|last| last.since(before) < apart) {
            *last = end;
            return;
        }
        if self.ends.len() >= WAITING {
            let mut number = 0;
            self.ends.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
        self.ends.push_back(end);
    }
}

impl ReplayStage {
    /// Replays by itself what begins below `until`; the rest when [`ReplayStage::finish`] asks for it.
    pub fn new(target: Arc<dyn ReplayTarget>, replayed: Stamp, received: Stamp, until: Stamp) -> Self {
        let ends = (received > replayed).then_some(received).into_iter().collect();
        let queue = Queue { taken: replayed, ends, until, running: false, held: false, stopped: false, failure: None };
        Self { target, queue: Mutex::new(queue), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics under this mutex")
    }

    /// A batch that ends with the last of `ends` was received.
    pub fn push(&self, ends: impl Iterator<Item = Stamp>) {
        let mut queue = self.lock();
        let idle = queue.ends.is_empty();
        let waits = queue.taken >= queue.until;
        for end in ends {
            queue.push(end, if waits { APART } else { 0 });
        }
        if idle && !waits {
            self.changed.notify_all();
        }
    }

    /// Has everything up to `to` replayed, and blocks until it is.
    ///
    /// # Errors
    /// [`ReplayError`] when replay has failed.
    pub fn finish(&self, to: Stamp) -> Result<(), ReplayError> {
        let mut queue = self.lock();
        if queue.until < to {
            queue.until = to;
            self.changed.notify_all();
        }
        loop {
            if let Some(failure) = &queue.failure {
                return Err(failure.clone());
            }
            if (queue.taken >= to && !queue.running) || queue.stopped {
                return Ok(());
            }
            queue = self.changed.wait(queue).expect("no code panics under this mutex");
        }
    }

    /// Forgets what lies at and above `at`, waiting for the batch that is being replayed. Returns how much of the
    /// rest is replayed.
    ///
    /// # Errors
    /// [`ReplayError`] when replay has failed, or the target cannot forget.
    pub fn cut(&self, at: Stamp) -> Result<Stamp, ReplayError> {
        let mut queue = self.lock();
        queue.held = true;
        while queue.running {
            queue = self.changed.wait(queue).expect("no code panics under this mutex");
        }
        queue.held = false;
        if let Some(failure) = &queue.failure {
            return Err(failure.clone());
        }
        if let Err(failure) = self.target.cut(at) {
            queue.failure = Some(failure.clone());
            return Err(failure);
        }
        queue.taken = queue.taken.min(at);
        queue.ends.retain(|end| *end < at);
        if queue.taken < at {
            queue.ends.push_back(at);
        }
        self.changed.notify_all();
        Ok(queue.taken)
    }

    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Blocks for the next piece of at most `limit` bytes (more if a single one is longer).
    fn next(&self, limit: u64, piece: &mut Vec<Stamp>) -> Option<Stamp> {
        let mut queue = self.lock();
        loop {
            if queue.stopped || queue.failure.is_some() {
                return None;
            }
            if !queue.held && !queue.ends.is_empty() && queue.taken < queue.until {
                break;
            }
            queue = self.changed.wait(queue).expect("no code panics under this mutex");
        }
        let from = queue.taken;
        piece.clear();
        while let Some(end) = queue.ends.front().copied() {
            if !piece.is_empty() && end.since(from) > limit {
                break;
            }
            piece.push(end);
            queue.ends.pop_front();
        }
        queue.taken = *piece.last().expect("there was one");
        queue.running = true;
        Some(from)
    }

    fn done(&self, outcome: Result<(), ReplayError>) {
        let mut queue = self.lock();
        queue.running = false;
        queue.failure = outcome.err();
        self.changed.notify_all();
    }
}

/// Persist-upon-replay: the threads that will replay the piece make it durable first, each its part; when all have, the primary hears of it, and replay
/// is off its commit path (Query Fresh, sections 3.1, 3.2 and 3.4.2).
fn persist(
    shared: &Arc<Shared>,
    share: &PersistShare,
    from: Stamp,
    to: Stamp,
    piece: &[Stamp],
) -> Result<(), ReplayError> {
    // Some of it may be, after a restart.
    if !shared.store.persists_upon_replay() || to <= shared.store.persisted() {
        return Ok(());
    }
    shared.replay.target.persist(from, to, piece, share)?;
    shared.store.note_persisted(to).map_err(|error| ReplayError { at: from, why: error.why })?;
    shared.show();
    shared.acknowledge(false);
    Ok(())
}

/// The replay thread.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut stint = shared.replay_cpu.begin();
    let mut piece = Vec::new();
    let share: PersistShare = {
        let store = Arc::clone(&shared.store);
        Arc::new(move |from, to| store.persist_share(from, to))
    };
    while let Some(from) = shared.replay.next(shared.config.replay_piece, &mut piece) {
        let to = *piece.last().expect("a piece has an end");
        let outcome =
            persist(shared, &share, from, to, &piece).and_then(|()| shared.replay.target.replay(from, to, &piece));
        if let Err(error) = &outcome {
            shared.follow.fail(error.to_string());
        } else {
            // Before `done`: a cut that follows must not be overtaken by this.
            shared.visible.set_replayed(to);
            shared.store.mark_replayed(to);
            shared.show();
        }
        shared.replay.done(outcome);
        shared.acknowledge(false);
        stint.note();
    }
}
