//! Nodes below a relay: they are removed there, too, and come back to it.

mod common;

use std::time::{Duration, Instant};

use common::{
    Archive, SOON, connect, create_journal, in_sync, missing, run, start, status, wait_for_message,
    wait_through_restart, wait_until, write,
};
use freshet::children::NodeProcess;
use freshet_workloads::journal::Mark;
use serde_json::Value;

/// What `freshet members` says of this node, and its exit status.
fn members(node: &NodeProcess) -> (Vec<Value>, Option<i32>) {
    let (code, json) = run(&["members", "--json", &node.ready().address]);
    let members: Value = serde_json::from_str(json.lines().next().unwrap_or_default()).unwrap_or_default();
    (members["nodes"].as_array().cloned().unwrap_or_default(), code)
}

/// Blocks until `freshet members` of this node is like that.
fn wait_for_members(node: &NodeProcess, what: &str, is_so: impl Fn(&[Value], Option<i32>) -> bool) -> Vec<Value> {
    let deadline = Instant::now() + SOON;
    loop {
        let (nodes, code) = members(node);
        if is_so(&nodes, code) {
            return nodes;
        }
        assert!(Instant::now() < deadline, "{what} has not come about: {code:?} {nodes:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn remove(primary: &NodeProcess, arguments: &[&str]) -> String {
    let (code, text) = run(&[&["remove", "--address", &primary.ready().address], arguments].concat());
    assert_eq!(code, Some(0), "{text}");
    text
}

fn is_turned_away(status: &Value) -> bool {
    status["removed"]["why"].as_str().is_some_and(|why| why.contains("was removed from the cluster"))
}

#[test]
fn who_is_below_a_relay_is_removed_there_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let primary = start(&path("a"), &[]);
    let relay = start(&path("r"), &["--join", &primary.ready().listen, "--relay-standbys", "2"]);
    wait_until(&primary, "the relay is in sync", |status| in_sync(status) == 1);
    create_journal(&connect(&primary));
    let below = ["n", "m"].map(|name| start(&path(name), &["--join", &relay.ready().listen, "--asynchronous"]));
    let _archive = Archive::start(&path("archive"), &relay.ready().listen, &[]);
    let is_archive = |node: &Value| node["role"] == "archive";
    let nodes = wait_for_members(&primary, "all are shown", |nodes, _| {
        nodes.iter().any(is_archive) && nodes.iter().filter(|node| node["role"] == "asynchronous").count() == 2
    });
    let archive = nodes.iter().find(|node| is_archive(node)).unwrap()["node"].as_str().unwrap().to_owned();
    let [first, second] = &below;
    let ids = below.each_ref().map(|node| status(node)["node"].as_str().unwrap().to_owned());
    assert!(remove(&primary, &[&first.ready().listen]).contains(&ids[0]));
    remove(&primary, &[&ids[1]]);
    remove(&primary, &["--gone", &archive]);
    for node in [first, second] {
        wait_until(node, "it is turned away", is_turned_away);
        let (code, shown) = run(&["status", &node.ready().address]);
        assert!(code == Some(4) && shown.contains("removed: "), "{shown}");
    }
    wait_for_members(&primary, "none of them is shown", |nodes, code| nodes.len() == 2 && code == Some(0));
    wait_until(&relay, "the archive gets nothing", |status| status["relay"]["observers"] == Value::Array(vec![]));
    let mark = Mark { client: 1, sequence: 1 };
    write(&connect(&primary), 1, 1, SOON).unwrap();
    assert_eq!(missing(&connect(&primary), &[mark]), []);
    for node in [first, second] {
        assert_eq!(missing(&connect(node), &[mark]), [mark]);
    }
}

/// A relay that was removed is fed no more: those below look elsewhere, and do not take what it has
/// for the newest there is.
#[test]
fn a_removed_relay_feeds_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let primary = start(&path("a"), &[]);
    let relay = start(&path("r"), &["--join", &primary.ready().listen, "--relay-standbys", "1"]);
    wait_until(&primary, "the relay is in sync", |status| in_sync(status) == 1);
    let below = start(&path("n"), &["--join", &relay.ready().listen, "--asynchronous"]);
    let id = status(&relay)["node"].clone();
    let follows = |status: &Value| status["link"]["link"] == "following" && status["link"]["node"] == id;
    wait_until(&below, "it follows the relay", follows);
    remove(&primary, &[&relay.ready().listen]);
    wait_until(&relay, "it is turned away", is_turned_away);
    wait_until(&below, "it does not follow the relay", |status| !follows(status));
}

/// It has followed the primary itself, since the relay has led in the meantime.
#[test]
fn who_is_below_a_relay_again_is_not_away() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let primary = start(&path("a"), &[]);
    let relay = start(&path("r"), &["--join", &primary.ready().listen, "--relay-standbys", "1"]);
    let listen = |node: &NodeProcess| node.ready().listen.clone();
    let mut below = start(&path("n"), &["--join", &listen(&relay), "--asynchronous"]);
    let id = status(&below)["node"].clone();
    wait_for_members(&primary, "all are here", |nodes, code| nodes.len() == 3 && code == Some(0));
    for (from, to) in [(&primary, &relay), (&relay, &primary)] {
        wait_for_members(from, "all are in sync", |nodes, code| nodes.len() == 3 && code == Some(0));
        // On a busy machine the role may not be taken while writers are kept waiting.
        let moves = || run(&["switch-over", "--address", &from.ready().address, &listen(to)]);
        let is_done = |(code, text): &(Option<i32>, String)| *code == Some(0) || !text.contains("in time");
        let (code, text) = (0..50).map(|_| moves()).find(is_done).expect("it takes the role at some time");
        assert_eq!(code, Some(0), "{text}");
        wait_through_restart(to, "it leads", |status| status["role"] == "primary");
        wait_through_restart(from, "it follows", |status| status["link"]["link"] == "following");
    }
    let is_fed = |status: &Value| {
        status["standbys"]
            .as_array()
            .is_some_and(|all| all.iter().any(|it| it["node"] == id && it["connected"] == true))
    };
    wait_until(&primary, "it follows the primary itself", is_fed);
    below.kill();
    let ports = below.ready().clone();
    let here = ["--address", &ports.address, "--listen", &ports.listen, "--join", &listen(&relay), "--asynchronous"];
    let below = start(&path("n"), &here);
    let nodes = wait_for_members(&primary, "all are here", |nodes, code| nodes.len() == 3 && code == Some(0));
    let shown = nodes.iter().find(|node| node["node"] == id).unwrap();
    assert_eq!((&shown["connected"], &shown["follows"]), (&true.into(), &status(&relay)["node"]), "{shown}");
    let (code, text) = run(&["restart", "--rolling", "--patience", "60", &primary.ready().address]);
    assert_eq!(code, Some(0), "{text}");
    drop(below);
}

/// The primary is killed in the middle: the command says who leads.
#[test]
fn a_switch_over_whose_primary_is_lost_names_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let automatic = ["--failover", "automatic"];
    let mut primary = start(&path("a"), &automatic);
    let join = ["--join", &primary.ready().listen, "--failover", "automatic"];
    let others = ["b", "c"].map(|name| start(&path(name), &join));
    wait_until(&primary, "two are in sync", |status| in_sync(status) == 2);
    let (asked, to) = (primary.ready().address.clone(), others[0].ready().listen.clone());
    // It waits for this one to come near.
    others[0].pause();
    let command = std::thread::spawn(move || run(&["switch-over", "--address", &asked, &to]));
    wait_for_message(&primary, "a switch-over begins");
    primary.kill();
    others[0].resume();
    let (code, text) = command.join().unwrap();
    let leads = |node: &NodeProcess| status(node)["role"] == "primary";
    let place = others.iter().position(leads).unwrap_or_else(|| panic!("none leads: {text}"));
    assert_eq!(code, Some(i32::from(place != 0)), "{text}");
    let said = if place == 0 { "the role has moved to " } else { "another node leads than the one that was to: " };
    assert!(text.contains(&format!("{said}{}", others[place].ready().listen)), "{text}");
}

/// The runbook's wait: as soon as it is over, the primary may be lost.
#[test]
fn members_waits_until_a_node_that_joins_counts() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let automatic = ["--failover", "automatic"];
    let mut primary = start(&path("a"), &automatic);
    let join = ["--join", &primary.ready().listen, "--failover", "automatic"];
    let second = start(&path("b"), &join);
    wait_for_members(&primary, "both count", |nodes, code| nodes.len() == 2 && code == Some(0));
    let client = connect(&primary);
    client.run("CREATE TABLE wide (n int, x text)", SOON).unwrap();
    let fill = "INSERT INTO wide SELECT i, repeat('x', 300) FROM generate_series(1, 60000) i";
    client.run(fill, SOON).unwrap();
    let third = start(&path("c"), &join);
    wait_for_members(&primary, "all count", |nodes, code| nodes.len() == 3 && code == Some(0));
    primary.kill();
    let others = [second, third];
    let deadline = Instant::now() + SOON;
    while !others.iter().any(|node| status(node)["role"] == "primary") {
        assert!(Instant::now() < deadline, "none leads");
        std::thread::sleep(Duration::from_millis(20));
    }
}
