//! The identity of a state: an order-free sum over its live records.
//!
//! Each record adds [`identity`] of its table, its id and the place in the log of its newest
//! version. Two nodes with the same log have the same sum at the same LSN if, and but for one case
//! in 2^64 only if, the same records live there, each at the same version. What a sum says of rows
//! follows from that a version's place in the log is that of its bytes; that the bytes in memory
//! are still those is not for the sum to say.
//!
//! No node ever takes a sum from the log or from another node. A primary takes the place of the
//! version that it replaces from the chain, replay from the word that its `fetch_max` has replaced,
//! and the beginning of the sum is swept from the node's own arrays
//! ([`Content::identity_sum`](crate::Content::identity_sum)).

use std::collections::{BTreeMap, HashMap};

use freshet_base::{Fid, IdHasher, Lsn, Rid};

type Far = HashMap<Fid, u64, std::hash::BuildHasherDefault<IdHasher>>;

/// The sums of this many tables lie in an array.
const NEAR: usize = 32;
/// The place of no table.
const NONE: (Fid, u64) = (Fid(u32::MAX), 0);

/// Into this many groups [`Figures`] divide the tables.
const GROUPS: u32 = 256;

/// Both halves of a product depend on all bits of both factors.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    product as u64 ^ (product >> 64) as u64
}

/// What the record `record` of `table` adds to the identity of a state in which its newest version
/// lies at `lsn` in the log: 64 bits that depend on all bits of all three. The same on every node,
/// in every version of this program that can be in one cluster.
#[inline]
pub const fn identity(table: Fid, record: Rid, lsn: Lsn) -> u64 {
    let which = record.0 ^ (table.0 as u64).rotate_right(24);
    fold(which ^ 0xA076_1D64_78BD_642F, lsn.0 ^ 0xE703_7ED1_A0B4_28DB)
}

/// Sums by table, or what is to be added to such. They wrap.
///
/// Each table has its place among [`NEAR`], by its id; when another needs the place, the sum that
/// was there is moved away. So a table may have a part of its sum in either.
#[derive(Clone, Debug)]
pub struct Sums {
    near: [(Fid, u64); NEAR],
    far: Far,
}

impl Default for Sums {
    fn default() -> Self {
        Self { near: [NONE; NEAR], far: Far::default() }
    }
}

impl Sums {
    /// Adds to a table's sum.
    #[inline]
    pub fn add(&mut self, table: Fid, delta: u64) {
        let place = &mut self.near[table.0 as usize % NEAR];
        if place.0 == table {
            place.1 = place.1.wrapping_add(delta);
        } else {
            self.add_instead(table, delta);
        }
    }

    #[cold]
    fn add_instead(&mut self, table: Fid, delta: u64) {
        let place = &mut self.near[table.0 as usize % NEAR];
        let (before, sum) = std::mem::replace(place, (table, delta));
        if sum != 0 {
            let far = self.far.entry(before).or_default();
            *far = far.wrapping_add(sum);
        }
    }

    /// Adds all of the other's.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(table, delta)| self.add(table, delta));
    }

    /// By table, in no order; those of one table may come in two parts.
    pub fn iter(&self) -> impl Iterator<Item = (Fid, u64)> + '_ {
        let far = self.far.iter().map(|(table, sum)| (*table, *sum));
        self.near.iter().copied().chain(far).filter(|(_, sum)| *sum != 0)
    }

    /// Forgets all but these tables, which ascend.
    pub fn keep(&mut self, tables: &[Fid]) {
        let stays = |table: &Fid| tables.binary_search(table).is_ok();
        self.near.iter_mut().filter(|(table, _)| !stays(table)).for_each(|place| *place = NONE);
        self.far.retain(|table, _| stays(table));
    }

    /// Starts again with nothing.
    pub fn clear(&mut self) {
        self.near = [NONE; NEAR];
        self.far.clear();
    }
}

/// What replay counts of the records that it announces.
#[derive(Clone, Debug, Default)]
pub struct Counting {
    /// Everything below was replayed before; what is being replayed lies at or above.
    pub from: Lsn,
    /// What these records add to and take from the sums of their tables.
    pub sums: Sums,
}

/// The sums of a state, as one node says them to others: as many as there are tables, or, of more
/// than 256 tables, some of them together. A few kilobytes at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The state: what lies below in the log, and nothing above.
    pub lsn: Lsn,
    /// By the lowest eight bits of the tables' ids; zeros are left out.
    groups: BTreeMap<u8, u64>,
}

impl Figures {
    /// Of these tables, at `lsn`.
    pub fn new(lsn: Lsn, sums: impl IntoIterator<Item = (Fid, u64)>) -> Self {
        let mut groups = BTreeMap::new();
        for (table, sum) in sums {
            let group: &mut u64 = groups.entry(Self::group(table)).or_default();
            *group = group.wrapping_add(sum);
        }
        groups.retain(|_, sum| *sum != 0);
        Self { lsn, groups }
    }

    fn group(table: Fid) -> u8 {
        (table.0 % GROUPS) as u8
    }

    /// The sum over all tables.
    pub fn total(&self) -> u64 {
        self.groups.values().fold(0, |total, sum| total.wrapping_add(*sum))
    }

    /// Whether a table is among those for which the other has another sum.
    pub fn differs_in(&self, other: &Self, table: Fid) -> bool {
        let group = Self::group(table);
        self.groups.get(&group) != other.groups.get(&group)
    }

    /// As [`Figures::decode`] reads them.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.lsn.0.to_le_bytes().to_vec();
        for (group, sum) in &self.groups {
            bytes.push(*group);
            bytes.extend_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    /// From what [`Figures::encode`] has made; none if that did not.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (lsn, rest) = bytes.split_first_chunk::<8>()?;
        let mut groups = BTreeMap::new();
        let mut chunks = rest.chunks_exact(9);
        for chunk in &mut chunks {
            let (group, sum) = chunk.split_first()?;
            groups.insert(*group, u64::from_le_bytes(sum.try_into().ok()?));
        }
        let is_whole = chunks.remainder().is_empty() && groups.len() == rest.len() / 9;
        is_whole.then_some(Self { lsn: Lsn(u64::from_le_bytes(*lsn)), groups })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_bit_of_what_identifies_a_version_changes_about_half_of_its_identity() {
        let of = |table: u32, record: u64, lsn: u64| identity(Fid(table), Rid(record), Lsn(lsn));
        let mut changed = Vec::new();
        for number in 0..200u64 {
            let (table, record, lsn) = (number as u32 % 7, number * 3, number * 1000 + 64);
            let here = of(table, record, lsn);
            changed.extend((0..8).map(|bit| (here ^ of(table ^ 1 << bit, record, lsn)).count_ones()));
            changed.extend((0..40).map(|bit| (here ^ of(table, record ^ 1 << bit, lsn)).count_ones()));
            changed.extend((0..50).map(|bit| (here ^ of(table, record, lsn ^ 1 << bit)).count_ones()));
        }
        let mean = f64::from(changed.iter().sum::<u32>()) / changed.len() as f64;
        assert!((31.0..33.0).contains(&mean), "{mean}");
        assert!(
            changed.iter().all(|bits| (6..=58).contains(bits)),
            "{:?}",
            (changed.iter().min(), changed.iter().max())
        );
    }

    /// Two records that have exchanged their versions, or moved them by the same distance, do not
    /// make up for each other.
    #[test]
    fn changes_of_two_records_do_not_cancel() {
        let of = |record: u64, lsn: u64| identity(Fid(3), Rid(record), Lsn(lsn));
        let mut sums = std::collections::HashSet::new();
        for record in 0..300u64 {
            for (a, b) in [(0, 0), (64, 128), (128, 64), (64, 64), (1 << 30, 64), (64, 1 << 30)] {
                assert!(sums.insert(of(record, 1000 + a).wrapping_add(of(record + 1, 1000 + b))), "{record}, {a}, {b}");
            }
        }
    }

    #[test]
    fn sums_are_kept_by_table_whatever_its_id() {
        let (mut sums, mut other) = (Sums::default(), Sums::default());
        // Some have the same place.
        let tables = [Fid(0), Fid(7), Fid(NEAR as u32), Fid(NEAR as u32 + 7), Fid(1 << 19)];
        let of = |sums: &Sums, table| {
            sums.iter().filter(|(there, _)| *there == table).fold(0_u64, |sum, (_, part)| sum.wrapping_add(part))
        };
        for (number, table) in (1..).zip(tables).cycle().take(15) {
            sums.add(table, number);
            other.add(table, 0u64.wrapping_sub(number).wrapping_add(u64::from(number == 3)));
        }
        assert_eq!(tables.map(|table| of(&sums, table)), [3, 6, 9, 12, 15]);
        sums.merge(&other);
        assert_eq!(tables.map(|table| of(&sums, table)), [0, 0, 3, 0, 0]);
        sums.keep(&[tables[0], tables[2]]);
        assert_eq!(of(&sums, tables[2]), 3);
        sums.keep(&[tables[0], tables[3]]);
        assert_eq!(sums.iter().count(), 0);
    }

    #[test]
    fn figures_name_the_tables_that_differ_and_survive_the_wire() {
        let figures = |second: u64| Figures::new(Lsn(77), [(Fid(1), 5), (Fid(2), second), (Fid(258), 1), (Fid(9), 0)]);
        let (here, there) = (figures(10), figures(11));
        assert_eq!((here.total(), here.differs_in(&there, Fid(1)), here.differs_in(&there, Fid(2))), (16, false, true));
        let bytes = here.encode();
        assert_eq!(Figures::decode(&bytes).as_ref(), Some(&here));
        assert_eq!(bytes.len(), 8 + 2 * 9);
        assert!((0..bytes.len()).all(|end| Figures::decode(&bytes[..end]) != Some(here.clone())));
        let twice = [&bytes[..], &bytes[8..17]].concat();
        assert_eq!(Figures::decode(&twice), None, "a group is said once");
    }
}
