//! Files of statements.

/// A query of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// The line in which it begins, from 1 on.
    pub line: usize,
    pub sql: String,
    /// What COPY from the client gets.
    pub data: String,
}

/// The statements of a file. Each ends with `;` at the end of a line.
///
/// # Panics
/// When the last one does not end.
pub fn statements(text: &str) -> Vec<Statement> {
    let mut found = Vec::new();
    let mut current = Statement::default();
    // Carriage returns are a part of data.
    let mut lines = text.split_terminator('\n').enumerate();
    while let Some((number, line)) = lines.next() {
        if current.sql.is_empty() {
            if line.trim().is_empty() || line.trim_start().starts_with("--") {
                continue;
            }
            current.line = number + 1;
        } else {
            current.sql.push('\n');
        }
        current.sql += line;
        if !line.trim_end().ends_with(';') {
            continue;
        }
        let words = normal(&current.sql).to_uppercase();
        if words.starts_with("COPY ") && words.contains(" FROM STDIN") {
            for (_, line) in lines.by_ref().take_while(|(_, line)| *line != "\\.") {
                current.data += line;
                current.data.push('\n');
            }
        }
        found.push(std::mem::take(&mut current));
    }
    assert!(current.sql.is_empty(), "a statement does not end: {}", current.sql);
    found
}

/// A text with single blanks between its words.
pub fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the order of a statement's rows counts: it has ORDER BY outside of all parentheses and
/// quotes, or fetches from a cursor, or explains.
pub fn is_ordered(sql: &str) -> bool {
    let mut outside = String::new();
    let (mut depth, mut quote) = (0_u32, None);
    for sign in sql.chars() {
        match (quote, sign) {
            (Some(open), _) if open == sign => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(sign),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, _) if depth == 0 => outside.extend(sign.to_lowercase()),
            (None, _) => {}
        }
    }
    let outside = normal(&outside);
    outside.contains("order by") || outside.split([' ', ';']).any(|word| word == "fetch" || word == "explain")
}

#[test]
fn files_are_taken_apart() {
    let text = "-- About\nSELECT 1;\n\nSELECT ';',\n  2; SELECT 3;\nCOPY t\nFROM STDIN;\n1\tx;\n\\.\nSELECT 4;\n";
    let found = statements(text);
    let shown: Vec<_> = found.iter().map(|it| (it.line, it.sql.as_str(), it.data.as_str())).collect();
    assert_eq!(
        shown,
        [
            (2, "SELECT 1;", ""),
            (4, "SELECT ';',\n  2; SELECT 3;", ""),
            (6, "COPY t\nFROM STDIN;", "1\tx;\n"),
            (10, "SELECT 4;", "")
        ]
    );
    assert!(is_ordered("SELECT 1 order\nBY 1"));
    assert!(!is_ordered("SELECT array_agg(a ORDER BY a), 'order by' FROM (SELECT 1 ORDER BY 1) t"));
    assert!(is_ordered("FETCH 3 FROM c;"));
}
