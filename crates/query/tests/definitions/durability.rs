//! Definitions on a node with a log: restarts, and what a crash leaves.

use std::path::Path;

use std::time::{Duration, Instant};

use freshet_engine::{Consent, Domain, Isolation, Node, NodeConfig, Safety};
use freshet_query::{
    ddl::effects,
    schema::{Catalog, FIRST_DATABASE},
};
use freshet_sql::SqlState;

use crate::harness::Base;

pub fn config(directory: &Path) -> NodeConfig {
    let mut config = NodeConfig {
        directory: directory.to_owned(),
        domain: Domain::File,
        listen: ([127, 0, 0, 1], 0).into(),
        replay_threads: 2,
        new_cluster: true,
        failover: freshet_engine::Failover::Manual,
        ..NodeConfig::default()
    };
    config.log.buffer_bytes = 4 << 20;
    config.log.segment_bytes = 1 << 20;
    config
}

#[test]
fn definitions_outlive_a_restart_and_leftovers_are_swept() {
    let directory = tempfile::tempdir().unwrap();
    {
        let node = Node::start(config(directory.path()), |_| {}).unwrap();
        let base = Base::of(node.database().clone());
        let worker = base.worker();
        let mut session = base.session(&worker);
        session.ok("CREATE TABLE t (id serial PRIMARY KEY, b text, CHECK (b <> ''))");
        session.ok("INSERT INTO t (b) VALUES ('x'), ('y')");
        session.ok("CREATE INDEX ON t (b)");
        session.ok("ALTER TABLE t ADD c int DEFAULT 5");
        // A crash in the middle of a transaction: its effects are never settled.
        session.ok("BEGIN");
        session.ok("ALTER TABLE t ALTER c TYPE text");
        session.ok("CREATE TABLE u (a int)");
        session.ok("ALTER SEQUENCE t_id_seq RESTART WITH 50");
        session.forget();
    }
    let node = Node::start(config(directory.path()), |_| {}).unwrap();
    let base = Base::of(node.database().clone());
    let left = |base: &Base| {
        let committed = base.catalog.committed(FIRST_DATABASE).unwrap();
        let named: Vec<String> = committed
            .entries()
            .filter_map(|entry| match entry {
                freshet_query::schema::Entry::Table(info) => Some(info.table.rows.clone()),
                _ => None,
            })
            .collect();
        let made = base.catalog.made_tables().into_iter().map(|table| table.name().to_owned());
        let tables = made.filter(|name| !named.contains(name));
        let worker = base.worker();
        let reading = worker.begin_read_only();
        let mut rows = 0;
        for name in tables {
            let table = base.database.table(&name).unwrap();
            let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            reading
                .scan(&table, 0, all, freshet_engine::Direction::Forward, |_, _| {
                    rows += 1;
                    std::ops::ControlFlow::Continue(())
                })
                .unwrap();
        }
        rows
    };
    assert!(left(&base) > 0, "the rewritten rows are there still");
    assert_eq!(base.sequences.numbers().unwrap().len(), 2);
    effects::sweep(&base.catalog, &base.sequences).unwrap();
    assert_eq!(left(&base), 0);
    assert_eq!(base.sequences.numbers().unwrap().len(), 1);
    let worker = base.worker();
    let mut session = base.session(&worker);
    assert_eq!(session.rows("SELECT * FROM t ORDER BY id"), ["1,x,5", "2,y,5"]);
    assert_eq!(session.rows("SELECT id FROM t WHERE b = 'y'"), ["2"]);
    assert_eq!(session.fails("SELECT * FROM u"), "42P01: relation \"u\" does not exist");
    session.ok("INSERT INTO t (b) VALUES ('z')");
    assert_eq!(session.rows("SELECT count(*) FROM t WHERE id > 2 AND id < 50"), ["1"]);
    assert!(session.fails("INSERT INTO t (b) VALUES ('')").starts_with("23514"));
}

#[test]
fn a_standby_shows_definitions_and_goes_on_after_a_failover() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let settings = |n: usize| NodeConfig { safety: Safety::OneSafe, ..config(directories[n].path()) };
    let primary = Node::start(settings(0), |_| {}).unwrap();
    let standby = Node::start(NodeConfig { join: Some(primary.address().into()), ..settings(1) }, |_| {}).unwrap();
    let base = Base::of(primary.database().clone());
    let shown = Base::reading(standby.database().clone());
    let worker = base.worker();
    let mut session = base.session(&worker);
    let reading = shown.worker();
    let mut reader = shown.session(&reading);
    let follow = |base: &Base| {
        let end = base.database.core().snapshots.current();
        standby.wait_visible(end, Some(Instant::now() + Duration::from_secs(30))).unwrap();
    };
    session.ok("CREATE TABLE t (id serial PRIMARY KEY, b text)");
    session.ok("INSERT INTO t (b) VALUES ('x'), ('y')");
    follow(&base);
    assert_eq!(reader.rows("SELECT * FROM t ORDER BY id"), ["1,x", "2,y"]);
    // A long reader keeps its definition while the primary continues.
    reader.read_committed = false;
    reader.ok("BEGIN");
    assert_eq!(reader.rows("SELECT count(*) FROM t"), ["2"]);
    session.ok("ALTER TABLE t ADD COLUMN c int DEFAULT 5");
    session.ok("CREATE INDEX ON t (b)");
    session.ok("ALTER TABLE t ALTER c TYPE text");
    session.ok("INSERT INTO t (b, c) VALUES ('z', 'w')");
    follow(&base);
    assert_eq!(reader.rows("SELECT * FROM t ORDER BY id"), ["1,x", "2,y"]);
    reader.ok("COMMIT");
    assert_eq!(reader.rows("SELECT * FROM t WHERE b >= 'y' ORDER BY b"), ["2,y,5", "3,z,w"]);
    assert!(reader.fails("INSERT INTO t (b) VALUES ('no')").starts_with("25006"));
    let last: i64 = session.rows("SELECT max(id) FROM t")[0].parse().unwrap();
    // The primary is lost in the middle of a definition.
    session.ok("BEGIN");
    session.ok("ALTER TABLE t ALTER c TYPE int USING 1");
    follow(&base);
    session.forget();
    drop(worker);
    drop(base);
    primary.stop().unwrap();
    drop(primary);
    standby.promote(Consent::Loss).unwrap();
    let base = &shown;
    base.sequences.make().unwrap();
    let made = base.catalog.made_tables().len();
    assert!(made > 1, "what the old primary has left is here, too");
    effects::sweep(&base.catalog, &base.sequences).unwrap();
    assert_eq!(reader.rows("SELECT * FROM t WHERE b = 'z'"), ["3,z,w"]);
    drop(reader);
    let mut session = base.session(&reading);
    session.ok("INSERT INTO t (b) VALUES ('a'), ('b')");
    let ids = session.rows("SELECT id FROM t WHERE b < 'c' ORDER BY id");
    assert!(ids.iter().all(|id| id.parse::<i64>().unwrap() > last), "{ids:?} come twice");
    session.ok("ALTER TABLE t DROP COLUMN c");
    session.ok("CREATE TABLE u (a int REFERENCES t)");
}

/// Indexes on expressions and of some rows, with rows from before and after they came: their keys
/// are found again by a restart, with and without a checkpoint, and by a standby.
#[test]
fn what_is_computed_for_indexes_is_found_by_restarts_and_standbys() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let settings = |n: usize| NodeConfig { safety: Safety::TwoSafe, ..config(directories[n].path()) };
    let primary = Node::start(settings(0), |_| {}).unwrap();
    let standby = Node::start(NodeConfig { join: Some(primary.address().into()), ..settings(1) }, |_| {}).unwrap();
    let look = |base: &Base| {
        let worker = base.worker();
        let mut session = base.session(&worker);
        assert_eq!(session.rows("SELECT id FROM t WHERE lower(b) = 'x7' AND c IS NULL"), ["7"]);
        assert_eq!(session.rows("SELECT id FROM t WHERE lower(b) = 'x8' AND c IS NULL"), Vec::<String>::new());
        assert_eq!(session.rows("SELECT id FROM t WHERE lower(b) = 'late' AND c IS NULL"), ["1000"]);
        assert_eq!(session.rows("SELECT count(*), max(id) FROM t WHERE id * 2 > 190 AND c > 0"), ["1,98"]);
        assert_eq!(session.rows("SELECT id FROM t WHERE c IS NULL AND id > 96 ORDER BY id"), ["97", "99", "1000"]);
    };
    {
        let base = Base::of(primary.database().clone());
        let worker = base.worker();
        let mut session = base.session(&worker);
        session.ok("CREATE TABLE t (id int PRIMARY KEY, b text, c int)");
        let rows: Vec<String> =
            (1..100).map(|id| format!("({id}, 'X{id}', {})", if id % 2 == 0 { "1" } else { "NULL" })).collect();
        session.ok(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
        session.ok("CREATE UNIQUE INDEX live ON t (lower(b)) WHERE c IS NULL");
        session.ok("CREATE INDEX double ON t ((id * 2)) WHERE c > 0");
        session.ok("CREATE INDEX simple ON t (id) WHERE c IS NULL");
        primary.checkpoint(freshet_engine::CheckpointKind::Fuzzy).unwrap();
        session.ok("INSERT INTO t VALUES (1000, 'LATE', NULL)");
        session.ok("UPDATE t SET c = 0 WHERE id = 96");
        session.ok("UPDATE t SET c = NULL WHERE id = 11");
        assert!(session.fails("INSERT INTO t VALUES (1001, 'late', NULL)").starts_with("23505"));
        let end = base.database.core().snapshots.current();
        standby.wait_visible(end, Some(Instant::now() + Duration::from_secs(30))).unwrap();
        look(&base);
        look(&Base::reading(standby.database().clone()));
    }
    primary.stop().unwrap();
    standby.stop().unwrap();
    drop((primary, standby));
    let alone = NodeConfig { safety: Safety::OneSafe, ..config(directories[0].path()) };
    let again = Node::start(alone, |_| {}).unwrap();
    let base = Base::of(again.database().clone());
    look(&base);
    let worker = base.worker();
    let mut session = base.session(&worker);
    assert!(session.fails("UPDATE t SET b = 'LATE' WHERE id = 7").starts_with("23505"));
    session.ok("UPDATE t SET b = 'LATE' WHERE id = 8");
}

#[test]
fn a_catalog_of_another_format_is_refused() {
    /// Of what databases share.
    const VERSION_OF_ALL: [u8; 9] = [0; 9];
    let base = Base::new();
    let table = base.database.table("sql.catalog").unwrap();
    let worker = base.worker();
    let transaction = worker.begin(Isolation::Snapshot);
    let (rid, row) = {
        let found = transaction.get(&table, 0, &VERSION_OF_ALL).unwrap().unwrap();
        (found.rid, found.row.to_vec())
    };
    // As it was before it said its format, which comes last.
    transaction.update(&table, rid, &row[..row.len() - 1]).unwrap();
    base.database.wait(transaction.commit().unwrap()).unwrap();
    let refused = Catalog::new(base.database.clone()).make("admin").unwrap_err();
    assert_eq!(refused.state, SqlState::DATA_CORRUPTED);
    assert_eq!(refused.message, "the catalog was written by a version of Freshet that keeps it otherwise");
}
