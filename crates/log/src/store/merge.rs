//! The virtual log from its streams: blocks in the order of their LSNs.

use freshet_base::Lsn;

use super::LogStore;
use crate::{
    block::{BLOCK_HEADER, BlockHeader},
    segments::{SegmentStore, StoreError},
};

/// How much of a stream is read at once to look for a place.
const GLANCE: usize = 16 << 10;
/// And to read on.
const STRETCH: usize = 256 << 10;

/// A place in one stream, at the start of a block.
#[derive(Debug)]
pub(super) struct Cursor<'s> {
    store: &'s SegmentStore,
    at: Lsn,
    end: Lsn,
    /// Bytes of the stream from `window_at` on.
    window: Vec<u8>,
    window_at: Lsn,
    stretch: usize,
    block: Option<BlockHeader>,
}

impl<'s> Cursor<'s> {
    /// At `at`, where a block starts, in a stream that ends at `end`.
    pub(super) fn new(store: &'s SegmentStore, at: Lsn, end: Lsn) -> Self {
        Self { store, at, end, window: Vec::new(), window_at: at, stretch: GLANCE, block: None }
    }

    /// From here on much is read.
    pub(super) fn reads_on(&mut self) {
        self.stretch = STRETCH;
    }

    pub(super) fn position(&self) -> Lsn {
        self.at
    }

    /// `length` bytes of the stream from `at` on, all below its end.
    fn bytes(&mut self, at: Lsn, length: usize) -> Result<&[u8], StoreError> {
        let window_end = self.window_at.plus(self.window.len() as u64);
        if at < self.window_at || at.plus(length as u64) > window_end {
            let left = self.end.since(at) as usize;
            self.window.resize(length.max(self.stretch.min(left)), 0);
            self.window_at = at;
            if let Err(error) = self.store.read(at, &mut self.window) {
                self.window.clear();
                return Err(error);
            }
        }
        let from = at.since(self.window_at) as usize;
        Ok(&self.window[from..from + length])
    }

    /// The header of the block here; none at the end of the stream, or where there is no block.
    pub(super) fn block(&mut self) -> Result<Option<BlockHeader>, StoreError> {
        if self.block.is_none() && self.end.since(self.at) >= BLOCK_HEADER as u64 {
            let header = BlockHeader::peek(self.bytes(self.at, BLOCK_HEADER)?).ok();
            let left = self.end.since(self.at);
            self.block = header.filter(|header| u64::from(header.length) <= left);
        }
        Ok(self.block)
    }

    /// The bytes of the block here.
    pub(super) fn block_bytes(&mut self) -> Result<Option<&[u8]>, StoreError> {
        match self.block()? {
            Some(block) => Ok(Some(self.bytes(self.at, block.length as usize)?)),
            None => Ok(None),
        }
    }

    /// On to the next block.
    pub(super) fn advance(&mut self) {
        if let Some(block) = self.block.take() {
            self.at = self.at.plus(u64::from(block.length));
        }
    }

    /// On to the first block that ends above `lsn`.
    pub(super) fn skip_below(&mut self, lsn: Lsn) -> Result<(), StoreError> {
        while self.block()?.is_some_and(|block| block.end() <= lsn) {
            self.advance();
        }
        Ok(())
    }
}

impl LogStore {
    /// [`LogStore::read`] for several streams.
    pub(super) fn merged_read(&self, at: Lsn, into: &mut [u8]) -> Result<(), StoreError> {
        let (begin, end) = self.extent().unwrap_or_default();
        if at < begin {
            return Err(StoreError::Gone { at, first: begin });
        }
        let beyond = |at: Lsn, length: usize| StoreError::Beyond { at: at.plus(length as u64), end };
        if at.plus(into.len() as u64) > end {
            return Err(beyond(at, into.len()));
        }
        let mut cursors: Vec<Cursor<'_>> =
            (0..self.streams()).map(|stream| self.cursor_before(stream, at)).collect::<Result<_, _>>()?;
        for cursor in &mut cursors {
            cursor.skip_below(at)?;
            if into.len() > GLANCE {
                cursor.reads_on();
            }
        }
        let (mut at, mut into) = (at, into);
        // The stream that held the last block often holds the next one too.
        let mut stream = 0;
        let mut misses = 0;
        while !into.is_empty() {
            let cursor = &mut cursors[stream];
            let block = cursor.block()?.filter(|block| block.lsn <= at && at < block.end());
            let Some(block) = block else {
                misses += 1;
                if misses > self.streams() {
                    return Err(beyond(at, into.len()));
                }
                stream = (stream + 1) % self.streams();
                continue;
            };
            misses = 0;
            let skip = at.since(block.lsn);
            let (now, later) = into.split_at_mut(into.len().min((u64::from(block.length) - skip) as usize));
            let place = cursor.position().plus(skip);
            now.copy_from_slice(cursor.bytes(place, now.len())?);
            at = at.plus(now.len() as u64);
            if at == block.end() {
                let from = cursor.position();
                cursor.advance();
                self.at(stream).landmarks.pass(block.lsn, from, cursor.position());
            }
            into = later;
        }
        Ok(())
    }
}
