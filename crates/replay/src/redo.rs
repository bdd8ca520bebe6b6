//! What replay does to a record: where replication schemes differ.

use freshet_base::{RecordKind, Rid, Stamp};
use freshet_log::{Block, PlacedRecord, RecordHeader};
use freshet_storage::{Catalog, Content, Guard};

use crate::ReplayError;

/// What one replay thread does with what the log says. All of it is idempotent, and in no order but
/// that of [`Redo::cut`].
pub trait Redo: Send {
    /// A part of the log comes.
    fn begin(&mut self, _guard: &Guard<'_>, _catalog: &Catalog) {}

    /// Whether the versions of the block at `at` are there, and its index entries, without replay.
    fn has(&self, _at: Stamp) -> bool {
        false
    }

    /// A record of this id is coming soon.
    fn expect(&self, _content: &Content, _rid: Rid) {}

    /// Puts a record where readers find it. Returns the stamp of the version that it lies over,
    /// its own if it was there already, zero for none: of a change, as far as replay has come. None
    /// when its record id is impossible.
    ///
    /// # Errors
    /// See [`ReplayError`].
    fn record(
        &mut self,
        guard: &Guard<'_>,
        content: &Content,
        record: &PlacedRecord<'_>,
    ) -> Result<Option<Stamp>, ReplayError>;

    /// A transaction comes whose inputs alone are in the log.
    ///
    /// # Errors
    /// [`ReplayError::Inputs`], unless somebody is going to execute it again.
    fn inputs(&mut self, block: &Block<'_>) -> Result<(), ReplayError> {
        Err(ReplayError::Inputs { at: block.stamp() })
    }

    /// Takes the record at `address` back, which replaced the one at `prev`: the log is being cut.
    /// Records come newest first, and no reader has seen them.
    fn cut(&mut self, guard: &Guard<'_>, content: &Content, rid: Rid, address: Stamp, prev: Option<Stamp>);

    /// Whether that takes no longer than looking at the record.
    fn is_prompt(&self) -> bool {
        false
    }
}

/// Announces each record's address in the replay array: readers make versions (Query Fresh, section
/// 3.4.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Announce;

impl Redo for Announce {
    #[inline]
    fn expect(&self, content: &Content, rid: Rid) {
        content.expect_replay(rid);
    }

    #[inline]
    fn record(
        &mut self,
        guard: &Guard<'_>,
        content: &Content,
        record: &PlacedRecord<'_>,
    ) -> Result<Option<Stamp>, ReplayError> {
        let RecordHeader { kind, rid, .. } = record.header;
        let before = content.replay_store(rid, record.address, record.header.is_first());
        // Once for each record: what a restart has found lies in the other array.
        let restored = || content.restored(guard, rid).unwrap_or_default();
        Ok(before.map(|before| if before == Stamp::ZERO && kind != RecordKind::Insert { restored() } else { before }))
    }

    fn cut(&mut self, _: &Guard<'_>, content: &Content, rid: Rid, address: Stamp, prev: Option<Stamp>) {
        content.replay_cut(rid, address, prev);
    }

    fn is_prompt(&self) -> bool {
        true
    }
}
