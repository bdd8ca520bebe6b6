//! Fetched: the end of the log that a mirror has taken in when it takes over. The log of its term
//! begins with that, so that others can follow which have no more than it had.

use freshet_base::Lsn;

/// The end of the log, as it was fetched: whole transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedLog {
    /// Where it begins.
    pub from: Lsn,
    /// Its blocks.
    pub blocks: Vec<u8>,
}

impl FetchedLog {
    fn end(&self) -> Lsn {
        self.from.plus(self.blocks.len() as u64)
    }

    /// Appends what begins at `from`. If that does not follow, or all would be more than `most`
    /// bytes, this begins there, unless it is within a transaction: then it is empty.
    pub(crate) fn append(&mut self, from: Lsn, blocks: &[u8], most: u64, is_within: bool) {
        let follows = from == self.end() && !self.blocks.is_empty();
        if !follows || (self.blocks.len() + blocks.len()) as u64 > most {
            self.blocks.clear();
            self.from = from;
            if is_within || blocks.len() as u64 > most {
                return;
            }
        }
        self.blocks.extend_from_slice(blocks);
    }

    /// That of a log which ends there.
    #[must_use]
    pub fn up_to(mut self, end: Lsn) -> Self {
        if self.from >= end || self.end() < end {
            return Self { from: end, blocks: Vec::new() };
        }
        self.blocks.truncate(end.since(self.from) as usize);
        self
    }
}
