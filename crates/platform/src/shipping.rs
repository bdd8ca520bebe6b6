//! Log shipping, active-passive (section 2.1): the write set goes as a record of the log to the
//! other nodes that have copies, whose threads write it down, replay it in full and say so.
//!
//! Of a transaction over several partitions the record also goes to the nodes that have their first
//! copies, which makes it the first phase of two-phase commit: these do not apply it before they
//! hear of the end.

use crate::{
    clock::Role,
    locking::{ACK, Change, LOG, Open},
    node::Core,
    store::{COLUMN, Column, Map},
    wire::Reader,
};

/// Bytes of the log in memory that each node keeps.
const KEPT: usize = 1 << 20;

/// A change as a record has it: partition, key, column, value.
type Applied = (u16, u32, u8, Column);

/// What a node knows of log shipping.
pub(crate) struct Shipping {
    /// What was written down, round and round: for the paper's memory that is not volatile.
    log: Vec<u8>,
    at: usize,
    /// Transactions that wait for acknowledgements, and for how many.
    open: Map<u64, (Open, usize)>,
    /// What is to be applied when a transaction of another node ends.
    prepared: Map<u64, Vec<Applied>>,
}

impl Shipping {
    pub fn new() -> Self {
        Self { log: vec![0; KEPT], at: 0, open: Map::default(), prepared: Map::default() }
    }

    fn write_down(&mut self, record: &[u8]) {
        let record = &record[..record.len().min(KEPT)];
        if self.at + record.len() > KEPT {
            self.at = 0;
        }
        self.log[self.at..self.at + record.len()].copy_from_slice(record);
        self.at += record.len();
    }

    /// Sends the record. Returns the transaction if no other node has to have it.
    pub fn replicate(&mut self, core: &mut Core, open: Open) -> Option<Open> {
        core.clock.enter(Role::Build);
        let mut nodes: Vec<usize> =
            open.changes.iter().flat_map(|change| core.hosts(change.partition.into())).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|node| *node != core.me);
        let everything: Vec<_> = open.changes.iter().collect();
        let mut record = Vec::new();
        put_record(open.input.id, &everything, &mut record);
        self.write_down(&record);
        for node in &nodes {
            let here = |it: &&Change| core.shape.copy_at(it.partition.into(), *node).is_some();
            let changes: Vec<_> = open.changes.iter().filter(here).collect();
            core.send(*node, |out| put_record(open.input.id, &changes, out));
        }
        if nodes.is_empty() {
            apply_own(core, &open);
            return Some(open);
        }
        self.open.insert(open.input.id, (open, nodes.len()));
        None
    }

    /// [`ACK`]: returns the transaction if this was the last.
    pub fn acknowledged(&mut self, core: &mut Core, id: u64) -> Option<Open> {
        let (open, left) = self.open.get_mut(&id)?;
        *left -= 1;
        if *left > 0 {
            return None;
        }
        core.clock.enter(Role::Logic);
        apply_own(core, open);
        self.open.remove(&id).map(|(open, _)| open)
    }

    /// [`LOG`]: writes a record down, replays it, and says so. None if it is impossible.
    pub fn replay(&mut self, core: &mut Core, from: usize, record: &[u8]) -> Option<()> {
        core.clock.enter(Role::Replay);
        self.write_down(record);
        let mut reader = Reader(record.get(1..)?);
        let (id, count) = (reader.u64()?, reader.u8()?);
        let mut prepared = Vec::new();
        for _ in 0..count {
            let (partition, key, column) = (reader.u16()?, reader.u32()?, reader.u8()?);
            let applied = (partition, key, column, reader.array::<COLUMN>()?);
            if core.primary(partition.into()) == core.me {
                prepared.push(applied);
            } else {
                apply(core, &applied)?;
            }
        }
        if !prepared.is_empty() {
            self.prepared.insert(id, prepared);
        }
        core.send(from, |out| {
            out.push(ACK);
            out.extend_from_slice(&id.to_le_bytes());
        });
        Some(())
    }

    /// A transaction of another node has ended.
    pub fn ended(&mut self, core: &mut Core, id: u64) {
        for applied in self.prepared.remove(&id).unwrap_or_default() {
            // A row that is not here is none that this node has locked for it.
            let _ = apply(core, &applied);
        }
    }
}

fn put_record(id: u64, changes: &[&Change], out: &mut Vec<u8>) {
    out.push(LOG);
    out.extend_from_slice(&id.to_le_bytes());
    out.push(changes.len() as u8);
    for change in changes {
        out.extend_from_slice(&change.partition.to_le_bytes());
        out.extend_from_slice(&change.key.to_le_bytes());
        out.push(change.column);
        out.extend_from_slice(&change.new);
    }
}

/// Looks a row up, and changes it; none if it is not here.
fn apply(core: &Core, (partition, key, column, value): &Applied) -> Option<()> {
    let partition = usize::from(*partition);
    let slot = core.store.find(partition, *key)?;
    if usize::from(*column) >= crate::store::COLUMNS {
        return None;
    }
    core.store.set_column(partition, slot, *column, value);
    Some(())
}

/// Changes the copies of the coordinator's node.
fn apply_own(core: &Core, open: &Open) {
    for change in &open.changes {
        if core.shape.copy_at(change.partition.into(), core.me).is_some() {
            core.store.set_column(change.partition.into(), change.slot, change.column, &change.new);
        }
    }
}
