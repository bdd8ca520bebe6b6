//! `freshet inspect` on the files of real nodes, while they run and afterwards.

mod common;

use std::{fs, path::Path, process::Command};

use common::{Writer, connect, create_journal, in_sync, program, start, wait_until};

fn inspect(what: &str, path: &Path, more: &[&str]) -> (bool, String) {
    let output = Command::new(program()).args(["inspect", what]).arg(path).args(more).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.success(), text)
}

#[test]
fn streams_and_checkpoints_are_shown_while_a_node_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node");
    let streams = [0, 1, 2].map(|stream| directory.path().join(format!("stream-{stream}")));
    let all = streams.each_ref().map(|stream| stream.to_str().unwrap()).join(",");
    let mut node = start(&path, &["--log-dir", &all]);
    let path = path.as_path();
    let (whole, text) = inspect("checkpoint", path, &[]);
    assert!(whole && text.contains("no checkpoint is installed"), "{text}");
    let others = [&streams[1], &streams[2]].map(|stream| stream.to_str().unwrap());
    let client = connect(&node);
    create_journal(&client);
    // Several connections: each has a worker, and workers are dealt out to streams.
    let writers: Vec<Writer> = (0..3).map(|number| Writer::start(connect(&node), number)).collect();
    writers.iter().for_each(|writer| writer.wait_for(1_000));
    for _ in 0..3 {
        let (whole, text) = inspect("log", &streams[0], &[&others[..], &["--summary"]].concat());
        assert!(whole && text.contains("no damage"), "{text}");
        let (whole, text) = inspect("log", &streams[1], &["--summary"]);
        assert!(whole && text.contains("no damage"), "{text}");
    }
    client.checkpoint(false, common::SOON).unwrap();
    let (whole, text) = inspect("checkpoint", path, &["--files", "--check"]);
    assert!(whole && text.contains("fuzzy: needs the log from") && text.contains("every block of rows"), "{text}");
    writers.into_iter().for_each(|writer| drop(writer.stop()));
    client.checkpoint(false, common::SOON).unwrap();
    assert!(node.stop(common::SOON).unwrap().success(), "{}", node.messages());

    let (whole, text) = inspect("log", &streams[0], &[&others[..], &["--records"]].concat());
    assert!(whole && text.contains("no damage") && text.contains("3 streams in the order of LSNs"), "{text}");
    for expected in ["stream 0", "stream 1", "stream 2", "begins term", "insert table", " UTC"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let all = text.lines().filter(|line| line.contains("checksum")).count();
    let mut sum = 0;
    for stream in &streams {
        let (whole, text) = inspect("log", stream, &[]);
        assert!(whole && text.contains("one of 3 streams, by positions"), "{text}");
        sum += text.lines().filter(|line| line.contains("checksum") && line.contains("LSN")).count();
    }
    assert_eq!(sum, all);

    let (whole, text) = inspect("checkpoint", path, &["--check"]);
    assert!(whole && text.contains("1 checkpoint(s)"), "{text}");
    // Damage in a file of rows is found by reading only; a file that is missing, at once.
    let folder = fs::read_dir(path.join("checkpoints")).unwrap().next().unwrap().unwrap().path();
    let largest = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let largest = largest.max_by_key(|file| fs::metadata(file).unwrap().len()).unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&largest, &bytes).unwrap();
    assert!(inspect("checkpoint", path, &[]).0);
    let (whole, text) = inspect("checkpoint", path, &["--check"]);
    assert!(!whole && text.contains("cannot be used") && text.contains(largest.to_str().unwrap()), "{text}");
    fs::remove_file(&largest).unwrap();
    let (whole, text) = inspect("checkpoint", path, &[]);
    assert!(!whole && text.contains(largest.to_str().unwrap()), "{text}");
}

/// A cluster in which a failover takes place decides all of it once more.
#[test]
fn events_are_recorded_and_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (directory.path().join("a"), directory.path().join("b"));
    let (of_a, of_b) = (directory.path().join("a.events"), directory.path().join("b.events"));
    let (path_a, path_b) = (of_a.to_str().unwrap(), of_b.to_str().unwrap());
    let mut primary = start(&a, &["--record-events", path_a]);
    let mut standby = start(&b, &["--join", &primary.ready().listen, "--record-events", path_b]);
    wait_until(&primary, "a standby in sync", |status| in_sync(status) == 1);
    let client = connect(&primary);
    create_journal(&client);
    let writer = Writer::start(connect(&primary), 1);
    writer.wait_for(500);
    // What is being written is read as far as it is there.
    let (same, text) = inspect("events", &of_a, &["--quiet"]);
    assert!(same && text.contains(" 0 of these"), "{text}");
    // Another process continues the same file.
    assert!(standby.stop(common::SOON).unwrap().success(), "{}", standby.messages());
    standby = start(&b, &["--join", &primary.ready().listen, "--record-events", path_b]);
    wait_until(&primary, "a standby in sync", |status| in_sync(status) == 1);
    let (same, text) = inspect("events", &of_b, &[]);
    assert!(same && text.matches(" begins: ").count() == 2, "{text}");
    primary.kill();
    drop(writer.stop());
    let promoted = Command::new(program()).args(["promote", "--force", &standby.ready().address]).output().unwrap();
    assert!(promoted.status.success(), "{promoted:?}");
    connect(&standby).checkpoint(false, common::SOON).unwrap();
    assert!(standby.stop(common::SOON).unwrap().success(), "{}", standby.messages());
    for (file, machines) in [(&of_a, &["Rule(", "Host("][..]), (&of_b, &["Follower(", "Rule("])] {
        let (same, text) = inspect("events", file, &[]);
        assert!(same && text.contains(" 0 of these are decided otherwise"), "{text}");
        for machine in machines {
            assert!(text.contains(machine), "{machine} in {}", file.display());
        }
    }
    fs::write(&of_a, b"something else").unwrap();
    let (same, text) = inspect("events", &of_a, &[]);
    assert!(!same && text.contains("it is no file of events"), "{text}");
}
