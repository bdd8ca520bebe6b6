//! What a user may say.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use freshet_base::NodeId;

use crate::{
    Failure, advise, backup,
    backup::{ArchiveOptions, BackupOptions, RestoreOptions},
    checkpoint,
    client::{Client, ClientError},
    config::{self, Given},
    demo::{self, DemoOptions},
    init, inspect, level, maintenance, members, membership,
    prints::Prints,
    promote,
    promote::PromoteOptions,
    rehearse, restart, serve, shell, status, stop, switch_over, upgrade, verify,
    witness::{self, WitnessOptions},
};

/// A main-memory transactional database: what one node commits is durable on the others before the
/// client hears of it, and can be read there at once.
///
/// `freshet demo` shows it on this machine in less than a minute.
#[derive(Debug, Parser)]
#[command(name = "freshet", version = freshet_base::versions::RELEASE, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See it work: a primary and two standbys on this machine, a bank under load by SQL, a kill, a
    /// failover, and the proof that nothing is lost.
    ///
    /// Takes about 40 seconds, needs nothing, and cleans up after itself. Fails if anything was
    /// lost.
    Demo(DemoOptions),
    /// Run a node: a primary, or with --join a standby.
    ///
    /// Without any option: a primary with its log in ./freshet-data that only this machine can
    /// reach. Every key can be set in a file (--config), in the environment, or as a flag; later
    /// sources override earlier ones. -h shows the most common keys, and docs/configuration.md has
    /// rare ones, too, which are not shown here. When the node is ready it prints one line: `ready`
    /// and a JSON object with its addresses. It writes messages to standard error. SIGTERM and
    /// SIGINT end it cleanly; on SIGHUP it reads its configuration again.
    Serve(Box<Serve>),
    /// Begin a new cluster in a new directory, with a password for its first role, and end.
    ///
    /// The first node is started in that directory afterwards, with `freshet serve`; others join
    /// it. `freshet serve --new-cluster` does the same for a node that is to serve at once, without
    /// a password. Exit status: 0 if the cluster has begun, 1 if not.
    Init(init::InitOptions),
    /// Run a witness: a node without data, the third voter of two nodes with data.
    ///
    /// With it, either of the two may fail, or lose the other, and one continues without an
    /// operator and without losing anything acknowledged: the primary alone, or the standby as the
    /// primary, only with the witness's consent on disk. Start it on a machine of its own, once,
    /// with --join; then without. It needs some 40 MB of memory, and a disk that keeps what is
    /// synced. See docs/operations.md#a-witness. When it answers it prints one line: `ready` and a
    /// JSON object.
    Witness(Box<WitnessOptions>),
    /// Show the state of a node and its cluster: first a verdict, and what to do.
    ///
    /// The verdict is `ok`, `degraded` or `blocked`. Exit status: 0 if it is ok, 3 if degraded, 4
    /// if blocked, 1 if the node does not answer, 2 if the command is wrong. With --check: 0, 1 and
    /// 2, and 2 if the node does not answer.
    Status(status::StatusOptions),
    /// Show all nodes of a cluster: role, version, position, lag, and whether they have a vote.
    ///
    /// Any node will do: one that follows asks its primary. If that does not answer, it shows what
    /// it knows itself, and says so; what it does not know is unknown. Exit status: 0 if the
    /// primary answers and all is well, 3 if a node is away or not in sync, 4 if nothing commits or
    /// no primary answers.
    Members(members::MembersOptions),
    /// Say which form of replication fits each standby of a running primary, and what each costs.
    ///
    /// Looks at the primary for a minute while it works, and changes nothing. For each standby it
    /// names `bytes`, `inputs` or `mirror`, with the bytes on the wire and the processor time of
    /// each on both sides, whether the standby would keep up, how long a failover would take, and
    /// whether it serves readers. Figures are marked: measured now, with a constant of
    /// docs/benchmarks.md, or reckoned. See docs/operations.md#which-form-fits-a-standby.
    Advise(AdviseOptions),
    /// Make a standby the primary.
    ///
    /// The standby collects what the other nodes have, finishes replay, and begins a new term. The
    /// other standbys follow it, and refuse what the old primary still sends. Without
    /// --primary-is-gone or --force, a failover that might lose acknowledged commits is refused.
    Promote(PromoteOptions),
    /// Have the primary hand its role to a standby, with nothing lost and no outcome left open.
    ///
    /// Transactions that would begin wait for a moment, those that are open have 200 ms to finish;
    /// what is still open then fails with 40001, or with its connection. If the standby does not
    /// take the role in time, the primary continues as before, and nothing comes after that.
    SwitchOver(switch_over::SwitchOverOptions),
    /// Have the primary change what a commit promises (the safety level), while it runs.
    ///
    /// The level is the cluster's, on record in its log, and counts in later terms, whatever the
    /// nodes' own `safety` says. Until it is on record a commit keeps to the old level as well.
    Level(level::LevelOptions),
    /// Have a node start again, or with --rolling all nodes of a cluster, one after the other.
    ///
    /// The process stays the same, with its command line and addresses, and runs the program that
    /// lies where it was started from: so a new version comes into use. --rolling restarts standbys
    /// and the witness first, waits each time until all are in sync, has a standby take the role,
    /// and restarts the node that had it. No acknowledged commit is lost, no outcome is open; open
    /// transactions may get 40001, sessions on standbys end with 57P01. It begins only when all
    /// nodes are in sync and reach each other, and stops at the first that does not come back.
    Restart(restart::RestartOptions),
    /// Have a node stop in an orderly way, as SIGTERM does, and wait until its process has ended.
    ///
    /// A primary hands its role to a standby first, if one may take it: no acknowledged commit is
    /// lost, and clients wait for a moment. With --cluster all nodes stop, the primary last. Exit
    /// status: 0 if the process has ended, 1 if it has not, or was not running.
    Stop(stop::StopOptions),
    /// Have the primary take a node out of its cluster, for good.
    ///
    /// Commits no longer count on it, and it may not come back with what it has: its directory, its
    /// certificate, or a backup of them. The command is refused where commits need the node, or
    /// where the node could still be promoted without the others. Then let another node join first;
    /// or say with --gone that the node is gone for good. To add a node, start it with --join.
    Remove(members::RemoveOptions),
    /// Have the primary give its cluster another authority, as after a key has leaked.
    ///
    /// What the authority of before has signed counts no more, tokens included. Nodes get new
    /// certificates by themselves, also those that are away, when they are back. Certificates of
    /// operators and monitors are void: `freshet enrol` makes new ones. A node whose own key has
    /// leaked is to be removed instead, which does this too.
    Rotate(members::RotateOptions),
    /// Show the cluster's format level, or finish an upgrade.
    ///
    /// Nodes of one release and the next work together. Until all are upgraded, nothing is written
    /// that the earlier release does not read, so each of them may go back. With --finish the
    /// primary raises the cluster's format level: from then on the new release is used in full, and
    /// nodes of the earlier one are refused. It is refused with the names of those that cannot
    /// follow.
    Upgrade(upgrade::UpgradeOptions),
    /// Have no node of a cluster take over by itself for a while, or end that.
    ///
    /// For work on machines or networks, under failover = "automatic": what would make a standby
    /// take its primary for lost leads to nothing. `freshet promote` works besides. Any node will
    /// do; the others hear of it at once, and each of them keeps it by its own clock, whatever
    /// becomes of the primary. It ends by itself. Exit status: 3 if a known node was not reached.
    Maintenance(maintenance::MaintenanceOptions),
    /// Have a mirror give up what it holds, where that is more than its primary has.
    ///
    /// A mirror that knows of committed transactions which its primary lacks does not follow, since
    /// it may be the last copy: see "HOLDS MORE" in its status. To keep them, promote the mirror
    /// with --force. This command is for the other case: they are gone then, and the mirror begins
    /// again with what the primary has.
    Refill(RefillOptions),
    /// Have a standby move aside what it has, and begin again with what its primary has.
    ///
    /// For a standby whose state is in doubt, where its status says that it waits for an operator,
    /// and the primary is right. Where the standby is right, promote it with --force instead. The
    /// old directories are kept until the new state was found equal to the primary's.
    BeginAgain(BeginAgainOptions),
    /// Write a checkpoint now.
    ///
    /// A restart needs only the log since the last checkpoint. Nodes also write checkpoints by
    /// themselves: see the keys that begin with checkpoint-.
    Checkpoint(CheckpointOptions),
    /// Make a backup of a running cluster, as of one moment.
    ///
    /// Any node will do. The directory may hold earlier backups of the same cluster. `freshet
    /// restore` makes a node from it; a node can also be started on it to join the cluster.
    Backup(BackupOptions),
    /// Archive the log of a running cluster, from a backup on, until a signal ends it.
    ///
    /// `freshet restore` can then restore any moment since the backup. Begins with a backup if the
    /// directory holds none. Commits do not wait for an archive, but while it is connected the
    /// primary keeps the log that it lacks. Prints one line, `ready`, when it follows.
    Archive(ArchiveOptions),
    /// Make a node's directory from a backup and the log since then.
    ///
    /// The node is the first of a new cluster: start it with `freshet serve --directory`, then
    /// standbys that join it.
    Restore(RestoreOptions),
    /// Rehearse failures: make a cluster of throw-away nodes, kill, stop, cut and promote them
    /// under load, and say how long nothing could be written, what clients heard, and what was
    /// lost.
    ///
    /// The nodes are on this machine, in a directory that is removed at the end. With --address
    /// they are made from a backup of a running cluster, which is taken for that, at its level and
    /// with as many nodes; that cluster is not touched otherwise. Fails if a row is lost that was
    /// acknowledged, or if a round ends without a primary.
    Rehearse(rehearse::RehearseOptions),
    /// Make a token that lets one node on another machine into the cluster.
    ///
    /// Put the token into a file there, and start the node with `--join` and `--member-token-file`.
    /// A node of this user on this machine needs no token. A token works once, only at the node
    /// that made it, and only until that node stops; give that node's `listen` address to `--join`.
    Token(TokenOptions),
    /// Get the certificate of an operator or a monitor with a token made for one.
    ///
    /// Other commands use the certificate with `--credentials`.
    Enrol(EnrolOptions),
    /// Make a stopped node forget all terms later than the last in its log.
    ///
    /// The remedy when a node refuses all others because it has heard of an impossible term. Stop
    /// all nodes of the cluster first, and run this for each: docs/operations.md#a-wrong-term.
    ResetTerms(ResetTermsOptions),
    /// Execute the transactions of a recorded log again, and compare; or compare the states of two
    /// running nodes.
    ///
    /// With `--state`: both nodes hash their rows at one LSN, under load too. Names the first
    /// record that differs, and where the log has its version on either side. Fails if one does.
    ///
    /// For logs that were written with `record-inputs`: each transaction whose inputs are recorded
    /// is executed again, and must give its block, byte for byte. Begins where the log does, or
    /// with the checkpoint; keeps database and log in memory. The node may be running, unless its
    /// log has several streams. Fails if a transaction gives something else.
    Verify(VerifyOptions),
    /// Check a configuration file, show the configuration in force, or print a sample of it.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print a script that completes this command line in a shell.
    ///
    /// For bash: `freshet completion bash > ~/.local/share/bash-completion/completions/freshet`.
    Completion(shell::CompletionOptions),
    /// Write manual pages, one for each command, into a directory.
    Man(shell::ManOptions),
    /// Inspect files: a log, a saved tail of one, checkpoints, mismatches, or events. Their node
    /// may be running.
    #[command(subcommand)]
    Inspect(inspect::Inspect),
}

/// Options of `freshet serve`, and with `LABORATORY` of `freshet-lab node`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct Serve<const LABORATORY: bool = false> {
    #[command(flatten)]
    pub(crate) flags: Given<LABORATORY>,
    /// End cleanly when standard input ends: for processes that start nodes.
    #[arg(long, hide = true)]
    pub(crate) while_stdin: bool,
    /// Acknowledge what the disk has not written: for `freshet rehearse`, whose nodes lose power.
    #[arg(long, hide = true, requires = "while_stdin")]
    pub(crate) lying_fsync: bool,
    /// The disk of the log is as this file says, `full` or `dead`: for `freshet rehearse`.
    #[arg(long, hide = true, value_name = "FILE", requires = "while_stdin")]
    pub(crate) disk_fault: Option<PathBuf>,
}

/// The credentials of a client on another machine than the node, or of another user.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shows {
    /// The directory to which `freshet enrol` has written a certificate. The node's user on its
    /// machine needs none. [default: none]
    #[arg(long, value_name = "DIR", env = "FRESHET_CREDENTIALS")]
    pub(crate) credentials: Option<PathBuf>,
}

impl Shows {
    /// Connects to the node whose clients connect at `address`.
    pub(crate) fn connect(&self, address: &str, patience: Duration) -> Result<Client, ClientError> {
        Client::connect_with(address, self.credentials.as_deref(), patience)
    }
}

/// The primary, and how it is asked.
#[derive(Clone, Debug, Args)]
pub(crate) struct ThePrimary {
    /// The primary's control port (its `address`): host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) shows: Shows,
}

impl ThePrimary {
    /// How long it may take to accept a connection.
    const CONNECT: Duration = Duration::from_secs(5);

    /// Connects to it.
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        self.shows.connect(&self.address, Self::CONNECT)
    }
}

/// The node that a command asks that has no other operand, and how it is asked. Without `LOCAL` it
/// has to be named.
#[derive(Clone, Debug, Args)]
pub(crate) struct Asked<const LOCAL: bool = true> {
    /// The node's control port (its `address`): host:port. [default, but for what changes a node's
    /// part in its cluster, and advise: 127.0.0.1:7400]
    #[arg(value_name = "ADDRESS")]
    at: Option<String>,
    /// The same.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "at")]
    address: Option<String>,
    #[command(flatten)]
    pub(crate) shows: Shows,
}

impl<const LOCAL: bool> Asked<LOCAL> {
    /// Its control port.
    pub(crate) fn address(&self) -> Result<&str, Failure> {
        let named = self.at.as_deref().or(self.address.as_deref());
        named.or(LOCAL.then_some("127.0.0.1:7400")).ok_or_else(|| {
            Failure::new("say which node: add the address of its control port, as in freshet promote 10.0.0.2:7400")
        })
    }

    /// Connects to it.
    pub(crate) fn connect(&self, patience: Duration) -> Result<Client, Failure> {
        Ok(self.shows.connect(self.address()?, patience)?)
    }
}

/// Options of `freshet token`.
#[derive(Debug, Args)]
pub(crate) struct TokenOptions {
    /// The member's control port: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub(crate) address: String,
    /// The token is for the node or archive with this id, which has lost its certificate. [default:
    /// for a new one]
    #[arg(long, value_name = "ID", conflicts_with = "role")]
    pub(crate) node: Option<NodeId>,
    /// The token is for a client of the control port with this role, not for a node.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<Role>,
    /// How long the token is valid, in seconds.
    #[arg(long, value_name = "S", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) valid: u64,
    #[command(flatten)]
    pub(crate) shows: Shows,
    #[command(flatten)]
    pub(crate) prints: Prints,
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
    /// The `listen` address of the member that made the token: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7401")]
    pub(crate) node: String,
    /// The file with the token.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// The directory for the certificate. It is made if it does not exist.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// Options of `freshet reset-terms`.
#[derive(Debug, Args)]
pub(crate) struct ResetTermsOptions {
    /// The node's directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// Options of `freshet advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseOptions {
    #[command(flatten)]
    pub(crate) asked: Asked<false>,
    /// How long to look, in seconds. The load should be what it usually is.
    #[arg(long = "for", value_name = "S", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// Options of `freshet refill`.
#[derive(Debug, Args)]
pub(crate) struct RefillOptions {
    #[command(flatten)]
    pub(crate) asked: Asked<false>,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// Options of `freshet begin-again`.
#[derive(Debug, Args)]
pub(crate) struct BeginAgainOptions {
    #[command(flatten)]
    pub(crate) asked: Asked<false>,
    /// Begin again even if nothing speaks against its state.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// Options of `freshet checkpoint`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointOptions {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Write the state at one moment. Costs memory for what changes while it is written.
    #[arg(long)]
    pub(crate) consistent: bool,
    /// How long to wait for the checkpoint, in seconds.
    #[arg(long, value_name = "S", default_value_t = 3600)]
    pub(crate) patience: u64,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// Options of `freshet verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    /// The directory of a node, an archive or a backup with a log.
    #[arg(value_name = "DIR", required_unless_present = "state", conflicts_with = "state")]
    pub(crate) directory: Option<PathBuf>,
    /// Compare the states of the two nodes with these control ports (their `address`), primaries or
    /// standbys: host:port.
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    pub(crate) state: Vec<String>,
    #[command(flatten)]
    pub(crate) shows: Shows,
    /// With `--state`: how long that may take, in seconds. Until then both nodes keep versions that
    /// are replaced in the meantime.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) patience: u64,
    /// How many threads execute transactions, 1 to 256. [default: two for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// The directory of each stream of the log, if they are elsewhere. Repeat it for each stream.
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Vec<PathBuf>,
    /// The directory for rows on each device, in the order of checkpoint.dir. [default: checkpoints
    /// in DIR]
    #[arg(long = "device", value_name = "DIR")]
    pub(crate) devices: Vec<PathBuf>,
    /// Execute serializable transactions a second time, at their own places in the order of
    /// commits: one that was certified wrongly writes something else there.
    #[arg(long)]
    pub(crate) serially: bool,
    /// The file for mismatches. It is made, or replaced, when there is one.
    #[arg(long, value_name = "FILE", default_value = "freshet-mismatches")]
    pub(crate) mismatches: PathBuf,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

impl Cli {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        freshet_base::private::umask();
        match self.command {
            Command::Demo(options) => demo::run(&options),
            Command::Serve(options) => {
                if options.lying_fsync {
                    freshet_log::medium::let_syncs_lie();
                }
                if let Some(state_file) = options.disk_fault {
                    freshet_log::medium::let_disk_fail(state_file);
                }
                serve::run(&options.flags.0, options.while_stdin, serve::Beside::nothing())
            }
            Command::Token(options) => membership::token(&options),
            Command::Enrol(options) => membership::enrol(&options),
            Command::ResetTerms(options) => membership::reset_terms(&options),
            Command::Status(options) => status::run(&options),
            Command::Members(options) => members::run(&options),
            Command::Advise(options) => advise::run(&options),
            Command::Promote(options) => promote::run(&options),
            Command::SwitchOver(options) => switch_over::run(&options),
            Command::Remove(options) => members::remove(&options),
            Command::Level(options) => level::run(&options),
            Command::Rotate(options) => members::rotate(&options),
            Command::Upgrade(options) => upgrade::run(&options),
            Command::Restart(options) => restart::run(&options),
            Command::Init(options) => init::run(&options),
            Command::Stop(options) => stop::run(&options),
            Command::Maintenance(options) => maintenance::run(&options),
            Command::Refill(options) => promote::refill(&options),
            Command::BeginAgain(options) => promote::begin_again(&options),
            Command::Checkpoint(options) => checkpoint::run(&options),
            Command::Backup(options) => backup::backup(&options),
            Command::Archive(options) => backup::archive(&options),
            Command::Witness(options) => witness::run(&options),
            Command::Restore(options) => backup::restore(&options),
            Command::Rehearse(options) => rehearse::run(&options),
            Command::Verify(options) => verify::run(&options),
            Command::Config(command) => config::run(&command),
            Command::Completion(options) => shell::completion(&options),
            Command::Man(options) => shell::man(&options),
            Command::Inspect(what) => inspect::run(&what),
        }
    }
}
