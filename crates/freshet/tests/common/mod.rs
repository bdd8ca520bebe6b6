//! What the tests with real processes share. Every node ends with its test: it is killed when
//! dropped, and ends with its standard input.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    ops::Deref,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use freshet::{
    children::{NodeProcess, Process, SpawnError},
    client::Client,
    sql_client::{Reply, Session, SqlFailure},
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
    // Some nodes are started again where they were.
    let [address, listen, sql] = [(); 3].map(|()| freshet_testing::ports::reserve().unwrap().to_string());
    for (name, value) in [
        ("--address", address.as_str()),
        ("--listen", &listen),
        ("--sql-listen", &sql),
        ("--log-buffer-bytes", "4194304"),
        ("--replay-threads", "2"),
        // Tests promote nodes themselves, but for those that say otherwise.
        ("--failover", "manual"),
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
    let rules = "local all freshet trust\nhost all freshet 127.0.0.1/32 trust\nhost all all all scram-sha-256\n";
    std::fs::write(file, rules).unwrap();
    let flags = ["--sql-listen", "127.0.0.1:0", "--sql-access", file.to_str().unwrap()];
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

/// A client of a node's control port, and of its SQL server.
pub struct Connected {
    control: Client,
    socket: PathBuf,
    session: Mutex<Option<Session>>,
}

impl Deref for Connected {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.control
    }
}

impl Connected {
    /// A client of the node with this control port and this Unix socket for SQL.
    pub fn at(address: &str, socket: &Path) -> Self {
        let control = Client::connect(address, SOON).unwrap();
        Self { control, socket: socket.to_owned(), session: Mutex::default() }
    }

    /// A session.
    fn session(&self) -> Result<Session, SqlFailure> {
        Session::open(&self.socket, "freshet", 2 * SOON)
    }

    /// Runs a statement, waiting so long at most.
    pub fn run(&self, sql: &str, patience: Duration) -> Result<Reply, SqlFailure> {
        let mut kept = self.session.lock().unwrap();
        let mut session = kept.take().map_or_else(|| self.session(), Ok)?;
        session.run(&format!("SET statement_timeout = {}", patience.as_millis()))?;
        let result = session.run(sql);
        if result.as_ref().err().is_none_or(|failure| !failure.is_open()) {
            *kept = Some(session);
        }
        result
    }
}

/// Connects to a node.
pub fn connect(node: &NodeProcess) -> Connected {
    Connected::at(&node.ready().address, node.ready().sql_socket.as_deref().unwrap())
}

/// A node's status.
pub fn status(node: &NodeProcess) -> Value {
    serde_json::from_str(&connect(node).status(SOON).unwrap()).unwrap()
}

/// Blocks until the node's status satisfies `condition`.
pub fn wait_until(node: &NodeProcess, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    wait_until_either(&[node], what, condition).1
}

/// Blocks until the status of one of the nodes satisfies `condition`: that node, and its status.
pub fn wait_until_either<'n>(
    nodes: &[&'n NodeProcess],
    what: &str,
    condition: impl Fn(&Value) -> bool,
) -> (&'n NodeProcess, Value) {
    let clients: Vec<_> = nodes.iter().map(|node| connect(node)).collect();
    let deadline = Instant::now() + SOON;
    loop {
        let mut seen: Vec<Value> =
            clients.iter().map(|client| serde_json::from_str(&client.status(SOON).unwrap()).unwrap()).collect();
        if let Some(at) = seen.iter().position(&condition) {
            return (nodes[at], seen.swap_remove(at));
        }
        assert!(Instant::now() < deadline, "{what} has not come about: {:#}", Value::Array(seen));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `freshet` with these words: its exit code, and what it prints.
pub fn run(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program()).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code(), text)
}

/// Blocks until a node has such a status, and returns it. It may start again before that, and
/// answers no client while it does.
pub fn wait_through_restart(node: &NodeProcess, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + SOON;
    let ask = || Client::connect(&node.ready().address, SOON).and_then(|client| client.status(SOON)).ok();
    loop {
        let status: Value = ask().and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
        if is_so(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{what} has not come about: {status:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Blocks until a client can write there, as client `number`.
pub fn wait_until_writable(node: &NodeProcess, number: u64) {
    let deadline = Instant::now() + SOON;
    for sequence in 1.. {
        let written = write(&connect(node), number, sequence, Duration::from_secs(1));
        if written.is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "{written:?}, {:#}", status(node));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a node's HTTP port gives Prometheus; nothing where it does not answer.
pub fn metrics(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    // As Prometheus has it, a time-out is no answer.
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, text)| text.to_owned())
}

/// Standbys that the primary's commits wait for.
pub fn in_sync(status: &Value) -> usize {
    freshet::status::failover::counted(status)
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
pub fn create_journal(client: &Connected) {
    let journal = "CREATE TABLE IF NOT EXISTS journal (client bigint, sequence bigint, PRIMARY KEY (client, sequence))";
    client.run(journal, SOON).unwrap();
}

/// The statement that writes a mark.
pub fn insert(mark: Mark) -> String {
    format!("INSERT INTO journal VALUES ({}, {})", mark.client, mark.sequence)
}

/// Writes a mark, waiting so long at most.
pub fn write(client: &Connected, client_number: u64, sequence: u64, patience: Duration) -> Result<(), SqlFailure> {
    client.run(&insert(Mark { client: client_number, sequence }), patience).map(drop)
}

/// Those of the marks that a node does not have. Waits until it shows any state to readers: a
/// standby that has just started may be in sync before.
pub fn missing(client: &Connected, marks: &[Mark]) -> Vec<Mark> {
    let deadline = Instant::now() + SOON;
    let rows = loop {
        match client.run("SELECT client, sequence FROM journal", SOON) {
            Ok(answer) => break answer.rows,
            Err(SqlFailure::Server { code, .. }) if code == "57P03" && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(failure) => panic!("{failure:?}"),
        }
    };
    let mark = |row: &Vec<String>| Mark { client: row[0].parse().unwrap(), sequence: row[1].parse().unwrap() };
    let there: HashSet<Mark> = rows.iter().map(mark).collect();
    marks.iter().filter(|mark| !there.contains(mark)).copied().collect()
}

/// A session that waits for each answer.
pub struct Sql {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Sql {
    /// Connects as the first role.
    pub fn connect(node: &NodeProcess) -> Self {
        Self::connect_as(node, "user=freshet").unwrap()
    }

    /// Connects as `who` says, as in a connection string.
    pub fn connect_as(node: &NodeProcess, who: &str) -> Result<Self, tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address: std::net::SocketAddr = node.ready().sql.as_deref().unwrap().parse().unwrap();
        let target = format!("host={} port={} dbname=freshet {who}", address.ip(), address.port());
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&target, tokio_postgres::NoTls))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client })
    }

    /// What runs the client.
    pub fn parts(&self) -> (&tokio_postgres::Client, &tokio::runtime::Runtime) {
        (&self.client, &self.runtime)
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

/// Sessions that each write one mark after the other until they are stopped or their connections
/// end.
pub struct Writer {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Written>>,
}

/// What a [`Writer`] was told.
#[derive(Debug, Default)]
pub struct Written {
    pub acknowledged: Vec<Mark>,
    pub open: Vec<(Mark, String)>,
    pub refused: Vec<(Mark, String)>,
}

/// Sessions of a writer.
const SESSIONS: usize = 8;

impl Writer {
    /// Starts to write marks of `number`.
    pub fn start(client: Connected, number: u64) -> Self {
        let (stop, count, sequence) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let begin = || {
            let session = client.session().unwrap();
            let (stop, count, sequence) = (Arc::clone(&stop), Arc::clone(&count), Arc::clone(&sequence));
            std::thread::spawn(move || Self::run(session, number, &stop, &count, &sequence))
        };
        let threads = (0..SESSIONS).map(|_| begin()).collect();
        Self { stop, count, threads }
    }

    fn run(mut session: Session, client: u64, stop: &AtomicBool, count: &AtomicU64, sequence: &AtomicU64) -> Written {
        let mut written = Written::default();
        while !stop.load(Ordering::Relaxed) {
            let mark = Mark { client, sequence: sequence.fetch_add(1, Ordering::Relaxed) + 1 };
            let failure = match session.run(&insert(mark)) {
                Ok(_) => {
                    written.acknowledged.push(mark);
                    count.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Err(failure) => failure,
            };
            let is_over = matches!(failure, SqlFailure::Lost(_) | SqlFailure::Server { fatal: true, .. });
            let list = if failure.is_open() { &mut written.open } else { &mut written.refused };
            list.push((mark, failure.to_string()));
            if is_over {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        written
    }

    /// Blocks until this many marks are acknowledged.
    pub fn wait_for(&self, marks: u64) {
        let deadline = Instant::now() + SOON;
        while self.count() < marks {
            let is_over = self.threads.iter().all(JoinHandle::is_finished);
            assert!(Instant::now() < deadline && !is_over, "nothing is acknowledged any more");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Marks acknowledged so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until the connections end by themselves.
    pub fn join(self) -> Written {
        let mut all = Written::default();
        for thread in self.threads {
            let written = thread.join().unwrap();
            all.acknowledged.extend(written.acknowledged);
            all.open.extend(written.open);
            all.refused.extend(written.refused);
        }
        all
    }

    /// Lets what is under way come to its end.
    pub fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }
}

/// An archive that ends with this value.
pub struct Archive(Child);

impl Archive {
    pub fn start(directory: &Path, node: &str, more: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.args(["archive", "--while-stdin", "--node", node]).args(more).arg(directory);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Blocks until it follows the primary.
    pub fn wait_until_ready(&mut self) {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line:?}");
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
