//! Upstream: whom a node follows, and whom it tries next. Standbys and mirrors decide it in the
//! same way.
//!
//! ```text
//!   next ─▶ offer ─▶ joined ─▶ ended ─▶ revoked ─▶ a pause ─▶ next
//!    ▲
//!    └─ lead, announced, revoke, rest, stop: what is under way is given up
//! ```
//!
//! [`Upstream`] decides. Its driver connects, and waits. Every attempt has the [`Order`] under
//! which it began: a later order gives it up, whatever it has come to. Memory that was offered
//! under an order may be written by the other node until that is revoked, so a node that has
//! promised a later term answers nobody before ([`Upstream::is_revoked`]).

use std::{collections::BTreeSet, ops::Bound, time::Duration};

use freshet_base::NodeId;
use serde::{Deserialize, Serialize};

use crate::handshake::Refusal;

/// Counts what a node was told to do: an attempt of an earlier order is given up.
pub type Order = u64;

/// How a node follows others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UpstreamConfig {
    /// Where the others reach this node.
    pub address: String,
    /// Commits may count on it.
    pub member: bool,
    /// And may wait for it.
    pub counted: bool,
    /// The first pause before another attempt, and the longest.
    pub back_off: (Duration, Duration),
}

/// What there is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// To try the node at this address.
    Try(String, Order),
    /// Nothing, until something changes.
    Wait,
    /// Nothing any more.
    Stop,
}

/// How an attempt, or the connection that came of it, has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// The log flowed until the connection was lost.
    Lost,
    /// No node of this cluster answers there.
    Unreachable,
    /// The other node has said why.
    Refused(Refusal),
    /// The other node is a relay, and this one has to follow the primary itself, which is there if
    /// that is known.
    Counted(Option<String>),
    /// This node has ended it.
    GivenUp,
    /// This node cannot continue.
    Failed,
}

/// What an announcement by a node that leads has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// This node follows it, or will.
    Noted,
    /// This node was told to follow another one that may be a relay, and will know in a moment.
    Later,
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Upstream {
    config: UpstreamConfig,
    /// Whom it was configured to follow.
    first: Option<String>,
    address: Option<String>,
    order: Order,
    /// Counts those of the orders after which the log may not just continue: not when the same
    /// upstream is only named again.
    breaks: u64,
    /// How many want it to rest.
    rests: u32,
    resting: bool,
    stopped: bool,
    failed: bool,
    /// The order under which memory of this node is offered, from before the other side hears of it
    /// until it is revoked.
    offered: Option<Order>,
    /// A primary that was offered memory under an earlier order has been succeeded.
    succeeded: Order,
    following: Option<NodeId>,
    /// It has come upon `address` by itself.
    sought: bool,
    /// There was an answer, or none in time, since `address` was named.
    tried: bool,
    /// `address` is a relay, as far as is known.
    relay: bool,
    /// The primary, if the log flowed through a relay last.
    primary: Option<NodeId>,
    joined_once: bool,
    /// Of those that are tried in turn.
    last: String,
    pause: Duration,
}

impl Upstream {
    /// Follows the node at `first`; without, nobody before it is told to.
    pub fn new(config: UpstreamConfig, first: Option<String>) -> Self {
        Self {
            pause: config.back_off.0,
            config,
            address: first.clone(),
            first,
            order: 0,
            breaks: 0,
            rests: 0,
            resting: false,
            stopped: false,
            failed: false,
            offered: None,
            succeeded: 0,
            following: None,
            sought: false,
            tried: false,
            relay: false,
            primary: None,
            joined_once: false,
            last: String::new(),
        }
    }

    /// Gives up what is under way, and follows the node at `address` from now on, or nobody.
    pub fn lead(&mut self, address: Option<String>) {
        let breaks = self.breaks + u64::from(self.address != address);
        self.address = address;
        (self.tried, self.relay, self.primary, self.sought) = (false, false, None, false);
        self.interrupt();
        self.breaks = breaks;
    }

    /// The node at `address` announces that it leads: this one follows it, unless it does already,
    /// or follows a relay.
    pub fn announced(&mut self, node: NodeId, address: &str) -> Announced {
        if !self.config.counted && self.is_untried() {
            return Announced::Later;
        }
        let is_followed = self.following == Some(node) && self.address.as_deref() == Some(address);
        if !is_followed && !self.relay {
            self.lead(Some(address.to_owned()));
        }
        Announced::Noted
    }

    /// Tries the node at `address` next, after the customary pause, unless there is a later order.
    /// This node was not told to follow that one, which may know which node leads.
    pub fn look_elsewhere(&mut self, order: Order, address: &str) {
        if self.order == order {
            self.address = Some(address.to_owned());
            (self.tried, self.sought) = (false, true);
        }
    }

    /// What to do next. To be asked when nothing is under way.
    pub fn next_attempt(&mut self) -> Next {
        if self.stopped {
            return Next::Stop;
        }
        self.resting = self.rests > 0 || self.failed;
        match &self.address {
            Some(address) if !self.resting => Next::Try(address.clone(), self.order),
            _ => Next::Wait,
        }
    }

    /// Whether an attempt of this order is still wanted.
    pub fn wants(&self, order: Order) -> bool {
        self.order == order && !self.stopped
    }

    /// Memory of this node is about to be offered under this order, until [`Upstream::revoked`];
    /// false if it is not wanted any more.
    pub fn offer(&mut self, order: Order) -> bool {
        if self.wants(order) {
            self.offered = Some(order);
        }
        self.wants(order)
    }

    /// The other node can write into this node's memory no more.
    pub fn revoked(&mut self) {
        self.offered = None;
    }

    /// This node has promised a term to another one, and it has `risen` if that term is later than
    /// those before: what is under way is given up then. Nobody is answered before
    /// [`Upstream::is_revoked`].
    pub fn revoke(&mut self, risen: bool) -> Order {
        if risen {
            self.interrupt();
            self.succeeded = self.order;
        }
        self.succeeded
    }

    /// Whether no primary that was succeeded before [`Upstream::revoke`] has returned `succeeded`
    /// can write into this node's memory.
    pub fn is_revoked(&self, succeeded: Order) -> bool {
        self.offered.is_none_or(|order| order >= succeeded)
    }

    /// The log flows from `node`, through those `above` if that is a relay.
    pub fn joined(&mut self, node: NodeId, above: &[NodeId]) {
        self.following = Some(node);
        (self.tried, self.joined_once) = (true, true);
        self.relay = !above.is_empty();
        self.primary = above.first().copied();
    }

    /// An attempt of this order has ended, or the connection that came of it. `known` are the
    /// addresses of all whom this node knows, and `draw` is any number: nodes that have lost the
    /// same primary do not come back in step. Returns for how long to pause; a later order ends the
    /// pause ([`Upstream::pauses`]).
    pub fn ended(&mut self, order: Order, why: &Ended, known: &[String], draw: u64) -> Duration {
        let is_current = self.order == order;
        match why {
            Ended::Failed => self.fail(),
            // Somebody else is the primary, and this node knows where.
            Ended::Counted(Some(next))
            | Ended::Refused(
                Refusal::NotPrimary { primary: Some(next), .. } | Refusal::Fenced { primary: Some(next), .. },
            ) if is_current && self.address.as_ref() != Some(next) && *next != self.config.address => {
                self.lead(Some(next.clone()));
            }
            // Trying again would change nothing.
            Ended::Refused(
                Refusal::OtherCluster { .. }
                | Refusal::BufferTooSmall { .. }
                | Refusal::NoMirror(_)
                | Refusal::Myself { .. },
            ) => self.fail(),
            // What the primary has no more will not come however often it is asked. A standby may
            // yet find it with another one.
            Ended::Refused(Refusal::LogGone { .. }) if !self.config.member => self.fail(),
            Ended::Refused(Refusal::Later { .. } | Refusal::Circle { .. }) => self.relay |= is_current,
            // One of the others may know more.
            Ended::Unreachable | Ended::Counted(_) | Ended::Refused(Refusal::NotPrimary { .. })
                if is_current && self.config.counted && !self.relay =>
            {
                self.try_others(known);
            }
            _ => {}
        }
        self.following = None;
        self.tried |= self.order == order;
        let (first, longest) = self.config.back_off;
        self.pause = if *why == Ended::Lost { first } else { (self.pause * 2).min(longest) };
        self.pause / 2 + self.pause.mul_f64((draw % 1000) as f64 / 2000.0)
    }

    /// Each of them has its turn, whichever is left out now and then.
    fn try_others(&mut self, known: &[String]) {
        let mut others: BTreeSet<&String> = known.iter().chain(&self.first).collect();
        others.retain(|other| Some(*other) != self.address.as_ref() && **other != self.config.address);
        let behind = others.range::<String, _>((Bound::Excluded(&self.last), Bound::Unbounded)).next();
        if let Some(next) = behind.or_else(|| others.first()) {
            self.last = (*next).clone();
            self.look_elsewhere(self.order, &self.last.clone());
        }
    }

    /// Whether the pause behind an attempt of this order continues.
    pub fn pauses(&self, order: Order) -> bool {
        self.wants(order) && self.rests == 0 && !self.failed
    }

    /// What is under way is given up, and nothing is tried before [`Upstream::end_rest`]. It rests
    /// when it [is resting](Upstream::is_resting).
    pub fn rest(&mut self) {
        self.rests += 1;
        self.interrupt();
    }

    /// One that wanted it to rest does so no more.
    pub fn end_rest(&mut self) {
        self.rests -= 1;
        self.resting = false;
    }

    /// This node cannot continue.
    pub fn fail(&mut self) {
        self.failed = true;
        self.interrupt();
    }

    /// Nothing is followed any more.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.interrupt();
    }

    fn interrupt(&mut self) {
        self.order += 1;
        self.breaks += 1;
    }

    /// The newest order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Changes with everything that ends the feeds of a relay.
    pub fn breaks(&self) -> u64 {
        self.breaks
    }

    /// Whether it rests, or has stopped.
    pub fn is_resting(&self) -> bool {
        self.resting || self.stopped
    }

    /// Whether it cannot continue.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Whether it was stopped.
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Whom it follows, or tries to.
    pub fn address(&self) -> Option<&String> {
        self.address.as_ref()
    }

    /// The node whose log flows at present.
    pub fn following(&self) -> Option<NodeId> {
        self.following
    }

    /// Whether the log has flowed since it was begun.
    pub fn has_joined(&self) -> bool {
        self.joined_once && !self.failed
    }

    /// Whether this node was not told to follow the one that it tries.
    pub fn is_sought(&self) -> bool {
        self.sought
    }

    /// Whether it is not known yet what the one is whom it was told to follow.
    fn is_untried(&self) -> bool {
        self.address.is_some() && !self.tried
    }

    /// Where the primary is: the node, if its log comes through a relay, else the address.
    pub fn primary(&self) -> (Option<NodeId>, Option<&String>) {
        (self.primary, self.address.as_ref().filter(|_| !self.relay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::Wait;

    const NODE: NodeId = NodeId(7);

    fn of(counted: bool, first: &str) -> Upstream {
        let back_off = (Duration::from_millis(20), Duration::from_millis(60));
        let config = UpstreamConfig { address: "me".into(), member: true, counted, back_off };
        Upstream::new(config, Some(first.into()))
    }

    fn tries(it: &mut Upstream) -> (String, Order) {
        match it.next_attempt() {
            Next::Try(address, order) => (address, order),
            other => panic!("{other:?}"),
        }
    }

    fn not_primary(primary: Option<&str>) -> Ended {
        Ended::Refused(Refusal::NotPrimary { node: NODE, primary: primary.map(str::to_owned) })
    }

    fn known() -> Vec<String> {
        ["a", "b", "c", "d", "me"].map(str::to_owned).into()
    }

    /// The one that was tried last is left out, and this node itself.
    #[test]
    fn each_of_the_others_has_its_turn() {
        let mut it = of(true, "a");
        let mut tried = Vec::new();
        for _ in 0..6 {
            let (address, order) = tries(&mut it);
            tried.push(address);
            it.ended(order, &Ended::Unreachable, &known(), 0);
            assert!(it.pauses(order), "no order was given");
        }
        assert_eq!(tried, ["a", "b", "c", "d", "a", "b"]);
        assert!(it.is_sought());
        let mut alone = of(true, "a");
        alone.ended(0, &Ended::Unreachable, &[], 0);
        assert_eq!(tries(&mut alone).0, "a");
        let mut asynchronous = of(false, "a");
        asynchronous.ended(0, &Ended::Unreachable, &known(), 0);
        assert_eq!(tries(&mut asynchronous).0, "a", "it waits for the one that it was told to follow");
    }

    #[test]
    fn the_primary_that_is_named_is_followed_at_once() {
        let mut it = of(true, "a");
        let (_, order) = tries(&mut it);
        it.ended(order, &not_primary(Some("c")), &known(), 0);
        assert!(!it.pauses(order));
        assert_eq!(tries(&mut it).0, "c");
        let (_, order) = tries(&mut it);
        it.ended(order, &not_primary(Some("me")), &known(), 0);
        assert_eq!(tries(&mut it).0, "a", "this node is none, so the next of the others is tried");
        let (_, order) = tries(&mut it);
        it.lead(Some("d".into()));
        it.ended(order, &not_primary(Some("b")), &known(), 0);
        assert_eq!(tries(&mut it).0, "d", "an order counts more than what an earlier attempt has heard");
    }

    #[test]
    fn what_cannot_change_is_not_tried_again() {
        let gone = || Ended::Refused(Refusal::LogGone { from: freshet_base::Lsn(0), why: String::new() });
        for (why, member, fails) in [
            (Ended::Refused(Refusal::Myself { node: NODE }), true, true),
            (gone(), true, false),
            (gone(), false, true),
            (Ended::Failed, true, true),
            (Ended::GivenUp, true, false),
        ] {
            let mut it = of(true, "a");
            it.config.member = member;
            it.ended(0, &why, &[], 0);
            assert_eq!((it.has_failed(), it.next_attempt() == Next::Wait), (fails, fails), "{why:?}");
        }
    }

    /// It would receive the same reason each time.
    #[test]
    fn one_that_receives_a_reason_waits_longer_each_time() {
        let mut it = of(true, "a");
        let mut pause = |why: &Ended, draw| it.ended(0, why, &[], draw).as_millis();
        let pauses = [pause(&Ended::GivenUp, 0), pause(&Ended::GivenUp, 999), pause(&Ended::Lost, 0)];
        assert_eq!(pauses, [20, 59, 10]);
    }

    /// A node that leads is not followed by one that is fed by a relay, or may be in a moment.
    #[test]
    fn a_relay_is_kept() {
        let mut it = of(false, "relay");
        assert_eq!(it.announced(NODE, "p"), Announced::Later);
        it.joined(NodeId(2), &[NODE]);
        assert_eq!((it.announced(NODE, "p"), it.order()), (Announced::Noted, 0));
        assert_eq!(it.primary(), (Some(NODE), None));
        let lost = Ended::Refused(Refusal::Later { node: NodeId(2), why: Wait::Lost });
        it.ended(0, &lost, &known(), 0);
        assert_eq!((tries(&mut it).0.as_str(), it.following()), ("relay", None));
        it.lead(Some("x".into()));
        assert_eq!(it.announced(NODE, "p"), Announced::Later, "that may be a relay, too");
        it.joined(NodeId(3), &[]);
        it.announced(NODE, "p");
        assert_eq!(tries(&mut it).0, "p");
        let order = it.order();
        it.joined(NODE, &[]);
        it.announced(NODE, "p");
        assert_eq!(it.order(), order, "it is followed already");
    }

    /// What was offered under an order of before counts until it is revoked, whatever is offered
    /// later.
    #[test]
    fn nobody_is_answered_before_the_primary_of_before_is_revoked() {
        let mut it = of(true, "a");
        let (_, order) = tries(&mut it);
        assert!(it.offer(order));
        let of_term = it.revoke(false);
        assert!(it.is_revoked(of_term), "it has promised nothing new");
        let risen = it.revoke(true);
        assert!(!it.is_revoked(risen) && !it.wants(order) && !it.offer(order));
        assert!(!it.is_revoked(it.clone().revoke(false)), "another that asks finds it under way");
        it.revoked();
        assert!(it.is_revoked(risen));
        let (_, order) = tries(&mut it);
        assert!(it.offer(order) && it.is_revoked(risen), "a later primary may write");
    }

    #[test]
    fn it_rests_while_anybody_wants_it_to() {
        let mut it = of(true, "a");
        it.rest();
        it.rest();
        assert!(!it.is_resting(), "what is under way has yet to end");
        assert_eq!(it.next_attempt(), Next::Wait);
        assert!(it.is_resting());
        it.end_rest();
        assert_eq!(it.next_attempt(), Next::Wait);
        it.end_rest();
        assert_eq!(tries(&mut it), ("a".into(), 2));
        it.stop();
        assert_eq!(it.next_attempt(), Next::Stop);
    }

    #[test]
    fn the_feeds_of_a_relay_end_when_another_upstream_is_named() {
        let mut it = of(true, "a");
        it.lead(Some("a".into()));
        assert_eq!((it.order(), it.breaks()), (1, 0), "the same node again");
        it.lead(Some("b".into()));
        assert_eq!((it.order(), it.breaks()), (2, 1));
        it.revoke(true);
        assert_eq!(it.breaks(), 2);
    }
}
