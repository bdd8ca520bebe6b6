//! Filling a memory that no other node can reach: the mirror itself puts the rows of a checkpoint
//! there, without undo. What it has then counts when a superblock says so ([`crate::begin_feed`]).

use freshet_fabric::{Place, landing::Landing, memory::Region};

use crate::{
    ARENAS, Layout, List, NoRoom, Record,
    chunks::Chunks,
    own::{Here, Own},
};

/// A memory that is filled, from nothing on.
pub struct Filling {
    own: Own,
    /// What a record takes.
    list: List,
    /// Where the memory is to be durable, its lines are flushed. The fence is
    /// [`crate::begin_feed`]'s, by the same thread.
    landing: Landing,
}

impl std::fmt::Debug for Filling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filling({} regions)", self.own.memory.len())
    }
}

impl Filling {
    /// Of this memory, in which nothing is but zeros: a head, an undo ring, and arenas.
    pub fn new(memory: Vec<Region>) -> Self {
        let layout = Layout::new(Chunks::capacity(&memory[..]));
        let mut own = Own { memory, layout };
        for region in ARENAS..own.memory.len() {
            own.layout.grow(region, own.length(region));
        }
        Self { own, list: List::default(), landing: Landing::default() }
    }

    /// There is another arena.
    pub fn grow(&mut self, arena: Region) {
        self.own.grow(arena);
    }

    /// Puts a record where it belongs. If it comes twice, the last time counts.
    ///
    /// # Errors
    /// [`NoRoom`]; it can be put again when there is.
    pub fn put(&mut self, record: &Record<'_>) -> Result<(), NoRoom> {
        self.lay_out(record)?;
        self.own.write(self.list.writes(), &mut self.landing);
        self.landed();
        Ok(())
    }

    /// Decides what is to be written for a record.
    ///
    /// # Errors
    /// [`NoRoom`]; it can be laid out again when there is.
    pub fn lay_out(&mut self, record: &Record<'_>) -> Result<(), NoRoom> {
        let Self { own, list, .. } = self;
        own.layout.put(record, &mut Here(&own.memory), list)?;
        // Nothing is undone here.
        own.layout.committed(record.address.plus(1));
        Ok(())
    }

    /// What is to be written: all of it before the next record is laid out.
    pub fn writes(&self) -> impl Iterator<Item = (Place, &[u8])> {
        self.list.writes()
    }

    /// It was written.
    pub fn landed(&mut self) {
        self.list.clear();
    }
}
