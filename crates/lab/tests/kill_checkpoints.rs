//! kill -9 of nodes that write checkpoints: with several streams, by epochs, with the log buffer in
//! (emulated) persistent memory. Every acknowledged commit is there afterwards, nothing is there
//! twice, and a checkpoint that was told to be installed counts.

#[path = "../../freshet/tests/common/mod.rs"]
mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use common::{
    SOON, Writer, assert_same_state, connect, create_journal, flags, in_sync, missing, program, random, start, status,
    wait_until, write,
};
use freshet::children::NodeProcess;
use freshet_workloads::{journal::Mark, random::Random};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// Kills, more of them with FRESHET_ROUNDS.
fn rounds() -> u64 {
    std::env::var("FRESHET_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

/// Checkpoints as often as a node can write them: when the log has grown by 16 MiB, or when asked.
const OFTEN: [&str; 10] = [
    "--checkpoint-interval-s",
    "1",
    "--checkpoint-log-bytes",
    "1",
    "--checkpoint-cpu-percent",
    "100",
    "--checkpoint-keep-log-bytes",
    "0",
    "--log-segment-bytes",
    "262144",
];

/// A little more than 16 MiB of log: a checkpoint begins by itself before all of it is there.
fn load(node: &NodeProcess) {
    let client = connect(node);
    client.run("CREATE TABLE load (id bigint PRIMARY KEY, text text)", SOON).unwrap();
    for first in (0..40_000).step_by(2_000) {
        let rows: Vec<_> = (first..first + 2_000).map(|id| format!("({id}, repeat('x', 400))")).collect();
        client.run(&format!("INSERT INTO load VALUES {}", rows.join(", ")), SOON).unwrap();
    }
}

/// How many records there are with an empty journal, with or without this population.
fn records(loaded: bool) -> u64 {
    static RECORDS: OnceLock<[u64; 2]> = OnceLock::new();
    RECORDS.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let node = start(directory.path(), &[]);
        let client = connect(&node);
        create_journal(&client);
        let (_, _, empty) = client.hash(None, SOON).unwrap();
        load(&node);
        [empty, client.hash(None, SOON).unwrap().2]
    })[usize::from(loaded)]
}

/// What was ever sent to a node, and what is known of it.
#[derive(Default)]
struct Book {
    /// Whether it must be there; open while nobody knows.
    marks: BTreeMap<Mark, Option<bool>>,
    /// The newest checkpoint that was told to be installed.
    installed: u64,
    /// Whether there is something beside the journal.
    loaded: bool,
}

impl Book {
    fn add(&mut self, written: common::Written) {
        assert!(written.refused.is_empty(), "{:?}", written.refused);
        self.marks.extend(written.acknowledged.into_iter().map(|mark| (mark, Some(true))));
        self.marks.extend(written.open.into_iter().map(|(mark, _)| (mark, None)));
    }

    /// What is known must be so. What is open is decided now, for good. And there is nothing else.
    fn check(&mut self, node: &NodeProcess, context: &str) {
        let client = connect(node);
        let all: Vec<Mark> = self.marks.keys().copied().collect();
        let gone: std::collections::HashSet<Mark> = missing(&client, &all).into_iter().collect();
        let mut there = 0;
        for (mark, known) in &mut self.marks {
            let found = !gone.contains(mark);
            assert_eq!(*known.get_or_insert(found), found, "{context}: {mark:?}");
            there += u64::from(found);
        }
        let (_, _, count) = client.hash(None, SOON).unwrap();
        assert_eq!(count, records(self.loaded) + there, "{context}: {there} marks are there");
        let checkpoint = &status(node)["checkpoint"];
        assert!(checkpoint["start"].as_u64().unwrap_or(0) >= self.installed, "{context}: {checkpoint}");
    }
}

/// Asks for a checkpoint, kills the node while it is at work or soon after, and returns where the
/// checkpoint begins if it was told to be installed.
fn checkpoint_and_kill(node: &mut NodeProcess, pause: Duration) -> Option<u64> {
    let client = connect(node);
    let asking = std::thread::spawn(move || client.checkpoint(false, SOON));
    std::thread::sleep(pause);
    node.kill();
    asking.join().unwrap().ok().map(|(start, ..)| start.0)
}

/// Load, a checkpoint, kill -9, again and again on one directory.
fn killed_again_and_again(name: &str, more: &[&str], loaded: bool, random: &mut Random) {
    let directory = tempfile::tempdir().unwrap();
    let flags = [&OFTEN[..], more].concat();
    let mut book = Book { loaded, ..Book::default() };
    let (mut reported, mut torn) = (0, 0);
    for round in 0..rounds() {
        let mut node = start(directory.path(), &flags);
        let context = format!("{name}, round {round}");
        torn += u64::from(!status(&node)["torn_at_start"].is_null());
        if round == 0 {
            create_journal(&connect(&node));
        } else {
            book.check(&node, &context);
        }
        let writers = [1, 2].map(|number| Writer::start(connect(&node), round * 10 + number));
        if round == 0 && loaded {
            // A checkpoint begins by itself on the way.
            load(&node);
            std::thread::sleep(Duration::from_micros(random.below(500_000)));
            node.kill();
        } else {
            writers[0].wait_for(random.within(1, 500));
            // In every other round it may well come to its end.
            let longest = if round % 2 == 0 {
                60_000
            } else if loaded {
                1_500_000
            } else {
                400_000
            };
            let pause = Duration::from_micros(random.below(longest));
            if let Some(start) = checkpoint_and_kill(&mut node, pause) {
                book.installed = book.installed.max(start);
                reported += 1;
            }
        }
        writers.into_iter().for_each(|writer| book.add(writer.join()));
    }
    let mut node = start(directory.path(), &flags);
    book.check(&node, name);
    // Once more, with nothing torn, and from a checkpoint that nobody disturbed.
    book.installed = connect(&node).checkpoint(false, SOON).unwrap().0.0;
    write(&connect(&node), 99, 1, SOON).unwrap();
    book.marks.insert(Mark { client: 99, sequence: 1 }, Some(true));
    assert!(node.stop(SOON).unwrap().success(), "{}", node.messages());
    let node = start(directory.path(), &flags);
    assert!(status(&node)["torn_at_start"].is_null());
    book.check(&node, name);
    println!("{name}: {} marks, {reported} checkpoints reported, {torn} torn tails", book.marks.len());
}

#[test]
fn one_stream() {
    killed_again_and_again("one stream", &[], true, &mut random());
}

#[test]
fn three_streams() {
    killed_again_and_again("three streams", &["--log-streams", "3"], false, &mut random());
}

#[test]
fn three_streams_divided_by_pages() {
    let pages = ["--log-streams", "3", "--log-divide-by", "page", "--log-page-records", "8"];
    killed_again_and_again("pages", &pages, false, &mut random());
}

#[test]
fn epochs() {
    let epochs = ["--log-streams", "2", "--log-group-commit", "epoch", "--log-epoch-ms", "5"];
    killed_again_and_again("epochs", &epochs, false, &mut random());
}

#[test]
fn persistent_memory() {
    let mut random = random();
    let force_fence = ["membarrier", "signal"][random.below(2) as usize];
    let pmem = ["--domain", "pmem", "--log-group-commit", "passive", "--log-force-fence", force_fence];
    killed_again_and_again(
        "persistent memory",
        &[&pmem[..], &["--log-buffer-bytes", "1048576"]].concat(),
        true,
        &mut random,
    );
}

/// A standby that begins from its primary's checkpoint and is killed on the way, at any time.
#[test]
fn a_standby_that_is_killed_while_it_begins_from_a_checkpoint() {
    let mut random = random();
    let directory = tempfile::tempdir().unwrap();
    let streams = ["--log-streams", "2", "--safety", "1-safe"];
    let flags_of = [&OFTEN[..], &streams].concat();
    let primary = start(&directory.path().join("primary"), &flags_of);
    create_journal(&connect(&primary));
    load(&primary);
    let client = connect(&primary);
    let (begin, ..) = client.checkpoint(false, SOON).unwrap();
    let writer = Writer::start(connect(&primary), 1);
    let standby = directory.path().join("standby");
    let join = [&flags_of[..], &["--join", &primary.ready().listen]].concat();
    for _ in 0..2 * rounds() {
        let mut command = Command::new(program());
        command.arg("node").args(flags(&standby, &join)).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(300_000)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let node = start(&standby, &join);
    wait_until(&primary, "the standby in sync", |status| in_sync(status) == 1);
    let written = writer.stop();
    assert_same_state(&client, &connect(&node));
    assert_eq!(missing(&connect(&node), &written.acknowledged), []);
    assert!(status(&node)["checkpoint"]["start"].as_u64().unwrap() >= begin.0);
}

/// A service that starts such a node again may say nothing of joining. It leads nothing, least of
/// all a second time what another node leads.
#[test]
fn a_node_that_is_killed_while_it_begins_leads_no_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let primary = start(&directory.path().join("primary"), &OFTEN);
    load(&primary);
    connect(&primary).checkpoint(false, SOON).unwrap();
    for delay in 0..20 {
        let data = directory.path().join(delay.to_string());
        let mut command = Command::new(program());
        let join = [&OFTEN[..], &["--join", &primary.ready().listen]].concat();
        command.arg("node").args(flags(&data, &join)).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + SOON;
        while !data.join("checkpoints").exists() {
            assert!(Instant::now() < deadline, "it does not begin");
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(2 * delay));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut again = flags(&data, &OFTEN);
        again.retain(|flag| flag != "--new-cluster");
        if data.join("joining").exists()
            && let Ok(node) = NodeProcess::start(&program(), again, SOON)
        {
            assert_ne!(status(&node)["role"], "primary", "{delay}");
        }
    }
}

/// A shell script that runs the node with files of at most this many kilobytes, until somebody
/// lifts that.
fn with_small_files(directory: &Path, kilobytes: u32) -> std::path::PathBuf {
    let limit = kilobytes * 2;
    common::script(directory, &format!("#!/bin/sh\nulimit -S -f {limit}\nexec {} \"$@\"\n", program().display()))
}

/// A checkpoint that runs out of room in the middle of its rows; here of the size that a file may
/// have, since nobody has to mount anything for that. A full disk ends in the same place.
#[test]
fn a_checkpoint_that_runs_out_of_room_is_reported_and_comes_later() {
    let directory = tempfile::tempdir().unwrap();
    let script = with_small_files(directory.path(), 128);
    let data = directory.path().join("data");
    let more = ["--log-segment-bytes", "65536", "--checkpoint-interval-s", "0", "--checkpoint-files", "1"];
    let mut node = NodeProcess::start(&script, flags(&data, &more), SOON).unwrap();
    let client = connect(&node);
    create_journal(&client);
    let (begin, ..) = client.checkpoint(false, SOON).unwrap();
    let writer = Writer::start(connect(&node), 1);
    writer.wait_for(10_000);
    for _ in 0..2 {
        let refused = client.checkpoint(false, SOON).unwrap_err().to_string();
        assert!(refused.contains(".rows") && refused.contains("File too large"), "{refused}");
        let checkpoint = &status(&node)["checkpoint"];
        assert!(checkpoint["failure"].as_str().is_some_and(|why| why.contains("File too large")), "{checkpoint}");
        assert!(checkpoint["under_way"].is_null() && checkpoint["start"] == begin.0, "{checkpoint}");
        // It takes no room.
        assert_eq!(fs::read_dir(data.join("checkpoints")).unwrap().count(), 1);
        writer.wait_for(writer.count() + 1000);
    }
    let pid = Pid::from_raw(i32::try_from(node.pid()).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: None, maximum: None }).unwrap();
    client.checkpoint(false, SOON).unwrap();
    let checkpoint = &status(&node)["checkpoint"];
    assert!(checkpoint["failure"].is_null() && checkpoint["start"].as_u64() > Some(begin.0), "{checkpoint}");
    node.kill();
    let written = writer.join();
    assert!(written.refused.is_empty());
    let again = start(&data, &more);
    assert_eq!(missing(&connect(&again), &written.acknowledged), []);
    assert_eq!(status(&again)["checkpoint"]["start"], checkpoint["start"]);
}
