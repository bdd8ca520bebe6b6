//! What sessions count of statements that differ in their literals alone.

use std::{
    collections::HashMap,
    hash::BuildHasherDefault,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use freshet_sql::types::Timestamp;

use super::{counters::Count, relation::OidHasher};
use crate::schema::Oid;

/// The numbers of this many statements are kept by a server, those that its sessions still have
/// aside. Of more the least used are forgotten, a twentieth at a time.
pub const KEPT: usize = 5000;
/// Of this many statements a session keeps numbers by itself.
const OWN: usize = 64;

/// What one session has counted of a statement. It alone writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Counted {
    calls: Count,
    rows: Count,
    micros: Count,
    /// The squares of the times in milliseconds, as the bits of a number.
    squares: Count,
    least: Count,
    most: Count,
}

/// The numbers of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueryCounts {
    /// How often it has run to its end.
    pub calls: u64,
    /// How many rows it has given or changed.
    pub rows: u64,
    /// How long it has run, in microseconds.
    pub micros: u64,
    squares: f64,
    /// The shortest time, in microseconds.
    pub least: u64,
    /// The longest time, in microseconds.
    pub most: u64,
}

impl QueryCounts {
    fn add(&mut self, other: &Self) {
        self.least = if self.calls == 0 { other.least } else { self.least.min(other.least) };
        self.most = self.most.max(other.most);
        self.calls += other.calls;
        self.rows += other.rows;
        self.micros += other.micros;
        self.squares += other.squares;
    }

    /// The average time, in milliseconds.
    pub fn mean(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.micros as f64 / 1e3 / self.calls as f64 }
    }

    /// The standard deviation of the times, in milliseconds.
    pub fn deviation(&self) -> f64 {
        if self.calls == 0 {
            return 0.0;
        }
        (self.squares / self.calls as f64 - self.mean() * self.mean()).max(0.0).sqrt()
    }
}

impl Counted {
    fn now(&self) -> QueryCounts {
        QueryCounts {
            calls: self.calls.get(),
            rows: self.rows.get(),
            micros: self.micros.get(),
            squares: f64::from_bits(self.squares.get()),
            least: self.least.get(),
            most: self.most.get(),
        }
    }

    fn add(&self, took: Duration, rows: u64) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let milliseconds = micros as f64 / 1e3;
        let calls = self.calls.get();
        self.least.set(if calls == 0 { micros } else { self.least.get().min(micros) });
        self.most.set(self.most.get().max(micros));
        self.rows.add(rows);
        self.micros.add(micros);
        self.squares.set((f64::from_bits(self.squares.get()) + milliseconds * milliseconds).to_bits());
        self.calls.set(calls + 1);
    }
}

/// What a statement is known by: its database, the role that runs it, and its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryKey {
    /// The database.
    pub database: Oid,
    /// The role that runs it.
    pub role: Oid,
    /// The fingerprint.
    pub id: i64,
}

/// A statement that was run.
#[derive(Clone, Debug)]
pub struct Query {
    /// What it is known by.
    pub key: QueryKey,
    /// Its text without literals.
    pub text: Arc<str>,
    /// Its numbers.
    pub counts: QueryCounts,
}

/// A statement, its text, and what a session has counted of it.
type Own = (QueryKey, Arc<str>, Arc<Counted>);

/// The statements that a session has run lately, as others read them.
#[derive(Debug, Default)]
pub struct SessionQueries(Mutex<Vec<Own>>);

impl SessionQueries {
    fn all(&self) -> MutexGuard<'_, Vec<Own>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With what a session counts its statements.
#[derive(Debug, Default)]
pub(super) struct QueryTally {
    places: HashMap<(Oid, i64), Arc<Counted>, BuildHasherDefault<OidHasher>>,
    /// The reset that its places are from.
    generation: u64,
}

impl QueryTally {
    /// A statement has run.
    pub fn add(
        &mut self,
        own: &SessionQueries,
        totals: &QueryTotals,
        (key, text): (QueryKey, &Arc<str>),
        (took, rows): (Duration, u64),
    ) {
        // Relaxed: a reset counts when it is seen.
        let generation = totals.generation.load(Ordering::Relaxed);
        if generation != self.generation {
            self.generation = generation;
            self.places.clear();
        }
        match self.places.get(&(key.role, key.id)) {
            Some(counted) => counted.add(took, rows),
            None => {
                if self.places.len() >= OWN {
                    self.places.clear();
                    totals.fold(own);
                }
                let counted = Arc::<Counted>::default();
                counted.add(took, rows);
                own.all().push((key, Arc::clone(text), Arc::clone(&counted)));
                self.places.insert((key.role, key.id), counted);
            }
        }
    }
}

/// The statements of sessions that have ended, and those that sessions have given.
#[derive(Debug, Default)]
pub struct QueryTotals {
    all: Mutex<Known>,
    /// Another one after each reset. Written by nothing else, so that it is in every core's cache.
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    queries: HashMap<QueryKey, (Arc<str>, QueryCounts)>,
    /// How often some were forgotten.
    evictions: u64,
    reset: Option<Timestamp>,
}

impl Known {
    fn add(&mut self, key: QueryKey, text: &Arc<str>, counts: &QueryCounts) {
        self.queries.entry(key).or_insert_with(|| (Arc::clone(text), QueryCounts::default())).1.add(counts);
    }

    fn evict(&mut self) {
        if self.queries.len() <= KEPT {
            return;
        }
        let mut calls: Vec<_> = self.queries.iter().map(|(key, (_, counts))| (counts.calls, *key)).collect();
        calls.sort_unstable();
        for (_, key) in &calls[..calls.len() - (KEPT - KEPT / 20)] {
            self.queries.remove(key);
        }
        self.evictions += 1;
    }
}

/// Which statements are to be forgotten: those of a role, of a database, with a fingerprint.
pub type Which = (Option<Oid>, Option<Oid>, Option<i64>);

impl QueryTotals {
    fn all(&self) -> MutexGuard<'_, Known> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session gives what it has counted.
    pub(super) fn fold(&self, own: &SessionQueries) {
        let mut known = self.all();
        own.all().drain(..).for_each(|(key, text, counted)| known.add(key, &text, &counted.now()));
        known.evict();
    }

    /// All of them, those of these sessions included, in the order of what they are known by.
    pub fn queries<'s>(&self, sessions: impl Iterator<Item = &'s SessionQueries>) -> Vec<Query> {
        let known = self.all();
        let mut sums = known.queries.clone();
        for own in sessions {
            for (key, text, counted) in own.all().iter() {
                let sum = sums.entry(*key).or_insert_with(|| (Arc::clone(text), QueryCounts::default()));
                sum.1.add(&counted.now());
            }
        }
        drop(known);
        let mut all: Vec<_> = sums.into_iter().map(|(key, (text, counts))| Query { key, text, counts }).collect();
        all.sort_unstable_by_key(|query| query.key);
        all
    }

    /// How often some were forgotten for others, and when all were last.
    pub fn evictions(&self) -> (u64, Option<Timestamp>) {
        let known = self.all();
        (known.evictions, known.reset)
    }

    /// Forgets some of them, those of these sessions included.
    pub fn reset<'s>(&self, (role, database, id): Which, sessions: impl Iterator<Item = &'s SessionQueries>) {
        let mut known = self.all();
        for own in sessions {
            own.all().drain(..).for_each(|(key, text, counted)| known.add(key, &text, &counted.now()));
        }
        known.queries.retain(|key, _| {
            let is = |wanted: Option<Oid>, it: Oid| wanted.is_none_or(|wanted| wanted == it);
            !(is(role, key.role) && is(database, key.database) && id.is_none_or(|id| id == key.id))
        });
        known.evict();
        if (role, database, id) == (None, None, None) {
            (known.evictions, known.reset) = (0, Some(Timestamp::now()));
        }
        // They begin again where others look.
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: i64) -> QueryKey {
        QueryKey { database: 1, role: 10, id }
    }

    #[test]
    fn the_least_used_are_forgotten() {
        let (totals, own, mut tally) = (QueryTotals::default(), SessionQueries::default(), QueryTally::default());
        let mut run = |id: i64| {
            tally.add(&own, &totals, (key(id), &"q".into()), (Duration::from_micros(id as u64), 2));
        };
        for id in 0..100 {
            (0..3).for_each(|_| run(id));
        }
        for id in 100..20_000 {
            run(id);
        }
        let all = totals.queries([&own].into_iter());
        assert!(all.len() <= KEPT + OWN, "{} are kept", all.len());
        assert!(own.all().len() <= OWN);
        let often = all.iter().filter(|query| query.key.id < 100 && query.counts.calls == 3 && query.counts.rows == 6);
        assert_eq!(often.count(), 100);
        assert!(totals.evictions().0 > 0);
        totals.reset((None, None, None), [&own].into_iter());
        assert!(totals.queries([&own].into_iter()).is_empty());
        tally.add(&own, &totals, (key(1), &"q".into()), (Duration::from_micros(5), 1));
        assert_eq!(totals.queries([&own].into_iter()).len(), 1);
    }

    #[test]
    fn times_have_a_mean_and_a_deviation() {
        let (totals, own, mut tally) = (QueryTotals::default(), SessionQueries::default(), QueryTally::default());
        for took in [1000, 3000, 5000] {
            tally.add(&own, &totals, (key(1), &"q".into()), (Duration::from_micros(took), 1));
        }
        let all = totals.queries([&own].into_iter());
        let counts = all[0].counts;
        assert_eq!((counts.calls, counts.micros, counts.least, counts.most), (3, 9000, 1000, 5000));
        assert!((counts.mean() - 3.0).abs() < 1e-9 && (counts.deviation() - (8.0_f64 / 3.0).sqrt()).abs() < 1e-9);
    }
}
