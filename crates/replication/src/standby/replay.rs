//! Replay: hands what was received to the replay target, piece after piece, while the next ones
//! flow in, and shows readers what they may see of that.

use std::time::Duration;

use freshet_base::{Lsn, sync::Arc};
use freshet_cluster::follower::{Decision, Event, Piece};
use freshet_log::Log;

use super::{ReplayMode, Shared, State};
use crate::forms::Regenerate;

/// Why a batch could not be replayed. It stops the standby.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replay failed at {at}: {why}")]
pub struct ReplayError {
    /// Where in the log.
    pub at: Lsn,
    /// What is wrong, and what to do.
    pub why: String,
}

/// What replays the log into tables.
pub trait ReplayTarget: Send + Sync {
    /// Replays all blocks in `[from, to)`; both are ends of blocks. `partition_ends` are ends of
    /// blocks in between, ascending, at which the work can be divided; the last is `to`. There may
    /// be as few as that one. Called by one thread, in order, without gaps except after a cut.
    ///
    /// # Errors
    /// [`ReplayError`], after which nothing is replayed any more.
    fn replay(&self, from: Lsn, to: Lsn, partition_ends: &[Lsn]) -> Result<(), ReplayError>;

    /// Makes `[from, to)` of `log` durable, by [`Log::persist_share`] for each part; the threads
    /// that replay divide the parts among themselves (persist-upon-replay; Query Fresh, section
    /// 3.1). When it returns, all is durable. Only called where the log leaves that to replay.
    fn persist(&self, from: Lsn, to: Lsn, partition_ends: &[Lsn], log: &Arc<Log>) {
        let _ = partition_ends;
        log.persist_share(from, to);
    }

    /// Whether there is no memory to replay any more into. What was begun is finished. Cheap; asked
    /// before each piece.
    fn lacks_memory(&self) -> bool {
        false
    }

    /// Whether replaying a short range of rows takes no longer than looking at them: then the
    /// receiving thread may do it.
    fn is_prompt(&self) -> bool {
        false
    }

    /// What regenerates blocks that come in another form, if this target can do that.
    fn regenerates(&self) -> Option<Arc<dyn Regenerate>> {
        None
    }

    /// The processor time so far of threads that replay or regenerate, without the thread that
    /// calls.
    fn processor_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Forgets everything that was replayed from blocks at and above `at`: the log was cut there.
    /// No reader has seen it. Called while nothing is being replayed.
    ///
    /// # Errors
    /// [`ReplayError`], after which nothing is replayed any more.
    fn cut(&self, at: Lsn) -> Result<(), ReplayError>;
}

/// How often it is looked whether there is memory again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A batch up to this size, in bytes, may be replayed by the receiving thread.
const SHORT: u32 = 64 << 10;

impl Shared {
    /// Has everything up to `to` replayed, and blocks until it is.
    ///
    /// # Errors
    /// [`ReplayError`] when replay has failed.
    pub(crate) fn finish_replay(&self, to: Lsn) -> Result<(), ReplayError> {
        let mut state = self.state();
        // Whatever memory that takes.
        if state.follower.replay_until(to) {
            self.store.changed.notify_all();
        }
        while state.failure.is_none() && state.follower.replayed() < to && !self.stopping() {
            state = self.wait(state);
        }
        state.failure.clone().map_or(Ok(()), Err)
    }

    /// Blocks for the next piece of at most `limit` bytes (more if a single block is longer).
    fn next_piece(&self, limit: u64) -> Option<Piece> {
        let mut state = self.state();
        loop {
            if self.stopping() || state.failure.is_some() {
                return None;
            }
            self.mind_memory(&mut state);
            if let Some(piece) = state.follower.next_piece(limit) {
                freshet_base::step!(Replay, piece.from, piece.from);
                return Some(piece);
            }
            state = if state.follower.lacks_memory() {
                self.store.changed.wait_timeout(state, LOOK_EVERY).expect("no code panics under this mutex").0
            } else {
                self.store.changed.wait(state).expect("no code panics under this mutex")
            };
        }
    }

    /// Looks whether there is memory to replay into. Without, nothing is replayed until there is,
    /// or until a failover wants it; what is received is kept in the log's files, and acknowledged
    /// no more: as of a standby that makes nothing durable, commits soon wait for it no longer.
    fn mind_memory(&self, state: &mut State) {
        let lacks = self.store.target.lacks_memory();
        if lacks == state.follower.lacks_memory() || self.store.config.replay == ReplayMode::None {
            return;
        }
        let files = self.store.log.has_store();
        state.follower.set_lacks_memory(lacks, files);
        let replayed = state.follower.replayed().0;
        if lacks {
            // What is not replayed is read from the files.
            if files {
                self.store.log.note_replayed(Lsn::MAX);
            }
            tracing::warn!(
                lsn = replayed,
                "this standby has no memory left for its tables, and replays no more: it receives and keeps the log, \
                 and acknowledges nothing; raise memory-bytes, or give it more memory"
            );
        } else {
            tracing::info!(lsn = replayed, "this standby has memory for its tables again, and replays");
        }
    }

    /// Replays a piece that was taken.
    fn replay_piece(&self, piece: &Piece) {
        let Piece { from, ref ends } = *piece;
        let to = *ends.last().expect("a piece has an end");
        freshet_base::step!(Replay, from, to);
        assert!(from < to && to <= self.store.log.received().get(), "what is replayed, up to {to}, is not in the log");
        let outcome = self.persist_received(ends).and_then(|()| self.store.target.replay(from, to, ends));
        match outcome {
            Ok(()) => {
                // Before a cut that follows, which waits for this piece.
                self.store.log.note_replayed(to);
                let decision = {
                    let mut state = self.state();
                    let decision = self.apply(&mut state, Event::Replayed(to));
                    if state.waiting > 0 || state.follower.is_replay_ready() {
                        self.store.changed.notify_all();
                    }
                    decision
                };
                self.carry_out(decision);
                self.acknowledge(false);
            }
            Err(error) => {
                let why = error.to_string();
                self.replay_failed(&mut self.state(), error);
                self.follow.fail(why);
            }
        }
    }

    /// Tells the follower what has happened, and has readers see what they may.
    /// [`Shared::carry_out`] does the rest, without the mutex.
    pub(super) fn apply(&self, state: &mut State, event: Event) -> Decision {
        freshet_base::step!(Visible);
        let now = self.clock.now();
        let decision = state.follower.apply(event, now);
        if let Some(show) = decision.show {
            let to = show.end(|at| self.store.log.transaction_end(at));
            if state.follower.shown(to) {
                self.store.visible.advance(to);
                state.passage.visible(to, now);
            }
        }
        decision
    }

    /// Nothing is replayed any more.
    pub(super) fn replay_failed(&self, state: &mut State, error: ReplayError) {
        state.follower.replay_failed();
        state.failure = Some(error);
        self.store.changed.notify_all();
    }

    /// With persist-upon-replay, the threads that replay make all that was received durable before
    /// they replay any more of it, each its parts; when all have, the primary hears of it, and
    /// replay is off its commit path (Query Fresh, sections 3.1, 3.2 and 3.4.2).
    fn persist_received(&self, piece: &[Lsn]) -> Result<(), ReplayError> {
        if !self.store.log.persists_upon_replay() {
            return Ok(());
        }
        let mut ends = piece.to_vec();
        self.state().follower.waiting(&mut ends);
        let (from, to) = (self.store.log.durable(), *ends.last().expect("a piece has an end"));
        assert!(to <= self.store.log.received().get(), "what is persisted, up to {to}, was not received");
        // It may be already, after a restart, or with the piece before.
        if from < to {
            self.store.target.persist(from, to, &ends, &self.store.log);
            self.store.log.note_persisted(to).map_err(|error| ReplayError { at: from, why: error.to_string() })?;
            self.acknowledge(false);
        }
        Ok(())
    }

    /// A batch was received; `plain` is how many bytes it has, if they are rows and marks only.
    /// When that is short, and nothing else is being replayed or waits for it, the receiving thread
    /// replays it at once: no other has to wake up for it.
    pub(super) fn accepted(&self, ends: &[Lsn], plain: Option<u32>) {
        freshet_base::step!(Receive);
        let at_once = plain.is_some_and(|length| length <= SHORT) && self.store.target.is_prompt();
        let (decision, piece) = {
            let mut state = self.state();
            let decision = state.follower.accepted(ends);
            let (received, log) = (state.follower.received(), self.store.log.received().get());
            assert!(received == log || self.store.forms.is_some(), "{received} is known of a log up to {log}");
            let taken = if decision.replay && at_once && !self.stopping() && !self.store.target.lacks_memory() {
                state.follower.next_piece(u64::MAX)
            } else {
                None
            };
            if decision.replay && taken.is_none() {
                self.store.changed.notify_all();
            }
            (decision, taken)
        };
        self.carry_out(decision);
        if let Some(piece) = piece {
            // What is persistent as soon as it is received; replay is not on the commit's path.
            self.acknowledge(false);
            let mut stint = self.store.replay_cpu.begin();
            self.replay_piece(&piece);
            stint.note();
        }
    }
}

/// The replay thread.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut stint = shared.store.replay_cpu.begin();
    while let Some(piece) = shared.next_piece(shared.store.config.replay_piece) {
        shared.replay_piece(&piece);
        stint.note();
    }
}
