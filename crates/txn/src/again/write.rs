//! Writing when a transaction is executed again: into its buffer.

use std::ops::ControlFlow;

use freshet_base::{RecordKind, Rid};
use freshet_storage::{Change, Content, IndexList, Kept, KeyBuffer, ReadError};

use super::{Again, Mismatch, buffer::Done};
use crate::{Transaction, WriteError, insert::in_order, write::Writing};

impl Transaction<'_> {
    /// Inserts a record again: it has the id that it had. Refused for a key that is taken, as the
    /// first time.
    pub(crate) fn insert_again(
        &self,
        again: &Again,
        Writing { content, indexes, .. }: Writing<'_>,
        row: &[u8],
        instead: Option<Rid>,
        arbiters: &[usize],
    ) -> Result<Rid, WriteError> {
        again.check()?;
        if let Some(index) = self.taken_again(again, content, indexes, row, instead, arbiters)? {
            self.worker.violated_since.set(false);
            return Err(WriteError::UniqueViolation { index });
        }
        let fid = content.fid();
        let mut buffer = again.buffer.borrow_mut();
        // What is not refused has been inserted: a transaction that has met more than it sees is
        // not recorded.
        let place = buffer.next_insertion(fid).ok_or(Mismatch::NotInserted { fid })?;
        buffer.put(place, Done::Row(self.guard().keep(row)));
        Ok(buffer.entry(place).rid)
    }

    /// The first unique index in which the transaction sees another record with the key of `row`.
    fn taken_again(
        &self,
        again: &Again,
        content: &Content,
        indexes: &IndexList,
        row: &[u8],
        instead: Option<Rid>,
        arbiters: &[usize],
    ) -> Result<Option<String>, ReadError> {
        let mut key = KeyBuffer::new();
        for (_, index) in in_order(indexes, arbiters) {
            let definition = index.definition();
            let Some(key) = index.key_of(row, &mut key) else { continue };
            if !definition.unique || definition.lacks_value(row) {
                continue;
            }
            let mut taken = Ok(false);
            let _ = index.tree().get(self.guard(), key, |other| {
                // Most often it is the record that is being inserted.
                if Some(other) != instead && !again.buffer.borrow().is_to_come(content.fid(), other) {
                    let has = |row: Option<&[u8]>| row.is_some_and(|row| definition.matches(row, key));
                    taken = self.look(content, other).map(|there| there.is_some_and(|there| has(there.row)));
                }
                if matches!(taken, Ok(false)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if taken? {
                return Ok(Some(definition.name.clone()));
            }
        }
        Ok(None)
    }

    /// Writes a record again that the transaction sees.
    pub(crate) fn write_again(
        &self,
        again: &Again,
        content: &Content,
        rid: Rid,
        change: Change<'_>,
    ) -> Result<(), WriteError> {
        again.check()?;
        let fid = content.fid();
        let place = again.buffer.borrow().place(fid, rid).ok_or(Mismatch::NotAnnounced { fid, rid })?;
        let kind = again.buffer.borrow().entry(place).kind;
        let is_done = again.buffer.borrow().is_done(place);
        let done = match (change, kind) {
            // A record has a row that it has not: another one had the id before.
            (_, RecordKind::Insert) if !is_done => return Err(Mismatch::Kind { fid, rid, kind }.into()),
            (Change::Row(row), _) => Done::Row(self.guard().keep(row)),
            (Change::Gone, RecordKind::Delete) => Done::Gone(self.deleted_row(again, content, rid)?),
            (Change::Moved(to), RecordKind::Delete) => Done::Moved(to, self.deleted_row(again, content, rid)?),
            (Change::Gone | Change::Moved(_), _) => return Err(Mismatch::Kind { fid, rid, kind }.into()),
        };
        again.buffer.borrow_mut().put(place, done);
        Ok(())
    }

    /// What the log holds of a record that is deleted: the row that it had before the transaction.
    /// No other transaction has changed it since the snapshot.
    fn deleted_row(&self, again: &Again, content: &Content, rid: Rid) -> Result<Kept, ReadError> {
        let there = self.look_below(again, content, rid)?;
        Ok(self.guard().keep(there.and_then(|there| there.row).unwrap_or_default()))
    }
}
