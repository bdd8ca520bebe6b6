//! Roles.

use freshet_sql::{SqlError, SqlState};

use super::{
    syntax::{AlterRole, CreateRole, Membership, RoleName, RoleOptions},
    work::{Step, Work, check_name, error},
};
use crate::{
    bind::not_supported,
    schema::{Entry, FIRST_ROLE, Object, Oid, Role},
};

impl Work<'_, '_, '_> {
    fn own_role(&self) -> Result<&Role, SqlError> {
        let role = self.schema().role_by_oid(self.ddl.role);
        role.map(|role| &**role)
            .ok_or_else(|| error(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "the role is no more"))
    }

    fn check_role_name(&self, name: &str) -> Result<(), SqlError> {
        check_name(name)?;
        if matches!(name, "public" | "none" | "current_user" | "session_user" | "current_role") {
            return Err(error(SqlState::RESERVED_NAME, format!("role name \"{name}\" is reserved")));
        }
        if name.starts_with("pg_") {
            let refused = error(SqlState::RESERVED_NAME, format!("role name \"{name}\" is reserved"));
            return Err(refused.with_detail("Role names starting with \"pg_\" are reserved."));
        }
        if self.schema().role(name).is_some() {
            return Err(error(SqlState::DUPLICATE_OBJECT, format!("role \"{name}\" already exists")));
        }
        Ok(())
    }

    pub(super) fn create_role(&mut self, statement: &CreateRole) -> Step<&'static str> {
        let own = self.own_role()?;
        if !own.superuser && !own.create_role {
            let refused = error(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to create role");
            let detail = "Only roles with the CREATEROLE attribute may create roles.";
            return Err(refused.with_detail(detail).into());
        }
        self.check_role_name(&statement.name)?;
        let mut role = Role {
            oid: self.change.take_oid()?,
            name: statement.name.clone(),
            superuser: false,
            login: statement.user,
            create_role: false,
            create_database: false,
            verifier: None,
            member_of: Vec::new(),
            connection_limit: None,
            valid_until: None,
        };
        self.set_options(&mut role, &statement.options)?;
        for name in &statement.in_roles {
            let oid = self.role(name)?;
            self.check_administers(oid)?;
            role.member_of.push(oid);
        }
        let oid = role.oid;
        self.put(Object::Role(role))?;
        for name in &statement.members {
            let member = self.role(name)?;
            self.add_member(oid, member)?;
        }
        Ok("CREATE ROLE")
    }

    /// Sets what is said of a role.
    fn set_options(&mut self, role: &mut Role, options: &RoleOptions) -> Result<(), SqlError> {
        if let Some(what) = &options.unsupported {
            return Err(not_supported(what));
        }
        let own = self.own_role()?;
        let privileged = [
            (options.superuser, own.superuser, "SUPERUSER"),
            (options.create_role, own.superuser || own.create_role, "CREATEROLE"),
            (options.create_database, own.superuser || own.create_database, "CREATEDB"),
        ];
        for (wanted, may, name) in privileged {
            if wanted.is_some() && !may {
                let refused = error(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to alter role");
                let detail = format!("Only roles with the {name} attribute may change the {name} attribute.");
                return Err(refused.with_detail(detail));
            }
        }
        let set = |to: &mut bool, value: Option<bool>| *to = value.unwrap_or(*to);
        set(&mut role.superuser, options.superuser);
        set(&mut role.login, options.login);
        set(&mut role.create_role, options.create_role);
        set(&mut role.create_database, options.create_database);
        self.set_login_limits(role, options)?;
        match &options.password {
            None => {}
            Some(None) => role.verifier = None,
            Some(Some(password)) => {
                if password.is_empty() {
                    self.notice(
                        SqlState::SUCCESSFUL_COMPLETION,
                        "empty string is not a valid password, clearing password",
                    );
                    role.verifier = None;
                } else if password.parse::<freshet_postgres::Verifier>().is_ok() {
                    // What other databases have kept of it.
                    role.verifier = Some(password.clone());
                } else {
                    let verifier = freshet_postgres::Verifier::generate(password);
                    let verifier = verifier.map_err(|cause| error(SqlState::SYSTEM_ERROR, cause.to_string()))?;
                    role.verifier = Some(verifier.to_string());
                }
            }
        }
        Ok(())
    }

    pub(super) fn alter_role(&mut self, name: &RoleName, change: &AlterRole) -> Step<&'static str> {
        let oid = self.role(name)?;
        let Some(role) = self.schema().role_by_oid(oid) else {
            return Err(SqlError::internal("a role is named and is not there").into());
        };
        let mut role = (**role).clone();
        let own = self.own_role()?;
        let only_password = matches!(
            change,
            AlterRole::Options(RoleOptions {
                superuser: None,
                login: None,
                create_role: None,
                create_database: None,
                password: Some(_),
                connection_limit: None,
                valid_until: None,
                unsupported: None,
            })
        );
        let may = own.superuser || own.create_role && !role.superuser || only_password && oid == self.ddl.role;
        if !may {
            let refused = error(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to alter role");
            let detail = format!("Only roles with the CREATEROLE attribute may alter the role \"{}\".", role.name);
            return Err(refused.with_detail(detail).into());
        }
        match change {
            AlterRole::Rename(new) => {
                self.check_role_name(new)?;
                if oid == self.ddl.session_role {
                    return Err(error(SqlState::FEATURE_NOT_SUPPORTED, "session user cannot be renamed").into());
                }
                role.name.clone_from(new);
            }
            AlterRole::Options(options) => self.set_options(&mut role, options)?,
        }
        if oid == FIRST_ROLE && !role.superuser {
            let message = "the role that was there from the beginning stays a superuser";
            return Err(error(SqlState::FEATURE_NOT_SUPPORTED, message).into());
        }
        self.put(Object::Role(role))?;
        Ok("ALTER ROLE")
    }

    /// Fails unless the role may say who is a member of this one.
    pub(super) fn check_administers(&self, role: Oid) -> Result<(), SqlError> {
        let own = self.own_role()?;
        let of = self.schema().role_by_oid(role);
        if own.superuser || own.create_role && of.is_some_and(|of| !of.superuser) {
            return Ok(());
        }
        let name = of.map_or("", |of| &of.name);
        let refused = error(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied to grant role \"{name}\""));
        Err(refused.with_detail("Only superusers, and roles with the CREATEROLE attribute, may grant roles."))
    }

    fn add_member(&mut self, role: Oid, member: Oid) -> Result<(), SqlError> {
        self.check_administers(role)?;
        let name =
            |oid| self.schema().role_by_oid(oid).map(|it: &std::sync::Arc<Role>| it.name.clone()).unwrap_or_default();
        if is_within(self.schema(), role, member) {
            let message = format!("role \"{}\" is a member of role \"{}\"", name(role), name(member));
            return Err(error(SqlState::new("0LP01"), message));
        }
        let Some(known) = self.schema().role_by_oid(member) else { return Ok(()) };
        if known.member_of.contains(&role) {
            let message =
                format!("role \"{}\" has already been granted membership in role \"{}\"", name(member), name(role));
            self.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            return Ok(());
        }
        let mut known = (**known).clone();
        known.member_of.push(role);
        self.put(Object::Role(known))
    }

    pub(super) fn membership(&mut self, statement: &Membership) -> Step<&'static str> {
        let tag = if statement.grant { "GRANT ROLE" } else { "REVOKE ROLE" };
        for role in &statement.roles {
            let role = self.role(&RoleName::Named(role.clone()))?;
            for member in &statement.members {
                let member = self.role(member)?;
                if statement.grant {
                    self.add_member(role, member)?;
                    continue;
                }
                self.check_administers(role)?;
                if statement.option_only {
                    continue;
                }
                let Some(known) = self.schema().role_by_oid(member) else { continue };
                let mut known = (**known).clone();
                if !known.member_of.contains(&role) {
                    let of = self.schema().role_by_oid(role).map(|it| it.name.clone()).unwrap_or_default();
                    let message = format!("role \"{}\" has not been granted membership in role \"{of}\"", known.name);
                    self.notice(SqlState::WARNING, message);
                    continue;
                }
                known.member_of.retain(|of| *of != role);
                self.put(Object::Role(known))?;
            }
        }
        Ok(tag)
    }

    /// DROP ROLE
    pub(super) fn drop_role(&mut self, name: &str, if_exists: bool) -> Step<()> {
        let own = self.own_role()?;
        if !own.superuser && !own.create_role {
            return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to drop role").into());
        }
        let name = match name {
            "current_user" => return Err(error(SqlState::OBJECT_IN_USE, "current user cannot be dropped").into()),
            "session_user" => return Err(error(SqlState::OBJECT_IN_USE, "session user cannot be dropped").into()),
            name => name,
        };
        let Some(role) = self.schema().role(name).cloned() else {
            let message = format!("role \"{name}\" does not exist");
            if !if_exists {
                return Err(error(SqlState::UNDEFINED_OBJECT, message).into());
            }
            self.notice(SqlState::SUCCESSFUL_COMPLETION, message + ", skipping");
            return Ok(());
        };
        if role.superuser && !self.is_superuser() {
            return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, "must be superuser to drop superusers").into());
        }
        if role.oid == self.ddl.role {
            return Err(error(SqlState::OBJECT_IN_USE, "current user cannot be dropped").into());
        }
        if role.oid == self.ddl.session_role {
            return Err(error(SqlState::OBJECT_IN_USE, "session user cannot be dropped").into());
        }
        if role.oid == FIRST_ROLE {
            let message = format!("cannot drop role {name} because it is required by the database system");
            return Err(error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message).into());
        }
        let uses = self.uses_of_role(role.oid);
        if !uses.is_empty() {
            let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
            let refused = error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message);
            return Err(refused.with_detail(uses.join("\n")).into());
        }
        let members: Vec<Role> = self
            .schema()
            .entries()
            .filter_map(|entry| match entry {
                Entry::Role(member) if member.member_of.contains(&role.oid) => Some((**member).clone()),
                _ => None,
            })
            .collect();
        for mut member in members {
            member.member_of.retain(|of| *of != role.oid);
            self.put(Object::Role(member))?;
        }
        self.drop_settings(role.oid)?;
        self.change.remove_comments(role.oid)?;
        Ok(self.change.remove(role.oid)?)
    }

    /// What a role owns, and what it was granted.
    fn uses_of_role(&self, role: Oid) -> Vec<String> {
        let mut uses = Vec::new();
        for entry in self.schema().entries() {
            let (kind, name, owner, grants) = match entry {
                Entry::Namespace(it) => ("schema", &it.name, it.owner, &it.grants),
                Entry::Table(it) => ("table", &it.table.name, it.table.owner, &it.table.grants),
                Entry::View(it) => ("view", &it.name, it.owner, &it.grants),
                Entry::Sequence(it) => ("sequence", &it.name, it.owner, &it.grants),
                Entry::Role(_) | Entry::Comment(_) | Entry::Database(_) => continue,
            };
            if owner == role {
                uses.push(format!("owner of {kind} {name}"));
            } else if grants.iter().any(|grant| grant.role == role || grant.grantor == role) {
                uses.push(format!("privileges for {kind} {name}"));
            }
        }
        uses.sort_unstable();
        uses
    }

    /// REASSIGN OWNED
    pub(super) fn reassign_owned(&mut self, from: &[RoleName], to: &RoleName) -> Step<&'static str> {
        let to = self.role(to)?;
        self.check_new_owner(to)?;
        let from = from.iter().map(|name| self.role(name)).collect::<Result<Vec<_>, _>>()?;
        for role in &from {
            self.check_new_owner(*role)?;
        }
        let entries: Vec<Entry> = self.schema().entries().cloned().collect();
        for entry in entries {
            let object = match entry {
                Entry::Namespace(it) if from.contains(&it.owner) => {
                    let mut new = (*it).clone();
                    new.owner = to;
                    Object::Namespace(new)
                }
                Entry::Table(it) if from.contains(&it.table.owner) => {
                    let mut new = it.table.clone();
                    new.owner = to;
                    Object::Table(new)
                }
                Entry::View(it) if from.contains(&it.owner) => {
                    let mut new = (*it).clone();
                    new.owner = to;
                    Object::View(new)
                }
                Entry::Sequence(it) if from.contains(&it.owner) => {
                    let mut new = (*it).clone();
                    new.owner = to;
                    Object::Sequence(new)
                }
                _ => continue,
            };
            self.put(object)?;
        }
        Ok("REASSIGN OWNED")
    }
}

/// Whether a role is another one, or a member of it, superuser or not.
pub(crate) fn is_within(schema: &crate::schema::Schema, role: Oid, of: Oid) -> bool {
    let mut open = vec![role];
    let mut seen = Vec::new();
    while let Some(next) = open.pop() {
        if next == of {
            return true;
        }
        if !seen.contains(&next) {
            seen.push(next);
            open.extend(schema.role_by_oid(next).iter().flat_map(|role| &role.member_of));
        }
    }
    false
}
