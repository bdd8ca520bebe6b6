//! Where LSNs lie in a stream.
//!
//! Every 16 KiB or so of a stream one block's LSN and position are remembered; from there one
//! goes from header to header. That is one entry of 16 bytes for a thousandth of the log. A thread
//! that writes blocks or walks over them at restart enters landmarks; their order does not matter.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use freshet_base::Lsn;

use super::{LogStore, merge::Cursor};
use crate::{
    scan::{Positions, find_block},
    segments::StoreError,
};

/// About how many bytes of a stream lie between two landmarks.
const SPACING: u64 = 16 << 10;

#[derive(Debug, Default)]
pub(crate) struct Landmarks(RwLock<BTreeMap<u64, u64>>);

impl Landmarks {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u64, u64>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, u64>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block that starts at `lsn` lies at `position`. Kept if there is no landmark shortly
    /// before it.
    pub(crate) fn enter(&self, lsn: Lsn, position: Lsn) {
        let near = |map: &BTreeMap<u64, u64>| {
            let before = map.range(..=lsn.0).next_back();
            before.is_some_and(|(_, before)| position.0.saturating_sub(*before) < SPACING)
        };
        if !near(&self.read()) {
            self.write().insert(lsn.0, position.0);
        }
    }

    /// A reader went past the block at `lsn`, which lies from `from` to `to`.
    pub(super) fn pass(&self, lsn: Lsn, from: Lsn, to: Lsn) {
        if from.0 / SPACING != to.0 / SPACING {
            self.enter(lsn, from);
        }
    }

    /// The last landmark at or below `lsn`.
    fn before(&self, lsn: Lsn) -> Option<(Lsn, Lsn)> {
        let map = self.read();
        map.range(..=lsn.0).next_back().map(|(lsn, position)| (Lsn(*lsn), Lsn(*position)))
    }

    /// The log begins at `lsn` now: its blocks from there on begin at `position`, and older ones
    /// may be gone.
    pub(super) fn begin(&self, lsn: Lsn, position: Lsn) {
        let mut map = self.write();
        *map = map.split_off(&lsn.0);
        map.insert(lsn.0, position.0);
    }

    /// The log was cut at `lsn`.
    pub(super) fn cut(&self, lsn: Lsn) {
        self.write().split_off(&lsn.0);
    }
}

impl LogStore {
    /// Where in `stream` the first block lies that ends above `lsn`: the one that holds it, or
    /// the next one, or the end.
    ///
    /// # Errors
    /// [`StoreError`] when the stream cannot be read.
    pub(crate) fn position(&self, stream: usize, lsn: Lsn) -> Result<Lsn, StoreError> {
        let mut cursor = self.cursor_before(stream, lsn)?;
        cursor.skip_below(lsn)?;
        Ok(cursor.position())
    }

    /// Where in `stream` the last block lies that begins at or below `lsn`; zero when none does.
    ///
    /// # Errors
    /// [`StoreError`] when the stream cannot be read.
    pub(super) fn position_of_last(&self, stream: usize, lsn: Lsn) -> Result<Lsn, StoreError> {
        let mut cursor = self.cursor_before(stream, lsn)?;
        let mut last = Lsn::ZERO;
        while cursor.block()?.is_some_and(|block| block.lsn <= lsn) {
            last = cursor.position();
            cursor.advance();
        }
        Ok(last)
    }

    /// A cursor at a block at or before the one that holds `lsn`.
    pub(super) fn cursor_before(&self, stream: usize, lsn: Lsn) -> Result<Cursor<'_>, StoreError> {
        let this = self.at(stream);
        let end = this.store.end();
        let from = match (this.landmarks.before(lsn), this.store.extent()) {
            (Some((_, position)), _) => position,
            // Blocks below the first landmark are not kept, or nobody has gone over them yet.
            (None, Some((first, _))) if first > Lsn::ZERO => {
                find_block(&Positions(&this.store), first, end)?.unwrap_or(end)
            }
            (None, Some((first, _))) => first,
            (None, None) => end,
        };
        Ok(Cursor::new(&this.store, from, end))
    }

    /// The stream that holds `lsn`, and where in it `lsn` lies.
    pub(super) fn containing(&self, lsn: Lsn) -> Result<Option<(usize, Lsn)>, StoreError> {
        for stream in 0..self.streams() {
            let mut cursor = self.cursor_before(stream, lsn)?;
            cursor.skip_below(lsn)?;
            if let Some(block) = cursor.block()?
                && block.lsn <= lsn
            {
                return Ok(Some((stream, cursor.position().plus(lsn.since(block.lsn)))));
            }
        }
        Ok(None)
    }
}
