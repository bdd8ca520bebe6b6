//! Lease: until when no other node can lead, so that a primary may answer without asking.
//!
//! ```text
//!   primary   sends ──────────────────────────▶ sent + length      it answers nothing after that
//!   voter        takes in ─▶ answers ─────────────────▶ answered + length, times the bound
//!   candidate                    asks ─▶ promise, and what is left ─▶ waits ─▶ leads
//! ```
//!
//! Whatever a primary sends says when that was, by the primary's clock. A voter that answers says
//! which of these it has taken in last, and so grants the primary a lease. The primary counts from
//! when it *sent* ([`crate::commit_rule::CommitRule::lease_until`]), the voter from when it
//! *answered*, which is later; and the voter counts longer by [`LONGER`], since no two clocks run
//! alike. After a voter has promised a later term it grants the earlier one nothing, and says with
//! the promise what is left of its last grant ([`Voter::left`]). A candidate waits as long before
//! its term begins ([`crate::promotion::Step::Finish`]).
//!
//! Any candidate has to hear one of the voters whose grants a primary counts: of each set that may
//! be in effect these are `floor` + 1, and a candidate misses `floor` at most ([`crate::in_sync`]).
//! The primary itself is one of them: if a candidate hears it, its term has ended there.
//!
//! A node that was restarted does not know whether it had granted something a moment before. So it
//! takes its start for its last grant.
//!
//! Both clocks count the time that a machine was suspended. What lies outside: a virtual machine
//! that is resumed from a snapshot with its clock standing still, and clocks whose rates differ by
//! more than [`LONGER`] says.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Moment;

/// A voter counts longer by this part of a lease: clocks whose rates differ by less are
/// within the bound. (Those of computers differ by a hundredth of that.)
pub const LONGER: u32 = 64;

/// What a voter has taken in and granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voter {
    /// When it answered last, by its own clock.
    answered: Moment,
    /// When what it took in last was sent, by the clock of the primary of the present connection.
    observed: Option<Moment>,
}

impl Voter {
    /// Of a node that has started `now`: it may have answered until then.
    pub fn restarted(now: Moment) -> Self {
        Self { answered: now, observed: None }
    }

    /// It follows another primary, or the same one over another connection.
    pub fn linked(&mut self) {
        self.observed = None;
    }

    /// Something was taken in that was `sent` then, by the primary's clock.
    pub fn observe(&mut self, sent: Moment) {
        self.observed = self.observed.max(Some(sent));
    }

    /// It is about to answer the primary that it follows: gives when what it answers was sent.
    pub fn answers(&mut self, now: Moment) -> Option<Moment> {
        self.answered = self.answered.max(now);
        self.observed
    }

    /// What is left of its last grant, of leases that are this long; no node leads before that is
    /// over.
    pub fn left(&self, length: Duration, now: Moment) -> Duration {
        (length + length / LONGER).saturating_sub(now.since(self.answered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_millis(640);

    #[test]
    fn a_grant_lasts_longer_than_the_lease_and_a_restart_is_one() {
        let mut grant = Voter::restarted(Moment(1_000_000));
        assert_eq!(grant.left(LENGTH, Moment(1_000_000)), Duration::from_millis(650));
        assert_eq!(grant.left(LENGTH, Moment(1_649_000)), Duration::from_millis(1));
        assert_eq!(grant.left(LENGTH, Moment(1_650_000)), Duration::ZERO);
        assert_eq!(grant.answers(Moment(1_600_000)), None);
        assert_eq!(grant.left(LENGTH, Moment(1_650_000)), Duration::from_millis(600));
        grant.observe(Moment(70));
        assert_eq!(grant.answers(Moment(1_500_000)), Some(Moment(70)));
        assert_eq!(grant.left(LENGTH, Moment(1_650_000)), Duration::from_millis(600), "no answer is taken back");
        grant.linked();
        assert_eq!(grant.answers(Moment(1_500_000)), None, "that was another primary's clock");
        assert_eq!(grant.left(Duration::ZERO, Moment(1_600_000)), Duration::ZERO, "no lease was asked for");
    }
}
