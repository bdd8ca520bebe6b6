//! Nodes for a while: processes in a directory that goes with them, as the demo and a rehearsal
//! need them.

pub mod net;

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use freshet_membership::{Files, Grant};
use serde_json::Value;
use tempfile::TempDir;

use self::net::{Net, Way};
use crate::{
    Failure,
    children::{NodeProcess, Ready, SpawnError},
    client::{Client, ClientError},
    config::Settings,
    memory, process,
    sql_client::Session,
};

/// The role of all sessions, unless another one is named.
pub(crate) const USER: &str = "freshet";
/// How long a node may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a token is valid.
const HOUR: Duration = Duration::from_secs(3600);
/// A process that could not start is started again after this, as supervisors have it, and so
/// often.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
const ATTEMPTS: u32 = 10;

/// What nodes there are to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan<'a> {
    /// The name of their directory begins so.
    pub(crate) prefix: &'a str,
    /// Where that directory is made. [default: where temporary files go]
    pub(crate) base: Option<&'a Path>,
    /// How many have data.
    pub(crate) nodes: usize,
    /// Whether a witness is the last one, after them.
    pub(crate) witness: bool,
    /// Whether each has a network namespace of its own.
    pub(crate) net: bool,
    /// Whether disks can be told to fail.
    pub(crate) disks: bool,
    /// Of each node with data.
    pub(crate) flags: Vec<OsString>,
    /// How long one may take until it serves.
    pub(crate) start: Duration,
}

struct Node {
    process: Option<NodeProcess>,
    /// It stands still.
    paused: bool,
    /// Where it was when it served last.
    ready: Option<Ready>,
}

/// Nodes, dead or alive, by number. All end with this value, and their directories with them.
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    witness: bool,
    net: Option<Net>,
    disks: bool,
    flags: Vec<OsString>,
    start: Duration,
    directory: TempDir,
    /// Where the Unix sockets are: a short path, since names of sockets have little room.
    sockets: TempDir,
}

impl Nodes {
    /// Prepares them; none runs yet.
    ///
    /// # Errors
    /// When there can be no directory, or no network.
    pub(crate) fn prepare(plan: &Plan<'_>) -> Result<Self, Failure> {
        let base = plan.base.map_or_else(std::env::temp_dir, PathBuf::from);
        let directory = tempfile::Builder::new().prefix(plan.prefix).tempdir_in(&base).map_err(|cause| {
            Failure::new(format!("cannot make a directory in {}: {cause}; choose another --dir", base.display()))
        })?;
        let all = plan.nodes + usize::from(plan.witness);
        // They share this machine.
        let share = memory::limit(&Settings::default(), process::available_bytes()) / plan.nodes.max(1) as u64;
        let share = [OsString::from("--memory-bytes"), share.to_string().into()];
        Ok(Self {
            nodes: (0..all).map(|_| Node { process: None, paused: false, ready: None }).collect(),
            witness: plan.witness,
            net: plan.net.then(|| Net::prepare(all)).transpose()?,
            disks: plan.disks,
            flags: share.into_iter().chain(plan.flags.iter().cloned()).collect(),
            start: plan.start,
            directory,
            sockets: tempfile::tempdir()?,
        })
    }

    /// How many have data.
    pub(crate) fn size(&self) -> usize {
        self.nodes.len() - usize::from(self.witness)
    }

    /// Whether this one is the witness.
    fn is_witness(&self, node: usize) -> bool {
        node == self.size()
    }

    /// What people call it.
    pub(crate) fn name(&self, node: usize) -> String {
        if self.is_witness(node) { "the witness".to_owned() } else { char::from(b'a' + node as u8).to_string() }
    }

    /// Where it keeps its data.
    pub(crate) fn directory(&self, node: usize) -> PathBuf {
        self.directory.path().join(if self.is_witness(node) { "witness".to_owned() } else { self.name(node) })
    }

    /// The file that says how its disk is.
    fn disk(&self, node: usize) -> PathBuf {
        self.directory(node).with_extension("disk")
    }

    /// Keeps the directories, and beside them what the nodes have said lately; says where they are.
    /// Ends all processes.
    pub(crate) fn keep(self) -> PathBuf {
        for node in 0..self.nodes.len() {
            // For people, who have the directory without them, too.
            let _ = fs::write(self.directory(node).with_extension("messages"), self.messages(node));
        }
        drop(self.nodes);
        self.directory.keep()
    }

    fn flags(&self, node: usize, join: Option<usize>) -> Result<Vec<OsString>, Failure> {
        let directory = self.directory(node);
        let is_new = !directory.exists();
        let mut flags: Vec<OsString> = vec!["--directory".into(), directory.clone().into()];
        let any = "127.0.0.1:0".to_owned();
        // Once it has addresses, it keeps them.
        let [address, listen, sql] = match (&self.nodes[node].ready, &self.net) {
            (Some(ready), _) => [ready.address.clone(), ready.listen.clone(), ready.sql.clone().unwrap_or(any)],
            (None, Some(_)) => Net::addresses(node).map(|address| address.to_string()),
            (None, None) => [any.clone(), any.clone(), any],
        };
        flags.extend(["--listen".into(), listen.into()]);
        if !self.is_witness(node) {
            flags.extend(["--address".into(), address.into(), "--sql-listen".into(), sql.into()]);
            flags.extend(["--sql-socket-directory".into(), self.sockets.path().into()]);
            flags.extend(self.flags.iter().cloned());
            if self.disks {
                flags.extend(["--disk-fault".into(), self.disk(node).into()]);
            }
        }
        match join {
            Some(member) => {
                flags.extend(["--join".into(), self.listen(member)?.into()]);
                if self.net.is_some() && !Files::in_directory(&directory).exist() {
                    let file = directory.with_extension("token");
                    fs::write(&file, self.connect(member)?.token(Grant::Node(None), HOUR, PATIENCE)?)?;
                    flags.extend(["--member-token-file".into(), file.into()]);
                }
            }
            None if is_new => flags.push("--new-cluster".into()),
            None => {}
        }
        Ok(flags)
    }

    /// A process for a node, when it serves.
    fn begin(&self, node: usize, join: Option<usize>) -> Result<NodeProcess, Failure> {
        let (flags, program) = (self.flags(node, join)?, std::env::current_exe()?);
        let begin = || match self.is_witness(node) {
            true => NodeProcess::start_witness(&program, flags.clone(), self.start),
            false => NodeProcess::start(&program, flags.clone(), self.start),
        };
        let mut attempts = 0;
        loop {
            match self.at(node, begin)? {
                Ok(process) => return Ok(process),
                // Another process may have its port for a moment.
                Err(SpawnError::Ended { .. }) if attempts < ATTEMPTS && self.nodes[node].ready.is_some() => {
                    attempts += 1;
                    thread::sleep(AGAIN_AFTER);
                }
                Err(cause) => return Err(cause.into()),
            }
        }
    }

    fn began(&mut self, node: usize, process: NodeProcess) {
        let ready = Some(process.ready().clone());
        self.nodes[node] = Node { process: Some(process), paused: false, ready };
    }

    /// Starts a node and waits until it serves: a new one founds a cluster or joins one, an old one
    /// comes as it was, unless it is told whom to join.
    ///
    /// # Errors
    /// When it does not serve in time.
    pub(crate) fn start(&mut self, node: usize, join: Option<usize>) -> Result<(), Failure> {
        let process = self.begin(node, join)?;
        self.began(node, process);
        Ok(())
    }

    /// Starts all that do not run, as they were, at the same time, and waits until they serve.
    ///
    /// # Errors
    /// When one does not in time.
    pub(crate) fn start_dead(&mut self) -> Result<(), Failure> {
        let dead: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].process.is_none()).collect();
        let this = &*self;
        let begun: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = dead.iter().map(|node| scope.spawn(|| this.begin(*node, None))).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        for (node, process) in dead.into_iter().zip(begun) {
            self.began(node, process.map_err(|_| Failure::new("a thread that starts a node panicked"))??);
        }
        Ok(())
    }

    /// Does it where a node is.
    fn at<T: Send>(&self, node: usize, deed: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        match &self.net {
            Some(net) => net.at(node, deed),
            None => Ok(deed()),
        }
    }

    fn process(&self, node: usize) -> Result<&NodeProcess, Failure> {
        let process = self.nodes[node].process.as_ref();
        process.ok_or_else(|| Failure::new(format!("node {} does not run", self.name(node))))
    }

    /// Where other nodes reach it.
    pub(crate) fn listen(&self, node: usize) -> Result<String, Failure> {
        Ok(self.process(node)?.ready().listen.clone())
    }

    /// Its control port.
    pub(crate) fn address(&self, node: usize) -> &str {
        self.nodes[node].ready.as_ref().map_or("", |ready| &ready.address)
    }

    /// Where SQL clients connect.
    pub(crate) fn sql_socket(&self, node: usize) -> Result<&Path, Failure> {
        let socket = self.nodes[node].ready.as_ref().and_then(|ready| ready.sql_socket.as_deref());
        socket.ok_or_else(|| Failure::new(format!("node {} serves no SQL", self.name(node))))
    }

    /// A session with a node.
    pub(crate) fn session(&self, node: usize) -> Result<Session, Failure> {
        Ok(Session::open(self.sql_socket(node)?, USER, PATIENCE)?)
    }

    /// The number of its process; 0 if it is dead.
    pub(crate) fn pid(&self, node: usize) -> u32 {
        self.nodes[node].process.as_ref().map_or(0, |process| process.pid())
    }

    /// Whether it runs, and does not stand still.
    pub(crate) fn is_at_work(&self, node: usize) -> bool {
        self.nodes[node].process.is_some() && !self.nodes[node].paused
    }

    /// Connects to its control port, however long it takes to be there, within [`PATIENCE`].
    pub(crate) fn connect(&self, node: usize) -> Result<Client, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.at(node, || Client::connect(self.address(node), Duration::from_secs(2)))? {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// What it says of itself now, if it answers within two seconds.
    pub(crate) fn status(&self, node: usize) -> Option<Value> {
        let patience = Duration::from_secs(2);
        let ask = || Client::connect(self.address(node), patience)?.status(patience);
        let asked: Result<String, ClientError> = self.is_at_work(node).then(|| self.at(node, ask).ok())??;
        serde_json::from_str(&asked.ok()?).ok()
    }

    /// What its process has said lately.
    pub(crate) fn messages(&self, node: usize) -> String {
        self.nodes[node].process.as_ref().map(|process| process.messages()).unwrap_or_default()
    }

    /// How nodes have ended that were not killed, with the last that they said.
    pub(crate) fn ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        for number in 0..self.nodes.len() {
            let name = self.name(number);
            let node = &mut self.nodes[number];
            if let Some(status) = node.process.as_mut().and_then(|process| process.ended())
                && let Some(process) = node.process.take()
            {
                let last = process.messages().lines().next_back().unwrap_or("nothing").to_owned();
                ended.push(format!("node {name} ended by itself ({status}): {last}"));
            }
        }
        ended
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, node: usize) {
        if let Some(mut process) = self.nodes[node].process.take() {
            process.kill();
        }
    }

    /// SIGKILL for all, one right after the other.
    pub(crate) fn kill_all(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.kill(node));
    }

    /// SIGSTOP.
    pub(crate) fn pause(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.process.iter().for_each(|process| process.pause());
        node.paused = true;
    }

    /// Cuts a node from this other one, or from all.
    ///
    /// # Errors
    /// When there is no network to cut.
    pub(crate) fn cut(&self, node: usize, other: Option<usize>, way: Way) -> Result<(), Failure> {
        let net = self.net.as_ref().ok_or_else(|| Failure::new("there is no network to cut"))?;
        net.cut(node, &other.map_or_else(|| net.others(node), |other| vec![other]), way)
    }

    /// The disk of a node's log is [`FULL`](freshet_log::medium::FULL) or
    /// [`DEAD`](freshet_log::medium::DEAD) from now on.
    ///
    /// # Errors
    /// When it cannot be told so.
    pub(crate) fn break_disk(&self, node: usize, how: &str) -> Result<(), Failure> {
        Ok(fs::write(self.disk(node), how)?)
    }

    /// All disks work and all cables are whole, and those that stand still continue.
    ///
    /// # Errors
    /// When a disk cannot be told so, or the network does not heal.
    pub(crate) fn heal(&mut self) -> Result<(), Failure> {
        for disk in (0..self.size()).map(|node| self.disk(node)) {
            match fs::remove_file(disk) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause.into()),
                _ => {}
            }
        }
        for node in self.nodes.iter_mut().filter(|node| node.paused) {
            node.process.iter().for_each(|process| process.resume());
            node.paused = false;
        }
        self.net.as_ref().map_or(Ok(()), Net::heal)
    }

    /// Ends a node cleanly; says whether it did so.
    pub(crate) fn stop(&mut self, node: usize) -> bool {
        let process = self.nodes[node].process.take();
        process.is_some_and(|mut process| process.stop(PATIENCE).is_ok_and(|status| status.success()))
    }
}
