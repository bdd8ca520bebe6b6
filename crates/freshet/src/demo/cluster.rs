//! The three nodes of the demo.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use freshet_base::{Consent, Lsn};
use freshet_log::inspect::{Finding, Inspection};
use serde_json::Value;
use tempfile::TempDir;

use super::Teller;
use crate::{Failure, children::NodeProcess, client::Client, interruption::Interruption, sql_client::Session, units};

/// How long a node may take for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The role of all sessions.
pub(crate) const USER: &str = "freshet";

/// The names of the three nodes, and of their directories.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three nodes, in processes of their own, and their directories. All end with it.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    primary: usize,
    directory: TempDir,
    /// How many sessions each node serves.
    sessions: usize,
}

struct Node {
    process: Option<NodeProcess>,
    address: String,
}

impl Cluster {
    /// Starts a primary and two standbys.
    pub(crate) fn start(base: Option<&Path>, sessions: usize, teller: &Teller) -> Result<Self, Failure> {
        let base = base.map_or_else(std::env::temp_dir, PathBuf::from);
        let directory = tempfile::Builder::new().prefix("freshet-demo-").tempdir_in(&base).map_err(|cause| {
            Failure::new(format!("cannot make a directory in {}: {cause}; choose another --dir", base.display()))
        })?;
        let mut cluster = Self { nodes: Vec::new(), primary: 0, directory, sessions };
        for number in 0..NAMES.len() {
            let join = cluster.nodes.first().and_then(|first| first.process.as_ref());
            let join = join.map(|process| process.ready().listen.clone());
            let process = cluster.spawn(number, join.as_deref())?;
            let address = process.ready().address.clone();
            cluster.nodes.push(Node { process: Some(process), address });
        }
        let pids: Vec<String> = (0..NAMES.len())
            .map(|number| format!("{} ({}, pid {})", NAMES[number], cluster.address(number), cluster.pid(number)))
            .collect();
        teller.print(format!("three nodes run: primary {}, standbys {} and {}", pids[0], pids[1], pids[2]));
        Ok(cluster)
    }

    fn spawn(&self, number: usize, join: Option<&str>) -> Result<NodeProcess, Failure> {
        let directory = self.directory.path().join(NAMES[number]).into_os_string();
        let mut flags: Vec<OsString> = ["--directory".into(), directory].into();
        let (any, sessions) = ("127.0.0.1:0", self.sessions.to_string());
        for (name, value) in [
            ("--address", any),
            ("--listen", any),
            ("--sql-listen", any),
            ("--sql-connections", &sessions),
            // The demo shows how an operator promotes a node.
            ("--failover", "manual"),
            ("--replay-threads", "1"),
        ] {
            flags.extend([name.into(), value.into()]);
        }
        match join {
            Some(join) => flags.extend(["--join".into(), join.into()]),
            None => flags.push("--new-cluster".into()),
        }
        Ok(NodeProcess::start(&std::env::current_exe()?, flags, PATIENCE)?)
    }

    /// How many nodes there are, dead or alive.
    pub(crate) fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Which one is the primary.
    pub(crate) fn primary(&self) -> usize {
        self.primary
    }

    /// The standbys that are alive.
    pub(crate) fn standbys(&self) -> Vec<usize> {
        (0..self.size()).filter(|number| *number != self.primary && self.nodes[*number].process.is_some()).collect()
    }

    pub(crate) fn name(&self, number: usize) -> &'static str {
        NAMES[number]
    }

    /// The control port of a node.
    pub(crate) fn address(&self, number: usize) -> &str {
        &self.nodes[number].address
    }

    /// Where its SQL clients connect.
    pub(crate) fn sql_socket(&self, number: usize) -> Result<&Path, Failure> {
        let process = self.nodes[number].process.as_ref();
        let socket = process.and_then(|process| process.ready().sql_socket.as_deref());
        socket.ok_or_else(|| Failure::new(format!("node {} serves no SQL", self.name(number))))
    }

    /// A session with a node.
    pub(crate) fn session(&self, number: usize) -> Result<Session, Failure> {
        Ok(Session::open(self.sql_socket(number)?, USER, PATIENCE)?)
    }

    fn pid(&self, number: usize) -> u32 {
        self.nodes[number].process.as_ref().map_or(0, |process| process.pid())
    }

    pub(crate) fn connect(&self, number: usize) -> Result<Client, Failure> {
        Ok(super::connect_patiently(self.address(number), PATIENCE)?)
    }

    pub(crate) fn status(&self, number: usize) -> Result<Value, Failure> {
        Ok(serde_json::from_str(&self.connect(number)?.status(PATIENCE)?)?)
    }

    /// Blocks until the primary counts on this many standbys.
    pub(crate) fn wait_in_sync(&self, standbys: usize, interruption: &Interruption) -> Result<(), Failure> {
        let client = self.connect(self.primary)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            interruption.check()?;
            let status: Value = serde_json::from_str(&client.status(PATIENCE)?)?;
            let list = status["standbys"].as_array().map_or(&[][..], Vec::as_slice);
            let in_sync = list.iter().filter(|standby| standby["in_sync"] == true && standby["connected"] == true);
            if in_sync.count() >= standbys {
                return Ok(());
            }
            if Instant::now() > deadline {
                let messages: Vec<String> = self
                    .nodes
                    .iter()
                    .filter_map(|node| node.process.as_ref().map(|process| process.messages()))
                    .filter(|messages| !messages.is_empty())
                    .collect();
                return Err(Failure::new(format!(
                    "the standbys do not come into sync: {status}; the nodes say: {}",
                    messages.join("; ")
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills a node's process with SIGKILL.
    pub(crate) fn kill(&mut self, number: usize) {
        if let Some(mut process) = self.nodes[number].process.take() {
            process.kill();
        }
    }

    /// Makes the next living standby the primary; returns its term and where that begins.
    pub(crate) fn promote_next(&mut self) -> Result<(u32, Lsn), Failure> {
        let next = *self.standbys().first().ok_or_else(|| Failure::new("no standby is left"))?;
        let promoted = self.connect(next)?.promote(Consent::Nothing, PATIENCE)?;
        self.primary = next;
        Ok(promoted)
    }

    /// Starts a dead node again, as a standby of the present primary.
    pub(crate) fn restart_as_standby(&mut self, number: usize, teller: &Teller) -> Result<(), Failure> {
        let primary = self.nodes[self.primary].process.as_ref().map(|process| process.ready().listen.clone());
        let process = self.spawn(number, primary.as_deref())?;
        self.nodes[number] = Node { address: process.ready().address.clone(), process: Some(process) };
        let (name, primary) = (self.name(number), self.name(self.primary));
        teller.print(format!("{name} is back, on the log it died with, as a standby of {primary}"));
        Ok(())
    }

    /// Prints what became of the end of the old primary's log.
    pub(crate) fn print_saved_tail(&self, number: usize, teller: &Teller) -> Result<(), Failure> {
        let name = self.name(number);
        let status = self.status(number)?;
        let tails = status["saved_tails"].as_array().map_or(&[][..], Vec::as_slice);
        for tail in tails.iter().filter_map(Value::as_str) {
            let mut blocks = 0;
            for finding in Inspection::open(Path::new(tail))? {
                blocks += u64::from(matches!(finding?, Finding::Block { .. }));
            }
            let bytes = units::bytes(std::fs::metadata(tail)?.len());
            teller.print(format!(
                "{name} had {blocks} blocks that no client was told of: they are cut off, and saved in a file of {bytes}"
            ));
        }
        if tails.is_empty() {
            teller.print(format!("{name} had nothing in its log that {} did not have", self.name(self.primary)));
        }
        Ok(())
    }

    /// Ends all nodes cleanly.
    pub(crate) fn stop(mut self, teller: &Teller) {
        let mut clean = 0;
        // Standbys first, so that the primary can still ship what it flushes.
        let mut order = self.standbys();
        order.push(self.primary);
        for number in order {
            if let Some(mut process) = self.nodes[number].process.take() {
                clean += usize::from(process.stop(PATIENCE).is_ok_and(|status| status.success()));
            }
        }
        teller.print(format!("{clean} nodes have ended cleanly"));
    }
}
