//! Waits end: by a wake, a deadline, an interrupt.

use std::{sync::mpsc::channel, thread::scope};

use super::*;
use crate::{
    Lsn, Watermark,
    sync::{AtomicBool, thread},
};

/// Blocks until a thread waits in `list`.
fn until_registered(list: &WaitList) {
    while list.groups().is_empty() {
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
    assert!(list.groups().is_empty() && list.least.load(Ordering::SeqCst) == NOBODY);
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
        // Once before the sleep, once after it.
        assert!(asked.load(Ordering::SeqCst) <= 2, "{asked:?}");
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

/// Nobody is woken for less than the least that is waited for; who is woken with others waits
/// again.
#[test]
fn those_who_are_not_covered_wait_on() {
    let (mark, looks) = (Watermark::new(Lsn(0)), AtomicU64::new(0));
    let count = || {
        looks.fetch_add(1, Ordering::SeqCst);
        false
    };
    let (mark, count) = (&mark, &count);
    let until_looked = |times| {
        while looks.load(Ordering::SeqCst) < times {
            thread::yield_now();
        }
    };
    let (before, early, late) = scope(|scope| {
        let late = scope.spawn(move || mark.wait(Lsn(50), Patience::endless().unless(count)));
        until_looked(1);
        (1..5).for_each(|at| _ = mark.advance(Lsn(at)));
        let before = looks.load(Ordering::SeqCst);
        let early = scope.spawn(move || mark.wait(Lsn(7), Patience::endless().unless(count)));
        until_looked(2);
        mark.advance(Lsn(7));
        let early = early.join().unwrap();
        // They were in one group.
        until_looked(3);
        mark.advance(Lsn(50));
        (before, early, late.join().unwrap())
    });
    assert_eq!((before, early, late), (1, Ok(Lsn(7)), Ok(Lsn(50))));
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
