//! A switch-over: a primary that is well hands its role to a standby at an LSN. No commit is lost,
//! and every client hears the outcome of its transaction.
//!
//! 1. Catch up: the standby comes near while all continues. If it does not, that is all.
//! 2. Hold: transactions that would begin wait. Those that are open may finish.
//! 3. Close: no transaction takes an LSN any more; what is open then fails at its commit. So the
//!    log has an end, which the standby has to hold and to have replayed, and clients have to have
//!    been answered up to there.
//! 4. Offer: the standby is asked to stand. It consults the primary first, alone; the primary's
//!    promise ends its own term ([`SwitchOver::hand_over`]). Only then does the standby consult the
//!    others ([`crate::promotion::Standing::Handed`]).
//!
//! Until it has given that promise the primary can take all of it back, and does so when a step
//! takes too long: then it releases those who wait, and they continue as if nothing had been. After
//! that a standby which still wants the role is refused by its first question, and has disturbed no
//! other node. So a switch-over is done or not done within a bound, and nothing comes after it.
//!
//! The driver looks again and again, with what it sees ([`SwitchOver::next`]), and asks
//! [`SwitchOver::hand_over`] under the same lock when a candidate shows its number.

use std::{fmt, time::Duration};

use freshet_base::{Lsn, NodeId, Term};
use serde::{Deserialize, Serialize};

use crate::Moment;

/// How long the steps may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchOverConfig {
    /// Until the standby is near. Nothing is held before.
    pub catch_up: Duration,
    /// How near that is, in bytes of the log.
    pub near: u64,
    /// For open transactions, once others are held.
    pub finish: Duration,
    /// From the close until the standby has consulted the primary.
    pub hand_over: Duration,
}

impl Default for SwitchOverConfig {
    /// Clients wait for half a second at most before the role moves, or does not.
    fn default() -> Self {
        Self {
            catch_up: Duration::from_secs(10),
            near: 1 << 20,
            finish: Duration::from_millis(200),
            hand_over: Duration::from_millis(300),
        }
    }
}

/// Names an offer of the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// Whose role it is.
    pub by: NodeId,
    /// Its term.
    pub term: Term,
    /// No other offer has this number: it is random.
    pub number: u64,
}

/// What the primary sees of the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// Commits count on it.
    pub in_sync: bool,
    /// Persistent there.
    pub persisted: Lsn,
    /// Replayed there.
    pub replayed: Lsn,
}

/// What the primary sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// No later term has ended its own.
    pub leads: bool,
    /// Transactions that have written are open.
    pub open: bool,
    /// Of these, some may be about to take an LSN, or have taken one and put nothing into the log
    /// yet.
    pub committing: bool,
    /// Where the log ends.
    pub end: Lsn,
    /// Everything below is committed.
    pub committed: Lsn,
    /// The standby; none if it is not connected.
    pub successor: Option<Successor>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Look again in a moment.
    Look,
    /// Transactions that would begin wait from now on.
    Hold,
    /// No transaction takes an LSN from now on.
    Close,
    /// Ask the standby to stand.
    Offer(HandOver),
    /// The role is the standby's.
    HandedOver,
    /// There is no switch-over: what was held and closed continues.
    Stop(NotHandedOver),
}

/// Why there is no switch-over. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHandedOver {
    /// The primary is none any more.
    LeadsNot,
    /// The standby is not connected.
    Away,
    /// No commit counts on the standby.
    NotInSync,
    /// The standby was behind by this number of bytes when there was no time left to catch up.
    Behind(u64),
    /// Commits, or the standby, did not get to the end of the log in time.
    TooSlow(Lsn),
    /// The standby did not stand in time.
    Declined,
}

impl fmt::Display for NotHandedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeadsNot => f.write_str("this node does not lead any more: see freshet status"),
            Self::Away => f.write_str("the standby is not connected"),
            Self::NotInSync => f.write_str("the standby is not in sync, so no commit counts on it"),
            Self::Behind(bytes) => {
                write!(f, "the standby is {bytes} bytes behind and comes no nearer: try again when there is less load")
            }
            Self::TooSlow(end) => {
                write!(f, "the standby did not replay the log up to {end} in time: see its lag in freshet status")
            }
            Self::Declined => f.write_str("the standby did not take the role in time: its log says why"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    CatchUp,
    Finish,
    Close,
    Offered,
    HandedOver,
    Over,
}

/// A switch-over that is under way.
#[derive(Clone, Debug)]
pub struct SwitchOver {
    to: NodeId,
    hand_over: HandOver,
    config: SwitchOverConfig,
    step: Step,
    /// When the step has taken too long.
    until: Moment,
    /// Where the log ends: known once it is closed and no transaction is committing.
    end: Option<Lsn>,
}

impl SwitchOver {
    /// The primary is to hand its role to `to`.
    pub fn new(to: NodeId, hand_over: HandOver, config: SwitchOverConfig, now: Moment) -> Self {
        assert_ne!(to, hand_over.by, "a primary hands its role to another");
        Self { to, hand_over, config, step: Step::CatchUp, until: now.after(config.catch_up), end: None }
    }

    /// To whom.
    pub fn to(&self) -> NodeId {
        self.to
    }

    /// See [`HandOver::number`].
    pub fn number(&self) -> u64 {
        self.hand_over.number
    }

    /// Whether the role has moved, or is about to: the promise was asked for.
    pub fn is_handed_over(&self) -> bool {
        self.step == Step::HandedOver
    }

    /// What is to be done, as things are.
    pub fn next(&mut self, now: Moment, seen: &Seen) -> Next {
        match self.step {
            Step::HandedOver => return Next::HandedOver,
            Step::Over => panic!("a switch-over continues that is over"),
            _ => {}
        }
        if !seen.leads {
            return self.stop(NotHandedOver::LeadsNot);
        }
        // A successor that stands has left its primary, so it is away by then.
        if self.step == Step::Offered {
            return self.wait(now);
        }
        let fit = match seen.successor {
            None => Err(NotHandedOver::Away),
            Some(successor) if !successor.in_sync => Err(NotHandedOver::NotInSync),
            Some(successor) => Ok(successor),
        };
        let successor = match fit {
            Ok(successor) => successor,
            // It may just be on its way back.
            Err(_) if self.step == Step::CatchUp && now < self.until => return Next::Look,
            Err(why) => return self.stop(why),
        };
        match self.step {
            Step::CatchUp => {
                let behind = seen.end.0.saturating_sub(successor.persisted.min(successor.replayed).0);
                match behind <= self.config.near {
                    true => self.enter(Step::Finish, now.after(self.config.finish), Next::Hold),
                    false if now >= self.until => self.stop(NotHandedOver::Behind(behind)),
                    false => Next::Look,
                }
            }
            Step::Finish if !seen.open || now >= self.until => {
                self.enter(Step::Close, now.after(self.config.hand_over), Next::Close)
            }
            Step::Close if !seen.committing => {
                let end = *self.end.get_or_insert(seen.end);
                match [seen.committed, successor.persisted, successor.replayed].iter().all(|at| *at >= end) {
                    true => self.enter(Step::Offered, self.until, Next::Offer(self.hand_over)),
                    false => self.wait(now),
                }
            }
            _ => self.wait(now),
        }
    }

    /// The standby could not be asked, or said no.
    pub fn declined(&mut self) -> Next {
        if self.is_handed_over() { Next::HandedOver } else { self.stop(NotHandedOver::Declined) }
    }

    /// The candidate that shows this number asks for the promise that ends the primary's term; says
    /// whether it gets it. From then on nothing is taken back.
    pub fn hand_over(&mut self, node: NodeId, number: u64) -> bool {
        let is_offered = matches!(self.step, Step::Offered | Step::HandedOver);
        let gets_it = is_offered && (node, number) == (self.to, self.hand_over.number);
        if gets_it {
            self.step = Step::HandedOver;
        }
        gets_it
    }

    fn enter(&mut self, step: Step, until: Moment, next: Next) -> Next {
        (self.step, self.until) = (step, until);
        next
    }

    fn wait(&mut self, now: Moment) -> Next {
        match self.step {
            _ if now < self.until => Next::Look,
            Step::Offered => self.stop(NotHandedOver::Declined),
            _ => self.stop(NotHandedOver::TooSlow(self.end.unwrap_or_default())),
        }
    }

    fn stop(&mut self, why: NotHandedOver) -> Next {
        self.step = Step::Over;
        Next::Stop(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: SwitchOverConfig = SwitchOverConfig {
        catch_up: Duration::from_micros(1000),
        near: 100,
        finish: Duration::from_micros(200),
        hand_over: Duration::from_micros(300),
    };
    const BY: HandOver = HandOver { by: NodeId(1), term: Term(3), number: 77 };

    fn begun() -> SwitchOver {
        SwitchOver::new(NodeId(2), BY, CONFIG, Moment(0))
    }

    /// All is well, and the standby has everything.
    fn seen(end: u64) -> Seen {
        let successor = Successor { in_sync: true, persisted: Lsn(end), replayed: Lsn(end) };
        let (end, successor) = (Lsn(end), Some(successor));
        Seen { leads: true, open: false, committing: false, end, committed: end, successor }
    }

    fn at(end: u64, successor: u64) -> Seen {
        Seen { end: Lsn(end), committed: Lsn(end), ..seen(successor) }
    }

    #[test]
    fn it_catches_up_holds_closes_offers_and_hands_over() {
        let mut it = begun();
        assert_eq!(it.next(Moment(1), &at(500, 300)), Next::Look, "far behind, nothing is held");
        assert_eq!(it.next(Moment(900), &at(500, 400)), Next::Hold);
        let open = Seen { open: true, ..at(600, 500) };
        assert_eq!(it.next(Moment(1000), &open), Next::Look, "open transactions may finish");
        assert_eq!(it.next(Moment(1010), &at(600, 500)), Next::Close);
        let committing = Seen { committing: true, open: true, ..at(600, 600) };
        assert_eq!(it.next(Moment(1020), &committing), Next::Look, "the log has no end yet");
        assert_eq!(it.next(Moment(1030), &at(650, 600)), Next::Look);
        let unanswered = Seen { committed: Lsn(640), ..seen(650) };
        assert_eq!(it.next(Moment(1040), &unanswered), Next::Look);
        assert!(!it.hand_over(NodeId(2), 77), "nothing is offered yet");
        // A note of the node's own comes behind the end.
        assert_eq!(it.next(Moment(1050), &at(660, 650)), Next::Offer(BY));
        assert!(!it.hand_over(NodeId(3), 77) && !it.hand_over(NodeId(2), 78));
        let stands = Seen { successor: None, ..seen(660) };
        assert_eq!(it.next(Moment(1060), &stands), Next::Look, "it follows nobody while it stands");
        assert!(it.hand_over(NodeId(2), 77) && it.is_handed_over());
        assert!(it.hand_over(NodeId(2), 77), "it asks again");
        let fenced = Seen { leads: false, ..stands };
        assert_eq!(it.next(Moment(9999), &fenced), Next::HandedOver, "nothing is taken back");
        assert_eq!(it.declined(), Next::HandedOver);
    }

    #[test]
    fn open_transactions_have_a_bound() {
        let mut it = begun();
        assert_eq!(it.next(Moment(0), &seen(500)), Next::Hold);
        let open = Seen { open: true, ..seen(500) };
        assert_eq!(it.next(Moment(199), &open), Next::Look);
        assert_eq!(it.next(Moment(200), &open), Next::Close);
        assert_eq!(it.next(Moment(210), &open), Next::Offer(BY), "what is open takes no LSN");
    }

    #[test]
    fn each_step_has_an_end_and_nothing_comes_after_it() {
        let mut it = begun();
        assert_eq!(it.next(Moment(999), &at(500, 300)), Next::Look);
        assert_eq!(it.next(Moment(1000), &at(500, 300)), Next::Stop(NotHandedOver::Behind(200)));
        let closed = || {
            let mut it = begun();
            assert_eq!(it.next(Moment(0), &seen(500)), Next::Hold);
            assert_eq!(it.next(Moment(0), &seen(500)), Next::Close);
            it
        };
        let mut it = closed();
        assert_eq!(it.next(Moment(299), &at(500, 499)), Next::Look);
        assert_eq!(it.next(Moment(300), &at(500, 499)), Next::Stop(NotHandedOver::TooSlow(Lsn(500))));
        let mut it = closed();
        assert_eq!(it.next(Moment(10), &seen(500)), Next::Offer(BY));
        assert_eq!(it.next(Moment(299), &seen(500)), Next::Look);
        assert_eq!(it.next(Moment(300), &seen(500)), Next::Stop(NotHandedOver::Declined));
        assert!(!it.hand_over(NodeId(2), 77), "too late: the primary continues");
        let mut it = closed();
        assert_eq!(it.next(Moment(10), &seen(500)), Next::Offer(BY));
        assert_eq!(it.declined(), Next::Stop(NotHandedOver::Declined));
    }

    #[test]
    fn one_that_nobody_counts_on_and_one_that_is_away_get_nothing() {
        let away = Seen { successor: None, ..seen(500) };
        let out = Successor { in_sync: false, persisted: Lsn(500), replayed: Lsn(500) };
        let out = Seen { successor: Some(out), ..seen(500) };
        for (unfit, why) in [(away, NotHandedOver::Away), (out, NotHandedOver::NotInSync)] {
            let mut it = begun();
            assert_eq!(it.next(Moment(999), &unfit), Next::Look, "it may come back");
            let mut never = it.clone();
            assert_eq!(never.next(Moment(1000), &unfit), Next::Stop(why));
            assert_eq!(it.next(Moment(999), &seen(500)), Next::Hold);
            assert_eq!(it.next(Moment(999), &unfit), Next::Stop(why), "not while others are held");
        }
        let deposed = Seen { leads: false, ..seen(500) };
        assert_eq!(begun().next(Moment(0), &deposed), Next::Stop(NotHandedOver::LeadsNot));
    }
}
