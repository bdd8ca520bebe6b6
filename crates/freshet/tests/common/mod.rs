//! What the tests with real processes share. Every node ends with its test: it is killed when
//! dropped, and ends with its standard input.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use freshet::{
    children::{NodeProcess, Process, SpawnError},
    client::{Arrived, Client, ClientError},
    protocol::Answer,
};
use freshet_workloads::{journal::Mark, random::Random};
use serde_json::Value;

/// How long anything may take before a test gives up; a test that passes never waits that long.
pub const SOON: Duration = Duration::from_secs(60);

/// The program under test: `freshet`, or in tests of the laboratory `freshet-lab`, whose nodes know
/// more keys.
pub fn program() -> PathBuf {
    let program = option_env!("CARGO_BIN_EXE_freshet").or(option_env!("CARGO_BIN_EXE_freshet-lab"));
    PathBuf::from(program.expect("cargo names the programs of a package to its tests"))
}

/// Random numbers whose seed is printed, and taken from FRESHET_SEED.
pub fn random() -> Random {
    let seed = std::env::var("FRESHET_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |since| u64::from(since.subsec_nanos()))
    });
    println!("FRESHET_SEED={seed}");
    Random::new(seed)
}

/// A shell script in `directory`. Written by another process: a file that this one has open may not
/// be run, and what its other tests spawn has it open for a moment, too.
pub fn script(directory: &Path, text: &str) -> std::path::PathBuf {
    let path = directory.join("node.sh");
    let write = "printf '%s' \"$1\" >\"$0\" && chmod 755 \"$0\"";
    let written = std::process::Command::new("/bin/sh").args(["-c", write]).arg(&path).arg(text).status().unwrap();
    assert!(written.success());
    path
}

/// Flags of a small node on free ports.
pub fn flags(directory: &Path, more: &[&str]) -> Vec<String> {
    let mut flags = Vec::new();
    for (name, value) in [
        ("--address", "127.0.0.1:0"),
        ("--listen", "127.0.0.1:0"),
        ("--sql-listen", "off"),
        ("--log-buffer-bytes", "4194304"),
        ("--replay-threads", "2"),
        ("--directory", directory.to_str().unwrap()),
    ] {
        if !more.contains(&name) {
            flags.extend([name.to_owned(), value.to_owned()]);
        }
    }
    flags.extend(more.iter().map(ToString::to_string));
    // It has no effect on a node with a log, and none beside --join.
    if !more.contains(&"--new-cluster") {
        flags.push("--new-cluster".to_owned());
    }
    flags
}

/// Flags that have a node's SQL server on a free port let the first role in by TCP without a
/// password; others show theirs. `file` is written.
pub fn open_sql(file: &Path) -> Vec<String> {
    std::fs::write(file, "host all freshet 127.0.0.1/32 trust\nhost all all all scram-sha-256\n").unwrap();
    let file = file.to_str().unwrap();
    let flags = ["--sql-listen", "127.0.0.1:0", "--sql-socket-directory", "off", "--sql-access", file];
    flags.map(str::to_owned).to_vec()
}

/// Starts a node that has to start.
pub fn start(directory: &Path, more: &[&str]) -> NodeProcess {
    NodeProcess::start(&program(), flags(directory, more), SOON).unwrap()
}

/// Starts a node that must not start, and returns what it says.
pub fn refused(directory: &Path, more: &[&str]) -> String {
    refused_by(&program(), directory, more)
}

/// As [`refused`], with another program around the node.
pub fn refused_by(program: &Path, directory: &Path, more: &[&str]) -> String {
    match NodeProcess::start(program, flags(directory, more), SOON) {
        Err(SpawnError::Ended { status, messages }) => {
            assert!(status.contains("exit status: 1") || status.contains("exit status: 2"), "{status}: {messages}");
            let complaints = messages.lines().filter(|line| line.starts_with("freshet: ")).count();
            assert!(complaints == 1 || messages.starts_with("error: "), "one clear message: {messages}");
            assert!(!messages.contains("panicked"), "{messages}");
            messages
        }
        other => panic!("the node should have refused to start: {other:?}"),
    }
}

/// Blocks until the process has written this.
pub fn wait_for_message(process: &Process, text: &str) {
    let deadline = Instant::now() + SOON;
    while !process.messages().contains(text) {
        assert!(Instant::now() < deadline, "it does not say {text:?}: {}", process.messages());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Connects to a node's clients' port.
pub fn connect(node: &NodeProcess) -> Client {
    Client::connect(&node.ready().address, SOON).unwrap()
}

/// A node's status.
pub fn status(node: &NodeProcess) -> Value {
    serde_json::from_str(&connect(node).status(SOON).unwrap()).unwrap()
}

/// Blocks until the node's status satisfies `condition`.
pub fn wait_until(node: &NodeProcess, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let client = connect(node);
    let deadline = Instant::now() + SOON;
    loop {
        let status: Value = serde_json::from_str(&client.status(SOON).unwrap()).unwrap();
        if condition(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{what} has not come about: {status:#}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Standbys that the primary's commits wait for.
pub fn in_sync(status: &Value) -> usize {
    // While a set before may be in effect, a failover needs as many of that.
    if status["in_sync_set"]["before"].as_array().is_some_and(|before| !before.is_empty()) {
        return 0;
    }
    let standbys = status["standbys"].as_array().map_or(&[][..], Vec::as_slice);
    standbys.iter().filter(|standby| standby["in_sync"] == true && standby["connected"] == true).count()
}

/// Both nodes show the same records. The standby may have got further: now and then a primary notes
/// the time.
pub fn assert_same_state(primary: &Client, standby: &Client) {
    let (at, hash, records) = primary.hash(None, SOON).unwrap();
    let (found_at, found_hash, found_records) = standby.hash(Some(at), SOON).unwrap();
    assert!(found_at >= at);
    assert_eq!((found_hash, found_records), (hash, records));
}

/// Makes the journal.
pub fn create_journal(client: &Client) {
    client.call::<()>("journal/create", &(), SOON).unwrap();
}

/// Writes a mark, waiting so long at most.
pub fn write(client: &Client, client_number: u64, sequence: u64, patience: Duration) -> Result<(), ClientError> {
    client.call::<()>("journal/write", &Mark { client: client_number, sequence }, patience).map(drop)
}

/// Those of the marks that a node does not have.
pub fn missing(client: &Client, marks: &[Mark]) -> Vec<Mark> {
    let mut missing = Vec::new();
    for part in marks.chunks(50_000) {
        missing.extend(client.call::<Vec<Mark>>("journal/missing", &part, SOON).unwrap().result);
    }
    missing
}

/// A session that waits for each answer.
pub struct Sql {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Sql {
    /// Connects as the first role.
    pub fn connect(node: &NodeProcess) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address: std::net::SocketAddr = node.ready().sql.as_deref().unwrap().parse().unwrap();
        let target = format!("host={} port={} user=freshet dbname=freshet", address.ip(), address.port());
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&target, tokio_postgres::NoTls)).unwrap();
        runtime.spawn(connection);
        Self { runtime, client }
    }

    /// The first column of what comes.
    pub fn run(&self, sql: &str) -> Result<Vec<String>, tokio_postgres::Error> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
            _ => None,
        });
        Ok(rows.collect())
    }
}

/// A client that keeps some marks under way until it is stopped or its connection ends.
pub struct Writer {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: JoinHandle<Written>,
}

/// What a [`Writer`] was told.
#[derive(Debug, Default)]
pub struct Written {
    pub acknowledged: Vec<Mark>,
    pub open: Vec<(Mark, String)>,
    pub refused: Vec<(Mark, String)>,
}

/// Requests of a writer that are under way.
const UNDER_WAY: u64 = 32;

impl Writer {
    /// Starts to write marks of `number`.
    pub fn start(client: Client, number: u64) -> Self {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = {
            let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
            std::thread::spawn(move || Self::run(&client, number, &stop, &count))
        };
        Self { stop, count, thread }
    }

    fn run(client: &Client, number: u64, stop: &AtomicBool, count: &AtomicU64) -> Written {
        let written = Arc::new(Mutex::new(Written::default()));
        let (sender, receiver) = mpsc::channel();
        for _ in 0..UNDER_WAY {
            sender.send(()).unwrap();
        }
        let mut sequence = 0;
        let mut left = UNDER_WAY;
        while receiver.recv().is_ok() {
            left -= 1;
            if stop.load(Ordering::Relaxed) {
                if left == 0 {
                    break;
                }
                continue;
            }
            sequence += 1;
            let mark = Mark { client: number, sequence };
            let witness = Witness { mark, written: Arc::clone(&written), sender: sender.clone(), reported: false };
            let ask = Client::call_request("journal/write", &mark, SOON);
            left += 1;
            if client.send(ask, |arrived| witness.report(arrived)).is_err() {
                break;
            }
            count.store(written.lock().unwrap().acknowledged.len() as u64, Ordering::Relaxed);
        }
        client.close();
        // Whatever is still under way is told when the connection has ended.
        drop(sender);
        while receiver.recv_timeout(SOON).is_ok() {}
        std::mem::take(&mut *written.lock().unwrap())
    }

    /// Blocks until this many marks are acknowledged.
    pub fn wait_for(&self, marks: u64) {
        let deadline = Instant::now() + SOON;
        while self.count.load(Ordering::Relaxed) < marks {
            assert!(Instant::now() < deadline && !self.thread.is_finished(), "nothing is acknowledged any more");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Marks acknowledged so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until the connection ends by itself.
    pub fn join(self) -> Written {
        self.thread.join().unwrap()
    }

    /// Lets what is under way come to its end.
    pub fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

struct Witness {
    mark: Mark,
    written: Arc<Mutex<Written>>,
    sender: mpsc::Sender<()>,
    reported: bool,
}

impl Witness {
    fn report(mut self, arrived: Arrived) {
        self.reported = true;
        let mut written = self.written.lock().unwrap();
        match arrived.answer {
            Answer::Committed { .. } => written.acknowledged.push(self.mark),
            Answer::OutcomeOpen { reason } => written.open.push((self.mark, reason)),
            Answer::Refused { reason } => written.refused.push((self.mark, reason)),
            other => panic!("a mark cannot be {other:?}"),
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if !self.reported {
            self.written.lock().unwrap().open.push((self.mark, "the connection was lost".to_owned()));
        }
        let _ = self.sender.send(());
    }
}
