//! Restart: from a log to a database, in named phases.
//!
//! | phase | does | stops the node when |
//! |---|---|---|
//! | tail | finds where the log ends behind the noted watermark, cuts off what a crash tore | the log was durable beyond a bad place |
//! | replay | replays `[0, end)` with several threads into the data arrays | a block below the end is bad |
//!
//! There is no other way to come back (checkpoints will shorten the range): the log is the
//! database. The words of records are log addresses then; versions are made when they are first
//! read (Query Fresh, section 3.3).
#![forbid(unsafe_code)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::Stamp;
use freshet_log::{BlockScanner, Chunk, LogStore, StoreError, Tail, TailError, tail::damage};
use freshet_replay::{Deleted, LogBytes, Replay, ReplayError, Target};
use freshet_storage::{Catalog, Participants};
use thiserror::Error;

/// Bytes of log that one replay thread gets at a time.
const PARTITION: u64 = 128 << 10;

/// How far a restart has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Looking for the end of the log.
    Tail,
    /// Replaying: bytes done, and bytes in all.
    Replay {
        /// Bytes replayed.
        done: u64,
        /// Bytes to replay.
        of: u64,
    },
    /// Finished.
    Ready,
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
}

/// Finds the end of the log in `store` and cuts off what a crash tore.
///
/// # Errors
/// See [`RestoreError`].
pub fn settle_tail(store: &LogStore) -> Result<Tail, RestoreError> {
    // Without checkpoints the log begins at zero, and reaches at least as far as was noted.
    let watermark = store.watermark();
    let (begin, end) = store.stream(0).extent().unwrap_or_default();
    if begin > Stamp::ZERO {
        return Err(damage(store, Stamp::ZERO, format!("the segments below {begin} are missing")).into());
    }
    if store.streams() == 1 && end < watermark {
        let what = format!("the segments from {end} on are missing; the log was durable up to {watermark}");
        return Err(damage(store, end, what).into());
    }
    Ok(store.settle()?)
}

/// The log as it lies in its segments.
struct Segments(LogStore);

impl LogBytes for Segments {
    fn read(&self, at: Stamp, buffer: &mut [u8]) -> Result<(), String> {
        self.0.read(at, buffer).map_err(|cause| cause.to_string())
    }
}

/// Replays the whole log below `end` with `threads` threads: into the data arrays for a primary,
/// into the replay arrays for a standby, whose log may yet be cut. Nobody reads yet. Returns how long it took, and for a
/// standby the records that it has seen deleted.
///
/// # Errors
/// See [`RestoreError`].
pub fn restore(
    store: &LogStore,
    end: Stamp,
    threads: usize,
    catalog: &Arc<Catalog>,
    participants: &Arc<Participants>,
    target: Target,
    mut progress: impl FnMut(Phase),
) -> Result<(Duration, Vec<Deleted>), RestoreError> {
    let begun = Instant::now();
    let segments: Arc<dyn LogBytes> = Arc::new(Segments(store.clone()));
    let replay = Replay::new(threads, catalog, participants, &segments);
    let begin = store.extent().map_or(end, |(begin, _)| begin);
    let mut scanner = BlockScanner::new(store, begin, end, PARTITION);
    let mut reuse = Chunk::default();
    let of = end.since(begin);
    progress(Phase::Replay { done: 0, of });
    while let Some(chunk) = scanner.next_chunk(reuse)? {
        let Chunk { at, bytes, ends } = chunk;
        let bytes = replay.replay_bytes(at, bytes, &ends, target).map_err(|error| match error {
            // Everything below the end was found whole, or was noted as durable.
            ReplayError::Block { at, cause } => damage(store, at, cause.to_string()).into(),
            other => RestoreError::Replay(other),
        })?;
        reuse = Chunk { at, bytes, ends };
        progress(Phase::Replay { done: scanner.position().since(begin), of });
    }
    if scanner.position() < end {
        let what = scanner.stopped().map_or_else(|| "the log ends here".to_owned(), |why| why.to_string());
        return Err(damage(store, scanner.position(), what).into());
    }
    Ok((begun.elapsed(), replay.take_deleted()))
}
