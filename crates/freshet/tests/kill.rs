//! kill -9 at any moment loses no acknowledged commit.

mod common;

use std::{collections::HashSet, time::Duration};

use common::{Writer, connect, create_journal, missing, random, start, status};
use freshet_workloads::journal::Mark;

/// Kills, more of them with FRESHET_ROUNDS.
fn rounds() -> u64 {
    std::env::var("FRESHET_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}

#[test]
fn a_killed_primary_comes_back_with_everything_acknowledged() {
    let mut random = random();
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<Mark> = Vec::new();
    let mut torn = 0;
    for round in 0..rounds() {
        let mut node = start(directory.path(), &[]);
        let client = connect(&node);
        create_journal(&client);
        torn += u64::from(!status(&node)["torn_at_start"].is_null());
        assert_eq!(missing(&client, &acknowledged), [], "before round {round}");
        let writers = [1, 2].map(|number| Writer::start(connect(&node), round * 10 + number));
        writers[0].wait_for(random.within(1, 200));
        std::thread::sleep(Duration::from_micros(random.below(100_000)));
        node.kill();
        for writer in writers {
            let written = writer.join();
            assert!(written.refused.is_empty(), "{:?}", written.refused);
            acknowledged.extend(written.acknowledged);
        }
    }
    let node = start(directory.path(), &[]);
    assert_eq!(missing(&connect(&node), &acknowledged), []);
    println!("{} marks acknowledged, {torn} torn tails cut", acknowledged.len());
}

/// Restarts that are themselves killed, while they replay or before.
#[test]
fn a_restart_can_be_killed_too() {
    let mut random = random();
    let directory = tempfile::tempdir().unwrap();
    let mut node = start(directory.path(), &[]);
    create_journal(&connect(&node));
    let writer = Writer::start(connect(&node), 1);
    writer.wait_for(500);
    node.kill();
    let written = writer.join();
    for _ in 0..rounds() {
        let mut command = std::process::Command::new(common::program());
        command.arg("serve").args(common::flags(directory.path(), &[]));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let node = start(directory.path(), &[]);
    let client = connect(&node);
    assert_eq!(missing(&client, &written.acknowledged), []);
    // What was open is there or not, but not in between: the same whenever one looks.
    let open: Vec<Mark> = written.open.iter().map(|(mark, _)| *mark).collect();
    let gone: HashSet<Mark> = missing(&client, &open).into_iter().collect();
    assert_eq!(missing(&client, &open).into_iter().collect::<HashSet<_>>(), gone);
}

#[test]
fn a_clean_end_and_a_restart_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = start(directory.path(), &[]);
    let client = connect(&node);
    create_journal(&client);
    for sequence in 0..100 {
        common::write(&client, 1, sequence, common::SOON).unwrap();
    }
    let (_, hash, records) = client.hash(None, common::SOON).unwrap();
    assert!(node.stop(common::SOON).unwrap().success(), "{}", node.messages());
    let node = start(directory.path(), &[]);
    assert!(status(&node)["torn_at_start"].is_null());
    let (_, again, count) = connect(&node).hash(None, common::SOON).unwrap();
    assert_eq!((again, count), (hash, records));
}
