//! Waiting: the one way in which a session, or a worker, waits for what others do.
//!
//! A thread looks whether what it waits for is there, registers in the [`WaitList`] of what that
//! depends on, looks once more, and parks. Any thread that changes what others look at wakes the
//! list afterwards, and a thread that was woken looks again: to be woken promises nothing.
//! Interrupts (a request to cancel, a statement's time-out, the end of a session or of its primary)
//! are one question ([`Patience::unless`]), asked before each sleep; what changes the answer wakes
//! the thread ([`Waiter::wake`]), wherever it waits, or is known before ([`set_alarm`]). No thread
//! sleeps longer than [`BOUND`] without a look.
//!
//! There is one implementation: who waits is a thread, and parks. Nobody else parks threads, or
//! unparks them, so sessions that are no threads need another [`Waiter`] and another
//! `Patience::park`, and nothing else.
//!
//! # Access protocol
//!
//! | word | written by | means |
//! |---|---|---|
//! | `least` | the holder of the lock `waiting` | no registered thread waits for less; [`NOBODY`] while none is registered |
//! | `woken` of an entry | who takes it from `waiting`, under that lock; release, pairs with the acquire of its thread | it is in no list any more, and its thread is about to be unparked |
//!
//! A waiter lowers `least` and looks at its condition again; a thread that wakes changes the
//! condition and looks at `least`. A SeqCst fence stands between the two steps on both sides, so
//! one of the two sees the other (Dekker). While nobody waits for what has come, waking costs that
//! fence and a load. Threads are unparked after the lock was released, each only when what it waits
//! for is covered, and need no lock to leave.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, fence, thread};

/// So long a thread sleeps at most before it looks again, should nobody wake it.
pub const BOUND: Duration = Duration::from_secs(5);

/// `least` of an empty list.
const NOBODY: u64 = u64::MAX;
/// The most that can be waited for: all that is registered is at or below.
const ALL: u64 = NOBODY - 1;

thread_local! {
    static ALARM: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Why a wait ended without what it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The deadline passed first.
    #[error("the deadline passed")]
    Deadline,
    /// The caller was interrupted.
    #[error("the wait was interrupted")]
    Interrupted,
    /// What is waited for will not come: a [`Watermark`](crate::Watermark) was closed.
    #[error("the node stopped")]
    Closed,
}

/// A thread that can be made to look again, whatever it waits for.
#[derive(Clone, Debug)]
pub struct Waiter(thread::Thread);

impl Waiter {
    /// The calling thread.
    pub fn current() -> Self {
        Self(thread::current())
    }

    /// Has its wait, or the next one, look at its interrupts and at its condition: for the thread
    /// that has changed what they say.
    pub fn wake(&self) {
        self.0.unpark();
    }
}

/// When the calling thread's interrupts will say something by themselves, as at the time-out of its
/// statement: waits that can be interrupted look then. Replaces what was set before.
pub fn set_alarm(at: Option<Instant>) {
    ALARM.set(at);
}

/// How long a thread is ready to wait: endlessly, but for a deadline and for interrupts.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    deadline: Option<Instant>,
    interrupted: Option<&'a dyn Fn() -> bool>,
    longest: Duration,
}

impl std::fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { deadline, interrupted, longest } = self;
        write!(f, "Patience({deadline:?}, interruptible {}, {longest:?})", interrupted.is_some())
    }
}

impl Patience<'static> {
    /// Nothing ends the wait but what it is for.
    pub const fn endless() -> Self {
        Self { deadline: None, interrupted: None, longest: BOUND }
    }
}

impl<'a> Patience<'a> {
    /// And not after `deadline`, if there is one.
    #[must_use]
    pub fn until(self, deadline: impl Into<Option<Instant>>) -> Self {
        let deadline = deadline.into();
        Self { deadline: self.deadline.into_iter().chain(deadline).min(), ..self }
    }

    /// And not once `interrupted` says so. It is asked before every sleep and must not block;
    /// [`Waiter::wake`] and [`set_alarm`] end a sleep. It takes the place of what was asked before.
    #[must_use]
    pub fn unless<'b>(self, interrupted: &'b dyn Fn() -> bool) -> Patience<'b>
    where
        'a: 'b,
    {
        Patience { interrupted: Some(interrupted), ..self }
    }

    /// And looks again after each `period`: where something is looked for that nobody wakes for.
    #[must_use]
    pub fn looking_every(self, period: Duration) -> Self {
        Self { longest: self.longest.min(period), ..self }
    }

    /// Whether the caller no longer wants to wait.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(|interrupted| interrupted())
    }

    /// Parks the thread, unless the patience is at its end; whatever wakes it, its caller looks.
    fn park(&self) -> Result<(), WaitError> {
        if self.is_interrupted() {
            return Err(WaitError::Interrupted);
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(WaitError::Deadline);
        }
        // An alarm that has rung was looked at by now.
        let alarm = ALARM.get().filter(|at| self.interrupted.is_some() && *at > now);
        let until = self.deadline.into_iter().chain(alarm).min();
        park(until.map_or(self.longest, |until| self.longest.min(until - now)));
        Ok(())
    }
}

/// Waits until then; endlessly where there is no deadline.
impl From<Option<Instant>> for Patience<'static> {
    fn from(deadline: Option<Instant>) -> Self {
        Self::endless().until(deadline)
    }
}

impl From<Instant> for Patience<'static> {
    fn from(deadline: Instant) -> Self {
        Self::endless().until(deadline)
    }
}

#[cfg(not(loom))]
fn park(longest: Duration) {
    thread::park_timeout(longest);
}

/// loom has no clock: under it nothing but a wake ends a sleep.
#[cfg(loom)]
fn park(_longest: Duration) {
    thread::park();
}

/// Does nothing until the patience is at its end. Returns what ended it.
pub fn sleep(patience: Patience<'_>) -> WaitError {
    loop {
        if let Err(ended) = patience.park() {
            return ended;
        }
    }
}

/// Blocks until `look` finds something, for what nobody wakes for: it is asked again after each
/// `period`. Say why at the constant that is the period.
///
/// # Errors
/// What ended the patience.
pub fn poll<T>(period: Duration, patience: Patience<'_>, mut look: impl FnMut() -> Option<T>) -> Result<T, WaitError> {
    let patience = patience.looking_every(period);
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        patience.park()?;
    }
}

/// A thread that waits.
#[derive(Debug)]
struct Entry {
    /// For what: it is woken by all that covers this.
    from: u64,
    woken: AtomicBool,
    waiter: Waiter,
}

/// The threads that wait for something to change.
#[derive(Debug)]
pub struct WaitList {
    least: AtomicU64,
    waiting: Mutex<Vec<Arc<Entry>>>,
}

impl Default for WaitList {
    fn default() -> Self {
        Self { least: AtomicU64::new(NOBODY), waiting: Mutex::new(Vec::new()) }
    }
}

impl WaitList {
    /// Has all who wait look again. To be called after the change, best without a lock that their
    /// looks take. While nobody waits, it costs a fence and a load.
    #[inline]
    pub fn wake_all(&self) {
        self.wake_covered(ALL);
    }

    /// Has those look again who wait for no more than `by`.
    #[inline]
    pub(crate) fn wake_covered(&self, by: u64) {
        // Partner of the fence in `wait_registered`: the change before `least` here, `least` before
        // the look there.
        fence(Ordering::SeqCst);
        if self.least.load(Ordering::SeqCst) <= by {
            self.wake_slowly(by);
        }
    }

    #[cold]
    fn wake_slowly(&self, by: u64) {
        let mut waiting = self.waiting();
        let covered: Vec<Arc<Entry>> = waiting.extract_if(.., |entry| entry.from <= by).collect();
        for entry in &covered {
            // Release: pairs with the acquire in `is_woken`.
            entry.woken.store(true, Ordering::Release);
        }
        self.removed(&waiting);
        drop(waiting);
        covered.iter().for_each(|entry| entry.waiter.wake());
    }

    /// Blocks until `look` finds something. It is asked first by a thread that is in no list, then
    /// after each wake. It may lock what the waking threads lock.
    ///
    /// # Errors
    /// What ended the patience; `look` was asked after that.
    pub fn until<'a, T>(
        &self,
        patience: impl Into<Patience<'a>>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        match look() {
            Some(found) => Ok(found),
            None => self.wait_registered(0, patience.into(), look),
        }
    }

    /// As [`WaitList::until`], for what comes no earlier than something that covers `from`, without
    /// the first look.
    #[cold]
    pub(crate) fn wait_registered<T>(
        &self,
        from: u64,
        patience: Patience<'_>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        let mut registered = self.register(from);
        loop {
            // Partner of the fence in `wake_covered`.
            fence(Ordering::SeqCst);
            if let Some(found) = look() {
                return Ok(found);
            }
            patience.park()?;
            if registered.is_woken() {
                registered = self.register(from);
            }
        }
    }

    fn register(&self, from: u64) -> Registered<'_> {
        let entry = Entry { from: from.min(ALL), woken: AtomicBool::new(false), waiter: Waiter::current() };
        let entry = Arc::new(entry);
        let mut waiting = self.waiting();
        waiting.push(Arc::clone(&entry));
        self.least.fetch_min(entry.from, Ordering::SeqCst);
        drop(waiting);
        Registered { list: self, entry }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.waiting.lock().expect("no code panics under this mutex")
    }

    /// Some have left, and these are the others.
    fn removed(&self, waiting: &[Arc<Entry>]) {
        let least = waiting.iter().map(|entry| entry.from).min().unwrap_or(NOBODY);
        self.least.store(least, Ordering::SeqCst);
    }
}

/// A thread's place in a list, left when this is dropped.
struct Registered<'l> {
    list: &'l WaitList,
    entry: Arc<Entry>,
}

impl Registered<'_> {
    fn is_woken(&self) -> bool {
        // Acquire: pairs with the release in `wake_slowly`.
        self.entry.woken.load(Ordering::Acquire)
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if !self.is_woken() {
            let mut waiting = self.list.waiting();
            waiting.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
            self.list.removed(&waiting);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{sync::mpsc::channel, thread::scope};

    use super::*;
    use crate::{Lsn, Watermark};

    /// Blocks until a thread waits in `list`.
    fn until_registered(list: &WaitList) {
        while list.waiting().is_empty() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_deadline_ends_a_wait_and_what_is_there_needs_none() {
        let list = WaitList::default();
        assert_eq!(list.until(Instant::now(), || Some(7)), Ok(7));
        assert_eq!(list.until(Instant::now(), || None::<()>), Err(WaitError::Deadline));
        assert_eq!(sleep(Instant::now().into()), WaitError::Deadline);
        assert_eq!(poll(BOUND, Instant::now().into(), || None::<()>), Err(WaitError::Deadline));
        assert!(list.waiting().is_empty() && list.least.load(Ordering::SeqCst) == NOBODY);
        // The earlier one counts, and none is none.
        let patience = Patience::endless().until(None).until(Instant::now()).until(Instant::now() + BOUND);
        assert_eq!(sleep(patience), WaitError::Deadline);
    }

    /// Whatever is waited for: an interrupt is seen long before the thread would look by itself.
    #[test]
    fn an_interrupt_ends_each_kind_of_wait_at_once() {
        let (list, mark) = (WaitList::default(), Watermark::new(Lsn(0)));
        let waits: [&(dyn Fn(Patience<'_>) -> WaitError + Sync); 4] = [
            &|patience| list.until(patience, || None::<()>).unwrap_err(),
            &|patience| mark.wait(Lsn(1), patience).unwrap_err(),
            &|patience| sleep(patience),
            &|patience| poll(BOUND, patience, || None::<()>).unwrap_err(),
        ];
        for wait in waits {
            let (canceled, asked) = (AtomicBool::new(false), AtomicU64::new(0));
            let (about_to_sleep, sleeps) = channel();
            scope(|scope| {
                let waiting = scope.spawn(|| {
                    let interrupted = || {
                        asked.fetch_add(1, Ordering::SeqCst);
                        let _ = about_to_sleep.send(Waiter::current());
                        canceled.load(Ordering::SeqCst)
                    };
                    let begun = Instant::now();
                    (wait(Patience::endless().unless(&interrupted)), begun.elapsed())
                });
                // It has found nothing, and is about to park or does.
                let waiter: Waiter = sleeps.recv().unwrap();
                canceled.store(true, Ordering::SeqCst);
                waiter.wake();
                let (ended, took) = waiting.join().unwrap();
                assert_eq!(ended, WaitError::Interrupted);
                assert!(took < BOUND / 2, "{took:?}");
            });
            // Once before the sleep, once after it; a token of std's channel may wake it, too.
            assert!(asked.load(Ordering::SeqCst) <= 3, "{asked:?}");
        }
    }

    #[test]
    fn an_alarm_ends_a_sleep_that_can_be_interrupted() {
        let rings = Instant::now() + Duration::from_millis(5);
        set_alarm(Some(rings));
        let begun = Instant::now();
        let ended = sleep(Patience::endless().unless(&|| Instant::now() >= rings));
        set_alarm(None);
        assert_eq!(ended, WaitError::Interrupted);
        assert!(begun.elapsed() < BOUND / 2);
    }

    /// The others need no wake, and get none.
    #[test]
    fn only_those_are_woken_who_are_covered() {
        let (mark, looks) = (Watermark::new(Lsn(0)), AtomicU64::new(0));
        let (near, far) = (Lsn(5), Lsn(50));
        let count = || {
            looks.fetch_add(1, Ordering::SeqCst);
            false
        };
        let (mark, count) = (&mark, &count);
        scope(|scope| {
            let late = scope.spawn(move || mark.wait(far, Patience::endless().unless(count)));
            while looks.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for at in 1..=5 {
                let early = scope.spawn(move || mark.wait(near, None));
                mark.advance(Lsn(at));
                if at == 5 {
                    assert_eq!(early.join().unwrap(), Ok(near));
                }
            }
            assert_eq!(looks.load(Ordering::SeqCst), 1);
            mark.advance(far);
            assert_eq!(late.join().unwrap(), Ok(far));
        });
    }

    #[test]
    fn all_are_woken_in_turn() {
        let (list, turn) = (WaitList::default(), AtomicU64::new(0));
        scope(|scope| {
            for own in 0..4 {
                let (list, turn) = (&list, &turn);
                scope.spawn(move || {
                    list.until(None, || (turn.load(Ordering::SeqCst) == own).then_some(())).unwrap();
                    turn.store(own + 1, Ordering::SeqCst);
                    list.wake_all();
                });
            }
        });
        assert_eq!(turn.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn a_closed_watermark_ends_waits() {
        let mark = Watermark::new(Lsn(0));
        scope(|scope| {
            let waiting = scope.spawn(|| mark.wait(Lsn(1), None));
            until_registered(mark.waiters());
            mark.close();
            assert_eq!(waiting.join().unwrap(), Err(WaitError::Closed));
        });
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::{
        sync::{Arc, mpsc::channel},
        thread,
    };

    use super::*;
    use crate::sync::AtomicBool;

    /// No wake-up is lost between threads that wait and one that changes what they look at; those
    /// who were woken too early wait again, and leave nothing behind.
    #[test]
    fn waiters_are_always_woken() {
        loom::model(|| {
            let shared = Arc::new((WaitList::default(), AtomicU64::new(0)));
            let waiting = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (list, value) = &*shared;
                    // Relaxed: ordered by the fences.
                    list.until(None, || (value.load(Ordering::Relaxed) == 2).then_some(())).unwrap();
                })
            };
            let (list, value) = &*shared;
            for to in 1..=2 {
                value.store(to, Ordering::Relaxed);
                list.wake_all();
            }
            waiting.join().unwrap();
            assert!(list.waiting().is_empty() && list.least.load(Ordering::SeqCst) == NOBODY);
        });
    }

    /// An interrupt before, while or after a thread goes to sleep ends its wait.
    #[test]
    fn an_interrupt_is_never_lost() {
        loom::model(|| {
            let shared = Arc::new((WaitList::default(), AtomicBool::new(false)));
            let (known, knows) = channel();
            let waiting = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    known.send(Waiter::current()).unwrap();
                    let (list, canceled) = &*shared;
                    let interrupted = || canceled.load(Ordering::SeqCst);
                    list.until(Patience::endless().unless(&interrupted), || None::<()>)
                })
            };
            let waiter = knows.recv().unwrap();
            shared.1.store(true, Ordering::SeqCst);
            waiter.wake();
            assert_eq!(waiting.join().unwrap(), Err(WaitError::Interrupted));
            assert!(shared.0.waiting().is_empty());
        });
    }
}
