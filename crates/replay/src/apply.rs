//! What one thread does with its part of a range: it stores each record's address in the replay
//! array, where the larger one wins, and enters insertions into the indexes.
//!
//! The array also says whether an address is the record's first version, so that a reader from
//! before a bulk load need not ask the log about each new record. Replay makes no versions. Readers
//! make them, and only below the read view: above it a take-over may cut the log, and what readers
//! made could not be taken back.

use std::sync::Arc;

use freshet_base::{Fid, RecordKind, Rid, Stamp};
use freshet_log::{Block, BlockKind, LogReader, RecordHeader, RecordRef};
use freshet_storage::{Catalog, Content, Guard, KeyBuffer, Known};

use crate::{
    Redo, ReplayError,
    entries::{Entries, Spare},
};

/// About how many bytes of keys are sorted together. Nodes of indexes that are given up stay that
/// long.
const AT_ONCE: usize = 4 << 20;

/// A record that ended at `tombstone`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Its table.
    pub fid: Fid,
    /// Its id.
    pub rid: Rid,
    /// Where the log says so.
    pub tombstone: Stamp,
}

/// A record whose table was not known yet: the catalog record is in another thread's part.
struct Deferred {
    header: RecordHeader,
    address: Stamp,
    row: Vec<u8>,
}

/// What a thread has found in its part, to be finished when all have.
#[derive(Default)]
pub(crate) struct Found {
    deferred: Vec<Deferred>,
    pub(crate) deleted: Vec<Deleted>,
    /// What transactions carry, and where.
    pub(crate) messages: Vec<(Stamp, Box<[u8]>)>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Found {
    pub(crate) fn merge(&mut self, other: Self) {
        self.deferred.extend(other.deferred);
        self.deleted.extend(other.deleted);
        self.messages.extend(other.messages);
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

/// One thread's means of replay.
pub(crate) struct Applier {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) log: LogReader,
    checkpoint_end: Stamp,
    buffer: Vec<u8>,
    key: KeyBuffer,
    spare: Spare,
    pub(crate) redo: Box<dyn Redo>,
}

impl Applier {
    pub(crate) fn new(catalog: Arc<Catalog>, log: LogReader, checkpoint_end: Stamp, redo: Box<dyn Redo>) -> Self {
        Self { catalog, log, checkpoint_end, buffer: Vec::new(), key: KeyBuffer::new(), spare: Spare::default(), redo }
    }

    /// Replays `parts`, which begin and end at block boundaries, until they have given
    /// [`AT_ONCE`] bytes of keys; returns whether some may be left.
    pub(crate) fn parts<'p>(
        &mut self,
        guard: &Guard<'_>,
        parts: &mut impl Iterator<Item = &'p [Stamp]>,
        found: &mut Found,
    ) -> Result<bool, ReplayError> {
        let mut entries = Entries::new(std::mem::take(&mut self.spare));
        let mut left = false;
        for part in parts {
            self.part(guard, part[0], part[1], &mut entries, found)?;
            left = entries.bytes() >= AT_ONCE;
            if left {
                break;
            }
        }
        self.spare = entries.enter(guard);
        Ok(left)
    }

    /// Replays `[from, to)`, which begins and ends at block boundaries.
    fn part<'g>(
        &mut self,
        guard: &'g Guard<'_>,
        from: Stamp,
        to: Stamp,
        entries: &mut Entries<'g>,
        found: &mut Found,
    ) -> Result<(), ReplayError> {
        self.redo.begin(guard, &self.catalog);
        let length = usize::try_from(to.since(from)).expect("parts are smaller than the address space");
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let result = match self.log.read(from, &mut buffer[..length]) {
            Ok(()) => self.blocks(guard, from, &buffer[..length], entries, found),
            Err(cause) => Err(ReplayError::Read { at: from, cause: cause.to_string() }),
        };
        self.buffer = buffer;
        result
    }

    fn blocks<'g>(
        &mut self,
        guard: &'g Guard<'_>,
        from: Stamp,
        bytes: &[u8],
        entries: &mut Entries<'g>,
        found: &mut Found,
    ) -> Result<(), ReplayError> {
        let mut at = 0;
        while at < bytes.len() {
            let stamp = from.plus(at as u64);
            let block = Block::parse(&bytes[at..], stamp).map_err(|cause| ReplayError::Block { at: stamp, cause })?;
            if block.header().kind == BlockKind::Schema {
                enter_tables(&self.catalog, guard, &block)?;
            }
            if block.header().kind == BlockKind::Inputs {
                self.redo.inputs(&block)?;
            } else {
                block.records().try_for_each(|record| self.record(guard, record, entries, found))?;
            }
            at += block.bytes().len();
        }
        found.bytes += bytes.len() as u64;
        Ok(())
    }

    #[inline]
    fn record<'g>(
        &mut self,
        guard: &'g Guard<'_>,
        record: RecordRef<'_>,
        entries: &mut Entries<'g>,
        found: &mut Found,
    ) -> Result<(), ReplayError> {
        let header = &record.header;
        found.records += 1;
        let content = match self.catalog.known(guard, header.fid) {
            Known::Table(table) => table.content(guard),
            Known::Dropped => None,
            Known::Messages => {
                found.messages.push((record.address, record.row.into()));
                return Ok(());
            }
            Known::Unknown => {
                let RecordRef { address, row, .. } = record;
                found.deferred.push(Deferred { header: *header, address, row: row.to_vec() });
                return Ok(());
            }
        };
        self.known(guard, content, record, entries, found)
    }

    /// A record of a table that is known; without `content` it is gone, and nothing in it is of
    /// interest.
    #[inline]
    fn known<'g>(
        &mut self,
        guard: &'g Guard<'_>,
        content: Option<&Content>,
        record: RecordRef<'_>,
        entries: &mut Entries<'g>,
        found: &mut Found,
    ) -> Result<(), ReplayError> {
        let Some(content) = content else { return Ok(()) };
        let RecordHeader { kind, fid, rid, .. } = record.header;
        if kind == RecordKind::Delete {
            found.deleted.push(Deleted { fid, rid, tombstone: record.address });
        }
        let entering = self.entering(kind, record.address);
        apply(content, guard, &mut self.key, entries, entering, record, &mut *self.redo)
    }

    /// What a record is as far as indexes are concerned.
    fn entering(&self, kind: RecordKind, address: Stamp) -> RecordKind {
        if kind == RecordKind::Update && address < self.checkpoint_end { RecordKind::Insert } else { kind }
    }

    /// What had to wait until every part was through.
    pub(crate) fn finish(&mut self, guard: &Guard<'_>, found: &mut Found) -> Result<(), ReplayError> {
        let mut entries = Entries::new(std::mem::take(&mut self.spare));
        for Deferred { header, address, row } in std::mem::take(&mut found.deferred) {
            let content = match self.catalog.known(guard, header.fid) {
                Known::Table(table) => table.content(guard),
                Known::Dropped | Known::Messages => None,
                Known::Unknown => {
                    return Err(ReplayError::Foreign { at: address, fid: header.fid, rid: header.rid });
                }
            };
            let record = RecordRef { address, header, row: &row };
            self.known(guard, content, record, &mut entries, found)?;
        }
        self.spare = entries.enter(guard);
        Ok(())
    }
}

/// Makes, changes and drops the tables that a block's catalog records say.
pub(crate) fn enter_tables(catalog: &Catalog, guard: &Guard<'_>, block: &Block<'_>) -> Result<(), ReplayError> {
    for record in block.records().filter(|record| record.header.fid == Fid::CATALOG) {
        let RecordRef { header, address: at, row } = record;
        let entered = catalog.replay(guard, header.kind, header.rid, row, at);
        entered.map_err(|cause| ReplayError::Catalog { at, cause })?;
    }
    Ok(())
}

/// `entering` is what the record is as far as indexes are concerned.
#[inline]
fn apply<'g>(
    content: &Content,
    guard: &'g Guard<'_>,
    key: &mut KeyBuffer,
    entries: &mut Entries<'g>,
    entering: RecordKind,
    record: RecordRef<'_>,
    redo: &mut dyn Redo,
) -> Result<(), ReplayError> {
    let RecordRef { address, header, row } = record;
    let rid = header.rid;
    let indexes = content.indexes(guard);
    // The word before the index entries: whoever finds the entry finds the record.
    if !(indexes.may_have(row) && redo.record(guard, content, record)?) {
        return Err(ReplayError::Foreign { at: address, fid: content.fid(), rid });
    }
    if entering == RecordKind::Insert {
        for (_, index) in indexes.iter() {
            if let Some(key) = index.key_of(row, key) {
                entries.push(index, key, rid);
            }
        }
    }
    Ok(())
}
