//! H-Store's commands (section 2.2, figure 2): a partition runs one transaction after another, with
//! no locks on rows. Active-active: backups get what a transaction was told, and execute it, too.
//!
//! A transaction that touches only the partition of its client's node runs there at once; its
//! client is told when the backups have executed it. Of one over several partitions that node is
//! the coordinator: it locks the partitions, one after another in their order, so that none waits
//! for each other. A partition that is locked executes its part into a write set, has its backups
//! do the same, and votes. When all have voted, it is committed, and they apply it. Until then they
//! run nothing else. A transaction that only reads has no backups.

use std::{collections::VecDeque, time::Instant};

use crate::{
    Failed,
    clock::Role,
    input::Input,
    node::{Core, Scheme},
    store::{Column, Map, Store},
    wire::Reader,
};

/// Lock the partition for this transaction: its input.
const LOCK: u8 = 1;
/// It is: the id.
const GRANTED: u8 = 2;
/// It and its backups can commit: the id, and what was read.
const VOTED: u8 = 3;
/// It is committed: the id.
const DECIDED: u8 = 4;
/// To a backup: a partition, whether to wait for [`FINISH`] before it is applied, and the input.
const COMMAND: u8 = 5;
/// A backup has executed it: the id, and what was read.
const ACK: u8 = 6;
/// To a backup: apply the transaction of this id in this partition.
const FINISH: u8 = 7;

/// Slot, column, value.
type WriteSet = Vec<(u32, u8, Column)>;

/// What waits for the partition.
enum Work {
    /// A transaction of this partition alone.
    Single(Input, Instant),
    /// A part of one over several.
    Part(Input),
}

/// The transaction for which the partition is locked.
struct Locked {
    id: u64,
    digest: u64,
    writes: WriteSet,
    /// How many backups have not executed it.
    left: usize,
    is_read_only: bool,
}

/// A transaction over several partitions that this node coordinates.
struct Coordinated {
    input: Input,
    begun: Instant,
    partitions: Vec<usize>,
    granted: usize,
    voted: usize,
    digest: u64,
}

/// One that waits for backups.
struct Waiting {
    begun: Instant,
    digest: u64,
    left: usize,
    noted: Option<usize>,
}

/// The scheme.
#[derive(Default)]
pub(crate) struct HStore {
    queue: VecDeque<Work>,
    locked: Option<Locked>,
    coordinated: Map<u64, Coordinated>,
    waiting: Map<u64, Waiting>,
    /// On a backup: what is to be applied, by id and partition.
    prepared: Map<(u64, usize), WriteSet>,
}

/// Executes what a transaction does in a partition: what was read, and what is to be written. None
/// if such a row is not here.
fn execute(store: &Store, input: &Input, partition: usize) -> Option<(u64, WriteSet)> {
    let (mut digest, mut writes) = (0u64, Vec::new());
    for operation in input.within(partition) {
        let slot = store.find(partition, operation.key)?;
        let (read, value) = store.execute(operation, slot, input.seed);
        digest = digest.wrapping_add(read);
        writes.extend(value.map(|value| (slot, operation.column, value)));
    }
    Some((digest, writes))
}

fn apply(store: &Store, partition: usize, writes: &WriteSet) {
    for (slot, column, value) in writes {
        store.set_column(partition, *slot, *column, value);
    }
}

fn put(kind: u8, id: u64, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&id.to_le_bytes());
}

impl HStore {
    /// Sends a command to the backups of this node's partition, and says how many there are.
    fn command(core: &mut Core, input: &Input, waits: bool) -> usize {
        if input.is_read_only() {
            return 0;
        }
        let backups: Vec<usize> = core.backups(core.me).collect();
        let partition = core.me as u16;
        for node in &backups {
            core.send(*node, |out| {
                out.push(COMMAND);
                out.extend_from_slice(&partition.to_le_bytes());
                out.push(u8::from(waits));
                input.put(out);
            });
        }
        backups.len()
    }

    /// A transaction of this partition alone.
    fn run(&mut self, core: &mut Core, input: &Input, begun: Instant) -> Option<()> {
        core.clock.enter(Role::Logic);
        let left = Self::command(core, input, false);
        let (digest, writes) = execute(&core.store, input, core.me)?;
        apply(&core.store, core.me, &writes);
        let noted = core.note(input, digest, None, None);
        if left == 0 {
            core.acknowledge(begun, noted);
        } else {
            self.waiting.insert(input.id, Waiting { begun, digest, left, noted });
        }
        Some(())
    }

    /// The partition is free, and is locked for a transaction over several.
    fn lock(&mut self, core: &mut Core, input: &Input) -> Option<()> {
        core.clock.enter(Role::Logic);
        let left = Self::command(core, input, true);
        let (digest, writes) = execute(&core.store, input, core.me)?;
        let (id, is_read_only) = (input.id, input.is_read_only());
        self.locked = Some(Locked { id, digest, writes, left, is_read_only });
        let coordinator = Input::node_of(id);
        if coordinator == core.me {
            self.granted(core, id)?;
        } else {
            core.send(coordinator, |out| put(GRANTED, id, out));
        }
        if left == 0 { self.vote(core) } else { Some(()) }
    }

    /// All backups have executed the transaction for which the partition is locked.
    fn vote(&mut self, core: &mut Core) -> Option<()> {
        let Locked { id, digest, .. } = *self.locked.as_ref()?;
        let coordinator = Input::node_of(id);
        if coordinator == core.me {
            return self.voted(core, id, digest);
        }
        core.send(coordinator, |out| {
            put(VOTED, id, out);
            out.extend_from_slice(&digest.to_le_bytes());
        });
        Some(())
    }

    /// Begins to coordinate a transaction.
    fn coordinate(&mut self, core: &mut Core, input: Input, begun: Instant) {
        let partitions = input.partitions();
        let id = input.id;
        self.coordinated.insert(id, Coordinated { input, begun, partitions, granted: 0, voted: 0, digest: 0 });
        self.ask(core, id);
    }

    /// Asks for the next partition.
    fn ask(&mut self, core: &mut Core, id: u64) {
        let Some(Coordinated { input, partitions, granted, .. }) = self.coordinated.get(&id) else { return };
        let Some(partition) = partitions.get(*granted) else { return };
        if *partition == core.me {
            self.queue.push_back(Work::Part(input.clone()));
        } else {
            core.send(*partition, |out| {
                out.push(LOCK);
                input.put(out);
            });
        }
    }

    fn granted(&mut self, core: &mut Core, id: u64) -> Option<()> {
        self.coordinated.get_mut(&id)?.granted += 1;
        self.ask(core, id);
        Some(())
    }

    fn voted(&mut self, core: &mut Core, id: u64, digest: u64) -> Option<()> {
        let coordinated = self.coordinated.get_mut(&id)?;
        coordinated.voted += 1;
        coordinated.digest = coordinated.digest.wrapping_add(digest);
        if coordinated.voted < coordinated.partitions.len() {
            return Some(());
        }
        let Coordinated { input, begun, partitions, digest, .. } = self.coordinated.remove(&id)?;
        let noted = core.note(&input, digest, None, None);
        core.acknowledge(begun, noted);
        for partition in partitions {
            if partition == core.me {
                self.decided(core, id)?;
            } else {
                core.send(partition, |out| put(DECIDED, id, out));
            }
        }
        Some(())
    }

    /// The transaction for which the partition is locked is committed.
    fn decided(&mut self, core: &mut Core, id: u64) -> Option<()> {
        core.clock.enter(Role::Logic);
        let Locked { writes, is_read_only, .. } = self.locked.take_if(|locked| locked.id == id)?;
        apply(&core.store, core.me, &writes);
        let backups: Vec<usize> = core.backups(core.me).filter(|_| !is_read_only).collect();
        for node in backups {
            let partition = core.me as u16;
            core.send(node, |out| {
                put(FINISH, id, out);
                out.extend_from_slice(&partition.to_le_bytes());
            });
        }
        Some(())
    }

    /// [`COMMAND`].
    fn again(&mut self, core: &mut Core, from: usize, message: &mut Reader<'_>) -> Option<()> {
        core.clock.enter(Role::Replay);
        let (partition, waits) = (usize::from(message.u16()?), message.u8()? != 0);
        let input = Input::take(message, &core.shape)?;
        let (digest, writes) = execute(&core.store, &input, partition)?;
        if waits {
            self.prepared.insert((input.id, partition), writes);
        } else {
            apply(&core.store, partition, &writes);
        }
        core.send(from, |out| {
            put(ACK, input.id, out);
            out.extend_from_slice(&digest.to_le_bytes());
        });
        Some(())
    }

    /// [`ACK`]; false when the backup has read something else.
    fn acknowledged(&mut self, core: &mut Core, id: u64, digest: u64) -> Option<bool> {
        if let Some(locked) = self.locked.as_mut().filter(|locked| locked.id == id) {
            locked.left = locked.left.checked_sub(1)?;
            if locked.digest != digest {
                return Some(false);
            }
            return if locked.left == 0 { self.vote(core).map(|()| true) } else { Some(true) };
        }
        let waiting = self.waiting.get_mut(&id)?;
        waiting.left -= 1;
        if waiting.digest != digest {
            return Some(false);
        }
        if waiting.left == 0 {
            let Waiting { begun, noted, .. } = self.waiting.remove(&id)?;
            core.acknowledge(begun, noted);
        }
        Some(true)
    }

    fn take(&mut self, core: &mut Core, from: usize, message: &mut Reader<'_>) -> Option<bool> {
        match message.u8()? {
            LOCK => self.queue.push_back(Work::Part(Input::take(message, &core.shape)?)),
            GRANTED => self.granted(core, message.u64()?)?,
            VOTED => self.voted(core, message.u64()?, message.u64()?)?,
            DECIDED => self.decided(core, message.u64()?)?,
            COMMAND => self.again(core, from, message)?,
            ACK => return self.acknowledged(core, message.u64()?, message.u64()?),
            FINISH => {
                core.clock.enter(Role::Replay);
                let (id, partition) = (message.u64()?, usize::from(message.u16()?));
                let writes = self.prepared.remove(&(id, partition))?;
                apply(&core.store, partition, &writes);
            }
            _ => return None,
        }
        Some(true)
    }
}

impl Scheme for HStore {
    fn handle(&mut self, core: &mut Core, from: usize, mut message: Reader<'_>) -> Result<(), Failed> {
        core.clock.enter(Role::Receive);
        match self.take(core, from, &mut message) {
            None => Err(Failed::Malformed { from }),
            Some(false) => Err(Failed::Diverged { node: from }),
            Some(true) => Ok(()),
        }
    }

    fn turn(&mut self, core: &mut Core) -> Result<bool, Failed> {
        let mut some = false;
        while let Some(input) = core.next_input() {
            some = true;
            if input.partitions() == [core.me] {
                self.queue.push_back(Work::Single(input, Instant::now()));
            } else {
                self.coordinate(core, input, Instant::now());
            }
        }
        while self.locked.is_none()
            && let Some(work) = self.queue.pop_front()
        {
            some = true;
            let done = match work {
                Work::Single(input, begun) => self.run(core, &input, begun),
                Work::Part(input) => self.lock(core, &input),
            };
            done.ok_or(Failed::Malformed { from: core.me })?;
        }
        Ok(some)
    }
}
