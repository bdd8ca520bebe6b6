//! Nodes compare their states at marks: whatever a cluster goes through, the states are equal, and
//! one that is not is found.

mod common;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use common::{SHAPES, Shape, churn, config, definition, directories, look, row, start, wait_for};
use freshet_base::{RecordKind, Rid, Stamp};
use freshet_engine::{Apply, CheckpointKind, Isolation, Node, NodeConfig, Safety, TableDefinition};
use freshet_storage::Announcement;

/// Blocks until the state of a standby was found equal to its primary's at a mark behind `end`.
fn proven(node: &Node, end: Stamp) {
    wait_for("a comparison", || {
        let proof = node.state_proof();
        assert_eq!(proof.differs, None);
        proof.equal_at >= Some(end)
    });
}

fn other(name: &str) -> TableDefinition {
    let mut definition = definition();
    definition.name = name.into();
    definition.indexes.iter_mut().for_each(|index| index.name = format!("{name}_{}", index.name));
    definition
}

/// What transactions do that are neither short nor alone: one that is longer than the ring takes at
/// once, one that is rolled back, and tables that come and go.
fn more(node: &Node, round: u64) -> Stamp {
    let database = node.database();
    let name = format!("more_{round}");
    let table = database.create_table(&other(&name)).unwrap();
    let worker = database.worker().unwrap();
    let (_, ticket) = worker
        .execute(Isolation::Snapshot, |txn| {
            (0..40_000).try_for_each(|id| txn.insert(&table, &row(id, id % 7, round)).map(drop))?;
            Ok(())
        })
        .unwrap();
    let rolled_back = worker.begin(Isolation::Snapshot);
    rolled_back.insert(&table, &row(1 << 40, 1, 1)).unwrap();
    drop(rolled_back);
    drop(worker);
    if round > 0 {
        let before = database.table(&format!("more_{}", round - 1)).unwrap();
        database.drop_table(&before).unwrap();
    }
    database.wait(ticket).unwrap();
    churn(database, &table, 100_000, 100_200)
}

/// Several threads change records of one table, until told to stop.
fn load<T>(node: &Arc<Node>, from: u64, what: impl FnOnce() -> T) -> T {
    let (table, stop) = (node.database().table("things").unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (table, stop, node) = (&table, &stop, node);
            scope.spawn(move || {
                let mut at = from + thread * 10_000_000;
                while !stop.load(Ordering::SeqCst) {
                    churn(node.database(), table, at, at + 50);
                    at += 50;
                }
            });
        }
        let outcome = what();
        stop.store(true, Ordering::SeqCst);
        outcome
    })
}

#[test]
fn states_are_equal_at_marks_whatever_a_cluster_goes_through() {
    SHAPES.into_iter().for_each(|shape| goes_through(shape, Apply::Fresh));
    goes_through(Shape::ThreeStreams, Apply::Full);
}

fn goes_through(shape: Shape, apply: Apply) {
    let directories = directories();
    let cluster = |n: usize| {
        let config =
            NodeConfig { safety: Safety::Quorum(2), standbys: 2, apply, ..config(Some(directories[n].path())) };
        shape.of_node(n, config)
    };
    let old = start(cluster(0));
    let join = Some(old.address().to_owned());
    let second = start(NodeConfig { join: join.clone(), ..cluster(1) });
    let table = old.database().create_table(&definition()).unwrap();
    churn(old.database(), &table, 0, 500);
    // Beside workers, and with marks between.
    load(&old, 1_000_000_000, || {
        let at = old.database().core().snapshots.current();
        proven(&second, at);
        old.checkpoint(CheckpointKind::Fuzzy).unwrap();
        old.checkpoint(CheckpointKind::Fuzzy).unwrap();
    });
    more(&old, 0);
    let end = more(&old, 1);
    proven(&second, end);
    // One that joins under load, another that restarts.
    let third = load(&old, 2_000_000_000, || {
        let third = start(NodeConfig { join: join.clone(), ..cluster(2) });
        let at = old.database().core().snapshots.current();
        proven(&third, at);
        third
    });
    second.stop().unwrap();
    drop(second);
    let end = churn(old.database(), &table, 2000, 2300);
    let second = start(NodeConfig { join, ..cluster(1) });
    proven(&third, end);
    let end = more(&old, 2);
    [&second, &third].into_iter().for_each(|node| proven(node, end));
    // A take-over, after which the old primary has more than it should.
    old.stop().unwrap();
    drop(old);
    second.promote(false).unwrap();
    let table = second.database().table("things").unwrap();
    let end = churn(second.database(), &table, 3000, 3300);
    proven(&third, end);
    let back = start(NodeConfig { join: Some(second.address().into()), ..cluster(0) });
    let end = load(&second, 3_000_000_000, || more(&second, 3));
    [&third, &back].into_iter().for_each(|node| proven(node, end));
    for node in [second, third, back] {
        assert_eq!(node.differs(), None);
        node.stop().unwrap();
    }
}

/// A primary and a standby with 300 records, and the newest version of one of them.
fn pair(act: bool, directories: &[tempfile::TempDir]) -> (Arc<Node>, Arc<Node>, Rid, Stamp) {
    let config = |node: usize| config(Some(directories[node].path()));
    let primary = start(NodeConfig { safety: Safety::VerySafe, standbys: 1, ..config(0) });
    let mut settings = NodeConfig { join: Some(primary.address().into()), ..config(1) };
    settings.state_proof.only_report = !act;
    let standby = start(settings);
    let table = primary.database().create_table(&definition()).unwrap();
    let end = churn(primary.database(), &table, 0, 300);
    proven(&standby, end);
    let theirs = standby.database().table("things").unwrap();
    let worker = primary.database().worker().unwrap();
    let reader = worker.begin_read_only();
    let rid = (10..1000).map(Rid).find(|rid| reader.read(&table, *rid).unwrap().is_some()).unwrap();
    let newest = look(standby.database(), &theirs, |content| content.replayed(rid)).unwrap();
    drop(reader);
    drop(worker);
    (primary, standby, rid, newest)
}

/// Changes one record, and others.
fn update(primary: &Node, rid: Rid) {
    let database = primary.database();
    let table = database.table("things").unwrap();
    let worker = database.worker().unwrap();
    let ((), ticket) = worker
        .execute(Isolation::Snapshot, |txn| {
            let found = txn.read(&table, rid)?.expect("it is there");
            let mut row = found.row.to_vec();
            row[16] ^= 1;
            txn.update(&table, rid, &row)?;
            Ok(())
        })
        .unwrap();
    database.wait(ticket).unwrap();
    churn(database, &table, 1_000_000, 1_000_100);
}

fn found(standby: &Node) {
    wait_for("the difference", || standby.state_proof().differs.is_some());
    let said = standby.state_proof().differs.unwrap();
    assert!(said.contains("things"), "{said}");
}

#[test]
fn replay_that_passes_over_a_record_is_found_at_the_next_mark() {
    let directories = directories();
    let (primary, standby, rid, newest) = pair(true, &directories);
    // What comes now is not announced: something newer is, as it seems.
    let theirs = standby.database().table("things").unwrap();
    let wrong = Announcement::at(newest.plus(1 << 40));
    assert!(look(standby.database(), &theirs, |content| content.replay_store(rid, wrong)));
    update(&primary, rid);
    found(&standby);
    assert!(standby.differs().is_some());
    let refused = standby.promote(false).unwrap_err().to_string();
    assert!(refused.contains("differs") && refused.contains("promote another node"), "{refused}");
    wait_for("the primary to hear of it", || {
        let told = primary.shipping_status().unwrap().standbys;
        told.iter().any(|standby| standby.state_differs)
    });
    let refused = standby.checkpoint(CheckpointKind::Fuzzy).unwrap_err();
    assert!(refused.contains("differs"), "{refused}");
    [primary, standby].into_iter().for_each(|node| node.stop().unwrap());
}

#[test]
fn a_word_of_replay_that_is_damaged_is_found_when_it_is_replaced() {
    let directories = directories();
    let (primary, standby, rid, newest) = pair(false, &directories);
    let theirs = standby.database().table("things").unwrap();
    look(standby.database(), &theirs, |content| {
        content.replay_cut(rid, RecordKind::Update, newest, Some(Stamp(newest.0 - 64)));
    });
    update(&primary, rid);
    found(&standby);
    assert_eq!(standby.differs(), None, "it is said, and nothing follows");
    [primary, standby].into_iter().for_each(|node| node.stop().unwrap());
}
