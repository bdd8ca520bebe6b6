//! GRANT and REVOKE on objects.

use freshet_sql::{SqlError, SqlState};

use super::{
    syntax::{self, GrantObjects, RoleName},
    work::{Step, Work, error},
};
use crate::schema::{Entry, Grant, Named, Object, Oid, privilege};

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
            Object::Role(_) | Object::Comment(_) | Object::Database(_) => 0,
        }
    }

    fn grants(&mut self) -> Option<&mut Vec<Grant>> {
        match &mut self.object {
            Object::Namespace(it) => Some(&mut it.grants),
            Object::Table(it) => Some(&mut it.grants),
            Object::View(it) => Some(&mut it.grants),
            Object::Sequence(it) => Some(&mut it.grants),
            Object::Role(_) | Object::Comment(_) | Object::Database(_) => None,
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
                let namespaces = names.iter().map(|name| self.namespace(name)).collect::<Result<Vec<_>, _>>()?;
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
            GrantObjects::Databases(_) => {}
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
        if matches!(statement.objects, GrantObjects::Databases(_)) {
            // Everybody who can log in may connect, and there are no temporary tables.
            let all = statement.privileges.iter().flatten();
            for (bit, name) in all {
                if bit & (privilege::DATABASE | privilege::CREATE) == 0 {
                    return Err(invalid_privilege(name, "database").into());
                }
            }
            let message = "privileges on the database make no difference: who may log in may connect";
            self.notice(SqlState::WARNING, message);
            return Ok(tag);
        }
        for target in self.grant_targets(&statement.objects)? {
            self.grant_on(statement, target, &roles)?;
        }
        Ok(tag)
    }

    fn grant_on(&mut self, statement: &syntax::Grant, mut target: Target, roles: &[Oid]) -> Step<()> {
        let mut wanted = 0;
        match &statement.privileges {
            None => wanted = target.all,
            Some(privileges) => {
                for (bit, name) in privileges {
                    if bit & target.all == 0 {
                        let kind =
                            if target.kind == "table" || target.kind == "view" { "relation" } else { target.kind };
                        return Err(invalid_privilege(name, kind).into());
                    }
                    wanted |= bit;
                }
            }
        }
        let (owner, name) = (target.owner(), target.object.name().to_owned());
        let owns = self.schema().is_member(self.ddl.role, owner);
        let grantor = if owns { owner } else { self.ddl.role };
        let (role, kind) = (self.ddl.role, target.kind);
        let Some(grants) = target.grants() else { return Ok(()) };
        let allowed = match owns {
            true => u16::MAX,
            false => {
                let schema = &self.change.schema;
                let held = grants.iter().filter(|grant| grant.role != 0 && schema.is_member(role, grant.role));
                held.fold(0, |all, grant| all | grant.grantable)
            }
        };
        if wanted & allowed == 0 {
            return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {kind} {name}")).into());
        }
        let missing = wanted & !allowed;
        let done = wanted & allowed;
        let before = grants.clone();
        for role in roles.iter().copied() {
            // The owner may do everything anyway.
            if role == owner {
                continue;
            }
            if statement.grant {
                let at = grants.iter().position(|grant| grant.role == role && grant.grantor == grantor);
                let at = at.unwrap_or_else(|| {
                    grants.push(Grant { role, privileges: 0, grantable: 0, grantor });
                    grants.len() - 1
                });
                grants[at].privileges |= done;
                if statement.option {
                    grants[at].grantable |= done;
                }
            } else {
                revoke(grants, (role, grantor), done, statement.option, statement.cascade)?;
            }
        }
        grants.retain(|grant| grant.privileges != 0);
        let changed = *grants != before;
        if missing != 0 && statement.privileges.is_some() {
            let (state, what) = match statement.grant {
                true => (SqlState::PRIVILEGE_NOT_GRANTED, "granted"),
                false => (SqlState::PRIVILEGE_NOT_REVOKED, "revoked"),
            };
            self.notice(state, format!("not all privileges were {what} for \"{name}\""));
        }
        if changed {
            self.put(target.object)?;
        }
        Ok(())
    }
}

/// Takes privileges, or only the right to grant them on, from a role; and what it has granted on, if that is wanted.
fn revoke(
    grants: &mut Vec<Grant>,
    (role, grantor): (Oid, Oid),
    privileges: u16,
    option_only: bool,
    cascade: bool,
) -> Result<(), SqlError> {
    let Some(at) = grants.iter().position(|grant| grant.role == role && grant.grantor == grantor) else {
        return Ok(());
    };
    let was_grantable = grants[at].grantable & privileges;
    grants[at].grantable &= !privileges;
    if !option_only {
        grants[at].privileges &= !privileges;
    }
    // What the role can still grant on, by whomever it has that.
    let still = grants.iter().filter(|grant| grant.role == role).fold(0, |all, grant| all | grant.grantable);
    let lost = was_grantable & !still;
    let dependent: Vec<(Oid, u16)> = grants
        .iter()
        .filter(|grant| grant.grantor == role && grant.privileges & lost != 0)
        .map(|grant| (grant.role, grant.privileges & lost))
        .collect();
    if !dependent.is_empty() && !cascade {
        let error = error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, "dependent privileges exist");
        return Err(error.with_hint("Use CASCADE to revoke them too."));
    }
    for (other, privileges) in dependent {
        revoke(grants, (other, role), privileges, false, true)?;
    }
    Ok(())
}

fn invalid_privilege(name: &str, kind: &str) -> SqlError {
    error(SqlState::new("0LP01"), format!("invalid privilege type {name} for {kind}"))
}
