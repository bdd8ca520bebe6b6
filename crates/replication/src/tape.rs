//! Tape: the file in which a node records what happens to its machines
//! ([`freshet_cluster::recording`]), and what reads it.
//!
//! A tape is two files at most: the one that was named, and the one before it, with `.1` behind its
//! name. Each begins with [`HEAD`]; then records follow: their length (4 bytes, little-endian),
//! when they were made (8 bytes, microseconds since 1970), and the record, as `postcard` encodes
//! it. A process continues the file that is there, behind its last whole record. When a file has
//! [`MOST`] bytes it becomes the one before, and in the new one the state of each machine comes
//! first. So a tape has the last of what happened, however often the node was started, and can be
//! replayed. It is written without syncs: what a process has recorded outlives it, and not the
//! machine.

use std::{
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use freshet_base::{
    private,
    sync::{Arc, AtomicU64, Mutex, Ordering},
};
use freshet_cluster::recording::{Record, Recorder, Tape, What};

/// What a file of a tape begins with.
pub const HEAD: &[u8] = b"freshet events 12\n";
/// How many bytes such a file has at most, but for the last record.
pub const MOST: u64 = 32 << 20;
/// A record is no longer.
const LONGEST: usize = 16 << 20;
/// Before the year 10,000: the microseconds since 1970 of a record.
const LATEST: u64 = 253_402_300_800_000_000;
/// What could not be written is tried again after this time.
const AGAIN: Duration = Duration::from_secs(10);

/// Why a file of a tape cannot be written, or read to its end.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// What the system says.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// That.
        source: io::Error,
    },
    /// It is another kind of file, or begins otherwise.
    #[error("{}: it is no file of events, or another version of Freshet wrote it", _0.display())]
    Foreign(PathBuf),
    /// A process writes into it.
    #[error("{}: another process records its events there; each node needs a file of its own", _0.display())]
    InUse(PathBuf),
    /// A record is none.
    #[error(
        "{}: what is at byte {at} is no record: the file is damaged, or another version of Freshet wrote it",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, in bytes.
        at: u64,
    },
}

fn system(path: &Path) -> impl Fn(io::Error) -> TapeError {
    move |source| TapeError::System { path: path.to_owned(), source }
}

struct FileTape {
    path: PathBuf,
    most: u64,
    machines: AtomicU64,
    generation: AtomicU64,
    /// Or since when it cannot be written.
    open: Mutex<Result<Open, Instant>>,
}

/// A file that this process has locked.
struct Open {
    file: File,
    bytes: u64,
}

impl Open {
    /// Behind what is there.
    fn behind(path: &Path, most: u64) -> Result<Self, TapeError> {
        // A new file would take the place of this one.
        Reader::open(&before(path))?;
        let Some(mut there) = Reader::open(path)? else { return Self::begin(path) };
        let file = private::open(OpenOptions::new().write(true), path).map_err(system(path))?;
        let open = Self::lock(file, path)?;
        let is_sound = loop {
            match there.frame() {
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(TapeError::Damaged { .. }) => break false,
                Err(why) => return Err(why),
            }
        };
        if there.at >= most || !is_sound {
            fs::rename(path, before(path)).map_err(system(path))?;
            return Self::begin(path);
        }
        open.from(there.at).map_err(system(path))
    }

    /// A new file.
    fn begin(path: &Path) -> Result<Self, TapeError> {
        let file = private::open(OpenOptions::new().write(true).create(true), path).map_err(system(path))?;
        Self::lock(file, path)?.from(0).map_err(system(path))
    }

    fn lock(file: File, path: &Path) -> Result<Self, TapeError> {
        match file.try_lock() {
            Ok(()) => Ok(Self { file, bytes: 0 }),
            Err(TryLockError::WouldBlock) => Err(TapeError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(system(path)(source)),
        }
    }

    /// Cuts the file at `end`, if it has more.
    fn from(mut self, end: u64) -> io::Result<Self> {
        let whole = if end < HEAD.len() as u64 { 0 } else { end };
        self.file.set_len(whole)?;
        self.bytes = self.file.seek(SeekFrom::End(0))?;
        if self.bytes == 0 {
            self.file.write_all(HEAD)?;
            self.bytes = HEAD.len() as u64;
        }
        Ok(self)
    }
}

/// The file before the one at `path`.
pub fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Records in the file at `path`, behind what is there. A write that fails is logged; recording
/// begins again when writes succeed. A write that blocks holds up the node.
///
/// # Errors
/// [`TapeError`]: it cannot be written, or is something else.
pub fn recorder(path: &Path) -> Result<Recorder, TapeError> {
    recorder_of(path, MOST)
}

fn recorder_of(path: &Path, most: u64) -> Result<Recorder, TapeError> {
    let (machines, generation) = (AtomicU64::new(1), AtomicU64::new(1));
    let open = Mutex::new(Err(Instant::now()));
    let tape = FileTape { path: path.to_owned(), most, machines, generation, open };
    *tape.open.lock().expect("no code panics under this mutex") = Ok(tape.begin()?);
    Ok(Recorder::new(Arc::new(tape)))
}

impl FileTape {
    fn begin(&self) -> Result<Open, TapeError> {
        let mut open = Open::behind(&self.path, self.most)?;
        let version = freshet_base::versions::RELEASE.to_owned();
        self.write(&mut open, &Record { machine: 0, what: What::Begins { version } })?;
        self.generation.fetch_add(1, Ordering::SeqCst);
        Ok(open)
    }

    fn write(&self, open: &mut Open, record: &Record) -> Result<(), TapeError> {
        let failed = system(&self.path);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut bytes = vec![0; 12];
        bytes[4..].copy_from_slice(&(since.as_micros() as u64).to_le_bytes());
        let mut bytes = postcard::to_extend(record, bytes).map_err(io::Error::other).map_err(&failed)?;
        let length = u32::try_from(bytes.len() - 12).map_err(io::Error::other).map_err(&failed)?;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        open.file.write_all(&bytes).map_err(&failed)?;
        open.bytes += bytes.len() as u64;
        if open.bytes >= self.most {
            fs::rename(&self.path, before(&self.path)).map_err(&failed)?;
            *open = Open::begin(&self.path)?;
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Tape for FileTape {
    fn next_machine(&self) -> u64 {
        self.machines.fetch_add(1, Ordering::SeqCst)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn record(&self, record: &Record) {
        let mut open = self.open.lock().expect("no code panics under this mutex");
        if open.as_ref().is_err_and(|since| since.elapsed() >= AGAIN) {
            *open = self.begin().map_err(|_| Instant::now());
            if open.is_ok() {
                tracing::info!(path = %self.path.display(), "what happens is recorded again");
            }
        }
        let Ok(file) = open.as_mut() else { return };
        if let Err(cause) = self.write(file, record) {
            tracing::warn!(%cause, "what happens cannot be recorded; it is tried again every {AGAIN:?}");
            *open = Err(Instant::now());
        }
    }
}

/// Reads a file of a tape, record by record, each with when it was made, since 1970. The last one
/// may be incomplete, and is left out then. Nothing comes behind an error.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    metadata: Metadata,
    /// The end of what was read.
    at: u64,
    failed: bool,
}

impl Reader {
    /// None where there is no such file.
    fn open(path: &Path) -> Result<Option<Self>, TapeError> {
        let failed = system(path);
        let is_file = match fs::metadata(path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.map_err(&failed)?.is_file(),
        };
        if !is_file {
            return Err(TapeError::Foreign(path.to_owned()));
        }
        let file = File::open(path).map_err(&failed)?;
        let metadata = file.metadata().map_err(&failed)?;
        let (mut file, mut head) = (BufReader::new(file), Vec::new());
        file.by_ref().take(HEAD.len() as u64).read_to_end(&mut head).map_err(&failed)?;
        // It is shorter where the disk was full.
        if !HEAD.starts_with(&head) {
            return Err(TapeError::Foreign(path.to_owned()));
        }
        let (path, at) = (path.to_owned(), head.len() as u64);
        Ok(Some(Self { path, file, metadata, at, failed: false }))
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, TapeError> {
        let mut bytes = Vec::new();
        self.file.by_ref().take(length as u64).read_to_end(&mut bytes).map_err(system(&self.path))?;
        Ok(bytes)
    }

    /// The next record's time and bytes.
    fn frame(&mut self) -> Result<Option<(Duration, Vec<u8>)>, TapeError> {
        let head = self.take(12)?;
        let Ok(head) = <[u8; 12]>::try_from(head) else { return Ok(None) };
        let (length, since) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        let since = u64::from_le_bytes(since.try_into().expect("eight bytes"));
        if length == 0 || length > LONGEST || since >= LATEST {
            return Err(TapeError::Damaged { path: self.path.clone(), at: self.at });
        }
        let record = self.take(length)?;
        if record.len() < length {
            return Ok(None);
        }
        self.at += 12 + length as u64;
        Ok(Some((Duration::from_micros(since), record)))
    }
}

impl Iterator for Reader {
    type Item = Result<(Duration, Record), TapeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let at = self.at;
        let read = self.frame().and_then(|frame| {
            let Some((since, bytes)) = frame else { return Ok(None) };
            let damaged = |_| TapeError::Damaged { path: self.path.clone(), at };
            Ok(Some((since, postcard::from_bytes(&bytes).map_err(damaged)?)))
        });
        self.failed = read.is_err();
        read.transpose()
    }
}

/// The files of the tape at `path`, the earlier one first: none where there is no such file.
///
/// # Errors
/// [`TapeError`]
pub fn read(path: &Path) -> Result<Vec<Reader>, TapeError> {
    // In this order: what a node that is running begins in between is missed, and nothing else.
    let last = Reader::open(path)?;
    let first = Reader::open(&before(path))?;
    let place = |reader: &Reader| (reader.metadata.dev(), reader.metadata.ino());
    let first = first.filter(|first| last.as_ref().is_none_or(|last| place(last) != place(first)));
    Ok([first, last].into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use freshet_base::{Lsn, NodeId};
    use freshet_cluster::{
        mirror::MirrorState,
        recording::{Recorded, Replay, What},
    };

    use super::*;

    fn whole(reader: Reader) -> Vec<Record> {
        reader.map(|record| record.unwrap().1).collect()
    }

    fn mirror(recorder: &Recorder) -> Recorded<MirrorState> {
        Recorded::new(MirrorState::new(NodeId(2), true), recorder)
    }

    #[test]
    fn two_files_have_the_last_of_what_happened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let mut it = mirror(&recorder_of(&path, 2000).unwrap());
        for to in 0..1000 {
            it.observe(Lsn(to), Lsn::ZERO);
        }
        drop(it);
        let mut replay = Replay::default();
        let mut last = None;
        for reader in read(&path).unwrap() {
            assert!(reader.metadata.len() < 2200);
            let records = whole(reader);
            assert!(matches!(records[0].what, What::State(_)), "the state comes first");
            for record in records {
                replay.step(&record).unwrap();
                last = Some(record);
            }
        }
        assert!(format!("{last:?}").contains("999"), "{last:?}");
    }

    /// However often a node is started, also while it fails: what was recorded is still there.
    #[test]
    fn another_process_continues_a_tape() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        for life in 1..5_u64 {
            let recorder = recorder(&path).unwrap();
            assert!(matches!(super::recorder(&path), Err(TapeError::InUse(_))), "it is this one's");
            let mut it = mirror(&recorder);
            it.seeded(Lsn(100), Lsn(200));
            it.observe(Lsn(200 + life), Lsn::ZERO);
            drop((it, recorder));
            // The process ends while it writes.
            OpenOptions::new().append(true).open(&path).unwrap().write_all(&[40, 0, 0, 0, 9, 9]).unwrap();
        }
        let [reader] = read(&path).unwrap().try_into().unwrap();
        let (mut replay, mut begun) = (Replay::default(), 0);
        for record in whole(reader) {
            begun += u32::from(matches!(record.what, What::Begins { .. }));
            replay.step(&record).unwrap();
        }
        assert_eq!(begun, 4);
    }

    #[test]
    fn what_cannot_be_written_is_recorded_later_and_shows_the_gap() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let open = Mutex::new(Err(Instant::now().checked_sub(AGAIN).unwrap()));
        let (machines, generation) = (AtomicU64::new(1), AtomicU64::new(1));
        let tape = FileTape { path: path.clone(), most: MOST, machines, generation, open };
        let mut it = mirror(&Recorder::new(Arc::new(tape)));
        it.seeded(Lsn(100), Lsn(200));
        it.observe(Lsn(250), Lsn::ZERO);
        let mut replay = Replay::default();
        let [reader] = read(&path).unwrap().try_into().unwrap();
        let replayed: Vec<_> = whole(reader).iter().map(|record| replay.step(record).unwrap()).collect();
        assert_eq!(replayed.last(), Some(&true));
    }

    #[test]
    fn what_is_no_tape_is_refused_and_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        assert!(matches!(recorder(directory.path()), Err(TapeError::Foreign(_))), "a directory");
        assert!(matches!(recorder(Path::new("/dev/null")), Err(TapeError::Foreign(_))), "a device");
        for other in [path.clone(), before(&path)] {
            fs::write(&other, "mine").unwrap();
            assert!(matches!(recorder(&path), Err(TapeError::Foreign(named)) if named == other));
            assert_eq!(fs::read(&other).unwrap(), b"mine");
            fs::remove_file(&other).unwrap();
        }
        assert!(read(&path).unwrap().is_empty());
    }

    #[test]
    fn a_torn_end_is_left_out_and_damage_hides_nothing_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let mut it = mirror(&recorder(&path).unwrap());
        it.seeded(Lsn(100), Lsn(200));
        drop(it);
        let bytes = fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            let [reader] = read(&path).unwrap().try_into().unwrap();
            assert!(whole(reader).len() < 3, "{length} bytes");
        }
        for at in HEAD.len()..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x80;
            fs::write(&path, &damaged).unwrap();
            let [reader] = read(&path).unwrap().try_into().unwrap();
            let mut replay = Replay::default();
            for record in reader {
                let Ok((since, record)) = record else { break };
                assert!(since.as_micros() < u128::from(LATEST), "it can be shown");
                drop(replay.step(&record));
            }
        }
        // Zeros at the end, as a loss of power leaves them: what is before is shown, and kept.
        fs::write(&path, [&bytes[..], &[0; 100]].concat()).unwrap();
        let [reader] = read(&path).unwrap().try_into().unwrap();
        let records: Vec<_> = reader.collect();
        assert!(matches!(&records[..], [Ok(_), Ok(_), Ok(_), Err(TapeError::Damaged { .. })]), "{records:?}");
        drop(recorder(&path).unwrap());
        assert_eq!(read(&path).unwrap().len(), 2);
    }
}
