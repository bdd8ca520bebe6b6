//! A node takes no more memory than it may: who adds something is refused, and everything else
//! continues; a standby that has too little replays no more, and loses nothing.
//!
//! What is taken is counted for the whole process, so these tests come one after another.

mod common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::{config, definition, hash, row, shipping, soon, start, wait_for};
use freshet_base::memory::announced;
use freshet_engine::{
    Apply, BuildError, CheckpointKind, CommandExecutor, Consent, Database, Encoding, IndexDefinition, IndexError,
    Isolation, KeyPart, Node, NodeConfig, ProcedureError, Safety, Table, TableDefinition, Transaction, WriteError,
    executors, node::RoleStatus,
};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A row of about this many bytes.
fn wide(id: u64, value: u64, length: usize) -> Vec<u8> {
    let mut row = row(id, id % 7, value);
    row.resize(length, value as u8);
    row
}

/// A limit at which nothing is added to what takes this many bytes: 95 % of it, and a sixteenth is
/// for statements.
fn limit_at(bytes: u64) -> u64 {
    bytes / 142 * 160
}

fn insert(database: &Database, table: &Table, id: u64) -> Result<(), ProcedureError> {
    let worker = database.worker().unwrap();
    let done = worker.execute(Isolation::Snapshot, |txn| Ok(txn.insert(table, &wide(id, 0, 1000))?));
    done.map(|(_, ticket)| database.wait(ticket).unwrap())
}

fn update(database: &Database, table: &Table, id: u64, value: u64) -> Result<(), ProcedureError> {
    let worker = database.worker().unwrap();
    let done = worker.execute(Isolation::Snapshot, |txn| {
        let found = txn.get(table, 0, &id.to_be_bytes())?.expect("it is there");
        Ok(txn.update(table, found.rid, &wide(id, value, 1000)).map(drop)?)
    });
    done.map(|((), ticket)| database.wait(ticket).unwrap())
}

fn delete(database: &Database, table: &Table, ids: std::ops::Range<u64>) {
    let worker = database.worker().unwrap();
    for id in ids {
        let ((), ticket) = worker
            .execute(Isolation::Snapshot, |txn| {
                let found = txn.get(table, 0, &id.to_be_bytes())?.expect("it is there");
                Ok(txn.delete(table, found.rid)?)
            })
            .unwrap();
        database.wait(ticket).unwrap();
    }
}

fn is_full<T: std::fmt::Debug>(outcome: Result<T, ProcedureError>) -> bool {
    matches!(outcome, Err(ProcedureError::Write(WriteError::MemoryFull { .. })))
}

/// Inserts until that is refused; how many records there are then.
fn fill(node: &Node, table: &Table, from: u64) -> u64 {
    let refused = (from..100_000).find(|id| is_full(insert(node.database(), table, *id)));
    refused.expect("the limit is reached")
}

fn count(database: &Database, table: &Table) -> u64 {
    let worker = database.worker().unwrap();
    let transaction = worker.begin_read_only();
    let mut count = 0;
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    transaction
        .scan(table, 0, all, freshet_engine::Direction::Forward, |_, _| {
            count += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    count
}

#[test]
fn at_the_limit_additions_are_refused_and_nothing_else() {
    let _alone = alone();
    let node = start(config(None));
    let database = node.database();
    let table = database.create_table(&definition()).unwrap();
    insert(database, &table, 0).unwrap();
    node.set_memory_bytes(limit_at(node.memory().used + (8 << 20)));
    let there = fill(&node, &table, 1);
    assert!((4_000..9_000).contains(&there), "{there}");
    let memory = node.memory();
    assert!(memory.full && memory.used < memory.limit.unwrap() + (1 << 20), "{memory:?}");
    // What is there can be read and go; nothing can be added or changed, and no index be built.
    assert_eq!(count(database, &table), there);
    assert!(is_full(update(database, &table, 7, 1)));
    let more = IndexDefinition::new("things_value", false, &[KeyPart::unsigned(16, 8)]);
    let built = database.begin_index(&table, &more, &|| false).unwrap().finish(&|| false);
    assert!(matches!(built, Err(IndexError::Build(BuildError::Memory(_)))), "{built:?}");
    // The catalog has a reserve.
    let other = database.create_table(&freshet_engine::TableDefinition { name: "other".into(), ..definition() });
    assert!(is_full(insert(database, &other.unwrap(), 0)));
    delete(database, &table, 0..there / 2);
    wait_for("memory that is given back", || !node.memory().full);
    insert(database, &table, 0).unwrap();
    update(database, &table, 0, 1).unwrap();
    // A higher limit counts at once.
    fill(&node, &table, there + 1);
    node.set_memory_bytes(limit_at(node.memory().used + (8 << 20)));
    update(database, &table, 0, 2).unwrap();
    node.stop().unwrap();
}

#[test]
fn what_an_open_snapshot_keeps_is_reported_and_given_back() {
    let _alone = alone();
    let node = start(config(None));
    let database = node.database();
    let table = database.create_table(&definition()).unwrap();
    insert(database, &table, 0).unwrap();
    let (worker, writer) = (database.worker().unwrap(), database.worker().unwrap());
    let reader = worker.begin_read_only();
    for value in 0..2_000 {
        let rid = reader.get(&table, 0, &0_u64.to_be_bytes()).unwrap().unwrap().rid;
        let update =
            |txn: &freshet_engine::Transaction<'_>| Ok(txn.update(&table, rid, &wide(0, value, 1000)).map(drop)?);
        let _ = writer.execute(Isolation::Snapshot, update).unwrap();
    }
    let kept = node.memory().kept_for_snapshots;
    assert!((2_000_000..2_500_000).contains(&kept), "{kept}");
    drop(reader);
    wait_for("old versions that go", || node.memory().kept_for_snapshots < 100_000);
    node.stop().unwrap();
}

#[test]
fn a_restart_above_the_limit_has_everything_and_takes_no_more() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let node = start(config(Some(directory.path())));
    let table = node.database().create_table(&definition()).unwrap();
    for id in 0..3_000 {
        insert(node.database(), &table, id).unwrap();
    }
    let before = hash(&node);
    drop(table);
    node.stop().unwrap();
    drop(node);
    let node = start(NodeConfig { memory_bytes: 1 << 20, ..config(Some(directory.path())) });
    assert_eq!(hash(&node), before);
    let table = node.database().table("things").unwrap();
    assert!(node.memory().full && is_full(insert(node.database(), &table, 5_000)));
    delete(node.database(), &table, 0..10);
    assert_eq!(count(node.database(), &table), 2_990);
    node.set_memory_bytes(0);
    insert(node.database(), &table, 5_000).unwrap();
    node.stop().unwrap();
}

fn in_sync(primary: &Node) -> usize {
    shipping(primary).standbys.iter().filter(|standby| standby.in_sync).count()
}

/// Whether the standby says that it has no memory, and how far it has replayed, and has its log.
fn lacks(standby: &Node) -> (bool, u64, u64) {
    let RoleStatus::Standby { own, .. } = standby.status().role else { panic!("it is a standby") };
    (own.lacks.is_some(), own.replayed.0, own.persisted.0)
}

/// A primary with a standby whose tables may take little more than they do.
fn with_poor_standby(directories: [&std::path::Path; 2]) -> (Arc<Node>, Arc<Node>, Arc<Table>) {
    let of = |directory| {
        let mut config = NodeConfig { safety: Safety::TwoSafe, standby_timeout_ms: 300, ..config(Some(directory)) };
        // So that what is not replayed does not fit.
        config.log.buffer_bytes = 256 << 10;
        config
    };
    let primary = start(of(directories[0]));
    let table = primary.database().create_table(&definition()).unwrap();
    let standby = start(NodeConfig { join: Some(primary.address().to_owned()), ..of(directories[1]) });
    wait_for("a standby in sync", || in_sync(&primary) == 1);
    // It replays until an eighth above.
    standby.set_memory_bytes((standby.memory().used + (1 << 20)) / 43 * 40);
    for id in 0..6_000 {
        insert(primary.database(), &table, id).unwrap();
    }
    wait_for("a standby that replays no more", || lacks(&standby).0);
    // Its log continues, and commits do not wait for it.
    for id in 6_000..8_000 {
        insert(primary.database(), &table, id).unwrap();
    }
    wait_for("a standby that is out of sync", || in_sync(&primary) == 0);
    let end = primary.log().unwrap().durable();
    wait_for("the whole log", || lacks(&standby).2 >= end.0);
    let (lacks, replayed, _) = lacks(&standby);
    assert!(lacks && replayed < end.0, "{replayed} of {end}");
    (primary, standby, table)
}

#[test]
fn a_standby_without_memory_keeps_its_log_and_comes_back() {
    let _alone = alone();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (primary, standby, table) = with_poor_standby([directories[0].path(), directories[1].path()]);
    standby.set_memory_bytes(0);
    insert(primary.database(), &table, 9_000).unwrap();
    wait_for("a standby in sync again", || in_sync(&primary) == 1);
    let end = primary.log().unwrap().durable();
    standby.wait_visible(end, soon()).unwrap();
    assert_eq!(hash(&standby), hash(&primary));
    assert!(!lacks(&standby).0);
    // And what follows is replayed as ever.
    for id in 10_000..11_000 {
        insert(primary.database(), &table, id).unwrap();
    }
    standby.wait_visible(primary.log().unwrap().durable(), soon()).unwrap();
    assert_eq!(hash(&standby), hash(&primary));
    primary.stop().unwrap();
    standby.stop().unwrap();
}

#[test]
fn a_standby_without_memory_can_take_over_and_restart() {
    for restarts in [false, true] {
        let _alone = alone();
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (primary, mut standby, table) = with_poor_standby([directories[0].path(), directories[1].path()]);
        let before = hash(&primary);
        drop(table);
        primary.stop().unwrap();
        drop(primary);
        if restarts {
            let join = Some("127.0.0.1:9".to_owned());
            let again = NodeConfig { safety: Safety::OneSafe, join, ..config(Some(directories[1].path())) };
            standby.stop().unwrap();
            drop(standby);
            standby = start(NodeConfig { memory_bytes: 1 << 20, ..again });
        }
        standby.promote(Consent::Loss).unwrap();
        assert_eq!(hash(&standby), before);
        let table = standby.database().table("things").unwrap();
        assert!(is_full(insert(standby.database(), &table, 20_000)));
        standby.set_memory_bytes(0);
        insert(standby.database(), &table, 20_000).unwrap();
        standby.stop().unwrap();
    }
}

/// Makes tables with this many rows each.
fn make_tables(database: &Database, tables: u64, rows: u64) {
    let worker = database.worker().unwrap();
    for number in 0..tables {
        let named = TableDefinition { name: format!("table {number}"), ..definition() };
        let table = database.create_table(&named).unwrap();
        let filled = worker.execute(Isolation::Snapshot, |txn| {
            for id in 0..rows {
                txn.insert(&table, &wide(id, 0, 100))?;
            }
            Ok(())
        });
        database.wait(filled.unwrap().1).unwrap();
    }
}

/// What a node counts for such tables: the same after a checkpoint.
fn counted_by_a_primary(tables: u64, rows: u64) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let node = start(config(Some(directory.path())));
    let before = node.memory().used;
    make_tables(node.database(), tables, rows);
    let made = node.memory().used - before;
    node.checkpoint(CheckpointKind::Fuzzy).unwrap();
    let after = node.memory().used - before;
    assert!(after.abs_diff(made) < made / 8, "{made} bytes, and {after} after a checkpoint");
    node.stop().unwrap();
    made
}

struct Idle;

impl CommandExecutor for Idle {
    fn execute(&self, _: &Transaction<'_>, _: u32, _: &[u8]) -> Result<(), ProcedureError> {
        unreachable!("no inputs are recorded")
    }
}

/// A standby that takes no more than its primary may, but for what replay has announced, replays.
fn replays_as_long_as_its_primary_adds(primary: &Node, standby: &Node) {
    standby.set_memory_bytes(limit_at(standby.memory().used - announced() + (64 << 10)));
    let table = primary.database().table("table 0").unwrap();
    insert(primary.database(), &table, 100_000).unwrap();
    standby.wait_visible(primary.log().unwrap().durable(), soon()).unwrap();
    assert!(!lacks(standby).0);
}

/// A checkpoint looks at every row, so a standby has all of them in memory then. What it needs
/// beside what its primary needs is little: most is of tables with few rows, and then a page.
#[test]
fn a_standby_counts_what_its_primary_counts_also_after_a_checkpoint() {
    const PAGE: u64 = 4096;
    let _alone = alone();
    for (tables, rows) in [(100, 20), (20, 2_000)] {
        let by_primary = counted_by_a_primary(tables, rows);
        let fresh = [Encoding::Bytes, Encoding::Inputs].map(|encoding| (Apply::Fresh, encoding));
        for (apply, encoding) in fresh.into_iter().chain([(Apply::Full, Encoding::Bytes)]) {
            let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let of = |n: usize, join: Option<String>| {
                let config = NodeConfig { safety: Safety::TwoSafe, apply, ..config(Some(directories[n].path())) };
                NodeConfig { encoding, join, record_inputs: true, ..config }
            };
            let begin = |config| Node::start_executing(config, Some(executors(|| Idle)), |_| {}).unwrap();
            freshet_base::private::umask();
            let primary = begin(of(0, None));
            let standby = begin(of(1, Some(primary.address().to_owned())));
            wait_for("a standby in sync", || in_sync(&primary) == 1);
            let (before, announced_before) = (standby.memory().used + by_primary, announced());
            make_tables(primary.database(), tables, rows);
            standby.wait_visible(primary.log().unwrap().durable(), soon()).unwrap();
            standby.checkpoint(CheckpointKind::Fuzzy).unwrap();
            let by_standby = standby.memory().used - before;
            let announced = announced() - announced_before;
            let what = format!("{by_standby} bytes, {announced} announced: {tables} tables, {apply:?}, {encoding:?}");
            assert!(by_standby - announced <= by_primary + by_primary / 8, "{what}, by the primary {by_primary}");
            assert!(announced <= (by_primary / 8).max(tables * 2 * PAGE), "{what}");
            replays_as_long_as_its_primary_adds(&primary, &standby);
            standby.stop().unwrap();
            primary.stop().unwrap();
        }
    }
}
