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

    /// Makes `[from, to)` durable, by `share`, which does so for a part; the parts are those that
    /// [`ReplayTarget::replay`], which is called next with the same bounds, divides among the same threads
    /// (persist-upon-replay; Query Fresh, section 3.1). When it returns, all is durable. Only called where the log
    /// leaves that to replay.
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

    /// Whether replaying a short range of rows takes no longer than looking at them: then the receiving thread may do it.
    fn is_prompt(&self) -> bool {
        false
    }

    /// Forgets everything that was replayed from blocks at and above `at`: the log was cut there. No reader has seen it.
    /// Called while nothing is being replayed.
    ///
    /// # Errors
    /// [`ReplayError`], after which nothing is replayed any more.
    fn cut(&self, at: Stamp) -> Result<(), ReplayError>;
}

/// A batch up to this size, in bytes, may be replayed by the receiving thread.
const SHORT: u32 = 64 << 10;
/// Ends of blocks that wait for replay; when there are more, every second one is forgotten, which makes pieces longer.
const WAITING: usize = 1 << 16;
/// Where replay waits to be asked for, ends of blocks closer together than this are of no use.
const APART: u64 = 1 << 20;

pub(crate) struct ReplayStage {
    target: Arc<dyn ReplayTarget>,
    /// Makes a part of the log durable.
    share: PersistShare,
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
    /// So many wait until nothing is being replayed.
    waiting: u32,
    held: bool,
    stopped: bool,
    failure: Option<ReplayError>,
}

impl Queue {
    /// Whether there is something to replay, and nobody does or must not.
    fn is_ready(&self) -> bool {
        !self.running && !self.held && !self.ends.is_empty() && self.taken < self.until
    }

    /// Takes the next piece of at most `limit` bytes (more if a single one is longer); it is being replayed from now on.
    fn take(&mut self, limit: u64, piece: &mut Vec<Stamp>) -> Stamp {
        let from = self.taken;
        piece.clear();
        while let Some(end) = self.ends.front().copied() {
            if !piece.is_empty() && end.since(from) > limit {
                break;
            }
            piece.push(end);
            self.ends.pop_front();
        }
        self.taken = *piece.last().expect("there was one");
        self.running = true;
        from
    }

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
    pub fn new(
        target: Arc<dyn ReplayTarget>,
        share: PersistShare,
        replayed: Stamp,
        received: Stamp,
        until: Stamp,
    ) -> Self {
        let queue = Queue {
            taken: replayed,
            ends: (received > replayed).then_some(received).into_iter().collect(),
            until,
            running: false,
            waiting: 0,
            held: false,
            stopped: false,
            failure: None,
        };
        Self { target, share, queue: Mutex::new(queue), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics under this mutex")
    }

    /// A batch that ends with the last of `ends` was received. With `at_once`, if nothing is being replayed and nothing else waits for it, its ends are put
    /// into `piece`, and it is the caller's to replay from the stamp that is returned.
    pub fn push(&self, ends: impl Iterator<Item = Stamp>, at_once: bool, piece: &mut Vec<Stamp>) -> Option<Stamp> {
        let mut queue = self.lock();
        let idle = queue.ends.is_empty();
        let waits = queue.taken >= queue.until;
        for end in ends {
            queue.push(end, if waits { APART } else { 0 });
        }
        if at_once && idle && queue.is_ready() && queue.failure.is_none() && !queue.stopped {
            return Some(queue.take(u64::MAX, piece));
        }
        if idle && !waits {
            self.changed.notify_all();
        }
        None
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
            queue.waiting += 1;
            queue = self.changed.wait(queue).expect("no code panics under this mutex");
            queue.waiting -= 1;
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
            queue.waiting += 1;
            queue = self.changed.wait(queue).expect("no code panics under this mutex");
            queue.waiting -= 1;
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
            if queue.is_ready() {
                return Some(queue.take(limit, piece));
            }
            queue = self.changed.wait(queue).expect("no code panics under this mutex");
        }
    }

    fn done(&self, outcome: Result<(), ReplayError>) {
        let mut queue = self.lock();
        queue.running = false;
        queue.failure = outcome.err();
        if queue.waiting > 0 || queue.is_ready() || queue.failure.is_some() {
            self.changed.notify_all();
        }
    }
}

/// Replays a piece that was taken from the queue. With persist-upon-replay, the threads that will replay it make it durable first, each its part;
/// when all have, the primary hears of it, and replay is off its commit path (Query Fresh, sections 3.1, 3.2 and 3.4.2).
fn carry_out(shared: &Shared, from: Stamp, piece: &[Stamp]) {
    let stage = &shared.replay;
    let to = *piece.last().expect("a piece has an end");
    let outcome = persist(shared, from, to, piece).and_then(|()| stage.target.replay(from, to, piece));
    if let Err(error) = &outcome {
        shared.follow.fail(error.to_string());
    } else {
        // Before `done`: a cut that follows must not be overtaken by this.
        shared.visible.set_replayed(to);
        shared.store.mark_replayed(to);
        shared.show();
    }
    stage.done(outcome);
    shared.acknowledge(false);
}

fn persist(shared: &Shared, from: Stamp, to: Stamp, piece: &[Stamp]) -> Result<(), ReplayError> {
    // Some of it may be, after a restart.
    if !shared.store.persists_upon_replay() || to <= shared.store.persisted() {
        return Ok(());
    }
    shared.replay.target.persist(from, to, piece, &shared.replay.share)?;
    shared.store.note_persisted(to).map_err(|error| ReplayError { at: from, why: error.why })?;
    shared.show();
    shared.acknowledge(false);
    Ok(())
}

/// A batch was received; `plain` is how many bytes it has, if they are rows and marks only. When that is short, and nothing else is being replayed or waits
/// for it, the receiving thread replays it at once: no other has to wake up for it.
pub(super) fn received(shared: &Shared, ends: impl Iterator<Item = Stamp>, plain: Option<u32>, piece: &mut Vec<Stamp>) {
    let at_once = plain.is_some_and(|length| length <= SHORT) && shared.replay.target.is_prompt();
    if let Some(from) = shared.replay.push(ends, at_once, piece) {
        let mut stint = shared.replay_cpu.begin();
        carry_out(shared, from, piece);
        stint.note();
    }
}

/// The replay thread.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut stint = shared.replay_cpu.begin();
    let mut piece = Vec::new();
    while let Some(from) = shared.replay.next(shared.config.replay_piece, &mut piece) {
        carry_out(shared, from, &piece);
        stint.note();
    }
}
