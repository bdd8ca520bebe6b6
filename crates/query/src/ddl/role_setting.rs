//! Limits and settings of a role's sessions: how many, until when, and the settings with which they
//! begin.

use freshet_sql::{SqlError, SqlState, types::Timestamp};

use super::{
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
        let role = role.map(|role| self.role(role)).transpose()?;
        self.check_may_set(role, tag)?;
        let Some(known) = self.schema().database() else {
            return Err(SqlError::internal("the catalog has no database").into());
        };
        let mut known = (**known).clone();
        let (of, in_database) = (role.unwrap_or(0), database.is_some());
        let is_meant = |it: &RoleSetting| it.role == of && it.in_database == in_database;
        match change {
            SettingChange::ResetAll => known.settings.retain(|it| !is_meant(it)),
            SettingChange::Reset(name) => {
                let name = canonical(name);
                known.settings.retain(|it| !(is_meant(it) && it.name == name));
            }
            SettingChange::Set(name, value) => {
                let name = canonical(name);
                let value = match value {
                    Some(parts) => of_parts(&name, parts)?,
                    None => self.current_setting(&name)?,
                };
                let mut settings = Settings::default();
                if !self.is_superuser() {
                    settings.fix("is_superuser", "off");
                }
                // Some session can have it.
                settings.checked(&name, &value, By::Client)?;
                known.settings.retain(|it| !(is_meant(it) && it.name == name));
                known.settings.push(RoleSetting { role: of, in_database, name, value });
            }
        }
        self.put(Object::Database(known))?;
        Ok(tag)
    }

    fn current_setting(&self, name: &str) -> Result<String, SqlError> {
        let all = self.ddl.session.settings();
        let found = all.into_iter().find(|setting| canonical(&setting.name) == name);
        found.map(|setting| setting.value).ok_or_else(|| {
            error(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
        })
    }

    /// Fails unless the current role may change the settings with which these sessions begin.
    fn check_may_set(&self, role: Option<Oid>, tag: &str) -> Result<(), SqlError> {
        if self.is_superuser() {
            return Ok(());
        }
        let refused = |message: &str| Err(error(SqlState::INSUFFICIENT_PRIVILEGE, message));
        let Some(role) = role else {
            let globally = "must be superuser to alter settings globally";
            return refused(if tag == "ALTER DATABASE" { "must be owner of the database" } else { globally });
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
        let Some(known) = self.schema().database() else { return Ok(()) };
        if known.settings.iter().all(|it| it.role != role) {
            return Ok(());
        }
        let mut known = (**known).clone();
        known.settings.retain(|it| it.role != role);
        self.put(Object::Database(known))
    }
}
