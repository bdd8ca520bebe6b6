//! Definitions on a node with a log: restarts, and what a crash leaves.

use std::path::Path;

use freshet_engine::{Domain, Node, NodeConfig};
use freshet_query::ddl::effects;

use crate::harness::Base;

pub fn config(directory: &Path) -> NodeConfig {
    let mut config = NodeConfig {
        directory: Some(directory.to_owned()),
        domain: Domain::File,
        listen: "127.0.0.1:0".into(),
        replay_threads: 2,
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
        let committed = base.catalog.committed().unwrap();
        let named: Vec<String> = committed
            .entries()
            .filter_map(|entry| match entry {
                freshet_query::schema::Entry::Table(info) => Some(info.table.rows.clone()),
                _ => None,
            })
            .collect();
        let tables = base.catalog.made_tables().into_iter().filter(|name| !named.contains(name));
        let worker = base.worker();
        let reading = worker.begin_read_only();
        let mut rows = 0;
        for name in tables {
            let table = base.database.table(&name).unwrap();
            let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            reading
                .scan(table, 0, all, freshet_engine::Direction::Forward, |_, _| {
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
