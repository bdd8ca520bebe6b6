//! Queries whose results were recorded from PostgreSQL 15.
//!
//! `corpus/*.out` are written by `corpus/record.sh`: after each query, its columns with their types
//! and its rows, or the error. What is known to differ is listed in `corpus/differences`, with the
//! reason.

use std::{collections::HashMap, fmt::Write as _, fs, path::Path};

use freshet_sql::SqlState;

use crate::support::{Database, parse_query, print, run_query};

/// An answer as it is written down: columns and rows, or an error.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    columns: Vec<String>,
    rows: Vec<String>,
    error: Option<String>,
}

/// A type without its modifier: where PostgreSQL keeps it is another matter.
fn without_modifier(column: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    for character in column.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth > 0 => {}
            _ => out.push(character),
        }
    }
    out
}

fn recorded(text: &str) -> Vec<(String, Answer)> {
    let mut answers: Vec<(String, Answer)> = Vec::new();
    for line in text.lines() {
        if let Some(query) = line.strip_prefix("> ") {
            answers.push((query.to_owned(), Answer { columns: Vec::new(), rows: Vec::new(), error: None }));
            continue;
        }
        let answer = &mut answers.last_mut().expect("a query comes first").1;
        match line.split_at(2) {
            (": ", column) => answer.columns.push(without_modifier(column)),
            ("= ", row) => answer.rows.push(row.to_owned()),
            ("! ", error) => answer.error = Some(error.to_owned()),
            _ => panic!("{line}"),
        }
    }
    answers
}

fn asked(database: &std::sync::Arc<dyn freshet_sql::general::Relations>, query: &str) -> Answer {
    let none = Answer { columns: Vec::new(), rows: Vec::new(), error: None };
    let parsed = match parse_query(query.trim_end_matches(';')) {
        Ok(parsed) => parsed,
        Err(error) => return Answer { error: Some(format!("{} {error}", SqlState::SYNTAX_ERROR)), ..none },
    };
    match run_query(database, &parsed, &[]) {
        Ok((columns, rows)) => {
            let mut lines = Vec::new();
            for row in &rows {
                let values: Vec<_> = row.iter().zip(&columns).map(|(value, column)| print(value, column.ty)).collect();
                lines.extend(values.join("|").split('\n').map(str::to_owned));
            }
            let columns =
                columns.iter().map(|column| without_modifier(&format!("{}|{}", column.name, column.ty))).collect();
            Answer { columns, rows: lines, error: None }
        }
        Err(error) => Answer { error: Some(format!("{} {}", error.state, error.message)), ..none },
    }
}

/// Whether an answer is the recorded one: rows in order if there is one, errors by their state.
fn agrees(query: &str, recorded: &Answer, asked: &Answer) -> bool {
    match (&recorded.error, &asked.error) {
        (Some(one), Some(two)) => one.get(..5) == two.get(..5),
        (None, None) => {
            let ordered = query.to_ascii_lowercase().contains("order by");
            let sorted = |rows: &[String]| {
                let mut rows = rows.to_vec();
                if !ordered {
                    rows.sort();
                }
                rows
            };
            recorded.columns == asked.columns && sorted(&recorded.rows) == sorted(&asked.rows)
        }
        _ => false,
    }
}

#[test]
fn answers_are_those_of_postgresql() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/general");
    let database = Database::of(&fs::read_to_string(folder.join("fixture.sql")).unwrap());
    let differences = fs::read_to_string(folder.join("corpus/differences")).unwrap();
    let mut known: HashMap<&str, bool> = differences
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| (line, false))
        .collect();
    let mut files: Vec<_> = fs::read_dir(folder.join("corpus")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "out"));
    files.sort();
    assert!(!files.is_empty());
    let (mut count, mut failures) = (0, String::new());
    for file in files {
        for (query, recorded) in recorded(&fs::read_to_string(&file).unwrap()) {
            count += 1;
            let asked = asked(&database, &query);
            let differs = known.get_mut(query.as_str());
            match (agrees(&query, &recorded, &asked), differs) {
                (true, None) => {}
                (false, Some(seen)) => *seen = true,
                (true, Some(_)) => writeln!(failures, "no longer differs: {query}").unwrap(),
                (false, None) => writeln!(failures, "{query}\n  recorded {recorded:?}\n  asked    {asked:?}").unwrap(),
            }
        }
    }
    for (query, seen) in known {
        if !seen {
            writeln!(failures, "is not asked, or no longer differs: {query}").unwrap();
        }
    }
    assert!(failures.is_empty(), "of {count} queries:\n{failures}");
}
