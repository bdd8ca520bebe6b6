//! Tape: the file in which a node records what happens to its machines
//! ([`freshet_cluster::recording`]), and what reads it.
//!
//! A tape is two files at most: the one that was named, and the one before it, with `.1` behind its
//! name. Each begins with [`HEAD`]; then records follow: their length (4 bytes, little-endian),
//! when they were made (8 bytes, microseconds since 1970), and the record, as `postcard` encodes
//! it. When a file has [`MOST`] bytes it becomes the one before, and in the new one the state of
//! each machine comes first. So a tape has the last of what happened, and can be replayed. It is
//! written without syncs: what a process has recorded outlives it, and not the machine.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use freshet_base::{
    private,
    sync::{Arc, AtomicU64, Mutex, Ordering},
};
use freshet_cluster::recording::{Record, Recorder, Tape};

/// What a file of a tape begins with.
pub const HEAD: &[u8] = b"freshet events 1\n";
/// How many bytes such a file has at most, but for the last record.
pub const MOST: u64 = 32 << 20;
/// A record is no longer.
const LONGEST: usize = 16 << 20;

struct FileTape {
    path: PathBuf,
    most: u64,
    machines: AtomicU64,
    generation: AtomicU64,
    /// None when it could not be written.
    open: Mutex<Option<Open>>,
}

struct Open {
    file: File,
    bytes: u64,
}

impl Open {
    /// A new file; what was there becomes the one before.
    fn begin(path: &Path) -> io::Result<Self> {
        if path.exists() {
            fs::rename(path, before(path))?;
        }
        let mut file = private::create(path)?;
        file.write_all(HEAD)?;
        Ok(Self { file, bytes: HEAD.len() as u64 })
    }
}

/// The file before the one at `path`.
pub fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Records in the file at `path`, from its beginning on. What is there becomes the file before.
///
/// # Errors
/// When it cannot be made.
pub fn recorder(path: &Path) -> io::Result<Recorder> {
    recorder_of(path, MOST)
}

fn recorder_of(path: &Path, most: u64) -> io::Result<Recorder> {
    let open = Mutex::new(Some(Open::begin(path)?));
    let (machines, generation) = (AtomicU64::new(1), AtomicU64::new(1));
    Ok(Recorder::new(Arc::new(FileTape { path: path.to_owned(), most, machines, generation, open })))
}

impl FileTape {
    fn write(&self, open: &mut Open, record: &Record) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut bytes = vec![0; 12];
        bytes[4..].copy_from_slice(&(since.as_micros() as u64).to_le_bytes());
        let mut bytes = postcard::to_extend(record, bytes).map_err(io::Error::other)?;
        let length = u32::try_from(bytes.len() - 12).map_err(io::Error::other)?;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        open.file.write_all(&bytes)?;
        open.bytes += bytes.len() as u64;
        if open.bytes >= self.most {
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
        let Some(file) = open.as_mut() else { return };
        if let Err(cause) = self.write(file, record) {
            let path = self.path.display();
            tracing::warn!(%cause, %path, "what happens cannot be recorded any more");
            *open = None;
        }
    }
}

/// Why a file of a tape cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// What the system says.
    #[error(transparent)]
    System(#[from] io::Error),
    /// It begins otherwise.
    #[error("it is no file of events, or another version of Freshet wrote it")]
    Foreign,
    /// A record is none.
    #[error("what is at byte {at} is no record: the file is damaged, or another version of Freshet wrote it")]
    Damaged {
        /// Where, in bytes.
        at: u64,
    },
}

/// The records of the file at `path`, with when they were made, since 1970. The last one may be
/// incomplete, and is left out then.
///
/// # Errors
/// [`TapeError`]
pub fn read(path: &Path) -> Result<Vec<(Duration, Record)>, TapeError> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    let mut rest = bytes.strip_prefix(HEAD).ok_or(TapeError::Foreign)?;
    let mut records = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<12>() {
        let at = (bytes.len() - rest.len()) as u64;
        let (length, since) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        let since = u64::from_le_bytes(since.try_into().expect("eight bytes"));
        if length > LONGEST {
            return Err(TapeError::Damaged { at });
        }
        let Some((record, behind)) = behind.split_at_checked(length) else { break };
        let record = postcard::from_bytes(record).map_err(|_| TapeError::Damaged { at })?;
        records.push((Duration::from_micros(since), record));
        rest = behind;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use freshet_base::{Lsn, NodeId};
    use freshet_cluster::{
        mirror::MirrorState,
        recording::{Recorded, Replay, What},
    };

    use super::*;

    #[test]
    fn two_files_have_the_last_of_what_happened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let recorder = recorder_of(&path, 2000).unwrap();
        let mut it = Recorded::new(MirrorState::new(NodeId(2), true), &recorder);
        for to in 0..1000 {
            it.observe(Lsn(to), Lsn::ZERO);
        }
        let mut replay = Replay::default();
        let mut last = None;
        for path in [before(&path), path.clone()] {
            assert!(fs::metadata(&path).unwrap().len() < 2200);
            let records = read(&path).unwrap();
            assert!(matches!(records[0].1.what, What::State(_)), "the state comes first");
            for (_, record) in records {
                replay.step(&record).unwrap();
                last = Some(record);
            }
        }
        assert!(format!("{last:?}").contains("999"), "{last:?}");
        // Another process begins again, and leaves what was there.
        let _ = recorder_of(&path, 2000).unwrap();
        assert_eq!((read(&path).unwrap().len(), read(&before(&path)).unwrap().is_empty()), (0, false));
    }

    #[test]
    fn what_is_no_tape_is_refused_and_a_torn_end_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let recorder = recorder(&path).unwrap();
        let mut it = Recorded::new(MirrorState::new(NodeId(2), true), &recorder);
        it.seeded(Lsn(100), Lsn(200));
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            match read(&path) {
                Ok(records) => assert!(records.len() < 2, "{length} bytes"),
                Err(error) => assert!(matches!(error, TapeError::Foreign) && length < HEAD.len(), "{length}: {error}"),
            }
        }
        for at in HEAD.len()..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x80;
            fs::write(&path, &damaged).unwrap();
            let _ = read(&path).map(|records| {
                let mut replay = Replay::default();
                records.iter().for_each(|(_, record)| drop(replay.step(record)));
            });
        }
    }
}
