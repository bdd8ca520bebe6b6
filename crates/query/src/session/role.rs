//! In whose name a session runs: SET ROLE and SET SESSION AUTHORIZATION.
//!
//! Both are settings, so they come and go with transactions and savepoints as all settings do; what
//! [`State`] says of its roles follows them.

use freshet_postgres::Out;
use freshet_sql::{SqlError, SqlState};

use super::{
    Session, State,
    settings::{By, canonical},
};
use crate::schema::{Oid, Role};

/// The role in whose name statements run; none for that of the session.
const ROLE: &str = "role";
/// The role of the session.
const SESSION: &str = "session_authorization";

impl Session<'_> {
    /// Sets a setting, or without a value resets it to what it was at the start. A role is looked
    /// up in what is committed now: no snapshot is taken, since the transaction would keep it.
    ///
    /// # Errors
    /// As for [`State::set`].
    pub(super) fn set(&mut self, name: &str, value: Option<&str>, local: bool, out: &mut Out) -> Result<(), SqlError> {
        if matches!(canonical(name).as_str(), ROLE | SESSION) {
            match self.block.as_ref().map(|block| (&block.transaction, block.is_read_committed())) {
                None | Some((None, _)) => {
                    let transaction = self.worker.begin_read_only();
                    self.state.schema = self.shared.catalog.read(&transaction, self.state.schema.database)?;
                }
                Some((Some(transaction), read_committed)) => {
                    if read_committed {
                        transaction.refresh();
                    }
                    self.refresh_schema()?;
                }
            }
        }
        self.state.set(name, value, local, By::Statement)?;
        if let Some(remark) = value.and_then(|_| self.state.settings.remark(name)) {
            let remark = SqlError::new(SqlState::SUCCESSFUL_COMPLETION, remark);
            self.state.send_notice(out, &super::wire::notice(remark));
        }
        out.speak(self.state.settings.ready.encoding);
        Ok(())
    }
}

impl State {
    /// Sets a setting, or without a value resets it to what it was at the start.
    ///
    /// # Errors
    /// 42704 when there is no such setting, 22023 when it cannot have the value, 42501 when the
    /// session may not become this role.
    pub fn set(&mut self, name: &str, value: Option<&str>, local: bool, by: By) -> Result<(), SqlError> {
        match (canonical(name).as_str(), value) {
            (ROLE, None) => {
                let start = self.settings.start(ROLE).map(|(oid, name)| (oid, name.to_owned()));
                self.settings.set_role(ROLE, start.as_ref().map(|(oid, name)| (*oid, name.as_str())), local)?;
            }
            (ROLE, Some(name)) if name.eq_ignore_ascii_case("none") => self.settings.set_role(ROLE, None, local)?,
            (ROLE, Some(name)) => {
                let (oid, name) = self.may_become(name)?;
                self.settings.set_role(ROLE, Some((oid, &name)), local)?;
            }
            (SESSION, value) => {
                let (oid, name) = self.may_open_as(value)?;
                self.settings.set_role(SESSION, Some((oid, &name)), local)?;
                self.settings.set_role(ROLE, None, local)?;
            }
            (_, Some(value)) => return self.settings.set(name, value, local, by),
            (_, None) => return self.settings.reset(name, local),
        }
        self.follow();
        Ok(())
    }

    fn named(&self, name: &str) -> Result<&Role, SqlError> {
        let missing = || SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("role \"{name}\" does not exist"));
        self.schema.role(name).map(|role| &**role).ok_or_else(missing)
    }

    fn may_become(&self, name: &str) -> Result<(Oid, String), SqlError> {
        let role = self.named(name)?;
        if self.schema.may_become(self.session_role, role.oid) {
            return Ok((role.oid, role.name.clone()));
        }
        let message = format!("permission denied to set role \"{name}\"");
        Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
    }

    fn may_open_as(&self, name: Option<&str>) -> Result<(Oid, String), SqlError> {
        let internal = || SqlError::internal("nobody has opened the session");
        // Before the session has begun, this is what it will begin with.
        let opened = self.settings.start(SESSION).or_else(|| self.settings.role(SESSION));
        let (opened, own) = opened.ok_or_else(internal)?;
        let Some(name) = name else { return Ok((opened, own.to_owned())) };
        let role = self.named(name)?;
        if role.oid == opened || self.schema.role_by_oid(opened).is_some_and(|opened| opened.superuser) {
            return Ok((role.oid, role.name.clone()));
        }
        Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to set session authorization"))
    }

    /// Takes the session's roles from the settings, which have changed.
    pub fn follow(&mut self) {
        if let Some((oid, name)) = self.settings.role(SESSION) {
            (self.session_role, self.session_user) = (oid, name.to_owned());
        }
        (self.role, self.user) = match self.settings.role(ROLE) {
            Some((oid, name)) => (oid, name.to_owned()),
            None => (self.session_role, self.session_user.clone()),
        };
        let superuser = self.schema.role_by_oid(self.role).is_some_and(|role| role.superuser);
        let superuser = if superuser { "on" } else { "off" };
        if self.settings.get("is_superuser") != Some(superuser) {
            self.settings.fix("is_superuser", superuser);
        }
    }

    /// Ends the transaction: settings that end with it return to what they were before.
    pub fn end_transaction(&mut self, committed: bool) {
        self.settings.end(committed);
        self.follow();
    }

    /// Takes back what was set after the last of this many savepoints.
    pub fn roll_back_to(&mut self, savepoints: usize) {
        self.settings.roll_back_to(savepoints);
        self.follow();
    }
}
