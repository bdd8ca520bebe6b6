//! What a user may say.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use freshet_base::NodeId;

use crate::{
    Failure, backup, checkpoint,
    client::{Client, ClientError},
    config::Flags,
    demo::{self, DemoOptions},
    inspect, membership, promote,
    serve::{self, NodeOptions},
    status,
};

/// A main-memory transactional database: what one node commits is durable on the others before the client hears of
/// it, and can be read there at once.
///
/// `freshet demo` shows all of it on this machine in less than a minute.
#[derive(Debug, Parser)]
#[command(name = "freshet", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See it work: a primary and two standbys on this machine, TPC-C under load, a kill, a take-over, and the proof.
    ///
    /// Takes about 40 seconds, needs nothing, and leaves nothing behind. Ends with an error if anything was lost.
    Demo(DemoOptions),
    /// Run a node: a primary, or with --join a standby.
    ///
    /// Without any option: a primary with its log in ./freshet-data that only this machine can
    /// reach. Every key can be given in a file (--config), in the environment or as a flag; the
    /// later beats the former. When the node can serve it prints one line, `ready` and a JSON
    /// object with its addresses. SIGTERM and SIGINT end it cleanly; SIGHUP has it read its
    /// configuration again. It writes messages about its state to standard error.
    Serve(Box<Serve>),
    /// Show how a node and its cluster are.
    ///
    /// The command ends with an error when the node cannot be asked; not when it says that something is wrong.
    Status(StatusOptions),
    /// Make a standby the primary.
    ///
    /// It asks the other nodes for what they have, finishes replay, and begins a new term; the other standbys follow it,
    /// and whatever the old primary still sends is refused. Refused itself when acknowledged commits might be lost, unless
    /// with --force.
    Promote(PromoteOptions),
    /// Write a checkpoint now.
    ///
    /// A restart needs only the log since then. Nodes write checkpoints by themselves, too: see the keys that begin with checkpoint-.
    Checkpoint(CheckpointOptions),
    /// Make a backup of a running cluster: a picture of one moment.
    ///
    /// Any node will do. The directory may hold earlier backups of the same cluster. `freshet restore` makes a node of
    /// it; a node can also be started on it to join the cluster.
    Backup(BackupOptions),
    /// Keep the log of a running cluster, from a backup on, until a signal ends it.
    ///
    /// With it, `freshet restore` can go to any moment since the backup. Begins with a backup if the directory holds none. Commits do
    /// not wait for an archive, but while it is connected the primary keeps the log that it lacks. Prints one line, `ready`, when it follows.
    Archive(ArchiveOptions),
    /// Make a node's directory from a backup, and from the log since then as far as wanted.
    ///
    /// The node is the first of a new cluster: start it with `freshet serve --directory`, and standbys that join it.
    Restore(RestoreOptions),
    /// Make a token with which a node on another machine is let into the cluster, once.
    ///
    /// Put what is printed into a file there, and start the node with `--join` and
    /// `--member-token-file`. A node of this user on this machine needs no token. A token works
    /// only at the node that has made it, and only until that node stops; give that node's `listen`
    /// address to `--join`.
    Token(TokenOptions),
    /// Get the certificate of an operator or a monitor, with a token that was made for one; use it
    /// with `--credentials`.
    Enrol(EnrolOptions),
    /// Have a node that is not running forget all terms later than the last in its log.
    ///
    /// The way back when a node refuses all others because it has heard of an impossible term. Stop
    /// all nodes of the cluster first, and do it for all of them: see "A wrong term" in
    /// docs/operations.md.
    ResetTerms(ResetTermsOptions),
    /// Look into files: a log, the tail of one that a node has saved, or checkpoints. Nodes may be at work on them.
    #[command(subcommand)]
    Inspect(Inspect),
    /// Run a node as `serve` does, one that also runs the procedures of the demo and of benchmarks
    /// for its clients.
    #[command(hide = true)]
    Node(Box<NodeOptions>),
}

/// Options of `freshet serve`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct Serve {
    #[command(flatten)]
    pub(crate) flags: Flags,
    /// End cleanly when standard input ends: for processes that start nodes.
    #[arg(long, hide = true)]
    pub(crate) while_stdin: bool,
}

/// The credentials of a client on another machine than the node, or of another user.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shows {
    /// The directory to which `freshet enrol` has written a certificate. [default: none; not needed
    /// by the node's user on its machine]
    #[arg(long, value_name = "DIR", env = "FRESHET_CREDENTIALS")]
    pub(crate) credentials: Option<PathBuf>,
}

impl Shows {
    /// Connects to the node whose clients connect at `address`.
    pub(crate) fn connect(&self, address: &str, patience: Duration) -> Result<Client, ClientError> {
        Client::connect_with(address, self.credentials.as_deref(), patience)
    }
}

/// Options of `freshet token`.
#[derive(Debug, Args)]
pub(crate) struct TokenOptions {
    /// The member's control port: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub(crate) address: String,
    /// For the node with this id, which has lost its certificate. [default: a new node]
    #[arg(long, value_name = "ID", value_parser = node_id, conflicts_with = "role")]
    pub(crate) node: Option<NodeId>,
    /// Not for a node, but for a client of the control port.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<Role>,
    /// How long it may be used, in seconds.
    #[arg(long, value_name = "S", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) valid: u64,
    #[command(flatten)]
    pub(crate) shows: Shows,
}

/// What a client of the control port may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// May do everything.
    Operator,
    /// May ask for the status.
    Monitor,
}

/// Options of `freshet enrol`.
#[derive(Debug, Args)]
pub(crate) struct EnrolOptions {
    /// Where other nodes reach the member that has made the token: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7401")]
    pub(crate) node: String,
    /// The file with the token.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// The directory for the certificate; it is made.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Options of `freshet reset-terms`.
#[derive(Debug, Args)]
pub(crate) struct ResetTermsOptions {
    /// The node's directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

fn node_id(text: &str) -> Result<NodeId, String> {
    let id = (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
    id.map(NodeId).ok_or_else(|| "an id has 16 hexadecimal digits, as `freshet status` shows it".to_owned())
}

/// Options of `freshet status`.
#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// Where the node's clients connect: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub(crate) address: String,
    /// Print the node's own JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) shows: Shows,
    /// How long to wait for the answer, in seconds.
    #[arg(long, value_name = "S", default_value_t = 5)]
    pub(crate) patience: u64,
}

/// Options of `freshet promote`.
#[derive(Debug, Args)]
pub(crate) struct PromoteOptions {
    /// Where the standby's clients connect: host:port.
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// Take over even when that may lose acknowledged commits.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) shows: Shows,
    /// How long to wait for the answer, in seconds.
    #[arg(long, value_name = "S", default_value_t = 600)]
    pub(crate) patience: u64,
}

/// Options of `freshet checkpoint`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointOptions {
    /// Where the node's clients connect: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub(crate) address: String,
    /// Write a picture of one moment. Costs memory for what changes meanwhile.
    #[arg(long)]
    pub(crate) consistent: bool,
    #[command(flatten)]
    pub(crate) shows: Shows,
    /// How long to wait for it, in seconds.
    #[arg(long, value_name = "S", default_value_t = 3600)]
    pub(crate) patience: u64,
}

/// Options of `freshet backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupOptions {
    /// Where other nodes reach the node that is asked: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7401")]
    pub(crate) node: String,
    /// A file with a token of that node, if it is on another machine or another user's.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Where to put it.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Options of `freshet archive`.
#[derive(Debug, Args)]
pub(crate) struct ArchiveOptions {
    /// Where other nodes reach the primary: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7401")]
    pub(crate) node: String,
    /// A file with a token of that node, if it is on another machine or another user's, and the
    /// directory holds no backup yet.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Another node that may be primary later. Can be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Vec<String>,
    /// Size of the buffer that the log goes through, in bytes, a power of two; no smaller than the primary's.
    #[arg(long, value_name = "BYTES", default_value_t = freshet_engine::LogSettings::default().buffer_bytes)]
    pub(crate) log_buffer_bytes: usize,
    /// Where to keep it.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// End cleanly when standard input ends: for processes that start archives.
    #[arg(long, hide = true)]
    pub(crate) while_stdin: bool,
}

/// Options of `freshet restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreOptions {
    /// A backup or archive, or the directory of a node that is not running.
    #[arg(long, value_name = "DIR")]
    pub(crate) backup: PathBuf,
    /// An archive with the log since the backup, if it is another directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<PathBuf>,
    /// The directory of a stream of that log, for each stream, if they are not below it.
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Vec<PathBuf>,
    /// Bring back everything that committed below this stamp. [default: all there is]
    #[arg(long, value_name = "STAMP", conflicts_with = "to_time")]
    pub(crate) to_stamp: Option<u64>,
    /// Bring back what had committed by then: a time like 2027-01-31T23:59:59Z, or seconds since 1970. Up to a tenth of a second
    /// before it may be missing, nothing from after it comes back.
    #[arg(long, value_name = "TIME")]
    pub(crate) to_time: Option<String>,
    /// The new node's directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// What can be looked into.
#[derive(Debug, Subcommand)]
pub(crate) enum Inspect {
    /// Show the blocks of a log: where they are, what they are, whether their checksums are right.
    ///
    /// Ends with a summary, and with an error when something in the log is no block.
    Log(InspectLog),
    /// Show the checkpoints of a node: what they hold, and whether their files are there.
    ///
    /// Ends with an error when one cannot be used.
    Checkpoint(InspectCheckpoint),
}

/// Options of `freshet inspect log`.
#[derive(Debug, Args)]
pub(crate) struct InspectLog {
    /// A node's directory, the directory of one stream of its log, or a saved tail; or, when streams are kept elsewhere
    /// (log-dir), the directories of all of them.
    #[arg(value_name = "DIR", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Show blocks from this stamp on.
    #[arg(long, value_name = "STAMP", default_value_t = 0)]
    pub(crate) from: u64,
    /// Show blocks below this stamp. [default: all]
    #[arg(long, value_name = "STAMP")]
    pub(crate) to: Option<u64>,
    /// Show the records of each block, too.
    #[arg(long)]
    pub(crate) records: bool,
    /// Show nothing but damage and the summary.
    #[arg(long)]
    pub(crate) summary: bool,
}

/// Options of `freshet inspect checkpoint`.
#[derive(Debug, Args)]
pub(crate) struct InspectCheckpoint {
    /// A node's directory.
    #[arg(value_name = "DIR")]
    pub(crate) path: PathBuf,
    /// Where rows are kept: once for each device, in the order of checkpoint-dir. [default: checkpoints in DIR]
    #[arg(long = "device", value_name = "DIR")]
    pub(crate) devices: Vec<PathBuf>,
    /// Show the tables and their files, too.
    #[arg(long)]
    pub(crate) files: bool,
    /// Read everything, and look whether it is what was written.
    #[arg(long)]
    pub(crate) check: bool,
}

impl Cli {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        freshet_base::private::umask();
        match self.command {
            Command::Demo(options) => demo::run(&options),
            Command::Serve(options) => serve::run(&options, None),
            Command::Token(options) => membership::token(&options),
            Command::Enrol(options) => membership::enrol(&options),
            Command::ResetTerms(options) => membership::reset_terms(&options),
            Command::Status(options) => status::run(&options),
            Command::Promote(options) => promote::run(&options),
            Command::Checkpoint(options) => checkpoint::run(&options),
            Command::Backup(options) => backup::backup(&options),
            Command::Archive(options) => backup::archive(&options),
            Command::Restore(options) => backup::restore(&options),
            Command::Inspect(what) => inspect::run(&what),
            Command::Node(options) => serve::node(&options),
        }
    }
}
