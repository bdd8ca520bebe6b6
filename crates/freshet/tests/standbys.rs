//! A standby that dies, stands still, or comes back, under each safety level.

mod common;

use std::{path::Path, time::Duration};

use common::{
    SOON, Writer, assert_same_state, connect, create_journal, in_sync, missing, start, status, wait_until, write,
};
use freshet::{children::NodeProcess, sql_client::SqlFailure};

const NEVER: Duration = Duration::from_millis(300);

struct Pair {
    primary: NodeProcess,
    standby: NodeProcess,
    directory: tempfile::TempDir,
}

fn join(primary: &NodeProcess, directory: &Path) -> NodeProcess {
    start(directory, &["--join", &primary.ready().listen])
}

/// A primary and a standby in sync.
fn pair(flags: &[&str]) -> Pair {
    let directory = tempfile::tempdir().unwrap();
    let flags = [&["--standby-timeout-ms", "300"], flags].concat();
    let primary = start(&directory.path().join("primary"), &flags);
    let standby = join(&primary, &directory.path().join("standby"));
    wait_until(&primary, "a standby in sync", |status| in_sync(status) == 1);
    create_journal(&connect(&primary));
    Pair { primary, standby, directory }
}

fn standing(node: &NodeProcess) -> String {
    status(node)["standing"]["standing"].as_str().unwrap_or_default().to_owned()
}

/// Both have the same state, and the marks.
fn assert_equal(pair: &Pair, marks: &[freshet_workloads::journal::Mark]) {
    let (primary, standby) = (connect(&pair.primary), connect(&pair.standby));
    assert_same_state(&primary, &standby);
    assert_eq!((missing(&primary, marks), missing(&standby, marks)), (vec![], vec![]));
}

/// The ids that a status names, by their keys.
fn ids<'v>(value: &'v serde_json::Value, found: &mut Vec<(&'v str, &'v serde_json::Value)>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        if matches!(key.as_str(), "node" | "cluster" | "holder") {
            found.push((key, value));
        }
        ids(value, found);
    }
    value.as_array().into_iter().flatten().for_each(|value| ids(value, found));
}

/// In JSON as for people, and as in the control file: a number of that size is another one where
/// numbers are floating-point.
#[test]
fn ids_have_one_form_everywhere() {
    let pair = pair(&[]);
    let control = |name: &str, key: &str| {
        let text = std::fs::read_to_string(pair.directory.path().join(name).join("control")).unwrap();
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).unwrap().to_owned()
    };
    let cluster = control("primary", "cluster");
    let nodes = [control("primary", "node"), control("standby", "node")];
    for (node, name) in [(&pair.primary, "primary"), (&pair.standby, "standby")] {
        let (own, status) = (control(name, "node"), status(node));
        assert_eq!((&status["node"], &status["cluster"]), (&own.as_str().into(), &cluster.as_str().into()));
        let mut found = Vec::new();
        ids(&status, &mut found);
        for (key, id) in found.into_iter().filter(|(_, id)| !id.is_null()) {
            let id = id.as_str().unwrap_or_else(|| panic!("{key} is {id}"));
            assert!(if key == "cluster" { id == cluster } else { nodes.iter().any(|node| node == id) }, "{key}: {id}");
        }
        let run = |arguments: &[&str]| {
            let output = std::process::Command::new(common::program()).args(arguments).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let shown = run(&["status", "--address", &node.ready().address]);
        assert!(shown.contains(&own) && shown.contains(&cluster), "{shown}");
        let directory = pair.directory.path().join(name);
        let looked = run(&["inspect", "log", directory.to_str().unwrap()]);
        assert!(looked.contains(&own) && looked.contains(&cluster), "{looked}");
    }
    // The primary names its standby.
    assert_eq!(status(&pair.primary)["standbys"][0]["node"], nodes[1].as_str());
}

#[test]
fn very_safe_waits_for_a_standby_that_died() {
    let mut pair = pair(&["--safety", "very-safe"]);
    let client = connect(&pair.primary);
    write(&client, 1, 1, SOON).unwrap();
    pair.standby.kill();
    // Neither committed nor rolled back.
    let open = write(&client, 1, 2, NEVER).unwrap_err();
    assert!(matches!(&open, SqlFailure::Server { code, .. } if code == "40003"), "{open}");
    wait_until(&pair.primary, "blocked", |status| status["standing"]["standing"] == "blocked");
    let waiting = Writer::start(connect(&pair.primary), 2);
    pair.standby = join(&pair.primary, &pair.directory.path().join("standby"));
    waiting.wait_for(100);
    let written = waiting.stop();
    assert_eq!(standing(&pair.primary), "safe");
    assert_equal(&pair, &written.acknowledged);
}

#[test]
fn a_quorum_refuses_after_its_deadline_and_goes_on_when_it_can() {
    // Long enough for writers to be waiting by then, on a busy machine too.
    let patience = ["--standby-timeout-ms", "1500", "--refuse-after-ms", "1500"];
    let mut pair = pair(&[&["--safety", "quorum:2"], &patience[..]].concat());
    let client = connect(&pair.primary);
    write(&client, 1, 1, SOON).unwrap();
    let writer = Writer::start(connect(&pair.primary), 2);
    writer.wait_for(20);
    pair.standby.pause();
    wait_until(&pair.primary, "refusing", |status| status["standing"]["standing"] == "refusing");
    // Who waits hears that the outcome is open, who comes later that nothing was done.
    let written = writer.stop();
    assert!(written.open.iter().any(|(_, why)| why.starts_with("40003")), "{written:?}");
    let refused = write(&client, 1, 3, SOON).unwrap_err();
    assert!(matches!(&refused, SqlFailure::Server { code, .. } if code == "57P03"), "{refused}");
    pair.standby.resume();
    wait_until(&pair.primary, "safe again", |status| status["standing"]["standing"] == "safe");
    write(&client, 1, 4, SOON).unwrap();
    let marks = |sequences: &[u64]| {
        sequences
            .iter()
            .map(|sequence| freshet_workloads::journal::Mark { client: 1, sequence: *sequence })
            .collect::<Vec<_>>()
    };
    assert_equal(&pair, &marks(&[1, 4]));
    assert_eq!(missing(&client, &marks(&[3])), marks(&[3]), "what was refused was not done");
    pair.standby.kill();
}

#[test]
fn two_safe_goes_on_degraded_without_a_standby_that_stands_still() {
    let pair = pair(&["--safety", "2-safe"]);
    let client = connect(&pair.primary);
    write(&client, 1, 1, SOON).unwrap();
    pair.standby.pause();
    write(&client, 1, 2, SOON).unwrap();
    assert_eq!(standing(&pair.primary), "degraded");
    let writer = Writer::start(connect(&pair.primary), 2);
    writer.wait_for(200);
    pair.standby.resume();
    wait_until(&pair.primary, "safe again", |status| status["standing"]["standing"] == "safe");
    let written = writer.stop();
    assert!(written.open.is_empty() && written.refused.is_empty(), "{written:?}");
    assert_equal(&pair, &written.acknowledged);
}

#[test]
fn one_safe_does_not_care() {
    let mut pair = pair(&["--safety", "1-safe"]);
    let writer = Writer::start(connect(&pair.primary), 1);
    writer.wait_for(100);
    pair.standby.kill();
    writer.wait_for(writer.count() + 200);
    // Killed, and back under load, on what it had.
    pair.standby = join(&pair.primary, &pair.directory.path().join("standby"));
    wait_until(&pair.standby, "follows", |status| status["link"]["link"] == "following");
    writer.wait_for(writer.count() + 200);
    assert_equal(&pair, &writer.stop().acknowledged);
}

#[test]
fn a_standby_loses_nothing_by_being_killed_again_and_again() {
    let mut random = common::random();
    let mut pair = pair(&["--safety", "quorum:2"]);
    let writer = Writer::start(connect(&pair.primary), 1);
    for _ in 0..4 {
        writer.wait_for(writer.count() + 100);
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        pair.standby.kill();
        pair.standby = join(&pair.primary, &pair.directory.path().join("standby"));
    }
    writer.wait_for(writer.count() + 100);
    let written = writer.stop();
    assert!(written.open.is_empty() && written.refused.is_empty(), "{written:?}");
    assert_equal(&pair, &written.acknowledged);
}

#[test]
fn an_idle_standby_lags_by_nothing_and_can_be_read() {
    let pair = pair(&["--safety", "2-safe"]);
    let client = connect(&pair.primary);
    for sequence in 0..50 {
        write(&client, 1, sequence, SOON).unwrap();
    }
    wait_until(&pair.standby, "no lag", |status| {
        ["receive_lag", "persist_lag", "replay_lag", "visible_lag"].iter().all(|lag| {
            status[lag]["bytes"] == 0 && status[lag]["time"]["secs"] == 0 && status[lag]["time"]["nanos"] == 0
        })
    });
    let refused = write(&connect(&pair.standby), 1, 99, SOON).unwrap_err();
    assert!(matches!(&refused, SqlFailure::Server { code, .. } if code == "25006"), "{refused}");
}
