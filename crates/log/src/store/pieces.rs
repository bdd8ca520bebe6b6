//! The stored log in pieces that can be read in any order, for a restart (SiloR, section 5.2).
//!
//! A piece is about a segment of one stream, from a block boundary to a block boundary. Blocks
//! straddle segments, so the first boundary in a segment is looked for: a block shows itself by its
//! header (in a log of one stream by its stamp too) and proves itself by its checksum. That could
//! be a row that looks like a block; then the piece before it does not end where this one begins,
//! which [`LogStore::scan`] notices, and the reader goes back to [`LogStore::whole`] streams.

use std::ops::ControlFlow;

use freshet_base::Stamp;

use super::LogStore;
use crate::{
    block::{Block, BlockHeader},
    scan::{BlockScanner, Chunk, LogSource, Positions, find_block},
    segments::StoreError,
    tail::{TailError, damage},
};

/// A part of one stream: whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    stream: usize,
    from: Stamp,
    to: Stamp,
}

impl Piece {
    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.to.since(self.from)
    }
}

/// Why a piece was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum PieceError {
    /// It does not end where the next one begins: one of the two boundaries is none.
    #[error("a part of the log does not end where the next one begins")]
    Boundary,
    /// The log is damaged, or cannot be read.
    #[error(transparent)]
    Damage(#[from] TailError),
}

impl From<StoreError> for PieceError {
    fn from(error: StoreError) -> Self {
        Self::Damage(error.into())
    }
}

impl LogStore {
    fn source(&self, stream: usize) -> Box<dyn LogSource + '_> {
        match self.alone() {
            Some(store) => Box::new(store.clone()),
            None => Box::new(Positions(self.stream(stream))),
        }
    }

    /// Each stream from the block boundary `begin` on up to `end`, the log's end, as one piece.
    ///
    /// # Errors
    /// [`StoreError`] when the log cannot be read.
    pub fn whole(&self, begin: Stamp, end: Stamp) -> Result<Vec<Piece>, StoreError> {
        let piece = |stream| match self.alone() {
            Some(_) => Ok(Piece { stream, from: begin, to: end }),
            None => Ok(Piece { stream, from: self.position(stream, begin)?, to: self.stream(stream).end() }),
        };
        (0..self.streams()).map(piece).filter(|piece| !piece.as_ref().is_ok_and(|piece| piece.length() == 0)).collect()
    }

    /// The same in pieces of about a segment, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when the log cannot be read.
    pub fn pieces(&self, begin: Stamp, end: Stamp) -> Result<Vec<Piece>, StoreError> {
        let size = self.config().segment_size;
        let mut pieces = Vec::new();
        for Piece { stream, mut from, to } in self.whole(begin, end)? {
            // By how far each is from the end of its stream: positions of different streams do not
            // compare.
            let age = |piece: Piece| (to.since(piece.from), piece);
            let source = self.source(stream);
            let mut segment = from.0 - from.0 % size + size;
            while segment < to.0 {
                // Only as far as the next segment: a block that long makes the pieces longer.
                if let Some(boundary) = find_block(&*source, Stamp(segment), to.min(Stamp(segment + size)))?
                    && boundary > from
                {
                    pieces.push(age(Piece { stream, from, to: boundary }));
                    from = boundary;
                }
                segment += size;
            }
            pieces.push(age(Piece { stream, from, to }));
        }
        pieces.sort_by_key(|(age, _)| *age);
        Ok(pieces.into_iter().map(|(_, piece)| piece).collect())
    }

    /// Reads a piece and gives its blocks, checked, to `each`, which may stop. Returns the rest of
    /// the piece when it did, from the block on at which it stopped.
    ///
    /// # Errors
    /// See [`PieceError`].
    pub fn scan(
        &self,
        piece: Piece,
        mut each: impl FnMut(&Block<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Piece>, PieceError> {
        let source = self.source(piece.stream);
        let several = self.streams() > 1;
        let mut scanner = BlockScanner::new(&*source, piece.from, piece.to, u64::MAX / 2);
        let mut reuse = Chunk::default();
        let mut at = piece.from;
        while let Some(chunk) = scanner.next_chunk(reuse)? {
            while at < chunk.end() {
                let bytes = &chunk.bytes[at.since(chunk.at) as usize..];
                let stamp = if several { BlockHeader::peek(bytes).map(|header| header.stamp) } else { Ok(at) };
                let block = stamp.and_then(|stamp| Block::parse(bytes, stamp));
                let block = block.map_err(|why| damage(&*source, at, why.to_string()))?;
                if each(&block).is_break() {
                    return Ok(Some(Piece { from: at, ..piece }));
                }
                let next = at.plus(block.bytes().len() as u64);
                if several {
                    self.at(piece.stream).landmarks.pass(block.stamp(), at, next);
                }
                at = next;
            }
            reuse = chunk;
        }
        // What is left is less than a block, or no block: either the boundary is none, or the log
        // is damaged.
        if at < piece.to { Err(PieceError::Boundary) } else { Ok(None) }
    }

    /// What is wrong with the log at the end of what can be read of a whole stream that should be
    /// longer.
    pub fn damage(&self, piece: Piece) -> TailError {
        let what = "its blocks do not reach as far as they were found to at the start".to_owned();
        damage(&*self.source(piece.stream), piece.from, what)
    }
}
