//! What EXPLAIN ANALYZE measures of this crate's own plans.
//!
//! What runs a plan tells a [`Probe`] what it does. Statements that are not measured have one that
//! is nothing, `()`: their code is compiled without it.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use freshet_sql::explain::Measured;

/// A step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The outermost one, whichever that is.
    Top,
    /// Rows that are made of nothing but expressions.
    Result,
    /// Loops over several tables.
    Join,
    /// Groups, and what is computed for them.
    Aggregate,
    /// FOR UPDATE and its like.
    Lock,
    /// DISTINCT
    Unique,
    /// ORDER BY
    Sort,
    /// LIMIT and OFFSET
    Limit,
    /// The loop of this number over a table, the outermost being 0.
    Scan(usize),
}

/// Who is told what happens while a plan runs.
pub trait Probe: Copy {
    /// A step begins, once more.
    #[inline]
    fn begins(self, _: Place) {}

    /// A step has given rows.
    #[inline]
    fn rows(self, _: Place, _: u64) {}

    /// Runs `work`, attributing its time to `place` minus nested steps.
    #[inline]
    fn within<T>(self, _: Place, work: impl FnOnce() -> T) -> T {
        work()
    }

    /// Runs the subquery of this number, which comes before the statement.
    #[inline]
    fn first<T>(self, _: usize, work: impl FnOnce(Self) -> T) -> T {
        work(self)
    }
}

impl Probe for () {}

/// What a step took by now.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    rows: u64,
    loops: u64,
    time: Duration,
}

/// What the steps of a plan took.
#[derive(Debug)]
pub struct Measures {
    taken: RefCell<Vec<Taken>>,
    /// The step that is at work, and since when.
    now: Cell<(Place, Instant)>,
    /// Those of the subqueries that are run before.
    firsts: Vec<Measures>,
}

impl Place {
    fn number(self) -> usize {
        match self {
            Self::Top => 0,
            Self::Result => 1,
            Self::Join => 2,
            Self::Aggregate => 3,
            Self::Lock => 4,
            Self::Unique => 5,
            Self::Sort => 6,
            Self::Limit => 7,
            Self::Scan(number) => 8 + number,
        }
    }
}

impl Measures {
    /// For a plan with this many subqueries that are run before it. Its time begins now.
    pub fn new(firsts: usize) -> Self {
        let firsts = (0..firsts).map(|_| Self::new(0)).collect();
        Self { taken: RefCell::default(), now: Cell::new((Place::Top, Instant::now())), firsts }
    }

    /// Those of a subquery that was run before.
    pub fn first(&self, number: usize) -> Option<&Self> {
        self.firsts.get(number)
    }

    /// The statement has ended.
    pub fn finish(&self) {
        self.turn_to(Place::Top);
    }

    /// What a step took; the outermost one's time is with it in [`Place::Top`].
    pub fn of(&self, place: Place) -> Measured {
        let taken = self.taken.borrow().get(place.number()).copied().unwrap_or_default();
        Measured { rows: taken.rows, loops: Some(taken.loops), own_time: Some(taken.time.as_secs_f64() * 1e3) }
    }

    fn change(&self, place: Place, change: impl FnOnce(&mut Taken)) {
        let mut taken = self.taken.borrow_mut();
        let number = place.number();
        if taken.len() <= number {
            taken.resize(number + 1, Taken::default());
        }
        change(&mut taken[number]);
    }

    /// Another step is at work from now on. Returns which was before.
    fn turn_to(&self, place: Place) -> Place {
        let now = Instant::now();
        let (before, since) = self.now.replace((place, now));
        self.change(before, |taken| taken.time += now.saturating_duration_since(since));
        before
    }
}

impl Probe for &Measures {
    fn begins(self, place: Place) {
        self.change(place, |taken| taken.loops += 1);
    }

    fn rows(self, place: Place, count: u64) {
        self.change(place, |taken| taken.rows += count);
    }

    fn within<T>(self, place: Place, work: impl FnOnce() -> T) -> T {
        let before = self.turn_to(place);
        let done = work();
        self.turn_to(before);
        done
    }

    fn first<T>(self, number: usize, work: impl FnOnce(Self) -> T) -> T {
        let first = self.firsts.get(number).unwrap_or(self);
        first.now.set((Place::Top, Instant::now()));
        let done = work(first);
        first.finish();
        // Its time is not the statement's.
        self.now.set((Place::Top, Instant::now()));
        done
    }
}
