//! Version arrays: for each record that a block in the window writes, the stamps of its versions
//! there, ascending, each with its block (Record-Replay, section 4.5).
//!
//! Blocks enter and leave in the order of stamps, so an array grows at its end and shrinks at its
//! front, and a reader finds the version below its snapshot by binary search. Most records have one
//! version in the window, and no array.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crossbeam_utils::CachePadded;
use freshet_base::{Fid, IdHasher, Rid, Stamp};

use super::pending::Pending;

/// Into how many shards records are divided. A power of two.
const SHARDS: usize = 64;

/// A shard with room for no more records than this is not made smaller.
const LEAST: usize = 1024;

/// A version that a block in the window makes.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// The record's address.
    pub stamp: Stamp,
    /// Which of the block's records.
    pub number: u32,
    pub block: Arc<Pending>,
}

/// The versions of one record, ascending.
#[derive(Debug)]
enum Versions {
    One(Version),
    Many(VecDeque<Version>),
}

impl Versions {
    fn last(&self) -> &Version {
        match self {
            Self::One(version) => version,
            Self::Many(versions) => versions.back().expect("it holds more than none"),
        }
    }

    /// The newest below a stamp.
    fn below(&self, stamp: Stamp) -> Option<&Version> {
        match self {
            Self::One(version) => Some(version).filter(|version| version.stamp < stamp),
            Self::Many(versions) => {
                let above = versions.partition_point(|version| version.stamp < stamp);
                above.checked_sub(1).map(|place| &versions[place])
            }
        }
    }

    fn push(&mut self, version: Version) {
        debug_assert!(self.last().stamp < version.stamp, "blocks enter in the order of stamps");
        match self {
            Self::One(first) => *self = Self::Many(VecDeque::from([first.clone(), version])),
            Self::Many(versions) => versions.push_back(version),
        }
    }

    /// Drops those below a stamp; returns whether none is left.
    fn drop_below(&mut self, stamp: Stamp) -> bool {
        match self {
            Self::One(version) => version.stamp < stamp,
            Self::Many(versions) => {
                while versions.pop_front_if(|version| version.stamp < stamp).is_some() {}
                versions.is_empty()
            }
        }
    }

    /// Drops those at or above a stamp; returns whether none is left.
    fn drop_from(&mut self, stamp: Stamp) -> bool {
        match self {
            Self::One(version) => version.stamp >= stamp,
            Self::Many(versions) => {
                while versions.pop_back_if(|version| version.stamp >= stamp).is_some() {}
                versions.is_empty()
            }
        }
    }
}

type Records = HashMap<(Fid, Rid), Versions, BuildHasherDefault<IdHasher>>;

/// All version arrays.
pub(crate) struct VersionArrays(Box<[CachePadded<Mutex<Records>>]>);

impl std::fmt::Debug for VersionArrays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VersionArrays({} shards)", self.0.len())
    }
}

impl VersionArrays {
    pub fn new() -> Self {
        Self((0..SHARDS).map(|_| CachePadded::default()).collect())
    }

    fn shard(&self, (fid, rid): (Fid, Rid)) -> MutexGuard<'_, Records> {
        let mut hasher = IdHasher::default();
        hasher.write_u32(fid.0);
        hasher.write_u64(rid.0);
        // The low bits place records within a map.
        let shard = &self.0[(hasher.finish() >> 40) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stamp of the newest version of a record, if one is here.
    pub fn newest(&self, record: (Fid, Rid)) -> Option<Stamp> {
        self.shard(record).get(&record).map(|versions| versions.last().stamp)
    }

    /// The newest version of a record below `stamp`, among those here.
    pub fn below(&self, record: (Fid, Rid), stamp: Stamp) -> Option<Version> {
        self.shard(record).get(&record)?.below(stamp).cloned()
    }

    /// Enters what a block writes. Blocks come in the order of stamps. `replaces` is told the
    /// number of each of its records that had a version here, and that one's stamp.
    pub fn enter(&self, block: &Arc<Pending>, mut replaces: impl FnMut(usize, Stamp)) {
        for (number, written) in block.written().iter().enumerate() {
            let record = (written.fid, written.rid);
            let stamp = written.address(block.stamp());
            let version = Version { stamp, number: number as u32, block: Arc::clone(block) };
            match self.shard(record).entry(record) {
                Entry::Occupied(mut there) => {
                    replaces(number, there.get().last().stamp);
                    there.get_mut().push(version);
                }
                Entry::Vacant(free) => {
                    free.insert(Versions::One(version));
                }
            }
        }
    }

    /// Forgets what a block has entered; all blocks below it were forgotten.
    pub fn leave(&self, block: &Pending) {
        self.forget(block, |versions| versions.drop_below(block.end()));
    }

    /// The same where all blocks above it were forgotten.
    pub fn cut(&self, block: &Pending) {
        self.forget(block, |versions| versions.drop_from(block.stamp()));
    }

    fn forget(&self, block: &Pending, drops_all: impl Fn(&mut Versions) -> bool) {
        for written in block.written() {
            let record = (written.fid, written.rid);
            let mut shard = self.shard(record);
            if let Entry::Occupied(mut there) = shard.entry(record)
                && drops_all(there.get_mut())
            {
                there.remove();
                // What a load has left would keep the others apart, and out of the caches.
                if shard.capacity() > LEAST && shard.len() < shard.capacity() / 8 {
                    let wanted = 2 * shard.len();
                    shard.shrink_to(wanted);
                }
            }
        }
    }
}
