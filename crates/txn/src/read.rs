//! Execute, reads: of one snapshot, and of the transaction's own writes.
//!
//! A read walks a chain to the first version below the snapshot. What a serializable transaction
//! has read is noted here, and looked at again when it commits (`certify.rs`).

use std::ops::{Bound, ControlFlow};

use freshet_base::{Lsn, Rid};
pub use freshet_storage::index::Direction;
use freshet_storage::{Content, ReadError, Table, Visible, index::LeafVersion};

use crate::{Transaction, certify::ScannedRange};

/// happens to the record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'t> {
    /// The record's id, by which it is written.
    pub rid: Rid,
    /// The bytes of the version that the snapshot sees.
    pub row: &'t [u8],
}

impl Transaction<'_> {
    /// The row that a record had when this transaction found it, as the snapshot sees it: in the
    /// same record, or in another one, since a transaction has changed one of its keys; nothing if
    /// it was deleted. With [`Transaction::at_present`].
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn follow(&self, table: &Table, rid: Rid) -> Result<Option<Record<'_>>, ReadError> {
        self.followed(table, rid, false)
    }

    /// The same, also where this transaction has moved the row itself. The record was found since
    /// the snapshot that is announced, or is locked by this transaction
    /// ([`Transaction::hold_snapshot`]).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn follow_anywhere(&self, table: &Table, rid: Rid) -> Result<Option<Record<'_>>, ReadError> {
        self.followed(table, rid, true)
    }

    fn followed(&self, table: &Table, mut rid: Rid, own: bool) -> Result<Option<Record<'_>>, ReadError> {
        let content = self.content(table)?;
        loop {
            if let Some(record) = self.read_in(content, rid)? {
                return Ok(Some(record));
            }
            let moved = match &self.again {
                None => content.moved_to(self.guard(), rid, &self.context(), own)?,
                Some(again) => self.moved_again(again, content, rid).filter(|_| own),
            };
            match moved {
                Some(to) => rid = to,
                None => return Ok(None),
            }
        }
    }

    /// The record of this id, if the transaction sees one.
    ///
    /// # Errors
    /// See [`ReadError`].
    #[inline]
    pub fn read(&self, table: &Table, rid: Rid) -> Result<Option<Record<'_>>, ReadError> {
        self.read_in(self.content(table)?, rid)
    }

    /// What the transaction sees of a record: all reads end here.
    #[inline]
    pub(crate) fn look(&self, content: &Content, rid: Rid) -> Result<Option<Visible<'_>>, ReadError> {
        match &self.again {
            None => content.read(self.guard(), rid, &self.context()),
            Some(again) => self.look_again(again, content, rid),
        }
    }

    #[inline]
    pub(crate) fn read_in(&self, content: &Content, rid: Rid) -> Result<Option<Record<'_>>, ReadError> {
        let visible = self.look(content, rid)?;
        if self.is_certified() {
            self.worker.state.borrow_mut().reads.push((content.fid(), rid));
        }
        let Some(visible) = visible else { return Ok(None) };
        self.saw(visible.lsn);
        Ok(visible.row.map(|row| Record { rid, row }))
    }

    /// A version of this LSN was found, and the answer tells of it; its own versions have none.
    #[inline]
    pub(crate) fn saw(&self, lsn: Option<Lsn>) {
        if let Some(lsn) = lsn
            && lsn > self.worker.seen.get()
        {
            self.worker.seen.set(lsn);
        }
    }

    /// What was read may lack records that were deleted up to `removed`.
    #[inline]
    fn miss(&self, removed: Lsn) {
        self.saw(Some(removed));
    }

    /// The record with exactly this key in the table's index number `index`; the first one,
    /// by record id, if the index is not unique.
    ///
    /// # Errors
    /// See [`ReadError`].
    ///
    #[inline]
    pub fn get(&self, table: &Table, index: usize, key: &[u8]) -> Result<Option<Record<'_>>, ReadError> {
        self.get_in(self.content(table)?, index, key)
    }

    pub(crate) fn get_in(&self, content: &Content, index: usize, key: &[u8]) -> Result<Option<Record<'_>>, ReadError> {
        let found = self.index(content, index)?;
        let definition = found.definition();
        let mut result = Ok(None);
        let mut removed = Lsn::ZERO;
        let visit = |rid| {
            // An index entry is a hint: the row says whether it has the key.
            result =
                self.read_in(content, rid).map(|record| record.filter(|record| definition.matches(record.row, key)));
            if matches!(result, Ok(None)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if self.is_certified() {
            let leaves = &self.worker.leaves;
            let first = leaves.len();
            let _ = leaves.get(self.guard(), content.fid(), index, key, visit);
            removed = leaves.take_removed();
            if matches!(result, Ok(Some(_))) && definition.unique {
                // A transaction that puts another record under this key must delete this one, which
                // we have read.
                leaves.truncate(first);
            } else {
                let range = ScannedRange::key(content.fid(), index, key, first, leaves);
                self.worker.state.borrow_mut().ranges.push(range);
            }
        } else {
            let note = |leaf: LeafVersion<'_>| removed = removed.max(leaf.removed());
            let _ = found.tree().get_certified(self.guard(), key, note, visit);
        }
        // Who has found the only one there can be depends on no deletion.
        if !(definition.unique && matches!(result, Ok(Some(_)))) {
            self.miss(removed);
        }
        result
    }

    /// Visits the records whose keys in index number `index` lie in `range`, in the order of
    /// `direction`, until `visit` breaks off.
    ///
    /// # Errors
    /// See [`ReadError`].
    ///
    pub fn scan<'t>(
        &'t self,
        table: &Table,
        index: usize,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        mut visit: impl FnMut(&[u8], Record<'t>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let content = self.content(table)?;
        let scanned = self.index(content, index)?;
        let definition = scanned.definition();
        let certified = self.is_certified();
        let mut buffer = self.worker.state.borrow_mut().buffers.pop().unwrap_or_default();
        let mut result = Ok(());
        let mut last = None;
        let visit = |key: &[u8], rid| {
            let flow = match self.read_in(content, rid) {
                Ok(Some(record)) if definition.matches(record.row, key) => visit(key, record),
                Ok(_) => ControlFlow::Continue(()),
                Err(cause) => {
                    result = Err(cause);
                    ControlFlow::Break(())
                }
            };
            if certified && flow.is_break() {
                last = Some(key.to_vec());
            }
            flow
        };
        if certified {
            let leaves = &self.worker.leaves;
            let first = leaves.len();
            let _ = leaves.scan(self.guard(), table.fid(), index, range, direction, &mut buffer, visit);
            self.miss(leaves.take_removed());
            let range = ScannedRange::scan(table.fid(), index, range, direction, last, first, leaves);
            self.worker.state.borrow_mut().ranges.push(range);
        } else {
            let miss = |leaf: LeafVersion<'_>| self.miss(leaf.removed());
            let _ = scanned.tree().scan(self.guard(), range, direction, &mut buffer, miss, visit);
        }
        self.worker.state.borrow_mut().buffers.push(buffer);
        result
    }

    /// Whether this transaction has deleted a record, or moved its row to another one.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn has_deleted(&self, table: &Table, rid: Rid) -> Result<bool, ReadError> {
        let visible = self.look(self.content(table)?, rid)?;
        Ok(matches!(visible, Some(Visible { lsn: None, row: None })))
    }
}
