//! Taking in: a mirror that no other node feeds puts the end of a log into its own memory, as a
//! feeder would: undo entries, then what changes. So whatever ends it on the way,
//! [`crate::recover`] brings the memory to the end of a transaction.

use std::sync::Arc;

use freshet_base::Stamp;
use freshet_fabric::{landing::Landing, memory::Region};

use crate::{
    Batch, Build, Contents, Damaged, Layout, NoRoom, Ring, RingFull,
    directory::UNDO,
    own::{Here, Own},
};

/// A memory that takes the log in.
#[derive(Debug)]
pub struct Taking {
    own: Own,
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
        let lengths: Vec<_> = memory.iter().map(|region| region.words().len() as u64 * 8).collect();
        let mut layout = Layout::of(&description, &lengths)?;
        layout.committed(base);
        Ok(Self { own: Own { memory, layout }, ring: Ring::new(lengths[UNDO]), build: Build::new() })
    }

    /// No batch may have more bytes of log: what it destroys is about as long.
    pub fn longest(&self) -> u64 {
        self.own.length(UNDO) / 2
    }

    /// There is another arena.
    pub fn grow(&mut self, arena: Region) {
        self.own.grow(arena);
    }

    /// A feed has begun once more, at `base`: what is there stays, and the undo ring is empty.
    pub fn begun_again(&mut self, base: Stamp) {
        self.ring = Ring::new(self.own.length(UNDO));
        self.own.layout.committed(base);
    }

    /// Begins with the next batch.
    pub fn begin(&mut self, batch: Batch) {
        drop(self.build.begin(Arc::new(batch)));
    }

    /// Puts the batch into the memory; where that is to be durable, it is when this returns.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn put(&mut self) -> Result<(), NotTaken> {
        let Self { own, ring, build } = self;
        build.put(&mut own.layout, &mut Here(&own.memory)).map_err(NoRoom::from)?;
        build.enter(ring)?;
        let mut landing = Landing::default();
        own.write(build.undo(), &mut landing);
        landing.fence(&own.memory);
        own.write(build.changes(), &mut landing);
        landing.fence(&own.memory);
        Ok(())
    }
}
