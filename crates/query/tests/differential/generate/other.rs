//! Casts, changes of rows, and cursors.

use super::random::Random;

/// Types to cast to.
const TYPES: &[&str] = &[
    "smallint",
    "integer",
    "bigint",
    "numeric",
    "numeric(5, 2)",
    "real",
    "float8",
    "boolean",
    "text",
    "name",
    "bytea",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
    "json",
    "jsonb",
    "integer[]",
    "text[]",
    "oid",
];

/// Texts at the edges of what types take.
const TEXTS: &[&str] = &[
    "",
    " ",
    "0",
    "-0",
    " 12 ",
    "+7",
    "1e3",
    "1.5",
    "-1.5e-3",
    ".5",
    "5.",
    "1_000",
    "32767",
    "32768",
    "-32768",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1e-400",
    "t",
    "TRUE",
    "yes",
    "of",
    "off",
    "on",
    "o",
    "n",
    "1",
    "2",
    "null",
    "NULL",
    "2024-02-29",
    "2023-02-29",
    "20240229",
    "Feb 29 2024",
    "29.02.2024",
    "2024-2-9",
    "0001-01-01",
    "10000-01-01",
    "2024-02-29 BC",
    "epoch",
    "today x",
    "12:30",
    "12:30:45.1234567",
    "24:00:00",
    "24:00:01",
    "25:00",
    "12:30 PM",
    "0:0:60",
    "2024-02-29 12:30:00",
    "2024-02-29T12:30:00Z",
    "2024-02-29 12:30:00+02",
    "2024-02-29 12:30:00 Europe/Zurich",
    "2024-02-29 24:00",
    "1 day",
    "1 day ago",
    "-1 days +02:03",
    "1 year 2 mons",
    "1.5 months",
    "1:2",
    "2 weeks",
    "1 fortnight",
    "@ 3 hours",
    "12345678-1234-5678-1234-567812345678",
    "{12345678-1234-5678-1234-567812345678}",
    "1234567812345678123456781234567",
    "{}",
    "[]",
    "{1,2}",
    "{1,NULL,3}",
    "{a,\"b c\"}",
    "{{1,2},{3,4}}",
    "{{1},{2,3}}",
    "{1,2",
    "[0:1]={5,6}",
    "{\"a\": 1}",
    "{\"b\": 2, \"a\": [1, null]}",
    "[1, 2.50, \"x\"]",
    "\"text\"",
    "{\"a\": 1, \"a\": 2}",
    "{a: 1}",
    "\\\\x00ff",
    "\\\\xabc",
    "abc\\\\000",
    "abcdef",
    "äöü",
    "pg_class",
    "pg_catalog.pg_class",
    "nowhere",
    "int4",
    "numeric(5,2)",
    "text[]",
    "101",
    "1012",
    "x1F",
    "  true  ",
    "1 ",
    "--1",
    "1a",
    "0b101",
    "0o17",
    "1e5",
    "123456.789",
    "999.994",
    "999.995",
];

/// Those for dates, times and intervals.
const TIMES: &[&str] = &[
    "",
    "1.5",
    "infinity",
    "-infinity",
    "now x",
    "NULL",
    "2024-02-29",
    "2023-02-29",
    "20240229",
    "Feb 29 2024",
    "29.02.2024",
    "2024-2-9",
    "0001-01-01",
    "10000-01-01",
    "2024-02-29 BC",
    "epoch",
    "12:30",
    "12:30:45.1234567",
    "24:00:00",
    "12:30 PM",
    "0:0:60",
    "2024-02-29 12:30:00",
    "2024-02-29 12:30:00+02",
    "2024-02-29 24:00",
    "1 day",
    "2024-02-29 12:30:00 Europe/Zurich",
    "1 day ago",
    "-1 days +02:03",
    "1 year 2 mons",
    "1.5 months",
    "1:2",
    "2 weeks",
    "1 fortnight",
    "@ 3 hours",
    "{}",
    "abc",
];

/// Values of types, to be cast to others.
const VALUES: &[&str] = &[
    "7",
    "70000",
    "3000000000",
    "2.5",
    "-2.5",
    "3.5",
    "1e20",
    "2.5::float8",
    "3.5::float8",
    "1e10::float4",
    "true",
    "false",
    "'abc'::text",
    "'12'::text",
    "'ab '::char(5)",
    "'x'::name",
    "date '2024-02-29'",
    "timestamp '2024-02-29 12:30:00'",
    "timestamptz '2024-02-29 12:30:00+02'",
    "time '12:30'",
    "interval '1 day 02:00'",
    "interval '40 hours'",
    "'{\"a\": 1}'::jsonb",
    "'7'::jsonb",
    "'\"x\"'::jsonb",
    "'true'::jsonb",
    "'[1, 2]'::json",
    "ARRAY[1, 2]",
    "ARRAY['a', NULL]",
    "ARRAY[1.5, 2.5]",
    "'\\x6162'::bytea",
    "26::oid",
    "'pg_class'::regclass",
    "NULL",
    "'12345678-1234-5678-1234-567812345678'::uuid",
    "0",
    "1",
    "-1",
];

/// Texts and values as other types.
pub fn casts(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = Vec::new();
    while made.len() < count {
        let ty = random.one(TYPES);
        // Where a text is not a time at all, one error is as good as another.
        let is_time = ["date", "time", "timestamp", "timestamptz", "interval"].contains(&ty);
        made.push(match random.below(4) {
            0 => format!("SELECT ({})::{ty};", random.one(VALUES)),
            1 => format!("SELECT CAST('{}' AS {ty});", random.one(if is_time { TIMES } else { TEXTS })),
            _ => format!("SELECT '{}'::{ty};", random.one(if is_time { TIMES } else { TEXTS })),
        });
    }
    made
}

/// A list of a few numbers, or of what a function makes of them.
fn list(random: &mut Random, count: i32, mut one: impl FnMut(&mut Random) -> String) -> String {
    (0..count).map(|_| one(random)).collect::<Vec<_>>().join(", ")
}

/// INSERT … ON CONFLICT.
pub fn upserts(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = vec![
        "CREATE TABLE k (id integer PRIMARY KEY, u integer UNIQUE, v integer DEFAULT 5, w text, CONSTRAINT vw UNIQUE (v, w), CHECK (v < 90));"
            .to_owned(),
    ];
    while made.len() < count {
        if random.chance(12) {
            made.push("TRUNCATE k;".to_owned());
            made.push("INSERT INTO k SELECT g * 2, g, g, 'x' FROM generate_series(0, 5) AS g;".to_owned());
        }
        let number = |random: &mut Random| match random.below(10) {
            0 => "NULL".to_owned(),
            1 => "DEFAULT".to_owned(),
            _ => random.between(0, 12).to_string(),
        };
        let rows = random.between(1, 3);
        let source = if random.chance(20) {
            format!(
                "SELECT n, n + {0}, n * 2, 'g' FROM generate_series({0}, {1}) AS n",
                random.between(0, 9),
                random.between(5, 12)
            )
        } else {
            format!(
                "VALUES {}",
                list(random, rows, |random| format!(
                    "({}, {}, {}, '{}')",
                    random.between(0, 12),
                    number(random),
                    number(random),
                    random.one(&["x", "y"])
                ))
            )
        };
        let target =
            random.one(&["(id)", "(u)", "(v, w)", "(w, v)", "ON CONSTRAINT vw", "ON CONSTRAINT k_pkey", "(v)"]);
        let action = match random.below(7) {
            0 => " ON CONFLICT DO NOTHING".to_owned(),
            1 => format!(" ON CONFLICT {target} DO NOTHING"),
            2 => format!(" ON CONFLICT {target} DO UPDATE SET v = excluded.v + 1"),
            3 => format!(" ON CONFLICT {target} DO UPDATE SET v = e.v + excluded.v, w = excluded.w || e.w"),
            4 => format!(
                " ON CONFLICT {target} DO UPDATE SET (u, v) = (excluded.u, e.v) WHERE e.v IS DISTINCT FROM excluded.v AND e.id > 2"
            ),
            5 => format!(" ON CONFLICT {target} DO UPDATE SET id = e.id + 20, v = DEFAULT"),
            _ => String::new(),
        };
        let returning = random.one(&["", " RETURNING *", " RETURNING e.id, e.v + 1 AS next"]);
        made.push(format!("INSERT INTO k AS e {source}{action}{returning};"));
        if random.chance(25) {
            made.push("SELECT * FROM k ORDER BY id;".to_owned());
        }
        if random.chance(4) {
            made.push(format!("DELETE FROM k WHERE id % 3 = {} RETURNING id, w;", random.between(0, 2)));
        }
    }
    made
}

/// INSERT, UPDATE and DELETE, in and out of transactions.
pub fn changes(random: &mut Random, count: usize) -> Vec<String> {
    let mut made: Vec<String> = [
        "CREATE TABLE p (id integer PRIMARY KEY, n integer NOT NULL, s text DEFAULT 'new');",
        "CREATE TABLE c (id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, p integer REFERENCES p ON UPDATE CASCADE ON DELETE SET NULL, v numeric(6, 2));",
        "CREATE INDEX ON c (p);",
        "INSERT INTO p SELECT g, g % 4 FROM generate_series(1, 12) AS g;",
        "INSERT INTO c (p, v) SELECT 1 + g % 12, g / 4.0 FROM generate_series(1, 20) AS g;",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut is_open = false;
    while made.len() < count {
        let (one, two) = (random.between(0, 30), random.between(0, 12));
        let test = match random.below(5) {
            0 => format!("id = {one}"),
            1 => format!("id BETWEEN {two} AND {}", two + 3),
            2 => format!("id % 5 = {}", two % 5),
            3 => format!("id IN ({one}, {two})"),
            _ => format!("id > {one}"),
        };
        let returning = random.one(&["", " RETURNING *", " RETURNING id", " RETURNING id AS x, id * 2"]);
        if !is_open && random.chance(5) {
            made.push("TRUNCATE p, c;".to_owned());
            made.push("INSERT INTO p SELECT g, g % 4 FROM generate_series(1, 12) AS g;".to_owned());
            made.push(
                "INSERT INTO c (id, p, v) SELECT g, 1 + g % 12, g / 4.0 FROM generate_series(1, 20) AS g;".to_owned(),
            );
        }
        made.push(match random.below(20) {
            0 => format!("INSERT INTO p VALUES ({one}, {two}){returning};"),
            1 => format!("INSERT INTO p (id, n) VALUES ({one}, NULL){returning};"),
            2 => format!("INSERT INTO p (n, id) SELECT n + 1, id + 30 FROM p WHERE {test}{returning};"),
            3 => format!("INSERT INTO c (p, v) VALUES ({one}, {two}.125) RETURNING p, v;"),
            4 => format!("INSERT INTO c (id, p) VALUES ({}, {two}){returning};", one + 100),
            5 => format!("INSERT INTO c DEFAULT VALUES RETURNING p, v;"),
            6 => format!("UPDATE p SET n = n + {two} WHERE {test}{returning};"),
            7 => format!("UPDATE p SET id = id + 40 WHERE {test}{returning};"),
            8 => format!("UPDATE p SET s = DEFAULT, n = -n WHERE {test}{returning};"),
            9 => format!("UPDATE p SET (n, s) = (SELECT count(*), max(c.v)::text FROM c WHERE c.p = p.id) WHERE {test}{returning};"),
            10 => format!("UPDATE c SET v = v * 2 FROM p WHERE p.id = c.p AND p.n > {two} RETURNING c.id, c.v, p.n;"),
            11 => format!("UPDATE c SET p = {one} WHERE {test}{returning};"),
            12 => format!("UPDATE c SET v = NULL WHERE {test} RETURNING v IS NULL;"),
            13 => format!("DELETE FROM p WHERE {test}{returning};"),
            14 => format!("DELETE FROM c USING p WHERE p.id = c.p AND p.n = {two} RETURNING c.id, p.id;"),
            15 => format!("DELETE FROM c WHERE {test}{returning};"),
            16 if is_open => "SAVEPOINT s;".to_owned(),
            17 if is_open => random.one(&["ROLLBACK TO s;", "RELEASE s;"]).to_owned(),
            16..=18 => {
                is_open = !is_open;
                if is_open { "BEGIN;" } else { random.one(&["COMMIT;", "ROLLBACK;", "COMMIT;"]) }.to_owned()
            }
            _ => "SELECT p.*, c.id AS c, c.v FROM p FULL JOIN c ON c.p = p.id ORDER BY p.id, c.id;".to_owned(),
        });
    }
    made.push("ROLLBACK;".to_owned());
    made
}

/// Cursors that go forward and back.
pub fn cursors(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = vec![
        "CREATE TABLE r (id integer PRIMARY KEY, a integer);".to_owned(),
        "INSERT INTO r SELECT g, g % 3 FROM generate_series(1, 15) AS g;".to_owned(),
    ];
    while made.len() < count {
        let scroll = random.one(&["", "SCROLL ", "SCROLL ", "NO SCROLL "]);
        let hold = random.one(&["", "", " WITH HOLD", " WITHOUT HOLD"]);
        let query = random.one(&[
            "SELECT id FROM r ORDER BY id",
            "SELECT id, a FROM r WHERE a = 1 ORDER BY id DESC",
            "SELECT a, count(*) FROM r GROUP BY a ORDER BY a",
            "SELECT x.id, y.id AS other FROM r AS x LEFT JOIN r AS y ON y.id = x.id * 2 ORDER BY x.id",
            "VALUES (1, 'a'), (2, 'b'), (3, NULL)",
        ]);
        // A simple scan may go back without SCROLL in PostgreSQL; what may is not said.
        let may_go_back = scroll == "SCROLL ";
        made.push("BEGIN;".to_owned());
        made.push(format!("DECLARE c {scroll}CURSOR{hold} FOR {query};"));
        let moves = |random: &mut Random, made: &mut Vec<String>, steps: i32| {
            for _ in 0..steps {
                let number = random.between(0, 6);
                let way = if may_go_back || scroll == "NO SCROLL " && random.chance(10) {
                    match random.below(16) {
                        0 => "PRIOR".to_owned(),
                        1 => "FIRST".to_owned(),
                        2 => "LAST".to_owned(),
                        3 => format!("ABSOLUTE {}", number - 3),
                        4 => format!("ABSOLUTE {}", number * 3),
                        5 => format!("RELATIVE {}", number - 3),
                        6 => format!("BACKWARD {number}"),
                        7 => "BACKWARD".to_owned(),
                        8 => "BACKWARD ALL".to_owned(),
                        9 => format!("{}", -number),
                        10 => format!("FORWARD {}", number - 2),
                        11 => "NEXT".to_owned(),
                        12 => "ALL".to_owned(),
                        13 => "FORWARD ALL".to_owned(),
                        _ => number.to_string(),
                    }
                } else {
                    match random.below(6) {
                        0 => "NEXT".to_owned(),
                        1 => "ALL".to_owned(),
                        2 => format!("FORWARD {}", number + 1),
                        3 => "FORWARD".to_owned(),
                        4 => "FORWARD ALL".to_owned(),
                        _ => (number + 1).to_string(),
                    }
                };
                let from = random.one(&[" FROM", " IN", ""]);
                made.push(format!("{} {way}{from} c;", random.one(&["FETCH", "FETCH", "MOVE"])));
            }
        };
        let steps = random.between(3, 9);
        moves(random, &mut made, steps);
        made.push(random.one(&["COMMIT;", "COMMIT;", "ROLLBACK;", "CLOSE c; COMMIT;"]).to_owned());
        moves(random, &mut made, 2);
        made.push("CLOSE c;".to_owned());
    }
    made
}
