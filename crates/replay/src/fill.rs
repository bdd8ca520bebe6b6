//! Indexes that were added to filled tables: the records that were there before are entered when
//! the log's record of that is replayed.
//!
//! The log says at some LSN that writers enter what they write from there on, and at a later one
//! that readers may use the index. Replay looks at the log's records in no order, so it waits until
//! a range is through, and then goes through the table. A restart reads checkpoint and log a second
//! time instead ([`crate::Restoration::again`]).

use std::ops::{Bound, ControlFlow};

use freshet_base::{Fid, Lsn, Rid};
use freshet_log::{LogReader, RecordHeader, block::RECORD_HEADER};
use freshet_storage::{
    Catalog, Index, KeyBuffer, LoadError, Loaded, Participant, RecordSource, Table,
    index::{Direction, ScanBuffer},
};

use crate::ReplayError;

/// Records per pin, so that memory can be freed in between.
const AT_ONCE: usize = 256;

/// Bytes that are read at once: most records whole.
const GUESS: usize = 512;

/// All of the log as a source of versions.
#[derive(Clone, Debug)]
pub struct Records(pub LogReader);

impl Records {
    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), LoadError> {
        self.0.read(at, into).map_err(|cause| LoadError::Log(cause.to_string()))
    }
}

impl RecordSource for Records {
    fn load(&self, address: Lsn, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Loaded, LoadError> {
        let mut bytes = [0; GUESS];
        // The record may be the log's last: then there are fewer bytes behind it.
        let filled = self.0.filled();
        let have = (filled.since(address) as usize).min(GUESS);
        if have < RECORD_HEADER {
            return Err(LoadError::Mismatch { address });
        }
        self.read(address, &mut bytes[..have])?;
        let header = RecordHeader::decode(&bytes[..have]).map_err(|_| LoadError::Mismatch { address })?;
        let length = header.length as usize;
        let end = address.plus((RECORD_HEADER + length) as u64);
        if header.fid != fid || header.rid != rid || end > filled {
            return Err(LoadError::Mismatch { address });
        }
        let begun = length.min(have - RECORD_HEADER);
        row.extend_from_slice(&bytes[RECORD_HEADER..RECORD_HEADER + begun]);
        if begun < length {
            let from = row.len();
            row.resize(from + length - begun, 0);
            self.read(address.plus((RECORD_HEADER + begun) as u64), &mut row[from..])?;
        }
        Ok(Loaded { kind: header.kind, prev: header.prev })
    }

    fn limit(&self) -> Lsn {
        Lsn::MAX
    }
}

/// Whether an index has yet to be filled.
pub(crate) fn needs(index: &Index) -> bool {
    !index.is_filled() && (!index.is_dropped() || index.was_ready())
}

/// The numbers of a table's indexes that have yet to be filled.
fn unfilled(table: &Table, participant: &Participant) -> Vec<usize> {
    let guard = participant.pin_without_snapshot();
    let Some(content) = table.content(&guard) else { return Vec::new() };
    let indexes = content.indexes(&guard).iter().filter(|(_, index)| needs(index));
    indexes.map(|(number, _)| number).collect()
}

/// A table being gone through in the order of its primary index. Whatever lives has an entry there.
#[derive(Default)]
struct Walk {
    after: Option<Vec<u8>>,
    done: bool,
}

impl Walk {
    /// Takes the next records, at least [`AT_ONCE`] unless there are fewer left. Some may come
    /// twice.
    fn next(&mut self, table: &Table, participant: &Participant, buffer: &mut ScanBuffer, rids: &mut Vec<Rid>) -> bool {
        rids.clear();
        let guard = participant.pin_without_snapshot();
        // Without content it was dropped, and given up.
        if let Some(content) = table.content(&guard).filter(|_| !self.done) {
            let from = self.after.take();
            let range = (from.as_deref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let mut last = Vec::new();
            let primary = content.indexes(&guard).primary().tree();
            let flow = primary.scan(
                &guard,
                range,
                Direction::Forward,
                buffer,
                |_| {},
                |key, rid| {
                    // All records of one key at once.
                    if rids.len() >= AT_ONCE && key != last {
                        return ControlFlow::Break(());
                    }
                    key.clone_into(&mut last);
                    rids.push(rid);
                    ControlFlow::Continue(())
                },
            );
            self.done = flow.is_continue();
            self.after = Some(last);
        }
        !rids.is_empty()
    }
}

/// Enters the records of a table into its indexes `numbers`.
fn fill(
    table: &Table,
    numbers: &[usize],
    participant: &Participant,
    source: &dyn RecordSource,
) -> Result<(), ReplayError> {
    let (mut key, mut buffer, mut rids) = (KeyBuffer::new(), ScanBuffer::default(), Vec::new());
    let mut walk = Walk::default();
    while walk.next(table, participant, &mut buffer, &mut rids) {
        let guard = participant.pin_without_snapshot();
        let Some(content) = table.content(&guard) else { return Ok(()) };
        for rid in &rids {
            for index in numbers.iter().filter_map(|number| content.indexes(&guard).get(*number)) {
                content.fill(&guard, index, *rid, index.added_at(), source, &mut key).map_err(|cause| {
                    let cause = format!("record {} of table {:?}, for an index: {cause}", rid.0, table.name());
                    ReplayError::Read { at: index.added_at(), cause }
                })?;
            }
        }
        drop(guard);
        participant.collect();
    }
    Ok(())
}

fn filled(table: &Table, numbers: &[usize], participant: &Participant) {
    let guard = participant.pin_without_snapshot();
    let Some(content) = table.content(&guard) else { return };
    numbers.iter().filter_map(|number| content.indexes(&guard).get(*number)).for_each(Index::set_filled);
}

/// Live: all indexes that have come with the range that was just replayed.
pub(crate) fn fill_all(
    catalog: &Catalog,
    participant: &Participant,
    source: &dyn RecordSource,
) -> Result<(), ReplayError> {
    for table in catalog.all() {
        let numbers = unfilled(&table, participant);
        if !numbers.is_empty() {
            fill(&table, &numbers, participant, source)?;
            filled(&table, &numbers, participant);
        }
    }
    Ok(())
}
