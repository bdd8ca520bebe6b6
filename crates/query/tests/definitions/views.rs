//! Views.

use freshet_query::schema::Entry;

use crate::harness::{Base, Session};

fn query_of(session: &mut Session<'_>, name: &str) -> String {
    let schema = session.schema();
    let view = schema.entries().find_map(|entry| match entry {
        Entry::View(view) if view.name == name => Some(view.query.clone()),
        _ => None,
    });
    view.unwrap_or_else(|| panic!("no view {name}"))
}

#[test]
fn a_view_means_the_same_whatever_comes_later() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int PRIMARY KEY, b text)");
    assert_eq!(session.ok("CREATE VIEW v AS SELECT * FROM t WHERE t.a > 5 AND public.t.b = 'x'"), "CREATE VIEW");
    let written = query_of(&mut session, "v");
    assert_eq!(written, "SELECT t.\"a\", t.\"b\" FROM \"public\".\"t\" AS \"t\" WHERE t.a > 5 AND t.b = 'x'");
    session.ok("ALTER TABLE t ADD COLUMN c int");
    session.ok("ALTER TABLE t RENAME TO u");
    assert!(query_of(&mut session, "v").contains("FROM \"public\".\"u\" AS \"t\""));
    session.ok("ALTER SCHEMA public RENAME TO p");
    assert!(query_of(&mut session, "v").contains("FROM \"p\".\"u\" AS \"t\""));
    let schema = session.schema();
    let columns: Vec<_> = schema
        .entries()
        .find_map(|entry| match entry {
            Entry::View(view) => Some(view.columns.iter().map(|(name, ty)| format!("{name} {ty}")).collect()),
            _ => None,
        })
        .unwrap_or_default();
    assert_eq!(columns, ["a integer", "b text"]);
}

#[test]
fn views_are_replaced_by_wider_ones_only() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE TABLE t (a int, b text)");
    session.ok("CREATE VIEW v (x) AS SELECT a FROM t");
    assert_eq!(session.fails("CREATE VIEW v AS SELECT a FROM t"), "42P07: relation \"v\" already exists");
    session.ok("CREATE OR REPLACE VIEW v AS SELECT a + 1 AS x, b FROM t");
    assert_eq!(session.fails("CREATE OR REPLACE VIEW v AS SELECT a FROM t"), "42P16: cannot drop columns from view");
    assert_eq!(
        session.fails("CREATE OR REPLACE VIEW v AS SELECT a AS y, b FROM t"),
        "42P16: cannot change name of view column \"x\" to \"y\""
    );
    assert_eq!(
        session.fails("CREATE OR REPLACE VIEW v AS SELECT b AS x, b FROM t"),
        "42P16: cannot change data type of view column \"x\" from integer to text"
    );
    assert_eq!(session.fails("CREATE OR REPLACE VIEW t AS SELECT 1"), "42809: \"t\" is not a view");
    assert_eq!(
        session.fails("CREATE VIEW w AS SELECT a, b AS a FROM t"),
        "42701: column \"a\" specified more than once"
    );
    assert_eq!(
        session.fails("CREATE VIEW w (a, b, c) AS SELECT a, b FROM t"),
        "42601: CREATE VIEW specifies more column names than columns"
    );
    assert_eq!(session.fails("CREATE TEMP VIEW w AS SELECT 1"), "0A000: a temporary view is not supported");
    session.ok("ALTER VIEW v RENAME COLUMN x TO z");
    session.ok("ALTER VIEW v RENAME TO w");
    session.ok("ALTER VIEW w OWNER TO admin");
    assert_eq!(session.fails("DROP TABLE w"), "42809: \"w\" is not a table");
    assert_eq!(session.ok("DROP VIEW w"), "DROP VIEW");
}
