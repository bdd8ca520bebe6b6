//! Failover without an operator, and what a primary may answer without its standbys.

mod common;

use std::{sync::Arc, time::Instant};

use common::{
    churn, directories, hash, soon,
    trio::{joining, trio},
};
use freshet_base::wait::Patience;
use freshet_engine::{Isolation, Node, OutcomeOpen, Role, node::Failover};

/// Blocks until one of these leads, and gives it and the others.
fn led(nodes: Vec<Arc<Node>>) -> (Arc<Node>, Vec<Arc<Node>>) {
    let deadline = soon().unwrap();
    loop {
        if let Some(at) = nodes.iter().position(|node| node.role() == Role::Primary) {
            let mut nodes = nodes;
            let leads = nodes.remove(at);
            return (leads, nodes);
        }
        assert!(Instant::now() < deadline, "no node leads");
        std::thread::yield_now();
    }
}

#[test]
fn a_standby_takes_a_lost_primarys_place_and_nothing_is_lost() {
    let directories = directories();
    let [old, second, third] = trio(&directories, [Failover::Automatic; 3]);
    let before = hash(&old);
    old.stop().unwrap();
    let (leads, others) = led(vec![second, third]);
    let table = leads.database().table("things").unwrap();
    assert_eq!(hash(&leads), before);
    let end = churn(leads.database(), &table, 5000, 5500);
    others[0].wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&others[0]), hash(&leads));
    // The next one, too: two of three are there.
    drop(old);
    let back = joining(leads.address(), &directories[0], Failover::Automatic);
    back.wait_visible(end, soon()).unwrap();
    let before = hash(&leads);
    leads.stop().unwrap();
    drop(leads);
    let (leads, _others) = led(others.into_iter().chain([back]).collect());
    assert_eq!(hash(&leads), before);
}

#[test]
fn a_node_that_is_not_to_stand_waits_for_one_that_is() {
    let directories = directories();
    let [old, never, other] = trio(&directories, [Failover::Automatic, Failover::Never, Failover::Last]);
    old.stop().unwrap();
    let (leads, _) = led(vec![Arc::clone(&never), other]);
    assert_eq!((leads.role(), never.role()), (Role::Primary, Role::Standby));
}

/// The other two of three may continue without it.
#[test]
fn a_node_alone_does_not_lead_before_another_answers() {
    let directories = directories();
    let [old, second, third] = trio(&directories, [Failover::Automatic; 3]);
    let before = hash(&old);
    old.stop().unwrap();
    third.stop().unwrap();
    drop((old, third));
    // Whatever it does by itself in the meantime: it stands again when another is there.
    assert_eq!(second.role(), Role::Standby);
    let third = joining(second.address(), &directories[2], Failover::Automatic);
    let (leads, _) = led(vec![second, third]);
    assert_eq!(hash(&leads), before);
}

/// Another node may lead, and this one would be the last to hear.
#[test]
fn a_primary_with_too_few_answers_gives_none_to_readers() {
    let directories = directories();
    let [primary, second, third] = trio(&directories, [Failover::Automatic, Failover::Never, Failover::Never]);
    let database = primary.database();
    let table = database.table("things").unwrap();
    let worker = database.worker().unwrap();
    let read = |patience: Patience<'_>| {
        let transaction = worker.begin(Isolation::Snapshot);
        assert!(transaction.get(&table, 0, &990_u64.to_be_bytes()).unwrap().is_some());
        database.wait_until(transaction.commit().unwrap(), patience)
    };
    assert_eq!(read(Patience::endless()), Ok(()));
    second.stop().unwrap();
    assert_eq!(read(Patience::endless()), Ok(()), "the other one answers");
    third.stop().unwrap();
    drop((second, third));
    // Its lease ends within this.
    let soon_over = std::time::Duration::from_millis(primary.config().lease_ms);
    let waits = |outcome: Result<(), OutcomeOpen>| outcome == Err(OutcomeOpen::Deadline);
    while !waits(read(Patience::endless().until(Instant::now() + soon_over))) {}
    let back = joining(primary.address(), &directories[1], Failover::Never);
    assert_eq!(read(Patience::endless()), Ok(()));
    back.stop().unwrap();
}
