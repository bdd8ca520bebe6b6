//! Nodes that have lost what they had: a directory that was set back or emptied, newcomers. An
//! answer counts by what it proves.

mod common;

use std::{fs, path::Path, sync::Arc};

use common::{
    all_are_named, all_are_named_as, churn, config, definition, hash, is_named_by, row, soon, start, wait_for,
};
use freshet_base::{Consent, Term};
use freshet_cluster::meeting::Yields;
use freshet_engine::{Isolation, Lsn, Node, NodeConfig, Role, Safety, node::RoleStatus};
use freshet_replication::status::{AheadStatus, PrimaryId, TwoPrimaries};
use freshet_testing::copy;

const LEVELS: [(Safety, u32); 5] =
    [(Safety::OneSafe, 0), (Safety::TwoSafe, 0), (Safety::TwoSafe, 1), (Safety::VerySafe, 0), (Safety::Quorum(2), 0)];

fn of(directory: &Path, safety: Safety, least_in_sync: u32) -> NodeConfig {
    NodeConfig { safety, least_in_sync, standby_timeout_ms: 500, ..config(Some(directory)) }
}

fn joining(primary: &str, own: NodeConfig) -> NodeConfig {
    NodeConfig { join: Some(primary.to_owned()), ..own }
}

fn directories() -> [tempfile::TempDir; 4] {
    [(); 4].map(|()| tempfile::tempdir().unwrap())
}

fn stop(nodes: impl IntoIterator<Item = Arc<Node>>) {
    nodes.into_iter().for_each(|node| node.stop().unwrap());
}

fn empty(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

/// Up to where a node has noted that clients were told of commits.
fn noted(directory: &Path) -> u64 {
    let noted = fs::read_to_string(directory.join("acknowledged")).unwrap_or_default();
    noted.split(' ').next().and_then(|noted| noted.parse().ok()).unwrap_or(0)
}

fn ahead(node: &Node) -> Vec<AheadStatus> {
    match node.status().role {
        RoleStatus::Primary { shipping, .. } => shipping.ahead,
        RoleStatus::Standby { own, .. } => own.ahead,
        role => panic!("{role:?}"),
    }
}

fn in_sync(primary: &Node) -> usize {
    let RoleStatus::Primary { shipping, .. } = primary.status().role else { panic!("it is the primary") };
    shipping.standbys.iter().filter(|standby| standby.in_sync).count()
}

/// R1: an empty newcomer is no answer, whatever it is told to join, and no candidate either.
#[test]
fn a_newcomer_gives_no_vote_to_one_that_lags() {
    let directories = directories();
    let of = |n: usize| of(directories[n].path(), Safety::Quorum(2), 0);
    let primary = start(of(0));
    let address = primary.address().to_owned();
    let [lags, stays] = [1, 2].map(|n| start(joining(&address, of(n))));
    let table = primary.database().create_table(&definition()).unwrap();
    all_are_named(&primary);
    let end = churn(primary.database(), &table, 0, 100);
    lags.wait_visible(end, soon()).unwrap();
    let lag_address = lags.address().to_owned();
    lags.stop().unwrap();
    drop(lags);
    churn(primary.database(), &table, 1000, 1200);
    let acknowledged = hash(&primary);
    drop(table);
    stop([stays, primary]);
    let lags = start(NodeConfig { listen: lag_address.parse().unwrap(), ..joining(&address, of(1)) });
    let refused = lags.promote(Consent::Nothing).unwrap_err().to_string();
    assert!(refused.contains("only 1 of 2"), "{refused}");
    let newcomer = start(joining(&lag_address, of(3)));
    let known = NodeConfig { peers: vec![newcomer.address().to_owned()], ..joining(&address, of(1)) };
    stop([lags]);
    let lags = start(NodeConfig { listen: lag_address.parse().unwrap(), ..known });
    let refused = lags.promote(Consent::Nothing).unwrap_err().to_string();
    assert!(refused.contains("only 1 of 2"), "{refused}");
    assert!(newcomer.promote(Consent::Nothing).is_err());
    stop([newcomer]);
    // With one that has what was acknowledged.
    let stays = start(joining(&lag_address, of(2)));
    let known = NodeConfig { peers: vec![stays.address().to_owned()], ..joining(&address, of(1)) };
    stop([lags]);
    let lags = start(NodeConfig { listen: lag_address.parse().unwrap(), ..known });
    lags.promote(Consent::Nothing).unwrap();
    assert_eq!(hash(&lags), acknowledged);
    stop([lags, stays]);
}

/// R2, R3: a primary whose directory was set back asks the others, at every level, and gets from
/// them what they hold of its own term.
#[test]
fn a_primary_that_was_set_back_gets_back_what_others_hold() {
    for (safety, least_in_sync) in LEVELS {
        let directories = directories();
        let of = |n: usize| of(directories[n].path(), safety, least_in_sync);
        let primary = start(of(0));
        let address = primary.address().to_owned();
        let standbys = [1, 2].map(|n| start(joining(&address, of(n))));
        wait_for("both are in sync", || in_sync(&primary) == 2);
        let table = primary.database().create_table(&definition()).unwrap();
        churn(primary.database(), &table, 0, 100);
        let older = tempfile::tempdir().unwrap();
        copy(directories[0].path(), older.path());
        let end = churn(primary.database(), &table, 1000, 1300);
        standbys.iter().for_each(|standby| _ = standby.wait_visible(end, soon()).unwrap());
        let acknowledged = hash(&primary);
        drop(table);
        stop([primary]);
        empty(directories[0].path());
        copy(older.path(), directories[0].path());
        let back = start(NodeConfig { listen: address.parse().unwrap(), ..of(0) });
        assert_eq!((back.role(), hash(&back)), (Role::Primary, acknowledged), "{safety} {least_in_sync}");
        let table = back.database().table("things").unwrap();
        let end = churn(back.database(), &table, 5000, 5100);
        drop(table);
        for standby in &standbys {
            standby.wait_visible(end, soon()).unwrap();
            assert_eq!(hash(standby), hash(&back), "{safety}");
        }
        stop(standbys.into_iter().chain([back]));
    }
}

/// The others were down when it came back, so it leads with what it has. They do not follow it,
/// and keep what was acknowledged.
#[test]
fn what_was_acknowledged_is_not_given_up_for_a_primary_that_was_set_back() {
    let directories = directories();
    let of = |n: usize| NodeConfig { ..of(directories[n].path(), Safety::TwoSafe, 0) };
    let primary = start(of(0));
    let address = primary.address().to_owned();
    let standby = start(joining(&address, of(1)));
    wait_for("it is in sync", || in_sync(&primary) == 1);
    let table = primary.database().create_table(&definition()).unwrap();
    churn(primary.database(), &table, 0, 100);
    let older = tempfile::tempdir().unwrap();
    copy(directories[0].path(), older.path());
    let end = churn(primary.database(), &table, 1000, 1300);
    standby.wait_visible(end, soon()).unwrap();
    let acknowledged = hash(&primary);
    wait_for("it notes that", || noted(directories[1].path()) >= end.0);
    drop(table);
    stop([standby, primary]);
    empty(directories[0].path());
    copy(older.path(), directories[0].path());
    let back = start(NodeConfig { listen: address.parse().unwrap(), ..of(0) });
    assert_eq!(back.role(), Role::Primary, "nobody could be asked, and 2-safe needs nobody");
    let table = back.database().table("things").unwrap();
    churn(back.database(), &table, 5000, 5100);
    drop(table);
    let standby = start(joining(&address, of(1)));
    let reason = || match standby.status().role {
        RoleStatus::Standby { own, .. } => format!("{:?}", own.link),
        role => panic!("{role:?}"),
    };
    wait_for("it reports that it holds more", || reason().contains("acknowledged to clients"));
    stop([back]);
    standby.promote(Consent::Loss).unwrap();
    assert_eq!(hash(&standby), acknowledged);
    stop([standby]);
}

/// All nodes name the one that keeps what the cluster has not, a relay and those below it, too,
/// until it is there no more.
#[test]
fn who_holds_more_than_the_cluster_is_named_by_every_node() {
    [false, true].into_iter().for_each(is_named_until_it_is_gone);
}

/// An operator removes it, or has it begin again.
fn is_named_until_it_is_gone(removed: bool) {
    let directories = directories();
    let of = |n: usize| of(directories[n].path(), Safety::TwoSafe, 0);
    let primary = start(of(0));
    let address = primary.address().to_owned();
    let holds_more = start(joining(&address, of(1)));
    wait_for("it is in sync", || in_sync(&primary) == 1);
    let table = primary.database().create_table(&definition()).unwrap();
    churn(primary.database(), &table, 0, 100);
    let older = tempfile::tempdir().unwrap();
    copy(directories[0].path(), older.path());
    let end = churn(primary.database(), &table, 1000, 1300);
    holds_more.wait_visible(end, soon()).unwrap();
    wait_for("it notes that", || noted(directories[1].path()) >= end.0);
    drop(table);
    let listen = holds_more.bound_address();
    stop([holds_more, primary]);
    empty(directories[0].path());
    copy(older.path(), directories[0].path());
    let back = start(NodeConfig { listen: address.parse().unwrap(), force_primary: true, ..of(0) });
    let table = back.database().table("things").unwrap();
    churn(back.database(), &table, 5000, 5100);
    let relay = start(joining(&address, NodeConfig { relay_standbys: 1, ..of(2) }));
    let below = start(joining(relay.address(), NodeConfig { asynchronous: true, ..of(3) }));
    let end = churn(back.database(), &table, 6000, 6100);
    below.wait_visible(end, soon()).unwrap();
    drop(table);
    let named = || [&back, &relay, &below].map(|node| ahead(node));
    assert!(named().iter().all(Vec::is_empty), "{:?}", named());
    let holds_more = start(NodeConfig { listen, ..joining(&address, of(1)) });
    wait_for("all name it", || named().iter().all(|ahead| ahead.len() == 1));
    for ahead in named() {
        let AheadStatus { node, address, term, end, acknowledged, why } = &ahead[0];
        assert_eq!((*node, &**address, *term), (holds_more.id(), holds_more.address(), Term(1)));
        assert!(acknowledged <= end && why.contains("acknowledged to clients"), "{ahead:?}");
    }
    let RoleStatus::Standby { own, .. } = holds_more.status().role else { panic!("it is a standby") };
    assert!(own.holds_more.is_some_and(|why| why.contains("promote --force")));
    if removed {
        back.remove(&holds_more.id().to_string(), false).unwrap();
        wait_for("it is named no more", || named().iter().all(Vec::is_empty));
        return stop([holds_more, below, relay, back]);
    }
    // The operator keeps its directory aside, and starts it with a new one.
    stop([holds_more]);
    empty(directories[1].path());
    let joined = start(NodeConfig { listen, ..joining(&address, of(1)) });
    wait_for("nobody names it any more", || named().iter().all(Vec::is_empty));
    assert!(ahead(&joined).is_empty());
    stop([below, relay, joined, back]);
}

/// R4: a node that was emptied, and one that was made to join (D3), begin no cluster by themselves.
#[test]
fn a_node_without_a_log_begins_no_cluster_unasked() {
    let directories = directories();
    let of = |n: usize| NodeConfig { new_cluster: false, ..of(directories[n].path(), Safety::Quorum(2), 0) };
    let refused = |config: NodeConfig| match Node::start(config, |_| {}) {
        Ok(node) => panic!("{node:?} must not begin"),
        Err(error) => error.to_string(),
    };
    let why = refused(NodeConfig { peers: vec!["127.0.0.1:1".into()], ..of(0) });
    assert!(why.contains("`peers` names other nodes"), "{why}");
    let primary = start(NodeConfig { peers: vec!["127.0.0.1:1".into()], new_cluster: true, ..of(0) });
    let address = primary.address().to_owned();
    let standby = start(joining(&address, of(1)));
    wait_for("it is named", || is_named_by(&primary, 2));
    let peers = vec![standby.address().to_owned()];
    stop([primary]);
    // No primary is there to give the third a log.
    let third = start(joining(standby.address(), of(2)));
    stop([third]);
    let why = refused(of(2));
    assert!(why.contains("made to join cluster") && why.contains("--new-cluster"), "{why}");
    empty(directories[0].path());
    for peers in [peers, Vec::new()] {
        let why = refused(NodeConfig { listen: address.parse().unwrap(), peers, ..of(0) });
        assert!(why.contains("--new-cluster") && why.contains("--join"), "{why}");
    }
    stop([standby]);
}

/// A node that was emptied comes again as another one: it counts when it is level and on record, in
/// the place of the one that it was.
#[test]
fn a_node_that_was_emptied_takes_its_place_again() {
    for safety in [Safety::VerySafe, Safety::Quorum(2), Safety::Quorum(3)] {
        let directories = directories();
        let of = |n: usize| of(directories[n].path(), safety, 0);
        let primary = start(of(0));
        let address = primary.address().to_owned();
        let [second, third] = [1, 2].map(|n| start(joining(&address, of(n))));
        all_are_named(&primary);
        let table = primary.database().create_table(&definition()).unwrap();
        churn(primary.database(), &table, 0, 100);
        let third_address = third.address().to_owned();
        stop([third]);
        empty(directories[2].path());
        let third = start(NodeConfig { listen: third_address.parse().unwrap(), ..joining(&address, of(2)) });
        // And not only written, beside the set with the one that it was: as long as that may be in
        // effect, too, a candidate needs the primary's answer.
        all_are_named_as(&primary, &third);
        let end = churn(primary.database(), &table, 1000, 1100);
        third.wait_visible(end, soon()).unwrap();
        let acknowledged = hash(&primary);
        drop(table);
        stop([primary]);
        third.promote(Consent::Nothing).unwrap();
        assert_eq!(hash(&third), acknowledged, "{safety}");
        stop([second, third]);
    }
}

/// Whom a node has met, as a primary, or its primary has.
fn met(node: &Node) -> Vec<TwoPrimaries> {
    match node.status().role {
        RoleStatus::Primary { shipping, .. } => shipping.two_primaries,
        RoleStatus::Standby { own, .. } => own.two_primaries,
        role => panic!("{role:?}"),
    }
}

/// Has a primary learn that there may be a node at `address`: one that joins says that it is there.
fn introduce(primary: &Node, address: &str, safety: Safety) {
    let directory = tempfile::tempdir().unwrap();
    let own = NodeConfig { asynchronous: true, advertise: Some(address.to_owned()), ..of(directory.path(), safety, 0) };
    let node = start(joining(primary.address(), own));
    wait_for("it is known", || {
        let RoleStatus::Primary { shipping, .. } = primary.status().role else { panic!("it is the primary") };
        shipping.standbys.iter().any(|standby| standby.node == node.id())
    });
    stop([node]);
}

/// A copy of a node's directory that knows of no other node.
fn alone(directory: &Path) -> tempfile::TempDir {
    let alone = tempfile::tempdir().unwrap();
    copy(directory, alone.path());
    let _ = fs::remove_file(alone.path().join("other-nodes"));
    alone
}

fn commits(node: &Node, from: u64) -> Lsn {
    let table = node.database().table("things").unwrap();
    churn(node.database(), &table, from, from + 50)
}

/// Two terms have met, and both nodes report which is which, and which of them yields.
#[track_caller]
fn have_met(this: &Node, other: &Node, terms: [u32; 2], yields: Yields) {
    wait_for("they have met", || met(this).iter().any(|met| met.yields == yields));
    let met = met(this).into_iter().find(|met| met.yields == yields).unwrap();
    let named = |who: &PrimaryId| (who.node, who.address.clone(), who.term.0);
    assert_eq!(named(&met.this), (this.id(), this.address().to_owned(), terms[0]));
    assert_eq!(named(&met.other), (other.id(), other.address().to_owned(), terms[1]));
    assert!(met.why.contains("two primaries") && met.why.contains(this.address()), "{met:?}");
    assert!(met.why.contains(other.address()) && met.why.contains(&format!("in term {}", terms[1])), "{met:?}");
}

/// A node was put into the place of a primary while that was away. Its term is the later one, or
/// its log is the one that another node has acknowledged.
#[test]
fn of_two_primaries_the_one_of_the_earlier_term_or_without_acknowledgements_yields() {
    for term in [2, 3] {
        let directories = directories();
        let of = |n: usize| of(directories[n].path(), Safety::Quorum(2), 0);
        let old = start(of(0));
        let next = start(joining(old.address(), of(1)));
        let table = old.database().create_table(&definition()).unwrap();
        let end = churn(old.database(), &table, 0, 100);
        next.wait_visible(end, soon()).unwrap();
        drop(table);
        stop([old]);
        next.promote(Consent::Loss).unwrap();
        let next = if term == 2 {
            next
        } else {
            let listen = next.bound_address();
            stop([next]);
            start(NodeConfig { force_primary: true, listen, ..of(1) })
        };
        let third = start(joining(next.address(), of(2)));
        wait_for("it is named", || is_named_by(&next, 2));
        commits(&next, 1000);
        let directory = alone(directories[0].path());
        let own = NodeConfig { directory: directory.path().to_owned(), ..of(0) };
        let old = start(own.clone());
        assert_eq!((old.role(), old.is_deposed(), met(&next)), (Role::Primary, false, Vec::new()));
        introduce(&next, old.address(), Safety::Quorum(2));
        have_met(&old, &next, [2, term], Yields::This);
        have_met(&next, &old, [term, 2], Yields::Other);
        wait_for("who follows says so, too", || met(&third) == met(&next));
        wait_for("it is to start again", || old.is_succeeded());
        assert!(old.is_deposed() && !next.is_deposed());
        // As it does by itself.
        stop([old]);
        let old = start(NodeConfig { peers: vec![next.address().to_owned()], ..own });
        assert_eq!(old.role(), Role::Standby);
        let end = commits(&next, 2000);
        old.wait_visible(end, soon()).unwrap();
        assert_eq!((hash(&old), met(&old)), (hash(&next), met(&next)));
        stop([old, third, next]);
    }
}

/// A primary, and the standby that its newest set names; both have rows.
fn named_pair(of: impl Fn(usize) -> NodeConfig) -> (Arc<Node>, Arc<Node>) {
    let primary = start(of(0));
    let standby = start(joining(primary.address(), of(1)));
    let table = primary.database().create_table(&definition()).unwrap();
    wait_for("it is named", || is_named_by(&primary, 2));
    churn(primary.database(), &table, 0, 100);
    (primary, standby)
}

/// A copy of a primary's directory begins the term that the primary is in. What its log has nobody
/// has acknowledged.
#[test]
fn of_two_primaries_that_are_one_node_the_one_without_acknowledgements_yields() {
    let directories = directories();
    let of = |n: usize| NodeConfig { ..of(directories[n].path(), Safety::Quorum(2), 0) };
    let (primary, standby) = named_pair(of);
    let address = primary.address().to_owned();
    stop([primary]);
    let directory = alone(directories[0].path());
    let primary = start(NodeConfig { listen: address.parse().unwrap(), ..of(0) });
    commits(&primary, 1000);
    let own = NodeConfig { directory: directory.path().to_owned(), ..of(0) };
    let knows = NodeConfig { peers: vec![address.clone()], ..own.clone() };
    let refused = Node::start(knows, |_| {}).map_err(|error| error.to_string()).unwrap_err();
    assert!(refused.contains("is the primary already") && refused.contains(&address), "{refused}");
    let twin = start(own);
    assert_eq!((twin.id(), twin.status().term), (primary.id(), primary.status().term));
    introduce(&twin, primary.address(), Safety::Quorum(2));
    have_met(&twin, &primary, [2, 2], Yields::This);
    have_met(&primary, &twin, [2, 2], Yields::Other);
    assert!(met(&twin)[0].why.contains("copy of its directory"), "{:?}", met(&twin));
    assert!(twin.is_deposed() && !twin.is_succeeded(), "it must not start again by itself");
    let end = commits(&primary, 2000);
    standby.wait_visible(end, soon()).unwrap();
    wait_for("who follows says so, too", || met(&standby) == met(&primary));
    assert_eq!(hash(&standby), hash(&primary));
    stop([twin, standby, primary]);
}

/// Each has a standby, a copy as well, that has acknowledged what clients were told.
#[test]
fn two_primaries_with_acknowledgements_both_stop() {
    let directories = directories();
    let of = |n: usize| NodeConfig { ..of(directories[n].path(), Safety::Quorum(2), 0) };
    let (primary, standby) = named_pair(of);
    stop([standby, primary]);
    let pairs = [0, 1].map(|pair| {
        let copies = [0, 1].map(|n| alone(directories[n].path()));
        let own = |n: usize| NodeConfig { directory: copies[n].path().to_owned(), ..of(n) };
        let primary = start(own(0));
        let standby = start(joining(primary.address(), own(1)));
        commits(&primary, 1000 * (pair + 1));
        (primary, standby, copies)
    });
    let [(one, _, _), (other, _, _)] = &pairs;
    introduce(one, other.address(), Safety::Quorum(2));
    for (this, other) in [(one, other), (other, one)] {
        have_met(this, other, [2, 2], Yields::Both);
        assert!(this.is_deposed() && !this.is_succeeded(), "an operator has to choose");
        assert!(met(this)[0].why.contains("both yield"), "{:?}", met(this));
        let worker = this.database().worker().unwrap();
        let table = this.database().table("things").unwrap();
        let refused = worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(&table, &row(9, 9, 9))?));
        assert!(refused.is_err() || this.database().wait(refused.unwrap().1).is_err());
    }
    // The operator chooses one, and ends the other for good.
    let [(one, standby, copies), (other, others, _)] = pairs;
    let listen = one.bound_address();
    stop([others, other, one]);
    let directory = copies[0].path().to_owned();
    let one = start(NodeConfig { directory, listen, force_primary: true, ..of(0) });
    let end = commits(&one, 5000);
    standby.wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&standby), hash(&one));
    stop([standby, one]);
}

/// What a standby says if it keeps more than the node has that it is to follow.
fn keeps(node: &Node) -> Option<String> {
    match node.status().role {
        RoleStatus::Standby { own, .. } => own.holds_more,
        role => panic!("{role:?}"),
    }
}

/// The other one was forced without what this one has. Only who forces it takes over, with that.
#[test]
fn who_holds_more_takes_over_with_force_and_disturbs_nobody_without() {
    let directories = directories();
    let of = |n: usize| NodeConfig { ..of(directories[n].path(), Safety::TwoSafe, 0) };
    let (holds_more, other) = named_pair(of);
    let [listen, others] = [&holds_more, &other].map(|node| node.bound_address());
    stop([other]);
    let end = commits(&holds_more, 1000);
    wait_for("it notes that", || noted(directories[0].path()) >= end.0);
    let acknowledged = hash(&holds_more);
    stop([holds_more]);
    let joins = NodeConfig { listen: others, ..joining(&listen.to_string(), of(1)) };
    let other = start(joins.clone());
    other.promote(Consent::Loss).unwrap();
    commits(&other, 5000);
    let holds_more = start(NodeConfig { listen, ..of(0) });
    wait_for("both say so", || keeps(&holds_more).is_some() && ahead(&other).len() == 1);
    let third = start(joining(other.address(), NodeConfig { asynchronous: true, ..of(2) }));
    let end = commits(&other, 6000);
    third.wait_visible(end, soon()).unwrap();
    wait_for("who follows says so, too", || ahead(&third).len() == 1);
    let refused = holds_more.promote(Consent::Nothing).unwrap_err().to_string();
    assert!(refused.contains("acknowledged to clients") && refused.contains(other.address()), "{refused}");
    assert!(refused.contains("promote --force"), "{refused}");
    assert_eq!((other.status().term, other.is_deposed(), holds_more.role()), (Term(2), false, Role::Standby));
    holds_more.promote(Consent::Loss).unwrap();
    assert_eq!((holds_more.role(), hash(&holds_more)), (Role::Primary, acknowledged));
    assert!(other.is_deposed());
    wait_for("this one has the other log", || keeps(&third).is_some());
    assert_eq!(ahead(&third), []);
    // As it does by itself. What it has committed since, it keeps.
    stop([other]);
    let other = start(joins);
    wait_for("both say so again", || keeps(&other).is_some() && ahead(&holds_more).len() == 2);
    stop([other, third, holds_more]);
}

/// It was set back across a restart, so that its term has the same number, and is another.
#[test]
fn who_holds_more_than_a_primary_that_began_its_term_twice_takes_over_with_force() {
    for lives in [true, false] {
        let directories = directories();
        let of = |n: usize| of(directories[n].path(), Safety::TwoSafe, 0);
        let primary = start(of(0));
        let address = primary.address().to_owned();
        let listen = primary.bound_address();
        let standbys = [1, 2].map(|n| start(joining(&address, of(n))));
        let table = primary.database().create_table(&definition()).unwrap();
        wait_for("both are in sync", || in_sync(&primary) == 2);
        churn(primary.database(), &table, 0, 100);
        drop(table);
        stop([primary]);
        let older = tempfile::tempdir().unwrap();
        copy(directories[0].path(), older.path());
        let primary = start(NodeConfig { listen, ..of(0) });
        assert_eq!((primary.role(), primary.status().term), (Role::Primary, Term(2)));
        wait_for("both are in sync again", || in_sync(&primary) == 2);
        let end = commits(&primary, 1000);
        standbys.iter().for_each(|standby| _ = standby.wait_visible(end, soon()).unwrap());
        wait_for("they note that", || [1, 2].iter().all(|n| noted(directories[*n].path()) >= end.0));
        let acknowledged = hash(&primary);
        let places = [&standbys[0], &standbys[1]].map(|standby| standby.bound_address());
        stop(standbys.into_iter().chain([primary]));
        empty(directories[0].path());
        copy(older.path(), directories[0].path());
        let back = start(NodeConfig { listen, ..of(0) });
        assert_eq!((back.role(), back.status().term), (Role::Primary, Term(2)), "nobody could be asked");
        let end = commits(&back, 5000);
        wait_for("it notes that, too", || noted(directories[0].path()) >= end.0);
        let again = |n: usize| start(NodeConfig { listen: places[n - 1], ..joining(&address, of(n)) });
        let [holds_more, third] = [1, 2].map(again);
        wait_for("all say so", || {
            let kept = [&holds_more, &third].map(|node| keeps(node));
            ahead(&back).len() == 2 && kept.iter().flatten().all(|why| why.contains("acknowledged to clients"))
        });
        let refused = holds_more.promote(Consent::Nothing).unwrap_err().to_string();
        assert!(refused.contains("acknowledged to clients") && refused.contains("promote --force"), "{refused}");
        assert!(!back.is_deposed());
        let mut living = Some(back);
        if !lives {
            stop(living.take());
        }
        holds_more.promote(Consent::Loss).unwrap();
        assert_eq!((holds_more.role(), hash(&holds_more)), (Role::Primary, acknowledged));
        assert!(holds_more.status().term > Term(2));
        assert!(living.iter().all(|back| back.is_deposed()));
        let end = commits(&holds_more, 7000);
        third.wait_visible(end, soon()).unwrap();
        assert_eq!((hash(&third), keeps(&third)), (hash(&holds_more), None));
        // The one that was set back has committed alone, and keeps that.
        stop(living);
        let back = start(NodeConfig { listen, ..joining(holds_more.address(), of(0)) });
        wait_for("it holds more in turn", || keeps(&back).is_some() && ahead(&holds_more).len() == 1);
        stop([back, third, holds_more]);
    }
}
