//! A primary and its mirrors (Active-Memory): rows are written into the mirrors' memory by the code
//! that production runs, recovered by the code that production runs, and compared with a history.
//!
//! | module | is |
//! |---|---|
//! | this one | the clock, the faults, the cluster manager |
//! | `posted` | lists of writes on their way into another node's memory |
//! | `working` | what a node writes into its own memory, a few writes at a time |
//! | `feeding` | the primary: transactions, batches, marks, checkpoints |
//! | `joining` | a mirror that comes to a primary: it recovers, is filled, is cut, is fed |
//! | `recovering` | mirrors whose primary was given up |
//! | `taking` | the one that is ahead: it fetches the rest of the log, and leads |
//! | `fuzzy_snapshots` | a mirror's memory, read for another node while it is written |
//! | `memory` | a mirror's memory, and what it has to hold |
//!
//! Fault model. Writes land in their order, a few at a time, on each connection at its own pace;
//! when the writer ends, or the memory is taken away, any number of them have landed, and of the
//! next one any cache lines. Completions are lost, and with them the connection. Whether writes
//! are made by cards, which work while a process stands still and stop when they are told to, or by
//! the writer itself, which stands still and continues where it was, is drawn for each world. The
//! primary dies, is given up while it lives, or stands still and writes on when it was succeeded.
//! Mirrors die and begin again with their memory as it was, or lose it; they die in the middle of a
//! recovery too, two at once, and again; when they are filled from a checkpoint, which is fuzzy, or
//! take the log in of a primary that they succeed: at each write into their own memory.
//!
//! What a mirror has noted of its memory outlives its process with that; without a note the memory
//! counts for nothing. Members that have no vote do not take part when a primary is given up.
//!
//! Who is a member is known to a *cluster manager* that never fails, as in the paper: a primary
//! continues without a mirror when the manager has taken that out, and gets nothing from it any
//! more once it was given up. At least one copy of what was acknowledged stays.

mod feeding;
mod fuzzy_snapshots;
mod joining;
mod memory;
mod posted;
mod recovering;
mod taking;
mod working;

use std::collections::{BTreeMap, BTreeSet};

use freshet_base::{Lsn, NodeId, Term};
use freshet_cluster::{
    mirror::{Footprint, MirrorState, Recovering, Rule},
    term::TermHistory,
};
use freshet_fabric::memory::Region;

use self::{
    feeding::Lead,
    fuzzy_snapshots::FuzzyReading,
    joining::Joining,
    memory::{Histories, check},
    posted::Posted,
    recovering::Round,
    taking::TakingOver,
    working::Work,
};
use crate::{
    Report,
    checks::{Property, Violation},
    dice::Dice,
    scenario::Scenario,
};

/// After the faults, everything is well within this, in microseconds.
const CALM: u64 = 2_000_000;

/// Which nodes die at an operation, for good or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dying {
    /// The primary.
    Primary,
    /// A mirror, the first that has a vote, and it comes back with its memory.
    Mirror,
    /// The last one of these.
    OtherMirror,
    /// Two of these.
    TwoMirrors,
    /// Both, and the mirror comes back with its memory.
    Both,
    /// Both, and the mirror's memory is lost.
    BothForGood,
    /// The node into whose memory it has landed, and it comes back with that as it noted it.
    Written,
    /// The same, and the primary.
    WrittenAndPrimary,
}

#[derive(Debug)]
pub(super) enum What {
    /// Some of what is under way on a link lands.
    Land(usize),
    /// A feeder hears that a list is complete.
    Completed {
        link: usize,
        token: u64,
    },
    /// A feeder hears that a link is over.
    Lost(usize),
    /// The primary posts what there is.
    Pump {
        node: usize,
        life: u32,
    },
    /// The next step of a recovery.
    Recover {
        node: usize,
        life: u32,
    },
    /// A mirror receives another one's footprint.
    Footprint {
        node: usize,
        life: u32,
        from: usize,
        footprint: Footprint,
    },
    /// A node writes into its own memory.
    Work {
        node: usize,
        life: u32,
    },
    /// A mirror receives how far everything has completed, how far the log reaches, and what is
    /// committed.
    Watermark {
        node: usize,
        life: u32,
        link: usize,
        to: Lsn,
        end: Lsn,
        committed: Lsn,
    },
    /// The next part of a fuzzy snapshot.
    FuzzySnapshot {
        node: usize,
        life: u32,
    },
    /// The primary is given up, and lives.
    GiveUp,
    /// A round may be over.
    Succession,
    Client,
    Manager,
    Fault,
    Start(usize),
    Continue(usize),
}

/// A connection by which one node writes into another's memory.
pub(super) struct Link {
    pub from: usize,
    pub to: usize,
    pub posted: Posted,
    /// Something can land.
    pub open: bool,
    /// Its memory was taken back.
    pub revoked: bool,
    landing: bool,
    slow: bool,
}

pub(super) struct Node {
    pub up: bool,
    pub life: u32,
    /// The process stands still, and what happens to it waits.
    stopped: bool,
    waiting: Vec<What>,
    /// What others write into; nothing if it was lost, or never was.
    pub memory: Vec<Region>,
    /// By which link it is fed.
    pub link: Option<usize>,
    pub recovering: Option<Recovering>,
    /// Of the memory, as long as that counts for the next process: its floor, and whether it is
    /// whole.
    pub noted: Option<(Lsn, bool)>,
    /// The terms of the log that the memory is a state of.
    pub history: TermHistory,
    /// What the process knows of the memory.
    pub mirror_state: Option<MirrorState>,
    /// Everything below was there when the last feed began.
    pub base: Lsn,
    /// What the primary has announced to be committed.
    pub announced: Lsn,
    /// Changes with all that is done to the memory but by the primary that feeds it.
    pub session: u64,
    /// What it still has to write into its own memory.
    pub work: Option<Work>,
    pub joining: Option<Joining>,
    pub fuzzy_snapshot: Option<FuzzyReading>,
    pub lead: Option<Box<Lead>>,
    /// Where its own term began: as long as its memory is below that.
    pub rests_on: Option<Lsn>,
}

impl Node {
    fn new() -> Self {
        Self {
            up: true,
            life: 0,
            stopped: false,
            waiting: Vec::new(),
            memory: Vec::new(),
            link: None,
            recovering: None,
            noted: None,
            history: TermHistory::default(),
            mirror_state: None,
            base: Lsn::ZERO,
            announced: Lsn::ZERO,
            session: 0,
            work: None,
            joining: None,
            fuzzy_snapshot: None,
            lead: None,
            rests_on: None,
        }
    }
}

/// What the cluster agrees on.
#[derive(Default)]
pub(super) struct Manager {
    /// The mirrors for which commits wait.
    pub members: BTreeSet<usize>,
    pub primary: Option<(usize, Term)>,
    pub round: Option<Round>,
    /// The one that is ahead gets the rest of the log.
    pub taking: Option<TakingOver>,
}

/// The whole of it.
pub(crate) struct World {
    pub(super) scenario: Scenario,
    pub(super) rule: Rule,
    pub(super) dice: Dice,
    now: u64,
    /// By time, and by when it was said.
    queue: BTreeMap<(u64, u64), What>,
    entries: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
    pub(super) manager: Manager,
    /// By term.
    pub(super) histories: Histories,
    /// Clients were told of everything below.
    pub(super) acknowledged: Lsn,
    pub(super) report: Report,
    pub(super) calm: bool,
    pub(super) writing: bool,
    /// Cards write, and not processes.
    pub(super) cards: bool,
    /// How many writes have landed, and at which one who dies.
    landed: u64,
    dying: Option<(u64, Dying)>,
    pub trace: Option<Vec<String>>,
}

impl World {
    pub fn new(scenario: Scenario, rule: Rule, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let cards = dice.one_in(2);
        Self {
            scenario,
            rule,
            dice,
            now: 0,
            queue: BTreeMap::new(),
            entries: 0,
            nodes: (0..scenario.nodes()).map(|_| Node::new()).collect(),
            links: Vec::new(),
            manager: Manager::default(),
            histories: Histories::default(),
            acknowledged: Lsn::ZERO,
            report: Report::default(),
            calm: false,
            writing: true,
            cards,
            landed: 0,
            dying: None,
            trace: None,
        }
    }

    pub(super) fn after(&mut self, pause: u64, what: What) {
        self.entries += 1;
        self.queue.insert((self.now + pause, self.entries), what);
    }

    /// Something happens.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.scenario.trace || self.trace.is_some() {
            let line = format!("{:>8} {}", self.now, what());
            if self.scenario.trace {
                println!("{line}");
            }
            self.trace.iter_mut().for_each(|trace| trace.push(line.clone()));
        }
    }

    pub fn run(mut self) -> Result<Report, Violation> {
        self.live(true)?;
        Ok(self.report)
    }

    /// The same, and keeps what happens.
    pub fn trace(mut self) -> Vec<String> {
        self.trace = Some(Vec::new());
        // It ends as it did.
        let _ = self.live(true);
        self.trace.unwrap_or_default()
    }

    fn run_dying(mut self, write: u64, who: Dying) -> Result<Option<Report>, Violation> {
        self.dying = Some((write, who));
        self.after(self.scenario.chaos / 2, What::GiveUp);
        self.live(false)?;
        Ok(self.dying.is_none().then_some(self.report))
    }

    fn live(&mut self, faults: bool) -> Result<(), Violation> {
        self.begin();
        self.after(0, What::Client);
        self.after(0, What::Manager);
        if faults {
            self.after(5000, What::Fault);
        }
        self.until(self.scenario.chaos, |_| false)?;
        let dying = self.dying;
        self.quieten();
        let deadline = self.scenario.chaos + CALM;
        let before = self.report.acknowledged;
        if !self.until(deadline, |world| world.report.acknowledged > before + 10)? {
            return Property::Progress.violated("nothing is committed");
        }
        self.writing = false;
        if !self.until(deadline, Self::is_level)? {
            let lead = self.leading().and_then(|node| self.nodes[node].lead.as_ref());
            return Property::Progress.violated(format!("not all are level: {lead:?}"));
        }
        self.check_all()?;
        self.dying = dying;
        Ok(())
    }

    fn quieten(&mut self) {
        self.calm = true;
        self.dying = None;
        for node in 0..self.nodes.len() {
            self.after(1, What::Continue(node));
            if !self.nodes[node].up {
                self.after(1000, What::Start(node));
            }
        }
        self.links.iter_mut().for_each(|link| link.slow = false);
    }

    /// Lets things happen until `done`, or the time comes; says whether it was `done`.
    fn until(&mut self, deadline: u64, done: impl Fn(&Self) -> bool) -> Result<bool, Violation> {
        let mut events = 0_u32;
        while let Some(next) = self.queue.first_entry() {
            let at = next.key().0;
            if at > deadline {
                return Ok(false);
            }
            self.now = at;
            let what = next.remove();
            self.happens(what)?;
            events += 1;
            if events.is_multiple_of(16) && done(self) {
                return Ok(true);
            }
        }
        Ok(done(self))
    }

    fn happens(&mut self, what: What) -> Result<(), Violation> {
        let Some(what) = self.unless_stopped(what) else { return Ok(()) };
        if !matches!(
            what,
            What::Land(_) | What::Manager | What::Client | What::Work { .. } | What::FuzzySnapshot { .. }
        ) {
            self.note(|| format!("{what:?}"));
        }
        match what {
            What::Land(link) => self.land(link)?,
            What::Completed { link, token } => self.completed(link, token)?,
            What::Lost(link) => self.lost(link)?,
            What::Pump { node, life } if self.lives(node, life) => self.pump(node)?,
            What::Recover { node, life } if self.lives(node, life) => self.recover(node)?,
            What::Footprint { node, life, from, footprint } if self.lives(node, life) => {
                if let Some(recovering) = &mut self.nodes[node].recovering {
                    recovering.observe(id_of(from), footprint);
                    self.recover(node)?;
                }
            }
            What::Work { node, life } if self.lives(node, life) => self.work(node)?,
            What::Watermark { node, life, link, to, end, committed } if self.lives(node, life) => {
                self.observe(node, link, to, end, committed);
            }
            What::FuzzySnapshot { node, life } if self.lives(node, life) => self.fuzzy_snapshot(node)?,
            What::Pump { .. }
            | What::Recover { .. }
            | What::Footprint { .. }
            | What::Work { .. }
            | What::Watermark { .. }
            | What::FuzzySnapshot { .. } => {}
            What::GiveUp => {
                if self.intact().next().is_some() && self.leading().is_some() {
                    self.start_round();
                } else {
                    self.after(100, What::GiveUp);
                }
            }
            What::Succession => self.succession()?,
            What::Client => self.client()?,
            What::Manager => self.manage()?,
            What::Fault => self.fault()?,
            What::Start(node) => self.nodes[node].up = true,
            What::Continue(node) => {
                self.nodes[node].stopped = false;
                for what in std::mem::take(&mut self.nodes[node].waiting) {
                    self.after(0, what);
                }
            }
        }
        Ok(())
    }

    fn lives(&self, node: usize, life: u32) -> bool {
        self.nodes[node].up && self.nodes[node].life == life
    }

    /// Keeps what happens to a stopped process, or is done by one, for later; gives back what is
    /// not.
    fn unless_stopped(&mut self, what: What) -> Option<What> {
        let node = match &what {
            What::Pump { node, .. } => *node,
            What::Completed { link, .. } | What::Lost(link) => self.links[*link].from,
            What::Land(link) if !self.cards => self.links[*link].from,
            _ => return Some(what),
        };
        if !self.nodes[node].stopped {
            return Some(what);
        }
        self.nodes[node].waiting.push(what);
        None
    }

    pub(super) fn later(&mut self, pause: u64, node: usize, what: fn(usize, u32) -> What) {
        let life = self.nodes[node].life;
        self.after(pause, what(node, life));
    }

    /// A link by which `from` writes into the memory of `to` from now on.
    pub(super) fn connect(&mut self, from: usize, to: usize) -> usize {
        let posted = Posted::new(self.nodes[to].memory.clone());
        let slow = !self.calm && self.dice.one_in(5);
        self.links.push(Link { from, to, posted, open: true, revoked: false, landing: false, slow });
        self.nodes[to].link = Some(self.links.len() - 1);
        self.links.len() - 1
    }

    /// What is posted on a link lands from now on.
    pub(super) fn deliver(&mut self, id: usize) {
        let link = &mut self.links[id];
        if link.open && !link.posted.is_empty() && !std::mem::replace(&mut link.landing, true) {
            let pause = if link.slow { self.dice.between(200, 2000) } else { self.dice.between(5, 60) };
            self.after(pause, What::Land(id));
        }
    }

    fn land(&mut self, id: usize) -> Result<(), Violation> {
        self.links[id].landing = false;
        for _ in 0..self.dice.between(1, 6) {
            let link = &mut self.links[id];
            // What is posted on one that is closed never lands.
            let Some(complete) = link.open.then(|| link.posted.land()).flatten() else { return Ok(()) };
            if let Some(token) = complete {
                if !self.calm && self.dice.one_in(500) {
                    self.give_up(id);
                } else {
                    let pause = self.dice.between(5, 200);
                    self.after(pause, What::Completed { link: id, token });
                }
            }
            self.landed(self.links[id].to)?;
        }
        self.deliver(id);
        Ok(())
    }

    /// A write has landed there: it may be the one at which somebody dies.
    pub(super) fn landed(&mut self, node: usize) -> Result<(), Violation> {
        self.landed += 1;
        match self.dying.take_if(|(at, _)| *at <= self.landed) {
            Some((_, who)) => self.die(who, node),
            None => Ok(()),
        }
    }

    /// A completion does not arrive: its writer gives the link up in the end, and writes on until
    /// then. The mirror notices by itself.
    pub(super) fn give_up(&mut self, id: usize) {
        let pause = self.dice.between(50, 10_000);
        self.after(pause, What::Lost(id));
        let to = self.links[id].to;
        if self.nodes[to].link == Some(id) && self.dice.one_in(2) {
            self.nodes[to].link = None;
        }
    }

    /// Nothing is written on a link any more.
    pub(super) fn close(&mut self, id: usize) {
        let link = &mut self.links[id];
        if std::mem::take(&mut link.open) {
            link.posted.end(&mut self.dice);
        }
        let fed = &mut self.nodes[link.to].link;
        if *fed == Some(id) {
            *fed = None;
        }
    }

    /// The process of `node` ends; its memory stays, unless the machine is lost.
    pub(super) fn crash(&mut self, node: usize, for_good: bool) -> Result<(), Violation> {
        if !std::mem::take(&mut self.nodes[node].up) {
            return Ok(());
        }
        self.note(|| format!("node {node} ends{}", if for_good { ", and its memory is lost" } else { "" }));
        self.check_rest(node)?;
        for id in 0..self.links.len() {
            let Link { from, to, open, .. } = self.links[id];
            if !open || from != node && to != node {
                continue;
            }
            if to == node {
                // By hand it can write on, into memory that is kept.
                let pause = self.dice.between(50, 10_000);
                self.after(pause, What::Lost(id));
            }
            if from == node || self.cards || for_good {
                self.close(id);
            }
        }
        let state = &mut self.nodes[node];
        state.life += 1;
        state.stopped = false;
        state.waiting.clear();
        state.link = None;
        state.recovering = None;
        state.lead = None;
        state.rests_on = None;
        (state.mirror_state, state.joining, state.fuzzy_snapshot) = (None, None, None);
        if let Some(mut work) = state.work.take() {
            work.posted.end(&mut self.dice);
        }
        if for_good || state.noted.is_none() {
            state.memory.clear();
            (state.noted, state.history) = (None, TermHistory::default());
        }
        let pause = self.dice.between(500, 20_000);
        self.after(pause, What::Start(node));
        self.taker_dies(node);
        self.participant_dies(node);
        Ok(())
    }

    /// Mirrors that hold everything, and know it: they have a vote.
    pub(super) fn intact(&self) -> impl Iterator<Item = usize> {
        let whole = |node: &usize| self.nodes[*node].noted.is_some_and(|(_, whole)| whole);
        self.manager.members.iter().copied().filter(whole)
    }

    /// The primary that the manager knows, if it lives.
    pub(super) fn leading(&self) -> Option<usize> {
        let (node, term) = self.manager.primary?;
        let lead = self.nodes[node].lead.as_ref()?;
        (self.nodes[node].up && lead.term == term).then_some(node)
    }

    /// These die; `written` is where the last write has landed.
    fn die(&mut self, who: Dying, written: usize) -> Result<(), Violation> {
        let (primary, mirrors) = (self.leading(), self.intact().collect::<Vec<_>>());
        let stays = matches!(who, Dying::Mirror | Dying::OtherMirror | Dying::TwoMirrors | Dying::Written);
        if let Some(node) = primary.filter(|_| !stays && !mirrors.is_empty()) {
            self.crash(node, false)?;
        }
        let dying = match who {
            Dying::Primary => Vec::new(),
            Dying::Mirror | Dying::Both | Dying::BothForGood => mirrors.iter().copied().take(1).collect(),
            Dying::OtherMirror => mirrors.last().copied().into_iter().collect(),
            Dying::TwoMirrors => mirrors.iter().copied().take(2).collect(),
            Dying::Written | Dying::WrittenAndPrimary => vec![written],
        };
        let for_good = who == Dying::BothForGood && mirrors.len() > 1;
        dying.into_iter().try_for_each(|node| self.crash(node, for_good))
    }

    fn fault(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        let pause = self.dice.between(500, 12_000);
        self.after(pause, What::Fault);
        let node = self.dice.below(self.nodes.len() as u64) as usize;
        let primary = self.leading();
        let is_safe = self.intact().next().is_some();
        match self.dice.below(13) {
            0 | 1 if is_safe => self.die(Dying::Primary, node)?,
            2 if is_safe => self.die(Dying::Both, node)?,
            3 if is_safe => self.die(Dying::BothForGood, node)?,
            4 | 5 => {
                // Who leads has a copy, and so has every other member.
                let others = primary.is_some_and(|primary| primary != node && !self.nodes[primary].stopped)
                    || self.intact().any(|other| other != node);
                let holds = primary == Some(node);
                if !holds || is_safe {
                    let for_good = others && self.dice.one_in(3);
                    self.crash(node, for_good)?;
                }
            }
            6 => {
                if let Some(node) = primary.filter(|_| is_safe) {
                    self.nodes[node].stopped = true;
                    let pause = self.dice.between(1000, 40_000);
                    self.after(pause, What::Continue(node));
                }
            }
            // It is given up, and lives.
            7..10 if is_safe => self.start_round(),
            10 => {
                let open: Vec<usize> = (0..self.links.len()).filter(|id| self.links[*id].open).collect();
                if !open.is_empty() {
                    let id = open[self.dice.below(open.len() as u64) as usize];
                    self.give_up(id);
                }
            }
            11 => self.die(Dying::TwoMirrors, node)?,
            // A mirror dies while it recovers, is filled, or takes over.
            _ => {
                let at_work: Vec<usize> = (0..self.nodes.len())
                    .filter(|node| self.nodes[*node].recovering.is_some() || self.nodes[*node].work.is_some())
                    .collect();
                if !at_work.is_empty() {
                    let node = at_work[self.dice.below(at_work.len() as u64) as usize];
                    self.crash(node, false)?;
                }
            }
        }
        Ok(())
    }

    /// The manager sees that there is a primary, and mirrors see that one feeds them.
    fn manage(&mut self) -> Result<(), Violation> {
        let pause = self.dice.between(500, 2000);
        self.after(pause, What::Manager);
        let Some(primary) = self.leading() else {
            self.start_round();
            return Ok(());
        };
        if self.nodes[primary].stopped && self.dice.one_in(6) {
            self.start_round();
            return Ok(());
        }
        if self.nodes[primary].stopped {
            return Ok(());
        }
        for node in 0..self.nodes.len() {
            let state = &self.nodes[node];
            if !state.up || state.stopped || node == primary {
                continue;
            }
            if state.lead.is_some() {
                // In the end everybody hears of it.
                if self.calm {
                    self.depose(node)?;
                }
            } else if state.link.is_none() && state.joining.is_none() && self.manager.round.is_none() {
                if self.dice.one_in(2) {
                    self.join(node, primary)?;
                }
            } else if state.link.is_some() && state.fuzzy_snapshot.is_none() && self.dice.one_in(4) {
                self.begin_fuzzy_snapshot(node)?;
            }
        }
        Ok(())
    }

    fn is_level(&self) -> bool {
        let Some(primary) = self.leading() else { return false };
        let lead = self.nodes[primary].lead.as_ref().expect("it leads");
        self.manager.members.len() + 1 == self.nodes.len() && lead.is_level()
    }

    /// All mirrors hold all that there is.
    fn check_all(&mut self) -> Result<(), Violation> {
        let primary = self.leading().expect("all are level");
        let lead = self.nodes[primary].lead.as_ref().expect("it leads");
        let (end, term) = (lead.log.end, lead.term);
        for node in (0..self.nodes.len()).filter(|node| *node != primary) {
            if check(&self.nodes[node].memory, end, &self.histories)? != term {
                return Property::Mirrors.violated(format!("node {node} is level in another term than {term}"));
            }
        }
        self.check_rest(primary)
    }

    /// What a node has begun its term with is as it was: its data lies there.
    pub(super) fn check_rest(&self, node: usize) -> Result<(), Violation> {
        let state = &self.nodes[node];
        state.rests_on.map_or(Ok(()), |end| check(&state.memory, end, &self.histories).map(drop))
    }
}

/// Runs a world of mirrors without any fault but that the primary is given up once, while it lives,
/// and that nodes die when this number of writes have landed. None if not as many did before it was
/// quiet.
///
/// # Errors
/// The first [`Violation`].
pub fn run_dying(scenario: Scenario, seed: u64, write: u64, who: Dying) -> Result<Option<Report>, Violation> {
    World::new(scenario, scenario.mirrors.unwrap_or(Rule::Whole), seed).run_dying(write, who)
}

/// How a node is called by others.
pub(super) fn id_of(node: usize) -> NodeId {
    NodeId(node as u64)
}
