//! Full replay, a baseline (Query Fresh, section 4.7): replay makes the versions, and drops them
//! again.

use std::{collections::VecDeque, sync::Arc};

use freshet_base::{Fid, Lsn, Rid};
use freshet_log::{PlacedRecord, RecordHeader};
use freshet_replay::{Records, Redo, ReplayError};
use freshet_storage::{Catalog, Content, Guard, Instantiated, Owners, Participants, ReadContext};

use super::{Ground, Replaying};
use crate::source::VersionSource;

/// Versions that no snapshot sees are dropped when all snapshots have moved on by this many bytes
/// of log, and by a quarter of what they are behind: then those that are looked at, and stay, are
/// at most four times as many as those that go.
const DROP_EVERY: u64 = 64 << 10;

/// Replay makes versions.
pub(crate) struct Full;

impl Replaying for Full {
    fn redo(&self, ground: &Ground) -> Box<dyn Redo> {
        Box::new(Instantiate {
            participants: Arc::clone(&ground.participants),
            source: Arc::clone(&ground.source),
            records: ground.records.clone(),
            floor: ground.floor,
            owners: Owners::new(0),
            superseded: VecDeque::new(),
            dropped: Lsn::ZERO,
            due: Vec::new(),
            visible: Lsn::ZERO,
            horizon: Lsn::ZERO,
            row: Vec::new(),
        })
    }
}

/// One thread's share.
struct Instantiate {
    participants: Arc<Participants>,
    source: Arc<VersionSource>,
    records: Records,
    /// Below this readers see nothing.
    floor: Lsn,
    /// Of nobody: nobody writes here.
    owners: Owners,
    /// Records with versions that can go when every snapshot is above the LSN. About in the order
    /// of LSNs.
    superseded: VecDeque<(Lsn, Fid, Rid)>,
    /// Where all snapshots were when the last of these went.
    dropped: Lsn,
    /// Memory that is used again.
    due: Vec<(Fid, Rid)>,
    /// The read view, and what all snapshots are above, as of the part's beginning: at or below
    /// what is replayed now.
    visible: Lsn,
    horizon: Lsn,
    row: Vec<u8>,
}

impl Redo for Instantiate {
    /// Drops the versions that no snapshot sees any more, now and then: one look at a record drops
    /// all of its own, and keeps those that are still seen.
    fn begin(&mut self, guard: &Guard<'_>, catalog: &Catalog) {
        self.visible = self.source.visible();
        self.horizon = self.participants.horizon(|| self.visible);
        let behind = self.visible.0.saturating_sub(self.horizon.0);
        if self.horizon < self.dropped.plus(DROP_EVERY.max(behind / 4)) {
            return;
        }
        self.dropped = self.horizon;
        while let Some((_, fid, rid)) = self.superseded.pop_front_if(|(lsn, ..)| *lsn < self.horizon) {
            self.due.push((fid, rid));
        }
        self.due.sort_unstable();
        self.due.dedup();
        for (fid, rid) in self.due.drain(..) {
            if let Some(content) = catalog.get(guard, fid).and_then(|table| table.content(guard)) {
                content.trim_replayed(guard, rid, self.horizon);
            }
        }
    }

    fn record(&mut self, guard: &Guard<'_>, content: &Content, record: &PlacedRecord<'_>) -> Result<bool, ReplayError> {
        let PlacedRecord { address, header, .. } = *record;
        let context = ReadContext {
            // What lies below the floor, the log may not hold any more.
            snapshot: self.visible.max(self.floor),
            me: None,
            owners: &self.owners,
            source: &self.records,
            horizon: self.horizon,
        };
        let made = content.instantiate(guard, header.kind, header.rid, address, record.row(&mut self.row), &context);
        match made.map_err(|cause| ReplayError::Read { at: address, cause: cause.to_string() })? {
            Instantiated::First | Instantiated::Known => {}
            Instantiated::Beside(newest) => self.superseded.push_back((newest, content.fid(), header.rid)),
            Instantiated::Foreign => return Ok(false),
        }
        Ok(true)
    }

    fn cut(&mut self, guard: &Guard<'_>, content: &Content, header: &RecordHeader, address: Lsn) {
        content.instantiate_cut(guard, header.rid, address);
    }
}
