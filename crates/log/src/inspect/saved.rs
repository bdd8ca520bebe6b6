//! A tail that was cut off and saved: one file, with the header of a segment (of kind 2), then the
//! blocks as they were.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use freshet_base::{ClusterId, Lsn, private};

use crate::{
    Log, LogFailure, ReceiveError,
    scan::{CHUNK, LogSource},
    segments::{
        StoreError,
        header::{FileHeader, FileKind, HeaderError, SEGMENT_HEADER, USED},
    },
};

/// Saves `[from, to)` of a log to a file of its own, durably: for a tail that is cut because it was
/// never acknowledged.
///
/// # Errors
/// [`StoreError`]; no file of that name is left half-written then.
pub fn save_tail(
    path: &Path,
    cluster: ClusterId,
    source: &dyn LogSource,
    from: Lsn,
    to: Lsn,
) -> Result<(), StoreError> {
    let unfinished = path.with_extension("new");
    let saved = write_tail(path, &unfinished, cluster, source, (from, to));
    if saved.is_err() {
        // The first error is the one to tell; there may be no room for half of it.
        let _ = fs::remove_file(&unfinished);
    }
    saved
}

fn write_tail(
    path: &Path,
    unfinished: &Path,
    cluster: ClusterId,
    source: &dyn LogSource,
    (from, to): (Lsn, Lsn),
) -> Result<(), StoreError> {
    let failed = |doing, error| StoreError::io(doing, path.to_owned(), 0, to.since(from), error);
    let header =
        FileHeader { kind: FileKind::SavedTail, cluster, size: to.since(from), start: from, begin: from, life: 0 }
            .encode();
    let mut file = private::create(unfinished).map_err(|error| failed("make", error))?;
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
    fs::rename(unfinished, path).map_err(|error| failed("rename", error))?;
    private::directory_of(path).and_then(|directory| directory.sync_all()).map_err(|error| failed("sync", error))
}

impl Log {
    /// Saves what was received from `from` on, which is about to be cut, to a file in `directory`
    /// that can be inspected, durably, and returns its name; none when nothing was. Blocks until it
    /// is persistent.
    ///
    /// # Errors
    /// [`ReceiveError`]; nothing may be cut then.
    pub fn save_tail(&self, directory: &Path, from: Lsn) -> Result<Option<PathBuf>, ReceiveError> {
        let to = self.received().get();
        if from >= to {
            return Ok(None);
        }
        self.wait_persisted(to, None)?;
        // It is saved from the segments.
        self.wait_stored(to).map_err(|_| self.failure().map_or(ReceiveError::Closed, ReceiveError::Failed))?;
        let path = (0..)
            .map(|number: u32| directory.join(format!("tail-{:020}-{number}.saved", from.0)))
            .find(|path| !path.exists())
            .expect("some number is free");
        let cluster = self.store().config().cluster;
        save_tail(&path, cluster, self.store(), from, to).map_err(LogFailure::from)?;
        Ok(Some(path))
    }
}

/// A file that [`save_tail`] wrote.
#[derive(Debug)]
pub(super) struct SavedTail {
    path: PathBuf,
    file: File,
    pub(super) header: FileHeader,
}

impl SavedTail {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |doing, error: io::Error| StoreError::io(doing, path.to_owned(), 0, 0, error);
        let file = File::open(path).map_err(|error| failed("open", error))?;
        let mut bytes = [0; USED];
        file.read_exact_at(&mut bytes, 0).map_err(|error| failed("read the header of", error))?;
        let header = FileHeader::decode(&bytes).map_err(|error| match error {
            HeaderError::Format(cause) => StoreError::Format { file: path.to_owned(), cause },
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
    fn extent(&self) -> Option<(Lsn, Lsn)> {
        Some((self.header.start, Lsn(self.header.start.0.saturating_add(self.header.size))))
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<(), StoreError> {
        let offset = self.locate(at).1;
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|error| StoreError::io("read", self.path.clone(), offset, 0, error))
    }

    fn locate(&self, at: Lsn) -> (PathBuf, u64) {
        (self.path.clone(), SEGMENT_HEADER + at.since(self.header.start))
    }
}
