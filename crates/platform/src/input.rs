//! What transactions are told, and the clients that make them up (section 6.1.2).

use freshet_workloads::{
    random::Random,
    zipf::{Scramble, WrongTheta, Zipf},
};

use crate::{shape::Shape, store::COLUMNS, wire::Reader};

/// Operations of a transaction.
pub const OPERATIONS: usize = 10;
/// How many of them a transaction over several partitions has elsewhere, each in another partition
/// if there are as many (section 6.3).
pub const REMOTE: usize = 2;

/// What clients ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// The share of transactions over several partitions, in percent.
    pub multi: u8,
    /// The share of transactions that write, in percent.
    pub writers: u8,
    /// How many of the operations of such a transaction write, after they have read; the others
    /// read alone.
    pub writes: u8,
    /// Where records are chosen from.
    pub spread: Spread,
}

/// Where records are chosen from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Uniformly from the partition whose first copy the client's node has, but for
    /// [`Workload::multi`].
    Home,
    /// From all of them, with this skew: 0 is uniform, below 1 (section 6.6).
    Cluster(f64),
}

/// Reads a row, and changes a column of it if it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub partition: u16,
    pub key: u32,
    pub column: u8,
    pub is_write: bool,
}

/// What a transaction is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    /// Its number, behind that of its client's node.
    pub id: u64,
    /// What is written follows from it and from what was there.
    pub seed: u64,
    pub operations: Vec<Operation>,
}

/// Numbers of transactions of a node begin here.
const NODE_SHIFT: u32 = 48;

impl Operation {
    pub fn put(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.partition.to_le_bytes());
        into.extend_from_slice(&self.key.to_le_bytes());
        into.extend_from_slice(&[self.column, u8::from(self.is_write)]);
    }

    /// None unless it is possible.
    pub fn take(from: &mut Reader<'_>, shape: &Shape) -> Option<Self> {
        let (partition, key, column) = (from.u16()?, from.u32()?, from.u8()?);
        let is_write = from.u8()? != 0;
        let possible = usize::from(partition) < shape.nodes && key < shape.records && usize::from(column) < COLUMNS;
        possible.then_some(Self { partition, key, column, is_write })
    }
}

impl Input {
    pub fn id_of(node: usize, number: u64) -> u64 {
        (node as u64) << NODE_SHIFT | number
    }

    /// The node of the client.
    pub fn node_of(id: u64) -> usize {
        (id >> NODE_SHIFT) as usize
    }

    pub fn put(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.id.to_le_bytes());
        into.extend_from_slice(&self.seed.to_le_bytes());
        into.push(self.operations.len() as u8);
        self.operations.iter().for_each(|operation| operation.put(into));
    }

    /// None unless it is possible.
    pub fn take(from: &mut Reader<'_>, shape: &Shape) -> Option<Self> {
        let (id, seed, count) = (from.u64()?, from.u64()?, from.u8()?);
        let operations = (0..count).map(|_| Operation::take(from, shape)).collect::<Option<Vec<_>>>()?;
        let possible = Self::node_of(id) < shape.nodes && !operations.is_empty();
        possible.then_some(Self { id, seed, operations })
    }

    pub fn is_read_only(&self) -> bool {
        self.operations.iter().all(|operation| !operation.is_write)
    }

    /// The partitions it touches, in order.
    pub fn partitions(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.operations.iter().map(|operation| operation.partition.into()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What it does in a partition.
    pub fn within(&self, partition: usize) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(move |operation| usize::from(operation.partition) == partition)
    }
}

/// The clients of a node.
#[derive(Debug)]
pub(crate) struct Clients {
    workload: Workload,
    shape: Shape,
    me: usize,
    random: Random,
    /// Records of the whole cluster, the popular ones anywhere.
    skew: Option<(Zipf, Scramble)>,
    made: u64,
}

impl Clients {
    pub fn new(workload: Workload, shape: Shape, me: usize, seed: u64) -> Result<Self, WrongTheta> {
        let all = shape.nodes as u64 * u64::from(shape.records);
        let skew = match workload.spread {
            Spread::Home => None,
            Spread::Cluster(theta) => Some((Zipf::new(all, theta)?, Scramble::new(all))),
        };
        Ok(Self { workload, shape, me, random: Random::stream(seed, me as u64), skew, made: 0 })
    }

    /// What the next transaction is told. No record comes twice.
    pub fn next(&mut self) -> Input {
        let Workload { multi, writers, writes, .. } = self.workload;
        let is_multi = self.shape.nodes > 1 && self.random.below(100) < u64::from(multi);
        let writes = if self.random.below(100) < u64::from(writers) { usize::from(writes) } else { 0 };
        let mut operations: Vec<Operation> = Vec::with_capacity(OPERATIONS);
        while operations.len() < OPERATIONS {
            let remote = (operations.len() + REMOTE).checked_sub(OPERATIONS).filter(|_| is_multi);
            let (partition, key) = self.record(remote, &operations);
            if operations.iter().any(|it| (it.partition, it.key) == (partition, key)) {
                continue;
            }
            let column = self.random.below(COLUMNS as u64) as u8;
            operations.push(Operation { partition, key, column, is_write: operations.len() < writes });
        }
        self.made += 1;
        Input { id: Input::id_of(self.me, self.made), seed: self.random.bits(), operations }
    }

    /// A record by chance: of the home partition, or the number `remote` of those that are
    /// elsewhere.
    fn record(&mut self, remote: Option<usize>, before: &[Operation]) -> (u16, u32) {
        let Self { shape: Shape { nodes, records, .. }, me, random, skew, .. } = self;
        if let Some((zipf, scramble)) = skew {
            let number = scramble.place(zipf.draw(random));
            return ((number % *nodes as u64) as u16, (number / *nodes as u64) as u32);
        }
        let key = random.below(u64::from(*records)) as u32;
        let Some(remote) = remote else { return (*me as u16, key) };
        loop {
            let partition = (*me + 1 + random.below(*nodes as u64 - 1) as usize) % *nodes;
            let taken = before[before.len() - remote..].iter().any(|it| usize::from(it.partition) == partition);
            if !taken || *nodes <= REMOTE {
                return (partition as u16, key);
            }
        }
    }
}
