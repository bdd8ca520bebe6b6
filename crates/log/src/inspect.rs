//! Looking at a log from outside, without owning or changing anything; and saving a tail that is about to be cut.
//!
//! A saved tail is one file: the header of a segment (of kind 2), then the blocks as they were.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use freshet_base::{ClusterId, Stamp};

use crate::{
    block::{BLOCK_HEADER, Block, BlockError, BlockHeader, RecordHeader},
    medium::FileMedium,
    scan::{CHUNK, LogSource, look_behind},
    segments::{
        SegmentStore, StoreError,
        header::{FileHeader, FileKind, HeaderError, SEGMENT_HEADER, USED},
    },
};

/// One thing found in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A whole block.
    Block {
        /// Its header; the stamp is its place.
        header: BlockHeader,
        /// Its records, with their addresses.
        records: Vec<(Stamp, RecordHeader)>,
    },
    /// Something that is no block. The next finding is the next whole block behind it, if there is one.
    Bad {
        /// Where it is in the virtual log.
        at: Stamp,
        /// Which file it is in.
        file: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// Why it is no block.
        why: BlockError,
    },
    /// Only zeros from here on: the end of the log.
    End {
        /// Where it ends.
        at: Stamp,
    },
}

/// Walks over a log directory or a saved tail.
pub struct Inspection {
    source: Box<dyn LogSource>,
    at: Stamp,
    watermark: Option<Stamp>,
    cluster: Option<ClusterId>,
    over: bool,
}

impl Inspection {
    /// Opens a log directory, or a single file that [`save_tail`] wrote. A running node may own the directory: what it
    /// writes meanwhile may then look torn.
    ///
    /// # Errors
    /// [`StoreError`] when it is neither.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if path.is_dir() {
            let store = SegmentStore::look(Arc::new(FileMedium::new(path)))?;
            let start = store.extent().map_or(Stamp::ZERO, |(start, _)| start);
            let (watermark, cluster) = (Some(store.watermark()), store.extent().map(|_| store.config().cluster));
            return Ok(Self { source: Box::new(store), at: start, watermark, cluster, over: false });
        }
        let tail = SavedTail::open(path)?;
        let (at, cluster) = (tail.header.start, Some(tail.header.cluster));
        Ok(Self { source: Box::new(tail), at, watermark: None, cluster, over: false })
    }

    /// How far the log was noted to be durable; none for a saved tail.
    pub fn watermark(&self) -> Option<Stamp> {
        self.watermark
    }

    /// Whose log it is; none for an empty one.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    fn step(&mut self) -> Result<Finding, StoreError> {
        let until = self.source.extent().map_or(self.at, |(_, until)| until);
        let left = until.since(self.at);
        let why = match self.block(left)? {
            Ok(finding) => return Ok(finding),
            Err(why) => why,
        };
        let behind = look_behind(&*self.source, self.at, self.at.plus(8))?;
        if behind.written_to.is_none() {
            self.over = true;
            return Ok(Finding::End { at: self.at });
        }
        let (at, (file, offset)) = (self.at, self.source.locate(self.at));
        match behind.block {
            Some(next) => self.at = next,
            None => self.over = true,
        }
        Ok(Finding::Bad { at, file, offset, why })
    }

    fn block(&mut self, left: u64) -> Result<Result<Finding, BlockError>, StoreError> {
        let mut head = [0; BLOCK_HEADER];
        let head = &mut head[..left.min(BLOCK_HEADER as u64) as usize];
        self.source.read(self.at, head)?;
        let header = match BlockHeader::peek(head) {
            Ok(header) if header.stamp != self.at => {
                return Ok(Err(BlockError::Stamp { found: header.stamp, at: self.at }));
            }
            Ok(header) => header,
            Err(why) => return Ok(Err(why)),
        };
        let mut bytes = vec![0; u64::from(header.length).min(left) as usize];
        self.source.read(self.at, &mut bytes)?;
        Ok(Block::parse(&bytes, self.at).map(|block| {
            self.at = block.end();
            let records = block.records().map(|record| (record.address, record.header)).collect();
            Finding::Block { header: *block.header(), records }
        }))
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

/// Saves `[from, to)` of a log to a file of its own, durably: for a tail that is cut because it was never acknowledged.
///
/// # Errors
/// [`StoreError`]; no file of that name is left half-written then.
pub fn save_tail(
    path: &Path,
    cluster: ClusterId,
    source: &dyn LogSource,
    from: Stamp,
    to: Stamp,
) -> Result<(), StoreError> {
    let unfinished = path.with_extension("new");
    let failed = |doing, error| StoreError::io(doing, path.to_owned(), 0, to.since(from), error);
    let header = FileHeader { kind: FileKind::SavedTail, cluster, size: to.since(from), start: from }.encode();
    let mut file = File::create(&unfinished).map_err(|error| failed("make", error))?;
    let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(|error| failed("write", error));
    write(&header)?;
    write(&[0; SEGMENT_HEADER as usize - USED])?;
    let (mut at, mut bytes) = (from, Vec::new());
    while at < to {
        bytes.resize(to.since(at).min(CHUNK as u64) as usize, 0);
        source.read(at, &mut bytes)?;
        write(&bytes)?;
        at = at.plus(bytes.len() as u64);
    }
    file.sync_all().map_err(|error| failed("sync", error))?;
    fs::rename(&unfinished, path).map_err(|error| failed("rename", error))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|error| failed("sync", error))
}

/// A file that [`save_tail`] wrote.
#[derive(Debug)]
struct SavedTail {
    path: PathBuf,
    file: File,
    header: FileHeader,
}

impl SavedTail {
    fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |doing, error: io::Error| StoreError::io(doing, path.to_owned(), 0, 0, error);
        let file = File::open(path).map_err(|error| failed("open", error))?;
        let mut bytes = [0; USED];
        file.read_exact_at(&mut bytes, 0).map_err(|error| failed("read the header of", error))?;
        let header = FileHeader::decode(&bytes).map_err(|error| match error {
            HeaderError::Format(found) => StoreError::Format { file: path.to_owned(), found },
            HeaderError::Other(what) => StoreError::Header { file: path.to_owned(), what: what.to_owned() },
        })?;
        let found = file.metadata().map_err(|error| failed("ask the size of", error))?.len();
        let expected = SEGMENT_HEADER.saturating_add(header.size);
        if found != expected {
            return Err(StoreError::Length { file: path.to_owned(), found, expected });
        }
        Ok(Self { path: path.to_owned(), file, header })
    }
}

impl LogSource for SavedTail {
    fn extent(&self) -> Option<(Stamp, Stamp)> {
        Some((self.header.start, Stamp(self.header.start.0.saturating_add(self.header.size))))
    }

    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), StoreError> {
        let offset = self.locate(at).1;
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|error| StoreError::io("read", self.path.clone(), offset, 0, error))
    }

    fn locate(&self, at: Stamp) -> (PathBuf, u64) {
        (self.path.clone(), SEGMENT_HEADER + at.since(self.header.start))
    }
}
