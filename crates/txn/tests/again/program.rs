//! What transactions do: steps that depend on whatever was read before.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use freshet_base::Isolation;
use freshet_storage::{IndexDefinition, KeyPart, Table, TableDefinition};
use freshet_txn::{Direction, Record, RowLock, Transaction, WriteError};

pub const BY_ID: usize = 0;
pub const BY_NAME: usize = 1;
pub const BY_GROUP: usize = 2;

/// A table of rows with an id and a name, each unique, a group, a value, and a tail of any length.
pub fn definition() -> TableDefinition {
    TableDefinition::new(
        "items",
        vec![
            IndexDefinition::new("items_id", true, &[KeyPart::unsigned(0, 8)]),
            IndexDefinition::new("items_name", true, &[KeyPart::unsigned(8, 8)]),
            IndexDefinition::new("items_group", false, &[KeyPart::unsigned(16, 4)]),
        ],
    )
}

fn row(id: u64, name: u64, group: u32, value: u64) -> Vec<u8> {
    let mut row = Vec::new();
    row.extend_from_slice(&id.to_le_bytes());
    row.extend_from_slice(&name.to_le_bytes());
    row.extend_from_slice(&group.to_le_bytes());
    row.extend_from_slice(&value.to_le_bytes());
    row.resize(28 + (value % 61) as usize, value as u8);
    row
}

fn number(row: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(row[at..at + 8].try_into().unwrap())
}

fn group_of(row: &[u8]) -> u32 {
    u32::from_le_bytes(row[16..20].try_into().unwrap())
}

/// One thing that a transaction does. Ids, names and groups are plain numbers.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Reads the record of an id.
    Get(u64),
    /// Reads the record of a name.
    Named(u64),
    /// Reads all records of a group.
    Group(u32, Direction),
    /// Reads the records of some ids, up to a number.
    Range(u64, u64, usize),
    /// Inserts a record.
    Insert(u64, u64, u32),
    /// Inserts a record, or changes that of the same id.
    Upsert(u64, u64, u32),
    /// Gives a record another value.
    Change(u64),
    /// Gives a record another id, name or group: its row is another record's then.
    Renumber(u64, u64),
    Rename(u64, u64),
    Regroup(u64, u32),
    /// Deletes a record.
    Delete(u64),
    /// Locks a record, found first or by its key.
    Lock(u64),
    LockKey(u64),
    /// Changes a record's key, and follows the row from where it was.
    Follow(u64, u32),
    /// Takes a newer snapshot.
    Refresh,
    /// Makes a savepoint; goes back to the last one.
    Savepoint,
    Back,
}

/// What a transaction is to do.
#[derive(Clone, Debug)]
pub struct Program {
    pub isolation: Isolation,
    pub steps: Vec<Step>,
    /// Whether it continues when another transaction was faster.
    pub stubborn: bool,
}

impl Program {
    pub fn new(isolation: Isolation, steps: impl Into<Vec<Step>>) -> Self {
        Self { isolation, steps: steps.into(), stubborn: false }
    }
}

/// A transaction on its way through a program.
pub struct Run<'w> {
    pub transaction: Transaction<'w>,
    table: Arc<Table>,
    /// Of everything that it has found so far. What it writes depends on it.
    digest: u64,
    savepoint: Option<freshet_txn::Savepoint>,
}

impl<'w> Run<'w> {
    pub fn new(transaction: Transaction<'w>, table: Arc<Table>) -> Self {
        Self { transaction, table, digest: 0, savepoint: None }
    }

    fn found(&mut self, bytes: &[u8]) {
        let add = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.digest = bytes.iter().fold(self.digest ^ 0xcbf2_9ce4_8422_2325, add);
    }

    fn find(&mut self, index: usize, key: &[u8]) -> Result<Option<Vec<u8>>, WriteError> {
        let found = self.transaction.get(&self.table, index, key)?.map(|record| record.row.to_vec());
        self.found(found.as_deref().unwrap_or(b"none"));
        Ok(found)
    }

    /// Does something with the record of an id, if there is one.
    fn with(
        &mut self,
        id: u64,
        act: impl FnOnce(&mut Self, Record<'_>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let found = self.transaction.get(&self.table, BY_ID, &id.to_be_bytes())?;
        let Some((rid, row)) = found.map(|record| (record.rid, record.row.to_vec())) else {
            self.found(b"none");
            return Ok(());
        };
        self.found(&row);
        act(self, Record { rid, row: &row })
    }

    fn update(&mut self, record: Record<'_>, row: &[u8]) -> Result<(), WriteError> {
        let rid = self.transaction.update(&self.table, record.rid, row)?;
        let there = self.transaction.read(&self.table, rid)?.map(|record| record.row.to_vec());
        assert_eq!(there.as_deref(), Some(row), "it reads what it has written");
        Ok(())
    }

    fn scan(
        &mut self,
        index: usize,
        from: &[u8],
        to: &[u8],
        direction: Direction,
        most: usize,
    ) -> Result<(), WriteError> {
        let mut rows = Vec::new();
        let range = (Bound::Included(from), Bound::Included(to));
        self.transaction.scan(&self.table, index, range, direction, |_, record| {
            rows.push(record.row.to_vec());
            if rows.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        rows.iter().for_each(|row| self.found(row));
        Ok(())
    }

    fn insert(&mut self, id: u64, name: u64, group: u32, upsert: bool) -> Result<(), WriteError> {
        let new = row(id, name, group, self.digest);
        let inserted = match upsert {
            false => self.transaction.insert(&self.table, &new),
            true => self.transaction.insert_arbitrated(&self.table, &new, &[BY_ID]),
        };
        match inserted {
            Ok(rid) => {
                let there = self.transaction.read(&self.table, rid)?.map(|record| record.row.to_vec());
                assert_eq!(there, Some(new), "it reads what it has written");
                Ok(())
            }
            Err(WriteError::UniqueViolation { index }) => {
                self.found(index.as_bytes());
                if upsert && index == "items_id" { self.step(Step::Change(id)) } else { Ok(()) }
            }
            Err(cause) => Err(cause),
        }
    }

    /// Does one step.
    pub fn step(&mut self, step: Step) -> Result<(), WriteError> {
        match step {
            Step::Get(id) => self.find(BY_ID, &id.to_be_bytes()).map(drop),
            Step::Named(name) => self.find(BY_NAME, &name.to_be_bytes()).map(drop),
            Step::Group(group, direction) => {
                let key = group.to_be_bytes();
                self.scan(BY_GROUP, &key, &key, direction, usize::MAX)
            }
            Step::Range(from, to, most) => {
                self.scan(BY_ID, &from.to_be_bytes(), &to.to_be_bytes(), Direction::Forward, most)
            }
            Step::Insert(id, name, group) => self.insert(id, name, group, false),
            Step::Upsert(id, name, group) => self.insert(id, name, group, true),
            Step::Change(id) => self.with(id, |run, record| {
                run.update(record, &row(id, number(record.row, 8), group_of(record.row), run.digest))
            }),
            Step::Renumber(id, to) => self.with(id, |run, record| {
                run.rewrite(record, &row(to, number(record.row, 8), group_of(record.row), run.digest))
            }),
            Step::Rename(id, name) => {
                self.with(id, |run, record| run.rewrite(record, &row(id, name, group_of(record.row), run.digest)))
            }
            Step::Regroup(id, group) => {
                self.with(id, |run, record| run.rewrite(record, &row(id, number(record.row, 8), group, run.digest)))
            }
            Step::Delete(id) => self.with(id, |run, record| {
                run.transaction.delete(&run.table, record.rid)?;
                assert!(run.transaction.has_deleted(&run.table, record.rid)?);
                Ok(())
            }),
            Step::Lock(id) => {
                self.with(id, |run, record| run.transaction.lock(&run.table, record.rid, RowLock::NoKeyUpdate))
            }
            Step::LockKey(id) => {
                let found = self.transaction.lock_key(&self.table, BY_ID, &id.to_be_bytes(), RowLock::KeyShare)?;
                self.found(&[u8::from(found.is_some())]);
                Ok(())
            }
            Step::Follow(id, group) => self.with(id, |run, record| {
                run.rewrite(record, &row(id, number(record.row, 8), group, run.digest))?;
                let there = run.transaction.follow_anywhere(&run.table, record.rid)?.map(|record| record.row.to_vec());
                run.found(there.as_deref().unwrap_or(b"none"));
                Ok(())
            }),
            Step::Refresh => {
                self.transaction.refresh();
                Ok(())
            }
            Step::Savepoint => {
                self.savepoint = Some(self.transaction.savepoint());
                Ok(())
            }
            Step::Back => {
                if let Some(savepoint) = &self.savepoint {
                    self.transaction.roll_back_to(savepoint);
                }
                Ok(())
            }
        }
    }

    /// An update that may change keys, and so find one taken.
    fn rewrite(&mut self, record: Record<'_>, row: &[u8]) -> Result<(), WriteError> {
        match self.update(record, row) {
            Err(WriteError::UniqueViolation { index }) => {
                self.found(index.as_bytes());
                Ok(())
            }
            updated => updated,
        }
    }
}
