//! One commit, traced through a primary with files and a standby over TCP: ARCHITECTURE.md has the
//! functions that worked on it, by their spans.

mod common;

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap, HashSet},
    env, fmt, fs,
    path::Path,
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
};

use common::{config, definition, is_named_by, row, soon, start, wait_for};
use freshet_base::Stage;
use freshet_engine::{FabricKind, Isolation, Node, NodeConfig, Safety, Table};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};

const BEGIN: &str = "<!-- stages of the path: ";
const END: &str = "<!-- end of stages -->\n";
/// What is done at the same time on several threads may come in another order, once in a while.
const ATTEMPTS: usize = 200;

/// A function that has worked, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Function {
    name: String,
    file: &'static str,
}

/// The span of one call.
#[derive(Clone, Debug)]
struct Step {
    function: Function,
    stage: &'static str,
    thread: (ThreadId, String),
    /// By whom it was called, if that has a span, too.
    caller: Option<Function>,
}

/// Takes down all spans of stages, in the order in which they begin.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<Step>>>);

thread_local! {
    static CALLERS: RefCell<Vec<Function>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct Name(String);

impl Visit for Name {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "function" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

impl Subscriber for Trace {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "stage"
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut name = Name::default();
        span.record(&mut name);
        let function = Function { name: name.0, file: span.metadata().file().unwrap() };
        let thread = thread::current();
        let thread = (thread.id(), thread.name().unwrap_or("?").to_owned());
        let caller = CALLERS.with_borrow_mut(|callers| {
            callers.push(function.clone());
            callers.iter().rev().nth(1).cloned()
        });
        self.0.lock().unwrap().push(Step { function, stage: span.metadata().name(), thread, caller });
        Id::from_u64(1)
    }

    fn exit(&self, _: &Id) {
        CALLERS.with_borrow_mut(Vec::pop);
    }

    fn enter(&self, _: &Id) {}
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
}

impl Trace {
    fn take(&self) -> Vec<Step> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// The number of a stage on its way.
fn number(stage: &str) -> usize {
    let stages = [
        Stage::Execute,
        Stage::Certify,
        Stage::Log,
        Stage::Receive,
        Stage::Persist,
        Stage::Ship,
        Stage::Ack,
        Stage::Commit,
        Stage::Replay,
        Stage::Visible,
    ];
    stages.iter().position(|known| known.name() == stage).unwrap()
}

/// A path's table, and above it how long it is.
fn table(steps: &[Step]) -> String {
    let mut threads: HashMap<ThreadId, Vec<&Step>> = HashMap::new();
    steps.iter().for_each(|step| threads.entry(step.thread.0).or_default().push(step));
    let mut threads: Vec<_> = threads.into_values().collect();
    threads.sort_by_key(|steps| number(steps[0].stage));
    let (mut rows, mut seen) = (Vec::<(&str, &str, &str, Vec<String>)>::new(), HashSet::new());
    for steps in threads {
        // The thread of a connection has its node's number in its name.
        let name = steps[0].thread.1.as_str();
        let name = if name.starts_with("persist") { name } else { name.split('-').next().unwrap() };
        let before = seen.clone();
        for Step { function, stage, caller, .. } in steps {
            let again = before.contains(function);
            let shown = match again {
                false if seen.insert(function) => format!("`{}`", function.name),
                true if caller.as_ref().is_none_or(|caller| !before.contains(caller)) => {
                    format!("`{}` again", function.name)
                }
                _ => continue,
            };
            if rows.iter().any(|row| (row.1, row.2) == (name, function.file) && row.3.contains(&shown)) {
                continue;
            }
            match rows.last_mut() {
                Some(row) if (row.0, row.1, row.2) == (*stage, name, function.file) => row.3.push(shown),
                _ => rows.push((*stage, name, function.file, vec![shown])),
            }
        }
    }
    let files: BTreeSet<_> = seen.iter().map(|function| function.file).collect();
    let mut table = format!("{} functions in {} files.\n\n", seen.len(), files.len());
    table.push_str("| stage | thread | functions | file |\n|---|---|---|---|\n");
    let (mut last_stage, mut last_thread) = ("", "");
    for (stage, thread, file, functions) in rows {
        let file = file.strip_prefix("crates/").unwrap_or(file);
        let shown_stage = if (stage, thread) == (last_stage, last_thread) { "" } else { stage };
        let shown_thread = if thread == last_thread { String::new() } else { format!("`{thread}`") };
        table.push_str(&format!("| {shown_stage} | {shown_thread} | {} | `{file}` |\n", functions.join(", ")));
        (last_stage, last_thread) = (stage, thread);
    }
    table
}

/// The document with this table in its place.
fn with_table(document: &str, path: &str, table: &str) -> String {
    let begin = format!("{BEGIN}{path} -->\n");
    let (before, rest) = document.split_once(&begin).expect("the path has a place");
    let (_, after) = rest.split_once(END).expect("a table has an end");
    format!("{before}{begin}{table}{END}{after}")
}

/// Commits a row, and waits until it is visible on the standby. Returns the spans of both nodes.
fn commit_one(trace: &Trace, nodes: (&Node, &Node), table: &Table, id: u64) -> Vec<Step> {
    let session = || {
        let worker = nodes.0.database().worker().unwrap();
        let transaction = worker.begin(Isolation::Snapshot);
        transaction.insert(table, &row(id, 1, 1)).unwrap();
        trace.take();
        let ticket = transaction.commit().unwrap();
        nodes.0.database().wait(ticket).unwrap();
        nodes.1.wait_visible(ticket.until, soon()).unwrap();
        trace.take()
    };
    thread::scope(|scope| {
        thread::Builder::new().name("session".into()).spawn_scoped(scope, session).unwrap().join().unwrap()
    })
}

/// The tables of ARCHITECTURE.md are those of a traced commit. `UPDATE_DOCS=1` writes them.
#[test]
fn architecture_has_the_functions_of_a_traced_commit() {
    let trace = Trace::default();
    tracing::subscriber::set_global_default(trace.clone()).unwrap();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let quiet = |n: usize| {
        let mut config = NodeConfig { safety: Safety::Quorum(2), ..config(Some(directories[n].path())) };
        config.state_proof.interval_ms = 3_600_000;
        config.fabric.kind = FabricKind::Tcp;
        config
    };
    let primary = start(quiet(0));
    // Its own thread persists the beginning of the term; those of its connections are named after
    // the standby.
    let persists = |step: &Step| step.thread.1 == "persist-0";
    wait_for("the primary persists", || trace.0.lock().unwrap().iter().any(persists));
    let primarys: HashSet<ThreadId> = trace.take().into_iter().map(|step| step.thread.0).collect();
    let standby = start(NodeConfig { join: Some(primary.address().into()), ..quiet(1) });
    let things = primary.database().create_table(&definition()).unwrap().clone();
    wait_for("both are named", || is_named_by(&primary, 2));

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let mut document = fs::read_to_string(&path).unwrap();
    let mut open = vec![("commit", HashMap::<String, usize>::new()), ("standby", HashMap::new())];
    for id in 0..ATTEMPTS as u64 {
        let steps = commit_one(&trace, (&primary, &standby), &things, id);
        let is_primarys = |step: &Step| {
            let (thread, name) = &step.thread;
            primarys.contains(thread) || name == "session" || name.starts_with("ship-") || name.starts_with("ack-")
        };
        let (commit, follow): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(is_primarys);
        open.retain_mut(|(way, found)| {
            let made = table(if *way == "commit" { &commit } else { &follow });
            let is_there = with_table(&document, way, &made) == document;
            *found.entry(made).or_default() += 1;
            !is_there
        });
        if open.is_empty() {
            return;
        }
    }
    for (way, found) in open {
        let (most, times) = found.iter().max_by_key(|(_, times)| **times).unwrap();
        if env::var_os("UPDATE_DOCS").is_some() {
            document = with_table(&document, way, most);
            fs::write(&path, &document).unwrap();
        }
        let is_there = with_table(&document, way, most) == document;
        assert!(is_there, "write ARCHITECTURE.md with UPDATE_DOCS=1: the {way} path of {times} commits is\n{most}");
    }
}
