//! The memory of simulated mirrors, and the history that it has to agree with.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use freshet_base::{Fid, Lsn, Rid, Term, sync::AtomicU64};
use freshet_fabric::memory::{Region, Registered, copy_words};
use freshet_mirror::{Contents, Damaged};

use crate::checks::{Property, Violation};

#[derive(Debug)]
struct Plain(Vec<AtomicU64>);

impl Registered for Plain {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Zeros.
pub(crate) fn region(bytes: u64) -> Region {
    Arc::new(Plain((0..bytes / 8).map(|_| AtomicU64::new(0)).collect()))
}

pub(crate) fn length(region: &Region) -> u64 {
    region.words().len() as u64 * 8
}

/// Other memory with the same bytes.
pub(crate) fn moved(memory: &[Region]) -> Vec<Region> {
    let copy = |from: &Region| {
        let to = region(length(from));
        copy_words(from.words(), to.words(), |_| true);
        to
    };
    memory.iter().map(copy).collect()
}

pub(crate) type Id = (Fid, Rid);
/// Nothing of a record that was deleted.
pub(crate) type Row = Option<Rc<[u8]>>;
/// What records are: where in the log, and the row.
pub(crate) type Records = BTreeMap<Id, (Lsn, Row)>;

/// What was written in one term, and before.
pub(crate) struct History {
    /// Where the term began.
    pub begin: Lsn,
    /// The term that the log is of below that.
    parent: Option<Term>,
    before: Records,
    changes: Vec<(Lsn, Id, Row)>,
    /// Where its transactions end.
    ends: Vec<Lsn>,
}

impl History {
    pub fn new(begin: Lsn, parent: Option<Term>, before: Records) -> Self {
        Self { begin, parent, before, changes: Vec::new(), ends: Vec::new() }
    }

    pub fn change(&mut self, at: Lsn, id: Id, row: Row) {
        self.changes.push((at, id, row));
    }

    pub fn end_transaction(&mut self, at: Lsn) {
        self.ends.push(at);
    }

    /// Where the last transaction up to `upto` ends, and how many there are.
    pub fn ended(&self, upto: Lsn) -> (Lsn, usize) {
        let count = self.ends.partition_point(|end| *end <= upto);
        (count.checked_sub(1).map_or(self.begin, |last| self.ends[last]), count)
    }
}

/// What was written, by term.
#[derive(Default)]
pub(crate) struct Histories(pub Vec<History>);

impl Histories {
    pub fn of(&self, term: Term) -> &History {
        &self.0[term.0 as usize]
    }

    pub fn of_mut(&mut self, term: Term) -> &mut History {
        &mut self.0[term.0 as usize]
    }

    /// Which part of the log of this term has what ends at `at`.
    fn part(&self, term: Term, at: Lsn) -> &History {
        let mut part = self.of(term);
        while let Some(parent) = part.parent.filter(|_| at < part.begin) {
            part = self.of(parent);
        }
        part
    }

    /// The state with the log of this term up to `end`.
    pub fn at(&self, term: Term, end: Lsn) -> Records {
        let part = self.part(term, end);
        let mut records = part.before.clone();
        for (at, id, row) in part.changes.iter().filter(|(at, ..)| *at < end) {
            records.insert(*id, (*at, row.clone()));
        }
        records
    }

    /// Whether a transaction ends there.
    pub fn is_end(&self, term: Term, at: Lsn) -> bool {
        let part = self.part(term, at);
        at == part.begin || part.ends.binary_search(&at).is_ok()
    }

    /// Where transactions end in this term's own part of the log, from `from` up to `to`.
    pub fn ends(&self, term: Term, from: Lsn, to: Lsn) -> Vec<Lsn> {
        let part = self.of(term);
        let all = [part.begin].into_iter().chain(part.ends.iter().copied());
        all.filter(|end| (from..=to).contains(end)).collect()
    }
}

/// Compares all that a mirror has with what it has to have with the log up to `end`, by the history
/// of the term in which it was fed. Returns that term's number.
pub(crate) fn check(memory: &[Region], end: Lsn, histories: &Histories) -> Result<Term, Violation> {
    let refused = |damaged: Damaged| Violation { property: Property::Mirrors, what: damaged.to_string() };
    let mirror = Contents::open(memory.to_vec(), end).map_err(refused)?;
    let term = mirror.superblock().term;
    if !histories.is_end(term, end) {
        return Property::Mirrors.violated(format!("no transaction of term {term} ends at {end}"));
    }
    let wanted = histories.at(term, end);
    let (mut seen, mut wrong) = (0, None);
    for chunk in 0..mirror.chunk_count() {
        let visited = mirror.visit(chunk, |fid, rid, at, row| {
            let Some(row) = row else { return };
            seen += 1;
            let known = wanted.get(&(fid, rid));
            if known.is_none_or(|(address, known)| *address != at || known.as_deref() != Some(row)) {
                wrong = Some(format!("record {} of table {} is that of {at} at {end}, not {known:?}", rid.0, fid.0));
            }
        });
        visited.map_err(refused)?;
    }
    if let Some(wrong) = wrong {
        return Property::Mirrors.violated(wrong);
    }
    let living = wanted.values().filter(|(_, row)| row.is_some()).count();
    if seen != living {
        return Property::Mirrors.violated(format!("{seen} records are there at {end}, of {living}"));
    }
    Ok(term)
}
