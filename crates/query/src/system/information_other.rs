//! `information_schema`: functions, privileges, roles, and what is the same everywhere.

use freshet_sql::{Kind, SqlError, Type, functions::Volatility};

use super::{
    Generator,
    class::{Class, namespace_name},
    information::{accessible, facets},
    role, routine,
    sink::{NULL, Sink, row, yes},
    types::COLLATIONS,
};
use crate::{
    relations::Snapshot,
    schema::{Grant, Oid, privilege},
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("information_schema_catalog_name", information_schema_catalog_name),
    ("character_sets", character_sets),
    ("collations", collations),
    ("collation_character_set_applicability", collation_character_set_applicability),
    ("enabled_roles", enabled_roles),
    ("applicable_roles", applicable_roles),
    ("table_privileges", table_privileges),
    ("role_table_grants", role_table_grants),
    ("column_privileges", column_privileges),
    ("role_column_grants", role_column_grants),
    ("routines", routines),
    ("parameters", parameters),
];

fn information_schema_catalog_name(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    sink.push(row![&*snapshot.database]);
    Ok(())
}

fn character_sets(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    sink.push(row![NULL, NULL, "UTF8", "UCS", "UTF8", &*snapshot.database, "pg_catalog", "C"]);
    Ok(())
}

fn collations(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for (_, name, _) in COLLATIONS {
        sink.push(row![&*snapshot.database, "pg_catalog", *name, "NO PAD"]);
    }
    Ok(())
}

fn collation_character_set_applicability(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for (_, name, _) in COLLATIONS {
        sink.push(row![&*snapshot.database, "pg_catalog", *name, NULL, NULL, "UTF8"]);
    }
    Ok(())
}

fn enabled_roles(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for role in role::roles(snapshot).into_iter().filter(|role| snapshot.is_member(role.oid)) {
        sink.push(row![&role.name]);
    }
    Ok(())
}

fn applicable_roles(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for role in role::roles(snapshot).into_iter().filter(|role| snapshot.is_member(role.oid)) {
        for member_of in &role.member_of {
            if let Some(group) = snapshot.schema.role_by_oid(member_of.role) {
                sink.push(row![&role.name, &group.name, yes(member_of.admin)]);
            }
        }
    }
    Ok(())
}

/// What privileges on tables are called.
const NAMES: &[(u16, &str)] = &[
    (privilege::INSERT, "INSERT"),
    (privilege::SELECT, "SELECT"),
    (privilege::UPDATE, "UPDATE"),
    (privilege::DELETE, "DELETE"),
    (privilege::TRUNCATE, "TRUNCATE"),
    (privilege::REFERENCES, "REFERENCES"),
    (privilege::TRIGGER, "TRIGGER"),
];
/// Those that columns have.
const OF_COLUMNS: u16 = privilege::INSERT | privilege::SELECT | privilege::UPDATE | privilege::REFERENCES;

/// A role's name; `PUBLIC` for all.
fn role_name(snapshot: &Snapshot, oid: Oid) -> String {
    match oid {
        0 => "PUBLIC".to_owned(),
        oid => snapshot.schema.role_by_oid(oid).map_or_else(|| oid.to_string(), |role| role.name.clone()),
    }
}

/// Calls `add` with each privilege on a relation, or on one column of it, that the statement's role
/// has given or got: grantor, grantee, its name, whether it may be granted on.
fn each_privilege(
    snapshot: &Snapshot,
    class: Class<'_>,
    column: Option<u16>,
    public: bool,
    mut add: impl FnMut(String, String, &'static str, u16, bool),
) {
    let owner = class.owner();
    let own = Grant {
        role: owner,
        column: None,
        privileges: privilege::ALL_TABLE,
        grantable: privilege::ALL_TABLE,
        grantor: owner,
    };
    let counts = |grant: &&Grant| grant.role != owner && (grant.column.is_none() || grant.column == column);
    let listed = class.grants().iter().filter(counts);
    for grant in std::iter::once(&own).chain(listed) {
        let concerned = snapshot.is_member(grant.grantor)
            || grant.role != 0 && snapshot.is_member(grant.role)
            || grant.role == 0 && public;
        if !concerned {
            continue;
        }
        for (bit, name) in NAMES.iter().copied().filter(|(bit, _)| grant.privileges & bit != 0) {
            let (by, to) = (role_name(snapshot, grant.grantor), role_name(snapshot, grant.role));
            add(by, to, name, bit, grant.grantable & bit != 0);
        }
    }
}

fn of_tables(snapshot: &Snapshot, sink: &mut Sink<'_>, public: bool) {
    let catalog = &*snapshot.database;
    for class in accessible(snapshot) {
        let schema = namespace_name(snapshot, class.namespace());
        if sink.admits("table_name", class.name()) && sink.admits("table_schema", schema) {
            each_privilege(snapshot, class, None, public, |by, to, name, bit, grantable| {
                let hierarchy = bit == privilege::SELECT;
                sink.push(row![by, to, catalog, schema, class.name(), name, yes(grantable), yes(hierarchy)]);
            });
        }
    }
}

fn table_privileges(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    of_tables(snapshot, sink, true);
    Ok(())
}

fn role_table_grants(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    of_tables(snapshot, sink, false);
    Ok(())
}

fn of_columns(snapshot: &Snapshot, sink: &mut Sink<'_>, public: bool) {
    let catalog = &*snapshot.database;
    for class in accessible(snapshot) {
        let schema = namespace_name(snapshot, class.namespace());
        if !sink.admits("table_name", class.name()) || !sink.admits("table_schema", schema) {
            continue;
        }
        for attribute in class.attributes().iter().filter(|attribute| !attribute.dropped) {
            let number = attribute.number as u16 - 1;
            // A privilege that is granted both on the relation and on the column is listed once.
            let mut shown = Vec::new();
            each_privilege(snapshot, class, Some(number), public, |by, to, name, bit, grantable| {
                let this = (by.clone(), to.clone(), bit);
                if bit & OF_COLUMNS != 0 && shown.contains(&this) {
                    return;
                }
                shown.push(this);
                if bit & OF_COLUMNS != 0 {
                    let (table, column) = (class.name(), &*attribute.name);
                    sink.push(row![by, to, catalog, schema, table, column, name, yes(grantable)]);
                }
            });
        }
    }
}

fn column_privileges(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    of_columns(snapshot, sink, true);
    Ok(())
}

fn role_column_grants(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    of_columns(snapshot, sink, false);
    Ok(())
}

fn routines(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let catalog = &*snapshot.database;
    for routine in routine::all() {
        if !sink.admits("routine_name", routine.name) {
            continue;
        }
        let kind = Kind::from_oid(routine.result);
        let function = !routine.aggregate;
        let specific = format!("{}_{}", routine.name, routine.oid);
        let mut row =
            row![catalog, "pg_catalog", specific, catalog, "pg_catalog", routine.name, function.then_some("FUNCTION"),];
        row.extend(std::iter::repeat_n(NULL, 6));
        row.push(match kind {
            Some(kind) => super::sink::Cell::cell(facets(Type::of(kind)).name),
            None => super::sink::Cell::cell(routine::type_name(routine.result)),
        });
        row.extend(std::iter::repeat_n(NULL, 14));
        row.extend(row![catalog, "pg_catalog", kind.map(Kind::catalog_name), NULL, NULL, NULL, NULL, "0"]);
        row.extend(row!["EXTERNAL", routine.name, NULL, "INTERNAL", "GENERAL"]);
        row.extend(row![yes(routine.volatility == Volatility::Immutable), "MODIFIES", yes(routine.strict), NULL]);
        row.extend(row!["YES", 0i32, NULL, NULL, "INVOKER", NULL, NULL, NULL, "NO", NULL, NULL, NULL, "NO"]);
        row.extend(std::iter::repeat_n(NULL, 24));
        sink.push(row);
    }
    Ok(())
}

fn parameters(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let catalog = &*snapshot.database;
    for routine in routine::all() {
        let specific = format!("{}_{}", routine.name, routine.oid);
        if !sink.admits("specific_name", &specific) {
            continue;
        }
        for (place, oid) in routine.arguments.iter().enumerate() {
            let kind = Kind::from_oid(*oid);
            let number = place as i32 + 1;
            let mut row = row![catalog, "pg_catalog", &specific, number, "IN", "NO", "NO", NULL];
            row.push(match kind {
                Some(kind) => super::sink::Cell::cell(facets(Type::of(kind)).name),
                None => super::sink::Cell::cell(routine::type_name(*oid)),
            });
            row.extend(std::iter::repeat_n(NULL, 14));
            row.extend(row![catalog, "pg_catalog", kind.map(Kind::catalog_name), NULL, NULL, NULL, NULL]);
            row.extend(row![number.to_string(), NULL]);
            sink.push(row);
        }
    }
    Ok(())
}
