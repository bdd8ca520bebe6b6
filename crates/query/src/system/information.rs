//! `information_schema`: tables, columns, views, sequences, schemas.

use freshet_sql::{Kind, SqlError, Type, Value, types::interval_fields};

use super::{
    Generator, catalog,
    class::{self, Class, namespace_name},
    describe, role,
    sink::{NULL, Sink, row, yes},
    types::{C_COLLATION, COLLATIONS, DEFAULT_COLLATION, collation},
};
use crate::{
    relations::Snapshot,
    schema::{Identity, Oid, Sequence, privilege},
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("tables", tables),
    ("columns", columns),
    ("views", views),
    ("view_table_usage", view_table_usage),
    ("sequences", sequences),
    ("schemata", schemata),
];

/// How long the longest text is, in bytes, as far as clients are told.
const LONGEST: i32 = 1 << 30;
/// How many bytes a character takes at most.
const LONGEST_CHARACTER: i32 = 4;

/// Relations with columns that the statement's role may do something with, or that it owns.
pub(super) fn accessible(snapshot: &Snapshot) -> Vec<Class<'_>> {
    let mut classes = class::all(snapshot);
    classes.retain(|class| matches!(class.kind(), 'r' | 'v') && class.privileges(snapshot) != 0);
    classes
}

fn tables(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for class in accessible(snapshot) {
        let schema = namespace_name(snapshot, class.namespace());
        if !sink.admits("table_name", class.name()) || !sink.admits("table_schema", schema) {
            continue;
        }
        let table = class.kind() == 'r';
        sink.push(row![
            &*snapshot.database,
            schema,
            class.name(),
            if table { "BASE TABLE" } else { "VIEW" },
            NULL,
            NULL,
            NULL,
            NULL,
            NULL,
            yes(matches!(class, Class::Table(_))),
            "NO",
            NULL,
        ]);
    }
    Ok(())
}

/// What the columns about a type say of it.
pub(super) struct Facets {
    /// Its name in SQL.
    pub name: &'static str,
    /// The most characters.
    pub characters: Option<i32>,
    /// The most bytes, of text.
    pub octets: Option<i32>,
    /// How many digits a number has.
    pub precision: Option<i32>,
    /// The base of the digits.
    pub radix: Option<i32>,
    /// Digits behind the point.
    pub scale: Option<i32>,
    /// Digits of seconds.
    pub seconds: Option<i32>,
    /// The fields of an interval, where it does not have all.
    pub fields: Option<&'static str>,
}

/// The same of a type.
pub(super) fn facets(ty: Type) -> Facets {
    let kind = ty.kind();
    let name = if kind.is_array() { "ARRAY" } else { kind.sql_name() };
    let none = none_of(name);
    let whole = |bits: i32| Facets { precision: Some(bits), radix: Some(2), scale: Some(0), ..none_of(name) };
    match kind {
        Kind::Text => Facets { octets: Some(LONGEST), ..none },
        Kind::Varchar | Kind::Char => {
            let characters = ty.character_length().and_then(|length| i32::try_from(length).ok());
            let octets = characters.map_or(LONGEST, |length| length.saturating_mul(LONGEST_CHARACTER));
            Facets { characters, octets: Some(octets), ..none }
        }
        Kind::Int2 => whole(16),
        Kind::Int4 => whole(32),
        Kind::Int8 => whole(64),
        Kind::Float4 => Facets { precision: Some(24), radix: Some(2), ..none },
        Kind::Float8 => Facets { precision: Some(53), radix: Some(2), ..none },
        Kind::Numeric => Facets {
            precision: ty.precision().map(|precision| precision.digits.into()),
            scale: ty.precision().map(|precision| (precision.scale & 0x7ff).into()),
            radix: Some(10),
            ..none
        },
        Kind::Date => Facets { seconds: Some(0), ..none },
        Kind::Time | Kind::Timestamp | Kind::Timestamptz => {
            Facets { seconds: Some(ty.seconds_digits().map_or(6, |digits| digits as i32)), ..none }
        }
        Kind::Interval => Facets {
            seconds: Some(ty.seconds_digits().map_or(6, |digits| digits as i32)),
            fields: ty.interval_fields().and_then(fields_name),
            ..none
        },
        _ => none,
    }
}

fn none_of(name: &'static str) -> Facets {
    Facets {
        name,
        characters: None,
        octets: None,
        precision: None,
        radix: None,
        scale: None,
        seconds: None,
        fields: None,
    }
}

fn fields_name(fields: i32) -> Option<&'static str> {
    use interval_fields::{DAY, HOUR, MINUTE, MONTH, SECOND, YEAR};
    let names: &[(i32, &'static str)] = &[
        (YEAR, "YEAR"),
        (MONTH, "MONTH"),
        (DAY, "DAY"),
        (HOUR, "HOUR"),
        (MINUTE, "MINUTE"),
        (SECOND, "SECOND"),
        (YEAR | MONTH, "YEAR TO MONTH"),
        (DAY | HOUR, "DAY TO HOUR"),
        (DAY | HOUR | MINUTE, "DAY TO MINUTE"),
        (DAY | HOUR | MINUTE | SECOND, "DAY TO SECOND"),
        (HOUR | MINUTE, "HOUR TO MINUTE"),
        (HOUR | MINUTE | SECOND, "HOUR TO SECOND"),
        (MINUTE | SECOND, "MINUTE TO SECOND"),
    ];
    names.iter().find(|(known, _)| *known == fields).map(|(_, name)| *name)
}

/// The name of a column's collation, where it is not that of its type.
pub(super) fn collation_name(ty: Type) -> Option<&'static str> {
    let oid = collation(ty);
    if oid == 0 || oid == DEFAULT_COLLATION {
        return None;
    }
    debug_assert_eq!(oid, C_COLLATION);
    COLLATIONS.iter().find(|(known, ..)| *known == oid).map(|(_, name, _)| *name)
}

/// The sequence behind an identity column.
fn identity_sequence(snapshot: &Snapshot, table: Oid, number: i16) -> Option<&Sequence> {
    let owned = (table, number as u16 - 1);
    class::sequences(snapshot).into_iter().find(|sequence| sequence.owned_by == Some(owned)).map(|sequence| &**sequence)
}

fn columns(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let catalog = &*snapshot.database;
    for class in accessible(snapshot) {
        let schema = namespace_name(snapshot, class.namespace());
        if !sink.admits("table_name", class.name()) || !sink.admits("table_schema", schema) {
            continue;
        }
        for attribute in class.attributes().into_iter().filter(|attribute| !attribute.dropped) {
            if !sink.admits("column_name", &*attribute.name) {
                continue;
            }
            let facets = facets(attribute.ty);
            let collation = collation_name(attribute.ty);
            let sequence = attribute.identity.and_then(|_| identity_sequence(snapshot, class.oid(), attribute.number));
            let of = |value: fn(&Sequence) -> i64| sequence.map(|sequence| value(sequence).to_string());
            sink.push(row![
                catalog,
                schema,
                class.name(),
                &*attribute.name,
                i32::from(attribute.number),
                attribute.default.map(|default| describe::default(snapshot, default, attribute.ty, false)),
                yes(!attribute.not_null),
                facets.name,
                facets.characters,
                facets.octets,
                facets.precision,
                facets.radix,
                facets.scale,
                facets.seconds,
                facets.fields,
                NULL,
                NULL,
                NULL,
                NULL,
                collation.map(|_| catalog),
                collation.map(|_| "pg_catalog"),
                collation,
                NULL,
                NULL,
                NULL,
                catalog,
                "pg_catalog",
                attribute.ty.kind().catalog_name(),
                NULL,
                NULL,
                NULL,
                NULL,
                attribute.number.to_string(),
                "NO",
                yes(attribute.identity.is_some()),
                attribute.identity.map(|identity| match identity {
                    Identity::Always => "ALWAYS",
                    Identity::ByDefault => "BY DEFAULT",
                }),
                of(|sequence| sequence.start),
                of(|sequence| sequence.increment),
                of(|sequence| sequence.maximum),
                of(|sequence| sequence.minimum),
                yes(sequence.is_some_and(|sequence| sequence.cycle)),
                "NEVER",
                NULL,
                yes(matches!(class, Class::Table(_))),
            ]);
        }
    }
    Ok(())
}

fn views(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for view in class::views(snapshot) {
        if Class::View(view).privileges(snapshot) == 0 {
            continue;
        }
        // Only who owns it may know what it is made of.
        let query = snapshot.is_member(view.owner).then(|| describe::view(view));
        let (catalog, schema) = (&*snapshot.database, namespace_name(snapshot, view.namespace));
        sink.push(row![catalog, schema, &view.name, query, "NONE", "NO", "NO", "NO", "NO", "NO"]);
    }
    Ok(())
}

fn view_table_usage(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let catalog = &*snapshot.database;
    for view in class::views(snapshot) {
        for used in view.uses.iter().filter_map(|used| class::by_oid(snapshot, *used)) {
            if snapshot.is_member(used.owner()) {
                let view_schema = namespace_name(snapshot, view.namespace);
                let schema = namespace_name(snapshot, used.namespace());
                sink.push(row![catalog, view_schema, &view.name, catalog, schema, used.name()]);
            }
        }
    }
    Ok(())
}

fn sequences(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for sequence in class::sequences(snapshot) {
        let identity = catalog::owner_of(snapshot, sequence)
            .and_then(|(info, number)| info.table.columns.get(number as usize - 1))
            .is_some_and(|column| column.identity.is_some());
        if identity || Class::Sequence(sequence).privileges(snapshot) == 0 {
            continue;
        }
        let facets = facets(sequence.ty);
        let text = |number: i64| Value::text(number.to_string());
        sink.push(row![
            &*snapshot.database,
            namespace_name(snapshot, sequence.namespace),
            &sequence.name,
            facets.name,
            facets.precision,
            facets.radix,
            facets.scale,
            text(sequence.start),
            text(sequence.minimum),
            text(sequence.maximum),
            text(sequence.increment),
            yes(sequence.cycle),
        ]);
    }
    Ok(())
}

fn schemata(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let name = |oid: Oid| snapshot.schema.role_by_oid(oid).map(|role| &role.name);
    let mut schema = |schema: &str, owner: Oid| {
        sink.push(row![&*snapshot.database, schema, name(owner), NULL, NULL, NULL, NULL]);
    };
    for (_, system) in role::SYSTEM_NAMESPACES {
        schema(system, crate::schema::FIRST_ROLE);
    }
    for namespace in role::namespaces(snapshot) {
        let held = snapshot.schema.privileges(snapshot.role, namespace.owner, &namespace.grants);
        if held & privilege::ALL_SCHEMA != 0 {
            schema(&namespace.name, namespace.owner);
        }
    }
    Ok(())
}
