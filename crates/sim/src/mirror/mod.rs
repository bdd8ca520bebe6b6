//! Mirrors (Active-Memory): nodes whose memory a primary keeps up to date by itself, beside nodes
//! that keep a log. Rows are written into that memory by the code that production runs, recovered
//! by the code that production runs, and compared with the log.
//!
//! | module | is |
//! |---|---|
//! | this one | the process of a mirror: it starts, ends, and brings its memory to the end of a batch |
//! | `rows` | what transactions write: blocks with bytes |
//! | `feeding` | the primary's side: batches, marks, acknowledgements |
//! | `following` | the mirror's side: it begins from a checkpoint, is cut, is fed |
//! | `taking` | a mirror that takes over: it fetches the rest of the log, and becomes a log node |
//! | `posted`, `working` | writes on their way into another node's memory, or into the own one |
//! | `snapshot` | a mirror's memory, read for another node while it is written |
//! | `memory` | the memory, and what it has to hold |
//!
//! Fault model. Writes land in their order, a few at a time, on each connection at its own pace;
//! when the writer ends, or the memory is taken away, any number of them have landed, and of the
//! next one any cache lines. Whether writes are made by cards, which work while a process stands
//! still and stop when they are told to, or by the writer itself, which stands still and continues
//! where it was, is drawn for each run. A mirror dies at any write into its own memory. Its memory
//! outlives the process, or is lost with it, as often as the safety level allows.
//!
//! The log of a mirror's node ([`Disk::log`](crate::node::Disk)) is no log: it stands for what the
//! memory has to hold. Its blocks are those whose writes have landed wholly.

mod feeding;
mod following;
mod memory;
mod posted;
mod rows;
mod snapshot;
mod taking;
mod working;

use freshet_base::{Consent, Lsn, NodeId};
use freshet_cluster::{
    entering::Held,
    handshake::Continue,
    mirror::MirrorState,
    promotion::{Answer, LogState, Standing},
    recording::{Recorded, Recorder},
    term::{TermHistory, TermState},
};
use freshet_fabric::memory::Region;
use freshet_mirror::{FetchedLog, Keep, mark_of};

pub(crate) use self::{
    feeding::Line,
    following::{Checkpoint, Offer},
    memory::{Id, Records, Row, state_at},
    posted::Posted,
    rows::{Content, of_changes, of_set, of_term},
};
use self::{
    following::Bootstrap,
    memory::{UNDO_BYTES, check, empty, moved},
    snapshot::Reading,
    taking::TakingOver,
    working::{Then, Work},
};
use crate::{
    checks::{Property, Violation},
    log::Block,
    net::ConnectionId,
    node::Node,
    scenario::Broken,
    world::World,
};

/// A node whose memory is a mirror.
pub(crate) struct Mirror {
    /// What others write into; what an earlier process has left.
    memory: Vec<Region>,
    /// Of the memory, as long as that counts for the next process: its floor.
    noted: Option<Lsn>,
    /// Also noted: what it had when it was cut last.
    owes: Lsn,
    /// What the process knows of the memory.
    pub state: Recorded<MirrorState>,
    /// The process has found its memory, and answers others.
    pub ready: bool,
    /// A primary may have written into the memory since it was recovered.
    exposed: bool,
    /// By which connection that was, and what it has posted that has not landed wholly.
    offered: Option<ConnectionId>,
    left: Vec<Block>,
    /// It was cut to there, and what was undone may still be found again.
    cut_to: Option<Lsn>,
    /// Everything below was there when the last feed began.
    base: Lsn,
    /// It joined as a member.
    member: bool,
    /// Changes with all that is done to the memory but by the primary that feeds it.
    session: u64,
    work: Option<Work>,
    bootstrap: Option<Bootstrap>,
    taking: Option<TakingOver>,
    fetched: FetchedLog,
    reading: Option<Reading>,
    /// The operator has said that what is here is not wanted any more.
    pub given_up: bool,
    /// It is to stand for a failover as soon as its memory is its own, whatever may be lost.
    stands: Option<(Consent, Standing)>,
    /// It has begun a term, and makes a database of its memory.
    pub takes_over: bool,
}

/// Nothing of a log.
fn no_log(at: Lsn) -> FetchedLog {
    FetchedLog { from: at, blocks: Vec::new() }
}

impl Mirror {
    /// With memory in which nothing is.
    pub fn new(node: NodeId, synchronous: bool, recorder: &Recorder) -> Self {
        Self {
            memory: empty(),
            noted: None,
            owes: Lsn::ZERO,
            state: Recorded::new(MirrorState::new(node, synchronous), recorder),
            ready: false,
            exposed: false,
            offered: None,
            left: Vec::new(),
            cut_to: None,
            base: Lsn::ZERO,
            member: false,
            session: 0,
            work: None,
            bootstrap: None,
            taking: None,
            fetched: no_log(Lsn::ZERO),
            reading: None,
            given_up: false,
            stands: None,
            takes_over: false,
        }
    }

    fn mark(&self) -> Lsn {
        mark_of(&*self.memory[0])
    }

    /// What it has, for a sender.
    pub fn held(&self, terms: &TermState) -> Held {
        self.state.held(self.mark(), terms)
    }

    /// How its memory, which has this history, would continue.
    pub fn continuation(&self, history: TermHistory) -> Continue {
        let end = self.state.end();
        Continue { history, received: end, persisted: end, capacity: UNDO_BYTES, may_send_until: Lsn::MAX }
    }

    /// None is there yet of a log that may come from `at` on.
    pub fn nothing_is_fetched(&mut self, at: Lsn) {
        self.state.fetched(Lsn::ZERO);
        self.fetched = no_log(at);
    }

    fn taking(&mut self) -> &mut TakingOver {
        self.taking.as_mut().expect("it takes a log in")
    }

    /// Up to where what it has is known to be committed.
    pub fn committed(&self, terms: &TermState) -> Lsn {
        self.state.committed(self.mark(), terms)
    }

    /// A candidate may count on what it has.
    pub fn has_vote(&self) -> bool {
        self.state.has_vote()
    }

    /// Whether a database can be made of the memory.
    pub fn is_database(&self) -> bool {
        self.state.is_state() && self.noted.is_some()
    }

    /// Whether the operator has asked it to take over, and it has yet to begin.
    pub fn stands(&self) -> bool {
        self.stands.is_some()
    }

    /// For messages.
    pub fn describe(&self) -> String {
        let Self { state, noted, ready, exposed, offered, member, work, stands, takes_over, .. } = self;
        format!(
            "a mirror: {state:?}, noted {noted:?}, ready {ready}, exposed {exposed}, offered {offered:?}, member \
             {member}, works {}, stands {stands:?}, takes over {takes_over}; ",
            work.is_some()
        )
    }

    /// Where the memory is a state of the database at the earliest.
    pub fn floor(&self) -> Lsn {
        self.noted.unwrap_or(Lsn::MAX)
    }

    /// Whether its memory is its own, and at the end of a batch.
    fn is_recovered(&self) -> bool {
        self.work.is_none() && !self.exposed
    }

    /// Whether it can say what it has: its memory is its own, or written by the primary of the term
    /// that it has promised.
    pub fn is_settled(&self) -> bool {
        self.is_recovered() || self.offered.is_some()
    }
}

impl Node {
    /// What a mirror says to a candidate.
    pub(crate) fn mirror_log(&self, mirror: &Mirror) -> LogState {
        // What has landed wholly is kept when the memory is taken back.
        let end = mirror.state.reaches().max(Lsn(self.disk.synced));
        let log = LogState::of(self.disk.terms.clone(), self.id, end, mirror.committed(&self.disk.terms));
        LogState { synchronous: self.synchronous, owes: mirror.state.owes(), log: false, ..log }
    }

    /// Whether it is a mirror that has less than it may have acknowledged: until it is fed again,
    /// another node has to have that.
    pub(crate) fn owes(&self) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| mirror.owes.0 > self.disk.synced)
    }

    /// How it answers a candidate, whom its vote may help or not.
    pub(crate) fn answer_of(&self, log: LogState) -> Answer {
        match &self.mirror {
            _ if self.is_witness => Answer::NoVote(log.testimony()),
            Some(mirror) if !mirror.has_vote() => Answer::NoVote(log.testimony()),
            _ => Answer::Log(log),
        }
    }
}

impl World {
    pub(crate) fn mirror(&mut self, node: usize) -> &mut Mirror {
        self.nodes[node].mirror.as_mut().expect("it is a mirror")
    }

    /// The process of a mirror ends. What its memory is worth after that, its note says.
    pub(crate) fn mirror_ends(&mut self, node: usize, stays: bool) {
        if let Some(mut work) = self.mirror(node).work.take() {
            work.posted.end(&mut self.dice);
        }
        let id = self.nodes[node].id;
        let (synchronous, recorder) = (self.nodes[node].synchronous, self.nodes[node].recorder.clone());
        let mirror = self.mirror(node);
        if let Some(taking) = mirror.taking.take() {
            mirror.left = taking.under_way();
        }
        mirror.state = Recorded::new(MirrorState::new(id, synchronous), &recorder);
        (mirror.ready, mirror.exposed, mirror.takes_over) = (false, true, false);
        (mirror.bootstrap, mirror.reading, mirror.stands) = (None, None, None);
        mirror.session += 1;
        if !stays {
            (mirror.noted, mirror.owes) = (None, Lsn::ZERO);
        }
        if mirror.noted.is_none() {
            self.memory_is_lost(node);
        }
    }

    /// What the memory held is lost.
    fn memory_is_lost(&mut self, node: usize) {
        self.cut_off(node);
        self.forget(node);
    }

    /// The process of a mirror begins: it brings what it finds to the end of a batch.
    pub(crate) fn mirror_starts(&mut self, node: usize) -> Result<(), Violation> {
        if self.mirror(node).noted.is_none() {
            self.forget(node);
            return self.mirror_is_ready(node);
        }
        self.recover(node, Then::Found)
    }

    fn mirror_is_ready(&mut self, node: usize) -> Result<(), Violation> {
        self.mirror(node).ready = true;
        self.reconnect(node);
        Ok(())
    }

    /// Nothing is in the memory any more, and nothing that it acknowledged counts: it is another
    /// incarnation from now on.
    fn forget(&mut self, node: usize) {
        let incarnation = self.unique();
        let state = &mut self.nodes[node];
        self.lost_disks.insert(state.disk.terms.holder(state.id));
        state.disk.terms.note_incarnation(incarnation);
        if let Some(cluster) = state.disk.terms.cluster {
            state.disk.terms.adopt(cluster, TermHistory::default());
        }
        state.disk.log.cut(0);
        state.disk.synced = 0;
        let mirror = self.mirror(node);
        (mirror.noted, mirror.owes) = (None, Lsn::ZERO);
        mirror.memory = empty();
        (mirror.exposed, mirror.base) = (false, Lsn::ZERO);
        mirror.session += 1;
        mirror.left.clear();
        mirror.state.forgotten();
    }

    /// No primary writes into the memory of `node` any more, and what it had posted may have
    /// landed.
    pub(crate) fn take_memory_back(&mut self, node: usize) -> Result<(), Violation> {
        self.cut_off(node);
        self.nodes[node].view.closed();
        self.mirror_next(node)
    }

    /// The same, and what the memory holds is not looked at.
    fn cut_off(&mut self, node: usize) {
        let Some(id) = self.mirror(node).offered.take() else { return };
        let (cards, broken) = (self.cards, self.scenario.broken);
        let moves = broken != Broken::MirrorNotMoved;
        let Some(posted) = &mut self.net.connections[id].posted else { return };
        posted.revoked = true;
        let left = posted.left();
        if cards && moves {
            // The card has stopped.
            posted.end(&mut self.dice);
        } else {
            // It is being written in this moment.
            posted.tear(&mut self.dice);
        }
        let mirror = self.mirror(node);
        mirror.left = left;
        mirror.session += 1;
        if moves {
            mirror.memory = moved(&mirror.memory);
        }
    }

    /// Brings the memory to the end of a batch.
    fn recover(&mut self, node: usize, then: fn(Lsn) -> Then) -> Result<(), Violation> {
        self.cut_off(node);
        let found = self.mend(node, Keep::Whole, then)?;
        self.report.undone += found.undone as u64;
        self.report.kept += (found.under_way - found.undone) as u64;
        self.note(|| format!("node {node} recovers its memory: {found:?}"));
        Ok(())
    }

    /// The memory was brought to the end of a batch, `end`: that is all that has landed wholly.
    fn is_recovered_to(&mut self, node: usize, end: Lsn) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        let mirror = state.mirror.as_mut().expect("it is a mirror");
        // A process may have died when it undid what is of another log, a block after the other.
        let is_cut = mirror.cut_to.take().is_some_and(|to| to <= end);
        if end.0 < state.disk.synced && !is_cut {
            return Property::Mirrors.violated(format!(
                "the memory of node {node} is recovered up to {end}, and had landed up to {}",
                state.disk.synced
            ));
        }
        for block in std::mem::take(&mut mirror.left) {
            if block.start == state.disk.log.end() && block.end() <= end.0 {
                state.disk.log.push(block);
            }
        }
        state.disk.log.cut(end.0);
        state.disk.synced = end.0;
        mirror.exposed = false;
        if state.disk.log.end() != end.0 {
            return Property::Mirrors.violated(format!(
                "the memory of node {node} is recovered up to {end}, and blocks have landed up to {}",
                state.disk.log.end()
            ));
        }
        let floor = mirror.noted.unwrap_or_default();
        match end >= floor {
            true => check(&mirror.memory, end.0, &state.disk.log),
            false => Ok(()),
        }
    }

    /// What the one thread of a mirror does next.
    pub(crate) fn mirror_next(&mut self, node: usize) -> Result<(), Violation> {
        let state = &self.nodes[node];
        let Some(mirror) = &state.mirror else { return Ok(()) };
        if !state.up || mirror.work.is_some() || mirror.takes_over {
            return Ok(());
        }
        let is_fed = mirror.offered.is_some();
        if mirror.exposed && !is_fed {
            return self.recover(node, if mirror.ready { Then::Recovered } else { Then::Found });
        }
        if !mirror.ready {
            return self.mirror_is_ready(node);
        }
        if self.nodes[node].link.is_none() {
            self.attempt_over(node);
        }
        if !is_fed {
            self.answer_waiting(node);
            if let Some((consent, standing)) = self.mirror(node).stands.take() {
                return self.stand(node, consent, standing);
            }
        }
        Ok(())
    }

    /// The operator wants a mirror to take over: first its memory has to be its own.
    pub(crate) fn mirror_stands(&mut self, node: usize, consent: Consent, standing: Standing) -> Result<(), Violation> {
        self.mirror(node).stands = Some((consent, standing));
        self.mirror_next(node)
    }

    /// The memory of `node` is what it has to be. Nothing is written there at this moment.
    pub(crate) fn check_mirror(&self, node: usize) -> Result<(), Violation> {
        let state = &self.nodes[node];
        let Some(mirror) = &state.mirror else { return Ok(()) };
        check(&mirror.memory, state.disk.synced, &state.disk.log)
    }

    /// Something has landed in the memory of `node`: it may be the write at which nodes die.
    pub(crate) fn landed(&mut self, node: usize) {
        self.writes += 1;
        if let Some(dying) = self.scenario.dying
            && dying.at == self.writes
        {
            self.report.died += 1;
            let leading = (0..self.nodes.len()).find(|node| self.nodes[*node].leads());
            if dying.primary {
                leading.into_iter().for_each(|leading| self.crash(leading));
            }
            if dying.written {
                self.crash(node);
            }
        }
    }
}
