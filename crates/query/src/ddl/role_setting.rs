//! Limits and settings of a role's sessions: how many, until when, and the settings with which they
//! begin.

use freshet_sql::{SqlError, SqlState, types::Timestamp};

use super::{
    database::no_database,
    syntax::{RoleName, RoleOptions, SettingChange},
    work::{Step, Work, error},
};
use crate::{
    schema::{Object, Oid, Role, RoleSetting},
    session::settings::{By, Settings, canonical, of_parts},
};

impl Work<'_, '_, '_> {
    /// CONNECTION LIMIT and VALID UNTIL
    pub(super) fn set_login_limits(&self, role: &mut Role, options: &RoleOptions) -> Result<(), SqlError> {
        if let Some(limit) = options.connection_limit {
            let invalid = || error(SqlState::INVALID_PARAMETER_VALUE, format!("invalid connection limit: {limit}"));
            role.connection_limit = match limit {
                -1 => None,
                limit => Some(i32::try_from(limit).ok().and_then(|it| u32::try_from(it).ok()).ok_or_else(invalid)?),
            };
        }
        if let Some(until) = &options.valid_until {
            role.valid_until = Some(Timestamp::parse_zoned(until, self.ddl.context.moment())?.0);
        }
        Ok(())
    }

    /// ALTER ROLE … SET, ALTER DATABASE … SET, and RESET
    pub(super) fn alter_setting(
        &mut self,
        role: Option<&RoleName>,
        database: Option<&str>,
        change: &SettingChange,
    ) -> Step<&'static str> {
        let tag = if role.is_none() && database.is_some() { "ALTER DATABASE" } else { "ALTER ROLE" };
        let named = |name: &str| self.schema().database_named(name).cloned().ok_or_else(|| no_database(name));
        let database = database.map(named).transpose()?;
        let role = role.map(|role| self.role(role)).transpose()?;
        match (&database, role) {
            (Some(database), None) => self.check_owner(database.owner, "database", &database.name)?,
            _ => self.check_may_set(role)?,
        }
        let of = role.unwrap_or(0);
        match database {
            Some(database) => {
                let mut known = (*database).clone();
                self.change_setting(&mut known.settings, of, change)?;
                self.put(Object::Database(known))?;
            }
            None => {
                let known = self.schema().common().ok_or_else(|| SqlError::internal("there is no catalog"))?;
                let mut known = (**known).clone();
                self.change_setting(&mut known.settings, of, change)?;
                self.put(Object::Common(known))?;
            }
        }
        Ok(tag)
    }

    fn change_setting(
        &mut self,
        settings: &mut Vec<RoleSetting>,
        role: Oid,
        change: &SettingChange,
    ) -> Result<(), SqlError> {
        match change {
            SettingChange::ResetAll => settings.retain(|it| it.role != role),
            SettingChange::Reset(name) => {
                let name = canonical(name);
                settings.retain(|it| !(it.role == role && it.name == name));
            }
            SettingChange::Set(name, value) => {
                let name = canonical(name);
                let value = match value {
                    Some(parts) => of_parts(&name, parts)?,
                    None => self.current_setting(&name)?,
                };
                if matches!(name.as_str(), "role" | "session_authorization") {
                    // Whether the session may become that is asked when it begins.
                    if value != "none" && self.schema().role(&value).is_none() {
                        self.notice(SqlState::UNDEFINED_OBJECT, format!("role \"{value}\" does not exist"));
                    }
                    settings.retain(|it| !(it.role == role && it.name == name));
                    settings.push(RoleSetting { role, name, value });
                    return Ok(());
                }
                let mut any = Settings::default();
                if !self.is_superuser() {
                    any.fix("is_superuser", "off");
                }
                // Some session can have it.
                any.checked(&name, &value, By::Client)?;
                settings.retain(|it| !(it.role == role && it.name == name));
                settings.push(RoleSetting { role, name, value });
            }
        }
        Ok(())
    }

    fn current_setting(&self, name: &str) -> Result<String, SqlError> {
        let all = self.ddl.session.settings();
        let found = all.into_iter().find(|setting| canonical(&setting.name) == name);
        found.map(|setting| setting.value).ok_or_else(|| {
            error(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
        })
    }

    /// Fails unless the current role may change the settings with which these sessions begin.
    fn check_may_set(&self, role: Option<Oid>) -> Result<(), SqlError> {
        if self.is_superuser() {
            return Ok(());
        }
        let refused = |message: &str| Err(error(SqlState::INSUFFICIENT_PRIVILEGE, message));
        let Some(role) = role else {
            return refused("must be superuser to alter settings globally");
        };
        if role == self.ddl.role {
            return Ok(());
        }
        let own = self.schema().role_by_oid(self.ddl.role);
        let of = self.schema().role_by_oid(role);
        match of {
            Some(of) if of.superuser => refused("must be superuser to alter superusers"),
            Some(_) if own.is_some_and(|own| own.create_role) => Ok(()),
            _ => refused("permission denied"),
        }
    }

    /// Forgets the settings of a role that is dropped.
    pub(super) fn drop_settings(&mut self, role: Oid) -> Result<(), SqlError> {
        let of_role = |it: &RoleSetting| it.role == role;
        if let Some(known) = self.schema().common().filter(|it| it.settings.iter().any(of_role)) {
            let mut known = (**known).clone();
            known.settings.retain(|it| !of_role(it));
            self.put(Object::Common(known))?;
        }
        let databases: Vec<_> = self.schema().databases().into_iter().cloned().collect();
        for database in databases.into_iter().filter(|it| it.settings.iter().any(of_role)) {
            let mut known = (*database).clone();
            known.settings.retain(|it| !of_role(it));
            self.put(Object::Database(known))?;
        }
        Ok(())
    }
}
