//! Taking the end of the log back, so that stale bytes can never be taken for blocks.
//!
//! Order of operations matters:
//! 1. a note of the cut becomes durable, so that a crash in the middle is completed at the next
//!    opening;
//! 2. the watermark goes down to the cut, durably: what lies above is no longer promised. It is
//!    written even where it is low enough, since an earlier attempt may have lowered it and not
//!    made that durable;
//! 3. segments that start above the cut go, newest first, so that there is never a gap;
//! 4. the rest of the segment that holds the cut becomes zeros, durably;
//! 5. the note goes.

use std::sync::PoisonError;

use freshet_base::Lsn;

use super::{Append, Mark, Note, SEGMENT_HEADER, SegmentStore, StoreError, lock, segment_name};

/// The note of step 1. Its content is what a slot of the watermark file holds.
pub(super) const CUT_NAME: &str = "cut";

fn cut_note(at: Lsn, lsn: Lsn) -> Note {
    Note { position: at, bound: lsn, anchor: lsn, anchor_position: at }
}

/// The note that still holds when the log ends at `lsn`, which is at position `at` of the stream.
fn lowered(noted: Note, at: Lsn, lsn: Lsn) -> Note {
    let mut lowered = Note { bound: noted.bound.min(lsn), ..noted };
    if noted.anchor > lsn {
        (lowered.anchor, lowered.anchor_position) = (lsn, at);
    }
    lowered
}

impl SegmentStore {
    /// Takes back, durably, what the note says of other streams from `lsn` on, `at` in this one.
    /// It has to be taken back in every stream before one of them is cut: a restart takes
    /// everything below any stream's anchor for durable in all of them.
    pub(crate) fn lower_bounds(&self, at: Lsn, lsn: Lsn) -> Result<(), StoreError> {
        self.check()?;
        self.finish();
        self.change_mark(|noted| lowered(noted, at, lsn), true).map_err(|error| self.fail(error))
    }

    /// Takes back everything at or above `at`, which becomes the end. Durable when this returns.
    /// Nobody appends in the meantime.
    ///
    /// # Errors
    /// [`StoreError`]; opening the log again completes the cut.
    pub fn cut(&self, at: Lsn) -> Result<(), StoreError> {
        self.cut_stream(at, at)
    }

    /// The same for one stream of several: `at` is the position where its blocks from `lsn` on
    /// begin.
    pub(crate) fn cut_stream(&self, at: Lsn, lsn: Lsn) -> Result<(), StoreError> {
        self.check()?;
        let begin = Lsn(self.segments().begin);
        if at < begin {
            return Err(StoreError::Gone { at, first: begin });
        }
        self.finish();
        let path = self.shared.medium.path(CUT_NAME);
        let first = Mark::first(&cut_note(at, lsn), self.shared.tie());
        let noted = self.shared.medium.create(CUT_NAME, super::mark::MARK_FILE, &first);
        noted.map_err(|e| self.fail(StoreError::io("make", path, 0, super::mark::MARK_FILE, e)))?;
        self.carry_out_cut(at, lsn).map_err(|error| self.fail(error))
    }

    /// Removes all segments, newest first. The note of how far they were durable stays, and means
    /// nothing without them.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        self.check()?;
        self.finish();
        while self.remove_newest(|_| true)? {}
        self.shared.segments.write().unwrap_or_else(PoisonError::into_inner).begin = 0;
        *lock(&self.shared.append) = Append::default();
        Ok(())
    }

    /// Removes the newest segment if it is `wanted` to go, by where it starts; says whether it was.
    fn remove_newest(&self, wanted: impl Fn(u64) -> bool) -> Result<bool, StoreError> {
        let newest = self.segments().all.back().map(|segment| segment.start).filter(|start| wanted(*start));
        let Some(start) = newest else { return Ok(false) };
        let name = segment_name(start);
        // First the name here, so that no reader starts on it; readers at work keep their open
        // file.
        self.shared.segments.write().unwrap_or_else(PoisonError::into_inner).all.pop_back();
        let removed = self.shared.medium.remove(&name);
        removed.map_err(|e| StoreError::io("remove", self.shared.medium.path(&name), 0, 0, e))?;
        Ok(true)
    }

    /// Completes a cut that a crash interrupted.
    pub(super) fn complete_cut(&self) -> Result<(), StoreError> {
        let path = || self.shared.medium.path(CUT_NAME);
        let file = self.shared.medium.open(CUT_NAME).map_err(|e| StoreError::io("open", path(), 0, 0, e))?;
        let note = Mark::open(file).map_err(|e| StoreError::io("read", path(), 0, 0, e))?;
        let note = note.ok_or_else(|| StoreError::Header { file: path(), what: "it does not say where".to_owned() })?;
        self.carry_out_cut(note.note().position, note.note().bound)
    }

    fn carry_out_cut(&self, at: Lsn, lsn: Lsn) -> Result<(), StoreError> {
        self.change_mark(|noted| Note { position: noted.position.min(at), ..lowered(noted, at, lsn) }, true)?;
        while self.remove_newest(|start| start > at.0)? {}
        let containing = self.segments().containing(at.0, self.size()).cloned();
        if let Some(segment) = containing {
            let offset = SEGMENT_HEADER + (at.0 - segment.start);
            let rest = segment.start + self.size() - at.0;
            let path = || self.shared.medium.path(&segment_name(segment.start));
            segment.file.zero(offset, rest).map_err(|e| StoreError::io("zero", path(), offset, rest, e))?;
            segment.file.sync().map_err(|e| StoreError::io("sync", path(), offset, 0, e))?;
        }
        *lock(&self.shared.append) = Append { end: at.0, ..Append::default() };
        let removed = self.shared.medium.remove(CUT_NAME);
        removed.map_err(|e| StoreError::io("remove", self.shared.medium.path(CUT_NAME), 0, 0, e))
    }
}
