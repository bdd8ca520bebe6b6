//! Connections: in order within one direction, unordered among one another; a message that is lost
//! ends its connection.

use std::{collections::BTreeSet, rc::Rc};

use freshet_base::{Lsn, NodeId, Term};
use freshet_cluster::{
    Moment,
    follower::Ack,
    handshake::{Continue, Refusal, Welcome},
    host::Note,
    in_sync::InSyncSet,
    inputs::{Original, Sayable},
    maintenance::Notice,
    meeting::Acknowledged,
    promotion::{Answer, Question},
    register::Register,
    switch_over::HandOver,
    witness::{Ask, Granted},
};
use freshet_fabric::memory::Region;

use crate::{
    entering::Purpose,
    feeding::Joining,
    log::Block,
    mirror::{Checkpoint, Offer, Posted},
    register::{Asks, Then},
    world::{Own, What, World},
};

pub(crate) type ConnectionId = usize;

/// What is said.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Join {
        fence: Term,
        log: Continue,
        /// Whether commits may wait for the node that joins.
        synchronous: bool,
        /// Whether commits may count on it.
        member: bool,
        mirror: bool,
        /// Everything below is known there to have been acknowledged.
        holds: Lsn,
        /// The last term of its log took effect.
        in_effect: bool,
        maintenance: Notice,
    },
    /// Maintenance was ordered, or ended.
    Maintenance {
        notice: Notice,
    },
    /// The node is not fed.
    NotFed {
        why: Refusal,
    },
    /// A mirror has nothing, and wants a checkpoint.
    AskCheckpoint,
    Checkpoint {
        checkpoint: Option<Rc<Checkpoint>>,
    },
    /// A mirror offers its memory.
    Offer {
        offer: Offer,
    },
    /// To a mirror: everything up to `to` has completed.
    MirrorNote {
        to: Lsn,
        along: Along,
    },
    /// To a mirror: an in-sync set was recorded.
    Members {
        set: InSyncSet,
    },
    /// A mirror is asked for more memory, and answers.
    Grow {
        bytes: u64,
        undo: bool,
    },
    Grown {
        region: Option<Region>,
        undo: bool,
    },
    Welcome {
        welcome: Welcome,
    },
    /// Blocks, or none.
    Batch {
        term: Term,
        blocks: Vec<Block>,
        along: Along,
    },
    /// Blocks that were written into memory before, once more.
    Again {
        blocks: Vec<Block>,
    },
    /// Who is in the cluster, and what it promises.
    Peers,
    Ack {
        ack: Ack,
    },
    /// To the one who writes, from the memory itself.
    ReadBack {
        to: u64,
    },
    Consult {
        question: Question,
        /// What the candidate knows of maintenance, if it stands by itself.
        stands: Option<Notice>,
    },
    /// Of a primary that hands its role over.
    HandOver {
        hand_over: HandOver,
    },
    /// To the witness, and its answer.
    Ask {
        ask: Ask,
    },
    Granted {
        granted: Granted,
    },
    /// To a register, its answer, what is to be written, and whether it is.
    Read {
        asks: Asks,
    },
    Value {
        asks: Asks,
        revision: u64,
        value: Box<Register>,
    },
    Swap {
        asks: Asks,
        revision: u64,
        step: Box<(Register, Then)>,
    },
    Swapped {
        asks: Asks,
        then: Option<Then>,
    },
    /// Of a node that was asked.
    Answer {
        answer: Answer,
    },
    Fetch {
        term: Term,
        log: Continue,
    },
    Fetched {
        welcome: Welcome,
        blocks: Vec<Block>,
    },
    Announce {
        term: Term,
        acknowledged: Acknowledged,
    },
    Noted,
    /// The block that ends here, which has this content, is wanted.
    AskOriginal {
        end: u64,
        content: u64,
    },
    GiveOriginal {
        original: Original,
    },
    /// A later term is in force.
    Refused {
        highest: Term,
        holder: Option<NodeId>,
    },
}

/// What goes along with what a primary sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    /// Everything below is globally persistent.
    pub global: Lsn,
    /// When it was sent, by the primary's clock.
    pub sent: Moment,
    /// What the sender knows of maintenance.
    pub maintenance: Notice,
}

impl Along {
    pub fn new(Note { global, time, .. }: Note, maintenance: Notice) -> Self {
        Self { global, sent: time, maintenance }
    }
}

pub(crate) struct Connection {
    /// Who connected, and to whom.
    pub ends: [usize; 2],
    /// In which memory of the one who connected the other may write, once there is room.
    pub file: Option<u64>,
    lives: [u32; 2],
    pub open: bool,
    /// A direction in which something was lost: nothing that follows arrives.
    stalled: [bool; 2],
    /// When the last message of each direction arrives.
    last: [u64; 2],
    /// What the second writes into the memory of the first, a mirror.
    pub posted: Option<Box<Posted>>,
    /// What the second may say as inputs.
    pub sayable: Option<Sayable>,
    /// The first is a mirror that joins.
    pub is_of_mirror: bool,
}

#[derive(Default)]
pub(crate) struct Network {
    pub connections: Vec<Connection>,
    /// Pairs that do not reach one another, the smaller number first.
    pub parted: BTreeSet<(usize, usize)>,
    /// What the first says does not reach the second.
    pub deaf: BTreeSet<(usize, usize)>,
}

impl Network {
    pub fn parted(&self, a: usize, b: usize) -> bool {
        self.parted.contains(&(a.min(b), a.max(b)))
    }
}

impl World {
    /// Connects, and says the first message. A node that cannot be reached shows as a loss, later.
    pub(crate) fn connect(&mut self, from: usize, to: usize, first: Message) -> ConnectionId {
        let lives = [self.nodes[from].life, self.nodes[to].life];
        let id = self.net.connections.len();
        let deaf = self.net.deaf.contains(&(from, to)) || self.net.deaf.contains(&(to, from));
        let open = self.nodes[to].serves() && !self.net.parted(from, to) && !deaf && from != to;
        let ends = [from, to];
        let is_of_mirror = matches!(first, Message::Join { mirror: true, .. });
        let (stalled, last) = ([false; 2], [0, 0]);
        let connection =
            Connection { ends, file: None, lives, open, stalled, last, posted: None, sayable: None, is_of_mirror };
        self.net.connections.push(connection);
        if open {
            self.send(id, from, first);
        } else {
            let after = self.dice.between(100, 5000);
            self.after(after, What::Of { node: from, life: lives[0], what: Own::Lost(id) });
        }
        id
    }

    /// Sends on a connection, if it is still open.
    pub(crate) fn send(&mut self, id: ConnectionId, from: usize, message: Message) {
        let connection = &self.net.connections[id];
        if !connection.open {
            return;
        }
        let to = usize::from(connection.ends[0] == from);
        let [a, b] = connection.ends;
        if self.net.parted(a, b) || (!self.calm && self.dice.one_in(2500)) {
            return self.lose(id);
        }
        let deaf = self.net.deaf.contains(&(from, connection.ends[to]));
        if connection.stalled[to] || deaf {
            // The sender waits for it to be taken in, and gives the connection up in the end.
            if !std::mem::replace(&mut self.net.connections[id].stalled[to], true) {
                let pause = self.dice.between(5000, 60_000);
                self.after(pause, What::Silent(id));
            }
            return;
        }
        let delay = if self.dice.one_in(40) { self.dice.between(50, 8000) } else { self.dice.between(20, 600) };
        let connection = &mut self.net.connections[id];
        let at = (self.now.0 + delay).max(connection.last[to]);
        connection.last[to] = at;
        self.at(at, What::Deliver { connection: id, to, message: Box::new(message) });
    }

    /// Ends a connection: what is on its way is lost, and both ends notice in their own time.
    pub(crate) fn lose(&mut self, id: ConnectionId) {
        let connection = &mut self.net.connections[id];
        if !std::mem::take(&mut connection.open) {
            return;
        }
        let (ends, lives) = (connection.ends, connection.lives);
        for side in 0..2 {
            let after = self.dice.between(10, 30_000);
            self.after(after, What::Of { node: ends[side], life: lives[side], what: Own::Lost(id) });
        }
    }

    /// One end hangs up, and knows; the other notices.
    pub(crate) fn hang_up(&mut self, id: ConnectionId, by: usize) {
        let connection = &mut self.net.connections[id];
        if !std::mem::take(&mut connection.open) {
            return;
        }
        let other = usize::from(connection.ends[0] == by);
        let (node, life) = (connection.ends[other], connection.lives[other]);
        let after = self.dice.between(10, 3000);
        self.after(after, What::Of { node, life, what: Own::Lost(id) });
    }

    /// The node at the other end.
    pub(crate) fn peer(&self, id: ConnectionId, node: usize) -> usize {
        let ends = self.net.connections[id].ends;
        if ends[0] == node { ends[1] } else { ends[0] }
    }

    pub(crate) fn deliver(&mut self, id: ConnectionId, side: usize, message: Message) -> Result<(), crate::Violation> {
        let connection = &self.net.connections[id];
        let (to, from) = (connection.ends[side], connection.ends[1 - side]);
        if !self.nodes[to].serves() || self.nodes[to].life != connection.lives[side] {
            return Ok(());
        }
        if !connection.open {
            return self.deliver_late(id, side, message);
        }
        let Some(message) = self.no_register_message(id, side, message)? else { return Ok(()) };
        match message {
            Message::Join { fence, log, synchronous, member, mirror, holds, in_effect, maintenance } => {
                self.observe_maintenance(to, maintenance);
                let joining =
                    Joining { node: from, id, fence, log: &log, synchronous, member, mirror, holds, in_effect };
                self.joins(to, &joining)?;
            }
            Message::NotFed { .. } | Message::Welcome { .. } if self.nodes[to].link_by(id).is_none() => {
                self.hang_up(id, to)
            }
            Message::NotFed { why } => self.not_fed(to, why)?,
            Message::AskCheckpoint => self.checkpoint_wanted(to, id),
            Message::Checkpoint { checkpoint } => self.checkpoint_comes(to, id, checkpoint)?,
            Message::Offer { offer } => self.memory_offered(to, id, &offer)?,
            Message::MirrorNote { to: completed, along } => self.mirror_noted(to, id, (completed, along))?,
            Message::Members { set } => self.set_recorded(to, id, set),
            Message::Grow { bytes, undo } => self.more_memory(to, id, bytes, undo),
            Message::Grown { region, undo } => self.memory_grown(to, id, region, undo)?,
            Message::Welcome { welcome } => self.welcomed(to, welcome, Purpose::Follow(id))?,
            Message::Batch { term, blocks, along } if self.scenario.mapped => {
                if !blocks.is_empty() && self.dice.one_in(20) {
                    let (pause, message) = (self.dice.between(10, 60_000), Message::Again { blocks: blocks.clone() });
                    self.after(pause, What::Deliver { connection: id, to: side, message: Box::new(message) });
                }
                self.land(to, id, term, blocks, along);
            }
            // While the memory is the writer's, the same bytes are there already.
            Message::Again { .. } => {}
            Message::Batch { term, blocks, along } => self.batch(to, id, term, blocks, along)?,
            Message::Peers => self.observe_peers(to, id),
            Message::ReadBack { to: read } => self.read_back(to, id, read)?,
            Message::Ack { ack } => self.acked(to, id, &ack)?,
            Message::HandOver { hand_over } => self.is_handed(to, id, hand_over)?,
            Message::Consult { question, stands } => self.consulted(to, from, id, (question, stands))?,
            Message::Maintenance { notice } => self.maintenance_announced(to, id, notice),
            Message::Answer { answer } => self.answered(to, id, answer)?,
            Message::Ask { ask } => self.witness_asked(to, id, ask),
            Message::Granted { granted } => self.witness_answered(to, granted)?,
            Message::Fetch { term, log } => self.fetched_from(to, from, id, term, &log)?,
            Message::Fetched { welcome, blocks } => self.fetched(to, id, welcome, blocks)?,
            Message::Announce { term, acknowledged } => self.announced(to, from, id, (term, acknowledged))?,
            Message::Noted => self.hang_up(id, to),
            Message::AskOriginal { end, content } => self.original_asked(to, id, end, content),
            Message::GiveOriginal { original } => self.original_comes(to, id, original)?,
            Message::Read { .. } | Message::Value { .. } | Message::Swap { .. } | Message::Swapped { .. } => {}
            Message::Refused { highest, holder } => self.refused(to, id, highest, holder)?,
        }
        Ok(())
    }

    /// Takes in what is for a register, which nothing else reaches, or of it; gives back the rest.
    fn no_register_message(
        &mut self,
        id: ConnectionId,
        side: usize,
        message: Message,
    ) -> Result<Option<Message>, crate::Violation> {
        let to = self.net.connections[id].ends[side];
        match message {
            Message::Read { asks } => self.register_read(to, id, asks),
            Message::Value { asks, revision, value } => self.takes_step(to, id, asks, revision, &value)?,
            Message::Swap { asks, revision, step } => {
                if self.dice.one_in(20) {
                    // Once more, later.
                    let again = Message::Swap { asks: asks.clone(), revision, step: step.clone() };
                    let pause = self.dice.between(10, 60_000);
                    self.after(pause, What::Deliver { connection: id, to: side, message: Box::new(again) });
                }
                self.register_written(to, id, asks, revision, *step);
            }
            Message::Swapped { asks, then } => self.step_taken(to, id, asks, then)?,
            _ if self.is_register(to) => self.hang_up(id, to),
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// The same on a connection that is over.
    fn deliver_late(&mut self, id: ConnectionId, side: usize, message: Message) -> Result<(), crate::Violation> {
        let connection = &self.net.connections[id];
        let (to, from) = (connection.ends[side], connection.ends[1 - side]);
        let writes = self.nodes[from].up && self.nodes[from].life == connection.lives[1 - side];
        match message {
            Message::Batch { blocks, .. } | Message::Again { blocks } if self.scenario.mapped && writes => {
                connection.file.map_or(Ok(()), |file| self.land_late(to, file, &blocks))
            }
            Message::Swap { asks, revision, step } => {
                self.register_written(to, id, asks, revision, *step);
                Ok(())
            }
            // It was written before the other side hung up.
            Message::Ack { ack } => self.acked(to, id, &ack),
            _ => Ok(()),
        }
    }
}
