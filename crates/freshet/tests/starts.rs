//! Starts that wait, and starts that must not happen.

mod common;

use std::{fs, io::Read, net::TcpListener, path::Path, time::Duration};

use common::{SOON, flags, program, refused, start};
use freshet::children::Process;

/// Of a cluster of two that may lose one.
const QUORUM: [&str; 4] = ["--safety", "quorum:2", "--standbys", "2"];

/// A node that cannot come back alone: others have to answer first.
fn make(directory: &Path) -> String {
    let node = start(&directory.join("a"), &QUORUM);
    let listen = node.ready().listen.clone();
    let standby = start(&directory.join("b"), &[&QUORUM[..], &["--join", &listen]].concat());
    common::wait_until(&node, "a standby in sync", |status| common::in_sync(status) == 1);
    common::create_journal(&common::connect(&node));
    drop((node, standby));
    listen
}

#[test]
fn a_start_that_waits_for_others_can_be_ended() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path());
    let (mut process, _) = Process::spawn(&program(), flags(&directory.path().join("a"), &QUORUM)).unwrap();
    common::wait_for_message(&process, "waiting for other nodes to answer");
    assert!(process.stop(SOON).unwrap().success(), "{}", process.messages());
}

/// The port of a member that is down is anybody's: what answers there is no member, and no reason
/// to give up.
#[test]
fn a_stranger_at_a_members_address_is_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let listen = make(directory.path());
    let stranger = TcpListener::bind(&listen).unwrap();
    std::thread::spawn(move || {
        for stream in stranger.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 64]);
            // What no TLS begins with.
            let _ = std::io::Write::write_all(&mut stream, b"\x15\x03\x03\x00\x02\x02\x28 and more");
        }
    });
    let more = [&QUORUM[..], &["--join", &listen]].concat();
    let (mut process, _) = Process::spawn(&program(), flags(&directory.path().join("b"), &more)).unwrap();
    let at_least_two_rounds = Duration::from_secs(3);
    let begun = std::time::Instant::now();
    while begun.elapsed() < at_least_two_rounds {
        assert!(process.ended().is_none(), "{}", process.messages());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(process.stop(SOON).unwrap().success(), "{}", process.messages());
}

/// A second authority would split the cluster.
#[test]
fn a_node_without_its_certificate_founds_no_authority() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path());
    let own = directory.path().join("a");
    fs::remove_dir_all(own.join("membership")).unwrap();
    let said = refused(&own, &QUORUM);
    assert!(said.contains("certificate is missing") && said.contains("--join"), "{said}");
    assert!(!own.join("membership").exists());
    let node = start(&own, &[&QUORUM[..], &["--force-reign"]].concat());
    assert_eq!(node.ready().role, "primary");
}
