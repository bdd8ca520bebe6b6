//! Where the log ends after a restart.
//!
//! A crash may tear what was written and not yet synced, at any byte and in any order of pages. All
//! of that lies at or above the watermark that was noted last, except what a loss of power took of
//! the note itself, and it is at most [`MAX_UNSYNCED`] bytes. So for the first place `x` where no
//! whole block is:
//!
//! | watermark | behind `x` | it is |
//! |---|---|---|
//! | above `x` | anything | damage |
//! | at or below `x` | a whole block at `x + MAX_UNSYNCED` or above | damage: `x` was durable before that was written |
//! | at or below `x` | anything but zeros | a torn tail: cut, and told |
//! | at or below `x` | zeros only | a clean end |
//!
//! Damage stops the node. Nothing is ever skipped.
//!
//! What is found above the watermark may be nowhere but in the page cache: its process ended before
//! the sync, or the sync failed. So before anybody is told of it, it is written again where it
//! lies, synced, and noted ([`renew`]).

use std::path::PathBuf;

use freshet_base::{Lsn, Term};

use crate::{
    block::{Block, BlockError, BlockHeader},
    parts::KEEP_ASIDE,
    scan::{BlockScanner, Chunk, LogSource, look_behind},
    segments::{Note, SegmentStore, StoreError},
    stream::persist::MAX_UNSYNCED,
};

/// Where a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Everything below is whole transactions.
    pub end: Lsn,
    /// Everything below is whole blocks. Above `end`, they are of a transaction whose last blocks
    /// are not there.
    pub blocks_end: Lsn,
    /// What must be cut off there before anything is appended ([`Tail::settle`]).
    pub cut: Option<Torn>,
    /// How many blocks were looked at.
    pub blocks: u64,
    /// The term of the last of them.
    pub term: Option<Term>,
}

impl Tail {
    /// The same, if the blocks of a transaction whose rest is still to be found are not cut off.
    pub(crate) fn keeping_half(self) -> Self {
        let beyond =
            |torn: Torn| Torn { at: self.blocks_end, bytes: torn.bytes - self.blocks_end.since(torn.at), ..torn };
        Self { cut: self.cut.map(beyond).filter(|torn| torn.bytes > 0), ..self }
    }

    /// Makes the log end here: cuts off what is torn, durably, and makes durable what is left. Do
    /// it before anything is appended, or the remains could be taken for blocks one day, and before
    /// anybody is told what the log has.
    ///
    /// # Errors
    /// [`TailError`] when it cannot be cut, or written.
    pub fn settle(&self, store: &SegmentStore) -> Result<(), TailError> {
        if let Some(torn) = self.cut {
            store.cut(torn.at)?;
        }
        // Without any segment there is no log yet, only where it will begin.
        if store.extent().is_some() {
            let to = self.cut.map_or(self.blocks_end, |torn| torn.at);
            renew(store, store, store.watermark(), to)?;
            store.note_settled(Note::alone(self.end))?;
        }
        Ok(())
    }
}

/// Writes the blocks from `from` to `to`, both boundaries of blocks, to the places in `store` where
/// they were read by way of `source`, and makes them durable. A block that is not what it was when
/// the end was looked for is damage: nothing is written over it.
pub(crate) fn renew(source: &dyn LogSource, store: &SegmentStore, from: Lsn, to: Lsn) -> Result<(), TailError> {
    let mut scanner = BlockScanner::new(source, from, to, u64::MAX / 2);
    let mut reuse = Chunk::default();
    let mut at = from;
    while let Some(chunk) = scanner.next_chunk(reuse)? {
        while at < chunk.end() {
            at = at.plus(block_at(source, &chunk, at).map_err(|why| changed(source, at, why))?.bytes().len() as u64);
        }
        store.rewrite(chunk.at, &chunk.bytes)?;
        reuse = chunk;
    }
    if at < to {
        return Err(changed(source, at, scanner.stopped().unwrap_or(BlockError::Empty)));
    }
    Ok(store.sync()?)
}

fn changed(source: &dyn LogSource, at: Lsn, why: BlockError) -> TailError {
    damage(source, at, format!("{why}; a moment ago there was a block"))
}

/// The block at `at`, a place in `chunk`, checked.
fn block_at<'c>(source: &dyn LogSource, chunk: &'c Chunk, at: Lsn) -> Result<Block<'c>, BlockError> {
    let bytes = &chunk.bytes[at.since(chunk.at) as usize..];
    let lsn = match source.places_are_lsns() {
        true => at,
        false => BlockHeader::peek(bytes)?.lsn,
    };
    Block::parse(bytes, lsn)
}

/// The remains of a write that a crash interrupted. None of it was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log's last {bytes} bytes, from {at} on, were being written in a crash and are cut off ({why})")]
pub struct Torn {
    /// Where it starts.
    pub at: Lsn,
    /// How far it reaches, in bytes.
    pub bytes: u64,
    /// Why it is no block.
    pub why: BlockError,
}

/// Why the end of the log was not found.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// A part of the log that was durable is not what was written.
    #[error(
        "the log is damaged: {file} at offset {offset} (LSN {at}): {what}; do not delete anything: bring the file \
         back as it was; if it is lost, {KEEP_ASIDE}",
        file = .file.display()
    )]
    Damage {
        /// The damaged file.
        file: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// Where in the virtual log.
        at: Lsn,
        /// What is wrong there, and how that is known.
        what: String,
    },
    /// The log could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The error for a block that must be there, at `at`, and is not: for the thread that reads below
/// the durable watermark.
pub fn damage(source: &dyn LogSource, at: Lsn, what: String) -> TailError {
    let (file, offset) = source.locate(at);
    TailError::Damage { file, offset, at, what }
}

/// Looks for the end of the log from `from` on, a block boundary, checking every block. `watermark`
/// is what was noted as durable ([`crate::SegmentStore::watermark`]). Start at the watermark itself
/// to look at the tail only, when replay checks what lies below.
///
/// # Errors
/// [`TailError::Damage`] by the table of this module; [`TailError::Store`] when the log cannot be
/// read.
pub fn find_tail(source: &dyn LogSource, from: Lsn, watermark: Lsn) -> Result<Tail, TailError> {
    let mut tail = Tail { end: from, blocks_end: from, cut: None, blocks: 0, term: None };
    // Where the next block is to be; ahead of the end while a transaction has more blocks to come.
    let mut at = from;
    let mut scanner = BlockScanner::new(source, from, Lsn::MAX, u64::MAX / 2);
    let mut reuse = Chunk::default();
    while let Some(chunk) = scanner.next_chunk(reuse)? {
        while at < chunk.end() {
            match block_at(source, &chunk, at) {
                Ok(block) => {
                    tail.blocks += 1;
                    tail.term = Some(block.header().term);
                    at = at.plus(block.bytes().len() as u64);
                    // In one stream of several, a transaction's other blocks lie elsewhere.
                    if !(block.header().continued && source.places_are_lsns()) {
                        tail.end = at;
                    }
                }
                Err(why) => return judge(source, tail, at, why, watermark),
            }
        }
        reuse = chunk;
    }
    judge(source, tail, at, scanner.stopped().unwrap_or(BlockError::Empty), watermark)
}

/// Decides by the table of this module what a bad block at `at` is.
fn judge(source: &dyn LogSource, tail: Tail, at: Lsn, why: BlockError, watermark: Lsn) -> Result<Tail, TailError> {
    if at < watermark {
        return Err(damage(source, at, format!("{why}; the log was durable up to {watermark}")));
    }
    let behind = look_behind(source, at, at.plus(MAX_UNSYNCED))?;
    if let Some(block) = behind.block {
        let what = format!("{why}; a whole block at {block} proves that the log was durable beyond this place");
        return Err(damage(source, at, what));
    }
    // A transaction with a missing block is torn as a whole.
    let half = (tail.end < at).then_some(at);
    let cut = behind.written_to.or(half).map(|end| Torn { at: tail.end, bytes: end.since(tail.end), why });
    Ok(Tail { cut, blocks_end: at, ..tail })
}
