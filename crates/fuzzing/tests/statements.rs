//! Whatever a statement says, the server stands it: statements of clients, changed at random, and
//! calls of every function. docs/testing.md says how to run this for longer.

mod search;

use freshet_fuzzing::{
    Case,
    generate::{Statements, from_grammar},
};

#[test]
fn changed_statements() {
    let statements = Statements::new();
    let mut search = search::Search::begin("statements");
    while search.goes_on() {
        let data = statements.next(&mut search.random);
        search.case(&data, Case::statements);
    }
}

/// Statements and values from grammars: partial indexes, options, cursors, values of types.
#[test]
fn statements_of_grammars() {
    let mut search = search::Search::begin("grammars");
    while search.goes_on() {
        let data = from_grammar(&mut search.random);
        search.case(&data, Case::statements);
    }
}

/// As they are. Most of them succeed, or the corpus is not about what there is in the database.
#[test]
fn unchanged_statements() {
    let statements = Statements::new();
    let mut case = Case::new();
    let (mut all, mut fine) = (0, 0);
    while let Some(sql) = statements.seed(all) {
        all += 1;
        fine += usize::from(case.statements(sql.as_bytes()).is_empty());
    }
    println!("{fine} of {all} succeed");
    assert!(fine * 4 > all, "{fine} of {all} succeed");
}
