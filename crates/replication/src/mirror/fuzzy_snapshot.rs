//! Fuzzy snapshot: what a mirror has, read for another node while the primary writes on.
//!
//! What is read, and what is left out, is said in [`freshet_mirror::FuzzySnapshot`].
//!
//! A fuzzy snapshot waits for a while until its end is committed. But commits may wait for the very
//! node that asks, so then it ends where it does: should a failover cut the log below, that node
//! sees that it is complete only with the log of before, and begins again.
//!
//! If the connection to the primary ends while it is read, changes may be undone whose records were
//! left out: then it is given up.

use std::{
    thread,
    time::{Duration, Instant},
};

use freshet_base::{Fid, Lsn, Rid, sync::Arc};
use freshet_cluster::term::TermState;
use freshet_mirror::Damaged;

use super::Shared;

/// What is being written is whole after this time, and committed, or the fuzzy snapshot is given
/// up.
const PATIENCE: Duration = Duration::from_secs(4);
/// It is looked at this often.
const LOOK: Duration = Duration::from_millis(1);

/// Takes fuzzy snapshots of a mirror's memory.
#[derive(Clone)]
pub struct FuzzySnapshots(pub(super) Arc<Shared>);

impl std::fmt::Debug for FuzzySnapshots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fuzzy snapshots({})", self.0.who.node)
    }
}

/// A fuzzy snapshot of a mirror's memory.
pub struct FuzzySnapshot {
    shared: Arc<Shared>,
    read: freshet_mirror::FuzzySnapshot,
    session: u64,
}

impl std::fmt::Debug for FuzzySnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fuzzy snapshot({:?})", self.read)
    }
}

/// Asks until there is an answer other than an error that may pass, as long as `waits` says, which
/// may take its time.
fn patiently<T, E>(
    mut ask: impl FnMut() -> Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
    waits: impl Fn() -> bool,
) -> Result<T, E> {
    loop {
        match ask() {
            Err(why) if may_pass(&why) && waits() => {}
            answer => return answer,
        }
    }
}

/// What looks damaged may just be written: says, after a pause, whether to look again. What is
/// being written is whole after [`PATIENCE`] if its primary is alive then. One that has died leaves
/// it as it is, and is silent; when that is noticed, the memory is another session's.
fn writing(shared: &Shared, session: u64) -> impl Fn() -> bool {
    let (alive, deadline) = (shared.clock.now().after(PATIENCE), Instant::now() + PATIENCE);
    move || {
        let is_heard = || shared.state().observed.is_some_and(|(_, at)| at >= alive);
        let is_silent = || shared.follow.following().is_some() && !is_heard();
        let waits = Instant::now() < deadline || is_silent() && shared.memory().session() == session;
        if waits {
            thread::sleep(LOOK);
        }
        waits
    }
}

const TAKEN_BACK: &str = "this mirror's memory was taken back from its primary while it was read: ask again";

/// Why a memory was not read.
pub(super) enum NotRead {
    /// It may be at another time.
    Now(String),
    /// It is not what was written.
    Damaged(Damaged),
}

impl NotRead {
    /// The message to the node that asks.
    fn message(self) -> String {
        match self {
            Self::Now(why) => why,
            Self::Damaged(why) => format!("{why}: ask another node"),
        }
    }
}

impl FuzzySnapshots {
    /// What the mirror remembers of terms, and knows to be committed of what it holds.
    pub fn state(&self) -> TermState {
        let terms = self.0.terms.get();
        TermState { committed: self.0.committed(&terms), ..terms }
    }

    /// Begins one. Blocks for up to four seconds while the primary is writing into the directory.
    ///
    /// # Errors
    /// Why none can be taken.
    pub fn take(&self) -> Result<FuzzySnapshot, String> {
        self.taken().map_err(NotRead::message)
    }

    pub(super) fn taken(&self) -> Result<FuzzySnapshot, NotRead> {
        let shared = Arc::clone(&self.0);
        let (regions, session, start) = {
            let memory = shared.memory();
            (memory.regions(), memory.session(), memory.stays_to())
        };
        let Some(start) = shared.state().mirror_state.fuzzy_snapshot_from(start) else {
            return Err(NotRead::Now("this mirror is empty, or is being filled: ask another node".into()));
        };
        // Its directory may just be written.
        let begin = || freshet_mirror::FuzzySnapshot::begin(regions.clone(), start);
        let read = patiently(begin, |why| matches!(why, Damaged::Entry { .. }), writing(&shared, session));
        if self.0.memory().session() != session {
            return Err(NotRead::Now(TAKEN_BACK.into()));
        }
        let read = read.map_err(NotRead::Damaged)?;
        Ok(FuzzySnapshot { shared, read, session })
    }
}

impl FuzzySnapshot {
    /// Where it begins.
    pub fn start(&self) -> Lsn {
        self.read.start()
    }

    /// The newest change so far that was left out.
    pub fn newest(&self) -> Option<Lsn> {
        self.read.newest()
    }

    /// The chunks of records, and whose table's they are.
    pub fn chunks(&self) -> impl Iterator<Item = (Fid, usize)> {
        self.read.chunks()
    }

    /// Calls `visit` for the records of a chunk that have not changed since the start, deleted ones
    /// with no row. Blocks for up to four seconds while the primary is writing one of them, and
    /// while it is silent.
    ///
    /// # Errors
    /// Why the fuzzy snapshot is given up.
    pub fn visit(&mut self, chunk: usize, visit: impl FnMut(Rid, Lsn, Option<&[u8]>)) -> Result<(), String> {
        self.visited(chunk, visit).map_err(NotRead::message)
    }

    pub(super) fn visited(&mut self, chunk: usize, visit: impl FnMut(Rid, Lsn, Option<&[u8]>)) -> Result<(), NotRead> {
        let visited = self.read.visit(chunk, writing(&self.shared, self.session), visit);
        // What has happened to the memory may have damaged what was read.
        self.check().map_err(NotRead::Now)?;
        visited.map_err(NotRead::Damaged)
    }

    /// Where it ends, when everything was read. Blocks for up to four seconds.
    ///
    /// # Errors
    /// Why the fuzzy snapshot is given up.
    pub fn end(&self) -> Result<Lsn, String> {
        let least = self.read.least();
        let committed = || {
            let (announced, mark) = (self.shared.state().mirror_state.announced(), self.shared.memory().mark());
            Some(announced.max(mark)).filter(|committed| *committed >= least).ok_or(())
        };
        let deadline = Instant::now() + PATIENCE;
        let waits = || {
            thread::sleep(LOOK);
            Instant::now() < deadline
        };
        let committed = patiently(committed, |()| true, waits);
        // Of another primary it may be another log.
        self.check()?;
        Ok(committed.unwrap_or(least))
    }

    /// Whether the memory is still what it was, but for what the same primary has written.
    fn check(&self) -> Result<(), String> {
        match self.shared.memory().session() == self.session {
            true => Ok(()),
            false => Err(TAKEN_BACK.into()),
        }
    }
}
