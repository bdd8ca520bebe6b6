//! Statements with a volatile function in every kind of place, and how often it has run.
//!
//! The function is `nextval`, so that the sequence says how often. What it returns is hidden, since
//! the order in which rows are computed is nobody's business. Where PostgreSQL decides by cost how
//! often it runs, no statement is generated: of two volatile conditions of one row it evaluates the
//! cheaper one first.

use super::{queries::tables, random::Random};

/// A condition that holds and counts; one that depends on a row, too.
fn condition(random: &mut Random, row: &str) -> String {
    match random.below(5) {
        0 => format!("nextval('q') > {row}.a"),
        1 => format!("nextval('q') * 0 + {row}.a < 3"),
        _ => "nextval('q') > 0".to_owned(),
    }
}

/// A number that counts.
fn number(random: &mut Random, row: &str) -> String {
    match random.below(3) {
        0 => format!("(nextval('q') * 0 + {row}.a)"),
        1 => "(nextval('q') * 0)::int".to_owned(),
        _ => "coalesce(nullif(nextval('q'), 0) * 0, 7)".to_owned(),
    }
}

/// A condition that does not count.
fn plain(random: &mut Random, row: &str) -> String {
    let plain = random.one(&[".a > 1", ".a = 2", ".b < 2", ".o", ".s IS NOT NULL", ".id > 4"]);
    format!("{row}{plain}")
}

/// Conditions that count and others, connected in some way.
fn conditions(random: &mut Random, row: &str) -> String {
    let (one, two) = (condition(random, row), plain(random, row));
    match random.below(9) {
        0 => format!("{one} AND {two}"),
        1 => format!("{two} AND {one}"),
        2 => format!("{two} OR {one}"),
        3 => format!("NOT ({two} AND {one})"),
        4 => format!("CASE WHEN {two} THEN {one} ELSE {row}.o END"),
        5 => format!("coalesce({two}, {one})"),
        6 => format!("({two} OR {one}) AND {}", plain(random, row)),
        7 => format!("{two} IS TRUE AND ({one} OR {})", plain(random, row)),
        _ => one,
    }
}

/// An expression that may count, or may not, for a row.
fn expression(random: &mut Random, row: &str) -> String {
    let (number, plain) = (number(random, row), plain(random, row));
    match random.below(10) {
        0 => format!("CASE WHEN {plain} THEN {number} END"),
        1 => format!("coalesce({row}.a, {number})"),
        2 => format!("CASE {number} WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'many' END"),
        3 => format!("{number} IN (1, 2, {row}.a)"),
        4 => format!("nullif({number}, 1)"),
        5 => format!("greatest({number}, {row}.a)"),
        6 => format!("ARRAY[{number}, {number}]"),
        7 => format!("{number} IS DISTINCT FROM {row}.a"),
        8 => format!("{number} = ANY (ARRAY[1, {row}.a])"),
        _ => number,
    }
}

/// A query within an expression for a row `x`, of one column and at most one row.
fn scalar(random: &mut Random) -> String {
    let number = number(random, "x");
    match random.below(8) {
        0 => format!("(SELECT {number})"),
        1 => format!("(SELECT {number} WHERE x.a = x.a)"),
        2 => "(SELECT (nextval('q') * 0)::int)".to_owned(),
        3 => format!("(SELECT {} FROM t1 AS y WHERE y.id = x.id)", self::number(random, "y")),
        4 => format!("(SELECT sum({}) FROM t1 AS y WHERE y.a = x.a)", self::number(random, "y")),
        5 => format!("(SELECT count(*) FROM t3 AS y WHERE {} AND y.a >= x.a)", condition(random, "y")),
        6 => "(SELECT sum(z.v) FROM (SELECT (SELECT nextval('q') * 0 WHERE x.a = x.a) AS v FROM t3) AS z)".to_owned(),
        _ => "(SELECT sum(z.v) FROM (SELECT (SELECT nextval('q') * 0 WHERE x.a = y.a) AS v FROM t3 AS y) AS z)"
            .to_owned(),
    }
}

/// A query within a condition for a row `x`.
///
/// One that takes nothing from the row may not be run for want of rows, as the join has it.
fn asked(random: &mut Random, depends: bool) -> String {
    let (number, condition) = (number(random, "y"), condition(random, "y"));
    let not = random.one(&["", "NOT "]);
    match if depends { 2 + random.below(5) } else { random.below(7) } {
        2 => format!("{not}EXISTS (SELECT 1 FROM t1 AS y WHERE y.a = x.a AND {condition})"),
        1 => format!("{not}EXISTS (SELECT 1 FROM t3 AS y WHERE {condition})"),
        3 => format!("x.a {not}IN (SELECT {number} FROM t3 AS y WHERE y.id <= x.id)"),
        0 => format!("x.a {not}IN (SELECT {number} FROM t3 AS y)"),
        4 => format!("cardinality(ARRAY(SELECT {number} FROM t3 AS y WHERE y.a <= x.a)) > 1"),
        5 => format!("x.a > ALL (SELECT {number} FROM t3 AS y WHERE y.a < x.a)"),
        _ => format!("{} IS NULL", scalar(random)),
    }
}

/// A query in FROM, whose columns are `id`, `a` and `v`; the last counts.
fn derived(random: &mut Random) -> String {
    let (number, shape) = (number(random, "x"), random.below(9));
    // Whether a query within the list is run for rows that LIMIT leaves out depends on its cost.
    let number = if shape != 1 && random.chance(25) { scalar(random) } else { number };
    let from = random.below(3);
    match shape {
        0 => format!("(SELECT x.id, x.a, {number} AS v FROM t{from} AS x ORDER BY x.id)"),
        1 => format!("(SELECT x.id, x.a, {number} AS v FROM t{from} AS x ORDER BY x.id LIMIT 4)"),
        2 => format!("(SELECT x.id, x.a, {number} AS v FROM t{from} AS x WHERE {})", plain(random, "x")),
        3 => format!("(SELECT x.id, x.a, {number} AS v FROM t{from} AS x WHERE {})", conditions(random, "x")),
        4 => format!("(SELECT min(x.id) AS id, x.a, sum({number}) AS v FROM t{from} AS x GROUP BY x.a)"),
        _ => format!("(SELECT x.id, x.a, {number} AS v FROM t{from} AS x)"),
    }
}

fn query(random: &mut Random) -> String {
    let from = random.below(3);
    match random.below(26) {
        0 => format!("SELECT x.id, {} FROM t{from} AS x", expression(random, "x")),
        1 => format!("SELECT x.id FROM t{from} AS x WHERE {}", conditions(random, "x")),
        2 => format!("SELECT x.id, {} IS NULL FROM t{from} AS x", scalar(random)),
        3 => format!("SELECT x.id FROM t{from} AS x WHERE {}", asked(random, false)),
        4 => format!("SELECT x.id, {} FROM t{from} AS x", asked(random, false)),
        5 => format!("SELECT x.id FROM t{from} AS x WHERE {} AND {}", plain(random, "x"), asked(random, true)),
        6 => format!("SELECT count(*) FROM {} AS x", derived(random)),
        7 => format!("SELECT x.id, x.v IS NULL, x.v IS NULL FROM {} AS x", derived(random)),
        8 => format!("SELECT x.id FROM {} AS x WHERE x.a > 1", derived(random)),
        9 => format!("SELECT x.id FROM {} AS x WHERE x.v < 3 AND x.a > 1", derived(random)),
        10 => {
            // Groups may come sorted, and are made no further than the limit then.
            let mut from = derived(random);
            while from.contains("GROUP BY") {
                from = derived(random);
            }
            format!("SELECT x.id FROM {from} AS x ORDER BY x.a, x.id LIMIT 3")
        }
        11 => format!("SELECT x.a, count(*) FROM {} AS x GROUP BY x.a", derived(random)),
        12 => {
            let mut from = derived(random);
            while from.contains(" WHERE ") {
                from = derived(random);
            }
            format!("SELECT x.id FROM {from} AS x WHERE {}", condition(random, "x"))
        }
        13 => {
            let (join, on) = if random.chance(50) { (", ", "") } else { (" LEFT JOIN ", " ON true") };
            let number = number(random, "y");
            format!(
                "SELECT x.id, l.w IS NULL FROM t{from} AS x{join}\
                 LATERAL (SELECT {number} AS w FROM t3 AS y WHERE y.a >= x.a) AS l{on}"
            )
        }
        14 => {
            let kind = random.one(&["", "MATERIALIZED "]);
            format!("WITH w AS {kind}{} SELECT count(*) FROM w", derived(random))
        }
        15 => format!("WITH w AS {} SELECT count(*) FROM w AS one, w AS two WHERE one.id = two.id", derived(random)),
        16 => format!("WITH w AS {} SELECT x.id FROM t{from} AS x", derived(random)),
        17 => format!(
            "SELECT sum({}), count(*) FILTER (WHERE {}) FROM t{from} AS x",
            number(random, "x"),
            condition(random, "x")
        ),
        18 => format!(
            "SELECT x.a, sum({0}) FILTER (WHERE {1}), sum({0}) FROM t{from} AS x GROUP BY x.a",
            number(random, "x"),
            plain(random, "x")
        ),
        19 => format!("SELECT x.a, count(*) FROM t{from} AS x GROUP BY x.a HAVING nextval('q') > 0 AND count(*) > 1"),
        20 => format!("SELECT DISTINCT {} FROM t{from} AS x", expression(random, "x")),
        21 => format!("SELECT x.id FROM t{from} AS x ORDER BY {}, x.id", number(random, "x")),
        22 => format!("SELECT x.id, sum({}) OVER (ORDER BY x.id) FROM t{from} AS x", number(random, "x")),
        23 => format!("SELECT generate_series(1, {}::int % 2 + 2) FROM t{from} AS x", number(random, "x")),
        24 => format!("SELECT {} FROM t{from} AS x LIMIT {} OFFSET 1", number(random, "x"), random.between(0, 4)),
        _ => {
            format!("SELECT {} FROM t0 AS x UNION ALL SELECT {} FROM t3 AS x", number(random, "x"), number(random, "x"))
        }
    }
}

/// Joins whose conditions count; how often does not depend on how they are joined.
fn join(random: &mut Random) -> String {
    let (x, y) = (condition(random, "x"), condition(random, "y"));
    let kind = random.one(&["JOIN", "LEFT JOIN"]);
    match random.below(6) {
        0 => format!("SELECT count(*) FROM t0 AS x JOIN t1 AS y ON x.a = y.a WHERE {x}"),
        1 => format!("SELECT count(*) FROM t0 AS x JOIN t1 AS y ON x.a = y.a AND {x}"),
        2 => format!("SELECT count(*) FROM t0 AS x CROSS JOIN t3 AS y WHERE {y}"),
        3 => "SELECT count(*) FROM t0 AS x, t1 AS y, t3 AS z WHERE x.a = y.a AND y.b = z.b AND nextval('q') > 0"
            .to_owned(),
        4 => "SELECT count(*) FROM (t0 AS x JOIN t1 AS y ON x.a = y.a AND nextval('q') > 0) JOIN t3 AS z ON z.a = x.a"
            .to_owned(),
        _ => {
            // A join whose other side has no more than one row may be left out.
            let mut other = derived(random);
            while other.contains("GROUP BY") {
                other = derived(random);
            }
            let other = other.replace("x.", "k.").replace("AS x", "AS k");
            format!("SELECT count(*) FROM t0 AS x {kind} {other} AS y ON x.a = y.a WHERE x.id > 3")
        }
    }
}

/// What changes rows.
fn change(random: &mut Random) -> String {
    match random.below(9) {
        0 => {
            let (number, plain) = (number(random, "x"), plain(random, "x"));
            format!("INSERT INTO copy (id, a) SELECT x.id, {number} FROM t0 AS x WHERE {plain}")
        }
        1 => format!("UPDATE t0 AS x SET a = {} WHERE {}", number(random, "x"), conditions(random, "x")),
        2 => format!("UPDATE t0 AS x SET a = {}, n = {}", scalar(random), scalar(random)),
        3 => format!("DELETE FROM t0 AS x WHERE {} RETURNING nextval('q') > x.a", conditions(random, "x")),
        4 => format!("UPDATE t0 AS x SET n = {} FROM t1 AS y WHERE y.id = x.id", number(random, "y")),
        5 => format!("INSERT INTO copy VALUES (1, {0}), (2, {0}) RETURNING {0}", "(nextval('q') * 0)::int"),
        6 => "INSERT INTO copy (id) VALUES (1), (2); \
              INSERT INTO copy AS x VALUES (1, nextval('q')), (3, nextval('q')) \
              ON CONFLICT (id) DO UPDATE SET a = nextval('q') * 0 WHERE nextval('q') > x.id"
            .to_owned(),
        7 => "INSERT INTO counted (id) SELECT id FROM t0".to_owned(),
        _ => format!("DELETE FROM t0 AS x WHERE {}", asked(random, false)),
    }
}

/// Statements that count.
pub fn volatile(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = tables(random);
    made.push("CREATE SEQUENCE q;".to_owned());
    made.push("CREATE TABLE copy (id integer PRIMARY KEY, a bigint);".to_owned());
    made.push("CREATE TABLE counted (id integer, a bigint DEFAULT nextval('q'));".to_owned());
    for _ in 0..count {
        let statement = match random.below(10) {
            0 | 1 => join(random),
            2 | 3 => change(random),
            _ => query(random),
        };
        made.push(format!("BEGIN; SELECT setval('q', 1000); {statement}; SELECT last_value FROM q; ROLLBACK;"));
    }
    made
}
