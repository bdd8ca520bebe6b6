//! Statements and values from grammars, each nearly right: what a corpus changed at random seldom
//! comes to.

use super::Random;

/// What a word in braces can be replaced by. `{list}` and the like end, since words that begin with
/// a sign are deeper each time.
const RULES: &[(&str, &[&str])] = &[
    (
        "statement",
        &[
            "{index}",
            "{explain}",
            "{set}",
            "{cursor}",
            "{conflict}",
            "{defer}",
            "{copy}",
            "{value}",
            "{value}",
            "{value}",
            "{database}",
        ],
    ),
    // Indexes on expressions, and on some rows.
    (
        "index",
        &[
            "CREATE {unique} INDEX {concurrently} {named} ON {table} {method} ({key}) {include} {nulls} {storage} {where}",
            "CREATE INDEX ON t ({key}, {key}, {key}) {where}; INSERT INTO t (a, b) VALUES ({number}, {text}); UPDATE t SET b = {text}; SELECT * FROM t WHERE {condition}",
            "CREATE UNIQUE INDEX ON t ({key}) {where}; INSERT INTO t (a, b) VALUES (1, 'x'), (2, {text}) ON CONFLICT ({key}) {where} {action}",
        ],
    ),
    ("unique", &["", "UNIQUE"]),
    ("concurrently", &["", "", "CONCURRENTLY", "IF NOT EXISTS i"]),
    ("named", &["", "i1", "\"I 2\""]),
    ("table", &["t", "t1", "tree", "busy", "nothing", "pg_class"]),
    ("method", &["", "USING btree", "USING hash", "USING gin"]),
    ("key", &["{column} {class} {order}", "({expression}) {order}", "lower({column})", "{column}", "(({column}))"]),
    ("column", &["a", "b", "n", "id", "nothing", "t"]),
    ("class", &["", "", "text_pattern_ops", "int4_ops", "COLLATE \"C\"", "COLLATE \"xx\""]),
    ("order", &["", "DESC", "ASC NULLS FIRST", "DESC NULLS LAST"]),
    ("include", &["", "", "INCLUDE (b)", "INCLUDE (a, a)"]),
    ("nulls", &["", "NULLS NOT DISTINCT", "NULLS DISTINCT"]),
    ("storage", &["", "WITH (fillfactor = {number})"]),
    ("where", &["", "WHERE {condition}"]),
    (
        "condition",
        &[
            "{expression} IS NULL",
            "{expression} IS NOT NULL",
            "a > {number}",
            "{expression} = {expression}",
            "b LIKE {text}",
            "NOT ({condition})",
            "({condition}) AND ({condition})",
            "({condition}) OR a IN ({number}, {number})",
            "n IS DISTINCT FROM {number}",
            "true",
        ],
    ),
    (
        "expression",
        &[
            "a + {number}",
            "b || {text}",
            "lower(b)",
            "coalesce(n, {number})",
            "a",
            "b",
            "n",
            "a / {number}",
            "substr(b, {number})",
            "CASE WHEN {condition} THEN a ELSE {number} END",
            "now()",
            "random()",
            "(SELECT 1)",
            "b::int",
            "a::text",
            "({expression})::{type}",
        ],
    ),
    (
        "type",
        &[
            "int",
            "text",
            "numeric(3,1)",
            "inet",
            "cidr",
            "macaddr",
            "interval",
            "jsonb",
            "bytea",
            "date",
            "timestamptz",
            "int[]",
            "bool",
            "float8",
            "regclass",
        ],
    ),
    (
        "number",
        &[
            "0",
            "1",
            "-1",
            "2147483647",
            "-2147483648",
            "9223372036854775807",
            "1e5",
            "0.1",
            "1e308",
            "NULL",
            "'NaN'",
            "{numeric}",
        ],
    ),
    ("text", &["''", "'x'", "NULL", "'%a_'", "E'\\\\'", "'ä€😀'", "repeat('ab', 300)", "'{{'", "{regex}"]),
    // EXPLAIN.
    (
        "explain",
        &[
            "EXPLAIN ({option}) {query}",
            "EXPLAIN ({option}, {option}, {option}) {query}",
            "EXPLAIN {word} {word} {query}",
            "PREPARE p AS {query}; EXPLAIN ({option}) EXECUTE p",
        ],
    ),
    (
        "option",
        &[
            "ANALYZE",
            "ANALYZE {truth}",
            "VERBOSE {truth}",
            "COSTS {truth}",
            "FORMAT {format}",
            "TIMING {truth}",
            "BUFFERS",
            "WAL",
            "SETTINGS {truth}",
            "SUMMARY {truth}",
            "nothing",
            "FORMAT",
        ],
    ),
    ("word", &["", "ANALYZE", "VERBOSE", "ANALYSE"]),
    ("truth", &["", "on", "off", "true", "0", "1", "2", "'yes'", "maybe"]),
    ("format", &["text", "json", "yaml", "xml", "'JSON'", "nothing"]),
    (
        "query",
        &[
            "SELECT {expression} FROM t WHERE {condition}",
            "SELECT * FROM t ORDER BY {key} LIMIT 3",
            "SELECT count(*), {expression} FROM t GROUP BY 2",
            "UPDATE t SET a = {expression} WHERE {condition}",
            "DELETE FROM t WHERE {condition}",
            "INSERT INTO t (a) VALUES ({number})",
            "WITH x AS (SELECT * FROM t) SELECT * FROM x a, x b WHERE a.id = b.id",
            "{value}",
            "DECLARE c CURSOR FOR SELECT 1",
            "CREATE TABLE made AS SELECT 1",
        ],
    ),
    // SET.
    (
        "set",
        &[
            "SET {scope} {setting} {to} {setto}",
            "SET {scope} {setting} {to} {setto}, {setto}",
            "SET TIME ZONE {setto}",
            "SET {scope} TIME ZONE INTERVAL {text} HOUR TO MINUTE",
            "RESET {setting}",
            "SHOW {setting}",
            "SET {scope} TRANSACTION ISOLATION LEVEL {level}, READ {mode}, {deferrable} DEFERRABLE",
            "BEGIN {deferrable} DEFERRABLE, READ {mode}; SHOW transaction_deferrable; ROLLBACK",
            "SET ROLE {role}",
            "SET SESSION AUTHORIZATION {role}; RESET SESSION AUTHORIZATION",
            "SELECT set_config('{setting}', {text}, {bool}), current_setting('{setting}', true)",
            "ALTER ROLE freshet SET {setting} {to} {setto}",
            "SET SESSION CHARACTERISTICS AS TRANSACTION {level}",
            "SET NAMES {text}",
            "SET {scope} {setting} FROM CURRENT",
        ],
    ),
    ("scope", &["", "", "LOCAL", "SESSION"]),
    ("to", &["=", "TO"]),
    (
        "setting",
        &[
            "DateStyle",
            "IntervalStyle",
            "client_encoding",
            "search_path",
            "work_mem",
            "statement_timeout",
            "extra_float_digits",
            "bytea_output",
            "synchronous_commit",
            "freshet.safety",
            "freshet.read_after",
            "a.b",
            "\"x y\".z",
            "default_transaction_isolation",
            "TimeZone",
            "nothing",
        ],
    ),
    (
        "setto",
        &[
            "DEFAULT",
            "on",
            "'ISO, MDY'",
            "german",
            "'latin1'",
            "utf8",
            "'1 min'",
            "'-1'",
            "99999999999",
            "'1.5GB'",
            "3",
            "-3.5",
            "'x', y",
            "'<+03>-03'",
            "'Europe/Berlin'",
            "INTERVAL '+01:30' HOUR TO MINUTE",
            "{text}",
            "{number}",
        ],
    ),
    ("level", &["SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED", "NOTHING"]),
    ("mode", &["ONLY", "WRITE"]),
    ("deferrable", &["", "NOT"]),
    ("role", &["freshet", "ann", "'ann'", "NONE", "DEFAULT", "nobody"]),
    ("bool", &["true", "false", "NULL"]),
    // Cursors.
    (
        "cursor",
        &[
            "BEGIN; DECLARE {name} {binary} {sensitive} {scroll} CURSOR {hold} FOR {query} {lock}; {fetch}; {fetch}; {fetch}; SELECT * FROM pg_cursors; {end}",
            "{fetch}; {end}",
        ],
    ),
    ("name", &["c", "\"C_3\"", "d"]),
    ("binary", &["", "BINARY"]),
    ("sensitive", &["", "INSENSITIVE", "ASENSITIVE"]),
    ("scroll", &["", "SCROLL", "NO SCROLL"]),
    ("hold", &["", "WITH HOLD", "WITHOUT HOLD"]),
    ("lock", &["", "FOR UPDATE", "FOR KEY SHARE OF t SKIP LOCKED"]),
    (
        "fetch",
        &[
            "FETCH {direction} {from} {name}",
            "MOVE {direction} {from} {name}",
            "CLOSE {name}",
            "SAVEPOINT s1",
            "ROLLBACK TO s1",
            "DELETE FROM t WHERE CURRENT OF {name}",
            "UPDATE t SET a = 5 WHERE CURRENT OF {name}",
        ],
    ),
    (
        "direction",
        &[
            "",
            "NEXT",
            "PRIOR",
            "FIRST",
            "LAST",
            "ABSOLUTE {count}",
            "RELATIVE {count}",
            "{count}",
            "ALL",
            "FORWARD",
            "FORWARD {count}",
            "FORWARD ALL",
            "BACKWARD",
            "BACKWARD {count}",
            "BACKWARD ALL",
        ],
    ),
    ("from", &["FROM", "IN", ""]),
    ("count", &["0", "1", "-1", "3", "2147483647", "-2147483648", "9223372036854775807", "99999999999999999999"]),
    ("end", &["COMMIT", "ROLLBACK", "COMMIT; {fetch}; CLOSE ALL", "CLOSE ALL; COMMIT"]),
    // ON CONFLICT.
    (
        "conflict",
        &[
            "INSERT INTO t (id, a, b) VALUES ({number}, {number}, {text}), (1, 1, 'y') ON CONFLICT {target} {action} {returning}",
            "INSERT INTO tree AS x SELECT id, id, b FROM t ON CONFLICT {target} {action} {returning}",
        ],
    ),
    (
        "target",
        &[
            "",
            "(id)",
            "(name)",
            "(id, id)",
            "(({expression})) {where}",
            "(id) {where}",
            "ON CONSTRAINT t_pkey",
            "ON CONSTRAINT tree_name_key",
            "(name COLLATE \"C\" text_ops)",
        ],
    ),
    (
        "action",
        &[
            "DO NOTHING",
            "DO UPDATE SET a = excluded.a + t.a",
            "DO UPDATE SET (a, b) = (excluded.a, DEFAULT) {where}",
            "DO UPDATE SET id = excluded.id, id = 1",
            "DO UPDATE SET a = (SELECT max(a) FROM t) WHERE excluded.a > {number}",
        ],
    ),
    ("returning", &["", "RETURNING *", "RETURNING excluded.*", "RETURNING id, {expression}"]),
    // When constraints are checked.
    (
        "defer",
        &[
            "CREATE TABLE made (a int UNIQUE {deferral}, b int REFERENCES t {deferral}, c int, {constraint} {deferral}); {check}; INSERT INTO made VALUES (1, {number}, 1), (1, 1, 1); {check}; UPDATE made SET a = a + 1; {end}",
            "BEGIN; {check}; INSERT INTO tree VALUES (9, 10, 'z'); {check}; COMMIT",
            "ALTER TABLE tree ALTER CONSTRAINT tree_parent_fkey {deferral}; {check}",
        ],
    ),
    (
        "deferral",
        &[
            "",
            "DEFERRABLE",
            "NOT DEFERRABLE",
            "DEFERRABLE INITIALLY DEFERRED",
            "INITIALLY IMMEDIATE",
            "INITIALLY DEFERRED",
            "NOT DEFERRABLE INITIALLY DEFERRED",
            "DEFERRABLE DEFERRABLE",
        ],
    ),
    (
        "constraint",
        &[
            "UNIQUE (a, c)",
            "PRIMARY KEY (c)",
            "CHECK (a > 0)",
            "FOREIGN KEY (b, c) REFERENCES made (a, c)",
            "EXCLUDE USING gist (a WITH =)",
        ],
    ),
    (
        "check",
        &[
            "SET CONSTRAINTS ALL {when}",
            "SET CONSTRAINTS tree_parent_fkey, nothing.x {when}",
            "BEGIN",
            "SAVEPOINT s1",
            "ROLLBACK TO s1",
        ],
    ),
    ("when", &["DEFERRED", "IMMEDIATE", "NEVER"]),
    // COPY.
    (
        "copy",
        &[
            "COPY {source} TO STDOUT ({copyoption}, {copyoption})",
            "COPY {source} TO STDOUT {oldoption} {oldoption}",
            "COPY {source} TO STDOUT ({copyoption})",
        ],
    ),
    (
        "source",
        &[
            "t",
            "t (a, b)",
            "t1 (a)",
            "busy",
            "s",
            "({query})",
            "(INSERT INTO t (a) VALUES ({number}) RETURNING {expression})",
            "BINARY t",
            "tree (id, id)",
        ],
    ),
    (
        "copyoption",
        &[
            "FORMAT csv",
            "FORMAT binary",
            "FORMAT text",
            "HEADER {truth}",
            "HEADER match",
            "DELIMITER {char}",
            "NULL {text}",
            "QUOTE {char}",
            "ESCAPE {char}",
            "FORCE_QUOTE *",
            "FORCE_QUOTE (a, b)",
            "FORCE_NULL (a)",
            "ENCODING {encoding}",
            "FREEZE {truth}",
            "nothing 5",
            "FORMAT (a, b)",
        ],
    ),
    (
        "oldoption",
        &[
            "",
            "CSV",
            "HEADER",
            "BINARY",
            "DELIMITER AS {char}",
            "NULL {text}",
            "QUOTE {char}",
            "FORCE QUOTE a, b",
            "ENCODING {encoding}",
            "FREEZE",
        ],
    ),
    ("char", &["'|'", "','", "'\"'", "''", "'ä'", "E'\\t'", "E'\\n'", "'a'", "'ab'", "x"]),
    ("encoding", &["'utf8'", "'latin1'", "'sjis'", "'big5'", "'mule_internal'", "'x'", "5"]),
    (
        "database",
        &[
            "CREATE DATABASE made TEMPLATE {template} {dboption}; DROP DATABASE IF EXISTS made",
            "DROP DATABASE IF EXISTS made",
        ],
    ),
    ("template", &["template0", "template1", "postgres", "freshet", "nothing", "DEFAULT"]),
    ("dboption", &["", "STRATEGY file_copy", "CONNECTION LIMIT {number}", "ENCODING {encoding}", "OWNER ann"]),
    // Values of types with a syntax of their own.
    (
        "value",
        &[
            "SELECT {text}::{type}",
            "SELECT '{net}'::inet {netop} '{net}'::inet, host('{net}'::inet), '{net}'::cidr",
            "SELECT '{mac}'::macaddr, '{mac}'::macaddr8",
            "SELECT '{interval}'::interval {plus} '{interval}'::interval, justify_interval('{interval}'), extract(epoch FROM interval '{interval}')",
            "SELECT '{json}'::jsonb, '{json}'::json #>> '{{a,0}}', '{json}'::jsonb {jsonop} '{json}'::jsonb",
            "SELECT {numeric}::numeric {arithmetic} {numeric}::numeric, round({numeric}::numeric, {digits}), to_char({numeric}::numeric, 'S999G999D99EEEE')",
            "SELECT {numeric}::numeric({digits},{digits})",
            "SELECT {subject} ~ {regex}, regexp_matches({subject}, {regex}, 'g'), regexp_replace({subject}, {regex}, '\\1\\&', {flags}), regexp_split_to_array({subject}, {regex})",
            "SELECT substring({subject} FROM {regex}), {subject} SIMILAR TO {regex}, {subject} LIKE {regex}",
            "SELECT '{interval}'::timetz, '{interval}'::timestamptz, '{interval}'::date",
            "SELECT '{array}'::{type}[], '{array}'::text[][2]",
        ],
    ),
    (
        "net",
        &[
            "{byte}.{byte}.{byte}.{byte}/{digits}",
            "{byte}.{byte}",
            "::{hex}:{hex}/{digits}",
            "{hex}:{hex}::{hex}.1.2.3",
            "::ffff:1.2.3.4",
            "{hex}:{hex}:{hex}:{hex}:{hex}:{hex}:{hex}:{hex}/{digits}",
            "10/{digits}",
            ":::",
            "1.2.3.4/32/",
        ],
    ),
    ("byte", &["0", "1", "255", "256", "010", "-1", "", "99999999999"]),
    ("hex", &["0", "ffff", "fe80", "12345", "g", "", "0000"]),
    ("netop", &["<<", ">>=", "&&", "<", "-", "&", "|", "+", "=", "~~"]),
    (
        "mac",
        &[
            "08:00:2b:01:02:03",
            "08-00-2b-01-02-03",
            "08002b:010203",
            "0800.2b01.0203",
            "{hex}:{hex}:{hex}:{hex}:{hex}:{hex}:{hex}:{hex}",
            "08002b010203{hex}",
            ":",
        ],
    ),
    (
        "interval",
        &[
            "{amount} {unit}",
            "{amount} {unit} {amount} {unit} ago",
            "P{amount}Y{amount}M{amount}DT{amount}H{amount}M{amount}S",
            "P{amount}-{amount}-{amount}T{amount}:{amount}:{amount}",
            "{amount}:{amount}:{amount}.{amount}",
            "{amount}-{amount} {amount} {amount}:{amount}",
            "@ {amount} {unit}",
            "infinity",
            "{amount}",
        ],
    ),
    (
        "amount",
        &[
            "0",
            "1",
            "-1",
            "1.5",
            "-.5",
            "2147483647",
            "-2147483648",
            "9223372036854775807",
            "1e10",
            "0.0000001",
            "99999999999999999999",
            "",
        ],
    ),
    (
        "unit",
        &["year", "mons", "day", "hour", "min", "sec", "us", "centuries", "millennium", "week", "x", "ms", "timezone"],
    ),
    ("plus", &["+", "-", "*", "="]),
    (
        "json",
        &[
            "{{}}",
            "[]",
            "{{\"a\": {json}, \"b\": [{json}, {json}]}}",
            "[{json}, {json}]",
            "{jsonnumber}",
            "\"{jsontext}\"",
            "null",
            "tru",
            "{{\"a\": 1, \"a\": 2}}",
            "[1,]",
            "{{",
            "{{\"\\u0000\": 1}}",
            " [ ] ",
        ],
    ),
    (
        "jsonnumber",
        &["0", "-0", "1e400", "01", "1.", ".5", "1E-5", "123456789012345678901234567890.5", "-", "1e999999999"],
    ),
    ("jsontext", &["", "\\u00e4", "\\ud83d\\ude00", "\\ud83d", "\\x", "\\u12", "ä\\n\\t", "\\\\"]),
    ("jsonop", &["@>", "<@", "||", "-", "=", "<", "@?", "?"]),
    (
        "numeric",
        &[
            "'NaN'",
            "'Infinity'",
            "'-inf'",
            "0",
            "1e1000",
            "1e-1000",
            "'1e131071'",
            "'-1e-16383'",
            "0.00000000000000000001",
            "123456789012345678901234567890123456789012345678901234567890",
            "'0x1F'",
            "'1_000'",
            "-9.99",
            "'.'",
            "'1e'",
            "' 7 '",
        ],
    ),
    ("arithmetic", &["+", "-", "*", "/", "%", "^", "<", "="]),
    ("digits", &["0", "1", "-1", "32", "33", "128", "129", "1000", "1001", "16383", "-16384"]),
    ("subject", &["'abcabcabc'", "repeat('ab', 200)", "''", "E'a\\nb'", "'ä€😀'", "repeat('a', 2000) || 'b'"]),
    ("regex", &["'{re}'", "'{re}'", "'{re}{re}'", "'({re})*\\1'", "'(?=({re}))'", "'***={re}'", "'(?i){re}'"]),
    (
        "re",
        &[
            "a",
            ".",
            "({re}|{re})",
            "({re}){re}",
            "[{set_of}]",
            "[^{set_of}]",
            "{re}*",
            "{re}+?",
            "{re}{{{digits},{digits}}}",
            "{re}{{2}}",
            "^{re}$",
            "\\m{re}\\M",
            "\\d",
            "\\1",
            "(?:{re})",
            "(?!{re})",
            "(?<={re})",
            "\\u00e4",
            "\\",
            "(",
            "[",
            "*",
            "x*?",
        ],
    ),
    ("set_of", &["a-z", "[:alpha:]", "[:nothing:]", "[.a.]", "[=a=]", "]a", "a-", "\\d", "z-a", "ä-ü"]),
    ("flags", &["'g'", "'i'", "'x'", "'gn'", "'q'", "''", "'z'"]),
    (
        "array",
        &[
            "{{1,2}}",
            "{{{{1}},{{2}}}}",
            "{{\"a\\\"b\", NULL, null}}",
            "[2:3]={{1,2}}",
            "[-1:0][5:5]={{{{1}},{{2}}}}",
            "{{",
            "{{1,}}",
            "{{}}",
            "{{{{}}}}",
            "[9223372036854775807:1]={{1}}",
        ],
    ),
];

/// How deep rules are applied within one another before the shortest way out is taken.
const DEEPEST: usize = 12;

fn expand(rule: &str, depth: usize, random: &mut Random, out: &mut String) {
    let Some((_, ways)) = RULES.iter().find(|(name, _)| *name == rule) else {
        out.push_str(rule);
        return;
    };
    // The first one ends soonest, as a rule.
    let way = if depth > DEEPEST { ways[0] } else { random.of(ways) };
    if depth > 2 * DEEPEST {
        return;
    }
    let mut rest = way;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let (brace, behind) = rest[at..].split_at(1);
        rest = match behind.strip_prefix(brace) {
            // Twice is once.
            Some(behind) => {
                out.push_str(brace);
                behind
            }
            None => match behind.split_once('}') {
                Some((name, behind)) => {
                    expand(name, depth + 1, random, out);
                    behind
                }
                None => behind,
            },
        };
    }
    out.push_str(rest);
}

/// A statement, or some.
pub fn from_grammar(random: &mut Random) -> Vec<u8> {
    let mut sql = String::new();
    expand("statement", 0, random, &mut sql);
    sql.into_bytes()
}

/// A part of a statement.
pub(super) fn part(rule: &str, random: &mut Random) -> String {
    let mut part = String::new();
    expand(rule, 0, random, &mut part);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_there_and_ends() {
        let mut random = Random::new(1);
        for (name, ways) in RULES {
            assert!(RULES.iter().filter(|(other, _)| other == name).count() == 1, "{name} is there twice");
            for way in *ways {
                let bare = way.replace("{{", "").replace("}}", "");
                for word in bare.split('{').skip(1) {
                    let word = word.split('}').next().unwrap_or_default();
                    assert!(RULES.iter().any(|(name, _)| *name == word), "{word} in {way}");
                }
            }
            for _ in 0..100 {
                assert!(part(name, &mut random).len() < 1 << 20);
            }
        }
    }
}
