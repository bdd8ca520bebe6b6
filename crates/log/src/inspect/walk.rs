//! From block to block in one stream, and over what is no block.

use std::path::PathBuf;

use freshet_base::{Lsn, NodeId, Term};

use crate::{
    block::{BLOCK_ALIGN, BLOCK_HEADER, Block, BlockError, BlockHeader, RecordHeader},
    scan::{CHUNK, LogSource, find_block, look_behind},
    segments::StoreError,
};

/// What lies at a place.
pub(super) enum Step {
    Block {
        at: Lsn,
        header: BlockHeader,
        begins_term: Option<(Term, NodeId)>,
        time: Option<u64>,
        records: Vec<(Lsn, RecordHeader)>,
    },
    /// No block; the walk continues behind it.
    Bad { at: Lsn, why: BlockError },
    /// Nothing but zeros comes.
    End { at: Lsn },
}

pub(super) struct Walk {
    source: Box<dyn LogSource>,
    at: Lsn,
    until: Lsn,
    /// Bytes of the source from `window_at` on.
    window: Vec<u8>,
    window_at: Lsn,
}

impl Walk {
    pub(super) fn new(source: Box<dyn LogSource>) -> Self {
        let (at, until) = source.extent().unwrap_or_default();
        Self { source, at, until, window: Vec::new(), window_at: at }
    }

    pub(super) fn locate(&self, at: Lsn) -> (PathBuf, u64) {
        self.source.locate(at)
    }

    /// On to the first block: where segments were removed, what is kept begins within one.
    pub(super) fn seek(&mut self) -> Result<(), StoreError> {
        let block = find_block(&*self.source, self.at, self.until)?;
        let rest = || look_behind(&*self.source, self.at, self.until);
        self.at = match block {
            Some(block) => block,
            // The end of one block, and no other.
            None => rest()?.written_to.map_or(self.at, |end| Lsn(end.0.next_multiple_of(BLOCK_ALIGN as u64))),
        };
        Ok(())
    }

    /// The LSN of the first block that comes. The walk stays where it is.
    pub(super) fn first_lsn(&mut self) -> Result<Option<Lsn>, StoreError> {
        let from = self.at;
        let lsn = loop {
            match self.next()? {
                Step::Block { header, .. } => break Some(header.lsn),
                Step::Bad { .. } => {}
                Step::End { .. } => break None,
            }
        };
        self.at = from;
        Ok(lsn)
    }

    /// Whether there are zeros where the first block would be: a log may begin behind the start of
    /// its first segment.
    pub(super) fn begins_later(&mut self) -> Result<bool, StoreError> {
        Ok(self.bytes(self.at, BLOCK_HEADER as u64)?.iter().all(|byte| *byte == 0))
    }

    /// As many bytes from `at` on as are there, `length` at most.
    fn bytes(&mut self, at: Lsn, length: u64) -> Result<&[u8], StoreError> {
        let left = self.until.since(at);
        let length = length.min(left);
        let held = self.window_at.plus(self.window.len() as u64);
        if at < self.window_at || at.plus(length) > held {
            self.window.resize(length.max((CHUNK as u64).min(left)) as usize, 0);
            self.window_at = at;
            if let Err(error) = self.source.read(at, &mut self.window) {
                self.window.clear();
                return Err(error);
            }
        }
        let from = at.since(self.window_at) as usize;
        Ok(&self.window[from..from + length as usize])
    }

    /// What comes next.
    pub(super) fn next(&mut self) -> Result<Step, StoreError> {
        let at = self.at;
        let why = match self.block(at)? {
            Ok((step, end)) => {
                self.at = end;
                return Ok(step);
            }
            Err(why) => why,
        };
        let Some(written_to) = look_behind(&*self.source, at, self.until)?.written_to else {
            return Ok(Step::End { at });
        };
        // Behind the last block there may be more that is none: then the walk has nothing but zeros
        // before it.
        self.at = find_block(&*self.source, at.plus(BLOCK_ALIGN as u64), written_to)?.unwrap_or(written_to);
        Ok(Step::Bad { at, why })
    }

    fn block(&mut self, at: Lsn) -> Result<Result<(Step, Lsn), BlockError>, StoreError> {
        let header = match BlockHeader::peek(self.bytes(at, BLOCK_HEADER as u64)?) {
            Ok(header) => header,
            Err(why) => return Ok(Err(why)),
        };
        let lsn = if self.source.places_are_lsns() { at } else { header.lsn };
        let bytes = self.bytes(at, u64::from(header.length))?;
        Ok(Block::parse(bytes, lsn).map(|block| {
            let records = block.records().map(|record| (record.address, record.header)).collect();
            let header = *block.header();
            let end = at.plus(u64::from(header.length));
            (Step::Block { at, header, begins_term: block.begins_term(), time: block.time(), records }, end)
        }))
    }
}
