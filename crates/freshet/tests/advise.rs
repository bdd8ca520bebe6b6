//! `freshet advise`: what it says of real nodes under load, and of nodes that it can say nothing
//! of.

mod common;

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Instant,
};

use common::{SOON, Sql, Writer, connect, create_journal, in_sync, open_sql, program, start, status, wait_until};
use freshet::client::Client;
use freshet_base::Lsn;
use serde_json::Value;

fn advise(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program()).arg("advise").args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.success(), text)
}

fn json(address: &str, seconds: &str) -> Value {
    let (well, text) = advise(&["--for", seconds, "--json", address]);
    assert!(well, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The costs of a form, as a standby's advice has them.
fn costs<'v>(advice: &'v Value, form: &str) -> &'v Value {
    advice["costs"].as_array().unwrap().iter().find(|costs| costs["form"] == form).unwrap()
}

#[test]
fn a_standby_under_load_is_advised_with_what_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let primary = start(&path("a"), &["--safety", "2-safe"]);
    let standby = start(&path("b"), &["--join", &primary.ready().listen]);
    create_journal(&connect(&primary));
    let writer = Writer::start(connect(&primary), 1);
    wait_until(&primary, "a standby that says how busy it is", |status| {
        in_sync(status) == 1 && status["standbys"][0]["load"].is_object()
    });
    let (before, begun) = (writer.count(), Instant::now());
    let report = json(&primary.ready().address, "3");
    let written = (writer.count() - before) as f64;
    let measured = &report["measured"];
    let number = |key: &str| measured[key].as_f64().unwrap();
    let (seconds, transactions) = (number("seconds"), number("seconds") * number("transactions_s"));
    assert!(seconds >= 3.0 && seconds <= begun.elapsed().as_secs_f64(), "{report:#}");
    // No more than were written while it looked, and as many but for the time around that.
    assert!(transactions <= written * 1.1 + 100.0, "{transactions} of {written}: {report:#}");
    assert!(transactions >= 20.0 && number("log_bytes") > 0.0 && number("forward_us") > 0.0, "{report:#}");
    // A mark is one record, which is never written again.
    assert!((number("records") - 1.0).abs() < 0.05, "{report:#}");
    assert!((measured["changes"]["records"].as_f64().unwrap() - 1.0).abs() < 0.05, "{report:#}");
    assert_eq!(measured["changes"]["updates"], 0.0);
    assert_eq!((&measured["shipped_as"], &measured["inputs"]), (&"bytes".into(), &Value::Null));
    let advice = &report["standbys"][0];
    assert_eq!(advice["node"], status(&standby)["node"]);
    let now = &advice["now"];
    assert_eq!((&now["form"], &now["fabric"], &now["one_sided"]), (&"bytes".into(), &"tcp".into(), &false.into()));
    assert!(now["processors"]["count"].as_u64().unwrap() > 0 && now["round_trip_ms"][0].as_f64().unwrap() > 0.0);
    let bytes = costs(advice, "bytes");
    for key in ["wire_bytes", "primary_us", "standby_us"] {
        assert!(bytes[key]["from"] == "measured" && bytes[key]["value"].as_f64().unwrap() > 0.0, "{key}: {report:#}");
    }
    // What is sent is the log, and something around it.
    assert!(bytes["wire_bytes"]["value"].as_f64().unwrap() > 0.8 * number("log_bytes"), "{report:#}");
    let mirror = costs(advice, "mirror");
    assert_eq!((&mirror["primary_us"]["from"], &mirror["serves_readers"]), (&"reckoned".into(), &false.into()));
    assert!(report["constants"].as_array().unwrap().len() > 10);

    let (well, text) = advise(&["--for", "1", &primary.ready().address]);
    let node = status(&standby)["node"].as_str().unwrap().to_owned();
    assert!(well && text.contains(&format!("standby          {node}")), "{text}");
    for line in ["fits  ", "  bytes ", "  inputs ", "  mirror ", "reckoned, not measured"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // A node that follows, and a primary that has nothing to do.
    let (well, text) = advise(&["--for", "1", &standby.ready().address]);
    assert!(
        !well && text.contains("is a standby: ask its primary") && text.contains(&primary.ready().listen),
        "{text}"
    );
    writer.stop();
    let (well, text) = advise(&["--for", "1", &primary.ready().address]);
    assert!(!well && text.contains("next to nothing in 1 s"), "{text}");
    drop(primary);
    let (well, text) = advise(&["--for", "1", "127.0.0.1:1"]);
    assert!(!well && text.contains("is a node running there?"), "{text}");
}

#[test]
fn inputs_that_are_recorded_are_measured() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let access = open_sql(&path("access"));
    let flags = |more: &[&str]| access.iter().cloned().chain(more.iter().map(ToString::to_string)).collect::<Vec<_>>();
    let begin = |name: &str, more: &[&str]| {
        let flags = flags(more);
        start(&path(name), &flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let primary = begin("a", &["--safety", "2-safe"]);
    // Without a standby the advice is for one that may come.
    let sql = Sql::connect(&primary);
    sql.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut id = 0;
            while !stop.load(SeqCst) {
                id += 1;
                sql.run(&format!("INSERT INTO t VALUES ({id}, repeat('row', 200))")).unwrap();
            }
        })
    };
    let report = json(&primary.ready().address, "1");
    let advice = &report["standbys"][0];
    assert_eq!((&advice["node"], &advice["now"], &advice["fits"]), (&Value::Null, &Value::Null, &"bytes".into()));
    assert_eq!(costs(advice, "bytes")["standby_us"]["from"], "constant", "{report:#}");
    assert_eq!(costs(advice, "inputs")["wire_bytes"]["from"], "constant", "{report:#}");

    let standby = begin("b", &["--join", &primary.ready().listen, "--encoding", "inputs"]);
    wait_until(&primary, "a standby that executes", |status| {
        let standby = &status["standbys"][0];
        in_sync(status) == 1 && standby["load"].is_object() && standby["encoding"] == "inputs"
    });
    wait_until(&standby, "transactions were executed again", |status| status["again"]["executed"].as_u64() > Some(20));
    let report = json(&primary.ready().address, "2");
    let (measured, advice) = (&report["measured"], &report["standbys"][0]);
    assert!(measured["inputs"]["share"].as_f64().unwrap() > 0.9, "{report:#}");
    assert_eq!((&advice["now"]["form"], &measured["shipped_as"]), (&"inputs".into(), &"inputs".into()));
    // The text is made again from a few words.
    let (wire, log) = (&costs(advice, "inputs")["wire_bytes"], measured["log_bytes"].as_f64().unwrap());
    assert!(measured["inputs"]["wire_bytes"].as_f64().unwrap() < log / 2.0, "{report:#}");
    assert!(wire["from"] == "measured" && wire["value"].as_f64().unwrap() > 0.0, "{report:#}");
    assert_eq!(costs(advice, "inputs")["standby_us"]["from"], "measured", "{report:#}");
    assert_eq!(costs(advice, "bytes")["standby_us"]["from"], "constant", "{report:#}");
    // It was only looked at.
    assert_eq!(status(&standby)["encoding"], "inputs");
    stop.store(true, SeqCst);
    writer.join().unwrap();
}

/// What is reckoned of a mirror at a log standby is what is measured at a mirror beside it.
#[test]
fn a_mirror_is_measured_and_another_reckoned_by_what_changes() {
    let directory = tempfile::tempdir().unwrap();
    let access = open_sql(&directory.path().join("access"));
    let begin = |name: &str, more: &[&str]| {
        let flags: Vec<_> = access.iter().map(String::as_str).chain(more.iter().copied()).collect();
        start(&directory.path().join(name), &flags)
    };
    let primary = begin("a", &["--safety", "very-safe"]);
    let standby = begin("b", &["--join", &primary.ready().listen]);
    let mirror = begin("c", &["--join", &primary.ready().listen, "--mirror-bytes", "536870912"]);
    wait_until(&primary, "both in sync", |status| in_sync(status) == 2);
    let sql = Sql::connect(&primary);
    sql.run("CREATE TABLE t (id bigint PRIMARY KEY, n bigint, v text)").unwrap();
    for id in 0..200 {
        sql.run(&format!("INSERT INTO t VALUES ({id}, 0, repeat('row', 300))")).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            // What is sent now and then weighs little beside them, however slow this machine is.
            let parts = (0..200).step_by(ROWS).cycle().take_while(|_| !stop.load(SeqCst));
            parts.for_each(|first| {
                let rows = first..first + ROWS;
                sql.run(&format!("UPDATE t SET n = n + 1 WHERE id >= {} AND id < {}", rows.start, rows.end)).unwrap();
            });
        })
    };
    let have_load = |status: &Value| status["standbys"].as_array().unwrap().iter().all(|one| one["load"].is_object());
    wait_until(&primary, "both report how busy they are", have_load);
    let report = json(&primary.ready().address, "3");
    stop.store(true, SeqCst);
    writer.join().unwrap();

    let of = |node: &Value| report["standbys"].as_array().unwrap().iter().find(|one| &one["node"] == node).unwrap();
    let (log, rows) = (of(&status(&standby)["node"]), of(&status(&mirror)["node"]));
    assert_eq!((&log["now"]["form"], &rows["now"]["form"]), (&"bytes".into(), &"mirror".into()), "{report:#}");
    // Both are on this machine, and say so.
    let processors = &rows["now"]["processors"];
    assert_eq!(processors["count"], log["now"]["processors"]["count"], "{report:#}");
    assert!(processors["idle"].as_f64().unwrap() < 1.0 && rows["now"]["link_busy"].is_number(), "{report:#}");
    assert!(rows["now"]["round_trip_ms"][0].as_f64().unwrap() > 0.0, "{report:#}");
    assert!(rows["now"]["replays"].as_f64().unwrap() > 0.8, "{report:#}");
    // A column of eight bytes: two parts of the row at most.
    let changes = &report["measured"]["changes"];
    let change = |key: &str| changes[key].as_f64().unwrap();
    assert!(change("noted") > 0.95 * change("updates") && change("updates") > 0.9 * ROWS as f64, "{report:#}");
    assert!(change("changed_bytes") < 0.2 * change("noted_bytes"), "{report:#}");

    let (here, there) = (costs(rows, "mirror"), costs(log, "mirror"));
    let number = |figure: &Value| figure["value"].as_f64().unwrap();
    for key in ["wire_bytes", "standby_us"] {
        assert_eq!((&here[key]["from"], &there[key]["from"]), (&"measured".into(), &origin(key)), "{report:#}");
    }
    let (measured, reckoned) = (number(&here["wire_bytes"]), number(&there["wire_bytes"]));
    assert!((reckoned / measured - 1.0).abs() < 0.25, "{reckoned} is not about {measured}: {report:#}");
    // The memory grows by pieces, and is there before it is needed.
    let (granted, memory) = (status(&mirror)["granted_bytes"].as_f64().unwrap(), &there["memory_bytes"]);
    assert!((0.5 * granted..=granted).contains(&memory.as_f64().unwrap()), "{granted}: {report:#}");
}

/// Rows of a transaction.
const ROWS: usize = 40;

/// Where a figure of another mirror comes from, if one is measured.
fn origin(key: &str) -> Value {
    if key == "standby_us" { "elsewhere".into() } else { "reckoned".into() }
}

/// A piece of the log is looked at where a status says that the log ends, and nowhere else, and no
/// answer shows what is elsewhere.
#[test]
fn figures_of_the_log_show_nothing_of_its_contents() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let node = start(&path("a"), &[]);
    let address = node.ready().address.as_str();
    create_journal(&connect(&node));
    common::write(&connect(&node), 1, 1, SOON).unwrap();
    let filled = Lsn(status(&node)["filled"].as_u64().unwrap());
    common::write(&connect(&node), 1, 2, SOON).unwrap();
    // As a node, by its own certificate.
    let client = Client::connect_with(address, Some(&path("a")), SOON).unwrap();
    let refusals: BTreeSet<String> = (0..filled.0)
        .chain([filled.0 + 1, filled.0 + 8, 1 << 40, u64::MAX])
        .map(|from| client.mix(Lsn(from), 1 << 16, SOON).map(drop))
        .filter_map(|answer| answer.err().map(|refused| refused.to_string()))
        .collect();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert_eq!(client.mix(filled, 1 << 16, SOON).unwrap().transactions, 1);
    // A monitor sees the status, and no figures of what is written.
    let token = path("token");
    let made = Command::new(program()).args(["token", "--role", "monitor", "--address", address]).output().unwrap();
    fs::write(&token, &made.stdout).unwrap();
    let (listen, monitor) = (node.ready().listen.as_str(), path("monitor"));
    let mut enrolled = Command::new(program());
    enrolled.args(["enrol", "--node", listen, "--token-file"]).args([&token, &monitor]);
    // One that others may have read is not used, nor used up.
    fs::set_permissions(&token, Permissions::from_mode(0o644)).unwrap();
    let refused = enrolled.output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("chmod 600"), "{refused:?}");
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    assert!(enrolled.status().unwrap().success());
    let client = Client::connect_with(address, Some(&monitor), SOON).unwrap();
    assert!(client.status(SOON).is_ok());
    let refused = client.mix(filled, 1 << 16, SOON).unwrap_err().to_string();
    assert!(refused.contains("status alone"), "{refused}");
}
