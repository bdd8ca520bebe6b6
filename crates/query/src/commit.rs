//! What a session waits for after a commit.
//!
//! The node's own safety level is a matter of the log and costs nothing more here. A session may
//! ask for less, and waits for this node's log or for nothing; or for more, and then for more of
//! what the standbys acknowledge.
//!
//! | `synchronous_commit` | `freshet.safety` | waits for |
//! |---|---|---|
//! | `off` | `off` | nothing |
//! | `local` | `1-safe` | the log of this node |
//! | `on`, `remote_write` | (empty) | what the node is set to |
//! | `remote_apply` | (empty) | and that the standbys which count there show it |
//! | | `2-safe` | and every standby that is in sync |
//! | | `very-safe` | and every standby of the cluster |
//! | | `quorum:K` | and K - 1 of them |
//!
//! `freshet.safety` counts when it is set.

use freshet_base::WaitError;
use freshet_engine::{DurableError, Lsn, OutcomeOpen, Safety, Ticket, Wanted};
use freshet_sql::{SqlError, SqlState};

use crate::{error::succeeded, server::Shared, session::settings::Settings, wait::waiting};

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For nothing: the client is told at once.
    Nothing,
    /// The log of this node.
    Local,
    /// What the node is set to.
    Node,
    /// That, and the standbys that count for it show it: all that are in sync under 1-safe and
    /// 2-safe, as many as the level says under the others.
    Applied,
    /// That, and this.
    More(Safety),
}

impl Level {
    /// What a session has set.
    pub fn of(settings: &Settings) -> Self {
        match settings.get("freshet.safety").unwrap_or_default() {
            "" => match settings.get("synchronous_commit").unwrap_or_default() {
                "off" | "false" | "no" | "0" => Self::Nothing,
                "local" => Self::Local,
                "remote_apply" => Self::Applied,
                _ => Self::Node,
            },
            "off" => Self::Nothing,
            "1-safe" => Self::Local,
            // It was checked when it was set.
            other => other.parse().map_or(Self::Node, Self::More),
        }
    }
}

/// Whether `freshet.safety` can have this value.
pub fn is_level(value: &str) -> bool {
    matches!(value, "" | "off") || value.parse::<Safety>().is_ok()
}

/// A commit whose client stopped waiting for it, or was stopped.
fn unknown(cause: &dyn std::fmt::Display) -> SqlError {
    let message = format!("the transaction may or may not have been committed: {cause}");
    SqlError::new(SqlState::new("40003"), message).with_hint(
        "It has taken effect on this node and others may see it, but it may be lost in a failover: before you repeat it, look for its effects, or ask for its outcome if it has asked for a token.",
    )
}

impl Shared {
    /// Waits until a commit holds as `level` says.
    ///
    /// # Errors
    /// 40003 when it is unknown whether it will, also because `interrupted` ends the wait; what
    /// that says, if nothing was written; 40001 for a transaction that has only read, and has seen
    /// what will not hold.
    pub fn wait_for_commit(
        &self,
        ticket: Ticket,
        level: Level,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        // A reader that has seen nothing, or reads on a standby, waits for no commit: a standby
        // shows what is committed as its primary's level wants.
        let waits = ticket.until > Lsn::ZERO;
        // For a reader, what it asked for ends; for a writer, what becomes of its commit is
        // unknown.
        let open = |cause: OutcomeOpen| match (cause, interrupted()) {
            (OutcomeOpen::Deadline, Err(why)) if ticket.lsn.is_none() => why,
            (OutcomeOpen::Deadline, Err(why)) => unknown(&why),
            (OutcomeOpen::LogFailed(why), _) if ticket.lsn.is_none() => {
                let message = format!("what was read may never be committed: the log cannot be written: {why}");
                let error = SqlError::new(SqlState::SERIALIZATION_FAILURE, message);
                error.with_hint("Read again: what is committed can be read.")
            }
            (_, _) if ticket.lsn.is_none() && self.node.is_deposed() => succeeded(),
            (cause, _) if ticket.lsn.is_none() => {
                let message = format!("what was read is not known to be committed: {cause}");
                SqlError::new(SqlState::CANNOT_CONNECT_NOW, message)
            }
            (cause, _) => unknown(&cause),
        };
        match level {
            Level::Nothing => return Ok(()),
            Level::Local if !waits => return Ok(()),
            Level::Local => {
                let Some(log) = self.node.log() else { return Ok(()) };
                return match waiting(interrupted, |patience| log.wait_durable(ticket.until, patience)) {
                    Ok(_) => Ok(()),
                    Err(DurableError::Deadline) => Err(open(OutcomeOpen::Deadline)),
                    Err(cause) => Err(unknown(&cause)),
                };
            }
            Level::Node | Level::Applied | Level::More(_) => {
                waiting(interrupted, |patience| self.database.wait_until(ticket, patience)).map_err(open)?;
            }
        }
        let Level::More(safety) = level else { return Ok(()) };
        if !waits {
            return Ok(());
        }
        let wanted = Wanted::Persistent(safety);
        match waiting(interrupted, |patience| self.node.wait_for_standbys(wanted, ticket.until, patience)) {
            Ok(()) => Ok(()),
            Err(WaitError::Closed) if ticket.lsn.is_some() && self.node.is_deposed() => Err(unknown(&succeeded())),
            Err(WaitError::Closed) => Err(open(OutcomeOpen::Stopped)),
            Err(WaitError::Interrupted | WaitError::Deadline) => Err(open(OutcomeOpen::Deadline)),
        }
    }

    /// Waits while transactions that would begin wait for a switch-over.
    ///
    /// # Errors
    /// What `interrupted` says, and 57P01 when this node is the primary no more.
    pub fn wait_to_begin(&self, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<(), SqlError> {
        match waiting(interrupted, |patience| self.database.wait_to_begin(patience)) {
            Ok(()) => Ok(()),
            Err(WaitError::Closed) => Err(succeeded()),
            Err(WaitError::Interrupted | WaitError::Deadline) => interrupted(),
        }
    }

    /// Waits while as much of the log is uncommitted as the node allows.
    ///
    /// # Errors
    /// What `interrupted` says: the transaction was not committed, and is not going to be.
    pub fn wait_for_room(&self, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<(), SqlError> {
        match waiting(interrupted, |patience| self.database.wait_for_room(patience)) {
            true => Ok(()),
            false => interrupted(),
        }
    }

    /// Waits until a commit that holds is visible to the readers of the standbys that count for the
    /// node's level. A standby that is lost does not count any more when the node continues without
    /// it.
    ///
    /// # Errors
    /// What `interrupted` says, and 57P01 when this node is the primary no more. The commit holds
    /// all the same.
    pub fn wait_until_shown(&self, until: Lsn, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<(), SqlError> {
        let wanted = Wanted::Visible(self.node.level());
        match waiting(interrupted, |patience| self.node.wait_for_standbys(wanted, until, patience)) {
            Ok(()) => Ok(()),
            Err(_) => interrupted().and(Err(succeeded())),
        }
    }
}
