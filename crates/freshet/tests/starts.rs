//! Starts that wait, and starts that must not happen.

mod common;

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    net::TcpListener,
    path::Path,
    time::{Duration, Instant},
};

use common::{SOON, flags, program, refused, start};
use freshet::children::Process;

/// Of a cluster of three that may lose one.
const QUORUM: [&str; 2] = ["--safety", "quorum:2"];

/// A node that cannot come back alone: others have to answer first.
fn make(directory: &Path) -> String {
    let node = start(&directory.join("a"), &QUORUM);
    let listen = node.ready().listen.clone();
    let standbys = ["b", "c"].map(|name| start(&directory.join(name), &[&QUORUM[..], &["--join", &listen]].concat()));
    common::wait_until(&node, "both standbys in sync", |status| common::in_sync(status) == 2);
    common::create_journal(&common::connect(&node));
    drop((node, standbys));
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

/// It waits for a node that is started at the same moment, for ten seconds, and would fail then.
#[test]
fn a_node_that_waits_for_the_one_to_join_can_be_ended() {
    let directory = tempfile::tempdir().unwrap();
    let nobody = freshet_testing::ports::reserve().unwrap().to_string();
    let waits = "cannot reach the node to join yet";
    let path = directory.path().to_str().unwrap();
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (runs, words) in [
        ("serve", flags(directory.path(), &["--join", &nobody])),
        ("witness", words(&["--directory", path, "--join", &nobody])),
        ("archive", words(&["--node", &nobody, path])),
    ] {
        let (mut process, _) = Process::spawn_as(runs, &program(), words).unwrap();
        common::wait_for_message(&process, waits);
        assert!(process.stop(SOON).unwrap().success(), "{}", process.messages());
    }
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
    let refusal = refused(&own, &QUORUM);
    assert!(refusal.contains("certificate is missing") && refusal.contains("--join"), "{refusal}");
    assert!(!own.join("membership").exists());
    let node = start(&own, &[&QUORUM[..], &["--force-primary"]].concat());
    assert_eq!(node.ready().role, "primary");
}

/// What is in a directory, but not below it, by name.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let named = entries.filter(|path| path.is_file()).map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(&path).unwrap())
    });
    named.collect()
}

fn is_log(name: &str) -> bool {
    name.ends_with(".segment") || name == "watermark"
}

/// Puts these files into the directory, in place of all others of the same kind.
fn put<'f>(directory: &Path, there: impl Fn(&str) -> bool, files: impl IntoIterator<Item = (&'f String, &'f Vec<u8>)>) {
    for name in self::files(directory).keys().filter(|name| there(name)) {
        fs::remove_file(directory.join(name)).unwrap();
    }
    for (name, bytes) in files.into_iter().filter(|(name, _)| there(name)) {
        freshet_base::private::write(&directory.join(name), bytes).unwrap();
    }
}

/// The node names the part that is missing or old, does not start, and has changed nothing.
fn does_not_fit(directory: &Path, more: &[&str], text: &str) {
    let before = files(directory);
    let refusal = refused(directory, more);
    assert!(refusal.contains("do not belong together") && refusal.contains(text), "{refusal}");
    assert!(refusal.contains("freshet status ADDRESS") && !refusal.contains("empty"), "{refusal}");
    assert!(files(directory) == before, "{refusal}");
}

/// A standby whose segments are gone, but not its control file, would vote with an empty log, and
/// the cluster would be cut to nothing.
#[test]
fn a_node_whose_segments_are_gone_does_not_vote() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let two = ["--safety", "2-safe", "--least-in-sync", "1", "--standby-timeout-ms", "500"];
    let primary = start(&path("p"), &two);
    let listen = primary.ready().listen.clone();
    let join = |to: &str| [&two[..], &["--join", to]].concat().iter().map(ToString::to_string).collect::<Vec<_>>();
    let joined = |name: &str, to: &str| {
        let flags = join(to);
        start(&path(name), &flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (first, second) = (joined("s1", &listen), joined("s2", &listen));
    common::wait_until(&primary, "two standbys in sync", |status| common::in_sync(status) == 2);
    common::create_journal(&common::connect(&primary));
    drop(second);
    common::wait_until(&primary, "one standby in sync", |status| common::in_sync(status) == 1);
    let load = common::Writer::start(common::connect(&primary), 1);
    load.wait_for(50);
    drop((primary, first));
    let written = load.join();
    assert!(written.acknowledged.len() >= 50);
    let second = joined("s2", &listen);
    let to_second = join(&second.ready().listen);
    let to_second: Vec<_> = to_second.iter().map(String::as_str).collect();
    let whole = files(&path("s1"));
    put(&path("s1"), |name| name.ends_with(".segment"), []);
    does_not_fit(&path("s1"), &to_second, "holds no segment of the log");
    put(&path("s1"), |name| name.ends_with(".segment"), &whole);
    // Whole, it is what the primary needs to come back.
    let first = joined("s1", &listen);
    let primary = start(&path("p"), &[&two[..], &["--listen", &listen]].concat());
    common::wait_until(&primary, "a standby in sync", |status| common::in_sync(status) >= 1);
    assert_eq!(common::missing(&common::connect(&primary), &written.acknowledged), []);
    drop(first);
}

/// Each part of a directory at another time than the rest, on a node that was stopped or killed.
#[test]
fn parts_of_different_times_do_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node");
    let safety = ["--safety", "1-safe"];
    let mut node = start(&path, &safety);
    common::create_journal(&common::connect(&node));
    assert!(node.stop(SOON).unwrap().success());
    let old = files(&path);
    let node = start(&path, &safety);
    let load = common::Writer::start(common::connect(&node), 1);
    load.wait_for(20);
    let begun = Instant::now();
    // It is not stopped, so it is to be noted while it runs.
    let reached = || {
        let control = fs::read_to_string(path.join("control")).unwrap();
        control.lines().find_map(|line| line.strip_prefix("reached ")?.parse::<u64>().ok()).unwrap()
    };
    let noted = reached();
    while reached() == noted {
        assert!(begun.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(node);
    let written = load.join();
    let new = files(&path);
    put(&path, is_log, &old);
    does_not_fit(&path, &safety, "is older than the control file");
    put(&path, is_log, &new);
    put(&path, |name| name == "control", &old);
    does_not_fit(&path, &safety, "the control file is older than the log");
    put(&path, |name| name == "control", &new);
    put(&path, |name| name == "watermark", []);
    let refusal = refused(&path, &safety);
    assert!(refusal.contains("watermark is missing") && !refusal.contains("empty"), "{refusal}");
    put(&path, |name| name == "watermark", &new);
    let node = start(&path, &safety);
    assert_eq!(common::missing(&common::connect(&node), &written.acknowledged), []);
}
