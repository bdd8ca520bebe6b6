//! Whether SERIALIZABLE transactions have a serial order, by what each has seen and written: a
//! graph that has no cycle, with an edge where one must come before another (Adya, *Weak
//! Consistency*, 1999: direct serialization graphs).
//!
//! | edge | because |
//! |---|---|
//! | who made version n of a register → who made n + 1 | it was written over |
//! | who wrote what was seen → who saw it | it was seen |
//! | who saw → who wrote what comes next | it was not seen |
//! | who has the smaller LSN → who has the next | under `validation` the order of commits is one |
//!
//! LSNs follow real time, which [`checks`](super::checks) look at: so under `validation` this is
//! strict serializability. Under `ssn` a transaction may come back in time. Transactions of other
//! levels promise neither, and have no place here. Of a journal's range, what is not seen counts as
//! well as what is: no phantom comes by.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
};

use super::{
    checks::{Verdicts, describe},
    history::{Book, Final, Id, Outcome, PER_CLIENT, Seen, Write},
};

/// The check that there is a serial order.
pub(super) const NOT_SERIALIZABLE: &str = "not serializable";

/// This number of rows is looked at that a transaction has not seen, of those there in the end.
const MISSED: usize = 100;

/// Judges the transactions that are there in the end.
pub(super) fn check(book: &Book, shown: &Final, names: &[String], verdicts: &mut Verdicts) {
    let there = |write: &&Write| write.effect.seen.is_some() && shown.journal.contains_key(&write.id);
    let writes: BTreeMap<Id, &Write> = book.writes.iter().filter(there).map(|write| (write.id, write)).collect();
    let graph = Graph::of(&writes, shown, book.in_order);
    if let Some(cycle) = graph.cycle() {
        verdicts.add(NOT_SERIALIZABLE, || {
            let steps = cycle.iter().map(|(id, because)| format!("{}, {because}", describe(writes[id], names)));
            format!(
                "each of these comes before the next, and the last before the first: {:#?}",
                steps.collect::<Vec<_>>()
            )
        });
    }
}

/// Why one transaction must come before another.
#[derive(Clone, Copy)]
enum Because {
    /// A version of a register, which the other has written over.
    Over(i64, i64),
    /// A version that the other has seen.
    Seen(i64, i64),
    /// A version that it has seen, and the other has written over.
    Missed(i64, i64),
    /// A row of it was seen by the other.
    Row,
    /// It has not seen the row of the other.
    NoRow,
    Lsn,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Over(key, version) => {
                write!(f, "whose version {version} of register {key} the next has written over")
            }
            Self::Seen(key, version) => write!(f, "whose version {version} of register {key} the next has seen"),
            Self::Missed(key, version) => {
                write!(f, "which has seen version {version} of register {key}, and the next has written over that")
            }
            Self::Row => f.write_str("whose row the next has seen"),
            Self::NoRow => f.write_str("which has not seen the row of the next"),
            Self::Lsn => f.write_str("whose LSN is the smaller one"),
        }
    }
}

/// The transactions that must come after each, and why.
#[derive(Default)]
struct Graph(BTreeMap<Id, BTreeMap<Id, Because>>);

impl Graph {
    fn of(writes: &BTreeMap<Id, &Write>, shown: &Final, in_order: bool) -> Self {
        let mut graph = Self(writes.keys().map(|id| (*id, BTreeMap::new())).collect());
        let made = |(id, made): (&Id, &Option<(i64, i64)>)| Some(((*made)?, *id));
        let writers: HashMap<(i64, i64), Id> = shown.journal.iter().filter_map(made).collect();
        for ((key, version), id) in &writers {
            let next = writers.get(&(*key, version + 1)).into_iter();
            next.for_each(|next| graph.edge(*id, *next, Because::Over(*key, *version)));
        }
        for (id, write) in writes {
            let Some(seen) = &write.effect.seen else { continue };
            for (key, version) in &seen.registers {
                let (before, next) = (writers.get(&(*key, *version)), writers.get(&(*key, version + 1)));
                before.into_iter().for_each(|before| graph.edge(*before, *id, Because::Seen(*key, *version)));
                next.into_iter().for_each(|next| graph.edge(*id, *next, Because::Missed(*key, *version)));
            }
            graph.rows(writes, *id, seen);
        }
        if in_order {
            graph.lsns(writes);
        }
        graph
    }

    /// What `id` has seen of the journal, and what not: those that come long after it are left out.
    fn rows(&mut self, writes: &BTreeMap<Id, &Write>, id: Id, seen: &Seen) {
        let Some((from, ids)) = &seen.journal else { return };
        let below = (from / PER_CLIENT + 1) * PER_CLIENT;
        let known = |other: &Id| ids.binary_search(other).is_ok();
        let (there, missed): (Vec<Id>, Vec<Id>) = writes.range(from..&below).map(|(other, _)| *other).partition(known);
        there.into_iter().for_each(|other| self.edge(other, id, Because::Row));
        missed.into_iter().take(MISSED).for_each(|other| self.edge(id, other, Because::NoRow));
    }

    fn lsns(&mut self, writes: &BTreeMap<Id, &Write>) {
        let lsn = |(id, write): (&Id, &&Write)| match write.outcome {
            Outcome::Committed(lsn) => Some((lsn, *id)),
            Outcome::Refused(_) | Outcome::Open(_) => None,
        };
        let order: BTreeSet<(u64, Id)> = writes.iter().filter_map(lsn).collect();
        order.iter().zip(order.iter().skip(1)).for_each(|((_, one), (_, next))| self.edge(*one, *next, Because::Lsn));
    }

    /// Nothing where one of them has no place here.
    fn edge(&mut self, before: Id, after: Id, why: Because) {
        if before != after
            && self.0.contains_key(&after)
            && let Some(others) = self.0.get_mut(&before)
        {
            others.entry(after).or_insert(why);
        }
    }

    /// Some transactions that must each come before the next, and the last before the first.
    fn cycle(&self) -> Option<Vec<(Id, Because)>> {
        let mut waits: BTreeMap<Id, usize> = self.0.keys().map(|id| (*id, 0)).collect();
        self.0.values().flat_map(BTreeMap::keys).for_each(|after| *waits.entry(*after).or_default() += 1);
        let free = |(id, waits): (&Id, &usize)| (*waits == 0).then_some(*id);
        let mut ready: VecDeque<Id> = waits.iter().filter_map(free).collect();
        while let Some(id) = ready.pop_front() {
            waits.remove(&id);
            for after in self.0[&id].keys() {
                let left = waits.get_mut(after).expect("it waits for this one");
                *left -= 1;
                if *left == 0 {
                    ready.push_back(*after);
                }
            }
        }
        // Each that is left waits for one that is left.
        let mut at = *waits.keys().next()?;
        let mut path: Vec<Id> = Vec::new();
        loop {
            path.push(at);
            at = *waits.keys().find(|before| self.0[before].contains_key(&at)).expect("it waits for another one");
            if let Some(begin) = path.iter().position(|id| *id == at) {
                // Found backwards.
                let cycle: Vec<Id> = path[begin..].iter().rev().copied().collect();
                let next = |place: usize| cycle[(place + 1) % cycle.len()];
                let because = |place: usize| self.0[&cycle[place]][&next(place)];
                return Some((0..cycle.len()).map(|place| (cycle[place], because(place))).collect());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::torture::{
        checks,
        history::{Effect, Route},
    };

    type Version = (i64, i64);
    /// What a transaction has seen of registers and made of one, and its LSN.
    type Did<'a> = (&'a [Version], Option<Version>, u64);

    fn judged(in_order: bool, all: &[Did<'_>]) -> usize {
        let write = |(id, (registers, register, lsn)): (Id, &Did<'_>)| {
            let seen = Some(Seen { registers: registers.to_vec(), journal: None });
            let (begun, ended) = (Duration::ZERO, Duration::from_secs(1));
            let effect = Effect { register: *register, seen, ..Effect::default() };
            Write { id, node: 0, route: Route::Node, begun, ended, outcome: Outcome::Committed(*lsn), effect }
        };
        found(in_order, (1..).zip(all).map(write).collect())
    }

    fn found(in_order: bool, writes: Vec<Write>) -> usize {
        let journal = writes.iter().map(|write| (write.id, write.effect.register)).collect();
        let shown = Final { journal, ..Final::default() };
        let mut book = Book::default();
        (book.writes, book.in_order) = (writes, in_order);
        let found = checks::check(&book, &[(0, shown)], &["a".into()]);
        found.iter().filter(|violation| violation.starts_with(NOT_SERIALIZABLE)).count()
    }

    #[test]
    fn one_after_the_other_is_serial() {
        let chain = [(&[(0, 0)][..], Some((1, 1)), 10), (&[(1, 1)], Some((0, 1)), 20), (&[(0, 1), (1, 1)], None, 30)];
        assert_eq!(judged(true, &chain), 0);
    }

    #[test]
    fn write_skew_is_found() {
        let skew = [(&[(0, 0), (1, 0)][..], Some((0, 1)), 10), (&[(0, 0), (1, 0)], Some((1, 1)), 20)];
        assert_eq!([true, false].map(|in_order| judged(in_order, &skew)), [1, 1]);
    }

    #[test]
    fn only_validation_promises_the_order_of_lsns() {
        let back_in_time = [(&[][..], Some((0, 1)), 10), (&[(0, 0)], Some((1, 1)), 20)];
        assert_eq!([true, false].map(|in_order| judged(in_order, &back_in_time)), [1, 0]);
    }

    #[test]
    fn a_long_cycle_is_found_among_others() {
        // Each has seen what the next writes over; all but the last could be in that order.
        let ring = |last| {
            let of = |key: i64| (vec![((key + 1) % 5, 0)], Some((key, 1)), 50 - key.unsigned_abs());
            let mut all: Vec<(Vec<Version>, _, u64)> = (0..5).map(of).collect();
            all[4].0 = vec![(0, last)];
            all.extend([(vec![(0, 1)], None, 60), (vec![(1, 1)], None, 70)]);
            let all: Vec<_> = all.iter().map(|(seen, made, lsn)| (&seen[..], *made, *lsn)).collect();
            judged(false, &all)
        };
        assert_eq!([ring(0), ring(1)], [1, 0], "the last has not seen what the first has made, or has");
    }

    #[test]
    fn a_phantom_is_found() {
        let first = PER_CLIENT + 1;
        let write = |id, ids: Option<Vec<Id>>, lsn| {
            let seen = Some(Seen { registers: Vec::new(), journal: ids.map(|ids| (first, ids)) });
            let (begun, ended) = (Duration::ZERO, Duration::from_secs(1));
            let effect = Effect { seen, ..Effect::default() };
            Write { id, node: 0, route: Route::Node, begun, ended, outcome: Outcome::Committed(lsn), effect }
        };
        let scene =
            |ids| vec![write(first, None, 10), write(first + 1, None, 20), write(2 * PER_CLIENT, Some(ids), 30)];
        assert_eq!(found(true, scene(vec![first, first + 1])), 0);
        assert_eq!(found(true, scene(vec![first])), 1);
        assert_eq!(found(false, scene(vec![first])), 0, "it can have been before that");
    }
}
