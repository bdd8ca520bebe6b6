//! Locks on tables: a session that changes what a table is waits for the sessions that have written
//! to it, and they wait for it.
//!
//! Rows need none of this: the engine sees to them. Readers need none either, since each reads what
//! its snapshot has, the definition included. But a transaction that has written rows as one
//! definition wants them must have ended before another definition holds, and one that has planned
//! with the old definition must notice. So writers hold a *weak* lock on each table that they write
//! to, until their transaction ends, and definitions a *strong* one.
//!
//! # How it works
//!
//! Each session has a [`Place`] with its weak locks, behind a mutex that is its own, so taking one
//! touches no memory that other sessions write to. Strong locks, and those who wait, are in the
//! manager's [`State`]. A session that wants a strong lock first says so in every place, then looks
//! what is held there; one that wants a weak lock looks into its own place whether any session
//! wants a strong one, and adds it to the place, in one critical section. So of two that meet, one
//! sees the other, whichever comes first: if the writer does, its lock is there when the other
//! looks; otherwise it sees that somebody wants a strong lock, and goes to the manager. The version
//! of the last change of a table gets about in the same way.
//!
//! Mutexes are always taken in the order state, place; never two places at once.
//!
//! # Deadlocks
//!
//! Who waits for a table's lock looks now and then whether those that it waits for wait, over
//! others, for itself: for tables' locks, or for records, which the engine knows. Every circle
//! that such waits close has one of these waiters in it; what consists of waits for records only is
//! found by the engine. A circle must be seen twice, some milliseconds apart, before somebody gives
//! up: what is seen at different moments may never have been one.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use freshet_base::{WaitError, panics, wait::WaitList};
use freshet_engine::circle;
use freshet_sql::{SqlError, SqlState};

use crate::{schema::Oid, wait::waiting};

/// How often a waiter looks for deadlocks: that a circle of waits lasts is nothing that anybody
/// could wake it for.
const LOOK_FOR_CIRCLES: Duration = Duration::from_millis(10);
/// How long a circle of waits must last to be one.
const CONFIRM: Duration = Duration::from_millis(5);

/// A way of locking a table: PostgreSQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// ACCESS SHARE
    AccessShare,
    /// ROW SHARE: what those hold who lock rows.
    RowShare,
    /// ROW EXCLUSIVE: what writers hold.
    RowExclusive,
    /// SHARE UPDATE EXCLUSIVE
    ShareUpdateExclusive,
    /// SHARE
    Share,
    /// SHARE ROW EXCLUSIVE
    ShareRowExclusive,
    /// EXCLUSIVE
    Exclusive,
    /// ACCESS EXCLUSIVE: what definitions hold.
    AccessExclusive,
}

impl LockMode {
    /// All of them, weakest first.
    pub const ALL: &[Self] = &[
        Self::AccessShare,
        Self::RowShare,
        Self::RowExclusive,
        Self::ShareUpdateExclusive,
        Self::Share,
        Self::ShareRowExclusive,
        Self::Exclusive,
        Self::AccessExclusive,
    ];

    /// What SQL calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AccessShare => "ACCESS SHARE",
            Self::RowShare => "ROW SHARE",
            Self::RowExclusive => "ROW EXCLUSIVE",
            Self::ShareUpdateExclusive => "SHARE UPDATE EXCLUSIVE",
            Self::Share => "SHARE",
            Self::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
            Self::Exclusive => "EXCLUSIVE",
            Self::AccessExclusive => "ACCESS EXCLUSIVE",
        }
    }

    /// With which modes it cannot be held at once, as bits.
    const fn conflicts(self) -> u8 {
        match self {
            Self::AccessShare => 0b1000_0000,
            Self::RowShare => 0b1100_0000,
            Self::RowExclusive => 0b1111_0000,
            Self::ShareUpdateExclusive => 0b1111_1000,
            Self::Share => 0b1110_1100,
            Self::ShareRowExclusive => 0b1111_1100,
            Self::Exclusive => 0b1111_1110,
            Self::AccessExclusive => 0b1111_1111,
        }
    }

    /// Whether two sessions cannot hold these on one table.
    pub const fn conflicts_with(self, other: Self) -> bool {
        self.conflicts() & (1 << other as u8) != 0
    }

    /// Whether who holds it needs no `other`, too.
    const fn covers(self, other: Self) -> bool {
        self.conflicts() & other.conflicts() == other.conflicts()
    }

    /// Whether no two of its kind conflict.
    const fn is_weak(self) -> bool {
        matches!(self, Self::AccessShare | Self::RowShare | Self::RowExclusive)
    }
}

/// A lock on a table that somebody holds, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLock {
    /// Whose: the number of the session.
    pub place: usize,
    /// The oid of the table.
    pub table: Oid,
    /// The mode in which it is locked.
    pub mode: LockMode,
    /// Whether it is held.
    pub granted: bool,
}

/// Who waits for whom, for something that a kind of locks does not know itself.
pub trait OtherWaits: Send + Sync {
    /// The sessions, by their numbers, that session `waiter` waits for.
    fn waits_for(&self, waiter: usize) -> Vec<usize>;
}

/// A circle of waits that one waiter has seen: only one that lasts is a deadlock, since what is
/// seen at different moments may never have been a circle.
#[derive(Default)]
pub(crate) struct Suspicion(Option<(Vec<usize>, Instant)>);

impl Suspicion {
    /// Looks whether session `number` waits for itself, `own` being the waits for the locks at
    /// hand. Fails with 40P01 when the same circle was there [`CONFIRM`] ago.
    pub(crate) fn look(
        &mut self,
        number: usize,
        own: impl Fn(usize) -> Vec<usize>,
        others: Option<&dyn OtherWaits>,
    ) -> Result<(), SqlError> {
        let seen = circle(number, |waiter| {
            let mut all = own(waiter);
            all.extend(others.map(|others| others.waits_for(waiter)).unwrap_or_default());
            all
        });
        let now = Instant::now();
        match (seen, &self.0) {
            (Some(seen), Some((before, since))) if seen == *before => {
                if now - *since >= CONFIRM {
                    return Err(deadlock(number, &seen));
                }
            }
            (seen, _) => self.0 = seen.map(|seen| (seen, now)),
        }
        Ok(())
    }
}

/// What a session that waits is ready to wait for.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// Until when.
    pub deadline: Option<Instant>,
    /// Asked whenever the session is woken: an error ends the wait.
    pub interrupted: &'a dyn Fn() -> Result<(), SqlError>,
}

impl Patience<'_> {
    /// Blocks until `look`, which also looks for deadlocks, has an outcome. It is asked when `list`
    /// is woken, and every few milliseconds.
    ///
    /// # Errors
    /// That of `look`, 55P03, or what ended the wait.
    pub(crate) fn until(
        self,
        list: &WaitList,
        look: impl FnMut() -> Option<Result<(), SqlError>>,
    ) -> Result<(), SqlError> {
        let waited = waiting(self.interrupted, |patience| {
            list.until(patience.until(self.deadline).looking_every(LOOK_FOR_CIRCLES), look)
        });
        match waited {
            Ok(outcome) => outcome,
            Err(WaitError::Interrupted) => (self.interrupted)().and(Err(not_available())),
            Err(WaitError::Deadline | WaitError::Closed) => Err(not_available()),
        }
    }
}

/// Whether a definition may still be gone by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Planned {
    /// It is the newest one, and stays so while the lock is held.
    Current,
    /// It was changed: the statement has to be planned again, with a newer snapshot.
    Outdated,
}

/// The locks of one primary.
pub struct LockManager {
    state: Mutex<State>,
    changed: WaitList,
    records: Option<Arc<dyn OtherWaits>>,
}

#[derive(Default)]
struct State {
    places: Vec<Arc<Place>>,
    /// Strong locks, and all that somebody waits for, in the order in which they were wanted.
    requests: Vec<Request>,
    next_request: u64,
    /// At which version of its database's catalog each table was changed last, and that database.
    changes: HashMap<Oid, (Oid, u64)>,
}

/// One session's weak locks.
struct Place {
    /// The session's number: that of its worker.
    number: usize,
    /// The session's database: it writes to no tables but those of this one.
    database: Oid,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    weak: Vec<(Oid, LockMode)>,
    /// How many strong locks there are anywhere, wanted or held.
    strong: usize,
    /// The largest of all versions at which a table of its database was changed.
    last_change: u64,
}

/// A strong lock, or one that somebody waits for.
struct Request {
    id: u64,
    /// The number of the session that has the lock, or waits for it.
    number: usize,
    table: Oid,
    mode: LockMode,
    granted: bool,
}

/// One session's locks. They go when it is dropped.
pub struct TableLocks {
    manager: Arc<LockManager>,
    place: Arc<Place>,
    /// What is held, in the order in which it was taken; known here so that nobody has to be asked.
    held: RefCell<Vec<(Oid, LockMode)>>,
}

/// How many locks were held at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockMark(usize);

pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for LockManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = guard(&self.state);
        f.debug_struct("LockManager")
            .field("sessions", &state.places.len())
            .field("requests", &state.requests.len())
            .finish()
    }
}

impl std::fmt::Debug for TableLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableLocks(session {}: {:?})", self.place.number, self.held.borrow())
    }
}

impl LockManager {
    /// No locks. `records` knows who waits for records, so that deadlocks with these are found,
    /// too.
    pub fn new(records: Option<Arc<dyn OtherWaits>>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: WaitList::default(), records })
    }

    /// The locks of a session in a database. No two sessions have the same number at a time.
    pub fn session(self: &Arc<Self>, number: usize, database: Oid) -> TableLocks {
        let mut state = guard(&self.state);
        let strong = state.requests.iter().filter(|request| !request.mode.is_weak()).count();
        let own = state.changes.values().filter(|(of, _)| *of == database);
        let last_change = own.map(|(_, version)| *version).max().unwrap_or(0);
        let held = Held { weak: Vec::new(), strong, last_change };
        let place = Arc::new(Place { number, database, held: Mutex::new(held) });
        state.places.push(Arc::clone(&place));
        TableLocks { manager: Arc::clone(self), place, held: RefCell::default() }
    }

    /// All locks that are held or waited for.
    pub fn all(&self) -> Vec<TableLock> {
        let state = guard(&self.state);
        let mut all = Vec::new();
        for place in &state.places {
            let weak = guard(&place.held).weak.clone();
            let held = |(table, mode)| TableLock { place: place.number, table, mode, granted: true };
            all.extend(weak.into_iter().map(held));
        }
        for Request { number, table, mode, granted, .. } in &state.requests {
            all.push(TableLock { place: *number, table: *table, mode: *mode, granted: *granted });
        }
        all
    }

    /// The sessions that a session waits for, if it waits for a table.
    pub fn waits_for(&self, number: usize) -> Vec<usize> {
        guard(&self.state).waits_for(number)
    }

    /// Whether somebody waits for a lock.
    pub fn is_wanted(&self) -> bool {
        guard(&self.state).requests.iter().any(|request| !request.granted)
    }

    /// Notes that a change of tables of a database was committed. To be called before the locks of
    /// the session that has changed them are released.
    pub fn note_change(&self, database: Oid, tables: &[Oid], version: u64) {
        let _vital = panics::vital("the locks of tables");
        let mut state = guard(&self.state);
        for table in tables {
            let last = state.changes.entry(*table).or_insert((database, 0));
            last.1 = version.max(last.1);
        }
        for place in state.places.iter().filter(|place| place.database == database) {
            let mut held = guard(&place.held);
            held.last_change = held.last_change.max(version);
        }
    }

    fn take_back(&self, state: &mut State, gone: impl Fn(&Request) -> bool) {
        let _vital = panics::vital("the locks of tables");
        let before = state.requests.iter().filter(|request| !request.mode.is_weak()).count();
        state.requests.retain(|request| !gone(request));
        let after = state.requests.iter().filter(|request| !request.mode.is_weak()).count();
        if before != after {
            for place in &state.places {
                guard(&place.held).strong = after;
            }
        }
        self.changed.wake_all();
    }
}

impl State {
    /// Whom a request waits for: sessions that hold what conflicts with it, and those that wanted
    /// such a thing before it.
    fn blockers(&self, request: &Request) -> Vec<usize> {
        let conflicts = |table: Oid, mode: LockMode| table == request.table && mode.conflicts_with(request.mode);
        let mut found = Vec::new();
        let mut holds_some = false;
        for place in &self.places {
            let held = guard(&place.held);
            if place.number == request.number {
                holds_some |= held.weak.iter().any(|(table, _)| *table == request.table);
            } else if held.weak.iter().any(|(table, mode)| conflicts(*table, *mode)) {
                found.push(place.number);
            }
        }
        let others = self.requests.iter().filter(|other| other.number != request.number);
        holds_some |=
            self.requests.iter().any(|own| own.granted && own.number == request.number && own.table == request.table);
        for other in others.filter(|other| conflicts(other.table, other.mode)) {
            // A session that wants more of what it has waits for no session that only wants it:
            // that one waits for it.
            if other.granted || other.id < request.id && !holds_some {
                found.push(other.number);
            }
        }
        found
    }

    /// The sessions that a session waits for, if it waits for a table.
    fn waits_for(&self, number: usize) -> Vec<usize> {
        let waits = self.requests.iter().filter(|request| request.number == number && !request.granted);
        waits.flat_map(|request| self.blockers(request)).collect()
    }
}

impl TableLocks {
    /// The lock of a writer, or another weak one, until the transaction ends: says whether the
    /// definition at version `planned` of the catalog is still the table's. Blocks while somebody
    /// else has or wants a conflicting one. Cheap when it is held already, and when nobody is about
    /// to change any table.
    ///
    /// # Errors
    /// 40P01, 55P03, or what ended the wait.
    #[inline]
    pub fn weak(&self, table: Oid, mode: LockMode, planned: u64, patience: Patience<'_>) -> Result<Planned, SqlError> {
        debug_assert!(mode.is_weak(), "{mode:?} excludes itself");
        if self.holds(table, mode) {
            return Ok(self.outdated(table, planned));
        }
        let mut held = guard(&self.place.held);
        if held.strong == 0 {
            held.weak.push((table, mode));
            let fresh = held.last_change <= planned;
            drop(held);
            self.held.borrow_mut().push((table, mode));
            return Ok(if fresh { Planned::Current } else { self.outdated(table, planned) });
        }
        drop(held);
        self.wait(table, mode, Some(patience))?;
        Ok(self.outdated(table, planned))
    }

    /// Whether the session has this lock, or a stronger one.
    #[inline]
    pub fn holds(&self, table: Oid, mode: LockMode) -> bool {
        self.held.borrow().iter().any(|(held, known)| *held == table && known.covers(mode))
    }

    fn outdated(&self, table: Oid, planned: u64) -> Planned {
        if guard(&self.place.held).last_change <= planned {
            return Planned::Current;
        }
        let changed = guard(&self.manager.state).changes.get(&table).map_or(0, |(_, version)| *version);
        if changed <= planned { Planned::Current } else { Planned::Outdated }
    }

    /// Locks a table, until the transaction ends. Blocks while somebody else has or wants a
    /// conflicting lock.
    ///
    /// # Errors
    /// 40P01, 55P03, or what ended the wait.
    pub fn lock(&self, table: Oid, mode: LockMode, patience: Patience<'_>) -> Result<(), SqlError> {
        if !self.holds(table, mode) {
            self.wait(table, mode, Some(patience))?;
        }
        Ok(())
    }

    /// Locks a table, if nobody else has or wants a conflicting lock.
    pub fn try_lock(&self, table: Oid, mode: LockMode) -> bool {
        self.holds(table, mode) || self.wait(table, mode, None).is_ok()
    }

    fn wait(&self, table: Oid, mode: LockMode, patience: Option<Patience<'_>>) -> Result<(), SqlError> {
        let _vital = panics::vital("the locks of tables");
        let manager = &*self.manager;
        let number = self.place.number;
        let id = {
            let mut state = guard(&manager.state);
            let id = state.next_request;
            state.next_request += 1;
            state.requests.push(Request { id, number, table, mode, granted: false });
            if !mode.is_weak() {
                // First it is said, then looked.
                for place in &state.places {
                    guard(&place.held).strong += 1;
                }
            }
            id
        };
        let mut suspicion = Suspicion::default();
        let mut look = || {
            let mut state = guard(&manager.state);
            let Some(at) = state.requests.iter().position(|request| request.id == id) else {
                return Some(Err(SqlError::internal("a request for a lock is gone")));
            };
            if state.blockers(&state.requests[at]).is_empty() {
                if mode.is_weak() {
                    state.requests.remove(at);
                    guard(&self.place.held).weak.push((table, mode));
                    manager.changed.wake_all();
                } else {
                    state.requests[at].granted = true;
                }
                self.held.borrow_mut().push((table, mode));
                return Some(Ok(()));
            }
            patience?;
            let suspicious = suspicion.look(number, |waiter| state.waits_for(waiter), manager.records.as_deref());
            if suspicious.is_err() {
                // Before anybody else of the circle looks: one victim is enough.
                manager.take_back(&mut state, |request| request.id == id);
            }
            suspicious.err().map(Err)
        };
        let locked = match patience {
            Some(patience) => patience.until(&manager.changed, look),
            None => look().unwrap_or_else(|| Err(not_available())),
        };
        if locked.is_err() {
            manager.take_back(&mut guard(&manager.state), |request| request.id == id);
        }
        locked
    }

    /// Where the session is, to go [back to](TableLocks::release_since) when a savepoint is rolled
    /// back to.
    pub fn mark(&self) -> LockMark {
        LockMark(self.held.borrow().len())
    }

    /// Releases what was taken since `mark`.
    pub fn release_since(&self, mark: LockMark) {
        let mut held = self.held.borrow_mut();
        if held.len() <= mark.0 {
            return;
        }
        let mut own_strong = held[mark.0..].iter().filter(|(_, mode)| !mode.is_weak()).count();
        let mut place = guard(&self.place.held);
        for gone in &held[mark.0..] {
            if let Some(at) = place.weak.iter().rposition(|known| known == gone) {
                place.weak.swap_remove(at);
            }
        }
        let anybody = place.strong > 0;
        drop(place);
        held.truncate(mark.0);
        if !anybody {
            return;
        }
        let mut state = guard(&self.manager.state);
        if own_strong == 0 {
            self.manager.changed.wake_all();
            return;
        }
        // The last ones that were granted are those that were taken since.
        let mut gone = Vec::new();
        for request in state.requests.iter().rev() {
            if own_strong > 0 && request.granted && request.number == self.place.number {
                gone.push(request.id);
                own_strong -= 1;
            }
        }
        self.manager.take_back(&mut state, |request| gone.contains(&request.id));
    }

    /// Releases all locks: the transaction has ended.
    #[inline]
    pub fn release(&self) {
        if !self.held.borrow().is_empty() {
            self.release_since(LockMark(0));
        }
    }

    /// The manager.
    pub fn manager(&self) -> &Arc<LockManager> {
        &self.manager
    }
}

impl Drop for TableLocks {
    fn drop(&mut self) {
        self.release();
        let mut state = guard(&self.manager.state);
        state.places.retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

#[cold]
pub(crate) fn not_available() -> SqlError {
    SqlError::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
}

#[cold]
fn deadlock(number: usize, circle: &[usize]) -> SqlError {
    let waits: Vec<String> = circle.iter().map(|session| format!("session {session}")).collect();
    let detail = format!("These wait for one another: {}, and again session {number}.", waits.join(", "));
    SqlError::new(SqlState::DEADLOCK_DETECTED, "deadlock detected").with_detail(detail)
}
