//! What is recorded of transactions, and what keeps its records.

mod common;

use std::collections::BTreeMap;

use common::{Sql, SqlNode, config};
use freshet_engine::NodeConfig;

/// A primary that records inputs.
struct Recording {
    node: SqlNode,
    _home: tempfile::TempDir,
}

impl Recording {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let node = SqlNode::start(NodeConfig { record_inputs: true, ..config(Some(home.path())) });
        // The table of words comes with the first one that is said again.
        let sql = node.connect();
        sql.lines("CREATE TABLE first (a int)");
        for a in 0..3 {
            sql.lines(&format!("INSERT INTO first VALUES ({a})"));
        }
        Self { node, _home: home }
    }

    /// How many transactions were recorded, and how many were not, by reason.
    fn counts(&self) -> BTreeMap<String, u64> {
        let counts = self.node.node.database().core().recorded();
        let kept = counts.kept.iter().map(|(why, count)| (why.to_string(), *count));
        kept.chain([("recorded".to_owned(), counts.recorded)]).collect()
    }

    /// What becomes of the transactions that `act` commits: "recorded", or why not, with commas.
    /// Those in which words are entered, or sequences continue, say nothing and do not count.
    fn outcome(&self, act: impl FnOnce()) -> String {
        let before = self.counts();
        act();
        let counts = self.counts().into_iter().filter(|(what, _)| what != "no-inputs");
        let more = counts.flat_map(|(what, count)| {
            let more = count - before.get(&what).copied().unwrap_or(0);
            (0..more).map(move |_| what.clone())
        });
        more.collect::<Vec<_>>().join(", ")
    }
}

const TABLES: &str = "
    CREATE TABLE parent (id int PRIMARY KEY, name text UNIQUE);
    CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE);
    CREATE TABLE early (id int PRIMARY KEY);
    CREATE TABLE later (id int PRIMARY KEY, early int REFERENCES early DEFERRABLE INITIALLY DEFERRED);
    CREATE TABLE plain (a int, b text DEFAULT current_user, c timestamptz DEFAULT now());
    CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, r float8 DEFAULT random());
    INSERT INTO parent SELECT g, 'p' || g FROM generate_series(1, 9) g;
    INSERT INTO early VALUES (7);
    INSERT INTO child VALUES (1, 1), (2, 1), (3, 2);
    INSERT INTO plain VALUES (1), (2), (3)";

/// Transactions, and what becomes of them.
const OUTCOMES: &[(&str, &str)] = &[
    ("SELECT * FROM parent", ""),
    ("SELECT * FROM parent WHERE id = 1 FOR UPDATE", ""),
    ("UPDATE parent SET name = 'x' WHERE id = 100", ""),
    ("INSERT INTO parent VALUES (10, 'p10')", "recorded"),
    ("INSERT INTO parent VALUES (10, 'p10') ON CONFLICT DO NOTHING", ""),
    ("INSERT INTO parent VALUES (10, 'q10') ON CONFLICT (id) DO UPDATE SET name = excluded.name", "recorded"),
    ("UPDATE parent SET name = name || '!' WHERE id BETWEEN 3 AND 5", "recorded"),
    ("UPDATE parent SET id = 11 WHERE id = 1", "recorded"),
    ("DELETE FROM parent WHERE id = 11", "recorded"),
    ("INSERT INTO plain VALUES (4), (5)", "recorded"),
    ("INSERT INTO plain SELECT id, name FROM parent WHERE id < 5", "recorded"),
    ("DELETE FROM plain WHERE a = (SELECT min(id) FROM parent)", "recorded"),
    ("BEGIN; INSERT INTO child VALUES (7, 7); SELECT * FROM child; DELETE FROM child WHERE id = 3; COMMIT", "recorded"),
    ("BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE plain SET a = a + 1; UPDATE plain SET b = 'b'; COMMIT", "recorded"),
    ("BEGIN; SET LOCAL timezone = 'Asia/Tokyo'; INSERT INTO plain VALUES (8); COMMIT", "recorded"),
    ("BEGIN; INSERT INTO plain VALUES (9); SAVEPOINT s; ROLLBACK TO s; COMMIT", "recorded"),
    ("PREPARE p(int) AS INSERT INTO plain VALUES ($1); EXECUTE p(12); DEALLOCATE p", "recorded"),
    ("INSERT INTO numbered DEFAULT VALUES", "recorded"),
    // What keeps its records.
    ("BEGIN; INSERT INTO plain VALUES (9); SAVEPOINT s; DELETE FROM plain; ROLLBACK TO s; COMMIT", "taken-back"),
    ("INSERT INTO plain SELECT g FROM generate_series(1, 3) g", "undetermined"),
    ("UPDATE plain SET a = parent.id FROM parent WHERE parent.id = plain.a", "undetermined"),
    ("INSERT INTO later VALUES (1, 7)", "undetermined"),
    (
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM plain; FETCH c; DELETE FROM plain WHERE CURRENT OF c; COMMIT",
        "undetermined",
    ),
    ("EXPLAIN ANALYZE INSERT INTO plain VALUES (1)", "undetermined"),
    ("BEGIN; INSERT INTO plain VALUES (9); GRANT SELECT ON plain TO PUBLIC; COMMIT", "definitions"),
    ("BEGIN; INSERT INTO plain VALUES (9); NOTIFY n; COMMIT", "messages"),
];

#[test]
fn what_is_determined_is_recorded() {
    let recording = Recording::start();
    let sql = recording.node.connect();
    sql.lines(TABLES);
    let told: Vec<_> = OUTCOMES.iter().map(|(text, _)| (*text, recording.outcome(|| drop(sql.lines(text))))).collect();
    let expected: Vec<_> = OUTCOMES.iter().map(|(text, outcome)| (*text, (*outcome).to_owned())).collect();
    assert_eq!(told, expected);
}

#[test]
fn prepared_statements_are_recorded_with_their_parameters() {
    let recording = Recording::start();
    let Sql { runtime, client } = recording.node.connect();
    let run = |text: &str| runtime.block_on(client.batch_execute(text)).unwrap();
    run(TABLES);
    let insert = runtime.block_on(client.prepare("INSERT INTO parent VALUES ($1, $2)")).unwrap();
    let bytes = || recording.node.node.database().core().recorded().bytes;
    let mut each = Vec::new();
    for id in 20..24 {
        let before = bytes();
        let name = format!("p{id}");
        let insert = || assert_eq!(runtime.block_on(client.execute(&insert, &[&id, &name])).unwrap(), 1);
        assert_eq!(recording.outcome(insert), "recorded");
        each.push(bytes() - before);
    }
    println!("bytes of each: {each:?}");
    // Many in one transaction say their text, and what they depend on, once.
    let before = bytes();
    let all = || {
        run("BEGIN");
        for id in 30..50 {
            runtime.block_on(client.execute(&insert, &[&id, &format!("p{id}")])).unwrap();
        }
        run("COMMIT");
    };
    assert_eq!(recording.outcome(all), "recorded");
    let (all, one) = (bytes() - before, each[0]);
    println!("bytes of 20 in one transaction: {all}");
    assert!(all < 5 * one, "{all} bytes for 20, {one} for one");
    // What is as long as what it writes is of no use.
    let insert = runtime.block_on(client.prepare("INSERT INTO plain VALUES (1, $1)")).unwrap();
    let long = "x".repeat(300 << 10);
    let insert = || assert_eq!(runtime.block_on(client.execute(&insert, &[&long])).unwrap(), 1);
    assert_eq!(recording.outcome(insert), "bulk");
}

#[test]
fn rows_that_are_copied_are_not_recorded() {
    use futures_util::SinkExt as _;
    let recording = Recording::start();
    let Sql { runtime, client } = recording.node.connect();
    runtime.block_on(client.batch_execute(TABLES)).unwrap();
    let copy = || {
        runtime.block_on(async {
            let sink = client.copy_in("COPY parent FROM STDIN").await.unwrap();
            let mut sink = std::pin::pin!(sink);
            sink.send(&b"70\tseventy\n"[..]).await.unwrap();
            sink.finish().await.unwrap();
        });
    };
    assert_eq!(recording.outcome(copy), "bulk");
}

#[test]
fn who_has_met_anothers_row_is_not_recorded() {
    let recording = Recording::start();
    let (one, other) = (recording.node.connect(), recording.node.connect());
    one.lines(TABLES);
    one.lines("BEGIN; UPDATE parent SET name = 'one' WHERE id = 3");
    let outcome = recording.outcome(|| {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| other.lines("UPDATE parent SET name = name || ' and other' WHERE id = 3"));
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            let watcher = recording.node.connect();
            common::eventually("one waits for the other", || watcher.lines(waiting) == ["1"]);
            one.lines("COMMIT");
            waits.join().unwrap();
        });
    });
    assert_eq!(outcome, "others, recorded");
    assert_eq!(one.lines("SELECT name FROM parent WHERE id = 3"), ["one and other"]);
}

#[test]
fn nothing_is_recorded_unless_it_is_asked_for() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    sql.lines(TABLES);
    sql.lines("INSERT INTO parent VALUES (10, 'p10')");
    let recorded = node.node.database().core().recorded();
    assert_eq!((recorded.recorded, recorded.bytes, recorded.kept.len()), (0, 0, 0));
}
