//! What transactions do, where standbys execute them again: each reads at a snapshot, and what it
//! writes depends on all that it has read, on old versions and on the indexes that there were.
//!
//! A node has its tables in memory. What may be read, kept and said is decided by
//! [`freshet_cluster::inputs`]; nothing here checks that again, and a node that relies on a version
//! that it does not have comes to another result, which is a violation.
//!
//! | module | is |
//! |---|---|
//! | `tables` | versions and indexes in memory |
//! | `standby` | what arrives, is kept in the journal, executed, and asked of others |
//! | `durable` | what of it a crash leaves, a restart finds, and a checkpoint changes |

mod durable;
mod standby;
mod tables;

use std::{collections::BTreeMap, rc::Rc};

use freshet_base::Lsn;
use freshet_cluster::inputs::{Asked, Kept, Raising, Reach, Sayable};

pub(crate) use self::tables::Tables;
use self::tables::{GROUPS, KEYS};
use crate::{
    log::Block,
    net::ConnectionId,
    scenario::Broken,
    world::{World, of_scale},
};

/// How many indexes a table may have.
pub(crate) const SLOTS: u8 = 3;

/// A transaction that was recorded: what is needed to execute it again.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub snapshot: u64,
    pub input: u64,
    pub reads: Vec<Read>,
    pub writes: Vec<u8>,
}

/// What a transaction reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    Record(u8),
    /// All records of a group, by this index if it is there.
    Group {
        slot: u8,
        group: u8,
    },
}

/// What a record becomes, and which version that replaces; zero if it is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub key: u8,
    pub prev: u64,
    pub value: u64,
}

/// What a block does to tables.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// It was recorded.
    Execute(Transaction, Vec<Write>),
    /// It was not.
    Write(Vec<Write>),
    /// It makes this index, or drops it.
    Define { slot: u8 },
}

/// A node's part in it.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub tables: Tables,
    /// The log is complete up to here; what has arrived beyond is not part of it yet.
    pub complete: u64,
    /// It has a state of the database: its log has reached the end of its checkpoint.
    pub composed: bool,
    /// It asks for inputs.
    pub asks: bool,
    pub reach: Option<Reach>,
    /// Indexes were changed last below this, as far as has arrived.
    defined: Lsn,
    /// Everything below is replayed before a block is executed.
    barrier: u64,
    pub kept: Kept,
    /// It is about to look at what has arrived, unless the log was cut since.
    pub turn: Option<u32>,
    /// Batches that are to be written into the journal, and how many of them are being written.
    waiting: Vec<(u64, u64)>,
    writing: usize,
    /// A checkpoint that is about to count, and where it ends.
    raising: Option<(Raising, u64)>,
    /// Blocks that do not come out here, by where they begin.
    lacking: BTreeMap<u64, Lacking>,
}

/// A block that does not come out.
#[derive(Debug)]
struct Lacking {
    end: u64,
    /// It only takes long: in the end it does come out.
    slow: bool,
    /// Another node has given its bytes.
    given: bool,
    asked: Option<(Asked, Vec<ConnectionId>)>,
}

impl Content {
    /// The transactions of this cluster read no further back, in bytes of log.
    fn slack(world: &World) -> u64 {
        of_scale(&world.scenario, 2500)
    }
}

impl World {
    /// Whether nodes have tables, and execute what they get as inputs.
    pub(crate) fn has_content(&self, node: usize) -> bool {
        self.scenario.forms && self.nodes[node].mirror.is_none()
    }

    /// The primary `node` draws what its next block does, and does it.
    pub(crate) fn transact(&mut self, node: usize, block: &mut Block, alone: bool) {
        if !self.has_content(node) {
            return;
        }
        let (slack, start) = (Content::slack(self), block.start);
        let dice = &mut self.dice;
        let state = &mut self.nodes[node];
        let begun = state.disk.terms.history.entries().last().map_or(0, |lead| lead.start.0);
        let log = &state.disk.log;
        if alone && dice.one_in(30) {
            block.does = Some(Rc::new(Does::Define { slot: dice.below(SLOTS.into()) as u8 }));
            self.report.definitions += 1;
        } else {
            let back = if dice.one_in(3) { dice.below(slack + slack / 4) } else { dice.below(slack / 8) };
            let snapshot = log.transaction_end(start.saturating_sub(back)).max(begun);
            let key = |dice: &mut crate::dice::Dice| dice.below(KEYS.into()) as u8;
            let mut reads = Vec::new();
            for _ in 0..dice.between(1, 4) {
                reads.push(match dice.below(3) {
                    0 => Read::Group { slot: dice.below(SLOTS.into()) as u8, group: dice.below(GROUPS.into()) as u8 },
                    _ => Read::Record(key(dice)),
                });
            }
            let mut writes: Vec<u8> = (0..dice.between(1, 3)).map(|_| key(dice)).collect();
            writes.dedup();
            let it = Transaction { snapshot, input: block.content, reads, writes };
            let written = state.content.tables.execute(&it);
            let recorded = alone && !dice.one_in(8);
            let does = if recorded { Does::Execute(it, written) } else { Does::Write(written) };
            block.does = Some(Rc::new(does));
        }
        state.content.tables.apply(block, None);
    }

    /// In which form blocks are sent on a connection: see [`Sayable`].
    pub(crate) fn encode(&mut self, node: usize, id: ConnectionId, blocks: &mut [Block]) {
        let (Some(first), true) = (blocks.first().map(|block| block.start), self.scenario.forms) else { return };
        let [standby, _] = self.net.connections[id].ends;
        let (slack, broken) = (Content::slack(self), self.scenario.broken);
        let state = &self.nodes[node];
        // Who joins has no catalog yet.
        let asks = self.has_content(standby) && self.nodes[standby].content.asks && state.content.composed;
        let replayed = if state.lead().is_some() { Lsn::MAX } else { state.follower.replayed() };
        let mut sayable = self.net.connections[id].sayable.unwrap_or(Sayable::new(Lsn(first)));
        let now = state.content.tables.indexes();
        // The catalog keeps what was dropped.
        let keys_at = |at: u64| match broken {
            Broken::KeysOfNow => Some(now),
            _ => state.content.tables.indexes_before(at),
        };
        for block in blocks {
            block.form = match block.does.as_deref() {
                Some(Does::Define { .. }) => {
                    sayable.defines(Lsn(block.end()));
                    None
                }
                Some(Does::Execute(it, writes)) if asks => {
                    let reads = Lsn(it.snapshot) >= sayable.reads_from() || broken == Broken::ReadsAnything;
                    let inserts = writes.iter().any(|write| write.prev == 0);
                    let knows = !inserts || sayable.knows_keys(replayed) || broken == Broken::RelayGuessesKeys;
                    let says = reads && knows && block.start - it.snapshot < slack;
                    let mask = |made: tables::Indexes| {
                        let has = made.iter().enumerate().filter(|(_, made)| made.is_some());
                        has.fold(0, |all, (slot, _)| all | 1 << slot)
                    };
                    if says { keys_at(block.start).map(mask) } else { None }
                }
                _ => None,
            };
        }
        self.net.connections[id].sayable = Some(sayable);
    }
}
