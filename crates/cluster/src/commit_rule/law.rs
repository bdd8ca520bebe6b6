//! What holds of a commit rule after each event, whatever that was.

use freshet_base::{Lsn, Stage, Term, check};

use super::{CommitRule, Member, Place};
use crate::Moment;

/// What was true before an event, and does not go back.
#[derive(Clone, Copy)]
pub(super) struct Before {
    durable: Lsn,
    committed: Lsn,
    fenced: Option<Term>,
    settled: bool,
    by_others: bool,
}

impl CommitRule {
    pub(super) fn before(&self) -> Before {
        let Self { durable, committed, fenced, settled, by_others, .. } = *self;
        Before { durable, committed, fenced, settled, by_others }
    }

    /// # Panics
    /// When the rule has broken one of its laws: no client may be told anything any more.
    pub(super) fn check(&self, before: Before, now: Moment) {
        check(&[(Stage::Commit, before.committed), (Stage::Commit, self.committed), (Stage::Persist, self.durable)]);
        check(&[(Stage::Persist, before.durable), (Stage::Persist, self.durable)]);
        assert!(before.fenced <= self.fenced, "a fence has sunk");
        let over = before.fenced.is_some() && self.committed > before.committed;
        assert!(!over, "a term that is over has committed something");
        assert!(self.settled || !before.settled, "the start's grace has begun again");
        assert!(self.by_others || !before.by_others, "others no more hold what was committed");
        assert!(!self.by_others || self.committed > self.start, "others hold commits that there are not");
        assert!(!self.refusing || self.blocked_since.is_some(), "commits are refused, and nothing blocks them");
        assert!(self.blocked_since.is_none_or(|since| since <= now), "commits will be blocked");
        assert!(self.degraded_since.is_none_or(|since| since <= now), "the level will be degraded");
        if let Some(sets) = &self.sets {
            assert!(self.committed <= self.start || sets.begun(), "something is committed before a set is in effect");
            sets.check();
        }
        let waits = self.awaited();
        self.members.iter().for_each(|(node, member)| {
            member.check(now);
            let bound = waits.is_some_and(|sets| sets.binds(*node));
            assert!(member.place != Place::Leaving || bound, "{node} leaves, and no set has it");
            assert!(waits.is_none() || member.place != Place::InSync || bound, "{node} is in sync, and no set has it");
        });
    }
}

impl Member {
    fn check(&self, now: Moment) {
        assert!(!self.forgotten || !self.synchronous, "commits may count on a standby that is gone for good");
        assert!(!self.excused || !self.synchronous, "commits may count on a standby that begins again");
        assert!(self.since <= now, "a standby will get its place");
        let missing = self.outstanding.is_none_or(|(at, _)| self.acked < at);
        assert!(missing, "what is acknowledged is outstanding");
    }
}
