//! Advisory locks: locks on numbers, which mean what clients agree that they mean.
//!
//! They are this node's alone, and gone when it stops: a new primary knows nothing of those of the one before it. Each is held by a session, or by
//! its transaction until that ends; a session may hold one several times, and has to release it as often. Who waits stands in
//! line: nobody overtakes whom it would keep waiting.
//!
//! # Deadlocks
//!
//! Who waits here looks now and then whether those that it waits for wait, over others, for itself: for such locks, for tables, or
//! for records. So every circle of waits that has one of these in it is found by one of those in it; the others are
//! found by the locks on tables and by the engine. A circle must be seen twice, some milliseconds apart.

use std::{
    cell::RefCell,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Instant,
};

use freshet_sql::SqlError;

use crate::locks::{CONFIRM, LOOK, Patience, deadlock, guard, not_available};

/// What is locked: one number of 64 bits, or two of 32, which are never the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdvisoryKey {
    /// The upper half, or the first number.
    pub class: u32,
    /// The lower half, or the second number.
    pub object: u32,
    /// Whether it is two numbers.
    pub pair: bool,
}

impl AdvisoryKey {
    /// One number.
    pub fn one(number: i64) -> Self {
        Self { class: (number as u64 >> 32) as u32, object: number as u32, pair: false }
    }

    /// Two numbers.
    pub fn two(class: i32, object: i32) -> Self {
        Self { class: class as u32, object: object as u32, pair: true }
    }
}

/// Whom one waits for besides: for tables and for records.
pub trait OtherWaits: Send + Sync {
    /// The sessions, by their numbers, that the session `waiter` waits for.
    fn waits_for(&self, waiter: usize) -> Vec<usize>;
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

/// The advisory locks of a node.
pub struct AdvisoryLocks {
    state: Mutex<State>,
    changed: Condvar,
    others: Option<Arc<dyn OtherWaits>>,
}

#[derive(Default)]
struct State {
    held: Vec<Held>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    next: u64,
}

struct Held {
    key: AdvisoryKey,
    place: usize,
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
    /// Who keeps a session from a lock: holders, and those who came before request `id`.
    fn blockers(&self, key: AdvisoryKey, place: usize, shared: bool, id: u64) -> Vec<usize> {
        let conflicts = |of: AdvisoryKey, by: usize, also: bool| of == key && by != place && !(shared && also);
        let held = self.held.iter().filter(|held| conflicts(held.key, held.place, held.shared));
        let mut found: Vec<usize> = held.map(|held| held.place).collect();
        // Who holds it already waits for nobody who only wants it: that one waits for it.
        if !self.held.iter().any(|held| held.key == key && held.place == place) {
            let before = self.waiting.iter().filter(|other| other.id < id);
            found.extend(before.filter(|other| conflicts(other.key, other.place, other.shared)).map(|it| it.place));
        }
        found
    }

    fn grant(&mut self, key: AdvisoryKey, place: usize, shared: bool, transaction: bool) {
        let known = self.held.iter_mut().find(|held| (held.key, held.place, held.shared) == (key, place, shared));
        let held = match known {
            Some(held) => held,
            None => {
                self.held.push(Held { key, place, shared, session: 0, transaction: 0 });
                let last = self.held.len() - 1;
                &mut self.held[last]
            }
        };
        *if transaction { &mut held.transaction } else { &mut held.session } += 1;
    }

    /// Takes one hold back; says whether there was one.
    fn release(&mut self, key: AdvisoryKey, place: usize, shared: bool, transaction: bool) -> bool {
        let found = self.held.iter().position(|held| (held.key, held.place, held.shared) == (key, place, shared));
        let Some(at) = found else { return false };
        let held = &mut self.held[at];
        let count = if transaction { &mut held.transaction } else { &mut held.session };
        if *count == 0 {
            return false;
        }
        *count -= 1;
        if held.session == 0 && held.transaction == 0 {
            self.held.swap_remove(at);
        }
        true
    }

    /// For each that waits: whom it waits for.
    fn waits(&self) -> Vec<(usize, Vec<usize>)> {
        let waits = self.waiting.iter();
        waits.map(|it| (it.place, self.blockers(it.key, it.place, it.shared, it.id))).collect()
    }
}

/// A circle of waits that `goal` is part of: the sessions in it.
fn circle(goal: usize, waits: &[(usize, Vec<usize>)], others: Option<&dyn OtherWaits>) -> Option<Vec<usize>> {
    fn visit(
        number: usize,
        goal: usize,
        waits: &[(usize, Vec<usize>)],
        others: Option<&dyn OtherWaits>,
        path: &mut Vec<usize>,
        seen: &mut Vec<usize>,
    ) -> bool {
        if number == goal && !path.is_empty() {
            return true;
        }
        if seen.contains(&number) {
            return false;
        }
        seen.push(number);
        path.push(number);
        let here = waits.iter().filter(|(waiter, _)| *waiter == number).flat_map(|(_, on)| on.iter().copied());
        let mut next: Vec<usize> = here.collect();
        next.extend(others.map(|others| others.waits_for(number)).unwrap_or_default());
        if next.into_iter().any(|next| visit(next, goal, waits, others, path, seen)) {
            return true;
        }
        path.pop();
        false
    }
    let mut path = Vec::new();
    visit(goal, goal, waits, others, &mut path, &mut Vec::new()).then_some(path)
}

impl AdvisoryLocks {
    /// No locks. `others` knows who waits for something else, so that deadlocks with that are found, too.
    pub fn new(others: Option<Arc<dyn OtherWaits>>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Condvar::new(), others })
    }

    /// The locks of a session. No two sessions have the same number at a time.
    pub fn session(self: &Arc<Self>, place: usize) -> SessionAdvisory {
        SessionAdvisory { locks: Arc::clone(self), place, transaction: RefCell::default() }
    }

    /// The sessions that a session waits for, if it waits for such a lock.
    pub fn waits_for(&self, place: usize) -> Vec<usize> {
        let state = guard(&self.state);
        let waits = state.waits().into_iter().filter(|(waiter, _)| *waiter == place);
        waits.flat_map(|(_, by)| by).collect()
    }

    /// All that are held or waited for.
    pub fn all(&self) -> Vec<AdvisoryLock> {
        let state = guard(&self.state);
        let held = state.held.iter().map(|it| (it.key, it.place, it.shared, true));
        let waiting = state.waiting.iter().map(|it| (it.key, it.place, it.shared, false));
        let all = held.chain(waiting);
        all.map(|(key, place, shared, granted)| AdvisoryLock { key, place, shared, granted }).collect()
    }
}

impl SessionAdvisory {
    /// Takes a lock if nobody keeps it from that; says whether it has.
    pub fn try_lock(&self, key: AdvisoryKey, shared: bool, transaction: bool) -> bool {
        let mut state = guard(&self.locks.state);
        if !state.blockers(key, self.place, shared, u64::MAX).is_empty() {
            return false;
        }
        state.grant(key, self.place, shared, transaction);
        drop(state);
        if transaction {
            self.transaction.borrow_mut().push((key, shared));
        }
        true
    }

    /// Takes a lock, and blocks until it can.
    ///
    /// # Errors
    /// 40P01, 55P03, or what ended the wait.
    pub fn lock(
        &self,
        key: AdvisoryKey,
        shared: bool,
        transaction: bool,
        patience: Patience<'_>,
    ) -> Result<(), SqlError> {
        if self.try_lock(key, shared, transaction) {
            return Ok(());
        }
        let locks = &*self.locks;
        let id = {
            let mut state = guard(&locks.state);
            let id = state.next;
            state.next += 1;
            state.waiting.push(Waiting { id, key, place: self.place, shared });
            id
        };
        let mut before: Option<(Vec<usize>, Instant)> = None;
        let failure = loop {
            let mut state = guard(&locks.state);
            if state.blockers(key, self.place, shared, id).is_empty() {
                state.waiting.retain(|waiting| waiting.id != id);
                state.grant(key, self.place, shared, transaction);
                drop(state);
                // Who stood behind it may be able to share it.
                locks.changed.notify_all();
                if transaction {
                    self.transaction.borrow_mut().push((key, shared));
                }
                return Ok(());
            }
            let now = Instant::now();
            if patience.deadline.is_some_and(|deadline| now >= deadline) {
                break not_available();
            }
            // Who finds a circle leaves it before anybody else can look: one is enough.
            before = match (circle(self.place, &state.waits(), locks.others.as_deref()), before) {
                (Some(seen), Some((known, since))) if seen == known => {
                    if now - since >= CONFIRM {
                        state.waiting.retain(|waiting| waiting.id != id);
                        break deadlock(self.place, &seen);
                    }
                    Some((known, since))
                }
                (seen, _) => seen.map(|seen| (seen, now)),
            };
            let longest = patience.deadline.map_or(LOOK, |deadline| LOOK.min(deadline - now));
            let (state, _) = locks.changed.wait_timeout(state, longest).unwrap_or_else(PoisonError::into_inner);
            drop(state);
            if let Err(error) = (patience.interrupted)() {
                break error;
            }
        };
        guard(&locks.state).waiting.retain(|waiting| waiting.id != id);
        locks.changed.notify_all();
        Err(failure)
    }

    /// Releases a lock that the session holds once; says whether it has held it.
    pub fn unlock(&self, key: AdvisoryKey, shared: bool) -> bool {
        let held = guard(&self.locks.state).release(key, self.place, shared, false);
        if held {
            self.locks.changed.notify_all();
        }
        held
    }

    /// Releases all that the session holds; what its transaction holds is kept.
    pub fn unlock_all(&self) {
        let mut state = guard(&self.locks.state);
        state.held.iter_mut().filter(|held| held.place == self.place).for_each(|held| held.session = 0);
        state.held.retain(|held| held.session > 0 || held.transaction > 0);
        drop(state);
        self.locks.changed.notify_all();
    }

    /// How many locks the transaction has taken, to go [back to](Self::release_since) when a savepoint is rolled back to.
    pub fn mark(&self) -> usize {
        self.transaction.borrow().len()
    }

    /// Releases what the transaction has taken since `mark`.
    pub fn release_since(&self, mark: usize) {
        let mut taken = self.transaction.borrow_mut();
        if taken.len() <= mark {
            return;
        }
        let mut state = guard(&self.locks.state);
        for (key, shared) in taken.drain(mark..) {
            state.release(key, self.place, shared, true);
        }
        drop(state);
        self.locks.changed.notify_all();
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
        let mut state = guard(&self.locks.state);
        state.held.retain(|held| held.place != self.place);
        drop(state);
        self.locks.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use freshet_sql::SqlState;

    use super::*;

    const KEY: AdvisoryKey = AdvisoryKey { class: 0, object: 7, pair: false };
    const OTHER: AdvisoryKey = AdvisoryKey { class: 0, object: 8, pair: false };

    fn patient(interrupted: &dyn Fn() -> Result<(), SqlError>) -> Patience<'_> {
        Patience { deadline: None, interrupted }
    }

    /// Blocks until so many wait.
    fn until_waiting(locks: &AdvisoryLocks, count: usize) {
        while locks.all().iter().filter(|lock| !lock.granted).count() < count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn keys_of_one_and_of_two_numbers_differ() {
        assert_eq!(AdvisoryKey::one(-1), AdvisoryKey { class: u32::MAX, object: u32::MAX, pair: false });
        assert_ne!(AdvisoryKey::one(1 << 32 | 2), AdvisoryKey::two(1, 2));
        assert_eq!(AdvisoryKey::two(-1, 3), AdvisoryKey { class: u32::MAX, object: 3, pair: true });
    }

    #[test]
    fn a_lock_is_held_as_often_as_it_was_taken() {
        let locks = AdvisoryLocks::new(None);
        let (one, two) = (locks.session(1), locks.session(2));
        assert!(one.try_lock(KEY, false, false) && one.try_lock(KEY, false, false) && one.try_lock(KEY, false, true));
        assert!(!two.try_lock(KEY, false, false) && !two.try_lock(KEY, true, true));
        assert!(two.try_lock(OTHER, false, true));
        assert!(!two.unlock(KEY, false) && !two.unlock(OTHER, false) && !one.unlock(KEY, true));
        assert!(one.unlock(KEY, false) && one.unlock(KEY, false) && !one.unlock(KEY, false));
        assert!(!two.try_lock(KEY, false, false));
        one.end_transaction();
        assert!(two.try_lock(KEY, false, false));
        drop(two);
        assert!(locks.all().is_empty());
    }

    #[test]
    fn shared_locks_are_shared() {
        let locks = AdvisoryLocks::new(None);
        let (one, two) = (locks.session(1), locks.session(2));
        assert!(one.try_lock(KEY, true, false) && two.try_lock(KEY, true, false));
        assert!(!one.try_lock(KEY, false, false));
        two.unlock_all();
        assert!(one.try_lock(KEY, false, false));
        assert!(!two.try_lock(KEY, true, false));
    }

    #[test]
    fn what_a_savepoint_has_seen_taken_is_released_with_it() {
        let locks = AdvisoryLocks::new(None);
        let (one, two) = (locks.session(1), locks.session(2));
        assert!(one.try_lock(KEY, false, true));
        let mark = one.mark();
        assert!(one.try_lock(OTHER, false, true) && one.try_lock(KEY, false, true));
        one.release_since(mark);
        assert!(two.try_lock(OTHER, false, false) && !two.try_lock(KEY, false, false));
        one.end_transaction();
        assert!(two.try_lock(KEY, false, false));
    }

    #[test]
    fn waiters_get_the_lock_in_their_order() {
        let locks = AdvisoryLocks::new(None);
        let first = locks.session(1);
        assert!(first.try_lock(KEY, true, false));
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let waiter = |place: usize, shared: bool| {
                let (locks, order) = (&locks, &order);
                move || {
                    let session = locks.session(place);
                    session.lock(KEY, shared, false, patient(&|| Ok(()))).unwrap();
                    guard(order).push(place);
                }
            };
            scope.spawn(waiter(2, false));
            until_waiting(&locks, 1);
            // It could share the lock, but somebody waits for it.
            scope.spawn(waiter(3, true));
            until_waiting(&locks, 2);
            assert!(!locks.session(4).try_lock(KEY, true, false));
            assert!(first.try_lock(KEY, true, false), "who holds it needs not wait behind others");
            first.unlock_all();
        });
        assert_eq!(*guard(&order), [2, 3]);
    }

    #[test]
    fn waits_end_when_they_are_to() {
        let locks = AdvisoryLocks::new(None);
        let (one, two) = (locks.session(1), locks.session(2));
        assert!(one.try_lock(KEY, false, false));
        let canceled = || Err(SqlError::new(SqlState::QUERY_CANCELED, "canceled"));
        assert_eq!(two.lock(KEY, false, false, patient(&canceled)).unwrap_err().state, SqlState::QUERY_CANCELED);
        let late = Patience { deadline: Some(Instant::now()), interrupted: &|| Ok(()) };
        assert_eq!(two.lock(KEY, true, true, late).unwrap_err().state, SqlState::LOCK_NOT_AVAILABLE);
        assert_eq!(locks.all().len(), 1);
    }

    #[test]
    fn deadlocks_are_found() {
        let locks = AdvisoryLocks::new(None);
        let one = locks.session(1);
        assert!(one.try_lock(KEY, false, false));
        let outcomes = std::thread::scope(|scope| {
            let locks = &locks;
            let other = scope.spawn(move || {
                let two = locks.session(2);
                assert!(two.try_lock(OTHER, false, false));
                two.lock(KEY, false, false, patient(&|| Ok(())))
            });
            until_waiting(locks, 1);
            let mine = one.lock(OTHER, false, false, patient(&|| Ok(())));
            // Whoever gave up has released nothing; the other one needs it.
            one.unlock_all();
            [mine, other.join().unwrap()]
        });
        let found = outcomes
            .iter()
            .filter(|outcome| outcome.as_ref().is_err_and(|error| error.state == SqlState::DEADLOCK_DETECTED));
        assert_eq!(found.count(), 1, "{outcomes:?}");
    }

    /// The other one waits for something else, of which somebody else knows.
    #[test]
    fn deadlocks_over_other_locks_are_found() {
        struct Others;
        impl OtherWaits for Others {
            fn waits_for(&self, waiter: usize) -> Vec<usize> {
                if waiter == 2 { vec![5, 1] } else { Vec::new() }
            }
        }
        let locks = AdvisoryLocks::new(Some(Arc::new(Others)));
        let (one, two) = (locks.session(1), locks.session(2));
        assert!(two.try_lock(KEY, false, false));
        let error = one.lock(KEY, false, false, patient(&|| Ok(()))).unwrap_err();
        assert_eq!(error.state, SqlState::DEADLOCK_DETECTED);
    }
}
