//! The nodes of a torture: processes with fixed command lines, and a supervisor that starts
//! whatever ends again.

use std::{
    fmt::Write as _,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use freshet_log::inspect::{Finding, Inspection};
use freshet_testing::ports;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    history::{Deed, History},
    shape::Shape,
    witness::Witness,
};
use crate::processes::{self, AGAIN_AFTER, STATUS};
use freshet::{
    Failure,
    children::{Process, SERVE},
    client::{Client, ClientError},
    throwaway::net::Net,
    verify::state,
};
use freshet_engine::Consent;

/// How long a node may take to come up the first time.
pub(super) const FIRST_START: Duration = Duration::from_secs(60);
/// How long a node may take to end in order.
pub(super) const ENDING: Duration = Duration::from_secs(60);

/// What a node says when something speaks against its state, even if it begins again with another.
const DOUBT: &str = "the state of this node is in doubt";

/// A process and what is wanted of it.
#[derive(Default)]
struct Slot {
    process: Option<Process>,
    /// Whether the supervisor is to start it when it does not run.
    wanted: bool,
    /// It stands still.
    stopped: bool,
    /// When it may be started again.
    not_before: Option<Instant>,
    /// It is a mirror as long as its directory is empty.
    mirror: bool,
    /// It began again with an empty directory, and was told to join this node.
    joins: Option<usize>,
    /// And to begin with the checkpoint of this one.
    begins_from: Option<usize>,
}

impl Slot {
    fn began(&mut self, process: Process) {
        let Self { mirror, joins, begins_from, .. } = *self;
        *self = Self { process: Some(process), wanted: true, mirror, joins, begins_from, ..Self::default() };
    }
}

struct Spec {
    directory: PathBuf,
    /// Where the memory of a mirror is, if it outlives the process.
    memory: PathBuf,
    address: SocketAddr,
    listen: SocketAddr,
    sql: SocketAddr,
    /// Where its SQL sessions are.
    socket: PathBuf,
}

/// The nodes, their addresses and directories.
pub(super) struct Cluster<'a> {
    shape: &'a Shape,
    pub(super) history: &'a History,
    names: Vec<String>,
    specs: Vec<Spec>,
    /// Where the nodes have their Unix sockets.
    sockets: TempDir,
    slots: Vec<Mutex<Slot>>,
    /// If cables are to be cut.
    pub(super) net: Option<Net>,
    /// If there is one.
    pub(super) witness: Option<Witness>,
    /// Which node was the primary at the last look.
    last_primary: AtomicU64,
    over: AtomicBool,
    /// A node's memory was damaged on purpose.
    pub(super) damaged: AtomicBool,
    /// How many nodes have ended by themselves.
    pub(super) ended_alone: AtomicU64,
}

impl<'a> Cluster<'a> {
    /// Prepares nodes below `directory`; none runs yet.
    pub(super) fn prepare(directory: &Path, shape: &'a Shape, history: &'a History) -> Result<Self, Failure> {
        let net = shape.cut.then(|| Net::prepare(shape.nodes + usize::from(shape.witness))).transpose()?;
        let reserved = || Ok([ports::reserve()?, ports::reserve()?, ports::reserve()?]);
        let addresses = |end| if net.is_some() { Ok(Net::addresses(end)) } else { reserved() };
        let ports = (0..shape.nodes).map(addresses).collect::<io::Result<Vec<_>>>()?;
        // A short path, whatever the data's is: names of sockets have little room.
        let sockets = tempfile::tempdir()?;
        let names: Vec<String> = (0..shape.nodes).map(|node| char::from(b'a' + node as u8).to_string()).collect();
        let spec = |node: usize| Spec {
            directory: directory.join(&names[node]),
            memory: directory.join(&names[node]).with_extension("memory"),
            address: ports[node][0],
            listen: ports[node][1],
            sql: ports[node][2],
            socket: sockets.path().join(format!(".s.PGSQL.{}", ports[node][2].port())),
        };
        Ok(Self {
            shape,
            history,
            specs: (0..shape.nodes).map(spec).collect(),
            sockets,
            slots: shape.mirrors.iter().map(|mirror| Mutex::new(Slot { mirror: *mirror, ..Slot::default() })).collect(),
            names,
            witness: match shape.witness {
                true => Some(Witness::prepare(directory, addresses(shape.nodes)?[1])),
                false => None,
            },
            net,
            last_primary: AtomicU64::new(0),
            over: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            ended_alone: AtomicU64::new(0),
        })
    }

    /// Starts all nodes and blocks until they serve.
    pub(super) fn start(&self) -> Result<(), Failure> {
        for node in 0..self.names.len() {
            let (process, ready) = self.spawn(node, (SERVE, &self.specs[node].directory), self.flags(node))?;
            if ready.recv_timeout(FIRST_START).is_err() {
                return Err(Failure::new(format!("node {} does not start: {}", self.names[node], process.messages())));
            }
            self.slot(node).began(process);
        }
        self.start_witness(self.specs[0].listen)
    }

    pub(super) fn shape(&self) -> &Shape {
        self.shape
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Where a node listens for others.
    pub(super) fn listens(&self, node: usize) -> SocketAddr {
        self.specs[node].listen
    }

    /// Where each node's SQL sessions are.
    pub(super) fn sql(&self) -> Vec<PathBuf> {
        self.specs.iter().map(|spec| spec.socket.clone()).collect()
    }

    fn slot(&self, node: usize) -> MutexGuard<'_, Slot> {
        self.slots[node].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The command line of a node, always the same, unless those who restart are told who leads.
    fn flags(&self, node: usize) -> Vec<String> {
        let spec = &self.specs[node];
        let others = self.specs.iter().enumerate().filter(|(other, _)| *other != node);
        let peers: Vec<String> = others.map(|(_, spec)| spec.listen.to_string()).collect();
        let (mirror, joins, begins_from) = {
            let slot = self.slot(node);
            (slot.mirror, slot.joins, slot.begins_from)
        };
        let mut flags = self.shape.flags(node, mirror);
        if mirror && self.shape.in_files {
            flags.extend(["--mirror-keep-dir".to_owned(), spec.memory.display().to_string()]);
        }
        if let Some(from) = begins_from.filter(|_| !mirror) {
            flags.extend(["--bootstrap-from".to_owned(), self.specs[from].listen.to_string()]);
        }
        for (name, value) in [
            ("--directory", spec.directory.display().to_string()),
            ("--address", spec.address.to_string()),
            ("--listen", spec.listen.to_string()),
            ("--sql-listen", spec.sql.to_string()),
            ("--sql-socket-directory", self.sockets.path().display().to_string()),
        ] {
            flags.extend([name.to_owned(), value]);
        }
        flags.extend(["--peers".to_owned(), peers.join(",")]);
        let leads = || self.primary().unwrap_or_else(|| self.last_primary());
        let may_lead = node < self.shape.counted;
        let primary = if self.shape.rejoin && may_lead { leads() } else { joins.unwrap_or(self.shape.joins(node)) };
        if node != primary {
            flags.extend(["--join".to_owned(), self.specs[primary].listen.to_string()]);
        } else if node == 0 {
            // The first start, beside --peers.
            flags.push("--new-cluster".to_owned());
        }
        flags
    }

    /// The command line of a node, for people.
    pub(super) fn command(&self, node: usize) -> String {
        format!("freshet serve {}", self.flags(node).join(" "))
    }

    fn last_primary(&self) -> usize {
        // Relaxed: only one thread writes it, as a hint.
        self.last_primary.load(Ordering::Relaxed) as usize
    }

    /// Keeps what a process has said.
    fn keep_messages(&self, node: usize, process: &Process, how: &str) {
        let path = self.specs[node].directory.with_extension("messages");
        processes::keep_messages(&path, process, how, self.history.now());
        self.doubted(node, process).into_iter().for_each(|doubt| self.history.violated(doubt));
    }

    /// What a process has said against its state, unless that was damaged on purpose.
    fn doubted(&self, node: usize, process: &Process) -> Option<String> {
        // Relaxed: set by the thread that judges.
        if self.damaged.load(Ordering::Relaxed) {
            return None;
        }
        let messages = process.messages();
        let doubt = messages.lines().find(|line| line.contains(DOUBT))?;
        Some(format!("node {} doubted its state: {doubt}", self.names[node]))
    }

    /// Whether a node's process has said something against its state.
    #[cfg(debug_assertions)]
    pub(super) fn has_reported_doubt(&self, node: usize) -> bool {
        self.slot(node).process.as_ref().is_some_and(|process| process.messages().contains(DOUBT))
    }

    /// Starts again what has ended, until the cluster is stopped. For a thread of its own.
    pub(super) fn supervise(&self) {
        while !self.over.load(Ordering::Relaxed) {
            for node in 0..self.names.len() {
                let mut slot = self.slot(node);
                if let Some(status) = slot.process.as_mut().and_then(|process| process.ended())
                    && let Some(process) = slot.process.take()
                {
                    self.ended_by_itself(node, &process, status);
                    slot.not_before = Some(Instant::now() + AGAIN_AFTER);
                }
                let due = slot.not_before.is_none_or(|then| Instant::now() >= then);
                if !slot.wanted || slot.process.is_some() || !due {
                    continue;
                }
                // To tell a node which one leads, the others have to be asked first. In the
                // meantime the nemesis may kill, but not start.
                drop(slot);
                let flags = self.flags(node);
                let mut slot = self.slot(node);
                if slot.wanted {
                    match self.spawn(node, (SERVE, &self.specs[node].directory), flags) {
                        Ok((process, _)) => slot.began(process),
                        Err(_) => slot.not_before = Some(Instant::now() + AGAIN_AFTER),
                    }
                }
            }
            self.supervise_witness(self.specs[0].listen);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn ended_by_itself(&self, node: usize, process: &Process, status: ExitStatus) {
        // Its last words may still be on their way.
        thread::sleep(Duration::from_millis(30));
        let messages = process.messages();
        self.keep_messages(node, process, &format!("ended by itself ({status})"));
        // Relaxed: it is read when all is over.
        self.ended_alone.fetch_add(1, Ordering::Relaxed);
        let last: String = messages.lines().next_back().unwrap_or("nothing").chars().take(200).collect();
        if processes::has_crashed(status, &messages) {
            self.history.violated(format!("node {} crashed ({status}): {messages}", self.names[node]));
        } else {
            self.history.log(&format!("node {} ended by itself ({status}): {last}", self.names[node]));
        }
    }

    /// SIGKILL; it stays away until it is [wanted](Self::want) again.
    pub(super) fn kill(&self, node: usize) {
        let mut slot = self.slot(node);
        slot.wanted = false;
        if let Some(mut process) = slot.process.take() {
            process.kill();
            self.keep_messages(node, &process, "killed");
        }
        slot.stopped = false;
        drop(slot);
        self.history.did(node, Deed::Killed);
    }

    /// Lets the supervisor start it.
    pub(super) fn want(&self, node: usize) {
        let mut slot = self.slot(node);
        slot.wanted = true;
        slot.not_before = None;
    }

    /// SIGSTOP.
    pub(super) fn stop(&self, node: usize) {
        let mut slot = self.slot(node);
        if let Some(process) = &slot.process {
            process.pause();
            slot.stopped = true;
            self.history.did(node, Deed::Stopped);
        }
    }

    /// SIGCONT.
    pub(super) fn go_on(&self, node: usize) {
        let mut slot = self.slot(node);
        if slot.stopped
            && let Some(process) = &slot.process
        {
            process.resume();
            slot.stopped = false;
            self.history.did(node, Deed::Continued);
        }
    }

    /// Whether it runs and does not stand still; it may not serve yet.
    pub(super) fn is_at_work(&self, node: usize) -> bool {
        let slot = self.slot(node);
        slot.process.is_some() && !slot.stopped
    }

    /// What a node that is at work says of itself.
    pub(super) fn status(&self, node: usize) -> Option<Value> {
        let address = self.specs[node].address.to_string();
        self.is_at_work(node).then(|| self.at(node, || processes::status(&address)).ok()?)?
    }

    pub(super) fn client(&self, node: usize) -> Result<Client, ClientError> {
        let address = self.specs[node].address.to_string();
        let found = self.at(node, || processes::client(&address));
        found.unwrap_or_else(|cause| Err(ClientError::Unreachable { address, cause: cause.to_string() }))
    }

    /// The node that leads, in the latest term of those who say so.
    pub(super) fn primary(&self) -> Option<usize> {
        let leads = |node: usize| {
            let status = self.status(node)?;
            let leads = status["role"] == "primary" && status["standing"]["standing"] != "fenced";
            leads.then(|| (status["term"].as_u64().unwrap_or(0), node))
        };
        let (_, node) = (0..self.names.len()).filter_map(leads).max()?;
        self.last_primary.store(node as u64, Ordering::Relaxed);
        Some(node)
    }

    /// Why not all is as it should be: one primary, everybody else in sync with it, or following if
    /// it is asynchronous.
    pub(super) fn is_whole(&self) -> Result<usize, String> {
        let primary = self.primary().ok_or("there is no primary")?;
        let status = self.status(primary).ok_or("the primary does not answer")?;
        let standbys = status["standbys"].as_array().map_or(&[][..], Vec::as_slice);
        let in_sync = |standby: &&Value| standby["in_sync"] == true && standby["synchronous"] == true;
        let count = standbys.iter().filter(in_sync).count();
        let starts = |node: &usize| self.status(*node).is_none_or(|status| status["role"] == "starting");
        if let Some(node) = (0..self.names.len()).find(starts) {
            return Err(format!("node {} is starting", self.names[node]));
        }
        if count + 1 < self.shape.counted {
            return Err(format!("node {} is the primary with {count} standby(s) in sync", self.names[primary]));
        }
        if status["level_pending"].is_array() {
            return Err(format!("the level {} is not on record yet", status["wanted"]));
        }
        if status["set_pending"].is_array() {
            return Err("the in-sync set is not on record yet".into());
        }
        self.check_witness(&status)?;
        let follows = |node: usize| self.status(node).is_some_and(|status| status["link"]["link"] == "following");
        let lost = (self.shape.counted..self.names.len()).find(|node| !follows(*node));
        lost.map_or(Ok(primary), |node| Err(format!("node {} follows nobody", self.names[node])))
    }

    /// Whether all standbys of a primary have acknowledged what is durable there.
    pub(super) fn have_acknowledged(&self, primary: usize) -> bool {
        let Some(status) = self.status(primary) else { return false };
        let (durable, standbys) = (status["durable"].as_u64(), status["standbys"].as_array());
        let has = |standby: &Value| standby["acked"].as_u64() >= durable;
        durable.is_some() && standbys.is_some_and(|standbys| standbys.iter().all(has))
    }

    /// What all nodes say of themselves, for people.
    pub(super) fn statuses(&self) -> String {
        let mut all = String::new();
        for (node, name) in self.names.iter().enumerate() {
            let status = self.status(node).map_or_else(|| "no answer".to_owned(), |status| status.to_string());
            let messages = self.slot(node).process.as_ref().map(Process::messages).unwrap_or_default();
            let _ = writeln!(all, "node {name}: {status}\n{messages}");
        }
        all
    }

    /// Whether a node is a mirror, and says so.
    pub(super) fn is_mirror(&self, node: usize) -> bool {
        let may_be = self.slot(node).mirror;
        may_be && self.status(node).is_some_and(|status| status["role"] == "mirror")
    }

    /// Whether a node says that the log is not there any more that it would have to continue with.
    pub(super) fn lacks_log(&self, node: usize) -> bool {
        let status = self.status(node).filter(|status| status["role"] != "primary");
        status.is_some_and(|status| status.to_string().contains("is no longer kept"))
    }

    /// Whether a node says that it cannot follow, since it has promised its primary's term to
    /// another.
    pub(super) fn is_shut_out(&self, node: usize) -> bool {
        let failure = |status: Value| Some(status["link"]["last_failure"].as_str()?.contains("of another node"));
        self.status(node).and_then(failure) == Some(true)
    }

    /// As an operator does with a mirror that holds more than its primary, where the level permits
    /// to lose that: it gives it up. Says whether it did.
    pub(super) fn refill(&self, node: usize) -> bool {
        let holds_more = self.is_mirror(node) && self.status(node).is_some_and(|it| it["holds_more"].is_string());
        holds_more && self.client(node).is_ok_and(|client| client.refill(STATUS).is_ok())
    }

    /// As an operator does with a node that cannot continue its log: it begins again with an empty
    /// directory, and joins the primary, as what it was or as a mirror. It begins with what another
    /// node has, if one is named.
    pub(super) fn begin_again(
        &self,
        node: usize,
        primary: usize,
        as_mirror: bool,
        from: Option<usize>,
    ) -> Result<(), Failure> {
        self.kill(node);
        for directory in [&self.specs[node].directory, &self.specs[node].memory] {
            if directory.exists() {
                fs::remove_dir_all(directory)?;
            }
        }
        {
            let mut slot = self.slot(node);
            (slot.joins, slot.begins_from) = (Some(primary), from);
            slot.mirror |= as_mirror;
        }
        self.want(node);
        Ok(())
    }

    /// The node that a refused failover names, whose log is better.
    pub(super) fn named_in(&self, refusal: &str) -> Option<usize> {
        let better = refusal.contains("promote that node");
        self.specs.iter().position(|spec| better && refusal.contains(&spec.listen.to_string()))
    }

    /// Makes a node the primary.
    pub(super) fn promote(&self, node: usize, patience: Duration) -> Result<u32, ClientError> {
        let (term, _) = self.client(node)?.promote(Consent::Nothing, patience)?;
        self.promoted(node);
        Ok(term)
    }

    fn promoted(&self, node: usize) {
        self.last_primary.store(node as u64, Ordering::Relaxed);
        self.history.did(node, Deed::Promoted);
    }

    /// What speaks against the states of nodes, by what they say themselves, and the first record
    /// that differs between the primary and another node that shows something.
    pub(super) fn doubts(&self, primary: usize, patience: Duration) -> Result<Vec<String>, Failure> {
        let mut doubts = Vec::new();
        for (node, name) in self.names.iter().enumerate() {
            doubts.extend(self.slot(node).process.as_ref().and_then(|process| self.doubted(node, process)));
            let Some(status) = self.status(node) else { continue };
            if !status["doubt"].is_null() || !status["sweep"]["unreadable"].is_null() {
                doubts.push(format!("node {name} doubts its state: {} {}", status["doubt"], status["sweep"]));
            }
            if status["sweep"]["log_damage"].as_array().is_some_and(|parts| !parts.is_empty()) {
                doubts.push(format!("node {name} has a damaged log: {}", status["sweep"]));
            }
            if node != primary && !self.is_mirror(node) {
                let compared = state::compare([&self.client(primary)?, &self.client(node)?], patience)?;
                let differs = |difference| format!("{} and {name} differ: {difference}", self.names[primary]);
                doubts.extend(compared.difference.map(differs));
            }
        }
        Ok(doubts)
    }

    /// Has the primary hand its role to `to`.
    pub(super) fn switch_over(&self, primary: usize, to: usize, patience: Duration) -> Result<(), ClientError> {
        self.client(primary)?.switch_over(Some(self.specs[to].listen.to_string()), patience)?;
        self.promoted(to);
        Ok(())
    }

    /// How many transactions the nodes have executed again since they started, and which of them
    /// have come to something else.
    pub(super) fn executed_again(&self) -> (u64, Vec<String>) {
        let (mut executed, mut differ) = (0, Vec::new());
        for (node, name) in self.names.iter().enumerate() {
            let Some(status) = self.status(node) else { continue };
            let count = |what: &str| status["again"][what].as_u64().unwrap_or(0);
            executed += count("executed");
            if count("mismatches") > 0 {
                let file = self.specs[node].directory.join("mismatches");
                differ.push(format!(
                    "node {name} has executed {} transactions otherwise than their primary: {}",
                    count("mismatches"),
                    file.display()
                ));
            }
        }
        (executed, differ)
    }

    /// How much nodes that were reached have had read by standbys, for divided sessions, since they
    /// started.
    pub(super) fn read_by_standbys(&self) -> u64 {
        let count = |node| self.status(node)?["divided"]["by_standbys"].as_u64();
        (0..self.names.len()).filter_map(count).sum()
    }

    /// Everything is to run again.
    pub(super) fn heal(&self) {
        for node in 0..self.names.len() {
            self.go_on(node);
            self.want(node);
        }
        self.witness.iter().for_each(Witness::want);
        self.heal_net();
    }

    /// Ends all nodes in order, the supervisor before them, and looks whether their logs are whole.
    pub(super) fn end(&self) -> Result<(), Failure> {
        self.over.store(true, Ordering::Relaxed);
        let last = self.last_primary();
        let mut order: Vec<usize> = (0..self.names.len()).filter(|node| *node != last).collect();
        order.push(last);
        for node in order {
            let Some(mut process) = self.slot(node).process.take() else { continue };
            let status = process.stop(ENDING)?;
            self.keep_messages(node, &process, &format!("ended ({status})"));
            if !status.success() {
                self.history.violated(format!("node {} did not end in order ({status})", self.names[node]));
            }
        }
        self.end_witness()?;
        for (spec, name) in self.specs.iter().zip(&self.names) {
            for finding in Inspection::open(&spec.directory)? {
                match finding? {
                    Finding::Bad { at, file, why, .. } => {
                        let file = file.display();
                        self.history.violated(format!("the log of node {name} is damaged at {at} in {file}: {why}"));
                    }
                    Finding::Gap { from, to, .. } => {
                        self.history.violated(format!("the log of node {name} has a gap from {from} to {to}"));
                    }
                    Finding::Block { .. } | Finding::End { .. } => {}
                }
            }
        }
        Ok(())
    }

    /// The supervisor ends; the nodes when this is dropped.
    pub(super) fn give_up(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Keeps what the present processes have said.
    pub(super) fn keep_all_messages(&self) {
        for node in 0..self.names.len() {
            if let Some(process) = &self.slot(node).process {
                self.keep_messages(node, process, "still there");
            }
        }
        self.keep_messages_of_witness();
    }
}
