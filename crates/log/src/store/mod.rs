//! Where a node keeps its log: one row of segments for each stream.
//!
//! The virtual log is one; a node keeps it in N streams (SiloR, section 3.3; distributed logging,
//! section 3). A block lies whole in the stream that its header names, and a stream holds its
//! blocks in the order of their LSNs, without gaps: so a stream has *positions* of its own, and
//! its bytes from some LSN on are the bytes from some position on. With one stream, positions are
//! LSNs.
//!
//! | question | answer |
//! |---|---|
//! | where is LSN `x`? | [`landmarks`]: in each stream the last landmark at or below it, then from header to header |
//! | what are the bytes from `x` on? | [`merge`]: the streams' blocks in the order of their LSNs, which are dense |
//! | where does the log end after a crash? | [`settle`]: where the merged blocks of all streams first have a gap |
//!
//! A node with fewer streams than the log was written with keeps several in one: stream `s` of a
//! block lies in store `s mod N`. So nodes with different numbers of devices replicate one another.

mod landmarks;
mod merge;
mod pieces;
mod settle;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use freshet_base::Lsn;

use crate::{
    block::BlockError,
    hang::Hang,
    parts::ControlFile,
    scan::LogSource,
    segments::{OutOfSpace, SegmentStore, StoreConfig, StoreError},
    tail::{Tail, TailError, Torn, find_tail},
};
use landmarks::Landmarks;
pub use pieces::Piece;

/// A node's log on its media; see the module. Cheap to clone: all clones are the same log.
#[derive(Clone, Debug)]
pub struct LogStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    streams: Box<[Stream]>,
    /// With several streams: the first LSN that is kept.
    begin: AtomicU64,
    /// With several streams: everything below is written.
    written: AtomicU64,
    /// The control file of the node that has the log, if one has.
    control: OnceLock<Arc<ControlFile>>,
}

/// One stream's store and what is known of it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) store: SegmentStore,
    pub(crate) landmarks: Landmarks,
}

/// A log that need not be there any more.
#[derive(Debug)]
pub(crate) struct WeakLogStore(Weak<Shared>);

impl WeakLogStore {
    pub(crate) fn upgrade(&self) -> Option<LogStore> {
        self.0.upgrade().map(|shared| LogStore { shared })
    }
}

impl From<SegmentStore> for LogStore {
    /// A log of one stream.
    fn from(store: SegmentStore) -> Self {
        Self::of(vec![store])
    }
}

impl LogStore {
    /// A log whose streams are kept in `stores`, in this order.
    ///
    /// # Panics
    /// When none exists, or more than [`crate::block::MAX_STREAMS`].
    pub fn of(stores: Vec<SegmentStore>) -> Self {
        assert!(
            !stores.is_empty() && stores.len() <= crate::block::MAX_STREAMS,
            "the configuration was checked before"
        );
        let streams = stores.into_iter().map(|store| Stream { store, landmarks: Landmarks::default() }).collect();
        let (begin, written, control) = (AtomicU64::new(0), AtomicU64::new(0), OnceLock::new());
        Self { shared: Arc::new(Shared { streams, begin, written, control }) }
    }

    /// Opens or makes the log in `directories`, which exist, one for each stream.
    ///
    /// # Errors
    /// As [`SegmentStore::open`].
    pub fn open_directories(directories: &[PathBuf], config: StoreConfig) -> Result<Self, StoreError> {
        let open = |directory: &PathBuf| SegmentStore::open_directory(directory, config);
        Ok(Self::of(directories.iter().map(open).collect::<Result<_, _>>()?))
    }

    /// Opens or makes a log of one stream in a directory that exists.
    ///
    /// # Errors
    /// As [`SegmentStore::open`].
    pub fn open_directory(directory: &Path, config: StoreConfig) -> Result<Self, StoreError> {
        Ok(SegmentStore::open_directory(directory, config)?.into())
    }

    /// An empty log of one stream in plain memory.
    pub fn in_memory(config: StoreConfig) -> Self {
        SegmentStore::in_memory(config).into()
    }

    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.shared.streams.len()
    }

    /// The segments of one stream. What they call LSNs are positions, unless it is the only one.
    pub fn stream(&self, number: usize) -> &SegmentStore {
        &self.shared.streams[number].store
    }

    pub(crate) fn at(&self, number: usize) -> &Stream {
        &self.shared.streams[number]
    }

    /// The only stream's store, where there is one only: there, positions are LSNs.
    pub(crate) fn alone(&self) -> Option<&SegmentStore> {
        match &*self.shared.streams {
            [only] => Some(&only.store),
            _ => None,
        }
    }

    /// What all segments have in common.
    pub fn config(&self) -> StoreConfig {
        self.stream(0).config()
    }

    /// The oldest byte kept, and the end of what is kept: with one stream the end of the last
    /// segment (beyond the log's end), with several the end of what was written. None when there is
    /// nothing.
    pub fn extent(&self) -> Option<(Lsn, Lsn)> {
        match self.alone() {
            Some(store) => store.extent(),
            None => {
                // Acquire: pairs with the release half in `written_to`.
                let written = self.shared.written.load(Ordering::Acquire);
                let any = self.shared.streams.iter().any(|stream| stream.store.extent().is_some());
                any.then(|| (Lsn(self.shared.begin.load(Ordering::Acquire)), Lsn(written)))
            }
        }
    }

    /// How far the log was durable, by the last notes of it. Zero for an empty log.
    pub fn watermark(&self) -> Lsn {
        self.shared.streams.iter().map(|stream| stream.store.noted().bound).min().unwrap_or_default()
    }

    /// How people find the file that holds `at`, and the offset of `at` in it.
    pub fn locate(&self, at: Lsn) -> (PathBuf, u64) {
        if let Some(store) = self.alone() {
            return store.locate(at);
        }
        let holder = self.containing(at).ok().flatten();
        let (stream, position) = holder.unwrap_or((0, self.stream(0).end()));
        self.stream(stream).locate(position)
    }

    /// Finds the end of the log after a restart and cuts off, durably, what a crash tore and what
    /// lies above the first gap or the persistent epoch. All that is left is durable when this
    /// returns, whatever the process before had synced. Call it once, before anything else.
    ///
    /// # Errors
    /// [`TailError`] when something is missing that was durable.
    pub fn settle(&self) -> Result<Tail, TailError> {
        let tail = self.settle_blocks(false)?;
        Ok(Tail { blocks_end: tail.end, ..tail })
    }

    /// The same, but with `keeps_half` the blocks stay that belong to a transaction whose last
    /// blocks are not here: they may be in a buffer in persistent memory. To be settled once more
    /// when that was looked at.
    fn settle_blocks(&self, keeps_half: bool) -> Result<Tail, TailError> {
        // A note that is higher was made by another kind of group commit, after the file.
        let committed = self.stream(0).persistent_epoch()?.map(|persistent| persistent.end);
        let tail = match self.alone() {
            Some(store) => Self::settle_alone(store, committed, keeps_half)?,
            None => settle::settle(self, committed, keeps_half)?,
        };
        if committed.is_some() {
            self.stream(0).renew_persistent_epoch()?;
        }
        Ok(tail)
    }

    fn settle_alone(store: &SegmentStore, committed: Option<Lsn>, keeps_half: bool) -> Result<Tail, TailError> {
        let watermark = store.watermark();
        let from = committed.map_or(watermark, |committed| committed.min(watermark));
        let mut tail = find_tail(store, from, watermark)?;
        if let Some(committed) = committed.filter(|committed| *committed < tail.end) {
            let torn = tail.cut.map_or(0, |torn| torn.bytes);
            let why = tail.cut.map_or(BlockError::Empty, |torn| torn.why);
            tail.cut = Some(Torn { at: committed, bytes: tail.end.since(committed) + torn, why });
            tail.end = committed;
            tail.blocks_end = committed;
        }
        if keeps_half {
            tail = tail.keeping_half();
        }
        tail.settle(store)?;
        Ok(tail)
    }

    /// As [`LogStore::settle`], for a log whose newest part may be in a buffer in persistent
    /// memory: what a crash tore is cut off, but for the blocks of a transaction whose rest may be
    /// there. To be settled once more after [`crate::persist::recover_buffer`].
    ///
    /// # Errors
    /// As [`LogStore::settle`].
    pub fn settle_before_buffer(&self) -> Result<Tail, TailError> {
        self.settle_blocks(true)
    }

    /// Says where the log ends and appending continues. An empty log may begin anywhere.
    ///
    /// # Errors
    /// [`StoreError`] when a segment or a watermark file cannot be made.
    ///
    /// # Panics
    /// When the log has several streams and was not settled, or ends elsewhere: nobody knows the
    /// streams' ends then.
    pub fn resume(&self, end: Lsn) -> Result<(), StoreError> {
        if let Some(store) = self.alone() {
            return store.resume(end);
        }
        let unused = self.shared.streams.iter().all(|stream| stream.store.end() == Lsn::ZERO);
        if !unused {
            assert_eq!(self.shared.written.load(Ordering::Acquire), end.0, "a log of several streams is settled first");
        } else {
            // Release: pairs with the acquire in `extent`.
            self.shared.begin.store(end.0, Ordering::Release);
        }
        for stream in &self.shared.streams {
            let position = stream.store.end();
            stream.store.resume(position)?;
            if unused {
                let note = crate::segments::Note { position, bound: end, anchor: end, anchor_position: position };
                stream.store.note(note)?;
                stream.store.sync_watermark()?;
            }
        }
        self.written_to(end);
        Ok(())
    }

    /// Everything below `to` is written now, in all streams.
    pub(crate) fn written_to(&self, to: Lsn) {
        // Release half: pairs with the acquire in `extent`.
        self.shared.written.fetch_max(to.0, Ordering::AcqRel);
    }

    /// From now on the control file says how far the log is durable.
    pub(crate) fn attach(&self, control: &Arc<ControlFile>) {
        // It is done once: every opening makes another store.
        let _ = self.shared.control.set(Arc::clone(control));
    }

    pub(crate) fn downgrade(&self) -> WeakLogStore {
        WeakLogStore(Arc::downgrade(&self.shared))
    }

    /// The write or sync that has been under way the longest, if that is longer than `patience`.
    /// What waits for room is none. Never blocks on a device.
    pub fn hangs(&self, patience: Duration) -> Option<Hang> {
        let hangs = self.shared.streams.iter().filter_map(|stream| stream.store.hangs());
        hangs.filter(|hang| hang.lasts >= patience).max_by_key(|hang| hang.lasts)
    }

    /// The incarnation of the log, where a node's directory has it.
    pub fn incarnation(&self) -> Option<u64> {
        self.shared.control.get()?.control().incarnation
    }

    /// Takes back everything at or above `at`, in every stream. Durable when this returns. Nobody
    /// appends in the meantime.
    ///
    /// # Errors
    /// [`StoreError`]; after opening the log again it must be cut once more.
    pub fn cut(&self, at: Lsn) -> Result<(), StoreError> {
        // All places first: they cannot be found any more once something is cut.
        let position = |stream| if self.streams() == 1 { Ok(at) } else { self.position(stream, at) };
        let positions = (0..self.streams()).map(position).collect::<Result<Vec<_>, StoreError>>()?;
        let control = self.shared.control.get();
        control.map_or(Ok(()), |control| control.begin_cut(&positions))?;
        self.cut_to(at, positions)?;
        if let Some(control) = control {
            control.end_cut();
        }
        Ok(())
    }

    fn cut_to(&self, at: Lsn, positions: Vec<Lsn>) -> Result<(), StoreError> {
        // What an earlier term had promised is what is being taken back.
        self.stream(0).end_epochs()?;
        if let Some(store) = self.alone() {
            return store.cut(at);
        }
        self.shared.written.fetch_min(at.0, Ordering::AcqRel);
        for (stream, position) in self.shared.streams.iter().zip(&positions) {
            stream.store.lower_bounds(*position, at)?;
        }
        for (stream, position) in self.shared.streams.iter().zip(positions) {
            stream.landmarks.cut(at);
            stream.store.cut_stream(position, at)?;
        }
        Ok(())
    }

    /// Removes everything: nothing of it counts, and the log can [begin](Self::resume) anywhere.
    ///
    /// # Errors
    /// [`StoreError`] when a file cannot be removed; to be done again then.
    pub fn clear(&self) -> Result<(), StoreError> {
        self.stream(0).end_epochs()?;
        self.shared.begin.store(0, Ordering::Release);
        self.shared.written.store(0, Ordering::Release);
        for stream in &self.shared.streams {
            stream.landmarks.cut(Lsn::ZERO);
            stream.store.clear()?;
        }
        Ok(())
    }

    /// Removes the segments that hold nothing at or above `at`, below which all is durable; if that
    /// is so in a log buffer that persists, only what is durable in segments too. Returns how many
    /// went.
    ///
    /// # Errors
    /// [`StoreError`] when one cannot be removed.
    pub fn remove_below(&self, at: Lsn) -> Result<usize, StoreError> {
        if let Some(store) = self.alone() {
            // After a crash, the end of the log is looked for from the note on: what goes lies
            // below that, durably.
            let noted = store.noted().bound;
            store.sync_watermark()?;
            return store.remove_below(at.min(noted));
        }
        // Where something lies that has yet to be written, nobody knows. Acquire: as in `extent`.
        let at = at.min(Lsn(self.shared.written.load(Ordering::Acquire)));
        // Acquire: pairs with the release half below.
        if at.0 <= self.shared.begin.load(Ordering::Acquire) {
            return Ok(0);
        }
        let mut removed = 0;
        for (number, stream) in self.shared.streams.iter().enumerate() {
            let position = self.position(number, at)?;
            // After a crash, the streams are compared from here on (module `settle`).
            stream.store.anchor(at, position)?;
            // Readers find out before the files go.
            self.shared.begin.fetch_max(at.0, Ordering::AcqRel);
            // One block from below stays in every stream: the first that is kept shows, after a
            // restart, where the log begins.
            let last = self.position_of_last(number, at)?.min(stream.store.noted().position);
            stream.landmarks.begin(at, position);
            removed += stream.store.remove_below(last)?;
        }
        Ok(removed)
    }

    /// Makes the noted watermarks durable: for a clean close. With several streams, `rest` is up to
    /// where all are durable, and where each stream's blocks from there on begin: an older one
    /// among them is found out by that (module `parts`).
    ///
    /// # Errors
    /// [`StoreError`] when one cannot be synced.
    pub(crate) fn sync_watermark(&self, rest: Option<(Lsn, Vec<Lsn>)>) -> Result<(), StoreError> {
        if let Some((at, positions)) = rest.filter(|_| self.alone().is_none()) {
            let mut streams = self.shared.streams.iter().zip(positions);
            streams.try_for_each(|(stream, position)| stream.store.anchor(at, position))?;
        }
        self.shared.streams.iter().try_for_each(|stream| stream.store.sync_watermark())?;
        if let Some(control) = self.shared.control.get() {
            // The older note holds as well.
            let _ = control.note(None);
        }
        Ok(())
    }

    /// What the log waits for, if a segment of any stream cannot be made for want of room.
    pub fn out_of_space(&self) -> Option<OutOfSpace> {
        self.shared
            .streams
            .iter()
            .filter_map(|stream| stream.store.out_of_space())
            .max_by_key(|out_of_space| out_of_space.stalled)
    }

    /// Whether there is enough room for what is to come. Cheap.
    pub fn has_room(&self) -> bool {
        self.shared.streams.iter().all(|stream| stream.store.has_room())
    }

    /// Whether something that is to be written waits for room. Cheap.
    pub fn is_stalled(&self) -> bool {
        self.shared.streams.iter().any(|stream| stream.store.is_stalled())
    }

    /// Whether room is waited for. Without patience what lacks room fails, and waits under way end
    /// so: for a close.
    pub(crate) fn set_patient(&self, patient: bool) {
        self.shared.streams.iter().for_each(|stream| stream.store.set_patient(patient));
    }

    /// Waits until nothing is done to the media any more: for every close, before somebody else may
    /// open this log.
    pub(crate) fn finish(&self) {
        self.shared.streams.iter().for_each(|stream| stream.store.finish());
    }

    /// Fills `into` with the virtual log from `at` on, as far as it is written.
    ///
    /// # Errors
    /// [`StoreError::Gone`] and [`StoreError::Beyond`] outside of what is kept; [`StoreError::Io`]
    /// when a file cannot be read.
    pub fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), StoreError> {
        match self.alone() {
            Some(store) => store.read(at, into),
            None => match self.merged_read(at, into) {
                // The way to that place began in a segment that was removed in the meantime; now it
                // begins behind that.
                Err(StoreError::Gone { .. }) => self.merged_read(at, into),
                read => read,
            },
        }
    }
}

impl LogSource for LogStore {
    fn extent(&self) -> Option<(Lsn, Lsn)> {
        Self::extent(self)
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), StoreError> {
        Self::read(self, at, into)
    }

    fn locate(&self, at: Lsn) -> (PathBuf, u64) {
        Self::locate(self, at)
    }
}
