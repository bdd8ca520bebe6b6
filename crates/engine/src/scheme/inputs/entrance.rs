//! How blocks come into the window (Record-Replay, section 4.5.1, "replay initialization").
//!
//! A block's records are entered into the version arrays, and the ids of the records that it
//! inserts into the indexes, under their keys: entries are hints, so they may come early. What a
//! record of a block replaces, its `prev`, is the newest version in the arrays, or else what the
//! table knows of: replay has announced that, or a checkpoint held it.
//!
//! Of long blocks whose bytes are known, as those of a load, the keys are not entered here: replay
//! does that faster. Of those that change tables, replay alone can tell what they say. So before
//! the next block that is to be executed enters, replay has passed them. Whether the node shows
//! them by then is another matter, so the versions that they make are entered as all others.

use std::sync::{Arc, OnceLock};

use freshet_base::{Fid, RecordKind, Rid, Stamp};
use freshet_log::{Block, BlockHeader, BlockKind};
use freshet_storage::{Catalog, Guard, KeyBuffer, Known, Participant};
use freshet_txn::{Entry, Inputs};

use super::{
    failure::Why,
    pending::{Closed, Pending, Task, Written},
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

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Fid, Rid, usize, &[u8])> {
        let mut from = 0;
        self.keys.iter().map(move |(fid, rid, index, end)| {
            let key = &self.bytes[from..*end];
            from = *end;
            (*fid, *rid, *index, key)
        })
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

/// Why a block keeps its bytes: it is not executed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kept {
    /// The log holds no inputs of it.
    NoInputs,
    /// It changes tables.
    Definitions,
    /// It holds no records: the place of a transaction that was rolled back, or a mark.
    Mark,
}

impl Kept {
    /// Why this block keeps its bytes; none when it can be executed again.
    pub fn of(block: &Block<'_>) -> Option<Self> {
        match block.header().kind {
            BlockKind::Redo if block.inputs().is_some() && !block.header().continued => None,
            BlockKind::Redo | BlockKind::Inputs => Some(Self::NoInputs),
            BlockKind::Schema => Some(Self::Definitions),
            BlockKind::Skip | BlockKind::Term | BlockKind::Time | BlockKind::Members => Some(Self::Mark),
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoInputs => "no-inputs",
            Self::Definitions => "definitions",
            Self::Mark => "mark",
        }
    }
}

/// How far back transactions may read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Below this the tables are no state of the database.
    pub floor: Stamp,
    /// For how many bytes of log below the window old versions are kept.
    pub slack: u64,
}

impl Reach {
    /// The oldest snapshot that is read at when the window begins at `begin`.
    pub fn oldest(&self, begin: Stamp) -> Stamp {
        Stamp(begin.0.saturating_sub(self.slack)).max(self.floor)
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
    barrier: Stamp,
    keys: Keys,
    key: KeyBuffer,
}

impl Entrance {
    pub fn new(window: &Arc<Window>, catalog: &Arc<Catalog>, participant: Participant, reach: Reach) -> Self {
        let (window, catalog) = (Arc::clone(window), Arc::clone(catalog));
        let (keys, key) = (Keys::default(), KeyBuffer::new());
        Self { window, catalog, participant, reach, cuts: 0, barrier: Stamp::ZERO, keys, key }
    }

    /// The blocks that are entered from now on came when the window had been cut so often.
    pub fn came(&mut self, cuts: u64) {
        self.cuts = cuts;
    }

    /// The window was cut at `at`.
    pub fn cut(&mut self, at: Stamp) {
        self.barrier = self.barrier.min(at);
    }

    /// Enters a block whose bytes are known. Blocks until there is room for it.
    pub fn bytes(&mut self, block: &Block<'_>) -> Result<(), Closed> {
        self.window.wait_room(self.cuts, block.bytes().len() as u64)?;
        let image: Arc<[u8]> = block.bytes().into();
        let header = *block.header();
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        // Behind what changes tables it is not known which keys there are, as long as that is not
        // replayed.
        let knows = header.kind != BlockKind::Schema && self.knows_tables_of(block);
        if !knows || block.bytes().len() > LONG || !self.window.is_replayed(self.barrier) {
            self.barrier = header.end();
        } else {
            let guard = self.participant.pin_without_snapshot();
            for record in block.records().filter(|record| record.header.kind == RecordKind::Insert) {
                let place = (record.header.fid, record.header.rid);
                keys.add_of_row(&self.catalog, &guard, place, record.row, &mut self.key);
            }
        }
        let block = Arc::new(Pending::known(header, Written::of_block(block), image));
        drop(self.announce(&block, &keys, |_, _| {}));
        self.keys = keys;
        self.window.enter(block)
    }

    fn knows_tables_of(&self, block: &Block<'_>) -> bool {
        let guard = self.participant.pin_without_snapshot();
        block.records().all(|record| !matches!(self.catalog.known(&guard, record.header.fid), Known::Unknown))
    }

    /// Enters a block whose transaction is to be executed again: what is known of it beside its
    /// rows. Each of `entries` lacks what it replaces. Blocks until there is room for it.
    pub fn inputs(&mut self, header: BlockHeader, entries: &[Entry], keys: &Keys, inputs: &[u8]) -> Result<(), Closed> {
        self.window.wait_replayed(self.cuts, self.barrier)?;
        self.window.wait_room(self.cuts, header.length.into())?;
        let decoded = Inputs::decode(inputs).map(|inputs| inputs.snapshots);
        let snapshots = decoded.filter(|snapshots| fit(snapshots, header.stamp));
        let hopeless = match snapshots.as_deref() {
            None => Some(Why::Undecodable),
            Some([oldest, ..]) if self.reaches(*oldest, header.stamp) => None,
            Some(_) => Some(Why::OldSnapshot),
        };
        let written = Written::of_entries(entries);
        let snapshots = snapshots.unwrap_or_default();
        let task = Task { entries: OnceLock::new(), snapshots, inputs: inputs.into(), hopeless };
        let block = Arc::new(Pending::promised(header, written, Some(task)));
        let mut entries = entries.to_vec();
        let entering = self.announce(&block, keys, |number, stamp| entries[number].prev = Some(stamp));
        let guard = self.participant.pin_without_snapshot();
        for entry in entries.iter_mut().filter(|entry| entry.prev.is_none()) {
            let content = self.catalog.get(&guard, entry.fid).and_then(|table| table.content(&guard));
            entry.prev =
                content.and_then(|content| content.replayed(entry.rid).max(content.restored(&guard, entry.rid)));
        }
        drop((guard, entering));
        if let Some(task) = block.task() {
            let _ = task.entries.set(entries);
        }
        self.window.enter(block)
    }

    /// Whether the versions that a snapshot sees are there for as long as a block at `stamp` is in
    /// the window: that is never more than the slack below the window's beginning.
    fn reaches(&self, snapshot: Stamp, stamp: Stamp) -> bool {
        snapshot >= self.reach.floor && stamp.since(snapshot) <= self.reach.slack
    }

    /// Enters the records of a block, and the keys of those that it inserts.
    fn announce(&self, block: &Arc<Pending>, keys: &Keys, replaces: impl FnMut(usize, Stamp)) -> Entering<'_> {
        let entering = self.window.entering();
        self.window.announce(block, replaces);
        let guard = self.participant.pin_without_snapshot();
        for (fid, rid, number, key) in keys.iter() {
            let content = self.catalog.get(&guard, fid).and_then(|table| table.content(&guard));
            if let Some(index) = content.and_then(|content| content.indexes(&guard).get(number)) {
                // A key that is too long comes from nowhere: then the block does not come about.
                let _ = index.tree().insert(&guard, key, rid);
            }
        }
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
            entries.push(Entry { fid, rid, kind, length, prev: None });
            if kind == RecordKind::Insert {
                keys.add_of_row(&self.catalog, &guard, (fid, rid), record.row, &mut self.key);
            }
        }
        drop(guard);
        let inputs = block.inputs().unwrap_or_default();
        let entered = waited.and_then(|()| self.inputs(*block.header(), &entries, &keys, inputs));
        self.keys = keys;
        entered
    }
}

/// Whether these can be the snapshots of a transaction with that stamp.
fn fit(snapshots: &[Stamp], stamp: Stamp) -> bool {
    !snapshots.is_empty() && snapshots.is_sorted() && snapshots.iter().all(|snapshot| *snapshot <= stamp)
}
