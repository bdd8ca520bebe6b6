//! Certify: may a serializable transaction commit with the LSN that it has taken?
//!
//! Both certifiers ask the same question: what of that which the transaction has read was changed
//! by others with LSNs between its snapshot and its own? That covers records that were looked at
//! and not seen; and for ranges the records that came into them: a leaf of the index that has not
//! changed since tells that none came (a first filter), else the range is looked through again.
//! Index leaves alone are not enough in a multi-version store, where an entry may be there before
//! its record is visible: those records are in the read set as looked at and not seen.
//!
//! They differ in what follows from the answer:
//!
//! - *validation*: any change is too much. Each transaction reads what all those with smaller
//!   LSNs have left, so all are equivalent to their execution one by one in LSN order.
//! - *ssn* (`ssn.rs`): the transaction comes before those that made the changes, unless it must
//!   come after one of them, too.
//!
//! A transaction with a smaller LSN that is still undecided is waited for, bounded;
//! waits only go to smaller LSNs, so there is no circle of them.

mod history;
mod ssn;

use std::ops::{Bound, ControlFlow};

use freshet_base::{Certifier, Fid, Lsn};
use freshet_storage::{Catalog, LeafSet, ReadContext, Visible, index::ScanBuffer};

pub(crate) use self::history::Announced;
use self::history::Histories;
use crate::{CommitError, Ticket, Transaction, read::Direction};

/// What certifies a node's transactions.
#[derive(Debug)]
pub(crate) enum Certification {
    Validation,
    Ssn(Histories),
}

impl Certification {
    /// For workers at this many places.
    pub(crate) fn new(certifier: Certifier, places: usize) -> Self {
        match certifier {
            Certifier::Validation => Self::Validation,
            Certifier::Ssn => Self::Ssn(Histories::new(places)),
        }
    }

    /// Whether the serial order is that of LSNs. Then every snapshot is a state of it, and a
    /// transaction that only reads needs no certification.
    #[inline]
    pub(crate) fn is_by_lsns(&self) -> bool {
        matches!(self, Self::Validation)
    }
}

/// A range of keys that a transaction has read, and the leaves in which it was.
#[derive(Debug)]
pub(crate) struct ScannedRange {
    fid: Fid,
    index: usize,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    /// Where its leaves begin and end in the transaction's set.
    leaves: (usize, usize),
}

fn owned(bound: Bound<&[u8]>) -> Bound<Vec<u8>> {
    bound.map(<[u8]>::to_vec)
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl ScannedRange {
    pub(crate) fn key(fid: Fid, index: usize, key: &[u8], first: usize, leaves: &LeafSet) -> Self {
        let key = Bound::Included(key);
        Self { fid, index, low: owned(key), high: owned(key), leaves: (first, leaves.len()) }
    }

    /// What a scan has covered that began in `range` and broke off at `last`, if it did.
    pub(crate) fn scan(
        fid: Fid,
        index: usize,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        last: Option<Vec<u8>>,
        first: usize,
        leaves: &LeafSet,
    ) -> Self {
        let (low, high) = match (last, direction) {
            (None, _) => (owned(low), owned(high)),
            (Some(last), Direction::Forward) => (owned(low), Bound::Included(last)),
            (Some(last), Direction::Backward) => (Bound::Included(last), owned(high)),
        };
        Self { fid, index, low, high, leaves: (first, leaves.len()) }
    }
}

impl Transaction<'_> {
    /// Says what the transaction has read, before it takes its LSN, where others ask for that.
    pub(crate) fn announce(&self) -> Option<Announced<'_>> {
        match &self.worker.core.certification {
            Certification::Validation => None,
            Certification::Ssn(histories) => Some(self.announce_in(histories)),
        }
    }

    /// Whether the transaction may commit with this LSN, which it has taken. Returns the LSN
    /// before which it comes in the serial order: its own, or a smaller one.
    pub(crate) fn certify(&self, lsn: Lsn) -> Result<Lsn, CommitError> {
        freshet_base::step!(Certify, lsn, lsn);
        if self.worker.core.catalog.changes_begun() != self.worker.changes.get() {
            self.check_tables(lsn)?;
        }
        if !self.is_certified() {
            return Ok(lsn);
        }
        match &self.worker.core.certification {
            Certification::Validation => self.find_changes(lsn, &mut |_| true).map(|()| lsn),
            Certification::Ssn(histories) => self.exclude(histories, lsn),
        }
    }

    /// The end of a transaction that has written nothing.
    pub(crate) fn end_reading(&self) -> Result<Ticket, CommitError> {
        if let (Certification::Ssn(histories), Some(primary)) = (&self.worker.core.certification, self.primary)
            && self.is_certified()
        {
            let announced = self.announce_in(histories);
            // It comes after all that have taken an LSN by now, and before all others.
            let end = primary.log.reserved();
            let first = self.exclude(histories, end)?;
            announced.enter_reader(end, first);
        }
        Ok(self.seen())
    }

    /// Tables are being changed: are all there, at `lsn`, that this transaction has written to,
    /// and have they no more indexes than it has entered that into?
    #[cold]
    fn check_tables(&self, lsn: Lsn) -> Result<(), CommitError> {
        let state = self.worker.state.borrow();
        let catalog = &self.worker.core.catalog;
        let content = self.worker.core.content(self.guard(), Fid::CATALOG).expect("nobody drops the catalog");
        let context = ReadContext { snapshot: lsn, ..self.context() };
        let mut fids: Vec<(Fid, usize)> = state.writes.iter().map(|write| (write.fid, write.indexes)).collect();
        if self.is_certified() {
            // That they were there is something that it has read.
            let read = state.reads.iter().map(|(fid, _)| *fid).chain(state.ranges.iter().map(|range| range.fid));
            fids.extend(read.map(|fid| (fid, usize::MAX)));
        }
        fids.sort_unstable();
        // Of each table, who knew the fewest.
        fids.dedup_by_key(|(fid, _)| *fid);
        for (fid, indexes) in fids {
            let Some(rid) = Catalog::rid_of(fid) else { continue };
            let name = || catalog.get(self.guard(), fid).map_or_else(String::new, |table| table.name().to_owned());
            // Waits for a change that has a smaller LSN, and is not decided. One's own is no
            // obstacle.
            match content.read(self.guard(), rid, &context)? {
                Some(Visible { row: None, lsn: Some(_) }) => return Err(CommitError::Dropped(name())),
                Some(Visible { row: Some(row), lsn: Some(_) })
                    if Catalog::definition_in(row).is_ok_and(|definition| definition.indexes.len() > indexes) =>
                {
                    return Err(CommitError::Altered(name()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Looks whether what was read is the same at `lsn`. Shows the LSNs of the versions that
    /// have come since the snapshot, and fails at the first that `counts`.
    fn find_changes(&self, lsn: Lsn, counts: &mut dyn FnMut(Lsn) -> bool) -> Result<(), CommitError> {
        let state = self.worker.state.borrow();
        let core = &self.worker.core;
        let context = self.context();
        for (fid, rid) in &state.reads {
            // No table goes that this snapshot sees.
            let Some(content) = core.content(self.guard(), *fid) else { return Err(CommitError::ReadChanged) };
            if content.changed_before(self.guard(), *rid, lsn, &context, &mut *counts)? {
                return Err(CommitError::ReadChanged);
            }
        }
        let mut buffer = ScanBuffer::default();
        for range in &state.ranges {
            if (range.leaves.0..range.leaves.1).all(|leaf| self.worker.leaves.unchanged(self.guard(), leaf)) {
                continue;
            }
            let content = core.content(self.guard(), range.fid);
            let Some((content, index)) =
                content.and_then(|content| Some((content, content.indexes(self.guard()).get(range.index)?)))
            else {
                return Err(CommitError::Phantom);
            };
            let mut result = Ok(());
            let _ = index.tree().scan(
                self.guard(),
                (borrowed(&range.low), borrowed(&range.high)),
                Direction::Forward,
                &mut buffer,
                |_| {},
                |_, rid| {
                    result = match content.changed_before(self.guard(), rid, lsn, &context, &mut *counts) {
                        Ok(false) => return ControlFlow::Continue(()),
                        Ok(true) => Err(CommitError::Phantom),
                        Err(cause) => Err(cause.into()),
                    };
                    ControlFlow::Break(())
                },
            );
            result?;
        }
        Ok(())
    }
}
