//! A session's database: whether it may be opened there, and what concerns others who are in one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::WaitError;
use freshet_sql::{SqlError, SqlState};

use super::Session;
use crate::{
    ddl::{
        Definition, no_database,
        syntax::{AlterDatabase, CreateDatabase},
    },
    schema::{Database, Oid, Role, Schema, privilege},
    server::Shared,
    wait::waiting,
};

/// For how long a statement waits for sessions to leave a database: a client that has closed its
/// connection may still be counted.
const LEAVE: Duration = Duration::from_secs(5);

/// The database of this name, for a session of this role that is to be opened in it.
///
/// # Errors
/// 3D000 when none exists, 55000 when it allows none, 42501 without CONNECT, 53300 when it has as
/// many sessions as it may have.
pub fn open(shared: &Shared, schema: &Schema, role: &Role, name: &str) -> Result<Arc<Database>, SqlError> {
    let database = schema.database_named(name).ok_or_else(|| no_database(name))?;
    if !database.allow_connections {
        let message = format!("database \"{name}\" is not currently accepting connections");
        return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    let held = schema.privileges(role.oid, database.owner, &database.grants);
    if held & privilege::CONNECT == 0 {
        let message = format!("permission denied for database \"{name}\"");
        let refused = SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message);
        return Err(refused.with_detail("User does not have CONNECT privilege."));
    }
    if let Some(limit) = database.connection_limit.filter(|_| !role.superuser)
        && shared.sessions.in_database(database.oid).len() >= limit as usize
    {
        let message = format!("too many connections for database \"{name}\"");
        return Err(SqlError::new(SqlState::TOO_MANY_CONNECTIONS, message));
    }
    Ok(Arc::clone(database))
}

impl Session<'_> {
    /// Before a definition that nobody else may be in a database for: fails if there are others who
    /// do not leave it, or ends their sessions, if that is wanted. To be called without locks, and
    /// before the catalog is changed, since others may have to go on to leave.
    ///
    /// # Errors
    /// 25001 within a transaction, 55006, and what ends the wait.
    pub(super) fn before_definition(&mut self, definition: &Definition) -> Result<(), SqlError> {
        if let Some(what) = definition.stands_alone() {
            self.must_be_alone(what)?;
        }
        let schema = Arc::clone(&self.state.schema);
        let (name, force, what) = match definition {
            Definition::DropDatabase { name, force, .. } => (name.as_str(), *force, "database"),
            Definition::AlterDatabase { name, change: AlterDatabase::Rename(_) } => (name.as_str(), false, "database"),
            Definition::CreateDatabase(CreateDatabase { options, .. }) => {
                let template = options.iter().find(|option| option.name == "template");
                let template = template.and_then(|option| option.value.as_deref());
                (template.unwrap_or("template1"), false, "source database")
            }
            _ => return Ok(()),
        };
        // What else is wrong is said by the statement itself.
        let Some(database) = schema.database_named(name) else { return Ok(()) };
        let owns = schema.is_member(self.state.role, database.owner);
        let drops = matches!(definition, Definition::DropDatabase { .. });
        let is_own = database.oid == self.state.schema.database;
        let refused = match definition {
            Definition::CreateDatabase(_) => !(owns || database.is_template),
            _ => !owns || is_own || drops && database.is_template,
        };
        if refused {
            return Ok(());
        }
        let count = self.wait_until_left(database.oid, force)?;
        if count == 0 {
            return Ok(());
        }
        let message = format!("{what} \"{name}\" is being accessed by other users");
        let detail = match count {
            1 => "There is 1 other session using the database.".to_owned(),
            count => format!("There are {count} other sessions using the database."),
        };
        Err(SqlError::new(SqlState::OBJECT_IN_USE, message).with_detail(detail))
    }

    /// Waits until no other session is in a database, for a few seconds; ends those that are, if
    /// that is wanted. Returns how many are left.
    fn wait_until_left(&self, database: Oid, force: bool) -> Result<usize, SqlError> {
        let deadline = Instant::now() + LEAVE;
        let mut left = 0;
        let look = || {
            let mut others = self.shared.sessions.in_database(database);
            others.retain(|pid| *pid != self.state.pid);
            left = others.len();
            if force {
                for pid in others {
                    let _ = self.state.sessions.terminate(pid);
                }
            }
            (left == 0).then_some(())
        };
        let changes = self.shared.sessions.changes();
        match waiting(&self.interruption(), |patience| changes.until(patience.until(deadline), look)) {
            Err(WaitError::Interrupted) => self.check()?,
            Ok(()) | Err(WaitError::Deadline | WaitError::Closed) => {}
        }
        Ok(left)
    }
}
