//! Filling a memory that no other node can reach: the mirror itself puts the rows of a checkpoint
//! there, without undo. What it has then counts when a superblock says so ([`crate::begin_feed`]).

use std::convert::Infallible;

use freshet_fabric::{Place, Write, landing::Landing, memory::Region};

use crate::{
    ARENAS, Before, Layout, List, NoRoom, NotPut, Record,
    chunks::{Bytes, Chunks, Lengths},
};

/// A memory that is filled, from nothing on.
pub struct Filling {
    memory: Vec<Region>,
    layout: Layout,
    /// What a record takes.
    list: List,
    /// Where the memory is to be durable, its lines are flushed. The fence is
    /// [`crate::begin_feed`]'s, by the same thread.
    landing: Landing,
}

impl std::fmt::Debug for Filling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filling({} regions)", self.memory.len())
    }
}

/// What lies in memory that this process has.
pub(crate) struct Here<'m>(pub &'m [Region]);

impl Before for Here<'_> {
    type Error = Infallible;

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), Infallible> {
        self.0.load(from, into);
        Ok(())
    }
}

impl Filling {
    /// Of this memory, in which nothing is but zeros: a head, an undo ring, and arenas.
    pub fn new(memory: Vec<Region>) -> Self {
        let mut layout = Layout::new(Chunks::capacity(&memory[..]));
        for region in ARENAS..memory.len() {
            layout.grow(region, memory[..].length(region));
        }
        Self { memory, layout, list: List::default(), landing: Landing::default() }
    }

    /// There is another arena.
    pub fn grow(&mut self, arena: Region) {
        self.memory.push(arena);
        let region = self.memory.len() - 1;
        self.layout.grow(region, self.memory[..].length(region));
    }

    /// Puts a record where it belongs. If it comes twice, the last time counts.
    ///
    /// # Errors
    /// [`NoRoom`]; it can be put again when there is.
    pub fn put(&mut self, record: &Record<'_>) -> Result<(), NoRoom> {
        self.layout.put(record, &mut Here(&self.memory), &mut self.list).map_err(|why| match why {
            NotPut::NoRoom(why) => why,
            NotPut::Before(never) => match never {},
        })?;
        for (to, bytes) in self.list.writes() {
            self.landing.put(&self.memory, &Write { to, pieces: &[bytes], immediate: None, fenced: false });
        }
        self.list.clear();
        // Nothing is undone here.
        self.layout.committed(record.address.plus(1));
        Ok(())
    }
}
