//! Nodes in processes of their own: how the demo, the benchmarks and the tests start, stop and kill
//! them.
//!
//! Nobody is left behind: a node ends with its standard input, and so with the process that started
//! it, and dropping a [`NodeProcess`] or a [`Process`] kills it.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::{BufRead, BufReader},
    ops::{Deref, DerefMut},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde::Deserialize;
use thiserror::Error;

/// Lines of a node's messages that are kept.
const LINES: usize = 200;

/// Why there is no node.
#[derive(Debug, Error)]
pub enum SpawnError {
    /// The process could not be started.
    #[error("cannot start {program}: {cause}")]
    Start {
        /// The path of the program.
        program: String,
        /// What the system says.
        cause: std::io::Error,
    },
    /// It ended before it could serve.
    #[error("the node ended ({status}) before it could serve: {messages}")]
    Ended {
        /// How the process ended: its code, or the signal.
        status: String,
        /// The last lines that it wrote to stderr.
        messages: String,
    },
    /// It could not serve in time, and was killed.
    #[error("the node could not serve within {patience:?}: {messages}")]
    Silent {
        /// How long it had to become ready.
        patience: Duration,
        /// The last lines that it wrote to stderr.
        messages: String,
    },
}

/// What a process runs that is a node, and one that is a witness.
pub const SERVE: &str = "serve";
/// See there.
pub const WITNESS: &str = "witness";

/// What a node says when it can serve.
#[derive(Clone, Debug, Deserialize)]
pub struct Ready {
    /// The address of the control port; none of a witness.
    #[serde(default)]
    pub address: String,
    /// The address of the node port.
    pub listen: String,
    /// Where SQL clients connect, if they can.
    pub sql: Option<String>,
    /// The Unix socket where they connect, if there is one.
    pub sql_socket: Option<PathBuf>,
    /// Where health checks and metrics are served, if they are.
    #[serde(default)]
    pub http: Option<String>,
    /// `primary` or `standby`; none of a witness.
    #[serde(default)]
    pub role: String,
}

/// A node in a process of its own, which ends with it.
#[derive(Debug)]
pub struct NodeProcess {
    process: Process,
    ready: Ready,
}

impl NodeProcess {
    /// Starts `program serve` with these flags and waits until it can serve.
    ///
    /// # Errors
    /// See [`SpawnError`]; no process is left then.
    pub fn start<I>(program: &Path, flags: I, patience: Duration) -> Result<Self, SpawnError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Self::ready_within(patience, Process::spawn(program, flags)?)
    }

    /// The same with `program witness`.
    ///
    /// # Errors
    /// As there.
    pub fn start_witness<I>(program: &Path, flags: I, patience: Duration) -> Result<Self, SpawnError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Self::ready_within(patience, Process::spawn_as(WITNESS, program, flags)?)
    }

    fn ready_within(
        patience: Duration,
        (mut process, receiver): (Process, mpsc::Receiver<Ready>),
    ) -> Result<Self, SpawnError> {
        match receiver.recv_timeout(patience) {
            Ok(ready) => Ok(Self { process, ready }),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let _ = process.child.kill();
                let status = process.child.wait().map_or_else(|cause| cause.to_string(), |status| status.to_string());
                Err(SpawnError::Ended { status, messages: process.last_words() })
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                process.kill();
                Err(SpawnError::Silent { patience, messages: process.messages() })
            }
        }
    }

    /// What it said when it could serve.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }
}

impl Deref for NodeProcess {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for NodeProcess {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// A process that runs a node, whether or not it can serve yet. It is killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// While it is open the node lives.
    stdin: Option<ChildStdin>,
    messages: Arc<Mutex<VecDeque<String>>>,
    /// Ends when everything that it has written has been read.
    all_read: Mutex<mpsc::Receiver<()>>,
}

/// How long the messages of a process that has ended may take. Only another process that has its
/// standard error takes so long.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Process {
    /// Starts `program serve` with these flags, and does not wait: what it says when it can serve
    /// comes out of the receiver, which ends without that when the process does.
    ///
    /// # Errors
    /// [`SpawnError::Start`].
    pub fn spawn<I>(program: &Path, flags: I) -> Result<(Self, mpsc::Receiver<Ready>), SpawnError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Self::spawn_as(SERVE, program, flags)
    }

    /// The same with `program runs`.
    ///
    /// # Errors
    /// As there.
    pub fn spawn_as<I>(runs: &str, program: &Path, flags: I) -> Result<(Self, mpsc::Receiver<Ready>), SpawnError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let mut command = Command::new(program);
        command.args([runs, "--while-stdin"]).args(flags.into_iter().map(Into::into));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a process group of its own: so it does not get the terminal's signals, and the kernel
        // continues it, if it is stopped, when the process that started it has ended. Then it finds
        // the end of its standard input.
        command.process_group(0);
        // Flags alone decide; the environment is meant for nodes that a user starts.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FRESHET_") {
                command.env_remove(name);
            }
        }
        let mut child =
            command.spawn().map_err(|cause| SpawnError::Start { program: program.display().to_string(), cause })?;
        let messages = Arc::new(Mutex::new(VecDeque::new()));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (reads_all, all_read) = mpsc::channel();
        if let Some(stderr) = stderr {
            let messages = Arc::clone(&messages);
            thread::spawn(move || {
                let _until_the_end: mpsc::Sender<()> = reads_all;
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let mut messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
                    if messages.len() == LINES {
                        messages.pop_front();
                    }
                    messages.push_back(line);
                }
            });
        }
        let (sender, receiver) = mpsc::channel();
        if let Some(stdout) = stdout {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if let Some(ready) = line.strip_prefix("ready ").and_then(|json| serde_json::from_str(json).ok()) {
                        let _ = sender.send(ready);
                    }
                }
            });
        }
        Ok((Self { child, stdin, messages, all_read: Mutex::new(all_read) }, receiver))
    }

    /// What it has complained about so far.
    pub fn messages(&self) -> String {
        Vec::from(self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()).join("\n")
    }

    /// Remaining stderr of an exited process.
    fn last_words(&self) -> String {
        let _ = self.all_read.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LAST_WORDS);
        self.messages()
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        // It may have ended; its number is still ours, since its end was not waited for.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGSTOP: it stands still. Blocks until all its threads do, or it has ended.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        // Its end stays to be found by those who wait for it.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = waitid(WaitId::Pid(Pid::from_child(&self.child)), stopped);
    }

    /// SIGCONT, after [`NodeProcess::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end, and waits for that; kills it when it takes longer than `patience`.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn stop(&mut self, patience: Duration) -> std::io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.stop_by_input(patience)
    }

    /// The same without a signal, by the end of its standard input alone: when there is something
    /// between us and it.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn stop_by_input(&mut self, patience: Duration) -> std::io::Result<ExitStatus> {
        drop(self.stdin.take());
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                self.child.kill()?;
                return self.child.wait();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
