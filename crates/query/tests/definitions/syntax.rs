//! Statements as clients and tools send them.

use freshet_query::ddl::Definition;
use sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

fn parse(sql: &str) -> Result<Definition, String> {
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).map_err(|cause| cause.to_string())?;
    match Definition::parse(&mut parser) {
        Ok(Some(definition)) => Ok(definition),
        Ok(None) => Err("no definition".to_owned()),
        Err(cause) => Err(cause.to_string()),
    }
}

#[test]
fn definitions_are_read() {
    for sql in include_str!("statements.sql").lines().filter(|line| !line.is_empty() && !line.starts_with("--")) {
        let definition = parse(sql).unwrap_or_else(|cause| panic!("{sql}: {cause}"));
        assert!(!matches!(definition, Definition::Unsupported(_)), "{sql}: {definition:?}");
    }
}

#[test]
fn what_is_not_offered_is_known_by_name() {
    for (sql, name) in [
        ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'select 1'", "CREATE FUNCTION"),
        (
            "CREATE OR REPLACE FUNCTION f() RETURNS trigger AS $$ begin return new; end $$ LANGUAGE plpgsql",
            "CREATE OR REPLACE FUNCTION",
        ),
        ("CREATE TRIGGER t BEFORE INSERT ON x FOR EACH ROW EXECUTE FUNCTION f()", "CREATE TRIGGER"),
        ("CREATE TYPE t AS ENUM ('a', 'b')", "CREATE TYPE"),
        ("CREATE DOMAIN d AS int", "CREATE DOMAIN"),
        ("ALTER EXTENSION e ADD FUNCTION f(int)", "ALTER EXTENSION ... ADD and DROP"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "CREATE MATERIALIZED"),
        ("CREATE RULE r AS ON INSERT TO t DO NOTHING", "CREATE RULE"),
        ("ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO joe", "ALTER DEFAULT"),
        ("COMMENT ON TYPE e IS 'x'", "COMMENT ON TYPE"),
        ("REINDEX TABLE t", "REINDEX"),
        ("CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) STORED)", "a generated column"),
        ("CREATE TABLE t (a int, EXCLUDE USING gist (a WITH =))", "an exclusion constraint"),
        ("CREATE SCHEMA s CREATE TABLE t (a int)", "CREATE SCHEMA with objects in it"),
        ("GRANT EXECUTE ON FUNCTION f(int) TO joe", ""),
    ] {
        match parse(sql) {
            Ok(Definition::Unsupported(what)) => assert_eq!(what, name, "{sql}"),
            Ok(other) => panic!("{sql}: {other:?}"),
            Err(_) => assert_eq!(name, "", "{sql}"),
        }
    }
}

#[test]
fn what_is_wrong_is_reported_without_harm() {
    for sql in [
        "CREATE TABLE",
        "CREATE TABLE t (a int",
        "CREATE TABLE t (a int,)",
        "CREATE TABLE t (a int NOT NULL NULL)",
        "CREATE TABLE t (a int DEFAULT)",
        "CREATE TABLE t (a int DEFAULT 1 2)",
        "CREATE TABLE t (a int DEFAULT (1)",
        "CREATE TABLE a.b.c.d (a int)",
        "CREATE INDEX ON t ()",
        "CREATE SEQUENCE s START 99999999999999999999",
        "CREATE SEQUENCE s START 1 START 2",
        "ALTER TABLE t",
        "ALTER TABLE t ADD COLUMN",
        "ALTER TABLE t ALTER a",
        "DROP TABLE t,",
        "DROP TABLE t CASCADE RESTRICT",
        "GRANT ON t TO joe",
        "GRANT SELECT ON t",
        "TRUNCATE",
        "LOCK t IN NO MODE",
        "CREATE",
        "ALTER",
        "CREATE ROLE joe PASSWORD",
    ] {
        assert!(parse(sql).is_err(), "{sql}");
    }
    // Any prefix of any statement is an error or a statement, never a panic.
    for sql in include_str!("statements.sql").lines() {
        for (end, _) in sql.char_indices() {
            let _ = parse(&sql[..end]);
        }
    }
}
