//! The statement that runs a query, as every part of the query sees it.
//!
//! Operators and functions are shared among threads and outlive statements, so they cannot hold
//! what a statement lends: its parameters, its context, its transaction. They find it here, in the
//! thread that runs them.

use datafusion_common::{DataFusionError, Result};
use freshet_sql::{SqlError, Value, types::EvalContext};
use scoped_tls_hkt::scoped_thread_local;

use crate::{error::external, subquery::State};

/// What a running query is lent by its statement.
#[derive(Clone, Copy)]
pub(crate) struct Session<'r> {
    /// What functions and types depend on: the time zone, formats, the clock.
    pub context: &'r EvalContext<'r>,
    /// The values of the parameters `$1`, `$2`, ...
    pub parameters: &'r [Value],
    /// Whether to go on.
    pub interrupted: &'r dyn Fn() -> Result<(), SqlError>,
    /// What the run itself keeps.
    pub state: &'r State,
}

scoped_thread_local!(static SESSION: for<'r> &'r Session<'r>);

impl Session<'_> {
    /// Does something in this session.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        SESSION.set(self, work)
    }

    /// Fails when the statement is interrupted.
    pub fn check(&self) -> Result<()> {
        (self.interrupted)().map_err(external)
    }
}

/// Gives the session of this thread.
///
/// # Errors
/// When none has been entered: a mistake in this crate.
pub(crate) fn with<T>(work: impl FnOnce(&Session<'_>) -> Result<T>) -> Result<T> {
    if !SESSION.is_set() {
        return Err(DataFusionError::Internal("a query is evaluated outside of its session".to_owned()));
    }
    SESSION.with(|session| work(session))
}

/// Fails when the statement of this thread is interrupted.
pub(crate) fn check() -> Result<()> {
    with(|session| session.check())
}
