//! What a commit promises is changed while writers run, and holds after failovers and restarts.

mod common;

use std::path::Path;

use common::{
    SOON, Writer, connect, create_journal, in_sync, missing, open_sql, run, start, status, wait_until, write,
};
use freshet::children::NodeProcess;

/// What `freshet level` prints when this node is asked, and whether it succeeded.
fn order(node: &NodeProcess, level: &str) -> (bool, String) {
    let (code, text) = run(&["level", level, "--address", &node.ready().address]);
    (code == Some(0), text)
}

fn level(node: &NodeProcess) -> String {
    status(node)["safety"].as_str().unwrap_or_default().to_owned()
}

/// How many members a commit needs by the newest set, if it does not wait for all.
fn quorum(node: &NodeProcess) -> Option<u64> {
    status(node)["in_sync_set"]["quorum"].as_u64()
}

/// A primary, by the default level, and two standbys.
fn trio(directory: &Path) -> [NodeProcess; 3] {
    let open = open_sql(&directory.join("access"));
    let flags: Vec<&str> = open.iter().map(String::as_str).collect();
    let primary = start(&directory.join("a"), &flags);
    create_journal(&connect(&primary));
    let join = ["--join", &primary.ready().listen];
    let [b, c] = ["b", "c"].map(|name| start(&directory.join(name), &[&join, &flags[..]].concat()));
    wait_until(&primary, "two are in sync", |status| in_sync(status) == 2);
    [primary, b, c]
}

/// Through all levels and back, under load: no commit fails, or is lost.
#[test]
fn all_levels_one_after_the_other_while_a_writer_runs() {
    let directory = tempfile::tempdir().unwrap();
    let [primary, b, c] = trio(directory.path());
    wait_until(&primary, "two of three count", |status| status["in_sync_set"]["quorum"] == 2);
    let (done, text) = order(&b, "very-safe");
    assert!(!done && text.contains("is not the primary"), "{text}");
    let (done, text) = order(&primary, "quorum:4");
    assert!(!done && text.contains("nothing would commit"), "{text}");
    let (done, text) = order(&primary, "3-safe");
    assert!(!done && text.contains("quorum:K"), "{text}");
    let writer = Writer::start(connect(&primary), 1);
    let mut before = "majority";
    for (next, members) in
        [("very-safe", Some(3)), ("2-safe", None), ("1-safe", Some(1)), ("quorum:3", Some(3)), ("majority", Some(2))]
    {
        writer.wait_for(20);
        let (done, text) = order(&primary, next);
        assert!(done && text.contains(next) && text.contains(before), "{text}");
        assert_eq!((level(&primary).as_str(), quorum(&primary)), (next, members));
        before = next;
    }
    let again = order(&primary, "majority");
    assert!(again.0, "there is nothing to do: {}", again.1);
    let written = writer.stop();
    assert!(written.open.is_empty(), "{:?}", written.open);
    for node in [&b, &c] {
        assert_eq!(missing(&connect(node), &written.acknowledged), []);
    }
}

/// The level is on record: another node leads with it, and the nodes' own configuration does not
/// count. A node that is away holds up what needs it, until it is back.
#[test]
fn a_level_holds_after_a_failover_and_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let [mut primary, b, mut c] = trio(directory.path());
    assert!(order(&primary, "very-safe").0);
    let away = status(&c)["node"].as_str().unwrap().to_owned();
    c.kill();
    let (done, text) = order(&primary, "quorum:3");
    assert!(!done && text.contains("2 keep up"), "{text}");
    // A failover has to find the next level, and may find that node alone.
    let (done, text) = order(&primary, "majority");
    let waits = format!("it waits for those that have yet to note it: {away}");
    assert!(!done && text.contains(&waits), "{text}");
    let (_, text) = run(&["members", &primary.ready().address]);
    assert!(text.contains(&waits) && text.contains("not on record yet"), "{text}");
    let (_, text) = run(&["status", &primary.ready().address]);
    assert!(text.contains(&waits), "{text}");
    let open = open_sql(&path("access"));
    let flags: Vec<&str> = open.iter().map(String::as_str).collect();
    let _third = start(&path("c"), &flags);
    wait_until(&primary, "two are in sync", |status| in_sync(status) == 2);
    wait_until(&primary, "the level is on record", |status| status["level_pending"].is_null());
    assert_eq!(level(&primary), "majority");
    assert!(order(&primary, "quorum:2").0);
    write(&connect(&primary), 1, 1, SOON).unwrap();
    primary.kill();
    let (code, text) = run(&["promote", &b.ready().address]);
    assert_eq!(code, Some(0), "{text}");
    let next = &b;
    wait_until(next, "its set is recorded", |status| status["in_sync_set"]["quorum"] == 2);
    assert_eq!(level(next), "quorum:2");
    // Whatever the file of a node says.
    let again = start(&path("a"), &[&["--safety", "very-safe"], &flags[..]].concat());
    wait_until(next, "two are in sync", |status| in_sync(status) == 2);
    assert_eq!((level(next).as_str(), quorum(next)), ("quorum:2", Some(2)));
    drop(again);
    write(&connect(next), 1, 2, SOON).unwrap();
}
