//! 2-safe over whole nodes: commits go on without who stalls, and nobody takes over who may lack
//! some of them.

mod common;

use std::sync::Arc;

use common::{churn, config, definition, directories, hash, row, soon, start, wait_for};
use freshet_base::{Consent, NodeId, wait::Patience};
use freshet_cluster::commit_rule::Standing;
use freshet_engine::{Isolation, Node, NodeConfig, OutcomeOpen, Role, Safety, StateHash, node::RoleStatus};

/// A node of a cluster under 2-safe whose standbys are given up at once when they are gone.
fn two_safe(directory: &tempfile::TempDir, least_in_sync: u32) -> NodeConfig {
    NodeConfig { safety: Safety::TwoSafe, least_in_sync, ..config(Some(directory.path())) }
}

fn joining(primary: &str, own: NodeConfig) -> NodeConfig {
    NodeConfig { join: Some(primary.to_owned()), ..own }
}

/// Of how many standbys, in how many places, a primary says that commits wait for them.
fn in_sync(primary: &Node) -> usize {
    let RoleStatus::Primary { shipping, .. } = primary.status().role else { panic!("it is the primary") };
    shipping.standbys.iter().filter(|standby| standby.in_sync).count()
}

/// A cluster in which any two nodes may continue: node 1 leaves, the others go on, and the primary
/// is gone too. Returns where that was, node 2, and what was acknowledged.
fn one_was_put_out(directories: &[tempfile::TempDir]) -> (String, Arc<Node>, (u64, u64), NodeId) {
    let of = |n: usize| two_safe(&directories[n], 1);
    let primary = start(of(0));
    let address = primary.address().to_owned();
    let [put_out, stays] = [1, 2].map(|n| start(joining(&address, of(n))));
    wait_for("both are in sync", || in_sync(&primary) == 2);
    let table = primary.database().create_table(&definition()).unwrap();
    let end = churn(primary.database(), &table, 0, 500);
    put_out.wait_visible(end, soon()).unwrap();
    let before = hash(&put_out);
    put_out.stop().unwrap();
    let out = put_out.id();
    drop(put_out);
    // That it is out is on record before any of these is acknowledged.
    let end = churn(primary.database(), &table, 1000, 1500);
    // The other one has been told so, and that it is in effect, which nothing that is acknowledged
    // waits for.
    stays.wait_visible(end, soon()).unwrap();
    wait_for("the other one knows the set that is in effect", || {
        let set = stays.status().in_sync_set;
        set.is_some_and(|set| set.before.is_empty() && !set.may_have(out))
    });
    let acknowledged = hash(&primary);
    assert_ne!(acknowledged, before);
    primary.stop().unwrap();
    (address, stays, acknowledged, primary.id())
}

fn standing(primary: &Node) -> Standing {
    let RoleStatus::Primary { shipping, .. } = primary.status().role else { panic!("it is the primary") };
    shipping.standing
}

/// What a reader is told without having to wait.
fn read_at_once(node: &Node) -> (u64, u64) {
    let worker = node.database().worker().unwrap();
    let transaction = worker.begin_read_only();
    let hash = StateHash::of(&transaction).unwrap();
    let ticket = transaction.commit().unwrap();
    assert_eq!(node.database().outcome(ticket), Some(Ok(())), "what was read is known to be committed");
    (hash.hash, hash.records)
}

#[test]
fn who_was_put_out_does_not_take_over_alone() {
    let directories = directories();
    let of = |n: usize| two_safe(&directories[n], 1);
    let (address, stays, acknowledged, _) = one_was_put_out(&directories);
    // As far as it knows, the other two may have gone on; and they have. It has forgotten where
    // they are.
    std::fs::remove_file(directories[1].path().join("other-nodes")).unwrap();
    let put_out = start(joining(&address, of(1)));
    let refused = put_out.promote(Consent::Nothing).unwrap_err().to_string();
    assert!(refused.contains("in-sync set"), "{refused}");
    assert_eq!(put_out.role(), Role::Standby);
    // The other one needs nobody: without it nothing was acknowledged.
    stays.promote(Consent::Nothing).unwrap();
    assert_eq!(hash(&stays), acknowledged);
    put_out.stop().unwrap();
    drop(put_out);
    // With the two of the last set commits go on, and with the one that was put out soon after.
    let [follows, back] = [1, 0].map(|n| start(joining(stays.address(), of(n))));
    let end = churn(stays.database(), &stays.database().table("things").unwrap(), 5000, 5500);
    for node in [&follows, &back] {
        node.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(node), hash(&stays));
    }
    for node in [follows, back, stays] {
        node.stop().unwrap();
    }
}

/// It hears of the newest set from the other, and could get the log from there. But nothing would
/// keep the old primary from going on with another node, if the other one lost its log.
#[test]
fn who_was_put_out_does_not_take_over_with_the_log_of_who_stayed() {
    let directories = directories();
    let of = |n: usize| two_safe(&directories[n], 1);
    let (address, stays, acknowledged, gone) = one_was_put_out(&directories);
    let config = NodeConfig { peers: vec![stays.address().to_owned()], ..joining(&address, of(1)) };
    let put_out = start(config);
    let refused = put_out.promote(Consent::Nothing).unwrap_err().to_string();
    assert!(refused.contains("was put out") && refused.contains(&stays.id().to_string()), "{refused}");
    assert_eq!(put_out.role(), Role::Standby);
    put_out.stop().unwrap();
    drop(put_out);
    stays.promote(Consent::Nothing).unwrap();
    assert_eq!((stays.role(), hash(&stays)), (Role::Primary, acknowledged));
    let put_out = start(joining(stays.address(), of(1)));
    // What was committed is read at once, though nothing else commits: it says so, and for whom it
    // waits.
    assert_eq!(read_at_once(&stays), acknowledged);
    wait_for("it says for whom it waits", || match standing(&stays) {
        Standing::Blocked { waits_for, .. } => waits_for.contains(&gone),
        _ => false,
    });
    let (database, table) = (stays.database(), stays.database().table("things").unwrap());
    let worker = database.worker().unwrap();
    let (_, written) =
        worker.execute(Isolation::Serializable, |txn| Ok(txn.insert(&table, &row(9000, 1, 1))?)).unwrap();
    assert_eq!(
        database.wait_until(written, Patience::endless().unless(&|| true)),
        Err(OutcomeOpen::Deadline),
        "the wait ends when it is told to"
    );
    assert_eq!(database.outcome(written), None, "and the commit still waits");
    drop((worker, table));
    // Somebody who hears the old primary alone would take its set for the newest, so nothing is
    // committed without it.
    let back = start(joining(stays.address(), of(0)));
    let end = churn(stays.database(), &stays.database().table("things").unwrap(), 5000, 5500);
    for node in [&put_out, &back] {
        node.wait_visible(end, soon()).unwrap();
        assert_eq!(hash(node), hash(&stays));
    }
    for node in [put_out, back, stays] {
        node.stop().unwrap();
    }
}

#[test]
fn with_a_floor_the_primary_waits_rather_than_go_on_alone() {
    let directories = directories();
    let of = |n: usize| two_safe(&directories[n], 1);
    let primary = start(of(0));
    let address = primary.address().to_owned();
    let standby = start(joining(&address, of(1)));
    wait_for("it is in sync", || in_sync(&primary) == 1);
    let table = primary.database().create_table(&definition()).unwrap();
    churn(primary.database(), &table, 0, 500);
    standby.stop().unwrap();
    drop(standby);
    wait_for("it is gone", || in_sync(&primary) == 0);
    let worker = primary.database().worker().unwrap();
    let (_, ticket) = worker.execute(Isolation::Serializable, |txn| Ok(txn.insert(&table, &row(9000, 1, 1))?)).unwrap();
    drop(worker);
    let gate = &primary.database().core().snapshots.primary().unwrap().gate;
    let log = primary.log().unwrap();
    wait_for("it is durable here", || log.durable() >= ticket.until);
    assert!(gate.outcome(ticket.until).is_none(), "nobody else holds it");
    let standby = start(joining(&address, of(1)));
    primary.database().wait(ticket).unwrap();
    let acknowledged = hash(&primary);
    primary.stop().unwrap();
    drop((primary, table));
    // So the standby needs nobody.
    standby.promote(Consent::Nothing).unwrap();
    assert_eq!(hash(&standby), acknowledged);
    standby.stop().unwrap();
}

/// What the primary says to do where the other member of the set is gone for good.
#[test]
fn a_new_standby_takes_the_place_of_one_that_is_gone_for_good() {
    let directories = directories();
    let of = |n: usize| two_safe(&directories[n], 1);
    let primary = start(of(0));
    let address = primary.address().to_owned();
    let gone = start(joining(&address, of(1)));
    wait_for("it is in sync", || in_sync(&primary) == 1);
    let table = primary.database().create_table(&definition()).unwrap();
    let end = churn(primary.database(), &table, 0, 500);
    let gone_id = gone.id().to_string();
    gone.stop().unwrap();
    drop(gone);
    wait_for("it says what to do", || match standing(&primary) {
        Standing::Blocked { remedy: Some(remedy), .. } => remedy.contains("freshet remove --gone"),
        _ => false,
    });
    let new = start(joining(&address, of(2)));
    new.wait_visible(end, soon()).unwrap();
    assert!(matches!(standing(&primary), Standing::Blocked { .. }), "{:?}", standing(&primary));
    primary.remove(&gone_id, true).unwrap();
    let end = churn(primary.database(), &table, 1000, 1500);
    new.wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&new), hash(&primary));
    drop(table);
    // From then on the two are the cluster.
    primary.stop().unwrap();
    new.promote(Consent::Nothing).unwrap();
    new.stop().unwrap();
}

/// The standby was told that it may take over alone, and knows of nothing else.
#[test]
fn a_lower_floor_counts_when_the_standby_knows_of_it() {
    let directories = directories();
    let of = |n: usize, least_in_sync: u32| two_safe(&directories[n], least_in_sync);
    let primary = start(of(0, 1));
    let address = primary.address().to_owned();
    let listen = address.parse().unwrap();
    let standby = start(joining(&address, of(1, 1)));
    wait_for("it is in sync", || in_sync(&primary) == 1);
    let table = primary.database().create_table(&definition()).unwrap();
    churn(primary.database(), &table, 0, 500);
    standby.stop().unwrap();
    let away = standby.id();
    primary.stop().unwrap();
    drop((standby, primary, table));
    let primary = start(NodeConfig { listen, ..of(0, 0) });
    wait_for("it says for whom it waits", || match standing(&primary) {
        Standing::Blocked { waits_for, .. } => waits_for == [away],
        standing => panic!("{standing:?}: commits continue without {away}, which may take over without them"),
    });
    let standby = start(joining(&address, of(1, 0)));
    wait_for("it is in sync", || in_sync(&primary) == 1);
    churn(primary.database(), &primary.database().table("things").unwrap(), 1000, 1500);
    // From then on the primary continues alone.
    standby.stop().unwrap();
    drop(standby);
    churn(primary.database(), &primary.database().table("things").unwrap(), 2000, 2500);
    primary.stop().unwrap();
    drop(primary);
    let standby = start(joining(&address, of(1, 0)));
    assert!(standby.promote(Consent::Nothing).is_err(), "it lacks what was committed without it");
    standby.stop().unwrap();
}

#[test]
fn nothing_waits_for_an_asynchronous_standby_which_takes_over_all_the_same() {
    let directories = directories();
    let of = |n: usize| NodeConfig { asynchronous: n == 2, ..two_safe(&directories[n], 0) };
    let primary = start(of(0));
    let address = primary.address().to_owned();
    let [standby, asynchronous] = [1, 2].map(|n| start(joining(&address, of(n))));
    // Whether commits may count on them, and whether they wait for them.
    let kinds = || {
        let RoleStatus::Primary { shipping, .. } = primary.status().role else { unreachable!() };
        let mut kinds: Vec<_> = shipping.standbys.iter().map(|it| (it.synchronous, it.in_sync)).collect();
        kinds.sort_unstable();
        kinds
    };
    wait_for("one of two is in sync", || kinds() == [(false, false), (true, true)]);
    let table = primary.database().create_table(&definition()).unwrap();
    let end = churn(primary.database(), &table, 0, 500);
    for node in [&standby, &asynchronous] {
        node.wait_visible(end, soon()).unwrap();
    }
    // It is away: that changes nothing, for the set neither.
    asynchronous.stop().unwrap();
    drop(asynchronous);
    let end = churn(primary.database(), &table, 1000, 1500);
    assert_eq!(in_sync(&primary), 1);
    let acknowledged = hash(&primary);
    // Back, it may take over if all members of the set answer; the old primary is deposed by that.
    let asynchronous = start(joining(&address, of(2)));
    asynchronous.wait_visible(end, soon()).unwrap();
    asynchronous.promote(Consent::Nothing).unwrap();
    assert_eq!(hash(&asynchronous), acknowledged);
    let late = primary.database().create_table(&freshet_engine::TableDefinition::new("late", definition().indexes));
    assert!(late.is_err(), "it leads no more");
    standby.wait_visible(asynchronous.database().core().snapshots.current(), soon()).unwrap();
    assert_eq!(hash(&standby), acknowledged);
    for node in [standby, asynchronous, primary] {
        // The deposed primary has failed by then, as it should.
        let _ = node.stop();
    }
}
