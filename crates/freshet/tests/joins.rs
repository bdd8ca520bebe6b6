//! Nodes that join a cluster under load: from a checkpoint of the primary, of a standby, of a
//! mirror or of a primary that began from a backup; over slow links; killed on the way; and in
//! whichever form they get the log. `FRESHET_JOIN_ROUNDS` sets how many, `FRESHET_SEED` which.

mod common;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use common::{SOON, Sql, assert_same_state, connect, flags, open_sql, program, random, wait_until};
use freshet::children::{NodeProcess, Process};
use freshet_base::Consent;
use freshet_workloads::random::Random;

const COUNTERS: u64 = 100;
const SESSIONS: u64 = 4;
/// A throttled node may take so long to join on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// Sessions that each insert a row and add to a counter in one transaction, until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(node: &NodeProcess, from: u64) -> Self {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let session = |session: u64| {
            let (sql, stop, count) = (Sql::connect(node), Arc::clone(&stop), Arc::clone(&count));
            let filling = "x".repeat(200);
            thread::spawn(move || {
                for number in 0.. {
                    let (id, counter) = (from + number * SESSIONS + session, (number * 7 + session * 25) % COUNTERS);
                    let both = format!(
                        "BEGIN; INSERT INTO t VALUES ({id}, '{filling}'); \
                         UPDATE cnt SET n = n + 1 WHERE id = {counter}; COMMIT"
                    );
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    // Two sessions may meet.
                    match sql.run(&both) {
                        Ok(_) => _ = count.fetch_add(1, Ordering::SeqCst),
                        Err(_) => _ = sql.run("ROLLBACK"),
                    }
                }
            })
        };
        let threads = (0..SESSIONS).map(session).collect();
        Self { stop, count, threads }
    }

    fn wait_for(&self, more: u64) {
        let (from, deadline) = (self.count.load(Ordering::SeqCst), Instant::now() + SOON);
        while self.count.load(Ordering::SeqCst) < from + more {
            assert!(Instant::now() < deadline, "nothing is committed any more");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[derive(Clone, Copy, Debug)]
enum From {
    Primary,
    Standby,
    Mirror,
    Backup,
}

const WAYS: [[&str; 2]; 3] = [["--encoding", "bytes"], ["--encoding", "inputs"], ["--encoding", "auto"]];

struct Place(tempfile::TempDir);

impl Place {
    fn of(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A node's flags. Little is written, so checkpoints come only when they are asked for.
    fn flags(&self, name: &str, more: &[&str]) -> Vec<String> {
        let usual = ["--safety", "1-safe", "--checkpoint-keep-log-bytes", "0"];
        let sql = open_sql(&self.of(&format!("{name}.access")));
        let more: Vec<&str> = usual.iter().chain(more).copied().chain(sql.iter().map(String::as_str)).collect();
        flags(&self.of(name), &more)
    }

    fn start(&self, name: &str, more: &[&str]) -> NodeProcess {
        NodeProcess::start(&program(), self.flags(name, more), LONG).unwrap()
    }
}

fn run(arguments: &[&str]) {
    let out = Command::new(program()).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{arguments:?}: {out:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What a node shows by its indexes.
fn shown(node: &NodeProcess) -> Vec<Vec<String>> {
    let sql = Sql::connect(node);
    let by_key = (0..COUNTERS).map(|id| sql.run(&format!("SELECT n FROM cnt WHERE id = {id}")).unwrap());
    let all = ["SELECT sum(n)::text || ' in ' || count(*)::text FROM cnt", "SELECT count(*) FROM t"];
    by_key.chain(all.iter().map(|query| sql.run(query).unwrap())).collect()
}

/// One join.
fn round(random: &mut Random) {
    let mut choose = |count: u64| random.below(count) as usize;
    let from = [From::Primary, From::Standby, From::Mirror, From::Backup][choose(4)];
    let (way, other) = (WAYS[choose(3)], WAYS[choose(3)]);
    let throttle = [None, Some("0.003"), Some("0.02")][choose(3)];
    let kills: Vec<u64> = (0..choose(3)).map(|_| choose(1500) as u64).collect();
    let (stays, promotes) = (choose(2) == 0, choose(2) == 0);
    println!("{from:?} {way:?} beside {other:?}, {throttle:?} Gbit/s, killed after {kills:?} ms, load stays: {stays}");
    let place = Place(tempfile::tempdir().unwrap());
    let mut primary = place.start("a", &[]);
    let sql = Sql::connect(&primary);
    sql.run("CREATE TABLE cnt (id bigint PRIMARY KEY, n bigint)").unwrap();
    sql.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)").unwrap();
    sql.run(&format!("INSERT INTO cnt SELECT id, 0 FROM generate_series(0, {}) AS id", COUNTERS - 1)).unwrap();
    sql.run("INSERT INTO t SELECT id, repeat('y', 100) FROM generate_series(1000000000, 1000015000) AS id").unwrap();
    drop(sql);
    let listen = primary.ready().listen.clone();
    let second = match from {
        From::Standby => Some(place.start("b", &[&["--join", &listen], &other[..]].concat())),
        From::Mirror => Some(place.start("b", &["--join", &listen, "--mirror-bytes", "268435456"])),
        From::Primary | From::Backup => None,
    };
    let is_whole = || {
        if let (Some(second), From::Mirror) = (&second, from) {
            wait_until(second, "the mirror is whole", |status| status["whole"] == true);
        }
    };
    is_whole();
    let load = Load::start(&primary, 0);
    load.wait_for(150);
    match from {
        From::Backup => {
            run(&["backup", "--node", &listen, text(&place.of("backup"))]);
            load.stop();
            run(&["restore", "--backup", text(&place.of("backup")), text(&place.of("again"))]);
            primary = place.start("again", &[]);
            let load = Load::start(&primary, 1 << 30);
            load.wait_for(20);
            connect(&primary).checkpoint(false, SOON).unwrap();
            load.wait_for(50);
            load.stop();
        }
        From::Primary | From::Standby => {
            let source = second.as_ref().unwrap_or(&primary);
            connect(source).checkpoint(false, SOON).unwrap();
            load.wait_for(50);
            load.stop();
        }
        From::Mirror => {
            load.wait_for(150);
            load.stop();
        }
    }
    if let Some(throttle) = throttle {
        let name = if matches!(from, From::Backup) { "again" } else { "a" };
        let (address, listen) = (primary.ready().address.clone(), primary.ready().listen.clone());
        primary.kill();
        drop(primary);
        let more = ["--fabric-bandwidth-gbit", throttle, "--address", &address, "--listen", &listen];
        primary = place.start(name, &more);
        is_whole();
    }
    let load = Load::start(&primary, 1 << 40);
    let listen = primary.ready().listen.clone();
    let source = second.as_ref().map_or(&listen, |second| &second.ready().listen);
    let joins = [&["--join", &listen, "--bootstrap-from", source], &way[..]].concat();
    for after in kills {
        let (mut process, _ready) = Process::spawn(&program(), place.flags("c", &joins)).unwrap();
        thread::sleep(Duration::from_millis(after));
        process.kill();
    }
    load.wait_for(20);
    let stays = if stays {
        Some(load)
    } else {
        load.stop();
        None
    };
    let joined = place.start("c", &joins);
    if let Some(load) = stays {
        load.wait_for(50);
        load.stop();
    }
    assert_same_state_in_time(&primary, &joined);
    assert_eq!(shown(&joined), shown(&primary));
    let status = common::status(&joined);
    assert!(status["again"]["mismatches"].as_u64().unwrap_or(0) == 0, "{status:#}");
    if promotes {
        let before = shown(&primary);
        drop((primary, second));
        connect(&joined).promote(Consent::Loss, SOON).unwrap();
        assert_eq!(shown(&joined), before);
    }
}

fn assert_same_state_in_time(primary: &NodeProcess, joined: &NodeProcess) {
    let (at, ..) = connect(primary).hash(None, SOON).unwrap();
    let deadline = Instant::now() + LONG;
    while connect(joined).hash(Some(at), SOON).is_err() {
        let statuses = || [joined, primary].map(|node| format!("{:#}\n{}", common::status(node), node.messages()));
        assert!(Instant::now() < deadline, "it does not catch up: {:#?}", statuses());
    }
    assert_same_state(&connect(primary), &connect(joined));
}

#[test]
fn a_node_that_joins_has_the_state_however_it_came() {
    let rounds = std::env::var("FRESHET_JOIN_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let mut random = random();
    for number in 0..rounds {
        print!("{number}: ");
        round(&mut random);
    }
}
