//! Joins from fuzzy checkpoints while the log since then is held up or interrupted: however a node
//! applies the log, it is nothing before it has the log up to the checkpoint's end.

mod common;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    ops::{Bound, ControlFlow},
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread,
};

use common::{config, definition, directories, hash, row, soon, start, wait_for};
use freshet_engine::{
    Apply, CheckpointKind, CommandExecutor, Consent, Database, Direction, Encoding, FabricKind, Isolation, Lsn,
    MirrorSettings, Node, NodeConfig, ProcedureError, Safety, Table, Transaction, executors,
    node::{RoleStatus, StartPhase},
    record_as,
};
use freshet_recovery::Manifest;

/// Rows that fill the checkpoint, and rows behind them that are changed all the time.
const FILLING: u64 = 20_000;
const COUNTERS: u64 = 100;

/// The group of a counter's row, which is its key in the second index.
const GROUP: u64 = 3;

/// Adds one to a counter.
fn add(txn: &Transaction<'_>, id: u64) -> Result<(), ProcedureError> {
    let table = txn.table("things").ok_or_else(|| ProcedureError::Aborted("no table".into()))?;
    let old = txn.get(&table, 0, &id.to_be_bytes())?.ok_or_else(|| ProcedureError::Aborted("no counter".into()))?;
    let value = u64::from_le_bytes(old.row[16..24].try_into().expect("eight bytes"));
    txn.update(&table, old.rid, &row(id, GROUP, value + 1))?;
    Ok(())
}

struct Adds;

impl CommandExecutor for Adds {
    fn execute(&self, txn: &Transaction<'_>, _: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        add(txn, u64::from_be_bytes(inputs.try_into().map_err(|_| ProcedureError::Aborted("no id".into()))?))
    }
}

/// Adds one to each counter, in a transaction of its own that may be executed again; returns where
/// the last one ends.
fn add_to_all(database: &Database) -> Lsn {
    let worker = database.worker().unwrap();
    let mut last = None;
    for id in FILLING..FILLING + COUNTERS {
        let adds = |txn: &Transaction<'_>| {
            add(txn, id)?;
            record_as(txn, 1, &id.to_be_bytes());
            Ok(())
        };
        last = Some(worker.execute(Isolation::Snapshot, adds).unwrap().1);
    }
    let ticket = last.expect("there are counters");
    database.wait(ticket).unwrap();
    ticket.until
}

fn fill(database: &Database) -> Arc<Table> {
    let table = database.create_table(&definition()).unwrap();
    let worker = database.worker().unwrap();
    let ids: Vec<u64> = (0..FILLING + COUNTERS).collect();
    let mut last = None;
    for part in ids.chunks(500) {
        let insert = |txn: &Transaction<'_>| {
            part.iter().try_for_each(|id| Ok(txn.insert(&table, &row(*id, GROUP + 1 + id % 4, 0)).map(drop)?))
        };
        last = Some(worker.execute(Isolation::Snapshot, insert).unwrap().1);
    }
    database.wait(last.expect("there are rows")).unwrap();
    table
}

/// Has `node` write a checkpoint while all counters of `primary` are changed again and again, so
/// that it lacks some of them, and takes some of the log.
fn fuzzy_checkpoint(node: &Node, primary: &Node) -> Manifest {
    let begun = soon().unwrap();
    loop {
        let stop = AtomicBool::new(false);
        let status = thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    add_to_all(primary.database());
                }
            });
            let status = node.checkpoint(CheckpointKind::Fuzzy).unwrap();
            stop.store(true, Ordering::SeqCst);
            status
        });
        let (start, end) = (status.start.unwrap(), status.end.unwrap());
        // The catalog has a row, too.
        if status.rows < FILLING + COUNTERS && end.since(start) > 2 * HELD {
            let file = Manifest::path(&node_directory(node), start);
            return Manifest::read(&file).unwrap();
        }
        assert!(std::time::Instant::now() < begun, "no checkpoint lacks a counter");
    }
}

fn node_directory(node: &Node) -> std::path::PathBuf {
    node.config().directory.clone()
}

/// This many bytes pass a [`Hold`] before it holds.
const HELD: u64 = 32 << 10;

/// A way to a node on which what comes back is held up after some bytes, until it is released, or
/// is cut off there.
struct Hold {
    address: String,
    state: Arc<(Mutex<Passed>, Condvar)>,
}

#[derive(Default)]
struct Passed {
    left: u64,
    released: bool,
    cuts: bool,
}

impl Hold {
    fn before(target: &str, left: u64, cuts: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new((Mutex::new(Passed { left, released: false, cuts }), Condvar::new()));
        let (target, ours) = (target.to_owned(), Arc::clone(&state));
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (Ok(near), Ok(far)) = (connection, TcpStream::connect(&target)) else { continue };
                let (up, down) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let state = Arc::clone(&ours);
                thread::spawn(move || pass(near, far, |_| true));
                thread::spawn(move || pass(down, up, |count| Self::may_pass(&state, count)));
            }
        });
        Self { address, state }
    }

    /// Blocks until this number of bytes may pass; whether they may ever.
    fn may_pass((state, changed): &(Mutex<Passed>, Condvar), count: u64) -> bool {
        let mut state = state.lock().unwrap();
        while !state.released && state.left < count {
            if state.cuts {
                return false;
            }
            state = changed.wait(state).unwrap();
        }
        state.left = state.left.saturating_sub(count);
        true
    }

    fn release(&self) {
        self.state.0.lock().unwrap().released = true;
        self.state.1.notify_all();
    }
}

/// Copies what comes while `may` says so, then ends both.
fn pass(mut from: TcpStream, mut to: TcpStream, may: impl Fn(u64) -> bool) {
    let mut bytes = vec![0; 4096];
    while let Ok(count) = from.read(&mut bytes)
        && count > 0
        && may(count as u64)
        && to.write_all(&bytes[..count]).is_ok()
    {}
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// How a node applies the log.
const WAYS: [(Apply, Encoding); 4] = [
    (Apply::Fresh, Encoding::Bytes),
    (Apply::Fresh, Encoding::Inputs),
    (Apply::Fresh, Encoding::Auto),
    (Apply::Full, Encoding::Bytes),
];

fn settings(directory: &Path) -> NodeConfig {
    let mut config = NodeConfig { safety: Safety::OneSafe, ..config(Some(directory)) };
    config.fabric.kind = FabricKind::Tcp;
    config.record_inputs = true;
    config.checkpoint.interval_s = 0;
    config.checkpoint.keep_log_bytes = 0;
    config.checkpoint.cpu_percent = 5;
    config.log.segment_bytes = 1 << 16;
    config
}

/// A node with this configuration, which executes transactions again if it is to; `report` is
/// called with how far its start is.
fn begin(config: NodeConfig, report: impl FnMut(StartPhase) + Send) -> Result<Arc<Node>, String> {
    freshet_base::private::umask();
    Node::start_executing(config, Some(executors(|| Adds)), report).map_err(|cause| cause.to_string())
}

/// Every counter is found by both of its keys and has `value`.
fn check(node: &Node, value: u64) {
    let worker = node.database().worker().unwrap();
    let txn = worker.begin_read_only();
    let table = txn.table("things").unwrap();
    for id in FILLING..FILLING + COUNTERS {
        let found = txn.get(&table, 0, &id.to_be_bytes()).unwrap().map(|found| found.row.to_vec());
        assert_eq!(found, Some(row(id, GROUP, value)), "counter {id}");
    }
    let mut count = 0;
    let key = GROUP.to_be_bytes();
    txn.scan(&table, 1, (Bound::Included(&key[..]), Bound::Included(&key[..])), Direction::Forward, |_, found| {
        assert_eq!(found.row[16..24], value.to_le_bytes());
        count += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(count, COUNTERS);
}

fn value(node: &Node) -> u64 {
    let worker = node.database().worker().unwrap();
    let txn = worker.begin_read_only();
    let table = txn.table("things").unwrap();
    let found = txn.get(&table, 0, &FILLING.to_be_bytes()).unwrap().unwrap();
    u64::from_le_bytes(found.row[16..24].try_into().unwrap())
}

/// Joins `primary`, with the checkpoint of `from`, while the log is held up within the checkpoint:
/// nothing starts before that is released.
fn join_held(primary: &Node, from: &Node, config: NodeConfig) -> Arc<Node> {
    // It is certified by the primary itself, which must see whose process it is.
    let cut = Hold::before(from.address(), 0, true);
    let (join, bootstrap_from) = (Some(primary.address().to_owned()), Some(cut.address));
    begin(NodeConfig { join, bootstrap_from, ..config.clone() }, |_| {}).unwrap_err();
    let hold = Hold::before(primary.address(), HELD, false);
    let config =
        NodeConfig { join: Some(hold.address.clone()), bootstrap_from: Some(from.address().to_owned()), ..config };
    let (reports, reported) = channel();
    let (node, waited) = thread::scope(|scope| {
        let started = scope.spawn(|| {
            let waits = |phase| {
                if matches!(phase, StartPhase::CheckpointLog { done, of } if done < of) {
                    let _ = reports.send(true);
                }
            };
            let node = begin(config.clone(), waits);
            let _ = reports.send(false);
            node
        });
        let waited = reported.recv().unwrap();
        hold.release();
        (started.join().unwrap().unwrap(), waited)
    });
    assert!(waited, "it has started without the log up to the checkpoint's end");
    let status = node.status();
    let RoleStatus::Standby { own, .. } = status.role else { panic!("it is a standby") };
    assert!(own.replayed >= status.checkpoint.unwrap().end.unwrap());
    node
}

#[test]
fn no_node_is_anything_before_the_log_reaches_the_checkpoints_end() {
    for (apply, encoding) in WAYS {
        let directories: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
        let of = |n: usize| settings(directories[n].path());
        let primary = start(of(0));
        fill(primary.database());
        add_to_all(primary.database());
        let second = start(NodeConfig { join: Some(primary.address().into()), ..of(1) });
        let way = |n: usize| NodeConfig { apply, encoding, ..of(n) };
        // From the primary, and from a standby.
        fuzzy_checkpoint(&primary, &primary);
        let third = join_held(&primary, &primary, way(2));
        fuzzy_checkpoint(&second, &primary);
        let fourth = join_held(&primary, &second, way(3));
        let end = add_to_all(primary.database());
        let value = value(&primary);
        for node in [&third, &fourth] {
            node.wait_visible(end, soon()).unwrap();
            check(node, value);
            assert_eq!(hash(node), hash(&primary), "{apply:?}, {encoding:?}");
        }
        // What it has is what others begin with, and what a failover continues from.
        third.checkpoint(CheckpointKind::Fuzzy).unwrap();
        fourth.stop().unwrap();
        drop(fourth);
        let (state, end) = (hash(&primary), add_to_all(primary.database()));
        assert_ne!(hash(&primary), state);
        third.wait_visible(end, soon()).unwrap();
        let state = hash(&primary);
        primary.stop().unwrap();
        second.stop().unwrap();
        drop((primary, second));
        third.promote(Consent::Loss).unwrap();
        assert_eq!(hash(&third), state, "{apply:?}, {encoding:?}");
        check(&third, value + 1);
        add_to_all(third.database());
        check(&third, value + 2);
        third.stop().unwrap();
    }
}

#[test]
fn a_join_that_was_interrupted_begins_again() {
    for (apply, encoding) in WAYS {
        let directories = directories();
        let of = |n: usize| settings(directories[n].path());
        let primary = start(of(0));
        fill(primary.database());
        fuzzy_checkpoint(&primary, &primary);
        // The checkpoint does not come to its end, while some of the log may have come.
        for left in [HELD, 8 * HELD, 8 * HELD] {
            let cut = Hold::before(primary.address(), left, true);
            let config = NodeConfig { apply, encoding, bootstrap_from: Some(cut.address.clone()), ..of(1) };
            let why = begin(NodeConfig { join: Some(primary.address().into()), ..config }, |_| {}).unwrap_err();
            assert!(why.contains("checkpoint"), "{why}");
            fuzzy_checkpoint(&primary, &primary);
        }
        let standby = join_held(&primary, &primary, NodeConfig { apply, encoding, ..of(1) });
        let end = add_to_all(primary.database());
        standby.wait_visible(end, soon()).unwrap();
        check(&standby, value(&primary));
        assert_eq!(hash(&standby), hash(&primary), "{apply:?}, {encoding:?}");
        standby.stop().unwrap();
        primary.stop().unwrap();
    }
}

/// What a mirror gives is fuzzy, too, and says where it ends behind its rows.
#[test]
fn what_a_mirror_gives_counts_with_the_log_up_to_its_end() {
    for (apply, encoding) in WAYS {
        let directories = directories();
        let of = |n: usize| settings(directories[n].path());
        let primary = start(of(0));
        fill(primary.database());
        let mut config = NodeConfig { join: Some(primary.address().into()), ..of(1) };
        config.mirror = MirrorSettings {
            bytes: 256 << 20,
            undo_bytes: 4 << 20,
            directory_bytes: 1 << 20,
            ..MirrorSettings::default()
        };
        let mirror = start(config);
        wait_for("the mirror is whole", || matches!(mirror.status().role, RoleStatus::Mirror { own } if own.whole));
        let stop = AtomicBool::new(false);
        let standby = thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    add_to_all(primary.database());
                }
            });
            let (join, bootstrap_from) = (Some(primary.address().to_owned()), Some(mirror.address().to_owned()));
            let standby = begin(NodeConfig { apply, encoding, join, bootstrap_from, ..of(2) }, |_| {});
            stop.store(true, Ordering::SeqCst);
            standby.unwrap()
        });
        let end = add_to_all(primary.database());
        standby.wait_visible(end, soon()).unwrap();
        check(&standby, value(&primary));
        assert_eq!(hash(&standby), hash(&primary), "{apply:?}, {encoding:?}");
        for node in [standby, mirror, primary] {
            node.stop().unwrap();
        }
    }
}
