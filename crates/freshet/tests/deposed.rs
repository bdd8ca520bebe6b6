//! A primary that stands still in the middle of its work, is succeeded, and continues as if nothing
//! had happened; or that is killed. Where it writes into its standbys' memory itself, it still has
//! that mapped. No log is damaged by it, what was acknowledged is everywhere, and all nodes hold
//! the same.
//!
//! A few rounds each; FRESHET_ROUNDS=200 for as many, FRESHET_SEED for the same ones.

mod common;

use std::{path::Path, process::Command};

use common::{
    SOON, Writer, assert_same_state, connect, create_journal, in_sync, missing, program, random, start, wait_until,
};
use freshet::children::NodeProcess;
use freshet_base::Consent;
use freshet_workloads::journal::Mark;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn rounds(otherwise: u64) -> u64 {
    std::env::var("FRESHET_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(otherwise)
}

/// What `freshet inspect` says of a node's log, which is whole.
fn inspect(directory: &Path, when: &str) {
    let output = Command::new(program()).args(["inspect", "log"]).arg(directory).arg("--summary").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("no damage"), "{when}, {}: {text}", directory.display());
}

fn load(node: &NodeProcess, first: u64) -> Vec<Writer> {
    (first..first + 3).map(|number| Writer::start(connect(node), number)).collect()
}

fn wait_for(writers: &[Writer], marks: u64) {
    let from: Vec<u64> = writers.iter().map(Writer::count).collect();
    writers.iter().zip(from).for_each(|(writer, from)| writer.wait_for(from + marks));
}

/// Three nodes take turns: in each round the primary is stopped, and continued when another leads
/// and works, or is killed; then it comes back as a standby.
fn turns(rounds: u64, more: &[&str], kills: bool) {
    let mut random = random();
    let directory = tempfile::tempdir().unwrap();
    let flags = [&["--safety", "quorum:2", "--log-buffer-bytes", "1048576"], more].concat();
    let path = |index: usize| directory.path().join(NAMES[index]);
    let join = |index: usize, primary: &NodeProcess| {
        start(&path(index), &[&["--join", &primary.ready().listen], &flags[..]].concat())
    };
    let first = start(&path(0), &flags);
    let others = [1, 2].map(|index| join(index, &first));
    let mut nodes: Vec<Option<NodeProcess>> = [first].into_iter().chain(others).map(Some).collect();
    let mut acknowledged: Vec<Mark> = Vec::new();
    let mut leads = 0;
    create_journal(&connect(nodes[0].as_ref().unwrap()));
    for round in 0..rounds {
        let when = format!("round {round}");
        let heir = (leads + random.within(1, 2) as usize) % 3;
        let mut old = nodes[leads].take().unwrap();
        wait_until(&old, "two standbys in sync", |status| in_sync(status) == 2);
        let writers = load(&old, round * 10);
        wait_for(&writers, random.within(1, 400));
        let killed = kills && random.within(0, 1) == 0;
        if killed {
            old.kill()
        } else {
            old.pause()
        }
        let new = nodes[heir].as_ref().unwrap();
        let client = connect(new);
        client.promote(Consent::Nothing, SOON).unwrap();
        let next = load(new, round * 10 + 5);
        wait_for(&next, random.within(1, 200));
        if !killed {
            old.resume();
        }
        wait_for(&next, random.within(1, 200));
        acknowledged.extend(writers.into_iter().flat_map(|writer| writer.join().acknowledged));
        acknowledged.extend(next.into_iter().flat_map(|writer| writer.stop().acknowledged));
        // It starts again by itself, and follows; whether it has come so far or not, it may be
        // killed.
        nodes[leads] = if killed || random.within(0, 1) == 0 {
            old.kill();
            drop(old);
            Some(join(leads, new))
        } else {
            Some(old)
        };
        let new = nodes[heir].as_ref().unwrap();
        wait_until(new, "everybody in sync again", |status| in_sync(status) == 2);
        for (index, node) in nodes.iter().enumerate() {
            let reader = connect(node.as_ref().unwrap());
            if index != heir {
                assert_same_state(&client, &reader);
            }
            assert_eq!(missing(&reader, &acknowledged), [], "{when}: at node {}", NAMES[index]);
            inspect(&path(index), &when);
        }
        leads = heir;
    }
    println!("{rounds} rounds, {} marks acknowledged, none missing", acknowledged.len());
}

#[test]
fn over_tcp() {
    turns(rounds(2), &["--fabric-kind", "tcp"], false);
}

#[test]
fn over_shared_memory() {
    turns(rounds(3), &["--fabric-kind", "shm"], false);
}

#[test]
fn over_shared_memory_where_what_was_read_back_counts() {
    let more = ["--fabric-kind", "shm", "--fabric-appliance", "true", "--domain", "pmem"];
    turns(rounds(4), &more, true);
}
