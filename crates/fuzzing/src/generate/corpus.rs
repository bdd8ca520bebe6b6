//! Statements that clients are known to send, and those of other tests.

/// Files that have a statement on one line or several, each with a semicolon at its end.
const PLAIN: &[&str] = &[
    include_str!("../../corpus/clients.sql"),
    include_str!("../../corpus/more.sql"),
    include_str!("../../../general/tests/general/corpus/aggregates.sql"),
    include_str!("../../../general/tests/general/corpus/basics.sql"),
    include_str!("../../../general/tests/general/corpus/joins.sql"),
    include_str!("../../../general/tests/general/corpus/sets.sql"),
    include_str!("../../../general/tests/general/corpus/subqueries.sql"),
    include_str!("../../../general/tests/general/corpus/windows.sql"),
    include_str!("../../../query/tests/definitions/statements.sql"),
];

/// Files of sqllogictest.
const RECORDS: &[&str] = &[
    include_str!("../../../query/tests/sql/definitions.slt"),
    include_str!("../../../query/tests/sql/dml.slt"),
    include_str!("../../../query/tests/sql/expressions.slt"),
    include_str!("../../../query/tests/sql/references.slt"),
    include_str!("../../../query/tests/sql/select.slt"),
    include_str!("../../../query/tests/sql/transactions.slt"),
];

/// All statements there are.
pub fn statements() -> Vec<String> {
    let mut all = Vec::new();
    for file in PLAIN {
        // A semicolon at the end of a line ends a statement, unless there is one within: those are
        // good seeds, too.
        all.extend(file.split(";\n").map(|statement| statement.trim().to_owned()));
    }
    for file in RECORDS {
        for record in file.split("\n\n") {
            let begins = |line: &&str| line.starts_with("statement") || line.starts_with("query");
            let lines = record.lines().skip_while(|line| !begins(line)).skip(1).take_while(|line| *line != "----");
            all.push(lines.collect::<Vec<_>>().join("\n"));
        }
    }
    all.retain(|statement| !statement.is_empty());
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_are_statements_of_all_kinds() {
        let all = super::statements();
        assert!(all.len() > 700, "{}", all.len());
        for word in ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "COPY", "WITH", "FETCH"] {
            assert!(all.iter().any(|statement| statement.to_uppercase().starts_with(word)), "{word}");
        }
    }
}
