//! Looking at a log from outside, without owning or changing anything; and saving a tail that is
//! about to be cut.
//!
//! | what is looked at | what is seen |
//! |---|---|
//! | a node's directory, or the directories of all streams of a log | the virtual log: with several streams, their blocks in the order of LSNs |
//! | the directory of one stream of several | the blocks of that stream, by positions |
//! | a file that [`save_tail`] wrote | its blocks |
//!
//! A node may be at work on the log. Then everything that was noted to be durable when the
//! inspection began is seen, and some of what comes later; what is incomplete then is where the
//! inspection ends, and no damage.

mod place;
mod saved;
mod walk;

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use freshet_base::{ClusterId, Lsn, NodeId, Term};

use crate::{
    block::{BlockError, BlockHeader, RecordHeader},
    control::{ControlError, is_owned},
    segments::StoreError,
};
pub use saved::save_tail;
use walk::{Step, Walk};

/// How long an inspection waits for a sign that a node is at work, before it takes what is
/// incomplete for the trace of a crash.
const PATIENCE: Duration = Duration::from_millis(200);

/// One thing found in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A whole block.
    Block {
        /// The stream that it lies in.
        stream: usize,
        /// Where it lies in its stream; its LSN, if the log has one stream only.
        position: Lsn,
        /// Its header. The LSN is its place in the virtual log.
        header: BlockHeader,
        /// For the first block of a term: the term, and whose it is.
        begins_term: Option<(Term, NodeId)>,
        /// For a time block: what time it was, in microseconds since 1970, by the primary's clock.
        time: Option<u64>,
        /// Its records, with their addresses.
        records: Vec<(Lsn, RecordHeader)>,
    },
    /// Something that is no block. The next finding of this stream is the next whole block behind
    /// it, if there is one.
    Bad {
        /// The stream that it lies in.
        stream: usize,
        /// Where it lies in its stream: an LSN, if the log has one stream only.
        at: Lsn,
        /// Which file it is in.
        file: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// Why it is no block.
        why: BlockError,
        /// Whether that place was noted to be durable: then it is damage.
        durable: bool,
    },
    /// No stream has the blocks between two LSNs. Only in a log of several streams.
    Gap {
        /// The end of the last block before.
        from: Lsn,
        /// The LSN of the next block.
        to: Lsn,
        /// Whether that place was noted to be durable: then it is damage.
        durable: bool,
    },
    /// The end of the log, as far as it is written.
    End {
        /// Where it ends.
        at: Lsn,
    },
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The virtual log of a node.
    Log,
    /// One stream of several. Places are positions.
    Stream,
    /// A saved tail.
    SavedTail,
}

/// What one stream says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamNotes {
    /// Its number.
    pub stream: usize,
    /// Where it is kept.
    pub directory: PathBuf,
    /// Its oldest position, and the end of its last segment. None without any segment.
    pub kept: Option<(Lsn, Lsn)>,
    /// Everything below this position is durable.
    pub durable: Lsn,
    /// All blocks of the stream with smaller LSNs lie below that position.
    pub bound: Lsn,
    /// Below this LSN, all streams were durable.
    pub anchor: Lsn,
    /// The stream's blocks with LSNs from the anchor on lie at or above this position.
    pub anchor_position: Lsn,
    /// A cut that was begun and will be completed at the next start: everything from this position
    /// on goes.
    pub cut: Option<Lsn>,
}

/// Walks over what is kept of a log.
pub struct Inspection {
    streams: Vec<Stream>,
    view: View,
    cluster: Option<ClusterId>,
    node: Option<NodeId>,
    log_streams: usize,
    persistent_epoch: Option<(u64, Lsn)>,
    trouble: Option<ControlError>,
    /// The node's directory, if that is what is looked at.
    directory: Option<PathBuf>,
    /// For several streams: the LSN that comes next, and where the virtual log begins.
    next: Option<(Lsn, Lsn)>,
    /// Whether it is known that no node is at work.
    quiet: bool,
    over: bool,
}

/// One stream, and where the inspection stands in it.
struct Stream {
    notes: StreamNotes,
    walk: Walk,
    /// What it has next, if that was looked at already.
    pending: Option<Step>,
}

impl Inspection {
    /// Opens a node's directory, a directory of segments, or a single file that [`save_tail`]
    /// wrote.
    ///
    /// # Errors
    /// [`StoreError`] when it is none of them.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_all(&[path.to_owned()])
    }

    /// The same; or, for a log whose streams are kept in different places, the directories of all
    /// its streams.
    ///
    /// # Errors
    /// [`StoreError`] when they are not that.
    pub fn open_all(paths: &[PathBuf]) -> Result<Self, StoreError> {
        let mut inspection = place::find(paths)?;
        inspection.begin()?;
        Ok(inspection)
    }

    /// What is looked at.
    pub fn view(&self) -> View {
        self.view
    }

    /// How many streams the log has, whether all of them are looked at or not.
    pub fn log_streams(&self) -> usize {
        self.log_streams
    }

    /// The notes of the streams that are looked at; none for a saved tail.
    pub fn streams(&self) -> impl Iterator<Item = &StreamNotes> {
        self.streams.iter().map(|stream| &stream.notes).filter(|_| self.view != View::SavedTail)
    }

    /// How far the log was noted to be durable when the inspection began. None for a saved tail,
    /// and for one stream of several.
    pub fn watermark(&self) -> Option<Lsn> {
        let noted = self.streams().map(|notes| notes.bound).min().unwrap_or_default();
        // What was released to clients by epochs was durable, whatever has become of the notes.
        let released = self.persistent_epoch.map_or(Lsn::ZERO, |(_, end)| end);
        (self.view == View::Log).then(|| noted.max(released))
    }

    /// With group commit by epochs: the last persistent epoch, and the LSN at which it ended. At
    /// the next start nothing above that is kept.
    pub fn persistent_epoch(&self) -> Option<(u64, Lsn)> {
        self.persistent_epoch
    }

    /// Whose log it is; none for an empty one.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// Which node's log it is, where that is written.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Why the node's control file could not be read, if it is there and could not.
    pub fn trouble(&self) -> Option<&ControlError> {
        self.trouble.as_ref()
    }

    /// Whether a place was noted to be durable when the inspection began.
    fn is_durable(&self, stream: usize, position: Lsn) -> bool {
        match self.view {
            View::Log if self.streams.len() == 1 => self.watermark().is_some_and(|watermark| position < watermark),
            View::SavedTail => false,
            View::Log | View::Stream => position < self.streams[stream].notes.durable,
        }
    }

    /// Whether a node owns the log now, or has noted anything since the inspection began.
    fn node_is_at_work(&mut self) -> bool {
        const PAUSE: Duration = Duration::from_millis(10);
        if self.directory.as_deref().is_some_and(is_owned) {
            return true;
        }
        let mut waited = Duration::ZERO;
        while !self.quiet {
            let moved = |stream: &Stream| place::noted(stream).is_some_and(|noted| noted != stream.notes.durable);
            if self.streams.iter().any(moved) {
                return true;
            }
            self.quiet = waited >= PATIENCE;
            thread::sleep(PAUSE);
            waited += PAUSE;
        }
        false
    }

    /// Whether a finding is something incomplete that a node is about to complete.
    fn is_under_way(&mut self, finding: &Finding) -> bool {
        let incomplete = matches!(finding, Finding::Bad { durable: false, .. } | Finding::Gap { durable: false, .. });
        incomplete && self.node_is_at_work()
    }

    /// The finding; the end instead, at `at`, when a node is about to complete it.
    fn or_end(&mut self, finding: Finding, at: Lsn) -> Finding {
        if self.is_under_way(&finding) {
            self.over = true;
            return Finding::End { at };
        }
        finding
    }

    /// For several streams: where the virtual log begins. Where segments were removed, that is
    /// where all streams have begun again.
    fn begin(&mut self) -> Result<(), StoreError> {
        if self.view != View::Log || self.streams.len() == 1 {
            return Ok(());
        }
        let mut first: Option<Lsn> = None;
        let mut begun_again: Option<Lsn> = None;
        for stream in &mut self.streams {
            let removed = stream.notes.kept.is_some_and(|(kept, _)| kept > Lsn::ZERO);
            if removed {
                stream.walk.seek()?;
            }
            let lsn = stream.walk.first_lsn()?;
            if removed {
                begun_again = begun_again.max(Some(lsn.unwrap_or(stream.notes.anchor)));
            } else if let Some(lsn) = lsn {
                first = Some(first.map_or(lsn, |first| first.min(lsn)));
            }
        }
        let anchor = self.streams.iter().map(|stream| stream.notes.anchor).max();
        let begin = begun_again.or(first).or(anchor).unwrap_or_default();
        self.next = Some((begin, begin));
        Ok(())
    }

    fn found(&self, stream: usize, step: Step) -> Finding {
        match step {
            Step::Block { at, header, begins_term, time, records } => Finding::Block {
                stream: self.streams[stream].notes.stream,
                position: at,
                header,
                begins_term,
                time,
                records,
            },
            Step::Bad { at, why } => {
                let (file, offset) = self.streams[stream].walk.locate(at);
                let durable = self.is_durable(stream, at);
                Finding::Bad { stream: self.streams[stream].notes.stream, at, file, offset, why, durable }
            }
            Step::End { at } => Finding::End { at },
        }
    }

    fn step(&mut self) -> Result<Finding, StoreError> {
        let Some((next, begin)) = self.next else {
            let step = self.streams[0].walk.next()?;
            self.over = matches!(step, Step::End { .. });
            let (Step::Block { at, .. } | Step::Bad { at, .. } | Step::End { at }) = step;
            let finding = self.found(0, step);
            return Ok(self.or_end(finding, at));
        };
        loop {
            for number in 0..self.streams.len() {
                if self.streams[number].pending.is_none() {
                    let step = self.streams[number].walk.next()?;
                    if let Step::Bad { at, .. } = step {
                        let finding = self.found(number, step);
                        if !self.is_under_way(&finding) {
                            return Ok(finding);
                        }
                        // The other streams may go on for a while.
                        self.streams[number].pending = Some(Step::End { at });
                        continue;
                    }
                    self.streams[number].pending = Some(step);
                }
            }
            // The stream whose next block has the smallest LSN.
            let lsns = self.streams.iter().enumerate().filter_map(|(number, stream)| match &stream.pending {
                Some(Step::Block { header, .. }) => Some((header.lsn, number)),
                _ => None,
            });
            let first = lsns.min();
            let Some((lsn, number)) = first else {
                self.over = true;
                return Ok(Finding::End { at: next });
            };
            if lsn > next {
                self.next = Some((lsn, begin));
                let durable = self.watermark().is_some_and(|watermark| next < watermark);
                return Ok(self.or_end(Finding::Gap { from: next, to: lsn, durable }, next));
            }
            let Some(step) = self.streams[number].pending.take() else { unreachable!("it was just looked at") };
            match step {
                // Other streams do not have what belongs between these any more.
                _ if lsn < begin => {}
                Step::Block { at, .. } if lsn < next => {
                    let why = BlockError::Lsn { found: lsn, at: next };
                    return Ok(self.found(number, Step::Bad { at, why }));
                }
                step => {
                    if let Step::Block { header, .. } = &step {
                        self.next = Some((header.end(), begin));
                    }
                    return Ok(self.found(number, step));
                }
            }
        }
    }
}

impl Iterator for Inspection {
    type Item = Result<Finding, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let step = self.step();
        self.over |= step.is_err();
        Some(step)
    }
}
