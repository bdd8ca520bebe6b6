//! Two-phase locking with NO_WAIT, and two-phase commit: what Active-Memory and log shipping have
//! in common (sections 4.1 and 6.1.3).
//!
//! The node of a client coordinates its transactions. It locks and reads rows whose first copies it
//! has, and asks the nodes of others to do so ([`ACCESS`]). If one lock is taken, all are given
//! back, and the transaction begins again later. When it has its write set, that is replicated:
//! [`crate::active_memory`] or [`crate::shipping`]. Locks are held until that is done.

use std::time::Instant;

use freshet_base::sync::{AtomicU32, Ordering};

use crate::{
    Failed,
    active_memory::Memories,
    clock::Role,
    input::{Input, Operation},
    node::{Core, Scheme},
    shape::Shape,
    shipping::Shipping,
    store::{COLUMN, Column, Map, Store, mark, mix, modify},
    wire::Reader,
};

/// Lock these rows and read them: a transaction's id, a number of operations, and those.
pub(crate) const ACCESS: u8 = 1;
/// They are locked: the id, what was read, and for each row that is to be written its partition,
/// key, slot, column and value.
const GRANTED: u8 = 2;
/// One of them is locked by another transaction, and so none is by this one: the id.
const REFUSED: u8 = 3;
/// The transaction has ended: the id. What it has sent to be done at its end is done, and its locks
/// are free.
const RELEASE: u8 = 4;
/// A record of the log.
pub(crate) const LOG: u8 = 5;
/// That was written down, and replayed: the id.
pub(crate) const ACK: u8 = 6;

/// A lock on a row.
#[derive(Clone, Copy, Debug)]
struct Held {
    partition: u16,
    slot: u32,
    is_write: bool,
}

/// A word for each row of the copies here: free, with that number of readers, or written. Threads
/// of a node would share them, so they are taken by compare and exchange, although here a node has
/// one.
struct Locks(Vec<Vec<AtomicU32>>);

const FREE: u32 = 0;
const WRITTEN: u32 = u32::MAX;

impl Locks {
    fn new(shape: &Shape, me: usize) -> Self {
        let of = |partition| {
            let rows = shape.copy_at(partition, me).map_or(0, |_| shape.records);
            (0..rows).map(|_| AtomicU32::new(FREE)).collect()
        };
        Self((0..shape.nodes).map(of).collect())
    }

    fn word(&self, held: Held) -> &AtomicU32 {
        &self.0[usize::from(held.partition)][held.slot as usize]
    }

    fn take(&self, held: Held) -> bool {
        let word = self.word(held);
        let reads = |readers: u32| readers.checked_add(1).filter(|more| *more != WRITTEN);
        if held.is_write {
            word.compare_exchange(FREE, WRITTEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        } else {
            word.fetch_update(Ordering::Acquire, Ordering::Relaxed, reads).is_ok()
        }
    }

    fn give(&self, all: &[Held]) {
        for held in all {
            let word = self.word(*held);
            if held.is_write {
                word.store(FREE, Ordering::Release);
            } else {
                word.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// A row of the write set.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub partition: u16,
    pub key: u32,
    pub slot: u32,
    pub column: u8,
    pub old: Column,
    pub new: Column,
}

/// Rows that are locked, and what was in them.
#[derive(Default)]
struct Granted {
    held: Vec<Held>,
    digest: u64,
    /// Those that are to be written.
    values: Vec<(Operation, u32, Column)>,
}

/// A transaction that has not ended.
pub(crate) struct Open {
    pub input: Input,
    begun: Instant,
    attempts: u32,
    /// Nodes that have not answered.
    asked: Vec<usize>,
    /// Nodes that have locked rows for it.
    granted: Vec<usize>,
    is_refused: bool,
    held: Vec<Held>,
    digest: u64,
    pub changes: Vec<Change>,
    noted: Option<usize>,
}

impl Open {
    /// Has the modifications made; the rows are locked.
    fn take(&mut self, values: impl IntoIterator<Item = (Operation, u32, Column)>, digest: u64) {
        self.digest = self.digest.wrapping_add(digest);
        for (Operation { partition, key, column, .. }, slot, old) in values {
            let mut new = old;
            modify(&mut new, self.input.seed, key);
            self.changes.push(Change { partition, key, slot, column, old, new });
        }
    }
}

/// How write sets are replicated.
pub(crate) enum Replication {
    ActiveMemory(Box<Memories>),
    Shipping(Box<Shipping>),
}

/// The scheme.
pub(crate) struct Locking {
    locks: Locks,
    replication: Replication,
    /// Transactions whose rows other nodes are asked for, by id.
    open: Map<u64, Open>,
    /// Those that begin again in a turn from this number on.
    again: Vec<(u64, Open)>,
    turns: u64,
    /// What transactions of other nodes have locked here.
    held: Map<u64, Vec<Held>>,
}

impl Locking {
    pub fn new(core: &Core, replication: Replication) -> Self {
        Self {
            locks: Locks::new(&core.shape, core.me),
            replication,
            open: Map::default(),
            again: Vec::new(),
            turns: 0,
            held: Map::default(),
        }
    }

    /// Locks all of these rows and reads them, or none.
    fn access<'o>(&self, store: &Store, operations: impl Iterator<Item = &'o Operation>) -> Option<Granted> {
        let mut granted = Granted::default();
        for operation in operations {
            let Operation { partition, key, column, is_write } = *operation;
            let found = store.find(partition.into(), key);
            let held = found.map(|slot| Held { partition, slot, is_write });
            let Some(held) = held.filter(|held| self.locks.take(*held)) else {
                self.locks.give(&granted.held);
                return None;
            };
            granted.held.push(held);
            let read = store.read(partition.into(), held.slot);
            granted.digest = granted.digest.wrapping_add(mark(read, key));
            if is_write {
                granted.values.push((*operation, held.slot, store.column(partition.into(), held.slot, column)));
            }
        }
        Some(granted)
    }

    fn begin(&mut self, core: &mut Core, input: Input, begun: Instant, attempts: u32) -> Result<(), Failed> {
        core.clock.enter(Role::Logic);
        let mut open = Open {
            input,
            begun,
            attempts,
            asked: Vec::new(),
            granted: Vec::new(),
            is_refused: false,
            held: Vec::new(),
            digest: 0,
            changes: Vec::new(),
            noted: None,
        };
        let here = |it: &&Operation| core_primary(core, it) == core.me;
        let Some(granted) = self.access(&core.store, open.input.operations.iter().filter(here)) else {
            self.begin_again(core, open);
            return Ok(());
        };
        open.held = granted.held;
        open.take(granted.values, granted.digest);
        for partition in open.input.partitions() {
            let node = core.primary(partition);
            if node != core.me && !open.asked.contains(&node) {
                open.asked.push(node);
            }
        }
        for node in open.asked.clone() {
            let of = |it: &&Operation| core_primary(core, it) == node;
            let operations: Vec<_> = open.input.operations.iter().filter(of).copied().collect();
            let id = open.input.id;
            core.send(node, |out| {
                out.push(ACCESS);
                out.extend_from_slice(&id.to_le_bytes());
                out.push(operations.len() as u8);
                operations.iter().for_each(|operation| operation.put(out));
            });
        }
        self.continues(core, open)
    }

    /// All rows are locked, or some are asked for, or one was refused.
    fn continues(&mut self, core: &mut Core, mut open: Open) -> Result<(), Failed> {
        if !open.asked.is_empty() {
            self.open.insert(open.input.id, open);
            return Ok(());
        }
        if open.is_refused {
            self.begin_again(core, open);
            return Ok(());
        }
        if open.changes.is_empty() {
            open.noted = core.note(&open.input, open.digest, None, None);
            self.end(core, open);
            return Ok(());
        }
        match &mut self.replication {
            Replication::ActiveMemory(memories) => {
                open.noted = core.note(&open.input, open.digest, None, Some(memories.next_number()));
                memories.replicate(core, open)
            }
            Replication::Shipping(shipping) => {
                open.noted = core.note(&open.input, open.digest, None, None);
                let ended = shipping.replicate(core, open);
                ended.into_iter().for_each(|open| self.end(core, open));
                Ok(())
            }
        }
    }

    /// There was a conflict: the transaction begins again later, the later the more often.
    fn begin_again(&mut self, core: &mut Core, open: Open) {
        core.tally.aborted += 1;
        self.release(core, &open);
        let wait = mix(open.input.id ^ self.turns) % (2u64 << open.attempts.min(6));
        self.again.push((self.turns + 1 + wait, open));
    }

    /// Gives its locks back, here and elsewhere.
    fn release(&self, core: &mut Core, open: &Open) {
        self.locks.give(&open.held);
        for node in &open.granted {
            core.send(*node, |out| {
                out.push(RELEASE);
                out.extend_from_slice(&open.input.id.to_le_bytes());
            });
        }
    }

    /// The transaction is replicated.
    fn end(&self, core: &mut Core, open: Open) {
        core.clock.enter(Role::Logic);
        self.release(core, &open);
        core.acknowledge(open.begun, open.noted);
    }

    /// [`ACCESS`].
    fn grant(&mut self, core: &mut Core, from: usize, message: &mut Reader<'_>) -> Option<()> {
        core.clock.enter(Role::Logic);
        let (id, count) = (message.u64()?, message.u8()?);
        let operations = (0..count).map(|_| Operation::take(message, &core.shape)).collect::<Option<Vec<_>>>()?;
        let Some(Granted { held, digest, values }) = self.access(&core.store, operations.iter()) else {
            core.send(from, |out| {
                out.push(REFUSED);
                out.extend_from_slice(&id.to_le_bytes());
            });
            return Some(());
        };
        self.held.insert(id, held);
        core.send(from, |out| {
            out.push(GRANTED);
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&digest.to_le_bytes());
            out.push(values.len() as u8);
            for (operation, slot, value) in &values {
                operation.put(out);
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(value);
            }
        });
        Some(())
    }

    /// [`GRANTED`] and [`REFUSED`].
    fn answered(&mut self, core: &mut Core, from: usize, kind: u8, message: &mut Reader<'_>) -> Result<(), Failed> {
        core.clock.enter(Role::Logic);
        let malformed = Failed::Malformed { from };
        let Some(mut open) = message.u64().and_then(|id| self.open.remove(&id)) else { return Err(malformed) };
        open.asked.retain(|node| *node != from);
        if kind == REFUSED {
            open.is_refused = true;
            return self.continues(core, open);
        }
        open.granted.push(from);
        let read = |message: &mut Reader<'_>| {
            let (digest, count) = (message.u64()?, message.u8()?);
            let mut values = Vec::with_capacity(count.into());
            for _ in 0..count {
                let (operation, slot) = (Operation::take(message, &core.shape)?, message.u32()?);
                let value = message.array::<COLUMN>()?;
                values.push((operation, slot, value));
            }
            let possible = values.iter().all(|(_, slot, _)| *slot < core.shape.records);
            possible.then_some((digest, values))
        };
        let (digest, values) = read(message).ok_or(malformed)?;
        open.take(values, digest);
        self.continues(core, open)
    }
}

/// The node whose copy of what an operation is about counts.
fn core_primary(core: &Core, operation: &Operation) -> usize {
    core.primary(operation.partition.into())
}

impl Scheme for Locking {
    fn handle(&mut self, core: &mut Core, from: usize, mut message: Reader<'_>) -> Result<(), Failed> {
        let whole = message.0;
        match (message.u8(), &mut self.replication) {
            (Some(ACCESS), _) => self.grant(core, from, &mut message).ok_or(Failed::Malformed { from }),
            (Some(kind @ (GRANTED | REFUSED)), _) => self.answered(core, from, kind, &mut message),
            (Some(RELEASE), replication) => {
                core.clock.enter(Role::Logic);
                let id = message.u64().ok_or(Failed::Malformed { from })?;
                if let Replication::Shipping(shipping) = replication {
                    shipping.ended(core, id);
                }
                self.locks.give(&self.held.remove(&id).unwrap_or_default());
                Ok(())
            }
            (Some(LOG), Replication::Shipping(shipping)) => {
                shipping.replay(core, from, whole).ok_or(Failed::Malformed { from })
            }
            (Some(ACK), Replication::Shipping(shipping)) => {
                let id = message.u64().ok_or(Failed::Malformed { from })?;
                let ended = shipping.acknowledged(core, id);
                ended.into_iter().for_each(|open| self.end(core, open));
                Ok(())
            }
            _ => Err(Failed::Malformed { from }),
        }
    }

    fn turn(&mut self, core: &mut Core) -> Result<bool, Failed> {
        self.turns += 1;
        let mut some = false;
        if let Replication::ActiveMemory(memories) = &mut self.replication {
            for open in memories.turn(core) {
                self.end(core, open);
                some = true;
            }
        }
        // What is in the way may be locks of a node that is lost.
        let (turns, may) = (self.turns, core.may_begin);
        let due: Vec<_> = self.again.extract_if(.., |(turn, _)| may && *turn <= turns).collect();
        for (_, Open { input, begun, attempts, .. }) in due {
            self.begin(core, input, begun, attempts + 1)?;
            some = true;
        }
        // One that replicates nothing has ended by then: another one could follow it without end.
        for _ in 0..core.most_open {
            let Some(input) = core.next_input() else { break };
            self.begin(core, input, Instant::now(), 0)?;
            some = true;
        }
        Ok(some)
    }

    fn exclude(&mut self, core: &mut Core, dead: usize) -> Result<(), Failed> {
        let waiting: Vec<u64> =
            self.open.iter().filter(|(_, open)| open.asked.contains(&dead)).map(|(id, _)| *id).collect();
        for id in waiting {
            let Some(mut open) = self.open.remove(&id) else { continue };
            open.asked.retain(|node| *node != dead);
            open.is_refused = true;
            self.continues(core, open)?;
        }
        Ok(())
    }

    fn parked(&self) -> usize {
        self.again.len()
    }

    fn forget(&mut self, dead: usize) {
        let Self { held, locks, .. } = self;
        held.retain(|id, held| {
            let is_gone = Input::node_of(*id) == dead;
            if is_gone {
                locks.give(held);
            }
            !is_gone
        });
    }
}
