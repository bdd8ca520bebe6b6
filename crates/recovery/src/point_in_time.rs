//! Restore: from a backup and the log since then to a directory that a node can be started on, as
//! the database was at some moment.
//!
//! | step | what |
//! |---|---|
//! | choose | the newest checkpoint that ends at or before the moment, and the last boundary of a transaction up to there |
//! | log | copied from the checkpoint's start up to that boundary, every block checked |
//! | rows | copied block by block, checked |
//! | install | the manifest makes it count |
//!
//! What comes out is another cluster, so that no node of the old one can be mixed with it; its
//! LSNs go on from where they were. A moment given as a time is as exact as the log's time
//! blocks, about a tenth of a second, and never later than asked for.

use std::{ops::ControlFlow, path::PathBuf};

use freshet_base::{ClusterId, Fid, Lsn, NodeId, Term};
use freshet_log::{
    AcceptError, Control, ControlError, Log, LogDirectory, LogFailure, LogOpenError, StoreError,
    block::{BLOCK_HEADER, skip_header},
    control::read_control,
};
use thiserror::Error;

use crate::{
    RecordedError, RecordedLog,
    checkpoint::{CheckpointError, CheckpointFile, CheckpointTable, Manifest, RowsReader, TableWriter},
};

/// The ring through which the log is copied.
const RING: usize = 8 << 20;
/// This many bytes of log, and the rest of a block, are copied at once.
const PIECE: usize = 1 << 20;
/// In how many files a table's rows are put: what a restart can read side by side.
const FILES: u32 = 2;
/// Files are synced after this many bytes.
const SYNC: u64 = 32 << 20;

/// The moment that a restore goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The end of what there is.
    End,
    /// Everything that committed below this LSN.
    Lsn(Lsn),
    /// What had committed by then, in microseconds since 1970.
    Time(u64),
}

/// What to restore, and where.
#[derive(Clone, Debug)]
pub struct PointInTime {
    /// A directory with one checkpoint or more: a backup, an archive, or what is left of a node.
    pub backup: PathBuf,
    /// A directory with the log since then, if it is another one.
    pub archive: Option<PathBuf>,
    /// The directories of its streams, if they are not below it.
    pub streams: Vec<PathBuf>,
    /// The directory of the new node; it must not hold one.
    pub directory: PathBuf,
    /// The moment that the restored database shows.
    pub moment: Moment,
    /// The new cluster's name, and the node's.
    pub names: (ClusterId, NodeId),
}

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredTo {
    /// The checkpoint's start, if one was needed.
    pub checkpoint: Option<Lsn>,
    /// How many rows came from it.
    pub rows: u64,
    /// Where the log ends: everything below has come back.
    pub end: Lsn,
    /// How many bytes of log were needed.
    pub log_bytes: u64,
    /// What the log's last time block below the end says, in microseconds since 1970.
    pub time: Option<u64>,
}

/// Why nothing was restored. The sources are as they were; what the new directory holds is of no
/// use.
#[derive(Debug, Error)]
pub enum PointInTimeError {
    /// The control file of a source, or of the new directory.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A checkpoint of the backup cannot be read, or the new one cannot be written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The log cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log cannot be read.
    #[error(transparent)]
    Recorded(#[from] RecordedError),
    /// The new log cannot be begun.
    #[error(transparent)]
    Open(#[from] LogOpenError),
    /// The new log does not take a block of the old one.
    #[error(transparent)]
    Receive(#[from] AcceptError),
    /// The new log could not be written to its end.
    #[error(transparent)]
    Failed(#[from] LogFailure),
    /// The log is another cluster's than the checkpoints.
    #[error("the log in {archive} is of cluster {log}, the backup in {backup} of {ours}: they do not belong together",
        archive = .archive.display(), backup = .backup.display())]
    OtherCluster {
        /// The directory of the log.
        archive: PathBuf,
        /// The cluster of the log.
        log: ClusterId,
        /// The directory of the backup.
        backup: PathBuf,
        /// The cluster of the backup.
        ours: ClusterId,
    },
    /// No checkpoint and log reach that moment.
    #[error("nothing here reaches back to that moment: {0}")]
    OutOfReach(String),
}

/// How far a restore goes.
#[derive(Clone, Copy, Debug)]
struct Goal {
    /// Where it ends: a boundary between transactions.
    end: Lsn,
    /// What the last time block up to there says.
    time: Option<u64>,
    /// Length of the longest block up to there, in bytes.
    longest: usize,
}

impl Goal {
    /// How far to go from `from` on, so as not to go beyond `moment`.
    fn of(log: &RecordedLog, from: Lsn, moment: Moment) -> Result<Self, PointInTimeError> {
        let mut goal = Self { end: from, time: None, longest: 0 };
        // The end and time at the last time block.
        let mut dated = (from, None);
        let mut later = false;
        log.walk(from, log.end(), |block| {
            let beyond = match moment {
                Moment::End => false,
                Moment::Lsn(lsn) => block.end() > lsn,
                Moment::Time(time) => block.time().is_some_and(|now| now > time),
            };
            if beyond {
                later = true;
                return ControlFlow::Break(());
            }
            goal.longest = goal.longest.max(block.bytes().len());
            // A transaction that changes pages of several streams has several blocks.
            if !block.header().continued {
                goal.end = block.end();
            }
            if let Some(now) = block.time() {
                goal.time = Some(now);
                dated = (goal.end, goal.time);
            }
            ControlFlow::Continue(())
        })?;
        if later && matches!(moment, Moment::Time(_)) {
            // What comes behind the last time block may be later than the time wanted.
            (goal.end, goal.time) = dated;
        }
        Ok(goal)
    }
}

impl PointInTime {
    /// Restores. Blocks until all is durable.
    ///
    /// # Errors
    /// See [`PointInTimeError`].
    pub fn restore(&self) -> Result<RestoredTo, PointInTimeError> {
        let ours = read_control(&self.backup)?;
        let archive = self.archive.as_ref().unwrap_or(&self.backup);
        let theirs = read_control(archive)?;
        if theirs.cluster != ours.cluster {
            return Err(PointInTimeError::OtherCluster {
                archive: archive.clone(),
                log: theirs.cluster,
                backup: self.backup.clone(),
                ours: ours.cluster,
            });
        }
        let source = RecordedLog::open(archive, &self.streams)?;
        let (manifest, goal) = self.choose(&ours, source.as_ref())?;
        let end = goal.end;
        let start = manifest.as_ref().map_or(Lsn::ZERO, Manifest::start);
        let history = source.as_ref().map_or(&*ours.terms, RecordedLog::terms);
        let terms: Vec<_> = history.iter().copied().filter(|(_, begin, ..)| *begin < end).collect();
        let (cluster, node) = self.names;
        let latest_term = (terms.last().map_or(Term(0), |last| last.0), None);
        let mut control = Control::new(cluster, node, theirs.segment_size, 1);
        (control.terms, control.latest_term) = (terms, latest_term);
        let directory = LogDirectory::create(&self.directory, control)?;
        self.copy_log(&directory, source.as_ref(), start, &goal)?;
        let incarnation = directory.control().incarnation;
        let rows = manifest.as_ref().map(|manifest| self.copy_rows(manifest, incarnation));
        let rows = rows.transpose()?.unwrap_or_default();
        let checkpoint = manifest.map(|manifest| manifest.start());
        Ok(RestoredTo { checkpoint, rows, end, log_bytes: end.since(start), time: goal.time })
    }

    /// The checkpoint to begin with, and how far to go.
    fn choose(
        &self,
        ours: &Control,
        source: Option<&RecordedLog>,
    ) -> Result<(Option<Manifest>, Goal), PointInTimeError> {
        let mut why = Vec::new();
        for start in Manifest::installed(&self.backup)? {
            let file = Manifest::path(&self.backup, start);
            let manifest = Manifest::read(&file)?;
            if manifest.cluster() != ours.cluster {
                let (found, expected) = (manifest.cluster(), ours.cluster);
                return Err(CheckpointError::ForeignCluster { file, found, expected }.into());
            }
            let (end, time) = (manifest.end(), manifest.time.saturating_mul(1000));
            let late = match self.moment {
                Moment::End => false,
                Moment::Lsn(lsn) => end > lsn,
                // When it was installed, it was over.
                Moment::Time(wanted) => time > wanted,
            };
            if late {
                why.push(format!("the checkpoint from {start} to {end} is later"));
                continue;
            }
            let there = source.filter(|source| source.begin() <= start && start <= source.end());
            let reach = there.map_or(start, RecordedLog::end);
            let short = match self.moment {
                Moment::End | Moment::Time(_) => reach < end,
                Moment::Lsn(lsn) => reach < lsn,
            };
            if short {
                why.push(format!("behind the checkpoint from {start} to {end} there is log up to {reach} only"));
                continue;
            }
            let alone = Goal { end: start, time: Some(time), longest: 0 };
            let goal = there.map_or(Ok(alone), |source| Goal::of(source, start, self.moment))?;
            if goal.end >= end {
                return Ok((Some(manifest), goal));
            }
            why.push(format!(
                "the checkpoint from {start} ends at {end}, the log must be read up to {} only",
                goal.end
            ));
        }
        match source {
            Some(source) if source.is_whole()? => Ok((None, Goal::of(source, Lsn::ZERO, self.moment)?)),
            _ => {
                if why.is_empty() {
                    why.push(format!("{} holds no checkpoint", self.backup.display()));
                }
                Err(PointInTimeError::OutOfReach(why.join("; ")))
            }
        }
    }

    fn copy_log(
        &self,
        directory: &LogDirectory,
        source: Option<&RecordedLog>,
        start: Lsn,
        goal: &Goal,
    ) -> Result<(), PointInTimeError> {
        let ring = RING.max(2 * (goal.longest + PIECE)).next_power_of_two();
        let (log, mut receiver) = Log::receive(ring, directory.open_store(&[])?, start)?;
        directory.log_has_begun(&[])?;
        let mut piece = Vec::with_capacity(PIECE);
        let mut append = |piece: &mut Vec<u8>| -> Result<(), PointInTimeError> {
            let to = receiver.received().plus(piece.len() as u64);
            receiver.wait_room(to).map_err(AcceptError::from)?;
            receiver.append(piece)?;
            log.note_replayed(to);
            piece.clear();
            Ok(())
        };
        if let Some(source) = source.filter(|_| goal.end > start) {
            let mut outcome = Ok(());
            source.walk(start, goal.end, |block| {
                match block.members() {
                    None => piece.extend_from_slice(block.bytes()),
                    // On whom commits of the old cluster count is nothing to the new one; and
                    // earlier releases wrote it in other words.
                    Some(_) => {
                        let header = block.header();
                        let length = block.bytes().len();
                        piece.extend_from_slice(&skip_header(block.lsn(), length as u64, header.term, header.stream));
                        piece.resize(piece.len() + length - BLOCK_HEADER, 0);
                    }
                }
                if piece.len() >= PIECE {
                    outcome = append(&mut piece);
                }
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            outcome?;
            if !piece.is_empty() {
                append(&mut piece)?;
            }
        }
        Ok(log.close()?)
    }

    /// Returns how many rows there are.
    fn copy_rows(&self, manifest: &Manifest, incarnation: Option<u64>) -> Result<u64, PointInTimeError> {
        let devices = [self.directory.join("checkpoints")];
        let mut tables = Vec::new();
        for table in &manifest.tables {
            let place = (0, devices[0].as_path());
            let mut writer =
                TableWriter::create(place, self.names.0, manifest.start(), Fid(table.fid), 0..FILES, SYNC)?;
            let mut readers = Vec::new();
            for file in &table.files {
                readers.push(self.open_rows(manifest, Fid(table.fid), file)?);
            }
            // Blocks were dealt out to the files one by one, so this keeps the order of keys.
            while !readers.is_empty() {
                let mut left = Vec::new();
                for mut reader in readers {
                    if let Some(block) = reader.next_block()? {
                        for (rid, lsn, row) in block {
                            writer.push(rid, lsn, row);
                        }
                        writer.write_block()?;
                        left.push(reader);
                    }
                }
                readers = left;
            }
            let (rows, files) = writer.finish()?;
            if rows != table.rows {
                let file = Manifest::path(&self.backup, manifest.start());
                let what = format!("table {} has {rows} rows, it says {}", table.fid, table.rows);
                return Err(CheckpointError::Damaged { file, offset: 0, what }.into());
            }
            tables.push(CheckpointTable { fid: table.fid, rows, files });
        }
        let copy = Manifest::new(self.names.0, manifest.start(), manifest.end(), manifest.time, 1, tables);
        copy.install(&self.directory, incarnation)?;
        Ok(copy.rows())
    }

    fn open_rows(&self, manifest: &Manifest, fid: Fid, file: &CheckpointFile) -> Result<RowsReader, PointInTimeError> {
        let device = self.backup.join("checkpoints");
        Ok(RowsReader::open(&device, manifest.cluster(), manifest.start(), fid, file)?)
    }
}
