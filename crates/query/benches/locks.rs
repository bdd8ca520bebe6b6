//! What a writer pays for the lock on its table.
//!
//!     cargo bench -p freshet-query --bench locks
//!
//! Nanoseconds: of a lock that is taken and released, of one that is held already, and of a
//! transaction that locks three tables; by one thread, and by two at once on the same tables. The
//! median over the rounds.

use std::{hint::black_box, sync::Arc, time::Instant};

use freshet_query::{
    locks::{LockManager, LockMode, Patience},
    schema::FIRST_DATABASE,
};

const ROUNDS: usize = 9;
const OPERATIONS: u32 = 1_000_000;

fn measure(manager: &Arc<LockManager>, number: usize, tables: &[u32], again: u32) -> f64 {
    let locks = manager.session(number, FIRST_DATABASE);
    let patience = Patience { deadline: None, interrupted: &|| Ok(()) };
    let begun = Instant::now();
    for _ in 0..OPERATIONS {
        for table in tables {
            for _ in 0..=again {
                let planned = locks.weak(black_box(*table), LockMode::RowExclusive, 1, patience);
                assert!(matches!(planned, Ok(freshet_query::locks::Planned::Current)));
            }
        }
        locks.release();
    }
    begun.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let cases: [(&str, &[u32], u32); 3] =
        [("one table", &[1], 0), ("one table, asked for ten times", &[1], 9), ("three tables", &[1, 2, 3], 0)];
    for (name, tables, again) in cases {
        for threads in [1, 2] {
            let figures = (0..ROUNDS).map(|_| {
                let manager = LockManager::new(None);
                std::thread::scope(|scope| {
                    let running: Vec<_> = (0..threads)
                        .map(|number| {
                            let manager = &manager;
                            scope.spawn(move || measure(manager, number, tables, again))
                        })
                        .collect();
                    let times = running.into_iter().map(|thread| thread.join().expect("no thread panics"));
                    times.fold(0.0, f64::max)
                })
            });
            println!("{name:32} {threads} thread(s) {:7.1} ns", median(figures.collect()));
        }
    }
}
