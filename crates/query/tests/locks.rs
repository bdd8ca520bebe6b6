//! Locks on tables: what excludes what, who waits, and that every wait ends.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use freshet_query::{
    locks::{LockManager, LockMode, Patience, Planned, TableLocks},
    schema::FIRST_DATABASE as DATABASE,
};
use freshet_sql::{SqlError, SqlState};

fn patient() -> Patience<'static> {
    Patience { deadline: None, interrupted: &|| Ok(()) }
}

fn deadline(milliseconds: u64) -> Patience<'static> {
    Patience { deadline: Some(Instant::now() + Duration::from_millis(milliseconds)), interrupted: &|| Ok(()) }
}

fn code(result: Result<(), SqlError>) -> String {
    result.map_or_else(|error| error.state.code().to_owned(), |()| "fine".to_owned())
}

/// Blocks until somebody waits for a lock.
fn until_wanted(manager: &LockManager) {
    while !manager.is_wanted() {
        std::thread::yield_now();
    }
}

#[test]
fn modes_exclude_one_another_as_documented() {
    // PostgreSQL's table: for each mode, the first of those that conflict with it and all stronger
    // ones, with one exception.
    use LockMode::{
        AccessExclusive, AccessShare, Exclusive, RowExclusive, RowShare, Share, ShareRowExclusive, ShareUpdateExclusive,
    };
    let conflicting: [(LockMode, &[LockMode]); 8] = [
        (AccessShare, &[AccessExclusive]),
        (RowShare, &[Exclusive, AccessExclusive]),
        (RowExclusive, &[Share, ShareRowExclusive, Exclusive, AccessExclusive]),
        (ShareUpdateExclusive, &[ShareUpdateExclusive, Share, ShareRowExclusive, Exclusive, AccessExclusive]),
        (Share, &[RowExclusive, ShareUpdateExclusive, ShareRowExclusive, Exclusive, AccessExclusive]),
        (
            ShareRowExclusive,
            &[RowExclusive, ShareUpdateExclusive, Share, ShareRowExclusive, Exclusive, AccessExclusive],
        ),
        (
            Exclusive,
            &[RowShare, RowExclusive, ShareUpdateExclusive, Share, ShareRowExclusive, Exclusive, AccessExclusive],
        ),
        (AccessExclusive, LockMode::ALL),
    ];
    for (mode, others) in conflicting {
        for other in LockMode::ALL {
            let manager = LockManager::new(None);
            let (one, two) = (manager.session(0, DATABASE), manager.session(1, DATABASE));
            assert!(one.try_lock(7, mode));
            assert_eq!(!two.try_lock(7, *other), others.contains(other), "{mode:?} and {other:?}");
            assert!(two.try_lock(8, *other), "another table");
            // One's own locks never stand in the way.
            one.release();
            two.release();
            assert!(one.try_lock(7, mode) && one.try_lock(7, *other));
        }
    }
}

#[test]
fn a_lock_is_waited_for_until_it_is_released_or_patience_ends() {
    let manager = LockManager::new(None);
    let holder = manager.session(0, DATABASE);
    assert_eq!(holder.weak(1, LockMode::RowExclusive, 0, patient()).unwrap(), Planned::Current);
    let changer = manager.session(1, DATABASE);
    assert_eq!(code(changer.lock(1, LockMode::AccessExclusive, deadline(20))), "55P03");
    let asked = std::cell::Cell::new(0);
    let interrupted = || {
        asked.set(asked.get() + 1);
        if asked.get() < 3 { Ok(()) } else { Err(SqlError::new(SqlState::QUERY_CANCELED, "enough")) }
    };
    let patience = Patience { deadline: None, interrupted: &interrupted };
    assert_eq!(code(changer.lock(1, LockMode::AccessExclusive, patience)), "57014");
    // Who has given up stands in nobody's way.
    let writer = manager.session(2, DATABASE);
    assert_eq!(writer.weak(1, LockMode::RowExclusive, 0, patient()).unwrap(), Planned::Current);
    writer.release();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let changer = manager.session(3, DATABASE);
            changer.lock(1, LockMode::AccessExclusive, patient()).unwrap();
        });
        until_wanted(&manager);
        // Later sessions wait behind it, but not one that has the lock already.
        assert_eq!(code(writer.weak(1, LockMode::RowExclusive, 0, deadline(20)).map(drop)), "55P03");
        assert_eq!(holder.weak(1, LockMode::RowExclusive, 0, patient()).unwrap(), Planned::Current);
        holder.release();
        waiting.join().unwrap();
    });
    // A session that ends takes its locks with it.
    assert!(writer.try_lock(1, LockMode::AccessExclusive));
}

#[test]
fn writers_learn_that_a_table_has_changed() {
    let manager = LockManager::new(None);
    let (writer, changer) = (manager.session(0, DATABASE), manager.session(1, DATABASE));
    changer.lock(1, LockMode::AccessExclusive, patient()).unwrap();
    manager.note_change(DATABASE, &[1], 5);
    changer.release();
    assert_eq!(writer.weak(1, LockMode::RowExclusive, 4, patient()).unwrap(), Planned::Outdated);
    // It has the lock, and plans again.
    assert_eq!(writer.weak(1, LockMode::RowExclusive, 5, patient()).unwrap(), Planned::Current);
    assert_eq!(writer.weak(2, LockMode::RowExclusive, 4, patient()).unwrap(), Planned::Current, "another table");
    let late = manager.session(2, DATABASE);
    assert_eq!(late.weak(1, LockMode::RowExclusive, 4, patient()).unwrap(), Planned::Outdated);
    assert_eq!(late.weak(1, LockMode::RowExclusive, 9, patient()).unwrap(), Planned::Current);
}

#[test]
fn a_savepoint_releases_what_came_after_it() {
    let manager = LockManager::new(None);
    let (one, two) = (manager.session(0, DATABASE), manager.session(1, DATABASE));
    one.lock(1, LockMode::AccessExclusive, patient()).unwrap();
    let mark = one.mark();
    assert_eq!(one.weak(2, LockMode::RowExclusive, 0, patient()).unwrap(), Planned::Current);
    one.lock(3, LockMode::AccessExclusive, patient()).unwrap();
    one.lock(1, LockMode::Share, patient()).unwrap();
    one.release_since(mark);
    assert!(two.try_lock(2, LockMode::AccessExclusive) && two.try_lock(3, LockMode::AccessExclusive));
    assert!(!two.try_lock(1, LockMode::AccessShare));
    one.release();
    assert!(two.try_lock(1, LockMode::AccessShare));
}

#[test]
fn a_strong_lock_is_not_starved_by_weak_ones() {
    let manager = LockManager::new(None);
    let over = AtomicBool::new(false);
    let writes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (manager, over, writes) = (&manager, &over, &writes);
            scope.spawn(move || {
                let locks = manager.session(number, DATABASE);
                while !over.load(Ordering::SeqCst) {
                    assert_eq!(locks.weak(1, LockMode::RowExclusive, u64::MAX, patient()).unwrap(), Planned::Current);
                    writes.fetch_add(1, Ordering::SeqCst);
                    // There is no moment without a lock but for strong ones that are waited for.
                    std::thread::yield_now();
                    locks.release();
                }
            });
        }
        let changer = manager.session(9, DATABASE);
        for _ in 0..200 {
            changer.lock(1, LockMode::AccessExclusive, patient()).unwrap();
            changer.release();
        }
        over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn one_of_the_sessions_that_wait_for_one_another_gives_up() {
    for count in [2, 3, 5] {
        let manager = LockManager::new(None);
        let barrier = Barrier::new(count);
        let refused = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for number in 0..count {
                let (manager, barrier, refused) = (&manager, &barrier, &refused);
                scope.spawn(move || {
                    let locks = manager.session(number, DATABASE);
                    locks.lock(number as u32, LockMode::Exclusive, patient()).unwrap();
                    barrier.wait();
                    let next = ((number + 1) % count) as u32;
                    if let Err(error) = locks.lock(next, LockMode::Exclusive, patient()) {
                        assert_eq!(error.state, SqlState::DEADLOCK_DETECTED);
                        assert!(error.detail.as_deref().unwrap_or_default().contains("session"));
                        refused.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(refused.load(Ordering::SeqCst), 1, "one of {count} gives up");
    }
}

#[test]
fn two_that_want_more_of_what_they_share_do_not_wait_forever() {
    let manager = LockManager::new(None);
    let barrier = Barrier::new(2);
    let refused = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (manager, barrier, refused) = (&manager, &barrier, &refused);
            scope.spawn(move || {
                let locks = manager.session(number, DATABASE);
                assert_eq!(locks.weak(1, LockMode::RowExclusive, 0, patient()).unwrap(), Planned::Current);
                barrier.wait();
                if locks.lock(1, LockMode::AccessExclusive, patient()).is_err() {
                    refused.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(refused.load(Ordering::SeqCst), 1);
}

/// A generator of numbers that does not have to be good.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What is held of a table, as counted by those who hold it: eight bits for each mode.
struct Shadow(Vec<AtomicU64>);

impl Shadow {
    fn enter(&self, table: u32, mode: LockMode) {
        let before = self.0[table as usize].fetch_add(1 << (8 * mode as u32), Ordering::SeqCst);
        for other in LockMode::ALL {
            let held = before >> (8 * *other as u32) & 0xff;
            assert!(held == 0 || !mode.conflicts_with(*other), "{mode:?} beside {held} of {other:?}");
        }
    }

    fn leave(&self, table: u32, mode: LockMode) {
        self.0[table as usize].fetch_sub(1 << (8 * mode as u32), Ordering::SeqCst);
    }
}

fn storm(locks: &TableLocks, shadow: &Shadow, numbers: &mut Numbers, transactions: usize) -> u64 {
    let mut deadlocks = 0;
    for _ in 0..transactions {
        let mut held: Vec<(u32, LockMode)> = Vec::new();
        for _ in 0..1 + numbers.below(3) {
            let table = numbers.below(4) as u32;
            // One's own modes do not exclude one another, which the shadow does not know.
            if held.iter().any(|(known, _)| *known == table) {
                continue;
            }
            let mode = match numbers.below(4) {
                0 => LockMode::ALL[numbers.below(8) as usize],
                _ => LockMode::RowExclusive,
            };
            let locked = match mode {
                LockMode::RowShare | LockMode::RowExclusive => locks.weak(table, mode, u64::MAX, patient()).map(drop),
                mode => locks.lock(table, mode, patient()),
            };
            match locked {
                Ok(()) => {
                    shadow.enter(table, mode);
                    held.push((table, mode));
                }
                Err(error) => {
                    assert_eq!(error.state, SqlState::DEADLOCK_DETECTED);
                    deadlocks += 1;
                    break;
                }
            }
        }
        if numbers.below(4) == 0 {
            std::thread::yield_now();
        }
        held.iter().for_each(|(table, mode)| shadow.leave(*table, *mode));
        locks.release();
    }
    deadlocks
}

#[test]
fn a_storm_of_locks_keeps_the_rules_and_ends() {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let manager = LockManager::new(None);
    let shadow = Arc::new(Shadow((0..4).map(|_| AtomicU64::new(0)).collect()));
    let deadlocks: u64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..6)
            .map(|number| {
                let (manager, shadow) = (&manager, &shadow);
                scope.spawn(move || {
                    let mut numbers = Numbers((seed ^ (number as u64 + 1) << 40) | 1);
                    let mut deadlocks = 0;
                    for _ in 0..4 {
                        // Sessions come and go.
                        let locks = manager.session(number, DATABASE);
                        deadlocks += storm(&locks, shadow, &mut numbers, 500);
                    }
                    deadlocks
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{deadlocks} deadlocks");
    assert!(!manager.is_wanted());
    assert!(shadow.0.iter().all(|held| held.load(Ordering::SeqCst) == 0));
    let last = manager.session(99, DATABASE);
    assert!((0..4).all(|table| last.try_lock(table, LockMode::AccessExclusive)));
}
