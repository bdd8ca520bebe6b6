//! Expressions and what PostgreSQL makes of them.
//!
//! The files in `tests/postgresql` have one expression per line, its type, and its result as text,
//! as PostgreSQL 15 computed them; for an error, SQLSTATE and message. Fields are separated by tabs
//! and escaped as in COPY. They are made by `tests/postgresql/expect.sh` from the expressions
//! alone; only `deviations.txt` is written by hand.

mod support;

/// Undoes COPY's escapes.
fn unescape(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut characters = field.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        out.push(match characters.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('v') => '\u{b}',
            Some(other) => other,
            None => '\\',
        });
    }
    out
}

/// Evaluates all expressions of a file, and compares.
fn check(file: &str) {
    let context = support::context();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [expression, kind, result] = fields[..] else { panic!("no three fields: {line}") };
        let expression = unescape(expression);
        let expected = (unescape(kind), (result != "\\N").then(|| unescape(result)));
        let found = match support::evaluate(&expression, &context) {
            // A literal whose type stays unknown is text in the end.
            Ok((ty, text)) if ty == freshet_sql::Type::UNKNOWN => ("text".to_owned(), text),
            Ok((ty, text)) => (ty.kind().sql_name().to_owned(), text),
            Err(error) => (format!("!{}", error.state), Some(error.message.to_string())),
        };
        if found != expected {
            wrong.push(format!("{expression}\n    expected {expected:?}\n    found    {found:?}"));
        }
        count += 1;
    }
    assert!(count > 3, "there are only {count} expressions");
    assert!(wrong.is_empty(), "{} of {count} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

macro_rules! files {
    ($($name:ident)+) => {$(
        #[test]
        fn $name() {
            check(include_str!(concat!("postgresql/", stringify!($name), ".txt")));
        }
    )+};
}

files! { numbers strings datetime json arrays patterns functions random input deviations }
