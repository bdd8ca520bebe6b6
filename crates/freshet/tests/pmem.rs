//! kill -9 loses no acknowledged commit with the log buffer in mapped memory, either.
//!
//! Anywhere, the buffer is an ordinary file. With FRESHET_DAX the temporary directory must be on a DAX file system, and the nodes must find
//! that out. `tests/vm/pmem` runs all of it in a virtual machine, and then the last two tests, between which that stops.

mod common;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use common::{Writer, connect, create_journal, missing, random, status};
use freshet::children::NodeProcess;
use freshet_log::persist::Method;
use freshet_workloads::journal::Mark;

fn start(directory: &Path, method: Method, nudge: &str) -> NodeProcess {
    let method = method.to_string();
    let more = [
        ["--domain", "pmem"],
        ["--log-group-commit", "passive"],
        ["--log-nudge", nudge],
        ["--log-persist-method", &method],
        ["--log-buffer-bytes", "524288"],
        ["--log-batch-bytes", "65536"],
    ];
    let node = common::start(directory, more.as_flattened());
    // It says that before it is ready, but by another way.
    let deadline = Instant::now() + common::SOON;
    while !node.messages().contains("in persistent memory") {
        assert!(Instant::now() < deadline, "it does not say what lies under its buffer: {}", node.messages());
        std::thread::sleep(Duration::from_millis(1));
    }
    let (messages, dax) = (node.messages(), format!("the log buffer is in persistent memory ({method})"));
    if std::env::var_os("FRESHET_DAX").is_some() {
        assert!(messages.contains(&dax), "{} is not on a DAX file system: {messages}", directory.display());
    }
    node
}

#[test]
fn a_killed_primary_comes_back_with_everything_acknowledged() {
    let mut random = random();
    for method in Method::ALL {
        if !method.is_available() {
            println!("skipped: this processor has no {method}");
            continue;
        }
        for nudge in ["membarrier", "signal"] {
            let directory = tempfile::tempdir().unwrap();
            let mut acknowledged: Vec<Mark> = Vec::new();
            // Few marks stay in the buffer, many go through it several times.
            for (round, marks) in (0..).zip([random.within(1, 100), random.within(5_000, 10_000)]) {
                let mut node = start(directory.path(), method, nudge);
                let client = connect(&node);
                create_journal(&client);
                assert_eq!(missing(&client, &acknowledged), [], "{method}, {nudge}, before round {round}");
                let writers = [1, 2].map(|number| Writer::start(connect(&node), round * 10 + number));
                writers[0].wait_for(marks);
                node.kill();
                for writer in writers {
                    let written = writer.join();
                    assert!(written.refused.is_empty(), "{:?}", written.refused);
                    acknowledged.extend(written.acknowledged);
                }
            }
            let node = start(directory.path(), method, nudge);
            assert_eq!(missing(&connect(&node), &acknowledged), [], "{method}, {nudge}");
            println!("{method}, {nudge}: {} marks acknowledged, none missing after 2 kills", acknowledged.len());
            assert!(status(&node)["log_failure"].is_null());
        }
    }
}

/// Marks of each node that are acknowledged before the machine stops. They stay in its buffer, so that nothing else syncs.
const MARKS: u64 = 500;

fn nodes() -> Vec<(Method, NodeProcess)> {
    let directory =
        std::env::var_os("FRESHET_PMEM_DIR").expect("FRESHET_PMEM_DIR names a directory on a DAX file system");
    let start = |method: Method| (method, start(&Path::new(&directory).join(method.to_string()), method, "membarrier"));
    Method::ALL.into_iter().filter(|method| method.is_available()).map(start).collect()
}

#[test]
#[ignore = "needs a machine that stops afterwards: tests/vm/pmem"]
fn before_the_machine_stops() {
    let mut nodes = nodes();
    let clients: Vec<_> = nodes.iter().map(|(_, node)| connect(node)).collect();
    clients.iter().for_each(create_journal);
    for sequence in 0..MARKS {
        for client in &clients {
            common::write(client, 1, sequence, common::SOON).unwrap();
        }
    }
    nodes.iter_mut().for_each(|(_, node)| node.kill());
}

#[test]
#[ignore = "needs a machine that stopped before: tests/vm/pmem"]
fn after_the_machine_stopped() {
    let acknowledged: Vec<Mark> = (0..MARKS).map(|sequence| Mark { client: 1, sequence }).collect();
    for (method, node) in nodes() {
        assert_eq!(missing(&connect(&node), &acknowledged), [], "{method}");
        println!("{method}: {MARKS} marks acknowledged, none missing after the machine had stopped");
    }
}
