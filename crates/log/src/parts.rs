//! Whether the parts of a node's directory belong together.
//!
//! The control file and the files of the log may lie on several devices, and any of them can be
//! lost, or set back to what it was before, without the others. A node that does not notice would
//! vote with a log that is not its own, or forget what it has promised. So each of them says
//! something of the others, which stays true however old it becomes:
//!
//! - the control file: the *incarnation* of the log, a random number, made before its first file;
//!   how far each stream was durable, at least (`reached`), noted by [`noting`] and at a clean
//!   close; and how often it was written itself (`writes`)
//! - the `watermark` of each stream: the incarnation, and how often the control file was written,
//!   at least, noted with each watermark and by [`noting`]
//! - segments, checkpoints and the journal: the incarnation
//!
//! The order makes each true. A watermark is synced before `reached` speaks of it, and the control
//! file is in its place before a watermark counts it. A cut makes the log shorter than it was:
//! `reached` is lowered to the cut first, durably, and does not rise again before the cut is done.
//! What a restart cuts off lies above the watermarks, or above the persistent epoch, and `reached`
//! never passes these.
//!
//! What nobody can tell so is that the whole directory is older: only other nodes know that. Nor is
//! a log noticed that is older by less than the time between two notes.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use freshet_base::{Lsn, Regularly};

use crate::{
    control::{Control, ControlError, replace},
    segments::{SegmentStore, StoreError, Tie, WeakStore},
    store::LogStore,
};

/// How often it is looked whether there is something to note.
const LOOK: Duration = Duration::from_secs(1);
/// How long a log that grows slowly is not noted.
const PAUSE: Duration = Duration::from_secs(10);

/// What to do with a directory that is of no use any more, for messages: it may be the last copy.
pub const KEEP_ASIDE: &str = "first see what the other nodes hold (freshet status ADDRESS, for each of them): \
     this may be the last copy of something; if they hold everything, keep this directory aside, whole, and let the node \
     join its cluster with a new one";

/// The control file of a directory that is in use, and the log that it is tied to.
#[derive(Debug)]
pub(crate) struct ControlFile {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    control: Control,
    streams: Vec<WeakStore>,
    /// A cut is under way, or has failed: `reached` must not rise.
    cutting: bool,
    /// How many cuts were begun.
    cuts: u64,
    /// When `reached` was noted last.
    noted: Option<Instant>,
}

impl ControlFile {
    /// In the directory `path`.
    pub(crate) fn new(path: &Path, control: Control) -> Self {
        let state = State { control, streams: Vec::new(), cutting: false, cuts: 0, noted: None };
        Self { path: path.to_owned(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole after a panic, too: it is changed in single steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the directory is.
    pub(crate) fn directory(&self) -> &Path {
        &self.path
    }

    pub(crate) fn control(&self) -> Control {
        self.state().control.clone()
    }

    /// Changes the file, durably.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Control)) -> Result<(), ControlError> {
        self.write(&mut self.state(), change)
    }

    fn write(&self, state: &mut State, change: impl FnOnce(&mut Control)) -> Result<(), ControlError> {
        let mut changed = state.control.clone();
        change(&mut changed);
        changed.writes += 1;
        replace(&self.path, &changed)?;
        state.control = changed;
        let tie = state.control.tie();
        state.streams.iter().filter_map(WeakStore::upgrade).for_each(|stream| stream.set_tie(tie));
        Ok(())
    }

    /// Ties the log to this file from now on.
    pub(crate) fn attach(self: &Arc<Self>, store: &LogStore) {
        let mut state = self.state();
        let streams = || (0..store.streams()).map(|stream| store.stream(stream));
        streams().for_each(|stream| stream.set_tie(state.control.tie()));
        state.streams = streams().map(SegmentStore::downgrade).collect();
        drop(state);
        store.attach(self);
    }

    /// Before anything is cut, so that each stream ends at its position.
    pub(crate) fn begin_cut(&self, positions: &[Lsn]) -> Result<(), ControlError> {
        let mut state = self.state();
        state.cutting = true;
        state.cuts += 1;
        let Some(reached) = state.control.reached.clone() else { return Ok(()) };
        let lowered: Vec<_> = reached.iter().zip(positions).map(|(reached, cut)| *reached.min(cut)).collect();
        if lowered == reached { Ok(()) } else { self.write(&mut state, |control| control.reached = Some(lowered)) }
    }

    /// The cut is durable.
    pub(crate) fn end_cut(&self) {
        self.state().cutting = false;
    }

    /// Notes how far the log is durable, and in the log how often this file was written. Nothing is
    /// noted twice. Without `pause`, also when the last note is not old.
    pub(crate) fn note(&self, pause: Option<Duration>) -> Result<(), StoreError> {
        let (streams, cuts, known, rests) = {
            let state = self.state();
            let streams: Option<Vec<_>> = state.streams.iter().map(WeakStore::upgrade).collect();
            let rests = pause.is_some_and(|pause| state.noted.is_some_and(|noted| noted.elapsed() < pause));
            (streams.unwrap_or_default(), state.cuts, state.control.reached.clone(), rests)
        };
        for stream in &streams {
            stream.note_tie()?;
        }
        let grown = |known: &[Lsn], now: &[Lsn]| {
            let segment = streams[0].config().segment_size;
            known.iter().zip(now).any(|(known, now)| now.0.saturating_sub(known.0) >= segment)
        };
        let is_begun = |stream: &SegmentStore| stream.extent().is_some();
        if streams.is_empty() || !streams.iter().all(is_begun) {
            return Ok(());
        }
        let now = places(&streams);
        // What was written to the medium and not synced must not be told of. Not under the lock: a
        // device that hangs must not hold up what has nothing to do with it.
        let known = known.unwrap_or_default();
        if now == known || rests && !grown(&known, &now) {
            return Ok(());
        }
        streams.iter().try_for_each(SegmentStore::sync_watermark)?;
        let epoch = streams[0].durable_epoch()?.filter(|_| streams.len() == 1);
        let reached = now.iter().map(|place| epoch.map_or(*place, |epoch| epoch.end.min(*place))).collect();
        let mut state = self.state();
        if state.cutting || state.cuts != cuts {
            return Ok(());
        }
        state.noted = Some(Instant::now());
        if Some(&reached) != state.control.reached.as_ref() {
            self.write(&mut state, |control| control.reached = Some(reached))?;
        }
        Ok(())
    }
}

/// How far each stream was noted to be durable, so that no restart cuts it below.
fn places(streams: &[SegmentStore]) -> Vec<Lsn> {
    // In a log of several streams, all are durable below an anchor, and no bound says that.
    let place = |stream: &SegmentStore| match streams.len() {
        1 => stream.noted().position,
        _ => stream.noted().anchor_position,
    };
    streams.iter().map(place).collect()
}

/// Whether the files of `store`, the log of the node in `path`, belong to `control`. `directories`
/// are those of its streams, where they have any. Changes nothing.
///
/// # Errors
/// [`ControlError::LogGone`]; [`ControlError::Apart`].
pub(crate) fn check(
    path: &Path,
    control: &Control,
    directories: &[PathBuf],
    store: &LogStore,
) -> Result<(), ControlError> {
    let apart = |what: String| Err(ControlError::Apart { directory: path.to_owned(), what });
    let streams: Vec<_> = (0..store.streams()).map(|stream| store.stream(stream).clone()).collect();
    let places = places(&streams);
    for (number, stream) in streams.iter().enumerate() {
        let place = directories.get(number).map_or(path, PathBuf::as_path);
        // The note of how far it is durable is the first that is made of a log, and stays.
        if control.log.is_some() && !stream.is_begun() {
            return Err(ControlError::LogGone { missing: place.to_owned(), directory: path.to_owned() });
        }
        let note = stream.note_file().display().to_string();
        let (end, is_there) = (stream.extent().map_or(Lsn::ZERO, |(_, end)| end), stream.extent().is_some());
        if !is_there && (control.log.is_some() || control.reached.is_some()) {
            return apart(format!(
                "{} holds no segment of the log (*.segment), and {note} says that the log was durable there up to {}",
                place.display(),
                places[number],
            ));
        }
        if !is_there {
            continue;
        }
        if end < stream.noted().position {
            return apart(format!(
                "{} holds segments of the log (*.segment) up to {end} only, and {note} says that it was durable \
                 up to {}",
                place.display(),
                stream.noted().position,
            ));
        }
        let tie = stream.noted_tie();
        let other = if tie.life == 0 || Some(tie.life) == control.incarnation { None } else { Some(note.clone()) };
        let segment = || stream.segment_of_another(control.incarnation).map(|file| file.display().to_string());
        if let Some(file) = other.or_else(segment) {
            return apart(format!(
                "{file} is of another log than the control file: of one that was here before or came later"
            ));
        }
        if tie.writes > control.writes {
            return apart(format!(
                "the control file is older than the log: it was written {} times, and {note} knows of {}, so terms \
                 that this node has promised may be missing from it",
                control.writes, tie.writes,
            ));
        }
        let reached = control.reached.as_ref().and_then(|reached| reached.get(number));
        if let Some(reached) = reached.filter(|reached| places[number] < **reached) {
            return apart(format!(
                "the log in {} is older than the control file: {note} says that it was durable up to {}, and it was \
                 up to {reached} before",
                place.display(),
                places[number],
            ));
        }
    }
    Ok(())
}

impl Control {
    fn tie(&self) -> Tie {
        Tie { life: self.incarnation.unwrap_or_default(), writes: self.writes }
    }
}

/// A thread that has the parts of a directory note of each other how far they are, every few
/// seconds while that changes. None if the system has no thread: a clean close notes it too.
pub(crate) fn noting(file: &Arc<ControlFile>) -> Option<Regularly> {
    let file = Arc::downgrade(file);
    let mut warned = false;
    let note = move |_: &_| {
        let file = file.upgrade()?;
        match file.note(Some(PAUSE)) {
            // A log that has failed reports that itself.
            Ok(()) | Err(StoreError::Failed) => warned = false,
            Err(cause) if !warned => {
                warned = true;
                tracing::warn!(%cause, "how far the log is cannot be noted in the control file; it is tried again");
            }
            Err(_) => {}
        }
        Some(LOOK)
    };
    Regularly::start("log-parts", Duration::ZERO, note).ok()
}
