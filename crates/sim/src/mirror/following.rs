//! A mirror comes to a primary: it begins from a checkpoint if what it has is of no use, agrees
//! where the log parts, and is fed from there.

use std::{rc::Rc, vec};

use freshet_base::Lsn;
use freshet_cluster::{
    entering::Entered,
    follower::Ack,
    handshake::Welcome,
    in_sync::InSyncSet,
    term::TermHistory,
    upstream::{Ended, Order},
};
use freshet_fabric::memory::Region;
use freshet_mirror::{Contents, Filling, Keep, NoRoom, Record, UNDO, beginning, settling};

use super::{
    memory::{Id, Row, damaged, grow, grow_undo},
    working::Then,
};
use crate::{
    checks::{Property, Violation},
    entering::Enters,
    log::Block,
    net::{Along, ConnectionId, Message},
    node::Link,
    scenario::Broken,
    world::{CLUSTER, World},
};

/// What a node gives of itself to one that has nothing: the state with the log from `start` up to
/// `end`.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub history: TermHistory,
    pub start: Lsn,
    pub end: Lsn,
    /// What of the log its giver knows to be committed.
    pub committed: Lsn,
    pub records: Vec<(Id, Lsn, Row)>,
    /// What the records are of: the log up to the start.
    pub before: Vec<Block>,
}

/// A checkpoint comes.
pub(super) struct Bootstrap {
    connection: ConnectionId,
    filling: Filling,
    records: vec::IntoIter<(Id, Lsn, Row)>,
    checkpoint: Rc<Checkpoint>,
}

/// A mirror offers its memory.
#[derive(Clone)]
pub(crate) struct Offer {
    pub memory: Vec<Region>,
    /// What lies where.
    pub description: Vec<u8>,
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Offer")
    }
}

impl World {
    /// Connects to the primary: for a checkpoint, if what is here is of no use.
    pub(crate) fn mirror_follows(&mut self, node: usize, primary: usize, order: Order) {
        if std::mem::take(&mut self.mirror(node).given_up) {
            self.note(|| format!("node {node} gives up what it holds"));
            self.forget(node);
        }
        // To give its copy up is as much as to lose it.
        let gives_up = self.calm || self.mirror(node).noted.is_none() || self.may_lose(node);
        if !self.mirror(node).state.is_of_no_use() || !gives_up {
            return self.mirror_joins(node, primary, order);
        }
        self.link(node, primary, order, Message::AskCheckpoint);
    }

    fn mirror_joins(&mut self, node: usize, primary: usize, order: Order) {
        let log = self.continuation(node);
        let mirror = self.mirror(node);
        mirror.nothing_is_fetched(Lsn::ZERO);
        mirror.member = mirror.state.is_state();
        let member = mirror.member;
        let state = &self.nodes[node];
        let holds = state.mirror.as_ref().map_or(Lsn::ZERO, |mirror| mirror.committed(&state.disk.terms));
        let (fence, synchronous) = (state.disk.terms.fence.highest(), state.synchronous);
        let maintenance = self.maintenance(node);
        let in_effect = state.disk.terms.last_in_effect(state.id, log.received).is_some();
        let join = Message::Join { fence, log, synchronous, member, mirror: true, holds, in_effect, maintenance };
        self.link(node, primary, order, join);
    }

    /// The checkpoint has come, or the other node has no checkpoint: it joins, on another
    /// connection.
    fn joins_after(&mut self, node: usize, id: ConnectionId) {
        let Some(Link { order, .. }) = self.nodes[node].link else { return };
        let primary = self.peer(id, node);
        self.hang_up(id, node);
        self.mirror_joins(node, primary, order);
    }

    /// Whether `id` is the connection by which `node` joins, and nothing is in its way.
    pub(crate) fn joins_by(&self, node: usize, id: ConnectionId) -> bool {
        self.nodes[node].link_by(id).is_some() && self.net.connections[id].open
    }

    /// A node is asked for a checkpoint.
    pub(crate) fn checkpoint_wanted(&mut self, node: usize, id: ConnectionId) {
        let checkpoint = self.checkpoint(node).map(Rc::new);
        self.send(id, node, Message::Checkpoint { checkpoint });
    }

    /// A checkpoint of what `node` has, if there is one. It is fuzzy: records are looked at
    /// between its start and its end, and left out if they have changed since the start. It counts
    /// when the log up to its end is committed.
    fn checkpoint(&mut self, node: usize) -> Option<Checkpoint> {
        let state = &self.nodes[node];
        // One that has not reached the end of the checkpoint that it began from has none of its
        // own.
        if state.mirror.is_some() || state.candidate.is_some() || state.disk.log.end() < state.disk.based {
            return None;
        }
        let needed = state.disk.kept > 0;
        if !needed && self.dice.one_in(3) {
            return None;
        }
        let state = &self.nodes[node];
        let committed = state.lead().map_or(state.visible, |lead| lead.acknowledged);
        let log = &state.disk.log;
        let ends: Vec<u64> = log.blocks().iter().filter(|block| block.last).map(|block| block.end()).collect();
        let from = state.disk.kept.max(state.disk.floor);
        let mut ends: Vec<u64> = ends.into_iter().filter(|end| (from.max(1)..=committed).contains(end)).collect();
        if ends.is_empty() && state.disk.kept > 0 {
            ends.push(state.disk.based);
        }
        let start = *ends.get(self.dice.below(ends.len().max(1) as u64) as usize)?;
        ends.retain(|end| *end >= start);
        let mut draw = || ends[self.dice.below(ends.len() as u64) as usize];
        let (middle, end) = (draw(), draw());
        let (middle, end) = (middle.min(end), middle.max(end));
        let state = &self.nodes[node];
        let log = &state.disk.log;
        let states = [start, middle, end].map(|at| super::state_at(log, at));
        let mut records = Vec::new();
        for id in states[2].keys() {
            if let Some((address, row)) = states[self.dice.below(3) as usize].get(id)
                && address.0 < start
                && (row.is_some() || self.dice.one_in(2))
            {
                records.push((*id, *address, row.clone()));
            }
        }
        let history = state.disk.terms.history.cut(Lsn(end));
        let before = log.between(0, start).to_vec();
        Some(Checkpoint { history, start: Lsn(start), end: Lsn(end), committed: Lsn(committed), records, before })
    }

    /// A checkpoint comes, or the other node has none to give.
    pub(crate) fn checkpoint_comes(
        &mut self,
        node: usize,
        id: ConnectionId,
        checkpoint: Option<Rc<Checkpoint>>,
    ) -> Result<(), Violation> {
        if !self.joins_by(node, id) || !self.mirror(node).is_recovered() {
            return Ok(());
        }
        let terms = self.nodes[node].disk.terms.clone();
        let (committed, ours) = (self.mirror(node).committed(&terms), terms.history);
        let is_of_use = |checkpoint: &Rc<Checkpoint>| {
            let theirs = (&checkpoint.history, checkpoint.end);
            self.nodes[node].mirror.as_ref().is_some_and(|it| it.state.may_be_given_up(committed, &ours, theirs))
        };
        let Some(checkpoint) = checkpoint.filter(is_of_use) else {
            self.joins_after(node, id);
            return Ok(());
        };
        self.note(|| format!("node {node} begins from a checkpoint, from {} to {}", checkpoint.start, checkpoint.end));
        self.forget(node);
        let filling = Filling::new(self.mirror(node).memory.clone());
        let records = checkpoint.records.clone().into_iter();
        self.mirror(node).bootstrap = Some(Bootstrap { connection: id, filling, records, checkpoint });
        self.fill(node)
    }

    /// The next record, or the end.
    pub(super) fn fill(&mut self, node: usize) -> Result<(), Violation> {
        let Some(mut bootstrap) = self.mirror(node).bootstrap.take() else { return Ok(()) };
        if !self.joins_by(node, bootstrap.connection) {
            self.forget(node);
            return self.mirror_next(node);
        }
        bootstrap.filling.landed();
        let (me, memory) = (self.nodes[node].id, &mut self.mirror(node).memory);
        let Some(((fid, rid), address, row)) = bootstrap.records.next() else {
            let Checkpoint { history, start, .. } = &*bootstrap.checkpoint;
            let writes: Vec<_> = beginning(memory, CLUSTER, me, history.last_term(), *start).collect();
            self.mirror(node).bootstrap = Some(bootstrap);
            self.write(node, writes, Then::Seeded);
            return Ok(());
        };
        while let Err(why) = bootstrap.filling.lay_out(&Record { fid, rid, address, row: row.as_deref() }) {
            let NoRoom::Arena { bytes } = why else { return Property::Mirrors.violated(why.to_string()) };
            bootstrap.filling.grow(grow(memory, bytes));
        }
        self.write(node, bootstrap.filling.writes(), Then::Filled);
        self.mirror(node).bootstrap = Some(bootstrap);
        Ok(())
    }

    /// The checkpoint is in the memory.
    pub(super) fn seeded(&mut self, node: usize) -> Result<(), Violation> {
        let Some(Bootstrap { connection, checkpoint, .. }) = self.mirror(node).bootstrap.take() else {
            return Ok(());
        };
        let Checkpoint { history, start, end, committed, before, .. } = &*checkpoint;
        let state = &mut self.nodes[node];
        state.disk.terms.adopt(CLUSTER, history.clone());
        state.disk.terms.committed = (*committed).min(*end);
        for block in before {
            state.disk.log.push(block.clone());
        }
        state.disk.synced = start.0;
        let mirror = self.mirror(node);
        mirror.state.seeded(*start, *end);
        (mirror.base, mirror.noted) = (*start, Some(*end));
        self.report.seeded += 1;
        if self.joins_by(node, connection) {
            self.joins_after(node, connection);
            return Ok(());
        }
        self.mirror_next(node)
    }

    /// Cuts the memory, and lets its node enter further.
    pub(crate) fn cut_memory(&mut self, node: usize, at: Lsn, enters: Box<Enters>) -> Result<(), Violation> {
        let mirror = self.mirror(node);
        // Before anything is undone.
        mirror.owes = at;
        let found = self.mend(node, Keep::Marked(at), |end| Then::Cut(enters, end))?;
        self.mirror(node).cut_to = Some(found.end);
        Ok(())
    }

    /// What was undone is of another log: it is not to be found again.
    pub(super) fn settle_cut(&mut self, node: usize, enters: Box<Enters>, end: Lsn) -> Result<(), Violation> {
        let writes: Vec<_> = settling(&self.mirror(node).memory, end).map_err(damaged)?.collect();
        let keeps_ring = self.scenario.broken == Broken::CutNotSettled;
        self.write(node, if keeps_ring { Vec::new() } else { writes }, Then::Settled(enters, end));
        Ok(())
    }

    /// The memory was cut, and ends there.
    pub(crate) fn shadow_is_cut(&mut self, node: usize, end: Lsn) {
        self.report.cuts += 1;
        self.mirror(node).cut_to = None;
        let disk = &mut self.nodes[node].disk;
        disk.log.cut(end.0);
        disk.synced = disk.synced.min(end.0);
    }

    /// What is in the memory cannot be continued: it is kept until a checkpoint comes.
    pub(crate) fn begin_again(&mut self, node: usize) -> Result<(), Violation> {
        self.note(|| format!("node {node} begins again"));
        let may = self.calm || self.may_lose(node);
        if self.mirror(node).state.goes_stale() && may {
            self.forget(node);
        }
        self.unlink(node, Ended::GivenUp)
    }

    /// The log that it needs is gone from there on.
    pub(crate) fn log_gone(&mut self, node: usize, from: Lsn) {
        let terms = self.nodes[node].disk.terms.clone();
        let Some(mirror) = &mut self.nodes[node].mirror else {
            self.nodes[node].disk.hopeless = true;
            return;
        };
        // What it knows to be committed it gives up for none that has less.
        if from >= mirror.committed(&terms) {
            mirror.state.goes_stale();
        }
    }

    /// Whether `node` may try whom it follows: as a mirror, its memory is its own, and it does
    /// nothing else.
    pub(crate) fn is_free(&self, node: usize) -> bool {
        self.nodes[node].mirror.as_ref().is_none_or(|it| it.is_recovered() && it.stands.is_none() && !it.takes_over)
    }

    /// The memory is to be written by the sender, whose terms are entered.
    pub(crate) fn begin_feed(&mut self, node: usize, id: ConnectionId, welcome: Welcome, entered: Entered) {
        let keeps_ring = self.scenario.broken == Broken::RingNotCleared;
        let memory = &self.mirror(node).memory;
        let writes = beginning(memory, CLUSTER, welcome.node, welcome.term, welcome.cut_at);
        let writes: Vec<_> = writes.filter(|(to, _)| !keeps_ring || to.region != UNDO).collect();
        self.write(node, writes, Then::FeedBegun(id, Box::new(welcome), entered));
    }

    /// It is from now on.
    pub(super) fn feed_begun(
        &mut self,
        node: usize,
        id: ConnectionId,
        welcome: &Welcome,
        entered: Entered,
    ) -> Result<(), Violation> {
        if !self.joins_by(node, id) {
            return self.mirror_next(node);
        }
        let mirror = self.mirror(node);
        mirror.state.linked(entered);
        (mirror.noted, mirror.base) = (Some(mirror.state.floor()), welcome.cut_at);
        (mirror.exposed, mirror.offered) = (true, Some(id));
        mirror.session += 1;
        let memory = mirror.memory.clone();
        let contents = Contents::open(memory.clone(), welcome.cut_at).map_err(damaged)?;
        let description = contents.description().map_err(damaged)?;
        self.linked(node, welcome);
        if !self.nodes[node].disk.terms.fence.admits(welcome.term) {
            return self.unlink(node, Ended::GivenUp);
        }
        self.answer_waiting(node);
        self.send(id, node, Message::Offer { offer: Offer { memory, description } });
        self.mirror_answers(node, id, welcome.cut_at);
        Ok(())
    }

    /// Says what it holds: what the primary knows to have arrived, and every in-sync set in it is
    /// noted.
    fn mirror_answers(&mut self, node: usize, id: ConnectionId, to: Lsn) {
        let now = self.nodes[node].steady_clock(self.now);
        let observed = self.nodes[node].voter.answers(now);
        let ack = Ack { persisted: to, may_send_until: Lsn::MAX, replayed: to, visible: Lsn::ZERO, observed };
        self.send(id, node, Message::Ack { ack });
    }

    fn is_fed_by(&self, node: usize, id: ConnectionId) -> bool {
        let state = &self.nodes[node];
        state.mirror.is_some() && state.link_by(id).is_some_and(|link| link.term.is_some())
    }

    /// It learns how far everything has completed, and joins once more when that makes it a state
    /// of the database.
    pub(crate) fn mirror_noted(
        &mut self,
        node: usize,
        id: ConnectionId,
        (to, along): (Lsn, Along),
    ) -> Result<(), Violation> {
        if !self.is_fed_by(node, id) {
            return Ok(());
        }
        let term = self.nodes[node].link.as_ref().and_then(|link| link.term);
        if term.is_none_or(|term| !self.nodes[node].disk.terms.fence.admits(term)) {
            return self.unlink(node, Ended::GivenUp);
        }
        self.primary_sent(node, along);
        let mirror = self.mirror(node);
        mirror.state.observe(to, along.global);
        let to = mirror.state.end();
        self.mirror_answers(node, id, to);
        let mirror = self.mirror(node);
        if !mirror.member && mirror.state.is_state() {
            self.note(|| format!("node {node} has all that belongs to its checkpoint"));
            return self.unlink(node, Ended::GivenUp);
        }
        if self.dice.one_in(12) {
            self.begin_snapshot(node)?;
        }
        Ok(())
    }

    /// An in-sync set was recorded: it is noted before anything behind it is answered.
    pub(crate) fn set_recorded(&mut self, node: usize, id: ConnectionId, set: InSyncSet) {
        if self.is_fed_by(node, id) {
            self.nodes[node].disk.terms.note_set(set);
        }
    }

    /// The primary asks for more memory.
    pub(crate) fn more_memory(&mut self, node: usize, id: ConnectionId, bytes: u64, undo: bool) {
        if !self.is_fed_by(node, id) {
            return;
        }
        if self.dice.one_in(8) && !self.calm {
            return self.send(id, node, Message::Grown { region: None, undo });
        }
        self.report.larger += u64::from(undo);
        let memory = &mut self.mirror(node).memory;
        let more = if undo { grow_undo(memory, bytes) } else { grow(memory, bytes) };
        self.send(id, node, Message::Grown { region: Some(more), undo });
    }
}
