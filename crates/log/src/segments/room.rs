//! Waiting for room: on a file system that is full, or in a process that has no descriptor left,
//! the next segment is made as soon as it can be, and the log continues.
//!
//! Segments are made ahead of need, so room is missed while there is still half a segment for what
//! is under way. From then on the store [lacks room](Lack); a transaction that writes is told so,
//! and turned away. When the half is used up, appending waits, and the store
//! [is stalled](Lack::stalled). Both end when the segment is made, or when waiting is
//! [ended](Room::set_patient) by a close.
//!
//! This is not how a failed disk is treated: an attempt to make a segment that fails leaves nothing
//! behind, and a write that finds no room has told so before any sync. A sync that fails is never
//! tried again.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use super::{StoreError, error::is_full, lock};
use crate::control::ControlError;

/// The first pause between two attempts, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(250)];

/// What a log waits for.
#[derive(Clone, Debug)]
pub struct OutOfSpace {
    /// Where there is no room.
    pub directory: PathBuf,
    /// What could not be done, and what the operating system said.
    pub error: String,
    /// Since when.
    pub since: Instant,
    /// Whether anything waits to be written already; else there is some room left for what is under
    /// way.
    pub stalled: bool,
}

impl fmt::Display for OutOfSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log waits for room in {}: {}", self.directory.display(), self.error)
    }
}

/// What room is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A segment to which nothing is to be written yet.
    Later,
    /// A segment to which something is to be written.
    Now,
    /// What is to be written to a segment that is there.
    Bytes,
}

/// How a store, or a journal, is off for room.
#[derive(Debug)]
pub struct Room {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// [`ENOUGH`], [`LACKING`] or [`STALLED`]: what `waiting` says, to be looked at without its
    /// lock.
    level: AtomicU8,
}

const ENOUGH: u8 = 0;
const LACKING: u8 = 1;
const STALLED: u8 = 2;

#[derive(Debug)]
struct Waiting {
    out_of_space: Option<OutOfSpace>,
    /// Whether an attempt is repeated.
    patient: bool,
    /// A thread that waits for what it needs later is to leave it to the one that needs it now.
    hurry: bool,
}

impl Default for Room {
    fn default() -> Self {
        let waiting = Waiting { out_of_space: None, patient: true, hurry: false };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new(), level: AtomicU8::new(ENOUGH) }
    }
}

impl StoreError {
    /// Whether the same may succeed later, when there is room again; nothing was done then.
    pub(crate) fn lacks_room(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::Io { source, .. } => is_out_of_descriptors(source),
            Self::Directory(ControlError::Io { source, .. }) => is_out_of_descriptors(source) || is_full(source),
            _ => false,
        }
    }

    /// What could not be done, without a remedy.
    fn cause(&self) -> String {
        match self {
            Self::NoSpace { file, needed } => format!("no space left for {} ({needed} bytes needed)", file.display()),
            Self::Io { doing, file, source, .. } => format!("cannot {doing} {}: {source}", file.display()),
            other => other.to_string(),
        }
    }
}

/// Whether the process, or the machine, has no descriptor left.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Room {
    /// Tries until it succeeds, fails for another reason than room, or is not to be tried any more.
    /// `directory` is for messages; `wanted` says whether anybody is left who wants it.
    ///
    /// # Errors
    /// Those of the last attempt.
    pub(crate) fn wait<T>(
        &self,
        need: Need,
        directory: impl Fn() -> PathBuf,
        wanted: impl Fn() -> bool,
        mut attempt: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut pause = PAUSES[0];
        let mut has_begun = false;
        loop {
            let error = match attempt() {
                Err(error) if error.lacks_room() => error,
                done => {
                    // That there is room in this segment means nothing for the next one.
                    if has_begun || need != Need::Bytes {
                        self.end(done.is_ok());
                    }
                    return done;
                }
            };
            let mut waiting = lock(&self.waiting);
            let stop = |waiting: &Waiting| !waiting.patient || waiting.hurry && need == Need::Later;
            if stop(&waiting) || !wanted() {
                return Err(error);
            }
            self.begin(&mut waiting, need, &directory, &error);
            has_begun = true;
            let waited = self.changed.wait_timeout_while(waiting, pause, |waiting| !stop(waiting));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    fn begin(&self, waiting: &mut Waiting, need: Need, directory: &impl Fn() -> PathBuf, error: &StoreError) {
        let stalled = need != Need::Later;
        match &mut waiting.out_of_space {
            Some(out_of_space) => {
                out_of_space.stalled |= stalled;
                out_of_space.error = error.cause();
            }
            none => {
                let (directory, since) = (directory(), Instant::now());
                let out_of_space = none.insert(OutOfSpace { directory, error: error.cause(), since, stalled });
                tracing::warn!(
                    directory = %out_of_space.directory.display(),
                    cause = %out_of_space.error,
                    "the log waits for room: what was under way waits, new transactions that write are refused, and reads \
                     are answered until there is some"
                );
            }
        }
        let level = if waiting.out_of_space.as_ref().is_some_and(|out_of_space| out_of_space.stalled) {
            STALLED
        } else {
            LACKING
        };
        // Relaxed: a reader that wants to know more takes the lock.
        self.level.store(level, Ordering::Relaxed);
    }

    /// The wait is over, with or without success.
    pub(super) fn end(&self, has_room: bool) {
        if self.level.load(Ordering::Relaxed) == ENOUGH {
            return;
        }
        let mut waiting = lock(&self.waiting);
        self.level.store(ENOUGH, Ordering::Relaxed);
        if let Some(out_of_space) = waiting.out_of_space.take().filter(|_| has_room) {
            let (directory, waited_s) = (out_of_space.directory.display(), out_of_space.since.elapsed().as_secs_f64());
            tracing::info!(%directory, waited_s, "the log has room again");
        }
    }

    /// A thread that waits for what it needs later leaves it to the caller, or may wait again.
    pub(super) fn set_hurry(&self, hurry: bool) {
        lock(&self.waiting).hurry = hurry;
        self.changed.notify_all();
    }

    /// Whether room is waited for. Else one attempt is all, and waits under way end.
    pub fn set_patient(&self, patient: bool) {
        lock(&self.waiting).patient = patient;
        self.changed.notify_all();
    }

    /// What is waited for, if anything is.
    pub fn out_of_space(&self) -> Option<OutOfSpace> {
        if self.is_enough() {
            return None;
        }
        lock(&self.waiting).out_of_space.clone()
    }

    /// Cheap.
    pub(super) fn is_enough(&self) -> bool {
        self.level.load(Ordering::Relaxed) == ENOUGH
    }

    /// Cheap.
    pub(super) fn is_stalled(&self) -> bool {
        self.level.load(Ordering::Relaxed) == STALLED
    }
}
