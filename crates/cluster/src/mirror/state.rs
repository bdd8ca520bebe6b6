//! Of a mirror: what it knows of its memory, and what follows from that: whether it is a state of
//! the database, whether the mirror has a vote, whether it has to begin again.
//!
//! A mirror that is late, or cannot be cut back, begins from a checkpoint, which is fuzzy: with the
//! log from its start up to its end, the *floor*, it is a state of the database. Below the floor
//! the mirror is no member, is no candidate, and is not read.
//!
//! A mirror that begins with nothing may have acknowledged more in an earlier life. That was
//! another incarnation ([`crate::in_sync::Holder`]), and a candidate counts on none but the
//! recorded ones. So what a mirror has of its present life may be compared with what others have,
//! as a log may.

use freshet_base::{Lsn, NodeId};
use serde::{Deserialize, Serialize};

use crate::{
    entering::{Entered, Held},
    term::{Agreement, TermHistory, TermState},
};

/// What a mirror knows of its memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MirrorState {
    me: NodeId,
    /// Commits may count on it.
    synchronous: bool,
    end: Lsn,
    /// The primary of this connection has announced that everything below is committed.
    announced: Lsn,
    fetched: Lsn,
    floor: Lsn,
    /// See [`MirrorState::owes`].
    owes: Lsn,
    stale: bool,
    /// It is to be given up, and has no vote.
    silent: bool,
}

/// What has become of a memory that was to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cut {
    /// It ends where it should.
    Done,
    /// It ends before: the mirror asks once more, from there.
    Below(Lsn),
    /// What it has up to here cannot be undone.
    Above(Lsn),
}

impl MirrorState {
    /// The mirror `me`, in whose memory nothing is.
    pub fn new(me: NodeId, synchronous: bool) -> Self {
        Self {
            me,
            synchronous,
            end: Lsn::ZERO,
            announced: Lsn::ZERO,
            fetched: Lsn::ZERO,
            floor: Lsn::ZERO,
            owes: Lsn::ZERO,
            stale: false,
            silent: false,
        }
    }

    /// An earlier process has left the memory, which was recovered up to `end`; with the floor that
    /// was noted.
    #[must_use]
    pub fn found(self, end: Lsn, floor: Lsn) -> Self {
        Self { end, floor, ..self }
    }

    /// What this node has, for [`crate::entering`]; the rest as for [`MirrorState::committed`].
    pub fn held(&self, mark: Lsn, state: &TermState) -> Held {
        let (end, floor, acknowledged) = (self.end, self.floor, self.committed(mark, state));
        Held { node: self.me, end, floor, acknowledged, needs_primary: self.synchronous }
    }

    /// The same, and what the mirror [`owes`](MirrorState::owes).
    #[must_use]
    pub fn owing(self, owes: Lsn) -> Self {
        Self { owes, ..self }
    }

    /// It had everything up to here when it was cut last, and may have acknowledged that. Where it
    /// has less, a candidate must not count on it for what lies between
    /// ([`crate::promotion::LogState::owes`]).
    pub fn owes(&self) -> Lsn {
        self.owes
    }

    /// The memory has everything up to here, as far as this node knows.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// How far this node has the log, for a candidate. A candidate may itself have got more than it
    /// could put into its memory: the beginning of a transaction that no node has wholly.
    pub fn reaches(&self) -> Lsn {
        self.end.max(self.fetched)
    }

    /// What is here is a state of the database if it has everything up to here.
    pub fn floor(&self) -> Lsn {
        self.floor
    }

    /// Whether the memory is a state of the database.
    pub fn is_state(&self) -> bool {
        self.end >= self.floor
    }

    /// Whether a candidate may compare what is here with what others have.
    pub fn has_vote(&self) -> bool {
        !self.silent && self.is_state()
    }

    /// Whether nothing is here that can be continued.
    pub fn is_of_no_use(&self) -> bool {
        self.stale || self.end == Lsn::ZERO
    }

    /// Up to where what is here is known to be committed; nothing, if it is no state of the
    /// database. `mark` is the memory's. A primary may have announced more. `state` is what this
    /// node remembers.
    ///
    /// No other log is followed that has less of it: all that acknowledged it may have lost it.
    pub fn committed(&self, mark: Lsn, state: &TermState) -> Lsn {
        match self.is_state() {
            true => mark.max(self.announced.max(state.committed).min(self.end)),
            false => Lsn::ZERO,
        }
    }

    /// The primary of this connection has announced that everything below is committed.
    pub fn announced(&self) -> Lsn {
        self.announced
    }

    /// Whether the memory may be given up for what a log with the history `theirs` has up to `end`:
    /// `ours` is that of the memory, where everything below `committed` is committed.
    pub fn may_be_given_up(&self, committed: Lsn, ours: &TermHistory, (theirs, end): (&TermHistory, Lsn)) -> bool {
        let common = theirs.agreement(end, ours, self.end.max(committed));
        committed == Lsn::ZERO || matches!(common, Agreement::Upto(at) if at >= committed)
    }

    /// Where a fuzzy snapshot of the memory begins, in which everything up to `stays_to` stays;
    /// none if it is no state of the database there.
    pub fn fuzzy_snapshot_from(&self, stays_to: Option<Lsn>) -> Option<Lsn> {
        stays_to.filter(|start| *start >= self.floor && *start > Lsn::ZERO)
    }

    /// What is here is about to be given up: it has no vote from now on.
    pub fn silence(&mut self) {
        self.silent = true;
    }

    /// Nothing is here any more, and what begins is another incarnation.
    pub fn forgotten(&mut self) {
        self.silent = false;
        (self.end, self.floor, self.owes, self.stale) = (Lsn::ZERO, Lsn::ZERO, Lsn::ZERO, false);
    }

    /// A checkpoint is in the memory: the log is needed from `start` on, and it is a state of the
    /// database with the log up to `end`.
    pub fn seeded(&mut self, start: Lsn, end: Lsn) {
        (self.end, self.floor) = (start, end);
    }

    /// The primary announces that everything up to `to` has completed, and that everything below
    /// `committed` is.
    pub fn observe(&mut self, to: Lsn, committed: Lsn) {
        self.end = self.end.max(to);
        self.announced = self.announced.max(committed);
    }

    /// The memory was brought to the end of a batch.
    pub fn recovered(&mut self, end: Lsn) {
        self.end = end;
    }

    /// What is here cannot be continued, since the log is gone from its end on, or cannot be cut
    /// back: it is kept until another node gives more. Says whether it was stale before.
    pub fn goes_stale(&mut self) -> bool {
        std::mem::replace(&mut self.stale, true)
    }

    /// A feed begins that continues what is here: the memory is the sender's from now on, and what
    /// another one has announced counts no more.
    pub fn linked(&mut self, entered: Entered) {
        (self.stale, self.announced) = (false, Lsn::ZERO);
        let (end, cut) = (self.end, entered.cut_at());
        assert!(end <= cut, "the memory ends at {end}, and was to be cut at {cut}");
    }

    /// A candidate has got all of the log up to `to`, or is about to begin.
    pub fn fetched(&mut self, to: Lsn) {
        self.fetched = to;
    }

    /// The memory was to be cut at `at`, and ends at `end` now. Whole batches are undone, so that
    /// it may end below `at`, and below what this mirror has acknowledged, which it then
    /// [`owes`](MirrorState::owes). The next process has to know, too: `at` is noted before
    /// anything is undone.
    pub fn cut(&mut self, at: Lsn, end: Lsn) -> Cut {
        (self.end, self.owes) = (end, at);
        match end {
            end if end == at => Cut::Done,
            end if end < at => Cut::Below(end),
            end => Cut::Above(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::{ClusterId, Term};

    use super::*;
    use crate::handshake::Welcome;

    fn new() -> MirrorState {
        MirrorState::new(NodeId(2), true)
    }

    #[test]
    fn a_checkpoint_is_a_state_of_the_database_at_its_end() {
        let mut it = new();
        assert!(it.is_of_no_use() && it.has_vote(), "it holds all that it ever had, which is nothing");
        it.seeded(Lsn(100), Lsn(200));
        assert!(!it.is_of_no_use());
        for (to, is_state) in [(150, false), (200, true)] {
            it.observe(Lsn(to), Lsn::ZERO);
            assert_eq!((it.is_state(), it.has_vote()), (is_state, is_state), "at {to}");
        }
        assert_eq!(it.fuzzy_snapshot_from(Some(Lsn(199))), None, "below the floor");
        assert_eq!(it.fuzzy_snapshot_from(Some(Lsn(200))), Some(Lsn(200)));
        it.silence();
        assert!(it.is_state() && !it.has_vote());
        it.forgotten();
        assert_eq!((it.end(), it.floor(), it.has_vote()), (Lsn::ZERO, Lsn::ZERO, true));
    }

    #[test]
    fn what_was_noted_is_found() {
        let is_state = |end| new().found(Lsn(end), Lsn(200)).is_state();
        assert_eq!([is_state(199), is_state(200)], [false, true]);
    }

    #[test]
    fn a_memory_is_cut_where_it_can_be() {
        let mut it = new().found(Lsn(300), Lsn::ZERO);
        assert_eq!(it.cut(Lsn(200), Lsn(250)), Cut::Above(Lsn(250)));
        assert_eq!(it.cut(Lsn(200), Lsn(200)), Cut::Done);
        assert_eq!(it.cut(Lsn(200), Lsn(150)), Cut::Below(Lsn(150)));
        assert_eq!((it.end(), it.is_state(), it.owes()), (Lsn(150), true, Lsn(200)), "it may have acknowledged that");
        it.forgotten();
        assert_eq!(it.owes(), Lsn::ZERO);
    }

    #[test]
    fn a_candidate_has_asked_for_more_than_it_has() {
        let mut it = new().found(Lsn(300), Lsn::ZERO);
        it.fetched(Lsn(320));
        assert_eq!((it.end(), it.reaches()), (Lsn(300), Lsn(320)));
    }

    /// What one primary has announced says nothing of the log of another.
    #[test]
    fn what_was_announced_ends_with_the_connection() {
        let history = TermHistory::first(Term(1), NodeId(1), 1);
        let welcome = Welcome {
            cluster: ClusterId(7),
            node: NodeId(1),
            above: Vec::new(),
            term: Term(1),
            history,
            cut_at: Lsn(300),
            end: Lsn(350),
            keep_alive_ms: 10,
            lease_ms: 0,
        };
        let mut it = new().found(Lsn(300), Lsn::ZERO);
        let state = crate::term::TermState::of(ClusterId(7), welcome.history.clone());
        let mut entering = crate::entering::Entering::to_follow(&it.held(Lsn(100), &state), &welcome, &state).unwrap();
        while let Some(effect) = entering.next_effect() {
            entering.done(effect);
        }
        let entered = entering.finish();
        it.linked(entered);
        it.observe(Lsn(340), Lsn(320));
        assert_eq!((it.committed(Lsn(100), &state), it.committed(Lsn(330), &state)), (Lsn(320), Lsn(330)));
        assert_eq!(it.committed(Lsn(100), &state), Lsn(320), "it is committed all the same");
        it.recovered(Lsn(300));
        it.linked(entered);
        assert_eq!((it.committed(Lsn(100), &state), it.end()), (Lsn(100), Lsn(300)));
    }
}
