//! `freshet-lab torture` leaves no process behind, however it ends. What it finds is for `./test`
//! to run.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use freshet_testing::{Missing, skip};

/// How long anything may take before a test gives up.
const SOON: Duration = Duration::from_secs(60);

/// Processes whose command line names something in `directory`, but for `except`.
fn processes(directory: &Path, except: u32) -> Vec<u32> {
    let directory = directory.to_str().unwrap().as_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if pid != except && line.windows(directory.len()).any(|part| part == directory) {
            found.push(pid);
        }
    }
    found
}

/// A torture that has just written a line with `event`.
fn torture(directory: &Path, options: &[&str], event: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshet-lab"));
    command.arg("torture").args(options).arg("--dir");
    let mut child = command.arg(directory).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let happened = lines.any(|line| line.contains(event));
    // It continues to tell its story.
    std::thread::spawn(move || lines.for_each(drop));
    if !happened {
        panic!("it ended before {event}: {:?}", child.wait());
    }
    child
}

/// A torture whose primary has just been stopped.
fn with_a_stopped_node(directory: &Path) -> Child {
    torture(directory, &["--only", "depose", "--fabric", "shm", "--safety", "quorum:2"], "SIGSTOP")
}

#[track_caller]
fn assert_all_end(directory: &Path, except: u32) {
    let deadline = Instant::now() + SOON;
    loop {
        let left = processes(directory, except);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "processes {left:?} are left behind");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nodes_end_with_a_torture_that_is_killed_those_that_stand_still_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut torture = with_a_stopped_node(directory.path());
    assert!(processes(directory.path(), torture.id()).len() >= 3);
    torture.kill().unwrap();
    torture.wait().unwrap();
    assert_all_end(directory.path(), torture.id());
}

/// Their addresses are gone with the cables, whose other ends were the torture's.
#[test]
fn nodes_whose_cables_are_cut_end_with_a_torture_that_is_killed() {
    let probe = Command::new("unshare").args(["--net", "ip", "link"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skip(Missing::Tool, "a torture that cuts cables", "only root can make network namespaces");
    }
    let directory = tempfile::tempdir().unwrap();
    let mut torture = torture(directory.path(), &["--cut", "--only", "cut-primary", "--mirrors", "0"], "is cut from");
    torture.kill().unwrap();
    torture.wait().unwrap();
    assert_all_end(directory.path(), torture.id());
}

#[test]
fn an_interrupted_torture_ends_its_nodes_and_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut torture = with_a_stopped_node(directory.path());
    let asked = Command::new("kill").args(["-INT", &torture.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let status = torture.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{status}");
    assert_all_end(directory.path(), torture.id());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
