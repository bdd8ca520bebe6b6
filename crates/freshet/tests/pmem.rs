//! kill -9 loses no acknowledged commit with the log buffer in mapped memory, either.
//!
//! Anywhere, the buffer is an ordinary file. With FRESHET_DAX the temporary directory must be on a DAX file system, and the nodes must find
//! that out. `tests/vm/pmem` runs all of it in a virtual machine, and then the last two tests, between which that stops.

mod common;

use std::{ffi::OsString, path::Path};

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
        ["--log-buffer-bytes", "1048576"],
    ];
    let node = common::start(directory, more.as_flattened());
    let messages = node.messages();
    if std::env::var_os("FRESHET_DAX").is_some() {
        let found = messages.contains(&format!("the log buffer is in persistent memory ({method})"));
        assert!(found, "{} is not on a DAX file system: {messages}", directory.display());
    } else {
        assert!(messages.contains("in persistent memory"), "{messages}");
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
            for (round, marks) in (0..).zip([random.within(1, 100), random.within(10_000, 20_000)]) {
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

/// Marks that are acknowledged before the machine stops.
const BEFORE: u64 = 500;

fn directory_that_stays() -> OsString {
    std::env::var_os("FRESHET_PMEM_DIR").expect("FRESHET_PMEM_DIR names a directory on a DAX file system")
}

#[test]
#[ignore = "needs a machine that stops afterwards: tests/vm/pmem"]
fn before_the_machine_stops() {
    for method in Method::ALL.into_iter().filter(|method| method.is_available()) {
        let directory = Path::new(&directory_that_stays()).join(method.to_string());
        let mut node = start(&directory, method, "membarrier");
        let client = connect(&node);
        create_journal(&client);
        for sequence in 0..BEFORE {
            common::write(&client, 1, sequence, common::SOON).unwrap();
        }
        node.kill();
    }
}

#[test]
#[ignore = "needs a machine that stopped before: tests/vm/pmem"]
fn after_the_machine_stopped() {
    for method in Method::ALL.into_iter().filter(|method| method.is_available()) {
        let directory = Path::new(&directory_that_stays()).join(method.to_string());
        let node = start(&directory, method, "membarrier");
        let acknowledged: Vec<Mark> = (0..BEFORE).map(|sequence| Mark { client: 1, sequence }).collect();
        assert_eq!(missing(&connect(&node), &acknowledged), [], "{method}");
        println!("{method}: {BEFORE} marks acknowledged, none missing after the machine had stopped");
    }
}
