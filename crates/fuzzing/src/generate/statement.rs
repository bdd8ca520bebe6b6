//! Statements that are nearly right.

use freshet_sql::functions::{self, Function};

use super::{
    Random, corpus,
    hostile::{self, EXPRESSIONS},
    mutate,
};

/// Makes statements from a corpus.
#[derive(Debug)]
pub struct Statements {
    seeds: Vec<Vec<String>>,
    dictionary: Vec<String>,
    functions: Vec<&'static Function>,
}

impl Default for Statements {
    fn default() -> Self {
        Self::new()
    }
}

impl Statements {
    /// From the corpus of this crate.
    pub fn new() -> Self {
        let seeds: Vec<_> = corpus::statements().iter().map(|sql| mutate::tokens(sql)).collect();
        let mut dictionary: Vec<String> = seeds.iter().flatten().cloned().collect();
        dictionary.sort();
        dictionary.dedup();
        Self { seeds, dictionary, functions: functions::registered().collect() }
    }

    /// One of the seeds as it is; nothing when there are less.
    pub fn seed(&self, number: usize) -> Option<String> {
        self.seeds.get(number).map(|tokens| tokens.join(" "))
    }

    /// The next statement.
    pub fn next(&self, random: &mut Random) -> Vec<u8> {
        let mut sql = match random.below(10) {
            0..=2 => function_call(self.functions[random.below(self.functions.len())], random),
            3 => format!("SELECT {} FROM t", random.of(EXPRESSIONS)),
            4 => nested(random),
            _ => {
                let mut tokens = self.seeds[random.below(self.seeds.len())].clone();
                if random.once_in(8) {
                    // Two, cut and put together.
                    let other = &self.seeds[random.below(self.seeds.len())];
                    tokens.truncate(random.below(tokens.len()));
                    tokens.extend_from_slice(&other[random.below(other.len())..]);
                }
                for _ in 0..random.count(6) {
                    mutate::change(&mut tokens, &self.dictionary, random);
                }
                tokens.join(" ")
            }
        }
        .into_bytes();
        sql.truncate(1 << 20);
        if random.once_in(15) {
            for _ in 0..random.count(8) {
                mutate::bytes(&mut sql, random);
            }
        }
        sql
    }
}

/// A call of a function, or an operator, with hard arguments; over a table's rows so that nothing
/// is computed beforehand, or not.
pub fn function_call(function: &Function, random: &mut Random) -> String {
    let mut arguments: Vec<String> = function.arguments.iter().map(|kind| hostile::value(*kind, random)).collect();
    if function.variadic {
        let last = function.arguments.last().copied();
        let more = random.below(4);
        arguments.extend(last.into_iter().flat_map(|kind| vec![kind; more]).map(|kind| hostile::value(kind, random)));
    }
    if random.once_in(30) {
        arguments.pop();
    }
    let call = match (function.is_operator(), arguments.as_slice()) {
        (true, [one]) => format!("{} ({one})", function.name),
        (true, [one, other]) => format!("({one}) {} ({other})", function.name),
        _ => format!("{}({})", function.name, arguments.join(", ")),
    };
    match random.below(6) {
        0 => format!("SELECT {call} FROM t"),
        1 => format!("SELECT {call} FROM t a LEFT JOIN t b ON a.id = b.id"),
        2 => format!("SELECT * FROM {call} x"),
        3 => format!("INSERT INTO t1 (b) SELECT ({call})::text"),
        _ => format!("SELECT {call}"),
    }
}

/// Something within itself, as deep as it goes and deeper; or one after another, many times.
pub fn nested(random: &mut Random) -> String {
    let depth = [3, 20, 45, 60, 100, 190, 250, 1000, 4000, 20_000, 100_000][random.below(11)];
    let (before, core, after) = *random.of(&[
        &("(", "1", ")"),
        &("(SELECT ", "1", ")"),
        &("abs(", "1", ")"),
        &("coalesce(1, ", "2", ")"),
        &("- ", "1", ""),
        &("NOT ", "true", ""),
        &("CASE WHEN true THEN ", "1", " END"),
        &("ARRAY[", "1", "]"),
        &("CAST(", "1", " AS int)"),
        &("1 + (", "1", ")"),
        &("EXISTS (SELECT ", "1", ")"),
        &("1 IN (", "1", ")"),
        &("ROW(", "1", ")"),
        &("(SELECT * FROM ", "t", ") x"),
        &("(", "t", ")"),
        &("", "1", "::int"),
        &("", "'{1}'::int[]", "[1]"),
        &("", "'[1]'::jsonb", " -> 0"),
        &("", "a", " IS NULL"),
        &("", "b", " COLLATE \"C\""),
        &("", "a", " + 1"),
        &("", "a = 1", " AND a = 1"),
        &("", "a = 1", " OR a = 1"),
        &("", "a", " IN (1)"),
        &("", "a", ", a"),
        &("", "1", " UNION ALL SELECT 1"),
        &("", "1", " UNION SELECT 1"),
        &("", "now()", " AT TIME ZONE 'UTC'"),
        &("", "t", ".t"),
        &("", "'x'", " LIKE 'x'"),
        &("", "a", " BETWEEN 1 AND 2"),
        &("", "1", "; SELECT 1"),
        &("", "1", " CROSS JOIN t"),
        &("a + ", "1", ""),
        &("a = 1 AND ", "true", ""),
        &("NOT a = 1 OR ", "true", ""),
        &("CASE a WHEN ", "1", " THEN 1 END"),
        &("CASE WHEN true THEN 1 ELSE ", "1", " END"),
    ]);
    let inner = format!("{}{core}{}", before.repeat(depth), after.repeat(depth));
    match random.below(8) {
        0 => format!("SELECT * FROM {inner}"),
        1 => format!("SELECT {inner} FROM t"),
        2 => format!("SELECT a FROM t WHERE {inner}"),
        3 => format!("INSERT INTO t (a) VALUES ({inner})"),
        4 => format!("UPDATE t SET a = {inner} WHERE id = 1"),
        5 => format!("SELECT * FROM t x, t y WHERE x.a = y.a AND {inner}"),
        6 => format!("CREATE VIEW deep AS SELECT {inner} AS c FROM t; SELECT * FROM deep"),
        _ => format!("SELECT {inner}"),
    }
}
