//! A node in a process of its own that is measured.

use std::{
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use freshet::children::NodeProcess;

use crate::{
    client::Client,
    common::{SOON, open_sql, start},
};

/// A node, and what it held when nobody was connected.
pub struct Subject {
    node: NodeProcess,
    directory: tempfile::TempDir,
    /// Where its access file is.
    access: tempfile::TempDir,
    before: Held,
}

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    threads: usize,
    descriptors: usize,
}

fn start_open(directory: &tempfile::TempDir, access: &tempfile::TempDir, more: &[&str]) -> NodeProcess {
    let flags = open_sql(&access.path().join("access"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    start(directory.path(), &flags)
}

impl Subject {
    /// Starts a node that takes this many sessions.
    pub fn start(connections: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let connections = connections.to_string();
        let access = tempfile::tempdir().unwrap();
        let node = start_open(&directory, &access, &["--sql-connections", &connections]);
        let mut subject = Self { node, directory, access, before: Held { threads: 0, descriptors: 0 } };
        // What is made with the first session stays.
        let mut client = subject.connect();
        client.run(
            "CREATE TABLE t (id int PRIMARY KEY, a int, b text); INSERT INTO t VALUES (1, 1, 'one'), (2, 2, 'two');
             CREATE TABLE big (id int PRIMARY KEY, a int);
             INSERT INTO big SELECT g, g FROM generate_series(1, 5000) g;
             CREATE ROLE ann LOGIN PASSWORD 'pencil'; CREATE ROLE bob;",
        );
        drop(client);
        let mut last = None;
        eventually("a node at rest", || {
            let now = subject.held();
            std::thread::sleep(Duration::from_millis(100));
            last.replace(now) == Some(now)
        });
        subject.before = subject.held();
        subject
    }

    pub fn address(&self) -> SocketAddr {
        self.node.ready().sql.as_deref().unwrap().parse().unwrap()
    }

    /// A session of the superuser. Seats of clients that have just left are free in a moment.
    pub fn connect(&self) -> Client {
        let mut opened = None;
        eventually("a session", || match Client::open(self.address(), "freshet") {
            Ok(client) => {
                opened = Some(client);
                true
            }
            Err(state) => {
                assert_eq!(state, "53300");
                false
            }
        });
        opened.unwrap()
    }

    fn held(&self) -> Held {
        let count = |what: &str| fs::read_dir(format!("/proc/{}/{what}", self.node.pid())).map_or(0, Iterator::count);
        Held { threads: count("task"), descriptors: count("fd") }
    }

    /// Lets the process have this many descriptors more than it has now.
    pub fn allow_descriptors(&self, more: usize) {
        let pid = rustix::process::Pid::from_raw(self.node.pid().cast_signed());
        let limit = Some((self.held().descriptors + more) as u64);
        let limit = rustix::process::Rlimit { current: limit, maximum: limit };
        rustix::process::prlimit(pid, rustix::process::Resource::Nofile, limit).unwrap();
    }

    /// The memory that the process has, in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.node.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    /// Asks the node to end by a signal, and returns what it has said.
    ///
    /// # Panics
    /// When it does not end, or as if all had been well.
    pub fn end(&mut self) -> String {
        let status = self.node.stop(SOON).unwrap();
        assert_eq!(status.code(), Some(1), "{status}: {}", self.node.messages());
        self.node.messages()
    }

    /// Starts a node that has ended again.
    pub fn start_again(&mut self) {
        self.node = start_open(&self.directory, &self.access, &[]);
    }

    /// The node answers, has said nothing of a panic, and holds no more than at first.
    ///
    /// # Panics
    /// When that is not so.
    pub fn assert_unharmed(&mut self) {
        assert!(self.node.ended().is_none(), "the node has ended: {}", self.node.messages());
        assert_eq!(self.connect().rows("SELECT count(*) FROM t"), [["2"]]);
        let mut client = self.connect();
        eventually("no other session", || {
            client.rows("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") == [["1"]]
        });
        eventually("no lock", || client.rows("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [["0"]]);
        drop(client);
        let before = self.before;
        eventually_or(
            || {
                let now = self.held();
                now.threads <= before.threads && now.descriptors <= before.descriptors
            },
            || panic!("{:?} are held instead of {before:?}", self.held()),
        );
        let messages = self.node.messages();
        assert!(!messages.contains("panicked") && !messages.contains("overflow"), "{messages}");
    }
}

/// Waits until something is so.
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_or(holds, || panic!("{what}: not so after {SOON:?}"));
}

fn eventually_or(mut holds: impl FnMut() -> bool, otherwise: impl FnOnce()) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        if Instant::now() >= deadline {
            return otherwise();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
