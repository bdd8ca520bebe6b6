//! What is pushed down to relations, parameters, EXPLAIN.

use std::sync::Arc;

use freshet_sql::{
    SqlError, SqlState, Type, Value,
    general::{Column, Filter, Named, Readable, Relation, Relations, Rows, Run, Scan, Test},
    memory::Pool,
    types::EvalContext,
};

use crate::support::{Database, MEMORY, Table, ask, fetch, parse_query, plan, print, rows};

const PEOPLE: &str = "
    CREATE TABLE people (id int, small smallint, big bigint, name text, code char(4), price numeric(8,2), any numeric,
                         born date, seen timestamptz, good bool, span interval);
    INSERT INTO people VALUES
        (1, 1, 1, 'Ann', 'a', 1.50, 1.5, '2000-01-01', '2024-01-01 00:00:00+00', true, '1 day'),
        (2, 2, 2, 'Bob', 'b', 2.50, 2.50, '2001-01-01', '2024-01-02 00:00:00+00', false, '2 days'),
        (3, 3, 3, 'Cid', 'c', 3.50, 3.500, '2002-01-01', '2024-01-03 00:00:00+00', NULL, '3 days'),
        (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    CREATE INDEX ON people (id, small, big, name, code, price, any, born, seen, good, span);
    CREATE TABLE plain (id int, name text);
    INSERT INTO plain VALUES (1, 'x'), (2, 'y'), (3, 'z'), (4, 'z');";

/// A query's rows, and what of a table was read for it.
fn scanned(sql: &str, table: &str, parameters: &[Value]) -> (Vec<String>, Scan) {
    let database = Database::build(PEOPLE);
    let table: Arc<Table> = Arc::clone(&database.tables[table]);
    let relations: Arc<dyn Relations> = Arc::new(database);
    let types: Vec<Option<Type>> = parameters.iter().map(|value| value.kind().map(Type::of)).collect();
    let plan = plan(&relations, &parse_query(sql).unwrap(), &types).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let context = EvalContext::default();
    let run = Run { parameters, context: &context, memory: &Pool::of(MEMORY), interrupted: &|| Ok(()) };
    let rows = fetch(plan.as_ref(), &run).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let rows = rows
        .iter()
        .map(|row| row.iter().zip(plan.columns()).map(|(v, c)| print(v, c.ty)).collect::<Vec<_>>().join("|"))
        .collect();
    let scan = table.scans.lock().unwrap().pop().unwrap_or_default();
    (rows, scan)
}

fn filters(sql: &str, parameters: &[Value]) -> (Vec<String>, Vec<Filter>) {
    let (rows, scan) = scanned(sql, "people", parameters);
    (rows, scan.filters)
}

#[test]
fn conditions_on_columns_are_pushed_down() {
    let number = |text: &str| Value::Numeric(freshet_sql::types::Numeric::parse(text, None).unwrap());
    type Case = (&'static str, Vec<Value>, Vec<&'static str>, Vec<(usize, Test)>);
    let cases: Vec<Case> = vec![
        ("id = 2", vec![], vec!["2"], vec![(0, Test::Equal(Value::Int4(2)))]),
        ("2 = id", vec![], vec!["2"], vec![(0, Test::Equal(Value::Int4(2)))]),
        (
            "id > 1 AND id <= 3",
            vec![],
            vec!["2", "3"],
            vec![(0, Test::Greater(Value::Int4(1))), (0, Test::LessOrEqual(Value::Int4(3)))],
        ),
        ("3 > id", vec![], vec!["1", "2"], vec![(0, Test::Less(Value::Int4(3)))]),
        (
            "id <> 1 AND id < 3",
            vec![],
            vec!["2"],
            vec![(0, Test::NotEqual(Value::Int4(1))), (0, Test::Less(Value::Int4(3)))],
        ),
        (
            "id BETWEEN 2 AND 3",
            vec![],
            vec!["2", "3"],
            vec![(0, Test::GreaterOrEqual(Value::Int4(2))), (0, Test::LessOrEqual(Value::Int4(3)))],
        ),
        ("small = 2", vec![], vec!["2"], vec![(1, Test::Equal(Value::Int2(2)))]),
        ("small < 70000", vec![], vec!["1", "2", "3"], vec![(1, Test::IsNotNull)]),
        ("big = 2", vec![], vec!["2"], vec![(2, Test::Equal(Value::Int8(2)))]),
        ("name = 'Bob'", vec![], vec!["2"], vec![(3, Test::Equal(Value::text("Bob")))]),
        ("code = 'b'", vec![], vec!["2"], vec![(4, Test::Equal(Value::Char("b   ".into())))]),
        ("price = 2.5", vec![], vec!["2"], vec![(5, Test::Equal(number("2.50")))]),
        ("price > 2", vec![], vec!["2", "3"], vec![(5, Test::Greater(number("2")))]),
        ("any = 2.5", vec![], vec!["2"], vec![(6, Test::Equal(number("2.5")))]),
        (
            "born < '2001-06-01'",
            vec![],
            vec!["1", "2"],
            vec![(7, Test::Less(Value::Date(freshet_sql::types::Date::of_civil(2001, 6, 1).unwrap())))],
        ),
        ("good", vec![], vec!["1"], vec![(9, Test::Equal(Value::Bool(true)))]),
        ("NOT good", vec![], vec!["2"], vec![(9, Test::Equal(Value::Bool(false)))]),
        (
            "span = '48 hours'",
            vec![],
            vec!["2"],
            vec![(10, Test::Equal(Value::Interval(freshet_sql::types::Interval { months: 0, days: 2, micros: 0 })))],
        ),
        ("name IS NULL", vec![], vec!["4"], vec![(3, Test::IsNull)]),
        (
            "small IS NOT NULL AND id > 2",
            vec![],
            vec!["3"],
            vec![(1, Test::IsNotNull), (0, Test::Greater(Value::Int4(2)))],
        ),
        (
            "id IN (1, 3, 7)",
            vec![],
            vec!["1", "3"],
            vec![(0, Test::Among(vec![Value::Int4(1), Value::Int4(3), Value::Int4(7)]))],
        ),
        ("id = ANY ('{1,3}')", vec![], vec!["1", "3"], vec![(0, Test::Among(vec![Value::Int4(1), Value::Int4(3)]))]),
        (
            "name IN ('Ann', 'Bob')",
            vec![],
            vec!["1", "2"],
            vec![(3, Test::Among(vec![Value::text("Ann"), Value::text("Bob")]))],
        ),
        // Parameters, of the column's type or of another.
        ("id = $1", vec![Value::Int4(2)], vec!["2"], vec![(0, Test::Equal(Value::Int4(2)))]),
        ("id = $1", vec![Value::Int8(2)], vec!["2"], vec![(0, Test::Equal(Value::Int4(2)))]),
        ("id > $1", vec![Value::Int8(1 << 40)], vec![], vec![]),
        ("id < $1", vec![Value::Int8(1 << 40)], vec!["1", "2", "3", "4"], vec![(0, Test::IsNotNull)]),
        ("small = $1", vec![Value::Int4(2)], vec!["2"], vec![(1, Test::Equal(Value::Int2(2)))]),
        ("big = $1", vec![Value::Int4(2)], vec!["2"], vec![(2, Test::Equal(Value::Int8(2)))]),
        ("price = $1", vec![number("2.5")], vec!["2"], vec![(5, Test::Equal(number("2.5")))]),
        (
            "id = ANY ($1)",
            vec![Value::array(freshet_sql::types::Array::new(
                freshet_sql::Kind::Int4,
                vec![Value::Int4(3), Value::Int4(1), Value::Null, Value::Int4(3)],
            ))],
            vec!["1", "3"],
            vec![(0, Test::Among(vec![Value::Int4(1), Value::Int4(3)]))],
        ),
    ];
    for (condition, parameters, expected, tests) in cases {
        let sql = format!("SELECT id FROM people WHERE {condition}");
        let (rows, filters) = filters(&sql, &parameters);
        assert_eq!(rows, expected, "{condition}");
        // The six comparisons are found whatever the order is in which they are asked for.
        let wanted: Vec<Filter> = tests.into_iter().map(|(column, test)| Filter { column, test }).collect();
        assert_eq!(filters.len(), wanted.len(), "{condition}: {filters:?}");
        for filter in &wanted {
            assert!(filters.contains(filter), "{condition}: {filters:?}");
        }
    }
}

#[test]
fn what_a_relation_does_not_take_is_applied_anyway() {
    let (rows, scan) = scanned("SELECT name FROM plain WHERE id = 3", "plain", &[]);
    assert_eq!(rows, ["z"]);
    assert!(scan.filters.is_empty());
    // What the test needs is read behind what the query needs.
    assert_eq!(scan.columns, [1, 0]);
    let (rows, scan) = scanned("SELECT id FROM plain WHERE name = 'z' LIMIT 1", "plain", &[]);
    assert_eq!(rows, ["3"]);
    assert_eq!(scan.limit, None);
}

#[test]
fn only_what_is_needed_is_read() {
    assert_eq!(scanned("SELECT name FROM people", "people", &[]).1.columns, [3]);
    assert!(scanned("SELECT count(*) FROM people", "people", &[]).1.columns.is_empty());
    assert_eq!(scanned("SELECT id FROM (SELECT * FROM people) q WHERE name <> ''", "people", &[]).1.columns, [0]);
    assert_eq!(scanned("SELECT id FROM plain LIMIT 2", "plain", &[]).1.limit, Some(2));
    assert_eq!(scanned("SELECT id FROM plain OFFSET 1 LIMIT 2", "plain", &[]).1.limit, Some(3));
    assert_eq!(scanned("SELECT id FROM plain LIMIT $1", "plain", &[Value::Int8(1)]).1.limit, Some(1));
    assert_eq!(scanned("SELECT id FROM plain ORDER BY id LIMIT 2", "plain", &[]).1.limit, None);
    let (rows, scan) = scanned("SELECT id + 1 FROM people WHERE id = 1 LIMIT 5", "people", &[]);
    assert_eq!((rows, scan.limit), (vec!["2".to_owned()], Some(5)));
}

#[test]
fn filters_go_through_joins_views_and_subqueries() {
    let (rows, filters) =
        filters("SELECT p.name FROM plain q JOIN people p ON p.id = q.id WHERE p.big = 2 AND q.id > 0", &[]);
    assert_eq!(rows, ["Bob"]);
    assert!(filters.contains(&Filter { column: 2, test: Test::Equal(Value::Int8(2)) }), "{filters:?}");
    let (rows, scan) =
        scanned("SELECT (SELECT p.name FROM people p WHERE p.id = q.id) FROM plain q WHERE q.id = 2", "people", &[]);
    assert_eq!(rows, ["Bob"]);
    assert_eq!(scan.filters, [Filter { column: 0, test: Test::Equal(Value::Int4(2)) }]);
    let (rows, scan) = scanned(
        "SELECT x.name FROM plain q, LATERAL (SELECT * FROM people p WHERE p.id = q.id) x WHERE q.id = 3",
        "people",
        &[],
    );
    assert_eq!(rows, ["Cid"]);
    assert_eq!(scan.filters, [Filter { column: 0, test: Test::Equal(Value::Int4(3)) }]);
}

#[test]
fn parameters_are_as_given_or_inferred() {
    let database = Database::of(PEOPLE);
    let types = |sql: &str, given: &[Option<Type>]| {
        plan(&database, &parse_query(sql).unwrap(), given).map(|plan| plan.parameters().to_vec())
    };
    let cases: &[(&str, &[Type])] = &[
        ("SELECT $1", &[Type::TEXT]),
        ("SELECT $1 + 1", &[Type::INT4]),
        ("SELECT $1::bigint", &[Type::INT8]),
        ("SELECT id FROM people WHERE id = $1 AND name LIKE $2", &[Type::INT4, Type::TEXT]),
        ("SELECT id FROM people WHERE price > $1", &[Type::NUMERIC]),
        ("SELECT id FROM people WHERE born BETWEEN $1 AND $2", &[Type::DATE, Type::DATE]),
        ("SELECT id FROM people WHERE id IN ($1, $2)", &[Type::INT4, Type::INT4]),
        ("SELECT id FROM people WHERE code = $1", &[Type::BPCHAR]),
        ("SELECT id FROM people LIMIT $1 OFFSET $2", &[Type::INT8, Type::INT8]),
        (
            "SELECT coalesce(name, $1), CASE WHEN $2 THEN 1 ELSE $3 END FROM people",
            &[Type::TEXT, Type::BOOL, Type::INT4],
        ),
        ("SELECT $2, $1 || 'x'", &[Type::TEXT, Type::TEXT]),
        ("SELECT 1 UNION SELECT $1", &[Type::INT4]),
        ("SELECT $1 UNION SELECT 1", &[Type::INT4]),
        ("SELECT * FROM (VALUES (1, $1), ($2, 'x')) v", &[Type::TEXT, Type::INT4]),
        ("SELECT (SELECT p.name FROM people p WHERE p.big = $1)", &[Type::INT8]),
        ("SELECT * FROM generate_series(1, $1)", &[Type::INT4]),
    ];
    for (sql, expected) in cases {
        assert_eq!(types(sql, &[]).as_deref(), Ok(*expected), "{sql}");
    }
    let array = Type::INT4.to_array().unwrap();
    assert_eq!(types("SELECT id FROM people WHERE id = ANY ($1)", &[]).unwrap(), [array]);
    assert_eq!(types("SELECT $1", &[Some(Type::INT4)]).unwrap(), [Type::INT4]);
    let missing = types("SELECT $2::int", &[]).unwrap_err();
    assert_eq!(missing.state, SqlState::INDETERMINATE_DATATYPE);
    assert_eq!(types("SELECT $1 = $1", &[]).unwrap(), [Type::TEXT]);
    let mixed = types("SELECT id FROM people WHERE id = $1 AND name = $1", &[]).unwrap_err();
    assert_eq!(mixed.state, SqlState::UNDEFINED_FUNCTION);
}

#[test]
fn a_plan_takes_other_parameters_each_time() {
    let database = Database::of(PEOPLE);
    let sql = "SELECT p.id, $2::text FROM people p WHERE p.id > $1 AND EXISTS (SELECT 1 FROM plain q WHERE q.id = p.id)
               ORDER BY 1 LIMIT $3";
    let plan = plan(&database, &parse_query(sql).unwrap(), &[]).unwrap();
    let context = EvalContext::default();
    for (from, limit, expected) in [(0, 2, vec![1, 2]), (2, 5, vec![3, 4]), (4, 5, vec![]), (0, 0, vec![])] {
        let parameters = [Value::Int4(from), Value::text("x"), Value::Int8(limit)];
        let run =
            Run { parameters: &parameters, context: &context, memory: &Pool::of(MEMORY), interrupted: &|| Ok(()) };
        let ids: Vec<_> = fetch(plan.as_ref(), &run).unwrap().iter().map(|row| row[0].as_i64().unwrap()).collect();
        assert_eq!(ids, expected);
    }
    let parameters = [Value::Null, Value::Null, Value::Null];
    let run = Run { parameters: &parameters, context: &context, memory: &Pool::of(MEMORY), interrupted: &|| Ok(()) };
    assert!(fetch(plan.as_ref(), &run).unwrap().is_empty());
    let negative = [Value::Int4(0), Value::Null, Value::Int8(-1)];
    let run = Run { parameters: &negative, ..run };
    assert_eq!(fetch(plan.as_ref(), &run).unwrap_err().state, SqlState::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE);
    let run = Run { parameters: &[], ..run };
    assert_eq!(fetch(plan.as_ref(), &run).unwrap_err().state, SqlState::PROTOCOL_VIOLATION);
}

/// A relation that fails, and one with a column that is not shown.
#[derive(Debug)]
struct Odd {
    columns: Vec<Column>,
    fails: bool,
}

impl Readable for Odd {
    fn may_read(&self, _: &[usize]) -> Result<(), SqlError> {
        Ok(())
    }
}

impl Relation for Odd {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn takes(&self, _: &Filter) -> bool {
        false
    }

    fn scan(&self, scan: Scan) -> Result<Box<dyn Rows>, SqlError> {
        if self.fails {
            return Err(SqlError::new(SqlState::new("XX001"), "damaged").with_hint("restore it"));
        }
        Ok(Box::new(OddRows { width: scan.columns.len(), left: 2 }))
    }
}

struct OddRows {
    width: usize,
    left: usize,
}

struct OddRow(usize);

impl freshet_sql::general::Cells for OddRow {
    fn cell(&self, n: usize) -> Result<freshet_sql::ValueRef<'_>, SqlError> {
        assert!(n < self.0);
        Ok(freshet_sql::ValueRef::Int4(n as i32))
    }
}

impl Rows for OddRows {
    fn next(
        &mut self,
        _: usize,
        sink: &mut dyn FnMut(&dyn freshet_sql::general::Cells) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError> {
        if self.left > 0 {
            self.left -= 1;
            sink(&OddRow(self.width))?;
        }
        Ok(self.left > 0)
    }
}

#[derive(Debug)]
struct OddNames;

impl Relations for OddNames {
    fn named(&self, _: Option<&str>, name: &str) -> Result<Named, SqlError> {
        let column = |name: &str, hidden| Column { name: name.to_owned(), ty: Type::INT4, hidden };
        match name {
            "broken" => Ok(Named::Relation(Arc::new(Odd { columns: vec![column("a", false)], fails: true }))),
            "odd" => {
                let columns = vec![column("a", false), column("b", false), column("ctid", true)];
                Ok(Named::Relation(Arc::new(Odd { columns, fails: false })))
            }
            _ => Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied for table secret")),
        }
    }
}

#[test]
fn errors_of_relations_come_out_as_they_are() {
    let relations: Arc<dyn Relations> = Arc::new(OddNames);
    for sql in [
        "SELECT a FROM broken",
        "SELECT count(*) FROM broken x JOIN broken y ON x.a = y.a",
        "SELECT (SELECT max(a) FROM broken)",
        "SELECT a FROM broken ORDER BY a",
    ] {
        let error = ask(&relations, sql).unwrap_err();
        assert_eq!((error.state.code(), error.hint.as_deref()), ("XX001", Some("restore it")), "{sql}");
    }
    assert_eq!(ask(&relations, "SELECT * FROM secret").unwrap_err().state, SqlState::INSUFFICIENT_PRIVILEGE);
}

#[test]
fn hidden_columns_have_to_be_named() {
    // Cells are numbers: their places in the scan.
    let relations: Arc<dyn Relations> = Arc::new(OddNames);
    assert_eq!(rows(&relations, "SELECT * FROM odd"), ["0|1", "0|1"]);
    assert_eq!(rows(&relations, "SELECT ctid, odd.ctid, a FROM odd LIMIT 1"), ["1|1|0"]);
    assert_eq!(rows(&relations, "SELECT o.* FROM odd o (x) LIMIT 1"), ["0|1"]);
}

#[test]
fn explain_shows_a_tree() {
    let database = Database::of(PEOPLE);
    let sql = "SELECT p.name, count(*) FROM people p JOIN plain q ON q.id = p.id
               WHERE p.big > $1 AND p.name LIKE 'B%' AND p.id > (SELECT min(id) FROM plain)
               GROUP BY p.name ORDER BY 1";
    let plan = plan(&database, &parse_query(sql).unwrap(), &[]).unwrap();
    let context = EvalContext::default();
    let parameters = [Value::Int8(0)];
    let run = Run { parameters: &parameters, context: &context, memory: &Pool::of(MEMORY), interrupted: &|| Ok(()) };
    let lines = plan.explain(&run, false).unwrap().lines();
    let find = |lines: &[String], what: &str| {
        lines.iter().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what} in {lines:#?}")).clone()
    };
    assert!(!lines[0].starts_with(' '), "{lines:#?}");
    assert!(find(&lines, "Scan: people").contains("big > $1"));
    assert!(find(&lines, "Scan: people").trim_start().starts_with("->  "));
    find(&lines, "HashJoin");
    find(&lines, "Scan: plain");
    find(&lines, "Subquery 0");
    assert!(!lines.iter().any(|line| line.contains("Watch")));
    let lines = plan.explain(&run, true).unwrap().lines();
    assert!(find(&lines, "Scan: people").contains("(rows=3 time="), "{lines:#?}");
}
