//! A log that was written before, read from its beginning to its end: for a restore, and for a
//! verification.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use freshet_base::{ClusterId, Lsn, NodeId, Term};
use freshet_log::{
    Block, ControlError, LogDirectory, StoreError, TailError,
    block::{BLOCK_HEADER, BlockError, BlockHeader},
    control::read_control,
    reading::{Durable, read_durable},
    scan::{BlockScanner, Chunk, LogSource},
    tail::damage,
};
use thiserror::Error;

use crate::{RestoreError, settle_tail};

/// Why a log that was written before cannot be read.
#[derive(Debug, Error)]
pub enum RecordedError {
    /// The directory's control file cannot be used.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The log's files cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log is damaged.
    #[error(transparent)]
    Damage(#[from] TailError),
    /// The end of the log could not be found.
    #[error(transparent)]
    Tail(#[from] RestoreError),
}

/// A log that was written before.
pub struct RecordedLog {
    log: Box<dyn LogSource>,
    begin: Lsn,
    end: Lsn,
    cluster: ClusterId,
    terms: Vec<(Term, Lsn, NodeId, u64)>,
    /// Keeps others out while it is read, if nobody had it.
    _directory: Option<LogDirectory>,
}

impl std::fmt::Debug for RecordedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordedLog(from {} to {})", self.begin, self.end)
    }
}

impl RecordedLog {
    /// Opens the log in `directory`, and keeps others out of it; what a crash tore at its end is
    /// cut off, as at a restart. A log of one stream that is written to in the meantime is read as
    /// far as it is durable. `streams` are the directories of its streams, if they are not below
    /// `directory`. None when there is no log yet.
    ///
    /// # Errors
    /// See [`RecordedError`].
    pub fn open(directory: &Path, streams: &[PathBuf]) -> Result<Option<Self>, RecordedError> {
        let control = read_control(directory)?;
        match LogDirectory::open_source(directory) {
            Ok(owned) => {
                let store = owned.open_store(streams)?;
                let Some((begin, _)) = store.extent() else { return Ok(None) };
                let end = settle_tail(&store)?.end;
                let (cluster, terms) = (control.cluster, control.terms);
                Ok(Some(Self { log: Box::new(store), begin, end, cluster, terms, _directory: Some(owned) }))
            }
            // An archive that continues in the meantime.
            Err(ControlError::Locked(_)) if control.streams == 1 && streams.is_empty() => Self::durable(directory),
            Err(error) => Err(error.into()),
        }
    }

    /// The same, but a log of one stream below `directory` is read as far as it was noted to be
    /// durable, whether a node is at work on it or not, and nothing is changed.
    ///
    /// # Errors
    /// See [`RecordedError`].
    pub fn look(directory: &Path, streams: &[PathBuf]) -> Result<Option<Self>, RecordedError> {
        let several = read_control(directory)?.streams > 1 || !streams.is_empty();
        if several { Self::open(directory, streams) } else { Self::durable(directory) }
    }

    fn durable(directory: &Path) -> Result<Option<Self>, RecordedError> {
        let control = read_control(directory)?;
        let Some(Durable { log, begin, end }) = read_durable(directory)? else { return Ok(None) };
        Ok(Some(Self { log, begin, end, cluster: control.cluster, terms: control.terms, _directory: None }))
    }

    /// It begins here or later: a log that was joined begins within its first segment.
    pub fn begin(&self) -> Lsn {
        self.begin
    }

    /// The end of the log: everything below can be read.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The cluster whose log it is.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The terms in which it was written.
    pub fn terms(&self) -> &[(Term, Lsn, NodeId, u64)] {
        &self.terms
    }

    /// Whether the log is there from its first byte: one that was joined later may begin anywhere
    /// in its first segment.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_whole(&self) -> Result<bool, RecordedError> {
        let mut head = [0; BLOCK_HEADER];
        if self.begin > Lsn::ZERO || self.end < Lsn(BLOCK_HEADER as u64) {
            return Ok(false);
        }
        self.log.read(Lsn::ZERO, &mut head)?;
        Ok(BlockHeader::peek(&head).is_ok())
    }

    /// Fills `into` with the log from `at` on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), RecordedError> {
        Ok(self.log.read(at, into)?)
    }

    /// Gives every block from `from` up to `to` to `each`, checked, until that says stop.
    ///
    /// # Errors
    /// When the log cannot be read, or is damaged.
    pub fn walk(
        &self,
        from: Lsn,
        to: Lsn,
        mut each: impl FnMut(&Block<'_>) -> ControlFlow<()>,
    ) -> Result<(), RecordedError> {
        self.chunks(from, to, |chunk| {
            let mut at = chunk.at;
            while at < chunk.end() {
                let block = Block::parse(&chunk.bytes[at.since(chunk.at) as usize..], at);
                let block = block.map_err(|why| damage(&*self.log, at, why.to_string()))?;
                if each(&block).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                at = block.end();
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// The length in bytes of the longest block from `from` on. Looks at headers alone.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn longest(&self, from: Lsn) -> Result<u64, RecordedError> {
        let mut longest = 0;
        self.chunks(from, self.end, |chunk| {
            let mut at = 0;
            while let Ok(header) = BlockHeader::peek(&chunk.bytes[at..]) {
                longest = longest.max(u64::from(header.length));
                at += header.length as usize;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(longest)
    }

    fn chunks(
        &self,
        from: Lsn,
        to: Lsn,
        mut each: impl FnMut(&Chunk) -> Result<ControlFlow<()>, RecordedError>,
    ) -> Result<(), RecordedError> {
        let mut scanner = BlockScanner::new(&*self.log, from, to, u64::MAX / 2);
        let mut reuse = Chunk::default();
        while let Some(chunk) = scanner.next_chunk(reuse)? {
            if each(&chunk)?.is_break() {
                return Ok(());
            }
            reuse = chunk;
        }
        if scanner.position() < to {
            let why = scanner.stopped().unwrap_or(BlockError::Empty);
            return Err(damage(&*self.log, scanner.position(), why.to_string()).into());
        }
        Ok(())
    }
}
