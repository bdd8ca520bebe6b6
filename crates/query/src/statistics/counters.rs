//! Counters of a session that are always the same ones.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

pub use freshet_postgres::Ending;
use freshet_sql::SqlState;

/// A number that one session alone adds to. Others read it.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it. To be called by the session alone whose number it is.
    #[inline]
    pub fn add(&self, more: u64) {
        // Relaxed: there is one writer, and each number is looked at by itself.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Makes it this number. To be called by the session alone whose number it is.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// What it is now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Kinds of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// SELECT, VALUES, TABLE.
    Select,
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// COPY.
    Copy,
    /// What defines: CREATE, ALTER, DROP, GRANT and their like.
    Ddl,
    /// The rest: BEGIN, COMMIT, SET, SHOW, what cannot be understood.
    Other,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Select, Self::Insert, Self::Update, Self::Delete, Self::Copy, Self::Ddl, Self::Other];

    /// Its name in a node's status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Copy => "copy",
            Self::Ddl => "ddl",
            Self::Other => "other",
        }
    }

    /// The kind with this code.
    pub fn of(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Other)
    }
}

/// Why transactions are rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The client has asked for it.
    Rollback,
    /// 40001: it could not be serialized.
    Serialization,
    /// 40P01.
    Deadlock,
    /// It was canceled, has taken too long, or its session was ended.
    Cancelled,
    /// A constraint, class 23.
    Constraint,
    /// Any other error.
    Other,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Rollback, Self::Serialization, Self::Deadlock, Self::Cancelled, Self::Constraint, Self::Other];

    /// Its name in a node's status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Serialization => "serialization",
            Self::Deadlock => "deadlock",
            Self::Cancelled => "cancelled",
            Self::Constraint => "constraint",
            Self::Other => "other",
        }
    }

    /// That of an error with this state.
    pub fn of(code: &str) -> Self {
        let is = |state: SqlState| state.code() == code;
        match code {
            _ if is(SqlState::SERIALIZATION_FAILURE) => Self::Serialization,
            _ if is(SqlState::DEADLOCK_DETECTED) => Self::Deadlock,
            _ if is(SqlState::QUERY_CANCELED) || is(SqlState::ADMIN_SHUTDOWN) => Self::Cancelled,
            _ if is(SqlState::LOCK_NOT_AVAILABLE) => Self::Cancelled,
            // Time-outs of idle sessions.
            "25P03" | "57P05" => Self::Cancelled,
            _ if code.starts_with("23") => Self::Constraint,
            _ => Self::Other,
        }
    }
}

/// Up to how many microseconds the statements of each bucket have taken; what takes longer is in
/// one more. Three a decade, from 10 µs to 100 s.
pub const BOUNDS: [u64; 22] = {
    let mut bounds = [0; 22];
    let (mut decade, mut place) = (10, 0);
    while place < bounds.len() {
        bounds[place] = decade * [1, 2, 5][place % 3];
        place += 1;
        if place % 3 == 0 {
            decade *= 10;
        }
    }
    bounds
};

/// How many buckets there are.
pub const BUCKETS: usize = BOUNDS.len() + 1;

// Where each number is among the cells.
const COMMITS: usize = 0;
const ABORTS: usize = COMMITS + 1;
const DEADLOCKS: usize = ABORTS + Cause::ALL.len();
const ACTIVE: usize = DEADLOCKS + 1;
const IDLE_IN_TRANSACTION: usize = ACTIVE + 1;
const TIMES: usize = IDLE_IN_TRANSACTION + 1;
const LATENCIES: usize = TIMES + Kind::ALL.len();
/// How many cells there are.
pub const CELLS: usize = LATENCIES + Kind::ALL.len() * BUCKETS;

/// The counters of one session. It alone adds to them.
#[derive(Debug)]
#[repr(align(64))]
pub struct Counters([Count; CELLS]);

impl Default for Counters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

fn micros(of: Duration) -> u64 {
    u64::try_from(of.as_micros()).unwrap_or(u64::MAX)
}

fn bucket(of: u64) -> usize {
    BOUNDS.partition_point(|bound| *bound < of)
}

impl Counters {
    /// A transaction was committed.
    #[inline]
    pub fn commit(&self) {
        self.0[COMMITS].add(1);
    }

    /// A transaction was rolled back.
    pub fn abort(&self, cause: Cause) {
        self.0[ABORTS + cause as usize].add(1);
    }

    /// A deadlock was found.
    pub fn deadlock(&self) {
        self.0[DEADLOCKS].add(1);
    }

    /// A statement has ended that took this long.
    #[inline]
    pub fn statement(&self, kind: Kind, took: Duration) {
        let took = micros(took);
        self.0[ACTIVE].add(took);
        self.0[TIMES + kind as usize].add(took);
        self.0[LATENCIES + kind as usize * BUCKETS + bucket(took)].add(1);
    }

    /// The session has been idle in a transaction for so long.
    #[inline]
    pub fn idle_in_transaction(&self, lasted: Duration) {
        self.0[IDLE_IN_TRANSACTION].add(micros(lasted));
    }

    /// What they are now.
    pub fn cells(&self) -> Cells {
        Cells(std::array::from_fn(|place| self.0[place].get()))
    }
}

/// What [`Counters`] were at a moment, or a sum of such. Sums are modulo 2^64, so that something
/// can be taken off them before it is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells([u64; CELLS]);

impl Default for Cells {
    fn default() -> Self {
        Self([0; CELLS])
    }
}

impl Cells {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
    }

    /// Takes others off.
    pub fn take_off(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, less)| *sum = sum.wrapping_sub(*less));
    }

    /// How many transactions were committed.
    pub fn commits(&self) -> u64 {
        self.0[COMMITS]
    }

    /// How many were rolled back because of this.
    pub fn aborts(&self, cause: Cause) -> u64 {
        self.0[ABORTS + cause as usize]
    }

    /// How many deadlocks were found.
    pub fn deadlocks(&self) -> u64 {
        self.0[DEADLOCKS]
    }

    /// How long statements have run, in microseconds.
    pub fn active_micros(&self) -> u64 {
        self.0[ACTIVE]
    }

    /// How long sessions were idle in transactions, in microseconds.
    pub fn idle_in_transaction_micros(&self) -> u64 {
        self.0[IDLE_IN_TRANSACTION]
    }

    /// How long the statements of a kind have run, in microseconds.
    pub fn kind_micros(&self, kind: Kind) -> u64 {
        self.0[TIMES + kind as usize]
    }

    /// How many statements of a kind took how long, by [`BOUNDS`].
    pub fn latencies(&self, kind: Kind) -> &[u64] {
        &self.0[LATENCIES + kind as usize * BUCKETS..][..BUCKETS]
    }
}

/// How many sessions have ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// Their clients were gone.
    pub abandoned: u64,
    /// By an error that ends a session.
    pub fatal: u64,
    /// Somebody, or the end of the server, has ended them.
    pub killed: u64,
}

impl Endings {
    /// One more.
    pub fn note(&mut self, how: Ending) {
        match how {
            Ending::Asked => {}
            Ending::Abandoned => self.abandoned += 1,
            Ending::Fatal => self.fatal += 1,
            Ending::Killed => self.killed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_its_bucket() {
        assert_eq!((BOUNDS[0], BOUNDS[3], BOUNDS[21]), (10, 100, 100_000_000));
        assert!(BOUNDS.is_sorted());
        for (took, expected) in [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (100_000_000, 21), (100_000_001, 22)] {
            let counters = Counters::default();
            counters.statement(Kind::Update, Duration::from_micros(took));
            let cells = counters.cells();
            for kind in Kind::ALL {
                let found = cells.latencies(kind).iter().position(|count| *count == 1);
                assert_eq!(found, (kind == Kind::Update).then_some(expected), "{took} µs");
            }
            assert_eq!((cells.kind_micros(Kind::Update), cells.active_micros()), (took, took));
        }
    }

    #[test]
    fn no_two_numbers_share_a_cell() {
        let counters = Counters::default();
        counters.commit();
        Cause::ALL.iter().for_each(|cause| counters.abort(*cause));
        counters.deadlock();
        counters.idle_in_transaction(Duration::from_micros(1));
        Kind::ALL.iter().for_each(|kind| counters.statement(*kind, Duration::from_micros(1)));
        let cells = counters.cells();
        assert_eq!((cells.commits(), cells.deadlocks(), cells.idle_in_transaction_micros()), (1, 1, 1));
        assert!(Cause::ALL.iter().all(|cause| cells.aborts(*cause) == 1));
        assert!(Kind::ALL.iter().all(|kind| cells.kind_micros(*kind) == 1 && cells.latencies(*kind)[0] == 1));
        let mut sum = Cells::default();
        sum.take_off(&cells);
        sum.add(&cells);
        assert_eq!(sum, Cells::default());
    }

    #[test]
    fn errors_have_causes() {
        for (code, cause) in [
            ("40001", Cause::Serialization),
            ("40P01", Cause::Deadlock),
            ("57014", Cause::Cancelled),
            ("23505", Cause::Constraint),
            ("22012", Cause::Other),
        ] {
            assert_eq!(Cause::of(code), cause);
        }
    }
}
