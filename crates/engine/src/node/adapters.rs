//! What binds replication to the log and to replay.

use std::{
    collections::BTreeSet,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use freshet_base::{ClusterId, NodeId, Stamp, Term, WaitError};
use freshet_cluster::term::{Fence, Reign, TermHistory, TermState};
use freshet_fabric::memory::{Region, Registered};
use freshet_log::{Control, Log, LogDirectory, LogReader, Receiver, RingMemory, Writer, inspect::save_tail};
use freshet_replay::Replay;
use freshet_replication::{
    log_access::{AcceptError, LogReadError, LogSource, OnMembers, StandbyStore, StoreError},
    primary::{CommitError, Primary},
    standby::{PersistShare, ReplayError, ReplayTarget},
    terms::{TermStore, TermStoreError},
    wire,
};
use freshet_txn::{CommitGate, Messages, OutcomeOpen};

use super::janitor::Janitor;

/// The primary's log, for its shippers.
pub(super) struct Shipped(pub LogReader);

impl LogSource for Shipped {
    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), LogReadError> {
        read_log(&self.0, at, into)
    }
}

fn read_log(reader: &LogReader, at: Stamp, into: &mut [u8]) -> Result<(), LogReadError> {
    reader.read(at, into).map_err(|cause| match cause {
        freshet_log::ReadError::Gone { at, capacity } => {
            LogReadError::Gone { at, oldest: Stamp(reader.filled().0.saturating_sub(capacity)) }
        }
        other => LogReadError::Failed { at, why: other.to_string() },
    })
}

/// Restores to a point in time are as exact as this.
const NOTE_TIME_EVERY: Duration = Duration::from_millis(100);

/// The commit rule, for transactions. When the log fails, no commit will hold any more.
pub(super) struct RuleGate {
    pub shipping: Arc<Primary>,
    pub log: Arc<Log>,
    /// No more of the log is to be uncommitted when a transaction begins to commit.
    pub uncommitted: u64,
}

impl RuleGate {
    fn open(&self, error: CommitError) -> OutcomeOpen {
        use freshet_cluster::commit_rule::Refusal;
        match error {
            CommitError::Deadline => OutcomeOpen::Deadline,
            CommitError::Stopped => match self.log.failure() {
                Some(failure) => OutcomeOpen::LogFailed(failure.to_string()),
                None => OutcomeOpen::Stopped,
            },
            CommitError::Refused(Refusal::Fenced { by }) => OutcomeOpen::Fenced(by),
            CommitError::Refused(refusal) => OutcomeOpen::Refused(refusal.to_string()),
        }
    }

    /// Ends the waits for commits when the log ends, and until then notes now and then in a log
    /// that grows what time it is. Returns when the log has ended.
    pub fn watch(&self, mut writer: Writer) {
        let mut noted = self.log.reserved();
        // No log reaches this stamp: the wait ends when the watermark is closed.
        while let Err(WaitError::Deadline) =
            self.log.durable_mark().wait(Stamp::MAX, Some(Instant::now() + NOTE_TIME_EVERY))
        {
            if self.log.reserved() > noted {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros() as u64);
                // If the log takes no more, it ends.
                noted = writer.note_time(now).unwrap_or(noted);
            }
        }
        self.shipping.commit().reached().close();
        self.shipping.commit().committed().close();
    }
}

impl CommitGate for RuleGate {
    fn committed(&self) -> Stamp {
        self.shipping.commit().committed().get()
    }

    fn admit(&self) -> Result<(), String> {
        self.shipping.commit().admit().map_err(|refusal| refusal.to_string())
    }

    fn wait_for_room(&self, deadline: Option<Instant>) -> bool {
        let until = Stamp(self.log.reserved().0.saturating_sub(self.uncommitted));
        if self.committed() >= until {
            return true;
        }
        // Some more than one transaction needs: a session that waits again for every transaction
        // pays for each wake-up.
        let until = until.plus(self.uncommitted / 64);
        self.log.nudge(until);
        !matches!(self.shipping.commit().wait(until, deadline), Err(CommitError::Deadline))
    }

    fn wait(&self, until: Stamp, deadline: Option<Instant>) -> Result<(), OutcomeOpen> {
        self.shipping.commit().wait(until, deadline).map_err(|error| self.open(error))
    }

    fn outcome(&self, until: Stamp) -> Option<Result<(), OutcomeOpen>> {
        if let Some(outcome) = self.shipping.commit().outcome(until) {
            return Some(outcome.map_err(|error| self.open(error)));
        }
        self.log.failure().map(|failure| Err(OutcomeOpen::LogFailed(failure.to_string())))
    }
}

/// A standby's log, for its receiving thread.
pub(super) struct ReceivedLog {
    pub log: Arc<Log>,
    /// Taken when this node becomes primary.
    pub receiver: Mutex<Option<Receiver>>,
    /// Where cut tails are saved; `None` in domain `none`.
    directory: Option<PathBuf>,
    capacity: u64,
    /// The checkpoint with which this node began counts on the log below this.
    floor: Stamp,
}

impl ReceivedLog {
    pub fn new(log: Log, receiver: Receiver, directory: Option<PathBuf>, capacity: usize, floor: Stamp) -> Self {
        Self { log: Arc::new(log), receiver: Mutex::new(Some(receiver)), directory, capacity: capacity as u64, floor }
    }

    fn with_receiver<T>(&self, use_it: impl FnOnce(&mut Receiver) -> T) -> Option<T> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(use_it)
    }

    fn cluster(&self) -> ClusterId {
        self.log.store().config().cluster
    }
}

/// The log buffer of a standby, for its primary to write into.
#[derive(Debug)]
struct Ring(RingMemory);

impl Registered for Ring {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.0.file()
    }
}

fn failed(why: impl std::fmt::Display) -> StoreError {
    StoreError { why: why.to_string() }
}

impl StandbyStore for ReceivedLog {
    fn received(&self) -> Stamp {
        self.log.received().get()
    }

    fn persisted(&self) -> Stamp {
        self.log.durable_mark().get()
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn free_until(&self) -> Stamp {
        self.log.free_until()
    }

    fn region(&self) -> Result<Region, StoreError> {
        Ok(Arc::new(Ring(self.log.shared_memory())))
    }

    fn revoke(&self) -> Result<(), StoreError> {
        // If the receiver was taken, the log has been promoted, which takes the memory back as
        // well.
        let outcome = self.with_receiver(Receiver::renew).unwrap_or(Ok(()));
        outcome.map_err(|cause| {
            let why = "cannot be moved to other memory, and a primary of before may still write there";
            failed(format!(
                "the log buffer {why}: {cause}; see that there is room for another one, and restart this node"
            ))
        })
    }

    fn grant(&self) -> Stamp {
        self.log.grant()
    }

    fn accept(&self, to: Stamp) -> Result<bool, AcceptError> {
        match self.with_receiver(|receiver| receiver.accept(to)) {
            Some(Ok(accepted)) => Ok(accepted.plain),
            Some(Err(freshet_log::AcceptError::Receive(cause))) => Err(failed(cause).into()),
            Some(Err(damaged)) => Err(AcceptError::Damaged(damaged.to_string())),
            None => Err(failed("this node is not a standby any more").into()),
        }
    }

    fn write(&self, at: Stamp, bytes: &[u8]) -> Result<(), StoreError> {
        let outcome = self.with_receiver(|receiver| {
            let mut place = receiver.writable(at, bytes.len() as u64).map_err(failed)?;
            place.copy_from(bytes);
            Ok(())
        });
        outcome.unwrap_or_else(|| Err(failed("this node is not a standby any more")))
    }

    fn transaction_end(&self, at: Stamp) -> Stamp {
        self.log.transaction_end(at)
    }

    fn mark_received(&self, to: Stamp) {
        self.with_receiver(|receiver| receiver.received_to(to));
    }

    fn on_members(&self, note: OnMembers) {
        self.log.on_members(note);
    }

    fn mark_replayed(&self, to: Stamp) {
        self.log.note_replayed(to);
    }

    fn persists_upon_replay(&self) -> bool {
        self.log.persists_upon_replay()
    }

    fn persist_share(&self, from: Stamp, to: Stamp) {
        self.log.persist_share(from, to);
    }

    fn note_persisted(&self, to: Stamp) -> Result<(), StoreError> {
        self.log.note_persisted(to).map_err(failed)
    }

    fn wait_persisted(&self, beyond: Stamp, patience: Duration) -> Result<Stamp, StoreError> {
        match self.log.durable_mark().wait(beyond.plus(1), Some(Instant::now() + patience)) {
            Ok(stamp) => Ok(stamp),
            Err(WaitError::Deadline) => Ok(self.log.durable_mark().get()),
            Err(WaitError::Closed) => Err(match self.log.failure() {
                Some(failure) => failed(failure),
                None => failed("the log is closed"),
            }),
        }
    }

    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), LogReadError> {
        read_log(&self.log.reader(), at, into)
    }

    fn save_tail(&self, from: Stamp) -> Result<Option<PathBuf>, StoreError> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let to = self.received();
        if from >= to {
            return Ok(None);
        }
        self.log.durable_mark().wait(to, None).map_err(failed)?;
        // It is saved from the segments.
        self.log.wait_stored(to).map_err(failed)?;
        let path = (0..)
            .map(|number: u32| directory.join(format!("tail-{:020}-{number}.saved", from.0)))
            .find(|path| !path.exists())
            .expect("some number is free");
        save_tail(&path, self.cluster(), self.log.store(), from, to).map_err(failed)?;
        Ok(Some(path))
    }

    fn cut(&self, at: Stamp) -> Result<(), StoreError> {
        if at < self.floor.min(self.received()) {
            return Err(failed(format!(
                "the cluster's log is another from {at} on, and this node's checkpoint holds what was before up to {}: \
                 empty its directory and let it join again",
                self.floor
            )));
        }
        match self.with_receiver(|receiver| receiver.cut(at)) {
            Some(outcome) => outcome.map_err(failed),
            None => Err(failed("this node is not a standby any more")),
        }
    }
}

/// Replay, for the standby's coordinator.
pub(crate) struct LiveReplay {
    pub replay: Arc<Replay>,
    pub(super) janitor: Arc<Janitor>,
    /// Where what transactions carry is entered.
    pub(super) messages: Arc<Messages>,
    /// How far was replayed, or begun.
    pub(super) end: AtomicU64,
}

impl LiveReplay {
    /// How far was replayed, or begun.
    pub fn end(&self) -> Stamp {
        Stamp(self.end.load(Ordering::SeqCst))
    }
}

impl ReplayTarget for LiveReplay {
    fn replay(&self, from: Stamp, to: Stamp, partition_ends: &[Stamp]) -> Result<(), ReplayError> {
        self.end.fetch_max(to.0, Ordering::SeqCst);
        let replayed = self.replay.replay(from, to, partition_ends);
        replayed.map_err(|cause| ReplayError { at: from, why: cause.to_string() })?;
        let messages = self.replay.take_messages();
        if !messages.is_empty() {
            self.messages.enter(messages);
        }
        Ok(())
    }

    fn persist(&self, from: Stamp, to: Stamp, ends: &[Stamp], share: &PersistShare) -> Result<(), ReplayError> {
        self.replay.persist(from, to, ends, share);
        Ok(())
    }

    fn is_prompt(&self) -> bool {
        self.replay.is_prompt()
    }

    fn cut(&self, at: Stamp) -> Result<(), ReplayError> {
        let end = self.end();
        if at < end {
            let outcome = self.replay.cut(at, end);
            outcome.map_err(|cause| ReplayError { at, why: cause.to_string() })?;
            self.janitor.cut(at);
            self.messages.cut(at);
            self.end.store(at.0, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Terms in the control file.
pub(super) struct ControlTerms(pub Arc<LogDirectory>);

impl TermStore for ControlTerms {
    fn save(&self, state: &TermState) -> Result<(), TermStoreError> {
        self.0
            .update(|control| {
                let reigns = state.history.reigns().iter();
                control.terms = reigns.map(|reign| (reign.term, reign.start, reign.node)).collect();
                control.in_sync = state.set.as_ref().map(wire::encode);
                control.reigned = state.reigned;
                control.heard = (state.fence.highest(), state.fence.holder());
            })
            .map_err(|cause| TermStoreError { why: cause.to_string() })
    }

    fn remember(&self, addresses: &BTreeSet<String>) {
        remember_nodes(self.0.path(), addresses);
    }
}

/// Where other nodes were reached last: a line for each address. Without it, or with part of it, a
/// node that starts may not find the others by itself.
const OTHER_NODES: &str = "other-nodes";

/// Notes where other nodes are. Nothing depends on it, so an error is passed over, and nothing is
/// synced.
fn remember_nodes(directory: &Path, addresses: &BTreeSet<String>) {
    let text: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    let unfinished = directory.join("other-nodes.new");
    let written = freshet_base::private::write(&unfinished, text.as_bytes());
    let _ = written.and_then(|()| std::fs::rename(&unfinished, directory.join(OTHER_NODES)));
}

/// Where other nodes were reached last, as far as that was noted.
pub(super) fn remembered_nodes(directory: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join(OTHER_NODES)).unwrap_or_default();
    text.lines().filter(|line| line.contains(':')).map(str::to_owned).collect()
}

/// What the control file says of terms. A history that holds nothing is that of an empty standby.
pub(super) fn term_state(control: &Control) -> Result<TermState, String> {
    let reign = |(term, start, node): &(Term, Stamp, NodeId)| Reign { term: *term, start: *start, node: *node };
    let reigns: Vec<Reign> = control.terms.iter().map(reign).collect();
    let history = TermHistory::try_from(reigns).map_err(|cause| cause.to_string())?;
    let highest = control.heard.0.max(history.last_term());
    let set = control.in_sync.as_deref().map(|bytes| wire::decode("in-sync set", bytes)).transpose();
    let set = set.map_err(|cause| cause.to_string())?;
    let fence = Fence::new(highest, control.heard.1);
    Ok(TermState { cluster: Some(control.cluster), history, fence, set, reigned: control.reigned })
}
