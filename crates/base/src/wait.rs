//! Waiting: the one way in which a session, or a worker, waits for what others do.
//!
//! A thread looks whether what it waits for is there, registers in the [`WaitList`] of what that
//! depends on, looks once more, and sleeps. Any thread that changes what others look at wakes the
//! list afterwards, and a thread that was woken looks again: to be woken promises nothing.
//! Interrupts (a request to cancel, a statement's time-out, the end of a session or of its primary)
//! are one question ([`Patience::unless`]), asked before each sleep; what changes the answer wakes
//! the thread ([`Waiter::wake`]), wherever it waits, or is known before ([`set_alarm`]). No thread
//! that can be interrupted sleeps longer than [`BOUND`] without a look.
//!
//! There is one implementation: a thread waits. Threads that register one after another form a
//! group, which sleeps on one word, so waking it is one call of the system. Sessions that are no
//! threads need another [`Waiter`] and another `Group`, and nothing else.
//!
//! # Access protocol
//!
//! | word | written by | means |
//! |---|---|---|
//! | `least` | the holder of the lock `groups` | no registered thread waits for less; [`NOBODY`] while none is registered |
//! | `word` of a group, bit [`WOKEN`] | who takes it from `groups`, under that lock; release, pairs with the acquire of its threads | it is in no list any more |
//! | the other bits | any thread that wakes a [`Waiter`] of the group; release, likewise | the group is to look again; it stays in its list |
//!
//! A waiter lowers `least` and looks at its condition again; a thread that wakes changes the
//! condition and looks at `least`. A SeqCst fence stands between the two steps on both sides, so
//! one of the two sees the other (Dekker). Before it looks at its interrupts, a waiter notes its
//! group under the lock of its [`Waiter`] and reads the group's word; who interrupts says so, then
//! takes that lock and changes the word. So the waiter sees the interrupt, or does not fall asleep
//! on the word that it has read. While nobody waits for what has come, waking costs a fence and a
//! load. A thread that was woken needs no lock to leave.

use std::{
    cell::Cell,
    convert::Infallible,
    time::{Duration, Instant},
};

#[cfg(loom)]
use loom::thread_local;
#[cfg(not(loom))]
use rustix::thread::futex;

use crate::sync::{Arc, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// A thread that can be interrupted sleeps no longer before it looks again, should nobody wake it.
pub const BOUND: Duration = Duration::from_secs(5);

/// The most threads that are woken together. A larger number makes a wake cheaper, and wakes more
/// threads that wait for something later.
const TOGETHER: usize = 64;
/// `least` of an empty list.
const NOBODY: u64 = u64::MAX;
/// The most that can be waited for: all that is registered is at or below.
const ALL: u64 = NOBODY - 1;
/// The bit of a group's word that says that its list has let it go.
const WOKEN: u32 = 1;

std::thread_local! {
    static ALARM: Cell<Option<Instant>> = const { Cell::new(None) };
}
thread_local! {
    static OWN: Waiter = Waiter(Arc::new(Mutex::new(None)));
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
pub struct Waiter(Arc<Mutex<Option<Arc<Group>>>>);

impl Waiter {
    /// The calling thread.
    pub fn current() -> Self {
        OWN.with(Self::clone)
    }

    /// Has its wait, or the next one, look at its interrupts and at its condition: for the thread
    /// that has changed what they say. Never waits for it.
    pub fn wake(&self) {
        let group = self.group().clone();
        if let Some(group) = group {
            // Release: pairs with the acquire in `wait_registered`.
            group.word.fetch_add(WOKEN << 1, Ordering::Release);
            group.wake();
        }
    }

    fn group(&self) -> MutexGuard<'_, Option<Arc<Group>>> {
        self.0.lock().expect("no code panics under this mutex")
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
    longest: Option<Duration>,
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
        Self { deadline: None, interrupted: None, longest: None }
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
        Patience { interrupted: Some(interrupted), ..self }.looking_every(BOUND)
    }

    /// And looks again after each `period`: where something is looked for that nobody wakes for.
    #[must_use]
    pub fn looking_every(self, period: Duration) -> Self {
        Self { longest: self.longest.into_iter().chain([period]).min(), ..self }
    }

    /// Whether the caller no longer wants to wait.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(|interrupted| interrupted())
    }

    /// How long to sleep before the next look, if not until a wake; an error at the end of the
    /// patience.
    fn rest(&self) -> Result<Option<Duration>, WaitError> {
        if self.deadline.is_none() && self.interrupted.is_none() {
            return Ok(self.longest);
        }
        let now = Instant::now();
        if self.is_interrupted() {
            return Err(WaitError::Interrupted);
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(WaitError::Deadline);
        }
        // An alarm that had rung by then was seen just now, by a later look at the clock.
        let alarm = ALARM.get().filter(|at| self.interrupted.is_some() && *at > now);
        let until = self.deadline.into_iter().chain(alarm).map(|until| until - now);
        Ok(until.chain(self.longest).min())
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

/// Does nothing until the patience is at its end. Returns what ended it.
pub fn sleep(patience: Patience<'_>) -> WaitError {
    let Err(ended) = WaitList::default().until(patience, || None::<Infallible>);
    ended
}

/// Blocks until `look` finds something, for what nobody wakes for: it is asked again after each
/// `period`. Say why at the constant that is the period.
///
/// # Errors
/// What ended the patience.
pub fn poll<T>(period: Duration, patience: Patience<'_>, look: impl FnMut() -> Option<T>) -> Result<T, WaitError> {
    WaitList::default().until(patience.looking_every(period), look)
}

/// Threads that sleep on one word.
#[derive(Debug)]
struct Group {
    word: AtomicU32,
    #[cfg(loom)]
    sleepers: (Mutex<()>, crate::sync::Condvar),
}

#[cfg(not(loom))]
impl Group {
    fn new() -> Arc<Self> {
        Arc::new(Self { word: AtomicU32::new(0) })
    }

    /// Sleeps unless the word has changed, until it does; for so long at most, or less.
    fn sleep(&self, seen: u32, longest: Option<Duration>) {
        let longest = longest.map(|longest| futex::Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        });
        // Woken, timed out or interrupted by a signal: its caller looks.
        let _ = futex::wait(&self.word, futex::Flags::PRIVATE, seen, longest.as_ref());
    }

    /// Wakes all who sleep here, after the word was changed.
    fn wake(&self) {
        // It cannot fail: the word is there.
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, i32::MAX as u32);
    }
}

/// loom has neither futexes nor a clock: under it nothing but a wake ends a sleep.
#[cfg(loom)]
impl Group {
    fn new() -> Arc<Self> {
        let sleepers = (Mutex::new(()), crate::sync::Condvar::new());
        Arc::new(Self { word: AtomicU32::new(0), sleepers })
    }

    fn sleep(&self, seen: u32, _longest: Option<Duration>) {
        let mut guard = self.sleepers.0.lock().unwrap();
        while self.word.load(Ordering::SeqCst) == seen {
            guard = self.sleepers.1.wait(guard).unwrap();
        }
    }

    fn wake(&self) {
        drop(self.sleepers.0.lock().unwrap());
        self.sleepers.1.notify_all();
    }
}

/// A group in a list.
#[derive(Debug)]
struct Waiting {
    /// None of it waits for less: it is woken by all that covers this.
    from: u64,
    members: usize,
    group: Arc<Group>,
}

/// The threads that wait for something to change.
#[derive(Debug)]
pub struct WaitList {
    least: AtomicU64,
    groups: Mutex<Vec<Waiting>>,
}

impl Default for WaitList {
    fn default() -> Self {
        Self { least: AtomicU64::new(NOBODY), groups: Mutex::new(Vec::new()) }
    }
}

impl WaitList {
    /// Has all who wait look again. To be called after the change, best without a lock that their
    /// looks take. While nobody waits, it costs a fence and a load.
    #[inline]
    pub fn wake_all(&self) {
        self.wake_covered(ALL);
    }

    /// The same without the fence, for a change that every transaction makes: a thread that
    /// registers at this moment may be missed. Only where all who wait [look
    /// periodically](Patience::looking_every) besides.
    #[inline]
    pub fn wake_registered(&self) {
        if self.least.load(Ordering::SeqCst) <= ALL {
            self.wake_slowly(ALL);
        }
    }

    /// Has those look again who wait for no more than `by`, and some others.
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
        let mut groups = self.groups();
        let covered: Vec<Waiting> = groups.extract_if(.., |waiting| waiting.from <= by).collect();
        for Waiting { group, .. } in &covered {
            // Release: pairs with the acquire in `wait_registered`.
            group.word.fetch_or(WOKEN, Ordering::Release);
        }
        self.removed(&groups);
        drop(groups);
        covered.iter().for_each(|waiting| waiting.group.wake());
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
        let can_be_interrupted = patience.interrupted.is_some();
        let mut registered = self.register(from, can_be_interrupted);
        loop {
            // Acquire: pairs with the releases of those who change the word.
            let seen = registered.group.word.load(Ordering::Acquire);
            // Partner of the fence in `wake_covered`.
            fence(Ordering::SeqCst);
            if let Some(found) = look() {
                return Ok(found);
            }
            let longest = patience.rest()?;
            match seen & WOKEN {
                0 => registered.group.sleep(seen, longest),
                _ => registered = self.register(from, can_be_interrupted),
            }
        }
    }

    fn register(&self, from: u64, can_be_interrupted: bool) -> Registered<'_> {
        let from = from.min(ALL);
        let mut groups = self.groups();
        let group = match groups.last_mut().filter(|waiting| waiting.members < TOGETHER) {
            Some(waiting) => {
                waiting.members += 1;
                waiting.from = waiting.from.min(from);
                Arc::clone(&waiting.group)
            }
            None => {
                let group = Group::new();
                groups.push(Waiting { from, members: 1, group: Arc::clone(&group) });
                group
            }
        };
        self.least.fetch_min(from, Ordering::SeqCst);
        drop(groups);
        if can_be_interrupted {
            OWN.with(|own| *own.group() = Some(Arc::clone(&group)));
        }
        Registered { list: self, group }
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.groups.lock().expect("no code panics under this mutex")
    }

    /// Some have left, and these are the others.
    fn removed(&self, groups: &[Waiting]) {
        let least = groups.iter().map(|waiting| waiting.from).min().unwrap_or(NOBODY);
        self.least.store(least, Ordering::SeqCst);
    }
}

/// A thread's place in a list, left when this is dropped.
struct Registered<'l> {
    list: &'l WaitList,
    group: Arc<Group>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // Relaxed: whether it is in the list is looked at under the lock.
        if self.group.word.load(Ordering::Relaxed) & WOKEN != 0 {
            return;
        }
        let mut groups = self.list.groups();
        if let Some(at) = groups.iter().position(|waiting| Arc::ptr_eq(&waiting.group, &self.group)) {
            groups[at].members -= 1;
            if groups[at].members == 0 {
                groups.remove(at);
            }
            self.list.removed(&groups);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

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
            assert!(list.groups().is_empty() && list.least.load(Ordering::SeqCst) == NOBODY);
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
            assert!(shared.0.groups().is_empty());
        });
    }
}
