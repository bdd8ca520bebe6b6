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
//! | 1 | bound: all blocks of this stream with smaller LSNs lie below that position |
//! | 2 | anchor's LSN: below it every stream of the log was durable |
//! | 3 | anchor's position: where this stream's blocks from the anchor's LSN on begin |
//! | 4 | incarnation of the log; 0 if it has none (module `parts`) |
//! | 5 | how often the node's control file was written, at least |
//!
//! A version before this one wrote the first four.
//!
//! In a log of one stream, positions are LSNs, and all four are the same.

use std::{io, sync::Arc};

use freshet_base::Lsn;

pub(super) use super::slots::SLOTS_FILE as MARK_FILE;
use super::slots::Slots;
use crate::medium::MediumFile;

/// How far one stream is durable, and where in it the others have to be compared with it after a
/// crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Everything below this position of the stream is durable.
    pub(crate) position: Lsn,
    /// All blocks of the stream with smaller LSNs lie below `position`.
    pub(crate) bound: Lsn,
    /// Below this LSN, all streams were durable when the note was made.
    pub(crate) anchor: Lsn,
    /// The stream's blocks with LSNs from `anchor` on lie at or above this position.
    pub(crate) anchor_position: Lsn,
}

impl Note {
    /// The note of a log with one stream.
    pub const fn alone(to: Lsn) -> Self {
        Self { position: to, bound: to, anchor: to, anchor_position: to }
    }

    const fn words(&self) -> [u64; 4] {
        [self.position.0, self.bound.0, self.anchor.0, self.anchor_position.0]
    }
}

/// What ties the note to the control file of the node ([`crate::parts`]). Zero where nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tie {
    /// The log's incarnation.
    pub(crate) life: u64,
    /// How often the control file was written when the note was made, at least.
    pub(crate) writes: u64,
}

/// The open file and what its newest slot says.
#[derive(Debug)]
pub(super) struct Mark(Slots<6>);

fn words(note: &Note, tie: Tie) -> [u64; 6] {
    let [a, b, c, d] = note.words();
    [a, b, c, d, tie.life, tie.writes]
}

impl Mark {
    /// What a new file begins with.
    pub(super) fn first(note: &Note, tie: Tie) -> Vec<u8> {
        Slots::first(&words(note, tie))
    }

    /// Reads the newest slot; none when neither holds.
    pub(super) fn open(file: Arc<dyn MediumFile>) -> io::Result<Option<Self>> {
        let slots = match Slots::open(Arc::clone(&file))? {
            None => Slots::<4>::open(file)?.map(Slots::widened),
            slots => slots,
        };
        Ok(slots.map(Self))
    }

    pub(super) fn note(&self) -> Note {
        let [position, bound, anchor, anchor_position, ..] = self.0.words().map(Lsn);
        Note { position, bound, anchor, anchor_position }
    }

    pub(super) fn tie(&self) -> Tie {
        let [.., life, writes] = *self.0.words();
        Tie { life, writes }
    }

    /// Writes the other slot.
    pub(super) fn write(&mut self, note: Note, tie: Tie) -> io::Result<()> {
        self.0.write(words(&note, tie))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}
