//! A mirror that comes to a primary: it takes its memory back and recovers it, begins from a
//! checkpoint if what it has is of no use, agrees where the log parts, and is fed from there.

use std::vec;

use freshet_base::{Lsn, Term};
use freshet_cluster::{
    handshake::{Continue, Welcome, check_welcome, consider},
    mirror::{Cut, Keep, MirrorState, Rule},
    term::TermHistory,
};
use freshet_mirror::{Filling, NoRoom, Record, UNDO, beginning, mark_of, plan};

use super::{
    World,
    feeding::{ARENA_BYTES, CLUSTER, HEAD_BYTES, UNDO_BYTES},
    id_of,
    memory::{Id, Row, check, region},
    recovering::damaged,
    working::Then,
};
use crate::{
    checks::{Property, Violation},
    scenario::Broken,
};

/// A node on its way to a primary.
pub(crate) struct Joining {
    primary: usize,
    term: Term,
    bootstrap: Option<Bootstrap>,
}

/// A checkpoint comes.
struct Bootstrap {
    filling: Filling,
    records: vec::IntoIter<(Id, Lsn, Row)>,
    checkpoint: Checkpoint,
}

/// What a primary gives of itself: the state with the log from `start` up to `end`.
pub(crate) struct Checkpoint {
    pub history: TermHistory,
    pub start: Lsn,
    pub end: Lsn,
    pub records: Vec<(Id, Lsn, Row)>,
}

impl World {
    /// A node that nothing feeds comes to the primary.
    pub(super) fn join(&mut self, node: usize, primary: usize) -> Result<(), Violation> {
        self.note(|| format!("node {node} joins"));
        // Who fed it before may still write.
        self.revoke(node);
        self.leave(node, primary)?;
        let lead = self.nodes[primary].lead.as_ref().expect("it leads");
        self.nodes[node].joining = Some(Joining { primary, term: lead.term, bootstrap: None });
        if self.nodes[node].noted.is_none() {
            self.forget(node);
            return self.ask(node);
        }
        // By either rule: no other mirror is asked, since the primary lives (section 5.1).
        let planned = self.planned(node, Keep::Whole).map_err(damaged)?;
        let (end, writes) = (planned.found().end, planned.writes());
        let writes: Vec<_> = writes.map(|(to, bytes)| (to, bytes.to_vec())).collect();
        self.write(node, &writes, Then::Recovered(end));
        Ok(())
    }

    /// It has no memory that counts, and nothing in it.
    pub(super) fn forget(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let mirror_state = state.mirror_state.get_or_insert_default();
        mirror_state.silence();
        state.noted = None;
        state.memory = vec![region(HEAD_BYTES), region(UNDO_BYTES)];
        state.session += 1;
        state.history = TermHistory::default();
        mirror_state.forgotten();
    }

    /// The memory ends there. A process that has just begun learns that so.
    pub(super) fn is_recovered(&mut self, node: usize, end: Lsn) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        let noted = state.noted.expect("it has a memory that counts");
        match &mut state.mirror_state {
            Some(mirror_state) => mirror_state.recovered(end),
            None => state.mirror_state = Some(MirrorState::found(end, noted)),
        }
        self.note_whole(node);
        if self.mirror_state(node).is_state() {
            check(&self.nodes[node].memory, end, &self.histories)?;
        }
        Ok(())
    }

    /// Up to where what `node` has is known there to be committed. By the paper's rule a mark alone
    /// says nothing: others may not have it.
    fn committed(&mut self, node: usize) -> Lsn {
        if self.rule == Rule::Marked {
            return Lsn::ZERO;
        }
        let (mark, announced) = (mark_of(&*self.nodes[node].memory[0]), self.nodes[node].announced);
        self.mirror_state(node).committed(mark, announced)
    }

    pub(super) fn mirror_state(&mut self, node: usize) -> &mut MirrorState {
        self.nodes[node].mirror_state.get_or_insert_default()
    }

    /// A mirror that holds all that it has to does so for the next process, too.
    pub(super) fn note_whole(&mut self, node: usize) {
        let is_whole = self.mirror_state(node).is_whole();
        self.nodes[node].noted.iter_mut().for_each(|(_, whole)| *whole |= is_whole);
    }

    /// It begins from a checkpoint, if it has nothing that can be continued and there is one.
    pub(super) fn prepare(&mut self, node: usize, end: Lsn) -> Result<(), Violation> {
        self.is_recovered(node, end)?;
        self.ask(node)
    }

    /// The primary to which it comes, if that leads still.
    fn upstream(&mut self, node: usize) -> Option<usize> {
        let (primary, term) = self.nodes[node].joining.as_ref().map(|joining| (joining.primary, joining.term))?;
        if self.manager.primary == Some((primary, term)) && self.leading() == Some(primary) {
            return Some(primary);
        }
        if self.nodes[node].joining.take().is_some_and(|joining| joining.bootstrap.is_some()) {
            self.forget(node);
        }
        None
    }

    /// It says what it has, and hears how the log continues.
    fn ask(&mut self, node: usize) -> Result<(), Violation> {
        let Some(primary) = self.upstream(node) else { return Ok(()) };
        let (committed, ours) = (self.committed(node), self.nodes[node].history.clone());
        if self.mirror_state(node).is_of_no_use()
            && let Some(checkpoint) = self.checkpoint(primary)
            && self.mirror_state(node).may_be_given_up(committed, &ours, (&checkpoint.history, checkpoint.end))
        {
            return self.seed(node, checkpoint);
        }
        if !self.calm && self.dice.one_in(5) {
            // The log below is not kept any more.
            self.checkpoint(primary);
        }
        let end = self.mirror_state(node).end();
        let log = Continue {
            history: self.nodes[node].history.clone(),
            received: end,
            persisted: end,
            capacity: UNDO_BYTES,
            may_send_until: Lsn::MAX,
        };
        let (sender, kept_from) = self.nodes[primary].lead.as_ref().expect("it leads").sender(primary);
        let refused = |why: &dyn std::fmt::Display| Violation { property: Property::Mirrors, what: why.to_string() };
        let agreed = consider(&sender, Some(CLUSTER), id_of(node), Term(0), &log).map_err(|why| refused(&why))?;
        let welcome = agreed.welcome;
        if welcome.cut_at < kept_from {
            self.note(|| format!("the log of node {primary} is gone from {} on", welcome.cut_at));
            self.mirror_state(node).goes_stale();
            self.nodes[node].joining = None;
            return Ok(());
        }
        check_welcome(&welcome, Some(CLUSTER), &log.history, end).map_err(|why| refused(&why))?;
        let committed = self.committed(node);
        if welcome.cut_at < committed {
            // Nobody has lost anything here.
            return Property::Mirrors.violated(format!(
                "node {node} holds up to {committed} what is committed, and its primary has {} of it",
                welcome.cut_at
            ));
        }
        if !self.mirror_state(node).begins_in(&welcome.history, &log.history) {
            return self.begin_again(node);
        }
        if welcome.cut_at < end {
            let planned = plan(&self.nodes[node].memory, Keep::Marked(welcome.cut_at)).map_err(damaged)?;
            let writes: Vec<_> = planned.writes().map(|(to, bytes)| (to, bytes.to_vec())).collect();
            self.write(node, &writes, Then::Cut(Box::new(welcome), planned.found().end));
            return Ok(());
        }
        self.enter(node, welcome)
    }

    pub(super) fn was_cut(&mut self, node: usize, welcome: Welcome, end: Lsn) -> Result<(), Violation> {
        self.note(|| format!("node {node} is cut to {end}, for {}", welcome.cut_at));
        match self.mirror_state(node).cut(welcome.cut_at, end) {
            Cut::Done => self.enter(node, welcome),
            Cut::Below(_) => {
                self.nodes[node].joining = None;
                Ok(())
            }
            Cut::Above(_) => self.begin_again(node),
        }
    }

    /// What is in the memory cannot be continued.
    fn begin_again(&mut self, node: usize) -> Result<(), Violation> {
        self.note(|| format!("node {node} begins again"));
        self.forget(node);
        self.nodes[node].joining = None;
        Ok(())
    }

    /// A feed is to begin.
    fn enter(&mut self, node: usize, welcome: Welcome) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        state.history = welcome.history.clone();
        let writes = beginning(&state.memory, CLUSTER, welcome.node, welcome.term, welcome.cut_at);
        let keeps_ring = self.scenario.broken == Broken::RingNotCleared;
        let writes: Vec<_> = writes.filter(|(to, _)| !keeps_ring || to.region != UNDO).collect();
        self.write(node, &writes, Then::FeedBegun(Box::new(welcome)));
        Ok(())
    }

    /// The memory is offered.
    pub(super) fn offer(&mut self, node: usize, welcome: &Welcome) -> Result<(), Violation> {
        let mirror_state = self.mirror_state(node);
        mirror_state.owes(welcome.end);
        let floor = mirror_state.floor();
        let state = &mut self.nodes[node];
        let whole = state.noted.is_some_and(|(_, whole)| whole);
        state.noted = Some((floor, whole));
        (state.base, state.announced) = (welcome.cut_at, Lsn::ZERO);
        self.note_whole(node);
        let Some(primary) = self.upstream(node) else { return Ok(()) };
        self.nodes[node].joining = None;
        self.feed(primary, node, welcome.cut_at)
    }

    /// It hears how far everything has completed, and joins once more when that makes it a state of
    /// the database.
    pub(super) fn observe(&mut self, node: usize, link: usize, to: Lsn, end: Lsn, committed: Lsn) {
        if self.nodes[node].link != Some(link) || self.nodes[node].recovering.is_some() {
            return;
        }
        let was_state = self.mirror_state(node).is_state();
        self.mirror_state(node).observe(to, end);
        self.note_whole(node);
        let state = &mut self.nodes[node];
        state.announced = state.announced.max(committed);
        if !was_state && self.mirror_state(node).is_state() {
            self.note(|| format!("node {node} has all that belongs to its checkpoint"));
            self.nodes[node].link = None;
        }
        // It may be counted now.
        self.pump_soon(self.links[link].from);
    }
}

impl World {
    /// A checkpoint comes: what was there is there no more.
    fn seed(&mut self, node: usize, mut checkpoint: Checkpoint) -> Result<(), Violation> {
        self.note(|| format!("node {node} begins from a checkpoint, from {} to {}", checkpoint.start, checkpoint.end));
        self.forget(node);
        let records = std::mem::take(&mut checkpoint.records).into_iter();
        let filling = Filling::new(self.nodes[node].memory.clone());
        let joining = self.nodes[node].joining.as_mut().expect("it joins");
        joining.bootstrap = Some(Bootstrap { filling, records, checkpoint });
        self.fill(node)
    }

    /// The next record, or the end.
    pub(super) fn fill(&mut self, node: usize) -> Result<(), Violation> {
        if self.upstream(node).is_none() {
            return Ok(());
        }
        let state = &mut self.nodes[node];
        let bootstrap =
            state.joining.as_mut().and_then(|joining| joining.bootstrap.as_mut()).expect("a checkpoint comes");
        bootstrap.filling.landed();
        let Some(((fid, rid), address, row)) = bootstrap.records.next() else {
            let Checkpoint { history, start, .. } = &bootstrap.checkpoint;
            let writes: Vec<_> = beginning(&state.memory, CLUSTER, id_of(node), history.last_term(), *start).collect();
            self.write(node, &writes, Then::Seeded);
            return Ok(());
        };
        while let Err(why) = bootstrap.filling.lay_out(&Record { fid, rid, address, row: row.as_deref() }) {
            let NoRoom::Arena { bytes } = why else { return Property::Mirrors.violated(why.to_string()) };
            let arena = region(bytes.max(ARENA_BYTES));
            state.memory.push(arena.clone());
            bootstrap.filling.grow(arena);
        }
        let writes: Vec<_> = bootstrap.filling.writes().map(|(to, bytes)| (to, bytes.to_vec())).collect();
        self.write(node, &writes, Then::Filled);
        Ok(())
    }

    /// The checkpoint is in the memory.
    pub(super) fn seeded(&mut self, node: usize) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        let Some(bootstrap) = state.joining.as_mut().and_then(|joining| joining.bootstrap.take()) else {
            return Ok(());
        };
        let Checkpoint { history, start, end, .. } = bootstrap.checkpoint;
        (state.history, state.base) = (history, start);
        self.mirror_state(node).seeded(start, end);
        let floor = self.mirror_state(node).floor();
        self.nodes[node].noted = Some((floor, false));
        self.report.seeded += 1;
        self.ask(node)
    }
}
