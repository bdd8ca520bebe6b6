//! Nodes compare their states at marks: whatever a cluster goes through, the states are equal, and
//! one that is not is found.

mod common;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use common::{
    SHAPES, Shape, all_are_named, churn, config, definition, directories, look, one_of_three, row, shipping, soon,
    start, wait_for,
};
use freshet_base::{Consent, Lsn, Rid};
use freshet_engine::{Apply, CheckpointKind, Isolation, Node, NodeConfig, OnDoubt, Safety, TableDefinition};
use freshet_storage::Announcement;

/// Blocks until the state of a standby was found equal to its primary's at a mark behind `end`.
fn proven(node: &Node, end: Lsn) {
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
fn more(node: &Node, round: u64) -> Lsn {
    let database = node.database();
    let name = format!("more_{round}");
    let table = database.create_table(&other(&name)).unwrap();
    let worker = database.worker().unwrap();
    let (_, ticket) = worker
        .execute(Isolation::Snapshot, |txn| {
            (0..24_000).try_for_each(|id| txn.insert(&table, &row(id, id % 7, round)).map(drop))?;
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

/// A standby that joins a primary which changes nothing is compared with it all the same.
#[test]
fn who_joins_an_idle_primary_is_compared() {
    let directories = directories();
    let of = |n: usize| one_of_three(directories[n].path(), n, Shape::OneStream, Apply::Fresh);
    let primary = start(of(0));
    let join = Some(primary.address().to_owned());
    let second = start(NodeConfig { join: join.clone(), ..of(1) });
    let table = primary.database().create_table(&definition()).unwrap().clone();
    let end = churn(primary.database(), &table, 0, 500);
    second.wait_visible(end, soon()).unwrap();
    wait_for("the first is compared", || second.state_proof().equal_at.is_some());
    let third = start(NodeConfig { join, ..of(2) });
    wait_for("the second is compared", || third.state_proof().equal_at.is_some());
    assert_eq!(third.state_proof().differs, None);
}

#[test]
fn states_are_equal_at_marks_whatever_a_cluster_goes_through() {
    SHAPES.into_iter().for_each(|shape| goes_through(shape, Apply::Fresh));
    goes_through(Shape::ThreeStreams, Apply::Full);
}

fn goes_through(shape: Shape, apply: Apply) {
    let directories = directories();
    let cluster = |n: usize| one_of_three(directories[n].path(), n, shape, apply);
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
    all_are_named(&old);
    second.stop().unwrap();
    drop(second);
    let end = churn(old.database(), &table, 2000, 2300);
    let second = start(NodeConfig { join, ..cluster(1) });
    proven(&third, end);
    let end = more(&old, 2);
    [&second, &third].into_iter().for_each(|node| proven(node, end));
    // A failover, after which the old primary has more than it should.
    old.stop().unwrap();
    drop(old);
    second.promote(Consent::Nothing).unwrap();
    let table = second.database().table("things").unwrap();
    let end = churn(second.database(), &table, 3000, 3300);
    proven(&third, end);
    let back = start(NodeConfig { join: Some(second.address().into()), ..cluster(0) });
    let end = load(&second, 3_000_000_000, || more(&second, 3));
    [&third, &back].into_iter().for_each(|node| proven(node, end));
    for node in [second, third, back] {
        assert_eq!(node.proof().reason(), None);
        node.stop().unwrap();
    }
}

/// A primary, and a standby whose replay passes over the records that come next.
fn pair(on_doubt: OnDoubt, directories: &[tempfile::TempDir]) -> (Arc<Node>, Arc<Node>) {
    let config = |node: usize| config(Some(directories[node].path()));
    let primary = start(NodeConfig { safety: Safety::Quorum(2), ..config(0) });
    let standby = start(NodeConfig { join: Some(primary.address().into()), on_doubt, ..config(1) });
    let table = primary.database().create_table(&definition()).unwrap();
    let end = churn(primary.database(), &table, 0, 300);
    proven(&standby, end);
    let theirs = standby.database().table("things").unwrap();
    let newer = Announcement::at(end.plus(1 << 40));
    look(standby.database(), &theirs, |content| {
        let without = (0..10_000).map(Rid).filter(|rid| content.replayed(*rid).is_none());
        without.for_each(|rid| assert!(content.replay_store(rid, newer)));
    });
    // A change of one of them would be found by replay itself, which looks at what it replaces.
    let worker = primary.database().worker().unwrap();
    let insert = |id| worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(&table, &row(id, 1, 1))?));
    // More than the ids of records that are gone, which are used again and were announced before.
    let (_, ticket) = (1_000_000..1_001_000).map(insert).last().unwrap().unwrap();
    drop(worker);
    primary.database().wait(ticket).unwrap();
    wait_for("the difference", || standby.state_proof().differs.is_some());
    let difference = standby.state_proof().differs.unwrap();
    assert!(difference.contains("things"), "{difference}");
    wait_for("the primary to hear of it", || {
        let standbys = shipping(&primary).standbys;
        standbys.iter().any(|standby| standby.in_doubt)
    });
    (primary, standby)
}

#[test]
fn replay_that_passes_over_records_is_found_at_the_next_mark() {
    let directories = directories();
    let (primary, standby) = pair(OnDoubt::Withdraw, &directories);
    assert!(standby.proof().withdrawn().is_some_and(|doubt| doubt.contains("differs")));
    let refused = standby.promote(Consent::Nothing).unwrap_err().to_string();
    assert!(refused.contains("differs") && refused.contains("promote another node"), "{refused}");
    let refused = standby.checkpoint(CheckpointKind::Fuzzy).unwrap_err();
    assert!(refused.contains("differs"), "{refused}");
    [primary, standby].into_iter().for_each(|node| node.stop().unwrap());
}

#[test]
fn a_difference_is_only_reported_where_that_is_configured() {
    let directories = directories();
    let (primary, standby) = pair(OnDoubt::Report, &directories);
    assert_eq!(standby.proof().withdrawn(), None);
    [primary, standby].into_iter().for_each(|node| node.stop().unwrap());
}
