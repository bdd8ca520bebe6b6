//! A primary hands its role to a standby: no commit is lost, and no outcome is
//! left open.

mod common;

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use common::{
    churn, directories, hash, row, soon, start,
    trio::{joining, of_three, trio},
    wait_for,
};
use freshet_engine::{
    CommitError, Isolation, Node, NodeConfig, ProcedureError, Role,
    node::{Failover, MirrorSettings, SwitchOverError},
};
use freshet_replication::primary::{SwitchOverError as Failed, Unfit};

/// What sessions were told that write all the time.
#[derive(Default)]
struct Load {
    acknowledged: AtomicU64,
    stop: AtomicBool,
}

/// Inserts rows of its own from `id` on until it is stopped or the role has gone; each row is
/// acknowledged, or was not written.
fn write(node: &Node, load: &Load, mut id: u64) -> Vec<u64> {
    let database = node.database();
    let (table, worker) = (database.table("things").unwrap(), database.worker().unwrap());
    let mut written = Vec::new();
    while !load.stop.load(Ordering::SeqCst) {
        let done = worker.execute(Isolation::Serializable, |txn| Ok(txn.insert(&table, &row(id, id % 7, 0))?));
        match done {
            Ok((_, ticket)) => {
                database.wait_until(ticket, soon()).expect("nobody's outcome is open");
                written.push(id);
                load.acknowledged.fetch_add(1, Ordering::SeqCst);
                id += 1;
            }
            Err(ProcedureError::Commit(CommitError::HandsOver | CommitError::Deposed(_))) => return written,
            Err(other) => panic!("{other}"),
        }
    }
    written
}

#[test]
fn the_role_moves_under_load_and_back() {
    for failover in [Failover::Manual, Failover::Automatic] {
        let directories = directories();
        let nodes = trio(&directories, [failover; 3]);
        let load = Load::default();
        let acknowledged: Vec<u64> = thread::scope(|scope| {
            let writers: Vec<_> = (0..4_u64)
                .map(|writer| {
                    scope.spawn({
                        let (old, load) = (&nodes[0], &load);
                        move || write(old, load, (writer + 1) << 32)
                    })
                })
                .collect();
            wait_for("something is written", || load.acknowledged.load(Ordering::SeqCst) > 200);
            let moved = nodes[0].switch_over(Some(nodes[2].address())).unwrap();
            assert_eq!((moved.node, nodes[2].role()), (nodes[2].id(), Role::Primary));
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        assert!(nodes[0].is_deposed() && nodes[0].is_succeeded());
        let [old, second, third] = nodes;
        let table = third.database().table("things").unwrap();
        {
            let worker = third.database().worker().unwrap();
            let txn = worker.begin_read_only();
            let is_there = |id: &u64| txn.get(&table, 0, &id.to_be_bytes()).unwrap().is_some();
            assert!(acknowledged.iter().all(is_there), "something that was acknowledged is not there");
        }
        let end = churn(third.database(), &table, 5000, 5200);
        second.wait_visible(end, soon()).unwrap();
        old.stop().unwrap();
        drop(old);
        let back = joining(third.address(), &directories[0], failover);
        back.wait_visible(end, soon()).unwrap();
        common::all_are_named_as(&third, &back);
        // The nearest one, without a name.
        let moved = third.switch_over(None).unwrap();
        let (leads, other) = if moved.node == second.id() { (second, back) } else { (back, second) };
        let end = churn(leads.database(), &leads.database().table("things").unwrap(), 6000, 6100);
        other.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(&leads), hash(&other));
    }
}

/// What is open does not keep the role from moving, and fails when it wants to commit.
#[test]
fn an_open_transaction_is_rolled_back() {
    let directories = directories();
    let [old, second, _third] = trio(&directories, [Failover::Manual; 3]);
    let table = old.database().table("things").unwrap();
    let worker = old.database().worker().unwrap();
    let transaction = worker.begin(Isolation::Serializable);
    transaction.insert(&table, &row(7_000, 1, 1)).unwrap();
    old.switch_over(Some(second.address())).unwrap();
    let failed = transaction.commit().unwrap_err();
    assert!(matches!(failed, CommitError::HandsOver | CommitError::Deposed(_)), "{failed}");
    let other = second.database().worker().unwrap();
    let txn = other.begin_read_only();
    let table = second.database().table("things").unwrap();
    assert!(txn.get(&table, 0, &7_000_u64.to_be_bytes()).unwrap().is_none());
}

/// Nothing has changed then: not for those who were held, nor for the terms of other nodes.
#[test]
fn a_primary_whose_offer_is_not_taken_continues() {
    let directories = directories();
    let [old, second, third] = trio(&directories, [Failover::Manual; 3]);
    let refused = |to: Option<&str>| match old.switch_over(to).unwrap_err() {
        SwitchOverError::Failed(failed) => failed,
        other => panic!("{other}"),
    };
    let cause = second.switch_over(None).unwrap_err();
    assert!(matches!(&cause, SwitchOverError::NotPrimary(Some(at)) if at == old.address()), "{cause}");
    let term = old.status().term;
    third.stop().unwrap();
    // It may take a moment until that is known here.
    wait_for("it is away", || old.switch_over(Some(third.address())).is_err());
    second.stop().unwrap();
    drop((second, third));
    wait_for("nobody is there", || matches!(refused(None), Failed::Nobody));
    assert_eq!((old.role(), old.is_deposed(), old.status().term), (Role::Primary, false, term));
    // Those who begin do not wait.
    let back = joining(old.address(), &directories[1], Failover::Manual);
    let end = churn(old.database(), &old.database().table("things").unwrap(), 8000, 8100);
    back.wait_visible(end, soon()).unwrap();
}

/// Each is none for a reason of its own, which it takes no time to find.
#[test]
fn a_node_that_cannot_take_the_role_is_named_with_the_reason() {
    let directories: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let of = |n: usize| of_three(&directories[n], Failover::Manual);
    let old = start(of(0));
    let join = |at: &Node, config: NodeConfig| start(NodeConfig { join: Some(at.address().to_owned()), ..config });
    let relay = join(&old, NodeConfig { asynchronous: true, relay_standbys: 1, ..of(1) });
    let mirror = join(&old, NodeConfig { mirror: MirrorSettings { bytes: 1 << 27, ..of(2).mirror }, ..of(2) });
    let below = join(&relay, NodeConfig { asynchronous: true, ..of(3) });
    let unfit = |who: &str| match old.switch_over(Some(who)).unwrap_err() {
        SwitchOverError::Failed(Failed::Unfit { why, .. }) => why,
        other => panic!("{who}: {other}"),
    };
    wait_for("all have come", || old.members().unwrap().nodes.len() == 4);
    assert_eq!((unfit("nobody"), unfit(old.address())), (Unfit::Unknown, Unfit::Leads));
    assert_eq!((unfit(mirror.address()), unfit(&relay.id().to_string())), (Unfit::Mirror, Unfit::Asynchronous));
    assert_eq!(unfit(below.address()), Unfit::BelowRelay);
    below.stop().unwrap();
    drop(below);
    wait_for("it is away, and known", || {
        old.members().unwrap().nodes.iter().filter(|it| it.connected == Some(false)).count() == 1
    });
    assert_eq!(old.members().unwrap().nodes.len(), 4);
}
