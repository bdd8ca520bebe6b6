//! How blocks come into the window (Record-Replay, section 4.5.1, "replay initialization").
//!
//! A block's records are entered into the version arrays, and the ids of the records that it
//! inserts into the indexes, under their keys: entries are hints, so they may come early. What an
//! update or a deletion replaces, its `prev`, is the newest version in the arrays or in the table,
//! whichever is newer: the table has those that were made, or announced, or that a checkpoint held.
//! The deletion that an insertion replaces comes with the block: a checkpoint need not hold it.
//!
//! So it is known before anything is executed whether what a block changes is there, and where its
//! bytes are known, whether it is as it was when the block was made. If not, this node's state is
//! not the one that the log continues: no inputs and no other node's bytes would mend that, and the
//! window is closed.
//!
//! Of long blocks whose bytes are known, as those of a load, the keys are not entered here: replay
//! does that faster. Of those that change tables, replay alone can tell what they say. So replay
//! makes the versions of these, too, and before the next block that is to be executed enters, it
//! has passed them.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use freshet_base::{Fid, Lsn, RecordKind, Rid};
use freshet_cluster::inputs::Reach;
use freshet_log::{Block, BlockHeader, BlockKind, RecordHeader};
use freshet_replay::ReplayError;
use freshet_storage::{Catalog, Guard, KeyBuffer, Known, Participant};
use freshet_txn::{Entry, Inputs};

use super::{
    failure::Why,
    locks::Locking,
    pending::{Closed, Pending, Task, Written},
    reads,
    window::{Entering, Window},
};

/// Of blocks of more than this many bytes, whose bytes are known, no keys are entered.
const LONG: usize = 64 << 10;

/// The keys under which records that a block inserts are found. Memory that is used again.
#[derive(Debug, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    /// Table, record, the number of the index, and where the key ends.
    keys: Vec<(Fid, Rid, usize, usize)>,
}

impl Keys {
    /// None.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
    }

    /// One more: record `rid` of table `fid` has `key` in index number `index`.
    pub fn push(&mut self, fid: Fid, rid: Rid, index: usize, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.keys.push((fid, rid, index, self.bytes.len()));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Some of them.
    pub fn some(&self, numbers: Range<usize>) -> SomeKeys<'_> {
        SomeKeys { keys: self, numbers }
    }

    fn all(&self) -> SomeKeys<'_> {
        self.some(0..self.len())
    }

    fn key(&self, number: usize) -> &[u8] {
        let from = number.checked_sub(1).map_or(0, |before| self.keys[before].3);
        &self.bytes[from..self.keys[number].3]
    }

    /// Adds those of a record that has this row, as the table's definitions say now.
    fn add_of_row(
        &mut self,
        catalog: &Catalog,
        guard: &Guard<'_>,
        (fid, rid): (Fid, Rid),
        row: &[u8],
        key: &mut KeyBuffer,
    ) {
        let Some(content) = catalog.get(guard, fid).and_then(|table| table.content(guard)) else { return };
        for (number, index) in content.indexes(guard).iter() {
            if let Some(key) = index.key_of(row, key) {
                self.push(fid, rid, number, key);
            }
        }
    }
}

/// The keys of one block.
#[derive(Clone, Debug)]
pub struct SomeKeys<'k> {
    keys: &'k Keys,
    numbers: Range<usize>,
}

impl SomeKeys<'_> {
    /// Enters them. Those of lines of an order, say, come one behind the other, and lie so in their
    /// index.
    fn enter(&self, catalog: &Catalog, guard: &Guard<'_>) {
        let Keys { keys, .. } = self.keys;
        let mut from = self.numbers.start;
        for run in keys[self.numbers.clone()].chunk_by(|one, other| (one.0, one.2) == (other.0, other.2)) {
            let (fid, _, index, _) = run[0];
            let numbers = from..from + run.len();
            from = numbers.end;
            let content = catalog.get(guard, fid).and_then(|table| table.content(guard));
            if let Some(index) = content.and_then(|content| content.indexes(guard).get(index)) {
                let pairs = numbers.map(|number| (self.keys.key(number), keys[number].1));
                // A key that is too long comes from nowhere: then the block does not come about.
                let _ = index.tree().insert_run(guard, pairs);
            }
        }
    }
}

/// Why a block keeps its bytes: it is not executed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kept {
    /// The log holds no inputs of it.
    NoInputs,
    /// It changes tables.
    Definitions,
    /// It holds no records: the place of a transaction that was rolled back, or a mark.
    Mark,
    /// It lies before the end of the checkpoint that this begins with, below which there is no
    /// state of the database that it could be executed on.
    BeforeCheckpoint,
}

impl Kept {
    /// Why this block keeps its bytes; none when it can be executed again.
    pub fn of(block: &Block<'_>) -> Option<Self> {
        match block.header().kind {
            BlockKind::Redo if block.inputs().is_some() && !block.header().continued => None,
            BlockKind::Redo | BlockKind::Inputs => Some(Self::NoInputs),
            BlockKind::Schema => Some(Self::Definitions),
            BlockKind::Skip
            | BlockKind::Term
            | BlockKind::Time
            | BlockKind::Members
            | BlockKind::Mark
            | BlockKind::Sums => Some(Self::Mark),
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoInputs => "no-inputs",
            Self::Definitions => "definitions",
            Self::Mark => "mark",
            Self::BeforeCheckpoint => "before-checkpoint",
        }
    }
}

/// Enters blocks into a window. One thread's.
pub(crate) struct Entrance {
    window: Arc<Window>,
    catalog: Arc<Catalog>,
    participant: Participant,
    reach: Reach,
    /// How often the window had been cut when the block came that is being entered: when it is cut
    /// since, the block is not entered.
    cuts: u64,
    /// Everything below is replayed before a block enters that is to be executed.
    barrier: Lsn,
    /// How many blocks of records came with their bytes.
    came_as_bytes: u64,
    keys: Keys,
    key: KeyBuffer,
}

impl Entrance {
    pub fn new(window: &Arc<Window>, catalog: &Arc<Catalog>, participant: Participant, reach: Reach) -> Self {
        let (window, catalog) = (Arc::clone(window), Arc::clone(catalog));
        let (keys, key) = (Keys::default(), KeyBuffer::new());
        Self { window, catalog, participant, reach, cuts: 0, barrier: Lsn::ZERO, came_as_bytes: 0, keys, key }
    }

    /// The blocks that are entered from now on came when the window had been cut so often.
    pub fn came(&mut self, cuts: u64) {
        self.cuts = cuts;
    }

    /// How many blocks of records came with their bytes.
    pub fn came_as_bytes(&self) -> u64 {
        self.came_as_bytes
    }

    /// The window was cut at `at`.
    pub fn cut(&mut self, at: Lsn) {
        self.barrier = self.barrier.min(at);
    }

    /// Enters a block whose bytes are known: `image`. Blocks until there is room for it.
    pub fn bytes(&mut self, block: &Block<'_>, image: Arc<[u8]>) -> Result<(), Closed> {
        self.window.wait_room(self.cuts, image.len() as u64)?;
        let header = *block.header();
        self.came_as_bytes += u64::from(header.kind == BlockKind::Redo);
        // Behind what changes tables it is not known which keys there are, as long as that is not
        // replayed.
        let knows = header.kind != BlockKind::Schema && self.knows_tables_of(block);
        // Below the floor changes enter the indexes as insertions do, which is replay's work.
        if !knows || header.lsn < self.reach.floor || image.len() > LONG || !self.window.is_replayed(self.barrier) {
            self.barrier = header.end();
            return self.window.enter(Arc::new(Pending::replays(header, image)));
        }
        let written = Written::of_block(block);
        if written.is_empty() {
            return self.window.enter(Arc::new(Pending::replays(header, image)));
        }
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let guard = self.participant.pin_without_snapshot();
        for record in block.records().filter(|record| record.header.kind == RecordKind::Insert) {
            let place = (record.header.fid, record.header.rid);
            keys.add_of_row(&self.catalog, &guard, place, record.row, &mut self.key);
        }
        let locking = self.window.has_locks().then(|| Locking::new(Vec::new(), &written));
        let mut there = vec![None; written.len()];
        let pending = Arc::new(Pending::known(header, written, image).taking(locking));
        drop(self.announce(&guard, &pending, &keys.all(), |number, lsn| there[number] = Some(lsn)));
        let rows = block.records().filter(|record| record.header.fid < Fid::INPUTS);
        for (record, there) in rows.zip(there).filter(|(record, _)| record.header.kind != RecordKind::Insert) {
            let RecordHeader { fid, rid, prev, .. } = record.header;
            let there = there.max(self.newest(&guard, fid, rid));
            if there != prev && self.is_kept(&guard, fid) {
                return self.lacks(record.address, (fid, rid), prev, there);
            }
        }
        drop(guard);
        self.keys = keys;
        self.window.enter(pending)
    }

    /// The newest version of a record that is in its table, or was announced there. Beside one that
    /// is to come there may be a newer one: those are made in no order.
    fn newest(&self, guard: &Guard<'_>, fid: Fid, rid: Rid) -> Option<Lsn> {
        let content = self.catalog.get(guard, fid).and_then(|table| table.content(guard))?;
        content.replayed(rid).max(content.restored(guard, rid))
    }

    /// Whether a table has its records: it was not dropped and given up.
    fn is_kept(&self, guard: &Guard<'_>, fid: Fid) -> bool {
        self.catalog.get(guard, fid).is_some_and(|table| table.content(guard).is_some())
    }

    /// What the log changes at `at` is not there as it was then.
    fn lacks(&self, at: Lsn, (fid, rid): (Fid, Rid), prev: Option<Lsn>, there: Option<Lsn>) -> Result<(), Closed> {
        let (prev, there) = (prev.unwrap_or_default(), there.unwrap_or_default());
        self.window.close(Some(ReplayError::Missing { at, fid, rid, prev, there }.to_string()));
        Err(Closed)
    }

    fn knows_tables_of(&self, block: &Block<'_>) -> bool {
        let guard = self.participant.pin_without_snapshot();
        block.records().all(|record| !matches!(self.catalog.known(&guard, record.header.fid), Known::Unknown))
    }

    /// Enters a block whose transaction is to be executed again: what is known of it beside its
    /// rows. Each of `entries` that is no insertion lacks what it replaces. Blocks until there is
    /// room for it.
    pub fn inputs(
        &mut self,
        header: BlockHeader,
        mut entries: Vec<Entry>,
        keys: SomeKeys<'_>,
        inputs: &[u8],
    ) -> Result<(), Closed> {
        self.window.wait_replayed(self.cuts, self.barrier)?;
        self.window.wait_room(self.cuts, header.length.into())?;
        let decoded = Inputs::decode(inputs).map(|inputs| inputs.snapshots);
        let snapshots = decoded.filter(|snapshots| fit(snapshots, header.lsn));
        let hopeless = match snapshots.as_deref() {
            None => Some(Why::Undecodable),
            Some([oldest, ..]) if self.reach.reaches(*oldest, header.lsn) => None,
            Some(_) => Some(Why::OldSnapshot),
        };
        let written = Written::of_entries(&entries);
        let snapshots = snapshots.unwrap_or_default();
        let locking = self.window.has_locks().then(|| Locking::new(read_set(inputs), &written));
        let task = Task { entries: OnceLock::new(), snapshots, inputs: inputs.into(), hopeless };
        let block = Arc::new(Pending::promised(header, written, Some(task)).taking(locking));
        let guard = self.participant.pin_without_snapshot();
        let entering = self.announce(&guard, &block, &keys, |number, lsn| {
            let entry = &mut entries[number];
            entry.prev = if entry.kind == RecordKind::Insert { entry.prev } else { Some(lsn) };
        });
        for (entry, written) in entries.iter_mut().zip(block.written()).filter(|(it, _)| it.kind != RecordKind::Insert)
        {
            entry.prev = entry.prev.max(self.newest(&guard, entry.fid, entry.rid));
            if entry.prev.is_none() && self.is_kept(&guard, entry.fid) {
                return self.lacks(written.address(header.lsn), (entry.fid, entry.rid), None, None);
            }
        }
        drop((guard, entering));
        if let Some(task) = block.task() {
            let _ = task.entries.set(entries);
        }
        self.window.enter(block)
    }

    /// Enters the records of a block, and the keys of those that it inserts.
    fn announce(
        &self,
        guard: &Guard<'_>,
        block: &Arc<Pending>,
        keys: &SomeKeys<'_>,
        replaces: impl FnMut(usize, Lsn),
    ) -> Entering<'_> {
        let entering = self.window.entering();
        self.window.announce(block, replaces);
        keys.enter(&self.catalog, guard);
        entering
    }

    /// As [`Entrance::inputs`], from a block with everything in it: as the inputs form would give
    /// it.
    pub fn stripped(&mut self, block: &Block<'_>) -> Result<(), Closed> {
        let mut keys = std::mem::take(&mut self.keys);
        // Before the definitions are looked at.
        let waited = self.window.wait_replayed(self.cuts, self.barrier);
        keys.clear();
        let mut entries = Vec::with_capacity(usize::from(block.header().record_count));
        let guard = self.participant.pin_without_snapshot();
        for record in block.records().filter(|record| record.header.fid != Fid::INPUTS) {
            let (fid, rid, kind, length) =
                (record.header.fid, record.header.rid, record.header.kind, record.header.length);
            let prev = record.header.prev.filter(|_| kind == RecordKind::Insert);
            entries.push(Entry { fid, rid, kind, length, prev });
            if kind == RecordKind::Insert {
                keys.add_of_row(&self.catalog, &guard, (fid, rid), record.row, &mut self.key);
            }
        }
        drop(guard);
        let inputs = block.inputs().unwrap_or_default();
        let entered = waited.and_then(|()| self.inputs(*block.header(), entries, keys.all(), inputs));
        self.keys = keys;
        entered
    }
}

/// What the transaction with these inputs has read, as far as that was recorded.
fn read_set(inputs: &[u8]) -> Vec<(Fid, Rid)> {
    let inputs = Inputs::decode(inputs);
    inputs.and_then(|inputs| reads::split(inputs.body)).map_or_else(Vec::new, |(reads, _)| reads::decode(reads))
}

/// Whether these can be the snapshots of a transaction with that LSN.
pub(super) fn fit(snapshots: &[Lsn], lsn: Lsn) -> bool {
    !snapshots.is_empty() && snapshots.is_sorted() && snapshots.iter().all(|snapshot| *snapshot <= lsn)
}
