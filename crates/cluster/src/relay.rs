//! A relay: a standby that ships on to standbys of its own, so that a primary feeds few of many
//! (Query Fresh, section 4.4: "hierarchical architecture").
//!
//! Upwards a relay is one standby, whatever follows it. What it acknowledges is either what is
//! persistent on itself, or what is persistent on itself *and* on its own in-sync set
//! ([`RelayAck`]); the latter is decided by a [`CommitRule`] of its own, by which a downstream
//! standby that stalls is put out after its time, so that it cannot hold the whole cluster up.
//!
//! Downwards a relay adds nothing: those below are told to be globally persistent what the relay
//! was told, and no more; terms, and with them fences, pass through. What they hold is in no quorum
//! and no in-sync set of the primary, so a candidate gains nothing by asking them and counts them
//! for nothing (`synchronous` is false in their [`crate::promotion::LogState`]); a candidate from
//! below consults the relay's primary and its synchronous standbys as everybody does. One that led
//! before, and may be in the in-sync set, has to follow the primary itself until it is on record
//! that it is not.
//!
//! A relay whose log is shorter than that of one who wants to follow it, and is else the same, asks
//! it to come again: what that one holds and shows may be committed. Nor does a relay pass on as
//! globally persistent what is not persistent on itself: after a crash it would have to ask those
//! below to forget what they have shown.

use std::{collections::VecDeque, time::Duration};

use freshet_base::{Lsn, NodeId, Safety, Stage, check};
use serde::{Deserialize, Serialize};

use crate::{
    Moment,
    commit_rule::{CommitRule, Decision, Event, Member, RuleConfig},
};

/// What a relay's acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayAck {
    /// What is persistent on the relay.
    #[default]
    Own,
    /// What is persistent on the relay and on those of its standbys that keep up.
    Downstream,
}

freshet_base::named!(RelayAck, "acknowledgement of a relay", { Own: "own", Downstream: "downstream" });

/// A relay's state while it follows one primary.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Relay {
    ack: RelayAck,
    persisted: Lsn,
    global: Lsn,
    /// Heard, and beyond what is persistent here; ascending.
    ahead: VecDeque<Lsn>,
    downstream: CommitRule,
}

/// This many LSNs that were heard and are beyond what is persistent are remembered one by one.
const AHEAD: usize = 1024;

impl Relay {
    /// A relay whose log is persistent up to `persisted`, and which is meant to have `standbys` of
    /// its own; one that stalls is not waited for after `timeout`.
    pub fn new(ack: RelayAck, standbys: u32, timeout: Duration, persisted: Lsn, now: Moment) -> Self {
        let rule = RuleConfig { standby_timeout: timeout, ..RuleConfig::new(Safety::TwoSafe, standbys) };
        // Nothing was waited for yet: whatever is acknowledged from here on is.
        Self {
            ack,
            persisted,
            global: Lsn::ZERO,
            ahead: VecDeque::new(),
            downstream: CommitRule::new(rule, persisted, now),
        }
    }

    /// The relay's own log is persistent up to here.
    pub fn persisted(&mut self, to: Lsn, now: Moment) -> Decision {
        self.persisted = self.persisted.max(to);
        self.pass();
        self.downstream.apply(Event::Durable(to), now)
    }

    /// Something happened below: [`Event::Joined`], [`Event::Acked`], [`Event::Left`] or
    /// [`Event::Tick`].
    pub fn downstream(&mut self, event: Event, now: Moment) -> Decision {
        self.downstream.apply(event, now)
    }

    /// The primary announces what is globally persistent.
    pub fn observe_global(&mut self, global: Lsn) {
        if global > self.ahead.back().copied().unwrap_or(self.global) {
            self.ahead.push_back(global);
            if self.ahead.len() > AHEAD {
                let mut number = 0;
                self.ahead.retain(|known| {
                    number += 1;
                    number % 2 == 0 || *known == global
                });
            }
            self.pass();
        }
    }

    fn pass(&mut self) {
        while let Some(known) = self.ahead.front().copied().filter(|known| *known <= self.persisted) {
            self.global = known;
            self.ahead.pop_front();
        }
        check(&[(Stage::Commit, self.global), (Stage::Persist, self.persisted)]);
        assert!(self.ahead.len() <= AHEAD, "a relay remembers {} LSNs", self.ahead.len());
        assert!(self.ahead.iter().is_sorted_by(|a, b| a < b), "what is globally persistent has moved back");
    }

    /// What to acknowledge upwards.
    pub fn upward(&self) -> Lsn {
        match self.ack {
            RelayAck::Own => self.persisted,
            RelayAck::Downstream => self.persisted.min(self.downstream.committed()),
        }
    }

    /// What to tell those below to be globally persistent: the last that the relay was told and
    /// holds. What was told always stands between transactions, which those below rely on.
    pub fn downward(&self) -> Lsn {
        self.global
    }

    /// When time alone can next change something.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.downstream.next_deadline()
    }

    /// The standbys below.
    pub fn members(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.downstream.members()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: NodeId = NodeId(3);
    const TIMEOUT: Duration = Duration::from_millis(100);

    fn ms(ms: u64) -> Moment {
        Moment(ms * 1000)
    }

    fn acked(at: u64) -> Event {
        Event::Acked { standby: C, persisted: Lsn(at), observed: None }
    }

    #[test]
    fn a_subtree_acknowledges_what_all_of_it_holds() {
        for ack in [RelayAck::Own, RelayAck::Downstream] {
            let own_only = ack == RelayAck::Own;
            let mut relay = Relay::new(ack, 1, TIMEOUT, Lsn(0), ms(0));
            let _ = relay
                .downstream(Event::Joined { standby: C, incarnation: 1, persisted: Lsn(0), synchronous: true }, ms(0));
            let _ = relay.persisted(Lsn(100), ms(1));
            assert_eq!(relay.upward(), Lsn(if own_only { 100 } else { 0 }));
            let _ = relay.downstream(acked(70), ms(2));
            assert_eq!(relay.upward(), Lsn(if own_only { 100 } else { 70 }));
            // Who is below may be quicker than the relay's own disk; that is not enough.
            let _ = relay.downstream(acked(150), ms(3));
            assert_eq!(relay.upward(), Lsn(100));
            // Who stalls is not waited for for ever.
            let _ = relay.persisted(Lsn(200), ms(10));
            let _ = relay.downstream(Event::Tick, ms(110));
            assert_eq!(relay.upward(), Lsn(200));
        }
    }

    #[test]
    fn those_below_learn_what_the_relay_observed_and_no_more() {
        let mut relay = Relay::new(RelayAck::Own, 0, TIMEOUT, Lsn(0), ms(0));
        let _ = relay.persisted(Lsn(100), ms(1));
        assert_eq!(relay.downward(), Lsn(0));
        relay.observe_global(Lsn(60));
        relay.observe_global(Lsn(40));
        assert_eq!(relay.downward(), Lsn(60));
    }

    #[test]
    fn what_is_passed_down_was_observed_and_is_held() {
        let mut relay = Relay::new(RelayAck::Own, 0, TIMEOUT, Lsn(0), ms(0));
        for k in 1..10_000 {
            relay.observe_global(Lsn(k * 10));
        }
        assert!(relay.ahead.len() <= AHEAD);
        let mut last = Lsn(0);
        for to in (0..99_990).step_by(777) {
            let _ = relay.persisted(Lsn(to), ms(1));
            let down = relay.downward();
            assert!(down <= Lsn(to) && down.0.is_multiple_of(10) && down >= last, "{down} of {to}");
            last = down;
        }
        let _ = relay.persisted(Lsn(99_995), ms(1));
        assert_eq!(relay.downward(), Lsn(99_990));
    }

    #[test]
    fn a_relay_without_standbys_acknowledges_for_itself() {
        let mut relay = Relay::new(RelayAck::Downstream, 0, TIMEOUT, Lsn(5), ms(0));
        let _ = relay.persisted(Lsn(100), ms(1));
        assert_eq!(relay.upward(), Lsn(100));
        assert_eq!(relay.next_deadline(), None);
    }
}
