//! What a session waits for after a commit.
//!
//! The node's own safety level is a matter of the log and costs nothing more here. A session may ask for less, and waits for
//! this node's log or for nothing; or for more, and then looks itself at what the standbys have acknowledged.
//!
//! | `synchronous_commit` | `freshet.safety` | waits for |
//! |---|---|---|
//! | `off` | `off` | nothing |
//! | `local` | `1-safe` | the log of this node |
//! | `on`, `remote_write`, `remote_apply` | (empty) | what the node is set to |
//! | | `2-safe` | and every standby that is in sync |
//! | | `very-safe` | and every standby of the cluster |
//! | | `quorum:K` | and K - 1 of them |
//!
//! `freshet.safety` counts when it is set. What is visible on standbys is at once what is persistent there, so `remote_apply` needs no
//! wait of its own.

use std::time::{Duration, Instant};

use freshet_engine::{OutcomeOpen, Safety, Stamp, Ticket};
use freshet_sql::{SqlError, SqlState};

use crate::{server::Shared, session::settings::Settings};

/// How often a wait looks whether its session is to end.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a session that asks for more than the node's level looks at the standbys.
const ASK_EVERY: Duration = Duration::from_micros(200);

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Nothing.
    Nothing,
    /// The log of this node.
    Local,
    /// What the node is set to.
    Node,
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

impl Shared {
    /// Waits until a commit holds as `level` says.
    ///
    /// # Errors
    /// 40003 when nobody knows whether it will.
    pub fn wait_for_commit(
        &self,
        ticket: Ticket,
        level: Level,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let open = |cause: &dyn std::fmt::Display| {
            let message = format!("the transaction may or may not have been committed: {cause}");
            SqlError::new(SqlState::new("40003"), message)
        };
        match level {
            Level::Nothing => return Ok(()),
            Level::Local => {
                let Some(log) = self.node.log() else { return Ok(()) };
                return log.wait_durable(ticket.until, None).map(drop).map_err(|cause| open(&cause));
            }
            Level::Node | Level::More(_) => loop {
                match self.database.wait_until(ticket, Some(Instant::now() + LOOK_EVERY)) {
                    Ok(()) => break,
                    Err(OutcomeOpen::Deadline) if interrupted().is_ok() => {}
                    Err(cause) => return Err(open(&cause)),
                }
            },
        }
        let Level::More(safety) = level else { return Ok(()) };
        while !self.is_kept(safety, ticket.until) {
            interrupted().map_err(|cause| open(&cause))?;
            std::thread::sleep(ASK_EVERY);
        }
        Ok(())
    }

    /// Waits while as much of the log is uncommitted as the node allows.
    ///
    /// # Errors
    /// What `interrupted` says: the transaction was not committed, and is not going to be.
    pub fn wait_for_room(&self, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<(), SqlError> {
        while !self.database.wait_for_room(Some(Instant::now() + LOOK_EVERY)) {
            interrupted()?;
        }
        Ok(())
    }

    /// Whether everything below `until` is persistent where a level wants it.
    fn is_kept(&self, safety: Safety, until: Stamp) -> bool {
        let Some(shipping) = self.node.shipping_status() else { return false };
        let has = |standby: &&freshet_engine::StandbyStatus| standby.acked >= until;
        match safety {
            Safety::OneSafe => true,
            Safety::TwoSafe => shipping.standbys.iter().filter(|standby| standby.in_sync).all(|standby| has(&standby)),
            Safety::VerySafe => shipping.standbys.iter().filter(has).count() >= self.node.config().standbys as usize,
            Safety::Quorum(nodes) => shipping.standbys.iter().filter(has).count() + 1 >= nodes as usize,
        }
    }
}
