//! The command line: verdicts that can be acted on, mistakes that are named, output for programs,
//! configurations that are checked and shown.

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use common::{SOON, Sql, in_sync, open_sql, program, run, start, wait_until};
use freshet::children::NodeProcess;
use serde_json::Value;

/// The first line that is JSON.
fn json(shown: &str) -> Value {
    shown.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_else(|| panic!("no JSON: {shown}"))
}

/// Two nodes, the second in sync with the first.
fn pair(directory: &Path, more: &[&str]) -> [NodeProcess; 2] {
    let a = start(&directory.join("a"), more);
    let b = start(&directory.join("b"), &["--join", &a.ready().listen]);
    wait_until(&a, "one in sync", |status| in_sync(status) == 1 && status["set_pending"].is_null());
    [a, b]
}

/// Blocks until `freshet status --check` of a node ends with this code, and gives its line.
#[track_caller]
fn checked(address: &str, code: i32) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let (ends_with, shown) = run(&["status", "--check", address]);
        assert_eq!(shown.lines().count(), 1, "{shown}");
        if ends_with == Some(code) {
            return shown;
        }
        assert!(Instant::now() < deadline, "it ends with {ends_with:?}: {shown}");
    }
}

#[test]
fn a_status_begins_with_a_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let [a, mut b] = pair(directory.path(), &["--http-listen", "localhost:0"]);
    let address = &a.ready().address;
    assert!(checked(address, 0).starts_with("ok: "));
    let (_, shown) = run(&["status", address]);
    let has = |name: &str| shown.lines().any(|line| line.starts_with(name));
    let all = ["ok: ", "role ", "throughput ", "memory ", "disk ", "members "];
    assert!(shown.starts_with("ok: ") && all.into_iter().all(has), "{shown}");
    let (_, of_b) = run(&["status", &b.ready().address]);
    assert!(of_b.lines().any(|line| line.starts_with("readers see")), "{of_b}");
    let (code, shown) = run(&["status", "--json", address]);
    let value = json(&shown);
    assert_eq!((code, &value["format"], &value["verdict"]["state"]), (Some(0), &1.into(), &"ok".into()), "{shown}");
    assert_eq!(value["members"]["nodes"].as_array().map(Vec::len), Some(2), "{shown}");

    let gone = b.ready().address.clone();
    b.kill();
    let line = checked(address, 1);
    assert!(line.starts_with("degraded: ") && line.contains(" -- do: "), "{line}");
    let (code, shown) = run(&["status", address]);
    assert!(code == Some(3) && shown.starts_with("degraded: ") && shown.contains("is away"), "{code:?}: {shown}");
    assert!(checked(&gone, 2).starts_with("blocked: cannot connect to "));
    let mut http = TcpStream::connect(a.ready().http.as_deref().unwrap()).unwrap();
    http.write_all(b"GET /health HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    http.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"state\":\"degraded\""), "{answer}");
}

/// What was known before the link went grows older, also where nothing more is known.
#[test]
fn the_lag_in_seconds_grows_while_the_link_is_down() {
    let directory = tempfile::tempdir().unwrap();
    let [mut a, b] = pair(directory.path(), &[]);
    a.kill();
    let deadline = Instant::now() + SOON;
    let mut before = 0;
    loop {
        let (code, shown) = run(&["status", "--json", &b.ready().address]);
        let status = json(&shown);
        let age = status["age"]["secs"].as_u64().expect("the age of what readers see is known");
        assert!(age >= before, "{age} after {before}");
        before = age;
        if age >= 2 && status["link"]["link"] == "connecting" {
            assert_eq!((code, &status["verdict"]["state"]), (Some(4), &"blocked".into()), "{shown}");
            break;
        }
        assert!(Instant::now() < deadline, "{shown}");
    }
    let (_, shown) = run(&["status", &b.ready().address]);
    assert!(shown.lines().any(|line| line.starts_with("readers see") && line.ends_with(" s old at most")), "{shown}");
}

#[test]
fn a_watch_has_a_line_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = start(&directory.path().join("a"), &[]);
    let mut command = Command::new(program());
    command.args(["status", "--watch", "1", &a.ready().address]).stdout(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!([next(), next()].iter().all(|line| line.starts_with("ok: ")));
    a.kill();
    // The one that was under way may have come before.
    assert!([next(), next()].iter().any(|line| line.starts_with("blocked: ")));
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// A process that stands still answers nobody, and for a moment it is still connected: that is no
/// cut between two nodes.
#[test]
fn a_node_that_stands_still_is_away_and_not_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = pair(directory.path(), &[]);
    let c = start(&directory.path().join("c"), &["--join", &a.ready().listen]);
    wait_until(&a, "two in sync", |status| in_sync(status) == 2 && status["set_pending"].is_null());
    checked(&a.ready().address, 0);
    c.pause();
    let deadline = Instant::now() + SOON;
    for address in [&a.ready().address, &b.ready().address].into_iter().cycle() {
        let (_, shown) = run(&["status", address]);
        assert!(!shown.contains("does not reach"), "{shown}");
        let (code, shown) = run(&["members", address]);
        assert!(!shown.contains("does not reach"), "{shown}");
        if code == Some(3) && shown.contains("which is away") {
            break;
        }
        assert!(Instant::now() < deadline, "{code:?}: {shown}");
    }
    c.resume();
}

#[test]
fn another_port_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let access = open_sql(&directory.path().join("access"));
    let access: Vec<&str> = access.iter().map(String::as_str).collect();
    let a = start(&directory.path().join("a"), &[&["--http-listen", "127.0.0.1:0"], &access[..]].concat());
    let ready = a.ready();
    let sql = ready.sql.as_deref().unwrap();
    for (address, expected) in [
        (sql, "is the SQL port"),
        (ready.http.as_deref().unwrap(), "is an HTTP port"),
        (&ready.listen, "is the port for other nodes"),
    ] {
        let (code, shown) = run(&["status", address]);
        let usual = "the control port (address), which is 7400";
        assert!(code == Some(1) && shown.contains(expected) && shown.contains(usual), "{code:?}: {shown}");
    }
    for (address, expected) in [(ready.address.as_str(), "is the control port"), (sql, "is the SQL port")] {
        let backup = directory.path().join("backup");
        let (code, shown) = run(&["backup", "--node", address, backup.to_str().unwrap()]);
        let usual = "the port for nodes (listen), which is 7401";
        assert!(code == Some(1) && shown.contains(expected) && shown.contains(usual), "{code:?}: {shown}");
    }
    // And the other way round: a client of PostgreSQL, and one of HTTP, at the ports of a node.
    for (address, expected) in [(&ready.address, "the control port"), (&ready.listen, "for other nodes")] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(b"\0\0\0\x16\0\x03\0\0user\0freshet\0\0").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(b"E") && text.contains("C08P01\0") && text.contains(expected), "{text:?}");
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 ") && text.contains(expected), "{text:?}");
    }
    // Its own clients are served as before.
    assert_eq!(run(&["status", &ready.address]).0, Some(0));
    assert_eq!(Sql::connect(&a).run("SELECT 1").unwrap(), ["1"]);
}

#[test]
fn outcomes_are_json_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = pair(directory.path(), &[]);
    let (address, listen) = (a.ready().address.as_str(), a.ready().listen.as_str());
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (backup, restored) = (path("backup"), path("restored"));
    for (words, key) in [
        (&["members", address][..], "nodes"),
        (&["checkpoint", address], "rows"),
        (&["token", "--address", address], "token"),
        (&["level", "2-safe", "--address", address], "before"),
        (&["maintenance", "--for", "1m", address], "known"),
        (&["backup", "--node", listen, &backup], "bytes"),
        (&["restore", "--backup", &backup, &restored], "end"),
        (&["verify", "--state", address, &b.ready().address], "same"),
        (&["config", "show", address], "changed"),
        (&["rotate", "--address", address], "generation"),
        (&["switch-over", "--address", address], "primary"),
    ] {
        let (code, shown) = run(&[words, &["--json"]].concat());
        assert!(code == Some(0) && !json(&shown)[key].is_null(), "{words:?}: {code:?} {shown}");
    }
}

#[test]
fn configurations_are_checked_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "adress = \"x\"\n[sql]\nconnections = 0\n").unwrap();
    let (code, shown) = run(&["config", "check", path]);
    assert!(
        code == Some(1) && shown.contains("line 1: adress: ") && shown.contains("line 3: sql.connections: "),
        "{shown}"
    );
    let (_, shown) = run(&["config", "check", "--json", path]);
    assert_eq!(json(&shown)["mistakes"][1]["line"], 3, "{shown}");
    let (code, sample) = run(&["config", "sample"]);
    std::fs::write(&file, &sample).unwrap();
    assert_eq!((code, run(&["config", "check", path]).0), (Some(0), Some(0)));
    std::fs::write(&file, "standby-timeout-ms = 1234\nlog.level = \"warn\"\n").unwrap();
    let (_, of_file) = run(&["config", "show", "--file", path]);
    assert!(of_file.contains("standby-timeout-ms = 1234 # default: 2000"), "{of_file}");
    let a = start(&directory.path().join("a"), &["--config", path]);
    let (code, shown) = run(&["config", "show", &a.ready().address]);
    let (changed, same) = shown.split_once("\n# What is as by default:").expect("two parts");
    assert!(code == Some(0) && changed.contains("standby-timeout-ms = 1234") && !same.contains("standby-timeout-ms"));
    assert!(same.contains("sql.connections = 100"), "{shown}");
    let (code, shown) = run(&["config", "show", "--file", "/nowhere/at.toml"]);
    assert!(code == Some(1) && shown.contains("/nowhere/at.toml"), "{shown}");
}

#[test]
fn a_node_listens_where_it_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let ports: [u16; 2] = [(); 2].map(|()| freshet_testing::ports::reserve().unwrap().port());
    let listen = format!("localhost:{},127.0.0.1:{}", ports[0], ports[1]);
    let more = ["--sql-listen", &listen, "--address", "localhost:0", "--listen", "localhost:0"];
    let a = start(&directory.path().join("a"), &more);
    for port in ports {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f").unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"N");
    }
    assert_eq!(run(&["status", &a.ready().address]).0, Some(0));
    let everywhere = start(&directory.path().join("b"), &["--sql-listen", "*:0"]);
    let port = everywhere.ready().sql.as_deref().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let said = common::refused(&directory.path().join("c"), &["--sql-listen", "no-such-host.invalid:1"]);
    assert!(said.contains("no-such-host.invalid"), "{said}");
}

#[test]
fn shells_and_man_know_the_commands() {
    let directory = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let (code, script) = run(&["completion", shell]);
        assert!(code == Some(0) && script.contains("switch-over") && script.contains("no-hand-over"), "{shell}");
    }
    assert_eq!(run(&["man", directory.path().to_str().unwrap()]).0, Some(0));
    let page = std::fs::read_to_string(directory.path().join("freshet-stop.1")).unwrap();
    assert!(page.starts_with(".ie") || page.contains(".TH"), "{page}");
    assert!(page.contains("hands its role"), "{page}");
}

/// A new cluster begins without a server, and its first role logs in with its password.
#[test]
fn init_begins_a_cluster_whose_first_role_has_a_password() {
    let place = tempfile::tempdir().unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (directory, file) = (place.path().join("node"), place.path().join("password"));
    std::fs::write(&file, "it's \"secret\"\nno more\n").unwrap();
    let (at, from) = (path(&directory), path(&file));
    // A node that was refused has left something there.
    let mut flags = vec!["--directory", &at, "--sql-socket-directory", "off"];
    for key in ["--listen", "--address", "--sql-listen"] {
        flags.extend([key, "127.0.0.1:0"]);
    }
    let serve = || NodeProcess::start(&program(), &flags, SOON);
    assert!(serve().unwrap_err().to_string().contains("--new-cluster") && directory.exists());
    let flags = ["init", "--directory", &at, "--password-file", &from];
    let (code, out) = run(&flags);
    assert!(code == Some(0) && out.contains("has begun"), "{out}");
    let (code, out) = run(&flags);
    assert!(code == Some(1) && out.contains("is not empty"), "{out}");
    let (code, out) = run(&[&flags[..], &["--if-new"]].concat());
    assert!(code == Some(0) && out.contains("in use already"), "{out}");
    let empty = place.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let other = place.path().join("other");
    let (code, out) = run(&["init", "--directory", &path(&other), "--password-file", &path(&empty)]);
    assert!(code == Some(1) && out.contains("1 to 1024 bytes") && !other.exists(), "{out}");

    let node = serve().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address: std::net::SocketAddr = node.ready().sql.as_ref().unwrap().parse().unwrap();
    let connect = |password: &str| {
        let mut config = tokio_postgres::Config::new();
        config.host(address.ip().to_string()).port(address.port()).user("freshet").password(password);
        runtime.block_on(config.connect(tokio_postgres::NoTls)).map(drop)
    };
    connect("it's \"secret\"").unwrap();
    connect("secret").unwrap_err();
}
