//! Nodes with the laboratory's keys that fail or refuse, with one clear message.

#[path = "../../freshet/tests/common/mod.rs"]
mod common;

use std::{fs, path::PathBuf, process::Command};

use common::{
    SOON, Writer, connect, create_journal, flags, missing, program, refused, start, wait_for_message, wait_until, write,
};
use freshet::children::NodeProcess;
use freshet_testing::{Missing, skip};
use freshet_workloads::journal::Mark;

#[test]
fn a_truncated_or_missing_segment_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let small = ["--log-segment-bytes", "65536"];
    let mut node = start(directory.path(), &small);
    create_journal(&connect(&node));
    let writer = Writer::start(connect(&node), 1);
    writer.wait_for(3_000);
    let marks = writer.stop().acknowledged;
    assert!(node.stop(SOON).unwrap().success(), "{}", node.messages());
    let files = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "segment");
    let mut segments: Vec<PathBuf> = files.filter(is_segment).collect();
    segments.sort();
    assert!(segments.len() > 2, "{segments:?}");
    for segment in &segments[..2] {
        let name = segment.file_name().unwrap().to_str().unwrap();
        let bytes = fs::read(segment).unwrap();
        fs::write(segment, &bytes[..10_000]).unwrap();
        let message = refused(directory.path(), &small);
        assert!(message.contains(name), "{message}");
        fs::remove_file(segment).unwrap();
        refused(directory.path(), &small);
        freshet_base::private::write(segment, &bytes).unwrap();
    }
    let node = start(directory.path(), &small);
    assert_eq!(missing(&connect(&node), &marks), []);
}

/// The disk goes away under the node's feet.
#[test]
fn a_log_that_fails_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(&directory.path().join("a"), &["--log-segment-bytes", "65536"]);
    let client = connect(&node);
    create_journal(&client);
    while let Err(cause) = fs::remove_dir_all(directory.path().join("a")) {
        // The node has made another segment in between.
        assert_eq!(cause.kind(), std::io::ErrorKind::DirectoryNotEmpty);
    }
    let refused = (1..).find(|sequence| write(&client, 1, *sequence, SOON).is_err());
    wait_for_message(&node, "the log has failed");
    let messages = node.messages();
    let line = messages.lines().find(|line| line.contains("the log has failed")).unwrap();
    assert!(line.contains(" ERROR ") && line.contains("cause=") && refused.is_some(), "{line}");
}

/// The file of the log's buffer is made new at each start: in the place of its own, and of no
/// other.
#[test]
fn a_file_that_is_no_log_buffer_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let file = path("named");
    for text in ["precious", &"precious ".repeat(10_000)] {
        fs::write(&file, text).unwrap();
        for domain in ["pmem", "file"] {
            let more = ["--domain", domain, "--log-buffer-file", file.to_str().unwrap()];
            let message = refused(&path(domain), &more);
            assert!(message.contains(file.to_str().unwrap()) && message.contains("not a log buffer"), "{message}");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }
    // An empty one is taken, and one's own.
    fs::write(&file, "").unwrap();
    let more = ["--domain", "pmem", "--log-buffer-file", file.to_str().unwrap()];
    for _ in 0..2 {
        drop(start(&path("pmem"), &more));
    }
    let buffer = fs::read(&file).unwrap();
    let message = refused(&path("another"), &more);
    assert!(message.contains(file.to_str().unwrap()) && message.contains("not a log buffer of this node"), "{message}");
    assert!(fs::read(&file).unwrap() == buffer);
    drop(start(&path("pmem"), &more));
}

#[test]
fn a_full_disk_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("disk");
    fs::create_dir(&data).unwrap();
    // A file system of its own, in a namespace of its own, that a copy is made of before it goes.
    let probe = Command::new("unshare").args(["-rm", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skip(Missing::Tool, "a full disk", "this user cannot mount a small file system");
    }
    let (disk, copy) = (data.display(), directory.path().join("copy"));
    let text = format!(
        "#!/bin/sh\nexec unshare -rm sh -c 'mount -t tmpfs -o size=4m none {disk} || exit 77\n\
         {} \"$@\"\nresult=$?\ncp -r {disk} {}\nexit $result' sh \"$@\"\n",
        program().display(),
        copy.display()
    );
    let script = common::script(directory.path(), &text);
    let small = ["--log-segment-bytes", "1048576"];
    let mut node = match NodeProcess::start(&script, flags(&data.join("log"), &small), SOON) {
        Ok(node) => node,
        Err(refusal) => {
            assert!(refusal.to_string().contains("exit status: 77"), "{refusal}");
            return skip(Missing::Tool, "a full disk", "this user cannot mount a small file system");
        }
    };
    let client = connect(&node);
    create_journal(&client);
    let writer = Writer::start(connect(&node), 1);
    wait_until(&node, "the log waits for room", |status| status["log_waits"].is_string());
    let common::Written { acknowledged, open, refused } = writer.stop();
    assert!(acknowledged.len() > 100 && open.is_empty(), "{} acknowledged, {open:?}", acknowledged.len());
    let waits = |(_, why): &(Mark, String)| why.contains("waits for room") && why.contains("try again");
    assert!(!refused.is_empty() && refused.iter().all(waits), "{refused:?}");
    // Those who only read are still served: what is here is here.
    assert!(client.status(SOON).is_ok());
    // The script is not the node: it is the end of its input that ends it.
    let status = node.stop_by_input(SOON).unwrap();
    assert!(status.success(), "nothing is open: what could not be written was refused and rolled back");
    let messages = node.messages();
    assert!(
        messages.lines().filter(|line| line.contains(" WARN  log: the log waits for room")).count() == 1,
        "{messages}"
    );
    assert!(!messages.contains(" ERROR ") && messages.contains("there is little room on the disk"), "{messages}");
    drop(node);
    let node = start(&copy.join("log"), &small);
    let client = connect(&node);
    assert_eq!(missing(&client, &acknowledged), []);
    write(&client, 2, 1, SOON).unwrap();
}

#[test]
fn absurd_values_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    for (options, text) in [
        (["--log-segment-bytes", "5"], "segment-bytes"),
        (["--pin", "4000000"], "4000000"),
        (["--pin", "1000"], "1000"),
    ] {
        let message = refused(&directory.path().join("data"), &options);
        assert!(message.contains(text), "{options:?}: {message}");
    }
    assert!(!directory.path().join("data").exists(), "nothing is made before all is understood");
}
