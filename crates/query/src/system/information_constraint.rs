//! `information_schema`: constraints.

use std::sync::Arc;

use freshet_sql::SqlError;

use super::{
    Generator,
    class::{self, Class, namespace_name},
    constraint::{Constraint, of_table, unique_index},
    describe,
    sink::{Sink, row},
};
use crate::{
    relations::Snapshot,
    schema::{Deferral, ForeignKey, Table, TableInfo, privilege},
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("table_constraints", table_constraints),
    ("key_column_usage", key_column_usage),
    ("constraint_column_usage", constraint_column_usage),
    ("constraint_table_usage", constraint_table_usage),
    ("referential_constraints", referential_constraints),
    ("check_constraints", check_constraints),
];

/// Tables that the statement's role owns, or may do more with than read.
fn changeable(snapshot: &Snapshot) -> Vec<&Arc<TableInfo>> {
    let mut tables = class::tables(snapshot);
    tables.retain(|info| Class::Table(info).privileges(snapshot) & !privilege::SELECT != 0);
    tables
}

/// Tables that the statement's role owns.
fn owned(snapshot: &Snapshot) -> Vec<&Arc<TableInfo>> {
    let mut tables = class::tables(snapshot);
    tables.retain(|info| snapshot.is_member(info.table.owner));
    tables
}

/// The name of the constraint that a column is not null.
fn not_null_name(table: &Table, place: usize) -> String {
    format!("{}_{}_{}_not_null", table.namespace, table.oid, place + 1)
}

/// The columns of a table that may not be null, with their places.
fn not_null(table: &Table) -> impl Iterator<Item = (usize, &str)> {
    table.visible_columns().filter(|(_, column)| column.not_null).map(|(place, column)| (place, column.name.as_str()))
}

fn table_constraints(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for info in changeable(snapshot) {
        let table = &info.table;
        let (catalog, schema) = (&*snapshot.database, namespace_name(snapshot, table.namespace));
        if !sink.admits("table_name", &table.name) || !sink.admits("table_schema", schema) {
            continue;
        }
        let mut add = |name: &str, kind: &str, deferral: Deferral, distinct: Option<&str>| {
            let deferrable = if deferral.is_deferrable() { "YES" } else { "NO" };
            let deferred = if deferral == Deferral::Deferred { "YES" } else { "NO" };
            let (table, enforced) = (&table.name, "YES");
            sink.push(row![
                catalog, schema, name, catalog, schema, table, kind, deferrable, deferred, enforced, distinct
            ]);
        };
        for constraint in of_table(table) {
            let deferral = constraint.deferral();
            match constraint.kind() {
                'p' => add(constraint.name(), "PRIMARY KEY", deferral, None),
                'u' => add(constraint.name(), "UNIQUE", deferral, Some("YES")),
                'f' => add(constraint.name(), "FOREIGN KEY", deferral, None),
                _ => add(constraint.name(), "CHECK", deferral, None),
            }
        }
        for (place, _) in not_null(table) {
            add(&not_null_name(table, place), "CHECK", Deferral::Never, None);
        }
    }
    Ok(())
}

/// The unique index that a foreign key refers to.
fn referred<'s>(snapshot: &'s Snapshot, key: &ForeignKey) -> Option<(&'s Arc<TableInfo>, &'s crate::schema::Index)> {
    let parent = snapshot.schema.table(key.parent)?;
    Some((parent, unique_index(&parent.table, &key.parent_columns)?))
}

fn key_column_usage(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for info in class::tables(snapshot).into_iter().filter(|info| Class::Table(info).privileges(snapshot) != 0) {
        let table = &info.table;
        let (catalog, schema) = (&*snapshot.database, namespace_name(snapshot, table.namespace));
        if !sink.admits("table_name", &table.name) || !sink.admits("table_schema", schema) {
            continue;
        }
        for constraint in of_table(table).filter(|constraint| !matches!(constraint, Constraint::Check(_))) {
            for (number, column) in constraint.columns(table).into_iter().enumerate() {
                let Some(column) = table.columns.get(usize::from(column)) else { continue };
                let in_parent = match constraint {
                    Constraint::Foreign(key) => referred(snapshot, key).and_then(|(_, index)| {
                        let wanted = key.parent_columns.get(number)?;
                        index.columns.iter().position(|part| part.column == *wanted).map(|place| place as i32 + 1)
                    }),
                    _ => None,
                };
                sink.push(row![
                    catalog,
                    schema,
                    constraint.name(),
                    catalog,
                    schema,
                    &table.name,
                    &column.name,
                    number as i32 + 1,
                    in_parent,
                ]);
            }
        }
    }
    Ok(())
}

/// The table that the columns of a constraint are of, with their names: for a foreign key those
/// that it refers to.
fn used<'s>(
    snapshot: &'s Snapshot,
    info: &'s TableInfo,
    constraint: Constraint<'s>,
) -> Option<(&'s Table, Vec<&'s str>)> {
    let (table, columns) = match constraint {
        Constraint::Foreign(key) => (&snapshot.schema.table(key.parent)?.table, key.parent_columns.clone()),
        other => (&info.table, other.columns(&info.table)),
    };
    let columns = columns.into_iter().filter_map(|column| table.columns.get(usize::from(column)));
    Some((table, columns.map(|column| column.name.as_str()).collect()))
}

fn constraint_column_usage(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let catalog = &*snapshot.database;
    for info in class::tables(snapshot) {
        let schema = namespace_name(snapshot, info.table.namespace);
        for constraint in of_table(&info.table) {
            let Some((table, columns)) = used(snapshot, info, constraint) else { continue };
            if !snapshot.is_member(table.owner) {
                continue;
            }
            let own = namespace_name(snapshot, table.namespace);
            for column in columns {
                sink.push(row![catalog, own, &table.name, column, catalog, schema, constraint.name()]);
            }
        }
    }
    Ok(())
}

fn constraint_table_usage(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let catalog = &*snapshot.database;
    for info in class::tables(snapshot) {
        let schema = namespace_name(snapshot, info.table.namespace);
        for constraint in of_table(&info.table).filter(|constraint| !matches!(constraint, Constraint::Check(_))) {
            let Some((table, _)) = used(snapshot, info, constraint) else { continue };
            if snapshot.is_member(table.owner) {
                let own = namespace_name(snapshot, table.namespace);
                sink.push(row![catalog, own, &table.name, catalog, schema, constraint.name()]);
            }
        }
    }
    Ok(())
}

fn referential_constraints(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let catalog = &*snapshot.database;
    for info in changeable(snapshot) {
        let schema = namespace_name(snapshot, info.table.namespace);
        for key in &info.table.foreign_keys {
            let unique = referred(snapshot, key);
            sink.push(row![
                catalog,
                schema,
                &key.name,
                unique.map(|_| catalog),
                unique.map(|(parent, _)| namespace_name(snapshot, parent.table.namespace)),
                unique.map(|(_, index)| &index.name),
                "NONE",
                describe::action(key.on_update),
                describe::action(key.on_delete),
            ]);
        }
    }
    Ok(())
}

fn check_constraints(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let catalog = &*snapshot.database;
    for info in owned(snapshot) {
        let table = &info.table;
        let schema = namespace_name(snapshot, table.namespace);
        for check in &table.checks {
            sink.push(row![
                catalog,
                schema,
                &check.name,
                format!("({})", describe::check_condition(snapshot, table, check, false))
            ]);
        }
        for (place, column) in not_null(table) {
            sink.push(row![catalog, schema, not_null_name(table, place), format!("{column} IS NOT NULL")]);
        }
    }
    Ok(())
}
