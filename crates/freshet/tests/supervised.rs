//! Three nodes under a supervisor that starts again whatever ends, with the very same command line,
//! as `Restart=always` does; and an operator who promotes a standby when the primary dies.
//! `FRESHET_ROUNDS` says how many deaths there are.

mod common;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use common::{Connected, SOON, flags, missing, program, random};
use freshet::{client::Client, sql_client::Session};
use freshet_base::{Consent, Lsn};
use freshet_workloads::journal::Mark;
use serde_json::Value;

/// Free ports: a node that is started again has the same ones.
fn ports<const N: usize>() -> [u16; N] {
    [(); N].map(|()| freshet_testing::ports::reserve().unwrap().port())
}

/// A process, and the supervisor that starts it again.
struct Supervised {
    address: String,
    socket: PathBuf,
    child: Arc<Mutex<Child>>,
    stop: Arc<AtomicBool>,
    errors: PathBuf,
    thread: Option<JoinHandle<()>>,
}

fn spawn(flags: &[String], errors: &PathBuf) -> Child {
    let mut command = Command::new(program());
    command.args(["serve", "--while-stdin"]).args(flags);
    // Flags alone decide.
    std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("FRESHET_")).for_each(
        |name| {
            command.env_remove(name);
        },
    );
    let errors = std::fs::File::options().create(true).append(true).open(errors).unwrap();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors).spawn().unwrap()
}

impl Supervised {
    fn start(directory: PathBuf, address: String, sql: u16, more: &[&str]) -> Self {
        let errors = directory.with_extension("err");
        let sockets = directory.parent().unwrap();
        let (socket, sql) = (sockets.join(format!(".s.PGSQL.{sql}")), format!("127.0.0.1:{sql}"));
        let own = ["--address", &address, "--sql-listen", &sql, "--sql-socket-directory", sockets.to_str().unwrap()];
        let flags = flags(&directory, &[&own, more].concat());
        let child = Arc::new(Mutex::new(spawn(&flags, &errors)));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (child, stop, errors) = (Arc::clone(&child), Arc::clone(&stop), errors.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(20));
                    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
                    if child.try_wait().unwrap().is_some() {
                        *child = spawn(&flags, &errors);
                    }
                }
            })
        };
        Self { address, socket, child, stop, errors, thread: Some(thread) }
    }

    fn connect(&self) -> Connected {
        Connected::at(&self.address, &self.socket)
    }

    fn kill(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn status(&self) -> Option<Value> {
        let client = Client::connect(&self.address, Duration::from_secs(1)).ok()?;
        serde_json::from_str(&client.status(Duration::from_secs(1)).ok()?).ok()
    }

    fn is_primary(&self) -> bool {
        self.status().is_some_and(|status| status["role"] == "primary" && status["standing"]["standing"] != "fenced")
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.kill();
        if std::thread::panicking() {
            println!("{}:\n{}", self.errors.display(), std::fs::read_to_string(&self.errors).unwrap_or_default());
        }
    }
}

/// An acknowledged write: when the client asked, when the mark was acknowledged, and where that
/// lies.
struct Acknowledged {
    node: usize,
    asked: Instant,
    at: Instant,
    lsn: Lsn,
    mark: Mark,
}

/// Writes to one node for as long as that takes anything, and then again.
fn write(node: usize, socket: &Path, stop: &AtomicBool, sequence: &AtomicU64, acknowledged: &Mutex<Vec<Acknowledged>>) {
    let patience = Duration::from_secs(2);
    while !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(10));
        let Ok(mut session) = Session::open(socket, "freshet", patience) else { continue };
        if session.run("SET freshet.commit_lsns = on").is_err() {
            continue;
        }
        loop {
            let mark = Mark { client: node as u64, sequence: sequence.fetch_add(1, Ordering::SeqCst) };
            let asked = Instant::now();
            match session.run(&common::insert(mark)) {
                Ok(_) => {
                    let at = Instant::now();
                    let lsn = Lsn(session.parameter("freshet.last_commit").unwrap().parse().unwrap());
                    acknowledged.lock().unwrap().push(Acknowledged { node, asked, at, lsn, mark });
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => break,
            }
            if stop.load(Ordering::SeqCst) {
                return;
            }
        }
    }
}

/// Blocks until something is acknowledged that was asked for after `since`.
fn commits(acknowledged: &Mutex<Vec<Acknowledged>>, since: Instant, patience: Duration) -> Result<Duration, String> {
    let deadline = since + patience;
    loop {
        if let Some(acknowledged) = acknowledged.lock().unwrap().iter().find(|acknowledged| acknowledged.asked > since)
        {
            return Ok(acknowledged.at - since);
        }
        if Instant::now() > deadline {
            return Err(format!("nothing was committed for {patience:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Of any two that were acknowledged one after the other, the later one lies further in the one
/// log: so at no moment two nodes commit.
fn assert_one_log(acknowledged: &mut [Acknowledged]) {
    acknowledged.sort_by_key(|acknowledged| acknowledged.at);
    let mut by_asked: Vec<usize> = (0..acknowledged.len()).collect();
    by_asked.sort_by_key(|index| acknowledged[*index].asked);
    let (mut highest, mut before) = (None::<&Acknowledged>, acknowledged.iter().peekable());
    for index in by_asked {
        let later = &acknowledged[index];
        while let Some(earlier) = before.next_if(|earlier| earlier.at < later.asked) {
            if highest.is_none_or(|highest| highest.lsn < earlier.lsn) {
                highest = Some(earlier);
            }
        }
        if let Some(earlier) = highest {
            assert!(
                earlier.lsn < later.lsn,
                "node {} committed {:?} at {}, and later node {} committed {:?} at {}",
                earlier.node,
                earlier.mark,
                earlier.lsn,
                later.node,
                later.mark,
                later.lsn
            );
        }
    }
}

fn rounds() -> u32 {
    std::env::var("FRESHET_ROUNDS").map_or(4, |rounds| rounds.parse().expect("FRESHET_ROUNDS is a number"))
}

/// Three nodes of one cluster, all in sync, with what these flags say beside; clients write to all.
fn cluster(directory: &Path, more: &[&str]) -> (Vec<Supervised>, Clients) {
    let ports = ports::<9>();
    let address = |port: usize| format!("127.0.0.1:{}", ports[port]);
    let first = address(3);
    let nodes: Vec<_> = (0..3)
        .map(|node| {
            let (listen, join) = (address(3 + node), ["--join", &first]);
            let join = if node == 0 { &[][..] } else { &join };
            let more = [&["--listen", &listen], more, join].concat();
            let process =
                Supervised::start(directory.join(["a", "b", "c"][node]), address(node), ports[6 + node], &more);
            if node == 0 {
                wait(|| process.is_primary(), "a primary");
            }
            process
        })
        .collect();
    let in_sync = || nodes[0].status().is_some_and(|status| common::in_sync(&status) == 2);
    wait(in_sync, "two standbys");
    common::create_journal(&nodes[0].connect());
    let clients = Clients::of(&nodes);
    commits(&clients.acknowledged, Instant::now(), SOON).unwrap();
    (nodes, clients)
}

/// One at each node, and what they were answered.
struct Clients {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<Acknowledged>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    fn of(nodes: &[Supervised]) -> Self {
        let (stop, sequence) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let start = |(node, process): (usize, &Supervised)| {
            let (stop, sequence, acknowledged) = (Arc::clone(&stop), Arc::clone(&sequence), Arc::clone(&acknowledged));
            let socket = process.socket.clone();
            std::thread::spawn(move || write(node, &socket, &stop, &sequence, &acknowledged))
        };
        let threads = nodes.iter().enumerate().map(start).collect();
        Self { stop, acknowledged, threads }
    }

    /// All nodes follow one primary, without a command, and nothing that was acknowledged is lost.
    fn finish(self, nodes: &[Supervised]) {
        wait_for_all(nodes);
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|writer| writer.join().unwrap());
        let mut acknowledged = std::mem::take(&mut *self.acknowledged.lock().unwrap());
        println!("{} commits", acknowledged.len());
        assert_one_log(&mut acknowledged);
        let marks: Vec<Mark> = acknowledged.iter().map(|acknowledged| acknowledged.mark).collect();
        let primary = nodes.iter().position(Supervised::is_primary).unwrap();
        let client = nodes[primary].connect();
        assert_eq!(missing(&client, &marks), []);
        for node in nodes.iter().enumerate().filter(|(node, _)| *node != primary).map(|(_, node)| node) {
            common::assert_same_state(&client, &Client::connect(&node.address, SOON).unwrap());
        }
    }
}

/// Blocks until all follow one primary.
fn wait_for_all(nodes: &[Supervised]) {
    let level = || {
        let states: Vec<_> = nodes.iter().filter_map(Supervised::status).collect();
        // The log may flow to one that is still starting.
        let follow = states.iter().filter(|status| status["link"]["link"] == "following").count();
        let leads = |status: &Value| status["role"] == "primary" && common::in_sync(status) == 2;
        follow == 2 && states.iter().any(leads)
    };
    let deadline = Instant::now() + SOON;
    while !level() {
        let states: Vec<_> = nodes.iter().map(Supervised::status).collect();
        assert!(Instant::now() < deadline, "everybody follows one primary: has not come about: {states:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Its supervisor starts it again at once, and it dies again, whatever it was about to do. The
/// others do without it, and take it in when it stays.
#[test]
fn a_primary_in_a_crash_loop_is_replaced() {
    let mut random = random();
    let directory = tempfile::tempdir().unwrap();
    let (nodes, clients) = cluster(directory.path(), &["--failover", "automatic"]);
    for round in 0..rounds() {
        let victim = nodes.iter().position(Supervised::is_primary).unwrap();
        let (begun, mut deaths) = (Instant::now(), 0);
        let is_replaced = || {
            let acknowledged = clients.acknowledged.lock().unwrap();
            acknowledged.iter().rev().any(|mark| mark.node != victim && mark.asked > begun)
        };
        while !is_replaced() {
            assert!(begun.elapsed() < Duration::from_secs(10), "round {round}: no other node than {victim} leads");
            nodes[victim].kill();
            deaths += 1;
            let dies = Instant::now() + Duration::from_millis(random.within(130, 500));
            while Instant::now() < dies && !is_replaced() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        println!("round {round}: node {victim} died {deaths} times, and was replaced after {:?}", begun.elapsed());
        wait_for_all(&nodes);
    }
    clients.finish(&nodes);
}

#[test]
fn whatever_ends_is_started_again_and_one_leads() {
    let mut random = random();
    let directory = tempfile::tempdir().unwrap();
    let (nodes, clients) = cluster(directory.path(), &["--safety", "quorum:2"]);
    for round in 0..rounds() {
        let begun = Instant::now();
        let victim = random.within(0, 2) as usize;
        let primary = nodes[victim].is_primary();
        nodes[victim].kill();
        let mut killed = vec![victim];
        if random.within(0, 2) == 0 {
            let other = (victim + 1 + random.within(0, 1) as usize) % 3;
            nodes[other].kill();
            killed.push(other);
        }
        let last = Instant::now();
        let mut promoted = None;
        if primary {
            // Sometimes the old one is back before the operator has noticed.
            std::thread::sleep(Duration::from_millis([0, 50, 300, 1000][random.within(0, 3) as usize]));
            let heir = (victim + 1 + random.within(0, 1) as usize) % 3;
            let client = Client::connect(&nodes[heir].address, Duration::from_secs(1));
            promoted = Some((
                heir,
                client.map(|client| client.promote(Consent::Nothing, SOON).map_err(|why| why.to_string())),
            ));
        }
        match commits(&clients.acknowledged, last, Duration::from_secs(10)) {
            Ok(after) => println!("round {round}: killed {killed:?}, promoted {promoted:?}, commits after {after:?}"),
            Err(why) => {
                let states: Vec<_> = nodes.iter().map(Supervised::status).collect();
                panic!("round {round}: killed {killed:?}, promoted {promoted:?}, {why}: {states:#?}");
            }
        }
        if let Some((heir, Ok(Ok((term, _))))) = promoted {
            // No node takes the term back from a primary that lives.
            let until = last + Duration::from_millis(1500);
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
            let status = nodes[heir].status();
            let leads = status.as_ref().is_some_and(|status| status["role"] == "primary" && status["term"] == term);
            assert!(leads, "round {round}: node {heir} does not lead in {term} any more: {status:#?}");
        }
        println!("round {round} took {:?}", begun.elapsed());
    }
    clients.finish(&nodes);
}

fn wait(condition: impl Fn() -> bool, what: &str) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: has not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}
