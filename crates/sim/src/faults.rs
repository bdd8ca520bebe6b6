//! What goes wrong: connections break, messages are lost, processes end, machines lose power.

use freshet_cluster::term::Fence;

use crate::{
    log::Block,
    net::ConnectionId,
    node::Role,
    one_sided::Memory,
    scenario::Broken,
    world::{Own, What, World},
};

/// How a node ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Crash {
    /// What it had written and not synced is read by the next process.
    Process,
    /// Only what is on its disk is left.
    Power,
}

impl World {
    pub(crate) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let pause = self.dice.between(1000, 25_000);
        self.after(pause, What::Fault);
        let count = self.nodes.len() as u64;
        let node = self.dice.below(count) as usize;
        match self.dice.below(19) {
            18 => self.keep_copy(node),
            17 => self.set_back(node),
            16 => self.lose_disk(node),
            15 => self.jump(node),
            14 => {
                let other = self.dice.below(count) as usize;
                self.part_one_way(node, other);
            }
            11..=13 => self.stop(node),
            0 | 1 if self.nodes[node].up => self.crash(node),
            0 | 1 => self.lose_power(node),
            2 | 3 => {
                let other = self.dice.below(count) as usize;
                self.part(node, other);
            }
            4 => (0..self.nodes.len()).for_each(|other| self.part(node, other)),
            5 | 6 => {
                self.nodes[node].disk.slowness = self.dice.between(5, 80);
                self.later(node, 1, Own::LookWhetherStuck);
                let until = self.dice.between(2000, 60_000);
                self.after(until, What::Room(node));
            }
            7 => {
                self.fill_disk(node);
                let until = self.dice.between(2000, 100_000);
                self.after(until, What::Room(node));
            }
            8 => self.nodes[node].disk.failing = true,
            _ => {
                let open = (0..self.net.connections.len()).rev().take(40).filter(|id| self.net.connections[*id].open);
                let open: Vec<ConnectionId> = open.collect();
                if !open.is_empty() {
                    let which = self.dice.below(open.len() as u64) as usize;
                    self.lose(open[which]);
                }
            }
        }
    }

    /// What `from` sends does not reach `to` any more, while the other way is open. Neither learns
    /// of it.
    fn part_one_way(&mut self, from: usize, to: usize) {
        if from != to && self.net.deaf.insert((from, to)) {
            let until = self.dice.between(3000, 120_000);
            self.after(until, What::HealOneWay(from, to));
        }
    }

    fn part(&mut self, a: usize, b: usize) {
        let (a, b) = (a.min(b), a.max(b));
        if a == b || !self.net.parted.insert((a, b)) {
            return;
        }
        for id in 0..self.net.connections.len() {
            let [from, to] = self.net.connections[id].ends;
            if (from.min(to), from.max(to)) == (a, b) {
                self.lose(id);
            }
        }
        let until = self.dice.between(3000, 120_000);
        self.after(until, What::Heal(a, b));
    }

    /// The node is gone at once: its process has died, or its machine has lost power.
    pub(crate) fn crash(&mut self, node: usize) {
        let how = if self.dice.one_in(2) { Crash::Process } else { Crash::Power };
        self.crash_of(node, how);
    }

    /// Some of the blocks above `from` in its log are left; recovery keeps those before the first
    /// gap.
    fn lose_above(&mut self, node: usize, from: u64) -> u64 {
        let odds = [0, 1, 2, 8, 1000][self.dice.below(5) as usize];
        if self.scenario.appliance {
            // What has arrived is in persistent memory, where a restart looks for it.
            let landed: Vec<Block> = self.nodes[node].landed().cloned().collect();
            for block in landed {
                self.nodes[node].disk.log.push(block);
            }
        }
        let odds = if self.scenario.appliance { 1 << 40 } else { odds };
        let mut end = from;
        let tail: Vec<u64> = self.nodes[node].disk.log.between(end, u64::MAX).iter().map(Block::end).collect();
        for block in tail {
            if odds == 0 || self.dice.one_in(odds) {
                break;
            }
            end = block;
        }
        self.nodes[node].disk.log.cut(end);
        self.journal_is_left(node, from);
        self.nodes[node].disk.log.end()
    }

    /// A node has ended: what it wrote into others' memory, by cards or by itself, ends too; and a
    /// card hears that the memory is gone into which it wrote.
    fn writers_end(&mut self, node: usize) {
        for id in 0..self.net.connections.len() {
            let [mirror, feeder] = self.net.connections[id].ends;
            if feeder == node || mirror == node && self.cards {
                self.line_ends(id);
            }
        }
    }

    /// The machine of a node that is down loses power: only its disk is left.
    pub(crate) fn lose_power(&mut self, node: usize) {
        if self.nodes[node].mirror.is_some() {
            return;
        }
        let end = self.lose_above(node, self.nodes[node].disk.sure);
        let state = &mut self.nodes[node];
        state.disk.synced = state.disk.synced.min(end);
        (state.disk.sure, state.disk.dropped) = (end, false);
        if self.scenario.broken == Broken::PromiseNotDurable {
            let terms = &mut state.disk.terms;
            terms.fence = Fence::new(terms.history.last_term(), terms.history.entries().last().map(|last| last.node));
        }
    }

    pub(crate) fn crash_of(&mut self, node: usize, how: Crash) {
        if !std::mem::take(&mut self.nodes[node].up) {
            return;
        }
        self.note(|| format!("node {node} ends: {how:?}"));
        self.writers_end(node);
        match how {
            _ if self.nodes[node].mirror.is_some() => {
                let lost = match how {
                    Crash::Power => true,
                    Crash::Process => self.dice.one_in(3),
                };
                let stays = !lost || !self.may_lose(node);
                self.mirror_ends(node, stays);
            }
            // What was written is read by the next process.
            Crash::Process => drop(self.lose_above(node, self.nodes[node].disk.synced)),
            Crash::Power => self.lose_power(node),
        }
        let state = &mut self.nodes[node];
        state.life += 1;
        state.cuts += 1;
        state.disk.failed = false;
        state.role = Role::Standby;
        state.flushing = false;
        state.replaying = None;
        (state.over, state.tries) = (None, None);
        state.link = None;
        state.host = None;
        state.wakes = None;
        state.candidate = None;
        state.ticks = None;
        state.memory = Memory { file: state.memory.file + 1, ..Memory::default() };
        state.visible = 0;
        state.lines.clear();
        state.batches.clear();
        state.start();
        for id in 0..self.net.connections.len() {
            if self.net.connections[id].open && self.net.connections[id].ends.contains(&node) {
                self.lose(id);
            }
        }
        let pause = self.dice.between(1000, 120_000);
        self.after(pause, What::Start(node));
    }
}
