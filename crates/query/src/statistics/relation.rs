//! What a session counts of tables and indexes.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use freshet_sql::types::Timestamp;

use super::{
    Cause, Counters, Ending, Kind, Totals,
    counters::Count,
    query::{QueryKey, QueryTally, SessionQueries},
};
use crate::{inputs::Fingerprint, schema::Oid};

/// How many numbers there are of a relation.
pub const NUMBERS: usize = 7;
const SCANS: usize = 0;
const READ: usize = 1;
const FETCHED: usize = 2;
const INSERTED: usize = 3;
const UPDATED: usize = 4;
const DELETED: usize = 5;
const IN_PLACE: usize = 6;

/// Of how many relations a session keeps numbers by itself. When it comes to another one, it adds
/// all of them to the totals, and begins again.
const KEPT: usize = 128;

/// What a session has counted of one table, or of one index. It alone adds to them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counted {
    numbers: [Count; NUMBERS],
    /// When it was scanned last, in microseconds as in a timestamp; 0 for never.
    last: Count,
}

/// The numbers of one table, or of one index, at a moment, or a sum of such. They count what was
/// done, whether its transaction was committed or not, as PostgreSQL's do. Sums are modulo 2^64, so
/// that something can be taken off them before it is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelationCounts {
    numbers: [u64; NUMBERS],
    last: u64,
}

impl Counted {
    fn now(&self) -> RelationCounts {
        RelationCounts { numbers: std::array::from_fn(|place| self.numbers[place].get()), last: self.last.get() }
    }
}

impl RelationCounts {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.numbers.iter_mut().zip(&other.numbers).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
        self.last = self.last.max(other.last);
    }

    /// Takes others off.
    pub fn take_off(&mut self, other: &Self) {
        self.numbers.iter_mut().zip(&other.numbers).for_each(|(sum, less)| *sum = sum.wrapping_sub(*less));
    }

    /// How often it was scanned: a table from its beginning, an index from a key on.
    pub fn scans(&self) -> i64 {
        self.numbers[SCANS] as i64
    }

    /// How many rows of a table, or entries of an index, these scans have read.
    pub fn read(&self) -> i64 {
        self.numbers[READ] as i64
    }

    /// How many rows were fetched through an index.
    pub fn fetched(&self) -> i64 {
        self.numbers[FETCHED] as i64
    }

    /// How many rows were added.
    pub fn inserted(&self) -> i64 {
        self.numbers[INSERTED] as i64
    }

    /// How many were changed.
    pub fn updated(&self) -> i64 {
        self.numbers[UPDATED] as i64
    }

    /// How many of those that were changed kept the keys of all indexes, so that no index was.
    pub fn updated_in_place(&self) -> i64 {
        self.numbers[IN_PLACE] as i64
    }

    /// How many were deleted.
    pub fn deleted(&self) -> i64 {
        self.numbers[DELETED] as i64
    }

    /// How many were added, changed or deleted.
    pub fn written(&self) -> i64 {
        self.inserted().wrapping_add(self.updated()).wrapping_add(self.deleted())
    }

    /// When it was scanned last.
    pub fn last_scan(&self) -> Option<Timestamp> {
        (self.last != 0).then_some(Timestamp(self.last as i64))
    }
}

/// A statement's kind is not known yet.
const UNKNOWN: u8 = u8::MAX;

/// What a session has counted, as others read it.
#[derive(Debug)]
pub struct SessionCounts {
    /// Its database.
    pub database: Oid,
    /// Transactions, statements, times.
    pub counters: Counters,
    /// The kind of the statement that runs.
    kind: AtomicU8,
    /// How it has ended, by then.
    ending: Mutex<Ending>,
    /// The statements that it has run lately.
    pub queries: SessionQueries,
    /// Locked by the session only when it comes to another relation.
    relations: Mutex<Vec<(Oid, Arc<Counted>)>>,
}

impl SessionCounts {
    /// Those of a session that begins in this database.
    pub fn new(database: Oid) -> Self {
        Self {
            database,
            counters: Counters::default(),
            kind: AtomicU8::new(UNKNOWN),
            ending: Mutex::new(Ending::Asked),
            queries: SessionQueries::default(),
            relations: Mutex::default(),
        }
    }

    /// Says the kind of the statement that runs.
    #[inline]
    pub fn is_of(&self, kind: Kind) {
        self.kind.store(kind as u8, Ordering::Relaxed);
    }

    /// The kind of the statement that ran; the next one has not said it yet.
    #[inline]
    pub fn take_kind(&self) -> Kind {
        let kind = self.kind.load(Ordering::Relaxed);
        self.kind.store(UNKNOWN, Ordering::Relaxed);
        Kind::of(kind)
    }

    /// Notes how the session ends.
    pub fn ends(&self, how: Ending) {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner) = how;
    }

    /// How it ends, as far as that is known.
    pub fn ending(&self) -> Ending {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn relations(&self) -> MutexGuard<'_, Vec<(Oid, Arc<Counted>)>> {
        self.relations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `each` with the numbers of each relation that it has.
    pub(super) fn each(&self, mut each: impl FnMut(Oid, RelationCounts)) {
        self.relations().iter().for_each(|(oid, counted)| each(*oid, counted.now()));
    }

    /// The same, and the session has them no more.
    pub(super) fn take(&self, mut each: impl FnMut(Oid, RelationCounts)) {
        self.relations().drain(..).for_each(|(oid, counted)| each(oid, counted.now()));
    }
}

/// Spreads numbers that clients do not choose: object ids, and fingerprints within one session,
/// which has few of both.
#[derive(Debug, Default)]
pub struct OidHasher(u64);

impl Hasher for OidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A map by object ids.
pub type ByOid<V> = HashMap<Oid, V, BuildHasherDefault<OidHasher>>;

struct Place {
    counted: Arc<Counted>,
    /// The transaction that has used it last, and what it was when that began.
    transaction: u64,
    before: RelationCounts,
}

/// With what a session counts.
pub struct Tally {
    counts: Arc<SessionCounts>,
    totals: Arc<Totals>,
    places: RefCell<ByOid<Place>>,
    queries: RefCell<QueryTally>,
    /// The statement that runs, and the role that runs it.
    query: RefCell<Option<(Arc<Fingerprint>, Oid)>>,
    /// How many rows it has given or changed.
    rows: Cell<u64>,
    /// The number of the session's transaction.
    transaction: Cell<u64>,
    /// What it was when the session last waited for its client.
    rested: Cell<u64>,
    /// Why the transaction is rolled back, if that is known.
    cause: Cell<Option<Cause>>,
    /// When the statement that runs has begun, as in a timestamp.
    now: Cell<i64>,
    /// What it gave to the totals may be of relations that are there no more.
    has_given: Cell<bool>,
}

impl Tally {
    /// That of a session.
    pub fn new(counts: &Arc<SessionCounts>, totals: &Arc<Totals>) -> Self {
        Self {
            counts: Arc::clone(counts),
            totals: Arc::clone(totals),
            places: RefCell::default(),
            queries: RefCell::default(),
            query: RefCell::default(),
            rows: Cell::new(0),
            transaction: Cell::new(1),
            rested: Cell::new(1),
            cause: Cell::new(None),
            now: Cell::new(0),
            has_given: Cell::new(false),
        }
    }

    /// What others see of it.
    pub fn counts(&self) -> &SessionCounts {
        &self.counts
    }

    /// A statement begins.
    #[inline]
    pub fn begin(&self, now: i64) {
        self.now.set(now);
    }

    /// This statement runs, in this role's name.
    #[inline]
    pub fn runs(&self, query: &Arc<Fingerprint>, role: Oid) {
        *self.query.borrow_mut() = Some((Arc::clone(query), role));
        self.rows.set(0);
    }

    /// It has given or changed rows.
    #[inline]
    pub fn gave(&self, rows: u64) {
        self.rows.set(rows);
    }

    /// It ends; one that has failed is not counted.
    pub fn ends(&self, well: bool) {
        if !well {
            self.query.take();
        }
    }

    /// It has ended, and took this long, its commit included.
    #[inline]
    pub fn ran(&self, took: Duration) {
        let Some((query, role)) = self.query.take() else { return };
        let key = QueryKey { database: self.counts.database, role, id: query.id };
        let done = (took, self.rows.get());
        self.queries.borrow_mut().add(&self.counts.queries, &self.totals.queries, (key, &query.text), done);
    }

    /// The session waits for its client.
    #[inline]
    pub fn rest(&self) {
        self.rested.set(self.transaction.get());
    }

    /// Whether no transaction has ended since the session last waited for its client.
    pub fn none_has_ended(&self) -> bool {
        self.rested.get() == self.transaction.get()
    }

    /// The transaction is about to be rolled back for this, unless it is already, for something
    /// else.
    pub fn fails_by(&self, cause: Cause) {
        self.cause.set(self.cause.get().or(Some(cause)));
    }

    /// It is not.
    pub fn forgive(&self) {
        self.cause.set(None);
    }

    /// A transaction has ended.
    #[inline]
    pub fn end_transaction(&self, committed: bool) {
        let cause = self.cause.take();
        match committed {
            true => self.counts.counters.commit(),
            false => self.counts.counters.abort(cause.unwrap_or(Cause::Rollback)),
        }
        self.transaction.set(self.transaction.get() + 1);
    }

    /// Whether it has added to the totals since this was asked last.
    pub fn has_given(&self) -> bool {
        self.has_given.take()
    }

    #[inline]
    fn with(&self, relation: Oid, count: impl FnOnce(&Counted)) {
        let mut places = self.places.borrow_mut();
        let transaction = self.transaction.get();
        if let Some(place) = places.get_mut(&relation) {
            if place.transaction != transaction {
                place.transaction = transaction;
                place.before = place.counted.now();
            }
            count(&place.counted);
            return;
        }
        self.another(&mut places, relation, count);
    }

    #[cold]
    fn another(&self, places: &mut ByOid<Place>, relation: Oid, count: impl FnOnce(&Counted)) {
        if places.len() >= KEPT {
            places.clear();
            self.totals.fold(&self.counts);
            self.has_given.set(true);
        }
        let counted = Arc::<Counted>::default();
        count(&counted);
        self.counts.relations().push((relation, Arc::clone(&counted)));
        let (transaction, before) = (self.transaction.get(), RelationCounts::default());
        places.insert(relation, Place { counted, transaction, before });
    }

    /// A table was scanned this often, and rows were read.
    #[inline]
    pub fn scanned(&self, table: Oid, scans: u64, rows: u64) {
        self.with(table, |counted| {
            counted.numbers[SCANS].add(scans);
            counted.numbers[READ].add(rows);
            counted.last.set(self.now.get() as u64);
        });
    }

    /// An index was scanned this often, and rows were fetched by it.
    #[inline]
    pub fn looked_up(&self, index: Oid, scans: u64, rows: u64) {
        self.with(index, |counted| {
            counted.numbers[SCANS].add(scans);
            counted.numbers[READ].add(rows);
            counted.numbers[FETCHED].add(rows);
            counted.last.set(self.now.get() as u64);
        });
    }

    /// A row was added to a table.
    #[inline]
    pub fn inserted(&self, table: Oid) {
        self.with(table, |counted| counted.numbers[INSERTED].add(1));
    }

    /// A row of a table was changed, and with that an index.
    #[inline]
    pub fn updated(&self, table: Oid) {
        self.with(table, |counted| counted.numbers[UPDATED].add(1));
    }

    /// A row of a table was changed, and no index.
    #[inline]
    pub fn updated_in_place(&self, table: Oid) {
        self.with(table, |counted| {
            counted.numbers[UPDATED].add(1);
            counted.numbers[IN_PLACE].add(1);
        });
    }

    /// A row of a table was deleted.
    #[inline]
    pub fn deleted(&self, table: Oid) {
        self.with(table, |counted| counted.numbers[DELETED].add(1));
    }

    /// What the transaction that runs has counted.
    pub fn of_transaction(&self) -> ByOid<RelationCounts> {
        let now = self.transaction.get();
        let places = self.places.borrow();
        let of_it = places.iter().filter(|(_, place)| place.transaction == now);
        of_it
            .map(|(oid, place)| {
                let mut counts = place.counted.now();
                counts.take_off(&place.before);
                (*oid, counts)
            })
            .collect()
    }
}
