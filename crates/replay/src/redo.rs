//! What replay does to a record: where replication schemes differ.

use freshet_base::{Rid, Stamp};
use freshet_log::{Block, PlacedRecord};
use freshet_storage::{Catalog, Content, Guard};

use crate::{ReplayError, Target};

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

    /// Puts a record where readers find it. Returns `false` when its record id is impossible.
    ///
    /// # Errors
    /// See [`ReplayError`].
    fn record(&mut self, guard: &Guard<'_>, content: &Content, record: &PlacedRecord<'_>) -> Result<bool, ReplayError>;

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
    fn record(&mut self, guard: &Guard<'_>, content: &Content, record: &PlacedRecord<'_>) -> Result<bool, ReplayError> {
        Ok(self.store(guard, content, &record.header, record.address))
    }

    fn cut(&mut self, _: &Guard<'_>, content: &Content, rid: Rid, address: Stamp, prev: Option<Stamp>) {
        content.replay_cut(rid, address, prev);
    }

    fn is_prompt(&self) -> bool {
        true
    }
}
