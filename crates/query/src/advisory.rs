//! Advisory locks: locks on numbers, which mean what clients agree that they mean.
//!
//! They are this node's alone, and gone when it stops. Each is held by a session, or by its
//! transaction until that ends; a session may hold one several times, and has to release it as
//! often. Who waits stands in line: nobody overtakes whom it would keep waiting.
//!
//! Locks are kept by their keys, and a session knows which are its own, so nothing looks through
//! the locks of others. How many there may be is bounded ([`AdvisoryLimits`]).
//!
//! # Deadlocks
//!
//! Who waits here looks now and then whether those that it waits for wait, over others, for itself:
//! for such locks, for tables, or for records. So every circle of waits that has one of these in it
//! is found by one of those in it; the others are found by the locks on tables and by the engine. A
//! circle must be seen twice, some milliseconds apart.

mod outlives;
use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use freshet_base::{panics, wait::WaitList};
use freshet_sql::{SqlError, SqlState};

use crate::locks::{OtherWaits, Patience, Suspicion, guard};
use crate::schema::{COMMON, Oid};

/// What is locked in a database: one number of 64 bits, or two of 32, which are never the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdvisoryKey {
    /// The database: each has numbers of its own.
    pub database: Oid,
    /// The upper half, or the first number.
    pub class: u32,
    /// The lower half, or the second number.
    pub object: u32,
    /// Whether it is two numbers.
    pub pair: bool,
}

impl AdvisoryKey {
    /// One number, in the place of no database.
    pub fn one(number: i64) -> Self {
        Self { database: COMMON, class: (number as u64 >> 32) as u32, object: number as u32, pair: false }
    }

    /// Two numbers, likewise.
    pub fn two(class: i32, object: i32) -> Self {
        Self { database: COMMON, class: class as u32, object: object as u32, pair: true }
    }

    /// The same in a database.
    #[must_use]
    pub fn within(self, database: Oid) -> Self {
        Self { database, ..self }
    }
}

/// A lock that somebody holds, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvisoryLock {
    /// What is locked.
    pub key: AdvisoryKey,
    /// Whose: the number of the session.
    pub place: usize,
    /// Whether others may share it.
    pub shared: bool,
    /// Whether it is held.
    pub granted: bool,
}

/// How many locks there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvisoryLimits {
    /// Different ones of one session.
    pub session: usize,
    /// Of all sessions of one role, so that no role takes all.
    pub role: usize,
    /// Of all sessions.
    pub all: usize,
}

impl Default for AdvisoryLimits {
    fn default() -> Self {
        Self { session: 100_000, role: 250_000, all: 1_000_000 }
    }
}

/// The advisory locks of a node.
pub struct AdvisoryLocks {
    state: Mutex<State>,
    changed: WaitList,
    others: Option<Arc<dyn OtherWaits>>,
    limits: AdvisoryLimits,
}

#[derive(Default)]
struct State {
    held: HashMap<AdvisoryKey, Vec<Held>>,
    /// The keys on which each session holds a lock.
    by_session: HashMap<usize, BTreeSet<AdvisoryKey>>,
    /// How many each role has.
    by_role: HashMap<Oid, usize>,
    /// How many there are in `held`.
    count: usize,
    /// In the order in which they came: each session waits for one at most.
    waiting: Vec<Waiting>,
    next: u64,
}

/// Who holds a lock, and how.
struct Held {
    place: usize,
    /// Among whose locks it counts; none for superusers.
    role: Option<Oid>,
    shared: bool,
    /// How often the session holds it, and how often its transaction.
    session: u64,
    transaction: u64,
}

struct Waiting {
    id: u64,
    key: AdvisoryKey,
    place: usize,
    shared: bool,
}

/// One session's advisory locks. They go when it is dropped.
pub struct SessionAdvisory {
    locks: Arc<AdvisoryLocks>,
    place: usize,
    role: Option<Oid>,
    /// What the transaction has taken, in that order.
    transaction: RefCell<Vec<(AdvisoryKey, bool)>>,
}

impl std::fmt::Debug for AdvisoryLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

impl std::fmt::Debug for SessionAdvisory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionAdvisory({})", self.place)
    }
}

impl State {
    fn holders(&self, key: AdvisoryKey) -> &[Held] {
        self.held.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Who keeps a session from a lock: holders, and those who came before request `id`.
    fn blockers(&self, key: AdvisoryKey, place: usize, shared: bool, id: u64) -> Vec<usize> {
        let conflicts = |by: usize, also: bool| by != place && !(shared && also);
        let holders = self.holders(key);
        let held = holders.iter().filter(|held| conflicts(held.place, held.shared));
        let mut found: Vec<usize> = held.map(|held| held.place).collect();
        // A session that holds it already waits for no session that only wants it: that one waits
        // for it.
        if !holders.iter().any(|held| held.place == place) {
            let before = self.waiting.iter().filter(|other| other.id < id && other.key == key);
            found.extend(before.filter(|other| conflicts(other.place, other.shared)).map(|it| it.place));
        }
        found
    }

    /// Grants a lock that no other session blocks.
    fn grant(
        &mut self,
        key: AdvisoryKey,
        (place, role): (usize, Option<Oid>),
        shared: bool,
        transaction: bool,
        limits: AdvisoryLimits,
    ) -> Result<(), SqlError> {
        let holders = self.held.get_mut(&key);
        let known = holders.and_then(|held| held.iter_mut().find(|held| (held.place, held.shared) == (place, shared)));
        if let Some(held) = known {
            *if transaction { &mut held.transaction } else { &mut held.session } += 1;
            return Ok(());
        }
        let own = self.by_session.get(&place).map_or(0, BTreeSet::len);
        let of_role = role.and_then(|role| self.by_role.get(&role)).copied().unwrap_or(0);
        if own >= limits.session || of_role >= limits.role || self.count >= limits.all {
            return Err(too_many(limits));
        }
        let (session, transaction) = if transaction { (0, 1) } else { (1, 0) };
        self.held.entry(key).or_default().push(Held { place, role, shared, session, transaction });
        self.by_session.entry(place).or_default().insert(key);
        self.count += 1;
        if let Some(role) = role {
            *self.by_role.entry(role).or_default() += 1;
        }
        Ok(())
    }

    /// Takes one hold back; says whether there was one.
    fn release(&mut self, key: AdvisoryKey, place: usize, shared: bool, transaction: bool) -> bool {
        let mut done = false;
        self.change(key, place, |held| {
            let count = if transaction { &mut held.transaction } else { &mut held.session };
            if held.shared == shared && *count > 0 {
                *count -= 1;
                done = true;
            }
        });
        done
    }

    /// Does something to what a session holds of a lock; what it holds no more is forgotten.
    fn change(&mut self, key: AdvisoryKey, place: usize, change: impl FnMut(&mut Held)) {
        let Some(held) = self.held.get_mut(&key) else { return };
        let before = held.len();
        let role = held.iter().find(|held| held.place == place).and_then(|held| held.role);
        held.iter_mut().filter(|held| held.place == place).for_each(change);
        held.retain(|held| held.session > 0 || held.transaction > 0);
        let gone = before - held.len();
        self.count -= gone;
        if let Some(role) = role
            && let Some(count) = self.by_role.get_mut(&role)
        {
            *count -= gone;
            if *count == 0 {
                self.by_role.remove(&role);
            }
        }
        let none_left = !held.iter().any(|held| held.place == place);
        if held.is_empty() {
            self.held.remove(&key);
        }
        if none_left && let Some(keys) = self.by_session.get_mut(&place) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_session.remove(&place);
            }
        }
    }

    /// Does something to all that a session holds.
    fn change_all(&mut self, place: usize, mut change: impl FnMut(&mut Held)) {
        let keys = self.by_session.get(&place).cloned().unwrap_or_default();
        for key in keys {
            self.change(key, place, &mut change);
        }
    }

    /// The sessions that a session waits for, if it waits for such a lock.
    fn waits_for(&self, place: usize) -> Vec<usize> {
        let waits = self.waiting.iter().filter(|it| it.place == place);
        waits.flat_map(|it| self.blockers(it.key, it.place, it.shared, it.id)).collect()
    }
}

#[cold]
fn too_many(limits: AdvisoryLimits) -> SqlError {
    let AdvisoryLimits { session, role, all } = limits;
    let detail = format!(
        "There may be {session} advisory locks of a session, {role} of a role that is no superuser, and {all} of all \
         together."
    );
    SqlError::new(SqlState::OUT_OF_MEMORY, "out of shared memory").with_detail(detail)
}

impl AdvisoryLocks {
    /// No locks. `others` knows who waits for something else, so that deadlocks with that are
    /// found, too.
    pub fn new(others: Option<Arc<dyn OtherWaits>>) -> Arc<Self> {
        Self::within(others, AdvisoryLimits::default())
    }

    /// The same, with other limits.
    pub fn within(others: Option<Arc<dyn OtherWaits>>, limits: AdvisoryLimits) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: WaitList::default(), others, limits })
    }

    /// The locks of a session of this role, none for a superuser's. No two sessions have the same
    /// number at a time.
    pub fn session(self: &Arc<Self>, place: usize, role: Option<Oid>) -> SessionAdvisory {
        SessionAdvisory { locks: Arc::clone(self), place, role, transaction: RefCell::default() }
    }

    /// The sessions that a session waits for, if it waits for such a lock.
    pub fn waits_for(&self, place: usize) -> Vec<usize> {
        guard(&self.state).waits_for(place)
    }

    /// All that are held or waited for.
    pub fn all(&self) -> Vec<AdvisoryLock> {
        let state = guard(&self.state);
        let held = state.held.iter().flat_map(|(key, held)| held.iter().map(|it| (*key, it.place, it.shared, true)));
        let waiting = state.waiting.iter().map(|it| (it.key, it.place, it.shared, false));
        let all = held.chain(waiting);
        all.map(|(key, place, shared, granted)| AdvisoryLock { key, place, shared, granted }).collect()
    }
}

impl SessionAdvisory {
    /// Takes a lock if nobody keeps it from that; says whether it has.
    ///
    /// # Errors
    /// 53200 when there are too many.
    pub fn try_lock(&self, key: AdvisoryKey, shared: bool, transaction: bool) -> Result<bool, SqlError> {
        let _vital = panics::vital("the advisory locks");
        let mut state = guard(&self.locks.state);
        if !state.blockers(key, self.place, shared, u64::MAX).is_empty() {
            return Ok(false);
        }
        self.take(&mut state, key, shared, transaction)?;
        Ok(true)
    }

    /// Takes a lock that no other session blocks.
    fn take(&self, state: &mut State, key: AdvisoryKey, shared: bool, transaction: bool) -> Result<(), SqlError> {
        let mut taken = self.transaction.borrow_mut();
        if transaction && taken.len() >= self.locks.limits.all {
            // Again and again the same ones.
            return Err(too_many(self.locks.limits));
        }
        state.grant(key, (self.place, self.role), shared, transaction, self.locks.limits)?;
        if transaction {
            taken.push((key, shared));
        }
        Ok(())
    }

    /// Takes a lock, and blocks until it can.
    ///
    /// # Errors
    /// 40P01, 55P03, 53200, or what ended the wait.
    pub fn lock(
        &self,
        key: AdvisoryKey,
        shared: bool,
        transaction: bool,
        patience: Patience<'_>,
    ) -> Result<(), SqlError> {
        if self.try_lock(key, shared, transaction)? {
            return Ok(());
        }
        let _vital = panics::vital("the advisory locks");
        let locks = &*self.locks;
        let id = {
            let mut state = guard(&locks.state);
            let id = state.next;
            state.next += 1;
            state.waiting.push(Waiting { id, key, place: self.place, shared });
            id
        };
        let mut suspicion = Suspicion::default();
        let outcome = patience.until(&locks.changed, || {
            let mut state = guard(&locks.state);
            if state.blockers(key, self.place, shared, id).is_empty() {
                return Some(self.take(&mut state, key, shared, transaction));
            }
            let suspicious = suspicion.look(self.place, |waiter| state.waits_for(waiter), locks.others.as_deref());
            if suspicious.is_err() {
                // Who finds a circle leaves it before anybody else can look: one is enough.
                state.waiting.retain(|waiting| waiting.id != id);
            }
            suspicious.err().map(Err)
        });
        guard(&locks.state).waiting.retain(|waiting| waiting.id != id);
        // Who stood behind it may be able to share it.
        locks.changed.wake_all();
        outcome
    }

    /// Releases a lock that the session holds once; says whether it has held it.
    pub fn unlock(&self, key: AdvisoryKey, shared: bool) -> bool {
        let _vital = panics::vital("the advisory locks");
        let held = guard(&self.locks.state).release(key, self.place, shared, false);
        if held {
            self.locks.changed.wake_all();
        }
        held
    }

    /// Releases all that the session holds; what its transaction holds is kept.
    pub fn unlock_all(&self) {
        let _vital = panics::vital("the advisory locks");
        guard(&self.locks.state).change_all(self.place, |held| held.session = 0);
        self.locks.changed.wake_all();
    }

    /// How many locks the transaction has taken, to go [back to](Self::release_since) when a
    /// savepoint is rolled back to.
    pub fn mark(&self) -> usize {
        self.transaction.borrow().len()
    }

    /// Releases what the transaction has taken since `mark`.
    pub fn release_since(&self, mark: usize) {
        let mut taken = self.transaction.borrow_mut();
        if taken.len() <= mark {
            return;
        }
        let _vital = panics::vital("the advisory locks");
        let mut state = guard(&self.locks.state);
        for (key, shared) in taken.drain(mark..) {
            state.release(key, self.place, shared, true);
        }
        drop(state);
        self.locks.changed.wake_all();
    }

    /// Releases what the transaction holds: it has ended.
    #[inline]
    pub fn end_transaction(&self) {
        if !self.transaction.borrow().is_empty() {
            self.release_since(0);
        }
    }
}

impl Drop for SessionAdvisory {
    fn drop(&mut self) {
        let _vital = panics::vital("the advisory locks");
        guard(&self.locks.state).change_all(self.place, |held| (held.session, held.transaction) = (0, 0));
        self.locks.changed.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const KEY: AdvisoryKey = AdvisoryKey { database: COMMON, class: 0, object: 7, pair: false };
    const OTHER_CLASS: AdvisoryKey = AdvisoryKey { database: COMMON, class: 9, object: 9, pair: true };
    const OTHER: AdvisoryKey = AdvisoryKey { database: COMMON, class: 0, object: 8, pair: false };

    fn took(session: &SessionAdvisory, key: AdvisoryKey, shared: bool, transaction: bool) -> bool {
        session.try_lock(key, shared, transaction).unwrap()
    }

    fn patient(interrupted: &dyn Fn() -> Result<(), SqlError>) -> Patience<'_> {
        Patience { deadline: None, interrupted }
    }

    /// Blocks until this many wait.
    fn until_waiting(locks: &AdvisoryLocks, count: usize) {
        while locks.all().iter().filter(|lock| !lock.granted).count() < count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn keys_of_one_and_of_two_numbers_differ() {
        assert_eq!(
            AdvisoryKey::one(-1),
            AdvisoryKey { database: COMMON, class: u32::MAX, object: u32::MAX, pair: false }
        );
        assert_ne!(AdvisoryKey::one(1 << 32 | 2), AdvisoryKey::two(1, 2));
        assert_ne!(AdvisoryKey::one(1).within(5), AdvisoryKey::one(1).within(6));
        assert_eq!(AdvisoryKey::two(-1, 3), AdvisoryKey { database: COMMON, class: u32::MAX, object: 3, pair: true });
    }

    #[test]
    fn a_lock_is_held_as_often_as_it_was_taken() {
        let locks = AdvisoryLocks::new(None);
        let (one, two) = (locks.session(1, Some(1 as Oid)), locks.session(2, Some(2 as Oid)));
        assert!(took(&one, KEY, false, false) && took(&one, KEY, false, false) && took(&one, KEY, false, true));
        assert!(!took(&two, KEY, false, false) && !took(&two, KEY, true, true));
        assert!(took(&two, OTHER, false, true));
        assert!(!two.unlock(KEY, false) && !two.unlock(OTHER, false) && !one.unlock(KEY, true));
        assert!(one.unlock(KEY, false) && one.unlock(KEY, false) && !one.unlock(KEY, false));
        assert!(!took(&two, KEY, false, false));
        one.end_transaction();
        assert!(took(&two, KEY, false, false));
        drop(two);
        assert!(locks.all().is_empty());
    }

    #[test]
    fn shared_locks_are_shared() {
        let locks = AdvisoryLocks::new(None);
        let (one, two) = (locks.session(1, Some(1 as Oid)), locks.session(2, Some(2 as Oid)));
        assert!(took(&one, KEY, true, false) && took(&two, KEY, true, false));
        assert!(!took(&one, KEY, false, false));
        two.unlock_all();
        assert!(took(&one, KEY, false, false));
        assert!(!took(&two, KEY, true, false));
    }

    #[test]
    fn what_a_savepoint_has_seen_taken_is_released_with_it() {
        let locks = AdvisoryLocks::new(None);
        let (one, two) = (locks.session(1, Some(1 as Oid)), locks.session(2, Some(2 as Oid)));
        assert!(took(&one, KEY, false, true));
        let mark = one.mark();
        assert!(took(&one, OTHER, false, true) && took(&one, KEY, false, true));
        one.release_since(mark);
        assert!(took(&two, OTHER, false, false) && !took(&two, KEY, false, false));
        one.end_transaction();
        assert!(took(&two, KEY, false, false));
    }

    #[test]
    fn waiters_get_the_lock_in_their_order() {
        let locks = AdvisoryLocks::new(None);
        let first = locks.session(1, Some(1 as Oid));
        assert!(took(&first, KEY, true, false));
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let waiter = |place: usize, shared: bool| {
                let (locks, order) = (&locks, &order);
                move || {
                    let session = locks.session(place, Some(place as Oid));
                    session.lock(KEY, shared, false, patient(&|| Ok(()))).unwrap();
                    guard(order).push(place);
                }
            };
            scope.spawn(waiter(2, false));
            until_waiting(&locks, 1);
            // It could share the lock, but somebody waits for it.
            scope.spawn(waiter(3, true));
            until_waiting(&locks, 2);
            assert!(!took(&locks.session(4, Some(4 as Oid)), KEY, true, false));
            assert!(took(&first, KEY, true, false), "who holds it needs not wait behind others");
            first.unlock_all();
        });
        assert_eq!(*guard(&order), [2, 3]);
    }

    #[test]
    fn waits_end_when_they_are_to() {
        let locks = AdvisoryLocks::new(None);
        let (one, two) = (locks.session(1, Some(1 as Oid)), locks.session(2, Some(2 as Oid)));
        assert!(took(&one, KEY, false, false));
        let canceled = || Err(SqlError::new(SqlState::QUERY_CANCELED, "canceled"));
        assert_eq!(two.lock(KEY, false, false, patient(&canceled)).unwrap_err().state, SqlState::QUERY_CANCELED);
        let late = Patience { deadline: Some(Instant::now()), interrupted: &|| Ok(()) };
        assert_eq!(two.lock(KEY, true, true, late).unwrap_err().state, SqlState::LOCK_NOT_AVAILABLE);
        assert_eq!(locks.all().len(), 1);
    }

    #[test]
    fn deadlocks_are_found() {
        let locks = AdvisoryLocks::new(None);
        let one = locks.session(1, Some(1 as Oid));
        assert!(took(&one, KEY, false, false));
        let outcomes = std::thread::scope(|scope| {
            let locks = &locks;
            let other = scope.spawn(move || {
                let two = locks.session(2, Some(2 as Oid));
                assert!(took(&two, OTHER, false, false));
                two.lock(KEY, false, false, patient(&|| Ok(())))
            });
            until_waiting(locks, 1);
            let mine = one.lock(OTHER, false, false, patient(&|| Ok(())));
            // A session that gave up has released nothing; the other one needs it.
            one.unlock_all();
            [mine, other.join().unwrap()]
        });
        let found = outcomes
            .iter()
            .filter(|outcome| outcome.as_ref().is_err_and(|error| error.state == SqlState::DEADLOCK_DETECTED));
        assert_eq!(found.count(), 1, "{outcomes:?}");
    }

    /// The other one waits for something else, which another part knows.
    #[test]
    fn deadlocks_over_other_locks_are_found() {
        struct Others;
        impl OtherWaits for Others {
            fn waits_for(&self, waiter: usize) -> Vec<usize> {
                if waiter == 2 { vec![5, 1] } else { Vec::new() }
            }
        }
        let locks = AdvisoryLocks::new(Some(Arc::new(Others)));
        let (one, two) = (locks.session(1, Some(1 as Oid)), locks.session(2, Some(2 as Oid)));
        assert!(took(&two, KEY, false, false));
        let error = one.lock(KEY, false, false, patient(&|| Ok(()))).unwrap_err();
        assert_eq!(error.state, SqlState::DEADLOCK_DETECTED);
    }

    #[test]
    fn no_role_takes_all() {
        let limits = AdvisoryLimits { session: 10, role: 15, all: 100 };
        let locks = AdvisoryLocks::within(None, limits);
        let [one, two, other, superuser] =
            [(1, Some(7)), (2, Some(7)), (3, Some(8)), (4, None)].map(|(place, role)| locks.session(place, role));
        let take = |session: &SessionAdvisory, from: i64, count: i64| {
            (from..from + count)
                .take_while(|key| session.try_lock(AdvisoryKey::one(*key), false, false).is_ok())
                .count()
        };
        assert_eq!((take(&one, 0, 20), take(&two, 100, 20)), (10, 5));
        assert_eq!((take(&other, 200, 20), take(&superuser, 300, 20)), (10, 10));
        // What one gives back, the other may take.
        one.unlock_all();
        assert_eq!(take(&two, 200 - 95, 20), 5);
        drop((one, two, other));
        assert!(guard(&locks.state).by_role.is_empty());
    }

    /// In the list that locks once were, this took minutes.
    #[test]
    fn many_locks_are_taken_and_released_and_not_too_many() {
        let limits = AdvisoryLimits { session: 200_000, role: 200_000, all: 300_000 };
        let locks = AdvisoryLocks::within(None, limits);
        let (one, two) = (locks.session(1, Some(1 as Oid)), locks.session(2, Some(2 as Oid)));
        let keys = |from: i64| (from..from + 200_000).map(AdvisoryKey::one);
        assert!(keys(0).all(|key| took(&one, key, false, true)));
        let refused = |session: &SessionAdvisory, key| session.try_lock(key, false, false).unwrap_err().state;
        assert_eq!(refused(&one, OTHER_CLASS), SqlState::OUT_OF_MEMORY);
        // What it has it may have more often.
        assert!(took(&one, AdvisoryKey::one(5), false, false) && one.unlock(AdvisoryKey::one(5), false));
        // The other one is limited by all.
        assert!(keys(1_000_000).take(100_000).all(|key| took(&two, key, true, false)));
        assert_eq!(refused(&two, OTHER_CLASS), SqlState::OUT_OF_MEMORY);
        assert!(!took(&two, AdvisoryKey::one(77), true, false));
        assert_eq!(locks.all().len(), 300_000);
        one.end_transaction();
        assert!(keys(0).take(100_000).all(|key| took(&two, key, true, true)));
        two.unlock_all();
        assert_eq!(locks.all().len(), 100_000);
        drop(two);
        assert_eq!(locks.all().len(), 0);
        let state = guard(&locks.state);
        assert!(state.count == 0 && state.by_role.is_empty() && state.held.is_empty() && state.by_session.is_empty());
    }
}
