//! The commands backup, archive and restore, beside nodes that are killed.

mod common;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use common::{Archive, SOON, Writer, connect, create_journal, in_sync, missing, program, start, wait_until};

fn run(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn what_was_acknowledged_before_a_moment_comes_back_and_nothing_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let flags = ["--checkpoint-keep-log-bytes", "0"];
    let mut primary = start(&place("primary"), &flags);
    let standby = start(&place("standby"), &["--join", &primary.ready().listen]);
    wait_until(&primary, "a standby in sync", |status| in_sync(status) == 1);
    create_journal(&connect(&primary));
    let first = Writer::start(connect(&primary), 1);
    first.wait_for(200);
    // While somebody writes.
    let made = run(&["backup", "--node", &primary.ready().listen, text(&place("backup"))]);
    assert!(made.status.success(), "{made:?}");
    let mut archive = Archive::start(&place("archive"), &primary.ready().listen, &["--peer", &standby.ready().listen]);
    archive.wait_until_ready();
    wait_until(&primary, "an archive", |status| status["observers"].as_array().is_some_and(|them| them.len() == 1));
    first.wait_for(600);
    let early = first.stop().acknowledged;
    let (moment, ..) = connect(&primary).hash(None, SOON).unwrap();
    let late = Writer::start(connect(&primary), 2);
    late.wait_for(300);
    primary.kill();
    let late = late.stop().acknowledged;
    assert!(!late.is_empty());
    drop(archive);

    let restore = |name: &str, more: &[&str]| {
        let (backup, new) = (place("archive"), place(name));
        let out = run(&[&["restore", "--backup", text(&backup)], more, &[text(&new)]].concat());
        assert!(out.status.success(), "{out:?}");
        start(&new, &[])
    };
    let node = restore("moment", &["--to-lsn", &moment.0.to_string()]);
    let client = connect(&node);
    assert_eq!(missing(&client, &early), vec![]);
    assert_eq!(missing(&client, &late).len(), late.len(), "nothing from after the moment");
    let all = restore("all", &[]);
    assert_eq!(missing(&connect(&all), &early), vec![]);
    // A backup alone is a database, too; and no place for a second one.
    let again = run(&["restore", "--backup", text(&place("backup")), text(&place("all"))]);
    assert!(!again.status.success());
    let alone = run(&["restore", "--backup", text(&place("backup")), text(&place("alone"))]);
    assert!(alone.status.success(), "{alone:?}");
    drop(start(&place("alone"), &[]));
    // A time before everything.
    let never =
        run(&["restore", "--backup", text(&place("archive")), "--to-time", "2001-01-01T00:00:00Z", text(&place("x"))]);
    assert!(String::from_utf8_lossy(&never.stderr).contains("nothing here reaches back to that moment"), "{never:?}");
    drop(standby);
}

/// Copies what a node of the build of 27 November 2026 has left behind: a hundred rows in a
/// checkpoint, and one more in the log.
fn earlier(to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/earlier/november-27");
    let copied = Command::new("cp").arg("-r").args([&from, to]).status().unwrap();
    // As a node keeps it; a checkout has other modes.
    let private = Command::new("chmod").args(["-R", "go="]).arg(to).status().unwrap();
    assert!(copied.success() && private.success());
}

/// Its control file has format 2, its log format 1, and its in-sync sets have other fields.
#[test]
fn what_an_earlier_release_has_written_is_restored() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    earlier(&place("checkpoint"));
    earlier(&place("log"));
    std::fs::remove_file(place("log").join("checkpoint-00000000000000009192.manifest")).unwrap();
    for source in ["checkpoint", "log"] {
        let (backup, new) = (place(source), place(&format!("{source}-restored")));
        let out = run(&["restore", "--backup", text(&backup), text(&new)]);
        assert!(out.status.success(), "{out:?}");
        let node = start(&new, &[]);
        // The log of before is among what a standby gets.
        let standby = start(&place(&format!("{source}-standby")), &["--join", &node.ready().listen]);
        wait_until(&node, "a standby in sync", |status| in_sync(status) == 1);
        connect(&node).run("INSERT INTO t VALUES (3000, 'new')", SOON).unwrap();
        common::assert_same_state(&connect(&node), &connect(&standby));
        for node in [&node, &standby] {
            let rows = connect(node).run("SELECT count(*), sum(k), max(v) FROM t", SOON).unwrap().rows;
            assert_eq!(rows, [["102", "10050", "v99"]], "from the {source}");
        }
    }
    // No node starts there.
    let refusal = common::refused(&place("log"), &[]);
    assert!(refusal.contains("of an earlier release") && refusal.contains("freshet restore"), "{refusal}");
}
