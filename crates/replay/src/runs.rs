//! Index entries collected at restart, and indexes built from them.
//!
//! Each thread collects the entries of each index in runs of its own. They are sorted and merged when everything is through, and the
//! index is built from the bottom up: several times faster than one insertion after another, and without any
//! contention.

use std::{cmp::Reverse, collections::BinaryHeap};

use freshet_base::Rid;

/// Pairs of key and record id of one index, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Run {
    keys: Vec<u8>,
    places: Places,
    rids: Vec<Rid>,
    /// After sorting: the first bytes of each key, and its number.
    order: Vec<(u64, u32)>,
}

/// Where in a run its keys lie.
#[derive(Debug)]
enum Places {
    /// All have this length so far, as those of most indexes do.
    Equal(usize),
    /// Where each ends.
    Ends(Vec<usize>),
}

impl Default for Places {
    fn default() -> Self {
        Self::Equal(0)
    }
}

impl Run {
    pub(crate) fn push(&mut self, key: &[u8], rid: Rid) {
        match &mut self.places {
            Places::Equal(length) if *length == key.len() => {}
            Places::Equal(length) if self.rids.is_empty() => *length = key.len(),
            Places::Equal(length) => {
                let ends = (1..=self.rids.len()).map(|count| count * *length);
                self.places = Places::Ends(ends.chain([self.keys.len() + key.len()]).collect());
            }
            Places::Ends(ends) => ends.push(self.keys.len() + key.len()),
        }
        self.keys.extend_from_slice(key);
        self.rids.push(rid);
    }

    pub(crate) fn len(&self) -> usize {
        self.rids.len()
    }

    fn key(&self, number: u32) -> &[u8] {
        let number = number as usize;
        match &self.places {
            Places::Equal(length) => &self.keys[number * length..][..*length],
            Places::Ends(ends) => &self.keys[number.checked_sub(1).map_or(0, |before| ends[before])..ends[number]],
        }
    }

    /// Sorts the run by key and record id; quick where it consists of sorted stretches, as it does from a checkpoint.
    pub(crate) fn sort(&mut self) {
        let count = u32::try_from(self.rids.len()).expect("a run of one thread has fewer than 2^32 entries");
        let prefix = |number: u32| {
            let mut first = [0; 8];
            let key = self.key(number);
            let length = key.len().min(8);
            first[..length].copy_from_slice(&key[..length]);
            u64::from_be_bytes(first)
        };
        let mut order: Vec<(u64, u32)> = (0..count).map(|number| (prefix(number), number)).collect();
        // The stable sort knows what to do with sorted stretches.
        order.sort_by(|(a, one), (b, other)| {
            let by_key = a.cmp(b).then_with(|| self.key(*one).cmp(self.key(*other)));
            by_key.then_with(|| self.rids[*one as usize].cmp(&self.rids[*other as usize]))
        });
        self.order = order;
    }

    fn at(&self, place: usize) -> Option<(u64, &[u8], Rid)> {
        let (prefix, number) = *self.order.get(place)?;
        Some((prefix, self.key(number), self.rids[number as usize]))
    }
}

/// The next entry of one run; the order of the fields is the order of the merge.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head<'r> {
    prefix: u64,
    key: &'r [u8],
    rid: Rid,
    run: usize,
}

/// The entries of several sorted runs, ascending and each once.
pub(crate) struct Merged<'r> {
    runs: &'r [Run],
    places: Vec<usize>,
    heads: BinaryHeap<Reverse<Head<'r>>>,
    last: Option<(&'r [u8], Rid)>,
}

impl<'r> Merged<'r> {
    pub(crate) fn new(runs: &'r [Run]) -> Self {
        let mut merged = Self { runs, places: vec![0; runs.len()], heads: BinaryHeap::new(), last: None };
        (0..runs.len()).for_each(|run| merged.fetch(run));
        merged
    }

    fn fetch(&mut self, run: usize) {
        if let Some((prefix, key, rid)) = self.runs[run].at(self.places[run]) {
            self.places[run] += 1;
            self.heads.push(Reverse(Head { prefix, key, rid, run }));
        }
    }
}

impl<'r> Iterator for Merged<'r> {
    type Item = (&'r [u8], Rid);

    fn next(&mut self) -> Option<(&'r [u8], Rid)> {
        loop {
            let Reverse(Head { key, rid, run, .. }) = self.heads.pop()?;
            self.fetch(run);
            if self.last != Some((key, rid)) {
                self.last = Some((key, rid));
                return self.last;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        /// Keys of any length, of which many are the beginning of others or the same but for zeros.
        #[test]
        fn any_keys_merge_as_a_set_of_pairs(
            entries in vec((vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..12), 0u64..8, 0usize..3), 0..300),
            equal in any::<bool>(),
        ) {
            let mut runs: Vec<Run> = (0..3).map(|_| Run::default()).collect();
            let mut expected = BTreeSet::new();
            for (number, (mut key, rid, run)) in entries.into_iter().enumerate() {
                if equal || number < 20 {
                    key.resize(9, 7);
                }
                runs[run].push(&key, Rid(rid));
                expected.insert((key, Rid(rid)));
            }
            runs.iter_mut().for_each(Run::sort);
            let merged: Vec<_> = Merged::new(&runs).map(|(key, rid)| (key.to_vec(), rid)).collect();
            prop_assert_eq!(merged, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn runs_merge_in_order_and_without_duplicates() {
        let mut runs: Vec<Run> = (0..3).map(|_| Run::default()).collect();
        let mut expected = Vec::new();
        for number in 0..1000u64 {
            // Keys that share their first eight bytes, in a scattered order, some of them twice.
            let value = number * 7919 % 1000;
            let key = [[1; 8], value.to_be_bytes()].concat();
            runs[number as usize % 3].push(&key, Rid(value));
            if number % 5 == 0 {
                runs[(number as usize + 1) % 3].push(&key, Rid(value));
            }
            expected.push((key, Rid(value)));
        }
        expected.sort();
        runs.iter_mut().for_each(Run::sort);
        let merged: Vec<_> = Merged::new(&runs).map(|(key, rid)| (key.to_vec(), rid)).collect();
        assert_eq!(merged, expected);
    }
}
