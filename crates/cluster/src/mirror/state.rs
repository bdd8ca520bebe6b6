//! Holding: what a mirror knows of its memory, and what follows from that: whether it is a state of
//! the database, whether the mirror has a vote, whether it has to begin again.
//!
//! A mirror that is late, or cannot be cut back, begins from a checkpoint, which is fuzzy: with the
//! log from its start up to its end, the *floor*, it is a state of the database. Below the floor
//! the mirror is no member, is no candidate, and is not read.
//!
//! A mirror that begins with nothing may have acknowledged more in an earlier life. It *owes* what
//! the first primary had when it came, and has no vote before it holds that. Then the debt is
//! paid, whatever is cut later. A primary whose log is shorter has all the same everything that was
//! committed, so the mirror owes no more than that.

use freshet_base::Lsn;

use crate::term::{Agreement, TermHistory};

/// What a mirror knows of its memory.
#[derive(Clone, Debug, Default)]
pub struct MirrorState {
    end: Lsn,
    fetched: Lsn,
    floor: Lsn,
    stale: bool,
    owed: Option<Lsn>,
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
    /// A memory that an earlier process has left, which was recovered up to `end`; with the floor
    /// that was noted, and whether it was whole.
    pub fn found(end: Lsn, (floor, whole): (Lsn, bool)) -> Self {
        Self { end, floor, owed: whole.then_some(Lsn::ZERO), ..Self::default() }
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

    /// Whether nothing that this node may ever have acknowledged is missing here.
    pub fn is_whole(&self) -> bool {
        self.owed.is_some_and(|owed| owed <= self.end) && self.is_state()
    }

    /// Whether nothing is here that can be continued.
    pub fn is_of_no_use(&self) -> bool {
        self.stale || self.end == Lsn::ZERO
    }

    /// Up to where what is here is known to be committed; nothing, if it is no state of the
    /// database, which nobody could use. `mark` is the memory's, and a primary has announced that
    /// everything below `announced` is. The checkpoint that the memory was begun from was committed
    /// up to its end.
    ///
    /// No other log is followed that has less of it: all that acknowledged it may have lost it.
    pub fn committed(&self, mark: Lsn, announced: Lsn) -> Lsn {
        match self.is_state() {
            true => mark.max(announced.min(self.end)).max(self.floor),
            false => Lsn::ZERO,
        }
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
        self.owed = None;
    }

    /// Nothing is here any more.
    pub fn forgotten(&mut self) {
        self.silence();
        (self.end, self.floor, self.stale) = (Lsn::ZERO, Lsn::ZERO, false);
    }

    /// A checkpoint is in the memory: the log is needed from `start` on, and it is a state of the
    /// database with the log up to `end`.
    pub fn seeded(&mut self, start: Lsn, end: Lsn) {
        (self.end, self.floor) = (start, end);
    }

    /// A primary has the log up to `end` when this node comes.
    pub fn owes(&mut self, end: Lsn) {
        self.owed = Some(self.owed.map_or(end, |owed| owed.min(end)));
        self.pay();
    }

    fn pay(&mut self) {
        if self.is_whole() {
            self.owed = Some(Lsn::ZERO);
        }
    }

    /// The primary, whose log reaches `primary_end`, says that everything up to `to` has completed.
    pub fn observe(&mut self, to: Lsn, primary_end: Lsn) {
        self.end = self.end.max(to);
        self.owed.get_or_insert(primary_end);
        self.pay();
    }

    /// The memory was brought to the end of a batch.
    pub fn recovered(&mut self, end: Lsn) {
        self.end = end;
        self.pay();
    }

    /// What is here cannot be continued, since the log is gone from its end on, or cannot be cut
    /// back: it is kept until another node gives more. Says whether it was stale before.
    pub fn goes_stale(&mut self) -> bool {
        std::mem::replace(&mut self.stale, true)
    }

    /// A feed begins that continues what is here.
    pub fn continues(&mut self) {
        self.stale = false;
    }

    /// A candidate has got all of the log up to `to`, or is about to begin.
    pub fn fetched(&mut self, to: Lsn) {
        self.fetched = to;
    }

    /// Whether what was begun from is a part of the log with the history `theirs`, however far that
    /// reaches now; `ours` is that of the memory.
    pub fn begins_in(&self, theirs: &TermHistory, ours: &TermHistory) -> bool {
        let checkpoint = theirs.agreement(Lsn::MAX, ours, self.floor);
        !matches!(checkpoint, Agreement::Upto(at) if at < self.floor)
    }

    /// The memory was to be cut at `at`, and ends at `end` now.
    pub fn cut(&mut self, at: Lsn, end: Lsn) -> Cut {
        self.end = end;
        match end {
            end if end == at => Cut::Done,
            end if end < at => Cut::Below(end),
            end => Cut::Above(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::{NodeId, Term};

    use super::*;
    use crate::term::TermEntry;

    #[test]
    fn a_checkpoint_is_a_state_of_the_database_at_its_end() {
        let mut it = MirrorState::default();
        assert!(it.is_of_no_use() && !it.is_whole());
        it.seeded(Lsn(100), Lsn(200));
        it.owes(Lsn(250));
        assert!(!it.is_of_no_use());
        for (to, is_state, is_whole) in [(150, false, false), (200, true, false), (250, true, true)] {
            it.observe(Lsn(to), Lsn(900));
            assert_eq!((it.is_state(), it.is_whole()), (is_state, is_whole), "at {to}");
        }
        assert_eq!(it.fuzzy_snapshot_from(Some(Lsn(199))), None, "below the floor");
        assert_eq!(it.fuzzy_snapshot_from(Some(Lsn(200))), Some(Lsn(200)));
        it.silence();
        assert!(it.is_state() && !it.is_whole());
        it.forgotten();
        assert_eq!((it.end(), it.floor()), (Lsn::ZERO, Lsn::ZERO));
    }

    /// Another log is shorter than the one that it had all of.
    #[test]
    fn one_that_was_whole_has_a_vote_when_it_is_cut() {
        let mut it = MirrorState::default();
        it.owes(Lsn(300));
        it.recovered(Lsn(300));
        assert_eq!((it.cut(Lsn(200), Lsn(200)), it.is_whole()), (Cut::Done, true));
        // Or it had not all, and the rest is of no log any more.
        let mut it = MirrorState::default();
        it.owes(Lsn(300));
        it.recovered(Lsn(250));
        assert_eq!((it.cut(Lsn(200), Lsn(200)), it.is_whole()), (Cut::Done, false));
        it.owes(Lsn(220));
        it.observe(Lsn(210), Lsn(400));
        assert!(!it.is_whole());
        it.observe(Lsn(220), Lsn(400));
        assert!(it.is_whole());
    }

    #[test]
    fn what_was_noted_is_found() {
        let state = |end, whole| {
            let found = MirrorState::found(Lsn(end), (Lsn(200), whole));
            (found.is_state(), found.is_whole())
        };
        assert_eq!(
            [state(199, true), state(200, true), state(200, false)],
            [(false, false), (true, true), (true, false)]
        );
    }

    #[test]
    fn a_memory_is_cut_where_it_can_be() {
        let mut it = MirrorState::found(Lsn(300), (Lsn::ZERO, true));
        assert_eq!(it.cut(Lsn(200), Lsn(250)), Cut::Above(Lsn(250)));
        assert_eq!(it.cut(Lsn(200), Lsn(200)), Cut::Done);
        assert_eq!(it.cut(Lsn(200), Lsn(150)), Cut::Below(Lsn(150)));
        assert_eq!(it.end(), Lsn(150));
    }

    #[test]
    fn a_candidate_has_asked_for_more_than_it_has() {
        let mut it = MirrorState::found(Lsn(300), (Lsn::ZERO, true));
        it.fetched(Lsn(320));
        assert_eq!((it.end(), it.reaches()), (Lsn(300), Lsn(320)));
    }

    #[test]
    fn a_checkpoint_of_another_log_is_noticed() {
        let mut ours = TermHistory::first(Term(1), NodeId(1), 1);
        ours.begin(TermEntry { term: Term(2), start: Lsn(150), node: NodeId(2), nonce: 1 }).unwrap();
        let mut theirs = TermHistory::first(Term(1), NodeId(1), 1);
        theirs.begin(TermEntry { term: Term(3), start: Lsn(120), node: NodeId(3), nonce: 1 }).unwrap();
        let mut it = MirrorState::default();
        for (floor, begins) in [(100, true), (120, true), (121, false), (200, false)] {
            it.seeded(Lsn(50), Lsn(floor));
            assert_eq!(it.begins_in(&theirs, &ours), begins, "floor {floor}");
        }
    }
}
