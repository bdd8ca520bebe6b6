//! What depends on what: `pg_depend`. pg_dump writes what depends on something behind that.
//!
//! Rows are PostgreSQL's, in all that the two have in common. As there, nothing depends on what
//! every database has from the beginning.

use std::collections::BTreeSet;

use freshet_sql::SqlError;

use super::{
    Generator, catalog,
    class::{self, Class, PG_ATTRDEF, PG_CLASS, PG_CONSTRAINT, PG_EXTENSION, PG_NAMESPACE, PG_REWRITE, default_oid},
    constraint::{Constraint, of_table, unique_index},
    object::{PG_PROC, PG_TYPE},
    routine, row_type,
    sink::{Sink, row},
};
use crate::{
    ddl::objects_of,
    relations::Snapshot,
    schema::{IndexConstraint, Oid, Schema, TableInfo, View, extension::Available, references::functions_of},
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[("pg_depend", pg_depend)];

/// The catalog that a thing is in, its id, and the number of its column or 0.
type Thing = (Oid, Oid, i32);

/// Each pair with the kind of the dependency.
type Found = BTreeSet<(Thing, Thing, char)>;

fn pg_depend(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let mut found = Found::new();
    for info in class::tables(snapshot) {
        table(snapshot, info, &mut found);
    }
    for view in class::views(snapshot) {
        self::view(snapshot, view, &mut found);
    }
    for sequence in class::sequences(snapshot) {
        let of = (PG_CLASS, sequence.oid, 0);
        found.insert((of, (PG_NAMESPACE, sequence.namespace, 0), 'n'));
        if let Some((info, number)) = catalog::owner_of(snapshot, sequence) {
            let column = info.table.columns.get(number as usize - 1);
            // A column may own others besides that which its identity comes from.
            let default = column.filter(|column| column.identity.is_some()).and_then(|it| it.default.as_deref());
            let identity = default.is_some_and(|default| objects_of(default).contains(&sequence.oid));
            found.insert((of, column_of(info.table.oid, number), if identity { 'i' } else { 'a' }));
        }
    }
    for extension in snapshot.schema.extensions() {
        let itself = (PG_EXTENSION, extension.oid, 0);
        found.insert((itself, (PG_NAMESPACE, extension.namespace, 0), 'n'));
        let functions = Available::named(&extension.name).map_or(&[][..], |available| available.functions);
        let members = functions.iter().flat_map(|name| routine::by_name(name));
        found.extend(members.map(|routine| ((PG_PROC, routine.oid, 0), itself, 'e')));
    }
    for (of, on, kind) in found {
        sink.push(row![of.0, of.1, of.2, on.0, on.1, on.2, kind]);
    }
    Ok(())
}

fn column_of(relation: Oid, number: i16) -> Thing {
    (PG_CLASS, relation, i32::from(number))
}

/// What every relation with rows has: its schema, the type of its rows, and that of arrays of them.
fn relation(class: Class<'_>, found: &mut Found) {
    let of = (PG_CLASS, class.oid(), 0);
    found.insert((of, (PG_NAMESPACE, class.namespace(), 0), 'n'));
    let (row, array) = ((PG_TYPE, row_type::of(class), 0), (PG_TYPE, row_type::array_of(class), 0));
    found.insert((row, of, 'i'));
    found.insert((array, row, 'i'));
}

/// The relations and the functions of extensions in an expression.
fn expression(schema: &Schema, of: Thing, text: &str, found: &mut Found) {
    found.extend(objects_of(text).into_iter().map(|oid| (of, (PG_CLASS, oid, 0), 'n')));
    functions(schema, of, &functions_of(text), found);
}

/// Those of these functions that extensions have brought.
fn functions(schema: &Schema, of: Thing, called: &BTreeSet<(String, usize)>, found: &mut Found) {
    let extensions = schema.extensions();
    for (name, arguments) in called {
        let brought = extensions.iter().filter_map(|it| Available::named(&it.name));
        if brought.flat_map(|it| it.functions).any(|function| function == name) {
            let with = routine::by_name(name).filter(|routine| routine.arguments.len() == *arguments);
            found.extend(with.map(|routine| (of, (PG_PROC, routine.oid, 0), 'n')));
        }
    }
}

fn table(snapshot: &Snapshot, info: &std::sync::Arc<TableInfo>, found: &mut Found) {
    let (schema, table) = (&snapshot.schema, &info.table);
    relation(Class::Table(info), found);
    for attribute in Class::Table(info).attributes() {
        if let Some(text) = attribute.default {
            let default = (PG_ATTRDEF, default_oid(table.oid, attribute.number), 0);
            found.insert((default, column_of(table.oid, attribute.number), 'a'));
            expression(schema, default, text, found);
        }
    }
    for (place, index) in table.indexes.iter().enumerate().filter(|(_, index)| index.oid != 0) {
        let of = (PG_CLASS, index.oid, 0);
        if index.constraint != IndexConstraint::None {
            found.insert((of, (PG_CONSTRAINT, index.oid, 0), 'i'));
            continue;
        }
        columns(of, table.oid, &info.columns_of(place), found);
        let plain = index.columns.iter().map(|part| part.column).chain(index.include.iter().copied());
        if plain.into_iter().all(|column| info.computed.iter().any(|it| it.column == column)) {
            found.insert((of, (PG_CLASS, table.oid, 0), 'a'));
        }
        info.texts_of(place).into_iter().for_each(|text| expression(schema, of, text, found));
    }
    for constraint in of_table(table) {
        let of = (PG_CONSTRAINT, constraint.oid(), 0);
        let mut own = constraint.columns(table);
        if let Constraint::Key(index) = constraint {
            own.extend(&index.include);
        }
        columns(of, table.oid, &own, found);
        match constraint {
            Constraint::Check(check) => {
                found.extend(own.iter().map(|column| (of, column_of(table.oid, *column as i16 + 1), 'n')));
                expression(schema, of, &check.condition, found);
            }
            Constraint::Foreign(key) => {
                let theirs = key.parent_columns.iter();
                found.extend(theirs.map(|column| (of, column_of(key.parent, *column as i16 + 1), 'n')));
                let parent = schema.table(key.parent);
                let index = parent.and_then(|parent| unique_index(&parent.table, &key.parent_columns));
                found.extend(index.map(|index| (of, (PG_CLASS, index.oid, 0), 'n')));
            }
            Constraint::Key(_) => {}
        }
    }
}

/// Something goes with columns of its table, or with the table where it has none.
fn columns(of: Thing, table: Oid, numbers: &[u16], found: &mut Found) {
    found.extend(numbers.iter().map(|column| (of, column_of(table, *column as i16 + 1), 'a')));
    if numbers.is_empty() {
        found.insert((of, column_of(table, 0), 'a'));
    }
}

fn view(snapshot: &Snapshot, view: &std::sync::Arc<View>, found: &mut Found) {
    relation(Class::View(view), found);
    let rule = (PG_REWRITE, view.oid, 0);
    found.insert((rule, (PG_CLASS, view.oid, 0), 'i'));
    // PostgreSQL has this twice, since the rule is what the view's columns come from.
    found.insert((rule, (PG_CLASS, view.oid, 0), 'n'));
    let references = view.references(&snapshot.schema);
    found.extend(references.columns.into_iter().map(|(oid, column)| (rule, (PG_CLASS, oid, column), 'n')));
    found.extend(references.keys.into_iter().map(|oid| (rule, (PG_CONSTRAINT, oid, 0), 'n')));
    functions(&snapshot.schema, rule, &references.functions, found);
}
