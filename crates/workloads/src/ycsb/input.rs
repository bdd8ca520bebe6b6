//! What a transaction is told to do, and the clients that make it up.

use serde::{Deserialize, Serialize};

use super::mix::{Mix, Shape};
use crate::{
    journal::Mark,
    random::Random,
    zipf::{Scramble, WrongTheta, Zipf},
};
use freshet_base::sync::{Arc, AtomicU64, Ordering};

/// The longest scan, in records; lengths are uniform from 1 on.
pub const LONGEST_SCAN: u64 = 100;

/// What a client sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// With it, a transaction that changes the database also writes this into the journal.
    pub mark: Option<Mark>,
    /// The transaction.
    pub operations: Vec<Operation>,
}

/// One operation on one record or on a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Reads all fields.
    Read {
        /// Of this record.
        key: u64,
    },
    /// Writes one field.
    Update {
        /// Of this record.
        key: u64,
        /// Which field.
        field: u16,
        /// The new value's seed (see [`fill`]).
        seed: u64,
    },
    /// Writes all fields without looking at them.
    Overwrite {
        /// Of this record.
        key: u64,
        /// The new values' seed.
        seed: u64,
    },
    /// Adds a record.
    Insert {
        /// Its key.
        key: u64,
        /// The values' seed.
        seed: u64,
    },
    /// Reads all fields of several records in the order of their keys.
    Scan {
        /// The first key.
        from: u64,
        /// How many records.
        count: u16,
    },
    /// Reads all fields, then writes one.
    Modify {
        /// Of this record.
        key: u64,
        /// Which field is written.
        field: u16,
        /// The new value's seed.
        seed: u64,
    },
}

impl Operation {
    /// Whether it changes nothing.
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Scan { .. })
    }
}

/// Fills a value with bytes that follow from `seed`.
#[inline]
pub fn fill(value: &mut [u8], seed: u64) {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(0x9e37_79b9_7f4a_7c15);
        (state ^ (state >> 32)).to_le_bytes()
    };
    let mut words = value.chunks_exact_mut(8);
    for place in &mut words {
        place.copy_from_slice(&word());
    }
    let rest = words.into_remainder();
    let length = rest.len();
    rest.copy_from_slice(&word()[..length]);
}

/// The keys of records that are inserted while a workload runs. Shared by all
/// clients of a process; processes are kept apart by lanes.
#[derive(Debug)]
pub struct NewKeys {
    next: AtomicU64,
    lanes: u64,
}

impl NewKeys {
    /// Keys from `first` on: `first + lane`, `first + lane + lanes` and so on.
    ///
    /// # Panics
    /// When `lane` is not below `lanes`.
    pub fn new(first: u64, lane: u64, lanes: u64) -> Self {
        assert!(lane < lanes, "lane {lane} is one of {lanes}");
        Self { next: AtomicU64::new(first + lane), lanes }
    }

    /// A key that nobody else gets. The order of clients does not matter, hence Relaxed.
    fn take(&self) -> u64 {
        self.next.fetch_add(self.lanes, Ordering::Relaxed)
    }

    /// The latest key that was taken, or the one before the first.
    fn latest(&self) -> u64 {
        self.next.load(Ordering::Relaxed).saturating_sub(self.lanes)
    }
}

/// A workload on a loaded table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The mix of operations.
    pub mix: Mix,
    /// Records that were loaded: keys 0 to `records - 1`.
    pub records: u64,
    /// What they look like.
    pub shape: Shape,
    /// The skew: 0 is uniform, below 1.
    pub theta: f64,
    /// Operations in one transaction, at least 1.
    pub operations: u16,
}

/// One client: it makes up transactions.
#[derive(Clone, Debug)]
pub struct Client {
    workload: Workload,
    random: Random,
    zipf: Arc<Zipf>,
    scramble: Scramble,
    new_keys: Arc<NewKeys>,
}

impl Client {
    /// The first client, whose others are made with [`Client::another`]. Takes
    /// 20 ns per record when the workload is skewed.
    ///
    /// # Errors
    /// [`WrongTheta`] when the skew is not within `[0, 1)`.
    ///
    /// # Panics
    /// When there are no records.
    pub fn new(workload: Workload, new_keys: NewKeys, seed: u64) -> Result<Self, WrongTheta> {
        Ok(Self {
            random: Random::new(seed),
            zipf: Arc::new(Zipf::new(workload.records, workload.theta)?),
            scramble: Scramble::new(workload.records),
            new_keys: Arc::new(new_keys),
            workload,
        })
    }

    /// Client number `number` of the same workload, with random numbers of its own.
    pub fn another(&self, seed: u64, number: u64) -> Self {
        Self { random: Random::stream(seed, number), ..self.clone() }
    }

    /// Replaces `operations` by the next transaction's.
    #[inline]
    pub fn next(&mut self, operations: &mut Vec<Operation>) {
        operations.clear();
        for _ in 0..self.workload.operations {
            let operation = self.operation();
            operations.push(operation);
        }
    }

    #[inline]
    fn operation(&mut self) -> Operation {
        let shares = self.workload.mix.shares();
        let draw = self.random.below(100);
        let mut below = shares.read;
        if draw < below {
            let key = if self.workload.mix.prefers_latest() { self.late_key() } else { self.key() };
            return Operation::Read { key };
        }
        below += shares.overwrite;
        if draw < below {
            return Operation::Overwrite { key: self.key(), seed: self.random.bits() };
        }
        below += shares.update;
        if draw < below {
            return Operation::Update { key: self.key(), field: self.field(), seed: self.random.bits() };
        }
        below += shares.modify;
        if draw < below {
            return Operation::Modify { key: self.key(), field: self.field(), seed: self.random.bits() };
        }
        below += shares.scan;
        if draw < below {
            return Operation::Scan { from: self.key(), count: self.random.within(1, LONGEST_SCAN) as u16 };
        }
        Operation::Insert { key: self.new_keys.take(), seed: self.random.bits() }
    }

    /// A loaded record; the popular ones lie anywhere.
    #[inline]
    fn key(&mut self) -> u64 {
        let rank = self.zipf.draw(&mut self.random);
        if self.workload.theta == 0.0 { rank } else { self.scramble.place(rank) }
    }

    /// A record that was inserted lately, the latest being the most popular. It may not be
    /// committed yet.
    fn late_key(&mut self) -> u64 {
        self.new_keys.latest().saturating_sub(self.zipf.draw(&mut self.random))
    }

    #[inline]
    fn field(&mut self) -> u16 {
        match self.workload.shape.fields {
            0 | 1 => 0,
            fields => self.random.below(u64::from(fields)) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(mix: Mix, theta: f64) -> Client {
        let workload = Workload { mix, records: 1_000, shape: mix.usual_shape(), theta, operations: 1 };
        Client::new(workload, NewKeys::new(1_000, 0, 1), 7).unwrap()
    }

    fn take(client: &mut Client, count: usize) -> Vec<Operation> {
        let mut operations = Vec::new();
        (0..count)
            .map(|_| {
                client.next(&mut operations);
                operations[0]
            })
            .collect()
    }

    #[test]
    fn operations_have_their_shares() {
        for mix in Mix::ALL {
            let operations = take(&mut client(mix, 0.9), 20_000);
            let shares = mix.shares();
            let count = |kind: fn(&Operation) -> bool| operations.iter().filter(|operation| kind(operation)).count();
            for (share, count) in [
                (shares.read, count(|operation| matches!(operation, Operation::Read { .. }))),
                (shares.update, count(|operation| matches!(operation, Operation::Update { .. }))),
                (shares.overwrite, count(|operation| matches!(operation, Operation::Overwrite { .. }))),
                (shares.insert, count(|operation| matches!(operation, Operation::Insert { .. }))),
                (shares.scan, count(|operation| matches!(operation, Operation::Scan { .. }))),
                (shares.modify, count(|operation| matches!(operation, Operation::Modify { .. }))),
            ] {
                assert!(count.abs_diff(share as usize * 200) < 400, "{mix}: {count} instead of {share} %");
            }
        }
    }

    #[test]
    fn the_popular_record_is_popular_and_not_the_first() {
        let mut counts = vec![0; 1_000];
        for operation in take(&mut client(Mix::C, 0.99), 20_000) {
            let Operation::Read { key } = operation else { panic!("{operation:?}") };
            counts[key as usize] += 1;
        }
        let popular = counts.iter().enumerate().max_by_key(|(_, count)| **count).unwrap();
        assert!(*popular.1 > 2_000, "{popular:?}");
        assert_ne!(popular.0, 0);
    }

    #[test]
    fn late_reads_follow_the_inserts() {
        let operations = take(&mut client(Mix::D, 0.99), 20_000);
        let inserts: Vec<u64> = operations
            .iter()
            .filter_map(|operation| if let Operation::Insert { key, .. } = operation { Some(*key) } else { None })
            .collect();
        assert!(inserts.iter().copied().eq(1_000..1_000 + inserts.len() as u64));
        let late =
            operations.iter().filter(|operation| matches!(operation, Operation::Read { key } if *key >= 1_000)).count();
        assert!(late > 5_000, "{late}");
    }

    #[test]
    fn lanes_do_not_meet() {
        let (even, odd) = (NewKeys::new(10, 0, 2), NewKeys::new(10, 1, 2));
        assert_eq!([even.take(), even.take(), odd.take(), odd.take()], [10, 12, 11, 13]);
        assert_eq!(even.latest(), 12);
    }

    #[test]
    fn values_follow_from_their_seeds() {
        let value = |length: usize, seed| {
            let mut value = vec![0; length];
            fill(&mut value, seed);
            value
        };
        assert_eq!(value(100, 5), value(100, 5));
        assert_ne!(value(100, 5), value(100, 6));
        assert_eq!(value(100, 5)[..13], value(13, 5));
        assert!(value(0, 5).is_empty());
    }

    #[test]
    fn requests_travel() {
        let mut request = Request { mark: Some(Mark { client: 1, sequence: 2 }), operations: Vec::new() };
        client(Mix::A, 0.5).next(&mut request.operations);
        let bytes = postcard::to_stdvec(&request).unwrap();
        assert_eq!(postcard::from_bytes::<Request>(&bytes).unwrap(), request);
    }
}
