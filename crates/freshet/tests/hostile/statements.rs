//! Statements that ask for too much.

use crate::subject::Subject;

#[test]
fn statements_that_cannot_be_end_in_errors() {
    let mut subject = Subject::start(10);
    let mut client = subject.connect();
    let deep = |before: &str, core: &str, after: &str, depth: usize| {
        format!("SELECT {}{core}{}", before.repeat(depth), after.repeat(depth))
    };
    let cases: &[(String, &str)] = &[
        ("SELECT 1/0".into(), "22012"),
        ("SELECT a/0 FROM t".into(), "22012"),
        ("SELECT 1.0 % 0".into(), "22012"),
        ("SELECT (-9223372036854775808) / -1".into(), "22003"),
        ("SELECT abs((-2147483648)::int)".into(), "22003"),
        ("SELECT 1e400::float8".into(), "22003"),
        ("SELECT 2147483648::int".into(), "22003"),
        ("SELECT a + 2147483647 FROM t".into(), "22003"),
        ("SELECT * FROM t LIMIT -1".into(), "2201W"),
        ("SELECT * FROM t OFFSET -1".into(), "2201X"),
        ("SELECT * FROM t LIMIT 9223372036854775808".into(), "22003"),
        ("SELECT * FROM generate_series(1, 2) g LIMIT -1".into(), "2201W"),
        ("SELECT * FROM generate_series(1, 10, 0)".into(), "22023"),
        ("SELECT * FROM generate_series(now(), now(), '0 s'::interval)".into(), "22023"),
        ("SELECT '178000000 years'::interval * 100".into(), "22008"),
        ("SELECT '294276-12-31'::timestamp + '1000 years'::interval".into(), "22008"),
        ("SELECT repeat('x', 1000000000)".into(), "54000"),
        ("SELECT repeat(b, 1000000000) FROM t".into(), "54000"),
        ("SELECT lpad('', 2000000000)".into(), "54000"),
        ("SELECT array_fill(1, ARRAY[100000, 100000])".into(), "54000"),
        ("SELECT regexp_replace(repeat('a', 1000000), 'a', repeat('b', 1000), 'g')".into(), "54000"),
        ("SELECT array_to_string(string_to_array(repeat('a', 100000), NULL), repeat('b', 10000))".into(), "54000"),
        ("SELECT 'x' ~ '('".into(), "2201B"),
        ("SELECT 'x' ~ '((((a{100}){100}){100}){100})'".into(), "2201B"),
        ("SELECT 'xy' LIKE 'x\\'".into(), "22025"),
        ("SELECT format('%z', 1)".into(), "22023"),
        ("SELECT chr(0)".into(), "54000"),
        ("SELECT E'\\000'".into(), "22021"),
        ("SELECT '\\x0'::bytea".into(), "22023"),
        (format!("SELECT '{}'::json", "[".repeat(100_000)), "54001"),
        (format!("SELECT '{}'::int[]", "{".repeat(100)), "54000"),
        (deep("(", "1", ")", 100_000), "54001"),
        (deep("- ", "1", "", 100_000), "54001"),
        (deep("NOT ", "true", "", 100_000), "54001"),
        (deep("(SELECT ", "1", ")", 10_000), "54001"),
        (deep("CASE WHEN true THEN ", "1", " END", 10_000), "54001"),
        (deep("ARRAY[", "1", "]", 60), "54001"),
        (deep("", "1", " + 1", 100_000), "54001"),
        (deep("", "1", "::int", 100_000), "54001"),
        (deep("", "1", " UNION ALL SELECT 1", 100_000), "53200"),
        (deep("", "1", " UNION ALL SELECT 1", 40_000), "54001"),
        (deep("", "true", " AND true", 100_000), "54001"),
        (deep("", "1", "; SELECT 1", 100_000), "53200"),
        (deep("", "1", "; SELECT 1", 40_000), "54001"),
        (format!("SELECT * FROM {}t{}", "(".repeat(45), ")".repeat(45)), "54001"),
        (format!("SELECT {}", "$1,".repeat(100)), "42601"),
        ("SELECT * FROM nothing".into(), "42P01"),
        ("SELECT 'x'::nothing".into(), "42704"),
        ("SELECT nothing(1)".into(), "42883"),
    ];
    let mut wrong = Vec::new();
    for (sql, state) in cases {
        let shown = &sql[..sql.len().min(100)];
        let found = client.state(sql);
        if found != *state {
            wrong.push(format!("{found:?} instead of {state}: {shown}"));
        }
        assert_eq!(client.rows("SELECT 1"), [["1"]], "{shown}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // What is long but not deep is fine.
    let many = vec!["a = 1"; 5000].join(" OR ");
    assert_eq!(client.rows(&format!("SELECT count(*) FROM t WHERE {many}")), [["1"]]);
    let joined = format!("SELECT count(*) FROM t x LEFT JOIN t y ON x.id = y.id WHERE {}", many.replace('a', "x.a"));
    assert_eq!(client.rows(&joined), [["1"]]);
    client.terminate();
    subject.assert_unharmed();
}

#[test]
fn queries_that_need_too_much_memory_end_in_errors() {
    let mut subject = Subject::start(10);
    let before = subject.memory();
    let mut client = subject.connect();
    client.run("SET freshet.query_memory = '32MB'");
    for sql in [
        "SELECT g FROM generate_series(1, 100000000) g ORDER BY g DESC",
        "SELECT g, count(*) FROM generate_series(1, 100000000) g GROUP BY g",
        "SELECT array_agg(g) FROM generate_series(1, 100000000) g",
        "SELECT string_agg(repeat('x', 1000), '') FROM generate_series(1, 100000000) g",
        "SELECT count(*) FROM generate_series(1, 100000000) a JOIN generate_series(1, 100000000) b ON a = b",
        "SELECT a.a, b.a, c.a FROM big a, big b, big c ORDER BY a.a + b.a + c.a",
        "WITH RECURSIVE r AS (SELECT 1 AS n, repeat('x', 100000) AS x UNION SELECT n + 1, x FROM r) SELECT count(*) FROM r",
    ] {
        assert_eq!(client.state(sql), "53200", "{sql}");
    }
    assert_eq!(
        client.state("BEGIN; DECLARE c CURSOR FOR SELECT * FROM generate_series(1, 100000000) g; FETCH 1 FROM c"),
        "53200"
    );
    client.run("ROLLBACK");
    client.terminate();
    subject.assert_unharmed();
    let grown = subject.memory().saturating_sub(before) >> 20;
    assert!(grown < 300, "{grown} MiB are still held");
}

#[test]
fn clients_are_warned_as_by_postgresql() {
    let mut subject = Subject::start(10);
    let mut client = subject.connect();
    let unlock = "SELECT pg_advisory_unlock(5), pg_advisory_unlock_shared(6)";
    let warned = ["you don't own a lock of type ExclusiveLock", "you don't own a lock of type ShareLock"];
    assert_eq!(client.notices(unlock), warned.map(|message| ("01000".to_owned(), message.to_owned())));
    assert_eq!(client.notices("SELECT pg_advisory_lock(5), pg_advisory_unlock(5)"), []);
    let (long, short) = ("\u{e4}".repeat(40), "\u{e4}".repeat(31));
    let notices: Vec<String> =
        client.notices(&format!("BEGIN; SAVEPOINT {long}")).into_iter().map(|(_, message)| message).collect();
    assert_eq!(notices, [format!("identifier \"{long}\" will be truncated to \"{short}\"")], "{notices:?}");
    client.run(&format!("ROLLBACK TO {long}; RELEASE {short}; ROLLBACK"));
    client.terminate();
    subject.assert_unharmed();
}
