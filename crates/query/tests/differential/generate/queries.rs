//! Queries of four small tables.

use super::{
    expression::{Column, Expressions, KINDS, Kind, PLAIN},
    random::Random,
};

/// The tables' columns. `id` is unique, `a`, `b` and `s` are in all tables and have few values.
const COLUMNS: &[(&str, Kind, &str)] = &[
    ("id", Kind::Integer, "integer PRIMARY KEY"),
    ("a", Kind::Integer, "integer"),
    ("b", Kind::Bigint, "bigint"),
    ("n", Kind::Numeric, "numeric(8, 2)"),
    ("f", Kind::Float, "float8"),
    ("s", Kind::Text, "text"),
    ("o", Kind::Bool, "boolean"),
    ("d", Kind::Date, "date"),
    ("t", Kind::Timestamp, "timestamp"),
];
/// How many tables there are.
const TABLES: usize = 4;

/// The tables, and their rows. The third has an index on `a`, the fourth few rows.
pub fn tables(random: &mut Random) -> Vec<String> {
    let mut made = Vec::new();
    for table in 0..TABLES {
        let columns: Vec<String> = COLUMNS.iter().map(|(name, _, ty)| format!("{name} {ty}")).collect();
        made.push(format!("CREATE TABLE t{table} ({});", columns.join(", ")));
        if table == 2 {
            made.push("CREATE INDEX ON t2 (a, id);".to_owned());
        }
        let count = if table == 3 { 3 } else { random.between(8, 14) };
        let rows: Vec<String> = (0..count).map(|row| format!("({})", values(random, row + table as i32))).collect();
        made.push(format!("INSERT INTO t{table} VALUES\n{};", rows.join(",\n")));
    }
    made
}

/// A row's values; all but the key may be missing.
pub fn values(random: &mut Random, id: i32) -> String {
    let mut row = vec![id.to_string()];
    for (_, kind, _) in &COLUMNS[1..] {
        let value = match kind {
            _ if random.chance(18) => "NULL".to_owned(),
            Kind::Integer | Kind::Bigint => random.between(0, 4).to_string(),
            Kind::Numeric => format!("{}.{}5", random.between(-3, 9), random.between(0, 9)),
            Kind::Float => format!("{}.25", random.between(-3, 9)),
            Kind::Text => format!("'{}'", random.one(&["a", "b", "ab", "Bc", "", "c d", "10", "é"])),
            Kind::Bool => random.one(&["true", "false"]).to_owned(),
            Kind::Date => format!("'2024-0{}-1{}'", random.between(1, 9), random.between(0, 9)),
            _ => format!("'2024-02-2{} 1{}:30:00'", random.between(0, 9), random.between(0, 9)),
        };
        row.push(value);
    }
    row.join(", ")
}

/// The columns of what is called so.
fn columns_of(name: &str) -> Vec<Column> {
    COLUMNS.iter().map(|(column, kind, _)| Column { name: format!("{name}.{column}"), kind: *kind }).collect()
}

fn make(random: &mut Random, columns: &[Column], kind: Kind, depth: u32) -> String {
    Expressions { random, columns, bare: 0 }.make(kind, depth)
}

/// An expression of any type, whose text is the same for equal values.
fn output(random: &mut Random, columns: &[Column], depth: u32) -> String {
    let kind = KINDS[random.below(KINDS.len())];
    let made = make(random, columns, kind, depth);
    match kind {
        Kind::Numeric => format!("round({made}, 2)"),
        Kind::Interval => format!("({made})::text"),
        _ => made,
    }
}

fn outputs(random: &mut Random, columns: &[Column], depth: u32) -> String {
    let count = random.between(1, 3);
    (0..count).map(|at| format!("{} AS c{at}", output(random, columns, depth))).collect::<Vec<_>>().join(", ")
}

fn condition(random: &mut Random, columns: &[Column]) -> String {
    make(random, columns, Kind::Bool, 2)
}

fn filter(random: &mut Random, columns: &[Column], often: usize) -> String {
    if random.chance(often) { format!(" WHERE {}", condition(random, columns)) } else { String::new() }
}

fn table(random: &mut Random) -> usize {
    random.below(TABLES)
}

/// Constants, with and without parentheses.
pub fn expressions(random: &mut Random, count: usize) -> Vec<String> {
    let one = |_| {
        let kind = KINDS[random.below(KINDS.len())];
        let bare = if random.chance(50) { 100 } else { 0 };
        format!("SELECT {};", Expressions { random: &mut *random, columns: &[], bare }.make(kind, 3))
    };
    (0..count).map(one).collect()
}

/// Rows of one table.
pub fn rows(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = tables(random);
    for _ in 0..count {
        let from = table(random);
        let columns = columns_of("x");
        let outputs = outputs(random, &columns, 2);
        let distinct = if random.chance(20) { "DISTINCT " } else { "" };
        let filter = filter(random, &columns, 80);
        let mut query = format!("SELECT {distinct}{outputs} FROM t{from} AS x{filter}");
        if distinct.is_empty() && random.chance(40) {
            let way = random.one(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
            let by = random.one(&["x.a", "x.s", "x.d", "x.o", "x.a + x.b", "c0"]);
            query += &format!(" ORDER BY {by}{way}, x.id");
            if random.chance(60) {
                query += &format!(" LIMIT {} OFFSET {}", random.between(0, 6), random.between(0, 3));
            }
        }
        made.push(query + ";");
    }
    made
}

/// Joins of two to four tables. Returns what stands in FROM, and the names in it.
fn join(random: &mut Random) -> (String, Vec<Column>) {
    let count = random.between(2, 4);
    let mut from = format!("t{} AS j0", table(random));
    let mut columns = columns_of("j0");
    // Names that joins by name have merged, which are in each side once.
    let mut merged = false;
    for at in 1..count {
        let kind = random.one(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT JOIN"]);
        let (next, own) = (table(random), columns_of(&format!("j{at}")));
        let mut all = columns.clone();
        all.extend(own.iter().cloned());
        match random.below(6) {
            0 => from = format!("{from} CROSS JOIN t{next} AS j{at}"),
            1 if at == 1 => {
                let by = random.one(&["id", "a", "id, a", "s, id"]);
                from = format!("{from} {kind} t{next} AS j{at} USING ({by})");
                merged = true;
            }
            2 if at == 1 && !merged => {
                let picked = random.one(&["id, a, s AS s1", "a AS a, b AS b1, id AS id1", "id, n AS n1, o"]);
                from = format!("{from} NATURAL {kind} (SELECT {picked} FROM t{next}) AS j{at}");
                // What the other side has depends on what was picked.
                continue;
            }
            _ => {
                let left = &columns[random.below(columns.len())];
                let right = own.iter().find(|it| it.kind == left.kind).unwrap();
                let mut more = String::new();
                if at > 1 && random.chance(40) {
                    more = format!(" AND {}", of_several(random, &columns, &own));
                }
                if random.chance(30) && kind != "FULL JOIN" {
                    more += &format!(" AND {}", make(random, &all, Kind::Bool, 1));
                }
                from = format!("{from} {kind} t{next} AS j{at} ON {} = {}{more}", left.name, right.name);
            }
        }
        columns = all;
    }
    (from, columns)
}

/// An equality that names columns of several tables on one side, or of one and the next.
fn of_several(random: &mut Random, columns: &[Column], own: &[Column]) -> String {
    let numbers = |columns: &[Column]| -> Vec<String> {
        columns.iter().filter(|column| column.kind == Kind::Integer).map(|column| column.name.clone()).collect()
    };
    let (before, next) = (numbers(columns), numbers(own));
    let pick = |random: &mut Random, of: &[String]| of[random.below(of.len())].clone();
    let (one, two, other) = (pick(random, &before), pick(random, &before), pick(random, &next));
    match random.below(4) {
        0 => format!("{other} - {one} = {two}"),
        1 => format!("{other} = {one} - {two}"),
        2 => format!("coalesce({one}, {two}) = {other}"),
        _ => format!("{other} = {one} + {two}"),
    }
}

/// Joins of all kinds.
pub fn joins(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = tables(random);
    for _ in 0..count {
        let (from, columns) = join(random);
        let outputs = match random.below(10) {
            0 => "*".to_owned(),
            1 => "count(*), count(j0.id), sum(j0.a)".to_owned(),
            2 => "count(j0.id), bool_or(j0.id IS NULL)".to_owned(),
            3 => "j0.*".to_owned(),
            _ => outputs(random, &columns, 1),
        };
        // Products of four tables have some thousand rows.
        let mut filter = filter(random, &columns, 60);
        if filter.is_empty() && random.chance(30) {
            filter = format!(" WHERE {}", of_several(random, &columns, &columns_of("j0")));
        }
        made.push(format!("SELECT {outputs} FROM {from}{filter};"));
    }
    made
}

/// An aggregate.
fn aggregate(random: &mut Random, columns: &[Column]) -> String {
    let distinct = if random.chance(20) { "DISTINCT " } else { "" };
    let kind = PLAIN[random.below(PLAIN.len())];
    let made = match random.below(12) {
        0 | 1 => "count(*)".to_owned(),
        2 => format!("count({distinct}{})", make(random, columns, kind, 1)),
        3 => format!("sum({distinct}{})", make(random, columns, Kind::Integer, 1)),
        4 => format!("sum({distinct}{})", make(random, columns, Kind::Bigint, 1)),
        5 => {
            let sum = random.one(&["sum", "avg", "max", "min"]);
            format!("round({sum}({distinct}{}), 2)", make(random, columns, Kind::Numeric, 1))
        }
        6 if kind != Kind::Bool => format!("{}({})", random.one(&["min", "max"]), make(random, columns, kind, 1)),
        7 => format!("{}({})", random.one(&["bool_and", "bool_or", "every"]), make(random, columns, Kind::Bool, 1)),
        8 => {
            let of = make(random, columns, Kind::Text, 1);
            format!("string_agg({of}, ',' ORDER BY {of})")
        }
        9 => {
            let of = make(random, columns, kind, 1);
            format!("array_agg({distinct}{of} ORDER BY {of} DESC)")
        }
        10 => {
            let name = random.one(&["stddev", "variance", "var_pop", "stddev_samp"]);
            format!("round({name}({}), 3)", make(random, columns, Kind::Integer, 1))
        }
        _ => format!("avg({distinct}{})", make(random, columns, Kind::Integer, 1)),
    };
    if random.chance(20) && !made.starts_with("round") {
        return format!("{made} FILTER (WHERE {})", make(random, columns, Kind::Bool, 1));
    }
    made
}

/// Aggregates, grouped by columns, expressions and sets of them.
pub fn aggregates(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = tables(random);
    for _ in 0..count {
        let (from, columns) =
            if random.chance(30) { join(random) } else { (format!("t{} AS j0", table(random)), columns_of("j0")) };
        let keys: Vec<String> = (0..random.between(1, 3))
            .map(|_| {
                if random.chance(60) {
                    random.one(&["j0.a", "j0.s", "j0.o", "j0.b", "j0.id"]).to_owned()
                } else {
                    let kind = PLAIN[random.below(PLAIN.len())];
                    let key = make(random, &columns, kind, 1);
                    // Constants are no keys.
                    if key.contains("j0.") && !key.starts_with('(') { key } else { "j0.d".to_owned() }
                }
            })
            .collect();
        let list = keys.join(", ");
        let grouping = match random.below(7) {
            0 => String::new(),
            1 => format!(" GROUP BY ROLLUP ({list})"),
            2 => format!(" GROUP BY CUBE ({list})"),
            3 => format!(" GROUP BY GROUPING SETS (({list}), ({}), ())", keys[0]),
            4 if keys.len() > 1 => format!(" GROUP BY {}, ROLLUP ({})", keys[0], keys[1..].join(", ")),
            _ => format!(" GROUP BY {list}"),
        };
        let mut outputs: Vec<String> = Vec::new();
        if !grouping.is_empty() {
            outputs.extend(keys.iter().filter(|_| random.chance(80)).cloned());
            if grouping.contains("ROLLUP") || grouping.contains("CUBE") || grouping.contains("SETS") {
                outputs.push(format!("grouping({})", keys[0]));
            }
        }
        for _ in 0..random.between(1, 3) {
            outputs.push(aggregate(random, &columns));
        }
        let filter = filter(random, &columns, 40);
        let having = match random.below(6) {
            0 => " HAVING count(*) > 1".to_owned(),
            1 => format!(" HAVING {} IS NOT NULL", aggregate(random, &columns)),
            _ => String::new(),
        };
        made.push(format!("SELECT {} FROM {from}{filter}{grouping}{having};", outputs.join(", ")));
    }
    made
}

/// Windows.
pub fn windows(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = tables(random);
    for _ in 0..count {
        let columns = columns_of("w");
        let partition = if random.chance(60) {
            format!("PARTITION BY {} ", random.one(&["w.a", "w.s", "w.o, w.a", "w.b % 2"]))
        } else {
            String::new()
        };
        // Peers have the same value where the order decides about a frame only.
        let (order, is_total) = match random.below(4) {
            0 => (format!("ORDER BY w.a{}", random.one(&["", " DESC", " NULLS FIRST"])), false),
            1 => ("ORDER BY w.s DESC, w.id".to_owned(), true),
            _ => (format!("ORDER BY w.id{}", random.one(&["", " DESC"])), true),
        };
        let mode =
            if is_total { random.one(&["ROWS", "ROWS", "GROUPS", "RANGE"]) } else { random.one(&["RANGE", "GROUPS"]) };
        let by_one_number = order == "ORDER BY w.id" || order == "ORDER BY w.id DESC" || order == "ORDER BY w.a";
        let frame = if mode == "RANGE" && !by_one_number {
            random
                .one(&["", "RANGE UNBOUNDED PRECEDING", "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"])
                .to_owned()
        } else {
            let first = random.one(&["UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW"]);
            let last = random.one(&["CURRENT ROW", "1 FOLLOWING", "3 FOLLOWING", "UNBOUNDED FOLLOWING"]);
            format!("{mode} BETWEEN {first} AND {last}")
        };
        let number = make(random, &columns, Kind::Integer, 1);
        let function = match random.below(10) {
            0 if is_total => "row_number()".to_owned(),
            1 => "rank()".to_owned(),
            2 => "dense_rank()".to_owned(),
            3 if is_total => format!("lag({number}, {})", random.between(0, 3)),
            4 if is_total => format!("lead({number}, 1, -7)"),
            5 if is_total => {
                let name = random.one(&["first_value", "last_value"]);
                format!("{name}({number})")
            }
            6 if is_total => format!("nth_value({number}, 2)"),
            7 if is_total => format!("ntile({})", random.between(1, 4)),
            8 => "count(*)".to_owned(),
            _ => format!("{}({number})", random.one(&["sum", "min", "max", "avg", "count"])),
        };
        let from = table(random);
        let filter = filter(random, &columns, 30);
        made.push(match random.below(3) {
            0 => format!("SELECT w.id, {function} OVER v FROM t{from} AS w{filter} WINDOW v AS ({partition}{order} {frame});"),
            1 => format!("SELECT w.id, {function} OVER ({partition}{order} {frame}) AS x FROM t{from} AS w{filter} ORDER BY x, w.id;"),
            _ => format!("SELECT w.id, {function} OVER ({partition}{order} {frame}) FROM t{from} AS w{filter};"),
        });
    }
    made
}

/// Subqueries: in expressions, in FROM, correlated and not.
pub fn subqueries(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = tables(random);
    for _ in 0..count {
        let (outer, inner) = (table(random), table(random));
        let mut both = columns_of("o");
        both.extend(columns_of("i"));
        let own = columns_of("o");
        let test = if random.chance(70) {
            let column = random.one(&["a", "id", "b", "s"]);
            format!("i.{column} = o.{column}")
        } else {
            make(random, &both, Kind::Bool, 1)
        };
        let not = if random.chance(40) { "NOT " } else { "" };
        let column = random.one(&["a", "id", "b"]);
        let query = match random.below(10) {
            0 => format!("SELECT o.id, (SELECT max(i.{column}) FROM t{inner} AS i WHERE {test}) FROM t{outer} AS o"),
            1 => format!("SELECT o.id FROM t{outer} AS o WHERE {not}EXISTS (SELECT FROM t{inner} AS i WHERE {test})"),
            2 => format!(
                "SELECT o.id FROM t{outer} AS o WHERE o.{column} {not}IN (SELECT i.{column} FROM t{inner} AS i WHERE {test})"
            ),
            3 => format!(
                "SELECT o.id FROM t{outer} AS o WHERE o.{column} {not}IN (SELECT i.{column} FROM t{inner} AS i)"
            ),
            4 => {
                let operator = random.one(&["= ANY", "<> ALL", "< ANY", ">= ALL", "<= SOME"]);
                format!(
                    "SELECT o.id FROM t{outer} AS o WHERE o.{column} {operator} (SELECT i.{column} FROM t{inner} AS i WHERE {test})"
                )
            }
            5 => {
                let kind = random.one(&["CROSS JOIN LATERAL", "INNER JOIN LATERAL"]);
                let on = if kind.starts_with("INNER") { " ON true" } else { "" };
                let value = make(random, &both, Kind::Integer, 1);
                format!(
                    "SELECT o.id, l.* FROM t{outer} AS o {kind} (SELECT i.id AS x, {value} AS y FROM t{inner} AS i WHERE {test} ORDER BY i.id LIMIT {}) AS l{on}",
                    random.between(1, 3)
                )
            }
            6 => {
                let aggregate = aggregate(random, &columns_of("i"));
                format!(
                    "SELECT o.id, l.x FROM t{outer} AS o, LATERAL (SELECT {aggregate} AS x FROM t{inner} AS i WHERE {test}) AS l"
                )
            }
            7 => format!(
                "SELECT q.c0, count(*) FROM (SELECT {} FROM t{outer} AS o{}) AS q GROUP BY q.c0",
                outputs(random, &own, 1),
                filter(random, &own, 50)
            ),
            8 => format!(
                "SELECT o.id, ARRAY(SELECT i.id FROM t{inner} AS i WHERE {test} ORDER BY i.id) FROM t{outer} AS o"
            ),
            _ => format!(
                "SELECT o.a, sum((SELECT count(*) FROM t{inner} AS i WHERE {test})) FROM t{outer} AS o GROUP BY o.a"
            ),
        };
        made.push(query + ";");
    }
    made
}

/// A query with a column of each of these types, to be combined with others.
fn simple(random: &mut Random, kinds: &[Kind]) -> String {
    if random.chance(15) {
        let row = |random: &mut Random| {
            let values: Vec<String> = kinds.iter().map(|&kind| make(random, &[], kind, 0)).collect();
            format!("({})", values.join(", "))
        };
        return format!("VALUES {}, {}", row(random), row(random));
    }
    let columns = columns_of("q");
    let list: Vec<String> = kinds.iter().map(|&kind| make(random, &columns, kind, 1)).collect();
    format!("SELECT {} FROM t{} AS q{}", list.join(", "), table(random), filter(random, &columns, 40))
}

fn combined(random: &mut Random, kinds: &[Kind], depth: u32) -> String {
    if depth == 0 || random.chance(20) {
        return simple(random, kinds);
    }
    let operator = random.one(&["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]);
    let (left, right) = (combined(random, kinds, depth - 1), combined(random, kinds, depth - 1));
    // Without parentheses INTERSECT comes first.
    match random.below(3) {
        0 => format!("{left} {operator} {right}"),
        1 => format!("({left}) {operator} {right}"),
        _ => format!("({left}) {operator} ({right})"),
    }
}

fn kinds(random: &mut Random) -> Vec<Kind> {
    (0..random.between(1, 2)).map(|_| PLAIN[random.below(PLAIN.len())]).collect()
}

/// Set operations.
pub fn sets(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = tables(random);
    for _ in 0..count {
        let kinds = kinds(random);
        let mut query = combined(random, &kinds, 2);
        if random.chance(30) {
            let list: Vec<String> = (1..=kinds.len()).map(|at| at.to_string()).collect();
            query += &format!(" ORDER BY {} LIMIT {}", list.join(", "), random.between(1, 9));
        }
        made.push(query + ";");
    }
    made
}

/// WITH, recursive and not.
pub fn with(random: &mut Random, count: usize) -> Vec<String> {
    let mut made = tables(random);
    for _ in 0..count {
        let all = if random.chance(50) { "ALL " } else { "" };
        let (from, other, last) = (table(random), table(random), random.between(2, 7));
        let materialized = random.one(&["", "", "MATERIALIZED ", "NOT MATERIALIZED "]);
        let own = columns_of("x");
        let step = make(random, &[Column { name: "r.n".to_owned(), kind: Kind::Integer }], Kind::Text, 1);
        let query = match random.below(8) {
            0 => {
                let kinds = kinds(random);
                let names = ["p", "q"][..kinds.len()].join(", ");
                format!(
                    "WITH w ({names}) AS {materialized}({}) SELECT {names}, count(*) FROM w GROUP BY {names}",
                    combined(random, &kinds, 1)
                )
            }
            1 => format!(
                "WITH v AS (SELECT x.id, {} FROM t{from} AS x{}), w AS {materialized}(SELECT v.*, v.id % 2 AS h FROM v) \
                 SELECT one.id, two.c0 FROM w AS one JOIN w AS two ON one.h = two.h AND one.id <> two.id",
                outputs(random, &own, 1),
                filter(random, &own, 30)
            ),
            2 => format!(
                "WITH RECURSIVE r (n, s) AS (SELECT 1, 'x'::text UNION {all}SELECT r.n + 1, {step} FROM r WHERE r.n < {last}) SELECT * FROM r"
            ),
            3 => format!(
                "WITH RECURSIVE r (id, depth) AS (SELECT x.id, 0 FROM t{from} AS x WHERE x.a = {} UNION {all}\
                 SELECT y.id, r.depth + 1 FROM r JOIN t{other} AS y ON y.a = r.id WHERE r.depth < {last}) \
                 SELECT depth, count(*), min(id) FROM r GROUP BY depth",
                last - 2
            ),
            4 => format!(
                "WITH RECURSIVE r (n) AS (SELECT 0 UNION {all}SELECT (r.n + y.a) % 9 FROM r, t3 AS y WHERE r.n < {last} AND y.a > 0) \
                 SELECT count(*), sum(n) FROM (SELECT * FROM r LIMIT 1000) AS l"
            ),
            5 => format!(
                "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT s.n + 1 FROM (WITH i AS (SELECT * FROM r) \
                 SELECT i.n FROM i) AS s WHERE s.n < {last}) SELECT * FROM r WHERE n % 2 = {}",
                random.between(0, 1)
            ),
            6 => format!(
                "WITH RECURSIVE r (n) AS (SELECT {last} UNION {all}SELECT r.n - 1 FROM r WHERE r.n > 0), \
                 w AS (SELECT r.n, x.id FROM r LEFT JOIN t{from} AS x ON x.a = r.n) SELECT n, count(id) FROM w GROUP BY n ORDER BY n"
            ),
            _ => format!(
                "SELECT x.id, (WITH w AS (SELECT y.a FROM t{other} AS y WHERE y.id = x.id) SELECT count(*) FROM w) FROM t{from} AS x"
            ),
        };
        made.push(query + ";");
    }
    made
}
