//! Where stamps lie in a stream.
//!
//! Every 16 KiB or so of a stream one block's stamp and position are remembered; from there one
//! goes from header to header. That is one entry of 16 bytes for a thousandth of the log. A thread
//! that writes blocks or walks over them at restart enters landmarks; their order does not matter.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use freshet_base::Stamp;

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

    /// A block that starts at `stamp` lies at `position`. Kept if there is no landmark shortly
    /// before it.
    pub(crate) fn enter(&self, stamp: Stamp, position: Stamp) {
        let near = |map: &BTreeMap<u64, u64>| {
            let before = map.range(..=stamp.0).next_back();
            before.is_some_and(|(_, before)| position.0.saturating_sub(*before) < SPACING)
        };
        if !near(&self.read()) {
            self.write().insert(stamp.0, position.0);
        }
    }

    /// Somebody went past the block at `stamp`, which lies from `from` to `to`.
    pub(super) fn pass(&self, stamp: Stamp, from: Stamp, to: Stamp) {
        if from.0 / SPACING != to.0 / SPACING {
            self.enter(stamp, from);
        }
    }

    /// The last landmark at or below `stamp`.
    fn before(&self, stamp: Stamp) -> Option<(Stamp, Stamp)> {
        let map = self.read();
        map.range(..=stamp.0).next_back().map(|(stamp, position)| (Stamp(*stamp), Stamp(*position)))
    }

    /// The log begins at `stamp` now: its blocks from there on begin at `position`, and older ones
    /// may be gone.
    pub(super) fn begin(&self, stamp: Stamp, position: Stamp) {
        let mut map = self.write();
        *map = map.split_off(&stamp.0);
        map.insert(stamp.0, position.0);
    }

    /// The log was cut at `stamp`.
    pub(super) fn cut(&self, stamp: Stamp) {
        self.write().split_off(&stamp.0);
    }
}

impl LogStore {
    /// Where in `stream` the first block lies that ends above `stamp`: the one that holds it, or
    /// the next one, or the end.
    ///
    /// # Errors
    /// [`StoreError`] when the stream cannot be read.
    pub(crate) fn position(&self, stream: usize, stamp: Stamp) -> Result<Stamp, StoreError> {
        let mut cursor = self.cursor_before(stream, stamp)?;
        cursor.skip_below(stamp)?;
        Ok(cursor.position())
    }

    /// Where in `stream` the last block lies that begins at or below `stamp`; zero when none does.
    ///
    /// # Errors
    /// [`StoreError`] when the stream cannot be read.
    pub(super) fn position_of_last(&self, stream: usize, stamp: Stamp) -> Result<Stamp, StoreError> {
        let mut cursor = self.cursor_before(stream, stamp)?;
        let mut last = Stamp::ZERO;
        while cursor.block()?.is_some_and(|block| block.stamp <= stamp) {
            last = cursor.position();
            cursor.advance();
        }
        Ok(last)
    }

    /// A cursor at a block at or before the one that holds `stamp`.
    pub(super) fn cursor_before(&self, stream: usize, stamp: Stamp) -> Result<Cursor<'_>, StoreError> {
        let this = self.at(stream);
        let end = this.store.end();
        let from = match (this.landmarks.before(stamp), this.store.extent()) {
            (Some((_, position)), _) => position,
            // Blocks below the first landmark are not kept, or nobody has gone over them yet.
            (None, Some((first, _))) if first > Stamp::ZERO => {
                find_block(&Positions(&this.store), first, end)?.unwrap_or(end)
            }
            (None, Some((first, _))) => first,
            (None, None) => end,
        };
        Ok(Cursor::new(&this.store, from, end))
    }

    /// The stream that holds `stamp`, and where in it `stamp` lies.
    pub(super) fn holding(&self, stamp: Stamp) -> Result<Option<(usize, Stamp)>, StoreError> {
        for stream in 0..self.streams() {
            let mut cursor = self.cursor_before(stream, stamp)?;
            cursor.skip_below(stamp)?;
            if let Some(block) = cursor.block()?
                && block.stamp <= stamp
            {
                return Ok(Some((stream, cursor.position().plus(stamp.since(block.stamp)))));
            }
        }
        Ok(None)
    }
}
