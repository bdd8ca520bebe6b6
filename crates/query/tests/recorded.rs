//! What is recorded of transactions, what keeps its records, and that what is recorded gives the
//! same log when it is executed again.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use crate::common::{Sql, SqlNode, config, eventually, scripts};
use freshet_engine::{
    CommandExecutor, Lsn, NodeConfig, NotRecorded, ProcedureError, Transaction, VerifyOptions, VerifyReport, verify,
};
use freshet_log::block::RECORD_HEADER;
use freshet_query::inputs::{MemoryPool, StatementExecutor};
use freshet_replay::form::{CatalogKeys, Encoded, Encoder};

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
    let outcomes: Vec<_> =
        OUTCOMES.iter().map(|(text, _)| (*text, recording.outcome(|| drop(sql.lines(text))))).collect();
    let expected: Vec<_> = OUTCOMES.iter().map(|(text, outcome)| (*text, (*outcome).to_owned())).collect();
    assert_eq!(outcomes, expected);
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

/// One session begins with `first`, another one waits for it to `wait`, and then the first one does
/// the rest.
fn one_waits(node: &SqlNode, [first, wait, rest]: [&str; 3]) {
    let (one, other, watcher) = (node.connect(), node.connect(), node.connect());
    one.lines(&format!("BEGIN; {first}"));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| other.query(wait).map(drop).map_err(|error| crate::common::shown(&error)));
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        crate::common::eventually("one waits for the other", || watcher.lines(waiting) == ["1"]);
        one.lines(rest);
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn who_looks_at_anothers_row_again_is_recorded() {
    verified("rows that are looked at again", 2, |node| {
        let sql = node.connect();
        sql.lines(TABLES);
        sql.lines("INSERT INTO plain SELECT id FROM parent WHERE id > 3");
        let before = node.node.database().core().recorded();
        let third = "UPDATE plain SET b = 'one' WHERE a = 3";
        // Of several rows one is looked at again; what it asks for counts once.
        one_waits(node, [third, "UPDATE plain SET b = b || ' and ' || random() WHERE a BETWEEN 1 AND 5", "COMMIT"]);
        assert!(sql.lines("SELECT b FROM plain WHERE a = 3")[0].starts_with("one and 0."));
        one_waits(node, [third, "UPDATE plain SET b = 'two' WHERE b = 'never' OR a IN (2, 3)", "ROLLBACK"]);
        // It does not fit any more; or it is not there any more.
        one_waits(node, [third, "DELETE FROM plain WHERE a = 4 OR a = 3 AND b = 'two'", "COMMIT"]);
        one_waits(node, ["DELETE FROM plain WHERE a = 5", "DELETE FROM plain WHERE a IN (5, 6)", "COMMIT"]);
        let serial = "BEGIN ISOLATION LEVEL REPEATABLE READ; DELETE FROM plain WHERE a = 3; COMMIT";
        one_waits(node, [third, serial, "ROLLBACK"]);
        // A lock that writes nothing is of no account.
        one_waits(
            node,
            [
                "UPDATE plain SET b = 'one' WHERE a = 7",
                "BEGIN; SELECT * FROM plain WHERE a = 7 FOR UPDATE; DELETE FROM plain WHERE a = 8; COMMIT",
                "COMMIT",
            ],
        );
        let after = node.node.database().core().recorded();
        assert_eq!(after.kept.get(&NotRecorded::Others), None, "{after:?}");
        assert_eq!(after.recorded - before.recorded, 10, "{after:?}");
    });
}

#[test]
fn who_meets_anothers_key_is_not_recorded() {
    let recording = Recording::start();
    recording.node.connect().lines(TABLES);
    let node = &recording.node;
    let insert = "INSERT INTO parent VALUES (3, 'x') ON CONFLICT DO NOTHING";
    let outcome = recording.outcome(|| one_waits(node, ["DELETE FROM parent WHERE id = 3", insert, "COMMIT"]));
    assert_eq!(outcome, "others, recorded");
    // A row that has moved is another record; that it has, the log does not say.
    let moves = "UPDATE parent SET name = 'y' WHERE id = 3";
    let outcome = recording.outcome(|| one_waits(node, [moves, "UPDATE parent SET name = 'z' WHERE id = 3", "COMMIT"]));
    assert_eq!(outcome, "others, recorded");
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

/// Executes statements again, but for one transaction, with which it does nothing.
struct Forgetful {
    honest: StatementExecutor,
    forgets: Lsn,
}

impl CommandExecutor for Forgetful {
    fn execute(&self, txn: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        if txn.snapshot() >= self.forgets {
            return Ok(());
        }
        self.honest.execute(txn, procedure, inputs)
    }

    fn describe(&self, txn: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> String {
        self.honest.describe(txn, procedure, inputs)
    }
}

#[test]
fn a_mismatch_has_the_statements_of_its_transaction() {
    let home = tempfile::tempdir().unwrap();
    let forgets = {
        let node = SqlNode::start(NodeConfig { record_inputs: true, ..config(Some(home.path())) });
        let sql = node.connect();
        sql.lines("CREATE TABLE t (a int PRIMARY KEY, b text)");
        for a in 0..4 {
            sql.lines(&format!("INSERT INTO t VALUES ({a}, 'b')"));
        }
        let forgets = node.node.status().read_view;
        sql.lines("BEGIN");
        sql.lines("UPDATE t SET b = 'c' WHERE a = 2");
        sql.lines("DELETE FROM t WHERE a = 3");
        sql.lines("COMMIT");
        forgets
    };
    let executor: Arc<dyn CommandExecutor> = Arc::new(Forgetful { honest: StatementExecutor::default(), forgets });
    let file = home.path().join("found");
    let options = VerifyOptions { mismatches: Some(file.clone()), ..VerifyOptions::default() };
    assert_eq!(verify(home.path(), &executor, &options, &mut |_, _| true).unwrap().mismatches, 1);
    let (found, _) = freshet_engine::scheme::inputs::read_mismatches(&file).unwrap();
    assert_eq!(found[0].command, "UPDATE t SET b = 'c' WHERE a = 2; DELETE FROM t WHERE a = 3");
}

/// What needs more memory than it may have is no mismatch: its bytes do.
#[test]
fn what_lacks_memory_keeps_its_bytes() {
    let home = tempfile::tempdir().unwrap();
    {
        let node = SqlNode::start(NodeConfig { record_inputs: true, ..config(Some(home.path())) });
        let sql = node.connect();
        sql.lines("CREATE TABLE t (a int PRIMARY KEY, b int)");
        for from in (0..2000).step_by(200) {
            let rows: Vec<String> = (from..from + 200).map(|a| format!("({a}, 0)")).collect();
            sql.lines(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
        }
        sql.lines("UPDATE t SET b = b + 1");
        sql.lines("UPDATE t SET b = b + 1 WHERE a = 7");
    }
    let verified = |server: usize, limit: usize| {
        let server = MemoryPool::of(server);
        let executor: Arc<dyn CommandExecutor> = Arc::new(StatementExecutor::within(&server, limit));
        let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
        let report = verify(home.path(), &executor, &options, &mut |_, _| true).unwrap();
        // It is the server's memory, and all of it is given back.
        assert_eq!((report.mismatches, server.used()), (0, 0));
        report
    };
    let all = verified(1 << 30, 1 << 30);
    assert_eq!(all.kept.get("no-memory"), None);
    for (server, limit) in [(1 << 30, 40_000), (40_000, 1 << 30)] {
        let some = verified(server, limit);
        let lacking = some.kept["no-memory"];
        assert!(lacking > 0 && some.executed + lacking == all.executed, "{lacking} of {}", all.executed);
        assert_eq!(some.hash, all.hash);
    }
}

/// Runs `load` on a node that records inputs, and executes its log again.
fn verified(what: &str, threads: usize, load: impl FnOnce(&SqlNode)) -> VerifyReport {
    let (home, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    {
        let node = SqlNode::start(NodeConfig { record_inputs: true, ..config(Some(home.path())) });
        load(&node);
    }
    let executor: Arc<dyn CommandExecutor> = Arc::new(StatementExecutor::default());
    let mismatches = file.path().join("mismatches");
    let options =
        VerifyOptions { threads, serially: true, mismatches: Some(mismatches.clone()), ..VerifyOptions::default() };
    let report = verify(home.path(), &executor, &options, &mut |_, _| true).unwrap();
    println!("{what}: {} executed again, {:?}", report.executed, report.kept);
    assert_eq!((report.mismatches, report.out_of_order), (0, 0), "{what}: {}", shown(&mismatches));
    report
}

/// The mismatches in a file.
fn shown(file: &Path) -> String {
    let (found, _) = freshet_engine::scheme::inputs::read_mismatches(file).unwrap();
    found.iter().map(|it| format!("\n{}: {}\n  {}", it.lsn, it.why, it.inputs.escape_ascii())).collect()
}

#[test]
fn scripts_give_the_same_again() {
    let mut executed = 0;
    for script in scripts::all() {
        let name = script.file_name().unwrap().to_string_lossy().into_owned();
        executed += verified(&name, 4, |node| scripts::run(node, &script)).executed;
    }
    assert!(executed > 50, "{executed}");
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const BANK: &str = "
    CREATE TABLE account (id int PRIMARY KEY, balance numeric DEFAULT 100, changed timestamptz, mark uuid);
    CREATE TABLE entry (account int REFERENCES account ON DELETE CASCADE, amount float8, at timestamptz DEFAULT now());
    CREATE TABLE log (id serial PRIMARY KEY, who text DEFAULT session_user, tz text, moment timestamptz);
    CREATE INDEX ON entry (account);
    CREATE INDEX ON account (balance);
    INSERT INTO account (id) SELECT g FROM generate_series(1, 20) g";

/// One of the statements of a session.
fn statement(dice: &mut Dice) -> String {
    let (one, other) = (1 + dice.below(24), 1 + dice.below(24));
    match dice.below(9) {
        0 => format!("UPDATE account SET balance = balance - {other}, changed = clock_timestamp() WHERE id = {one}"),
        1 => format!(
            "UPDATE account SET balance = balance + 1.50, mark = gen_random_uuid() WHERE id BETWEEN {one} AND {one} + 3"
        ),
        2 => format!("INSERT INTO entry (account, amount) VALUES ({one}, random()), ({other}, -random())"),
        3 => format!(
            "INSERT INTO account (id, changed) VALUES ({one}, now()) ON CONFLICT (id) \
             DO UPDATE SET balance = account.balance * 1.01"
        ),
        4 => format!("UPDATE account SET id = {other} WHERE id = {one}"),
        5 => format!("DELETE FROM account WHERE id = {one}"),
        6 => "INSERT INTO log (tz, moment) VALUES (current_setting('timezone'), statement_timestamp()) RETURNING id"
            .to_owned(),
        7 => format!(
            "INSERT INTO entry SELECT id, balance FROM account WHERE balance > {one} ORDER BY balance, id LIMIT 3"
        ),
        _ => format!("DELETE FROM entry WHERE account = (SELECT max(id) FROM account WHERE id < {one})"),
    }
}

/// Sessions at all isolation levels, all at once; what they do fails now and then.
fn sessions(node: &SqlNode, seed: u64) {
    node.connect().lines(BANK);
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                let mut dice = Dice(seed + number);
                let sql = node.connect();
                for _ in 0..60 {
                    let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][dice.below(3) as usize];
                    let mut all = vec![format!("BEGIN ISOLATION LEVEL {level}")];
                    if dice.below(4) == 0 {
                        all.push("SET LOCAL timezone = 'Asia/Kolkata'".to_owned());
                    }
                    for _ in 0..=dice.below(4) {
                        all.push(statement(&mut dice));
                        if dice.below(3) == 0 {
                            all.push("SELECT sum(balance) FROM account".to_owned());
                        }
                    }
                    let failed = all.iter().any(|text| sql.query(text).is_err());
                    let _ = sql.query(if failed { "ROLLBACK" } else { "COMMIT" });
                }
            });
        }
    });
}

#[test]
fn what_sessions_do_at_once_gives_the_same_again() {
    let seed = std::env::var("FRESHET_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(16);
    println!("FRESHET_SEED={seed}");
    for threads in [1, 2, 8] {
        let report = verified(&format!("{threads} threads"), threads, |node| sessions(node, seed));
        assert!(report.executed > 30, "{report:?}");
    }
}

/// The files of `tests/differential` that write most.
const FILES: &[&str] = &[
    "addresses",
    "basics",
    "current_of",
    "cursors",
    "defaults",
    "deferrable",
    "definitions",
    "explain",
    "extensions",
    "frameworks",
    "index_nulls",
    "intervals",
    "limit_after_lock",
    "locks",
    "notify",
    "on_conflict",
    "rows",
    "settings",
    "small_things",
    "typed",
    "zeros",
];

/// The statements of a file of `tests/differential`, but for COPY. Each ends with its line.
fn statements(text: &str) -> Vec<String> {
    let (mut all, mut one, mut is_data) = (Vec::new(), String::new(), false);
    for line in text.lines().filter(|line| !line.starts_with("--")) {
        if is_data {
            is_data = line != "\\.";
            continue;
        }
        one.push_str(line);
        one.push('\n');
        if line.ends_with(';') {
            let statement = std::mem::take(&mut one);
            let upper = statement.to_ascii_uppercase();
            is_data = upper.contains("FROM STDIN");
            if !upper.contains("COPY") {
                all.push(statement);
            }
        }
    }
    all
}

/// Runs a file in a database of its own. Some statements fail.
fn run_file(node: &SqlNode, file: &Path) {
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    node.connect().lines(&format!("CREATE DATABASE of_{name}"));
    let mut config = Sql::config(node.address(), "freshet", None);
    config.dbname(format!("of_{name}"));
    let open = || {
        let sql = Sql::open(&config).unwrap();
        sql.lines("SET statement_timeout = '1s'");
        sql
    };
    let (mut sql, begun) = (open(), std::time::Instant::now());
    for statement in statements(&std::fs::read_to_string(file).unwrap()) {
        let _ = sql.query(&statement);
        if sql.client.is_closed() {
            sql = open();
        }
    }
    println!("{name}: {:?}", begun.elapsed());
}

#[test]
fn statements_of_all_kinds_give_the_same_again() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
    let report = verified("files", 4, |node| {
        FILES.iter().for_each(|file| run_file(node, &directory.join(file).with_extension("sql")));
        println!("{:?}", node.node.database().core().recorded());
    });
    assert!(report.executed > 80, "{report:?}");
}

/// One of pgbench's transactions, as its script has it.
fn tpcb(sql: &Sql, (aid, tid, bid, delta): (u64, u64, u64, i64)) {
    for text in [
        "BEGIN;".to_owned(),
        format!("UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid};"),
        format!("SELECT abalance FROM pgbench_accounts WHERE aid = {aid};"),
        format!("UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid};"),
        format!("UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = {bid};"),
        format!(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ({tid}, {bid}, {aid}, {delta}, \
             CURRENT_TIMESTAMP);"
        ),
        "END;".to_owned(),
    ] {
        sql.lines(&text);
    }
}

const PGBENCH: &str = "
    CREATE TABLE pgbench_history(tid int,bid int,aid int,delta int,mtime timestamp,filler char(22));
    CREATE TABLE pgbench_tellers(tid int not null,bid int,tbalance int,filler char(84)) WITH (fillfactor=100);
    CREATE TABLE pgbench_accounts(aid int not null,bid int,abalance int,filler char(84)) WITH (fillfactor=100);
    CREATE TABLE pgbench_branches(bid int not null,bbalance int,filler char(88)) WITH (fillfactor=100);
    INSERT INTO pgbench_branches(bid,bbalance) SELECT bid, 0 FROM generate_series(1, 10) bid;
    INSERT INTO pgbench_tellers(tid,bid,tbalance) SELECT tid, (tid - 1) / 10 + 1, 0 FROM generate_series(1, 100) tid;
    INSERT INTO pgbench_accounts(aid,bid,abalance,filler)
        SELECT aid, (aid - 1) / 1000 + 1, 0, '' FROM generate_series(1, 10000) aid;
    ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid);
    ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid);
    ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)";

/// The inputs form of what pgbench does is at most a quarter as long as a log without inputs.
#[test]
fn pgbench_takes_a_quarter() {
    let recording = Recording::start();
    let sessions = [recording.node.connect(), recording.node.connect()];
    sessions[0].lines(PGBENCH);
    let seed: u64 = 28;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut below = |limit| dice.below(limit);
    let database = recording.node.node.database();
    let now = || database.core().snapshots.current();
    let mut from = now();
    for number in 0..400 {
        // The first ones say their words.
        if number == 100 {
            from = now();
        }
        let chosen = (1 + below(10_000), 1 + below(100), 1 + below(10), below(10_001) as i64 - 5_000);
        tpcb(&sessions[below(2) as usize], chosen);
    }
    let to = now();
    let log = &database.core().snapshots.primary().unwrap().log;
    log.wait_durable(to, None).unwrap();
    let participant = database.core().participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let mut keys = CatalogKeys::new(&database.core().catalog, &guard);
    let (mut buffer, mut row, mut form) = (Vec::new(), Vec::new(), Vec::new());
    let mut encoder = Encoder::new();
    let (mut blocks, mut values, mut inputs) = (0, 0, 0);
    for block in log.reader().blocks(from, to, &mut buffer).unwrap() {
        let block = block.unwrap();
        let block = block.whole(&mut row).unwrap();
        let Some(recorded) = block.inputs() else { continue };
        assert_eq!(encoder.block(&block, &mut keys, &mut form), Encoded::Inputs);
        blocks += 1;
        inputs += recorded.len();
        values += block.bytes().len() - (RECORD_HEADER + recorded.len());
    }
    let form = form.len();
    println!("{blocks} transactions: {values} bytes of values, {inputs} of inputs, {form} in the inputs form");
    assert_eq!(blocks, 300);
    assert!(4 * form <= values, "{form} bytes for {values}");
}

/// Anomalies by name (Berenson et al. 1995, Adya 1999, Fekete et al. 2004): what sessions say one
/// after the other. A statement that a question mark goes before may wait for the other session.
/// Who has read something writes it down, so that the log depends on it.
const HISTORIES: &[(&str, &[(usize, &str)])] = &[
    (
        "dirty write (P0)",
        &[
            (0, "UPDATE a SET v = 11 WHERE id = 1"),
            (1, "?UPDATE a SET v = 12 WHERE id = 1"),
            (0, "UPDATE a SET v = 21 WHERE id = 2"),
            (0, "COMMIT"),
            (1, "UPDATE a SET v = v + 1 WHERE id = 2"),
            (1, "COMMIT"),
        ],
    ),
    (
        "dirty read (P1), aborted read (G1a), intermediate read (G1b)",
        &[
            (0, "UPDATE a SET v = 101 WHERE id = 1"),
            (1, "INSERT INTO seen VALUES ('first', (SELECT sum(v) FROM a))"),
            (0, "UPDATE a SET v = 11 WHERE id = 1"),
            (1, "INSERT INTO seen VALUES ('then', (SELECT sum(v) FROM a))"),
            (0, "ROLLBACK"),
            (1, "INSERT INTO seen VALUES ('last', (SELECT sum(v) FROM a))"),
            (1, "COMMIT"),
        ],
    ),
    (
        "circular information flow (G1c)",
        &[
            (0, "UPDATE a SET v = 11 WHERE id = 1"),
            (1, "UPDATE a SET v = 22 WHERE id = 2"),
            (0, "INSERT INTO seen VALUES ('one', (SELECT v FROM a WHERE id = 2))"),
            (1, "INSERT INTO seen VALUES ('other', (SELECT v FROM a WHERE id = 1))"),
            (0, "COMMIT"),
            (1, "COMMIT"),
        ],
    ),
    (
        "fuzzy read (P2), read skew (A5A)",
        &[
            (0, "INSERT INTO seen VALUES ('first', (SELECT v FROM a WHERE id = 1))"),
            (1, "UPDATE a SET v = 15 WHERE id = 1"),
            (1, "UPDATE a SET v = 25 WHERE id = 2"),
            (1, "COMMIT"),
            (0, "INSERT INTO seen VALUES ('then', (SELECT v FROM a WHERE id = 2))"),
            (0, "INSERT INTO seen VALUES ('again', (SELECT v FROM a WHERE id = 1))"),
            (0, "COMMIT"),
        ],
    ),
    (
        "phantom (P3), predicate that many precede (PMP)",
        &[
            (0, "INSERT INTO seen VALUES ('first', (SELECT count(*) FROM a WHERE id BETWEEN 5 AND 9))"),
            (1, "INSERT INTO a VALUES (5, 50), (6, 60)"),
            (1, "COMMIT"),
            (0, "INSERT INTO seen VALUES ('then', (SELECT count(*) FROM a WHERE id BETWEEN 5 AND 9))"),
            (0, "UPDATE a SET v = v + 1 WHERE id BETWEEN 5 AND 9"),
            (0, "COMMIT"),
        ],
    ),
    (
        "lost update (P4)",
        &[
            (0, "SELECT v FROM a WHERE id = 1"),
            (1, "SELECT v FROM a WHERE id = 1"),
            (0, "UPDATE a SET v = v + 1 WHERE id = 1"),
            (1, "?UPDATE a SET v = v * 2 WHERE id = 1"),
            (0, "COMMIT"),
            (1, "INSERT INTO seen VALUES ('other', (SELECT v FROM a WHERE id = 1))"),
            (1, "COMMIT"),
        ],
    ),
    (
        "write skew (A5B)",
        &[
            (0, "UPDATE a SET v = v - (SELECT sum(v) FROM a) WHERE id = 1"),
            (1, "UPDATE a SET v = v - (SELECT sum(v) FROM a) WHERE id = 2"),
            (0, "COMMIT"),
            (1, "COMMIT"),
        ],
    ),
    (
        "two insert what neither has found (G2)",
        &[
            (0, "INSERT INTO a VALUES (5, (SELECT count(*) FROM a WHERE v > 0))"),
            (1, "INSERT INTO a VALUES (6, (SELECT count(*) FROM a WHERE v > 0))"),
            (1, "COMMIT"),
            (0, "COMMIT"),
        ],
    ),
    (
        "read-only anomaly",
        &[
            (1, "SELECT sum(v) FROM a"),
            (0, "UPDATE a SET v = v + 20 WHERE id = 2"),
            (0, "COMMIT"),
            (2, "INSERT INTO seen VALUES ('third', (SELECT sum(v) FROM a))"),
            (2, "COMMIT"),
            (1, "UPDATE a SET v = v - (SELECT sum(v) FROM a) WHERE id = 1"),
            (1, "COMMIT"),
        ],
    ),
    (
        "a transaction that was seen vanishes (OTV)",
        &[
            (0, "UPDATE a SET v = 11 WHERE id = 1"),
            (0, "UPDATE a SET v = 19 WHERE id = 2"),
            (1, "?UPDATE a SET v = v + 1 WHERE id = 1"),
            (0, "COMMIT"),
            (2, "INSERT INTO seen VALUES ('third', (SELECT v FROM a WHERE id = 1))"),
            (1, "UPDATE a SET v = 18 WHERE id = 2"),
            (2, "INSERT INTO seen VALUES ('third again', (SELECT v FROM a WHERE id = 2))"),
            (1, "COMMIT"),
            (2, "INSERT INTO seen VALUES ('at last', (SELECT v FROM a WHERE id = 2))"),
            (2, "COMMIT"),
        ],
    ),
];

/// A session in a thread of its own, which reports when it is done.
struct Session {
    orders: std::sync::mpsc::Sender<String>,
    done: std::sync::mpsc::Receiver<String>,
    busy: bool,
}

impl Session {
    fn of(sql: Sql) -> Self {
        let (orders, statements) = std::sync::mpsc::channel::<String>();
        let (reports, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while let Ok(statement) = statements.recv() {
                let _ = reports.send(sql.outcome(&statement));
            }
        });
        Self { orders, done, busy: false }
    }

    /// Has it execute a statement; with `waits` returns when it waits for another session.
    fn order(&mut self, statement: &str, waits: Option<&Sql>) {
        self.rest();
        self.orders.send(statement.to_owned()).unwrap();
        self.busy = true;
        match waits {
            None => self.rest(),
            Some(watch) => eventually("it waits, or has ended", || {
                self.busy = self.busy && self.done.try_recv().is_err();
                !self.busy || watch.lines("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted") == ["t"]
            }),
        }
    }

    fn rest(&mut self) {
        if std::mem::take(&mut self.busy) {
            self.done.recv().unwrap();
        }
    }
}

/// Has sessions execute a history, at an isolation level.
fn play(node: &SqlNode, level: &str, history: &[(usize, &str)]) {
    let watch = node.connect();
    watch.lines(
        "DROP TABLE IF EXISTS a, seen; CREATE TABLE a (id int PRIMARY KEY, v int);
         CREATE TABLE seen (who text PRIMARY KEY, what int); INSERT INTO a VALUES (1, 10), (2, 20)",
    );
    let mut sessions = [(); 3].map(|()| Session::of(node.connect()));
    let mut begun = [false; 3];
    for (number, statement) in history {
        let session = &mut sessions[*number];
        if !std::mem::replace(&mut begun[*number], true) {
            session.order(&format!("BEGIN ISOLATION LEVEL {level}"), None);
        }
        match statement.strip_prefix('?') {
            Some(waiting) => session.order(waiting, Some(&watch)),
            None => session.order(statement, None),
        }
    }
    sessions.iter_mut().for_each(Session::rest);
}

#[test]
fn anomalies_by_name_give_the_same_again() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let report = verified(level, 3, |node| {
            for (name, history) in HISTORIES {
                println!("{level}: {name}");
                play(node, level, history);
            }
            println!("{:?}", node.node.database().core().recorded());
        });
        // At each level most of them are recorded; those that looked at another's row again too.
        assert!(report.executed >= 10, "{report:?}");
    }
}
