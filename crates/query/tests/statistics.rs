//! What is counted, as the views show it: the numbers are those that PostgreSQL 15 shows after the
//! same statements.

use crate::common::{Sql, SqlNode, eventually, wire::Wire};

/// Repeats a query until it gives this line.
fn until(sql: &Sql, query: &str, expected: &str) {
    eventually(expected, || line(sql, query) == expected);
}

fn line(sql: &Sql, query: &str) -> String {
    sql.lines(query).join("\n").replace(' ', "|")
}

const TABLE: &str = "SELECT seq_scan, seq_tup_read, idx_scan, idx_tup_fetch, n_tup_ins, n_tup_upd, n_tup_del, \
                     n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'a'";

#[test]
fn scans_and_changes_of_tables_are_counted() {
    let node = SqlNode::in_memory();
    let (one, other) = (node.connect(), node.connect());
    one.lines("CREATE TABLE a (id int PRIMARY KEY, n int, t text); CREATE INDEX a_n ON a (n)");
    assert_eq!(line(&other, TABLE), "0|0|0|0|0|0|0|0");
    one.lines("INSERT INTO a SELECT i, i % 10, 'x' FROM generate_series(1, 100) i");
    assert_eq!(line(&other, TABLE), "0|0|0|0|100|0|0|0");
    one.lines("SELECT count(*) FROM a");
    one.lines("SELECT t FROM a WHERE id = 5");
    one.lines("SELECT t FROM a WHERE id = 500");
    assert_eq!(line(&other, TABLE), "1|100|2|1|100|0|0|0");
    // One changes the key of an index.
    one.lines("UPDATE a SET t = 'y' WHERE id = 7; UPDATE a SET n = 77 WHERE id = 7; DELETE FROM a WHERE id = 8");
    assert_eq!(line(&other, TABLE), "1|100|5|4|100|2|1|1");
    // What is rolled back was done, and a key that was taken, too.
    one.lines("BEGIN; INSERT INTO a VALUES (1000, 1, 'z'); ROLLBACK");
    assert!(one.runtime.block_on(one.client.batch_execute("INSERT INTO a VALUES (1, 1, 'z')")).is_err());
    assert_eq!(line(&other, TABLE), "1|100|5|4|102|2|1|1");
    let of_index = "SELECT indexrelname, idx_scan, idx_tup_read, idx_tup_fetch FROM pg_stat_user_indexes ORDER BY 1";
    assert_eq!(line(&other, of_index), "a_n|0|0|0\na_pkey|5|4|4");
    one.lines("SELECT t FROM a WHERE n = 3");
    assert_eq!(line(&other, of_index), "a_n|1|10|10\na_pkey|5|4|4");
    // A session that has ended has counted, too.
    drop(one);
    until(&other, "SELECT count(*) FROM pg_stat_activity", "1");
    assert_eq!(line(&other, TABLE), "1|100|6|14|102|2|1|1");
    other.lines("DROP INDEX a_n");
    assert_eq!(line(&other, TABLE), "1|100|5|4|102|2|1|1");
}

#[test]
fn a_transaction_sees_what_it_has_counted_itself() {
    let node = SqlNode::in_memory();
    let one = node.connect();
    one.lines("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1), (2)");
    let own = "SELECT seq_scan, idx_scan, n_tup_ins FROM pg_stat_xact_user_tables WHERE relname = 'a'";
    assert_eq!(line(&one, own), "0|0|0");
    one.lines("BEGIN; INSERT INTO a VALUES (3); SELECT * FROM a");
    assert_eq!(line(&one, own), "1|0|1");
    one.lines("COMMIT");
    assert_eq!(line(&one, own), "0|0|0");
}

#[test]
fn conflicts_and_references_are_counted() {
    let node = SqlNode::in_memory();
    let one = node.connect();
    one.lines("CREATE TABLE p (id int PRIMARY KEY)");
    one.lines("CREATE TABLE a (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE)");
    one.lines("INSERT INTO p VALUES (1), (2); INSERT INTO a VALUES (1, 1), (2, 1), (3, 2)");
    let changes = |name: &str| {
        let columns = "n_tup_ins, n_tup_upd, n_tup_del, idx_scan";
        line(&one, &format!("SELECT {columns} FROM pg_stat_user_tables WHERE relname = '{name}'"))
    };
    // Each reference was looked up.
    assert_eq!((changes("p"), changes("a")), ("2|0|0|3".to_owned(), "3|0|0|0".to_owned()));
    one.lines("INSERT INTO a VALUES (3, 2) ON CONFLICT (id) DO UPDATE SET p = 2");
    one.lines("INSERT INTO a VALUES (3, 2) ON CONFLICT DO NOTHING");
    assert!(changes("a").starts_with("3|1|0|"), "{}", changes("a"));
    one.lines("DELETE FROM p WHERE id = 1");
    assert!(changes("a").starts_with("3|1|2|"), "{}", changes("a"));
}

const DATABASE: &str = "SELECT xact_commit, xact_rollback, tup_inserted, tup_updated, tup_deleted, conflicts, \
                        deadlocks, temp_files, blks_read FROM pg_stat_database WHERE datname = current_database()";

#[test]
fn transactions_of_a_database_are_counted() {
    let node = SqlNode::in_memory();
    let (one, other) = (node.connect(), node.connect());
    other.lines("CREATE TABLE a (id int PRIMARY KEY)");
    other.lines("SELECT pg_stat_reset()");
    let counts = || -> Vec<i64> { line(&other, DATABASE).split('|').map(|it| it.parse().unwrap()).collect() };
    let before = counts();
    one.lines("INSERT INTO a VALUES (1), (2), (3)");
    one.lines("BEGIN; UPDATE a SET id = 4 WHERE id = 3; DELETE FROM a WHERE id = 2; COMMIT");
    one.lines("BEGIN; DELETE FROM a; ROLLBACK");
    for failing in ["SELECT 1/0", "no statement", "INSERT INTO a VALUES (1)"] {
        assert!(one.runtime.block_on(one.client.batch_execute(failing)).is_err());
    }
    // One error, and a statement that finds the transaction failed, are one transaction.
    assert!(one.runtime.block_on(one.client.batch_execute("BEGIN; SELECT 1/0")).is_err());
    assert!(one.runtime.block_on(one.client.batch_execute("SELECT 1")).is_err());
    one.lines("ROLLBACK");
    let after = counts();
    let more: Vec<i64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    // Two of its own, and the look before.
    assert_eq!(more, [3, 5, 4, 1, 3, 0, 0, 0, 0]);
    let causes = node.server.shared().summary().transactions.rolled_back;
    assert_eq!((causes["constraint"], causes["other"], causes["rollback"]), (1, 3, 1));
}

#[test]
fn a_reset_takes_back_what_running_sessions_have_counted() {
    let node = SqlNode::in_memory();
    let (one, other) = (node.connect(), node.connect());
    one.lines("CREATE TABLE a (id int PRIMARY KEY, n int, t text); INSERT INTO a VALUES (1), (2); SELECT * FROM a");
    assert_eq!(
        line(&other, "SELECT stats_reset IS NULL FROM pg_stat_database WHERE datname = current_database()"),
        "t"
    );
    assert_eq!(line(&other, TABLE), "1|2|0|0|2|0|0|0");
    other.lines("SELECT pg_stat_reset_single_table_counters('a'::regclass)");
    assert_eq!(line(&other, TABLE), "0|0|0|0|0|0|0|0");
    let rows = "SELECT tup_inserted FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(line(&other, rows), "2");
    one.lines("INSERT INTO a VALUES (3)");
    assert_eq!(line(&other, TABLE), "0|0|0|0|1|0|0|0");
    other.lines("SELECT pg_stat_reset()");
    assert_eq!(line(&other, TABLE), "0|0|0|0|0|0|0|0");
    let reset = "SELECT stats_reset IS NULL, tup_inserted, sessions FROM pg_stat_database \
                 WHERE datname = current_database()";
    assert_eq!(line(&other, reset), "f|0|0");
    one.lines("INSERT INTO a VALUES (4)");
    drop(one);
    until(&other, "SELECT count(*) FROM pg_stat_activity", "1");
    assert_eq!(line(&other, TABLE), "0|0|0|0|1|0|0|0");
    assert_eq!(line(&other, reset), "f|1|0");
    other.lines("CREATE ROLE plain LOGIN");
    let plain = node.connect_as("plain");
    let denied = plain.runtime.block_on(plain.client.batch_execute("SELECT pg_stat_reset()")).unwrap_err();
    assert_eq!(denied.code().unwrap().code(), "42501");
}

#[test]
fn tables_that_are_dropped_leave_nothing_behind() {
    let node = SqlNode::in_memory();
    let (one, other) = (node.connect(), node.connect());
    let totals = || node.server.shared().sessions.relations(database(&node)).len();
    let mut most = 0;
    for round in 0..30 {
        let each = |n: usize| {
            let name = format!("t{round}_{n}");
            format!("CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1); DROP TABLE {name};")
        };
        one.lines(&(0..100).map(each).collect::<String>());
        most = most.max(totals());
    }
    assert!(most < 1024 + 3 * 128, "{most} relations are kept");
    let rows = "SELECT tup_inserted FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(line(&other, rows), "3000");
}

fn database(node: &SqlNode) -> u32 {
    node.server.shared().sessions.all().first().unwrap().database_id
}

#[test]
fn sessions_are_counted_by_how_they_end() {
    let node = SqlNode::in_memory();
    let other = node.connect();
    let ends = "SELECT sessions_abandoned, sessions_fatal, sessions_killed FROM pg_stat_database \
                WHERE datname = current_database()";
    assert_eq!(line(&other, ends), "0|0|0");
    // Neither says that it goes.
    drop(node.connect());
    drop(Wire::tcp(node.address()));
    until(&other, ends, "2|0|0");
    let killed = node.connect();
    let pid = line(&killed, "SELECT pg_backend_pid()");
    other.lines(&format!("SELECT pg_terminate_backend({pid})"));
    until(&other, ends, "2|0|1");
    let late = node.connect();
    late.lines("SET idle_session_timeout = '10ms'");
    until(&other, ends, "2|1|1");
    until(&other, "SELECT sessions > 3 FROM pg_stat_database WHERE datname = current_database()", "t");
}

#[test]
fn statements_are_counted_by_kind() {
    let node = SqlNode::in_memory();
    let one = node.connect();
    one.lines("CREATE TABLE a (id int PRIMARY KEY)");
    one.lines("INSERT INTO a VALUES (1); UPDATE a SET id = 2; DELETE FROM a; SELECT 1; SELECT 2");
    one.lines("COMMENT ON TABLE a IS 'b'");
    one.runtime.block_on(one.client.query_one("SELECT $1::int", &[&1_i32])).unwrap();
    let statements = node.server.shared().summary().statements;
    let count = |kind: &str| statements.kinds[kind].count;
    let counts = ["insert", "update", "delete", "ddl", "copy"].map(count);
    assert_eq!((counts, count("select")), ([1, 1, 1, 2, 0], 3));
    for latencies in statements.kinds.values() {
        assert_eq!(latencies.count, latencies.buckets.iter().sum::<u64>());
        assert_eq!(latencies.buckets.len(), statements.bounds_us.len() + 1);
    }
    let sessions = node.server.shared().summary().sessions;
    assert_eq!((sessions.now, sessions.active, sessions.total), (1, 0, 1));
    assert!(sessions.active_us > 0 && sessions.time_us >= sessions.active_us);
}

#[test]
fn a_deadlock_is_counted() {
    let (_node, one, other) = SqlNode::for_two("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1), (2)");
    other.lines("RESET lock_timeout");
    one.lines("BEGIN; DELETE FROM a WHERE id = 1");
    other.lines("BEGIN; DELETE FROM a WHERE id = 2");
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| one.runtime.block_on(one.client.batch_execute("DELETE FROM a WHERE id = 2")));
        let second = other.runtime.block_on(other.client.batch_execute("DELETE FROM a WHERE id = 1"));
        (first.join().unwrap(), second)
    });
    assert!(first.is_err() ^ second.is_err(), "{first:?} {second:?}");
    let seen = if first.is_err() { &one } else { &other };
    seen.lines("ROLLBACK");
    assert_eq!(line(seen, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"), "1");
}

#[test]
fn statements_are_counted_by_what_they_have_in_common() {
    let node = SqlNode::in_memory();
    let (one, other) = (node.connect(), node.connect());
    one.lines("CREATE EXTENSION pg_stat_statements; CREATE TABLE a (id int PRIMARY KEY, t text)");
    one.lines("SELECT pg_stat_statements_reset()");
    one.lines("INSERT INTO a VALUES (1, 'x'), (2, 'y')");
    one.lines("SELECT t FROM a WHERE id = 1; SELECT t FROM a  WHERE id = 2 -- again");
    for id in 0..3 {
        let found = one.runtime.block_on(one.client.query("SELECT t FROM a WHERE id = $1", &[&id])).unwrap();
        assert_eq!(found.len(), usize::from(id > 0));
    }
    assert_eq!(one.state("SELECT 1/0 FROM a"), "22012");
    let all = "SELECT replace(query, ' ', '_'), calls, rows FROM pg_stat_statements WHERE query LIKE '%a%' \
               AND query NOT LIKE '%pg_stat%' AND query NOT LIKE 'CREATE%' ORDER BY query";
    let shown = |sql: &Sql| line(sql, all);
    // Literals and parameters are the same to it, in the order in which they stand.
    let expected = "INSERT_INTO_a_VALUES_($1,_$2),_($3,_$4)|1|2\nSELECT_t_FROM_a_WHERE_id_=_$1|2|2\n\
                    SELECT_t_FROM_a_WHERE_id_=_$1|3|2";
    assert_eq!(shown(&other), expected);
    let sums = "SELECT count(*) FROM pg_stat_statements WHERE calls > 0 AND min_exec_time <= mean_exec_time \
                AND mean_exec_time <= max_exec_time AND abs(total_exec_time - calls * mean_exec_time) < 1e-6 \
                AND stddev_exec_time >= 0 AND query LIKE 'SELECT t%'";
    assert_eq!(line(&other, sums), "2");
    drop(one);
    until(&other, "SELECT count(*) FROM pg_stat_activity", "1");
    assert_eq!(shown(&other), expected);
    other.lines("CREATE ROLE plain LOGIN");
    let plain = node.connect_as("plain");
    plain.lines("SELECT 5 AS a");
    assert_eq!(shown(&plain), "SELECT_$1_AS_a|1|1");
    let hidden = "SELECT bool_and(queryid IS NULL) FROM pg_stat_statements WHERE query = '<insufficient privilege>'";
    assert_eq!(line(&plain, hidden), "t");
    assert_eq!(plain.state("SELECT pg_stat_statements_reset()"), "42501");
    let own = "SELECT userid, dbid, queryid FROM pg_stat_statements WHERE query = 'SELECT $1 AS a'";
    let own = line(&other, own).replace('|', ", ");
    other.lines(&format!("SELECT pg_stat_statements_reset({own})"));
    assert_eq!(shown(&plain), "");
    assert_eq!(shown(&other), expected);
    other.lines("SELECT pg_stat_statements_reset()");
    assert_eq!(shown(&other), "");
    assert_eq!(line(&other, "SELECT dealloc, stats_reset <= now() FROM pg_stat_statements_info"), "0|t");
}

#[test]
fn a_standby_counts_its_own() {
    let (primary, standby, _directories) = crate::standby::pair();
    let writer = primary.connect();
    writer.lines("CREATE TABLE a (id int PRIMARY KEY, n int, t text); INSERT INTO a VALUES (1), (2)");
    let lsn = writer.lines("SHOW freshet.last_commit").remove(0);
    let reader = standby.connect();
    reader.lines(&format!("SET freshet.read_after = '{lsn}'"));
    reader.lines("SELECT * FROM a WHERE id = 1; SELECT * FROM a");
    assert_eq!(line(&reader, TABLE), "1|2|1|1|0|0|0|0");
    assert_eq!(line(&writer, TABLE), "0|0|0|0|2|0|0|0");
    assert_eq!(line(&reader, "SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE 'SELECT * FROM a%'"), "2");
    assert!(standby.server.shared().summary().transactions.committed > 0);
}

#[test]
fn settings_without_effect_give_one_notice() {
    let node = SqlNode::in_memory();
    let mut wire = Wire::tcp(node.address());
    let mut notices = |sql: &str| {
        let body = [sql.as_bytes(), b"\0"].concat();
        let length = (body.len() as u32 + 4).to_be_bytes();
        let message = [&b"Q"[..], &length, &body].concat();
        wire.exchange(&message).iter().filter(|(kind, _)| *kind == 'N').count()
    };
    assert_eq!(notices("SET log_min_duration_statement = 0"), 0);
    assert_eq!(notices("SET log_lock_waits = on"), 1);
    assert_eq!(notices("SET auto_explain.log_min_duration = 0"), 0);
    assert_eq!(notices("RESET log_lock_waits"), 0);
}

#[test]
fn what_the_node_does_is_shown() {
    let node = SqlNode::in_memory();
    let one = node.connect();
    one.lines("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)");
    assert_eq!(line(&one, "SELECT wal_bytes > 0, wal_write >= 0, stats_reset <= now() FROM pg_stat_wal"), "t|t|t");
    assert_eq!(line(&one, "SELECT checkpoints_timed, buffers_alloc FROM pg_stat_bgwriter"), "0|0");
    assert_eq!(line(&one, "SELECT archived_count, last_archived_wal FROM pg_stat_archiver"), "0|NULL");
}

#[test]
fn a_transaction_has_a_number_of_its_own() {
    let node = SqlNode::in_memory();
    let (one, two) = (node.connect(), node.connect());
    one.lines("BEGIN");
    let number = one.lines("SELECT txid_current(), pg_current_xact_id() = txid_current()");
    assert!(number[0].ends_with(" t") && number == one.lines("SELECT txid_current(), true"), "{number:?}");
    one.lines("COMMIT");
    let mut all: Vec<i64> = Vec::new();
    for sql in [&one, &two, &one, &two] {
        all.extend(sql.lines("SELECT txid_current()").iter().map(|number| number.parse::<i64>().unwrap()));
    }
    assert!(all.iter().all(|number| *number > 0) && all[0] < all[2] && all[1] < all[3], "{all:?}");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4);
}
