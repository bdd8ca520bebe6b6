//! Logs as what they are: sequences of blocks, each with a name and a content, so that two that
//! part are seen to part.

use std::rc::Rc;

use freshet_base::{Lsn, NodeId, Term};
use freshet_cluster::in_sync::InSyncSet;

use crate::{
    content::Does,
    dice::mix,
    mirror::{Content, Id, Row},
};

/// One block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Its LSN.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The term in which it was written.
    pub term: Term,
    /// Who wrote it.
    pub owner: NodeId,
    /// Stands for its bytes: no two blocks are written with the same.
    pub content: u64,
    /// Whether its transaction ends with it.
    pub last: bool,
    /// The in-sync set that it records.
    pub set: Option<Rc<InSyncSet>>,
    /// What it consists of, where that matters.
    pub made: Option<Rc<Content>>,
    /// What it does to tables, where they are executed again.
    pub does: Option<Rc<Does>>,
    /// It comes as inputs, with the keys of these indexes, a bit each; else as its bytes.
    pub form: Option<u8>,
}

impl Block {
    /// One past its last byte.
    pub fn end(&self) -> u64 {
        self.start + self.length
    }

    /// Its bytes; none where they do not matter.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.made.as_ref().map_or(&[], |made| &made.bytes)
    }

    /// What it makes of records, and where in the log that is.
    pub(crate) fn rows(&self) -> &[(Id, Lsn, Row)] {
        self.made.as_ref().map_or(&[], |made| &made.rows)
    }
}

/// A log without gaps, from LSN zero on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    blocks: Vec<Block>,
    /// Of all blocks up to and with each.
    digests: Vec<u64>,
}

impl Log {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.blocks.last().map_or(0, Block::end)
    }

    /// All blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// How many blocks end at or below `at`.
    pub fn count(&self, at: u64) -> usize {
        self.blocks.partition_point(|block| block.end() <= at)
    }

    /// The blocks in `[from, to)`, which both are ends of blocks.
    pub fn between(&self, from: u64, to: u64) -> &[Block] {
        let (from, to) = (self.count(from), self.count(to));
        &self.blocks[from..to.max(from)]
    }

    /// Puts a block behind the last one; returns the digest of the log up to its end.
    ///
    /// # Panics
    /// When it does not begin where the log ends.
    pub fn push(&mut self, block: Block) -> u64 {
        assert_eq!(block.start, self.end(), "a log has no gaps");
        let digest = mix(self.digests.last().copied().unwrap_or(1) ^ mix(block.content));
        self.digests.push(digest);
        self.blocks.push(block);
        digest
    }

    /// Removes what lies at and above `at`; a block that lies across goes too.
    pub fn cut(&mut self, at: u64) {
        let keep = self.count(at);
        self.blocks.truncate(keep);
        self.digests.truncate(keep);
    }

    /// Stands for all bytes below `at`; `None` unless a block ends there.
    pub fn digest(&self, at: u64) -> Option<u64> {
        match self.count(at) {
            0 => (at == 0).then_some(0),
            count => (self.blocks[count - 1].end() == at).then(|| self.digests[count - 1]),
        }
    }

    /// The same for the bytes below `at` of this log with `more` behind it.
    pub fn digest_with(&self, more: &[Block], at: u64) -> Option<u64> {
        if at <= self.end() {
            return self.digest(at);
        }
        let mut digest = self.digests.last().copied().unwrap_or(1);
        for block in more {
            digest = mix(digest ^ mix(block.content));
            if block.end() == at {
                return Some(digest);
            }
        }
        None
    }

    /// The last end of a transaction at or below `at`.
    pub fn transaction_end(&self, at: u64) -> u64 {
        let whole = self.blocks[..self.count(at)].iter().rposition(|block| block.last);
        whole.map_or(0, |index| self.blocks[index].end())
    }

    /// Bytes below `to` were overwritten by others: every block in `[from, to)` is spoilt.
    pub fn spoil(&mut self, from: u64, to: u64) {
        let tail: Vec<Block> = self.blocks[self.count(from)..].to_vec();
        self.cut(from);
        for mut block in tail {
            if block.end() <= to {
                block.content = mix(block.content);
            }
            self.push(block);
        }
    }
}
