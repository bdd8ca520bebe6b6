//! Calvin's deterministic locking (section 2.2, figure 3; section 6.1.3).
//!
//! Time is divided into epochs. In each, the *sequencer* of a node collects what the transactions
//! of its clients are told, has that written down by the nodes that have copies of its partition,
//! and sends it to the *schedulers* of all nodes that it concerns. When a scheduler has an epoch of
//! all sequencers, it asks for the locks of all of its transactions, in one order that is the same
//! everywhere. Locks are granted in the order in which they were asked for, so nothing is ever
//! begun twice. What has all its locks is executed: once for each copy of a partition here.
//!
//! All first copies together are one replica of the database, all second ones another. In each
//! replica, those who have a part of a transaction over several partitions send one another what
//! they have read, and continue when they have it of all. One that only reads runs in the first
//! replica alone.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use freshet_base::sync::Arc;

use crate::{
    Failed,
    clock::Role,
    input::Input,
    node::{Core, Scheme},
    store::{Column, Map},
    wire::Reader,
};

/// A sequencer's epoch, to be written down: epoch and inputs.
const INPUTS: u8 = 1;
/// It is: epoch.
const WRITTEN: u8 = 2;
/// An epoch can be scheduled: epoch, whether it is what was written down, and otherwise the inputs
/// that concern the node.
const SCHEDULE: u8 = 3;
/// What was read for a part: id, copy, and that.
const PUSHED: u8 = 4;
/// A transaction was executed in the first replica: id, place in the order, and what was read.
const EXECUTED: u8 = 5;

/// An epoch is closed after this time at the latest.
const EPOCH: Duration = Duration::from_millis(1);

/// A part of a transaction: its id, and which copy.
type Part = (u64, usize);

/// What is executed for a part.
struct Task {
    input: Arc<Input>,
    /// The transaction's place in the order.
    sequence: u64,
    partition: usize,
    /// Rows that it locks, and whether it writes them.
    rows: Vec<(u64, bool)>,
    /// How many of them it has not.
    missing: usize,
    /// Other nodes of the replica that have parts, and how many of those are not heard of.
    others: Vec<usize>,
    unheard: usize,
    has_read: bool,
    digest: u64,
    writes: Vec<(u32, u8, Column)>,
}

/// Parts that want a row, those that have it first.
#[derive(Default)]
struct Queue {
    parts: VecDeque<(Part, bool)>,
    granted: usize,
}

impl Queue {
    /// Appends a part, and says whether it has the row.
    fn ask(&mut self, part: Part, writes: bool) -> bool {
        let has = self.granted == self.parts.len()
            && (self.parts.is_empty() || !writes && !self.parts.iter().any(|(_, writes)| *writes));
        self.parts.push_back((part, writes));
        self.granted += usize::from(has);
        has
    }

    /// Takes a part away that has the row, and appends to `granted` those that have it then.
    fn give(&mut self, part: Part, granted: &mut Vec<Part>) {
        let Some(at) = self.parts.iter().position(|(it, _)| *it == part) else { return };
        self.parts.remove(at);
        self.granted -= 1;
        if self.granted > 0 {
            return;
        }
        for (part, writes) in &self.parts {
            if *writes && self.granted > 0 {
                break;
            }
            self.granted += 1;
            granted.push(*part);
            if *writes {
                break;
            }
        }
    }
}

/// The locks of all rows here: by row, partition and slot.
#[derive(Default)]
struct Locks {
    queues: Map<u64, Queue>,
    /// Queues that were emptied, to be used again.
    spare: Vec<Queue>,
}

impl Locks {
    fn ask(&mut self, row: u64, part: Part, writes: bool) -> bool {
        let spare = &mut self.spare;
        self.queues.entry(row).or_insert_with(|| spare.pop().unwrap_or_default()).ask(part, writes)
    }

    fn give(&mut self, row: u64, part: Part, granted: &mut Vec<Part>) {
        let Some(queue) = self.queues.get_mut(&row) else { return };
        queue.give(part, granted);
        if queue.parts.is_empty() {
            self.spare.extend(self.queues.remove(&row));
        }
    }
}

/// A sequencer.
struct Sequencer {
    batch: Vec<Input>,
    begun: Instant,
    /// How many inputs an epoch has at most.
    most: usize,
    epoch: u32,
    /// Another one has closed the epoch before this one.
    seen: u32,
    /// Epochs that are not written down everywhere, and by how many nodes they are not.
    closed: VecDeque<(u32, Vec<Input>, usize)>,
}

/// The scheme.
pub(crate) struct Calvin {
    sequencer: Sequencer,
    /// When transactions of this node's clients began.
    begun: Map<u64, Instant>,
    /// What was written down for others, by sequencer.
    written: Vec<VecDeque<(u32, Vec<Input>)>>,
    /// Epochs that can be scheduled when the others have come, by sequencer.
    arrived: Vec<VecDeque<Vec<Input>>>,
    scheduled: u32,
    locks: Locks,
    tasks: Map<Part, Task>,
    ready: VecDeque<Part>,
    /// What was pushed for parts that have not been scheduled: how often, and what was read.
    early: Map<Part, (usize, u64)>,
}

/// Whether a node has to do with a transaction.
fn concerns(core: &Core, input: &Input, node: usize) -> bool {
    let copies = if input.is_read_only() { 1 } else { core.shape.copies };
    let here = |partition: u16| core.shape.copy_at(partition.into(), node).is_some_and(|copy| copy < copies);
    input.operations.iter().any(|operation| here(operation.partition))
}

fn put_inputs<'i>(inputs: impl Iterator<Item = &'i Input>, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0u32;
    for input in inputs {
        input.put(out);
        count += 1;
    }
    out[at..at + 4].copy_from_slice(&count.to_le_bytes());
}

fn take_inputs(core: &Core, from: &mut Reader<'_>) -> Option<Vec<Input>> {
    let count = from.u32()?;
    (0..count).map(|_| Input::take(from, &core.shape)).collect()
}

impl Calvin {
    pub fn new(core: &Core) -> Self {
        let nodes = core.shape.nodes;
        Self {
            sequencer: Sequencer {
                batch: Vec::new(),
                begun: Instant::now(),
                // So that one epoch is executed while the next one is collected.
                most: core.most_open.div_ceil(2),
                epoch: 0,
                seen: 0,
                closed: VecDeque::new(),
            },
            begun: Map::default(),
            written: (0..nodes).map(|_| VecDeque::new()).collect(),
            arrived: (0..nodes).map(|_| VecDeque::new()).collect(),
            scheduled: 0,
            locks: Locks::default(),
            tasks: Map::default(),
            ready: VecDeque::new(),
            early: Map::default(),
        }
    }

    /// Collects inputs, and closes epochs.
    fn sequence(&mut self, core: &mut Core) -> bool {
        let mut some = false;
        while self.sequencer.batch.len() < self.sequencer.most
            && let Some(input) = core.next_input()
        {
            self.begun.insert(input.id, Instant::now());
            if self.sequencer.batch.is_empty() {
                self.sequencer.begun = Instant::now();
            }
            self.sequencer.batch.push(input);
            some = true;
        }
        let Sequencer { batch, begun, most, epoch, seen, .. } = &self.sequencer;
        let is_due = batch.len() >= *most || !batch.is_empty() && begun.elapsed() >= EPOCH;
        if !is_due && *epoch >= *seen {
            return some;
        }
        self.close(core);
        true
    }

    fn close(&mut self, core: &mut Core) {
        core.clock.enter(Role::Build);
        let Sequencer { batch, epoch, closed, .. } = &mut self.sequencer;
        let (inputs, number) = (std::mem::take(batch), *epoch);
        *epoch += 1;
        let replicas: Vec<usize> = core.backups(core.me).collect();
        for node in &replicas {
            core.send(*node, |out| {
                out.push(INPUTS);
                out.extend_from_slice(&number.to_le_bytes());
                put_inputs(inputs.iter(), out);
            });
        }
        closed.push_back((number, inputs, replicas.len()));
        self.send_written(core);
    }

    /// Sends epochs that are written down to all schedulers.
    fn send_written(&mut self, core: &mut Core) {
        while let Some((epoch, inputs, _)) = self.sequencer.closed.pop_front_if(|(.., left)| *left == 0) {
            let replicas: Vec<usize> = core.backups(core.me).collect();
            let me = core.me;
            for node in (0..core.shape.nodes).filter(|node| *node != me) {
                let has = replicas.contains(&node);
                let theirs: Vec<&Input> = inputs.iter().filter(|it| !has && concerns(core, it, node)).collect();
                core.send(node, |out| {
                    out.push(SCHEDULE);
                    out.extend_from_slice(&epoch.to_le_bytes());
                    out.push(u8::from(has));
                    put_inputs(theirs.into_iter(), out);
                });
            }
            self.arrived[core.me].push_back(inputs);
        }
    }

    /// Schedules epochs that have come from all sequencers.
    fn schedule(&mut self, core: &mut Core) -> bool {
        let mut some = false;
        while self.arrived.iter().all(|epochs| !epochs.is_empty()) {
            let first = u64::from(self.scheduled) << 32;
            for sequencer in 0..core.shape.nodes {
                let inputs = self.arrived[sequencer].pop_front().unwrap_or_default();
                for input in inputs {
                    // Numbers of a sequencer follow one another, those that a node does not get,
                    // too.
                    let place = (sequencer as u64) << 24 | input.id & 0xFF_FFFF;
                    self.ask(core, Arc::new(input), first | place);
                }
            }
            self.scheduled += 1;
            some = true;
        }
        some
    }

    /// Asks for the locks of all parts of a transaction that are here.
    fn ask(&mut self, core: &mut Core, input: Arc<Input>, sequence: u64) {
        let partitions = input.partitions();
        let copies = if input.is_read_only() { 1 } else { core.shape.copies };
        for partition in &partitions {
            let copy = core.shape.copy_at(*partition, core.me).filter(|copy| *copy < copies);
            let Some(copy) = copy else { continue };
            core.clock.enter(if copy == 0 { Role::Logic } else { Role::Replay });
            let part = (input.id, copy);
            let others: Vec<usize> =
                partitions.iter().filter(|it| *it != partition).map(|it| core.shape.node_of(*it, copy)).collect();
            let (early, digest) = self.early.remove(&part).unwrap_or_default();
            let mut task = Task {
                input: Arc::clone(&input),
                sequence,
                partition: *partition,
                rows: Vec::new(),
                missing: 0,
                unheard: others.len().saturating_sub(early),
                others,
                has_read: false,
                digest,
                writes: Vec::new(),
            };
            for operation in input.within(*partition) {
                // What is not here is noticed when it is read.
                let slot = core.store.find(*partition, operation.key).unwrap_or(u32::MAX);
                let row = (*partition as u64) << 32 | u64::from(slot);
                task.rows.push((row, operation.is_write));
                task.missing += usize::from(!self.locks.ask(row, part, operation.is_write));
            }
            if task.missing == 0 {
                self.ready.push_back(part);
            }
            self.tasks.insert(part, task);
        }
    }

    /// A part has all its locks: it reads, and tells the others what.
    fn read(&mut self, core: &mut Core, part: Part) -> Option<()> {
        core.clock.enter(if part.1 == 0 { Role::Logic } else { Role::Replay });
        let task = self.tasks.get_mut(&part)?;
        let mut digest = 0u64;
        for operation in task.input.within(task.partition) {
            let slot = core.store.find(task.partition, operation.key)?;
            let (read, value) = core.store.execute(operation, slot, task.input.seed);
            digest = digest.wrapping_add(read);
            task.writes.extend(value.map(|value| (slot, operation.column, value)));
        }
        task.has_read = true;
        task.digest = task.digest.wrapping_add(digest);
        for node in &task.others {
            core.send(*node, |out| {
                out.push(PUSHED);
                out.extend_from_slice(&part.0.to_le_bytes());
                out.push(part.1 as u8);
                out.extend_from_slice(&digest.to_le_bytes());
            });
        }
        if task.unheard == 0 { self.finish(core, part) } else { Some(()) }
    }

    /// A part has read, and has heard of all others: it writes, and gives its locks back.
    fn finish(&mut self, core: &mut Core, part: Part) -> Option<()> {
        core.clock.enter(if part.1 == 0 { Role::Logic } else { Role::Replay });
        let task = self.tasks.remove(&part)?;
        for (slot, column, value) in &task.writes {
            core.store.set_column(task.partition, *slot, *column, value);
        }
        let mut granted = Vec::new();
        for (row, _) in &task.rows {
            self.locks.give(*row, part, &mut granted);
        }
        for part in granted {
            let task = self.tasks.get_mut(&part)?;
            task.missing -= 1;
            if task.missing == 0 {
                self.ready.push_back(part);
            }
        }
        let is_first = usize::from(task.input.operations[0].partition) == task.partition;
        if part.1 == 0 && is_first {
            let (client, id) = (Input::node_of(part.0), part.0);
            if client == core.me {
                return self.executed(core, &task.input, task.sequence, task.digest);
            }
            core.send(client, |out| {
                out.push(EXECUTED);
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&task.sequence.to_le_bytes());
                out.extend_from_slice(&task.digest.to_le_bytes());
                task.input.put(out);
            });
        }
        Some(())
    }

    /// A transaction of a client here was executed.
    fn executed(&mut self, core: &mut Core, input: &Input, sequence: u64, digest: u64) -> Option<()> {
        let begun = self.begun.remove(&input.id)?;
        let noted = core.note(input, digest, Some(sequence), None);
        core.acknowledge(begun, noted);
        Some(())
    }

    /// [`PUSHED`].
    fn pushed(&mut self, core: &mut Core, part: Part, digest: u64) -> Option<()> {
        let Some(task) = self.tasks.get_mut(&part) else {
            let (count, sum) = self.early.entry(part).or_default();
            (*count, *sum) = (*count + 1, sum.wrapping_add(digest));
            return Some(());
        };
        task.digest = task.digest.wrapping_add(digest);
        task.unheard = task.unheard.checked_sub(1)?;
        if task.unheard == 0 && task.has_read { self.finish(core, part) } else { Some(()) }
    }

    fn take(&mut self, core: &mut Core, from: usize, message: &mut Reader<'_>) -> Option<()> {
        match message.u8()? {
            INPUTS => {
                let epoch = message.u32()?;
                let inputs = take_inputs(core, message)?;
                self.written[from].push_back((epoch, inputs));
                core.send(from, |out| {
                    out.push(WRITTEN);
                    out.extend_from_slice(&epoch.to_le_bytes());
                });
            }
            WRITTEN => {
                let epoch = message.u32()?;
                let closed = self.sequencer.closed.iter_mut().find(|(it, ..)| *it == epoch)?;
                closed.2 = closed.2.checked_sub(1)?;
                self.send_written(core);
            }
            SCHEDULE => {
                let (epoch, has) = (message.u32()?, message.u8()? != 0);
                let theirs = take_inputs(core, message)?;
                let written = if has { Some(self.written[from].pop_front_if(|(it, _)| *it == epoch)?.1) } else { None };
                self.arrived[from].push_back(written.unwrap_or(theirs));
                self.sequencer.seen = self.sequencer.seen.max(epoch.checked_add(1)?);
            }
            PUSHED => {
                let part = (message.u64()?, usize::from(message.u8()?));
                self.pushed(core, part, message.u64()?)?;
            }
            EXECUTED => {
                let (_, sequence, digest) = (message.u64()?, message.u64()?, message.u64()?);
                let input = Input::take(message, &core.shape)?;
                self.executed(core, &input, sequence, digest)?;
            }
            _ => return None,
        }
        Some(())
    }
}

impl Scheme for Calvin {
    fn handle(&mut self, core: &mut Core, from: usize, mut message: Reader<'_>) -> Result<(), Failed> {
        core.clock.enter(Role::Receive);
        self.take(core, from, &mut message).ok_or(Failed::Malformed { from })
    }

    fn turn(&mut self, core: &mut Core) -> Result<bool, Failed> {
        let mut some = self.sequence(core);
        some |= self.schedule(core);
        while let Some(part) = self.ready.pop_front() {
            some = true;
            self.read(core, part).ok_or(Failed::Malformed { from: core.me })?;
        }
        Ok(some)
    }
}
