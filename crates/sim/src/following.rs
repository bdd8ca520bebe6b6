//! Who follows: receives, persists, acknowledges, replays, shows.

use std::cmp::Ordering;

use freshet_base::{NodeId, Stamp, Term};
use freshet_cluster::{
    commit_rule::Event,
    relay::Relay,
    take_over::Answer,
    term::{TermHistory, TermState, Verdict},
};

use crate::{
    checks::Violation,
    log::Block,
    net::{ConnectionId, Message},
    node::{Disk, Feeding, Link, Node},
    scenario::Broken,
    world::{RING, TIMEOUT, What, World},
};

impl World {
    /// Connects to the leader, unless there is a connection, or something better to do.
    pub(crate) fn follow(&mut self, node: usize) {
        let state = &self.nodes[node];
        if !state.up || state.reign().is_some() || state.candidate.is_some() || state.link.is_some() {
            return;
        }
        // Who may be in the in-sync set has to answer to the primary itself, until it is on record that it is not.
        let upstream = state.upstream.filter(|_| !state.is_counted());
        let Some(leader) = upstream.or(state.leader).filter(|leader| *leader != node) else {
            return self.reconnect(node);
        };
        self.nodes[node].memory.file += 1;
        let state = &self.nodes[node];
        let message = Message::Join {
            fence: state.disk.terms.fence.highest(),
            history: state.disk.terms.history.clone(),
            received: state.disk.log.end(),
            persisted: state.disk.synced,
            credit: state.credit(RING),
        };
        let connection = self.connect(node, leader, message);
        self.nodes[node].link = Some(Link { connection, term: None });
    }

    /// Later.
    pub(crate) fn reconnect(&mut self, node: usize) {
        let pause = self.dice.between(500, 8000);
        let state = &mut self.nodes[node];
        let life = state.life;
        if !std::mem::replace(&mut state.reconnects, true) {
            self.after(pause, What::Reconnect { node, life });
        }
    }

    /// Gives the connection to the leader up.
    pub(crate) fn unlink(&mut self, node: usize) -> Result<(), Violation> {
        self.unfollow(node)?;
        self.reconnect(node);
        Ok(())
    }

    /// The same, and makes no other.
    pub(crate) fn unfollow(&mut self, node: usize) -> Result<(), Violation> {
        if let Some(link) = &self.nodes[node].link {
            self.hang_up(link.connection, node);
            self.revoke(node)?;
            self.nodes[node].link = None;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(crate) fn welcomed(
        &mut self,
        node: usize,
        id: ConnectionId,
        term: Term,
        reigns: bool,
        host: NodeId,
        history: TermHistory,
        cut_at: u64,
    ) -> Result<(), Violation> {
        let now = self.now;
        let state = &mut self.nodes[node];
        if state.link.as_ref().is_none_or(|link| link.connection != id) {
            self.hang_up(id, node);
            return Ok(());
        }
        // The term of whoever relays is that of its primary.
        let reigning = if reigns { host } else { history.reigns().last().map_or(host, |last| last.node) };
        if let Verdict::Refused { .. } = state.disk.terms.fence.hear(term, reigning) {
            self.unlink(node)?;
            return Ok(());
        }
        if cut_at < state.disk.log.end() {
            if state.visible > cut_at {
                self.check_seen(node, cut_at)?;
                return self.wipe(node);
            }
            if self.scenario.broken != Broken::CutForgotten {
                self.cut(node, cut_at);
            }
        }
        self.end_feeds(node);
        let (ack, below) = (self.scenario.relay_ack, self.scenario.cascaded as u32);
        let state = &mut self.nodes[node];
        state.disk.terms.history = history;
        state.returns = false;
        state.link = Some(Link { connection: id, term: Some(term) });
        // What it had beyond is cut off, so there is room.
        self.net.connections[id].file = Some(state.memory.file);
        self.check_terms(node)?;
        let state = &mut self.nodes[node];
        if state.relays {
            let mut relay = Relay::new(ack, below, TIMEOUT, Stamp(state.disk.synced), now);
            relay.heard_global(Stamp(state.global));
            state.relay = Some(relay);
            state.feeding = Some(Feeding::new(term, Stamp(state.disk.log.end())));
        }
        self.watch(node);
        self.acknowledge(node);
        self.flush(node)
    }

    /// The log from `at` on never was.
    pub(crate) fn cut(&mut self, node: usize, at: u64) {
        self.report.cuts += 1;
        let state = &mut self.nodes[node];
        state.disk.log.cut(at);
        state.disk.synced = state.disk.synced.min(at);
        state.disk.dropped &= at > state.disk.sure;
        state.disk.sure = state.disk.sure.min(at);
        state.replayed = state.replayed.min(at);
        state.global = state.global.min(at);
        state.cuts += 1;
        state.flushing = false;
        state.replaying = false;
    }

    /// The operator gives the node an empty disk.
    fn wipe(&mut self, node: usize) -> Result<(), Violation> {
        self.crash(node);
        let fresh = Node::new(node, true, None, false);
        let TermState { fence, .. } = self.nodes[node].disk.terms;
        let state = &mut self.nodes[node];
        state.disk = Disk { terms: TermState { fence, ..TermState::empty() }, ..fresh.disk };
        state.replayed = 0;
        Ok(())
    }

    /// Blocks, or none, and how far everything is globally persistent.
    pub(crate) fn batch(
        &mut self,
        node: usize,
        id: ConnectionId,
        term: Term,
        blocks: Vec<Block>,
        global: u64,
    ) -> Result<(), Violation> {
        let broken = self.scenario.broken;
        let state = &self.nodes[node];
        let current = state.link.as_ref().is_some_and(|link| link.connection == id && link.term == Some(term));
        let admitted = state.disk.terms.fence.admits(term) || broken == Broken::OldTermAccepted;
        if !current || !admitted {
            if current {
                self.unlink(node)?;
            }
            return Ok(());
        }
        let silent = blocks.is_empty();
        let from = state.disk.log.end();
        if !self.take_in(node, blocks)? {
            return self.unlink(node);
        }
        let told = (self.scenario.synchronous as u32, self.scenario.safety);
        let state = &mut self.nodes[node];
        let to = state.disk.log.end();
        state.told = Some(told);
        state.global = state.global.max(global);
        if let Some(relay) = &mut state.relay {
            relay.heard_global(Stamp(global));
        }
        if let Some(feeding) = state.feeding.as_mut().filter(|_| to > from) {
            let ends: Vec<Stamp> = state.disk.log.between(from, to).iter().map(|block| Stamp(block.end())).collect();
            feeding.boundaries.push(Stamp(from), Stamp(to), &ends);
        }
        self.pump(node);
        self.show(node)?;
        self.replay(node);
        if silent || broken == Broken::AckBeforePersist {
            self.acknowledge(node);
        }
        self.flush(node)
    }

    /// Puts blocks behind those that were received; false when they do not follow.
    pub(crate) fn take_in(&mut self, node: usize, blocks: Vec<Block>) -> Result<bool, Violation> {
        let broken = self.scenario.broken;
        for block in blocks {
            let state = &mut self.nodes[node];
            let end = state.disk.log.end();
            if block.start != end {
                if broken == Broken::CutForgotten && block.start < end {
                    continue;
                }
                return Ok(false);
            }
            if block.end() > state.credit(RING) {
                if broken != Broken::CreditIgnored {
                    return crate::Property::Logs.violated(format!("the ring of node {node} is overrun"));
                }
                let (spoilt, upto) = (state.disk.synced, block.end() - RING);
                if upto > spoilt {
                    state.disk.log.spoil(spoilt, upto);
                    self.check_log(node, spoilt)?;
                }
            }
            let digest = self.nodes[node].disk.log.push(block.clone());
            self.check_block(node, &block, digest)?;
        }
        Ok(true)
    }

    /// Says what is persistent here, and how much room there is.
    pub(crate) fn acknowledge(&mut self, node: usize) {
        let state = &self.nodes[node];
        let Some(Link { connection, term: Some(term) }) = state.link else { return };
        if !state.disk.terms.fence.admits(term) && self.scenario.broken != Broken::OldTermAccepted {
            return;
        }
        let persisted = match (self.scenario.broken, &state.relay) {
            (Broken::AckBeforePersist, _) => state.disk.log.end(),
            (_, Some(relay)) => relay.upward().0,
            (_, None) => state.disk.synced,
        };
        let credit = state.credit(RING);
        self.send(connection, node, Message::Ack { persisted, credit });
    }

    pub(crate) fn replay(&mut self, node: usize) {
        let slow = if self.dice.one_in(25) { 40 } else { 1 };
        let pause = self.dice.between(20, 250) * slow;
        let state = &mut self.nodes[node];
        let to = state.disk.log.end();
        if state.replaying || state.replayed >= to {
            return;
        }
        state.replaying = true;
        let (life, cuts) = (state.life, state.cuts);
        self.after(pause, What::Replayed { node, life, cuts, to });
    }

    pub(crate) fn replayed(&mut self, node: usize, cuts: u32, to: u64) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        if state.cuts != cuts {
            return Ok(());
        }
        state.replaying = false;
        state.replayed = to;
        self.show(node)?;
        if self.nodes[node].reign().is_none() {
            self.acknowledge(node);
        }
        self.replay(node);
        Ok(())
    }

    /// Readers see what is replayed, persistent here, and wherever the safety level demands.
    pub(crate) fn show(&mut self, node: usize) -> Result<(), Violation> {
        let state = &self.nodes[node];
        if state.reign().is_some() {
            return Ok(());
        }
        let least = match self.scenario.broken {
            Broken::ViewAheadOfPersistence => state.replayed,
            Broken::ViewAheadOfOthers => state.replayed.min(state.disk.synced),
            _ => state.replayed.min(state.disk.synced).min(state.global),
        };
        let whole = match self.scenario.broken {
            Broken::ViewWithinTransactions => least,
            _ => state.disk.log.transaction_end(least),
        };
        if whole > state.visible {
            self.check_view(node, whole)?;
            self.nodes[node].visible = whole;
        }
        Ok(())
    }

    /// Somebody says that it reigns.
    pub(crate) fn announced(
        &mut self,
        node: usize,
        from: usize,
        id: ConnectionId,
        term: Term,
    ) -> Result<(), Violation> {
        let name = self.nodes[from].id;
        let state = &mut self.nodes[node];
        if let Verdict::Refused { highest, .. } = state.disk.terms.fence.hear(term, name) {
            let leader = if state.reign().is_some() { Some(node) } else { state.leader };
            self.send(id, node, Message::Refused { highest, leader });
            // Two reign in one term.
            let same = self.nodes[node].reign().is_some_and(|reign| reign.term == term);
            let yields = self.nodes[node].id < name;
            return if same { self.contested_in(node, term, yields) } else { Ok(()) };
        }
        self.hears_of(node, term, name);
        self.send(id, node, Message::Heard);
        if self.nodes[node].reign().is_some() {
            return self.tell_rule(node, Event::Fenced { by: term });
        }
        self.give_up(node);
        self.nodes[node].leader = Some(from);
        let linked = self.nodes[node].link.as_ref();
        let elsewhere = linked.is_some_and(|link| link.term != Some(term)) && self.nodes[node].upstream.is_none();
        if elsewhere {
            self.unlink(node)?;
        }
        self.reconnect(node);
        Ok(())
    }

    /// Somebody has promised the term in which `node` reigns to another.
    fn contested_in(&mut self, node: usize, term: Term, yields: bool) -> Result<(), Violation> {
        if self.scenario.broken == Broken::ContestIgnored {
            return Ok(());
        }
        self.tell_rule(node, Event::Contested { term, yields })
    }

    /// A later term is in force, or whoever was asked has no log to give.
    pub(crate) fn refused(
        &mut self,
        node: usize,
        id: ConnectionId,
        highest: Term,
        leader: Option<usize>,
    ) -> Result<(), Violation> {
        self.hang_up(id, node);
        let state = &mut self.nodes[node];
        if state.candidate.as_ref().is_some_and(|candidate| candidate.asked.contains(&id)) {
            if let Some(candidate) = &mut state.candidate {
                candidate.leader = leader.or(candidate.leader);
            }
            return self.answered(node, id, Answer::Higher(highest));
        }
        if let Some(reign) = state.reign() {
            return match highest.cmp(&reign.term) {
                Ordering::Greater => self.tell_rule(node, Event::Fenced { by: highest }),
                Ordering::Equal => self.contested_in(node, highest, false),
                Ordering::Less => Ok(()),
            };
        }
        if state.link.as_ref().is_some_and(|link| link.connection == id) {
            state.link = None;
            state.leader = leader.filter(|leader| *leader != node).or(state.leader);
            self.reconnect(node);
        }
        Ok(())
    }

    /// A connection was lost.
    pub(crate) fn lost(&mut self, node: usize, id: ConnectionId) -> Result<(), Violation> {
        if self.nodes[node].link.as_ref().is_some_and(|link| link.connection == id) {
            self.unlink(node)?;
        }
        self.left(node, id)?;
        self.silent(node, id)
    }
}
