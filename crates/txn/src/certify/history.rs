//! What transactions have read and when they came, for those that want to come before them.
//!
//! The safety net asks two things about transactions that have committed (`ssn.rs`): before which
//! transaction does the maker of this version come, and which ones have read what I write? The
//! paper keeps the answers in each version, as two LSNs and a set of readers. Here versions stay
//! as short as they are: each worker keeps a list of what its transactions have read, as hashes,
//! one after another. To add to it costs a transaction next to nothing. Only a transaction whose
//! reads were changed looks through the lists, from the time of the first change on.
//!
//! # Protocol
//!
//! A list is guarded by a mutex that is held briefly. A transaction
//!
//! 1. enters what it has read, as undecided ([`Histories::announce`]);
//! 2. takes its LSN, or, if it has written nothing, looks where the log ends;
//! 3. certifies, and looks through all lists if it has to;
//! 4. enters its LSN ([`Announced::enter`]), or takes its entry away;
//! 5. publishes its outcome.
//!
//! So (a) a transaction that finds the outcome of another one finds its entry decided, and (b) of
//! two transactions, the one with the larger LSN finds the entry of the other one, decided or
//! not, or the other one has failed. For (b), let the other one do its step 1 after this one has
//! looked at the list. Then, by the mutex, it does its step 2 after this one has done its own, and
//! its LSN is not the smaller one. This needs no more of the counter than that it is one variable
//! to which each thread's accesses are in program order and follow the mutex, which they are with
//! any ordering.
//!
//! An undecided entry counts, whatever its LSN will be: this costs one needless abort at most,
//! and no transaction waits for another.
//!
//! What ends below every snapshot is forgotten, and so is the oldest when a list becomes too long
//! ([`KEPT`]). A list remembers up to where that was (`forgotten`); who would have to know of what
//! is below must assume the worst.

use std::{
    collections::{HashSet, VecDeque},
    hash::BuildHasherDefault,
    sync::{Mutex, MutexGuard, PoisonError},
};

use freshet_base::{Fid, IdHasher, Lsn, Rid};

/// How many reads of one worker's transactions are remembered, 8 MiB, and how many transactions, 6
/// MiB.
const KEPT: usize = 1 << 20;
const KEPT_ENTRIES: usize = 1 << 17;
/// After this many the list's owner is let in.
const AT_ONCE: usize = 64 << 10;

/// The lists of a node's workers, by their places.
#[derive(Debug)]
pub(crate) struct Histories(Box<[Place]>);

/// One worker's list, with cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(Mutex<History>);

/// One worker's transactions in the order of their LSNs; an undecided one is the last.
#[derive(Debug, Default)]
struct History {
    entries: VecDeque<Entry>,
    /// Hashes of what they have read.
    reads: VecDeque<u64>,
    /// How many entries were forgotten.
    gone: u64,
    /// How many of their reads.
    gone_reads: u64,
    /// All transactions that were forgotten have smaller LSNs.
    forgotten: Lsn,
}

/// A transaction that has committed, and what of it later ones may depend on.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its LSN, [`Lsn::MAX`] while it is undecided. Of one that has written nothing: the last
    /// place before the next LSN.
    lsn: Lsn,
    /// Where its versions' addresses end.
    end: Lsn,
    /// Before whom it comes in the serial order: π of the paper, its own LSN or a smaller one.
    first: Lsn,
    /// Which is the first of its reads, counted from the list's beginning.
    from: u64,
    /// How many it has read; none when they are too many to be kept: then it counts as having read
    /// everything.
    reads: Option<usize>,
}

impl Entry {
    fn is_undecided(&self) -> bool {
        self.lsn == Lsn::MAX
    }
}

impl History {
    fn forget_oldest(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        let reads = entry.reads.unwrap_or(0);
        self.reads.drain(..reads);
        self.gone += 1;
        self.gone_reads += reads as u64;
        self.forgotten = self.forgotten.max(entry.lsn.plus(1));
    }

    /// Which entry is the first one with at least this LSN.
    fn since(&self, lsn: Lsn) -> usize {
        self.entries.partition_point(|entry| entry.lsn < lsn)
    }

    fn reads_of(&self, entry: &Entry, count: usize) -> impl Iterator<Item = u64> {
        let from = (entry.from - self.gone_reads) as usize;
        self.reads.range(from..from + count).copied()
    }
}

/// What a transaction has written, as others may have read it.
#[derive(Debug, Default)]
pub(crate) struct Written {
    hashes: HashSet<u64, BuildHasherDefault<IdHasher>>,
    /// A bit for each of them, at a place that its upper half says. A power of two.
    filter: Vec<u64>,
}

impl Written {
    pub(crate) fn new(hashes: impl IntoIterator<Item = u64>) -> Self {
        let hashes: HashSet<u64, _> = hashes.into_iter().collect();
        let mut filter = vec![0; (hashes.len() / 4).next_power_of_two().max(8)];
        let mask = filter.len() - 1;
        hashes.iter().for_each(|hash| filter[(hash >> 32) as usize & mask] |= 1 << (hash & 63));
        Self { hashes, filter }
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        let word = self.filter[(hash >> 32) as usize & (self.filter.len() - 1)];
        word >> (hash & 63) & 1 == 1 && self.hashes.contains(&hash)
    }
}

/// A record, as a number. That two have the same costs one needless abort at most.
#[inline]
pub(crate) fn record(fid: Fid, rid: Rid) -> u64 {
    mix(rid.0 ^ u64::from(fid.0).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// The keys of an index that begin alike, as a number for each beginning: of none of their bytes,
/// of the first, and so on.
pub(crate) fn prefixes(fid: Fid, index: usize, key: &[u8]) -> impl Iterator<Item = u64> {
    let mut state = mix(u64::from(fid.0) << 32 | index as u64).wrapping_add(1);
    let rest = key.iter().map(move |byte| {
        // FNV-1a.
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        mix(state)
    });
    std::iter::once(mix(state)).chain(rest)
}

/// The last step of SplitMix64.
#[inline]
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

impl Histories {
    pub(crate) fn new(places: usize) -> Self {
        Self((0..places).map(|_| Place::default()).collect())
    }

    fn of(&self, place: usize) -> MutexGuard<'_, History> {
        self.0[place].lock()
    }

    /// A transaction of the worker at `place` is going to take its LSN. It has read these things,
    /// `most` at most. Nobody has a snapshot below `horizon`.
    pub(crate) fn announce(
        &self,
        place: usize,
        horizon: Lsn,
        most: usize,
        reads: impl Iterator<Item = u64>,
    ) -> Announced<'_> {
        let mut history = self.of(place);
        let is_over = |oldest: &Entry| oldest.end <= horizon;
        while history.entries.len() >= KEPT_ENTRIES || history.entries.front().is_some_and(is_over) {
            history.forget_oldest();
        }
        let from = history.gone_reads + history.reads.len() as u64;
        let reads = (most <= KEPT).then(|| {
            while history.reads.len() + most > KEPT {
                history.forget_oldest();
            }
            let before = history.reads.len();
            history.reads.extend(reads);
            history.reads.len() - before
        });
        let open = Lsn::MAX;
        history.entries.push_back(Entry { lsn: open, end: open, first: open, from, reads });
        Announced { histories: self, place, is_entered: false }
    }

    /// Before whom the first of those comes that have made the versions at these addresses, which
    /// ascend, and are not below `from`.
    pub(crate) fn first_of(&self, addresses: &[Lsn], from: Lsn) -> Lsn {
        let (mut found, mut first) = (0, Lsn::MAX);
        for place in &self.0 {
            let history = place.lock();
            let mut left = addresses;
            for entry in history.entries.range(history.since(from)..) {
                left = &left[left.partition_point(|address| *address < entry.lsn)..];
                if left.is_empty() {
                    break;
                }
                let theirs = left.partition_point(|address| *address < entry.end);
                if theirs > 0 {
                    found += theirs;
                    first = first.min(entry.first);
                    left = &left[theirs..];
                }
            }
        }
        // Of one that was forgotten, nothing else is known.
        if found < addresses.len() { first.min(from) } else { first }
    }

    /// Whether something of `written` was read by a transaction that has an LSN from `since` to
    /// `before`, or may get one; except by the one that the worker at `me` is about to commit.
    pub(crate) fn have_read(&self, written: &Written, since: Lsn, before: Lsn, me: usize) -> bool {
        self.0.iter().enumerate().any(|(number, place)| place.has_read(written, since, before, number == me))
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_read(&self, written: &Written, since: Lsn, before: Lsn, mine: bool) -> bool {
        // The number of the entry to continue with, counted from the list's beginning.
        let mut next = None;
        loop {
            let history = self.lock();
            if history.forgotten > since {
                return true;
            }
            let begin = next.map_or_else(|| history.since(since), |next: u64| (next - history.gone) as usize);
            let (mut looked, mut at) = (0, begin);
            for entry in history.entries.range(begin..) {
                let over = if entry.is_undecided() { mine } else { entry.lsn >= before };
                if over {
                    return false;
                }
                let Some(count) = entry.reads else { return true };
                if history.reads_of(entry, count).any(|hash| written.contains(hash)) {
                    return true;
                }
                (looked, at) = (looked + count, at + 1);
                if looked >= AT_ONCE {
                    break;
                }
            }
            if at == history.entries.len() {
                return false;
            }
            next = Some(history.gone + at as u64);
        }
    }
}

/// A transaction whose entry is there and undecided. Dropped, the entry goes.
#[must_use]
pub(crate) struct Announced<'h> {
    histories: &'h Histories,
    place: usize,
    is_entered: bool,
}

impl Announced<'_> {
    /// It commits with this LSN, and comes before the transaction with the LSN `first`. To be
    /// called before the outcome is published.
    pub(crate) fn enter(mut self, lsn: Lsn, end: Lsn, first: Lsn) {
        let mut history = self.histories.of(self.place);
        let entry = history.entries.back_mut().expect("it was announced");
        (entry.lsn, entry.end, entry.first) = (lsn, end, first);
        self.is_entered = true;
    }

    /// The same for one that has written nothing, and comes after all that have LSNs below `end`.
    pub(crate) fn enter_reader(self, end: Lsn, first: Lsn) {
        let last = Lsn(end.0 - 1);
        self.enter(last, last, first);
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if !self.is_entered {
            let mut history = self.histories.of(self.place);
            let entry = history.entries.pop_back().expect("it was announced");
            let left = history.reads.len() - entry.reads.unwrap_or(0);
            history.reads.truncate(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid(9);

    /// Enters a transaction of worker `place` that has read these records.
    fn enter(histories: &Histories, place: usize, (lsn, end): (u64, u64), first: u64, rids: &[u64]) {
        let reads = rids.iter().map(|rid| record(FID, Rid(*rid)));
        let announced = histories.announce(place, Lsn::ZERO, rids.len(), reads);
        announced.enter(Lsn(lsn), Lsn(end), Lsn(first));
    }

    fn written(rids: &[u64]) -> Written {
        Written::new(rids.iter().map(|rid| record(FID, Rid(*rid))))
    }

    #[test]
    fn readers_count_from_one_lsn_to_another() {
        let histories = Histories::new(3);
        enter(&histories, 0, (100, 120), 100, &[1, 2]);
        enter(&histories, 1, (120, 130), 110, &[3]);
        enter(&histories, 0, (200, 220), 200, &[4]);
        let read = |rid, since, before| histories.have_read(&written(&[77, rid]), Lsn(since), Lsn(before), 2);
        assert!(read(2, 100, 150) && read(3, 100, 150) && !read(4, 100, 150));
        assert!(!read(2, 101, 150) && read(4, 101, 201) && !read(4, 101, 200));
        // Of one that has only read, that is the place before the next LSN.
        let announced = histories.announce(1, Lsn::ZERO, 1, std::iter::once(record(FID, Rid(5))));
        assert!(read(5, 300, 400), "one that is undecided may get any LSN");
        assert!(!histories.have_read(&written(&[5]), Lsn(300), Lsn(400), 1), "but not to itself");
        announced.enter_reader(Lsn(260), Lsn(260));
        assert!(read(5, 259, 260) && !read(5, 260, 400) && !read(5, 100, 259));
        // One that fails has read nothing.
        drop(histories.announce(0, Lsn::ZERO, 1, std::iter::once(record(FID, Rid(6)))));
        assert!(!read(6, 0, 400) && read(4, 0, 400));
        assert!(!histories.have_read(&Written::new([]), Lsn(0), Lsn(400), 2));
    }

    #[test]
    fn addresses_lead_to_those_who_have_made_the_versions() {
        let histories = Histories::new(2);
        enter(&histories, 0, (100, 120), 100, &[]);
        enter(&histories, 1, (120, 130), 90, &[]);
        enter(&histories, 0, (130, 150), 130, &[]);
        let first = |addresses: &[u64], from| {
            let addresses: Vec<Lsn> = addresses.iter().map(|address| Lsn(*address)).collect();
            histories.first_of(&addresses, Lsn(from)).0
        };
        assert_eq!((first(&[100], 100), first(&[119], 100), first(&[149], 100)), (100, 100, 130));
        assert_eq!((first(&[105, 110, 140], 100), first(&[119, 120], 100)), (100, 90));
        assert_eq!((first(&[135, 140], 130), first(&[129, 131], 120)), (130, 90));
        // Nobody knows who that was: it came after the snapshot.
        assert_eq!((first(&[135, 150], 125), first(&[149, 400], 80)), (125, 80));
    }

    #[test]
    fn what_is_over_is_forgotten_and_what_is_too_long_is_assumed_to_be_in_the_way() {
        let histories = Histories::new(1);
        for number in 0..10 {
            enter(&histories, 0, (number * 10, number * 10 + 10), number * 10, &[number]);
        }
        let announced = histories.announce(0, Lsn(50), 1, std::iter::once(record(FID, Rid(50))));
        announced.enter(Lsn(100), Lsn(110), Lsn(100));
        let read = |rid, since| histories.have_read(&written(&[rid]), Lsn(since), Lsn(900), 0);
        assert!(read(5, 50) && !read(4, 50) && read(50, 50) && !read(70, 50));
        assert!(read(70, 40), "somebody from there on was forgotten");
        {
            let history = histories.of(0);
            assert_eq!((history.entries.len(), history.reads.len(), history.forgotten), (6, 6, Lsn(41)));
        }
        // More than can be kept: the oldest go.
        let many = |from: u64| (from..from + KEPT as u64 / 2).map(|rid| record(FID, Rid(rid)));
        for number in 0..3 {
            let announced = histories.announce(0, Lsn::ZERO, KEPT / 2, many(1 << 30));
            let lsn = 200 + 10 * number;
            announced.enter(Lsn(lsn), Lsn(lsn + 10), Lsn(lsn));
        }
        assert!(read(70, 200) && !read(70, 210) && read(1 << 30, 210) && read((1 << 30) + KEPT as u64 / 2 - 1, 220));
        assert!(histories.of(0).reads.len() <= KEPT);
        // One that alone has read too much has read everything.
        let announced = histories.announce(0, Lsn::ZERO, KEPT + 1, std::iter::empty());
        announced.enter(Lsn(300), Lsn(310), Lsn(300));
        assert!(read(70, 230));
    }

    #[test]
    fn keys_have_their_beginnings_in_common() {
        let all = |key: &[u8]| prefixes(FID, 1, key).collect::<Vec<_>>();
        let (one, other) = (all(b"abcd"), all(b"abce"));
        assert_eq!((one.len(), &one[..4], &all(b"")[..]), (5, &other[..4], &one[..1]));
        assert_ne!(one[4], other[4]);
        let mut different = one.clone();
        different.extend(prefixes(FID, 2, b"abcd").chain(prefixes(Fid(10), 1, b"abcd")));
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 15);
    }
}
