//! Runs of index entries: collected, sorted, and at restart merged and made indexes of.
//!
//! Each thread of a restart collects the entries of each index in runs of its own. They are sorted
//! and merged when everything is through, and the index is built from the bottom up: several times
//! faster than one insertion after another, and without any contention. A large index is divided
//! into stretches of keys, each merged and built by one thread.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

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
    /// Where the key of each pair ends in the bytes.
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

    /// Sorts the run by key and record id; quick where it consists of sorted stretches, as it does
    /// from a checkpoint.
    pub(crate) fn sort(&mut self) {
        let count = u32::try_from(self.rids.len()).expect("a run of one thread has fewer than 2^32 entries");
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        let prefix = |number: u32| {
            let mut first = [0; 8];
            let key = self.key(number);
            let length = key.len().min(8);
            first[..length].copy_from_slice(&key[..length]);
            u64::from_be_bytes(first)
        };
        order.extend((0..count).map(|number| (prefix(number), number)));
        // The stable sort knows what to do with sorted stretches.
        order.sort_by(|(a, one), (b, other)| {
            let by_key = a.cmp(b).then_with(|| self.key(*one).cmp(self.key(*other)));
            by_key.then_with(|| self.rids[*one as usize].cmp(&self.rids[*other as usize]))
        });
        self.order = order;
    }

    /// After sorting: its entries, ascending.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (&[u8], Rid)> {
        self.order.iter().map(|(_, number)| (self.key(*number), self.rids[*number as usize]))
    }

    /// Forgets all entries, and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.places = Places::default();
        self.rids.clear();
        self.order.clear();
    }

    /// After sorting: the numbers of the entries whose keys lie in `stretch`, ascending.
    fn within(&self, stretch: Stretch<'_>) -> &[(u64, u32)] {
        let below = |bound: &[u8]| self.order.partition_point(|(_, number)| self.key(*number) < bound);
        let from = stretch.from.map_or(0, below);
        let to = stretch.to.map_or(self.order.len(), below);
        &self.order[from..to]
    }
}

/// A part of an index: its keys from one on, and below another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stretch<'r> {
    from: Option<&'r [u8]>,
    to: Option<&'r [u8]>,
}

/// How many keys of each stretch are looked at to divide an index.
const SAMPLES: usize = 64;

/// Divides an index, whose entries are in sorted runs, into `count` stretches at most with about as
/// many entries each. All entries of one key are in one stretch.
pub(crate) fn divide(runs: &[Run], count: usize) -> Vec<Stretch<'_>> {
    let entries: usize = runs.iter().map(Run::len).sum();
    let step = (entries / (SAMPLES * count.max(1))).max(1);
    let mut sample: Vec<&[u8]> = Vec::with_capacity(entries / step + runs.len());
    for run in runs {
        sample.extend(run.order.iter().skip(step / 2).step_by(step).map(|(_, number)| run.key(*number)));
    }
    sample.sort_unstable();
    let mut stretches = vec![Stretch::default()];
    for number in 1..count {
        let Some(key) = sample.get(number * sample.len() / count).copied() else { break };
        // A key with very many entries has a stretch for itself, and fewer are left for the others.
        if let Some(last) = stretches.last_mut()
            && last.from.is_none_or(|from| from < key)
        {
            last.to = Some(key);
            stretches.push(Stretch { from: Some(key), to: None });
        }
    }
    stretches
}

/// The next entry of one run; the order of the fields is the order of the merge.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head<'r> {
    prefix: u64,
    key: &'r [u8],
    rid: Rid,
    run: usize,
}

/// The entries of a stretch in several sorted runs, ascending and each once.
pub(crate) struct Merged<'r> {
    runs: Vec<(&'r Run, std::slice::Iter<'r, (u64, u32)>)>,
    heads: BinaryHeap<Reverse<Head<'r>>>,
    last: Option<(&'r [u8], Rid)>,
}

impl<'r> Merged<'r> {
    pub(crate) fn new(runs: &'r [Run], stretch: Stretch<'_>) -> Self {
        let runs = runs.iter().map(|run| (run, run.within(stretch).iter())).collect();
        let mut merged = Self { runs, heads: BinaryHeap::new(), last: None };
        merged.heads = (0..merged.runs.len()).filter_map(|run| merged.next_of(run).map(Reverse)).collect();
        merged
    }

    /// How many entries of the runs are left.
    pub(crate) fn left(&self) -> usize {
        self.heads.len() + self.runs.iter().map(|(_, left)| left.len()).sum::<usize>()
    }

    fn next_of(&mut self, number: usize) -> Option<Head<'r>> {
        let (run, left) = &mut self.runs[number];
        let (prefix, entry) = *left.next()?;
        Some(Head { prefix, key: run.key(entry), rid: run.rids[entry as usize], run: number })
    }
}

impl<'r> Iterator for Merged<'r> {
    type Item = (&'r [u8], Rid);

    fn next(&mut self) -> Option<(&'r [u8], Rid)> {
        loop {
            let run = self.heads.peek()?.0.run;
            // The next entry of the same run takes the place of this one: often it is the smallest
            // again.
            let next = self.next_of(run);
            let mut top = self.heads.peek_mut()?;
            let Reverse(Head { key, rid, .. }) = match next {
                Some(next) => std::mem::replace(&mut *top, Reverse(next)),
                None => PeekMut::pop(top),
            };
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

    fn merged(runs: &[Run], stretch: Stretch<'_>) -> Vec<(Vec<u8>, Rid)> {
        Merged::new(runs, stretch).map(|(key, rid)| (key.to_vec(), rid)).collect()
    }

    proptest! {
        /// Keys of any length; many are the beginning of others, or the same but for zeros.
        #[test]
        fn any_keys_merge_as_a_set_of_pairs(
            entries in vec((vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..12), 0u64..8, 0usize..3), 0..300),
            equal in any::<bool>(),
            count in 0usize..12,
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
            let expected: Vec<_> = expected.into_iter().collect();
            prop_assert_eq!(&merged(&runs, Stretch::default()), &expected);
            let stretches = divide(&runs, count);
            prop_assert!((1..=count.max(1)).contains(&stretches.len()));
            let parts: Vec<_> = stretches.into_iter().map(|stretch| merged(&runs, stretch)).collect();
            for pair in parts.windows(2) {
                // All entries of one key are in one stretch.
                let [last, first] = [pair[0].last(), pair[1].first()].map(|entry| entry.map(|entry| &entry.0));
                prop_assert!(last.is_none() || first.is_none() || last < first);
            }
            prop_assert_eq!(parts.concat(), expected);
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
        assert_eq!(merged(&runs, Stretch::default()), expected);
    }

    #[test]
    fn stretches_are_about_equal_unless_one_key_has_it_all() {
        let mut runs: Vec<Run> = (0..3).map(|_| Run::default()).collect();
        for number in 0..30_000u64 {
            runs[(number % 7 % 3) as usize].push(&(number * number).to_be_bytes(), Rid(number));
        }
        runs.iter_mut().for_each(Run::sort);
        let stretches = divide(&runs, 8);
        assert_eq!(stretches.len(), 8);
        for stretch in stretches {
            let entries = merged(&runs, stretch).len();
            assert!((3300..4200).contains(&entries), "{entries}");
        }
        let mut run = Run::default();
        (0..1000).for_each(|number| run.push(&[if number % 10 < 6 { 55 } else { (number % 100) as u8 }], Rid(number)));
        run.sort();
        let lengths: Vec<_> =
            divide(std::slice::from_ref(&run), 8).into_iter().map(|stretch| run.within(stretch).len()).collect();
        assert_eq!(lengths.iter().sum::<usize>(), 1000);
        assert!(lengths.len() > 2 && (600..800).contains(lengths.iter().max().unwrap()), "{lengths:?}");
    }
}
