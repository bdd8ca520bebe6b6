//! Plans to rows.
//!
//! | module | does |
//! |---|---|
//! | [`scan`] | the rows of one table, by an access path; nested loops |
//! | [`select`] | conditions, groups, order, limits |
//! | [`aggregate`] | what is computed for groups |
//! | [`write`] | one record: waits for its holder, as the isolation level wants it |
//! | [`modify`] | INSERT, UPDATE, DELETE |
//! | [`measure`] | what EXPLAIN ANALYZE is told |
//! | `referential` | FOREIGN KEY |
//! | `violation` | what is wrong with a row |
//! | `counts` | what is counted of tables |
//! | [`deferred`] | constraints that are checked later |

pub mod aggregate;
mod counts;
pub mod deferred;
mod general;
pub mod measure;
pub mod modify;
pub(crate) mod referential;
pub mod scan;
pub mod select;
mod violation;
pub mod write;

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use freshet_engine::{Rid, Transaction};
use freshet_sql::{
    SqlError, SqlState, Value,
    memory::{Pool, Reservation},
};

use crate::{
    bind::select::Output,
    expression::{Environment, Source},
    inputs::captured::Captured,
    schema::{FIRST_ROLE, Oid, Schema, Table, privilege},
    statistics::Tally,
};
use referential::RowChange;

/// How often a long statement looks whether it is to end.
const LOOK_EVERY: u32 = 256;

/// A statement that runs.
pub struct Run<'a, 'w> {
    /// The engine's transaction, which the statement reads and writes in.
    pub transaction: &'a Transaction<'w>,
    /// With what expressions are evaluated.
    pub environment: Environment<'a>,
    /// Whether each statement sees what has committed before it, and rows are looked at again when
    /// somebody else has changed them.
    pub read_committed: bool,
    /// How long it waits for another transaction.
    pub lock_timeout: Option<Duration>,
    /// Asked now and then: an error ends it.
    pub interrupted: &'a dyn Fn() -> Result<(), SqlError>,
    /// Gives ids to rows that have no other key.
    pub row_ids: &'a RowIds,
    /// The pool from which it takes memory.
    pub memory: Arc<Pool>,
    /// What it keeps of that.
    pub kept: Reservation,
    /// What there is, for references between tables.
    pub schema: Option<&'a Schema>,
    /// What is checked when the transaction ends, and the memory that it may take.
    pub deferred: Option<(&'a deferred::Deferred, &'a Arc<Pool>)>,
    /// The role that sees errors.
    pub role: Oid,
    /// With what its session counts what it reads and writes; none for one that is executed again.
    pub tally: Option<&'a Tally>,
    /// What has become of rows that have references or are referred to.
    changes: RefCell<Vec<RowChange>>,
    /// Records, with their tables' OIDs, to which rows have moved that a SELECT has locked. They
    /// are its transaction's own now, so its scans may meet them, though they came after its
    /// snapshot.
    moved: RefCell<HashSet<(u32, Rid)>>,
    /// The records that INSERT … ON CONFLICT DO UPDATE has written.
    upserted: RefCell<HashSet<Rid>>,
    /// Whether a row that a general query locks was changed since its snapshot.
    outdated: Cell<bool>,
    until_look: Cell<u32>,
    keys: RefCell<Vec<Vec<u8>>>,
}

/// Ids for rows that have no key of their own: those of one session follow one another, and no two
/// sessions have the same. They are made of a random number of the server's, in 8 bytes, the
/// session's number among its sessions, in 5, and a counter.
#[derive(Debug)]
pub struct RowIds {
    source: Arc<RowIdSource>,
    /// What the next one has behind the server's number.
    next: Cell<u64>,
}

/// Where the sessions of a server get ids for their rows.
#[derive(Debug)]
pub struct RowIdSource {
    run: u64,
    sessions: AtomicU64,
}

/// The bits of an id's counter.
const COUNTER: u32 = 24;

/// A consumer of a statement's rows: the wire, a cursor, a table.
pub trait Sink {
    /// The next row: each output evaluated on these rows.
    ///
    /// # Errors
    /// What goes wrong in the expressions, or with the client.
    fn row(
        &mut self,
        output: &[Output],
        rows: &[Source<'_>],
        environment: &Environment<'_>,
    ) -> Result<ControlFlow<()>, SqlError>;

    /// The next row, evaluated.
    ///
    /// # Errors
    /// What goes wrong with the client.
    fn values(&mut self, values: &[Value]) -> Result<ControlFlow<()>, SqlError>;

    /// The records that a general query has locked for the row that comes next.
    ///
    /// # Errors
    /// 53200.
    fn records(&mut self, _: &mut dyn Iterator<Item = Rid>) -> Result<(), SqlError> {
        Ok(())
    }
}

impl RowIdSource {
    /// That of a server that starts.
    ///
    /// # Errors
    /// When there is no randomness to be had.
    pub fn new() -> Result<Self, SqlError> {
        let failed = |cause| SqlError::new(SqlState::SYSTEM_ERROR, format!("no random number: {cause}"));
        Ok(Self::of(getrandom::u64().map_err(failed)?))
    }

    /// That of the server whose number this is.
    pub fn of(run: u64) -> Self {
        Self { run, sessions: AtomicU64::new(0) }
    }

    /// The server's number.
    pub fn run(&self) -> u64 {
        self.run
    }

    fn session(&self) -> u64 {
        // Relaxed: nothing but the number counts.
        self.sessions.fetch_add(1, Ordering::Relaxed) << COUNTER
    }
}

impl RowIds {
    /// Ids for a new session.
    pub fn new(source: &Arc<RowIdSource>) -> Self {
        Self { next: Cell::new(source.session()), source: Arc::clone(source) }
    }

    /// Ids from a [position](RowIds::position) on.
    pub fn starting_at(source: RowIdSource, (session, counter): (u64, u64)) -> Self {
        Self { source: Arc::new(source), next: Cell::new(session << COUNTER | counter) }
    }

    /// Where the next one is: the session's number, and the counter.
    pub fn position(&self) -> (u64, u64) {
        let next = self.next.get();
        (next >> COUNTER, next & ((1 << COUNTER) - 1))
    }

    /// Takes the next id of a row.
    pub fn take(&self) -> Value {
        let next = self.next.get();
        let is_last = self.position().1 == (1 << COUNTER) - 1;
        self.next.set(if is_last { self.source.session() } else { next + 1 });
        Value::Uuid(((u128::from(self.source.run) << 64) | u128::from(next)).to_be_bytes())
    }
}

impl<'a, 'w> Run<'a, 'w> {
    /// A statement that begins.
    pub fn new(
        transaction: &'a Transaction<'w>,
        environment: Environment<'a>,
        interrupted: &'a dyn Fn() -> Result<(), SqlError>,
        row_ids: &'a RowIds,
        memory: Arc<Pool>,
    ) -> Self {
        let kept = memory.reserve();
        Self {
            transaction,
            environment,
            read_committed: false,
            lock_timeout: None,
            interrupted,
            row_ids,
            memory,
            kept,
            schema: None,
            deferred: None,
            role: FIRST_ROLE,
            tally: None,
            changes: RefCell::default(),
            moved: RefCell::default(),
            upserted: RefCell::default(),
            outdated: Cell::new(false),
            until_look: Cell::new(LOOK_EVERY),
            keys: RefCell::default(),
        }
    }

    /// Whether the statement is executed again: whatever has to be checked, locked or waited for
    /// was when it ran first.
    pub(crate) fn is_again(&self) -> bool {
        self.environment.captured.is_some_and(Captured::is_again)
    }

    /// Whether the role may read these columns: errors show only what it may read.
    fn may_see(&self, table: &Table, columns: impl IntoIterator<Item = u16>) -> bool {
        let sees = |schema: &Schema, column| {
            schema.column_privileges(self.role, table.owner, &table.grants, column) & privilege::SELECT != 0
        };
        self.schema.is_none_or(|schema| columns.into_iter().all(|column| sees(schema, column)))
    }

    /// Looks now and then whether the statement is to end.
    ///
    /// # Errors
    /// If so.
    #[inline]
    pub fn step(&self) -> Result<(), SqlError> {
        self.row_is_done();
        match self.until_look.get().checked_sub(1) {
            Some(left) => {
                self.until_look.set(left);
                Ok(())
            }
            None => {
                self.until_look.set(LOOK_EVERY);
                (self.interrupted)()
            }
        }
    }

    /// What functions have made for a row is gone, or counted where it is kept.
    #[inline]
    pub fn row_is_done(&self) {
        self.environment.context.large.back_to(0);
    }

    /// When a wait that begins now has lasted long enough.
    pub fn lock_deadline(&self) -> Option<Instant> {
        self.lock_timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// An empty buffer for a key, which is given back by [`Run::give_key`].
    pub(crate) fn take_key(&self) -> Vec<u8> {
        self.keys.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_key(&self, mut key: Vec<u8>) {
        key.clear();
        self.keys.borrow_mut().push(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_rows_have_the_same_id() {
        let source = Arc::new(RowIdSource::of(7));
        let (one, other) = (RowIds::new(&source), RowIds::new(&source));
        assert_eq!((one.position(), other.position()), ((0, 0), (1, 0)));
        let mut ids: Vec<_> = (0..100).flat_map(|_| [one.take(), other.take()]).collect();
        assert_eq!(one.position(), (0, 100));
        // From a position on they are the same as those that came from there.
        let again = RowIds::starting_at(RowIdSource::of(7), (1, 98));
        assert_eq!([again.take(), again.take()].as_slice(), [ids[197].clone(), ids[199].clone()]);
        // Behind the last of its numbers a session gets others.
        let last = RowIds { next: Cell::new((1 << COUNTER) - 1), source };
        ids.extend([last.take(), last.take()]);
        assert_eq!(last.position(), (2, 1));
        let count = ids.len();
        let distinct: HashSet<_> = ids.into_iter().collect();
        assert_eq!(distinct.len(), count);
    }
}
