//! Objects as people speak of them: `pg_describe_object`. As in PostgreSQL, only names that may
//! have a schema before them are quoted.

use super::{
    class::{
        self, Class, PG_ATTRDEF, PG_AUTHID, PG_CLASS, PG_CONSTRAINT, PG_DATABASE, PG_EXTENSION, PG_NAMESPACE,
        PG_REWRITE, default_oid,
    },
    constraint, describe, routine, row_type,
};
use crate::{
    relations::Snapshot,
    schema::{INFORMATION_SCHEMA, Oid, PG_CATALOG},
};

/// The id of `pg_proc`.
pub const PG_PROC: Oid = 1255;
/// The id of `pg_type`.
pub const PG_TYPE: Oid = 1247;
/// The id of `pg_language`.
const PG_LANGUAGE: Oid = 2612;

/// Functions of PostgreSQL's language, which are there in name only.
const LANGUAGES: &[(Oid, &str)] = &[(12, "internal"), (13, "c"), (14, "sql")];

/// The description of an object, or of a column of it from 1; nothing when none exists.
pub fn describe(snapshot: &Snapshot, class: Oid, object: Oid, column: i32) -> Option<String> {
    let schema = &snapshot.schema;
    Some(match class {
        PG_CLASS => {
            let class = class::by_oid(snapshot, object)?;
            let name = describe::relation_name(snapshot, class);
            let kind = match class {
                Class::Table(_) => "table",
                Class::View(_) => "view",
                Class::Sequence(_) => "sequence",
                Class::Index(..) => "index",
                Class::System(relation) if relation.table => "table",
                Class::System(_) => "view",
            };
            match column {
                0 => format!("{kind} {name}"),
                number => {
                    let attributes = class.attributes();
                    let attribute = attributes.iter().find(|attribute| i32::from(attribute.number) == number)?;
                    format!("column {} of {kind} {name}", attribute.name)
                }
            }
        }
        PG_PROC => {
            let routine = routine::by_oid(object)?;
            format!("function {}({})", routine.name, routine.signature().replace(", ", ","))
        }
        PG_TYPE => match row_type::relation(snapshot, object) {
            Some((class, array)) => {
                let name = describe::relation_name(snapshot, class);
                format!("type {name}{}", if array { "[]" } else { "" })
            }
            None => format!("type {}", freshet_sql::Kind::from_oid(object)?.sql_name()),
        },
        PG_NAMESPACE if object == PG_CATALOG => "schema pg_catalog".to_owned(),
        PG_NAMESPACE if object == INFORMATION_SCHEMA => "schema information_schema".to_owned(),
        PG_NAMESPACE => format!("schema {}", schema.namespace_by_oid(object)?.name),
        PG_AUTHID => format!("role {}", schema.role_by_oid(object)?.name),
        PG_DATABASE => format!("database {}", schema.database_by_oid(object)?.name),
        PG_EXTENSION => format!("extension {}", schema.extension_by_oid(object)?.name),
        PG_LANGUAGE => format!("language {}", LANGUAGES.iter().find(|(oid, _)| *oid == object)?.1),
        PG_CONSTRAINT => {
            let (info, constraint) = constraint::by_oid(schema, object)?;
            let table = describe::relation_name(snapshot, Class::Table(info));
            format!("constraint {} on table {table}", constraint.name())
        }
        PG_REWRITE => {
            let view = class::by_oid(snapshot, object)?;
            format!("rule _RETURN on view {}", describe::relation_name(snapshot, view))
        }
        PG_ATTRDEF => {
            let tables = class::tables(snapshot);
            { tables }.into_iter().find_map(|info| {
                let class = Class::Table(info);
                let attributes = class.attributes();
                let of = attributes.iter().find(|it| default_oid(info.table.oid, it.number) == object)?;
                let (column, table) = (&of.name, describe::relation_name(snapshot, class));
                Some(format!("default value for column {column} of table {table}"))
            })?
        }
        _ => return None,
    })
}
