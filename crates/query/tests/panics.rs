//! A panic where nothing is shared fails its statement, and nothing else.

use std::sync::Arc;

use crate::common::{SqlNode, config};
use freshet_general::QueryEngine;
use freshet_sql::{
    SqlError, Type, Value,
    general::{General, GeneralPlan, GeneralRows, Relations, ResultColumn, Run},
    types::EvalContext,
};
use sqlparser::ast::Query;

/// Runs general queries, but falls in those that say where.
struct Falling;

struct FallingPlan {
    inner: Arc<dyn GeneralPlan>,
    text: String,
}

struct FallingRows<'r> {
    inner: Box<dyn GeneralRows + 'r>,
    text: String,
}

fn fall_if(text: &str, place: &str) {
    assert!(!text.contains(place), "{place}, as was asked for");
}

impl General for Falling {
    fn plan(
        &self,
        query: &Query,
        parameters: &[Option<Type>],
        relations: &Arc<dyn Relations>,
        context: &EvalContext<'_>,
    ) -> Result<Arc<dyn GeneralPlan>, SqlError> {
        let text = query.to_string();
        fall_if(&text, "fall in planning");
        let inner = QueryEngine.plan(query, parameters, relations, context)?;
        Ok(Arc::new(FallingPlan { inner, text }))
    }
}

impl GeneralPlan for FallingPlan {
    fn columns(&self) -> &[ResultColumn] {
        self.inner.columns()
    }

    fn locked(&self) -> &[u32] {
        self.inner.locked()
    }

    fn records(&self) -> &[u32] {
        self.inner.records()
    }

    fn parameters(&self) -> &[Type] {
        self.inner.parameters()
    }

    fn run<'r>(&self, run: &Run<'r>) -> Result<Box<dyn GeneralRows + 'r>, SqlError> {
        fall_if(&self.text, "fall at the start");
        Ok(Box::new(FallingRows { inner: self.inner.run(run)?, text: self.text.clone() }))
    }

    fn explain(&self, run: &Run<'_>, analyze: bool) -> Result<freshet_sql::explain::Step, SqlError> {
        fall_if(&self.text, "fall in explaining");
        self.inner.explain(run, analyze)
    }
}

impl GeneralRows for FallingRows<'_> {
    fn next(&mut self, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
        self.inner.next(rows)?;
        if rows.is_empty() {
            fall_if(&self.text, "fall at the end");
        }
        Ok(())
    }
}

#[test]
fn a_panic_fails_its_statement_and_nothing_else() {
    let node = SqlNode::start_with(config(None), Arc::new(Falling));
    let (one, other) = (node.connect(), node.connect());
    one.lines("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let query = |place: &str| format!("SELECT id, 'fall {place}' FROM t GROUP BY GROUPING SETS ((id), ())");
    for place in ["in planning", "at the start", "at the end"] {
        let query = query(place);
        // Alone, within a transaction, prepared, as a cursor, as a source of rows.
        assert_eq!(one.state(&query), "XX000");
        one.lines("BEGIN; INSERT INTO t VALUES (2)");
        assert_eq!(one.state(&query), "XX000");
        assert_eq!(one.state("SELECT 1"), "25P02");
        one.lines("ROLLBACK");
        let prepared = one.runtime.block_on(async {
            let statement = one.client.prepare(&query).await?;
            one.client.query(&statement, &[]).await
        });
        assert_eq!(prepared.unwrap_err().code().unwrap().code(), "XX000");
        one.lines("BEGIN");
        assert_eq!(one.state(&format!("DECLARE c CURSOR FOR {query}; FETCH ALL FROM c")), "XX000");
        one.lines("ROLLBACK");
        assert_eq!(one.state(&format!("INSERT INTO t SELECT id + 10 FROM ({query}) q")), "XX000");
        assert_eq!(one.state(&format!("CREATE TABLE made AS {query}")), "XX000");
        assert_eq!(one.lines("SELECT count(*) FROM pg_class WHERE relname = 'made'"), ["0"]);
        // The same session continues, and no other waits for it.
        assert_eq!(one.lines("SELECT * FROM t"), ["1"]);
        assert_eq!(other.lines("UPDATE t SET id = 1 RETURNING id"), ["1"]);
        other.lines("CREATE TABLE made (a int); DROP TABLE made; ALTER TABLE t ADD COLUMN c int; ALTER TABLE t DROP c");
        assert_eq!(one.lines("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass"), ["0"]);
    }
    assert_eq!(one.state(&format!("EXPLAIN {}", query("in explaining"))), "XX000");
    assert_eq!(one.lines("SELECT * FROM t"), ["1"]);
}

/// As PostgreSQL has it: such a frame is empty.
#[test]
fn a_frame_that_ends_before_it_begins_is_empty() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    for (frame, expected) in [
        ("rows between 5 following and 1 following", "NULL 0 NULL NULL"),
        ("rows between 2 following and 1 following", "NULL 0 NULL NULL"),
        ("rows between 1 preceding and 5 preceding", "NULL 0 NULL NULL"),
        ("order by x groups between 5 following and 1 following", "NULL 0 NULL NULL"),
        ("order by x groups between 1 preceding and 3 preceding", "NULL 0 NULL NULL"),
        ("partition by x rows between 3 following and 1 following", "NULL 0 NULL NULL"),
        ("rows between 3 following and 3 following", "NULL 0 NULL NULL"),
    ] {
        let query = format!(
            "select sum(x) over w, count(*) over w, first_value(x) over w, array_agg(x) over w \
             from generate_series(1, 3) x window w as ({frame})"
        );
        assert_eq!(sql.lines(&query), [expected; 3], "{frame}");
        let with_others =
            format!("select count(*) over w + row_number() over () from generate_series(1, 3) x window w as ({frame})");
        assert_eq!(sql.lines(&with_others), ["1", "2", "3"], "{frame}");
    }
    let query =
        "select sum(x) over (order by x range between 5 following and 1 following) from generate_series(1, 3) x";
    assert_eq!(sql.state(query), "0A000");
}
