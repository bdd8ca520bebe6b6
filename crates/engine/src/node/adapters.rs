//! What binds replication to replay and to the control file.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use freshet_base::{Lsn, NodeId, StateProof, Term};
use freshet_cluster::term::{Fence, Life, TermEntry, TermHistory, TermState};
use freshet_log::{Control, Log, LogDirectory};
use freshet_replay::{PersistShare, Replay};
use freshet_replication::{
    standby::{ReplayError, ReplayTarget},
    terms::{TermStore, TermStoreError},
    wire,
};
use freshet_txn::{Memory, Messages};

use super::garbage_collector::GarbageCollector;

/// Replay, for the standby's coordinator.
pub(crate) struct LiveReplay {
    pub replay: Arc<Replay>,
    pub garbage_collector: Arc<GarbageCollector>,
    /// Where what transactions carry is entered.
    pub messages: Arc<Messages>,
    /// How far was replayed, or begun.
    pub end: AtomicU64,
    /// How far was replayed.
    pub replayed: Arc<AtomicU64>,
    /// Where it is told when the state differs from the primary's.
    pub proof: Arc<StateProof>,
    /// Whether there is memory to replay into.
    pub room: Room,
}

/// How much memory tables may take, and up to where the log was replayed when that was looked at.
pub(crate) struct Room {
    memory: Arc<Memory>,
    looked: AtomicU64,
}

impl Room {
    pub fn of(memory: &Arc<Memory>) -> Self {
        Self { memory: Arc::clone(memory), looked: AtomicU64::new(0) }
    }

    /// Whether nothing is left, where the log is replayed up to `end`. Asked before each piece,
    /// which may be short.
    fn is_used_up(&self, end: u64) -> bool {
        let looked = self.looked.load(Ordering::Relaxed);
        if end.wrapping_sub(looked) < LOOK_AFTER && !self.memory.was_exhausted() {
            return false;
        }
        self.looked.store(end, Ordering::Relaxed);
        self.memory.is_exhausted()
    }
}

/// After how many bytes of log it is looked how much memory tables take.
const LOOK_AFTER: u64 = 64 << 10;

impl LiveReplay {
    /// How far was replayed, or begun.
    pub fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::SeqCst))
    }

    /// Notes what comparing with the primary has come to: a state that differs is in doubt.
    fn compare(&self) {
        if let Some(at) = self.replay.proven().equal_at {
            self.proof.note_equal(at);
        }
        if let Some(difference) = self.replay.difference()
            && self.proof.doubt(difference)
        {
            tracing::error!(mark = difference.mark.0, tables = ?difference.tables, "{difference}");
        }
    }
}

impl ReplayTarget for LiveReplay {
    fn replay(&self, from: Lsn, to: Lsn, partition_ends: &[Lsn]) -> Result<(), ReplayError> {
        freshet_base::step!(Replay, from, to);
        let before = self.end.fetch_max(to.0, Ordering::SeqCst);
        assert!(from < to && before == from.0, "replay was at {before}, and is handed {from} to {to}");
        let replayed = self.replay.replay(from, to, partition_ends);
        replayed.map_err(|cause| ReplayError { at: from, why: cause.to_string() })?;
        let messages = self.replay.take_messages();
        if !messages.is_empty() {
            self.messages.enter(messages);
        }
        let before = self.replayed.fetch_max(to.0, Ordering::SeqCst);
        assert!(before <= from.0, "{before} was replayed before, and {from} again");
        self.compare();
        Ok(())
    }

    fn persist(&self, from: Lsn, to: Lsn, ends: &[Lsn], log: &Arc<Log>) {
        let log = Arc::clone(log);
        let share: PersistShare = Arc::new(move |from, to| log.persist_share(from, to));
        self.replay.persist(from, to, ends, &share);
    }

    fn lacks_memory(&self) -> bool {
        self.room.is_used_up(self.end.load(Ordering::Relaxed))
    }

    fn is_prompt(&self) -> bool {
        self.replay.is_prompt()
    }

    fn processor_time(&self) -> Duration {
        self.replay.statistics().helping
    }

    fn cut(&self, at: Lsn) -> Result<(), ReplayError> {
        let end = self.end();
        if at < end {
            self.replayed.fetch_min(at.0, Ordering::SeqCst);
            let outcome = self.replay.cut(at, end);
            outcome.map_err(|cause| ReplayError { at, why: cause.to_string() })?;
            self.garbage_collector.cut(at);
            self.messages.cut(at);
            self.end.store(at.0, Ordering::SeqCst);
            let replayed = self.replayed.load(Ordering::SeqCst);
            assert!(replayed <= at.0, "the log is cut at {at}, and {replayed} is replayed");
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
                let entries = state.history.entries().iter();
                control.terms = entries
                    .map(|term_entry| (term_entry.term, term_entry.start, term_entry.node, term_entry.nonce))
                    .collect();
                control.in_sync = state.set.as_ref().map(wire::encode_set);
                control.led = state.led;
                control.life = state.life.map(|life| (life.number, life.reached, life.before));
                control.latest_term = (state.fence.highest(), state.fence.holder());
                // Before anything has begun, the directory has one that nobody is told of.
                control.incarnation = state.incarnation.or(control.incarnation);
                control.former.clone_from(&state.former);
                control.lease_ms = state.lease.as_millis() as u64;
            })
            .map_err(|cause| TermStoreError { why: cause.to_string() })
    }

    fn note_committed(&self, incarnation: Option<u64>, to: Lsn) {
        let text = format!("{to} {:016x}\n", incarnation.unwrap_or_default());
        replace(self.0.path(), ACKNOWLEDGED, &text);
    }

    fn remember(&self, addresses: &BTreeMap<String, Option<NodeId>>) {
        remember_nodes(self.0.path(), addresses);
    }

    fn recall(&self) -> BTreeMap<String, Option<NodeId>> {
        remembered(self.0.path())
    }
}

/// Where other nodes were reached last: a line for each address, with the node's id if it is known.
/// Without it, or with part of it, a node that starts may not find the others by itself.
const OTHER_NODES: &str = "other-nodes";

/// Notes where other nodes are. Nothing depends on it, so an error is passed over, and nothing is
/// synced.
fn remember_nodes(directory: &Path, addresses: &BTreeMap<String, Option<NodeId>>) {
    // Who was there before is not forgotten before another node is.
    let before = remembered(directory);
    let line = |(address, node): (&String, &Option<NodeId>)| match node.or(before.get(address).copied().flatten()) {
        Some(node) => format!("{address} {node}\n"),
        None => format!("{address}\n"),
    };
    replace(directory, OTHER_NODES, &addresses.iter().map(line).collect::<String>());
}

/// Puts `text` into a file of hints. Nothing is synced, and errors are passed over.
fn replace(directory: &Path, name: &str, text: &str) {
    let unfinished = directory.join(format!("{name}.new"));
    let written = freshet_base::private::write(&unfinished, text.as_bytes());
    let _ = written.and_then(|()| std::fs::rename(&unfinished, directory.join(name)));
}

/// Everything below this LSN of the log was acknowledged to clients, as far as was noted, and the
/// incarnation of the node that has that log. A node without it may give up what was acknowledged,
/// and keeps that aside.
const ACKNOWLEDGED: &str = "acknowledged";

/// What was noted there of this incarnation.
fn acknowledged(directory: &Path, incarnation: Option<u64>) -> Lsn {
    let text = std::fs::read_to_string(directory.join(ACKNOWLEDGED)).unwrap_or_default();
    let noted = text
        .trim()
        .split_once(' ')
        .filter(|(_, of)| u64::from_str_radix(of, 16).is_ok_and(|of| of == incarnation.unwrap_or_default()));
    noted.and_then(|(to, _)| to.parse().ok()).map_or(Lsn::ZERO, Lsn)
}

/// Where other nodes were reached last, as far as that was noted.
pub(super) fn remembered_nodes(directory: &Path) -> Vec<String> {
    remembered(directory).into_keys().collect()
}

fn remembered(directory: &Path) -> BTreeMap<String, Option<NodeId>> {
    let text = std::fs::read_to_string(directory.join(OTHER_NODES)).unwrap_or_default();
    let line = |line: &str| {
        let (address, node) = line.split_once(' ').unwrap_or((line, ""));
        (address.to_owned(), u64::from_str_radix(node, 16).ok().map(NodeId))
    };
    text.lines().filter(|line| line.contains(':')).map(line).collect()
}

/// What the control file says of terms. A history that holds nothing is that of an empty standby.
pub(super) fn term_state(control: &Control, directory: &Path) -> Result<TermState, String> {
    let term_entry = |(term, start, node, nonce): &(Term, Lsn, NodeId, u64)| TermEntry {
        term: *term,
        start: *start,
        node: *node,
        nonce: *nonce,
    };
    let entries: Vec<TermEntry> = control.terms.iter().map(term_entry).collect();
    let history = TermHistory::try_from(entries).map_err(|cause| cause.to_string())?;
    let highest = control.latest_term.0.max(history.last_term());
    let set = control.in_sync.as_deref().map(wire::decode_set).transpose();
    let set = set.map_err(|cause| cause.to_string())?;
    let fence = Fence::new(highest, control.latest_term.1);
    let life = control.life.map(|(number, reached, before)| Life { number, before, reached });
    let has_begun = control.log.is_some() || life.is_some() || control.witness;
    let mut state = TermState {
        cluster: Some(control.cluster),
        history,
        fence,
        set,
        led: control.led,
        life,
        incarnation: control.incarnation,
        former: control.former.clone(),
        lease: Duration::from_millis(control.lease_ms),
        committed: acknowledged(directory, control.incarnation),
    };
    if !has_begun {
        // A mirror's memory that is not kept ends with the process.
        state.lose_incarnation();
    }
    Ok(state)
}
