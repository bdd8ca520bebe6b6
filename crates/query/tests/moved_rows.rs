//! Rows whose keys another transaction changes while a statement waits for it: each of many changes
//! against each of many statements, at two levels, over three kinds of index.
//!
//! What is expected was said by PostgreSQL 15. `FRESHET_POSTGRES=127.0.0.1:5432` runs the same
//! scripts on a PostgreSQL there (role and database `freshet`, nothing else going on), and writes
//! what it says to `moved_rows.txt`.

use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddr, thread};

use crate::common::{Sql, SqlNode, eventually};

const EXPECTED: &str = include_str!("moved_rows.txt");

/// Which expectations hold, and how the table is made.
const TABLES: [(&str, &str); 3] = [
    ("unique", "CREATE TABLE kk (id int PRIMARY KEY, v int)"),
    ("unique", "CREATE TABLE kk (id int, v int, UNIQUE (id))"),
    ("plain", "CREATE TABLE kk (id int, v int); CREATE INDEX kk_id ON kk (id)"),
];

/// What a transaction does to the rows (1, 10), (3, 30) and (6, 60), and how it ends.
const CHANGES: [(&str, &str); 19] = [
    ("UPDATE kk SET id = 2 WHERE id = 3", "COMMIT"),
    ("UPDATE kk SET id = 9 WHERE id = 3", "COMMIT"),
    ("UPDATE kk SET id = 2 WHERE id = 3; UPDATE kk SET id = 4 WHERE id = 2", "COMMIT"),
    (
        "UPDATE kk SET id = 2 WHERE id = 3; UPDATE kk SET id = 4 WHERE id = 2; UPDATE kk SET id = 0 WHERE id = 4",
        "COMMIT",
    ),
    ("UPDATE kk SET id = 2 WHERE id = 3; UPDATE kk SET id = 3 WHERE id = 2", "COMMIT"),
    ("UPDATE kk SET v = 31 WHERE id = 3; UPDATE kk SET id = 2 WHERE id = 3", "COMMIT"),
    ("UPDATE kk SET id = 2, v = 5 WHERE id = 3", "COMMIT"),
    ("UPDATE kk SET id = 2 WHERE id = 3; UPDATE kk SET v = 35 WHERE id = 2", "COMMIT"),
    ("UPDATE kk SET id = 2 WHERE id = 3; DELETE FROM kk WHERE id = 2", "COMMIT"),
    ("UPDATE kk SET id = 2 WHERE id = 3", "ROLLBACK"),
    ("SAVEPOINT s; UPDATE kk SET id = 2 WHERE id = 3; ROLLBACK TO s", "COMMIT"),
    ("UPDATE kk SET id = 2 WHERE id = 3; SAVEPOINT s; UPDATE kk SET id = 4 WHERE id = 2; ROLLBACK TO s", "COMMIT"),
    ("UPDATE kk SET id = 2 WHERE id = 3; SAVEPOINT s; DELETE FROM kk WHERE id = 2; ROLLBACK TO s", "COMMIT"),
    (
        "UPDATE kk SET id = 2 WHERE id = 3; SAVEPOINT s; UPDATE kk SET id = 4 WHERE id = 2; RELEASE s; SAVEPOINT t; \
         UPDATE kk SET id = 5 WHERE id = 4; ROLLBACK TO t",
        "COMMIT",
    ),
    ("UPDATE kk SET id = 0 WHERE id = 3; UPDATE kk SET id = 3 WHERE id = 1", "COMMIT"),
    ("UPDATE kk SET id = id - 10", "COMMIT"),
    ("UPDATE kk SET id = 4 WHERE id = 3; INSERT INTO kk VALUES (3, 33)", "COMMIT"),
    ("DELETE FROM kk WHERE id = 3; INSERT INTO kk VALUES (3, 33)", "COMMIT"),
    ("SELECT * FROM kk WHERE id = 3 FOR UPDATE", "COMMIT"),
];

/// What another does at the same time.
const STATEMENTS: [&str; 18] = [
    "UPDATE kk SET v = v + 1 RETURNING *",
    "UPDATE kk SET v = v + 1 WHERE id >= 3 RETURNING *",
    "UPDATE kk SET v = v + 1 WHERE id = 3 RETURNING *",
    "UPDATE kk SET v = v + 1 WHERE v >= 30 RETURNING *",
    "UPDATE kk SET id = id + 100, v = v + 1 RETURNING *",
    "UPDATE kk SET v = kk.v + w.x FROM (VALUES (30, 1000), (10, 2000)) w(v, x) WHERE kk.v = w.v RETURNING kk.*",
    "DELETE FROM kk RETURNING *",
    "DELETE FROM kk WHERE id IN (1, 3) RETURNING *",
    "DELETE FROM kk WHERE v = 30 RETURNING *",
    "DELETE FROM kk USING (VALUES (30), (10)) w(v) WHERE kk.v = w.v RETURNING kk.*",
    "SELECT * FROM kk FOR UPDATE",
    "SELECT * FROM kk WHERE id > 1 FOR SHARE",
    "SELECT * FROM kk WHERE v = 30 FOR UPDATE",
    "SELECT a.id, b.id, b.v FROM kk a, kk b WHERE a.id < b.id FOR UPDATE",
    "SELECT * FROM kk FOR UPDATE NOWAIT",
    "SELECT * FROM kk FOR UPDATE SKIP LOCKED",
    "INSERT INTO kk VALUES (3, 1) ON CONFLICT (id) DO UPDATE SET v = kk.v + 1000 RETURNING *",
    "INSERT INTO kk VALUES (3, 1) ON CONFLICT DO NOTHING RETURNING *",
];

const LEVELS: [&str; 2] = ["READ COMMITTED", "REPEATABLE READ"];

/// A server with three sessions: who changes, who waits, who looks.
struct Scene {
    node: Option<SqlNode>,
    sessions: [Sql; 3],
}

impl Scene {
    fn new() -> Self {
        let real = std::env::var("FRESHET_POSTGRES").ok().map(|address| address.parse::<SocketAddr>().unwrap());
        let node = real.is_none().then(SqlNode::in_memory);
        let connect = || match (&node, real) {
            (Some(node), _) => node.connect(),
            (None, address) => Sql::connect(address.unwrap(), "freshet"),
        };
        let sessions = [connect(), connect(), connect()];
        Self { node, sessions }
    }

    /// Runs `statement` while a transaction that has done `change` is open, ends that with `end`,
    /// and returns what became of the statement and of the tables.
    fn run(&self, level: &str, (change, end): (&str, &str), statement: &str, tables: &[&str]) -> String {
        let [one, other, watcher] = &self.sessions;
        other.lines(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM {}", tables[0]));
        one.lines(&format!("BEGIN; {change}"));
        let outcome = thread::scope(|scope| {
            let waiting = scope.spawn(|| other.query(statement));
            eventually("the statement waits or is done", || {
                waiting.is_finished() || watcher.lines("SELECT count(*) FROM pg_locks WHERE NOT granted") != ["0"]
            });
            one.lines(end);
            waiting.join().unwrap()
        });
        let mut text = match outcome {
            Ok(rows) => {
                let mut rows: Vec<String> = rows.into_iter().map(line).collect();
                rows.sort();
                other.lines("COMMIT");
                format!("[{}]", rows.join("; "))
            }
            Err(error) => {
                other.lines("ROLLBACK");
                error.code().unwrap().code().to_owned()
            }
        };
        for table in tables {
            let mut rows = watcher.lines(&format!("SELECT * FROM {table}"));
            rows.sort();
            write!(text, " {table}: {}", rows.join("; ")).unwrap();
        }
        text
    }
}

fn line(row: Vec<Option<String>>) -> String {
    row.into_iter().map(|value| value.unwrap_or_else(|| "NULL".to_owned())).collect::<Vec<_>>().join(" ")
}

/// What is expected in the section of this name: from script to outcome.
fn expected(section: &str) -> BTreeMap<&'static str, &'static str> {
    let lines = EXPECTED.lines().skip_while(|line| *line != format!("## {section}")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("## ")).filter(|line| !line.is_empty());
    lines.map(|line| line.split_once(" => ").unwrap()).collect()
}

/// Compares the outcomes with those of PostgreSQL, or writes them down.
fn judge(scene: &Scene, section: &str, outcomes: &[(String, String)]) {
    if scene.node.is_none() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/moved_rows.txt");
        let before = std::fs::read_to_string(path).unwrap_or_default();
        let mut sections: BTreeMap<String, String> = BTreeMap::new();
        for part in before.split("## ").filter(|part| !part.trim().is_empty()) {
            let (name, lines) = part.split_once('\n').unwrap();
            sections.insert(name.to_owned(), lines.trim().to_owned());
        }
        let lines: Vec<String> = outcomes.iter().map(|(script, outcome)| format!("{script} => {outcome}")).collect();
        sections.insert(section.to_owned(), lines.join("\n"));
        let all: Vec<String> = sections.iter().map(|(name, lines)| format!("## {name}\n{lines}\n")).collect();
        return std::fs::write(path, all.join("\n")).unwrap();
    }
    let expected = expected(section);
    assert_eq!(expected.len(), outcomes.len(), "scripts of {section} that PostgreSQL was never asked");
    let mut wrong = String::new();
    for (script, outcome) in outcomes {
        let wanted = expected.get(script.as_str()).copied().unwrap_or("nothing");
        if outcome != wanted {
            write!(wrong, "\n{script}\n  PostgreSQL: {wanted}\n  here:       {outcome}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{section}:{wrong}");
}

fn all_of(section: &str, create: &str, level: &str) {
    let scene = Scene::new();
    let mut outcomes = Vec::new();
    for change in CHANGES {
        for statement in STATEMENTS {
            // Without a unique key nothing conflicts. And a key that was given up since the
            // snapshot is a conflict at REPEATABLE READ, which PostgreSQL does not see.
            if statement.starts_with("INSERT") && (section == "plain" || level == "REPEATABLE READ") {
                continue;
            }
            scene.sessions[0].lines("DROP TABLE IF EXISTS kk");
            scene.sessions[0].lines(&format!("{create}; INSERT INTO kk VALUES (1, 10), (3, 30), (6, 60)"));
            let outcome = scene.run(level, change, statement, &["kk"]);
            outcomes.push((format!("{}; {} | {statement}", change.0, change.1), outcome));
        }
    }
    judge(&scene, &format!("{section}, {level}"), &outcomes);
}

#[test]
fn rows_that_move_under_a_primary_key_are_followed() {
    LEVELS.iter().for_each(|level| all_of(TABLES[0].0, TABLES[0].1, level));
}

#[test]
fn rows_that_move_under_a_unique_key_are_followed() {
    LEVELS.iter().for_each(|level| all_of(TABLES[1].0, TABLES[1].1, level));
}

#[test]
fn rows_that_move_in_a_plain_index_are_followed() {
    LEVELS.iter().for_each(|level| all_of(TABLES[2].0, TABLES[2].1, level));
}

/// References: the row that is referred to moves, and rows that refer do.
#[test]
fn references_to_rows_that_move_are_kept() {
    let scene = Scene::new();
    let changes = [
        "UPDATE parent SET id = 2 WHERE id = 3",
        "UPDATE parent SET id = 2 WHERE id = 3; UPDATE parent SET id = 3 WHERE id = 2",
        "UPDATE parent SET id = 8 WHERE id = 1",
        "UPDATE child SET p = 6 WHERE id = 10",
        "UPDATE child SET id = 12, p = 6 WHERE id = 10",
        "UPDATE child SET id = 12 WHERE id = 10",
        "UPDATE child SET id = 12 WHERE id = 10; UPDATE child SET p = 6 WHERE id = 12",
        "DELETE FROM child WHERE id = 10",
    ];
    let statements = [
        "INSERT INTO child VALUES (11, 3)",
        "UPDATE child SET p = 3 WHERE id = 10 RETURNING *",
        "UPDATE child SET p = p RETURNING *",
        "DELETE FROM parent WHERE id = 1 RETURNING *",
        "UPDATE parent SET id = 7 WHERE id = 1 RETURNING *",
    ];
    let mut outcomes = Vec::new();
    for action in ["CASCADE", "SET NULL"] {
        for change in changes {
            for statement in statements {
                scene.sessions[0].lines("DROP TABLE IF EXISTS child, parent");
                scene.sessions[0].lines(&format!(
                    "CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (3), (6); \
                     CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent ON DELETE {action} ON UPDATE {action}); \
                     CREATE INDEX child_p ON child (p); INSERT INTO child VALUES (10, 1)"
                ));
                let outcome = scene.run("READ COMMITTED", (change, "COMMIT"), statement, &["child", "parent"]);
                outcomes.push((format!("{action}: {change} | {statement}"), outcome));
            }
        }
    }
    judge(&scene, "references", &outcomes);
}

/// A row that has moved, and that no session holds any more, makes no NOWAIT fail and is not
/// skipped.
#[test]
fn what_nobody_holds_any_more_is_neither_refused_nor_skipped() {
    let scene = Scene::new();
    let mut outcomes = Vec::new();
    for level in LEVELS {
        for change in ["UPDATE kk SET v = 31 WHERE id = 3", "UPDATE kk SET id = 2 WHERE id = 3"] {
            for how in ["", " NOWAIT", " SKIP LOCKED"] {
                let [one, other, watcher] = &scene.sessions;
                one.lines("DROP TABLE IF EXISTS kk");
                one.lines("CREATE TABLE kk (id int PRIMARY KEY, v int); INSERT INTO kk VALUES (3, 30)");
                one.lines(&format!("SELECT pg_advisory_lock(77); BEGIN; {change}"));
                other.lines(&format!("BEGIN ISOLATION LEVEL {level}"));
                let statement =
                    format!("SELECT id, v FROM kk WHERE pg_advisory_xact_lock_shared(77) IS NOT NULL FOR UPDATE{how}");
                let outcome = thread::scope(|scope| {
                    let waiting = scope.spawn(|| match other.query(&statement) {
                        Ok(rows) => format!("[{}]", rows.into_iter().map(line).collect::<Vec<_>>().join("; ")),
                        Err(error) => error.code().unwrap().code().to_owned(),
                    });
                    eventually("it waits", || {
                        waiting.is_finished()
                            || watcher.lines("SELECT count(*) FROM pg_locks WHERE NOT granted") != ["0"]
                    });
                    // The snapshot is older than this, and the row is looked at later.
                    one.lines("COMMIT; SELECT pg_advisory_unlock(77)");
                    waiting.join().unwrap()
                });
                other.lines("ROLLBACK");
                outcomes.push((format!("{level}: {change} | {how}"), outcome));
            }
        }
    }
    judge(&scene, "held by nobody", &outcomes);
}

/// REPEATABLE READ: over a row that its snapshot does not see, doing nothing would mean something
/// that is not so.
#[test]
fn on_conflict_do_nothing_reports_rows_that_its_snapshot_does_not_see() {
    let scene = Scene::new();
    let mut outcomes = Vec::new();
    for level in LEVELS {
        for change in [
            "INSERT INTO kk VALUES (3, 33)",
            "INSERT INTO kk VALUES (5, 5)",
            "UPDATE kk SET v = 11 WHERE id = 1; UPDATE kk SET id = 3 WHERE id = 1",
            "UPDATE kk SET v = 61 WHERE id = 6",
        ] {
            for statement in [
                "INSERT INTO kk VALUES (3, 1) ON CONFLICT DO NOTHING RETURNING *",
                "INSERT INTO kk VALUES (3, 1) ON CONFLICT (id) DO NOTHING RETURNING *",
                "INSERT INTO kk VALUES (6, 1) ON CONFLICT DO NOTHING RETURNING *",
                "INSERT INTO kk VALUES (7, 1), (7, 2) ON CONFLICT DO NOTHING RETURNING *",
                "INSERT INTO kk VALUES (3, 1) ON CONFLICT (id) DO UPDATE SET v = 0 RETURNING *",
            ] {
                let [one, other, _] = &scene.sessions;
                one.lines("DROP TABLE IF EXISTS kk");
                one.lines("CREATE TABLE kk (id int PRIMARY KEY, v int); INSERT INTO kk VALUES (1, 10), (6, 60)");
                other.lines(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM kk"));
                one.lines(&format!("BEGIN; {change}; COMMIT"));
                let outcome = match other.query(statement) {
                    Ok(rows) => {
                        let rows: Vec<String> = rows.into_iter().map(line).collect();
                        let ended = if other.query("COMMIT").is_ok() { "" } else { ", no commit" };
                        format!("[{}]{ended}", rows.join("; "))
                    }
                    Err(error) => {
                        other.lines("ROLLBACK");
                        error.code().unwrap().code().to_owned()
                    }
                };
                outcomes.push((format!("{level}: {change} | {statement}"), outcome));
            }
        }
    }
    judge(&scene, "do nothing", &outcomes);
}

/// Increments of all rows beside sessions that change keys, now and then take that back, and move
/// rows twice: each statement has met each row, once, so that in the end the sum says how many
/// there were.
#[test]
fn no_increment_is_lost_while_keys_change() {
    let seed: u64 = std::env::var("SEED").map_or_else(|_| std::process::id().into(), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    const ROWS: u64 = 6;
    let scene = Scene::new();
    let [first, ..] = &scene.sessions;
    for (create, lock) in [(TABLES[0].1, ""), (TABLES[2].1, "SELECT 1 FROM kk FOR UPDATE")] {
        first.lines("DROP TABLE IF EXISTS kk");
        first.lines(create);
        first.lines(&format!("INSERT INTO kk SELECT g * 1000, 0 FROM generate_series(1, {ROWS}) g"));
        let (turns, movers) = (40_u64, 2_u64);
        let connect = || match &scene.node {
            Some(node) => node.connect(),
            None => Sql::connect(std::env::var("FRESHET_POSTGRES").unwrap().parse().unwrap(), "freshet"),
        };
        let done = std::sync::atomic::AtomicBool::new(false);
        let added: u64 = thread::scope(|scope| {
            for mover in 0..movers {
                let (sql, done) = (connect(), &done);
                scope.spawn(move || {
                    let mut random: u64 = seed * 7 + mover + 1;
                    let mut next = |below: u64| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        (random >> 33) % below
                    };
                    while !done.load(std::sync::atomic::Ordering::SeqCst) {
                        // Each row has a thousand keys of its own, so that nothing but waits is in
                        // the way.
                        let row = (1 + next(ROWS)) * 1000;
                        let to = |offset: u64| {
                            format!("UPDATE kk SET id = {} WHERE id BETWEEN {row} AND {}", row + offset, row + 999)
                        };
                        let script = match next(4) {
                            0 => format!("BEGIN; {}; COMMIT", to(next(1000))),
                            1 => format!("BEGIN; {}; {}; COMMIT", to(next(1000)), to(next(1000))),
                            2 => format!("BEGIN; {}; ROLLBACK", to(next(1000))),
                            _ => format!(
                                "BEGIN; {}; SAVEPOINT s; {}; ROLLBACK TO s; COMMIT",
                                to(next(1000)),
                                to(next(1000))
                            ),
                        };
                        sql.lines(&script);
                    }
                });
            }
            let adders: Vec<_> = (0..2)
                .map(|_| {
                    let sql = connect();
                    scope.spawn(move || {
                        let mut added = 0;
                        for _ in 0..turns {
                            let ran = sql.query(&format!("BEGIN; {lock}; UPDATE kk SET v = v + 1 RETURNING id / 1000"));
                            match ran {
                                Ok(rows) => {
                                    let mut rows: Vec<_> = rows.into_iter().map(line).collect();
                                    let mut changed = rows.split_off(rows.len().saturating_sub(ROWS as usize));
                                    changed.sort();
                                    assert_eq!(changed, ["1", "2", "3", "4", "5", "6"]);
                                    sql.lines("COMMIT");
                                    added += 1;
                                }
                                Err(error) => {
                                    // Two that lock many rows in different orders may wait for each
                                    // other.
                                    assert_eq!(error.code().unwrap().code(), "40P01", "{error}");
                                    sql.lines("ROLLBACK");
                                }
                            }
                        }
                        added
                    })
                })
                .collect();
            let added = adders.into_iter().map(|adder| adder.join().unwrap()).sum();
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            added
        });
        assert!(added > 0);
        assert_eq!(first.lines("SELECT count(*), min(v), max(v) FROM kk"), [format!("{ROWS} {added} {added}")]);
    }
}
