//! What functions know of the session that they are evaluated in.

use std::{cell::Cell, fmt, sync::Arc};

use super::{
    Kind,
    datetime::{Formats, Moment, TimeZone, Timestamp},
};
use crate::{
    SqlError, Value,
    functions::SessionCalls,
    memory::{Pool, size_of_value},
};

/// Names of objects, for `regclass` and its like.
pub trait ObjectNames {
    /// The name that an object id of this kind prints as.
    fn name_of(&self, kind: Kind, id: u32) -> Option<String>;

    /// The id of the object of this kind that a name means; none when there is no such object.
    ///
    /// # Errors
    /// 42501 when its schema may not be used.
    fn id_of(&self, kind: Kind, name: &str) -> Result<Option<u32>, SqlError>;
}

/// A time that functions may ask for, and whether any has.
#[derive(Clone, Debug)]
pub struct Begun {
    at: Timestamp,
    asked: Cell<bool>,
}

impl Begun {
    /// The time, for a function whose result depends on it.
    #[inline]
    pub fn at(&self) -> Timestamp {
        self.asked.set(true);
        self.at
    }

    /// Whether anything may depend on it.
    pub fn was_asked(&self) -> bool {
        self.asked.get()
    }
}

impl From<Timestamp> for Begun {
    fn from(at: Timestamp) -> Self {
        Self { at, asked: Cell::new(false) }
    }
}

/// What functions, and the input and output of values, depend on besides their arguments.
#[derive(Clone)]
pub struct EvalContext<'a> {
    /// The session's time zone.
    pub zone: TimeZone,
    /// How the session writes and reads values.
    pub formats: Formats,
    /// When the transaction began: `now()`.
    pub transaction_start: Begun,
    /// When the statement began: `statement_timestamp()`.
    pub statement_start: Begun,
    /// This moment: `clock_timestamp()`.
    pub clock: fn() -> Timestamp,
    /// The catalog, if there is one.
    pub names: Option<&'a dyn ObjectNames>,
    /// The session, if there is one.
    pub session: Option<&'a dyn SessionCalls>,
    /// What `random()` continues from; 0 for a seed from the system.
    pub random: Cell<u64>,
    /// The large values that functions have made, and the memory that they are taken from.
    pub large: Large,
}

impl EvalContext<'_> {
    /// What words like `now` refer to.
    pub fn moment(&self) -> Moment<'_> {
        Moment { now: &self.transaction_start, zone: self.zone, order: self.formats.order }
    }
}

/// Counts the large values that functions make, from when they are made until the evaluation of the
/// expression, of the row or of the plan ends that they were made for.
#[derive(Debug, Default)]
pub struct Large {
    pool: Option<Arc<Pool>>,
    held: Cell<usize>,
}

/// Values are large from this number of bytes on. Smaller ones are not counted: a row has no more
/// than some thousands.
pub(crate) const LARGE: usize = 64 << 10;

/// How many bytes a value has beyond those that each has; an array, all its elements together.
#[inline]
pub(crate) fn extent(value: &Value) -> usize {
    match value {
        Value::Text(text) | Value::Char(text) | Value::Json(text) | Value::Jsonb(text) => text.len(),
        Value::Bytea(bytes) => bytes.len(),
        Value::Numeric(number) => number.extent(),
        Value::Array(array) => array.values().iter().map(|value| 4 + extent(value)).sum(),
        _ => 0,
    }
}

impl Large {
    /// They are taken from this pool.
    pub fn of(pool: &Arc<Pool>) -> Self {
        Self { pool: Some(Arc::clone(pool)), held: Cell::new(0) }
    }

    /// How many bytes are counted now.
    #[inline]
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// Counts a value that was made, if it is large.
    ///
    /// # Errors
    /// 53200.
    #[inline]
    pub fn made(&self, value: &Value) -> Result<(), SqlError> {
        if extent(value) < LARGE { Ok(()) } else { self.count(size_of_value(value)) }
    }

    #[cold]
    fn count(&self, bytes: usize) -> Result<(), SqlError> {
        if let Some(pool) = &self.pool {
            pool.take(bytes)?;
            self.held.set(self.held.get() + bytes);
        }
        Ok(())
    }

    /// What was counted since `held` bytes were is gone.
    #[inline]
    pub fn back_to(&self, held: usize) {
        if self.held.get() > held {
            self.give(held);
        }
    }

    #[cold]
    fn give(&self, held: usize) {
        if let Some(pool) = &self.pool {
            pool.give(self.held.get() - held);
        }
        self.held.set(held);
    }
}

/// A clone counts from zero, in the same pool.
impl Clone for Large {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), held: Cell::new(0) }
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.back_to(0);
    }
}

/// A session in UTC whose transaction begins now.
impl Default for EvalContext<'_> {
    fn default() -> Self {
        let now = Timestamp::now();
        Self {
            zone: TimeZone::Utc,
            formats: Formats::default(),
            transaction_start: now.into(),
            statement_start: now.into(),
            clock: Timestamp::now,
            names: None,
            session: None,
            random: Cell::new(0),
            large: Large::default(),
        }
    }
}

impl fmt::Debug for EvalContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvalContext")
            .field("zone", &self.zone)
            .field("transaction_start", &self.transaction_start.at)
            .field("statement_start", &self.statement_start.at)
            .finish_non_exhaustive()
    }
}
