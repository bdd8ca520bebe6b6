//! Those who have connected and not said yet who they are: not many at once, and none of them keeps
//! others out.
//!
//! A door has a limited number of places for strangers. A stranger that comes when all are taken
//! gets the place of the stranger that has had its place for longest, once that one has had a fair
//! time. Until then it waits before the door, in the order of arrival. So a newcomer that says at
//! once who it is gets through, however many others say nothing.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::wait::{Patience, WaitList};

/// The strangers at one door. `T` is what ends a stranger's connection.
pub struct Strangers<T> {
    places: usize,
    fair: Duration,
    inner: Mutex<Inner<T>>,
    /// A place is free, or the door is closed.
    changed: WaitList,
}

struct Inner<T> {
    /// In the order in which they came.
    here: VecDeque<(u64, Instant, T)>,
    next: u64,
    closed: bool,
}

/// A stranger's place; dropping it frees the place.
pub struct Place<T> {
    door: Arc<Strangers<T>>,
    number: u64,
}

impl<T> fmt::Debug for Strangers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Strangers({} of {})", self.lock().here.len(), self.places)
    }
}

impl<T> fmt::Debug for Place<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.number)
    }
}

impl<T> Strangers<T> {
    /// A door with `places` for strangers, at least one; no stranger loses its place before it has
    /// had it for the time `fair`.
    pub fn new(places: usize, fair: Duration) -> Arc<Self> {
        let inner = Inner { here: VecDeque::new(), next: 0, closed: false };
        Arc::new(Self { places: places.max(1), fair, inner: Mutex::new(inner), changed: WaitList::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a stranger in, if need be in the place of another, who is returned: the caller ends his
    /// connection. Blocks while all others have come too recently, at most for the fair time.
    /// `None` when the door is closed.
    pub fn admit(self: &Arc<Self>, stranger: T) -> Option<(Place<T>, Option<T>)> {
        let (mut inner, mut gone) = (self.lock(), None);
        while !inner.closed && inner.here.len() >= self.places {
            // When the oldest has had a fair time; it may have gone before.
            let fair = inner.here.front().map(|(_, since, _)| *since + self.fair);
            if fair.is_none_or(|fair| Instant::now() >= fair) {
                gone = inner.here.pop_front().map(|(_, _, stranger)| stranger);
                continue;
            }
            drop(inner);
            let look = || Some(self.lock()).filter(|inner| inner.closed || inner.here.len() < self.places);
            inner = self.changed.until(Patience::endless().until(fair), look).unwrap_or_else(|_| self.lock());
        }
        if inner.closed {
            return None;
        }
        let number = inner.next;
        inner.next += 1;
        inner.here.push_back((number, Instant::now(), stranger));
        Some((Place { door: Arc::clone(self), number }, gone))
    }

    /// Lets no stranger in any more, and returns those that are here.
    pub fn close(&self) -> Vec<T> {
        let mut inner = self.lock();
        inner.closed = true;
        let here = std::mem::take(&mut inner.here);
        drop(inner);
        self.changed.wake_all();
        here.into_iter().map(|(_, _, stranger)| stranger).collect()
    }

    /// How many connections of strangers there are now.
    pub fn count(&self) -> usize {
        self.lock().here.len()
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        let mut inner = self.door.lock();
        let before = inner.here.len();
        inner.here.retain(|(number, ..)| *number != self.number);
        let left = inner.here.len() < before;
        drop(inner);
        if left {
            self.door.changed.wake_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let door = Strangers::new(2, Duration::ZERO);
        let (_first, gone) = door.admit(1).unwrap();
        assert_eq!(gone, None);
        let (second, gone) = door.admit(2).unwrap();
        assert_eq!(gone, None);
        let (_third, gone) = door.admit(3).unwrap();
        assert_eq!(gone, Some(1));
        drop(second);
        let (_fourth, gone) = door.admit(4).unwrap();
        assert_eq!((gone, door.count()), (None, 2));
        assert_eq!(door.close(), [3, 4]);
        assert!(door.admit(5).is_none());
    }

    #[test]
    fn who_was_sent_away_frees_no_place_again() {
        let door = Strangers::new(1, Duration::ZERO);
        let (first, _) = door.admit(1).unwrap();
        let (_second, gone) = door.admit(2).unwrap();
        assert_eq!(gone, Some(1));
        drop(first);
        assert_eq!(door.count(), 1);
    }

    #[test]
    fn a_newcomer_waits_until_somebody_leaves() {
        let door = Strangers::new(1, Duration::from_secs(3600));
        let (first, _) = door.admit(1).unwrap();
        let waiting = std::thread::spawn({
            let door = Arc::clone(&door);
            move || door.admit(2).unwrap().1
        });
        drop(first);
        assert_eq!(waiting.join().unwrap(), None);
    }
}
