//! The phases of a restart.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use freshet_base::{Fid, Lsn, Rid};
use freshet_log::{KEEP_ASIDE, LogStore, Piece, StoreError, Tail, TailError, tail::damage};
use freshet_replay::{Collector, Deleted, Finished, ReplayError, Restoration, Target};
use freshet_storage::{Catalog, Known, Participants};
use serde::Serialize;
use thiserror::Error;

use crate::checkpoint::{CheckpointError, CheckpointFile, Manifest, RowsReader};

/// How far a restart has come, or the failover of a mirror. Numbers are bytes done and bytes in
/// all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Looking for the end of the log.
    Tail,
    /// Reading the checkpoint.
    Checkpoint {
        /// Bytes read.
        done: u64,
        /// Bytes to read.
        of: u64,
    },
    /// Putting rows of a mirror's memory into tables, and into a checkpoint; the numbers are
    /// chunks.
    Memory {
        /// Chunks read.
        done: u64,
        /// Chunks that have rows.
        of: u64,
    },
    /// Writing the checkpoint that could not be written with the rows.
    FirstCheckpoint,
    /// Waiting, with another node's checkpoint, for the log up to its end: before that it is no
    /// state of the database.
    CheckpointLog {
        /// Bytes that have come, of the log from the checkpoint's beginning.
        done: u64,
        /// Bytes to come.
        of: u64,
    },
    /// Replaying the log.
    Log {
        /// Bytes replayed.
        done: u64,
        /// Bytes to replay.
        of: u64,
    },
    /// Building indexes; the numbers are entries.
    Indexes {
        /// Entries of finished indexes.
        done: u64,
        /// Entries of all.
        of: u64,
    },
    /// A primary of before waits for others to answer, which might have gone on without it.
    Peers {
        /// How many nodes have answered, itself included.
        answered: u32,
        /// How many nodes have to answer; 0 before that is known.
        needed: u32,
    },
    /// Nothing is left to do.
    Ready,
}

/// A phase, in words and numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseStatus {
    /// The phase's name, as `freshet status` shows it.
    pub phase: &'static str,
    /// The unit of the two numbers: bytes, chunks, entries or nodes.
    pub unit: &'static str,
    /// How much of the phase is done.
    pub done: u64,
    /// How much there is to do; 0 where that is not known.
    pub of: u64,
}

impl Phase {
    /// In words and numbers.
    pub fn status(self) -> PhaseStatus {
        let (phase, unit, done, of) = match self {
            Self::Tail => ("looking for the end of the log", "bytes", 0, 0),
            Self::Checkpoint { done, of } => ("reading the checkpoint", "bytes", done, of),
            Self::Memory { done, of } => ("making tables and a checkpoint of the rows", "chunks", done, of),
            Self::FirstCheckpoint => ("writing the first checkpoint", "bytes", 0, 0),
            Self::CheckpointLog { done, of } => ("waiting for the log up to the checkpoint's end", "bytes", done, of),
            Self::Log { done, of } => ("replaying the log", "bytes", done, of),
            Self::Indexes { done, of } => ("building the indexes", "entries", done, of),
            Self::Peers { answered, needed } => {
                ("waiting for other nodes to answer", "nodes", u64::from(answered), u64::from(needed))
            }
            Self::Ready => ("ready", "bytes", 0, 0),
        };
        PhaseStatus { phase, unit, done, of }
    }
}

/// Why a node could not come back. Nothing was changed, but for a torn tail that was cut off.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// The end of the log could not be found.
    #[error(transparent)]
    Tail(#[from] TailError),
    /// The torn tail could not be cut off, or the log could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part of the log could not be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// No checkpoint can be used, and the log does not reach back to the beginning.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A checkpoint needs a part of the log that is not there.
    #[error(
        "the checkpoint {file} needs the log from {start} to {end}, there is {have}: bring the log's files back; if \
         they are lost, {KEEP_ASIDE}",
        file = .file.display()
    )]
    LogMissing {
        /// The checkpoint's manifest.
        file: PathBuf,
        /// Where the log would have to begin.
        start: Lsn,
        /// How far it would have to reach.
        end: Lsn,
        /// What there is of the log instead.
        have: String,
    },
}

/// Finds the end of the log in `store` and cuts off what a crash tore.
///
/// # Errors
/// See [`RestoreError`].
pub fn settle_tail(store: &LogStore) -> Result<Tail, RestoreError> {
    check_extent(store)?;
    Ok(store.settle()?)
}

/// The same for a log whose newest part may be in a buffer in persistent memory
/// ([`LogStore::settle_before_buffer`]).
///
/// # Errors
/// See [`RestoreError`].
pub fn settle_tail_before_buffer(store: &LogStore) -> Result<Tail, RestoreError> {
    check_extent(store)?;
    Ok(store.settle_before_buffer()?)
}

fn check_extent(store: &LogStore) -> Result<(), RestoreError> {
    let watermark = store.watermark();
    // Without any segment it may be the beginning of a log: a crash came after its watermark was
    // made. If it is not, replay finds out what is missing.
    if store.streams() == 1
        && let Some((_, end)) = store.extent()
        && end < watermark
    {
        let what = format!("the segments from {end} on are missing; the log was durable up to {watermark}");
        return Err(damage(store, end, what).into());
    }
    Ok(())
}

/// What a restart works on.
pub struct Restart<'r> {
    /// The log, whose tail is settled.
    pub store: &'r LogStore,
    /// Where it ends.
    pub end: Lsn,
    /// Where manifests of checkpoints are; none for a node without a directory.
    pub directory: Option<&'r Path>,
    /// Where the checkpoints' rows are, one path for each device.
    pub devices: &'r [PathBuf],
    /// How many threads work.
    pub threads: usize,
    /// Places for the threads.
    pub participants: &'r Arc<Participants>,
    /// Where to put what the log says.
    pub target: &'r dyn Target,
    /// The log ends where the checkpoint begins, and what follows comes by another way. Else it has
    /// to be there up to the checkpoint's end: without it there is no state of the database.
    pub checkpoint_alone: bool,
}

/// What a restart has brought back.
#[derive(Debug)]
pub struct Restored {
    /// The tables.
    pub catalog: Arc<Catalog>,
    /// For a standby: records that the log says were deleted.
    pub deleted: Vec<Deleted>,
    /// The checkpoint that was used.
    pub checkpoint: Option<Manifest>,
    /// Why the newest checkpoint was passed over, if it was.
    pub passed_over: Option<String>,
    /// Time and bytes of the phases checkpoint and log, and time and entries of the phase indexes.
    pub phases: [(Duration, u64); 3],
}

/// Counts, and tells now and then.
struct Progress<'p> {
    done: AtomicU64,
    of: u64,
    reported: AtomicU64,
    report: &'p (dyn Fn(u64, u64) + Sync),
}

impl<'p> Progress<'p> {
    fn new(of: u64, report: &'p (dyn Fn(u64, u64) + Sync)) -> Self {
        report(0, of);
        Self { done: AtomicU64::new(0), of, reported: AtomicU64::new(0), report }
    }

    /// Relaxed: counters without data behind them.
    fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let step = 16 << 20;
        if done / step > self.reported.load(Ordering::Relaxed)
            && self.reported.fetch_max(done / step, Ordering::Relaxed) < done / step
        {
            (self.report)(done.min(self.of), self.of);
        }
    }
}

impl Restart<'_> {
    /// Brings the database back. Nobody reads yet. `progress` hears how far it has come, from any
    /// of the threads.
    ///
    /// # Errors
    /// See [`RestoreError`].
    pub fn run(&self, progress: &(dyn Fn(Phase) + Sync)) -> Result<Restored, RestoreError> {
        let mut first_error: Option<RestoreError> = None;
        let begin = self.store.extent().map_or(Lsn::ZERO, |(begin, _)| begin);
        for start in self.directory.map(Manifest::installed).transpose()?.unwrap_or_default() {
            match self.restore_on(start, begin, progress) {
                Ok(restored) => {
                    let passed_over = first_error.map(|error| error.to_string());
                    return Ok(Restored { passed_over, ..restored });
                }
                // A foreign file is a mistake of the operator, and no reason to look for something
                // older.
                Err(
                    error @ RestoreError::Checkpoint(
                        CheckpointError::ForeignCluster { .. } | CheckpointError::OtherLog { .. },
                    ),
                ) => return Err(error),
                // All log below the end of an installed checkpoint was durable: what is older is
                // not the database either, and the next checkpoint would remove this one.
                Err(error @ RestoreError::LogMissing { .. }) => return Err(error),
                Err(error @ RestoreError::Checkpoint(_)) => {
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if begin > Lsn::ZERO {
            let what = format!("the segments below {begin} are missing, and there is no checkpoint");
            return Err(first_error.unwrap_or_else(|| damage(self.store, Lsn::ZERO, what).into()));
        }
        let passed_over = first_error.map(|error| error.to_string());
        Ok(Restored { passed_over, ..self.restore(None, progress)? })
    }

    fn restore_on(&self, start: Lsn, begin: Lsn, progress: &(dyn Fn(Phase) + Sync)) -> Result<Restored, RestoreError> {
        let file = Manifest::path(self.directory.unwrap_or(Path::new("")), start);
        let manifest = Manifest::read(&file)?;
        let expected = self.store.config().cluster;
        if manifest.cluster() != expected {
            return Err(CheckpointError::ForeignCluster { file, found: manifest.cluster(), expected }.into());
        }
        let (its, ours) = (manifest.incarnation(), self.store.incarnation());
        if its.is_some_and(|its| ours.is_some_and(|ours| ours != its)) {
            return Err(CheckpointError::OtherLog { file }.into());
        }
        if manifest.devices as usize > self.devices.len() {
            let what = format!("its rows are on {} devices, {} are configured", manifest.devices, self.devices.len());
            return Err(CheckpointError::Damaged { file, offset: 0, what }.into());
        }
        let needed = if self.checkpoint_alone { manifest.start() } else { manifest.end() };
        if manifest.start() < begin || needed > self.end {
            let have = format!("the log from {begin} to {}", self.end);
            return Err(RestoreError::LogMissing { file, start: manifest.start(), end: manifest.end(), have });
        }
        self.restore(Some(manifest), progress)
    }

    fn restore(
        &self,
        checkpoint: Option<Manifest>,
        progress: &(dyn Fn(Phase) + Sync),
    ) -> Result<Restored, RestoreError> {
        let catalog = Arc::new(Catalog::new());
        let floor = checkpoint.as_ref().map_or(Lsn::ZERO, Manifest::end);
        let restoration = Restoration::new(&catalog, self.target, floor);
        let mut collectors: Vec<Collector> = (0..self.threads.max(1)).map(|_| Collector::default()).collect();
        let mut phases = [(Duration::ZERO, 0); 3];
        let mut begun = Instant::now();
        if let Some(manifest) = &checkpoint {
            self.load(manifest, &restoration, &mut collectors, &|done, of| progress(Phase::Checkpoint { done, of }))?;
            phases[0] = (begun.elapsed(), manifest.bytes());
            begun = Instant::now();
        }
        let from = checkpoint.as_ref().map_or(Lsn::ZERO, Manifest::start);
        self.replay(from, &restoration, &mut collectors, &|done, of| progress(Phase::Log { done, of }))?;
        restoration.check(&self.participants.join().expect("a place for a restart").pin_without_snapshot())?;
        phases[1] = (begun.elapsed(), self.end.since(from));
        begun = Instant::now();
        let built = |done, of| progress(Phase::Indexes { done, of });
        let Finished { deleted, mut entries } = restoration.finish(collectors, self.threads, self.participants, &built);
        if let Some(restoration) = Restoration::again(&catalog, self.target) {
            let mut collectors: Vec<Collector> = (0..self.threads.max(1)).map(|_| Collector::default()).collect();
            if let Some(manifest) = &checkpoint {
                self.load(manifest, &restoration, &mut collectors, &|_, _| {})?;
            }
            self.replay(from, &restoration, &mut collectors, &|_, _| {})?;
            entries += restoration.finish(collectors, self.threads, self.participants, &built).entries;
        }
        phases[2] = (begun.elapsed(), entries);
        Ok(Restored { catalog, deleted, checkpoint, passed_over: None, phases })
    }

    /// Reads a checkpoint: the catalog first, then everything else by all threads, file by file.
    fn load(
        &self,
        manifest: &Manifest,
        restoration: &Restoration<'_>,
        collectors: &mut [Collector],
        report: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(), RestoreError> {
        let progress = Progress::new(manifest.bytes(), report);
        let files = |catalog: bool| {
            let tables = manifest.tables.iter().filter(move |table| (Fid(table.fid) == Fid::CATALOG) == catalog);
            tables.flat_map(|table| table.files.iter().map(|file| (Fid(table.fid), file))).collect::<VecDeque<_>>()
        };
        let load = |collector: &mut Collector, (fid, file): (Fid, &CheckpointFile)| {
            self.load_file(manifest, restoration, collector, fid, file, &progress)
        };
        for file in files(true) {
            load(&mut collectors[0], file)?;
        }
        divide(files(false), collectors, load)
    }

    fn load_file(
        &self,
        manifest: &Manifest,
        restoration: &Restoration<'_>,
        collector: &mut Collector,
        fid: Fid,
        file: &CheckpointFile,
        progress: &Progress<'_>,
    ) -> Result<(), RestoreError> {
        let device = self.devices.get(file.device as usize).map_or(Path::new(""), PathBuf::as_path);
        let mut reader = RowsReader::open(device, manifest.cluster(), manifest.start(), fid, file)?;
        let participant = self.participants.join().expect("a place for every thread of a restart");
        while let Some(block) = reader.next_block()? {
            progress.add(block.length());
            let guard = participant.pin_without_snapshot();
            for (rid, lsn, row) in block {
                restoration.row(&guard, collector, fid, rid, lsn, row)?;
            }
        }
        Ok(())
    }

    /// Replays the log from `from` on, a block boundary.
    fn replay(
        &self,
        from: Lsn,
        restoration: &Restoration<'_>,
        collectors: &mut [Collector],
        report: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(), RestoreError> {
        let of = self.end.since(from);
        let pieces = self.store.pieces(from, self.end)?;
        let there: u64 = pieces.iter().map(Piece::length).sum();
        if there != of {
            let what = format!("its streams hold {there} bytes from {from} on, there should be {of}");
            return Err(damage(self.store, from, what).into());
        }
        let lead_on = AtomicBool::new(true);
        divide::<_, StoreError>(VecDeque::from(pieces.clone()), collectors, |_, piece| {
            lead_on.fetch_and(self.store.leads_on(piece)?, Ordering::Relaxed);
            Ok(())
        })?;
        // Where one of the boundaries is none: each stream from its beginning.
        let pieces = if lead_on.into_inner() { pieces } else { self.store.whole(from, self.end)? };
        self.replay_pieces(pieces, restoration, collectors, &Progress::new(of, report))
    }

    fn replay_pieces(
        &self,
        pieces: Vec<Piece>,
        restoration: &Restoration<'_>,
        collectors: &mut [Collector],
        progress: &Progress<'_>,
    ) -> Result<(), RestoreError> {
        let mut pieces = VecDeque::from(pieces);
        // Newest first, records may come before the table that they belong to: then the piece comes
        // again.
        while !pieces.is_empty() {
            let left: u64 = pieces.iter().map(Piece::length).sum();
            let again = Mutex::new((VecDeque::new(), None));
            divide::<_, RestoreError>(pieces, collectors, |collector, piece| {
                if let Some((rest, unknown)) = self.replay_piece(piece, restoration, collector, progress)? {
                    let mut again = again.lock().unwrap_or_else(PoisonError::into_inner);
                    again.0.push_back(rest);
                    again.1 = Some(unknown);
                }
                Ok(())
            })?;
            let (rest, unknown) = again.into_inner().unwrap_or_else(PoisonError::into_inner);
            pieces = rest;
            if let Some((at, fid, rid)) = unknown
                && pieces.iter().map(Piece::length).sum::<u64>() == left
            {
                return Err(ReplayError::Foreign { at, fid, rid }.into());
            }
        }
        Ok(())
    }

    /// Replays a piece; returns what is left of it when it has records of a table that is not known
    /// yet, and the first of them.
    #[expect(clippy::type_complexity, reason = "used by one caller")]
    fn replay_piece(
        &self,
        piece: Piece,
        restoration: &Restoration<'_>,
        collector: &mut Collector,
        progress: &Progress<'_>,
    ) -> Result<Option<(Piece, (Lsn, Fid, Rid))>, RestoreError> {
        let participant = self.participants.join().expect("a place for every thread of a restart");
        let mut failed = None;
        let mut unknown = None;
        let rest = self.store.scan(piece, |block| {
            let guard = participant.pin_without_snapshot();
            match restoration.block(&guard, collector, block) {
                Ok(true) => {
                    progress.add(block.bytes().len() as u64);
                    return ControlFlow::Continue(());
                }
                Ok(false) => {
                    let is_unknown = |fid| matches!(restoration.catalog().known(&guard, fid), Known::Unknown);
                    let strange = block.records().find(|record| is_unknown(record.header.fid));
                    unknown = strange.map(|record| (record.address, record.header.fid, record.header.rid));
                }
                Err(error) => failed = Some(error),
            }
            ControlFlow::Break(())
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        Ok(rest?.map(|rest| (rest, unknown.unwrap_or((Lsn::ZERO, Fid(0), Rid(0))))))
    }
}

/// One thread for each collector takes items off the front of `items` until there are none, or one
/// fails.
fn divide<T: Send, E: Send>(
    items: VecDeque<T>,
    collectors: &mut [Collector],
    work: impl Fn(&mut Collector, T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let items = Mutex::new(items);
    let failed = Mutex::new(None);
    let next = || {
        // Nobody continues when one has failed.
        if failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return None;
        }
        items.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    };
    std::thread::scope(|scope| {
        for collector in collectors {
            scope.spawn(|| {
                while let Some(item) = next() {
                    if let Err(error) = work(collector, item) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
