//! Statements whose answers are compared with those of PostgreSQL 15.
//!
//! Each file `differential/*.sql` is run in a schema of its own, on Freshet and on a PostgreSQL
//! that the test starts, as simple queries. Both must say the same: names of columns, oids of their
//! types, rows as text, command tags, the state of the transaction, the SQLSTATE of an error, and
//! the table, column and constraint that it concerns. The order of rows counts where the statement
//! has an ORDER BY outside of all parentheses, or fetches from a cursor.
//!
//! A statement ends with `;` at the end of a line. Statements within a line are one query. Lines
//! after COPY … FROM STDIN are its data, up to `\.`. Between statements, `--` begins a comment.
//!
//! `differential/differences.txt` lists what differs, below the sentence of docs/sql.md that says
//! so. A sentence that is not there fails the test, and so does a difference that is no longer.
//!
//!     FRESHET_DIFFERENTIAL=numbers,joins cargo test -p freshet-query --test main ::files
//!
//! runs two of the files. Other statements are generated, from a seed that is printed:
//!
//!     FRESHET_SEED=7 FRESHET_DIFFERENTIAL=joins cargo test -p freshet-query --test main generated
//!
//! generates, with FRESHET_FACTOR=10 ten times as many as otherwise, from seed 7, about one of the
//! topics. What a generated statement finds belongs into a file, when it is mended.

#[path = "differential/generate/mod.rs"]
pub mod generate;
#[path = "differential/text.rs"]
mod text;

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::PathBuf, time::Instant};

use crate::common::{
    SqlNode,
    judge::Judge,
    wire::{Answer, Part, Wire},
};
use freshet_testing::{Missing, skip};
use text::{Statement, is_ordered, normal, statements};

/// The least oid that PostgreSQL gives to what is not its own.
const FIRST_OWN_OID: u32 = 16_384;

/// Sessions with both servers.
struct Pair {
    freshet: Wire,
    postgresql: Wire,
}

impl Pair {
    /// Opens them, with a new schema of this name as the first in the search path.
    fn open(node: &SqlNode, judge: &Judge, schema: &str) -> Self {
        let mut pair = Self { freshet: Wire::tcp(node.address()), postgresql: Wire::unix(&judge.socket()) };
        for sql in [
            format!("CREATE SCHEMA {schema}"),
            format!("SET search_path = {schema}, public"),
            "SET statement_timeout = '60s'".to_owned(),
        ] {
            let (ours, theirs) = pair.ask(&sql, "");
            assert!(ours.state().is_none() && theirs.state().is_none(), "{sql}: {ours}, {theirs}");
        }
        pair
    }

    /// Asks both at once. Returns what Freshet says, and PostgreSQL.
    fn ask(&mut self, sql: &str, data: &str) -> (Answer, Answer) {
        self.freshet.ask(sql, data);
        self.postgresql.ask(sql, data);
        (self.freshet.answer(), self.postgresql.answer())
    }

    /// PostgreSQL's answer, and Freshet's if it differs. A transaction that only one of them is in
    /// then is ended.
    fn compared(&mut self, statement: &Statement) -> (Answer, Option<Answer>) {
        let (mut ours, mut theirs) = self.ask(&statement.sql, &statement.data);
        if !is_ordered(&statement.sql) {
            ours.sort();
            theirs.sort();
        }
        if ours.status != theirs.status {
            self.ask("ROLLBACK", "");
        }
        let differs = comparable(&ours) != comparable(&theirs);
        (theirs, differs.then_some(ours))
    }
}

/// What of an answer is compared.
fn comparable(answer: &Answer) -> (Vec<Part>, char) {
    let mut parts = answer.parts.clone();
    for part in &mut parts {
        match part {
            Part::Failed { message, .. } => message.clear(),
            Part::Columns(columns) => {
                for column in columns {
                    if column.kind >= FIRST_OWN_OID {
                        column.kind = FIRST_OWN_OID;
                    }
                }
            }
            _ => {}
        }
    }
    // Rows that came before an error, and their columns, are for nobody.
    if answer.state().is_some() {
        parts.retain(|part| matches!(part, Part::Done(_) | Part::Failed { .. }));
    }
    (parts, answer.status)
}

/// Both servers, or why there is no PostgreSQL.
fn servers(what: &str) -> Option<(SqlNode, Judge)> {
    match Judge::start() {
        Ok(judge) => Some((SqlNode::in_memory(), judge)),
        Err(why) => {
            skip(Missing::Tool, what, why);
            None
        }
    }
}

/// Where the files are.
fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/differential")
}

/// The known differences: statements, each with the sentence that says so.
fn known_differences() -> BTreeMap<String, String> {
    let listed = fs::read_to_string(directory().join("differences.txt")).unwrap();
    let documented = directory().join("../../../../docs/sql.md");
    let documented = normal(&fs::read_to_string(documented).unwrap());
    let mut known = BTreeMap::new();
    for group in listed.split("\n= ").skip(1) {
        let (sentence, rest) = group.split_once('\n').unwrap_or((group, ""));
        assert!(documented.contains(&normal(sentence)), "docs/sql.md does not say: {sentence}");
        for statement in statements(rest) {
            let before = known.insert(normal(&statement.sql), sentence.to_owned());
            assert!(before.is_none(), "listed twice: {}", statement.sql);
        }
    }
    known
}

#[test]
fn files_are_answered_as_by_postgresql() {
    let chosen = chosen();
    let mut files: Vec<PathBuf> = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "sql"));
    files.sort();
    let name = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().into_owned();
    files.retain(|file| is_chosen(chosen.as_deref(), &name(file)));
    assert!(!files.is_empty(), "no files in {}", directory().display());
    let mut known = known_differences();
    let Some((node, judge)) = servers("statements as PostgreSQL answers them") else { return };
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files {
        let (begun, name) = (Instant::now(), name(&file));
        let mut pair = Pair::open(&node, &judge, &format!("of_{name}"));
        let found = statements(&fs::read_to_string(&file).unwrap());
        for statement in &found {
            let (theirs, difference) = pair.compared(statement);
            let is_known = known.remove(&normal(&statement.sql));
            let (line, sql) = (statement.line, &statement.sql);
            match (difference, is_known) {
                (Some(ours), None) => {
                    wrong.push(format!("{name}.sql:{line}: {sql}\n    Freshet:    {ours}\n    PostgreSQL: {theirs}"));
                }
                (None, Some(sentence)) => wrong.push(format!(
                    "{name}.sql:{line}: {sql}\n    is as in PostgreSQL now, but differences.txt has it for: {sentence}"
                )),
                _ => {}
            }
        }
        println!("{name}: {} statements, {:?}", found.len(), begun.elapsed());
        count += found.len();
    }
    if chosen.is_none() {
        wrong.extend(known.keys().map(|sql| format!("differences.txt has what is in no file: {sql}")));
    }
    println!("{count} statements");
    report(&wrong);
}

/// The files or topics that the environment chooses, if it chooses.
fn chosen() -> Option<String> {
    env::var("FRESHET_DIFFERENTIAL").ok()
}

fn is_chosen(chosen: Option<&str>, name: &str) -> bool {
    chosen.is_none_or(|chosen| chosen.split(',').any(|it| it == name))
}

/// A number of the environment.
fn number(variable: &str, otherwise: u64) -> u64 {
    env::var(variable).map_or(otherwise, |it| it.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[test]
fn generated_statements_are_answered_as_by_postgresql() {
    let (seed, factor) = (number("FRESHET_SEED", 1), number("FRESHET_FACTOR", 1));
    println!("FRESHET_SEED={seed}");
    let chosen = chosen();
    let Some((node, judge)) = servers("generated statements as PostgreSQL answers them") else { return };
    let (mut all, mut wrong) = (0, Vec::new());
    for (name, count, make) in generate::TOPICS {
        if !is_chosen(chosen.as_deref(), name) {
            continue;
        }
        let begun = Instant::now();
        let mut random = generate::random::Random::new(seed, name);
        let made = make(&mut random, count * usize::try_from(factor).unwrap());
        let mut pair = Pair::open(&node, &judge, &format!("for_{name}"));
        let mut failed = 0;
        for sql in &made {
            let statement = Statement { sql: sql.clone(), ..Statement::default() };
            let (theirs, difference) = pair.compared(&statement);
            failed += usize::from(theirs.state().is_some());
            if let Some(ours) = difference {
                wrong.push(format!("{name}: {sql}\n    Freshet:    {ours}\n    PostgreSQL: {theirs}"));
            }
        }
        println!("{name}: {} statements, {failed} of them in error, {:?}", made.len(), begun.elapsed());
        assert!(failed * 10 < made.len() * 9, "most statements about {name} fail");
        all += made.len();
    }
    println!("{all} statements");
    report(&wrong);
}

/// Fails with what differs.
fn report(wrong: &[String]) {
    let mut text = String::new();
    for difference in wrong {
        writeln!(text, "{difference}").unwrap();
    }
    assert!(wrong.is_empty(), "{} answers differ:\n{text}", wrong.len());
}
