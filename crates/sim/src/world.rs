//! The clock, what goes wrong, who writes, and who puts things right.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use freshet_base::{ClusterId, Lsn, Safety, Term};
use freshet_cluster::{
    Moment,
    commit_rule::{Event, RuleConfig},
    flow::FlowConfig,
    follower::{self, FollowerConfig, RelayRules, ReplayMode},
    in_sync::{Holder, InSyncSet, Succession},
    promotion::Inheritance,
    term::{Fence, TermEntry, may_come_back},
};

use crate::{
    Report,
    checks::{Checks, Violation},
    dice::Dice,
    log::Block,
    net::{ConnectionId, Message, Network},
    node::{Node, Role},
    one_sided::Memory,
    scenario::{Broken, Scenario},
};

/// How long a standby may stall.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(30);
/// How long a node that leads, or is about to, may be silent.
const SILENCE: Duration = Duration::from_millis(30);
/// All nodes are of this cluster.
pub(crate) const CLUSTER: ClusterId = ClusterId(1);
/// What a standby's ring holds.
pub(crate) const RING: u64 = 6000;
/// The longest stretch of the log that is written and not committed.
const BACKLOG: u64 = 12_000;
/// After the faults, everything is well within this, in microseconds.
const CALM: u64 = 6_000_000;

/// What happens next.
#[derive(Debug)]
pub(crate) enum What {
    Deliver {
        connection: ConnectionId,
        to: usize,
        message: Message,
    },
    /// In this life of a node.
    Of {
        node: usize,
        life: u32,
        what: Own,
    },
    Start(usize),
    Room(usize),
    Heal(usize, usize),
    HealOneWay(usize, usize),
    /// What was sent on a connection did not arrive, and it is given up.
    Silent(ConnectionId),
    Client,
    Fault,
    Operator,
}

/// What happens to a node while it lives.
#[derive(Debug)]
pub(crate) enum Own {
    Lost(ConnectionId),
    /// The log up to `to`, unless it was cut since.
    Flushed {
        cuts: u32,
        to: u64,
    },
    Replayed {
        cuts: u32,
        to: u64,
    },
    /// Some of what has arrived.
    Regenerated {
        cuts: u32,
    },
    Tick,
    Pump,
    Reconnect,
    Announce,
    Round(u32),
    Fetched(u32),
    Restart,
    Take,
    Continue,
}

/// How a node ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Crash {
    /// What it had written and not synced is read by the next process.
    Process,
    /// Only what is on its disk is left.
    Power,
}

/// A cluster and everything around it.
pub(crate) struct World {
    pub scenario: Scenario,
    pub dice: Dice,
    pub now: Moment,
    /// By time, and by when it was said.
    queue: BTreeMap<(u64, u64), What>,
    entries: u64,
    pub nodes: Vec<Node>,
    pub net: Network,
    pub checks: Checks,
    pub report: Report,
    /// The faults are over.
    pub calm: bool,
    writing: bool,
    /// Logs whose disks were lost.
    pub lost_disks: BTreeSet<Holder>,
    /// Which of two logs is right is for the operator to say.
    pub undecided: bool,
    contents: u64,
    drawn: u64,
    idle: u32,
    /// What happened, if that is to be kept.
    pub trace: Option<Vec<String>>,
}

impl World {
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let nodes: Vec<Node> = (0..scenario.nodes())
            .map(|index| {
                let synchronous = index <= scenario.synchronous;
                let below = index > scenario.synchronous + scenario.asynchronous;
                let relays = index == 1 && scenario.cascaded > 0;
                let rules = RelayRules {
                    ack: scenario.relay_ack,
                    standbys: scenario.cascaded as u32,
                    standby_timeout: TIMEOUT,
                };
                let follows = FollowerConfig {
                    replay: ReplayMode::Pipelined,
                    capacity: RING,
                    patience: SILENCE,
                    relay: relays.then_some(rules),
                };
                Node::new(index, synchronous, below.then_some(1), follows)
            })
            .collect();
        Self {
            scenario,
            dice: Dice(seed),
            now: Moment(0),
            queue: BTreeMap::new(),
            entries: 0,
            nodes,
            net: Network::default(),
            checks: Checks::default(),
            report: Report::default(),
            calm: false,
            writing: true,
            lost_disks: BTreeSet::new(),
            undecided: false,
            contents: 0,
            drawn: 0,
            idle: 0,
            trace: None,
        }
    }

    pub fn at(&mut self, at: u64, what: What) {
        self.entries += 1;
        self.queue.insert((at, self.entries), what);
    }

    pub fn after(&mut self, pause: u64, what: What) {
        self.at(self.now.0 + pause, what);
    }

    /// The same for a node, if it lives until then.
    pub fn later(&mut self, node: usize, pause: u64, what: Own) {
        let life = self.nodes[node].life;
        self.after(pause, What::Of { node, life, what });
    }

    /// Something happens.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if self.scenario.trace || self.trace.is_some() {
            let line = format!("{:>8} {}", self.now.0, what());
            if self.scenario.trace {
                println!("{line}");
            }
            self.trace.iter_mut().for_each(|trace| trace.push(line.clone()));
        }
    }

    /// What the clock of `node` says.
    pub fn clock(&self, node: usize) -> Moment {
        Moment(self.now.0 + self.nodes[node].ahead)
    }

    /// The clock of `node` jumps ahead, as that of a machine that was suspended. What waits for it
    /// looks again.
    fn jump(&mut self, node: usize) {
        let jump = self.dice.between(1000, 200_000);
        let state = &mut self.nodes[node];
        state.ahead += jump;
        state.ticks = None;
        self.later(node, 1, Own::Tick);
        self.later(node, 1, Own::Pump);
    }

    /// A number that no node has drawn before.
    pub fn unique(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    pub fn rule(&self) -> RuleConfig {
        let safety = match (self.scenario.broken, self.scenario.safety) {
            (Broken::QuickestOnly, Safety::VerySafe | Safety::Quorum(_)) => Safety::Quorum(2),
            (_, safety) => safety,
        };
        RuleConfig {
            standby_timeout: TIMEOUT,
            join_window: 2000,
            floor: self.scenario.floor,
            ..RuleConfig::new(safety, self.scenario.synchronous as u32)
        }
    }

    pub fn flow(&self) -> FlowConfig {
        FlowConfig { frame: 2000, watermark_delay: Duration::from_micros(300), keep_alive: Duration::from_millis(10) }
    }

    /// A block that `node` writes in `term`, where its log ends.
    pub fn block(&mut self, node: usize, term: Term, length: u64, last: bool, set: Option<InSyncSet>) -> Block {
        self.contents += 1;
        let (start, owner) = (self.nodes[node].disk.log.end(), self.nodes[node].id);
        Block { start, length, term, owner, content: self.contents, last, set: set.map(std::rc::Rc::new) }
    }

    pub fn run(&mut self) -> Result<Report, Violation> {
        match self.live() {
            // The operator has to choose, and nothing happens before that.
            Err(violation)
                if violation.property == crate::Property::Progress && (self.undecided || self.is_unknowable()) => {}
            outcome => outcome?,
        }
        Ok(self.report)
    }

    fn live(&mut self) -> Result<(), Violation> {
        self.nodes[0].disk.terms.fence = Fence::new(Term(0), None);
        for node in 0..self.nodes.len() {
            self.nodes[node].disk.terms.incarnation = Some(self.unique());
        }
        for node in 0..self.nodes.len() {
            // No two clocks have the same origin.
            self.nodes[node].ahead = self.dice.below(1_000_000);
        }
        self.nodes[0].up = true;
        let inheritance =
            Inheritance { succession: Succession::New(1), committed: Lsn::ZERO, answered: Default::default() };
        self.begin_term(0, Term(1), inheritance)?;
        for node in 1..self.nodes.len() {
            // Some join late, and have to catch up.
            let late = if self.dice.one_in(4) { self.scenario.chaos / 2 } else { 3000 };
            let at = self.dice.below(late);
            self.at(at, What::Start(node));
        }
        self.at(0, What::Client);
        self.at(5000, What::Fault);
        self.at(8000, What::Operator);
        self.until(self.scenario.chaos, |_| false)?;
        self.quieten();
        let deadline = self.scenario.chaos + CALM;
        if !self.until(deadline, |world| world.settled().is_some())? {
            return self.no_progress("not everybody follows one primary");
        }
        let before = self.report.acknowledged;
        if !self.until(deadline, |world| world.report.acknowledged > before + 50)? {
            return self.no_progress("nothing is committed");
        }
        self.writing = false;
        if !self.until(deadline, |world| world.level().is_some())? {
            return self.no_progress("not everybody is level");
        }
        let primary = self.level().expect("just now");
        self.check_new_term(primary)
    }

    /// Lets things happen until `done`, or the time comes; says whether it was `done`.
    fn until(&mut self, deadline: u64, done: impl Fn(&Self) -> bool) -> Result<bool, Violation> {
        let mut events = 0_u32;
        while let Some(next) = self.queue.first_entry() {
            let at = next.key().0;
            if at > deadline {
                return Ok(false);
            }
            self.now = Moment(at.max(self.now.0));
            let what = next.remove();
            self.happens(what)?;
            if self.undecided {
                return Ok(false);
            }
            events += 1;
            if events.is_multiple_of(64) && done(self) {
                return Ok(true);
            }
        }
        Ok(done(self))
    }

    fn happens(&mut self, what: What) -> Result<(), Violation> {
        let Some(what) = self.unless_stopped(what) else { return Ok(()) };
        self.note(|| format!("{what:?}"));
        match what {
            What::Deliver { connection, to, message } => self.deliver(connection, to, message),
            What::Of { node, life, what } if self.nodes[node].up && self.nodes[node].life == life => {
                self.happens_to(node, what)
            }
            What::Of { .. } => Ok(()),
            What::Start(node) => self.start(node),
            What::Room(node) => {
                self.nodes[node].disk.full = false;
                self.nodes[node].disk.slowness = 1;
                self.flush(node)
            }
            What::Heal(a, b) => {
                self.net.parted.remove(&(a, b));
                Ok(())
            }
            What::HealOneWay(from, to) => {
                self.net.deaf.remove(&(from, to));
                Ok(())
            }
            What::Silent(connection) => {
                self.lose(connection);
                Ok(())
            }
            What::Client => self.client(),
            What::Fault => {
                self.fault();
                Ok(())
            }
            What::Operator => self.operator(),
        }
    }

    fn happens_to(&mut self, node: usize, what: Own) -> Result<(), Violation> {
        match what {
            Own::Lost(connection) => return self.lost(node, connection),
            Own::Flushed { cuts, to } => return self.flushed(node, cuts, to),
            Own::Replayed { cuts, to } => return self.replayed(node, cuts, to),
            Own::Regenerated { cuts } => return self.regenerated(node, cuts),
            Own::Tick => {
                self.nodes[node].ticks = None;
                return self.apply_to_rule(node, Event::Tick);
            }
            Own::Pump => {
                self.nodes[node].wakes = None;
                self.pump(node);
            }
            Own::Reconnect => {
                self.nodes[node].reconnects = false;
                self.follow(node);
            }
            Own::Announce => self.announce(node),
            Own::Round(round) => return self.round_over(node, round),
            Own::Fetched(round) => return self.after_fetch(node, round),
            Own::Restart => return self.restart(node),
            Own::Take => return self.take(node),
            Own::Continue => self.go_on(node),
        }
        Ok(())
    }

    /// A transaction at every node that takes itself for the primary.
    fn client(&mut self) -> Result<(), Violation> {
        let pause = self.dice.between(100, 2500);
        self.after(pause, What::Client);
        if !self.writing {
            return Ok(());
        }
        for node in 0..self.nodes.len() {
            let Some(lead) = self.nodes[node].lead().filter(|lead| lead.rule.admit().is_ok()) else { continue };
            let term = lead.term;
            let stopped = !self.nodes[node].up || self.nodes[node].memory.stopped;
            if stopped || self.nodes[node].disk.log.end() > lead.acknowledged + BACKLOG {
                continue;
            }
            let blocks = if self.dice.one_in(6) { self.dice.between(2, 6) } else { 1 };
            for block in 1..=blocks {
                let longest = if self.dice.one_in(20) { 200 } else { 30 };
                let length = 8 * self.dice.between(4, longest);
                let block = self.block(node, term, length, block == blocks, None);
                let digest = self.nodes[node].disk.log.push(block.clone());
                self.check_block(node, &block, digest)?;
            }
            self.flush(node)?;
        }
        Ok(())
    }

    fn fault(&mut self) {
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
                let until = self.dice.between(2000, 60_000);
                self.after(until, What::Room(node));
            }
            7 => {
                self.nodes[node].disk.full = true;
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
        end
    }

    /// The machine of a node that is down loses power: only its disk is left.
    fn lose_power(&mut self, node: usize) {
        let end = self.lose_above(node, self.nodes[node].disk.sure);
        let state = &mut self.nodes[node];
        state.disk.synced = state.disk.synced.min(end);
        (state.disk.sure, state.disk.dropped) = (end, false);
        if self.scenario.broken == Broken::PromiseNotDurable {
            let terms = &mut state.disk.terms;
            terms.fence = Fence::new(terms.history.last_term(), terms.history.entries().last().map(|last| last.node));
        }
    }

    /// A restart finds where the log ends, and makes all of it durable before it tells anybody.
    fn settle(&mut self, node: usize) {
        let broken = self.scenario.broken;
        let disk = &mut self.nodes[node].disk;
        let (synced, end) = (disk.synced, disk.log.end());
        disk.synced = end;
        disk.failing = false;
        match broken {
            Broken::TailNotSynced => {}
            Broken::TailNotRewritten if disk.dropped => {}
            _ => (disk.sure, disk.dropped) = (end, false),
        }
        let _ = self.nodes[node].note_sets(synced, end);
        self.nodes[node].start();
    }

    pub(crate) fn crash_of(&mut self, node: usize, how: Crash) {
        if !std::mem::take(&mut self.nodes[node].up) {
            return;
        }
        self.note(|| format!("node {node} ends: {how:?}"));
        match how {
            // What was written is read by the next process.
            Crash::Process => drop(self.lose_above(node, self.nodes[node].disk.synced)),
            Crash::Power => self.lose_power(node),
        }
        let state = &mut self.nodes[node];
        state.life += 1;
        state.cuts += 1;
        state.role = Role::Standby;
        state.flushing = false;
        state.replaying = None;
        state.reconnects = false;
        state.link = None;
        state.host = None;
        state.wakes = None;
        state.candidate = None;
        state.ticks = None;
        state.memory = Memory { file: state.memory.file + 1, ..Memory::default() };
        state.visible = 0;
        state.start();
        for id in 0..self.net.connections.len() {
            if self.net.connections[id].open && self.net.connections[id].ends.contains(&node) {
                self.lose(id);
            }
        }
        let pause = self.dice.between(1000, 120_000);
        self.after(pause, What::Start(node));
    }

    fn start(&mut self, node: usize) -> Result<(), Violation> {
        if std::mem::replace(&mut self.nodes[node].up, true) {
            return Ok(());
        }
        self.replace_disk(node);
        self.bring_copy(node);
        self.settle(node);
        let state = &mut self.nodes[node];
        let undisturbed = |last: &TermEntry| (last.node, last.term) == (state.id, state.disk.terms.fence.highest());
        state.returns = match self.scenario.broken {
            // As if a node that was told of a later term waited to be told which node to follow.
            Broken::PromiseForgotten => state.disk.terms.history.entries().last().is_some_and(undisturbed),
            _ => may_come_back(state.id, &state.disk.terms.history, &state.disk.terms.fence),
        };
        if state.returns {
            return self.restart(node);
        }
        let state = &self.nodes[node];
        // Its own term was the last that it has heard of only if nobody told it otherwise.
        let holder = state.disk.terms.fence.holder().map(|holder| holder.0 as usize).filter(|holder| *holder != node);
        self.nodes[node].primary = holder.or(self.nodes[node].primary).or(Some(0));
        self.follow(node);
        Ok(())
    }

    /// Looks after the cluster: lets a node take over, and starts former primaries again, as they
    /// were.
    fn operator(&mut self) -> Result<(), Violation> {
        let pause = self.dice.between(3000, 20_000);
        self.after(pause, What::Operator);
        let count = self.nodes.len();
        let runs = |node: &Node| !node.memory.stopped;
        let leading: Vec<usize> =
            (0..count).filter(|node| self.nodes[*node].leads() && runs(&self.nodes[*node])).collect();
        for node in 0..count {
            // As they do by themselves.
            let fenced = self.nodes[node].lead().and_then(|lead| lead.rule.fenced()).is_some();
            if fenced && self.nodes[node].up && self.dice.one_in(3) {
                self.crash(node);
            }
        }
        if leading.len() > 1 && self.calm && self.scenario.force && self.dice.one_in(4) {
            // Whoever was forced may have committed in the same term as another: then somebody has
            // to choose.
            let (last, rest) = leading.split_last().expect("there are several");
            self.crash(*last);
            for node in rest {
                self.nodes[*node].primary = Some(*last);
                self.crash(*node);
                self.demote(*node);
            }
            return Ok(());
        }
        if let ([primary], true) = (&*leading, self.calm)
            && self.contested(*primary)
            && self.dice.one_in(4)
        {
            // Others have promised themselves to another node in the same term: a later one
            // resolves it.
            self.crash(*primary);
            return Ok(());
        }
        self.idle = if leading.is_empty() { self.idle + 1 } else { 0 };
        let coup = !self.calm && self.dice.one_in(25);
        // In the end they do not have to be told which node leads, unless what was forced has to
        // be mended, or the one that would come back by itself has lost its disk.
        let lost = self.report.disks > 0 && self.idle > 20;
        let helps = self.idle > 2 && (!self.calm || self.scenario.force || lost);
        if helps || coup {
            let candidates: Vec<usize> = (0..count)
                .filter(|node| self.nodes[*node].up && self.nodes[*node].lead().is_none())
                .filter(|node| self.nodes[*node].candidate.is_none() && runs(&self.nodes[*node]))
                // Who belongs to no cluster yet cannot be asked to take over.
                .filter(|node| !self.nodes[*node].disk.terms.history.entries().is_empty())
                .collect();
            if !candidates.is_empty() {
                let node = candidates[self.dice.below(candidates.len() as u64) as usize];
                let force = self.scenario.force && self.nodes[node].synchronous && self.dice.one_in(2);
                return self.promote(node, force);
            }
        }
        Ok(())
    }

    /// Whether somebody takes the primary's term for another node's.
    fn contested(&self, primary: usize) -> bool {
        let term = self.nodes[primary].lead().map(|lead| lead.term);
        let another = |node: &Node| node.disk.terms.fence.holder().is_some_and(|holder| holder.0 as usize != primary);
        self.nodes.iter().any(|node| Some(node.disk.terms.fence.highest()) == term && another(node))
    }

    /// The operator makes a primary of the past a standby: it forgets that the last term was its
    /// own.
    fn demote(&mut self, node: usize) {
        let fence = self.nodes[node].disk.terms.fence.highest();
        self.nodes[node].disk.terms.fence = Fence::new(Term(fence.0), None);
        let primary = self.nodes[node].primary.map(|primary| self.nodes[primary].id);
        if let Some(primary) = primary {
            // Known to everybody who has to know: the one that goes on leads in a later term.
            self.nodes[node].disk.terms.fence = Fence::new(fence, Some(primary));
        }
    }

    /// No faults from here on.
    fn quieten(&mut self) {
        self.calm = true;
        self.net.parted.clear();
        self.net.deaf.clear();
        for node in 0..self.nodes.len() {
            self.nodes[node].disk.full = false;
            self.nodes[node].disk.failing = false;
            self.nodes[node].disk.slowness = 1;
            self.after(1, What::Room(node));
            self.later(node, 1, Own::Continue);
            if !self.nodes[node].up {
                self.after(1000, What::Start(node));
            }
        }
    }

    /// The commit rule, or a relay's, has to be told of the time once more.
    pub(crate) fn watch(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let deadline = match &state.role {
            Role::Primary(lead) => lead.rule.next_deadline(),
            Role::Standby => state.follower.next_deadline(),
        };
        let Some(deadline) = deadline else { return };
        let at = deadline.0.saturating_sub(state.ahead).max(self.now.0 + 1);
        if state.ticks.is_none_or(|ticks| ticks > at) {
            state.ticks = Some(at);
            let life = state.life;
            self.at(at, What::Of { node, life, what: Own::Tick });
        }
    }

    /// Feeds the commit rule of a primary, or of a relay, and carries out what it decides.
    pub(crate) fn apply_to_rule(&mut self, node: usize, event: Event) -> Result<(), Violation> {
        let now = self.clock(node);
        let state = &mut self.nodes[node];
        let Role::Primary(lead) = &mut state.role else {
            self.apply_to_follower(node, follower::Event::Below(event))?;
            self.acknowledge(node, false);
            return Ok(());
        };
        let decision = lead.rule.apply(event, now);
        if lead.rule.set_took_effect() {
            state.disk.terms.led = Some(lead.term);
        }
        let (before, fenced) = (lead.acknowledged, lead.rule.fenced().is_some());
        let whole = state.disk.log.transaction_end(decision.committed.0);
        if whole > before {
            self.check_acknowledged(node, whole)?;
            let state = &mut self.nodes[node];
            self.report.acknowledged +=
                state.disk.log.between(before, whole).iter().filter(|block| block.last).count() as u64;
            state.lead_mut().expect("it was a moment ago").acknowledged = whole;
            self.committed(node, whole);
        }
        if fenced {
            self.end_feeds(node);
        }
        self.watch(node);
        if decision.write && !fenced {
            self.write_set(node)?;
        }
        Ok(())
    }

    fn write_set(&mut self, node: usize) -> Result<(), Violation> {
        let lead = self.nodes[node].lead().expect("only a primary's rule asks");
        let Some(set) = lead.rule.to_write().cloned() else { return Ok(()) };
        let (term, number) = (lead.term, set.number);
        if self.scenario.broken == Broken::SetNotRecorded && number > 3 {
            let end = lead.rule.durable().min(Lsn(self.nodes[node].disk.synced));
            let end = end.min(lead.rule.committed());
            return self.apply_to_rule(node, Event::Written { number, end });
        }
        self.check_set(node, &set)?;
        self.report.sets += 1;
        let block = self.block(node, term, 64, true, Some(set));
        let end = Lsn(block.end());
        if let Some(host) = &mut self.nodes[node].host {
            host.recorded(end);
        }
        let digest = self.nodes[node].disk.log.push(block.clone());
        self.check_block(node, &block, digest)?;
        self.apply_to_rule(node, Event::Written { number, end })?;
        self.flush(node)
    }
}
