//! What the tests with etcd share.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use freshet::children::NodeProcess;
use freshet_etcd::{Etcd, EtcdConfig};
use freshet_testing::{Missing, ports::reserve, skip};
use serde_json::Value;

use crate::common::{SOON, in_sync, start};

/// How long one question to etcd may take.
pub const ASKS: Duration = Duration::from_secs(2);

/// A member of etcd, which ends with the thread of its test.
pub struct Server {
    name: String,
    /// The names of all members, and where they reach each other.
    members: String,
    pub directory: PathBuf,
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Child>,
}

impl Server {
    /// Starts one with nothing in it, of one member; none where etcd is missing.
    pub fn start(directory: &Path) -> Option<Self> {
        Self::start_members(directory, 1)?.pop()
    }

    /// Starts one of several members.
    pub fn start_members(directory: &Path, count: usize) -> Option<Vec<Self>> {
        let is_there = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
        if is_there.is_err() {
            skip(Missing::Tool, "etcd in the place of a witness", "etcd is not installed");
            return None;
        }
        let reserved: Vec<_> = (0..count).map(|number| (format!("etcd{number}"), reserve().unwrap())).collect();
        let members: Vec<_> = reserved.iter().map(|(name, peer)| format!("{name}=http://{peer}")).collect();
        let made = reserved.into_iter().map(|(name, peer)| Self {
            directory: directory.join(&name),
            name,
            members: members.join(","),
            client: reserve().unwrap(),
            peer,
            process: None,
        });
        let mut made: Vec<_> = made.collect();
        made.iter_mut().for_each(Self::spawn);
        made.iter().for_each(Self::wait);
        Some(made)
    }

    /// Starts it again, with what it has.
    pub fn run(&mut self) {
        self.spawn();
        self.wait();
    }

    fn spawn(&mut self) {
        let url = |address: SocketAddr| format!("http://{address}");
        let (client, peer) = (url(self.client), url(self.peer));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "etcd", "--data-dir"]).arg(&self.directory).args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
            "--name",
            &self.name,
            "--initial-cluster",
            &self.members,
        ]);
        let output = std::fs::File::create(self.directory.with_extension("log")).unwrap();
        let errors = output.try_clone().unwrap();
        self.process = Some(command.stdout(output).stderr(errors).stdin(Stdio::null()).spawn().unwrap());
    }

    /// Blocks until it answers, for which it needs most of the others.
    fn wait(&self) {
        let deadline = Instant::now() + SOON;
        while self.reader().read("any", ASKS).is_err() {
            assert!(Instant::now() < deadline, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.client)
    }

    pub fn reader(&self) -> Etcd {
        Etcd::new(EtcdConfig { endpoints: vec![self.endpoint()], ..EtcdConfig::default() }).unwrap()
    }

    /// From now on it lets in the user `freshet` with its password alone (and `root`).
    pub fn demand_passwords(&self) {
        let post = |path: &str, body: String| {
            let mut stream = TcpStream::connect(self.client).unwrap();
            let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(" 200 OK"), "{path} {body}: {answer}");
        };
        for user in ["root", "freshet"] {
            post("/v3/auth/user/add", format!(r#"{{"name": "{user}", "password": "secret:with colon"}}"#));
            post("/v3/auth/role/add", format!(r#"{{"name": "{user}"}}"#));
            post("/v3/auth/user/grant", format!(r#"{{"user": "{user}", "role": "{user}"}}"#));
        }
        // All keys from "/freshet/" up to "/freshet0".
        let keys = r#""key": "L2ZyZXNoZXQv", "range_end": "L2ZyZXNoZXQw""#;
        post("/v3/auth/role/grant", format!(r#"{{"name": "freshet", "perm": {{"permType": "READWRITE", {keys}}}}}"#));
        post("/v3/auth/enable", "{}".into());
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Kills it, and puts what it has to `to`.
    pub fn move_to(&mut self, to: &Path) {
        self.kill();
        std::fs::rename(&self.directory, to).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

pub const AUTOMATIC: [&str; 4] = ["--failover", "automatic", "--standby-timeout-ms", "1000"];

pub fn node(directory: &Path, etcd: &str, more: &[&str]) -> NodeProcess {
    start(directory, &[&AUTOMATIC[..], &["--witness-etcd", etcd], more].concat())
}

pub fn votes(status: &Value) -> bool {
    status["witness"]["connected"] == true && status["witness"]["votes"] == true
}

pub fn is_whole(status: &Value) -> bool {
    votes(status) && in_sync(status) == 1
}
