//! The log on its medium: a row of segments of one size, without gaps.
//!
//! Segment `k` holds the virtual log from `k * size` to `(k + 1) * size` behind a header of 4096
//! bytes; its name carries where it starts. Blocks may straddle segments. Segments are made ahead
//! of need in the background, so that the group commit finds the next one there when it comes to
//! the end of one.
//!
//! One thread appends and syncs; any number read.

mod cut;
mod error;
pub(crate) mod header;
mod mark;
mod persistent_epoch;
mod prepare;
mod room;
mod slots;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use freshet_base::{ClusterId, Lsn, lock};

use crate::hang::Hang;
use crate::medium::{self, Medium, MediumFile, MemoryMedium};
pub use error::StoreError;
use header::{FileHeader, FileKind, HeaderError, SEGMENT_HEADER, USED};
use mark::Mark;
pub use mark::Note;
pub(crate) use mark::Tie;
pub(crate) use persistent_epoch::{PersistentEpoch, PersistentEpochFile, look_at_epoch};
pub(crate) use room::Need;
pub(crate) use room::is_out_of_descriptors;
pub use room::{OutOfSpace, Room};

/// The segment size unless configured otherwise, in bytes.
pub const DEFAULT_SEGMENT: u64 = 64 << 20;
/// Segments are not smaller than this many bytes.
pub const MIN_SEGMENT: u64 = 4096;

/// What all segments of a store have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Whose log this is.
    pub cluster: ClusterId,
    /// How much of the log one segment holds, in bytes; a multiple of 4096.
    pub segment_size: u64,
}

const MARK_NAME: &str = "watermark";
/// How often a directory is looked at whose files do not fit together, before that is believed.
const LOOKS: u32 = 10;

fn segment_name(start: u64) -> String {
    format!("{start:020}.segment")
}

fn segment_start(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".segment")?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

#[derive(Debug)]
struct Segment {
    start: u64,
    /// The incarnation of the log that it was made for; 0 if that has none.
    life: u64,
    file: Arc<dyn MediumFile>,
}

/// The segments there are: contiguous, oldest first.
#[derive(Debug, Default)]
struct Segments {
    all: VecDeque<Arc<Segment>>,
    /// The log has begun here: below, in the oldest segment, nothing was ever written.
    begin: u64,
}

impl Segments {
    fn first(&self) -> u64 {
        self.all.front().map_or(0, |segment| segment.start.max(self.begin))
    }

    fn end(&self, size: u64) -> u64 {
        self.all.back().map_or(0, |segment| segment.start + size)
    }

    fn containing(&self, at: u64, size: u64) -> Option<&Arc<Segment>> {
        let index = at.checked_sub(self.all.front()?.start)? / size;
        self.all.get(usize::try_from(index).ok()?)
    }
}

/// Where appending stands.
#[derive(Debug, Default)]
struct Append {
    end: u64,
    /// Starts of the segments written since the last sync.
    dirty: Vec<u64>,
    /// Whether a segment was filled since the watermark was last synced.
    rotated: bool,
}

/// A log on its medium; see the module. Cheap to clone: all clones are the same store.
#[derive(Clone, Debug)]
pub struct SegmentStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    medium: Arc<dyn Medium>,
    config: StoreConfig,
    segments: RwLock<Segments>,
    append: Mutex<Append>,
    mark: Mutex<Option<Mark>>,
    failed: AtomicBool,
    room: Room,
    preparer: prepare::Preparer,
    /// What a note is tied to from now on ([`Tie`]).
    life: AtomicU64,
    writes: AtomicU64,
    /// Since when the medium has been at work for the one who appends.
    at_work: Mutex<Option<Instant>>,
}

/// A log on its medium that need not be there any more.
#[derive(Debug)]
pub(crate) struct WeakStore(Weak<Shared>);

impl WeakStore {
    pub(crate) fn upgrade(&self) -> Option<SegmentStore> {
        self.0.upgrade().map(|shared| SegmentStore { shared })
    }
}

impl SegmentStore {
    /// Opens the log on `medium`, checks every segment's header, and completes a cut that was
    /// interrupted. An empty medium is an empty log.
    ///
    /// # Errors
    /// [`StoreError`] for whatever does not fit together.
    ///
    /// # Panics
    /// When the configured segment size is not a multiple of 4096.
    pub fn open(medium: Arc<dyn Medium>, config: StoreConfig) -> Result<Self, StoreError> {
        assert!(config.segment_size >= MIN_SEGMENT && config.segment_size.is_multiple_of(MIN_SEGMENT));
        let names = list(&*medium)?;
        // An earlier process may have ended between making a file, or removing one, and making that
        // durable.
        medium.sync().map_err(|source| StoreError::io("sync", medium.path(""), 0, 0, source))?;
        let mark = open_mark(&*medium, &names)?;
        let store = Self::open_segments(medium, &names, config, mark)?;
        if names.iter().any(|name| name == cut::CUT_NAME) {
            store.complete_cut()?;
        }
        Ok(store)
    }

    /// Opens the log on `medium` for looking only, with the configuration that its oldest segment
    /// names. Changes nothing. The note of how far it is durable is older than the list of
    /// segments, so these hold all that it promises, even while a node writes.
    ///
    /// # Errors
    /// As [`SegmentStore::open`].
    pub(crate) fn look(medium: &Arc<dyn Medium>) -> Result<Self, StoreError> {
        patiently(|| Self::look_once(medium))
    }

    fn look_once(medium: &Arc<dyn Medium>) -> Result<Self, StoreError> {
        let mark = open_mark(&**medium, &list(&**medium)?)?;
        let names = list(&**medium)?;
        let config = match names.iter().filter_map(|name| segment_start(name)).min() {
            Some(start) => {
                let (_, header) = read_header(&**medium, start)?;
                StoreConfig { cluster: header.cluster, segment_size: header.size.max(1) }
            }
            None => StoreConfig { cluster: ClusterId(0), segment_size: DEFAULT_SEGMENT },
        };
        Self::open_segments(Arc::clone(medium), &names, config, mark)
    }

    /// The note of how far the log on `medium` is durable, as it is now.
    pub(crate) fn look_at_note(medium: &dyn Medium) -> Result<Option<Note>, StoreError> {
        Ok(open_mark(medium, &list(medium)?)?.map(|mark| mark.note()))
    }

    /// The position of a cut that was begun and is to be completed.
    pub(crate) fn unfinished_cut(&self) -> Option<Lsn> {
        let file = self.shared.medium.open(cut::CUT_NAME).ok()?;
        Some(Mark::open(file).ok()??.note().position)
    }

    fn open_segments(
        medium: Arc<dyn Medium>,
        names: &[String],
        config: StoreConfig,
        mark: Option<Mark>,
    ) -> Result<Self, StoreError> {
        let mut starts: Vec<u64> = names.iter().filter_map(|name| segment_start(name)).collect();
        starts.sort_unstable();
        let mut segments = Segments::default();
        for start in starts {
            let expected = segments.end(config.segment_size);
            if !segments.all.is_empty() && start > expected {
                let file = medium.path(&segment_name(expected));
                return Err(StoreError::Missing { file, from: Lsn(expected), to: Lsn(start) });
            }
            let (file, header) = open_segment(&*medium, &config, start)?;
            if segments.all.is_empty() {
                segments.begin = header.begin.0;
            }
            segments.all.push_back(Arc::new(Segment { start, life: header.life, file }));
        }
        if mark.is_none() && !segments.all.is_empty() {
            return Err(StoreError::Watermark { file: medium.path(MARK_NAME) });
        }
        Ok(Self {
            shared: Arc::new(Shared {
                medium,
                config,
                segments: RwLock::new(segments),
                append: Mutex::default(),
                mark: Mutex::new(mark),
                failed: AtomicBool::new(false),
                room: Room::default(),
                preparer: prepare::Preparer::default(),
                life: AtomicU64::new(0),
                writes: AtomicU64::new(0),
                at_work: Mutex::default(),
            }),
        })
    }

    /// Opens or makes the log in a directory that exists.
    ///
    /// # Errors
    /// As [`SegmentStore::open`].
    pub fn open_directory(directory: &std::path::Path, config: StoreConfig) -> Result<Self, StoreError> {
        Self::open(medium::files(directory), config)
    }

    /// An empty log in plain memory.
    pub fn in_memory(config: StoreConfig) -> Self {
        Self::open(Arc::new(MemoryMedium::new()), config).expect("an empty memory medium opens")
    }

    /// What all segments have in common.
    pub fn config(&self) -> StoreConfig {
        self.shared.config
    }

    /// The oldest byte kept and the end of the last segment (beyond the log's end); none when there
    /// is no segment.
    pub fn extent(&self) -> Option<(Lsn, Lsn)> {
        let segments = self.segments();
        (!segments.all.is_empty()).then(|| (Lsn(segments.first()), Lsn(segments.end(self.size()))))
    }

    pub(crate) fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.shared))
    }

    /// The write or sync that is under way for the one who appends.
    pub(crate) fn hangs(&self) -> Option<Hang> {
        let lasts = lock(&self.shared.at_work).map(|since| since.elapsed())?;
        Some(Hang { directory: self.shared.medium.path(""), lasts })
    }

    /// What the last note is tied to.
    pub(crate) fn noted_tie(&self) -> Tie {
        lock(&self.shared.mark).as_ref().map(Mark::tie).unwrap_or_default()
    }

    /// Ties all notes and segments to come.
    pub(crate) fn set_tie(&self, tie: Tie) {
        // Relaxed: what is tied is written by the caller, or later.
        self.shared.life.store(tie.life, Ordering::Relaxed);
        self.shared.writes.store(tie.writes, Ordering::Relaxed);
    }

    /// Writes the last note again, without a sync, if it is not tied to what is to be now.
    pub(crate) fn note_tie(&self) -> Result<(), StoreError> {
        if self.noted_tie() == self.shared.tie() { Ok(()) } else { self.change_mark(|noted| noted, false) }
    }

    /// The file of a segment that is of another incarnation than `life`, if there is one.
    pub(crate) fn segment_of_another(&self, life: Option<u64>) -> Option<PathBuf> {
        let segments = self.segments();
        let other = segments.all.iter().find(|segment| segment.life != 0 && Some(segment.life) != life);
        other.map(|segment| self.shared.medium.path(&segment_name(segment.start)))
    }

    /// The file that says how far the log is durable.
    pub(crate) fn note_file(&self) -> PathBuf {
        self.shared.medium.path(MARK_NAME)
    }

    /// Whether the log was ever [resumed](Self::resume): from then on there is a note of how far it
    /// is durable.
    pub(crate) fn is_begun(&self) -> bool {
        lock(&self.shared.mark).is_some()
    }

    /// How far the log was durable, by the last note of it. Zero for an empty log.
    pub fn watermark(&self) -> Lsn {
        self.noted().position
    }

    /// The last note of how far the log is durable. All zero for an empty log.
    pub(crate) fn noted(&self) -> Note {
        lock(&self.shared.mark).as_ref().map_or(Note::alone(Lsn::ZERO), Mark::note)
    }

    /// Where the next append goes; what [`SegmentStore::resume`] said plus what was appended since.
    pub fn end(&self) -> Lsn {
        Lsn(lock(&self.shared.append).end)
    }

    /// Says where the log was found to end; appending still needs [`SegmentStore::resume`].
    pub(crate) fn set_end(&self, end: Lsn) {
        lock(&self.shared.append).end = end.0;
    }

    /// How people find the segment that holds `at`, and the offset of `at` in it.
    pub fn locate(&self, at: Lsn) -> (PathBuf, u64) {
        let start = at.0 - at.0 % self.size();
        (self.shared.medium.path(&segment_name(start)), SEGMENT_HEADER + (at.0 - start))
    }

    fn size(&self) -> u64 {
        self.shared.config.segment_size
    }

    fn segments(&self) -> std::sync::RwLockReadGuard<'_, Segments> {
        self.shared.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), StoreError> {
        // Relaxed: a flag without data behind it.
        if self.shared.failed.load(Ordering::Relaxed) { Err(StoreError::Failed) } else { Ok(()) }
    }

    /// Remembers that what the medium holds is not known any more.
    fn fail(&self, error: StoreError) -> StoreError {
        // Relaxed: as in `check`.
        self.shared.failed.store(true, Ordering::Relaxed);
        error
    }

    /// Says where the log ends and appending continues, and makes the segment for it. An empty log
    /// may begin anywhere.
    ///
    /// # Errors
    /// [`StoreError`] when the segment or the watermark file cannot be made.
    pub fn resume(&self, end: Lsn) -> Result<(), StoreError> {
        self.check()?;
        {
            let mut mark = lock(&self.shared.mark);
            if mark.is_none() {
                let path = || self.shared.medium.path(MARK_NAME);
                let first = Mark::first(&Note::alone(end), self.shared.tie());
                let made = self.shared.medium.create(MARK_NAME, mark::MARK_FILE, &first);
                let file = made.map_err(|e| StoreError::io("make", path(), 0, mark::MARK_FILE, e))?;
                *mark = Mark::open(file).map_err(|e| StoreError::io("read", path(), 0, 0, e))?;
            }
        }
        *lock(&self.shared.append) = Append { end: end.0, ..Append::default() };
        if self.extent().is_none() {
            // Whatever was noted, nothing of it is here.
            self.change_mark(|_| Note::alone(end), true).map_err(|error| self.fail(error))?;
            self.shared.segments.write().unwrap_or_else(PoisonError::into_inner).begin = end.0;
        }
        if self.segments().containing(end.0, self.size()).is_none() {
            self.make_segment(end.0 - end.0 % self.size())?;
        }
        Ok(())
    }

    /// Writes `pieces`, one behind the other, at the end. They are durable after the next
    /// [`SegmentStore::sync`].
    ///
    /// # Errors
    /// [`StoreError`]; the store takes nothing more then.
    ///
    /// # Panics
    /// When `at` is not the end.
    pub fn append(&self, at: Lsn, pieces: &[&[u8]]) -> Result<(), StoreError> {
        self.check()?;
        let (mut end, size) = (lock(&self.shared.append).end, self.size());
        assert_eq!(at.0, end, "the log has no gaps");
        for piece in pieces {
            let from = end;
            self.write(from, piece)?;
            end = from + piece.len() as u64;
            let mut append = lock(&self.shared.append);
            append.end = end;
            append.rotated |= from / size < end / size;
        }
        // Half a segment ahead is time enough to make one.
        if end % size >= size / 2 {
            prepare::ahead(&self.shared, end - end % size + size);
        }
        Ok(())
    }

    /// Writes `bytes`, which were read at `at`, to the same place again: whatever became of their
    /// first writing, they are durable after the next [`SegmentStore::sync`]. A crash on the way
    /// changes nothing, since every page has the same bytes before and after.
    pub(crate) fn rewrite(&self, at: Lsn, bytes: &[u8]) -> Result<(), StoreError> {
        self.check()?;
        self.write(at.0, bytes)
    }

    /// Writes `bytes` at `at`, whichever segments that is in. May wait for room, so others can read
    /// in the meantime.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let offset = at % self.size();
            let (now, later) = rest.split_at(rest.len().min((self.size() - offset) as usize));
            let segment = self.segment_for(at).map_err(|error| self.fail(error))?;
            let write = || {
                self.shared.timed(|| segment.file.write(SEGMENT_HEADER + offset, now)).map_err(|source| {
                    let path = self.shared.medium.path(&segment_name(segment.start));
                    StoreError::io("write", path, SEGMENT_HEADER + offset, now.len() as u64, source)
                })
            };
            // On a file system that does not preallocate, or copies on write.
            self.shared.with_room(Need::Bytes, || true, write).map_err(|error| self.fail(error))?;
            let mut append = lock(&self.shared.append);
            if append.dirty.last() != Some(&segment.start) {
                append.dirty.push(segment.start);
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Makes everything that was written durable.
    ///
    /// # Errors
    /// [`StoreError`]; the store takes nothing more then, and what was appended since the last sync
    /// may or may not be durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.check()?;
        let dirty = std::mem::take(&mut lock(&self.shared.append).dirty);
        for start in dirty {
            let segment = self.segment_for(start).map_err(|error| self.fail(error))?;
            self.shared.timed(|| segment.file.sync()).map_err(|source| {
                let path = self.shared.medium.path(&segment_name(start));
                self.fail(StoreError::io("sync", path, SEGMENT_HEADER, 0, source))
            })?;
        }
        Ok(())
    }

    /// Notes how far the stream is durable, without a sync unless a segment became full. An anchor
    /// that was noted stays until there is a higher one.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written; the store takes nothing more then.
    pub fn note(&self, note: Note) -> Result<(), StoreError> {
        self.check()?;
        let sync = std::mem::take(&mut lock(&self.shared.append).rotated);
        let change = |noted: Note| {
            let anchors = [(note.anchor, note.anchor_position), (noted.anchor, noted.anchor_position)];
            let (anchor, anchor_position) = anchors[0].max(anchors[1]);
            Note { anchor, anchor_position, ..note }
        };
        match self.shared.timed(|| self.change_mark(change, false)) {
            // The older note holds as well; after the next one it is time again to sync.
            Err(error) if error.lacks_room() => lock(&self.shared.append).rotated |= sync,
            noted => {
                noted.map_err(|error| self.fail(error))?;
                if sync {
                    self.sync_watermark()?;
                }
            }
        }
        Ok(())
    }

    /// Notes an anchor, durably: what lies below it may go.
    pub(crate) fn anchor(&self, anchor: Lsn, anchor_position: Lsn) -> Result<(), StoreError> {
        self.check()?;
        let change = |noted: Note| match noted.anchor < anchor {
            true => Note { anchor, anchor_position, ..noted },
            false => noted,
        };
        self.change_mark(change, true).map_err(|error| self.fail(error))
    }

    /// Notes, durably, that everything up to the end of the log is durable: for a log that was
    /// found after a restart and [written again](SegmentStore::rewrite).
    pub(crate) fn note_settled(&self, note: Note) -> Result<(), StoreError> {
        self.check()?;
        self.change_mark(|_| note, true).map_err(|error| self.fail(error))
    }

    /// Makes the noted watermark durable: for a clean close, and before segments below it go.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be synced; the store takes nothing more then.
    pub fn sync_watermark(&self) -> Result<(), StoreError> {
        self.check()?;
        let failed = |e| self.fail(StoreError::io("sync", self.shared.medium.path(MARK_NAME), 0, 0, e));
        match &*lock(&self.shared.mark) {
            Some(mark) => mark.sync().map_err(failed),
            None => Ok(()),
        }
    }

    /// Waits for a segment that is being made ahead of need: the process that opens this log next
    /// must not find it being replaced.
    pub(crate) fn finish(&self) {
        self.shared.finish_preparing();
        self.shared.room.end(false);
    }

    /// What the log waits for, if a segment cannot be made for want of room.
    pub fn out_of_space(&self) -> Option<OutOfSpace> {
        self.shared.room.out_of_space()
    }

    /// Whether there is enough room for what is to come. Cheap.
    pub(crate) fn has_room(&self) -> bool {
        self.shared.room.is_enough()
    }

    /// Whether something that is to be written waits for room. Cheap.
    pub(crate) fn is_stalled(&self) -> bool {
        self.shared.room.is_stalled()
    }

    /// Whether room is waited for, as it is unless this says otherwise. Without patience what lacks
    /// room fails, and waits under way end so: for a close.
    pub(crate) fn set_patient(&self, patient: bool) {
        self.shared.room.set_patient(patient);
    }

    fn change_mark(&self, change: impl FnOnce(Note) -> Note, sync: bool) -> Result<(), StoreError> {
        let mut mark = lock(&self.shared.mark);
        let Some(mark) = mark.as_mut() else { return Ok(()) };
        let path = || self.shared.medium.path(MARK_NAME);
        let note = change(mark.note());
        mark.write(note, self.shared.tie()).map_err(|e| StoreError::io("write", path(), 0, mark::MARK_FILE, e))?;
        if sync { mark.sync().map_err(|e| StoreError::io("sync", path(), 0, 0, e)) } else { Ok(()) }
    }

    /// Fills `into` with what the segments hold from `at` on. The caller knows where the log ends:
    /// behind it there are zeros.
    ///
    /// # Errors
    /// [`StoreError::Gone`] and [`StoreError::Beyond`] outside the segments; [`StoreError::Io`]
    /// when a file cannot be read.
    pub fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), StoreError> {
        let (mut at, mut into) = (at.0, into);
        while !into.is_empty() {
            let segment = {
                let segments = self.segments();
                let containing = segments.containing(at, self.size()).filter(|_| at >= segments.first());
                let Some(segment) = containing else {
                    let first = Lsn(segments.first());
                    return Err(if at < first.0 {
                        StoreError::Gone { at: Lsn(at), first }
                    } else {
                        let at = Lsn(at.saturating_add(into.len() as u64));
                        StoreError::Beyond { at, end: Lsn(segments.end(self.size())) }
                    });
                };
                Arc::clone(segment)
            };
            let offset = at - segment.start;
            let (now, later) = into.split_at_mut(into.len().min((self.size() - offset) as usize));
            segment.file.read(SEGMENT_HEADER + offset, now).map_err(|source| {
                let path = self.shared.medium.path(&segment_name(segment.start));
                StoreError::io("read", path, SEGMENT_HEADER + offset, 0, source)
            })?;
            at += now.len() as u64;
            into = later;
        }
        Ok(())
    }

    /// Removes the segments that lie wholly below `at`, oldest first, but never the last. Readers
    /// at work keep their open files. Returns how many went.
    ///
    /// # Errors
    /// [`StoreError`] when one cannot be removed; those after it stay.
    pub fn remove_below(&self, at: Lsn) -> Result<usize, StoreError> {
        let mut removed = 0;
        loop {
            let oldest = {
                let segments = self.segments();
                let oldest = segments.all.front().filter(|_| segments.all.len() > 1).map(|segment| segment.start);
                oldest.filter(|start| start + self.size() <= at.0)
            };
            let Some(start) = oldest else { return Ok(removed) };
            // First the name here, so that no reader starts on it.
            self.shared.segments.write().unwrap_or_else(PoisonError::into_inner).all.pop_front();
            let name = segment_name(start);
            let gone = self.shared.medium.remove(&name);
            gone.map_err(|e| StoreError::io("remove", self.shared.medium.path(&name), 0, 0, e))?;
            removed += 1;
        }
    }

    /// The segment that holds `at`, made now if it was not made ahead.
    fn segment_for(&self, at: u64) -> Result<Arc<Segment>, StoreError> {
        if let Some(segment) = self.segments().containing(at, self.size()) {
            return Ok(Arc::clone(segment));
        }
        self.shared.finish_preparing();
        if self.segments().containing(at, self.size()).is_none() {
            let make = || self.shared.timed(|| self.make_segment(at - at % self.size()));
            self.shared.with_room(Need::Now, || true, make)?;
        }
        match self.segments().containing(at, self.size()) {
            Some(segment) => Ok(Arc::clone(segment)),
            None => unreachable!("segments are contiguous and this one was just made"),
        }
    }

    fn make_segment(&self, start: u64) -> Result<(), StoreError> {
        self.shared.make_segment(start)
    }
}

impl Shared {
    /// Does something on the medium that may take long, for the one who appends.
    fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        *lock(&self.at_work) = Some(Instant::now());
        let done = work();
        *lock(&self.at_work) = None;
        done
    }

    fn tie(&self) -> Tie {
        // Relaxed: as in `set_tie`.
        Tie { life: self.life.load(Ordering::Relaxed), writes: self.writes.load(Ordering::Relaxed) }
    }

    /// Ends the making of a segment ahead of need, waiting for it unless it waits for room. Then
    /// the caller makes the segment, or says that it is not wanted any more.
    fn finish_preparing(&self) {
        self.room.set_hurry(true);
        self.preparer.finish();
        self.room.set_hurry(false);
    }

    /// Repeats an attempt that finds no room until there is some, as long as it is `wanted`.
    fn with_room<T>(
        &self,
        need: Need,
        wanted: impl Fn() -> bool,
        attempt: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.room.wait(need, || self.medium.path(""), wanted, attempt)
    }

    /// Makes the segment that starts at `start` and adds it behind the others.
    fn make_segment(&self, start: u64) -> Result<(), StoreError> {
        let size = self.config.segment_size;
        let (kind, cluster) = (FileKind::Segment, self.config.cluster);
        let begin = self.segments.read().unwrap_or_else(PoisonError::into_inner).begin.max(start);
        let life = self.tie().life;
        let header = FileHeader { kind, cluster, size, start: Lsn(start), begin: Lsn(begin), life }.encode();
        let name = segment_name(start);
        let made = self.medium.create(&name, SEGMENT_HEADER + size, &header);
        let file = made.map_err(|e| StoreError::io("make", self.medium.path(&name), 0, SEGMENT_HEADER + size, e))?;
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        assert!(segments.all.is_empty() || segments.end(size) == start, "segments are contiguous");
        segments.all.push_back(Arc::new(Segment { start, life, file }));
        Ok(())
    }
}

/// Looks again when files do not fit together: a node at work makes, removes and rewrites them
/// between one glance and the next.
fn patiently<T>(look: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut looks = 1;
    loop {
        match look() {
            Err(error) if looks < LOOKS && error.may_pass() => thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
        looks += 1;
    }
}

/// The file that says how far the log is durable; none when none exists.
fn open_mark(medium: &dyn Medium, names: &[String]) -> Result<Option<Mark>, StoreError> {
    if !names.iter().any(|name| name == MARK_NAME) {
        return Ok(None);
    }
    let path = || medium.path(MARK_NAME);
    let file = medium.open(MARK_NAME).map_err(|e| StoreError::io("open", path(), 0, 0, e))?;
    let mark = Mark::open(file).map_err(|_| StoreError::Watermark { file: path() })?;
    mark.ok_or_else(|| StoreError::Watermark { file: path() }).map(Some)
}

fn list(medium: &dyn Medium) -> Result<Vec<String>, StoreError> {
    medium.list().map_err(|source| StoreError::io("list", medium.path(""), 0, 0, source))
}

fn read_header(medium: &dyn Medium, start: u64) -> Result<(Arc<dyn MediumFile>, FileHeader), StoreError> {
    let name = segment_name(start);
    let path = || medium.path(&name);
    let file = medium.open(&name).map_err(|e| StoreError::io("open", path(), 0, 0, e))?;
    let found = file.size().map_err(|e| StoreError::io("ask the size of", path(), 0, 0, e))?;
    if found < SEGMENT_HEADER {
        return Err(StoreError::Length { file: path(), found, expected: SEGMENT_HEADER });
    }
    let mut bytes = [0; USED];
    file.read(0, &mut bytes).map_err(|e| StoreError::io("read", path(), 0, 0, e))?;
    let header = FileHeader::decode(&bytes).map_err(|error| match error {
        HeaderError::Format(cause) => StoreError::Format { file: path(), cause },
        HeaderError::Other(what) => StoreError::Header { file: path(), what: what.to_owned() },
    })?;
    if header.kind != FileKind::Segment {
        return Err(StoreError::Header { file: path(), what: "it is a saved tail, not a segment".to_owned() });
    }
    let expected = SEGMENT_HEADER.saturating_add(header.size);
    if found != expected {
        return Err(StoreError::Length { file: path(), found, expected });
    }
    Ok((file, header))
}

fn open_segment(
    medium: &dyn Medium,
    config: &StoreConfig,
    start: u64,
) -> Result<(Arc<dyn MediumFile>, FileHeader), StoreError> {
    let (file, header) = read_header(medium, start)?;
    let path = || medium.path(&segment_name(start));
    if header.cluster != config.cluster {
        return Err(StoreError::ForeignCluster { file: path(), found: header.cluster, expected: config.cluster });
    }
    if header.size != config.segment_size {
        return Err(StoreError::SegmentSize { file: path(), found: header.size, expected: config.segment_size });
    }
    if header.start.0 != start || !start.is_multiple_of(header.size) {
        let what = format!("its header says that it starts at {}, its name {start}", header.start);
        return Err(StoreError::Header { file: path(), what });
    }
    Ok((file, header))
}
