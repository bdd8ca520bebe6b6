//! The storage that all schemes have: rows in registered memory, and an index for each partition.
//!
//! A row has [`COLUMNS`] columns of [`COLUMN`] bytes, as in section 6.1.2. Every node reserves the
//! place of every partition, and uses those it has a copy of, so that a row lies at
//! the same place on all nodes that have it.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    io,
};

use freshet_base::{
    sync::{Arc, AtomicU64, Ordering},
    words,
};
use freshet_fabric::memory::{Registered, SharedMemory};
use freshet_workloads::zipf::Scramble;

use crate::{input::Operation, shape::Shape};

/// Columns of a row.
pub const COLUMNS: usize = 10;
/// Bytes of a column.
pub const COLUMN: usize = 100;
/// Bytes of a row.
const ROW: usize = COLUMNS * COLUMN;
const ROW_WORDS: usize = ROW / 8;

/// A column's value.
pub(crate) type Column = [u8; COLUMN];

/// Mixes the bits of a number (SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Hashes numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
}

/// A map whose keys are numbers.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// Where the rows of a partition's keys are: a hash table with linear probing.
#[derive(Debug)]
struct Index {
    mask: usize,
    /// A key, one more than it is, and its slot.
    entries: Vec<(u32, u32)>,
}

impl Index {
    /// That of a partition: rows lie in no order of their keys.
    fn new(records: u32) -> Self {
        let size = (records as usize * 2).next_power_of_two();
        let mut index = Self { mask: size - 1, entries: vec![(0, 0); size] };
        let scramble = Scramble::new(u64::from(records));
        for key in 0..records {
            let at = index.place_of(key);
            index.entries[at] = (key + 1, scramble.place(u64::from(key)) as u32);
        }
        index
    }

    /// Where the entry of a key is, or would be.
    fn place_of(&self, key: u32) -> usize {
        let mut at = mix(u64::from(key)) as usize & self.mask;
        // Half of the table is empty.
        while self.entries[at].0 != key + 1 && self.entries[at].0 != 0 {
            at = (at + 1) & self.mask;
        }
        at
    }

    fn slot_of(&self, key: u32) -> Option<u32> {
        let (found, slot) = self.entries[self.place_of(key)];
        (found != 0).then_some(slot)
    }
}

/// The copies that a node has.
#[derive(Debug)]
pub(crate) struct Store {
    shape: Shape,
    data: Arc<SharedMemory>,
    /// By partition; none where the node has no copy.
    indexes: Vec<Option<Index>>,
}

impl Store {
    /// The copies of node `me`, as they are in the beginning.
    pub fn new(shape: Shape, me: usize) -> io::Result<Self> {
        let data = Arc::new(SharedMemory::new(shape.nodes * shape.records as usize * ROW, false)?);
        let mut store = Self { shape, data, indexes: Vec::new() };
        for partition in 0..shape.nodes {
            let is_here = shape.copy_at(partition, me).is_some();
            store.indexes.push(is_here.then(|| Index::new(shape.records)));
            for slot in 0..shape.records * u32::from(is_here) {
                let first = mix((partition as u64) << 32 | u64::from(slot));
                for (number, word) in store.row(partition, slot).iter().enumerate() {
                    // Relaxed: the other nodes are connected later.
                    word.store(mix(first ^ number as u64), Ordering::Relaxed);
                }
            }
        }
        Ok(store)
    }

    /// All of it, for other nodes to write into.
    pub fn memory(&self) -> &Arc<SharedMemory> {
        &self.data
    }

    /// The slot of a key; none where there is no such row here.
    pub fn find(&self, partition: usize, key: u32) -> Option<u32> {
        self.indexes.get(partition)?.as_ref()?.slot_of(key)
    }

    fn row(&self, partition: usize, slot: u32) -> &[AtomicU64] {
        let begin = (partition * self.shape.records as usize + slot as usize) * ROW_WORDS;
        &self.data.words()[begin..begin + ROW_WORDS]
    }

    /// Reads all columns of a row: what is left of them is a number that depends on each bit.
    pub fn read(&self, partition: usize, slot: u32) -> u64 {
        // Relaxed: the row is locked, and whose lock it was before has sent a message since.
        self.row(partition, slot).iter().fold(0x5851_F42D_4C95_7F2D, fold)
    }

    pub fn column(&self, partition: usize, slot: u32, column: u8) -> Column {
        let mut value = [0; COLUMN];
        words::load(self.data.words(), self.place(partition, slot, column) as usize, &mut value);
        value
    }

    pub fn set_column(&self, partition: usize, slot: u32, column: u8, value: &Column) {
        words::store_among(self.data.words(), self.place(partition, slot, column) as usize, value);
    }

    /// Where a column lies, on every node that has the row.
    pub fn place(&self, partition: usize, slot: u32, column: u8) -> u64 {
        let row = partition as u64 * u64::from(self.shape.records) + u64::from(slot);
        row * ROW as u64 + u64::from(column) * COLUMN as u64
    }

    /// What an operation reads, and what a column is to be if it writes one: the logic of a
    /// transaction.
    pub fn execute(&self, operation: &Operation, slot: u32, seed: u64) -> (u64, Option<Column>) {
        let Operation { partition, key, column, is_write } = *operation;
        let digest = mark(self.read(partition.into(), slot), key);
        let value = is_write.then(|| {
            let mut value = self.column(partition.into(), slot, column);
            modify(&mut value, seed, key);
            value
        });
        (digest, value)
    }

    /// A number that depends on every bit of a copy.
    pub fn hash(&self, partition: usize) -> u64 {
        let length = self.shape.records as usize * ROW_WORDS;
        let words = &self.data.words()[partition * length..][..length];
        words.iter().fold(0, fold)
    }
}

fn fold(digest: u64, word: &AtomicU64) -> u64 {
    (digest.rotate_left(5) ^ word.load(Ordering::Relaxed)).wrapping_mul(0x2545_F491_4F6C_DD1D)
}

/// What is told of a row that was read. Sums of these do not depend on an order.
pub(crate) fn mark(digest: u64, key: u32) -> u64 {
    mix(digest ^ u64::from(key))
}

/// What a transaction makes of a column: depends on what it was, and on the order of changes.
pub(crate) fn modify(value: &mut Column, seed: u64, key: u32) {
    let mut add = mix(seed ^ u64::from(key));
    for word in value.chunks_mut(8) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        let changed = u64::from_le_bytes(bytes).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23).wrapping_add(add);
        word.copy_from_slice(&changed.to_le_bytes()[..word.len()]);
        add = add.rotate_left(9);
    }
}
