//! A standby whose state is in doubt begins again by itself where others show that the primary is
//! right, and waits for an operator where nobody can say which side is.
#![cfg(debug_assertions)]

#[path = "../../freshet/tests/common/mod.rs"]
mod common;

use std::path::Path;

use common::{
    SOON, Sql, Writer, assert_same_state, connect, create_journal, in_sync, missing, open_sql, start, status,
    wait_for_message, wait_until,
};
use freshet::children::NodeProcess;
use freshet_engine::{Break, Consent, StateAnswer, StateAsk};
use serde_json::Value;

const PROVED: &str = "the new state of this node is that of its primary";

fn begin(directory: &Path, name: &str, more: &[&str]) -> NodeProcess {
    let often = ["--sweep-cpu-percent", "100", "--sweep-interval-s", "1", "--state-proof-interval-ms", "50"];
    start(&directory.join(name), &[&often[..], more].concat())
}

/// Damages one of the places where replay says that a record's newest version is.
fn damage(node: &NodeProcess) {
    let asked = StateAsk::Break { what: Break::ReplayWord, seed: 3 };
    let broken = connect(node).state(asked, SOON).unwrap();
    assert!(matches!(broken, StateAnswer::Broken(Some(_))), "{broken:?}");
}

/// The standbys that have found their state to be the primary's.
fn proven(status: &Value) -> usize {
    let standbys = status["standbys"].as_array().map_or(&[][..], Vec::as_slice);
    standbys.iter().filter(|standby| standby["equal_at"].is_u64() && standby["in_doubt"] == false).count()
}

fn leads_to(status: &Value) -> &str {
    status["doubt_leads_to"].as_str().unwrap_or_default()
}

fn asides(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.contains(".in-doubt-")).collect()
}

/// One of two standbys is damaged under load: what was acknowledged is there when it has begun
/// again, and it may take over.
fn one_of_two(safety: &str) {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let level = ["--safety", safety];
    let least = if safety == "2-safe" { "1" } else { "0" };
    let level = [&level[..], &["--least-in-sync", least]].concat();
    let primary = begin(directory, "a", &[&level[..], &["--new-cluster"]].concat());
    let join = |name: &str, more: &[&str]| {
        begin(directory, name, &[&level[..], &["--join", &primary.ready().listen], more].concat())
    };
    let logs = directory.join("log-of-b");
    let bad = join("b", &["--log-dir", logs.to_str().unwrap()]);
    let good = join("c", &[]);
    create_journal(&connect(&primary));
    let writer = Writer::start(connect(&primary), 1);
    writer.wait_for(200);
    wait_until(&primary, "two standbys that were compared", |status| proven(status) == 2 && in_sync(status) == 2);
    let before = status(&bad);
    damage(&bad);
    wait_for_message(&bad, "what it had is kept aside");
    writer.wait_for(writer.count() + 200);
    wait_for_message(&bad, PROVED);
    wait_until(&primary, "both in sync again", |status| proven(status) == 2 && in_sync(status) == 2);
    let after = wait_until(&bad, "that it has nothing aside", |status| status["kept_aside"].is_null());
    assert_eq!((&after["node"], &after["pid"], &after["doubt"]), (&before["node"], &before["pid"], &Value::Null));
    assert_eq!(asides(directory), [""; 0]);
    let acknowledged = writer.stop().acknowledged;
    assert_same_state(&connect(&primary), &connect(&bad));
    for node in [&primary, &bad, &good] {
        assert_eq!(missing(&connect(node), &acknowledged), [], "{safety}");
    }
    assert!(!good.messages().contains("begins again"), "{}", good.messages());
    // It has its vote.
    drop(primary);
    connect(&bad).promote(Consent::Nothing, SOON).unwrap();
    assert_eq!(missing(&connect(&bad), &acknowledged), [], "{safety}");
}

#[test]
fn one_of_two_standbys_begins_again_by_itself() {
    ["2-safe", "quorum:2"].into_iter().for_each(one_of_two);
}

#[test]
fn with_two_nodes_an_operator_chooses() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let primary = begin(directory, "a", &["--new-cluster"]);
    let standby = begin(directory, "b", &["--join", &primary.ready().listen]);
    create_journal(&connect(&primary));
    let writer = Writer::start(connect(&primary), 1);
    writer.wait_for(200);
    wait_until(&primary, "a standby that was compared", |status| proven(status) == 1 && in_sync(status) == 1);
    let here = standby.ready().address.clone();
    // Nothing is to be done yet.
    let refused = connect(&standby).begin_again(false, SOON).unwrap_err().to_string();
    assert!(refused.contains("nothing speaks against"), "{refused}");
    let refused = connect(&primary).begin_again(true, SOON).unwrap_err().to_string();
    assert!(refused.contains("promote a standby first"), "{refused}");
    damage(&standby);
    let waits = wait_until(&standby, "that it waits", |status| leads_to(status).starts_with("waits for an operator"));
    let advice = leads_to(&waits);
    let nodes = [&standby, &primary].map(|node| status(node)["node"].as_str().unwrap().to_owned());
    for name in [nodes[0].as_str(), &nodes[1], &primary.ready().listen, &standby.ready().listen] {
        assert!(advice.contains(name), "{name}: {advice}");
    }
    for command in ["begin-again", "promote"] {
        assert!(advice.contains(&format!("freshet {command} {here}")), "{advice}");
    }
    connect(&standby).begin_again(false, SOON).unwrap();
    wait_for_message(&standby, PROVED);
    wait_until(&primary, "the standby in sync again", |status| proven(status) == 1 && in_sync(status) == 1);
    assert_eq!(asides(directory), [""; 0]);
    let acknowledged = writer.stop().acknowledged;
    assert_same_state(&connect(&primary), &connect(&standby));
    assert_eq!(missing(&connect(&standby), &acknowledged), []);
}

#[test]
fn where_most_differ_nobody_begins_again() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let level = ["--safety", "quorum:2"];
    let primary = begin(directory, "a", &[&level[..], &["--new-cluster"]].concat());
    let join = ["--join", primary.ready().listen.as_str()];
    let reports = begin(directory, "b", &[&level[..], &join, &["--on-doubt", "report"]].concat());
    let standby = begin(directory, "c", &[&level[..], &join].concat());
    create_journal(&connect(&primary));
    let writer = Writer::start(connect(&primary), 1);
    writer.wait_for(200);
    wait_until(&primary, "two standbys that were compared", |status| proven(status) == 2 && in_sync(status) == 2);
    damage(&reports);
    wait_until(&primary, "that it hears of the first", |status| proven(status) == 1);
    // It is reported, and has no consequences.
    assert_eq!(leads_to(&status(&reports)), "");
    damage(&standby);
    let waits = wait_until(&standby, "that it waits", |status| leads_to(status).starts_with("waits for an operator"));
    assert!(leads_to(&waits).contains("2 of 2 standbys are in doubt"), "{waits:#}");
    writer.wait_for(writer.count() + 200);
    assert_eq!(leads_to(&status(&standby)), leads_to(&waits));
    assert_eq!(asides(directory), [""; 0]);
    writer.stop();
}

/// It was to begin again with what a node has that is gone since: another that it knew will do, and
/// nobody has to say so.
#[test]
fn a_node_that_begins_again_joins_whom_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let primary = begin(directory, "a", &["--new-cluster"]);
    let mut standby = begin(directory, "b", &["--join", &primary.ready().listen]);
    create_journal(&connect(&primary));
    let writer = Writer::start(connect(&primary), 1);
    writer.wait_for(200);
    wait_until(&primary, "a standby in sync", |status| in_sync(status) == 1);
    let before = status(&standby);
    standby.kill();
    let nobody = freshet_testing::ports::reserve().unwrap();
    freshet_base::private::write(&directory.join("b/begin-again"), format!("{nobody}\n1\n").as_bytes()).unwrap();
    let standby = begin(directory, "b", &[]);
    let messages = standby.messages();
    assert!(messages.contains("it tries again") && messages.contains(&nobody.to_string()), "{messages}");
    wait_for_message(&standby, PROVED);
    wait_until(&primary, "the standby in sync again", |status| proven(status) == 1 && in_sync(status) == 1);
    assert_eq!((&status(&standby)["node"], asides(directory)), (&before["node"], Vec::new()));
    let acknowledged = writer.stop().acknowledged;
    assert_eq!(missing(&connect(&standby), &acknowledged), []);
}

/// A standby that has found damage by itself shows nothing any more.
#[test]
fn a_standby_in_doubt_turns_readers_away() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // With all three nodes: then a standby in doubt does not begin again by itself.
    let begin = |name: &str, more: &[&str]| {
        let access = open_sql(&directory.join(format!("{name}.access")));
        let access: Vec<&str> = access.iter().map(String::as_str).collect();
        begin(directory, name, &[&access, &["--safety", "quorum:3"][..], more].concat())
    };
    let primary = begin("a", &[]);
    let join = ["--join", primary.ready().listen.as_str(), "--http-listen", "127.0.0.1:0"];
    let [bad, good] = ["b", "c"].map(|name| begin(name, &join));
    wait_until(&primary, "two standbys in sync", |status| in_sync(status) == 2);
    let sql = Sql::connect(&primary);
    sql.run("CREATE TABLE things (id int PRIMARY KEY, v text)").unwrap();
    let rows: Vec<String> = (1..=500).map(|id| format!("({id}, 'thing')")).collect();
    sql.run(&format!("INSERT INTO things VALUES {}", rows.join(", "))).unwrap();
    let sql = Sql::connect(&bad);
    let (at, ..) = connect(&primary).hash(None, SOON).unwrap();
    connect(&bad).hash(Some(at), SOON).unwrap();
    assert_eq!(sql.run("SELECT count(*) FROM things WHERE v <> ''").unwrap(), ["500"]);
    connect(&bad).state(StateAsk::Break { what: Break::Row, seed: 3 }, SOON).unwrap();
    let in_doubt = |node: &NodeProcess| {
        let text = common::metrics(node.ready().http.as_deref().unwrap()).unwrap();
        let line = text.lines().find(|line| line.starts_with("freshet_state_in_doubt ")).unwrap();
        line.ends_with(" 1.0")
    };
    wait_until(&bad, "its sweep finds the row", |status| status["doubt"].is_string());
    // The alert FreshetStateInDoubt of docs/prometheus/alerts.yml.
    assert!(in_doubt(&bad) && !in_doubt(&good));
    let refused = sql.run("SELECT count(*) FROM things").unwrap_err();
    assert_eq!(refused.code().map(|code| code.code().to_owned()), Some("XX001".to_owned()), "{refused:?}");
    let refused = connect(&bad).promote(Consent::Nothing, SOON).unwrap_err().to_string();
    assert!(refused.contains("in doubt"), "{refused}");
    assert!(!Sql::connect(&good).run("SELECT count(*) FROM things").unwrap().is_empty());
}
