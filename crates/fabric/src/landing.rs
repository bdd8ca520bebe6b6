//! Makes durable what was written into memory that is to be durable: lines are flushed as they are
//! written, and waited for where the order demands it, and before a list has completed.
//!
//! The thread that stores does so: on `shm` the one that posts, on `tcp` the one that receives
//! (Query Fresh, section 2.3, asks for either the writer's or the receiver's flushes, since a
//! completion says nothing of caches).

use freshet_base::words;

use crate::{
    Place, Write,
    memory::{Region, store_around},
};

/// Pieces from this length on, in bytes, are copied around the caches.
const AROUND: usize = 4096;

/// What one thread has written through one connection.
#[derive(Debug, Default)]
pub struct Landing {
    /// Lines were flushed since the last fence, in this region at last.
    unfenced: Option<usize>,
}

impl Landing {
    /// Copies what a write of a list writes, which is within its region.
    pub fn put(&mut self, regions: &[Region], write: &Write<'_>) {
        if write.fenced {
            self.fence(regions);
        }
        let (words, mut at) = (regions[write.to.region].words(), write.to.offset as usize);
        for piece in write.pieces {
            // What is long is not worth a place in this processor's caches; what is short is looked
            // at at once over there.
            if piece.len() >= AROUND {
                store_around(words, at, piece);
            } else {
                words::store_among(words, at, piece);
            }
            at += piece.len();
        }
        self.stored(regions, write.to, write.length());
    }

    /// `length` bytes were stored at `to`, which is within its region.
    pub fn stored(&mut self, regions: &[Region], to: Place, length: u64) {
        if length > 0 && regions[to.region].method().is_some() {
            regions[to.region].flush(to.offset as usize, length as usize);
            self.unfenced = Some(to.region);
        }
    }

    /// Waits until all of it is durable that is to be.
    pub fn fence(&mut self, regions: &[Region]) {
        if let Some(region) = self.unfenced.take() {
            regions[region].fence();
        }
    }
}
