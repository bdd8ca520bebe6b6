//! What the work of one session has taken from the allocator, whatever for.
//!
//! A [`Pool`] counts what is asked of it: what is known to grow. An account counts what was
//! really given to the session's thread since its transaction began, beyond what its pool has
//! counted in the same time: values that functions are making, plans, what a transaction notes of
//! what it reads and writes. That is taken from the same pool, as soon as the work looks; it looks
//! whenever it asks whether the statement is to end, and whenever it has taken [`EVERY`] bytes.
//! What takes much at once asks before ([`Account::make_room`]).

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicUsize, Ordering},
};

use freshet_base::memory;

use crate::{
    SqlError,
    memory::{Pool, Reservation},
};

/// After this many bytes a session's work looks again.
pub(crate) const EVERY: i64 = 256 << 10;

/// A session has this many without asking for them.
const FREE: i64 = 128 << 10;

/// A message that has had more gives back what the allocator keeps.
const MUCH: i64 = 512 << 10;

/// It asks for this many at a time.
const STEP: usize = 64 << 10;

/// The account of a session. One thread at a time works on it, so its numbers need no order.
#[derive(Debug)]
pub struct Account {
    pool: Arc<Pool>,
    /// What was given beyond what the pool has counted, and what is promised.
    beyond: Reservation,
    /// What was given to the transaction in its earlier messages.
    earlier: AtomicI64,
    /// What the pool had counted when it began.
    before: AtomicUsize,
    promised: AtomicUsize,
    /// The most that a message was seen to have at once.
    most: AtomicI64,
}

impl Account {
    /// The account of a session with this memory.
    pub fn of(pool: &Arc<Pool>) -> Arc<Self> {
        Arc::new(Self {
            pool: Arc::clone(pool),
            beyond: pool.reserve(),
            earlier: AtomicI64::new(0),
            before: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            most: AtomicI64::new(0),
        })
    }

    /// Nothing of earlier messages is the session's own any more: no transaction is open.
    pub fn begin(&self) {
        self.earlier.store(0, Ordering::Relaxed);
        self.before.store(self.counted(), Ordering::Relaxed);
    }

    /// What the pool has counted by itself.
    fn counted(&self) -> usize {
        self.pool.used().saturating_sub(self.beyond.bytes())
    }

    /// What is to be taken beyond that, of a thread that had `start` bytes when the message began.
    fn wanted(&self, start: i64) -> usize {
        let given = self.earlier.load(Ordering::Relaxed) + memory::of_this_thread() - start;
        self.most.fetch_max(given, Ordering::Relaxed);
        if given <= FREE {
            return 0;
        }
        let counted = self.counted() as i64 - self.before.load(Ordering::Relaxed) as i64;
        usize::try_from(given - counted - FREE).unwrap_or(0).next_multiple_of(STEP)
    }

    /// What was promised was given in the meantime, or will not be.
    fn keep_promises(&self) {
        let promised = self.promised.swap(0, Ordering::Relaxed);
        if promised > 0 {
            memory::promise(-(promised as i64));
        }
    }

    /// Takes what was given to a thread that had `start` bytes when its message began.
    ///
    /// # Errors
    /// 53200.
    pub(crate) fn look(&self, start: i64) -> Result<(), SqlError> {
        self.keep_promises();
        let wanted = self.wanted(start);
        if wanted == self.beyond.bytes() { Ok(()) } else { self.beyond.set(wanted) }
    }

    /// Takes bytes that are about to be allocated at once, in the place of those for which room was
    /// made before: these are there by now, or gone.
    ///
    /// # Errors
    /// 53200.
    pub(crate) fn make_room(&self, start: i64, bytes: usize) -> Result<(), SqlError> {
        self.look(start)?;
        self.beyond.take(bytes)?;
        self.promised.fetch_add(bytes, Ordering::Relaxed);
        memory::promise(bytes as i64);
        Ok(())
    }

    /// A message ends whose thread had `start` bytes when it began: takes what is left of it,
    /// however much.
    pub(crate) fn end(&self, start: i64) {
        self.keep_promises();
        let wanted = self.wanted(start);
        if wanted != self.beyond.bytes() {
            self.beyond.force(wanted);
        }
        self.earlier.fetch_add(memory::of_this_thread() - start, Ordering::Relaxed);
        let most = self.most.swap(0, Ordering::Relaxed);
        if most > MUCH {
            memory::purge();
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.keep_promises();
    }
}
