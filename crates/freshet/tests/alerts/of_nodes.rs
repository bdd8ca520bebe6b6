//! What happens to nodes and their machines.

use std::time::Duration;

use freshet_base::Consent;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::{
    Job,
    common::{SOON, connect, create_journal, in_sync, program, run, start, wait_until, write},
    node,
};
use freshet::children::NodeProcess;

/// A primary and its standby.
fn pair(place: &std::path::Path, more: &[&str]) -> (NodeProcess, NodeProcess) {
    let one = node(&place.join("a"), more);
    let two = node(&place.join("b"), &[&["--join", &one.ready().listen], more].concat());
    wait_until(&one, "it is in sync", |status| in_sync(status) == 1);
    (one, two)
}

#[test]
fn a_standby_dies() {
    let place = tempfile::tempdir().unwrap();
    let (one, mut two) = pair(place.path(), &["--safety", "1-safe"]);
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetStandbyAway");
    job.is_silent("FreshetDegraded");
    two.kill();
    job.wait_for("FreshetStandbyAway");
    job.wait_for("FreshetDegraded");
    let mut both = Job::of(&[&one, &two]);
    both.wait_for("FreshetDown");
    Job::of(&[&one]).is_silent("FreshetDown");
}

#[test]
fn nothing_commits_without_a_standby() {
    let place = tempfile::tempdir().unwrap();
    let (one, mut two) = pair(place.path(), &["--safety", "very-safe"]);
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetBlocked");
    two.kill();
    job.wait_for("FreshetBlocked");
}

#[test]
fn a_standby_hangs() {
    let place = tempfile::tempdir().unwrap();
    let (one, two) = pair(place.path(), &["--safety", "1-safe"]);
    create_journal(&connect(&one));
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetStandbyLags");
    two.pause();
    write(&connect(&one), 1, 1, SOON).unwrap();
    job.wait_for("FreshetStandbyLags");
    two.resume();
}

#[test]
fn the_primary_dies_and_none_takes_over() {
    let place = tempfile::tempdir().unwrap();
    let (mut one, two) = pair(place.path(), &[]);
    let mut job = Job::of(&[&one, &two]);
    job.is_silent("FreshetNoPrimary");
    job.is_silent("FreshetNotFollowing");
    drop(job);
    one.kill();
    let mut job = Job::of(&[&one, &two]);
    job.wait_for("FreshetNoPrimary");
    job.wait_for("FreshetNotFollowing");
    connect(&two).promote(Consent::PrimaryIsGone, SOON).unwrap();
    wait_until(&two, "it leads", |status| status["role"] == "primary");
    job.is_silent("FreshetNoPrimary");
}

/// A copy of a directory is started beside the original.
#[test]
fn two_nodes_lead() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let mut one = node(&path("a"), &[]);
    one.stop(SOON).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").args([path("a"), path("b")]).status().unwrap();
    assert!(copied.success());
    let one = node(&path("a"), &[]);
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetTwoPrimaries");
    let two = node(&path("b"), &[]);
    Job::of(&[&one, &two]).wait_for("FreshetTwoPrimaries");
}

/// Three nodes replace a primary by themselves, two do not.
#[test]
fn failover_lacks_a_node_or_is_in_maintenance() {
    let place = tempfile::tempdir().unwrap();
    let automatic = ["--failover", "automatic"];
    let (one, two) = pair(place.path(), &automatic);
    let mut job = Job::of(&[&one]);
    job.wait_for("FreshetNoAutomaticFailover");
    let join = ["--join", &one.ready().listen];
    let three = start(&place.path().join("c"), &[&join[..], &automatic].concat());
    wait_until(&one, "all count", |status| in_sync(status) == 2 && status["failover"]["lacks"].is_null());
    job.is_silent("FreshetNoAutomaticFailover");
    job.is_silent("FreshetLongMaintenance");
    connect(&one).order_maintenance(Duration::from_secs(600), SOON).unwrap();
    job.wait_for("FreshetLongMaintenance");
    drop((two, three));
}

#[test]
fn a_witness_dies() {
    let place = tempfile::tempdir().unwrap();
    let automatic = ["--failover", "automatic"];
    let (one, two) = pair(place.path(), &automatic);
    let listen = freshet_testing::ports::reserve().unwrap().to_string();
    let directory = place.path().join("w");
    let words = ["--directory", directory.to_str().unwrap(), "--listen", &listen, "--join", &one.ready().listen];
    let mut witness = NodeProcess::start_witness(&program(), words, SOON).unwrap();
    wait_until(&one, "the witness votes", |status| status["witness"]["votes"] == true);
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetWitnessAway");
    witness.kill();
    job.wait_for("FreshetWitnessAway");
    drop(two);
}

/// No file may grow any more, as on a disk that is full.
#[test]
fn the_log_does_not_take_more() {
    let place = tempfile::tempdir().unwrap();
    let one = node(&place.path().join("a"), &[]);
    let client = connect(&one);
    create_journal(&client);
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetLogTrouble");
    let pid = Pid::from_raw(i32::try_from(one.pid()).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: Some(4096), maximum: Some(4096) }).unwrap();
    // It may not commit.
    let _ = write(&client, 1, 1, Duration::from_secs(2));
    job.wait_for("FreshetLogTrouble");
}

#[test]
fn checkpoints_cannot_be_written() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("checkpoints");
    let one = node(&place.path().join("a"), &["--checkpoint-dir", directory.to_str().unwrap()]);
    create_journal(&connect(&one));
    let mut job = Job::of(&[&one]);
    job.is_silent("FreshetCheckpointFails");
    std::fs::rename(&directory, place.path().join("elsewhere")).unwrap();
    std::fs::write(&directory, "a file").unwrap();
    let (code, text) = run(&["checkpoint", &one.ready().address]);
    assert_ne!(code, Some(0), "{text}");
    job.wait_for("FreshetCheckpointFails");
}
