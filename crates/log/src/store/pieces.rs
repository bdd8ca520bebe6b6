//! The stored log in pieces that can be read in any order, for a restart (SiloR, section 5.2).
//!
//! A piece is about a segment of one stream, from a block boundary to a block boundary. Blocks
//! straddle segments, so the first boundary in a segment is looked for: a block shows itself by its
//! header (in a log of one stream by its LSN too) and proves itself by its checksum. That could
//! be a row that looks like a block, or an old block in the body of a skip block. Then the headers
//! of the piece before it do not lead there, which [`LogStore::leads_on`] tells. Nothing of a piece
//! may be replayed before that is known of all: the records of what only looks like a block could
//! be anybody's. Where one does not, the reader takes [`LogStore::whole`] streams.

use std::ops::ControlFlow;

use freshet_base::Lsn;

use super::LogStore;
use crate::{
    block::{Block, BlockError, BlockHeader},
    scan::{BlockScanner, Chunk, LogSource, Positions, find_block},
    segments::StoreError,
    tail::{TailError, damage},
};

/// A part of one stream: whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    stream: usize,
    from: Lsn,
    to: Lsn,
    /// Whether it ends where the stream does.
    is_last: bool,
}

impl Piece {
    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.to.since(self.from)
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
    pub fn whole(&self, begin: Lsn, end: Lsn) -> Result<Vec<Piece>, StoreError> {
        let piece = |stream| match self.alone() {
            Some(_) => Ok(Piece { stream, from: begin, to: end, is_last: true }),
            None => {
                let (from, to) = (self.position(stream, begin)?, self.stream(stream).end());
                Ok(Piece { stream, from, to, is_last: true })
            }
        };
        (0..self.streams()).map(piece).filter(|piece| !piece.as_ref().is_ok_and(|piece| piece.length() == 0)).collect()
    }

    /// The same in pieces of about a segment, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when the log cannot be read.
    pub fn pieces(&self, begin: Lsn, end: Lsn) -> Result<Vec<Piece>, StoreError> {
        let size = self.config().segment_size;
        let mut pieces = Vec::new();
        for Piece { stream, mut from, to, .. } in self.whole(begin, end)? {
            // By how far each is from the end of its stream: positions of different streams do not
            // compare.
            let age = |piece: Piece| (to.since(piece.from), piece);
            let source = self.source(stream);
            let mut segment = from.0 - from.0 % size + size;
            while segment < to.0 {
                // Only as far as the next segment: a block that long makes the pieces longer.
                if let Some(boundary) = find_block(&*source, Lsn(segment), to.min(Lsn(segment + size)))?
                    && boundary > from
                {
                    pieces.push(age(Piece { stream, from, to: boundary, is_last: false }));
                    from = boundary;
                }
                segment += size;
            }
            pieces.push(age(Piece { stream, from, to, is_last: true }));
        }
        pieces.sort_by_key(|(age, _)| *age);
        Ok(pieces.into_iter().map(|(_, piece)| piece).collect())
    }

    /// Whether the headers of a piece lead to where the next one begins. The first piece of a
    /// stream begins at a boundary; so when this holds for all, all do.
    ///
    /// # Errors
    /// [`StoreError`] when the log cannot be read.
    pub fn leads_on(&self, piece: Piece) -> Result<bool, StoreError> {
        // Nothing begins at the end of the stream.
        if piece.is_last {
            return Ok(true);
        }
        let source = self.source(piece.stream);
        let mut scanner = BlockScanner::new(&*source, piece.from, piece.to, u64::MAX / 2);
        let mut reuse = Chunk::default();
        while let Some(chunk) = scanner.next_chunk(reuse)? {
            reuse = chunk;
        }
        Ok(scanner.position() == piece.to)
    }

    /// Reads a piece, which begins at a boundary, and gives its blocks, checked, to `each`, which
    /// may stop. Returns the rest of the piece when it did, from the block on at which it stopped.
    ///
    /// # Errors
    /// [`TailError`] when the log is damaged, or cannot be read.
    pub fn scan(
        &self,
        piece: Piece,
        mut each: impl FnMut(&Block<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Piece>, TailError> {
        let source = self.source(piece.stream);
        let several = self.streams() > 1;
        let mut scanner = BlockScanner::new(&*source, piece.from, piece.to, u64::MAX / 2);
        let mut reuse = Chunk::default();
        let mut at = piece.from;
        while let Some(chunk) = scanner.next_chunk(reuse)? {
            while at < chunk.end() {
                let bytes = &chunk.bytes[at.since(chunk.at) as usize..];
                let lsn = if several { BlockHeader::peek(bytes).map(|header| header.lsn) } else { Ok(at) };
                let block = lsn.and_then(|lsn| Block::parse(bytes, lsn));
                let block = block.map_err(|why| damage(&*source, at, why.to_string()))?;
                if each(&block).is_break() {
                    return Ok(Some(Piece { from: at, ..piece }));
                }
                let next = at.plus(block.bytes().len() as u64);
                if several {
                    self.at(piece.stream).landmarks.pass(block.lsn(), at, next);
                }
                at = next;
            }
            reuse = chunk;
        }
        // What is left is less than a block, or no block.
        match at < piece.to {
            true => {
                let why = scanner.stopped().unwrap_or(BlockError::Empty);
                let what = format!("{why}; its blocks do not reach as far as they were found to at the start");
                Err(damage(&*source, at, what))
            }
            false => Ok(None),
        }
    }
}
