//! The clock, what goes wrong, who writes, and who puts things right.

use std::{collections::BTreeSet, time::Duration};

use freshet_base::{ClusterId, Lsn, Safety, Term};
use freshet_cluster::{
    Moment,
    commit_rule::{Event, RuleConfig},
    flow::FlowConfig,
    in_sync::{Holder, InSyncSet, Succession},
    promotion::Inheritance,
    recording::Recorder,
    term::{Fence, TermEntry, may_come_back},
};

use crate::{
    Report,
    checks::{Checks, Violation},
    dice::Dice,
    log::Block,
    maintenance::Orders,
    mirror::{of_changes, of_set, of_term},
    net::{ConnectionId, Message, Network},
    node::{Lead, Node, Role},
    queue::Queue,
    register::Kept,
    scenario::{Broken, Scenario},
};

/// How long a standby may stall.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(30);
/// How long a lease lasts.
const LEASE: Duration = Duration::from_millis(25);
/// All nodes are of this cluster.
pub(crate) const CLUSTER: ClusterId = ClusterId(1);
/// The longest stretch of the log that is written and not committed.
const BACKLOG: u64 = 12_000;
/// After the faults, everything is well within this, in microseconds.
const CALM: u64 = 6_000_000;

/// What a standby's ring holds.
pub(crate) fn ring(scenario: &Scenario) -> u64 {
    scale(scenario) * 6000
}

/// How many times as long blocks are where they have rows.
fn scale(scenario: &Scenario) -> u64 {
    if scenario.mirrors > 0 { 12 } else { 1 }
}

/// As many bytes of log, where blocks are longer.
pub(crate) fn of_scale(scenario: &Scenario, bytes: u64) -> u64 {
    scale(scenario) * bytes
}

/// What happens next.
#[derive(Debug)]
pub(crate) enum What {
    Deliver {
        connection: ConnectionId,
        to: usize,
        message: Box<Message>,
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
    /// A mirror is promoted while the primary lives.
    Coup,
    /// Some of what is posted on a connection lands.
    Land(ConnectionId),
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
    LookWhetherStuck,
    EndsWithoutLog,
    /// It looks whether it has to stand.
    Look,
    /// It looks how far its switch-over is.
    Switch,
    Pump,
    Reconnect,
    Announce,
    AskWitness,
    Round(u32),
    Fetched(u32),
    Restart,
    Take,
    Continue,
    /// A list of writes has landed in a mirror's memory.
    Completed {
        connection: ConnectionId,
        token: u64,
    },
    /// A mirror writes into its own memory, reads it, has become a database.
    Work,
    Read,
    TakenOver(Term, Box<Inheritance>),
    /// A checkpoint is written, or may count.
    Checkpoint,
    /// Others were asked for the block that begins here.
    Asked(u64),
}

/// What a block has.
#[derive(Clone, Debug)]
pub(crate) enum Writes {
    /// The beginning of a term.
    Term,
    /// An in-sync set.
    Set(InSyncSet),
    /// Rows, and whether the transaction ends with them.
    Rows { last: bool },
}

/// A cluster and everything around it.
pub(crate) struct World {
    pub scenario: Scenario,
    pub dice: Dice,
    pub operators: [Option<Dice>; 4],
    pub now: Moment,
    queue: Queue<What>,
    pub nodes: Vec<Node>,
    pub net: Network,
    pub checks: Checks,
    pub report: Report,
    /// Of a cluster whose witness is a register.
    pub register: Kept,
    /// The faults are over.
    pub calm: bool,
    writing: bool,
    /// Logs whose disks were lost.
    pub lost_disks: BTreeSet<Holder>,
    /// Which of two logs is right is for the operator to say.
    pub undecided: bool,
    /// Refuses to follow the primary, since it holds more.
    pub holds_more: Option<usize>,
    /// Cards write into mirrors' memory, and not processes.
    pub cards: bool,
    /// How many writes have landed there.
    pub writes: u64,
    contents: u64,
    drawn: u64,
    pub idle: u32,
    /// The orders of maintenance.
    pub orders: Orders,
    /// What happened, if that is to be kept.
    pub trace: Option<Vec<String>>,
}

impl World {
    pub fn new(scenario: Scenario, seed: u64, recorder: &Recorder) -> Self {
        let scenario = scenario.of(seed);
        let nodes = (0..scenario.nodes()).map(|index| Node::of(&scenario, index, recorder)).collect();
        let mut dice = Dice(seed);
        let cards = scenario.mirrors > 0 && dice.one_in(2);
        Self {
            scenario,
            dice,
            operators: crate::operator::operators(&scenario, seed),
            cards,
            writes: 0,
            now: Moment(0),
            queue: Queue::default(),
            nodes,
            net: Network::default(),
            checks: Checks::default(),
            register: Kept::default(),
            report: Report::default(),
            calm: false,
            writing: true,
            lost_disks: BTreeSet::new(),
            undecided: false,
            holds_more: None,
            contents: 0,
            drawn: 0,
            idle: 0,
            orders: Orders::default(),
            trace: None,
        }
    }

    pub fn at(&mut self, at: u64, what: What) {
        self.queue.push(at, what);
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
        self.nodes[node].clock(self.now)
    }

    /// The clock of `node` jumps ahead, as that of a machine that was suspended. What waits for it
    /// looks again.
    pub(crate) fn jump(&mut self, node: usize) {
        let jump = self.dice.between(1000, 200_000);
        let state = &mut self.nodes[node];
        state.ahead += jump;
        state.jumped += jump;
        (state.ticks, state.wakes, state.looks) = (None, None, None);
        self.later(node, 1, Own::Look);
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
            join_window: scale(&self.scenario) * 2000,
            // One member in common with the set before would do.
            floor: if self.scenario.broken == Broken::SetNotJoint { 0 } else { self.scenario.floor },
            lease: Some(self.lease()),
            ..RuleConfig::new(safety, self.scenario.synchronous as u32)
        }
    }

    /// How long a lease lasts: longer than a restart, where that is to be seen.
    pub fn lease(&self) -> Duration {
        if self.scenario.broken == Broken::RestartedVoterGrants { LEASE * 10 } else { LEASE }
    }

    pub fn flow(&self) -> FlowConfig {
        let frame = scale(&self.scenario) * 2000;
        FlowConfig { frame, watermark_delay: Duration::from_micros(300), keep_alive: Duration::from_millis(10) }
    }

    /// A block that `node` writes in `term`, where its log ends.
    pub fn block(&mut self, node: usize, term: Term, writes: Writes) -> Block {
        self.contents += 1;
        let (start, owner) = (self.nodes[node].disk.log.end(), self.nodes[node].id);
        let last = !matches!(writes, Writes::Rows { last: false });
        let made = (self.scenario.mirrors > 0).then(|| match &writes {
            Writes::Term => of_term(start, term, owner),
            Writes::Set(set) => of_set(start, term, set),
            Writes::Rows { last } => {
                let Role::Primary(lead) = &mut self.nodes[node].role else { panic!("only who leads writes rows") };
                of_changes(start, term, *last, &mut lead.records, &mut self.dice)
            }
        });
        let length = match (&made, &writes) {
            (Some(made), _) => made.bytes.len() as u64,
            (None, Writes::Term) => 48,
            (None, Writes::Set(_)) => 64,
            (None, Writes::Rows { .. }) => {
                let longest = if self.dice.one_in(20) { 200 } else { 30 };
                8 * self.dice.between(4, longest)
            }
        };
        let set = if let Writes::Set(set) = &writes { Some(std::rc::Rc::new(set.clone())) } else { None };
        let mut block =
            Block { start, length, term, owner, content: self.contents, last, set, made, does: None, form: None };
        if let Writes::Rows { last } = writes {
            let alone = last && self.nodes[node].disk.log.blocks().last().is_none_or(|before| before.last);
            self.transact(node, &mut block, alone);
        }
        block
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
            // Within the bound on the rates of any two.
            self.nodes[node].fast = self.dice.below(15_000) as i64 - 7500;
        }
        self.nodes[0].up = true;
        let inheritance =
            Inheritance { succession: Succession::begin(), committed: Lsn::ZERO, answered: Default::default() };
        self.begin_term(0, Term(1), inheritance)?;
        for node in 1..self.nodes.len() {
            // Some join late, and have to catch up.
            let late = if self.dice.one_in(4) { self.scenario.chaos / 2 } else { 3000 };
            let at = self.dice.below(late);
            self.at(at, What::Start(node));
        }
        self.at(0, What::Client);
        match self.scenario.dying {
            None => self.at(5000, What::Fault),
            Some(_) => self.at(self.scenario.chaos / 2, What::Coup),
        }
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
        self.check_mirrors()?;
        self.check_new_term(primary)
    }

    /// Lets things happen until `done`, or the time comes; says whether it was `done`.
    fn until(&mut self, deadline: u64, done: impl Fn(&Self) -> bool) -> Result<bool, Violation> {
        let mut events = 0_u32;
        while let Some((at, what)) = self.queue.pop(deadline) {
            self.now = Moment(at.max(self.now.0));
            self.happens(what)?;
            if self.undecided {
                return Ok(false);
            }
            events += 1;
            if events.is_multiple_of(64) && done(self) {
                return Ok(true);
            }
        }
        Ok(self.queue.is_empty() && done(self))
    }

    fn happens(&mut self, what: What) -> Result<(), Violation> {
        let Some(what) = self.unless_stopped(what) else { return Ok(()) };
        self.note(|| format!("{what:?}"));
        match what {
            What::Deliver { connection, to, message } => self.deliver(connection, to, *message),
            What::Of { node, life, what } if self.nodes[node].up && self.nodes[node].life == life => {
                self.happens_to(node, what)
            }
            What::Of { .. } => Ok(()),
            What::Start(node) => self.start(node),
            What::Room(node) => {
                self.nodes[node].disk.full = None;
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
            What::Land(connection) => {
                self.land_writes(connection);
                Ok(())
            }
            What::Fault => {
                self.fault();
                Ok(())
            }
            What::Operator => {
                self.order_maintenance();
                self.operator()
            }
            What::Coup => self.coup(),
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
            Own::LookWhetherStuck => return self.look_whether_stuck(node),
            Own::EndsWithoutLog => self.replace_failed(node),
            Own::Look => return self.look(node),
            Own::Switch => self.switch(node),
            Own::Pump => {
                // An earlier look has been arranged since, and has arranged the next one.
                if self.nodes[node].wakes.is_none_or(|wakes| wakes <= self.now.0) {
                    self.nodes[node].wakes = None;
                    return self.pump(node);
                }
            }
            Own::Reconnect => self.try_again(node),
            Own::Announce => self.announce_again(node),
            Own::AskWitness => return self.ask_witness_again(node),
            Own::Round(round) => return self.round_over(node, round),
            Own::Fetched(round) => return self.after_fetch(node, round),
            Own::Restart => return self.restart(node),
            Own::Take => return self.take(node),
            Own::Continue => self.go_on(node),
            Own::Completed { connection, token } => return self.completed(node, connection, token),
            Own::Work => return self.work(node),
            Own::Read => return self.read_memory(node),
            Own::Checkpoint => self.own_checkpoint(node),
            Own::Asked(at) => return self.originals_over(node, at),
            Own::TakenOver(term, inheritance) => return self.taken_over(node, term, *inheritance),
        }
        Ok(())
    }

    /// A transaction at every node that takes itself for the primary.
    fn client(&mut self) -> Result<(), Violation> {
        self.check_reads()?;
        let pause = self.dice.between(100, 2500);
        self.after(pause, What::Client);
        if !self.writing {
            return Ok(());
        }
        for node in 0..self.nodes.len() {
            let admits = |lead: &&Lead| lead.rule.admit().is_ok() && !lead.switching.closed;
            let Some(lead) = self.nodes[node].lead().filter(admits) else { continue };
            let term = lead.term;
            let stopped = !self.nodes[node].up || self.nodes[node].memory.stopped;
            if stopped || self.nodes[node].disk.log.end() > lead.acknowledged + scale(&self.scenario) * BACKLOG {
                continue;
            }
            let blocks = match self.dice.below(120) {
                // It writes over more than an undo ring holds.
                0 if self.scenario.mirrors > 0 => self.dice.between(80, 160),
                0..20 => self.dice.between(2, 6),
                _ => 1,
            };
            for block in 1..=blocks {
                let block = self.block(node, term, Writes::Rows { last: block == blocks });
                let digest = self.nodes[node].disk.log.push(block.clone());
                self.check_block(node, &block, digest)?;
            }
            let end = self.nodes[node].disk.log.end();
            if let Some(lead) = self.nodes[node].lead_mut() {
                lead.written = end;
            }
            self.flush(node)?;
        }
        Ok(())
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

    pub(crate) fn start(&mut self, node: usize) -> Result<(), Violation> {
        if std::mem::replace(&mut self.nodes[node].up, true) {
            return Ok(());
        }
        self.replace_disk(node);
        self.begin_to_watch(node);
        if self.nodes[node].is_witness {
            self.witness_starts(node);
            return Ok(());
        }
        if self.nodes[node].mirror.is_some() {
            self.follows_at_start(node);
            return self.mirror_starts(node);
        }
        self.bring_copy(node);
        self.settle(node);
        self.content_begins(node)?;
        let state = &mut self.nodes[node];
        let undisturbed = |last: &TermEntry| (last.node, last.term) == (state.id, state.disk.terms.fence.highest());
        state.returns = match self.scenario.broken {
            // As if a node that was told of a later term waited to be told which node to follow.
            Broken::PromiseForgotten => state.disk.terms.history.entries().last().is_some_and(undisturbed),
            _ => may_come_back(state.id, &state.disk.terms.history, &state.disk.terms.fence),
        };
        if state.returns {
            state.follows_first(None);
            return self.restart(node);
        }
        if self.scenario.broken == Broken::FoundsUnasked && state.disk.terms.history.entries().is_empty() && node == 0 {
            let (succession, committed) = (Succession::begin(), Lsn::ZERO);
            return self.begin_term(node, Term(1), Inheritance { succession, committed, answered: Default::default() });
        }
        self.follows_at_start(node);
        self.follow(node);
        Ok(())
    }

    /// No faults from here on.
    fn quieten(&mut self) {
        self.calm = true;
        self.net.parted.clear();
        self.net.deaf.clear();
        for node in 0..self.nodes.len() {
            self.nodes[node].disk.full = None;
            self.nodes[node].disk.failing = false;
            self.nodes[node].disk.slowness = 1;
            self.replace_failed(node);
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
        let at = state.world_time(deadline.0).max(self.now.0 + 1);
        if state.ticks.is_none_or(|ticks| ticks > at) {
            state.ticks = Some(at);
            let life = state.life;
            self.at(at, What::Of { node, life, what: Own::Tick });
        }
    }
}
