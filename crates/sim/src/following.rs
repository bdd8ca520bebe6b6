//! Drives [`freshet_cluster::follower::Follower`]: its log is a sequence of blocks, its disk and
//! its replay take their time.

use std::cmp::Ordering;

use freshet_base::{Lsn, NodeId, Term};
use freshet_cluster::{
    commit_rule,
    follower::{self, Ack, Decision, Room},
    handshake::{Continue, Welcome},
    meeting::{Acknowledged, Rival},
    promotion::Answer,
    term::{Fence, TermState},
    upstream::Ended,
};

use crate::{
    checks::Violation,
    log::Block,
    net::{Along, ConnectionId, Message},
    node::{Candidate, Disk, Link, Node},
    sabotage::Effect,
    scenario::Broken,
    upstream::address,
    world::{Own, World, ring},
};

/// No piece that is replayed is longer, unless a block is.
const PIECE: u64 = 4000;

impl World {
    /// What `node` remembers of terms.
    pub(crate) fn known_terms(&self, node: usize) -> TermState {
        let state = self.nodes[node].disk.terms.clone();
        if self.scenario.broken == Broken::RelayNotLeft { TermState { set: None, ..state } } else { state }
    }

    /// The primary says, perhaps through a relay, who is in the cluster and what it promises.
    pub(crate) fn observe_peers(&mut self, node: usize, id: ConnectionId) {
        let state = &mut self.nodes[node];
        if state.link_by(id).is_some() {
            state.view.observe_level(self.scenario.safety);
            if let Some(host) = &mut state.host {
                host.peers_changed();
            }
        }
    }

    /// How what this node has would continue.
    pub(crate) fn continuation(&self, node: usize) -> Continue {
        let state = &self.nodes[node];
        let history = state.disk.terms.history.clone();
        if let Some(mirror) = &state.mirror {
            return mirror.continuation(history);
        }
        let overruns = self.scenario.broken == Broken::CreditIgnored;
        Continue {
            history,
            received: Lsn(state.disk.log.end()),
            persisted: Lsn(state.disk.synced),
            capacity: if overruns { u64::MAX / 2 } else { ring(&self.scenario) },
            may_send_until: if overruns { Lsn(u64::MAX / 2) } else { state.follower.free_until() },
        }
    }

    /// A standby has entered the terms of the node that it follows by this connection.
    pub(crate) fn begins_to_follow(
        &mut self,
        node: usize,
        id: ConnectionId,
        welcome: &Welcome,
    ) -> Result<(), Violation> {
        let now = self.clock(node);
        let continues = self.nodes[node].follower.continues(welcome);
        if !continues {
            self.end_feeds(node);
        }
        self.linked(node, welcome);
        let state = &mut self.nodes[node];
        state.returns = false;
        // What it had beyond is cut off, so there is room.
        self.net.connections[id].file = Some(state.memory.file);
        if state.follows.relay.is_some() && !continues {
            state.follower.pass_on(welcome, now);
            let down = state.follower.downward().unwrap_or_default();
            self.begin_to_feed(node, welcome.term, welcome.path());
            self.committed(node, down.0)?;
        }
        self.nodes[node].follower.linked(welcome);
        self.watch(node);
        self.acknowledge(node, true);
        self.flush(node)
    }

    /// A node holds what was acknowledged up to `committed`, and a log of `term` parts from its own
    /// at `at`, below. Where that cannot be, it is a violation; else the operator has to choose.
    pub(crate) fn holds_more(&mut self, node: usize, (term, at, committed): (Term, Lsn, Lsn)) -> Result<(), Violation> {
        if !self.scenario.strong() {
            return self.wipe(node);
        }
        if self.checks.promised_after(term) {
            return Ok(());
        }
        let (log, promised) = (&self.nodes[node].disk.log, &self.checks.promised);
        let next = log.between(at.0, u64::MAX).first().map(Block::end);
        let is_promised = |next: u64| promised.digest(next).is_some() && promised.digest(next) == log.digest(next);
        if !next.is_some_and(is_promised) {
            // No client was sent that: the node began from a checkpoint of a mirror that took over,
            // which had what was not committed.
            self.crash(node);
            self.another_disk(node);
            return Ok(());
        }
        if self.checks.is_void(term) {
            self.holds_more = Some(node);
            return Ok(());
        }
        crate::Property::Logs.violated(format!(
            "node {node} has what was acknowledged up to {committed}, and the log of term {term} only up to {at}"
        ))
    }

    /// The log from `at` on never was.
    pub(crate) fn cut(&mut self, node: usize, at: u64) -> Result<(), Violation> {
        // What is being replayed is waited for.
        if let Some(to) = self.nodes[node].replaying.take() {
            self.apply_to_follower(node, follower::Event::Replayed(Lsn(to)))?;
        }
        self.report.cuts += 1;
        let state = &mut self.nodes[node];
        if state.follower.hold(Lsn(at)).is_err() {
            return self.check_seen(node, at);
        }
        state.disk.log.cut(at);
        state.disk.synced = state.disk.synced.min(at);
        state.disk.dropped &= at > state.disk.sure;
        state.disk.sure = state.disk.sure.min(at);
        state.follower.cut(Lsn(at));
        state.arrived.retain(|end| end.0 <= at);
        self.content_cut(node, at);
        let state = &mut self.nodes[node];
        state.cuts += 1;
        state.flushing = false;
        self.regenerate(node);
        self.replay(node);
        Ok(())
    }

    /// The operator gives the node an empty disk.
    pub(crate) fn wipe(&mut self, node: usize) -> Result<(), Violation> {
        self.crash(node);
        let state = &mut self.nodes[node];
        let fresh = Node::new(node, true, state.relay, state.follows, &state.recorder);
        let fence = state.disk.terms.fence;
        state.disk = Disk { terms: TermState { fence, ..TermState::empty() }, ..fresh.disk };
        state.renew_mirror();
        let incarnation = Some(self.unique());
        self.nodes[node].disk.terms.incarnation = incarnation;
        Ok(())
    }

    /// The follower hears what has happened, and what it says is carried out.
    pub(crate) fn apply_to_follower(&mut self, node: usize, event: follower::Event) -> Result<(), Violation> {
        if let follower::Event::Replayed(to) = event {
            self.content_replayed(node, to)?;
        }
        let (now, broken) = (self.clock(node), self.scenario.broken);
        let event = match event {
            follower::Event::Global(_) if broken == Broken::ViewAheadOfOthers => follower::Event::Global(Lsn::MAX),
            event => event,
        };
        let decision = self.nodes[node].follower.apply(event, now);
        if matches!(event, follower::Event::Global(_)) && self.dice.one_in(8) {
            let state = &mut self.nodes[node];
            let noted = state.disk.log.transaction_end(state.follower.global().0.min(state.disk.sure));
            state.disk.terms.note_committed(Lsn(noted));
        }
        self.carry_out(node, decision)
    }

    /// Whole blocks are part of the log.
    pub(crate) fn accept(&mut self, node: usize, ends: &[Lsn]) -> Result<(), Violation> {
        let decision = self.nodes[node].follower.accepted(ends);
        self.carry_out(node, decision)
    }

    fn carry_out(&mut self, node: usize, decision: Decision) -> Result<(), Violation> {
        for effect in self.decided(&decision) {
            match (effect, decision.down) {
                (Effect::Show, _) => self.show(node, &decision)?,
                (Effect::PassDown, Some(down)) => self.committed(node, down.0)?,
                (Effect::Replay, _) => self.replay(node),
                _ => {}
            }
        }
        self.watch(node);
        Ok(())
    }

    fn show(&mut self, node: usize, decision: &Decision) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        let log = &state.disk.log;
        let end = |at: Lsn| match self.scenario.broken {
            Broken::ViewWithinTransactions => at,
            _ => Lsn(log.transaction_end(at.0)),
        };
        let shown = decision.show.map(|show| show.end(end)).filter(|to| state.follower.shown(*to));
        let shown = match self.scenario.broken {
            Broken::ViewAheadOfPersistence => Some(log.transaction_end(state.follower.replayed().0)),
            _ => shown.map(|to| to.0),
        };
        if let Some(shown) = shown.filter(|shown| *shown > state.visible && state.lead().is_none()) {
            self.check_view(node, shown)?;
            self.nodes[node].visible = shown;
        }
        Ok(())
    }

    /// Blocks, or none.
    pub(crate) fn batch(
        &mut self,
        node: usize,
        id: ConnectionId,
        term: Term,
        blocks: Vec<Block>,
        along: Along,
    ) -> Result<(), Violation> {
        let broken = self.scenario.broken;
        let state = &mut self.nodes[node];
        let current = state.link_by(id).is_some_and(|link| link.term == Some(term));
        if !current {
            return Ok(());
        }
        if !state.follower.takes(term, &state.disk.terms.fence) && broken != Broken::OldTermAccepted {
            return self.unlink(node, Ended::GivenUp);
        }
        let silent = blocks.is_empty();
        // First what is committed, which rides on it: what is then replayed may be seen at once.
        self.primary_sent(node, along);
        self.apply_to_follower(node, follower::Event::Global(along.global))?;
        if !self.take_in(node, blocks)? {
            return self.unlink(node, Ended::GivenUp);
        }
        self.acknowledge(node, silent);
        self.flush(node)
    }

    /// Puts blocks behind those that were received; false when they do not follow.
    pub(crate) fn take_in(&mut self, node: usize, blocks: Vec<Block>) -> Result<bool, Violation> {
        let broken = self.scenario.broken;
        let from = self.nodes[node].disk.log.end();
        let mut ends = Vec::new();
        let mut follows = true;
        for block in blocks {
            let state = &mut self.nodes[node];
            let end = state.disk.log.end();
            if block.start != end {
                if broken == Broken::CutForgotten && block.start < end {
                    continue;
                }
                follows = false;
                break;
            }
            if block.end() > state.follower.free_until().0 {
                if broken != Broken::CreditIgnored {
                    return crate::Property::Logs.violated(format!("the ring of node {node} is overrun"));
                }
                let (spoilt, upto) = (state.disk.synced, block.end() - ring(&self.scenario));
                if upto > spoilt {
                    state.disk.log.spoil(spoilt, upto);
                    self.check_log(node, spoilt)?;
                }
            }
            ends.push(Lsn(block.end()));
            let digest = self.nodes[node].disk.log.push(block.clone());
            self.check_block(node, &block, digest)?;
        }
        if ends.is_empty() {
            return Ok(follows);
        }
        if self.has_content(node) {
            self.blocks_arrive(node, from, &ends)?;
            return Ok(follows);
        }
        self.filled(node, Lsn(from), &ends)?;
        self.accept(node, &ends)?;
        Ok(follows)
    }

    /// Blocks have arrived in another form.
    pub(crate) fn arrive(&mut self, node: usize, ends: &[Lsn]) -> Result<(), Violation> {
        let Some(to) = ends.last() else { return Ok(()) };
        let idle = self.nodes[node].arrived.is_empty();
        self.nodes[node].arrived.extend(ends);
        self.apply_to_follower(node, follower::Event::Arrived(*to))?;
        if idle {
            self.regenerate(node);
        }
        Ok(())
    }

    pub(crate) fn regenerate(&mut self, node: usize) {
        let cuts = self.nodes[node].cuts;
        let Node { arrived, content, .. } = &mut self.nodes[node];
        if !arrived.is_empty() && content.turn.replace(cuts) != Some(cuts) {
            let slow = if self.dice.one_in(25) { 40 } else { 1 };
            let pause = self.dice.between(20, 250) * slow;
            self.later(node, pause, Own::Regenerated { cuts });
        }
    }

    /// Some blocks are regenerated.
    pub(crate) fn regenerated(&mut self, node: usize, cuts: u32) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        if state.cuts != cuts {
            return Ok(());
        }
        state.content.turn = None;
        if state.arrived.is_empty() {
            return Ok(());
        }
        let count = 1 + self.dice.below(state.arrived.len() as u64) as usize;
        self.complete_some(node, count)?;
        self.regenerate(node);
        self.flush(node)
    }

    /// The same for the end of another log, which has room.
    pub(crate) fn take_in_all(&mut self, node: usize, blocks: Vec<Block>) -> Result<(), Violation> {
        let ends: Vec<Lsn> = blocks.iter().map(|block| Lsn(block.end())).collect();
        for block in blocks {
            let digest = self.nodes[node].disk.log.push(block.clone());
            self.check_block(node, &block, digest)?;
        }
        self.becomes_complete(node, &ends)
    }

    /// Says what is persistent here, and how much room there is.
    pub(crate) fn acknowledge(&mut self, node: usize, force: bool) {
        let (now, broken) = (self.clock(node), self.scenario.broken);
        let until = self.continuation(node).may_send_until;
        let state = &mut self.nodes[node];
        let Some(Link { connection, term: Some(_), .. }) = state.link else { return };
        let fence = match broken {
            Broken::OldTermAccepted => Fence::new(Term(0), None),
            _ => state.disk.terms.fence,
        };
        let (force, room) = (force || broken == Broken::AckBeforePersist, Room { until, ..state.follower.room() });
        let owes = state.follower.owes_ack(room, force, &fence);
        let Some(mut ack) = owes.then(|| state.follower.ack(room, now)).flatten() else { return };
        ack.observed = state.voter.answers(state.steady_clock(self.now));
        if broken == Broken::AckBeforePersist {
            ack = Ack { persisted: Lsn(state.disk.log.end()), ..ack };
        }
        self.send(connection, node, Message::Ack { ack });
    }

    pub(crate) fn replay(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let Some(piece) = state.follower.next_piece(PIECE) else { return };
        let to = piece.ends.last().expect("a piece has an end").0;
        state.replaying = Some(to);
        let cuts = state.cuts;
        let slow = if self.dice.one_in(25) { 40 } else { 1 };
        let pause = self.dice.between(20, 250) * slow;
        self.later(node, pause, Own::Replayed { cuts, to });
    }

    pub(crate) fn replayed(&mut self, node: usize, cuts: u32, to: u64) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        if state.cuts != cuts || state.replaying.take_if(|piece| *piece == to).is_none() {
            return Ok(());
        }
        self.apply_to_follower(node, follower::Event::Replayed(Lsn(to)))?;
        if self.nodes[node].lead().is_none() {
            self.acknowledge(node, false);
        }
        self.replay(node);
        Ok(())
    }

    /// Replays all that was received, at once.
    pub(crate) fn finish_replay(&mut self, node: usize) -> Result<(), Violation> {
        while let Some(to) = self.nodes[node].replaying.take() {
            self.apply_to_follower(node, follower::Event::Replayed(Lsn(to)))?;
            self.replay(node);
        }
        Ok(())
    }

    /// Somebody says that it leads.
    pub(crate) fn announced(
        &mut self,
        node: usize,
        from: usize,
        id: ConnectionId,
        (term, acknowledged): (Term, Acknowledged),
    ) -> Result<(), Violation> {
        let name = self.nodes[from].id;
        if !self.promise_to(node, (term, true), name, id)? {
            // Two lead in one term.
            let same = self.nodes[node].lead().is_some_and(|lead| lead.term == term);
            let rival = Rival { acknowledged, is_first: self.nodes[node].id < name };
            return if same { self.contested_in(node, term, Some(rival)) } else { Ok(()) };
        }
        if self.nodes[node].lead().is_some() {
            self.send(id, node, Message::Noted);
            return Ok(());
        }
        if !self.nodes[node].is_witness {
            self.give_up(node)?;
            self.steer(node, |upstream| upstream.announced(name, &address(from)))?;
        }
        self.observe_primary_of(node, term, name);
        self.send(id, node, Message::Noted);
        Ok(())
    }

    /// Somebody has promised the term in which `node` leads to another.
    fn contested_in(&mut self, node: usize, term: Term, rival: Option<Rival>) -> Result<(), Violation> {
        if self.scenario.broken == Broken::ContestIgnored {
            return Ok(());
        }
        self.apply_to_rule(node, commit_rule::Event::Contested { term, rival })?;
        if rival.is_none() && self.is_unattended(node) {
            self.leaves_contested_term(node);
        }
        Ok(())
    }

    /// A later term is in force, or whoever was asked has no log to give.
    pub(crate) fn refused(
        &mut self,
        node: usize,
        id: ConnectionId,
        highest: Term,
        holder: Option<NodeId>,
    ) -> Result<(), Violation> {
        self.hang_up(id, node);
        let state = &mut self.nodes[node];
        let fetches = |candidate: &Candidate| candidate.fetching.is_some_and(|(fetching, _)| fetching == id);
        if state.candidate.as_ref().is_some_and(fetches) {
            return self.silent(node, id);
        }
        if state.candidate.as_ref().is_some_and(|candidate| candidate.asked.contains(&id)) {
            return self.answered(node, id, Answer::Higher { highest, holder });
        }
        let Some(lead) = state.lead() else { return Ok(()) };
        match highest.cmp(&lead.term) {
            Ordering::Greater => self.apply_to_rule(node, commit_rule::Event::Fenced { by: highest }),
            Ordering::Equal => self.contested_in(node, highest, None),
            Ordering::Less => Ok(()),
        }
    }

    /// A connection was lost.
    pub(crate) fn lost(&mut self, node: usize, id: ConnectionId) -> Result<(), Violation> {
        if let Some(link) = self.nodes[node].link_by(id) {
            let why = if link.term.is_some() { Ended::Lost } else { Ended::Unreachable };
            self.unlink(node, why)?;
        }
        self.left(node, id)?;
        self.witness_is_lost(node, id)?;
        self.silent(node, id)
    }
}
