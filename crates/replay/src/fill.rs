//! Indexes that were added to filled tables: the records that were there before are entered when the log's record of that is replayed.
//!
//! The log says at some stamp that writers enter what they write from there on, and at a later one that readers may use the index. Replay
//! looks at the log's records in no order, so it waits until a range is through, and then goes through the table.

use std::{
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, PoisonError},
};

use freshet_base::{Fid, Rid, Stamp};
use freshet_log::{RecordHeader, block::RECORD_HEADER};
use freshet_storage::{
    Catalog, Index, KeyBuffer, LoadError, Loaded, Participant, Participants, RecordSource, Table,
    index::{Direction, ScanBuffer},
};

use crate::{LogBytes, ReplayError, Target};

/// Records per pin, so that memory can be freed in between.
const AT_ONCE: usize = 256;

/// The log's bytes as a source of versions.
pub(crate) struct Records<'l>(pub(crate) &'l dyn LogBytes);

impl RecordSource for Records<'_> {
    fn load(&self, address: Stamp, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Loaded, LoadError> {
        let mut head = [0; RECORD_HEADER];
        self.0.read(address, &mut head).map_err(LoadError::Log)?;
        let header = RecordHeader::decode(&head).map_err(|_| LoadError::Mismatch { address })?;
        if header.fid != fid || header.rid != rid || header.length as usize > Table::MAX_ROW {
            return Err(LoadError::Mismatch { address });
        }
        let from = row.len();
        row.resize(from + header.length as usize, 0);
        self.0.read(address.plus(RECORD_HEADER as u64), &mut row[from..]).map_err(LoadError::Log)?;
        Ok(Loaded { kind: header.kind, prev: header.prev })
    }

    fn limit(&self) -> Stamp {
        Stamp::MAX
    }
}

/// The numbers of a table's indexes that this node has yet to fill.
fn unfilled(table: &Table, participant: &Participant, target: Target) -> Vec<usize> {
    let guard = participant.pin_without_snapshot();
    let Some(content) = table.content(&guard) else { return Vec::new() };
    let needs = |index: &Index| match target {
        // What is not ready by now will never be.
        Target::Restore => !index.is_building() && !index.is_dropped(),
        Target::Announce => !index.is_dropped() || index.was_ready(),
    };
    let indexes = content.indexes(&guard).iter().filter(|(_, index)| !index.is_filled() && needs(index));
    indexes.map(|(number, _)| number).collect()
}

/// A table being gone through in the order of its primary index, by several threads. Whatever lives has an entry there.
#[derive(Default)]
struct Walk {
    after: Option<Vec<u8>>,
    done: bool,
}

impl Walk {
    /// Takes the next records, at least [`AT_ONCE`] unless there are fewer left. Some may come twice.
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

/// Enters the records of a table into its indexes `numbers`, until `walk` is through.
fn fill(
    table: &Table,
    numbers: &[usize],
    walk: &Mutex<Walk>,
    participant: &Participant,
    source: &dyn RecordSource,
    target: Target,
) -> Result<(), ReplayError> {
    let (mut key, mut buffer, mut rids) = (KeyBuffer::new(), ScanBuffer::default(), Vec::new());
    while walk.lock().unwrap_or_else(PoisonError::into_inner).next(table, participant, &mut buffer, &mut rids) {
        let guard = participant.pin_without_snapshot();
        let Some(content) = table.content(&guard) else { return Ok(()) };
        for rid in &rids {
            for index in numbers.iter().filter_map(|number| content.indexes(&guard).get(*number)) {
                // After a restart of a primary there are no snapshots but those that see the newest version.
                let since = if target == Target::Restore { Stamp::MAX } else { index.added_at() };
                content.fill(&guard, index, *rid, since, source, &mut key).map_err(|cause| {
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
        let numbers = unfilled(&table, participant, Target::Announce);
        if !numbers.is_empty() {
            fill(&table, &numbers, &Mutex::default(), participant, source, Target::Announce)?;
            filled(&table, &numbers, participant);
        }
    }
    Ok(())
}

/// After a restart, before there are readers or writers: fills the indexes that were added to filled tables since the checkpoint, with
/// `threads` threads. Blocks on the disk.
///
/// # Errors
/// [`ReplayError::Read`] when the log cannot be read.
///
/// # Panics
/// When there are not enough participants' places.
pub fn fill_indexes(
    catalog: &Arc<Catalog>,
    participants: &Arc<Participants>,
    source: &dyn RecordSource,
    target: Target,
    threads: usize,
) -> Result<(), ReplayError> {
    if !catalog.take_unfilled() {
        return Ok(());
    }
    let lead = participants.join().expect("a place for every thread of a restart");
    for table in catalog.all() {
        let numbers = unfilled(&table, &lead, target);
        if numbers.is_empty() {
            continue;
        }
        let (walk, failure) = (Mutex::default(), Mutex::new(None));
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    let participant = participants.join().expect("a place for every thread of a restart");
                    if let Err(error) = fill(&table, &numbers, &walk, &participant, source, target) {
                        *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                });
            }
        });
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        filled(&table, &numbers, &lead);
    }
    Ok(())
}
