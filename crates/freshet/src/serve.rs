//! `freshet serve`: a node and its server, until a signal ends them. A primary that another has
//! succeeded starts again, in the same process.

mod host;

use std::{
    env,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_engine::{
    Apply, Node, NodeConfig, Order,
    node::{PhaseStatus, StartPhase, begin_again},
};
use serde::Serialize;
use signal_hook::consts::SIGXFSZ;

pub(crate) use self::host::NodeHost;
pub use crate::beside::Beside;
use crate::{
    Failure,
    begin_again::BeginAgain,
    certificates::CertificateWatch,
    cli::Serve,
    config::{Flags, Settings},
    contest, descriptors,
    disk::{DiskWatch, Disks},
    ending::{Ending, Event},
    memory::{self, MemoryWatch},
    messages, notify, process,
    reload::{self, InForce, Reload},
    server::{Server, starting::Reception},
    sql, wrong_port,
};

/// What a node prints when it can serve.
#[derive(Serialize)]
struct Ready<'a> {
    /// The address of the control port.
    address: String,
    /// The address of the node port.
    listen: &'a str,
    /// Where PostgreSQL's clients connect, if they do.
    sql: Option<String>,
    /// The Unix socket where they connect, if there is one.
    sql_socket: Option<String>,
    /// Where health checks and metrics are served, if they are.
    http: Option<String>,
    role: String,
    node: String,
    cluster: String,
    pid: u32,
}

impl<'a> Ready<'a> {
    fn of(node: &'a Node, server: &Server, sql: Option<&sql::Serving>) -> Self {
        Self {
            sql: sql.and_then(sql::Serving::address).map(|address| address.to_string()),
            sql_socket: sql.and_then(sql::Serving::socket).map(|path| path.display().to_string()),
            http: server.http().map(|address| address.to_string()),
            address: server.address().to_string(),
            listen: node.address(),
            role: format!("{:?}", node.role()).to_lowercase(),
            node: node.id().to_string(),
            cluster: node.cluster().to_string(),
            pid: std::process::id(),
        }
    }
}

/// Options of a node of the laboratory: it knows all keys.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct NodeOptions {
    #[command(flatten)]
    serve: Serve<true>,
}

/// Runs a node as `freshet serve` does, and something beside it. Blocks until it has ended.
///
/// # Errors
/// When the node cannot start, or does not end cleanly.
pub fn node(options: &NodeOptions, beside: Beside) -> Result<ExitCode, Failure> {
    let Serve { flags, while_stdin, .. } = &options.serve;
    run(&flags.0, *while_stdin, beside)
}

/// What a node is started with.
fn node_config(configured: &NodeConfig, begun: Option<&begin_again::Begun>) -> NodeConfig {
    let mut config = configured.clone();
    if let Some(begun) = begun {
        config.join = begun.join.first().cloned();
    }
    config
}

/// Runs a node, and something beside it.
pub(crate) fn run(flags: &Flags, while_stdin: bool, beside: Beside) -> Result<ExitCode, Failure> {
    // First, so that a SIGHUP never ends the node.
    let ending = Ending::listen(while_stdin)?;
    let settings = Settings::gather(flags)?;
    let messages = messages::begin(settings.server.log.format, &settings.server.log.level)?;
    let file = flags.config.as_ref().map(|file| tracing::field::display(file.display()));
    // What is not there has its default: `freshet config show` has all.
    let keys = serde_json::to_string(&settings.changed())?;
    tracing::info!(
        version = freshet_base::versions::RELEASE,
        pid = std::process::id(),
        file,
        keys,
        "the configuration is loaded"
    );
    if let Some(cpus) = &settings.server.pin {
        cpus.pin()?;
    }
    // A limit on the size of files is an error like any other, and not to end the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    // A node that has found its own code to be wrong does not continue, except where that is
    // contained: what is acknowledged is safe in its log, and a standby takes over or a restart
    // brings it back.
    freshet_base::panics::decide(messages::report_panic);
    descriptors::take();

    let begun = begin_again::carry_out(&settings.node).map_err(Failure::new)?;
    let mut progress = Progress::default();
    let reception = Reception::open(&settings.server, progress.status(StartPhase::Tail))?;
    let mut prepared = sql::prepare(&settings.server.sql)?;
    let workers = Server::PLACES + beside.workers + sql::places(&settings.server.sql);
    let memory_bytes = memory::limit(&settings, process::available_bytes());
    let config = NodeConfig { workers, memory_bytes, ..node_config(&settings.node, begun.as_ref()) };
    let bounds = settings.server.sql.bounds(memory_bytes);
    let memory = bounds.pool();
    let executors = match config.apply {
        Apply::Command => beside.executors,
        _ => Some(crate::verify::again(&memory, bounds.statement_memory)),
    };
    let started = |phase: StartPhase| {
        // The node has found that it can have its own port.
        if let Some(prepared) = &mut prepared {
            prepared.let_port_go();
        }
        reception.set_status(progress.status(phase));
        progress.show();
    };
    let node = match ending.while_starting(|| Node::start_executing(config, executors, started)) {
        // Whom it joins may be starting, too.
        Err(cause) if let Some(begun) = &begun => {
            let cause = Failure::from(cause);
            let join = begun.join.first();
            tracing::error!(%cause, join, "this node begins again, and cannot start; it tries again in {JOIN_EVERY:?}");
            drop((prepared, reception));
            begun.join_next(&settings.node.directory)?;
            return if ending.wait_for(JOIN_EVERY) { Err(cause) } else { Err(start_over()) };
        }
        node => node.map_err(|cause| wrong_port::explain(cause, settings.node.join.as_deref()))?,
    };
    if let Some(torn) = node.torn() {
        tracing::warn!(%torn, "a crash had left an unfinished end of the log, which was cut off");
    }
    if let Some(why) = node.passed_over() {
        tracing::warn!(cause = why, "the newest checkpoint was passed over");
    }
    if let Some((medium, method)) = node.persistent_medium() {
        let what = if node.role() == freshet_engine::Role::Mirror { "this mirror's memory" } else { "the log buffer" };
        match medium {
            freshet_engine::PersistMedium::Dax => tracing::info!(%method, "{what} is in persistent memory"),
            freshet_engine::PersistMedium::Emulated { why } => tracing::warn!(
                %method,
                cause = why,
                "{what} is NOT in persistent memory, it survives the end of this process only, not a loss of power"
            ),
        }
    }
    let doors = reception.close()?;
    let again = BeginAgain::start(&node, doors.address(), begun)?;
    let (in_force, disks) = (InForce::new(&settings), Disks::default());
    let host = NodeHost::new(Arc::clone(&node), Instant::now(), in_force.clone(), disks.clone());
    let host = Arc::new(NodeHost { again: Some(again.clone()), ..host });
    let server = Server::start(host.clone(), Some(node.credentials().clone()), doors, settings.server.open_status)?;
    let sql = prepared.map(|prepared| sql::start(&settings.server.sql, prepared, &host, memory)).transpose()?;
    let beside = (beside.begin)(node.database(), server.address())?;
    let ready = Ready::of(&node, &server, sql.as_ref());
    print_ready(&ready)?;
    tracing::info!(
        node = ready.node,
        cluster = ready.cluster,
        role = ready.role,
        address = ready.address,
        listen = ready.listen,
        sql = ready.sql,
        "the node is ready"
    );
    notify::ready("ready");
    let mut reload = Reload::new(flags, in_force, reload::things(&messages, &node, sql.as_ref(), &settings));
    let mut certificate = CertificateWatch::new(node.credentials().clone());
    let mut memory_watch = MemoryWatch::new(Arc::clone(&node), settings.server.sql.connections);
    let watch = DiskWatch::start(settings.places(), settings.node.log.segment_bytes, disks)?;

    let leaves = loop {
        match ending.wait_for_event(LOOK_EVERY) {
            Event::End => break Leaves::ForGood,
            Event::Reload => {
                notify::reloading();
                reload.reload();
                notify::ready("ready");
            }
            Event::Nothing => {}
        }
        certificate.look();
        memory_watch.look();
        sql.iter().for_each(|sql| sql.end_those_of_removed(&node));
        if let Some(leaves) = Leaves::of(&node, &again) {
            break leaves;
        }
    };
    // What can be reloaded has a share of the server for SQL.
    drop((watch, memory_watch, reload, beside));
    again.stop();
    match leaves.why() {
        Some(why) => notify::status(why),
        None => {
            tracing::info!("the node stops");
            notify::stopping();
        }
    }
    let bound = bound(&node, &server, sql.as_ref());
    let stuck = sql.and_then(|sql| Arc::into_inner(sql.server)).map_or(0, |server| {
        // What a deposed primary shows grows old: no client is to take it for the present state.
        server.shut_down(if leaves.has_time() { sql::GRACE } else { Duration::ZERO })
    });
    let again = match &leaves {
        Leaves::ForGood => false,
        Leaves::Deposed => wait_for_successor(&node, &ending),
        Leaves::BeginsAgain(_) | Leaves::Failed | Leaves::Ordered | Leaves::Contested => true,
    };
    let again = again && node.ordered() != Some(Order::Stop);
    if stuck > 0 {
        // The node cannot stop while they use it. What is acknowledged is safe in its log, so it
        // ends as by a crash.
        tracing::warn!(
            sessions = stuck,
            "sessions did not end in time; the node ends all the same, and replays its log when it starts again"
        );
        if again {
            return Err(leaves.start_again(&node, &bound));
        }
        messages::flush();
        std::process::exit(1);
    }
    let stopped = node.stop();
    drop(server);
    if again {
        return Err(leaves.start_again(&node, &bound));
    }
    match stopped {
        Ok(()) => {
            tracing::info!("the node has stopped");
            Ok(ExitCode::SUCCESS)
        }
        Err(cause) => Err(Failure::new(format!("the node has stopped, but not cleanly: {cause}"))),
    }
}

/// Where the node listens, as flags: a later run of it does so at the same ports.
fn bound(node: &Node, server: &Server, sql: Option<&sql::Serving>) -> [(&'static str, Option<String>); 4] {
    [
        ("--address", Some(server.address().to_string())),
        ("--listen", Some(node.bound_address().to_string())),
        ("--http-listen", server.http().map(|address| address.to_string())),
        ("--sql-listen", sql.map(sql::Serving::listens)),
    ]
}

/// How often a primary looks whether it still is one.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a node that begins again waits until it tries to join once more.
const JOIN_EVERY: Duration = Duration::from_secs(2);

/// Why a node does not serve any more.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Leaves {
    /// It was told to end.
    ForGood,
    /// Another node has become the primary.
    Deposed,
    /// It was to become the primary, and could not when its term had begun.
    Failed,
    /// It begins again, by joining the node there.
    BeginsAgain(String),
    /// An operator wants it to start again.
    Ordered,
    /// Its term is contested, and no node takes its role: it leads in a later one.
    Contested,
}

impl Leaves {
    /// Whether it has to, as things stand.
    fn of(node: &Arc<Node>, again: &BeginAgain) -> Option<Self> {
        let is_contested = contest::look(node);
        match again.due() {
            _ if node.is_deposed() => Some(Self::Deposed),
            _ if node.has_failed() => Some(Self::Failed),
            _ if node.ordered() == Some(Order::Restart) => Some(Self::Ordered),
            _ if node.ordered() == Some(Order::Stop) => Some(Self::ForGood),
            _ if is_contested => Some(Self::Contested),
            join => join.map(Self::BeginsAgain),
        }
    }

    /// Whether what runs for clients may come to its end.
    fn has_time(&self) -> bool {
        matches!(self, Self::ForGood | Self::Ordered)
    }

    /// Why it starts again, if it does.
    fn why(&self) -> Option<&'static str> {
        match self {
            Self::ForGood => None,
            Self::Deposed => Some("another node has become the primary; starting again, to follow it"),
            Self::Failed => Some("this node could not become the primary; starting again"),
            Self::BeginsAgain(_) => Some("beginning again with what the primary has"),
            Self::Ordered => Some("starting again, as an operator wants it"),
            Self::Contested => Some("the term is contested; starting again, to lead in a later one"),
        }
    }

    /// Starts again; `node` has stopped. Returns only when that fails.
    fn start_again(&self, node: &Node, bound: &[(&str, Option<String>)]) -> Failure {
        match self {
            Self::BeginsAgain(join) => match begin_again::want(node.config(), join) {
                Ok(()) => tracing::warn!(join, "this node starts again, to begin again with what its primary has"),
                Err(cause) => {
                    tracing::error!(%cause, "this node cannot note that it begins again, and starts with what it has");
                }
            },
            Self::Failed => {
                tracing::error!("this node could not become the primary when its term had begun: it starts again")
            }
            Self::Deposed => {
                tracing::info!("another node has become the primary, so this one starts again, to follow it")
            }
            Self::Contested => {
                tracing::warn!("the term of this primary is contested, and no node takes its role: it starts again")
            }
            Self::ForGood | Self::Ordered => {}
        }
        // It may have left for another reason when the order came: that one counts all the same.
        if node.ordered() == Some(Order::Restart) {
            tracing::info!("this node starts again, as an operator wants it");
            return start_again(&program(), bound);
        }
        start_again(Path::new(THIS_PROGRAM), bound)
    }
}

/// Blocks while the node that has deposed this primary may need its log to take over, or until this
/// node is to end: then it says `false`.
fn wait_for_successor(node: &Node, ending: &Ending) -> bool {
    while !node.is_succeeded() {
        if ending.wait_for(LOOK_EVERY) {
            return false;
        }
    }
    true
}

/// Tells who started this process, on standard output, how it is reached.
pub(crate) fn print_ready(ready: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::stdout();
    writeln!(out, "ready {}", serde_json::to_string(ready)?)?;
    Ok(out.flush()?)
}

/// The program that lies where this one was started from, which may be a newer version; or this one
/// itself, if that is gone.
pub(crate) fn program() -> PathBuf {
    let own = env::current_exe().unwrap_or_default().into_os_string().into_string().unwrap_or_default();
    // As Linux names a file that was replaced.
    let path = PathBuf::from(own.strip_suffix(" (deleted)").unwrap_or(&own));
    if path.is_file() { path } else { PathBuf::from(THIS_PROGRAM) }
}

/// [`start_again`] before there are addresses.
fn start_over() -> Failure {
    start_again(Path::new(THIS_PROGRAM), &[])
}

/// Also when its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Becomes a new run of this program, with the same process number, command line and addresses; but
/// it does not lead unasked again. Returns only when that fails.
fn start_again(program: &Path, bound: &[(&str, Option<String>)]) -> Failure {
    become_again(program, &["--force-primary=false"], bound)
}

/// The same for any process: `more` words come last.
pub(crate) fn become_again(program: &Path, more: &[&str], bound: &[(&str, Option<String>)]) -> Failure {
    let mut command = Command::new(program);
    let mut given = env::args_os();
    command.arg0(given.next().unwrap_or_default()).args(given).args(more);
    // The last one of each counts. Where the system had chosen a port, it remains.
    for (flag, address) in bound {
        if let Some(address) = address {
            command.arg(flag).arg(address);
        }
    }
    messages::flush();
    let cause = command.exec();
    Failure::new(format!("this node cannot start again by itself: {cause}"))
}

/// How far the start has come, for people at the screen and for those who ask.
#[derive(Default)]
struct Progress {
    now: Starting,
    begun: Option<Instant>,
    shown: Option<Instant>,
}

/// The status of a node that starts.
#[derive(Clone, Default, Serialize)]
struct Starting {
    role: &'static str,
    version: &'static str,
    pid: u32,
    #[serde(flatten)]
    phase: PhaseStatus,
    per_second: u64,
    seconds_left: Option<f64>,
}

impl Progress {
    /// The time between two lines.
    const EVERY: Duration = Duration::from_secs(1);

    /// Takes note, and tells as JSON.
    fn status(&mut self, phase: StartPhase) -> String {
        let phase = phase.status();
        let now = Instant::now();
        if self.now.phase.phase != phase.phase {
            (self.begun, self.shown) = (Some(now), Some(now));
            tracing::info!(phase = phase.phase, "the start enters its next phase");
        }
        let PhaseStatus { done, of, .. } = phase;
        let rate = done as f64 / (now - self.begun.unwrap_or(now)).as_secs_f64().max(1e-3);
        self.now = Starting {
            role: "starting",
            version: freshet_base::versions::RELEASE,
            pid: std::process::id(),
            phase,
            per_second: rate as u64,
            // Other nodes come when they come.
            seconds_left: (done > 0 && phase.unit != "nodes").then(|| of.saturating_sub(done) as f64 / rate.max(1.0)),
        };
        serde_json::to_string(&self.now).unwrap_or_default()
    }

    /// Shows it now and then.
    fn show(&mut self) {
        let now = Instant::now();
        let &Starting { phase, per_second, seconds_left: Some(left), .. } = &self.now else { return };
        let PhaseStatus { phase, unit, done, of } = phase;
        if now - self.shown.unwrap_or(now) < Self::EVERY || of == 0 {
            return;
        }
        self.shown = Some(now);
        let (percent, total, rate) = crate::status::progress(unit, done, of, per_second);
        tracing::info!(
            phase,
            done,
            of,
            per_second,
            seconds_left = left.round(),
            "{phase}: {percent} of {total}, {rate}/s, {left:.0} s left"
        );
    }
}
