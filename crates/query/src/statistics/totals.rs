//! Sums over sessions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use freshet_sql::types::Timestamp;

use super::{
    Cells, QueryTotals, SessionCounts,
    counters::Endings,
    relation::{ByOid, RelationCounts},
};
use crate::schema::Oid;

/// The totals keep the numbers of this many relations before they forget those that are there no
/// more.
const SOME: usize = 1024;
/// The same of databases.
const DATABASES: usize = 64;

/// What sessions that have ended have counted, and what those that are there have given.
#[derive(Debug, Default)]
pub struct Totals {
    databases: Mutex<BTreeMap<Oid, OfDatabase>>,
    /// Statements.
    pub queries: QueryTotals,
}

/// The sums of a database over sessions that have ended.
#[derive(Debug, Default)]
struct OfDatabase {
    cells: Cells,
    sessions: u64,
    /// How long they lasted, in microseconds.
    session_micros: u64,
    endings: Endings,
    relations: ByOid<RelationCounts>,
    /// Of relations that are there no more.
    gone: RelationCounts,
    /// How many relations there were when those that are there no more were forgotten last.
    kept: usize,
    reset: Option<Timestamp>,
}

impl OfDatabase {
    fn note(&mut self, oid: Oid, counts: &RelationCounts) {
        self.relations.entry(oid).or_default().add(counts);
    }
}

/// The sums of a database.
#[derive(Clone, Debug, Default)]
pub struct DatabaseSums {
    /// Transactions, statements, times.
    pub cells: Cells,
    /// How many sessions there were and are.
    pub sessions: u64,
    /// How long they lasted, in microseconds.
    pub session_micros: u64,
    /// How they ended.
    pub endings: Endings,
    /// The sums over all its tables and indexes, those included that are there no more.
    pub rows: RelationCounts,
    /// Since when this is counted, if not since the server's start.
    pub reset: Option<Timestamp>,
}

/// A session that is there, for sums.
pub trait Counting {
    /// What it has counted.
    fn counts(&self) -> &SessionCounts;

    /// How long it had lasted when it last began to do something else, in microseconds.
    fn lasted(&self) -> u64;

    /// Whether it is among those that have ended.
    fn has_ended(&self) -> bool;
}

impl Totals {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Oid, OfDatabase>> {
        self.databases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session gives what it has counted of relations.
    pub(super) fn fold(&self, session: &SessionCounts) {
        let mut all = self.all();
        let database = all.entry(session.database).or_default();
        session.take(|oid, counts| database.note(oid, &counts));
    }

    /// A session ends that has lasted this long, in microseconds. `ended` is called when it counts
    /// as one that has.
    pub fn end(&self, session: &SessionCounts, lasted: u64, ended: impl FnOnce()) {
        let mut all = self.all();
        let database = all.entry(session.database).or_default();
        session.take(|oid, counts| database.note(oid, &counts));
        database.cells.add(&session.counters.cells());
        database.sessions = database.sessions.wrapping_add(1);
        database.session_micros = database.session_micros.wrapping_add(lasted);
        database.endings.note(session.ending());
        self.queries.fold(&session.queries);
        ended();
    }

    /// Whether there are enough relations for some to be [forgotten](Self::forget).
    pub fn is_full(&self, database: Oid) -> bool {
        self.all().get(&database).is_some_and(|it| it.relations.len() > SOME.max(2 * it.kept))
    }

    /// Forgets relations of a database that are there no more, or are not `there`.
    pub fn forget(&self, database: Oid, there: impl Fn(Oid) -> bool) {
        let mut all = self.all();
        let Some(OfDatabase { relations, gone, kept, .. }) = all.get_mut(&database) else { return };
        relations.retain(|oid, counts| {
            let stays = there(*oid);
            if !stays {
                gone.add(counts);
            }
            stays
        });
        relations.shrink_to_fit();
        *kept = relations.len();
    }

    /// Forgets databases that are not among `there`, when they are many.
    pub fn forget_databases(&self, count: usize, there: impl Fn(Oid) -> bool) {
        let mut all = self.all();
        if all.len() > DATABASES.max(2 * count) {
            all.retain(|oid, _| there(*oid));
        }
    }

    /// The sums of each database.
    pub fn sums<C: Counting>(&self, sessions: &[Arc<C>]) -> BTreeMap<Oid, DatabaseSums> {
        let all = self.all();
        let mut sums: BTreeMap<Oid, DatabaseSums> = BTreeMap::new();
        for (oid, of) in all.iter() {
            let mut rows = of.gone;
            of.relations.values().for_each(|counts| rows.add(counts));
            let (cells, endings, reset) = (of.cells.clone(), of.endings, of.reset);
            let (sessions, session_micros) = (of.sessions, of.session_micros);
            sums.insert(*oid, DatabaseSums { cells, sessions, session_micros, endings, rows, reset });
        }
        for session in sessions.iter().filter(|session| !session.has_ended()) {
            let counts = session.counts();
            let sum = sums.entry(counts.database).or_default();
            sum.cells.add(&counts.counters.cells());
            sum.sessions = sum.sessions.wrapping_add(1);
            sum.session_micros = sum.session_micros.wrapping_add(session.lasted());
            counts.each(|_, counts| sum.rows.add(&counts));
        }
        sums
    }

    /// The numbers of each relation of a database that was used.
    pub fn relations<C: Counting>(&self, database: Oid, sessions: &[Arc<C>]) -> ByOid<RelationCounts> {
        let all = self.all();
        let mut sums = all.get(&database).map(|of| of.relations.clone()).unwrap_or_default();
        for session in sessions.iter().filter(|it| !it.has_ended() && it.counts().database == database) {
            session.counts().each(|oid, counts| sums.entry(oid).or_default().add(&counts));
        }
        sums
    }

    /// Counts a database from now on.
    pub fn reset<C: Counting>(&self, database: Oid, sessions: &[Arc<C>]) {
        let mut all = self.all();
        let of = all.entry(database).or_default();
        let kept = of.kept;
        *of = OfDatabase { reset: Some(Timestamp::now()), kept, ..OfDatabase::default() };
        // They continue to count where they are.
        for session in sessions.iter().filter(|it| !it.has_ended() && it.counts().database == database) {
            let counts = session.counts();
            of.cells.take_off(&counts.counters.cells());
            of.sessions = of.sessions.wrapping_sub(1);
            of.session_micros = of.session_micros.wrapping_sub(session.lasted());
            counts.each(|oid, counts| of.relations.entry(oid).or_default().take_off(&counts));
        }
    }

    /// Counts one relation of a database from now on.
    pub fn reset_relation<C: Counting>(&self, database: Oid, relation: Oid, sessions: &[Arc<C>]) {
        let mut all = self.all();
        let of = all.entry(database).or_default();
        let mut sum = of.relations.remove(&relation).unwrap_or_default();
        let mut base = RelationCounts::default();
        for session in sessions.iter().filter(|it| !it.has_ended() && it.counts().database == database) {
            session.counts().each(|oid, counts| {
                if oid == relation {
                    sum.add(&counts);
                    base.take_off(&counts);
                }
            });
        }
        // The database's own sums stay.
        of.gone.add(&sum);
        of.relations.insert(relation, base);
    }
}
