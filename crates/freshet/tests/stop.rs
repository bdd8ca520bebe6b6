//! `freshet stop`: it ends processes as SIGTERM does, and leaves nothing undone.

mod common;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use common::{
    SOON, connect, create_journal, in_sync, program, run, start, status, wait_through_restart, wait_until, write,
};
use freshet::children::NodeProcess;
use serde_json::Value;

/// Three nodes, two of them in sync with the first.
fn three(directory: &Path) -> [NodeProcess; 3] {
    let path = |name: &str| directory.join(name);
    let automatic = ["--failover", "automatic"];
    let a = start(&path("a"), &automatic);
    let join = [&automatic[..], &["--join", &a.ready().listen]].concat();
    let [b, c] = ["b", "c"].map(|name| start(&path(name), &join));
    wait_until(&a, "two in sync", |status| in_sync(status) == 2 && status["set_pending"].is_null());
    [a, b, c]
}

/// The node's process has ended by itself, and well.
#[track_caller]
fn assert_ended(node: &mut NodeProcess) {
    let deadline = Instant::now() + SOON;
    loop {
        match node.ended() {
            Some(status) => {
                assert!(status.success(), "{status}: {}", node.messages());
                return;
            }
            None => assert!(Instant::now() < deadline, "it runs: {}", node.messages()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_standby_stops_and_then_a_primary_that_hands_its_role_over() {
    let directory = tempfile::tempdir().unwrap();
    let [mut a, b, mut c] = three(directory.path());
    create_journal(&connect(&a));
    write(&connect(&a), 1, 1, SOON).unwrap();
    let (code, shown) = run(&["stop", &c.ready().address]);
    assert!(code == Some(0) && shown.contains("the standby, has stopped"), "{code:?}: {shown}");
    assert_ended(&mut c);
    let (code, shown) = run(&["stop", &c.ready().address]);
    assert!(code == Some(1) && shown.contains("no node runs at"), "{code:?}: {shown}");
    wait_until(&a, "one in sync", |status| in_sync(status) == 1 && status["set_pending"].is_null());
    let (code, shown) = run(&["stop", "--json", &a.ready().address]);
    assert_eq!(code, Some(0), "{shown}");
    let value: Value = shown.lines().find_map(|line| serde_json::from_str(line).ok()).expect("it prints JSON");
    assert_eq!((&value["role"], &value["stopped"]), (&"primary".into(), &true.into()), "{shown}");
    assert_ended(&mut a);
    let leads = wait_through_restart(&b, "the role has moved", |status| status["role"] == "primary");
    assert!(leads["term"].as_u64() > Some(1), "{leads}");
    assert!(!a.messages().contains("sessions did not end in time"), "{}", a.messages());
}

#[test]
fn without_a_standby_or_when_asked_a_primary_just_stops() {
    let directory = tempfile::tempdir().unwrap();
    let mut alone = start(&directory.path().join("a"), &[]);
    let (code, shown) = run(&["stop", &alone.ready().address]);
    assert!(code == Some(0) && shown.contains("the primary, has stopped"), "{code:?}: {shown}");
    assert_ended(&mut alone);
    let mut a = start(&directory.path().join("c"), &[]);
    let b = start(&directory.path().join("d"), &["--join", &a.ready().listen]);
    wait_until(&a, "one in sync", |status| in_sync(status) == 1);
    let (code, shown) = run(&["stop", "--no-hand-over", &a.ready().address]);
    assert!(code == Some(0) && !shown.contains("has taken the role"), "{code:?}: {shown}");
    assert_ended(&mut a);
    let (role, term) = (status(&b)["role"].clone(), status(&b)["term"].clone());
    assert_eq!((role, term), ("standby".into(), 1.into()));
}

#[test]
fn a_whole_cluster_stops_with_its_witness() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = start(&directory.path().join("a"), &["--failover", "automatic"]);
    let mut b = start(&directory.path().join("b"), &["--failover", "automatic", "--join", &a.ready().listen]);
    let listen = freshet_testing::ports::reserve().unwrap().to_string();
    let place = directory.path().join("w");
    let flags = ["--directory", place.to_str().unwrap(), "--listen", &listen, "--join", &a.ready().listen];
    let mut w = NodeProcess::start_witness(&program(), flags.map(str::to_owned).to_vec(), SOON).unwrap();
    wait_until(&a, "a pair with its witness", |status| status["witness"]["votes"] == true && in_sync(status) == 1);
    let (code, shown) = run(&["stop", "--cluster", &b.ready().address]);
    assert!(code == Some(1) && shown.contains("ask that one"), "{code:?}: {shown}");
    let (code, shown) = run(&["stop", "--cluster", &a.ready().address]);
    assert_eq!((code, shown.matches("has stopped").count()), (Some(0), 3), "{shown}");
    assert!(shown.trim_end().ends_with("the primary, has stopped"), "{shown}");
    [&mut a, &mut b, &mut w].into_iter().for_each(assert_ended);
    // None of them has taken over while the others went.
    assert!(!b.messages().contains("this node is the primary"), "{}", b.messages());
}

#[test]
fn another_node_stops_by_the_word_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b, mut c] = three(directory.path());
    let (own, other) = (status(&a)["node"].clone(), status(&c)["node"].clone());
    let (code, shown) = run(&["stop", "--node", own.as_str().unwrap(), &b.ready().address]);
    assert!(code == Some(1) && shown.contains("hands its role over"), "{code:?}: {shown}");
    let (code, shown) = run(&["stop", "--node", other.as_str().unwrap(), &b.ready().address]);
    assert!(code == Some(0) && shown.contains("has stopped"), "{code:?}: {shown}");
    assert_ended(&mut c);
    let (code, shown) = run(&["stop", "--node", "nowhere:1", &b.ready().address]);
    assert!(code == Some(1) && shown.contains("nowhere:1"), "{code:?}: {shown}");
}
