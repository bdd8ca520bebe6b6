//! Batches that go to several mirrors: the first ship thread that comes to one makes it, and the
//! others take it (Active-Memory, listing 1).
//!
//! A mirror that is a member has exactly the log up to where its next batch begins. So what differs
//! in one's slots differs in the others'.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use freshet_base::{
    Lsn,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};
use freshet_mirror::Batch;

/// A thread that is slower than this to make a batch is not waited for.
const PATIENCE: Duration = Duration::from_millis(10);
/// This number of batches is kept for those that come later.
const KEPT: usize = 8;
/// This number is kept to be filled again.
const SPARE: usize = 8;
/// Neither those nor these have more bytes together, unless the newest one alone has.
const MOST_BYTES: usize = 64 << 20;

/// The newest batches of one feeder.
#[derive(Default)]
pub(super) struct Batches {
    recent: Mutex<Recent>,
    changed: Condvar,
}

#[derive(Default)]
struct Recent {
    /// By where they begin; none while one is made.
    batches: VecDeque<(Lsn, Option<Arc<Batch>>)>,
    spare: Vec<Batch>,
}

/// What is to be done for a batch.
pub(super) enum Taken {
    /// It was made.
    Made(Arc<Batch>),
    /// The caller makes it, up to here, and says so ([`Batches::made`]).
    First(Lsn),
    /// The caller makes one for itself, up to here.
    Alone(Lsn),
}

impl Batches {
    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().expect("no code panics under this mutex")
    }

    /// The batch that begins at `from`, of no more bytes than `longest`. Blocks for a moment if
    /// another thread is making it. One that the caller makes ends at `to`, or where the next one
    /// begins that others have made: then all have the same again.
    pub fn take(&self, from: Lsn, to: Lsn, longest: u64) -> Taken {
        let deadline = Instant::now() + PATIENCE;
        let mut recent = self.recent();
        loop {
            let found = recent.batches.iter().find(|(begin, _)| *begin == from);
            let left = deadline.saturating_duration_since(Instant::now());
            match found {
                Some((_, Some(batch))) if batch.extent().to.since(from) <= longest => {
                    return Taken::Made(Arc::clone(batch));
                }
                Some((_, None)) if !left.is_zero() => {
                    recent = self.changed.wait_timeout(recent, left).expect("no code panics under this mutex").0;
                }
                Some(_) => return Taken::Alone(recent.next_after(from, to)),
                None => {
                    let to = recent.next_after(from, to);
                    assert!(from < to, "a batch without bytes is to be made at {from}");
                    recent.begin(from);
                    return Taken::First(to);
                }
            }
        }
    }

    /// The batch was made that begins at `from`.
    pub fn made(&self, from: Lsn, batch: &Arc<Batch>) {
        if let Some((_, place)) = self.recent().batches.iter_mut().find(|(begin, _)| *begin == from) {
            *place = Some(Arc::clone(batch));
        }
        self.changed.notify_all();
    }

    /// How many bytes are kept, for those that come later or to be filled again. Those that are on
    /// their way to mirrors are not counted.
    pub fn bytes(&self) -> u64 {
        let recent = self.recent();
        (recent.kept_bytes() + recent.spare_bytes()) as u64
    }

    /// One to be filled.
    pub fn blank(&self) -> Batch {
        self.recent().spare.pop().unwrap_or_default()
    }

    /// It is not needed any more.
    pub fn give_back(&self, batch: Arc<Batch>) {
        self.recent().give_back(batch);
    }
}

impl Recent {
    /// Where the first batch behind `from` begins, if that is before `to`.
    fn next_after(&self, from: Lsn, to: Lsn) -> Lsn {
        let begins = self.batches.iter().map(|(begin, _)| *begin).filter(|begin| *begin > from);
        begins.min().map_or(to, |begin| begin.min(to))
    }

    fn begin(&mut self, from: Lsn) {
        self.batches.push_back((from, None));
        while self.batches.len() > 1
            && (self.batches.len() > KEPT || self.kept_bytes() > MOST_BYTES)
            && let Some((_, oldest)) = self.batches.pop_front()
        {
            oldest.into_iter().for_each(|batch| self.give_back(batch));
        }
    }

    fn give_back(&mut self, batch: Arc<Batch>) {
        if self.spare.len() < SPARE && self.spare_bytes() + batch.held_bytes() <= MOST_BYTES {
            self.spare.extend(Arc::into_inner(batch));
        }
    }

    fn kept_bytes(&self) -> usize {
        self.batches.iter().filter_map(|(_, batch)| batch.as_ref()).map(|batch| batch.held_bytes()).sum()
    }

    fn spare_bytes(&self) -> usize {
        self.spare.iter().map(Batch::held_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_level_get_the_same_batch() {
        let (batches, at) = (Batches::default(), Lsn);
        let made = |from| batches.made(at(from), &Arc::default());
        assert!(matches!(batches.take(at(0), at(9), 100), Taken::First(to) if to == at(9)));
        // The first one is slow.
        assert!(matches!(batches.take(at(0), at(5), 100), Taken::Alone(to) if to == at(5)));
        made(0);
        assert!(matches!(batches.take(at(0), at(9), u64::MAX), Taken::Made(_)));
        // Out of step, and in step again.
        assert!(matches!(batches.take(at(5), at(30), 100), Taken::First(to) if to == at(30)));
        assert!(matches!(batches.take(at(9), at(20), 100), Taken::First(to) if to == at(20)));
        assert!(matches!(batches.take(at(4), at(20), 100), Taken::First(to) if to == at(5)));
        assert!(matches!(batches.take(at(7), at(20), 100), Taken::First(to) if to == at(9)));
        for from in 100..100 + KEPT as u64 {
            assert!(matches!(batches.take(at(from), at(from + 1), 100), Taken::First(_)));
            made(from);
        }
        assert!(matches!(batches.take(at(9), at(20), 100), Taken::First(_)), "it was forgotten");
        assert!(batches.recent().batches.len() == KEPT && batches.recent().spare.len() <= SPARE);
    }

    /// As many as there may be would be half a gibibyte.
    #[test]
    fn long_ones_are_not_kept() {
        let (batches, long) = (Batches::default(), 32 << 20);
        for from in 0..2 * KEPT as u64 {
            assert!(matches!(batches.take(Lsn(from), Lsn(from + 1), 100), Taken::First(_)));
            let mut batch = batches.blank();
            batch.room(long);
            batches.made(Lsn(from), &Arc::new(batch));
            assert!(batches.bytes() <= 2 * MOST_BYTES as u64 + long as u64, "{}", batches.bytes());
        }
        assert!(batches.bytes() >= long as u64, "the newest is");
    }
}
