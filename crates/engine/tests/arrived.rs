//! What a standby has acknowledged and not executed yet survives whatever comes in between: its
//! own checkpoints and restarts, when no other node is left, and changes of tables and indexes,
//! below relays too.

mod common;

use std::{
    ops::{Bound, ControlFlow},
    path::Path,
    sync::{Arc, Condvar, Mutex},
    thread,
};

use common::{config, definition, directories, hash, look, row, soon, start, wait_for};
use freshet_engine::{
    CheckpointKind, CommandExecutor, Consent, Database, Direction, Encoding, FabricKind, IndexDefinition, Isolation,
    KeyPart, Lsn, Node, NodeConfig, ProcedureError, Role, Safety, Table, TableDefinition, Transaction, executors,
    node::RoleStatus, record_as,
};
use freshet_replication::status::OwnStatus;
use tempfile::TempDir;

/// Adds one to a row; a standby does so only while its gate is open.
const SLOW: u32 = 1;
/// Sets a row to one more than another one.
const COPY: u32 = 2;
/// Inserts a row.
const INSERT: u32 = 3;
/// Sets a row to one more than one of the other table, which may have been dropped since.
const COPY_OTHER: u32 = 4;

const ROWS: u64 = 200;

fn value(row: &[u8]) -> u64 {
    u64::from_le_bytes(row[16..24].try_into().unwrap())
}

fn aborted(why: &'static str) -> ProcedureError {
    ProcedureError::Aborted(why.into())
}

fn read(txn: &Transaction<'_>, table: &str, id: u64) -> Result<u64, ProcedureError> {
    let table = txn.table(table).ok_or_else(|| aborted("no such table"))?;
    let found = txn.get(&table, 0, &id.to_be_bytes())?.ok_or_else(|| aborted("no such row"))?;
    Ok(value(found.row))
}

fn write(txn: &Transaction<'_>, id: u64, value: u64) -> Result<(), ProcedureError> {
    let table = txn.table("things").ok_or_else(|| aborted("no table"))?;
    let old = txn.get(&table, 0, &id.to_be_bytes())?.ok_or_else(|| aborted("no such row"))?.rid;
    txn.update(&table, old, &row(id, id % 7, value))?;
    Ok(())
}

fn act(txn: &Transaction<'_>, procedure: u32, [to, from]: [u64; 2]) -> Result<(), ProcedureError> {
    match procedure {
        SLOW => write(txn, to, read(txn, "things", to)? + 1),
        COPY => write(txn, to, read(txn, "things", from)? + 1),
        COPY_OTHER => write(txn, to, read(txn, "other", from)? + 1),
        _ => {
            let table = txn.table("things").ok_or_else(|| aborted("no table"))?;
            txn.insert(&table, &row(to, from, 0))?;
            Ok(())
        }
    }
}

/// Does it, and notes what it was told to do.
fn do_recorded(txn: &Transaction<'_>, procedure: u32, ids: [u64; 2]) -> Result<(), ProcedureError> {
    act(txn, procedure, ids)?;
    assert!(txn.records_inputs());
    record_as(txn, procedure, &ids.iter().flat_map(|id| id.to_be_bytes()).collect::<Vec<_>>());
    Ok(())
}

/// Does it in a transaction of its own; returns where that ends.
fn run(database: &Database, procedure: u32, ids: [u64; 2]) -> Lsn {
    let done = database.worker().unwrap().execute(Isolation::Snapshot, |txn| do_recorded(txn, procedure, ids));
    done.unwrap().1.until
}

/// What slow transactions wait for on a standby.
#[derive(Default)]
struct Gate {
    state: Mutex<Slow>,
    changed: Condvar,
}

#[derive(Default)]
struct Slow {
    open: bool,
    over: bool,
    /// How many wait.
    waiting: u32,
}

impl Gate {
    fn open(&self, open: bool) {
        self.state.lock().unwrap().open = open;
        self.changed.notify_all();
    }

    /// Those who wait fail.
    fn end(&self) {
        self.state.lock().unwrap().over = true;
        self.changed.notify_all();
    }

    fn is_waited_for(&self) -> bool {
        self.state.lock().unwrap().waiting > 0
    }

    fn pass(&self) -> Result<(), ProcedureError> {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        while !state.open && !state.over {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
        if state.over { Err(aborted("the standby ends")) } else { Ok(()) }
    }
}

struct Gated(Arc<Gate>);

impl CommandExecutor for Gated {
    fn execute(&self, txn: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        if procedure == SLOW {
            self.0.pass()?;
        }
        let id = |at: usize| u64::from_be_bytes(inputs[at..at + 8].try_into().expect("eight bytes"));
        act(txn, procedure, [id(0), id(8)])
    }
}

fn settings(directory: &Path) -> NodeConfig {
    let mut config = NodeConfig { safety: Safety::TwoSafe, ..config(Some(directory)) };
    config.fabric.kind = FabricKind::Tcp;
    config.least_in_sync = 1;
    config.standby_timeout_ms = 60_000;
    config.record_inputs = true;
    config.checkpoint.interval_s = 0;
    config.checkpoint.keep_log_bytes = 0;
    config
}

/// A standby that executes what arrives, slow transactions while `gate` is open.
fn executing(config: NodeConfig, gate: &Arc<Gate>) -> Arc<Node> {
    freshet_base::private::umask();
    let gate = Arc::clone(gate);
    let config = NodeConfig { encoding: Encoding::Inputs, ..config };
    Node::start_executing(config, Some(executors(move || Gated(Arc::clone(&gate)))), |_| {}).unwrap()
}

fn fill(database: &Database, name: &str) -> Arc<Table> {
    let table = database.create_table(&TableDefinition { name: name.into(), ..definition() }).unwrap();
    let worker = database.worker().unwrap();
    let insert =
        |txn: &Transaction<'_>| (0..ROWS).try_for_each(|id| Ok(txn.insert(&table, &row(id, id % 7, 0)).map(drop)?));
    let ((), ticket) = worker.execute(Isolation::Snapshot, insert).unwrap();
    database.wait(ticket).unwrap();
    table
}

/// A primary with rows, and a standby that executes what arrives, whose gate is open or not; and
/// how that was started.
fn pair(directories: &[TempDir], open: bool) -> (Arc<Node>, Arc<Node>, Arc<Gate>, NodeConfig) {
    let primary = start(settings(directories[0].path()));
    let gate = Arc::new(Gate::default());
    gate.open(open);
    let mine = NodeConfig { join: Some(primary.address().into()), ..settings(directories[1].path()) };
    let standby = executing(mine.clone(), &gate);
    fill(primary.database(), "things");
    (primary, standby, gate, mine)
}

fn own(node: &Node) -> OwnStatus {
    match node.status().role {
        RoleStatus::Standby { own, .. } => *own,
        other => panic!("it is a standby, not {other:?}"),
    }
}

/// The primary is gone for good, and the standby ends and starts again, and takes over.
fn alone(primary: Arc<Node>, standby: Arc<Node>, gate: &Gate, config: NodeConfig) -> Arc<Node> {
    primary.stop().unwrap();
    drop(primary);
    gate.end();
    standby.stop().unwrap();
    drop(standby);
    let open = Arc::new(Gate::default());
    open.open(true);
    let standby = executing(config, &open);
    standby.promote(Consent::Nothing).unwrap();
    assert_eq!(standby.role(), Role::Primary);
    standby
}

fn value_of(node: &Node, id: u64) -> u64 {
    let worker = node.database().worker().unwrap();
    read(&worker.begin_read_only(), "things", id).unwrap()
}

/// Something that may come about within a moment; what is to be, the caller says.
fn for_a_moment(happens: impl Fn() -> bool) -> bool {
    (0..60).any(|_| {
        thread::sleep(std::time::Duration::from_millis(5));
        happens()
    })
}

/// A transaction has read before the standby's checkpoint, and comes behind it: what it has seen,
/// a restart from that does not have.
#[test]
fn what_reads_below_a_checkpoint_counts_only_when_the_log_has_it() {
    let directories = directories();
    let (primary, standby, gate, mine) = pair(&directories, true);
    let database = primary.database();
    run(database, SLOW, [0, 0]);
    let worker = database.worker().unwrap();
    let old = worker.begin(Isolation::Snapshot);
    // It has seen what another changes, before the checkpoint does.
    do_recorded(&old, COPY, [2, 1]).unwrap();
    let end = run(database, SLOW, [1, 0]);
    standby.wait_visible(end, soon()).unwrap();
    let checkpoint = standby.checkpoint(CheckpointKind::Fuzzy).unwrap();
    assert!(checkpoint.end.unwrap() >= end);
    gate.open(false);
    run(database, SLOW, [3, 0]);
    let late = old.commit().unwrap();
    let behind = run(database, SLOW, [4, 0]);
    drop(worker);
    wait_for("all of it has arrived", || own(&standby).arrived >= behind && gate.is_waited_for());
    let early = for_a_moment(|| own(&standby).persisted >= late.until);
    gate.open(true);
    assert!(!early, "it is acknowledged from the journal");
    primary.wait(late, soon()).unwrap();
    // The next ones are kept in the journal again.
    gate.open(false);
    let end = run(database, SLOW, [5, 0]);
    wait_for("it counts", || own(&standby).persisted >= end);
    let state = hash(&primary);
    let standby = alone(primary, standby, &gate, mine);
    assert_eq!(hash(&standby), state);
    assert_eq!((value_of(&standby, 1), value_of(&standby, 2), value_of(&standby, 5)), (1, 1, 1));
    standby.stop().unwrap();
}

/// It has arrived and is acknowledged before the checkpoint is written.
#[test]
fn a_checkpoint_waits_for_what_has_arrived_before() {
    let directories = directories();
    let (primary, standby, gate, mine) = pair(&directories, true);
    let database = primary.database();
    run(database, SLOW, [0, 0]);
    let worker = database.worker().unwrap();
    let old = worker.begin(Isolation::Snapshot);
    do_recorded(&old, COPY, [2, 1]).unwrap();
    let end = run(database, SLOW, [1, 0]);
    standby.wait_visible(end, soon()).unwrap();
    gate.open(false);
    run(database, SLOW, [3, 0]);
    let late = old.commit().unwrap();
    drop(worker);
    primary.wait(late, soon()).unwrap();
    let state = hash(&primary);
    assert!(own(&standby).visible < late.until);
    let (before, node) = (standby.status().checkpoint.unwrap().start, Arc::clone(&standby));
    let asked = thread::spawn(move || node.checkpoint(CheckpointKind::Fuzzy));
    wait_for("it is written", || asked.is_finished() || standby.status().checkpoint.unwrap().under_way.is_some());
    let early = for_a_moment(|| asked.is_finished());
    let there = standby.status().checkpoint.unwrap().start;
    let standby = alone(primary, standby, &gate, mine);
    assert!(!early && there == before, "it does not wait");
    assert!(asked.join().unwrap().is_err(), "the node has ended");
    assert_eq!(hash(&standby), state);
    assert_eq!((value_of(&standby, 1), value_of(&standby, 2), value_of(&standby, 3)), (1, 1, 1));
    standby.stop().unwrap();
}

/// And it is written when that is part of the log.
#[test]
fn a_checkpoint_is_written_when_what_has_arrived_is_part_of_the_log() {
    let directories = directories();
    let (primary, standby, gate, _) = pair(&directories, false);
    let end = run(primary.database(), SLOW, [0, 0]);
    wait_for("it counts", || own(&standby).persisted >= end);
    let node = Arc::clone(&standby);
    let asked = thread::spawn(move || node.checkpoint(CheckpointKind::Fuzzy));
    wait_for("it is written", || asked.is_finished() || standby.status().checkpoint.unwrap().under_way.is_some());
    assert!(!asked.is_finished());
    gate.open(true);
    asked.join().unwrap().unwrap();
    standby.stop().unwrap();
    primary.stop().unwrap();
}

/// What a transaction has read is dropped before it commits: a restart does not bring it back.
#[test]
fn what_reads_tables_that_were_dropped_since_survives_a_restart() {
    let directories = directories();
    let (primary, standby, gate, mine) = pair(&directories, true);
    let other = fill(primary.database(), "other");
    let database = primary.database();
    run(database, SLOW, [0, 0]);
    let worker = database.worker().unwrap();
    let old = worker.begin(Isolation::Snapshot);
    do_recorded(&old, COPY_OTHER, [2, 1]).unwrap();
    database.drop_table(&other).unwrap();
    let end = run(database, SLOW, [1, 0]);
    standby.wait_visible(end, soon()).unwrap();
    gate.open(false);
    let slow = run(database, SLOW, [3, 0]);
    let late = old.commit().unwrap();
    drop((worker, other));
    primary.wait(late, soon()).unwrap();
    let state = hash(&primary);
    assert!(own(&standby).visible <= slow);
    let standby = alone(primary, standby, &gate, mine);
    assert_eq!(hash(&standby), state);
    assert_eq!(value_of(&standby, 2), 1);
    standby.stop().unwrap();
}

/// How many rows of a group a reader finds by index `index` in its snapshot.
fn count(node: &Node, index: usize, group: u64) -> usize {
    let worker = node.database().worker().unwrap();
    let txn = worker.begin_read_only();
    let table = txn.table("things").unwrap();
    let (key, mut count) = (group.to_be_bytes(), 0);
    let range = (Bound::Included(&key[..]), Bound::Included(&key[..]));
    txn.scan(&table, index, range, Direction::Forward, |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    count
}

/// The group of the rows that are inserted late.
const LATE: u64 = 77;

/// A standby lags while an index is dropped and another one made: what it executes in between is
/// in the indexes that there were then.
#[test]
fn keys_are_those_of_the_blocks_own_time_below_relays_too() {
    for relayed in [false, true] {
        let directories = directories();
        let primary = settings(directories[0].path());
        let primary = start(NodeConfig { safety: Safety::OneSafe, least_in_sync: 0, ..primary });
        let database = primary.database();
        let table = fill(database, "things");
        let relay = relayed.then(|| {
            let config = NodeConfig { relay_standbys: 1, ..settings(directories[1].path()) };
            start(NodeConfig { join: Some(primary.address().into()), ..config })
        });
        let upstream = relay.as_deref().unwrap_or(&primary).address().to_owned();
        let gate = Arc::new(Gate::default());
        gate.open(true);
        let mine = NodeConfig { join: Some(upstream), asynchronous: relayed, ..settings(directories[2].path()) };
        let lagging = executing(mine.clone(), &gate);
        let begun = run(database, SLOW, [0, 0]);
        lagging.wait_visible(begun, soon()).unwrap();
        lagging.stop().unwrap();
        drop(lagging);
        for id in 0..ROWS {
            run(database, INSERT, [10_000 + id, LATE]);
        }
        let full = run(database, INSERT, [20_000, LATE]);
        run(database, SLOW, [1, 0]);
        database.wait(database.drop_index(&table, 1).unwrap()).unwrap();
        let value = IndexDefinition::new("things_value", false, &[KeyPart::unsigned(16, 8)]);
        let made = database.begin_index(&table, &value, &|| false).unwrap().finish(&|| false).unwrap();
        for id in 0..ROWS {
            run(database, INSERT, [30_000 + id, LATE]);
        }
        let end = run(database, SLOW, [2, 0]);
        if let Some(relay) = &relay {
            relay.wait_visible(end, soon()).unwrap();
        }
        for node in [Some(&primary), relay.as_ref()].into_iter().flatten() {
            let has = |node: &Node| {
                let table = node.database().table("things").unwrap();
                let participant = node.database().core().participants.join().unwrap();
                let guard = participant.pin_without_snapshot();
                look(node.database(), &table, |content| content.indexes(&guard).get(1).is_some())
            };
            wait_for("the index is forgotten", || !has(node));
        }
        gate.open(false);
        let lagging = executing(mine, &gate);
        // It stands still where the index is there, with all of them.
        wait_for("it stands still", || gate.is_waited_for() && own(&lagging).visible >= full);
        assert_eq!(count(&lagging, 1, LATE), ROWS as usize + 1, "below a relay: {relayed}");
        gate.open(true);
        lagging.wait_visible(end, soon()).unwrap();
        let executed = match lagging.status().role {
            RoleStatus::Standby { again: Some(again), .. } => again,
            other => panic!("it executes, and is not {other:?}"),
        };
        assert!(executed.mismatches == 0 && executed.executed > ROWS, "{executed:?}");
        assert_eq!(count(&lagging, made, 0), count(&primary, made, 0));
        assert_eq!(hash(&lagging), hash(&primary));
        for node in [Some(lagging), relay, Some(primary)].into_iter().flatten() {
            node.stop().unwrap();
        }
    }
}
