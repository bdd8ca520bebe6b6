//! Nodes that join a cluster, count there, and are removed for good.

mod common;

use std::{path::Path, process::Command};

use common::{
    SOON, assert_same_state, connect, create_journal, in_sync, missing, open_sql, refused, run, start, status,
    wait_until, write,
};
use freshet::children::NodeProcess;
use freshet_base::Consent;
use freshet_workloads::journal::Mark;
use serde_json::Value;

/// What `freshet remove` of this primary prints, and whether it succeeded.
fn remove(primary: &NodeProcess, arguments: &[&str]) -> (bool, String) {
    let (code, text) = run(&[&["remove", "--address", &primary.ready().address], arguments].concat());
    (code == Some(0), text)
}

fn id(node: &NodeProcess) -> String {
    status(node)["node"].as_str().unwrap().to_owned()
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Whether a node says that it was removed.
fn is_turned_away(status: &Value) -> bool {
    status["removed"]["why"].as_str().is_some_and(|why| why.contains("was removed from the cluster"))
}

/// How many nodes a commit is on, and how many of these have to hold it.
fn counts(primary: &NodeProcess) -> (usize, Option<u64>) {
    let set = &status(primary)["in_sync_set"];
    (set["members"].as_array().map_or(0, Vec::len), set["quorum"].as_u64())
}

/// A stolen backup is known to no node: what is gone is removed by its whole id.
#[test]
fn what_was_never_a_member_is_removed_by_its_id_when_it_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let primary = start(&directory.path().join("a"), &[]);
    wait_until(&primary, "it commits alone", |status| status["standing"]["standing"] == "safe");
    let stolen = "0123456789abcdef";
    let (done, text) = remove(&primary, &[stolen]);
    assert!(!done && text.contains("with --gone"), "{text}");
    let (done, text) = remove(&primary, &["--gone", "0123"]);
    assert!(!done, "{text}");
    let (done, text) = remove(&primary, &["--gone", stolen]);
    assert!(done, "{text}");
    let (code, text) = run(&["token", "--address", &primary.ready().address, "--node", stolen]);
    assert!(code != Some(0) && text.contains("removed"), "{text}");
}

/// With the default level: alone, with two, with three; and back.
#[test]
fn a_removed_node_does_not_come_back_with_what_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let open = open_sql(&path("access"));
    let flags: Vec<&str> = open.iter().map(String::as_str).collect();
    let primary = start(&path("a"), &flags);
    create_journal(&connect(&primary));
    write(&connect(&primary), 1, 1, SOON).unwrap();
    wait_until(&primary, "it commits alone", |status| status["standing"]["standing"] == "safe");
    assert_eq!(counts(&primary), (1, None));
    let join = ["--join", &primary.ready().listen];
    let joins = |name: &str| start(&path(name), &[&join, &flags[..]].concat());
    let second = joins("b");
    wait_until(&primary, "one is in sync", |status| in_sync(status) == 1);
    assert_eq!(counts(&primary), (2, None));
    let mut third = joins("c");
    wait_until(&primary, "two are in sync", |status| in_sync(status) == 2);
    wait_until(&primary, "two of three count", |_| counts(&primary) == (3, Some(2)));
    write(&connect(&primary), 1, 2, SOON).unwrap();
    assert_eq!(status(&primary)["failover"]["lacks"], Value::Null, "the nodes find a successor");

    let backup = path("backup");
    third.kill();
    copy(&path("c"), &backup);
    let third = start(&path("c"), &flags);
    wait_until(&primary, "two are in sync", |status| in_sync(status) == 2);
    let (done, text) = remove(&primary, &["nobody"]);
    assert!(!done && text.contains("no node of the cluster"), "{text}");
    let (done, text) = remove(&primary, &[&id(&primary)]);
    assert!(!done && text.contains("switch-over"), "{text}");
    let (done, text) = remove(&second, &[&id(&third)]);
    assert!(!done && text.contains("not the primary"), "{text}");
    let gone = id(&third);
    let (done, text) = remove(&primary, &[&third.ready().listen]);
    assert!(done && text.contains(&gone), "{text}");
    assert_eq!(counts(&primary), (2, None));
    write(&connect(&primary), 1, 3, SOON).unwrap();
    wait_until(&third, "it is turned away", is_turned_away);
    let (code, shown) = run(&["status", &third.ready().address]);
    assert!(code == Some(4) && shown.contains("removed: a standby") && !shown.contains("--force"), "{shown}");
    assert!(shown.contains(&format!("of node {} says", id(&primary))), "{shown}");
    let (code, shown) = run(&["members", &third.ready().address]);
    assert!(code == Some(4) && shown.contains("an operator has removed it from the cluster"), "{shown}");
    drop(third);
    let (code, text) = run(&["token", "--node", &gone, "--address", &primary.ready().address]);
    assert!(code != Some(0) && text.contains("was removed from the cluster"), "{text}");
    // Nor with --join, nor with a copy of what it had.
    for name in ["c", "backup"] {
        let why = refused(&path(name), &[&join, &flags[..]].concat());
        assert!(why.contains("was removed from the cluster") && why.contains("wipe its directory"), "{why}");
        let again = start(&path(name), &flags);
        wait_until(&again, "it is turned away", is_turned_away);
        assert!(connect(&again).promote(Consent::Nothing, SOON).is_err(), "{name} leads");
        if name == "backup" {
            // By force it leads alone: no other node promises it anything, or learns of its term.
            let _ = connect(&again).promote(Consent::Loss, SOON);
        }
        assert_eq!(status(&primary)["role"], "primary");
        assert_eq!(status(&primary)["standing"]["standing"], "safe");
    }
    assert_eq!(counts(&primary), (2, None));
    // Its machine may come with nothing.
    let new = joins("d");
    wait_until(&primary, "two of three count", |_| counts(&primary) == (3, Some(2)));
    assert_same_state(&connect(&primary), &connect(&new));
    let acknowledged = [1, 2, 3].map(|sequence| Mark { client: 1, sequence });
    assert_eq!(missing(&connect(&new), &acknowledged), []);
    drop(second);
}

/// A primary that restarts leads again, though an operator has promoted the node that was removed.
#[test]
fn a_primary_that_is_left_alone_heeds_no_removed_node() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut primary = start(&path("a"), &[]);
    create_journal(&connect(&primary));
    let second = start(&path("b"), &["--join", &primary.ready().listen]);
    wait_until(&primary, "one is in sync", |status| in_sync(status) == 1);
    write(&connect(&primary), 1, 1, SOON).unwrap();
    let (done, text) = remove(&primary, &[&id(&second)]);
    assert!(done, "{text}");
    // An operator who errs.
    connect(&second).promote(Consent::Loss, SOON).unwrap();
    write(&connect(&primary), 1, 2, SOON).unwrap();
    primary.kill();
    let primary = start(&path("a"), &[]);
    wait_until(&primary, "it leads", |status| status["role"] == "primary");
    write(&connect(&primary), 1, 3, SOON).unwrap();
    assert_eq!(status(&second)["role"], "primary");
    let acknowledged = [1, 2, 3].map(|sequence| Mark { client: 1, sequence });
    assert_eq!(missing(&connect(&primary), &acknowledged), []);
}

/// The usual end of a machine: another node leads, and an operator removes the one that was lost.
#[test]
fn a_lost_primary_that_is_removed_is_no_member() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let automatic = ["--failover", "automatic"];
    let mut primary = start(&path("a"), &automatic);
    let join = ["--join", &primary.ready().listen, "--failover", "automatic"];
    let others = ["b", "c", "d"].map(|name| start(&path(name), &join));
    wait_until(&primary, "three are in sync", |status| in_sync(status) == 3);
    let (lost, at) = (id(&primary), primary.ready().listen.clone());
    primary.kill();
    let leads = || others.iter().find(|node| status(node)["role"] == "primary");
    wait_until(&others[0], "another leads", |_| leads().is_some());
    let next = leads().unwrap();
    wait_until(next, "the others are in sync", |status| in_sync(status) == 2);
    let members = || run(&["members", &next.ready().address]);
    let (code, table) = members();
    assert!(code != Some(0) && table.contains(&lost) && table.contains(&at), "{table}");
    let (done, text) = remove(next, &["--gone", &at]);
    assert!(done && text.contains(&lost), "{text}");
    let (code, table) = members();
    assert!(code == Some(0) && !table.contains(&lost) && !table.contains(&at), "{table}");
    // It would wait for the others, which answer it no more.
    let why = refused(&path("a"), &automatic);
    assert!(why.contains("was removed from the cluster"), "{why}");
}

/// A primary of two nodes may continue without the other one. A removed primary must not: it
/// acknowledges nothing, with `--join` or without.
#[test]
fn a_lost_primary_of_two_that_is_removed_does_not_lead() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut primary = start(&path("a"), &[]);
    let standby = start(&path("b"), &["--join", &primary.ready().listen]);
    wait_until(&primary, "one is in sync", |status| in_sync(status) == 1);
    let at = primary.ready().listen.clone();
    // It has to know where the other is, and to believe that one.
    let knows = || std::fs::read_to_string(path("a").join("other-nodes")).unwrap_or_default();
    wait_until(&primary, "it knows the other", |status| {
        let keys = status["in_sync_set"]["roster"]["known"]["keys"].as_object();
        keys.is_some_and(|keys| keys.len() == 2) && knows().contains(&standby.ready().listen)
    });
    primary.kill();
    connect(&standby).promote(Consent::PrimaryIsGone, SOON).unwrap();
    let (done, text) = remove(&standby, &["--gone", &at]);
    assert!(done, "{text}");
    for more in [&[][..], &["--join", &standby.ready().listen]] {
        let why = refused(&path("a"), &[&["--listen", &at][..], more].concat());
        assert!(why.contains("was removed from the cluster"), "{why}");
    }
}
