//! What a node has in memory: chains of versions, the indexes that there are and were, and their
//! entries. Nothing in it says what is missing: who reads a version that was given up gets another
//! answer.

use std::collections::BTreeMap;

use super::{Does, Read, SLOTS, Transaction, Write};
use crate::{
    dice::mix,
    log::{Block, Log},
};

/// How many records there are, and into how many groups an index divides them.
pub(super) const KEYS: u8 = 24;
pub(super) const GROUPS: u8 = 4;

/// When each index was made that there is.
pub(super) type Indexes = [Option<u64>; SLOTS as usize];

/// Where a version lies, and its value.
type Version = Option<(u64, u64)>;

/// The tables of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    /// By record: where each version lies, oldest first, and its value.
    chains: [Vec<(u64, u64)>; KEYS as usize],
    /// Where indexes were made or dropped, and which there were from there on.
    definitions: Vec<(u64, Indexes)>,
    /// Definitions were given up that lie before these.
    forgot: bool,
    /// Of what was dropped there is only as much as a cut needs: who reads below may get anything.
    only_from: u64,
    /// Of indexes, by where they were made: the records that they have, a bit each.
    entries: BTreeMap<u64, u32>,
}

/// The place of the newest of `chain` that a snapshot sees.
fn seen<T>(chain: &[(u64, T)], snapshot: u64) -> Option<usize> {
    chain.partition_point(|(at, _)| *at < snapshot).checked_sub(1)
}

/// Gives up what no snapshot from `oldest` on sees. Says whether that is something.
fn trim<T>(chain: &mut Vec<(u64, T)>, oldest: u64) -> bool {
    let older = seen(chain, oldest).unwrap_or(0);
    chain.drain(..older);
    older > 0
}

impl Tables {
    /// What a restart makes of the log up to `end`, with a checkpoint that ends at `floor`:
    /// versions that snapshots from there on see, and the indexes that there are.
    pub fn restored(log: &Log, end: u64, floor: u64) -> Self {
        let mut tables = Self::default();
        log.between(0, end).iter().for_each(|block| tables.apply(block, None));
        tables.chains.iter_mut().for_each(|chain| _ = trim(chain, floor));
        tables.forget_definitions(floor);
        tables.only_from = tables.definitions.last().map_or(0, |(at, _)| *at + 1);
        tables
    }

    /// What a fuzzy checkpoint has of a log that others write: of each record the version that was
    /// there when it was read, between `start` and `end`; `when` says where.
    pub fn fuzzy(log: &Log, (start, end): (u64, u64), mut when: impl FnMut() -> u64) -> Self {
        let mut tables = Self::restored(log, end, 0);
        for chain in &mut tables.chains {
            let at = (start + when()).min(end);
            chain.retain(|(lsn, _)| *lsn < at);
            trim(chain, u64::MAX);
        }
        tables
    }

    /// Which indexes there are.
    pub fn indexes(&self) -> Indexes {
        self.indexes_at(u64::MAX)
    }

    /// Which indexes there were where a block begins at `at`, if that is known.
    pub fn indexes_before(&self, at: u64) -> Option<Indexes> {
        let known = seen(&self.definitions, at).is_some() || !self.forgot;
        known.then(|| self.indexes_at(at))
    }

    fn indexes_at(&self, snapshot: u64) -> Indexes {
        seen(&self.definitions, snapshot).map_or(Indexes::default(), |place| self.definitions[place].1)
    }

    /// The newest version of a record, wherever it lies.
    pub fn newest(&self, key: u8) -> u64 {
        self.chains[usize::from(key)].last().map_or(0, |(at, _)| *at)
    }

    /// The record as a snapshot sees it.
    pub fn at(&self, key: u8, snapshot: u64) -> Version {
        let chain = &self.chains[usize::from(key)];
        seen(chain, snapshot).map(|place| chain[place])
    }

    /// A record that a snapshot sees otherwise than in other tables, and how.
    pub fn differs(&self, others: &Self, snapshot: u64) -> Option<(u8, Version, Version)> {
        let both = |key: u8| (key, self.at(key, snapshot), others.at(key, snapshot));
        (0..KEYS).map(both).find(|(_, own, other)| own != other)
    }

    /// The records that an index has for a snapshot; all where that index is missing.
    fn candidates(&self, slot: u8, snapshot: u64) -> u32 {
        let made = self.indexes_at(snapshot)[usize::from(slot)];
        made.map_or(u32::MAX, |made| self.entries.get(&made).copied().unwrap_or_default())
    }

    /// A record that a snapshot sees, and an index that it sees does not have.
    pub fn missing_entry(&self, snapshot: u64) -> Option<(u8, u8)> {
        let lacks = |slot: u8| {
            let has = self.candidates(slot, snapshot);
            (0..KEYS).find(|key| has >> key & 1 == 0 && self.at(*key, snapshot).is_some()).map(|key| (slot, key))
        };
        (0..SLOTS).find_map(lacks)
    }

    /// What a transaction writes that reads here.
    pub fn execute(&self, it: &Transaction) -> Vec<Write> {
        let defined = self.indexes_at(it.snapshot);
        let input = it.input ^ u64::from(it.snapshot < self.only_from);
        let mut answers = defined.iter().fold(input, |sum, made| mix(sum ^ u64::from(made.is_some())));
        for read in &it.reads {
            match *read {
                Read::Record(key) => answers = mix(answers ^ self.at(key, it.snapshot).map_or(0, |(_, value)| value)),
                Read::Group { slot, group } => {
                    let has = self.candidates(slot, it.snapshot);
                    let rows = (0..KEYS).filter(|key| key % GROUPS == group && has >> key & 1 == 1);
                    // An entry may come before its record, or be left of one.
                    let rows = rows.filter_map(|key| self.at(key, it.snapshot));
                    answers = rows.fold(answers, |sum, (_, value)| mix(sum ^ value));
                }
            }
        }
        let write = |key: &u8| Write { key: *key, prev: self.newest(*key), value: mix(answers ^ u64::from(*key)) };
        it.writes.iter().map(write).collect()
    }

    /// A block becomes part of the tables, unless it is. `keys`: the indexes whose keys it brings
    /// for what it inserts; none: all that there are.
    pub fn apply(&mut self, block: &Block, keys: Option<u8>) {
        let Some(does) = block.does.as_deref() else { return };
        match does {
            Does::Execute(_, writes) | Does::Write(writes) => {
                let indexes = self.indexes();
                for Write { key, prev, value } in writes {
                    let chain = &mut self.chains[usize::from(*key)];
                    let place = chain.partition_point(|(at, _)| *at < block.start);
                    if chain.get(place).is_none_or(|(at, _)| *at != block.start) {
                        chain.insert(place, (block.start, *value));
                    }
                    let brings = |slot: usize| *prev == 0 && keys.is_none_or(|keys| keys >> slot & 1 == 1);
                    for made in indexes.iter().enumerate().filter(|(slot, _)| brings(*slot)).filter_map(|(_, it)| *it) {
                        *self.entries.entry(made).or_default() |= 1 << key;
                    }
                }
            }
            Does::Define { slot } if self.definitions.last().is_none_or(|(at, _)| *at < block.start) => {
                let mut indexes = self.indexes();
                let index = &mut indexes[usize::from(*slot)];
                *index = index.is_none().then_some(block.start);
                if let Some(made) = *index {
                    let has = |key: &u8| !self.chains[usize::from(*key)].is_empty();
                    self.entries.insert(made, (0..KEYS).filter(has).fold(0, |all, key| all | 1 << key));
                }
                self.definitions.push((block.start, indexes));
            }
            Does::Define { .. } => {}
        }
    }

    /// Whether a block is part of the tables.
    pub fn has(&self, block: &Block) -> bool {
        match block.does.as_deref() {
            Some(Does::Execute(_, writes) | Does::Write(writes)) => {
                writes.iter().any(|write| self.newest(write.key) >= block.start)
            }
            Some(Does::Define { .. }) => self.definitions.last().is_some_and(|(at, _)| *at >= block.start),
            None => true,
        }
    }

    /// A record that a block changes, and that is not as it was then.
    pub fn lacks(&self, writes: &[Write]) -> Option<(u8, u64)> {
        writes.iter().map(|write| (write.key, self.newest(write.key))).zip(writes).find_map(|(there, write)| {
            let differs = there.1 != write.prev;
            differs.then_some(there)
        })
    }

    /// Nobody reads below `oldest` any more.
    pub fn reclaim(&mut self, oldest: u64) {
        self.chains.iter_mut().for_each(|chain| _ = trim(chain, oldest));
        self.forget_definitions(oldest);
    }

    fn forget_definitions(&mut self, oldest: u64) {
        self.forgot |= trim(&mut self.definitions, oldest);
        self.forget_entries();
    }

    fn forget_entries(&mut self) {
        let Self { definitions, entries, .. } = self;
        entries.retain(|made, _| definitions.iter().any(|(_, indexes)| indexes.contains(&Some(*made))));
    }

    /// The log from `at` on never was.
    pub fn cut(&mut self, at: u64) {
        self.chains.iter_mut().for_each(|chain| chain.retain(|(lsn, _)| *lsn < at));
        self.definitions.retain(|(lsn, _)| *lsn < at);
        self.only_from = if self.only_from > at { 0 } else { self.only_from };
        self.forget_entries();
    }
}
