//! The file that says how far the log is durable.
//!
//! It is written after every group commit, without a sync of its own ([`super::slots`]). So it
//! never claims more than is true, and after a loss of power it may claim less: it is synced
//! whenever a segment is full and at a clean close.
//!
//! It may be believed however old it is, because it is written after a sync of what it tells of,
//! and never after one that failed: then the store takes nothing more, and the next process notes
//! nothing before it has written again what lies above the note (module `tail`). Two things make an
//! old note wrong. A cut takes back what a note tells of: the lower note is made durable first,
//! again if a crash came between (module `cut`). And segments below it go: before that, and when a
//! log is settled after a restart, the note is synced, and if that fails the store takes nothing
//! more.
//!
//! | word | |
//! |---|---|
//! | 0 | position: everything below is durable here |
//! | 1 | bound: all blocks of this stream with smaller stamps lie below that position |
//! | 2 | anchor's stamp: below it every stream of the log was durable |
//! | 3 | anchor's position: where this stream's blocks from the anchor's stamp on begin |
//!
//! In a log of one stream, positions are stamps, and all four are the same.

use std::{io, sync::Arc};

use freshet_base::Stamp;

pub(super) use super::slots::SLOTS_FILE as MARK_FILE;
use super::slots::Slots;
use crate::medium::MediumFile;

/// How far one stream is durable, and where in it the others have to be compared with it after a
/// crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Everything below this position of the stream is durable.
    pub(crate) position: Stamp,
    /// All blocks of the stream with smaller stamps lie below `position`.
    pub(crate) bound: Stamp,
    /// Below this stamp, all streams were durable when the note was made.
    pub(crate) anchor: Stamp,
    /// The stream's blocks with stamps from `anchor` on lie at or above this position.
    pub(crate) anchor_position: Stamp,
}

impl Note {
    /// The note of a log with one stream.
    pub const fn alone(to: Stamp) -> Self {
        Self { position: to, bound: to, anchor: to, anchor_position: to }
    }

    const fn words(&self) -> [u64; 4] {
        [self.position.0, self.bound.0, self.anchor.0, self.anchor_position.0]
    }
}

/// The open file and what its newest slot says.
#[derive(Debug)]
pub(super) struct Mark(Slots<4>);

impl Mark {
    /// What a new file begins with.
    pub(super) fn first(note: &Note) -> Vec<u8> {
        Slots::first(&note.words())
    }

    /// Reads the newest slot; none when neither holds.
    pub(super) fn open(file: Arc<dyn MediumFile>) -> io::Result<Option<Self>> {
        Ok(Slots::open(file)?.map(Self))
    }

    pub(super) fn note(&self) -> Note {
        let [position, bound, anchor, anchor_position] = self.0.words().map(Stamp);
        Note { position, bound, anchor, anchor_position }
    }

    /// Writes the other slot.
    pub(super) fn write(&mut self, note: Note) -> io::Result<()> {
        self.0.write(note.words())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}
