//! Maintenance: for a while no node stands by itself, whatever it takes for lost.
//!
//! ```text
//!   ordered on any node ─▶ every node that it reaches ─▶ kept by each one's own clock
//!   a primary, or a relay ─▶ goes along with all that it sends; a node that joins brings it
//!   a node that was started again, and stands ─▶ is answered by the others that know of it
//! ```
//!
//! What travels is how much is left ([`Notice`]), never a time of day: each node keeps until when
//! by its own clock. It outlives the primary, which is the point, and ends by itself. A person can
//! promote a node all the same ([`crate::promotion::Standing::Automatic`]).
//!
//! Of two orders, the later one counts, which is the one of the larger number: a node that is given
//! an order takes a number above all that it knows, and another one if a node knows a larger one.
//! An end is an order with nothing left. A node that was stopped forgets; a cluster forgets when
//! all of its nodes were stopped at the same time.

use std::time::Duration;

use freshet_base::NodeId;
use serde::{Deserialize, Serialize};

use crate::{Moment, handshake::Refusal};

/// No order lasts longer.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Which order of all: the larger one is the later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OrderId {
    /// Zero: none was ever given.
    number: u64,
    /// A random number, by which two of the same number are told apart.
    nonce: u64,
}

/// What a node says of maintenance to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The latest order that it knows of.
    pub order: OrderId,
    /// What is left of it.
    pub left: Duration,
}

/// What a node knows of maintenance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    order: OrderId,
    until: Moment,
}

impl Maintenance {
    /// It is ordered on this node for this long, at most [`LONGEST`]; for no time at all, to end
    /// it. `nonce` is a random number. Returns what to say to the others.
    pub fn order(&mut self, nonce: u64, length: Duration, now: Moment) -> Notice {
        let number = self.order.number.saturating_add(1);
        *self = Self { order: OrderId { number, nonce }, until: now.after(length.min(LONGEST)) };
        self.notice(now)
    }

    /// Another node has said this. Says whether that is a later order.
    pub fn observe(&mut self, notice: Notice, now: Moment) -> bool {
        let until = now.after(notice.left.min(LONGEST));
        let is_later = notice.order > self.order;
        if is_later {
            *self = Self { order: notice.order, until };
        } else if notice.order == self.order {
            // What was said is late by the time that it took.
            self.until = self.until.min(until);
        }
        is_later
    }

    /// What to say to another node.
    pub fn notice(&self, now: Moment) -> Notice {
        Notice { order: self.order, left: self.until.since(now) }
    }

    /// What is left, while it lasts.
    pub fn left(&self, now: Moment) -> Option<Duration> {
        Some(self.until.since(now)).filter(|left| !left.is_zero())
    }

    /// When it ends, or has ended.
    pub fn until(&self) -> Moment {
        self.until
    }

    /// `node` is asked by one that stands by itself, and knows as much as `theirs`: it is not
    /// answered while maintenance lasts, which it hears.
    ///
    /// # Errors
    /// [`Refusal::Maintenance`].
    pub fn check_stands(&mut self, node: NodeId, theirs: Notice, now: Moment) -> Result<(), Refusal> {
        self.observe(theirs, now);
        self.left(now).map_or(Ok(()), |_| Err(Refusal::Maintenance { node, notice: self.notice(now) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000)
    }

    #[test]
    fn each_node_keeps_it_by_its_own_clock_and_it_ends_by_itself() {
        let (mut one, mut other) = (Maintenance::default(), Maintenance::default());
        assert_eq!((one.left(at(0)), one.notice(at(0))), (None, Notice::default()));
        let notice = one.order(1, HOUR, at(100));
        // Its clock has another origin.
        assert!(other.observe(notice, at(900_000)));
        assert_eq!(other.left(at(900_010)), Some(HOUR - Duration::from_secs(10)));
        assert_eq!(other.until(), at(903_600));
        // What goes along later moves it by no more than clocks differ, and never makes it longer.
        other.observe(one.notice(at(110)), at(900_011));
        assert_eq!(other.until(), at(903_600));
        assert!(!other.observe(one.notice(at(112)), at(900_011)));
        assert_eq!(other.until(), at(903_599));
        assert_eq!(other.left(at(903_599)), None);
        other.observe(one.notice(at(110)), at(903_700));
        assert_eq!(other.left(at(903_700)), None);
    }

    #[test]
    fn the_later_order_counts_and_none_lasts_longer_than_a_day() {
        let (mut one, mut other) = (Maintenance::default(), Maintenance::default());
        let begins = one.order(1, Duration::MAX, at(0));
        assert_eq!(begins.left, LONGEST);
        other.observe(Notice { left: Duration::MAX, ..begins }, at(0));
        assert_eq!(other.left(at(0)), Some(LONGEST));
        let ends = other.order(2, Duration::ZERO, at(5));
        assert!(one.observe(ends, at(5)) && one.left(at(5)).is_none());
        assert!(!one.observe(begins, at(6)) && one.left(at(6)).is_none(), "what was said before comes late");
        // Two at the same time: all nodes take the same one for the later.
        let (mut a, mut b) = (one, one);
        let (of_a, of_b) = (a.order(1, HOUR, at(7)), b.order(2, Duration::ZERO, at(7)));
        a.observe(of_b, at(7));
        b.observe(of_a, at(7));
        assert_eq!((a.left(at(7)), b.left(at(7))), (None, None));
        // Who does not know of an order finds that another is later, and gives it again.
        let mut forgot = Maintenance::default();
        let early = forgot.order(3, HOUR, at(8));
        assert!(!a.observe(early, at(8)));
        forgot.observe(a.notice(at(8)), at(8));
        assert!(a.observe(forgot.order(3, HOUR, at(8)), at(8)) && a.left(at(8)).is_some());
    }

    #[test]
    fn who_stands_is_not_answered_while_it_lasts() {
        let mut knows = Maintenance::default();
        let unaware = Notice::default();
        assert_eq!(knows.check_stands(NodeId(1), unaware, at(0)), Ok(()));
        let notice = knows.order(1, HOUR, at(0));
        let refused = knows.check_stands(NodeId(1), unaware, at(0));
        assert_eq!(refused, Err(Refusal::Maintenance { node: NodeId(1), notice }));
        // The candidate knows that it was ended.
        let mut ended = Maintenance::default();
        ended.observe(notice, at(0));
        let ends = ended.order(2, Duration::ZERO, at(1));
        assert_eq!(knows.check_stands(NodeId(1), ends, at(1)), Ok(()));
        knows.order(1, HOUR, at(2));
        assert_eq!(knows.check_stands(NodeId(1), unaware, at(2 + 3600)), Ok(()), "it has ended by itself");
    }
}
