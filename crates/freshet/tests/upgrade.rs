//! An upgrade node by node, with two programs: this one, and the one that the feature
//! `next-release` makes its successor. `tests/upgrade/run` builds both.

mod common;

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use common::{SOON, flags, missing, program, run, status};
use freshet::{
    children::{NodeProcess, SpawnError},
    client::Client,
    sql_client::Session,
};
use freshet_workloads::journal::Mark;
use serde_json::Value;

/// A node, and the file of its program, which is exchanged.
struct Node {
    process: NodeProcess,
    program: PathBuf,
    directory: PathBuf,
}

/// Puts `release` in the place of a node's program, as a package does.
fn install(release: &Path, program: &Path) {
    let beside = program.with_extension("new");
    let _ = fs::remove_file(&beside);
    if fs::hard_link(release, &beside).is_err() {
        fs::copy(release, &beside).unwrap();
    }
    fs::rename(&beside, program).unwrap();
}

fn lasting_flags(directory: &Path, more: &[&str]) -> Vec<String> {
    flags(directory, &[&["--failover", "automatic"], more].concat())
}

impl Node {
    fn start(root: &Path, name: &str, release: &Path, more: &[&str]) -> Self {
        let (program, directory) = (root.join(format!("{name}-freshet")), root.join(name));
        install(release, &program);
        let process = NodeProcess::start(&program, lasting_flags(&directory, more), SOON).unwrap();
        Self { process, program, directory }
    }

    fn address(&self) -> &str {
        &self.process.ready().address
    }

    /// What its control file begins with.
    fn format(&self) -> String {
        fs::read_to_string(self.directory.join("control")).unwrap().lines().next().unwrap().to_owned()
    }
}

/// A node's status, if it answers.
fn ask(node: &Node) -> Option<Value> {
    let client = Client::connect(node.address(), Duration::from_secs(1)).ok()?;
    serde_json::from_str(&client.status(Duration::from_secs(2)).ok()?).ok()
}

fn is_primary(status: &Value) -> bool {
    status["role"] == "primary" && status["standing"]["standing"] == "safe"
}

/// Blocks until one leads and both others are in sync, and says which one leads.
fn settled(nodes: &[Node]) -> usize {
    let deadline = Instant::now() + SOON;
    loop {
        let states: Vec<Value> = nodes.iter().map(|node| ask(node).unwrap_or_default()).collect();
        let is_settled = |status: &Value| is_primary(status) && common::in_sync(status) == nodes.len() - 1;
        if let Some(primary) = states.iter().position(is_settled) {
            return primary;
        }
        assert!(Instant::now() < deadline, "no primary with all in sync: {states:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Has a standby start again with the program that lies there now, and waits until it is back.
fn restart(nodes: &[Node], node: usize, version: &str) {
    let (code, text) = run(&["restart", nodes[node].address()]);
    assert_eq!(code, Some(0), "{text}");
    let deadline = Instant::now() + SOON;
    while ask(&nodes[node]).is_none_or(|status| status["version"] != version) {
        assert!(Instant::now() < deadline, "node {node} does not run {version}: {:#?}", ask(&nodes[node]));
        std::thread::sleep(Duration::from_millis(20));
    }
    settled(nodes);
}

/// Exchanges the programs: first of the standbys, then of the primary, whose role moves before.
fn roll(nodes: &[Node], release: &Path, version: &str, between: impl Fn(&[Node], usize)) {
    let primary = settled(nodes);
    for (done, standby) in (0..nodes.len()).filter(|node| *node != primary).enumerate() {
        install(release, &nodes[standby].program);
        restart(nodes, standby, version);
        between(nodes, done + 1);
    }
    // Nodes of both releases lead in turn, and feed those of the other.
    let (code, text) = run(&["switch-over", "--address", nodes[primary].address()]);
    assert_eq!(code, Some(0), "{text}");
    assert_ne!(settled(nodes), primary);
    install(release, &nodes[primary].program);
    restart(nodes, primary, version);
}

/// Clients at every node, as long as the test runs.
struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Mark>>>,
}

impl Clients {
    fn of(nodes: &[Node]) -> Self {
        let (stop, sequence) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let start = |(client, node): (usize, &Node)| {
            let (stop, sequence) = (Arc::clone(&stop), Arc::clone(&sequence));
            let socket = PathBuf::from(node.process.ready().sql_socket.as_deref().unwrap());
            std::thread::spawn(move || write(client as u64, &socket, &stop, &sequence))
        };
        let threads = nodes.iter().enumerate().map(start).collect();
        Self { stop, threads }
    }

    fn finish(self) -> Vec<Mark> {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

/// Writes there whenever that node takes something; returns what was acknowledged.
fn write(client: u64, socket: &Path, stop: &AtomicBool, sequence: &AtomicU64) -> Vec<Mark> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(10));
        let Ok(mut session) = Session::open(socket, "freshet", Duration::from_secs(5)) else { continue };
        while !stop.load(Ordering::SeqCst) {
            let mark = Mark { client, sequence: sequence.fetch_add(1, Ordering::SeqCst) };
            if session.run(&common::insert(mark)).is_err() {
                break;
            }
            acknowledged.push(mark);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    acknowledged
}

/// The version that a release has in a node's status.
fn version(release: &Path) -> String {
    let output = std::process::Command::new(release).arg("--version").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().rsplit(' ').next().unwrap().to_owned()
}

fn upgrade(words: &[&str]) -> (Option<i32>, String) {
    run(&[&["upgrade"], words].concat())
}

#[test]
#[ignore = "needs the next release in FRESHET_NEXT: tests/upgrade/run builds it"]
fn a_cluster_is_upgraded_node_by_node() {
    let (this, next) = (program(), PathBuf::from(std::env::var_os("FRESHET_NEXT").expect("FRESHET_NEXT is set")));
    let (old, new) = (version(&this), version(&next));
    assert_ne!(old, new);
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut nodes = vec![Node::start(root, "a", &this, &["--new-cluster"])];
    common::create_journal(&common::connect(&nodes[0].process));
    let listen = nodes[0].process.ready().listen.clone();
    for name in ["b", "c"] {
        nodes.push(Node::start(root, name, &this, &["--join", &listen]));
    }
    settled(&nodes);
    let before = nodes[0].format();
    let clients = Clients::of(&nodes);

    // An upgrade that is not finished names who stands in its way.
    let refused = |nodes: &[Node], done: usize| {
        let primary = &nodes[settled(nodes)];
        let finish = std::process::Command::new(&next)
            .args(["upgrade", "--finish", "--address", primary.address()])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&finish.stderr).into_owned();
        // The primary is of the old release, so that it has nothing to raise.
        assert!(finish.status.success() || text.contains("runs"), "{done}: {text}");
        assert_eq!(primary.format(), before, "{done}: an old primary writes what it did");
    };
    roll(&nodes, &next, &new, refused);
    assert!(nodes.iter().all(|node| node.format() == before), "no node writes anything new before the upgrade ends");
    // Back again, with all that the new release has written.
    roll(&nodes, &this, &old, |nodes, done| {
        let primary = nodes[settled(nodes)].address();
        let (code, text) = upgrade(&["--finish", "--address", primary]);
        assert!(code == Some(1) && text.contains(&format!("runs {old}")), "{done}: {code:?} {text}");
    });
    assert!(nodes.iter().all(|node| node.format() == before));
    roll(&nodes, &next, &new, refused);

    let primary = settled(&nodes);
    let (code, text) = upgrade(&["--finish", "--address", nodes[primary].address()]);
    assert!(code == Some(0) && text.contains("format level 2 now"), "{code:?} {text}");
    let (code, text) = run(&["members", nodes[primary].address()]);
    assert!(code == Some(0) && text.contains("format level 2"), "{code:?} {text}");
    let deadline = Instant::now() + SOON;
    while nodes.iter().any(|node| node.format() == before) {
        assert!(Instant::now() < deadline, "{:?}", nodes.iter().map(Node::format).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(20));
    }
    after(&mut nodes, &this, &new, root);
    let (primary, acknowledged) = (settled(&nodes), clients.finish());
    println!("{} commits", acknowledged.len());
    assert!(acknowledged.len() > 100);
    for node in &nodes {
        assert_eq!(missing(&common::connect(&node.process), &acknowledged), []);
        assert_eq!(status(&node.process)["version"], new.as_str());
    }
    let primary = common::connect(&nodes[primary].process);
    nodes.iter().for_each(|node| common::assert_same_state(&primary, &common::connect(&node.process)));
}

/// Nodes of the new release start again with what they have written since; of the old one none
/// starts there, and none joins.
fn after(nodes: &mut [Node], this: &Path, new: &str, root: &Path) {
    let primary = settled(nodes);
    let (code, text) = run(&["checkpoint", nodes[primary].address()]);
    assert_eq!(code, Some(0), "{text}");
    let standby = (primary + 1) % nodes.len();
    restart(nodes, standby, new);
    let (code, text) = run(&["switch-over", "--address", nodes[primary].address()]);
    assert_eq!(code, Some(0), "{text}");
    let leads = settled(nodes);
    assert_ne!(leads, primary);
    restart(nodes, primary, new);

    // On a copy: the node itself continues.
    let copy = root.join("copy");
    fs::DirBuilder::new().mode(0o700).create(&copy).unwrap();
    fs::copy(nodes[primary].directory.join("control"), copy.join("control")).unwrap();
    let refusal = common::refused(&copy, &[]);
    assert!(refusal.contains("of a later release") && refusal.contains("run at least the release"), "{refusal}");
    let joins = lasting_flags(&root.join("late"), &["--join", &nodes[leads].process.ready().listen]);
    match NodeProcess::start(this, joins, Duration::from_secs(10)) {
        Err(SpawnError::Ended { messages, .. } | SpawnError::Silent { messages, .. }) => {
            assert!(messages.contains("the upgrade of this cluster was finished"), "{messages}");
            assert!(messages.contains(&format!("run at least release {new}")), "{messages}");
        }
        other => panic!("an old node joined: {other:?}"),
    }
}
