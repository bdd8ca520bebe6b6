//! Failover without an operator, and what a primary may answer without its standbys.

mod common;

use std::{fs, path::PathBuf, sync::Arc, thread, time::Instant};

use common::{
    churn, directories, filled, hash, is_named_by, shipping, soon, start,
    trio::{joining, of_three, trio},
    wait_for,
};
use freshet_base::{Consent, wait::Patience};
use freshet_engine::{
    Isolation, Node, NodeConfig, OutcomeOpen, Role, Safety,
    node::{Failover, LinkStatus, RoleStatus},
};
use tempfile::TempDir;

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

/// Nothing can be noted of terms in this directory before that is removed, as on a bad disk.
fn without_room(directory: &TempDir) -> PathBuf {
    let in_the_way = directory.path().join("control.new");
    // The node may just be writing it.
    wait_for("a place in the way", || {
        let _ = fs::remove_file(&in_the_way);
        fs::create_dir(&in_the_way).is_ok()
    });
    in_the_way
}

#[test]
fn a_standby_that_cannot_note_a_term_follows_when_it_can() {
    let directories = directories();
    let [old, second, third] = trio(&directories, [Failover::Manual; 3]);
    let in_the_way = without_room(&directories[2]);
    second.promote(Consent::Nothing).unwrap();
    third.follow(second.address());
    let waits = |status: RoleStatus| {
        let RoleStatus::Standby { own, .. } = status else { panic!("it is a standby") };
        assert!(!matches!(own.link, LinkStatus::Failed { .. }), "{:?}", own.link);
        match own.link {
            LinkStatus::Connecting { last_failure, .. } => last_failure.is_some_and(|why| why.contains("terms")),
            // It has another set of the primary of before to note first.
            LinkStatus::Following { node, .. } => node == old.id(),
            _ => false,
        }
    };
    wait_for("the standby knows what is wrong", || waits(third.status().role));
    fs::remove_dir(&in_the_way).unwrap();
    let table = second.database().table("things").unwrap();
    let end = churn(second.database(), &table, 5000, 5500);
    third.wait_visible(end, soon()).unwrap();
    // A set that arrives must be noted, too, before anything behind it counts.
    without_room(&directories[2]);
    let before = second.status().in_sync_set.unwrap().number;
    let end = thread::scope(|scope| {
        let changes = scope.spawn(|| second.change_level(Safety::Majority));
        wait_for("another set", || second.status().in_sync_set.unwrap().number > before);
        assert!(!waits(third.status().role), "it follows");
        fs::remove_dir(in_the_way).unwrap();
        changes.join().unwrap().unwrap();
        churn(second.database(), &table, 6000, 6500)
    });
    third.wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&third), hash(&second));
    assert!(old.is_deposed());
}

#[test]
fn a_primary_that_cannot_note_its_successor_is_deposed_all_the_same() {
    let directories = directories();
    let [old, second, third] = trio(&directories, [Failover::Manual; 3]);
    without_room(&directories[0]);
    second.promote(Consent::Nothing).unwrap();
    wait_for("the primary of before knows", || old.is_deposed());
    let table = second.database().table("things").unwrap();
    let end = churn(second.database(), &table, 5000, 5500);
    third.wait_visible(end, soon()).unwrap();
}

#[test]
fn an_in_sync_set_that_could_not_be_noted_is_recorded_when_it_can() {
    let directories = directories();
    let of = |n: usize| NodeConfig { safety: Safety::TwoSafe, ..of_three(&directories[n], Failover::Manual) };
    let primary = start(of(0));
    let standbys = [1, 2].map(|n| start(NodeConfig { join: Some(primary.address().to_owned()), ..of(n) }));
    let [primary, second, third] = filled(primary, standbys);
    let in_the_way = without_room(&directories[0]);
    third.stop().unwrap();
    drop(third);
    let needs_another = || shipping(&primary).standbys.iter().filter(|it| it.in_sync).count() == 1;
    wait_for("one is left", needs_another);
    assert!(!is_named_by(&primary, 2), "it could not be noted");
    fs::remove_dir(in_the_way).unwrap();
    wait_for("both are named", || is_named_by(&primary, 2));
    drop(second);
}
