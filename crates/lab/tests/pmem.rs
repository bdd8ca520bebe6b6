//! kill -9 loses no acknowledged commit with the log buffer in mapped memory, either.
//!
//! Anywhere, the buffer is an ordinary file. With FRESHET_DAX the temporary directory must be on a
//! DAX file system, and the nodes must find that out. `tests/vm/pmem` runs all of it in a virtual
//! machine, and then the last two tests, between which that stops.

#[path = "../../freshet/tests/common/mod.rs"]
mod common;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use common::{SOON, Writer, assert_same_state, connect, create_journal, in_sync, missing, random, status, wait_until};
use freshet::children::NodeProcess;
use freshet_base::Consent;
use freshet_log::persist::Method;
use freshet_testing::available;
use freshet_workloads::journal::Mark;

/// Those that this processor has.
fn methods() -> Vec<Method> {
    available("nodes that persist", Method::ALL, |method| method.is_available())
}

fn start(directory: &Path, method: Method, force_fence: &str) -> NodeProcess {
    start_with(directory, method, force_fence, &[])
}

fn start_with(directory: &Path, method: Method, force_fence: &str, others: &[&str]) -> NodeProcess {
    let method = method.to_string();
    let more = [
        ["--domain", "pmem"],
        ["--log-group-commit", "passive"],
        ["--log-force-fence", force_fence],
        ["--log-persist-method", &method],
        ["--log-buffer-bytes", "524288"],
        ["--log-batch-bytes", "65536"],
    ];
    let node = common::start(directory, &[more.as_flattened(), others].concat());
    wait_for_medium(&node, "the log buffer", &method, directory);
    node
}

/// Blocks until a node has logged what lies under it.
fn wait_for_medium(node: &NodeProcess, what: &str, method: &str, directory: &Path) {
    // It logs that before it is ready, but by another way.
    let deadline = Instant::now() + common::SOON;
    while !node.messages().contains("in persistent memory") {
        assert!(Instant::now() < deadline, "it does not say what lies under its buffer: {}", node.messages());
        std::thread::sleep(Duration::from_millis(1));
    }
    let (messages, dax) = (node.messages(), format!("{what} is in persistent memory method={method}"));
    if std::env::var_os("FRESHET_DAX").is_some() {
        assert!(messages.contains(&dax), "{} is not on a DAX file system: {messages}", directory.display());
    }
}

/// How a primary writes into a mirror's memory.
const FABRICS: [&str; 2] = ["tcp", "shm"];

/// A primary whose commits wait for its mirror, with its log in files.
fn fed(directory: &Path, fabric: &str) -> NodeProcess {
    let safe = ["--safety", "very-safe", "--log-buffer-bytes", "1048576"];
    common::start(&directory.join("primary"), &[&safe[..], &["--fabric-kind", fabric]].concat())
}

/// A mirror with its memory in files.
fn mirror(directory: &Path, fabric: &str, method: Method, upstream: &str) -> NodeProcess {
    let (memory, method) = (directory.join("memory"), method.to_string());
    let more = [
        ["--join", upstream],
        ["--fabric-kind", fabric],
        ["--domain", "pmem"],
        ["--log-persist-method", &method],
        ["--log-buffer-bytes", "1048576"],
        ["--mirror-bytes", "50331648"],
        ["--mirror-undo-bytes", "4194304"],
        ["--mirror-directory-bytes", "1048576"],
        ["--mirror-keep-dir", memory.to_str().unwrap()],
    ];
    let node = common::start(&directory.join("mirror"), more.as_flattened());
    wait_for_medium(&node, "this mirror's memory", &method, directory);
    node
}

fn is_whole(mirror: &NodeProcess) {
    wait_until(mirror, "a whole mirror", |status| status["whole"] == true);
}

/// A mirror and its primary are killed at once, and the mirror is all that is left: it has
/// everything.
#[test]
fn a_killed_mirror_comes_back_with_everything_acknowledged() {
    let mut random = random();
    for (fabric, method) in FABRICS.into_iter().zip(methods().into_iter().cycle().skip(1)) {
        let directory = tempfile::tempdir().unwrap();
        let mut primary = fed(directory.path(), fabric);
        let upstream = primary.ready().listen.clone();
        let mut of_primary = mirror(directory.path(), fabric, method, &upstream);
        wait_until(&primary, "a mirror in sync", |status| in_sync(status) == 1);
        create_journal(&connect(&primary));
        let writer = Writer::start(connect(&primary), 1);
        writer.wait_for(random.within(50, 2000));
        is_whole(&of_primary);
        of_primary.kill();
        let mut of_primary = mirror(directory.path(), fabric, method, &upstream);
        writer.wait_for(writer.count() + random.within(50, 2000));
        is_whole(&of_primary);
        primary.kill();
        of_primary.kill();
        drop((primary, of_primary));
        let acknowledged = writer.join().acknowledged;
        let alone = mirror(directory.path(), fabric, method, &upstream);
        assert!(alone.messages().contains("finds the memory that it had"), "{}", alone.messages());
        // It cannot know that its primary did not continue without it.
        let client = connect(&alone);
        client.promote(Consent::Loss, SOON).unwrap();
        assert_eq!(missing(&client, &acknowledged), [], "{fabric}, {method}");
        println!("mirror by {fabric}, {method}: {} marks acknowledged, none missing after 3 kills", acknowledged.len());
    }
}

#[test]
fn a_killed_primary_comes_back_with_everything_acknowledged() {
    let mut random = random();
    for method in methods() {
        for force_fence in ["membarrier", "signal"] {
            let directory = tempfile::tempdir().unwrap();
            let mut acknowledged: Vec<Mark> = Vec::new();
            // Few marks stay in the buffer, many go through it several times.
            for (round, marks) in (0..).zip([random.within(1, 100), random.within(5_000, 10_000)]) {
                let mut node = start(directory.path(), method, force_fence);
                let client = connect(&node);
                create_journal(&client);
                assert_eq!(missing(&client, &acknowledged), [], "{method}, {force_fence}, before round {round}");
                let writers = [1, 2].map(|number| Writer::start(connect(&node), round * 10 + number));
                writers[0].wait_for(marks);
                node.kill();
                for writer in writers {
                    let written = writer.join();
                    assert!(written.refused.is_empty(), "{:?}", written.refused);
                    acknowledged.extend(written.acknowledged);
                }
            }
            let node = start(directory.path(), method, force_fence);
            assert_eq!(missing(&connect(&node), &acknowledged), [], "{method}, {force_fence}");
            println!("{method}, {force_fence}: {} marks acknowledged, none missing after 2 kills", acknowledged.len());
            assert!(status(&node)["log_failure"].is_null());
        }
    }
}

/// Primary and standby, both with their buffers in mapped memory. The standby is killed and comes
/// back; then the primary is killed, and the standby takes its place in that memory, with the old
/// one as its standby; then both are killed at once.
#[test]
fn a_kill_of_a_primary_or_its_standby_loses_nothing_acknowledged() {
    let mut random = random();
    for (number, method) in methods().into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let start = |name: &str, more: &[&str]| {
            let upon_replay = if number % 2 == 0 { "true" } else { "false" };
            let safe = ["--safety", "very-safe", "--log-persist-upon-replay", upon_replay];
            start_with(&directory.path().join(name), method, "membarrier", &[&safe, more].concat())
        };
        let mut old = start("a", &[]);
        let mut standby = start("b", &["--join", &old.ready().listen]);
        wait_until(&old, "a standby in sync", |status| in_sync(status) == 1);
        create_journal(&connect(&old));
        let writer = Writer::start(connect(&old), 1);
        writer.wait_for(random.within(50, 3000));
        standby.kill();
        drop(standby);
        if number % 2 == 1 {
            // For a while it persists in files, which have first to get what its buffer holds.
            let safe = ["--safety", "very-safe", "--join", &old.ready().listen];
            let mut standby = common::start(&directory.path().join("b"), &safe);
            wait_until(&old, "the standby in sync, with files", |status| in_sync(status) == 1);
            writer.wait_for(writer.count() + random.within(50, 500));
            standby.kill();
        }
        let mut standby = start("b", &["--join", &old.ready().listen]);
        wait_until(&old, "the standby in sync again", |status| in_sync(status) == 1);
        writer.wait_for(writer.count() + random.within(50, 3000));
        old.kill();
        drop(old);
        let mut acknowledged = writer.join().acknowledged;
        let client = connect(&standby);
        client.promote(Consent::Nothing, SOON).unwrap();
        // Very safe: until the new primary has a standby, it answers no read of what the old one
        // may not have committed.
        let mut back = start("a", &["--join", &standby.ready().listen]);
        wait_until(&standby, "the old primary in sync", |status| in_sync(status) == 1);
        assert_eq!(missing(&client, &acknowledged), [], "{method}: after the failover");
        let writer = Writer::start(connect(&standby), 2);
        writer.wait_for(random.within(50, 3000));
        back.kill();
        standby.kill();
        drop((back, standby));
        acknowledged.extend(writer.join().acknowledged);
        let primary = start("b", &[]);
        let standby = start("a", &["--join", &primary.ready().listen]);
        wait_until(&primary, "a standby in sync at last", |status| in_sync(status) == 1);
        assert_eq!(missing(&connect(&primary), &acknowledged), [], "{method}: after both were killed");
        assert_same_state(&connect(&primary), &connect(&standby));
        println!("{method}: {} marks acknowledged, none missing after 4 kills and a failover", acknowledged.len());
    }
}

/// Marks of each node that are acknowledged before the machine stops. They stay in its buffer, so
/// that nothing else syncs.
const MARKS: u64 = 500;

fn nodes() -> Vec<(Method, NodeProcess)> {
    let directory =
        std::env::var_os("FRESHET_PMEM_DIR").expect("FRESHET_PMEM_DIR names a directory on a DAX file system");
    let start = |method: Method| (method, start(&Path::new(&directory).join(method.to_string()), method, "membarrier"));
    methods().into_iter().map(start).collect()
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
    let mut fed: Vec<_> = FABRICS.map(feeding).into();
    for sequence in 0..MARKS {
        for (primary, _) in &fed {
            common::write(&connect(primary), 1, sequence, common::SOON).unwrap();
        }
    }
    nodes.iter_mut().for_each(|(_, node)| node.kill());
    for (primary, mirror) in &mut fed {
        mirror.kill();
        primary.kill();
    }
}

fn place(fabric: &str) -> (std::path::PathBuf, Method) {
    let directory = std::env::var_os("FRESHET_PMEM_DIR").expect("FRESHET_PMEM_DIR names a directory on DAX");
    let method = Method::ALL.into_iter().find(|method| *method != Method::NonTemporal && method.is_available());
    (Path::new(&directory).join(format!("mirror-by-{fabric}")), method.expect("every processor has clflush"))
}

/// A primary and its mirror, which is whole.
fn feeding(fabric: &str) -> (NodeProcess, NodeProcess) {
    let (directory, method) = place(fabric);
    let primary = fed(&directory, fabric);
    let mirror = mirror(&directory, fabric, method, &primary.ready().listen);
    wait_until(&primary, "a mirror in sync", |status| in_sync(status) == 1);
    create_journal(&connect(&primary));
    is_whole(&mirror);
    (primary, mirror)
}

#[test]
#[ignore = "needs a machine that stopped before: tests/vm/pmem"]
fn after_the_machine_stopped() {
    let acknowledged: Vec<Mark> = (0..MARKS).map(|sequence| Mark { client: 1, sequence }).collect();
    for (method, node) in nodes() {
        assert_eq!(missing(&connect(&node), &acknowledged), [], "{method}");
        println!("{method}: {MARKS} marks acknowledged, none missing after the machine had stopped");
    }
    for fabric in FABRICS {
        let (directory, method) = place(fabric);
        // Nothing is left of its primary.
        let mirror = mirror(&directory, fabric, method, "127.0.0.1:1");
        assert!(mirror.messages().contains("finds the memory that it had"), "{}", mirror.messages());
        let client = connect(&mirror);
        client.promote(Consent::Loss, SOON).unwrap();
        assert_eq!(missing(&client, &acknowledged), [], "a mirror by {fabric}");
        println!(
            "mirror by {fabric}, {method}: {MARKS} marks acknowledged, none missing after the machine had stopped"
        );
    }
}
