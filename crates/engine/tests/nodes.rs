//! Whole nodes in one process, over real sockets and files.

mod common;

use std::time::Instant;

use common::{SHAPES, Shape, all_are_named, churn, config, definition, hash, one_of_three, row, shipping, soon, start};
use freshet_engine::{
    Apply, Consent, Isolation, NodeConfig, RelayAck, ReplayMode, Role, Safety, StateHash, node::RoleStatus,
};

/// Each shape of logs with the usual way of replay, some with the other.
fn in_all_ways(test: fn(Shape, Apply)) {
    SHAPES.into_iter().for_each(|shape| test(shape, Apply::Fresh));
    [Shape::OneStream, Shape::Pages].into_iter().for_each(|shape| test(shape, Apply::Full));
}

#[test]
fn a_node_comes_back_from_its_log() {
    SHAPES.into_iter().for_each(comes_back);
}

fn comes_back(shape: Shape) {
    let directory = tempfile::tempdir().unwrap();
    let config = |directory| shape.of_node(1, config(directory));
    let before = {
        let node = start(config(Some(directory.path())));
        let table = node.database().create_table(&definition()).unwrap().clone();
        churn(node.database(), &table, 0, 3000);
        let before = hash(&node);
        node.stop().unwrap();
        before
    };
    for round in 0..3u64 {
        let node = start(config(Some(directory.path())));
        assert!(node.torn().is_none());
        if round == 0 {
            assert_eq!(hash(&node), before);
        }
        let table = node.database().table("things").unwrap().clone();
        churn(node.database(), &table, 100_000 * (round + 1), 100_000 * (round + 1) + 500);
        node.stop().unwrap();
    }
}

#[test]
fn a_standby_sees_what_its_primary_commits() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let full = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (apply, directories) in [
        (Apply::Fresh, [None, None]),
        (Apply::Fresh, [Some(first.path()), Some(second.path())]),
        (Apply::Full, [None, None]),
        (Apply::Full, [Some(full.0.path()), Some(full.1.path())]),
    ] {
        let primary = start(NodeConfig { safety: Safety::Quorum(2), ..config(directories[0]) });
        let standby = start(NodeConfig { join: Some(primary.address().into()), apply, ..config(directories[1]) });
        assert_eq!((primary.role(), standby.role()), (Role::Primary, Role::Standby));
        let table = primary.database().create_table(&definition()).unwrap().clone();
        for part in 0..4u64 {
            let end = churn(primary.database(), &table, part * 1000, part * 1000 + 1000);
            standby.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(&standby), hash(&primary));
        }
        let worker = standby.database().worker().unwrap();
        let txn = worker.begin(Isolation::Snapshot);
        let theirs = standby.database().table("things").unwrap();
        assert!(txn.insert(&theirs, &row(1, 1, 1)).unwrap_err().to_string().contains("standby"));
        drop(txn);
        primary.stop().unwrap();
        standby.stop().unwrap();
    }
}

#[test]
fn a_standby_takes_over_and_the_old_primary_rejoins() {
    in_all_ways(takes_over);
}

fn takes_over(shape: Shape, apply: Apply) {
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let cluster = |n: usize| one_of_three(directories[n].path(), n, shape, apply);
    let old = start(cluster(0));
    let join = Some(old.address().to_owned());
    let second = start(NodeConfig { join: join.clone(), ..cluster(1) });
    let third = start(NodeConfig { join, ..cluster(2) });
    let table = old.database().create_table(&definition()).unwrap().clone();
    let end = churn(old.database(), &table, 0, 2000);
    second.wait_visible(end, soon()).unwrap();
    third.wait_visible(end, soon()).unwrap();
    all_are_named(&old);
    let before = hash(&old);
    let reader = second.database().worker().unwrap();
    let long = reader.begin_read_only();
    let seen = StateHash::of(&long).unwrap();
    old.stop().unwrap();
    drop(old);
    let promotion = second.promote(Consent::Nothing).unwrap();
    assert_eq!(second.role(), Role::Primary);
    assert!(promotion.at >= end);
    assert_eq!(hash(&second), before);
    let table = second.database().table("things").unwrap().clone();
    let end = churn(second.database(), &table, 10_000, 12_000);
    assert_eq!(StateHash::of(&long).unwrap(), seen, "a reader that was there goes on as if nothing had happened");
    third.wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&third), hash(&second));
    let back = start(NodeConfig { join: Some(second.address().into()), ..cluster(0) });
    back.wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&back), hash(&second));
    let end = churn(second.database(), &table, 20_000, 20_500);
    for node in [&third, &back] {
        node.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(node), hash(&second));
    }
    drop(long);
    for node in [second, third, back] {
        node.stop().unwrap();
    }
}

#[test]
fn what_was_never_acknowledged_is_saved_and_cut() {
    in_all_ways(saved_and_cut);
}

fn saved_and_cut(shape: Shape, apply: Apply) {
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let cluster = |n: usize| {
        let config = NodeConfig { safety: Safety::Quorum(2), apply, ..config(Some(directories[n].path())) };
        shape.of_node(n, config)
    };
    let old = start(cluster(0));
    let join = Some(old.address().to_owned());
    let second = start(NodeConfig { join: join.clone(), ..cluster(1) });
    let third = start(NodeConfig { join: join.clone(), ..cluster(2) });
    let table = old.database().create_table(&definition()).unwrap().clone();
    let end = churn(old.database(), &table, 0, 500);
    for node in [&second, &third] {
        node.wait_visible(end, soon()).unwrap();
    }
    all_are_named(&old);
    let acknowledged = hash(&old);
    // Nobody hears of what comes now.
    second.stop().unwrap();
    third.stop().unwrap();
    drop((second, third));
    let worker = old.database().worker().unwrap();
    let ((), lost) = worker
        .execute(Isolation::Snapshot, |txn| {
            txn.insert(&table, &row(1_000_000, 1, 1))?;
            Ok(())
        })
        .unwrap();
    old.log().unwrap().wait_durable(lost.until, soon()).unwrap();
    let given_up = old.wait(lost, Some(Instant::now())).unwrap_err();
    assert!(given_up.to_string().contains("outcome of the transaction is open"), "{given_up}");
    drop(worker);
    old.stop().unwrap();
    drop(old);
    let third = start(NodeConfig { join: join.clone(), ..cluster(2) });
    let second = start(NodeConfig { join, peers: vec![third.address().to_owned()], ..cluster(1) });
    second.promote(Consent::Nothing).unwrap();
    assert_eq!(hash(&second), acknowledged);
    let back = start(NodeConfig { join: Some(second.address().into()), ..cluster(0) });
    let table = second.database().table("things").unwrap().clone();
    let end = churn(second.database(), &table, 10_000, 10_100);
    for node in [&third, &back] {
        node.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(node), hash(&second));
    }
    let saved = back.saved_tails();
    assert_eq!(saved.len(), 1);
    let found: Vec<_> = freshet_log::inspect::Inspection::open(&saved[0]).unwrap().map(Result::unwrap).collect();
    let holds = |finding: &freshet_log::inspect::Finding| match finding {
        freshet_log::inspect::Finding::Block { header, .. } => Some(header.lsn) == lost.lsn,
        _ => false,
    };
    assert!(found.iter().any(holds), "the saved tail holds the lost block: {found:?}");
    for node in [back, third, second] {
        node.stop().unwrap();
    }
}

/// Without replay the log flows through a ring that is smaller than it; who takes over, or
/// restarts, replays it from the segments.
#[test]
fn a_standby_that_does_not_replay_replays_when_it_must() {
    for (shape, apply, restarts) in [
        (Shape::OneStream, Apply::Fresh, false),
        (Shape::OneStream, Apply::Full, false),
        (Shape::OneStream, Apply::Fresh, true),
        (Shape::Persistent, Apply::Fresh, false),
        (Shape::Persistent, Apply::Fresh, true),
    ] {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let with_small_ring = |node, config: NodeConfig| {
            let mut config = shape.of_node(node, config);
            config.log.buffer_bytes = 128 << 10;
            config
        };
        let primary = NodeConfig { safety: Safety::Quorum(2), ..config(Some(first.path())) };
        let primary = start(with_small_ring(0, primary));
        let join = |primary: &str| {
            let standby = NodeConfig {
                join: Some(primary.to_owned()),
                replay: ReplayMode::None,
                apply,
                // It outlives its primary.
                safety: Safety::OneSafe,
                ..config(Some(second.path()))
            };
            with_small_ring(1, standby)
        };
        let mut standby = start(join(primary.address()));
        let at_start = hash(&standby);
        let table = primary.database().create_table(&definition()).unwrap().clone();
        let end = churn(primary.database(), &table, 0, 3000);
        assert!(end.0 > 3 * (128 << 10), "the log is longer than the ring: {end}");
        assert_eq!(hash(&standby), at_start);
        let before = hash(&primary);
        if restarts {
            standby.stop().unwrap();
            drop(standby);
            standby = start(join(primary.address()));
            standby.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(&standby), before);
        }
        primary.stop().unwrap();
        drop(primary);
        standby.promote(Consent::Loss).unwrap();
        assert_eq!(hash(&standby), before);
        churn(standby.database(), &standby.database().table("things").unwrap(), 10_000, 11_000);
        standby.stop().unwrap();
    }
}

/// Node 0 is the primary, 1 its only standby and a relay that acknowledges for node 2, which
/// follows it.
#[test]
fn a_standby_of_a_standby_follows_through_a_failover() {
    [Shape::OneStream, Shape::ThreeStreams, Shape::Persistent].into_iter().for_each(cascades);
}

fn cascades(shape: Shape) {
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let cluster = |n: usize| {
        let config = NodeConfig {
            safety: Safety::Quorum(2),
            standby_timeout_ms: 60_000,
            relay_standbys: u32::from(n == 1),
            relay_ack: RelayAck::Downstream,
            asynchronous: n == 2,
            ..config(Some(directories[n].path()))
        };
        shape.of_node(n, config)
    };
    let primary = start(cluster(0));
    let relay = start(NodeConfig { join: Some(primary.address().into()), ..cluster(1) });
    let leaf = start(NodeConfig { join: Some(relay.address().into()), ..cluster(2) });
    let table = primary.database().create_table(&definition()).unwrap().clone();
    let end = churn(primary.database(), &table, 0, 2000);
    // Committed means that the leaf holds it.
    let RoleStatus::Standby { own, .. } = leaf.status().role else { panic!("a standby") };
    assert!(own.persisted >= end, "{} was committed, the leaf holds {}", end, own.persisted);
    leaf.wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&leaf), hash(&primary));
    let RoleStatus::Standby { own, .. } = relay.status().role else { panic!("a standby") };
    let passed = own.relay.unwrap();
    assert_eq!((passed.standbys.len(), passed.standbys[0].node, passed.through), (1, leaf.id(), vec![primary.id()]));
    assert_eq!(shipping(&primary).standbys.len(), 1);
    // A leaf that was away gets what it missed.
    leaf.stop().unwrap();
    drop(leaf);
    let leaf = start(NodeConfig { join: Some(relay.address().into()), ..cluster(2) });
    let end = churn(primary.database(), &table, 10_000, 11_000);
    leaf.wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&leaf), hash(&primary));
    let before = hash(&primary);
    primary.stop().unwrap();
    drop(primary);
    relay.promote(Consent::Nothing).unwrap();
    assert_eq!(hash(&relay), before);
    // It follows the same node, which is its primary now, and counts for nothing there.
    let table = relay.database().table("things").unwrap().clone();
    let worker = relay.database().worker().unwrap();
    let txn = worker.begin(Isolation::Snapshot);
    txn.insert(&table, &row(77_777, 7, 7)).unwrap();
    let ticket = txn.commit().unwrap();
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let deadline = soon().unwrap();
        while !done() {
            assert!(Instant::now() < deadline, "this never happened: {what}");
            std::thread::yield_now();
        }
    };
    until("the leaf gets it", &|| {
        let RoleStatus::Standby { own, .. } = leaf.status().role else { panic!("a standby") };
        own.received >= ticket.until
    });
    leaf.stop().unwrap();
    relay.stop().unwrap();
}

/// Whatever was logged becomes durable and is shown everywhere, although nobody waits for it.
#[test]
fn an_idle_log_is_durable_to_its_end() {
    SHAPES.into_iter().for_each(durable_to_its_end);
}

fn durable_to_its_end(shape: Shape) {
    let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let cluster = |n: usize| {
        let config = NodeConfig { safety: Safety::Quorum(2), ..config(Some(directories[n].path())) };
        shape.of_node(n, config)
    };
    let primary = start(cluster(0));
    let standby = start(NodeConfig { join: Some(primary.address().to_owned()), ..cluster(1) });
    let table = primary.database().create_table(&definition()).unwrap().clone();
    for round in 0..20u64 {
        churn(primary.database(), &table, round * 100, round * 100 + 20);
        // The primary notes the time now and then, and waits for nothing of it.
        let deadline = soon();
        loop {
            let status = shipping(&primary);
            let end = primary.log().unwrap().reserved();
            if status.committed == end && standby.wait_visible(end, Some(Instant::now())).is_ok() {
                break;
            }
            assert!(deadline.is_none_or(|deadline| Instant::now() < deadline), "{shape:?} {end}: {status:#?}");
            std::thread::yield_now();
        }
    }
    for node in [primary, standby] {
        node.stop().unwrap();
    }
}
