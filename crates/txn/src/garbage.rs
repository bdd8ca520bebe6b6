//! Versions and records that go when nobody can see them any more.

use std::collections::VecDeque;

use freshet_base::{Fid, Rid, Stamp};
use freshet_storage::{Guard, ReadContext};

use crate::{core::Core, rids::Rids};

/// A record whose version below `stamp` goes once every snapshot sees the one at `stamp`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Garbage {
    pub(crate) fid: Fid,
    pub(crate) rid: Rid,
    pub(crate) stamp: Stamp,
}

/// One worker's garbage, oldest first.
#[derive(Debug, Default)]
pub(crate) struct GarbageQueue(VecDeque<Garbage>);

impl GarbageQueue {
    pub(crate) fn push(&mut self, garbage: Garbage) {
        self.0.push_back(garbage);
    }

    /// Takes over what workers left behind that have ended.
    pub(crate) fn adopt(&mut self, core: &Core) {
        if let Ok(mut left) = core.left.try_lock() {
            self.0.extend(left.drain(..));
        }
    }

    pub(crate) fn leave(&mut self, core: &Core) {
        if let Ok(mut left) = core.left.lock() {
            left.extend(self.0.drain(..));
        }
    }

    /// Frees up to `most` records' old versions that nobody can see, and keeps the record ids that get free. Returns
    /// how many records it looked at.
    pub(crate) fn free(
        &mut self,
        most: usize,
        core: &Core,
        guard: &Guard<'_>,
        context: &ReadContext<'_>,
        rids: &mut Rids,
    ) -> usize {
        for done in 0..most {
            match self.0.front() {
                Some(oldest) if oldest.stamp < context.horizon => {}
                _ => return done,
            }
            let garbage = self.0.pop_front().expect("just seen");
            // Of a table that is gone, nothing is left.
            let Some(content) = core.content(guard, garbage.fid) else { continue };
            if let Some(reclaimed) = content.trim(guard, garbage.rid, context.horizon) {
                rids.put(garbage.fid, reclaimed);
            }
        }
        most
    }
}
