//! What functions know of the session that they are evaluated in.

use std::{cell::Cell, fmt};

use super::{
    Kind,
    datetime::{Moment, TimeZone, Timestamp},
};
use crate::functions::SessionCalls;

/// Names of objects, for `regclass` and its like.
pub trait ObjectNames {
    /// The name that an object id of this kind prints as.
    fn name_of(&self, kind: Kind, id: u32) -> Option<String>;

    /// The id of the object that a name of this kind means.
    fn id_of(&self, kind: Kind, name: &str) -> Option<u32>;
}

/// What functions, and the input and output of values, depend on besides their arguments.
#[derive(Clone)]
pub struct EvalContext<'a> {
    /// The session's time zone.
    pub zone: TimeZone,
    /// When the transaction began: `now()`.
    pub transaction_start: Timestamp,
    /// When the statement began: `statement_timestamp()`.
    pub statement_start: Timestamp,
    /// This moment: `clock_timestamp()`.
    pub clock: fn() -> Timestamp,
    /// The catalog, if there is one.
    pub names: Option<&'a dyn ObjectNames>,
    /// The session, if there is one.
    pub session: Option<&'a dyn SessionCalls>,
    /// What `random()` goes on from; 0 for a seed from the system.
    pub random: Cell<u64>,
}

impl EvalContext<'_> {
    /// What words like `now` refer to.
    pub const fn moment(&self) -> Moment {
        Moment { now: self.transaction_start, zone: self.zone }
    }
}

/// A session in UTC whose transaction begins now.
impl Default for EvalContext<'_> {
    fn default() -> Self {
        let now = Timestamp::now();
        Self {
            zone: TimeZone::Utc,
            transaction_start: now,
            statement_start: now,
            clock: Timestamp::now,
            names: None,
            session: None,
            random: Cell::new(0),
        }
    }
}

impl fmt::Debug for EvalContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvalContext")
            .field("zone", &self.zone)
            .field("transaction_start", &self.transaction_start)
            .field("statement_start", &self.statement_start)
            .finish_non_exhaustive()
    }
}
