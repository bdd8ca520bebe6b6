//! A table: indirection words, the chains that hang from them, and indexes.
//!
//! A [`Table`] is what is known of a table for as long as anybody holds it; its [`Content`] goes
//! when the table was dropped and no snapshot sees it any more. It is reached under a guard, and
//! freed as versions are: when every guard that was there before is gone.
//!
//! # Access protocol
//!
//! `data[rid]` is the head of the record's version chain. It changes by
//! compare-exchange (release, so that the version behind it is seen whole; read
//! with acquire):
//!
//! - a writer puts its uncommitted version on top, if the head is committed and visible to it; from
//!   then on only it may change the word, until it commits or takes its version back;
//! - a reader replaces a log address by the version that it loaded from there;
//! - a reader puts the sub-chain on top that replay has announced (below);
//! - a thread that trims, on a primary, clears the word of a record whose tombstone all can see,
//!   and has its id; on a standby, where readers may put something newer on a tombstone,
//!   [`Content::reclaim_replayed`] notes in the word that the record is gone, as a restart does; on
//!   a primary, a thread that looks for free ids clears such words, and has the ids (module
//!   `free`).
//!
//! `replay[rid]` is the largest log address that replay has seen for the record (Query Fresh,
//! section 3.4.1), zero for none; it changes by `fetch_max`, and is taken back by
//! [`Content::replay_cut`] when the log is cut. Where it is ahead of the head and the head is
//! visible to a reader, the reader loads the missing versions from the log and installs them
//! (section 3.4.3). Under full replay, a baseline, replay makes the versions instead (module
//! `instantiate`).

mod certify;
mod examine;
mod fill;
mod free;
mod handle;
mod identity;
mod indexes;
mod instantiate;
mod materialise;
#[cfg(all(test, loom))]
mod model;
mod read;
mod reclaim;
mod record;
mod replay;
#[cfg(test)]
mod scene;
#[cfg(all(test, not(loom)))]
mod tests;
mod write;

use std::{fmt, sync::atomic::AtomicBool};

use freshet_base::{
    Fid,
    sync::{AtomicPtr, AtomicU64, Ordering},
};

use self::free::FreeIds;
pub use self::{
    certify::{Lockable, Newest},
    examine::{Damage, Examined},
    free::Reclaimed,
    handle::Table,
    indexes::{Index, IndexList},
    instantiate::Instantiated,
    read::{ReadContext, Visible},
    record::{InstallError, LoadError, Loaded, ReadError, RecordSource},
    replay::Announcement,
    write::{Change, Installed, Published},
};
use crate::{
    array::{IndirectionArray, Word},
    definition::{DefinitionError, TableDefinition},
    version::Version,
};

/// Record ids that a worker takes from a table at once.
pub(crate) const RID_RANGE: u64 = 1024;

/// How often one thread looks again at what another is about to finish. Beyond the first 4096
/// rounds it sleeps for about 100 us each time, so this is some tenths of a second.
const PATIENCE: u32 = if cfg!(loom) { 3 } else { 6_000 };

/// The records and indexes of one table.
pub struct Content {
    fid: Fid,
    name: Box<str>,
    data: IndirectionArray,
    /// May be ahead of `data`. Empty on a node that has never been a standby.
    replay: IndirectionArray,
    indexes: AtomicPtr<IndexList>,
    next_rid: AtomicU64,
    free: FreeIds,
    /// Whether index entries may lead to nothing ([`Content::may_have_leftovers`]). Not the
    /// facade's: no other memory is read on the strength of it.
    leftovers: AtomicBool,
    /// Replay counts what it does to records with smaller ids (module `identity`).
    counted: AtomicU64,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({:?}, {:?})", self.fid, self.name)
    }
}

impl Content {
    /// An empty table.
    fn new(fid: Fid, definition: &TableDefinition) -> Result<Self, DefinitionError> {
        definition.validate()?;
        Ok(Self {
            fid,
            name: definition.name.as_str().into(),
            indexes: IndexList::new(definition).publish(),
            data: IndirectionArray::new(),
            replay: IndirectionArray::of_announcements(),
            next_rid: AtomicU64::new(0),
            free: FreeIds::default(),
            leftovers: AtomicBool::new(false),
            counted: AtomicU64::new(u64::MAX),
        })
    }

    /// The table's id.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes taken by the indirection and replay arrays.
    pub fn array_bytes(&self) -> u64 {
        self.data.bytes() + self.replay.bytes()
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.free_indexes();
        self.data.for_each(|_, word| {
            if let Some(version) = Word(word.load(Ordering::Relaxed)).as_pointer() {
                // SAFETY: `&mut self`: no reader is left; chains hang from one word each.
                unsafe { Version::free_chain(version.cast()) };
            }
        });
    }
}
