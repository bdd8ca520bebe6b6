//! What is in a mirror's memory becomes tables, indexes and a checkpoint, by several threads.
//!
//! A mirror has no log below its memory, so it takes no writes before a checkpoint has what was
//! there. One pass over the memory serves both: a thread makes versions of the rows of a chunk, and
//! writes them into files of its own, while they are in its caches. It syncs them while indexes are
//! built. What cannot be written does not end the failover.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use freshet_base::{ClusterId, Fid, Lsn, Rid};
use freshet_mirror::Contents;
use freshet_recovery::{
    CheckpointError, Manifest, Phase,
    checkpoint::{CheckpointTable, TableWriter},
};
use freshet_replay::{Collector, Restoration, Restore};
use freshet_storage::Catalog;
use freshet_txn::Core;

/// What was in a mirror's memory.
#[derive(Default)]
pub(super) struct Restored {
    pub records: u64,
    /// Of indexes.
    pub entries: u64,
    /// How long it took to put the records into the tables, and to build the indexes.
    pub rows: Duration,
    pub indexes: Duration,
    /// What says that the checkpoint counts, if one was wanted: to be installed.
    pub checkpoint: Option<Result<Manifest, CheckpointError>>,
}

/// The checkpoint that is written in passing.
pub(super) struct Writing {
    pub cluster: ClusterId,
    /// Where the log begins that will lie on it.
    pub start: Lsn,
    pub devices: Vec<PathBuf>,
    /// See [`super::CheckpointSettings::files`].
    pub files: u32,
    /// See [`super::CheckpointSettings::sync_bytes`].
    pub sync_bytes: u64,
}

/// What one thread has.
#[derive(Default)]
struct Hand<'w> {
    collector: Collector,
    files: Option<Files<'w>>,
}

/// The files of a checkpoint that one thread writes.
struct Files<'w> {
    writing: &'w Writing,
    thread: usize,
    /// The table that it is at. Its chunks follow one another.
    table: Option<(Fid, TableWriter)>,
    written: Vec<CheckpointTable>,
    /// Why nothing is written any more.
    failure: Option<CheckpointError>,
}

impl<'w> Files<'w> {
    fn new(writing: &'w Writing, thread: usize) -> Self {
        Self { writing, thread, table: None, written: Vec::new(), failure: None }
    }

    fn attempt(&mut self, write: impl FnOnce(&mut Self) -> Result<(), CheckpointError>) {
        if self.failure.is_none() {
            self.failure = write(self).err();
        }
    }

    /// The rows that come now are of this table.
    fn begin(&mut self, fid: Fid) {
        if self.table.as_ref().is_some_and(|(table, _)| *table == fid) {
            return;
        }
        self.end_table();
        self.attempt(|this| {
            let Writing { cluster, start, devices, files, sync_bytes } = this.writing;
            let (device, turn) = (this.thread % devices.len(), (this.thread / devices.len()) as u32);
            let (place, files) = ((device as u32, &*devices[device]), turn * files..(turn + 1) * files);
            this.table = Some((fid, TableWriter::create(place, *cluster, *start, fid, files, *sync_bytes)?));
            Ok(())
        });
    }

    fn push(&mut self, rid: Rid, lsn: Lsn, row: Option<&[u8]>) {
        self.attempt(|this| {
            let Some((_, writer)) = &mut this.table else { return Ok(()) };
            if writer.push(rid, lsn, row) {
                writer.write_block()?;
            }
            Ok(())
        });
    }

    fn end_table(&mut self) {
        self.attempt(|this| {
            let Some((fid, writer)) = this.table.take() else { return Ok(()) };
            let (rows, files) = writer.finish()?;
            this.written.push(CheckpointTable { fid: fid.0, rows, files });
            Ok(())
        });
    }

    fn finish(mut self) -> Result<Vec<CheckpointTable>, CheckpointError> {
        self.end_table();
        self.failure.map_or(Ok(self.written), Err)
    }
}

impl Writing {
    /// The checkpoint of what all threads have written.
    fn manifest(
        &self,
        written: Vec<Result<Vec<CheckpointTable>, CheckpointError>>,
    ) -> Result<Manifest, CheckpointError> {
        // In this order the catalog is first.
        let mut tables = BTreeMap::new();
        for part in written.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            let empty = CheckpointTable { fid: part.fid, rows: 0, files: Vec::new() };
            let table: &mut CheckpointTable = tables.entry(part.fid).or_insert(empty);
            table.rows += part.rows;
            table.files.extend(part.files);
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
        let (start, devices) = (self.start, self.devices.len() as u32);
        Ok(Manifest::new(self.cluster, start, start, time, devices, tables.into_values().collect()))
    }
}

/// Puts all records of a mirror's memory into the tables, and builds their indexes, by this number
/// of threads; writes them into the files of a checkpoint, if one is wanted. `report` hears how far
/// that is. Blocks.
///
/// # Errors
/// What of the memory is damaged, or does not fit into its table.
pub(super) fn restore(
    core: &Core,
    memory: &Contents,
    threads: usize,
    writing: Option<&Writing>,
    report: &(impl Fn(Phase) + Sync),
) -> Result<Restored, String> {
    let (catalog, mut restored) = (&core.catalog, Restored::default());
    let mut restoration = Some(Restoration::new(catalog, &Restore, Lsn::ZERO));
    let mut writing = writing;
    // A second time, if tables have indexes that were added later.
    while let Some(pass) = restoration {
        let writing = writing.take();
        let begun = Instant::now();
        let hand = |thread| Hand { files: writing.map(|writing| Files::new(writing, thread)), ..Hand::default() };
        let mut hands: Vec<_> = (0..threads.max(1)).map(hand).collect();
        // The tables come first.
        let (tables, rows) = chunks(memory);
        let (dropped, done, of) = (Mutex::default(), AtomicU64::new(0), (tables.len() + rows.len()) as u64);
        let each = |hands: &mut [Hand<'_>], chunks: &[usize]| {
            divide(hands, chunks, |hand, chunk| {
                // Relaxed: a counter without data behind it.
                report(Phase::Memory { done: done.fetch_add(1, Ordering::Relaxed), of });
                visit(core, memory, &pass, hand, chunk, &dropped)
            })
        };
        each(&mut hands[..1], &tables)?;
        each(&mut hands, &rows)?;
        restored.records += hands.iter().map(|hand| hand.collector.records).sum::<u64>();
        restored.rows += begun.elapsed();
        let begun = Instant::now();
        let (collectors, files): (Vec<_>, Vec<_>) = hands.into_iter().map(|hand| (hand.collector, hand.files)).unzip();
        let (finished, written) = thread::scope(|scope| {
            let syncing: Vec<_> = files.into_iter().flatten().map(|files| scope.spawn(|| files.finish())).collect();
            let built = |done, of| report(Phase::Indexes { done, of });
            let finished = pass.finish(collectors, threads, &core.participants, &built);
            (finished, syncing.into_iter().map(|thread| thread.join().expect("it does not panic")).collect())
        });
        if let Some(writing) = writing {
            restored.checkpoint = Some(writing.manifest(written));
        }
        restored.entries += finished.entries;
        restored.indexes += begun.elapsed();
        restoration = Restoration::again(catalog, &Restore);
    }
    Ok(restored)
}

/// The chunks of the catalog, and the others: those of a table follow one another.
fn chunks(memory: &Contents) -> (Vec<usize>, Vec<usize>) {
    let named = (0..memory.chunk_count()).filter_map(|chunk| Some((memory.table(chunk)?, chunk)));
    let (tables, mut rows): (Vec<_>, Vec<_>) = named.partition(|(fid, _)| *fid == Fid::CATALOG);
    rows.sort_unstable();
    let numbers = |chunks: Vec<(Fid, usize)>| chunks.into_iter().map(|(_, chunk)| chunk).collect();
    (numbers(tables), numbers(rows))
}

/// Restores the records of one chunk. Tables that were dropped may have left some.
fn visit(
    core: &Core,
    memory: &Contents,
    restoration: &Restoration<'_>,
    Hand { collector, files }: &mut Hand<'_>,
    chunk: usize,
    dropped: &Mutex<HashSet<Fid>>,
) -> Result<(), String> {
    let fid = memory.table(chunk);
    let dropped = || dropped.lock().unwrap_or_else(PoisonError::into_inner);
    if fid.is_some_and(|fid| dropped().contains(&fid)) {
        return Ok(());
    }
    if let (Some(files), Some(fid)) = (&mut *files, fid) {
        files.begin(fid);
    }
    let participant = core.participants.join().map_err(|cause| cause.to_string())?;
    let guard = participant.pin_without_snapshot();
    let mut outcome = Ok(());
    let visited = memory.visit(chunk, |fid, rid, address, row| {
        if fid == Fid::CATALOG && row.is_none() {
            dropped().extend(Catalog::fid_of(rid));
        }
        if outcome.is_ok() {
            outcome = restoration.row(&guard, collector, fid, rid, address, row).map_err(|cause| cause.to_string());
        }
        if let Some(files) = files {
            files.push(rid, address, row);
        }
    });
    visited.map_err(|cause| cause.to_string()).and(outcome)
}

/// One thread for each hand takes chunks until none is left, or one fails.
fn divide<'w>(
    hands: &mut [Hand<'w>],
    chunks: &[usize],
    work: impl Fn(&mut Hand<'w>, usize) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = hands
            .iter_mut()
            .map(|hand| {
                scope.spawn(|| {
                    // Relaxed: a counter without data behind it.
                    while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        work(hand, *chunk)?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}
