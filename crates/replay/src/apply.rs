//! What one thread does with its part of a range: it stores each record's address in the replay
//! array, where the larger one wins, and enters insertions into the indexes.
//!
//! The array also says whether an address is the record's first version, so that a reader from
//! before a bulk load need not ask the log about each new record. Replay makes no versions. Readers
//! make them, and only below the read view: above it a failover may cut the log, and what readers
//! made could not be taken back.

use std::sync::Arc;

use freshet_base::{Fid, Lsn, RecordKind, Rid};
use freshet_log::{Block, BlockError, BlockKind, Blocks, LogReader, PlacedRecord, RecordHeader, RecordRef};
use freshet_storage::{Announcement, Catalog, Content, Guard, KeyBuffer, Known, identity::Counting};

use crate::{
    Redo, ReplayError,
    doubt::Doubts,
    entries::{Entries, Spare},
};

/// About how many bytes of keys are sorted together. Nodes of indexes that are given up stay that
/// long.
const AT_ONCE: usize = 4 << 20;
/// This many records are looked at before the first of them is replayed: what that needs comes into
/// the cache in the meantime.
const AHEAD: usize = 32;

/// A record that ended at `tombstone`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// The table's file id.
    pub fid: Fid,
    /// The record's id, which may be used again once nothing can bring the record back.
    pub rid: Rid,
    /// Where the log says so.
    pub tombstone: Lsn,
}

/// A record whose table was not known yet: the catalog record is in another thread's part.
struct Deferred {
    header: RecordHeader,
    address: Lsn,
    row: Vec<u8>,
}

/// What a thread has found in its part, to be finished when all have.
#[derive(Default)]
pub(crate) struct Found {
    deferred: Vec<Deferred>,
    pub(crate) deleted: Vec<Deleted>,
    /// What transactions carry, and where.
    pub(crate) messages: Vec<(Lsn, Box<[u8]>)>,
    pub(crate) doubts: Doubts,
    /// What the log says of the state at marks.
    pub(crate) sums: Vec<Box<[u8]>>,
    /// What was replayed changes of the state's identity.
    pub(crate) counting: Counting,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Found {
    /// Nothing yet, of a range that begins at `from`.
    pub(crate) fn of(from: Lsn) -> Self {
        Self { doubts: Doubts::of(from), counting: Counting { from, ..Counting::default() }, ..Self::default() }
    }

    /// A record may be a deletion.
    #[inline]
    fn note_deleted(&mut self, record: &PlacedRecord<'_>) {
        let RecordHeader { kind, fid, rid, .. } = record.header;
        if kind == RecordKind::Delete {
            self.deleted.push(Deleted { fid, rid, tombstone: record.address });
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.deferred.extend(other.deferred);
        self.deleted.extend(other.deleted);
        self.messages.extend(other.messages);
        self.doubts.merge(other.doubts);
        self.sums.extend(other.sums);
        self.counting.sums.merge(&other.counting.sums);
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

/// One thread's means of replay.
pub(crate) struct Applier {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) log: LogReader,
    checkpoint_end: Lsn,
    /// For what has to be read.
    buffer: Vec<u8>,
    /// For a row, or a whole block.
    row: Vec<u8>,
    key: KeyBuffer,
    spare: Spare,
    pub(crate) redo: Box<dyn Redo>,
    /// What the latter says of itself.
    only_announces: bool,
}

impl Applier {
    pub(crate) fn new(catalog: Arc<Catalog>, log: LogReader, checkpoint_end: Lsn, redo: Box<dyn Redo>) -> Self {
        Self {
            catalog,
            log,
            checkpoint_end,
            buffer: Vec::new(),
            row: Vec::new(),
            key: KeyBuffer::new(),
            spare: Spare::default(),
            only_announces: redo.only_announces(),
            redo,
        }
    }

    /// Replays `parts`, which begin and end at block boundaries, until they have given
    /// [`AT_ONCE`] bytes of keys; returns whether some may be left.
    pub(crate) fn parts<'p>(
        &mut self,
        guard: &Guard<'_>,
        parts: &mut impl Iterator<Item = &'p [Lsn]>,
        found: &mut Found,
    ) -> Result<bool, ReplayError> {
        freshet_base::step!(Replay);
        let mut entries = Entries::new(std::mem::take(&mut self.spare));
        let mut left = false;
        for part in parts {
            let (from, to) = (part[0], part[1]);
            assert!(from < to, "a part without bytes is replayed at {from}");
            self.redo.begin(guard, &self.catalog);
            let (log, mut buffer) = (self.log.clone(), std::mem::take(&mut self.buffer));
            let result = match log.blocks(from, to, &mut buffer) {
                Ok(blocks) => self.blocks(guard, blocks, &mut entries, found),
                Err(cause) => Err(ReplayError::Read { at: from, cause: cause.to_string() }),
            };
            self.buffer = buffer;
            found.bytes += to.since(from);
            result?;
            left = entries.bytes() >= AT_ONCE;
            if left {
                break;
            }
        }
        self.spare = entries.enter(guard);
        Ok(left)
    }

    fn blocks<'g>(
        &mut self,
        guard: &'g Guard<'_>,
        blocks: Blocks<'_>,
        entries: &mut Entries<'g>,
        found: &mut Found,
    ) -> Result<(), ReplayError> {
        freshet_base::step!(Replay);
        let mut coming = Vec::with_capacity(AHEAD);
        for block in blocks {
            let block = block.map_err(invalid)?;
            match block.header().kind {
                BlockKind::Inputs => {
                    self.redo.inputs(&block.whole(&mut self.row).map_err(invalid)?)?;
                    continue;
                }
                BlockKind::Schema => {
                    enter_tables(&self.catalog, guard, &block.whole(&mut self.row).map_err(invalid)?)?;
                }
                BlockKind::Sums => {
                    let block = block.whole(&mut self.row).map_err(invalid)?;
                    found.sums.extend(block.sums().map(Box::from));
                }
                _ => {}
            }
            let has = self.redo.has(block.header().lsn);
            for record in block.records() {
                let record = record.map_err(invalid)?;
                found.records += 1;
                let Some(content) = self.content(guard, &record, found) else { continue };
                if has {
                    found.note_deleted(&record);
                    Self::made_before(guard, content, &record, found)?;
                    continue;
                }
                content.expect_replay(record.header.rid);
                coming.push((content, record));
                if coming.len() == AHEAD {
                    coming
                        .drain(..)
                        .try_for_each(|(content, record)| self.record(guard, content, &record, entries, found))?;
                }
            }
        }
        coming.into_iter().try_for_each(|(content, record)| self.record(guard, content, &record, entries, found))
    }

    /// The table of a record; none when it is gone, and nothing in it is of interest, or when the
    /// record is kept for later.
    #[inline]
    fn content<'g>(
        &mut self,
        guard: &'g Guard<'_>,
        record: &PlacedRecord<'_>,
        found: &mut Found,
    ) -> Option<&'g Content> {
        let PlacedRecord { address, header, .. } = *record;
        match self.catalog.known(guard, header.fid) {
            Known::Table(table) => return table.content(guard),
            // What the transaction did lies beside its inputs.
            Known::Dropped | Known::Inputs => {}
            Known::Messages => found.messages.push((address, record.row(&mut self.row).into())),
            Known::Unknown => {
                found.deferred.push(Deferred { header, address, row: record.row(&mut self.row).to_vec() });
            }
        }
        None
    }

    #[inline]
    fn record<'g>(
        &mut self,
        guard: &'g Guard<'_>,
        content: &Content,
        record: &PlacedRecord<'_>,
        entries: &mut Entries<'g>,
        found: &mut Found,
    ) -> Result<(), ReplayError> {
        let PlacedRecord { address, header: RecordHeader { kind, fid, rid, length, .. }, .. } = *record;
        found.note_deleted(record);
        let enters = self.entering(kind, address) == RecordKind::Insert;
        let row = if enters { record.row(&mut self.row) } else { &[] };
        let indexes = content.indexes(guard);
        // What a record does to no index is not looked at.
        let fits = if enters { indexes.may_have(row) } else { indexes.may_have_length(length as usize) };
        // The word before the index entries: whoever finds the entry finds the record. And before
        // the word what else is done.
        let is_made = fits && (self.only_announces || self.redo.record(guard, content, record)?);
        let announcement = announcement(&record.header, address);
        let announced = || content.replay_counted(guard, rid, announcement, &mut found.counting);
        let there = is_made.then(announced).flatten();
        let Some(there) = there else { return Err(ReplayError::Foreign { at: address, fid, rid }) };
        found.doubts.note(&record.header, address, there, address >= self.checkpoint_end);
        if enters {
            for (_, index) in indexes.iter() {
                if let Some(key) = index.key_of(row, &mut self.key) {
                    entries.push(index, key, rid);
                }
            }
        }
        Ok(())
    }

    /// A record whose version was made before it came. One that is not there after all does not
    /// count as a record that lives.
    fn made_before(
        guard: &Guard<'_>,
        content: &Content,
        record: &PlacedRecord<'_>,
        found: &mut Found,
    ) -> Result<(), ReplayError> {
        let PlacedRecord { address, header, .. } = *record;
        let mut announcement = announcement(&header, address);
        announcement.is_gone |= !content.has_version(guard, header.rid, address);
        let announced = content.replay_counted(guard, header.rid, announcement, &mut found.counting);
        let foreign = ReplayError::Foreign { at: address, fid: header.fid, rid: header.rid };
        found.doubts.saw(&header, announced.ok_or(foreign)?);
        Ok(())
    }

    /// What a record is as far as indexes are concerned.
    fn entering(&self, kind: RecordKind, address: Lsn) -> RecordKind {
        if kind == RecordKind::Update && address < self.checkpoint_end { RecordKind::Insert } else { kind }
    }

    /// What had to wait until every part was through.
    pub(crate) fn finish(&mut self, guard: &Guard<'_>, found: &mut Found) -> Result<(), ReplayError> {
        freshet_base::step!(Replay);
        let mut entries = Entries::new(std::mem::take(&mut self.spare));
        for Deferred { header, address, row } in std::mem::take(&mut found.deferred) {
            let content = match self.catalog.known(guard, header.fid) {
                Known::Table(table) => table.content(guard),
                Known::Dropped | Known::Messages | Known::Inputs => None,
                Known::Unknown => {
                    return Err(ReplayError::Foreign { at: address, fid: header.fid, rid: header.rid });
                }
            };
            if let Some(content) = content {
                self.record(guard, content, &PlacedRecord::of(address, header, &row), &mut entries, found)?;
            }
        }
        self.spare = entries.enter(guard);
        found.doubts.check(guard, &self.catalog)
    }
}

/// What is announced of a record.
#[inline]
pub(crate) fn announcement(header: &RecordHeader, address: Lsn) -> Announcement {
    Announcement { address, is_first: header.is_first(), is_gone: header.kind == RecordKind::Delete }
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

fn invalid((at, cause): (Lsn, BlockError)) -> ReplayError {
    ReplayError::Block { at, cause }
}
