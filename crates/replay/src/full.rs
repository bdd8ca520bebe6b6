//! Full replay, a baseline (Query Fresh, section 4.7): one thread's means of making versions, and
//! of dropping them again.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
};

use freshet_base::{Fid, RecordKind, Rid, Stamp, Watermark};
use freshet_storage::{Catalog, Content, Guard, Instantiated, Owners, Participants, ReadContext};

use crate::{LogBytes, ReplayError, fill::Records};

/// The read view, once there is one.
pub(crate) type View = Arc<OnceLock<Arc<Watermark>>>;

/// One thread's share.
pub(crate) struct Full {
    participants: Arc<Participants>,
    view: View,
    /// Of nobody: nobody writes here.
    owners: Owners,
    /// Records with versions that can go when every snapshot is above the stamp. About in the order
    /// of stamps.
    superseded: VecDeque<(Stamp, Fid, Rid)>,
    /// Below this readers see nothing.
    floor: Stamp,
    /// The read view, and what all snapshots are above, as of the part's beginning: at or below
    /// what is replayed now.
    visible: Stamp,
    horizon: Stamp,
}

impl Full {
    pub(crate) fn new(participants: &Arc<Participants>, view: &View, floor: Stamp) -> Self {
        Self {
            floor,
            participants: Arc::clone(participants),
            view: Arc::clone(view),
            owners: Owners::new(0),
            superseded: VecDeque::new(),
            visible: Stamp::ZERO,
            horizon: Stamp::ZERO,
        }
    }

    /// Before a part: drops the versions that nobody sees any more.
    pub(crate) fn begin(&mut self, guard: &Guard<'_>, catalog: &Catalog) {
        self.visible = self.view.get().map_or(Stamp::ZERO, |view| view.get());
        self.horizon = self.participants.horizon(|| self.visible);
        while let Some((_, fid, rid)) = self.superseded.pop_front_if(|(stamp, ..)| *stamp < self.horizon) {
            if let Some(content) = catalog.get(guard, fid).and_then(|table| table.content(guard)) {
                content.trim_replayed(guard, rid, self.horizon);
            }
        }
    }

    /// Makes a version; returns whether the record id is possible.
    #[expect(clippy::too_many_arguments, reason = "a record, and where it is")]
    pub(crate) fn instantiate(
        &mut self,
        content: &Content,
        guard: &Guard<'_>,
        kind: RecordKind,
        rid: Rid,
        address: Stamp,
        row: &[u8],
        log: &dyn LogBytes,
    ) -> Result<bool, ReplayError> {
        let context = ReadContext {
            // What lies below the floor, the log may not hold any more.
            snapshot: self.visible.max(self.floor),
            me: None,
            owners: &self.owners,
            source: &Records(log),
            horizon: self.horizon,
        };
        let made = content.instantiate(guard, kind, rid, address, row, &context);
        match made.map_err(|cause| ReplayError::Read { at: address, cause: cause.to_string() })? {
            Instantiated::First | Instantiated::Known => {}
            Instantiated::Beside(stamp) => self.superseded.push_back((stamp, content.fid(), rid)),
            Instantiated::Foreign => return Ok(false),
        }
        Ok(true)
    }
}
