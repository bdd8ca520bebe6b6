//! The table that the tests of transactions share: an id and a name, each unique, a group, and a
//! value.
#![allow(dead_code, reason = "each test uses what it needs")]

pub mod graph;
pub mod operation;

use std::{
    cell::Cell,
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use freshet_engine::{
    Certifier, CommitError, Database, Direction, IndexDefinition, Isolation, KeyPart, Table, TableDefinition, Ticket,
    Transaction, Worker, WriteError,
};
use freshet_storage::index::Statistics;

thread_local! {
    /// What certifies in the worlds that this thread makes.
    static CERTIFIER: Cell<Certifier> = const { Cell::new(Certifier::Validation) };
}

/// Does something in worlds with this certifier.
pub fn certified_by<T>(certifier: Certifier, act: impl FnOnce() -> T) -> T {
    let before = CERTIFIER.replace(certifier);
    let done = act();
    CERTIFIER.set(before);
    done
}

/// Makes one test of each function and level, and certifier.
#[allow(unused_macros, reason = "as above")]
macro_rules! at_both_levels {
    ($($name:ident),* $(,)?) => {
        mod snapshot {
            $(#[test] fn $name() { super::$name(super::Isolation::Snapshot); })*
        }
        mod serializable {
            $(#[test] fn $name() { super::$name(super::Isolation::Serializable); })*
        }
        mod ssn {
            use freshet_engine::{Certifier::Ssn, Isolation::Serializable};
            use super::items::certified_by;
            $(#[test] fn $name() { certified_by(Ssn, || super::$name(Serializable)); })*
        }
    };
}

/// Number of the unique index over ids.
pub const BY_ID: usize = 0;
/// Number of the unique index over names.
pub const BY_NAME: usize = 1;
/// Number of the index over groups.
pub const BY_GROUP: usize = 2;

/// A row, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    pub id: u64,
    pub name: u64,
    pub group: u32,
    pub value: i64,
}

impl Item {
    /// An item whose name is its id, in group zero.
    pub fn plain(id: u64, value: i64) -> Self {
        Self { id, name: id, group: 0, value }
    }

    pub fn row(self) -> [u8; 28] {
        let mut row = [0; 28];
        row[..8].copy_from_slice(&self.id.to_le_bytes());
        row[8..16].copy_from_slice(&self.name.to_le_bytes());
        row[16..20].copy_from_slice(&self.group.to_le_bytes());
        row[20..].copy_from_slice(&self.value.to_le_bytes());
        row
    }

    pub fn of(row: &[u8]) -> Self {
        Self {
            id: u64::from_le_bytes(row[..8].try_into().unwrap()),
            name: u64::from_le_bytes(row[8..16].try_into().unwrap()),
            group: u32::from_le_bytes(row[16..20].try_into().unwrap()),
            value: i64::from_le_bytes(row[20..].try_into().unwrap()),
        }
    }
}

/// A database with some items and a worker for each transaction that runs at once.
pub struct World {
    pub database: Database,
    pub table: Arc<Table>,
    pub workers: Vec<Worker>,
}

impl World {
    pub fn new(workers: usize, items: impl IntoIterator<Item = Item>) -> Self {
        let database = Database::volatile_with(workers + 4, CERTIFIER.get());
        let definition = TableDefinition::new(
            "items",
            vec![
                IndexDefinition::new("items_id", true, &[KeyPart::unsigned(0, 8)]),
                IndexDefinition::new("items_name", true, &[KeyPart::unsigned(8, 8)]),
                IndexDefinition::new("items_group", false, &[KeyPart::unsigned(16, 4)]),
            ],
        );
        let table = database.create_table(&definition).unwrap().clone();
        let workers: Vec<_> = (0..workers).map(|_| database.worker().unwrap()).collect();
        let items: Vec<_> = items.into_iter().collect();
        let (_, ticket) = workers[0]
            .execute(Isolation::Snapshot, |txn| {
                for item in &items {
                    txn.insert(&table, &item.row())?;
                }
                Ok(())
            })
            .unwrap();
        database.wait(ticket).unwrap();
        Self { database, table, workers }
    }

    /// Begins a transaction of worker number `worker`.
    pub fn begin(&self, worker: usize, level: Isolation) -> Txn<'_> {
        Txn { table: &self.table, inner: self.workers[worker].begin(level) }
    }

    /// Begins a read-only transaction of worker number `worker`.
    pub fn read(&self, worker: usize) -> Txn<'_> {
        Txn { table: &self.table, inner: self.workers[worker].begin_read_only() }
    }

    /// Begins a transaction of worker number `worker` that reads at a level.
    pub fn reading(&self, worker: usize, level: Isolation) -> Txn<'_> {
        Txn { table: &self.table, inner: self.workers[worker].begin_reading(level) }
    }

    /// Sizes of all indexes.
    pub fn indexes(&self) -> Vec<Statistics> {
        let participant = self.database.core().participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        let content = self.table.content(&guard).unwrap();
        content.indexes(&guard).iter().map(|(_, index)| index.tree().statistics(&guard)).collect()
    }
}

/// A transaction on the items.
pub struct Txn<'w> {
    pub table: &'w Table,
    pub inner: Transaction<'w>,
}

impl Txn<'_> {
    pub fn get(&self, id: u64) -> Option<Item> {
        self.find(BY_ID, &id.to_be_bytes())
    }

    pub fn named(&self, name: u64) -> Option<Item> {
        self.find(BY_NAME, &name.to_be_bytes())
    }

    fn find(&self, index: usize, key: &[u8]) -> Option<Item> {
        self.inner.get(self.table, index, key).unwrap().map(|record| Item::of(record.row))
    }

    /// The value of an item that is there.
    pub fn value(&self, id: u64) -> i64 {
        self.get(id).unwrap_or_else(|| panic!("item {id} is not there")).value
    }

    pub fn insert(&self, item: Item) -> Result<(), WriteError> {
        self.inner.insert(self.table, &item.row()).map(drop)
    }

    fn rid(&self, id: u64) -> Result<freshet_base::Rid, WriteError> {
        let record = self.inner.get(self.table, BY_ID, &id.to_be_bytes()).unwrap();
        record.map(|record| record.rid).ok_or(WriteError::NotFound)
    }

    /// Gives the item with this id a new row, which may have another id.
    pub fn update(&self, id: u64, item: Item) -> Result<(), WriteError> {
        self.inner.update(self.table, self.rid(id)?, &item.row()).map(drop)
    }

    /// Changes only the value.
    pub fn set(&self, id: u64, value: i64) -> Result<(), WriteError> {
        let item = self.get(id).ok_or(WriteError::NotFound)?;
        self.update(id, Item { value, ..item })
    }

    pub fn delete(&self, id: u64) -> Result<(), WriteError> {
        self.inner.delete(self.table, self.rid(id)?)
    }

    /// The items with ids in `range`, at most `limit`, in the order in which they are found.
    pub fn scan(&self, range: (Bound<u64>, Bound<u64>), direction: Direction, limit: usize) -> Vec<Item> {
        let keys = (range.0.map(u64::to_be_bytes), range.1.map(u64::to_be_bytes));
        let range = (keys.0.as_ref().map(|key| &key[..]), keys.1.as_ref().map(|key| &key[..]));
        self.collect(BY_ID, range, direction, limit)
    }

    /// All items of a group.
    pub fn group(&self, group: u32) -> Vec<Item> {
        let key = group.to_be_bytes();
        self.collect(BY_GROUP, (Bound::Included(&key[..]), Bound::Included(&key[..])), Direction::Forward, usize::MAX)
    }

    fn collect(
        &self,
        index: usize,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        limit: usize,
    ) -> Vec<Item> {
        let mut found = Vec::new();
        self.inner
            .scan(self.table, index, range, direction, |_, record| {
                found.push(Item::of(record.row));
                if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .unwrap();
        found
    }

    /// Everything, by id.
    pub fn all(&self) -> Vec<Item> {
        self.scan((Bound::Unbounded, Bound::Unbounded), Direction::Forward, usize::MAX)
    }

    pub fn commit(self) -> Result<Ticket, CommitError> {
        self.inner.commit()
    }

    pub fn roll_back(self) {
        self.inner.roll_back();
    }
}

/// Items 10, 20, … 50, in group 1 each.
pub fn tens() -> World {
    World::new(3, (1..=5).map(|n| Item { id: n * 10, name: n * 10, group: 1, value: 1 }))
}

/// What certification says: only a serializable transaction is refused.
pub fn refused_if_serializable(level: Isolation, result: Result<Ticket, CommitError>) {
    match (level, result) {
        (Isolation::Snapshot, Ok(_))
        | (Isolation::Serializable, Err(CommitError::ReadChanged | CommitError::Phantom | CommitError::Exclusion)) => {}
        (level, result) => panic!("{level}: {result:?}"),
    }
}
