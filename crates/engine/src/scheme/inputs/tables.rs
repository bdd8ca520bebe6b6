//! What becomes of executed blocks in the tables: their versions, and the way back.
//!
//! A thread that has executed a block has its rows at hand, and has just looked at most of its
//! records. So it makes the versions, as full replay would (`storage`, module `instantiate`), as
//! soon as the checksum has proven them, and replay passes the block over.

use std::sync::Arc;

use freshet_base::{Lsn, RecordKind};
use freshet_log::{PlacedRecord, RecordHeader};
use freshet_replay::{Redo, ReplayError};
use freshet_storage::{Catalog, Content, Guard, Participant};

use super::{pending::Pending, window::Window};

/// How many blocks a thread makes versions of between two looks at what is not read any more.
const LOOK_EVERY: u32 = 16;

/// Puts the versions of blocks into the tables. One thread's.
pub(super) struct Maker {
    catalog: Arc<Catalog>,
    /// That of full replay.
    redo: Box<dyn Redo>,
    until_look: u32,
}

impl Maker {
    pub fn new(catalog: &Arc<Catalog>, redo: Box<dyn Redo>) -> Self {
        Self { catalog: Arc::clone(catalog), redo, until_look: 0 }
    }

    /// Makes the versions of a block that has these bytes.
    pub fn make(&mut self, guard: &Guard<'_>, block: &Pending, image: &[u8]) -> Result<(), ReplayError> {
        if self.until_look == 0 {
            self.redo.begin(guard, &self.catalog);
            self.until_look = LOOK_EVERY;
        }
        self.until_look -= 1;
        for written in block.written() {
            let (fid, rid, at) = (written.fid, written.rid, written.address(block.lsn()));
            // A table that was dropped in the meantime has none.
            let Some(content) = self.catalog.get(guard, fid).and_then(|table| table.content(guard)) else { continue };
            let foreign = ReplayError::Foreign { at, fid, rid };
            let header = image.get(written.header()..).and_then(|bytes| RecordHeader::decode(bytes).ok());
            let (Some(header), Some(row)) = (header, image.get(written.row())) else { return Err(foreign) };
            let indexes = content.indexes(guard);
            // What a record does to no index is not looked at.
            let fits = match written.kind {
                RecordKind::Insert => indexes.may_have(row),
                RecordKind::Update | RecordKind::Delete => indexes.may_have_length(row.len()),
            };
            // Whether it lies over what it replaces was looked at when the block entered.
            if !(fits && self.redo.record(guard, content, &PlacedRecord::of(at, header, row))?) {
                return Err(foreign);
            }
        }
        Ok(())
    }
}

/// Takes versions back.
pub(super) struct Undo {
    catalog: Arc<Catalog>,
    participant: Participant,
}

impl Undo {
    pub fn new(catalog: &Arc<Catalog>, participant: Participant) -> Self {
        Self { catalog: Arc::clone(catalog), participant }
    }

    /// Those of a block. Those of all above it were taken back before, and none is made in the
    /// meantime.
    pub fn take_back(&self, block: &Pending) {
        let guard = self.participant.pin_without_snapshot();
        for written in block.written().iter().rev() {
            if let Some(content) = self.catalog.get(&guard, written.fid).and_then(|table| table.content(&guard)) {
                content.instantiate_cut(&guard, written.rid, written.address(block.lsn()));
            }
        }
    }
}

/// Full replay of what no thread has made before.
pub(super) struct Rest {
    pub full: Box<dyn Redo>,
    pub window: Arc<Window>,
}

impl Redo for Rest {
    fn begin(&mut self, guard: &Guard<'_>, catalog: &Catalog) {
        self.full.begin(guard, catalog);
    }

    fn has(&self, at: Lsn) -> bool {
        self.window.has_made(at)
    }

    fn record(&mut self, guard: &Guard<'_>, content: &Content, record: &PlacedRecord<'_>) -> Result<bool, ReplayError> {
        self.full.record(guard, content, record)
    }

    fn cut(&mut self, guard: &Guard<'_>, content: &Content, header: &RecordHeader, address: Lsn) {
        self.full.cut(guard, content, header, address);
    }
}
