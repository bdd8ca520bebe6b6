//! Taking in: a mirror that no other node feeds puts the end of a log into its own memory, as a
//! feeder would: undo entries, then what changes. So whatever ends it on the way,
//! [`crate::recover`] brings the memory to the end of a transaction.

use std::{collections::VecDeque, sync::Arc};

use freshet_base::{
    Lsn,
    sync::{Ordering, fence},
};
use freshet_fabric::{Place, landing::Landing, memory::Region};

use crate::{
    Batch, Build, Contents, Damaged, FetchedLog, Layout, NoRoom, NotABatch, Ring, RingFull,
    directory::UNDO,
    own::{Here, Own},
};

/// A memory that takes the log in.
#[derive(Debug)]
pub struct Taking {
    own: Own,
    ring: Ring,
    build: Build,
    /// All below is in the memory; and, where transactions end, below this.
    at: Lsn,
    whole: Lsn,
    /// What has arrived since, and ends of blocks in it.
    bytes: Vec<u8>,
    ends: VecDeque<Lsn>,
}

/// Why there is no next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    /// What has arrived is none.
    #[error(transparent)]
    Batch(#[from] NotABatch),
}

/// Why a batch is not in the memory yet. It can be put again when that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// There is no room for it.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The undo ring has no room for what it writes over, and can [grow](Taking::grow_undo).
    #[error(transparent)]
    Undo(#[from] RingFull),
    /// The same, and nothing in the ring has to be undone any more: the node whose log it is has
    /// it, too. So a feed can [begin](crate::begin_feed) where the memory is.
    #[error("a feed has to begin again at {at}, to clear the undo ring")]
    BeginAgain {
        /// Everything below is there, and transactions end there.
        at: Lsn,
    },
}

impl Taking {
    /// Of this memory, where a feed [has begun](crate::begin_feed) at `base`.
    ///
    /// # Errors
    /// [`Damaged`] when it is no mirror.
    pub fn new(memory: Vec<Region>, base: Lsn) -> Result<Self, Damaged> {
        let description = Contents::open(memory.clone(), base)?.description()?;
        let (ring, lengths) = Ring::of(&memory);
        let mut layout = Layout::of(&description, &lengths)?;
        layout.committed(base);
        let (build, own) = (Build::new(), Own { memory, layout });
        Ok(Self { own, ring, build, at: base, whole: base, bytes: Vec::new(), ends: VecDeque::new() })
    }

    /// No batch has more bytes of log, unless a block has: what it destroys is about as long.
    fn longest(&self) -> u64 {
        self.own.length(UNDO) / 2
    }

    /// Where the log ends that has arrived.
    pub fn received(&self) -> Lsn {
        self.at.plus(self.bytes.len() as u64)
    }

    /// Where the next bytes of the log are to be put, this number of them: whole blocks, which end
    /// at `ends`.
    pub fn room(&mut self, length: usize, ends: impl Iterator<Item = Lsn>) -> &mut [u8] {
        let begin = self.bytes.len();
        self.bytes.resize(begin + length, 0);
        self.ends.extend(ends);
        &mut self.bytes[begin..]
    }

    /// There is another arena.
    pub fn grow(&mut self, arena: Region) {
        self.own.grow(arena);
    }

    /// There is another region, which [belongs](crate::note_undo) to the undo ring.
    pub fn grow_undo(&mut self, region: Region) {
        self.own.memory.push(region);
        let region = self.own.memory.len() - 1;
        self.ring.grow(region, self.own.length(region));
    }

    /// A feed has begun once more: what is there stays, and the undo ring is empty.
    pub fn begun_again(&mut self) {
        self.ring = Ring::of(&self.own.memory).0;
        self.own.layout.committed(self.at);
    }

    /// Begins with the next batch of what has arrived. None if more has to arrive first: the
    /// beginning of a transaction is left, unless it is longer than a batch.
    ///
    /// # Errors
    /// [`NotBegun`].
    pub fn begin(&mut self) -> Result<Option<&Batch>, NotBegun> {
        let Some(first) = self.ends.front() else { return Ok(None) };
        let longest = self.longest();
        let fit = self.ends.partition_point(|end| end.since(self.at) <= longest);
        let to = fit.checked_sub(1).map_or(*first, |last| self.ends[last]);
        let (mut batch, length) = (Batch::new(), to.since(self.at) as usize);
        batch.room(length).copy_from_slice(&self.bytes[..length]);
        let extent = batch.begin(self.at, length)?;
        if extent.continues && fit.max(1) == self.ends.len() {
            return Ok(None);
        }
        drop(self.build.begin(Arc::new(batch)));
        Ok(Some(self.build.batch()))
    }

    /// Decides what the batch that was begun is to write.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn lay_out(&mut self) -> Result<(), NotTaken> {
        let Self { own, ring, build, .. } = self;
        build.put(&mut own.layout, &mut Here(&own.memory)).map_err(NoRoom::from)?;
        build.enter(ring).map_err(|full| {
            let is_of_use = self.whole == self.at && full.free < full.all;
            if is_of_use { NotTaken::BeginAgain { at: self.at } } else { NotTaken::Undo(full) }
        })
    }

    /// What it writes, in order: undo entries, and behind a fence what changes.
    pub fn writes(&self) -> impl Iterator<Item = (Place, &[u8])> {
        self.build.list()
    }

    /// Writes that; where the memory is to be durable, it is when this returns.
    pub fn land(&self) {
        let mut landing = Landing::default();
        self.own.write(self.build.undo(), &mut landing);
        landing.fence(&self.own.memory);
        // The process may end at any time, and leave the memory.
        fence(Ordering::SeqCst);
        self.own.write(self.build.changes(), &mut landing);
        landing.fence(&self.own.memory);
    }

    /// The batch is in the memory. Its blocks are kept in `log`, which may have this many bytes.
    pub fn taken(&mut self, log: &mut FetchedLog, most: u64) {
        let extent = self.build.batch().extent();
        let length = extent.to.since(self.at) as usize;
        log.append(self.at, &self.bytes[..length], most, self.whole < self.at);
        self.bytes.drain(..length);
        while self.ends.pop_front_if(|end| *end <= extent.to).is_some() {}
        self.at = extent.to;
        self.whole = extent.kept_to().unwrap_or(self.whole);
    }
}
