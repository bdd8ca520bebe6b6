//! What a node says of its log.

use std::time::Duration;

use freshet_base::{Lsn, NodeId, Term};
use serde::{Deserialize, Serialize};

use crate::{
    in_sync::InSyncSet,
    promotion::Testimony,
    term::{Living, TermEntry, TermHistory, TermState},
};

/// What a node says of its log when a candidate consults it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogState {
    /// Its terms.
    pub history: TermHistory,
    /// Where its persistent part ends.
    pub end: Lsn,
    /// The newest in-sync set that it knows of.
    pub set: Option<InSyncSet>,
    /// Whether commits may count on it: an asynchronous standby has no vote.
    pub synchronous: bool,
    /// What of it the node knows to be committed: as the primary, or because a primary has said so.
    pub committed: Lsn,
    /// Whether it has the log itself, for others to continue theirs. A mirror has what that made.
    pub log: bool,
    /// Which log of that node this is:
    /// [`Holder::incarnation`](crate::in_sync::Holder::incarnation).
    pub incarnation: u64,
    /// Which ones its directory had before ([`crate::term::TermState::former`]).
    pub former: Vec<u64>,
    /// It may have acknowledged everything below, also if that lies beyond its end now
    /// ([`crate::mirror::MirrorState::owes`]).
    pub owes: Lsn,
    /// What is left of the lease that it has granted to the primary of before.
    pub lease: Duration,
}

impl LogState {
    /// What the synchronous node `node` has, which knows that its log, up to `end`, is committed up
    /// to `committed`; `terms` is what it remembers.
    pub fn of(terms: TermState, node: NodeId, end: Lsn, committed: Lsn) -> Self {
        let incarnation = terms.holder(node).incarnation;
        let TermState { history, set, former, .. } = terms;
        let (owes, lease) = (Lsn::ZERO, Duration::ZERO);
        Self { history, end, set, synchronous: true, committed, log: true, incarnation, former, owes, lease }
    }

    /// What is left of it to be said if it must not be compared.
    pub fn testimony(self) -> Testimony {
        let Self { history, set, incarnation, former: mut incarnations, lease, .. } = self;
        incarnations.push(incarnation);
        let granted = history.entries().last().map(|entry| Living { term: entry.term, node: entry.node });
        Testimony { incarnations, set, lease, granted }
    }

    /// The later term wins, then the longer log. What counts is the term of the last block that is
    /// there, not a later term that the node has only heard of.
    pub(super) fn rank(&self) -> (Term, Lsn) {
        self.rank_by(None)
    }

    /// The same for what was written up to the term of `newest`: not in later ones, nor in another
    /// node's term of that number.
    pub(super) fn rank_by(&self, newest: Option<&InSyncSet>) -> (Term, Lsn) {
        let beside = |entry: &&TermEntry| newest.is_some_and(|set| entry.term >= set.term && !set.is_of(entry));
        let from = self.history.entries().iter().find(beside).map_or(Lsn::MAX, |entry| entry.start);
        let end = self.end.min(from);
        (self.history.cut(end).last_term(), end)
    }

    /// Whether it holds a block of the term that wrote this set.
    pub(super) fn has_some_of(&self, set: &InSyncSet) -> bool {
        self.has_some(|entry| set.is_of(entry))
    }

    /// Whether it holds a block of such a term.
    pub(super) fn has_some(&self, is_such: impl Fn(&TermEntry) -> bool) -> bool {
        self.history.cut(self.end).entries().iter().any(is_such)
    }

    /// The latest term that it speaks of: its own, or that of a set which it was told of before it
    /// followed that term. No candidate begins an earlier one.
    pub(super) fn latest_term(&self) -> Term {
        self.history.last_term().max(self.set.as_ref().map_or(Term(0), |set| set.term))
    }

    /// The term in which its last block was written.
    pub(super) fn written_in(&self) -> Option<TermEntry> {
        self.history.cut(self.end).entries().last().copied()
    }
}
