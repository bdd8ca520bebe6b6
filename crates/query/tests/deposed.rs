//! What a session hears of its definitions when another node becomes the primary: that they were
//! rolled back, or that it is open whether they are committed, as for rows (docs/operations.md,
//! "What a client hears").

use std::thread;

use crate::common::{Sql, SqlNode, config, ends, eventually};
use freshet_engine::{Consent, NodeConfig, Safety};

/// A node of three, which all must hold what is committed.
fn of(directory: &tempfile::TempDir, primary: Option<&SqlNode>) -> SqlNode {
    let join = primary.map(|primary| primary.node.address().to_owned());
    SqlNode::start(NodeConfig { join, safety: Safety::Quorum(3), ..config(Some(directory.path())) })
}

fn three(directories: &[tempfile::TempDir; 3]) -> [SqlNode; 3] {
    let first = of(&directories[0], None);
    let others = [1, 2].map(|number| of(&directories[number], Some(&first)));
    let [second, third] = others;
    [first, second, third]
}

fn session(node: &SqlNode, database: &str) -> Sql {
    Sql::open(Sql::config(node.address(), "freshet", None).dbname(database)).unwrap()
}

const MADE: &str = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1); CREATE SEQUENCE s";

/// All of it was rolled back, and the session ends.
#[test]
fn definitions_on_a_deposed_primary_are_rolled_back() {
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [first, second, _third] = three(&directories);
    first.connect().lines(MADE);
    let statements = [
        "INSERT INTO t VALUES (2, 2)",
        "CREATE TABLE n (x int)",
        "CREATE TABLE n (x serial PRIMARY KEY)",
        "CREATE TABLE n AS SELECT * FROM t",
        "CREATE INDEX ON t (v)",
        "CREATE UNIQUE INDEX ON t (v)",
        "CREATE INDEX CONCURRENTLY ON t (v)",
        "DROP TABLE t",
        "TRUNCATE t",
        "ALTER TABLE t ADD COLUMN z int",
        "ALTER TABLE t ALTER COLUMN v TYPE bigint",
        "ALTER TABLE t ADD UNIQUE (v)",
        "CREATE VIEW w AS SELECT * FROM t",
        "CREATE ROLE r",
        "CREATE DATABASE d",
        "SELECT nextval('s')",
        "SELECT setval('s', 7)",
        "BEGIN; CREATE TABLE n (x int); COMMIT",
    ];
    let sessions = statements.map(|statement| (statement, first.connect()));
    second.node.promote(Consent::Loss).unwrap();
    eventually("it hears of its successor", || first.node.is_deposed());
    for (statement, session) in sessions {
        assert_eq!(ends(&session, statement), "57P01", "{statement}");
    }
}

/// A statement, a query that has a row when it waits for its commit, and what it hears then.
const WAITING: [(&str, &str, &str); 9] = [
    ("INSERT INTO t VALUES (2, 2)", "SELECT 1 FROM t WHERE id = 2", "40003"),
    ("CREATE TABLE n (x int)", "SELECT 1 FROM pg_class WHERE relname = 'n'", "40003"),
    ("CREATE TABLE n (x serial)", "SELECT 1 FROM pg_class WHERE relname = 'n'", "40003"),
    ("DROP TABLE t", "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM pg_class WHERE relname = 't')", "40003"),
    ("TRUNCATE t; COMMENT ON SEQUENCE s IS 'x'", "SELECT 1 FROM pg_description WHERE description = 'x'", "40003"),
    ("ALTER TABLE t ADD COLUMN z int", "SELECT 1 FROM pg_attribute WHERE attname = 'z'", "40003"),
    (
        "ALTER TABLE t ALTER COLUMN v TYPE bigint",
        "SELECT 1 FROM pg_attribute WHERE attname = 'v' AND atttypid = 20",
        "40003",
    ),
    // The engine's index is made first. Whether that is committed is open, but the statement, which
    // gives it its name, has not got that far.
    ("CREATE INDEX ON t (v)", "", "57P01"),
    ("SELECT nextval('s')", "", "57P01"),
];

/// Where the statement's own commit waits, it is open whether that holds.
#[test]
fn definitions_that_wait_for_their_commit_are_open_when_the_primary_is_deposed() {
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [first, second, third] = three(&directories);
    // Definitions of one database wait for one another.
    let asking = first.connect();
    let sessions: Vec<[Sql; 2]> = (0..WAITING.len())
        .map(|number| {
            asking.lines(&format!("CREATE DATABASE d{number}"));
            let [waiting, looking] = [(); 2].map(|()| session(&first, &format!("d{number}")));
            waiting.lines(MADE);
            // It waits for nothing of what it sees.
            looking.lines("SET synchronous_commit = off");
            [waiting, looking]
        })
        .collect();
    drop(third);
    thread::scope(|scope| {
        let waits: Vec<_> = sessions
            .iter()
            .zip(WAITING)
            .map(|([waiting, looking], (statement, has_effect, _))| {
                let current = || first.node.database().core().snapshots.current();
                let before = current();
                let waits = scope.spawn(move || ends(waiting, statement));
                eventually(statement, || match has_effect {
                    "" => current() > before,
                    _ => !looking.lines(has_effect).is_empty(),
                });
                waits
            })
            .collect();
        second.node.promote(Consent::Loss).unwrap();
        for (wait, (statement, _, state)) in waits.into_iter().zip(WAITING) {
            assert_eq!(wait.join().unwrap(), state, "{statement}");
        }
    });
}
