//! Roles, schemas, databases, tablespaces, extensions.

use std::sync::Arc;

use freshet_sql::{SqlError, Value, types::Timestamp};

use super::{
    Generator, describe,
    sink::{self, NULL, Sink, oids, row},
};
use crate::{
    relations::Snapshot,
    schema::{
        COMMON, Entry, FIRST_ROLE, INFORMATION_SCHEMA, Namespace, Oid, PG_CATALOG, Role, RoleSetting,
        extension::{AVAILABLE, Available},
        privilege,
    },
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("pg_authid", pg_authid),
    ("pg_roles", pg_roles),
    ("pg_user", pg_user),
    ("pg_shadow", pg_shadow),
    ("pg_group", pg_group),
    ("pg_db_role_setting", pg_db_role_setting),
    ("pg_auth_members", pg_auth_members),
    ("pg_namespace", pg_namespace),
    ("pg_database", pg_database),
    ("pg_tablespace", pg_tablespace),
    ("pg_extension", pg_extension),
    ("pg_available_extensions", pg_available_extensions),
    ("pg_available_extension_versions", pg_available_extension_versions),
];

/// The tablespace of all tables.
pub const DEFAULT_TABLESPACE: Oid = 1663;
/// That of the catalogs that databases share.
const GLOBAL_TABLESPACE: Oid = 1664;
/// The number of UTF8 among the encodings.
pub const UTF8: i32 = 6;
/// What is shown for a password.
const HIDDEN: &str = "********";

/// All roles, in the order of their ids.
pub fn roles(snapshot: &Snapshot) -> Vec<&Arc<Role>> {
    let roles = snapshot.schema.entries().filter_map(|entry| match entry {
        Entry::Role(role) => Some(role),
        _ => None,
    });
    let mut roles: Vec<_> = roles.collect();
    roles.sort_unstable_by_key(|role| role.oid);
    roles
}

/// All schemas that users have made, in the order of their ids.
pub fn namespaces(snapshot: &Snapshot) -> Vec<&Arc<Namespace>> {
    let namespaces = snapshot.schema.entries().filter_map(|entry| match entry {
        Entry::Namespace(namespace) => Some(namespace),
        _ => None,
    });
    let mut namespaces: Vec<_> = namespaces.collect();
    namespaces.sort_unstable_by_key(|namespace| namespace.oid);
    namespaces
}

/// The schemas of the system.
pub const SYSTEM_NAMESPACES: &[(Oid, &str)] = &[(PG_CATALOG, "pg_catalog"), (INFORMATION_SCHEMA, "information_schema")];

fn pg_authid(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    snapshot.superusers_only("table pg_authid")?;
    for role in roles(snapshot) {
        sink.push(row![
            role.oid,
            &role.name,
            role.superuser,
            role.inherit,
            role.create_role,
            role.create_database,
            role.login,
            role.superuser,
            role.superuser,
            connection_limit(role),
            role.verifier.as_deref(),
            valid_until(role),
        ]);
    }
    Ok(())
}

fn pg_roles(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for role in roles(snapshot) {
        sink.push(row![
            &role.name,
            role.superuser,
            role.inherit,
            role.create_role,
            role.create_database,
            role.login,
            role.superuser,
            connection_limit(role),
            HIDDEN,
            valid_until(role),
            role.superuser,
            settings_of(common_settings(snapshot), role.oid),
            role.oid,
        ]);
    }
    Ok(())
}

fn connection_limit(role: &Role) -> i32 {
    role.connection_limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(-1)
}

fn valid_until(role: &Role) -> Option<Timestamp> {
    role.valid_until.map(Timestamp)
}

/// The settings for a role or for all, as `name=value`.
fn settings_of(settings: &[RoleSetting], role: Oid) -> Value {
    let meant = settings.iter().filter(|it| it.role == role);
    let texts: Vec<String> = meant.map(|it| format!("{}={}", it.name, it.value)).collect();
    if texts.is_empty() { NULL } else { sink::texts(texts.iter().map(String::as_str)) }
}

/// The settings for all databases.
fn common_settings(snapshot: &Snapshot) -> &[RoleSetting] {
    snapshot.schema.common().map_or(&[], |common| &common.settings)
}

fn pg_db_role_setting(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let databases = snapshot.schema.databases().into_iter().map(|it| (it.oid, it.settings.as_slice()));
    for (database, settings) in [(COMMON, common_settings(snapshot))].into_iter().chain(databases) {
        let mut roles: Vec<Oid> = settings.iter().map(|it| it.role).collect();
        roles.sort_unstable();
        roles.dedup();
        for role in roles {
            sink.push(row![database, role, settings_of(settings, role)]);
        }
    }
    Ok(())
}

fn user(snapshot: &Snapshot, role: &Role, password: Option<&str>) -> Vec<Value> {
    let (superuser, until) = (role.superuser, valid_until(role));
    let settings = settings_of(common_settings(snapshot), role.oid);
    row![&role.name, role.oid, role.create_database, superuser, superuser, superuser, password, until, settings]
}

fn pg_user(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for role in roles(snapshot).into_iter().filter(|role| role.login) {
        sink.push(user(snapshot, role, Some(HIDDEN)));
    }
    Ok(())
}

fn pg_shadow(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    snapshot.superusers_only("view pg_shadow")?;
    for role in roles(snapshot).into_iter().filter(|role| role.login) {
        sink.push(user(snapshot, role, role.verifier.as_deref()));
    }
    Ok(())
}

fn pg_group(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let all = roles(snapshot);
    for role in all.iter().filter(|role| !role.login) {
        let members = all.iter().filter(|member| member.member_of.iter().any(|it| it.role == role.oid));
        let members = members.map(|member| member.oid);
        sink.push(row![&role.name, role.oid, oids(members)]);
    }
    Ok(())
}

fn pg_auth_members(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for role in roles(snapshot) {
        for group in &role.member_of {
            sink.push(row![group.oid, group.role, role.oid, group.grantor, group.admin, group.inherit, group.set]);
        }
    }
    Ok(())
}

fn pg_namespace(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for (oid, name) in SYSTEM_NAMESPACES.iter().copied() {
        let usage = crate::schema::Grant {
            role: 0,
            column: None,
            privileges: privilege::USAGE,
            grantable: 0,
            grantor: FIRST_ROLE,
        };
        let privileges = describe::privileges(snapshot, FIRST_ROLE, &[usage], privilege::ALL_SCHEMA);
        sink.push(row![oid, name, FIRST_ROLE, privileges]);
    }
    for namespace in namespaces(snapshot) {
        let Namespace { oid, name, owner, grants } = &**namespace;
        if sink.admits("oid", *oid) && sink.admits("nspname", name) {
            let privileges = describe::privileges(snapshot, *owner, grants, privilege::ALL_SCHEMA);
            sink.push(row![*oid, name, *owner, privileges]);
        }
    }
    Ok(())
}

fn pg_database(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for database in snapshot.schema.databases() {
        if !sink.admits("oid", database.oid) || !sink.admits("datname", &database.name) {
            continue;
        }
        let limit = database.connection_limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(-1);
        sink.push(row![
            database.oid,
            &database.name,
            database.owner,
            UTF8,
            'c',
            database.is_template,
            database.allow_connections,
            limit,
            0u32,
            0u32,
            DEFAULT_TABLESPACE,
            "C",
            "C.UTF-8",
            NULL,
            NULL,
            describe::database_privileges(snapshot, database),
        ]);
    }
    Ok(())
}

fn pg_tablespace(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    sink.push(row![DEFAULT_TABLESPACE, "pg_default", FIRST_ROLE, NULL, NULL]);
    sink.push(row![GLOBAL_TABLESPACE, "pg_global", FIRST_ROLE, NULL, NULL]);
    Ok(())
}

fn pg_extension(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for extension in snapshot.schema.extensions() {
        let Some(available) = Available::named(&extension.name) else { continue };
        let (oid, owner, namespace) = (extension.oid, extension.owner, extension.namespace);
        sink.push(row![oid, available.name, owner, namespace, !available.system, available.version, NULL, NULL]);
    }
    Ok(())
}

fn pg_available_extensions(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for available in AVAILABLE {
        let installed = snapshot.schema.extension(available.name).map(|_| available.version);
        sink.push(row![available.name, available.version, installed, available.comment]);
    }
    Ok(())
}

fn pg_available_extension_versions(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for available in AVAILABLE {
        let Available { name, version, comment, system, .. } = available;
        let installed = snapshot.schema.extension(name).is_some();
        let schema = system.then_some("pg_catalog");
        sink.push(row![*name, *version, installed, true, true, !system, schema, NULL, *comment]);
    }
    Ok(())
}
