//! Roles.

use freshet_sql::{SqlError, SqlState};

use super::{
    syntax::{AlterRole, CreateRole, MemberOptions, Membership, RoleName, RoleOptions},
    work::{Step, Work, check_name, error},
};
use crate::{
    bind::not_supported,
    schema::{DATABASE_OWNER, Entry, FIRST_ROLE, Grant, MemberOf, Object, Oid, Role, change_owner},
};

/// Whether a password is what PostgreSQL keeps of one whose hash is MD5.
fn is_md5(password: &str) -> bool {
    let digits = password.strip_prefix("md5").map(str::as_bytes);
    digits.is_some_and(|digits| digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit))
}

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
        let refused = |detail: String| {
            error(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to create role").with_detail(detail)
        };
        if !own.superuser && !own.create_role {
            return Err(refused("Only roles with the CREATEROLE attribute may create roles.".to_owned()).into());
        }
        // A role can give the attributes that it has.
        if let Some(attribute) =
            attributes(&statement.options, own).into_iter().find(|it| it.wanted == Some(true) && !it.own)
        {
            let name = attribute.name;
            let detail = format!("Only roles with the {name} attribute may create roles with the {name} attribute.");
            return Err(refused(detail).into());
        }
        let own_is_superuser = own.superuser;
        self.check_role_name(&statement.name)?;
        let mut role = Role {
            oid: self.change.take_oid()?,
            name: statement.name.clone(),
            superuser: false,
            login: statement.user,
            create_role: false,
            create_database: false,
            verifier: None,
            inherit: true,
            member_of: Vec::new(),
            connection_limit: None,
            valid_until: None,
        };
        self.set_options(&mut role, &statement.options)?;
        let oid = role.oid;
        self.put(Object::Role(role))?;
        for name in &statement.in_roles {
            let of = self.role(name)?;
            self.check_administers(of, true)?;
            let grantor = self.grantor(of, None)?;
            self.add_member(of, oid, grantor, MemberOptions::default())?;
        }
        if !own_is_superuser {
            // The creator of a role gets ADMIN on it, and nothing else; only a superuser can revoke
            // that.
            let (admin, inherit, set) = (Some(true), Some(false), Some(false));
            self.add_member(oid, self.ddl.role, FIRST_ROLE, MemberOptions { admin, inherit, set })?;
        }
        let grantor = if own_is_superuser { FIRST_ROLE } else { self.ddl.role };
        for (names, admin) in [(&statement.members, None), (&statement.administrators, Some(true))] {
            for name in names {
                let member = self.role(name)?;
                self.add_member(oid, member, grantor, MemberOptions { admin, ..MemberOptions::default() })?;
            }
        }
        Ok("CREATE ROLE")
    }

    /// Sets what is said of a role.
    fn set_options(&mut self, role: &mut Role, options: &RoleOptions) -> Result<(), SqlError> {
        if let Some(what) = &options.unsupported {
            return Err(not_supported(what));
        }
        let set = |to: &mut bool, value: Option<bool>| *to = value.unwrap_or(*to);
        set(&mut role.superuser, options.superuser);
        set(&mut role.login, options.login);
        set(&mut role.create_role, options.create_role);
        set(&mut role.create_database, options.create_database);
        self.set_login_limits(role, options)?;
        set(&mut role.inherit, options.inherit);
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
                } else if is_md5(password) {
                    // What `pg_dumpall` has of it: who has read that must not get in with it.
                    self.notice(
                        SqlState::SUCCESSFUL_COMPLETION,
                        "an md5 hash is not a password that is understood here, clearing password",
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
        if oid == DATABASE_OWNER {
            let refused = error(SqlState::RESERVED_NAME, format!("role name \"{}\" is reserved", role.name));
            return Err(refused.with_detail("Cannot alter reserved roles.").into());
        }
        let own = self.own_role()?;
        let what = if matches!(change, AlterRole::Rename(_)) { "rename" } else { "alter" };
        let refused = |detail: String| {
            error(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied to {what} role")).with_detail(detail)
        };
        if !own.superuser {
            let options = match change {
                AlterRole::Options(options) => options.clone(),
                _ => RoleOptions::default(),
            };
            if role.superuser {
                let detail =
                    format!("Only roles with the SUPERUSER attribute may {what} roles with the SUPERUSER attribute.");
                return Err(refused(detail).into());
            }
            let rules = own.create_role && self.schema().administers(own.oid, oid);
            // Every role may change its own password.
            let only_password = RoleOptions { password: None, ..options.clone() } == RoleOptions::default();
            let own_password = options.password.is_some() && only_password && oid == own.oid;
            if !rules && !own_password {
                let detail = format!(
                    "Only roles with the CREATEROLE attribute and the ADMIN option on role \"{}\" may {what} this role.",
                    role.name
                );
                return Err(refused(detail).into());
            }
            if let Some(attribute) = attributes(&options, own).into_iter().find(|it| it.wanted.is_some() && !it.own) {
                let name = attribute.name;
                let detail = format!("Only roles with the {name} attribute may change the {name} attribute.");
                return Err(refused(detail).into());
            }
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
    pub(super) fn check_administers(&self, role: Oid, grant: bool) -> Result<(), SqlError> {
        let own = self.own_role()?;
        let of = self.schema().role_by_oid(role);
        let superuser = of.is_some_and(|of| of.superuser);
        if own.superuser || !superuser && self.schema().administers(own.oid, role) {
            return Ok(());
        }
        let (what, name) = (if grant { "grant" } else { "revoke" }, of.map_or("", |of| &of.name));
        let refused = error(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied to {what} role \"{name}\""));
        Err(refused.with_detail(match superuser {
            true => format!("Only roles with the SUPERUSER attribute may {what} roles with the SUPERUSER attribute."),
            false => format!("Only roles with the ADMIN option on role \"{name}\" may {what} this role."),
        }))
    }

    /// In whose name a membership of a role is granted or revoked.
    fn grantor(&self, role: Oid, named: Option<&RoleName>) -> Result<Oid, SqlError> {
        let schema = self.schema();
        let refused = |by: Oid, detail: String| {
            let name = schema.role_by_oid(by).map_or("", |by| &by.name);
            let message = format!("permission denied to grant privileges as role \"{name}\"");
            error(SqlState::INSUFFICIENT_PRIVILEGE, message).with_detail(detail)
        };
        let name = |oid| schema.role_by_oid(oid).map_or("", |role| role.name.as_str());
        let Some(named) = named else {
            let found = schema.administrator(self.ddl.role, role);
            return found.ok_or_else(|| {
                let detail = format!("None of its grants of role \"{}\" with ADMIN option is inherited.", name(role));
                refused(self.ddl.role, detail)
            });
        };
        let by = self.role(named)?;
        if !schema.is_member(self.ddl.role, by) {
            let detail =
                format!("Only roles with privileges of role \"{0}\" may grant privileges as this role.", name(by));
            return Err(refused(by, detail));
        }
        if by != FIRST_ROLE && !schema.has_admin(by, role) {
            let detail = format!("The grantor must have the ADMIN option on role \"{}\".", name(role));
            return Err(refused(by, detail));
        }
        Ok(by)
    }

    fn name_of_role(&self, oid: Oid) -> String {
        self.schema().role_by_oid(oid).map(|role| role.name.clone()).unwrap_or_default()
    }

    fn add_member(&mut self, role: Oid, member: Oid, grantor: Oid, options: MemberOptions) -> Result<(), SqlError> {
        for (one, message) in [
            (role, "role \"pg_database_owner\" cannot have explicit members"),
            (member, "role \"pg_database_owner\" cannot be a member of any role"),
        ] {
            if one == DATABASE_OWNER {
                return Err(error(SqlState::new("0LP01"), message));
            }
        }
        if self.schema().is_within(role, member) {
            let message =
                format!("role \"{}\" is a member of role \"{}\"", self.name_of_role(role), self.name_of_role(member));
            return Err(error(SqlState::new("0LP01"), message));
        }
        if options.admin == Some(true) && self.owes_admin_to(role, grantor, member) {
            let message = "ADMIN option cannot be granted back to your own grantor";
            return Err(error(SqlState::new("0LP01"), message));
        }
        let Some(known) = self.schema().role_by_oid(member) else { return Ok(()) };
        let mut known = (**known).clone();
        let inherit = options.inherit.unwrap_or(known.inherit);
        let oid = self.change.take_oid()?;
        match known.member_of.iter_mut().find(|it| it.role == role && it.grantor == grantor) {
            Some(granted) => {
                let before = *granted;
                granted.admin = options.admin.unwrap_or(granted.admin);
                granted.inherit = options.inherit.unwrap_or(granted.inherit);
                granted.set = options.set.unwrap_or(granted.set);
                if *granted == before {
                    let message = format!(
                        "role \"{}\" has already been granted membership in role \"{}\" by role \"{}\"",
                        known.name,
                        self.name_of_role(role),
                        self.name_of_role(grantor)
                    );
                    self.notice(SqlState::SUCCESSFUL_COMPLETION, message);
                    return Ok(());
                }
            }
            None => {
                let (admin, set) = (options.admin.unwrap_or(false), options.set.unwrap_or(true));
                known.member_of.push(MemberOf { oid, role, grantor, admin, inherit, set });
            }
        }
        self.put(Object::Role(known))
    }

    /// Whether a role has ADMIN on another one by a grant of `from`, directly or not.
    fn owes_admin_to(&self, role: Oid, grantor: Oid, from: Oid) -> bool {
        let (mut open, mut seen) = (vec![grantor], Vec::new());
        while let Some(next) = open.pop() {
            if next == from {
                return true;
            }
            if next != FIRST_ROLE && !seen.contains(&next) {
                seen.push(next);
                let grants = self.schema().role_by_oid(next).into_iter().flat_map(|it| &it.member_of);
                open.extend(grants.filter(|it| it.role == role && it.admin).map(|it| it.grantor));
            }
        }
        false
    }

    pub(super) fn membership(&mut self, statement: &Membership) -> Step<&'static str> {
        let tag = if statement.grant { "GRANT ROLE" } else { "REVOKE ROLE" };
        for role in &statement.roles {
            let role = self.role(&RoleName::Named(role.clone()))?;
            self.check_administers(role, statement.grant)?;
            let grantor = self.grantor(role, statement.grantor.as_ref())?;
            for member in &statement.members {
                let member = self.role(member)?;
                match statement.grant {
                    true => self.add_member(role, member, grantor, statement.options)?,
                    false => self.remove_member(role, member, grantor, statement)?,
                }
            }
        }
        Ok(tag)
    }

    fn remove_member(&mut self, role: Oid, member: Oid, grantor: Oid, statement: &Membership) -> Result<(), SqlError> {
        let Some(known) = self.schema().role_by_oid(member) else { return Ok(()) };
        let mut known = (**known).clone();
        let place = known.member_of.iter().position(|it| it.role == role && it.grantor == grantor);
        let Some(place) = place else {
            let message = format!(
                "role \"{}\" has not been granted membership in role \"{}\" by role \"{}\"",
                known.name,
                self.name_of_role(role),
                self.name_of_role(grantor)
            );
            self.notice(SqlState::WARNING, message);
            return Ok(());
        };
        let options = statement.options;
        if options == MemberOptions::default() {
            known.member_of.remove(place);
        } else {
            let granted = &mut known.member_of[place];
            granted.admin = options.admin.unwrap_or(granted.admin);
            granted.inherit = options.inherit.unwrap_or(granted.inherit);
            granted.set = options.set.unwrap_or(granted.set);
        }
        self.put(Object::Role(known))?;
        if self.schema().has_admin(member, role) {
            return Ok(());
        }
        // When a role loses ADMIN, the memberships that it has granted go too.
        let by_member = |it: &MemberOf| it.role == role && it.grantor == member;
        let dependent: Vec<Oid> = self.roles_where(by_member);
        if !dependent.is_empty() && !statement.cascade {
            let refused = error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, "dependent privileges exist");
            return Err(refused.with_hint("Use CASCADE to revoke them too."));
        }
        let all = Membership { options: MemberOptions::default(), ..statement.clone() };
        dependent.into_iter().try_for_each(|other| self.remove_member(role, other, member, &all))
    }

    /// The roles that have a membership like this.
    fn roles_where(&self, is: impl Fn(&MemberOf) -> bool) -> Vec<Oid> {
        let entries = self.schema().entries().filter_map(|entry| match entry {
            Entry::Role(role) if role.member_of.iter().any(&is) => Some(role.oid),
            _ => None,
        });
        entries.collect()
    }

    /// DROP ROLE
    pub(super) fn drop_role(&mut self, name: &str, if_exists: bool) -> Step<()> {
        let own = self.own_role()?;
        if !own.superuser && !own.create_role {
            let refused = error(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to drop role");
            let detail =
                "Only roles with the CREATEROLE attribute and the ADMIN option on the target roles may drop roles.";
            return Err(refused.with_detail(detail).into());
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
        if !self.is_superuser() && (role.superuser || !self.schema().administers(self.ddl.role, role.oid)) {
            let refused = error(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to drop role");
            let detail = match role.superuser {
                true => {
                    "Only roles with the SUPERUSER attribute may drop roles with the SUPERUSER attribute.".to_owned()
                }
                false => format!(
                    "Only roles with the CREATEROLE attribute and the ADMIN option on role \"{name}\" may drop this role."
                ),
            };
            return Err(refused.with_detail(detail).into());
        }
        if role.oid == self.ddl.role {
            return Err(error(SqlState::OBJECT_IN_USE, "current user cannot be dropped").into());
        }
        if role.oid == self.ddl.session_role {
            return Err(error(SqlState::OBJECT_IN_USE, "session user cannot be dropped").into());
        }
        if matches!(role.oid, FIRST_ROLE | DATABASE_OWNER) {
            let message = format!("cannot drop role {name} because it is required by the database system");
            return Err(error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message).into());
        }
        let uses = self.uses_of_role(role.oid)?;
        if !uses.is_empty() {
            let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
            let refused = error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message);
            return Err(refused.with_detail(uses.join("\n")).into());
        }
        for member in self.roles_where(|it| it.role == role.oid) {
            let Some(member) = self.schema().role_by_oid(member) else { continue };
            let mut member = (**member).clone();
            member.member_of.retain(|of| of.role != role.oid);
            self.put(Object::Role(member))?;
        }
        self.drop_settings(role.oid)?;
        self.change.remove_comments(role.oid)?;
        Ok(self.change.remove(role.oid)?)
    }

    /// What a role owns, and what it was granted, in all databases.
    fn uses_of_role(&self, role: Oid) -> Result<Vec<String>, SqlError> {
        let mut uses = Vec::new();
        for database in self.schema().databases().into_iter().filter(|it| it.oid != self.schema().database) {
            let other = self.change.other(database.oid)?;
            let count = other.entries().filter(|entry| is_use(entry, role)).count();
            if count > 0 {
                let plural = if count == 1 { "" } else { "s" };
                uses.push(format!("{count} object{plural} in database {}", database.name));
            }
        }
        for entry in self.schema().entries() {
            let (kind, name, owner, grants) = match entry {
                Entry::Namespace(it) => ("schema", &it.name, it.owner, &it.grants),
                Entry::Table(it) => ("table", &it.table.name, it.table.owner, &it.table.grants),
                Entry::View(it) => ("view", &it.name, it.owner, &it.grants),
                Entry::Sequence(it) => ("sequence", &it.name, it.owner, &it.grants),
                Entry::Database(it) => ("database", &it.name, it.owner, &it.grants),
                Entry::Extension(it) => ("extension", &it.name, it.owner, NO_GRANTS),
                Entry::Role(_) | Entry::Comment(_) | Entry::Common(_) => continue,
            };
            if owner == role {
                uses.push(format!("owner of {kind} {name}"));
            } else if grants.iter().any(|grant| grant.role == role || grant.grantor == role) {
                uses.push(format!("privileges for {kind} {name}"));
            }
        }
        for member in self.roles_where(|it| it.grantor == role && it.role != role) {
            let Some(member) = self.schema().role_by_oid(member) else { continue };
            for of in member.member_of.iter().filter(|it| it.grantor == role) {
                uses.push(format!(
                    "privileges for membership of role {} in role {}",
                    member.name,
                    self.name_of_role(of.role)
                ));
            }
        }
        uses.sort_unstable();
        Ok(uses)
    }

    /// REASSIGN OWNED
    pub(super) fn reassign_owned(&mut self, from: &[RoleName], to: &RoleName) -> Step<&'static str> {
        let to = self.role(to)?;
        let from = from.iter().map(|name| self.role(name)).collect::<Result<Vec<_>, _>>()?;
        if from.iter().chain([&to]).any(|role| !self.schema().is_member(self.ddl.role, *role)) {
            return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to reassign objects").into());
        }
        let entries: Vec<Entry> = self.schema().entries().cloned().collect();
        for entry in entries {
            let object = match entry {
                Entry::Namespace(it) if from.contains(&it.owner) => {
                    let mut new = (*it).clone();
                    change_owner(&mut new.owner, &mut new.grants, to);
                    Object::Namespace(new)
                }
                Entry::Table(it) if from.contains(&it.table.owner) => {
                    let mut new = it.table.clone();
                    change_owner(&mut new.owner, &mut new.grants, to);
                    Object::Table(new)
                }
                Entry::View(it) if from.contains(&it.owner) => {
                    let mut new = (*it).clone();
                    change_owner(&mut new.owner, &mut new.grants, to);
                    Object::View(new)
                }
                Entry::Sequence(it) if from.contains(&it.owner) => {
                    let mut new = (*it).clone();
                    change_owner(&mut new.owner, &mut new.grants, to);
                    Object::Sequence(new)
                }
                Entry::Extension(it) if from.contains(&it.owner) => {
                    let mut new = (*it).clone();
                    new.owner = to;
                    Object::Extension(new)
                }
                Entry::Database(it) if from.contains(&it.owner) => {
                    self.own_database(&it, to)?;
                    continue;
                }
                _ => continue,
            };
            self.put(object)?;
        }
        Ok("REASSIGN OWNED")
    }
}

/// What is granted on objects that nothing is granted on.
const NO_GRANTS: &Vec<Grant> = &Vec::new();

/// Whether an object of another database is a role's, or the role was granted something on it.
fn is_use(entry: &Entry, role: Oid) -> bool {
    let (owner, grants) = match entry {
        Entry::Namespace(it) => (it.owner, &it.grants),
        Entry::Table(it) => (it.table.owner, &it.table.grants),
        Entry::View(it) => (it.owner, &it.grants),
        Entry::Sequence(it) => (it.owner, &it.grants),
        Entry::Extension(it) => (it.owner, NO_GRANTS),
        Entry::Role(_) | Entry::Comment(_) | Entry::Database(_) | Entry::Common(_) => return false,
    };
    owner == role || grants.iter().any(|grant| grant.role == role || grant.grantor == role)
}

/// An attribute that only roles that have it may give.
struct Attribute {
    name: &'static str,
    wanted: Option<bool>,
    own: bool,
}

/// These attributes: their names, what the statement says of them, and whether the role has them.
fn attributes(options: &RoleOptions, own: &Role) -> [Attribute; 4] {
    [
        ("SUPERUSER", options.superuser, false),
        ("CREATEDB", options.create_database, own.create_database),
        // Only superusers have them.
        ("REPLICATION", options.replication, false),
        ("BYPASSRLS", options.bypass_row_security, false),
    ]
    .map(|(name, wanted, has)| Attribute { name, wanted, own: own.superuser || has })
}
