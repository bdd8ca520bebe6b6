//! Values of every type go to a client and come back, in both formats, and through a table.

use std::error::Error;

use crate::common::{SqlNode, shown};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};

/// A value as the wire has it.
#[derive(Clone, Debug, PartialEq)]
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Raw {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Types with values as PostgreSQL writes them.
const VALUES: &[(&str, &[&str])] = &[
    ("bool", &["t", "f"]),
    ("int2", &["0", "-32768", "32767"]),
    ("int4", &["0", "-2147483648", "2147483647"]),
    ("int8", &["0", "-9223372036854775808", "9223372036854775807"]),
    ("float4", &["0", "1.5", "-1e-20", "Infinity", "NaN"]),
    ("float8", &["0", "0.1", "-1e-300", "-Infinity", "NaN"]),
    ("numeric", &["0", "0.00", "-12345678901234567890.123456789", "1000000000000"]),
    ("numeric(8,3)", &["0.000", "-12345.678", "99999.999"]),
    ("text", &["", "plain", "quote ' and \\ and \"", "äöü€😀", "line\nbreak\ttab"]),
    ("varchar(10)", &["", "ten chars!"]),
    ("char(5)", &["abc  ", "     "]),
    ("bytea", &["\\x", "\\x00ff10"]),
    ("date", &["2000-01-01", "1999-12-31", "4713-01-01 BC", "infinity"]),
    ("time", &["00:00:00", "23:59:59.999999"]),
    ("timestamp", &["2000-01-01 00:00:00", "1969-12-31 23:59:59.000001", "-infinity"]),
    ("timestamptz", &["2000-01-01 00:00:00+00", "2026-11-21 12:34:56.789+00"]),
    ("interval", &["00:00:00", "1 year 2 mons -3 days +04:05:06.7", "-1 days"]),
    ("uuid", &["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("json", &["{\"b\": 1,  \"a\": [null, true]}", "\"x\""]),
    ("jsonb", &["{\"a\": [null, true], \"b\": 1.50}", "[]"]),
    ("int4[]", &["{}", "{1,NULL,-3}", "{{1,2},{3,4}}"]),
    ("text[]", &["{a,\"b c\",NULL,\"NULL\",\"\"}"]),
];

#[test]
fn values_come_back_as_they_went() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    for (number, (ty, texts)) in VALUES.iter().enumerate() {
        let keyed = !matches!(*ty, "json" | "jsonb" | "int4[]" | "text[]");
        sql.lines(&format!("CREATE TABLE t{number} (id int PRIMARY KEY, v {ty})"));
        if keyed {
            sql.lines(&format!("CREATE INDEX ON t{number} (v)"));
        }
        for (id, text) in (0_i32..).zip(*texts) {
            let context = format!("{ty}, {text:?}");
            let quoted = text.replace('\'', "''");
            // As text there and back.
            let rows =
                sql.query(&format!("SELECT '{quoted}'::{ty}")).unwrap_or_else(|e| panic!("{context}: {}", shown(&e)));
            assert_eq!(rows[0][0].as_deref(), Some(*text), "{context}");
            // In binary there, then back, then through a table.
            let select = format!("SELECT '{quoted}'::{ty}");
            let row = sql.runtime.block_on(sql.client.query_one(&select, &[])).unwrap();
            let raw: Raw = row.get(0);
            let back = format!("SELECT $1::{ty}");
            let row = sql
                .runtime
                .block_on(sql.client.query_one(&back, &[&raw]))
                .unwrap_or_else(|e| panic!("{context}: {}", shown(&e)));
            assert_eq!(row.get::<_, Raw>(0), raw, "{context}");
            let insert = format!("INSERT INTO t{number} VALUES ($1, $2) RETURNING v");
            let row = sql
                .runtime
                .block_on(sql.client.query_one(&insert, &[&id, &raw]))
                .unwrap_or_else(|e| panic!("{context}: {}", shown(&e)));
            assert_eq!(row.get::<_, Raw>(0), raw, "{context}");
            let there = sql.query(&format!("SELECT v FROM t{number} WHERE id = {id}")).unwrap();
            assert_eq!(there[0][0].as_deref(), Some(*text), "{context}");
            if keyed {
                let by_key = format!("SELECT id FROM t{number} WHERE v = $1");
                let row = sql
                    .runtime
                    .block_on(sql.client.query(&by_key, &[&raw]))
                    .unwrap_or_else(|e| panic!("{context}: {}", shown(&e)));
                assert!(row.iter().any(|row| row.get::<_, i32>(0) == id), "{context}: not found by its key");
            }
        }
    }
}

#[test]
fn parameters_that_are_no_values_are_refused() {
    let node = SqlNode::in_memory();
    let sql = node.connect();
    for (ty, _) in VALUES.iter().filter(|(ty, _)| !matches!(*ty, "text" | "varchar(10)" | "char(5)" | "bytea")) {
        let back = format!("SELECT $1::{ty}");
        for bytes in [vec![], vec![0xFF], vec![0xFF; 7], vec![0x7F; 41]] {
            let done = sql.runtime.block_on(sql.client.query_one(&back, &[&Raw(bytes.clone())]));
            if let Err(error) = done {
                let state = error.code().map(|state| state.code().to_owned()).unwrap_or_default();
                // PostgreSQL has no code for a version of jsonb that it does not know.
                let unknown_version = *ty == "jsonb" && state == "XX000";
                assert!(
                    unknown_version
                        || ["22P03", "08P01", "22021", "22P02", "22003", "22008", "54000"].contains(&state.as_str()),
                    "{ty} {bytes:?}: {state}"
                );
            }
        }
        // The session continues.
        assert_eq!(sql.lines("SELECT 1"), ["1"]);
    }
}
