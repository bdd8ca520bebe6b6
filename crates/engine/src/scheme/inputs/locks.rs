//! Locks on records, granted in the order of the log: Calvin's deterministic locking, a baseline
//! (Record-Replay, sections 3 and 6; there, too, the queues are in the place of version arrays).
//!
//! A block asks for all its locks when it enters: exclusive ones on what it writes, shared ones on
//! what its transaction has read on the primary and does not write. It may be executed when it has
//! all of them, and gives them back when its versions are there. Requests come in the order of
//! LSNs, so a block waits for blocks below alone, and the lowest waits for none.
//!
//! A record's queue is behind the mutex of its shard. One shard is locked at a time, and nothing
//! else under it. A block counts the locks that it lacks, and one more until it has asked for all:
//! the thread that takes the last away says that it is ready, once.
//!
//! What versions give without more, holds here too: an execution reads at its snapshots, and finds
//! versions that later blocks have not replaced. So what a queue adds is the waits of Calvin, and
//! their cost: a reader keeps later writers from being executed, as where each record has one
//! version.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry as Slot},
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, SeqCst},
        },
    },
};

use super::pending::{Pending, Written};
use crossbeam_utils::CachePadded;
use freshet_base::{Fid, IdHasher, Rid};

/// Into how many shards records are divided. A power of two.
const SHARDS: usize = 64;

/// A lock on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Want {
    record: (Fid, Rid),
    exclusive: bool,
}

/// The locks of a block.
#[derive(Debug)]
pub(crate) struct Locking {
    /// Each record once.
    wants: Box<[Want]>,
    /// How many of them it has not got, and one more until it has asked for all.
    lacks: AtomicUsize,
    /// It has given them back, or does not want them any more.
    over: AtomicBool,
}

impl Locking {
    /// Of a block that writes these, and whose transaction has read these records.
    pub fn new(reads: Vec<(Fid, Rid)>, written: &[Written]) -> Self {
        let written = written.iter().map(|written| Want { record: (written.fid, written.rid), exclusive: true });
        let read = reads.into_iter().map(|record| Want { record, exclusive: false });
        let mut wants: Vec<Want> = written.chain(read).collect();
        // Of each record the exclusive one first, which stays.
        wants.sort_unstable_by_key(|want| (want.record, !want.exclusive));
        wants.dedup_by_key(|want| want.record);
        let lacks = AtomicUsize::new(wants.len() + 1);
        Self { wants: wants.into(), lacks, over: AtomicBool::new(false) }
    }

    /// It has got `count` more; returns whether it has all.
    fn got(&self, count: usize) -> bool {
        self.lacks.fetch_sub(count, AcqRel) == count
    }
}

/// Who has the lock of a record, and who waits for it.
#[derive(Debug)]
struct Queue {
    /// How many have it: one alone, if it is exclusive.
    holders: usize,
    exclusive: bool,
    /// In the order of LSNs.
    waiting: VecDeque<(Arc<Pending>, bool)>,
}

impl Queue {
    /// One holder less. Those whose turn it is have the lock then, and are told of; returns whether
    /// none has it.
    fn give_back(&mut self, mut granted: impl FnMut(Arc<Pending>)) -> bool {
        self.holders -= 1;
        if self.holders > 0 {
            return false;
        }
        let Some((first, exclusive)) = self.waiting.pop_front() else { return true };
        (self.holders, self.exclusive) = (1, exclusive);
        granted(first);
        while !exclusive && let Some((next, _)) = self.waiting.pop_front_if(|(_, exclusive)| !*exclusive) {
            self.holders += 1;
            granted(next);
        }
        false
    }
}

type Queues = HashMap<(Fid, Rid), Queue, BuildHasherDefault<IdHasher>>;

/// The locks on all records.
pub(crate) struct Locks(Box<[CachePadded<Mutex<Queues>>]>);

impl Locks {
    pub fn new() -> Self {
        Self((0..SHARDS).map(|_| CachePadded::default()).collect())
    }

    fn shard(&self, (fid, rid): (Fid, Rid)) -> MutexGuard<'_, Queues> {
        let mut hasher = IdHasher::default();
        hasher.write_u32(fid.0);
        hasher.write_u64(rid.0);
        // The low bits place records within a map.
        let shard = &self.0[(hasher.finish() >> 40) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block asks for its locks; those below have. Returns whether it has them at once.
    pub fn ask(&self, block: &Arc<Pending>) -> bool {
        let Some(locking) = block.locking() else { return true };
        let mut got = 1;
        for Want { record, exclusive } in &locking.wants {
            match self.shard(*record).entry(*record) {
                Slot::Vacant(free) => {
                    free.insert(Queue { holders: 1, exclusive: *exclusive, waiting: VecDeque::new() });
                    got += 1;
                }
                Slot::Occupied(mut there) => {
                    let queue = there.get_mut();
                    if queue.exclusive || *exclusive || !queue.waiting.is_empty() {
                        queue.waiting.push_back((Arc::clone(block), *exclusive));
                    } else {
                        queue.holders += 1;
                        got += 1;
                    }
                }
            }
        }
        locking.got(got)
    }

    /// A block gives its locks back. Adds those blocks to `ready` that have all of theirs now.
    pub fn give_back(&self, block: &Pending, ready: &mut Vec<Arc<Pending>>) {
        self.leave(block, |_| false, ready);
    }

    /// A block that is cut off wants no locks any more; no block above it does.
    pub fn withdraw(&self, block: &Pending, ready: &mut Vec<Arc<Pending>>) {
        let waits = |queue: &mut Queue| {
            let last = queue.waiting.pop_back_if(|(last, _)| std::ptr::eq(&**last, block));
            last.is_some()
        };
        self.leave(block, waits, ready);
    }

    /// A block leaves all its queues: where `waits` does not say that it has been taken out of
    /// those who wait, it has the lock.
    fn leave(&self, block: &Pending, waits: impl Fn(&mut Queue) -> bool, ready: &mut Vec<Arc<Pending>>) {
        let Some(locking) = block.locking() else { return };
        if locking.over.swap(true, SeqCst) {
            return;
        }
        for Want { record, .. } in &locking.wants {
            let mut shard = self.shard(*record);
            let Slot::Occupied(mut there) = shard.entry(*record) else { continue };
            let granted = |next: Arc<Pending>| {
                if next.locking().is_some_and(|locking| locking.got(1)) {
                    ready.push(next);
                }
            };
            if !waits(there.get_mut()) && there.get_mut().give_back(granted) {
                there.remove();
            }
        }
    }
}
