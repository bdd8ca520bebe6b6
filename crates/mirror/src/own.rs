//! A memory that this process has, and writes by itself: to fill it, or to take the log in.

use std::convert::Infallible;

use freshet_fabric::{Place, Write, landing::Landing, memory::Region};

use crate::{
    Before, Layout, NoRoom, NotPut,
    chunks::{Bytes, Lengths},
};

/// What lies in memory that this process has.
#[derive(Debug)]
pub struct Here<'m>(pub &'m [Region]);

impl Before for Here<'_> {
    type Error = Infallible;

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), Infallible> {
        self.0.load(from, into);
        Ok(())
    }
}

impl From<NotPut<Infallible>> for NoRoom {
    fn from(why: NotPut<Infallible>) -> Self {
        match why {
            NotPut::NoRoom(why) => why,
            NotPut::Before(never) => match never {},
        }
    }
}

/// A memory, and what lies where in it.
#[derive(Debug)]
pub(crate) struct Own {
    pub memory: Vec<Region>,
    pub layout: Layout,
}

impl Own {
    /// There is another arena.
    pub fn grow(&mut self, arena: Region) {
        self.memory.push(arena);
        let region = self.memory.len() - 1;
        self.layout.grow(region, self.length(region));
    }

    /// How long a region is.
    pub fn length(&self, region: usize) -> u64 {
        self.memory[..].length(region)
    }

    /// Carries a list out. Where the memory is to be durable, lines are flushed, and no fence is
    /// waited for.
    pub fn write<'l>(&self, list: impl Iterator<Item = (Place, &'l [u8])>, landing: &mut Landing) {
        for (to, bytes) in list {
            landing.put(&self.memory, &Write { to, pieces: &[bytes], immediate: None, fenced: false });
        }
    }
}
