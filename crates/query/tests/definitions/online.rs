//! Indexes that come and go on filled tables, in the engine's table that is there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use freshet_query::{
    ddl::effects,
    schema::{Entry, FIRST_DATABASE},
};

use crate::harness::{Base, Session};

/// The engine's name for the table `t`, and the numbers of the indexes that it keeps for it.
fn engine(base: &Base) -> (String, Vec<u16>) {
    let committed = base.catalog.committed(FIRST_DATABASE).unwrap();
    let info = committed.entries().find_map(|entry| match entry {
        Entry::Table(info) if info.table.name == "t" => Some(info),
        _ => None,
    });
    let info = info.unwrap();
    (info.table.rows.clone(), base.catalog.made_indexes(&info.rows))
}

fn fill(session: &mut Session<'_>, count: u64) {
    session.ok("CREATE TABLE t (a int PRIMARY KEY, b int, c text)");
    for from in (0..count).step_by(500) {
        let values: Vec<String> =
            (from..(from + 500).min(count)).map(|a| format!("({a}, {}, 'c{}')", a % 10, a / 2)).collect();
        session.ok(&format!("INSERT INTO t VALUES {}", values.join(", ")));
    }
}

#[test]
fn they_come_while_others_write() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    fill(&mut session, 3000);
    let before = engine(&base);
    assert_eq!(before.1, [0]);
    let (done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (base, done, written) = (&base, &done, &written);
            scope.spawn(move || {
                let worker = base.worker();
                let mut session = base.session(&worker);
                let mut turn = 0;
                while !done.load(Ordering::SeqCst) {
                    turn += 1;
                    let a = 10_000 + turn * 2 + writer;
                    session.ok("BEGIN");
                    session.ok(&format!("INSERT INTO t VALUES ({a}, {}, 'new')", a % 10));
                    session.ok(&format!("UPDATE t SET b = b + 1 WHERE a = {}", turn * 7919 % 1500 * 2 + writer));
                    session.ok(&format!("DELETE FROM t WHERE a = {}", a - 20));
                    session.ok("COMMIT");
                    written.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for round in 0..3 {
            session.ok(&format!("CREATE INDEX b{round} ON t (b, a DESC)"));
            session.ok(&format!("CREATE UNIQUE INDEX u{round} ON t (b, a)"));
            let reached = written.load(Ordering::SeqCst) + 3;
            while written.load(Ordering::SeqCst) < reached {
                std::thread::yield_now();
            }
        }
        session.ok("DROP INDEX b0, u1");
        done.store(true, Ordering::SeqCst);
    });
    let after = engine(&base);
    assert_eq!(after, (before.0, vec![0, 2, 3, 5, 6]), "in the same table");
    for b in 0..12 {
        let by_index = session.rows(&format!("SELECT a FROM t WHERE b = {b} ORDER BY a"));
        let by_scan = session.rows(&format!("SELECT a FROM t WHERE b + 0 = {b} ORDER BY a"));
        assert_eq!(by_index, by_scan, "b = {b}");
    }
    let failed = session.fails("CREATE UNIQUE INDEX ON t (c)");
    assert!(failed.starts_with("23505: could not create unique index \"t_c_idx\""), "{failed}");
    assert_eq!(engine(&base), after);
}

#[test]
fn a_transaction_that_is_rolled_back_leaves_what_was_there() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    fill(&mut session, 100);
    session.ok("CREATE INDEX kept ON t (b)");
    let before = engine(&base);
    assert_eq!(before.1, [0, 1]);
    session.ok("BEGIN");
    session.ok("CREATE INDEX gone ON t (c)");
    assert_eq!(session.rows("SELECT a FROM t WHERE c = 'c7' ORDER BY a"), ["14", "15"]);
    session.ok("DROP INDEX kept");
    assert_eq!(session.rows("SELECT count(*) FROM t WHERE b = 3"), ["10"]);
    session.ok("ROLLBACK");
    assert_eq!(engine(&base), before);
    assert_eq!(session.rows("SELECT count(*) FROM t WHERE b = 3"), ["10"]);
    session.ok("BEGIN");
    session.ok("DROP TABLE t");
    session.ok("ROLLBACK");
    assert_eq!(engine(&base), before);
    assert_eq!(session.rows("SELECT count(*) FROM t WHERE b = 3"), ["10"]);
    // Who has written to it gets another table.
    session.ok("BEGIN");
    session.ok("INSERT INTO t VALUES (200, 3, 'own')");
    session.ok("CREATE INDEX own ON t (c)");
    assert_eq!(session.rows("SELECT a FROM t WHERE c = 'own'"), ["200"]);
    session.ok("COMMIT");
    assert_ne!(engine(&base).0, before.0);
    assert_eq!(session.rows("SELECT a FROM t WHERE c = 'own'"), ["200"]);
    // Names are those of SQL, whatever the engine calls them.
    session.ok("ALTER INDEX kept RENAME TO other");
    session.ok("CREATE UNIQUE INDEX kept ON t (c, a)");
    session.ok("CREATE UNIQUE INDEX twice ON t (a, c)");
    let failed = session.fails("INSERT INTO t VALUES (200, 1, 'own')");
    assert!(failed.contains("\"t_pkey\""), "{failed}");
    session.ok("DROP INDEX other");
    assert_eq!(session.rows("SELECT count(*) FROM t WHERE b = 3"), ["11"]);
}

#[test]
fn what_a_table_takes_is_given_back() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    let bytes = || -> u64 {
        let participant = base.database.core().participants.join().unwrap();
        let guard = participant.pin_without_snapshot();
        let tables = base.database.core().catalog.all();
        let contents = tables.iter().filter_map(|table| table.content(&guard));
        contents
            .map(|it| {
                let indexes = it.indexes(&guard).iter().map(|(_, index)| index.tree().statistics(&guard).bytes);
                it.array_bytes() + indexes.sum::<u64>()
            })
            .sum()
    };
    let before = bytes();
    for _ in 0..5 {
        fill(&mut session, 2000);
        session.ok("CREATE INDEX ON t (b)");
        assert!(bytes() > before + (64 << 10));
        session.ok("TRUNCATE t");
        session.ok("ALTER TABLE t ALTER b TYPE bigint");
        session.ok("DROP TABLE t");
        let collector = base.worker();
        collector.collect_garbage();
        assert!(base.catalog.made_tables().is_empty());
        assert!(!base.database.core().catalog.has_dropped());
        assert!(bytes() < before + (64 << 10), "{} and before {before}", bytes());
    }
}

#[test]
fn a_sweep_finds_indexes_that_nobody_names() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    fill(&mut session, 100);
    session.ok("CREATE INDEX kept ON t (b)");
    let (name, _) = engine(&base);
    let table = base.database.table(&name).unwrap();
    let mut definition = table.definition().indexes[0].clone();
    definition.name = "left".into();
    base.database.begin_index(&table, &definition, &|| false).unwrap().finish(&|| false).unwrap();
    // One that is under way.
    session.ok("BEGIN");
    session.ok("CREATE INDEX making ON t (c)");
    assert_eq!(base.catalog.made_indexes(&table), [0, 1, 2, 3]);
    effects::sweep(&base.catalog, &base.sequences).unwrap();
    assert_eq!(base.catalog.made_indexes(&table), [0, 1, 3]);
    session.ok("COMMIT");
    effects::sweep(&base.catalog, &base.sequences).unwrap();
    assert_eq!(engine(&base), (name, vec![0, 1, 3]));
    assert_eq!(session.rows("SELECT a FROM t WHERE c = 'c7' ORDER BY a"), ["14", "15"]);
}
