//! A mirror's memory: the rows of a database in the memory of another node, which the primary keeps
//! up to date by one-sided writes (Active-Memory, section 4). Nothing here sends or waits.
//!
//! Each record has a *slot* at a place that follows from its table and its id, so that a change is
//! written where the row lies, and only the bytes that differ. The primary alone decides what lies
//! where ([`Layout`]). It says so in a *directory* at a fixed place, so that the memory can be read
//! without it ([`Contents`]).
//!
//! # The memory
//!
//! | region | holds |
//! |---|---|
//! | 0 | the [`Superblock`] in two copies, at bytes 0 and 512; the mark, a word at [`MARK`]; from [`DIRECTORY`] on the directory, 64 bytes for each chunk |
//! | 1 | the undo ring ([`Ring`]) |
//! | others | *arenas*, which the mirror adds when it is asked to; chunks lie in them; or more of the undo ring, as words of the head say from byte 2048 on |
//!
//! A *chunk* has slots of one size. One of a table holds records whose ids follow one another, from
//! 8 to 4096, as its neighbours do. Its slots are as long as fits the newest rows of the table best
//! (`sizes.rs`). A row that is longer lies in a slot of an *overflow* chunk, and its record's slot
//! says where.
//!
//! | slot, 16 bytes and the row | little endian |
//! |---|---|
//! | 0..8   | the record's address in the log; the larger one is the newer |
//! | 8..12  | length of the row; bit 31: the record was deleted; bit 30: its row lies elsewhere |
//! | 12..16 | CRC-32C over table, id, bytes 0..12, and the row or where it lies |
//! | 16..   | the row; or region and checksum (four bytes each) and offset of where it lies |
//!
//! A slot of zeros was never used. A deletion writes nothing but the header. A row elsewhere is
//! never written over: the next one gets another slot, and the old one is free when what replaces
//! it is committed ([`Layout::committed`]). So what a change destroys, and an undo entry has to
//! keep (section 4.4), lies in a slot; of a deletion, and of an insertion into a slot that was
//! never used or whose record's deletion is committed, it is the header alone.
//!
//! # Space that is used again
//!
//! Slots of deleted records wait for others with their ids, and slots of rows elsewhere for rows of
//! the same size. An overflow chunk in which no row is left becomes whatever is needed next: its
//! entry in the directory is replaced, which an undo entry can take back. When the deletion of a
//! table's record in the catalog is committed, each change that follows gives up one of the table's
//! chunks: the entry says that it is free. It is used again when that is committed, too, so that
//! no recovery meets slots of a table in memory that has something else. A chunk of a table that
//! takes such a place is filled with zeros first.
//!
//! # Batches
//!
//! What a batch of the log changes ([`Batch`]) goes to a mirror as one list ([`Build`]): first undo
//! entries ([`Ring`]), then the changes (section 4.5.1), of each record only the last one. Several
//! batches may be under way. When a client may be told of one, the mark follows. If the feeder
//! fails, [`recover`] brings the memory to the state after a batch (section 5). A mirror that takes
//! over does to its own memory what a feeder would ([`Taking`]).
//!
//! What lies in this memory was written by another node, or by no node for years: nothing is
//! believed before its bounds and its checksum were looked at, and what is wrong is [`Damaged`].
#![forbid(unsafe_code)]

mod batch;
mod build;
mod chunks;
mod directory;
mod elsewhere;
mod fetched;
mod fill;
mod footprint;
mod fuzzy_snapshot;
mod layout;
mod list;
mod own;
mod read;
mod recover;
mod sizes;
mod slot;
mod space;
mod take;
#[cfg(test)]
mod tests;
mod undo;

pub use self::{
    batch::{Batch, NotABatch, changes_of_slot},
    build::Build,
    directory::{ARENAS, DIRECTORY, MARK, MOST_UNDO, Superblock, UNDO},
    fetched::FetchedLog,
    fill::Filling,
    footprint::{Footprint, Keep, Status},
    fuzzy_snapshot::FuzzySnapshot,
    layout::{Before, Layout, NoRoom, NotPut, Record},
    list::List,
    own::Here,
    read::{Contents, Damaged, mark_of},
    recover::{Plan, Recovered, begin_feed, beginning, cut, footprint, plan, recover, settling},
    take::{NotBegun, NotTaken, Taking},
    undo::{Extent, Ring, RingFull, note_undo, undo_regions},
};

/// How long things are, in bytes, for those who reckon what a mirror takes.
pub mod format {
    /// What a slot has before its row.
    pub const SLOT_HEADER: usize = crate::slot::HEADER;
    /// Slots have multiples of this number of bytes.
    pub const SLOT_STEP: usize = crate::sizes::STEP;
    /// No slot has less.
    pub const LEAST_SLOT: usize = crate::slot::LEAST;
    pub use crate::undo::{CHANGE as CHANGE_HEADER, ENTRY, FRAME as ENTRY_FRAME};
}

/// The number at byte `at`.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// The half of a word at byte `at`.
fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}
