//! What replay does to a record: where replication schemes differ.

use freshet_base::Lsn;
use freshet_log::{Block, PlacedRecord, RecordHeader};
use freshet_storage::{Catalog, Content, Guard};

use crate::ReplayError;

/// What one replay thread does with what the log says, besides that it announces each record's
/// address in the replay array ([`Content::replay_counted`]). All of it is idempotent, and in no
/// order but that of [`Redo::cut`].
pub trait Redo: Send {
    /// A part of the log comes.
    fn begin(&mut self, _guard: &Guard<'_>, _catalog: &Catalog) {}

    /// Whether the versions of the block at `at` are there, and its index entries, without replay.
    fn has(&self, _at: Lsn) -> bool {
        false
    }

    /// A record is going to be announced. Returns `false` when its record id is impossible.
    ///
    /// # Errors
    /// See [`ReplayError`].
    fn record(&mut self, guard: &Guard<'_>, content: &Content, record: &PlacedRecord<'_>) -> Result<bool, ReplayError>;

    /// A transaction comes whose inputs alone are in the log.
    ///
    /// # Errors
    /// [`ReplayError::Inputs`], unless somebody is going to execute it again.
    fn inputs(&mut self, block: &Block<'_>) -> Result<(), ReplayError> {
        Err(ReplayError::Inputs { at: block.lsn() })
    }

    /// Takes the record at `address` back, whose announcement was taken back: the log is being cut.
    /// Records come newest first, and no reader has seen them.
    fn cut(&mut self, guard: &Guard<'_>, content: &Content, header: &RecordHeader, address: Lsn);

    /// Whether nothing more is done to records than that they are announced: that takes no longer
    /// than looking at them.
    fn only_announces(&self) -> bool {
        false
    }
}

/// Nothing more: readers make versions (Query Fresh, section 3.4.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Announce;

impl Redo for Announce {
    #[inline]
    fn record(&mut self, _: &Guard<'_>, _: &Content, _: &PlacedRecord<'_>) -> Result<bool, ReplayError> {
        Ok(true)
    }

    fn cut(&mut self, _: &Guard<'_>, _: &Content, _: &RecordHeader, _: Lsn) {}

    fn only_announces(&self) -> bool {
        true
    }
}
