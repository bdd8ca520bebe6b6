//! What a feeder has left in a mirror's undo ring (Active-Memory, section 5.2).

use freshet_base::Lsn;

/// Which batches a recovery keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those that have landed wholly, with all before them.
    Whole,
    /// Those that end at this LSN or below.
    Marked(Lsn),
}

/// What a mirror has of a batch (Active-Memory, section 5.2, step 4). That it has nothing of one
/// shows from what it has of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// An undo entry is torn, or the last one is missing. Entries land before data, so the data is
    /// untouched.
    Corrupt,
    /// The undo entries are whole. The data may be untouched, torn or complete.
    Logged,
    /// It is marked: all of it has landed, here and elsewhere.
    CommitReady,
}

/// What the feeder has left in a mirror's undo ring: batches that follow one another
/// without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Where the first of them begins. Nothing below can be undone; all of it is marked.
    pub begin: Lsn,
    /// Where each of them ends, oldest first, and its status.
    pub batches: Vec<(Lsn, Status)>,
}

impl Footprint {
    /// Everything below is ready.
    pub fn ready(&self) -> Lsn {
        let ready = self.batches.iter().take_while(|(_, status)| *status == Status::CommitReady);
        ready.last().map_or(self.begin, |(end, _)| *end)
    }
}
