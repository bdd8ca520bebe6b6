//! A primary hands its role to a standby: no commit is lost, and no outcome is
//! left open.

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use common::{churn, config, directories, filled, hash, row, soon, start, wait_for};
use freshet_engine::{
    CommitError, Isolation, Node, NodeConfig, ProcedureError, Role, Safety,
    node::{Failover, SwitchOverError},
};
use freshet_replication::primary::SwitchOverError as Failed;

/// A node of a cluster of three under quorum(2).
fn of_three(directory: &tempfile::TempDir, failover: Failover) -> NodeConfig {
    NodeConfig { safety: Safety::Quorum(2), standbys: 2, failover, ..config(Some(directory.path())) }
}

fn trio(directories: &[tempfile::TempDir], failover: Failover) -> [Arc<Node>; 3] {
    let primary = start(of_three(&directories[0], failover));
    let join =
        |directory| start(NodeConfig { join: Some(primary.address().to_owned()), ..of_three(directory, failover) });
    let standbys = [join(&directories[1]), join(&directories[2])];
    filled(primary, standbys)
}

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
            Err(ProcedureError::Commit(CommitError::HandsOver | CommitError::Refused(_))) => return written,
            Err(other) => panic!("{other}"),
        }
    }
    written
}

#[test]
fn the_role_moves_under_load_and_back() {
    for failover in [Failover::Manual, Failover::Automatic] {
        let directories = directories();
        let nodes = trio(&directories, failover);
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
        let join = Some(third.address().to_owned());
        let back = start(NodeConfig { join, ..of_three(&directories[0], failover) });
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
    let [old, second, _third] = trio(&directories, Failover::Manual);
    let table = old.database().table("things").unwrap();
    let worker = old.database().worker().unwrap();
    let transaction = worker.begin(Isolation::Serializable);
    transaction.insert(&table, &row(7_000, 1, 1)).unwrap();
    old.switch_over(Some(second.address())).unwrap();
    let failed = transaction.commit().unwrap_err();
    assert!(matches!(failed, CommitError::HandsOver | CommitError::Refused(_)), "{failed}");
    let other = second.database().worker().unwrap();
    let txn = other.begin_read_only();
    let table = second.database().table("things").unwrap();
    assert!(txn.get(&table, 0, &7_000_u64.to_be_bytes()).unwrap().is_none());
}

/// Nothing has changed then: not for those who were held, nor for the terms of other nodes.
#[test]
fn a_primary_whose_offer_is_not_taken_continues() {
    let directories = directories();
    let [old, second, third] = trio(&directories, Failover::Manual);
    let refused = |to: Option<&str>| match old.switch_over(to).unwrap_err() {
        SwitchOverError::Failed(failed) => failed,
        other => panic!("{other}"),
    };
    assert!(matches!(refused(Some("nobody")), Failed::Nobody(Some(_))));
    assert!(matches!(refused(Some(old.address())), Failed::Nobody(Some(_))));
    let cause = second.switch_over(None).unwrap_err();
    assert!(matches!(&cause, SwitchOverError::NotPrimary(Some(at)) if at == old.address()), "{cause}");
    let term = old.status().term;
    third.stop().unwrap();
    // It may take a moment until that is known here.
    wait_for("it is away", || old.switch_over(Some(third.address())).is_err());
    second.stop().unwrap();
    drop((second, third));
    wait_for("nobody is there", || matches!(refused(None), Failed::Nobody(None)));
    assert_eq!((old.role(), old.is_deposed(), old.status().term), (Role::Primary, false, term));
    // Those who begin do not wait.
    let join = |directory| {
        let join = Some(old.address().to_owned());
        start(NodeConfig { join, ..of_three(directory, Failover::Manual) })
    };
    let back = join(&directories[1]);
    let end = churn(old.database(), &old.database().table("things").unwrap(), 8000, 8100);
    back.wait_visible(end, soon()).unwrap();
}
