//! The work of a session for one message of its client.

use std::sync::Arc;

use freshet_base::panics;
use freshet_postgres::Report;
use freshet_sql::{SqlError, account, memory::Pool, work};

use super::{Session, interrupt::Flag, wire::report};
use crate::error::unforeseen;

/// What ends what a session does for its client, and from where its memory is taken.
pub(super) struct Account(Arc<Flag>, Arc<Pool>, Arc<account::Account>);

impl Account {
    /// The account of this session, whose work for a message begins.
    pub(super) fn of(session: &Session<'_>) -> Self {
        let state = &session.state;
        if session.block.is_none() {
            state.account.begin();
        }
        Self(Arc::clone(&state.flag), Arc::clone(&state.memory), Arc::clone(&state.account))
    }

    /// Does something for a client. A panic in it fails the statement, and with that its
    /// transaction, and nothing else.
    ///
    /// # Errors
    /// What goes wrong.
    pub(super) fn contained<T>(&self, work: impl FnOnce() -> Result<T, SqlError>) -> Result<T, Report> {
        let Self(flag, memory, account) = self;
        let work = || work::for_session(&|| flag.check(), memory, account, work);
        let done = panics::contained("a statement", work);
        done.unwrap_or_else(|caught| Err(unforeseen(caught))).map_err(report)
    }
}
