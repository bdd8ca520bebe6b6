//! Whom a node follows: [`freshet_cluster::upstream::Upstream`] decides, and is driven here.

use freshet_base::NodeId;
use freshet_cluster::{
    Moment,
    handshake::{Continue, Refusal, Welcome},
    maintenance::Maintenance,
    recording::Recorded,
    upstream::{Ended, Next, Order, Upstream, UpstreamConfig},
};

use crate::{
    checks::Violation,
    net::{ConnectionId, Message},
    node::{Link, Node},
    scenario::Broken,
    world::{Own, World},
};

/// The first pause before another attempt, and the longest.
const BACK_OFF: (std::time::Duration, std::time::Duration) =
    (std::time::Duration::from_millis(1), std::time::Duration::from_millis(16));

/// Where a node is reached.
pub(crate) fn address(node: usize) -> String {
    node.to_string()
}

/// Who is reached there.
pub(crate) fn at(address: &str) -> usize {
    address.parse().expect("the simulation knows its nodes by their numbers")
}

/// It has to follow this primary.
pub(crate) fn counted(primary: NodeId) -> Ended {
    Ended::Counted(Some(address(primary.0 as usize)))
}

impl Node {
    /// It follows the node `first` from its start on, or waits until it is told whom.
    pub fn follows_first(&mut self, first: Option<usize>) {
        let me = self.id.0 as usize;
        let config =
            UpstreamConfig { address: address(me), member: true, counted: self.synchronous, back_off: BACK_OFF };
        let first = first.filter(|first| *first != me).map(address);
        self.upstream = Recorded::new(Upstream::new(config, first), &self.recorder);
    }

    /// The primary that it follows, as far as it knows.
    pub fn followed(&self) -> Option<String> {
        let (node, there) = self.upstream.primary();
        self.upstream.following()?;
        node.map(|node| address(node.0 as usize)).or(there.cloned())
    }

    /// The link to the node that it follows, or tries to, if that is this connection.
    pub fn link_by(&self, id: ConnectionId) -> Option<&Link> {
        self.link.as_ref().filter(|link| link.connection == id)
    }

    /// To one that has to ask another node.
    pub fn not_primary(&self) -> Refusal {
        Refusal::NotPrimary { node: self.id, primary: self.followed() }
    }
}

impl World {
    /// A process begins to follow: whom the operator says, or the one to which it has promised
    /// itself.
    pub(crate) fn follows_at_start(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let holder = state.disk.terms.fence.holder().map(|holder| holder.0 as usize).filter(|holder| *holder != node);
        let first = state.ordered.take().or(state.relay).or(holder).or(Some(0));
        state.follows_first(first);
    }

    /// Tries whom it is to follow, unless there is a connection, or something better to do.
    pub(crate) fn follow(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let busy = state.lead().is_some() || state.candidate.is_some() || state.link.is_some() || state.over.is_some();
        if !state.up || busy || !self.is_free(node) {
            return;
        }
        let Next::Try(upstream, order) = self.nodes[node].upstream.next_attempt() else { return };
        // Before the other side hears of it.
        self.nodes[node].upstream.offer(order);
        if self.nodes[node].mirror.is_some() {
            return self.mirror_follows(node, at(&upstream), order);
        }
        self.nodes[node].memory.file += 1;
        let state = &self.nodes[node];
        let holds = state.follower.acknowledged(&state.disk.terms);
        let log = Continue { persisted: state.follower.to_acknowledge(), ..self.continuation(node) };
        let fence = state.disk.terms.fence.highest();
        let synchronous = state.synchronous || self.scenario.broken == Broken::AsynchronousCounted;
        let maintenance = self.maintenance(node);
        let in_effect = state.disk.terms.last_in_effect(state.id, log.received).is_some();
        let join =
            Message::Join { fence, log, synchronous, member: true, mirror: false, holds, in_effect, maintenance };
        self.link(node, at(&upstream), order, join);
    }

    /// Connects to whom `node` is to follow.
    pub(crate) fn link(&mut self, node: usize, upstream: usize, order: Order, message: Message) {
        let connection = self.connect(node, upstream, message);
        self.nodes[node].link = Some(Link { connection, order, term: None });
    }

    /// The sender's terms are entered: it is followed.
    pub(crate) fn linked(&mut self, node: usize, welcome: &Welcome) {
        let state = &mut self.nodes[node];
        state.link.iter_mut().for_each(|link| link.term = Some(welcome.term));
        state.upstream.joined(welcome.node, &welcome.above);
        state.view.linked(welcome.term, !welcome.above.is_empty());
        state.voter.linked();
        let now = self.clock(node);
        self.nodes[node].watch.linked(now);
        self.looks(node);
    }

    /// Later.
    pub(crate) fn reconnect(&mut self, node: usize) {
        let pause = self.dice.between(500, 8000);
        self.try_after(node, pause);
    }

    fn try_after(&mut self, node: usize, pause: u64) {
        let (at, state) = (self.now.0 + pause, &mut self.nodes[node]);
        if state.tries.is_none_or(|tries| at < tries) {
            state.tries = Some(at);
            self.later(node, pause, Own::Reconnect);
        }
    }

    /// The time has come, unless an earlier one had.
    pub(crate) fn try_again(&mut self, node: usize) {
        if self.nodes[node].tries.take_if(|tries| *tries <= self.now.0).is_some() {
            self.follow(node);
        }
    }

    /// Something is told to the upstream of `node`. What is under way is given up if the order is a
    /// later one.
    pub(crate) fn steer<T>(
        &mut self,
        node: usize,
        change: impl FnOnce(&mut Recorded<Upstream>) -> T,
    ) -> Result<T, Violation> {
        let state = &mut self.nodes[node];
        let order = state.upstream.order();
        let outcome = change(&mut state.upstream);
        if state.upstream.order() != order {
            if state.link.as_ref().is_some_and(|link| !state.upstream.wants(link.order)) {
                self.unlink(node, Ended::GivenUp)?;
            }
            let soon = self.dice.between(1, 200);
            self.try_after(node, soon);
        }
        Ok(outcome)
    }

    /// The connection to whom `node` follows is over, if there is one.
    pub(crate) fn unlink(&mut self, node: usize, why: Ended) -> Result<(), Violation> {
        let Some(Link { connection, order, .. }) = &self.nodes[node].link else { return self.mirror_next(node) };
        let (connection, order) = (*connection, *order);
        self.hang_up(connection, node);
        let (now, draw) = (self.clock(node), self.dice.below(1 << 20));
        self.nodes[node].watch.closed(now, draw);
        if self.scenario.broken == Broken::MaintenanceForgotten {
            self.nodes[node].maintenance.machine = Maintenance::default();
            self.nodes[node].watch.hold(Moment::default());
        }
        self.looks(node);
        self.nodes[node].over = Some((order, why));
        if self.nodes[node].mirror.is_some() {
            self.nodes[node].link = None;
            return self.take_memory_back(node);
        }
        self.revoke(node)?;
        self.nodes[node].link = None;
        self.nodes[node].follower.closed();
        self.nodes[node].view.closed();
        self.attempt_over(node);
        Ok(())
    }

    /// The same of a node that may have ended.
    pub(crate) fn unlink_if_up(&mut self, node: usize, why: Ended) -> Result<(), Violation> {
        if self.nodes[node].up { self.unlink(node, why) } else { Ok(()) }
    }

    /// No other node can write into the memory of `node`: it may try the next.
    pub(crate) fn attempt_over(&mut self, node: usize) {
        let known: Vec<String> = (0..self.nodes.len()).map(address).collect();
        let draw = self.dice.below(1000);
        let state = &mut self.nodes[node];
        state.upstream.revoked();
        let Some((order, why)) = state.over.take() else { return self.reconnect(node) };
        if let Ended::Refused(Refusal::NotPrimary { node, .. }) = &why {
            state.view.observe_not_leading(*node);
        }
        let pause = state.upstream.ended(order, &why, &known, draw);
        let pause = if state.upstream.pauses(order) { pause.as_micros() as u64 } else { 0 };
        self.note(|| format!("node {node} is not fed, {why:?}, and looks again in {pause}"));
        self.try_after(node, pause.max(1));
    }

    /// It is not fed, for this reason.
    pub(crate) fn not_fed(&mut self, node: usize, why: Refusal) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        match &why {
            Refusal::NoteSet { set } => state.disk.terms.note_set((**set).clone()),
            Refusal::LogGone { from, .. } => self.log_gone(node, *from),
            _ => {}
        }
        self.unlink(node, Ended::Refused(why))
    }
}
