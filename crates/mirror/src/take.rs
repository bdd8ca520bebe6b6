//! Taking in: a mirror that no other node feeds puts the end of a log into its own memory, as a
//! feeder would: undo entries, then what changes. So whatever ends it on the way,
//! [`crate::recover`] brings the memory to the end of a transaction.

use std::sync::Arc;

use freshet_base::{Stamp, Term};
use freshet_fabric::{Write, landing::Landing, memory::Region};

use crate::{
    Batch, Build, Contents, Damaged, Layout, NoRoom, NotPut, Ring, RingFull, chunks::Lengths, directory::UNDO,
    fill::Here,
};

/// A memory that takes the log in.
#[derive(Debug)]
pub struct Taking {
    memory: Vec<Region>,
    layout: Layout,
    ring: Ring,
    build: Build,
}

/// Why a batch is not in the memory yet. It can be put again when that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// There is no room for it.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The undo ring has no room for what it writes over.
    #[error(transparent)]
    Undo(#[from] RingFull),
}

impl Taking {
    /// Of this memory, where a feed [has begun](crate::begin_feed) at `base`.
    ///
    /// # Errors
    /// [`Damaged`] when it is no mirror.
    pub fn new(memory: Vec<Region>, base: Stamp) -> Result<Self, Damaged> {
        let description = Contents::open(memory.clone(), base)?.description()?;
        let lengths: Vec<_> = (0..memory.len()).map(|region| memory[..].length(region)).collect();
        let mut layout = Layout::of(&description, &lengths)?;
        layout.committed(base);
        Ok(Self { memory, layout, ring: Ring::new(lengths[UNDO]), build: Build::new() })
    }

    /// No batch may have more bytes of log: what it destroys is about as long.
    pub fn longest(&self) -> u64 {
        self.memory[..].length(UNDO) / 2
    }

    /// There is another arena.
    pub fn grow(&mut self, arena: Region) {
        self.memory.push(arena);
        let region = self.memory.len() - 1;
        self.layout.grow(region, self.memory[..].length(region));
    }

    /// A feed has begun once more, at `base`: what is there stays, and the undo ring is empty.
    pub fn begun_again(&mut self, base: Stamp) {
        self.ring = Ring::new(self.memory[..].length(UNDO));
        self.layout.committed(base);
    }

    /// Begins with the next batch.
    pub fn begin(&mut self, batch: Batch) {
        drop(self.build.begin(Arc::new(batch)));
    }

    /// Puts the batch into the memory; where that is to be durable, it is when this returns.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn put(&mut self, term: Term) -> Result<(), NotTaken> {
        let put = self.build.put(&mut self.layout, &mut Here(&self.memory));
        put.map_err(|why| match why {
            NotPut::NoRoom(why) => why,
            NotPut::Before(never) => match never {},
        })?;
        self.build.enter(&mut self.ring, term)?;
        let mut landing = Landing::default();
        for (to, bytes) in self.build.undo() {
            landing.put(&self.memory, &Write { to, pieces: &[bytes], immediate: None, fenced: false });
        }
        landing.fence(&self.memory);
        for (to, bytes) in self.build.changes() {
            landing.put(&self.memory, &Write { to, pieces: &[bytes], immediate: None, fenced: false });
        }
        landing.fence(&self.memory);
        Ok(())
    }
}
