//! Primaries that come back: whom they ask before they lead again.

mod common;

use std::{sync::mpsc, time::Duration};

use common::{
    all_are_named, churn, config, definition, directories, hash, is_named_by, row, soon, start,
    trio::{joining, of_three, trio},
    wait_for,
};
use freshet_base::{Consent, Rid, Term};
use freshet_cluster::{
    meeting::{Acknowledged, Claim},
    term::TermEntry,
};
use freshet_engine::{
    Isolation, Lsn, Node, NodeConfig, Role, Safety,
    node::{Failover, StartPhase},
};
use freshet_log::{BlockBuilder, BlockKind, RecordKind};
use freshet_membership::{Credentials, Grant, Part};
use freshet_replication::{
    endpoint,
    wire::{Hello, Purpose, Reply},
};

const PATIENCE: Duration = Duration::from_secs(10);

fn refused(config: NodeConfig) -> String {
    match Node::start(config, |_| {}) {
        Ok(node) => panic!("{node:?} must not lead"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_cluster_that_was_powered_off_comes_back() {
    // Of two standbys, one is enough.
    for first_up in [1, 2] {
        let directories = directories();
        let nodes = trio(&directories, [Failover::Manual; 3]);
        let (before, address) = (hash(&nodes[0]), nodes[0].address().to_owned());
        // The primary last, or first.
        let mut order = nodes.into_iter().collect::<Vec<_>>();
        if first_up == 2 {
            order.reverse();
        }
        for node in order {
            node.stop().unwrap();
        }
        let (report, reports) = mpsc::channel();
        let primary = NodeConfig { listen: address.parse().unwrap(), ..of_three(&directories[0], Failover::Manual) };
        let starts = std::thread::spawn(move || {
            Node::start(primary, |phase| {
                // Nobody listens any more when it has come.
                let _ = report.send(phase);
            })
        });
        let waits = |phase: &StartPhase| matches!(phase, StartPhase::Peers { answered: 1, needed: 2 });
        assert!(reports.iter().any(|phase| waits(&phase)), "it waits for the others");
        // Who wants to follow it makes itself known.
        let standby = joining(&address, &directories[first_up], Failover::Manual);
        let primary = starts.join().unwrap().unwrap();
        assert_eq!((primary.role(), hash(&primary)), (Role::Primary, before));
        let table = primary.database().table("things").unwrap();
        let end = churn(primary.database(), &table, 5000, 5500);
        let late = joining(&address, &directories[3 - first_up], Failover::Manual);
        for node in [&standby, &late] {
            node.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(node), hash(&primary));
        }
        for node in [late, standby, primary] {
            node.stop().unwrap();
        }
    }
}

/// Otherwise the old primary would have the higher term after a second restart, and undo what the
/// new one has committed.
#[test]
fn a_primary_that_was_succeeded_does_not_lead_again() {
    let directories = directories();
    let [old, second, third] = trio(&directories, [Failover::Manual; 3]);
    old.stop().unwrap();
    drop(old);
    second.promote(Consent::Nothing).unwrap();
    let table = second.database().table("things").unwrap();
    let end = churn(second.database(), &table, 5000, 5500);
    third.wait_visible(end, soon()).unwrap();
    let acknowledged = hash(&second);
    second.stop().unwrap();
    third.stop().unwrap();
    drop((second, third, table));
    let alone = || NodeConfig { restart_timeout_s: 0, ..of_three(&directories[0], Failover::Manual) };
    for _ in 0..3 {
        let why = refused(alone());
        assert!(why.contains("only 1 of 2 required nodes answered") && why.contains("force-primary"), "{why}");
    }
    // One of those who know: it is a standby from then on, also if it is started again, whether
    // anybody leads or not.
    let third = joining("127.0.0.1:1", &directories[2], Failover::Manual);
    for _ in 0..2 {
        let back = start(NodeConfig { peers: vec![third.address().to_owned()], ..alone() });
        assert_eq!(back.role(), Role::Standby);
        back.stop().unwrap();
    }
    let back = start(NodeConfig { peers: vec![third.address().to_owned()], ..alone() });
    third.promote(Consent::Loss).unwrap();
    let end = third.database().core().snapshots.current();
    back.wait_visible(end, soon()).unwrap();
    assert_eq!((hash(&third), hash(&back)), (acknowledged, acknowledged));
    third.stop().unwrap();
    back.stop().unwrap();
}

/// Started again as it was, while another node leads: it follows that node, and finds it without
/// being told its name.
#[test]
fn a_primary_that_was_succeeded_follows_by_itself() {
    let directories = directories();
    for safety in [Safety::Quorum(2), Safety::TwoSafe, Safety::VerySafe] {
        let directories: Vec<_> =
            directories.iter().map(|directory| tempfile::tempdir_in(directory).unwrap()).collect();
        let as_it_was = |node: usize, listen: &str| NodeConfig {
            safety,
            listen: listen.parse().unwrap(),
            ..of_three(&directories[node], Failover::Manual)
        };
        let any = "127.0.0.1:0";
        let old = start(as_it_was(0, any));
        let addresses = [old.address().to_owned()];
        let join = |node, listen: &str| NodeConfig { join: Some(addresses[0].clone()), ..as_it_was(node, listen) };
        let (second, third) = (start(join(1, any)), start(join(2, any)));
        let addresses = [addresses[0].clone(), second.address().to_owned(), third.address().to_owned()];
        let table = old.database().create_table(&definition()).unwrap();
        let end = churn(old.database(), &table, 0, 200);
        for node in [&second, &third] {
            node.wait_visible(end, soon()).unwrap();
        }
        all_are_named(&old);
        // It lives when it is succeeded: then everybody knows. And it is down before it can hear
        // more than that.
        second.promote(Consent::Nothing).unwrap();
        old.stop().unwrap();
        drop((old, table));
        for _ in 0..3 {
            let back = start(as_it_was(0, &addresses[0]));
            assert_eq!((back.role(), second.role()), (Role::Standby, Role::Primary), "{safety}");
            let end = second.database().core().snapshots.current();
            back.wait_visible(end, soon()).unwrap();
            back.stop().unwrap();
        }
        // The new one is started again as it was, too, with the address of the first. It leads
        // again, and the first follows.
        let back = start(as_it_was(0, &addresses[0]));
        back.wait_visible(second.database().core().snapshots.current(), soon()).unwrap();
        second.stop().unwrap();
        drop(second);
        let second = start(join(1, &addresses[1]));
        assert_eq!((second.role(), back.role()), (Role::Primary, Role::Standby), "{safety}");
        let table = second.database().table("things").unwrap();
        let end = churn(second.database(), &table, 1000, 1200);
        for node in [&back, &third] {
            node.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(node), hash(&second));
        }
        for node in [back, third, second] {
            node.stop().unwrap();
        }
    }
}

/// Its level needs no answer of others. But these may choose a successor while it reads its log, so
/// it has them promise: no two nodes begin a term beside one another.
#[test]
fn a_primary_that_is_succeeded_while_it_starts_begins_no_term() {
    let directories = directories();
    let as_it_was =
        |node: usize| NodeConfig { safety: Safety::VerySafe, ..of_three(&directories[node], Failover::Manual) };
    let old = start(as_it_was(0));
    let address = old.address().to_owned();
    let join = |node| start(NodeConfig { join: Some(address.clone()), ..as_it_was(node) });
    let [second, third] = [1, 2].map(join);
    let table = old.database().create_table(&definition()).unwrap();
    let end = churn(old.database(), &table, 0, 200);
    for node in [&second, &third] {
        node.wait_visible(end, soon()).unwrap();
    }
    all_are_named(&old);
    old.stop().unwrap();
    drop((old, table));
    // It has asked who leads: it reads its log now.
    let mut term = None;
    let config = NodeConfig { listen: address.parse().unwrap(), ..as_it_was(0) };
    let back = Node::start(config, |phase| {
        if phase != StartPhase::Tail && term.is_none() {
            term = Some(second.promote(Consent::Nothing).unwrap().term);
        }
    });
    let back = back.unwrap();
    assert_eq!((back.role(), second.role()), (Role::Standby, Role::Primary));
    assert_eq!(term, Some(Term(2)));
    let table = second.database().table("things").unwrap();
    let end = churn(second.database(), &table, 1000, 1200);
    for node in [&back, &third] {
        node.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(node), hash(&second));
    }
    [back, third, second].into_iter().for_each(|node| node.stop().unwrap());
}

/// A node has announced that it is about to lead, to another one, and is gone before it does. Who
/// led before follows it as long as it may live, and then leads: no operator is needed.
#[test]
fn a_primary_comes_back_after_one_that_has_never_led() {
    let directories = directories();
    let of = |n: usize| NodeConfig { safety: Safety::VerySafe, ..of_three(&directories[n], Failover::Manual) };
    let primary = start(of(0));
    let address = primary.address().to_owned();
    let standby = start(NodeConfig { join: Some(address.clone()), ..of(1) });
    let table = primary.database().create_table(&definition()).unwrap();
    let end = churn(primary.database(), &table, 0, 100);
    standby.wait_visible(end, soon()).unwrap();
    wait_for("both are named", || is_named_by(&primary, 2));
    let before = hash(&primary);
    let token = primary.credentials().give_token(Grant::Node(None), PATIENCE).unwrap();
    let (enrolled, key) = endpoint::enrol(&address, Some(&token), None, Part::Node, PATIENCE).unwrap();
    let passing = Credentials::enrolled(enrolled, &key).unwrap();
    drop(table);
    primary.stop().unwrap();
    drop(primary);

    let (node, term) = (passing.node().unwrap(), Term(2));
    let term_entry = TermEntry { term, start: end, node, nonce: 1 };
    let claim = Claim { term_entry, acknowledged: Acknowledged::Nothing };
    let purpose = Purpose::Announce { claim, address: "127.0.0.1:1".into() };
    let hello = Hello { cluster: Some(standby.cluster()), node, address: String::new(), purpose };
    let (reply, _) = endpoint::call(&passing, standby.address(), &hello, term, PATIENCE).unwrap();
    assert!(matches!(reply, Reply::Noted), "{reply:?}");

    let primary = start(NodeConfig { listen: address.parse().unwrap(), ..of(0) });
    wait_for("it leads", || primary.role() == Role::Primary);
    assert_eq!(hash(&primary), before);
    let table = primary.database().table("things").unwrap();
    let end = churn(primary.database(), &table, 1000, 1100);
    standby.wait_visible(end, soon()).unwrap();
    for node in [primary, standby] {
        node.stop().unwrap();
    }
}

#[test]
fn force_makes_a_primary_without_asking() {
    let directories = directories();
    let nodes = trio(&directories, [Failover::Manual; 3]);
    let before = hash(&nodes[0]);
    nodes.iter().for_each(|node| node.stop().unwrap());
    drop(nodes);
    let node = start(NodeConfig { force_primary: true, ..of_three(&directories[0], Failover::Manual) });
    assert_eq!((node.role(), hash(&node)), (Role::Primary, before));
    node.stop().unwrap();
}

/// What is read of a log that was inherited waits, as a write would, until enough nodes are known
/// to hold it.
#[test]
fn what_a_restart_finds_is_committed_when_enough_hold_it() {
    let directories = directories();
    let config = |n: usize| NodeConfig { safety: Safety::Quorum(2), ..config(Some(directories[n].path())) };
    let primary = start(config(0));
    let address = primary.address().to_owned();
    let follow = || start(NodeConfig { join: Some(address.clone()), ..config(1) });
    let standby = follow();
    let table = primary.database().create_table(&definition()).unwrap();
    let end = churn(primary.database(), &table, 0, 500);
    standby.wait_visible(end, soon()).unwrap();
    let before = hash(&primary);
    primary.stop().unwrap();
    standby.stop().unwrap();
    drop((primary, standby, table));
    let primary = start(NodeConfig { listen: address.parse().unwrap(), ..config(0) });
    let gate = &primary.database().core().snapshots.primary().unwrap().gate;
    assert!(gate.outcome(end).is_none(), "nobody else is known to hold it");
    let standby = follow();
    gate.wait(end, soon().into()).unwrap();
    let end = primary.database().core().snapshots.current();
    standby.wait_visible(end, soon()).unwrap();
    assert_eq!((hash(&primary), hash(&standby)), (before, before));
    primary.stop().unwrap();
    standby.stop().unwrap();
    // A node alone has nobody to ask or to wait for.
    let single = tempfile::tempdir().unwrap();
    for safety in [Safety::OneSafe, Safety::TwoSafe, Safety::VerySafe, Safety::Quorum(1)] {
        let node = start(NodeConfig { safety, ..common::config(Some(single.path())) });
        let end = node.database().core().snapshots.current();
        node.log().unwrap().force_fence(end);
        node.database().core().snapshots.primary().unwrap().gate.wait(end, soon().into()).unwrap();
        node.stop().unwrap();
    }
}

/// A failover from a primary that lives and works: what the primary makes durable in the meantime
/// is not part of what the candidate fetches.
#[test]
fn a_primary_under_load_is_succeeded() {
    let directories = directories();
    let [mut primary, mut second, mut third] = trio(&directories, [Failover::Manual; 3]);
    let stopping = std::sync::atomic::AtomicBool::new(false);
    let mut id = 1_000_000;
    for round in 0..5 {
        let table = primary.database().table("things").unwrap();
        let (loaded, full) = mpsc::channel();
        std::thread::scope(|scope| {
            for writer in 0..3_u64 {
                let (primary, table, stopping, loaded) = (&primary, &table, &stopping, loaded.clone());
                let first = id + writer * 1_000_000;
                scope.spawn(move || {
                    let worker = primary.database().worker().unwrap();
                    for written in 0.. {
                        let rows = first + written * 20..first + written * 20 + 20;
                        let outcome = worker.execute(Isolation::Snapshot, |txn| {
                            for id in rows.clone() {
                                txn.insert(table, &[row(id, id % 7, 0), vec![7; 500]].concat())?;
                            }
                            Ok(())
                        });
                        if written == 100 {
                            loaded.send(()).unwrap();
                        }
                        if outcome.is_err() || stopping.load(std::sync::atomic::Ordering::SeqCst) {
                            return;
                        }
                    }
                });
            }
            (0..3).for_each(|_| full.recv().unwrap());
            let outcome = second.promote(Consent::Nothing);
            stopping.store(outcome.is_err(), std::sync::atomic::Ordering::SeqCst);
            outcome.unwrap_or_else(|why| panic!("round {round}: {why}"));
        });
        id += 3_000_000;
        drop(table);
        // It is started again as it was, and follows.
        let (listen, directory) = (primary.address().to_owned(), primary.config().directory.clone());
        let _ = primary.stop();
        drop(primary);
        let back = start(NodeConfig {
            listen: listen.parse().unwrap(),
            directory,
            ..of_three(&directories[0], Failover::Manual)
        });
        assert_eq!(back.role(), Role::Standby);
        let end = second.database().core().snapshots.current();
        for node in [&back, &third] {
            node.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(node), hash(&second), "round {round}");
        }
        (primary, second, third) = (second, third, back);
    }
    for node in [third, second, primary] {
        node.stop().unwrap();
    }
}

/// In a log of several streams, the pieces that a restart reads begin where blocks are found, and
/// what a client stores may look like blocks.
#[test]
fn a_row_that_looks_like_blocks_brings_no_record_into_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = config(Some(directory.path()));
    settings.log.streams = 2;
    settings.log.segment_bytes = 64 << 10;
    let node = start(settings.clone());
    let table = node.database().create_table(&definition()).unwrap().clone();
    let mut builder = BlockBuilder::new();
    builder.begin_in(0);
    builder.push(None, table.fid(), Rid(700), RecordKind::Insert, &row(666, 666, 666)).unwrap();
    builder.seal_records();
    let looks_so = builder.finish(Lsn(0), Term(1), BlockKind::Redo);
    let mut long = row(1, 1, 1);
    long.extend_from_slice(&looks_so.repeat(2000));
    let worker = node.database().worker().unwrap();
    let ((), ticket) = worker
        .execute(Isolation::Serializable, |txn| {
            txn.insert(&table, &long)?;
            Ok(())
        })
        .unwrap();
    node.database().wait(ticket).unwrap();
    drop(worker);
    churn(node.database(), &table, 1000, 1500);
    let before = hash(&node);
    node.stop().unwrap();
    drop((table, node));
    let node = start(settings);
    assert_eq!(hash(&node), before);
    node.stop().unwrap();
}
