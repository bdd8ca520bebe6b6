//! Walking over the blocks of a stored log, in large chunks.

use std::{borrow::Borrow, ops::Range, path::PathBuf};

use freshet_base::Lsn;

use crate::{
    block::{BLOCK_ALIGN, BLOCK_HEADER, Block, BlockError, BlockHeader},
    segments::{SegmentStore, StoreError},
};

/// Something that holds a part of the virtual log: a store, or a saved tail.
pub trait LogSource: Send + Sync {
    /// The first byte it holds and the end of the room behind it; none when it holds nothing.
    fn extent(&self) -> Option<(Lsn, Lsn)>;

    /// Fills `into` from `at` on.
    ///
    /// # Errors
    /// [`StoreError`] outside the extent, or when the medium fails.
    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), StoreError>;

    /// The file that holds `at`, and the offset there.
    fn locate(&self, at: Lsn) -> (PathBuf, u64);

    /// Whether a block lies where its LSN says, as in the virtual log; in one stream of several,
    /// places are positions, and blocks show themselves by their checksums alone.
    fn places_are_lsns(&self) -> bool {
        true
    }
}

/// One stream of several, read by positions: a store, or a reference to one.
#[derive(Debug)]
pub(crate) struct Positions<S>(pub(crate) S);

impl LogSource for SegmentStore {
    fn extent(&self) -> Option<(Lsn, Lsn)> {
        Self::extent(self)
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), StoreError> {
        Self::read(self, at, into)
    }

    fn locate(&self, at: Lsn) -> (PathBuf, u64) {
        Self::locate(self, at)
    }
}

impl<S: Borrow<SegmentStore> + Send + Sync> LogSource for Positions<S> {
    fn extent(&self) -> Option<(Lsn, Lsn)> {
        self.0.borrow().extent()
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), StoreError> {
        self.0.borrow().read(at, into)
    }

    fn locate(&self, at: Lsn) -> (PathBuf, u64) {
        self.0.borrow().locate(at)
    }

    fn places_are_lsns(&self) -> bool {
        false
    }
}

/// How many bytes a scanner reads at once, unless one block is longer.
pub const CHUNK: usize = 1 << 20;

/// Whole blocks, one behind the other. Their lengths and LSNs fit together; their checksums were
/// not looked at, which is the work of the thread that replays them ([`Block::parse`]).
#[derive(Debug, Default)]
pub struct Chunk {
    /// Where it starts in the virtual log.
    pub at: Lsn,
    /// The blocks.
    pub bytes: Vec<u8>,
    /// Where partitions end in it, ascending; each is a block boundary and the last is the chunk's
    /// end.
    pub ends: Vec<Lsn>,
}

impl Chunk {
    /// Where it ends in the virtual log.
    pub fn end(&self) -> Lsn {
        self.at.plus(self.bytes.len() as u64)
    }

    /// The partitions: where each starts, and its bytes. Each is whole blocks.
    pub fn partitions(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let mut from = self.at;
        self.ends.iter().map(move |end| {
            let start = from;
            from = *end;
            (start, &self.bytes[start.since(self.at) as usize..end.since(self.at) as usize])
        })
    }
}

/// Reads a log in order and yields chunks of whole blocks.
pub struct BlockScanner<'s> {
    source: &'s dyn LogSource,
    at: Lsn,
    until: Lsn,
    partition: u64,
    stopped: Option<BlockError>,
}

impl<'s> BlockScanner<'s> {
    /// Scans from `from`, a block boundary, up to `until` or the end of what `source` has room for.
    /// Partition ends are about `partition` bytes apart.
    pub fn new(source: &'s dyn LogSource, from: Lsn, until: Lsn, partition: u64) -> Self {
        let end = source.extent().map_or(from, |(_, end)| end);
        Self { source, at: from, until: until.min(end), partition: partition.max(1), stopped: None }
    }

    /// Where the next chunk starts; after the last one, where scanning ended.
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// What was found at [`BlockScanner::position`] instead of a block; none when scanning reached
    /// its end.
    pub fn stopped(&self) -> Option<BlockError> {
        self.stopped
    }

    /// The next chunk, in the memory of `reuse`. None at the end, or before the first thing that is
    /// not the header of a block of this place; [`BlockScanner::stopped`] tells which.
    ///
    /// # Errors
    /// [`StoreError`] when the source cannot be read.
    pub fn next_chunk(&mut self, reuse: Chunk) -> Result<Option<Chunk>, StoreError> {
        let Chunk { mut bytes, mut ends, .. } = reuse;
        ends.clear();
        let mut want = CHUNK as u64;
        loop {
            let left = self.until.since(self.at);
            if self.stopped.is_some() || left == 0 {
                return Ok(None);
            }
            bytes.resize(want.min(left) as usize, 0);
            self.source.read(self.at, &mut bytes)?;
            let (whole, next) = self.hop(&bytes, &mut ends);
            if whole > 0 {
                bytes.truncate(whole);
                let chunk = Chunk { at: self.at, bytes, ends };
                self.at = chunk.end();
                return Ok(Some(chunk));
            }
            match next {
                // The first block is longer than was read: read all of it.
                Err(BlockError::Truncated { need, have }) if have < left => want = need,
                Err(error) => self.stopped = Some(error),
                Ok(()) => unreachable!("nothing whole was found although bytes were left"),
            }
        }
    }

    /// Hops over whole blocks; returns how many bytes they take, and what comes behind.
    fn hop(&self, bytes: &[u8], ends: &mut Vec<Lsn>) -> (usize, Result<(), BlockError>) {
        let mut at = 0;
        let mut next_end = self.at.0 - self.at.0 % self.partition + self.partition;
        let result = loop {
            if at == bytes.len() {
                break Ok(());
            }
            let here = self.at.plus(at as u64);
            match BlockHeader::peek(&bytes[at..]) {
                Ok(header) if header.lsn != here && self.source.places_are_lsns() => {
                    break Err(BlockError::Lsn { found: header.lsn, at: here });
                }
                Ok(header) if header.length as usize > bytes.len() - at => {
                    let (need, have) = (u64::from(header.length), (bytes.len() - at) as u64);
                    break Err(BlockError::Truncated { need, have });
                }
                Ok(header) => {
                    at += header.length as usize;
                    let end = self.at.0 + at as u64;
                    if end >= next_end {
                        ends.push(Lsn(end));
                        next_end = end - end % self.partition + self.partition;
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let end = self.at.plus(at as u64);
        if at > 0 && ends.last() != Some(&end) {
            ends.push(end);
        }
        (at, result)
    }
}

/// What lies behind a place where no block is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The end of the last byte that is not zero.
    pub(crate) written_to: Option<Lsn>,
    /// Where the first whole block at or above `blocks_from` starts.
    pub(crate) block: Option<Lsn>,
}

/// Looks at everything from `at` on, and for blocks from `blocks_from` on. Where the chain of
/// headers is broken, a block shows itself by carrying the LSN of its own place, and proves
/// itself by its checksum.
pub(crate) fn look_behind(source: &dyn LogSource, at: Lsn, blocks_from: Lsn) -> Result<Behind, StoreError> {
    let mut found = Behind::default();
    let Some((_, until)) = source.extent() else { return Ok(found) };
    let read = |at: Lsn, into: &mut [u8]| source.read(at, into);
    let mut from = at.0;
    let mut bytes = Vec::new();
    while from < until.0 {
        // Windows overlap by a header, so that one that straddles their border is seen whole.
        let advance = (CHUNK as u64).min(until.0 - from);
        bytes.resize((advance + BLOCK_HEADER as u64).min(until.0 - from) as usize, 0);
        source.read(Lsn(from), &mut bytes)?;
        if let Some(last) = last_written(&bytes) {
            found.written_to = Some(Lsn(from + last as u64 + 1));
            let first = blocks_from.0.saturating_sub(from).next_multiple_of(BLOCK_ALIGN as u64) as usize;
            for place in (first..advance as usize).step_by(BLOCK_ALIGN) {
                let here = from + place as u64;
                let Some(lsn) = bytes.get(place + 8..place + 16) else { break };
                let may_be = !source.places_are_lsns() || lsn == here.to_le_bytes();
                if found.block.is_none() && may_be && is_block(&read, source.places_are_lsns(), Lsn(here), until)? {
                    found.block = Some(Lsn(here));
                }
            }
        }
        from += advance;
    }
    Ok(found)
}

/// Where the first whole block at or above `from` starts, below `until`.
pub(crate) fn find_block(source: &dyn LogSource, from: Lsn, until: Lsn) -> Result<Option<Lsn>, StoreError> {
    let Some((_, end)) = source.extent() else { return Ok(None) };
    find_block_by(&|at, into| source.read(at, into), source.places_are_lsns(), from..until, end)
}

/// The same in what `read` reads, and ends at `end`; [`LogSource::places_are_lsns`] says what a
/// block's place is.
pub(crate) fn find_block_by<E>(
    read: &impl Fn(Lsn, &mut [u8]) -> Result<(), E>,
    places_are_lsns: bool,
    Range { start: from, end: until }: Range<Lsn>,
    end: Lsn,
) -> Result<Option<Lsn>, E> {
    const WINDOW: u64 = 64 << 10;
    let mut at = from.0.next_multiple_of(BLOCK_ALIGN as u64);
    let mut bytes = Vec::new();
    while at < until.0 {
        // Windows overlap by a header, so that one that straddles their border is seen whole.
        bytes.resize((WINDOW + BLOCK_HEADER as u64).min(end.0.saturating_sub(at)) as usize, 0);
        read(Lsn(at), &mut bytes)?;
        for place in (0..bytes.len().saturating_sub(BLOCK_HEADER - 1)).step_by(BLOCK_ALIGN) {
            let here = Lsn(at + place as u64);
            if here >= until {
                return Ok(None);
            }
            let Ok(header) = BlockHeader::peek(&bytes[place..]) else { continue };
            if (!places_are_lsns || header.lsn == here) && is_block(read, places_are_lsns, here, end)? {
                return Ok(Some(here));
            }
        }
        at += WINDOW;
    }
    Ok(None)
}

/// The last byte that is not zero; quick where none exists, as in the unused part of a segment.
fn last_written(bytes: &[u8]) -> Option<usize> {
    let written = |piece: &&[u8]| piece.iter().fold(0, |all, byte| all | byte) != 0;
    let behind = bytes.rchunks(4096).take_while(|piece| !written(piece)).map(<[u8]>::len).sum::<usize>();
    bytes[..bytes.len() - behind].iter().rposition(|byte| *byte != 0)
}

/// Whether a whole block starts at `at`.
fn is_block<E>(
    read: &impl Fn(Lsn, &mut [u8]) -> Result<(), E>,
    places_are_lsns: bool,
    at: Lsn,
    until: Lsn,
) -> Result<bool, E> {
    let mut header = [0; BLOCK_HEADER];
    if until.since(at) < BLOCK_HEADER as u64 {
        return Ok(false);
    }
    read(at, &mut header)?;
    let Ok(header) = BlockHeader::peek(&header) else { return Ok(false) };
    if (places_are_lsns && header.lsn != at) || u64::from(header.length) > until.since(at) {
        return Ok(false);
    }
    let mut bytes = vec![0; header.length as usize];
    read(at, &mut bytes)?;
    Ok(Block::parse(&bytes, header.lsn).is_ok())
}
