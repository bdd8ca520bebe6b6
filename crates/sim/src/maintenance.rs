//! Maintenance: drives [`freshet_cluster::maintenance`], and knows itself which orders there are
//! and which of them each node was sent.

use std::{collections::BTreeMap, time::Duration};

use freshet_cluster::maintenance::{Maintenance, Notice, OrderId};

use crate::{
    checks::{Property, Violation},
    net::{ConnectionId, Message},
    world::World,
};

/// Clocks differ in their rates, so that a node may take an order for over that lasts no longer
/// than this, in microseconds.
const MARGIN: u64 = 4000;

/// What a process knows of maintenance.
#[derive(Default)]
pub(crate) struct Known {
    pub machine: Maintenance,
    /// The latest order that it was sent, or that was given there, whatever became of that.
    sent: OrderId,
}

/// When each order ends.
pub(crate) type Orders = BTreeMap<OrderId, u64>;

impl World {
    /// Somebody orders it, or ends it, on any node.
    pub(crate) fn order_maintenance(&mut self) {
        if !self.scenario.maintenance || self.calm || !self.dice.one_in(5) {
            return;
        }
        let runs = |node: &usize| self.nodes[*node].up && !self.nodes[*node].memory.stopped;
        let running: Vec<usize> = (0..self.nodes.len()).filter(runs).collect();
        if running.is_empty() {
            return;
        }
        let node = running[self.dice.below(running.len() as u64) as usize];
        let length = if self.dice.one_in(4) { 0 } else { self.dice.between(20_000, 250_000) };
        let nonce = self.unique();
        let state = &mut self.nodes[node];
        let now = state.steady_clock(self.now);
        let notice = state.maintenance.machine.order(nonce, Duration::from_micros(length), now);
        state.maintenance.sent = notice.order;
        self.orders.insert(notice.order, self.now.0 + length);
        self.report.maintenance += 1;
        self.note(|| format!("maintenance is ordered on node {node} for {length}"));
        self.looks(node);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.connect(node, other, Message::Maintenance { notice });
        }
    }

    /// What `node` says of it to another.
    pub(crate) fn maintenance(&self, node: usize) -> Notice {
        let state = &self.nodes[node];
        state.maintenance.machine.notice(state.steady_clock(self.now))
    }

    /// It was ordered, or ended, as another node says on this connection.
    pub(crate) fn maintenance_announced(&mut self, node: usize, id: ConnectionId, notice: Notice) {
        self.observe_maintenance(node, notice);
        self.send(id, node, Message::Noted);
    }

    /// Another node has said this.
    pub(crate) fn observe_maintenance(&mut self, node: usize, notice: Notice) {
        let state = &mut self.nodes[node];
        let now = state.steady_clock(self.now);
        state.maintenance.sent = state.maintenance.sent.max(notice.order);
        if state.maintenance.machine.observe(notice, now) {
            self.looks(node);
        }
    }

    /// How long `node` does not stand by itself.
    pub(crate) fn maintained(&self, node: usize) -> Option<Duration> {
        let state = &self.nodes[node];
        state.maintenance.machine.left(state.steady_clock(self.now))
    }

    /// `node` helps a node to lead that stands by itself, perhaps itself: it knows of no
    /// maintenance that lasts.
    pub(crate) fn check_maintenance(&self, node: usize) -> Result<(), Violation> {
        let order = self.nodes[node].maintenance.sent;
        match self.orders.get(&order) {
            Some(end) if *end > self.now.0 + MARGIN => Property::Maintenance.violated(format!(
                "node {node} stands by itself, or promises a term to a node that does, and was sent the order \
                 {order:?}, which lasts until {end}"
            )),
            _ => Ok(()),
        }
    }
}
