//! The memory that statements, sessions and the server take for queries, counted in one place.
//!
//! A [`Pool`] has a limit, and what is taken from it is taken from the pool above it, too: a
//! statement's from its session's, a session's from the server's. A caller that keeps something
//! holds a [`Reservation`] for as long. What is counted is what grows with data or with what
//! clients send; the fixed sizes of structures are not.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use freshet_base::memory::{self, Owner};

use crate::{SqlError, SqlState, Value};

/// How many bytes a pool takes from the one above it at a time, so that this is seldom asked.
const STEP: usize = 64 << 10;

/// A bounded amount of memory.
pub struct Pool {
    what: &'static str,
    limit: usize,
    /// What can be done when it does not suffice.
    remedy: &'static str,
    taken: Mutex<Taken>,
    above: Option<Arc<Pool>>,
    /// Of a pool that has none above it: whether the node has room for this many bytes more.
    node: OnceLock<HasRoom>,
}

type HasRoom = Box<dyn Fn(u64) -> bool + Send + Sync>;

#[derive(Default)]
struct Taken {
    used: usize,
    /// What the pool has from the one above it.
    granted: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes of a {}", self.used(), self.limit, self.what)
    }
}

impl Pool {
    /// A pool of `limit` bytes. `what` it is of, and the `remedy` when it is too small, are said in
    /// errors.
    pub fn new(what: &'static str, limit: usize, remedy: &'static str) -> Arc<Self> {
        Arc::new(Self { what, limit, remedy, taken: Mutex::default(), above: None, node: OnceLock::new() })
    }

    /// A pool of `limit` bytes that are taken from this one.
    pub fn below(self: &Arc<Self>, what: &'static str, limit: usize, remedy: &'static str) -> Arc<Self> {
        let above = Some(Arc::clone(self));
        Arc::new(Self { what, limit, remedy, taken: Mutex::default(), above, node: OnceLock::new() })
    }

    /// A pool without a name and with nothing above it: for tests and benchmarks.
    pub fn of(limit: usize) -> Arc<Self> {
        Self::new("pool", limit, "")
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool that this one takes from.
    pub fn above(&self) -> Option<&Arc<Self>> {
        self.above.as_ref()
    }

    /// From now on this pool, which has none above it, gives only what the node has room for.
    pub fn within(&self, has_room: impl Fn(u64) -> bool + Send + Sync + 'static) {
        let _ = self.node.set(Box::new(has_room));
    }

    /// How many bytes there are at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many bytes are taken.
    pub fn used(&self) -> usize {
        self.taken().used
    }

    /// Takes bytes, to be [given back](Pool::give). A [`Reservation`] does that by itself.
    ///
    /// # Errors
    /// 53200 when that are more than are left here or in a pool above; nothing is taken then.
    pub fn take(&self, bytes: usize) -> Result<(), SqlError> {
        let mut taken = self.taken();
        let used = taken.used.checked_add(bytes).filter(|used| *used <= self.limit);
        let used = used.ok_or_else(|| self.exhausted())?;
        if let Some(above) = &self.above
            && used > taken.granted
        {
            let least = used - taken.granted;
            let most = least.next_multiple_of(STEP).min(self.limit - taken.granted);
            match above.take(most) {
                Ok(()) => taken.granted += most,
                Err(_) => {
                    above.take(least)?;
                    taken.granted += least;
                }
            }
        }
        if self.above.is_none() {
            if self.node.get().is_some_and(|has_room| !has_room(bytes as u64)) {
                return Err(self.crowded_out());
            }
            memory::count(Owner::Statements, bytes as i64);
        }
        taken.used = used;
        Ok(())
    }

    /// Takes bytes that are there already, however many: the next request that can fail will.
    pub fn force(&self, bytes: usize) {
        let mut taken = self.taken();
        taken.used = taken.used.saturating_add(bytes);
        if self.above.is_none() {
            memory::count(Owner::Statements, bytes as i64);
        }
        if let Some(above) = &self.above
            && taken.used > taken.granted
        {
            above.force(taken.used - taken.granted);
            taken.granted = taken.used;
        }
    }

    /// Gives back bytes that were taken.
    pub fn give(&self, bytes: usize) {
        let mut taken = self.taken();
        debug_assert!(bytes <= taken.used, "more is given back than was taken");
        taken.used = taken.used.saturating_sub(bytes);
        if self.above.is_none() {
            memory::count(Owner::Statements, -(bytes as i64));
        }
        let keep = taken.used.saturating_add(STEP);
        if let Some(above) = &self.above
            && taken.granted > keep.saturating_add(STEP)
        {
            above.give(taken.granted - keep);
            taken.granted = keep;
        }
    }

    /// A reservation of no bytes yet.
    pub fn reserve(self: &Arc<Self>) -> Reservation {
        Reservation { pool: Arc::clone(self), bytes: AtomicUsize::new(0) }
    }

    /// The pool has some left, and the node has not.
    #[cold]
    fn crowded_out(&self) -> SqlError {
        let message = format!(
            "out of memory: this node has reached its setting memory-bytes, and has none left for this {}; bytes \
             taken: {}",
            self.what,
            memory::usage()
        );
        let hint = "Delete rows and drop what is not needed, end transactions and sessions, or raise memory-bytes.";
        SqlError::new(SqlState::OUT_OF_MEMORY, message).with_hint(hint)
    }

    #[cold]
    fn exhausted(&self) -> SqlError {
        let Self { what, limit, remedy, .. } = self;
        let error =
            SqlError::new(SqlState::OUT_OF_MEMORY, format!("out of memory: this {what} may keep {limit} bytes"));
        if remedy.is_empty() { error } else { error.with_hint(*remedy) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let Taken { used, granted } = *self.taken();
        match &self.above {
            Some(above) => above.give(granted),
            None => memory::count(Owner::Statements, -(used as i64)),
        }
    }
}

/// Bytes of a pool that something takes, until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<Pool>,
    bytes: AtomicUsize,
}

impl Reservation {
    /// Takes more.
    ///
    /// # Errors
    /// 53200, as for [`Pool::take`].
    #[inline]
    pub fn take(&self, bytes: usize) -> Result<(), SqlError> {
        self.pool.take(bytes)?;
        // Relaxed: a number that one thread at a time counts with.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes what these values need.
    ///
    /// # Errors
    /// As for [`Reservation::take`].
    pub fn take_values(&self, values: &[Value]) -> Result<(), SqlError> {
        self.take(values.iter().map(size_of_value).sum())
    }

    /// Takes or gives back what makes it `bytes` in all.
    ///
    /// # Errors
    /// As for [`Reservation::take`].
    pub fn set(&self, bytes: usize) -> Result<(), SqlError> {
        let before = self.bytes();
        match bytes.checked_sub(before) {
            Some(more) => self.take(more),
            None => {
                self.pool.give(before - bytes);
                self.bytes.store(bytes, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Makes it `bytes` in all, which are there already ([`Pool::force`]).
    pub fn force(&self, bytes: usize) {
        let before = self.bytes();
        match bytes.checked_sub(before) {
            Some(more) => self.pool.force(more),
            None => self.pool.give(before - bytes),
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pool.give(self.bytes());
    }
}

/// How many bytes a value takes.
pub fn size_of_value(value: &Value) -> usize {
    let behind = match value {
        Value::Text(text) | Value::Char(text) | Value::Json(text) | Value::Jsonb(text) => text.len() + 16,
        Value::Bytea(bytes) => bytes.len() + 16,
        Value::Numeric(number) => number.extent(),
        Value::Array(array) => array.values().iter().map(size_of_value).sum::<usize>() + 64,
        _ => 0,
    };
    size_of::<Value>() + behind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_taken_from_all_pools_above() {
        let server = Pool::new("server", 10 * STEP, "");
        let (one, other) = (server.below("session", 8 * STEP, ""), server.below("session", 8 * STEP, ""));
        let statement = one.below("statement", 4 * STEP, "Take less.");
        let held = statement.reserve();
        held.take(3 * STEP + 1).unwrap();
        assert_eq!((statement.used(), one.used(), server.used()), (3 * STEP + 1, 4 * STEP, 4 * STEP));
        let error = held.take(STEP).unwrap_err();
        assert_eq!((error.state, error.hint.as_deref()), (SqlState::OUT_OF_MEMORY, Some("Take less.")));
        // Of the server's ten there are six left.
        let rest = other.reserve();
        assert!(rest.take(6 * STEP + 1).is_err());
        rest.take(6 * STEP - 1).unwrap();
        rest.take(1).unwrap();
        assert!(rest.take(1).unwrap_err().message.contains("server"));
        // What a session gives back others may have.
        drop(held);
        drop(statement);
        assert!(rest.take(STEP).is_ok());
        drop((rest, one, other));
        assert_eq!(server.used(), 0);
    }

    #[test]
    fn a_reservation_grows_and_shrinks() {
        let server = Pool::of(10 * STEP);
        let session = server.below("session", 10 * STEP, "");
        let held = session.reserve();
        held.set(9 * STEP).unwrap();
        assert!(held.set(11 * STEP).is_err());
        assert_eq!(held.bytes(), 9 * STEP);
        held.set(5).unwrap();
        assert!(server.used() <= 2 * STEP, "{server:?}");
        session.force(20 * STEP);
        assert!(held.take(1).is_err() && server.used() >= 20 * STEP);
        session.give(20 * STEP);
        held.take_values(&[Value::Text("x".repeat(100).into()), Value::Null]).unwrap();
        assert!(held.bytes() > 105);
    }
}
