//! What binds replication to replay and to the control file.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use freshet_base::{NodeId, Stamp, Term};
use freshet_cluster::term::{Fence, Life, Reign, TermHistory, TermState};
use freshet_log::{Control, Log, LogDirectory};
use freshet_replay::{PersistShare, Replay};
use freshet_replication::{
    standby::{ReplayError, ReplayTarget},
    terms::{TermStore, TermStoreError},
    wire,
};
use freshet_txn::Messages;

use super::janitor::Janitor;

/// Replay, for the standby's coordinator.
pub(crate) struct LiveReplay {
    pub replay: Arc<Replay>,
    pub janitor: Arc<Janitor>,
    /// Where what transactions carry is entered.
    pub messages: Arc<Messages>,
    /// How far was replayed, or begun.
    pub end: AtomicU64,
    /// How far was replayed.
    pub replayed: Arc<AtomicU64>,
    /// Whether the node does anything about a state that differs but say so.
    pub acts: bool,
    /// That the state differs from the primary's was said.
    pub said: AtomicBool,
}

impl LiveReplay {
    /// How far was replayed, or begun.
    pub fn end(&self) -> Stamp {
        Stamp(self.end.load(Ordering::SeqCst))
    }

    /// Says once that the state differs from the primary's.
    fn compare(&self) {
        if let Some(difference) = self.replay.difference()
            && !self.said.swap(true, Ordering::SeqCst)
        {
            let follows = if self.acts {
                "it keeps its directory, has no vote, and serves no reader"
            } else {
                "nothing follows, as state-proof.only-report says"
            };
            tracing::error!(mark = difference.mark.0, tables = ?difference.tables, "{difference}: {follows}");
        }
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
        self.replayed.fetch_max(to.0, Ordering::SeqCst);
        self.compare();
        Ok(())
    }

    fn has_difference(&self) -> bool {
        self.replay.difference().is_some()
    }

    fn differs(&self) -> Option<String> {
        self.replay.difference().filter(|_| self.acts).map(ToString::to_string)
    }

    fn persist(&self, from: Stamp, to: Stamp, ends: &[Stamp], log: &Arc<Log>) {
        let log = Arc::clone(log);
        let share: PersistShare = Arc::new(move |from, to| log.persist_share(from, to));
        self.replay.persist(from, to, ends, &share);
    }

    fn is_prompt(&self) -> bool {
        self.replay.is_prompt()
    }

    fn processor_time(&self) -> Duration {
        self.replay.statistics().helping
    }

    fn cut(&self, at: Stamp) -> Result<(), ReplayError> {
        let end = self.end();
        if at < end {
            self.replayed.fetch_min(at.0, Ordering::SeqCst);
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
                control.life = state.life.map(|life| (life.number, life.reached, life.before));
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
    let life = control.life.map(|(number, reached, before)| Life { number, before, reached });
    Ok(TermState { cluster: Some(control.cluster), history, fence, set, reigned: control.reigned, life })
}
