//! What transactions promise, on a database without a log.

mod common;

use std::ops::{Bound, ControlFlow};

use freshet_engine::{
    Database, Direction, IndexDefinition, Isolation, KeyPart, StateHash, TableDefinition, WriteError,
};

fn accounts() -> TableDefinition {
    TableDefinition::new(
        "accounts",
        vec![
            IndexDefinition::new("accounts_id", true, &[KeyPart::unsigned(0, 8)]),
            IndexDefinition::new("accounts_branch", false, &[KeyPart::unsigned(8, 4)]),
        ],
    )
}

fn row(id: u64, branch: u32, balance: i64) -> Vec<u8> {
    let mut row = id.to_le_bytes().to_vec();
    row.extend(branch.to_le_bytes());
    row.extend(balance.to_le_bytes());
    row
}

#[test]
fn records_come_change_and_go() {
    let database = Database::volatile(4);
    let table = database.create_table(&accounts()).unwrap().clone();
    let worker = database.worker().unwrap();
    for id in 0..100u64 {
        let (_, ticket) = worker
            .execute(Isolation::Serializable, |txn| Ok(txn.insert(&table, &row(id, id as u32 % 10, 0))?))
            .unwrap();
        database.wait(ticket).unwrap();
    }
    let error = worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(&table, &row(7, 1, 1))?)).unwrap_err();
    assert!(error.to_string().contains("accounts_id"), "{error}");
    let txn = worker.begin(Isolation::Serializable);
    let record = txn.get(&table, 0, &7u64.to_be_bytes()).unwrap().unwrap();
    // A change of a key moves the record; its old place is gone for this transaction at once.
    txn.update(&table, record.rid, &row(7, 99, 5)).unwrap();
    assert!(txn.get(&table, 1, &99u32.to_be_bytes()).unwrap().is_some());
    assert_eq!(txn.get(&table, 0, &7u64.to_be_bytes()).unwrap().unwrap().row, row(7, 99, 5));
    assert_eq!(txn.delete(&table, record.rid), Err(WriteError::NotFound));
    let gone = txn.get(&table, 0, &8u64.to_be_bytes()).unwrap().unwrap().rid;
    txn.delete(&table, gone).unwrap();
    database.wait(txn.commit().unwrap()).unwrap();
    let txn = worker.begin_read_only();
    let mut seen = Vec::new();
    txn.scan(&table, 1, (Bound::Included(&7u32.to_be_bytes()[..]), Bound::Unbounded), Direction::Backward, |_, r| {
        seen.push(u64::from_le_bytes(r.row[..8].try_into().unwrap()));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen[0], 7);
    assert_eq!(seen.len(), 1 + 10 + 9 + 9);
    assert!(!seen.contains(&8));
    assert_eq!(StateHash::of(&txn).unwrap().records, 99 + 1);
}

#[test]
fn versions_and_record_ids_are_reclaimed() {
    let database = Database::volatile(4);
    let table = database.create_table(&accounts()).unwrap().clone();
    let worker = database.worker().unwrap();
    for round in 0..5000u64 {
        let _ = worker
            .execute(Isolation::Snapshot, |txn| {
                txn.insert(&table, &row(round, 1, 0))?;
                if let Some(old) = round.checked_sub(10) {
                    let old = txn.get(&table, 0, &old.to_be_bytes())?.expect("inserted ten rounds ago");
                    txn.delete(&table, old.rid)?;
                }
                Ok(())
            })
            .unwrap();
    }
    worker.collect_garbage();
    let next = common::next_rid(&database, &table);
    assert!(next <= 2048, "record ids of deleted records are used again, but {next:?} is next");
}
