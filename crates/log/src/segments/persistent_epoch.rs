//! The file `pepoch`: up to which epoch the log is persistent (SiloR, section 3.5).
//!
//! Written and synced by the group commit kind `epoch` before results are released; after a crash
//! nothing above it is recovered. The other kinds must not find an old one, so they remove it.

use freshet_base::Lsn;

use super::{
    SegmentStore, StoreError, patiently,
    slots::{SLOTS_FILE, Slots},
};
use crate::medium::Medium;

const NAME: &str = "pepoch";

/// The last persistent epoch, and the LSN at which it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PersistentEpoch {
    pub(crate) epoch: u64,
    pub(crate) end: Lsn,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct PersistentEpochFile {
    slots: Slots<2>,
    store: SegmentStore,
}

fn is_there(medium: &dyn Medium) -> Result<bool, StoreError> {
    Ok(super::list(medium)?.iter().any(|name| name == NAME))
}

fn open(medium: &dyn Medium) -> Result<Slots<2>, StoreError> {
    let path = || medium.path(NAME);
    let file = medium.open(NAME).map_err(|e| StoreError::io("open", path(), 0, 0, e))?;
    let slots = Slots::open(file).map_err(|e| StoreError::io("read", path(), 0, 0, e))?;
    slots.ok_or_else(|| StoreError::Watermark { file: path() })
}

fn epoch_in(slots: &Slots<2>) -> PersistentEpoch {
    let [epoch, end] = *slots.words();
    PersistentEpoch { epoch, end: Lsn(end) }
}

/// What the file on `medium` holds; none when none exists.
pub(crate) fn look_at_epoch(medium: &dyn Medium) -> Result<Option<PersistentEpoch>, StoreError> {
    let look = || Ok(if is_there(medium)? { Some(epoch_in(&open(medium)?)) } else { None });
    patiently(look)
}

impl SegmentStore {
    fn open_persistent_epoch(&self) -> Result<PersistentEpochFile, StoreError> {
        Ok(PersistentEpochFile { slots: open(&*self.shared.medium)?, store: self.clone() })
    }

    /// What the file holds; none when none exists.
    pub(crate) fn persistent_epoch(&self) -> Result<Option<PersistentEpoch>, StoreError> {
        if !is_there(&*self.shared.medium)? {
            return Ok(None);
        }
        Ok(Some(epoch_in(&open(&*self.shared.medium)?)))
    }

    /// The same, durably.
    pub(crate) fn durable_epoch(&self) -> Result<Option<PersistentEpoch>, StoreError> {
        if !is_there(&*self.shared.medium)? {
            return Ok(None);
        }
        let slots = open(&*self.shared.medium)?;
        let synced = slots.sync().map_err(|e| StoreError::io("sync", self.shared.medium.path(NAME), 0, 0, e));
        synced.map(|()| Some(epoch_in(&slots)))
    }

    /// Writes the file once more, as it is, durably: the process that wrote it last may have ended
    /// before it could sync it.
    pub(crate) fn renew_persistent_epoch(&self) -> Result<(), StoreError> {
        let mut file = self.open_persistent_epoch()?;
        file.persist(epoch_in(&file.slots))
    }

    /// Makes the file again, durably.
    pub(crate) fn begin_epochs(&self, first: PersistentEpoch) -> Result<PersistentEpochFile, StoreError> {
        let bytes = Slots::first(&[first.epoch, first.end.0]);
        let made = self.shared.medium.create(NAME, SLOTS_FILE, &bytes);
        made.map_err(|e| StoreError::io("make", self.shared.medium.path(NAME), 0, SLOTS_FILE, e))?;
        self.open_persistent_epoch()
    }

    /// Removes the file, durably, if it is there.
    pub(crate) fn end_epochs(&self) -> Result<(), StoreError> {
        if !is_there(&*self.shared.medium)? {
            return Ok(());
        }
        let removed = self.shared.medium.remove(NAME);
        removed.map_err(|e| StoreError::io("remove", self.shared.medium.path(NAME), 0, 0, e))
    }
}

impl PersistentEpochFile {
    /// Makes `now` the persistent epoch. Durable when this returns.
    pub(crate) fn persist(&mut self, now: PersistentEpoch) -> Result<(), StoreError> {
        let path = || self.store.shared.medium.path(NAME);
        let written = self.slots.write([now.epoch, now.end.0]);
        written.map_err(|e| self.store.fail(StoreError::io("write", path(), 0, SLOTS_FILE, e)))?;
        self.slots.sync().map_err(|e| self.store.fail(StoreError::io("sync", path(), 0, 0, e)))
    }
}
