//! GRANT and REVOKE on objects.

use freshet_sql::{SqlError, SqlState};

use super::{
    database::no_database,
    syntax::{self, GrantObjects, RoleName},
    work::{Step, Work, error},
};
use crate::schema::{Column, Entry, Grant, Named, Object, Oid, Schema, privilege};

/// What privileges are granted on.
struct Target {
    object: Object,
    kind: &'static str,
    /// All privileges that there are on it.
    all: u16,
}

impl Target {
    fn owner(&self) -> Oid {
        match &self.object {
            Object::Namespace(it) => it.owner,
            Object::Table(it) => it.owner,
            Object::View(it) => it.owner,
            Object::Sequence(it) => it.owner,
            Object::Database(it) => it.owner,
            Object::Extension(it) => it.owner,
            Object::Role(_) | Object::Comment(_) | Object::Common(_) => 0,
        }
    }

    /// The names of its columns by their numbers; hidden columns have none.
    fn columns(&self) -> Vec<String> {
        match &self.object {
            Object::Table(it) => {
                let name = |column: &Column| if column.is_visible() { column.name.clone() } else { String::new() };
                it.columns.iter().map(name).collect()
            }
            Object::View(it) => it.columns.iter().map(|(name, _)| name.clone()).collect(),
            _ => Vec::new(),
        }
    }

    fn grants(&mut self) -> Option<&mut Vec<Grant>> {
        match &mut self.object {
            Object::Namespace(it) => Some(&mut it.grants),
            Object::Table(it) => Some(&mut it.grants),
            Object::View(it) => Some(&mut it.grants),
            Object::Sequence(it) => Some(&mut it.grants),
            Object::Database(it) => Some(&mut it.grants),
            Object::Role(_) | Object::Comment(_) | Object::Common(_) | Object::Extension(_) => None,
        }
    }
}

impl Work<'_, '_, '_> {
    fn relation_target(&self, named: Named) -> Result<Option<Target>, SqlError> {
        Ok(Some(match named {
            Named::Table(oid) => {
                let object = Object::Table(self.table_by_oid(oid)?.table.clone());
                Target { object, kind: "table", all: privilege::ALL_TABLE }
            }
            Named::View(oid) => {
                let object = Object::View((*self.view_by_oid(oid)?).clone());
                Target { object, kind: "view", all: privilege::ALL_TABLE }
            }
            Named::Sequence(oid) => {
                let object = Object::Sequence((*self.sequence_by_oid(oid)?).clone());
                Target { object, kind: "sequence", all: privilege::ALL_SEQUENCE }
            }
            Named::Index { .. } => return Ok(None),
        }))
    }

    fn grant_targets(&self, objects: &GrantObjects) -> Result<Vec<Target>, SqlError> {
        let mut targets = Vec::new();
        match objects {
            GrantObjects::Tables(names) => {
                for name in names {
                    let index = || error(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is an index", name.name));
                    targets.push(self.relation_target(self.relation(name)?)?.ok_or_else(index)?);
                }
            }
            GrantObjects::Sequences(names) => {
                for name in names {
                    let sequence = self.find_sequence(name)?;
                    targets.extend(self.relation_target(Named::Sequence(sequence.oid))?);
                }
            }
            GrantObjects::Schemas(names) => {
                for name in names {
                    let oid = self.namespace(name)?;
                    let Some(namespace) = self.schema().namespace_by_oid(oid) else { continue };
                    let object = Object::Namespace((**namespace).clone());
                    targets.push(Target { object, kind: "schema", all: privilege::ALL_SCHEMA });
                }
            }
            GrantObjects::AllTables(names) | GrantObjects::AllSequences(names) => {
                let namespaces = names.iter().map(|name| self.usable_namespace(name)).collect::<Result<Vec<_>, _>>()?;
                let sequences = matches!(objects, GrantObjects::AllSequences(_));
                for entry in self.relations() {
                    let (namespace, named) = match entry {
                        Entry::Table(it) if !sequences => (it.table.namespace, Named::Table(it.table.oid)),
                        Entry::View(it) if !sequences => (it.namespace, Named::View(it.oid)),
                        Entry::Sequence(it) if sequences => (it.namespace, Named::Sequence(it.oid)),
                        _ => continue,
                    };
                    if namespaces.contains(&namespace) {
                        targets.extend(self.relation_target(named)?);
                    }
                }
            }
            GrantObjects::Databases(names) => {
                for name in names {
                    let database = self.schema().database_named(name).ok_or_else(|| no_database(name))?;
                    let object = Object::Database((**database).clone());
                    targets.push(Target { object, kind: "database", all: privilege::ALL_DATABASE });
                }
            }
        }
        Ok(targets)
    }

    pub(super) fn grant(&mut self, statement: &syntax::Grant) -> Step<&'static str> {
        let tag = if statement.grant { "GRANT" } else { "REVOKE" };
        let mut roles = Vec::new();
        for role in &statement.roles {
            roles.push(match role {
                RoleName::Public => 0,
                role => self.role(role)?,
            });
        }
        if statement.grant && statement.option && roles.contains(&0) {
            let message = "grant options can only be granted to roles";
            return Err(error(SqlState::new("0LP01"), message).into());
        }
        for target in self.grant_targets(&statement.objects)? {
            self.grant_on(statement, target, &roles)?;
        }
        Ok(tag)
    }

    fn grant_on(&mut self, statement: &syntax::Grant, mut target: Target, roles: &[Oid]) -> Step<()> {
        let mut wanted = Vec::new();
        for privilege in &statement.privileges {
            for more in self.wanted(privilege, &target, statement.grant)? {
                match wanted.iter_mut().find(|known: &&mut Wanted| known.column == more.column) {
                    Some(known) => {
                        known.privileges |= more.privileges;
                        known.reports |= more.reports;
                    }
                    None => wanted.push(more),
                }
            }
        }
        let role = self.ddl.role;
        let owner = target.owner();
        let (name, kind) = (target.object.name().to_owned(), target.kind);
        let owns = self.schema().is_member(role, owner);
        let all = target.all;
        let columns = target.columns();
        let Some(grants) = target.grants() else { return Ok(()) };
        let before = grants.clone();
        let asked_for_all = statement.privileges.iter().any(|it| it.one.is_none());
        let mut notices = Vec::new();
        for Wanted { privileges, column, reports } in wanted {
            let schema = &self.change.schema;
            let (grantor, allowed) =
                if owns { (owner, u16::MAX) } else { grantor(schema, role, grants, privileges, column) };
            let what = match column.and_then(|column| columns.get(usize::from(column))) {
                Some(column) => format!("column \"{column}\" of relation \"{name}\""),
                None => format!("\"{name}\""),
            };
            if allowed & privileges == 0 && reports {
                // A role with any privilege gets a warning, others are refused.
                let held = match column {
                    Some(column) => schema.column_privileges(role, owner, grants, column),
                    None => schema.privileges(role, owner, grants),
                };
                if held & all == 0 {
                    let message = match column {
                        Some(_) => format!("permission denied for {what}"),
                        None => format!("permission denied for {kind} {name}"),
                    };
                    return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, message).into());
                }
            }
            let done = privileges & allowed;
            let (state, verb) = match statement.grant {
                true => (SqlState::PRIVILEGE_NOT_GRANTED, "granted"),
                false => (SqlState::PRIVILEGE_NOT_REVOKED, "revoked"),
            };
            if reports && done == 0 {
                notices.push((state, format!("no privileges were {verb} for {what}")));
            } else if reports && done != privileges && !asked_for_all {
                notices.push((state, format!("not all privileges were {verb} for {what}")));
            }
            // The owner may do everything anyway.
            for role in roles.iter().copied().filter(|role| *role != owner && done != 0) {
                if !statement.grant {
                    revoke(grants, (role, column, grantor), done, statement.option, statement.cascade)?;
                    continue;
                }
                let known = |grant: &Grant| (grant.role, grant.column, grant.grantor) == (role, column, grantor);
                let at = grants.iter().position(known).unwrap_or_else(|| {
                    grants.push(Grant { role, column, privileges: 0, grantable: 0, grantor });
                    grants.len() - 1
                });
                grants[at].privileges |= done;
                if statement.option {
                    grants[at].grantable |= done;
                }
            }
        }
        grants.retain(|grant| grant.privileges != 0);
        let changed = *grants != before;
        for (state, message) in notices {
            self.notice(state, message);
        }
        if changed {
            self.put(target.object)?;
        }
        Ok(())
    }

    /// What a privilege in the statement stands for on this object.
    fn wanted(&self, privilege: &syntax::Privilege, target: &Target, grant: bool) -> Result<Vec<Wanted>, SqlError> {
        let relation = matches!(target.kind, "table" | "view");
        if privilege.columns.is_empty() {
            let privileges = match &privilege.one {
                None => target.all,
                Some((bit, name)) if bit & target.all == 0 => {
                    return Err(invalid_privilege(name, if relation { "relation" } else { target.kind }));
                }
                Some((bit, _)) => *bit,
            };
            let mut wanted = vec![Wanted { privileges, column: None, reports: true }];
            if !grant && relation {
                // A privilege that is revoked from the whole is also revoked from its columns.
                let columns = 0..target.columns().len() as u16;
                wanted.extend(columns.map(|column| Wanted {
                    privileges: privileges & privilege::ALL_COLUMN,
                    column: Some(column),
                    reports: false,
                }));
            }
            return Ok(wanted);
        }
        if !relation {
            return Err(error(SqlState::new("0LP01"), "column privileges are only valid for relations"));
        }
        let privileges = match &privilege.one {
            None => privilege::ALL_COLUMN,
            Some((bit, name)) if bit & privilege::ALL_COLUMN == 0 => return Err(invalid_privilege(name, "column")),
            Some((bit, _)) => *bit,
        };
        let names = target.columns();
        let one = |name: &String| {
            let found = names.iter().position(|known| known == name).ok_or_else(|| {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", target.object.name());
                error(SqlState::UNDEFINED_COLUMN, message)
            })?;
            Ok(Wanted { privileges, column: Some(found as u16), reports: true })
        };
        privilege.columns.iter().map(one).collect()
    }
}

/// What is to be granted or revoked.
struct Wanted {
    privileges: u16,
    column: Option<u16>,
    /// Whether the client gets a report of what the role may not do: not about grants that only
    /// follow from others.
    reports: bool,
}

/// The role in whose name a role that is not the owner grants or revokes privileges on something,
/// and which of these privileges it may grant: the role itself, or one whose privileges it has and
/// that may grant more of them.
fn grantor(schema: &Schema, role: Oid, grants: &[Grant], privileges: u16, column: Option<u16>) -> (Oid, u16) {
    let grantable = |of: Oid| {
        let own = grants.iter().filter(|grant| grant.role == of && (grant.column.is_none() || grant.column == column));
        own.fold(0, |all, grant| all | grant.grantable)
    };
    let mut best = (role, grantable(role));
    for grant in grants.iter().filter(|grant| grant.role != 0 && schema.is_member(role, grant.role)) {
        let other = grantable(grant.role);
        if (other & privileges).count_ones() > (best.1 & privileges).count_ones() {
            best = (grant.role, other);
        }
    }
    best
}

/// Takes privileges, or only the right to grant them on, from a role; and what it has granted on,
/// if that is wanted.
fn revoke(
    grants: &mut Vec<Grant>,
    (role, column, grantor): (Oid, Option<u16>, Oid),
    privileges: u16,
    option_only: bool,
    cascade: bool,
) -> Result<(), SqlError> {
    let known = |grant: &Grant| (grant.role, grant.column, grant.grantor) == (role, column, grantor);
    let Some(at) = grants.iter().position(known) else { return Ok(()) };
    let was_grantable = grants[at].grantable & privileges;
    grants[at].grantable &= !privileges;
    if !option_only {
        grants[at].privileges &= !privileges;
    }
    // What the role can still grant on, by whomever it has that.
    let of_role = grants.iter().filter(|grant| grant.role == role && grant.column == column);
    let still = of_role.fold(0, |all, grant| all | grant.grantable);
    let lost = was_grantable & !still;
    let dependent: Vec<(Oid, u16)> = grants
        .iter()
        .filter(|grant| grant.grantor == role && grant.column == column && grant.privileges & lost != 0)
        .map(|grant| (grant.role, grant.privileges & lost))
        .collect();
    if !dependent.is_empty() && !cascade {
        let error = error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, "dependent privileges exist");
        return Err(error.with_hint("Use CASCADE to revoke them too."));
    }
    for (other, privileges) in dependent {
        revoke(grants, (other, column, role), privileges, false, true)?;
    }
    Ok(())
}

fn invalid_privilege(name: &str, kind: &str) -> SqlError {
    error(SqlState::new("0LP01"), format!("invalid privilege type {name} for {kind}"))
}
