//! Replay before there are readers: at restart.
//!
//! Blocks may come in any order and from any number of threads, since the larger LSN wins (SiloR,
//! section 5.2); a checkpoint's records are older than all of them. Index entries are not inserted
//! but collected ([`crate::runs`]): from every insertion, and, because a checkpoint leaves out what
//! was changed after its start, from a change too when its record has not given any yet. At the end
//! the indexes are built from them.
//!
//! A change has the whole row, so what it changes need not be there. But above the checkpoint's end
//! it is, or the checkpoint is no part of the database that the log continues
//! ([`Restoration::check`]).

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use freshet_base::{Fid, Lsn, RecordKind, Rid};
use freshet_log::{Block, BlockKind, RecordHeader};
use freshet_storage::{
    Catalog, Content, Guard, Index, IndirectionArray, KeyBuffer, Known, Participants, index::BulkPart,
};

use crate::{
    Announce, Deleted, ReplayError,
    apply::{announcement, enter_tables},
    fill::needs,
    runs::{Merged, Run, Stretch, divide},
};

/// Where a restart puts what it finds.
pub trait Target: Sync {
    /// Puts the address of a record with this header where readers find it; the larger one wins.
    /// Returns `false` when its record id is impossible.
    fn store(&self, guard: &Guard<'_>, content: &Content, header: &RecordHeader, address: Lsn) -> bool;

    /// The log says that a record was deleted at `tombstone`. Returns whether that is the last word
    /// on its id: nothing can take the deletion back, and the record needs no index entries.
    fn ends(&self, guard: &Guard<'_>, content: &Content, rid: Rid, tombstone: Lsn) -> bool;
}

/// Log addresses into the data arrays: nothing cuts the log any more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restore;

impl Target for Restore {
    fn store(&self, guard: &Guard<'_>, content: &Content, header: &RecordHeader, address: Lsn) -> bool {
        content.restore(guard, header.rid, address)
    }

    fn ends(&self, guard: &Guard<'_>, content: &Content, rid: Rid, tombstone: Lsn) -> bool {
        let is_newest = content.restored(guard, rid) == Some(tombstone);
        if is_newest {
            content.restored_is_gone(rid, tombstone);
        }
        is_newest
    }
}

/// Log addresses into the replay arrays: the log may yet be cut, and more of it comes from another
/// node.
impl Target for Announce {
    fn store(&self, _: &Guard<'_>, content: &Content, header: &RecordHeader, address: Lsn) -> bool {
        content.replay_store(header.rid, announcement(header, address))
    }

    fn ends(&self, _: &Guard<'_>, _: &Content, _: Rid, _: Lsn) -> bool {
        false
    }
}

/// How full the leaves of a new index are, in percent.
const FILL: u8 = 90;
/// Into how many stretches for each thread an index is divided at most, so that threads end at
/// about the same time.
const STRETCHES: u64 = 4;
/// About how many entries a stretch has at least.
const LEAST_STRETCH: u64 = 16 << 10;

/// What has come of a record, in bits: it has given its index entries;
const INDEXED: u64 = 1;
/// it is in the checkpoint, or was inserted, or changed below the checkpoint's end;
const BEGUN: u64 = 2;
/// it was changed or deleted above that.
const CHANGED: u64 = 4;
/// How many bits a record takes.
const BITS: u64 = 4;

/// A restart under way, shared by its threads.
pub struct Restoration<'t> {
    catalog: Arc<Catalog>,
    target: &'t dyn Target,
    /// The end of the checkpoint: the log must be there up to it.
    floor: Lsn,
    /// Whether everything comes a second time, for indexes that were added since the checkpoint.
    again: bool,
    /// By table: what has come of each record.
    came: RwLock<HashMap<Fid, Arc<IndirectionArray>>>,
}

/// What one thread of a restart has collected.
#[derive(Debug, Default)]
pub struct Collector {
    runs: HashMap<Fid, Vec<Run>>,
    deleted: Vec<Deleted>,
    key: KeyBuffer,
    /// Of the table that was dealt with last: what has come of its records.
    came: Option<(Fid, Arc<IndirectionArray>)>,
    /// How many records this thread has looked at.
    pub records: u64,
}

/// What [`Restoration::finish`] has found.
#[derive(Debug)]
pub struct Finished {
    /// The records that the log says were deleted, for a standby to clear away when no failover
    /// can bring them back.
    pub deleted: Vec<Deleted>,
    /// How many entries the indexes got, with those of records that are deleted.
    pub entries: u64,
}

impl<'t> Restoration<'t> {
    /// A restart into `catalog`, which nobody else uses yet, from a checkpoint that ends at
    /// `floor`, if there is one, and the log.
    pub fn new(catalog: &Arc<Catalog>, target: &'t dyn Target, floor: Lsn) -> Self {
        Self { catalog: Arc::clone(catalog), target, floor, again: false, came: RwLock::default() }
    }

    /// The same restart, when everything is restored, if indexes were added to tables since the
    /// checkpoint: which those are is known only now. Checkpoint and log have to come once more;
    /// their entries are all that is taken from them.
    pub fn again(catalog: &Arc<Catalog>, target: &'t dyn Target) -> Option<Self> {
        let needed = catalog.take_unfilled();
        needed.then(|| Self { again: true, ..Self::new(catalog, target, Lsn::ZERO) })
    }

    /// The tables so far.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Notes what has come of a record; returns whether it gives its index entries by that, and has
    /// not before.
    fn note(&self, collector: &mut Collector, fid: Fid, rid: Rid, came: u64) -> bool {
        let all = match &collector.came {
            Some((last, all)) if *last == fid => all,
            _ => &collector.came.insert((fid, self.came(fid))).1,
        };
        let (place, shift) = (Rid(rid.0 / (64 / BITS)), rid.0 % (64 / BITS) * BITS);
        let Some(word) = all.get_or_grow(place) else { return false };
        let came = came << shift;
        // Relaxed: who is first does not matter, only that one is; nothing else is published.
        let mut before = word.load(Ordering::Relaxed);
        if before & came != came {
            before = word.fetch_or(came, Ordering::Relaxed);
        }
        came & !before & INDEXED << shift != 0
    }

    fn came(&self, fid: Fid) -> Arc<IndirectionArray> {
        if let Some(all) = self.came.read().unwrap_or_else(PoisonError::into_inner).get(&fid) {
            return Arc::clone(all);
        }
        let mut came = self.came.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(came.entry(fid).or_default())
    }

    /// Everything has come, once: whether each record that was changed above the checkpoint's end
    /// is there from before.
    ///
    /// # Errors
    /// [`ReplayError::Missing`] for one that is not.
    pub fn check(&self, guard: &Guard<'_>) -> Result<(), ReplayError> {
        for (fid, all) in self.came.read().unwrap_or_else(PoisonError::into_inner).iter() {
            // What has become of a table that was dropped does not matter.
            let table = self.catalog.get(guard, *fid).filter(|table| table.dropped_at().is_none());
            let Some(content) = table.and_then(|table| table.content(guard)) else { continue };
            let mut missing = None;
            all.for_each(|place, word| {
                // Relaxed: those who have noted something have ended.
                let word = word.load(Ordering::Relaxed);
                let mut nibbles = (0..64 / BITS).map(|number| word >> (number * BITS));
                if word != 0
                    && let Some(number) = nibbles.position(|came| came & (BEGUN | CHANGED) == CHANGED)
                {
                    missing.get_or_insert(Rid(place.0 * (64 / BITS) + number as u64));
                }
            });
            if let Some(rid) = missing {
                let at = content.replayed(rid).max(content.restored(guard, rid)).unwrap_or_default();
                let (prev, there) = (Lsn::ZERO, Lsn::ZERO);
                return Err(ReplayError::Missing { at, fid: *fid, rid, prev, there });
            }
        }
        Ok(())
    }

    /// Whether a version, which comes a second time, is entered into the indexes that were added
    /// since the checkpoint: the newest, and whatever came after the index did.
    fn gives_again(guard: &Guard<'_>, content: &Content, rid: Rid, at: Lsn, is_deletion: bool) -> bool {
        let added = |(_, index): (usize, &Index)| needs(index) && at >= index.added_at();
        let newest = content.replayed(rid).max(content.restored(guard, rid));
        !is_deletion && newest == Some(at) || content.indexes(guard).iter().any(added)
    }

    fn collect(&self, guard: &Guard<'_>, content: &Content, collector: &mut Collector, rid: Rid, row: &[u8]) {
        let runs = collector.runs.entry(content.fid()).or_default();
        for (number, index) in content.indexes(guard).iter() {
            if if self.again { !needs(index) } else { !index.is_filled() } {
                continue;
            }
            if runs.len() <= number {
                runs.resize_with(number + 1, Run::default);
            }
            if let Some(key) = index.key_of(row, &mut collector.key) {
                runs[number].push(key, rid);
            }
        }
    }

    /// Replays one block. Returns `false` when it has a record of a table that is not known yet:
    /// then it has to come again, after more of the log.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn block(&self, guard: &Guard<'_>, collector: &mut Collector, block: &Block<'_>) -> Result<bool, ReplayError> {
        if block.header().kind == BlockKind::Schema && !self.again {
            enter_tables(&self.catalog, guard, block)?;
        }
        if block.header().kind == BlockKind::Inputs {
            return Err(ReplayError::Inputs { at: block.lsn() });
        }
        for record in block.records() {
            let header = &record.header;
            let (fid, rid, address) = (header.fid, header.rid, record.address);
            let content = match self.catalog.known(guard, fid) {
                Known::Table(table) => table.content(guard),
                // Who listened has gone with the process of before, and what the transaction did
                // lies beside its inputs.
                Known::Dropped | Known::Messages | Known::Inputs => None,
                Known::Unknown => return Ok(false),
            };
            let Some(content) = content else { continue };
            if self.again {
                if Self::gives_again(guard, content, rid, address, header.kind == RecordKind::Delete) {
                    self.collect(guard, content, collector, rid, record.row);
                }
                continue;
            }
            if !(content.indexes(guard).may_have(record.row) && self.target.store(guard, content, header, address)) {
                return Err(ReplayError::Foreign { at: address, fid, rid });
            }
            collector.records += 1;
            let was = if address < self.floor { BEGUN } else { CHANGED };
            let gives = match header.kind {
                // A record id may be used again: each record that had it has an insertion of its
                // own.
                RecordKind::Insert => {
                    self.note(collector, fid, rid, INDEXED | BEGUN);
                    true
                }
                RecordKind::Update => self.note(collector, fid, rid, INDEXED | was),
                RecordKind::Delete => {
                    collector.deleted.push(Deleted { fid, rid, tombstone: address });
                    self.note(collector, fid, rid, was)
                }
            };
            if gives {
                self.collect(guard, content, collector, rid, record.row);
            }
        }
        Ok(true)
    }

    /// Restores one record of a checkpoint, or without a row that it is gone. Those of the catalog
    /// come before all others.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn row(
        &self,
        guard: &Guard<'_>,
        collector: &mut Collector,
        fid: Fid,
        rid: Rid,
        lsn: Lsn,
        row: Option<&[u8]>,
    ) -> Result<(), ReplayError> {
        let foreign = ReplayError::Foreign { at: lsn, fid, rid };
        if self.again {
            // Of a table that was dropped since, there may be nothing.
            let content = self.catalog.get(guard, fid).and_then(|table| table.content(guard));
            if let (Some(content), Some(row)) = (content, row)
                && Self::gives_again(guard, content, rid, lsn, false)
            {
                self.collect(guard, content, collector, rid, row);
            }
            return Ok(());
        }
        if fid == Fid::CATALOG
            && let Some(row) = row
        {
            let entered = self.catalog.enter_row(guard, rid, row, lsn);
            entered.map_err(|cause| ReplayError::Catalog { at: lsn, cause })?;
        }
        // A checkpoint describes every table that it has records of, also one that the log is going
        // to drop.
        let content = self.catalog.get(guard, fid).and_then(|table| table.content(guard));
        let Some(content) = content else { return Err(foreign) };
        let Some(row) = row else {
            return if content.restore_gone(guard, rid, lsn) { Ok(()) } else { Err(foreign) };
        };
        if !content.restore_version(guard, rid, lsn, row) {
            return Err(foreign);
        }
        collector.records += 1;
        if self.note(collector, fid, rid, INDEXED | BEGUN) {
            self.collect(guard, content, collector, rid, row);
        }
        Ok(())
    }

    /// Builds the indexes with `threads` threads from what all have collected; `progress` hears of
    /// entries done, and in all. Blocks until they are built.
    pub fn finish(
        self,
        collectors: Vec<Collector>,
        threads: usize,
        participants: &Arc<Participants>,
        progress: &(impl Fn(u64, u64) + Sync),
    ) -> Finished {
        let mut indexes: HashMap<(Fid, usize), Vec<Run>> = HashMap::new();
        let mut deleted = Vec::new();
        let participant = participants.join().expect("a place for every thread of a restart");
        let there = |fid| self.catalog.get(&participant.pin_without_snapshot(), fid).is_some();
        for collector in collectors {
            deleted.extend(collector.deleted);
            for (fid, runs) in collector.runs.into_iter().filter(|(fid, _)| there(*fid)) {
                for (index, run) in runs.into_iter().enumerate().filter(|(_, run)| run.len() > 0) {
                    indexes.entry((fid, index)).or_default().push(run);
                }
            }
        }
        drop(participant);
        let dead = self.dead(&deleted, participants);
        let entries = |runs: &[Run]| runs.iter().map(|run| run.len() as u64).sum::<u64>();
        let mut work: Vec<((Fid, usize), Vec<Run>)> = indexes.into_iter().collect();
        // The largest first, so that the threads end at about the same time.
        work.sort_by_key(|(_, runs)| std::cmp::Reverse(entries(runs)));
        let of = work.iter().map(|(_, runs)| entries(runs)).sum();
        let done = AtomicU64::new(0);
        progress(0, of);
        // All runs are sorted first, one by one, so that all threads have their share of the
        // largest index too.
        let runs: Vec<Mutex<&mut Run>> = work.iter_mut().flat_map(|(_, runs)| runs).map(Mutex::new).collect();
        share_out(threads, runs.len(), |item| {
            runs[item].lock().unwrap_or_else(PoisonError::into_inner).sort();
        });
        drop(runs);
        let shares: Vec<(usize, Stretch<'_>)> = work
            .iter()
            .enumerate()
            .flat_map(|(item, (_, runs))| {
                let most = (entries(runs) / LEAST_STRETCH).clamp(1, threads.max(1) as u64 * STRETCHES);
                divide(runs, most as usize).into_iter().map(move |stretch| (item, stretch))
            })
            .collect();
        let parts: Vec<Mutex<Option<BulkPart>>> = shares.iter().map(|_| Mutex::default()).collect();
        let none = HashSet::new();
        share_out(threads, shares.len(), |share| {
            let (item, stretch) = shares[share];
            let ((fid, _), runs) = &work[item];
            let dead = dead.get(fid).unwrap_or(&none);
            let merged = Merged::new(runs, stretch);
            let entries = merged.left() as u64;
            let part = BulkPart::new(merged.filter(|(_, rid)| !dead.contains(rid)), FILL);
            let part = part.expect("merged runs ascend, and their keys were in an index before");
            *parts[share].lock().unwrap_or_else(PoisonError::into_inner) = Some(part);
            progress(done.fetch_add(entries, Ordering::Relaxed) + entries, of);
        });
        share_out(threads, work.len(), |item| {
            let ((fid, index), _) = &work[item];
            let its = shares.iter().zip(&parts).filter(|((of, _), _)| *of == item);
            let its = its.filter_map(|(_, part)| part.lock().unwrap_or_else(PoisonError::into_inner).take()).collect();
            let participant = participants.join().expect("a place for every thread of a restart");
            let guard = participant.pin_without_snapshot();
            let content = self.catalog.get(&guard, *fid).and_then(|table| table.content(&guard));
            // Not of a table that the log has said was dropped in the meantime.
            if let Some(index) = content.and_then(|content| content.indexes(&guard).get(*index)) {
                let loaded = index.tree().bulk_load(&guard, its, FILL);
                loaded.expect("the index was empty, and stretches ascend");
            }
        });
        if self.again {
            let participant = participants.join().expect("a place for every thread of a restart");
            for table in self.catalog.all() {
                let guard = participant.pin_without_snapshot();
                let indexes = table.content(&guard).into_iter().flat_map(|content| content.indexes(&guard).iter());
                indexes.filter(|(_, index)| needs(index)).for_each(|(_, index)| index.set_filled());
            }
        }
        Finished { deleted, entries: of }
    }

    /// Records whose newest version is a deletion that nothing can take back. Their ids are free.
    fn dead(&self, deleted: &[Deleted], participants: &Arc<Participants>) -> HashMap<Fid, HashSet<Rid>> {
        let mut dead: HashMap<Fid, HashSet<Rid>> = HashMap::new();
        let participant = participants.join().expect("a place for every thread of a restart");
        let guard = participant.pin_without_snapshot();
        for Deleted { fid, rid, tombstone } in deleted {
            let Some(content) = self.catalog.get(&guard, *fid).and_then(|table| table.content(&guard)) else {
                continue;
            };
            if self.target.ends(&guard, content, *rid, *tombstone) {
                dead.entry(*fid).or_default().insert(*rid);
            }
        }
        dead
    }
}

/// `threads` threads take the items `0..count` one after another.
fn share_out(threads: usize, count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1).min(count) {
            scope.spawn(|| {
                loop {
                    let item = next.fetch_add(1, Ordering::Relaxed);
                    if item >= count {
                        break;
                    }
                    work(item);
                }
            });
        }
    });
}
