//! Failover, with an old primary that is dead, or only seems to be.

mod common;

use common::{
    SOON, Sql, Writer, assert_same_state, connect, create_journal, in_sync, missing, open_sql, program, start, status,
    wait_through_restart, wait_until, write,
};
use freshet::{children::NodeProcess, client::ClientError, sql_client::SqlFailure};
use freshet_base::Consent;

const QUORUM: [&str; 2] = ["--safety", "quorum:2"];

fn join(primary: &NodeProcess, directory: &std::path::Path) -> NodeProcess {
    start(directory, &[&["--join", &primary.ready().listen], &QUORUM[..]].concat())
}

#[test]
fn what_a_partitioned_primary_sends_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // What it is told counts once, not when it starts again.
    let old = start(&path("a"), &[&QUORUM[..], &["--force-primary"]].concat());
    let (new, third) = (join(&old, &path("b")), join(&old, &path("c")));
    wait_until(&old, "two standbys in sync", |status| in_sync(status) == 2);
    create_journal(&connect(&old));
    let writer = Writer::start(connect(&old), 1);
    writer.wait_for(200);

    // It stands still in the middle of its work, and the world continues without it.
    old.pause();
    let (term, at) = connect(&new).promote(Consent::Nothing, SOON).unwrap();
    assert_eq!(status(&new)["role"], "primary");
    let client = connect(&new);
    write(&client, 2, 1, SOON).unwrap();
    let again = client.promote(Consent::Nothing, SOON).unwrap_err();
    assert!(matches!(&again, ClientError::Refused { reason, .. } if reason.contains("nothing to promote")), "{again}");

    // It wakes up and continues as if nothing had happened, and soon starts again, as a standby.
    old.resume();
    let written = writer.join();
    assert!(written.open.len() + written.refused.len() > 0, "somebody was waiting when it stood still");
    let refuses_with = |reason: &str| {
        // Its sessions end, some before they have looked who the primary is.
        let known = ["another node is the primary", "another node became the primary", "terminating connection"];
        known.iter().chain(&["another node has become the primary", "connection lost"]).any(|it| reason.contains(it))
    };
    for (mark, reason) in written.open.iter().chain(&written.refused) {
        assert!(refuses_with(reason), "{mark:?}: {reason}");
    }
    let followed = wait_through_restart(&old, "it follows", |status| {
        status["role"] == "standby" && status["link"]["link"] == "following"
    });
    assert_eq!(followed["term"], term);
    let late = write(&connect(&old), 3, 1, SOON).unwrap_err();
    assert!(matches!(&late, SqlFailure::Server { code, .. } if code == "25006"), "{late}");

    // What was acknowledged is there, on both; what the old one took after its time is nowhere.
    assert!(client.hash(None, SOON).unwrap().0 > at);
    let reader = connect(&third);
    assert_same_state(&client, &reader);
    assert_eq!((missing(&client, &written.acknowledged), missing(&reader, &written.acknowledged)), (vec![], vec![]));
    let mark = freshet_workloads::journal::Mark { client: 3, sequence: 1 };
    assert_eq!(missing(&client, &[mark]), [mark]);

    // It continues as a standby, in the same process.
    wait_until(&new, "everybody in sync", |status| in_sync(status) == 2);
    assert_same_state(&connect(&new), &connect(&old));
    assert_eq!(status(&old)["pid"], old.pid());
}

#[test]
fn readers_go_on_through_a_failover() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let two_safe = ["--safety", "2-safe"];
    let mut old = start(&path("a"), &two_safe);
    let new = start(&path("b"), &[&["--join", &old.ready().listen], &two_safe[..]].concat());
    wait_until(&old, "a standby in sync", |status| in_sync(status) == 1);
    create_journal(&connect(&old));
    let writer = Writer::start(connect(&old), 1);
    writer.wait_for(300);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reader = {
        let (client, stop) = (connect(&new), std::sync::Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut reads = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                client.hash(None, SOON).unwrap();
                reads += 1;
            }
            reads
        })
    };
    old.kill();
    let written = writer.join();
    let client = connect(&new);
    // Whether the primary went on without it, a standby that is left alone cannot know. The
    // operator does.
    let refused = client.promote(Consent::Nothing, SOON).unwrap_err().to_string();
    assert!(refused.contains("--primary-is-gone"), "{refused}");
    client.promote(Consent::PrimaryIsGone, SOON).unwrap();
    assert_eq!(missing(&client, &written.acknowledged), []);
    write(&client, 2, 1, SOON).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
}

#[test]
fn a_failover_that_might_lose_something_needs_force() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut old = start(&path("a"), &QUORUM);
    let (new, mut third) = (join(&old, &path("b")), join(&old, &path("c")));
    wait_until(&old, "two standbys in sync", |status| in_sync(status) == 2);
    create_journal(&connect(&old));
    third.kill();
    old.kill();
    let client = connect(&new);
    let refused = client.promote(Consent::Nothing, SOON).unwrap_err();
    assert!(matches!(&refused, ClientError::Refused { reason, .. } if reason.contains("force")), "{refused}");
    assert_eq!(status(&new)["role"], "standby");
    client.promote(Consent::Loss, SOON).unwrap();
    assert_eq!(status(&new)["role"], "primary");
}

const AUTOMATIC: [&str; 2] = ["--failover", "automatic"];

/// Three nodes that need no operator, all in sync.
fn by_themselves(directory: &std::path::Path) -> [NodeProcess; 3] {
    let open = open_sql(&directory.join("access"));
    let flags: Vec<&str> = AUTOMATIC.into_iter().chain(open.iter().map(String::as_str)).collect();
    let path = |name: &str| directory.join(name);
    let old = start(&path("a"), &flags);
    let lacks = |wanted: &str| {
        let says =
            |status: &serde_json::Value| status["failover"]["lacks"].as_str().unwrap_or("nothing").contains(wanted);
        wait_until(&old, "what is missing for failovers without an operator", says);
    };
    lacks("two more are needed");
    let joins = |name| start(&path(name), &[&["--join", &old.ready().listen], &flags[..]].concat());
    let (second, third) = (joins("b"), joins("c"));
    wait_until(&old, "two standbys in sync", |status| in_sync(status) == 2);
    lacks("nothing");
    [old, second, third]
}

/// Blocks until one of these leads, and gives that one first.
fn led(nodes: [NodeProcess; 2]) -> [NodeProcess; 2] {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        if let Some(at) = nodes.iter().position(|node| status(node)["role"] == "primary") {
            let [one, other] = nodes;
            return if at == 0 { [one, other] } else { [other, one] };
        }
        assert!(std::time::Instant::now() < deadline, "no node leads");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_killed_primary_is_replaced_by_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let [mut old, second, third] = by_themselves(directory.path());
    create_journal(&connect(&old));
    let writer = Writer::start(connect(&old), 1);
    writer.wait_for(200);
    old.kill();
    let written = writer.join();
    let [leads, follows] = led([second, third]);
    let client = connect(&leads);
    assert_eq!(missing(&client, &written.acknowledged), []);
    write(&client, 2, 1, SOON).unwrap();
    // As a supervisor does.
    let back = start(&directory.path().join("a"), &AUTOMATIC);
    wait_until(&leads, "both in sync", |status| in_sync(status) == 2);
    assert_eq!(status(&back)["role"], "standby");
    assert_same_state(&client, &connect(&follows));
    assert_same_state(&client, &connect(&back));
}

/// Its kernel answers, and it wakes up in the middle of its work.
#[test]
fn a_primary_that_stands_still_is_replaced_and_follows() {
    let directory = tempfile::tempdir().unwrap();
    let [old, second, third] = by_themselves(directory.path());
    create_journal(&connect(&old));
    let writer = Writer::start(connect(&old), 1);
    writer.wait_for(200);
    let reader = Sql::connect(&old);
    reader.run("SELECT client FROM journal LIMIT 1").unwrap();
    old.pause();
    let [leads, _follows] = led([second, third]);
    let client = connect(&leads);
    write(&client, 2, 1, SOON).unwrap();
    old.resume();
    // What it shows would be out of date.
    assert!(reader.run("SELECT client FROM journal LIMIT 1").is_err(), "a primary of before has answered a reader");
    let written = writer.join();
    wait_through_restart(&old, "it follows", |status| {
        status["role"] == "standby" && status["link"]["link"] == "following"
    });
    assert_eq!(missing(&client, &written.acknowledged), []);
    wait_until(&leads, "both in sync", |status| in_sync(status) == 2);
    assert_same_state(&client, &connect(&old));
}

/// Runs `freshet`: its exit status, and what it printed, for others and for people.
fn run(words: &[&str]) -> (i32, [String; 2]) {
    let output = std::process::Command::new(program()).args(words).output().unwrap();
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(!texts[1].contains("panicked"), "{texts:?}");
    (output.status.code().unwrap(), texts)
}

/// `freshet switch-over` of this primary: whether it succeeded, and what it printed.
fn switch_over(primary: &NodeProcess, to: Option<&str>) -> (bool, String) {
    let mut words = vec!["switch-over", "--address", &primary.ready().address];
    words.extend(to);
    let (code, [out, err]) = run(&words);
    (code == 0, out + &err)
}

/// Those who write hear what became of it, and the role comes back in the end.
#[test]
fn a_role_is_handed_over_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let [old, second, third] = by_themselves(directory.path());
    create_journal(&connect(&old));
    let writer = Writer::start(connect(&old), 1);
    writer.wait_for(200);
    let (done, text) = switch_over(&old, Some(&third.ready().listen));
    assert!(done && text.contains("is the primary"), "{text}");
    let written = writer.join();
    let client = connect(&third);
    // Who was held, or has begun just then, is told so and has written nothing.
    let (held, texts): (Vec<_>, Vec<_>) = written.open.into_iter().chain(written.refused).unzip();
    assert!(texts.iter().all(|text| text.contains("57P01") || text.contains("40001")), "{texts:?}");
    assert_eq!(missing(&client, &held), held);
    assert_eq!(missing(&client, &written.acknowledged), []);
    write(&client, 2, 1, SOON).unwrap();
    wait_through_restart(&old, "it follows", |status| {
        status["role"] == "standby" && status["link"]["link"] == "following"
    });
    wait_until(&third, "both in sync", |status| in_sync(status) == 2);
    assert_same_state(&client, &connect(&second));
    assert_same_state(&client, &connect(&old));
    // It is no primary any more, and says who is.
    let (done, text) = switch_over(&old, None);
    assert!(!done && text.contains(&third.ready().listen), "{text}");
    let (done, text) = switch_over(&third, Some(&old.ready().listen));
    assert!(done, "{text}");
    write(&connect(&old), 2, 2, SOON).unwrap();
}

/// The standby that is to lead stands still just then: those who were held continue, and what
/// it does when it wakes changes nothing.
#[test]
fn a_primary_continues_whose_successor_stands_still() {
    let directory = tempfile::tempdir().unwrap();
    let [old, second, third] = by_themselves(directory.path());
    create_journal(&connect(&old));
    let term = status(&old)["term"].clone();
    let writer = Writer::start(connect(&old), 1);
    writer.wait_for(200);
    third.pause();
    let (done, text) = switch_over(&old, Some(&third.ready().listen));
    assert!(!done && text.contains("nothing has changed"), "{text}");
    writer.wait_for(writer.count() + 200);
    third.resume();
    wait_until(&old, "both in sync", |status| in_sync(status) == 2);
    let written = writer.stop();
    assert_eq!((written.open, written.refused), (Vec::new(), Vec::new()));
    assert_eq!((status(&old)["role"].as_str(), &status(&old)["term"]), (Some("primary"), &term));
    assert_eq!(missing(&connect(&old), &written.acknowledged), []);
    assert_same_state(&connect(&old), &connect(&second));
    assert_same_state(&connect(&old), &connect(&third));
}

/// What `freshet members` of this node says, for programs and for people, and its exit status.
fn members(node: &NodeProcess) -> (serde_json::Value, String, i32) {
    let (code, [json, _]) = run(&["members", &node.ready().address, "--json"]);
    let (_, [shown, _]) = run(&["members", &node.ready().address]);
    (serde_json::from_str(&json).unwrap(), shown, code)
}

/// All standbys stand still, and nothing is written for which anybody would wait.
#[test]
fn a_primary_without_a_lease_is_not_shown_as_safe() {
    let directory = tempfile::tempdir().unwrap();
    let [leads, second, third] = by_themselves(directory.path());
    let standing = |status: &serde_json::Value| status["standing"]["standing"].as_str().unwrap_or("none").to_owned();
    wait_until(&leads, "all is well", |status| standing(status) == "safe");
    [&second, &third].into_iter().for_each(|node| node.pause());
    let lost = wait_until(&leads, "it notices", |status| standing(status) != "safe");
    assert_eq!(standing(&lost), "lease-over", "{lost}");
    let (code, [shown, _]) = run(&["status", "--address", &leads.ready().address]);
    assert!(code == 4 && shown.contains("hears too few of the other nodes"), "{code}: {shown}");
    let (_, shown, code) = members(&leads);
    assert!(code == 4 && shown.contains("lease over"), "{code}: {shown}");
    [&second, &third].into_iter().for_each(|node| node.resume());
    wait_until(&leads, "all is well again", |status| standing(status) == "safe");
}

#[test]
fn every_node_shows_all_nodes_and_what_it_does_not_know() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut old = start(&path("a"), &QUORUM);
    let (new, mut third) = (join(&old, &path("b")), join(&old, &path("c")));
    wait_until(&old, "two standbys in sync", |status| in_sync(status) == 2 && status["set_pending"].is_null());
    let id = |node: &NodeProcess| status(node)["node"].clone();
    let (primary, away) = (id(&old), id(&third));
    for asked in [&old, &new, &third] {
        let (members, shown, code) = members(asked);
        assert_eq!((code, &members["primary"], &members["by"]), (0, &true.into(), &primary), "{shown}");
        let nodes = members["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 3, "{shown}");
        for node in nodes {
            let leads = node["node"] == primary;
            assert_eq!(node["role"], if leads { "primary" } else { "standby" }, "{shown}");
            assert_eq!((&node["vote"], &node["in_sync"]), (&true.into(), &true.into()), "{shown}");
            assert!(node["version"].is_string() && node["lag"]["time"].is_object(), "{shown}");
        }
    }
    third.kill();
    let lost = |status: &serde_json::Value| in_sync(status) == 1;
    wait_until(&old, "a standby is away", lost);
    let (seen, shown, code) = members(&new);
    let gone = seen["nodes"].as_array().unwrap().iter().find(|node| node["node"] == away).unwrap().clone();
    assert_eq!((code, &gone["connected"], &gone["lag"]), (3, &false.into(), &serde_json::Value::Null), "{shown}");
    assert!(gone["vote"] == true && gone["connected_or_away_for"].is_object(), "{shown}");
    assert!(shown.contains("away for") && shown.contains("unknown"), "{shown}");
    old.kill();
    wait_until(&new, "the primary is gone", |status| status["link"]["link"] != "following");
    let (alone, shown, code) = members(&new);
    assert_eq!((code, &alone["primary"]), (4, &false.into()), "{shown}");
    assert!(shown.starts_with("NOT FROM A PRIMARY"), "{shown}");
    let nodes = alone["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3, "{shown}");
    for node in nodes {
        assert_eq!((&node["lag"], &node["in_sync"]), (&serde_json::Value::Null, &serde_json::Value::Null), "{shown}");
    }
}

/// Runs `freshet maintenance`, and returns its exit status.
fn maintenance(node: &NodeProcess, what: &[&str]) -> i32 {
    run(&[&["maintenance", &node.ready().address], what].concat()).0
}

fn knows_of_maintenance(node: &NodeProcess) {
    wait_until(node, "it knows of maintenance", |status| status["failover"]["maintenance"].is_object());
}

#[test]
fn no_node_takes_over_by_itself_during_maintenance() {
    let directory = tempfile::tempdir().unwrap();
    let [mut old, second, mut third] = by_themselves(directory.path());
    create_journal(&connect(&old));
    let writer = Writer::start(connect(&old), 1);
    writer.wait_for(100);
    // On any node.
    assert_eq!(maintenance(&third, &["--for", "2h"]), 0);
    [&old, &second, &third].into_iter().for_each(knows_of_maintenance);
    assert!(members(&second).1.contains("MAINTENANCE"));
    old.kill();
    let written = writer.join();
    // Started again, it is the primary again, and hears of maintenance from its standbys.
    let again = ["--listen", &old.ready().listen];
    let mut old = start(&directory.path().join("a"), &[&again[..], &AUTOMATIC[..]].concat());
    wait_until(&old, "both standbys are in sync", |status| status["role"] == "primary" && in_sync(status) == 2);
    knows_of_maintenance(&old);
    old.kill();
    // One that is started again knows nothing of that, stands, and is answered. By then the other
    // one would have taken over.
    third.kill();
    let places = ["--join", &old.ready().listen, "--listen", &third.ready().listen];
    let third = start(&directory.path().join("c"), &[&places[..], &AUTOMATIC[..]].concat());
    knows_of_maintenance(&third);
    assert_eq!((&status(&second)["role"], &status(&third)["role"]), (&"standby".into(), &"standby".into()));

    // It ends, and there is a successor.
    assert_eq!(maintenance(&second, &["--end"]), 3, "the old primary is not reached");
    let [leads, follows] = led([second, third]);
    wait_until(&leads, "the other one is in sync", |status| in_sync(status) == 1);
    // An operator makes another one the primary all the same, which keeps what it knew.
    assert_eq!(maintenance(&leads, &[]), 3);
    knows_of_maintenance(&follows);
    connect(&follows).promote(Consent::Nothing, SOON).unwrap();
    assert_eq!(status(&follows)["role"], "primary");
    knows_of_maintenance(&follows);
    assert_eq!(missing(&connect(&follows), &written.acknowledged), []);
}

#[test]
fn a_lost_primary_is_replaced_when_maintenance_has_ended_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let [mut old, second, third] = by_themselves(directory.path());
    let begun = std::time::Instant::now();
    assert_eq!(maintenance(&old, &["--for", "4s"]), 0);
    knows_of_maintenance(&second);
    knows_of_maintenance(&third);
    old.kill();
    let [leads, _follows] = led([second, third]);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(status(&leads)["failover"]["maintenance"].is_null());
}
