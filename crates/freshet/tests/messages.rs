//! What a node says about itself on standard error: a line for each change of state, which a
//! machine can read, and which no client and no reader of it can hold up or forge.

mod common;

use std::{
    fs,
    io::{ErrorKind, PipeWriter, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{SOON, connect, create_journal, flags, in_sync, program, start, wait_until, write};
use freshet::children::NodeProcess;
use freshet_base::Consent;
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;

/// A node whose standard error is a file.
struct Logging {
    node: NodeProcess,
    file: PathBuf,
}

impl Logging {
    fn start(directory: &Path, name: &str, more: &[&str]) -> Self {
        let file = directory.join(format!("{name}.said"));
        let scripts = directory.join(format!("{name}.d"));
        fs::create_dir_all(&scripts).unwrap();
        let text = format!("#!/bin/sh\nexec {} \"$@\" 2>>{}\n", program().display(), file.display());
        let script = common::script(&scripts, &text);
        let more = [more, &["--log-format", "json"]].concat();
        let node = NodeProcess::start(&script, flags(&directory.join(name), &more), SOON);
        let node = node.unwrap_or_else(|cause| panic!("{cause}: {}", fs::read_to_string(&file).unwrap()));
        Self { node, file }
    }

    /// All lines so far. Each is whole.
    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.file).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let lines = text[..whole].lines().map(|line| {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line}"));
            assert!(humantime::parse_rfc3339(value["time"].as_str().unwrap()).is_ok(), "{line}");
            assert!(["error", "warn", "info"].contains(&value["level"].as_str().unwrap()), "{line}");
            assert!(value["part"].is_string() && value["message"].is_string(), "{line}");
            value
        });
        lines.collect()
    }

    /// Blocks until there is a line with this sentence that satisfies `so`, from the `from`th line
    /// on; says which line that is.
    fn wait_for(&self, from: usize, sentence: &str, so: impl Fn(&Value) -> bool) -> (usize, Value) {
        let deadline = Instant::now() + SOON;
        loop {
            let lines = self.lines();
            let is_it = |line: &Value| line["message"].as_str().unwrap().starts_with(sentence) && so(line);
            if let Some(at) = (from..lines.len()).find(|at| is_it(&lines[*at])) {
                return (at, lines[at].clone());
            }
            let sentences: Vec<_> = lines.iter().skip(from).map(ToString::to_string).collect();
            assert!(Instant::now() < deadline, "it does not say {sentence:?}, but\n{}", sentences.join("\n"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn any(_: &Value) -> bool {
    true
}

#[test]
fn statements_that_a_superuser_asks_for_have_lines() {
    let directory = tempfile::tempdir().unwrap();
    let flags = common::open_sql(&directory.path().join("access"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let log = Logging::start(directory.path(), "a", &flags);
    let sql = common::Sql::connect(&log.node);
    sql.run("SELECT 'before'").unwrap();
    sql.run("SET log_statement = 'ddl'").unwrap();
    sql.run("SELECT 'not a definition'").unwrap();
    sql.run("CREATE ROLE a PASSWORD 'secret'").unwrap();
    let (at, line) = log.wait_for(0, "a statement begins", any);
    assert_eq!(line["statement"], "CREATE ROLE a PASSWORD <hidden>");
    assert_eq!((&line["role"], line["duration_ms"].as_f64()), (&"freshet".into(), None));
    sql.run("SET log_statement = 'none'; SET log_min_duration_statement = 0").unwrap();
    sql.run(&format!("SELECT '{}'", "x".repeat(10_000))).unwrap();
    let long = |line: &Value| line["statement"].as_str().unwrap().starts_with("SELECT 'xxx");
    let (_, line) = log.wait_for(at + 1, "a statement took long", long);
    assert!(line["statement"].as_str().unwrap().len() <= 1024 && line["duration_ms"].as_f64().unwrap() > 0.0, "{line}");
    let lines = log.lines();
    let of_statements = lines.iter().filter(|line| line["message"].as_str().unwrap().starts_with("a statement"));
    let all = of_statements.map(ToString::to_string).collect::<String>();
    assert!(!all.contains("secret") && !all.contains("before") && !all.contains("not a definition"), "{all}");
}

#[test]
fn each_change_of_state_has_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--safety", "2-safe", "--standby-timeout-ms", "300"];
    let primary = Logging::start(directory.path(), "a", &flags);
    let (_, loaded) = primary.wait_for(0, "the configuration is loaded", any);
    let keys: Value = serde_json::from_str(loaded["keys"].as_str().unwrap()).unwrap();
    assert_eq!((&keys["standby-timeout-ms"], &keys["log.format"]), (&300.into(), &"json".into()));
    primary.wait_for(0, "the start enters its next phase", |line| line["phase"] == "ready");
    primary.wait_for(0, "this node is the primary", |line| line["term"] == 1 && line["safety"] == "2-safe");
    let (_, ready) = primary.wait_for(0, "the node is ready", |line| line["role"] == "primary");
    assert_eq!(ready["listen"], primary.node.ready().listen.as_str());

    // A standby comes, goes, and comes back.
    let join = [&flags[..], &["--join", &primary.node.ready().listen]].concat();
    let mut standby = Logging::start(directory.path(), "b", &join);
    let name = |node: &Logging| node.wait_for(0, "the node is ready", any).1["node"].as_str().unwrap().to_owned();
    let (a, b) = (name(&primary), name(&standby));
    let of_b = |line: &Value| line["standby"] == b.as_str();
    primary.wait_for(0, "a standby is connected", of_b);
    let (at, _) = primary.wait_for(0, "a standby is in sync", of_b);
    standby.wait_for(0, "the log flows from another node", |line| line["primary"] == a.as_str());
    create_journal(&connect(&primary.node));
    standby.node.kill();
    let (lost, line) = primary.wait_for(at, "the connection to a standby is lost", of_b);
    assert!(!line["cause"].as_str().unwrap().is_empty());
    write(&connect(&primary.node), 1, 1, SOON).unwrap();
    let degraded = |line: &Value| line["standing"] == "degraded" && line["level"] == "warn";
    primary.wait_for(lost, "commits continue with fewer standbys in sync", degraded);
    primary.wait_for(lost, "a standby is not in sync any more", of_b);
    drop(standby);
    let standby = Logging::start(directory.path(), "b", &join);
    primary.wait_for(lost, "the safety level is kept in full", any);

    // A checkpoint, by whom it was asked for.
    connect(&primary.node).checkpoint(false, SOON).unwrap();
    let (asked, line) = primary.wait_for(lost, "a client asks for a checkpoint", any);
    assert_eq!(line["who"], "a process of this user", "{line}");
    let (begun, _) = primary.wait_for(asked, "a checkpoint begins", any);
    primary.wait_for(begun, "a checkpoint is installed", |line| line["rows"].as_u64() > Some(0));

    // A failover.
    wait_until(&primary.node, "the standby in sync", |status| in_sync(status) == 1);
    let before = standby.lines().len();
    connect(&standby.node).promote(Consent::Nothing, SOON).unwrap();
    let (at, line) =
        standby.wait_for(before, "a client asks this node to take over", |line| line["consent"] == "Nothing");
    assert_eq!(line["who"], "a process of this user", "{line}");
    let (at, _) = standby.wait_for(at, "a promotion begins", any);
    let (at, _) = standby.wait_for(at, "enough nodes have promised the term", any);
    let (_, leads) = standby.wait_for(at, "this node is the primary", any);
    let term = leads["term"].as_u64().unwrap();
    assert!(term > 1);
    // Either the candidate or the former standby says so first.
    let (raised, _) = primary.wait_for(lost, "a later term is in force", |line| line["term"] == term);
    let (deposed, _) = primary.wait_for(lost, "this primary is deposed", |line| line["by"] == term);
    let at = raised.max(deposed);
    let (at, _) = primary.wait_for(at, "another node has become the primary, so this one starts again", any);
    primary.wait_for(at, "the log flows from another node", |line| line["primary"] == b.as_str());

    // The end.
    let Logging { mut node, file } = standby;
    assert!(node.stop(SOON).unwrap().success());
    let text = fs::read_to_string(&file).unwrap();
    let signal = text.lines().position(|line| line.contains("SIGTERM")).expect("the signal is said");
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["message"], "the node has stopped");
    assert!(signal < text.lines().count() - 1);
}

/// A pipe that is full, and stays so.
fn full_pipe() -> (std::io::PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    loop {
        match writer.write(&[b'x'; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// Ends with the test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The reader of the node's lines has stopped reading, without closing the pipe.
#[test]
fn a_node_that_nobody_listens_to_serves_and_ends() {
    use std::io::{BufRead, BufReader};

    let directory = tempfile::tempdir().unwrap();
    let (_reader, writer) = full_pipe();
    // This domain has something to say at the start.
    let flags = flags(&directory.path().join("a"), &["--domain", "pmem"]);
    let mut command = Command::new(program());
    command.args(["serve"]).args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer);
    let mut child = Child(command.spawn().unwrap());
    let (sender, receiver) = std::sync::mpsc::channel();
    let stdout = child.0.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line);
        let _ = sender.send(line);
    });
    let line = receiver.recv_timeout(SOON).expect("it is ready, whether anybody reads or not");
    let ready: Value = serde_json::from_str(line.strip_prefix("ready ").unwrap()).unwrap();
    let address = ready["address"].as_str().unwrap();
    let client = common::Connected::at(address, Path::new(ready["sql_socket"].as_str().unwrap()));
    create_journal(&client);
    for sequence in 1..100 {
        write(&client, 1, sequence, SOON).unwrap();
        // Each says several lines.
        if sequence % 10 == 0 {
            client.checkpoint(false, SOON).unwrap();
        }
    }
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    let deadline = Instant::now() + SOON;
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
}

#[test]
fn levels_that_make_no_sense_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (flag, value, text) in [
        ("--log-level", "loud", "not a level"),
        ("--log-level", "info,nothing=warn", "no part"),
        ("--log-format", "xml", "json"),
    ] {
        let message = common::refused(&directory.path().join("a"), &[flag, value]);
        assert!(message.contains(text), "{message}");
    }
    // A quiet one says nothing at all.
    let mut node = start(&directory.path().join("a"), &["--log-level", "error"]);
    assert!(node.stop(SOON).unwrap().success());
    assert_eq!(node.messages(), "");
}
