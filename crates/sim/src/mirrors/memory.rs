//! The memory of simulated mirrors, and the history that it has to agree with.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use freshet_base::{Fid, Rid, Stamp, Term, sync::AtomicU64};
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
pub(crate) type Records = BTreeMap<Id, (Stamp, Row)>;

/// What was written in one reign, and before.
pub(crate) struct History {
    /// Where the reign began.
    pub begin: Stamp,
    before: Records,
    changes: Vec<(Stamp, Id, Row)>,
    /// Where its transactions end.
    ends: Vec<Stamp>,
}

impl History {
    pub fn new(begin: Stamp, before: Records) -> Self {
        Self { begin, before, changes: Vec::new(), ends: Vec::new() }
    }

    pub fn change(&mut self, at: Stamp, id: Id, row: Row) {
        self.changes.push((at, id, row));
    }

    pub fn end_transaction(&mut self, at: Stamp) {
        self.ends.push(at);
    }

    /// The state with the log up to `end`.
    pub fn at(&self, end: Stamp) -> Records {
        let mut records = self.before.clone();
        for (at, id, row) in self.changes.iter().filter(|(at, ..)| *at < end) {
            records.insert(*id, (*at, row.clone()));
        }
        records
    }

    /// Whether a transaction ends there.
    pub fn is_end(&self, at: Stamp) -> bool {
        at == self.begin || self.ends.binary_search(&at).is_ok()
    }

    /// Where the last transaction up to `upto` ends, and how many there are.
    pub fn ended(&self, upto: Stamp) -> (Stamp, usize) {
        let count = self.ends.partition_point(|end| *end <= upto);
        (count.checked_sub(1).map_or(self.begin, |last| self.ends[last]), count)
    }
}

/// Compares all that a mirror has with what it has to have with the log up to `end`, by the history
/// of the reign in which it was fed. Returns that reign's term.
pub(crate) fn check(memory: &[Region], end: Stamp, histories: &[History]) -> Result<Term, Violation> {
    let refused = |damaged: Damaged| Violation { property: Property::Mirrors, what: damaged.to_string() };
    let mirror = Contents::open(memory.to_vec(), end).map_err(refused)?;
    let term = mirror.superblock().term;
    let history = &histories[term.0 as usize];
    if !history.is_end(end) {
        return Property::Mirrors.violated(format!("no transaction of term {term} ends at {end}"));
    }
    let wanted = history.at(end);
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
