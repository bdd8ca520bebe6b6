//! Version arrays: for each record that a block in the window writes, the LSNs of its versions
//! that are not in the tables yet, ascending, each with its block (Record-Replay, section 4.5).
//!
//! Blocks enter in the order of LSNs, so an array grows at its end, and a reader finds the
//! version below its snapshot by binary search. Versions go when they are made, about in that
//! order. Most records have one version that is to come, and no array.
//!
//! The paper compares that with chains, as stores of several versions have them: each version leads
//! to the next older one, and a reader of a record that is written often goes down one by one
//! (section 6.4.2). [`Layout::Chains`] is there for that comparison.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crossbeam_utils::CachePadded;
use freshet_base::{Fid, IdHasher, Lsn, Rid};

use super::pending::Pending;

/// Into how many shards records are divided. A power of two.
const SHARDS: usize = 64;

/// A shard with room for no more records than this is not made smaller.
const LEAST: usize = 1024;

/// How the versions of a record are kept that has several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// In an array, found by binary search.
    #[default]
    Arrays,
    /// In a chain, newest first, for comparison.
    Chains,
}

/// A version that a block in the window is going to make.
#[derive(Clone, Debug)]
struct Version {
    /// The record's address.
    lsn: Lsn,
    block: Arc<Pending>,
}

/// Versions of one record, and never none.
#[derive(Debug)]
enum Versions {
    One(Version),
    /// Ascending.
    Array(VecDeque<Version>),
    Chain(Chain),
}

/// A version, and those below it.
#[derive(Debug)]
struct Link {
    version: Version,
    below: Option<Box<Link>>,
}

/// The newest version, if there is one.
#[derive(Debug, Default)]
struct Chain(Option<Box<Link>>);

impl Chain {
    fn push(&mut self, version: Version) {
        self.0 = Some(Box::new(Link { version, below: self.0.take() }));
    }

    fn below(&self, lsn: Lsn) -> (Option<&Version>, usize) {
        let (mut link, mut newer) = (self.0.as_deref(), 0);
        while let Some(above) = link.filter(|link| link.version.lsn >= lsn) {
            link = above.below.as_deref();
            newer += 1;
        }
        (link.map(|link| &link.version), newer)
    }

    fn remove(&mut self, lsn: Lsn) {
        let mut place = &mut self.0;
        while place.as_ref().is_some_and(|link| link.version.lsn > lsn) {
            place = &mut place.as_mut().expect("it was looked at").below;
        }
        if let Some(link) = place.take_if(|link| link.version.lsn == lsn) {
            *place = link.below;
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // One by one: a long chain would take a long stack.
        while let Some(link) = self.0.take() {
            self.0 = link.below;
        }
    }
}

impl Versions {
    fn newest(&self) -> Option<&Version> {
        match self {
            Self::One(version) => Some(version),
            Self::Array(versions) => versions.back(),
            Self::Chain(chain) => chain.0.as_deref().map(|link| &link.version),
        }
    }

    /// The newest below an LSN, and how many are newer.
    fn below(&self, lsn: Lsn) -> (Option<&Version>, usize) {
        match self {
            Self::One(version) if version.lsn < lsn => (Some(version), 0),
            Self::One(_) => (None, 1),
            Self::Array(versions) => {
                let above = versions.partition_point(|version| version.lsn < lsn);
                (above.checked_sub(1).map(|place| &versions[place]), versions.len() - above)
            }
            Self::Chain(chain) => chain.below(lsn),
        }
    }

    fn push(&mut self, version: Version, layout: Layout) {
        debug_assert!(self.newest().is_none_or(|newest| newest.lsn < version.lsn), "blocks enter in the order of LSNs");
        match (&mut *self, layout) {
            (Self::Array(versions), _) => versions.push_back(version),
            (Self::Chain(chain), _) => chain.push(version),
            (Self::One(first), Layout::Arrays) => *self = Self::Array(VecDeque::from([first.clone(), version])),
            (Self::One(first), Layout::Chains) => {
                let mut chain = Chain::default();
                chain.push(first.clone());
                chain.push(version);
                *self = Self::Chain(chain);
            }
        }
    }

    /// Drops the one with this LSN, if it is here; returns whether none is left.
    fn remove(&mut self, lsn: Lsn) -> bool {
        match self {
            Self::One(version) => version.lsn == lsn,
            Self::Array(versions) => {
                if let Ok(place) = versions.binary_search_by_key(&lsn, |version| version.lsn) {
                    versions.remove(place);
                }
                versions.is_empty()
            }
            Self::Chain(chain) => {
                chain.remove(lsn);
                chain.0.is_none()
            }
        }
    }
}

/// How many versions look-ups have passed by, in records that had some: at place `n`, look-ups by
/// the bit length of that number. The last place counts those above, too.
pub type Passed = [u64; 24];

/// Some of the records.
#[derive(Default)]
struct Shard {
    records: HashMap<(Fid, Rid), Versions, BuildHasherDefault<IdHasher>>,
    passed: Passed,
}

/// All version arrays.
pub(crate) struct VersionArrays {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    layout: Layout,
}

impl std::fmt::Debug for VersionArrays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VersionArrays({} shards, {:?})", self.shards.len(), self.layout)
    }
}

impl VersionArrays {
    pub fn new(layout: Layout) -> Self {
        Self { shards: (0..SHARDS).map(|_| CachePadded::default()).collect(), layout }
    }

    fn shard(&self, (fid, rid): (Fid, Rid)) -> MutexGuard<'_, Shard> {
        let mut hasher = IdHasher::default();
        hasher.write_u32(fid.0);
        hasher.write_u64(rid.0);
        // The low bits place records within a map.
        let shard = &self.shards[(hasher.finish() >> 40) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The LSN of the newest version of a record, if one is here.
    pub fn newest(&self, record: (Fid, Rid)) -> Option<Lsn> {
        self.shard(record).records.get(&record)?.newest().map(|version| version.lsn)
    }

    /// The block that makes the newest version of a record below `lsn`, among those here.
    pub fn below(&self, record: (Fid, Rid), lsn: Lsn) -> Option<Arc<Pending>> {
        let mut shard = self.shard(record);
        let Shard { records, passed } = &mut *shard;
        let (version, newer) = records.get(&record)?.below(lsn);
        passed[((usize::BITS - newer.leading_zeros()) as usize).min(passed.len() - 1)] += 1;
        version.map(|version| Arc::clone(&version.block))
    }

    /// How many versions look-ups have passed by so far.
    pub fn passed(&self) -> Passed {
        let mut all = Passed::default();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter_mut().zip(shard.passed).for_each(|(all, some)| *all += some);
        }
        all
    }

    /// Enters what a block writes. Blocks come in the order of LSNs. `replaces` is told the
    /// number of each of its records that has a version here, and that one's LSN.
    pub fn enter(&self, block: &Arc<Pending>, mut replaces: impl FnMut(usize, Lsn)) {
        for (number, written) in block.written().iter().enumerate() {
            let record = (written.fid, written.rid);
            let version = Version { lsn: written.address(block.lsn()), block: Arc::clone(block) };
            match self.shard(record).records.entry(record) {
                Entry::Occupied(mut there) => {
                    if let Some(newest) = there.get().newest() {
                        replaces(number, newest.lsn);
                    }
                    there.get_mut().push(version, self.layout);
                }
                Entry::Vacant(free) => {
                    free.insert(Versions::One(version));
                }
            }
        }
    }

    /// Forgets what a block has entered.
    pub fn forget(&self, block: &Pending) {
        for written in block.written() {
            let record = (written.fid, written.rid);
            let Shard { records, .. } = &mut *self.shard(record);
            if let Entry::Occupied(mut there) = records.entry(record)
                && there.get_mut().remove(written.address(block.lsn()))
            {
                there.remove();
                // What a load has left would keep the others apart, and out of the caches.
                if records.capacity() > LEAST && records.len() < records.capacity() / 8 {
                    records.shrink_to(2 * records.len());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::{RecordKind, Term};
    use freshet_log::{BlockHeader, BlockKind};
    use freshet_txn::Entry;

    use super::{super::pending::Written, *};

    /// A block at `lsn` that writes these records.
    fn block(lsn: u64, rids: &[u64]) -> Arc<Pending> {
        let entry = |rid: &u64| Entry { fid: Fid(7), rid: Rid(*rid), kind: RecordKind::Update, length: 8, prev: None };
        let entries: Vec<Entry> = rids.iter().map(entry).collect();
        let header = BlockHeader {
            length: 512,
            crc: 0,
            lsn: Lsn(lsn),
            serial_key: lsn,
            term: Term(1),
            record_count: rids.len() as u16,
            kind: BlockKind::Redo,
            stream: 0,
            continued: false,
        };
        Arc::new(Pending::promised(header, Written::of_entries(&entries), None))
    }

    /// Both layouts say what a list of all versions says, whatever goes first.
    #[test]
    fn arrays_and_chains_find_the_same() {
        let passed = [Layout::Arrays, Layout::Chains].map(|layout| {
            let arrays = VersionArrays::new(layout);
            let record = (Fid(7), Rid(1));
            let blocks: Vec<_> = (0..9).map(|number| block(number * 512, &[1, 10 + number])).collect();
            for (number, block) in blocks.iter().enumerate() {
                let mut replaced = Vec::new();
                arrays.enter(block, |record, lsn| replaced.push((record, lsn)));
                let before =
                    number.checked_sub(1).map(|before| blocks[before].written()[0].address(blocks[before].lsn()));
                assert_eq!(replaced, before.map(|lsn| (0, lsn)).into_iter().collect::<Vec<_>>());
            }
            let mut there: Vec<_> = blocks.iter().collect();
            // From the midst, from the front, from the end, and what has gone already.
            for gone in [4, 0, 8, 4, 5, 1, 7, 2, 3, 6] {
                for lsn in (0..=9 * 512).step_by(64).map(Lsn) {
                    let expected = there.iter().rfind(|block| block.written()[0].address(block.lsn()) < lsn);
                    let found = arrays.below(record, lsn);
                    assert_eq!(found.map(|block| block.lsn()), expected.map(|block| block.lsn()), "{layout:?}");
                }
                arrays.forget(&blocks[gone]);
                there.retain(|block| block.lsn() != blocks[gone].lsn());
                let newest = there.last().map(|block| block.written()[0].address(block.lsn()));
                assert_eq!(arrays.newest(record), newest, "{layout:?}");
            }
            assert!(arrays.shards.iter().all(|shard| shard.lock().unwrap().records.is_empty()));
            arrays.passed()
        });
        assert_eq!(passed[0], passed[1]);
        // From none to all nine.
        assert!(passed[0][0] > 0 && passed[0][1] > 0 && passed[0][4] > 0 && passed[0][5] == 0, "{passed:?}");
    }
}
