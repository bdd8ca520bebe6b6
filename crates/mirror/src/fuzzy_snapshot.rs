//! Fuzzy snapshot: what a mirror has, read for another node while the primary writes on.
//!
//! It is fuzzy, as a checkpoint is (SiloR, section 4): it begins at an LSN below which everything
//! that is here is committed, and records that have changed since are left out, since they come
//! with the log from there on. A record that is just being written is read again. Together with
//! the log up to its end, by which all was read, it is a state of the database.
//!
//! If changes are undone while it is read, records were left out that come with no log: then it is
//! to be given up.

use freshet_base::{Fid, Lsn, Rid};
use freshet_fabric::memory::Region;

use crate::{Contents, Damaged};

/// A fuzzy snapshot of a mirror's memory.
#[derive(Debug)]
pub struct FuzzySnapshot {
    memory: Contents,
    start: Lsn,
    /// The newest change that was left out.
    newest: Option<Lsn>,
}

impl FuzzySnapshot {
    /// Of this memory, in which everything below `start` stays.
    ///
    /// # Errors
    /// [`Damaged`]; the directory's entries may just be written.
    pub fn begin(memory: Vec<Region>, start: Lsn) -> Result<Self, Damaged> {
        Ok(Self { memory: Contents::open(memory, start)?, start, newest: None })
    }

    /// Where it begins.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// The newest change so far that was left out.
    pub fn newest(&self) -> Option<Lsn> {
        self.newest
    }

    /// The chunks of records, and whose table's they are.
    pub fn chunks(&self) -> impl Iterator<Item = (Fid, usize)> {
        (0..self.memory.chunk_count()).filter_map(|chunk| Some((self.memory.table(chunk)?, chunk)))
    }

    /// Calls `visit` for the records of a chunk that have not changed since the start, deleted ones
    /// with no row; `again` is asked when one is not whole, whether to read it once more.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn visit(
        &mut self,
        chunk: usize,
        again: impl FnMut() -> bool,
        visit: impl FnMut(Rid, Lsn, Option<&[u8]>),
    ) -> Result<(), Damaged> {
        let newest = self.memory.visit_below(chunk, again, visit)?;
        self.newest = self.newest.max(newest);
        Ok(())
    }

    /// Where it ends at the earliest, when everything was read: all that was left out lies below.
    pub fn least(&self) -> Lsn {
        self.newest.map_or(self.start, |newest| newest.plus(1).max(self.start))
    }
}
