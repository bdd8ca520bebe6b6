//! Memory into which another node writes: a primary writes into its standbys' rings and mailboxes,
//! whatever these are doing; it may have been stopped for long when it does; and with the appliance
//! method (Query Fresh, section 2.3) what it has read back counts for it, whether the standby has
//! taken it or not.

use std::collections::VecDeque;

use freshet_base::{Lsn, Term};
use freshet_cluster::{in_sync::InSyncSet, promotion::LogState};

use crate::{
    checks::Violation,
    log::Block,
    net::{Along, ConnectionId, Message},
    node::Node,
    scenario::Broken,
    world::{Own, What, World},
};

/// The memory of one node in which others write.
#[derive(Default)]
pub(crate) struct Memory {
    /// Which file it is; a writer keeps the one that it has mapped.
    pub file: u64,
    /// What was written and announced, and not taken yet.
    pub landed: VecDeque<Landed>,
    /// Candidates that are answered when all is persistent that was received.
    pub unanswered: Vec<ConnectionId>,
    /// The process is stopped: what happens to it waits.
    pub stopped: bool,
    pub waiting: Vec<What>,
}

/// A frame, and the blocks that it announces.
pub(crate) struct Landed {
    pub connection: ConnectionId,
    pub term: Term,
    pub blocks: Vec<Block>,
    pub along: Along,
}

impl Node {
    /// What has landed and follows the log.
    pub(crate) fn landed(&self) -> impl Iterator<Item = &Block> {
        let link = self.link.as_ref().and_then(|link| link.term.map(|term| (link.connection, term)));
        let of_link = self.memory.landed.iter().filter(move |landed| link == Some((landed.connection, landed.term)));
        let mut end = self.disk.log.end();
        of_link.flat_map(|landed| &landed.blocks).take_while(move |block| {
            let follows = block.start == end;
            end = block.end();
            follows
        })
    }
}

impl World {
    /// How far `node` holds the log for good: what is synced, or in persistent memory; and what
    /// stands for its bytes up to `at`.
    pub(crate) fn holds(&self, node: usize, at: u64) -> Option<u64> {
        let node = &self.nodes[node];
        if let Some(mirror) = &node.mirror
            && node.disk.synced < mirror.floor().0
        {
            return None;
        }
        if !self.scenario.appliance || node.lead().is_some() || node.mirror.is_some() {
            return if node.disk.synced >= at { node.disk.log.digest(at) } else { None };
        }
        let landed: Vec<Block> = node.landed().cloned().collect();
        node.disk.log.digest_with(&landed, at)
    }

    /// What `node` says to a candidate when no primary can write there any more: all that was read
    /// back is in it.
    pub(crate) fn revoked_state(&self, node: &Node) -> LogState {
        let mut state = node.log_state();
        if self.scenario.appliance
            && node.mirror.is_none()
            && self.scenario.broken != Broken::AnsweredBeforeRevoked
            && node.lead().is_none()
        {
            let beyond = node.disk.log.between(node.disk.synced, u64::MAX).iter().chain(node.landed());
            for block in beyond {
                state.end = Lsn(block.end());
                if let Some(set) = &block.set {
                    state.set = Some(InSyncSet::newer(state.set.take(), (**set).clone()));
                }
            }
        }
        state
    }

    /// A batch is in its place, with its frame. The node itself has no part in that.
    pub(crate) fn land(&mut self, node: usize, id: ConnectionId, term: Term, blocks: Vec<Block>, along: Along) {
        let state = &mut self.nodes[node];
        if state.link_by(id).is_none_or(|link| link.term != Some(term)) {
            // The memory that it knows is no longer there.
            return;
        }
        let read_back = blocks.last().map(Block::end).filter(|_| self.scenario.appliance);
        state.memory.landed.push_back(Landed { connection: id, term, blocks, along });
        let pause = if self.dice.one_in(10) { self.dice.between(500, 6000) } else { self.dice.between(1, 60) };
        self.later(node, pause, Own::Take);
        if let Some(to) = read_back {
            self.send(id, node, Message::ReadBack { to });
        }
    }

    /// The receiving thread looks into the mailbox.
    pub(crate) fn take(&mut self, node: usize) -> Result<(), Violation> {
        while let Some(landed) = self.nodes[node].memory.landed.pop_front() {
            self.batch(node, landed.connection, landed.term, landed.blocks, landed.along)?;
        }
        Ok(())
    }

    /// No primary writes here any more: what has landed is taken, and the memory moves.
    pub(crate) fn revoke(&mut self, node: usize) -> Result<(), Violation> {
        let landed: Vec<Block> = self.nodes[node].landed().cloned().collect();
        let state = &mut self.nodes[node];
        state.memory.landed.clear();
        if self.scenario.broken != Broken::MovedAtJoinOnly {
            state.memory.file += 1;
        }
        if self.scenario.broken != Broken::AnsweredBeforeRevoked {
            self.take_in(node, landed)?;
            self.flush(node)?;
        }
        Ok(())
    }

    /// The primary hears that its bytes have arrived: that is all the acknowledgement that it
    /// takes, but for what a standby has to take note of.
    pub(crate) fn read_back(&mut self, node: usize, id: ConnectionId, to: u64) -> Result<(), Violation> {
        let acked = self.nodes[node].host.as_mut().map(|host| host.read_back(id, Lsn(to)));
        self.observe(node, id, acked)
    }

    /// Answers a candidate: at once, unless something that counts for a primary is not persistent
    /// yet.
    pub(crate) fn answer(&mut self, node: usize, id: ConnectionId, binding: bool) {
        let state = &mut self.nodes[node];
        let waits = (self.scenario.appliance || state.mirror.is_some())
            && self.scenario.broken != Broken::AnsweredBeforeRevoked;
        if binding && waits && state.lead().is_none() && !self.is_settled(node) {
            self.nodes[node].memory.unanswered.push(id);
            return;
        }
        let state = &self.nodes[node];
        let answer = state.answer_of(self.log_state_of(state));
        self.send(id, node, Message::Answer { answer });
    }

    /// Whether all is persistent that was received; of a mirror, whether its memory is its own, or
    /// its primary's by the term that it has promised.
    pub(crate) fn is_settled(&self, node: usize) -> bool {
        if let Some(mirror) = &self.nodes[node].mirror {
            return mirror.is_settled();
        }
        let disk = &self.nodes[node].disk;
        disk.synced == disk.log.end()
    }

    /// Something has become persistent.
    pub(crate) fn settled_now(&mut self, node: usize) {
        if self.is_settled(node) {
            self.answer_waiting(node);
        }
    }

    /// Answers all that wait.
    pub(crate) fn answer_waiting(&mut self, node: usize) {
        for id in std::mem::take(&mut self.nodes[node].memory.unanswered) {
            self.answer(node, id, true);
        }
    }

    /// The process stands still for a while, and continues as if nothing had happened. Others may
    /// have given it up.
    pub(crate) fn stop(&mut self, node: usize) {
        if !self.nodes[node].up || std::mem::replace(&mut self.nodes[node].memory.stopped, true) {
            return;
        }
        let pause = self.dice.between(3000, 150_000);
        self.later(node, pause, Own::Continue);
        for id in 0..self.net.connections.len() {
            let connection = &self.net.connections[id];
            if connection.open && connection.ends.contains(&node) && self.dice.one_in(2) {
                self.lose(id);
            }
        }
    }

    /// The process continues: first of all with what it was writing, into memory that it has
    /// mapped.
    pub(crate) fn go_on(&mut self, node: usize) {
        self.nodes[node].memory.stopped = false;
        for what in std::mem::take(&mut self.nodes[node].memory.waiting) {
            self.after(0, what);
        }
    }

    /// Blocks are written to a node that has ended the connection, perhaps not for the first time:
    /// into memory that is its ring, if that has not moved.
    pub(crate) fn land_late(&mut self, node: usize, file: u64, blocks: &[Block]) -> Result<(), Violation> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(()) };
        let state = &mut self.nodes[node];
        let there = state.disk.log.between(first.start, last.end());
        let same = there.iter().map(|block| block.content).eq(blocks.iter().map(|block| block.content));
        if state.memory.file == file && state.disk.log.end() > first.start && !same {
            state.disk.log.spoil(first.start, last.end());
            self.check_log(node, first.start)?;
        }
        Ok(())
    }

    /// Keeps what happens to a stopped process, or is done by one, for later; gives back what is
    /// not.
    pub(crate) fn unless_stopped(&mut self, what: What) -> Option<What> {
        let node = match &what {
            What::Deliver { connection, to, message } => {
                let ends = self.net.connections[*connection].ends;
                let (node, from) = (ends[*to], ends[1 - *to]);
                let joining = self.nodes[node].link.as_ref().is_some_and(|link| link.term.is_none());
                match **message {
                    // Memory is written by the one who writes, whether anybody else runs or not.
                    Message::Batch { .. } | Message::Again { .. } if self.scenario.mapped && !joining => from,
                    _ => node,
                }
            }
            // A card writes, whether its process runs or not.
            What::Land(id) if !self.cards => self.net.connections[*id].ends[1],
            What::Of { node, what, .. } if !matches!(what, Own::Continue) => *node,
            _ => return Some(what),
        };
        let memory = &mut self.nodes[node].memory;
        if !memory.stopped {
            return Some(what);
        }
        memory.waiting.push(what);
        None
    }
}
