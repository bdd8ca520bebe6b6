//! The nodes of a round: real processes at addresses of their own, their directories, and what
//! those lose.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fmt::Write as _,
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    ledger::{Id, Ledger},
    plan::{Fate, Form, Join, Plan, name},
};
use crate::processes::{self, AGAIN_AFTER};
use freshet::{Failure, children::Process, client::ClientError};
use freshet_base::Consent;

/// A node's process, and how it is started.
#[derive(Default)]
struct Slot {
    process: Option<Process>,
    /// The command line with which it was started last.
    flags: Vec<String>,
    /// It is to run: one that ends by itself is started again.
    wanted: bool,
    not_before: Option<Instant>,
    stopped: bool,
    /// It is at its second address, with another directory.
    moved: bool,
    /// What it said last before it ended by itself.
    last_words: String,
}

/// All nodes.
pub(super) struct Nodes<'a> {
    plan: &'a Plan,
    ledger: &'a Ledger,
    root: PathBuf,
    /// Where their Unix sockets are.
    sockets: TempDir,
    ip: Ipv4Addr,
    slots: Vec<Mutex<Slot>>,
}

/// Copies a directory while files in it come, grow and go.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        let copied = match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy_tree(&path, &to),
            Ok(kind) if kind.is_file() => fs::copy(&path, &to).map(drop),
            _ => Ok(()),
        };
        match copied {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
            _ => {}
        }
    }
    Ok(())
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(files(&entry.path())),
            _ => all.push(entry.path()),
        }
    }
    all.sort();
    all
}

fn remove(directory: &Path) -> io::Result<()> {
    if directory.exists() { fs::remove_dir_all(directory) } else { Ok(()) }
}

/// Whether a file belongs to the log and not to the control file.
fn is_log(file: &Path) -> bool {
    let is = |what| file.extension() == Some(OsStr::new(what)) || file.file_name() == Some(OsStr::new(what));
    is("segment") || is("watermark") || is("pepoch")
}

impl<'a> Nodes<'a> {
    /// None of them runs yet. `ip` is theirs alone.
    pub(super) fn new(plan: &'a Plan, ledger: &'a Ledger, root: &Path, ip: Ipv4Addr) -> io::Result<Self> {
        let slots = plan.members.iter().map(|_| Mutex::default()).collect();
        Ok(Self { plan, ledger, root: root.to_owned(), sockets: tempfile::tempdir()?, ip, slots })
    }

    fn slot(&self, node: usize) -> MutexGuard<'_, Slot> {
        self.slots[node].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port of a service of a node.
    fn port(&self, node: usize, service: u16) -> u16 {
        7_400 + 20 * node as u16 + 10 * u16::from(self.slot(node).moved) + service
    }

    fn listen(&self, node: usize) -> String {
        format!("{}:{}", self.ip, self.port(node, 1))
    }

    fn control(&self, node: usize) -> String {
        format!("{}:{}", self.ip, self.port(node, 0))
    }

    /// Where its SQL sessions are.
    pub(super) fn sql(&self, node: usize) -> PathBuf {
        self.sockets.path().join(format!(".s.PGSQL.{}", self.port(node, 2)))
    }

    pub(super) fn directory(&self, node: usize) -> PathBuf {
        let new = if self.slot(node).moved { "-new" } else { "" };
        self.root.join(format!("{}{new}", name(node)))
    }

    fn memory(&self, node: usize) -> PathBuf {
        self.root.join(format!("{}-memory", name(node)))
    }

    fn copy(&self, node: usize) -> PathBuf {
        self.root.join(format!("{}-copy", name(node)))
    }

    /// Whom a node joins at its first start.
    pub(super) fn joins_first(&self, node: usize) -> Option<usize> {
        match self.plan.members[node].form {
            Form::BelowRelay => Some(1),
            _ if node == 0 => None,
            _ => Some(0),
        }
    }

    /// Whom it joins when it is started again.
    pub(super) fn joins_again(&self, node: usize) -> Option<usize> {
        let members = &self.plan.members;
        let member = members[node];
        let is_new = member.fate == Fate::New || member.comes_late;
        let configured = match self.plan.join {
            _ if member.form == Form::BelowRelay => Some(1),
            Join::AsEver => self.joins_first(node),
            // A mirror does not start without.
            Join::None if member.form == Form::Mirror => self.joins_first(node),
            Join::None => None,
            // No operator names a node that has nothing itself.
            Join::To(other) => Some(other).filter(|other| *other != node && members[*other].fate != Fate::New),
        };
        let lives = members.iter().position(|member| member.lives);
        let others = |may_be_new| {
            let others = self.plan.order.iter().copied().filter(|other| *other != node);
            others.into_iter().find(|other| may_be_new || members[*other].fate != Fate::New)
        };
        configured.or_else(|| if is_new { lives.or_else(|| others(false)).or_else(|| others(true)) } else { None })
    }

    fn flags(&self, node: usize, join: Option<usize>) -> Vec<String> {
        let member = self.plan.members[node];
        let at = |service| format!("{}:{}", self.ip, self.port(node, service));
        let mut flags = self.plan.level.flags();
        flags.extend([
            ("--directory", self.directory(node).display().to_string()),
            ("--address", at(0)),
            ("--listen", at(1)),
            ("--sql-listen", at(2)),
            ("--sql-socket-directory", self.sockets.path().display().to_string()),
            ("--failover", "manual".to_owned()),
            ("--log-buffer-bytes", (1 << 20).to_string()),
            ("--log-segment-bytes", (1 << 16).to_string()),
            ("--standby-timeout-ms", "600".to_owned()),
            ("--replay-threads", "1".to_owned()),
            ("--sql-connections", "30".to_owned()),
        ]);
        match self.plan.checkpoints {
            true => flags.extend([
                ("--checkpoint-interval-s", "1".to_owned()),
                ("--checkpoint-log-bytes", (1 << 16).to_string()),
                ("--checkpoint-keep-log-bytes", (1 << 16).to_string()),
            ]),
            false => flags.push(("--checkpoint-interval-s", "0".to_owned())),
        }
        match member.form {
            Form::Bytes => {}
            Form::Inputs => flags.push(("--encoding", "inputs".to_owned())),
            Form::Mirror => flags.extend([
                ("--mirror-bytes", (1 << 26).to_string()),
                ("--mirror-undo-bytes", (1 << 20).to_string()),
                ("--mirror-directory-bytes", (1 << 16).to_string()),
                ("--mirror-keep-dir", self.memory(node).display().to_string()),
            ]),
            Form::Asynchronous | Form::BelowRelay => flags.push(("--asynchronous", "true".to_owned())),
            Form::Relay => flags.push(("--relay-standbys", "1".to_owned())),
        }
        let others = (0..self.plan.members.len()).filter(|other| *other != node);
        if self.plan.peers {
            let others: Vec<String> = others.map(|other| self.listen(other)).collect();
            flags.push(("--peers", others.join(",")));
        }
        if let Some(other) = join {
            flags.push(("--join", self.listen(other)));
        }
        flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Starts a node the first time; it is there when it is `ready`.
    pub(super) fn found(&self, node: usize, patience: Duration) -> Result<(), Failure> {
        let flags = self.flags(node, self.joins_first(node));
        // Beside --peers a node has to be told so; not when it is started again.
        let founds = self.joins_first(node).is_none().then(|| "--new-cluster".to_owned());
        let first: Vec<String> = flags.iter().cloned().chain(founds).collect();
        let (process, ready) = Process::spawn(&std::env::current_exe()?, first)?;
        if ready.recv_timeout(patience).is_err() {
            return Err(Failure::new(format!("node {} does not start: {}", name(node), process.messages())));
        }
        let mut slot = self.slot(node);
        (slot.process, slot.flags, slot.wanted) = (Some(process), flags, true);
        Ok(())
    }

    /// Starts a node with these additional flags, and has it started again whenever it ends.
    pub(super) fn start(&self, node: usize, join: Option<usize>, more: &[&str]) -> Result<(), Failure> {
        let mut flags = self.flags(node, join);
        for pair in more.chunks(2) {
            match flags.iter().position(|flag| flag == pair[0]) {
                Some(at) => flags[at + 1] = pair[1].to_owned(),
                None => flags.extend(pair.iter().map(ToString::to_string)),
            }
        }
        let joining = join.map_or_else(|| "without --join".to_owned(), |other| format!("--join {}", name(other)));
        self.ledger.log(&format!("start {} {joining} {}", name(node), more.join(" ")));
        let (process, _) = Process::spawn(&std::env::current_exe()?, flags.clone())?;
        let mut slot = self.slot(node);
        (slot.process, slot.flags, slot.wanted) = (Some(process), flags, true);
        Ok(())
    }

    /// As a supervisor: starts a node again that has ended by itself. Says whether it runs.
    pub(super) fn look_after(&self, node: usize) -> bool {
        let mut slot = self.slot(node);
        if let Some(status) = slot.process.as_mut().and_then(Process::ended)
            && let Some(process) = slot.process.take()
        {
            let messages = process.messages();
            let last = messages.lines().next_back().unwrap_or("nothing").to_owned();
            self.keep_messages(node, &process, &format!("ended by itself ({status})"));
            self.ledger.answers(node, false);
            if processes::has_crashed(status, &messages) {
                self.ledger.found(format!("CRASH: node {} ended ({status}): {messages}", name(node)));
            } else if slot.last_words != last {
                self.ledger.log(&format!("{} ended by itself ({status}): {last}", name(node)));
            }
            (slot.last_words, slot.not_before) = (last, Some(Instant::now() + AGAIN_AFTER));
        }
        let due = slot.wanted && slot.not_before.is_none_or(|then| Instant::now() >= then);
        if slot.process.is_none() && due {
            let spawned = std::env::current_exe().map(|program| Process::spawn(&program, slot.flags.clone()));
            match spawned {
                Ok(Ok((process, _))) => slot.process = Some(process),
                _ => slot.not_before = Some(Instant::now() + AGAIN_AFTER),
            }
        }
        slot.process.is_some() && !slot.stopped
    }

    fn keep_messages(&self, node: usize, process: &Process, how: &str) {
        let path = self.root.join(format!("{}.messages", name(node)));
        processes::keep_messages(&path, process, how, self.ledger.now());
    }

    /// SIGKILL; it stays away until it is started.
    pub(super) fn kill(&self, node: usize) {
        let mut slot = self.slot(node);
        (slot.wanted, slot.stopped) = (false, false);
        if let Some(mut process) = slot.process.take() {
            process.kill();
            self.keep_messages(node, &process, "killed");
        }
        drop(slot);
        self.ledger.answers(node, false);
        self.ledger.log(&format!("kill -9 {}", name(node)));
    }

    /// SIGSTOP.
    pub(super) fn stop(&self, node: usize) {
        let mut slot = self.slot(node);
        if let Some(process) = &slot.process {
            process.pause();
            slot.stopped = true;
        }
        drop(slot);
        self.ledger.answers(node, false);
        self.ledger.log(&format!("SIGSTOP {}", name(node)));
    }

    /// SIGCONT.
    pub(super) fn go_on(&self, node: usize) {
        let mut slot = self.slot(node);
        if let Some(process) = &slot.process {
            process.resume();
            slot.stopped = false;
        }
        drop(slot);
        self.ledger.log(&format!("SIGCONT {}", name(node)));
    }

    /// Whether it runs and does not stand still.
    pub(super) fn is_at_work(&self, node: usize) -> bool {
        let slot = self.slot(node);
        slot.process.is_some() && !slot.stopped
    }

    /// What it says of itself.
    pub(super) fn status(&self, node: usize) -> Option<Value> {
        self.is_at_work(node).then(|| processes::status(&self.control(node)))?
    }

    /// The same in a few words.
    pub(super) fn brief(&self, node: usize) -> String {
        let Some(status) = self.status(node) else { return "does not answer".to_owned() };
        let mut brief = format!("is {} in term {}", status["role"], status["term"]);
        for (part, key) in [
            ("standing", "standing"),
            ("standing", "remedy"),
            ("link", "link"),
            ("link", "address"),
            ("link", "last_failure"),
            ("link", "why"),
        ] {
            if let Some(text) = status[part][key].as_str() {
                let _ = write!(brief, ", {text}");
            }
        }
        for saved in status["saved_tails"].as_array().into_iter().flatten() {
            let _ = write!(brief, ", saved {saved}");
        }
        brief
    }

    /// Makes a node the primary, never by force.
    pub(super) fn promote(&self, node: usize, patience: Duration) -> Result<u32, ClientError> {
        Ok(processes::client(&self.control(node))?.promote(Consent::Nothing, patience)?.0)
    }

    /// Copies a node's directory, as it is; the directory has what `holds` says.
    pub(super) fn take_copy(&self, node: usize) -> Result<(), Failure> {
        let to = self.copy(node);
        remove(&to)?;
        copy_tree(&self.directory(node), &to)?;
        self.ledger.log(&format!("the directory of {} is copied", name(node)));
        Ok(())
    }

    /// What the plan has a node that is down lose. `copied` is what its copy has.
    pub(super) fn lose(&self, node: usize, copied: &BTreeSet<Id>) -> Result<(), Failure> {
        let directory = self.directory(node);
        let fate = self.plan.members[node].fate;
        match fate {
            Fate::Kept => return Ok(()),
            Fate::SetBack => {
                remove(&directory)?;
                fs::rename(self.copy(node), &directory)?;
            }
            Fate::Emptied => {
                remove(&directory)?;
                remove(&self.memory(node))?;
            }
            Fate::New => {
                remove(&directory)?;
                remove(&self.memory(node))?;
                self.slot(node).moved = true;
            }
            Fate::NoSegments => {
                for file in files(&directory).iter().filter(|file| file.extension() == Some(OsStr::new("segment"))) {
                    fs::remove_file(file)?;
                }
            }
            Fate::OlderLog => {
                for file in files(&directory).iter().filter(|file| is_log(file)) {
                    fs::remove_file(file)?;
                }
                let copy = self.copy(node);
                for file in files(&copy).iter().filter(|file| is_log(file)) {
                    let place = file.strip_prefix(&copy).map_err(|_| Failure::new("a file is out of place"))?;
                    fs::copy(file, directory.join(place))?;
                }
            }
        }
        // A mirror with an older control file, or without one, begins again.
        let is_mirror = self.plan.members[node].form == Form::Mirror;
        let holds = match fate {
            Fate::SetBack | Fate::OlderLog if !is_mirror => copied.clone(),
            _ => BTreeSet::new(),
        };
        self.ledger.log(&format!(
            "{} loses: {fate:?}; {} acknowledged commits are left there",
            name(node),
            holds.len()
        ));
        self.ledger.book().holds[node] = holds;
        Ok(())
    }

    /// Whether a file in the node's directory has these bytes; segments are left out with `aside`.
    pub(super) fn files_with(&self, node: usize, bytes: &[u8], aside: bool) -> Vec<PathBuf> {
        let holds = |file: &PathBuf| {
            let is_segment = file.extension() == Some(OsStr::new("segment"));
            let content = fs::read(file).unwrap_or_default();
            !(aside && is_segment) && content.windows(bytes.len()).any(|part| part == bytes)
        };
        files(&self.directory(node)).into_iter().filter(holds).collect()
    }

    /// All nodes, for people: status, messages, files.
    pub(super) fn describe_all(&self) -> String {
        let mut all = String::new();
        for node in 0..self.slots.len() {
            let status = self.status(node).map_or_else(|| "no answer".to_owned(), |status| status.to_string());
            let slot = self.slot(node);
            let messages = slot.process.as_ref().map_or_else(|| slot.last_words.clone(), Process::messages);
            let flags = slot.flags.join(" ");
            drop(slot);
            let _ = writeln!(all, "\nnode {}: freshet serve {flags}\nstatus: {status}\n{messages}", name(node));
            for file in files(&self.directory(node)) {
                let length = file.metadata().map_or(0, |metadata| metadata.len());
                let _ = writeln!(all, "  {length:>9} {}", file.display());
            }
        }
        all
    }

    /// Keeps what the present processes have said.
    pub(super) fn keep_all_messages(&self) {
        for node in 0..self.slots.len() {
            if let Some(process) = &self.slot(node).process {
                self.keep_messages(node, process, "still there");
            }
        }
    }
}
