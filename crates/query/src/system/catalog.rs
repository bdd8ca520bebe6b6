//! Tables and what belongs to them: `pg_class`, `pg_attribute`, `pg_index` and their like, and the
//! views over these.

use std::sync::Arc;

use freshet_sql::{Kind, SqlError};

use super::{
    Generator,
    class::{self, Class, default_oid, namespace_name},
    describe, row_type,
    sink::{NULL, Sink, oid_vector, row, short_vector, texts},
    types,
};
use crate::{
    relations::Snapshot,
    schema::{
        DATABASE_OWNER, FIRST_ROLE, Grant, INFORMATION_SCHEMA, Identity, IndexConstraint, Oid, PG_CATALOG, PUBLIC,
        TableInfo, privilege,
    },
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("pg_class", pg_class),
    ("pg_attribute", pg_attribute),
    ("pg_attrdef", pg_attrdef),
    ("pg_index", pg_index),
    ("pg_sequence", pg_sequence),
    ("pg_rewrite", pg_rewrite),
    ("pg_tables", pg_tables),
    ("pg_views", pg_views),
    ("pg_indexes", pg_indexes),
    ("pg_sequences", pg_sequences),
    ("pg_init_privs", pg_init_privs),
];

/// The ids of `pg_class` and `pg_namespace`.
const CLASS: Oid = 1259;
const NAMESPACE: Oid = 2615;

/// The size of a page, in bytes, by which sizes are counted where clients want pages.
pub const PAGE: u64 = 8192;

fn role_name(snapshot: &Snapshot, oid: Oid) -> Option<&String> {
    snapshot.schema.role_by_oid(oid).map(|role| &role.name)
}

/// All privileges that there are on a relation of a kind.
pub(super) fn all_privileges(class: Class<'_>) -> u16 {
    if matches!(class, Class::Sequence(_)) { privilege::ALL_SEQUENCE } else { privilege::ALL_TABLE }
}

/// How many pages and rows a relation has; -1 rows when that is not known.
fn extent(snapshot: &Snapshot, class: Class<'_>) -> (i32, f32) {
    let pages = |bytes: u64| i32::try_from(bytes.div_ceil(PAGE)).unwrap_or(i32::MAX);
    match class {
        Class::Sequence(_) => (1, 1.0),
        Class::Table(info) | Class::Index(info, _) => {
            let Some(size) = snapshot.system.table_size(info) else { return (0, -1.0) };
            let bytes = match class {
                Class::Index(_, index) => {
                    let place = info.table.indexes.iter().position(|known| known.oid == index.oid);
                    place.and_then(|place| size.indexes.get(place)).copied().unwrap_or(0)
                }
                _ => size.row_bytes,
            };
            (pages(bytes), size.rows as f32)
        }
        Class::View(_) | Class::System(_) => (0, -1.0),
    }
}

fn pg_class(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let sized = sink.wants("reltuples") || sink.wants("relpages");
    for class in class::all(snapshot) {
        if !sink.admits("oid", class.oid())
            || !sink.admits("relname", class.name())
            || !sink.admits("relnamespace", class.namespace())
            || !sink.admits("relkind", class.kind())
        {
            continue;
        }
        let table = match class {
            Class::Table(info) => Some(&info.table),
            _ => None,
        };
        let is_table = class.kind() == 'r';
        let (pages, rows) = if sized { extent(snapshot, class) } else { (0, -1.0) };
        let privileges = describe::privileges(snapshot, class.owner(), class.grants(), all_privileges(class));
        // Where PostgreSQL has triggers for foreign keys; clients look for these only if there are
        // any.
        let referential = table
            .is_some_and(|table| !table.foreign_keys.is_empty() || !snapshot.schema.referring(table.oid).is_empty());
        let access_method = match class {
            Class::Index(_, index) => types::access_method(index.method),
            _ if is_table => types::HEAP,
            _ => 0,
        };
        let options = match class {
            Class::View(view) if view.security_invoker => texts(["security_invoker=true".to_owned()]),
            _ => NULL,
        };
        let stored = matches!(class, Class::Table(_) | Class::Index(..) | Class::Sequence(_));
        sink.push(row![
            class.oid(),
            class.name(),
            class.namespace(),
            row_type::of(class),
            0u32,
            class.owner(),
            access_method,
            if stored { class.oid() } else { 0 },
            0u32,
            pages,
            rows,
            0i32,
            0u32,
            table.is_some_and(|table| table.indexes.iter().any(|index| index.oid != 0)),
            false,
            'p',
            class.kind(),
            class.width(),
            table.map_or(0, |table| table.checks.len() as i16),
            matches!(class, Class::View(_)),
            referential,
            false,
            false,
            false,
            true,
            if matches!(class, Class::Table(_)) { 'd' } else { 'n' },
            false,
            0u32,
            0u32,
            0u32,
            privileges,
            options,
            NULL,
        ]);
    }
    Ok(())
}

fn pg_attribute(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for class in class::all(snapshot) {
        if !sink.admits("attrelid", class.oid()) {
            continue;
        }
        for attribute in class.attributes() {
            if !sink.admits("attname", &*attribute.name) || !sink.admits("attnum", attribute.number) {
                continue;
            }
            let kind = attribute.ty.kind();
            let info = types::info(kind);
            let identity = match attribute.identity {
                Some(Identity::Always) => 'a',
                Some(Identity::ByDefault) => 'd',
                None => '\0',
            };
            sink.push(row![
                class.oid(),
                &*attribute.name,
                if attribute.dropped { 0 } else { kind.oid() },
                if attribute.dropped { 0 } else { -1i32 },
                kind.length(),
                attribute.number,
                i32::from(kind.is_array() && !matches!(kind, Kind::Int2Vector | Kind::OidVector)),
                -1i32,
                attribute.ty.modifier(),
                types::by_value(kind),
                info.alignment,
                info.storage,
                '\0',
                attribute.not_null && !attribute.dropped,
                attribute.default.is_some(),
                attribute.missing,
                identity,
                '\0',
                attribute.dropped,
                true,
                0i32,
                info.collation,
                describe::column_privileges(snapshot, class.grants(), attribute.number as u16 - 1),
                NULL,
                NULL,
                NULL,
            ]);
        }
    }
    Ok(())
}

fn pg_attrdef(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for info in class::tables(snapshot) {
        let oid = info.table.oid;
        if !sink.admits("adrelid", oid) {
            continue;
        }
        for attribute in Class::Table(info).attributes() {
            if let Some(default) = attribute.default {
                sink.push(row![default_oid(oid, attribute.number), oid, attribute.number, default]);
            }
        }
    }
    Ok(())
}

fn pg_index(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for info in class::tables(snapshot) {
        let table = &info.table;
        if !sink.admits("indrelid", table.oid) {
            continue;
        }
        for index in table.indexes.iter().filter(|index| index.oid != 0) {
            if !sink.admits("indexrelid", index.oid) {
                continue;
            }
            let types = || index.columns.iter().map(|part| info.column_type(usize::from(part.column)));
            let keys = index.columns.len() as i16;
            let is_computed = |column: u16| info.table.columns[usize::from(column)].computed.is_some();
            let number = |column: u16| if is_computed(column) { 0 } else { column as i16 + 1 };
            let columns = index.columns.iter().map(|part| part.column).chain(index.include.iter().copied());
            let computed = index.columns.iter().filter_map(|part| info.shown_expression(part.column, false));
            let computed = crate::deparse::list(computed);
            let place = table.indexes.iter().position(|known| known.oid == index.oid);
            let collation = |part: &crate::schema::IndexColumn| match part.collation.as_deref() {
                Some(name) => types::collation_named(name),
                None => types::collation(info.column_type(usize::from(part.column))),
            };
            let class = |(part, ty): (&crate::schema::IndexColumn, _)| {
                types::class_named(part.class.as_deref(), ty, index.method)
            };
            sink.push(row![
                index.oid,
                table.oid,
                keys + index.include.len() as i16,
                keys,
                index.unique,
                index.nulls_not_distinct,
                index.constraint == IndexConstraint::Primary,
                false,
                !index.deferral.is_deferrable(),
                false,
                true,
                false,
                true,
                true,
                false,
                short_vector(columns.map(number)),
                oid_vector(index.columns.iter().map(collation)),
                oid_vector(index.columns.iter().zip(types()).map(class)),
                // One bit says "descending", another one "nulls first".
                short_vector(index.columns.iter().map(|it| i16::from(it.descending) | i16::from(it.nulls_first) << 1)),
                (!computed.is_empty()).then_some(computed),
                place.and_then(|place| info.shown_predicate(place, false)),
            ]);
        }
    }
    Ok(())
}

fn pg_sequence(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for sequence in class::sequences(snapshot) {
        sink.push(row![
            sequence.oid,
            sequence.ty.oid(),
            sequence.start,
            sequence.increment,
            sequence.maximum,
            sequence.minimum,
            sequence.cache,
            sequence.cycle,
        ]);
    }
    Ok(())
}

fn pg_rewrite(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for view in class::views(snapshot) {
        sink.push(row![view.oid, "_RETURN", view.oid, '1', 'O', true, "<>", &view.query]);
    }
    Ok(())
}

fn pg_tables(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for class in class::all(snapshot).into_iter().filter(|class| class.kind() == 'r') {
        let (indexed, referential) = match class {
            Class::Table(info) => (
                info.table.indexes.iter().any(|index| index.oid != 0),
                !info.table.foreign_keys.is_empty() || !snapshot.schema.referring(info.table.oid).is_empty(),
            ),
            _ => (false, false),
        };
        let (schema, owner) = (namespace_name(snapshot, class.namespace()), role_name(snapshot, class.owner()));
        sink.push(row![schema, class.name(), owner, NULL, indexed, false, referential, false]);
    }
    Ok(())
}

fn pg_views(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for view in class::views(snapshot) {
        let schema = namespace_name(snapshot, view.namespace);
        sink.push(row![schema, &view.name, role_name(snapshot, view.owner), describe::view(view)]);
    }
    Ok(())
}

fn pg_indexes(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for info in class::tables(snapshot) {
        let table = &info.table;
        let schema = namespace_name(snapshot, table.namespace);
        if !sink.admits("tablename", &table.name) || !sink.admits("schemaname", schema) {
            continue;
        }
        for index in table.indexes.iter().filter(|index| index.oid != 0) {
            let definition = describe::index(snapshot, info, index, false);
            sink.push(row![schema, &table.name, &index.name, NULL, definition]);
        }
    }
    Ok(())
}

fn pg_sequences(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for sequence in class::sequences(snapshot) {
        let (owner, grants) = (sequence.owner, &sequence.grants);
        let held = snapshot.schema.privileges(snapshot.role, owner, grants);
        if held == 0 {
            continue;
        }
        let last = if sink.wants("last_value") && held & (privilege::SELECT | privilege::USAGE) != 0 {
            let position = snapshot.system.sequence_position(sequence)?;
            position.called.then_some(position.value)
        } else {
            None
        };
        sink.push(row![
            namespace_name(snapshot, sequence.namespace),
            &sequence.name,
            role_name(snapshot, owner),
            sequence.ty.oid(),
            sequence.start,
            sequence.minimum,
            sequence.maximum,
            sequence.increment,
            sequence.cycle,
            sequence.cache,
            last,
        ]);
    }
    Ok(())
}

/// The table that has a sequence, with the number of the column, from 1.
pub(super) fn owner_of<'s>(
    snapshot: &'s Snapshot,
    sequence: &crate::schema::Sequence,
) -> Option<(&'s Arc<TableInfo>, i16)> {
    let (table, column) = sequence.owned_by?;
    Some((snapshot.schema.table(table)?, column as i16 + 1))
}

/// The privileges that there are from the beginning: pg_dump writes only what was changed since.
fn pg_init_privs(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for class in class::all(snapshot).into_iter().filter(|class| matches!(class, Class::System(_))) {
        let privileges = describe::privileges(snapshot, class.owner(), class.grants(), all_privileges(class));
        if !privileges.is_null() {
            sink.push(row![class.oid(), CLASS, 0i32, 'i', privileges]);
        }
    }
    let schemas = [(PG_CATALOG, FIRST_ROLE), (INFORMATION_SCHEMA, FIRST_ROLE), (PUBLIC, DATABASE_OWNER)];
    for (oid, owner) in schemas {
        let usage = Grant { role: 0, column: None, privileges: privilege::USAGE, grantable: 0, grantor: owner };
        let privileges = describe::privileges(snapshot, owner, &[usage], privilege::ALL_SCHEMA);
        sink.push(row![oid, NAMESPACE, 0i32, 'i', privileges]);
    }
    Ok(())
}
