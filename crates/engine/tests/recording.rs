//! Inputs beside records: what has them and what has none, and that whatever replays the records
//! passes them over.

mod common;

use std::{
    ops::{Bound, ControlFlow},
    path::Path,
    sync::Arc,
};

use common::{SHAPES, Shape, churn, config, definition, hash, row, start, wait_for};
use freshet_base::{Consent, Fid, RecordKind};
use freshet_engine::{
    CheckpointKind, Database, Direction, DurableError, Inputs, Isolation, Lsn, Node, NodeConfig, NotRecorded, Rid,
    RowLock, Safety, Table, TableDefinition, Transaction, record_as, recorded_as,
};
use freshet_log::BlockKind;

fn of(shape: Shape, n: usize, directory: &Path, record_inputs: bool) -> NodeConfig {
    let mut config = shape.of_node(n, config(Some(directory)));
    config.log.buffer_bytes = 256 << 10;
    config.log.batch_bytes = 64 << 10;
    config.checkpoint.interval_s = 0;
    NodeConfig { safety: Safety::TwoSafe, record_inputs, ..config }
}

/// What a transaction's block holds.
#[derive(Debug)]
struct Written {
    kind: BlockKind,
    /// The tables of its records, and what is done to them.
    records: Vec<(Fid, RecordKind)>,
    /// Snapshots and body.
    inputs: Option<(Vec<Lsn>, Vec<u8>)>,
}

/// The blocks in `[from, to)` of a primary's log that have records, and where each begins.
fn written_in(database: &Database, from: Lsn, to: Lsn) -> Result<Vec<(Lsn, Written)>, DurableError> {
    let log = &database.core().snapshots.primary().expect("it is the primary").log;
    log.wait_durable(to, None)?;
    let (mut buffer, mut row) = (Vec::new(), Vec::new());
    let mut all = Vec::new();
    for block in log.reader().blocks(from, to, &mut buffer).unwrap() {
        let block = block.unwrap();
        let block = block.whole(&mut row).unwrap();
        let records: Vec<_> = block.records().map(|record| (record.header.fid, record.header.kind)).collect();
        if !records.is_empty() {
            let inputs = block.inputs().map(|row| Inputs::decode(row).expect("it was encoded"));
            let inputs = inputs.map(|inputs| (inputs.snapshots, inputs.body.to_vec()));
            all.push((block.lsn(), Written { kind: block.header().kind, records, inputs }));
        }
    }
    Ok(all)
}

/// Does something in a transaction of its own that records inputs, and returns what its block
/// holds.
fn record<T>(node: &Node, act: impl FnOnce(&Transaction<'_>) -> T) -> Written {
    let database = node.database();
    let worker = database.worker().unwrap();
    let transaction = worker.begin(Isolation::Snapshot);
    record_as(&transaction, 300, b"input");
    let _ = act(&transaction);
    let ticket = transaction.commit().unwrap();
    database.wait(ticket).unwrap();
    let mut all = written_in(database, ticket.lsn.unwrap(), ticket.until).unwrap();
    all.remove(0).1
}

/// The same in a transaction that says nothing.
fn beside<T>(node: &Node, act: impl FnOnce(&Transaction<'_>) -> T) {
    let worker = node.database().worker().unwrap();
    let transaction = worker.begin(Isolation::Snapshot);
    let _ = act(&transaction);
    node.database().wait(transaction.commit().unwrap()).unwrap();
}

fn rid_of(transaction: &Transaction<'_>, table: &Table, id: u64) -> Rid {
    transaction.get(table, 0, &id.to_be_bytes()).unwrap().expect("it is there").rid
}

#[test]
fn a_block_has_inputs_unless_something_keeps_them_out() {
    let directory = tempfile::tempdir().unwrap();
    let config = NodeConfig { safety: Safety::OneSafe, ..of(Shape::OneStream, 0, directory.path(), true) };
    let node = start(config);
    let table = node.database().create_table(&definition()).unwrap();
    let fid = table.fid();
    // What has inputs: with the snapshots of its beginning and of each further one.
    for id in 0..3 {
        record(&node, |txn| txn.insert(&table, &row(id, 0, 0)).unwrap());
    }
    let mut snapshots = Vec::new();
    let written = record(&node, |txn| {
        snapshots.push(txn.snapshot());
        txn.insert(&table, &row(10, 0, 0)).unwrap();
        beside(&node, |other| other.insert(&table, &row(11, 0, 0)).unwrap());
        for _ in 0..2 {
            txn.refresh();
            snapshots.push(txn.snapshot());
        }
        // A savepoint that nothing is taken back to.
        let savepoint = txn.savepoint();
        txn.delete(&table, rid_of(txn, &table, 1)).unwrap();
        txn.update(&table, rid_of(txn, &table, 2), &row(2, 0, 9)).unwrap();
        let _ = savepoint;
    });
    assert!(snapshots[0] < snapshots[1] && snapshots[1] == snapshots[2], "{snapshots:?}");
    let (noted, body) = written.inputs.expect("nothing keeps them out");
    assert_eq!((noted, recorded_as(&body)), (snapshots, Some((300, &b"input"[..]))));
    assert_eq!(written.kind, BlockKind::Redo);
    let [insert, update, delete] = [RecordKind::Insert, RecordKind::Update, RecordKind::Delete];
    let records = [(fid, insert), (fid, delete), (fid, update), (Fid::INPUTS, insert)];
    assert_eq!(written.records, records, "behind all others");
    // What has none.
    let doomed = TableDefinition::new("doomed", vec![definition().indexes.remove(0)]);
    let doomed = node.database().create_table(&doomed).unwrap();
    let mut wanted = std::collections::BTreeMap::new();
    let mut keeps = |why: NotRecorded, act: &dyn Fn(&Transaction<'_>)| {
        let written = record(&node, act);
        let has_inputs = written.records.iter().any(|(fid, _)| *fid == Fid::INPUTS);
        assert!(written.inputs.is_none() && !has_inputs, "{why}: {written:?}");
        *wanted.entry(why).or_insert(0) += 1;
    };
    let write = |txn: &Transaction<'_>| txn.update(&table, rid_of(txn, &table, 2), &row(2, 0, 1)).unwrap();
    keeps(NotRecorded::Definitions, &|txn| {
        write(txn);
        txn.drop_table(&doomed).unwrap();
    });
    keeps(NotRecorded::Messages, &|txn| txn.carry(b"hear").unwrap());
    keeps(NotRecorded::TakenBack, &|txn| {
        write(txn);
        let rid = txn.insert(&table, &row(20, 0, 0)).unwrap();
        txn.delete(&table, rid).unwrap();
    });
    for rewritten in [false, true] {
        keeps(NotRecorded::TakenBack, &|txn| {
            write(txn);
            let savepoint = txn.savepoint();
            let _ = if rewritten { write(txn) } else { txn.insert(&table, &row(20, 0, 0)).unwrap() };
            txn.roll_back_to(&savepoint);
        });
    }
    keeps(NotRecorded::Long, &|txn| {
        for id in 0..4000 {
            txn.insert(&table, &row(1000 + id, 0, 0)).unwrap();
        }
    });
    keeps(NotRecorded::Others, &|txn| {
        // Somebody else has a record, and it is passed over.
        let worker = node.database().worker().unwrap();
        let other = worker.begin(Isolation::Snapshot);
        other.update(&table, rid_of(&other, &table, 0), &row(0, 0, 1)).unwrap();
        txn.update(&table, rid_of(txn, &table, 0), &row(0, 0, 2)).unwrap_err();
        write(txn);
    });
    keeps(NotRecorded::Others, &|txn| {
        // Somebody else has used a key since the snapshot.
        beside(&node, |other| other.insert(&table, &row(30, 0, 0)).unwrap());
        txn.insert(&table, &row(30, 0, 1)).unwrap_err();
        write(txn);
    });
    keeps(NotRecorded::Others, &|txn| {
        // Somebody else has deleted a record since the snapshot.
        let there = rid_of(txn, &table, 30);
        beside(&node, |other| other.delete(&table, there).unwrap());
        txn.lock(&table, there, RowLock::Update).unwrap_err();
        write(txn);
    });
    keeps(NotRecorded::Bulk, &|txn| {
        write(txn);
        txn.keep_records(NotRecorded::Bulk);
        txn.keep_records(NotRecorded::Undetermined);
        assert!(!txn.records_inputs());
    });
    // The tables were made; and those of others above say nothing, and this one.
    beside(&node, |other| other.insert(&table, &row(50, 0, 0)).unwrap());
    wanted.insert(NotRecorded::NoInputs, 4);
    *wanted.get_mut(&NotRecorded::Definitions).unwrap() += 2;
    let recorded = node.database().core().recorded();
    assert_eq!((recorded.recorded, recorded.kept), (4, wanted));
    assert!((4 * 8..4 * 30).contains(&recorded.bytes), "{} bytes", recorded.bytes);
    node.stop().unwrap();
}

/// The state that a node has when its log is all that it has been through.
fn same(nodes: &[&Arc<Node>], what: &str) -> (u64, u64) {
    wait_for(what, || nodes.iter().all(|node| hash(node) == hash(nodes[0])));
    hash(nodes[0])
}

#[test]
fn replay_of_the_records_passes_the_inputs_over() {
    for shape in SHAPES {
        let states = [false, true].map(|record| {
            let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let config = |n: usize| of(shape, n, directories[n].path(), record);
            let primary = start(config(0));
            let join = |primary: &Node| Some(primary.address().to_owned());
            let standby = start(NodeConfig { join: join(&primary), ..config(1) });
            let table = primary.database().create_table(&definition()).unwrap();
            churn(primary.database(), &table, 0, 300);
            primary.checkpoint(CheckpointKind::Fuzzy).unwrap();
            let worker = primary.database().worker().unwrap();
            for id in 300..600u64 {
                let (_, ticket) = worker
                    .execute(Isolation::Snapshot, |txn| {
                        txn.insert(&table, &row(id, id % 7, id))?;
                        if id % 2 == 0 {
                            txn.insert(&table, &row(1000 + id, id % 5, id))?;
                        }
                        if txn.records_inputs() {
                            record_as(txn, 1, &id.to_le_bytes());
                        }
                        Ok(())
                    })
                    .unwrap();
                primary.database().wait(ticket).unwrap();
            }
            drop(worker);
            let recorded = primary.database().core().recorded();
            let divided = matches!(shape, Shape::Pages);
            assert!(if record { recorded.recorded >= 150 } else { recorded.recorded == 0 }, "{shape:?}: {recorded:?}");
            assert!(!record || divided || recorded.recorded == 300, "{shape:?}: {recorded:?}");
            let state = same(&[&primary, &standby], "the standby has all");
            // Both start again, one from its checkpoint; then the other takes over, and records
            // too.
            standby.stop().unwrap();
            primary.stop().unwrap();
            drop((primary, standby));
            let primary = start(config(0));
            let standby = start(NodeConfig { join: join(&primary), ..config(1) });
            assert_eq!(same(&[&primary, &standby], "the standby has all again"), state, "{shape:?}");
            primary.stop().unwrap();
            drop(primary);
            standby.promote(Consent::Loss).unwrap();
            assert_eq!(hash(&standby), state, "{shape:?}");
            let worker = standby.database().worker().unwrap();
            let transaction = worker.begin(Isolation::Snapshot);
            transaction.insert(&transaction.table("things").unwrap(), &row(5000, 0, 0)).unwrap();
            assert_eq!(transaction.records_inputs(), record, "{shape:?}");
            transaction.roll_back();
            drop(worker);
            standby.stop().unwrap();
            state
        });
        assert_eq!(states[0], states[1], "{shape:?}: the state does not depend on it");
    }
}

#[test]
fn an_index_that_comes_late_passes_the_inputs_over() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let config = |n: usize| of(Shape::OneStream, n, directories[n].path(), true);
    let primary = start(config(0));
    let join = |primary: &Node| Some(primary.address().to_owned());
    let standby = start(NodeConfig { join: join(&primary), ..config(1) });
    let [first, second] = <[_; 2]>::try_from(definition().indexes).unwrap();
    let definition = TableDefinition::new("things", vec![first]);
    let table = primary.database().create_table(&definition).unwrap();
    let insert = |from: u64, to: u64| {
        for id in from..to {
            record(&primary, |txn| txn.insert(&table, &row(id, id % 3, 0)).unwrap());
        }
    };
    insert(0, 50);
    primary.database().begin_index(&table, &second, &|| false).unwrap().finish(&|| false).unwrap();
    insert(50, 100);
    let grouped = |node: &Node| {
        let worker = node.database().worker().unwrap();
        let txn = worker.begin_read_only();
        let table = txn.table("things")?;
        let group = 1u64.to_be_bytes();
        let bound = Bound::Included(&group[..]);
        let mut count = 0;
        txn.scan(&table, 1, (bound, bound), Direction::Forward, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })
        .ok()?;
        Some(count)
    };
    wait_for("the standby has the index", || grouped(&standby) == Some(33));
    standby.stop().unwrap();
    primary.stop().unwrap();
    drop(standby);
    let config = NodeConfig { join: join(&primary), ..config(1) };
    drop(primary);
    let primary = start(of(Shape::OneStream, 0, directories[0].path(), true));
    let standby = start(NodeConfig { join: Some(primary.address().to_owned()), ..config });
    assert_eq!(grouped(&primary), Some(33));
    wait_for("the standby has it again", || grouped(&standby) == Some(33));
    standby.stop().unwrap();
    primary.stop().unwrap();
}
